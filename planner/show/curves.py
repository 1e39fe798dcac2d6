"""What the pictures of a plan draw, whatever draws them: matplotlib in files, plotly on a page."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from planner.calibration import Calibration
from planner.results import Plan
from planner.solve import FLOPS_PER_PARAM_TOKEN, Point

_JUMP = 0.25  # in ln(epochs), from one point of a frontier to the next: another valley, not a way there


class Isoflop(NamedTuple):
    """The loss along all that a plan's total pays for, that of repeats as good as new, and between which
    losses there is something to see.
    """

    epochs: np.ndarray
    params: np.ndarray
    loss: np.ndarray
    base: np.ndarray
    shown: tuple[float, float]


def isoflop(plan: Plan, known: Calibration, points: int) -> Isoflop:
    law, flat = known.law(plan.weight_decay, plan.law), plan.flat_range
    first, last = min(flat.epochs_min / 4, plan.epochs / 8), max(flat.epochs_max * 4, plan.epochs * 6)
    # With the plan itself, which may sit on a kink at one epoch.
    epochs = np.union1d(np.geomspace(max(first, 1e-3), last, points), [plan.epochs])
    at = size_at(plan, epochs), plan.ud, epochs
    loss = np.asarray(law.loss(*at)) - known.averaging_gain(law, members(plan), *at, plan.weight_decay)
    base = np.asarray(law.base().loss(*at))
    least = min(float(base.min()), plan.loss)
    span = plan.loss - least
    return Isoflop(epochs, at[0], loss, base, (least - 0.1 * span - 0.05, plan.loss + max(0.6, 3 * span)))


def size_at(plan: Plan, epochs: Any) -> Any:
    """The size of each model that a plan's total pays for at a number of epochs."""
    use, each, served = _costs(plan)
    return use / (each * np.maximum(epochs, 1e-12) + served)


def epochs_at(plan: Plan, size: Any) -> Any:
    """The same the other way round."""
    use, each, served = _costs(plan)
    return np.maximum(use / np.maximum(size, 1e-12) - served, 0.0) / each


def _costs(plan: Plan) -> tuple[float, float, float]:
    """What there is for each member, and what a parameter takes: to train for an epoch, and to serve."""
    use, served = plan.spent_flops, 0.0
    if plan.serving is not None:
        served = 2 * plan.serving.rate * plan.serving.tokens
        use += plan.serving.rate * plan.serving.flops
    return use / members(plan), FLOPS_PER_PARAM_TOKEN * plan.ud, served


def members(plan: Plan) -> int:
    return 1 if plan.members is None else plan.members.count


def unbroken(best: Point) -> np.ndarray:
    """The epochs along a frontier, with a gap where it jumps from one valley to another."""
    jumps = np.abs(np.diff(np.log(best.epochs), prepend=np.log(best.epochs[0]))) > _JUMP
    found: np.ndarray = np.where(jumps, np.nan, best.epochs)
    return found
