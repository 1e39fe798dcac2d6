"""How many workers a machine gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from calibration.studies import local, ranks
from calibration.studies.directory import begin, prepare
from calibration.studies.engine import Needs, Task
from calibration.studies.local import LocalEngine, _cores
from calibration.studies.study import load
from calibration.studies.worker import train_task
from planner.inputs import InvalidInput
from trainer.errors import Busy, TrainingStopped


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("9900000 100000", 64),
        ("max 100000", 64),
        ("", 64),
    ],
)
def test_a_container_s_share_of_the_cores(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    (tmp_path / "cpu.max").write_text(quota + "\n")
    assert _cores(tmp_path / "cpu.max") == cores
    assert _cores(tmp_path / "missing") == 64


@pytest.mark.slow
def test_a_run_on_several_gpus_is_trained_by_torchrun_and_stops_with_a_checkpoint(
    study: Path, tmp_path: Path
) -> None:
    """Two processes on cores here: what differs on GPUs is what they compute on."""
    study.write_text(study.read_text().replace("epochs = [2, 4]", "epochs = [16]"))
    plan = load(study)
    folder, run = begin(plan, tmp_path / "out"), plan.runs[0]
    tokens = prepare(plan.runs, folder)
    values = run.config.model_dump(mode="json", exclude_unset=True) | {"checkpoint_every": 1000000}
    task = Task(run.name, values, str(folder.run_folder(run.name)), str(tokens), processes=2)
    metrics = folder.run_folder(run.name) / "metrics.jsonl"
    stopped = train_task(task, lambda: metrics.exists() and metrics.stat().st_size > 0)
    assert stopped.kind == "stopped", stopped
    assert folder.checkpoint(run.name).startswith("step-")
    done = train_task(task)
    assert done.kind == "done", done
    result = folder.result(run.name)
    assert result is not None
    assert (result.execution["world_size"], result.starts) == (2, 2)


def test_a_run_on_several_gpus_whose_store_is_busy_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def taken(url: str) -> Iterator[Path]:
        raise Busy(f"{url} is being trained by another process.")
        yield tmp_path

    @contextmanager
    def unwritten(url: str) -> Iterator[Path]:
        yield tmp_path
        raise TrainingStopped(f"{url} cannot be written (no answer).")

    ended = SimpleNamespace(stdin=SimpleNamespace(close=lambda: None), poll=lambda: 1, returncode=1)
    monkeypatch.setattr(ranks.subprocess, "Popen", lambda *command, **pipes: ended)
    task = Task("one", {}, "memory://busy-study/runs/one", str(tmp_path), processes=2)
    for stage, kind in ((taken, "busy"), (unwritten, "failed")):
        monkeypatch.setattr(ranks, "staged", stage)
        assert train_task(task).kind == kind


def test_the_sentence_of_a_rank_is_found_in_what_torchrun_says() -> None:
    said = (
        "W1119 02:00:00 torch/distributed/run.py:851] Setting OMP_NUM_THREADS to 1\n"
        "Error: memory ran out.\n"
        "E1119 02:00:30 failed (exitcode: 1) local_rank: 0\n"
        "  time: 2026-11-19 Error: not at the beginning\n"
        "============================================================\n"
    )
    assert ranks._reason(said, 1) == "memory ran out."
    assert ranks._reason("====\n", -9) == "torchrun ended with code -9"


def test_gpus_are_given_out_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_gpus", lambda: 8)
    assert LocalEngine(tmp_path, needs=Needs(gpus=4)).size == 2
    assert LocalEngine(tmp_path, per_gpu=2).share == 0.5
    with pytest.raises(InvalidInput, match="asks for 16 a run and this machine has 8"):
        LocalEngine(tmp_path, needs=Needs(gpus=16))
