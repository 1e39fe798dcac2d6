"""Train every run of a list that is not trained yet: longest first, each exactly once, whatever happens in between.

Two sweeps of one study may run at the same time, even on different machines that share its directory: who holds the lock of a run
directory trains it, and the other goes on with the next run and looks again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calibration.studies.directory import GRID, StudyDirectory, prepare, unfinished
from calibration.studies.engine import BUSY, DISK, DONE, REFUSED, STOPPED, Engine, Outcome, Task
from calibration.studies.study import StudyRun
from trainer.errors import TrainingStopped

ATTEMPTS = 3
_LOOK_AGAIN = 2.0  # seconds after which a run that somebody else trains is asked for again


@dataclass
class Progress:
    """The state of a sweep, for whoever shows it."""

    runs: Sequence[StudyRun]
    done: dict[str, StudyRun] = field(default_factory=dict)  # found or trained
    trained: dict[str, float] = field(default_factory=dict)  # in this sweep: seconds that each took
    running: dict[str, float] = field(default_factory=dict)  # and when it was started
    elsewhere: dict[str, float] = field(default_factory=dict)  # trained by somebody else; when to look again
    failed: dict[str, str] = field(default_factory=dict)  # for good
    failures: dict[str, list[str]] = field(default_factory=dict)  # why each attempt failed that did
    attempts: dict[str, int] = field(default_factory=dict)  # that failed, since its last new checkpoint
    reached: dict[str, str] = field(default_factory=dict)  # that checkpoint
    began: float = field(default_factory=time.monotonic)

    @property
    def waiting(self) -> list[StudyRun]:
        """Longest first: short runs fill the gaps at the end."""
        known = {*self.done, *self.running, *self.elsewhere, *self.failed}
        return sorted((run for run in self.runs if run.name not in known), key=lambda run: -run.flops)

    def seconds_left(self) -> float | None:
        """At the speed so far: what has been trained, per second of this sweep."""
        by_name = {run.name: run for run in self.runs}
        trained = sum(by_name[name].flops for name in self.trained)
        if not trained:
            return None
        left = sum(
            run.flops for run in self.runs if run.name not in self.done and run.name not in self.failed
        )
        return left * (time.monotonic() - self.began) / trained


def sweep(
    runs: Sequence[StudyRun],
    directory: StudyDirectory,
    engine: Engine,
    *,
    part: Callable[[StudyRun], str] = lambda run: GRID,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Train what is missing of `runs`; `watch` is called at least every second.

    `part` says where a run belongs. Two sweeps must agree on it, or each would train the run in its own place.
    A run that fails three times without getting further is put aside with its reason. Ctrl-C ends the sweep and leaves checkpoints.
    """
    missing = {run.name for run in unfinished(directory, runs)}
    progress = Progress(runs, done={run.name: run for run in runs if run.name not in missing})
    watch(progress)
    if not missing:
        return progress
    by_name = {run.name: run for run in runs}
    data = prepare(runs, directory)
    with engine:
        progress.began = time.monotonic()
        while len(progress.done) + len(progress.failed) < len(runs):
            _look_again(progress)
            waiting, room = progress.waiting, engine.room()
            for run in waiting[:room]:
                if not unfinished(directory, [run]):  # another sweep has finished it meanwhile
                    progress.done[run.name] = run
                    continue
                progress.running[run.name] = time.monotonic()
                engine.start(task_of(run, directory, data, part(run)))
            for outcome in engine.wait(1.0):
                _settle(outcome, by_name[outcome.name], progress, directory)
            if not progress.running and progress.elsewhere:
                time.sleep(0.2)
            watch(progress)
    return progress


def task_of(run: StudyRun, directory: StudyDirectory, data: Path, part: str = GRID) -> Task:
    """A run as an engine takes it: paths absolute, token files of the study, models compiled unless the recipe says otherwise."""
    values = run.config.model_dump(mode="json", exclude_unset=True)
    values |= {"cache": str(directory.tokens.absolute()), "compile": values.get("compile", "on")}
    return Task(run.name, values, str(directory.run_folder(run.name, part).absolute()), str(data.absolute()))


def _settle(outcome: Outcome, run: StudyRun, progress: Progress, directory: StudyDirectory) -> None:
    started = progress.running.pop(run.name)
    if outcome.kind == DONE:
        progress.done[run.name] = run
        progress.trained[run.name] = time.monotonic() - started
    elif outcome.kind == BUSY:
        progress.elsewhere[run.name] = time.monotonic() + _LOOK_AGAIN
    elif outcome.kind == DISK:
        raise TrainingStopped(
            f"the disk of {directory.path} is full ({outcome.reason.rstrip('.')}); once there is room the same command goes on."
        )
    elif outcome.kind != STOPPED:
        directory.note_failure(run.name, outcome.reason)
        progress.failures.setdefault(run.name, []).append(outcome.reason)
        checkpoint = directory.checkpoint(run.name)
        if checkpoint != progress.reached.get(
            run.name
        ):  # it got further: a node that is taken away is not the run's fault
            progress.attempts.pop(run.name, None)
            progress.reached[run.name] = checkpoint
        progress.attempts[run.name] = progress.attempts.get(run.name, 0) + 1
        if outcome.kind == REFUSED or progress.attempts[run.name] >= ATTEMPTS:
            progress.failed[run.name] = outcome.reason


def _look_again(progress: Progress) -> None:
    now = time.monotonic()
    for name in [name for name, when in progress.elsewhere.items() if when <= now]:
        del progress.elsewhere[name]
