"""Who won: what the laws prescribed, once trained, with seeds.

For each (unique tokens, FLOPs) pair and weight decay, the loss of a law is the mean over seeds of what it prescribed, and its
**regret** that minus the lowest mean loss of all configurations in the study that were allowed there: the same weight decay and
learning rate, at most these unique tokens and at most 2% more compute, from the grid or from any law.

**Seed noise** is the standard deviation over seeds, pooled over the configurations of a pair. A difference between two laws is
beyond noise where its 95% t interval, with that deviation and its degrees of freedom, does not hold zero. With one seed nothing is
known about noise and nothing is claimed.

The **observed crossover** of two weight decays is where the difference of their mean losses changes its sign, interpolated in ln C.
Its interval comes from drawing the seeds again: residuals of each weight decay are pooled over budgets and widened for the mean
that was taken out. An end outside of what was tried is open.

Everything here is plain values: prescriptions and a table of results in, dataclasses out that `asdict` turns into JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pandas as pd
from scipy import stats

from calibration.prescriptions import CrossoverTest, Prescription

LEVEL = 0.95
SLACK = 1.02  # a configuration may have had this much of the budget and still count as a rival
DRAWS = 2000
_SAME = ["params", "unique_tokens", "tokens", "weight_decay", "learning_rate"]  # what makes two runs seeds of one configuration


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


@dataclass(frozen=True)
class Tried:
    """One law at one pair: what it asked for, what was trained, and how that did."""

    law: str
    wanted_params: float | None
    wanted_epochs: float | None
    reason: str = ""  # why nothing was trained
    configuration: Configuration | None = None
    loss: float | None = None
    perplexity: float | None = None
    deviation: float | None = None  # over its own seeds
    predicted_loss: float | None = None
    regret: float | None = None
    behind: float | None = None  # loss minus that of the best law here
    behind_interval: tuple[float, float] | None = None
    beyond_noise: bool | None = None  # whether it is behind beyond seed noise; None: not known, or it is the best


@dataclass(frozen=True)
class Trial:
    """All laws at one (unique tokens, FLOPs) pair and weight decay."""

    ud: float
    flops: float
    weight_decay: float
    noise: float | None  # pooled standard deviation over seeds
    noise_freedom: int  # its degrees of freedom
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
    behind: float | None  # mean difference to the law with the lowest mean regret, over the pairs that both have
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
    standings = [standing for decay in decays for standing in standings_of([t for t in trials if t.weight_decay == decay])]
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
                runs=tuple(first["run"]), params=int(row["params"]), unique_tokens=int(row["unique_tokens"]),
                epochs=float(row["epochs"]), tokens=int(row["tokens"]), flops=float(row["flops"]),
                weight_decay=float(row["weight_decay"]), learning_rate=float(row["learning_rate"]),
                losses=tuple(float(loss) for loss in first["loss"]),
            )
        )  # fmt: skip
    return found


# -- one pair -------------------------------------------------------------------------------------------------------------


def _trial(
    planned: list[Prescription], known: list[Configuration], where: Mapping[str, Configuration], failed: Mapping[str, str]
) -> Trial:
    head = planned[0]
    trained = [_trained(prescription, where) for prescription in planned]
    distinct = list({configuration.runs: configuration for configuration in trained if configuration is not None}.values())
    noise, freedom = pooled(distinct)
    best = None
    if distinct:
        rivals = [c for c in known if _allowed(c, head, distinct[0].learning_rate)]
        best = min([*rivals, *distinct], key=lambda c: c.loss)
    winner = min(distinct, key=lambda c: c.loss, default=None)
    laws = [
        _tried(prescription, configuration, best, winner, noise, freedom, failed)
        for prescription, configuration in zip(planned, trained, strict=True)
    ]
    return Trial(head.ud, head.flops, head.weight_decay, noise, freedom, best, tuple(laws))


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
    return math.sqrt(sum(float(((losses - losses.mean()) ** 2).sum()) for losses in groups) / freedom), freedom


def _tried(
    prescription: Prescription,
    configuration: Configuration | None,
    best: Configuration | None,
    winner: Configuration | None,
    noise: float | None,
    freedom: int,
    failed: Mapping[str, str],
) -> Tried:
    asked = {"law": prescription.law, "wanted_params": prescription.wanted_params, "wanted_epochs": prescription.wanted_epochs}
    if configuration is None or best is None or winner is None:
        reason = prescription.reason or _why_not(prescription, failed)
        return Tried(**asked, predicted_loss=prescription.predicted_loss, reason=reason)  # type: ignore[arg-type]
    behind = configuration.loss - winner.loss
    interval = beyond = None
    if configuration is not winner and noise is not None:
        half = _half(noise**2 * (1 / len(configuration.losses) + 1 / len(winner.losses)), freedom)
        interval, beyond = (behind - half, behind + half), behind > half
    return Tried(
        **asked,  # type: ignore[arg-type]
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


def _half(variance: float, freedom: float) -> float:
    return float(stats.t.ppf(0.5 + LEVEL / 2, freedom)) * math.sqrt(variance)


# -- over pairs -----------------------------------------------------------------------------------------------------------


def standings_of(trials: Sequence[Trial]) -> list[Standing]:
    names = list(dict.fromkeys(tried.law for trial in trials for tried in trial.laws))
    rows = {name: [next((t for t in trial.laws if t.law == name), None) for trial in trials] for name in names}
    means = {name: float(np.mean(regrets)) for name in names if (regrets := _regrets(rows[name]))}
    # Only a law that was trained at as many pairs as any can lead: a mean over easier pairs is no comparison.
    most = max((len(_regrets(rows[name])) for name in names), default=0)
    full = [name for name in means if len(_regrets(rows[name])) == most]
    leader = min(full, key=means.__getitem__, default=None)
    return [_standing(name, rows[name], None if leader in (None, name) else rows[leader], trials) for name in names]


def _regrets(row: Iterable[Tried | None]) -> list[float]:
    return [tried.regret for tried in row if tried is not None and tried.regret is not None]


def _standing(name: str, row: list[Tried | None], leader: list[Tried | None] | None, trials: Sequence[Trial]) -> Standing:
    regrets = _regrets(row)
    behind = interval = beyond = None
    if leader is not None:
        behind, interval = _mean_difference(row, leader, trials)
        beyond = None if interval is None or behind is None else interval[0] > 0
    return Standing(
        law=name,
        weight_decay=trials[0].weight_decay,
        pairs=len(regrets),
        of_pairs=len(trials),
        regret=float(np.mean(regrets)) if regrets else None,
        error=float(np.std(regrets, ddof=1) / math.sqrt(len(regrets))) if len(regrets) > 1 else None,
        seed_error=_seed_error(row, trials),
        behind=behind,
        behind_interval=interval,
        beyond_noise=beyond,
        wins=sum(1 for tried in row if tried is not None and tried.behind == 0),
    )


def _seed_error(row: list[Tried | None], trials: Sequence[Trial]) -> float | None:
    """Of a mean over pairs, as far as it comes from the seeds."""
    variances = []
    for tried, trial in zip(row, trials, strict=True):
        if tried is not None and tried.configuration is not None:
            if trial.noise is None:
                return None
            variances.append(trial.noise**2 / len(tried.configuration.losses))
    return math.sqrt(sum(variances)) / len(variances) if variances else None


def _mean_difference(
    row: list[Tried | None], leader: list[Tried | None], trials: Sequence[Trial]
) -> tuple[float | None, tuple[float, float] | None]:
    """Mean loss of a law minus that of the leader over the pairs that both have, with its interval by seed noise."""
    gaps, variances, freedoms = [], [], []
    for mine, theirs, trial in zip(row, leader, trials, strict=True):
        if mine is None or theirs is None or mine.configuration is None or theirs.configuration is None:
            continue
        gaps.append(mine.configuration.loss - theirs.configuration.loss)
        if mine.configuration is theirs.configuration:  # the same runs: no difference, and none by chance
            continue
        variance = math.nan if trial.noise is None else trial.noise**2
        variances.append(variance * (1 / len(mine.configuration.losses) + 1 / len(theirs.configuration.losses)))
        freedoms.append(trial.noise_freedom)
    if not gaps:
        return None, None
    mean = float(np.mean(gaps))
    if not sum(variances) > 0:  # none, or of a budget with one seed, where it is not known
        return mean, None
    # Welch and Satterthwaite: the freedom of a sum of variances that are each known from few seeds.
    freedom = sum(variances) ** 2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    half = _half(sum(variances) / len(gaps) ** 2, freedom)
    return mean, (mean - half, mean + half)


# -- crossover ------------------------------------------------------------------------------------------------------------


def _crossover(test: CrossoverTest, where: Mapping[str, Configuration], failed: Mapping[str, str]) -> CrossoverFound:
    budgets = []
    for weaker, stronger in zip(test.prescriptions[::2], test.prescriptions[1::2], strict=True):
        pair = [_trained(prescription, where) for prescription in (weaker, stronger)]
        reasons = [
            f"λ = {p.weight_decay:g}: {p.reason or _why_not(p, failed)}"
            for p, configuration in zip((weaker, stronger), pair, strict=True)
            if configuration is None
        ]
        difference = None if pair[0] is None or pair[1] is None else pair[1].loss - pair[0].loss
        budgets.append(Budget(weaker.flops, pair[0], pair[1], difference, "; ".join(reasons)))
    usable = [b for b in budgets if b.difference is not None]
    ln_flops = np.log([b.flops for b in usable])
    gaps = np.array([b.difference for b in usable], dtype=float)
    crossings = [math.exp(x) for x in sign_changes(ln_flops, gaps)]
    observed = _overtaken(ln_flops, gaps)
    inside = observed is not None and math.isfinite(observed)
    interval, share = _resampled(usable, ln_flops)
    at = math.exp(observed) if inside and observed is not None else None
    return CrossoverFound(
        test.ud, test.law, test.weaker, test.stronger, test.predicted, test.predicted_interval,
        observed=at, observed_interval=interval, ratio=at / test.predicted if at and test.predicted else None,
        crossings=tuple(crossings), crossing_share=share, note=_note(test, observed, crossings, usable), budgets=tuple(budgets),
    )  # fmt: skip


def sign_changes(ln_flops: np.ndarray, gaps: np.ndarray) -> list[float]:
    """Where the difference is zero, by straight lines in ln C."""
    found = []
    for k in range(len(gaps) - 1):
        if (gaps[k] > 0) != (gaps[k + 1] > 0):
            found.append(float(ln_flops[k] + (ln_flops[k + 1] - ln_flops[k]) * gaps[k] / (gaps[k] - gaps[k + 1])))
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
    upward = [x for x, k in zip(changes, np.flatnonzero(better[1:] != better[:-1]), strict=True) if better[k + 1]]
    return upward[0] if upward else None


def _resampled(usable: Sequence[Budget], ln_flops: np.ndarray) -> tuple[tuple[float | None, float | None] | None, float | None]:
    """The interval of the observed crossover when the seeds are drawn again, and the share of draws that cross inside."""
    sides = []
    for name in ("weaker", "stronger"):
        groups = [np.asarray(getattr(budget, name).losses) for budget in usable]
        several = [losses for losses in groups if len(losses) > 1]
        if len(usable) < 2 or not several:
            return None, None
        residuals = np.concatenate([(losses - losses.mean()) * math.sqrt(len(losses) / (len(losses) - 1)) for losses in several])
        sides.append((groups, residuals))
    rng = np.random.default_rng(0)
    means = [
        np.stack([g.mean() + rng.choice(residuals, (DRAWS, len(g))).mean(axis=1) for g in groups]) for groups, residuals in sides
    ]
    drawn = [_overtaken(ln_flops, gaps) for gaps in (means[1] - means[0]).T]
    known = np.array([x for x in drawn if x is not None])
    share = float(np.isfinite(known).sum() / DRAWS)
    if len(known) < LEVEL * DRAWS:
        return None, share
    ends = np.quantile(known, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="nearest")
    low, high = (math.exp(end) if math.isfinite(end) else None for end in ends)
    return (low, high), share


def _note(test: CrossoverTest, observed: float | None, crossings: Sequence[float], usable: Sequence[Budget]) -> str:
    if test.predicted is None:
        return f"no crossover is predicted, so none was looked for: {test.note}"
    if len(usable) < 2:
        return "fewer than two budgets were trained at both weight decays"
    if observed is None:
        return f"λ = {test.stronger:g} never overtakes inside the range tried: it only falls behind"
    if observed == -math.inf:
        return f"none inside the range tried: λ = {test.stronger:g} is better at all of it"
    if observed == math.inf:
        return f"none inside the range tried: λ = {test.weaker:g} is better at all of it"
    if len(crossings) > 1:
        return (
            f"the better weight decay changes {len(crossings)} times; the first at which λ = {test.stronger:g} overtakes is given"
        )
    return ""
