"""Which forms to trust beyond the runs, asked of three witnesses.

The error is the root mean square of ln(predicted / observed) over the repeated runs beyond a cut. Each
witness counts to the power of -8 (the likelihood of eight independent errors whose size is not known):

    w  ~  (error in sample)^-8  x  (error in cells left out)^-8  x  (error in this direction elsewhere)^-8

The first two are of the part that is seen: which forms describe these runs at all, and which of them do so
for (size, data) cells that were left out in five turns. The third is of other tables, each form's error over
the smallest of its match, geometric mean: small models cannot say what large ones do. To cut the seen part
again in the same direction was tried and is worse than not to. Forms below a hundredth of the best are
dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from extrapolation import usable

from calibration.fitting.huber import Fits, fit_forms, refit
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.solver import Array
from planner.laws import BASE_FORM, Law

STARTS = 24  # of each fit
_ALIKE = 8.0  # exponent of the weights
_LEAST = 0.01
_FOLDS = 5
_EXACT = 1e-6  # an error that is none


@dataclass(frozen=True)
class FitMethod:
    """How forms are fitted here."""

    joint: bool = True
    delta: float | str = "noise"

    def fits(self, table: pd.DataFrame, forms: Iterable[str]) -> Fits:
        return fit_forms(Runs.of(table), forms, joint=self.joint, delta=self.delta, most_starts=STARTS)


def in_sample_errors(fits: Fits) -> dict[str, float]:
    """The error of every form on the repeated runs that it was fitted to."""
    runs = fits.runs
    found = {}
    for form, fit in fits.forms.items():
        residuals = fits.log_prediction(form, fit.theta) - runs.ln_loss
        found[form] = error_of(residuals[~runs.single])
    return found


def left_out(fits: Fits, table: pd.DataFrame) -> dict[str, float]:
    """The error of every form on repeated runs of cells that it was not fitted to, in five turns.

    `fits` are those of the whole table, from which the others start. Empty where nothing can be left out.
    """
    runs = fits.runs
    turns = [runs.cells % _FOLDS == fold for fold in range(_FOLDS)]
    turns = [out for out in turns if (out & ~runs.single).any() and usable(table[~out])]
    if not turns:
        return {}
    again = refit(fits, weights=1.0 - np.array(turns, dtype=float))
    found = {}
    for form, refits in again.items():
        predicted = fits.log_prediction(form, refits.theta)
        errors = [
            error_of((row - runs.ln_loss)[out & ~runs.single])
            for row, out in zip(predicted, turns, strict=True)
        ]
        found[form] = float(np.exp(np.mean(np.log(np.maximum(errors, _EXACT)))))
    return found


def error_of(residuals: Array) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(residuals**2)))


def weights_of(
    here: Sequence[Mapping[str, float]], elsewhere: Sequence[Mapping[str, float]] = ()
) -> dict[str, float]:
    """How much each form counts, from its errors by several witnesses here and on other tables: they sum to
    one.

    Only forms of which every witness here says something count; one that another table says nothing about
    stands there in the middle of those that it does.
    """
    witnesses = [errors for errors in here if errors]
    usable = _known_to_all(witnesses)
    if not usable:
        return {}
    behind = np.sum([_behind([errors[form] for form in usable]) for errors in witnesses], axis=0)
    if elsewhere:
        others = [_behind([other.get(form) for form in usable]) for other in elsewhere]
        behind = behind + np.mean(others, axis=0)
    raw = np.exp(-_ALIKE * (behind - behind.min()))
    raw[raw < _LEAST] = 0.0
    found = dict(zip(usable, (raw / raw.sum()).tolist(), strict=True))
    return {form: value for form, value in sorted(found.items(), key=lambda item: -item[1]) if value > 0}


def _known_to_all(witnesses: Sequence[Mapping[str, float]]) -> list[str]:
    first: Iterable[str] = witnesses[0] if witnesses else ()
    return [form for form in first if all(np.isfinite(each.get(form, np.inf)) for each in witnesses)]


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


def weighted_mean(predicted: Mapping[str, Array], weights: Mapping[str, float]) -> Array:
    """The weighted mean of ln(loss)."""
    return np.asarray(sum(weight * predicted[form] for form, weight in weights.items()))
