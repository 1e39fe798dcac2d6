"""The micro study that is committed: its calibration is
what its runs give, and its page says what its files say.
"""

from __future__ import annotations

from types import ModuleType

import pandas as pd
import pytest

from calibration import fit
from calibration.fitting.runs.tables import read_runs
from calibration.studies.directory import StudyDirectory
from calibration.studies.study import load
from calibration.studies.verdict import read_verdict
from planner import plan
from planner.calibration import Calibration
from tests.places import ROOT, page, script

HERE = ROOT / "studies" / "micro"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    return script("studies/micro/make.py")


def test_the_runs_are_those_of_the_shipped_study() -> None:
    runs = read_runs(HERE / "runs.csv")
    study = load("micro")
    assert set(runs["run"]) == {run.name for run in study.runs}
    assert {run.name: run.params for run in study.runs} == dict(zip(runs["run"], runs["params"], strict=True))


@pytest.mark.slow
def test_the_shipped_calibration_is_fitted_to_these_runs() -> None:
    again, shipped = fit(HERE / "runs.csv", prior="none", bootstrap=20), Calibration.load("micro")
    for setting in shipped.settings:
        other = again.setting(setting.weight_decay)
        assert other.fitted_on == setting.fitted_on
        for name, law in setting.laws.items():
            assert other.laws[name].parameters == pytest.approx(law.parameters, rel=1e-6)


def test_plans_with_it_have_intervals() -> None:
    p = plan(ud="131k", flops=8e11, calibration="micro")
    assert p.intervals is not None
    assert p.intervals["loss"].low < p.loss < p.intervals["loss"].high
    assert p.architecture is not None
    assert p.architecture.vocab_size == 1024


def test_the_verdict_is_what_the_runs_give(make: ModuleType) -> None:
    written, _ = read_verdict(StudyDirectory(HERE))
    for mine, theirs in zip(make.VERDICT.trials, written.trials, strict=True):
        for law, other in zip(mine.laws, theirs.laws, strict=True):
            assert (law.configuration.runs, law.beyond_noise) == (
                other.configuration.runs,
                other.beyond_noise,
            )
            assert (law.loss, law.regret) == pytest.approx((other.loss, other.regret), abs=1e-12)
    for found, stored in zip(make.VERDICT.crossovers, written.crossovers, strict=True):
        assert (found.note, found.observed) == (stored.note, stored.observed)


def test_the_page_shows_what_the_files_say(make: ModuleType) -> None:
    text = page("studies/micro/results.md")
    for part in make.PARTS:
        for line in part():
            assert line in text, f"{part.__name__}: {line}"


def test_the_page_has_every_configuration_of_the_new_budgets() -> None:
    new = script("studies/micro/new_budgets.py")
    runs = read_runs(HERE / "new-budgets.csv")
    found = new.menus(runs, new.NEW)
    assert [len(menu.rows) for menu in found] == [5, 5, 4, 4]
    study = load(HERE / "new-budgets.toml")
    assert set(runs["run"]) <= {run.name for run in study.runs}
    text = page("studies/micro/results.md")
    for line in new.trained(found):
        assert line in text, line


@pytest.mark.slow
def test_the_page_says_what_the_tool_chooses_at_the_new_budgets() -> None:
    """The default fit has changed more than once; what it chooses has to be read off it again each time."""
    new = script("studies/micro/new_budgets.py")
    grid = pd.read_csv(HERE / "runs.csv")
    laws = new.calibrations(grid[grid["weight_decay"] == new.DECAY])
    found = new.menus(pd.read_csv(HERE / "new-budgets.csv"), new.NEW)
    text = page("studies/micro/results.md")
    for line in new.standings_of(new.judged(found, *laws)):
        assert line in text, line
