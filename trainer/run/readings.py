"""Loss and gradient norm of a step, read without having a GPU wait for the host.

On a GPU the figures of a step are copied while the next one is computed, and looked at when that has been
handed over: a loss that is no number is noticed one step later (the step itself was left out by then, see
`trainer.model.optimizer.update`). On a CPU they are there at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Reading:
    """The figures of a step: on their way, or here."""

    figures: torch.Tensor  # loss and norm, in memory of the host
    arrived: torch.cuda.Event | None

    def values(self) -> tuple[float, float]:
        """Loss and norm; waits for them."""
        if self.arrived is not None:
            self.arrived.synchronize()
        loss, norm = self.figures.tolist()
        return loss, norm


def reading(loss: torch.Tensor, norm: torch.Tensor) -> Reading:
    """Begin to read the figures of a step."""
    figures = torch.stack((loss.double(), norm.double()))
    if not figures.is_cuda:
        return Reading(figures, None)
    room = torch.empty(2, dtype=torch.float64, pin_memory=True)
    room.copy_(figures, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()
    return Reading(room, arrived)


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
