"""The state of a sweep: what is done, waits, runs or has failed, and what each failure is charged to.

A run is given up after three failures without getting further. One node of a cluster that fails whatever it
is given would have every run given up within seconds, for it is always free first. So a run that failed on
a node is tried on another one, and a node on which three different runs have failed in a row is set aside:
what failed there is its fault, and charged to no run.

A sweep that runs is a live table on a terminal; elsewhere, a line per finished run and per failure.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.studies.directory import StudyDirectory
from calibration.studies.study import StudyRun
from planner.inputs import duration
from trainer.run.result import read_result

if TYPE_CHECKING:
    from rich.console import RenderableType


ATTEMPTS = 3


@dataclass
class Progress:
    """The state of a sweep, for whoever drives it and whoever shows it."""

    runs: Sequence[StudyRun]
    done: dict[str, StudyRun] = field(default_factory=dict)  # found or trained
    trained: dict[str, float] = field(default_factory=dict)  # in this sweep: seconds that each took
    running: dict[str, float] = field(default_factory=dict)  # and when it was started
    elsewhere: dict[str, float] = field(default_factory=dict)  # trained by somebody else; when to look again
    failed: dict[str, str] = field(default_factory=dict)  # for good
    failures: dict[str, list[str]] = field(default_factory=dict)  # why each attempt failed that did
    charged: dict[str, list[str]] = field(default_factory=dict)  # where it failed since its last checkpoint
    reached: dict[str, str] = field(default_factory=dict)  # that checkpoint
    blamed: dict[str, list[str]] = field(default_factory=dict)  # runs that failed on a node, in a row
    branches: dict[str, list[str]] = field(default_factory=dict)  # runs that wait for their trunk
    aside: dict[str, str] = field(default_factory=dict)  # nodes that get no more runs, and why
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.by_name = {run.name: run for run in self.runs}
        self._order = {run.name: (-run.flops, place) for place, run in enumerate(self.runs)}
        self._waiting: list[tuple[float, int]] = []
        missing = self.by_name.keys() - self.done.keys()
        for name in missing:
            if (trunk := self.by_name[name].trunk) in missing:
                self.branches.setdefault(trunk, []).append(name)
            else:
                self.queue(name)

    def queue(self, name: str) -> None:
        """Have a run wait for its turn, longest first: short runs fill the gaps at the end."""
        heapq.heappush(self._waiting, self._order[name])

    def take(self, most: int) -> Iterator[StudyRun]:
        """The next runs, no longer waiting."""
        for _ in range(min(most, len(self._waiting))):
            yield self.runs[heapq.heappop(self._waiting)[1]]

    @property
    def complete(self) -> bool:
        return len(self.done) + len(self.failed) >= len(self.runs)

    def finish(self, run: StudyRun, seconds: float | None = None) -> None:
        """A run is done: trained in so many seconds, or found."""
        self.done[run.name] = run
        self._queue_branches(run.name)
        if seconds is not None:
            self.trained[run.name] = seconds

    def give_up(self, name: str, reason: str) -> None:
        """A run has failed for good; those that wait for its checkpoints go without."""
        self.failed[name] = reason
        self._queue_branches(name)

    def _queue_branches(self, name: str) -> None:
        for branch in self.branches.pop(name, ()):
            self.queue(branch)

    def requeue_waiting(self) -> None:
        """Ask again for runs that somebody else was training a while ago."""
        now = time.monotonic()
        for name in [name for name, when in self.elsewhere.items() if when <= now]:
            del self.elsewhere[name]
            self.queue(name)

    def charge(self, name: str, node: str, reason: str, checkpoint: str) -> None:
        """Count a failure of a run on a node; one that got further than before is not the run's fault."""
        self.failures.setdefault(name, []).append(reason)
        if checkpoint != self.reached.get(name):
            self.charged.pop(name, None)
            self.reached[name] = checkpoint
        self.charged.setdefault(name, []).append(node)
        if node:
            self.blamed.setdefault(node, []).append(name)

    def suspicious(self, node: str) -> bool:
        """Whether so many different runs have failed there in a row that the node is to blame."""
        return len({*self.blamed.get(node, ())}) >= ATTEMPTS

    def exhausted(self, name: str) -> bool:
        """Whether a run has had its attempts, those on nodes that are set aside not counted."""
        return len([node for node in self.charged.get(name, ()) if node not in self.aside]) >= ATTEMPTS

    def avoided_nodes(self, name: str) -> Collection[str]:
        """The nodes on which a run has failed."""
        return {node for node in self.charged.get(name, ()) if node}

    def seconds_left(self) -> float | None:
        """At the speed so far: what has been trained, per second of this sweep."""
        trained = sum(self.by_name[name].flops for name in self.trained)
        ended = {*self.done, *self.failed}
        left = sum(run.flops for run in self.runs if run.name not in ended)
        return left * (time.monotonic() - self.began) / trained if trained else None


