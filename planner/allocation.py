r"""Where the compute should go: the global minimum of a law along the iso-FLOP curve.

With `flops = 6 params tokens` and `tokens = ud * epochs`, a budget fixes the product

    params * epochs = flops / (6 ud) = K,

so the epochs are the only freedom and `loss(K / e, ud, e)` is a curve in one variable. It can have several
local minima: repetition pays at first, then costs, and shrinking the model makes overfitting cheaper again.
The search is therefore exhaustive, not a descent:

1. At or below one epoch no token is seen twice and every form is its Chinchilla law, whose optimum is known
   in closed form. A dial adds the premium of its memory there, and is searched as above one epoch.
2. Above one epoch the curve is tabulated on a grid even in ln(e - 1), on which every term is close to a
   straight line both near e = 1 and far from it, so that nothing happens between two grid points. The grid
   ends where the capacity term and what repeats leave of the data term exceed a loss already reached:
   nothing beyond can be better.
3. Each local minimum of the table is polished to a root of the exact slope. Whole epochs are the neighbours
   of those roots; limits on size and epochs add their end points.

All budgets are solved at once; nothing here loops over budgets.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from planner.errors import InvalidInput
from planner.isoflop import Block, Table
from planner.laws import Array, Law, Mixture
from planner.limits import FREE, Limits
from planner.roots import rising_root
from planner.units import scientific, short

FLOPS_PER_PARAM_TOKEN = 6.0
_SMALLEST_REPEAT = 1e-9  # repeats below this are one epoch for every purpose
_NEAR_ONE = 1e-2
_GRID_STEP = 0.2  # in ln(repeats)
_COARSE_STEP = 0.4  # the same where a table takes longer: minima are polished either way
_SUBSETS = 0.25 * np.arange(-36.0, 1.0)  # ln of the shares of the corpus that are tried
_ALMOST_ONE = 1e-9  # -ln of the last share of the corpus below all of it
# Up to this many (budget, whole epochs) pairs are simply all tried: the fewer the more one of them takes.
_SWEEP, _SHORT_SWEEP = 20_000, 2_000
_LAST_STEP, _LAST_EPOCHS = 1e-7, 1e-10  # of Newton's method, in ln(repeats) and in epochs
_PROBES = np.array([1.0, 4.0, 16.0, 64.0])  # epochs that are tried first, to see how far to look
_NEIGHBOURS = np.array([[-1.0], [0.0], [1.0]])
_BEYOND = 3  # columns of a table past that


class Allocation(NamedTuple):
    """The best split of each budget, as arrays; NaN where the limits leave no choice at all."""

    params: np.ndarray
    epochs: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray


def allocate(
    law: Law, ud: Array, flops: Array, limits: Limits = FREE, last_step: float = _LAST_STEP
) -> Allocation:
    """The loss-minimising (params, epochs) of each budget. `ud`, `flops` and the law's parameters broadcast.

    Whole epochs are whole numbers, or a fraction below one where data is plentiful. Others are right to about
    the square of the last step.
    """
    if isinstance(law, Mixture):
        return Allocation(*law.each_of(lambda some, u, c: allocate(some, u, c, limits), ud, flops))
    ud, flops = np.broadcast_arrays(np.asarray(ud, dtype=float), np.asarray(flops, dtype=float))
    shape, laws = ud.shape, law
    if laws.is_ensemble:
        shape = np.broadcast_shapes(shape, *(np.shape(value) for value in laws.values.values()))
        ud, flops = np.broadcast_to(ud, shape), np.broadcast_to(flops, shape)
        law = laws.spread(shape)
    ud, flops = ud.ravel(), flops.ravel()

    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    fewest, most = limits.epochs_between(product)
    # A hair of slack: rounding must not exclude a limit that is met exactly.
    budgets = _Budgets(product, ud, fewest * (1 - 1e-12), most * (1 + 1e-12))
    with np.errstate(over="ignore", invalid="ignore"):  # a wild refit may predict an infinite loss somewhere
        table = Table(laws, shape, product, ud, _furthest(law, laws, shape, budgets, limits))
        furthest = float(np.max(table.furthest, initial=1.0))
        pairs = len(product) * furthest
        if limits.whole_epochs and pairs <= (_SWEEP if law.is_separable else _SHORT_SWEEP):
            epochs, loss = _sweep(law, table, budgets, furthest)
        else:
            epochs, loss = _search(law, table, budgets, furthest, None if limits.whole_epochs else last_step)
    return Allocation(*(a.reshape(shape) for a in (product / epochs, epochs, ud * epochs, loss)))


def _furthest(law: Law, laws: Law, shape: tuple[int, ...], budgets: _Budgets, limits: Limits) -> np.ndarray:
    """The most epochs that can be best at each budget: beyond them capacity and data alone are more than a
    loss that can be reached. `laws` are those that are spread out in `law`.
    """
    product, ud, low, high = budgets
    if not limits.bounded:
        whole = product.shape if law is laws else shape
        table = np.asarray(laws.on_isoflop(product.reshape(whole), ud.reshape(whole), _PROBES))
        losses = np.moveaxis(table, -1, 0).reshape(len(_PROBES), -1)
    else:
        probes, once = _PROBES[:, None], np.minimum(np.maximum(1.0, low), high)
        tried = np.where((low <= probes) & (probes <= high), probes, once)
        losses = np.asarray(law.loss(product / tried, ud, tried))
    return np.asarray(law.epochs_bound(product, ud, np.fmin.reduce(losses)))


def no_choice(ud: float, flops: float, limits: Limits) -> InvalidInput:
    """Why the limits leave nothing to choose at this budget."""
    fewest, most = (float(end) for end in limits.epochs_between(flops / (FLOPS_PER_PARAM_TOKEN * ud)))
    if fewest <= most:
        return InvalidInput(
            f"no whole number of epochs lies between {fewest:.3g} and {most:.3g}, which is what the limits "
            f"allow at this budget; widen ‹min_params›, ‹max_params› or ‹max_epochs›, "
            f"or ask for ‹epochs›='continuous'."
        )
    return InvalidInput(
        f"the limits leave no choice: with ‹max_params› {short(limits.max_params or math.inf)} it takes "
        f"{fewest:.3g} epochs to spend {scientific(flops)} FLOPs on {short(ud)} tokens, "
        f"but at most {most:.3g} are allowed; raise ‹max_params› or ‹max_epochs›, or spend less."
    )


def has_optimum(law: Law, ud: Array, flops: Array) -> np.ndarray:
    """Whether the search has finite ends: a wild fit may want infinitely many epochs, or none."""
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    with np.errstate(all="ignore"):
        start = np.maximum(law.fresh_epochs(product, ud), 1.0)
        end = law.epochs_bound(product, ud, law.loss(product / start, ud, start))
    return np.asarray((start < 1e15) & (end < 1e15))


class _Budgets(NamedTuple):
    product: np.ndarray  # params * epochs
    ud: np.ndarray
    low: np.ndarray  # the fewest and the most epochs that the limits allow
    high: np.ndarray


def _subset(law: Law, budgets: _Budgets) -> np.ndarray:
    """The best choice of at most one epoch, a single minimum, as every form is its base law there; or NaN."""
    if law.declared.premium is not None:
        fresh = _fresh_with_premium(law, budgets)
    else:
        fresh = law.fresh_epochs(budgets.product, budgets.ud)
    best = np.minimum(np.maximum(fresh, budgets.low), np.minimum(budgets.high, 1.0))
    return np.where(best >= budgets.low, best, np.nan)


def _or_less(
    law: Law, budgets: _Budgets, epochs: np.ndarray, loss: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Epochs from one on and their loss or, where that is no worse, the best part of the corpus. It is looked
    for where it could be: where more than one epoch is best, every form but a dial is worse below.
    """
    dial = law.declared.premium is not None
    worse = law.fresh_bound(budgets.product, budgets.ud) > loss if dial else epochs > 1
    rows = np.flatnonzero(~worse)
    if not len(rows):
        return epochs, loss
    law, some = law.member(rows), _Budgets(*(values[rows] for values in budgets))
    subset = _subset(law, some)
    lost = np.asarray(law.loss(some.product / subset, some.ud, subset))
    below = (subset < 1) & ~(lost > loss[rows])
    epochs[rows[below]], loss[rows[below]] = subset[below], lost[below]
    return epochs, loss


