"""What the signs of a picture mean, as HTML: it wraps on a phone, and who listens to the page hears it."""

from __future__ import annotations

from html import escape
from typing import Any

from calibration.ui.drawing import Figure

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


def legend(figure: Figure) -> str:
    """A list of the signs, in the order in which they were drawn."""
    entries = [trace for trace in figure.data if trace.get("name") and trace.get("showlegend", True)]
    items = "".join(f"<li>{_sign(trace)}{escape(trace['name'])}</li>" for trace in entries)
    return f'<ul class="db-legend" aria-label="Legend">{items}</ul>'


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
    return f'<svg width="28" height="14" viewBox="0 0 28 14" aria-hidden="true">{drawn}</svg>'
