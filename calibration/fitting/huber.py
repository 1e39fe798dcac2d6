r"""The objective of the paper: the Huber loss of ln(loss), at its optimum, in two phases or jointly, and
bootstrap refits of it.

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
the Gauss-Newton matrix with the weights rho'(r) / r of iteratively reweighted least squares, which bounds the
Huber curvature from above.

**Bootstrap** (Efron 1979). Both phases are refitted for every replicate, so that the base law's uncertainty
reaches the repetition parameters. Two schemes, each over runs or over (size, budget) cells:

**residuals** (default). The runs stay as they are and their residuals are drawn anew: loss* = predicted loss
x exp(residual*). Single-epoch and repeated runs have pools of their own, each centred by its median and
widened by sqrt(n / (n - p)), p being the five parameters of the base law or those of the repetition form:
what a form misses of repetition says nothing about the base law, whose refits are therefore the same under
all forms. Over cells, what the runs of a cell have in common is drawn per cell, the rest per run.

**weights**. Runs are drawn with replacement, within the single-epoch and within the repeated ones, or whole
cells are; a resample is a row of weights. It asks nothing of the noise, but 20 runs resampled are only 13
different ones: its intervals are far too wide in small tables (studies/fitting/intervals.md has the measured
coverage of both).

Multiplying residuals by random signs or factors (the wild bootstrap) is not offered: with delta = 0.001 the
fit passes through about as many runs as it has parameters, whose residuals vanish, and its intervals come out
far too narrow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import huber

from calibration.fitting.evaluate.summary import PAPER_DELTA, kept_draws
from calibration.fitting.identify import is_identified
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.solver import (
    Array,
    Bounds,
    Coordinates,
    Curvature,
    Model,
    Optimum,
    Problems,
    Progress,
    Solution,
    best_of,
    minimise,
    silent,
)
from planner.calibration import Draws
from planner.laws import (
    BASE,
    BASE_FORM,
    BASE_PARAMETERS,
    STANDARD,
    At,
    Law,
    Parameter,
    Terms,
    Values,
    form_named,
    parameter_names,
    repetition_parameters,
)
from planner.uncertainty import LEVEL

_TUNING = 1.345  # Huber's delta over sigma: 95% efficient where the noise is normal
_FEWEST_STARTS = 0.01  # share of the starts that must agree on the optimum
_SOME_STARTS = 54  # of the base law, next to those of repetition, in a joint fit
# A direction is nearly flat where a whole unit along it costs less than this share of the objective.
_FLAT = 0.01
_TOLERANCE = 1e-13  # of the objective
_EXACT = 1e-20  # objective per run that is zero for every purpose

RESAMPLE = ("runs", "cells")
SCHEMES = ("residuals", "weights")
_NOISE = 0.007  # of ln(loss) between seeds: over the 16 repeated configurations of the public C4 runs
_FEWEST_LEFT, _NORMAL = 2, 1000  # runs beyond the parameters, or as many normal errors are drawn instead


# -- the objective -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HuberProblems(Problems):
    """A batch of fits to the same runs, as the solver wants them. `target` and `weights` are one row for all
    problems or one row per problem.
    """

    model: Model
    target: Array  # ln(loss)
    weights: Array
    delta: float
    exponents: tuple[tuple[int, int], ...] = ()  # of a free base law: places of ln(amplitude), exponent
    relative: float = field(default=_TOLERANCE, kw_only=True)

    def curvature(self, theta: Array) -> Curvature:
        predicted, slopes = self.model.jacobian(theta)  # (B, n), (p, B, n)
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

    def second_order(self, theta: Array) -> Array:
        """sum_i w_i rho'_i times the second derivatives of m_i."""
        residual = self.model.log_prediction(theta) - self.target
        pull = self.weights * np.clip(residual, -self.delta, self.delta)
        return self.model.hessian(theta, pull)

    def pick(self, problems: Array | slice) -> HuberProblems:
        target = self.target[problems] if self.target.ndim == 2 else self.target
        weights = self.weights[problems] if self.weights.ndim == 2 else self.weights
        return replace(self, model=self.model.pick(problems), target=target, weights=weights)

    def move(self, theta: Array, step: Array) -> Array:
        """E, A and alpha trade against each other along a curved valley: a larger alpha with a smaller A and
        a larger E predicts nearly the same. In terms of the loss at the reference point (E + A_c + B_c), the
        logarithmic slopes (alpha A_c, beta B_c) and the exponents the valley is straight, so a step is taken
        there and mapped back.
        """
        moved: Array = theta - step
        with np.errstate(all="ignore"):  # out of the domain: refused later
            for amplitude, exponent in self.exponents:
                at = np.exp(theta[amplitude])
                ratio = np.log(theta[exponent] / moved[exponent])
                moved[amplitude] += ratio - step[exponent] / theta[exponent]
                moved[0] += at * (1 - step[amplitude]) - np.exp(moved[amplitude])
        return moved


