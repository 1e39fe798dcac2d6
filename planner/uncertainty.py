"""Intervals from a calibration's bootstrap ensemble, and plain words where a plan leaves the fitted range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.advice import flat_epochs, spending_limits, turning_points
from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.calibration_files import DEFAULT_TOLERANCE, Calibration, Setting
from planner.crossings import Pairs, meeting_point
from planner.evidence import untried
from planner.intervals import LEVEL, SURE, interval, sure_width
from planner.landscape import Landscape, landscape, search_ranges, within_search
from planner.laws import Law, Mixture, belonging
from planner.limits import Limits
from planner.memo import memoize
from planner.records import made
from planner.remarks import Remark
from planner.results import Alternative, Interval, LossRange
from planner.units import short

_NO_ENSEMBLE = "no uncertainty was published with this calibration, so no interval can be given"
_OUTSIDE = {
    "model size": "outside_params",
    "unique tokens": "outside_unique_tokens",
    "number of epochs": "outside_epochs",
}
_CURVES = 100  # refits used for figures that need a search along compute for each refit
_CLOSE_ENOUGH = 1e-3  # the last step towards a crossing, in ln(flops); its error is about the square of that
_PER_DECADE = 4  # computes looked at in that search: what is found is polished


def interval_note(known: Calibration, setting: Setting, form: str) -> str | None:
    """How the intervals were made, or why there is none; nothing where the law's error makes one."""
    members = setting.ensemble_law(form)
    if members is not None and setting.ensemble is not None:
        size = _size(members)
        some = f"; turning point, spending limit and flat range from the first {_CURVES}"
        some = some if size > _CURVES else ""
        return f"intervals hold {LEVEL:.0%} of {size:,} refits ({setting.ensemble.method}){some}"
    if setting.measured(form) is not None:
        return None
    if all(one.ensemble is None for one in known.settings):
        return _NO_ENSEMBLE
    where = f"{form} at weight decay {setting.weight_decay}"
    return f"this calibration has no refits of {where}, so no interval can be given"


def loss_range(
    known: Calibration,
    setting: Setting,
    form: str,
    place: tuple[float, float, float],
    loss: float,
    error: float,
) -> LossRange | None:
    """Between which losses a prediction with this error puts a run; None where no error was measured."""
    measured = setting.measured(form)
    if measured is None:
        return None
    width = sure_width(measured.runs) * error
    return made(
        LossRange,
        error=error,
        runs=measured.runs,
        level=SURE,
        loss_low=loss - width,
        loss_high=loss + width,
        untried=untried(known, setting, *place),
    )


def loss_error(
    known: Calibration,
    setting: Setting,
    form: str,
    place: tuple[float, float, float],
    members: int = 1,
    tolerance: float = DEFAULT_TOLERANCE,
) -> float:
    """The error of the loss predicted for a configuration: the law's own (`tolerance` where none was
    measured) and, where several such models are averaged, that of what averaging gains.
    """
    error = float(setting.error(form, tolerance)(*place))
    return error if members == 1 or known.members is None else math.hypot(error, known.members.error)


def loss_intervals(
    setting: Setting,
    form: str,
    params: float,
    ud: float,
    epochs: float,
    guessing: float = np.inf,
    gain: float = 0.0,
) -> dict[str, Interval] | None:
    """Intervals of loss, perplexity and each loss term of one configuration, where there are refits.

    Nothing loses more than `guessing` does, unless the law itself says so. Averaging several such models is
    taken to gain what it was fitted to `gain`; the terms are those of one.
    """
    members = setting.loss_ensemble(form)
    if members is None:
        return None
    terms = members.terms(params, ud, epochs)
    most = max(guessing, float(setting.law(form).loss(params, ud, epochs)))
    with np.errstate(over="ignore"):
        loss = np.minimum(misfitting(np.asarray(terms.loss), terms.floor, setting.misfit(form)), most) - gain
        return _known({"loss": loss, "perplexity": np.exp(loss), **terms._asdict()})


def misfitting(loss: np.ndarray, floor: Any, misfit: np.ndarray | None) -> np.ndarray:
    """Losses of members that believe their forms to be off by so much of what is above the floor, if by
    anything.
    """
    return loss if misfit is None else np.asarray(loss * np.exp(misfit * (1 - floor / loss)))


