"""What an experienced colleague would add to the bare numbers, each computed from the law at hand.

- the turning point: the compute at which the best plan repeats most; beyond it repetition starts to hurt
- the spending limit: the compute at which the optimal loss is lowest; beyond it the law expects no gain
- the flat range: which sizes and epochs are within a tolerance of the best loss
- the exchange rate: what one more unique token is worth, in FLOPs
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.landscape import Landscape, landscape
from planner.laws import Array, Law
from planner.limits import CONTINUOUS, FREE, Limits

Height = Callable[[Landscape], np.ndarray]  # what is to be lowest
_CLOSE = 0.03  # in ln(flops): how close the last parabola is drawn
_FINE = 0.4  # steps of ln(flops) from which another one is drawn in between
# How far from a plan the end of its flat range is looked for, in ln(epochs), and how brackets are divided.
_REACH, _PARTS = np.geomspace(1e-3, 20.0, 160), np.linspace(0.0, 1.0, 33)
# Newton's method in ln(size) and ln(epochs): for differences, the last and the largest step; and how many.
_STEP, _NEAR, _FAR, _TRIES = 1e-6, 1e-8, 0.3, 12
# Where the loss may rise between two computes: how close to zero its slope comes, of its bend; points to see.
_NEARLY, _CLOSER = 0.05, 17
_ALL_EPOCHS = 1.0 + np.exp(np.arange(-20.0, 12.0, 0.4))  # on which valleys are counted


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


def limits_of(best: Turns, along: Landscape) -> list[Limit | None]:
    """Spending limits with where they are regained."""
    found: list[Limit | None] = []
    for row in range(len(along.loss)):
        turn = best.of(row)
        if turn is None:
            found.append(None)
            continue
        lower = np.flatnonzero((along.flops[row] > turn.flops) & (along.loss[row] < turn.loss - 1e-9))
        found.append(Limit(turn, float(along.flops[row, lower[0]]) if len(lower) else None))
    return found


class Flat(NamedTuple):
    """The connected range around the optimum whose loss is within a tolerance of the best."""

    epochs: tuple[float, float]
    params: tuple[float, float]


class Exchange(NamedTuple):
    """Marginal values at the optimum: nats per token, nats per FLOP (negative is good), and their ratio."""

    loss_per_token: float
    loss_per_flop: float
    flops_per_token: float | None  # None: more compute does not help at all


class Turns(NamedTuple):
    """Remarkable points of many laws; NaN where a law has none."""

    flops: np.ndarray
    params: np.ndarray
    epochs: np.ndarray
    loss: np.ndarray

    def of(self, row: int) -> Turn | None:
        """That of one law."""
        return Turn(*(float(values[row]) for values in self)) if np.isfinite(self.flops[row]) else None


def turning_point(law: Law, ud: float, along: Landscape, limits: Limits = FREE) -> Turn | None:
    """Where the optimal epochs peak along compute; None where what was searched has no such point."""
    return turning_points(law, ud, _one_row(along), limits).of(0)


def spending_limit(law: Law, ud: float, along: Landscape, limits: Limits = FREE) -> Limit | None:
    """Where more compute first makes the optimal loss worse; None likewise."""
    row = _one_row(along)
    return limits_of(spending_limits(law, ud, row, limits), row)[0]


def turning_points(law: Law, ud: Array, along: Landscape, limits: Limits = FREE) -> Turns:
    """The turning point of each law of an ensemble: the landscapes have one row for each.

    Laws without an overfitting term have none.
    """
    rows, low, high = _where_plans_are(law, along)
    ud = np.broadcast_to(ud, len(along.loss))
    epochs = np.where(np.isfinite(along.loss), along.epochs, -np.inf)
    top = np.argmax(epochs, axis=1)[rows]
    peak, last = epochs[rows, top], epochs[rows, high]
    there = (low < top) & (top < high) & (peak > np.maximum(1.0, last * 1.001))
    rows, top = rows[there], top[there]
    return _minima(law, ud, along, rows, top, lambda at: -at.epochs, limits)


def spending_limits(law: Law, ud: Array, along: Landscape, limits: Limits = FREE) -> Turns:
    """The spending limit of each law of an ensemble, likewise; also where the loss rises only between two
    computes of its landscape.
    """
    ud = np.broadcast_to(ud, len(along.loss))
    found = _first_rises(law, ud, along, limits)
    rows, top = _shoulders(along, found.flops)
    if len(rows):
        computes = np.geomspace(along.flops[rows, top - 1], along.flops[rows, top + 1], _CLOSER, axis=1)
        closer = landscape(law.member((rows, None)), ud[rows, None], computes, limits)
        between = _first_rises(law.member(rows), ud[rows], closer, limits)
        there = np.isfinite(between.flops)
        for column, values in zip(found, between, strict=True):
            column[rows[there]] = values[there]
    return found


def _shoulders(along: Landscape, until: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in which the slope of the loss nearly vanishes before the limit that was found, and where first:
    the parabola through a highest slope and its neighbours comes close to zero.
    """
    before, middle, after = along.loss_slope[:, :-2], along.loss_slope[:, 1:-1], along.loss_slope[:, 2:]
    top = (middle < 0) & (before < middle) & (after < middle)
    top &= ~(along.flops[:, 1:-1] > until[:, None])
    bend = np.where(top, 2 * middle - before - after, 1.0)
    height = middle + (before - after) ** 2 / (8 * bend)
    near = top & (height > -_NEARLY * bend)
    rows = np.flatnonzero(near.any(axis=1))
    return rows, near[rows].argmax(axis=1) + 1


