"""Tensors on disk in the format of safetensors, read row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from trainer.files import checksum, sync


def write(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None = None) -> str:
    """Write tensors of main memory into one file, make it durable, and return its checksum."""
    path.touch()
    mode = path.stat().st_mode
    save_file(dict(tensors), path, metadata)
    path.chmod(mode)  # the library makes files that only their owner may read
    sync(path)
    return checksum(path)


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
