"""Interactive pictures of a decision. Each function takes an answer and returns a plotly Figure.

Colours are Okabe and Ito's, which people with any colour vision can tell apart; lines differ in dash as well, and points in shape.
Backgrounds are transparent and text has no colour of its own: the page's style sheet gives it the ink of the light or dark theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from calibration.reports.plots import COLOURS, LABELS, SERIES
from calibration.ui.answers import Answer
from calibration.ui.state import WHOLE
from planner.advice import remarkable_points
from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.calibration_files import Calibration
from planner.crossings import landscape, search_range
from planner.results import Alternative, Plan
from planner.units import count, number, scientific, short

_DASHES = {
    "chinchilla": "dot",
    "exponential_decay": "dash",
    "effective_parameters": "longdash",
    "additive_1p": "dashdot",
    "additive_2p": "longdashdot",
    "additive_4p": "solid",
}
_SERIES_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_TERMS = {"floor": "#999999", "capacity": "#56B4E9", "data": "#009E73", "overfitting": "#D55E00"}
_GREY, _GREEN, _ACCENT = "#8a8a8a", "#009E73", "#D55E00"
_LARGEST_SCATTER = 4000


def isoflop(found: Answer) -> go.Figure:
    """Loss against epochs at the plan's compute: how flat the optimum is."""
    p = found.plan
    law = found.calibration.law(p.weight_decay, p.law)
    product = p.flops / (FLOPS_PER_PARAM_TOKEN * p.ud)
    flat = p.flat_range
    epochs = np.geomspace(
        max(min(flat.epochs_min / 4, p.epochs / 8), 1e-3), max(flat.epochs_max * 4, p.epochs * 6), 160
    )
    epochs = np.union1d(epochs, [p.epochs])  # the plan itself, which may sit on a kink at one epoch
    loss, base = (np.asarray(one.loss(product / epochs, p.ud, epochs)) for one in (law, law.base()))
    low, high = min(float(base.min()), p.loss), p.loss
    ceiling = high + max(0.6, 3 * (high - low))
    figure = _figure(
        "epochs (at the same compute: the more epochs, the smaller the model)",
        "predicted loss (nats per token)",
    )
    figure.add_vrect(x0=flat.epochs_min, x1=flat.epochs_max, fillcolor=_GREEN, opacity=0.18, line_width=0)
    text = [f"{short(n)} parameters × {e:.3g} epochs" for n, e in zip(product / epochs, epochs, strict=True)]
    _line(figure, epochs, base, "if repeats were as good as new", COLOURS["chinchilla"], "dot", text)
    _line(figure, epochs, loss, LABELS[p.law], COLOURS["additive_4p"], "solid", text)
    _point(
        figure, p.epochs, p.loss, f"the plan: {short(p.params)} × {p.epochs:.3g} epochs", "circle", _ACCENT
    )
    figure.add_scatter(  # a vrect has no entry in the legend
        x=[None],
        y=[None],
        mode="markers",
        marker={"symbol": "square", "size": 13, "color": _GREEN, "opacity": 0.4},
        name=f"within {flat.tolerance:g} nats of the best",
    )
    figure.update_xaxes(
        type="log", range=[float(np.log10(epochs[0])), float(np.log10(epochs[-1]))], **_ticks(epochs, short)
    )
    figure.update_yaxes(range=[low - 0.1 * (high - low) - 0.05, ceiling])
    return figure


def frontier(found: Answer) -> go.Figure:
    """Optimal size and epochs of each law as compute grows, where it turns back, and where this budget lies."""
    p = found.plan
    setting = found.calibration.setting(p.weight_decay)
    start = float(search_range(setting.law(p.law), p.ud)[0])
    flops = np.geomspace(min(start * 1e4, p.flops / 10), max(start * 1e8, p.flops * 10), 90)
    chosen: dict[str, Plan | Alternative] = {p.law: p, **{other.law: other for other in p.other_laws}}
    figure = _figure("parameters", "epochs")
    for form in setting.laws:
        law = setting.law(form)
        best = allocate(law, p.ud, flops, whole_epochs=False)
        text = [f"{scientific(c)} FLOPs: loss {loss:.3f}" for c, loss in zip(flops, best.loss, strict=True)]
        name = LABELS[form] + (" (in use)" if form == p.law else "")
        width = 3.5 if form == p.law else 2
        _line(figure, best.params, best.epochs, name, COLOURS[form], _DASHES[form], text, width, group=form)
        here = chosen[form]
        said = f"this budget: {short(here.params)} × {here.epochs:.3g} epochs"
        _point(figure, here.params, here.epochs, name, "circle", COLOURS[form], group=form, text=said)
        turn, _ = remarkable_points(law, p.ud, landscape(law, p.ud, search_range(law, p.ud)))
        if turn is not None:
            said = f"turns back at {scientific(turn.flops)} FLOPs"
            _point(
                figure, turn.params, turn.epochs, name, "triangle-down", COLOURS[form], group=form, text=said
            )
    params = np.array(
        [float(np.nanmin([t.x[0] for t in figure.data])), float(np.nanmax([t.x[-1] for t in figure.data]))]
    )
    same = p.flops / (FLOPS_PER_PARAM_TOKEN * p.ud * params)
    _line(figure, params, same, f"{scientific(p.flops)} FLOPs", _GREY, "solid", None, 1)
    for shape, what in (("circle", "this budget"), ("triangle-down", "turns back")):
        marker = {"symbol": shape, "size": 10, "color": _GREY}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=what)
    top = float(np.nanmax([np.nanmax(np.asarray(t.y, dtype=float)) for t in figure.data[:-3]]))
    figure.update_xaxes(type="log", range=[float(np.log10(v)) for v in params], **_ticks(params, short))
    figure.update_yaxes(
        type="log", range=[float(np.log10(0.7)), float(np.log10(top * 1.3))], **_ticks([0.7, top], short)
    )
    return figure


