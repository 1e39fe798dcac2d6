"""The order of the rooms: imports point one way only, lazy ones included, and functions stay short enough to
be read at once.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from tests.places import ROOT

ROOMS = ("planner", "trainer", "calibration")
# In each house the rooms from the ground up: what is on one line may import the lines before it, and not its
# neighbours.
FLOORS: dict[str, list[set[str]]] = {
    "": [{"planner"}, {"trainer"}, {"calibration"}],
    "trainer": [
        {"errors", "waiting"},
        {"config", "files"},
        {"model", "data"},
        {"run"},
        {"cli", "downstream"},
    ],
    "calibration": [{"fitting"}, {"studies"}, {"reports"}, {"web"}, {"commands"}],
}
HEAVY = {"torch", "pandas", "scipy", "matplotlib", "datasets", "fastapi"}
LONGEST = 60  # lines of a function
MOST_BRANCHED = 15  # ways through one


@cache
def sources() -> dict[str, ast.Module]:
    """Every module of the three rooms by its dotted name."""
    found = {}
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def imported(name: str) -> Iterator[str]:
    """The modules of ours that a module imports anywhere, functions included; those for the type checker
    alone do not count.
    """
    tree = sources()[name]
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in sources())
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} imports by a relative name, which nothing else here does"
            within = (f"{node.module}.{alias.name}" for alias in node.names)
            found = {inner if inner in sources() else str(node.module) for inner in within}
            yield from found & sources().keys()


def room_of(name: str, house: str) -> str | None:
    """The room of a house that a module is in; None for the door of the house itself and for modules
    elsewhere.
    """
    inside = name.removeprefix(f"{house}.") if house else name
    return inside.split(".")[0] if not house or inside != name else None


@pytest.mark.parametrize("house", FLOORS)
def test_imports_point_one_way(house: str) -> None:
    floors = {room: floor for floor, rooms in enumerate(FLOORS[house]) for room in rooms}
    crossings = [
        f"{name} imports {other}"
        for name in sources()
        if (here := room_of(name, house))
        for other in imported(name)
        if (there := room_of(other, house)) and here != there and floors[there] >= floors[here]
    ]
    assert not crossings


@pytest.mark.parametrize("house", [house for house in FLOORS if house])
def test_every_module_has_a_floor(house: str) -> None:
    rooms = {room_of(name, house) for name in sources()} - {None}
    assert rooms == set().union(*FLOORS[house])


@pytest.mark.parametrize("house", [house for house in FLOORS if house])
def test_nobody_inside_uses_the_front_door(house: str) -> None:
    """The names that a package offers are for others; inside, one names the module, or importing would go in
    a circle.
    """
    inside = [name for name in sources() if room_of(name, house)]
    assert not [name for name in inside if house in imported(name)]


def test_the_planner_is_light() -> None:
    code = "import sys, planner; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {name.split(".")[0] for name in done.stdout.split()} & HEAVY


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}.{node.name}", node


def branches(node: ast.AST) -> int:
    """What a piece of syntax adds to the ways through a function."""
    match node:
        case ast.If() | ast.IfExp() | ast.Assert() | ast.Lambda():
            return 1
        case ast.For() | ast.AsyncFor() | ast.While():
            return 1 + bool(node.orelse)
        case ast.Try():
            return len(node.handlers) + bool(node.orelse)
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.Match():
            return len(node.cases)
    return 0


def test_functions_are_short() -> None:
    lines = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in functions()}
    assert not {name: count for name, count in lines.items() if count > LONGEST}


def test_functions_are_simple() -> None:
    """By McCabe's count, conditions and comprehensions included, which ruff's leaves out."""
    ways = {name: 1 + sum(map(branches, ast.walk(node))) for name, node in functions()}
    assert not {name: count for name, count in ways.items() if count > MOST_BRANCHED}
