"""Where two settings swap places: the compute at which their optimal losses are equal.

Strong weight decay pays a premium while data is fresh and earns it back once data repeats, so its optimal loss
starts above that of weak decay and ends below. Nothing guarantees a single crossing, so all are looked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
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
    """Optimal loss and its slope at each compute: dL/dln(params) by the envelope theorem, or dL/dln(epochs) at a fixed size."""
    best = allocate(law, ud, flops, whole_epochs=False, **limits)
    by = law.slopes(best.params, ud, best.epochs)
    held = size_is_held(best.params, limits.get("min_params"), limits.get("max_params"))
    return Landscape(flops, best.params, best.epochs, best.loss, np.asarray(np.where(held, by.epochs, by.params)))


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


def crossings(first: Law, second: Law, ud: float, flops: np.ndarray, *, whole_epochs: bool = True, **limits: Any) -> Crossings:
    """Every compute within `flops` (ascending) at which the lower optimal loss changes between the two laws."""
    one, two = (allocate(law, ud, flops, whole_epochs=whole_epochs, **limits) for law in (first, second))
    gap = one.loss - two.loss
    decided = np.flatnonzero(np.isfinite(gap) & (gap != 0))  # NaN where limits leave no choice
    rises = gap[decided] > 0
    found = []
    for k in np.flatnonzero(rises[1:] != rises[:-1]):
        ends = decided[k : k + 2]
        nearer = ends[int(abs(gap[ends[1]]) < abs(gap[ends[0]]))]
        start = _equal_at_fixed_epochs(first, second, ud, one.epochs[nearer], two.epochs[nearer], np.log(flops[nearer]))
        found.append(_polish(first, second, ud, np.log(flops[ends]), start, bool(rises[k + 1]), whole_epochs, limits))
    both = np.flatnonzero(np.isfinite(gap))
    searched = (float(flops[both[0]]), float(flops[both[-1]])) if len(both) else None
    return Crossings(found, not (len(rises) and rises[0]), searched)


def _polish(
    first: Law, second: Law, ud: float, ends: np.ndarray, x: float, rising: bool, whole_epochs: bool, limits: dict[str, Any]
) -> float:
    """Equal optimal losses inside one bracket of ln(flops), from a guess.

    Hold the epochs of both optima, find where the two smooth losses meet, choose the epochs anew, and repeat: the
    optimal epochs do not change the loss to first order, so two or three rounds suffice. A step that leaves the bracket
    becomes a bisection.
    """
    low, high = ends
    x = x if low < x < high else 0.5 * (low + high)
    for _ in range(60):
        one, two = (allocate(law, ud, np.exp(x), whole_epochs=whole_epochs, **limits) for law in (first, second))
        x_next = _equal_at_fixed_epochs(first, second, ud, one.epochs, two.epochs, x)
        if abs(x_next - x) < 1e-11:
            break
        if (one.loss > two.loss) == rising:
            high = x
        else:
            low = x
        x = x_next if low < x_next < high else 0.5 * (low + high)
    return float(np.exp(x))


def _equal_at_fixed_epochs(first: Law, second: Law, ud: float, one: np.ndarray, two: np.ndarray, x: float) -> float:
    """ln(flops) at which both laws, each at its own fixed epochs, predict the same loss: Newton from x."""
    tokens = FLOPS_PER_PARAM_TOKEN * ud
    for _ in range(8):
        flops = np.exp(x)
        a, b = (flops / (tokens * one), ud, one), (flops / (tokens * two), ud, two)
        slope = float(first.slopes(*a).params - second.slopes(*b).params)
        step = -float(first.loss(*a) - second.loss(*b)) / slope if slope else 0.0
        x += min(max(step, -1.0), 1.0)
        if abs(step) < 1e-12:
            break
    return x