def _first_rises(law: Law, ud: np.ndarray, along: Landscape, limits: Limits) -> Turns:
    """The lowest loss before a landscape first rises, of each row."""
    rows, low, high = _where_plans_are(law, along)
    slope = along.loss_slope[rows]
    worse = (slope[:, :-1] < 0) & (slope[:, 1:] > 1e-9)
    there = worse.any(axis=1)
    rows, low, high, after = rows[there], low[there], high[there], worse.argmax(axis=1)[there] + 1
    found = Turns(*np.full((4, len(along.loss)), np.nan))
    if not limits.bounded:
        found = _free_minima(law, ud, along, rows, after)
        left = ~np.isfinite(found.flops[rows])
        rows, low, high, after = rows[left], low[left], high[left], after[left]
    lowest = np.where(along.loss[rows, after] < along.loss[rows, after - 1], after, after - 1)
    lowest = np.minimum(np.maximum(lowest, low + 1), high - 1)
    others = _minima(law, ud, along, rows, lowest, lambda at: at.loss, limits)
    return Turns(*(np.where(np.isfinite(a), a, b) for a, b in zip(found, others, strict=True)))


def _one_row(along: Landscape) -> Landscape:
    return Landscape(*(values[None] for values in along))


def _where_plans_are(law: Law, along: Landscape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in which something remarkable can be, and their first and last column with a plan: limits can
    leave none at either end.
    """
    known = np.isfinite(along.loss)
    low, high = known.argmax(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    enough = known.any(axis=1) & (high - low >= 2)
    rows = np.flatnonzero(enough & (law.declared.penalty is not None))
    return rows, low[rows], high[rows]


def _free_minima(law: Law, ud: np.ndarray, along: Landscape, rows: np.ndarray, after: np.ndarray) -> Turns:
    """The minimum of the loss by size and epochs at once, next to and before a grid point beyond it.

    Without limits that is what a minimum along compute is: both slopes vanish. Newton's method, with the
    slopes' own slopes from differences; NaN where it leaves the neighbourhood.
    """
    found = Turns(*np.full((4, len(along.loss)), np.nan))
    if not len(rows):
        return found
    law, ud = law.member(rows), ud[rows]
    x, good = np.log([along.params[rows, after], along.epochs[rows, after]]), np.ones(len(rows), dtype=bool)
    steps = np.array([[0.0, 0.0], [_STEP, 0.0], [0.0, _STEP]])
    for _ in range(_TRIES):
        sizes, epochs = np.exp(x[:, None] + steps.T[:, :, None])
        by = law.slopes(sizes, ud, epochs)
        (p, a, b), (q, c, d) = (np.vstack([s[:1], (s[1:] - s[:1]) / _STEP]) for s in (by.params, by.epochs))
        area = a * d - b * c
        good &= (a > 0) & (area > 0)
        move = np.array([b * q - d * p, c * p - a * q]) / np.where(good, area, np.inf)
        x = x + np.clip(move, -_FAR, _FAR)
        if np.all(abs(move) < _NEAR):
            break
    params, epochs = np.exp(x)
    flops = FLOPS_PER_PARAM_TOKEN * ud * params * epochs
    good &= (abs(move).max(axis=0) < _NEAR) & (along.flops[rows, after - 1] <= flops)
    good &= flops <= along.flops[rows, after]
    doubtful = np.flatnonzero(good & _jump(along.epochs[rows[:, None], after[:, None] + [-1, 0]]))
    doubtful = doubtful[_has_valleys(law.member(doubtful), ud[doubtful], flops[doubtful])]
    if len(doubtful):  # another valley may be lower here
        best = allocate(law.member(doubtful), ud[doubtful], flops[doubtful], CONTINUOUS).epochs
        good[doubtful] = np.isclose(best, epochs[doubtful], rtol=1e-5)
    for column, values in zip(found, (flops, params, epochs, law.loss(params, ud, epochs)), strict=True):
        column[rows[good]] = values[good]
    return found


def _has_valleys(law: Law, ud: np.ndarray, flops: np.ndarray) -> np.ndarray:
    """Where the loss along an iso-FLOP curve has more low places than one above one epoch."""
    if law.declared.premium is not None or not len(ud):
        return np.ones(len(ud), dtype=bool)
    losses = law.on_isoflop(flops / (FLOPS_PER_PARAM_TOKEN * ud), ud, _ALL_EPOCHS)
    falls = losses[:, 1:] < losses[:, :-1]
    return np.asarray(~falls[:, 0] | ((falls[:, :-1] > falls[:, 1:]).sum(axis=1) != 1))


def _minima(
    law: Law,
    ud: np.ndarray,
    along: Landscape,
    rows: np.ndarray,
    at: np.ndarray,
    height: Height,
    limits: Limits,
) -> Turns:
    """The minimum of `height` next to a grid point of each row: the vertex of a parabola, drawn again."""
    found = Turns(*np.full((4, len(along.loss)), np.nan))
    if not len(rows):
        return found
    around = Landscape(*(values[rows[:, None], at[:, None] + [-1, 0, 1]] for values in along))
    jumps = _jump(around.epochs)  # no parabola fits
    if jumps.any():
        which = rows[jumps]
        ends = around.flops[jumps, 0], around.flops[jumps, 2]
        turns = _zoom(law.member((which, None)), ud[which, None], *ends, height, limits)
        for column, values in zip(found, turns, strict=True):
            column[which] = values
    which, around = rows[~jumps], Landscape(*(values[~jumps] for values in around))
    if not len(which):
        return found
    spacing = np.log(around.flops[:, 1] / around.flops[:, 0])[:, None]
    near, steps = around, (np.full_like(spacing, _CLOSE),)
    for close in steps if spacing.min() < _FINE else (spacing / 2, *steps):
        peak = _vertex(np.log(near.flops), height(near))
        computes = np.exp(peak[:, None] + close * np.arange(-1, 2))
        near = landscape(law.member((which, None)), ud[which, None], computes, limits)
    t = np.clip((_vertex(np.log(near.flops), height(near)) - peak) / _CLOSE, -1, 1)
    through = np.stack([t * (t - 1) / 2, 1 - t * t, t * (t + 1) / 2], axis=1)  # the same for epochs and loss
    flops = np.exp(peak + _CLOSE * t)
    epochs, loss = ((through * values).sum(axis=1) for values in (near.epochs, near.loss))
    params = flops / (FLOPS_PER_PARAM_TOKEN * ud[which] * epochs)
    for column, values in zip(found, (flops, params, epochs, loss), strict=True):
        column[which] = values
    return found


def _jump(epochs: np.ndarray) -> np.ndarray:
    """Rows in which the optimum jumps from one valley to another between neighbours."""
    return np.asarray(abs(np.diff(np.log(epochs), axis=1)).max(axis=1) > 0.2)


def _zoom(
    law: Law, ud: np.ndarray, low: np.ndarray, high: np.ndarray, height: Height, limits: Limits
) -> Turns:
    """The lowest point between two computes, on ever finer grids."""
    row = np.arange(len(low))
    for _ in range(2):
        near = landscape(law, ud, np.geomspace(low, high, 33, axis=1), limits)
        heights = height(near)
        best = np.argmin(np.where(np.isfinite(heights), heights, np.inf), axis=1)
        low, high = near.flops[row, np.maximum(best - 1, 0)], near.flops[row, np.minimum(best + 1, 32)]
    return Turns(*(values[row, best] for values in (near.flops, near.params, near.epochs, near.loss)))


def _vertex(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where the parabola through three equidistant points is lowest, at most one step from the middle one."""
    curvature = y[:, 0] - 2 * y[:, 1] + y[:, 2]
    bends = curvature > 0
    shift = np.where(bends, 0.5 * (y[:, 0] - y[:, 2]) / np.where(bends, curvature, 1.0), 0.0)
    return np.asarray(x[:, 1] + (x[:, 2] - x[:, 1]) * np.clip(shift, -1.0, 1.0))


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
    return flat_ranges(law, ud, flops, epochs, loss, [tolerance], limits)[0]


def flat_ranges(
    law: Law,
    ud: float,
    flops: float,
    epochs: float,
    loss: float,
    tolerances: Sequence[float],
    limits: Limits = FREE,
) -> list[Flat]:
    """The same for several tolerances."""
    many = len(tolerances)
    own = np.full(many, epochs), np.full(many, loss)
    low, high = flat_epochs(law, ud, flops, *own, np.asarray(tolerances), limits)
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    pairs = ((float(few), float(most)) for few, most in zip(low, high, strict=True))
    return [Flat((few, most), (product / most, product / few)) for few, most in pairs]


def flat_epochs(
    law: Law,
    ud: float,
    flops: float,
    epochs: np.ndarray,
    loss: np.ndarray,
    tolerance: Array,
    limits: Limits = FREE,
) -> tuple[np.ndarray, np.ndarray]:
    """The fewest and the most epochs of the flat range of each law of an ensemble, around its own plan."""
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    column = law.member((slice(None), None))

    worst = (loss + tolerance)[:, None]

    def excess(e: np.ndarray) -> np.ndarray:
        return np.asarray(column.loss(product / e, ud, e) - worst)

    low, high = _reaches(excess, epochs, *limits.epochs_between(product))
    if limits.whole_epochs:  # whole epochs only, but below one epoch a fraction is fine
        low = np.where(low > 1, np.maximum(np.ceil(low - 1e-9), 1.0), low)
        high = np.where(high >= 1, np.floor(high + 1e-9), high)
        low, high = np.minimum(low, epochs), np.maximum(high, epochs)
    return low, high


def _reaches(
    excess: Callable[[np.ndarray], np.ndarray], epochs: np.ndarray, fewest: float, most: float
) -> np.ndarray:
    """The last number of epochs on either side of each plan before the excess becomes positive."""
    steps = np.array([-1.0, 1.0])[:, None, None] * _REACH
    reach = np.clip(epochs[:, None] * np.exp(steps), fewest, most)
    outside = excess(reach) > 0
    stop = outside.argmax(axis=2)[:, :, None]
    inner = np.where(stop > 0, _at(reach, np.maximum(stop - 1, 0)), epochs[:, None])
    outer = _at(reach, stop)
    for _ in range(3):  # each pass narrows the bracket 32-fold
        fine = inner + (outer - inner) * _PARTS
        fine[:, :, -1:] = outer
        first = (excess(fine) > 0).argmax(axis=2)[:, :, None]
        first = np.where(first > 0, first, 32)
        inner, outer = _at(fine, first - 1), _at(fine, first)
    return np.where(outside.any(axis=2), inner[:, :, 0], reach[:, :, -1])


def _at(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, places, axis=2)


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
