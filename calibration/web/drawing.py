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
    "triangle-down": '<path d="M8 3h12l-6 9z"/>',
    "diamond": '<path d="M14 1l6 6-6 6-6-6z"/>',
    "square": '<path d="M7 1h14v12h-14z"/>',
}


class Figure:
    """Traces and layout of a picture."""

    def __init__(self, layout: dict[str, Any]) -> None:
        self.data: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = {**layout, "shapes": [], "annotations": []}
        self.drew: set[str] = set()  # signs that the caption explains

    def add(self, kind: str = "scatter", **trace: Any) -> None:
        self.data.append({"type": kind, **trace})

    def shade(self, start: float, end: float, colour: str, opacity: float) -> None:
        """An area from bottom to top, below everything else."""
        shape = {"type": "rect", "x0": start, "x1": end, **_UPWARDS}
        look = {"fillcolor": colour, "opacity": opacity, "line": {"width": 0}, "layer": "below"}
        self.layout["shapes"].append({**shape, **look})

    def axis(self, name: str, **how: Any) -> None:
        self.layout[name].update(how)

    def plain(self) -> dict[str, Any]:
        """As plotly's script in the browser takes it."""
        return {"data": self.data, "layout": self.layout}


def empty(across: str, up: str) -> Figure:
    axis = {
        "gridcolor": "rgba(128,128,128,0.22)",
        "zeroline": False,
        "linecolor": "rgba(128,128,128,0.6)",
        "showline": True,
        "automargin": True,
    }
    clear = "rgba(0,0,0,0)"
    figure = Figure(
        {
            "margin": {"l": 44, "r": 12, "t": 26, "b": 42},
            "hovermode": "closest",
            "paper_bgcolor": clear,
            "plot_bgcolor": clear,
            "font": {"family": "system-ui, sans-serif", "size": 13},
            "showlegend": False,
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0, "bgcolor": clear},
            "modebar": {
                "orientation": "v",
                "bgcolor": clear,
                "color": NEUTRAL.light,
                "activecolor": PLAN.light,
                "remove": ["select2d", "lasso2d", "autoScale2d"],
            },
            "xaxis": {"title": {"text": across, "font": {"size": 13}}, **axis},
            "yaxis": axis,
            "dragmode": "zoom",
        }
    )
    # Above its axis, lying: it needs no height, and is whole however low the picture is.
    title = {"x": 0, "xshift": -40, "xanchor": "left", "xref": "paper", "y": 1, "yshift": 4}
    title |= {"yanchor": "bottom", "yref": "paper", "text": up, "showarrow": False, "font": {"size": 13}}
    figure.layout["annotations"].append(title)
    return figure


def line(
    figure: Figure,
    x: Any,
    y: Any,
    name: str,
    style: Style,
    text: Sequence[str] | None,
    *,
    width: float = 2.5,
    group: str | None = None,
) -> None:
    """A line that says `text` at the mouse; one that belongs to no group says its loss as well."""
    hover: dict[str, Any] = {"hoverinfo": "skip"}
    if text is not None:
        also = "<br>loss %{y:.3f}" if group is None else ""
        hover = {"text": list(text), "hovertemplate": f"%{{text}}{also}<extra></extra>"}
    line = {"color": style.light, "dash": style.dash, "width": width}
    figure.add(x=plain(x), y=plain(y), name=name, mode="lines", line=line, legendgroup=group, **hover)


def point(
    figure: Figure,
    x: Any,
    y: Any,
    name: str,
    symbol: str,
    style: Style,
    *,
    group: str | None = None,
    text: str | None = None,
) -> None:
    said = f"{name}{f'<br>{text}' if text else ''}<extra></extra>"
    halo = {"color": "white", "width": 1.5}
    figure.add(
        x=[float(x)],
        y=[float(y)],
        name=name,
        mode="markers",
        legendgroup=group,
        showlegend=group is None,
        marker={"symbol": symbol, "size": 12, "color": style.light, "line": halo},
        hovertemplate=said,
    )


def ring(figure: Figure, x: Any, y: Any, name: str, style: Style, text: Sequence[str]) -> None:
    """Open circles, each of which says something."""
    marker = {"symbol": "circle-open", "size": 9, "color": style.light, "line": {"width": 2}}
    hover: dict[str, Any] = {"text": list(text), "hovertemplate": "%{text}<extra></extra>"}
    figure.add(x=plain(x), y=plain(y), name=name, mode="markers", marker=marker, **hover)


def key(figure: Figure, name: str, symbol: str, style: Style) -> None:
    """Only an entry of the legend, for a sign that stands in the picture many times or is an area."""
    marker = {"symbol": symbol, "size": 12, "color": style.light}
    figure.add(x=[None], y=[None], mode="markers", marker=marker, name=name)


def band(figure: Figure, x: Any, low: Any, high: Any, name: str, style: Style) -> None:
    """The area between two lines, in the colour of the line that it belongs to."""
    there = np.isfinite(low) & np.isfinite(high)
    across, bottom, top = (np.asarray(values, dtype=float)[there] for values in (x, low, high))
    figure.drew.add("band")
    figure.add(
        x=plain(np.concatenate([across, across[::-1]])),
        y=plain(np.concatenate([bottom, top[::-1]])),
        name=name,
        mode="none",
        fill="toself",
        fillcolor=style.light,
        opacity=0.16,
        hoverinfo="skip",
    )


