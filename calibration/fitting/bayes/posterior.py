r"""The posterior of one law form after some runs, by Laplace's approximation, and draws from it.

ln(loss) of run i is that of the law, plus a smooth discrepancy of the form, plus noise (Kennedy and O'Hagan
2001):

    y = ln L(x; theta) + s(x) g(x) + e,
    theta ~ N(mean, S),  g ~ GP(0, discrepancy^2 k),  e ~ N(0, noise^2),

with s = (L - E) / L and k falling off as a Gaussian once sizes, budgets or repeats differ by a factor of
about two. The discrepancy is integrated out: it makes the errors of neighbouring runs alike, so that many
runs in one place count as few, and no law is taken to be exact. How large noise and discrepancy are is learnt
from the runs, over a grid of both that carries a wide prior of its own.

Outliers, which neither noise nor discrepancy explains, are thought noisier the further they are off
(`reweight_outliers`).

For each point of the grid the most probable theta is found, all at once, by the solver of all fits. Laplace's
approximation there gives the evidence, and what every (size, budget) cell would have been predicted to be
without it. Draws are made by randomize-then-optimize (Bardsley et al. 2014): prior mean, losses and
discrepancy are drawn anew, and the most probable theta of each is a draw, which is exact for laws that are
linear in theta and close for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.runs.arrays import SINGLE_EPOCH
from calibration.fitting.solver import PenalisedLeastSquares, Points, Reference, points_of
from planner.laws import FORMS, Law

LENGTH = 0.8  # ln of the factor in size, budget or epochs over which the discrepancy changes
# The grid: noise of ln(loss), discrepancy relative to the loss above the irreducible one; and what they are
# usually.
_NOISE, _DISCREPANCY = (0.002, 0.0035, 0.006, 0.01, 0.02, 0.05), (0.002, 0.005, 0.015, 0.05, 0.15)
_USUAL = ((0.006, 0.7), (0.02, 1.0))  # medians and standard deviations of the logarithms
_LEAST_SHARE = 0.05  # of a loss, above the irreducible one
_ITERATIONS, _DRAW_ITERATIONS = 60, 20
_LEFT, _DRAW_LEFT = 1e-8, 1e-5  # what may be left to gain of the log density

FAR_OFF = 4.5  # standard deviations of a run's own left-out prediction: beyond, it is an outlier
_MOST_OUTLIERS = 0.2  # of all runs
_AS_FAR = 0.8  # of the furthest: what is left out together with it
_PASSES, _SAME = 8, 0.2  # over the runs, until ln of what they scatter changes no more than this
_NOISIER = 3.0  # noise of repeated runs over that of single-epoch ones, where it is clearly larger
_CLEARLY = 3.0  # ln of the odds that show it

_REPEATED = 1.75  # epochs: below (1.0003 is one epoch, rounded) nothing shows how the cost of repeats grows
_STEEPEST = 0.5  # change of ln of an exponent
# Of the loss above the irreducible one: a term that is not there can be tilted, but not without end.
_LEAST_TERM = 1e-3
# For losses, slopes by size and data are in doubt by this share of what they are at one place: a compromise.
# Over R lengths of a discrepancy it is 0.77, 0.46 and 0.29 at R = 2, 4 and 6, and tables have 2 to 9 of
# them; but beyond the runs the slope at their edge counts. Repeats have no such range in most tables.
_OVER_ALL = np.array([[0.5], [0.5], [1.0]])


@dataclass(frozen=True)
class NoiseGrid:
    """Levels of noise and discrepancy, each with each: a hypothesis per pair, and how probable it is
    beforehand.
    """

    noise_levels: tuple[float, ...] = _NOISE
    discrepancy_levels: tuple[float, ...] = _DISCREPANCY

    @property
    def noise(self) -> np.ndarray:
        return np.repeat(self.noise_levels, len(self.discrepancy_levels))

    @property
    def discrepancy(self) -> np.ndarray:
        return np.tile(self.discrepancy_levels, len(self.noise_levels))

    @property
    def log_prior(self) -> np.ndarray:
        values = (self.noise, self.discrepancy)
        parts = [((np.log(v) - np.log(m)) / sd) ** 2 for v, (m, sd) in zip(values, _USUAL, strict=True)]
        return np.asarray(-0.5 * sum(parts))


FINE, COARSE = NoiseGrid(), NoiseGrid(_NOISE[1::2], _DISCREPANCY[1::2])  # the latter to compare priors by


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

    @property
    def log_volume(self) -> float:
        return float(2 * np.log(np.diagonal(self.root)).sum())

    def updated(self, said: Sequence[tuple[np.ndarray, np.ndarray]]) -> Normal:
        """Given what was said of theta: precisions, and each times its mean."""
        covariance = np.linalg.inv(self.precision + sum(one for one, _ in said))
        pull = self.precision @ self.mean + sum(one for _, one in said)
        return Normal(covariance @ pull, 0.5 * (covariance + covariance.T))

    def draws(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(self.mean + rng.standard_normal((count, len(self.mean))) @ self.root.T)


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
    cells: np.ndarray  # number of the (size, budget) cell of each run

    @staticmethod
    def of(table: pd.DataFrame, irreducible: float, grid: NoiseGrid) -> Observed:
        points, ln_loss = points_of(table), np.log(table["loss"].to_numpy(dtype=float))
        cells = np.unique(np.stack(points[:2]), axis=1, return_inverse=True)[1].ravel()
        return Observed(points, ln_loss, irreducible, grid, np.ones(len(ln_loss)), cells)

    @property
    def above(self) -> np.ndarray:
        """The share of each loss that is above the irreducible one; a run below it has little of it."""
        return np.asarray(np.clip(1 - self.irreducible / np.exp(self.ln_loss), _LEAST_SHARE, 1.0))

    @cached_property
    def _spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        touched = self.above / self.scatter
        values, vectors = np.linalg.eigh(kernel(self.points, self.points) * np.outer(touched, touched))
        return np.maximum(values, 0.0), vectors

    @cached_property
    def white(self) -> np.ndarray:
        """From runs to combinations with independent errors, (combinations, runs)."""
        return np.asarray(self._spectrum[1].T / self.scatter)

    @property
    def coloured(self) -> np.ndarray:
        """From combinations to runs, (runs, combinations)."""
        return np.asarray(self._spectrum[1] * self.scatter[:, None])

    @cached_property
    def scales(self) -> np.ndarray:
        """Of each combination, (levels, runs)."""
        discrepancy, noise = self.grid.discrepancy[:, None], self.grid.noise[:, None]
        return np.asarray(np.sqrt(discrepancy**2 * self._spectrum[0] + noise**2))

    @property
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


class Drawn(NamedTuple):
    """Draws of a law as steep as it may be at a place, as steep as it may be over all runs (for losses), and
    by how much the form of each is off.
    """

    law: Law
    loss_law: Law
    discrepancy: np.ndarray


@dataclass(frozen=True)
class Posterior:
    """One form after the runs of one weight decay: the most probable theta at each level of the grid."""

    form: str
    reference: Reference
    prior: Normal
    seen: Observed
    theta: np.ndarray  # (levels, parameters)
    predicted: np.ndarray  # (levels, runs): ln(loss) there
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

    @property
    def evidence(self) -> float:
        return float(np.logaddexp.reduce(self.log_evidence))

    @cached_property
    def weights(self) -> np.ndarray:
        """How probable each level is."""
        return np.asarray(np.exp(self.log_evidence - self.evidence))

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

    @property
    def law(self) -> Law:
        return self.reference.law(self.form, self.mean)

    @property
    def covariance(self) -> np.ndarray:
        apart = self.theta - self.mean
        within = np.einsum("d,dij->ij", self.weights, self.covariances)
        return np.asarray(within + np.einsum("d,di,dj->ij", self.weights, apart, apart))

    @cached_property
    def residuals(self) -> np.ndarray:
        """ln(observed / predicted by the law without its discrepancy) of every run, in units of how much it
        scatters.
        """
        model = self.reference.model(self.form, self.seen.points)
        return np.asarray((self.seen.ln_loss - model.log_prediction(self.mean[None])[0]) / self.seen.scatter)

    @property
    def effective_parameters(self) -> float:
        """The effective number of parameters (MacKay 1992): those that the runs decide, and not the prior."""
        d = self.likeliest
        return float(np.trace(self.covariances[d] @ self.information[d]))

    def likelihood(self) -> tuple[np.ndarray, np.ndarray]:
        """What the runs alone say of theta at the likeliest level: a precision, and it times the mean."""
        d = self.likeliest
        left = self.seen.white @ (self.seen.ln_loss - self.predicted[d]) / self.seen.scales[d]
        return self.information[d], self._slopes[d].T @ (left + self._slopes[d] @ self.theta[d])

    def left_out(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ln(observed / predicted) of every run had its cell been left out, and the standard deviation of
        it."""
        d = self.likeliest
        apart = self.seen.ln_loss - self.predicted[d] + self.jacobian[d] @ (self.theta[d] - self.prior.mean)
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

    def refitted(self, seen: Observed) -> Posterior:
        """The same form after the same runs, some of them noisier."""
        if seen is self.seen:
            return self
        return laplace_posterior(self.form, self.reference, self.prior, seen, self.theta)

    # -- draws -----------------------------------------------------------------------------------------------

    def draws(self, prior: Normal, means: np.ndarray, luck: np.ndarray, rng: np.random.Generator) -> Drawn:
        """A draw for each prior mean, by randomize-then-optimize (Bardsley et al. 2014).

        `means` are draws of the prior mean, each to be deviated from as `prior` says; `luck`, (4, draws), is
        that of the discrepancy: its level, and its slopes by size, data and repeats.
        """
        count, size = len(means), len(self.seen.ln_loss)
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
        scales, model = self.seen.scales[which], self.reference.model(self.form, self.seen.points)
        problems = PenalisedLeastSquares(model, self.seen.white, scales, prior.precision, means, targets)
        theta, _ = problems.solve(start, _DRAW_LEFT, _DRAW_ITERATIONS)
        order = rng.permutation(count)
        theta = self.bounded(theta[order])
        discrepancy = (self.seen.grid.discrepancy * self._unseen)[which[order]]
        slopes = discrepancy * luck[1:] / LENGTH
        here, for_losses = (
            self.reference.law(self.form, self._with_slopes(theta, share * slopes).T)
            for share in (np.ones_like(_OVER_ALL), _OVER_ALL)
        )
        return Drawn(here, for_losses, discrepancy * luck[0])

    def bounded(self, theta: np.ndarray) -> np.ndarray:
        """Draws within what the registry allows for exponents: one of many thousands runs off."""
        found = theta.copy()
        for place, parameter in enumerate(FORMS[self.form].parameters):
            if parameter.kind == "exponent":
                found[:, place] = np.clip(theta[:, place], *np.log(parameter.bounds))
        return found

    @property
    def _unseen(self) -> np.ndarray:
        """Per level, what the others leave open of the discrepancy at a run, relative to all of it: root
        mean square.
        """
        seen, grid = self.seen, self.seen.grid
        precision = seen.scales**-2.0 @ seen.white**2
        variance = 1 / precision - (grid.noise[:, None] * seen.scatter) ** 2
        share = variance / (grid.discrepancy[:, None] * seen.above) ** 2
        return np.asarray(np.sqrt(np.clip(share, 0.0, 1.0).mean(axis=1)))

    def _with_slopes(self, theta: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Laws whose slopes by size, data and repeats differ by these shares of the loss above the
        irreducible one, in the middle of the runs: what a discrepancy does that the runs do not show.

        A slope changes with the exponent of its term, the term in the middle of the runs staying as it is: by
        size and data in the middle of all runs, by repeats in the middle of those that repeat.
        """
        reference, points, names = self.reference, self.seen.points, FORMS[self.form].names
        law, middle = self.law, Reference.among(points)
        once = law.terms(middle.params, middle.unique_tokens, 1.0)
        above = float(once.loss - once.irreducible)
        # coefficient, exponent, share of the loss above the irreducible one, and by how much ln(coefficient)
        # grows with the exponent
        terms = [
            ("A", "alpha", once.parameter / above, np.log(middle.params / reference.params)),
            ("B", "beta", once.data / above, np.log(middle.unique_tokens / reference.unique_tokens)),
        ]
        repeated = points[2] >= _REPEATED
        if "delta" in names and repeated.any():
            params, unique_tokens, epochs = (values[repeated] for values in points)
            among = Reference.among((params, unique_tokens, epochs))
            repeats = float(np.exp(np.log(epochs - 1).mean()))
            again = law.terms(among.params, among.unique_tokens, 1 + repeats)
            share = float(again.overfitting / (again.loss - again.irreducible))
            terms.append(("P", "delta", share, np.log(reference.repeats / repeats)))
        found = theta.copy()
        for (coefficient, exponent, share, growth), slope in zip(terms, slopes, strict=False):
            place = names.index(exponent)
            before = np.exp(theta[:, place])
            steeper = slope / max(share, _LEAST_TERM) / before
            found[:, place] += np.clip(steeper, -_STEEPEST, _STEEPEST)
            found[:, names.index(coefficient)] += (np.exp(found[:, place]) - before) * growth
        return found


def laplace_posterior(
    form: str, reference: Reference, prior: Normal, seen: Observed, start: np.ndarray | None = None
) -> Posterior:
    """The posterior of a form after these runs; `start` is theta of one like it, (levels, parameters)."""
    white, scales, precision = seen.white, seen.scales, prior.precision
    means, targets = np.tile(prior.mean, (len(scales), 1)), np.tile(seen.ln_loss, (len(scales), 1))
    model = reference.model(form, seen.points)
    problems = PenalisedLeastSquares(model, white, scales, precision, means, targets)
    theta, objective = problems.solve(means if start is None else start, _LEFT, _ITERATIONS)
    predicted, slopes = model.jacobian(theta)
    return Posterior(form, reference, prior, seen, theta, predicted, np.moveaxis(slopes, 0, -1), objective)


# -- how noisy the runs are ----------------------------------------------------------------------------------


class Outlier(NamedTuple):
    """A run that counts for little."""

    row: int
    off: float  # ln(observed / predicted without it)
    deviations: float  # the same in standard deviations
    counts: float  # as so many runs


def reweight_outliers(found: Posterior) -> tuple[Observed, tuple[Outlier, ...]]:
    """The runs with those that lie beyond what noise and discrepancy explain made noisier, the furthest
    first: one just beyond counts as before, one ten times as far hardly at all. How far off it is shows only
    once it does not count.
    """
    usual = found.seen.scatter
    everyone = np.arange(len(usual))
    off = np.zeros(len(usual), dtype=bool)
    outliers: tuple[Outlier, ...] = ()
    for _ in range(_PASSES):
        error, sd = found.left_out(everyone)
        # In standard deviations of a run that scatters as usual.
        noise = found.seen.grid.noise[found.likeliest]
        variance = sd**2 - noise**2 * (found.seen.scatter**2 - usual**2)
        deviations = np.abs(error) / np.sqrt(np.maximum(variance, (noise * usual) ** 2))
        furthest = deviations[~off].max(initial=0.0)
        new = ~off & (deviations > max(FAR_OFF, _AS_FAR * furthest))
        if (off | new).sum() > _MOST_OUTLIERS * len(off) or not (off | new).any():
            break
        off |= new
        less = np.where(off, np.maximum(deviations / FAR_OFF, 1.0) ** 2, 1.0)
        outliers = tuple(
            Outlier(int(i), float(error[i]), float(deviations[i]), float(less[i] ** -2))
            for i in everyone[off]
        )
        if not new.any() and np.all(np.abs(np.log(usual * less / found.seen.scatter)) < _SAME):
            break
        found = found.refitted(replace(found.seen, scatter=usual * less))
    return found.seen, outliers


def evidence(found: Mapping[float, Posterior]) -> float:
    """ln of the probability of the runs of all weight decays."""
    return sum(one.evidence for one in found.values())


def noise_of_runs(
    found: Mapping[float, Posterior],
) -> tuple[float, dict[float, Observed], dict[float, tuple[Outlier, ...]]]:
    """How much noisier repeated runs are than single-epoch ones, in the whole table; the runs of each weight
    decay as noisy as that, outliers more so; and the outliers.
    """
    reweighted = {decay: reweight_outliers(one) for decay, one in found.items()}
    ratio = 1.0
    single = np.concatenate([one.seen.points[2] for one in found.values()]) <= SINGLE_EPOCH
    if single.any() and not single.all():
        equal = {decay: one.refitted(reweighted[decay][0]) for decay, one in found.items()}
        unequal = {decay: one.refitted(_noisier(reweighted[decay][0])) for decay, one in found.items()}
        if evidence(unequal) >= evidence(equal) + _CLEARLY:
            ratio = _NOISIER
            noisier = {decay: one.refitted(_noisier(one.seen)) for decay, one in found.items()}
            reweighted = {decay: reweight_outliers(one) for decay, one in noisier.items()}
    seen = {decay: runs for decay, (runs, _) in reweighted.items()}
    return ratio, seen, {decay: outliers for decay, (_, outliers) in reweighted.items()}


def _noisier(seen: Observed) -> Observed:
    """The same runs, repeated ones noisier."""
    return replace(seen, scatter=seen.scatter * np.where(seen.points[2] > SINGLE_EPOCH, _NOISIER, 1.0))
