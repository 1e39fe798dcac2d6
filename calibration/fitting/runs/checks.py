"""Checking a run table: every cell a plausible number, every run once, and all that is wrong in one message.

Rows that are not used need not be usable; where it cannot be known whether a row is used, it counts as one
that is. Runs that came to no end, or do not say what is needed, are left out where the caller asks for it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.cells import NOT_FINITE, inferred, is_missing, listed, number_of, shown
from calibration.fitting.runs.filters import RowChoice
from calibration.fitting.runs.sanity_checks import check_units
from calibration.fitting.runs.warnings import TableWarning
from planner.inputs import InvalidInput

COLUMNS = ("run", "params", "unique_tokens", "epochs", "tokens", "weight_decay", "loss")
_TOKENS = ("unique_tokens", "tokens", "epochs")  # two of them are enough
# Cells outside of these ranges are slips of a unit or of a column, and would only break the arithmetic of a
# fit.
PLAUSIBLE = {
    "params": (1.0, 1e18),
    "unique_tokens": (1.0, 1e18),
    "tokens": (1e-3, 1e21),
    "epochs": (1e-9, 1e9),
    "weight_decay": (0.0, 1e6),
    "loss": (1e-9, 1e3),
}
_AGREE, _AGREE_EPOCHS = 0.01, 0.005  # tokens and epochs may be rounded: to 1%, or to two decimals of an epoch
_SHOWN = 20
_UNIT = ": check its unit"
_STATES = ("state", "status", "run_state")
_UNFINISHED = {"crashed", "failed", "killed", "running", "preempted", "preempting", "pending", "unfinished"}
_UNFINISHED |= {"diverged", "cancelled", "canceled", "oom", "error", "timeout"}
# Reasons for which a run may be left out.
IS_MISSING, NOT_FINISHED, DOES_NOT_FIT = "is missing", "is not the end of a run", "does not fit"
_ABSENT = (IS_MISSING, NOT_FINITE, NOT_FINISHED, DOES_NOT_FIT)
_NOT_ALL = re.compile(r"(?=.*param)(?=.*(?:emb|active))", re.I)


class Problem(NamedTuple):
    """One unusable cell. Rows are counted from 1, the first run below the header."""

    row: int
    column: str
    value: str
    reason: str

    @property
    def is_absent(self) -> bool:
        """Whether the run says too little rather than something wrong."""
        return self.reason.startswith(_ABSENT)


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
        if absent := len({problem.row for problem in problems if problem.is_absent}):
            which = "the one row" if absent == 1 else f"the {absent} rows"
            lines.append(f"  ‹drop_missing› leaves out {which} without a final loss or a setting")
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class RawTable:
    """A run table as it was read: what to call it, its cells, rows that do not match its header, what there
    is to say about the reading, and from which column each of ours was taken.
    """

    name: str
    cells: pd.DataFrame
    ragged: Sequence[Problem] = ()
    warnings: Sequence[TableWarning] = ()
    taken: Mapping[str, str] = field(default_factory=dict)

    def says_weight_decay(self) -> bool:
        """Whether all runs say theirs."""
        decays = self.cells.get("weight_decay")
        return decays is not None and not decays.map(is_missing).any()


class Checked(NamedTuple):
    """The chosen rows with all columns, as numbers, and what there is to say about them."""

    table: pd.DataFrame
    warnings: list[TableWarning]


def check_table(
    raw: RawTable, choice: RowChoice, decay: float | None = None, drop_missing: bool = False
) -> Checked:
    """A table's chosen rows; `decay` is that of runs that do not say theirs."""
    _check_columns(raw, decay)
    values, problems = _values(raw.cells, decay)
    table = _table(raw.cells, values)
    problems |= {"state": _unfinished(raw.cells), "-": list(raw.ragged)}
    chosen = choice(table)
    dropped = _absent(problems, chosen) if drop_missing else {}
    chosen = chosen & ~np.isin(np.arange(len(table)) + 1, list(dropped))
    # A row is answered for if it is chosen, or if nobody can know because a cell that decides it is bad.
    doubtful = {p.row for column in choice.columns & set(COLUMNS) for p in problems[column]} - set(dropped)
    problems["run"] = _repeated(table, chosen, "run" in raw.cells)
    everything = itertools.chain.from_iterable(problems.values())
    reported = sorted({p for p in everything if chosen[p.row - 1] or p.row in doubtful})
    if all(p.reason.endswith(_UNIT) for p in reported):
        check_units(table[chosen], raw.taken)
    if reported:
        raise RunTableError(raw.name, reported)
    if not chosen.any():
        why = " and ".join(filter(None, [str(choice), "‹drop_missing›" * bool(dropped)]))
        raise InvalidInput(f"no run of {raw.name} is left after {why}; a wider condition would do.")
    return Checked(table[chosen].reset_index(drop=True), _left_out(dropped, table))


