r"""Tuning weight decay, learning rate and epochs together at one size and corpus: which runs next, and when
to stop.

What a run reaches is a smooth surface over ln τ (AdamW's timescale in epochs), ln η, ln(epochs) and
ln(batch): in these coordinates the best settings of different recipes lie close together, while the weight
decay itself varies thirty-fold. The surface is a Gaussian process on ln(loss - a little less than the best),
because a bad setting is bad by any amount and only the bottom matters. Its length scales and
noise are the likeliest of a few.

The next runs are those with the largest expected improvement, each chosen as if those before it had come out
as expected. Tuning ends where no setting is expected to improve on the best by a tolerance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

Array = np.ndarray
COORDINATES = ("timescale_epochs", "learning_rate", "epochs", "batch_tokens")
_SCALES = ((1.0, 2.0, 3.5), (1.5, 3.0, 6.0), (1.0, 2.5), (4.0,))  # in units of the logarithms
_NOISE = (0.1, 0.2, 0.35)  # of the transformed loss, whose spread is one
_MARGIN = 0.5  # the irreducible loss lies below the best by this share of what separates it from the median


class Surface(NamedTuple):
    """What is expected of settings: the loss and how uncertain its logarithm above the irreducible one is."""

    mean: Array
    sd: Array
    irreducible: float

    @property
    def loss(self) -> Array:
        return np.asarray(self.irreducible + np.exp(self.mean))


@dataclass(frozen=True)
class Model:
    """A Gaussian process over settings, (n, 4) logarithms of `COORDINATES`."""

    settings: Array
    values: Array  # ln(loss - irreducible), centred
    centre: float
    amplitude: float
    irreducible: float
    scales: Array
    noise: float

    @classmethod
    def of(cls, settings: Array, loss: Array) -> Model:
        """The likeliest of a few smoothnesses and noises."""
        best, middle = float(loss.min()), float(np.median(loss))
        irreducible = best - max(_MARGIN * (middle - best), 1e-3 * best)
        ln = np.log(loss - irreducible)
        centre = float(np.median(ln))
        amplitude = max(float(np.std(ln)), 0.1)
        choices = itertools.product(itertools.product(*_SCALES), _NOISE)
        models = (
            cls(settings, ln - centre, centre, amplitude, irreducible, np.array(scales), noise * amplitude)
            for scales, noise in choices
        )
        return max(models, key=lambda model: model._evidence())

    def with_run(self, setting: Array, value: float) -> Model:
        """The same process with one more run, whose centred value is this."""
        settings, values = np.vstack([self.settings, setting]), np.append(self.values, value)
        return replace(self, settings=settings, values=values)

    def at(self, settings: Array) -> Surface:
        """What is expected of settings."""
        lower, weights = self._solved()
        across = self._kernel(settings, self.settings)
        inside = np.linalg.solve(lower, across.T)
        variance = self.amplitude**2 - (inside**2).sum(axis=0)
        return Surface(self.centre + across @ weights, np.sqrt(np.maximum(variance, 1e-12)), self.irreducible)

    def _kernel(self, one: Array, other: Array) -> Array:
        apart = (one[:, None] - other[None]) / self.scales
        return np.asarray(self.amplitude**2 * np.exp(-0.5 * (apart**2).sum(axis=-1)))

    def _solved(self) -> tuple[Array, Array]:
        matrix = self._kernel(self.settings, self.settings) + self.noise**2 * np.eye(len(self.values))
        lower = np.linalg.cholesky(matrix)
        return lower, np.linalg.solve(lower.T, np.linalg.solve(lower, self.values))

    def _evidence(self) -> float:
        lower, weights = self._solved()
        return float(-0.5 * self.values @ weights - np.log(np.diag(lower)).sum())


class Proposal(NamedTuple):
    """The next runs, by their place among the candidates, and whether they are worth training."""

    places: list[int]
    improvement: float  # in nats, that is expected of the best of them
    surface: Surface  # of all candidates, before any of the wave


def expected_improvement(surface: Surface, best: float) -> Array:
    """By how many nats a setting is expected to beat the best loss, none where it does not."""
    # The loss above the irreducible one is log-normal: the mean of what it falls short of the best is a
    # closed form.
    sd = np.maximum(surface.sd, 1e-9)
    gap = max(best - surface.irreducible, 1e-9)
    z = (math.log(gap) - surface.mean) / sd
    return np.asarray(gap * ndtr(z) - np.exp(surface.mean + sd**2 / 2) * ndtr(z - sd))


def propose(model: Model, candidates: Array, wave: int, taken: Sequence[int] = ()) -> Proposal:
    """The next `wave` runs among candidates; those `taken` are not proposed again."""
    best = float(model.at(model.settings).loss.min())
    before = model.at(candidates)
    open_ = np.ones(len(candidates), dtype=bool)
    open_[list(taken)] = False
    places: list[int] = []
    first = 0.0
    for _ in range(min(wave, int(open_.sum()))):
        surface = model.at(candidates)
        gain = np.where(open_, expected_improvement(surface, best), -np.inf)
        place = int(np.argmax(gain))
        first = first if places else float(gain[place])
        places.append(place)
        open_[place] = False
        model = model.with_run(candidates[place : place + 1], float(surface.mean[place]) - model.centre)
    return Proposal(places, max(first, 0.0), before)


def best_setting(model: Model, candidates: Array) -> int:
    """The candidate that the surface ranks first."""
    return int(np.argmin(model.at(candidates).mean))
