"""Where two settings swap places: the compute at which their optimal losses are equal.

Strong weight decay pays a premium while data is fresh and earns it back once data repeats, so its optimal
loss starts above that of weak decay and ends below. Nothing guarantees a single crossing, so all are looked
for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from planner.allocation import allocate
from planner.landscape import loss_slope
from planner.laws import Array, Law, Stack, stacked
from planner.limits import FREE, Limits
from planner.spending import lowest

_EXACT = 1e-6  # how close a crossing is enclosed, in ln(flops), before a straight line says where it is
_CLOSER = 0.5 ** np.arange(1, 17)  # parts of a bracket next to where a crossing is expected


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
    gap = _gaps(first, second, ud, flops, limits)
    decided = np.flatnonzero(np.isfinite(gap) & (gap != 0))  # NaN where limits leave no choice
    rises = gap[decided] > 0
    brackets = [decided[k : k + 2] for k in np.flatnonzero(rises[1:] != rises[:-1])]
    found = _narrow(
        lambda ln_flops: _gaps(first, second, ud, np.exp(ln_flops), limits),
        [_Bracket(*np.log(flops[ends]), *gap[ends]) for ends in brackets],
    )
    both = np.flatnonzero(np.isfinite(gap))
    searched = (float(flops[both[0]]), float(flops[both[-1]])) if len(both) else None
    return Crossings(found, not (len(rises) and rises[0]), searched)


class _Bracket(NamedTuple):
    """Two places in ln(flops) and the gaps there, of which one is positive."""

    low: float
    high: float
    below: float
    above: float

    @property
    def middle(self) -> float:
        """Where a straight line would have no gap, which is seldom far off."""
        return self.low + (self.high - self.low) * self.below / (self.below - self.above)

    def around(self) -> np.ndarray:
        """Ever closer neighbours of that place."""
        middle = self.middle
        return np.concatenate(
            [middle - (middle - self.low) * _CLOSER, [middle], middle + (self.high - middle) * _CLOSER[::-1]]
        )

    def closer(self, near: np.ndarray, gap: np.ndarray) -> _Bracket:
        """The first of the brackets between such neighbours, of those where there are plans."""
        planned = np.isfinite(gap)
        near = np.concatenate([[self.low], near[planned], [self.high]])
        gap = np.concatenate([[self.below], gap[planned], [self.above]])
        after = max(int(np.argmax((gap > 0) == (self.above > 0))), 1)
        return _Bracket(near[after - 1], near[after], gap[after - 1], gap[after])


def _narrow(gaps: Callable[[np.ndarray], np.ndarray], brackets: list[_Bracket]) -> list[float]:
    """Where the gap changes sign inside each bracket. Beyond a minimum and between two numbers of epochs the
    slope jumps, and a bracket takes another look. Where limits leave no plan around the place that a line
    has, the line has the last word.
    """
    left = [k for k, one in enumerate(brackets) if one.high - one.low > _EXACT]
    while left:
        near = np.array([brackets[k].around() for k in left])
        tried = gaps(near.ravel()).reshape(near.shape)
        closer = {
            k: brackets[k].closer(*row) for k, row in zip(left, zip(near, tried, strict=True), strict=True)
        }
        left = [k for k, one in closer.items() if one != brackets[k] and one.high - one.low > _EXACT]
        brackets = [closer.get(k, one) for k, one in enumerate(brackets)]
    return [float(np.exp(one.middle)) for one in brackets]


def _gaps(first: Law, second: Law, ud: float, flops: np.ndarray, limits: Limits) -> np.ndarray:
    """How much lower the lowest loss of the second law is, at each compute."""
    return np.asarray(-np.diff(lowest((first, second), ud, flops, limits), axis=0)[0])


class Pairs(NamedTuple):
    """Laws of two ensembles of one size that belong together, as one ensemble where that can be."""

    stacks: list[Stack]
    size: int

    @classmethod
    def of(cls, first: Law, second: Law) -> Pairs:
        return cls(stacked((first, second)), first.members)

    def some(self, rows: np.ndarray) -> Pairs:
        """The pairs with these numbers, in that order."""
        place = np.full(self.size, -1)
        place[rows] = np.arange(len(rows))
        left = []
        for law, places in self.stacks:
            side, row = np.divmod(places, self.size)
            kept = np.flatnonzero(place[row] >= 0)
            left.append(Stack(law.member(kept), side[kept] * len(rows) + place[row[kept]]))
        return Pairs(left, len(rows))

    def gaps(self, ud: float, flops: Array, limits: Limits) -> np.ndarray:
        """By how much the best loss of the first law is above that of the second, of each pair."""
        return self._differences(ud, flops, limits)[0]

    def gaps_and_slopes(self, ud: float, flops: Array, limits: Limits) -> tuple[np.ndarray, np.ndarray]:
        """The same with its slope by ln(flops)."""
        return self._differences(ud, flops, limits, slopes=True)

    def _differences(
        self, ud: float, flops: Array, limits: Limits, *, slopes: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        losses, by_flops = np.zeros((2, 2 * self.size))
        each = np.broadcast_to(flops, self.size)
        for law, places in self.stacks:
            best = allocate(law, ud, each[places % self.size], limits)
            losses[places] = best.loss
            if slopes:
                by_flops[places] = loss_slope(law, ud, best, limits)
        (first, second), (rises, falls) = losses.reshape(2, -1), by_flops.reshape(2, -1)
        return first - second, rises - falls


def meeting_point(
    pairs: Pairs,
    ud: float,
    bracket: tuple[np.ndarray, np.ndarray, np.ndarray],
    limits: Limits,
    tolerance: float = 1e-6,
) -> np.ndarray:
    """ln(flops) of equal optimal losses, for each pair of laws of which the first is the worse one above.

    Newton's method, safeguarded by bisection. Each bracket has its low end, a start and its high end. The
    slope of each optimal loss is known (see `landscape`); the optimal epochs may follow or stay, to first
    order the loss does not notice. The error after a Newton step is about its square.
    """
    low, x, high = bracket
    found, left = np.array(x), np.arange(len(x))
    for _ in range(60):
        gap, slope = pairs.gaps_and_slopes(ud, np.exp(x), limits)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = -gap / slope
        above = gap > 0
        low, high = np.where(above, low, x), np.where(above, x, high)
        done = np.abs(step) < tolerance
        follows = done | ((low < x + step) & (x + step < high))
        found[left] = x = np.where(follows, x + step, 0.5 * (low + high))
        if done.all():
            break
        if done.any():
            going = np.flatnonzero(~done)
            pairs, left, low, x, high = pairs.some(going), left[going], low[going], x[going], high[going]
    return found
