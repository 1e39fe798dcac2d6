"""Run tables: one row per finished run, read from wherever people have them, and checked before anything is
fitted.

    run, params, unique_tokens, epochs, tokens, weight_decay, loss      (other columns are kept as they are)

Two of unique_tokens, tokens and epochs are enough. Counts may be written as people say them ("250M"). All
bad cells are reported together, by row and column; mistaken units are named with their cure. The source is
only read. `formats` has the sources, `columns` says which column is which, `checks` what is wrong; here is
which rows are used, and what is kept of the reading.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypedDict, Unpack

import numpy as np
import pandas as pd

from calibration.fitting.runs.checks import (
    COLUMNS,
    TOKENS,
    Chosen,
    RawTable,
    RunTableError,
    TableWarning,
    check_rows,
    is_missing,
    read_numbers,
    sanity_checks,
)
from calibration.fitting.runs.columns import Columns, with_our_columns
from calibration.fitting.runs.formats import Table, load
from planner.calibration import Calibration
from planner.inputs import InvalidInput, count, named, number

__all__ = ["Origin", "Reading", "RowFilter", "RunTableError", "Table", "read_runs", "warnings_of"]

_WARNINGS = "warnings"  # among the attributes of a table


class Reading(TypedDict, total=False):
    """How a table is read, and which of its rows are used."""

    max_epochs: Any  # leave out runs beyond so many
    where: str | None  # a condition, see `RowFilter`
    weight_decay: Any  # of runs whose table does not say it
    columns: Columns | None  # "params=config.n_params,loss=summary/val_loss", see `columns`
    pattern: str | None  # "{params}_{tokens}_{epochs}ep", see `columns`
    drop_missing: bool  # leave out runs that came to no end or do not say what is needed


@dataclass(frozen=True)
class Origin:
    """Where the runs of a table come from: what a calibration says about itself besides its laws. Nothing of
    it is needed for a fit.
    """

    title: str = ""
    corpus: str = ""
    model_family: str = ""
    vocab_size: int | None = None
    tied_embeddings: bool | None = None
    data_fingerprint: str | None = None  # of the tokens that were trained on
    recipe: dict[str, Any] | None = None  # learning rate, batch and schedule, as `planner` keeps them

    def facts(self) -> dict[str, Any]:
        """What is known, as fields of a calibration."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value not in ("", None)}


def read_runs(
    source: Table, *, name: str | None = None, weight_decay_is_choice: bool = False, **how: Unpack[Reading]
) -> pd.DataFrame:
    """The run table of a source, checked: all columns, numbers as floats.

    `where` and `max_epochs` choose rows; rows that they leave out need not be usable, and with `drop_missing`
    neither do runs that crashed. `columns` and `pattern` say where our columns are; obvious names are
    guessed. `weight_decay` is that of all runs whose table does not say it; where all say it, giving it is a
    mistake, unless the caller goes on to choose by it. `name` is what messages call a DataFrame.
    `warnings_of` has what was noticed on the way.
    """
    limit, decay, condition = how.get("max_epochs"), how.get("weight_decay"), how.get("where")
    limit = None if limit is None else number(limit, "max_epochs", examples="64")
    decay = None if decay is None else number(decay, "weight_decay", positive=False)
    where = None if condition is None else RowFilter(condition)
    raw = with_our_columns(_loaded(source, name or "the run table"), how.get("columns"), how.get("pattern"))
    said = raw.cells.get("weight_decay")
    if (
        decay is not None
        and not weight_decay_is_choice
        and said is not None
        and not said.map(is_missing).any()
    ):
        raise InvalidInput(
            f"{decay:g} was given for runs that do not say theirs, but all of {raw.name} do; "
            f"leave it out, or choose runs with ‹where› 'weight_decay == {decay:g}'.",
            field="weight_decay",
        )
    table, problems = read_numbers(raw, decay)
    chosen = (
        Chosen(np.ones(len(table), dtype=bool), set())
        if where is None
        else Chosen(where(table), where.columns)
    )
    if limit is not None:
        chosen = Chosen(chosen.rows & (table["epochs"].to_numpy() <= limit), chosen.columns | {*TOKENS})
    used, left_out = check_rows(raw, table, problems, chosen, how.get("drop_missing", False))
    if not used.any():
        reasons = [] if limit is None else [f"‹max_epochs› {limit:g}"]
        reasons += [] if where is None else [f"‹where› {where.text!r}"]
        why = " and ".join(reasons + ["‹drop_missing›"] * bool(left_out))
        raise InvalidInput(f"no run of {raw.name} is left after {why}; a wider condition would do.")
    table = table[used].reset_index(drop=True)
    found = [*raw.warnings, *left_out, *sanity_checks(table, raw.taken)]
    table.attrs[_WARNINGS] = [list(warning) for warning in found]
    return table


