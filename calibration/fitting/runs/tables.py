"""Run tables: one row per finished run, read from wherever people have them, and checked before anything is
fitted.

    run, params, unique_tokens, epochs, tokens, weight_decay, loss      (other columns are kept as they are)

Two of unique_tokens, tokens and epochs are enough. Counts may be written as people say them ("250M"). All
bad cells are reported together, by row and column; mistaken units are named with their cure. The source is
only read. `formats` has the sources, `columns` and `run_names` say which column is which, `checks` and
`sanity_checks` what is wrong.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict, Unpack

import pandas as pd

from calibration.fitting.runs import columns as our_columns
from calibration.fitting.runs.checks import COLUMNS, Problem, RawTable, RunTableError, check_table
from calibration.fitting.runs.filters import RowChoice, RowFilter
from calibration.fitting.runs.formats import Table, load
from calibration.fitting.runs.run_names import with_settings
from calibration.fitting.runs.sanity_checks import sanity_checks
from calibration.fitting.runs.warnings import with_warnings
from planner.inputs import InvalidInput, number

__all__ = ["COLUMNS", "Problem", "Reading", "RunTableError", "Table", "read_runs"]


class Reading(TypedDict, total=False):
    """How a table is read, and which of its rows are used."""

    max_epochs: Any  # leave out runs beyond so many
    where: str | None  # a condition, see `filters`
    weight_decay: Any  # of runs whose table does not say it
    columns: our_columns.Columns | None  # "params=config.n_params,loss=summary/val_loss", see `columns`
    pattern: str | None  # "{params}_{tokens}_{epochs}ep", see `run_names`
    drop_missing: bool  # leave out runs that came to no end or do not say what is needed


def read_runs(
    source: Table, *, name: str | None = None, weight_decay_is_choice: bool = False, **how: Unpack[Reading]
) -> pd.DataFrame:
    """The run table of a source, checked: all columns, numbers as floats.

    `where` and `max_epochs` choose rows; rows that they leave out need not be usable, and with `drop_missing`
    neither do runs that crashed. `columns` and `pattern` say where our columns are; obvious names are
    guessed. `weight_decay` is that of all runs whose table does not say it; where all say it, giving it is a
    mistake, unless the caller goes on to choose by it. `name` is what messages call a DataFrame.
    `warnings.warnings_of` has what was noticed on the way.
    """
    limit, decay, where = how.get("max_epochs"), how.get("weight_decay"), how.get("where")
    limit = None if limit is None else number(limit, "max_epochs", examples="64")
    decay = None if decay is None else number(decay, "weight_decay", positive=False)
    choice = RowChoice(limit, None if where is None else RowFilter(where))
    # Our columns: as the caller says, from the names of the runs, and by obvious names.
    raw = our_columns.with_named_columns(_loaded(source, name or "the run table"), how.get("columns"))
    raw = with_settings(our_columns.with_guessed_columns(raw, ["run"]), how.get("pattern"))
    raw = our_columns.with_guessed_columns(raw)
    if decay is not None and not weight_decay_is_choice and raw.says_weight_decay():
        raise InvalidInput(
            f"{decay:g} was given for runs that do not say theirs, but all of {raw.name} do; "
            f"leave it out, or choose runs with ‹where› 'weight_decay == {decay:g}'.",
            field="weight_decay",
        )
    table, said = check_table(raw, choice, decay, how.get("drop_missing", False))
    return with_warnings(table, [*raw.warnings, *said, *sanity_checks(table, raw.taken)])


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
