"""One cell of a run table: whether it says anything, and which number it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from planner.inputs import InvalidInput, count, number

COUNTS = ("params", "unique_tokens", "tokens")
NOT_FINITE = "is not finite"
_MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "#n/a"}
_INFINITE = {"inf", "infinity", "+inf", "-inf", "-infinity", "∞"}
_SPACED = re.compile(r"(?<=\d)[\s'’](?=\d{3}(?!\d))")  # 1 500 000 and 1'500'000
_POINTED = re.compile(r"\d{1,3}(?:\.\d{3}){2,}")  # 1.500.000


def is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip().lower() in _MISSING
    not_a_number = isinstance(cell, float | np.floating) and cell != cell
    return cell is None or cell is pd.NA or cell is pd.NaT or not_a_number


def number_of(cell: Any, column: str) -> tuple[float, str]:
    """A cell as a number, or what is wrong with it."""
    if not isinstance(cell, str | Real | Decimal):
        return np.nan, "is not a number"
    if isinstance(cell, str):
        if cell.strip().lower() in _INFINITE:
            return np.nan, NOT_FINITE
        cell = _SPACED.sub("", cell.strip())
        cell = cell.replace(".", "") if _POINTED.fullmatch(cell) else cell
    parse = count if column in COUNTS else number
    try:
        value = parse(cell, column, positive=False, finite=False)
    except InvalidInput:
        return np.nan, "is not a number"
    if not np.isfinite(value):
        return np.nan, NOT_FINITE
    if column == "weight_decay":
        return value, "must not be negative" if value < 0 else ""
    return value, "must be above zero" if value <= 0 else ""


def plain_number(cell: Any) -> float | None:
    """A cell as a number, whatever its column; None where it is none."""
    value = np.nan if is_missing(cell) else number_of(cell, "params")[0]
    return None if value != value else float(value)


def inferred(cells: pd.Series) -> pd.Series:
    """A column of text as numbers where all of it is numbers; anything else as it is."""
    if cells.dtype != object or not all(isinstance(cell, str) for cell in cells):
        return cells
    try:
        values = [float("nan") if cell.lower() in _MISSING else float(cell) for cell in cells]
    except ValueError:
        return cells
    if all(abs(value) < 2**53 and value == int(value) for value in values):  # NaN fails the first comparison
        return pd.Series([int(value) for value in values], dtype="int64")
    return cells if all(value != value for value in values) else pd.Series(values, dtype=float)


def shown(cell: Any) -> str:
    text = " ".join((repr(cell) if isinstance(cell, str) else str(cell)).split())
    return text if len(text) <= 40 else text[:37] + "..."


def listed(names: Sequence[str], most: int = 12) -> str:
    text = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return text if len(text) <= 300 else text[:297] + "..."
