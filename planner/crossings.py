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
from planner.minima import first_minimum
from planner.spending import lowest


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
    gap = -np.diff(lowest((first, second), ud, flops, limits), axis=0)[0]
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
        gap = -np.diff(lowest((first, second), ud, np.exp(at), limits), axis=0)[0]
        after = max(int(np.argmax((gap > 0) == (gaps[1] > 0))), 1)
        low, high = at[after - 1], at[after]
    return float(np.exp(0.5 * (low + high)))


def _polish(first: Law, second: Law, ud: float, ends: np.ndarray, gaps: np.ndarray, limits: Limits) -> float:
    """Equal optimal losses inside one bracket of ln(flops), from where a straight line would have them."""
    low, high = ends
    start = low + (high - low) * gaps[0] / (gaps[0] - gaps[1])
    bracket = (np.array([low]), np.array([start]), np.array([high]))
    return float(np.exp(meeting_point(first, second, ud, bracket, bool(gaps[1] > 0), limits)[0]))


def meeting_point(
    first: Law,
    second: Law,
    ud: float,
    bracket: tuple[np.ndarray, np.ndarray, np.ndarray],
    rising: bool,
    limits: Limits,
    tolerance: float = 1e-6,
) -> np.ndarray:
    """ln(flops) of equal optimal losses, for each pair of laws of two ensembles.

    Newton's method, safeguarded by bisection.
    Each bracket has its low end, a start and its high end; `rising` says whether the first law is the worse
    one above. The slope of each optimal loss is known (see `landscape`); the optimal epochs may follow or
    stay, to first order the loss does not notice. The error after a Newton step is about its square.
    """
    low, x, high = bracket
    found, left = np.array(x), np.arange(len(x))
    for _ in range(60):
        gap, slope = np.zeros(len(x)), np.zeros(len(x))
        for law, sign in ((first.member(left), 1.0), (second.member(left), -1.0)):
            best = allocate(law, ud, np.exp(x), limits)
            gap += sign * best.loss
            slope += sign * loss_slope(law, ud, best, limits)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = -gap / slope
        above = (gap > 0) == rising
        low, high = np.where(above, low, x), np.where(above, x, high)
        done = np.abs(step) < tolerance
        follows = done | ((low < x + step) & (x + step < high))
        found[left] = x = np.where(follows, x + step, 0.5 * (low + high))
        left, low, x, high = (values[~done] for values in (left, low, x, high))
        if not len(left):
            break
    return found
