"""An error knows its field: Python names the argument, a shell and a page what was typed there."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import InvalidInput, plan
from planner.cli import planner
from planner.options import OPTIONS, label


def test_a_sentence_in_python_in_a_shell_and_on_a_page() -> None:
    error = InvalidInput("(2B) must not be above ‹max_params› (1B).", field="min_params")
    assert error.field == "min_params"
    assert str(error) == "min_params (2B) must not be above max_params (1B)."
    assert error.said(label) == "Smallest model (2B) must not be above Largest model (1B)."
    typed = CliRunner().invoke(
        planner, ["plan", "--ud", "1B", "--flops", "1e20", "--min-params", "2B", "--max-params", "1B"]
    )
    assert typed.output == "Error: --min-params (2B) must not be above --max-params (1B).\n"


def test_whoever_passes_a_complaint_on_may_rename_its_fields() -> None:
    error = InvalidInput("is larger than ‹flops›.", field="ud").renamed({"ud": "corpus", "flops": "compute"})
    assert (error.field, str(error)) == ("corpus", "corpus is larger than compute.")


def test_an_error_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(InvalidInput("needs ‹gpu›.", field="hours")))
    assert (error.field, str(error)) == ("hours", "hours needs gpu.")


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "ud"])
def test_each_option_of_a_plan_is_named_where_it_is_wrong(name: str) -> None:
    """The words of an option, the argument of `plan` and the field of its error are one name."""
    given = {"gpu": "H100", "flops": 5e18} | ({"flops": None} if name == "hours" else {}) | {name: "wrong"}
    with pytest.raises(InvalidInput) as caught:
        plan(250e6, **given)
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("file", "command", "code"),
    [
        ("trainer.py", "laws", 0),
        ("trainer.py", "--help", 0),
        ("trainer.py", "train run.toml", 2),
        ("trainer.py", "calibrate sweep smoke", 2),  # which is built on the trainer
        ("calibration/__init__.py", "calibrate sweep smoke", 2),
    ],
)
def test_a_file_that_hides_a_package_is_named_and_not_run(
    tmp_path: Path, file: str, command: str, code: int
) -> None:
    mine = tmp_path / file
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("raise SystemExit('somebody ran me')")
    run = [sys.executable, "-m", "planner", *command.split()]
    result = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == code, result.stderr
    assert "somebody ran me" not in result.stderr
    if code:
        assert f"is hidden by {mine}" in result.stderr
