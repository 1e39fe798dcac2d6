"""Validation while training: where overfitting begins is measured, and a run that is killed knows it too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.fitting.runs.tables import read_runs, warnings_of
from planner.inputs import InvalidInput
from tests.trainer.run.test_loop import same, stop_after
from trainer import RunConfig, TrainingStopped, train


def validations(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "validation_loss" in line]


def test_losses_on_the_way_are_kept_and_change_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    plain = train(RunConfig(**settings), tmp_path / "plain")
    assert (plain.best_loss, plain.best_epochs, plain.validations) == (None, None, [])
    config = RunConfig(**settings, validate_every=15)  # of 60 steps in three epochs
    whole = train(config, tmp_path / "whole")
    assert [one["step"] for one in whole.validations] == [15, 20, 30, 40, 45, 60]
    assert [one["epoch"] for one in whole.validations] == [0.75, 1.0, 1.5, 2.0, 2.25, 3.0]
    assert [line["step"] for line in validations(tmp_path / "whole")] == [15, 20, 30, 40, 45, 60]
    assert (whole.loss, whole.weights_checksum) == (plain.loss, plain.weights_checksum)
    assert whole.config_fingerprint == plain.config_fingerprint  # how, not what
    assert whole.validations[-1]["loss"] == whole.loss
    assert whole.row()["best_loss"] == whole.best_loss == min(one["loss"] for one in whole.validations)
    for steps in (7, 8, 9, 21):
        with pytest.raises(TrainingStopped):
            train(config, tmp_path / "parts", should_stop=stop_after(steps))
    parts = train(config, tmp_path / "parts")
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert parts.validations == whole.validations
    assert validations(tmp_path / "parts") == validations(tmp_path / "whole")


def test_epoch_ends_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    settings |= {"batch_size": 7, "epochs": 2.5}  # of 80 sequences: epochs end inside a batch
    result = train(RunConfig(**settings, validate_every="epoch"), tmp_path / "run")
    assert [one["step"] for one in result.validations] == [12, 23, 29]
    assert result.best_epochs is not None
    for wrong in (0, "epochs", True, 2.5):
        with pytest.raises(InvalidInput, match="number of steps, or 'epoch'"):
            RunConfig(**settings, validate_every=wrong)


def test_fits_warn_of_runs_that_end_far_above_their_best(settings: dict[str, Any], tmp_path: Path) -> None:
    import pandas as pd

    few = {"unique_tokens": 32 * 8, "epochs": 40, "weight_decay": 0.0, "validate_every": "epoch"}
    result = train(RunConfig(**settings | few), tmp_path / "overfitted")
    assert result.best_loss is not None
    assert result.best_loss < 0.98 * result.loss
    others = [result.row() | {"run": f"r{i}", "params": 1000 * 2**i, "best_loss": None} for i in range(5)]
    found = {note.code: note.text for note in warnings_of(read_runs(pd.DataFrame([result.row(), *others])))}
    assert "1 of 6 runs end more than 2% above the lowest loss they had" in found["overfitted"]
    assert "overfitted: " in found["overfitted"]
    assert "overfitted" not in {note.code for note in warnings_of(read_runs(pd.DataFrame(others)))}
