"""Interactive pictures of a decision. Each function takes an answer and returns a plotly Figure.

Looks are those of `planner.palette`: lines differ in dash as well as colour, and points in shape. They are
drawn for light paper on a transparent background; the page's style sheet gives each colour its pair on dark
paper, and text its ink. What the signs mean is said by `legend`, outside of the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from calibration.ui.answers import Answer, limits
from planner.advice import turning_point
from planner.allocation import FLOPS_PER_PARAM_TOKEN, Allocation, allocate
from planner.calibration_files import Calibration, Setting
from planner.landscape import landscape, search_range
from planner.laws import BASE_FORM, Law
from planner.limits import CONTINUOUS
from planner.look import Look
from planner.palette import GOOD, NEUTRAL, PLAN, TERMS, law_label, law_look, series
from planner.results import Alternative, Plan
from planner.spending import Spent, spend
from planner.units import epochs as passes
from planner.units import scientific, short, signed

_LARGEST_SCATTER = 4000
_JUMP = 0.25  # in ln(epochs), from one point of a frontier to the next: another valley, not a way there


def isoflop(found: Answer) -> go.Figure:
    """Loss against epochs at the plan's compute: how flat the optimum is."""
    p = found.plan
    law = found.calibration.law(p.weight_decay, p.law)
    product = p.spent_flops / (FLOPS_PER_PARAM_TOKEN * p.ud)
    flat = p.flat_range
    low, high = min(flat.epochs_min / 4, p.epochs / 8), max(flat.epochs_max * 4, p.epochs * 6)
    epochs = np.geomspace(max(low, 1e-3), high, 160)
    epochs = np.union1d(epochs, [p.epochs])  # the plan itself, which may sit on a kink at one epoch
    loss, base = (np.asarray(one.loss(product / epochs, p.ud, epochs)) for one in (law, law.base()))
    figure = _figure("epochs at this compute", "predicted loss (nats per token)")
    ends = {"x0": flat.epochs_min, "x1": flat.epochs_max}
    figure.add_vrect(**ends, fillcolor=GOOD.light, opacity=0.18, line_width=0, layer="below")
    text = _sizes(product / epochs, epochs)
    fresh = law_look(BASE_FORM)
    _line(figure, epochs, base, "if repeats were as good as new", fresh, text, width=1.5)
    _line(figure, epochs, loss, law_label(p.law), law_look(p.law), text)
    plan = f"the plan: {short(p.params)} × {passes(p.epochs)}"
    _point(figure, p.epochs, p.loss, plan, "circle", PLAN)
    _key(figure, f"within {flat.tolerance:g} nats of the best", "square", GOOD)
    _log_axis(figure.layout.xaxis, epochs, short)
    least, most = min(float(base.min()), p.loss), p.loss
    span = most - least
    figure.update_yaxes(range=[least - 0.1 * span - 0.05, most + max(0.6, 3 * span)])
    return figure


def frontier(found: Answer) -> go.Figure:
    """Optimal size and epochs of each law as compute grows, where it turns back, and this budget."""
    p = found.plan
    setting = found.calibration.setting(p.weight_decay)
    start = float(search_range(setting.law(p.law), p.ud)[0])
    flops = np.geomspace(min(start * 1e4, p.flops / 10), max(start * 1e8, p.flops * 10), 180)
    figure = _figure("parameters", "epochs")
    best = {form: allocate(setting.law(form), p.ud, flops, CONTINUOUS) for form in setting.laws}
    for form, along in best.items():
        _frontier_of(figure, found, setting, form, flops, along)
    sizes = np.concatenate([along.params for along in best.values()])
    params = np.array([_least(sizes), _most(sizes)])
    top = max(_most(along.epochs) for along in best.values())
    same = p.spent_flops / (FLOPS_PER_PARAM_TOKEN * p.ud * params)
    _line(figure, params, same, f"{scientific(p.spent_flops)} FLOPs", NEUTRAL, None, width=1)
    _key(figure, "this budget", "circle", NEUTRAL)
    _key(figure, "turns back", "triangle-down", NEUTRAL)
    _log_axis(figure.layout.xaxis, params, short)
    _log_axis(figure.layout.yaxis, np.array([0.7, top * 1.3]), short)
    return figure


