"""What a plan has to keep to: the sizes and epochs that are allowed, and whether epochs are whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypedDict, TypeVar

import numpy as np

from planner import units
from planner.errors import InvalidInput

F = TypeVar("F", bound=Callable[..., Any])

WHOLE: Final = "whole"
CONTINUOUS_EPOCHS: Final = "continuous"
CEILING: Final = "ceiling"
ALL: Final = "all"
ROUNDED: Final = 1e-3
_DEFAULTS = {"epochs": WHOLE, "spend": CEILING}


class LimitOptions(TypedDict, total=False):
    """The limits as people give them, to every call that makes plans; `options` says them in words."""

    epochs: Literal["whole", "continuous"]
    params: float | str | None
    min_params: float | str | None
    max_params: float | str | None
    max_epochs: float | str | None
    spend: Literal["ceiling", "all"]


def spelled_out(function: F) -> F:
    """Let `help` and notebooks show the limits one by one, although they are declared once."""
    signature = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    limits = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name))
        for name in LimitOptions.__annotations__
    ]
    function.__signature__ = signature.replace(parameters=[*kept, *limits])  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True)
class Limits:
    """Limits as they are computed with. None: no limit."""

    whole_epochs: bool = True
    min_params: float | None = None
    max_params: float | None = None
    max_epochs: float | None = None
    ceiling: bool = True  # whether a plan may spend less compute than there is

    @classmethod
    def of(
        cls,
        *,
        epochs: Any = WHOLE,
        params: Any = None,
        min_params: Any = None,
        max_params: Any = None,
        max_epochs: Any = None,
        spend: Any = CEILING,
    ) -> Limits:
        """Limits from what was given, checked; `params` is the smallest and the largest size at once, give or
        take what is lost where a size is written with three digits.
        """
        if not isinstance(epochs, str) or epochs not in (WHOLE, CONTINUOUS_EPOCHS):
            raise InvalidInput(f"must be {WHOLE!r} or {CONTINUOUS_EPOCHS!r}; got {epochs!r}.", field="epochs")
        if not isinstance(spend, str) or spend not in (CEILING, ALL):
            raise InvalidInput(f"must be {CEILING!r} or {ALL!r}; got {spend!r}.", field="spend")
        if params is not None:
            if min_params is not None or max_params is not None:
                raise InvalidInput("goes without ‹min_params› and ‹max_params›.", field="params")
            size = units.count(params, "params")
            min_params, max_params = size * (1 - ROUNDED), size * (1 + ROUNDED)
        least = None if min_params is None else units.count(min_params, "min_params")
        most = None if max_params is None else units.count(max_params, "max_params")
        passes = None if max_epochs is None else units.number(max_epochs, "max_epochs", examples="16")
        if least is not None and most is not None and least > most:
            raise InvalidInput(
                f"({units.short(least)}) must not be above ‹max_params› ({units.short(most)}).",
                field="min_params",
            )
        return cls(epochs == WHOLE, least, most, passes, spend == CEILING)

    @property
    def spend(self) -> str:
        return CEILING if self.ceiling else ALL

    @property
    def size(self) -> float | None:
        """The size, where it is settled."""
        if self.min_params is None or self.max_params is None or self.max_params > 1.01 * self.min_params:
            return None
        return 0.5 * (self.min_params + self.max_params)

    @property
    def bounded(self) -> bool:
        """Whether size or epochs are limited at all."""
        return (self.min_params, self.max_params, self.max_epochs) != (None, None, None)

    def unbounded(self) -> Limits:
        """The same question without limits on size and epochs."""
        return replace(self, min_params=None, max_params=None, max_epochs=None)

    def continuous(self) -> Limits:
        """The same limits for epochs that need not be whole."""
        return replace(self, whole_epochs=False)

    def epochs_between(self, product: Any) -> tuple[Any, Any]:
        """The fewest and the most epochs that are allowed where params * epochs = `product`."""
        fewest = product / self.max_params if self.max_params is not None else np.zeros_like(product)
        most = np.full_like(product, np.inf if self.max_epochs is None else self.max_epochs)
        if self.min_params is not None:
            most = np.minimum(most, product / self.min_params)
        return fewest, most

    def hold_size(self, params: Any) -> Any:
        """Whether a limit on the size binds, so that more compute can only buy epochs."""
        held = np.zeros(np.shape(params), dtype=bool)
        for bound in (self.min_params, self.max_params):
            if bound is not None:
                held |= np.isclose(params, bound, rtol=1e-9)
        return held


FREE = Limits()
CONTINUOUS = Limits(whole_epochs=False)
