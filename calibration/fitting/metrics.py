"""How well a fitted form does: in sample, per parameter it costs, and on cells that it has not seen."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erf

from calibration.fitting.coordinates import Array
from calibration.fitting.huber import Fits, Progress, fit_forms, huber, refit, with_joint_base
from calibration.fitting.identify import is_identified
from planner.laws import BASE_FORM, Law, parameter_names

MOST_WRONG = 0.5  # in ln(loss): a prediction that is wrong by two thirds is useless, by however much more


def metrics(fits: Fits, form: str, held_out: Array | None = None) -> dict[str, float | None]:
    """R^2 on the loss, Huber sum, AICc, and the mean absolute error of ln(loss) in left-out cells."""
    fit, runs = fits.forms[form], fits.runs
    predicted = fits.log_prediction(form, fit.base, fit.repetition)
    single = runs.single
    objective = float(huber(predicted - runs.ln_loss, fits.delta).sum())
    figures: dict[str, float | None] = {
        "r2": r_squared(runs.loss, np.exp(predicted)),
        "r2_multi": r_squared(runs.loss[~single], np.exp(predicted[~single])),
        "r2_single": r_squared(runs.loss[single], np.exp(predicted[single])),
        "huber": objective,
        "aicc": aicc(objective, len(runs), len(parameter_names(form)), fits.delta),
    }
    if held_out is not None:
        judged = ~np.isnan(held_out)
        figures["held_out_error"] = _mean_error(held_out[judged])
        figures["held_out_error_multi"] = _mean_error(held_out[judged & ~single])
        figures["held_out_cells"] = float(len(np.unique(runs.cells[judged])))
    return figures


def capped(residual: Array) -> Array:
    """|ln(predicted / observed)|, at most `MOST_WRONG`: one run missed by far must not decide over all."""
    return np.asarray(np.minimum(np.abs(residual), MOST_WRONG))


def _mean_error(residual: Array) -> float | None:
    return float(np.mean(capped(residual))) if len(residual) else None


def r_squared(observed: Array, predicted: Array) -> float | None:
    """1 - residual over total sum of squares; None where the observed values do not vary."""
    total = float(((observed - observed.mean()) ** 2).sum()) if len(observed) else 0.0
    return 1 - float(((observed - predicted) ** 2).sum()) / total if total > 0 else None


def aicc(objective: float, n: int, parameters: int, delta: float) -> float | None:
    """Corrected Akaike criterion under the objective's own error density, proportional to exp(-rho / tau).

    tau is the noise scale, estimated like a parameter. None where there are too few runs for the correction.
    """
    k = parameters + 1
    if n <= k + 1 or objective <= 0:
        return None

    def deviance(ln_tau: float) -> float:
        tau = float(np.exp(ln_tau))
        core = np.sqrt(2 * np.pi * tau) * erf(delta / np.sqrt(2 * tau))
        tails = 2 * tau / delta * np.exp(-(delta**2) / (2 * tau))
        return 2 * n * float(np.log(core + tails)) + 2 * objective / tau

    centre = np.log(objective / n)
    best = minimize_scalar(deviance, bounds=(centre - 10, centre + 10), method="bounded")
    return float(best.fun) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def held_out_residuals(fits: Fits, progress: Progress | None = None) -> dict[str, Array]:
    """ln(predicted / observed) of every run by the law that was fitted without the run's (size, budget) cell.

    A fit that does not converge from the fit at hand is made from all starts; a cell without which one of the
    forms still does not converge counts for none of them: NaN.
    """
    runs = fits.runs
    cells = np.unique(runs.cells)
    weights = (runs.cells[None] != cells[:, None]).astype(float)
    again = refit(fits, weights=weights, progress=progress)
    own = np.searchsorted(cells, runs.cells)
    everyone = np.arange(len(runs))
    predicted = {
        form: fits.log_prediction(form, refits.base, refits.repetition) for form, refits in again.items()
    }
    found = {form: values[own, everyone] - runs.ln_loss for form, values in predicted.items()}
    found = {
        form: np.where(np.isnan(values), np.inf, values) for form, values in found.items()
    }  # ran away: as wrong as can be
    converged = np.logical_and.reduce([refits.converged for refits in again.values()])
    for done, i in enumerate(np.flatnonzero(~converged)):
        if progress is not None:
            progress("left-out cells", done / int((~converged).sum()))
        rows = own == i
        alone = _without(fits, rows)
        for form in found:
            found[form][rows] = np.nan if alone is None else alone[form] - runs.ln_loss[rows]
    return found


def _without(fits: Fits, rows: Array) -> dict[str, Array] | None:
    """ln(predicted loss) of these runs by every form fitted to the others; None unless all forms converge."""
    runs = fits.runs
    where = np.exp(runs.ln_params), np.exp(runs.ln_unique), 1 + runs.repeats
    rest = np.column_stack(where)[~rows]
    if not all(is_identified(rest, form) for form in fits.forms):
        return None
    alone = fit_forms(runs.pick(~rows), list(fits.forms), delta=fits.delta, joint=fits.joint)
    if fits.forms[BASE_FORM].on_all_runs:
        alone = with_joint_base(alone)
    if not all(fit.optimum.converged for fit in alone.forms.values()):
        return None
    here = [values[rows] for values in where]
    with np.errstate(all="ignore"):
        return {form: np.log(Law(form, fit.parameters).loss(*here)) for form, fit in alone.forms.items()}
