"""Checking a run table: every cell a plausible number, every run once, and all that is wrong in one message.

Rows that are not used need not be usable; where it cannot be known whether a row is used, it counts as one
that is. Runs that came to no end, or do not say what is needed, are left out where the caller asks for it.

The sanity checks find slips that make a readable table mean something else: counts in millions, perplexities
or bits for losses, checkpoints for runs. What cannot be true is refused, what is doubtful is a warning; both
name the cure. What a loss should be is asked of the shipped law, and only where that is at home: models of
five million parameters and more, trained on twenty million tokens and more.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from planner.calibration import Calibration
from planner.inputs import InvalidInput, count, number, short

COLUMNS = ("run", "params", "unique_tokens", "epochs", "tokens", "weight_decay", "loss")
TOKENS = ("unique_tokens", "tokens", "epochs")  # two of them are enough
COUNTS = ("params", "unique_tokens", "tokens")
# What a run was trained with besides, where its table says it.
RECIPE = ("learning_rate", "batch_tokens", "steps", "dropout")
WARNINGS = "warnings"  # among the attributes of a table
# Cells outside of these ranges are slips of a unit or of a column, and would only break the arithmetic of a
# fit.
PLAUSIBLE = {
    "params": (1.0, 1e18),
    "unique_tokens": (1.0, 1e18),
    "tokens": (1e-3, 1e21),
    "epochs": (1e-9, 1e9),
    "weight_decay": (0.0, 1e6),
    "loss": (1e-9, 1e3),
}
_POSSIBLE = {
    "learning_rate": (1e-12, 1e3),
    "batch_tokens": (1.0, 1e12),
    "steps": (1e-3, 1e15),
    "dropout": (0.0, 1.0),
}
_AGREE, _AGREE_EPOCHS = 0.01, 0.005  # tokens and epochs may be rounded: to 1%, or to two decimals of an epoch
_SHOWN = 20
_UNIT = ": check its unit"
_STATES = ("state", "status", "run_state")
_UNFINISHED = {"crashed", "failed", "killed", "running", "preempted", "preempting", "pending", "unfinished"}
_UNFINISHED |= {"diverged", "cancelled", "canceled", "oom", "error", "timeout"}
# Reasons for which a run may be left out.
_IS_MISSING, _NOT_FINITE, _NOT_FINISHED = "is missing", "is not finite", "is not the end of a run"
DOES_NOT_FIT = "does not fit"  # its name, to the pattern of names
_NOT_ALL = re.compile(r"(?=.*param)(?=.*(?:emb|active))", re.I)
# Names that may be meant by ours, whatever else they say.
_SAYS = {
    "params": re.compile(r"param|model.?size", re.I),
    "unique_tokens": re.compile(r"token(?!i)", re.I),
    "epochs": re.compile(r"epoch|token(?!i)", re.I),
    "weight_decay": re.compile(r"weight.?decay|(?<![a-z])wd(?![a-z])", re.I),
    "loss": re.compile(r"^(?!.*train).*(?:loss|perplexity|ppl|nll|entropy)", re.I),
}


class TableWarning(NamedTuple):
    """One sentence about a table. `code` stays the same whatever the words; a warning doubts the runs."""

    code: str
    text: str
    warns: bool = False


WHOLE_TABLE = 0  # the row of a problem that is none of a single run


class Problem(NamedTuple):
    """One unusable cell, or what is wrong with a whole column. Rows are counted from 1, the first run below
    the header.
    """

    row: int
    column: str
    value: str
    reason: str

    @property
    def is_absent(self) -> bool:
        """Whether the run says too little rather than something wrong."""
        return self.reason.startswith((_IS_MISSING, _NOT_FINITE, _NOT_FINISHED, DOES_NOT_FIT))


class RunTableError(InvalidInput):
    """A run table that cannot be used: `problems` has every unusable cell, `columns` a sentence for each
    column that is missing or means something else (`of_columns` says which); the text has each kind of
    problem once, with the rows that have it. `runs` are the names of the runs.
    """

    def __init__(self, name: str, problems: Sequence[Problem], runs: Sequence[str] = ()) -> None:
        self.problems = cells = [problem for problem in problems if problem.row != WHOLE_TABLE]
        self.of_columns = [problem for problem in problems if problem.row == WHOLE_TABLE]
        self.columns = columns = [problem.reason for problem in self.of_columns]
        if not cells and len(columns) == 1:
            super().__init__(f"{columns[0]}.")
            return
        rows = len({problem.row for problem in cells})
        many = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        many += f" in {rows} row{'s' * (rows > 1)}" * (rows > 0 and not columns and len(problems) > 1)
        lines = [f"{name} has {many}{' (row 1 is the first run)' * bool(cells)}:"]
        lines += [f"  {reason.removeprefix(f'{name} has ')}" for reason in columns]
        super().__init__("\n".join([*lines, *_of_cells(cells, runs)]))


def _of_cells(cells: Sequence[Problem], runs: Sequence[str]) -> list[str]:
    """One line for each kind of problem, and how many rows can be left out."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in cells:
        kinds.setdefault((problem.column, problem.reason), []).append(problem)
    lines = [_in_rows(alike, runs) for alike in list(kinds.values())[:_SHOWN]]
    if len(kinds) > _SHOWN:
        lines.append(f"  ... and {len(kinds) - _SHOWN} more")
    if absent := len({problem.row for problem in cells if problem.is_absent}):
        which = "the one row" if absent == 1 else f"the {absent} rows"
        lines.append(f"  ‹drop_missing› leaves out {which} without a final loss or a setting")
    return lines


