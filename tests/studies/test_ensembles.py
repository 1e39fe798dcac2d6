"""The ensemble study: its page and the part of the calibration that ships are what its runs give."""

from __future__ import annotations

from types import ModuleType

import pytest

from planner.calibration import Calibration
from tests.places import ROOT, script

PAGE = (ROOT / "studies" / "ensembles" / "results.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def study() -> ModuleType:
    return script("studies/ensembles/make.py")


def test_what_ships_is_what_the_runs_give(study: ModuleType) -> None:
    known = Calibration.load("micro-weight-decay")
    assert known.members is not None
    fitted = study.law(known)
    assert known.members.gain == pytest.approx(fitted.gain, rel=1e-6)
    assert known.members.exponents.model_dump() == pytest.approx(fitted.exponents.model_dump(), abs=1e-6)
    assert known.members.distilled == fitted.distilled


@pytest.mark.slow
def test_the_page_says_what_the_runs_say(study: ModuleType) -> None:
    written = PAGE.partition(study.BEGIN)[2].partition(study.END)[0]
    assert written.strip() == study.page(Calibration.load("micro-weight-decay")).strip()
