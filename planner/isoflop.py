"""Tables of the loss along iso-FLOP curves: one row for each budget, one column for each number of epochs.

Budgets and the laws of an ensemble broadcast, so that what they have in common is worked out once. Rows that
need few columns are kept apart from those that need many: among thousands of refits some are wild.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from planner.laws import Law

_BLOCK = 512  # budgets tabulated at a time, so that the table stays in cache
_CELLS = 1 << 15  # the same for an ensemble, in entries of the table

# Freed at once, for good: the C library keeps freed memory for the next table, up to twice the largest block
# that it has seen freed, and fresh pages of the system cost more than the arithmetic.
np.empty(1 << 20)


class Block(NamedTuple):
    """Some rows of a table, by their numbers, as far as they are needed."""

    rows: np.ndarray
    losses: np.ndarray


class Table(NamedTuple):
    """The losses of budgets by epochs."""

    laws: Law
    shape: tuple[int, ...]  # of budgets and laws together
    product: np.ndarray  # params * epochs, of all of them in a row
    ud: np.ndarray
    furthest: np.ndarray  # epochs beyond which none of them need be looked at

    def blocks(self, epochs: np.ndarray, beyond: int) -> Iterator[Block]:
        """The table for ascending epochs, some rows at a time, with so many columns beyond what is needed."""
        needed = np.minimum(np.searchsorted(epochs, self.furthest) + beyond, len(epochs))
        if self.laws.is_ensemble:
            product, ud = self.product.reshape(self.shape), self.ud.reshape(self.shape)
        else:
            product, ud = self.product, self.ud
        factors = self.laws.isoflop_factors(product, ud, epochs)
        if factors is not None:
            return _of_factors(*factors, needed)
        return self._of_many(epochs, needed) if self.laws.is_ensemble else self._of_one(epochs, needed)

    def _of_one(self, epochs: np.ndarray, needed: np.ndarray) -> Iterator[Block]:
        for start in range(0, len(needed), _BLOCK):
            block = slice(start, start + _BLOCK)
            width = int(needed[block].max())
            losses = self.laws.on_isoflop(self.product[block], self.ud[block], epochs[:width])
            yield Block(np.arange(start, start + len(losses)), losses)

    def _of_many(self, epochs: np.ndarray, needed: np.ndarray) -> Iterator[Block]:
        """Rows are sorted by what they need along the axis on which that differs most."""
        width = int(needed.max(initial=0))
        if needed.size * width <= _CELLS:
            product, ud = self.product.reshape(self.shape), self.ud.reshape(self.shape)
            losses = self.laws.on_isoflop(product, ud, epochs[:width])
            yield Block(np.arange(needed.size), np.asarray(losses).reshape(-1, width))
            return
        by_axis = [_widths(needed.reshape(self.shape), axis) for axis in range(len(self.shape))]
        axis = min(range(len(self.shape)), key=lambda k: float(by_axis[k].mean()))
        widths = by_axis[axis]
        numbers = np.arange(needed.size)
        product, ud, rows = (
            np.moveaxis(values.reshape(self.shape), axis, 0) for values in (self.product, self.ud, numbers)
        )
        ones = (1,) * len(self.shape)
        laws = self.laws.member_by(lambda v: np.moveaxis(v.reshape((ones + v.shape)[-len(ones) :]), axis, 0))
        order, start = np.argsort(widths, kind="stable"), 0
        while start < len(order):
            cells = int(widths[order[start]]) * max(product[0].size, 1)
            some = order[start : start + max(_CELLS // cells, 1)]
            start += len(some)
            width = int(widths[some[-1]])
            losses = laws.member_by(partial(_some, some)).on_isoflop(product[some], ud[some], epochs[:width])
            yield Block(rows[some].ravel(), np.asarray(losses).reshape(-1, width))


def _of_factors(budgets: np.ndarray, repetitions: np.ndarray, needed: np.ndarray) -> Iterator[Block]:
    """The table as a matrix product, or as one for each law of an ensemble."""
    rows: np.ndarray = np.arange(needed.size).reshape(budgets.shape[:-1])
    many = int(rows.shape[-1])
    step = max(_BLOCK * many // max(rows.size, 1), 1)
    buffer = np.empty((*rows.shape[:-1], min(step, many), repetitions.shape[-1]))
    for start in range(0, many, step):
        block = slice(start, start + step)
        some = rows[..., block]
        width = int(needed[some].max())
        losses = np.matmul(budgets[..., block, :], repetitions, out=buffer[..., : some.shape[-1], :])
        yield Block(some.ravel(), losses[..., :width].reshape(-1, width))


def _widths(needed: np.ndarray, axis: int) -> np.ndarray:
    """The most that is needed at each place along an axis."""
    return np.asarray(np.moveaxis(needed, axis, 0).reshape(needed.shape[axis], -1).max(axis=1))


def _some(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    return values[rows] if len(values) > 1 else values
