"""A tournament of law forms: fitted to parts of run tables, tried beyond them, by size, compute, epochs and
data, and by the choices that they would have made.

`extrapolation` has the cuts and the rule for ties, `weighing` how the tool's own choice is weighed:
from the seen part, and from how forms did in the same direction on the other tables. Tables that share runs
count as one, and a table says nothing about itself, not even its other weight decays: what a choice is judged
by it has not seen. The choice is made among the forms that are fitted where nobody names any. Each direction
is cut at its share, and a tenth below and above it for the spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from extrapolation import DIRECTIONS, split
from weighing import FitMethod, error_of, in_sample_errors, left_out, ln_losses, weighted_mean, weights_of

from calibration.fitting.huber import Progress
from calibration.fitting.runs.arrays import find_groups
from planner.inputs import InvalidInput
from planner.laws import FORMS, STANDARD, check_form

CHOICE = "tool's choice"
IN_SAMPLE = "in sample"
_TENTH = 0.1
_SPREAD = (0.0, -_TENTH, _TENTH)
_ALIKE = 0.1  # compute of runs between which somebody could have chosen


@dataclass(frozen=True)
class Cut:
    """One cut of one table: how far off every form was beyond it."""

    share: float
    seen: int
    tried: int
    errors: dict[str, float]
    weights: dict[str, float]  # of the tool's choice, decided from the seen part
    regrets: dict[str, float] = field(default_factory=dict)  # mean, of the choices beyond a cut in compute
    choices: int = 0


@dataclass(frozen=True)
class Match:
    """One direction of one table: the cut at its share, and those around it."""

    table: str
    weight_decay: float
    direction: str
    cuts: tuple[Cut, ...]  # the first is the one that counts

    @property
    def cut(self) -> Cut:
        return self.cuts[0]

    def spread(self, form: str) -> tuple[float, float]:
        """The least and the largest error over the cuts."""
        errors = [cut.errors[form] for cut in self.cuts if form in cut.errors]
        return min(errors), max(errors)


@dataclass(frozen=True)
class Tournament:
    joint: bool
    forms: tuple[str, ...]
    matches: tuple[Match, ...]

    @property
    def entrants(self) -> tuple[str, ...]:
        return (CHOICE, *self.forms)

    def standing(self) -> list[tuple[str, float, float]]:
        """Every entrant with its mean ratio to the best error of a match, and its mean error: best first.

        Matches in sample do not count; a form that has no error in one counts there as the worst that has.
        """
        beyond = [match.cut for match in self.matches if match.direction != IN_SAMPLE]
        rows = []
        for entrant in self.entrants:
            ratios, errors = [], []
            for cut in beyond:
                worst, best = max(cut.errors.values()), min(cut.errors.values())
                error = cut.errors.get(entrant, worst)
                ratios.append(np.log(error / best))
                errors.append(error)
            rows.append((entrant, float(np.exp(np.mean(ratios))), float(np.mean(errors))))
        return sorted(rows, key=lambda row: row[1])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "standing": [
                {"law": law, "ratio": ratio, "error": error} for law, ratio, error in self.standing()
            ]
        }

    def table(self) -> pd.DataFrame:
        """One row for every entrant, match and cut."""
        rows = []
        for match in self.matches:
            for cut in match.cuts:
                for entrant, error in cut.errors.items():
                    facts = {"table": match.table, "weight_decay": match.weight_decay}
                    facts |= {"direction": match.direction, "share": cut.share, "seen": cut.seen}
                    facts |= {"tried": cut.tried, "law": entrant, "error": error}
                    weight = cut.weights.get(entrant, 0.0)
                    rows.append(facts | {"weight": weight, "regret": cut.regrets.get(entrant)})
        return pd.DataFrame(rows)


def tournament(
    tables: Mapping[str, pd.DataFrame],
    *,
    laws: Iterable[str] = FORMS,
    joint: bool = True,
    delta: float | str = "noise",
    directions: Sequence[str] = (IN_SAMPLE, *DIRECTIONS),
    progress: Progress | None = None,
) -> Tournament:
    """Every form on every direction of every table, per weight decay."""
    forms = tuple(dict.fromkeys(check_form(law) for law in laws))
    manner = FitMethod(joint, delta)
    entries = [
        _Entry(name, float(decay), runs.reset_index(drop=True), direction)  # type: ignore[arg-type]
        for name, table in tables.items()
        for decay, runs in table.groupby("weight_decay", sort=True)
        for direction in directions
    ]
    tried: list[tuple[_Entry, list[_Attempt]]] = []
    for done, entry in enumerate(entries):
        if progress is not None:
            what = f"{entry.name}, weight decay {entry.weight_decay:g}, {entry.direction}"
            progress(what, done / len(entries))
        attempts = _attempts(entry, forms, manner)
        if attempts:
            tried.append((entry, attempts))
    if not tried:
        raise InvalidInput(
            "no table can be cut so that the smaller part identifies a law and four repeated runs are left; "
            "more runs, or a wider grid, would do."
        )
    families = _families(tables)
    matches = []
    for entry, attempts in tried:
        prior = _elsewhere(entry, tried, families)
        cuts = tuple(_judged(entry, attempt, prior) for attempt in attempts)
        matches.append(Match(entry.name, entry.weight_decay, entry.direction, cuts))
    return Tournament(joint, forms, tuple(matches))


def _elsewhere(
    entry: _Entry, tried: Sequence[tuple[_Entry, list[_Attempt]]], families: Mapping[str, str]
) -> list[dict[str, float]]:
    """How forms did in the same direction on tables that have no run in common with this one."""
    if entry.direction == IN_SAMPLE:
        return []
    found: dict[tuple[str, float], list[dict[str, float]]] = {}
    for their, attempts in tried:
        if their.direction == entry.direction and families[their.name] != families[entry.name]:
            found.setdefault((families[their.name], their.weight_decay), []).append(attempts[0].errors)
    return [_ratios(errors) for errors in found.values()]


@dataclass(frozen=True)
class _Entry:
    """One direction of the runs of one weight decay."""

    name: str
    weight_decay: float
    runs: pd.DataFrame
    direction: str


@dataclass(frozen=True)
class _Attempt:
    """What forms that were fitted to the seen part predict for all runs, and how well they do within it."""

    share: float
    below: np.ndarray
    tried: np.ndarray
    predicted: dict[str, np.ndarray]
    errors: dict[str, float]
    within: tuple[dict[str, float], ...]  # in sample, and in cells left out


def _attempts(entry: _Entry, forms: Sequence[str], manner: FitMethod) -> list[_Attempt]:
    """The cut at its share first, then those around it; none where that one cannot be made."""
    if entry.direction == IN_SAMPLE:
        everything = np.ones(len(entry.runs), dtype=bool)
        repeated = entry.runs["epochs"].to_numpy(dtype=float) > 1
        return [_attempt(entry, forms, manner, 1.0, everything, repeated)] if repeated.any() else []
    found = []
    for step in _SPREAD:
        share = DIRECTIONS[entry.direction] + step
        cut = split(entry.runs, entry.direction, share)
        if cut is not None:
            found.append(_attempt(entry, forms, manner, round(share, 6), *cut))
        elif not step:
            return []
    return found


def _attempt(
    entry: _Entry, forms: Sequence[str], manner: FitMethod, share: float, below: np.ndarray, tried: np.ndarray
) -> _Attempt:
    part = entry.runs[below].reset_index(drop=True)
    fits = manner.fits(part, forms)
    places = entry.runs[["params", "unique_tokens", "epochs"]].to_numpy(dtype=float)
    ln_loss = np.log(entry.runs["loss"].to_numpy(dtype=float))
    every = ln_losses(fits, places)
    errors = {form: error_of(every[form][tried] - ln_loss[tried]) for form in forms if form in every}
    finite = {form: error for form, error in errors.items() if np.isfinite(error)}
    chosen_from = [form for form in finite if form in STANDARD]
    witnesses = (in_sample_errors(fits), left_out(fits, part))
    within = tuple({form: errors[form] for form in chosen_from if form in errors} for errors in witnesses)
    return _Attempt(share, below, tried, {form: every[form] for form in finite}, finite, within)


def _judged(entry: _Entry, attempt: _Attempt, elsewhere: Sequence[Mapping[str, float]]) -> Cut:
    """The attempt with the tool's own choice among the entrants."""
    weights = weights_of(attempt.within, elsewhere)
    predicted, errors = dict(attempt.predicted), dict(attempt.errors)
    if weights:
        predicted[CHOICE] = weighted_mean(predicted, weights)
        ln_loss = np.log(entry.runs["loss"].to_numpy(dtype=float))
        errors[CHOICE] = error_of(predicted[CHOICE][attempt.tried] - ln_loss[attempt.tried])
    regrets, choices = (
        _regrets(entry.runs[~attempt.below], predicted) if entry.direction == "compute" else ({}, 0)
    )
    seen, tried = int(attempt.below.sum()), int(attempt.tried.sum())
    return Cut(attempt.share, seen, tried, errors, weights, regrets, choices)


