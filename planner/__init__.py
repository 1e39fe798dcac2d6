"""The advisor: from unique tokens, compute and weight decay to model size, epochs and crossover.

    >>> from planner import plan
    >>> p = plan(ud=250e6, flops=5e18)
    >>> p.weight_decay, round(p.params / 1e6), p.epochs
    (1.0, 556, 6.0)

Numbers only: nothing here loads pandas, matplotlib or torch. Names are loaded when first used, so that
the command line can set up its start before pydantic is imported.
"""

from functools import partial
from typing import TYPE_CHECKING

from planner.lazy import load, names

if TYPE_CHECKING:
    from planner.calibration import Calibration
    from planner.hardware import Architecture, cost, flops_from_gpus, preset, presets, shape_for
    from planner.inputs import InvalidCalibration, InvalidInput
    from planner.laws import FORMS, Law
    from planner.plans import compare, crossover, frontier, plan, predict
    from planner.results import Comparison, Crossover, Frontier, Plan, Prediction, Predictions

    __version__: str

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
    "Predictions",
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

_HOME = {
    "calibration": "Calibration",
    "hardware": "Architecture cost flops_from_gpus preset presets shape_for",
    "inputs": "InvalidCalibration InvalidInput",
    "laws": "FORMS Law",
    "plans": "compare crossover frontier plan predict",
    "results": "Comparison Crossover Frontier Plan Prediction Predictions",
}

__getattr__, __dir__ = partial(load, __name__, _HOME), partial(names, __name__, _HOME)
