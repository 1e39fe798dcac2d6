"""Where two weight decays swapped places in training, next to where a law said that they would.

The **observed crossover** is where the difference of their mean losses changes its sign, interpolated in ln
C. Its interval comes from drawing the seeds again: residuals of each weight decay are pooled over budgets and
widened for the mean that was taken out. An end outside of what was tried is open.

Means of few seeds cross by chance, too, in most studies without any crossover. So a crossover is **shown**
only where there is a compute below which the weaker weight decay is better beyond noise, on average over the
budgets there, and above which the stronger one is; the noise is pooled over the budgets of each weight decay,
and the quantile (Student's) allows for the number of places at which the budgets can be divided. Otherwise
the verdict says so, with the share of draws that cross and the difference that these seeds could show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from scipy import stats

from calibration.studies.prescriptions import CrossoverTest, PredictedCrossover, Prescription
from calibration.studies.verdict import Budget, Configuration, CrossoverFound, Trained, pooled_deviation
from planner.uncertainty import LEVEL

DRAWS = 2000
_Sides = Sequence[tuple[Configuration, Configuration]]  # the weaker and the stronger one at each compute


def observe_crossover(test: CrossoverTest, trained: Trained) -> CrossoverFound:
    """What training says about a predicted crossover."""
    pairs = zip(test.prescriptions[::2], test.prescriptions[1::2], strict=True)
    budgets = tuple(_budget(weaker, stronger, trained) for weaker, stronger in pairs)
    sides = [(b.weaker, b.stronger) for b in budgets if b.weaker is not None and b.stronger is not None]
    ln_flops = np.log([budget.flops for budget in budgets if budget.difference is not None])
    gaps = np.array([stronger.loss - weaker.loss for weaker, stronger in sides])
    crossings = tuple(math.exp(x) for x in sign_changes(ln_flops, gaps))
    observed = _overtaken(ln_flops, gaps)
    draws = _draws(sides, ln_flops, observed)
    evidence = _evidence(sides, gaps)
    at = math.exp(observed) if observed is not None and math.isfinite(observed) else None
    predicted = {one.name: getattr(test, one.name) for one in fields(PredictedCrossover)}
    return CrossoverFound(
        **predicted,
        observed=at,
        observed_interval=draws.interval,
        ratio=at / test.predicted if at and test.predicted else None,
        crossings=crossings,
        crossing_share=draws.crossing,
        note=_note(test, observed, draws, evidence, len(crossings), len(sides)),
        budgets=budgets,
        shown=None if at is None else evidence.crosses,
        foreseen=_overlap(test.predicted_interval, draws.interval),
    )


def _overlap(
    predicted: tuple[float, float] | None, observed: tuple[float | None, float | None] | None
) -> bool | None:
    """Whether two intervals have anything in common, ends outside of what was tried being open."""
    if predicted is None or observed is None:
        return None
    return (observed[0] or 0.0) <= predicted[1] and predicted[0] <= (observed[1] or math.inf)


def _budget(weaker: Prescription, stronger: Prescription, trained: Trained) -> Budget:
    low, high = trained.of(weaker), trained.of(stronger)
    excuses = [(p.weight_decay, trained.reason_missing(p)) for p in (weaker, stronger)]
    reason = "; ".join(f"λ = {decay:g}: {excuse}" for decay, excuse in excuses if excuse)
    return Budget(
        weaker.flops, low, high, None if low is None or high is None else high.loss - low.loss, reason
    )


def sign_changes(ln_flops: np.ndarray, gaps: np.ndarray) -> list[float]:
    """Where the difference is zero, by straight lines in ln C."""
    k = np.flatnonzero(np.diff(gaps > 0))
    step = np.diff(ln_flops)[k] * gaps[k] / (gaps[k] - gaps[k + 1])
    return [float(place) for place in ln_flops[k] + step]


def _overtaken(ln_flops: np.ndarray, gaps: np.ndarray) -> float | None:
    """The first compute at which the stronger weight decay overtakes; minus or plus infinity: below or above
    what was tried.

    None where nothing can be said: fewer than two budgets, or the stronger one only falls behind.
    """
    if len(gaps) < 2:
        return None
    better = gaps <= 0  # the stronger one
    if better.all():
        return -math.inf
    if not better.any():
        return math.inf
    upward = sign_changes(ln_flops, gaps)[int(better[0]) :: 2]  # it overtakes and falls behind in turns
    return upward[0] if upward else None


class _Draws(NamedTuple):
    """What becomes of the crossover when the seeds are drawn again."""

    interval: tuple[float | None, float | None] | None = None
    crossing: float | None = None  # the share of draws that cross inside
    agreeing: float | None = None  # the share that say what the means say, where those do not cross


def _draws(sides: _Sides, ln_flops: np.ndarray, observed: float | None) -> _Draws:
    if len(sides) < 2:
        return _Draws()
    weaker, stronger = ([np.asarray(c.losses) for c in side] for side in zip(*sides, strict=True))
    residuals = [_residuals(weaker), _residuals(stronger)]
    if not all(map(len, residuals)):
        return _Draws()
    rng = np.random.default_rng(0)
    low_means, high_means = (
        np.stack([losses.mean() + rng.choice(pool, (DRAWS, len(losses))).mean(axis=1) for losses in side])
        for side, pool in zip((weaker, stronger), residuals, strict=True)
    )
    drawn = [_overtaken(ln_flops, gaps) for gaps in (high_means - low_means).T]
    known = np.array([x for x in drawn if x is not None])
    crossing = float(np.isfinite(known).sum() / DRAWS)
    agreeing = drawn.count(observed) / DRAWS
    if len(known) < LEVEL * DRAWS:
        return _Draws(None, crossing, agreeing)
    ends = np.quantile(known, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="nearest")
    low, high = (math.exp(end) if math.isfinite(end) else None for end in ends)
    return _Draws((low, high), crossing, agreeing)


class _Evidence(NamedTuple):
    """Whether the crossover is shown, and the difference at one budget that could be; None with one seed."""

    crosses: bool | None = None
    detectable: float | None = None


def _evidence(sides: _Sides, gaps: np.ndarray) -> _Evidence:
    if len(sides) < 2:
        return _Evidence()
    weaker, stronger = (pooled_deviation(side) for side in zip(*sides, strict=True))
    if weaker[0] is None or stronger[0] is None:
        return _Evidence()
    variances = np.array(
        [weaker[0] ** 2 / len(low.losses) + stronger[0] ** 2 / len(high.losses) for low, high in sides]
    )
    quantile = float(stats.t.ppf(1 - (1 - LEVEL) / (len(gaps) - 1), weaker[1] + stronger[1]))
    crosses = any(
        _mean_beyond(gaps[:k], variances[:k], quantile) and _mean_beyond(-gaps[k:], variances[k:], quantile)
        for k in range(1, len(gaps))
    )
    return _Evidence(crosses, quantile * math.sqrt(float(variances.mean())))


def _mean_beyond(gaps: np.ndarray, variances: np.ndarray, quantile: float) -> bool:
    """Whether a mean over budgets is above zero beyond noise."""
    return bool(gaps.mean() > quantile * math.sqrt(variances.sum()) / len(gaps))


def _residuals(groups: Sequence[np.ndarray]) -> np.ndarray:
    """What the seeds of all budgets are off their means by; nothing where there is one seed everywhere."""
    several = [losses for losses in groups if len(losses) > 1]
    widened = [(losses - losses.mean()) * math.sqrt(len(losses) / (len(losses) - 1)) for losses in several]
    return np.concatenate(widened) if widened else np.empty(0)


def _note(
    test: CrossoverTest,
    observed: float | None,
    draws: _Draws,
    evidence: _Evidence,
    crossings: int,
    usable: int,
) -> str:
    if test.predicted is None:
        return f"no crossover is predicted, so none was looked for: {test.note}"
    if usable < 2:
        return "fewer than two budgets were trained at both weight decays"
    sure = draws.agreeing is None or draws.agreeing >= LEVEL
    doubt = "" if sure else f" by its mean loss, and in {draws.agreeing:.0%} of draws of the seeds"
    if observed is None:
        return f"λ = {test.stronger:g} never overtakes inside the range tried: it only falls behind{doubt}"
    if math.isinf(observed):
        better = test.stronger if observed < 0 else test.weaker
        return f"none inside the range tried: λ = {better:g} is better at all of it{doubt}"
    notes = []
    if evidence.crosses is None or draws.crossing is None:
        notes += ["not shown: with one seed nothing is known about noise"]
    elif not evidence.crosses:
        notes += [
            f"not shown: {draws.crossing:.0%} of draws of the seeds cross, but means cross by chance, too, "
            f"and at one budget these seeds could show a difference of {evidence.detectable:.2g}"
        ]
    if crossings > 1:
        notes += [
            f"the better weight decay changes {crossings} times; "
            f"the first at which λ = {test.stronger:g} overtakes is given"
        ]
    return "; ".join(notes)
