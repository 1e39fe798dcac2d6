"""Why a run that had started stopped before its end."""

from __future__ import annotations


class TrainingStopped(RuntimeError):
    """A run that cannot go on: a full disk, a loss that is not a number, an interruption. Its last checkpoint is intact."""


class Interrupted(TrainingStopped):
    """A run that was asked to stop, and did so after a step with a checkpoint."""
