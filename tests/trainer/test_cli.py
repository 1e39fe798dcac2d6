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

from tests.places import ROOT
from trainer import read_result
from trainer.cli import _Interruption, export, train


def toml(settings: dict[str, Any]) -> str:
    shape = ", ".join(f"{name} = {value}" for name, value in settings["shape"].items())
    rest = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items() if name != "shape")
    return f"shape = {{ {shape} }}\n{rest}\n"


@pytest.fixture
def config(settings: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(toml(settings | {"epochs": 1}))
    return path


def invoke(command: Any, *arguments: Any) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_train_and_export(config: Path, tmp_path: Path) -> None:
    done = invoke(train, config, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["loss"] == read_result(tmp_path / "run").loss  # type: ignore[union-attr]
    again = invoke(train, config)
    assert again.stdout.startswith("run: loss ")
    assert (
        invoke(export, tmp_path / "run", "--to", "hf").stdout.strip() == f"Wrote {tmp_path / 'run' / 'hf'}."
    )
    assert (tmp_path / "run" / "hf" / "config.json").is_file()


def test_set_changes_fields(config: Path, tmp_path: Path) -> None:
    done = invoke(
        train, config, "--set", "weight_decay=1.0", "-s", "order=fixed", "-o", tmp_path / "other", "--json"
    )
    stored = json.loads(done.stdout)
    assert (stored["weight_decay"], stored["config"]["order"]) == (1.0, "fixed")


def test_set_changes_a_field_of_a_table(config: Path, tmp_path: Path) -> None:
    done = invoke(train, config, "--set", "corpus.tokens=5k", "-o", tmp_path / "other", "--json")
    stored = json.loads(done.stdout)["config"]["corpus"]
    assert (stored["tokens"], len(stored["paths"])) == (5000, 1)
    wrong = invoke(train, config, "--set", "corpus.token=5k")
    assert (
        wrong.exit_code,
        "corpus.token is not a setting of a run; did you mean corpus.tokens" in wrong.stderr,
    ) == (2, True)


def test_dry_run_trains_nothing(config: Path, tmp_path: Path) -> None:
    done = invoke(train, config, "--dry-run")
    assert done.exit_code == 0, done.output
    for word in ("Model", "Steps", "Memory", "FLOPs", "Time"):
        assert word in done.stdout
    facts = json.loads(invoke(train, config, "--dry-run", "--json").stdout)
    assert (facts["steps"], facts["tokens"], facts["unique_tokens"]) == (20, 2560, 2560)
    assert facts["seconds"] > 0
    large = json.loads(
        invoke(train, config, "--dry-run", "--json", "--set", "shape.d_ff=100000000000").stdout
    )
    assert "GiB on each device" in large["remarks"][0]  # said, not refused: a dry run is for finding out
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
def test_bad_input_is_one_sentence_and_exit_code_2(
    config: Path, arguments: tuple[str, ...], message: str
) -> None:
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
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_an_interrupted_command_continues(config: Path, tmp_path: Path, name: str, code: int) -> None:
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
    deadline = time.monotonic() + 600
    # Well into the steps: before them an interruption ends the command at once, as the next test says.
    while time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n") >= 20):
        time.sleep(0.1)
    process.send_signal(getattr(signal, name))
    _, errors = process.communicate(timeout=600)
    assert process.returncode == code, errors
    assert "stopping after this step" in errors
    assert "the same command continues from there" in errors
    assert "Error" not in errors
    assert len(list((tmp_path / "long" / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_before_the_first_step_has_its_own_exit_code(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    def signalled(*args: Any, during_steps: Any, **kwargs: Any) -> None:
        with during_steps:
            signal.raise_signal(getattr(signal, name))

    monkeypatch.setattr("trainer.run.loop.train", signalled)
    done = invoke(train, config, "-o", tmp_path / "run")
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("stopped; the same command goes on")


def test_an_interruption_outside_the_steps_ends_the_command_at_once(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tokens.prepare", "evaluate"):

        def interrupted(*args: Any, **kwargs: Any) -> None:
            signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(f"trainer.run.loop.{name}", interrupted)
        before = signal.getsignal(signal.SIGINT)
        done = invoke(train, config, "-o", tmp_path / name)
        assert (done.exit_code, done.stdout) == (130, "")
        assert done.stderr.startswith("stopped; the same command goes on")
        assert signal.getsignal(signal.SIGINT) is before
        monkeypatch.undo()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_first_interruption_waits_for_the_step_and_says_so(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    interruption, number = _Interruption(), getattr(signal, name)
    with interruption:
        with pytest.raises(KeyboardInterrupt):  # the first step may have to compile
            signal.raise_signal(number)
        assert not interruption.asked_for()
        signal.raise_signal(number)
        assert interruption.asked_for()
        assert "with a checkpoint" in capsys.readouterr().err
        for again in (signal.SIGTERM, signal.SIGHUP):  # passed on by a launcher that was signalled too
            signal.raise_signal(again)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
