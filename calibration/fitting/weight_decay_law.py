r"""The weight-decay law: one law for all weight decays, from runs at several.

AdamW's timescale in tokens, batch tokens / (learning rate x weight decay), is a column of the table; the
forms of `planner.laws` see it next to size, data and epochs, and are fitted to all weight decays at
once, base law included, by the solver that fits all other forms.

Forms compete on every table anew, since what describes tiny models best is not what describes large ones. A
form is judged by how well it predicts runs that it was not fitted on: those at each weight decay inside the
range in turn, and those of the largest models. The form with the least geometric mean of the two errors
becomes the default, and its error at left-out weight decays is what plans take for the law's own.

Intervals are those of the bootstrap by pairs (Efron 1979) over cells, which are all runs of one size, data
and epochs, and of the residuals of the fit, which are what a form is off by at a new configuration (model
discrepancy, Kennedy & O'Hagan 2001). `studies/dolma` has their coverage beyond the sizes fitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.evaluate.summary import fitted_range, kept_draws
from calibration.fitting.huber import Fits, FormFit, draws_of, fit_forms, refit
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.runs.tables import Origin
from calibration.fitting.solver import Array
from planner.calibration import (
    Calibration,
    Draws,
    FittedLaw,
    PredictiveError,
    Recipe,
    Setting,
    WeightDecayLaw,
)
from planner.inputs import InvalidInput
from planner.laws import BASE_FORM, TIMESCALE, WEIGHT_DECAY_FORMS

DELTA = 0.01  # Huber's threshold on ln(loss): about the noise between seeds of small runs
FEWEST_DECAYS = 3
_LARGEST = 0.05  # share of the runs that the largest models have at least
_LEAST_IRREDUCIBLE = 0.1  # of the lowest loss: below, the runs do not say where it ends
_FOLDS = 10  # of cells
_STARTS = 24  # of each form: nearly all of them end in the same place
_LEAST_SHARE = 0.05  # of a loss, above the irreducible one


@dataclass(frozen=True)
class LeftOutError:
    """How well a form predicts the runs at one weight decay that it was not fitted on."""

    weight_decay: float
    runs: int
    error: float  # root mean square of ln(predicted / observed)
    nats: float  # root mean square of predicted - observed


def with_timescale(table: pd.DataFrame, recipe: Recipe | None) -> pd.DataFrame:
    """The table with AdamW's timescale in tokens, from its own columns or from the recipe of all runs."""
    decay = np.maximum(table["weight_decay"].to_numpy(dtype=float), 1e-12)
    rate, batch = (_known(table, recipe, name) for name in ("learning_rate", "batch_tokens"))
    return table.assign(**{TIMESCALE: batch / (rate * decay)})


def _known(table: pd.DataFrame, recipe: Recipe | None, name: str) -> Array:
    """A column of the table; where it says nothing, what the recipe has."""
    column = table[name].to_numpy(dtype=float) if name in table else np.full(len(table), np.nan)
    if recipe is not None:
        column = np.where(np.isnan(column), getattr(recipe, name), column)
    missing = np.flatnonzero(~(column > 0))
    if len(missing):
        of = "the runs" if len(missing) == len(table) else f"every run, and {len(missing)} have none"
        raise InvalidInput(
            f"a weight-decay law needs the {name.replace('_', ' ')} of {of}: a column {name} of the table, "
            f"or ‹{name}›, would do."
        )
    return column


def fit_weight_decay_law(
    table: pd.DataFrame,
    recipe: Recipe,
    *,
    forms: Iterable[str] = WEIGHT_DECAY_FORMS,
    bootstrap: int = 200,
    seed: int = 0,
    judged: Array | None = None,
) -> tuple[str, WeightDecayLaw]:
    """The form that predicts best what it was not fitted on, and all forms fitted to runs at three weight
    decays or more; `judged` says which rows the forms are judged on.
    """
    table = with_timescale(table, recipe).reset_index(drop=True)
    fits = fit_over_weight_decays(table, forms)
    tried = {form: left_out_errors(fits, table, form, judged) for form in fits.forms if form != BASE_FORM}
    largest = {form: largest_size_error(fits, table, form) for form in tried}
    best = min(tried, key=lambda form: np.mean([one.error for one in tried[form]]) * (largest[form] or 1.0))
    draws = _draws(fits, table, tuple(tried), bootstrap, seed) if bootstrap else None
    return best, WeightDecayLaw(
        weight_decays=_ends(table["weight_decay"]),
        timescale_epochs=_ends(np.exp(fits.runs.ln_timescale)),
        fitted_on=fitted_range(table).model_copy(update={"flops": None, "cells": trained_cells(table)}),
        laws={form: _fitted(fits, form, found, largest[form], table) for form, found in tried.items()},
        draws=draws,
        method={
            "objective": "Huber loss of ln(predicted) - ln(observed), all weight decays at once",
            "delta": fits.delta,
            "judged_by": "runs at each weight decay inside the range, and of the largest models, by the fit "
            "to all others",
        },
    )


