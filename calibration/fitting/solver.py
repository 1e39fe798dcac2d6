r"""One solver for all fits, and the coordinates that it works in.

**Coordinates.** A term of a law is measured at the middle of the runs and not where all its logarithms
vanish: with N0 and D0 in the middle of the single-epoch runs, and (N0, U0, R0) in that of the runs that
repeat,

    E / loss,  ln(A N0^-alpha / loss),  alpha,  ln(B D0^-beta / loss),  beta,
    ln(penalty at (N0, U0, R0) / loss),  its exponents ...

There an amplitude is hardly correlated with its exponents: the four-parameter penalty, whose P and gamma are
nearly degenerate (gamma from 0.4 to 0.7 moves P by three orders of magnitude at almost the same fit), is an
ordinary well-conditioned problem. Which parameter is measured in which unit, and on which scale, is said
where it is declared. The Huber fit takes each parameter on the scale that it declares, so that E = 0 is a
point and not a limit. The Bayesian fit takes the logarithms of all, since corpora differ by factors.

Derivatives are exact for any form: they are taken along the imaginary axis (the complex step), and second
ones are differences of those.

**Levenberg-Marquardt** (Levenberg 1944, Marquardt 1963; More 1978), on a batch of small problems at once.
The paper's fit (a Huber loss, `huber`) and the Bayesian one (penalised least squares, `bayes.posterior`)
are both solved by `minimise`. Each iteration solves (H + mu G) d = gradient for every problem, with a Hessian
H, a majorant G and a damping mu per problem that follows the ratio of actual to predicted decrease. Where
H + mu G is not positive definite the step comes from mu G alone, which always descends. Huber's delta = 0.001
makes the objective nearly piecewise linear (few runs in the quadratic core, kinks everywhere): plain Newton
cycles there, iteratively reweighted least squares stalls at 1e-6 of the objective, and quasi-Newton methods
stop early, while G knows how far the step may go. Damping with G rather than the identity also makes the
method indifferent to how the parameters are scaled.

H is the Gauss-Newton matrix J^T W J until a problem is near its end. There the second derivatives of the
prediction are added, which cost several times as much and without which the last digits take for ever.

Bounds are handled by an active set: parameters that sit on a bound and are pushed outwards are held, and
parameters that the step would carry across a bound are put on it, the others being solved again. Problems
leave the batch as they converge.

Convergence means that the quadratic model promises less than the problem's own tolerance, with hardly any
damping. Nothing else counts, in particular not the lack of progress.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd

from planner.calibration import Setting
from planner.laws import BASE_PARAMETERS, STEP, At, Law, Parameter, Terms, Values, form_named, natural
from planner.solve import FLOPS_PER_PARAM_TOKEN

Array = np.ndarray
Points = tuple[Array, Array, Array]  # params, unique tokens, epochs
Progress = Callable[[str, float], None]  # what is being done, and the share done so far

SAME = 1e-9  # objectives that agree to this (relative) are the same optimum
_LOGARITHMIC, _TERMS = ("amplitude", "logarithm"), ("amplitude", "linear")  # kinds of parameters
_REPEATS = 4.0  # of a reference point
_FURTHEST = 300.0  # of theta
_LEAST, _MOST = 1e-300, 1e300  # of a parameter: what a double holds
_DIFFERENCE = 1e-6  # of theta, for second derivatives
_LONGEST = 3.0  # in one step, of any parameter: a factor of 20 in an amplitude
_DAMPING = 1e-3  # at the start of least squares, which are nearly linear
_NEAR = 1e-5  # of the objective: a step that promises less is near the end


def silent(what: str, share: float) -> None:
    """A progress report that nobody reads."""


def part_of(progress: Progress, done: float, of: float, prefix: str = "", span: float = 1) -> Progress:
    """A progress report for one part of a longer piece of work."""
    return lambda what, share: progress(prefix + what, (done + span * share) / of)


# -- coordinates ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coordinates:
    """How parameters, those of the base law first, become theta, and back."""

    parameters: tuple[Parameter, ...]
    single: At  # where the base law's terms are measured
    repeated: At  # and those that repetition adds
    loss: float = 1.0  # the unit of all terms
    logarithms: bool = False  # whether theta has those of all parameters, whatever they declare

    def natural(self, columns: Sequence[Any], known: Values | None = None) -> dict[str, Any]:
        """The parameters of theta, given column by column, as laws know them; `known` are others that their
        units may need.
        """
        found = dict(known or {})
        for parameter, column in zip(self.parameters, columns, strict=True):
            logarithmic = self.logarithms or parameter.kind in _LOGARITHMIC
            value = np.exp(column) if logarithmic else column
            found[parameter.name] = value * self.loss if parameter.kind in _TERMS else value
        base = sum(parameter.name in BASE_PARAMETERS for parameter in self.parameters)
        found = natural(self.parameters[:base], found, self.single)
        return natural(self.parameters[base:], found, self.repeated)

    def theta(self, values: Values) -> list[Array]:
        """The other way round, column by column."""
        columns = []
        for parameter in self.parameters:
            value = np.asarray(values[parameter.name], dtype=float)
            if parameter.unit is not None:
                at = self.single if parameter.name in BASE_PARAMETERS else self.repeated
                value = value / parameter.unit(values, at)
            value = value / self.loss if parameter.kind in _TERMS else value
            columns.append(self.scaled(parameter, value))
        return columns

    def scaled(self, parameter: Parameter, values: Any) -> Array:
        """Values in the parameter's unit, such as its bounds and starts, on the scale of theta."""
        logarithmic = self.logarithms or parameter.kind in _LOGARITHMIC
        return np.log(values) if logarithmic else np.asarray(values, dtype=float)


