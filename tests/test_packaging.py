"""What is built of the project has every file that it reads."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.places import ROOT

PACKAGES = ("planner", "trainer", "calibration", "databound")
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


def test_what_messages_and_pages_have_installed_works_from_a_clone() -> None:
    """Nothing is asked of an index for this project itself, and every extra that is named is there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    texts += [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    said = "\n".join(path.read_text(encoding="utf-8") for path in texts)
    named = set(re.findall(r"pip install (?:-e )?'\.\[(\w+)\]'", said))
    assert {"web", "train"} <= named <= set(project["optional-dependencies"])
    assert not re.search(rf"pip install\W+{project['name']}\b", said)


# The first version with what is used of it: products of bf16 in fp32 (`mm(out_dtype=)`), `label_selector` of
# tasks, attention that torch.compile takes as it is.
FLOORS = {"torch": "2.8", "ray": "2.49", "flash-attn": "2.7.1"}


def test_what_is_installed_has_what_is_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    asked = {found.name: found.specifier for found in map(Requirement, named) if found.specifier}
    for name, first in FLOORS.items():
        before = f"{first.rpartition('.')[0]}.{int(first.rpartition('.')[2]) - 1}.99"
        assert before not in asked[name], name
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for pinned in (Requirement(line) for line in lines if "==" in line):
        version = next(iter(pinned.specifier)).version
        assert pinned.name not in asked or version in asked[pinned.name], pinned.name


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build in, so that nothing is left behind in the project."""
    folder = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, folder)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "--wheel-dir", "built", "."], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = (source / "built").glob("databound-*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {
        "planner/data/fineweb-llama2.json",
        "calibration/web/static/page.js",
        "planner/py.typed",
    } <= wanted
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.mark.slow
def test_the_wheel_answers_where_nothing_else_is(wheel: Path, tmp_path: Path) -> None:
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    zipfile.ZipFile(wheel).extractall(installed)
    empty.mkdir()
    for words, answer in (
        (["plan", "--ud", "250M", "--flops", "5e18"], "Train 556M"),
        (["laws"], "additive_4p"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "planner", *words],
            cwd=empty,
            env={"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert answer in done.stdout
