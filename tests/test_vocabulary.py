"""The field's words: none that only this project ever used names a file, a public function or class, or is
said to a user. Prose (comments, docstrings, pages) may use ordinary English as it likes.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from planner.cli import planner
from tests.places import ROOT

# What may be no word of a name, and what the field says instead.
WORDS = {
    "believed": "Bayesian, posterior",
    "pooled": "hierarchical",
    "redrawn": "draws, resampled",
    "settled": "effective parameters",
    "doubts": "noise grid",
    "misfit": "discrepancy",
    "turned": "extrapolation weights",
    "outlook": "predictive covariance",
    "foresight": "expected information",
    "choosing": "select_runs",
    "slips": "sanity checks",
    "stages": "two_phase",
    "curved": "",
    "advice": "critical points, choice",
    "landscape": "compute curve",
    "spending": "loss-minimising compute",
    "spent": "budget",
    "dial": "weight-decay law",
    "dials": "weight-decay laws",
    "contest": "candidates",
    "translation": "recipe transfer",
    "sureness": "predictive uncertainty",
    "guessing": "uniform loss",
    "floor": "irreducible",
    "capacity": "parameter term",
    "showing": "display",
    "look": "style",
    "looks": "styles",
    "shadows": "",
    "lesson": "distillation loss",
    "workshop": "tokenize",
    "feed": "prefetch",
}
# What may be no whole name; in longer ones (`beyond_noise`, `training_memory`) these are ordinary English.
NAMES = {
    "after": "posterior",
    "beyond": "extrapolation splits",
    "notes": "warnings",
    "notes_of": "warnings_of",
    "over_all": "loss_draws",
    "law_skill": "extrapolation_errors",
    "turn": "point",
    "made": "model_construct",
    "records": "",
    "words": "BPE cache",
    "memory_epochs": "timescale_epochs",
    "memory_tokens": "timescale_tokens",
}
# What is said to nobody: in sentences of the code, in help texts, in answers.
SAID = re.compile(
    r"cannot be told from\b|is the better one|\babove guessing|\bmade of\b|\bspending limit|AdamW's memory"
    r"|full ensemble|ensemble of (draws|refits)|\b(sureness|guessing|floor|capacity|misfit|redrawn|dial"
    r"|believed|outlook|foresight|landscape|contest|translation|slips?|lesson|workshop)\b"
)
ALLOWED = {
    "spent_flops": "a field of the JSON of plans, which programs read",
    "weight_decay_advice": "a field of the JSON of plans, which programs read",
    "pooled_deviation": "the pooled standard deviation of statistics",
    "records": "those of a TensorBoard event file (TFRecord), and of JSON lines, as their formats call them",
    "made": "how many refits there were, a field of calibration files",
}
FOLDERS = ("planner", "trainer", "calibration", "databound", "benchmarks", "studies", "tests", "docs")


def unusual(name: str) -> list[str]:
    """The words of a name, in snake or camel case or with hyphens, that the field does not use."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")
    if snake in ALLOWED:
        return []
    return [word for word in snake.split("_") if word in WORDS] + [snake] * (snake in NAMES)


@cache
def files() -> tuple[Path, ...]:
    """Those under version control; of a source distribution, all."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return tuple(path for line in listed.stdout.splitlines() if (path := ROOT / line).exists())
    return tuple(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())


@cache
def sources() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in files() if path.suffix == ".py"}


def public_names(body: list[ast.stmt]) -> Iterator[str]:
    """Functions, classes and their methods; those that are tests have sentences for names."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not node.name.startswith(("_", "test_")):
                yield node.name
            if isinstance(node, ast.ClassDef):
                yield from public_names(node.body)


def sentences(tree: ast.Module) -> Iterator[str]:
    """All texts of more than a word, but for docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and " " in text.strip() and id(node) not in docstrings:
            yield text


def test_no_file_has_a_word_that_only_this_project_used() -> None:
    parts = {part for path in files() for part in path.relative_to(ROOT).parts}
    assert {part: found for part in parts if (found := unusual(part.partition(".")[0]))} == {}


def test_no_public_name_has_a_word_that_only_this_project_used() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}": words
        for path, tree in sources().items()
        for name in public_names(tree.body)
        if (words := unusual(name))
    }
    assert found == {}


def test_no_sentence_of_the_code_has_such_a_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()} in {text!r}"
        for path, tree in sources().items()
        # Tests, and what compares with an earlier version, quote what that version said.
        if "tests" not in path.relative_to(ROOT).parts and path.name != "same_answers.py"
        for text in sentences(tree)
        if (match := SAID.search(text))
    ]
    assert found == []


def commands(command: click.Command, path: str = "planner") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command, info_name=path) as context:
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from commands(found, f"{path} {name}")


def test_no_help_text_has_such_a_word() -> None:
    for path, command in commands(planner):
        with click.Context(command, info_name=path) as context:
            said = command.get_help(context)
        assert not SAID.search(" ".join(said.split())), path
        options = [name for each in command.params for name in each.opts]
        assert not [name for name in (path.split()[-1], *options) if unusual(name.lstrip("-"))], path


def answer(*asked: str) -> str:
    result = CliRunner().invoke(planner, [*asked], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(part)


PLANS = (
    "plan --ud 250M --flops 1e20 --spend all --gpu H100",
    "plan --calibration micro-weight-decay --ud 49k --flops 3e11 --learning-rate 3e-3",
    "plan --calibration micro --ud 65536 --flops 3e12",
    "predict --params 500M --ud 250M --epochs 4",
    "laws",
)


@pytest.mark.parametrize("asked", PLANS)
def test_no_answer_has_such_a_word(asked: str) -> None:
    assert not SAID.search(" ".join(answer(*asked.split()).split()))
    names = {*keys(json.loads(answer(*asked.split(), "--json")))}
    assert {name: words for name in names if (words := unusual(name))} == {}


def test_no_fit_has_such_a_word(tmp_path: Path) -> None:
    table, target = str(ROOT / "studies" / "micro" / "runs.csv"), tmp_path / "my.json"
    only = ["--where", "weight_decay == 0.1 and seed == 0", "--law", "additive_1p", "--bootstrap", "20"]
    for prior in ("auto", "none"):
        said = answer("calibrate", "fit", table, *only, "--prior", prior, "-o", str(target))
        assert not SAID.search(" ".join(said.split()))
        kept = {*keys(json.loads(target.read_text("utf-8")))}
        assert {name: words for name in kept if (words := unusual(name))} == {}


@pytest.mark.parametrize(
    "name", ["believed", "Doubts", "dial_steep", "law_look", "notes_of", "SpendingLimit"]
)
def test_what_was_ours_alone_is_noticed(name: str) -> None:
    assert unusual(name)


def test_a_sentence_of_ours_alone_is_noticed() -> None:
    tree = ast.parse('"""Of guessing."""\ndef f(): print(f"loss {1}, above guessing")')
    assert [text for text in sentences(tree) if SAID.search(text)] == [", above guessing"]
