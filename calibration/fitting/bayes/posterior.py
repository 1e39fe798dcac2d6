r"""The posterior of one law form after some runs, by Laplace's approximation, and draws from it.

ln(loss) of run i is that of the law, plus a smooth discrepancy of the form, plus noise (Kennedy and O'Hagan
2001):

    y = ln L(x; theta) + s(x) g(x) + e,
    theta ~ N(mean, S),  g ~ GP(0, discrepancy^2 k),  e ~ N(0, noise^2),

with s = (L - E) / L and k falling off as a Gaussian once sizes, budgets or repeats differ by a factor of
about two. The discrepancy is integrated out: it makes the errors of neighbouring runs alike, so that many
runs in one place count as few, and no law is taken to be exact. How large noise and discrepancy are is learnt
from the runs, over a grid of both that carries a wide prior of its own.

For each point of the grid the most probable theta is found, all at once, by the solver of all fits. Laplace's
approximation there gives the evidence, and what every (size, budget) cell would have been predicted to be
without it. Draws are made by randomize-then-optimize (Bardsley et al. 2014): prior mean, losses and
discrepancy are drawn anew, and the most probable theta of each is a draw, which is exact for laws that are
linear in theta and close for these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from calibration.fitting.coordinates import Model, Points, Reference, log_loss, points_of
from calibration.fitting.solver import Bounds, Curvature, minimise
from planner.laws import FORMS

LENGTH = 0.8  # ln of the factor in size, budget or epochs over which the discrepancy changes
# The grid: noise of ln(loss), discrepancy relative to the loss above the irreducible one; and what they are
# usually.
_NOISE, _DISCREPANCY = (0.002, 0.0035, 0.006, 0.01, 0.02, 0.05), (0.002, 0.005, 0.015, 0.05, 0.15)
_USUAL = ((0.006, 0.7), (0.02, 1.0))  # medians and standard deviations of the logarithms
_LEAST_SHARE = 0.05
_FURTHEST = 300.0  # of theta
_DAMPING = 1e-3
_ITERATIONS, _DRAW_ITERATIONS = 60, 20
_LEFT, _DRAW_LEFT = 1e-8, 1e-5  # what may be left to gain of the log density


@dataclass(frozen=True)
class NoiseGrid:
    """Levels of noise and discrepancy, one of each per hypothesis, and how probable they are beforehand."""

    noise: np.ndarray
    discrepancy: np.ndarray

    @staticmethod
    def grid(noise: tuple[float, ...] = _NOISE, discrepancy: tuple[float, ...] = _DISCREPANCY) -> NoiseGrid:
        pairs = np.array([(one, other) for one in noise for other in discrepancy])
        return NoiseGrid(pairs[:, 0], pairs[:, 1])

    @staticmethod
    def coarse() -> NoiseGrid:
        """Few levels: enough to compare priors by."""
        return NoiseGrid.grid(_NOISE[1::2], _DISCREPANCY[1::2])

    @property
    def log_prior(self) -> np.ndarray:
        values = (self.noise, self.discrepancy)
        parts = [((np.log(v) - np.log(m)) / sd) ** 2 for v, (m, sd) in zip(values, _USUAL, strict=True)]
        return np.asarray(-0.5 * sum(parts))

    def __len__(self) -> int:
        return len(self.noise)


@dataclass(frozen=True)
class Observed:
    """The runs of one weight decay.

    Noise and discrepancy have the covariance discrepancy^2 M + noise^2 W^2, where W is the `scatter` of the
    runs. With the eigenvectors of M / (W W), all levels of both are independent errors of the same
    combinations of runs: `white` gives these, `scales` their standard deviations, `coloured` leads back to
    the runs.
    """

    points: Points
    ln_loss: np.ndarray
    irreducible: float  # of the loss, as the prior has it: how much of it a discrepancy can touch
    grid: NoiseGrid
    scatter: np.ndarray  # noise of each run relative to the others'

    @staticmethod
    def of(table: pd.DataFrame, irreducible: float, grid: NoiseGrid | None = None) -> Observed:
        ln_loss = np.log(table["loss"].to_numpy(dtype=float))
        return Observed(
            points_of(table), ln_loss, irreducible, grid or NoiseGrid.grid(), np.ones(len(ln_loss))
        )

    def __len__(self) -> int:
        return len(self.ln_loss)

    def scattered(self, scatter: np.ndarray) -> Observed:
        """The same runs, some of them noisier than others."""
        return replace(self, scatter=scatter)

    @property
    def above(self) -> np.ndarray:
        """The share of each loss that is above the irreducible one; a run below it has little of it."""
        return np.asarray(np.clip(1 - self.irreducible / np.exp(self.ln_loss), _LEAST_SHARE, 1.0))

    @cached_property
    def cells(self) -> np.ndarray:
        """The number of the (size, budget) cell of each run."""
        return np.unique(np.stack(self.points[:2]), axis=1, return_inverse=True)[1].ravel()

    @cached_property
    def _spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        touched = self.above / self.scatter
        values, vectors = np.linalg.eigh(kernel(self.points, self.points) * np.outer(touched, touched))
        return np.maximum(values, 0.0), vectors

    @cached_property
    def white(self) -> np.ndarray:
        """From runs to combinations with independent errors, (combinations, runs)."""
        return np.asarray(self._spectrum[1].T / self.scatter)

    @cached_property
    def coloured(self) -> np.ndarray:
        """From combinations to runs, (runs, combinations)."""
        return np.asarray(self._spectrum[1] * self.scatter[:, None])

    @cached_property
    def scales(self) -> np.ndarray:
        """Of each combination, (levels, runs)."""
        discrepancy, noise = self.grid.discrepancy[:, None], self.grid.noise[:, None]
        return np.asarray(np.sqrt(discrepancy**2 * self._spectrum[0] + noise**2))

    @cached_property
    def log_volume(self) -> np.ndarray:
        """ln of the determinant of each covariance."""
        return np.asarray(2 * np.log(self.scales).sum(axis=1) + 2 * np.log(self.scatter).sum())


def kernel(one: Points, other: Points) -> np.ndarray:
    """How alike the discrepancies of two configurations are."""
    a, b = (
        np.column_stack([np.log(params), np.log(unique), np.log(np.maximum(epochs, 1.0))]) / LENGTH
        for params, unique, epochs in (one, other)
    )
    return np.asarray(np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(axis=-1)))


@dataclass(frozen=True)
class Normal:
    """A normal distribution of theta."""

    mean: np.ndarray
    covariance: np.ndarray

    @cached_property
    def root(self) -> np.ndarray:
        return np.linalg.cholesky(self.covariance)

    @cached_property
    def precision(self) -> np.ndarray:
        return np.linalg.inv(self.covariance)

    @cached_property
    def log_volume(self) -> float:
        return float(2 * np.log(np.diagonal(self.root)).sum())

    def draws(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(self.mean + rng.standard_normal((count, len(self.mean))) @ self.root.T)


@dataclass(frozen=True)
class Posterior:
    """One form after the runs of one weight decay: the most probable theta at each level of the grid."""

    form: str
    reference: Reference
    prior: Normal
    seen: Observed
    theta: np.ndarray  # (levels, parameters)
    jacobian: np.ndarray  # (levels, runs, parameters): of ln(loss) there
    objective: np.ndarray  # minus the log density there, up to a constant

    @cached_property
    def _slopes(self) -> np.ndarray:
        return np.asarray(self.seen.white @ self.jacobian / self.seen.scales[..., None])

    @cached_property
    def information(self) -> np.ndarray:
        """Of the runs alone, per level."""
        return np.asarray(np.swapaxes(self._slopes, 1, 2) @ self._slopes)

    @cached_property
    def covariances(self) -> np.ndarray:
        return np.linalg.inv(self.information + self.prior.precision)

    @cached_property
    def log_evidence(self) -> np.ndarray:
        """Per level, its own probability included."""
        volume = -np.linalg.slogdet(self.covariances)[1] + self.prior.log_volume
        probability = -self.objective - 0.5 * (self.seen.log_volume + volume)
        return np.asarray(probability + self.seen.grid.log_prior)

    @cached_property
    def evidence(self) -> float:
        return float(np.logaddexp.reduce(self.log_evidence))

    @cached_property
    def weights(self) -> np.ndarray:
        """How probable each level is."""
        return np.asarray(np.exp(self.log_evidence - self.evidence))

    @cached_property
    def unseen(self) -> np.ndarray:
        """Per level, what the others leave open of the discrepancy at a run, relative to all of it: root
        mean square.
        """
        seen, grid = self.seen, self.seen.grid
        precision = seen.scales**-2.0 @ seen.white**2
        variance = 1 / precision - (grid.noise[:, None] * seen.scatter) ** 2
        share = variance / (grid.discrepancy[:, None] * seen.above) ** 2
        return np.asarray(np.sqrt(np.clip(share, 0.0, 1.0).mean(axis=1)))

    @property
    def likeliest(self) -> int:
        return int(np.argmax(self.log_evidence))

    @property
    def levels(self) -> tuple[float, float]:
        """Noise and discrepancy: root mean squares over the whole grid."""
        grid = self.seen.grid
        noise, discrepancy = (np.sqrt(self.weights @ values**2) for values in (grid.noise, grid.discrepancy))
        return float(noise), float(discrepancy)

    @cached_property
    def mean(self) -> np.ndarray:
        return np.asarray(self.weights @ self.theta)

    @cached_property
    def covariance(self) -> np.ndarray:
        apart = self.theta - self.mean
        within = np.einsum("d,dij->ij", self.weights, self.covariances)
        return np.asarray(within + np.einsum("d,di,dj->ij", self.weights, apart, apart))

    def likelihood(self) -> tuple[np.ndarray, np.ndarray]:
        """What the runs alone say of theta at the likeliest level: a precision, and it times the mean."""
        d = self.likeliest
        predicted, _ = log_loss(self.form, self.reference, self.theta[d : d + 1], self.seen.points)
        left = self.seen.white @ (self.seen.ln_loss - predicted[0]) / self.seen.scales[d]
        return self.information[d], self._slopes[d].T @ (left + self._slopes[d] @ self.theta[d])

    @cached_property
    def residuals(self) -> np.ndarray:
        """ln(observed / predicted by the law without its discrepancy) of every run, in units of how much it
        scatters.
        """
        predicted, _ = log_loss(self.form, self.reference, self.mean[None], self.seen.points)
        return np.asarray((self.seen.ln_loss - predicted[0]) / self.seen.scatter)

    @property
    def parameters_learnt(self) -> float:
        """The effective number of parameters (MacKay 1992): those that the runs decide, and not the prior."""
        d = self.likeliest
        return float(np.trace(self.covariances[d] @ self.information[d]))

    def left_out(self, cells: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """ln(observed / predicted) of every run had its cell been left out, and the standard deviation of
        it."""
        d, cells = self.likeliest, self.seen.cells if cells is None else cells
        predicted, _ = log_loss(self.form, self.reference, self.theta[d : d + 1], self.seen.points)
        apart = self.seen.ln_loss - predicted[0] + self.jacobian[d] @ (self.theta[d] - self.prior.mean)
        white, slopes = self.seen.white / self.seen.scales[d][:, None], self._slopes[d]
        inner = np.eye(len(apart)) - slopes @ self.covariances[d] @ slopes.T
        precision = white.T @ inner @ white
        pull = precision @ apart
        error, sd = np.empty(len(apart)), np.empty(len(apart))
        for cell in np.unique(cells):
            rows = np.flatnonzero(cells == cell)
            variance = np.linalg.inv(precision[np.ix_(rows, rows)])
            error[rows], sd[rows] = variance @ pull[rows], np.sqrt(np.diagonal(variance))
        return error, sd

    def draws(
        self, prior: Normal, means: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """A draw of theta for each prior mean, and as much of its discrepancy as is open elsewhere.

        `means` are draws of the prior mean, each to be deviated from as `prior` says.
        """
        count, size = len(means), len(self.seen)
        which = np.sort(rng.choice(len(self.weights), size=count, p=self.weights / self.weights.sum()))
        errors = rng.standard_normal((count, size))
        targets = np.empty((count, size))
        start = np.empty_like(means)
        for d in np.unique(which):  # of a linear law, the start is the draw
            rows = np.flatnonzero(which == d)
            targets[rows] = self.seen.ln_loss + (errors[rows] * self.seen.scales[d]) @ self.seen.coloured.T
            curvature = np.linalg.inv(self.information[d] + prior.precision)
            pulls = errors[rows] @ self._slopes[d] + (means[rows] - prior.mean) @ prior.precision
            start[rows] = self.theta[d] + pulls @ curvature
        model = self.reference.model(self.form, self.seen.points)
        problems = PosteriorProblems(model, self.seen, prior.precision, means, targets, which, _DRAW_LEFT)
        theta, _ = problems.solve(start, _DRAW_ITERATIONS)
        order = rng.permutation(count)
        return self.bounded(theta[order]), (self.seen.grid.discrepancy * self.unseen)[which[order]]

    def bounded(self, theta: np.ndarray) -> np.ndarray:
        """Draws within what the registry allows for exponents: one of many thousands runs off."""
        found = theta.copy()
        for place, parameter in enumerate(FORMS[self.form].parameters):
            if parameter.kind == "exponent":
                found[:, place] = np.clip(theta[:, place], *np.log(parameter.bounds))
        return found


def laplace_posterior(
    form: str, reference: Reference, prior: Normal, seen: Observed, near: Posterior | None = None
) -> Posterior:
    """The posterior of a form after these runs; `near` is one of the same form from which to start."""
    levels = len(seen.grid)
    means, targets = np.tile(prior.mean, (levels, 1)), np.tile(seen.ln_loss, (levels, 1))
    model = reference.model(form, seen.points)
    which = np.arange(levels)
    problems = PosteriorProblems(model, seen, prior.precision, means, targets, which, _LEFT)
    theta, objective = problems.solve(means if near is None else near.theta, _ITERATIONS)
    _, jacobian = log_loss(form, reference, theta, seen.points)
    return Posterior(form, reference, prior, seen, theta, jacobian, objective)


@dataclass(frozen=True)
class PosteriorProblems:
    """Minus the log density of many posteriors of one form given the same runs, as the solver wants them:
    prior means, losses and levels differ. Least squares, so that first derivatives are enough.
    """

    model: Model
    seen: Observed
    precision: np.ndarray
    means: np.ndarray  # (problems, parameters)
    targets: np.ndarray  # (problems, runs)
    which: np.ndarray  # level of each
    left: float  # to gain

    def solve(self, start: np.ndarray, iterations: int) -> tuple[np.ndarray, np.ndarray]:
        """The most probable theta of each, and minus its log density."""
        wild = ~np.isfinite(self.curvature(start).value)
        start = np.where(wild[:, None], self.means, start)
        far = np.full(start.shape[1], _FURTHEST)
        found = minimise(self, start, Bounds(-far, far), damping=_DAMPING, max_iterations=iterations)
        return found.theta, found.value

    def curvature(self, theta: np.ndarray) -> Curvature:
        predicted, slopes = self.model.slopes(theta)  # (B, n), (p, B, n)
        scales = self.seen.scales[self.which]
        with np.errstate(over="ignore", invalid="ignore"):  # a wild step is refused later
            left = (predicted - self.targets) @ self.seen.white.T / scales
            white = (slopes @ self.seen.white.T / scales).transpose(1, 0, 2)  # (B, p, n)
            apart = theta - self.means
            pull = apart @ self.precision
            value = 0.5 * ((left**2).sum(axis=1) + (pull * apart).sum(axis=1))
            gradient = np.einsum("bpn,bn->pb", white, left) + pull.T
            hessian = np.moveaxis(white @ white.transpose(0, 2, 1) + self.precision, 0, -1)
        wild = ~np.isfinite(hessian).all(axis=(0, 1))
        return Curvature(np.where(wild, np.inf, value), gradient, hessian, hessian)

    def bends(self, theta: np.ndarray) -> None:
        return None

    def pick(self, problems: np.ndarray | slice) -> PosteriorProblems:
        rows = {name: getattr(self, name)[problems] for name in ("means", "targets", "which")}
        return replace(self, **rows)

    def move(self, theta: np.ndarray, step: np.ndarray) -> np.ndarray:
        return np.asarray(theta - step)

    def tolerance(self, value: np.ndarray) -> np.ndarray:
        return np.full_like(value, self.left)