def _frontier_of(
    figure: go.Figure, found: Answer, setting: Setting, form: str, flops: np.ndarray, along: Allocation
) -> None:
    p, law, look = found.plan, setting.law(form), law_look(form)
    name = law_label(form) + (" (in use)" if form == p.law else "")
    text = [
        f"{scientific(c)} FLOPs: {size}<br>loss {loss:.3f}"
        for c, size, loss in zip(flops, _sizes(along.params, along.epochs), along.loss, strict=True)
    ]
    jumps = np.abs(np.diff(np.log(along.epochs), prepend=np.log(along.epochs[0]))) > _JUMP
    steps = np.where(jumps, np.nan, along.epochs)
    _line(figure, along.params, steps, name, look, text, width=3.5 if form == p.law else 2, group=form)
    chosen: dict[str, Plan | Alternative] = {p.law: p, **{other.law: other for other in p.other_laws}}
    here = chosen[form]
    said = f"this budget: {short(here.params)} parameters × {passes(here.epochs)}"
    _point(figure, here.params, here.epochs, name, "circle", look, group=form, text=said)
    turn = turning_point(law, p.ud, landscape(law, p.ud, search_range(law, p.ud)))
    if turn is not None:
        said = f"turns back at {scientific(turn.flops)} FLOPs"
        _point(figure, turn.params, turn.epochs, name, "triangle-down", look, group=form, text=said)


def crossover(found: Answer) -> go.Figure:
    """Optimal loss against compute for each weight decay, with C×, and where more compute starts to hurt."""
    p = found.plan
    settings = [s for s in found.calibration.settings if p.law in s.laws]
    centre = p.crossover_flops or p.flops
    flops = np.geomspace(min(centre / 60, p.flops / 10), max(centre * 30, p.flops * 10), 120)
    figure = _figure("compute (FLOPs)", "optimal loss (nats per token)")
    for i, setting in enumerate(settings):
        look, name = series(i), f"weight decay {setting.weight_decay}"
        along = allocate(setting.law(p.law), p.ud, flops, limits(found.choices))
        _line(figure, flops, along.loss, name, look, _with_loss(along), group=name)
        least = int(np.nanargmin(np.where(np.isfinite(along.loss), along.loss, np.inf)))
        if 0 < least < len(flops) - 1:
            said = f"lowest at {scientific(flops[least])} FLOPs: beyond it more compute hurts"
            _point(
                figure, flops[least], along.loss[least], name, "triangle-down", look, group=name, text=said
            )
    if p.crossover_flops is not None:
        _upright(figure, p.crossover_flops, f"C× {scientific(p.crossover_flops)}", "top", flops)
    _upright(figure, p.flops, f"your budget {scientific(p.flops)}", "bottom", flops)
    _point(figure, p.spent_flops, p.loss, "the plan", "circle", PLAN)
    _log_axis(figure.layout.xaxis, flops, scientific, digits=1)
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
            line={"color": TERMS[name].light, "width": 1},
            hovertemplate="%{y:.3f}",
        )
    total = np.asarray(parts.loss)
    least = int(np.argmin(total))
    if least < len(epochs) - 1:
        lowest = f"lowest at {epochs[least]:.1f} epochs"
        _point(figure, epochs[least], total[least], lowest, "triangle-down", NEUTRAL)
    if p.epochs >= 1:
        _point(figure, p.epochs, p.loss, f"the plan: {passes(p.epochs)}", "circle", PLAN)
    # An area means its height: the axis starts at zero.
    figure.update_xaxes(range=[1, float(epochs[-1])], hoverformat=".1f", unifiedhovertitle_text="%{x} epochs")
    figure.update_yaxes(range=[0, 1.05 * float(np.max(total))])
    figure.update_layout(hovermode="x unified")
    return figure


