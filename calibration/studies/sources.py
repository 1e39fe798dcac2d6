"""Where runs are read from: a table, or the directory of a study, which knows where its runs come from."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import pandas as pd

from calibration.fitting.bayes.prior import AUTO
from calibration.fitting.bayes.prior import NO_PRIOR as NONE
from calibration.fitting.evaluate.summary import PAPER_DELTA
from calibration.fitting.fit import Method
from calibration.fitting.fit import fit as fit_table
from calibration.fitting.runs.formats import Table
from calibration.fitting.runs.tables import Origin, Reading, with_table_warnings
from calibration.fitting.runs.tables import read_runs as read_table
from calibration.fitting.solver import Progress
from calibration.fitting.weight_decay_law import FEWEST_DECAYS, fit_weight_decay_law, with_weight_decay_law
from calibration.studies.directory import is_study, open_directory
from calibration.studies.directory import table as study_table
from calibration.studies.provenance import origin_of
from planner.calibration import Calibration, Recipe
from planner.hardware import vocabulary
from planner.inputs import InvalidInput, number, whole
from planner.laws import RENAMED_FORMS, STANDARD, WEIGHT_DECAY_FORMS


class Source(NamedTuple):
    """A run table, checked, and where its runs come from."""

    table: pd.DataFrame
    origin: Origin


def open_source(source: Table, *, weight_decay_is_choice: bool = False, **how: Unpack[Reading]) -> Source:
    """The runs of a table, wherever it is, or of the directory of a study: the finished runs of its grid.

    Runs that laws prescribed are never part of it. The options are those of
    `calibration.fitting.runs.tables.read_runs`.
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

    What was guessed, left out or looks wrong is in `warnings_of(table)`.
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
    weight_decay_law: str = AUTO,
    learning_rate: Any = None,
    batch_tokens: Any = None,
    progress: Progress | None = None,
    **how: Unpack[Reading],
) -> Calibration:
    """Fit these laws to a run table, for each of its weight decays, with metrics and held-out errors: by
    default with a prior, averaged, with draws of the posterior; with `prior="none"` each alone, as the paper
    does, with bootstrap refits.

    A table is whatever `read_runs` takes. The directory of a study is the table of its grid, and knows its
    own corpus, model family and vocabulary; `title`, `corpus`, `model_family` and `vocab_size` say it of
    other tables. `max_epochs`, `where`, `weight_decay`, `columns`, `pattern` and `drop_missing` are as in
    `read_runs`, `laws` to `prior` as in `calibration.fitting.fit.Method`.

    With runs at three weight decays or more, and a known recipe, a law for every weight decay is fitted next
    to the settings: "auto" keeps it in the file as `fitted_weight_decay_law` and leaves plans to the
    settings, the name of a form (`planner.laws.WEIGHT_DECAY_FORMS`) has plans use it, "none" fits none.
    `learning_rate` and `batch_tokens` are those of runs that do not say theirs.
    """
    method = Method(laws, delta, joint, bootstrap, resample, scheme, seed, prior)
    rows = None if vocab_size is None else vocabulary(vocab_size)
    runs, origin = table if isinstance(table, Source) else open_source(table, **how)
    described = replace(origin, **Origin(title, corpus, model_family, rows).facts())
    weight_decay_law = RENAMED_FORMS.get(weight_decay_law, weight_decay_law)
    if weight_decay_law not in (AUTO, NONE, *WEIGHT_DECAY_FORMS):
        known = f"must be {AUTO}, {NONE} or one of {', '.join(WEIGHT_DECAY_FORMS)}"
        raise InvalidInput(f"{known}; got {weight_decay_law!r}.", field="weight_decay_law")
    found = fit_table(runs, method, origin=described, name=name, source=source, progress=progress)
    found = with_table_warnings(runs, found)
    if weight_decay_law in WEIGHT_DECAY_FORMS:
        recipe = _recipe(runs, origin, learning_rate, batch_tokens)
        law: dict[str, Any] = {"forms": [weight_decay_law], "bootstrap": method.bootstrap, "seed": seed}
        return with_weight_decay_law(found, runs, recipe, **law)
    if weight_decay_law == NONE or runs["weight_decay"].nunique() < FEWEST_DECAYS:
        return found
    try:  # all weight-decay laws, for the file; or why there are none, arguments in ‹›
        recipe = _recipe(runs, origin, learning_rate, batch_tokens)
        best, every = fit_weight_decay_law(runs, recipe, bootstrap=0)
        kept = {"law": best, "recipe": recipe.model_dump(exclude_none=True), **every.model_dump()}
    except InvalidInput as error:
        kept = {"not_fitted": error.said(lambda name: f"‹{name}›")}
    return found.model_copy(update={"fitted_weight_decay_law": kept})


def _recipe(runs: pd.DataFrame, origin: Origin, learning_rate: Any, batch_tokens: Any) -> Recipe:
    """What the runs have in common: as the caller, their study or their own columns say."""
    known: dict[str, Any] = dict(origin.recipe or {})
    if learning_rate is not None:
        known["learning_rate"] = number(learning_rate, "learning_rate", examples="3e-4")
    rate, batch = (_same_in_all(runs, name) for name in ("learning_rate", "batch_tokens"))
    if rate is not None:
        known.setdefault("learning_rate", rate)
    if batch_tokens is not None:
        batch = whole(batch_tokens, "batch_tokens", example="512k")
    if batch is not None and (batch_tokens is not None or "sequence_length" not in known):
        # Laws know the product only. A length that nobody said is what a run file would begin with.
        length = math.gcd(round(batch), known.get("sequence_length", 2048))
        known |= {"batch_sequences": round(batch) // length, "sequence_length": length}
    for name, needed in (("learning_rate", "learning_rate"), ("batch_tokens", "sequence_length")):
        if needed not in known:
            raise InvalidInput(
                f"a weight-decay law needs the {name.replace('_', ' ')} of the runs: a column {name} of the "
                f"table, or ‹{name}›, would do."
            )
    return Recipe(**known)


def _same_in_all(runs: pd.DataFrame, name: str) -> float | None:
    """The one value of a column; None where the runs have several or none."""
    values = set(runs[name]) if name in runs else set()
    return float(values.pop()) if len(values) == 1 else None
