"""What a sweep looks like while it runs: a live table on a
terminal, one line per finished run and per failure elsewhere.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.studies.directory import StudyDirectory
from calibration.studies.progress import Progress
from planner.units import duration
from trainer.run.result import read_result

if TYPE_CHECKING:
    from rich.console import RenderableType

_STARTING = 8  # rows for runs that have not made a step yet


@contextmanager
def shown(directory: StudyDirectory, *, quiet: bool = False) -> Iterator[Any]:
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
        yield Lines(directory)


class Lines:
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
    for row in _running(progress, directory):
        table.add_row(*row)
    for name in progress.elsewhere:
        table.add_row(name, "trained by another sweep", "", "", "")
    for name, reason in progress.failed.items():
        table.add_row(name, f"failed: {reason}", "", "", "")
    for node, reason in progress.aside.items():
        table.add_row(node, f"set aside: {reason}", "", "", "")
    for name in list(progress.trained)[-3:]:
        result = read_result(directory.run_folder(name))
        table.add_row(
            name, f"done in {progress.trained[name]:.0f} s", "", f"{result.loss:.3f}" if result else "", ""
        )
    return table


def _running(progress: Progress, directory: StudyDirectory) -> Iterator[tuple[str, str, str, str, str]]:
    """A row for each run that is being trained, and for some of those that are about to be."""
    steps = {run.name: run.steps for run in progress.runs}
    waiting = 0
    for name in progress.running:
        last = last_metrics(directory.run_folder(name))
        if not last and (waiting := waiting + 1) > _STARTING:
            continue
        speed = last.get("tokens_per_second")
        yield (
            name,
            ("running" if last else "starting") + _failed_before(progress, name),
            f"{last['step']:,} / {steps[name]:,}" if last else f"of {steps[name]:,}",
            f"{last['loss']:.3f}" if "loss" in last else "",
            f"{speed:,.0f}" if speed else "",
        )
    if waiting > _STARTING:
        yield f"{waiting - _STARTING} more", "starting, or waiting for room", "", "", ""


def _failed_before(progress: Progress, name: str) -> str:
    times = len(progress.failures.get(name, ()))
    return f", failed {times} time{'s' * (times > 1)} before" if times else ""


def last_metrics(folder: Path) -> dict[str, Any]:
    """The last complete line of a run's metrics; nothing where there is none yet."""
    try:
        with open(folder / "metrics.jsonl", "rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - 4096))
            lines = stream.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "step" in found:
            return found
    return {}


def _left(progress: Progress) -> str:
    left = progress.seconds_left()
    return f", about {duration(left)} left" if left else ""
