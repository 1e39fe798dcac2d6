"""A run table as arrays: `Runs`, which a fit needs, as logarithms with the reference point in their middle;
and `Group`, the choices that a table holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from planner.laws import TIMESCALE, At
from planner.solve import FLOPS_PER_PARAM_TOKEN

Array = np.ndarray

SINGLE_EPOCH = 1 + 1e-9  # up to here no token is seen twice
_SAME = 0.02  # ln: two runs within this are one configuration


@dataclass(frozen=True)
class Runs:
    """Runs of one weight decay, or of several with their timescale, as a fit sees them."""

    ln_params: Array
    ln_unique: Array  # tokens seen at least once: the unique tokens, or less below one epoch
    ln_tokens: Array
    repeats: Array
    ln_loss: Array
    cells: Array  # number of the (size, budget) cell of each run
    ln_timescale: Array  # AdamW's timescale in epochs where the table says it, else 0
    scale: float  # lowest loss
    middle: tuple[At, At]  # reference points: of the single-epoch runs, and of those that repeat

    @staticmethod
    def of(table: pd.DataFrame) -> Runs:
        columns = ("params", "unique_tokens", "epochs", "loss")
        params, unique, epochs, loss = (table[name].to_numpy(dtype=float) for name in columns)
        repeats = np.where(epochs <= SINGLE_EPOCH, 0.0, epochs - 1)
        ln_params, ln_unique = np.log(params), np.log(unique * np.minimum(epochs, 1))
        ln_tokens, ln_timescale = np.log(unique) + np.log(epochs), np.zeros(len(table))
        if TIMESCALE in table:
            ln_timescale = np.log(table[TIMESCALE].to_numpy(dtype=float)) - ln_unique
        cells = np.unique(np.stack([params, unique]), axis=1, return_inverse=True)[1].ravel()
        single = repeats == 0
        base = single if single.any() else ~single
        once = At(np.exp(ln_params[base].mean()), np.exp(ln_tokens[base].mean()), 1.0)
        again = At(1.0, 1.0, 2.0, 1.0)
        if not single.all():
            logs = (ln_params[~single], ln_unique[~single], np.log(repeats[~single]))
            size, data, more = (np.exp(values.mean()) for values in logs)
            again = At(size, data, 1 + more, np.exp((ln_timescale + ln_unique)[~single].mean()))
        arrays = (ln_params, ln_unique, ln_tokens, repeats, np.log(loss), cells, ln_timescale)
        return Runs(*arrays, scale=float(loss.min()), middle=(once, again))

    @property
    def single(self) -> Array:
        return np.asarray(self.repeats == 0)

    @property
    def at(self) -> At:
        """Where the runs are; below one epoch, the unique tokens are those that are seen."""
        timescale = np.exp(self.ln_timescale + self.ln_unique)
        return At(np.exp(self.ln_params), np.exp(self.ln_unique), 1 + self.repeats, timescale)

    @property
    def loss(self) -> Array:
        return np.asarray(np.exp(self.ln_loss))

    def pick(self, rows: Array) -> Runs:
        """Some of the runs, around the same reference point."""
        names = ("ln_params", "ln_unique", "ln_tokens", "repeats", "ln_loss", "cells", "ln_timescale")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def __len__(self) -> int:
        return len(self.ln_loss)


@dataclass(frozen=True)
class Group:
    """Runs with the same unique tokens and weight decay and nearly equal compute: one size with few epochs,
    another with many. Between these somebody with that corpus and that budget had to choose.
    """

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
    alike = [  # rows of one weight decay and the same unique tokens
        rows
        for value in np.unique(decay)
        for rows in _chunks(np.flatnonzero(decay == value), np.log(unique), 1e-3)
    ]
    for rows in alike:
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


def _chunks(rows: np.ndarray, values: np.ndarray, width: float) -> list[np.ndarray]:
    """Rows by ascending value, cut wherever it exceeds that of the chunk's first row by more than `width`."""
    parts: list[list[int]] = []
    for row in rows[np.argsort(values[rows], kind="stable")]:
        if parts and values[row] - values[parts[-1][0]] <= width + 1e-12:
            parts[-1].append(int(row))
        else:
            parts.append([int(row)])
    return [np.array(part) for part in parts]