def plan_intervals(
    members: Law,
    ud: float,
    flops: float,
    tolerance: float,
    others: Sequence[Alternative],
    limits: Limits,
) -> dict[str, Interval]:
    """Intervals of what is decided on: what each refit would have recommended, and what it says of other
    laws.
    """
    found = [_plan_figures(group, ud, flops, tolerance, others, limits) for group in _groups(members)]
    return _known({name: np.concatenate([one[name] for one in found]) for name in found[0]})


def intervals_elsewhere(
    figure: str, members: Law, others: Law | None, ud: float, flops: float, limits: Limits
) -> dict[str, Interval]:
    """Intervals of a figure of a plan that `others`, the refits of another weight decay, have: one refit of
    each at a time. Nothing where there are none.
    """
    if others is None:
        return {}
    if figure == "spending_limit":
        turns = [_turns(group, ud, _in_sight(group, ud, flops), limits) for group in _groups(others)]
        names = [name for name in turns[0] if name.startswith(figure)]
        return _known({name: np.concatenate([one[name] for one in turns]) for name in names})
    data, compute = (2.0, 1.0) if figure == "loss_if_twice_the_data" else (1.0, 2.0)
    changes = [
        allocate(other, data * ud, compute * flops, limits).loss - allocate(own, ud, flops, limits).loss
        for own, other in belonging((members, others))
    ]
    every = np.concatenate(changes) if changes else np.array([])
    return _known({figure: np.minimum(every, 0.0) if limits.ceiling else every})


@dataclass(frozen=True, eq=False)
class _Group:
    """Refits that are one ensemble, and some of them for what needs a search along compute for each: which,
    and the number of the form of each.
    """

    members: Law
    some: np.ndarray
    few: Law
    forms: np.ndarray


@memoize(64)
def _groups(members: Law) -> list[_Group]:
    share = min(1.0, _CURVES / members.members)
    if isinstance(members, Mixture):
        laws = [group.law for group in members.groups]
        firsts = members.first_of_each(share)
    else:
        first = np.arange(max(round(share * members.members), 1))
        laws, firsts = [members], [(first, np.zeros_like(first))]
    return [
        _Group(law, some, law.member(some), forms) for law, (some, forms) in zip(laws, firsts, strict=True)
    ]


def _plan_figures(
    group: _Group,
    ud: float,
    flops: float,
    tolerance: float,
    others: Sequence[Alternative],
    limits: Limits,
) -> dict[str, np.ndarray]:
    """The figures of each refit; those that need a search along compute of some of them only."""
    members, some = group.members, group.some
    corpora, computes = np.array([[ud], [2 * ud], [ud]]), np.array([[flops], [flops], [2 * flops]])
    params, epochs, tokens, losses = allocate(members, corpora, computes, limits)
    loss, (data, compute) = losses[0], losses[1:] - losses[0]
    if limits.ceiling:  # nobody has to use it
        data, compute = np.minimum(data, 0.0), np.minimum(compute, 0.0)
    figures = {"params": params[0], "epochs": epochs[0], "tokens": tokens[0]}
    figures |= {"loss_if_twice_the_data": data, "loss_if_twice_the_compute": compute}
    figures |= {f"regret_{row.law}": members.loss(row.params, ud, row.epochs) - loss for row in others}
    figures |= _turns(group, ud, _in_sight(group, ud, flops), limits)
    own = (epochs[0, some], loss[some])
    return {**figures, **_flat_figures(group.few, ud, flops, *own, tolerance, limits)}


def _in_sight(group: _Group, ud: float, flops: float) -> float | None:
    """What the search along compute has to include. Some refit may be so wild that a compute is not in sight;
    one of its order of magnitude will do.
    """
    return None if within_search(group.few, ud, flops) else 10.0 ** round(math.log10(flops))


@memoize(256)
def _turns(group: _Group, ud: float, include: float | None, limits: Limits) -> dict[str, np.ndarray]:
    """Where each refit turns and where it is lowest along compute, as far as its form is searched; `include`
    is a compute that must be in sight.
    """
    computes = search_ranges(group.few, ud, include, _PER_DECADE, group.forms)
    beyond = np.isnan(computes)
    computes[beyond] = np.nanmin(computes)
    found = landscape(group.few.member((slice(None), None)), ud, computes, limits, rough=True)
    along = Landscape(*(np.where(beyond, np.nan, values) for values in found))
    turns = turning_points(group.few, ud, along, limits)
    best = spending_limits(group.few, ud, along, limits)
    return {
        "turning_flops": turns.flops,
        "turning_epochs": turns.epochs,
        "spending_limit_flops": best.flops,
        "spending_limit_loss": best.loss,
    }


