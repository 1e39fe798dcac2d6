"""As much of Google's wire format as TensorBoard's event files need: fields by number, and framed records.

A message is a list of (key, value), where key = number * 8 + kind: a varint (0), eight bytes (1), bytes with
their length in front (2), four bytes (5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

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
