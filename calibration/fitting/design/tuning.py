r"""`tune`: the next wave of runs over weight decay, learning rate and epochs, at one size and corpus, and
when to stop. Bayesian optimisation (Jones et al. 1998) in coordinates that carry between recipes.

What a run reaches is a smooth surface over ln τ (AdamW's timescale in epochs), ln η, ln(epochs) and
ln(batch): in these coordinates the best settings of different recipes lie close together, while the weight
decay itself varies thirty-fold. The surface is a Gaussian process on ln(loss - a little less than the best),
because a bad setting is bad by any amount and only the bottom matters. Its length scales and
noise are the likeliest of a few.

Without runs the first wave covers the timescales at which the best settings of other people's recipes lie, a
quarter of an epoch to two, at learning rates across the range. The next runs are those with the largest
expected improvement, each chosen as if those before it had come out as expected. Tuning ends where no setting
is expected to improve on the best by a tolerance. Nothing is proposed with fewer steps than the table of the
runs shows to be needed (`recipes`), and runs with fewer say nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr

from calibration.fitting.runs.recipes import needed_of
from planner.inputs import InvalidInput, count, number, short, whole

Array = np.ndarray
COORDINATES = ("timescale_epochs", "learning_rate", "epochs", "batch_tokens")
_SCALES = ((1.0, 2.0, 3.5), (1.5, 3.0, 6.0), (1.0, 2.5), (4.0,))  # in units of the logarithms
_NOISE = (0.1, 0.2, 0.35)  # of the transformed loss, whose spread is one
_MARGIN = 0.5  # the irreducible loss lies below the best by this share of what separates it from the median
_DECAYS, _RATES = 16, 9  # settings tried along each range
_USUAL_TIMESCALE = (0.25, 2.0)  # epochs
_FEWEST = 4  # runs before a surface says anything


class Surface(NamedTuple):
    """What is expected of settings: the loss and how uncertain its logarithm above the irreducible one is."""

    mean: Array
    sd: Array
    irreducible: float

    @property
    def loss(self) -> Array:
        return np.asarray(self.irreducible + np.exp(self.mean))


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process over settings, (n, 4) logarithms of `COORDINATES`."""

    settings: Array
    values: Array  # ln(loss - irreducible), centred
    centre: float
    amplitude: float
    irreducible: float
    scales: Array
    noise: float

    @classmethod
    def of(cls, settings: Array, loss: Array) -> GaussianProcess:
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

    def with_run(self, setting: Array, value: float) -> GaussianProcess:
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


def propose(model: GaussianProcess, candidates: Array, wave: int, taken: Sequence[int] = ()) -> Proposal:
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


def best_setting(model: GaussianProcess, candidates: Array) -> int:
    """The candidate that the surface ranks first."""
    return int(np.argmin(model.at(candidates).mean))


# -- `tune` --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranges:
    """What may be trained: unique tokens and batch are settled, the rest is a range."""

    unique_tokens: float
    batch_tokens: float
    weight_decays: tuple[float, float]
    learning_rates: tuple[float, float]
    epochs: tuple[float, ...]

    @classmethod
    def of(
        cls,
        *,
        ud: Any = None,
        batch_tokens: Any = None,
        weight_decays: Any,
        learning_rates: Any,
        epochs: Any,
        runs: pd.DataFrame | None = None,
    ) -> Ranges:
        """From what was given, checked; data and batch may be those of the runs."""
        passes = tuple(sorted({number(value, "epochs", examples="4") for value in epochs}))
        if not passes:
            raise InvalidInput("must name at least one number of epochs, such as 8.", field="epochs")
        if runs is not None:
            _check_runs(runs)
        return cls(
            _of_runs(runs, "unique_tokens", "ud") if ud is None else count(ud, "ud"),
            _of_runs(runs, "batch_tokens", "batch_tokens")
            if batch_tokens is None
            else count(batch_tokens, "batch_tokens"),
            _range(weight_decays, "weight_decays", "0.03 10"),
            _range(learning_rates, "learning_rates", "1e-4 3e-3"),
            passes,
        )

    def candidates(self) -> pd.DataFrame:
        """Every setting that may be proposed, to two digits."""
        axes = [
            [float(f"{value:.1e}") for value in np.geomspace(low, high, steps if low < high else 1)]
            for (low, high), steps in ((self.weight_decays, _DECAYS), (self.learning_rates, _RATES))
        ]
        settings = itertools.product(*axes, self.epochs)
        table = pd.DataFrame(settings, columns=["weight_decay", "learning_rate", "epochs"])
        return self.described(table)

    def described(self, table: pd.DataFrame) -> pd.DataFrame:
        """Settings with the timescale that they have."""
        batch = table.get("batch_tokens", pd.Series(self.batch_tokens, index=table.index)).astype(float)
        decay = table["weight_decay"].astype(float).clip(lower=1e-9)
        timescale = batch / (table["learning_rate"].astype(float) * decay * self.unique_tokens)
        return table.assign(batch_tokens=batch, timescale_epochs=timescale)


