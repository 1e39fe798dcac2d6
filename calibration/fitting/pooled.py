r"""All forms at all weight decays of a table, believed together.

The prior is the shipped setting that makes the runs most probable. Runs that no law and no misfit explains
are left out (outliers). Weight decays of one corpus are alike: theta of each is what they share plus a
deviation,

    theta_d = phi + u_d,     phi ~ N(mean, S),  u_d ~ N(0, T),

so that one with few runs borrows from the others, and gives them little. Forms are weighed by the evidence
and by how well they would have predicted left-out cells, over all weight decays, with little confidence:
what is compared are forms that are all wrong, and mostly in the same places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.coordinates import Reference
from calibration.fitting.posterior import LENGTH, Normal, Observed, Posterior, after
from calibration.fitting.prior import Prior, candidates, fingerprints
from calibration.fitting.stages import Progress
from planner.laws import BASE_FORM, DEFAULT_FORM, FORMS, Law

FAR_OFF = 4.5  # standard deviations of a run's own left-out prediction: beyond, it is not believed
_MOST_OUTLIERS = 0.2  # of all runs
_AS_FAR = 0.8  # of the furthest: what is left out together with it
_CONFIDENCE = 0.2  # in what forms differ by: power to which their relative likelihood is raised
_LEAST_WEIGHT = 0.005
_UNSEEN = 0.25  # of the misfit is not pinned down by the runs around a plan
_STEEPEST = 0.5  # change of ln of an exponent


class Outlier(NamedTuple):
    """A run that is not believed, and not fitted."""

    row: int
    off: float  # ln(observed / predicted without it)
    deviations: float  # the same in standard deviations


@dataclass(frozen=True)
class Pooled:
    """Everything that is believed after a table of runs."""

    prior: Prior
    set_aside: tuple[str, ...]  # calibrations that were fitted on some of the runs
    posteriors: Mapping[str, Mapping[float, Posterior]]  # by form and weight decay
    shared: Mapping[str, Normal]  # phi by form, after all runs
    weights: Mapping[str, float]
    outliers: Mapping[float, tuple[Outlier, ...]]

    @property
    def decays(self) -> tuple[float, ...]:
        return tuple(self.outliers)

    def law(self, form: str, decay: float) -> Law:
        return self.prior.reference.law(form, self.posteriors[form][decay].mean)

    def draws(self, form: str, count: int, seed: int) -> dict[float, tuple[Law, np.ndarray]]:
        """Draws of the law of a form at every weight decay, one belonging to the other, with their
        misfits."""
        rng = np.random.default_rng([seed, *FORMS[form].name.encode()])
        several = len(self.decays) > 1
        common = self.shared[form].draws(count, rng) if several else None
        luck = _UNSEEN * rng.standard_normal((3, count))  # of the misfit: its level, and its two slopes
        found = {}
        for decay in self.decays:
            belief = self.posteriors[form][decay]
            prior = belief.prior
            if common is None:
                means = prior.draws(count, rng)
            else:
                apart = Normal(np.zeros(len(prior.mean)), self.prior.between_decays(form))
                means = common + apart.draws(count, rng)
                prior = Normal(self.shared[form].mean, apart.covariance)
            theta, misfit = belief.redrawn(prior, means, rng)
            tilted = _tilted(theta, form, belief, misfit * luck[1:] / LENGTH)
            found[decay] = self.prior.reference.law(form, tilted.T), misfit * luck[0]
        return found


def _tilted(theta: np.ndarray, form: str, belief: Posterior, slopes: np.ndarray) -> np.ndarray:
    """Laws whose slopes by size and by data differ by these shares of the loss above the floor, in the
    middle of the runs: what a misfit does that the runs do not show.
    """
    place = {name: i for i, name in enumerate(FORMS[form].names)}
    reference, middle = belief.reference, Reference.among(belief.seen.points)
    terms = reference.law(form, belief.mean).terms(middle.params, middle.unique_tokens, 1.0)
    found = theta.copy()
    for name, exponent, slope, term, far in (
        ("A", "alpha", slopes[0], terms.capacity, np.log(middle.params / reference.params)),
        ("B", "beta", slopes[1], terms.data, np.log(middle.unique_tokens / reference.unique_tokens)),
    ):
        before = np.exp(theta[:, place[exponent]])
        steeper = np.clip(slope * (terms.loss - terms.floor) / term / before, -_STEEPEST, _STEEPEST)
        found[:, place[exponent]] += steeper
        found[:, place[name]] += (np.exp(found[:, place[exponent]]) - before) * far
    return found


def believe(
    table: pd.DataFrame,
    forms: Sequence[str],
    prior: str = "auto",
    vocab_size: int | None = None,
    progress: Progress | None = None,
) -> Pooled:
    """What is believed of these forms after the runs of a table."""
    by_decay = by_weight_decay(table)
    possible, aside = candidates(prior, fingerprints(table), vocab_size, tuple(by_decay))
    judge = DEFAULT_FORM if DEFAULT_FORM in forms else forms[0]
    tried = [(one, _alone(one, by_decay, judge)) for one in possible]
    chosen, first = max(tried, key=lambda one: sum(found.evidence for found in one[1].values()))
    seen, outliers = {}, {}
    for decay, found in first.items():
        seen[decay], outliers[decay] = _believed(found)
    posteriors, shared = {}, {}
    for done, form in enumerate(forms):
        if progress is not None:
            progress(form, 0.5 * done / len(forms))
        posteriors[form], shared[form] = _pool(form, chosen, seen)
    return Pooled(chosen, tuple(aside), posteriors, shared, weigh(posteriors), outliers)


def by_weight_decay(table: pd.DataFrame) -> dict[float, pd.DataFrame]:
    """The runs of each weight decay, the weakest first."""
    decays = sorted(float(decay) for decay in table["weight_decay"].unique())
    return {decay: table[table["weight_decay"] == decay] for decay in decays}


def _alone(prior: Prior, by_decay: Mapping[float, pd.DataFrame], form: str) -> dict[float, Posterior]:
    """A form at each weight decay without the others."""
    return {
        decay: after(form, prior.reference, _normal(prior, form), Observed.of(runs, prior.floor))
        for decay, runs in by_decay.items()
    }


def _normal(prior: Prior, form: str) -> Normal:
    return Normal(prior.mean(form), prior.covariance(form))


def _believed(found: Posterior) -> tuple[Observed, tuple[Outlier, ...]]:
    """The runs without those that lie beyond everything that is doubted, found the furthest first."""
    outliers: list[Outlier] = []
    everyone, kept = found.seen, np.arange(len(found.seen))
    while True:
        error, sd = found.left_out(np.arange(len(kept)))
        deviations = np.abs(error / sd)
        far = np.flatnonzero(deviations > max(FAR_OFF, _AS_FAR * deviations.max()))
        if not len(far) or len(outliers) + len(far) > _MOST_OUTLIERS * len(everyone):
            return found.seen, tuple(outliers)
        outliers += [Outlier(int(kept[i]), float(error[i]), float(deviations[i])) for i in far]
        kept = np.delete(kept, far)
        found = after(found.form, found.reference, found.prior, everyone.pick(kept))


def _pool(form: str, prior: Prior, seen: Mapping[float, Observed]) -> tuple[dict[float, Posterior], Normal]:
    """The belief at each weight decay, given all others, and what they share."""
    alone = {decay: after(form, prior.reference, _normal(prior, form), runs) for decay, runs in seen.items()}
    if len(alone) == 1:
        return alone, _normal(prior, form)
    apart = prior.between_decays(form)
    said = {decay: _of_shared(found, np.linalg.inv(apart)) for decay, found in alone.items()}
    pooled = {}
    for decay in seen:
        others = _together(_normal(prior, form), [told for other, told in said.items() if other != decay])
        borrowed = Normal(others.mean, others.covariance + apart)
        pooled[decay] = after(form, prior.reference, borrowed, seen[decay])
    return pooled, _together(_normal(prior, form), list(said.values()))


def _of_shared(found: Posterior, closeness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the runs of one weight decay say of phi: a precision, and it times the mean."""
    precision, pull = found.message()
    passed = closeness @ np.linalg.inv(precision + closeness)
    return closeness - passed @ closeness, passed @ pull


