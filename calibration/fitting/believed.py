"""A calibration from what is believed after a table of runs: every form, its weight, draws, and what to be
careful about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.identify import unidentified
from calibration.fitting.intervals import _DIGITS, deviation
from calibration.fitting.metrics import aicc, capped, r_squared
from calibration.fitting.objective import huber
from calibration.fitting.pooled import Drawn, Outlier, Pooled, believe, by_weight_decay
from calibration.fitting.posterior import Normal, Posterior
from calibration.fitting.prior import fingerprints
from calibration.fitting.runs import SINGLE_EPOCH
from calibration.fitting.skill import skill
from calibration.fitting.stages import PAPER_DELTA, Progress
from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.calibration_files import LITTLE, Calibration, Ensemble, FittedLaw, FittedRange, Setting
from planner.errors import InvalidInput
from planner.intervals import interval
from planner.laws import BASE_FORM, DEFAULT_FORM, Law, parameter_names
from planner.units import short

FEWEST_RUNS = 3
_FEWEST_DRAWS = 5  # of all draws, one part in so many for a form that hardly counts
_HARDLY = 0.01  # of a run
_GROUPS = {"the floor": ("E",), "model size": ("A", "alpha"), "data": ("B", "beta")}
_REPETITION = "repetition"


def believed(
    table: pd.DataFrame,
    forms: tuple[str, ...],
    *,
    prior: str,
    draws: int,
    seed: int,
    facts: Mapping[str, Any],
    name: str,
    source: str,
    progress: Progress | None = None,
) -> Calibration:
    """Fit these forms to the runs with a prior, and average over them."""
    if len(table) < FEWEST_RUNS:
        raise InvalidInput(
            f"{len(table)} run{' says' if len(table) == 1 else 's say'} nothing about a law; "
            f"{FEWEST_RUNS} would do."
        )
    names = tuple(dict.fromkeys((BASE_FORM, *forms)))
    found = believe(table, names, prior, facts.get("vocab_size"), progress)
    drawn = _drawn(found, names, draws, seed, progress)
    settings = [
        _setting(found, decay, runs, {form: one[decay] for form, one in drawn.items()})
        for decay, runs in by_weight_decay(table).items()
    ]
    best = max(found.weights, key=found.weights.__getitem__)
    kept: dict[str, Any] = {
        "recommendation": {"law": best, "reason": _reason(found), "weights": dict(found.weights)},
        "left_out": {},
        "prior": {"name": found.prior.name, "left_out": list(found.set_aside)},
        "run_fingerprints": fingerprints(table),
    }
    return Calibration(name=name, source=source, **facts, default_law=best, settings=tuple(settings), **kept)


def _drawn(
    found: Pooled, forms: tuple[str, ...], draws: int, seed: int, progress: Progress | None
) -> dict[str, dict[float, Drawn]]:
    """Draws of every form at every weight decay; those that count more have more of them."""
    if not draws:
        return {}
    drawn = {}
    for done, form in enumerate(forms):
        if progress is not None:
            progress(f"draws of {form}", 0.5 + 0.5 * done / len(forms))
        count = max(int(np.ceil(found.weights.get(form, 0.0) * draws)), draws // _FEWEST_DRAWS, 2)
        drawn[form] = found.draws(form, count, seed)
    return drawn


def _setting(found: Pooled, decay: float, runs: pd.DataFrame, drawn: Mapping[str, Drawn]) -> Setting:
    laws = {
        form: _fitted(found.law(form, decay), one[decay], runs, drawn.get(form))
        for form, one in found.posteriors.items()
    }
    ensemble = None
    if drawn:
        ensemble = Ensemble(
            method=f"draws of what is believed after the runs, with {found.prior.name} as prior",
            laws={form: _parameters(one.law) for form, one in drawn.items()},
            misfit={form: _digits(one.misfit) for form, one in drawn.items()},
            over_all={form: _others(one.law, one.over_all) for form, one in drawn.items()},
        )
    learnt = _learnt(found, decay)
    return Setting(
        weight_decay=decay,
        fitted_on=fitted_range(runs),
        laws=laws,
        ensemble=ensemble,
        law_weights={form: float(f"{weight:.4g}") for form, weight in found.weights.items()},
        law_skill=skill(tuple(found.weights)),
        warnings=_warnings(found, decay, runs, learnt),
        method=_record(found, decay, runs, learnt),
    )


def _fitted(law: Law, belief: Posterior, runs: pd.DataFrame, drawn: Drawn | None) -> FittedLaw:
    observed = belief.seen.ln_loss
    predicted = np.log(law.loss(*belief.seen.points))
    single = belief.seen.points[2] <= SINGLE_EPOCH
    error, _ = belief.left_out()
    objective = float(huber(predicted - observed, PAPER_DELTA).sum())
    figures = {
        "r2": r_squared(np.exp(observed), np.exp(predicted)),
        "r2_multi": r_squared(np.exp(observed[~single]), np.exp(predicted[~single])),
        "r2_single": r_squared(np.exp(observed[single]), np.exp(predicted[single])),
        "huber": objective,
        "aicc": aicc(objective, len(observed), len(parameter_names(law.form)), PAPER_DELTA),
        "held_out_error": float(np.mean(capped(error))),
        "held_out_error_multi": float(np.mean(capped(error[~single]))) if not single.all() else None,
        "held_out_cells": float(len(np.unique(belief.seen.cells))),
    }
    extra: dict[str, Any] = {}
    if drawn is not None:
        spans = {name: interval(values) for name, values in drawn.law.parameters.items()}
        extra["spread"] = {name: deviation(values) for name, values in drawn.law.parameters.items()}
        extra["intervals"] = {n: [s.low, s.median, s.high] for n, s in spans.items() if s is not None}
    return FittedLaw(
        parameters={name: float(value) for name, value in law.parameters.items()}, metrics=figures, **extra
    )


def fitted_range(table: pd.DataFrame) -> FittedRange:
    """What the runs of a table cover."""
    single = table["epochs"] <= SINGLE_EPOCH
    repeated = table if single.all() else table[~single]
    return FittedRange(
        params=_range(table["params"]),
        unique_tokens=_range(table["unique_tokens"]),
        epochs=_range(table["epochs"]),
        repeated_params=_range(repeated["params"]),
        repeated_unique_tokens=_range(repeated["unique_tokens"]),
        loss=_range(table["loss"]),
        flops=_range(FLOPS_PER_PARAM_TOKEN * table["params"] * table["unique_tokens"] * table["epochs"]),
        runs=len(table),
        single_epoch_runs=int(single.sum()),
        multi_epoch_runs=int((~single).sum()),
    )


def _range(column: pd.Series) -> tuple[float, float]:
    return float(column.min()), float(column.max())


def _parameters(law: Law) -> dict[str, list[float]]:
    return {name: _digits(values) for name, values in law.parameters.items()}


def _others(law: Law, over_all: Law) -> dict[str, list[float]]:
    """The parameters of the second that are not those of the first."""
    first = _parameters(law)
    return {name: values for name, values in _parameters(over_all).items() if values != first[name]}


def _digits(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


# -- what came from where ------------------------------------------------------------------------------------


def _learnt(found: Pooled, decay: float) -> dict[str, float]:
    """The share of what was unknown of each part of the law that the runs have settled."""
    form = DEFAULT_FORM if DEFAULT_FORM in found.posteriors else next(iter(found.weights))
    belief = found.posteriors[form][decay]
    before = Normal(found.prior.mean(form), found.prior.covariance(form))
    left = np.diagonal(belief.covariance) / np.diagonal(before.covariance)
    names = parameter_names(form)
    groups = {**_GROUPS, _REPETITION: tuple(n for n in names if n not in sum(_GROUPS.values(), ()))}
    shares = {
        group: 1 - float(np.mean([left[names.index(name)] for name in members]))
        for group, members in groups.items()
        if members
    }
    return {group: float(f"{min(max(share, 0.0), 1.0):.3g}") for group, share in shares.items()}


def _record(found: Pooled, decay: float, runs: pd.DataFrame, learnt: Mapping[str, float]) -> dict[str, Any]:
    heaviest = max(found.weights, key=found.weights.__getitem__)
    belief = found.posteriors[heaviest][decay]
    noise, misfit = (
        float(np.exp(belief.weights @ np.log(values)))
        for values in (belief.seen.doubts.noise, belief.seen.doubts.misfit)
    )
    names = runs["run"].tolist() if "run" in runs else [str(i) for i in range(len(runs))]
    return {
        "objective": "posterior of ln(loss) with a prior, a smooth misfit and noise",
        "prior": found.prior.name,
        "learnt_from_runs": dict(learnt),
        "noise": float(f"{noise:.3g}"),
        "noise_repeated": float(f"{noise * found.ratio:.3g}"),
        "misfit": float(f"{misfit:.3g}"),
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


def _reason(found: Pooled) -> str:
    ordered = sorted(found.weights.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{form} {weight:.0%}" for form, weight in ordered[:4])
    more = f" and {len(ordered) - 4} more" if len(ordered) > 4 else ""
    aside = (
        f" ({', '.join(found.set_aside)} left out: fitted on some of these runs)" if found.set_aside else ""
    )
    count = f"the average of {len(ordered)} forms: " * (len(ordered) > 1)
    return f"{count}{shown}{more}; prior {found.prior.name}{aside}."


def _warnings(found: Pooled, decay: float, runs: pd.DataFrame, learnt: Mapping[str, float]) -> list[str]:
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
    return lacking[0].advice if lacking else "more runs, larger ones above all, would replace it"


def _odd(runs: pd.DataFrame) -> list[str]:
    """Losses that hardly differ; `slips` looks for copies and for pure noise."""
    texts = []
    low, high = runs["loss"].min(), runs["loss"].max()
    if len(runs) > FEWEST_RUNS and high / low < 1.005:
        texts.append(
            f"all losses are within {high / low - 1:.2%} of each other: they hardly tell size from data "
            f"(runs from {short(runs['params'].min())} to {short(runs['params'].max())} parameters)."
        )
    return texts
