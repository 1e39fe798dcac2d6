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

from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.landscape import Landscape, landscape
from planner.laws import Array, Law
from planner.limits import FREE, Limits

Height = Callable[[Landscape], np.ndarray]  # what is to be lowest
_CLOSE = 0.03  # in ln(flops): how close the second parabola is drawn


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


def remarkable_points(
    law: Law, ud: float, along: Landscape, limits: Limits = FREE
) -> tuple[Turn | None, Limit | None]:
    """The turning point and the spending limit, each None where the searched range has none.

    The turning point is where the optimal epochs peak along compute; the spending limit is where more compute
    first makes the optimal loss worse. Without an overfitting term there is neither.
    """
    known = np.flatnonzero(np.isfinite(along.loss))  # limits can leave no plan at either end
    if law.declared.penalty is None or len(known) < 3:
        return None, None
    along = Landscape(*(values[known[0] : known[-1] + 1] for values in along))
    inside = len(along.flops) - 1
    wanted: dict[str, tuple[int, Height]] = {}
    top = int(np.argmax(along.epochs))
    if 0 < top < inside and along.epochs[top] > max(1.0, along.epochs[-1] * 1.001):
        wanted["turn"] = (top, lambda at: -at.epochs)
    worse = np.flatnonzero((along.loss_slope[:-1] < 0) & (along.loss_slope[1:] > 1e-9))
    if len(worse):
        after = int(worse[0]) + 1
        lowest = after if along.loss[after] < along.loss[after - 1] else after - 1
        wanted["limit"] = (min(max(lowest, 1), inside - 1), lambda at: at.loss)
    found = dict(zip(wanted, _minima(law, ud, along, list(wanted.values()), limits), strict=True))
    if "limit" not in found:
        return found.get("turn"), None
    best = found["limit"]
    regained = np.flatnonzero((along.flops > best.flops) & (along.loss < best.loss - 1e-9))
    return found.get("turn"), Limit(best, float(along.flops[regained[0]]) if len(regained) else None)


def _minima(
    law: Law, ud: float, along: Landscape, wanted: list[tuple[int, Height]], limits: Limits
) -> list[Turn]:
    """The minimum of each `height` next to its grid point: the vertex of a parabola, drawn twice."""
    if not wanted:
        return []
    x = np.log(along.flops)
    peaks = [_vertex(x[i - 1 : i + 2], height(along)[i - 1 : i + 2]) for i, height in wanted]
    near = landscape(law, ud, np.exp(np.add.outer(peaks, _CLOSE * np.arange(-1, 2))), limits)
    turns = []
    for k, (i, height) in enumerate(wanted):
        jumps = abs(np.diff(np.log(along.epochs[i - 1 : i + 2]))).max() > 0.2
        if jumps:  # the optimum jumps from one valley to another here: no parabola fits
            turns.append(_zoom(law, ud, along.flops[i - 1], along.flops[i + 1], height, limits))
            continue
        t = np.clip((_vertex(np.log(near.flops[k]), height(near)[k]) - peaks[k]) / _CLOSE, -1, 1)
        through = np.array(
            [t * (t - 1) / 2, 1 - t * t, t * (t + 1) / 2]
        )  # the same parabola for epochs and loss
        flops, epochs = float(np.exp(peaks[k] + _CLOSE * t)), float(through @ near.epochs[k])
        turns.append(
            Turn(flops, flops / (FLOPS_PER_PARAM_TOKEN * ud * epochs), epochs, float(through @ near.loss[k]))
        )
    return turns


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
