"""A real server in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.simulated import grid_table
from planner.calibration import Calibration
from tests.places import ROOT

PATIENCE = 600.0  # seconds; only a failure waits that long, however busy the machine


def eventually(
    what: Callable[[], Any], wanted: Callable[[Any], bool] = bool, patience: float = PATIENCE
) -> Any:
    """What `what()` returns once it is as wanted."""
    deadline = time.monotonic() + patience
    while True:
        found = what()
        if wanted(found) or time.monotonic() > deadline:
            assert wanted(found), f"still {found!r} after {patience:g} s"
            return found
        time.sleep(0.05)


@pytest.fixture(scope="session")
def server() -> Iterator[Address]:
    """The address of `planner serve`, as a user starts it."""
    with serving() as address:
        assert address.startswith("http://127.0.0.1:")
        yield address


class Address(str):
    """Where a server answers, its process, and where it keeps files."""

    pid: int
    folder: Path


@contextlib.contextmanager
def serving(*options: str, **environment: str) -> Iterator[Address]:
    """`planner serve` with these options, until it is no longer needed; its address."""
    if importlib.util.find_spec("fastapi") is None:
        pytest.skip("fastapi is not installed: pip install '.[web]'")
    command = [sys.executable, "-u", "-m", "planner", "serve", "--port", "0", *options]
    files = tempfile.TemporaryDirectory()
    inherited = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": files.name, **environment}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=inherited)
    assert process.stdout is not None
    try:
        address = Address(process.stdout.readline().split()[2])
        address.pid, address.folder = process.pid, Path(files.name)
        eventually(lambda: _answers(address), patience=PATIENCE)
        yield address
        assert process.poll() is None, "the server died while it was tested"
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()
        left = sorted(path.name for path in Path(files.name).glob("databound-*"))
        files.cleanup()
    assert left == [], "what visitors uploaded outlived the server"


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=60) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="session")
def runs() -> pd.DataFrame:
    """Runs that obey a known law, with a little noise."""
    law = Calibration.load().law(0.1)
    table = grid_table(law, 90, 0.002, np.random.default_rng(7), weight_decay=0.1)
    return table.round({"params": 0, "unique_tokens": 0, "tokens": 0})
