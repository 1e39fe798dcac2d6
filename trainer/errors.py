"""Why a run did not reach its end: it stopped on the way, or its folder belongs to another process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from planner.inputs import InvalidInput


class TrainingStopped(RuntimeError):
    """A run that cannot go on: a full disk, no number as loss. Its last checkpoint is intact."""


class Interrupted(TrainingStopped):
    """A run that was asked to stop, and did so after a step with a checkpoint."""


class Signalled(KeyboardInterrupt):
    """A signal that ends a command as Ctrl-C does, but for the exit code, by which schedulers know it."""

    def __init__(self, number: int, *words: str):
        super().__init__(*words)
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """As a shell has it: 128 and the signal. 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + (error.number if isinstance(error, Signalled) else signal.SIGINT)


def reason(error: BaseException) -> str:
    """What an error of a library or of the system says, as part of a sentence."""
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return (text[:1].lower() + text[1:])[:200].rstrip(".") or type(error).__name__


class Unfit(InvalidInput):
    """A run that this machine cannot train: its memory, device, files or libraries; another may do."""


@contextmanager
def or_unfit() -> Iterator[None]:
    """What is wrong here may be the machine's fault: its memory, its files, what it sees of a shared disk."""
    try:
        yield
    except InvalidInput as error:
        raise Unfit(str(error)) from error


class Busy(InvalidInput):
    """A folder another process is working in: nothing is wrong, and trying again later may do."""
