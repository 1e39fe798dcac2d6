"""What a calibration keeps of a Bayesian fit at one weight decay: every form, its weight, draws, and what to
be careful about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.bayes.hierarchical import (
    Drawn,
    HierarchicalFit,
    Outlier,
)
from calibration.fitting.bayes.posterior import Normal, Posterior
from calibration.fitting.bootstrap import DIGITS
from calibration.fitting.huber import PAPER_DELTA, huber
from calibration.fitting.identify import unidentified
from calibration.fitting.intervals import deviation
from calibration.fitting.metrics import aicc, capped, r_squared
from calibration.fitting.ranges import fitted_range
from calibration.fitting.runs.arrays import SINGLE_EPOCH
from calibration.fitting.skill import extrapolation_errors
from planner.calibration import LITTLE, Draws, FittedLaw, Setting
from planner.inputs import short
from planner.laws import BASE_FORM, DEFAULT_FORM, Law, parameter_names
from planner.uncertainty import interval

_FEW = 3  # runs, of which nothing is said
_HARDLY = 0.01  # of a run
_GROUPS = {"irreducible loss": ("E",), "model size": ("A", "alpha"), "data": ("B", "beta")}
_REPETITION = "repetition"


def setting_of(
    found: HierarchicalFit, decay: float, runs: pd.DataFrame, drawn: Mapping[str, Drawn]
) -> Setting:
    """The runs of one weight decay, the laws after them, and `drawn` by form."""
    laws = {
        form: _fitted(found.law(form, decay), one[decay], runs, drawn.get(form))
        for form, one in found.posteriors.items()
    }
    draws = None
    if drawn:
        draws = Draws(
            method=f"draws of the posterior after the runs, with {found.prior.name} as prior",
            laws={form: _parameters(one.law) for form, one in drawn.items()},
            discrepancy={form: _digits(one.discrepancy) for form, one in drawn.items()},
            loss_draws={form: _others(one.law, one.loss_law) for form, one in drawn.items()},
        )
    learnt = _learnt(found, decay)
    return Setting(
        weight_decay=decay,
        fitted_on=fitted_range(runs),
        laws=laws,
        draws=draws,
        law_weights={form: float(f"{weight:.4g}") for form, weight in found.weights.items()},
        extrapolation_errors=extrapolation_errors(tuple(found.weights)),
        warnings=_warnings(found, decay, runs, learnt),
        method=_record(found, decay, runs, learnt),
    )


def _fitted(law: Law, posterior: Posterior, runs: pd.DataFrame, drawn: Drawn | None) -> FittedLaw:
    observed = posterior.seen.ln_loss
    predicted = np.log(law.loss(*posterior.seen.points))
    single = posterior.seen.points[2] <= SINGLE_EPOCH
    error, _ = posterior.left_out()
    objective = float(huber(predicted - observed, PAPER_DELTA).sum())
    figures = {
        "r2": r_squared(np.exp(observed), np.exp(predicted)),
        "r2_multi": r_squared(np.exp(observed[~single]), np.exp(predicted[~single])),
        "r2_single": r_squared(np.exp(observed[single]), np.exp(predicted[single])),
        "huber": objective,
        "aicc": aicc(objective, len(observed), len(parameter_names(law.form)), PAPER_DELTA),
        "held_out_error": float(np.mean(capped(error))),
        "held_out_error_multi": float(np.mean(capped(error[~single]))) if not single.all() else None,
        "held_out_cells": float(len(np.unique(posterior.seen.cells))),
    }
    extra: dict[str, Any] = {}
    if drawn is not None:
        spans = {name: interval(values) for name, values in drawn.law.parameters.items()}
        extra["spread"] = {name: deviation(values) for name, values in drawn.law.parameters.items()}
        extra["intervals"] = {n: [s.low, s.median, s.high] for n, s in spans.items() if s is not None}
    return FittedLaw(
        parameters={name: float(value) for name, value in law.parameters.items()}, metrics=figures, **extra
    )


def _parameters(law: Law) -> dict[str, list[float]]:
    return {name: _digits(values) for name, values in law.parameters.items()}


def _others(law: Law, loss_law: Law) -> dict[str, list[float]]:
    """The parameters of the second that are not those of the first."""
    first = _parameters(law)
    return {name: values for name, values in _parameters(loss_law).items() if values != first[name]}


def _digits(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


# -- what came from where ------------------------------------------------------------------------------------


def _learnt(found: HierarchicalFit, decay: float) -> dict[str, float]:
    """The share of what was unknown of each part of the law that the runs have told."""
    form = DEFAULT_FORM if DEFAULT_FORM in found.posteriors else next(iter(found.weights))
    posterior = found.posteriors[form][decay]
    before = Normal(found.prior.mean(form), found.prior.covariance(form))
    left = np.diagonal(posterior.covariance) / np.diagonal(before.covariance)
    names = parameter_names(form)
    groups = {**_GROUPS, _REPETITION: tuple(n for n in names if n not in sum(_GROUPS.values(), ()))}
    shares = {
        group: 1 - float(np.mean([left[names.index(name)] for name in own]))
        for group, own in groups.items()
        if own
    }
    return {group: float(f"{min(max(share, 0.0), 1.0):.3g}") for group, share in shares.items()}


def _record(
    found: HierarchicalFit, decay: float, runs: pd.DataFrame, learnt: Mapping[str, float]
) -> dict[str, Any]:
    heaviest = max(found.weights, key=found.weights.__getitem__)
    posterior = found.posteriors[heaviest][decay]
    noise, discrepancy = (
        float(np.exp(posterior.weights @ np.log(values)))
        for values in (posterior.seen.grid.noise, posterior.seen.grid.discrepancy)
    )
    names = runs["run"].tolist() if "run" in runs else [str(i) for i in range(len(runs))]
    return {
        "objective": "posterior of ln(loss) with a prior, a smooth model discrepancy and noise",
        "prior": found.prior.name,
        "learnt_from_runs": dict(learnt),
        "noise": float(f"{noise:.3g}"),
        "noise_repeated": float(f"{noise * found.ratio:.3g}"),
        "discrepancy": float(f"{discrepancy:.3g}"),
        "outliers": [
            {
                "run": str(names[one.row]),
                "off": round(one.off, 4),
                "deviations": round(one.deviations, 1),
                "counts": float(f"{one.counts:.2g}"),
            }
            for one in found.outliers[decay]
        ],
    }


def reason(found: HierarchicalFit) -> str:
    ordered = sorted(found.weights.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{form} {weight:.0%}" for form, weight in ordered[:4])
    more = f" and {len(ordered) - 4} more" if len(ordered) > 4 else ""
    aside = (
        f" ({', '.join(found.set_aside)} left out: fitted on some of these runs)" if found.set_aside else ""
    )
    count = f"the average of {len(ordered)} forms: " * (len(ordered) > 1)
    return f"{count}{shown}{more}; prior {found.prior.name}{aside}."


def _warnings(
    found: HierarchicalFit, decay: float, runs: pd.DataFrame, learnt: Mapping[str, float]
) -> list[str]:
    """What a plan with this fit should say."""
    names = runs["run"].tolist() if "run" in runs else [str(i) for i in range(len(runs))]
    texts = [_outlier(str(names[one.row]), one) for one in found.outliers[decay]]
    prior = found.prior.name
    if (runs["epochs"] <= SINGLE_EPOCH).all():
        texts.append(
            f"no run repeats its data: what repetition does is all taken from {prior}; {_advice(runs)}."
        )
    unknown = [group for group, share in learnt.items() if share < LITTLE]
    if unknown and len(unknown) < len(learnt):
        texts.append(f"the runs say little about {' and '.join(unknown)}: that is mostly taken from {prior}.")
    elif unknown:
        texts.append(f"{len(runs)} runs say little: the law is mostly that of {prior}; {_advice(runs)}.")
    return texts + _odd(runs)


def _outlier(run: str, one: Outlier) -> str:
    share, side = np.expm1(one.off), "above" if one.off > 0 else "below"
    far = f"{abs(share):.0%}" if abs(share) >= 0.01 else f"{abs(share):.1%}"
    counts = f"counts as {one.counts:.0%} of a run"
    if one.counts < _HARDLY:
        counts = "hardly counts"
    elif one.counts > 1 - _HARDLY:
        counts = "still counts"
    return (
        f"the loss of run {run} is {far} {side} what the other runs say, {one.deviations:.0f} standard "
        f"deviations; it {counts}."
    )


def _advice(runs: pd.DataFrame) -> str:
    lacking = unidentified(runs, [BASE_FORM, DEFAULT_FORM])
    return lacking[0].remedy if lacking else "more runs, larger ones above all, would replace it"


def _odd(runs: pd.DataFrame) -> list[str]:
    """Losses that hardly differ; `sanity_checks` looks for copies and for pure noise."""
    texts = []
    low, high = runs["loss"].min(), runs["loss"].max()
    if len(runs) > _FEW and high / low < 1.005:
        texts.append(
            f"all losses are within {high / low - 1:.2%} of each other: they hardly tell size from data "
            f"(runs from {short(runs['params'].min())} to {short(runs['params'].max())} parameters)."
        )
    return texts
