"""What is worth saying about a run table that can be read: how it was read, and what looks wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from planner.calibration import Calibration
from planner.inputs import named

_KEY = "notes"  # among the attributes of a table
_FIELD = "table_notes"  # of a calibration


class TableWarning(NamedTuple):
    """One sentence about a table. `code` stays the same whatever the words; a warning doubts the runs."""

    code: str
    text: str
    warns: bool = False


def with_warnings(table: pd.DataFrame, found: Sequence[TableWarning]) -> pd.DataFrame:
    """The table, which keeps these warnings: its rows and columns are its own."""
    table.attrs[_KEY] = [list(warning) for warning in found]
    return table


def warnings_of(table: pd.DataFrame, name: Callable[[str], str] = str) -> list[TableWarning]:
    """What was noticed when a table was read: (code, text, whether it is a warning); nothing for a table that
    was not read. `name` says what to call the options that a text mentions.
    """
    found = [TableWarning(*warning) for warning in table.attrs.get(_KEY, ())]
    return [warning._replace(text=named(warning.text, name)) for warning in found]


notes_of = warnings_of  # the name that earlier releases have


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
    return calibration.model_copy(
        update={_FIELD: [warning._asdict() for warning in found], "settings": settings}
    )
