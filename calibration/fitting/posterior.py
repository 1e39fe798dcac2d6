r"""What is believed of a law after some runs: one form, many doubts, all draws at once.

ln(loss) of run i is that of the law, plus a smooth misfit of the form, plus noise:

    y = ln L(x; theta) + s(x) g(x) + e,     theta ~ N(mean, S),  g ~ GP(0, misfit^2 k),  e ~ N(0, noise^2),

with s = (L - E) / L and k falling off as a Gaussian once sizes, budgets or repeats differ by a factor of
about two. The misfit is integrated out: it makes the errors of neighbouring runs alike, so that many runs in
one place count as few, and no law is believed exactly. How large noise and misfit are is learnt from the
runs, over a grid of both that carries a wide prior of its own.

For each form and each point of the grid the most probable theta is found by damped Gauss-Newton, all at
once. Laplace's approximation there gives the evidence, and what every (size, budget) cell would have been
predicted to be without it. Draws are made by randomising and optimising again: prior mean, losses and misfit
are redrawn from what is believed of them, and the most probable theta of each is a draw, which is exact for
laws that are linear in theta and close for these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from calibration.fitting.coordinates import Points, Reference, log_loss, points_of
from planner.laws import FORMS

LENGTH = 0.8  # ln of the factor in size, budget or epochs over which the misfit changes
# The grid of doubts: noise of ln(loss), misfit relative to the loss above the floor; and what they are
# usually.
_NOISE, _MISFIT = (0.002, 0.0035, 0.006, 0.01, 0.02, 0.05), (0.002, 0.005, 0.015, 0.05, 0.15)
_USUAL = ((0.006, 0.7), (0.02, 1.0))  # medians and standard deviations of the logarithms
_LEAST_SHARE = 0.05
_ITERATIONS, _REDRAWN_ITERATIONS = 25, 8
_SETTLED, _REDRAWN_SETTLED = 1e-3, 1e-2  # change of the objective (minus twice the log density)
_LONGEST_STEP = 2.0


@dataclass(frozen=True)
class Doubts:
    """Levels of noise and misfit, one of each per hypothesis, and how probable they are beforehand."""

    noise: np.ndarray
    misfit: np.ndarray

    @staticmethod
    def grid(noise: tuple[float, ...] = _NOISE, misfit: tuple[float, ...] = _MISFIT) -> Doubts:
        pairs = np.array([(one, other) for one in noise for other in misfit])
        return Doubts(pairs[:, 0], pairs[:, 1])

    @staticmethod
    def coarse() -> Doubts:
        """Few levels: enough to compare priors by."""
        return Doubts.grid(_NOISE[1::2], _MISFIT[1::2])

    @property
    def log_prior(self) -> np.ndarray:
        values = (self.noise, self.misfit)
        parts = [((np.log(v) - np.log(m)) / sd) ** 2 for v, (m, sd) in zip(values, _USUAL, strict=True)]
        return np.asarray(-0.5 * sum(parts))

    def __len__(self) -> int:
        return len(self.noise)


@dataclass(frozen=True)
class Observed:
    """The runs of one weight decay as a belief sees them.

    Noise and misfit have the covariance misfit^2 M + noise^2 W^2, where W is the `scatter` of the runs. With
    the eigenvectors of M / (W W), all levels of both are independent errors of the same combinations of
    runs: `white` gives these, `scales` their standard deviations, `coloured` leads back to the runs.
    """

    points: Points
    ln_loss: np.ndarray
    floor: float  # of the loss, as believed beforehand: how much of it a misfit can touch
    doubts: Doubts
    scatter: np.ndarray  # noise of each run relative to the others'

    @staticmethod
    def of(table: pd.DataFrame, floor: float, doubts: Doubts | None = None) -> Observed:
        ln_loss = np.log(table["loss"].to_numpy(dtype=float))
        return Observed(points_of(table), ln_loss, floor, doubts or Doubts.grid(), np.ones(len(ln_loss)))

    def __len__(self) -> int:
        return len(self.ln_loss)

    def scattered(self, scatter: np.ndarray) -> Observed:
        """The same runs, some of them noisier than others."""
        return replace(self, scatter=scatter)

    @property
    def above(self) -> np.ndarray:
        """The share of each loss that is above the floor; a run below it has little of it."""
        return np.asarray(np.clip(1 - self.floor / np.exp(self.ln_loss), _LEAST_SHARE, 1.0))

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
        """Of each combination, (doubts, runs)."""
        misfit, noise = self.doubts.misfit[:, None], self.doubts.noise[:, None]
        return np.asarray(np.sqrt(misfit**2 * self._spectrum[0] + noise**2))

    @cached_property
    def log_volume(self) -> np.ndarray:
        """ln of the determinant of each covariance."""
        return np.asarray(2 * np.log(self.scales).sum(axis=1) + 2 * np.log(self.scatter).sum())


def kernel(one: Points, other: Points) -> np.ndarray:
    """How alike the misfits of two configurations are."""
    a, b = (
        np.column_stack([np.log(params), np.log(unique), np.log(np.maximum(epochs, 1.0))]) / LENGTH
        for params, unique, epochs in (one, other)
    )
    return np.asarray(np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(axis=-1)))


@dataclass(frozen=True)
class Normal:
    """What is believed of theta beforehand."""

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
    """One form after the runs of one weight decay: the most probable theta under each doubt."""

    form: str
    reference: Reference
    prior: Normal
    seen: Observed
    theta: np.ndarray  # (doubts, parameters)
    jacobian: np.ndarray  # (doubts, runs, parameters): of ln(loss) there
    objective: np.ndarray

    @cached_property
    def _slopes(self) -> np.ndarray:
        return np.asarray(self.seen.white @ self.jacobian / self.seen.scales[..., None])

    @cached_property
    def information(self) -> np.ndarray:
        """Of the runs alone, per doubt."""
        return np.asarray(np.swapaxes(self._slopes, 1, 2) @ self._slopes)

    @cached_property
    def covariances(self) -> np.ndarray:
        return np.linalg.inv(self.information + self.prior.precision)

    @cached_property
    def log_evidence(self) -> np.ndarray:
        """Per doubt, its own probability included."""
        volume = -np.linalg.slogdet(self.covariances)[1] + self.prior.log_volume
        probability = -0.5 * (self.objective + self.seen.log_volume + volume)
        return np.asarray(probability + self.seen.doubts.log_prior)

    @cached_property
    def evidence(self) -> float:
        return float(np.logaddexp.reduce(self.log_evidence))

    @cached_property
    def weights(self) -> np.ndarray:
        """How probable each doubt is."""
        return np.asarray(np.exp(self.log_evidence - self.evidence))

    @cached_property
    def unseen(self) -> np.ndarray:
        """Per doubt, what the others leave open of the misfit at a run, relative to all of it: root mean
        square."""
        seen, doubts = self.seen, self.seen.doubts
        precision = seen.scales**-2.0 @ seen.white**2
        variance = 1 / precision - (doubts.noise[:, None] * seen.scatter) ** 2
        share = variance / (doubts.misfit[:, None] * seen.above) ** 2
        return np.asarray(np.sqrt(np.clip(share, 0.0, 1.0).mean(axis=1)))

    @property
    def likeliest(self) -> int:
        return int(np.argmax(self.log_evidence))

    @property
    def levels(self) -> tuple[float, float]:
        """Noise and misfit as they are believed: root mean squares over all doubts."""
        doubts = self.seen.doubts
        noise, misfit = (np.sqrt(self.weights @ values**2) for values in (doubts.noise, doubts.misfit))
        return float(noise), float(misfit)

    @cached_property
    def mean(self) -> np.ndarray:
        return np.asarray(self.weights @ self.theta)

    @cached_property
    def covariance(self) -> np.ndarray:
        apart = self.theta - self.mean
        within = np.einsum("d,dij->ij", self.weights, self.covariances)
        return np.asarray(within + np.einsum("d,di,dj->ij", self.weights, apart, apart))

    def message(self) -> tuple[np.ndarray, np.ndarray]:
        """What the runs alone say of theta under the likeliest doubt: a precision, and it times the mean."""
        d = self.likeliest
        predicted, _ = log_loss(self.form, self.reference, self.theta[d : d + 1], self.seen.points)
        left = self.seen.white @ (self.seen.ln_loss - predicted[0]) / self.seen.scales[d]
        return self.information[d], self._slopes[d].T @ (left + self._slopes[d] @ self.theta[d])

    @cached_property
    def alone(self) -> np.ndarray:
        """ln(observed / predicted by the law without its misfit) of every run, in units of how much it
        scatters.
        """
        predicted, _ = log_loss(self.form, self.reference, self.mean[None], self.seen.points)
        return np.asarray((self.seen.ln_loss - predicted[0]) / self.seen.scatter)

    @property
    def settled(self) -> float:
        """How many parameters the runs decide, and not the prior."""
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

    def redrawn(
        self, prior: Normal, means: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """A draw of theta for each prior mean, and as much of the misfit believed in it as is open elsewhere.

        `means` are draws of what is believed beforehand, each to be deviated from as `prior` says.
        """
        count, size = len(means), len(self.seen)
        which = np.sort(rng.choice(len(self.weights), size=count, p=self.weights / self.weights.sum()))
        errors = rng.standard_normal((count, size))
        targets = np.empty((count, size))
        start = np.empty_like(means)
        for d in np.unique(which):
            rows = np.flatnonzero(which == d)
            targets[rows] = self.seen.ln_loss + (errors[rows] * self.seen.scales[d]) @ self.seen.coloured.T
            curvature = np.linalg.inv(self.information[d] + prior.precision)
            pulls = errors[rows] @ self._slopes[d] + (means[rows] - prior.mean) @ prior.precision
            start[rows] = self.theta[d] + pulls @ curvature
        redraw = _Problem(self.form, self.reference, self.seen, prior.precision, means, targets, which)
        found = redraw.solve(start, _REDRAWN_ITERATIONS, _REDRAWN_SETTLED)
        order = rng.permutation(count)
        return self.bounded(found.theta[order]), (self.seen.doubts.misfit * self.unseen)[which[order]]

    def bounded(self, theta: np.ndarray) -> np.ndarray:
        """Draws within what the registry allows for exponents: one of many thousands runs off."""
        found = theta.copy()
        for place, parameter in enumerate(FORMS[self.form].parameters):
            if parameter.kind == "exponent":
                found[:, place] = np.clip(theta[:, place], *np.log(parameter.bounds))
        return found


def after(
    form: str, reference: Reference, prior: Normal, seen: Observed, near: Posterior | None = None
) -> Posterior:
    """The belief in a form after these runs; `near` is one of the same form from which to start."""
    doubts = len(seen.doubts)
    means = np.tile(prior.mean, (doubts, 1))
    targets = np.tile(seen.ln_loss, (doubts, 1))
    problem = _Problem(form, reference, seen, prior.precision, means, targets, np.arange(doubts))
    found = problem.solve(means if near is None else near.theta, _ITERATIONS, _SETTLED)
    return Posterior(form, reference, prior, seen, found.theta, found.jacobian, found.objective)


@dataclass
class _State:
    theta: np.ndarray
    jacobian: np.ndarray
    left: np.ndarray  # whitened residuals
    objective: np.ndarray

    def take(self, other: _State, into: np.ndarray, rows: np.ndarray) -> None:
        for name in ("theta", "jacobian", "left", "objective"):
            getattr(self, name)[into] = getattr(other, name)[rows]


@dataclass(frozen=True)
class _Problem:
    """Many fits of one form to the same runs: prior means, losses and doubts differ."""

    form: str
    reference: Reference
    seen: Observed
    precision: np.ndarray
    means: np.ndarray
    targets: np.ndarray
    which: np.ndarray  # doubt of each

    def solve(self, start: np.ndarray, iterations: int, settled: float) -> _State:
        """Damped Gauss-Newton from each start."""
        everyone = np.arange(len(start))
        state = self._at(start.copy(), everyone)
        restart = ~(state.objective < np.inf)
        if restart.any():
            state.take(
                self._at(self.means[restart], everyone[restart]), restart, np.arange(int(restart.sum()))
            )
        damping, active = np.full(len(start), 1e-3), everyone
        diagonal = np.arange(start.shape[1])
        for _ in range(iterations):
            slopes = self._white(state.jacobian[active], active)
            pull = np.einsum("bnp,bn->bp", slopes, state.left[active])
            pull += (state.theta[active] - self.means[active]) @ self.precision
            curvature = np.swapaxes(slopes, 1, 2) @ slopes + self.precision
            curvature[:, diagonal, diagonal] *= 1 + damping[active, None]
            step = np.linalg.solve(curvature, pull[..., None])[..., 0]
            there = self._at(state.theta[active] - np.clip(step, -_LONGEST_STEP, _LONGEST_STEP), active)
            with np.errstate(invalid="ignore"):  # from one wild place to another
                gain = state.objective[active] - there.objective
            better = gain >= 0
            state.take(there, active[better], better)
            damping[active] *= np.where(better, 0.1, 10.0)
            active = active[~(better & (gain < settled)) & (damping[active] < 1e8)]
            if not len(active):
                break
        return state

    def _at(self, theta: np.ndarray, rows: np.ndarray) -> _State:
        predicted, jacobian = log_loss(self.form, self.reference, theta, self.seen.points)
        left = self._white((predicted - self.targets[rows])[..., None], rows)[..., 0]
        apart = theta - self.means[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            objective = (left**2).sum(axis=1) + np.einsum("bi,ij,bj->b", apart, self.precision, apart)
        wild = ~(np.isfinite(objective) & np.isfinite(jacobian).all(axis=(1, 2)))
        return _State(theta, jacobian, left, np.where(wild, np.inf, objective))

    def _white(self, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Residuals or slopes, (problems, runs, ...), in units of what is doubted of their combinations."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.seen.white @ values / self.seen.scales[self.which[rows]][..., None])