def _families(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """For every table the first one with which it has a run in common, directly or by way of others."""
    columns = ["params", "unique_tokens", "epochs", "weight_decay", "loss"]
    runs = {name: set(map(tuple, table[columns].round(9).to_numpy())) for name, table in tables.items()}
    families: dict[str, str] = {}
    for name in runs:
        related = {families[other] for other in families if runs[name] & runs[other]}
        families[name] = min(related, key=list(runs).index, default=name)
        families |= {other: families[name] for other, family in families.items() if family in related}
    return families


def _ratios(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The error of each form over the smallest of its table, geometric mean over tables that share runs."""
    forms = [form for form in tables[0] if all(form in errors for errors in tables)]
    behind = [[np.log(errors[form] / min(errors.values())) for form in forms] for errors in tables]
    return dict(zip(forms, np.exp(np.mean(behind, axis=0)).tolist(), strict=True))


def _regrets(beyond: pd.DataFrame, predicted: Mapping[str, np.ndarray]) -> tuple[dict[str, float], int]:
    """The mean loss of what each entrant would have picked among equal runs, above the best of them."""
    groups = find_groups(beyond, _ALIKE)
    numbers = beyond.index.to_numpy()
    found: dict[str, float] = {}
    for form, values in predicted.items():
        costs = []
        for group in groups:
            guesses = [values[numbers[rows[0]]] for rows in group.rows]
            costs.append(group.losses[int(np.argmin(guesses))] - group.losses.min())
        if costs:
            found[form] = float(np.mean(costs))
    return found, len(groups)
