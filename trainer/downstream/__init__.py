"""Downstream evaluation: bits per byte of the right answers, and accuracy, over a suite of tasks.

>>> from trainer.downstream import bpb_table, evaluate, stored
>>> result = evaluate("runs/first", suite="olmes19", limit=100)  # doctest: +SKIP
>>> result.bpb, result.bpb_error  # doctest: +SKIP
>>> bpb_table(stored(["runs/first", "runs/second"], limit=100))  # rows for a report, nothing scored  # doctest: +SKIP

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

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "evaluate": "trainer.downstream.evaluation",
    "evaluate_all": "trainer.downstream.evaluation",
    "stored": "trainer.downstream.evaluation",
    "compare": "trainer.downstream.results",
    "bpb_table": "trainer.downstream.results",
    "SuiteResult": "trainer.downstream.results",
    "load_suite": "trainer.downstream.tasks",
    "check_overlap": "trainer.downstream.overlap",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'trainer.downstream' has no attribute {name!r}")
