"""Pictures of a decision. Each function returns a matplotlib Figure; no global plotting state is touched.

- `isoflop`: loss along the iso-FLOP curve with the optimum and its flat range
- `allocation_frontier`: optimal (params, epochs) as compute grows, for each law
- `frontier`: size, epochs and loss of the best plans along compute
- `loss_against_compute`: optimal loss for each weight decay, with the crossover marked
- `weight_decays`: the best loss at each weight decay of a weight-decay law, and the best weight decay along
compute
- `loss_terms`: the loss of one model broken into its terms, against epochs
- `single_epoch_frontiers`: the premium that strong weight decay pays while data is fresh
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from planner.calibration import Calibration, CalibrationSource
from planner.inputs import CONTINUOUS, FREE, InvalidInput, Limits, scientific, short
from planner.inputs import epochs as passes
from planner.laws import Style
from planner.plans import frontier_range
from planner.results import Comparison, Crossover, Frontier, Plan, Prediction
from planner.show import curves, palette
from planner.solve import FLOPS_PER_PARAM_TOKEN, allocate, compute_curve, loss_minimising, once_flops

Show = Callable[[float], str]  # how the numbers of an axis are written
_plain = "{:g}".format


def picture(answer: Any, calibration: CalibrationSource) -> Figure:
    """What `--plot` draws of an answer."""
    if isinstance(answer, Frontier):
        return frontier(answer)
    if isinstance(answer, Comparison):
        decays = {row.weight_decay for row in answer.rows}
        only = decays.pop() if len(decays) == 1 else None
        return allocation_frontier(answer.ud, calibration, only, mark=answer.flops, limits=answer.limits)
    kinds: dict[type, Callable[[Any, CalibrationSource], Figure]] = {
        Plan: isoflop,
        Crossover: loss_against_compute,
        Prediction: loss_terms,
    }
    return kinds[type(answer)](answer, calibration)


def isoflop(plan: Plan, calibration: CalibrationSource = None) -> Figure:
    """Loss against epochs at the plan's compute: how flat the optimum is."""
    drawn, flat = curves.isoflop(plan, Calibration.load(calibration), 400), plan.flat_range
    spent = f"{scientific(plan.spent_flops)} FLOPs, weight decay {plan.weight_decay}"
    figure, (axes,) = _figure(f"{short(plan.ud)} unique tokens, {spent}")
    style = _line(palette.law_style(plan.law))
    axes.plot(drawn.epochs, drawn.loss, **style, label=f"{plan.law}: predicted loss")
    axes.plot(drawn.epochs, drawn.base, color="black", linestyle=":", label="if repeats were as good as new")
    near = f"within {flat.tolerance:g} nats of the best"
    axes.axvspan(flat.epochs_min, flat.epochs_max, color=palette.GOOD.light, alpha=0.18, label=near)
    best = f"{short(plan.params)} params x {passes(plan.epochs)}: {plan.loss:.3f}"
    axes.plot([plan.epochs], [plan.loss], "o", color="black", markersize=8, label=best)
    axes.set_ylim(*drawn.shown)
    _finish(axes, "epochs over the unique tokens", "validation loss (nats per token)", x=_plain)
    both_ways = partial(curves.size_at, plan), partial(curves.epochs_at, plan)
    above = axes.secondary_xaxis("top", functions=both_ways)
    above.set_xlabel("parameters at the same compute")
    _log_labels(above.xaxis, short)
    return figure


def allocation_frontier(
    ud: float,
    calibration: CalibrationSource = None,
    weight_decay: Any = None,
    *,
    law: str | None = None,
    span: tuple[float, float] | None = None,
    mark: float | None = None,
    limits: Limits = FREE,
) -> Figure:
    """Where each law wants compute to go: optimal epochs against optimal size as compute grows, always with
    continuous epochs. The additive laws turn back.

    `span` is the range of compute, `mark` one budget to point out, `law` the only law to draw.
    """
    known, limits = Calibration.load(calibration), limits.continuous()
    settings = known.settings if weight_decay is None else (known.setting(weight_decay),)
    titles = [f"{short(ud)} unique tokens, weight decay {setting.weight_decay}" for setting in settings]
    figure, panels = _figure(*titles, width=6.4 * len(settings), height=5.0)
    for axes, setting in zip(panels, settings, strict=True):
        once = once_flops(setting.law(law or known.default_law), ud)
        low, high = span or (once, once * 1e4)
        if mark is not None:  # the budget at hand is in the picture, with a decade around it
            low, high = min(low, mark / 10), max(high, mark * 10)
        for form in [law] if law else list(setting.laws):
            best, line = (
                allocate(setting.law(form), ud, np.geomspace(low, high, 240), limits),
                _line(palette.law_style(form)),
            )
            axes.plot(best.params, curves.unbroken(best), **line, label=form)
            if mark is not None:
                here = allocate(setting.law(form), ud, mark, limits)
                axes.plot([here.params], [here.epochs], "o", color=line["color"], markersize=6)
        axes.set(xscale="log", yscale="log")
        drawn = np.concatenate([line.get_ydata() for line in axes.lines])
        axes.set_ylim(0.8 * float(np.nanmin(drawn, initial=1.0)), None)
        if mark is not None:  # all plans that cost the same lie on one line
            window = axes.axis()
            params = np.geomspace(window[0], window[1], 50)
            same = mark / (FLOPS_PER_PARAM_TOKEN * ud * params)
            axes.plot(params, same, "-", color="grey", linewidth=0.8, label=f"{scientific(mark)} FLOPs")
            axes.axis(window)
        _finish(axes, "parameters", "epochs", x=short, y=_plain)
    return figure


