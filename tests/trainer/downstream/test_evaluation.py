"""One model over a suite: what is recorded, kept, continued and refused."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.inputs import InvalidInput
from tests.places import ROOT
from tests.trainer.downstream.conftest import ANSWERS, QUESTIONS
from trainer.downstream import bpb_table, evaluate, evaluate_all, stored

SUITE = {"questions/rc_3shot": QUESTIONS, "answers/bpb_5shot": ANSWERS}


class Told:
    """Which tasks were scored; can interrupt one."""

    def __init__(self, stop_at: str | None = None):
        self.tasks: list[str] = []
        self.stop_at = stop_at

    def __call__(self, task: str, done: int, total: int) -> None:
        if task == self.stop_at:
            raise KeyboardInterrupt
        if done == total:
            self.tasks.append(task)


def test_choices_and_counts_are_recorded(run: Path, suite: Callable[..., Path]) -> None:
    found = evaluate(run, suite=str(suite(SUITE)), keep=False, limit=3)
    by_name = {task.task: task for task in found.tasks}
    assert by_name["answers"].truncated == 1
    assert (by_name["questions"].five_shot, by_name["answers"].five_shot) == (False, True)
    assert by_name["answers"].accuracy is None
    assert found.choices["max_length"] == 512
    assert found.choices["documents"] == "the first 3 documents of each task"
    assert "UTF-8 bytes" in found.choices["metric"]
    assert found.choices["task_data"] == f"folder {found.suite}"
    assert by_name["answers"].device == "cpu"
    assert len(found.fingerprint) == 24
    stored = found.model_dump(mode="json")
    assert "scores" not in stored["tasks"][0]  # thousands of figures stay out of the printed result


def test_bpb_only_gives_the_same_bpb_and_no_accuracy(run: Path, suite: Callable[..., Path]) -> None:
    tasks = str(suite(SUITE))
    whole, only = (
        evaluate(run, suite=tasks, keep=False),
        evaluate(run, suite=tasks, keep=False, bpb_only=True),
    )
    assert only.bpb == pytest.approx(whole.bpb, abs=1e-6)
    assert (whole.accuracy is None, only.accuracy) == (False, None)


def test_finished_tasks_are_not_scored_again(run: Path, suite: Callable[..., Path], tmp_path: Path) -> None:
    tasks = str(suite(SUITE))
    how: dict[str, Any] = {"suite": tasks, "cache": str(tmp_path / "cache")}
    first, second, other, changed = Told(), Told(), Told(), Told()
    one = evaluate(run, progress=first, **how)
    two = evaluate(run, progress=second, **how)
    assert (first.tasks, second.tasks) == (["answers", "questions"], [])
    assert one == two
    evaluate(run, progress=other, max_length=100, **how)
    assert other.tasks == ["answers", "questions"]
    suite({"answers/bpb_5shot": ANSWERS[:2]})
    evaluate(run, progress=changed, **how)
    assert changed.tasks == ["answers"]


def test_an_interrupted_evaluation_goes_on(run: Path, suite: Callable[..., Path], tmp_path: Path) -> None:
    how: dict[str, Any] = {"suite": str(suite(SUITE)), "cache": str(tmp_path / "cache")}
    with pytest.raises(KeyboardInterrupt):
        evaluate(run, progress=Told(stop_at="questions"), **how)
    rest = Told()
    found = evaluate(run, progress=rest, **how)
    assert rest.tasks == ["questions"]
    assert found.tasks == evaluate(run, suite=how["suite"], keep=False).tasks


@pytest.mark.slow
def test_a_killed_evaluation_goes_on(run: Path, suite: Callable[..., Path], tmp_path: Path) -> None:
    """Killed outright in its second task, so nothing had a chance to tidy up."""
    how: dict[str, Any] = {"suite": str(suite(SUITE)), "cache": str(tmp_path / "cache")}
    program = (
        "import os, signal, sys; from trainer.downstream import evaluate\n"
        "die = lambda task, done, total: "
        "os.kill(os.getpid(), signal.SIGKILL) if task == 'questions' else None\n"
        "evaluate(sys.argv[1], suite=sys.argv[2], cache=sys.argv[3], progress=die)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(run), how["suite"], how["cache"]], cwd=ROOT, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert stored([run], **how) == []
    rest = Told()
    found = evaluate(run, progress=rest, **how)
    assert rest.tasks == ["questions"]
    assert found.tasks == evaluate(run, suite=how["suite"], keep=False).tasks


def test_stored_results_are_those_of_the_evaluated_runs(
    run: Path, exported: Path, suite: Callable[..., Path], tmp_path: Path
) -> None:
    how: dict[str, Any] = {"suite": str(suite(SUITE)), "cache": str(tmp_path / "cache")}
    assert stored([run, exported], **how) == []
    assert not (tmp_path / "cache").exists()  # looking leaves nothing behind
    expected = evaluate(run, **how)
    assert stored([run, exported], **how) == [expected]
    assert (
        stored([run], limit=2, **how)
        == stored([run], max_length=100, **how)
        == stored([run], dtype="bf16", **how)
        == []
    )
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    (copy / "final" / "model.safetensors").unlink()
    (found,) = stored([copy], **how)  # the same run elsewhere, its weights thrown away
    assert found.tasks == expected.tasks
    assert evaluate(copy, **how).tasks == expected.tasks
    rows = bpb_table(stored([exported, run], **how))
    assert [(row["task"], list(row["models"])) for row in rows] == [
        (t, [str(run)]) for t in ("answers", "questions", "mean")
    ]


def test_a_changed_model_is_not_looked_up(exported: Path, suite: Callable[..., Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    how: dict[str, Any] = {"suite": str(suite(SUITE)), "cache": str(tmp_path / "cache")}
    folder = Path(shutil.copytree(exported, tmp_path / "model"))
    evaluate(folder, **how)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= 2
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert stored([folder], **how) == []
    again = Told()
    assert evaluate(folder, progress=again, **how).bpb != evaluate(exported, **how).bpb
    assert again.tasks == ["answers", "questions"]


def test_several_folders_are_checked_before_the_first_is_scored(
    run: Path, suite: Callable[..., Path], tmp_path: Path
) -> None:
    told = Told()
    for other, message in ((tmp_path / "nothing", "there is no folder"), (run, "is given twice")):
        with pytest.raises(InvalidInput, match=message):
            evaluate_all([run, other], suite=str(suite(SUITE)), keep=False, progress=told)
    assert told.tasks == []


def test_damaged_results_are_made_again(run: Path, suite: Callable[..., Path], tmp_path: Path) -> None:
    how: dict[str, Any] = {"suite": str(suite(SUITE)), "cache": str(tmp_path / "cache")}
    expected = evaluate(run, **how)
    for file in (tmp_path / "cache" / "downstream").glob("*/*.json"):
        file.write_text(file.read_text()[:-40])
    again = Told()
    assert evaluate(run, progress=again, **how) == expected
    assert again.tasks == ["answers", "questions"]


def test_a_damaged_file_is_found_before_anything_is_scored(run: Path, suite: Callable[..., Path]) -> None:
    folder = suite(SUITE)
    path = folder / "questions" / "rc_3shot" / "requests.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-30])
    told = Told()
    with pytest.raises(InvalidInput, match="is damaged"):
        evaluate(run, suite=str(folder), keep=False, progress=told)
    assert told.tasks == []


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"max_length": 513}, "max_length must be at most 512"),
        ({"max_length": 0}, "max_length must be above zero"),
        ({"limit": 1.5}, "limit must be a whole number"),
        ({"dtype": "fp16"}, "dtype must be one of fp32, bf16"),
        ({"device": "tpu"}, "device must be auto, cpu, cuda"),
        ({"cache": "/dev/null"}, "results cannot be kept in"),
    ],
)
def test_bad_settings(run: Path, suite: Callable[..., Path], how: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        evaluate(run, **{"suite": str(suite(SUITE))} | how)


def test_broken_weights_are_named(exported: Path, suite: Callable[..., Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "broken"
    shutil.copytree(exported, folder)
    weights = load_file(exported / "model.safetensors")
    weights["model.norm.weight"][:] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidInput, match="a probability that is not a number"):
        evaluate(folder, suite=str(suite(SUITE)), keep=False)


def test_bf16_is_close(run: Path, suite: Callable[..., Path]) -> None:
    tasks = str(suite(SUITE))
    exact, rough = (
        evaluate(run, suite=tasks, keep=False),
        evaluate(run, suite=tasks, keep=False, dtype="bf16"),
    )
    assert rough.bpb == pytest.approx(exact.bpb, abs=0.05)