def _loaded(source: Table, name: str) -> RawTable:
    raw = load(source, name)
    names = raw.cells.columns
    twice = sorted({str(column) for column in names[names.duplicated()]})
    if twice:
        raise InvalidInput(
            f"{raw.name} has the column {twice[0]!r} more than once; rename or drop one of them."
        )
    if not len(raw.cells):
        raise InvalidInput(f"{raw.name} has no runs; it needs rows with the columns {', '.join(COLUMNS)}.")
    return dataclasses.replace(raw, cells=raw.cells.reset_index(drop=True))


def warnings_of(table: pd.DataFrame, name: Callable[[str], str] = str) -> list[TableWarning]:
    """What was noticed when a table was read: (code, text, whether it is a warning); nothing for a table that
    was not read. `name` says what to call the options that a text mentions.
    """
    found = [TableWarning(*warning) for warning in table.attrs.get(_WARNINGS, ())]
    return [warning._replace(text=named(warning.text, name)) for warning in found]


def with_table_warnings(table: pd.DataFrame, calibration: Calibration) -> Calibration:
    """The calibration with what was noticed about the table that it was fitted to; plans repeat warnings."""
    found = warnings_of(table)
    if not found:
        return calibration
    doubts = [f"{warning.text}." for warning in found if warning.warns]
    settings = tuple(
        setting.model_copy(update={"warnings": [*setting.warnings, *doubts]})
        for setting in calibration.settings
    )
    said = [warning._asdict() for warning in found]
    return calibration.model_copy(update={"table_notes": said, "settings": settings})


