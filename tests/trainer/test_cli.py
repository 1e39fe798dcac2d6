"""`planner train` and `planner export`, as a user meets them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainer import read_result
from trainer.cli import export, train

from .conftest import ROOT


def toml(settings: dict[str, Any]) -> str:
    shape = ", ".join(f"{name} = {value}" for name, value in settings["shape"].items())
    rest = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items() if name != "shape")
    return f"shape = {{ {shape} }}\n{rest}\n"


@pytest.fixture
def config(settings: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(toml(settings | {"epochs": 1}))
    return path


@pytest.fixture(autouse=True)
def signals() -> Any:
    """The command handles signals for the rest of its process; tests go on with their own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def invoke(command: Any, *arguments: Any) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_train_and_export(config: Path, tmp_path: Path) -> None:
    done = invoke(train, config, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["loss"] == read_result(tmp_path / "run").loss  # type: ignore[union-attr]
    again = invoke(train, config)
    assert again.stdout.startswith("run: loss ")
    assert invoke(export, tmp_path / "run", "--to", "hf").stdout.strip() == f"Wrote {tmp_path / 'run' / 'hf'}."
    assert (tmp_path / "run" / "hf" / "config.json").is_file()


def test_set_changes_fields(config: Path, tmp_path: Path) -> None:
    done = invoke(train, config, "--set", "weight_decay=1.0", "-s", "order=fixed", "-o", tmp_path / "other", "--json")
    stored = json.loads(done.stdout)
    assert (stored["weight_decay"], stored["config"]["order"]) == (1.0, "fixed")


def test_dry_run_trains_nothing(config: Path, tmp_path: Path) -> None:
    done = invoke(train, config, "--dry-run")
    assert done.exit_code == 0, done.output
    for word in ("Model", "Steps", "Memory", "FLOPs", "Time"):
        assert word in done.stdout
    facts = json.loads(invoke(train, config, "--dry-run", "--json").stdout)
    assert (facts["steps"], facts["tokens"], facts["unique_tokens"]) == (20, 2560, 2560)
    assert facts["seconds"] > 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.toml",), "there is no file missing.toml"),
        (("CONFIG", "--set", "epochs"), "--set needs FIELD=VALUE"),
        (("CONFIG", "--set", "epochs=-1"), "epochs: input should be greater than 0"),
        (("CONFIG", "--set", "corpus=nowhere"), "corpus nowhere is neither"),
        (("CONFIG", "--set", "attention=flash", "--dry-run"), "attention = 'flash' cannot work here"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(config: Path, arguments: tuple[str, ...], message: str) -> None:
    done = invoke(train, *(config if a == "CONFIG" else a for a in arguments))
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_export_of_nothing(tmp_path: Path) -> None:
    done = invoke(export, tmp_path / "none")
    assert (done.exit_code, done.stderr) == (2, f"Error: there is no run directory {tmp_path / 'none'}.\n")


@pytest.mark.parametrize("command", [train, export])
def test_help_has_an_example(command: Any) -> None:
    assert "Example" in invoke(command, "--help").output


@pytest.mark.slow
def test_an_interrupted_command_continues(config: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from trainer.cli import train; train()",
        str(config),
        "--set",
        "epochs=2000",
        "-o",
        str(tmp_path / "long"),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "long" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    assert "the same command continues from there" in errors
    assert len(list((tmp_path / "long" / "checkpoints").iterdir())) == 1
