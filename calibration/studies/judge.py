"""Who won: what the laws prescribed, once trained, with seeds.

For each (unique tokens, FLOPs) pair and weight decay, the loss of a law is the mean over seeds of what it
prescribed, and its **regret** that minus the lowest mean loss of all configurations in the study that were
allowed there: the same weight decay and learning rate, at most these unique tokens and at most 2% more
compute, from the grid or from any law.

A law is behind beyond noise where the 95% interval of its difference to the best law (see `verdict`) does not
hold zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pandas as pd

from calibration.studies.observed_crossover import observe_crossover
from calibration.studies.prescriptions import CrossoverTest, Prescription
from calibration.studies.verdict import (
    Configuration,
    Standing,
    Trained,
    Trial,
    Tried,
    Verdict,
    configurations,
    half_interval,
    pooled_deviation,
)

SLACK = 1.02  # a configuration may have had this much of the budget and still count as a rival

_Row = list[Tried | None]  # one law at all pairs; None where it was not asked


def judge(
    planned: Sequence[Prescription],
    crossings: Sequence[CrossoverTest],
    results: pd.DataFrame,
    failed: Mapping[str, str] | None = None,
) -> Verdict:
    """What the finished runs say. `results` is the table of all runs trained in the study, with seeds."""
    trained = Trained(tuple(configurations(results)), failed or {})
    pairs = groupby(planned, key=lambda p: (p.ud, p.flops, p.weight_decay))
    trials = [_trial(list(group), trained) for _, group in pairs]
    standings: list[Standing] = []
    for decay in dict.fromkeys(trial.weight_decay for trial in trials):
        standings += standings_of([trial for trial in trials if trial.weight_decay == decay])
    return Verdict(
        tuple(trials), tuple(standings), tuple(observe_crossover(test, trained) for test in crossings)
    )


# -- one pair ------------------------------------------------------------------------------------------------


def _trial(planned: list[Prescription], trained: Trained) -> Trial:
    head = planned[0]
    own = [configuration for p in planned if (configuration := trained.of(p)) is not None]
    distinct = list({configuration.runs: configuration for configuration in own}.values())
    best = winner = None
    if distinct:
        allowed = [
            c
            for c in trained.configurations
            if c.weight_decay == head.weight_decay
            and c.learning_rate == distinct[0].learning_rate
            and c.unique_tokens <= head.ud
            and c.flops <= SLACK * head.flops
        ]
        best = min([*allowed, *distinct], key=lambda c: c.loss)
        winner = min(distinct, key=lambda c: c.loss)
    laws = tuple(_tried(prescription, trained, best, winner, len(distinct)) for prescription in planned)
    return Trial(head.ud, head.flops, head.weight_decay, pooled_deviation(distinct)[0], best, laws)


def _tried(
    prescription: Prescription,
    trained: Trained,
    best: Configuration | None,
    winner: Configuration | None,
    rivals: int,
) -> Tried:
    asked = Tried(
        prescription.law,
        prescription.wanted_params,
        prescription.wanted_epochs,
        reason=trained.reason_missing(prescription),
        predicted_loss=prescription.predicted_loss,
    )
    configuration = trained.of(prescription)
    if configuration is None or best is None or winner is None:
        return asked
    behind = configuration.loss - winner.loss
    half = half_interval([configuration, winner], rivals) if configuration is not winner else None
    return replace(
        asked,
        configuration=configuration,
        loss=configuration.loss,
        perplexity=math.exp(configuration.loss),
        deviation=configuration.deviation,
        regret=configuration.loss - best.loss,
        behind=behind,
        behind_interval=None if half is None else (behind - half, behind + half),
        beyond_noise=None if half is None else behind > half,
    )


# -- over pairs ----------------------------------------------------------------------------------------------


def standings_of(trials: Sequence[Trial]) -> list[Standing]:
    """Every law over these pairs, all of one weight decay."""
    at = [{tried.law: tried for tried in reversed(trial.laws)} for trial in trials]
    laws = dict.fromkeys(tried.law for trial in trials for tried in trial.laws)
    rows: dict[str, _Row] = {law: [here.get(law) for here in at] for law in laws}
    compared = [row for row in rows.values() if _regrets(row)]
    # Only a law that was trained at as many pairs as any can lead: a mean over easier pairs is no comparison.
    most = max((len(_regrets(row)) for row in compared), default=0)
    full = [row for row in compared if len(_regrets(row)) == most]
    leader = min(full, key=lambda row: float(np.mean(_regrets(row))), default=None)
    rivals = len({_prescribed(row) for row in compared})
    return [_standing(law, row, leader, rivals, trials) for law, row in rows.items()]


def _prescribed(row: _Row) -> tuple[tuple[str, ...], ...]:
    """The runs behind a law's row: laws that prescribe the same everywhere are one rival."""
    return tuple(tried.configuration.runs if tried and tried.configuration else () for tried in row)


def _regrets(row: Iterable[Tried | None]) -> list[float]:
    return [tried.regret for tried in row if tried is not None and tried.regret is not None]


def _standing(law: str, row: _Row, leader: _Row | None, rivals: int, trials: Sequence[Trial]) -> Standing:
    regrets = _regrets(row)
    # Of the mean over pairs, as far as it comes from the seeds.
    variances = [one.configuration.variance_of_mean for one in row if one is not None and one.configuration]
    known = [variance for variance in variances if variance is not None]
    seeds = len(known) == len(variances) > 0
    behind, interval = (None, None) if leader is None else _mean_difference(row, leader, rivals)
    return Standing(
        law=law,
        weight_decay=trials[0].weight_decay,
        pairs=len(regrets),
        of_pairs=len(trials),
        regret=float(np.mean(regrets)) if regrets else None,
        error=float(np.std(regrets, ddof=1) / math.sqrt(len(regrets))) if len(regrets) > 1 else None,
        seed_error=math.sqrt(sum(known)) / len(known) if seeds else None,
        behind=behind,
        behind_interval=interval,
        beyond_noise=None if interval is None else interval[0] > 0,
        wins=sum(1 for tried in row if tried is not None and tried.behind == 0),
    )


def _mean_difference(row: _Row, leader: _Row, rivals: int) -> tuple[float | None, tuple[float, float] | None]:
    """Mean loss of a law minus the leader's over the pairs that both have, with its interval by seeds."""
    sides = [(mine, theirs) for mine, theirs in zip(row, leader, strict=True) if mine and theirs]
    both = [
        (mine.configuration, theirs.configuration)
        for mine, theirs in sides
        if mine.configuration is not None and theirs.configuration is not None
    ]
    if not both:
        return None, None
    mean = float(np.mean([mine.loss - theirs.loss for mine, theirs in both]))
    # The same runs differ by nothing.
    different = [c for mine, theirs in both if mine is not theirs for c in (mine, theirs)]
    half = half_interval(different, rivals, 1 / len(both)) if different else None
    return mean, None if half is None else (mean - half, mean + half)
