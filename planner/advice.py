"""What an experienced colleague would add to the bare numbers, each computed from the law at hand.

- the turning point: the compute at which the best plan repeats most; beyond it repetition starts to hurt
- the spending limit: the compute at which the optimal loss is lowest; beyond it spending more makes the model worse
- the flat range: which sizes and epochs are within a tolerance of the best loss
- the exchange rate: what one more unique token is worth, in FLOPs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.crossings import Landscape, landscape
from planner.laws import Law


class Turn(NamedTuple):
    """A remarkable point on the compute axis and the optimal plan there."""

    flops: float
    params: float
    epochs: float
    loss: float


class Limit(NamedTuple):
    """Where the optimal loss is lowest, and the compute from which it would be lower still (None: not in sight)."""

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


def turning_point(law: Law, ud: float, along: Landscape) -> Turn | None:
    """Where the optimal epochs peak along compute, or None if they keep growing over the whole searched range."""
    top = int(np.argmax(along.epochs))
    if top in (0, len(along.flops) - 1) or along.epochs[top] <= 1:
        return None
    return _extremum(law, ud, along, top, lambda at: -at.epochs)


def spending_limit(law: Law, ud: float, along: Landscape) -> Limit | None:
    """Where more compute first makes the optimal loss worse, or None if it never does in the searched range."""
    worse = np.flatnonzero((along.loss_slope[:-1] < 0) & (along.loss_slope[1:] >= 0))
    if not len(worse):
        return None
    at = int(worse[0])
    best = _extremum(law, ud, along, max(at + int(along.loss[at + 1] < along.loss[at]), 1), lambda at: at.loss)
    regained = np.flatnonzero((along.flops > best.flops) & (along.loss < best.loss))
    return Limit(best, float(along.flops[regained[0]]) if len(regained) else None)


def _extremum(law: Law, ud: float, along: Landscape, centre: int, height: Callable[[Landscape], np.ndarray]) -> Turn:
    """The minimum of `height` next to a grid point: the vertex of a parabola in ln(flops), drawn twice, ever closer."""
    centre = min(centre, len(along.flops) - 2)
    grid = along.flops[centre - 1 : centre + 2]
    peak = _vertex(np.log(grid), height(along)[centre - 1 : centre + 2])
    near = landscape(law, ud, np.exp(peak + 0.05 * np.arange(-1, 2)))
    x = np.log(near.flops)
    peak = np.clip(_vertex(x, height(near)), *np.log(grid[[0, 2]]))
    t = (peak - x[1]) / (x[2] - x[1])  # -1, 0 and 1 at the three points
    weights = np.array([t * (t - 1) / 2, 1 - t * t, t * (t + 1) / 2])
    flops, epochs, loss = float(np.exp(peak)), float(weights @ near.epochs), float(weights @ near.loss)
    return Turn(flops, flops / (FLOPS_PER_PARAM_TOKEN * ud * epochs), epochs, loss)


def _vertex(x: np.ndarray, y: np.ndarray) -> float:
    """Where the parabola through three equidistant points is lowest, at most one step from the middle one."""
    curvature = y[0] - 2 * y[1] + y[2]
    shift = 0.5 * (y[0] - y[2]) / curvature if curvature > 0 else 0.0
    return float(x[1] + (x[2] - x[1]) * min(max(shift, -1.0), 1.0))


def flat_range(law: Law, ud: float, flops: float, epochs: float, loss: float, tolerance: float, *, whole_epochs: bool) -> Flat:
    """How far epochs can go from the optimum at the same compute before the loss is `tolerance` worse."""
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)

    def excess(e: np.ndarray) -> np.ndarray:
        return np.asarray(law.loss(product / e, ud, e)) - loss - tolerance

    ends = []
    for sign in (-1.0, 1.0):
        reach = epochs * np.exp(sign * np.geomspace(1e-3, 16.0, 160))
        outside = np.flatnonzero(excess(reach) > 0)
        stop = int(outside[0]) if len(outside) else len(reach) - 1
        inner, outer = (reach[stop - 1] if stop else epochs), reach[stop]
        for _ in range(3):  # each pass narrows the bracket 32-fold
            fine = np.linspace(inner, outer, 33)
            first = int(np.argmax(excess(fine) > 0)) or 32
            inner, outer = fine[first - 1], fine[first]
        ends.append(float(inner))
    low, high = ends
    if whole_epochs:  # down to whole epochs, but below one epoch a fraction is fine
        low = max(np.ceil(low - 1e-9), 1.0) if low > 1 else low
        low, high = min(low, epochs), max(np.floor(high + 1e-9) if high >= 1 else high, epochs)
    return Flat((float(low), float(high)), (float(product / high), float(product / low)))


def exchange_rate(law: Law, ud: float, params: float, epochs: float) -> Exchange:
    """What one more unique token and one more FLOP buy at a (continuous) optimum, epochs being free to follow."""
    by = law.slopes(params, ud, epochs)
    flops = FLOPS_PER_PARAM_TOKEN * params * ud * epochs
    per_flop = float(by.params) / flops
    per_token = min(float(by.unique_tokens - by.params) / ud, 0.0)
    if abs(per_token) * ud < 1e-9:  # below one epoch the corpus is not used up: more of it changes nothing
        per_token = 0.0
    return Exchange(per_token, per_flop, per_token / per_flop if per_flop < 0 else None)
