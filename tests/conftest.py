"""Shared by all tests: how many run at once, hypothesis runs that repeat, the optional public run data."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.places import SHARED

# Before torch or numpy are imported: threads that wait for each other on cores that other tests use are slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Containers often forbid it; each of the hundreds of processes that tests start would compile all it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A job that a shell starts with & ignores Ctrl-C, one under nohup a hang-up, and so would every process that
# tests start and interrupt.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)
TOGETHER = {
    "browser": tuple(
        f"tests/calibration/web/test_{name}.py"
        for name in ("page", "first_screen", "tasks", "uploads", "api", "openapi", "attacks", "accessibility")
    ),
    "service": (
        *(f"tests/calibration/web/test_{name}.py" for name in ("api", "hosting")),
        "tests/databound/test_client.py",
    ),
    "downstream": ("tests/trainer/downstream/",),
}
# Each of their tests starts a dozen processes or waits for a node to be missed.
LONGEST = tuple(f"tests/calibration/studies/test_{name}.py" for name in ("cluster", "faults"))
SLOW = 50  # quick tests take about as long as one that is marked slow
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process per core, and two more for the whole suite, because tests of sweeps, clusters and pages wait
    for others half of their time; at most four. Single tests, asked for by name, start none.
    """
    by_name = all("::" in argument for argument in config.args)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if by_name else min(4, cores + 2 * (not config.option.markexpr))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have the tests of a file run one after the other in one process: they share what is made for them."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return ByFile(config, log)


def together(nodeid: str) -> str:
    """What a test has to run in one process with: its file, or the files that share a browser or a trained
    model with it.
    """
    path = nodeid.partition("::")[0]
    return next((name for name, paths in TOGETHER.items() if path.startswith(paths)), path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no core is idle at the end."""
    weight: Counter[str] = Counter()
    for item in items:
        weight[together(item.nodeid)] += SLOW if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: (not item.nodeid.startswith(LONGEST), -weight[together(item.nodeid)]))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with public run tables, which is not part of the project."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the public run tables (../shared/data or $DATABOUND_SHARED/data) are not here")
    return SHARED / "data"
