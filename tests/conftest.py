"""Shared by all tests: reproducible hypothesis runs, and where the optional public run data is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.places import SHARED

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with public run tables, which is not part of the project."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the public run tables (../shared/data or $DATABOUND_SHARED/data) are not here")
    return SHARED / "data"
