"""How one thing is drawn wherever it is drawn."""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """A colour on light paper, the same on dark, and a dash as plotly names it."""

    light: str
    dark: str
    dash: str = "solid"

    def colour(self, dark: bool = False) -> str:
        return self.dark if dark else self.light
