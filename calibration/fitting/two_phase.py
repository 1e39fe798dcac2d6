"""The paper's own fit, `prior="none"`: each weight decay and each form on its own, at the optimum of the
Huber loss, with bootstrap refits for the intervals.

The recommended form, which plans then use, is the one that best predicts (size, budget) cells that it was not
fitted on (leave-one-cell-out cross-validation), whatever the in-sample fit says. A simpler form is preferred
where it is not worse by more than one standard error of the difference, cells being what is drawn: what
cannot be told apart on unseen runs is decided for the form with less to get wrong.

Forms that the runs do not determine are left out, with the reason; a base law that they do not determine is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.bayes.hierarchical import AUTO, by_weight_decay
from calibration.fitting.evaluate.summary import (
    PAPER_DELTA,
    capped,
    fitted_range,
    goodness_of_fit,
    spread_of_draws,
)
from calibration.fitting.huber import (
    RESAMPLE,
    SCHEMES,
    Fits,
    FormFit,
    bootstrap,
    draws_of,
    fit_forms,
    left_out_predictions,
    refit_record,
    with_joint_base,
)
from calibration.fitting.identify import unidentified
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.solver import Array, Progress, part_of, silent
from planner.calibration import FittedLaw, Setting
from planner.inputs import InvalidInput
from planner.laws import BASE_FORM, FORMS, STANDARD, Law, parameter_names
from planner.uncertainty import interval

NOISE = "noise"  # choose Huber's delta from the residuals
_TWO_PHASES = "base law on single-epoch runs, locked; then repetition on all runs"
_MANY = 0.1  # of the refits on a bound are worth a warning


@dataclass(frozen=True)
class Method:
    """Which laws are fitted, and how.

    `delta` is Huber's threshold on ln(loss), or "noise" to choose it from the residuals. `joint` fits base
    law and repetition together instead of locking the base. `bootstrap` is how many refits the intervals come
    from, none for 0; `calibration.fitting.huber` says what `resample` and `scheme` mean. The same `seed`
    gives the same result.

    `prior` is the calibration to start from: "auto" (the shipped calibration that suits the runs best), the
    name of a calibration, or "none": the fit of the paper, which alone knows `delta`, `joint`, `resample`
    and `scheme` and is meant where one of these is asked for.
    """

    laws: tuple[str, ...] = tuple(STANDARD)  # each once, in the order of the registry
    delta: float | str = PAPER_DELTA
    joint: bool = False
    bootstrap: int = 1000
    resample: str = RESAMPLE[0]
    scheme: str = SCHEMES[0]
    seed: int = 0
    prior: str = AUTO


def two_phase_fit(
    table: pd.DataFrame, method: Method, progress: Progress = silent
) -> tuple[tuple[Setting, ...], dict[str, Any]]:
    """Fit each form to the runs of each weight decay on its own: the settings, and what else a calibration
    keeps.
    """
    settings, evidence, left_out = [], [], {}
    unusable = _unusable(table, method.laws)
    for done, (decay, runs) in enumerate(by_weight_decay(table).items()):
        # The seed differs between weight decays, so that their refits are independent and may be paired.
        seed, part = (method.seed, done), part_of(progress, done, len(unusable), f"weight decay {decay:g}: ")
        fits, missing = _identified(Runs.of(runs), method, unusable[decay], part_of(part, 0, 10))
        if BASE_FORM in missing:
            left_out[f"{decay:g}"] = missing[BASE_FORM]
            continue
        held_out = held_out_residuals(fits, part_of(part, 1, 10))
        settings.append(_setting(runs, decay, method, fits, missing, held_out, seed, part))
        evidence.append(Evidence.of(fits.runs, held_out))
    if not settings:
        decay_text, reason = next(iter(left_out.items()))
        raise InvalidInput(f"the base law is not identified at weight decay {decay_text}: {reason}.")
    return tuple(settings), {"recommendation": _recommendation(evidence), "left_out": left_out}


def _setting(
    table: pd.DataFrame,
    decay: float,
    method: Method,
    fits: Fits,
    missing: Mapping[str, str],
    held_out: Mapping[str, Array],
    seed: tuple[int, int],
    progress: Progress,
) -> Setting:
    """One weight decay: its laws, how they did on cells that they were not fitted on, and their refits."""
    draws, records = None, {}
    if method.bootstrap:
        how = {"resample": method.resample, "scheme": method.scheme}
        found = bootstrap(fits, method.bootstrap, **how, seed=seed, progress=part_of(progress, 2, 10, span=8))
        phases = "all parameters together" if method.joint else "both phases"
        text = f"bootstrap of {phases}, {method.scheme} over {method.resample}, seed {method.seed}"
        draws = draws_of(fits, found, text)
        records = {form: refit_record(form, refits) for form, refits in found.items()}
    stuck = [
        f"{name} of {form} in {count} of {record['kept']}"
        for form, record in records.items()
        for name, count in record["at_bound"].items()
        if count > _MANY * record["kept"]
    ]
    bounds = f"refits sit on the bound of their search ({', '.join(stuck)}): intervals are open there."
    laws = draws.by_form() if draws else {}
    return Setting(
        weight_decay=decay,
        fitted_on=fitted_range(table),
        laws={
            form: _fitted(fits, fit, held_out[form], records.get(form), laws.get(form))
            for form, fit in fits.forms.items()
        },
        draws=draws,
        warnings=[bounds] if stuck else [],
        method={
            "objective": "Huber loss of ln(predicted) - ln(observed), summed over runs",
            "delta": float(f"{fits.delta:.6g}"),
            "delta_from": NOISE if method.delta == NOISE else "given",
            "phases": "joint" if method.joint else _TWO_PHASES,
            "solver": "damped Newton with exact Hessians from all starts",
            "seed": method.seed,
            "not_identified": dict(missing),
        },
    )


def _fitted(
    fits: Fits, fit: FormFit, held_out: Array, refits: dict[str, Any] | None, draws: Law | None
) -> FittedLaw:
    extra: dict[str, Any] = {"convergence": fit.convergence() | ({"refits": refits} if refits else {})}
    if "P" in fit.parameters:
        middle = fits.runs.middle[1]
        where = {name: float(getattr(middle, name)) for name in ("params", "unique_tokens", "epochs")}
        penalty = float(Law(fit.form, fit.parameters).terms(*where.values()).overfitting)
        at: dict[str, Any] = {**where, "penalty": penalty}
        spread = None if draws is None else interval(draws.terms(*where.values()).overfitting)
        if spread is not None:
            at["interval"] = [spread.low, spread.median, spread.high]
        extra["reference_penalty"] = at
    if draws is not None:
        extra |= spread_of_draws(draws)
    return FittedLaw(parameters=fit.parameters, metrics=metrics(fits, fit.form, held_out), **extra)


def _unusable(runs: pd.DataFrame, forms: Sequence[str]) -> dict[float, dict[str, str]]:
    """Per weight decay, the forms that its runs cannot identify whatever their losses, and why.

    Nothing is refused as long as something that was asked for can be fitted somewhere.
    """
    asked = list(dict.fromkeys((BASE_FORM, *forms)))
    found = unidentified(runs, asked)
    unusable: dict[float, dict[str, str]] = {decay: {} for decay in by_weight_decay(runs)}
    for item in found:
        unusable[item.weight_decay][item.form] = f"{item.reason}; {item.remedy}"
    if all(set(forms) <= set(reasons) for reasons in unusable.values()):
        first = found[0]
        all_asked = set(forms) == set(STANDARD) or first.form == BASE_FORM
        others = "" if all_asked else ", or fit other forms with ‹laws›"
        raise InvalidInput(f"{first}{others}.")
    return unusable


def _identified(
    runs: Runs, method: Method, unusable: Mapping[str, str], progress: Progress
) -> tuple[Fits, dict[str, str]]:
    """The fits of all forms that these runs determine, and why others are missing: the base law, or some."""
    if BASE_FORM in unusable:
        return Fits(runs, PAPER_DELTA, method.joint), dict(unusable)
    possible = [form for form in method.laws if form not in unusable]
    fits = fit_forms(runs, possible, delta=method.delta, joint=method.joint, progress=progress)
    if method.joint and not runs.single.all():
        fits = with_joint_base(fits)
    missing = {**unusable, **{form: fit.problem for form, fit in fits.forms.items() if fit.problem}}
    if BASE_FORM in missing:
        advice = "single-epoch runs over a wider range of sizes and tokens would do"
        missing[BASE_FORM] += f"{_no_trend(runs)}; {advice}"
    kept = {form: fit for form, fit in fits.forms.items() if form not in missing}
    return replace(fits, forms=kept), missing


def _no_trend(runs: Runs) -> str:
    """In words, if the losses of the single-epoch runs do not fall with size or with tokens."""
    once = runs.single
    x = np.column_stack([np.ones(int(once.sum())), runs.ln_params[once], runs.ln_tokens[once]])
    slopes = np.linalg.lstsq(x, runs.ln_loss[once], rcond=None)[0][1:]
    flat = [what for what, slope in zip(("model size", "tokens"), slopes, strict=True) if slope > -0.002]
    return f" (the losses of the single-epoch runs do not fall with {' or '.join(flat)})" if flat else ""


# -- cross-validation ----------------------------------------------------------------------------------------


def metrics(fits: Fits, form: str, held_out: Array | None = None) -> dict[str, float | None]:
    """Goodness of fit of one form."""
    fit, runs = fits.forms[form], fits.runs
    predicted = fits.log_prediction(form, fit.theta)
    size = len(parameter_names(form))
    return goodness_of_fit(
        runs.ln_loss, predicted, runs.single, size, fits.delta, cells=runs.cells, held_out=held_out
    )


def held_out_residuals(fits: Fits, progress: Progress = silent) -> dict[str, Array]:
    """ln(predicted / observed) of every run by the law that was fitted without the run's (size, budget) cell;
    NaN for all forms in a cell without which one of them does not converge.
    """
    runs = fits.runs
    cells, own = np.unique(runs.cells, return_inverse=True)
    predicted = left_out_predictions(fits, runs.cells[None] != cells[:, None], progress)
    return {form: values[own, np.arange(len(runs))] - runs.ln_loss for form, values in predicted.items()}


class Evidence(NamedTuple):
    """Held-out errors of one weight decay."""

    by_cell: dict[str, np.ndarray]  # per form, |ln(predicted / observed)| summed over the runs of each cell
    runs: int  # in the cells that count
    cells: int  # in all

    @staticmethod
    def of(runs: Runs, held_out: Mapping[str, np.ndarray]) -> Evidence:
        """From the held-out residuals of each form, NaN in cells that do not count."""
        counts = ~np.logical_or.reduce([np.isnan(values) for values in held_out.values()])
        _, cells = np.unique(runs.cells[counts], return_inverse=True)
        by_cell = {form: np.bincount(cells, capped(values[counts])) for form, values in held_out.items()}
        return Evidence(by_cell, int(counts.sum()), len(np.unique(runs.cells)))


def _recommendation(evidence: Sequence[Evidence]) -> dict[str, Any]:
    """The form to plan with, and the figures behind the choice."""
    common = [form for form in FORMS if all(form in setting.by_cell for setting in evidence)]
    cells = {form: np.concatenate([setting.by_cell[form] for setting in evidence]) for form in common}
    runs, of = sum(setting.runs for setting in evidence), sum(setting.cells for setting in evidence)
    counted = len(cells[common[0]])
    if not runs:
        law = min(common, key=lambda form: len(parameter_names(form)))
        untold = "no (size, budget) cell can be left out of these fits to tell the forms apart"
        reason = f"{law} is the simplest; {untold}."
        return {"law": law, "reason": reason, "held_out_error": {}, "cells": 0, "cells_in_all": of}
    errors = {form: float(values.sum()) / runs for form, values in cells.items()}
    law, reason = _choice(cells, errors, runs)
    if counted < of:
        reason += f"; {counted} of {of} cells count, the others being needed to fit all forms"
    found = {"law": law, "reason": f"{reason}.", "held_out_error": errors}
    return found | {"cells": counted, "cells_in_all": of}


def _choice(cells: Mapping[str, np.ndarray], errors: Mapping[str, float], runs: int) -> tuple[str, str]:
    """The simplest of the forms that are as good as the best, and why."""
    best = min(errors, key=errors.__getitem__)
    behind = {form: _paired(values - cells[best], runs) for form, values in cells.items()}
    as_good = [form for form, (difference, error) in behind.items() if difference <= error]
    chosen = min(as_good, key=lambda form: (len(parameter_names(form)), errors[form]))
    error_of_loss = f"a mean error of {errors[chosen]:.3%} of the loss"
    reason = f"{chosen} predicts left-out (size, budget) cells with {error_of_loss}"
    if chosen != best:
        difference, error = behind[chosen]
        told = f"{errors[best]:.3%}, difference {difference:.3%} ± {error:.3%}"
        return chosen, f"{reason}: not told apart from {best} ({told}), and simpler"
    if len(errors) > 1:
        second = min((form for form in errors if form != best), key=errors.__getitem__)
        reason += f", the least of all; next is {second} with {errors[second]:.3%}"
    return chosen, reason


def _paired(by_cell: np.ndarray, runs: int) -> tuple[float, float]:
    """Mean difference per run, and its standard error when cells are drawn."""
    spread = float(by_cell.std(ddof=1)) if len(by_cell) > 1 else 0.0
    return float(by_cell.sum()) / runs, spread * len(by_cell) ** 0.5 / runs
