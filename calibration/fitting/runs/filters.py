"""Row filters as people type them: `epochs <= 64 and (kind == base or run in (a, b))`, without running any
code.

    filter   :=  and-terms joined by `or`;  and-terms are factors joined by `and`
    factor   :=  `not` factor  |  ( filter )  |  comparison
    comparison := column  == != < <= > >=  value   |   column [`not`] `in` ( value, value, ... )

Columns are plain words (or `in backticks`); values are numbers (`64`, `250M`), words or "quoted text". Text
can be compared for equality only. Nothing is evaluated as Python, so a filter from a stranger can select rows
and no more.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from planner.inputs import InvalidInput, count

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<op><=|>=|==|!=|<>|=|<|>) | (?P<mark>[(),]) | `(?P<column>[^`]+)`
    | (?P<quoted>"[^"]*"|'[^']*') | (?P<word>[^\s()<>=!,`"']+)
    )""",
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ALSO = {"=": "==", "<>": "!="}
_LONGEST, _DEEPEST = 2000, 40
_EXAMPLE = "epochs <= 64 and kind == base"

_Rows = Callable[[pd.DataFrame], np.ndarray]  # which rows of a table are kept


class RowFilter:
    """A parsed filter; `columns` are those it refers to, calling it gives the rows it keeps as booleans."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(f"must be a condition such as {_EXAMPLE!r}; got {text!r}.", field="where")
        if len(text) > _LONGEST:
            raise InvalidInput(f"must be at most {_LONGEST} characters long; got {len(text)}.", field="where")
        self.text = " ".join(text.split())
        self.columns: set[str] = set()
        self._tokens, self._at, self._depth = list(_tokens(text)), 0, 0
        self._rows = self._filter()
        kind, rest = self._tokens[self._at]
        if kind != "end":
            self._fail(f"{rest!r} is unexpected")

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
        name = self._next("a column", "word", "column")
        self.columns.add(name)
        negated = self._take("not")
        if self._take("in"):
            if not self._take("("):
                self._fail("'in' needs values in brackets")
            values = [self._next("a value", "word", "quoted")]
            while self._take(","):
                values.append(self._next("a value", "word", "quoted"))
            self._close()
            return lambda table: (
                negated ^ np.logical_or.reduce([_compare(table[name], name, "==", v) for v in values])
            )
        if negated:
            self._fail("'not' inside a comparison goes with 'in' only")
        sign = self._next("a comparison sign such as <=", "op")
        value = self._next("a value", "word", "quoted")
        return lambda table: _compare(table[name], name, sign, value)

    def _take(self, text: str) -> bool:
        """Whether this word or mark comes next; it is read then."""
        kind, word = self._tokens[self._at]
        found = kind in ("word", "mark") and word.lower() == text
        self._at += found
        return found

    def _close(self) -> None:
        if not self._take(")"):
            self._fail("a bracket is not closed")

    def _next(self, wanted: str, *kinds: str) -> str:
        kind, text = self._tokens[self._at]
        if kind not in kinds:
            self._fail(f"{wanted} is missing" + (" at the end" if kind == "end" else f" before {text!r}"))
        self._at += 1
        return text

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidInput(
            f"cannot be read, {reason}: {self.text!r}; write it like {_EXAMPLE!r}.", field="where"
        )


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each, without the quotes of values."""
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
        yield kind, match[kind][1:-1] if kind == "quoted" else _ALSO.get(match[kind], match[kind])
    yield "end", ""


def _compare(column: pd.Series, name: str, sign: str, value: str) -> np.ndarray:
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        try:
            wanted = {"true": 1.0, "false": 0.0}.get(value.lower())
            wanted = count(value, name, finite=False) if wanted is None else wanted
        except InvalidInput:
            raise InvalidInput(
                f"compares the numeric column {name!r} with {value!r}; a number such as 64 would do.",
                field="where",
            ) from None
        numbers = column.to_numpy(dtype=float, na_value=np.nan)
        return np.asarray(_COMPARE[sign](numbers, wanted), dtype=bool)
    if sign not in ("==", "!="):
        raise InvalidInput(
            f"orders the text column {name!r} with {sign}; text can only be compared with == and !=.",
            field="where",
        )
    texts = column.map(lambda cell: "" if cell is None or cell is pd.NA else str(cell)).to_numpy(dtype=object)
    return np.asarray(_COMPARE[sign](texts, value), dtype=bool)