@dataclass(frozen=True)
class Model:
    """ln(loss) of all runs as a function of theta, for a batch of problems: theta is (problems, parameters).

    `known` are parameters that are locked, each one for all problems or (problems, 1).
    """

    terms: Callable[[Values, At], Terms]
    coordinates: Coordinates
    at: At  # the runs
    known: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.coordinates.parameters)

    def log_prediction(self, theta: Array) -> Array:
        """(problems, runs)."""
        return np.asarray(np.log(self._loss(_columns(theta))))

    def jacobian(self, theta: Array) -> tuple[Array, Array]:
        """ln(loss), and its derivatives by theta: (parameters, problems, runs)."""
        columns = _columns(theta)
        slopes = np.array([self._slope(columns, k) for k in range(len(columns))])
        loss = self._loss(columns)
        return np.log(loss), slopes / loss

    def hessian(self, theta: Array, weights: Array) -> Array:
        """Second derivatives of ln(loss), summed over the runs with these weights, (problems, runs):
        (parameters, parameters, problems). Differences of exact first derivatives.
        """
        columns = _columns(theta)
        share = weights / self._loss(columns)
        first = [self._slope(columns, k) for k in range(self.size)]
        drawn = share / self._loss(columns)
        found = np.empty((self.size, self.size, len(theta)))
        for j in range(self.size):
            ahead = [column + _DIFFERENCE if i == j else column for i, column in enumerate(columns)]
            for k in range(j + 1):
                second = (self._slope(ahead, k) - first[k]) / _DIFFERENCE
                found[j, k] = np.einsum("bn,bn->b", share, second)
                found[j, k] -= np.einsum("bn,bn,bn->b", drawn, first[j], first[k])
                found[k, j] = found[j, k]
        return found

    def pick(self, problems: Array | slice) -> Model:
        """The model restricted to some of its problems."""
        known = {name: v[problems] if np.ndim(v) else v for name, v in self.known.items()}
        return replace(self, known=known)

    def _slope(self, columns: list[Array], k: int) -> Array:
        """Of the loss by theta k: the complex step."""
        stepped = [column + 1j * STEP if i == k else column for i, column in enumerate(columns)]
        return np.asarray(np.imag(self._loss(stepped)) / STEP)

    def _loss(self, columns: list[Array]) -> Array:
        with np.errstate(all="ignore"):  # a step out of the domain is refused later
            return np.asarray(self.terms(self.coordinates.natural(columns, self.known), self.at).loss)


def _columns(theta: Array) -> list[Array]:
    return [theta[:, k, None] for k in range(theta.shape[1])]


