"""Signs of life of a run that is being trained: a process that hangs is noticed, wherever it is.

Whoever trains a run touches a file in its directory every few seconds, for as long as training moves: a
process that is stopped, a node that is frozen or a file system that hangs falls silent at once, training
that waits for something that never comes after half an hour without a step (compiling and validating take
minutes). The driver looks whether the file changes, by its own clock, so that clocks need not agree.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.errors import TrainingStopped
from trainer.run.repeating import repeating
from trainer.run.store import Store, is_url

FILE = ".alive"
_TOUCHED = (FILE, ".lock", "metrics.jsonl")  # what changes in the directory of a run that is being trained
_EVERY = 5.0  # seconds between two signs
_LONGEST_STEP = 1800.0  # seconds that training may take between two steps, or to its first
SILENCE = float(os.environ.get("DATABOUND_SILENCE", 180.0))  # seconds without a sign that are too long


def fetch_heartbeat(store: Store | None, folder: Path) -> None:
    """Have the last sign that a worker left in the store be seen in the driver's directory."""
    with suppress(TrainingStopped):  # a store that does not answer for a moment
        if store and (sign := store.read(FILE)) is not None:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / FILE).exists() or (folder / FILE).read_bytes() != sign:
                (folder / FILE).write_bytes(sign)


@contextmanager
def heartbeats(place: str, should_stop: Callable[[], bool]) -> Iterator[Callable[[], bool]]:
    """Give signs of life; the function to ask after every step instead of `should_stop`."""
    moved = [time.monotonic()]

    def beat() -> None:
        if time.monotonic() - moved[0] < _LONGEST_STEP:
            # before the run has its directory, on a full disk, or where the store does not answer
            with suppress(OSError, TrainingStopped):
                if is_url(place):
                    Store(place).write(FILE, str(time.time()).encode())
                else:
                    Path(place, FILE).touch()

    def asked() -> bool:
        moved[0] = time.monotonic()
        return should_stop()

    try:
        with repeating(beat, _EVERY, "heartbeat"):
            yield asked
    finally:
        with suppress(OSError, TrainingStopped):
            if is_url(place):
                Store(place).delete(FILE)
            else:
                Path(place, FILE).unlink()


class HeartbeatMonitor:
    """What the driver knows of the signs of life: the last one of each run, and when it saw that one."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked = time.monotonic()

    def await_first(self, name: str, folder: Path) -> None:
        """Have signs of an earlier attempt not be taken for those of the one that is about to start, which
        may have to wait for its turn.
        """
        self._seen[name] = (last_sign(folder), math.inf)

    def due(self, names: Mapping[str, float]) -> list[str]:
        """The runs to look at; nobody, most of the time."""
        if time.monotonic() - self._looked < SILENCE / 10:
            return []
        self._looked = time.monotonic()
        return list(names)

    def silent(self, folders: Mapping[str, Path]) -> list[str]:
        """Runs that were begun and have been silent for too long."""
        found = []
        for name, folder in folders.items():
            sign = last_sign(folder)
            last, when = self._seen[name]
            if sign != last:
                self._seen[name] = (sign, time.monotonic())
            elif time.monotonic() - when > SILENCE:
                found.append(name)
        return found


def last_sign(folder: Path) -> int:
    """When the last sign was given, by the clock of whoever gave it; 0 where there is none."""
    found = [0]
    for name in _TOUCHED:
        with suppress(OSError):
            found.append((folder / name).stat().st_mtime_ns)
    return max(found)
