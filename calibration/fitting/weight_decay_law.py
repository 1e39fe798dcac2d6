r"""The weight-decay law: one law for all weight decays, from runs at several.

AdamW's timescale in tokens, batch tokens / (learning rate x weight decay), is a column of the table; the
forms of `planner.laws` see it next to size, data and epochs, and are fitted to all weight decays at
once, base law included, by the solver that fits all other forms. A form is judged by how well it predicts the
runs at a weight decay that it was not fitted on, each of those inside the range in turn; the best becomes the
default, and its error there is what plans take for the law's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.evaluate.summary import fitted_range
from calibration.fitting.huber import Fits, draws_of, fit_forms, refit
from calibration.fitting.huber import bootstrap as refit_often
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.runs.tables import Origin
from calibration.fitting.solver import Array
from planner.calibration import (
    Calibration,
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
    """The form that predicts left-out weight decays best, and all forms fitted to runs at three weight decays
    or more; `judged` says which rows the forms are judged on.
    """
    table = with_timescale(table, recipe).reset_index(drop=True)
    fits = fit_over_weight_decays(table, forms)
    tried = {form: left_out_errors(fits, table, form, judged) for form in fits.forms if form != BASE_FORM}
    best = min(tried, key=lambda form: np.mean([one.error for one in tried[form]]))
    draws = None
    if bootstrap:
        refits = refit_often(fits, bootstrap, seed=seed)
        refits.pop(BASE_FORM)
        how = f"bootstrap of all parameters together, residuals over runs, seed {seed}"
        draws = draws_of(fits, refits, how)
    return best, WeightDecayLaw(
        weight_decays=_ends(table["weight_decay"]),
        timescale_epochs=_ends(np.exp(fits.runs.ln_timescale)),
        fitted_on=fitted_range(table).model_copy(update={"flops": None}),
        laws={form: _fitted(fits, form, found, table) for form, found in tried.items()},
        draws=draws,
        method={
            "objective": "Huber loss of ln(predicted) - ln(observed), all weight decays at once",
            "delta": fits.delta,
            "judged_by": "runs at each weight decay inside the range, by the fit to all others",
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
    fits = fit_forms(runs, forms, delta=DELTA, joint=True)
    good = {form: fit for form, fit in fits.forms.items() if form == BASE_FORM or not fit.problem}
    if len(good) < 2:
        reasons = "; ".join(f"{form}: {fit.problem}" for form, fit in fits.forms.items() if fit.problem)
        raise InvalidInput(f"the runs do not determine a law for every weight decay: {reasons}.")
    return replace(fits, forms=good)


def left_out_errors(
    fits: Fits, table: pd.DataFrame, form: str, judged: Array | None = None, *, ends: bool = False
) -> list[LeftOutError]:
    """The form's error at each weight decay inside the range, fitted without it; with `ends`, at all."""
    decays = np.unique(table["weight_decay"].to_numpy(dtype=float))
    decays = decays if ends else decays[1:-1]
    column = table["weight_decay"].to_numpy(dtype=float)
    weights = (column[None] != decays[:, None]).astype(float)
    one = replace(fits, forms={name: fits.forms[name] for name in (BASE_FORM, form)})
    again = refit(one, weights=weights, max_iterations=200)[form]
    predicted = fits.log_prediction(form, again.theta)
    found = []
    for place, decay in enumerate(decays):
        rows = (column == decay) & (True if judged is None else judged)
        if not rows.any():
            continue
        residual = (predicted[place] - fits.runs.ln_loss)[rows]
        nats = np.exp(predicted[place][rows]) - fits.runs.loss[rows]
        found.append(LeftOutError(float(decay), int(rows.sum()), _rms(residual), _rms(nats)))
    return found


def _fitted(fits: Fits, form: str, tried: list[LeftOutError], table: pd.DataFrame) -> FittedLaw:
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
