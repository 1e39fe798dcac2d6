"""The calibration of the public Dolma runs: what ships, and that it is what the runs give."""

from __future__ import annotations

import numpy as np
import pytest

from planner import Calibration, plan
from planner.evidence import Evidence
from tests.places import SHARED, script

KNOWN = "dolma-olmo3"


def test_a_plan_is_near_what_was_trained() -> None:
    """474M for 16 epochs at weight decay 0.8 reached 3.012 on as much data."""
    found = plan("740M", "3e19", calibration=KNOWN)
    assert 300e6 < found.params < 700e6
    assert 8 <= found.epochs <= 20
    assert 0.3 < found.weight_decay < 1.2
    assert found.intervals is not None
    assert found.intervals["loss"].low < 3.012 < found.intervals["loss"].high
    assert found.intervals["loss"].high - found.intervals["loss"].low < 0.3


def test_corners_that_nobody_trained_in_are_known() -> None:
    seen = Evidence.of(Calibration.load(KNOWN).settings)
    trained, corner = (474e6, 740e6, 32.0), (27e6, 59e9, 64.0)
    assert seen.growth(*trained) == 0
    assert sum(np.sum(values) for values in seen.distances(*corner).values()) == 0
    assert seen.growth(*corner) > 0.1


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the public run tables are not here")
def test_the_calibration_that_ships_is_what_the_runs_give() -> None:
    study = script("studies/dolma/make.py")
    fits = study.fit_over_weight_decays(study.one_rate(), ["weight_decay_premium"])
    shipped = Calibration.load(KNOWN).weight_decay_law
    assert shipped is not None
    parameters = shipped.laws["weight_decay_premium"].parameters
    assert fits.forms["weight_decay_premium"].parameters == pytest.approx(parameters, rel=1e-3)
