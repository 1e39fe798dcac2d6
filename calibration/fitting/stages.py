r"""Fits of all law forms to the runs of one setting, in two phases or jointly, and refits under other weights
or losses.

**Two phases**, as in the paper: Chinchilla on the single-epoch runs (324 starts), locked; then each
repetition form on all runs (7 to 160 starts). **Joint**: all parameters at once, started from the two-phase
fit and from a grid.

A fit that did not reach an optimum, reached it from next to no start, or ended on a bound is not a result:
the form is reported as not identified, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from calibration.fitting.objective import Array, Problems, huber
from calibration.fitting.problems import (
    Free,
    base_log_prediction,
    base_parameters,
    base_problem,
    joint_problem,
    repetition_problem,
    repetition_values,
)
from calibration.fitting.runs import Runs
from calibration.fitting.solver import Optimum, Solution, best_of, minimise
from planner.laws import BASE_FORM, BASE_PARAMETERS, STANDARD, parameter_names

PAPER_DELTA = 1e-3
_TUNING = 1.345  # Huber's delta over sigma: 95% efficient where the noise is normal
_FEWEST_STARTS = 0.01  # share of the starts that must agree on the optimum
_FLAT = (
    0.01  # a direction is nearly flat where a whole unit along it costs less than this share of the objective
)

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
    on_all_runs: bool = False  # of the base law: fitted to the repeated runs too

    @property
    def problem(self) -> str | None:
        """Why this fit identifies nothing, or None where it does."""
        best = self.optimum
        if not best.converged:
            where = f", the objective being flat along {' and '.join(self.flat)}" if self.flat else ""
            return f"the best of {best.starts} starts did not converge{where}"
        if best.at_bound:
            stuck = " and ".join(self.names[i] for i in best.at_bound)
            return f"{stuck} ran to the end of the range in which it was looked for"
        if best.starts > 1 and round(best.share * best.starts) < 2:
            return f"only one of {best.starts} starts found the best optimum"
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
    side: Array  # (B, 5 + p): -1 where a parameter sits on its lower bound, 1 on its upper one, 0 in between


@dataclass(frozen=True)
class Fits:
    """All forms fitted to the runs of one setting."""

    runs: Runs
    delta: float
    joint: bool
    forms: dict[str, FormFit] = field(default_factory=dict)

    def log_prediction(self, form: str, base: Array, repetition: Array) -> Array:
        """ln of the predicted loss of all runs, (..., runs), from parameter vectors of the same leading
        shape.
        """
        if form == BASE_FORM:
            return base_log_prediction(base, self.runs)
        model = repetition_problem(form, self.runs, base).model
        return model.log_prediction(np.atleast_2d(repetition)).reshape(*base.shape[:-1], len(self.runs))


def fit_forms(
    runs: Runs,
    laws: Iterable[str] = STANDARD,
    *,
    delta: float | str = PAPER_DELTA,
    joint: bool = False,
    base: Array | None = None,
    most_starts: int | None = None,
    progress: Progress | None = None,
) -> Fits:
    """Fit these forms, and always the base law, to the runs of one weight decay.

    `delta` "noise" chooses it from the residuals. `base` locks a base law from elsewhere (see
    `problems.base_theta`). `most_starts` are spread over those of each form, where many fits must be quick.
    """
    fits = Fits(runs, _delta_from_noise(runs) if isinstance(delta, str) else delta, joint)
    locked = _base_optimum(runs, fits.delta) if base is None else _given(runs, fits.delta, base)
    base = locked.theta
    parameters = _parameters(BASE_FORM, base, runs)
    fits.forms[BASE_FORM] = FormFit(BASE_FORM, base, np.empty(0), locked, BASE_PARAMETERS, parameters)
    others = [form for form in dict.fromkeys(laws) if form != BASE_FORM]
    for done, form in enumerate(others):
        _tell(progress, form, (done + 1) / (len(others) + 1))
        free = _thinned(repetition_problem(form, runs, base), most_starts)
        optimum = _solve(free, runs, fits.delta)
        own, repetition = base, optimum.theta
        if joint:
            free = _thinned(joint_problem(form, runs, base, repetition), most_starts)
            optimum = _solve(free, runs, fits.delta)
            own, repetition = optimum.theta[:5], optimum.theta[5:]
        fits.forms[form] = FormFit(
            form, own, repetition, optimum, free.names, _parameters(form, own, runs, repetition)
        )
    return fits


def with_joint_base(fits: Fits) -> Fits:
    """The same fits with Chinchilla fitted to all runs too, as joint fits of the other forms are, so that
    criteria compare like with like. It stays as it is where the repeated runs lead it to a bound.
    """
    runs = fits.runs
    free = base_problem(runs, np.ones(len(runs), dtype=bool))
    optimum = _solve(free, runs, fits.delta)
    parameters = _parameters(BASE_FORM, optimum.theta, runs)
    found = FormFit(BASE_FORM, optimum.theta, np.empty(0), optimum, BASE_PARAMETERS, parameters, True)
    if found.problem:
        return fits
    return Fits(runs, fits.delta, fits.joint, {**fits.forms, BASE_FORM: found})


def _thinned(free: Free, most: int | None) -> Free:
    """With at most so many of its starts, the first among them."""
    if most is None or len(free.starts) <= most:
        return free
    return free._replace(starts=free.starts[np.linspace(0, len(free.starts) - 1, most).astype(int)])


def _solve(free: Free, runs: Runs, delta: float, rows: Array | slice = slice(None)) -> Optimum:
    target = runs.ln_loss[rows]
    return best_of(Problems(free.model, target, np.ones(len(target)), delta), free.starts, free.bounds)


def _base_optimum(runs: Runs, delta: float) -> Optimum:
    return _solve(base_problem(runs, runs.single), runs, delta, runs.single)


def _given(runs: Runs, delta: float, base: Array) -> Optimum:
    """A base law that was not fitted here, in the place of an optimum."""
    value = float(huber(base_log_prediction(base, runs) - runs.ln_loss, delta)[runs.single].sum())
    return Optimum(base, value, True, 0, 1.0, 0.0, (), np.empty(0), np.zeros(5), 0)


def _parameters(form: str, base: Array, runs: Runs, repetition: Array | None = None) -> dict[str, Any]:
    values = base_parameters(base, runs)
    if repetition is not None and form != BASE_FORM:
        values |= repetition_values(form, repetition, runs)
    return {
        name: float(values[name]) if np.ndim(values[name]) == 0 else values[name]
        for name in parameter_names(form)
    }


def parameter_arrays(form: str, refits: Refits, runs: Runs) -> dict[str, Array]:
    """The parameters of refits as a law knows them, one array each."""
    return _parameters(form, refits.base, runs, refits.repetition)


def refit(
    fits: Fits,
    *,
    weights: Array | None = None,
    targets: Array | None = None,
    base: Refits | None = None,
    max_iterations: int = 60,
    progress: Progress | None = None,
) -> dict[str, Refits]:
    """Fit every form again under other weights and / or other ln(loss), both (problems, runs), starting from
    the fit at hand.

    Both phases are fitted again, so that the repetition forms inherit the uncertainty of the base law; `base`
    is the first phase where it has been fitted already.
    """
    runs = fits.runs
    size = max(len(rows) for rows in (weights, targets) if rows is not None)
    weights = np.ones(len(runs)) if weights is None else weights
    targets = runs.ln_loss if targets is None else targets

    def again(free: Free, start: Array, rows: Array | slice = slice(None)) -> Solution:
        problems = Problems(free.model, targets[..., rows], weights[..., rows], fits.delta)
        return minimise(problems, np.tile(start, (size, 1)), free.bounds, max_iterations=max_iterations)

    def sides(free: Free, theta: Array) -> Array:
        return (theta >= free.bounds.upper).astype(int) - (theta <= free.bounds.lower)

    found: dict[str, Refits] = {}
    for done, (form, fit) in enumerate(fits.forms.items()):
        _tell(progress, form, done / len(fits.forms))
        if form == BASE_FORM and base is not None:
            found[form] = base
        elif form == BASE_FORM:
            rows = np.ones(len(runs), dtype=bool) if fit.on_all_runs else runs.single
            free = base_problem(runs, rows)
            solved = again(free, fit.base, rows)
            found[form] = Refits(
                solved.theta, np.empty((size, 0)), solved.converged, sides(free, solved.theta)
            )
        elif fits.joint:
            free = joint_problem(form, runs, fit.base, fit.repetition)
            solved = again(free, np.concatenate([fit.base, fit.repetition]))
            found[form] = Refits(
                solved.theta[:, :5], solved.theta[:, 5:], solved.converged, sides(free, solved.theta)
            )
        else:
            first = found[BASE_FORM]
            free = repetition_problem(form, runs, first.base)
            solved = again(free, fit.repetition)
            side = np.column_stack([first.side, sides(free, solved.theta)])
            found[form] = Refits(first.base, solved.theta, solved.converged & first.converged, side)
    return found


def _delta_from_noise(runs: Runs) -> float:
    """Huber's delta for the noise in this table: 1.345 sigma, sigma from the residuals of the base law's
    robust fit.
    """
    best = _base_optimum(runs, PAPER_DELTA)
    residual = (base_log_prediction(best.theta, runs) - runs.ln_loss)[runs.single]
    spare = max(len(residual) - len(BASE_PARAMETERS), 1) / len(residual)
    return max(_TUNING * 1.4826 * float(np.median(np.abs(residual))) / spare, 1e-6)


def _tell(progress: Progress | None, what: str, share: float) -> None:
    if progress is not None:
        progress(what, share)
