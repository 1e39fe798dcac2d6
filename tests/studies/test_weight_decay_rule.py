"""The study behind the rule of weight decay: what a cell determines, and each lab left out in turn."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planner import weight_decay_rule
from tests.places import SHARED, page, script

MAKE = "studies/weight-decay-rule/make.py"
PICTURE = "studies/weight-decay-rule/picture.py"
TABLES = SHARED / "data" / "qin2026_dolma_repeat.csv"
needs_tables = pytest.mark.skipif(not TABLES.exists(), reason=f"no public run tables: {TABLES}")


def test_the_best_weight_decay_of_a_cell() -> None:
    best = script(MAKE).best_weight_decay
    decays = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
    loss = np.exp(1 + 0.05 * np.log(decays / 0.3) ** 2)
    assert best(decays, loss) == pytest.approx((0.3, 0.3))
    shuffled = np.random.default_rng(0).permutation(5)
    assert best(decays[shuffled], loss[shuffled]) == pytest.approx((0.3, 0.3))
    falling = best(decays, np.exp(1 - 0.1 * np.log(decays)))
    assert falling == pytest.approx((0.8, np.inf))
    assert best(decays, np.exp(1 + 0.1 * np.log(decays))) == pytest.approx((0.0, 0.2))
    assert best(decays, np.array([3.0, 3.01, 3.0, 3.02, 3.0])) == (0.0, np.inf)  # all within noise


@needs_tables
@pytest.mark.slow
def test_every_lab_left_out_in_turn() -> None:
    """Within a factor of two in 85% of its cells, and the coefficients that ship are those of the fit."""
    study = script(MAKE)
    every = study.all_cells()
    repeated, rule = every[every.epochs >= 2], study.RULES["capped ¾, -¼"]
    for lab, tried in study.left_out(rule, repeated):
        exact = tried[tried.determined]
        assert lab == "FineWeb" or study.held(exact.error) >= 0.85, lab
        assert lab == "DCLM" or study.held(tried[~tried.determined].error) >= 0.9, lab
    c, ln_k = study.fit(rule, repeated)
    assert np.exp(c) == pytest.approx(weight_decay_rule.STRENGTH, abs=6e-4)
    assert np.exp(ln_k) == pytest.approx(weight_decay_rule.SHORTEST, abs=6e-3)
    written = page("studies/weight-decay-rule/results.md")
    for line in study.table(study.determined_cells(repeated, rule), **study.CELL_FORMATS).splitlines():
        assert line in written


@needs_tables
@pytest.mark.slow
def test_the_factor_that_is_said_holds_labs_that_had_no_part_in_the_choice() -> None:
    study = script(MAKE)
    every = study.all_cells()
    without = list(study.unseen(every[every.epochs >= 2]))
    tried = pd.concat([found for _, _, found in without])
    assert study.spread(tried) == weight_decay_rule.FACTOR
    assert study.held(tried[tried.determined].error, weight_decay_rule.FACTOR) >= 0.9
    written = page("studies/weight-decay-rule/results.md")
    for line in study.table(study.held_unseen(without)).splitlines():
        assert line in written


@needs_tables
@pytest.mark.slow
def test_the_picture_of_the_manual_and_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(PICTURE).main(str(tmp_path / "epochs.png"))
    assert (tmp_path / "epochs.png").stat().st_size > 10_000
    rows, written = capsys.readouterr().out.splitlines(), page("docs/epochs.md")
    assert len(rows) == 6
    for row in rows:
        assert row in written
