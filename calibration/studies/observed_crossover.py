"""Where two weight decays swapped places in training, next to where a law said that they would.

The **observed crossover** is where the difference of their mean losses changes its sign, interpolated in ln
C. Its interval comes from drawing the seeds again: residuals of each weight decay are pooled over budgets and
widened for the mean that was taken out. An end outside of what was tried is open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibration.studies.outcomes import Budget, CrossoverFound, Trained
from calibration.studies.prescriptions import CrossoverTest, Prescription
from planner.intervals import LEVEL

DRAWS = 2000


def observe(test: CrossoverTest, trained: Trained) -> CrossoverFound:
    """What training says about a predicted crossover."""
    pairs = zip(test.prescriptions[::2], test.prescriptions[1::2], strict=True)
    budgets = tuple(_budget(weaker, stronger, trained) for weaker, stronger in pairs)
    usable = [budget for budget in budgets if budget.difference is not None]
    ln_flops = np.log([budget.flops for budget in usable])
    gaps = np.array([budget.difference for budget in usable], dtype=float)
    crossings = tuple(math.exp(x) for x in sign_changes(ln_flops, gaps))
    observed = _overtaken(ln_flops, gaps)
    draws = _draws(usable, ln_flops, observed)
    at = math.exp(observed) if observed is not None and math.isfinite(observed) else None
    return CrossoverFound(
        test.ud,
        test.law,
        test.weaker,
        test.stronger,
        test.predicted,
        test.predicted_interval,
        observed=at,
        observed_interval=draws.interval,
        ratio=at / test.predicted if at and test.predicted else None,
        crossings=crossings,
        crossing_share=draws.crossing,
        note=_note(test, observed, draws.agreeing, len(crossings), len(usable)),
        budgets=budgets,
    )


def _budget(weaker: Prescription, stronger: Prescription, trained: Trained) -> Budget:
    low, high = trained.of(weaker), trained.of(stronger)
    excuses = [(p.weight_decay, trained.excuse(p)) for p in (weaker, stronger)]
    reason = "; ".join(f"λ = {decay:g}: {excuse}" for decay, excuse in excuses if excuse)
    return Budget(
        weaker.flops, low, high, None if low is None or high is None else high.loss - low.loss, reason
    )


def sign_changes(ln_flops: np.ndarray, gaps: np.ndarray) -> list[float]:
    """Where the difference is zero, by straight lines in ln C."""
    found = []
    for k in range(len(gaps) - 1):
        if (gaps[k] > 0) != (gaps[k + 1] > 0):
            step = (ln_flops[k + 1] - ln_flops[k]) * gaps[k] / (gaps[k] - gaps[k + 1])
            found.append(float(ln_flops[k] + step))
    return found


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
    changes = sign_changes(ln_flops, gaps)
    starts = np.flatnonzero(better[1:] != better[:-1])
    upward = [x for x, k in zip(changes, starts, strict=True) if better[k + 1]]
    return upward[0] if upward else None


class _Draws(NamedTuple):
    """What becomes of the crossover when the seeds are drawn again."""

    interval: tuple[float | None, float | None] | None = None
    crossing: float | None = None  # the share of draws that cross inside
    agreeing: float | None = None  # the share that say what the means say, where those do not cross


def _draws(usable: Sequence[Budget], ln_flops: np.ndarray, observed: float | None) -> _Draws:
    if len(usable) < 2:
        return _Draws()
    weaker = [np.asarray(budget.weaker.losses) for budget in usable if budget.weaker is not None]
    stronger = [np.asarray(budget.stronger.losses) for budget in usable if budget.stronger is not None]
    residuals = [_residuals(weaker), _residuals(stronger)]
    if not all(map(len, residuals)):
        return _Draws()
    rng = np.random.default_rng(0)
    means = [_drawn_means(*side, rng) for side in zip((weaker, stronger), residuals, strict=True)]
    drawn = [_overtaken(ln_flops, gaps) for gaps in (means[1] - means[0]).T]
    known = np.array([x for x in drawn if x is not None])
    crossing = float(np.isfinite(known).sum() / DRAWS)
    agreeing = drawn.count(observed) / DRAWS
    if len(known) < LEVEL * DRAWS:
        return _Draws(None, crossing, agreeing)
    ends = np.quantile(known, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="nearest")
    low, high = (math.exp(end) if math.isfinite(end) else None for end in ends)
    return _Draws((low, high), crossing, agreeing)


def _residuals(groups: Sequence[np.ndarray]) -> np.ndarray:
    """What the seeds of all budgets are off their means by; nothing where there is one seed everywhere."""
    several = [losses for losses in groups if len(losses) > 1]
    widened = [(losses - losses.mean()) * math.sqrt(len(losses) / (len(losses) - 1)) for losses in several]
    return np.concatenate(widened) if widened else np.empty(0)


def _drawn_means(groups: Sequence[np.ndarray], residuals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.stack([g.mean() + rng.choice(residuals, (DRAWS, len(g))).mean(axis=1) for g in groups])


def _note(
    test: CrossoverTest, observed: float | None, agreeing: float | None, crossings: int, usable: int
) -> str:
    if test.predicted is None:
        return f"no crossover is predicted, so none was looked for: {test.note}"
    if usable < 2:
        return "fewer than two budgets were trained at both weight decays"
    sure = agreeing is None or agreeing >= LEVEL
    doubt = "" if sure else f" by its mean loss, and in {agreeing:.0%} of draws of the seeds"
    if observed is None:
        return f"λ = {test.stronger:g} never overtakes inside the range tried: it only falls behind{doubt}"
    if math.isinf(observed):
        better = test.stronger if observed < 0 else test.weaker
        return f"none inside the range tried: λ = {better:g} is better at all of it{doubt}"
    if crossings > 1:
        return (
            f"the better weight decay changes {crossings} times; "
            f"the first at which λ = {test.stronger:g} overtakes is given"
        )
    return ""
