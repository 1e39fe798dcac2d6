"""The study of averaging at real scale: what ships is what it gives, and its page says what it prints."""

from __future__ import annotations

import numpy as np
import pytest

from planner import Calibration
from tests.places import SHARED, page, script

MAKE = "studies/averaging/make.py"
TABLES = SHARED / "data" / "kim2025_dclm_ensembles.csv"
needs_tables = pytest.mark.skipif(not TABLES.exists(), reason=f"no public run tables: {TABLES}")


@needs_tables
@pytest.mark.slow
def test_each_real_size_left_out_and_what_ships() -> None:
    study = script(MAKE)
    table = study.ladders()
    rows = study.fitted_rows(table)
    errors = study.left_out(study.CHOSEN, table, rows)
    assert np.abs(np.expm1(errors["ln_error"])).max() < 0.15
    assert np.abs(errors["five_error"]).max() < 0.031
    found = study.shipped(table, study.fit(study.CHOSEN, rows))
    for name in study.SHIPPED:
        known = Calibration.load(name).members
        assert known is not None
        assert known.gain == pytest.approx(found.gain, rel=1e-3)
        assert known.borrowed is not None
        assert found.borrowed is not None
        assert known.borrowed.spread == pytest.approx(found.borrowed.spread, rel=1e-3)
    assert all(line in page("studies/averaging/results.md") for line in study.of_left_out(table))


@needs_tables
@pytest.mark.slow
def test_no_law_of_rewritten_tokens_is_better_than_a_repeat() -> None:
    study = script("studies/averaging/rewritten.py")
    table, text = study.cells(), page("studies/averaging/results.md")
    assert all(line in text for line in study.lines())
    for by in ("params_nominal", "unique_tokens"):
        repeat, *laws = (study.left_out(table, names, by).mean() for names in study.FEATURES.values())
        assert repeat < min(laws)
