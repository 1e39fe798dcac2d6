"""Why a run did not reach its end: it stopped on the way, or its folder belongs to another process."""

from __future__ import annotations

from planner.errors import InvalidInput


class TrainingStopped(RuntimeError):
    """A run that cannot go on: a full disk, a loss that is not a number, an interruption. Its last checkpoint
    is intact.
    """


class Interrupted(TrainingStopped):
    """A run that was asked to stop, and did so after a step with a checkpoint."""


class Busy(InvalidInput):
    """A folder another process is working in: nothing is wrong with the input, and trying again later may
    do.
    """