def weight_decay_calibration(
    table: pd.DataFrame,
    recipe: Recipe,
    *,
    origin: Origin | None = None,
    name: str = "weight-decay-law",
    source: str = "",
    **how: Any,
) -> Calibration:
    """A calibration with nothing but a weight-decay law; `how` is as in `fit_weight_decay_law`."""
    best, law = fit_weight_decay_law(table, recipe, **how)
    return Calibration(
        name=name,
        source=source,
        **{**(origin or Origin()).facts(), "recipe": recipe},
        default_law=best,
        weight_decay_law=law,
        settings=tuple(
            law.setting(float(decay), recipe.timescale_tokens(float(decay)))
            for decay in sorted(table["weight_decay"].unique())
        ),
    )


def with_weight_decay_law(known: Calibration, table: pd.DataFrame, recipe: Recipe, **how: Any) -> Calibration:
    """A calibration of these runs whose plans use a weight-decay law and whose settings keep their own laws.

    Plans use an average of forms where the settings have weights for one, so they have none any more.
    """
    best, law = fit_weight_decay_law(table, recipe, **how)
    settings = []
    for setting in known.settings:
        at_decay = law.setting(setting.weight_decay, recipe.timescale_tokens(setting.weight_decay))
        draws = setting.draws or at_decay.draws
        if setting.draws is not None and at_decay.draws is not None:
            draws = setting.draws.model_copy(update={"laws": setting.draws.laws | at_decay.draws.laws})
        update = {"laws": {**setting.laws, **at_decay.laws}, "draws": draws, "law_weights": {}}
        settings.append(Setting.model_validate(setting.model_copy(update=update).model_dump()))
    found = known.model_copy(update={"recipe": recipe, "weight_decay_law": law, "default_law": best})
    return found.changed(settings=tuple(settings))


def fit_over_weight_decays(table: pd.DataFrame, forms: Iterable[str] = WEIGHT_DECAY_FORMS) -> Fits:
    """The forms fitted to a table with timescales; one that did not converge is no result."""
    decays = sorted(table["weight_decay"].unique())
    if len(decays) < FEWEST_DECAYS:
        known = ", ".join(f"{decay:g}" for decay in decays)
        raise InvalidInput(
            f"a weight-decay law needs runs at {FEWEST_DECAYS} weight decays or more; these have {known}."
        )
    runs = Runs.of(table)
    fits = fit_forms(runs, forms, delta=DELTA, joint=True, most_starts=_STARTS)
    problems = {form: _problem(fit, runs) for form, fit in fits.forms.items()}
    good = {form: fit for form, fit in fits.forms.items() if form == BASE_FORM or not problems[form]}
    if len(good) < 2:
        reasons = "; ".join(f"{form}: {problem}" for form, problem in problems.items() if problem)
        raise InvalidInput(f"the runs do not determine a law for every weight decay: {reasons}.")
    return replace(fits, forms=good)


def _problem(fit: FormFit, runs: Runs) -> str | None:
    """Why a fit is no result. Where the irreducible loss runs to zero, the base law is not determined."""
    if not fit.problem and fit.parameters["E"] < _LEAST_IRREDUCIBLE * runs.scale:
        return (
            f"the irreducible loss ran to {fit.parameters['E']:.2g}: larger models or more data would show it"
        )
    return fit.problem


def left_out_errors(
    fits: Fits, table: pd.DataFrame, form: str, judged: Array | None = None, *, ends: bool = False
) -> list[LeftOutError]:
    """The form's error at each weight decay inside the range, fitted without it; with `ends`, at all."""
    decays = np.unique(table["weight_decay"].to_numpy(dtype=float))
    decays = decays if ends else decays[1:-1]
    column = table["weight_decay"].to_numpy(dtype=float)
    weights = (column[None] != decays[:, None]).astype(float)
    predicted = _predicted(fits, form, weights)
    found = []
    for place, decay in enumerate(decays):
        rows = (column == decay) & (True if judged is None else judged)
        if not rows.any():
            continue
        residual = (predicted[place] - fits.runs.ln_loss)[rows]
        nats = np.exp(predicted[place][rows]) - fits.runs.loss[rows]
        found.append(LeftOutError(float(decay), int(rows.sum()), _rms(residual), _rms(nats)))
    return found


