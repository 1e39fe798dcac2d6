r"""How much of the compute to spend: a budget is a ceiling, and one model cannot always use it.

At fixed unique tokens the best loss first falls with compute, as models and epochs grow, and then rises again
where repetition costs more than size gains: the first minimum. Beyond it a plan spends less than the ceiling

- where the minimum is better than spending all by more than the law's own error, or
- where spending all costs more than twice as much and gains less than that error.

Otherwise it spends all. Limits on size and epochs may leave part of the compute without a use: what can be
spent is then the ceiling.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from planner.advice import Limit, Turn, spending_limit
from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate, rising_root
from planner.landscape import Landscape, landscape, search_range
from planner.laws import Array, Law
from planner.limits import FREE, Limits

FEW_TIMES = 2.0  # what more than so many times the compute must gain, at least, is the law's error
_CHEAPER = 9.0  # ln of how much less compute is looked at for a plan that is as good
# Where continuous epochs have their minimum: ln of the compute on either side, and how often it is divided.
_NEXT, _NARROWINGS = 0.3, 9
_FLAT = 1e-9  # slopes below that are those of a minimum already
_NEAR = 3  # whole epochs on either side of the best continuous ones that are tried
# How sizes are searched: ln of the factor on either side, steps, and the last step of the root in ln(size).
_ROOM, _SIZES, _EXACT = 6.0, 49, 1e-8

Doubt = Callable[[Array, Array, Array], Array]  # the law's error in nats, by params, unique tokens and epochs


class Spent(NamedTuple):
    """What is trained within each ceiling, and what it takes; NaN where the limits leave nothing to train."""

    flops: np.ndarray
    params: np.ndarray
    epochs: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray


def spend(law: Law, ud: Array, ceiling: Array, error: Doubt, limits: Limits = FREE) -> Spent:
    """The plan within each ceiling. `ud` and `ceiling` broadcast; `error` is the law's own."""
    tokens, most = np.broadcast_arrays(np.asarray(ud, dtype=float), np.asarray(ceiling, dtype=float))
    everything = spend_all(law, tokens, most, limits)
    if not limits.ceiling:
        return everything
    columns = [np.array(values, dtype=float) for values in everything]
    doubt = np.broadcast_to(error(everything.params, tokens, everything.epochs), tokens.shape)
    for corpus in sorted(set(tokens.ravel().tolist())):
        here = tokens == corpus
        first = first_minimum(law, corpus, limits)
        if first is None:
            continue
        less = here & _spends_less(first, everything.flops, everything.loss, doubt)
        own = (first.flops, first.params, first.epochs, corpus * first.epochs, first.loss)
        for column, value in zip(columns, own, strict=True):
            column[less] = value
    return Spent(*columns)


def lowest(law: Law, ud: float, ceiling: np.ndarray, limits: Limits = FREE) -> np.ndarray:
    """The lowest loss that can be reached with at most so much compute, as far as the first minimum."""
    spent = spend_all(law, ud, ceiling, limits)
    first = first_minimum(law, ud, limits) if limits.ceiling else None
    if first is None:
        return spent.loss
    return np.where(spent.flops > first.flops, np.fmin(spent.loss, first.loss), spent.loss)


