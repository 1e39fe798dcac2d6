"""Trains one run: a Llama-2 model on packed data with exact epochs, and returns its validation loss.

    >>> from trainer import RunConfig, train
    >>> config = RunConfig(preset="micro", params="100k", unique_tokens="128k", epochs=4)
    >>> train(config, "runs/first").loss  # doctest: +SKIP

Importing this package loads nothing heavy; torch is imported when something that needs it is first used.
"""

from functools import partial
from typing import TYPE_CHECKING

from planner.lazy import load, names

if TYPE_CHECKING:
    from trainer.config import Corpus, RunConfig
    from trainer.data.batches import Batches
    from trainer.data.tokens import prepare
    from trainer.errors import Busy, Interrupted, TrainingStopped
    from trainer.model.llama import Llama
    from trainer.run.evaluation import evaluate
    from trainer.run.export import load_run
    from trainer.run.loop import train
    from trainer.run.result import RunResult, read_result

__all__ = [
    "Batches",
    "Busy",
    "Corpus",
    "Interrupted",
    "Llama",
    "RunConfig",
    "RunResult",
    "TrainingStopped",
    "evaluate",
    "load_run",
    "prepare",
    "read_result",
    "train",
]

_HOME = {
    "config": "Corpus RunConfig",
    "data.batches": "Batches",
    "data.tokens": "prepare",
    "errors": "Busy Interrupted TrainingStopped",
    "model.llama": "Llama",
    "run.evaluation": "evaluate",
    "run.export": "load_run",
    "run.loop": "train",
    "run.result": "RunResult read_result",
}

__getattr__, __dir__ = partial(load, __name__, _HOME), partial(names, __name__, _HOME)
