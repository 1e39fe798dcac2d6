r"""Solves a batch of small fits to their optimum: damped Newton on all problems at once, inside bounds.

The paper's fit (a Huber loss, `huber`) and the Bayesian one (least squares with a prior, `bayes.posterior`)
are both solved here. Each iteration solves (H + mu G) d = gradient for every problem, with a Hessian H, a
majorant G and a damping mu per problem that follows the ratio of actual to predicted decrease (Levenberg
1944, Marquardt 1963; More 1978). Where H + mu G is not positive definite the step comes from mu G alone,
which always descends. Huber's delta = 0.001 makes the objective nearly piecewise linear (few runs in the
quadratic core, kinks everywhere): plain Newton cycles there, reweighted least squares stalls at 1e-6 of the
objective, and quasi-Newton methods stop early, while G knows how far the step may go. Damping with G rather
than the identity also makes the method indifferent to how the parameters are scaled.

H is what first derivatives give, J^T W J, until a problem is near its end. There the second derivatives of
the prediction are added, which cost several times as much and without which the last digits take for ever.

Bounds are handled by an active set: parameters that sit on a bound and are pushed outwards are held, and
parameters that the step would carry across a bound are put on it, the others being solved again. Problems
leave the batch as they converge.

Convergence means that the quadratic model promises less than the problem's own tolerance, with hardly any
damping. Nothing else counts, in particular not the lack of progress.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

Array = np.ndarray

_LONGEST = 3.0  # in one step, of any parameter: a factor of 20 in an amplitude
_NEAR = 1e-5  # of the objective: a step that promises less is near the end
SAME = 1e-9  # objectives that agree to this (relative) are the same optimum


class Curvature(NamedTuple):
    """Objective, gradient, Hessian and majorant of every problem; problems come last, so that elimination
    runs over all of them side by side.
    """

    value: Array  # (B,)
    gradient: Array  # (p, B)
    hessian: Array  # (p, p, B)
    majorant: Array  # (p, p, B): positive semidefinite, bounds the Hessian of the linearised prediction


class Problems(Protocol):
    """A batch of fits, of which each has parameters (p,)."""

    def curvature(self, theta: Array) -> Curvature:
        """At theta, (B, p), from first derivatives of the prediction."""

    def bends(self, theta: Array) -> Array | None:
        """What second derivatives of the prediction add to the Hessian, (p, p, B); None: nothing is added."""

    def pick(self, problems: Array | slice) -> Self:
        """Some of the problems."""

    def move(self, theta: Array, step: Array) -> Array:
        """Where a step leads, both (p, B): theta - step, or a curve that starts in that direction."""

    def tolerance(self, value: Array) -> Array:
        """What may be left to gain at an objective of this value."""


class Bounds(NamedTuple):
    lower: Array
    upper: Array


class Solution(NamedTuple):
    """Where every problem of a batch ended."""

    theta: Array  # (B, p)
    value: Array  # (B,)
    converged: Array  # (B,)
    iterations: Array  # (B,)
    at_bound: Array  # (B, p)


@dataclass(frozen=True)
class Optimum:
    """The best point that many starts of one problem found, and how far it can be trusted."""

    theta: Array
    value: float
    converged: bool
    starts: int
    share: float  # of the starts that ended there
    gradient_norm: (
        float  # largest component, in units of the objective per unit of a parameter, bounds respected
    )
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
        enough = problems.tolerance(state.value)
        near = np.flatnonzero(~bent & (promise <= np.maximum(_NEAR * state.value, enough)))
        if len(near):
            more = problems.pick(near).bends(x[:, near].T)
            if more is not None:
                state.hessian[..., near] += more
                found = _step(_some(state, near), x[:, near], low, high, held[:, near], mu[near])
                for everyone, some in zip((step, promise, newton, crossing), found, strict=True):
                    everyone[..., near] = some
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
            problems, state = problems.pick(stay), _some(state, stay)
        length = np.minimum(1.0, _LONGEST / np.maximum(np.abs(step).max(axis=0), 1e-300))
        trial = problems.move(x, step * length)
        inside = ((trial >= low) & (trial <= high)).all(axis=0)  # NaN is out of bounds
        straight = crossing | held.any(axis=0) | ~inside
        if straight.any():
            trial = np.where(straight, np.clip(x - step * length, low, high), trial)
        there = problems.curvature(trial.T)
        better = there.value < state.value
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(better, (state.value - there.value) / np.maximum(promise * length, 1e-300), -1.0)
        mu, refused, bent = _damped(mu, gain, better, refused, still), ~better, bent & ~better
        x = np.where(better, trial, x)
        state = (
            there
            if better.all()
            else Curvature(*(np.where(better, new, old) for new, old in zip(there, state, strict=True)))
        )
    return Solution(theta, value, converged, iterations, (theta <= bounds.lower) | (theta >= bounds.upper))


def _damped(mu: Array, gain: Array, better: Array, refused: Array, still: Array) -> Array:
    """Trust grows after a good step, less so right after a refusal, so that accepting and refusing do not
    alternate. At the optimum nothing can improve: only the damping is in the way.
    """
    looser, tighter = mu * np.where(refused, 0.5, 0.3), np.maximum(mu, 1e-3) * np.where(better, 2.0, 3.5)
    mu = np.maximum(np.where(gain > 0.7, looser, np.where(gain > 0.2, mu, tighter)), 1e-9)
    return np.where(still, 0.3 * np.minimum(mu, 0.3), mu)


def _some(state: Curvature, problems: Array) -> Curvature:
    return Curvature(*(array[..., problems] for array in state))


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
    same = solution.value <= value * (1 + SAME) + 100 * float(problems.tolerance(np.zeros(1))[0])
    state, more = one.curvature(theta[None]), one.bends(theta[None])
    gradient, hessian = (
        state.gradient[:, 0],
        (state.hessian if more is None else state.hessian + more)[..., 0],
    )
    free = ~solution.at_bound[best]
    spectrum, vectors = (
        np.linalg.eigh(hessian[np.ix_(free, free)]) if free.any() else (np.empty(0), np.empty((0, 0)))
    )
    flat = np.zeros(len(theta))
    if free.any():
        flat[free] = vectors[:, 0]
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
