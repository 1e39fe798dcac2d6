r"""Extrapolation splits of a run table, by direction: larger models, more compute, more epochs, more data.

A table is cut along one quantity: the smallest share of its runs is what a law may see, the repeated runs
beyond are what it is tried on. **Runs that tie with the last one of the share belong to the part that is
seen**; computes within 10% are one budget, as in `backtest`, the other quantities tie within 2%.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from calibration.fitting.identify import is_identified
from calibration.fitting.solver import Array, flops_of, points_of

DIRECTIONS: dict[str, float] = {"size": 0.6, "compute": 0.7, "epochs": 0.7, "data": 0.6}  # share that is seen
_TIES = {"size": 0.02, "compute": 0.1, "epochs": 0.02, "data": 0.02}
_FEWEST = 4  # repeated runs beyond a cut, below which it is none


def quantity_along(table: pd.DataFrame, direction: str) -> Array:
    """What grows in this direction, for every run."""
    if direction == "compute":
        return flops_of(points_of(table))
    column = {"size": "params", "epochs": "epochs", "data": "unique_tokens"}[direction]
    return table[column].to_numpy(dtype=float)


def seen(table: pd.DataFrame, direction: str, share: float) -> Array:
    """The smallest share of the runs, ties with the last one included."""
    values = quantity_along(table, direction)
    last = np.sort(values)[max(int(np.ceil(share * len(values))), 1) - 1]
    return np.asarray(values <= last * (1 + _TIES[direction]))


def split(table: pd.DataFrame, direction: str, share: float) -> tuple[Array, Array] | None:
    """Which runs are seen and which are tried, if there are enough of both."""
    below = seen(table, direction, share)
    tried = ~below & (table["epochs"].to_numpy(dtype=float) > 1)
    return (below, tried) if tried.sum() >= _FEWEST and usable(table[below]) else None


def usable(table: pd.DataFrame) -> bool:
    """Whether a base law and something about repetition can be read off these runs."""
    places = table[["params", "unique_tokens", "epochs"]].to_numpy(dtype=float)
    return is_identified(places, "additive_1p")
