"""`fit`: a run table in, a Calibration out. Reads the table, fits each weight decay, judges the forms and keeps the evidence.

The recommended form is chosen by how well it predicts (size, budget) cells that it was not fitted on, whatever the in-sample
fit says. Forms that the runs do not determine are left out, with the reason; a base law that they do not determine is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.identify import unidentified
from calibration.fitting.intervals import (
    RESAMPLE,
    SCHEMES,
    ensemble_of,
    interval,
    parameter_intervals,
    refit_record,
)
from calibration.fitting.intervals import bootstrap as refit_often
from calibration.fitting.metrics import capped, held_out_residuals, metrics
from calibration.fitting.problems import Runs
from calibration.fitting.stages import Fits, FormFit, Progress, fit_forms
from calibration.fitting.tables import read_runs
from calibration.studies.provenance import origin
from planner.calibration_files import Calibration, FittedLaw, FittedRange, Setting
from planner.errors import InvalidInput
from planner.laws import FORMS, Law, check_form, parameter_names
from planner.units import number, whole

NOISE = "noise"


class Evidence(NamedTuple):
    """Held-out errors of one weight decay."""

    by_cell: dict[
        str, np.ndarray
    ]  # per form, |ln(predicted / observed)| summed over the runs of each cell that counts
    runs: int  # in those cells
    cells: int  # in all


def fit(
    table: str | os.PathLike[str] | pd.DataFrame,
    *,
    laws: Sequence[str] = FORMS,
    delta: float | str = 1e-3,
    joint: bool = False,
    bootstrap: int = 1000,
    resample: str = "runs",
    scheme: str = "residuals",
    seed: int = 0,
    name: str = "my-calibration",
    title: str = "",
    corpus: str = "",
    model_family: str = "",
    source: str = "",
    vocab_size: int | None = None,
    max_epochs: Any = None,
    where: str | None = None,
    weight_decay: Any = None,
    progress: Progress | None = None,
) -> Calibration:
    """Fit these laws to a run table, per weight decay, with metrics, held-out errors and a bootstrap ensemble.

    The directory of a study is the table of its grid, and knows its own corpus, model family and vocabulary.

    `delta` is Huber's threshold on ln(loss), or "noise" to choose it from the residuals. `joint` fits base law and
    repetition together instead of locking the base. `bootstrap=0` leaves the intervals out; `calibration.intervals` says what
    `resample` and `scheme` mean.
    """
    forms = _forms(laws)
    threshold = _delta(delta)
    replicates = _replicates(bootstrap)
    _one_of(resample, RESAMPLE, "resample")
    _one_of(scheme, SCHEMES, "scheme")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidInput(f"seed must be a whole number of at least 0, such as 0; got {seed!r}.")
    vocabulary = None if vocab_size is None else whole(vocab_size, "vocab_size", example="32100")
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"name must be a text such as 'my-corpus'; got {name!r}.")
    runs = read_runs(table, max_epochs=max_epochs, where=where, weight_decay=weight_decay)
    known = {} if isinstance(table, pd.DataFrame) else origin(table)
    decays = [float(decay) for decay in sorted(runs["weight_decay"].unique())]
    unusable = _unusable(runs, forms)
    settings, evidence, left_out = [], [], {}
    for done, decay in enumerate(decays):
        try:
            setting, held_out = _setting(
                runs[runs["weight_decay"] == decay],
                decay,
                forms,
                unusable[decay],
                threshold,
                joint,
                replicates,
                resample,
                scheme,
                (int(seed), done),
                _share(progress, done, len(decays), decay),
            )
        except _NoBaseLaw as error:
            left_out[f"{decay:g}"] = str(error)
            continue
        settings.append(setting)
        evidence.append(held_out)
    if not settings:
        raise InvalidInput(
            f"the base law is not identified at weight decay {next(f'{d}: {r}' for d, r in left_out.items())}."
        )
    recommendation = _recommend(evidence)
    given = {"title": title, "corpus": corpus, "model_family": model_family, "vocab_size": vocabulary}
    described = known | {field: value for field, value in given.items() if value}
    return Calibration(
        name=name,
        source=source,
        **described,
        default_law=recommendation["law"],
        settings=tuple(settings),
        recommendation=recommendation,
        left_out=left_out,
    )  # type: ignore[call-arg]


def _setting(
    table: pd.DataFrame,
    decay: float,
    laws: list[str],
    unusable: dict[str, str],
    delta: float | str,
    joint: bool,
    replicates: int,
    resample: str,
    scheme: str,
    seed: tuple[int, int],
    progress: Progress | None,
) -> tuple[Setting, Evidence]:
    """One weight decay: its laws, and how they did on cells that they were not fitted on."""
    if "chinchilla" in unusable:
        raise _NoBaseLaw(unusable["chinchilla"])
    runs = Runs.of(table)
    possible = [form for form in laws if form not in unusable]
    fits = fit_forms(runs, possible, delta=delta, joint=joint, progress=_share(progress, 0, 10))
    missing = unusable | {form: fit.problem for form, fit in fits.forms.items() if fit.problem}
    if "chinchilla" in missing:
        raise _NoBaseLaw(
            f"{missing['chinchilla']}{_no_trend(runs)}; single-epoch runs over a wider range of sizes and tokens would do"
        )
    kept = Fits(
        runs, fits.delta, joint, {form: fit for form, fit in fits.forms.items() if form not in missing}
    )
    held_out = held_out_residuals(kept, _share(progress, 1, 10))
    ensemble, records = None, {}
    if replicates:
        # The seed differs between weight decays, so that their refits are independent and may be paired.
        share = _share(progress, 2, 10, span=8)
        refits = refit_often(kept, replicates, resample=resample, scheme=scheme, seed=seed, progress=share)
        phases = "all parameters together" if joint else "both phases"
        ensemble = ensemble_of(
            kept, refits, f"bootstrap of {phases}, {scheme} over {resample}, seed {seed[0]}"
        )
        records = {form: refit_record(kept, form, found) for form, found in refits.items()}
    epochs = table["epochs"]
    repeated = table[~runs.single] if not runs.single.all() else table
    setting = Setting(
        weight_decay=decay,
        fitted_on=FittedRange(
            params=_range(table["params"]),
            unique_tokens=_range(table["unique_tokens"]),
            epochs=_range(epochs),
            repeated_params=_range(repeated["params"]),
            repeated_unique_tokens=_range(repeated["unique_tokens"]),
            runs=len(runs),
            single_epoch_runs=int(runs.single.sum()),
            multi_epoch_runs=int((~runs.single).sum()),
        ),
        laws={
            form: _fitted(kept, fit, held_out[form], records.get(form)) for form, fit in kept.forms.items()
        },
        ensemble=ensemble,
        method={
            "objective": "Huber loss of ln(predicted) - ln(observed), summed over runs",
            "delta": float(f"{kept.delta:.6g}"),
            "delta_from": NOISE if isinstance(delta, str) else "given",
            "phases": "joint"
            if joint
            else "base law on single-epoch runs, locked; then repetition on all runs",
            "solver": "damped Newton with exact Hessians from all starts",
            "seed": seed[0],
            "not_identified": missing,
        },
    )
    judged = ~np.isnan(held_out["chinchilla"])
    _, cells = np.unique(runs.cells[judged], return_inverse=True)
    by_cell = {form: np.bincount(cells, capped(values[judged])) for form, values in held_out.items()}
    return (_with_spread(setting) if ensemble else setting), Evidence(
        by_cell, int(judged.sum()), len(np.unique(runs.cells))
    )


class _NoBaseLaw(Exception):
    """The runs of one weight decay do not identify the base law."""


def _unusable(runs: pd.DataFrame, forms: list[str]) -> dict[float, dict[str, str]]:
    """Per weight decay, the forms that its runs cannot identify whatever their losses, and why.

    Nothing is refused as long as something that was asked for can be fitted somewhere.
    """
    asked = list(dict.fromkeys(("chinchilla", *forms)))
    found = unidentified(runs, asked)
    unusable: dict[float, dict[str, str]] = {float(decay): {} for decay in runs["weight_decay"].unique()}
    for item in found:
        unusable[item.weight_decay][item.form] = f"{item.reason}; {item.advice}"
    if all(set(forms) <= set(reasons) for reasons in unusable.values()):
        first = found[0]
        others = (
            ""
            if set(forms) == set(FORMS) or first.form == "chinchilla"
            else ", or fit other forms with --law"
        )
        raise InvalidInput(
            f"{first.form} cannot be identified at weight decay {first.weight_decay:g}: {first.reason}; {first.advice}{others}."
        )
    return unusable


def _no_trend(runs: Runs) -> str:
    """In words, if the losses of the single-epoch runs do not fall with size or with tokens."""
    x = np.column_stack(
        [np.ones(int(runs.single.sum())), runs.ln_params[runs.single], runs.ln_tokens[runs.single]]
    )
    slopes = np.linalg.lstsq(x, runs.ln_loss[runs.single], rcond=None)[0][1:]
    flat = [what for what, slope in zip(("model size", "tokens"), slopes, strict=True) if slope > -0.002]
    return f" (the losses of the single-epoch runs do not fall with {' or '.join(flat)})" if flat else ""


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
        members = setting.ensemble_law(form)
        if members is None:
            laws[form] = fitted
            continue
        found = parameter_intervals(setting, form)
        extra: dict[str, Any] = {
            "intervals": {key: [value.low, value.median, value.high] for key, value in found.items()}
        }
        point = getattr(fitted, "reference_penalty", None)
        if point:
            terms = members.terms(point["params"], point["unique_tokens"], point["epochs"])
            if spread := interval(terms.overfitting):
                extra["reference_penalty"] = {**point, "interval": [spread.low, spread.median, spread.high]}
        laws[form] = fitted.model_copy(
            update={"spread": {key: value.mad for key, value in found.items()}, **extra}
        )
    return setting.model_copy(update={"laws": laws})


def _recommend(evidence: list[Evidence]) -> dict[str, Any]:
    """The form that predicts left-out cells best, and the figures behind the choice.

    A simpler form is preferred where it is not worse by more than one standard error of the difference, cells being what
    is drawn: what cannot be told apart on unseen runs is decided for the form with less to get wrong.
    """
    common = [form for form in FORMS if all(form in setting.by_cell for setting in evidence)]
    cells = {form: np.concatenate([setting.by_cell[form] for setting in evidence]) for form in common}
    runs, counted, of = (
        sum(setting.runs for setting in evidence),
        len(cells[common[0]]),
        sum(s.cells for s in evidence),
    )
    if not runs:
        simplest = min(common, key=lambda form: len(parameter_names(form)))
        reason = f"{simplest} is the simplest; no (size, budget) cell can be left out of these fits to tell the forms apart."
        return {"law": simplest, "reason": reason, "held_out_error": {}, "cells": 0, "cells_in_all": of}
    errors = {form: float(values.sum()) / runs for form, values in cells.items()}
    best = min(common, key=errors.__getitem__)
    behind = {form: _paired(cells[form] - cells[best], runs) for form in common}
    as_good = [form for form in common if behind[form][0] <= behind[form][1]]
    chosen = min(as_good, key=lambda form: (len(parameter_names(form)), errors[form]))
    reason = f"{chosen} predicts left-out (size, budget) cells with a mean error of {errors[chosen]:.3%} of the loss"
    if chosen != best:
        difference, error = behind[chosen]
        reason += f": not told apart from {best} ({errors[best]:.3%}, difference {difference:.3%} ± {error:.3%}), and simpler"
    elif len(common) > 1:
        second = min((form for form in common if form != best), key=errors.__getitem__)
        reason += f", the least of all; next is {second} with {errors[second]:.3%}"
    if counted < of:
        reason += f"; {counted} of {of} cells count, the others being needed to fit all forms"
    return {
        "law": chosen,
        "reason": reason + ".",
        "held_out_error": errors,
        "cells": counted,
        "cells_in_all": of,
    }


def _paired(by_cell: np.ndarray, runs: int) -> tuple[float, float]:
    """Mean difference per run, and its standard error when cells are drawn."""
    spread = float(by_cell.std(ddof=1)) if len(by_cell) > 1 else 0.0
    return float(by_cell.sum()) / runs, spread * len(by_cell) ** 0.5 / runs


# -- arguments -----------------------------------------------------------------------------------------------------------


def _forms(laws: Sequence[str]) -> list[str]:
    names = [laws] if isinstance(laws, str) else list(laws)
    if not names:
        raise InvalidInput(f"laws must name at least one of {', '.join(FORMS)}.")
    return [form for form in FORMS if form in {check_form(name) for name in names}]


def _delta(delta: Any) -> float | str:
    if delta == NOISE:
        return NOISE
    if isinstance(delta, str):
        try:
            delta = float(delta)
        except ValueError:
            raise InvalidInput(
                f"delta must be a number such as 0.001, or {NOISE!r}; got {delta!r}."
            ) from None
    return number(delta, "delta", examples="0.001")


def _replicates(value: Any) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or value < 0
        or value == 1
        or value > 100_000
    ):
        raise InvalidInput(
            f"bootstrap must be 0 (no intervals) or a whole number from 2 to 100000, such as 1000; got {value!r}."
        )
    return int(value)


def _one_of(value: Any, known: tuple[str, ...], field: str) -> None:
    if value not in known:
        raise InvalidInput(f"{field} must be one of {', '.join(known)}; got {value!r}.")


def _range(column: pd.Series) -> tuple[float, float]:
    return float(column.min()), float(column.max())


def _share(
    progress: Progress | None, done: float, of: float, decay: float | None = None, span: float = 1
) -> Progress | None:
    """A progress report for one part of a longer piece of work."""
    if progress is None:
        return None
    report: Callable[[str, float], None] = progress
    prefix = "" if decay is None else f"weight decay {decay:g}: "
    return lambda what, share: report(prefix + what, (done + span * share) / of)
