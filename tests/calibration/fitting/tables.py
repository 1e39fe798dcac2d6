"""A run table whose losses follow a law, for tests of how tables are read."""

from __future__ import annotations

import numpy as np
import pandas as pd

from planner.calibration import Calibration


def runs(sizes=(2e7, 8e7, 3.2e8), budgets=(1e8, 4e8, 1.6e9), epochs=(1, 2, 8), noise=0.003) -> pd.DataFrame:
    """Runs named 20m_100m_1ep and so on, with the losses of the shipped law and a little noise."""
    law, rng = Calibration.load(None).settings[0].law("additive_4p"), np.random.default_rng(0)
    rows = [
        {
            "run": f"{n / 1e6:.0f}m_{u / 1e6:.0f}m_{e}ep",
            "params": n,
            "unique_tokens": u,
            "epochs": float(e),
            "weight_decay": 0.1,
            "loss": float(law.loss(n, u, e) * np.exp(noise * rng.normal())),
        }
        for n in sizes
        for u in budgets
        for e in epochs
    ]
    return pd.DataFrame(rows)


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Whether a table was read as it is: the names and numbers of its runs."""
    assert list(found["run"]) == list(expected["run"])
    for column in ("params", "unique_tokens", "epochs", "weight_decay", "loss"):
        np.testing.assert_allclose(found[column], expected[column], rtol=1e-6)
