r"""Which of many possible runs make something certain soonest per FLOP.

Training run i changes the covariance K of a belief by -K_i K_i^T / (K_ii + noise^2), whatever its loss will
be. Greedy: take the run with the largest fall of the wanted variance per FLOP^rho, until the budget is spent.
rho = 1 is thrifty to a fault and rho = 0 spends on the largest runs; all of 0 to 1 are tried, and the set
that ends with the least variance wins. The first runs are those without which the law could not be fitted at
all (see `identify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.fitting.coordinates import Points, flops_of, joined
from calibration.fitting.design.predictive_covariance import PredictiveCovariance
from calibration.fitting.huber import Progress
from calibration.fitting.identify import runs_to_add
from planner.laws import BASE_FORM

THRIFT = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Wanted:
    """What shall become certain: linear functions (rows, points) of ln(loss) at these points."""

    points: Points
    functions: np.ndarray

    def __len__(self) -> int:
        return len(self.points[0])

    def variances(self, covariance: np.ndarray) -> np.ndarray:
        """Of each function, from the covariance of the points."""
        return np.asarray(np.einsum("ij,jk,ik->i", self.functions, covariance, self.functions))


@dataclass(frozen=True)
class _Search:
    """Candidates come first in the covariance, then what is wanted: shares of what is unknown now."""

    covariance: np.ndarray
    functions: np.ndarray
    cost: np.ndarray
    noise: float
    least_gain: float
    max_runs: int | None

    def greedy(self, first: Sequence[int], budget: float, thrift: float) -> tuple[float, list[int]]:
        """What is left unknown, and the runs that were chosen."""
        size = len(self.cost)
        targets = slice(size, size + self.functions.shape[1])
        covariance, chosen, left = self.covariance, list(first), budget - self.cost[list(first)].sum()
        free = ~np.isin(np.arange(size), chosen)
        unknown = float(len(self.functions))
        while self.max_runs is None or len(chosen) < self.max_runs:
            fall = ((self.functions @ covariance[targets, :size]) ** 2).sum(axis=0)
            gain = fall / (np.diag(covariance)[:size] + self.noise**2)
            possible = free & (self.cost <= left) & (gain > self.least_gain * unknown)
            if not possible.any():
                break
            worth = np.log(np.maximum(gain, 1e-300)) - thrift * np.log(self.cost)
            index = int(np.argmax(np.where(possible, worth, -np.inf)))
            covariance = conditioned(covariance, index, self.noise)
            chosen.append(index)
            free[index] = False
            left -= self.cost[index]
            unknown -= float(gain[index])
        return unknown, chosen


def select_runs(
    belief: PredictiveCovariance,
    candidates: Points,
    wanted: Wanted,
    budget: float,
    *,
    trained: Points | None = None,
    first: Sequence[int] = (),
    least_gain: float = 0.0,
    max_runs: int | None = None,
    progress: Progress | None = None,
) -> list[int]:
    """Indices of the candidates to train within `budget` FLOPs, in the order in which they were chosen.

    Candidates in `first` are taken in any case.
    """
    belief = belief.cautious()
    cost = flops_of(candidates)
    everything = [candidates, wanted.points] + ([trained] if trained is not None and len(trained[0]) else [])
    start = belief.covariance(joined(*everything))
    targets = slice(len(cost), len(cost) + len(wanted))
    for row in (*range(targets.stop, len(start)), *first):
        start = conditioned(start, row, belief.noise)
    before = wanted.variances(start[targets, targets])
    shares = wanted.functions / np.sqrt(np.maximum(before, 1e-300))[:, None]
    search = _Search(start, shares, cost, belief.noise, least_gain, max_runs)
    best: tuple[float, list[int]] = (np.inf, [])
    for done, thrift in enumerate(THRIFT):
        if progress is not None:
            progress("choosing runs", done / len(THRIFT))
        unknown, chosen = search.greedy(first, budget, thrift)
        if unknown < best[0] - 1e-12:
            best = (unknown, chosen)
    return best[1]


def identifying_runs(form: str, candidates: Points, trained: Points | None, budget: float) -> list[int]:
    """Candidates without which the form could not be fitted, unless they take over half the budget."""
    cost, pool = flops_of(candidates), np.column_stack(candidates)
    runs = np.empty((0, 3)) if trained is None else np.unique(np.column_stack(trained), axis=0)
    affordable = np.nonzero(cost <= budget / 16)[0]
    chosen: list[int] = []
    for part in dict.fromkeys([BASE_FORM, form]):
        for run in runs_to_add(runs, part, pool[affordable]):
            chosen.append(int(affordable[np.nonzero((pool[affordable] == run).all(axis=1))[0][0]]))
            runs = np.vstack([runs, run])
    return chosen if cost[chosen].sum() <= budget / 2 else []


def errors_after_runs(
    belief: PredictiveCovariance, chosen: Points, wanted: Wanted, trained: Points | None
) -> list[tuple[float, ...]]:
    """Standard errors of what is wanted before, and after each of the chosen runs."""
    parts = [wanted.points, chosen] + ([trained] if trained is not None else [])
    covariance = belief.covariance(joined(*parts))
    size, count = len(wanted), len(chosen[0])
    for row in range(size + count, len(covariance)):
        covariance = conditioned(covariance, row, belief.noise)
    errors = []
    for step in range(count + 1):
        if step:
            covariance = conditioned(covariance, size + step - 1, belief.noise)
        variances = wanted.variances(covariance[:size, :size])
        errors.append(tuple(float(sd) for sd in np.sqrt(np.maximum(variances, 0.0))))
    return errors


def conditioned(covariance: np.ndarray, row: int, noise: float) -> np.ndarray:
    """The covariance after the loss in this row has been observed."""
    column = covariance[:, row]
    return np.asarray(covariance - np.outer(column, column) / (covariance[row, row] + noise**2))
