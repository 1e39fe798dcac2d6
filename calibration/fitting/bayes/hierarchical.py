r"""A hierarchical model of all weight decays of a table, for each form.

The prior is the shipped setting that makes the runs most probable. Repeated runs may be noisier than
single-epoch ones, where the runs show it clearly; a run that no law and no discrepancy explains (an outlier)
is thought noisier the further it is off. Weight decays of one corpus are alike (partial pooling: Gelman and
Hill 2007): theta of each is what they share plus a deviation,

    theta_d = phi + u_d,     phi ~ N(mean, S),  u_d ~ N(0, T),

so that one with few runs borrows from the others, and gives them little.

How much each form counts is said in `averaging`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.bayes.averaging import model_weights
from calibration.fitting.bayes.posterior import (
    LENGTH,
    NoiseGrid,
    Normal,
    Observed,
    Posterior,
    laplace_posterior,
)
from calibration.fitting.bayes.prior import AUTO, Prior, candidates, fingerprints
from calibration.fitting.coordinates import Reference, points_of
from calibration.fitting.huber import Progress
from calibration.fitting.runs.arrays import SINGLE_EPOCH
from planner.calibration import Calibration
from planner.laws import DEFAULT_FORM, FORMS, Law

FAR_OFF = 4.5  # standard deviations of a run's own left-out prediction: beyond, it is an outlier
_MOST_OUTLIERS = 0.2  # of all runs
_AS_FAR = 0.8  # of the furthest: what is left out together with it
_PASSES, _SAME = 8, 0.2  # over the runs, until ln of what they scatter changes no more than this
_NOISIER = 3.0  # noise of repeated runs over that of single-epoch ones, where it is clearly larger
_CLEARLY = 3.0  # ln of the odds that show it
_REPEATED = 1.75  # epochs: below (1.0003 is one epoch, rounded) nothing shows how the cost of repeats grows
_STEEPEST = 0.5  # change of ln of an exponent
# For losses, slopes by size and data are in doubt by this share of what they are at one place: a compromise.
# Over R lengths of a discrepancy it is 0.77, 0.46 and 0.29 at R = 2, 4 and 6, and tables have 2 to 9 of
# them; but beyond the runs the slope at their edge counts. Repeats have no such range in most tables.
_OVER_ALL = np.array([[0.5], [0.5], [1.0]])
# Of the loss above the irreducible one: a term that is not there can be tilted, but not without end.
_LEAST_SHARE = 1e-3


class Outlier(NamedTuple):
    """A run that counts for little."""

    row: int
    off: float  # ln(observed / predicted without it)
    deviations: float  # the same in standard deviations
    counts: float  # as so many runs


class Drawn(NamedTuple):
    """Draws of a law as steep as it may be at a place, as steep as it may be over all runs (for losses), and
    by how much the form of each is off.
    """

    law: Law
    loss_law: Law
    discrepancy: np.ndarray


@dataclass(frozen=True)
class HierarchicalFit:
    """The posteriors of all forms after a table of runs."""

    prior: Prior
    set_aside: tuple[str, ...]  # calibrations that were fitted on some of the runs
    posteriors: Mapping[str, Mapping[float, Posterior]]  # by form and weight decay
    shared: Mapping[str, Normal]  # phi by form, after all runs
    weights: Mapping[str, float]
    outliers: Mapping[float, tuple[Outlier, ...]]
    ratio: float  # noise of repeated runs over that of single-epoch ones

    @property
    def decays(self) -> tuple[float, ...]:
        return tuple(self.outliers)

    def law(self, form: str, decay: float) -> Law:
        return self.prior.reference.law(form, self.posteriors[form][decay].mean)

    def draws(self, form: str, count: int, seed: int) -> dict[float, Drawn]:
        """Draws of the law of a form at every weight decay, one belonging to the other."""
        rng = np.random.default_rng([seed, *FORMS[form].name.encode()])
        several = len(self.decays) > 1
        common = self.shared[form].draws(count, rng) if several else None
        luck = rng.standard_normal((4, count))  # of the discrepancy: its level, and its slopes
        found = {}
        for decay in self.decays:
            posterior = self.posteriors[form][decay]
            prior = posterior.prior
            if common is None:
                means = prior.draws(count, rng)
            else:
                apart = Normal(np.zeros(len(prior.mean)), self.prior.between_decays(form))
                means = common + apart.draws(count, rng)
                prior = Normal(self.shared[form].mean, apart.covariance)
            theta, discrepancy = posterior.draws(prior, means, rng)
            slopes = discrepancy * luck[1:] / LENGTH
            here, for_losses = (
                self.prior.reference.law(form, _tilted(theta, form, posterior, share * slopes).T)
                for share in (np.ones_like(_OVER_ALL), _OVER_ALL)
            )
            found[decay] = Drawn(here, for_losses, discrepancy * luck[0])
        return found


class _Lever(NamedTuple):
    """A term of a law by which a slope can be in doubt."""

    coefficient: str
    exponent: str
    share: float  # of the loss above the irreducible one, in the middle of the runs
    far: float  # by how much ln(coefficient) grows with the exponent, so that the term in the middle stays


def _levers(form: str, posterior: Posterior) -> list[_Lever]:
    """By size and by data in the middle of all runs, by repeats in the middle of those that repeat."""
    reference, points = posterior.reference, posterior.seen.points
    law, middle = reference.law(form, posterior.mean), Reference.among(points)
    once = law.terms(middle.params, middle.unique_tokens, 1.0)
    above = float(once.loss - once.irreducible)
    found = [
        _Lever("A", "alpha", once.parameter / above, np.log(middle.params / reference.params)),
        _Lever("B", "beta", once.data / above, np.log(middle.unique_tokens / reference.unique_tokens)),
    ]
    repeated = points[2] >= _REPEATED
    if "delta" in FORMS[form].names and repeated.any():
        params, unique_tokens, epochs = (values[repeated] for values in points)
        among = Reference.among((params, unique_tokens, epochs))
        repeats = float(np.exp(np.log(epochs - 1).mean()))
        again = law.terms(among.params, among.unique_tokens, 1 + repeats)
        share = float(again.overfitting / (again.loss - again.irreducible))
        found.append(_Lever("P", "delta", share, np.log(reference.repeats / repeats)))
    return found


def _tilted(theta: np.ndarray, form: str, posterior: Posterior, slopes: np.ndarray) -> np.ndarray:
    """Laws whose slopes by size, data and repeats differ by these shares of the loss above the irreducible
    one, in the middle of the runs: what a discrepancy does that the runs do not show.
    """
    place = {name: i for i, name in enumerate(FORMS[form].names)}
    found = theta.copy()
    for lever, slope in zip(_levers(form, posterior), slopes, strict=False):  # some have none by repeats
        before = np.exp(theta[:, place[lever.exponent]])
        steeper = np.clip(slope / max(lever.share, _LEAST_SHARE) / before, -_STEEPEST, _STEEPEST)
        found[:, place[lever.exponent]] += steeper
        now = np.exp(found[:, place[lever.exponent]])
        found[:, place[lever.coefficient]] += (now - before) * lever.far
    return found


def hierarchical_fit(
    table: pd.DataFrame,
    forms: Sequence[str],
    prior: str | Calibration = AUTO,
    vocab_size: int | None = None,
    progress: Progress | None = None,
    grid: NoiseGrid | None = None,
) -> HierarchicalFit:
    """The posteriors of these forms after the runs of a table; levels of noise and discrepancy
    are learnt unless `grid` has them.
    """
    by_decay = by_weight_decay(table)
    middle = Reference.among(points_of(table)).params
    possible, aside = candidates(prior, fingerprints(table), vocab_size, tuple(by_decay), middle)
    judge = DEFAULT_FORM if DEFAULT_FORM in forms else forms[0]
    chosen, rough = possible[0], grid or NoiseGrid.coarse()
    if len(possible) > 1:
        chosen = max(possible, key=lambda one: _evidence(_alone(one, by_decay, judge, rough)))
    ratio, judged = _judged(_alone(chosen, by_decay, judge, grid))
    seen = {decay: one.seen for decay, one in judged.items()}
    outliers = {decay: one.outliers for decay, one in judged.items()}
    posteriors, shared = {}, {}
    for done, form in enumerate(forms):
        if progress is not None:
            progress(form, 0.5 * done / len(forms))
        posteriors[form], shared[form] = _pool(form, chosen, seen)
    weights = model_weights(posteriors)
    return HierarchicalFit(chosen, tuple(aside), posteriors, shared, weights, outliers, ratio)


def without_runs(known: Calibration, form: str, decay: float, grid: NoiseGrid | None = None) -> Posterior:
    """A form before any run: a calibration, at the setting nearest to a weight decay."""
    prior = candidates(known, weight_decays=(decay,))[0][0]
    nothing = pd.DataFrame(columns=["params", "unique_tokens", "epochs", "loss"], dtype=float)
    return _alone(prior, {decay: nothing}, form, grid)[decay]


def by_weight_decay(table: pd.DataFrame) -> dict[float, pd.DataFrame]:
    """The runs of each weight decay, the weakest first."""
    decays = sorted(float(decay) for decay in table["weight_decay"].unique())
    return {decay: table[table["weight_decay"] == decay] for decay in decays}


def _alone(
    prior: Prior, by_decay: Mapping[float, pd.DataFrame], form: str, grid: NoiseGrid | None = None
) -> dict[float, Posterior]:
    """A form at each weight decay without the others."""
    return {
        decay: laplace_posterior(
            form, prior.reference, _normal(prior, form), Observed.of(runs, prior.irreducible, grid)
        )
        for decay, runs in by_decay.items()
    }


def _evidence(found: Mapping[float, Posterior]) -> float:
    return sum(one.evidence for one in found.values())


def _normal(prior: Prior, form: str) -> Normal:
    return Normal(prior.mean(form), prior.covariance(form))


class Judged(NamedTuple):
    """Runs with what each of them is worth, and those that are worth little."""

    seen: Observed
    outliers: tuple[Outlier, ...]


def _judged(found: Mapping[float, Posterior]) -> tuple[float, dict[float, Judged]]:
    """How much noisier repeated runs are than single-epoch ones, in the whole table, and the runs of each
    weight decay as noisy as that, those far off more so.
    """
    judged = {decay: _weighed(one) for decay, one in found.items()}
    single = np.concatenate([one.seen.points[2] for one in found.values()]) <= SINGLE_EPOCH
    if single.all() or not single.any():
        return 1.0, judged
    alike = sum(_again(one, judged[decay].seen).evidence for decay, one in found.items())
    apart = sum(_again(one, _louder(judged[decay].seen)).evidence for decay, one in found.items())
    if apart < alike + _CLEARLY:
        return 1.0, judged
    return _NOISIER, {decay: _weighed(_again(one, _louder(one.seen))) for decay, one in found.items()}


def _louder(seen: Observed) -> Observed:
    """The same runs, repeated ones noisier."""
    return seen.scattered(seen.scatter * np.where(seen.points[2] > SINGLE_EPOCH, _NOISIER, 1.0))


def _again(found: Posterior, seen: Observed) -> Posterior:
    """The same form after the same runs, judged otherwise."""
    if seen is found.seen:
        return found
    return laplace_posterior(found.form, found.reference, found.prior, seen, found)


def _weighed(found: Posterior) -> Judged:
    """The runs with those that lie beyond what noise and discrepancy explain made noisier, the furthest
    first: one just beyond counts as before, one ten times as far hardly at all. How far off it is shows only
    once it does not count.
    """
    everyone, usual = np.arange(len(found.seen)), found.seen.scatter
    off = np.zeros(len(usual), dtype=bool)
    outliers: tuple[Outlier, ...] = ()
    for _ in range(_PASSES):
        error, deviations = _deviations(found, usual)
        furthest = deviations[~off].max(initial=0.0)
        new = ~off & (deviations > max(FAR_OFF, _AS_FAR * furthest))
        if (off | new).sum() > _MOST_OUTLIERS * len(off) or not (off | new).any():
            break
        done = not new.any()
        off |= new
        less = np.where(off, np.maximum(deviations / FAR_OFF, 1.0) ** 2, 1.0)
        done = done and bool(np.all(np.abs(np.log(usual * less / found.seen.scatter)) < _SAME))
        outliers = tuple(
            Outlier(int(i), float(error[i]), float(deviations[i]), float(less[i] ** -2))
            for i in everyone[off]
        )
        if done:
            break
        found = _again(found, found.seen.scattered(usual * less))
    return Judged(found.seen, outliers)


def _deviations(found: Posterior, usual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far each run is off what the others say, and how many standard deviations that is for a run that
    scatters as usual.
    """
    error, sd = found.left_out(np.arange(len(found.seen)))
    noise = found.seen.grid.noise[found.likeliest]
    variance = sd**2 - noise**2 * (found.seen.scatter**2 - usual**2)
    return error, np.abs(error) / np.sqrt(np.maximum(variance, (noise * usual) ** 2))


