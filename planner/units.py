"""Quantities as people write them: "250M" tokens, "5 EFLOP", 0.1 -> floats; and floats -> short text.

Every number a user hands in passes through `count`, `compute` or `number` here, so that each mistake is named
in the same way: the field, what was given, and what would do.
"""

from __future__ import annotations

import math
import re
from numbers import Real
from typing import Any

from planner.errors import InvalidInput

# 1,500 is fine, 1,5 is not
_NUMBER = r"([+-]?(?:\d{1,3}(?:[,_]\d{3})+(?![\d,_])|\d+)?(?:\.\d*)?(?:e[+-]?\d+)?)"
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_COUNTS |= {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18, "z": 1e21, "y": 1e24}
_SECONDS = {"": 1.0, "second": 1.0, "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}

COUNT_EXAMPLES = "250e6, 250M or 0.25B"
COMPUTE_EXAMPLES = "5e18, '5 EFLOP' or '0.1 PFLOP/s-days'"


def count(value: Any, field: str, *, positive: bool = True, finite: bool = True) -> float:
    """A number of tokens or parameters: 250e6, "250M", "0.25B"."""
    if not isinstance(value, str):
        return number(value, field, positive=positive, finite=finite, examples=COUNT_EXAMPLES)
    figure, unit = _split(value, field, COUNT_EXAMPLES)
    for noun in ("parameters", "params") if "params" in field else ("tokens", "token"):
        unit = unit.removesuffix(noun)
    if unit.strip() not in _COUNTS:
        raise _not_a_number(value, field, COUNT_EXAMPLES)
    return _bounded(figure * _COUNTS[unit.strip()], value, field, COUNT_EXAMPLES, positive, finite)


def compute(value: Any, field: str = "flops") -> float:
    """Training compute in FLOPs: 5e18, "5 EFLOP", "0.1 PFLOP/s-days"."""
    if not isinstance(value, str):
        return number(value, field, examples=COMPUTE_EXAMPLES)
    figure, unit = _split(value, field, COMPUTE_EXAMPLES)
    prefix, flop, rest = unit.partition("flop")
    per_second = rest.startswith("/s")
    lasting = rest.removeprefix("s").removeprefix("/s").strip(" -*·").removesuffix("s")
    hint = ""
    if per_second and not lasting:
        hint = ", which is a speed and not an amount"
    elif unit in _COUNTS and unit:
        hint = "; a count of tokens belongs into ‹ud› (were the two swapped?)"
    if hint or prefix not in _PREFIXES or lasting not in _SECONDS or (prefix and not flop):
        raise _not_a_number(value, field, COMPUTE_EXAMPLES, hint)
    return _bounded(figure * _PREFIXES[prefix] * _SECONDS[lasting], value, field, COMPUTE_EXAMPLES)


def number(
    value: Any, field: str, *, positive: bool = True, finite: bool = True, examples: str = "0.1"
) -> float:
    """A plain number; booleans, None and arrays are refused rather than guessed at."""
    if isinstance(value, str):
        result, unit = _split(value, field, examples)
        if unit:
            raise _not_a_number(value, field, examples)
    else:
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            value = value.item()  # numpy's scalars
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidInput(f"must be one number such as {examples}; got {_shown(value)}.", field=field)
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
    return _bounded(result, value, field, examples, positive, finite)


def fraction(value: Any, field: str) -> float:
    """A number above 0 and at most 1, such as a model FLOPs utilisation; "40%" works too."""
    if isinstance(value, str) and value.strip().endswith("%"):
        result = number(value.strip()[:-1], field, examples="0.4 or 40%") / 100
    else:
        result = number(value, field, examples="0.4 or 40%")
    if result > 1:
        raise InvalidInput(f"must be between 0 and 1 (such as 0.4 or 40%); got {_shown(value)}.", field=field)
    return result


def whole(value: Any, field: str, *, example: str = "8") -> int:
    """A whole number of at least 1."""
    result = number(value, field, examples=example)
    if result != int(result):
        raise InvalidInput(f"must be a whole number such as {example}; got {_shown(value)}.", field=field)
    return int(result)


def short(value: float, digits: int = 3) -> str:
    """A count as people say it: 556M, 3.33B, 250k."""
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (1 - 0.5 * 10.0**-digits):
            scaled = f"{value / size:.{digits}g}"
            return f"{scaled}{suffix}" if "e" not in scaled else scientific(value, digits)
    return f"{value:.{digits}g}"


def epochs(value: float) -> str:
    """A number of passes over the data: 1 epoch, 6 epochs, 2.35 epochs, 1,800 epochs."""
    number = f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
    return f"{number} epoch" if number == "1" else f"{number} epochs"


def scientific(value: float, digits: int = 3) -> str:
    """Compute as people write it: 5e18, 3.19e18, 0."""
    if not value:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def duration(seconds: float) -> str:
    """A length of time as people say it: 45 s, 12 min, 3.5 h, 4.2 days, 12 years."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:.1f} h"
    days = seconds / 86400
    return f"{days:.1f} days" if days < 1000 else f"{days / 365.25:,.0f} years"


def perplexity(loss: float) -> float:
    """e to the loss in nats, or the largest power of e that a float can hold."""
    return math.exp(min(loss, 700.0))


def _split(text: str, field: str, examples: str) -> tuple[float, str]:
    """The figure and the lower-case unit behind it."""
    match = re.match(_NUMBER + r"\s*", text.strip(), re.IGNORECASE)
    try:
        if match is not None:
            return float(match[1].replace(",", "").replace("_", "")), text.strip()[match.end() :].lower()
    except ValueError:  # no digits
        pass
    raise _not_a_number(text, field, examples)


def _bounded(
    result: float, given: Any, field: str, examples: str, positive: bool = True, finite: bool = True
) -> float:
    if finite and not math.isfinite(result):
        raise InvalidInput(f"must be a finite number such as {examples}; got {_shown(given)}.", field=field)
    if positive and result <= 0:
        raise InvalidInput(f"must be above zero, such as {examples}; got {_shown(given)}.", field=field)
    return result


def _not_a_number(given: Any, field: str, examples: str, hint: str = "") -> InvalidInput:
    return InvalidInput(f"must be a number such as {examples}; got {_shown(given)}{hint}.", field=field)


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def percent(share: float) -> str:
    """A share as people say it: 37%, 2%, 0.4%, less than 0.01%."""
    if share < 1e-4:
        return "less than 0.01%"
    return f"{share:.0%}" if share >= 0.01 else f"{share * 100:.1g}%"


def signed(change: float, digits: int = 3) -> str:
    """A change with its sign, and none where it rounds to nothing."""
    text = f"{change:+.{digits}f}"
    return text if float(text) else f"{0:.{digits}f}"
