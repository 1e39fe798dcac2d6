"""Run tables: one row per finished run, read from CSV, Parquet or a DataFrame, and checked before anything is
fitted.

    run, params, unique_tokens, epochs, tokens, weight_decay, loss      (other columns are kept as they are)

`tokens` (or `total_tokens`) and `epochs` follow from each other, so one of the two may be missing. Counts may
be written as people say them ("250M"). All bad cells are reported together, by row and column. The source is
only read.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import pandas as pd

from calibration.fitting.checks import COLUMNS, Problem, RawTable, RunTableError, checked
from calibration.fitting.filters import RowChoice, RowFilter
from planner.errors import InvalidInput
from planner.units import number

__all__ = ["COLUMNS", "Problem", "RunTableError", "Table", "read_runs"]

Table = str | os.PathLike[str] | pd.DataFrame  # a CSV or Parquet file, or its content
_LARGEST_FILE = 256 * 2**20


def read_runs(
    source: Table,
    *,
    max_epochs: Any = None,
    where: str | None = None,
    weight_decay: Any = None,
    weight_decay_is_choice: bool = False,
    name: str | None = None,
) -> pd.DataFrame:
    """The run table of a CSV or Parquet file or a DataFrame, checked: all columns, numbers as floats.

    `where` (see `filters`) and `max_epochs` choose rows; rows that they leave out need not be usable.
    `weight_decay` is that of all runs whose table does not say it; where all say it, giving it is a mistake,
    unless the caller goes on to choose by it. `name` is what messages call a DataFrame.
    """
    limit = None if max_epochs is None else number(max_epochs, "max_epochs", examples="64")
    decay = None if weight_decay is None else number(weight_decay, "weight_decay", positive=False)
    choice = RowChoice(limit, None if where is None else RowFilter(where))
    raw = _load(source, name or "the run table")
    if decay is not None and not weight_decay_is_choice and raw.says_weight_decay():
        raise InvalidInput(
            f"{decay:g} was given for runs that do not say theirs, but all of {raw.name} do; "
            f"leave it out, or choose runs with ‹where› 'weight_decay == {decay:g}'.",
            field="weight_decay",
        )
    return checked(raw, choice, decay)


def _load(source: Table, name: str) -> RawTable:
    if isinstance(source, pd.DataFrame):
        raw = RawTable(name, _stripped(source.copy()))
    elif isinstance(source, str | os.PathLike):
        raw = _read(Path(source))
    else:
        raise InvalidInput(
            "must be a CSV or Parquet file, a study's directory or a DataFrame; got "
            f"{type(source).__name__}.",
            field="runs",
        )
    names = raw.cells.columns
    twice = sorted({str(column) for column in names[names.duplicated()]})
    if twice:
        raise InvalidInput(
            f"{raw.name} has the column {twice[0]!r} more than once; rename or drop one of them."
        )
    if not len(raw.cells):
        raise InvalidInput(f"{raw.name} has no runs; it needs rows with the columns {', '.join(COLUMNS)}.")
    return RawTable(raw.name, raw.cells.reset_index(drop=True), raw.ragged)


def _read(path: Path) -> RawTable:
    if path.is_dir():
        raise InvalidInput(f"must be a CSV or Parquet file; {str(path)!r} is a directory.", field="runs")
    return _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _csv(path)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InvalidInput(
                f"{path.name} is larger than {_LARGEST_FILE >> 20} MB, which no run table is; "
                f"give one row per finished run."
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"run table {str(path)!r} does not exist.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"run table {str(path)!r} cannot be read: {reason}.") from None


def _csv(path: Path) -> RawTable:
    name = path.name or str(path)
    header, *rows = _lines(_text(path, name), name)
    width, ragged = len(header), []
    for row, cells in enumerate(rows, start=1):
        if any(cells[width:]):
            reason = f"has {len(cells)} cells where the header has {width}"
            ragged.append(Problem(row, "-", "", reason))
        cells[width:] = []
        cells.extend([""] * (width - len(cells)))
    columns = {i: pd.Series([cells[i] for cells in rows], dtype=object) for i in range(width)}
    frame = pd.DataFrame(columns)
    frame.columns = pd.Index(header, dtype=object)
    return RawTable(name, frame, ragged)


def _text(path: Path, name: str) -> str:
    try:
        text = _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidInput(
            f"{name} is not text; a run table is a UTF-8 CSV file, or a Parquet file that ends in .parquet."
        )
    return text


def _lines(text: str, name: str) -> list[list[str]]:
    """The cells of each line that has any, without blanks around them; the first line is the header."""
    delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
    try:
        read = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        lines = [[cell.strip() for cell in cells] for cells in read]
    except csv.Error as error:
        raise InvalidInput(f"{name} is not a readable CSV file: {error}.") from None
    filled = [cells for cells in lines if any(cells)]
    if not filled:
        raise InvalidInput(f"{name} is empty; it needs the columns {', '.join(COLUMNS)}.")
    return filled


def _parquet(path: Path) -> RawTable:
    content = _bytes(path)
    try:
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput(
            "Parquet files need pyarrow: pip install 'databound[parquet]', or give a CSV file."
        ) from None
    try:
        frame = pyarrow.parquet.read_table(io.BytesIO(content)).to_pandas()
    except Exception:  # a damaged file fails in many ways deep inside the reader; to the user they are one
        raise InvalidInput(
            f"{path.name} is not a readable Parquet file; write it again or give a CSV file."
        ) from None
    return RawTable(path.name, _stripped(frame))


def _stripped(frame: pd.DataFrame) -> pd.DataFrame:
    frame.columns = pd.Index([str(column).strip() for column in frame.columns], dtype=object)
    return frame
