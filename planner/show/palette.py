"""How everything is drawn that is drawn more than once: one colour, dash and marker for one thing.

Each colour is a pair, for light paper and for dark. Every one keeps a contrast of at least three to its
paper. No eight colours stay apart for everybody, so lines also differ in dash and points in shape. A law
looks as its declaration says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.laws import FORMS, WEIGHT_DECAY_FORMS, Style, form_named

INK = Style("#3a3a3b", "#e4e6e8")
PLAN = Style("#111418", "#f7f8fa")  # the answer itself, which no curve looks like
NEUTRAL = Style("#7a7d82", "#9aa0a8")  # lines that only help to read
GOOD = Style("#008a63", "#3fc99a")  # what is within the law's error of the best

SERIES = (  # weight decays, and whatever else is counted rather than named
    Style("#5a45b5", "#b3a1ff", "solid"),
    Style("#cf4a0a", "#ff9366", "dash"),
    Style("#07a759", "#c4e124", "dot"),
    Style("#c266b6", "#d418a9", "dashdot"),
    Style("#0d4f4e", "#19f9f3", "longdash"),
    Style("#4c3c0c", "#657313", "longdashdot"),
    Style("#ac8290", "#c5899b", "8px,2px"),
    Style("#9516ef", "#4f62ff", "2px,2px"),
)
MARKERS = "osD^vPX*"
TERMS = {
    "irreducible": Style("#8d9299", "#757b84"),
    "parameter": Style("#3f93cc", "#4a90c8"),
    "data": Style("#12936d", "#35a582"),
    "overfitting": Style("#d2591b", "#e5763e"),
}
_STYLES: dict[str, Any] = {  # plotly's names as matplotlib draws them
    "solid": "-",
    "dot": ":",
    "dash": (0, (5, 1.5)),
    "longdash": (0, (9, 2)),
    "dashdot": "-.",
    "longdashdot": (0, (9, 2, 1.5, 2)),
}


def law_style(form: str) -> Style:
    return form_named(form).style


def law_colour(form: str) -> str:
    return law_style(form).light


def law_label(form: str) -> str:
    return form_named(form).label


def symbol(parameter: str) -> str:
    """A law's parameter as formulas write it."""
    found = (
        p.symbol
        for form in (*FORMS.values(), *WEIGHT_DECAY_FORMS.values())
        for p in form.parameters
        if p.name == parameter
    )
    return next(found, parameter)


def series(number: int) -> Style:
    """The style of the first, second, ... of things that have no name; it starts again after the last."""
    return SERIES[number % len(SERIES)]


def marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def line_style(dash: str) -> Any:
    """A dash as matplotlib takes it; lengths such as "8px,2px" are allowed, as in plotly."""
    if dash in _STYLES:
        return _STYLES[dash]
    return 0, tuple(float(length.removesuffix("px")) / 1.5 for length in dash.split(","))


def styles() -> Iterator[Style]:
    """Every style that a picture may use, so that a page can give each its colour on dark paper."""
    yield from (INK, PLAN, NEUTRAL, GOOD, *SERIES, *TERMS.values())
    yield from (form.style for form in (*FORMS.values(), *WEIGHT_DECAY_FORMS.values()))
