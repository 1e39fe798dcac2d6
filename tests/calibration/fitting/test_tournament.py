"""Laws beyond their runs: what is seen, what is tried, and that a choice never sees what it is judged by."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks.simulated import grid_table
from calibration.fitting.beyond import Manner, along, left_out, parts, seen, weights_of
from calibration.fitting.tournament import CHOICE, Tournament, _families, tournament
from planner import InvalidInput, Law
from planner.cli import planner as main

HILL = {"E": 1.9, "A": 420.0, "alpha": 0.34, "B": 3600.0, "beta": 0.37}
TRUTH = Law("hill_4p", {**HILL, "P": 0.02, "delta": 1.2, "c": 0.02, "gamma": 1.1})
FEW = ("chinchilla", "exponential_decay", "additive_4p", "hill_4p")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return grid_table(TRUTH, 90, 0.002, np.random.default_rng(3))


@pytest.fixture(scope="module")
def result(table: pd.DataFrame) -> Tournament:
    other = grid_table(TRUTH, 70, 0.004, np.random.default_rng(4))
    return tournament({"one": table, "other": other}, laws=FEW, directions=("size",))


def test_ties_with_the_last_run_are_seen(table: pd.DataFrame) -> None:
    for direction in ("size", "compute", "epochs", "data"):
        below = seen(table, direction, 0.6)
        values = along(table, direction)
        assert below.mean() >= 0.6
        assert values[~below].min() > values[below].max()
    runs = pd.DataFrame({"params": [1e8] * 6 + [2e8] * 4, "unique_tokens": 1e9, "epochs": 2.0})
    assert seen(runs, "size", 0.3).sum() == 6
    close = runs.assign(params=[1.0, 2.0, 3.0, 3.1, 3.25, 3.4, 5, 6, 7, 8])
    assert seen(close, "compute", 0.3).sum() == 5  # within 10% of the third: one budget


def test_only_repeated_runs_beyond_the_cut_are_tried(table: pd.DataFrame) -> None:
    below, tried = parts(table, "size", 0.6) or (np.array([]), np.array([]))
    assert not (below & tried).any()
    assert (table["epochs"][tried] > 1).all()
    assert parts(table, "size", 1.0) is None  # nothing is left


def test_the_form_that_made_the_runs_holds_beyond_them(result: Tournament) -> None:
    for match in result.matches:
        errors = match.cut.errors
        assert min((error, form) for form, error in errors.items() if form != CHOICE)[1] == "hill_4p"
        assert errors[CHOICE] < 2 * errors["hill_4p"] + 0.002
        low, high = match.spread("hill_4p")
        assert low <= errors["hill_4p"] <= high
    assert result.standing()[0][0] in ("hill_4p", CHOICE)


@pytest.mark.slow
def test_what_lies_beyond_does_not_move_the_choice(table: pd.DataFrame) -> None:
    """The losses of the runs that are tried are never seen, not even by the weights."""
    cut = parts(table, "size", 0.6)
    assert cut is not None
    spoiled = table.assign(loss=np.where(cut[0], table["loss"], 3 * table["loss"]))
    found = [
        tournament({"one": runs}, laws=FEW, directions=("size",)).matches[0].cut for runs in (table, spoiled)
    ]
    assert found[0].weights == found[1].weights
    assert found[1].errors["hill_4p"] == pytest.approx(np.log(3), rel=0.1)


def test_tables_that_share_runs_are_one(table: pd.DataFrame) -> None:
    moved = table.assign(loss=table["loss"] + 0.01)
    others = {"one": table[:40], "other": moved, "two": table[50:], "all": table, "again": moved[:9]}
    assert _families(others) == {"one": "one", "other": "other", "two": "one", "all": "one", "again": "other"}


def test_weights_follow_errors_here_and_elsewhere() -> None:
    assert weights_of([{"a": 0.01, "b": 0.01, "c": 0.1}]) == {"a": 0.5, "b": 0.5}
    moved = weights_of([{"a": 0.01, "b": 0.01}, {}], [{"a": 0.02, "b": 0.03}])
    assert moved["a"] == pytest.approx(1 / (1 + 1.5**-8))
    twice = weights_of([{"a": 0.02, "b": 0.024}, {"a": 0.02, "b": 0.024}])
    assert twice["a"] == pytest.approx(1 / (1 + 1.2**-16))
    assert weights_of([{"a": np.inf}]) == {}
    assert weights_of([]) == {}
    assert set(weights_of([{"a": 0.01, "b": 0.01}], [{"a": 0.02}])) == {"a", "b"}


def test_cells_that_are_left_out_tell_forms_apart(table: pd.DataFrame) -> None:
    fits = Manner(delta=1e-3).fits(table, FEW)
    found = left_out(fits, table)
    assert min(found, key=lambda form: found[form]) == "hill_4p"


@pytest.mark.slow
def test_the_command_writes_page_picture_and_tables(table: pd.DataFrame, tmp_path: Path) -> None:
    table.to_csv(tmp_path / "runs.csv", index=False)
    laws = [argument for form in ("additive_1p", "hill_4p") for argument in ("--law", form)]
    given = [f"mine={tmp_path / 'runs.csv'}::epochs <= 16", *laws, "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(main, ["calibrate", "tournament", *given])
    assert done.exit_code == 0, done.output
    assert "tool's choice" in done.output
    board = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert {row["law"] for row in board["standing"]} == {CHOICE, "additive_1p", "hill_4p"}
    page = (tmp_path / "out" / "leaderboard.html").read_text()
    assert "Hill 4p" in page
    assert "<svg" in page
    assert (tmp_path / "out" / "leaderboard.png").stat().st_size > 10_000
    rows = pd.read_csv(tmp_path / "out" / "leaderboard.csv")
    assert set(rows["table"]) == {"mine"}


def test_a_table_that_cannot_be_cut_is_refused(table: pd.DataFrame) -> None:
    with pytest.raises(InvalidInput, match="no table can be cut"):
        tournament({"few": table[:8]}, laws=("additive_1p",), directions=("size",))