def crossover(found: Answer) -> go.Figure:
    """Optimal loss against compute for each weight decay, with C× and the compute beyond which more of it hurts."""
    p = found.plan
    settings = [s for s in found.calibration.settings if p.law in s.laws]
    centre = p.crossover_flops or p.flops
    flops = np.geomspace(min(centre / 60, p.flops / 10), max(centre * 30, p.flops * 10), 120)
    figure = _figure("compute (FLOPs)", "optimal loss (nats per token)")
    for i, setting in enumerate(settings):
        law, colour = setting.law(p.law), SERIES[i % len(SERIES)]
        along = allocate(law, p.ud, flops, **_how(found))
        text = [
            f"{short(n)} parameters × {e:.3g} epochs" for n, e in zip(along.params, along.epochs, strict=True)
        ]
        name = f"weight decay {setting.weight_decay}"
        dash = _SERIES_DASHES[i % len(_SERIES_DASHES)]
        _line(figure, flops, along.loss, name, colour, dash, text, group=name)
        least = int(np.nanargmin(np.where(np.isfinite(along.loss), along.loss, np.inf)))
        if 0 < least < len(flops) - 1:
            said = f"lowest at {scientific(flops[least])} FLOPs: beyond it more compute hurts"
            _point(
                figure, flops[least], along.loss[least], name, "triangle-down", colour, group=name, text=said
            )
    if p.crossover_flops is not None:
        _upright(figure, p.crossover_flops, f"C× {scientific(p.crossover_flops)}", "top")
    _upright(figure, p.flops, f"your budget {scientific(p.flops)}", "bottom")
    _point(figure, p.flops, p.loss, "the plan", "circle", _ACCENT)
    figure.update_xaxes(
        type="log", range=[float(np.log10(v)) for v in (flops[0], flops[-1])], **_ticks(flops, scientific, 1)
    )
    return figure


def terms(found: Answer) -> go.Figure:
    """The planned model's loss broken into its terms, as it is trained for more epochs."""
    p = found.plan
    law = found.calibration.law(p.weight_decay, p.law)
    epochs = np.linspace(1.0, max(16.0, 2 * p.epochs), 120)
    parts = law.terms(p.params, p.ud, epochs)
    figure = _figure(
        f"epochs of a model with {short(p.params)} parameters", "predicted loss (nats per token)"
    )
    for name, values in parts._asdict().items():
        figure.add_scatter(
            x=_plain(epochs),
            y=_plain(np.broadcast_to(values, epochs.shape)),
            name=name,
            stackgroup="terms",
            mode="lines",
            line={"color": _TERMS[name], "width": 1},
            hovertemplate="%{y:.3f}",
        )
    total = np.asarray(parts.loss)
    least = int(np.argmin(total))
    if least < len(epochs) - 1:
        _point(
            figure,
            epochs[least],
            total[least],
            f"lowest at {epochs[least]:.1f} epochs",
            "triangle-down",
            _GREY,
        )
    if p.epochs >= 1:
        _point(figure, p.epochs, p.loss, f"the plan: {p.epochs:.3g} epochs", "circle", "#000000")
    floor, top = float(np.min(parts.floor)), float(np.max(total))
    figure.update_xaxes(range=[1, float(epochs[-1])])
    figure.update_yaxes(range=[floor - 0.25 * (top - floor), top + 0.1 * (top - floor)])
    figure.update_layout(hovermode="x unified")
    return figure


