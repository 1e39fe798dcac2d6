"""Plain text in a terminal: paragraphs, facts, bullets and the one style of table that all commands have.

Wrapped to the terminal's width and styled by click: loading a library for tables would cost more time than
planning.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest

import click

_PIPE = 160  # columns where nobody is looking: room enough that no table is folded without need


def print_paragraph(text: str, indent: int = 0, *, bold: bool = False, dim: bool = False) -> None:
    pad = " " * indent
    click.secho(_filled(text, pad, pad), bold=bold, dim=dim)


def print_facts(title: str, rows: Sequence[tuple[str, str]], source: str = "") -> None:
    """Names in one column, what there is to say of each in another."""
    click.echo(click.style(title, bold=True) + click.style(f"  ({source})" if source else "", dim=True))
    column = max(len(name) for name, _ in rows) + 4
    for name, text in rows:
        first, *rest = _wrapped(text, _width() - column)
        click.echo(click.style(f"  {name}".ljust(column), fg="cyan") + first)
        for line in rest:
            click.echo(" " * column + line)


def print_bullets(title: str, lines: Sequence[str], colour: str | None = None) -> None:
    if not lines:
        return
    click.echo()
    click.secho(title, bold=True, fg=colour)
    for line in lines:
        click.echo(_filled(line, "  - ", "    "))


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: Sequence[int] = (0,),
    indent: int = 0,
    fold: int | None = None,
) -> None:
    """Columns of text: those in `left` to the left, the others to the right; `fold` is wrapped where there is
    no room.
    """
    body = [list(row) for row in rows]
    if title:
        print_paragraph(title, bold=True)
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    if fold is not None:
        columns = _columns() if sys.stdout.isatty() else _PIPE
        others = sum(widths) - widths[fold] + 2 * (len(widths) - 1) + indent
        widths[fold] = min(widths[fold], max(columns - others, len(header[fold]), 20))

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return (" " * indent + "  ".join(padded)).rstrip()

    click.secho(line(header), dim=True)
    for row in body:
        wrapped = [_wrapped(cell, widths[i]) if i == fold else [cell] for i, cell in enumerate(row)]
        for cells in zip_longest(*wrapped, fillvalue=""):
            click.echo(line(cells))


def _columns() -> int:
    """As `shutil.get_terminal_size` has it, which would load what unpacks archives."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def _width() -> int:
    return min(max(_columns(), 60), 110)


def _filled(text: str, first: str, others: str) -> str:
    return textwrap.fill(
        text, _width(), initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
