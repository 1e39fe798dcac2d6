"""The command line: readable answers, exact JSON, pictures, one sentence and exit code 2 on bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner import plan as plan_call
from planner.cli import planner

PLAN = ["plan", "--ud", "250M", "--flops", "5e18"]


def run(*args: str) -> Result:
    return CliRunner().invoke(planner, list(args))


def said(*args: str) -> str:
    """What a command prints, on one line: lines wrap at the terminal's width."""
    result = run(*args)
    assert result.exit_code == 0
    return " ".join(result.output.split())


def test_plan_as_a_table_with_reasons() -> None:
    text = said(*PLAN, "--why")
    for words in (
        "556M parameters",
        "epochs 6",
        "weight decay 1.0",
        "3.19e18 FLOPs",
        "Why, and what else to know",
        "within 0.01 nats",
        "chinchilla",
        "trainings that it had not seen",
        "d_model 1,280",
    ):
        assert words in text, words


def test_words_for_very_large_and_very_small_plans() -> None:
    large = said("plan", "--ud", "180M", "--flops", "2.3e20", "--spend", "all", "--gpu", "H100", "--why")
    for words in ("4.07 TB to train", "does not fit on an H100", "for 1 epoch at weight decay 1.0"):
        assert words in large, words
    assert "+0.0000" not in large
    small = said(
        "plan", "--calibration", "micro", "--ud", "100k", "--flops", "1e11", "--gpu", "H100", "--why"
    )
    assert "less than 0.01 GPU-hours, less than 1 s on 1 x H100 at 40% MFU, less than a cent" in small


def test_what_twice_the_data_buys_is_said_with_its_weight_decay() -> None:
    for mode in ("ceiling", "all"):
        text = said("plan", "--ud", "180M", "--flops", "2.3e20", "--spend", mode, "--why")
        told = text.split("twice the data")[1:]
        assert told
        assert all("at weight decay 1.0" in part[:160] for part in told)


def test_json_is_exactly_the_model() -> None:
    assert run(*PLAN, "--json").output == plan_call("250M", "5e18").model_dump_json() + "\n"


def test_gpus_and_hours_instead_of_flops() -> None:
    asked = ("plan", "--ud", "250M", "--gpu", "H100", "--gpus", "8", "--hours", "3", "--json")
    answer, whole = (json.loads(run(*asked, "--spend", spend).output) for spend in ("ceiling", "all"))
    assert answer["flops"] == pytest.approx(989e12 * 0.4 * 8 * 3 * 3600)
    assert answer["cost"]["gpu_hours"] == pytest.approx(24 * answer["spent_flops"] / answer["flops"])
    assert whole["cost"]["gpu_hours"] == pytest.approx(24)
    assert answer["cost"]["memory"]["total"] > 0
    assert "8 x H100" in run("plan", "--ud", "1B", "--gpu", "H100", "--gpus", "8", "--hours", "3").output


def test_limits_and_modes() -> None:
    exact = json.loads(run(*PLAN, "--epochs", "continuous", "--json").output)
    assert exact["epochs"] != round(exact["epochs"])
    assert json.loads(run(*PLAN, "--max-params", "300M", "--json").output)["params"] <= 300e6
    assert json.loads(run(*PLAN, "--max-epochs", "3", "--json").output)["epochs"] <= 3
    assert json.loads(run(*PLAN, "--min-params", "1B", "--json").output)["params"] >= 1e9
    assert json.loads(run(*PLAN, "--calibration", "c4-gpt2", "--json").output)["calibration"] == "c4-gpt2"


@pytest.mark.parametrize(
    "args",
    [
        ("compare", "--ud", "500M", "--flops", "1e19"),
        ("frontier", "--ud", "250M", "--points", "5"),
        ("frontier", "--ud", "250M", "--points", "5", "--single-epoch"),
        ("crossover", "--ud", "250M"),
        ("predict", "--params", "500M", "--ud", "250M", "--epochs", "8"),
        ("laws",),
        ("laws", "c4-gpt2"),
        ("cost",),
        ("cost", "--flops", "5e18", "--gpu", "A100", "--params", "556M"),
        ("shape", "556M"),
        ("shape",),
        ("shape", "--preset", "125M"),
    ],
)
def test_every_command_answers_in_words_and_in_json(args: tuple[str, ...]) -> None:
    words = run(*args)
    assert words.exit_code == 0, words.output
    assert len(words.output) > 100
    answer = run(*args, "--json")
    assert answer.exit_code == 0
    json.loads(answer.output)


