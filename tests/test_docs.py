"""What the documents say is what the code does."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import planner
from tests.places import ROOT

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "studies").rglob("*.md")),
]
MANUAL = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]


def _name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def test_the_readme_shows_what_plan_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command = text.split(".venv/bin/planner ", 1)[1].split("\n", 1)[0]
    shown = text.split("```\nTrain ", 1)[1].split("...\n```", 1)[0]
    assert len(shown.splitlines()) > 5
    assert CliRunner().invoke(planner, command.split()).output.startswith("Train " + shown)


def test_the_readme_and_the_pages_of_the_manual_are_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900
    for page in MANUAL:
        assert len(page.read_text(encoding="utf-8").split()) <= 1500, _name(page)


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_prose_is_wrapped(document: Path) -> None:
    """Lines of tables, of code and with a long word may be longer; so may what a script writes."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^<!-- python .*?^<!-- end", "", text, flags=re.DOTALL | re.MULTILINE)
    for line in text.splitlines():
        words = re.sub(r"`[^`]*`|\([^)]*\)", "", line)
        assert len(words) <= 110 or line.lstrip().startswith("|"), line


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_links_and_pictures_exist(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_what_the_documents_import_is_there(document: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        tree = ast.parse(block)
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(tree, str(document), "exec"), {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_files_that_the_documents_name_exist(document: Path) -> None:
    folders = "planner|trainer|calibration|databound|tests|benchmarks|studies|docs"
    for name in re.findall(rf"(?<![\w/.-])((?:{folders})/[\w./-]*)", document.read_text()):
        assert (ROOT / name.rstrip(".")).exists(), name


@pytest.mark.parametrize("room", ["planner", "trainer", "calibration"])
def test_the_reference_has_every_public_name(room: str) -> None:
    text = (ROOT / "docs" / "api" / f"{room}.md").read_text()
    shown = re.findall(rf"^::: {room}\.(\w+)$", text, re.MULTILINE)
    assert sorted(shown) == sorted(import_module(room).__all__)


def test_the_new_law_of_the_recipe_is_the_tested_one() -> None:
    recipe = (ROOT / "CONTRIBUTING.md").read_text()
    tested = ast.parse((ROOT / "tests" / "test_new_law.py").read_text())
    parts = [
        node
        for node in ast.walk(tested)
        if (isinstance(node, ast.FunctionDef) and node.name == "logarithmic")
        or (isinstance(node, ast.Call) and ast.unparse(node).startswith("register(LawForm('toy'"))
    ]
    shown = ast.unparse(ast.parse(recipe.split("```python\n")[1].split("```")[0]))
    assert len(parts) == 2
    for part in parts:
        assert ast.unparse(part) in shown


def test_every_benchmark_is_said_to_measure_something() -> None:
    recipe = (ROOT / "CONTRIBUTING.md").read_text()
    for path in (ROOT / "benchmarks").glob("*.py"):
        if "__main__" in path.read_text() or path.name.startswith("test_"):
            assert f"`{path.name}`" in recipe, path.name