def _table(cells: pd.DataFrame, values: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Our columns first, then all others."""
    table = pd.DataFrame({"run": _names(cells), **{name: values[name] for name in COLUMNS[1:]}})
    for column in cells.columns:
        if column not in table:
            table[column] = inferred(cells[column])
    return table


def _absent(problems: Mapping[str, Sequence[Problem]], chosen: np.ndarray) -> dict[int, Problem]:
    """The chosen rows that say too little, each with the first reason."""
    absent = [p for found in problems.values() for p in found if p.is_absent]
    return {p.row: p for p in reversed(absent) if chosen[p.row - 1]}


def _check_columns(raw: RawTable, decay: float | None) -> None:
    """Raises where a column is missing that nothing replaces."""
    cells = raw.cells
    needed = [column for column in ("params", "loss") if column not in cells]
    found = [column for column in _TOKENS if column in cells]
    if len(found) < 2 and "unique_tokens" not in found:
        needed.insert(1 if "params" in needed else 0, "unique_tokens")
    if not set(found) & {"tokens", "epochs"}:
        needed.append("epochs (or tokens)")
    if needed:
        raise _lacking(raw, needed)
    if "weight_decay" not in cells and decay is None:
        raise InvalidInput(
            f"{raw.name} has no column weight_decay; "
            f"add it, or say which one all runs used: ‹weight_decay› 0.1."
        )


def _lacking(raw: RawTable, needed: Sequence[str]) -> InvalidInput:
    names = [str(column) for column in raw.cells.columns]
    some = next((name for name in names if "params" in needed and _NOT_ALL.search(name)), None)
    if some is None:
        names_may = ", and ‹pattern› reads settings inside run names" if "run" in names else ""
        hint = f"; ‹columns› {needed[0].split()[0]}=NAME says which it is{names_may}"
    else:
        hint = f"; laws count all parameters, embeddings included (‹columns› params={some} takes these)"
    missing = " and no column ".join(needed)
    return InvalidInput(f"{raw.name} has no column {missing}; it has {listed(names)}{hint}.")


def _values(
    cells: pd.DataFrame, decay: float | None
) -> tuple[dict[str, np.ndarray], dict[str, list[Problem]]]:
    """The numbers of a table, NaN where unusable, and what is wrong with each column."""
    values: dict[str, np.ndarray] = {}
    problems: dict[str, list[Problem]] = {column: [] for column in COLUMNS}
    for column in COLUMNS[1:]:
        if column not in cells:
            values[column] = np.full(len(cells), decay if column == "weight_decay" else np.nan)
            continue
        values[column], empty, problems[column] = _numbers(cells[column], column)
        if column == "weight_decay" and decay is not None:
            values[column][empty] = decay
        elif column not in _TOKENS:
            problems[column] += [Problem(row, column, "", IS_MISSING) for row in _rows(empty)]
    _complete(values, problems, set(cells.columns))
    for column in COLUMNS[1:]:
        problems[column] += _implausible(values[column], column, {p.row for p in problems[column]})
    return values, problems


def _numbers(cells: pd.Series, column: str) -> tuple[np.ndarray, np.ndarray, list[Problem]]:
    """A column as floats (NaN where unusable), which cells are empty, and which are wrong."""
    values, empty, bad = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool), []
    for i, cell in enumerate(cells):
        if is_missing(cell):
            empty[i] = True
            continue
        value, reason = number_of(cell, column)
        if reason:
            bad.append(Problem(i + 1, column, shown(cell), reason))
        else:
            values[i] = value
    return values, empty, bad


def _complete(table: dict[str, np.ndarray], problems: dict[str, list[Problem]], given: set[str]) -> None:
    """Fill unique tokens, tokens and epochs from each other in place; rows where two are missing or where
    they disagree are problems.
    """
    already = {p.row for column in _TOKENS for p in problems[column]}
    unique, epochs, tokens = table["unique_tokens"], table["epochs"], table["tokens"]
    known = {column: ~np.isnan(table[column]) for column in _TOKENS}
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        implied = tokens / unique
        table["unique_tokens"] = np.where(known["unique_tokens"], unique, tokens / epochs)
        table["tokens"] = np.where(known["tokens"], tokens, unique * epochs)
        table["epochs"] = np.where(known["epochs"], epochs, implied)
        off = np.abs(implied - epochs)
        contradict = np.logical_and.reduce(
            [*known.values(), off > np.maximum(_AGREE * epochs, _AGREE_EPOCHS)]
        )
    few = sum(found.astype(int) for found in known.values()) < 2
    for row in (row for row in _rows(few) if row not in already):
        missing = [column for column in _TOKENS if column in given and not known[column][row - 1]]
        if {"tokens", "epochs"} <= set(missing):
            neither = f"{IS_MISSING}, and so is epochs: one of the two is needed"
            problems["tokens"].append(Problem(row, "tokens", "", neither))
        elif missing:
            problems[missing[0]].append(Problem(row, missing[0], "", IS_MISSING))
    for i in np.nonzero(contradict)[0]:
        reason = f"is {implied[i]:.4g} epochs of the unique tokens, but epochs says {epochs[i]:.4g}"
        problems["tokens"].append(Problem(int(i) + 1, "tokens", f"{tokens[i]:g}", reason))


def _unfinished(cells: pd.DataFrame) -> list[Problem]:
    """Rows whose state says that the run did not come to its end."""
    states = [column for column in cells.columns if str(column).strip().lower() in _STATES]
    return [
        Problem(row, str(column), shown(cell), NOT_FINISHED)
        for column in states
        for row, cell in enumerate(cells[column], start=1)
        if isinstance(cell, str) and cell.strip().lower() in _UNFINISHED
    ]


def _left_out(dropped: Mapping[int, Problem], table: pd.DataFrame) -> list[TableWarning]:
    """How many runs were left out, and why."""
    if not dropped:
        return []
    reasons: dict[str, list[str]] = {}
    for row, problem in sorted(dropped.items()):
        reason = problem.reason.partition(",")[0]
        reason = problem.value if reason == NOT_FINISHED else reason
        reasons.setdefault(f"{problem.column} {reason}", []).append(str(table["run"][row - 1]))
    each = [f"{why} in {len(runs)} ({listed(runs, 3)})" for why, runs in reasons.items()]
    return [TableWarning("left_out", f"left out {len(dropped)} of {len(table)} runs: {', '.join(each)}")]


def _implausible(values: np.ndarray, column: str, known: set[int]) -> list[Problem]:
    low, high = PLAUSIBLE[column]
    outside = ~np.isnan(values) & ~((values >= low) & (values <= high))
    reason = f"is outside of {low:g} to {high:g}{_UNIT}"
    rows = [row for row in _rows(outside) if row not in known]
    return [Problem(row, column, f"{values[row - 1]:g}", reason) for row in rows]


def _rows(where: np.ndarray) -> list[int]:
    """Rows as people count them."""
    return [int(i) + 1 for i in np.nonzero(where)[0]]


def _names(cells: pd.DataFrame) -> pd.Series:
    if "run" not in cells:
        return pd.Series([f"row-{i + 1}" for i in range(len(cells))], dtype=object)
    return pd.Series(["" if is_missing(cell) else str(cell).strip() for cell in cells["run"]], dtype=object)


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
            problems.append(Problem(i + 1, "run", "", "has no name: every run needs one"))
        elif key in seen:
            reason = f"is a duplicate of row {seen[key]}"
            problems.append(Problem(i + 1, "run", shown(table["run"][i]), reason))
        else:
            seen[key] = i + 1
    return problems