# -- row filters as people type them

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<op><=|>=|==|!=|<>|=|<|>) | (?P<mark>[(),]) | `(?P<column>[^`]+)`
    | (?P<quoted>"[^"]*"|'[^']*') | (?P<word>[^\s()<>=!,`"']+)
    )""",
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LONGEST, _DEEPEST = 2000, 40
_EXAMPLE = "epochs <= 64 and kind == base"

_Rows = Callable[[pd.DataFrame], np.ndarray]  # which rows of a table are kept


class _Token(NamedTuple):
    kind: str
    text: str


class RowFilter:
    """A filter such as `epochs <= 64 and (kind == base or run in (a, b))`, parsed without running any code:
    `columns` are those it refers to, calling it gives the rows of a table that it keeps as booleans.

        filter   :=  and-terms joined by `or`;  and-terms are factors joined by `and`
        factor   :=  `not` factor  |  ( filter )  |  comparison
        comparison := column  == != < <= > >=  value   |   column [`not`] `in` ( value, value, ... )

    Columns are plain words (or `in backticks`); values are numbers (`64`, `250M`), words or "quoted text".
    Text can be compared for equality only. Nothing is evaluated as Python, so a filter from a stranger can
    select rows and no more.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(f"must be a condition such as {_EXAMPLE!r}; got {text!r}.", field="where")
        if len(text) > _LONGEST:
            raise InvalidInput(f"must be at most {_LONGEST} characters long; got {len(text)}.", field="where")
        self.text = " ".join(text.split())
        self.columns: set[str] = set()
        self._tokens, self._at, self._depth = list(_tokens(text)), 0, 0
        self._rows = self._filter()
        if self._tokens[self._at].kind != "end":
            self._fail(f"{self._tokens[self._at].text!r} is unexpected")

    def __call__(self, table: pd.DataFrame) -> np.ndarray:
        missing = [name for name in sorted(self.columns) if name not in table.columns]
        if missing:
            raise InvalidInput(
                f"refers to column {missing[0]!r}; the table has {', '.join(map(str, table.columns))}.",
                field="where",
            )
        return self._rows(table)

    # Each method reads its part of the tokens and returns a function from a table to booleans.

    def _filter(self) -> _Rows:
        return self._joined("or", np.logical_or, lambda: self._joined("and", np.logical_and, self._factor))

    def _joined(self, word: str, join: np.ufunc, part: Callable[[], _Rows]) -> _Rows:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return lambda table: join.reduce([part(table) for part in parts])

    def _factor(self) -> _Rows:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail("it is nested too deeply")
        if self._take("not"):
            inner = self._factor()
            found: _Rows = lambda table: ~inner(table)  # noqa: E731
        elif self._take("("):
            found = self._filter()
            self._close()
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> _Rows:
        name = self._next("a column", "word", "column").text
        self.columns.add(name)
        negated = self._take("not")
        if self._take("in"):
            if not self._take("("):
                self._fail("'in' needs values in brackets")
            values = [self._value()]
            while self._take(","):
                values.append(self._value())
            self._close()
            return lambda table: (
                negated ^ np.logical_or.reduce([_compare(table[name], name, "==", v) for v in values])
            )
        if negated:
            self._fail("'not' inside a comparison goes with 'in' only")
        sign = self._next("a comparison sign such as <=", "op").text
        value = self._value()
        return lambda table: _compare(table[name], name, sign, value)

    def _value(self) -> str:
        token = self._next("a value", "word", "quoted")
        return token.text[1:-1] if token.kind == "quoted" else token.text

    def _take(self, text: str) -> bool:
        """Whether this word or mark comes next; it is read then."""
        token = self._tokens[self._at]
        found = token.kind in ("word", "mark") and token.text.lower() == text
        self._at += found
        return found

    def _close(self) -> None:
        if not self._take(")"):
            self._fail("a bracket is not closed")

    def _next(self, wanted: str, *kinds: str) -> _Token:
        token = self._tokens[self._at]
        if token.kind not in kinds:
            self._fail(f"{wanted} is missing" + (f" before {token.text!r}" if token.text else " at the end"))
        self._at += 1
        return token

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidInput(
            f"cannot be read, {reason}: {self.text!r}; write it like {_EXAMPLE!r}.", field="where"
        )


def _tokens(text: str) -> Iterator[_Token]:
    position, text = 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidInput(
                f"cannot be read at {text[position:].strip()[:20]!r}; write it like {_EXAMPLE!r}.",
                field="where",
            )
        position = match.end()
        kind = str(match.lastgroup)
        yield _Token(kind, match[kind])
    yield _Token("end", "")


def _compare(column: pd.Series, name: str, sign: str, value: str) -> np.ndarray:
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        try:
            wanted = {"true": 1.0, "false": 0.0}.get(value.lower())
            wanted = count(value, name, positive=False) if wanted is None else wanted
        except InvalidInput:
            raise InvalidInput(
                f"compares the numeric column {name!r} with {value!r}; a number such as 64 would do.",
                field="where",
            ) from None
        numbers = column.to_numpy(dtype=float, na_value=np.nan)
        return np.asarray(_COMPARE[sign](numbers, wanted), dtype=bool)
    if sign not in ("==", "=", "!=", "<>"):
        raise InvalidInput(
            f"orders the text column {name!r} with {sign}; text can only be compared with == and !=.",
            field="where",
        )
    texts = column.map(lambda cell: "" if cell is None or cell is pd.NA else str(cell)).to_numpy(dtype=object)
    return np.asarray(_COMPARE[sign](texts, value), dtype=bool)
