"""How many workers a machine gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calibration.studies.local import _cores


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
