"""What was trained behind a law, and how far its predictions can be counted on beyond that.

The evidence of a law are the runs that it was fitted on and the trainings that tested it. Inside of it the
law's error is what it was on trainings that it had not seen. Beyond it the error grows with the logarithm of
the distance in size, in unique tokens and in epochs, by constants that were found by hiding the largest runs
of public tables and predicting them (studies/predictive-error).

Plans are decided by the loss that can be counted on, the upper end of the predictive interval (`UpperBound`):
inside of the evidence that changes nothing, outside it leads back to what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from planner.laws import Array, Law, Slopes, Terms

if TYPE_CHECKING:
    from planner.calibration import Setting

LEVEL = 0.8  # of predictive intervals: there are too few trainings for the tails
# Nats of error for each e-fold of distance beyond the evidence (studies/predictive-error/results.md).
GROWTH = {"params": 0.089, "unique_tokens": 0.125, "epochs": 0.80}
_FAR, _STEEP = 8.0, 2.0  # no plan by itself goes to ten times the largest model ever trained
_SMOOTH = 0.1  # in ln: how far from the end of the evidence growth sets in
TOGETHER = 2.0  # factor within which something trained is near, size, data and epochs taken together
_STEP = 1e-6  # in ln, of differences

Range = tuple[float, float]
Cell = tuple[float, float, float]  # a size, unique tokens, and the most epochs over them
Excess = Callable[[Array, Array, Array], Array]  # nats, by params, unique tokens and epochs


def predictive_width(runs: int | None) -> float:
    """Half the width of an interval of `LEVEL`, in standard deviations that were measured on so many runs: a
    quantile of Student's t distribution, by its Cornish-Fisher expansion, right to 0.2% from five runs on; of
    the normal one where nothing was measured.
    """
    z = 1.2815515655446004  # 90% of the normal distribution lie below
    if runs is None:
        return z
    return z + (z**3 + z) / (4 * runs) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * runs**2)


class Evidence(NamedTuple):
    """From the least to the most of each that was trained, once or more often, and more than once; and what
    was trained together, where that is known, as ranges have corners that nobody trained in.

    The most unique tokens are those of all runs: with more of them, at the same size and epochs, repetition
    costs less than in any run that repeated, and what is left is the law of fresh tokens.
    """

    params: Range
    unique_tokens: Range
    epochs: Range
    repeated_params: Range
    repeated_unique_tokens: Range
    cells: tuple[Cell, ...] = ()

    @classmethod
    def of(cls, settings: Iterable[Setting]) -> Evidence:
        """Of one setting or several: their runs and the trainings that tested them."""
        columns: tuple[list[Range], ...] = ([], [], [], [], [])
        every, cells = list(settings), set[Cell]()
        for setting in every:
            fitted = setting.fitted_on
            repeated = fitted.repeated_params or fitted.params
            data = fitted.repeated_unique_tokens or fitted.unique_tokens
            rows = [(fitted.params, fitted.unique_tokens, fitted.epochs, repeated, data)]
            for trial in setting.trials:
                used = trial.unique_tokens * min(trial.epochs, 1.0)
                once = ((trial.params,) * 2, (used,) * 2, (trial.epochs,) * 2)
                rows.append((*once, *(once[:2] if trial.epochs > 1 else rows[0][3:])))
            for column, values in zip(columns, zip(*rows, strict=True), strict=True):
                column.extend(values)
            cells |= set(fitted.cells or ())
            cells |= {(one.params, one.unique_tokens, one.epochs) for one in setting.trials}
        columns[4].extend((high, high) for _, high in columns[1])
        ranges = [(min(low for low, _ in some), max(high for _, high in some)) for some in columns]
        known = tuple(sorted(cells)) if all(one.fitted_on.cells for one in every) else ()
        size, data, epochs, repeated, again = ranges
        return cls(size, data, epochs, repeated, again, known)

    def sizes(self, repeated: bool) -> Range:
        return self.repeated_params if repeated else self.params

    def data(self, repeated: bool) -> Range:
        return self.repeated_unique_tokens if repeated else self.unique_tokens

    def distances(self, params: Array, unique_tokens: Array, epochs: Array) -> dict[str, Array]:
        """By how much (ln) a configuration is outside in each quantity; of what repeats where it repeats.
        Few epochs never are: below one nothing repeats, and only a part of the tokens is in use.
        """
        once = np.less_equal(epochs, 1.0)
        used = unique_tokens * np.minimum(epochs, 1.0)

        def outside(value: Array, of_all: Range, of_repeated: Range) -> Array:
            ln, ranges = np.log(value), (of_all, of_repeated)[: 1 + (of_all != of_repeated)]
            beyond = [np.maximum(np.maximum(ln - log(high), log(low) - ln), 0.0) for low, high in ranges]
            return np.where(once, *beyond) if len(beyond) > 1 else beyond[0]

        return {
            "params": outside(params, self.params, self.repeated_params),
            "unique_tokens": outside(used, self.unique_tokens, self.repeated_unique_tokens),
            "epochs": np.log(np.maximum(np.divide(epochs, self.epochs[1]), 1.0)),
        }

    def from_nearest_cell(self, params: Array, unique_tokens: Array, epochs: Array) -> Array:
        """Nats of error from the cell that costs least to leave: what is within a factor of `TOGETHER` is
        near, and fewer epochs than were trained are not off.
        """
        if not self.cells:
            return 0.0
        near, used = log(TOGETHER), unique_tokens * np.minimum(epochs, 1.0)
        size, data, passes = (np.log(values)[..., None] for values in (params, used, epochs))
        # Sizes apart from the rest: searches ask for many of them at the same data and epochs.
        sizes, starts, datas, most = _by_size(self.cells)
        away = _nats({"params": np.maximum(np.abs(size - sizes) - near, 0.0)})
        off = {
            "unique_tokens": np.maximum(np.abs(data - datas) - near, 0.0),
            "epochs": np.maximum(passes - most - near, 0.0),
        }
        return np.min(away + np.minimum.reduceat(_nats(off), starts, axis=-1), axis=-1)

    def growth(self, params: Array, unique_tokens: Array, epochs: Array) -> Array:
        """By how many nats the error is larger there than inside of the evidence."""
        at = (params, unique_tokens, epochs)
        return np.maximum(_nats(self.distances(*at)), self.from_nearest_cell(*at))

    def excess(self, params: Array, unique_tokens: Array, epochs: Array) -> Array:
        """The same, as far as it is a reason to choose otherwise: that a corpus is larger than any that was
        tried is none to leave a part of it unused.
        """
        tried = np.minimum(unique_tokens, self.unique_tokens[1] / np.minimum(epochs, 1.0))
        far = np.maximum(np.log(np.divide(params, _FAR * self.params[1])), 0.0)
        return self.growth(params, tried, epochs) + _STEEP * _smooth(far)


@lru_cache(32)
def _by_size(cells: tuple[Cell, ...]) -> tuple[np.ndarray, ...]:
    """Each size (ln) and where its cells begin; and of each cell ln of its unique tokens and epochs."""
    ln = np.log(sorted(cells))
    starts = np.flatnonzero(np.diff(ln[:, 0], prepend=-np.inf))
    return ln[starts, 0], starts, ln[:, 1], ln[:, 2]


def _nats(distances: dict[str, Array]) -> Array:
    """Proportional to the distance, but for a smooth start (Huber's function): searches take derivatives."""
    return sum(GROWTH[quantity] * _smooth(x) for quantity, x in distances.items())


def _smooth(x: Array) -> Array:
    """x^2 / 2s up to s, and from there on x - s/2."""
    start = np.minimum(x, _SMOOTH)
    return start * (x - start / 2) / _SMOOTH


class UpperBound(Law):
    """A law with what the upper end of its predictive interval is further away beyond the evidence: what
    plans are decided by. Draws, terms and ends of searches are the law's.
    """

    def __init__(self, law: Law, excess: Excess) -> None:
        super().__init__(law.form, law.parameters, check=False)
        self.law, self.excess = law, excess
        self.overfits = True  # in the sense that matters to a search: more compute can be worse

    def loss(self, params: Array, unique_tokens: Array, epochs: Array) -> Array:
        return self.law.loss(params, unique_tokens, epochs) + self.excess(params, unique_tokens, epochs)

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        return self.law._terms(params, unique_tokens, epochs)

    def slopes(self, params: Array, unique_tokens: Array, epochs: Array) -> Slopes:
        """The law's, and differences of the excess."""
        of_law, at = self.law.slopes(params, unique_tokens, epochs), (params, unique_tokens, epochs)
        slopes = []
        for place, slope in enumerate(of_law):
            up, down = (
                self.excess(*(v * np.exp(side * _STEP) if k == place else v for k, v in enumerate(at)))
                for side in (1, -1)
            )
            slopes.append(slope + (up - down) / (2 * _STEP))
        return Slopes(*slopes)

    def optimal_params(self, tokens: Array) -> Array:
        return self.law.optimal_params(tokens)

    def fresh_epochs(self, product: Array, unique_tokens: Array) -> Array:
        return self.law.fresh_epochs(product, unique_tokens)

    def epochs_bound(self, product: Array, unique_tokens: Array, loss: Array) -> Array:
        return self.law.epochs_bound(product, unique_tokens, loss)

    def base(self) -> Law:
        return self.law.base()

    def draw(self, index: Any) -> Law:
        return UpperBound(self.law.draw(index), self.excess) if self.has_draws else self

    def spread(self, shape: tuple[int, ...]) -> Law:
        return UpperBound(self.law.spread(shape), self.excess)
