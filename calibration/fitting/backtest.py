"""Would each law have chosen well? Asked of runs that exist already, without training anything.

Runs with the same unique tokens, the same weight decay and nearly equal compute are the choices that somebody with that
corpus and budget had: one size with few epochs, another with many. A law that is worth following ranks them right
(pairs in the right order; Kendall's tau is twice that share minus one), and the run it likes best is close to the best
(regret: its loss minus the lowest loss of the group).

No law is judged on runs that it was fitted on: for each group all laws are fitted again without it, or, stricter, without
all runs in its (size, budget) cells. Groups without which a law cannot be identified any more are left out for all laws.
Intervals are over groups, resampled with replacement: the groups are few, and their spread is what limits the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.identify import check_identifiable, is_identified
from calibration.fitting.runs import Runs
from calibration.fitting.stages import PAPER_DELTA, fit_forms, refit
from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.errors import InvalidInput
from planner.laws import FORMS, Law, check_form
from planner.units import number

LEAVE = ("group", "cells")
COIN = "chance"  # the row of somebody who picks any run of the group
_RESAMPLES = 2000
_SAME = 0.02  # ln: two runs within this are one configuration


@dataclass(frozen=True)
class Group:
    """Configurations between which somebody with one corpus and one budget could have chosen."""

    weight_decay: float
    unique_tokens: float
    flops: float
    params: tuple[float, ...]
    epochs: tuple[float, ...]
    loss: tuple[float, ...]  # of several runs of one configuration: their mean
    rows: tuple[tuple[int, ...], ...]  # rows of the table behind each configuration


@dataclass(frozen=True)
class Score:
    """How one law did over all groups, with 95% intervals over groups."""

    law: str
    accuracy: float
    accuracy_interval: tuple[float, float] | None
    kendall: float
    regret: float  # nats
    regret_interval: tuple[float, float] | None
    worst_regret: float
    best_picks: float  # share of the groups in which it picked the best run


@dataclass(frozen=True)
class Backtest:
    """All laws on the same groups."""

    groups: int
    pairs: int
    runs: int
    skipped_groups: int
    tolerance: float
    leave: str
    scores: tuple[Score, ...]
    details: tuple[dict[str, Any], ...]  # per group: the choices, and what each law picked
    not_identified: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # forms that all runs together do not determine

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def backtest(
    table: pd.DataFrame,
    *,
    laws: Sequence[str] = FORMS,
    tolerance: Any = 0.1,
    leave: str = "group",
    delta: float = PAPER_DELTA,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
) -> Backtest:
    """Judge laws on the choices that a run table contains; see the module for how.

    `tolerance` is how far the compute of runs in one group may be apart: 0.1 is 10%.
    """
    forms = list(dict.fromkeys(check_form(law) for law in laws))
    if not forms:
        raise InvalidInput(f"must name at least one of {', '.join(FORMS)}.", field="laws")
    apart = number(tolerance, "tolerance", examples="0.1")
    if leave not in LEAVE:
        raise InvalidInput(f"must be one of {', '.join(LEAVE)}; got {leave!r}.", field="leave")
    table = table.reset_index(drop=True)
    groups = find_groups(table, apart)
    if not groups:
        raise InvalidInput(
            f"no two runs have the same unique tokens and weight decay and a compute within {apart:.0%} of each other; "
            f"a larger tolerance, or runs of one budget at several sizes, would do."
        )
    check_identifiable(table, forms)
    judged: list[Group] = []
    predicted: dict[str, list[np.ndarray]] = {form: [] for form in forms}
    unsure: dict[str, str] = {}
    skipped = 0
    decays = sorted({group.weight_decay for group in groups})
    for done, decay in enumerate(decays):
        here = [group for group in groups if group.weight_decay == decay]
        index = np.nonzero(table["weight_decay"].to_numpy() == decay)[0]
        losses, usable, problems = _left_out(
            table.iloc[index], index, here, forms, delta, leave, progress, done / len(decays), 1 / len(decays)
        )
        unsure |= {form: f"at weight decay {decay:g} {reason}" for form, reason in problems.items()}
        for g, group in enumerate(here):
            if not usable[g]:
                skipped += 1
                continue
            judged.append(group)
            for form in forms:
                predicted[form].append(losses[form][g])
    if not judged:
        raise InvalidInput(
            "without any one group of runs no law can be identified any more; more runs outside of the groups would do."
        )
    return dataclasses.replace(_scored(judged, predicted, skipped, apart, leave, seed), not_identified=unsure)


def find_groups(table: pd.DataFrame, tolerance: float) -> list[Group]:
    """Groups of at least two configurations with the same unique tokens and weight decay and nearly equal compute."""
    params, unique, epochs, decay, loss = (
        table[name].to_numpy(dtype=float)
        for name in ("params", "unique_tokens", "epochs", "weight_decay", "loss")
    )
    flops = FLOPS_PER_PARAM_TOKEN * params * unique * epochs
    groups = []
    for rows in _split(np.arange(len(table)), decay, np.log(unique), 1e-3):
        for choice in _chunks(
            rows[np.argsort(flops[rows], kind="stable")], np.log(flops), np.log1p(tolerance)
        ):
            configurations = _chunks(choice[np.argsort(params[choice], kind="stable")], np.log(params), _SAME)
            if len(configurations) < 2:
                continue
            first = [int(rows_of[0]) for rows_of in configurations]
            groups.append(
                Group(
                    weight_decay=float(decay[first[0]]),
                    unique_tokens=float(unique[first[0]]),
                    flops=float(np.exp(np.log(flops[choice]).mean())),
                    params=tuple(float(params[i]) for i in first),
                    epochs=tuple(float(epochs[i]) for i in first),
                    loss=tuple(float(loss[rows_of].mean()) for rows_of in configurations),
                    rows=tuple(tuple(int(i) for i in rows_of) for rows_of in configurations),
                )
            )
    return groups


def _split(rows: np.ndarray, decay: np.ndarray, ln_unique: np.ndarray, same: float) -> list[np.ndarray]:
    parts = []
    for value in np.unique(decay):
        here = rows[decay == value]
        parts += _chunks(here[np.argsort(ln_unique[here], kind="stable")], ln_unique, same)
    return parts


def _chunks(rows: np.ndarray, values: np.ndarray, width: float) -> list[np.ndarray]:
    """Sorted rows cut wherever the value exceeds that of the chunk's first row by more than `width`."""
    parts: list[list[int]] = []
    for row in rows:
        if parts and values[row] - values[parts[-1][0]] <= width + 1e-12:
            parts[-1].append(int(row))
        else:
            parts.append([int(row)])
    return [np.array(part) for part in parts]


