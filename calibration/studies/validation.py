"""Who won: what the laws prescribed, once trained, with seeds.

For each (unique tokens, FLOPs) pair and weight decay, the loss of a law is the mean over seeds of what it prescribed, and its
**regret** that minus the lowest mean loss of all configurations in the study that were allowed there: the same weight decay and
learning rate, at most these unique tokens and at most 2% more compute, from the grid or from any law.

**Seed noise** is each configuration's own: large models at a high learning rate scatter thirty times as much as small ones. A law is
behind beyond noise where the 95% interval of its difference to the best law does not hold zero: Games and Howell's, which is
Welch's with the quantile of the largest of all differences, because which law is the best is read off the same runs. With one seed
nothing is known about noise and nothing is claimed.

The **observed crossover** of two weight decays is where the difference of their mean losses changes its sign, interpolated in ln C.
Its interval comes from drawing the seeds again: residuals of each weight decay are pooled over budgets and widened for the mean
that was taken out. An end outside of what was tried is open.

Everything here is plain values: prescriptions and a table of results in, dataclasses out that `asdict` turns into JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import pandas as pd
from scipy import stats

from calibration.studies.prescriptions import CrossoverTest, Prescription

LEVEL = 0.95
SLACK = 1.02  # a configuration may have had this much of the budget and still count as a rival
DRAWS = 2000
_SAME = [
    "params",
    "unique_tokens",
    "tokens",
    "weight_decay",
    "learning_rate",
]  # what makes two runs seeds of one configuration


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
    beyond_noise: bool | None = (
        None  # whether it is behind beyond seed noise; None: not known, or it is the best
    )


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
class CrossoverFound:
    """Where two weight decays swapped places, next to where the law said."""

    ud: float
    law: str
    weaker: float
    stronger: float
    predicted: float | None
    predicted_interval: tuple[float, float] | None
    observed: float | None
    observed_interval: tuple[float | None, float | None] | None  # None for an end outside of what was tried
    ratio: float | None  # observed over predicted
    crossings: tuple[float, ...]  # every change of sign
    crossing_share: float | None  # of the draws that cross inside
    note: str
    budgets: tuple[Budget, ...]


@dataclass(frozen=True)
class Verdict:
    """Everything that a validation found."""

    trials: tuple[Trial, ...]
    standings: tuple[Standing, ...]
    crossovers: tuple[CrossoverFound, ...]


def judge(
    planned: Sequence[Prescription],
    crossings: Sequence[CrossoverTest],
    results: pd.DataFrame,
    failed: Mapping[str, str] | None = None,
) -> Verdict:
    """What the finished runs say. `results` is the run table of everything trained in the study, with seeds."""
    known = configurations(results)
    where = {name: configuration for configuration in known for name in configuration.runs}
    trials = [
        _trial(list(group), known, where, failed or {})
        for _, group in groupby(planned, key=lambda p: (p.ud, p.flops, p.weight_decay))
    ]
    decays = list(dict.fromkeys(trial.weight_decay for trial in trials))
    standings = [
        standing
        for decay in decays
        for standing in standings_of([t for t in trials if t.weight_decay == decay])
    ]
    found = [_crossover(test, where, failed or {}) for test in crossings]
    return Verdict(tuple(trials), tuple(standings), tuple(found))


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


# -- one pair -------------------------------------------------------------------------------------------------------------


def _trial(
    planned: list[Prescription],
    known: list[Configuration],
    where: Mapping[str, Configuration],
    failed: Mapping[str, str],
) -> Trial:
    head = planned[0]
    trained = [_trained(prescription, where) for prescription in planned]
    distinct = list(
        {configuration.runs: configuration for configuration in trained if configuration is not None}.values()
    )
    noise, _ = pooled(distinct)
    best = None
    if distinct:
        rivals = [c for c in known if _allowed(c, head, distinct[0].learning_rate)]
        best = min([*rivals, *distinct], key=lambda c: c.loss)
    winner = min(distinct, key=lambda c: c.loss, default=None)
    laws = [
        _tried(prescription, configuration, best, winner, len(distinct), failed)
        for prescription, configuration in zip(planned, trained, strict=True)
    ]
    return Trial(head.ud, head.flops, head.weight_decay, noise, best, tuple(laws))


def _trained(prescription: Prescription, where: Mapping[str, Configuration]) -> Configuration | None:
    return next((where[run.name] for run in prescription.runs if run.name in where), None)


def _allowed(configuration: Configuration, head: Prescription, learning_rate: float) -> bool:
    return (
        configuration.weight_decay == head.weight_decay
        and configuration.learning_rate == learning_rate
        and configuration.unique_tokens <= head.ud
        and configuration.flops <= SLACK * head.flops
    )


def pooled(found: Iterable[Configuration]) -> tuple[float | None, int]:
    """The standard deviation over seeds, from all configurations together, and its degrees of freedom."""
    groups = [np.asarray(configuration.losses) for configuration in found]
    freedom = sum(len(losses) - 1 for losses in groups)
    if freedom < 1:
        return None, 0
    return math.sqrt(
        sum(float(((losses - losses.mean()) ** 2).sum()) for losses in groups) / freedom
    ), freedom


def _tried(
    prescription: Prescription,
    configuration: Configuration | None,
    best: Configuration | None,
    winner: Configuration | None,
    rivals: int,
    failed: Mapping[str, str],
) -> Tried:
    asked = {
        "law": prescription.law,
        "wanted_params": prescription.wanted_params,
        "wanted_epochs": prescription.wanted_epochs,
    }
    if configuration is None or best is None or winner is None:
        reason = prescription.reason or _why_not(prescription, failed)
        return Tried(**asked, predicted_loss=prescription.predicted_loss, reason=reason)  # type: ignore[arg-type]
    behind = configuration.loss - winner.loss
    interval = beyond = None
    half = _half([configuration, winner], rivals) if configuration is not winner else None
    if half is not None:
        interval, beyond = (behind - half, behind + half), behind > half
    return Tried(
        **asked,  # type: ignore[arg-type]
        reason=_missing_seeds(prescription, configuration, failed),
        configuration=configuration,
        loss=configuration.loss,
        perplexity=math.exp(configuration.loss),
        deviation=configuration.deviation,
        predicted_loss=prescription.predicted_loss,
        regret=configuration.loss - best.loss,
        behind=behind,
        behind_interval=interval,
        beyond_noise=beyond,
    )


def _why_not(prescription: Prescription, failed: Mapping[str, str]) -> str:
    for run in prescription.runs:
        if run.name in failed:
            return f"training failed: {failed[run.name]}"
    return "not trained yet"


def _missing_seeds(
    prescription: Prescription, configuration: Configuration, failed: Mapping[str, str]
) -> str:
    missing = [run.name for run in prescription.runs if run.name not in configuration.runs]
    if not missing:
        return ""
    return f"{len(missing)} of {len(prescription.runs)} seeds are missing: {_why_not(prescription, failed)}"


def _half(configurations: Sequence[Configuration], rivals: int, scale: float = 1.0) -> float | None:
    """Half of the interval of a difference that is made of these configurations' means; None where one has a single seed.

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
    """Of the largest of all differences between so many, in their standard errors; of two, that is Student's t."""
    if rivals <= 2:
        return float(stats.t.ppf(0.5 + LEVEL / 2, freedom))
    return float(stats.studentized_range.ppf(LEVEL, rivals, freedom)) / math.sqrt(2)