def _together(prior: Normal, said: Sequence[tuple[np.ndarray, np.ndarray]]) -> Normal:
    precision = prior.precision + sum(one for one, _ in said)
    covariance = np.linalg.inv(precision)
    pull = prior.precision @ prior.mean + sum(one for _, one in said)
    return Normal(covariance @ pull, 0.5 * (covariance + covariance.T))


def weigh(posteriors: Mapping[str, Mapping[float, Posterior]]) -> dict[str, float]:
    """How much each form counts."""
    scores = {}
    for form, found in posteriors.items():
        skill = sum(_skill(one) for one in found.values())
        evidence = sum(one.evidence for one in found.values())
        scores[form] = _CONFIDENCE * 0.5 * (skill + evidence)
    if len(scores) > 1:
        scores.pop(BASE_FORM, None)  # known to be wrong wherever anything repeats
    best = max(scores.values())
    raw = {form: float(np.exp(score - best)) for form, score in scores.items()}
    kept = {form: one for form, one in raw.items() if one >= _LEAST_WEIGHT * sum(raw.values())}
    return {form: one / sum(kept.values()) for form, one in kept.items()}


def _skill(found: Posterior) -> float:
    """ln of the density with which left-out runs were predicted."""
    error, sd = found.left_out()
    return float(np.sum(-0.5 * (error / sd) ** 2 - np.log(sd)))
