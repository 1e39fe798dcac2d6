"""The paper's own fit, `prior="none"`: each weight decay and each form on its own, at the optimum of the
Huber loss, with bootstrap refits for the intervals.

The recommended form, which plans then use, is the one that best predicts (size, budget) cells that it was not
fitted on, whatever the in-sample fit says. Forms that the runs do not determine are left out, with the
reason; a base law that they do not determine is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.bayes.prior import fingerprints
from calibration.fitting.bootstrap import bootstrap as refit_often
from calibration.fitting.bootstrap import draws_of, refit_record
from calibration.fitting.huber import Fits, FormFit, Progress, fit_forms, with_joint_base
from calibration.fitting.identify import unidentified
from calibration.fitting.intervals import deviation, parameter_intervals
from calibration.fitting.method import NOISE, Method
from calibration.fitting.metrics import held_out_residuals, metrics
from calibration.fitting.ranges import fitted_range
from calibration.fitting.recommend import Evidence, recommend
from calibration.fitting.runs.arrays import Runs
from planner.calibration import Calibration, Draws, FittedLaw, Setting
from planner.inputs import InvalidInput
from planner.laws import BASE_FORM, STANDARD, Law
from planner.uncertainty import interval

_MANY = 0.1  # of the refits on a bound are worth a warning


def two_phase_fit(
    table: pd.DataFrame,
    method: Method,
    *,
    facts: Mapping[str, Any],
    name: str,
    source: str,
    progress: Progress | None = None,
) -> Calibration:
    """Fit each form to the runs of each weight decay on its own."""
    settings, evidence, left_out = [], [], {}
    unusable = _unusable(table, method.forms)
    for done, (decay, reasons) in enumerate(unusable.items()):
        runs = table[table["weight_decay"] == decay]
        # The seed differs between weight decays, so that their refits are independent and may be paired.
        seed, share = (method.seed, done), _share(progress, done, len(unusable), decay)
        try:
            setting, held_out = _setting(runs, decay, method, reasons, seed, share)
        except _NoBaseLaw as error:
            left_out[f"{decay:g}"] = str(error)
            continue
        settings.append(setting)
        evidence.append(held_out)
    if not settings:
        decay_text, reason = next(iter(left_out.items()))
        raise InvalidInput(f"the base law is not identified at weight decay {decay_text}: {reason}.")
    recommendation = recommend(evidence)
    kept: dict[str, Any] = {"recommendation": recommendation, "left_out": left_out}
    kept["run_fingerprints"] = fingerprints(table)
    return Calibration(
        name=name,
        source=source,
        **facts,
        default_law=recommendation["law"],
        settings=tuple(settings),
        **kept,
    )


def _setting(
    table: pd.DataFrame,
    decay: float,
    method: Method,
    unusable: Mapping[str, str],
    seed: tuple[int, int],
    progress: Progress | None,
) -> tuple[Setting, Evidence]:
    """One weight decay: its laws, and how they did on cells that they were not fitted on."""
    runs = Runs.of(table)
    fits, missing = _identified(runs, method, unusable, _share(progress, 0, 10))
    held_out = held_out_residuals(fits, _share(progress, 1, 10))
    draws, records = _refits(fits, method, seed, _share(progress, 2, 10, span=8))
    setting = Setting(
        weight_decay=decay,
        fitted_on=fitted_range(table),
        laws={
            form: _fitted(fits, fit, held_out[form], records.get(form)) for form, fit in fits.forms.items()
        },
        draws=draws,
        warnings=_on_bounds(records),
        method=_record(fits, method, missing),
    )
    return (_with_spread(setting) if draws else setting), Evidence.of(runs, held_out)


def _on_bounds(records: Mapping[str, dict[str, Any]]) -> list[str]:
    """Where many refits ended on the bound of their search, in words for plans."""
    stuck = [
        f"{name} of {form} in {count} of {record['kept']}"
        for form, record in records.items()
        for name, count in record["at_bound"].items()
        if count > _MANY * record["kept"]
    ]
    return [
        f"refits sit on the bound of their search ({', '.join(stuck)}): intervals are open there."
    ] * bool(stuck)


class _NoBaseLaw(Exception):
    """The runs of one weight decay do not identify the base law."""


def _unusable(runs: pd.DataFrame, forms: Sequence[str]) -> dict[float, dict[str, str]]:
    """Per weight decay, the forms that its runs cannot identify whatever their losses, and why.

    Nothing is refused as long as something that was asked for can be fitted somewhere.
    """
    asked = list(dict.fromkeys((BASE_FORM, *forms)))
    found = unidentified(runs, asked)
    unusable: dict[float, dict[str, str]] = {
        float(decay): {} for decay in sorted(runs["weight_decay"].unique())
    }
    for item in found:
        unusable[item.weight_decay][item.form] = f"{item.reason}; {item.remedy}"
    if all(set(forms) <= set(reasons) for reasons in unusable.values()):
        first = found[0]
        all_asked = set(forms) == set(STANDARD) or first.form == BASE_FORM
        others = "" if all_asked else ", or fit other forms with ‹laws›"
        raise InvalidInput(
            f"{first.form} cannot be identified at weight decay {first.weight_decay:g}: "
            f"{first.reason}; {first.remedy}{others}."
        )
    return unusable


def _identified(
    runs: Runs, method: Method, unusable: Mapping[str, str], progress: Progress | None
) -> tuple[Fits, dict[str, str]]:
    """The fits of all forms that these runs determine, and why others are missing; raises without a base."""
    if BASE_FORM in unusable:
        raise _NoBaseLaw(unusable[BASE_FORM])
    possible = [form for form in method.forms if form not in unusable]
    fits = fit_forms(runs, possible, delta=method.delta, joint=method.joint, progress=progress)
    if method.joint and not runs.single.all():
        fits = with_joint_base(fits)
    missing = {**unusable, **{form: fit.problem for form, fit in fits.forms.items() if fit.problem}}
    if BASE_FORM in missing:
        advice = "single-epoch runs over a wider range of sizes and tokens would do"
        raise _NoBaseLaw(f"{missing[BASE_FORM]}{_no_trend(runs)}; {advice}")
    kept = {form: fit for form, fit in fits.forms.items() if form not in missing}
    return Fits(runs, fits.delta, method.joint, kept), missing


def _no_trend(runs: Runs) -> str:
    """In words, if the losses of the single-epoch runs do not fall with size or with tokens."""
    once = runs.single
    x = np.column_stack([np.ones(int(once.sum())), runs.ln_params[once], runs.ln_tokens[once]])
    slopes = np.linalg.lstsq(x, runs.ln_loss[once], rcond=None)[0][1:]
    flat = [what for what, slope in zip(("model size", "tokens"), slopes, strict=True) if slope > -0.002]
    return f" (the losses of the single-epoch runs do not fall with {' or '.join(flat)})" if flat else ""


def _refits(
    fits: Fits, method: Method, seed: tuple[int, int], progress: Progress | None
) -> tuple[Draws | None, dict[str, dict[str, Any]]]:
    """The bootstrap draws, and per form how its refits ended; nothing where none were asked for."""
    if not method.bootstrap:
        return None, {}
    resample, scheme = method.resample, method.scheme
    found = refit_often(
        fits, method.bootstrap, resample=resample, scheme=scheme, seed=seed, progress=progress
    )
    phases = "all parameters together" if method.joint else "both phases"
    how = f"bootstrap of {phases}, {scheme} over {resample}, seed {method.seed}"
    return draws_of(fits, found, how), {
        form: refit_record(fits, form, refits) for form, refits in found.items()
    }


def _record(fits: Fits, method: Method, missing: dict[str, str]) -> dict[str, Any]:
    """How a setting was fitted, for people and files."""
    two_phases = "base law on single-epoch runs, locked; then repetition on all runs"
    return {
        "objective": "Huber loss of ln(predicted) - ln(observed), summed over runs",
        "delta": float(f"{fits.delta:.6g}"),
        "delta_from": NOISE if method.delta == NOISE else "given",
        "phases": "joint" if method.joint else two_phases,
        "solver": "damped Newton with exact Hessians from all starts",
        "seed": method.seed,
        "not_identified": missing,
    }


def _fitted(fits: Fits, fit: FormFit, held_out: np.ndarray, refits: dict[str, Any] | None) -> FittedLaw:
    extra: dict[str, Any] = {"convergence": fit.convergence() | ({"refits": refits} if refits else {})}
    if "P" in fit.parameters:
        n0, u0, r0 = (float(np.exp(value)) for value in fits.runs.ref_multi)
        penalty = float(Law(fit.form, fit.parameters).terms(n0, u0, 1 + r0).overfitting)
        extra["reference_penalty"] = {"params": n0, "unique_tokens": u0, "epochs": 1 + r0, "penalty": penalty}
    return FittedLaw(parameters=fit.parameters, metrics=metrics(fits, fit.form, held_out), **extra)


def _with_spread(setting: Setting) -> Setting:
    """The setting with median absolute deviations and intervals next to each law's parameters."""
    laws = {}
    for form, fitted in setting.laws.items():
        draws = setting.law_draws(form)
        if draws is None:
            laws[form] = fitted
            continue
        found = parameter_intervals(setting, form)
        extra: dict[str, Any] = {
            "intervals": {key: [value.low, value.median, value.high] for key, value in found.items()}
        }
        point = getattr(fitted, "reference_penalty", None)
        if point:
            terms = draws.terms(point["params"], point["unique_tokens"], point["epochs"])
            if spread := interval(terms.overfitting):
                extra["reference_penalty"] = {**point, "interval": [spread.low, spread.median, spread.high]}
        laws[form] = fitted.model_copy(
            update={"spread": {key: deviation(draws.parameters[key]) for key in found}, **extra}
        )
    return setting.model_copy(update={"laws": laws})


def _share(
    progress: Progress | None, done: float, of: float, decay: float | None = None, span: float = 1
) -> Progress | None:
    """A progress report for one part of a longer piece of work."""
    if progress is None:
        return None
    report: Callable[[str, float], None] = progress
    prefix = "" if decay is None else f"weight decay {decay:g}: "
    return lambda what, share: report(prefix + what, (done + span * share) / of)