def _in_rows(alike: Sequence[Problem], runs: Sequence[str]) -> str:
    """One problem and the rows that have it: all of a few, by name where runs have names."""
    first = alike[0]
    called = f" ({runs[first.row - 1]})" if runs and first.column != "run" and runs[first.row - 1] else ""
    value = f"{first.value} " if first.value and len({problem.value for problem in alike}) == 1 else ""
    if len(alike) == 1:
        return f"  row {first.row}{called}, {first.column}: {value}{first.reason}"
    some = [f"{p.row}: {p.value}" if p.value and not value else f"{p.row}" for p in alike]
    return f"  {len(alike)} rows, {first.column}: {value}{first.reason} (rows {listed(some, 6)})"


@dataclass(frozen=True)
class RawTable:
    """A run table as it was read: what to call it, its cells, rows that do not match its header, what there
    is to say about the reading, and from which column each of ours was taken.
    """

    name: str
    cells: pd.DataFrame
    ragged: Sequence[Problem] = ()
    warnings: Sequence[TableWarning] = ()
    taken: Mapping[str, str] = field(default_factory=dict)


# -- one cell: whether it says anything, and which number it is

_MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "#n/a"}
_INFINITE = {"inf", "infinity", "+inf", "-inf", "-infinity", "∞"}
_SPACED = re.compile(r"(?<=\d)[\s'’](?=\d{3}(?!\d))")  # 1 500 000 and 1'500'000
_POINTED = re.compile(r"\d{1,3}(?:\.\d{3}){2,}")  # 1.500.000


def is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip().lower() in _MISSING
    not_a_number = isinstance(cell, float | np.floating) and cell != cell
    return cell is None or cell is pd.NA or cell is pd.NaT or not_a_number


def _number(cell: Any, column: str) -> tuple[float, str]:
    """A cell as a number, or what is wrong with it."""
    if not isinstance(cell, str | Real | Decimal):
        return np.nan, "is not a number"
    if isinstance(cell, str):
        if cell.strip().lower() in _INFINITE:
            return np.nan, _NOT_FINITE
        cell = _SPACED.sub("", cell.strip())
        cell = cell.replace(".", "") if _POINTED.fullmatch(cell) else cell
    try:
        counted = column in (*COUNTS, "batch_tokens", "steps")
        value = (count if counted else number)(cell, column, positive=False, finite=False)
    except InvalidInput:
        return np.nan, "is not a number"
    if not np.isfinite(value):
        return np.nan, _NOT_FINITE
    if column in ("weight_decay", "dropout"):
        return value, "must not be negative" if value < 0 else ""
    return value, "must be above zero" if value <= 0 else ""


def plain_number(cell: Any) -> float:
    """A cell as a number, whatever its column; NaN where it is none."""
    return np.nan if is_missing(cell) else float(_number(cell, "params")[0])


def _inferred(cells: pd.Series) -> pd.Series:
    """A column of text as numbers where all of it is numbers; anything else as it is."""
    if cells.dtype != object or not all(isinstance(cell, str) for cell in cells):
        return cells
    try:
        values = [float("nan") if cell.lower() in _MISSING else float(cell) for cell in cells]
    except ValueError:
        return cells
    if all(abs(value) < 2**53 and value == int(value) for value in values):  # NaN fails the first comparison
        return pd.Series([int(value) for value in values], dtype="int64")
    return cells if all(value != value for value in values) else pd.Series(values, dtype=float)


def _quoted(cell: Any) -> str:
    text = " ".join((repr(cell) if isinstance(cell, str) else str(cell)).split())
    return text if len(text) <= 40 else text[:37] + "..."


def listed(names: Sequence[str], most: int = 12) -> str:
    text = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return text if len(text) <= 300 else text[:297] + "..."


# -- all cells


