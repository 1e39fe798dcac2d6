"""Answers in Python: printed, in notebooks, drawn, as tables; and predictions for many configurations."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from planner import InvalidInput, Plan, Prediction, compare, crossover, frontier, plan, predict
from planner.cli import planner
from planner.results import RENAMED

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


CODES_BEFORE = {"worse_than_uniform": "above_guessing", "outside_timescale": "outside_memory"}


def _as_before(value: Any) -> Any:
    """An answer with the names of earlier versions, except in its intervals."""
    names = {new: old for old, new in RENAMED.items()}
    if isinstance(value, list):
        return [_as_before(part) for part in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"code", "text"}:
        return value | {"code": CODES_BEFORE.get(value["code"], value["code"])}
    return {
        names.get(name, name): part if name == "intervals" else _as_before(part)
        for name, part in value.items()
    }


@pytest.mark.parametrize(
    "asked",
    [
        {"ud": 250e6, "flops": 1e19, "weight_decay": 0.1, "spend": "all"},
        {"ud": 250e6, "flops": 1e21, "max_params": 1e9, "spend": "all"},
        {"ud": 49e3, "flops": 3e11, "calibration": "micro-weight-decay", "learning_rate": 3e-3},
        {"ud": 49e3, "flops": 3e11, "calibration": "micro-weight-decay", "weight_decay": 0.04},
        {"ud": 1e5, "flops": 1e12, "calibration": "micro"},
    ],
)
def test_json_of_earlier_versions_is_read(asked: dict[str, Any]) -> None:
    made = plan(**asked)
    before = _as_before(json.loads(made.model_dump_json()))
    assert {"sureness", "spending_limit", "dial", "guessing_loss"} <= before.keys()
    assert before["terms"].keys() == {"floor", "capacity", "data", "overfitting"}
    read = Plan.model_validate_json(json.dumps(before))
    assert read == made
    assert [one.code for one in read.warnings] == [one.code for one in made.warnings]


def test_intervals_of_earlier_versions_are_read() -> None:
    names = {
        "irreducible": "floor",
        "parameter": "capacity",
        "loss_minimising_flops": "spending_limit_flops",
        "loss_minimising_loss": "spending_limit_loss",
    }
    p, one = plan(1e5, 1e12, calibration="micro"), predict(110e3, 65536, 8, calibration="micro")
    for made in (p, one):
        before = json.loads(made.model_dump_json())
        assert "irreducible" in before["intervals"]
        before["intervals"] = {names.get(name, name): at for name, at in before["intervals"].items()}
        kind = Plan if made is p else Prediction
        assert kind.model_validate_json(json.dumps(before)) == made


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
