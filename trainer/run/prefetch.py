"""The rows of a step on their way to the device: those of the next step are read, and put into memory that a
GPU copies from by itself, while this one is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from trainer.data.batches import PADDING, Batches
from trainer.run.distributed import World

Pass = tuple[torch.Tensor, torch.Tensor]  # inputs and targets


class Prefetcher:
    """The passes of a step; `ahead` prepares the next one meanwhile, which pays on a GPU alone."""

    def __init__(self, batches: Batches, world: World, device: torch.device, ahead: bool | None = None):
        self.batches, self.world, self.device = batches, world, device
        ahead = device.type == "cuda" if ahead is None else ahead
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch") if ahead else None
        self.coming: tuple[tuple[int, int], Future[list[Pass]]] | None = None

    def step(self, step: int, micro_batch: int) -> Iterator[Pass]:
        """The passes of a step, on the device."""
        asked, coming = (step, micro_batch), self.coming
        ready = coming[1].result() if coming and coming[0] == asked else self._passes(*asked)
        if self.pool and step + 1 < self.batches.steps:
            following = (step + 1, micro_batch)
            self.coming = following, self.pool.submit(self._passes, *following)
        for inputs, targets in ready:
            yield inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)

    def close(self) -> None:
        if self.pool:
            self.pool.shutdown(cancel_futures=True)

    def _passes(self, step: int, micro_batch: int) -> list[Pass]:
        return [self._pinned(rows) for rows in passes(self.batches.rows(step), self.world, micro_batch)]

    def _pinned(self, rows: np.ndarray) -> Pass:
        inputs, targets = map(torch.from_numpy, self.batches.arrays(rows))
        return (
            (inputs.pin_memory(), targets.pin_memory()) if self.device.type == "cuda" else (inputs, targets)
        )


def pass_width(rows: int, world: World, micro_batch: int) -> int:
    """Rows of each pass: as even as they can be without exceeding `micro_batch`."""
    share = math.ceil(rows / world.size)
    return math.ceil(share / math.ceil(share / micro_batch))


def passes_of(rows: int, world: World, micro_batch: int) -> int:
    """How many passes each rank makes."""
    return math.ceil(math.ceil(rows / world.size) / pass_width(rows, world, micro_batch))


def passes(rows: np.ndarray, world: World, micro_batch: int) -> Iterator[np.ndarray]:
    """The rows of each pass of this rank, all of the same length; what is missing is padding."""
    share, width = math.ceil(len(rows) / world.size), pass_width(len(rows), world, micro_batch)
    count = passes_of(len(rows), world, micro_batch)
    mine = rows[world.rank * share : (world.rank + 1) * share]
    padded = np.concatenate([mine, np.full(count * width - len(mine), PADDING)])
    yield from padded.reshape(count, width)