@dataclass(frozen=True)
class Reference:
    """Where the terms of a law are compared: at theta = (ln of each term there, ln of each exponent)."""

    params: float
    unique_tokens: float
    repeats: float = _REPEATS

    @staticmethod
    def of(setting: Setting) -> Reference:
        """The middle of what a setting was fitted on, where its terms are known best."""
        low, high = setting.fitted_on.unique_tokens
        return Reference(float(np.sqrt(np.prod(setting.fitted_on.params))), float(np.sqrt(low * high)))

    @staticmethod
    def among(points: Points) -> Reference:
        """The middle of some runs."""
        return Reference(*(float(np.exp(np.log(values).mean())) for values in points[:2]))

    def coordinates(self, form: str) -> Coordinates:
        single, repeated = (At(self.params, self.unique_tokens, epochs) for epochs in (1.0, 1 + self.repeats))
        return Coordinates(form_named(form).parameters, single, repeated, logarithms=True)

    def theta(self, law: Law) -> Array:
        return np.array(self.coordinates(law.form).theta(law.parameters))

    def law(self, form: str, theta: Array) -> Law:
        """The law of theta; theta may be (parameters, draws) for many."""
        with np.errstate(over="ignore", divide="ignore"):
            found = self.coordinates(form).natural(list(np.clip(theta, -_FURTHEST, _FURTHEST)))
        return Law(form, {name: np.clip(found[name], _LEAST, _MOST) for name in form_named(form).names})

    def model(self, form: str, points: Points) -> Model:
        return Model(form_named(form).terms, self.coordinates(form), At(*points), {})


def flops_of(points: Points) -> Array:
    return FLOPS_PER_PARAM_TOKEN * points[0] * points[1] * points[2]


