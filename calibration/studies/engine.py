"""What an engine is: something that trains a number of runs at the same time, and says how each ended.

An engine knows nothing of studies, order or attempts; `sweep` does. It writes nothing but run directories,
so a study may begin on one engine and end on another.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from planner.inputs import InvalidInput

INTERRUPTIONS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # end a sweep, with checkpoints


@dataclass(frozen=True)
class Needs:
    """What a run needs, where a study says so: GPUs or part of one, bytes of memory, threads."""

    gpus: float | None = None
    memory: int | None = None
    threads: int = 0  # 0: as the engine likes
    accelerator: str | None = None  # the kind of GPU, as Ray names it

    def __bool__(self) -> bool:
        return self != Needs()

    def __str__(self) -> str:
        parts = [f"{self.gpus:g} GPU{'s' * (self.gpus > 1)}" if self.gpus else ""]
        parts += [f"{self.memory / 2**30:.3g} GiB of memory" if self.memory else ""]
        parts += [f"{self.threads} thread{'s' * (self.threads > 1)}" if self.threads else ""]
        parts += [self.accelerator or ""]
        return ", ".join(filter(None, parts)) or "a core"


@dataclass(frozen=True)
class Task:
    """A run to train: its configuration as plain values, its directory, and that of its token set."""

    name: str
    config: dict[str, Any]
    folder: str
    tokens: str
    processes: int = 1  # one for each GPU of a run on several


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and on which node where there are several.

    done: trained, now or before. failed: it may succeed when it is tried again. refused: it cannot. busy:
    another process is training it. stopped: it was asked to, and left a checkpoint. disk: nothing more can
    be written. unfit: not on that node, whose memory or files do not do. blind: nothing can be trained on
    that node, which does not see the study. lost: its node is gone, which is nobody's fault.
    """

    name: str
    kind: Literal["done", "failed", "refused", "busy", "stopped", "disk", "unfit", "blind", "lost"]
    reason: str = ""
    node: str = ""


def check_room(workers: int | None, per_gpu: int) -> None:
    for name, value in (("workers", workers), ("per_gpu", per_gpu)):
        if value is not None and value < 1:
            raise InvalidInput(f"must be at least 1; got {value}.", field=name)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Ctrl-C reaches the whole terminal, a scheduler's warning the whole job, but the driver decides: it
    hears them afterwards, a process that is started here never.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set(INTERRUPTIONS))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Engine(Protocol):
    """Used as a context manager: entering takes the resources, leaving stops what still runs, with
    checkpoints, and frees them.
    """

    def __enter__(self) -> Engine: ...

    def __exit__(self, *error: object) -> None: ...

    def room(self) -> int:
        """How many more runs it would start right now."""

    def start(self, task: Task, avoided_nodes: Collection[str] = ()) -> None:
        """Train a run, on none of the avoided nodes."""

    def wait(self, seconds: float) -> Collection[Outcome]:
        """The runs that have ended since the last call; waits at most so long for one."""

    def abandon(self, name: str) -> None:
        """End the process that trains a run, which hangs; `wait` says nothing of it any more."""

    def nodes(self) -> set[str]:
        """Those that it knows; none where there is only this machine."""

    def describe(self) -> str:
        """One line for people: what it trains on."""