def _left_out(
    table: pd.DataFrame,
    index: np.ndarray,
    groups: list[Group],
    forms: list[str],
    delta: float,
    leave: str,
    progress: Any,
    done: float,
    span: float,
) -> tuple[dict[str, list[np.ndarray]], np.ndarray, dict[str, str]]:
    """Per form and group the predicted losses of its configurations, by laws fitted without it; which groups are usable; and
    why a form is not identified even by all runs.
    """
    runs = Runs.of(table)
    position = {int(row): i for i, row in enumerate(index)}
    weights = np.ones((len(groups), len(table)))
    for g, group in enumerate(groups):
        out = np.array([position[row] for rows in group.rows for row in rows])
        weights[g, np.isin(runs.cells, runs.cells[out]) if leave == "cells" else out] = 0.0
    configurations = table[["params", "unique_tokens", "epochs"]].to_numpy(dtype=float)
    usable = np.array(
        [all(is_identified(configurations[row > 0], form) for form in forms) for row in weights]
    )
    fits = fit_forms(runs, forms, delta=delta)
    if progress is not None:
        progress("fitting without each group", done)
    again = refit(fits, weights=weights)
    first = [np.array([position[rows[0]] for rows in group.rows]) for group in groups]
    losses: dict[str, list[np.ndarray]] = {}
    settled = np.ones(len(groups), dtype=bool)
    for form in forms:
        prediction = fits.log_prediction(form, again[form].base, again[form].repetition)
        with np.errstate(over="ignore"):
            losses[form] = [np.exp(prediction[g, rows]) for g, rows in enumerate(first)]
        settled &= again[form].converged
    for g in map(
        int, np.flatnonzero(~settled & usable)
    ):  # not settled from the fit at hand: from all starts, then
        if progress is not None:
            progress("fitting without each group", done + span * (g + 1) / len(groups))
        alone = fit_forms(Runs.of(table[weights[g] > 0]), forms, delta=delta)
        if not all(alone.forms[form].optimum.converged for form in forms):
            usable[g] = False
            continue
        for form in forms:
            law = Law(form, alone.forms[form].parameters)
            with np.errstate(all="ignore"):
                losses[form][g] = law.loss(*configurations[first[g]].T)
    for form in forms:  # a law that runs away on what it has not seen ranks nothing
        usable &= [bool(np.isfinite(guess).all()) for guess in losses[form]]
    return losses, usable, {form: reason for form in forms if (reason := fits.forms[form].problem)}


