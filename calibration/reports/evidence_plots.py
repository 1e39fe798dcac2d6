"""Pictures of the evidence for a law, as the paper draws it, for any table of runs.

- `grid`: the observed loss over sizes and epochs with contour lines, and the allocation beside it
- `residuals`: the loss beyond the base law against repeats, for three sizes and three amounts of data
"""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from calibration.reports.fit_plots import INK, best_allocation, one_epoch_flops, plain_ticks, points, styled
from planner.calibration import Setting
from planner.inputs import InvalidInput, scientific, short
from planner.inputs import epochs as passes
from planner.laws import BASE_FORM, FORMS, Law
from planner.show.palette import law_colour, law_label, law_style, line_style, marker, series
from planner.solve import FLOPS_PER_PARAM_TOKEN

_FEWEST = 6  # runs of which contour lines can be drawn
_SIDE = 3  # sizes, and amounts of data, of which residuals are drawn
_CELL = ["params", "unique_tokens"]  # what the runs of one cell share


# -- the observed loss ---------------------------------------------------------------------------------------


@styled
def grid(setting: Setting, runs: pd.DataFrame, ud: float | None = None, flops: float | None = None) -> Figure:
    """Left, what was observed at one amount of unique tokens; right, what each law makes of more compute.

    By default the amount with most runs, and the largest compute among them.
    """
    corpus, here = _at(runs, ud)
    budget = flops or float((FLOPS_PER_PARAM_TOKEN * here["params"] * corpus * here["epochs"]).max())
    figure = Figure(figsize=(11.4, 4.6), layout="constrained")
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
    return runs.groupby(["params", "unique_tokens", "epochs"], as_index=False)[["loss"]].mean()


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
    axis.set(xscale="log", yscale="log", xlabel="parameters (the star is the lowest loss)", ylabel="epochs")
    axis.set(xlim=(x.min() / 1.08, x.max() * 1.08), ylim=(y.min() / 1.12, y.max() * 1.12))
    plain_ticks(axis, "y", axis.get_ylim())
    figure.colorbar(filled, ax=axis, format="%.2f", label="validation loss (nats per token)")
    known = np.unique(x)
    ticks = known[:: -(-len(known) // 5)]  # a few sizes as people say them, instead of powers of ten
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
        style: dict[str, Any] = {"color": law_colour(form), "linestyle": line_style(law_style(form).dash)}
        axis.plot(along.params, np.where(jumps, np.nan, along.epochs), **style)
        best = best_allocation(law, ud, np.array([flops]))
        label = f"{law_label(form)}: {short(float(best.params[0]))} x {passes(float(best.epochs[0]))}"
        axis.plot(best.params, best.epochs, "o", color=law_colour(form), label=label)
    axis.set(xscale="log", yscale="log", xlabel="parameters", ylabel="epochs")
    window = axis.axis()
    sizes = np.geomspace(*window[:2], 50)
    axis.plot(sizes, flops / (FLOPS_PER_PARAM_TOKEN * ud * sizes), color=INK, linewidth=0.7)
    axis.axis(window)
    plain_ticks(axis, "y", axis.get_ylim())
    axis.set_title(f"optimal allocation; dots and line: {scientific(flops)} FLOPs", loc="left")
    axis.legend(fontsize=8)


# -- what repetition costs -----------------------------------------------------------------------------------


class SharedExponent(NamedTuple):
    """Residual = c_i repeats^delta with one delta for all cells and a coefficient for each."""

    delta: float
    runs: pd.DataFrame  # with `repeats`, `residual` and the `coefficient` of their cell


def shared_exponent(law: Law, runs: pd.DataFrame) -> SharedExponent | None:
    """How the loss beyond the base law grows with repeats: one exponent for all cells of one size and budget.

    Least squares of residual / loss, the coefficients solved for exactly at each exponent. Only cells with
    two runs or more count; None where there is none.
    """
    repeated = runs[runs["epochs"] > 1]
    with np.errstate(all="ignore"):
        residual = repeated["loss"].to_numpy(dtype=float) - law.base().loss(*points(repeated))
    frame = repeated.assign(residual=residual, repeats=repeated["epochs"] - 1)[np.isfinite(residual)]
    frame = frame[frame.groupby(_CELL)["repeats"].transform("nunique") > 1]
    if not len(frame):
        return None

    def coefficients(delta: float) -> pd.Series:
        """The coefficient of each run's cell."""
        power = frame["repeats"] ** delta / frame["loss"]
        products = frame.assign(both=frame["residual"] / frame["loss"] * power, square=power**2)
        sums: pd.DataFrame = products.groupby(_CELL)[["both", "square"]].transform("sum")
        return (sums["both"] / sums["square"]).clip(lower=0.0)

    def squares(delta: float) -> float:
        off = (frame["residual"] - coefficients(delta) * frame["repeats"] ** delta) / frame["loss"]
        return float((off**2).sum())

    delta = float(minimize_scalar(squares, bounds=(0.05, 5.0), method="bounded").x)
    return SharedExponent(delta, frame.assign(coefficient=coefficients(delta)))


@styled
def residuals(setting: Setting, runs: pd.DataFrame) -> Figure:
    """Loss beyond the base law against repeats, both logarithmic, with lines of one slope for all: a power
    law. A panel for each of three amounts of data, in each up to three sizes.
    """
    form = BASE_FORM if BASE_FORM in setting.laws else next(iter(setting.laws))
    shared = shared_exponent(setting.law(form), _means(runs))
    if shared is None or (drawn := _above(shared.runs)).empty:
        raise InvalidInput(
            "must have sizes that were trained for different numbers of epochs on the same data, and did "
            "worse than the base law says.",
            field="runs",
        )
    # The few amounts that most runs have, in order.
    amounts = sorted(map(float, drawn["unique_tokens"].value_counts().index[:_SIDE]))
    figure = Figure(figsize=(3.6 * len(amounts) + 0.4, 3.9), layout="constrained")
    axes = figure.subplots(1, len(amounts), squeeze=False, sharex=True, sharey=True)[0]
    for axis, amount in zip(axes, amounts, strict=True):
        _cells(axis, drawn[drawn["unique_tokens"] == amount], shared.delta)
        axis.set_title(f"{short(amount)} unique tokens", loc="left")
        axis.legend(title="parameters", title_fontsize=9)
        plain_ticks(axis, "x", axis.get_xlim())
    axes[0].set_ylabel("observed loss minus base law (nats)")
    cells = shared.runs.groupby(_CELL).ngroups
    slope = f"weight decay {setting.weight_decay:g}, one exponent for {cells} cells"
    if below := int((shared.runs["residual"] <= 0).sum()):
        slope += f"; {below} runs below the base law not shown"
    title = f"What repetition costs: δ = {shared.delta:.2f} ({slope})"
    figure.suptitle(textwrap.fill(title, 48 * len(amounts)), fontsize=11)
    return figure


def _above(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs that did worse than the base law says, of cells that have two of them: others show no slope."""
    found = runs[(runs["residual"] > 0) & (runs["coefficient"] > 0)]
    return found[found.groupby(_CELL)["repeats"].transform("nunique") > 1]


def _cells(axis: Axes, runs: pd.DataFrame, delta: float) -> None:
    """The smallest size, one in the middle and the largest, each with its line of the shared slope."""
    sizes = runs["params"].unique()
    sizes.sort()
    for k, place in enumerate(sorted({0, len(sizes) // 2, len(sizes) - 1})):
        cell, colour = runs[runs["params"] == sizes[place]], series(k).light
        drawn: dict[str, Any] = {"marker": marker(k), "color": colour, "linewidths": 0, "s": 26}
        axis.scatter(cell["repeats"], cell["residual"], label=short(sizes[place]), **drawn)
        span = np.array([cell["repeats"].min(), cell["repeats"].max()])
        axis.plot(span, cell["coefficient"].iloc[0] * span**delta, color=colour, linewidth=1, linestyle="--")
    axis.set(xscale="log", yscale="log", xlabel="repeats (epochs - 1)")
