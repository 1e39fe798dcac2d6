"""`compare`: what each law recommends for one budget, and what following it would cost."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from planner.allocation import no_choice
from planner.budgets import budget
from planner.calibration_files import Calibration, CalibrationSource
from planner.evidence import check_question
from planner.limits import LimitOptions, Limits, spelled_out
from planner.records import made
from planner.results import Alternative, Comparison
from planner.spending import Asked, lowest, spend_each
from planner.spent import Spent


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
    check_question(known, ud, limits)
    rows = []
    for setting in known.candidates(known.default_law, weight_decay):
        judge = setting.law(known.default_law)
        best = float(lowest((judge,), ud, np.array([flops]), limits)[0, 0])
        if not math.isfinite(best):
            raise no_choice(ud, flops, limits)
        asked = [Asked(setting.law(form), setting.error(form), ud, flops) for form in setting.laws]
        for form, (found, _) in zip(setting.laws, spend_each(asked, limits), strict=True):
            expected = float(judge.loss(found.params, ud, found.epochs))
            rows.append(alternative(form, setting.weight_decay, found, expected, best))
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
