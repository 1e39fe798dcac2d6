"""Intervals from a calibration's bootstrap ensemble, and plain words where a plan leaves the fitted range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.advice import flat_range, spending_limit, turning_point
from planner.allocation import allocate
from planner.calibration_files import Calibration, Setting
from planner.intervals import LEVEL, interval
from planner.landscape import landscape, search_range
from planner.laws import Law
from planner.limits import Limits
from planner.remarks import Remark
from planner.results import Alternative, Interval
from planner.units import short

_NO_ENSEMBLE = "no uncertainty was published with this calibration, so no interval can be given"
_OUTSIDE = {
    "model size": "outside_params",
    "unique tokens": "outside_unique_tokens",
    "number of epochs": "outside_epochs",
}
_CURVES = 100  # refits used for figures that need a search along compute for each refit


def interval_note(known: Calibration, setting: Setting, form: str) -> str:
    """How the intervals were made, or that there are none."""
    members = setting.ensemble_law(form)
    if members is not None and setting.ensemble is not None:
        size = _size(members)
        some = f"; turning point, spending limit and flat range from the first {_CURVES}"
        some = some if size > _CURVES else ""
        return f"intervals hold {LEVEL:.0%} of {size:,} refits ({setting.ensemble.method}){some}"
    if all(one.ensemble is None for one in known.settings):
        return _NO_ENSEMBLE
    where = f"{form} at weight decay {setting.weight_decay}"
    return f"this calibration has no refits of {where}, so no interval can be given"


def loss_intervals(members: Law, params: float, ud: float, epochs: float) -> dict[str, Interval]:
    """Intervals of loss, perplexity and each loss term of one configuration."""
    terms = members.terms(params, ud, epochs)
    with np.errstate(over="ignore"):
        return _known({"loss": terms.loss, "perplexity": np.exp(terms.loss), **terms._asdict()})


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
    best = allocate(members, ud, flops, limits)
    data, compute = (
        allocate(members, u, c, limits).loss - best.loss for u, c in ((2 * ud, flops), (ud, 2 * flops))
    )
    if limits.ceiling:  # nobody has to use it
        data, compute = np.minimum(data, 0.0), np.minimum(compute, 0.0)
    figures = {"params": best.params, "epochs": best.epochs, "tokens": best.tokens}
    figures |= {"loss_if_twice_the_data": data, "loss_if_twice_the_compute": compute}
    figures |= {f"regret_{row.law}": members.loss(row.params, ud, row.epochs) - best.loss for row in others}
    rows = [
        _advice_figures(
            members.member(i), ud, flops, float(best.epochs[i]), float(best.loss[i]), tolerance, limits
        )
        for i in range(min(_size(members), _CURVES))
    ]
    return _known({**figures, **{name: np.array([row[name] for row in rows]) for name in rows[0]}})


def _advice_figures(
    law: Law, ud: float, flops: float, epochs: float, loss: float, tolerance: float, limits: Limits
) -> dict[str, float]:
    """The figures of the advice that one refit would have given."""
    along = landscape(law, ud, search_range(law, ud, flops), limits)
    turn, limit = turning_point(law, ud, along, limits), spending_limit(law, ud, along, limits)
    flat = flat_range(law, ud, flops, epochs, loss, tolerance, limits)
    return {
        "turning_flops": turn.flops if turn else np.nan,
        "turning_epochs": turn.epochs if turn else np.nan,
        "spending_limit_flops": limit.best.flops if limit else np.nan,
        "spending_limit_loss": limit.best.loss if limit else np.nan,
        "flat_epochs_min": flat.epochs[0],
        "flat_epochs_max": flat.epochs[1],
        "flat_params_min": flat.params[0],
        "flat_params_max": flat.params[1],
    }


def crossover_interval(
    weaker: Law, stronger: Law, ud: float, between: tuple[float, float], limits: Limits
) -> tuple[Interval | None, float]:
    """Interval of the crossover between two computes, and the share of refits that cross there.

    One refit of each setting at a time, by bisection of all at once.
    """
    size = min(_size(weaker), _size(stronger))
    weaker, stronger = weaker.member(slice(size)), stronger.member(slice(size))

    def stronger_wins(ln_flops: np.ndarray) -> np.ndarray:
        flops = np.exp(ln_flops)
        wins: np.ndarray = (
            allocate(stronger, ud, flops, limits).loss < allocate(weaker, ud, flops, limits).loss
        )
        return wins

    low, high = (np.full(size, np.log(end)) for end in between)
    crosses = ~stronger_wins(low) & stronger_wins(high)
    for _ in range(14):  # ends below 0.1%
        middle = 0.5 * (low + high)
        above = stronger_wins(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return interval(np.where(crosses, np.exp(0.5 * (low + high)), np.nan)), float(crosses.mean())


def range_warnings(setting: Setting, params: float, unique_tokens: float, epochs: float) -> list[Remark]:
    """One sentence for each quantity that lies outside of what the law was fitted on, with by how much."""
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
    said_of: dict[str, Remark] = {}
    for name, value, fitted_range, what in checks:
        far = _far_from(value, fitted_range)
        if far is None or name in said_of:
            continue
        edge = fitted_range[value > fitted_range[1]]
        said, bound = (f"{x:,.0f}" if name == "number of epochs" else short(x) for x in (value, edge))
        text = f"{name} {said} is {far} that {what} was fitted on ({bound}): this is an extrapolation."
        said_of[name] = Remark(_OUTSIDE[name], text)
    return list(said_of.values())


def _far_from(value: float, fitted: tuple[float, float]) -> str | None:
    """How far a value is outside of what was fitted, in words; None: it is not."""
    low, high = fitted
    above = value > high
    factor = value / high if above else low / value
    if factor <= 1.005:
        return None
    if factor >= 2:
        return f"{factor:.3g} times the largest" if above else f"{factor:.3g} times below the smallest"
    return f"{factor - 1:.0%} above the largest" if above else f"{1 - 1 / factor:.0%} below the smallest"


def _size(members: Law) -> int:
    return len(next(iter(members.parameters.values())))


def _known(figures: dict[str, Any]) -> dict[str, Interval]:
    found = {name: interval(values) for name, values in figures.items()}
    return {name: value for name, value in found.items() if value is not None}
