"""Several runs scored as one: what transformers computes, with one model in memory at a time."""

from __future__ import annotations

import gc
import json
import math
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from planner.inputs import InvalidInput
from trainer import RunConfig, train
from trainer.downstream.cli import evaluate
from trainer.run import ensembles
from trainer.run.export import export

SHORT = {"epochs": 0.5}


@pytest.fixture(scope="module")
def runs(
    corpus: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Path], dict[str, Any]]:
    from tests.trainer.conftest import settings

    chosen = settings.__wrapped__(corpus, cache) | SHORT  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("members")
    for seed in range(3):
        train(RunConfig(**chosen, seed=seed), folder / f"run{seed}")
    return [folder / f"run{seed}" for seed in range(3)], chosen


def test_the_mean_of_probabilities_is_that_of_transformers(
    runs: tuple[list[Path], dict[str, Any]], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    folders, chosen = runs
    found = ensembles.score(folders)
    stream, probability = None, 0.0
    for folder in folders:
        data = Path(chosen["cache"]) / ensembles.members([folder])[0].result.data["fingerprint"]
        stream = np.fromfile(data / "validation.bin", dtype=np.uint16).astype(np.int64)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(export(folder, tmp_path / folder.name))
        pieces = []
        with torch.no_grad():
            for start in range(0, len(stream) - 1, 32):
                piece = torch.from_numpy(stream[start : start + 33])
                logits = theirs(piece[None, :-1]).logits[0].double()
                pieces.append(logits.softmax(-1).gather(1, piece[1:, None])[:, 0])
        probability = probability + torch.cat(pieces).numpy() / len(folders)
    assert stream is not None
    nats = -np.log(probability)
    assert found.loss == pytest.approx(nats.mean(), abs=1e-5)
    assert found.bits_per_byte == pytest.approx(nats.sum() / math.log(2) / found.bytes, abs=1e-5)
    assert found.tokens == len(stream) - 1
    assert found.loss < found.mean_member_loss
    assert found.gain == pytest.approx(found.mean_member_loss - found.loss)


def test_each_member_is_scored_as_its_own_result_says(runs: tuple[list[Path], dict[str, Any]]) -> None:
    for member in ensembles.members(runs[0]):
        alone = ensembles.score([member.folder])
        assert alone.loss == pytest.approx(member.result.loss, abs=1e-5)
        assert alone.bits_per_byte == pytest.approx(member.result.bits_per_byte, abs=1e-5)


def test_one_model_is_in_memory_at_a_time(
    runs: tuple[list[Path], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
    most = 0

    def counted(folder: Path) -> Any:
        nonlocal most
        loaded = plain(folder)
        alive.add(loaded[0])
        gc.collect()
        most = max(most, len(alive))
        return loaded

    plain = ensembles.load_run
    monkeypatch.setattr(ensembles, "load_run", counted)
    ensembles.score(runs[0])
    assert most == 1


def test_the_command_says_it_in_words_and_in_json(runs: tuple[list[Path], dict[str, Any]]) -> None:
    names = [str(folder) for folder in runs[0]]
    told = CliRunner().invoke(evaluate, ["--ensemble", *names])
    assert told.exit_code == 0, told.output
    assert "mean of 3 members' probabilities: loss" in told.stdout
    values = json.loads(CliRunner().invoke(evaluate, ["--ensemble", *names, "--json"]).stdout)
    assert values["loss"] == ensembles.score(names).loss
    assert [member["run"] for member in values["members"]] == names


def test_what_cannot_be_averaged_is_said_in_one_sentence(
    runs: tuple[list[Path], dict[str, Any]], tmp_path: Path
) -> None:
    folders, chosen = runs

    def refused(*names: Path) -> str:
        done = CliRunner().invoke(evaluate, ["--ensemble", *map(str, names)])
        assert done.exit_code == 2, done.output
        return str(done.stderr)

    train(RunConfig(**chosen | {"tokenizer": "bpe:300"}), tmp_path / "other")
    train(RunConfig(**chosen | {"validation_documents": 4}), tmp_path / "fewer")
    shutil.copytree(folders[0], tmp_path / "begun")
    (tmp_path / "begun" / "result.json").unlink()
    shutil.copytree(folders[0], tmp_path / "light")
    shutil.rmtree(tmp_path / "light" / "final")
    assert "same tokenizer" in refused(folders[0], tmp_path / "other")
    assert "held-out documents" in refused(folders[0], tmp_path / "fewer")
    assert "train it to its end" in refused(folders[0], tmp_path / "begun")
    assert "no weights" in refused(folders[0], tmp_path / "light")
    assert "no run directory" in refused(tmp_path / "nowhere")
    assert "given twice" in refused(folders[0], folders[0])
    assert "needs members" in refused()
    with pytest.raises(InvalidInput, match="fp32"):
        ensembles.score(folders, dtype="fp8")
