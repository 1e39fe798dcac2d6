"""Calibrations that visitors brought or fitted, under the hash of their content, as long as there is room.

The hash is the id that a visitor holds: nobody guesses it, whoever knows it has seen the content, and two
visitors can never see each other's calibration by accident. The files lie in one folder that all workers of a
machine share; other machines do not know them, so between machines a calibration travels with the request
(`remember`). A path never comes from a request.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections import OrderedDict
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import ValidationError

from calibration.web.worker import without_extras
from planner.calibration import Calibration, shipped_names
from planner.inputs import InvalidCalibration, InvalidInput
from planner.plans import AUTO, clear_caches

ROOM, ROOM_BYTES = 200, 64 * 2**20  # on disk, of all visitors
IN_MEMORY, MEMORY_BYTES = 32, 24 * 2**20  # of a worker, as objects
_OF_A_VALUE = 32  # bytes that a number takes as an object, however short it is written
_KEY = re.compile("own-[0-9a-f]{32}")


class Store:
    """What can be planned with besides the shipped calibrations."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: OrderedDict[str, tuple[Calibration, int]] = OrderedDict()  # and the bytes that it takes
        self._lock = Lock()

    def add(self, known: Calibration) -> str:
        """Keep a calibration (once, however often it is brought); the oldest goes when there is no room."""
        text = known.model_dump_json(exclude_none=True)
        key = _key(text)
        self._keep(key, known, text)
        draft = self._folder / f".{key}.{os.getpid()}"
        with self._lock:
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._folder / f"{key}.json")
            self._make_room()
        return key

    def remember(self, given: dict[str, Any]) -> Calibration:
        """A calibration that came with a request, checked; in memory only."""
        try:
            known = without_extras(Calibration.model_validate(given))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))[:80] or "the calibration"
            why = first["msg"].removeprefix("Value error, ").rstrip(".")[:200]
            raise InvalidCalibration(f"is not usable: {where}: {why}.", field="calibration") from None
        text = known.model_dump_json(exclude_none=True)
        return self._keep(_key(text), known, text)

    def get(self, name: str) -> Calibration:
        """A shipped calibration by name, or one that was brought; never another file of this machine."""
        if name in shipped_names():
            return Calibration.load(name)
        with self._lock:
            if name in self._loaded:
                self._loaded.move_to_end(name)
                return self._loaded[name][0]
        if not _KEY.fullmatch(name):
            shipped = ", ".join((*shipped_names(), AUTO))
            said = f"must be one of {shipped}, the id of an upload or a fit, or a calibration itself"
            raise InvalidInput(f"{said}; got {name[:60]!r}.", field="calibration")
        path = self._folder / f"{name}.json"
        try:
            text = path.read_text(encoding="utf-8")
            os.utime(path)  # what is used stays longest
        except OSError:
            raise InvalidInput(
                "is one that somebody uploaded or fitted and that is no longer here: bring its file again.",
                field="calibration",
            ) from None
        return self._keep(name, Calibration.model_validate_json(text), text)

    def _keep(self, key: str, known: Calibration, text: str) -> Calibration:
        """In memory. Who remembers answers of laws lets go of them with a calibration that goes."""
        with self._lock:
            known = self._loaded.setdefault(key, (known, len(text) + _OF_A_VALUE * text.count(",")))[0]
            self._loaded.move_to_end(key)
            gone = False
            while len(self._loaded) > 1 and (
                len(self._loaded) > IN_MEMORY or sum(size for _, size in self._loaded.values()) > MEMORY_BYTES
            ):
                self._loaded.popitem(last=False)
                gone = True
        if gone:
            clear_caches()
        return known

    def _make_room(self) -> None:
        """What was used last stays."""
        with contextlib.suppress(OSError):  # another worker makes room, too
            found = sorted(self._folder.glob("own-*.json"), key=lambda path: -path.stat().st_mtime)
            kept = accumulate(path.stat().st_size for path in found)
            for place, (path, size) in enumerate(zip(found, kept, strict=True)):
                if place and (place >= ROOM or size > ROOM_BYTES):
                    path.unlink(missing_ok=True)


def _key(text: str) -> str:
    return f"own-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
