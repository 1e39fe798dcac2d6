"""The calibrations that can be planned with: shipped ones by name, and those that visitors brought or fitted.

The latter are kept in memory under the hash of their content. The hash is what an address holds, so a link
works for as long as the server runs and has not run out of room, and two visitors can never see each other's
calibration by accident: whoever knows the hash has seen the content.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock

from planner.calibration_files import Calibration, shipped_names
from planner.errors import InvalidInput

ROOM = 64
_PREFIX = "own-"


class Calibrations:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, Calibration] = OrderedDict()
        self._lock = Lock()

    def add(self, known: Calibration) -> str:
        """Keep a calibration (once, however often it is brought); the oldest goes when there is no room."""
        key = _PREFIX + hashlib.blake2b(known.model_dump_json().encode(), digest_size=10).hexdigest()
        with self._lock:
            self._kept.setdefault(key, known)
            self._kept.move_to_end(key)
            while len(self._kept) > ROOM:
                self._kept.popitem(last=False)
        return key

    def get(self, key: str) -> Calibration:
        """A shipped calibration by name, or one that was brought; never a file of this machine."""
        if key in shipped_names():
            return Calibration.load(key)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        if key.startswith(_PREFIX):
            raise InvalidInput(
                "this link uses a calibration that somebody uploaded and that is no longer here: "
                "upload it again."
            )
        shipped = ", ".join(shipped_names())
        raise InvalidInput(f"must be one of {shipped}, or uploaded; got {key!r}.", field="calibration")