# -- over pairs -----------------------------------------------------------------------------------------------------------


def standings_of(trials: Sequence[Trial]) -> list[Standing]:
    names = list(dict.fromkeys(tried.law for trial in trials for tried in trial.laws))
    rows = {
        name: [next((t for t in trial.laws if t.law == name), None) for trial in trials] for name in names
    }
    means = {name: float(np.mean(regrets)) for name in names if (regrets := _regrets(rows[name]))}
    # Only a law that was trained at as many pairs as any can lead: a mean over easier pairs is no comparison.
    most = max((len(_regrets(rows[name])) for name in names), default=0)
    full = [name for name in means if len(_regrets(rows[name])) == most]
    leader = min(full, key=means.__getitem__, default=None)
    rivals = len(
        {
            tuple(tried.configuration.runs if tried and tried.configuration else () for tried in rows[name])
            for name in means
        }
    )
    return [_standing(name, rows[name], rows[leader] if leader else None, rivals, trials) for name in names]


def _regrets(row: Iterable[Tried | None]) -> list[float]:
    return [tried.regret for tried in row if tried is not None and tried.regret is not None]


def _standing(
    name: str,
    row: list[Tried | None],
    leader: list[Tried | None] | None,
    rivals: int,
    trials: Sequence[Trial],
) -> Standing:
    regrets = _regrets(row)
    behind = interval = beyond = None
    if leader is not None:
        behind, interval = _mean_difference(row, leader, rivals)
        beyond = None if interval is None or behind is None else interval[0] > 0
    return Standing(
        law=name,
        weight_decay=trials[0].weight_decay,
        pairs=len(regrets),
        of_pairs=len(trials),
        regret=float(np.mean(regrets)) if regrets else None,
        error=float(np.std(regrets, ddof=1) / math.sqrt(len(regrets))) if len(regrets) > 1 else None,
        seed_error=_seed_error(row),
        behind=behind,
        behind_interval=interval,
        beyond_noise=beyond,
        wins=sum(1 for tried in row if tried is not None and tried.behind == 0),
    )