def whatif(found: Answer) -> go.Figure:
    """The best loss with more or less data, compute, or both; at one, the plan as it is."""
    p = found.plan
    factors = 2.0 ** np.linspace(-2, 4, 49)
    twice = int(np.argmin(np.abs(factors - 2)))
    figure = _figure("times what you have", "best loss (nats per token)")
    doubled: list[tuple[float, str]] = []
    for i, (name, data, compute) in enumerate(_MORE):
        best, look = _best(found, p.ud * factors**data, p.flops * factors**compute), series(2 + i)
        losses = best.loss
        text = [
            f"{size}, weight decay {p.weight_decay}<br>loss {loss:.3f}"
            for size, loss in zip(_sizes(best.params, best.epochs), losses, strict=True)
        ]
        _line(figure, factors, losses, name, look, text, group=name)
        change = signed(float(losses[twice] - p.loss))
        said = f"twice: {change} nats, {text[twice]}"
        _point(figure, 2.0, losses[twice], name, "diamond", look, group=name, text=said)
        doubled.append((float(losses[twice]), change))
    for (loss, change), (right, up) in zip(sorted(doubled), _APART, strict=True):
        _label(figure, float(np.log10(2.0)), loss, change, xshift=right, yshift=up)
    _point(figure, 1.0, p.loss, "the plan", "circle", PLAN)
    shown = np.concatenate([np.asarray(trace.y, dtype=float) for trace in figure.data])
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    high = min(high, p.loss + max(0.5, 2 * (p.loss - low)))  # what explodes would flatten the rest
    figure.update_yaxes(range=[low - 0.08 * (high - low), high + 0.05 * (high - low)])
    figure.update_xaxes(type="log", tickvals=list(_FACTORS), ticktext=list(_FACTORS.values()))
    return figure


_MORE = (("more data", 1, 0), ("more compute", 0, 1), ("more of both", 1, 1))
_APART = ((0, -17), (34, 0), (0, 17))  # pixels right and up, so that labels keep apart
_FACTORS = {0.25: "¼ ×", 0.5: "½ ×", 1.0: "1 ×", 2.0: "2 ×", 4.0: "4 ×", 8.0: "8 ×", 16.0: "16 ×"}


def predicted_observed(known: Calibration, runs: pd.DataFrame) -> go.Figure:
    """What the recommended law predicts for each run, against what was observed."""
    figure = _figure("predicted loss", "observed loss")
    figure.update_layout(showlegend=True)
    for i, setting in enumerate(known.settings):
        here = runs[np.isclose(runs["weight_decay"], setting.weight_decay, rtol=1e-9, atol=1e-12)]
        here = here[:_LARGEST_SCATTER]
        name = f"weight decay {setting.weight_decay}"
        law = setting.law(known.default_law)
        once = here["epochs"] <= 1
        _runs(figure, law, here[once], f"{name}, one epoch", "circle-open", series(i))
        _runs(figure, law, here[~once], f"{name}, repeated", "x-thin-open", series(i))
    seen = np.concatenate([np.asarray([*trace.x, *trace.y], dtype=float) for trace in figure.data])
    ends = np.array([np.nanmin(seen), np.nanmax(seen)])
    _line(figure, ends, ends, "equal", NEUTRAL, None, width=1)
    return figure


def _runs(figure: go.Figure, law: Law, runs: pd.DataFrame, name: str, symbol: str, look: Look) -> None:
    if runs.empty:
        return
    columns = ("params", "unique_tokens", "epochs", "loss")
    n, u, e, loss = (runs[column].to_numpy(dtype=float) for column in columns)
    text = [
        f"{escape(str(run)[:60])}<br>{short(a)} parameters, {short(b)} unique tokens, {passes(c)}"
        for run, a, b, c in zip(runs["run"], n, u, e, strict=True)
    ]
    figure.add_scatter(
        x=_plain(law.loss(n, u, e)),
        y=_plain(loss),
        mode="markers",
        text=text,
        name=name,
        marker={"symbol": symbol, "size": 8, "color": look.light, "line": {"width": 1.5}},
        hovertemplate="%{text}<br>predicted %{x:.3f}, observed %{y:.3f}<extra></extra>",
    )