def read_numbers(raw: RawTable, decay: float | None) -> tuple[pd.DataFrame, list[Problem]]:
    """The table with our columns as numbers, NaN where unusable, and then all others as they are; and every
    cell that is wrong. `decay` is that of runs that do not say theirs. Columns of the recipe are there if a
    run says something about them, NaN where others do not.
    """
    cells = raw.cells
    values: dict[str, np.ndarray] = {}
    problems = _missing_columns(raw, decay)
    for column in COLUMNS[1:]:
        values[column], wrong = _numbers(cells, column, decay if column == "weight_decay" else None)
        problems += wrong
    problems += _complete(values, problems, set(cells.columns))
    known = {(p.row, p.column) for p in problems}
    for column, (low, high) in PLAUSIBLE.items():
        outside = ~np.isnan(values[column]) & ~((values[column] >= low) & (values[column] <= high))
        reason = f"is outside of {low:g} to {high:g}{_UNIT}"
        for i in map(int, np.flatnonzero(outside)):
            if (i + 1, column) not in known:
                problems.append(Problem(i + 1, column, f"{values[column][i]:g}", reason))
    names = [f"row-{i + 1}" for i in range(len(cells))]
    if "run" in cells:
        names = ["" if is_missing(cell) else str(cell).strip() for cell in cells["run"]]
    table = pd.DataFrame({"run": pd.Series(names, dtype=object), **values})
    recipe = _recipe(cells, values["tokens"])
    for column in cells.columns:
        if column not in table:
            table[column] = recipe.pop(column, None) if column in recipe else _inferred(cells[column])
    table = table.assign(**recipe)
    return table, sorted(problems, key=lambda problem: COLUMNS.index(problem.column))


