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
    slope: Slope, low: np.ndarray, high: np.ndarray, tolerance: Any, start: np.ndarray | None = None
) -> np.ndarray:
    """Where `slope` crosses zero upwards inside each [low, high], from a `start` that is known to be near.

    The error after a Newton step is about its square, so it is far below the last step, which is what is
    tested. Where nothing is known and the slope does not rise above zero, that is the upper end.
    """
    if start is None:
        root = 0.5 * (low + high)
        here, ahead, at_end = slope(np.stack([root, root + _DIFFERENCE, high]), ...)
        held = at_end <= 0
    else:
        root, held = start, np.zeros(len(start), dtype=bool)
        here, ahead = slope(np.stack([root, root + _DIFFERENCE]), ...)
    found, tolerance, end = np.array(high), np.broadcast_to(tolerance, root.shape), high
    left: Any = ...
    for _ in range(100):
        low, high = np.where(here < 0, root, low), np.where(here < 0, high, root)
        with np.errstate(divide="ignore", invalid="ignore"):
            guess = root - here * _DIFFERENCE / (ahead - here)
        guess = np.where((guess >= low) & (guess <= high), guess, 0.5 * (low + high))
        moved, root = np.abs(guess - root), np.where(held, end, guess)
        done = held | (moved <= tolerance)
        found[left] = root
        if done.all():
            break
        if len(done) > _MANY and 2 * np.count_nonzero(done) > len(done):
            go_on = ~done
            left = np.flatnonzero(go_on) if left is ... else left[go_on]
            columns = (root, low, high, end, held, tolerance)
            root, low, high, end, held, tolerance = (values[go_on] for values in columns)
        here, ahead = slope(np.stack([root, root + _DIFFERENCE]), left)
    return found
