"""Elementary functions for laws: those of numpy, several times as fast where a law is differentiated.

There arrays are complex, and their imaginary part is an infinitesimal step (1e-30), of which only the first
power counts: f(x + i h) = f(x) + i h f'(x). A law may as well use numpy's own functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
STEP = 1e-30  # of complex differentiation: no difference is taken, so it can be as small as one likes


def exp(x: Array) -> Array:
    if not _is_stepped(x):
        return np.exp(x)
    value = np.exp(x.real)
    return _stepped(value, value * x.imag)


def expm1(x: Array) -> Array:
    if not _is_stepped(x):
        return np.expm1(x)
    value = np.expm1(x.real)
    return _stepped(value, (value + 1) * x.imag)


def log(x: Array) -> Array:
    return _stepped(np.log(x.real), x.imag / x.real) if _is_stepped(x) else np.log(x)


def log1p(x: Array) -> Array:
    return _stepped(np.log1p(x.real), x.imag / (1 + x.real)) if _is_stepped(x) else np.log1p(x)


def softplus(x: Array) -> Array:
    """ln(1 + e^x)."""
    return np.maximum(x, 0.0) + log1p(exp(np.minimum(x, -x)))


def _is_stepped(x: Array) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "c"


def _stepped(value: np.ndarray, step: np.ndarray) -> np.ndarray:
    found = np.empty(value.shape, dtype=complex)
    found.real, found.imag = value, step
    return found
