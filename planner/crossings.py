"""Where two settings swap places: the compute at which their optimal losses are equal.

Strong weight decay pays a premium while data is fresh and earns it back once data repeats, so its optimal
loss starts above that of weak decay and ends below. Nothing guarantees a single crossing, so all are looked
for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.allocation import allocate
from planner.landscape import loss_slope
from planner.laws import Law
from planner.limits import FREE, Limits
from planner.spending import first_minimum, lowest


class Crossings(NamedTuple):
    """Every compute at which the better of two laws changes, ascending; which is better below; where both
    have a plan.
    """

    flops: list[float]
    first_is_better_below: bool
    searched: tuple[float, float] | None  # None: the limits leave no compute at which both have a plan


def crossings(first: Law, second: Law, ud: float, flops: np.ndarray, limits: Limits = FREE) -> Crossings:
    """Every compute within `flops` (ascending) at which the better of the two laws changes.

    Where compute is a ceiling, that is the lowest loss that each can reach with at most so much.
    """
    gap = lowest(first, ud, flops, limits) - lowest(second, ud, flops, limits)
    decided = np.flatnonzero(np.isfinite(gap) & (gap != 0))  # NaN where limits leave no choice
    rises = gap[decided] > 0
    brackets = [decided[k : k + 2] for k in np.flatnonzero(rises[1:] != rises[:-1])]
    limits_of = [first_minimum(law, ud, limits) if limits.ceiling else None for law in (first, second)]
    ends = min((one.flops for one in limits_of if one is not None), default=np.inf)
    found = []
    for bracket in brackets:
        polish = _polish if flops[bracket[1]] < ends else _narrow
        found.append(polish(first, second, ud, np.log(flops[bracket]), gap[bracket], limits))
    both = np.flatnonzero(np.isfinite(gap))
    searched = (float(flops[both[0]]), float(flops[both[-1]])) if len(both) else None
    return Crossings(found, not (len(rises) and rises[0]), searched)


def _narrow(first: Law, second: Law, ud: float, ends: np.ndarray, gaps: np.ndarray, limits: Limits) -> float:
    """Where the gap changes sign inside one bracket of ln(flops), by ever finer grids: beyond a minimum its
    slope jumps.
    """
    low, high = ends
    for _ in range(4):  # each pass narrows the bracket 32-fold
        at = np.linspace(low, high, 33)
        gap = lowest(first, ud, np.exp(at), limits) - lowest(second, ud, np.exp(at), limits)
        after = max(int(np.argmax((gap > 0) == (gaps[1] > 0))), 1)
        low, high = at[after - 1], at[after]
    return float(np.exp(0.5 * (low + high)))


def _polish(first: Law, second: Law, ud: float, ends: np.ndarray, gaps: np.ndarray, limits: Limits) -> float:
    """Equal optimal losses inside one bracket of ln(flops): Newton's method, safeguarded by bisection.

    The slope of each optimal loss is known (see `landscape`); the optimal epochs may follow or stay, to first
    order the loss does not notice.
    """
    low, high = ends
    rising = gaps[1] > 0
    x = low + (high - low) * gaps[0] / (gaps[0] - gaps[1])
    for _ in range(60):
        gap, slope = 0.0, 0.0
        for law, sign in ((first, 1.0), (second, -1.0)):
            best = allocate(law, ud, np.exp(x), limits)
            gap += sign * float(best.loss)
            slope += sign * float(loss_slope(law, ud, best, limits))
        step = -gap / slope if slope else np.inf
        if abs(step) < 1e-6:  # the error after a Newton step is about its square
            return float(np.exp(x + step))
        if (gap > 0) == rising:
            high = x
        else:
            low = x
        x = x + step if low < x + step < high else 0.5 * (low + high)
    return float(np.exp(x))
