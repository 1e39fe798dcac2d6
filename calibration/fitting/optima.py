"""Whether a law can be asked for its optimum at all: a wild fit may want infinitely many epochs, or none."""

from __future__ import annotations

import numpy as np

from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.laws import Array, Law


def has_optimum(law: Law, ud: float, budgets: Array) -> np.ndarray:
    """Whether the search for an optimum has finite ends."""
    product = budgets / (FLOPS_PER_PARAM_TOKEN * ud)
    with np.errstate(all="ignore"):
        start = np.maximum(law.fresh_epochs(product, ud), 1.0)
        end = law.epochs_bound(product, law.loss(product / start, ud, start))
    return (start < 1e15) & (end < 1e15)
