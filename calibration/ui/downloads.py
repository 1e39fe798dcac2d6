"""What was fitted for visitors, as files to download: each under a name that nobody can guess.

The files of the last fits are kept, in folders of the page's own; a path never comes from a request.
"""

from __future__ import annotations

import secrets
import shutil
from collections import OrderedDict
from pathlib import Path
from threading import Lock

ROOM = 50  # fits, of a few megabytes each


class Downloads:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: OrderedDict[str, dict[str, Path]] = OrderedDict()
        self._lock = Lock()

    def add(self, files: list[Path]) -> list[str]:
        """Take these files over; where each can be had, below the page's address."""
        token = secrets.token_urlsafe(16)
        (self._folder / token).mkdir(parents=True)
        kept = {file.name: file.rename(self._folder / token / file.name) for file in files}
        with self._lock:
            self._kept[token] = kept
            while len(self._kept) > ROOM:
                shutil.rmtree(self._folder / self._kept.popitem(last=False)[0], ignore_errors=True)
        return [f"fitted/{token}/{name}" for name in kept]

    def find(self, token: str, name: str) -> Path | None:
        with self._lock:
            return self._kept.get(token, {}).get(name)
