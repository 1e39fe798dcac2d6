"""What a sweep says of itself while it runs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from calibration.studies.directory import StudyDirectory
from calibration.studies.progress import Progress, ProgressLines, _table
from calibration.studies.study import load


@pytest.fixture
def progress(study: Path) -> Progress:
    """Of a sweep whose first run has got further each time it failed, which is no reason to give it up."""
    found = Progress(load(study).runs)
    name = found.runs[0].name
    found.failures = {name: ["its process was killed by signal 9", "the node is gone"]}
    found.running = {name: 0.0}
    return found


def test_runs_are_queued_without_comparing_each_with_all_others(study: Path) -> None:
    run = load(study).runs[0]
    many = [replace(run, name=f"{number}") for number in range(20_000)]
    began = time.process_time()
    progress = Progress(many)
    assert time.process_time() - began < 10  # with a set of all of them for each, minutes
    assert len([*progress.take(len(many))]) == len(many)


def test_every_failure_is_one_line_with_its_reason(
    progress: Progress, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = progress.runs[0].name
    lines = ProgressLines(StudyDirectory(tmp_path))
    for _ in range(2):  # nothing is told twice
        lines(progress)
    progress.failures[name].append("the node is gone")
    progress.failed[name] = "the node is gone"
    lines(progress)
    assert [line.strip() for line in capsys.readouterr().err.splitlines()] == [
        f"{name}  failed (attempt 1): its process was killed by signal 9",
        f"{name}  failed (attempt 2): the node is gone",
        f"{name}  failed (attempt 3), given up: the node is gone",
    ]


def test_the_table_shows_that_a_running_run_failed_before(progress: Progress, tmp_path: Path) -> None:
    other = progress.runs[1].name
    progress.running[other] = 0.0
    console = Console(width=200)
    with console.capture() as captured:
        console.print(_table(progress, StudyDirectory(tmp_path)))
    states = {
        line.split("│")[1].strip(): line.split("│")[2].strip()
        for line in captured.get().splitlines()
        if "│" in line
    }
    assert states[progress.runs[0].name] == "starting, failed 2 times before"
    assert states[other] == "starting"
