"""Extrapolation splits: what is seen, what is tried, and how forms are weighed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.simulated import grid_table
from planner import Law
from studies.tournament.extrapolation import quantity_along, seen, split

HILL = {"E": 1.9, "A": 420.0, "alpha": 0.34, "B": 3600.0, "beta": 0.37}
TRUTH = Law("hill_4p", {**HILL, "P": 0.02, "delta": 1.2, "c": 0.02, "gamma": 1.1})
FEW = ("chinchilla", "exponential_decay", "additive_4p", "hill_4p")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return grid_table(TRUTH, 90, 0.002, np.random.default_rng(3))


def test_ties_with_the_last_run_are_seen(table: pd.DataFrame) -> None:
    for direction in ("size", "compute", "epochs", "data"):
        below = seen(table, direction, 0.6)
        values = quantity_along(table, direction)
        assert below.mean() >= 0.6
        assert values[~below].min() > values[below].max()
    runs = pd.DataFrame({"params": [1e8] * 6 + [2e8] * 4, "unique_tokens": 1e9, "epochs": 2.0})
    assert seen(runs, "size", 0.3).sum() == 6
    close = runs.assign(params=[1.0, 2.0, 3.0, 3.1, 3.25, 3.4, 5, 6, 7, 8])
    assert seen(close, "compute", 0.3).sum() == 5  # within 10% of the third: one budget


def test_only_repeated_runs_beyond_the_cut_are_tried(table: pd.DataFrame) -> None:
    below, tried = split(table, "size", 0.6) or (np.array([]), np.array([]))
    assert not (below & tried).any()
    assert (table["epochs"][tried] > 1).all()
    assert split(table, "size", 1.0) is None  # nothing is left
