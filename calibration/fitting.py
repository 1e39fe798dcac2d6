r"""From a run table to a Calibration: two-phase or joint fits of all law forms, judged on runs they have not seen.

**Two phases**, as in the paper: Chinchilla on the single-epoch runs (324 starts), locked; then each repetition form on all
runs (7 to 160 starts). **Joint**: all parameters at once, started from the two-phase fit and from a grid.

Every form is refitted with each (size, budget) cell left out, and the form that predicts the left-out runs best is
recommended, whatever the in-sample fit says. A fit that did not reach an optimum, reached it from next to no start, or
ended on a bound is not a result: the form is reported as not identified, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.special import erf

from calibration.forms import (
    Runs,
    base_log_prediction,
    base_parameters,
    base_problem,
    joint_problem,
    repetition_problem,
    repetition_values,
)
from calibration.objective import Array, Problems, huber
from calibration.solver import Optimum, Solution, best_of, minimise
from planner.errors import InvalidInput
from planner.laws import BASE_PARAMETERS, FORMS, check_form, parameter_names, repetition_parameters

PAPER_DELTA = 1e-3
_TUNING = 1.345  # Huber's delta over sigma: 95% efficient where the noise is normal
_FEWEST_STARTS = 0.01  # share of the starts that must agree on the optimum
_FLAT = 0.01  # a direction is nearly flat where a whole unit along it costs less than this share of the objective

Progress = Callable[[str, float], None]  # what is being done, and the share done so far


@dataclass(frozen=True)
class FormFit:
    """One law form fitted to one setting."""

    form: str
    base: Array  # (5,)
    repetition: Array  # (p,)
    optimum: Optimum
    names: tuple[str, ...]  # of the optimum's parameters
    parameters: dict[str, float]

    @property
    def problem(self) -> str | None:
        """Why this fit identifies nothing, or None where it does."""
        best = self.optimum
        if not best.converged:
            return f"none of {best.starts} starts converged"
        if best.at_bound:
            return f"{' and '.join(self.names[i] for i in best.at_bound)} ran to the end of the range in which it was looked for"
        if best.share < _FEWEST_STARTS:
            return f"only {best.share:.1%} of {best.starts} starts agree on the best optimum"
        return None

    @property
    def flat(self) -> tuple[str, ...]:
        """Parameters along which the objective hardly changes."""
        best = self.optimum
        if not len(best.curvature) or 0.5 * best.curvature[0] > _FLAT:
            return ()
        return tuple(name for name, part in zip(self.names, np.abs(best.flat), strict=True) if part > 0.3)

    def convergence(self) -> dict[str, Any]:
        """How the fit converged, for people and files."""
        best = self.optimum
        return {
            "status": "not identified" if self.problem else "converged",
            "starts": best.starts,
            "share_at_optimum": round(best.share, 4),
            "gradient_norm": float(f"{best.gradient_norm:.2e}"),
            "iterations": best.iterations,
            "at_bound": [self.names[i] for i in best.at_bound],
            "nearly_flat": list(self.flat),
        }


class Refits(NamedTuple):
    """A form refitted under many weights or targets: parameter vectors and which of them converged."""

    base: Array  # (B, 5)
    repetition: Array  # (B, p)
    converged: Array  # (B,)


@dataclass(frozen=True)
class Fits:
    """All forms fitted to the runs of one setting."""

    runs: Runs
    delta: float
    joint: bool
    forms: dict[str, FormFit] = field(default_factory=dict)

    def log_prediction(self, form: str, base: Array, repetition: Array) -> Array:
        """ln of the predicted loss of all runs, (..., runs), from parameter vectors of the same leading shape."""
        if form == "chinchilla":
            return base_log_prediction(base, self.runs)
        model = repetition_problem(form, self.runs, base).model
        return model.log_prediction(np.atleast_2d(repetition)).reshape(*base.shape[:-1], len(self.runs))


def fit_forms(
    runs: Runs, laws: Sequence[str] = FORMS, *, delta: float | str = PAPER_DELTA, joint: bool = False, base: Array | None = None,
    progress: Progress | None = None,
) -> Fits:  # fmt: skip
    """Fit these forms to the runs of one weight decay. `base` locks a base law from elsewhere (see `forms.base_theta`)."""
    if isinstance(delta, str):
        delta = _delta_from_noise(runs)
    fits = Fits(runs, delta, joint)
    single = runs.single
    ones = np.ones(len(runs))
    free = base_problem(runs, single)
    _tell(progress, "base law", 0.0)
    if base is None:
        locked = best_of(Problems(free.model, runs.ln_loss[single], ones[single], delta), free.starts, free.bounds)
        base = locked.theta
    else:
        state = minimise(Problems(free.model, runs.ln_loss[single], ones[single], delta), base[None], free.bounds, max_iterations=1)
        locked = Optimum(base, float(state.value[0]), True, 0, 1.0, 0.0, (), np.empty(0), np.zeros(5), 0)
    for done, form in enumerate(dict.fromkeys(["chinchilla", *laws])):
        _tell(progress, form, (done + 1) / (len(laws) + 2))
        if form == "chinchilla":
            optimum, repetition, names = locked, np.empty(0), BASE_PARAMETERS
        else:
            free = repetition_problem(form, runs, base)
            optimum, names = best_of(Problems(free.model, runs.ln_loss, ones, delta), free.starts, free.bounds), free.names
            repetition = optimum.theta
        own = base
        if joint:
            free = joint_problem(form, runs, base, repetition)
            rows = single if form == "chinchilla" else slice(None)
            if form != "chinchilla":
                optimum, names = best_of(Problems(free.model, runs.ln_loss[rows], ones[rows], delta), free.starts, free.bounds), free.names
                own, repetition = optimum.theta[:5], optimum.theta[5:]
        fits.forms[form] = FormFit(form, own, repetition, optimum, names, _parameters(form, own, repetition, runs))
    return fits


def _parameters(form: str, base: Array, repetition: Array, runs: Runs) -> dict[str, Any]:
    values = {**base_parameters(base, runs), **(repetition_values(form, repetition, runs) if form != "chinchilla" else {})}
    return {name: float(values[name]) if np.ndim(values[name]) == 0 else values[name] for name in parameter_names(form)}


def parameter_arrays(form: str, refits: Refits, runs: Runs) -> dict[str, Array]:
    """The parameters of refits as a law knows them, one array each."""
    return _parameters(form, refits.base, refits.repetition, runs)


def refit(
    fits: Fits, *, weights: Array | None = None, targets: Array | None = None, max_iterations: int = 60, progress: Progress | None = None
) -> dict[str, Refits]:
    """Fit every form again under other weights and / or other losses, both (problems, runs), starting from the fit at hand.

    Both phases are fitted again, so that the repetition forms inherit the uncertainty of the base law.
    """
    runs, delta = fits.runs, fits.delta
    given = weights if weights is not None else targets
    assert given is not None
    size = len(given)
    weights = np.ones(len(runs)) if weights is None else weights
    targets = runs.ln_loss if targets is None else targets
    single = runs.single
    found: dict[str, Refits] = {}
    for done, (form, fit) in enumerate(fits.forms.items()):
        _tell(progress, form, done / len(fits.forms))
        if form == "chinchilla":
            free = base_problem(runs, single)
            solved = _again(Problems(free.model, targets[..., single], weights[..., single], delta), fit.base, size, free.bounds, max_iterations)
            found[form] = Refits(solved.theta, np.empty((size, 0)), solved.converged)
        elif fits.joint:
            free = joint_problem(form, runs, fit.base, fit.repetition)
            start = np.concatenate([fit.base, fit.repetition])
            solved = _again(Problems(free.model, targets, weights, delta), start, size, free.bounds, max_iterations)
            found[form] = Refits(solved.theta[:, :5], solved.theta[:, 5:], solved.converged)
        else:
            base = found["chinchilla"]
            free = repetition_problem(form, runs, base.base)
            solved = _again(Problems(free.model, targets, weights, delta), fit.repetition, size, free.bounds, max_iterations)
            found[form] = Refits(base.base, solved.theta, solved.converged & base.converged)
    return found


def _again(problems: Problems, start: Array, size: int, bounds: Any, max_iterations: int) -> Solution:
    return minimise(problems, np.tile(start, (size, 1)), bounds, max_iterations=max_iterations)


def _delta_from_noise(runs: Runs) -> float:
    """Huber's delta for the noise in this table: 1.345 sigma, sigma from the residuals of the base law's robust fit."""
    single = runs.single
    free = base_problem(runs, single)
    best = best_of(Problems(free.model, runs.ln_loss[single], np.ones(single.sum()), PAPER_DELTA), free.starts, free.bounds)
    residual = free.model.log_prediction(best.theta[None])[0] - runs.ln_loss[single]
    spare = max(len(residual) - 5, 1) / len(residual)
    sigma = 1.4826 * float(np.median(np.abs(residual))) / spare
    return max(_TUNING * sigma, 1e-6)


# -- how well a form does -------------------------------------------------------------------------------------------------


def metrics(fits: Fits, form: str, held_out: Array | None = None) -> dict[str, float | None]:
    """R^2 on the loss, Huber sum, AICc, and the mean absolute error of ln(loss) in cells that were left out."""
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
        figures["held_out_error"] = float(np.mean(np.abs(held_out)))
        figures["held_out_error_multi"] = float(np.mean(np.abs(held_out[~single]))) if not single.all() else None
    return figures


def r_squared(observed: Array, predicted: Array) -> float | None:
    """1 - residual over total sum of squares; None where the observed values do not vary."""
    total = float(((observed - observed.mean()) ** 2).sum()) if len(observed) else 0.0
    return 1 - float(((observed - predicted) ** 2).sum()) / total if total > 0 else None


def aicc(objective: float, n: int, parameters: int, delta: float) -> float | None:
    """Corrected Akaike criterion under the error density that belongs to the objective, proportional to exp(-rho / tau).

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
    """ln(predicted / observed) of every run by the law that was fitted without the run's (size, budget) cell."""
    runs = fits.runs
    cells = np.unique(runs.cells)
    weights = (runs.cells[None] != cells[:, None]).astype(float)
    again = refit(fits, weights=weights, progress=progress)
    own = np.searchsorted(cells, runs.cells)
    everyone = np.arange(len(runs))
    return {
        form: fits.log_prediction(form, refits.base, refits.repetition)[own, everyone] - runs.ln_loss for form, refits in again.items()
    }


def _tell(progress: Progress | None, what: str, share: float) -> None:
    if progress is not None:
        progress(what, share)