def frontier(along: Frontier) -> Figure:
    """Size, epochs and loss of the best plans along compute, one line for each amount of unique tokens."""
    figure, panels = _figure("", "", "", width=12.0, height=4.2)
    loss = np.where(along.loss <= along.uniform_loss, along.loss, np.nan)
    kinds = (("parameters", along.params, short), ("epochs", along.epochs, _plain))
    for axes, (name, values, show) in zip(
        panels, (*kinds, ("loss (nats per token)", loss, None)), strict=True
    ):
        for number, corpus in enumerate(np.unique(along.ud)):
            here = np.flatnonzero(along.ud == corpus)
            here = here[np.argsort(along.flops[here], kind="stable")]
            label, line = f"{short(corpus)} unique tokens", _line(palette.series(number))
            axes.plot(along.flops[here], values[here], marker=".", **line, label=label)
        _finish(axes, "compute (FLOPs)", name, x=scientific, y=show)
    return figure


def loss_against_compute(crossover: Crossover, calibration: CalibrationSource = None) -> Figure:
    """Optimal loss against compute for each weight decay: where they cross, and where to stop."""
    known, limits = Calibration.load(calibration), crossover.limits
    low, high = crossover.searched
    places = crossover.crossings or [float(np.sqrt(low * high))]
    flops = np.geomspace(max(places[0] / 60, low), min(places[-1] * 30, high), 400)
    figure, (axes,) = _figure(f"{short(crossover.ud)} unique tokens ({crossover.law})")
    for number, decay in enumerate((crossover.weaker, crossover.stronger)):
        one, line = known.law(decay, crossover.law), _line(palette.series(number))
        best = allocate(one, crossover.ud, flops, limits)
        axes.plot(flops, best.loss, **line, label=f"weight decay {decay}")
        along = compute_curve(one, crossover.ud, limits)
        least = loss_minimising(one, crossover.ud, along, limits).single()
        if flops[0] < least.flops < flops[-1]:
            words = f"lowest at {scientific(least.flops)} FLOPs"
            axes.plot([least.flops], [least.loss], "v", color=line["color"], markersize=7, label=words)
    upward = crossover.crossings[int(crossover.better_below == crossover.stronger) :: 2]
    for number, place in enumerate(crossover.crossings):
        axes.axvline(place, color="grey", linewidth=1)
        words = f"C× = {scientific(place)}" if place in upward else f"back at {scientific(place)}"
        # beside the line, in points; below what is said of the crossing before, in shares of the height
        beside: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "top"}
        axes.annotate(words, (place, 0.97 - 0.07 * number), xycoords=("data", "axes fraction"), **beside)
    _finish(axes, "compute (FLOPs)", "optimal loss (nats per token)", x=scientific)
    return figure


def weight_decays(plan: Plan, calibration: CalibrationSource = None) -> Figure:
    """The best loss at each weight decay for the plan's compute, and the best weight decay along compute."""
    known = Calibration.load(calibration or plan.calibration)
    if not known.has_weight_decay_law(plan.law):
        raise InvalidInput(f"calibration {known.name} has no law for every weight decay to draw.")
    if plan.serving is not None or plan.purchase is not None or (plan.members and plan.members.count > 1):
        only = "only where training one model is all that counts"
        raise InvalidInput(f"loss against weight decay is drawn {only}.")
    decays = np.geomspace(*known.weight_decay_range, 161)
    best = allocate(known.law_at(plan.law, decays), plan.ud, plan.spent_flops, CONTINUOUS)
    budget = f"{short(plan.ud)} unique tokens, {scientific(plan.spent_flops)} FLOPs"
    figure, (left, right) = _figure(budget, "along compute", width=11.0)
    colour = palette.law_style(plan.law).light
    left.plot(decays, best.loss, color=colour, label=f"{plan.law}, best size and epochs")
    left.plot([plan.weight_decay], [plan.loss], "o", color="black", label=f"this plan: {plan.weight_decay:g}")
    for one in plan.weight_decay_advice.gains if plan.weight_decay_advice is not None else ():
        label = f"{one.weight_decay:g}: {one.loss:.3f}"
        left.plot([one.weight_decay], [one.loss], "s", color=palette.NEUTRAL.light, label=label)
    _finish(left, "weight decay", "predicted loss", x=_plain)
    span = plan.flops / 100, plan.flops * 100
    along = frontier_range(plan.ud, *span, 33, law=plan.law, calibration=known, spend="all")
    right.plot(along.flops, along.weight_decay, color=colour, label="best weight decay")
    right.plot([plan.flops], [plan.weight_decay], "o", color="black", label="this plan")
    _finish(right, "compute (FLOPs)", "weight decay", x=scientific, y=_plain)
    return figure