def _recipe(cells: pd.DataFrame, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of the recipe of which something is known; one of batch and steps gives the other. Nobody
    needs them, so that what cannot be read is not said: `unread_recipes` tells.
    """
    found = {}
    for column in (column for column in RECIPE if column in cells):
        values, (low, high) = _numbers(cells, column, np.nan)[0], _POSSIBLE[column]
        found[column] = np.where((values >= low) & (values <= high), values, np.nan)
    batch, steps = (found.get(name, np.full(len(cells), np.nan)) for name in ("batch_tokens", "steps"))
    found["steps"] = np.where(np.isnan(steps), tokens / batch, steps)
    found["batch_tokens"] = np.where(np.isnan(batch), _batch(tokens, steps), batch)
    return {column: values for column, values in found.items() if not np.isnan(values).all()}


def _batch(tokens: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Tokens of a step. Steps are whole, so that one batch for all is taken where it fits all to a step."""
    each = np.asarray(tokens / steps)
    if not np.isfinite(each).any():
        return each
    batch = each[np.nanargmax(np.where(np.isfinite(each), steps, np.nan))]
    fits = ~np.isfinite(each) | (np.abs(tokens / batch - steps) <= 1)
    return np.asarray(np.where(np.isfinite(each) & fits.all(), batch, each))


def unread_recipes(raw: RawTable, table: pd.DataFrame, used: np.ndarray) -> list[TableWarning]:
    """Which columns of the recipe hold something that is none."""
    found = []
    for column in (column for column in RECIPE if column in raw.cells):
        read = table[column].notna() if column in table and table[column].dtype == float else used & False
        wrong = np.flatnonzero(used & ~raw.cells[column].map(is_missing) & ~read)
        if len(wrong):
            cell = _quoted(raw.cells[column].iloc[wrong[0]])
            where = f"{len(wrong)} of {used.sum()} runs cannot be read ({cell} in row {wrong[0] + 1})"
            text = f"{column} of {where}: taken as not said"
            found.append(TableWarning("recipe_unread", text, warns=True))
    return found


def _numbers(cells: pd.DataFrame, column: str, default: float | None) -> tuple[np.ndarray, list[Problem]]:
    """One column, and what is wrong in it; cells that are missing are filled in or left to `_complete`."""
    values, problems = np.full(len(cells), np.nan if default is None else default), []
    for i, cell in enumerate(cells.get(column, ())):
        if is_missing(cell):
            if default is None and column not in TOKENS:
                problems.append(Problem(i + 1, column, "", _IS_MISSING))
            continue
        value, reason = _number(cell, column)
        values[i] = np.nan if reason else value
        if reason:
            problems.append(Problem(i + 1, column, _quoted(cell), reason))
    return values, problems


def _missing_columns(raw: RawTable, decay: float | None) -> list[Problem]:
    """Columns that nothing replaces, unless it was said already why they cannot be guessed."""
    names = [str(column) for column in raw.cells.columns]
    there = {*names, *(problem.column for problem in raw.ragged if problem.row == WHOLE_TABLE)}
    problems = []
    if needed := _needed(there):
        missing, column = " and no column ".join(needed), needed[0].split()[0]
        text = f"{raw.name} has no column {missing}; it has {listed(_own(raw))}; {_hint(raw, column)}"
        problems.append(Problem(WHOLE_TABLE, column, "", text))
    if "weight_decay" not in there and decay is None:
        text = f"{raw.name} has no column weight_decay; "
        if near := near_names(raw.cells, "weight_decay"):
            text += f"{listed(near, 4)} may be it; say so: ‹columns› weight_decay={near[0]}"
        else:
            text += "add it, or say which one all runs used: ‹weight_decay› 0.1"
        problems.append(Problem(WHOLE_TABLE, "weight_decay", "", text))
    return problems


def _own(raw: RawTable) -> list[str]:
    """The columns that the table had before ours were taken from them."""
    return [name for name in map(str, raw.cells.columns) if raw.taken.get(name, name) == name]


def _needed(there: set[str]) -> list[str]:
    """What is lacking: of unique tokens, tokens and epochs two are enough."""
    found = there & {*TOKENS}
    enough = len(found) > 1 or "unique_tokens" in found
    lacking = {
        "params": "params" not in there,
        "unique_tokens": not enough,
        "loss": "loss" not in there,
        "epochs (or tokens)": not found & {"tokens", "epochs"},
    }
    return [column for column, is_lacking in lacking.items() if is_lacking]


def near_names(cells: pd.DataFrame, column: str) -> list[str]:
    """The columns with numbers whose names say that they may be this one of ours."""
    said = [name for name in cells.columns if _SAYS[column].search(str(name))]
    return [str(name) for name in said if cells[name].map(plain_number).notna().any()]


def _hint(raw: RawTable, needed: str) -> str:
    """How to say where a column is that nobody guessed."""
    names = [str(column) for column in raw.cells.columns]
    some = next((name for name in names if _NOT_ALL.search(name)), None)
    if needed == "params" and some is not None:
        return f"laws count all parameters, embeddings included (‹columns› params={some} takes these)"
    names_may = ", and ‹pattern› reads settings inside run names" if "run" in names else ""
    near = [name for name in near_names(raw.cells, needed) if name not in raw.taken.values()]
    perhaps = f" ({listed(near, 4)}?)" if near else ""
    return f"‹columns› {needed}=NAME says which it is{perhaps}{names_may}"


def _complete(values: dict[str, np.ndarray], problems: Sequence[Problem], given: set[str]) -> list[Problem]:
    """Fill unique tokens, tokens and epochs from each other in place; rows where two are missing or where
    they disagree are problems.
    """
    already = {p.row for p in problems if p.column in TOKENS}
    unique, tokens, epochs = (values[column] for column in TOKENS)
    known = np.array([~np.isnan(values[column]) for column in TOKENS])
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        implied = tokens / unique
        values["unique_tokens"] = np.where(known[0], unique, tokens / epochs)
        values["tokens"] = np.where(known[1], tokens, unique * epochs)
        values["epochs"] = np.where(known[2], epochs, implied)
        off = np.abs(implied - epochs) > np.maximum(_AGREE * epochs, _AGREE_EPOCHS)
    found = []
    for i in (i for i in np.flatnonzero(known.sum(axis=0) < 2) if i + 1 not in already):
        missing = [column for column, there in zip(TOKENS, known[:, i], strict=True) if not there]
        missing = [column for column in missing if column in given]
        if {"tokens", "epochs"} <= set(missing):
            neither = f"{_IS_MISSING}, and so is epochs: one of the two is needed"
            found.append(Problem(int(i) + 1, "tokens", "", neither))
        elif missing:
            found.append(Problem(int(i) + 1, missing[0], "", _IS_MISSING))
    for i in np.flatnonzero(known.all(axis=0) & off):
        reason = f"is {implied[i]:.4g} epochs of the unique tokens, but epochs says {epochs[i]:.4g}"
        found.append(Problem(int(i) + 1, "tokens", f"{tokens[i]:g}", reason))
    return found


# -- all rows


def check_rows(
    raw: RawTable,
    table: pd.DataFrame,
    problems: Sequence[Problem],
    chosen: np.ndarray,
    deciding: set[str],
    *,
    drop_missing: bool,
) -> tuple[np.ndarray, list[TableWarning]]:
    """The rows that are used, and which were dropped because they came to no end, where they may be; raises
    where another one is unusable.

    A row is answered for if it is `chosen`, or if nobody can know because a cell in a column that is
    `deciding` is bad.
    """
    unfinished = _unfinished(raw.cells)
    ended = {problem.row for problem in unfinished}  # what such a run lacks is no problem of its own
    everything = [p for p in (*problems, *raw.ragged) if not (p.is_absent and p.row in ended)] + unfinished
    dropped = _absent(everything, chosen) if drop_missing else {}
    used = chosen & ~np.isin(np.arange(len(table)) + 1, list(dropped))
    doubtful = {p.row for p in problems if p.column in deciding} - set(dropped)
    everything += _repeated(table, used, "run" in raw.cells)
    reported = {p for p in everything if p.row == WHOLE_TABLE or used[p.row - 1] or p.row in doubtful}
    reported = _with_units(reported, _other_units(table[used], raw.taken))
    if reported:
        raise RunTableError(raw.name, sorted(reported), list(table["run"]) if "run" in raw.cells else ())
    return used, [_left_out(dropped, table)] if dropped else []


def _absent(problems: Iterable[Problem], chosen: np.ndarray) -> dict[int, Problem]:
    """The chosen rows that lack something, each with the first reason."""
    found: dict[int, Problem] = {}
    for problem in problems:
        if problem.is_absent and chosen[problem.row - 1]:
            found.setdefault(problem.row, problem)
    return found


def _with_units(reported: set[Problem], units: Sequence[Problem]) -> set[Problem]:
    """Problems of single cells give way to one of their whole column: that it has another unit."""
    other = {name for unit in units for name in (COUNTS if unit.column in COUNTS else (unit.column,))}
    return {p for p in reported if not (p.column in other and p.reason.endswith(_UNIT))} | {*units}


def _left_out(dropped: Mapping[int, Problem], table: pd.DataFrame) -> TableWarning:
    """How many runs were left out, and why."""
    reasons: dict[str, list[str]] = {}
    for row, problem in sorted(dropped.items()):
        reason = problem.reason.partition(",")[0]
        reason = problem.value if reason == _NOT_FINISHED else reason
        reasons.setdefault(f"{problem.column} {reason}", []).append(str(table["run"][row - 1]))
    each = ", ".join(f"{why} in {len(runs)} ({listed(runs, 3)})" for why, runs in reasons.items())
    return TableWarning("left_out", f"left out {len(dropped)} of {len(table)} runs: {each}")


def _unfinished(cells: pd.DataFrame) -> list[Problem]:
    """Rows whose state says that the run did not come to its end."""
    return [
        Problem(row, str(column), _quoted(cell), _NOT_FINISHED)
        for column in cells.columns
        if str(column).strip().lower() in _STATES
        for row, cell in enumerate(cells[column], start=1)
        if isinstance(cell, str) and cell.strip().lower() in _UNFINISHED
    ]


def _repeated(table: pd.DataFrame, used: np.ndarray, named: bool) -> list[Problem]:
    """Runs that are used twice: by name, or by all their numbers where they have no names."""
    problems = []
    seen: dict[Any, int] = {}
    numbers = [*COLUMNS[1:], *(column for column in RECIPE if column in table)]
    keys = table["run"] if named else table[numbers].itertuples(index=False, name=None)
    for row, key in ((i + 1, key) for i, key in enumerate(keys) if used[i]):
        if named and not key:
            problems.append(Problem(row, "run", "", "has no name: every run needs one"))
        elif key in seen:
            reason = f"is a duplicate of row {seen[key]}"
            problems.append(Problem(row, "run", _quoted(table["run"][row - 1]), reason))
        else:
            seen[key] = row
    return problems


# -- sanity checks

_TOY = 2000.0  # parameters below which there is no language model
_THIN, _FAT = 1e-3, 2e4  # tokens per parameter beyond which one of the two is in another unit
_USUAL = 20.0  # tokens per parameter
_UNIFORM_LOSS = 12.5  # ln of 270,000: the uniform loss of the largest vocabularies
_AT_HOME = (5e6, 2e7)  # parameters and tokens from which the shipped law is asked
_BITS, _PERPLEXITY, _PER_BYTE = 1.28, 1.9, 0.55  # times the law's loss
_STEADY = 0.15  # ln: a slip of unit moves all losses by the same factor
_CONSECUTIVE = 5  # epochs in a row in which somebody trained one size
_RISES, _FLAT = 0.03, 0.008  # shares of the loss: by how much it should rise, and does not
_OVERFITTED = 0.02  # share of the lowest loss on the way, by which the last one is above it
_CHECKPOINT = re.compile(r"(?:step|ckpt|checkpoint|iter)[-_=]?\d+", re.I)
_TOKENIZERS = re.compile(r"(?:^|[._/ ])(?:tokenizer(?:_name)?|vocab(?:_size|ulary)?)$", re.I)
_OTHER_TOTAL = re.compile(r"(?:^|[._/ ])(?:total_param(?:s|eters)|params_total)$", re.I)
_PARTLY = re.compile(r"(?=.*param)(?=.*(?:non.?emb|ex.?emb|no.?emb|without.emb))", re.I)
_BY_CHANCE = 0.1  # pairs of equal losses
_CONTRADICTS = 0.03  # share of the loss, well above what seeds and sweeps scatter by
_UNRELATED = 0.05  # share of tables of pure noise that would look as much like a law
_FEWEST = 8


def _other_units(table: pd.DataFrame, taken: Mapping[str, str]) -> list[Problem]:
    """Counts and losses that cannot be in the units they should be in."""
    numbers = table[["params", "tokens", "loss", "epochs"]].to_numpy(dtype=float)
    params, tokens, loss, epochs = numbers[np.isfinite(numbers).all(axis=1)].T
    if not len(params):
        return []
    found = _other_counts(params, tokens, taken)
    early = loss[epochs <= max(2.0, epochs.min())]
    if np.median(early) > _UNIFORM_LOSS:
        text = (
            f"a loss of {np.median(early):.3g} is worse than uniform, so it looks like a perplexity; laws "
            f"are about nats per token, its logarithm: ‹columns› 'loss=ln({taken.get('loss', 'loss')})'"
        )
        found.append(Problem(WHOLE_TABLE, "loss", "", text))
    return found


def _other_counts(params: np.ndarray, tokens: np.ndarray, taken: Mapping[str, str]) -> list[Problem]:
    ratio = float(np.median(tokens / params))
    small = bool(params.max() < _TOY)
    few = bool(tokens.max() < (1e6 if small else 1e5)) and (small or ratio < _THIN)
    if not small and not few and not (params.max() < 100 * _TOY and ratio > _FAT):
        return []
    of_params = float(np.median(params))
    if few and small:
        factors = {"params": 1e9 if of_params < 1 else 1e6, "tokens": 1e9 if tokens.max() < 100 else 1e6}
        what = "params and tokens look"
        given = f"{of_params:.3g} parameters on {np.median(tokens):.4g} tokens"
    elif few:
        factors, what = {"tokens": _nearest_unit(_USUAL / ratio)}, "tokens look"
        given = f"{short(of_params)} parameters on {np.median(tokens):.4g} tokens"
    else:
        factors, what = {"params": _nearest_unit(ratio / _USUAL)}, "params look"
        given = f"{of_params:.3g} parameters on {short(float(np.median(tokens)))} tokens"
    words = {1e3: "thousands", 1e6: "millions", 1e9: "billions"}
    units = " and ".join(dict.fromkeys(words[factor] for factor in factors.values()))
    cure = ",".join(_in_plain_counts(column, factor, taken) for column, factor in factors.items())
    text = f"{what} like {units} ({given}); laws need plain counts: ‹columns› '{cure}'"
    return [Problem(WHOLE_TABLE, next(iter(factors)), "", text)]


def _in_plain_counts(column: str, factor: float, taken: Mapping[str, str]) -> str:
    """What `columns` says of a column in another unit."""
    names = ("unique_tokens", "tokens") if column == "tokens" else (column,)
    name = next((n for n in names if n in taken), names[0])
    return f"{name}={taken.get(name, name)}*1e{np.log10(factor):.0f}"


def _nearest_unit(factor: float) -> float:
    return min((1e3, 1e6, 1e9), key=lambda unit: abs(np.log(factor / unit)))


def sanity_checks(
    table: pd.DataFrame, taken: Mapping[str, str], enough: pd.DataFrame, comparable: pd.DataFrame
) -> list[TableWarning]:
    """What looks wrong in a table that can be read, a sentence each. What a loss should be is asked of those
    runs only that are `comparable` with a law, what changes with epochs of those trained for `enough` steps
    (`recipes`).
    """
    looks: tuple[tuple[Callable[[pd.DataFrame, Mapping[str, str]], str], pd.DataFrame], ...] = (
        (_unit_of_loss, comparable),
        (_checkpoints, table),
        (_best_checkpoint, enough),
        (_overfitted, table),
        (_shared_trunks, table),
        (_tokenizers, table),
        (_not_all_parameters, table),
        (_copies, table),
        (_same_loss, table),
        (_out_of_order, enough),
        (_unrelated, comparable),
    )
    found = ((look.__name__.strip("_"), look(rows, taken)) for look, rows in looks)
    return [TableWarning(code, text, warns=True) for code, text in found if text]


def _unit_of_loss(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    params, tokens = (table[name].to_numpy(dtype=float) for name in ("params", "tokens"))
    here = (params >= _AT_HOME[0]) & (tokens >= _AT_HOME[1]) & (table["epochs"].to_numpy() <= 4)
    if here.sum() < 3:
        return ""
    loss = table["loss"].to_numpy(dtype=float)[here]
    off = np.log(loss / _expected(table[here]))
    name, times = taken.get("loss", "loss"), float(np.exp(np.median(off)))
    seen = f"losses of {loss.min():.3g} to {loss.max():.3g} are {times:.2g} times what such models reach"
    if times > _PERPLEXITY:
        return f"{seen}: if they are perplexities, ‹columns› 'loss=ln({name})' makes nats of them"
    if times > _BITS and np.median(np.abs(off - np.median(off))) < _STEADY:
        return f"{seen}: if they are bits, ‹columns› 'loss={name}*0.6931' makes nats of them"
    if times < _PER_BYTE and loss.max() < 2.2:
        return (
            f"{seen}: if they are bits per byte, ‹columns› 'loss={name}*2.9' makes nats per token of them at "
            f"4.2 bytes per token (0.6931 times yours)"
        )
    return ""


def _expected(rows: pd.DataFrame) -> np.ndarray:
    """The losses of the shipped law, at the weight decay that is nearest to each run's."""
    known = Calibration.load(None)
    decays = np.array([setting.weight_decay for setting in known.settings])
    nearest = np.abs(
        np.log((rows["weight_decay"].to_numpy(dtype=float)[:, None] + 1e-3) / (decays + 1e-3))
    ).argmin(axis=1)
    points = [rows[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")]
    with np.errstate(over="ignore"):
        losses = np.array([s.law(known.default_law).loss(*points) for s in known.settings])
    return np.asarray(losses[nearest, np.arange(len(rows))])


def _cells(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Runs that differ in their epochs only, by ascending epochs."""
    keys = ["params", "unique_tokens", *_others(table)]
    several = table.groupby(keys, dropna=False)["epochs"].transform("nunique") > 1
    ordered = table[several].sort_values("epochs", kind="stable")
    yield from (runs for _, runs in ordered.groupby(keys, sort=False, dropna=False))


def _others(table: pd.DataFrame) -> list[str]:
    """What runs that are compared with each other must have in common, besides size and data."""
    known = ("weight_decay", "learning_rate", "batch_tokens", "dropout", "seed")
    return [name for name in known if name in table]


def _checkpoints(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Epochs in a row of one size: one run that was looked at after each."""
    found = []
    for runs in _cells(table):
        epochs = np.unique(runs["epochs"].to_numpy(dtype=float))
        in_a_row = len(epochs) >= _CONSECUTIVE and np.allclose(
            np.diff(epochs), epochs[1] - epochs[0], rtol=0.02
        )
        called = runs["run"].map(lambda name: bool(_CHECKPOINT.search(str(name)))).all()
        if in_a_row or (called and len(runs) > 2):
            found.append(runs)
    if sum(map(len, found)) < len(table) / 2:
        return ""
    first = found[0]["run"]
    return (
        f"{first.iloc[0]} to {first.iloc[-1]} look like checkpoints of one run ({len(first)} equal steps); a "
        f"law of final losses needs each run trained to its own end, so give the last row of each "
        f"(‹where› 'epochs == {found[0]['epochs'].iloc[-1]:g}')"
    )


def _best_checkpoint(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Losses that stay the same with more epochs where they should rise: the best never gets worse."""
    should, flat = [], 0
    for runs in (runs for runs in _cells(table) if runs["params"].iloc[0] >= _AT_HOME[0]):
        before = int(np.flatnonzero(runs["epochs"] < runs["epochs"].iloc[-1])[-1])
        expected, loss = _expected(runs), runs["loss"].to_numpy(dtype=float)
        rise, risen = (float(values[-1] / values[before] - 1) for values in (expected, loss))
        if rise < _RISES:
            continue
        if risen > 2 * _FLAT:
            return ""
        should.append((rise, str(runs["run"].iloc[-1])))
        flat += abs(risen) < _FLAT
    if flat < max(2, 0.6 * len(should)):
        return ""
    rise, name = max(should)
    return (
        f"the loss stays the same with more epochs where it should rise (by {rise:.0%} up to {name}): these "
        f"look like losses of the best checkpoint, which hide overfitting; give those at the end of each run"
    )


def _overfitted(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Runs whose loss at the end is far above the lowest that they had on the way."""
    if "best_loss" not in table:
        return ""
    best = pd.to_numeric(table["best_loss"], errors="coerce").to_numpy(dtype=float)
    above = table["loss"].to_numpy(dtype=float) / np.where(best > 0, best, np.nan) - 1
    far = above > _OVERFITTED
    if not far.any():
        return ""
    worst = int(np.nanargmax(above))
    name, last = str(table["run"].iloc[worst]), float(table["loss"].iloc[worst])
    return (
        f"{far.sum()} of {len(table)} runs end more than {_OVERFITTED:.0%} above the lowest loss they had "
        f"on the way ({name}: {last:.3f}, and {best[worst]:.3f} before): a law of last losses describes "
        f"overfitting that fewer epochs or more weight decay would have avoided"
    )


def _shared_trunks(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Runs that decay from checkpoints of one run: they share its noise."""
    if "trunk" not in table or not (branches := table["trunk"].notna() & (table["trunk"] != "")).any():
        return ""
    trunks = table["trunk"][branches].nunique()
    return (
        f"{branches.sum()} of {len(table)} runs branch off from {trunks} others, whose noise they share: "
        f"there are fewer independent runs than rows, and intervals are a little narrow"
    )


def _tokenizers(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    for column in (column for column in table.columns if _TOKENIZERS.search(str(column))):
        kinds = table[column].dropna().astype(str).value_counts()
        if len(kinds) > 1:
            each = ", ".join(f"{kind} in {runs}" for kind, runs in list(kinds.items())[:3])
            chosen = shlex.quote(f'`{column}` == "{kinds.index[0]}"')
            return (
                f"the runs differ in {column} ({each}), and nats per token of different tokenizers cannot be "
                f"compared; choose one: ‹where› {chosen}"
            )
    return ""


def _not_all_parameters(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    params = table["params"].to_numpy(dtype=float)
    used = taken.get("params", "params")
    for column in table.columns:
        name = str(column)
        if name in (used, "params") or not pd.api.types.is_numeric_dtype(table[column]):
            continue
        other = table[column].to_numpy(dtype=float)
        both = np.isfinite(other)
        if not both.any():
            continue
        if _OTHER_TOTAL.search(name) and (other > params * 1.005)[both].any():
            more = float(np.nanmax(other / params)) - 1
            return (
                f"params is taken from {used}, but {name} is up to {more:.0%} larger; laws count all "
                f"parameters, embeddings included: ‹columns› params={name}"
            )
        if _PARTLY.search(name) and (other >= params * 0.995)[both].all():
            return (
                f"{used} is not above {name}, so it looks as if embeddings were left out; laws count all "
                f"parameters"
            )
    return ""


def _copies(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Runs that repeat another's settings and loss to the last digit."""
    same = table.duplicated(["params", "unique_tokens", "epochs", "weight_decay", "loss"], keep=False)
    if not same.any():
        return ""
    runs = list(table["run"][same])
    return (
        f"{len(runs)} runs have the settings and the loss of another to the last digit ({runs[0]}, "
        f"{runs[1]}): copies say nothing about noise, so leave all but one out"
    )


def _same_loss(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Runs of different settings with the same loss, where that cannot be chance."""
    settings = ["params", "unique_tokens", "epochs", *_others(table)]
    loss = table["loss"].to_numpy(dtype=float)
    alike = table[table["loss"].duplicated(keep=False) & ~table.duplicated([*settings, "loss"], keep=False)]
    decimals = next((d for d in range(16) if np.allclose(loss, loss.round(d), rtol=0, atol=1e-13)), 16)
    # How many pairs would share a loss by chance, if losses were spread evenly at this many decimals.
    expected = len(loss) ** 2 / 2 * 10.0**-decimals / max(float(np.ptp(loss)), 1e-9)
    if not len(alike) or expected > _BY_CHANCE:
        return ""
    pairs = [list(runs["run"]) for _, runs in alike.groupby("loss", sort=False)]
    each = "; ".join(" and ".join(map(str, names)) for names in pairs[:3])
    more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
    return (
        f"runs of different settings have the same loss to the last digit ({each}{more}): one of them "
        f"repeats the figure of another, so check it and leave it out"
    )


def _out_of_order(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Losses that contradict others of the same recipe, however a law looks: as many tokens, more of them
    new, cannot be worse; and what rises with more epochs does not fall again with still more.
    """
    alike = ["params", *_others(table)]
    by_data = table.assign(told=table["tokens"].map(lambda tokens: f"{tokens:.3g}"))
    by_data = by_data.sort_values("unique_tokens", kind="stable")
    same = by_data.groupby([*alike, "told"], dropna=False, sort=False).ngroup()
    least = by_data["loss"].groupby(same).cummin().groupby(same).shift()
    worse = by_data["loss"] / least - 1
    by_epochs = table.sort_values("epochs", kind="stable")
    same = by_epochs.groupby([*alike, "unique_tokens"], dropna=False, sort=False).ngroup()
    loss = by_epochs["loss"]
    raised = loss.where(loss > (1 + _CONTRADICTS) * loss.groupby(same).cummin(), 0.0)
    peak = raised.groupby(same).cummax().groupby(same).shift().fillna(0.0)
    fallen = (1 - loss / peak.where(peak > 0)).fillna(0.0)
    reasons = (
        (worse, "above runs of as many tokens, fewer of them new"),
        (fallen, "below fewer epochs, which had raised the loss"),
    )
    found = []
    for off, why in reasons:
        if len(rows := off.index[off > _CONTRADICTS]):
            names = listed([str(table["run"][row]) for row in rows], 5)
            found.append(f"{names} up to {off[rows].max():.0%} {why}")
    return (
        f"losses contradict others of the same recipe: {'; '.join(found)}; check these rows" if found else ""
    )


def _unrelated(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Losses that size, tokens and epochs explain no better than chance would."""
    if len(table) < _FEWEST:
        return ""
    group = table["weight_decay"]
    values: Any = np.log(table[["loss", "params", "tokens", "epochs"]].astype(float))
    loss, *causes = (values - values.groupby(group).transform("mean")).to_numpy().T
    if not np.ptp(loss) > 1e-9:
        return f"all {len(table)} losses are equal, so nothing can be learnt from them"
    design = np.column_stack(causes)
    rank, free = int(np.linalg.matrix_rank(design, tol=1e-6)), len(table) - group.nunique()
    if not rank or free - rank < 4:
        return ""
    left = loss - design @ np.linalg.lstsq(design, loss, rcond=None)[0]
    unexplained = max(float(left @ left / (loss @ loss)), 1e-12)
    ratio = ((1 - unexplained) / rank) / (unexplained / (free - rank))
    chance = float(fdtrc(rank, free - rank, ratio))  # of the F distribution
    if chance < _UNRELATED:
        return ""
    return (
        f"the losses of these {len(table)} runs follow neither size nor tokens nor epochs (chance alone "
        f"would explain as much in {chance:.0%} of tables): check that each loss belongs to its row"
    )
