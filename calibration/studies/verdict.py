"""What a validation found: plain values that `judge` makes from runs, in words, and as a file.

Claims about differences between means over few seeds: each configuration's noise is its own, as large models
at a high learning rate scatter thirty times as much as small ones. The interval of a difference is Games and
Howell's, which is Welch's with the quantile of the largest of all differences, because which law is the best
is read off the same runs. With one seed nothing is known about noise and nothing is claimed.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter
from scipy import stats

from calibration.studies.directory import StudyDirectory
from calibration.studies.prescriptions import PredictedCrossover, Prescription
from planner.inputs import InvalidInput, scientific, short
from planner.uncertainty import LEVEL
from trainer.files import read_json, write_json

# What makes two runs seeds of one configuration.
_SAME = ["params", "unique_tokens", "tokens", "weight_decay", "learning_rate"]
_SIDE = ("params", "epochs")  # columns of one side of a crossover, after its loss


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

    def reason_missing(self, prescription: Prescription) -> str:
        """Why nothing of it was trained, or not all of its seeds; nothing where all were."""
        reasons = (self.failed[run.name] for run in prescription.runs if run.name in self.failed)
        why = next((f"training failed: {reason}" for reason in reasons), "not trained yet")
        configuration = self.of(prescription)
        if configuration is None:
            return prescription.reason or why
        missing = [run.name for run in prescription.runs if run.name not in configuration.runs]
        seeds = f"{len(missing)} of {len(prescription.runs)} seeds are missing"
        return f"{seeds}: {why}" if missing else ""


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
    behind: float | None  # mean difference to the best law, over the pairs of both; zero: it is that law
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
    foreseen: bool | None = None  # whether the law's uncertainty and that of the seeds meet; None: unknown


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
        seeds = group.sort_values("seed")
        row = seeds.iloc[0]
        facts: dict[str, Any] = {name: int(row[name]) for name in ("params", "unique_tokens", "tokens")}
        facts |= {name: float(row[name]) for name in ("epochs", "flops", "weight_decay", "learning_rate")}
        losses = tuple(float(loss) for loss in seeds["loss"])
        found.append(Configuration(runs=tuple(seeds["run"]), losses=losses, **facts))
    return found


def pooled_deviation(found: Iterable[Configuration]) -> tuple[float | None, int]:
    """The standard deviation over seeds, from all configurations together, and its degrees of freedom."""
    groups = [np.asarray(configuration.losses) for configuration in found]
    freedom = sum(len(losses) - 1 for losses in groups)
    if freedom < 1:
        return None, 0
    squares = sum(float(((losses - losses.mean()) ** 2).sum()) for losses in groups)
    return math.sqrt(squares / freedom), freedom


def half_interval(configurations: Sequence[Configuration], rivals: int, scale: float = 1.0) -> float | None:
    """Half of the interval of a difference of these configurations' means; None where one has a single seed.

    Welch and Satterthwaite: the freedom of a sum of variances that are each known from few seeds.
    """
    variances = [c.variance_of_mean for c in configurations if c.variance_of_mean is not None]
    if len(variances) < len(configurations):
        return None
    total = sum(variances)
    if total == 0:
        return 0.0
    freedom = total**2 / sum(
        v**2 / (len(c.losses) - 1) for v, c in zip(variances, configurations, strict=True)
    )
    return _quantile(rivals, math.floor(10 * freedom) / 10) * math.sqrt(total) * scale


@lru_cache(maxsize=1000)
def _quantile(rivals: int, freedom: float) -> float:
    """Of the largest difference between so many, in standard errors; between two, that is Student's t."""
    if rivals <= 2:
        return float(stats.t.ppf(0.5 + LEVEL / 2, freedom))
    return float(stats.studentized_range.ppf(LEVEL, rivals, freedom)) / math.sqrt(2)


def crossover_sentence(found: CrossoverFound) -> str:
    """Predicted and observed crossover in one line."""
    if found.predicted is None:
        return found.note
    text = f"predicted {scientific(found.predicted)}"
    if found.predicted_interval is not None:
        text += " (95% {} to {})".format(*(scientific(end) for end in found.predicted_interval))
    between = ""
    if found.observed_interval is not None and found.observed_interval != (None, None):
        low, high = (None if end is None else scientific(end) for end in found.observed_interval)
        between = f" (95% {low or 'below the range'} to {high or 'above the range'})"
    if found.observed is None:
        return f"{text}; observed: {found.note}{between}"
    text += f", observed {scientific(found.observed)}{between}"
    text += f": {found.ratio:.2f} times the predicted one"
    if found.foreseen is not None and found.shown:
        text += ", as far as both are certain" if found.foreseen else ", further off than both are uncertain"
    return f"{text}; {found.note}" if found.note else text


def beyond_noise_text(
    value: bool | None, behind: float | None, interval: tuple[float, float] | None = None
) -> str:
    """Whether a law is behind the best one beyond seed noise, in a word or two.

    Where it is not shown, the difference that these seeds could have shown stands with it: a law may be far
    behind and its seeds scatter further.
    """
    if behind is None:
        return "not comparable"
    if value is None:
        return "best" if behind == 0 else "unknown"
    if value:
        return "yes"
    return "not shown" if interval is None else f"not shown (below {interval[1] - behind:.2g})"


