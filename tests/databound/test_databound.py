"""`import databound` offers everything, costs next to nothing, and names the file that stands in its way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import calibration
import databound
import planner
import trainer
from tests.places import ROOT


def _python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter in a folder; the project comes last on its path, as an installed package does."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(ROOT)!r})\n{code}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("room", [planner, trainer, calibration], ids=lambda room: room.__name__)
def test_every_public_name_of_the_rooms_is_there(room: object) -> None:
    for name in room.__all__:  # type: ignore[attr-defined]
        assert getattr(databound, name) is getattr(room, name)
        assert name in dir(databound)


def test_no_name_means_two_things() -> None:
    assert len(databound.__all__) == len(set(databound.__all__))


def test_it_plans() -> None:
    assert databound.plan(ud=250e6, flops=5e18).epochs == 6


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="module 'databound' has no attribute 'plam'"):
        _ = databound.plam


def test_the_version_is_that_of_the_installed_package() -> None:
    from importlib.metadata import version

    assert databound.__version__ == version("databound") == planner.__version__


def test_importing_it_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import databound, sys; print(databound.plan(ud='1B', flops=1e19).epochs > 0)\n"
    code += "print([name for name in ('torch', 'pandas', 'scipy', 'matplotlib') if name in sys.modules])"
    result = _python(code, tmp_path)
    assert result.stdout.split() == ["True", "[]"], result.stderr


@pytest.mark.parametrize(
    ("file", "room", "name"),
    [
        ("trainer.py", "trainer", "train"),
        ("calibration/__init__.py", "calibration", "fit"),
        ("planner.py", "planner", "plan"),
    ],
)
def test_a_file_that_hides_a_room_is_named_and_not_run(
    tmp_path: Path, file: str, room: str, name: str
) -> None:
    mine = tmp_path / file
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("print('run')")
    result = _python(f"import databound; databound.{name}", tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    assert f"{mine} hides databound's package `{room}`" in result.stderr


def test_an_empty_folder_with_the_name_of_a_room_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "calibration").mkdir()
    result = _python("import databound; print(databound.fit.__name__)", tmp_path)
    assert result.stdout.strip() == "fit", result.stderr
