"""`compare`: what each law recommends for one budget, and what following it would cost."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from planner.allocation import no_choice
from planner.budgets import budget
from planner.calibration_files import Calibration, CalibrationSource, Setting
from planner.laws import Law
from planner.limits import LimitOptions, Limits, spelled_out
from planner.records import made
from planner.results import Alternative, Comparison
from planner.spending import Spent, lowest, spend


@spelled_out
def compare(
    ud: Any,
    flops: Any,
    *,
    weight_decay: Any = None,
    calibration: CalibrationSource = None,
    **options: Unpack[LimitOptions],
) -> Comparison:
    """What each law recommends for one budget, and what the calibration's default law expects of that."""
    ud, flops = budget(ud, flops)
    known, limits = Calibration.load(calibration), Limits.of(**options)
    rows = []
    for setting in known.candidates(known.default_law, weight_decay):
        judge = setting.law(known.default_law)
        best = float(lowest(judge, ud, np.asarray(flops), limits))
        if not math.isfinite(best):
            raise no_choice(ud, flops, limits)
        rows += [recommendation(setting, form, judge, best, ud, flops, limits) for form in setting.laws]
    return Comparison(
        ud=ud,
        flops=flops,
        spend=limits.spend,
        calibration=known.name,
        judge=known.default_law,
        guessing_loss=known.guessing_loss,
        rows=rows,
        limits=limits,
    )


def recommendation(
    setting: Setting, form: str, judge: Law, best: float, ud: float, flops: float, limits: Limits
) -> Alternative:
    """What another law recommends at this weight decay, in the eyes of a judge whose best loss is `best`."""
    found = spend(setting.law(form), ud, flops, setting.error(form), limits)
    expected = float(judge.loss(found.params, ud, found.epochs))
    return alternative(form, setting.weight_decay, found, expected, best)


def alternative(form: str, decay: float, found: Spent, expected: float, best: float) -> Alternative:
    """An allocation as one of the alternatives to a plan."""
    return made(
        Alternative,
        law=form,
        weight_decay=decay,
        spent_flops=float(found.flops),
        params=float(found.params),
        epochs=float(found.epochs),
        tokens=float(found.tokens),
        predicted_loss=float(found.loss),
        expected_loss=expected,
        regret=expected - best,
    )
