"""Where runs are read from: a table, or the directory of a study, which knows where its runs come from."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Unpack

import pandas as pd

from calibration.fitting.fit import fit as fit_table
from calibration.fitting.method import Method
from calibration.fitting.notes import with_notes_of
from calibration.fitting.origin import Origin
from calibration.fitting.stages import PAPER_DELTA, Progress
from calibration.fitting.tables import Reading, Table
from calibration.fitting.tables import read_runs as read_table
from calibration.studies.directory import is_study, open_directory
from calibration.studies.directory import table as study_table
from calibration.studies.provenance import origin_of
from planner.calibration_files import Calibration
from planner.errors import InvalidInput
from planner.laws import STANDARD
from planner.shapes import vocabulary


class Source(NamedTuple):
    """A run table, checked, and where its runs come from."""

    table: pd.DataFrame
    origin: Origin


def open_source(source: Table, *, weight_decay_is_choice: bool = False, **how: Unpack[Reading]) -> Source:
    """The runs of a table, wherever it is, or of the directory of a study: the finished runs of its grid.

    Runs that laws prescribed are never part of it. The options are those of
    `calibration.fitting.tables.read_runs`.
    """
    if not isinstance(source, str | os.PathLike) or not is_study(source):
        return Source(read_table(source, weight_decay_is_choice=weight_decay_is_choice, **how), Origin())
    folder = Path(source)
    directory = open_directory(folder)
    found = study_table(directory)
    if not len(found):
        raise InvalidInput(
            f"the study in {source} has no finished runs yet; `planner calibrate sweep` trains them."
        )
    name = folder.resolve().name
    table = read_table(found, name=name, weight_decay_is_choice=weight_decay_is_choice, **how)
    return Source(table, origin_of(directory))


def read_runs(source: Table, *, weight_decay_is_choice: bool = False, **how: Unpack[Reading]) -> pd.DataFrame:
    """The run table of a file, a folder of runs, a W&B project (`wandb:entity/project`), a DataFrame or a
    study's directory, checked: seven columns, numbers as floats, and whatever else it has.

    - `where` and `max_epochs` choose rows; rows that they leave out need not be usable.
    - `columns` says which column is which, "params=config.n_params,loss=summary/val_loss", also with another
      unit ("params=size*1e6", "loss=ln(perplexity)"); obvious names are guessed.
    - `pattern` reads settings out of the runs' names: "{params}_{tokens}_{epochs}ep".
    - `drop_missing=True` leaves out runs that crashed, diverged or do not say what is needed.
    - `weight_decay` is that of all runs whose table does not say it; where all say it, giving it is a
      mistake, unless `weight_decay_is_choice`.

    What was guessed, left out or looks wrong is in `notes_of(table)`.
    """
    return open_source(source, weight_decay_is_choice=weight_decay_is_choice, **how).table


def fit(
    table: Table | Source,
    *,
    laws: Iterable[str] = STANDARD,
    delta: float | str = PAPER_DELTA,
    joint: bool = False,
    bootstrap: int = 1000,
    resample: str = "runs",
    scheme: str = "residuals",
    seed: int = 0,
    prior: str | None = None,
    name: str = "my-calibration",
    source: str = "",
    title: str = "",
    corpus: str = "",
    model_family: str = "",
    vocab_size: int | None = None,
    progress: Progress | None = None,
    **how: Unpack[Reading],
) -> Calibration:
    """Fit these laws to a run table, for each of its weight decays, with metrics and held-out errors: by
    default with a prior, averaged, with draws of the posterior; with `prior="none"` each alone, as the paper
    does, with bootstrap refits.

    A table is whatever `read_runs` takes. The directory of a study is the table of its grid, and knows its
    own corpus, model family and vocabulary; `title`, `corpus`, `model_family` and `vocab_size` say it of
    other tables. `max_epochs`, `where`, `weight_decay`, `columns`, `pattern` and `drop_missing` are as in
    `read_runs`, `laws` to `prior` as in `calibration.fitting.method`.
    """
    method = Method(laws, delta, joint, bootstrap, resample, scheme, seed, prior)
    rows = None if vocab_size is None else vocabulary(vocab_size)
    given = Origin(title, corpus, model_family, rows)
    runs, origin = table if isinstance(table, Source) else open_source(table, **how)
    described = replace(origin, **given.facts())
    found = fit_table(runs, method, origin=described, name=name, source=source, progress=progress)
    return with_notes_of(runs, found)
