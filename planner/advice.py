"""What an experienced colleague would add to the bare numbers, each computed from the law at hand.

- the turning point: the compute at which the best plan repeats most; beyond it repetition starts to hurt
- the spending limit: the compute at which the optimal loss is lowest; beyond it more makes the model worse
- the flat range: which sizes and epochs are within a tolerance of the best loss
- the exchange rate: what one more unique token is worth, in FLOPs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.landscape import Landscape, landscape
from planner.laws import Array, Law
from planner.limits import CONTINUOUS, FREE, Limits

Height = Callable[[Landscape], np.ndarray]  # what is to be lowest
_CLOSE = 0.03  # in ln(flops): how close the second parabola is drawn
# Newton's method in ln(size) and ln(epochs): for differences, the last and the largest step; and how many.
_STEP, _NEAR, _FAR, _TRIES = 1e-6, 1e-8, 0.3, 12


class Turn(NamedTuple):
    """A remarkable point on the compute axis and the optimal plan there."""

    flops: float
    params: float
    epochs: float
    loss: float


class Limit(NamedTuple):
    """Where the optimal loss is lowest, and the compute from which it is lower still (None: not in sight)."""

    best: Turn
    regained_flops: float | None


class Flat(NamedTuple):
    """The connected range around the optimum whose loss is within a tolerance of the best."""

    epochs: tuple[float, float]
    params: tuple[float, float]


class Exchange(NamedTuple):
    """Marginal values at the optimum: nats per token, nats per FLOP (negative is good), and their ratio."""

    loss_per_token: float
    loss_per_flop: float
    flops_per_token: float | None  # None: more compute does not help at all


def turning_point(law: Law, ud: float, along: Landscape, limits: Limits = FREE) -> Turn | None:
    """Where the optimal epochs peak along compute; None where what was searched has no such point, and for
    laws without an overfitting term.
    """
    seen = _where_plans_are(law, along)
    if seen is None:
        return None
    top = int(np.argmax(seen.epochs))
    inside = 0 < top < len(seen.flops) - 1
    if not inside or seen.epochs[top] <= max(1.0, seen.epochs[-1] * 1.001):
        return None
    return _minimum(law, ud, seen, top, lambda at: -at.epochs, limits)


def spending_limit(law: Law, ud: float, along: Landscape, limits: Limits = FREE) -> Limit | None:
    """Where more compute first makes the optimal loss worse; None likewise."""
    seen = _where_plans_are(law, along)
    if seen is None:
        return None
    worse = np.flatnonzero((seen.loss_slope[:-1] < 0) & (seen.loss_slope[1:] > 1e-9))
    if not len(worse):
        return None
    after = int(worse[0]) + 1
    best = None if limits.bounded else _free_minimum(law, ud, seen, after)
    if best is None:
        lowest = after if seen.loss[after] < seen.loss[after - 1] else after - 1
        lowest = min(max(lowest, 1), len(seen.flops) - 2)
        best = _minimum(law, ud, seen, lowest, lambda at: at.loss, limits)
    regained = np.flatnonzero((seen.flops > best.flops) & (seen.loss < best.loss - 1e-9))
    return Limit(best, float(seen.flops[regained[0]]) if len(regained) else None)


def _where_plans_are(law: Law, along: Landscape) -> Landscape | None:
    """The part with plans, as limits can leave none at either end; None where nothing remarkable can be."""
    known = np.flatnonzero(np.isfinite(along.loss))
    if law.declared.penalty is None or len(known) < 3:
        return None
    return Landscape(*(values[known[0] : known[-1] + 1] for values in along))


def _free_minimum(law: Law, ud: float, along: Landscape, after: int) -> Turn | None:
    """The minimum of the loss by size and epochs at once, next to and before a grid point beyond it.

    Without limits that is what a minimum along compute is: both slopes vanish. Newton's method, with the
    slopes' own slopes from differences; None where it leaves the neighbourhood.
    """
    x = np.log([along.params[after], along.epochs[after]])
    steps = np.array([[0.0, 0.0], [_STEP, 0.0], [0.0, _STEP]])
    for _ in range(_TRIES):
        sizes, epochs = np.exp(x + steps).T
        by = law.slopes(sizes, ud, epochs)
        slopes = np.array([by.params, by.epochs])
        (a, b), (c, d) = (slopes[:, 1:] - slopes[:, :1]) / _STEP
        if not (a > 0 and a * d > b * c):
            return None
        p, q = slopes[:, 0]
        move = np.array([b * q - d * p, c * p - a * q]) / (a * d - b * c)
        x = x + np.clip(move, -_FAR, _FAR)
        if abs(move).max() < _NEAR:
            break
    else:
        return None
    params, epochs = np.exp(x)
    flops = FLOPS_PER_PARAM_TOKEN * ud * params * epochs
    if not along.flops[after - 1] <= flops <= along.flops[after]:
        return None
    if _jumps(along.epochs[after - 1 : after + 1]) and not np.isclose(
        allocate(law, ud, flops, CONTINUOUS).epochs, epochs, rtol=1e-5
    ):
        return None  # another valley is lower here
    return Turn(*(float(value) for value in (flops, params, epochs, law.loss(params, ud, epochs))))


def _minimum(law: Law, ud: float, along: Landscape, i: int, height: Height, limits: Limits) -> Turn:
    """The minimum of `height` next to a grid point: the vertex of a parabola, drawn twice."""
    around = slice(i - 1, i + 2)
    if _jumps(along.epochs[around]):  # no parabola fits
        return _zoom(law, ud, along.flops[i - 1], along.flops[i + 1], height, limits)
    peak = _vertex(np.log(along.flops[around]), height(along)[around])
    near = landscape(law, ud, np.exp(peak + _CLOSE * np.arange(-1, 2)), limits)
    t = np.clip((_vertex(np.log(near.flops), height(near)) - peak) / _CLOSE, -1, 1)
    through = np.array([t * (t - 1) / 2, 1 - t * t, t * (t + 1) / 2])  # the same for epochs and loss
    flops, epochs = float(np.exp(peak + _CLOSE * t)), float(through @ near.epochs)
    params = flops / (FLOPS_PER_PARAM_TOKEN * ud * epochs)
    return Turn(flops, params, epochs, float(through @ near.loss))


def _jumps(epochs: np.ndarray) -> bool:
    """Whether the optimum jumps from one valley to another between neighbours."""
    return bool(abs(np.diff(np.log(epochs))).max() > 0.2)


def _zoom(law: Law, ud: float, low: float, high: float, height: Height, limits: Limits) -> Turn:
    """The lowest point between two computes, on ever finer grids."""
    for _ in range(4):
        near = landscape(law, ud, np.geomspace(low, high, 9), limits)
        best = int(np.nanargmin(height(near)))
        low, high = near.flops[max(best - 1, 0)], near.flops[min(best + 1, 8)]
    return Turn(*(float(values[best]) for values in (near.flops, near.params, near.epochs, near.loss)))


def _vertex(x: np.ndarray, y: np.ndarray) -> float:
    """Where the parabola through three equidistant points is lowest, at most one step from the middle one."""
    curvature = y[0] - 2 * y[1] + y[2]
    shift = 0.5 * (y[0] - y[2]) / curvature if curvature > 0 else 0.0
    return float(x[1] + (x[2] - x[1]) * min(max(shift, -1.0), 1.0))


def flat_range(
    law: Law,
    ud: float,
    flops: float,
    epochs: float,
    loss: float,
    tolerance: float,
    limits: Limits = FREE,
) -> Flat:
    """How far epochs can go from the plan, at the same compute, before the loss is `tolerance` worse."""
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    fewest, most = limits.epochs_between(product)

    def excess(e: np.ndarray) -> np.ndarray:
        return np.asarray(law.loss(product / e, ud, e)) - loss - tolerance

    low, high = (_reach(excess, epochs, sign, fewest, most) for sign in (-1.0, 1.0))
    if limits.whole_epochs:  # whole epochs only, but below one epoch a fraction is fine
        low = max(np.ceil(low - 1e-9), 1.0) if low > 1 else low
        low, high = min(low, epochs), max(np.floor(high + 1e-9) if high >= 1 else high, epochs)
    return Flat((float(low), float(high)), (float(product / high), float(product / low)))


def _reach(
    excess: Callable[[np.ndarray], np.ndarray], epochs: float, sign: float, fewest: float, most: float
) -> float:
    """The last number of epochs on one side of the plan before the excess becomes positive."""
    reach = np.clip(epochs * np.exp(sign * np.geomspace(1e-3, 20.0, 160)), fewest, most)
    outside = np.flatnonzero(excess(reach) > 0)
    if not len(outside):
        return float(reach[-1])
    stop = int(outside[0])
    inner, outer = (reach[stop - 1] if stop else epochs), reach[stop]
    for _ in range(3):  # each pass narrows the bracket 32-fold
        fine = np.linspace(inner, outer, 33)
        first = int(np.argmax(excess(fine) > 0)) or 32
        inner, outer = fine[first - 1], fine[first]
    return float(inner)


def exchange_rate(law: Law, ud: float, params: Array, epochs: Array, *, size_held: bool = False) -> Exchange:
    """What one more unique token and one more FLOP buy at a (continuous) optimum.

    At the optimum a shift between size and epochs changes nothing, so holding the epochs gives the slopes;
    where a limit holds the size, the size is held instead.
    """
    by = law.slopes(params, ud, epochs)
    by_flops = float(by.epochs if size_held else by.params)
    flops = FLOPS_PER_PARAM_TOKEN * params * ud * epochs
    by_tokens = min(float(by.unique_tokens) - by_flops, 0.0)
    if abs(by_tokens) < 1e-9:  # below one epoch the corpus is not used up: more of it changes nothing
        by_tokens = 0.0
    helps = by_flops < -1e-9
    per_token, per_flop = by_tokens / ud, by_flops / float(flops)
    return Exchange(per_token, per_flop, per_token / per_flop if helps else None)
