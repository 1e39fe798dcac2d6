"""Averages of the weights along a run: what is validated and kept in place of the last ones.

An exponential moving average (`ema_decay`) is taken after every step, with the decay min(d, (1 + step) /
(10 + step)) so that the first weights do not stay in it; the mean of the last checkpoints (`average_last`,
LAWA, Kaddour 2022, arXiv 2209.14981) at `average_every` steps before the end. Both are kept beside the
weights, which train on as if there were none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from trainer.config import RunConfig
from trainer.run.device import Execution


class Average:
    """The averaged weights of a run of so many steps."""

    def __init__(self, model: nn.Module, config: RunConfig, steps: int):
        self.model, self.steps, self.decay = model, steps, config.ema_decay
        self.every = config.average_every or max(1, steps // 100)
        self.count = min(config.average_last or 1, (steps - 1) // self.every + 1)
        self.first = 1 if self.decay else steps - (self.count - 1) * self.every  # step that is in it
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    def share(self, step: int) -> float:
        """Of the weights after a step in the average; zero for a step that is not in it."""
        if self.decay:
            return 1 - min(self.decay, (1 + step) / (10 + step))
        before, rest = divmod(self.steps - step, self.every)
        return 0.0 if rest or before >= self.count else 1 / (self.count - before)

    def update(self, step: int) -> None:
        """Take in the weights after a step."""
        if share := self.share(step):
            with torch.no_grad():
                for name, p in self.model.named_parameters():
                    self.weights[name].lerp_(p, share)

    @contextmanager
    def used(self, step: int) -> Iterator[None]:
        """Have the model hold the average, where there is one yet, until the block is left."""
        if step < self.first:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                kept = p.clone()
                p.copy_(self.weights[name])
                self.weights[name].copy_(kept)


def bytes_of(config: RunConfig, params: int, execution: Execution) -> float:
    """Memory of each device that an average takes; on a CPU with the copy for checkpoints."""
    if not (config.ema_decay or config.average_last):
        return 0.0
    return (8.0 if execution.device == "cpu" else 4.0) * params / execution.world_size


def average(model: nn.Module, config: RunConfig, steps: int) -> Average | None:
    return Average(model, config, steps) if config.ema_decay or config.average_last else None
