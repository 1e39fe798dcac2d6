"""Where slopes cross zero upwards, for many curves at once: Newton's method, safeguarded by bisection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_DIFFERENCE = 1e-6  # over which slopes are compared for their own slope
_MANY = 64  # curves from which it pays to go on without those that are done

# Of the curves with these numbers (or of all: `...`) at some points; curves are the last axis.
Slope = Callable[[np.ndarray, Any], np.ndarray]


def rising_root(
    slope: Slope, low: np.ndarray, high: np.ndarray, tolerance: Any, start: np.ndarray
) -> np.ndarray:
    """Where `slope` crosses zero upwards inside each [low, high], from a `start` that is known to be near.

    The error after a Newton step is about its square, so it is far below the last step, which is what is
    tested. Where it does not cross zero, that is the end from which the slope leads outside.
    """
    root, found, tolerance = start, np.array(high), np.broadcast_to(tolerance, start.shape)
    left: Any = ...
    for _ in range(100):
        here, ahead = slope(np.stack([root, root + _DIFFERENCE]), left)
        low, high = np.where(here < 0, root, low), np.where(here < 0, high, root)
        with np.errstate(divide="ignore", invalid="ignore"):
            guess = root - here * _DIFFERENCE / (ahead - here)
        guess = np.where((guess >= low) & (guess <= high), guess, 0.5 * (low + high))
        moved, root = np.abs(guess - root), guess
        done = moved <= tolerance
        found[left] = root
        if done.all():
            break
        if len(done) > _MANY and 2 * np.count_nonzero(done) > len(done):
            go_on = ~done
            left = np.flatnonzero(go_on) if left is ... else left[go_on]
            root, low, high, tolerance = (values[go_on] for values in (root, low, high, tolerance))
    return found
