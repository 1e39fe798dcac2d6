"""Would each law have chosen well? Asked of runs that exist already, without training anything.

Runs with the same unique tokens, the same weight decay and nearly equal compute are the choices that somebody
with that corpus and budget had: one size with few epochs, another with many. A law that is worth following
ranks them right (pairs in the right order; Kendall's tau is twice that share minus one), and the run it likes
best is close to the best (regret: its loss minus the lowest loss of the group).

No law is judged on runs that it was fitted on: for each group all laws are fitted again without it, or,
stricter, without all runs in its (size, budget) cells. Weight decays whose runs do not identify every law,
and groups without which one cannot be identified any more, are left out for all laws. Where recipes differ
inside a weight decay, the choice is between tuned runs (`recipes`). Intervals are over groups, resampled with
replacement: the groups are few, and their spread is what limits the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.evaluate.summary import PAPER_DELTA
from calibration.fitting.huber import Fits, fit_forms, left_out_predictions
from calibration.fitting.identify import is_identified, unidentified
from calibration.fitting.runs.arrays import Group, Runs, find_groups
from calibration.fitting.runs.recipes import comparable_runs
from calibration.fitting.solver import Progress, part_of, points_of, silent
from planner.inputs import InvalidInput, number
from planner.laws import FORMS, STANDARD, check_form

LEAVE = ("group", "cells")
COIN = "chance"  # the row of somebody who picks any run of the group
_NEAR = 0.1  # share of the compute
_RESAMPLES = 2000
# A group, and the losses of its configurations by each form fitted without it.
_Judged = tuple[Group, dict[str, np.ndarray]]


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
    left_out: dict[str, str]  # weight decays whose runs do not identify the laws, and why

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def backtest(
    table: pd.DataFrame,
    *,
    laws: Iterable[str] = STANDARD,
    tolerance: Any = None,
    leave: str = "group",
    delta: float = PAPER_DELTA,
    seed: int = 0,
    progress: Progress | None = None,
) -> Backtest:
    """Judge laws on the choices that a run table contains; see the module for how.

    `tolerance` is how far the compute of runs in one group may be apart: 0.1 is 10%, and what is taken unless
    another is given; where no two runs are as near, the first of 20%, 30% and so on up to tenfold.
    """
    forms = list(dict.fromkeys(check_form(law) for law in laws))
    if not forms:
        raise InvalidInput(f"must name at least one of {', '.join(FORMS)}.", field="laws")
    apart = _NEAR if tolerance is None else number(tolerance, "tolerance", examples="0.1")
    if leave not in LEAVE:
        raise InvalidInput(f"must be one of {', '.join(LEAVE)}; got {leave!r}.", field="leave")
    table = comparable_runs(table).reset_index(drop=True)
    near, groups = _nearest_groups(table, apart, widen=tolerance is None)
    table, left_out = _identified(table, forms)
    if left_out:
        near, groups = _nearest_groups(table, apart, widen=tolerance is None)
    judged, problems = _left_out(table, groups, forms, delta, leave, progress or silent)
    if not judged:
        raise InvalidInput(
            "without any one group of runs no law can be identified any more; "
            "more runs outside of the groups would do."
        )
    kept = [group for group, _ in judged]
    losses = {form: [predicted[form] for _, predicted in judged] for form in forms}
    return Backtest(
        groups=len(kept),
        pairs=sum(_pairs(group.losses, group.losses)[1] for group in kept),
        runs=len({row for group in kept for some in group.rows for row in some}),
        skipped_groups=len(groups) - len(kept),
        tolerance=near,
        leave=leave,
        scores=tuple(_scored(kept, losses, seed)),
        details=tuple(_details(kept, losses)),
        not_identified=problems,
        left_out=left_out,
    )


def _identified(table: pd.DataFrame, forms: Sequence[str]) -> tuple[pd.DataFrame, dict[str, str]]:
    """The runs of the weight decays that identify all these laws, and why others do not; raises where none
    does.
    """
    reasons: dict[float, str] = {}
    lacking = unidentified(table, forms)
    for one in lacking:
        reasons.setdefault(one.weight_decay, f"{one.form} cannot be identified: {one.reason}; {one.remedy}")
    kept = table[~table["weight_decay"].isin(reasons)]
    if not len(kept):
        raise InvalidInput(f"{lacking[0]} (a backtest has no prior to fill in, as a fit has).")
    return kept, {f"{decay:g}": why for decay, why in reasons.items()}


def _nearest_groups(table: pd.DataFrame, apart: float, *, widen: bool) -> tuple[float, list[Group]]:
    """The groups, and how far their compute may be apart: more than asked for where it may be widened."""
    for tolerance in (apart, *(step / 10 for step in range(2, 91 if widen else 0))):
        if groups := find_groups(table, tolerance):
            return tolerance, groups
    raise InvalidInput(
        f"no two runs have the same unique tokens and weight decay and a compute within {apart:.0%} of "
        f"each other; a larger tolerance, or runs of one budget at several sizes, would do."
    )


def _left_out(
    table: pd.DataFrame,
    groups: Sequence[Group],
    forms: list[str],
    delta: float,
    leave: str,
    progress: Progress,
) -> tuple[list[_Judged], dict[str, str]]:
    """The groups that can be judged, and why a form is not identified even by all runs."""
    judged: list[_Judged] = []
    problems: dict[str, str] = {}
    decays = sorted({group.weight_decay for group in groups})
    for done, decay in enumerate(decays):
        runs = table[table["weight_decay"] == decay]
        here = [group for group in groups if group.weight_decay == decay]
        fits = fit_forms(Runs.of(runs), forms, delta=delta)
        judged += _left_out_at(runs, here, fits, leave, part_of(progress, done, len(decays)))
        reasons = {form: fits.forms[form].problem for form in forms}
        problems |= {form: f"at weight decay {decay:g} {why}" for form, why in reasons.items() if why}
    return judged, problems


def _left_out_at(
    table: pd.DataFrame, groups: Sequence[Group], fits: Fits, leave: str, progress: Progress
) -> list[_Judged]:
    """The groups of one weight decay, whose runs are the table, that can be judged, and what each form that
    was fitted without a group says of its configurations.
    """
    runs, points = fits.runs, np.column_stack(points_of(table))
    kept = np.ones((len(groups), len(table)), dtype=bool)
    for group, row in zip(groups, kept, strict=True):
        out = np.isin(table.index, [one for some in group.rows for one in some])
        row[np.isin(runs.cells, runs.cells[out]) if leave == "cells" else out] = False
    predicted = left_out_predictions(fits, kept, progress)
    found = []
    for g, group in enumerate(groups):
        first = table.index.get_indexer(pd.Index([some[0] for some in group.rows]))
        with np.errstate(over="ignore"):
            losses = {form: np.exp(values[g, first]) for form, values in predicted.items()}
        identified = all(is_identified(points[kept[g]], form) for form in fits.forms)
        # A law that runs away on what it has not seen ranks nothing.
        if identified and all(np.isfinite(loss).all() for loss in losses.values()):
            found.append((group, losses))
    return found


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