def whatif(found: Answer) -> go.Figure:
    """The best loss with more or less data, compute, or both; at one, the plan as it is."""
    p = found.plan
    factors = 2.0 ** np.linspace(-2, 4, 49)
    figure = _figure("times what you have", "predicted loss of the best plan (nats per token)")
    doubled = []
    for i, (name, data, compute) in enumerate(
        (("more data", 1, 0), ("more compute", 0, 1), ("more of both", 1, 1))
    ):
        best = _best(found, p.ud * factors**data, p.flops * factors**compute)
        text = [
            f"{short(n)} parameters × {e:.3g} epochs, weight decay {d}"
            for n, e, d in zip(best["params"], best["epochs"], best["weight_decay"], strict=True)
        ]
        _line(figure, factors, best["loss"], name, SERIES[i], _SERIES_DASHES[i], text, group=name)
        twice = int(np.argmin(np.abs(factors - 2)))
        change = f"{best['loss'][twice] - p.loss:+.3f}"
        _point(
            figure,
            2.0,
            best["loss"][twice],
            name,
            "diamond",
            SERIES[i],
            name,
            f"twice: {change} nats, {text[twice]}",
        )
        doubled.append(figure.data[-1].update(mode="markers+text", texttemplate=change))
    by_loss = sorted(doubled, key=lambda point: point.y[0])
    for point, side in zip(
        by_loss, ("bottom center", "middle right", "top center"), strict=True
    ):  # so that labels keep apart
        point.textposition = side
    _point(figure, 1.0, p.loss, "the plan", "circle", _ACCENT)
    losses = np.concatenate([np.asarray(trace.y, dtype=float) for trace in figure.data])
    low, high = float(np.nanmin(losses)), float(np.nanmax(losses))
    high = min(
        high, p.loss + max(0.5, 2 * (p.loss - low))
    )  # far beyond a limit the loss explodes and would flatten the rest
    figure.update_yaxes(range=[low - 0.08 * (high - low), high + 0.05 * (high - low)])
    marks = [0.25, 0.5, 1, 2, 4, 8, 16]
    labels = ["¼ ×", "½ ×", "1 ×", "2 ×", "4 ×", "8 ×", "16 ×"]
    figure.update_xaxes(type="log", tickvals=marks, ticktext=labels)
    return figure


def predicted_observed(known: Calibration, runs: pd.DataFrame) -> go.Figure:
    """What the recommended law predicts for each run, against what was observed."""
    figure = _figure("predicted loss", "observed loss")
    seen = []
    for i, setting in enumerate(known.settings):
        law = setting.law(known.default_law)
        here = runs[np.isclose(runs["weight_decay"], setting.weight_decay, rtol=1e-9, atol=1e-12)][
            :_LARGEST_SCATTER
        ]
        for repeated, shape in ((False, "circle-open"), (True, "x-thin-open")):
            part = here[(here["epochs"] > 1) == repeated]
            if part.empty:
                continue
            n, u, e, loss = (
                part[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs", "loss")
            )
            predicted = np.asarray(law.loss(n, u, e))
            seen += [predicted.min(), predicted.max(), loss.min(), loss.max()]
            text = [
                f"{escape(str(name)[:60])}<br>{short(a)} parameters, {short(b)} unique tokens, {c:.3g} epochs"
                for name, a, b, c in zip(part["run"], n, u, e, strict=True)
            ]
            figure.add_scatter(
                x=_plain(predicted),
                y=_plain(loss),
                mode="markers",
                text=text,
                name=f"weight decay {setting.weight_decay}, {'repeated' if repeated else 'one epoch'}",
                marker={"symbol": shape, "size": 8, "color": SERIES[i % len(SERIES)], "line": {"width": 1.5}},
                hovertemplate="%{text}<br>predicted %{x:.3f}, observed %{y:.3f}<extra></extra>",
            )
    ends = np.array([min(seen), max(seen)])
    _line(figure, ends, ends, "equal", _GREY, "solid", None, 1)
    return figure


PICTURES = {
    "isoflop": isoflop,
    "frontier": frontier,
    "crossover": crossover,
    "terms": terms,
    "whatif": whatif,
}
CAPTIONS = {
    "isoflop": "Every point spends the same compute: few epochs of a large model on the left, many of a small one on the right.",
    "frontier": "Each line is one law's best plan as compute grows. Laws that charge for repetition turn back: fewer epochs, larger models.",
    "crossover": "Strong weight decay pays a premium while data is fresh, and wins from C× on. Past the triangles more compute hurts.",
    "terms": "What the loss of the planned model consists of, if it were trained for fewer or more epochs.",
    "whatif": "The best loss if you had less or more of one thing and the same of the other, at the weight decay that is best then unless you chose one; diamonds mark twice as much.",
}


# -- pieces ---------------------------------------------------------------------------------------------------------------


def _best(found: Answer, ud: np.ndarray, flops: np.ndarray) -> dict[str, np.ndarray]:
    """The best plans along budgets, within the visitor's limits, for the weight decay asked for or the best one."""
    p, c, how = found.plan, found.choices, _how(found)
    settings = (
        [found.calibration.setting(c.weight_decay)] if c.weight_decay else list(found.calibration.settings)
    )
    each = [allocate(s.law(p.law), ud, flops, **how) for s in settings]
    losses = np.stack([np.where(np.isfinite(one.loss), one.loss, np.inf) for one in each])
    winner, index = np.argmin(losses, axis=0), np.arange(len(ud))
    best = {
        name: np.stack([getattr(one, name) for one in each])[winner, index]
        for name in ("params", "epochs", "loss")
    }
    return {**best, "weight_decay": np.array([s.weight_decay for s in settings])[winner]}


def _how(found: Answer) -> dict[str, Any]:
    """The visitor's limits as `allocate` takes them, so that the plan lies on the curves."""
    c = found.choices
    how: dict[str, Any] = {"whole_epochs": c.epochs == WHOLE}
    for name in ("min_params", "max_params"):
        if getattr(c, name):
            how[name] = count(getattr(c, name), name)
    if c.max_epochs:
        how["max_epochs"] = number(c.max_epochs, "max_epochs")
    return how


def _figure(across: str, up: str) -> go.Figure:
    figure = go.Figure()
    axis = {
        "gridcolor": "rgba(128,128,128,0.22)",
        "zeroline": False,
        "linecolor": "rgba(128,128,128,0.6)",
        "automargin": True,
    }
    figure.update_layout(
        template="none",
        height=430,
        margin={"l": 56, "r": 16, "t": 12, "b": 48},
        hovermode="closest",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0, "bgcolor": "rgba(0,0,0,0)"},
        modebar={
            "orientation": "v",
            "bgcolor": "rgba(0,0,0,0)",
            "color": _GREY,
            "activecolor": "#0072B2",
            "remove": ["select2d", "lasso2d", "autoScale2d"],
        },
        xaxis={"title": {"text": across, "font": {"size": 13}}, **axis},
        yaxis={"title": {"text": up, "font": {"size": 13}}, **axis},
        dragmode="zoom",
    )
    return figure