_STARTING = 8  # rows for runs that have not made a step yet


@contextmanager
def live_progress(directory: StudyDirectory, *, quiet: bool = False) -> Iterator[Any]:
    """A function to give to `sweep(watch=...)`."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield lambda progress: None
    elif console.is_terminal:
        from rich.live import Live

        with Live(console=console, refresh_per_second=2) as live:
            yield lambda progress: live.update(_table(progress, directory))
    else:
        yield ProgressLines(directory)


class ProgressLines:
    """One line for every run that ends and for every attempt that fails."""

    def __init__(self, directory: StudyDirectory):
        self.directory = directory
        self.told: set[str] | None = None  # runs whose end has been told
        self.failures: Counter[str] = Counter()  # that have been told
        self.aside: set[str] = set()  # nodes of which it has been told

    def __call__(self, progress: Progress) -> None:
        if self.told is None:
            self.told = {*progress.done}
            if progress.done:
                click.echo(f"{len(progress.done)} of {len(progress.runs)} runs are done already", err=True)
        for name in list(islice(progress.done, len(self.told), None)):
            self.told.add(name)
            result = read_result(self.directory.run_folder(name))
            took = f" in {progress.trained[name]:.0f} s" if name in progress.trained else ""
            loss = f"loss {result.loss:.4f}" if result else "done"
            click.echo(
                f"{len(progress.done):4d}/{len(progress.runs)}  {name}  {loss}{took}{_left(progress)}",
                err=True,
            )
        for name, reasons in progress.failures.items():
            for attempt in range(self.failures[name] + 1, len(reasons) + 1):
                given_up = ", given up" if name in progress.failed and attempt == len(reasons) else ""
                click.echo(
                    f"      {name}  failed (attempt {attempt}){given_up}: {reasons[attempt - 1]}", err=True
                )
            self.failures[name] = len(reasons)
        for node in progress.aside.keys() - self.aside:
            self.aside.add(node)
            click.echo(f"      {node} is set aside: {progress.aside[node]}", err=True)


def _table(progress: Progress, directory: StudyDirectory) -> RenderableType:
    from rich.table import Table

    title = f"{len(progress.done)} of {len(progress.runs)} done, {len(progress.running)} running"
    title += f", {len(progress.elsewhere)} trained elsewhere" if progress.elsewhere else ""
    title += f", {len(progress.failed)} failed" if progress.failed else ""
    table = Table(title=title + _left(progress), title_justify="left")
    for name in ("run", "state", "step", "loss", "tokens/s"):
        table.add_column(name, justify="left" if name in ("run", "state") else "right", overflow="fold")
    starting = 0
    for name in progress.running:
        last = last_metrics(directory.run_folder(name))
        starting += not last
        if last or starting <= _STARTING:
            table.add_row(*_running(progress, name, last))
    if starting > _STARTING:
        table.add_row(f"{starting - _STARTING} more", "starting, or waiting for room")
    for name in progress.elsewhere:
        table.add_row(name, "trained by another sweep")
    for name, reason in progress.failed.items():
        table.add_row(name, f"failed: {reason}")
    for node, reason in progress.aside.items():
        table.add_row(node, f"set aside: {reason}")
    for name in list(progress.trained)[-3:]:
        result = read_result(directory.run_folder(name))
        loss = f"{result.loss:.3f}" if result else ""
        table.add_row(name, f"done in {progress.trained[name]:.0f} s", "", loss)
    return table


def _running(progress: Progress, name: str, last: dict[str, Any]) -> Iterator[str]:
    """A run that is being trained, or is about to be: name, state, step, loss and tokens per second."""
    steps, times = progress.by_name[name].steps, len(progress.failures.get(name, ()))
    yield name
    before = f", failed {times} time{'s' * (times > 1)} before" if times else ""
    yield ("running" if last else "starting") + before
    yield f"{last['step']:,} / {steps:,}" if last else f"of {steps:,}"
    yield f"{last['loss']:.3f}" if "loss" in last else ""
    yield f"{last['tokens_per_second']:,.0f}" if last.get("tokens_per_second") else ""


def last_metrics(folder: Path) -> dict[str, Any]:
    """The last complete line of a run's metrics; nothing where there is none yet."""
    lines: list[bytes] = []
    with suppress(OSError), open(folder / "metrics.jsonl", "rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - 4096))
        lines = stream.read().splitlines()
    for line in reversed(lines):
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict) and "step" in found:
                return found
    return {}


def _left(progress: Progress) -> str:
    left = progress.seconds_left()
    return f", about {duration(left)} left" if left else ""
