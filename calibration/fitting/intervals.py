"""Intervals of what people decide on, from the draws that a setting keeps."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.calibration import Setting
from planner.inputs import CONTINUOUS, InvalidInput, Limits
from planner.laws import Law
from planner.results import Interval
from planner.solve import allocate
from planner.uncertainty import LEVEL, interval, with_discrepancy


def deviation(values: Any) -> float:
    """The median absolute deviation of the finite values."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return float(np.median(np.abs(finite - np.median(finite))))


def draws(setting: Setting, form: str, of_losses: bool = False) -> Law:
    """The draws of a form, or an error that says how to get one."""
    found = setting.law_draws(form, of_losses=True) if of_losses else setting.law_draws(form)
    if found is None:
        raise InvalidInput(
            f"no draws of {form} at weight decay {setting.weight_decay:g}; "
            f"a fit with ‹bootstrap› 1000 has intervals."
        )
    return found


def parameter_intervals(setting: Setting, form: str, level: float = LEVEL) -> dict[str, Interval]:
    """Intervals of the parameters of a form."""
    found = {name: interval(values, level) for name, values in draws(setting, form).parameters.items()}
    return {name: value for name, value in found.items() if value is not None}


def loss_interval(
    setting: Setting, form: str, params: float, ud: float, epochs: float, level: float = LEVEL
) -> Interval | None:
    """Interval of the predicted loss of one configuration."""
    return interval(_losses(setting, form, params, ud, epochs), level)


def allocation_intervals(
    setting: Setting, form: str, ud: float, flops: float, level: float = LEVEL, limits: Limits = CONTINUOUS
) -> dict[str, Interval]:
    """Intervals of the optimal size, epochs (by default continuous), tokens and loss at one budget."""
    best = allocate(draws(setting, form), ud, flops, limits)
    values = {**best._asdict(), "loss": _losses(setting, form, best.params, ud, best.epochs)}
    found = {name: interval(each, level) for name, each in values.items()}
    return {name: value for name, value in found.items() if value is not None}


def _losses(setting: Setting, form: str, params: Any, ud: float, epochs: Any) -> np.ndarray:
    """What each refit loses with a configuration, or with one of its own."""
    terms = draws(setting, form, of_losses=True).terms(params, ud, epochs)
    with np.errstate(over="ignore"):
        return with_discrepancy(np.asarray(terms.loss), terms.irreducible, setting.discrepancy(form))