def _fresh_with_premium(law: Law, budgets: _Budgets) -> np.ndarray:
    """The best epochs up to one under a dial, whose premium grows with the tokens in use."""
    column, shares = law.member((slice(None), None)), np.exp(_SUBSETS)
    table = column.loss(budgets.product[:, None] / shares, budgets.ud[:, None], shares)
    pick = table.argmin(axis=1)
    inside = np.clip(pick, 1, len(_SUBSETS) - 2)
    places = inside + np.arange(-1, 2)[:, None]
    ln_shares, losses = _SUBSETS[places], table[np.arange(len(pick)), places]
    product, ud = budgets.product, budgets.ud

    def slope(ln_epochs: np.ndarray, some: Any) -> np.ndarray:
        epochs = np.exp(ln_epochs)
        by = law.member(some).slopes(product[some] / epochs, ud[some], epochs)
        return np.asarray(by.epochs - by.params)

    # At one epoch exactly a slope is that of repetition.
    start = np.where(pick == inside, _lowest(ln_shares, losses), _SUBSETS[pick])
    low, start, high = (np.minimum(ends, -_ALMOST_ONE) for ends in (ln_shares[0], start, ln_shares[2]))
    best = rising_root(slope, low, high, _LAST_STEP, start)
    return np.where(best < -2 * _ALMOST_ONE, np.exp(best), 1.0)


