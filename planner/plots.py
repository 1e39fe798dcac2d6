"""Pictures of a decision. Each function returns a matplotlib Figure; nothing here touches global plotting state.

- `isoflop`: loss along the iso-FLOP curve with the optimum and its flat range
- `allocation_frontier`: optimal (params, epochs) as compute grows, for each law
- `loss_against_compute`: optimal loss for each weight decay, with the crossover marked
- `loss_terms`: the loss of one model broken into its terms, against epochs
- `single_epoch_frontiers`: the premium that strong weight decay pays while data is fresh
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.api import CalibrationSource
from planner.calibration import Calibration
from planner.crossings import landscape, search_range
from planner.results import Crossover, Plan, Prediction
from planner.units import scientific, short

# Okabe and Ito's colours, which colour-blind people can tell apart; each law also has a line style of its own.
_COLOURS = {
    "chinchilla": "#000000",
    "exponential_decay": "#56B4E9",
    "effective_parameters": "#0072B2",
    "additive_1p": "#E69F00",
    "additive_2p": "#CC79A7",
    "additive_4p": "#D55E00",
}
_STYLES = {
    "chinchilla": ":",
    "exponential_decay": (0, (5, 1)),
    "effective_parameters": "--",
    "additive_1p": "-.",
    "additive_2p": (0, (3, 1, 1, 1, 1, 1)),
    "additive_4p": "-",
}
_DECAYS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000"]
_TERMS = {"floor": "#999999", "capacity": "#56B4E9", "data": "#009E73", "overfitting": "#D55E00"}


def isoflop(plan: Plan, calibration: CalibrationSource = None) -> Figure:
    """Loss against epochs at the plan's compute: how flat the optimum is."""
    law = Calibration.load(calibration).law(plan.weight_decay, plan.law)
    product = plan.flops / (FLOPS_PER_PARAM_TOKEN * plan.ud)
    flat = plan.flat_range
    epochs = np.geomspace(max(min(flat.epochs_min / 4, plan.epochs / 8), 1e-3), max(flat.epochs_max * 4, plan.epochs * 6), 400)
    loss = np.asarray(law.loss(product / epochs, plan.ud, epochs))
    figure, axes = _figure(f"{short(plan.ud)} unique tokens, {scientific(plan.flops)} FLOPs, weight decay {plan.weight_decay}")
    axes.plot(epochs, loss, color=_COLOURS["additive_4p"], label=f"{plan.law}: predicted loss")
    base = np.asarray(law.base().loss(product / epochs, plan.ud, epochs))
    axes.plot(epochs, base, color="black", linestyle=":", label="if repeats were as good as new")
    axes.axvspan(
        flat.epochs_min, flat.epochs_max, color="#009E73", alpha=0.18, label=f"within {flat.tolerance:g} nats of the best"
    )
    best = f"{short(plan.params)} params x {plan.epochs:.3g} epochs: {plan.loss:.3f}"
    axes.plot([plan.epochs], [plan.loss], "o", color="black", markersize=8, label=best)
    low, high = min(base.min(), plan.loss), plan.loss
    axes.set_ylim(low - 0.1 * (high - low) - 0.05, high + max(0.6, 3 * (high - low)))
    axes.set_xscale("log")
    _count_axis(axes, "epochs over the unique tokens")
    axes.set_ylabel("validation loss (nats per token)")
    above = axes.secondary_xaxis(
        "top", functions=(lambda e: product / np.maximum(e, 1e-12), lambda n: product / np.maximum(n, 1e-12))
    )
    above.set_xlabel("parameters at the same compute")
    above.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.legend(frameon=False)
    return figure


def allocation_frontier(
    ud: float, calibration: CalibrationSource = None, weight_decay: Any = None, mark: float | None = None
) -> Figure:
    """Where each law wants compute to go: optimal epochs against optimal size as compute grows. Ours turns back."""
    known = Calibration.load(calibration)
    settings = known.settings if weight_decay is None else (known.setting(weight_decay),)
    figure = Figure(figsize=(6.4 * len(settings), 5.0), dpi=150, layout="constrained")
    for column, setting in enumerate(settings):
        axes = figure.add_subplot(1, len(settings), column + 1)
        flops = search_range(setting.law(known.default_law), ud)
        flops = np.geomspace(flops[0] * 1e4, flops[0] * 1e8, 160)
        if mark is not None:  # the budget at hand is in the picture, with a decade around it
            flops = np.geomspace(min(flops[0], mark / 10), max(flops[-1], mark * 10), 200)
        for form in setting.laws:
            best = allocate(setting.law(form), ud, flops, whole_epochs=False)
            axes.plot(best.params, best.epochs, color=_COLOURS[form], linestyle=_STYLES[form], label=form)
            if mark is not None:
                here = allocate(setting.law(form), ud, mark, whole_epochs=False)
                axes.plot([here.params], [here.epochs], "o", color=_COLOURS[form], markersize=6)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(0.8, None)
        if mark is not None:  # all plans that cost the same lie on one line
            window = axes.axis()
            params = np.geomspace(window[0], window[1], 50)
            epochs = mark / (FLOPS_PER_PARAM_TOKEN * ud * params)
            axes.plot(params, epochs, "-", color="grey", linewidth=0.8, label=f"{scientific(mark)} FLOPs")
            axes.axis(window)
        axes.set_title(f"{short(ud)} unique tokens, weight decay {setting.weight_decay}", loc="left", fontsize=11)
        axes.set_xlabel("parameters")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axes.set_ylabel("epochs")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _tidy(axes)
        axes.legend(frameon=False, fontsize=9)
    return figure


