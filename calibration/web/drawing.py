"""The pieces of every interactive picture: an empty one, lines, points, labels and axes in human units.

A picture is what plotly's script in the browser takes, as plain data. Plotly's own classes would check every
property on its way, which takes longer than all that a picture shows takes to compute; a test lets them. What
its signs mean stands outside of it, as HTML: that wraps on a phone, and who listens to the page hears it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from planner.inputs import epochs as passes
from planner.inputs import short
from planner.laws import Style
from planner.show.palette import NEUTRAL, PLAN

_LETTER, _GAP = 6.2 / 305, 8 / 305  # how wide a letter and a space are, as a share of a phone's picture
_UPWARDS = {"y0": 0, "y1": 1, "yref": "y domain"}  # of a shape from bottom to top
_ROW = 22  # pixels from one label to the next below it
_CLEAR = "rgba(0,0,0,0)"
_DASHES = {
    "solid": "",
    "dot": "2 3",
    "dash": "7 3",
    "longdash": "11 3",
    "dashdot": "7 3 2 3",
    "longdashdot": "11 3 2 3",
}
_SHAPES = {
    "circle": '<circle cx="14" cy="7" r="5"/>',
    "circle-open": '<circle cx="14" cy="7" r="4.5"/>',
    "triangle-down": '<path d="M8 3h12l-6 9z"/>',
    "diamond": '<path d="M14 1l6 6-6 6-6-6z"/>',
    "square": '<path d="M7 1h14v12h-14z"/>',
}


class Mark(NamedTuple):
    """A compute, or whatever is shown across, that has a name."""

    x: float
    text: str
    solid: bool = False
    low: bool = False  # the label stands at the bottom


class Figure:
    """Traces and layout of a picture, and the signs that its caption explains."""

    def __init__(self, across: str, up: str) -> None:
        self.data: list[dict[str, Any]] = []
        self.drew: set[str] = set()
        axis = {
            "gridcolor": "rgba(128,128,128,0.22)",
            "zeroline": False,
            "linecolor": "rgba(128,128,128,0.6)",
            "showline": True,
            "automargin": True,
        }
        modebar = {"orientation": "v", "bgcolor": _CLEAR, "color": NEUTRAL.light, "activecolor": PLAN.light}
        # Above its axis, lying: it needs no height, and is whole however low the picture is.
        title = {"x": 0, "xshift": -40, "xanchor": "left", "xref": "paper", "y": 1, "yshift": 4}
        title |= {"yanchor": "bottom", "yref": "paper", "text": up, "showarrow": False, "font": {"size": 13}}
        self.layout: dict[str, Any] = {
            "margin": {"l": 44, "r": 12, "t": 26, "b": 42},
            "paper_bgcolor": _CLEAR,
            "plot_bgcolor": _CLEAR,
            "font": {"family": "system-ui, sans-serif", "size": 13},
            "showlegend": False,
            "modebar": {**modebar, "remove": ["select2d", "lasso2d", "autoScale2d"]},
            "xaxis": {"title": {"text": across, "font": {"size": 13}}, **axis},
            "yaxis": axis,
            "shapes": [],
            "annotations": [title],
        }

    def plain(self) -> dict[str, Any]:
        """As plotly's script in the browser takes it."""
        return {"data": self.data, "layout": self.layout}

    def axis(self, name: str, **how: Any) -> None:
        self.layout[name].update(how)

    def log_axis(self, name: str, values: np.ndarray, show: Any, digits: int = 3) -> None:
        """Over the values in human units: 1, 2 and 5 of each decade where there are few decades."""
        low, high = np.log10([np.nanmin(values), np.nanmax(values)]).tolist()
        steps: Iterable[float] = (1, 2, 5) if high - low < 3 else (1, 3) if high - low < 5 else (1,)
        decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
        places = [s * 10.0**k for k in decades for s in steps]
        labels = [show(place, digits) for place in places]
        self.axis(name, type="log", range=[low, high], tickvals=places, ticktext=labels)

    def add(self, x: Any, y: Any, name: str, mode: str = "lines", **how: Any) -> None:
        self.data.append({"type": "scatter", "x": plain(x), "y": plain(y), "name": name, "mode": mode, **how})

    def line(
        self, x: Any, y: Any, name: str, style: Style, text: Sequence[str] = (), width: float = 2.5
    ) -> None:
        """A line that says `text` at the mouse."""
        hover = {"text": list(text), "hovertemplate": "%{text}<extra></extra>"}
        look = {"color": style.light, "dash": style.dash, "width": width}
        self.add(x, y, name, line=look, **hover if text else {"hoverinfo": "skip"})

    def point(self, x: Any, y: Any, name: str, symbol: str, style: Style, text: str = "", **how: Any) -> None:
        """A mark, which says its name and `text` at the mouse."""
        halo = {"color": "white", "width": 1.5}
        marker = {"symbol": symbol, "size": 12, "color": style.light, "line": halo}
        said = "<br>".join(filter(None, (name, text)))
        self.add([x], [y], name, "markers", marker=marker, hovertemplate=f"{said}<extra></extra>", **how)

    def ring(self, x: Any, y: Any, name: str, style: Style, text: Sequence[str]) -> None:
        """Open circles, each of which says something."""
        marker = {"symbol": "circle-open", "size": 9, "color": style.light, "line": {"width": 2}}
        hover = {"text": list(text), "hovertemplate": "%{text}<extra></extra>"}
        self.add(x, y, name, "markers", marker=marker, **hover)

    def key(self, name: str, symbol: str, style: Style) -> None:
        """Only an entry of the legend, for a sign that stands in the picture many times or is an area."""
        marker = {"symbol": symbol, "size": 12, "color": style.light}
        self.add([np.nan], [np.nan], name, "markers", marker=marker)

    def band(self, x: Any, low: Any, high: Any, name: str, style: Style) -> None:
        """The area between two lines, in the colour of the line that it belongs to."""
        x, low, high = np.array([x, low, high])[:, np.isfinite(low) & np.isfinite(high)]
        around = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
        look = {"fill": "toself", "fillcolor": style.light, "opacity": 0.16, "hoverinfo": "skip"}
        self.add(*around, name, "none", **look)
        self.drew.add("band")

    def glow(self, x: Any, y: Any, name: str, style: Style) -> None:
        """A broad pale stroke below a part of a line."""
        self.add(x, y, name, line={"color": style.light, "width": 13}, opacity=0.32, hoverinfo="skip")

    def shade(self, start: float, end: float, colour: str, opacity: float) -> None:
        """An area from bottom to top, below everything else."""
        shape = {"type": "rect", "x0": start, "x1": end, **_UPWARDS}
        look = {"fillcolor": colour, "opacity": opacity, "line": {"width": 0}, "layer": "below"}
        self.layout["shapes"].append({**shape, **look})

    def marks(self, places: Sequence[Mark], across: np.ndarray) -> None:
        """Upright lines with labels: each in a row of its own, on the side where it crosses fewer lines."""
        low, high = np.log10([np.nanmin(across), np.nanmax(across)])
        at = [float((np.log10(mark.x) - low) / (high - low)) for mark in places]
        rows = 0
        for mark, here in zip(places, at, strict=True):
            look = {
                "color": (PLAN if mark.solid else NEUTRAL).light,
                "dash": "solid" if mark.solid else "dot",
            }
            shape = {"type": "line", "x0": mark.x, "x1": mark.x, **_UPWARDS, "line": {**look, "width": 1.5}}
            self.layout["shapes"].append(shape)
            wide = _GAP + _LETTER * max(map(len, mark.text.split("<br>")))
            # How far the edge and the other lines are on either side: a label must not leave the picture, and
            # should cross no line.
            right = [1 - here, *(one - here for one in at if one > here)]
            left = [here, *(here - one for one in at if one < here)]
            room = [min(*side, wide) + 10 * min(max(side) - wide, 0.0) for side in (right, left)]
            side, shift = ("left", 7) if room[0] >= room[1] else ("right", -7)
            note = {"x": float(np.log10(mark.x)), "yref": "paper", "text": mark.text, "showarrow": False}
            note |= {"xanchor": side, "xshift": shift, "align": side, "font": {"size": 12}}
            note |= {"bgcolor": "rgba(255,255,255,0.85)"}  # paper of its own, so that no line runs through it
            note |= {"y": int(not mark.low), "yanchor": "bottom" if mark.low else "top"}
            if not mark.low:
                note["yshift"] = -_ROW * rows
                rows += 1
            self.layout["annotations"].append(note)


