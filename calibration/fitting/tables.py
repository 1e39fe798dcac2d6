"""Run tables: one row per finished run, read from CSV, Parquet, a DataFrame or a study's directory, and checked before anything
is fitted.

    run, params, unique_tokens, epochs, tokens, weight_decay, loss      (other columns are kept as they are)

`tokens` (or `total_tokens`) and `epochs` follow from each other, so one of the two may be missing. Counts may be
written as people say them ("250M"). All bad cells are reported together, by row and column. The source is only read.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.filters import RowFilter
from planner.errors import InvalidInput
from planner.units import count, number

COLUMNS = ("run", "params", "unique_tokens", "epochs", "tokens", "weight_decay", "loss")
ALIASES = {"tokens": "total_tokens"}  # read where the column itself is absent
_COUNTS = ("params", "unique_tokens", "tokens")
# Cells outside of these ranges are slips of a unit or of a column, and would only break the arithmetic of a fit.
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
_LARGEST_FILE = 256 * 2**20
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
        cells = (
            "1 problem" if len(problems) == 1 else f"{len(problems)} problems in {rows} row{'s' * (rows > 1)}"
        )
        lines = [f"{name} has {cells} (row 1 is the first run):"]
        lines += [
            f"  row {p.row}, {p.column}: {p.value + ' ' if p.value else ''}{p.reason}"
            for p in self.problems[:_SHOWN]
        ]
        if len(problems) > _SHOWN:
            lines.append(f"  ... and {len(problems) - _SHOWN} more")
        super().__init__("\n".join(lines))


def read_runs(
    source: str | os.PathLike[str] | pd.DataFrame,
    *,
    max_epochs: Any = None,
    where: str | None = None,
    weight_decay: Any = None,
    weight_decay_is_choice: bool = False,
) -> pd.DataFrame:
    """The run table of a CSV or Parquet file or a DataFrame, checked, with all seven columns and numbers as floats.

    The directory of a study is the table of its finished grid runs; runs that laws prescribed are never part of it.

    `where` (see `filters`) and `max_epochs` choose rows; rows that they leave out need not be usable. `weight_decay`
    is that of all runs whose table does not say it; where all say it, giving it is a mistake, unless the caller goes on to
    choose by it.
    """
    limit = None if max_epochs is None else number(max_epochs, "max_epochs", examples="64")
    decay = None if weight_decay is None else number(weight_decay, "weight_decay", positive=False)
    keep = None if where is None else RowFilter(where)
    name, raw, problems = _load(source)
    if (
        decay is not None
        and not weight_decay_is_choice
        and "weight_decay" in raw
        and not raw["weight_decay"].map(_is_missing).any()
    ):
        raise InvalidInput(
            f"weight_decay {decay:g} was given for runs that do not say theirs, but all of {name} do; leave it out, or choose "
            f"runs with --where 'weight_decay == {decay:g}'."
        )
    return _checked(name, raw, problems, limit, keep, decay)


# -- reading ------------------------------------------------------------------------------------------------------


def _load(source: Any) -> tuple[str, pd.DataFrame, list[Problem]]:
    """What to call the source, its cells as they are, and rows whose cells do not match the header."""
    if isinstance(source, pd.DataFrame):
        frame = source.copy()
        frame.columns = pd.Index([str(column).strip() for column in frame.columns], dtype=object)
        name = "the run table"
        problems: list[Problem] = []
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        name = path.name or str(path)
        if path.is_dir():
            name, frame, problems = path.resolve().name, _study(path), []
        else:
            frame, problems = (
                _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _csv(path, name)
            )
    else:
        raise InvalidInput(
            f"runs must be a CSV or Parquet file, a study's directory or a DataFrame; got {type(source).__name__}."
        )
    twice = sorted({str(column) for column in frame.columns[frame.columns.duplicated()]})
    if twice:
        raise InvalidInput(f"{name} has the column {twice[0]!r} more than once; rename or drop one of them.")
    if not len(frame):
        raise InvalidInput(f"{name} has no runs; it needs rows with the columns {', '.join(COLUMNS)}.")
    return name, frame.reset_index(drop=True), problems


def _study(path: Path) -> pd.DataFrame:
    """The finished grid runs of a study."""
    from calibration.studies.directory import is_study, open_directory, table

    if not is_study(path):
        raise InvalidInput(
            f"runs must be a CSV or Parquet file or the directory of a study; {str(path)!r} is a directory without one."
        )
    found = table(open_directory(path))
    if not len(found):
        raise InvalidInput(
            f"the study in {path} has no finished runs yet; `planner calibrate sweep` trains them."
        )
    return found


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InvalidInput(
                f"{path.name} is larger than {_LARGEST_FILE >> 20} MB, which no run table is; give one row per finished run."
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"run table {str(path)!r} does not exist.") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"run table {str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from None


def _csv(path: Path, name: str) -> tuple[pd.DataFrame, list[Problem]]:
    content = _bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidInput(
            f"{name} is not text; a run table is a UTF-8 CSV file, or a Parquet file that ends in .parquet."
        )
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    try:
        lines = [
            cells
            for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
            if any(map(str.strip, cells))
        ]
    except csv.Error as error:
        raise InvalidInput(f"{name} is not a readable CSV file: {error}.") from None
    if not lines:
        raise InvalidInput(f"{name} is empty; it needs the columns {', '.join(COLUMNS)}.")
    header = [cell.strip() for cell in lines[0]]
    width, problems = len(header), []
    for row, cells in enumerate(lines[1:], start=1):
        if len(cells) != width and any(map(str.strip, cells[width:])):
            problems.append(Problem(row, "-", "", f"has {len(cells)} cells where the header has {width}"))
        cells[width:] = []
        cells.extend([""] * (width - len(cells)))
    frame = pd.DataFrame(
        {i: pd.Series([c[i].strip() for c in lines[1:]], dtype=object) for i in range(width)}
    )
    frame.columns = pd.Index(header, dtype=object)
    return frame, problems


def _parquet(path: Path) -> tuple[pd.DataFrame, list[Problem]]:
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
    frame.columns = pd.Index([str(column).strip() for column in frame.columns], dtype=object)
    return frame, []


# -- checking -----------------------------------------------------------------------------------------------------


def _checked(
    name: str,
    raw: pd.DataFrame,
    ragged: list[Problem],
    limit: float | None,
    keep: RowFilter | None,
    decay: float | None,
) -> pd.DataFrame:
    rows = len(raw)
    source = {column: column if column in raw else ALIASES.get(column, column) for column in COLUMNS}
    given = {column for column in COLUMNS if source[column] in raw}
    needed = [column for column in ("params", "unique_tokens", "loss") if column not in given]
    if not {"tokens", "epochs"} & given:
        needed.append("epochs (or tokens)")
    if needed:
        near = [
            str(column) for column in raw.columns if column not in COLUMNS and str(column).lower() in COLUMNS
        ]
        hint = f"; names are in lower case: {near[0].lower()} instead of {near[0]}" if near else ""
        raise InvalidInput(
            f"{name} has no column {' and no column '.join(needed)}; it has {_listed(raw.columns)}{hint}."
        )
    if "weight_decay" not in given and decay is None:
        raise InvalidInput(
            f"{name} has no column weight_decay; add it, or say which one all runs used: --weight-decay 0.1."
        )

    problems: dict[str, list[Problem]] = {column: [] for column in COLUMNS}
    table: dict[str, Any] = {}
    for column in COLUMNS[1:]:
        if column in given:
            table[column], empty, bad = _numbers(raw[source[column]], column)
            problems[column] += bad
            if column == "weight_decay" and decay is not None:
                table[column][empty] = decay
            elif column not in ("tokens", "epochs") or not {"tokens", "epochs"} <= given:
                problems[column] += [
                    Problem(int(i) + 1, column, "", "is missing") for i in np.nonzero(empty)[0]
                ]
        else:
            table[column] = np.full(rows, decay if column == "weight_decay" else np.nan)
    already = {p.row for column in ("tokens", "epochs", "unique_tokens") for p in problems[column]}
    problems["tokens"] += _complete(table, already)
    table["run"] = _names(raw, given)
    for column in COLUMNS[1:]:
        problems[column] += _implausible(table[column], column, {p.row for p in problems[column]})
    checked = pd.DataFrame({column: table[column] for column in COLUMNS})
    for column in raw.columns:
        if column not in checked:
            checked[column] = _inferred(raw[column])

    chosen = _chosen(checked, limit, keep)
    # A row is answered for if the filter keeps it, or if the filter cannot know because the cell it reads is bad.
    used = (keep.columns if keep else set()) | (
        {"epochs", "tokens", "unique_tokens"} if limit is not None else set()
    )
    doubtful = {p.row for column in used & set(COLUMNS) for p in problems[column]}
    problems["run"] = _repeated(checked, chosen, "run" in given)
    everything = ragged + [p for column in COLUMNS for p in problems[column]]
    reported = sorted({p for p in everything if chosen[p.row - 1] or p.row in doubtful})
    if reported:
        raise RunTableError(name, reported)
    if not chosen.any():
        conditions = ([f"--max-epochs {limit:g}"] if limit is not None else []) + (
            [f"--where {keep.text!r}"] if keep else []
        )
        raise InvalidInput(
            f"no run of {name} is left after {' and '.join(conditions)}; a wider condition would do."
        )
    return checked[chosen].reset_index(drop=True)


def _numbers(cells: pd.Series, column: str) -> tuple[np.ndarray, np.ndarray, list[Problem]]:
    """A column as floats (NaN where unusable), which cells are empty, and which are not numbers of the right kind."""
    values, empty, bad = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool), []
    parse = count if column in _COUNTS else number
    for i, cell in enumerate(cells):
        if _is_missing(cell):
            empty[i] = True
            continue
        if not isinstance(cell, str | Real | Decimal):
            bad.append(Problem(i + 1, column, _shown(cell), "is not a number"))
            continue
        try:
            values[i] = parse(cell, column, positive=False)
        except InvalidInput as error:
            reason = "is not finite" if "finite" in str(error) else "is not a number"
            bad.append(Problem(i + 1, column, _shown(cell), reason))
            continue
        if values[i] < 0 or (values[i] == 0 and column != "weight_decay"):
            reason = "must not be negative" if column == "weight_decay" else "must be above zero"
            bad.append(Problem(i + 1, column, _shown(cell), reason))
            values[i] = np.nan
    return values, empty, bad


def _complete(table: dict[str, Any], known: set[int]) -> list[Problem]:
    """Fill tokens from epochs and epochs from tokens in place; the rows where neither is there or the two disagree."""
    unique, epochs, tokens = table["unique_tokens"], table["epochs"], table["tokens"]
    given_epochs, given_tokens = ~np.isnan(epochs), ~np.isnan(tokens)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        table["tokens"] = np.where(given_tokens, tokens, unique * epochs)
        table["epochs"] = np.where(given_epochs, epochs, tokens / unique)
        implied = tokens / unique
        off = np.abs(implied - epochs)
        contradict = given_epochs & given_tokens & (off > np.maximum(_AGREE * epochs, _AGREE_EPOCHS))
    problems = []
    for i in np.nonzero(~given_epochs & ~given_tokens)[0]:
        if int(i) + 1 not in known:
            problems.append(
                Problem(int(i) + 1, "tokens", "", "is missing, and so is epochs: one of the two is needed")
            )
    for i in np.nonzero(contradict)[0]:
        reason = f"is {implied[i]:.4g} epochs of the unique tokens, but epochs says {epochs[i]:.4g}"
        problems.append(Problem(int(i) + 1, "tokens", f"{tokens[i]:g}", reason))
    return problems


def _implausible(values: np.ndarray, column: str, known: set[int]) -> list[Problem]:
    low, high = _PLAUSIBLE[column]
    outside = ~np.isnan(values) & ~((values >= low) & (values <= high))
    return [
        Problem(int(i) + 1, column, f"{values[i]:g}", f"is outside of {low:g} to {high:g}: check its unit")
        for i in np.nonzero(outside)[0]
        if int(i) + 1 not in known
    ]


def _names(raw: pd.DataFrame, given: set[str]) -> pd.Series:
    if "run" not in given:
        return pd.Series([f"row-{i + 1}" for i in range(len(raw))], dtype=object)
    return pd.Series(["" if _is_missing(cell) else str(cell).strip() for cell in raw["run"]], dtype=object)


def _repeated(table: pd.DataFrame, chosen: np.ndarray, named: bool) -> list[Problem]:
    """Runs that occur twice among the chosen rows: by name, or by all their numbers where they have no names."""
    problems = []
    seen: dict[Any, int] = {}
    keys: Iterable[Any] = (
        table["run"] if named else table[list(COLUMNS[1:])].itertuples(index=False, name=None)
    )
    for i, key in enumerate(keys):
        if not chosen[i]:
            continue
        if named and not key:
            problems.append(Problem(i + 1, "run", "", "is missing: every run needs a name"))
        elif key in seen:
            problems.append(
                Problem(i + 1, "run", _shown(table["run"][i]), f"is a duplicate of row {seen[key]}")
            )
        else:
            seen[key] = i + 1
    return problems


def _chosen(table: pd.DataFrame, limit: float | None, keep: RowFilter | None) -> np.ndarray:
    chosen = np.ones(len(table), dtype=bool) if keep is None else keep(table)
    if limit is not None:
        chosen = chosen & (table["epochs"].to_numpy() <= limit)
    return chosen


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
    return (
        cell is None
        or cell is pd.NA
        or cell is pd.NaT
        or (isinstance(cell, float | np.floating) and cell != cell)
    )


def _shown(cell: Any) -> str:
    text = " ".join((repr(cell) if isinstance(cell, str) else str(cell)).split())
    return text if len(text) <= 40 else text[:37] + "..."


def _listed(columns: Iterable[Any]) -> str:
    names = [str(column) for column in columns]
    text = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return text if len(text) <= 300 else text[:297] + "..."
