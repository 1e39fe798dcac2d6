"""What people hand in, checked: quantities as they write them, budgets, and limits on a plan.

Every number passes through `count`, `compute` or `number`, so that each mistake is named in the same way: the
field, what was given, and what would do. The way back, floats as short text, stands next to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Final, Literal, TypedDict, Unpack

import numpy as np

MENTION = re.compile("‹(\\w+)›")  # how a sentence mentions a field


def named(text: str, name: Callable[[str], str]) -> str:
    """The text with each field that it mentions in ‹› called what `name` makes of it."""
    return MENTION.sub(lambda mention: name(mention[1]), text)


class InvalidInput(ValueError):
    """Bad input in one sentence: which field, what was given, what would do.

    `field` is the argument at fault and the subject of the sentence, which goes on from it; other arguments
    are mentioned in ‹›:

        raise InvalidInput("needs ‹gpu›, such as H100.", field="hours")

    Python reads "hours needs gpu, ...". A shell or a page says what was typed there instead: see `said`.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    def said(self, name: Callable[[str], str]) -> str:
        """The sentence with each field called what `name` makes of it."""
        subject = "" if self.field is None else f"{name(self.field)} "
        return subject + named(str(self.args[0]), name)

    def renamed(self, names: Mapping[str, str]) -> InvalidInput:
        """The same complaint by somebody who has other names for some of the fields."""
        message = named(str(self.args[0]), lambda name: f"‹{names.get(name, name)}›")
        return InvalidInput(message, field=names.get(self.field or "", self.field))

    def __str__(self) -> str:
        return self.said(str)


class InvalidCalibration(InvalidInput):
    """A calibration file that cannot be used: unreadable, corrupt, or of an unknown version."""


# -- quantities

# 1,500 is fine, 1,5 is not
_NUMBER = re.compile(
    r"([+-]?(?=\.?\d)(?:\d{1,3}(?:[,_]\d{3})+(?![\d,_])|\d+)?(?:\.\d*)?(?:e[+-]?\d+)?)\s*", re.I
)
_DECIMAL_COMMA = re.compile(r"(?![+-]?\d{1,3},\d{3}(?!\d))[+-]?\d+,\d+(?:e[+-]?\d+)?(?![\d,])", re.I)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_POWER = re.compile(
    r"(?:(?<=[\d.])\s*[x×·*]\s*|^)10\s*(?:\^|\*\*|(?=[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]))\s*([+-]?\d+|[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)", re.I
)
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_COUNTS |= {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_HOURS = {"": 1.0, "h": 1.0, "hr": 1.0, "hour": 1.0, "d": 24.0, "day": 24.0, "w": 168.0, "week": 168.0}
_HOURS |= {"m": 1 / 60, "min": 1 / 60, "minute": 1 / 60, "s": 1 / 3600, "sec": 1 / 3600, "second": 1 / 3600}
_HOURS |= {"month": 720.0}  # of 30 days
_HOURS |= {f"{unit}s": worth for unit, worth in _HOURS.items() if unit}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18, "z": 1e21, "y": 1e24}
_FLOP = re.compile(  # EFLOP, petaflop/s-days, PF-days
    r"(kilo|mega|giga|tera|peta|exa|zetta|yotta|[kmgtpezy])?\s*(?:flop|f(?=[/ *·-]))(?:s(?:/s)?|(/s))?"
    r"(?:[ *·-]*(second|hour|day|h|d))?s?"
)

# What one of the unit behind a figure is worth or, as text, why there is no such unit.
Unit = Callable[[str], float | str]


def number(
    value: Any,
    field: str,
    *,
    positive: bool = True,
    finite: bool = True,
    examples: str = "0.1",
    unit: Unit = lambda text: "" if text else 1.0,
) -> float:
    """A number; booleans, None and arrays are refused rather than guessed at. It must be above zero, or,
    where it need not be `positive`, not below; where it need not be `finite`, it may be any float.
    """
    if isinstance(value, str):
        result = _read(value, field, examples, unit)
    else:
        plain = value.item() if getattr(value, "ndim", None) == 0 else value  # numpy's scalars
        if isinstance(plain, bool) or not isinstance(plain, Real):
            raise _refused("be one number", examples, value, field)
        try:
            result = float(plain)
        except OverflowError:
            result = math.inf
    if finite and not math.isfinite(result):
        raise _refused("be a finite number", examples, value, field)
    if finite and positive and result <= 0:
        raise _refused("be above zero,", examples, value, field)
    if finite and result < 0:
        raise _refused("not be negative,", examples, value, field)
    return result


