"""Documents in the order of their content hashes, without holding them in memory.

Every document is written once into one of `PARTS` temporary files, by the first bits of its key. Read back
part after part, each sorted by an index of its own, they come in the order of their keys; documents of one
key in the order they came.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

PARTS = 64  # open files while writing
_HEAD = struct.Struct(">8sQ")  # the half of the key that orders; how many bytes of text follow


class ShuffledDocuments:
    """Documents in the order of the second halves of their keys, read as often as wanted."""

    def __init__(self, folder: Path, documents: Iterable[tuple[bytes, str]] | None = None):
        """Sort documents into a new folder; without any, read those that were sorted into it before."""
        self.paths = [folder / f"{part:02d}" for part in range(PARTS)]
        if documents is None:
            return
        folder.mkdir()
        with ExitStack() as opened:
            parts = [opened.enter_context(open(path, "wb")) for path in self.paths]
            for key, text in documents:
                order, raw = key[8:], text.encode("utf-8", "surrogatepass")
                part = parts[order[0] * PARTS // 256]
                part.write(_HEAD.pack(order, len(raw)))
                part.write(raw)

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            with open(path, "rb") as part:
                for _, start, size in sorted(_index(part)):
                    part.seek(start)
                    yield part.read(size).decode("utf-8", "surrogatepass")


def _index(part: IO[bytes]) -> Iterator[tuple[bytes, int, int]]:
    """Key, place and size of every document of a part."""
    while head := part.read(_HEAD.size):
        order, size = _HEAD.unpack(head)
        yield order, part.tell(), size
        part.seek(size, 1)
