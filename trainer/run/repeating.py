"""Something that is done every few seconds while something else goes on: signs of life, copies to a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(action: Callable[[], None], every: float, name: str) -> Iterator[None]:
    """Have a thread of its own do it, until the block is left; then nothing of it goes on."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every):
            action()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