def _seed_error(row: list[Tried | None]) -> float | None:
    """Of a mean over pairs, as far as it comes from the seeds."""
    trained = [tried.configuration for tried in row if tried is not None and tried.configuration is not None]
    variances = [c.variance_of_mean for c in trained if c.variance_of_mean is not None]
    return math.sqrt(sum(variances)) / len(trained) if variances and len(variances) == len(trained) else None


def _mean_difference(
    row: list[Tried | None], leader: list[Tried | None], rivals: int
) -> tuple[float | None, tuple[float, float] | None]:
    """Mean loss of a law minus that of the leader over the pairs that both have, with its interval by seed noise."""
    both = [
        (mine.configuration, theirs.configuration)
        for mine, theirs in zip(row, leader, strict=True)
        if mine is not None
        and theirs is not None
        and mine.configuration is not None
        and theirs.configuration is not None
    ]
    if not both:
        return None, None
    mean = float(np.mean([mine.loss - theirs.loss for mine, theirs in both]))
    different = [
        c for mine, theirs in both if mine is not theirs for c in (mine, theirs)
    ]  # the same runs differ by nothing
    half = _half(different, rivals, 1 / len(both)) if different else None
    return mean, None if half is None else (mean - half, mean + half)


# -- crossover ------------------------------------------------------------------------------------------------------------


def _crossover(
    test: CrossoverTest, where: Mapping[str, Configuration], failed: Mapping[str, str]
) -> CrossoverFound:
    budgets = []
    for weaker, stronger in zip(test.prescriptions[::2], test.prescriptions[1::2], strict=True):
        pair = [_trained(prescription, where) for prescription in (weaker, stronger)]
        reasons = [
            f"λ = {p.weight_decay:g}: {why}"
            for p, configuration in zip((weaker, stronger), pair, strict=True)
            if (
                why := _missing_seeds(p, configuration, failed)
                if configuration
                else p.reason or _why_not(p, failed)
            )
        ]
        difference = None if pair[0] is None or pair[1] is None else pair[1].loss - pair[0].loss
        budgets.append(Budget(weaker.flops, pair[0], pair[1], difference, "; ".join(reasons)))
    usable = [b for b in budgets if b.difference is not None]
    ln_flops = np.log([b.flops for b in usable])
    gaps = np.array([b.difference for b in usable], dtype=float)
    crossings = [math.exp(x) for x in sign_changes(ln_flops, gaps)]
    observed = _overtaken(ln_flops, gaps)
    inside = observed is not None and math.isfinite(observed)
    interval, share, agreed = _resampled(usable, ln_flops, observed)
    at = math.exp(observed) if inside and observed is not None else None
    return CrossoverFound(
        test.ud,
        test.law,
        test.weaker,
        test.stronger,
        test.predicted,
        test.predicted_interval,
        observed=at,
        observed_interval=interval,
        ratio=at / test.predicted if at and test.predicted else None,
        crossings=tuple(crossings),
        crossing_share=share,
        note=_note(test, observed, agreed, crossings, usable),
        budgets=tuple(budgets),
    )


