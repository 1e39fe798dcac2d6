"""Writing files so that a reader, a crash or a full disk never meets half of one, and locks that die with
their process.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer.errors import Busy

_WHOLE = 64 * 2**20  # files up to this size are hashed whole
_BLOCK = 2**20


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file at once: under another name first, then renamed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "w", encoding="utf-8") as stream:
            json.dump(value, stream, indent=2, allow_nan=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_json(path: Path) -> Any:
    """The content of a JSON file; raises ValueError where it is not JSON."""
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def sync(path: Path) -> None:
    """Make a file durable, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """A hash of a whole file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def quick_checksum(path: Path) -> str:
    """A hash of size and content as an earlier version made it; above 64 MB, of 64 evenly spaced blocks."""
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    with open(path, "rb") as stream:
        if size <= _WHOLE:
            digest.update(stream.read())
        else:
            for block in range(64):
                stream.seek((size - _BLOCK) * block // 63)
                digest.update(stream.read(_BLOCK))
    return digest.hexdigest()


@contextmanager
def locked(path: Path, busy: str | None = None) -> Iterator[None]:
    """Hold a lock, which the system drops when the process ends, however it ends; where another process has
    it, raise Busy with the text `busy`, or without one wait.
    """
    with open(path, "a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            stream.seek(0)
            raise Busy(f"{busy} (by {stream.read().strip() or 'another process'}).") from None
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        yield
