"""The worked example: its page says what its script computes, and its figures are the paper's."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from calibration.fitting.runs.arrays import Runs
from planner.inputs import CONTINUOUS
from planner.laws import Law
from planner.solve import allocate
from tests.places import page, script

# As printed in arXiv:2605.01640, tables "Chinchilla baseline quality" and "Benefit of D^, N^".
BASES = {
    "published": {"all": "0.445", "single": "0.711", "multi": "0.306", "huber": "0.0331"},
    "refit": {"all": "0.861", "single": "0.989", "multi": "0.795", "huber": "0.0115"},
}
REPETITION = {
    "as published": {"all": "0.772", "gain": "0.327", "single": "0.763", "multi": "0.777", "huber": "0.0158"},
    "published": {"all": "0.791", "gain": "0.346", "single": "0.789", "multi": "0.792", "huber": "0.0158"},
    "refit": {"all": "0.931", "gain": "0.070", "single": "0.989", "multi": "0.902", "huber": "0.00720"},
}


@pytest.fixture(scope="module")
def reanalysis() -> ModuleType:
    return script("studies/reanalysis/make.py")


@pytest.fixture(scope="module")
def runs(reanalysis: ModuleType, shared_data: Path) -> Runs:
    table = shared_data / "datablations_c4_runs.csv"
    if not table.exists():
        pytest.skip("the public C4 run table is not in ../shared/data (set DATABOUND_SHARED to where it is)")
    return reanalysis.read(table)


@pytest.fixture(scope="module")
def laws(reanalysis: ModuleType, runs: Runs) -> tuple[dict[str, Law], dict[str, Law]]:
    return reanalysis.laws(runs)


def _half_a_digit(printed: str) -> float:
    return 0.5 * 10.0 ** -len(printed.partition(".")[2]) * (1 + 1e-9)


def _prints_as(value: float, printed: str) -> bool:
    return abs(value - float(printed)) <= _half_a_digit(printed)


@pytest.mark.slow
def test_the_page_says_what_the_script_computes(
    reanalysis: ModuleType, runs: Runs, laws: tuple[dict[str, Law], dict[str, Law]]
) -> None:
    text = page("studies/reanalysis/results.md")
    parts = ["\n".join(part) for part in reanalysis.report(*laws, runs)]
    for part in parts:
        assert part in text
        text = text.replace(part, "")
    assert not re.search(r"^\|", text, re.MULTILINE)  # no table that was not computed


@pytest.mark.parametrize("base", BASES)
def test_base_laws_agree_with_the_printed_table(
    reanalysis: ModuleType, runs: Runs, laws: tuple[dict[str, Law], dict[str, Law]], base: str
) -> None:
    found = reanalysis.figures(laws[0][base], runs)
    assert [name for name, printed in BASES[base].items() if not _prints_as(found[name], printed)] == []


@pytest.mark.parametrize("label", REPETITION)
def test_effective_parameters_agree_with_the_printed_table(
    reanalysis: ModuleType, runs: Runs, laws: tuple[dict[str, Law], dict[str, Law]], label: str
) -> None:
    base, repetition = laws
    found = reanalysis.figures(repetition[label], runs)
    below = next(name for name, labels in reanalysis.ON_TOP_OF.items() if label in labels)
    found["gain"] = found["all"] - reanalysis.figures(base[below], runs)["all"]
    differ = [name for name, printed in REPETITION[label].items() if not _prints_as(found[name], printed)]
    # The page says so: 0.931 is printed for what is a hair above 0.9315 at the exact optimum.
    assert differ == (["all"] if label == "refit" else [])
    assert found["all"] == pytest.approx(float(REPETITION[label]["all"]), abs=6e-4)


def test_fits_agree_with_the_constants_in_the_text(laws: tuple[dict[str, Law], dict[str, Law]]) -> None:
    base, repetition = laws
    assert _prints_as(float(repetition["as published"].parameters["R_N_star"]), "5.31")
    assert 2000 < float(repetition["refit"].parameters["R_N_star"]) < 6000  # flat: 3,294 in the paper
    assert float(base["refit, α = β"].parameters["alpha"]) == float(base["refit, α = β"].parameters["beta"])


def test_tied_exponents_describe_single_epoch_runs_as_well(
    reanalysis: ModuleType, runs: Runs, laws: tuple[dict[str, Law], dict[str, Law]]
) -> None:
    assert _prints_as(reanalysis.figures(laws[0]["refit, α = β"], runs)["single"], "0.989")


def test_the_advice_reverses_at_every_budget_with_repetition(
    reanalysis: ModuleType, laws: tuple[dict[str, Law], dict[str, Law]]
) -> None:
    flops = np.geomspace(3e20, 1e23, 40)
    for label, law in laws[1].items():
        alone, best = (
            allocate(each, reanalysis.UNIQUE_TOKENS, flops, CONTINUOUS) for each in (law.base(), law)
        )
        assert (alone.epochs > 1).all()
        larger = best.params > alone.params
        assert larger.all() if label.startswith("refit") else not larger.any()


def test_the_picture_draws_the_reversal(
    reanalysis: ModuleType, runs: Runs, laws: tuple[dict[str, Law], dict[str, Law]]
) -> None:
    _, ratios = reanalysis.picture(*laws, runs).axes
    ends = {line.get_label(): float(line.get_ydata()[-1]) for line in ratios.lines}
    assert ends["published base, published constants"] < 0.9
    assert ends["refit base, refit constants"] > 1.1


@pytest.mark.slow
def test_the_script_prints_the_tables_and_draws_the_picture(
    reanalysis: ModuleType, runs: Runs, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.png"
    assert reanalysis.main([str(shared_data / "datablations_c4_runs.csv"), "--picture", str(picture)]) == 0
    assert "| 0.4452 |" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_missing_table_is_one_sentence(
    reanalysis: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reanalysis.main([str(tmp_path / "nothing.csv")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"Error: run table '.*nothing\.csv' does not exist\.\n", printed.err)
