r"""Tables whose runs differ in their recipe: which of them a law of size, data and epochs is fitted to.

**Tuned envelope.** Such a law knows no learning rate, batch or dropout. Where runs of one size, data, epochs
and weight decay differ in them, a fit to all would describe how the sweep was laid out. So of every (size,
data, epochs) the setting with the lowest loss is taken, weight decay included, with all its seeds: what
somebody reaches who tunes. A cell with one setting was not tuned, and is named. Where recipes differ between
cells only (a larger batch for larger models), nothing has to be chosen.

**Runs starved of steps.** At a fixed size, E + A/N^a + B/D^b is convex in ln D, and so is its logarithm: with
c = E + A/N^a, (ln L)'' L^2 = b^2 B D^-b c > 0. What repetition costs is convex in ln(epochs) too, from two
epochs on. So along data seen once, or along epochs of the same data, ln(loss) may flatten or rise with
ln(steps), but never fall faster and faster. Where it does, the model has not been trained for long enough to
show what its data are worth: it is short of updates, and no law of data has parameters for that. Which runs
these are is therefore read off the runs, without a law and without a number of steps fixed beforehand:

1. A *series* is the runs of one size and batch that see their data once, at each number of steps the best
   setting, up to where the loss rises. It needs three numbers of steps.
2. The greatest convex minorant of ln(loss) over ln(steps) is drawn (Barlow et al. 1972; the lower hull). A
   run above it by more than `_CLEARLY` times the noise contradicts every law, and all runs left of the next
   vertex of the hull are starved: from that vertex on the series is convex. The noise is that between seeds
   where the table has repeats, and never less than what is usual between them.
3. Series in which convexity is seen to return, with a run beyond that vertex, each name a number of steps;
   the median is what the rule asks for of all runs. Where no series has such a run the largest vertex is
   taken, which is the least that can be said.
4. Where no data seen once show anything, as in a table of one size and corpus, series over the epochs of the
   same data are asked in the same way. They come second because what repetition costs bends them sooner.

The median, because one misplaced loss makes a series convex anywhere. The rule needs a table that shows the
fault: without short runs, or without steps, it asks for nothing. What a table shows holds for every part of
it that a caller chooses. Where it would leave fewer than `_FEWEST` runs, nothing is left out and that is
said.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from calibration.fitting.runs.arrays import SINGLE_EPOCH
from calibration.fitting.runs.checks import WARNINGS, TableWarning, listed
from planner.inputs import short

CELL = ["params", "unique_tokens", "epochs"]
SETTING = ["weight_decay", "learning_rate", "batch_tokens", "dropout"]
STEPS_NEEDED = "steps_needed"  # among the attributes of a table, and the fields of a calibration
STEPS_CHOSEN = "steps_chosen"  # whether the caller says which steps are enough
_SELECTED = "selected"
_FEWEST = 3  # runs that a fit needs
_CLEARLY = 4.0  # standard deviations
_APART = 1.05  # ratio from which settings differ by more than rounding
# What a rate or batch may go with, and what it is called.
_ALONG = {
    "params": "size",
    "weight_decay": "weight decay",
    "unique_tokens": "unique tokens",
    "epochs": "epochs",
}
_USUAL_NOISE = 0.005  # of ln(loss) between seeds


def steps_needed(table: pd.DataFrame) -> float | None:
    """How many steps a run needs to say something about data, by the rule above; None where the runs show no
    want of them.
    """
    if "steps" not in table:
        return None
    clearly = _CLEARLY * max(noise_between_seeds(table), _USUAL_NOISE)
    known = table[table["steps"].notna()]
    once = known[known["epochs"] <= SINGLE_EPOCH]
    for rows, keys in (
        (once, ["params", "batch_tokens"]),
        (known, ["params", "batch_tokens", "unique_tokens"]),
    ):
        series = [runs.groupby("steps")["loss"].min() for _, runs in rows.groupby(keys)]
        found = [_convex_from(one, clearly) for one in series if len(one) > 2]
        returned = [steps for steps, seen in found if seen]
        if returned:
            return float(np.quantile(returned, 0.5, method="higher"))
        if any(steps for steps, _ in found):
            return max(steps for steps, _ in found)
    return None


def _convex_from(series: pd.Series, clearly: float) -> tuple[float, bool]:
    """The steps from which ln(loss) is convex in ln(steps), 0 where it always is, and whether there is a run
    beyond them.
    """
    steps, loss = (np.log(np.asarray(values, dtype=float)) for values in (series.index, series))
    rises = np.flatnonzero(np.diff(loss) > 0)
    falling = slice(0, 1 + (int(rises[0]) if len(rises) else len(loss)))
    hull = _convex_minorant(steps[falling], loss[falling])
    above = np.flatnonzero(loss[falling] - np.interp(steps[falling], steps[hull], loss[hull]) > clearly)
    if not len(above):
        return 0.0, False
    vertex = next(place for place in hull if place > above[-1])
    return float(series.index[vertex]), vertex < len(loss) - 1


def _convex_minorant(x: np.ndarray, y: np.ndarray) -> list[int]:
    """The vertices of the lower hull of points by ascending x (Andrew's monotone chain)."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1 and _turns_up(x, y, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    return hull


def _turns_up(x: np.ndarray, y: np.ndarray, a: int, b: int, c: int) -> bool:
    """Whether b is not below the line from a to c."""
    return bool((y[b] - y[a]) * (x[c] - x[a]) >= (y[c] - y[a]) * (x[b] - x[a]))


def noise_between_seeds(table: pd.DataFrame) -> float:
    """The standard deviation of ln(loss) between runs that differ in nothing but their seed; 0 where none
    do.
    """
    groups = np.log(table["loss"]).groupby(_setting(table, [*CELL, *_settings(table)]))
    free = len(table) - groups.ngroups
    return float(np.sqrt(((groups.size() - 1) * groups.var().fillna(0.0)).sum() / free)) if free else 0.0


def _settings(table: pd.DataFrame) -> list[str]:
    return [name for name in SETTING if name in table]


def _setting(table: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """A number for each distinct row of these columns; what is not said is a value of its own."""
    return np.asarray(table.groupby(list(names), dropna=False, sort=False).ngroup())


# -- which rows a law is fitted to ---------------------------------------------------------------------------


def comparable_runs(table: pd.DataFrame, weight_decay: float | None = None) -> pd.DataFrame:
    """The rows of a table that laws of size, data and epochs are fitted to: without runs starved of steps,
    and where recipes differ inside a weight decay the tuned envelope; with `weight_decay`, of those runs
    only. `warnings_of` says what was done.

    The columns of an envelope are those of its best runs, but for the weight decay where that was tuned as
    well: it is the middle one in all rows, and `tuned_weight_decay` has each row's own. What was selected
    once stays as it is.
    """
    if table.attrs.get(_SELECTED):
        return table if weight_decay is None else _at(table, weight_decay)
    found, said = with_enough_steps(table)
    if weight_decay is not None:
        found = _at(found, weight_decay)
    found, more = _envelope(found)
    found = found.reset_index(drop=True)
    found.attrs = {**table.attrs, _SELECTED: True, STEPS_NEEDED: needed_of(table)}
    found.attrs[WARNINGS] = [*table.attrs.get(WARNINGS, ()), *map(list, (*said, *more))]
    return found


def needed_of(table: pd.DataFrame) -> float | None:
    """The steps that the rule asks for of the runs of a table, or of the one that they were chosen from."""
    asked = (steps_needed(table), table.attrs.get(STEPS_NEEDED))
    return max((steps for steps in asked if steps is not None), default=None)


def with_enough_steps(table: pd.DataFrame) -> tuple[pd.DataFrame, list[TableWarning]]:
    """The runs that are not starved of steps, and which are; all where the caller chose by steps."""
    needed = needed_of(table)
    if needed is None or table.attrs.get(STEPS_CHOSEN):
        return table, []
    enough = ~(table["steps"] < needed)
    if enough.all():
        return table, []
    return (table[enough] if enough.sum() >= _FEWEST else table), [_starved(table, enough, needed)]


def _at(table: pd.DataFrame, weight_decay: float) -> pd.DataFrame:
    return table[np.isclose(table["weight_decay"], weight_decay, rtol=1e-9, atol=1e-12)]


def _starved(table: pd.DataFrame, enough: pd.Series, needed: float) -> TableWarning:
    few = table[~enough]
    names = listed(list(few["run"]), 3)
    runs = f"{len(few):,} of {len(table):,} runs have fewer than {needed:,.0f} steps ({names})"
    why = "up to there ln(loss) falls faster and faster with ln(steps), as no law of data does"
    if enough.sum() < _FEWEST:
        left = "the others are too few to do without them: train longer, or with a smaller batch"
        return TableWarning("starved_of_steps", f"{runs}: {why}, but {left}", warns=True)
    text = f"left out, starved of steps: {runs}; {why} (‹where› 'steps > 0' keeps them)"
    return TableWarning("starved_of_steps", text)


def _envelope(table: pd.DataFrame) -> tuple[pd.DataFrame, list[TableWarning]]:
    """The tuned envelope where there is something to choose."""
    recipe = [name for name in _settings(table) if name != "weight_decay"]
    cells = _setting(table, CELL)
    each = _setting(table, [*CELL, "weight_decay"])
    varied = [name for name in recipe if (table.groupby(each)[name].nunique(dropna=False) > 1).any()]
    if not varied:
        return table, _between_cells(table)
    settings = pd.Series(_setting(table, [*CELL, *_settings(table)]), index=table.index)
    mean = table["loss"].groupby(settings).transform("mean")
    best = settings[mean.groupby(cells).idxmin().to_numpy()]
    rows = settings.isin(best)
    tried = settings.groupby(cells).nunique().to_numpy()
    found = table[rows].assign(settings_tried=tried[cells[rows]])
    decays = np.sort(found["weight_decay"].to_numpy())
    if decays[0] < decays[-1]:
        middle = float(decays[len(decays) // 2])
        found = found.assign(tuned_weight_decay=found["weight_decay"], weight_decay=middle)
    return found, [_taken(table, found, varied), *_untuned(found), *_at_the_edge(table, found, varied)]


def _between_cells(table: pd.DataFrame) -> list[TableWarning]:
    """Rates and batches that differ, though never inside a cell: the law cannot tell what they do from what
    the size or the data they go with does.
    """
    said = []
    for name in ("learning_rate", "batch_tokens"):
        known = table[table[name].notna()] if name in table else table[:0]
        if not len(known) or known[name].max() < _APART * known[name].min():
            continue
        show = short if name == "batch_tokens" else "{:g}".format
        values = (
            f"{_word(name)} differs between runs ({show(known[name].min())} to {show(known[name].max())})"
        )
        along = next((column for column in _ALONG if _follows(known, name, column)), None)
        if along is None:
            text = "; the law knows nothing of it"
        else:
            in_order = known.sort_values(along)[name]
            ends = f"{show(in_order.iloc[0])} at the smallest, {show(in_order.iloc[-1])} at the largest"
            text = f" and goes with the {_ALONG[along]} ({ends}): the law is of that rule, and cannot tell "
            text += "the two apart"
        said.append(TableWarning("recipes_differ", values + text, warns=True))
    return said


def _follows(table: pd.DataFrame, name: str, column: str) -> bool:
    """Whether a setting is the same for all runs with the same value of this column."""
    spans = table.groupby(column)[name].agg(["min", "max"])
    return len(spans) > 1 and bool((spans["max"] < _APART * spans["min"]).all())


def _taken(table: pd.DataFrame, found: pd.DataFrame, varied: Sequence[str]) -> TableWarning:
    """What was taken of how many, and how to take something else."""
    spans = [f"{_word(name)} ({table[name].min():g} to {table[name].max():g})" for name in varied]
    verb = "differs" if len(varied) == 1 else "differ"
    tried = found["settings_tried"]
    text = (
        f"{' and '.join(spans)} {verb} inside a weight decay: took the tuned envelope, the best setting of "
        f"each size, data and epochs, {len(found):,} of {len(table):,} runs ({tried.min()} to {tried.max()} "
        f"settings each, {tried.median():g} in the middle)"
    )
    if "tuned_weight_decay" in found:
        own, middle = found["tuned_weight_decay"], found["weight_decay"].iloc[0]
        text += f", at weight decays of {own.min():g} to {own.max():g}, called {middle:g}, the middle one"
    common = table[varied[0]].value_counts().index[0]
    return TableWarning("tuned_envelope", f"{text}; ‹where› '{varied[0]} == {common:g}' takes one recipe")


def _untuned(found: pd.DataFrame) -> list[TableWarning]:
    cells = found.drop_duplicates(CELL)
    once = cells[cells["settings_tried"] == 1]
    if not len(once):
        return []
    names = listed(list(once["run"]), 3)
    text = f"{len(once)} of {len(cells)} cells had one setting only ({names}): they were not tuned here"
    return [TableWarning("not_tuned", text, warns=True)]


def _at_the_edge(table: pd.DataFrame, found: pd.DataFrame, varied: Sequence[str]) -> list[TableWarning]:
    """Whether the best is the largest or smallest that was tried, in most of the cells that tried several."""
    said = []
    for name in varied:
        ends = table.groupby(CELL)[name].agg(["min", "max"])
        both = found.drop_duplicates(CELL).join(ends, on=CELL)
        both = both[both["min"] < both["max"]]
        for end, word in (("max", "largest"), ("min", "smallest")):
            there = int((both[name] == both[end]).sum())
            if there > len(both) / 2:
                text = f"the best {_word(name)} is the {word} that was tried in {there} of {len(both)} cells"
                said.append(
                    TableWarning("edge_of_sweep", f"{text}: beyond it losses may be lower", warns=True)
                )
    return said


def _word(column: str) -> str:
    return column.replace("_", " ")
