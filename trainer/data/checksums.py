"""Checksums of whole files, remembered from one process to the next.

A sweep starts hundreds of runs on one corpus and one set of token files; each is read once. What is
remembered belongs to a file's path, size and times of change, so a file that is written to is read again. A
change that leaves all of them alone, such as a failing disk, is found only when the notebook is deleted. A
notebook that is damaged or cannot be written costs time, nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from trainer.files import checksum, locked, read_json, write_json

NAME = "checksums.json"
# nanoseconds; a file changed more recently may change again within the resolution of its clock
_SETTLED = 2 * 10**9

Entry = list[int | str]  # size, time of change of the content, of the file's record, checksum


def checksums(paths: Sequence[Path], folder: Path) -> list[str]:
    """The checksum of each file; `folder` is where they are remembered, if it is there."""
    notebook = folder / NAME
    known = _read(notebook)
    found: list[str] = []
    new: dict[str, Entry] = {}
    for path in paths:
        name, before = str(path.absolute()), _stamp(path)
        entry = known.get(name)
        if entry and entry[:3] == before:
            found.append(str(entry[3]))
            continue
        now, value = time.time_ns(), checksum(path)
        found.append(value)
        if _stamp(path) == before and max(before[1:]) < now - _SETTLED:
            new[name] = [*before, value]
    if new:
        _remember(notebook, new)
    return found


def _stamp(path: Path) -> list[int]:
    facts = os.stat(path)
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]


def _read(notebook: Path) -> dict[str, Entry]:
    try:
        entries = read_json(notebook)
        return {name: entry for name, entry in entries.items() if isinstance(entry, list) and len(entry) == 4}
    except (OSError, ValueError, AttributeError):
        return {}


def _remember(notebook: Path, new: dict[str, Entry]) -> None:
    """Add to what other processes have written meanwhile, without files that are gone."""
    try:
        with locked(notebook.with_suffix(".lock")):
            kept = {name: entry for name, entry in _read(notebook).items() if os.path.exists(name)}
            write_json(notebook, kept | new)
    except OSError:
        pass
