"""What is trained within a ceiling of compute, and the plan that spends all of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.laws import Array, Law
from planner.limits import FREE, Limits


class Spent(NamedTuple):
    """What is trained within each ceiling, and what it takes; NaN where the limits leave nothing to train."""

    flops: np.ndarray
    params: np.ndarray
    epochs: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray


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
