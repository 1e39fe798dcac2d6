"""The choices that a run table holds: runs with the same unique tokens and weight decay and nearly equal
compute.

One size with few epochs, another with many: between these somebody with that corpus and that budget had to
choose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from planner.solve import FLOPS_PER_PARAM_TOKEN

_SAME = 0.02  # ln: two runs within this are one configuration


@dataclass(frozen=True)
class Group:
    """Configurations between which somebody with one corpus and one budget could have chosen."""

    weight_decay: float
    unique_tokens: float
    flops: float
    params: tuple[float, ...]
    epochs: tuple[float, ...]
    loss: tuple[float, ...]  # of several runs of one configuration: their mean
    rows: tuple[tuple[int, ...], ...]  # rows of the table behind each configuration

    @property
    def losses(self) -> np.ndarray:
        return np.array(self.loss)


def find_groups(table: pd.DataFrame, tolerance: float) -> list[Group]:
    """At least two configurations each, of the same unique tokens, weight decay and nearly equal compute."""
    params, unique, epochs, decay, loss = (
        table[name].to_numpy(dtype=float)
        for name in ("params", "unique_tokens", "epochs", "weight_decay", "loss")
    )
    flops = FLOPS_PER_PARAM_TOKEN * params * unique * epochs
    groups = []
    for rows in _alike(decay, np.log(unique)):
        for choice in _chunks(rows, np.log(flops), np.log1p(tolerance)):
            configurations = _chunks(choice, np.log(params), _SAME)
            if len(configurations) < 2:
                continue
            first = [int(rows_of[0]) for rows_of in configurations]
            groups.append(
                Group(
                    weight_decay=float(decay[first[0]]),
                    unique_tokens=float(unique[first[0]]),
                    flops=float(np.exp(np.log(flops[choice]).mean())),
                    params=tuple(float(params[i]) for i in first),
                    epochs=tuple(float(epochs[i]) for i in first),
                    loss=tuple(float(loss[rows_of].mean()) for rows_of in configurations),
                    rows=tuple(tuple(int(i) for i in rows_of) for rows_of in configurations),
                )
            )
    return groups


def _alike(decay: np.ndarray, ln_unique: np.ndarray) -> list[np.ndarray]:
    """Rows of one weight decay and the same unique tokens."""
    return [
        rows
        for value in np.unique(decay)
        for rows in _chunks(np.flatnonzero(decay == value), ln_unique, 1e-3)
    ]


def _chunks(rows: np.ndarray, values: np.ndarray, width: float) -> list[np.ndarray]:
    """Rows by ascending value, cut wherever it exceeds that of the chunk's first row by more than `width`."""
    parts: list[list[int]] = []
    for row in rows[np.argsort(values[rows], kind="stable")]:
        if parts and values[row] - values[parts[-1][0]] <= width + 1e-12:
            parts[-1].append(int(row))
        else:
            parts.append([int(row)])
    return [np.array(part) for part in parts]
