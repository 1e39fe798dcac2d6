r"""The paper's fit: the Huber loss of ln(loss), at its optimum, in two phases or jointly, and refits of it.

With m_i the logarithm of the predicted loss of run i, a fit minimises

    f(theta) = sum_i w_i rho(m_i(theta) - ln L_i)
    rho(r)   = r^2 / 2 up to |r| = delta,  delta |r| - delta^2 / 2 beyond        (Huber 1964; Hoffmann 2022)

**Two phases**, as in the paper: Chinchilla on the single-epoch runs (324 starts), locked; then each
repetition form on all runs (7 to 160 starts). **Joint**: all parameters at once, started from the two-phase
fit and from a grid.

A fit that did not reach an optimum, reached it from next to no start, or ended on a bound is not a result:
the form is reported as not identified, with the reason.

A batch is many such problems that share the runs but differ in theta (starts), in the weights w (bootstrap
resamples, held-out cells), in the losses, or in a locked base law. Next to the Hessian stands a *majorant*:
the Gauss-Newton matrix with the weights rho'(r) / r of reweighted least squares, which bounds the Huber
curvature from above.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from calibration.fitting.coordinates import Array, Coordinates, Model
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.solver import Bounds, Curvature, Optimum, Solution, best_of, minimise
from planner.laws import (
    BASE,
    BASE_FORM,
    BASE_PARAMETERS,
    STANDARD,
    At,
    Parameter,
    Terms,
    Values,
    form_named,
    parameter_names,
)

PAPER_DELTA = 1e-3
_TUNING = 1.345  # Huber's delta over sigma: 95% efficient where the noise is normal
_FEWEST_STARTS = 0.01  # share of the starts that must agree on the optimum
_SOME_STARTS = 54  # of the base law, next to those of repetition, in a joint fit
# A direction is nearly flat where a whole unit along it costs less than this share of the objective.
_FLAT = 0.01
_TOLERANCE = 1e-13  # of the objective
_EXACT = 1e-20  # objective per run that is zero for every purpose
_BLOCK = 30_000  # problems x runs worked on at a time: the arrays of one block fit in the L2 cache

Progress = Callable[[str, float], None]  # what is being done, and the share done so far


# -- the objective -------------------------------------------------------------------------------------------


def huber(residual: Array, delta: float) -> Array:
    """rho(r), elementwise."""
    inside: Array = np.clip(residual, -delta, delta)
    return inside * (residual - 0.5 * inside)


@dataclass(frozen=True)
class HuberProblems:
    """A batch of fits to the same runs, as the solver wants them. `target` and `weights` are one row for all
    problems or one row per problem.
    """

    model: Model
    target: Array  # ln(loss)
    weights: Array
    delta: float
    exponents: tuple[tuple[int, int], ...] = ()  # of a free base law: places of ln(amplitude), exponent

    def curvature(self, theta: Array) -> Curvature:
        parts = [some._curvature(theta[rows]) for rows, some in self._blocks(len(theta))]
        return Curvature(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))

    def _curvature(self, theta: Array) -> Curvature:
        predicted, slopes = self.model.slopes(theta)  # (B, n), (p, B, n)
        residual = predicted - self.target
        pull = np.clip(residual, -self.delta, self.delta)  # rho'
        core = pull == residual  # rho''
        with np.errstate(invalid="ignore", divide="ignore"):
            secant = np.where(core, 1.0, pull / residual) * self.weights  # rho' / r
        value = (self.weights * pull * (residual - 0.5 * pull)).sum(axis=-1)
        gradient = np.einsum("bn,pbn->pb", self.weights * pull, slopes)
        rows = slopes.transpose(1, 0, 2)  # (B, p, n)

        def products(weights: Array) -> Array:
            """sum_n w_n x_n x_n^T for every problem."""
            return np.asarray(np.matmul(weights[:, None] * rows, rows.transpose(0, 2, 1)).transpose(1, 2, 0))

        return Curvature(value, gradient, products(core * self.weights), products(secant))

    def bends(self, theta: Array) -> Array:
        """sum_i w_i rho'_i times the second derivatives of m_i."""
        parts = []
        for rows, some in self._blocks(len(theta)):
            residual = some.model.log_prediction(theta[rows]) - some.target
            pull = some.weights * np.clip(residual, -self.delta, self.delta)
            parts.append(some.model.bends(theta[rows], pull))
        return np.concatenate(parts, axis=-1)

    def values(self, theta: Array) -> Array:
        residual = self.model.log_prediction(theta) - self.target
        return np.asarray((self.weights * huber(residual, self.delta)).sum(-1))

    def pick(self, problems: Array | slice) -> HuberProblems:
        target = self.target[problems] if self.target.ndim == 2 else self.target
        weights = self.weights[problems] if self.weights.ndim == 2 else self.weights
        return replace(self, model=self.model.pick(problems), target=target, weights=weights)

    def tolerance(self, value: Array) -> Array:
        return np.asarray(_TOLERANCE * value + _EXACT * self.target.shape[-1])

    def move(self, theta: Array, step: Array) -> Array:
        """E, A and alpha trade against each other along a curved valley: a larger alpha with a smaller A and
        a larger E predicts nearly the same. In terms of the loss at the reference point (E + A_c + B_c), the
        logarithmic slopes (alpha A_c, beta B_c) and the exponents the valley is straight, so a step is taken
        there and mapped back.
        """
        moved: Array = theta - step
        with np.errstate(
            invalid="ignore", divide="ignore", over="ignore"
        ):  # out of the domain: refused later
            for amplitude, exponent in self.exponents:
                at = np.exp(theta[amplitude])
                ratio = np.log(theta[exponent] / moved[exponent])
                moved[amplitude] += ratio - step[exponent] / theta[exponent]
                moved[0] += at * (1 - step[amplitude]) - np.exp(moved[amplitude])
        return moved

    def _blocks(self, count: int) -> list[tuple[slice, HuberProblems]]:
        block = max(_BLOCK // self.target.shape[-1], 1)
        if count <= block:
            return [(slice(None), self)]
        rows = [slice(start, start + block) for start in range(0, count, block)]
        return [(some, self.pick(some)) for some in rows]


# -- law forms as fitting problems ---------------------------------------------------------------------------


class Free(NamedTuple):
    """A fitting problem without its losses and weights: model, bounds and starts."""

    model: Model
    bounds: Bounds
    starts: Array
    names: tuple[str, ...]
    exponents: tuple[tuple[int, int], ...] = ()

    def problems(self, target: Array, weights: Array, delta: float) -> HuberProblems:
        return HuberProblems(self.model, target, weights, delta, self.exponents)


def base_problem(runs: Runs, rows: Array | slice = slice(None), *, tied: bool = False) -> Free:
    """Chinchilla on these rows: 4 x 3 x 3 x 3 x 3 = 324 starts. `tied` holds alpha = beta."""
    if not tied:
        return _free(form_named(BASE_FORM).terms, BASE, runs, _at(runs, rows), ((1, 2), (3, 4)))
    unit = BASE[3].unit
    assert unit is not None
    data = replace(BASE[3], unit=lambda p, at: unit({**p, "beta": p["alpha"]}, at))

    def terms(p: Values, at: At) -> Terms:
        return form_named(BASE_FORM).terms({**p, "beta": p["alpha"]}, at)

    return _free(terms, (*BASE[:3], data), runs, _at(runs, rows), ((1, 2), (3, 2)))


def repetition_problem(form: str, runs: Runs, base: Array) -> Free:
    """A repetition form on all runs with the base law locked at `base`, (5,) or one per problem (B, 5)."""
    declared = form_named(form)
    locked = {
        name: value[:, None] if np.ndim(value) else value
        for name, value in base_parameters(base, runs).items()
    }
    return _free(declared.terms, declared.repetition, runs, runs.at, (), locked)


def joint_problem(form: str, runs: Runs, base: Array, repetition: Array) -> Free:
    """All parameters free, started from the locked fit, from its base law with every repetition start, and
    vice versa.
    """
    declared = form_named(form)
    free = _free(declared.terms, declared.parameters, runs, runs.at, ((1, 2), (3, 4)), grid=False)
    every = base_problem(runs).starts
    if form == BASE_FORM:
        return free._replace(starts=np.vstack([base, every]))
    starts = _starts(declared.repetition, free.model.coordinates)
    some = every[:: max(len(every) // _SOME_STARTS, 1)]
    everything = [
        np.concatenate([base, repetition])[None],
        np.hstack([np.tile(base, (len(starts), 1)), starts]),
        np.hstack([some, np.tile(repetition, (len(some), 1))]),
    ]
    return free._replace(starts=np.vstack(everything))


def _at(runs: Runs, rows: Array | slice) -> At:
    """Some of the runs; the base law sees their tokens only."""
    return At(np.exp(runs.ln_params[rows]), np.exp(runs.ln_tokens[rows]), 1.0)


def _free(
    terms: Callable[[Values, At], Terms],
    parameters: tuple[Parameter, ...],
    runs: Runs,
    at: At,
    exponents: tuple[tuple[int, int], ...],
    known: dict[str, Any] | None = None,
    grid: bool = True,
) -> Free:
    coordinates = Coordinates(parameters, *runs.middle, runs.scale)
    bounds = np.array([coordinates.scaled(p, p.bounds) for p in parameters]).reshape(-1, 2)
    starts = _starts(parameters, coordinates) if grid else np.empty((0, len(parameters)))
    names = tuple(parameter.name for parameter in parameters)
    model = Model(terms, coordinates, at, known or {})
    return Free(model, Bounds(bounds[:, 0], bounds[:, 1]), starts, names, exponents)


def _starts(parameters: tuple[Parameter, ...], coordinates: Coordinates) -> Array:
    """All combinations of what each parameter is started from."""
    columns = [coordinates.scaled(parameter, parameter.starts) for parameter in parameters]
    return np.array(list(itertools.product(*columns)), dtype=float)


def base_parameters(theta: Array, runs: Runs) -> dict[str, Array]:
    """E, A, alpha, B, beta of parameter vectors (..., 5), or (..., 4) with tied exponents."""
    theta = theta if theta.shape[-1] > 4 else np.concatenate([theta, theta[..., 2:3]], axis=-1)
    return Coordinates(BASE, *runs.middle, runs.scale).natural(list(np.moveaxis(theta, -1, 0)))


def base_theta(parameters: Values, runs: Runs) -> Array:
    """The inverse of `base_parameters`, for a base law from elsewhere."""
    return np.stack(Coordinates(BASE, *runs.middle, runs.scale).theta(parameters), axis=-1)


def base_log_prediction(theta: Array, runs: Runs) -> Array:
    """ln of the base law's prediction for all runs: (runs,) of one parameter vector, (problems, runs) of
    several.
    """
    predicted = base_problem(runs).model.log_prediction(np.atleast_2d(theta))
    return predicted.reshape(*theta.shape[:-1], len(runs))


# -- fits ----------------------------------------------------------------------------------------------------


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
    `base_theta`). `most_starts` are spread over those of each form, where many fits must be quick.
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
    return best_of(free.problems(target, np.ones(len(target)), delta), free.starts, free.bounds)


def _base_optimum(runs: Runs, delta: float) -> Optimum:
    return _solve(base_problem(runs, runs.single), runs, delta, runs.single)


def _given(runs: Runs, delta: float, base: Array) -> Optimum:
    """A base law that was not fitted here, in the place of an optimum."""
    value = float(huber(base_log_prediction(base, runs) - runs.ln_loss, delta)[runs.single].sum())
    return Optimum(base, value, True, 0, 1.0, 0.0, (), np.empty(0), np.zeros(5), 0)


def _parameters(form: str, base: Array, runs: Runs, repetition: Array | None = None) -> dict[str, Any]:
    theta = base if repetition is None else np.concatenate([base, repetition], axis=-1)
    coordinates = Coordinates(form_named(form).parameters, *runs.middle, runs.scale)
    values = coordinates.natural(list(np.moveaxis(theta, -1, 0)))
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
        problems = free.problems(targets[..., rows], weights[..., rows], fits.delta)
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
