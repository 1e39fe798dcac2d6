"""`fit`: runs in, a Calibration out. They are read from a table, or from the directory of a study, which
knows where its runs come from.

By default that is a Bayesian fit (`bayes`): all forms with a prior from a shipped calibration, all weight
decays together, averaged as far as the runs bear each form out, with draws of the posterior for the
intervals. `two_phase` is the paper's own fit, for `prior="none"`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd

from calibration.fitting.bayes.hierarchical import AUTO, NO_PRIOR, bayesian_fit, fingerprints
from calibration.fitting.evaluate.summary import PAPER_DELTA
from calibration.fitting.huber import RESAMPLE, SCHEMES
from calibration.fitting.runs.formats import Table
from calibration.fitting.runs.recipes import STEPS_NEEDED, comparable_runs, with_enough_steps
from calibration.fitting.runs.tables import Origin, Reading, with_reading
from calibration.fitting.runs.tables import read_runs as read_table
from calibration.fitting.solver import Progress, silent
from calibration.fitting.two_phase import NOISE, Method, two_phase_fit
from calibration.fitting.weight_decay_law import FEWEST_DECAYS, fit_weight_decay_law, with_weight_decay_law
from calibration.studies.directory import STUDY, open_directory
from calibration.studies.directory import table as study_table
from calibration.studies.provenance import origin_of
from planner.calibration import Calibration, Recipe
from planner.hardware import vocabulary
from planner.inputs import InvalidInput, number, whole
from planner.laws import FORMS, RENAMED_FORMS, STANDARD, WEIGHT_DECAY_FORMS, check_form

NONE = NO_PRIOR  # of a law for every weight decay, too
_MOST_REFITS = 100_000
_MOST_RUNS = 220  # to which laws for every weight decay are fitted that nobody asked for: others take minutes


class Source(NamedTuple):
    """A run table, checked, and where its runs come from."""

    table: pd.DataFrame  # the runs that laws are fitted to, which can be compared with each other
    origin: Origin
    every: pd.DataFrame  # all runs, whatever their recipe


def open_source(source: Table, *, weight_decay_is_choice: bool = False, **how: Unpack[Reading]) -> Source:
    """The runs of a table, wherever it is, or of the directory of a study: the finished runs of its grid.

    Runs that laws prescribed are never part of it. The options are those of
    `calibration.fitting.runs.tables.read_runs`; where the weight decay is the caller's choice, so is the
    choice between recipes.
    """
    if not isinstance(source, str | os.PathLike) or not (Path(source) / STUDY).is_file():
        table, origin = read_table(source, weight_decay_is_choice=weight_decay_is_choice, **how), Origin()
    else:
        table, origin = _of_study(Path(source), weight_decay_is_choice=weight_decay_is_choice, **how)
    return Source(table if weight_decay_is_choice else comparable_runs(table), origin, table)


def _of_study(
    folder: Path, *, weight_decay_is_choice: bool, **how: Unpack[Reading]
) -> tuple[pd.DataFrame, Origin]:
    directory = open_directory(folder)
    found = study_table(directory)
    if not len(found):
        raise InvalidInput(
            f"the study in {folder} has no finished runs yet; `planner calibrate sweep` trains them."
        )
    name = folder.resolve().name
    table = read_table(found, name=name, weight_decay_is_choice=weight_decay_is_choice, **how)
    return table, origin_of(directory)


def read_runs(source: Table, *, weight_decay_is_choice: bool = False, **how: Unpack[Reading]) -> pd.DataFrame:
    """The run table of a file, a folder of runs, a W&B project (`wandb:entity/project`), a DataFrame or a
    study's directory, checked: seven columns, numbers as floats, those of the recipe where they are said, and
    whatever else it has.

    - `where` and `max_epochs` choose rows; rows that they leave out need not be usable.
    - `columns` says which column is which, "params=config.n_params,loss=summary/val_loss", also with another
      unit ("params=size*1e6", "loss=ln(perplexity)"); obvious names are guessed.
    - `pattern` reads settings out of the runs' names: "{params}_{tokens}_{epochs}ep".
    - `drop_missing=True` leaves out runs that crashed, diverged or do not say what is needed.
    - `weight_decay` is that of all runs whose table does not say it; where all say it, giving it is a
      mistake, unless `weight_decay_is_choice`.

    What was guessed, left out or looks wrong is in `warnings_of(table)`.
    """
    return open_source(source, weight_decay_is_choice=weight_decay_is_choice, **how).every


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
    other tables. Of runs whose recipes differ inside a weight decay the tuned envelope is fitted, and none
    that is starved of steps (`calibration.fitting.runs.recipes`). `laws` to `prior` are as in
    `calibration.fitting.two_phase.Method`, `how` as in `read_runs`.

    With runs at three weight decays or more, and a known recipe, a law for every weight decay is fitted next
    to the settings: "auto" keeps it in the file as `fitted_weight_decay_law` and leaves plans to the
    settings, the name of a form (`planner.laws.WEIGHT_DECAY_FORMS`) has plans use it, "none" fits none. It is
    fitted to the runs at the learning rate that most have; "auto" takes some of many, evenly, a name all.
    `learning_rate` and `batch_tokens` are those of runs that do not say theirs.
    """
    method = _method(laws, delta, joint, bootstrap, resample, scheme, seed, prior)
    rows = None if vocab_size is None else vocabulary(vocab_size)
    runs, origin, every = table if isinstance(table, Source) else open_source(table, **how)
    said: dict[str, Any] = {"title": title, "corpus": corpus, "model_family": model_family}
    said = {field: text for field, text in said.items() if text} | ({"vocab_size": rows} if rows else {})
    weight_decay_law = RENAMED_FORMS.get(weight_decay_law, weight_decay_law)
    if weight_decay_law not in (AUTO, NONE, *WEIGHT_DECAY_FORMS):
        known = f"must be {AUTO}, {NONE} or one of {', '.join(WEIGHT_DECAY_FORMS)}"
        raise InvalidInput(f"{known}; got {weight_decay_law!r}.", field="weight_decay_law")
    found = fit_laws(runs, replace(origin, **said), method, name=name, source=source, progress=progress)
    found = _with_recipe_of(runs, with_reading(runs, found))
    every = _of_one_learning_rate(with_enough_steps(every)[0])
    if weight_decay_law == NONE:
        return found
    if weight_decay_law in WEIGHT_DECAY_FORMS:
        recipe = _recipe(every, origin, learning_rate, batch_tokens)
        law: dict[str, Any] = {"forms": [weight_decay_law], "bootstrap": method.bootstrap, "seed": seed}
        return with_weight_decay_law(found, every, recipe, **law)
    return _with_all_weight_decay_laws(
        found, every, lambda: _recipe(every, origin, learning_rate, batch_tokens)
    )


