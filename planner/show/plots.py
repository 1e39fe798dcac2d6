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
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from planner.calibration import Calibration, CalibrationSource
from planner.inputs import CONTINUOUS, FREE, InvalidInput, Limits, scientific, short
from planner.inputs import epochs as passes
from planner.laws import Law
from planner.plans import frontier_range
from planner.results import Crossover, Frontier, Plan, Prediction
from planner.show import palette
from planner.solve import FLOPS_PER_PARAM_TOKEN, allocate, compute_curve, loss_minimising, once_flops


def isoflop(plan: Plan, calibration: CalibrationSource = None) -> Figure:
    """Loss against epochs at the plan's compute: how flat the optimum is."""
    known = Calibration.load(calibration)
    law = known.law(plan.weight_decay, plan.law)
    params, inverse = _paid_for(plan)
    count = 1 if plan.members is None else plan.members.count
    flat = plan.flat_range
    epochs = np.geomspace(
        min(flat.epochs_min / 4, plan.epochs / 8), max(flat.epochs_max * 4, plan.epochs * 6), 400
    )
    loss = np.asarray(law.loss(params(epochs), plan.ud, epochs)) - known.averaging_gain(
        law, count, params(epochs), plan.ud, epochs, plan.weight_decay
    )
    spent = f"{scientific(plan.spent_flops)} FLOPs, weight decay {plan.weight_decay}"
    figure, axes = _figure(f"{short(plan.ud)} unique tokens, {spent}")
    style = palette.line_style(palette.law_dash(plan.law))
    colour = palette.law_colour(plan.law)
    axes.plot(epochs, loss, color=colour, linestyle=style, label=f"{plan.law}: predicted loss")
    base = np.asarray(law.base().loss(params(epochs), plan.ud, epochs))
    axes.plot(epochs, base, color="black", linestyle=":", label="if repeats were as good as new")
    axes.axvspan(
        flat.epochs_min,
        flat.epochs_max,
        color=palette.GOOD.light,
        alpha=0.18,
        label=f"within {flat.tolerance:g} nats of the best",
    )
    best = f"{short(plan.params)} params x {passes(plan.epochs)}: {plan.loss:.3f}"
    axes.plot([plan.epochs], [plan.loss], "o", color="black", markersize=8, label=best)
    low, high = min(base.min(), plan.loss), plan.loss
    axes.set_ylim(low - 0.1 * (high - low) - 0.05, high + max(0.6, 3 * (high - low)))
    axes.set_xscale("log")
    axes.set_xlabel("epochs over the unique tokens")
    _log_labels(axes.xaxis, "{:g}".format)
    axes.set_ylabel("validation loss (nats per token)")
    above = axes.secondary_xaxis("top", functions=(params, inverse))
    above.set_xlabel("parameters at the same compute")
    _log_labels(above.xaxis, short)
    axes.legend(frameon=False)
    return figure


def _paid_for(plan: Plan) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The size that the plan's total pays for at a number of epochs, and the other way round."""
    count = 1 if plan.members is None else plan.members.count
    use, served = plan.spent_flops, 0.0
    if plan.serving is not None:
        served = 2 * plan.serving.rate * plan.serving.tokens
        use += plan.serving.rate * plan.serving.flops
    each = FLOPS_PER_PARAM_TOKEN * plan.ud

    def params(epochs: Any) -> Any:
        return use / count / (each * np.maximum(epochs, 1e-12) + served)

    def epochs(size: Any) -> Any:
        return np.maximum(use / count / np.maximum(size, 1e-12) - served, 0.0) / each

    return params, epochs


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
    known = Calibration.load(calibration)
    settings = known.settings if weight_decay is None else (known.setting(weight_decay),)
    figure = Figure(figsize=(6.4 * len(settings), 5.0), dpi=150, layout="constrained")
    for column, setting in enumerate(settings):
        axes = figure.add_subplot(1, len(settings), column + 1)
        once = once_flops(setting.law(law or known.default_law), ud)
        low, high = span or (once, once * 1e4)
        if mark is not None:  # the budget at hand is in the picture, with a decade around it
            low, high = min(low, mark / 10), max(high, mark * 10)
        for form in [law] if law else list(setting.laws):
            _draw_frontier(axes, setting.law(form), ud, np.geomspace(low, high, 240), mark, limits)
        axes.set_xscale("log")
        axes.set_yscale("log")
        drawn = np.concatenate([line.get_ydata() for line in axes.lines])
        axes.set_ylim(0.8 * float(np.nanmin(drawn, initial=1.0)), None)
        if mark is not None:
            _draw_same_cost(axes, ud, mark)
        axes.set_title(
            f"{short(ud)} unique tokens, weight decay {setting.weight_decay}", loc="left", fontsize=11
        )
        axes.set_xlabel("parameters")
        axes.set_ylabel("epochs")
        _log_labels(axes.xaxis, short)
        _log_labels(axes.yaxis, "{:g}".format)
        _tidy(axes)
        axes.legend(frameon=False, fontsize=9)
    return figure


