r"""The search: the best split of compute between size and epochs, and everything that follows from it.

With `flops = 6 params tokens` and `tokens = ud * epochs`, compute fixes the product

    params * epochs = flops / (6 ud),

so that for one law and one corpus everything is read off one table of the loss over (compute, epochs): each
row is an iso-FLOP curve, each column a number of epochs. `allocate` finds the best epochs of each row;
`compute_curve` is that along compute, at fixed unique tokens. Turning point, loss-minimising compute, flat
range, crossovers and the compute that a loss takes are read off it, each followed by a local polish that
makes the digits. Limits are a range of epochs for each row (`Limits.epochs_between`), to which the columns
are clipped.

Of a law the search uses its loss, and how far it has to look (`fresh_epochs`, `epochs_bound`,
`optimal_params`). Budgets, corpora and the draws of a law (one value of each parameter per draw) broadcast:
nothing here loops over them. Where members, serving or bought data count, size, epochs, weight decay, members
and data are free at once; that search (`best_of`) is in the second half, and asks the same losses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from planner.calibration import DEFAULT_TOLERANCE, Calibration, Gain, Setting
from planner.evidence import UpperBound, predictive_width
from planner.explain import cannot_be_paid, cannot_be_reached, check_serving
from planner.hardware import TotalCost
from planner.inputs import FREE, InvalidInput, Limits
from planner.laws import Array, Law, Mixture

FLOPS_PER_PARAM_TOKEN = 6.0
# The compute that is searched: from a ten-thousandth of what uses the corpus once, to ten million times it.
_DECADES_BELOW, _DECADES_ABOVE = 4, 7
_PER_DECADE = 12  # computes of a curve
_FRACTIONS_STEP = 0.5  # in ln(epochs), below one epoch, where not all of the corpus is used
_FIRST_REPEATS, _REPEATS_STEP = 1e-2, 0.4  # the columns above one epoch are even in ln(epochs - 1)
_PROBES = np.array([1.0, 4.0, 16.0, 64.0])  # epochs that are tried first, to see how far the columns must go
_BLOCK = 1 << 15  # entries of a table at a time, which stay in the cache
_STEP, _DONE = 3e-5, 1e-6  # in ln(epochs): of central differences, and the last step of a polish
_NEXT = 1e-5  # in ln(epochs): on either side of a kink
_ROUND = 1e-12  # slack for limits that are met exactly
_RISES = 1e-9  # nats: what rises by less does not rise


class Point(NamedTuple):
    """What is trained and what it takes: numbers, or arrays of one shape; NaN where limits leave nothing."""

    params: Any
    unique_tokens: Any  # of the corpus, of which less than all is used below one epoch
    epochs: Any
    flops: Any
    loss: Any

    @property
    def tokens(self) -> Any:
        return self.unique_tokens * self.epochs

    def at(self, index: Any) -> Point:
        """Some of many points."""
        return Point(*(np.broadcast_to(values, np.shape(self.loss))[index] for values in self))

    def single(self) -> Point:
        """One point as plain numbers."""
        return Point(*(float(values) for values in self))

    @property
    def loss_or_inf(self) -> float:
        return float(self.loss) if np.isfinite(self.loss) else np.inf


def where(condition: Array, one: Point, other: Point) -> Point:
    return Point(*(np.where(condition, a, b) for a, b in zip(one, other, strict=True)))


# -- one row of the table: the best epochs at a given compute


def allocate(law: Law, ud: Array, flops: Array, limits: Limits = FREE) -> Point:
    """The loss-minimising (params, epochs) that spend exactly this compute. `ud`, `flops` and draws
    broadcast.

    The loss along an iso-FLOP curve can have several minima: repetition pays at first, then costs, and a
    smaller model makes overfitting cheaper again. So each local minimum of the table's row is polished, and
    the best taken. Whole epochs are the neighbours of those minima, or a fraction below one.
    """
    if isinstance(law, Mixture):
        return Point(*law.each_of(lambda some, u, c: allocate(some, u, c, limits), ud, flops))
    ud, flops = np.broadcast_arrays(np.asarray(ud, dtype=float), np.asarray(flops, dtype=float))
    shape = ud.shape
    if law.has_draws:
        shape = np.broadcast_shapes(shape, *(np.shape(value) for value in law.parameters.values()))
        ud, flops = np.broadcast_to(ud, shape), np.broadcast_to(flops, shape)
        law = law.spread(shape)
    ud, flops = ud.ravel(), flops.ravel()
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    low, high = limits.epochs_between(product)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a wild draw may predict infinity
        epochs = _best_epochs(law, ud, product, low, high, limits.whole_epochs)
        loss = law.loss(product / epochs, ud, epochs)
    return Point(*(np.reshape(values, shape) for values in (product / epochs, ud, epochs, flops, loss)))


def _best_epochs(
    law: Law, ud: np.ndarray, product: np.ndarray, low: np.ndarray, high: np.ndarray, whole: bool
) -> np.ndarray:
    """The best number of epochs of each row between two ends; NaN where there is none."""
    columns = _columns(law, ud, product, low, high)
    rows = np.arange(len(product))
    tried: list[tuple[np.ndarray, np.ndarray]] = []  # rows, and epochs that may be best there
    step = max(_BLOCK // len(columns), 1)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        clipped = np.clip(columns, low[block, None], high[block, None])  # limits become the ends of the row
        some = law.draw((block, None))
        table = some.loss(product[block, None] / clipped, ud[block, None], clipped)
        change = np.diff(np.where(np.isnan(table), np.inf, table), axis=1)
        before = np.concatenate([np.full((len(block), 1), -1.0), change], axis=1)
        after = np.concatenate([change, np.full((len(block), 1), 1.0)], axis=1)
        # Lower than what is before and after; of equal columns, which limits make, the first and the last.
        row, column = np.nonzero(((before < 0) & (after >= 0)) | ((before <= 0) & (after > 0)))
        ends = (np.maximum(column - 1, 0), column, np.minimum(column + 1, len(columns) - 1))
        tried.append((block[row], np.log([clipped[row, end] for end in ends])))
    row, (left, middle, right) = (np.concatenate(parts, axis=-1) for parts in zip(*tried, strict=True))

    def loss(ln_epochs: np.ndarray, which: Any) -> np.ndarray:
        """Along the iso-FLOP curves of some of the minima."""
        epochs, at = np.exp(ln_epochs), row[which]
        return np.asarray(law.draw(at).loss(product[at] / epochs, ud[at], epochs))

    # One epoch, where repetition begins, is a kink: a bracket around it is cut there.
    kink = np.flatnonzero((left < 0) & (right > 0))
    here, less, more = (loss(np.full(len(kink), side * _NEXT), kink) for side in (0.0, -1.0, 1.0))
    left[kink] = np.where(less < here, left[kink], 0.0)
    right[kink] = np.where((less >= here) & (more < here), right[kink], 0.0)
    middle[kink] = 0.5 * (left[kink] + right[kink])
    found = np.exp(minimise(loss, left, middle, right))
    if whole:  # above one epoch the neighbours of a minimum
        near = np.concatenate([np.floor(found) + shift for shift in (-1.0, 0.0, 1.0, 2.0)])
        extremes = np.concatenate([np.ceil(low * (1 - _ROUND)), np.floor(high * (1 + _ROUND))])
        found = np.concatenate([np.where(found > 1, 1.0, found), near, extremes])
        row = np.concatenate([row, np.tile(row, 4), rows, rows])
        found = np.where(found > 0, found, np.nan)
    allowed = (found >= low[row] * (1 - _ROUND)) & (found <= high[row] * (1 + _ROUND)) & np.isfinite(found)
    row, found = row[allowed], found[allowed]
    losses = law.draw(row).loss(product[row] / found, ud[row], found)
    # Best first within each row; of those that hardly differ the fewer epochs.
    order = np.lexsort((found, np.round(losses, 13), row))
    first = order[np.flatnonzero(np.diff(row[order], prepend=-1))]
    best = np.full(len(product), np.nan)
    best[row[first]] = found[first]
    return best


def _columns(law: Law, ud: np.ndarray, product: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The numbers of epochs of the table: from well below what would be best if data were plentiful, up to
    where the parameter term alone exceeds a loss that can be reached: nothing beyond is better.
    """
    probes = np.clip(_PROBES[:, None], low, high)
    reached = np.fmin.reduce(np.asarray(law.loss(product / probes, ud, probes)))
    most = np.nanmax(np.minimum(law.epochs_bound(product, ud, reached), 1e15), initial=2.0)
    steps = np.arange(np.log(_FIRST_REPEATS), np.log(most) + 3 * _REPEATS_STEP, _REPEATS_STEP)
    least = np.nanmin(np.maximum(law.fresh_epochs(product, ud), 1e-15), initial=1e-2)
    fractions = np.exp(np.arange(0.0, 4.0 - np.log(least), _FRACTIONS_STEP))
    return np.concatenate([1 / fractions[::-1], 1.0 + np.exp(steps)])


