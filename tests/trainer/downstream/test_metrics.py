"""Figures, their errors, and when one model counts as better than another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from planner.inputs import InvalidInput
from trainer.downstream import metrics
from trainer.downstream.results import MEAN, SuiteResult, bpb_table, compare, suite_result, task_result
from trainer.downstream.tasks import Answer, Document, Task


def result(name: str, tasks: dict[str, list[float]], **choices: Any) -> SuiteResult:
    from pathlib import Path

    rows = []
    for label, values in tasks.items():
        task = Task(*label.split("/"), Path("requests.jsonl.gz"))
        chosen = [(i + 1) % 2 for i in range(len(values))] if task.multiple_choice else None
        scores = metrics.Scores(list(range(len(values))), values, chosen, chosen)
        facts = {"truncated": 0, "in_pieces": 0, "merged": 0, "device": "cpu"}
        rows.append(task_result(task, "data", scores, facts))
    choices = {"max_length": 512, "bos": "none", "dtype": "fp32"} | choices
    return suite_result(rows, model=name, kind="run", fingerprint=name, suite="mine", choices=choices)


def values(seed: int, size: int = 400) -> list[float]:
    return np.random.default_rng(seed).gamma(4.0, 0.4, size=size).tolist()


def test_bits_per_byte() -> None:
    assert metrics.bits_per_byte(math.log(0.25), 2) == pytest.approx(1.0)
    question = Document(7, (Answer("?", " ja"), Answer("?", " nö")), gold=1)
    found = metrics.scores([question], [[math.log(0.5), math.log(0.25)]], choices=True)
    assert found.bpb == pytest.approx([2 / 4])  # " nö" has four bytes
    assert (found.documents, found.correct, found.correct_raw) == ([7], [0], [0])


def test_accuracy_per_character_does_not_favour_short_answers() -> None:
    question = Document(0, (Answer("?", " no"), Answer("?", " a longer one")), gold=1)
    found = metrics.scores([question], [[-3.0, -6.0]], choices=True)
    assert (found.correct, found.correct_raw) == ([1], [0])
    assert metrics.scores([question], [[-3.0, -6.0]], choices=False).correct is None


def test_standard_errors_are_those_of_a_mean() -> None:
    sample = values(1)
    found = metrics.task_mean(sample, "task")
    assert found.value == pytest.approx(np.mean(sample))
    assert found.error == pytest.approx(np.std(sample) / math.sqrt(len(sample)), rel=0.1)
    assert found.low == pytest.approx(found.value - 1.96 * found.error, abs=0.3 * found.error)
    assert found.high == pytest.approx(found.value + 1.96 * found.error, abs=0.3 * found.error)
    tasks = {"a": values(1), "b": values(2, 900)}
    errors = [metrics.task_mean(v, k).error for k, v in tasks.items()]
    assert metrics.suite_mean(tasks).error == pytest.approx(math.hypot(*errors) / 2, rel=0.1)


@pytest.mark.parametrize("size", [2, 3, 10])
def test_standard_errors_are_right_for_few_documents_too(size: int) -> None:
    sample = values(1, size)
    assert metrics.task_mean(sample, "task").error == pytest.approx(
        np.std(sample, ddof=1) / math.sqrt(size), rel=0.1
    )


def test_a_single_document_decides_nothing() -> None:
    found = compare([result(name, {"x/rc_5shot": [value]}) for name, value in (("a", 1.0), ("b", 2.0))])
    assert {gap.verdict for gap in found.differences} == {"tie"}
    assert found.remarks == ["a single document tells nothing about its own error: x"]


def test_two_variants_of_a_task_stay_apart() -> None:
    a, b = (
        result(n, {"x/rc_5shot": [v, 1.0], "x/bpb_0shot": [1.0, 3 - v]}) for n, v in (("a", 1.0), ("b", 2.0))
    )
    found = compare([a, b])
    assert found.best == {"x/rc_5shot": "a", "x/bpb_0shot": "b", MEAN: "a"}
    assert [gap.task for gap in found.differences] == ["x/rc_5shot", "x/bpb_0shot", MEAN]


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    held = [
        0.0 + m.low <= 1.6 <= m.high
        for m in (metrics.task_mean(values(seed, 100), str(seed)) for seed in range(300))
    ]
    assert 0.90 <= np.mean(held) <= 0.98


def test_the_mean_is_over_tasks_not_documents() -> None:
    found = result("a", {"x/rc_5shot": [1.0] * 10, "y/bpb_5shot": [2.0] * 90})
    assert (found.bpb, found.accuracy) == (1.5, 0.5)


def test_a_small_paired_difference_is_seen_and_a_chance_one_is_a_tie() -> None:
    """The documents differ by far more than the models, but they differ for both."""
    base = values(3)
    noise = np.random.default_rng(4).normal(0.0, 0.05, len(base))
    better = result("better", {"x/rc_5shot": [v - 0.03 + e for v, e in zip(base, noise, strict=True)]})
    other = result("other", {"x/rc_5shot": base})
    found = compare([better, other])
    gap = found.differences[-1]
    assert (gap.task, gap.verdict) == (MEAN, "better")
    assert gap.difference == pytest.approx(better.bpb - other.bpb)
    assert gap.high < 0 < better.bpb_high - other.bpb_low  # unpaired, the intervals overlap
    assert found.best == {"x": "better", MEAN: "better"}
    chance = result("chance", {"x/rc_5shot": (np.asarray(base) + noise - noise.mean()).tolist()})
    assert compare([chance, other]).differences[-1].verdict == "tie"
    assert compare([other, better]).differences[-1].verdict == "better"


def test_three_models_make_three_pairs() -> None:
    found = compare([result(name, {"x/rc_5shot": values(i)}) for i, name in enumerate("abc")])
    assert [(d.first, d.second) for d in found.differences if d.task == MEAN] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]


def test_the_table_for_reports() -> None:
    a = result("a", {"x/rc_5shot": [1.0, 2.0], "y/bpb_0shot": [3.0, 3.0]})
    b = result("b", {"x/rc_5shot": [2.0, 2.0], "y/bpb_0shot": [1.0, 2.0]})
    rows = bpb_table([a, b])
    assert [(row["task"], row["note"]) for row in rows] == [("x", ""), ("y", "0-shot"), (MEAN, "")]
    assert [[cell["best"] for cell in row["models"].values()] for row in rows] == [
        [True, False],
        [False, True],
        [False, True],
    ]
    assert rows[0]["models"]["a"] == {
        "bpb": 1.5,
        "error": pytest.approx(0.5, rel=0.1),
        "accuracy": 0.5,
        "best": True,
    }
    assert rows[1]["models"]["b"]["accuracy"] is None
    assert bpb_table([]) == []


def test_results_that_cannot_be_compared() -> None:
    a = result("a", {"x/rc_5shot": [1.0, 2.0]})
    with pytest.raises(InvalidInput, match="different documents of x"):
        compare([a, result("b", {"x/rc_5shot": [1.0, 2.0, 3.0, 4.0]})])
    with pytest.raises(InvalidInput, match="different tasks"):
        compare([a, result("b", {"y/rc_5shot": [1.0, 2.0]})])
    with pytest.raises(InvalidInput, match="different tasks"):
        compare([a, result("b", {"x/rc_5shot": [1.0, 2.0], "y/rc_5shot": [1.0, 2.0]})])
    with pytest.raises(InvalidInput, match="model a is given twice"):
        compare([a, a])
    with pytest.raises(InvalidInput, match="no result"):
        compare([])


def test_what_makes_models_less_comparable_is_said() -> None:
    found = compare(
        [result("a", {"x/rc_5shot": [1.0, 2.0]}), result("b", {"x/rc_5shot": [1.0, 2.0]}, max_length=128)]
    )
    assert found.remarks == ["the models see different numbers of tokens: a 512, b 128"]
