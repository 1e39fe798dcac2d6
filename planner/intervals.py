"""The one way in which intervals are taken here: the central 95% of refits."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.results import Interval

LEVEL = 0.95


def interval(values: Any, level: float = LEVEL) -> Interval | None:
    """The central `level` of the finite values, or None if fewer than half are finite."""
    everything = np.ravel(np.asarray(values, dtype=float))
    finite = everything[np.isfinite(everything)]
    if len(finite) < max(2, 0.5 * len(everything)):
        return None
    low, median, high = np.quantile(finite, [0.5 - level / 2, 0.5, 0.5 + level / 2])
    return Interval(low=float(low), median=float(median), high=float(high))