def rising_root(
    value_and_slope: Callable[[np.ndarray, Any], tuple[np.ndarray, np.ndarray]],
    low: np.ndarray,
    start: np.ndarray,
    high: np.ndarray,
    tolerance: float,
) -> np.ndarray:
    """Where each of many functions crosses zero upwards inside its bracket: Newton's method, safeguarded by
    bisection (`rtsafe`, Numerical Recipes 9.4). The error is about the square of the last step. Where it does
    not cross zero, that is the end towards which it leads.
    """
    found, x, left = start.copy(), start, np.arange(len(start))
    for _ in range(60):
        value, slope = value_and_slope(x, left)
        low, high = np.where(value < 0, x, low), np.where(value < 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            guess = x - value / slope
        guess = np.where((guess >= low) & (guess <= high) & (slope > 0), guess, 0.5 * (low + high))
        done = np.abs(guess - x) <= tolerance
        found[left] = guess
        if done.all():
            break
        left, low, x, high = (values[~done] for values in (left, low, guess, high))
    return found


def minimise(
    loss: Callable[[np.ndarray, Any], np.ndarray],
    low: np.ndarray,
    start: np.ndarray,
    high: np.ndarray,
    tolerance: float = _DONE,
) -> np.ndarray:
    """The minimum of each of many curves inside its bracket: a root of the slope, by central differences of
    fourth order. Their step shrinks next to zero, where curves by ln(epochs) have a kink.
    """

    def slope_and_bend(x: np.ndarray, which: Any) -> tuple[np.ndarray, np.ndarray]:
        step = np.clip(0.4 * np.abs(x), 1e-6, _STEP)
        shifted = x + np.arange(-2.0, 3.0)[:, None] * step
        at = loss(shifted.ravel(), np.tile(which, 5)).reshape(shifted.shape)
        slope = (8 * (at[3] - at[1]) - (at[4] - at[0])) / (12 * step)
        return slope, (at[3] - 2 * at[2] + at[1]) / step**2

    return rising_root(slope_and_bend, low, start, high, tolerance)


def allocate_at_most(law: Law, ud: Array, ceiling: Array, limits: Limits = FREE) -> Point:
    """The best plan at exactly the ceiling or, where limits leave a better use for less, at the most that
    they let be spent: the largest model allowed, for as many epochs as can be paid.
    """
    exact = allocate(law, ud, ceiling, limits)
    (_, largest), (fewest, most) = limits.box
    if not limits.ceiling or not np.isfinite(largest):
        return exact
    epochs = np.minimum(np.asarray(ceiling, dtype=float) / (FLOPS_PER_PARAM_TOKEN * ud) / largest, most)
    if limits.whole_epochs:
        epochs = np.where(epochs >= 1, np.floor(epochs * (1 + _ROUND)), epochs)
    epochs = np.where(epochs >= fewest, epochs, np.nan)
    size = np.full_like(epochs, largest)
    flops = FLOPS_PER_PARAM_TOKEN * size * ud * epochs
    corner = Point(size, ud, epochs, flops, law.loss(size, ud, epochs))
    better = ~(exact.loss <= corner.loss) & ~np.isnan(corner.loss)  # also where there is no plan for all
    return where(better, corner, exact)


def has_optimum(law: Law, ud: Array, flops: Array) -> np.ndarray:
    """Whether the search has finite ends: a wild fit may want infinitely many epochs, or none."""
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    with np.errstate(all="ignore"):
        start = np.maximum(law.fresh_epochs(product, ud), 1.0)
        end = law.epochs_bound(product, ud, law.loss(product / start, ud, start))
    return np.asarray((start < 1e15) & (end < 1e15))


def no_choice(ud: float, flops: float, limits: Limits) -> InvalidInput:
    """Why the limits leave nothing to choose at this budget."""
    fewest, most = (float(end) for end in limits.epochs_between(flops / (FLOPS_PER_PARAM_TOKEN * ud)))
    return limits.leave_nothing(ud, flops, fewest, most)


# -- along compute


def search_range(
    law: Law, ud: Array, include: float | None = None, per_decade: int = _PER_DECADE
) -> np.ndarray:
    """The computes at which a law is looked at, ascending; `include` is never left outside. Draws have a row
    each.
    """
    with np.errstate(all="ignore"):
        once = np.log10(FLOPS_PER_PARAM_TOKEN * ud * law.optimal_params(ud))
    if not np.all(np.isfinite(once)):
        raise InvalidInput(
            "a law of the calibration has no finite best model for so many unique tokens: its coefficients "
            "cannot be right."
        )
    low, high = once - _DECADES_BELOW, once + _DECADES_ABOVE
    if include is not None:
        low, high = np.minimum(low, np.log10(include) - 1), np.maximum(high, np.log10(include) + 1)
    number = round(float(np.max(high - low)) * per_decade) + 1
    return np.asarray(np.logspace(low, high, number, axis=-1))


def once_flops(law: Law, ud: float) -> float:
    """The compute with which the best model for fresh data uses the corpus exactly once."""
    return float(search_range(law, ud)[0]) * 10.0**_DECADES_BELOW


@lru_cache(256)
def compute_curve(law: Law, ud: float, limits: Limits, include: float | None = None) -> Point:
    """The best points along compute with continuous epochs, (computes,), or (draws, computes); `include` is a
    compute that must be in sight.
    """
    computes = search_range(law, ud, include)
    return allocate(law.draw((slice(None), None)), ud, computes, limits.continuous())


def _valleys(loss: np.ndarray) -> np.ndarray:
    """Along each row the places that are lower than what is next to them."""
    falls = np.zeros(loss.shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        falls[..., 1:-1] = (loss[..., 1:-1] < loss[..., :-2]) & (loss[..., 1:-1] < loss[..., 2:] - _RISES)
    return falls


def _zoom(
    law: Law,
    ud: float,
    low: np.ndarray,
    high: np.ndarray,
    limits: Limits,
    height: Callable[[Point], Any],
    grids: int,
) -> Point:
    """The point with the least `height` between two computes (ln) of each row: on so many grids, each eight
    times as fine as the one before, and at the vertex of the parabola through the best of the last and those
    next to it.
    """
    column, rows = law.draw((slice(None), None)), np.arange(len(low))
    for _ in range(grids):
        grid = np.linspace(low, high, 17, axis=-1)
        points = allocate(column, ud, np.exp(grid), limits)
        heights = np.where(np.isfinite(points.loss), height(points), np.inf)
        best = heights.argmin(axis=-1)
        low, high = grid[rows, np.maximum(best - 1, 0)], grid[rows, np.minimum(best + 1, 16)]
    middle = np.clip(best, 1, 15)
    before, here, after = (heights[rows, middle + side] for side in (-1, 0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = 0.5 * (before - after) / (before - 2 * here + after)
    vertex = grid[rows, middle] + (grid[:, 1] - grid[:, 0]) * np.where(np.abs(steps) <= 1, steps, 0.0)
    on_grid, polished = points.at((rows, best)), allocate(law, ud, np.exp(vertex), limits)
    return where(height(polished) < height(on_grid), polished, on_grid)  # a jump has no vertex


@lru_cache(256)
def lowest_along(law: Law, ud: float, limits: Limits, include: float | None = None) -> Point:
    """The loss-minimising compute of one law."""
    return loss_minimising(law, ud, compute_curve(law, ud, limits, include), limits).single()


def loss_minimising(law: Law, ud: float, curve: Point, limits: Limits, grids: int = 3) -> Point:
    """Where the best loss along compute is first lowest, of each row of a curve; NaN where more compute helps
    as far as can be seen, or where repetition costs nothing.
    """
    return _extreme(law, ud, curve, limits, lambda points: points.loss, first=True, grids=grids)


def most_epochs(law: Law, ud: float, curve: Point, limits: Limits, grids: int = 3) -> Point:
    """The turning point: where the best plan repeats most; NaN where there is none. Beyond it more compute
    goes into size.
    """
    found = _extreme(law, ud, curve, limits, lambda points: -points.epochs, first=False, grids=grids)
    last = np.nanmax(np.where(np.isfinite(curve.loss), curve.flops, np.nan), axis=-1, keepdims=True)
    at_end = np.nansum(np.where(curve.flops == last, curve.epochs, 0.0), axis=-1)
    there = found.epochs > np.maximum(1.0, at_end * 1.001)
    return Point(*(np.where(there, values, np.nan) for values in found))


def _extreme(
    law: Law,
    ud: float,
    curve: Point,
    limits: Limits,
    height: Callable[[Point], Any],
    *,
    first: bool,
    grids: int,
) -> Point:
    """The first, or the deepest, valley of `height` along each row of a curve; NaN: none."""
    shape = np.shape(curve.loss)[:-1]
    if not law.overfits:
        return Point(*np.full((5, *shape), np.nan))
    heights = np.atleast_2d(height(curve))
    ln_flops = np.broadcast_to(np.log(curve.flops), heights.shape)
    valleys, everyone = _valleys(heights), np.arange(len(heights))
    places = (valleys if first else np.where(valleys, -heights, -np.inf)).argmax(axis=-1)
    low, high = (ln_flops[everyone, places + side] if valleys.any() else ln_flops[:, 0] for side in (-1, 1))
    low, high = (np.where(valleys.any(axis=-1), end, np.nan) for end in (low, high))
    if first:
        low, high = _shallow(law, ud, ln_flops, heights, limits, low, high)
    rows = np.flatnonzero(np.isfinite(low))
    every = np.full((5, len(heights)), np.nan)
    if len(rows):
        found = _zoom(law.draw(rows), ud, low[rows], high[rows], limits.continuous(), height, grids)
        every[:, rows] = [np.broadcast_to(values, len(rows)) for values in found]
    return Point(*every.reshape(5, *shape))


def _shallow(
    law: Law,
    ud: float,
    ln_flops: np.ndarray,
    loss: np.ndarray,
    limits: Limits,
    low: np.ndarray,
    high: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Brackets of the first valleys, where some lie between two computes of the curve: where its slope nearly
    vanishes before the bracket at hand, a finer grid tells.
    """
    slope = np.diff(loss, axis=-1) / np.diff(ln_flops, axis=-1)
    before, middle, after = slope[:, :-2], slope[:, 1:-1], slope[:, 2:]
    with np.errstate(invalid="ignore"):
        top = (middle < 0) & (before < middle) & (after < middle) & ~(ln_flops[:, 1:-2] > low[:, None])
        bend = np.where(top, 2 * middle - before - after, 1.0)
        near = top & (middle + (before - after) ** 2 / (8 * bend) > -0.5 * bend)
    rows, places = np.nonzero(near)
    if len(rows):
        grid = np.linspace(ln_flops[rows, places], ln_flops[rows, places + 3], 49, axis=-1)
        fine = _valleys(allocate(law.draw((rows, None)), ud, np.exp(grid), limits.continuous()).loss)
        for k in np.flatnonzero(fine.any(axis=-1))[::-1]:  # the first of a row is written last
            at = int(fine[k].argmax())
            low[rows[k]], high[rows[k]] = grid[k, at - 1], grid[k, at + 1]
    return low, high


# -- how much of the compute to spend

# What more than so many times the compute must gain, at least, is the law's error.
_FEW_TIMES = 2.0
_NEAR = 3  # whole epochs on either side of the best continuous ones that are tried
_LITTLE = 1.01  # times the compute of a minimum, where the loss has to be higher again
_SIZES, _ROOM = 49, 6.0  # sizes that are tried around the usual one, and how far (ln)


@lru_cache(256)
def minima(law: Law, ud: float, limits: Limits) -> tuple[Point, ...]:
    """Where the best loss along compute is lowest with the epochs that the limits ask for: the first minimum,
    and those after it that are lower. None where more compute helps as far as can be seen.
    """
    if not law.overfits:
        return ()
    curve, grids = compute_curve(law, ud, limits), 1 if limits.whole_epochs else 3  # neighbours are tried
    near = loss_minimising(law, ud, curve, limits, grids).single()
    first = _minimum_near(law, ud, limits, near)
    (_, largest), (_, most) = limits.box
    if first is None and limits.whole_epochs and np.isfinite(largest * most):
        # Just before the most that the limits let be spent, where the curve ends before it rises.
        end = FLOPS_PER_PARAM_TOKEN * ud * largest * most
        loss = float(law.loss(largest, ud, most))
        first = _minimum_near(law, ud, limits, Point(largest, ud, most, end, loss))
    if first is None:
        return ()
    later = np.flatnonzero(_valleys(curve.loss) & (curve.flops > near.flops * _LITTLE))
    found = [first]
    for place in later[curve.loss[later] < first.loss]:
        low, high = np.log(curve.flops[[place - 1, place + 1]])[:, None]
        valley = _zoom(law, ud, low, high, limits.continuous(), lambda points: points.loss, grids)
        lower = _minimum_near(law, ud, limits, valley.at(0).single())
        if lower is not None and lower.loss < first.loss:
            found.append(lower)
    return tuple(found)


def first_minimum(law: Law, ud: float, limits: Limits) -> Point | None:
    """The first of the minima; None where there is none."""
    return next(iter(minima(law, ud, limits)), None)


def _minimum_near(law: Law, ud: float, limits: Limits, near: Point) -> Point | None:
    """The minimum along compute with the epochs that the limits ask for, next to that of continuous ones."""
    known = bool(np.isfinite(near.loss))
    if not limits.whole_epochs:
        return near if known else None
    # For each whole number of epochs next to the continuous minimum the best size. Where there is none, the
    # step from two epochs to one may still leave a minimum: the compute in between is of no use.
    fewest = max(np.floor(near.epochs) - _NEAR, 1.0) if known else 2.0
    epochs = fewest + np.arange(2 * _NEAR + 2)
    sizes, inside = _best_sizes(
        law, ud, epochs, near.params if known else float(law.optimal_params(ud)), limits
    )
    points = Point(
        sizes, ud, epochs, FLOPS_PER_PARAM_TOKEN * ud * sizes * epochs, law.loss(sizes, ud, epochs)
    )
    low, high = limits.epochs_between(sizes * epochs)
    allowed = (epochs >= low * (1 - 1e-9)) & (epochs * (1 - 1e-9) <= high)
    limited = limits.max_params is not None and not (inside | ~allowed).all()
    places = np.flatnonzero(allowed & inside)
    if limited or not known:
        # Only what no other number of epochs betters at the same compute, nor for a little more, is a
        # minimum; the largest size allowed ends a valley, too.
        here, further = (allocate_at_most(law, ud, points.flops * more, limits).loss for more in (1, _LITTLE))
        lowest = (points.loss <= here + _RISES) & ~(further < points.loss)
        places = np.flatnonzero(allowed & lowest & (inside | known))
    if limited and known:
        # To the first valley along compute belong those of consecutive numbers of epochs, none of which takes
        # more than a few times the compute of the one before.
        places = places[np.argsort(points.flops[places])]
        flops, passes = points.flops[places], epochs[places]
        apart = (np.abs(np.diff(passes)) > 1) | (flops[1:] > _FEW_TIMES * flops[:-1])
        places = places[: int(np.argmax([*apart, True])) + 1]
    if not len(places):
        return None
    return points.at(places[np.argmin(points.loss[places])]).single()


def _best_sizes(
    law: Law, ud: float, epochs: np.ndarray, around: float, limits: Limits
) -> tuple[np.ndarray, np.ndarray]:
    """For each number of epochs the first size from which a larger model is worse, and whether there is one;
    where there is none, the largest that the limits allow.
    """
    smallest, largest = limits.box[0]
    low = np.log(smallest or around * np.exp(-_ROOM))
    high = np.log(largest) if np.isfinite(largest) else np.log(around) + _ROOM
    grid = np.linspace(low, max(high, low), _SIZES)
    with np.errstate(over="ignore", invalid="ignore"):  # a wild law may predict infinity
        worse = np.diff(law.loss(np.exp(grid), ud, epochs[:, None]), axis=1) > 0
    rises = worse.any(axis=1)
    after = np.where(rises, worse.argmax(axis=1), _SIZES - 1)

    def loss(ln_params: np.ndarray, which: Any) -> np.ndarray:
        return np.asarray(law.loss(np.exp(ln_params), ud, epochs[which]))

    ends = grid[np.maximum(after - 1, 0)], grid[after], grid[np.minimum(after + 1, _SIZES - 1)]
    best = minimise(loss, *ends, tolerance=1e-8)
    inside = rises | (best < ends[2] - 1e-7)
    return np.where(inside, np.exp(best), np.exp(ends[2])), inside


def plan_within(law: Law, ud: float, ceiling: Array, error: float, limits: Limits = FREE) -> Point:
    """How much of the compute to spend: a budget is a ceiling, and one model cannot always use it.

    The best loss first falls with compute and then rises again where repetition costs more than size gains,
    or where nothing is known any more. Beyond that first minimum a plan spends less than the ceiling where
    the minimum is better than spending all by more than the law's own `error`, or where spending all costs
    more than twice as much and gains less. A later minimum takes the place of the first where it gains more
    than that, or more for at most twice the compute. The error is that inside of the evidence: what is more
    beyond it is in the loss that plans are decided by.
    """
    everything = allocate_at_most(law, ud, ceiling, limits)
    found = minima(law, ud, limits) if limits.ceiling else ()
    if not found:
        return everything
    first, *later = found
    for lower in later:
        cheap = lower.flops <= _FEW_TIMES * first.flops
        gains = first.loss - lower.loss > (0.0 if cheap else error)
        first = where(gains & (lower.flops <= np.asarray(ceiling)), lower, first)
    better = first.loss < everything.loss - error
    much_more = everything.flops > _FEW_TIMES * first.flops * (1 + 1e-9)
    hardly_worse = much_more & (first.loss - everything.loss < error)
    return where((everything.flops > first.flops) & (better | hardly_worse), first, everything)


def deciding_law(setting: Setting, form: str, limits: Limits, law: Law | None = None) -> Law:
    """What plans are decided by: the upper end of the predictive interval of a setting's law, or of one given
    for its weight decay; the bare law where that is asked for, or where all compute has to be spent.
    """
    if limits.extrapolate or not limits.ceiling:
        return law or setting.law(form)
    return setting.upper_bound(form, law)


def by_the_law(law: Law, points: Point) -> Point:
    """Points with the loss that the law itself expects, whatever they were chosen by."""
    bare = law.law if isinstance(law, UpperBound) else law
    return points._replace(loss=bare.loss(points.params, points.unique_tokens, points.epochs))


def lowest(law: Law, ud: float, ceiling: Array, limits: Limits = FREE) -> np.ndarray:
    """The lowest loss that a law can reach with at most so much compute, as far as its first minimum."""
    return np.asarray(plan_within(law, ud, ceiling, 0.0, limits).loss)


_LEAST_FLOPS = 1e6


def lowest_loss(law: Law, ud: float, limits: Limits) -> Point | None:
    """The plan with the lowest loss that this data allows: no plan within a ceiling spends more than the
    first minimum. None where the limits leave none.
    """
    found = first_minimum(law, ud, limits)
    if found is None:
        found = allocate_at_most(law, ud, float(search_range(law, ud)[-1]), limits).single()
    return found if math.isfinite(found.loss) else None


def least_compute(
    law: Law, ud: float, loss: float, limits: Limits, below: float | None = None
) -> Point | None:
    """The least compute with which a law expects this loss, on ever finer grids, `below` a compute or as far
    as can be seen; None where none does.
    """
    if below is not None:
        low, high = below * np.exp(-9.0), below
    elif (lowest_point := lowest_loss(law, ud, limits)) is not None:
        low = max(ud, _LEAST_FLOPS)  # less than one FLOP per token is no budget
        high = max(lowest_point.flops, low)
    else:
        return None
    for _ in range(5):
        computes = np.geomspace(low, high, 65)
        points = allocate_at_most(law, ud, computes, limits)
        reached = np.flatnonzero(points.loss <= loss)
        if not len(reached):
            return None
        first = int(reached[0])
        if not first:  # the least that is looked at
            break
        low, high = computes[first - 1 : first + 1]
    return points.at(first).single()


# -- around a plan

_REACH = np.linspace(0.0, 4.0, 65)[1:]  # how far from a plan, in ln(epochs), its flat range is looked for


def flat_epochs(
    law: Law, ud: float, point: Point, tolerance: Array, limits: Limits = FREE
) -> tuple[np.ndarray, np.ndarray]:
    """The fewest and the most epochs around a plan, at the same compute, before the loss is `tolerance`
    worse. Plans of draws, or tolerances, are arrays of one length.
    """
    product = point.flops / (FLOPS_PER_PARAM_TOKEN * ud)
    column, worst = law.draw((slice(None), None)), np.atleast_1d(point.loss + tolerance)[:, None]
    start = np.broadcast_to(np.atleast_1d(point.epochs), len(worst))
    fewest, most = limits.epochs_between(product)

    def is_worse(epochs: np.ndarray) -> np.ndarray:
        return np.asarray(column.loss(product / epochs, ud, epochs) > worst)

    ends = []
    for side in (-1.0, 1.0):
        reach = np.clip(start[:, None] * np.exp(side * _REACH), fewest, most)
        outside = is_worse(reach)
        rows, stop = np.arange(len(start)), outside.argmax(axis=1)
        inner = np.where(stop > 0, reach[rows, np.maximum(stop - 1, 0)], start)
        outer = reach[rows, stop]
        for _ in range(9):  # sixteen times as fine each time
            fine = np.linspace(inner, outer, 17, axis=1)
            stop = is_worse(fine[:, 1:]).argmax(axis=1)
            inner, outer = fine[rows, stop], fine[rows, stop + 1]
        ends.append(np.where(outside.any(axis=1), inner, reach[:, -1]))
    low, high = ends
    if limits.whole_epochs:  # whole epochs only, but below one epoch a fraction is fine
        low = np.where(low > 1, np.maximum(np.ceil(low - 1e-9), 1.0), low)
        high = np.where(high >= 1, np.floor(high + 1e-9), high)
        low, high = np.minimum(low, start), np.maximum(high, start)
    return low, high


class ExchangeRate(NamedTuple):
    """Marginal values at the optimum: nats per token, nats per FLOP (negative is good), and their ratio."""

    loss_per_token: float
    loss_per_flop: float
    flops_per_token: float | None  # None: more compute does not help at all


def exchange_rate(law: Law, ud: float, best: Point, limits: Limits) -> ExchangeRate:
    """What one more unique token and one more FLOP buy at a (continuous) optimum."""
    by_flops = float(_slope_by_compute(law, best, limits))
    by_tokens = min(float(law.slopes(best.params, ud, best.epochs).unique_tokens) - by_flops, 0.0)
    if abs(by_tokens) < 1e-9:  # below one epoch the corpus is not used up: more of it changes nothing
        by_tokens = 0.0
    flops = FLOPS_PER_PARAM_TOKEN * best.params * ud * best.epochs
    per_token, per_flop = by_tokens / ud, by_flops / float(flops)
    return ExchangeRate(per_token, per_flop, per_token / per_flop if by_flops < -1e-7 else None)


def _slope_by_compute(law: Law, best: Point, limits: Limits) -> np.ndarray:
    """The slope of the best loss by ln(flops). At the optimum a shift between size and epochs changes nothing
    (envelope theorem), so the epochs are held; where a limit holds the size, the size is held instead.
    """
    by = law.slopes(best.params, best.unique_tokens, best.epochs)
    held = np.isclose(np.asarray(best.params)[..., None], limits.box[0], rtol=1e-9).any(axis=-1)
    return np.asarray(np.where(held, by.epochs, by.params))


# -- where two weight decays swap places


class Crossings(NamedTuple):
    """Every compute at which the better of two laws changes, ascending; which is better below; where both
    have a plan.
    """

    flops: list[float]
    first_is_better_below: bool
    searched: tuple[float, float] | None  # None: the limits leave no compute at which both have a plan

    def upward(self, smallest: float) -> float | None:
        """C×: the first crossing from which the second law is better, except that where laws cross below
        everything they were fitted on, and again above, the latter counts.
        """
        upward = self.flops[0::2] if self.first_is_better_below else self.flops[1::2]
        return next((flops for flops in upward if flops >= smallest), upward[0] if upward else None)


def crossings(first: Law, second: Law, ud: float, computes: np.ndarray, limits: Limits = FREE) -> Crossings:
    """Every compute at which the better of two laws changes: in the lowest loss that each can reach with at
    most so much, where compute is a ceiling. Nothing guarantees a single crossing, so all are looked for.
    """

    def gaps(flops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where both have a plan, by how much the first is worse."""
        gap = np.asarray(lowest(first, ud, flops, limits) - lowest(second, ud, flops, limits))
        return flops[np.isfinite(gap)], gap[np.isfinite(gap)]

    planned, gap = gaps(computes)
    searched = (float(planned[0]), float(planned[-1])) if len(planned) else None
    planned, gap = planned[gap != 0], gap[gap != 0]
    found = []
    for k in np.flatnonzero(np.diff(gap > 0)):
        ends, apart = planned[k : k + 2], gap[k : k + 2]
        while ends[1] > ends[0] * (1 + 1e-7):  # each pass narrows the bracket 32-fold
            inner, there = gaps(np.geomspace(ends[0], ends[1], 33))
            after = max(int(np.argmax((there > 0) == (apart[1] > 0))), 1)
            narrower = slice(after - 1, after + 1)
            if np.array_equal(inner[narrower], ends):  # limits leave no plan in between
                break
            ends, apart = inner[narrower], there[narrower]
        # A straight line has the last word.
        found.append(float(ends[0] * (ends[1] / ends[0]) ** (apart[0] / (apart[0] - apart[1]))))
    return Crossings(found, not (len(gap) and gap[0] > 0), searched)


@lru_cache(128)
def crossings_between(
    first: Law, second: Law, ud: float, limits: Limits, include: float | None = None
) -> Crossings:
    """The same along the compute that is searched; `include` is in it for sure."""
    return crossings(first, second, ud, search_range(first, ud, include), limits)


def draws_crossings(
    weaker: Law, stronger: Law, ud: float, between: tuple[float, float], limits: Limits
) -> np.ndarray:
    """Where each pair of draws crosses between two computes; infinite where that lies further out on one
    side, NaN where they cross the other way round.
    """

    def gap_and_slope(ln_flops: np.ndarray, which: Any) -> tuple[np.ndarray, np.ndarray]:
        laws = weaker.draw(which), stronger.draw(which)
        weak, strong = (allocate(law, ud, np.exp(ln_flops), limits) for law in laws)
        slopes = [_slope_by_compute(law, at, limits) for law, at in zip(laws, (weak, strong), strict=True)]
        return weak.loss - strong.loss, slopes[0] - slopes[1]

    everyone, ends = np.arange(weaker.draws), np.log(between)
    at_ends = np.array([gap_and_slope(np.full(len(everyone), end), everyone)[0] for end in ends])
    places = np.select([(at_ends > 0).all(axis=0), (at_ends <= 0).all(axis=0)], [-np.inf, np.inf], np.nan)
    rows = np.flatnonzero(~(at_ends[0] > 0) & (at_ends[1] > 0))
    if len(rows):
        low, start, high = (np.full(len(rows), end) for end in (ends[0], ends.mean(), ends[1]))
        places[rows] = np.exp(
            rising_root(lambda x, some: gap_and_slope(x, rows[some]), low, start, high, tolerance=1e-3)
        )
    return places


# -- where more than size and epochs is free: members, any weight decay, tokens to serve or to buy
#
# Asked is for the lowest loss within a total cost (`hardware.TotalCost`), or for the lowest cost that reaches
# a loss, of one model or of K whose probabilities are averaged (`Averaging`). The search is nested:
#
# 1. For given members, epochs, weight decay and unique tokens only the size is free. The loss along it is
#    tabulated up to the largest size that can be paid for, and its lowest place narrowed down; for a loss to
#    reach, the first size that reaches it.
# 2. That is done on a grid of everything else. The best combinations of members and whole epochs are kept.
# 3. For each of them what is continuous (weight decay, bought tokens, epochs that need not be whole) is
#    narrowed down together: a pattern search on ever smaller grids around the best point (Hooke & Jeeves
#    1961).
# 4. Whole epochs and members that the grid left out are tried next to the best.

_LARGEST = 1e15  # parameters that are looked at
_EPOCHS = (1e-6, 1e5)
_COARSE, _FINE = 33, 9  # sizes in a table, and in each of the narrower ones
_GAINED = 1e-9  # share of a loss, or of a total, below which going on is of no use
_SIZE, _REACHED = 1e-4, 1e-8  # how close, in ln, sizes are found: the best, and the first that reaches a loss
_ALL_EPOCHS, _RATIO = 16, 1.25  # whole epochs that are all tried, and steps beyond
_SHARES = np.exp(-np.linspace(9.0, 0.0, 13))[:-1]  # of the corpus, below one epoch
_DECAYS, _TOKENS = 9, 11  # weight decays and amounts of data on the first grid
_WIDE = 10.0  # between points of the first grid: one table of sizes is enough
_KEPT, _LAST, _NARROWINGS, _OFFSETS = 12, 4, 60, 5
# How close, in ln, what is continuous is found: the least bought data that reaches a loss may lie next to
# where none does, and costs climb steeply there.
_ROUGH, _CLOSE = 0.05, 1e-6
_NEXT_TO = 0.15  # how far, of the first grid, what is next to the best is looked for

Along = Callable[[np.ndarray], np.ndarray]  # sizes of a row (their ln) -> losses


class Found(NamedTuple):
    """What to train, how often; the point's compute is what it costs in all."""

    members: int
    weight_decay: float
    point: Point


class Grid(NamedTuple):
    """Configurations, as arrays of one length, whose size is free."""

    members: np.ndarray
    epochs: np.ndarray
    ln_decay: np.ndarray
    ln_tokens: np.ndarray

    @classmethod
    def at(cls, found: Found, epochs: Any = None, tokens: float | None = None) -> Grid:
        """One configuration without its size, or with several numbers of epochs."""
        passes = np.atleast_1d(found.point.epochs if epochs is None else epochs)
        decay, data = max(found.weight_decay, 1e-30), tokens or found.point.unique_tokens
        rest = (np.full(len(passes), value) for value in (math.log(decay), math.log(data)))
        return cls(np.full(len(passes), float(found.members)), passes, *rest)


@dataclass(frozen=True)
class Question:
    """What is asked: the lowest loss within a ceiling or, with a target, the least total that reaches it."""

    known: Calibration  # as it answers for this budget
    form: str
    cost: TotalCost  # of a point: its training, and serving and data where they count
    limits: Limits
    weight_decay: float | None  # as calibrated; None: the best
    members: Sequence[int]  # numbers of models that may be averaged
    ceiling: float
    target: float | None
    tolerance: float  # nats: the law's error where none was measured

    @property
    def ud(self) -> float:
        """The unique tokens that there are."""
        return self.cost.owned

    @property
    def any_decay(self) -> bool:
        """Whether the law holds for every weight decay of a range."""
        return self.known.has_weight_decay_law(self.form)


@dataclass(frozen=True, eq=False)
class Search(Question):
    """A question at one weight decay, or where it is free."""

    setting: Setting | None = None  # None: the weight decay is free

    @property
    def decays(self) -> tuple[float, float]:
        """ln of the weakest and the strongest weight decay that may be chosen."""
        low, high = searched_decays(self.known)
        if self.setting is not None:
            low = high = max(self.setting.weight_decay, 1e-30)
        return math.log(low), math.log(high)

    @property
    def tokens(self) -> tuple[float, float]:
        """ln of the fewest and the most unique tokens that may be used."""
        owned, most = self.cost.owned, self.cost.most_tokens(self.ceiling)
        return math.log(owned), math.log(max(owned, most if math.isfinite(most) else 1e16))

    @property
    def epochs(self) -> tuple[float, float]:
        """The fewest and the most epochs that may be chosen."""
        fewest, most = self.limits.box[1]
        return max(fewest, _EPOCHS[0]), min(most, _EPOCHS[1])

    def loss_along(self, grid: Grid) -> Along:
        """The loss of each configuration for the sizes (their ln) of its row; infinity where it cannot be
        told."""
        count, epochs, ln_decay, ln_tokens = (values[:, None] for values in grid)
        decay, tokens = np.exp(ln_decay), np.exp(ln_tokens)
        law = self.known.law_at(self.form, decay) if self.setting is None else self.setting.law(self.form)
        bound = deciding_law(self.setting or self.known.settings[0], self.form, self.limits, law)

        def losses(ln_params: np.ndarray) -> np.ndarray:
            at = np.exp(ln_params), tokens, epochs
            with np.errstate(over="ignore", invalid="ignore"):
                found = bound.loss(*at) - self.known.averaging_gains(law, count, *at, decay).low
            return np.where(np.isfinite(found), found, np.inf)

        return losses

    def sizes(self, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
        """ln of the smallest and the largest members that are allowed; the other way round: none."""
        smallest, largest = self.limits.box[0]
        low = math.log(max(smallest, 1.0))
        with np.errstate(divide="ignore"):
            paid = np.log(self.cost.largest(self.ceiling, grid.members, np.exp(grid.ln_tokens), grid.epochs))
        high = np.minimum(paid, math.log(min(largest, _LARGEST)))
        high = np.where((high < low) & (high > low - _ROUND), low, high)  # met exactly, but for rounding
        if self.limits.ceiling or self.target is not None:
            return np.full_like(high, low), high
        # All of it is spent: the size is what that pays for.
        return np.where((paid >= low - _ROUND) & (paid <= high + _ROUND), high, np.inf), high

    def score(self, found: Found) -> float:
        return float(found.point.loss if self.target is None else found.point.flops)

    def by_the_law(self, found: Found) -> Found:
        """An answer with the loss that the law itself expects, whatever it was decided by."""
        setting, point = self.known.setting(found.weight_decay), found.point
        law = setting.law(self.form)
        at = point.params, point.unique_tokens, point.epochs
        gain = self.known.averaging_gain(law, found.members, *at, found.weight_decay)
        return found._replace(point=point._replace(loss=float(law.loss(*at) - gain)))


def best_of(question: Question, *, rough: bool = False) -> Found | None:
    """The answer, of one search for each weight decay that may be chosen; a weight-decay law has them all in
    one. None where limits and ceiling leave nothing that can be paid (or reached).
    """
    settings: Sequence[Setting | None] = question.known.candidates(question.form, question.weight_decay)
    if question.weight_decay is None and question.any_decay:
        settings = (None,)
    tasks = [Search(**vars(question), setting=setting) for setting in settings]
    found = [one for task in tasks if (one := best(task, rough=rough)) is not None]
    answer = min(found, key=lambda one: (tasks[0].score(one), one.point.flops), default=None)
    return answer and tasks[0].by_the_law(answer)


def best(task: Search, *, rough: bool = False) -> Found | None:
    """The answer of one search, or None; a `rough` one is right to about a hundredth of a nat."""
    grid = _first_grid(task)
    values = best_sizes(task, grid, close=_WIDE)[1]
    order = np.argsort(values, kind="stable")
    order = order[np.isfinite(values[order])]
    if not len(order):
        return None
    # The best place of each number of members and epochs.
    _, first = np.unique(np.stack(grid[:2])[:, order], axis=1, return_index=True)
    rows = order[np.sort(first)[: _LAST if rough else _KEPT]]
    start = Grid(*(column[rows] for column in grid))
    if rough:
        return _narrow(task, start, close=_ROUGH)[0]
    found = _try_neighbours(task, _narrow(task, start)[0])
    return found if task.setting is not None else _two_digits(task, found)


def best_sizes(task: Search, grid: Grid, *, close: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The best size (its ln) of each configuration, and what is minimised there: the loss, or the total cost.

    Between configurations that are `close` (in ln, of what else is free) a size need not be known better.
    """
    low, high = task.sizes(grid)
    possible, along = high >= low, task.loss_along(grid)
    low, high = np.where(possible, low, 0.0), np.where(possible, high, 0.0)
    sizes, losses = _narrowed(along, low, high, max(_SIZE, close / 8))
    if task.target is None:
        return sizes, np.where(possible, losses, np.inf)
    reached = possible & (losses <= task.target)
    sizes, _ = _narrowed(along, low, sizes, min(max(_REACHED, close**2 / 1000), 0.2), task.target)
    total = task.cost.total(grid.members, np.exp(sizes), np.exp(grid.ln_tokens), grid.epochs)
    return sizes, np.where(reached, total, np.inf)


def _narrowed(
    along: Along, low: np.ndarray, high: np.ndarray, close: float, target: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The size with the lowest loss between two or, with a target that the larger one reaches, the smallest
    that reaches it: a table, and ever narrower ones around that place, until those next to it are close.
    """
    rows, number = np.arange(len(low)), _COARSE
    while True:
        sizes = np.linspace(low, high, number, axis=1)
        table = along(sizes)
        if target is None:
            pick = table.argmin(axis=1)
            after = np.minimum(pick + 1, number - 1)
        else:
            table[:, -1] = -np.inf
            pick = after = (table <= target).argmax(axis=1)
        if np.max(high - low) <= close * (number - 1):
            return sizes[rows, pick], table[rows, pick]
        low, high, number = sizes[rows, np.maximum(pick - 1, 0)], sizes[rows, after], _FINE


def _first_grid(task: Search) -> Grid:
    """Combinations of everything but the size: fractions of an epoch, the first whole ones and fewer and
    fewer beyond; some of many numbers of members (those between are tried next to the best).
    """
    fewest, most = task.epochs
    beyond = np.floor(_ALL_EPOCHS * _RATIO ** np.arange(1, 45))
    epochs = np.concatenate([_SHARES, np.arange(1.0, _ALL_EPOCHS + 1), beyond])
    if not task.limits.whole_epochs:
        epochs = np.concatenate([epochs, [1.02, 1.1, 1.25, 1.5, 2.5]])
    else:
        fewest, most = math.ceil(fewest) if fewest > 1 else fewest, math.floor(most) if most >= 1 else most
    epochs = np.unique([*epochs[(epochs >= fewest) & (epochs <= most)], fewest, most])
    axes = (
        np.array(_few(task.members), dtype=float),
        epochs[epochs >= max(task.epochs[0], _SHARES[0])],
        *(
            np.linspace(low, high, number) if high > low else np.array([low])
            for (low, high), number in ((task.decays, _DECAYS), (task.tokens, _TOKENS))
        ),
    )
    return Grid(*(values.ravel() for values in np.meshgrid(*axes, indexing="ij")))


def _few(counts: Sequence[int]) -> Sequence[int]:
    if len(counts) <= 6:
        return counts
    return [counts[pick - 1] for pick in np.unique(np.round(np.geomspace(1, len(counts), 7)).astype(int))]


def _narrow(task: Search, start: Grid, *, close: float = _CLOSE, near: float = 1.0) -> list[Found]:
    """Each start with all that is continuous narrowed down around it, the best first; `near` is how far the
    search begins, of what is between two points of the first grid.
    """
    fewest, most = task.epochs
    whole = (start.epochs >= 1) & task.limits.whole_epochs
    ln_epochs, most = np.log(start.epochs), min(most, 1.0) if task.limits.whole_epochs else most
    bounds = [(np.where(whole, ln_epochs, math.log(fewest)), np.where(whole, ln_epochs, math.log(most)))]
    bounds += [tuple(np.full_like(ln_epochs, end) for end in ends) for ends in (task.decays, task.tokens)]
    low, high = (np.stack(side, axis=1) for side in zip(*bounds, strict=True))
    centre = np.stack([ln_epochs, start.ln_decay, start.ln_tokens], axis=1)
    width = np.where(high > low, [0.8, 1 / (_DECAYS - 1), 1 / (_TOKENS - 1)], 0.0) * near
    width[:, 1:] *= (high - low)[:, 1:]
    free = np.flatnonzero(width.any(axis=0))
    steps = np.zeros((_OFFSETS ** len(free), 3))
    steps[:, free] = list(itertools.product(np.linspace(-1.0, 1.0, _OFFSETS), repeat=len(free)))
    count, epochs = start.members, start.epochs
    for step in range(_NARROWINGS if len(free) else 0):
        tried = np.clip(centre[:, None] + steps * width[:, None], low[:, None], high[:, None])
        flat = tried.reshape(-1, 3)
        each = Grid(np.repeat(count, len(steps)), np.exp(flat[:, 0]), flat[:, 1], flat[:, 2])
        values = best_sizes(task, each, close=float(width.max()))[1].reshape(len(centre), -1)
        rows, pick = np.arange(len(centre)), values.argmin(axis=1)
        there, least = tried[rows, pick], values[rows, pick]
        width = np.where(np.abs(there - centre) < 0.9 * width, 0.5 * width, width)
        centre = there
        if step % 3 == 2 and len(centre) > _LAST:  # those behind will not catch up
            ahead = np.argsort(least, kind="stable")[: max(len(centre) // 2, _LAST)]
            centre, low, high, width = centre[ahead], low[ahead], high[ahead], width[ahead]
            count, epochs, whole = count[ahead], epochs[ahead], whole[ahead]
        if width.max() < close:
            break
    return _answers(task, Grid(count, np.where(whole, epochs, np.exp(centre[:, 0])), *centre[:, 1:].T))


def _answers(task: Search, grid: Grid) -> list[Found]:
    """What each configuration comes to with its best size, the best first."""
    sizes, values = best_sizes(task, grid)
    params, tokens = np.minimum(np.exp(sizes), task.limits.box[0][1]), np.exp(grid.ln_tokens)
    tokens = np.where(np.isclose(tokens, task.cost.owned, rtol=1e-9), task.cost.owned, tokens)
    loss = values if task.target is None else task.loss_along(grid)(sizes[:, None])[:, 0]
    total = task.cost.total(grid.members, params, tokens, grid.epochs)
    points = Point(params, tokens, grid.epochs, total, loss)
    decays = np.exp(grid.ln_decay) if task.setting is None else [task.setting.weight_decay] * len(loss)
    return [
        Found(int(grid.members[row]), float(decays[row]), points.at(row).single())
        for row in np.argsort(values, kind="stable")
        if np.isfinite(values[row])
    ]


def _try_neighbours(task: Search, answer: Found) -> Found:
    """The best once whole epochs and members between those of the grid are tried as well."""
    gap = max((_RATIO - 1) * answer.point.epochs, 1.0) if task.limits.whole_epochs else 0.0
    spread = len(task.members) > len(_few(task.members))
    while True:
        place = task.members.index(answer.members)
        counts = task.members[max(place - 2, 0) : place + 3] if spread else [answer.members]
        epochs = [answer.point.epochs]
        if gap and answer.point.epochs >= 1:  # a few whole numbers on either side
            near = np.unique(np.round(np.linspace(epochs[0] - gap, epochs[0] + gap, 7)))
            epochs = [float(e) for e in near if max(1.0, task.epochs[0]) <= e <= task.epochs[1]] or epochs
        grids = [Grid.at(answer._replace(members=count), epochs) for count in counts]
        start = Grid(*(np.concatenate(columns) for columns in zip(*grids, strict=True)))
        next_best = min(*_narrow(task, start, near=_NEXT_TO), answer, key=task.score)
        done = gap <= 1.0 and task.score(next_best) >= task.score(answer) * (1 - _GAINED)
        answer, gap = next_best, min(gap, max(0.3 * gap, 1.0))
        if done:
            return answer


def _two_digits(task: Search, found: Found) -> Found:
    """The same with a weight decay that people can type, the better of the two next to the best."""
    low, high = (math.exp(end) for end in task.decays)
    digit = 10.0 ** (math.floor(math.log10(found.weight_decay)) - 1)
    near = {math.floor(found.weight_decay / digit) * digit, math.ceil(found.weight_decay / digit) * digit}
    answers = []
    for decay in sorted(float(f"{min(max(one, low), high):.2g}") for one in near):
        fixed = replace(task, setting=task.known.setting(min(max(decay, low), high)))
        start = Grid.at(found)._replace(ln_decay=np.array([fixed.decays[0]]))
        if narrowed := _narrow(fixed, start):  # nothing where two digits cannot be paid
            answers.append(_try_neighbours(fixed, narrowed[0]))
    return min(answers, key=task.score, default=found)


# -- weight decays that may be chosen, where a law holds for all of a range

_STEPS, _CLOSER = 21, 9  # weight decays that are tried, and again around the best of them
_LESS = 0.25 ** np.arange(3.0)  # shares of the compute that are tried where it is a ceiling
_AT_ONCE = 128  # budgets
_FAMILIAR = 0.1  # the weight decay that most people train with


def searched_decays(known: Calibration) -> tuple[float, float]:
    """The weakest and the strongest weight decay that are tried."""
    low, high = known.weight_decay_range
    return max(low, 1e-3 * high), high


def best_weight_decays(
    known: Calibration, form: str, ud: np.ndarray, flops: np.ndarray, limits: Limits
) -> np.ndarray:
    """The weight decay with the lowest loss that each budget can reach, to two digits: on a grid, and again
    around the best of it; from the lowest loss on that this data allows, its own.
    """
    grid, found = np.geomspace(*searched_decays(known), _STEPS), np.empty(len(ud))
    left = np.ones(len(ud), dtype=bool)
    for corpus in np.unique(ud) if limits.ceiling else ():
        decay = lowest_weight_decay(known, form, float(corpus), limits)
        lowest = first_minimum(deciding_law(known.setting(decay), form, limits), float(corpus), limits)
        beyond = (ud == corpus) & (flops > (math.inf if lowest is None else lowest.flops))
        found[beyond], left[beyond] = decay, False

    def losses(tokens: np.ndarray, computes: np.ndarray, decays: np.ndarray) -> np.ndarray:
        law = deciding_law(known.settings[0], form, limits, known.law_at(form, decays))
        found = allocate(law, tokens, computes, limits).loss
        return np.asarray(np.where(np.isfinite(found), found, np.inf))

    rows = np.flatnonzero(left)
    for some in (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)):
        tokens, computes = ud[some], flops[some]
        shares = _LESS if limits.ceiling else _LESS[:1]
        table = losses(tokens[:, None, None], computes[:, None, None] * shares[:, None], grid)
        share, pick = np.divmod(table.reshape(len(tokens), -1).argmin(axis=1), _STEPS)
        below, above = (grid[np.clip(pick + side, 0, _STEPS - 1)] for side in (-1, 1))
        near = np.geomspace(below, above, _CLOSER, axis=1)
        best_near = losses(tokens[:, None], (computes * shares[share])[:, None], near).argmin(axis=1)
        found[some] = near[np.arange(len(tokens)), best_near]
    return two_digits(known, found.tolist())


@lru_cache(128)
def lowest_weight_decay(known: Calibration, form: str, ud: float, limits: Limits) -> float:
    """The weight decay with the lowest loss at whatever compute has it, to two digits."""
    grid = np.geomspace(*searched_decays(known), _STEPS)
    for _ in range(2):
        laws = deciding_law(known.settings[0], form, limits, known.law_at(form, grid))
        computes = search_range(laws, ud, per_decade=4)
        curve = allocate(laws.draw((slice(None), None)), ud, computes, limits.continuous())
        first = loss_minimising(laws, ud, curve, limits).loss
        least = np.where(np.isfinite(curve.loss), curve.loss, np.inf).min(axis=1)
        pick = int(np.where(np.isfinite(first), first, least).argmin())
        best_decay = grid[pick]
        grid = np.geomspace(grid[max(pick - 1, 0)], grid[min(pick + 1, len(grid) - 1)], _CLOSER)
    return float(two_digits(known, [best_decay])[0])


def two_digits(known: Calibration, weight_decays: Sequence[float]) -> np.ndarray:
    """Weight decays that people can type, within what is searched."""
    return np.clip([float(f"{value:.1e}") for value in weight_decays], *searched_decays(known))


# -- the best plan of a question, and the same question with something changed

_MARGIN = 1e-4  # of ln(tokens) and ln(total), over which marginal values are taken

Ends = tuple[float, float, float, float]  # the fewest and the most epochs, the smallest and the largest model
Change = tuple[float | None, float | None]  # of the loss, and the weight decay that it takes
# Of the loss along compute: its lowest point, the compute from which on it is lower again, the weight decay.
Minimum = tuple[Point, float | None, float]


def best_model(question: Question) -> Found | None:
    """The answer where training one model is all that counts; None where the limits leave none."""
    known, form, decay, ud = question.known, question.form, question.weight_decay, question.ud
    if decay is None and question.any_decay:
        budget = np.array([ud]), np.array([question.ceiling])
        decay = float(best_weight_decays(known, form, *budget, question.limits)[0])
    plans = []
    for setting in known.candidates(form, decay):
        error, law = (
            setting.inside_error(form, question.tolerance),
            deciding_law(setting, form, question.limits),
        )
        point = plan_within(law, ud, question.ceiling, error, question.limits).single()
        plans.append((point.loss_or_inf, Found(1, setting.weight_decay, by_the_law(law, point).single())))
    least, best = min(plans, key=lambda one: one[0])
    return best if math.isfinite(least) else None


_SPARE_SIZES, _SPARE_EPOCHS = np.geomspace(0.35, 1.4, 7), np.array([1.0, 1.5, 2.0])  # of the plan's
_NEAR_ENOUGH = 1.0  # standard deviation of the logarithm of a gain: beyond, a number says nothing


class Spare(NamedTuple):
    """An ensemble for compute that one model cannot use, between which losses it is expected, and whether its
    law is near enough to say so.
    """

    found: Found
    low: float
    high: float
    near: bool


def loss_range(loss: float, width: float, gain: Gain) -> tuple[float, float]:
    """Between which losses an ensemble is expected: what its members' loss may be off by (half the `width` of
    an interval), and what averaging may gain.
    """
    ends = float(gain.high - gain.expected), float(gain.expected - gain.low)
    return loss - math.hypot(width, ends[0]), loss + math.hypot(width, ends[1])


class Choice:
    """The best plan of a question, and what is around it: the same question with something changed. Where
    training one model is all that counts (`single`), it is looked at along compute.
    """

    def __init__(self, question: Question, *, single: bool) -> None:
        self.asked, self.single, limits = question, single, question.limits
        found = best_model(question) if single else best_of(question)
        if found is None and single:
            raise no_choice(question.ud, question.ceiling, limits)
        if found is None and question.target is None:
            raise cannot_be_paid(question.cost, question.ceiling, limits)
        if found is None:
            lowest_found = best_of(replace(question, target=None))
            raise cannot_be_reached(question.target or 0.0, question.ud, lowest_found, limits)
        self.found: Found = found
        # From here on the total is what there is, whether it was given or found.
        total = question.ceiling if math.isfinite(question.ceiling) else found.point.flops
        self.question = replace(question, ceiling=total, target=None)
        self.setting = question.known.setting(found.weight_decay)
        self.law, self.draws = self.setting.law(question.form), self.setting.law_draws(question.form)
        self.upper = deciding_law(self.setting, question.form, limits)
        self.uniform_loss = question.known.uniform_loss
        if not single:
            check_serving(question.known, question.cost, found, total)

    def best(self, **changes: Any) -> Found | None:
        """The answer to the question with something changed."""
        question = replace(self.question, **changes)
        return best_model(question) if self.single else best_of(question)

    @cached_property
    def error(self) -> float:
        """Of the plan's loss: the law's own and, where several models are averaged, that of what averaging
        gains; not what is unknown of a law that was borrowed (`gain`), which other plans share.
        """
        point, averaging = self.found.point, self.question.known.members
        law_error = self.setting.error(self.question.form, self.question.tolerance)
        error = float(law_error(point.params, point.unique_tokens, point.epochs))
        return error if self.found.members == 1 or averaging is None else math.hypot(error, averaging.error)

    @cached_property
    def gain(self) -> Gain:
        """What averaging is expected to gain, and its interval."""
        (members, decay, point), known = self.found, self.question.known
        at = point.params, point.unique_tokens, point.epochs
        return Gain(*(float(v) for v in known.averaging_gains(self.law, members, *at, decay)))

    @property
    def gain_is_near(self) -> bool:
        """Whether what averaging gains was measured near enough for a number."""
        (members, decay, point), known = self.found, self.question.known
        if members == 1:
            return True
        at = point.params, point.unique_tokens, point.epochs
        return float(known.averaging_deviation(*at, decay)) <= _NEAR_ENOUGH

    @cached_property
    def inside_error(self) -> float:
        """The law's error inside of its evidence: within which plans next to each other are as good, however
        far both are from it.
        """
        inside = self.setting.inside_error(self.question.form, self.question.tolerance)
        averaging = self.question.known.members
        return inside if self.found.members == 1 or averaging is None else math.hypot(inside, averaging.error)

    @cached_property
    def counted_on(self) -> float:
        """The loss of the plan by what it was decided by."""
        point = self.found.point
        at = point.params, point.unique_tokens, point.epochs
        doubted = self.gain.expected - self.gain.low
        return float(point.loss + self.upper.loss(*at) - self.law.loss(*at) + doubted)

    @cached_property
    def here(self) -> Search:
        """The search at the weight decay and with the members of the plan, within its total."""
        return Search(**{**vars(self.question), "members": (self.found.members,)}, setting=self.setting)

    def expected_loss(self, found: Found) -> float:
        """Of another plan, by the law of this one."""
        at = found.point.params, found.point.unique_tokens, found.point.epochs
        gain = self.question.known.averaging_gain(self.law, found.members, *at, found.weight_decay)
        return float(self.law.loss(*at)) - float(gain)

    @cached_property
    def rivals(self) -> list[Found]:
        """The best at each other weight decay that was calibrated or, where all may be chosen, that people
        would think of; the best of them first.
        """
        known, question, chosen = self.question.known, self.question, self.found.weight_decay
        usual = [setting.weight_decay for setting in known.settings if setting.has(question.form)]
        if question.any_decay and known.weight_decay_law is not None:
            low, high = known.weight_decay_range
            decays = (_FAMILIAR, known.weight_decay_law.default_weight_decay)
            usual = [decay for decay in dict.fromkeys(decays) if low <= decay <= high]
        others = [self.best(weight_decay=decay) for decay in usual if decay != chosen]
        if question.any_decay and question.weight_decay is not None:
            others.append(self.best(weight_decay=None))
        found = {one.weight_decay: one for one in others if one is not None and one.weight_decay != chosen}
        return sorted(found.values(), key=lambda one: one.point.loss)

    def other_laws(self) -> list[tuple[str, Found]]:
        """What other laws recommend for the same weight decay and members."""
        bare = replace(self.question.limits, extrapolate=True)  # however far: to show that is what it is for
        same = {"weight_decay": self.found.weight_decay, "members": (self.found.members,), "limits": bare}
        forms = [form for form in self.setting.laws if form != self.question.form]
        plans = [(form, self.best(form=form, tolerance=DEFAULT_TOLERANCE, **same)) for form in forms]
        return [(form, found) for form, found in plans if found is not None]

    def changes(self) -> list[Change]:
        """By how much twice the data and twice the ceiling change the loss, and the weight decay that it
        takes; None: the limits leave no plan.
        """
        changes: list[Change] = []
        cost, here = self.question.cost, self.found.point
        data, more = {"cost": replace(cost, owned=2 * cost.owned)}, {"ceiling": 2 * self.question.ceiling}
        for change in (data, more):
            other = self.best(**change)
            if other is None:
                changes.append((None, None))
                continue
            # Nobody has to use it; and what is reached with less than now is no gain from more.
            gains = other.point.loss < here.loss and (change is data or other.point.flops > here.flops)
            if gains or (self.single and not self.question.limits.ceiling):
                changes.append((other.point.loss - here.loss, other.weight_decay))
            else:
                changes.append((0.0, self.found.weight_decay))
        return changes

    def least_loss(self) -> float:
        """The lowest within the ceiling, at the plan's weight decay and members."""
        if self.single:
            question = self.question
            within = plan_within(self.upper, question.ud, question.ceiling, 0.0, question.limits)
            found = by_the_law(self.upper, within).loss
        else:
            found = self.here.by_the_law(best(self.here) or self.found).point.loss
        return float(min(self.found.point.loss, found))

    @cached_property
    def continuous(self) -> Point:
        """The best with epochs that need not be whole."""
        limits, ud = self.question.limits.continuous(), self.question.ud
        if self.single:
            return by_the_law(self.upper, allocate(self.upper, ud, self.found.point.flops, limits)).single()
        return self.here.by_the_law(best(replace(self.here, limits=limits)) or self.found).point

    def cheaper(self) -> Point | None:
        """The least compute, or total, whose plan at the same weight decay is within the law's error of this
        one; None where it takes nearly all.
        """
        point, limits, ud = self.found.point, self.question.limits, self.question.ud
        worst, found = self.counted_on + self.inside_error, None
        if self.single:
            if (cheap := least_compute(self.upper, ud, worst, limits, below=point.flops)) is not None:
                found = by_the_law(self.upper, cheap).single()
        elif limits.ceiling and (other := best(replace(self.here, ceiling=math.inf, target=worst))):
            found = self.here.by_the_law(other).point
        return None if found is None or found.flops > 0.95 * point.flops else found

    def flat(self, tolerance: float) -> Ends:
        """Epochs around the best and their sizes, for the same compute, or total, whose loss is within the
        tolerance."""
        point, ud = self.found.point, self.question.ud
        if self.single:
            here = point._replace(loss=self.counted_on)
            ends = flat_epochs(self.upper, ud, here, tolerance, self.question.limits)
            low, high = (float(end[0]) for end in ends)
            product = point.flops / (FLOPS_PER_PARAM_TOKEN * ud)
            return low, high, product / high, product / low
        if point.epochs >= 1 and self.question.limits.whole_epochs:
            near = np.append(np.arange(1.0, 33.0), np.floor(point.epochs * np.geomspace(0.05, 20, 200)))
            near = near[near >= 1]
        else:
            near = point.epochs * np.geomspace(0.05, 20, 400)
        fewest, most = self.here.epochs
        epochs = np.unique(np.append(near[(near >= fewest) & (near <= most)], point.epochs))
        sizes, losses = best_sizes(self.here, Grid.at(self.found, epochs))
        place = int(np.argmin(np.abs(epochs - point.epochs)))
        apart = np.flatnonzero(~(losses <= self.counted_on + tolerance))
        first = max(apart[apart < place], default=-1) + 1
        last = min(apart[apart > place], default=len(epochs)) - 1
        params = np.append(np.exp(sizes[min(first, place) : max(last, place) + 1]), point.params)
        return float(epochs[first]), float(epochs[last]), float(params.min()), float(params.max())

    def exchange_rate(self) -> ExchangeRate:
        """What more data and more compute would buy; or a larger total, the members of the answer being kept:
        by central differences.
        """
        if self.single:
            return exchange_rate(self.law, self.question.ud, self.continuous, self.question.limits)
        here, data, total = self.here, self.found.point.unique_tokens, self.here.ceiling
        spent_on_data = float(here.cost.data(data))

        def loss(tokens: float, total: float) -> float:
            owned = replace(here.cost, owned=tokens, token_flops=0.0)
            at = replace(here, cost=owned, ceiling=total - spent_on_data)
            return float(best_sizes(at, Grid.at(self.found, tokens=tokens))[1][0])

        up, down = 1 + _MARGIN, 1 - _MARGIN
        by_token = (loss(data * up, total) - loss(data * down, total)) / (2 * _MARGIN * data)
        by_flop = (loss(data, total * up) - loss(data, total * down)) / (2 * _MARGIN * total)
        by_token, by_flop = (value if math.isfinite(value) else 0.0 for value in (by_token, by_flop))
        return ExchangeRate(by_token, by_flop, by_token / by_flop if by_flop < 0 else None)

    # Along compute, which only a single training is looked at.

    def along_compute(self) -> tuple[Minimum | None, Point | None, bool]:
        """The loss-minimising compute, where the best plan repeats most, and whether the plan overspends:
        less compute has a lower loss.
        """
        minimum, point = self.loss_minimising(), self.found.point
        overspent = minimum is not None and point.flops > minimum[0].flops * 1.005
        overspent &= minimum is not None and point.loss > minimum[0].loss + _RISES
        return minimum, self.turning_point(), overspent

    def outlier(self, law: Law) -> float | None:
        """The budget, if the usual search along compute would not cover it."""
        computes, ceiling = search_range(law, self.question.ud), self.question.ceiling
        return None if computes[0] <= ceiling <= computes[-1] else ceiling

    def turning_point(self) -> Point | None:
        """Where the best plan repeats most."""
        law, ud, limits = self.law, self.question.ud, self.question.limits
        turn = most_epochs(law, ud, compute_curve(law, ud, limits, self.outlier(law)), limits).single()
        return turn if math.isfinite(turn.loss) else None

    def loss_minimising(self, weight_decay: float | None = None) -> Minimum | None:
        """The compute with the lowest loss at this weight decay, by default at those that a plan may have;
        None where another is lower there already: more compute goes on helping by that one.
        """
        known, form, ud = self.question.known, self.question.form, self.question.ud
        limits, given = self.question.limits, self.question.weight_decay
        decay = given if weight_decay is None else weight_decay
        if decay is None and self.question.any_decay:
            decay = lowest_weight_decay(known, form, ud, limits)
        settings = known.candidates(form, decay)
        laws = [setting.law(form) for setting in settings]
        points = [lowest_along(law, ud, limits, self.outlier(law)) for law in laws]
        place = min(range(len(laws)), key=lambda k: points[k].loss_or_inf)
        point = points[place]
        if not math.isfinite(point.loss):
            return None
        again: list[float] = []
        for k, law in enumerate(laws):
            curve = compute_curve(law, ud, limits, self.outlier(law))
            there = np.interp(np.log(point.flops), np.log(curve.flops), curve.loss)
            if k != place and there < point.loss - _RISES:
                return None
            lower = (curve.loss < point.loss - _RISES) & (curve.flops > point.flops)
            again.extend(curve.flops[lower][:1].tolist())
        return point, min(again, default=None), settings[place].weight_decay

    def rival_best(self) -> Point | None:
        """The lowest loss that the best rival reaches with at most this compute."""
        decay, question = self.rivals[0].weight_decay, self.question
        minimum = self.loss_minimising(decay)
        if minimum is not None and minimum[0].flops < question.ceiling:
            return minimum[0]
        law, limits = question.known.setting(decay).law(question.form), question.limits.continuous()
        here = allocate(law, question.ud, question.ceiling, limits).single()
        return here if math.isfinite(here.loss) else None

    def spare_ensemble(self) -> Spare | None:
        """What compute that one model cannot use would buy as an ensemble, roughly: of sizes, epochs and
        weight decays near the plan's. None where nothing would be gained for sure.
        """
        question, known, point = self.question, self.question.known, self.found.point
        averaging = known.members
        assert averaging is not None
        decays = [self.found.weight_decay]
        if question.any_decay:
            decays.append(max(0.5 * decays[0], searched_decays(known)[0]))
        axes = (
            np.array([2.0, averaging.most_members, averaging.counts[-1]]),
            np.unique(np.maximum(np.round(point.epochs * _SPARE_EPOCHS), min(point.epochs, 1.0))),
            np.log(decays),
            np.log([point.unique_tokens]),
        )
        grid = Grid(*(values.ravel() for values in np.meshgrid(*axes, indexing="ij")))
        smallest, largest = np.clip(question.limits.box[0], 1.0, _LARGEST)
        params = np.clip(point.params * _SPARE_SIZES, smallest, largest)[None, :]
        task = Search(**vars(question), setting=None if question.any_decay else self.setting)
        losses = task.loss_along(grid)(np.log(params) + np.zeros((len(grid.members), 1)))
        count, epochs, _, tokens = (values[:, None] for values in grid)
        total = question.cost.total(count, params, np.exp(tokens), epochs)
        fewest, most = task.epochs
        possible = (total <= question.ceiling) & (epochs >= fewest) & (epochs <= most)
        losses = np.where(possible, losses, np.inf)
        row, column = np.unravel_index(losses.argmin(), losses.shape)
        if losses[row, column] >= self.counted_on - averaging.error:
            return None
        there = Point(float(params[0, column]), point.unique_tokens, float(grid.epochs[row]), 0.0, 0.0)
        decay = float(f"{math.exp(grid.ln_decay[row]):.2g}")
        found = Found(int(grid.members[row]), decay, there._replace(flops=float(total[row, column])))
        return self._spare(task.by_the_law(found))

    def _spare(self, found: Found) -> Spare:
        """With between which losses it is expected."""
        members, decay, point = found
        known, setting = self.question.known, self.question.known.setting(decay)
        at = point.params, point.unique_tokens, point.epochs
        gain = known.averaging_gains(setting.law(self.question.form), members, *at, decay)
        own = predictive_width(None) * float(setting.error(self.question.form, self.question.tolerance)(*at))
        low, high = loss_range(point.loss, own, gain)
        return Spare(found, low, high, float(known.averaging_deviation(*at, decay)) <= _NEAR_ENOUGH)
