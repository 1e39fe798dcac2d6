"""Rows that are records: JSON, JSON lines, and cells that hold a whole record.

What is nested gets the names of all its levels, {"config": {"n_params": 1}} is a column config.n_params. W&B
keeps settings as {"value": ..., "desc": ...}; these are their value.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from calibration.fitting.runs.checks import COLUMNS, RawTable
from planner.inputs import InvalidInput

_DEEPEST, _LONGEST = 8, 200_000
_NOT_LITERAL = re.compile(r"(?<=[:,\[( ])-?(?:nan|inf(?:inity)?)(?=\s*[,}\])])", re.I)


def read(name: str, text: str) -> RawTable:
    if not text.strip():
        raise InvalidInput(f"{name} is empty; it needs the columns {', '.join(COLUMNS)}.")
    found = _rows(_parsed(name, text))
    if found is None:
        raise InvalidInput(
            f"{name} is JSON but no table; a list of records would do, one per run, or one record per line."
        )
    return table(name, found)


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> RawTable:
    """Records as a table: what is nested by the names of all its levels."""
    flat = [flattened(row) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    cells = {i: pd.Series([row.get(key) for row in flat], dtype=object) for i, key in enumerate(columns)}
    frame = pd.DataFrame(cells)
    frame.columns = pd.Index(columns, dtype=object)
    return RawTable(name, frame)


def flattened(record: Mapping[str, Any], before: str = "", depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in record.items():
        name = f"{before}.{str(key).strip()}" if before else str(key).strip()
        if isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "desc"}:
            value = value["value"]
        if isinstance(value, Mapping) and depth < _DEEPEST:
            found |= flattened(value, name, depth + 1)
        else:
            found[name] = value
    return found


def with_unfolded_records(raw: RawTable) -> RawTable:
    """A table whose cells may hold whole records, each key of which becomes a column.

    That is how a project of W&B is written to CSV by the example in its documentation.
    """
    cells = raw.cells
    if cells.columns.has_duplicates:
        return raw
    parts = []
    for column in cells.columns:
        read_as = [_record(cell) for cell in cells[column]]
        if any(record is None for record in read_as) or not any(read_as):
            parts.append(cells[[column]])
            continue
        inner = table(raw.name, [{column: record} for record in read_as]).cells
        parts.append(inner.set_axis(cells.index))
    return dataclasses.replace(raw, cells=pd.concat(parts, axis=1)) if parts else raw


def _record(cell: Any) -> dict[str, Any] | None:
    """A cell's record, in JSON or as Python prints it; an empty one for an empty cell, None for others."""
    if cell == "":
        return {}
    if not isinstance(cell, str) or len(cell) > _LONGEST or not (cell[0] == "{" and cell[-1] == "}"):
        return None
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(_NOT_LITERAL.sub("None", cell))  # literals only: nothing is executed
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return None
    return found if isinstance(found, dict) else None


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidInput(f"{name} is nested too deeply for a table of runs.") from None
    except ValueError as error:
        whole = error
    lines = [(i, line) for i, line in enumerate(text.splitlines(), start=1) if line.strip()]
    found = []
    for i, line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            wrong = f"line {i}: {error}" if found else str(whole)
            raise InvalidInput(f"{name} is not readable JSON ({wrong}).") from None
    return found


def _rows(value: Any) -> list[Mapping[str, Any]] | None:
    """The records in a JSON value: a list of them, columns by name, or either under a single name."""
    if isinstance(value, list):
        return value if all(isinstance(row, Mapping) for row in value) else None
    if not value or not isinstance(value, Mapping):
        return None
    if {"columns", "data"} <= set(value):
        return _of_header(value["columns"], value["data"])
    inside = [rows for part in value.values() if isinstance(part, list) and (rows := _rows(part))]
    if len(inside) == 1:
        return inside[0]
    if all(isinstance(column, list) for column in value.values()):
        return _of_lists(value)
    return _of_mappings(value) if all(isinstance(row, Mapping) for row in value.values()) else [value]


def _of_header(names: Any, rows: Any) -> list[Mapping[str, Any]] | None:
    """{"columns": [...], "data": [[...], ...]}, as pandas and W&B's tables have it."""
    if not all(isinstance(row, list) for row in (names, rows, *(rows if isinstance(rows, list) else ()))):
        return None
    return [dict(zip(map(str, names), row, strict=False)) for row in rows]


def _of_lists(value: Mapping[str, list[Any]]) -> list[Mapping[str, Any]] | None:
    """{column: [cell, ...]}, all of the same length."""
    if len({len(column) for column in value.values()}) != 1:
        return None
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


def _of_mappings(value: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """{column: {row: cell}} as pandas writes it, or {run: record}."""
    if any(str(key).strip() in COLUMNS for key in value):
        rows = list(dict.fromkeys(row for column in value.values() for row in column))
        return [{name: column.get(row) for name, column in value.items()} for row in rows]
    if {"config", "summary"} & set(value):
        return [value]  # one run
    return [{"run": name, **record} for name, record in value.items()]
