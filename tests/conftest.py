"""Shared by all tests: how many run at once, hypothesis runs that repeat, the optional public run data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.places import SHARED

# Before torch or numpy are imported: threads that wait for each other on cores that other tests use are slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process per core, at most four; single tests, asked for by name, run without the wait for others."""
    by_name = all("::" in argument for argument in config.args)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if by_name else min(4, cores)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with public run tables, which is not part of the project."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the public run tables (../shared/data or $DATABOUND_SHARED/data) are not here")
    return SHARED / "data"
