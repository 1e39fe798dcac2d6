"""Tuning in waves: what is proposed, when it stops, and what it finds."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from calibration.commands.design import tune as command
from calibration.fitting.design.tuning import (
    GaussianProcess,
    Ranges,
    best_setting,
    expected_improvement,
    tune,
)
from planner.inputs import InvalidInput
from tests.places import script

RANGES = Ranges.of(
    ud=250e6, batch_tokens=65536, weight_decays=(0.03, 10), learning_rates=(1e-4, 3e-3), epochs=(4, 8, 16)
)


def loss(table: pd.DataFrame) -> np.ndarray:
    """A world in which the best is at half an epoch of timescale, rate 8e-4 and eight epochs."""
    away = (
        0.5 * np.log(table["timescale_epochs"] / 0.5) ** 2 / 1.5**2
        + 0.5 * np.log(table["learning_rate"] / 8e-4) ** 2
        + 0.5 * np.log(table["epochs"] / 8) ** 2
    )
    return np.asarray(3.0 + 0.2 * away)


def trained(wave: list[dict[str, float]]) -> pd.DataFrame:
    table = RANGES.described(pd.DataFrame(wave)[["weight_decay", "learning_rate", "epochs"]])
    return table.assign(params=1e8, unique_tokens=250e6, loss=loss(table))


def test_waves_find_the_best_and_stop() -> None:
    runs = trained(tune(RANGES).wave)
    for _ in range(12):
        found = tune(RANGES, runs)
        if found.stop:
            break
        runs = pd.concat([runs, trained(found.wave)], ignore_index=True)
    assert found.stop
    assert found.best is not None
    assert found.best["loss"] < loss(RANGES.candidates()).min() + 0.01
    assert len(runs) < 40  # of 432 settings


def test_the_first_wave_spans_usual_memories() -> None:
    wave = tune(RANGES, wave=6).wave
    assert len({tuple(sorted(row.items())) for row in wave}) == 6
    assert all(0.2 < row["timescale_epochs"] < 2.5 for row in wave)
    assert max(row["learning_rate"] for row in wave) > 3 * min(row["learning_rate"] for row in wave)


def test_what_was_trained_is_not_proposed_again() -> None:
    runs = trained(tune(RANGES, wave=8).wave)
    settled = {(row.weight_decay, row.learning_rate, row.epochs) for row in runs.itertuples()}
    for row in tune(RANGES, runs, wave=8).wave:
        assert (row["weight_decay"], row["learning_rate"], row["epochs"]) not in settled


def test_expected_improvement_is_the_mean_of_what_is_gained() -> None:
    runs = trained(tune(RANGES, wave=12).wave)
    logs = np.log(runs[["timescale_epochs", "learning_rate", "epochs", "batch_tokens"]].to_numpy())
    model = GaussianProcess.of(logs, runs["loss"].to_numpy())
    surface = model.at(logs[:1] + 0.3)
    draws = surface.irreducible + np.exp(np.random.default_rng(0).normal(surface.mean, surface.sd, 400_000))
    best = float(runs["loss"].min()) + 0.02
    assert expected_improvement(surface, best)[0] == pytest.approx(
        np.maximum(best - draws, 0).mean(), rel=0.05
    )


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    runs = trained(tune(RANGES, wave=6).wave)
    with pytest.raises(InvalidInput, match="a column learning_rate would do"):
        tune(RANGES, runs.drop(columns="learning_rate"))
    with pytest.raises(InvalidInput, match="for one size and corpus; these runs have 6 sizes"):
        tune(RANGES, runs.assign(params=np.arange(6) + 1e6))
    with pytest.raises(InvalidInput, match="is not what the runs were trained on"):
        tune(RANGES, runs.assign(unique_tokens=1e9))
    given = ["--ud", "250M", "--batch-tokens", "65536", "--learning-rates", "1e-4", "3e-3", "--epochs", "8"]
    answer = CliRunner().invoke(command, [*given, "--weight-decays", "1", "0.1"])
    assert answer.exit_code == 2
    assert "--weight-decays must be a lower and an upper end" in answer.output
    path = tmp_path / "wave.csv"
    answer = CliRunner().invoke(command, [*given, "--weight-decays", "0.1", "1", "-o", str(path)])
    assert answer.exit_code == 0, answer.output
    assert len(pd.read_csv(path)) == 4


def test_half_of_other_peoples_runs_rank_a_good_setting_first(shared_data: Path) -> None:
    """The cheaper half of the 1.5B runs, nearly all of fewer epochs, says how to train for eight."""
    table = pd.read_csv(shared_data / "marinfold_weight_decay_runs.csv")
    table = table[table["size"] == "1_5b"].sort_values("epochs", kind="stable").reset_index(drop=True)
    replay = script("studies/weight-decay/replay.py")
    place, losses = replay.settings(table), table["val_loss"].to_numpy()
    half, eight = len(table) // 2, np.flatnonzero(table["epochs"] == 8)
    first = eight[best_setting(GaussianProcess.of(place[:half], losses[:half]), place[eight])]
    assert losses[first] <= losses[eight].min() + replay.NEAR