def _line(
    figure: go.Figure,
    x: Any,
    y: Any,
    name: str,
    colour: str,
    dash: str,
    text: Sequence[str] | None,
    width: float = 2.5,
    group: str | None = None,
) -> None:
    hover: dict[str, Any] = {"hoverinfo": "skip"}
    if text is not None:
        hover = {
            "text": list(text),
            "hovertemplate": "%{text}<br>loss %{y:.3f}<extra></extra>"
            if group is None
            else "%{text}<extra></extra>",
        }
    figure.add_scatter(
        x=_plain(x),
        y=_plain(y),
        name=name,
        mode="lines",
        line={"color": colour, "dash": dash, "width": width},
        legendgroup=group,
        **hover,
    )


def _point(
    figure: go.Figure,
    x: Any,
    y: Any,
    name: str,
    symbol: str,
    colour: str,
    group: str | None = None,
    text: str | None = None,
) -> None:
    figure.add_scatter(
        x=[float(x)],
        y=[float(y)],
        name=name,
        mode="markers",
        legendgroup=group,
        showlegend=group is None,
        marker={"symbol": symbol, "size": 12, "color": colour, "line": {"color": "white", "width": 1.5}},
        hovertemplate=f"{name}{f'<br>{text}' if text else ''}<extra></extra>",
    )


def _upright(figure: go.Figure, x: float, text: str, place: str) -> None:
    """A dotted line with its label: on the left at the top, on the right at the bottom, so that two of them keep apart."""
    figure.add_vline(x=x, line={"color": _GREY, "width": 1, "dash": "dot"})
    side, shift = ("right", -4) if place == "top" else ("left", 4)
    figure.add_annotation(
        x=float(np.log10(x)),
        y=1 if place == "top" else 0,
        yref="paper",
        text=text,
        showarrow=False,
        xanchor=side,
        yanchor=place,
        xshift=shift,
    )


def _ticks(values: Any, show: Any, digits: int = 3) -> dict[str, Any]:
    """Ticks of a log axis in human units: one, two and five of each decade where there are few decades."""
    low, high = float(np.min(values)), float(np.max(values))
    decades = np.log10(high / low)
    steps: Iterable[float] = (1, 2, 5) if decades < 3 else (1, 3) if decades < 5 else (1,)
    places = [
        s * 10.0**k
        for k in range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        for s in steps
    ]
    return {"tickvals": places, "ticktext": [show(place, digits) for place in places]}


def _plain(values: Any) -> list[float | None]:
    """JSON has no NaN: gaps are None."""
    return [float(v) if np.isfinite(v) else None for v in np.asarray(values, dtype=float)]
