"""Pictures of the evidence for a law, as the paper draws it, for any table of runs.

- `grid`: the observed loss over sizes and epochs with contour lines, and the allocation beside it
- `residuals`: the loss beyond the base law against repeats, for three sizes and three amounts of data
- `quality`: how well every form describes each of several studies, side by side
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibration.reports.fit_plots import (
    INK,
    Cell,
    SharedExponent,
    bare,
    best_allocation,
    draw_cells,
    one_epoch_flops,
    plain_ticks,
    shared_exponent,
    styled,
)
from planner.calibration import Setting
from planner.inputs import InvalidInput, scientific, short
from planner.inputs import epochs as passes
from planner.laws import FORMS
from planner.show.palette import law_colour, law_dash, law_label, line_style
from planner.solve import FLOPS_PER_PARAM_TOKEN

_FEWEST = 6  # runs of which contour lines can be drawn
_SIDE = 3  # sizes, and amounts of data, of which residuals are drawn
_QUALITY = (("huber", "Huber loss, summed (lower is better)"), ("r2", "R² of the loss (higher is better)"))


# -- the observed loss ---------------------------------------------------------------------------------------


@styled
def grid(setting: Setting, runs: pd.DataFrame, ud: float | None = None, flops: float | None = None) -> Figure:
    """Left, what was observed at one amount of unique tokens; right, what each law makes of more compute.

    By default the amount with most runs, and the largest compute among them.
    """
    corpus, here = _at(runs, ud)
    budget = flops or float((FLOPS_PER_PARAM_TOKEN * here["params"] * corpus * here["epochs"]).max())
    figure = Figure(figsize=(11.4, 4.6), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    _observed(figure, left, here)
    left.set_title(f"observed loss, {short(corpus)} unique tokens, λ = {setting.weight_decay:g}", loc="left")
    _allocations(right, setting, corpus, budget)
    return figure


def _at(runs: pd.DataFrame, ud: float | None) -> tuple[float, pd.DataFrame]:
    """The runs at one amount of unique tokens, the mean of those that differ in their seed only."""
    amounts, counts = np.unique(runs["unique_tokens"].to_numpy(dtype=float), return_counts=True)
    corpus = float(amounts[counts.argmax() if ud is None else np.abs(amounts - ud).argmin()])
    if ud is not None and abs(corpus / ud - 1) > 0.05:
        known = ", ".join(short(value) for value in amounts[np.argsort(-counts)][:5])
        raise InvalidInput(f"must be an amount that runs have ({known}); got {short(ud)}.", field="ud")
    means = _means(runs[runs["unique_tokens"] == corpus])
    if len(means) < _FEWEST or means["params"].nunique() < 2 or means["epochs"].nunique() < 2:
        raise InvalidInput(
            f"has {len(means)} runs at {short(corpus)} unique tokens: contour lines take {_FEWEST} of "
            f"several sizes and epochs.",
            field="runs",
        )
    return corpus, means


def _means(runs: pd.DataFrame) -> pd.DataFrame:
    """One row for each configuration: the mean over its seeds."""
    means = runs.groupby(["params", "unique_tokens", "epochs"], as_index=False)[["loss"]].mean()
    return pd.DataFrame(means)


def _observed(figure: Figure, axis: Axes, here: pd.DataFrame) -> None:
    from matplotlib.tri import LinearTriInterpolator, Triangulation

    x, y, loss = (here[name].to_numpy(dtype=float) for name in ("params", "epochs", "loss"))
    levels = np.unique(np.quantile(loss, np.linspace(0, 1, 12)))
    between = LinearTriInterpolator(Triangulation(np.log(x), np.log(y)), loss)
    sizes, times = (np.linspace(np.log(v.min()), np.log(v.max()), 160) for v in (x, y))
    surface = between(*np.meshgrid(sizes, times))
    across = np.exp(sizes), np.exp(times), surface
    filled = axis.contourf(*across, levels=levels, cmap="viridis_r", alpha=0.85)
    axis.contour(*across, levels=levels, colors=INK, linewidths=0.5)
    axis.scatter(x, y, c=loss, cmap="viridis_r", edgecolors=INK, linewidths=0.8, s=34, zorder=3)
    least = int(np.argmin(loss))
    axis.plot(x[least], y[least], marker="*", color="white", markeredgecolor=INK, markersize=15, zorder=4)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("parameters (the star is the lowest loss)")
    axis.set_ylabel("epochs")
    axis.set_xlim(x.min() / 1.08, x.max() * 1.08)
    axis.set_ylim(y.min() / 1.12, y.max() * 1.12)
    plain_ticks(axis, "y", axis.get_ylim())
    _sizes(axis, x)
    bar = figure.colorbar(filled, ax=axis, format="%.2f")
    bar.set_label("validation loss (nats per token)")


def _sizes(axis: Axes, params: np.ndarray) -> None:
    """A few sizes as people say them, instead of powers of ten."""
    known = np.unique(params)
    ticks = known[:: -(-len(known) // 5)]
    axis.set_xticks(ticks, [short(value) for value in ticks])
    axis.set_xticks([], minor=True)


def _allocations(axis: Axes, setting: Setting, ud: float, flops: float) -> None:
    """Where each law wants compute to go, with its plan for one budget."""
    shown = [form for form in FORMS if form in setting.laws]
    for form in shown:
        law = setting.law(form)
        once = one_epoch_flops(law, ud)
        along = best_allocation(law, ud, np.geomspace(once, max(flops, once) * 10, 160))
        jumps = np.abs(np.diff(np.log(along.epochs), prepend=np.log(along.epochs[0]))) > 0.25
        style: dict[str, Any] = {"color": law_colour(form), "linestyle": line_style(law_dash(form))}
        axis.plot(along.params, np.where(jumps, np.nan, along.epochs), **style)
        best = best_allocation(law, ud, np.array([flops]))
        label = f"{law_label(form)}: {short(float(best.params[0]))} x {passes(float(best.epochs[0]))}"
        axis.plot(best.params, best.epochs, "o", color=law_colour(form), label=label)
    axis.set_xscale("log")
    axis.set_yscale("log")
    window = axis.axis()
    sizes = np.geomspace(*window[:2], 50)
    axis.plot(sizes, flops / (FLOPS_PER_PARAM_TOKEN * ud * sizes), color=INK, linewidth=0.7)
    axis.axis(window)
    axis.set_xlabel("parameters")
    axis.set_ylabel("epochs")
    plain_ticks(axis, "y", axis.get_ylim())
    axis.set_title(f"optimal allocation; dots and line: {scientific(flops)} FLOPs", loc="left")
    axis.legend(fontsize=8)


# -- what repetition costs -----------------------------------------------------------------------------------


@styled
def residuals(setting: Setting, runs: pd.DataFrame) -> Figure:
    """Loss beyond the base law against repeats, with lines of one slope for all: a panel for each of three
    amounts of data, in each up to three sizes.
    """
    law = setting.law(next(iter(setting.laws)))
    shared = shared_exponent(law, _means(runs))
    cells = [] if shared is None else [cell for cell in shared.cells if cell.size > 0]
    if shared is None or not cells:
        raise InvalidInput(
            "must have sizes that were trained for different numbers of epochs on the same data, and did "
            "worse than the base law says.",
            field="runs",
        )
    # The few amounts that most runs have, in order.
    counts = pd.Series([cell.unique_tokens for cell in cells for _ in cell.repeats]).value_counts()
    amounts = sorted(float(amount) for amount in counts.index[:_SIDE])
    figure = Figure(figsize=(3.6 * len(amounts) + 0.4, 3.9), layout="constrained", facecolor="white")
    axes = figure.subplots(1, len(amounts), squeeze=False, sharex=True, sharey=True)[0]
    for axis, amount in zip(axes, amounts, strict=True):
        _panel(axis, shared, [cell for cell in cells if cell.unique_tokens == amount])
        axis.set_title(f"{short(amount)} unique tokens", loc="left")
    axes[0].set_ylabel("observed loss minus base law (nats)")
    slope = f"weight decay {setting.weight_decay:g}, one exponent for {len(shared.cells)} cells"
    figure.suptitle(f"What repetition costs: δ = {shared.delta:.2f} ({slope})", fontsize=11)
    return figure


def _panel(axis: Axes, shared: SharedExponent, cells: list[Cell]) -> None:
    cells = sorted(cells, key=lambda cell: cell.params)
    picked = [cells[k] for k in sorted({0, len(cells) // 2, len(cells) - 1})]
    draw_cells(axis, shared, picked, lambda cell: short(cell.params))
    axis.set_xlabel("repeats (epochs - 1)")
    axis.legend(title="parameters", title_fontsize=9)


# -- how well forms describe studies -------------------------------------------------------------------------


@styled
def quality(studies: Sequence[tuple[str, Setting]]) -> Figure:
    """Huber loss and R² of every form, a group of bars for each study."""
    forms = [form for form in FORMS if any(_metric(s, form, key) for _, s in studies for key, _ in _QUALITY)]
    if not forms:
        raise InvalidInput("must have been fitted with metrics; none of these has any.", field="calibrations")
    height = 0.5 + 0.26 * len(forms) * len(studies) + 0.35 * len(studies)
    figure = Figure(figsize=(11.0, height + 0.8), layout="constrained", facecolor="white")
    axes = figure.subplots(1, len(_QUALITY), sharey=True)
    places, names = [], []
    for axis, (key, title) in zip(axes, _QUALITY, strict=True):
        place, most = 0.0, 0.0
        for study, setting in studies:
            place -= 1.4
            axis.text(0, place, study, fontsize=10, fontweight="bold", va="center")
            for form in forms:
                place -= 1
                value = _metric(setting, form, key)
                if axis is axes[0]:
                    places.append(place)
                    names.append(law_label(form))
                if value is None:
                    axis.text(0, place, " not known", va="center", fontsize=8)
                    continue
                axis.barh(place, value, color=law_colour(form), height=0.8)
                axis.text(
                    max(value, 0), place, f" {value:.3g}" if key == "huber" else f" {value:.4f}", va="center"
                )
                most = max(most, value)
        axis.set_xlim(0, most * 1.2)
        axis.set_title(title, loc="left")
        bare(axis)
    axes[0].set_yticks(places, names)
    return figure


def _metric(setting: Setting, form: str, key: str) -> float | None:
    return setting.laws[form].metrics.get(key) if form in setting.laws else None
