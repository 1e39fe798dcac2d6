"""Signs of life of a run that is being trained: a process that hangs is noticed, wherever it is.

Whoever trains a run touches a file in its directory every few seconds, for as long as training moves: a
process that is stopped, a node that is frozen or a file system that hangs falls silent at once, training
that waits for something that never comes after half an hour without a step (compiling and validating take
minutes). The driver looks whether the file changes, by its own clock, so that clocks need not agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.errors import TrainingStopped, or_unfit
from trainer.run.repeating import repeating
from trainer.run.store import Store, is_url

FILE = ".alive"
_TOUCHED = (FILE, ".lock", "metrics.jsonl")  # what changes in the directory of a run that is being trained
_EVERY = 5.0  # seconds between two signs
_LONGEST_STEP = 1800.0  # seconds that training may take between two steps, or to its first


@contextmanager
def heartbeats(place: str, should_stop: Callable[[], bool]) -> Iterator[Callable[[], bool]]:
    """Give signs of life; the function to ask after every step instead of `should_stop`."""
    moved = [time.monotonic()]
    with or_unfit():
        store = Store(place) if is_url(place) else None

    def beat() -> None:
        if time.monotonic() - moved[0] < _LONGEST_STEP:
            # before the run has its directory, on a full disk, or where the store does not answer
            with suppress(OSError, TrainingStopped):
                store.write(FILE, str(time.time()).encode()) if store else Path(place, FILE).touch()

    def asked() -> bool:
        moved[0] = time.monotonic()
        return should_stop()

    try:
        with repeating(beat, _EVERY, "heartbeat"):
            yield asked
    finally:
        with suppress(OSError, TrainingStopped):
            store.delete(FILE) if store else Path(place, FILE).unlink()


def last_sign(folder: Path) -> int:
    """When the last sign was given, by the clock of whoever gave it; 0 where there is none."""
    found = [0]
    for name in _TOUCHED:
        with suppress(OSError):
            found.append((folder / name).stat().st_mtime_ns)
    return max(found)
