"""Trains one run: a Llama-2 model on packed data with exact epochs, and returns its validation loss.

    >>> from trainer import RunConfig, train
    >>> result = train(RunConfig(preset="micro", params="100k", unique_tokens="128k", epochs=4), "runs/first")  # doctest: +SKIP
    >>> result.loss  # doctest: +SKIP

Importing this package loads nothing heavy; torch is imported when something that needs it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "RunConfig": "trainer.config",
    "Corpus": "trainer.config",
    "train": "trainer.run.loop",
    "RunResult": "trainer.run.result",
    "read_result": "trainer.run.result",
    "load_run": "trainer.run.export",
    "Llama": "trainer.model.llama",
    "Batches": "trainer.data.batches",
    "prepare": "trainer.data.tokens",
    "evaluate": "trainer.run.evaluation",
    "TrainingStopped": "trainer.errors",
    "Interrupted": "trainer.errors",
    "Busy": "trainer.errors",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'trainer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