@dataclass(frozen=True)
class TuningStep:
    """The next wave, the best so far, and whether to go on."""

    wave: list[dict[str, float]]
    best: dict[str, float] | None  # of the runs, as the surface sees it
    improvement: float | None  # that is expected of the wave's first run, in nats
    stop: bool
    reason: str


def tune(
    ranges: Ranges, runs: pd.DataFrame | None = None, *, wave: Any = 4, tolerance: Any = 0.005
) -> TuningStep:
    """What to train next. `runs` are those of one size and corpus, with their learning rates."""
    size, nats = whole(wave, "wave", example="4"), number(tolerance, "tolerance", examples="0.005")
    runs, needed = (None, None) if runs is None else _with_enough_steps(_checked(runs, ranges))
    candidates = _long_enough(ranges, needed)
    if runs is None or len(runs) < _FEWEST:
        places = _first(candidates, size)
        low, high = _USUAL_TIMESCALE
        reason = (
            f"the surface needs {_FEWEST} runs; this wave spans timescales of {low:g} to {high:g} epochs."
        )
        return TuningStep(_rows(candidates, places), None, None, False, reason)
    seen = ranges.described(runs)
    model = GaussianProcess.of(_logs(seen), seen["loss"].to_numpy(dtype=float))
    proposal = propose(model, _logs(candidates), size, _trained(candidates, seen))
    place = best_setting(model, _logs(seen))
    best = _rows(seen, [place], loss=seen["loss"].to_numpy(dtype=float))[0]
    stop = proposal.improvement < nats
    more, less = "no setting is expected to improve on it by", "a run is expected to improve on it by"
    expected = f"{proposal.improvement:.4f} nats"
    reason = f"{more} {nats:g} nats ({expected})." if stop else f"{less} {expected}."
    rows = _rows(candidates, proposal.places, expected_loss=proposal.surface.loss)
    return TuningStep(rows, best, proposal.improvement, stop, reason)


def _first(candidates: pd.DataFrame, size: int) -> list[int]:
    """Settings far apart, among those whose timescale is usual (or closest to it)."""
    low, high = _USUAL_TIMESCALE
    outside = np.abs(
        np.log(candidates["timescale_epochs"] / np.clip(candidates["timescale_epochs"], low, high))
    )
    logs = _logs(candidates)
    places = [int(np.argmin(outside + 0.01 * np.abs(logs[:, 1] - np.median(logs[:, 1]))))]
    while len(places) < min(size, len(candidates)):
        apart = np.min(np.linalg.norm(logs[:, None] - logs[places][None], axis=-1), axis=1)
        places.append(int(np.argmax(np.where(outside <= np.sort(outside)[len(places)], apart, -1.0))))
    return places


