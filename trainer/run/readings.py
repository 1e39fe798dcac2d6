"""Loss and gradient norm of a step, read without having a GPU wait for the host.

On a GPU the figures of a step are copied while the next one is computed, and looked at when that has been
handed over: a loss that is no number is noticed one step later (the step itself was left out by then, see
`trainer.model.optimizer.update`). On a CPU they are there at once.
"""

from __future__ import annotations

import torch


class Reading:
    """Loss and norm of a step: on their way to memory of the host, or there."""

    def __init__(self, loss: torch.Tensor, norm: torch.Tensor):
        self.figures, self.arrived = torch.stack((loss.double(), norm.double())), None
        if self.figures.is_cuda:
            room = torch.empty(2, dtype=torch.float64, pin_memory=True)
            self.figures = room.copy_(self.figures, non_blocking=True)
            self.arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.arrived.record()

    def values(self) -> tuple[float, float]:
        """Loss and norm; waits for them."""
        if self.arrived is not None:
            self.arrived.synchronize()
        loss, norm = self.figures.tolist()
        return loss, norm


class Readings:
    """Those of the last steps: what is known of them is handed out in their order."""

    def __init__(self, late: bool):
        self.late = late  # whether a step is looked at only after the next one
        self.waiting: list[Reading] = []

    def add(self, new: Reading) -> list[tuple[float, float]]:
        """The figures that are to be looked at now."""
        self.waiting.append(new)
        return self.all(leaving=1 if self.late else 0)

    def all(self, leaving: int = 0) -> list[tuple[float, float]]:
        """Everything that has not been handed out, but the newest few."""
        count = len(self.waiting) - leaving
        due, self.waiting = self.waiting[: max(count, 0)], self.waiting[max(count, 0) :]
        return [one.values() for one in due]
