"""The study of averaging at real scale: what ships is what it gives, and its page says what it prints."""

from __future__ import annotations

import numpy as np
import pandas as pd
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
        assert known.distilled is not None
        assert found.distilled is not None
        assert known.distilled.kept == pytest.approx(found.distilled.kept)
        assert known.distilled.between == pytest.approx(found.distilled.between)
    text = page("studies/averaging/results.md")
    parts = (study.of_left_out(table), study.of_asked(table), study.of_sources(table))
    assert all(line in text for part in parts for line in part)
    held = study.asked(table)["held"]
    assert f"{held.sum()} of {len(held)} ladders and published limits are inside" in text
    assert held.mean() >= 0.8


def test_every_page_says_the_same_of_what_distillation_keeps() -> None:
    for name in ("fineweb-llama2", "dolma-olmo3"):
        known = Calibration.load(name).members
        assert known is not None
        assert known.distilled is not None
        assert known.distilled.between is not None
        ends = [f"{share:.0%}" for share in known.distilled.between]
        for document in (
            "studies/averaging/results.md",
            "docs/ensembles.md",
            "docs/what-else-buys-data.md",
        ):
            assert all(end in page(document) for end in ends), document


@needs_tables
def test_what_five_members_got_of_their_limit() -> None:
    table = script(MAKE).ladders()
    singles = pd.read_csv(TABLES).query("kind == 'single'").set_index("params")["loss"]
    limits, shares = [], []
    for _, one in table[table["source"] == "dclm"].iterrows():
        alone, losses = singles[one["params"]], one["losses"]
        level = np.mean([loss - one["a"] / count for count, loss in losses.items()])
        limits.append(alone - level)
        shares.append((alone - losses[5]) / (alone - level))
    said = f"limits are {min(limits):.2f} to {max(limits):.2f}, five members got"
    assert f"{said} {100 * min(shares):.0f} to {max(shares):.0%} of that" in page(
        "docs/what-else-buys-data.md"
    )


@needs_tables
@pytest.mark.slow
def test_no_law_of_rewritten_tokens_is_better_than_a_repeat() -> None:
    study = script("studies/averaging/rewritten.py")
    table, text = study.cells(), page("studies/averaging/results.md")
    assert all(line in text for line in study.lines())
    for by in ("params_nominal", "unique_tokens"):
        repeat, *laws = (study.left_out(table, names, by).mean() for names in study.FEATURES.values())
        assert repeat < min(laws)
