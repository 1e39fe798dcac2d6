"""`tune`: the next wave of runs over weight decay, learning rate and epochs, at one size and corpus.

Without runs the first wave covers the timescales at which the best settings of other people's recipes lie, a
quarter of an epoch to two, at learning rates across the range. With runs, the surface of `tuning` says which
settings are worth training next, what is best so far, and when to stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.design.gaussian_process import Model, best_setting, propose
from planner.inputs import InvalidInput, count, number, whole

_DECAYS, _RATES = 16, 9  # settings tried along each range
_USUAL_TIMESCALE = (0.25, 2.0)  # epochs
_FEWEST = 4  # runs before a surface says anything


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
        cls, *, ud: Any, batch_tokens: Any, weight_decays: Any, learning_rates: Any, epochs: Any
    ) -> Ranges:
        """From what was given, checked."""
        passes = tuple(sorted({number(value, "epochs", examples="4") for value in epochs}))
        if not passes:
            raise InvalidInput("must name at least one number of epochs, such as 8.", field="epochs")
        return cls(
            count(ud, "ud"),
            count(batch_tokens, "batch_tokens"),
            _range(weight_decays, "weight_decays", "0.03 10"),
            _range(learning_rates, "learning_rates", "1e-4 3e-3"),
            passes,
        )

    def candidates(self) -> pd.DataFrame:
        """Every setting that may be proposed, to two digits."""
        axes = (
            _steps(*self.weight_decays, _DECAYS),
            _steps(*self.learning_rates, _RATES),
            np.array(self.epochs),
        )
        grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
        table = pd.DataFrame(grid, columns=["weight_decay", "learning_rate", "epochs"])
        for name in ("weight_decay", "learning_rate"):
            table[name] = [float(f"{value:.1e}") for value in table[name]]
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
    candidates = ranges.candidates()
    if runs is None or len(runs) < _FEWEST:
        places = _first(candidates, size)
        reason = (
            f"the surface needs {_FEWEST} runs; this wave spans timescales of {_USUAL_TIMESCALE[0]:g} to "
        )
        return TuningStep(
            _rows(candidates, places), None, None, False, f"{reason}{_USUAL_TIMESCALE[1]:g} epochs."
        )
    seen = ranges.described(_checked(runs, ranges))
    model = Model.of(_logs(seen), seen["loss"].to_numpy(dtype=float))
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


def _checked(runs: pd.DataFrame, ranges: Ranges) -> pd.DataFrame:
    if "learning_rate" not in runs:
        raise InvalidInput("tuning needs the learning rate of the runs: a column learning_rate would do.")
    sizes, tokens = runs["params"].nunique(), runs["unique_tokens"].unique()
    if sizes > 1 or len(tokens) > 1:
        raise InvalidInput(
            f"tuning is for one size and corpus; these runs have {sizes} sizes and {len(tokens)} amounts of "
            f"unique tokens: choose with ‹where›."
        )
    if not np.isclose(float(tokens[0]), ranges.unique_tokens, rtol=0.01):
        raise InvalidInput(
            f"({ranges.unique_tokens:g}) is not what the runs were trained on ({float(tokens[0]):g}).",
            field="ud",
        )
    return runs


def _trained(candidates: pd.DataFrame, seen: pd.DataFrame) -> list[int]:
    """Candidates that are next to a run, in all logarithms."""
    apart = np.abs(_logs(candidates)[:, None] - _logs(seen)[None]).max(axis=-1).min(axis=1)
    return [int(place) for place in np.flatnonzero(apart < 0.1)]


def _logs(table: pd.DataFrame) -> np.ndarray:
    names = ("timescale_epochs", "learning_rate", "epochs", "batch_tokens")
    return np.asarray(np.log(np.column_stack([table[name].to_numpy(dtype=float) for name in names])))


def _rows(table: pd.DataFrame, places: list[int], **extra: np.ndarray) -> list[dict[str, float]]:
    names = ("weight_decay", "learning_rate", "epochs", "timescale_epochs")
    rows = [{name: float(table[name].iloc[place]) for name in names} for place in places]
    for row, place in zip(rows, places, strict=True):
        row |= {name: float(values[place]) for name, values in extra.items()}
    return rows


def _steps(low: float, high: float, number_: int) -> np.ndarray:
    return np.geomspace(low, high, number_ if low < high else 1)


def _range(values: Any, field: str, example: str) -> tuple[float, float]:
    ends = [number(value, field, examples=example.split()[0]) for value in values]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise InvalidInput(
            f"must be a lower and an upper end such as {example}; got {' '.join(map(str, values))}.",
            field=field,
        )
    return ends[0], ends[1]
