r"""How well law forms predict beyond the runs that they were fitted on, by direction: larger models, more
compute, more epochs, more data.

A table is cut along one quantity: the smallest share of its runs is what a law may see, the repeated runs
beyond are what it is tried on. **Runs that tie with the last one of the share belong to the part that is
seen**; computes within 10% are one budget, as in `backtest`, the other quantities tie within 2%. The error
is the root mean square of ln(predicted / observed) over the repeated runs beyond the cut.

Which form to trust in a direction is asked of the part that is seen alone: it is cut again in the same
direction at several places (`INNER`), every form is fitted to what lies below and tried on what lies above.
The geometric mean of its errors is its skill there. Small models cannot say what large ones do, so the skill
that a form had in the same direction on *other* tables counts as much:

    w  ~  (error / smallest error)^-8  x  (the same, geometric mean over other tables)^-8,

each the likelihood of eight independent errors whose size is not known; forms below a hundredth of the best
are dropped. "cells" is the direction of no extrapolation at all: (size, data) cells are left out in five
turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibration.fitting.identify import is_identified
from calibration.fitting.objective import Array
from calibration.fitting.runs import Runs
from calibration.fitting.stages import Fits, fit_forms, refit
from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.laws import BASE_FORM, Law

CELLS = "cells"
DIRECTIONS: dict[str, float] = {"size": 0.6, "compute": 0.7, "epochs": 0.7, "data": 0.6}  # share that is seen
INNER = (0.5, 0.6, 0.7, 0.8)
STARTS = 24  # of each fit
_TIES = {"size": 0.02, "compute": 0.1, "epochs": 0.02, "data": 0.02}
_ALIKE = 8.0  # exponent of the weights
_LEAST = 0.01
_FEWEST = 4  # repeated runs beyond a cut, below which it is none
_FOLDS = 5
_EXACT = 1e-6  # an error that is none

_ALONG: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "size": lambda table: table["params"],
    "compute": lambda table: (
        FLOPS_PER_PARAM_TOKEN * table["params"] * table["unique_tokens"] * table["epochs"]
    ),
    "epochs": lambda table: table["epochs"],
    "data": lambda table: table["unique_tokens"],
}


@dataclass(frozen=True)
class Manner:
    """How forms are fitted here."""

    joint: bool = True
    delta: float | str = "noise"

    def fits(self, table: pd.DataFrame, forms: Iterable[str]) -> Fits:
        return fit_forms(Runs.of(table), forms, joint=self.joint, delta=self.delta, most_starts=STARTS)


def along(table: pd.DataFrame, direction: str) -> Array:
    """What grows in this direction, for every run."""
    return _ALONG[direction](table).to_numpy(dtype=float)


def seen(table: pd.DataFrame, direction: str, share: float) -> Array:
    """The smallest share of the runs, ties with the last one included."""
    values = along(table, direction)
    last = np.sort(values)[max(int(np.ceil(share * len(values))), 1) - 1]
    return np.asarray(values <= last * (1 + _TIES[direction]))


def parts(table: pd.DataFrame, direction: str, share: float) -> tuple[Array, Array] | None:
    """Which runs are seen and which are tried, if there are enough of both."""
    below = seen(table, direction, share)
    tried = ~below & (table["epochs"].to_numpy(dtype=float) > 1)
    return (below, tried) if tried.sum() >= _FEWEST and _usable(table[below]) else None


def _usable(table: pd.DataFrame) -> bool:
    """Whether a base law and something about repetition can be read off these runs."""
    places = table[["params", "unique_tokens", "epochs"]].to_numpy(dtype=float)
    return is_identified(places, "additive_1p")


def skills(fits: Fits, table: pd.DataFrame, direction: str) -> dict[str, float]:
    """The error of every form beyond cuts of this very table in the direction: the geometric mean over the
    cuts of the root mean square of ln(loss).

    `fits` are those of the whole table, from which the others start. Empty where no cut leaves enough runs.
    """
    cuts = list(_inner(table, direction))
    if not cuts:
        return {}
    weights = np.array([below for below, _ in cuts], dtype=float)
    again = refit(fits, weights=weights)
    found = {}
    for form, refits in again.items():
        predicted = fits.log_prediction(form, refits.base, refits.repetition)
        errors = [
            np.sqrt(np.mean((row[tried] - fits.runs.ln_loss[tried]) ** 2))
            for row, (_, tried) in zip(predicted, cuts, strict=True)
        ]
        found[form] = float(np.exp(np.mean(np.log(np.maximum(errors, _EXACT)))))
    return found


def _inner(table: pd.DataFrame, direction: str) -> Iterable[tuple[Array, Array]]:
    repeated = table["epochs"].to_numpy(dtype=float) > 1
    if direction == CELLS:
        cells = Runs.of(table).cells
        for fold in range(_FOLDS):
            out = cells % _FOLDS == fold
            if (out & repeated).any() and _usable(table[~out]):
                yield ~out, out & repeated
        return
    before: Array | None = None
    for share in INNER:
        found = parts(table, direction, share)
        if found is not None and (before is None or (found[0] != before).any()):
            before = found[0]
            yield found


def weights_of(
    errors: Mapping[str, float], elsewhere: Sequence[Mapping[str, float]] = ()
) -> dict[str, float]:
    """How much each form counts, from its errors here and on other tables: they sum to one.

    A form that another table says nothing about counts there as the middle of those that it does.
    """
    usable = [form for form, error in errors.items() if np.isfinite(error)]
    if not usable:
        return {}
    behind = _behind([errors[form] for form in usable])
    if elsewhere:
        behind = behind + np.mean(
            [_behind([other.get(form) for form in usable]) for other in elsewhere], axis=0
        )
    raw = np.exp(-_ALIKE * (behind - behind.min()))
    raw[raw < _LEAST] = 0.0
    found = dict(zip(usable, (raw / raw.sum()).tolist(), strict=True))
    return {form: value for form, value in sorted(found.items(), key=lambda item: -item[1]) if value > 0}


def _behind(errors: Sequence[float | None]) -> Array:
    """ln of each error over the smallest."""
    known = np.array([np.nan if error is None else np.log(max(error, _EXACT)) for error in errors])
    if np.isnan(known).all():
        return np.zeros(len(known))
    filled = np.where(np.isnan(known), np.nanmedian(known), known)
    return np.asarray(filled - np.nanmin(known))


def ln_losses(fits: Fits, places: Array) -> dict[str, Array]:
    """What every form predicts at rows of (params, unique tokens, epochs)."""
    with np.errstate(all="ignore"):
        return {
            form: np.log(Law(form, fit.parameters).loss(*places.T))
            for form, fit in fits.forms.items()
            if form == BASE_FORM or np.isfinite(fit.optimum.value)
        }


def averaged(predicted: Mapping[str, Array], weights: Mapping[str, float]) -> Array:
    """The weighted mean of ln(loss)."""
    return np.asarray(sum(weight * predicted[form] for form, weight in weights.items()))