def _read(text: str, field: str, examples: str, unit: Unit) -> float:
    plain = _POWER.sub(
        lambda power: f"{'' if power.start() else '1'}e{power[1].translate(_SUPERSCRIPTS)}", text.strip()
    )
    figure = _NUMBER.match(plain)
    worth = "" if figure is None else unit(plain[figure.end() :].lower())
    if _DECIMAL_COMMA.match(plain):
        worth = f"; the decimal sign is a point: {plain.replace(',', '.', 1)}"
    if figure is None or isinstance(worth, str):
        raise _refused("be a number", examples, text, field, str(worth))
    return float(figure[1].replace(",", "").replace("_", "")) * worth


def count(value: Any, field: str, *, positive: bool = True, finite: bool = True) -> float:
    """A number of tokens or parameters: 250e6, "250M", "0.25B"."""
    noun = re.compile(r"\s*(parameters|params)$" if "params" in field else r"\s*tokens?$")
    return number(
        value,
        field,
        positive=positive,
        finite=finite,
        examples="250e6, 250M or 0.25B",
        unit=lambda text: _COUNTS.get(noun.sub("", text), ""),
    )


# What a text is long, where it was not counted in tokens. Bytes per word were measured next to the bytes per
# token of the shipped calibrations: 5.91 over the first 1,000 documents of C4 (2.2 MB), split at white space.
BYTES_PER_WORD = 5.91
_TEXT = re.compile(r"(?:([kmgt]i?|b|thousand|million|billion|trillion)?\s*(bytes?|words?)|([kmgt]i?)(b))")
_BINARY = {f"{prefix}i": 1024.0**power for power, prefix in enumerate("kmgt", start=1)}


def is_text(ud: Any) -> bool:
    """Whether a text was given by its length, in bytes or words, and not in tokens."""
    return isinstance(ud, str) and re.search(r"(byte|word)s?$|[kmgti]b$", ud.strip(), re.I) is not None


def in_tokens(ud: Any, bytes_per_token: float | None, field: str = "ud") -> Any:
    """What was given, as tokens where it was the length of a text: "433MB", "10M words"."""
    if isinstance(ud, list | tuple):
        return [in_tokens(one, bytes_per_token, field) for one in ud]
    if not is_text(ud):
        return ud

    def unit(text: str) -> float | str:
        found = _TEXT.fullmatch(text)
        if found is None:
            return ""
        if bytes_per_token is None:
            text = f"({ud}) is the length of a text: ‹bytes_per_token›, such as 4.0, says how many tokens."
            raise InvalidInput(text, field=field)
        scale, noun = found[1] or found[3] or "", found[2] or found[4]
        size = _BINARY[scale] if scale in _BINARY else _COUNTS[scale]
        return size * (BYTES_PER_WORD if noun.startswith("w") else 1.0) / bytes_per_token

    return number(ud, field, examples="250M, 433MB or '10M words'", unit=unit)


def bytes_of_token(value: Any, default: float | None) -> float | None:
    """Bytes per token, checked; the calibration's where nothing was given."""
    if value is None:
        return default
    return within(number(value, "bytes_per_token", examples="4.0"), "bytes_per_token", 0.01, 1000, "bytes")


def bits_per_byte(loss: float, bytes_per_token: float | None) -> float | None:
    """Nats per token as bits per byte, with which losses of different tokenizers can be compared."""
    return None if bytes_per_token is None else loss / (math.log(2) * bytes_per_token)


