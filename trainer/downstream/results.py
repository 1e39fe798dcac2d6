"""What an evaluation gives: one model over a suite, several side by side, and the rows of a table for
reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from planner.inputs import InvalidInput
from planner.uncertainty import LEVEL
from trainer.downstream.metrics import Estimate, Scores, suite_mean, task_mean
from trainer.downstream.tasks import MEAN, SHOTS, Task

INTERVAL = f"{LEVEL:.0%}"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class TaskResult(_Frozen):
    """One model on one task."""

    task: str
    variant: str
    shots: int | None
    five_shot: bool  # whether the shipped form is that of the protocol
    documents: int
    bpb: float
    bpb_error: float  # standard error
    bpb_low: float
    bpb_high: float
    accuracy: float | None  # by log-probability per character
    accuracy_error: float | None
    accuracy_raw: float | None  # by log-probability
    truncated: int  # documents whose right answer lost context on the left
    in_pieces: int  # documents whose right answer is longer than the model can see
    merged: int  # documents with a token that reaches from the context into the right answer
    data: str  # checksum of the requests
    device: str  # that computed it
    scores: Scores = Field(exclude=True, repr=False)

    @property
    def label(self) -> str:
        return f"{self.task}/{self.variant}"


class SuiteResult(_Frozen):
    """One model over a suite."""

    model: str
    kind: str
    fingerprint: str
    suite: str
    bpb: float  # mean over tasks
    bpb_error: float
    bpb_low: float
    bpb_high: float
    accuracy: float | None  # mean over the tasks that have one
    tasks: list[TaskResult]
    choices: dict[str, Any]  # how it was computed


class Difference(_Frozen):
    """BPB of one model minus that of another on the same documents; below zero the first is better."""

    first: str
    second: str
    task: str  # "mean": over all tasks
    difference: float
    error: float
    low: float
    high: float
    verdict: str  # the better model, or "tie" where the interval holds zero or comes from a single document


class Comparison(_Frozen):
    """Several models side by side."""

    models: list[SuiteResult]
    best: dict[str, str]  # lowest BPB per task, and of the mean
    differences: list[Difference]
    remarks: list[str]


def task_result(task: Task, data: str, scores: Scores, facts: dict[str, Any]) -> TaskResult:
    accuracy = task_mean(scores.correct, task.label) if scores.correct is not None else None
    return TaskResult(
        task=task.name,
        variant=task.variant,
        shots=task.shots,
        five_shot=task.shots == SHOTS,
        documents=len(scores.documents),
        **_figures(task_mean(scores.bpb, task.label)),
        accuracy=accuracy.value if accuracy else None,
        accuracy_error=accuracy.error if accuracy else None,
        accuracy_raw=sum(scores.correct_raw) / len(scores.correct_raw) if scores.correct_raw else None,
        data=data,
        scores=scores,
        **facts,
    )


def suite_result(tasks: Sequence[TaskResult], **facts: Any) -> SuiteResult:
    accuracies = [task.accuracy for task in tasks if task.accuracy is not None]
    return SuiteResult(
        **_figures(suite_mean({task.label: task.scores.bpb for task in tasks})),
        accuracy=sum(accuracies) / len(accuracies) if accuracies else None,
        tasks=list(tasks),
        **facts,
    )


def _figures(bpb: Estimate) -> dict[str, Any]:
    return {"bpb": bpb.value, "bpb_error": bpb.error, "bpb_low": bpb.low, "bpb_high": bpb.high}


def compare(results: Sequence[SuiteResult]) -> Comparison:
    """Best model per task, and for every pair of models the paired difference per task and of the mean."""
    if not results:
        raise InvalidInput("there is no result to compare.")
    cells = {row["task"]: row["models"].items() for row in bpb_table(results)}
    best = {task: next(name for name, cell in of if cell["best"]) for task, of in cells.items()}
    differences = [gap for pair in combinations(results, 2) for gap in _differences(*pair)]
    return Comparison(models=list(results), best=best, differences=differences, remarks=_remarks(results))


def bpb_table(results: Sequence[SuiteResult]) -> list[dict[str, Any]]:
    """Rows for a report: one per task and one for the mean, with a cell per model.

    No results make no rows. A name that two variants of a task share becomes "task/variant".

    {"task": "coqa", "note": "0-shot", "models": {"runs/first": {"bpb": 1.257, "error": 0.012, "accuracy":
    None, "best": True}}}
    """
    if not results:
        return []
    _comparable(results)
    rows = [
        _row(name, _note(results[0].tasks[place]), {r.model: r.tasks[place] for r in results})
        for place, name in enumerate(_names(results[0]))
    ]
    return [*rows, _row(MEAN, "", {result.model: result for result in results})]


def _note(task: TaskResult) -> str:
    """How a task that is not 5-shot is shown."""
    if task.five_shot:
        return ""
    return task.variant if task.shots is None else f"{task.shots}-shot"


def _row(task: str, note: str, cells: Mapping[str, TaskResult | SuiteResult]) -> dict[str, Any]:
    lowest = min(cell.bpb for cell in cells.values())
    models = {
        model: {"bpb": c.bpb, "error": c.bpb_error, "accuracy": c.accuracy, "best": c.bpb == lowest}
        for model, c in cells.items()
    }
    return {"task": task, "note": note, "models": models}


def _comparable(results: Sequence[SuiteResult]) -> None:
    names = [result.model for result in results]
    if len(set(names)) < len(names):
        raise InvalidInput(f"model {max(names, key=names.count)} is given twice.")
    for other in results[1:]:
        tasks, others = ([(task.label, task.data) for task in r.tasks] for r in (results[0], other))
        different = f"{results[0].model} and {other.model} were scored on different"
        if tasks != others:
            raise InvalidInput(f"{different} tasks.")
        for mine, theirs in zip(results[0].tasks, other.tasks, strict=True):
            if mine.scores.documents != theirs.scores.documents:
                raise InvalidInput(f"{different} documents of {mine.task}.")


def _names(result: SuiteResult) -> list[str]:
    """What the tasks are called in a table."""
    names = [task.task for task in result.tasks]
    return [task.task if names.count(task.task) == 1 else task.label for task in result.tasks]


def _differences(first: SuiteResult, second: SuiteResult) -> list[Difference]:
    gaps = {
        a.label: [x - y for x, y in zip(a.scores.bpb, b.scores.bpb, strict=True)]
        for a, b in zip(first.tasks, second.tasks, strict=True)
    }
    found = [
        (name, task_mean(gaps[a.label], a.label), a.documents)
        for name, a in zip(_names(first), first.tasks, strict=True)
    ]
    found.append((MEAN, suite_mean(gaps), min(a.documents for a in first.tasks)))

    def difference(task: str, gap: Estimate, documents: int) -> Difference:
        better = first.model if gap.high < 0 else second.model
        verdict = "tie" if documents == 1 or gap.low <= 0 <= gap.high else better
        figures = {"difference": gap.value, "error": gap.error, "low": gap.low, "high": gap.high}
        return Difference(first=first.model, second=second.model, task=task, verdict=verdict, **figures)

    return [difference(*one) for one in found]


def _remarks(results: Sequence[SuiteResult]) -> list[str]:
    """What makes the models less comparable than they look."""
    named = zip(_names(results[0]), results[0].tasks, strict=True)
    single = [name for name, task in named if task.documents == 1]
    remarks = [f"a single document tells nothing about its own error: {', '.join(single)}"] if single else []
    for what, name in (
        ("max_length", "see different numbers of tokens"),
        ("bos", "begin texts differently"),
        ("dtype", "compute in different precision"),
    ):
        values = {result.model: result.choices[what] for result in results}
        if len(set(map(str, values.values()))) > 1:
            each = ", ".join(f"{model} {value}" for model, value in values.items())
            remarks.append(f"the models {name}: {each}")
    return remarks