def standing_rows(verdict: Verdict) -> list[dict[str, str]]:
    """Every law's standing as a row of a table, the best first."""
    return [
        {
            "law": s.law,
            "λ": f"{s.weight_decay:g}",
            "budgets": f"{s.pairs} of {s.of_pairs}",
            "mean regret": blank_or(s.regret),
            "± over budgets": blank_or(s.error),
            "± by seeds": blank_or(s.seed_error),
            "behind": blank_or(s.behind, "+.4f"),
            "95%": " to ".join(f"{end:+.4f}" for end in s.behind_interval or ()),
            "beyond noise": beyond_noise_text(s.beyond_noise, s.behind, s.behind_interval) if s.pairs else "",
            "wins": str(s.wins),
        }
        for s in sorted(verdict.standings, key=by_regret)
    ]


def trial_title(trial: Trial) -> str:
    budget = f"{short(trial.ud)} unique tokens, {scientific(trial.flops)} FLOPs"
    return f"{budget}, λ = {trial.weight_decay:g}"


def noise_sentence(trial: Trial) -> str:
    return "seed noise unknown (one seed)" if trial.noise is None else f"seed noise {trial.noise:.4f}"


def trial_rows(trial: Trial) -> list[dict[str, str]]:
    """What each law prescribed that was trained, and how that did, as rows of a table."""
    return [
        {
            "law": tried.law,
            "params": short(c.params),
            "unique": short(c.unique_tokens),
            "epochs": f"{c.epochs:.4g}",
            "loss": f"{c.loss:.4f}",
            "± sd": blank_or(c.deviation),
            "seeds": f"{len(c.losses)}",
            "perplexity": blank_or(tried.perplexity, ".3f"),
            "predicted": blank_or(tried.predicted_loss),
            "regret": blank_or(tried.regret),
            "behind": blank_or(tried.behind, "+.4f"),
            "beyond noise": beyond_noise_text(tried.beyond_noise, tried.behind, tried.behind_interval),
        }
        for tried in trial.laws
        if (c := tried.configuration) is not None
    ]


def best_sentence(best: Configuration) -> str:
    """The best of all that was trained at a pair."""
    return (
        f"best trained: {short(best.params)} parameters, {short(best.unique_tokens)} unique tokens, "
        f"{best.epochs:.4g} epochs: loss {best.loss:.4f} "
        f"({len(best.losses)} seed{'s' * (len(best.losses) > 1)})"
    )


def crossover_table(found: CrossoverFound) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows: what each weight decay's optimum came to at each compute."""

    def side(c: Configuration | None) -> tuple[str, str, str]:
        if c is None:
            return ("", "", "")
        spread = "" if c.deviation is None else f" ± {c.deviation:.4f}"
        return (f"{c.loss:.4f}{spread}", short(c.params), f"{c.epochs:.4g}")

    sides = [name for decay in (found.weaker, found.stronger) for name in (f"λ = {decay:g}", *_SIDE)]
    return ("FLOPs", *sides, "difference"), [
        (scientific(b.flops), *side(b.weaker), *side(b.stronger), blank_or(b.difference, "+.4f"))
        for b in found.budgets
    ]


def by_regret(standing: Standing) -> tuple[float, int, float]:
    """The order of standings: a mean over fewer budgets is no comparison, so these laws come later."""
    return standing.weight_decay, -standing.pairs, math.inf if standing.regret is None else standing.regret


def blank_or(value: float | None, style: str = ".4f") -> str:
    """A number of a table, blank where it is not known."""
    return "" if value is None else format(value, style)


FILE = "validation.json"
FORMAT = 1


def save_verdict(directory: StudyDirectory, verdict: Verdict, facts: dict[str, Any]) -> dict[str, Any]:
    """Write the file, with what it was made from and by; returns its content."""
    known = directory.facts()
    recipe = json.dumps(known.get("recipe"), sort_keys=True).encode()
    fingerprint = hashlib.blake2b(recipe, digest_size=8).hexdigest()
    made_from = {"recipe": fingerprint, "data": known.get("data")}
    versions = {"python": platform.python_version()}
    for name in ("databound", "torch", "numpy"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    content = {"format": FORMAT, **facts, "made_from": made_from, "versions": versions, **asdict(verdict)}
    try:
        write_json(directory.path / FILE, content)
    except OSError as error:
        raise InvalidInput(f"cannot write {directory.path / FILE}: {error.strerror}.") from None
    return content


def read_verdict(directory: StudyDirectory) -> tuple[Verdict, dict[str, Any]] | None:
    """The last validation of a study and the facts about it; None where there was none."""
    path = directory.path / FILE
    try:
        content = read_json(path)
        if content["format"] != FORMAT:
            raise InvalidInput(
                f"{path} has format {content['format']!r}, and this version reads {FORMAT}; validate again."
            )
        fields = {name: content.pop(name) for name in ("trials", "standings", "crossovers")}
        return TypeAdapter(Verdict).validate_python(fields), content
    except FileNotFoundError:
        return None
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"{path} is damaged; `planner calibrate validate` writes it again without training anew."
        ) from None