# -- law forms as fitting problems ---------------------------------------------------------------------------


class Free(NamedTuple):
    """A fitting problem without its losses and weights: model, bounds and starts."""

    model: Model
    bounds: Bounds
    starts: Array
    exponents: tuple[tuple[int, int], ...] = ()

    def problems(self, target: Array, weights: Array, delta: float) -> HuberProblems:
        absolute = _EXACT * target.shape[-1]
        return HuberProblems(self.model, target, weights, delta, self.exponents, absolute=absolute)


def base_problem(runs: Runs, rows: Array | slice = slice(None)) -> Free:
    """Chinchilla on these rows: 4 x 3 x 3 x 3 x 3 = 324 starts."""
    at = At(np.exp(runs.ln_params[rows]), np.exp(runs.ln_tokens[rows]), 1.0)  # it sees their tokens only
    return free_problem(form_named(BASE_FORM).terms, BASE, runs, at, ((1, 2), (3, 4)))


def repetition_problem(form: str, runs: Runs, base: Array) -> Free:
    """A repetition form on all runs with the base law locked at `base`, (5,) or one per problem (B, 5)."""
    declared = form_named(form)
    locked = {
        name: value[:, None] if np.ndim(value) else value
        for name, value in base_parameters(base, runs).items()
    }
    return free_problem(declared.terms, declared.repetition, runs, runs.at, (), locked)


