"""The advisor: from unique tokens, compute and weight decay to model size, epochs and crossover.

    >>> from planner import plan
    >>> p = plan(ud=250e6, flops=5e18)
    >>> p.weight_decay, round(p.params / 1e6), p.epochs
    (1.0, 556, 6.0)

Numbers only: nothing here loads scipy, pandas, matplotlib or torch. Names are loaded when first used, so that
the command line can set up its start before pydantic is imported.
"""

from typing import TYPE_CHECKING

from planner.lazy import lazily

if TYPE_CHECKING:
    from planner.calibration_files import Calibration
    from planner.comparisons import compare
    from planner.costs import cost, flops_from_gpus
    from planner.crossovers import crossover
    from planner.errors import InvalidCalibration, InvalidInput
    from planner.frontiers import Frontier, frontier
    from planner.laws import FORMS, Law
    from planner.plans import plan
    from planner.predictions import Predictions, predict
    from planner.results import Comparison, Crossover, Plan, Prediction
    from planner.shapes import Architecture, preset, presets, shape_for

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
    "calibration_files": "Calibration",
    "comparisons": "compare",
    "costs": "cost flops_from_gpus",
    "crossovers": "crossover",
    "errors": "InvalidCalibration InvalidInput",
    "frontiers": "Frontier frontier",
    "laws": "FORMS Law",
    "plans": "plan",
    "predictions": "Predictions predict",
    "results": "Comparison Crossover Plan Prediction",
    "shapes": "Architecture preset presets shape_for",
}

__getattr__, __dir__ = lazily(__name__, _HOME)
