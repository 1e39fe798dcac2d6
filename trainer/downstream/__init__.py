"""Downstream evaluation: bits per byte of the right answers, and accuracy, over a suite of tasks.

>>> from trainer.downstream import bpb_table, evaluate, stored >>> result = evaluate("runs/first",
suite="olmes19", limit=100)  # doctest: +SKIP >>> result.bpb, result.bpb_error  # doctest: +SKIP >>>
bpb_table(stored(["runs/first", "runs/second"], limit=100))  # rows for a report, nothing scored  # doctest:
+SKIP

tasks.py      which requests a suite has, and where they are
requests.py   text to tokens: what is fed, what is scored
models.py     a run of ours or a Hugging Face folder, behind one interface
scoring.py    log-probabilities of many requests, with as little arithmetic as possible
metrics.py    bits per byte, accuracy, standard errors, paired differences
cache.py      finished tasks on disk
results.py    what comes out, and the table for reports
evaluation.py models over a suite, scored or looked up
overlap.py    how much of a suite the training text contains
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
