"""CSV as programs and spreadsheets write it: comma, semicolon or tab, and decimal commas where they are
used.
"""

from __future__ import annotations

import csv
import io
import re

import pandas as pd

from calibration.fitting.runs.checks import COLUMNS, Problem, RawTable
from calibration.fitting.runs.formats.records import with_unfolded_records
from calibration.fitting.runs.warnings import TableWarning
from planner.inputs import InvalidInput

# 3,14 and 1.234,5 have a decimal comma; 1,234 may have one or not; 3.14 and 1,234,567 have none
_CERTAIN = re.compile(r"[+-]?(?:\d+,(?:\d{1,2}|\d{4,})|0,\d+|\d{1,3}(?:\.\d{3})+,\d+)(?:e[+-]?\d+)?", re.I)
_POSSIBLE = re.compile(r"[+-]?\d{1,3},\d{3}(?:e[+-]?\d+)?", re.I)
_POINT = re.compile(
    r"[+-]?(?:\d+\.(?:\d{1,2}|\d{4,})|0\.\d+|\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,})", re.I
)
_NUMBER = re.compile(r"[+-]?[\d.]*,\d+(?:e[+-]?\d+)?|[+-]?\d{1,3}(?:\.\d{3})+", re.I)


def read(name: str, text: str) -> RawTable:
    said_by_excel = re.match(r'"?sep=([,;\t])"?\s*\n', text)
    text = re.sub(r"\A(?:\s*(?:#|\"?sep=)[^\n]*\n)+", "", text)  # remarks above the header
    first = text.lstrip().split("\n", 1)[0]
    delimiter = said_by_excel[1] if said_by_excel else max(",;\t", key=first.count)
    header, *rows = _lines(name, text, delimiter)
    width, ragged = len(header), []
    for row, cells in enumerate(rows, start=1):
        if any(cells[width:]):
            reason = f"has {len(cells)} cells where the header has {width}"
            ragged.append(Problem(row, "-", "", reason))
        cells[width:] = []
        cells.extend([""] * (width - len(cells)))
    commas = _has_decimal_commas([cell for cells in rows for cell in cells], delimiter)
    if commas:
        rows = [[_pointed(cell) for cell in cells] for cells in rows]
    columns = {i: pd.Series([cells[i] for cells in rows], dtype=object) for i in range(width)}
    frame = pd.DataFrame(columns)
    frame.columns = pd.Index(header, dtype=object)
    said = (
        (TableWarning("decimal_commas", f"{name} has decimal commas; they were read as points"),)
        if commas
        else ()
    )
    return with_unfolded_records(RawTable(name, frame, ragged, said))


def _lines(name: str, text: str, delimiter: str) -> list[list[str]]:
    """The cells of each line that has any, without blanks around them; the first line is the header."""
    try:
        read = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        lines = [[cell.strip() for cell in cells] for cells in read]
    except csv.Error as error:
        raise InvalidInput(f"{name} is not a readable CSV file: {error}.") from None
    filled = [cells for cells in lines if any(cells)]
    if not filled:
        raise InvalidInput(f"{name} is empty; it needs the columns {', '.join(COLUMNS)}.")
    return filled


def _has_decimal_commas(cells: list[str], delimiter: str) -> bool:
    """A cell that can be nothing else decides; a doubtful one (1,234) does where commas part no cells, as in
    the files that spreadsheets write where the comma is the decimal sign.
    """
    if any(_POINT.fullmatch(cell) for cell in cells):
        return False
    certain = any(_CERTAIN.fullmatch(cell) for cell in cells)
    return certain or (delimiter != "," and any(_POSSIBLE.fullmatch(cell) for cell in cells))


def _pointed(cell: str) -> str:
    return cell.replace(".", "").replace(",", ".") if _NUMBER.fullmatch(cell) else cell
