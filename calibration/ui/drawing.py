"""The pieces of every interactive picture: an empty one, lines, points, labels and axes in human units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from planner.look import Look
from planner.palette import NEUTRAL, PLAN
from planner.units import epochs as passes
from planner.units import short


def empty(across: str, up: str) -> go.Figure:
    figure = go.Figure()
    axis = {
        "gridcolor": "rgba(128,128,128,0.22)",
        "zeroline": False,
        "linecolor": "rgba(128,128,128,0.6)",
        "automargin": True,
    }
    clear = "rgba(0,0,0,0)"
    figure.update_layout(
        template="none",
        margin={"l": 52, "r": 12, "t": 8, "b": 42},
        hovermode="closest",
        paper_bgcolor=clear,
        plot_bgcolor=clear,
        font={"family": "system-ui, sans-serif", "size": 13},
        showlegend=False,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0, "bgcolor": clear},
        modebar={
            "orientation": "v",
            "bgcolor": clear,
            "color": NEUTRAL.light,
            "activecolor": PLAN.light,
            "remove": ["select2d", "lasso2d", "autoScale2d"],
        },
        xaxis={"title": {"text": across, "font": {"size": 13}}, **axis},
        yaxis={"title": {"text": up, "font": {"size": 13}}, **axis},
        dragmode="zoom",
    )
    return figure


def line(
    figure: go.Figure,
    x: Any,
    y: Any,
    name: str,
    look: Look,
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
    line = {"color": look.light, "dash": look.dash, "width": width}
    figure.add_scatter(x=plain(x), y=plain(y), name=name, mode="lines", line=line, legendgroup=group, **hover)


def point(
    figure: go.Figure,
    x: Any,
    y: Any,
    name: str,
    symbol: str,
    look: Look,
    *,
    group: str | None = None,
    text: str | None = None,
) -> None:
    said = f"{name}{f'<br>{text}' if text else ''}<extra></extra>"
    halo = {"color": "white", "width": 1.5}
    figure.add_scatter(
        x=[float(x)],
        y=[float(y)],
        name=name,
        mode="markers",
        legendgroup=group,
        showlegend=group is None,
        marker={"symbol": symbol, "size": 12, "color": look.light, "line": halo},
        hovertemplate=said,
    )


def key(figure: go.Figure, name: str, symbol: str, look: Look) -> None:
    """Only an entry of the legend, for a sign that stands in the picture many times or is an area."""
    marker = {"symbol": symbol, "size": 12, "color": look.light}
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name)


def band(figure: go.Figure, x: Any, low: Any, high: Any, name: str, look: Look) -> None:
    """The area between two lines, in the colour of the line that it belongs to."""
    there = np.isfinite(low) & np.isfinite(high)
    across, bottom, top = (np.asarray(values, dtype=float)[there] for values in (x, low, high))
    figure.add_scatter(
        x=plain(np.concatenate([across, across[::-1]])),
        y=plain(np.concatenate([bottom, top[::-1]])),
        name=name,
        mode="none",
        fill="toself",
        fillcolor=look.light,
        opacity=0.16,
        hoverinfo="skip",
    )


def glow(figure: go.Figure, x: Any, y: Any, name: str, look: Look) -> None:
    """A broad pale stroke below a part of a line."""
    line = {"color": look.light, "width": 13}
    figure.add_scatter(
        x=plain(x), y=plain(y), name=name, mode="lines", line=line, opacity=0.32, hoverinfo="skip"
    )


def upright(
    figure: go.Figure, x: float, text: str, height: float, across: np.ndarray, *, solid: bool = False
) -> None:
    """A line with its label beside it, on the side where there is more room, at this part of the height."""
    look = PLAN if solid else NEUTRAL
    figure.add_vline(x=x, line={"color": look.light, "width": 1.5, "dash": "solid" if solid else "dot"})
    left = x < float(np.sqrt(across[0] * across[-1]))
    side = {"xanchor": "left", "xshift": 7} if left else {"xanchor": "right", "xshift": -7}
    anchor = "bottom" if height == 0 else "top"
    label(figure, float(np.log10(x)), height, text, yref="paper", yanchor=anchor, **side)


def label(figure: go.Figure, x: float, y: float, text: str, **where: Any) -> None:
    """Words on paper of their own, so that no line runs through them."""
    paper = "rgba(255,255,255,0.85)"
    figure.add_annotation(x=x, y=y, text=text, showarrow=False, bgcolor=paper, **where)


def sizes(params: Any, epochs: Any) -> list[str]:
    return [f"{short(n)} parameters × {passes(e)}" for n, e in zip(params, epochs, strict=True)]


def least(values: Any) -> float:
    return float(np.nanmin(np.asarray(values, dtype=float)))


def most(values: Any) -> float:
    return float(np.nanmax(np.asarray(values, dtype=float)))


def log_axis(axis: Any, values: np.ndarray, show: Any, digits: int = 3) -> None:
    """A log axis over the values in human units: 1, 2 and 5 of each decade where there are few decades."""
    low, high = least(values), most(values)
    decades = np.log10(high / low)
    steps: Iterable[float] = (1, 2, 5) if decades < 3 else (1, 3) if decades < 5 else (1,)
    ends = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    places = [s * 10.0**k for k in range(ends[0], ends[1] + 1) for s in steps]
    labels = [show(place, digits) for place in places]
    axis.update(
        type="log", range=[float(np.log10(low)), float(np.log10(high))], tickvals=places, ticktext=labels
    )


def plain(values: Any) -> list[float | None]:
    """JSON has no NaN: gaps are None."""
    return [float(v) if np.isfinite(v) else None for v in np.asarray(values, dtype=float)]
