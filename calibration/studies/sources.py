"""Where runs are read from: a table, or the directory of a study, which knows where its runs come from."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from calibration.fitting.fit import fit as fit_table
from calibration.fitting.method import Method
from calibration.fitting.origin import Origin
from calibration.fitting.stages import PAPER_DELTA, Progress
from calibration.fitting.tables import Table
from calibration.fitting.tables import read_runs as read_table
from calibration.studies.directory import is_study, open_directory
from calibration.studies.directory import table as study_table
from calibration.studies.provenance import origin_of
from planner.calibration_files import Calibration
from planner.errors import InvalidInput
from planner.laws import STANDARD
from planner.units import whole


class Source(NamedTuple):
    """A run table, checked, and where its runs come from."""

    table: pd.DataFrame
    origin: Origin


def open_source(
    source: Table,
    *,
    max_epochs: Any = None,
    where: str | None = None,
    weight_decay: Any = None,
    weight_decay_is_choice: bool = False,
) -> Source:
    """The runs of a CSV or Parquet file, a DataFrame, or the directory of a study: the finished runs of its
    grid.

    Runs that laws prescribed are never part of it. The options are those of
    `calibration.fitting.tables.read_runs`.
    """
    options: dict[str, Any] = {"max_epochs": max_epochs, "where": where, "weight_decay": weight_decay}
    options["weight_decay_is_choice"] = weight_decay_is_choice
    if not isinstance(source, str | os.PathLike) or not Path(source).is_dir():
        return Source(read_table(source, **options), Origin())
    folder = Path(source)
    if not is_study(folder):
        raise InvalidInput(
            f"must be a CSV or Parquet file or the directory of a study; "
            f"{str(source)!r} is a directory without one.",
            field="runs",
        )
    directory = open_directory(folder)
    found = study_table(directory)
    if not len(found):
        raise InvalidInput(
            f"the study in {source} has no finished runs yet; `planner calibrate sweep` trains them."
        )
    return Source(read_table(found, name=folder.resolve().name, **options), origin_of(directory))


def read_runs(
    source: Table,
    *,
    max_epochs: Any = None,
    where: str | None = None,
    weight_decay: Any = None,
    weight_decay_is_choice: bool = False,
) -> pd.DataFrame:
    """The run table of a file, a DataFrame or a study's directory, checked: seven columns, numbers as floats.

    `where` and `max_epochs` choose rows; rows that they leave out need not be usable. `weight_decay` is that
    of all runs whose table does not say it; where all say it, giving it is a mistake, unless
    `weight_decay_is_choice`.
    """
    return open_source(
        source,
        max_epochs=max_epochs,
        where=where,
        weight_decay=weight_decay,
        weight_decay_is_choice=weight_decay_is_choice,
    ).table


def fit(
    table: Table,
    *,
    laws: Iterable[str] = STANDARD,
    delta: float | str = PAPER_DELTA,
    joint: bool = False,
    bootstrap: int = 1000,
    resample: str = "runs",
    scheme: str = "residuals",
    seed: int = 0,
    name: str = "my-calibration",
    source: str = "",
    title: str = "",
    corpus: str = "",
    model_family: str = "",
    vocab_size: int | None = None,
    max_epochs: Any = None,
    where: str | None = None,
    weight_decay: Any = None,
    progress: Progress | None = None,
) -> Calibration:
    """Fit these laws to a run table, per weight decay, with metrics, held-out errors and a bootstrap
    ensemble.

    The directory of a study is the table of its grid, and knows its own corpus, model family and vocabulary;
    `title`, `corpus`, `model_family` and `vocab_size` say it of other tables. `max_epochs`, `where` and
    `weight_decay` are as in `read_runs`, `laws` to `seed` as in `calibration.fitting.method`.
    """
    method = Method(laws, delta, joint, bootstrap, resample, scheme, seed)
    vocabulary = None if vocab_size is None else whole(vocab_size, "vocab_size", example="32100")
    given = Origin(title, corpus, model_family, vocabulary)
    runs, origin = open_source(table, max_epochs=max_epochs, where=where, weight_decay=weight_decay)
    described = replace(origin, **given.facts())
    return fit_table(runs, method, origin=described, name=name, source=source, progress=progress)
