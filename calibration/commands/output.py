"""What commands give back: JSON, files that are checked before any work, a bar while it goes on."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from planner.inputs import InvalidInput
from planner.show.terminal import print_table


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1, allow_nan=False))


def print_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """A table whose rows name their columns; nothing where there are none."""
    if rows:
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])


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
    for given in filter(None, inputs):
        if target.exists() and os.path.exists(given) and os.path.samefile(given, target):
            raise InvalidInput(
                f"cannot write {path}: it is the input {given}, which is never changed; another name would "
                f"do."
            )
    reason = _unwritable(target) if path.strip() else "it is a folder; a file name would do"
    if reason:
        raise InvalidInput(f"cannot write {path}: {reason}.")


def _unwritable(target: Path) -> str:
    """Why a file cannot be written; nothing where it can."""
    folder = target.resolve().parent
    if target.is_dir():
        return "it is a folder; a file name would do"
    if not folder.is_dir():
        return "its folder does not exist"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "its folder may not be written to"
    if target.exists() and not os.access(target, os.W_OK):
        return "it exists and may not be written to"
    return ""


def write_text(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}.") from None


def factor(error: float | None) -> str:
    """A standard error of a size's logarithm as people say it: a factor; flat where there is no best size."""
    return "flat" if error is None else f"x/÷ {math.exp(min(error, 20)):.3g}"
