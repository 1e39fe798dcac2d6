"""Dropout, averages of weights, and schedules with a trunk: stopped and continued, the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from planner.inputs import InvalidInput
from tests.trainer.run.test_loop import losses, same, stop_after, weights
from trainer import RunConfig, TrainingStopped, train
from trainer.model import optimizer
from trainer.run.export import load_run

WSD = {"schedule": "wsd", "warmup_steps": 3}
KINDS: dict[str, dict[str, Any]] = {
    "dropout": {"dropout": 0.2},
    "ema": {"ema_decay": 0.9},
    "last": {"average_last": 4, "average_every": 3},
    "muon": {"optimizer": "muon", "muon_weight_decay": 0.3},
    "wsd": WSD,
    "all": WSD | {"dropout": 0.1, "ema_decay": 0.9, "validate_every": 7, "micro_batch": 3},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_continues_to_the_same_bits(
    settings: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    plain = RunConfig(**settings | {"epochs": 2})
    config = plain.having(**KINDS[kind])
    assert config.fingerprint() != plain.fingerprint()
    whole = train(config, tmp_path / "whole")
    for steps in (3, 20, 9, 1):
        with pytest.raises(TrainingStopped):
            train(config, tmp_path / "parts", should_stop=stop_after(steps))
    parts = train(config, tmp_path / "parts")
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert (parts.loss, parts.unaveraged_loss) == (whole.loss, whole.unaveraged_loss)
    assert parts.validations == whole.validations


def test_averages_are_what_they_say(settings: dict[str, Any], tmp_path: Path) -> None:
    settings |= {"epochs": 0.5}  # ten steps
    plain = train(RunConfig(**settings), tmp_path / "plain")
    mean = train(RunConfig(**settings, average_last=3, average_every=2), tmp_path / "mean")
    assert mean.unaveraged_loss == plain.loss  # training does not know of it
    assert mean.loss != plain.loss
    assert (mean.row()["average_last"], mean.row()["average_every"]) == (3, 2)
    seen = []
    for stop in (6, 8):
        folder = tmp_path / str(stop)
        with pytest.raises(TrainingStopped):
            train(RunConfig(**settings), folder, should_stop=stop_after(stop))
        from safetensors.torch import load_file

        seen.append(load_file(folder / "checkpoints" / f"step-{stop:08d}" / "part-00000.safetensors"))
    seen.append(weights(tmp_path / "plain"))
    for name, tensor in weights(tmp_path / "mean").items():
        torch.testing.assert_close(tensor, torch.stack([each[name] for each in seen]).mean(0))
    model, _, result = load_run(tmp_path / "mean")
    assert result.loss == mean.loss
    assert torch.equal(model.head.weight, weights(tmp_path / "mean")["head.weight"])


def test_dropout_is_off_where_a_run_is_validated(settings: dict[str, Any], tmp_path: Path) -> None:
    result = train(RunConfig(**settings | {"dropout": 0.9, "epochs": 1}), tmp_path / "run")
    assert result.loss < result.train_loss
    assert result.row()["dropout"] == 0.9
    assert not {"warmup_steps", "decay_ratio", "average_every"} & result.row().keys()


def test_branches_of_a_trunk_are_the_runs_they_stand_for(settings: dict[str, Any], tmp_path: Path) -> None:
    settings |= WSD | {"ema_decay": 0.8}
    trunk = RunConfig(**settings | {"epochs": 3, "branches": [1, 2]})
    with pytest.raises(TrainingStopped):
        train(trunk, tmp_path / "trunk", should_stop=stop_after(25))
    whole = train(trunk, tmp_path / "trunk")
    assert whole.trunk is None
    assert [path.name for path in sorted((tmp_path / "trunk" / "branches").iterdir())] == [
        "step-00000016",
        "step-00000032",
    ]
    for epochs in (1, 2):
        config = RunConfig(**settings | {"epochs": epochs})
        alone = train(config, tmp_path / f"alone-{epochs}")
        branch = config.having(trunk=str(tmp_path / "trunk"))
        with pytest.raises(TrainingStopped):
            train(branch, tmp_path / f"branch-{epochs}", should_stop=stop_after(2))
        found = train(branch, tmp_path / f"branch-{epochs}")
        assert same(tmp_path / f"alone-{epochs}", tmp_path / f"branch-{epochs}")
        assert (found.loss, found.config_fingerprint) == (alone.loss, alone.config_fingerprint)
        row = found.row()
        assert (row["trunk"], row["schedule"], row["warmup_steps"], row["decay_ratio"]) == (
            "trunk",
            "wsd",
            3,
            0.2,
        )
        assert losses(tmp_path / f"branch-{epochs}") == losses(tmp_path / f"alone-{epochs}")[-4 * epochs :]
    with pytest.raises(InvalidInput, match=r"keeps no checkpoint at step 24; branches = .1.5. in its config"):
        train(branch.having(epochs=1.5), tmp_path / "other")
    with pytest.raises(InvalidInput, match=r"was trained with another seed .0, now 1."):
        train(branch.having(seed=1), tmp_path / "other")


def test_a_schedule_with_a_trunk_begins_alike_whatever_its_length() -> None:
    config = RunConfig(preset="micro", params="100k", unique_tokens="128k", **WSD)
    short, long = ([optimizer.learning_rate(s, n, config) / 1e-2 for s in range(n)] for n in (20, 40))
    assert short[:16] == long[:16] == pytest.approx([1 / 3, 2 / 3] + [1] * 14)
    assert short[16:] == pytest.approx([1 - 0.9 * (k / 4) ** 0.5 for k in (1, 2, 3, 4)])
    assert long[-1] == pytest.approx(0.1)
    with pytest.raises(InvalidInput, match="needs warmup_steps"):
        config.having(warmup_steps=None)
    with pytest.raises(InvalidInput, match="trunk and branches need schedule"):
        RunConfig(preset="micro", params="100k", unique_tokens="128k", trunk="there")
    with pytest.raises(InvalidInput, match="either ema_decay or average_last"):
        config.having(ema_decay=0.9, average_last=3)
