r"""Which of many possible runs make something certain soonest per FLOP, and how certain.

**Predictive covariance.** A posterior (`bayes.posterior`) has theta normal around a prior, a smooth model
discrepancy d and noise. On ln(loss), to first order around the most probable law, any two configurations x,
x' have the prior covariance

    K(x, x') = J(x) S J(x')^T  +  d^2 s(x) s(x') k(x, x'),     J = d ln L / d theta,  s = (L - E) / L,

and every run that is trained lowers it by a known amount, whatever its loss. Without the second term a law
would be thought exact, and thousands of tiny runs would seem to settle anything.

**Greedy selection** (sequential Bayesian design: Chaloner and Verdinelli 1995). Training run i changes K by
-K_i K_i^T / (K_ii + noise^2). Take the run with the largest fall of the wanted variance per FLOP^rho, until
the budget is spent. rho = 1 is thrifty to a fault and rho = 0 spends on the largest runs; all of 0 to 1 are
tried, and the set that ends with the least variance wins. The first runs are those without which the law
could not be fitted at all (see `identify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.fitting.bayes.posterior import Posterior, kernel
from calibration.fitting.identify import runs_to_add
from calibration.fitting.solver import Points, Progress, flops_of, silent
from planner.laws import BASE_FORM

# Times the model discrepancy, where runs are chosen: a law fails together and where it was not looked at.
_CAUTION = 3.0
_THRIFT = (0.0, 0.25, 0.5, 0.75, 1.0)


def joined(*parts: Points | None) -> Points:
    """All configurations of these; None has none."""
    some = [part for part in parts if part is not None]
    params, unique, epochs = (np.concatenate(columns) for columns in zip(*some, strict=True))
    return params, unique, epochs


def predictive_covariance(belief: Posterior, points: Points, caution: float = 1.0) -> np.ndarray:
    """Of ln(loss) at these configurations before any run, linearised around the most probable law; `caution`
    multiplies the model discrepancy.
    """
    _, slopes = belief.reference.model(belief.form, points).jacobian(belief.mean[None])
    jacobian = slopes[:, 0].T @ belief.prior.root
    loss = belief.law.loss(*points)
    above = (loss - float(belief.law.parameters["E"])) / loss
    discrepancy = caution * belief.levels[1]
    together = discrepancy**2 * np.outer(above, above) * kernel(points, points)
    return np.asarray(jacobian @ jacobian.T + together)


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


def select_runs(
    belief: Posterior,
    candidates: Points,
    wanted: Wanted,
    budget: float,
    *,
    trained: Points | None = None,
    first: Sequence[int] = (),
    least_gain: float = 0.0,
    max_runs: int | None = None,
    progress: Progress = silent,
) -> list[int]:
    """Indices of the candidates to train within `budget` FLOPs, in the order in which they were chosen.

    Candidates in `first` are taken in any case.
    """
    cost, noise = flops_of(candidates), belief.levels[0]
    # Candidates come first in the covariance, then what is wanted, then the trained runs.
    start = predictive_covariance(belief, joined(candidates, wanted.points, trained), _CAUTION)
    size, targets = len(cost), slice(len(cost), len(cost) + len(wanted))
    for row in (*range(targets.stop, len(start)), *first):
        start = conditioned(start, row, noise)
    before = wanted.variances(start[targets, targets])
    shares = wanted.functions / np.sqrt(np.maximum(before, 1e-300))[:, None]

    def greedy(thrift: float) -> tuple[float, list[int]]:
        """What is left unknown, and the runs that were chosen."""
        covariance, chosen, left = start, list(first), budget - cost[list(first)].sum()
        free = ~np.isin(np.arange(size), chosen)
        unknown = float(len(shares))
        while max_runs is None or len(chosen) < max_runs:
            fall = ((shares @ covariance[targets, :size]) ** 2).sum(axis=0)
            gain = fall / (np.diag(covariance)[:size] + noise**2)
            possible = free & (cost <= left) & (gain > least_gain * unknown)
            if not possible.any():
                break
            worth = np.log(np.maximum(gain, 1e-300)) - thrift * np.log(cost)
            index = int(np.argmax(np.where(possible, worth, -np.inf)))
            covariance = conditioned(covariance, index, noise)
            chosen.append(index)
            free[index] = False
            left -= cost[index]
            unknown -= float(gain[index])
        return unknown, chosen

    best: tuple[float, list[int]] = (np.inf, [])
    for done, thrift in enumerate(_THRIFT):
        progress("choosing runs", done / len(_THRIFT))
        unknown, chosen = greedy(thrift)
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
    belief: Posterior, chosen: Points, wanted: Wanted, trained: Points | None = None
) -> list[tuple[float, ...]]:
    """Standard errors of what is wanted before, and after each of the chosen runs."""
    noise = belief.levels[0]
    covariance = predictive_covariance(belief, joined(wanted.points, chosen, trained))
    size, count = len(wanted), len(chosen[0])
    for row in range(size + count, len(covariance)):
        covariance = conditioned(covariance, row, noise)
    errors = []
    for step in range(count + 1):
        if step:
            covariance = conditioned(covariance, size + step - 1, noise)
        variances = wanted.variances(covariance[:size, :size])
        errors.append(tuple(float(sd) for sd in np.sqrt(np.maximum(variances, 0.0))))
    return errors


def conditioned(covariance: np.ndarray, row: int, noise: float) -> np.ndarray:
    """The covariance after the loss in this row has been observed."""
    column = covariance[:, row]
    return np.asarray(covariance - np.outer(column, column) / (covariance[row, row] + noise**2))
