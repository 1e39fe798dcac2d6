"""Where two settings swap places: the compute at which their optimal losses are equal.

Strong weight decay pays a premium while data is fresh and earns it back once data repeats, so its optimal loss
starts above that of weak decay and ends below. Nothing guarantees a single crossing, so all are looked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from planner.allocation import FLOPS_PER_PARAM_TOKEN, Allocation, allocate
from planner.laws import Law

POINTS_PER_DECADE = 8
# Searched: from a ten-thousandth of the compute at which the corpus is used up once, to ten million times it.
DECADES_BELOW, DECADES_ABOVE = 4, 7


class Crossings(NamedTuple):
    """Every compute at which the better of two laws changes, ascending; which is better below; where both have a plan."""

    flops: list[float]
    first_is_better_below: bool
    searched: tuple[float, float] | None  # None: the limits leave no compute at which both have a plan


class Landscape(NamedTuple):
    """A law's optimal loss along compute at fixed unique tokens (continuous epochs)."""

    flops: np.ndarray
    params: np.ndarray
    epochs: np.ndarray
    loss: np.ndarray
    loss_slope: np.ndarray  # d loss / d ln flops


def landscape(law: Law, ud: float, flops: np.ndarray, **limits: Any) -> Landscape:
    """Optimal loss and its slope at each compute, with continuous epochs."""
    best = allocate(law, ud, flops, whole_epochs=False, **limits)
    return Landscape(flops, best.params, best.epochs, best.loss, _loss_slope(law, ud, best, limits))


def _loss_slope(law: Law, ud: float, best: Allocation, limits: dict[str, Any]) -> np.ndarray:
    """d loss / d ln flops at an optimum: by the envelope theorem dL/dln(params), or dL/dln(epochs) where the size is held."""
    by = law.slopes(best.params, ud, best.epochs)
    bounds = limits.get("min_params"), limits.get("max_params")
    if bounds == (None, None):
        return by.params
    return np.asarray(np.where(size_is_held(best.params, *bounds), by.epochs, by.params))


def size_is_held(params: Any, min_params: float | None, max_params: float | None) -> Any:
    """Whether a limit on the size binds, so that more compute can only buy epochs."""
    held = np.zeros(np.shape(params), dtype=bool)
    for bound in (min_params, max_params):
        if bound is not None:
            held |= np.isclose(params, bound, rtol=1e-9)
    return held


def search_range(law: Law, ud: float, include: float | None = None) -> np.ndarray:
    """The compute grid on which crossings, turning points and minima are looked for; `include` is never left outside."""
    once = float(np.log10(FLOPS_PER_PARAM_TOKEN * ud * law.optimal_params(ud)))
    low, high = once - DECADES_BELOW, once + DECADES_ABOVE
    if include is not None:
        low, high = min(low, np.log10(include) - 1), max(high, np.log10(include) + 1)
    return np.logspace(low, high, round((high - low) * POINTS_PER_DECADE) + 1)


def crossings(
    first: Law, second: Law, ud: float, flops: np.ndarray, *, whole_epochs: bool = True, **limits: Any
) -> Crossings:
    """Every compute within `flops` (ascending) at which the lower optimal loss changes between the two laws."""
    how = {"whole_epochs": whole_epochs, **limits}
    one, two = (allocate(law, ud, flops, **how) for law in (first, second))
    gap = one.loss - two.loss
    decided = np.flatnonzero(np.isfinite(gap) & (gap != 0))  # NaN where limits leave no choice
    rises = gap[decided] > 0
    brackets = [decided[k : k + 2] for k in np.flatnonzero(rises[1:] != rises[:-1])]
    found = [_polish(first, second, ud, np.log(flops[ends]), gap[ends], how) for ends in brackets]
    both = np.flatnonzero(np.isfinite(gap))
    searched = (float(flops[both[0]]), float(flops[both[-1]])) if len(both) else None
    return Crossings(found, not (len(rises) and rises[0]), searched)


def _polish(
    first: Law, second: Law, ud: float, ends: np.ndarray, gaps: np.ndarray, how: dict[str, Any]
) -> float:
    """Equal optimal losses inside one bracket of ln(flops): Newton's method, bisecting where it would leave the bracket.

    The slope of each optimal loss is known (see `landscape`); the optimal epochs may follow or stay, to first order the
    loss does not notice.
    """
    low, high = ends
    rising = gaps[1] > 0
    x = low + (high - low) * gaps[0] / (gaps[0] - gaps[1])
    for _ in range(60):
        gap, slope = 0.0, 0.0
        for law, sign in ((first, 1.0), (second, -1.0)):
            best = allocate(law, ud, np.exp(x), **how)
            gap += sign * float(best.loss)
            slope += sign * float(_loss_slope(law, ud, best, how))
        step = -gap / slope if slope else np.inf
        if abs(step) < 1e-6:  # the error after a Newton step is about its square
            return float(np.exp(x + step))
        if (gap > 0) == rising:
            high = x
        else:
            low = x
        x = x + step if low < x + step < high else 0.5 * (low + high)
    return float(np.exp(x))
