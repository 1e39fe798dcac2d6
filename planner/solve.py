r"""The search: the best split of compute between size and epochs, and everything that follows from it.

With `flops = 6 params tokens` and `tokens = ud * epochs`, compute fixes the product

    params * epochs = flops / (6 ud),

so that for one law and one corpus everything is read off one table of the loss over (compute, epochs): each
row is an iso-FLOP curve, each column a number of epochs. `allocate` finds the best epochs of each row;
`Curve` is that along compute, at fixed unique tokens; turning point, loss-minimising compute, flat range,
crossovers and the compute that a loss takes are read off it, each followed by a local polish that makes the
digits. Limits are a range of epochs for each row (`Limits.epochs_between`), to which the columns are clipped.

Nothing of a law is used but its loss. Budgets, corpora and the draws of a law (one value of each parameter
per draw) broadcast: nothing here loops over them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

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
_STEP, _DONE = 2e-4, 1e-7  # in ln(epochs): of central differences, and the last step of a polish
_NEXT = 1e-5  # in ln(epochs): on either side of a kink
_ROUND = 1e-12  # slack for limits that are met exactly
_RISES = 1e-9  # nats: what rises by less does not rise


F = TypeVar("F", bound=Callable[..., Any])
_caches: list[Any] = []


def memoize(maxsize: int) -> Callable[[F], F]:
    """`functools.lru_cache`, for what depends on the corpus and not on the compute: one corpus is asked about
    many times. A server that lets go of a calibration calls `clear_caches`.
    """

    def wrap(function: F) -> F:
        cached = lru_cache(maxsize)(function)
        _caches.append(cached)
        return cast(F, cached)

    return wrap


def clear_caches() -> None:
    """Forget all results."""
    for cached in _caches:
        cached.cache_clear()


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
    if not limits.ceiling or limits.max_params is None:
        return exact
    ceiling = np.asarray(ceiling, dtype=float)
    product = ceiling / (FLOPS_PER_PARAM_TOKEN * ud)
    epochs = np.minimum(product / limits.max_params, limits.max_epochs or np.inf)
    if limits.whole_epochs:
        epochs = np.where(epochs >= 1, np.floor(epochs * (1 + _ROUND)), epochs)
    epochs = np.where(epochs >= (limits.min_epochs or 0.0), epochs, np.nan)
    size = np.full_like(epochs, limits.max_params)
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


@memoize(256)
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
    law: Law, ud: float, low: np.ndarray, high: np.ndarray, limits: Limits, height: Callable[[Point], Any]
) -> Point:
    """The point with the least `height` between two computes (ln) of each row: on two grids, then
    polished."""
    column, rows = law.draw((slice(None), None)), np.arange(len(low))
    for _ in range(2):
        grid = np.linspace(low, high, 17, axis=-1)
        heights = height(allocate(column, ud, np.exp(grid), limits))
        best = np.argmin(np.where(np.isfinite(heights), heights, np.inf), axis=-1)
        low, high = grid[rows, np.maximum(best - 1, 0)], grid[rows, np.minimum(best + 1, 16)]

    def along(ln_flops: np.ndarray, which: Any) -> np.ndarray:
        return np.asarray(height(allocate(law.draw(which), ud, np.exp(ln_flops), limits)))

    on_grid = allocate(law, ud, np.exp(grid[rows, best]), limits)
    polished = allocate(law, ud, np.exp(minimise(along, low, grid[rows, best], high, tolerance=1e-5)), limits)
    return where(height(polished) < height(on_grid), polished, on_grid)  # a jump cannot be polished


@memoize(256)
def lowest_along(law: Law, ud: float, limits: Limits, include: float | None = None) -> Point:
    """The loss-minimising compute of one law."""
    return loss_minimising(law, ud, compute_curve(law, ud, limits, include), limits).single()


def loss_minimising(law: Law, ud: float, curve: Point, limits: Limits) -> Point:
    """Where the best loss along compute is first lowest, of each row of a curve; NaN where more compute helps
    as far as can be seen, or where repetition costs nothing.
    """
    return _extreme(law, ud, curve, limits, lambda points: points.loss, first=True)


def most_epochs(law: Law, ud: float, curve: Point, limits: Limits) -> Point:
    """The turning point: where the best plan repeats most; NaN where there is none. Beyond it more compute
    goes into size.
    """
    found = _extreme(law, ud, curve, limits, lambda points: -points.epochs, first=False)
    last = np.nanmax(np.where(np.isfinite(curve.loss), curve.flops, np.nan), axis=-1, keepdims=True)
    at_end = np.nansum(np.where(curve.flops == last, curve.epochs, 0.0), axis=-1)
    there = found.epochs > np.maximum(1.0, at_end * 1.001)
    return Point(*(np.where(there, values, np.nan) for values in found))


def _extreme(
    law: Law, ud: float, curve: Point, limits: Limits, height: Callable[[Point], Any], *, first: bool
) -> Point:
    """The first, or the deepest, valley of `height` along each row of a curve, polished; NaN: none."""
    shape = np.shape(curve.loss)[:-1]
    none = Point(*np.full((5, *shape), np.nan))
    if not law.overfits:
        return none
    heights = np.atleast_2d(height(curve))
    ln_flops = np.broadcast_to(np.log(curve.flops), heights.shape)
    valleys, everyone = _valleys(heights), np.arange(len(heights))
    places = (valleys if first else np.where(valleys, -heights, -np.inf)).argmax(axis=-1)
    low, high = (ln_flops[everyone, places + side] if valleys.any() else ln_flops[:, 0] for side in (-1, 1))
    low, high = (np.where(valleys.any(axis=-1), end, np.nan) for end in (low, high))
    if first:
        low, high = _shallow(law, ud, ln_flops, heights, limits, low, high)
    rows = np.flatnonzero(np.isfinite(low))
    if not len(rows):
        return none
    found = _zoom(law.draw(rows), ud, low[rows], high[rows], limits.continuous(), height)
    every = np.full((5, len(heights)), np.nan)
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


def regained(curve: Point, best: Point) -> float | None:
    """The compute from which on the loss is again lower than at its first minimum."""
    lower = np.flatnonzero((curve.loss < best.loss - _RISES) & (curve.flops > best.flops))
    return float(curve.flops[lower[0]]) if len(lower) else None


# -- how much of the compute to spend

# What more than so many times the compute must gain, at least, is the law's error.
_FEW_TIMES = 2.0
_NEAR = 3  # whole epochs on either side of the best continuous ones that are tried
_LITTLE = 1.01  # times the compute of a minimum, where the loss has to be higher again
_SIZES, _ROOM = 49, 6.0  # sizes that are tried around the usual one, and how far (ln)

Error = Callable[[Array, Array, Array], Array]  # the law's error in nats, by params, unique tokens and epochs


@memoize(256)
def first_minimum(law: Law, ud: float, limits: Limits) -> Point | None:
    """Where the best loss along compute is first lowest with the epochs that the limits ask for; None where
    more compute helps as far as can be seen.
    """
    if not law.overfits:
        return None
    near = lowest_along(law, ud, limits)
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
    allowed = (epochs >= low * (1 - 1e-9)) & (epochs <= high * (1 + 1e-9))
    limited = limits.max_params is not None and not (inside | ~allowed).all()
    fine = allowed & inside
    if limited or not known:
        # Only what no other number of epochs betters at the same compute, nor for a little more, is a
        # minimum; the largest size allowed ends a valley, too.
        here, further = (allocate_at_most(law, ud, points.flops * more, limits).loss for more in (1, _LITTLE))
        lowest = (points.loss <= here + _RISES) & ~(further < points.loss)
        fine = _one_valley(points, allowed & lowest) if known else fine & lowest
    if not fine.any():
        return None
    return points.at(int(np.argmin(np.where(fine, points.loss, np.inf)))).single()


def _best_sizes(
    law: Law, ud: float, epochs: np.ndarray, around: float, limits: Limits
) -> tuple[np.ndarray, np.ndarray]:
    """For each number of epochs the first size from which a larger model is worse, and whether there is one;
    where there is none, the largest that the limits allow.
    """
    low = np.log(limits.min_params or around * np.exp(-_ROOM))
    high = np.log(limits.max_params or around * np.exp(_ROOM))
    grid = np.linspace(low, max(high, low), _SIZES)
    table = np.asarray(law.loss(np.exp(grid), ud, epochs[:, None]))
    worse = np.diff(table, axis=1) > 0
    rises = worse.any(axis=1)
    after = np.where(rises, worse.argmax(axis=1), _SIZES - 1)

    def loss(ln_params: np.ndarray, which: Any) -> np.ndarray:
        return np.asarray(law.loss(np.exp(ln_params), ud, epochs[which]))

    ends = grid[np.maximum(after - 1, 0)], grid[after], grid[np.minimum(after + 1, _SIZES - 1)]
    best = minimise(loss, *ends, tolerance=1e-8)
    inside = rises | (best < ends[2] - 1e-7)
    return np.where(inside, np.exp(best), np.exp(ends[2])), inside


def _one_valley(points: Point, is_lowest: np.ndarray) -> np.ndarray:
    """Which minima belong to the first valley along compute: those of consecutive numbers of epochs, none of
    which takes more than a few times the compute of the one before.
    """
    inside = np.zeros(len(is_lowest), dtype=bool)
    last: int | None = None
    for place in np.argsort(points.flops):
        if not is_lowest[place]:
            continue
        if last is not None and (
            abs(points.epochs[place] - points.epochs[last]) > 1
            or points.flops[place] > _FEW_TIMES * points.flops[last]
        ):
            break
        inside[place], last = True, int(place)
    return inside


class Within(NamedTuple):
    """The plan within a ceiling, and the lowest loss of any plan within it, as far as the first minimum."""

    plan: Point
    least: Any


def plan_within(law: Law, ud: float, ceiling: Array, error: Error, limits: Limits = FREE) -> Within:
    """How much of the compute to spend: a budget is a ceiling, and one model cannot always use it.

    The best loss first falls with compute and then rises again where repetition costs more than size gains.
    Beyond that first minimum a plan spends less than the ceiling where the minimum is better than spending
    all by more than the law's own error, or where spending all costs more than twice as much and gains less.
    """
    everything = allocate_at_most(law, ud, ceiling, limits)
    first = first_minimum(law, ud, limits) if limits.ceiling else None
    if first is None:
        return Within(everything, everything.loss)
    more, loss = everything.flops > first.flops, everything.loss
    doubt = error(everything.params, ud, everything.epochs)
    better = first.loss < loss - doubt
    hardly_worse = (everything.flops > _FEW_TIMES * first.flops * (1 + 1e-9)) & (first.loss - loss < doubt)
    plan = where(more & (better | hardly_worse), first, everything)
    return Within(plan, np.where(more, np.fmin(loss, first.loss), loss))


def lowest(law: Law, ud: float, ceiling: np.ndarray, limits: Limits = FREE) -> np.ndarray:
    """The lowest loss that a law can reach with at most so much compute, as far as its first minimum."""
    return np.asarray(plan_within(law, ud, ceiling, lambda *_: 0.0, limits).least)


def cheapest_within(law: Law, ud: float, flops: float, loss: float, limits: Limits = FREE) -> Point | None:
    """The least compute, below `flops`, with which this loss is reached; None where it takes nearly all."""
    found = _least_reaching(
        lambda computes: allocate(law, ud, computes, limits), flops * np.exp(-9.0), flops, 49, 3, loss
    )
    return None if found is None or found.flops > 0.95 * flops else found


def _least_reaching(
    best: Callable[[Array], Point], low: float, high: float, number: int, passes: int, loss: float
) -> Point | None:
    """The least compute between two at which the best point reaches a loss, on ever finer grids."""
    for _ in range(passes):
        computes = np.geomspace(low, high, number)
        points = best(computes)
        reached = np.flatnonzero(points.loss <= loss)
        if not len(reached):
            return None
        first = int(reached[0])
        if not first:  # the least that is looked at
            break
        low, high = computes[first - 1], computes[first]
    return points.at(first).single()


_LEAST_FLOPS = 1e6


def least_compute(law: Law, ud: float, loss: float, limits: Limits) -> Point | None:
    """The least compute with which a law expects this loss, or None where none in sight does."""
    low, high = _in_reach(law, ud, limits)
    return _least_reaching(
        lambda computes: allocate_at_most(law, ud, computes, limits), low, high, 97, 6, loss
    )


def lowest_loss(law: Law, ud: float, limits: Limits) -> Point | None:
    """The plan with the lowest loss that this data allows; None where the limits leave none."""
    points = allocate_at_most(law, ud, np.geomspace(*_in_reach(law, ud, limits), 97), limits)
    if not np.isfinite(points.loss).any():
        return None
    return points.at(int(np.nanargmin(points.loss))).single()


def _in_reach(law: Law, ud: float, limits: Limits) -> tuple[float, float]:
    """Computes between which plans lie: no plan within a ceiling spends more than the first minimum."""
    first = first_minimum(law, ud, limits)
    low = max(ud, _LEAST_FLOPS)  # less than one FLOP per token is no budget
    return low, max(first.flops if first is not None else float(search_range(law, ud)[-1]), low)


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
    fewest, most = (float(np.atleast_1d(end)[0]) for end in limits.epochs_between(np.atleast_1d(product)))

    def is_worse(epochs: np.ndarray) -> np.ndarray:
        return np.asarray(column.loss(product / epochs, ud, epochs) > worst)

    ends = []
    for side in (-1.0, 1.0):
        reach = np.clip(start[:, None] * np.exp(side * _REACH), fewest, most)
        outside = is_worse(reach)
        rows, stop = np.arange(len(start)), outside.argmax(axis=1)
        inner = np.where(stop > 0, reach[rows, np.maximum(stop - 1, 0)], start)
        outer = reach[rows, stop]
        for _ in range(36):  # bisection
            middle = 0.5 * (inner + outer)
            worse = is_worse(middle[:, None])[:, 0]
            inner, outer = np.where(worse, inner, middle), np.where(worse, middle, outer)
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
    """What one more unique token and one more FLOP buy at a (continuous) optimum.

    At the optimum a shift between size and epochs changes nothing (envelope theorem), so holding the epochs
    gives the slopes; where a limit holds the size, the size is held instead.
    """
    by = law.slopes(best.params, ud, best.epochs)
    by_flops = float(by.epochs if limits.hold_size(best.params) else by.params)
    by_tokens = min(float(by.unique_tokens) - by_flops, 0.0)
    if abs(by_tokens) < 1e-9:  # below one epoch the corpus is not used up: more of it changes nothing
        by_tokens = 0.0
    flops = FLOPS_PER_PARAM_TOKEN * best.params * ud * best.epochs
    per_token, per_flop = by_tokens / ud, by_flops / float(flops)
    return ExchangeRate(per_token, per_flop, per_token / per_flop if by_flops < -1e-7 else None)


# -- where two weight decays swap places


class Crossings(NamedTuple):
    """Every compute at which the better of two laws changes, ascending; which is better below; where both
    have a plan.
    """

    flops: list[float]
    first_is_better_below: bool
    searched: tuple[float, float] | None  # None: the limits leave no compute at which both have a plan


def crossings(first: Law, second: Law, ud: float, computes: np.ndarray, limits: Limits = FREE) -> Crossings:
    """Every compute at which the better of two laws changes: in the lowest loss that each can reach with at
    most so much, where compute is a ceiling. Nothing guarantees a single crossing, so all are looked for.
    """

    def gaps(flops: np.ndarray) -> np.ndarray:
        return np.asarray(lowest(first, ud, flops, limits) - lowest(second, ud, flops, limits))

    gap = gaps(computes)
    decided = np.flatnonzero(np.isfinite(gap) & (gap != 0))  # NaN where limits leave no choice
    positive = gap[decided] > 0
    found = []
    for k in np.flatnonzero(positive[1:] != positive[:-1]):
        low, high = np.log(computes[decided[k : k + 2]])
        below, above = gap[decided[k : k + 2]]
        while high - low > 1e-7:  # each pass narrows the bracket 32-fold
            grid = np.linspace(low, high, 33)
            inner = np.concatenate([[below], gaps(np.exp(grid[1:-1])), [above]])
            planned = np.flatnonzero(np.isfinite(inner))
            grid, inner = grid[planned], inner[planned]
            after = max(int(np.argmax((inner > 0) == (above > 0))), 1)
            if (grid[after - 1], grid[after]) == (low, high):  # limits leave no plan in between
                break
            (low, high), (below, above) = grid[after - 1 : after + 1], inner[after - 1 : after + 1]
        # A straight line has the last word.
        found.append(float(np.exp(low + (high - low) * below / (below - above))))
    both = np.flatnonzero(np.isfinite(gap))
    searched = (float(computes[both[0]]), float(computes[both[-1]])) if len(both) else None
    return Crossings(found, not (len(positive) and positive[0]), searched)


def draws_crossings(
    weaker: Law, stronger: Law, ud: float, between: tuple[float, float], limits: Limits
) -> np.ndarray:
    """Where each pair of draws crosses between two computes; infinite where that lies further out on one
    side, NaN where they cross the other way round.
    """

    def gap_and_slope(ln_flops: np.ndarray, which: Any) -> tuple[np.ndarray, np.ndarray]:
        weak, strong = (_best_and_slope(one.draw(which), ud, ln_flops, limits) for one in (weaker, stronger))
        return weak[0] - strong[0], weak[1] - strong[1]

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


def _best_and_slope(
    law: Law, ud: float, ln_flops: np.ndarray, limits: Limits
) -> tuple[np.ndarray, np.ndarray]:
    """The best loss at a compute and its slope by ln(flops), at fixed epochs (envelope theorem) or, where a
    limit holds the size, at fixed size.
    """
    best = allocate(law, ud, np.exp(ln_flops), limits)
    held = limits.hold_size(best.params)
    ahead, behind = (
        law.loss(
            best.params * np.where(held, 1.0, np.exp(step)),
            ud,
            best.epochs * np.where(held, np.exp(step), 1.0),
        )
        for step in (_NEXT, -_NEXT)
    )
    return best.loss, (ahead - behind) / (2 * _NEXT)