def loss_terms(prediction: Prediction, calibration: CalibrationSource = None) -> Figure:
    """The loss of one model on one corpus, broken into its terms, as epochs grow."""
    law = Calibration.load(calibration).law(prediction.weight_decay, prediction.law)
    epochs = np.linspace(min(1.0, 0.8 * prediction.epochs), max(16.0, 1.5 * prediction.epochs), 2000)
    terms = law.terms(prediction.params, prediction.ud, epochs)
    model = f"{short(prediction.params)} parameters, {short(prediction.ud)} unique tokens"
    figure, (axes,) = _figure(f"{model}, weight decay {prediction.weight_decay}")
    colours = [palette.TERMS[name].light for name in terms._fields]
    axes.stackplot(epochs, *terms, labels=list(terms._fields), colors=colours, alpha=0.85)
    axes.plot(epochs, terms.loss, color="black", linewidth=1.2)
    here = f"{passes(prediction.epochs)}: {prediction.loss:.3f}"
    axes.plot([prediction.epochs], [prediction.loss], "o", color="black", label=here)
    least = int(np.argmin(terms.loss))
    lowest = f"lowest at {passes(epochs[least])}"
    axes.plot([epochs[least]], [terms.loss[least]], "v", color="black", label=lowest)
    axes.set_xlim(epochs[0], epochs[-1])
    axes.set_ylim(0.9 * float(np.min(terms.irreducible)), None)
    axes.set_xlabel("epochs over the unique tokens")
    axes.set_ylabel(f"predicted loss ({prediction.law}, nats per token)")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], frameon=False, loc="outside right center")
    return figure


def single_epoch_frontiers(
    low: float, high: float, calibration: CalibrationSource = None, weight_decay: Any = None
) -> Figure:
    """Fresh data only: optimal loss against compute, and how large a model each weight decay prefers."""
    known = Calibration.load(calibration)
    settings = known.settings if weight_decay is None else (known.setting(weight_decay),)
    flops = np.geomspace(low, high, 160)
    premium = "The premium of strong weight decay while data is fresh"
    title = premium if len(settings) > 1 else "Optimal loss while data is fresh"
    figure, (left, right) = _figure(title, "", width=11.0)
    for number, setting in enumerate(settings):
        line, name = _line(palette.series(number)), f"weight decay {setting.weight_decay}"
        # The corpus size does not matter when repeats count as new.
        best = allocate(setting.law(known.default_law).base(), 1e9, flops, CONTINUOUS)
        left.plot(flops, best.loss, **line, label=name)
        right.plot(flops, best.params, **line, label=f"{name}: parameters")
        right.plot(flops, best.tokens, **line, linewidth=0.9, alpha=0.6, label=f"{name}: fresh tokens")
    _finish(left, "compute (FLOPs)", "optimal loss with fresh data (nats per token)", x=scientific)
    _finish(right, "compute (FLOPs)", "optimal size and tokens", x=scientific, y=short)
    return figure


# -- what all pictures share


def _figure(*titles: str, width: float = 7.2, height: float = 4.8) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each title."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    panels = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _line(style: Style) -> dict[str, Any]:
    return {"color": style.light, "linestyle": palette.line_style(style.dash)}


def _finish(axes: Axes, across: str, up: str, x: Show | None = None, y: Show | None = None) -> None:
    """What the axes are called, and the legend; an axis with a way to write its numbers is logarithmic."""
    axes.set(xlabel=across, ylabel=up, xscale="log" if x else "linear", yscale="log" if y else "linear")
    for axis, show in ((axes.xaxis, x), (axes.yaxis, y)):
        if show is not None:
            _log_labels(axis, show)
    axes.legend(frameon=False, fontsize=9)


def _log_labels(axis: Any, show: Show) -> None:
    """Labels on the powers of ten, and on 2 and 5 of each where there are few of them."""
    low, high = sorted(axis.get_view_interval())
    few = low > 0 and high / low < 1e3
    axis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axis.set_minor_formatter(
        FuncFormatter(lambda value, _: show(value) if few and f"{value:.0e}"[0] in "25" else "")
    )