def _pool(form: str, prior: Prior, seen: Mapping[float, Observed]) -> tuple[dict[float, Posterior], Normal]:
    """The posterior at each weight decay, given all others, and what they share."""
    before = _normal(prior, form)
    alone = {decay: laplace_posterior(form, prior.reference, before, runs) for decay, runs in seen.items()}
    if len(alone) == 1:
        return alone, before
    apart = prior.between_decays(form)
    said = {decay: _of_shared(found, np.linalg.inv(apart)) for decay, found in alone.items()}
    pooled = {}
    for decay in seen:
        others = _together(before, [told for other, told in said.items() if other != decay])
        borrowed = Normal(others.mean, others.covariance + apart)
        pooled[decay] = laplace_posterior(form, prior.reference, borrowed, seen[decay], alone[decay])
    return pooled, _together(before, list(said.values()))


def _of_shared(found: Posterior, closeness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the runs of one weight decay say of phi: a precision, and it times the mean."""
    precision, pull = found.likelihood()
    passed = closeness @ np.linalg.inv(precision + closeness)
    return closeness - passed @ closeness, passed @ pull


def _together(prior: Normal, said: Sequence[tuple[np.ndarray, np.ndarray]]) -> Normal:
    precision = prior.precision + sum(one for one, _ in said)
    covariance = np.linalg.inv(precision)
    pull = prior.precision @ prior.mean + sum(one for _, one in said)
    return Normal(covariance @ pull, 0.5 * (covariance + covariance.T))