@pytest.mark.parametrize(
    "command", ["plan", "compare", "frontier", "crossover", "predict", "laws", "cost", "shape"]
)
def test_every_help_has_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"planner {command}" in result.output.split("Example")[1]


@pytest.mark.parametrize(
    ("args", "suffix"),
    [
        (tuple(PLAN), "png"),
        (tuple(PLAN), "svg"),
        (tuple(PLAN), "pdf"),
        (("compare", "--ud", "500M", "--flops", "2e19"), "svg"),
        (("frontier", "--ud", "250M", "--points", "5"), "png"),
        (("frontier", "--ud", "250M", "--points", "5", "--single-epoch"), "svg"),
        (("crossover", "--ud", "250M"), "pdf"),
        (("predict", "--params", "250M", "--ud", "100M", "--epochs", "8"), "png"),
    ],
)
def test_pictures(args: tuple[str, ...], suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"picture.{suffix}"
    result = run(*args, "--plot", str(target))
    assert result.exit_code == 0, result.output
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert target.read_bytes().startswith(head)
    assert target.stat().st_size > 5000


@pytest.mark.parametrize(
    ("args", "field", "hint"),
    [
        (("plan", "--ud", "-250M", "--flops", "5e18"), "ud", "above zero"),
        (("plan", "--ud", "0", "--flops", "5e18"), "ud", "above zero"),
        (("plan", "--ud", "nan", "--flops", "5e18"), "ud", "such as"),
        (("plan", "--ud", "250M", "--flops", "inf"), "--flops", "such as"),
        (("plan", "--ud", "many", "--flops", "5e18"), "ud", "250M"),
        (("plan", "--ud", "5e18", "--flops", "250M"), "--flops", "swapped"),
        (("plan", "--ud", "5e18", "--flops", "250e6"), "ud", "swapped"),
        (("plan", "--ud", "250M", "--flops", "5e40"), "flops", "between"),
        (
            ("plan", "--ud", "250M", "--flops", "5e18", "--weight-decay", "3"),
            "--weight-decay",
            "0.1 to 1",
        ),
        (
            ("plan", "--ud", "250M", "--flops", "5e18", "--weight-decay", "strong"),
            "--weight-decay",
            "such as",
        ),
        (("plan", "--ud", "250M", "--flops", "5e18", "--law", "kaplan"), "law", "additive_4p"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--calibration", "no.json"), "no.json", "shipped name"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--max-epochs", "0"), "--max-epochs", "above zero"),
        (
            ("plan", "--ud", "250M", "--flops", "5e18", "--min-params", "2B", "--max-params", "1B"),
            "--min-params",
            "--max-params",
        ),
        (
            (
                "plan",
                "--ud",
                "250M",
                "--flops",
                "5e18",
                "--max-params",
                "10M",
                "--max-epochs",
                "2",
                "--spend",
                "all",
            ),
            "--max-params",
            "raise",
        ),
        (("plan", "--ud", "250M", "--flops", "5e18", "--tolerance", "-1"), "tolerance", "above zero"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--vocab", "1.5"), "--vocab", "whole"),
        (("plan", "--ud", "250M"), "compute is missing", "--gpu"),
        (("plan", "--ud", "250M", "--flops", "1e18", "--hours", "3"), "not both", "--gpu"),
        (("plan", "--ud", "250M", "--gpu", "abacus", "--hours", "3"), "gpu", "H100"),
        (("plan", "--ud", "250M", "--gpu", "H100", "--hours", "3", "--mfu", "40"), "mfu", "40%"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--plot", "a.gif"), "--plot", ".png"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--plot", "no/such/folder/a.png"), "--plot", "folder"),
        (("plan", "--flops", "5e18"), "--ud", "Missing option"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--epochs", "half"), "--epochs", "whole"),
        (("frontier", "--ud", "250M", "--from", "1e19", "--to", "1e18"), "--to", "above --from"),
        (("frontier", "--ud", "250M", "--points", "1"), "--points", "between"),
        (("crossover", "--ud", "250M", "--weight-decays", "0.1", "0.1"), "--weight-decays", "different"),
        (("crossover", "--ud", "250M", "--calibration", "c4-gpt2"), "c4-gpt2", "needs two"),
        (("predict", "--params", "0", "--ud", "250M"), "params", "above zero"),
        (("predict", "--params", "1B", "--ud", "250M", "--epochs", "x"), "epochs", "such as"),
        (("laws", "nothing"), "nothing", "shipped name"),
        (("shape", "500"), "500", "vocabulary"),
        (("shape", "5M", "--preset", "125M"), "--preset", "not both"),
        (("cost", "--flops", "1e18", "--gpu", "H100", "--price", "free"), "--price", "such as"),
        (("plan", "--ud", "1,5B", "--flops", "5e18"), "--ud", "250M"),
        (("plan", "--ud", "250M parameters", "--flops", "5e18"), "--ud", "250M"),
        (("plan", "--ud", "250M", "--flops", "5 EFLOP/s"), "--flops", "speed"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--mfu", "0.5"), "--mfu", "needs --gpu"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--gpus", "8"), "--gpus", "needs --gpu"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--price", "2"), "--price", "needs --gpu"),
        (("compare", "--ud", "250M", "--flops", "5e18", "--gpu", "H100"), "--gpu", "no effect"),
        (("cost", "--flops", "5e18"), "--gpu", "missing"),
        (("cost", "--params", "500M"), "--gpu", "missing"),
        (("cost", "--gpu", "H100"), "compute is missing", "--flops"),
        (("shape", "--preset", "500M", "--vocab", "50000"), "--vocab", "presets"),
        (("shape", "1e20"), "params", "at most"),
        (
            ("frontier", "--ud", "250M", "--single-epoch", "--law", "additive_1p"),
            "--single-epoch",
            "base law",
        ),
        (("predict", "--params", "1e300", "--ud", "250M"), "--params", "between"),
        (("predict", "--params", "1B", "--ud", "250M", "--epochs", "1e9"), "--epochs", "between"),
        (("plan", "--ud", "250M", "--flops", "5e18", "--calibration", ""), "--calibration", "path"),
        (("plam", "--ud", "250M"), "plam", "did you mean plan?"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(args: tuple[str, ...], field: str, hint: str) -> None:
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    error = result.output.strip().splitlines()[-1]
    assert error.startswith("Error: ")
    assert field in error
    assert hint in error
    assert "Traceback" not in result.output


def test_a_picture_that_cannot_be_written_computes_nothing(tmp_path: Path) -> None:
    result = run(*PLAN, "--plot", str(tmp_path / "none" / "a.png"))
    assert result.exit_code == 2
    assert "556M" not in result.output


def test_python_m_planner_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "planner", *PLAN, "--json"], capture_output=True, text=True, check=True
    )
    # What a process has planned before decides what is searched together, and so the last digits.
    assert _to_nine_digits(done.stdout) == _to_nine_digits(run(*PLAN, "--json").output)


def _to_nine_digits(text: str) -> object:
    return json.loads(text, parse_float=lambda number: float(f"{float(number):.9g}"))


def test_importing_planner_stays_light() -> None:
    heavy = "torch pandas matplotlib scipy datasets fastapi rich transformers trainer calibration"
    code = f"""
import sys
import planner
from planner import *
p = planner.plan(250e6, 5e18)
import planner.cli, planner.show.terminal
found = sorted(name for name in '{heavy}'.split() if name in sys.modules)
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_commands_of_other_packages_are_found_through_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose dependencies are missing is listed, and says what is missing when called."""
    from planner import cli as command_line

    class Broken:
        module = "trainer.cli"

        def load(self) -> None:
            raise ImportError("No module named 'torch'", name="torch")

    monkeypatch.setattr(command_line, "_added", lambda: {"train": Broken()})
    assert "train" in run("--help").output
    result = run("train", "config.toml", "--whatever")
    assert result.exit_code == 2
    assert "`planner train` needs torch, which is not installed" in result.output


def test_files_that_were_edited_are_not_written_over(tmp_path: Path) -> None:
    run, asked = tmp_path / "run.toml", ["plan", "--ud", "250M", "--flops", "5e18"]
    for how in (["--run", str(run)], ["--export", "hf", str(tmp_path / "hf")]):
        assert CliRunner().invoke(planner, [*asked, *how]).exit_code == 0
        assert CliRunner().invoke(planner, [*asked, *how]).exit_code == 0  # the same again
    edited = run.read_text() + 'note = "mine"\n'
    run.write_text(edited)
    refused = CliRunner().invoke(planner, [*asked, "--run", str(run)])
    assert refused.exit_code == 2
    assert "--run would write over" in refused.output
    assert run.read_text() == edited
    (tmp_path / "hf" / "README.md").write_text("mine")
    refused = CliRunner().invoke(planner, [*asked, "--export", "hf", str(tmp_path / "hf")])
    assert "--export would write over" in refused.output
    assert (tmp_path / "hf" / "README.md").read_text() == "mine"