def _spends_less(first: Turn, flops: np.ndarray, loss: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Where the first minimum is the better plan."""
    better = first.loss < loss - error
    hardly_worse = (flops > FEW_TIMES * first.flops * (1 + 1e-9)) & (first.loss - loss < error)
    return np.asarray((flops > first.flops) & (better | hardly_worse))


def spend_all(law: Law, ud: Array, ceiling: Array, limits: Limits = FREE) -> Spent:
    """The best plan at exactly the ceiling or, with limits that leave none there, at the most that can be
    spent.
    """
    flops = np.array(ceiling, dtype=float)
    best = allocate(law, ud, flops, limits)
    if not limits.ceiling or limits.max_params is None:
        return Spent(flops, *best)
    # The largest model allowed, for as many epochs as can be paid: for less than all it may be better than a
    # smaller one for an epoch more, and it is what remains where the limits leave no plan for all.
    epochs = _epochs_of_largest(ud, flops, limits)
    tokens, size = np.asarray(ud * epochs), np.full_like(epochs, limits.max_params)
    corner = (FLOPS_PER_PARAM_TOKEN * size * tokens, size, epochs, tokens, law.loss(size, ud, epochs))
    less = ~(best.loss <= corner[-1])  # also where there is no plan for all
    return Spent(*(np.where(less, a, b) for a, b in zip(corner, (flops, *best), strict=True)))


def _epochs_of_largest(ud: Array, ceiling: np.ndarray, limits: Limits) -> np.ndarray:
    """For how many epochs a ceiling pays with the largest model allowed."""
    assert limits.max_params is not None
    product = ceiling / (FLOPS_PER_PARAM_TOKEN * ud)
    epochs = np.minimum(product / limits.max_params, limits.max_epochs or np.inf)
    if limits.whole_epochs:
        epochs = np.where(epochs >= 1, np.floor(epochs * (1 + 1e-12)), epochs)
    return np.asarray(epochs)


@lru_cache(maxsize=256)  # it depends on the data and not on the compute: one corpus is asked about many times
def landscape_along(law: Law, ud: float, limits: Limits, include: float | None) -> Landscape:
    """The best plans along compute, with continuous epochs; `include` is a compute that must be in sight."""
    return landscape(law, ud, search_range(law, ud, include), limits)


@lru_cache(maxsize=256)
def limit_along(law: Law, ud: float, limits: Limits, include: float | None) -> Limit | None:
    """The spending limit along compute, with continuous epochs."""
    limits = limits.continuous()
    return spending_limit(law, ud, landscape_along(law, ud, limits, include), limits)


@lru_cache(maxsize=256)
def first_minimum(law: Law, ud: float, limits: Limits = FREE) -> Turn | None:
    """Where the best loss along compute is first lowest, or None where more compute helps as far as can be
    seen.
    """
    if law.declared.penalty is None:
        return None
    limit = limit_along(law, ud, limits, None)
    if not limits.whole_epochs:
        return None if limit is None else _settled(law, ud, limit.best, limits)
    return _among_whole_epochs(law, ud, limits, None if limit is None else limit.best)


def _settled(law: Law, ud: float, near: Turn, limits: Limits) -> Turn:
    """A minimum with continuous epochs to the last digits: where the loss along compute first rises."""
    by = law.slopes(near.params, ud, near.epochs)
    if max(abs(by.params), abs(by.epochs)) < _FLAT:
        return near
    low, high = near.flops * np.exp([-_NEXT, _NEXT])
    for _ in range(_NARROWINGS):
        along = landscape(law, ud, np.geomspace(low, high, 9), limits)
        after = int(np.argmax(along.loss_slope > 0))
        if not after:  # it rises, or falls, all along: as close as slopes can tell
            break
        low, high = along.flops[after - 1], along.flops[after]
    best = int(np.argmin(along.loss))
    return Turn(*(float(values[best]) for values in (along.flops, along.params, along.epochs, along.loss)))


def _among_whole_epochs(law: Law, ud: float, limits: Limits, near: Turn | None) -> Turn | None:
    """The lowest loss with whole epochs: next to the minimum of continuous ones, for each number the best
    size.

    Where those have none, the step from two epochs to one may still leave one: the compute in between is of
    no use.
    """
    fewest = 2.0 if near is None else max(np.floor(near.epochs) - _NEAR, 1.0)
    most = min(fewest + 2 * _NEAR + 1, np.floor(limits.max_epochs or np.inf))
    epochs = np.arange(fewest, most + 1)
    if not len(epochs):
        return None
    middle = float(law.optimal_params(ud)) if near is None else near.params
    sizes, is_inside = _best_sizes(law, ud, epochs, np.log(middle), limits)
    flops = FLOPS_PER_PARAM_TOKEN * ud * sizes * epochs
    loss = np.asarray(law.loss(sizes, ud, epochs))
    if near is None:  # only what no other number of epochs betters at the same compute is a minimum
        loss = np.where(is_inside & _is_best(law, ud, flops, loss, limits), loss, np.inf)
    elif limits.max_params is not None and not is_inside.all():  # the largest size ends a valley, too
        loss = np.where(_one_valley(epochs, flops, _is_best(law, ud, flops, loss, limits)), loss, np.inf)
    else:
        loss = np.where(is_inside, loss, np.inf)
    pick = int(np.argmin(loss))
    if not np.isfinite(loss[pick]):
        return None
    return Turn(*(float(values[pick]) for values in (flops, sizes, epochs, loss)))


def _is_best(law: Law, ud: float, flops: np.ndarray, loss: np.ndarray, limits: Limits) -> np.ndarray:
    """Where no other plan for the same compute is better."""
    return np.asarray(loss <= spend_all(law, ud, flops, limits).loss + 1e-9)


def _one_valley(epochs: np.ndarray, flops: np.ndarray, is_lowest: np.ndarray) -> np.ndarray:
    """Which minima belong to the first valley along compute: those of consecutive numbers of epochs, none of
    which takes more than a few times the compute of the one before.
    """
    inside = np.zeros(len(epochs), dtype=bool)
    last: int | None = None
    for place in np.argsort(flops):
        if not is_lowest[place]:
            continue
        if last is not None and (
            abs(epochs[place] - epochs[last]) > 1 or flops[place] > FEW_TIMES * flops[last]
        ):
            break
        inside[place], last = True, int(place)
    return inside


def _best_sizes(
    law: Law, ud: float, epochs: np.ndarray, around: float, limits: Limits
) -> tuple[np.ndarray, np.ndarray]:
    """For each number of epochs the first size from which a larger model is worse, and whether there is one.

    Where there is none within the limits, the largest size that they allow.
    """
    low = around - _ROOM if limits.min_params is None else np.log(limits.min_params)
    high = around + _ROOM if limits.max_params is None else np.log(limits.max_params)
    grid = np.linspace(low, max(high, low), _SIZES)

    def slope(ln_params: np.ndarray) -> np.ndarray:
        return np.asarray(law.slopes(np.exp(ln_params), ud, epochs).params)

    worse = slope(grid[:, None]) > 0
    after = np.where(worse.any(axis=0), worse.argmax(axis=0), _SIZES - 1)
    ends = grid[np.maximum(after - 1, 0)], grid[after]
    return np.exp(rising_root(slope, *ends, _EXACT)), np.asarray(worse.any(axis=0))


def cheapest_within(law: Law, ud: float, flops: float, loss: float, limits: Limits = FREE) -> Turn | None:
    """The least compute, below `flops`, with which this loss is reached; None where it takes nearly all of
    it.
    """
    low, high = np.log(flops) - _CHEAPER, np.log(flops)
    for _ in range(3):  # each pass narrows the bracket 48-fold
        computes = np.exp(np.linspace(low, high, 49))
        found = allocate(law, ud, computes, limits)
        reached = np.flatnonzero(found.loss <= loss)
        if not len(reached):
            return None
        first = int(reached[0])
        low, high = np.log(computes[max(first - 1, 0)]), np.log(computes[first])
    if computes[first] > 0.95 * flops:
        return None
    return Turn(float(computes[first]), *(float(v[first]) for v in (found.params, found.epochs, found.loss)))
