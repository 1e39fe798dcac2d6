"""Downstream evaluation: bits per byte of the right answers, and accuracy, over a suite of tasks.

>>> from trainer.downstream import bpb_table, evaluate, stored
>>> evaluate("runs/first", suite="olmes19", limit=100).bpb  # doctest: +SKIP
>>> bpb_table(stored(["runs/first", "runs/second"], limit=100))  # nothing is scored  # doctest: +SKIP
"""

from functools import partial
from typing import TYPE_CHECKING

from planner.lazy import load, names

if TYPE_CHECKING:
    from trainer.downstream.evaluation import evaluate, evaluate_all, stored
    from trainer.downstream.overlap import check_overlap
    from trainer.downstream.results import SuiteResult, bpb_table, compare
    from trainer.downstream.tasks import load_suite

__all__ = [
    "SuiteResult",
    "bpb_table",
    "check_overlap",
    "compare",
    "evaluate",
    "evaluate_all",
    "load_suite",
    "stored",
]

_HOME = {
    "evaluation": "evaluate evaluate_all stored",
    "overlap": "check_overlap",
    "results": "SuiteResult bpb_table compare",
    "tasks": "load_suite",
}

__getattr__, __dir__ = partial(load, __name__, _HOME), partial(names, __name__, _HOME)
