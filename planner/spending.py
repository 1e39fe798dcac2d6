r"""How much of the compute to spend: a budget is a ceiling, and one model cannot always use it.

At fixed unique tokens the best loss first falls with compute, as models and epochs grow, and then rises again
where repetition costs more than size gains: the first minimum. Beyond it a plan spends less than the ceiling

- where the minimum is better than spending all by more than the law's own error, or
- where spending all costs more than twice as much and gains less than that error.

Otherwise it spends all. Limits on size and epochs may leave part of the compute without a use: what can be
spent is then the ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from planner.advice import Turn
from planner.allocation import allocate
from planner.laws import Array, Law, stacked
from planner.limits import FREE, Limits
from planner.minima import first_minimum, learn
from planner.spent import Spent, spend_all

FEW_TIMES = 2.0  # what more than so many times the compute must gain, at least, is the law's error
_CHEAPER = 9.0  # ln of how much less compute is looked at for a plan that is as good

Doubt = Callable[[Array, Array, Array], Array]  # the law's error in nats, by params, unique tokens and epochs


def spend(law: Law, ud: Array, ceiling: Array, error: Doubt, limits: Limits = FREE) -> Spent:
    """The plan within each ceiling. `ud` and `ceiling` broadcast; `error` is the law's own."""
    tokens, most = np.broadcast_arrays(np.asarray(ud, dtype=float), np.asarray(ceiling, dtype=float))
    everything = spend_all(law, tokens, most, limits)
    if not limits.ceiling:
        return everything
    columns = [np.array(values, dtype=float) for values in everything]
    doubt = np.broadcast_to(error(everything.params, tokens, everything.epochs), tokens.shape)
    corpora = sorted(set(tokens.ravel().tolist()))
    learn(((law, corpus) for corpus in corpora), limits)
    for corpus in corpora:
        here = tokens == corpus
        first = first_minimum(law, corpus, limits)
        if first is None:
            continue
        less = here & _spends_less(first, everything.flops, everything.loss, doubt)
        own = (first.flops, first.params, first.epochs, corpus * first.epochs, first.loss)
        for column, value in zip(columns, own, strict=True):
            column[less] = value
    return Spent(*columns)


class Asked(NamedTuple):
    """A ceiling, and by which law it is to be spent."""

    law: Law
    error: Doubt
    ud: float
    ceiling: float


class Within(NamedTuple):
    """The plan within a ceiling, and the lowest loss of any plan within it, as far as the first minimum."""

    plan: Spent
    least: float


def spend_each(asked: Sequence[Asked], limits: Limits = FREE) -> list[Within]:
    """The plan within each ceiling, each by a law of its own: what `spend` finds, all at once."""
    if limits.ceiling:
        learn([(one.law, one.ud) for one in asked], limits)
    found: dict[int, Within] = {}
    for group in stacked([one.law for one in asked]):
        some = [asked[place] for place in group.places]
        tokens, ceilings = (
            np.array(values) for values in zip(*((a.ud, a.ceiling) for a in some), strict=True)
        )
        everything = spend_all(group.law, tokens, ceilings, limits)
        for row, (place, one) in enumerate(zip(group.places, some, strict=True)):
            found[int(place)] = _within(one, Spent(*(np.array(values[row]) for values in everything)), limits)
    return [found[place] for place in range(len(asked))]


def _within(asked: Asked, everything: Spent, limits: Limits) -> Within:
    """What the rule makes of one ceiling and the plan that spends all of it."""
    first = first_minimum(asked.law, asked.ud, limits) if limits.ceiling else None
    if first is None or not everything.flops > first.flops:
        return Within(everything, float(everything.loss))
    least = float(np.fmin(everything.loss, first.loss))
    doubt = asked.error(everything.params, asked.ud, everything.epochs)
    if not _spends_less(first, everything.flops, everything.loss, doubt):
        return Within(everything, least)
    own = (first.flops, first.params, first.epochs, asked.ud * first.epochs, first.loss)
    return Within(Spent(*(np.array(value) for value in own)), least)


def lowest(laws: Sequence[Law], ud: float, ceiling: np.ndarray, limits: Limits = FREE) -> np.ndarray:
    """The lowest loss that each law can reach with at most so much compute, as far as its first minimum, one
    row for each.
    """
    losses = np.empty((len(laws), len(ceiling)))
    for group in stacked(laws):
        spent = spend_all(group.law.member((slice(None), None)), ud, ceiling[None], limits)
        firsts = [first_minimum(laws[k], ud, limits) if limits.ceiling else None for k in group.places]
        low, flops = (
            np.array([[np.inf if one is None else getattr(one, name)] for one in firsts])
            for name in ("loss", "flops")
        )
        losses[group.places] = np.where(spent.flops > flops, np.fmin(spent.loss, low), spent.loss)
    return losses


def _spends_less(first: Turn, flops: np.ndarray, loss: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Where the first minimum is the better plan."""
    better = first.loss < loss - error
    hardly_worse = (flops > FEW_TIMES * first.flops * (1 + 1e-9)) & (first.loss - loss < error)
    return np.asarray((flops > first.flops) & (better | hardly_worse))


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
