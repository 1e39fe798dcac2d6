"""No dead end in the loop: whatever a sweep trained, a fit gives a plan, and says what it leans on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calibration import fit
from calibration.fitting.design.proposal import expected_information
from planner import plan
from planner.inputs import InvalidInput
from planner.laws import Law

# Tiny models of a vocabulary of 512, whose floor no run comes near.
TRUTH = Law(
    "additive_4p",
    {
        "E": 0.3,
        "A": 18.0,
        "alpha": 0.2,
        "B": 38.0,
        "beta": 0.25,
        "P": 1e-4,
        "delta": 1.0,
        "kappa": 0.8,
        "gamma": 0.6,
    },
)


def study(runs: int = 82) -> pd.DataFrame:
    """Runs of 20k to 160k parameters at two weight decays."""
    rng = np.random.default_rng(0)
    cells = [
        (n, u, e, decay)
        for n in (2e4, 4e4, 8e4, 1.6e5)
        for u in (3e4, 1e5, 3e5)
        for e in (1, 2, 4, 8)
        for decay in (0.1, 1.0)
    ]
    rows = [
        (f"run-{i}", *cell, float(TRUTH.loss(*cell[:3]) * np.exp(0.01 * rng.normal())))
        for i, cell in enumerate(cells[:runs])
    ]
    columns = ["run", "params", "unique_tokens", "epochs", "weight_decay", "loss"]
    return pd.DataFrame(rows, columns=columns)


@pytest.mark.slow
def test_a_study_of_tiny_models_leads_to_a_plan() -> None:
    table = study()
    with pytest.raises(InvalidInput, match="E ran to the end of the range"):
        fit(table, prior="none", bootstrap=0)
    found = plan(ud=3e5, flops=1e12, calibration=fit(table, vocab_size=512, bootstrap=200), weight_decay=0.1)
    true = float(TRUTH.loss(found.params, min(found.tokens, 3e5), found.epochs))
    assert found.loss == pytest.approx(true, rel=0.05)
    assert found.loss < np.log(512)


@pytest.mark.parametrize("epochs", [1, 4])
def test_a_grid_that_identifies_nothing_still_leads_to_a_plan_and_was_foreseen(epochs: int) -> None:
    table = study()
    table = table[(table["weight_decay"] == 0.1) & (table["epochs"] <= epochs) & (table["params"] < 5e4)]
    (seen,) = expected_information(table)
    assert seen.identified == ()
    assert "will lean on its prior" in seen.lacks
    found = plan(ud=3e5, flops=1e11, calibration=fit(table, vocab_size=512, bootstrap=100))
    true = float(TRUTH.loss(found.params, min(found.tokens, 3e5), found.epochs))
    assert found.loss == pytest.approx(true, rel=0.15)
    assert any(warning.code == "fit" for warning in found.warnings)
