"""Checking a run table: every cell a plausible number, every run once, and all that is wrong in one message.

Rows that are not used need not be usable; where it cannot be known whether a row is used, it counts as one
that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.filters import RowChoice
from planner.errors import InvalidInput
from planner.units import count, number

COLUMNS = ("run", "params", "unique_tokens", "epochs", "tokens", "weight_decay", "loss")
ALIASES = {"tokens": "total_tokens"}  # read where the column itself is absent
_COUNTS = ("params", "unique_tokens", "tokens")
_ONE_IS_ENOUGH = {"tokens", "epochs"}
# Cells outside of these ranges are slips of a unit or of a column, and would only break the arithmetic of a
# fit.
_PLAUSIBLE = {
    "params": (1.0, 1e18),
    "unique_tokens": (1.0, 1e18),
    "tokens": (1e-3, 1e21),
    "epochs": (1e-9, 1e9),
    "weight_decay": (0.0, 1e6),
    "loss": (1e-9, 1e3),
}
_MISSING = {"", "na", "n/a", "nan", "null", "none", "-"}
_AGREE, _AGREE_EPOCHS = 0.01, 0.005  # tokens and epochs may be rounded: to 1%, or to two decimals of an epoch
_SHOWN = 20


class Problem(NamedTuple):
    """One unusable cell. Rows are counted from 1, the first run below the header."""

    row: int
    column: str
    value: str
    reason: str


class RunTableError(InvalidInput):
    """A run table with unusable rows: `problems` has all of them, the text the first twenty."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        rows = len({problem.row for problem in problems})
        many = f"{len(problems)} problems in {rows} row{'s' * (rows > 1)}"
        cells = "1 problem" if len(problems) == 1 else many
        lines = [f"{name} has {cells} (row 1 is the first run):"]
        lines += [
            f"  row {p.row}, {p.column}: {p.value + ' ' if p.value else ''}{p.reason}"
            for p in self.problems[:_SHOWN]
        ]
        if len(problems) > _SHOWN:
            lines.append(f"  ... and {len(problems) - _SHOWN} more")
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class RawTable:
    """A run table as it was read: what to call it, its cells, and rows that do not match its header."""

    name: str
    cells: pd.DataFrame
    ragged: Sequence[Problem] = ()

    def says_weight_decay(self) -> bool:
        """Whether all runs say theirs."""
        decays = self.cells.get("weight_decay")
        return decays is not None and not decays.map(_is_missing).any()


def checked(raw: RawTable, choice: RowChoice, decay: float | None = None) -> pd.DataFrame:
    """The chosen rows with all columns, as numbers; `decay` is that of runs that do not say theirs."""
    given = _given(raw, decay)
    values, problems = _values(raw.cells, given, decay)
    table = pd.DataFrame({"run": _names(raw.cells, given), **{name: values[name] for name in COLUMNS[1:]}})
    for column in raw.cells.columns:
        if column not in table:
            table[column] = _inferred(raw.cells[column])
    chosen = choice(table)
    # A row is answered for if it is chosen, or if nobody can know because a cell that decides it is bad.
    doubtful = {p.row for column in choice.columns & set(COLUMNS) for p in problems[column]}
    problems["run"] = _repeated(table, chosen, "run" in given)
    everything = [*raw.ragged, *(p for column in COLUMNS for p in problems[column])]
    reported = sorted({p for p in everything if chosen[p.row - 1] or p.row in doubtful})
    if reported:
        raise RunTableError(raw.name, reported)
    if not chosen.any():
        raise InvalidInput(f"no run of {raw.name} is left after {choice}; a wider condition would do.")
    return table[chosen].reset_index(drop=True)


def _given(raw: RawTable, decay: float | None) -> dict[str, str]:
    """Our columns by what the table calls them; raises where one is missing that nothing replaces."""
    cells = raw.cells
    called = {column: column if column in cells else ALIASES.get(column, column) for column in COLUMNS}
    given = {column: name for column, name in called.items() if name in cells}
    needed = [column for column in ("params", "unique_tokens", "loss") if column not in given]
    if not _ONE_IS_ENOUGH & set(given):
        needed.append("epochs (or tokens)")
    if needed:
        raise _lacking(raw, needed)
    if "weight_decay" not in given and decay is None:
        raise InvalidInput(
            f"{raw.name} has no column weight_decay; "
            f"add it, or say which one all runs used: ‹weight_decay› 0.1."
        )
    return given


def _lacking(raw: RawTable, needed: Sequence[str]) -> InvalidInput:
    names = [str(column) for column in raw.cells.columns]
    near = [name for name in names if name not in COLUMNS and name.lower() in COLUMNS]
    hint = f"; names are in lower case: {near[0].lower()} instead of {near[0]}" if near else ""
    missing = " and no column ".join(needed)
    return InvalidInput(f"{raw.name} has no column {missing}; it has {_listed(names)}{hint}.")


def _values(
    cells: pd.DataFrame, given: Mapping[str, str], decay: float | None
) -> tuple[dict[str, np.ndarray], dict[str, list[Problem]]]:
    """The numbers of a table, NaN where unusable, and what is wrong with each column."""
    values: dict[str, np.ndarray] = {}
    problems: dict[str, list[Problem]] = {column: [] for column in COLUMNS}
    for column in COLUMNS[1:]:
        if column not in given:
            values[column] = np.full(len(cells), decay if column == "weight_decay" else np.nan)
            continue
        values[column], empty, problems[column] = _numbers(cells[given[column]], column)
        if column == "weight_decay" and decay is not None:
            values[column][empty] = decay
        elif column not in _ONE_IS_ENOUGH or not set(given) >= _ONE_IS_ENOUGH:
            problems[column] += [Problem(row, column, "", "is missing") for row in _rows(empty)]
    already = {p.row for column in ("tokens", "epochs", "unique_tokens") for p in problems[column]}
    problems["tokens"] += _complete(values, already)
    for column in COLUMNS[1:]:
        problems[column] += _implausible(values[column], column, {p.row for p in problems[column]})
    return values, problems