def _scored(
    groups: list[Group],
    predicted: dict[str, list[np.ndarray]],
    skipped: int,
    tolerance: float,
    leave: str,
    seed: int,
) -> Backtest:
    observed = [np.array(group.loss) for group in groups]
    pairs = np.array([_pairs(loss, loss)[1] for loss in observed], dtype=float)
    rng = np.random.default_rng(seed)
    again = rng.integers(
        len(groups), size=(_RESAMPLES, len(groups))
    )  # the same resamples for all laws: they can be compared
    scores = []
    for law, losses in predicted.items():
        right = np.array([_pairs(loss, guess)[0] for loss, guess in zip(observed, losses, strict=True)])
        regret = np.array(
            [loss[np.argmin(guess)] - loss.min() for loss, guess in zip(observed, losses, strict=True)]
        )
        scores.append(_score(law, right, pairs, regret, again))
    chance = np.array([loss.mean() - loss.min() for loss in observed])
    scores.append(
        _score(
            COIN, pairs / 2, pairs, chance, again, picks=float(np.mean([1 / len(loss) for loss in observed]))
        )
    )
    details = tuple(
        {
            **{name: value for name, value in dataclasses.asdict(group).items() if name != "rows"},
            "picks": {law: int(np.argmin(losses[g])) for law, losses in predicted.items()},
        }
        for g, group in enumerate(groups)
    )
    rows = {row for group in groups for some in group.rows for row in some}
    return Backtest(
        len(groups), int(pairs.sum()), len(rows), skipped, tolerance, leave, tuple(scores), details
    )


def _score(
    law: str,
    right: np.ndarray,
    pairs: np.ndarray,
    regret: np.ndarray,
    again: np.ndarray,
    picks: float | None = None,
) -> Score:
    accuracy = float(right.sum() / pairs.sum()) if pairs.sum() else 0.5
    with np.errstate(invalid="ignore"):
        accuracies = right[again].sum(axis=1) / pairs[again].sum(axis=1)
    return Score(
        law=law,
        accuracy=accuracy,
        accuracy_interval=None if picks is not None else _central(accuracies[np.isfinite(accuracies)]),
        kendall=2 * accuracy - 1,
        regret=float(regret.mean()),
        regret_interval=None if picks is not None else _central(regret[again].mean(axis=1)),
        worst_regret=float(regret.max()),
        best_picks=float(np.mean(regret <= 0)) if picks is None else picks,
    )


def _pairs(observed: np.ndarray, predicted: np.ndarray) -> tuple[float, int]:
    """Pairs in the right order (half for a tie in the prediction), and pairs whose observed losses differ."""
    first, second = np.triu_indices(len(observed), k=1)
    truth, guess = np.sign(observed[first] - observed[second]), np.sign(predicted[first] - predicted[second])
    differ = truth != 0
    return float((0.5 + 0.5 * truth * guess)[differ].sum()), int(differ.sum())


def _central(values: np.ndarray) -> tuple[float, float]:
    if not len(values):
        return 0.0, 1.0
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
