"""Budgets as people give them, checked: unique tokens and compute, one of each or many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from planner import units
from planner.errors import InvalidInput

_UD = (1e3, 1e16, "unique tokens")
_FLOPS = (1e6, 1e32, "FLOPs")


def unique_tokens(ud: Any) -> float:
    return within(units.count(ud, "ud"), "ud", *_UD)


def budget(ud: Any, flops: Any) -> tuple[float, float]:
    """One budget: unique tokens and compute."""
    tokens, compute = units.count(ud, "ud"), units.compute(flops, "flops")
    _not_swapped(tokens, compute)
    return within(tokens, "ud", *_UD), within(compute, "flops", *_FLOPS)


def budgets(ud: Any, flops: Any) -> tuple[np.ndarray, np.ndarray]:
    """Many budgets, as two arrays of one length: what was given is broadcast."""
    tokens, compute = many(ud, "ud", units.count), many(flops, "flops", units.compute)
    try:
        tokens, compute = np.broadcast_arrays(tokens, compute)
    except ValueError:
        sizes = f"{len(tokens)} and {len(compute)}"
        raise InvalidInput(
            f"and ‹flops› must have one length or broadcast; got {sizes} values.", field="ud"
        ) from None
    swapped = tokens > compute
    if np.any(swapped):
        _not_swapped(float(tokens[swapped][0]), float(compute[swapped][0]))
    for values, field, limits in ((tokens, "ud", _UD), (compute, "flops", _FLOPS)):
        within(float(values.min()), field, *limits)
        within(float(values.max()), field, *limits)
    return tokens, compute


def within(value: float, field: str, low: float, high: float, unit: str) -> float:
    """The value, if it is of this world."""
    if not low <= value <= high:
        raise InvalidInput(
            f"must be between {low:.0e} and {high:.0e} {unit}; got {units.scientific(value)}.", field=field
        )
    return value


def _not_swapped(tokens: float, compute: float) -> None:
    if tokens > compute:
        raise InvalidInput(
            f"({units.scientific(tokens)} tokens) is larger than ‹flops› ({units.scientific(compute)}), "
            f"which buys "
            f"less than one FLOP per token: were ‹ud› and ‹flops› swapped?",
            field="ud",
        )


def many(values: Any, field: str, parse: Callable[[Any, str], float]) -> np.ndarray:
    """One number or several, as an array."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fiu" and len(values):
        array = values.astype(float)  # the fast path: ten thousand budgets are checked at once
        if np.all(array > 0) and np.all(np.isfinite(array)):
            return array
    if isinstance(values, str) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        values = [values]
    array = np.array([parse(value, field) for value in values])
    if not len(array):
        raise InvalidInput("must hold at least one number; got an empty list.", field=field)
    return array