def _numbers(cells: pd.Series, column: str) -> tuple[np.ndarray, np.ndarray, list[Problem]]:
    """A column as floats (NaN where unusable), which cells are empty, and which are wrong."""
    values, empty, bad = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool), []
    for i, cell in enumerate(cells):
        if _is_missing(cell):
            empty[i] = True
            continue
        value, reason = _number(cell, column)
        if reason:
            bad.append(Problem(i + 1, column, _shown(cell), reason))
        else:
            values[i] = value
    return values, empty, bad


def _number(cell: Any, column: str) -> tuple[float, str]:
    """A cell as a number, or what is wrong with it."""
    if not isinstance(cell, str | Real | Decimal):
        return np.nan, "is not a number"
    parse = count if column in _COUNTS else number
    try:
        value = parse(cell, column, positive=False, finite=False)
    except InvalidInput:
        return np.nan, "is not a number"
    if not np.isfinite(value):
        return np.nan, "is not finite"
    if column == "weight_decay":
        return value, "must not be negative" if value < 0 else ""
    return value, "must be above zero" if value <= 0 else ""


def _complete(table: dict[str, np.ndarray], known: set[int]) -> list[Problem]:
    """Fill tokens and epochs from each other in place; rows where both are missing or disagree."""
    unique, epochs, tokens = table["unique_tokens"], table["epochs"], table["tokens"]
    given_epochs, given_tokens = ~np.isnan(epochs), ~np.isnan(tokens)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        implied = tokens / unique
        table["tokens"] = np.where(given_tokens, tokens, unique * epochs)
        table["epochs"] = np.where(given_epochs, epochs, implied)
        off = np.abs(implied - epochs)
        contradict = given_epochs & given_tokens & (off > np.maximum(_AGREE * epochs, _AGREE_EPOCHS))
    neither = "is missing, and so is epochs: one of the two is needed"
    rows = [row for row in _rows(~given_epochs & ~given_tokens) if row not in known]
    problems = [Problem(row, "tokens", "", neither) for row in rows]
    for i in np.nonzero(contradict)[0]:
        reason = f"is {implied[i]:.4g} epochs of the unique tokens, but epochs says {epochs[i]:.4g}"
        problems.append(Problem(int(i) + 1, "tokens", f"{tokens[i]:g}", reason))
    return problems


def _implausible(values: np.ndarray, column: str, known: set[int]) -> list[Problem]:
    low, high = _PLAUSIBLE[column]
    outside = ~np.isnan(values) & ~((values >= low) & (values <= high))
    reason = f"is outside of {low:g} to {high:g}: check its unit"
    rows = [row for row in _rows(outside) if row not in known]
    return [Problem(row, column, f"{values[row - 1]:g}", reason) for row in rows]


def _rows(where: np.ndarray) -> list[int]:
    """Rows as people count them."""
    return [int(i) + 1 for i in np.nonzero(where)[0]]


def _names(cells: pd.DataFrame, given: Mapping[str, str]) -> pd.Series:
    if "run" not in given:
        return pd.Series([f"row-{i + 1}" for i in range(len(cells))], dtype=object)
    return pd.Series(["" if _is_missing(cell) else str(cell).strip() for cell in cells["run"]], dtype=object)


def _repeated(table: pd.DataFrame, chosen: np.ndarray, named: bool) -> list[Problem]:
    """Runs that occur twice among the chosen rows:
    by name, or by all their numbers where they have no names.
    """
    problems = []
    seen: dict[Any, int] = {}
    numbers = table[list(COLUMNS[1:])].itertuples(index=False, name=None)
    keys: Iterable[Any] = table["run"] if named else numbers
    for i, key in enumerate(keys):
        if not chosen[i]:
            continue
        if named and not key:
            problems.append(Problem(i + 1, "run", "", "is missing: every run needs a name"))
        elif key in seen:
            reason = f"is a duplicate of row {seen[key]}"
            problems.append(Problem(i + 1, "run", _shown(table["run"][i]), reason))
        else:
            seen[key] = i + 1
    return problems


def _inferred(cells: pd.Series) -> pd.Series:
    """A kept column of text as numbers where all of it is numbers; anything else as it is."""
    if cells.dtype != object or not all(isinstance(cell, str) for cell in cells):
        return cells
    try:
        values = [float("nan") if cell.lower() in _MISSING else float(cell) for cell in cells]
    except ValueError:
        return cells
    if all(abs(value) < 2**53 and value == int(value) for value in values):  # NaN fails the first comparison
        return pd.Series([int(value) for value in values], dtype="int64")
    return cells if all(value != value for value in values) else pd.Series(values, dtype=float)


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip().lower() in _MISSING
    not_a_number = isinstance(cell, float | np.floating) and cell != cell
    return cell is None or cell is pd.NA or cell is pd.NaT or not_a_number


def _shown(cell: Any) -> str:
    text = " ".join((repr(cell) if isinstance(cell, str) else str(cell)).split())
    return text if len(text) <= 40 else text[:37] + "..."


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return text if len(text) <= 300 else text[:297] + "..."