PICTURES = {
    "isoflop": isoflop,
    "frontier": frontier,
    "crossover": crossover,
    "terms": terms,
    "whatif": whatif,
}
# -- pieces -------------------------------------------------------------------------------------------------


def _best(found: Answer, ud: np.ndarray, flops: np.ndarray) -> Spent:
    """Plans along budgets within the visitor's limits, at the plan's weight decay, as the text has it."""
    p, setting = found.plan, found.calibration.setting(found.plan.weight_decay)
    error = setting.error(p.law, p.flat_range.tolerance)
    return spend(setting.law(p.law), ud, flops, error, limits(found.choices))


def _figure(across: str, up: str) -> go.Figure:
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
        height=430,
        margin={"l": 56, "r": 16, "t": 12, "b": 48},
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


def _line(
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
    figure.add_scatter(
        x=_plain(x), y=_plain(y), name=name, mode="lines", line=line, legendgroup=group, **hover
    )


def _point(
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


def _key(figure: go.Figure, name: str, symbol: str, look: Look) -> None:
    """Only an entry of the legend, for a sign that stands in the picture many times or is an area."""
    marker = {"symbol": symbol, "size": 12, "color": look.light}
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name)


def _upright(figure: go.Figure, x: float, text: str, place: str, across: np.ndarray) -> None:
    """A dotted line with its label beside it, on the side where there is more room."""
    figure.add_vline(x=x, line={"color": NEUTRAL.light, "width": 1, "dash": "dot"})
    left = x < float(np.sqrt(across[0] * across[-1]))
    side = {"xanchor": "left", "xshift": 7} if left else {"xanchor": "right", "xshift": -7}
    height = 1 if place == "top" else 0
    _label(figure, float(np.log10(x)), height, text, yref="paper", yanchor=place, **side)


def _label(figure: go.Figure, x: float, y: float, text: str, **where: Any) -> None:
    """Words on paper of their own, so that no line runs through them."""
    paper = "rgba(255,255,255,0.85)"
    figure.add_annotation(x=x, y=y, text=text, showarrow=False, bgcolor=paper, **where)


def _sizes(params: Any, epochs: Any) -> list[str]:
    return [f"{short(n)} parameters × {passes(e)}" for n, e in zip(params, epochs, strict=True)]


def _with_loss(along: Allocation) -> list[str]:
    sizes = _sizes(along.params, along.epochs)
    return [f"{size}<br>loss {loss:.3f}" for size, loss in zip(sizes, along.loss, strict=True)]


def _least(values: Any) -> float:
    return float(np.nanmin(np.asarray(values, dtype=float)))


def _most(values: Any) -> float:
    return float(np.nanmax(np.asarray(values, dtype=float)))


def _log_axis(axis: Any, values: np.ndarray, show: Any, digits: int = 3) -> None:
    """A log axis over the values in human units: 1, 2 and 5 of each decade where there are few decades."""
    low, high = _least(values), _most(values)
    decades = np.log10(high / low)
    steps: Iterable[float] = (1, 2, 5) if decades < 3 else (1, 3) if decades < 5 else (1,)
    ends = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    places = [s * 10.0**k for k in range(ends[0], ends[1] + 1) for s in steps]
    labels = [show(place, digits) for place in places]
    axis.update(
        type="log", range=[float(np.log10(low)), float(np.log10(high))], tickvals=places, ticktext=labels
    )


def _plain(values: Any) -> list[float | None]:
    """JSON has no NaN: gaps are None."""
    return [float(v) if np.isfinite(v) else None for v in np.asarray(values, dtype=float)]
