"""What a validation found, as plain values: `judge` makes them from runs, `asdict` turns them into JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from calibration.studies.prescriptions import PredictedCrossover, Prescription

# What makes two runs seeds of one configuration.
_SAME = ["params", "unique_tokens", "tokens", "weight_decay", "learning_rate"]


@dataclass(frozen=True)
class Configuration:
    """What was trained, with all its seeds."""

    runs: tuple[str, ...]
    params: int
    unique_tokens: int
    epochs: float
    tokens: int
    flops: float
    weight_decay: float
    learning_rate: float
    losses: tuple[float, ...]

    @property
    def loss(self) -> float:
        return float(np.mean(self.losses))

    @property
    def deviation(self) -> float | None:
        return float(np.std(self.losses, ddof=1)) if len(self.losses) > 1 else None

    @property
    def variance_of_mean(self) -> float | None:
        return None if self.deviation is None else self.deviation**2 / len(self.losses)


@dataclass(frozen=True)
class Trained:
    """Everything that was trained in a study, and why runs failed that did."""

    configurations: tuple[Configuration, ...]
    failed: Mapping[str, str]

    @cached_property
    def _by_run(self) -> dict[str, Configuration]:
        return {name: configuration for configuration in self.configurations for name in configuration.runs}

    def of(self, prescription: Prescription) -> Configuration | None:
        found = (self._by_run.get(run.name) for run in prescription.runs)
        return next((configuration for configuration in found if configuration is not None), None)

    def excuse(self, prescription: Prescription) -> str:
        """Why nothing of it was trained, or not all of its seeds; nothing where all were."""
        configuration = self.of(prescription)
        if configuration is None:
            return prescription.reason or self._why_not(prescription)
        missing = [run.name for run in prescription.runs if run.name not in configuration.runs]
        if not missing:
            return ""
        seeds = f"{len(missing)} of {len(prescription.runs)} seeds are missing"
        return f"{seeds}: {self._why_not(prescription)}"

    def _why_not(self, prescription: Prescription) -> str:
        reasons = (self.failed[run.name] for run in prescription.runs if run.name in self.failed)
        return next((f"training failed: {reason}" for reason in reasons), "not trained yet")


@dataclass(frozen=True)
class Tried:
    """One law at one pair: what it asked for, what was trained, and how that did."""

    law: str
    wanted_params: float | None
    wanted_epochs: float | None
    reason: str = ""  # why nothing was trained, or not all seeds
    configuration: Configuration | None = None
    loss: float | None = None
    perplexity: float | None = None
    deviation: float | None = None  # over its own seeds
    predicted_loss: float | None = None
    regret: float | None = None
    behind: float | None = None  # loss minus that of the best law here
    behind_interval: tuple[float, float] | None = None
    beyond_noise: bool | None = None  # whether it is behind beyond seed noise; None: unknown, or the best


@dataclass(frozen=True)
class Trial:
    """All laws at one (unique tokens, FLOPs) pair and weight decay."""

    ud: float
    flops: float
    weight_decay: float
    noise: float | None  # standard deviation over seeds, pooled over what the laws prescribed
    best: Configuration | None  # the lowest mean loss that anything allowed here reached
    laws: tuple[Tried, ...]


@dataclass(frozen=True)
class Standing:
    """One law over all pairs of a weight decay."""

    law: str
    weight_decay: float
    pairs: int  # at which it was trained
    of_pairs: int
    regret: float | None  # mean
    error: float | None  # standard error over the pairs
    seed_error: float | None  # standard error that seed noise alone gives
    behind: (
        float | None
    )  # mean difference to the best law over the pairs that both have; zero: it is that law
    behind_interval: tuple[float, float] | None
    beyond_noise: bool | None
    wins: int  # pairs at which no law did better


@dataclass(frozen=True)
class Budget:
    """Both weight decays at one compute."""

    flops: float
    weaker: Configuration | None
    stronger: Configuration | None
    difference: float | None  # stronger minus weaker: below zero the stronger wins
    reason: str = ""


@dataclass(frozen=True)
class CrossoverFound(PredictedCrossover):
    """Where two weight decays swapped places, next to where the law said."""

    observed: float | None
    observed_interval: tuple[float | None, float | None] | None  # None for an end outside of what was tried
    ratio: float | None  # observed over predicted
    crossings: tuple[float, ...]  # every change of sign
    crossing_share: float | None  # of the draws that cross inside
    note: str
    budgets: tuple[Budget, ...]
    shown: bool | None = None  # whether it is beyond noise; None: nothing crossed, or there was one seed
    foreseen: bool | None = (
        None  # whether the law's own uncertainty and that of the seeds meet; None: unknown
    )


@dataclass(frozen=True)
class Verdict:
    """Everything that a validation found."""

    trials: tuple[Trial, ...]
    standings: tuple[Standing, ...]
    crossovers: tuple[CrossoverFound, ...]


def configurations(results: pd.DataFrame) -> list[Configuration]:
    """Runs that differ only in their seed, together; each once, however often the table has it."""
    if not len(results):
        return []
    found = []
    for _, group in results.drop_duplicates("run").groupby(_SAME, sort=False):
        first = group.sort_values("seed")
        row = first.iloc[0]
        found.append(
            Configuration(
                runs=tuple(first["run"]),
                params=int(row["params"]),
                unique_tokens=int(row["unique_tokens"]),
                epochs=float(row["epochs"]),
                tokens=int(row["tokens"]),
                flops=float(row["flops"]),
                weight_decay=float(row["weight_decay"]),
                learning_rate=float(row["learning_rate"]),
                losses=tuple(float(loss) for loss in first["loss"]),
            )
        )
    return found
