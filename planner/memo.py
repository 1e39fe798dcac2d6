"""Memoization of what depends on the data and not on the compute: one corpus is asked about many times.

The functions that use it are asked about calibrations or draws, which take megabytes. A server that keeps few
of those calls `clear` when it lets one go; a cache of its own in each function would keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
_caches: list[Any] = []


def memoize(maxsize: int) -> Callable[[F], F]:
    """`functools.lru_cache`, which `clear` knows of."""

    def wrap(function: F) -> F:
        cached = lru_cache(maxsize)(function)
        _caches.append(cached)
        return cast(F, cached)

    return wrap


def clear() -> None:
    """Forget all results."""
    for cached in _caches:
        cached.cache_clear()