def loss_against_compute(crossover: Crossover, calibration: CalibrationSource = None) -> Figure:
    """Optimal loss against compute for each weight decay, with C× and the point where more compute starts to hurt."""
    known = Calibration.load(calibration)
    centre = crossover.crossover_flops or float(np.sqrt(crossover.searched[0] * crossover.searched[1]))
    flops = np.geomspace(centre / 60, centre * 30, 240)
    figure, axes = _figure(f"{short(crossover.ud)} unique tokens ({crossover.law})")
    for colour, style, decay in zip(_DECAYS, ("-", "--"), (crossover.weaker, crossover.stronger), strict=False):
        along = landscape(known.law(decay, crossover.law), crossover.ud, flops)
        axes.plot(flops, along.loss, color=colour, linestyle=style, label=f"weight decay {decay}")
        least = int(np.argmin(along.loss))
        if 0 < least < len(flops) - 1:
            axes.plot(
                [flops[least]],
                [along.loss[least]],
                "v",
                color=colour,
                markersize=7,
                label=f"lowest at {scientific(flops[least])} FLOPs",
            )
    for place in crossover.crossings:
        if flops[0] < place < flops[-1]:
            axes.axvline(place, color="grey", linewidth=1)
            axes.annotate(
                f"C× = {scientific(place)}",
                (place, 0.97),
                xycoords=("data", "axes fraction"),
                xytext=(6, 0),
                textcoords="offset points",
                va="top",
            )
    axes.set_xscale("log")
    axes.set_xlabel("compute (FLOPs)")
    axes.set_ylabel("optimal loss (nats per token)")
    axes.legend(frameon=False)
    return figure


def loss_terms(prediction: Prediction, calibration: CalibrationSource = None) -> Figure:
    """The loss of one model on one corpus, broken into its terms, as epochs grow."""
    law = Calibration.load(calibration).law(prediction.weight_decay, prediction.law)
    epochs = np.linspace(1.0, max(16.0, 1.5 * prediction.epochs), 300)
    terms = law.terms(prediction.params, prediction.ud, epochs)
    title = f"{short(prediction.params)} parameters, {short(prediction.ud)} unique tokens, weight decay {prediction.weight_decay}"
    figure, axes = _figure(title)
    axes.stackplot(epochs, *terms, labels=list(terms._fields), colors=[_TERMS[name] for name in terms._fields], alpha=0.85)
    axes.plot(epochs, terms.loss, color="black", linewidth=1.2)
    if prediction.epochs >= 1:
        axes.plot(
            [prediction.epochs],
            [prediction.loss],
            "o",
            color="black",
            label=f"{prediction.epochs:.3g} epochs: {prediction.loss:.3f}",
        )
    least = int(np.argmin(terms.loss))
    axes.plot([epochs[least]], [terms.loss[least]], "v", color="black", label=f"lowest at {epochs[least]:.1f} epochs")
    axes.set_xlim(epochs[0], epochs[-1])
    axes.set_ylim(0.9 * float(np.min(terms.floor)), None)
    axes.set_xlabel("epochs over the unique tokens")
    axes.set_ylabel(f"predicted loss ({prediction.law}, nats per token)")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], frameon=False, loc="outside right center")
    return figure


def single_epoch_frontiers(low: float, high: float, calibration: CalibrationSource = None) -> Figure:
    """Fresh data only: optimal loss against compute, and how large a model each weight decay prefers."""
    known = Calibration.load(calibration)
    flops = np.geomspace(low, high, 160)
    figure = Figure(figsize=(11.0, 4.6), dpi=150, layout="constrained")
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for colour, style, setting in zip(_DECAYS, ("-", "--", ":", "-.", "-", "--"), known.settings, strict=False):
        base = setting.law(known.default_law).base()
        best = allocate(base, 1e9, flops, whole_epochs=False)  # the corpus size does not matter when repeats count as new
        name = f"weight decay {setting.weight_decay}"
        left.plot(flops, best.loss, color=colour, linestyle=style, label=name)
        right.plot(flops, best.params, color=colour, linestyle=style, label=f"{name}: parameters")
        right.plot(flops, best.tokens, color=colour, linestyle=style, linewidth=0.9, alpha=0.6, label=f"{name}: fresh tokens")
    for axes, label in ((left, "optimal loss with fresh data (nats per token)"), (right, "optimal size and tokens")):
        axes.set_xscale("log")
        axes.set_xlabel("compute (FLOPs)")
        axes.set_ylabel(label)
        _tidy(axes)
        axes.legend(frameon=False, fontsize=9)
    right.set_yscale("log")
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    left.set_title("The premium of strong weight decay while data is fresh", loc="left", fontsize=11)
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


def _count_axis(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