def money(value: Any, field: str, *, positive: bool = True, examples: str = "500") -> float:
    """An amount in US dollars: 500, "$500", "5k", "$1.5M", "500 USD"."""
    if unlimited(value):
        raise _refused("be a number", examples, value, field, _NO_CEILING)
    if isinstance(value, str):
        value = re.sub(r"^\s*(?:US)?\$\s*(?=[\d.])|(?<=\w)\s*(?:\$|USD|dollars?)\s*$", "", value, flags=re.I)
    unit: Unit = lambda text: _COUNTS.get(text, "; it is in US dollars" if text else "")  # noqa: E731
    return number(value, field, positive=positive, examples=examples, unit=unit)


_UNLIMITED = ("unlimited", "infinite", "no limit")
_NO_CEILING = "; without a ceiling it is ‹flops› unlimited"


def unlimited(amount: Any) -> bool:
    """Whether compute was said to have no ceiling."""
    return isinstance(amount, str) and amount.strip().lower() in _UNLIMITED


def _misplaced(text: str) -> str:
    """Where something that stands for compute belongs; nothing where it does not look like it."""
    if unlimited(text):
        return "; only a plan can be without a ceiling"
    if text.strip().lower() in ("inf", "infinity", "∞"):
        return _NO_CEILING
    if re.match(r"\s*(US)?\$", text, re.I) or re.search(r"\d\s*(\$|USD|dollars?)\s*$", text, re.I):
        return "; money belongs into ‹budget_usd›, with ‹gpu›"
    if re.match(r"\s*\d+\s*[x×*]\s*[a-z]", text, re.I):
        return "; accelerators belong into ‹gpu›, with ‹hours›"
    return ""


def compute(value: Any, field: str = "flops") -> float:
    """Training compute in FLOPs: 5e18, "5 EFLOP", "0.1 PFLOP/s-days"."""
    examples = "5e18, '5 EFLOP' or '0.1 PFLOP/s-days'"
    if isinstance(value, str) and (belongs := _misplaced(value)):
        raise _refused("be a number", examples, value, field, belongs)

    def unit(text: str) -> float | str:
        if not text:
            return 1.0
        if text in _COUNTS:
            return "; a count of tokens belongs into ‹ud› (were the two swapped?)"
        if text in _HOURS:
            return "; a time belongs into ‹hours›, with ‹gpu›"
        parts = _FLOP.fullmatch(text)
        if parts is None:
            return ""
        prefix, speed, time = parts.groups("")
        if speed and not time:
            return ", which is a speed and not an amount"
        return _PREFIXES[prefix[:1]] * (3600 * _HOURS[time] if time else 1.0)

    return number(value, field, examples=examples, unit=unit)


def hours(value: Any, field: str = "hours") -> float:
    """A length of time in hours: 3, "3h", "90 min", "2 days"."""
    if unlimited(value):
        raise _refused("be a number", "3, 90min or '2 days'", value, field, _NO_CEILING)
    return number(value, field, examples="3, 90min or '2 days'", unit=lambda text: _HOURS.get(text, ""))


def fraction(value: Any, field: str) -> float:
    """A number above 0 and at most 1, such as a model FLOPs utilisation; "40%" works too."""
    examples, of_hundred = "0.4 or 40%", isinstance(value, str) and value.strip().endswith("%")
    result = number(value.strip()[:-1] if of_hundred else value, field, examples=examples)
    result = result / 100 if of_hundred else result
    if result > 1:
        raise _refused("be between 0 and 1,", examples, value, field)
    return result


def whole(value: Any, field: str, *, example: str = "8") -> int:
    """A whole number of at least 1; "128k" is 128,000."""
    result = number(value, field, examples=example, unit=lambda text: _COUNTS.get(text, ""))
    if not math.isclose(result, round(result), rel_tol=1e-12):  # 1.1k is 1100, and a hair more
        raise _refused("be a whole number", example, value, field)
    return round(result)


def _refused(wanted: str, examples: str, value: Any, field: str, hint: str = "") -> InvalidInput:
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return InvalidInput(f"must {wanted} such as {examples}; got {shown}{hint}.", field=field)


# -- numbers as people say them


