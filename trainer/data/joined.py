"""Token files one after the other, as one array that is read where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Joined:
    """Arrays one after the other, read where they lie: their length, slices, all of it."""

    def __init__(self, parts: Sequence[np.ndarray]):
        self.parts, self.starts = parts, np.cumsum([0, *map(len, parts)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, where: slice) -> np.ndarray:
        start, stop, _ = where.indices(len(self))
        first, last = np.searchsorted(self.starts, (start, max(start, stop - 1)), side="right") - 1
        pieces = [
            self.parts[part][max(start - self.starts[part], 0) : stop - self.starts[part]]
            for part in range(min(first, len(self.parts) - 1), min(last, len(self.parts) - 1) + 1)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.concatenate(self.parts).astype(dtype or self.parts[0].dtype)


Tokens = np.ndarray | Joined