def frontier(along: Frontier) -> Figure:
    """Size, epochs and loss of the best plans along compute, one line for each amount of unique tokens."""
    figure = Figure(figsize=(12.0, 4.2), dpi=150, layout="constrained")
    panels = (
        ("parameters", along.params, short),
        ("epochs", along.epochs, "{:g}".format),
        ("loss (nats per token)", np.where(along.loss <= along.uniform_loss, along.loss, np.nan), None),
    )
    for column, (name, values, show) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), column + 1)
        for number, corpus in enumerate(np.unique(along.ud)):
            here = np.flatnonzero(along.ud == corpus)
            here = here[np.argsort(along.flops[here], kind="stable")]
            look = palette.series(number)
            drawn = {"color": look.light, "linestyle": palette.line_style(look.dash), "marker": "."}
            axes.plot(along.flops[here], values[here], label=f"{short(corpus)} unique tokens", **drawn)
        axes.set_xscale("log")
        axes.set_xlabel("compute (FLOPs)")
        axes.set_ylabel(name)
        if show is not None:
            axes.set_yscale("log")
            _log_labels(axes.yaxis, show)
        _tidy(axes)
    figure.axes[0].legend(frameon=False, fontsize=9)
    return figure


def _draw_frontier(
    axes: Axes, law: Law, ud: float, flops: np.ndarray, mark: float | None, limits: Limits
) -> None:
    """One law's way, broken where it jumps from one valley to another, and its plan for the marked budget."""
    best = allocate(law, ud, flops, limits.continuous())
    jumps = np.abs(np.diff(np.log(best.epochs), prepend=np.log(best.epochs[0]))) > 0.25
    colour, style = palette.law_colour(law.form), palette.line_style(palette.law_dash(law.form))
    axes.plot(
        best.params, np.where(jumps, np.nan, best.epochs), color=colour, linestyle=style, label=law.form
    )
    if mark is not None:
        here = allocate(law, ud, mark, limits.continuous())
        axes.plot([here.params], [here.epochs], "o", color=colour, markersize=6)


def _draw_same_cost(axes: Axes, ud: float, flops: float) -> None:
    """All plans that cost the same lie on one line."""
    window = axes.axis()
    params = np.geomspace(window[0], window[1], 50)
    same = flops / (FLOPS_PER_PARAM_TOKEN * ud * params)
    axes.plot(params, same, "-", color="grey", linewidth=0.8, label=f"{scientific(flops)} FLOPs")
    axes.axis(window)


def loss_against_compute(crossover: Crossover, calibration: CalibrationSource = None) -> Figure:
    """Optimal loss against compute for each weight decay: where they cross, and where to stop."""
    known, limits = Calibration.load(calibration), crossover.limits
    low, high = crossover.searched
    places = crossover.crossings or [float(np.sqrt(low * high))]
    flops = np.geomspace(max(places[0] / 60, low), min(places[-1] * 30, high), 400)
    figure, axes = _figure(f"{short(crossover.ud)} unique tokens ({crossover.law})")
    for number, decay in enumerate((crossover.weaker, crossover.stronger)):
        look = palette.series(number)
        colour, style = look.light, palette.line_style(look.dash)
        one = known.law(decay, crossover.law)
        best = allocate(one, crossover.ud, flops, limits)
        axes.plot(flops, best.loss, color=colour, linestyle=style, label=f"weight decay {decay}")
        along = compute_curve(one, crossover.ud, limits)
        least = loss_minimising(one, crossover.ud, along, limits).single()
        if flops[0] < least.flops < flops[-1]:
            words = f"lowest at {scientific(least.flops)} FLOPs"
            axes.plot([least.flops], [least.loss], "v", color=colour, markersize=7, label=words)
    _mark_crossings(axes, crossover)
    axes.set_xscale("log")
    axes.set_xlabel("compute (FLOPs)")
    axes.set_ylabel("optimal loss (nats per token)")
    axes.legend(frameon=False)
    return figure


def _mark_crossings(axes: Axes, crossover: Crossover) -> None:
    upward = crossover.crossings[int(crossover.better_below == crossover.stronger) :: 2]
    for number, place in enumerate(crossover.crossings):
        axes.axvline(place, color="grey", linewidth=1)
        axes.annotate(
            f"C× = {scientific(place)}" if place in upward else f"back at {scientific(place)}",
            (place, 0.97 - 0.07 * number),
            xycoords=("data", "axes fraction"),
            xytext=(6, 0),
            textcoords="offset points",
            va="top",
        )