def _of_one_learning_rate(runs: pd.DataFrame) -> pd.DataFrame:
    """Those at the learning rate that most runs have: a weight-decay law knows rates by the timescale alone,
    and runs at very different ones are not described by that (studies/dolma).
    """
    usual = _usual(runs, "learning_rate")
    return runs if usual is None else runs[runs["learning_rate"].isin([usual, np.nan])]


def _with_all_weight_decay_laws(
    found: Calibration, every: pd.DataFrame, recipe_of: Callable[[], Recipe]
) -> Calibration:
    """A calibration that keeps all weight-decay laws, which its plans do not use; or why there are none,
    arguments in ‹›.
    """
    if every["weight_decay"].nunique() < FEWEST_DECAYS:
        return found
    try:
        recipe = recipe_of()
        some = np.linspace(0, len(every) - 1, min(len(every), _MOST_RUNS)).astype(int)
        best, laws = fit_weight_decay_law(every.iloc[some], recipe, bootstrap=0)
        kept = {"law": best, "recipe": recipe.model_dump(exclude_none=True), **laws.model_dump()}
    except InvalidInput as error:
        kept = {"not_fitted": error.said(lambda name: f"‹{name}›")}
    return found.model_copy(update={"fitted_weight_decay_law": kept})


def fit_laws(
    table: pd.DataFrame,
    origin: Origin,
    method: Method,
    *,
    name: str = "my-calibration",
    source: str = "",
    progress: Progress | None = None,
) -> Calibration:
    """Fit laws to a run table, as `read_runs` gives it, for each of its weight decays: with a prior and
    averaged, or where `method` says so each form alone.

    `origin` says where the runs come from, `source` how the calibration came about; both are only recorded.
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"must be a text such as 'my-corpus'; got {name!r}.", field="name")
    if method.prior == NO_PRIOR:
        settings, kept = two_phase_fit(table, method, progress or silent)
    else:
        draws = (method.bootstrap, method.seed)
        settings, kept = bayesian_fit(
            table, method.laws, method.prior, origin.vocab_size, *draws, progress or silent
        )
    if "tuned_weight_decay" in table:
        own = table["tuned_weight_decay"]
        update = {"tuned_weight_decays": (float(own.min()), float(own.max()))}
        settings = tuple(setting.model_copy(update=update) for setting in settings)
    return Calibration(
        name=name,
        source=source,
        **origin.facts(),
        default_law=kept["recommendation"]["law"],
        settings=settings,
        **kept,
        run_fingerprints=fingerprints(table),
        steps_needed=table.attrs.get(STEPS_NEEDED),
    )


def _method(
    laws: Iterable[str],
    delta: Any,
    joint: bool,
    bootstrap: Any,
    resample: str,
    scheme: str,
    seed: Any,
    prior: str | None,
) -> Method:
    """How to fit, from what was given, checked."""
    delta = _delta(delta)
    default = (delta, joint, resample, scheme) == (PAPER_DELTA, False, RESAMPLE[0], SCHEMES[0])
    prior = (AUTO if default else NO_PRIOR) if prior is None else prior
    named = isinstance(prior, str) and bool(prior.strip())
    _require(named, f"must be {AUTO!r}, {NO_PRIOR!r} or a calibration; got {prior!r}.", "prior")
    others = "‹delta›, ‹joint›, ‹resample› and ‹scheme›"
    text = f"{prior} goes without {others}: those belong to {NO_PRIOR!r}."
    _require(default or prior == NO_PRIOR, text, "prior")
    for name, chosen, known in (("resample", resample, RESAMPLE), ("scheme", scheme, SCHEMES)):
        _require(chosen in known, f"must be one of {', '.join(known)}; got {chosen!r}.", name)
    text = f"must be 0 (no intervals) or a whole number from 2 to {_MOST_REFITS}, such as 1000; "
    possible = _is_whole(bootstrap) and bootstrap != 1 and bootstrap <= _MOST_REFITS
    _require(possible, f"{text}got {bootstrap!r}.", "bootstrap")
    _require(_is_whole(seed), f"must be a whole number of at least 0, such as 0; got {seed!r}.", "seed")
    asked = [laws] if isinstance(laws, str) else list(laws)
    _require(bool(asked), f"must name at least one of {', '.join(FORMS)}.", "laws")
    wanted = {check_form(law) for law in asked}
    forms = tuple(form for form in FORMS if form in wanted)
    return Method(forms, delta, joint, int(bootstrap), resample, scheme, int(seed), prior)


def _require(holds: bool, text: str, field: str) -> None:
    if not holds:
        raise InvalidInput(text, field=field)


def _delta(delta: Any) -> float | str:
    if delta == NOISE:
        return NOISE
    if isinstance(delta, str):
        try:
            delta = float(delta)
        except ValueError:
            raise InvalidInput(
                f"must be a number such as 0.001, or {NOISE!r}; got {delta!r}.", field="delta"
            ) from None
    return number(delta, "delta", examples="0.001")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def _recipe(runs: pd.DataFrame, origin: Origin, learning_rate: Any, batch_tokens: Any) -> Recipe:
    """What most runs have in common: as the caller, their study or their own columns say."""
    known: dict[str, Any] = dict(origin.recipe or {})
    if learning_rate is not None:
        known["learning_rate"] = number(learning_rate, "learning_rate", examples="3e-4")
    rate, batch = (_usual(runs, name) for name in ("learning_rate", "batch_tokens"))
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


def _with_recipe_of(runs: pd.DataFrame, found: Calibration) -> Calibration:
    """With the recipe that the runs say: the one that all have or, of a tuned envelope, that most have."""
    columns = ["learning_rate", "batch_tokens"]
    if found.recipe is not None or not all(name in runs and runs[name].notna().all() for name in columns):
        return found
    if len(runs[columns].drop_duplicates()) > 1 and "settings_tried" not in runs:
        return found
    return found.model_copy(update={"recipe": _recipe(runs, Origin(), None, None)})


def _usual(runs: pd.DataFrame, name: str) -> float | None:
    """The value of a column that most runs have: all of them, or of those that were tuned the most."""
    return float(runs[name].mode().iloc[0]) if name in runs and runs[name].notna().any() else None