def joint_problem(form: str, runs: Runs, base: Array, repetition: Array) -> Free:
    """All parameters free, started from the locked fit, from its base law with every repetition start, and
    vice versa.
    """
    declared = form_named(form)
    free = free_problem(declared.terms, declared.parameters, runs, runs.at, ((1, 2), (3, 4)), grid=False)
    every = base_problem(runs).starts
    starts = _starts(declared.repetition, free.model.coordinates)
    some = every[:: max(len(every) // _SOME_STARTS, 1)]
    everything = [
        np.concatenate([base, repetition])[None],
        np.hstack([np.tile(base, (len(starts), 1)), starts]),
        np.hstack([some, np.tile(repetition, (len(some), 1))]),
    ]
    return free._replace(starts=np.vstack(everything))


def free_problem(
    terms: Callable[[Values, At], Terms],
    parameters: tuple[Parameter, ...],
    runs: Runs,
    at: At,
    exponents: tuple[tuple[int, int], ...],
    known: dict[str, Any] | None = None,
    grid: bool = True,
) -> Free:
    """The problem of these parameters, others being `known`; `exponents` are as in `HuberProblems`."""
    coordinates = Coordinates(parameters, *runs.middle, runs.scale)
    bounds = np.array([coordinates.scaled(p, p.bounds) for p in parameters]).reshape(-1, 2)
    starts = _starts(parameters, coordinates) if grid else np.empty((0, len(parameters)))
    model = Model(terms, coordinates, at, known or {})
    return Free(model, Bounds(bounds[:, 0], bounds[:, 1]), starts, exponents)


def _starts(parameters: tuple[Parameter, ...], coordinates: Coordinates) -> Array:
    """All combinations of what each parameter is started from."""
    columns = [coordinates.scaled(parameter, parameter.starts) for parameter in parameters]
    return np.array(list(itertools.product(*columns)), dtype=float)


def base_parameters(theta: Array, runs: Runs) -> dict[str, Array]:
    """E, A, alpha, B, beta of parameter vectors (..., 5)."""
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
    theta: Array  # of all parameters, those of the base law first
    optimum: Optimum
    names: tuple[str, ...]  # of the optimum's parameters: the last ones, where the base law was locked
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


@dataclass(frozen=True)
class Fits:
    """All forms fitted to the runs of one setting."""

    runs: Runs
    delta: float
    joint: bool
    forms: dict[str, FormFit] = field(default_factory=dict)

    def log_prediction(self, form: str, theta: Array) -> Array:
        """ln of the predicted loss of all runs, (..., runs), from vectors (..., p) of all parameters."""
        declared, runs = form_named(form), self.runs
        if form == BASE_FORM:
            return base_log_prediction(theta, runs)
        coordinates = Coordinates(declared.parameters, *runs.middle, runs.scale)
        predicted = Model(declared.terms, coordinates, runs.at, {}).log_prediction(np.atleast_2d(theta))
        return predicted.reshape(*theta.shape[:-1], len(runs))


def fit_forms(
    runs: Runs,
    laws: Iterable[str] = STANDARD,
    *,
    delta: float | str = PAPER_DELTA,
    joint: bool = False,
    base: Array | None = None,
    most_starts: int | None = None,
    progress: Progress = silent,
) -> Fits:
    """Fit these forms, and always the base law, to the runs of one weight decay.

    `delta` "noise" chooses it from the residuals. `base` locks a base law from elsewhere (see
    `base_theta`). `most_starts` are spread over those of each form, where many fits must be quick.
    """
    fits = Fits(runs, _delta_from_noise(runs) if isinstance(delta, str) else delta, joint)
    if base is None:
        locked = _solve(base_problem(runs, runs.single), runs, fits.delta, runs.single)
    else:  # a law that was not fitted here, in the place of an optimum
        value = float(huber(fits.delta, base_log_prediction(base, runs) - runs.ln_loss)[runs.single].sum())
        locked = Optimum(base, value, True, 0, 1.0, 0.0, (), np.empty(0), np.zeros(5), 0)
    fits.forms[BASE_FORM] = _form_fit(BASE_FORM, runs, locked, locked.theta)
    others = [form for form in dict.fromkeys(laws) if form != BASE_FORM]
    for done, form in enumerate(others):
        progress(form, (done + 1) / (len(others) + 1))
        free = repetition_problem(form, runs, locked.theta)
        optimum = _solve(free, runs, fits.delta, most_starts=most_starts)
        theta = np.concatenate([locked.theta, optimum.theta])
        if joint:
            free = joint_problem(form, runs, locked.theta, optimum.theta)
            optimum = _solve(free, runs, fits.delta, most_starts=most_starts)
            theta = optimum.theta
        fits.forms[form] = _form_fit(form, runs, optimum, theta)
    return fits


def _form_fit(form: str, runs: Runs, optimum: Optimum, theta: Array, on_all_runs: bool = False) -> FormFit:
    """The fit of a form whose parameters, base law first, are theta; the last ones are the optimum's."""
    names = parameter_names(form)[-len(optimum.theta) :]
    return FormFit(form, theta, optimum, names, parameters_of(form, theta, runs), on_all_runs)


def with_joint_base(fits: Fits) -> Fits:
    """The same fits with Chinchilla fitted to all runs too, as joint fits of the other forms are, so that
    criteria compare like with like. It stays as it is where the repeated runs lead it to a bound.
    """
    optimum = _solve(base_problem(fits.runs), fits.runs, fits.delta)
    found = _form_fit(BASE_FORM, fits.runs, optimum, optimum.theta, on_all_runs=True)
    return fits if found.problem else replace(fits, forms={**fits.forms, BASE_FORM: found})


def _solve(
    free: Free,
    runs: Runs,
    delta: float,
    rows: Array | slice = slice(None),
    most_starts: int | None = None,
) -> Optimum:
    target, starts = runs.ln_loss[rows], free.starts
    if most_starts is not None and len(starts) > most_starts:
        starts = starts[np.linspace(0, len(starts) - 1, most_starts).astype(int)]
    return best_of(free.problems(target, np.ones(len(target)), delta), starts, free.bounds)


def parameters_of(form: str, theta: Array, runs: Runs) -> dict[str, Any]:
    """Of parameter vectors (..., p) of all parameters, as a law knows them."""
    coordinates = Coordinates(form_named(form).parameters, *runs.middle, runs.scale)
    values = coordinates.natural(list(np.moveaxis(theta, -1, 0)))
    names = parameter_names(form)
    return {name: float(values[name]) if theta.ndim == 1 else values[name] for name in names}


def refit(
    fits: Fits,
    *,
    weights: Array | None = None,
    targets: Array | None = None,
    base: Solution | None = None,
    max_iterations: int = 60,
    progress: Progress = silent,
) -> dict[str, Solution]:
    """Fit every form again under other weights and / or other ln(loss), both (problems, runs), starting from
    the fit at hand; theta has all parameters, as that of a `FormFit`.

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

    found: dict[str, Solution] = {}
    for done, (form, fit) in enumerate(fits.forms.items()):
        progress(form, done / len(fits.forms))
        if form == BASE_FORM:
            rows = slice(None) if fit.on_all_runs else runs.single
            found[form] = again(base_problem(runs, rows), fit.theta, rows) if base is None else base
        elif fits.joint:
            found[form] = again(joint_problem(form, runs, fit.theta[:5], fit.theta[5:]), fit.theta)
        else:
            first = found[BASE_FORM]
            solved = again(repetition_problem(form, runs, first.theta), fit.theta[5:])
            found[form] = solved._replace(
                theta=np.hstack([first.theta, solved.theta]),
                converged=solved.converged & first.converged,
                side=np.hstack([first.side, solved.side]),
            )
    return found


def left_out_predictions(fits: Fits, kept: Array, progress: Progress = silent) -> dict[str, Array]:
    """ln of the loss of all runs by every form fitted to some of them, (problems, runs); `kept` says which.

    A fit that does not converge from the fit at hand is made from all starts. Where one of the forms still
    does not converge, all are NaN; a prediction that ran away is infinite.
    """
    runs = fits.runs
    at = np.column_stack([runs.at.params, runs.at.unique_tokens, runs.at.epochs])
    again = refit(fits, weights=kept.astype(float), progress=progress)
    found = {form: fits.log_prediction(form, one.theta) for form, one in again.items()}
    for values in found.values():
        values[np.isnan(values)] = np.inf
    left = np.flatnonzero(~np.logical_and.reduce([one.converged for one in again.values()]))
    for done, i in enumerate(left):
        progress("left-out runs", done / len(left))
        laws: dict[str, Law] | None = None
        if all(is_identified(at[kept[i]], form) for form in fits.forms):
            alone = fit_forms(runs.pick(kept[i]), list(fits.forms), delta=fits.delta, joint=fits.joint)
            alone = with_joint_base(alone) if fits.forms[BASE_FORM].on_all_runs else alone
            if all(fit.optimum.converged for fit in alone.forms.values()):
                laws = {form: Law(form, fit.parameters) for form, fit in alone.forms.items()}
        for form, values in found.items():
            with np.errstate(all="ignore"):
                values[i] = np.nan if laws is None else np.log(laws[form].loss(*at.T))
    return found


def _delta_from_noise(runs: Runs) -> float:
    """Huber's delta for the noise in this table: 1.345 sigma, sigma from the residuals of the base law's
    robust fit.
    """
    best = _solve(base_problem(runs, runs.single), runs, PAPER_DELTA, runs.single)
    residual = (base_log_prediction(best.theta, runs) - runs.ln_loss)[runs.single]
    spare = max(len(residual) - len(BASE_PARAMETERS), 1) / len(residual)
    return max(_TUNING * 1.4826 * float(np.median(np.abs(residual))) / spare, 1e-6)


# -- bootstrap -----------------------------------------------------------------------------------------------


def bootstrap(
    fits: Fits,
    replicates: int,
    *,
    resample: str = "runs",
    scheme: str = "residuals",
    seed: int | tuple[int, ...] = 0,
    progress: Progress = silent,
) -> dict[str, Solution]:
    """Refit every form `replicates` times.

    The same seed gives the same refits; settings to be compared need different seeds.
    """
    rng = np.random.default_rng(seed)
    if scheme == "weights":
        return refit(fits, weights=resampled_weights(fits, replicates, resample, rng), progress=progress)
    found: dict[str, Solution] = {}
    # Each form has repeated residuals of its own; all share the base law's refits, to be compared one by one.
    for done, form in enumerate(fits.forms):
        one = replace(fits, forms={name: fits.forms[name] for name in (BASE_FORM, form)})
        targets = resampled_losses(one, form, replicates, resample, np.random.default_rng(seed))
        progress(f"bootstrap of {form}", done / len(fits.forms))
        base = None if fits.joint else found.get(BASE_FORM)
        found[form] = refit(one, targets=targets, base=base)[form]
    return found


def resampled_weights(fits: Fits, replicates: int, resample: str, rng: np.random.Generator) -> Array:
    """Row weights (replicates, runs): how often each run was drawn."""
    runs = fits.runs
    if resample == "cells":
        count = int(runs.cells.max()) + 1
        return rng.multinomial(count, np.full(count, 1 / count), size=replicates).astype(float)[:, runs.cells]
    weights = np.empty((replicates, len(runs)))
    for part in (runs.single, ~runs.single):
        if size := int(part.sum()):
            weights[:, part] = rng.multinomial(size, np.full(size, 1 / size), size=replicates)
    return weights


def resampled_losses(
    fits: Fits, form: str, replicates: int, resample: str, rng: np.random.Generator
) -> Array:
    """ln(loss) (replicates, runs): predictions with residuals drawn anew."""
    runs, fit = fits.runs, fits.forms[form]
    predicted = fits.log_prediction(form, fit.theta)
    # Where the base law was fitted first, the noise of single-epoch runs is what it left, under any form.
    single = predicted if fits.joint else fits.log_prediction(BASE_FORM, fit.theta[:5])
    drawn = np.empty((replicates, len(runs)))
    luck = rng.random((replicates, int(runs.cells.max()) + 1))  # of each cell, in both of its parts
    parts = (
        (runs.single, single, len(BASE_PARAMETERS)),
        (~runs.single, predicted, len(repetition_parameters(form))),
    )
    for part, expected, p in parts:
        n = int(part.sum())
        if not n:
            continue
        residual = (runs.ln_loss - expected)[part]
        residual = (residual - np.median(residual)) * np.sqrt(n / max(n - p, 1))
        spent = n - p < _FEWEST_LEFT
        if spent:  # the fit passes through the runs: their residuals say nothing of the noise
            residual = np.maximum(np.sqrt(np.mean(residual**2)), _NOISE) * rng.standard_normal(_NORMAL)
        if spent or resample == "runs":
            drawn[:, part] = rng.choice(residual, size=(replicates, n))
            continue
        shared, own = _cell_parts(residual, runs.cells[part])
        of_cells = np.sort(shared)[(luck * len(shared)).astype(int)]
        drawn[:, part] = of_cells[:, runs.cells[part]] + rng.choice(own, size=(replicates, n))
    return predicted + drawn


def _cell_parts(residual: Array, cells: Array) -> tuple[Array, Array]:
    """What the runs of a cell share and what they do not, each pool scaled to its estimated variance."""
    number = np.unique(cells, return_inverse=True)[1]
    sizes = np.bincount(number)
    means = np.bincount(number, residual) / sizes
    total = float(np.mean(residual**2))
    several = sizes[number] > 1  # a run alone in its cell says nothing about the difference
    if not several.any():
        return np.zeros(1), residual
    within = (residual - means[number])[several]
    own = min(float((within**2).sum()) / float((sizes[sizes > 1] - 1).sum()), total)
    return _scaled(means - means.mean(), total - own), _scaled(within, own)


def _scaled(values: Array, variance: float) -> Array:
    size = float(np.sqrt(np.mean(values**2)))
    return values * (np.sqrt(variance) / size) if size > 0 else values


def draws_of(fits: Fits, refits: dict[str, Solution], method: str) -> Draws:
    """The refits that converged, as a Calibration keeps them: seven significant digits."""
    laws = {}
    for form, found in refits.items():
        if found.converged.sum() >= 2:
            laws[form] = kept_draws(parameters_of(form, found.theta[found.converged], fits.runs))
    return Draws(method=method, laws=laws)


def refit_record(form: str, refits: Solution) -> dict[str, Any]:
    """How the refits of a form ended: how many count, and which parameters sit on a bound in some.

    An interval is open on a side on which more refits sit on the bound than lie beyond its end.
    """
    side = refits.side[refits.converged]
    record: dict[str, Any] = {"made": len(refits.converged), "kept": len(side), "at_bound": {}, "open": {}}
    for name, column in zip(parameter_names(form), side.T, strict=True):
        if column.any():
            record["at_bound"][name] = int((column != 0).sum())
        signs = {"below": -1, "above": 1}
        ends = [end for end, sign in signs.items() if np.mean(column == sign) >= 0.5 - LEVEL / 2]
        if ends:
            record["open"][name] = ends
    return record
