"""Would each law have chosen well? Asked of runs that exist already, without training anything.

Runs with the same unique tokens, the same weight decay and nearly equal compute are the choices that somebody
with that corpus and budget had: one size with few epochs, another with many. A law that is worth following
ranks them right (pairs in the right order; Kendall's tau is twice that share minus one), and the run it likes
best is close to the best (regret: its loss minus the lowest loss of the group).

No law is judged on runs that it was fitted on: for each group all laws are fitted again without it, or,
stricter, without all runs in its (size, budget) cells. Groups without which a law cannot be identified any
more are left out for all laws. Intervals are over groups, resampled with replacement: the groups are few, and
their spread is what limits the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.huber import PAPER_DELTA, Fits, Progress, fit_forms, refit
from calibration.fitting.identify import check_identifiable, is_identified
from calibration.fitting.runs.arrays import Group, Runs, find_groups
from planner.inputs import InvalidInput, number
from planner.laws import FORMS, STANDARD, Law, check_form

LEAVE = ("group", "cells")
COIN = "chance"  # the row of somebody who picks any run of the group
_RESAMPLES = 2000


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
    not_identified: dict[str, str]  # forms that all runs together do not determine, and why

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def backtest(
    table: pd.DataFrame,
    *,
    laws: Iterable[str] = STANDARD,
    tolerance: Any = 0.1,
    leave: str = "group",
    delta: float = PAPER_DELTA,
    seed: int = 0,
    progress: Progress | None = None,
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
            f"no two runs have the same unique tokens and weight decay and a compute within {apart:.0%} of "
            f"each other; a larger tolerance, or runs of one budget at several sizes, would do."
        )
    check_identifiable(table, forms)
    found = _left_out(table, groups, forms, delta, leave, progress or (lambda what, share: None))
    if not found.groups:
        raise InvalidInput(
            "without any one group of runs no law can be identified any more; "
            "more runs outside of the groups would do."
        )
    return Backtest(
        groups=len(found.groups),
        pairs=sum(_pairs(group.losses, group.losses)[1] for group in found.groups),
        runs=len({row for group in found.groups for some in group.rows for row in some}),
        skipped_groups=len(groups) - len(found.groups),
        tolerance=apart,
        leave=leave,
        scores=tuple(_scored(found.groups, found.losses, seed)),
        details=tuple(_details(found.groups, found.losses)),
        not_identified=found.problems,
    )


class _LeftOut(NamedTuple):
    """What laws say of each group that were fitted without it."""

    groups: list[Group]  # that can be judged
    losses: dict[str, list[np.ndarray]]  # per form and group: of its configurations
    problems: dict[str, str]  # why a form is not identified even by all runs


def _left_out(
    table: pd.DataFrame, groups: Sequence[Group], forms: list[str], delta: float, leave: str, tell: Progress
) -> _LeftOut:
    """Fit all forms without each group, to the runs of its weight decay."""
    every = _LeftOut([], {form: [] for form in forms}, {})
    decays = sorted({group.weight_decay for group in groups})
    for done, decay in enumerate(decays):
        here = [group for group in groups if group.weight_decay == decay]
        runs = table[table["weight_decay"] == decay]
        part = partial(_tell_part, tell, done, len(decays))
        found = _left_out_at(runs, here, forms, delta, leave, part)
        every.groups.extend(found.groups)
        for form in forms:
            every.losses[form].extend(found.losses[form])
        every.problems.update(
            {form: f"at weight decay {decay:g} {reason}" for form, reason in found.problems.items()}
        )
    return every


def _tell_part(tell: Progress, done: int, of: int, what: str, share: float) -> None:
    tell(what, (done + share) / of)


def _left_out_at(
    table: pd.DataFrame, groups: Sequence[Group], forms: list[str], delta: float, leave: str, tell: Progress
) -> _LeftOut:
    """Fit all forms to the runs of one weight decay, without each of its groups."""
    runs = Runs.of(table)
    weights, first = _weights(table, runs, groups, leave)
    places = table[["params", "unique_tokens", "epochs"]].to_numpy(dtype=float)
    usable = np.array([all(is_identified(places[row > 0], form) for form in forms) for row in weights])
    fits = fit_forms(runs, forms, delta=delta)
    tell("fitting without each group", 0.0)
    losses, settled = _from_the_fit_at_hand(fits, forms, weights, first)
    for g in map(int, np.flatnonzero(~settled & usable)):  # then from all starts
        tell("fitting without each group", (g + 1) / len(groups))
        found = _from_all_starts(table[weights[g] > 0], forms, delta, places[first[g]])
        usable[g] = found is not None
        for form, guess in (found or {}).items():
            losses[form][g] = guess
    for form in forms:  # a law that runs away on what it has not seen ranks nothing
        usable &= [bool(np.isfinite(guess).all()) for guess in losses[form]]
    judged = [int(g) for g in np.flatnonzero(usable)]
    problems = {form: reason for form in forms if (reason := fits.forms[form].problem)}
    kept = {form: [guesses[g] for g in judged] for form, guesses in losses.items()}
    return _LeftOut([groups[g] for g in judged], kept, problems)


def _weights(
    table: pd.DataFrame, runs: Runs, groups: Sequence[Group], leave: str
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Which runs each fit has, (groups, runs), and where each group's configurations are first seen."""
    position = {row: i for i, row in enumerate(table.index)}
    weights = np.ones((len(groups), len(table)))
    for g, group in enumerate(groups):
        out = np.array([position[row] for rows in group.rows for row in rows])
        weights[g, np.isin(runs.cells, runs.cells[out]) if leave == "cells" else out] = 0.0
    return weights, [np.array([position[rows[0]] for rows in group.rows]) for group in groups]


