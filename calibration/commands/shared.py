"""What the `planner calibrate` commands share: bad input as one message and exit code 2, options, output files, progress."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pandas as pd

from calibration.studies.sources import read_runs
from planner.errors import InvalidInput


def run_table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose the runs of a table."""
    options = (
        click.option("--max-epochs", metavar="N", help="Leave out runs beyond so many epochs."),
        click.option(
            "--where",
            metavar="CONDITION",
            help='Use the runs for which this holds: "kind == base and epochs <= 64".',
        ),
        click.option("--weight-decay", metavar="λ", help="Weight decay of runs whose table does not say it."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def load_runs(
    path: str, max_epochs: str | None, where: str | None, weight_decay: str | None, *, choice: bool = False
) -> pd.DataFrame:
    return read_runs(
        path, max_epochs=max_epochs, where=where, weight_decay=weight_decay, weight_decay_is_choice=choice
    )


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1, allow_nan=False))


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[str, float], None]]:
    """A progress bar on stderr, only where somebody is looking; it vanishes when the work is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def check_output(path: str | None, *inputs: str | None) -> None:
    """Refuse, before any work, an output that is one of the inputs or that cannot be written."""
    if path is None:
        return
    target = Path(path)
    for given in inputs:
        if (
            given is not None
            and os.path.exists(given)
            and target.exists()
            and os.path.samefile(given, target)
        ):
            raise InvalidInput(
                f"cannot write {path}: it is the input {given}, which is never changed; another name would do."
            )
    folder = target.resolve().parent
    reason = None
    if not path.strip() or target.is_dir():
        reason = "it is a folder; a file name would do"
    elif not folder.is_dir():
        reason = "its folder does not exist"
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = "its folder may not be written to"
    elif target.exists() and not os.access(target, os.W_OK):
        reason = "it exists and may not be written to"
    if reason:
        raise InvalidInput(f"cannot write {path}: {reason}.")


def write_text(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}.") from None