def sizes(params: Any, epochs: Any) -> list[str]:
    return [f"{short(n)} parameters × {passes(e)}" for n, e in zip(params, epochs, strict=True)]


def told(params: Any, epochs: Any, loss: Any, *first: Iterable[str]) -> list[str]:
    """What plans say at the mouse."""
    losses = (f"loss {one:.3f}" for one in loss)
    return ["<br>".join(said) for said in zip(*first, sizes(params, epochs), losses, strict=True)]


def plain(values: Any) -> list[float | None]:
    """JSON has no NaN: gaps are None."""
    return [float(v) if np.isfinite(v) else None for v in np.asarray(values, dtype=float)]


# -- what the signs mean -------------------------------------------------------------------------------------


def legend(figure: Figure) -> str:
    """A list of the signs, in the order in which they were drawn."""
    entries = [trace for trace in figure.data if trace["name"] and trace.get("showlegend", True)]
    items = "".join(f"<li>{_sign(trace)}{escape(trace['name'])}</li>" for trace in entries)
    return f'<ul class="legend" aria-label="Legend">{items}</ul>'


def spelled(colour: str) -> str:
    """A colour as plotly writes it into styles, so that one style sheet serves pictures and legends."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


def _sign(trace: dict[str, Any]) -> str:
    """A line, an area, or a mark, as far from each other as they are wide."""
    line, marker = trace.get("line", {}), trace.get("marker", {})
    if trace["mode"] == "lines" and "stackgroup" not in trace:
        named = line.get("dash", "solid")
        dash = _DASHES.get(named, named.replace("px", "").replace(",", " "))
        style = f"stroke: {spelled(line['color'])}; stroke-width: {line['width']}"
        faint = f' stroke-opacity="{trace.get("opacity", 1)}"'
        drawn = f'<path d="M0 7h28" style="{style}" stroke-dasharray="{dash}"{faint}/>'
        return f'<svg width="28" height="14" viewBox="0 0 28 14" aria-hidden="true">{drawn}</svg>'
    symbol, opacity = marker.get("symbol", "square"), 1.0
    colour = spelled(marker.get("color") or trace.get("fillcolor") or line["color"])
    if symbol == "square":  # an area
        opacity = 0.6 if "stackgroup" in trace else 0.35
    style = f"fill: {colour}" if symbol != "circle-open" else f"stroke: {colour}; stroke-width: 2; fill: none"
    drawn = f'<g style="{style}" fill-opacity="{opacity}">{_SHAPES[symbol]}</g>'
    return f'<svg width="16" height="14" viewBox="6 0 16 14" aria-hidden="true">{drawn}</svg>'