def points_of(table: pd.DataFrame) -> Points:
    params, unique, epochs = (
        table[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")
    )
    return params, unique, epochs


# -- the solver ----------------------------------------------------------------------------------------------


class Curvature(NamedTuple):
    """Objective, gradient, Hessian and majorant of every problem; problems come last, so that elimination
    runs over all of them side by side.
    """

    value: Array  # (B,)
    gradient: Array  # (p, B)
    hessian: Array  # (p, p, B)
    majorant: Array  # (p, p, B): positive semidefinite, bounds the Hessian of the linearised prediction


@dataclass(frozen=True)
class Problems:
    """A batch of fits, of which each has parameters (p,). What may be left to gain at the end is `absolute`
    plus `relative` of the objective.
    """

    per_problem: ClassVar[tuple[str, ...]] = ()  # fields with one row for each problem
    absolute: float = field(default=0.0, kw_only=True)
    relative: float = field(default=0.0, kw_only=True)

    def curvature(self, theta: Array) -> Curvature:
        """At theta, (B, p), from first derivatives of the prediction."""
        raise NotImplementedError

    def second_order(self, theta: Array) -> Array | None:
        """What second derivatives of the prediction add to the Hessian, (p, p, B); None: nothing is added."""
        return None

    def move(self, theta: Array, step: Array) -> Array:
        """Where a step leads, both (p, B): theta - step, or a curve that starts in that direction."""
        return np.asarray(theta - step)

    def pick(self, problems: Array | slice) -> Self:
        """Some of the problems."""
        return replace(self, **{name: getattr(self, name)[problems] for name in self.per_problem})


class Bounds(NamedTuple):
    lower: Array
    upper: Array


class Solution(NamedTuple):
    """Where every problem of a batch ended."""

    theta: Array  # (B, p)
    value: Array  # (B,)
    converged: Array  # (B,)
    iterations: Array  # (B,)
    side: Array  # (B, p): -1 where a parameter sits on its lower bound, 1 on its upper one, 0 in between


@dataclass(frozen=True)
class Optimum:
    """The best point that many starts of one problem found, and how far it can be trusted."""

    theta: Array
    value: float
    converged: bool
    starts: int
    share: float  # of the starts that ended there
    gradient_norm: float  # largest component: objective per unit of a parameter, bounds respected
    at_bound: tuple[int, ...]
    curvature: Array  # eigenvalues of the Hessian over the objective, ascending; bounds respected
    flat: Array  # direction of the smallest one
    iterations: int


def minimise(
    problems: Problems, start: Array, bounds: Bounds, *, damping: float = 0.3, max_iterations: int = 150
) -> Solution:
    """Solve every problem of the batch from its start, (problems, parameters)."""
    low, high = bounds.lower[:, None], bounds.upper[:, None]
    x = np.clip(start, bounds.lower, bounds.upper).T
    size = len(start)
    alive = np.arange(size)
    theta, value = x.T.copy(), np.full(size, np.inf)
    converged, iterations = np.zeros(size, dtype=bool), np.zeros(size, dtype=int)
    mu, refused, bent = np.full(size, damping), np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    state = problems.curvature(x.T)
    for iteration in range(1, max_iterations + 1):
        held = ((x <= low) & (state.gradient > 0)) | ((x >= high) & (state.gradient < 0))
        step, promise, newton, crossing = _step(state, x, low, high, held, mu)
        known = np.where(np.isfinite(state.value), state.value, 0.0)  # a wild start has no value
        enough = problems.absolute + problems.relative * known
        near = np.flatnonzero(~bent & (promise <= np.maximum(_NEAR * state.value, enough)))
        if len(near):
            more = problems.pick(near).second_order(x[:, near].T)
            if more is not None:
                state.hessian[..., near] += more
                some = Curvature(*(array[..., near] for array in state))
                found = _step(some, x[:, near], low, high, held[:, near], mu[near])
                for everyone, own in zip((step, promise, newton, crossing), found, strict=True):
                    everyone[..., near] = own
            bent[near] = True
        still = newton & bent & ~crossing & (promise <= enough)
        done = still & (mu < 0.1)
        finished = done | (mu > 1e9) | (iteration == max_iterations)
        if finished.any():
            leaving = alive[finished]
            theta[leaving], value[leaving] = x.T[finished], state.value[finished]
            converged[leaving], iterations[leaving] = done[finished], iteration
            stay = np.flatnonzero(~finished)
            if not len(stay):
                break
            alive, x, mu, refused, bent = alive[stay], x[:, stay], mu[stay], refused[stay], bent[stay]
            step, held, promise = step[:, stay], held[:, stay], promise[stay]
            crossing, still = crossing[stay], still[stay]
            problems = problems.pick(stay)
            state = Curvature(*(array[..., stay] for array in state))
        length = np.minimum(1.0, _LONGEST / np.maximum(np.abs(step).max(axis=0), 1e-300))
        trial = problems.move(x, step * length)
        inside = ((trial >= low) & (trial <= high)).all(axis=0)  # NaN is out of bounds
        straight = crossing | held.any(axis=0) | ~inside
        trial = np.where(straight, np.clip(x - step * length, low, high), trial)
        there = problems.curvature(trial.T)
        better = there.value < state.value
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(better, (state.value - there.value) / np.maximum(promise * length, 1e-300), -1.0)
        mu, refused, bent = _damped(mu, gain, better, refused, still), ~better, bent & ~better
        x = np.where(better, trial, x)
        state = Curvature(*(np.where(better, new, old) for new, old in zip(there, state, strict=True)))
    side = (theta >= bounds.upper).astype(int) - (theta <= bounds.lower)
    return Solution(theta, value, converged, iterations, side)


def _damped(mu: Array, gain: Array, better: Array, refused: Array, still: Array) -> Array:
    """Trust grows after a good step, less so right after a refusal, so that accepting and refusing do not
    alternate. At the optimum nothing can improve: only the damping is in the way.
    """
    looser, tighter = mu * np.where(refused, 0.5, 0.3), np.maximum(mu, 1e-3) * np.where(better, 2.0, 3.5)
    mu = np.maximum(np.where(gain > 0.7, looser, np.where(gain > 0.2, mu, tighter)), 1e-9)
    return np.where(still, 0.3 * np.minimum(mu, 0.3), mu)


def _step(
    state: Curvature, x: Array, low: Array, high: Array, held: Array, mu: Array
) -> tuple[Array, Array, Array, Array]:
    """The step (to be subtracted), the decrease it promises, whether it is a Newton step, and whether it
    meets a bound.
    """
    diagonal = np.arange(len(x))
    ridge = 1e-10 * state.majorant[diagonal, diagonal].max(axis=0) + 1e-300
    matrix = state.hessian + mu * state.majorant
    matrix[diagonal, diagonal] += ridge
    step, newton = _solve(matrix, state.gradient, held)
    if not newton.all():
        fallback = np.maximum(mu, 1e-3) * state.majorant
        fallback[diagonal, diagonal] += ridge
        matrix = np.where(newton, matrix, fallback)
        step = np.where(newton, step, _solve(matrix, state.gradient, held)[0])
    below, above = x - step < low, x - step > high
    across = below | above
    crossing = across.any(axis=0)
    if crossing.any():
        onto = np.where(below, x - low, np.where(above, x - high, 0.0))
        rest = state.gradient - np.einsum("ijb,jb->ib", matrix, onto)
        step = np.where(across, onto, _solve(matrix, rest, held | across)[0])
    promise = (state.gradient * step).sum(axis=0) - 0.5 * np.einsum("ib,ijb,jb->b", step, matrix, step)
    return step, promise, newton, crossing


def _solve(matrix: Array, right: Array, held: Array) -> tuple[Array, Array]:
    """Solve (p, p, B) against (p, B) for all problems by L D L^T, and say which matrices were positive
    definite.

    Held parameters get a step of zero. Elimination runs over the p columns with all problems side by side,
    which for p of 1 to 9 is faster than LAPACK, one problem at a time.
    """
    p = len(right)
    a, x = matrix.copy(), right.copy()
    if held.any():
        a = np.where(held[:, None] | held[None], 0.0, a)
        x = np.where(held, 0.0, x)
        a[np.arange(p), np.arange(p)] += held
    smallest = 1e-13 * np.abs(a[np.arange(p), np.arange(p)])
    definite = np.ones(right.shape[1], dtype=bool)
    inverse = []
    with np.errstate(over="ignore", invalid="ignore"):  # what an indefinite matrix gives is not used
        for j in range(p):
            fine = a[j, j] > smallest[j]
            definite &= fine
            inverse.append(1.0 / np.where(fine, a[j, j], 1.0))
            if j + 1 < p:
                factor = a[j + 1 :, j] * inverse[j]
                a[j + 1 :, j + 1 :] -= factor[:, None] * a[j, None, j + 1 :]
                a[j + 1 :, j] = factor
                x[j + 1 :] -= factor * x[j]
        for j in range(p - 1, -1, -1):
            x[j] *= inverse[j]
            if j + 1 < p:
                x[j] -= (a[j + 1 :, j] * x[j + 1 :]).sum(axis=0)
    return np.where(definite, x, 0.0), definite


def best_of(problems: Problems, starts: Array, bounds: Bounds) -> Optimum:
    """Solve one problem from many starts and describe the best optimum."""
    solution = minimise(problems, starts, bounds, damping=3.0)
    best = int(np.argmin(solution.value))
    theta, value = solution.theta[best], float(solution.value[best])
    one = problems.pick(np.array([best]))
    same = solution.value <= value * (1 + SAME) + 100 * problems.absolute
    state, more = one.curvature(theta[None]), one.second_order(theta[None])
    gradient, hessian = state.gradient[:, 0], (state.hessian + (0.0 if more is None else more))[..., 0]
    free = solution.side[best] == 0
    spectrum, vectors = np.linalg.eigh(hessian[np.ix_(free, free)])
    flat = np.zeros(len(theta))
    flat[free] = vectors[:, :1].sum(axis=1)
    return Optimum(
        theta=theta,
        value=value,
        converged=bool(solution.converged[same].any()),
        starts=len(solution.value),
        share=float(same.mean()),
        gradient_norm=float(np.abs(gradient[free]).max(initial=0.0)),
        at_bound=tuple(int(i) for i in np.flatnonzero(~free)),
        curvature=spectrum / max(value, 1e-300),
        flat=flat,
        iterations=int(solution.iterations.max()),
    )


@dataclass(frozen=True)
class PenalisedLeastSquares(Problems):
    """Half the squares of white residuals and of the distance from a prior: minus the log density of normal
    posteriors of one form after the same runs, of which prior means, losses and error scales differ. First
    derivatives are enough.
    """

    per_problem: ClassVar[tuple[str, ...]] = ("scales", "means", "targets")
    model: Model
    white: Array  # (combinations, runs): from runs to combinations with independent errors
    scales: Array  # (problems, combinations): of those errors
    precision: Array  # (parameters, parameters): of the prior
    means: Array  # (problems, parameters)
    targets: Array  # (problems, runs)

    def solve(self, start: Array, left: float, iterations: int) -> tuple[Array, Array]:
        """The most probable theta of each, and minus its log density; `left` of it may be left to gain."""
        wild = ~np.isfinite(self.curvature(start).value)
        start = np.where(wild[:, None], self.means, start)
        far = np.full(start.shape[1], _FURTHEST)
        problems = replace(self, absolute=left)
        found = minimise(problems, start, Bounds(-far, far), damping=_DAMPING, max_iterations=iterations)
        return found.theta, found.value

    def curvature(self, theta: Array) -> Curvature:
        predicted, slopes = self.model.jacobian(theta)  # (B, n), (p, B, n)
        with np.errstate(over="ignore", invalid="ignore"):  # a wild step is refused later
            left = (predicted - self.targets) @ self.white.T / self.scales
            rows = (slopes @ self.white.T / self.scales).transpose(1, 0, 2)  # (B, p, n)
            apart = theta - self.means
            pull = apart @ self.precision
            value = 0.5 * ((left**2).sum(axis=1) + (pull * apart).sum(axis=1))
            gradient = np.einsum("bpn,bn->pb", rows, left) + pull.T
            hessian = np.moveaxis(rows @ rows.transpose(0, 2, 1) + self.precision, 0, -1)
        wild = ~np.isfinite(hessian).all(axis=(0, 1))
        return Curvature(np.where(wild, np.inf, value), gradient, hessian, hessian)
