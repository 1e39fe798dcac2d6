"""The one way in which intervals are taken here: the central 95% of refits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planner.records import made
from planner.results import Interval

LEVEL = 0.95
SURE = 0.8  # of predictive intervals: there are too few tries for the tails


def interval(values: Any, level: float = LEVEL) -> Interval | None:
    """The central `level` of the finite values, or None if fewer than half are finite."""
    everything = np.ravel(np.asarray(values, dtype=float))
    finite = everything[np.isfinite(everything)]
    if len(finite) < max(2, 0.5 * len(everything)):
        return None
    finite.sort()
    low, median, high = (_quantile(finite, share) for share in (0.5 - level / 2, 0.5, 0.5 + level / 2))
    return made(Interval, low=low, median=median, high=high)


def _quantile(ascending: np.ndarray, share: float) -> float:
    """The value below which this share lies, by a straight line between neighbours; numpy's takes longer."""
    place = share * (len(ascending) - 1)
    before = min(int(place), len(ascending) - 2)
    low, high = float(ascending[before]), float(ascending[before + 1])
    return low + (high - low) * (place - before)


def sure_width(runs: int) -> float:
    """Half the width of an interval of level `SURE`, in standard deviations that were measured on so many
    runs.

    That is a quantile of Student's t distribution, by its Cornish-Fisher expansion: right to 0.2% from five
    runs on.
    """
    z = 1.2815515655446004  # 90% of the normal distribution lie below
    return z + (z**3 + z) / (4 * runs) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * runs**2)


def normal_share(deviations: float) -> float:
    """The share of the normal distribution below so many standard deviations."""
    return 0.5 * (1 + math.erf(deviations / math.sqrt(2)))
