"""The weight-decay study as far as it is trained: its calibration and its page are what its runs give."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from planner import plan
from planner.calibration import Calibration
from tests.places import page, script

PAGE = page("studies/weight-decay/results.md")


@pytest.fixture(scope="module")
def study() -> ModuleType:
    return script("studies/weight-decay/make.py")


@pytest.mark.slow
def test_the_calibration_that_ships_is_what_the_runs_give(study: ModuleType) -> None:
    shipped, fitted = Calibration.load("micro-weight-decay"), study.calibration()
    assert shipped.weight_decay_law is not None
    assert fitted.weight_decay_law is not None
    assert shipped.default_law == fitted.default_law
    law = shipped.default_law
    parameters, again = (one.weight_decay_law.laws[law].parameters for one in (shipped, fitted))
    assert parameters == pytest.approx(again, rel=1e-3)


@pytest.mark.slow
def test_the_page_says_what_the_runs_say(study: ModuleType) -> None:
    table, own = study.together()
    fits = study.fit_over_weight_decays(table)
    for line in study.left_out_table(fits, table, own):
        assert line in PAGE
    for line in study.best_table(fits, Calibration.load("micro-weight-decay").default_law, table[own])[:-1]:
        assert line in PAGE


def test_the_page_says_what_was_settled_and_who_won(
    study: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "make", study)
    settle, confirm = (script(f"studies/weight-decay/{name}.py") for name in ("settle", "confirm"))
    for line in settle.report()[:-1]:
        assert line in PAGE
    for budget in confirm.BUDGETS:
        rows, verdict = confirm.judged(confirm.known(), *budget)
        for line in (*rows, verdict):
            assert line in PAGE


def test_two_weight_decays_predict_one_between(study: ModuleType) -> None:
    """Within 0.02, root mean square of ln(loss): what lets a plan interpolate on request."""
    rows = study.grid()
    rows = rows[rows["weight_decay"] == 0.3]
    assert len(rows) >= 6
    assert study._error(Calibration.load("micro").law(0.3), rows) < 0.02


def test_the_shipped_dial_turns(study: ModuleType) -> None:
    few, many = (plan(ud, 3e11, calibration="micro-weight-decay").weight_decay for ud in (24576, 98304))
    assert few > 1.5 * many > 0.1
