"""What can be claimed about differences between means over few seeds.

Each configuration's noise is its own: large models at a high learning rate scatter thirty times as much as
small ones. The interval of a difference is Games and Howell's, which is Welch's with the quantile of the
largest of all differences, because which law is the best is read off the same runs. With one seed nothing is
known about noise and nothing is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from scipy import stats

from calibration.studies.outcomes import Configuration
from planner.intervals import LEVEL


def pooled(found: Iterable[Configuration]) -> tuple[float | None, int]:
    """The standard deviation over seeds, from all configurations together, and its degrees of freedom."""
    groups = [np.asarray(configuration.losses) for configuration in found]
    freedom = sum(len(losses) - 1 for losses in groups)
    if freedom < 1:
        return None, 0
    squares = sum(float(((losses - losses.mean()) ** 2).sum()) for losses in groups)
    return math.sqrt(squares / freedom), freedom


def half_interval(configurations: Sequence[Configuration], rivals: int, scale: float = 1.0) -> float | None:
    """Half of the interval of a difference of these configurations' means; None where one has a single seed.

    Welch and Satterthwaite: the freedom of a sum of variances that are each known from few seeds.
    """
    variances = [c.variance_of_mean for c in configurations if c.variance_of_mean is not None]
    if len(variances) < len(configurations):
        return None
    total = sum(variances)
    if total == 0:
        return 0.0
    freedom = total**2 / sum(
        v**2 / (len(c.losses) - 1) for v, c in zip(variances, configurations, strict=True)
    )
    return _quantile(rivals, math.floor(10 * freedom) / 10) * math.sqrt(total) * scale


@lru_cache(maxsize=1000)
def _quantile(rivals: int, freedom: float) -> float:
    """Of the largest difference between so many, in standard errors; between two, that is Student's t."""
    if rivals <= 2:
        return float(stats.t.ppf(0.5 + LEVEL / 2, freedom))
    return float(stats.studentized_range.ppf(LEVEL, rivals, freedom)) / math.sqrt(2)