def weight_decays(plan: Plan, calibration: CalibrationSource = None) -> Figure:
    """The best loss at each weight decay for the plan's compute, and the best weight decay along compute."""
    known = Calibration.load(calibration or plan.calibration)
    if not known.has_weight_decay_law(plan.law):
        raise InvalidInput(f"calibration {known.name} has no law for every weight decay to draw.")
    if plan.serving is not None or plan.purchase is not None or (plan.members and plan.members.count > 1):
        raise InvalidInput(
            "loss against weight decay is drawn only where training one model is all that counts."
        )
    decays = np.geomspace(*known.weight_decay_range, 161)
    best = allocate(known.law_at(plan.law, decays), plan.ud, plan.spent_flops, CONTINUOUS)
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    look = palette.law_look(plan.law)
    left.plot(decays, best.loss, color=look.light, label=f"{plan.law}, best size and epochs")
    left.plot([plan.weight_decay], [plan.loss], "o", color="black", label=f"this plan: {plan.weight_decay:g}")
    if plan.weight_decay_advice is not None:
        others = [(one.weight_decay, one.loss) for one in plan.weight_decay_advice.gains]
        for decay, loss in others:
            left.plot([decay], [loss], "s", color=palette.NEUTRAL.light, label=f"{decay:g}: {loss:.3f}")
    left.set(xscale="log", xlabel="weight decay", ylabel="predicted loss")
    left.set_title(f"{short(plan.ud)} unique tokens, {scientific(plan.spent_flops)} FLOPs", fontsize=10)
    left.legend(fontsize=8)
    along = frontier_range(
        plan.ud, plan.flops / 100, plan.flops * 100, 33, law=plan.law, calibration=known, spend="all"
    )
    right.plot(along.flops, along.weight_decay, color=look.light, label="best weight decay")
    right.plot([plan.flops], [plan.weight_decay], "o", color="black", label="this plan")
    right.set(xscale="log", yscale="log", xlabel="FLOPs", ylabel="weight decay")
    right.set_title("along compute", fontsize=10)
    right.legend(fontsize=8)
    return figure


def loss_terms(prediction: Prediction, calibration: CalibrationSource = None) -> Figure:
    """The loss of one model on one corpus, broken into its terms, as epochs grow."""
    law = Calibration.load(calibration).law(prediction.weight_decay, prediction.law)
    epochs = np.linspace(min(1.0, 0.8 * prediction.epochs), max(16.0, 1.5 * prediction.epochs), 2000)
    terms = law.terms(prediction.params, prediction.ud, epochs)
    figure, axes = _figure(
        f"{short(prediction.params)} parameters, {short(prediction.ud)} unique tokens, "
        f"weight decay {prediction.weight_decay}"
    )
    axes.stackplot(
        epochs,
        *terms,
        labels=list(terms._fields),
        colors=[palette.TERMS[name].light for name in terms._fields],
        alpha=0.85,
    )
    axes.plot(epochs, terms.loss, color="black", linewidth=1.2)
    here = f"{passes(prediction.epochs)}: {prediction.loss:.3f}"
    axes.plot([prediction.epochs], [prediction.loss], "o", color="black", label=here)
    least = int(np.argmin(terms.loss))
    axes.plot(
        [epochs[least]], [terms.loss[least]], "v", color="black", label=f"lowest at {passes(epochs[least])}"
    )
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
    figure = Figure(figsize=(11.0, 4.6), dpi=150, layout="constrained")
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for number, setting in enumerate(settings):
        look = palette.series(number)
        colour, style = look.light, palette.line_style(look.dash)
        base = setting.law(known.default_law).base()
        # The corpus size does not matter when repeats count as new.
        best = allocate(base, 1e9, flops, CONTINUOUS)
        name = f"weight decay {setting.weight_decay}"
        left.plot(flops, best.loss, color=colour, linestyle=style, label=name)
        right.plot(flops, best.params, color=colour, linestyle=style, label=f"{name}: parameters")
        right.plot(
            flops,
            best.tokens,
            color=colour,
            linestyle=style,
            linewidth=0.9,
            alpha=0.6,
            label=f"{name}: fresh tokens",
        )
    for axes, label in (
        (left, "optimal loss with fresh data (nats per token)"),
        (right, "optimal size and tokens"),
    ):
        axes.set_xscale("log")
        axes.set_xlabel("compute (FLOPs)")
        axes.set_ylabel(label)
        _tidy(axes)
        axes.legend(frameon=False, fontsize=9)
    right.set_yscale("log")
    _log_labels(right.yaxis, short)
    premium = "The premium of strong weight decay while data is fresh"
    left.set_title(
        premium if len(settings) > 1 else "Optimal loss while data is fresh", loc="left", fontsize=11
    )
    return figure


def _figure(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, 4.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11)
    _tidy(axes)
    return figure, axes


def _tidy(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _log_labels(axis: Any, show: Callable[[float], str]) -> None:
    """Labels on the powers of ten, and on 2 and 5 of each where there are few of them."""
    low, high = sorted(axis.get_view_interval())
    few = low > 0 and high / low < 1e3
    axis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axis.set_minor_formatter(
        FuncFormatter(lambda value, _: show(value) if few and f"{value:.0e}"[0] in "25" else "")
    )