def largest_size_error(fits: Fits, table: pd.DataFrame, form: str) -> float | None:
    """The form's error (of ln(loss)) for the largest models, fitted to the others; None where all are of one
    size, or the others do not determine it.
    """
    sizes = np.unique(table["params"].to_numpy(dtype=float))[::-1]
    column = table["params"].to_numpy(dtype=float)
    large = next(
        column >= least for least in sizes if np.mean(column >= least) >= _LARGEST or least == sizes[-1]
    )
    if large.all():
        return None
    residual = (_predicted(fits, form, (~large).astype(float)[None])[0] - fits.runs.ln_loss)[large]
    return _rms(residual) if np.isfinite(residual).all() else None


def left_out_cells(fits: Fits, table: pd.DataFrame, form: str, seed: int = 0) -> Array:
    """ln(predicted / observed) of every run by the form fitted without its cell, in ten folds of cells."""
    cells = _cells(table)
    fold = (np.random.default_rng(seed).permutation(cells.max() + 1) % _FOLDS)[cells]
    predicted = _predicted(fits, form, (fold[None] != np.arange(_FOLDS)[:, None]).astype(float))
    return np.asarray(predicted[fold, np.arange(len(fold))] - fits.runs.ln_loss)


def trained_cells(table: pd.DataFrame) -> list[tuple[float, float, float]]:
    """Each size with each data that it was trained on, and the most epochs over it."""
    most = table.groupby(["params", "unique_tokens"], as_index=False)["epochs"].max()
    return [(float(n), float(u), float(epochs)) for n, u, epochs in most.itertuples(index=False)]


def _cells(table: pd.DataFrame) -> Array:
    """The number of each run's cell: one size, data and epochs."""
    return table.groupby(["params", "unique_tokens", "epochs"]).ngroup().to_numpy()


def _only(fits: Fits, form: str) -> Fits:
    return replace(fits, forms={name: fits.forms[name] for name in (BASE_FORM, form)})


def _predicted(fits: Fits, form: str, weights: Array) -> Array:
    """ln(loss) of all runs by a form fitted with these weights, (problems, runs)."""
    return fits.log_prediction(
        form, refit(_only(fits, form), weights=weights, max_iterations=200)[form].theta
    )


def _draws(fits: Fits, table: pd.DataFrame, forms: tuple[str, ...], count: int, seed: int) -> Draws:
    """Refits to cells drawn with replacement, and what each takes its form to be off by: residuals, drawn
    likewise, over the share of the loss above the irreducible one.
    """
    cells, rng = _cells(table), np.random.default_rng(seed)
    some = int(cells.max()) + 1
    weights = rng.multinomial(some, np.full(some, 1 / some), size=count).astype(float)[:, cells]
    refits = {form: refit(_only(fits, form), weights=weights)[form] for form in forms}
    found = draws_of(fits, refits, f"refits to cells drawn with replacement, seed {seed}")
    discrepancy = {}
    for form, drawn in found.laws.items():
        fit, runs = fits.forms[form], fits.runs
        above = np.clip(1 - fit.parameters["E"] / runs.loss, _LEAST_SHARE, 1.0)
        spare = len(runs) / max(len(runs) - len(fit.theta), 1)
        residual = (runs.ln_loss - fits.log_prediction(form, fit.theta)) * np.sqrt(spare)
        discrepancy[form] = rng.choice(residual / above, size=len(drawn["E"]))
    return found.changed(discrepancy=kept_draws(discrepancy))


def _fitted(
    fits: Fits, form: str, tried: list[LeftOutError], largest: float | None, table: pd.DataFrame
) -> FittedLaw:
    fit = fits.forms[form]
    predicted = fits.log_prediction(form, fit.theta)
    runs = sum(one.runs for one in tried)
    nats = _rms(np.concatenate([np.full(one.runs, one.nats) for one in tried]))
    left_out = {f"{one.weight_decay:g}": one.error for one in tried}
    extra: dict[str, Any] = {"convergence": fit.convergence(), "left_out": left_out}
    return FittedLaw(
        parameters=fit.parameters,
        metrics={
            "rms": _rms(predicted - fits.runs.ln_loss),
            "left_out": float(np.mean([one.error for one in tried])),
            "largest_size_left_out": largest,
        },
        predictive_error=PredictiveError(
            inside=nats,
            params=float(table["params"].max()),
            runs=runs,
            source="runs at weight decays that the law was not fitted on",
        ),
        **extra,
    )


def _ends(column: Any) -> tuple[float, float]:
    return float(np.min(column)), float(np.max(column))


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
