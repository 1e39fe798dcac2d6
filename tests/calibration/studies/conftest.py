"""A study of eight runs that takes seconds, `planner calibrate
sweep` in a process of its own, and ways to see how far it is.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="sweeps need torch")

from tests.places import ROOT
from tests.trainer.conftest import corpus
from trainer import read_result

__all__ = ["corpus"]
TOKEN = secrets.token_hex(16)
STUDY = """
title = "Eight tiny runs"
[recipe]
preset = "micro"
corpus = "CORPUS"
tokenizer = "bytes"
sequence_length = 32
validation_documents = 5
development_documents = 0
compile = "off"
checkpoint_every = 10
log_every = 1
[[grid]]
params = ["12k", "20k"]
unique_tokens = ["4k"]
epochs = [2, 4]
weight_decays = [0.1]
seeds = [0, 1]
"""
STEPS = 4 * 63 + 4 * 125
PATIENCE = 600.0  # seconds; only a failure waits that long, however busy the machine


@pytest.fixture
def study(tmp_path: Path, corpus: Path) -> Path:
    """The file of the study, and a corpus of its own next to it."""
    path = tmp_path / "tiny.toml"
    path.write_text(STUDY.replace("CORPUS", str(corpus)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> dict[str, Any]:
    """What the study gives when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "tiny.toml").write_text(STUDY.replace("CORPUS", str(corpus)), encoding="utf-8")
    done = run(folder / "tiny.toml", folder / "out")
    assert done.returncode == 0, done.stderr
    return endings(folder / "out")


def begin(study: Path | str, out: Path, *options: str, **keywords: Any) -> subprocess.Popen[str]:
    """Start a sweep."""
    command = [sys.executable, "-m", "planner", "calibrate", "sweep", str(study), "-o", str(out), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen(command, cwd=out.parent, **{"env": environment()} | pipes | keywords)


def environment() -> dict[str, str]:
    """Of every process that is started here; clusters let in whoever has the token that is made up for this
    session, and notice soon that a node has died.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return kept | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_health_check_initial_delay_ms": "0",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "20000",  # a busy machine answers late, a dead node not at all
    }


def ended(process: subprocess.Popen[str], timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run(
    study: Path | str, out: Path, *options: str, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """A sweep with one worker, whose start takes longer than eight tiny runs, started and awaited."""
    return ended(begin(study, out, "--workers", "1", *options), timeout)


def endings(out: Path) -> dict[str, Any]:
    """How every run of a study directory ended, to the bit."""
    found = {folder.name: read_result(folder) for folder in (out / "runs").iterdir()}
    return {
        name: result and (result.loss, result.train_loss, result.weights_checksum)
        for name, result in found.items()
    }


def starts(out: Path) -> dict[str, int]:
    found = {folder.name: read_result(folder) for folder in (out / "runs").iterdir()}
    return {name: result.starts for name, result in found.items() if result}


def finished(out: Path) -> dict[str, int]:
    """When each finished run was; a run that is trained again would have another time."""
    return {path.parent.name: path.stat().st_mtime_ns for path in (out / "runs").glob("*/result.json")}


def steps(out: Path) -> int:
    """Steps done so far, over all runs."""
    return sum(path.read_bytes().count(b'"loss"') for path in (out / "runs").glob("*/metrics.jsonl"))


def midway(out: Path) -> bool:
    """Whether some run is well after its first step and well before its last, the 63rd or the 125th."""
    done = finished(out)
    unfinished = (path for path in (out / "runs").glob("*/metrics.jsonl") if path.parent.name not in done)
    return any(5 <= path.read_bytes().count(b'"loss"') <= 40 for path in unfinished)


def until(holds: Callable[[], Any], process: subprocess.Popen[str], timeout: float = PATIENCE) -> Any:
    """Wait until something holds and return it; False where the process has ended before."""
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        if found := holds():
            return found
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)
    return False


def children(pid: int, containing: str) -> Iterator[int]:
    """Processes that a process has started, by a part of their command line."""
    started: list[str] = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # threads and processes come and go
            started += (thread / "children").read_text().split()
    for child in started:
        with suppress(OSError):
            if containing in Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode():
                yield int(child)


def holder(out: Path, name: str) -> int | None:
    """The process that trains a run, or did last."""
    try:
        words = (out / "runs" / name / ".lock").read_text().split()
    except OSError:
        return None
    return int(words[1]) if len(words) > 1 else None


def failures(out: Path) -> list[dict[str, Any]]:
    path = out / "failures.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
