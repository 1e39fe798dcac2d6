"""The tournament: that a choice never sees what it is judged by, and what its page says."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks.simulated import grid_table
from planner import InvalidInput
from planner.cli import planner as main
from studies.tournament.extrapolation import seen, split
from tests.places import ROOT, script
from tests.studies.test_extrapolation import FEW, TRUTH


@pytest.fixture(scope="module")
def played() -> Iterator[ModuleType]:
    """The module of the matches; scripts of the study import each other by their names."""
    sys.path.insert(0, str(ROOT / "studies" / "tournament"))
    yield importlib.import_module("tournament")
    sys.path.remove(str(ROOT / "studies" / "tournament"))


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return grid_table(TRUTH, 90, 0.002, np.random.default_rng(3))


@pytest.fixture(scope="module")
def ways(played: ModuleType) -> ModuleType:
    return script("studies/tournament/other_ways.py")


def test_the_prototypes_cut_is_none_by_compute(ways: ModuleType, shared_data: Path) -> None:
    table = ways.tables(shared_data)["C4 158"]
    wrapped = ways.wrapped(table)
    below = wrapped <= np.quantile(wrapped, 0.7)
    assert below.sum() == 114
    assert (below & ~seen(table, "compute", 0.7)).sum() > 10  # runs beyond the real cut that it lets be seen


@pytest.mark.slow
def test_the_page_says_what_the_script_prints(ways: ModuleType, shared_data: Path) -> None:
    page = (ROOT / "studies" / "tournament" / "results.md").read_text(encoding="utf-8")
    found = ways.by_wrapped_compute("C4 158", ways.tables(shared_data)["C4 158"])
    here = [cell.strip().removeprefix("0") for cell in found.split("|")[3:7]]
    (line,) = [row for row in page.splitlines() if row.startswith("| C4 158: here / prototype")]
    assert [cell.split("/")[0].strip() for cell in line.split("|")[3:7]] == here


@pytest.fixture(scope="module")
def result(played: ModuleType, table: pd.DataFrame) -> Any:
    other = grid_table(TRUTH, 70, 0.004, np.random.default_rng(4))
    return played.tournament({"one": table, "other": other}, laws=FEW, directions=("size",))


def test_the_form_that_made_the_runs_holds_beyond_them(played: ModuleType, result: Any) -> None:
    for match in result.matches:
        errors = match.cut.errors
        assert min((error, form) for form, error in errors.items() if form != played.CHOICE)[1] == "hill_4p"
        assert errors[played.CHOICE] < 2 * errors["hill_4p"] + 0.002
        low, high = match.spread("hill_4p")
        assert low <= errors["hill_4p"] <= high
    assert result.standing()[0][0] in ("hill_4p", played.CHOICE)


@pytest.mark.slow
def test_what_lies_beyond_does_not_move_the_choice(played: ModuleType, table: pd.DataFrame) -> None:
    """The losses of the runs that are tried are never seen, not even by the weights."""
    cut = split(table, "size", 0.6)
    assert cut is not None
    spoiled = table.assign(loss=np.where(cut[0], table["loss"], 3 * table["loss"]))
    found = [
        played.tournament({"one": runs}, laws=FEW, directions=("size",)).matches[0].cut
        for runs in (table, spoiled)
    ]
    assert found[0].weights == found[1].weights
    assert found[1].errors["hill_4p"] == pytest.approx(np.log(3), rel=0.1)


def test_tables_that_share_runs_are_one(played: ModuleType, table: pd.DataFrame) -> None:
    moved = table.assign(loss=table["loss"] + 0.01)
    others = {"one": table[:40], "other": moved, "two": table[50:], "all": table, "again": moved[:9]}
    assert played._families(others) == {
        "one": "one",
        "other": "other",
        "two": "one",
        "all": "one",
        "again": "other",
    }


@pytest.mark.slow
def test_the_script_writes_page_picture_and_tables(
    played: ModuleType, table: pd.DataFrame, tmp_path: Path
) -> None:
    table.to_csv(tmp_path / "runs.csv", index=False)
    laws = [argument for form in ("additive_1p", "hill_4p") for argument in ("--law", form)]
    given = [f"mine={tmp_path / 'runs.csv'}::epochs <= 16", *laws, "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(script("studies/tournament/make.py").main, given)
    assert done.exit_code == 0, done.output
    assert "tool's choice" in done.output
    board = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert {row["law"] for row in board["standing"]} == {played.CHOICE, "additive_1p", "hill_4p"}
    page = (tmp_path / "out" / "leaderboard.html").read_text()
    assert "Hill 4p" in page
    assert "<svg" in page
    assert (tmp_path / "out" / "leaderboard.png").stat().st_size > 10_000
    rows = pd.read_csv(tmp_path / "out" / "leaderboard.csv")
    assert set(rows["table"]) == {"mine"}


def test_a_table_that_cannot_be_cut_is_refused(played: ModuleType, table: pd.DataFrame) -> None:
    with pytest.raises(InvalidInput, match="no table can be cut"):
        played.tournament({"few": table[:8]}, laws=("additive_1p",), directions=("size",))


def test_the_old_command_names_the_study() -> None:
    answer = CliRunner().invoke(main, ["calibrate", "tournament", "runs.csv", "-o", "there"])
    assert answer.exit_code == 2
    assert "python studies/tournament/make.py" in answer.output


def test_weights_follow_errors_here_and_elsewhere(played: ModuleType) -> None:
    assert played.weights_of([{"a": 0.01, "b": 0.01, "c": 0.1}]) == {"a": 0.5, "b": 0.5}
    moved = played.weights_of([{"a": 0.01, "b": 0.01}, {}], [{"a": 0.02, "b": 0.03}])
    assert moved["a"] == pytest.approx(1 / (1 + 1.5**-8))
    twice = played.weights_of([{"a": 0.02, "b": 0.024}, {"a": 0.02, "b": 0.024}])
    assert twice["a"] == pytest.approx(1 / (1 + 1.2**-16))
    assert played.weights_of([{"a": np.inf}]) == {}
    assert played.weights_of([]) == {}
    assert set(played.weights_of([{"a": 0.01, "b": 0.01}], [{"a": 0.02}])) == {"a", "b"}


def test_cells_that_are_left_out_tell_forms_apart(played: ModuleType, table: pd.DataFrame) -> None:
    fits = played.FitMethod(delta=1e-3).fits(table, FEW)
    found = played.left_out(fits, table)
    assert min(found, key=lambda form: found[form]) == "hill_4p"
