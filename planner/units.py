"""Quantities as people write them: "250M" tokens, "5 EFLOP", 0.1 -> floats; and floats -> short text.

Every number a user hands in passes through `count`, `compute` or `number` here, so that each mistake is named
in the same way: the field, what was given, and what would do.
"""

from __future__ import annotations

import math
import re
from typing import Any

from planner.errors import InvalidInput

_NUMBER = r"([+-]?[\d.][\d_,.]*(?:e[+-]?\d+)?)"
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_COUNTS |= {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18, "z": 1e21, "y": 1e24}
_SECONDS = {"": 1.0, "second": 1.0, "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}

COUNT_EXAMPLES = "250e6, 250M or 0.25B"
COMPUTE_EXAMPLES = "5e18, '5 EFLOP' or '0.1 PFLOP/s-days'"


def count(value: Any, field: str, *, positive: bool = True) -> float:
    """A number of tokens or parameters: 250e6, "250M", "0.25B"."""
    if not isinstance(value, str):
        return number(value, field, positive=positive, examples=COUNT_EXAMPLES)
    figure, unit = _split(value, field, COUNT_EXAMPLES)
    for noun in ("tokens", "token", "parameters", "params"):
        unit = unit.removesuffix(noun)
    if unit.strip() not in _COUNTS:
        raise InvalidInput(f"{field} must be a number such as {COUNT_EXAMPLES}; got {_shown(value)}.")
    return _bounded(figure * _COUNTS[unit.strip()], value, field, positive, COUNT_EXAMPLES)


def compute(value: Any, field: str = "flops") -> float:
    """Training compute in FLOPs: 5e18, "5 EFLOP", "0.1 PFLOP/s-days"."""
    if not isinstance(value, str):
        return number(value, field, examples=COMPUTE_EXAMPLES)
    figure, unit = _split(value, field, COMPUTE_EXAMPLES)
    prefix, flop, rest = unit.partition("flop")
    duration = rest.removeprefix("s").removeprefix("/s").strip(" -*·").removesuffix("s")
    if prefix not in _PREFIXES or duration not in _SECONDS or (prefix and not flop):
        raise InvalidInput(f"{field} must be a number such as {COMPUTE_EXAMPLES}; got {_shown(value)}.")
    return _bounded(figure * _PREFIXES[prefix] * _SECONDS[duration], value, field, True, COMPUTE_EXAMPLES)


def number(value: Any, field: str, *, positive: bool = True, examples: str = "0.1") -> float:
    """A plain finite number; booleans, None and arrays are refused rather than guessed at."""
    if isinstance(value, str):
        result, unit = _split(value, field, examples)
        if unit:
            raise InvalidInput(f"{field} must be a number such as {examples}; got {_shown(value)}.")
    else:
        if isinstance(value, bool) or not hasattr(value, "__float__") or getattr(value, "ndim", 0) != 0:
            raise InvalidInput(f"{field} must be one number such as {examples}; got {_shown(value)}.")
        try:
            result = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidInput(f"{field} must be one number such as {examples}; got {_shown(value)}.") from None
    return _bounded(result, value, field, positive, examples)


def fraction(value: Any, field: str) -> float:
    """A number above 0 and at most 1, such as a model FLOPs utilisation; "40%" works too."""
    if isinstance(value, str) and value.strip().endswith("%"):
        result = number(value.strip()[:-1], field, examples="0.4 or 40%") / 100
    else:
        result = number(value, field, examples="0.4 or 40%")
    if result > 1:
        raise InvalidInput(f"{field} must be between 0 and 1 (such as 0.4 or 40%); got {_shown(value)}.")
    return result


def whole(value: Any, field: str, *, example: str = "8") -> int:
    """A whole number of at least 1."""
    result = number(value, field, examples=example)
    if result != int(result):
        raise InvalidInput(f"{field} must be a whole number such as {example}; got {_shown(value)}.")
    return int(result)


def short(value: float, digits: int = 3) -> str:
    """A count as people say it: 556M, 3.33B, 250k."""
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (1 - 0.5 * 10.0**-digits):
            return f"{value / size:.{digits}g}{suffix}" if abs(value) < 1000 * size else f"{value:.{digits}g}"
    return f"{value:.{digits}g}"


def scientific(value: float, digits: int = 3) -> str:
    """Compute as people write it: 5e18, 3.19e18."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def _split(text: str, field: str, examples: str) -> tuple[float, str]:
    """The figure and the lower-case unit behind it."""
    match = re.match(_NUMBER + r"\s*", text.strip(), re.IGNORECASE)
    try:
        if match is not None:
            return float(match[1].replace(",", "").replace("_", "")), text.strip()[match.end() :].lower()
    except ValueError:  # two decimal points
        pass
    raise InvalidInput(f"{field} must be a number such as {examples}; got {_shown(text)}.")


def _bounded(result: float, given: Any, field: str, positive: bool, examples: str) -> float:
    if not math.isfinite(result):
        raise InvalidInput(f"{field} must be a finite number such as {examples}; got {_shown(given)}.")
    if positive and result <= 0:
        raise InvalidInput(f"{field} must be above zero, such as {examples}; got {_shown(given)}.")
    return result


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
