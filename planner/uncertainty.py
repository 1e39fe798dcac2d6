"""Intervals from a calibration's bootstrap ensemble, and plain words where a plan leaves the fitted range."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.allocation import allocate
from planner.calibration import Setting
from planner.crossings import landscape, search_range
from planner.laws import Law
from planner.results import Interval
from planner.units import short

LEVEL = 0.95
_NO_ENSEMBLE = "no uncertainty was published with this calibration, so no interval can be given"
_SLOW_FIGURES = 200  # refits used for figures that need a whole curve per refit


def interval_note(setting: Setting, form: str) -> str:
    """How the intervals were made, or that there are none."""
    members = setting.ensemble_law(form)
    if members is None or setting.ensemble is None:
        return _NO_ENSEMBLE
    return f"{LEVEL:.0%} of {len(next(iter(members.parameters.values())))} refits ({setting.ensemble.method})"


def interval(values: Any) -> Interval | None:
    """The central 95% of the finite values, or None if fewer than half are finite."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    if len(finite) < max(2, 0.5 * np.size(values)):
        return None
    low, median, high = np.quantile(finite, [0.5 - LEVEL / 2, 0.5, 0.5 + LEVEL / 2])
    return Interval(low=float(low), median=float(median), high=float(high))


def loss_intervals(members: Law, params: float, ud: float, epochs: float) -> dict[str, Interval]:
    """Intervals of loss, perplexity and each loss term of one configuration."""
    terms = members.terms(params, ud, epochs)
    figures = {"loss": terms.loss, "perplexity": np.exp(terms.loss), **terms._asdict()}
    return _known(figures)


def plan_intervals(members: Law, ud: float, flops: float, **how: Any) -> dict[str, Interval]:
    """Intervals of what is decided on: the size, epochs and tokens each refit would have recommended."""
    best = allocate(members, ud, flops, **how)
    along = _curves(members, ud)
    top, bottom = np.argmax(along.epochs, axis=0), np.argmax(along.loss_slope >= 0, axis=0)
    inside = len(along.flops) - 1
    turning = np.where((top > 0) & (top < inside), along.flops[top, 0], np.nan)
    limit = np.where(bottom > 0, along.flops[bottom, 0], np.nan)
    figures = {"params": best.params, "epochs": best.epochs, "tokens": best.tokens}
    return _known({**figures, "turning_flops": turning, "spending_limit_flops": limit})


def crossover_interval(weaker: Law, stronger: Law, ud: float, centre: float | None, **how: Any) -> Interval | None:
    """Interval of the crossover nearest to `centre`, one refit of each setting at a time, by bisection of all at once."""
    if centre is None:
        return None
    size = min(len(next(iter(law.parameters.values()))) for law in (weaker, stronger))
    weaker, stronger = weaker.member(slice(size)), stronger.member(slice(size))

    def stronger_wins(ln_flops: np.ndarray) -> np.ndarray:
        flops = np.exp(ln_flops)
        return allocate(stronger, ud, flops, **how).loss < allocate(weaker, ud, flops, **how).loss

    low, high = np.full(size, np.log(centre) - np.log(100)), np.full(size, np.log(centre) + np.log(100))
    crosses = ~stronger_wins(low) & stronger_wins(high)
    for _ in range(14):  # ends below 0.1%
        middle = 0.5 * (low + high)
        above = stronger_wins(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return interval(np.where(crosses, np.exp(0.5 * (low + high)), np.nan))


def range_warnings(setting: Setting, params: float, unique_tokens: float, epochs: float) -> list[str]:
    """One sentence for each quantity that lies outside of what the law was fitted on, with by how much."""
    fitted = setting.fitted_on
    texts = []
    for name, value, (low, high) in (
        ("model size", params, fitted.params),
        ("unique tokens", unique_tokens, fitted.unique_tokens),
        ("epochs", epochs, fitted.epochs),
    ):
        if name == "epochs" and value <= high:
            continue  # below one epoch nothing repeats: that is inside every fit
        factor = value / high if value > high else low / value
        if factor > 1.005:
            side, edge = ("above the largest", high) if value > high else ("below the smallest", low)
            said = f"{value:.3g}" if name == "epochs" else short(value)
            bound = f"{edge:.3g}" if name == "epochs" else short(edge)
            texts.append(
                f"{name} {said} is {_times(factor)} {side} that the law was fitted on ({bound}): this is an extrapolation."
            )
    return texts


def _times(factor: float) -> str:
    return f"{factor - 1:.0%}" if factor < 2 else f"{factor:.3g} times"


def _curves(members: Law, ud: float) -> Any:
    few = members.member(slice(_SLOW_FIGURES))
    flops = search_range(few.member(0), ud)[:, None]
    return landscape(few, ud, flops)


def _known(figures: dict[str, Any]) -> dict[str, Interval]:
    found = {name: interval(values) for name, values in figures.items()}
    return {name: value for name, value in found.items() if value is not None}
