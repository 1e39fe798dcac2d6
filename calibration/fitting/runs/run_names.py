"""Settings inside run names: `{params}_{tokens}_{epochs}ep` reads 1b5_30b_4ep as 1.5B parameters, 30B tokens
and 4 epochs.

A field is a column of ours or any other word, which becomes a column; `*` stands for anything. Numbers may
have a unit (100m, 1.5B, 1b5, 2p8b), decimals may be written 0p1. Letters match whatever their case.
"""

from __future__ import annotations

import dataclasses
import re

import pandas as pd

from calibration.fitting.runs.checks import COLUMNS, DOES_NOT_FIT, Problem, RawTable
from calibration.fitting.runs.warnings import TableWarning
from planner.inputs import InvalidInput

EXAMPLE = "{params}_{tokens}_{epochs}ep"
_LONGEST = 200
_FIELD = re.compile(r"\{(\w*)\}|(\*)")
_NUMBER = r"\d+(?:[.p]\d+)?(?:e[+-]?\d+)?(?:[kmbgt]\d*)?"
_PARTS = re.compile(r"(\d+)(?:[.p](\d+))?(e[+-]?\d+)?(?:([kmbgt])(\d*))?", re.I)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def with_settings(raw: RawTable, pattern: str | None) -> RawTable:
    """The table with the settings that its runs' names hold. Names that do not fit are problems of the table;
    a column that the table has already is kept.
    """
    if pattern is None:
        return raw
    expression, fields = _compiled(pattern)
    if "run" not in raw.cells:
        raise InvalidInput(
            f"reads run names, and {raw.name} has none; say where they are: ‹columns› run=NAME.",
            field="pattern",
        )
    matches = [expression.fullmatch(str(name).strip()) for name in raw.cells["run"]]
    misfits = [
        Problem(row, "run", repr(str(name)), f"{DOES_NOT_FIT} {pattern}")
        for row, (name, match) in enumerate(zip(raw.cells["run"], matches, strict=True), start=1)
        if match is None
    ]
    if len(misfits) == len(matches):
        raise InvalidInput(
            f"{pattern!r} fits no run of {raw.name}, such as {misfits[0].value}.", field="pattern"
        )
    cells = raw.cells.copy()
    for field in fields:
        values = [None if match is None else _value(match[field], field) for match in matches]
        if field not in cells:
            cells[field] = pd.Series(values, index=cells.index, dtype=object)
    said = TableWarning("settings_from_names", f"read {', '.join(fields)} from the names of the runs")
    return dataclasses.replace(
        raw, cells=cells, ragged=(*raw.ragged, *misfits), warnings=(*raw.warnings, said)
    )


def _compiled(pattern: str) -> tuple[re.Pattern[str], list[str]]:
    if not isinstance(pattern, str) or len(pattern) > _LONGEST or not _FIELD.search(pattern):
        raise InvalidInput(f"must be a pattern such as {EXAMPLE!r}; got {pattern!r}.", field="pattern")
    parts, fields, at, open_before = [], [], 0, False
    for match in _FIELD.finditer(pattern):
        text, name = pattern[at : match.start()], match[1]
        if open_before and not text:
            raise InvalidInput(
                f"cannot tell where {match[0]} begins; put what parts them between two fields.",
                field="pattern",
            )
        parts.append(re.escape(text))
        if not name:
            parts.append(".*")
        else:
            if name in fields or name in ("run", "loss"):
                problem = "has it twice" if name in fields else "cannot be part of a name"
                raise InvalidInput(f"{{{name}}} {problem}: {pattern!r}.", field="pattern")
            fields.append(name)
            parts.append(f"(?P<{name}>{_NUMBER if name in COLUMNS else '[^/]+?'})")
        at, open_before = match.end(), True
    parts.append(re.escape(pattern[at:]))
    if not fields:
        raise InvalidInput(f"names no field; {EXAMPLE!r} would do.", field="pattern")
    try:
        return re.compile("".join(parts), re.IGNORECASE), fields
    except re.error:
        raise InvalidInput(
            f"must be a pattern such as {EXAMPLE!r}; got {pattern!r}.", field="pattern"
        ) from None


def _value(text: str, field: str) -> float | str:
    return written_number(text) if field in COLUMNS else text


def written_number(text: str) -> float:
    """A number as names have it: 100m, 1.5B, 1b5 and 1p5b are 1.5e9, 0p1 is 0.1."""
    match = _PARTS.fullmatch(text)
    if match is None:
        raise InvalidInput(f"must be a number such as 100m or 1b5; got {text!r}.")
    whole, decimals, exponent, unit, after = (part or "" for part in match.groups())
    return float(f"{whole}.{decimals or after or 0}{exponent}") * _UNITS[unit.lower()]