def _sweep(law: Law, losses: Table, budgets: _Budgets, furthest: float) -> tuple[np.ndarray, np.ndarray]:
    """The best whole epochs by trying them all, as the paper does, or the best fraction below one; and their
    loss.
    """
    product, ud, low, high = budgets
    every = np.arange(1.0, furthest + 2.0)
    table = np.full((len(product), len(every)), np.inf)
    for rows, some in losses.blocks(every, 2):
        table[rows, : some.shape[1]] = some
    if low.any() or np.isfinite(high).any():
        table[(every < low[:, None]) | (every > high[:, None])] = np.inf
    pick = table.argmin(axis=1)
    least = table[np.arange(len(product)), pick]
    epochs = every[pick]
    loss = np.asarray(law.loss(product / epochs, ud, epochs))
    epochs, loss = np.where(np.isfinite(least), epochs, np.nan), np.where(np.isfinite(least), loss, np.nan)
    return _or_less(law, budgets, epochs, loss)


def _search(
    law: Law, losses: Table, budgets: _Budgets, furthest: float, last_step: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The best epochs among all local minima and limits, and their loss; NaN where the limits leave no
    choice.

    Without a last step these are whole.
    """
    rows, minima = _repeating_minima(law, losses, furthest, last_step)
    whole = last_step is None
    low, high = (np.ceil(budgets.low), np.floor(budgets.high)) if whole else (budgets.low, budgets.high)
    dial = law.declared.premium is not None
    everyone = [] if dial else [_subset(law, budgets)]
    if dial or low.any():
        everyone.append(np.maximum(low, 1.0))
    if np.isfinite(high).any():
        everyone.append(high)
    best, least = _best(law, budgets, slice(None), np.stack(everyone))
    near = np.round(minima) + _NEIGHBOURS if whole else minima[None]
    epochs, loss = _best(law.member(rows), budgets, rows, np.maximum(near, 1.0))
    order = np.lexsort((epochs, loss, rows))  # best first within each budget; the fewer epochs win a tie
    first = order[np.flatnonzero(np.diff(rows[order], prepend=-1))]
    row, epochs, loss = rows[first], epochs[first], loss[first]
    better = ~(loss >= least[row]) & np.isfinite(epochs)
    best[row[better]], least[row[better]] = epochs[better], loss[better]
    return _or_less(law, budgets, best, least) if dial else (best, least)


def _best(law: Law, budgets: _Budgets, rows: Any, epochs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of several numbers of epochs for each of some budgets the best that is allowed, and its loss; the
    fewest win a tie, and NaN is nothing.
    """
    product, ud, low, high = (values[rows] for values in budgets)
    epochs = np.where((epochs >= low) & (epochs <= high) & (epochs > 0) & np.isfinite(epochs), epochs, np.nan)
    loss = np.asarray(law.loss(product / epochs, ud, epochs))
    if len(epochs) == 1:
        return epochs[0], loss[0]
    pick = np.lexsort((epochs, loss), axis=0)[0]
    everyone = np.arange(len(pick))
    return epochs[pick, everyone], loss[pick, everyone]


def _repeating_minima(
    law: Law, losses: Table, furthest: float, last_step: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """All local minima of each iso-FLOP curve above one epoch, as (budget index, epochs)."""
    cheap = law.is_separable and not law.is_ensemble
    ln_repeats = _grid(furthest - 1, _GRID_STEP if cheap else _COARSE_STEP, whole=last_step is None)
    grid = 1.0 + np.exp(ln_repeats)
    found = [_turns(block, ln_repeats) for block in losses.blocks(grid, _BEYOND)]
    row, low, start, high = (np.concatenate(columns) for columns in zip(*found, strict=True))
    row = row.astype(int)
    laws, products, uds = law.member(row), losses.product[row], losses.ud[row]

    def slope(ln_repeat: np.ndarray, some: Any) -> np.ndarray:
        epochs = 1.0 + np.exp(ln_repeat)
        by = laws.member(some).slopes(products[some] / epochs, uds[some], epochs)
        return np.asarray(by.epochs - by.params)  # d loss / d ln epochs with params * epochs held

    # Whole epochs only need the minimum to a quarter of an epoch: its integer neighbours are tried anyway.
    # Otherwise the last step is small (and the error far less), next to one epoch as a number of epochs.
    tolerance = 0.25 * np.exp(-high) if last_step is None else last_step + _LAST_EPOCHS * np.exp(-low)
    return row, 1.0 + np.exp(rising_root(slope, low, high, tolerance, start))


def _turns(block: Block, ln_repeats: np.ndarray) -> np.ndarray:
    """Where the rows of a table turn from falling to rising: row, and ln(repeats) before, at the lowest point
    of a parabola, and after.
    """
    losses = block.losses
    falling = losses[:, 1:] < losses[:, :-1]
    row, column = np.nonzero(falling[:, :-1] > falling[:, 1:])
    places = column + np.arange(3)[:, None]
    x = ln_repeats[places]
    return np.array([block.rows[row], x[0], _lowest(x, losses[row, places]), x[2]])


def _lowest(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where parabolas through three points each are lowest, the middle ones being the lowest of them."""
    with np.errstate(divide="ignore", invalid="ignore"):
        before, after = (y[1:] - y[:-1]) / (x[1:] - x[:-1])
        lowest = 0.5 * (x[0] + x[1]) - 0.5 * (x[2] - x[0]) * before / (after - before)
    return np.asarray(np.where(np.isfinite(lowest), lowest, x[1]))


def _grid(most_repeats: float, step: float, *, whole: bool) -> np.ndarray:
    """ln(repeats) from next to nothing to beyond `most_repeats`, coarse where the curve is a pure power.

    For whole epochs all that is next to one epoch is one epoch.
    """
    near = np.arange(np.log(_SMALLEST_REPEAT), np.log(_NEAR_ONE), np.inf if whole else 3.5 * step)
    far = np.arange(np.log(_NEAR_ONE), max(np.log(max(most_repeats, _NEAR_ONE)), 0.0) + 3 * step, step)
    return np.concatenate([near, far])
