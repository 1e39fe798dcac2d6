"""Where a law was tried: trainings that tested what it prescribes, and the case closest to a question.

A case is one amount of unique tokens at one weight decay, trained at several budgets as the law prescribes.
The closest is chosen by what is asked (weight decay, unique tokens) and never by how it came out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from planner import units
from planner.calibration_files import Calibration, Trial
from planner.laws import Law
from planner.remarks import Remark


class Case(NamedTuple):
    """Trainings along compute, the least first; of what was trained twice the later one."""

    weight_decay: float
    unique_tokens: float
    trials: tuple[Trial, ...]


def cases(known: Calibration, form: str) -> list[Case]:
    """What was tried of a law, in at least two budgets."""
    found: dict[tuple[float, float], dict[float, Trial]] = {}
    for setting in known.settings:
        for trial in setting.trials:
            if trial.law == form:
                place = setting.weight_decay, trial.unique_tokens
                found.setdefault(place, {})[trial.flops] = trial
    return [
        Case(*place, tuple(trial for _, trial in sorted(along.items())))
        for place, along in found.items()
        if len(along) > 1
    ]


def closest(known: Calibration, form: str, weight_decay: float, ud: float) -> Case | None:
    """The case whose inputs are closest: the same weight decay if there is one, then the nearest corpus."""

    def distance(case: Case) -> tuple[bool, float]:
        return case.weight_decay != weight_decay, abs(math.log(case.unique_tokens / ud))

    return min(cases(known, form), key=distance, default=None)


def measured_case(known: Calibration, form: str, weight_decay: float, ud: float) -> list[Remark]:
    """What was measured in the closest case, next to what the law says of it."""
    case = closest(known, form, weight_decay, ud)
    if case is None:
        return []
    law = known.law(case.weight_decay, form)
    budgets = _listed([units.scientific(trial.flops) for trial in case.trials])
    models = _listed([f"{units.short(t.params)} x {t.epochs:g}" for t in case.trials])
    measured = _listed([f"{units.perplexity(trial.loss):.2f}" for trial in case.trials])
    text = (
        f"Tried with {units.short(case.unique_tokens)} tokens at weight decay {case.weight_decay}, with "
        f"{budgets} FLOPs ({models}): perplexity {measured} measured, "
        f"{_predicted(law, case.trials)} predicted."
    )
    return [Remark("measured_case", text)]


def _predicted(law: Law, trials: Sequence[Trial]) -> str:
    losses = [float(law.loss(t.params, t.unique_tokens, t.epochs)) for t in trials]
    return _listed([f"{units.perplexity(loss):.2f}" for loss in losses])


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
