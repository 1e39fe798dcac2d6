"""A folder of TensorBoard event files: each folder that has some is a run, named by where it is.

Its columns are the last value of each scalar, and its settings as hparams.* where it has any. TensorBoard's
own package is not needed. `SummaryWriter.add_hparams` writes into a folder of its own below the run's: a
folder below another run's, with settings or none but final figures, is part of that run.

Of Google's wire format as much is read as event files need: a message is a list of (key, value), where key =
number * 8 + kind: a varint (0), eight bytes (1), bytes with their length in front (2), four bytes (5).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from calibration.fitting.runs.checks import RawTable
from calibration.fitting.runs.formats.records import table
from planner.inputs import InvalidInput

_LARGEST_RECORD = 2**26


class Damaged(ValueError):
    """Bytes that are no such message."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbers and values of a message's fields, in their order."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise Damaged(f"unknown kind of field {kind}")
        if at + length > len(message):
            raise Damaged("a field is cut off")
        yield key >> 3, message[at : at + length]
        at += length


def double(value: int | bytes) -> float:
    return float(struct.unpack("<d", value)[0]) if isinstance(value, bytes) and len(value) == 8 else 0.0


def single(value: int | bytes) -> float:
    return float(struct.unpack("<f", value)[0]) if isinstance(value, bytes) and len(value) == 4 else 0.0


def records(stream: BinaryIO) -> Iterator[bytes]:
    """The records of a file: length, checksum, bytes, checksum. What is cut off at the end is not there yet:
    a crashed run leaves such a file.
    """
    while len(head := stream.read(12)) == 12:
        (length,) = struct.unpack("<Q", head[:8])
        if length > _LARGEST_RECORD:
            raise Damaged("a record is too long")
        record = stream.read(length)
        if len(record) < length or len(stream.read(4)) < 4:
            return
        yield record


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise Damaged("a number is cut off")


_MARK = "tfevents"
_FLOAT, _DOUBLE = 1, 2  # of tensors


@dataclass
class _Run:
    """What the event files of one folder say."""

    last: dict[str, tuple[int, float]] = field(default_factory=dict)  # step and value by tag
    settings: dict[str, Any] = field(default_factory=dict)

    def take(self, tag: str, step: int, value: float) -> None:
        if tag not in self.last or step >= self.last[tag][0]:
            self.last[tag] = (step, value)

    def row(self, name: str) -> dict[str, Any]:
        values = {tag: value for tag, (_, value) in self.last.items()}
        return {"run": name, **values, **{f"hparams.{key}": v for key, v in self.settings.items()}}


def read(folder: Path) -> RawTable | None:
    """The runs below a folder; None where there are no event files."""
    found = {
        Path(place): sorted(Path(place, name) for name in names if _MARK in name)
        for place, _, names in sorted(os.walk(folder))
        if any(_MARK in name for name in names)
    }
    if not found:
        return None
    runs: dict[Path, _Run] = {}
    for place, paths in found.items():
        run = _Run()
        for path in paths:
            _read_file(path, run)
        above = next((runs[parent] for parent in place.parents if parent in runs), None)
        if above is not None and run.settings:
            above.settings |= run.settings
            for tag, (step, value) in run.last.items():
                above.last.setdefault(tag, (step, value))
        else:
            runs[place] = run
    rows = [run.row(_name(place, folder)) for place, run in runs.items()]
    return table(folder.resolve().name, rows)


def _name(place: Path, folder: Path) -> str:
    return folder.resolve().name if place == folder else place.relative_to(folder).as_posix()


def _read_file(path: Path, run: _Run) -> None:
    try:
        with open(path, "rb") as stream:
            for record in records(stream):
                _read_event(record, run)
    except (Damaged, struct.error, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not a readable event file of TensorBoard: {error}.") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


def _read_event(record: bytes, run: _Run) -> None:
    step, summaries = 0, []
    for number, value in fields(record):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in fields(summary):
            if number == 1 and isinstance(value, bytes):
                _read_value(value, step, run)


def _read_value(message: bytes, step: int, run: _Run) -> None:
    tag, figure = "", None
    for number, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode()
        elif number == 2:
            figure = single(value)
        elif number == 8 and isinstance(value, bytes):
            figure = _scalar(value)
        elif number == 9 and isinstance(value, bytes):
            run.settings |= _settings(value)
    if tag and figure is not None:
        run.take(tag, step, figure)


def _scalar(tensor: bytes) -> float | None:
    """The number in a tensor of one; None for others."""
    kind, numbers = 0, []
    for number, value in fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):  # its content, or a list of one
            numbers.append(value)
    size = {_FLOAT: 4, _DOUBLE: 8}.get(kind)
    if size is None or len(numbers) != 1 or len(numbers[0]) != size:
        return None
    return single(numbers[0]) if size == 4 else double(numbers[0])


def _settings(metadata: bytes) -> dict[str, Any]:
    """Settings in a value's metadata: plugin_data (1) of "hparams" (1), whose content (2) holds the start of
    a session (3) with a map of them (1).
    """
    found: dict[str, Any] = {}
    for plugin in _parts(metadata, 1):
        if b"hparams" not in _parts(plugin, 1):
            continue
        for entry in (
            entry
            for content in _parts(plugin, 2)
            for session in _parts(content, 3)
            for entry in _parts(session, 1)
        ):
            names, values = _parts(entry, 1), _parts(entry, 2)
            if names and values:
                found[names[0].decode()] = _setting(values[0])
    return found


def _setting(value: bytes) -> Any:
    for number, content in fields(value):
        if number == 2:
            return double(content)
        if number == 3 and isinstance(content, bytes):
            return content.decode()
        if number == 4:
            return bool(content)
    return None


def _parts(message: bytes, wanted: int) -> list[bytes]:
    return [value for number, value in fields(message) if number == wanted and isinstance(value, bytes)]
