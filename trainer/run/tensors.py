"""Tensors on disk in the format of safetensors: hashed while they are written, read row by row.

The library's own writer gives the same bytes, but makes files that only their owner may read, and a checksum
would take a second pass over them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

_NAMES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.float16: "F16"}


def write(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None = None) -> str:
    """Write tensors of main memory into one file, make it durable, and return its checksum."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    ordered, end = sorted(tensors.items()), 0
    for name, tensor in ordered:
        start, end = end, end + tensor.nbytes
        shape = list(tensor.shape)
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "wb") as stream:
        for piece in (len(text).to_bytes(8, "little"), text):
            stream.write(piece)
            digest.update(piece)
        for _, tensor in ordered:
            raw = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data
            stream.write(raw)
            digest.update(raw)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


class Rows:
    """Tensors in one file or in parts, whose metadata says which row each begins with."""

    def __init__(self, files: Sequence[Any]):
        self.places: dict[str, list[tuple[int, int, Any]]] = {}
        for file in files:
            begins = json.loads((file.metadata() or {}).get("rows", "{}"))
            for name in file.keys():  # noqa: SIM118  (not a mapping)
                start = int(begins.get(name, 0))
                stop = start + file.get_slice(name).get_shape()[0]
                self.places.setdefault(name, []).append((start, stop, file))

    def read(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Rows `start` to `stop` of a tensor; nothing else is read."""
        found = [
            file.get_slice(name)[max(start, first) - first : min(stop, last) - first]
            for first, last, file in sorted(self.places[name], key=lambda place: place[:2])
            if first < stop and last > start
        ]
        return found[0] if len(found) == 1 else torch.cat(found)


@contextmanager
def opened(paths: Sequence[Path]) -> Iterator[Rows]:
    """The tensors of some files, as long as they are open."""
    with ExitStack() as stack:
        yield Rows([stack.enter_context(safe_open(path, "pt")) for path in paths])