def sign_changes(ln_flops: np.ndarray, gaps: np.ndarray) -> list[float]:
    """Where the difference is zero, by straight lines in ln C."""
    found = []
    for k in range(len(gaps) - 1):
        if (gaps[k] > 0) != (gaps[k + 1] > 0):
            found.append(
                float(ln_flops[k] + (ln_flops[k + 1] - ln_flops[k]) * gaps[k] / (gaps[k] - gaps[k + 1]))
            )
    return found


def _overtaken(ln_flops: np.ndarray, gaps: np.ndarray) -> float | None:
    """The first compute at which the stronger weight decay overtakes; minus or plus infinity: below or above what was tried.

    None where nothing can be said: fewer than two budgets, or the stronger one only falls behind.
    """
    if len(gaps) < 2:
        return None
    better = gaps <= 0  # the stronger one
    if better.all():
        return -math.inf
    if not better.any():
        return math.inf
    changes = sign_changes(ln_flops, gaps)
    upward = [
        x for x, k in zip(changes, np.flatnonzero(better[1:] != better[:-1]), strict=True) if better[k + 1]
    ]
    return upward[0] if upward else None


def _resampled(
    usable: Sequence[Budget], ln_flops: np.ndarray, observed: float | None
) -> tuple[tuple[float | None, float | None] | None, float | None, float | None]:
    """The interval of the observed crossover when the seeds are drawn again, the share of draws that cross inside, and the share
    that say what the means say, where those do not cross.
    """
    sides = []
    for name in ("weaker", "stronger"):
        groups = [np.asarray(getattr(budget, name).losses) for budget in usable]
        several = [losses for losses in groups if len(losses) > 1]
        if len(usable) < 2 or not several:
            return None, None, None
        residuals = np.concatenate(
            [(losses - losses.mean()) * math.sqrt(len(losses) / (len(losses) - 1)) for losses in several]
        )
        sides.append((groups, residuals))
    rng = np.random.default_rng(0)
    means = [
        np.stack([g.mean() + rng.choice(residuals, (DRAWS, len(g))).mean(axis=1) for g in groups])
        for groups, residuals in sides
    ]
    drawn = [_overtaken(ln_flops, gaps) for gaps in (means[1] - means[0]).T]
    known = np.array([x for x in drawn if x is not None])
    share = float(np.isfinite(known).sum() / DRAWS)
    agreed = drawn.count(observed) / DRAWS
    if len(known) < LEVEL * DRAWS:
        return None, share, agreed
    ends = np.quantile(known, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="nearest")
    low, high = (math.exp(end) if math.isfinite(end) else None for end in ends)
    return (low, high), share, agreed


def _note(
    test: CrossoverTest,
    observed: float | None,
    agreed: float | None,
    crossings: Sequence[float],
    usable: Sequence[Budget],
) -> str:
    if test.predicted is None:
        return f"no crossover is predicted, so none was looked for: {test.note}"
    if len(usable) < 2:
        return "fewer than two budgets were trained at both weight decays"
    doubt = (
        ""
        if agreed is None or agreed >= LEVEL
        else f" by its mean loss, and in {agreed:.0%} of draws of the seeds"
    )
    if observed is None:
        return f"λ = {test.stronger:g} never overtakes inside the range tried: it only falls behind{doubt}"
    if math.isinf(observed):
        better = test.stronger if observed < 0 else test.weaker
        return f"none inside the range tried: λ = {better:g} is better at all of it{doubt}"
    if len(crossings) > 1:
        return f"the better weight decay changes {len(crossings)} times; the first at which λ = {test.stronger:g} overtakes is given"
    return ""
