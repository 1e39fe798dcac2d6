"""Numbers that nobody can mean, in calibration files, configs and options: one sentence, and no arithmetic
that overflows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner import Calibration, InvalidInput, plan
from planner.cli import planner
from planner.inputs import InvalidCalibration
from tests.places import ROOT
from trainer.config import RunConfig

HUGE = (10**19, 1e300)
DECAY_LAW, PAPER = (
    ROOT / "planner" / "data" / f"{name}.json" for name in ("micro-weight-decay", "fineweb-llama2")
)
WHERE = [
    ("vocab_size",),
    ("recipe", "learning_rate"),
    ("recipe", "batch_sequences"),
    ("recipe", "sequence_length"),
    ("recipe", "adam_eps"),
    ("recipe", "betas", 1),
    ("recipe", "rope_theta"),
    ("settings", 0, "weight_decay"),
    ("settings", 0, "fitted_on", "runs"),
    ("settings", 0, "laws", "weight_decay_steep", "parameters", "beta"),
    ("settings", 0, "laws", "weight_decay_steep", "predictive_error", "inside"),
    ("weight_decay_law", "weight_decays", 1),
    ("weight_decay_law", "laws", "weight_decay_steep", "parameters", "gamma"),
    ("members", "most_members"),
    ("members", "exponents", "params"),
]


def _changed(source: Path, target: Path, where: tuple[Any, ...], value: float) -> Path:
    known = place = json.loads(source.read_text())
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    target.write_text(json.dumps(known))
    return target


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("where", WHERE, ids=lambda where: ".".join(map(str, where)))
def test_a_calibration_with_an_absurd_number_is_refused(
    where: tuple[Any, ...], value: float, tmp_path: Path
) -> None:
    with pytest.raises(InvalidCalibration, match=r"^calibration '.*' is not usable: .*\.$"):
        Calibration.load(_changed(DECAY_LAW, tmp_path / "absurd.json", where, value))


@pytest.mark.parametrize(("name", "value"), [("alpha", 1e-3), ("beta", 20.0)])
def test_a_law_without_a_best_size_is_one_sentence(name: str, value: float, tmp_path: Path) -> None:
    where = ("settings", 0, "laws", "additive_4p", "parameters", name)
    path = _changed(PAPER, tmp_path / "law.json", where, value)
    with pytest.raises(InvalidInput, match=r"^a law of the calibration has no finite best model .*\.$"):
        plan(250e6, 5e18, calibration=path)


@pytest.mark.parametrize("name", ["A", "B"])
def test_an_absurd_amplitude_is_refused(name: str, tmp_path: Path) -> None:
    where = ("settings", 0, "laws", "additive_4p", "parameters", name)
    with pytest.raises(InvalidCalibration, match=f"parameter {name} of law additive_4p must be at most 1e"):
        Calibration.load(_changed(PAPER, tmp_path / "law.json", where, 1e300))


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "--ud", "250M", "--flops", "5e18", "--vocab", "1e300"],
        ["shape", "556M", "--vocab", "1e19"],
        ["cost", "--flops", "5e18", "--gpu", "H100", "--params", "556M", "--vocab", "1e300"],
    ],
    ids=lambda command: command[0],
)
def test_an_absurd_vocabulary_is_one_sentence(command: list[str]) -> None:
    done = CliRunner().invoke(planner, command)
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1), done.output
    assert "must be at most 1B; got 1e" in done.output


@pytest.mark.parametrize("value", [10**19, 1e300])
def test_a_run_with_an_absurd_vocabulary_is_one_sentence(value: float) -> None:
    with pytest.raises(InvalidInput, match=r"^vocab_size: .*\.$"):
        RunConfig(preset="micro", params="100k", unique_tokens="128k", vocab_size=value)