def glow(figure: Figure, x: Any, y: Any, name: str, style: Style) -> None:
    """A broad pale stroke below a part of a line."""
    line = {"color": style.light, "width": 13}
    figure.add(x=plain(x), y=plain(y), name=name, mode="lines", line=line, opacity=0.32, hoverinfo="skip")


class Mark(NamedTuple):
    """A compute, or whatever is shown across, that has a name."""

    x: float
    text: str
    solid: bool = False
    low: bool = False  # the label stands at the bottom


def marks(figure: Figure, places: Sequence[Mark], across: np.ndarray) -> None:
    """Upright lines with labels: each in a row of its own, on the side where it crosses fewer lines."""
    low, high = np.log10([np.nanmin(across), np.nanmax(across)])
    at = [float((np.log10(mark.x) - low) / (high - low)) for mark in places]
    rows = 0
    for mark, here in zip(places, at, strict=True):
        line = {"color": (PLAN if mark.solid else NEUTRAL).light, "dash": "solid" if mark.solid else "dot"}
        figure.layout["shapes"].append(
            {"type": "line", "x0": mark.x, "x1": mark.x, **_UPWARDS, "line": {**line, "width": 1.5}}
        )
        wide = _GAP + _LETTER * max(map(len, mark.text.split("<br>")))
        # How far the edge and the other lines are on either side: a label must not leave the picture, and
        # should cross no line.
        right = [1 - here, *(one - here for one in at if one > here)]
        left = [here, *(here - one for one in at if one < here)]
        right_room, left_room = (min(*side, wide) + 10 * min(max(side) - wide, 0.0) for side in (right, left))
        side, shift = ("left", 7) if right_room >= left_room else ("right", -7)
        note = {"x": float(np.log10(mark.x)), "yref": "paper", "text": mark.text, "showarrow": False}
        note |= {"xanchor": side, "xshift": shift, "align": side, "font": {"size": 12}}
        note |= {"bgcolor": "rgba(255,255,255,0.85)"}  # paper of its own, so that no line runs through it
        if mark.low:
            note |= {"y": 0, "yanchor": "bottom"}
        else:
            note |= {"y": 1, "yanchor": "top", "yshift": -_ROW * rows}
            rows += 1
        figure.layout["annotations"].append(note)


def sizes(params: Any, epochs: Any) -> list[str]:
    return [f"{short(n)} parameters × {passes(e)}" for n, e in zip(params, epochs, strict=True)]


def log_axis(figure: Figure, name: str, values: np.ndarray, show: Any, digits: int = 3) -> None:
    """A log axis over the values in human units: 1, 2 and 5 of each decade where there are few decades."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    decades = np.log10(high / low)
    steps: Iterable[float] = (1, 2, 5) if decades < 3 else (1, 3) if decades < 5 else (1,)
    ends = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    places = [s * 10.0**k for k in range(ends[0], ends[1] + 1) for s in steps]
    labels = [show(place, digits) for place in places]
    span = [float(np.log10(low)), float(np.log10(high))]
    figure.axis(name, type="log", range=span, tickvals=places, ticktext=labels)


def plain(values: Any) -> list[float | None]:
    """JSON has no NaN: gaps are None."""
    return [float(v) if np.isfinite(v) else None for v in np.asarray(values, dtype=float)]


# -- what the signs mean -------------------------------------------------------------------------------------


def legend(figure: Figure) -> str:
    """A list of the signs, in the order in which they were drawn."""
    entries = [trace for trace in figure.data if trace.get("name") and trace.get("showlegend", True)]
    items = "".join(f"<li>{_sign(trace)}{escape(trace['name'])}</li>" for trace in entries)
    return f'<ul class="legend" aria-label="Legend">{items}</ul>'


def spelled(colour: str) -> str:
    """A colour as plotly writes it into styles, so that one style sheet serves pictures and legends."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


def _sign(trace: dict[str, Any]) -> str:
    line, marker = trace.get("line", {}), trace.get("marker", {})
    if "stackgroup" in trace:
        drawn = f'<g style="fill: {spelled(line["color"])}" fill-opacity=".6">{_SHAPES["square"]}</g>'
    elif trace.get("fill") == "toself":
        drawn = f'<g style="fill: {spelled(trace["fillcolor"])}" fill-opacity=".3">{_SHAPES["square"]}</g>'
    elif trace["mode"] == "lines":
        named = line.get("dash", "solid")
        dash = _DASHES.get(named, named.replace("px", "").replace(",", " "))
        style = f"stroke: {spelled(line['color'])}; stroke-width: {line['width']}"
        faint = f' stroke-opacity="{trace["opacity"]}"' if "opacity" in trace else ""
        drawn = f'<path d="M0 7h28" style="{style}" stroke-dasharray="{dash}"{faint}/>'
    elif marker["symbol"] == "circle-open":
        ring = f"stroke: {spelled(marker['color'])}; stroke-width: 2; fill: none"
        drawn = f'<circle cx="14" cy="7" r="4.5" style="{ring}"/>'
    else:
        faint = ' fill-opacity=".35"' if marker["symbol"] == "square" else ""
        drawn = f'<g style="fill: {spelled(marker["color"])}"{faint}>{_SHAPES[marker["symbol"]]}</g>'
    left, wide = (0, 28) if drawn.startswith("<path") else (6, 16)
    return f'<svg width="{wide}" height="14" viewBox="{left} 0 {wide} 14" aria-hidden="true">{drawn}</svg>'