def short(value: float, digits: int = 3) -> str:
    """A count as people say it: 556M, 3.33B, 250k."""
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (1 - 0.5 * 10.0**-digits):
            scaled = f"{value / size:.{digits}g}"
            return f"{scaled}{suffix}" if "e" not in scaled else scientific(value, digits)
    return f"{value:.{digits}g}"


def epochs(value: float) -> str:
    """A number of passes over the data: 1 epoch, 6 epochs, 2.35 epochs, 1,800 epochs."""
    number = f"{value:,.0f}" if value >= 100 or value % 1 == 0 else f"{value:.3g}"
    return f"{number} epoch" if number == "1" else f"{number} epochs"


def scientific(value: float, digits: int = 3) -> str:
    """Compute as people write it: 5e18, 3.19e18, 0."""
    if not value:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def duration(seconds: float) -> str:
    """A length of time as people say it: 45 s, 12 min, 3.5 h, 4.2 days, 12 years, less than 1 s."""
    if 0 < seconds < 0.5:
        return "less than 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:.1f} h".replace(".0 h", " h")
    days = seconds / 86400
    return f"{days:.1f} days".replace(".0 days", " days") if days < 1000 else f"{days / 365.25:,.0f} years"


def size(number_of_bytes: float) -> str:
    """Memory as people say it: 4.04 TB, 80 GB, 512 MB."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number_of_bytes >= 0.9995 * unit:
            return f"{figure(number_of_bytes / unit)} {name}"
    return f"{number_of_bytes:.0f} bytes"


def figure(value: float) -> str:
    """An amount to three digits, without powers of ten: 0.25, 161, 12,300, less than 0.01."""
    if 0 < value < 0.00995:
        return "less than 0.01"
    if value >= 0.9995e9:
        return short(value)
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def dollars(value: float) -> str:
    """Money, roughly: about $9.70, about $1,234, less than a cent."""
    if value >= 999.995:
        return f"about ${value:,.0f}"
    return "less than a cent" if 0 < value < 0.01 else f"about ${value:,.2f}"


def with_article(name: str) -> str:
    """A name that is spelled letter by letter, with the article that it is spoken with: an H100, a T4."""
    return f"{'an' if name[:1].upper() in 'AEFHILMNORSX' else 'a'} {name}"


def perplexity(loss: float) -> float:
    """e to the loss in nats, or the largest power of e that a float can hold."""
    return math.exp(min(loss, 700.0))


def percent(share: float) -> str:
    """A share as people say it: 37%, 2%, 0.4%, less than 0.01%."""
    if share < 1e-4:
        return "less than 0.01%"
    return f"{share:.0%}" if share >= 0.01 else f"{share * 100:.1g}%"


def signed(change: float, digits: int = 3) -> str:
    """A change with its sign, and none where it rounds to nothing."""
    text = f"{change:+.{digits}f}"
    return text if float(text) else f"{0:.{digits}f}"


# -- budgets

_UD = (1e3, 1e16, "unique tokens")
_FLOPS = (1e6, 1e32, "FLOPs")


def unique_tokens(ud: Any) -> float:
    return within(count(ud, "ud"), "ud", *_UD)


def budget(ud: Any, flops: Any) -> tuple[float, float]:
    """One budget: unique tokens and compute."""
    tokens, ceilings = budgets(count(ud, "ud"), compute(flops, "flops"))
    return float(tokens[0]), float(ceilings[0])


def budgets(ud: Any, flops: Any) -> tuple[np.ndarray, np.ndarray]:
    """Many budgets, as two arrays of one length: what was given is broadcast."""
    tokens, ceilings = many(ud, "ud", count), many(flops, "flops", compute)
    try:
        tokens, ceilings = np.broadcast_arrays(tokens, ceilings)
    except ValueError:
        sizes = f"{len(tokens)} and {len(ceilings)}"
        raise InvalidInput(
            f"and ‹flops› must have one length or broadcast; got {sizes} values.", field="ud"
        ) from None
    swapped = tokens > ceilings
    if swapped.any():
        larger, smaller = scientific(tokens[swapped][0]), scientific(ceilings[swapped][0])
        raise InvalidInput(
            f"({larger} tokens) is larger than ‹flops› ({smaller}), which buys less than one FLOP per token: "
            f"were ‹ud› and ‹flops› swapped?",
            field="ud",
        )
    for values, field, limits in ((tokens, "ud", _UD), (ceilings, "flops", _FLOPS)):
        within(float(values.min()), field, *limits)
        within(float(values.max()), field, *limits)
    return tokens, ceilings


def within(value: float, field: str, low: float, high: float, unit: str) -> float:
    """The value, if it is of this world."""
    if not low <= value <= high:
        raise InvalidInput(
            f"must be between {low:.0e} and {high:.0e} {unit}; got {scientific(value)}.", field=field
        )
    return value


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


# -- limits

WHOLE: Final = "whole"
CONTINUOUS_EPOCHS: Final = "continuous"
CEILING: Final = "ceiling"
ALL: Final = "all"
_ROUNDED: Final = 1e-3  # what is lost where a size is written with three digits


class LimitOptions(TypedDict, total=False):
    """The limits as people give them, to every call that makes plans; `options` says them in words."""

    epochs: Literal["whole", "continuous"] | float | str
    params: float | str | None
    min_params: float | str | None
    max_params: float | str | None
    min_epochs: float | str | None
    max_epochs: float | str | None
    spend: Literal["ceiling", "all"]
    extrapolate: bool


LIMIT_DEFAULTS: Final = {"epochs": WHOLE, "spend": CEILING, "extrapolate": False}


def _epochs_asked(epochs: Any) -> tuple[bool, float | None]:
    """Whether epochs are whole, and how many where that is settled."""
    if isinstance(epochs, str) and epochs in (WHOLE, CONTINUOUS_EPOCHS):
        return epochs == WHOLE, None
    try:
        passes = number(epochs, "epochs")
    except InvalidInput:
        wanted = f"be {WHOLE!r}, {CONTINUOUS_EPOCHS!r} or a number"
        raise _refused(wanted, "10", epochs, "epochs") from None
    return passes < 1 or passes % 1 == 0, passes


def _settled(ends: dict[str, Any], name: str, value: Any, slack: float = 0.0) -> dict[str, Any]:
    """The ends with those of a size or a number of epochs that was given as one number."""
    if value is None:
        return ends
    if f"min_{name}" in ends or f"max_{name}" in ends:
        raise InvalidInput(f"goes without ‹min_{name}› and ‹max_{name}›.", field=name)
    one = count(value, name)
    return {**ends, f"min_{name}": one * (1 - slack), f"max_{name}": one * (1 + slack)}


@dataclass(frozen=True)
class Limits:
    """What a plan has to keep to: the sizes and epochs that are allowed, whether epochs are whole, and
    whether less than all compute may be spent. None: no limit.
    """

    whole_epochs: bool = True
    min_params: float | None = None
    max_params: float | None = None
    min_epochs: float | None = None
    max_epochs: float | None = None
    ceiling: bool = True
    extrapolate: bool = False  # whether plans are decided by the bare law, however far from all evidence
    by_memory: bool = False  # whether the largest size is what fits on the accelerators

    @classmethod
    def of(cls, **given: Unpack[LimitOptions]) -> Limits:
        """Limits from what was given, checked; a size or a number of epochs is the least and the most at
        once. Where all compute is to be spent in whole epochs, no size meets it exactly: there it is given or
        taken what is lost where it is written with three digits.
        """
        epochs, spend = given.pop("epochs", WHOLE), given.pop("spend", CEILING)
        extrapolate = given.pop("extrapolate", False)
        if not isinstance(extrapolate, bool):
            raise InvalidInput(f"must be true or false; got {extrapolate!r}.", field="extrapolate")
        if not isinstance(spend, str) or spend not in (CEILING, ALL):
            raise InvalidInput(f"must be {CEILING!r} or {ALL!r}; got {spend!r}.", field="spend")
        ends: dict[str, Any] = {name: end for name, end in given.items() if end is not None}
        whole, passes = _epochs_asked(epochs)
        slack = _ROUNDED if whole and spend == ALL else 0.0
        ends = _settled(_settled(ends, "params", ends.pop("params", None), slack), "epochs", passes)
        parse = {"min_epochs": partial(number, examples="2"), "max_epochs": partial(number, examples="16")}
        ends = {name: parse.get(name, count)(end, name) for name, end in ends.items()}
        how = {"whole_epochs": whole, "ceiling": spend == CEILING, "extrapolate": extrapolate}
        limits = cls(**how, **ends)
        shown = (("params", short), ("epochs", "{:g}".format))
        for (name, show), (low, high) in zip(shown, limits.box, strict=True):
            if low > high:
                text = f"({show(low)}) must not be above ‹max_{name}› ({show(high)})."
                raise InvalidInput(text, field=f"min_{name}")
        return limits

    @property
    def box(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The smallest and the largest size, the fewest and the most epochs that are allowed: every limit, in
        one place.
        """
        sizes = self.min_params or 0.0, self.max_params or math.inf
        return sizes, (self.min_epochs or 0.0, self.max_epochs or math.inf)

    def epochs_between(self, product: Any) -> tuple[Any, Any]:
        """The fewest and the most epochs that are allowed where params * epochs = `product`: the mask on the
        table of a search.
        """
        (smallest, largest), (fewest, most) = self.box
        product = np.asarray(product, dtype=float)
        with np.errstate(divide="ignore"):
            return np.maximum(fewest, product / largest), np.minimum(most, product / smallest)

    @property
    def spend(self) -> str:
        return CEILING if self.ceiling else ALL

    @property
    def size(self) -> float | None:
        """The size, where it is settled."""
        if self.min_params is None or self.max_params is None or self.max_params > 1.01 * self.min_params:
            return None
        return 0.5 * (self.min_params + self.max_params)

    def affordable(self, flops: float, flops_per_param_epoch: float) -> Limits:
        """The same, with a settled size that is too large for one more whole epoch only by what is lost where
        it was written with three digits: as large as can be paid. 556M for 6 epochs is what a plan says.
        """
        if self.size is None or math.isinf(flops) or not (self.whole_epochs and self.ceiling):
            return self
        per_epoch = flops_per_param_epoch * self.size
        payable = self.size * flops / (per_epoch * max(math.ceil(flops / per_epoch), 1))
        if payable >= self.size or short(payable) != short(self.size):
            return self
        return replace(self, min_params=payable, max_params=payable)

    @property
    def bounded(self) -> bool:
        """Whether size or epochs are limited at all."""
        return self != self.unbounded()

    def unbounded(self) -> Limits:
        """The same question without limits on size and epochs."""
        return Limits(self.whole_epochs, ceiling=self.ceiling, extrapolate=self.extrapolate)

    def continuous(self) -> Limits:
        """The same limits for epochs that need not be whole."""
        return replace(self, whole_epochs=False)

    def leave_nothing(self, ud: float, flops: float, fewest: float, most: float) -> InvalidInput:
        """Why there is nothing to choose at a budget that asks for at least and at most so many epochs."""
        if fewest <= most:
            return InvalidInput(
                f"no whole number of epochs lies between {fewest:.3g} and {most:.3g}, which is what the "
                f"limits allow at this budget; widen ‹min_params›, ‹max_params› or ‹max_epochs›, "
                f"or ask for ‹epochs›='continuous'."
            )
        if self.max_params is None or (self.min_epochs or 0.0) >= fewest:
            return InvalidInput(
                f"the limits leave no choice: at most {most:.3g} epochs can be had for {scientific(flops)} "
                f"FLOPs on {short(ud)} tokens, but at least {fewest:.3g} are asked for; lower ‹min_epochs› "
                f"or ‹min_params›, or spend more."
            )
        return InvalidInput(
            f"the limits leave no choice: with ‹max_params› {short(self.max_params)} it takes "
            f"{fewest:.3g} epochs to spend {scientific(flops)} FLOPs on {short(ud)} tokens, "
            f"but at most {most:.3g} are allowed; raise ‹max_params› or ‹max_epochs›, or spend less."
        )


FREE = Limits()
CONTINUOUS = Limits(whole_epochs=False)
