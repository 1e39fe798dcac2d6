"""Checkpoints: two are kept, each is checked down to its last number, and training does not wait for them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from planner.inputs import InvalidInput
from tests.trainer.conftest import losses
from tests.trainer.run.test_loop import same, stop_after
from trainer import RunConfig, TrainingStopped, train
from trainer.files import checksum, read_json, write_json
from trainer.run import checkpoints, device, tensors
from trainer.run.distributed import World
from trainer.run.export import export


def stopped(config: RunConfig, folder: Path, steps: int) -> list[Path]:
    """Checkpoints of a run that was stopped, the newest last."""
    with pytest.raises(TrainingStopped):
        train(config, folder, should_stop=stop_after(steps))
    return sorted((folder / "checkpoints").iterdir())


def test_the_last_two_are_kept(settings: dict[str, Any], tmp_path: Path) -> None:
    found = stopped(RunConfig(**settings | {"checkpoint_every": 3}), tmp_path / "run", 14)
    assert [path.name for path in found] == ["step-00000012", "step-00000014"]


@pytest.mark.parametrize("file", ["state.json", "part-00000.safetensors"])
def test_the_older_one_is_used_where_the_newer_is_damaged_and_said(
    settings: dict[str, Any], tmp_path: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = RunConfig(**settings | {"checkpoint_every": 5})
    train(config, tmp_path / "whole")
    newer = stopped(config, tmp_path / "run", 12)[-1]
    if file == "state.json":
        state = read_json(newer / file)
        write_json(newer / file, state | {"step": state["step"] + 7})
    else:
        raw = bytearray((newer / file).read_bytes())
        raw[-3] ^= 4
        (newer / file).write_bytes(raw)
    result = train(config, tmp_path / "run")
    assert "does not match its checksum" in result.remarks[0]
    assert "went on from step 10" in result.remarks[0]
    assert "went on from step 10" in caplog.text
    assert same(tmp_path / "whole", tmp_path / "run")
    assert losses(tmp_path / "whole") == losses(tmp_path / "run")


def test_every_number_of_the_state_is_checked(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(**settings)
    path = stopped(config, tmp_path / "run", 9)[-1] / "state.json"
    state = read_json(path)
    for name, value in (("step", 16), ("seconds", 0.0), ("starts", 9), ("recent_losses", [1.0])):
        write_json(path, state | {name: value})
        with pytest.raises(InvalidInput, match=r"state.json does not match its checksum"):
            train(config, tmp_path / "run")
    write_json(path, state)
    train(config, tmp_path / "run")


def test_training_goes_on_while_a_checkpoint_is_written(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig(**settings | {"checkpoint_every": 10, "epochs": 1})
    train(config, tmp_path / "whole")
    go_on, plain, steps = threading.Event(), tensors.write, iter(range(1, 100))

    def slow(*args: Any) -> str:
        assert go_on.wait(60)
        return plain(*args)

    def after_step() -> bool:
        if next(steps) == 15:  # five steps after the checkpoint of step 10 was begun
            go_on.set()
        return False

    monkeypatch.setattr(tensors, "write", slow)
    train(config, tmp_path / "run", should_stop=after_step)
    assert go_on.is_set()
    assert same(tmp_path / "whole", tmp_path / "run")


def test_a_checkpoint_that_cannot_be_written_stops_the_run(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensors, "write", full)
    config = RunConfig(**settings | {"checkpoint_every": 5})
    with pytest.raises(TrainingStopped, match=r"step-00000005 cannot be written .no space left on device"):
        train(config, tmp_path / "run")
    assert not any((tmp_path / "run" / "checkpoints").iterdir())


def test_files_are_those_of_the_library_but_for_everybody(tmp_path: Path) -> None:
    some = {"b": torch.randn(3, 5), "a": torch.ones(2), "empty": torch.zeros(0, 4)}
    before = os.umask(0o022)
    try:
        value = tensors.write(tmp_path / "ours", some, {"format": "pt"})
    finally:
        os.umask(before)
    save_file(some, tmp_path / "theirs", metadata={"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert value == checksum(tmp_path / "ours")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == 0o644


def test_exported_files_can_be_read_by_others(settings: dict[str, Any], tmp_path: Path) -> None:
    train(RunConfig(**settings | {"epochs": 0.1}), tmp_path / "run")
    before = os.umask(0o022)
    try:
        folder = export(tmp_path / "run", tmp_path / "hf")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


@pytest.mark.parametrize(("wrote", "reads"), [(1, 1), (3, 1), (1, 3), (3, 2), (2, 5)])
def test_any_number_of_processes_reads_what_any_number_wrote(tmp_path: Path, wrote: int, reads: int) -> None:
    whole = {"matrix": torch.randn(7, 3), "gain": torch.randn(4)}

    def share(tensor: torch.Tensor, rank: int, size: int) -> tuple[int, int]:
        each = -(-len(tensor) // size)
        return min(rank * each, len(tensor)), min((rank + 1) * each, len(tensor))

    sums = []
    for rank in range(wrote):
        shares = {name: share(tensor, rank, wrote) for name, tensor in whole.items()}
        held = {name: whole[name][slice(*rows)] for name, rows in shares.items()}
        firsts = {name: first for name, (first, _) in shares.items()}
        sums.append(checkpoints.write_part(tmp_path, {"step": 4}, held, firsts, World(rank, wrote)))
    checkpoints.complete(tmp_path, {"step": 4}, sums)
    found, remarks = checkpoints.newest(tmp_path, {}, World())
    assert found is not None
    assert (found.step, len(found.files), remarks) == (4, wrote, [])
    with found.rows() as rows:
        for name, tensor in whole.items():
            shares = [share(tensor, rank, reads) for rank in range(reads)]
            parts = [rows.read(name, a, b) for a, b in shares if b > a]
            assert torch.equal(torch.cat(parts), tensor)


def test_checkpoints_of_the_version_before_are_continued(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(**settings)
    train(config, tmp_path / "whole")
    folder = stopped(config, tmp_path / "run", 9)[-1]
    held, state = load_file(folder / "part-00000.safetensors"), read_json(folder / "state.json")
    files = {
        "model.safetensors": {name: value for name, value in held.items() if "/" not in name},
        "optimizer.safetensors": {name: value for name, value in held.items() if "/" in name},
    }
    shutil.rmtree(folder)
    folder.mkdir()
    for name, part in files.items():
        save_file(part, folder / name)
    sums = {name: checksum(folder / name) for name in files}
    del state["checksum"]
    write_json(folder / "state.json", state | {"version": 1, "checksums": sums})
    train(config, tmp_path / "run")
    assert same(tmp_path / "whole", tmp_path / "run")


def test_the_interval_follows_the_cost_unless_it_is_asked_for(settings: dict[str, Any]) -> None:
    asked, free = (
        checkpoints.Pace(RunConfig(**settings | changes)) for changes in ({"checkpoint_seconds": 7}, {})
    )
    intervals = []
    for cost in (0.001, 0.5, 2.0, 100.0):
        for pace in (asked, free):
            pace.wrote(cost)
        assert asked.interval == 7
        intervals.append(free.interval)
    assert all(a < b for a, b in pairwise(intervals))
    assert intervals[2] == pytest.approx(2.0 / 0.02)  # a fiftieth of the time
    free.written -= 1000
    assert free.late()
    assert not asked.late()


def test_every_start_counts(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig(**settings)
    with monkeypatch.context() as patch:
        patch.setattr("trainer.run.loop.build", lambda *args: 1 / 0)
        for _ in range(2):  # ends before any checkpoint
            with pytest.raises(ZeroDivisionError):
                train(config, tmp_path / "run")
    stopped(config, tmp_path / "run", 4)
    result = train(config, tmp_path / "run")
    assert result.starts == 4
    assert json.loads((tmp_path / "run" / "result.json").read_text())["starts"] == 4
    assert sorted(path.name for path in (tmp_path / "run").iterdir() if path.name[0] != ".") == [
        "config.json",
        "final",
        "metrics.jsonl",
        "result.json",
        "tokenizer",
    ]


def test_a_run_ends_in_the_dtype_in_which_it_began(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the machine that goes on would have chosen."""
    config = RunConfig(**settings | {"dtype": "auto"})
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    stopped(config, tmp_path / "run", 9)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    result = train(config, tmp_path / "run")
    assert result.execution["dtype"] == result.row()["dtype"] == "bf16"
    assert not any("another dtype" in remark for remark in result.remarks)


def test_processes_that_share_a_gpu_plan_with_their_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setenv("DATABOUND_GPU_SHARE", "0.5")
    assert device.total_memory(torch.device("cuda:0")) == 40 * 2**30