def _flat_figures(
    members: Law,
    ud: float,
    flops: float,
    epochs: np.ndarray,
    loss: np.ndarray,
    tolerance: float,
    limits: Limits,
) -> dict[str, np.ndarray]:
    """The flat range that each refit would have named, around its own plan with these epochs and loss."""
    low, high = flat_epochs(members, ud, flops, epochs, loss, tolerance, limits)
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    return {
        "flat_epochs_min": low,
        "flat_epochs_max": high,
        "flat_params_min": product / high,
        "flat_params_max": product / low,
    }


def crossover_interval(
    weaker: Law, stronger: Law, ud: float, between: tuple[float, float], limits: Limits
) -> tuple[Interval | None, float]:
    """Interval of the crossover between two computes, and the share of refits that cross there.

    One refit of each setting at a time, all at once.
    """
    pairs = belonging((weaker, stronger))
    places = np.concatenate([_crossings(one, other, ud, between, limits) for one, other in pairs])
    inside = np.isfinite(places)
    if isinstance(weaker, Mixture):  # draws that cross further out count where they are last seen
        places = np.clip(places, *between)
    return interval(places), float(np.mean(inside))


def _crossings(
    weaker: Law, stronger: Law, ud: float, between: tuple[float, float], limits: Limits
) -> np.ndarray:
    """Where each pair of refits crosses; infinite where that lies further out on one side, NaN where they
    cross the other way round.
    """
    ends = np.log(between)
    pairs = Pairs.of(weaker, stronger)
    at_ends = np.array([pairs.gaps(ud, end, limits) for end in between])
    rows = np.flatnonzero(~(at_ends[0] > 0) & (at_ends[1] > 0))
    start, low, high = (np.full(len(rows), end) for end in (ends.mean(), *ends))
    places = np.select([(at_ends > 0).all(axis=0), (at_ends <= 0).all(axis=0)], [-np.inf, np.inf], np.nan)
    if len(rows):
        found = meeting_point(pairs.some(rows), ud, (low, start, high), limits, _CLOSE_ENOUGH)
        places[rows] = np.exp(found)
    return places


def range_warnings(setting: Setting, params: float, unique_tokens: float, epochs: float) -> list[Remark]:
    """One sentence for each quantity that lies outside of what the law, or its cost of repetition, was fitted
    on, with by how much: of the two, outside of the one that it is further from.
    """
    fitted = setting.fitted_on
    checks = [
        ("model size", params, fitted.params, "the law"),
        ("unique tokens", unique_tokens, fitted.unique_tokens, "the law"),
    ]
    if epochs > fitted.epochs[1]:  # below one epoch nothing repeats: that is inside every fit
        checks.append(("number of epochs", epochs, fitted.epochs, "the law"))
    if epochs > 1:
        penalty = "the cost of repetition"
        sizes = fitted.repeated_params or fitted.params
        tokens = fitted.repeated_unique_tokens or fitted.unique_tokens
        checks += [("model size", params, sizes, penalty), ("unique tokens", unique_tokens, tokens, penalty)]
    worst: dict[str, tuple[float, Remark]] = {}
    for name, value, fitted_range, what in checks:
        factor, above = _outside_by(value, fitted_range), value > fitted_range[1]
        if factor <= max(1.005, worst[name][0] if name in worst else 0.0):
            continue
        edge = fitted_range[above]
        said, bound = (f"{x:,.0f}" if name == "number of epochs" else short(x) for x in (value, edge))
        text = f"{name} {said} is {_far(factor, above)} that {what} was fitted on ({bound})"
        worst[name] = factor, Remark(_OUTSIDE[name], f"{text}: this is an extrapolation.")
    return [remark for _, remark in worst.values()]


def _outside_by(value: float, known: tuple[float, float]) -> float:
    """How many times above or below a range a value is; inside it is at most one."""
    low, high = known
    return max(value / high, low / value)


def _far(factor: float, above: bool) -> str:
    """How far a value is outside of what was fitted, in words."""
    if factor >= 2:
        times = f"{factor:,.0f}" if factor >= 1000 else f"{factor:.3g}"
        return f"{times} times the largest" if above else f"{times} times below the smallest"
    return f"{factor - 1:.0%} above the largest" if above else f"{1 - 1 / factor:.0%} below the smallest"


def _size(members: Law) -> int:
    return members.members


def _known(figures: dict[str, Any]) -> dict[str, Interval]:
    found = {name: interval(values) for name, values in figures.items()}
    return {name: value for name, value in found.items() if value is not None}
