"""One model trained on the predictions of others: it learns from them, and goes on in the same bits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.inputs import InvalidInput
from tests.trainer.conftest import losses, start
from tests.trainer.run.test_interruption import KILL_AT_STEP, threads
from tests.trainer.run.test_loop import same, stop_after
from trainer import Interrupted, RunConfig, read_result, train
from trainer.cli import distill
from trainer.run import teachers
from trainer.run.teachers import student

__all__ = ["threads"]


@pytest.fixture(scope="module")
def members(corpus: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    from tests.trainer.conftest import settings

    chosen = settings.__wrapped__(corpus, cache) | {"epochs": 1}  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("members")
    for seed in range(2):
        train(RunConfig(**chosen, seed=seed), folder / f"run{seed}")
    return [str(folder / f"run{seed}") for seed in range(2)]


def test_it_is_configured_as_the_first_member_with_a_seed_of_its_own(members: list[str]) -> None:
    config = student(members, 0.5, 2.0, {"epochs": 2, "params": "12k"})
    first = RunConfig(**read_result(members[0]).config)  # type: ignore[union-attr]
    assert (config.seed, config.epochs, config.params, config.shape) == (2, 2, 12_000, None)
    assert config.distill is not None
    assert (config.distill.weight, config.distill.temperature) == (0.5, 2.0)
    assert config.having(seed=0, distill=None, epochs=1, params=None, shape=first.shape) == first
    assert "distill" not in first.identity()  # as in checkpoints of before there was such a field


def test_without_weight_it_is_the_plain_run_and_with_it_another(members: list[str], tmp_path: Path) -> None:
    plain = train(student(members, 0, 1, {}).having(distill=None), tmp_path / "plain")
    weightless = train(student(members, 0, 1, {}), tmp_path / "weightless")
    taught = train(student(members, 0.9, 1, {}), tmp_path / "taught")
    assert same(tmp_path / "plain", tmp_path / "weightless")
    assert weightless.loss == plain.loss
    assert not same(tmp_path / "plain", tmp_path / "taught")
    assert taught.config_fingerprint != plain.config_fingerprint


@pytest.mark.parametrize("room", [0, teachers.ROOM])
def test_interrupted_and_continued_in_the_same_bits(
    members: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(teachers, "ROOM", room)  # predicted again in every epoch, or remembered
    config = student(members, 0.9, 1.5, {"epochs": 2})
    whole = train(config, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(config, tmp_path / "stopped", should_stop=stop_after(27))  # of 40, in the second epoch
    result = train(config, tmp_path / "stopped")
    assert result.starts == 2
    assert same(tmp_path / "whole", tmp_path / "stopped")
    assert (result.loss, result.train_loss) == (whole.loss, whole.train_loss)


@pytest.mark.slow
def test_killed_and_still_the_same_bits(members: list[str], tmp_path: Path, threads: None) -> None:
    config = student(members, 0.9, 1.0, {"checkpoint_every": 3})
    whole = train(config, tmp_path / "whole")
    settings = json.dumps(config.model_dump(mode="json"))
    done = start(KILL_AT_STEP, settings, str(tmp_path / "killed"), "11")
    assert done.returncode == -9, done.stderr
    assert read_result(tmp_path / "killed") is None
    result = train(config, tmp_path / "killed")
    assert result.starts == 2
    assert same(tmp_path / "whole", tmp_path / "killed")
    assert losses(tmp_path / "whole") == losses(tmp_path / "killed")
    assert result.weights_checksum == whole.weights_checksum


def test_the_command_trains_continues_and_moves_with_its_members(members: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "one")
    done = CliRunner().invoke(distill, [*members, "-o", out, "--set", "epochs=0.5", "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    stored = json.loads(done.stdout)
    assert stored["config"]["distill"]["weight"] == 0.9
    moved = [shutil.copytree(member, tmp_path / Path(member).name) for member in members]
    again = CliRunner().invoke(distill, [*map(str, moved), "-o", out, "--set", "epochs=0.5"])
    assert again.exit_code == 0, again.output  # the same weights elsewhere are the same run
    other = CliRunner().invoke(distill, [members[0], "-o", out, "--set", "epochs=0.5"])
    assert other.exit_code == 2
    assert "distill.members" in other.stderr
    assert "Steps" in CliRunner().invoke(distill, [*members, "-o", out, "--dry-run"]).stdout


def test_what_cannot_teach_is_said_in_one_sentence(
    members: list[str], settings: dict[str, Any], tmp_path: Path
) -> None:
    def refused(*arguments: str) -> str:
        done = CliRunner().invoke(distill, [*arguments, "-o", str(tmp_path / "new")])
        assert done.exit_code == 2, done.output
        return str(done.stderr)

    assert "weight" in refused(*members, "--weight", "2")
    assert "temperature" in refused(*members, "--temperature", "0")
    assert "vocabulary" in refused(*members, "--set", "vocab_size=300")
    assert "sees 32 tokens" in refused(*members, "--set", "sequence_length=64")
    assert "held-out documents" in refused(*members, "--set", "validation_documents=3")
    assert "no run directory" in refused(str(tmp_path / "nowhere"))
    assert not (tmp_path / "new" / "metrics.jsonl").exists()
    config = student(members, 0.9, 1, {})
    assert config.distill is not None
    changed = config.distill.model_copy(update={"checksums": ("a", "b")})
    with pytest.raises(InvalidInput, match="weights differ"):
        train(config.having(distill=changed.model_dump()), tmp_path / "new")
