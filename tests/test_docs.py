"""What the documents say is what the code does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import planner
from tests.places import ROOT


def _commands(text: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("planner ")]


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_readme_shows_what_plan_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    printed = CliRunner().invoke(planner, ["plan", "--ud", "250M", "--flops", "5e18"]).output
    shown = (ROOT / "README.md").read_text().split("```\n250M unique tokens")[1].split("  ...\n```")[0]
    assert printed.startswith("250M unique tokens" + shown)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_pictures_exist(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target


def _quick(line: str) -> bool:
    """Commands that need no file of the user's."""
    return shlex.split(line)[1] in planner.commands or "calibrate design" in line


@pytest.mark.parametrize(
    "line", sorted({line for path in DOCUMENTS for line in _commands(path.read_text()) if _quick(line)})
)
def test_every_command_in_the_documents_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(planner, shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
