"""Answers in Python: printed, in notebooks, drawn, as tables; and predictions for many configurations."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from planner import InvalidInput, compare, crossover, frontier, plan, predict
from planner.cli import planner

BUDGET = ("--ud", "250M", "--flops", "5e18")
ANSWERS = {
    "plan": (plan("250M", "5e18"), ("plan", *BUDGET)),
    "compare": (compare("250M", "5e18"), ("compare", *BUDGET)),
    "crossover": (crossover("250M"), ("crossover", "--ud", "250M")),
    "predict": (predict("500M", "250M", 4), ("predict", "--params", "500M", "--ud", "250M", "--epochs", "4")),
    "frontier": (
        frontier("250M", np.geomspace(1e17, 1e19, 3)),
        ("frontier", "--ud", "250M", "--from", "1e17", "--to", "1e19", "--points", "3"),
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_print_gives_what_the_command_prints(name: str) -> None:
    answer, command = ANSWERS[name]
    printed = CliRunner().invoke(planner, list(command)).output
    assert str(answer) == printed.rstrip("\n")


@pytest.mark.parametrize("name", ANSWERS)
def test_notebooks_show_the_same_text(name: str) -> None:
    answer, _ = ANSWERS[name]
    markup = answer._repr_html_()
    assert markup.startswith("<pre>")
    assert not re.search(r"<(?!/?pre>)", markup)


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_can_be_drawn(name: str) -> None:
    figure = ANSWERS[name][0].plot()
    assert figure.axes
    assert all(axes.lines for axes in figure.axes)


def test_an_own_calibration_is_named_to_draw_with(tmp_path) -> None:
    from planner import Calibration, InvalidCalibration

    own = Calibration.load().model_copy(update={"name": "mine"})
    own.save(tmp_path / "mine.json")
    made = plan("250M", "5e18", calibration=own)
    assert made.plot(own).axes
    assert made.plot(tmp_path / "mine.json").axes
    with pytest.raises(InvalidCalibration, match="'mine' is neither a file nor a shipped name"):
        made.plot()


def test_tables() -> None:
    along = frontier("250M", np.geomspace(1e17, 1e19, 5))
    table = along.to_frame()
    assert len(table) == 5
    assert np.array_equal(table["loss"], along.loss)
    rows = compare("250M", "5e18")
    assert list(rows.to_frame()["law"]) == [row.law for row in rows.rows]


def test_many_predictions_are_those_of_one_at_a_time() -> None:
    sizes, epochs = np.array([1e8, 5e8, 2e9]), [1, 4, 16]
    for decay in (None, 0.1):
        found = predict(sizes, "250M", epochs, weight_decay=decay)
        singles = [predict(n, "250M", e, weight_decay=decay) for n, e in zip(sizes, epochs, strict=True)]
        assert found.loss == pytest.approx([one.loss for one in singles])
        assert list(found.weight_decay) == [one.weight_decay for one in singles]
    assert predict(["100M", "1B"], 250e6).to_frame()["params"].tolist() == [1e8, 1e9]


def test_a_table_of_runs_is_predicted_row_by_row() -> None:
    runs = pd.DataFrame({"params": [1e8, 5e8], "unique_tokens": [1e8, 2.5e8], "epochs": [4.0, 2.0]})
    found = predict(runs, weight_decay=1.0)
    assert found.loss[1] == predict(5e8, 2.5e8, 2, weight_decay=1.0).loss
    assert len(found.to_frame()) == 2
    assert predict(runs[["params"]], "250M", 4).loss[0] == predict(1e8, "250M", 4).loss


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((pd.DataFrame({"size": [1e8]}),), "params must be a table with the column params; it has size"),
        (([1e8, -1.0], 1e9), "params must be above zero"),
        (([1e8, 1e9], [1e9, 1e9, 1e9]), "must have one length or broadcast; got 2, 3, 1 values"),
        (([1e8], 1e9, 1e9), "epochs must be between"),
        (([], 1e9), "params must hold at least one number"),
        (([1e8],), "ud must be one number"),
    ],
)
def test_bad_arrays_are_one_sentence(arguments: tuple, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        predict(*arguments)