def _from_the_fit_at_hand(
    fits: Fits, forms: list[str], weights: np.ndarray, first: list[np.ndarray]
) -> tuple[dict[str, list[np.ndarray]], np.ndarray]:
    """The losses that refits predict for the groups they leave out, and where all forms converge."""
    again = refit(fits, weights=weights)
    losses: dict[str, list[np.ndarray]] = {}
    for form in forms:
        prediction = fits.log_prediction(form, again[form].base, again[form].repetition)
        with np.errstate(over="ignore"):
            losses[form] = [np.exp(prediction[g, rows]) for g, rows in enumerate(first)]
    return losses, np.logical_and.reduce([again[form].converged for form in forms])


def _from_all_starts(
    table: pd.DataFrame, forms: list[str], delta: float, places: np.ndarray
) -> dict[str, np.ndarray] | None:
    """The losses that forms fitted to these runs predict elsewhere; None unless all of them converge."""
    fits = fit_forms(Runs.of(table), forms, delta=delta)
    if not all(fits.forms[form].optimum.converged for form in forms):
        return None
    with np.errstate(all="ignore"):
        return {form: Law(form, fits.forms[form].parameters).loss(*places.T) for form in forms}


def _scored(groups: Sequence[Group], predicted: dict[str, list[np.ndarray]], seed: int) -> list[Score]:
    """How each law did, and somebody who picks any run of a group."""
    observed = [group.losses for group in groups]
    pairs = np.array([_pairs(loss, loss)[1] for loss in observed], dtype=float)
    # The same resamples for all laws: they can be compared.
    again = np.random.default_rng(seed).integers(len(groups), size=(_RESAMPLES, len(groups)))
    scores = []
    for law, losses in predicted.items():
        both = list(zip(observed, losses, strict=True))
        right = np.array([_pairs(loss, guess)[0] for loss, guess in both])
        regret = np.array([loss[np.argmin(guess)] - loss.min() for loss, guess in both])
        scores.append(_score(law, right, pairs, regret, again))
    chance = np.array([loss.mean() - loss.min() for loss in observed])
    picks = float(np.mean([1 / len(loss) for loss in observed]))
    return [*scores, _score(COIN, pairs / 2, pairs, chance, again, picks=picks)]


def _details(groups: Sequence[Group], predicted: dict[str, list[np.ndarray]]) -> list[dict[str, Any]]:
    """Per group: the choices, and what each law picked."""
    found = []
    for g, group in enumerate(groups):
        choices = {name: value for name, value in dataclasses.asdict(group).items() if name != "rows"}
        picks = {law: int(np.argmin(losses[g])) for law, losses in predicted.items()}
        found.append({**choices, "picks": picks})
    return found


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
