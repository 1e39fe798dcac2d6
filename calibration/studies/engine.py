"""What an engine is: something that trains a number of runs at the same time, somewhere, and says how each ended.

An engine knows nothing of studies, order or attempts; `sweep` does. It writes nothing but run directories, so a study may begin on
one engine and end on another.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

DONE: Final = "done"
FAILED: Final = "failed"
REFUSED: Final = "refused"
BUSY: Final = "busy"
STOPPED: Final = "stopped"
DISK: Final = "disk"


@dataclass(frozen=True)
class Task:
    """A run to train: its configuration as plain values, its directory, and that of the token set it trains on."""

    name: str
    config: dict[str, Any]
    folder: str
    tokens: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    done: trained, now or before. failed: it may succeed when it is tried again. refused: it cannot. busy: another process is
    training it. stopped: it was asked to, and left a checkpoint. disk: nothing more can be written.
    """

    name: str
    kind: Literal["done", "failed", "refused", "busy", "stopped", "disk"]
    reason: str = ""


class Engine(Protocol):
    """Used as a context manager: entering takes the resources, leaving stops what still runs, with checkpoints, and frees them."""

    def __enter__(self) -> Engine: ...

    def __exit__(self, *error: object) -> None: ...

    def room(self) -> int:
        """How many more runs it would start right now."""

    def start(self, task: Task) -> None: ...

    def wait(self, seconds: float) -> Collection[Outcome]:
        """The runs that have ended since the last call; waits at most so long for one."""

    def describe(self) -> str:
        """One line for people: what it trains on."""
