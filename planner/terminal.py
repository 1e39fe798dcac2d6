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
from typing import Any

import click

_PIPE = 160  # columns where nobody is looking: room enough that no table is folded without need
_USUAL = 80
_READABLE = 16  # columns of a cell with several words
_BESIDE = 30  # columns that text needs next to a label; with fewer it stands below
_WHOLE_WORDS: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}


def print_paragraph(text: str, indent: int = 0, *, bold: bool = False, dim: bool = False) -> None:
    pad = " " * indent
    click.secho(_filled(text, pad, pad), bold=bold, dim=dim)


def print_facts(title: str, rows: Sequence[tuple[str, str]], source: str = "") -> None:
    """Names in one column, what there is to say of each in another; below them where that is too narrow."""
    if len(title) + len(source) + 4 <= _width():
        click.echo(click.style(title, bold=True) + click.style(f"  ({source})" if source else "", dim=True))
    else:
        print_paragraph(title, bold=True)
        print_paragraph(f"({source})" if source else "", 2, dim=True)
    column = max(len(name) for name, _ in rows) + 4
    beside = _width() - column >= _BESIDE
    for name, text in rows:
        label = click.style(f"  {name}".ljust(column if beside else 0), fg="cyan")
        first, *rest = _wrapped(text, _width() - (column if beside else 4))
        click.echo(f"{label}{first}" if beside else f"{label}\n    {first}")
        for line in rest:
            click.echo(" " * (column if beside else 4) + line)


def print_bullets(title: str, lines: Sequence[str], colour: str | None = None) -> None:
    if not lines:
        return
    click.echo()
    click.secho(_filled(title, "", ""), bold=True, fg=colour)
    for line in lines:
        click.echo(_filled(line, "  - ", "    "))


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: Sequence[int] = (0,),
    indent: int = 0,
) -> None:
    """Columns of text: those in `left` to the left, the others to the right.

    Where there is no room, they stand closer and their cells are wrapped at spaces; where that is not enough,
    each row is a sentence.
    """
    body = [list(row) for row in rows]
    if title:
        print_paragraph(title, bold=True)
    columns = list(zip(header, *body, strict=True))
    widths, gap = [max(map(len, column)) for column in columns], "  "
    if indent + sum(widths) + 2 * (len(widths) - 1) > _room():
        indent, gap = 0, " "
        widths = _shrunk(widths, list(map(_least, columns)), _room() - (len(widths) - 1))
    if not widths:
        _print_sentences(header, body)
        return

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return (" " * indent + gap.join(padded)).rstrip()

    for place, row in enumerate([header, *body]):
        wrapped = map(_wrapped, row, widths)
        text = "\n".join(map(line, zip_longest(*wrapped, fillvalue="")))
        click.secho(text, dim=place == 0)


def _least(column: Sequence[str]) -> int:
    """How narrow a column can be: its words stay whole, and long texts readable."""
    words = max(len(word) for cell in column for word in cell.split() or [""])
    return max(words, min(max(map(len, column)), _READABLE))


def _shrunk(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Columns that fit together, the one with most to give narrowed first; none where they cannot."""
    if sum(least) > room:
        return []
    found = list(widths)
    while sum(found) > room:
        slack = [width - low for width, low in zip(found, least, strict=True)]
        found[slack.index(max(slack))] -= 1
    return found


def _print_sentences(header: Sequence[str], body: Sequence[Sequence[str]]) -> None:
    """Each row of a table, with the names of its columns."""
    for row in body:
        named = ", ".join(f"{name} {cell}" for name, cell in zip(header, row, strict=True) if cell)
        click.echo(_filled(named, "  ", "    "))


def _room() -> int:
    """For a table: the terminal's width, or a narrow one that is asked for (`COLUMNS`)."""
    columns = _columns()
    return columns if sys.stdout.isatty() or columns < _USUAL else _PIPE


def _columns() -> int:
    """As `shutil.get_terminal_size` has it, which would load what unpacks archives."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(1).columns or _USUAL
    except OSError:
        return _USUAL


def _width() -> int:
    return min(max(_columns(), 20), 110)


def _filled(text: str, first: str, others: str) -> str:
    lines = textwrap.wrap(text, _width(), initial_indent=first, subsequent_indent=others, **_WHOLE_WORDS)
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    return [text] if len(text) <= width else textwrap.wrap(text, width, **_WHOLE_WORDS)
