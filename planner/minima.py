r"""Where the loss along compute is first lowest, at fixed unique tokens: the first minimum.

It depends on the law, the data and the limits but not on the compute, and one corpus is asked about many
times: so what was found is remembered. A plan needs it for several laws and amounts of data; `learn` finds
all of them at once, laws of different forms being stacked into one ensemble.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from planner.advice import Limit, Turn, limits_of, spending_limit, spending_limits, turning_point
from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.landscape import Landscape, landscape, search_range, search_ranges
from planner.laws import Law, stacked
from planner.limits import FREE, Limits
from planner.roots import rising_root
from planner.spent import spend_all

_KEPT = 256  # laws and corpora that are remembered
# Where continuous epochs have their minimum: ln of the compute on either side, and how often it is divided.
_NEXT, _NARROWINGS = 0.3, 9
_FLAT = 1e-9  # slopes below that are those of a minimum already
_NEAR = 3  # whole epochs on either side of the best continuous ones that are tried
# How sizes are searched: ln of the factor on either side, steps, and the last step of the root in ln(size).
_ROOM, _SIZES, _EXACT = 6.0, 49, 1e-8
_LITTLE = 1.01  # times the compute of a minimum, where the loss has to be higher again
FEW_TIMES = 2.0  # as much compute as one valley has room for between two numbers of epochs


class _Known(NamedTuple):
    """What is known of a law, a corpus and limits."""

    along: Landscape
    limit: Limit | None
    first: Turn | None


_known: dict[tuple[Law, float, Limits], _Known] = {}


def first_minimum(law: Law, ud: float, limits: Limits = FREE) -> Turn | None:
    """Where the best loss along compute is first lowest, or None where more compute helps as far as can be
    seen.
    """
    return _found(law, ud, limits).first if law.declared.penalty is not None else None


@lru_cache(maxsize=_KEPT)
def turn_along(law: Law, ud: float, limits: Limits, include: float | None) -> Turn | None:
    """The turning point along compute, with continuous epochs; `include` is a compute that must be in
    sight.
    """
    if law.declared.penalty is None:
        return None
    return turning_point(law, ud, _along(law, ud, limits, include), limits.continuous())


def limit_along(law: Law, ud: float, limits: Limits, include: float | None) -> Limit | None:
    """The spending limit along compute, with continuous epochs."""
    if law.declared.penalty is None:
        return None
    return _found(law, ud, limits).limit if include is None else _wider_limit(law, ud, limits, include)


def limit_of_any(
    laws: Sequence[Law], ud: float, limits: Limits, includes: Sequence[float | None]
) -> tuple[int, Limit] | None:
    """The spending limit where any of these laws may be chosen: the lowest of theirs, whose it is, and from
    which compute on one of them is lower still. None where another is lower there already: more compute goes
    on helping by that one.
    """
    own = [limit_along(law, ud, limits, include) for law, include in zip(laws, includes, strict=True)]
    lowest = min(((one.best.loss, place) for place, one in enumerate(own) if one is not None), default=None)
    if lowest is None:
        return None
    place = lowest[1]
    found = own[place]
    assert found is not None
    best, regained = found.best, [found.regained_flops]
    for other in (k for k in range(len(laws)) if k != place):
        along = _along(laws[other], ud, limits, includes[other])
        lower = along.loss < best.loss - 1e-9
        there = np.interp(np.log(best.flops), np.log(along.flops), along.loss)
        if there < best.loss - 1e-9:
            return None
        after = np.flatnonzero(lower & (along.flops > best.flops))
        regained.append(float(along.flops[after[0]]) if len(after) else None)
    return place, Limit(best, min((flops for flops in regained if flops is not None), default=None))


def lowest_losses(laws: Law, ud: float, limits: Limits) -> np.ndarray:
    """The lowest loss along compute by each law of an ensemble: at its spending limit or, where it has none,
    as far as is searched.
    """
    continuous = limits.continuous()
    corpora = np.full(laws.members, ud)
    computes = np.broadcast_to(rows := search_ranges(laws, corpora), (laws.members, rows.shape[1]))
    along = landscape(laws.member((slice(None), None)), corpora[:, None], computes, continuous)
    best = spending_limits(laws, corpora, along, continuous).loss
    least = np.where(np.isfinite(along.loss), along.loss, np.inf).min(axis=1)
    return np.where(np.isfinite(best), best, least)


def _along(law: Law, ud: float, limits: Limits, include: float | None) -> Landscape:
    """The landscape in which limits are looked for."""
    if include is None:
        return _found(law, ud, limits).along
    return _wider(law, ud, limits.continuous(), include)


@lru_cache(maxsize=_KEPT)
def _wider(law: Law, ud: float, limits: Limits, include: float | None) -> Landscape:
    return landscape(law, ud, search_range(law, ud, include), limits)


@lru_cache(maxsize=_KEPT)
def _wider_limit(law: Law, ud: float, limits: Limits, include: float) -> Limit | None:
    limits = limits.continuous()
    return spending_limit(law, ud, _wider(law, ud, limits, include), limits)


def learn(asked: Iterable[tuple[Law, float]], limits: Limits) -> None:
    """Find the first minima of these laws at these unique tokens, as far as they are not known yet."""
    new = [
        (law, ud)
        for law, ud in dict.fromkeys(asked)
        if law.declared.penalty is not None and (law, ud, limits) not in _known
    ]
    if len(_known) + len(new) > _KEPT:
        _known.clear()
    for group in stacked([law for law, _ in new]):
        pairs = [new[place] for place in group.places]
        found = _of_each(group.law, np.array([ud for _, ud in pairs]), limits)
        _known.update({(*pair, limits): one for pair, one in zip(pairs, found, strict=True)})


def _found(law: Law, ud: float, limits: Limits) -> _Known:
    known = _known.get((law, ud, limits))
    if known is None:
        known = _of_each(law, np.array([ud]), limits)[0]
        _known[law, ud, limits] = known
    return known


def _of_each(law: Law, ud: np.ndarray, limits: Limits) -> list[_Known]:
    """All of it, for each law of an ensemble at its own unique tokens."""
    continuous = limits.continuous()
    computes = np.broadcast_to(rows := search_ranges(law, ud), (len(ud), rows.shape[1]))
    along = landscape(law.member((slice(None), None)), ud[:, None], computes, continuous)
    best = limits_of(spending_limits(law, ud, along, continuous), along)
    if limits.whole_epochs:
        first = _among_whole_epochs(law, ud, limits, [None if one is None else one.best for one in best])
    else:
        first = [
            None if one is None else _settled(law.member(k), float(ud[k]), one.best, limits)
            for k, one in enumerate(best)
        ]
    each = [Landscape(*(values[k] for values in along)) for k in range(len(ud))]
    return [_Known(*known) for known in zip(each, best, first, strict=True)]


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


def _among_whole_epochs(
    law: Law, ud: np.ndarray, limits: Limits, near: Sequence[Turn | None]
) -> list[Turn | None]:
    """The lowest loss with whole epochs: next to the minimum of continuous ones, for each number the best
    size.

    Where those have none, the step from two epochs to one may still leave one: the compute in between is of
    no use.
    """
    middle = [None if one is None else (one.epochs, one.params) for one in near]
    fewest = np.array([2.0 if one is None else max(np.floor(one[0]) - _NEAR, 1.0) for one in middle])
    usual = np.broadcast_to(law.optimal_params(ud), len(ud))
    around = np.log([usual[k] if one is None else one[1] for k, one in enumerate(middle)])
    epochs = fewest[:, None] + np.arange(2 * _NEAR + 2)
    allowed = epochs <= np.floor(limits.max_epochs or np.inf)
    column = law.member((slice(None), None))
    sizes, is_inside = _best_sizes(column, ud[:, None], epochs, around, limits)
    flops = FLOPS_PER_PARAM_TOKEN * ud[:, None] * sizes * epochs
    loss = np.asarray(column.loss(sizes, ud[:, None], epochs))
    fine = allowed & is_inside
    limited = limits.max_params is not None and ~(is_inside | ~allowed).all(axis=1)
    nowhere = np.array([one is None for one in near])
    # Only what no other number of epochs betters at the same compute is a minimum; the largest size allowed
    # ends a valley, too.
    rows = np.flatnonzero(nowhere | limited)
    is_best = np.zeros_like(fine)
    if len(rows):
        is_best[rows] = _is_best(column.member(rows), ud[rows, None], flops[rows], loss[rows], limits)
    fine[nowhere] &= is_best[nowhere]
    for row in np.flatnonzero(~nowhere & limited):
        fine[row] = _one_valley(epochs[row], flops[row], allowed[row] & is_best[row])
    loss = np.where(fine, loss, np.inf)
    pick = loss.argmin(axis=1)
    return [
        Turn(*(float(values[row, at]) for values in (flops, sizes, epochs, loss)))
        if np.isfinite(loss[row, at])
        else None
        for row, at in enumerate(pick)
    ]


def _is_best(law: Law, ud: np.ndarray, flops: np.ndarray, loss: np.ndarray, limits: Limits) -> np.ndarray:
    """Where no other plan is better for the same compute, nor for a little more: what rises for no longer
    than that is no end of anything.
    """
    here, further = np.split(spend_all(law, ud, np.hstack([flops, flops * _LITTLE]), limits).loss, 2, axis=-1)
    return np.asarray((loss <= here + 1e-9) & ~(further < loss))


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
    law: Law, ud: np.ndarray, epochs: np.ndarray, around: np.ndarray, limits: Limits
) -> tuple[np.ndarray, np.ndarray]:
    """For each law and number of epochs the first size from which a larger model is worse, and whether there
    is one.

    Where there is none within the limits, the largest size that they allow.
    """
    low = around - _ROOM if limits.min_params is None else np.full_like(around, np.log(limits.min_params))
    high = around + _ROOM if limits.max_params is None else np.full_like(around, np.log(limits.max_params))
    grid = np.linspace(low, np.maximum(high, low), _SIZES)
    slopes = np.asarray(law.slopes(np.exp(grid)[:, :, None], ud, epochs).params)
    worse = slopes > 0
    rises = worse.any(axis=0)
    after = np.where(rises, worse.argmax(axis=0), _SIZES - 1)
    rows = np.arange(len(around))[:, None]
    before = np.maximum(after - 1, 0)
    low, high = (grid[place, rows].ravel() for place in (before, after))
    falls, climbs = (np.take_along_axis(slopes, place[None], axis=0).ravel() for place in (before, after))
    crosses = (falls < 0) & (climbs > 0)  # where a straight line does
    start = high - np.where(crosses, (high - low) * climbs / np.where(crosses, climbs - falls, 1.0), 0.0)
    each = law.spread(epochs.shape) if law.is_ensemble else law
    uds, passes = np.broadcast_to(ud, epochs.shape).ravel(), epochs.ravel()

    def slope(ln_params: np.ndarray, some: Any) -> np.ndarray:
        return np.asarray(each.member(some).slopes(np.exp(ln_params), uds[some], passes[some]).params)

    return np.exp(rising_root(slope, low, high, _EXACT, start)).reshape(epochs.shape), np.asarray(rises)
