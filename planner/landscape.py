"""A law along compute, at fixed unique tokens: the lowest loss that each budget can reach, and its slope."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.allocation import FLOPS_PER_PARAM_TOKEN, Allocation, allocate
from planner.errors import InvalidInput
from planner.laws import Array, Law
from planner.limits import FREE, Limits

POINTS_PER_DECADE = 8
_ROUGH = 1e-3  # last step in ln(repeats) where what is found will be polished
# Searched: from a ten-thousandth of the compute at which the corpus is used up once, to ten million times it.
DECADES_BELOW, DECADES_ABOVE = 4, 7


class Landscape(NamedTuple):
    """A law's optimal loss along compute at fixed unique tokens (continuous epochs)."""

    flops: np.ndarray
    params: np.ndarray
    epochs: np.ndarray
    loss: np.ndarray
    loss_slope: np.ndarray  # d loss / d ln flops


def landscape(
    law: Law, ud: Array, flops: np.ndarray, limits: Limits = FREE, *, rough: bool = False
) -> Landscape:
    """Optimal loss and its slope at each compute, with continuous epochs; `rough` ones have six digits."""
    best = allocate(law, ud, flops, limits.continuous(), **({"last_step": _ROUGH} if rough else {}))
    return Landscape(flops, best.params, best.epochs, best.loss, loss_slope(law, ud, best, limits))


def loss_slope(law: Law, ud: Array, best: Allocation, limits: Limits) -> np.ndarray:
    """d loss / d ln flops at an optimum.

    By the envelope theorem that is dL/dln(params), or dL/dln(epochs) where a limit holds the size.
    """
    by = law.slopes(best.params, ud, best.epochs)
    if limits.min_params is None and limits.max_params is None:
        return np.asarray(by.params)
    return np.asarray(np.where(limits.hold_size(best.params), by.epochs, by.params))


def once_flops(law: Law, ud: float) -> float:
    """The compute with which the best model for fresh data uses the corpus exactly once."""
    return float(search_range(law, ud)[0]) * 10.0**DECADES_BELOW


def search_range(law: Law, ud: float, include: float | None = None) -> np.ndarray:
    """Where crossings, turning points and minima are looked for; `include` is never left outside."""
    return np.asarray(search_ranges(law, ud, include)[0])


def search_ranges(
    law: Law,
    ud: Array,
    include: float | None = None,
    per_decade: int = POINTS_PER_DECADE,
    kinds: np.ndarray | None = None,
) -> np.ndarray:
    """The same for each law of an ensemble, as rows of one length.

    Laws of one of the `kinds`, which are numbers from zero on, have the same number of computes; where others
    have more, NaN follows.
    """
    low, high = _ends(law, ud)
    if include is not None:
        low, high = np.minimum(low, np.log10(include) - 1), np.maximum(high, np.log10(include) + 1)
    steps = np.round((high - low) * per_decade)
    if kinds is None:
        return np.logspace(low, high, int(steps.max()) + 1, axis=1)
    most = np.zeros(int(kinds.max()) + 1)
    np.maximum.at(most, kinds, steps)
    share = np.arange(int(most.max()) + 1) / most[kinds, None]
    return np.where(share <= 1, 10 ** (low[:, None] + (high - low)[:, None] * share), np.nan)


def _ends(law: Law, ud: Array) -> tuple[np.ndarray, np.ndarray]:
    """log10 of the compute from which and up to which each law is searched."""
    with np.errstate(all="ignore"):
        once = np.atleast_1d(np.log10(FLOPS_PER_PARAM_TOKEN * ud * law.optimal_params(ud)))
    if not np.all(np.isfinite(once)):
        raise InvalidInput(
            "a law of the calibration has no finite best model for so many unique tokens: its coefficients "
            "cannot be right."
        )
    return once - DECADES_BELOW, once + DECADES_ABOVE


def within_search(law: Law, ud: float, flops: float) -> bool:
    """Whether a budget is so far inside the usual search of every law that to include it changes nothing."""
    low, high = _ends(law, ud)
    return bool(low.max() <= np.log10(flops) - 1 and np.log10(flops) + 1 <= high.min())


def outside_search(law: Law, ud: float, flops: float) -> float | None:
    """The budget, if the usual search along compute would not cover it."""
    low, high = _ends(law, ud)
    return None if low[0] <= np.log10(flops) <= high[0] else flops
