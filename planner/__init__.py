"""The advisor: from unique tokens, compute and weight decay to model size, epochs and crossover.

    >>> from planner import plan
    >>> p = plan(ud=250e6, flops=5e18)
    >>> p.weight_decay, round(p.params / 1e6), p.epochs
    (1.0, 556, 6.0)

Numbers only: importing this package loads numpy and pydantic, nothing heavier.
"""

from planner.api import Frontier, compare, crossover, frontier, plan, predict
from planner.calibration import Calibration
from planner.costs import cost, flops_from_gpus
from planner.errors import InvalidCalibration, InvalidInput
from planner.laws import FORMS, Law
from planner.results import Comparison, Crossover, Plan, Prediction
from planner.shapes import Architecture, preset, presets, shape_for

__version__ = "0.1.0"

__all__ = [
    "FORMS",
    "Architecture",
    "Calibration",
    "Comparison",
    "Crossover",
    "Frontier",
    "InvalidCalibration",
    "InvalidInput",
    "Law",
    "Plan",
    "Prediction",
    "compare",
    "cost",
    "crossover",
    "flops_from_gpus",
    "frontier",
    "plan",
    "predict",
    "preset",
    "presets",
    "shape_for",
]
