"""What is worth saying about a run table that can be read: how it was read, and what looks wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from planner.calibration_files import Calibration
from planner.errors import named

_KEY = "notes"  # among the attributes of a table
_FIELD = "table_notes"  # of a calibration


class Note(NamedTuple):
    """One sentence about a table. `code` stays the same whatever the words; a warning doubts the runs."""

    code: str
    text: str
    warns: bool = False


def with_notes(table: pd.DataFrame, notes: Sequence[Note]) -> pd.DataFrame:
    """The table, which keeps these notes: its rows and columns are its own."""
    table.attrs[_KEY] = [list(note) for note in notes]
    return table


def notes_of(table: pd.DataFrame, name: Callable[[str], str] = str) -> list[Note]:
    """What was noticed when a table was read: (code, text, whether it is a warning); nothing for a table that
    was not read. `name` says what to call the options that a text mentions.
    """
    found = [Note(*note) for note in table.attrs.get(_KEY, ())]
    return [note._replace(text=named(note.text, name)) for note in found]


def with_notes_of(table: pd.DataFrame, calibration: Calibration) -> Calibration:
    """The calibration with what was noticed about the table that it was fitted to; plans repeat warnings."""
    notes = notes_of(table)
    if not notes:
        return calibration
    doubts = [f"{note.text}." for note in notes if note.warns]
    settings = tuple(
        setting.model_copy(update={"warnings": [*setting.warnings, *doubts]})
        for setting in calibration.settings
    )
    return calibration.model_copy(update={_FIELD: [note._asdict() for note in notes], "settings": settings})