def _of_runs(runs: pd.DataFrame | None, column: str, field: str) -> float:
    """The one value of a column, where the caller names none."""
    values = set() if runs is None or column not in runs else set(runs[column].dropna())
    if len(values) != 1:
        several = f"; the runs have {len(values)}" if values else ""
        raise InvalidInput(f"is missing{several}: say it, such as 65536.", field=field)
    return float(values.pop())


def _check_runs(runs: pd.DataFrame) -> None:
    if "learning_rate" not in runs:
        raise InvalidInput("tuning needs the learning rate of the runs: a column learning_rate would do.")
    sizes, tokens = runs["params"].nunique(), runs["unique_tokens"].nunique()
    if sizes > 1 or tokens > 1:
        most = runs.groupby(["params", "unique_tokens"]).size().idxmax()
        example = f"params == {most[0]:.0f} and unique_tokens == {most[1]:.0f}"  # type: ignore[index]
        raise InvalidInput(
            f"tuning is for one size and corpus; these runs have {sizes} sizes and {tokens} amounts of "
            f"unique tokens: choose with ‹where› '{example}'."
        )


def _checked(runs: pd.DataFrame, ranges: Ranges) -> pd.DataFrame:
    _check_runs(runs)
    tokens = float(runs["unique_tokens"].iloc[0])
    if not np.isclose(tokens, ranges.unique_tokens, rtol=0.01):
        raise InvalidInput(
            f"({ranges.unique_tokens:g}) is not what the runs were trained on ({tokens:g}).", field="ud"
        )
    return runs[runs["learning_rate"].notna()]


def _with_enough_steps(runs: pd.DataFrame) -> tuple[pd.DataFrame, float | None]:
    """The runs that are not starved of steps, and how many steps are needed; None where nothing shows it."""
    needed = needed_of(runs)
    return (runs if needed is None else runs[~(runs["steps"] < needed)]), needed


def _long_enough(ranges: Ranges, needed: float | None) -> pd.DataFrame:
    """The settings that may be proposed and have the steps that are needed."""
    steps = [ranges.unique_tokens * passes / ranges.batch_tokens for passes in ranges.epochs]
    if needed is None or steps[0] >= needed:
        return ranges.candidates()
    if steps[-1] < needed:
        least = math.ceil(needed * ranges.batch_tokens / ranges.unique_tokens)
        raise InvalidInput(
            f"{ranges.epochs[-1]:g} are {steps[-1]:,.0f} steps of {short(ranges.batch_tokens)} tokens, and "
            f"the runs show that {needed:,.0f} are needed; {least} or more, or a smaller batch, would do.",
            field="epochs",
        )
    kept = [passes for passes, taken in zip(ranges.epochs, steps, strict=True) if taken >= needed]
    return replace(ranges, epochs=tuple(kept)).candidates()


def _trained(candidates: pd.DataFrame, seen: pd.DataFrame) -> list[int]:
    """Candidates that are next to a run, in all logarithms."""
    apart = np.abs(_logs(candidates)[:, None] - _logs(seen)[None]).max(axis=-1).min(axis=1)
    return [int(place) for place in np.flatnonzero(apart < 0.1)]


def _logs(table: pd.DataFrame) -> np.ndarray:
    return np.asarray(np.log(table[list(COORDINATES)].to_numpy(dtype=float)))


def _rows(table: pd.DataFrame, places: list[int], **extra: np.ndarray) -> list[dict[str, float]]:
    names = ("weight_decay", "learning_rate", "epochs", "timescale_epochs")
    rows = [{name: float(table[name].iloc[place]) for name in names} for place in places]
    for row, place in zip(rows, places, strict=True):
        row |= {name: float(values[place]) for name, values in extra.items()}
    return rows


def _range(values: Any, field: str, example: str) -> tuple[float, float]:
    ends = [number(value, field, examples=example.split()[0]) for value in values]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise InvalidInput(
            f"must be a lower and an upper end such as {example}; got {' '.join(map(str, values))}.",
            field=field,
        )
    return ends[0], ends[1]
