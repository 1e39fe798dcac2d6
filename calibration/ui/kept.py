"""What the server keeps for visitors, as long as there is room: calibrations that they brought or fitted, and
the files of their fits.

Calibrations are kept in memory under the hash of their content. The hash is what an address holds, so a link
works for as long as the server runs and has not run out of room, and two visitors can never see each other's
calibration by accident: whoever knows the hash has seen the content. Files lie in folders of the page's own,
each under a name that nobody can guess; a path never comes from a request.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from planner.calibration import Calibration, shipped_names
from planner.inputs import InvalidInput

ROOM, ROOM_BYTES = 64, 24 * 2**20
FITS = 50  # whose files are kept, a few megabytes each
_OF_A_VALUE = 32  # bytes that a number takes as an object, however short it is written
_PREFIX = "own-"


class Calibrations:
    """Those that can be planned with; `forget` is called when some go, for whoever remembers answers."""

    def __init__(self, forget: Callable[[], None] = lambda: None) -> None:
        self._forget = forget
        self._kept: OrderedDict[str, tuple[Calibration, int]] = OrderedDict()  # and the bytes that it takes
        self._lock = Lock()

    def add(self, known: Calibration) -> str:
        """Keep a calibration (once, however often it is brought); the oldest goes when there is no room."""
        text = known.model_dump_json().encode()
        key = _PREFIX + hashlib.blake2b(text, digest_size=10).hexdigest()
        with self._lock:
            self._kept.setdefault(key, (known, len(text) + _OF_A_VALUE * text.count(b",")))
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and (len(self._kept) > ROOM or self._bytes() > ROOM_BYTES):
                self._kept.popitem(last=False)
                self._forget()
        return key

    def _bytes(self) -> int:
        return sum(size for _, size in self._kept.values())

    def get(self, key: str) -> Calibration:
        """A shipped calibration by name, or one that was brought; never a file of this machine."""
        if key in shipped_names():
            return Calibration.load(key)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        if key.startswith(_PREFIX):
            raise InvalidInput(
                "this link uses a calibration that somebody uploaded and that is no longer here: "
                "upload it again."
            )
        shipped = ", ".join(shipped_names())
        raise InvalidInput(f"must be one of {shipped}, or uploaded; got {key!r}.", field="calibration")


class Downloads:
    """The files of the last fits."""

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
            while len(self._kept) > FITS:
                shutil.rmtree(self._folder / self._kept.popitem(last=False)[0], ignore_errors=True)
        return [f"fitted/{token}/{name}" for name in kept]

    def find(self, token: str, name: str) -> Path | None:
        with self._lock:
            return self._kept.get(token, {}).get(name)
