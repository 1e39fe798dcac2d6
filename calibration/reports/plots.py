"""The pictures of a calibration, each a matplotlib Figure made from plain values; nothing here touches pyplot or a display.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart; markers differ as well. Text and axes
are drawn in one ink, so that a document can make it follow its own light or dark theme (see `report`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from planner.allocation import FLOPS_PER_PARAM_TOKEN, Allocation, allocate, has_optimum
from planner.calibration_files import Calibration, Setting
from planner.errors import InvalidInput
from planner.laws import FORMS, Law, repetition_parameters
from planner.units import short

INK = "#3a3a3b"
COLOURS = {
    "chinchilla": "#999999",
    "exponential_decay": "#E69F00",
    "effective_parameters": "#CC79A7",
    "additive_1p": "#56B4E9",
    "additive_2p": "#009E73",
    "additive_4p": "#0072B2",
}
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#7A5195")
MARKERS = "osD^vPX*"
LABELS = {
    "chinchilla": "Chinchilla",
    "exponential_decay": "exponential decay",
    "effective_parameters": "effective parameters",
    "additive_1p": "additive 1p",
    "additive_2p": "additive 2p",
    "additive_4p": "additive 4p",
}
SYMBOLS = {
    "E": "E",
    "A": "A",
    "alpha": "α",
    "B": "B",
    "beta": "β",
    "P": "P",
    "delta": "δ",
    "kappa": "κ",
    "gamma": "γ",
    "R_D_star": "R*_D",
    "R_N_star": "R*_N",
}
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "axes.formatter.useoffset": False,
    "axes.axisbelow": True,
}


@contextmanager
def _style():
    with matplotlib.rc_context(_STYLE):
        yield


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    def drawn(*args: Any, **kwargs: Any) -> Figure:
        with _style():
            return draw(*args, **kwargs)

    drawn.__doc__, drawn.__name__ = draw.__doc__, draw.__name__
    return drawn


@styled
def predicted_observed(setting: Setting, runs: pd.DataFrame) -> Figure:
    """Predicted against observed loss, one panel per law; the distance to the diagonal is the error."""
    forms = [form for form in FORMS if form in setting.laws]
    columns = min(3, len(forms))
    lines = -(-len(forms) // columns)
    figure = Figure(figsize=(3.1 * columns + 0.4, 2.9 * lines + 0.3), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    observed = runs["loss"].to_numpy(dtype=float)
    repeated = runs["epochs"].to_numpy(dtype=float) > 1
    points = _points(runs)
    ends = [observed.min() * 0.98, observed.max() * 1.02]
    # Axes follow the observed losses: a form that is far off would otherwise hide the others; its points are drawn at the edge.
    for axis, form in zip(axes.flat, forms, strict=False):
        with np.errstate(all="ignore"):
            predicted = np.clip(setting.law(form).loss(*points), ends[0], ends[1])
        axis.plot(ends, ends, color=INK, linewidth=0.8)
        axis.scatter(
            observed[~repeated],
            predicted[~repeated],
            s=16,
            facecolors="none",
            edgecolors=INK,
            linewidths=0.8,
            label="one epoch",
        )
        axis.scatter(
            observed[repeated],
            predicted[repeated],
            s=14,
            color=COLOURS[form],
            alpha=0.75,
            linewidths=0,
            label="repeated data",
        )
        r2 = setting.laws[form].metrics.get("r2_multi")
        axis.set_title(LABELS[form] + (f"   R² (repeated) {r2:.3f}" if r2 is not None else ""))
        axis.set_xscale("log")
        axis.set_yscale("log")
        plain_ticks(axis, "both", ends)
    for axis in axes.flat[len(forms) :]:
        axis.set_visible(False)
    axes[0, 0].legend(loc="upper left", handletextpad=0.2)
    figure.supxlabel("observed loss (nats per token)", fontsize=10)
    figure.supylabel("predicted loss", fontsize=10)
    return figure


class SharedExponent(NamedTuple):
    """Residual = P_i repeats^delta with one delta for all cells and a coefficient for each."""

    delta: float
    cells: list[
        tuple[float, float, float, np.ndarray, np.ndarray]
    ]  # params, unique tokens, P, repeats, residual


def shared_exponent(law: Law, runs: pd.DataFrame) -> SharedExponent | None:
    """How the loss beyond the base law grows with repeats: one exponent for all (size, budget) cells with two runs or more.

    Least squares of residual / loss, the coefficients solved for exactly at each exponent. None where no cell has two runs.
    """
    repeated = runs[runs["epochs"] > 1]
    with np.errstate(all="ignore"):
        residual = repeated["loss"].to_numpy(dtype=float) - law.base().loss(*_points(repeated))
    repeated, residual = repeated[np.isfinite(residual)], residual[np.isfinite(residual)]
    frame = repeated.assign(residual=residual, weight=1 / repeated["loss"], repeats=repeated["epochs"] - 1)
    cells = [cell for _, cell in frame.groupby(["params", "unique_tokens"]) if cell["repeats"].nunique() > 1]
    if not cells:
        return None

    def coefficient(cell: pd.DataFrame, delta: float) -> float:
        power = cell["repeats"] ** delta * cell["weight"]
        return max(float((cell["residual"] * cell["weight"] * power).sum() / (power**2).sum()), 0.0)

    def misfit(delta: float) -> float:
        return sum(
            float(
                (
                    (
                        (cell["residual"] - coefficient(cell, delta) * cell["repeats"] ** delta)
                        * cell["weight"]
                    )
                    ** 2
                ).sum()
            )
            for cell in cells
        )

    delta = float(minimize_scalar(misfit, bounds=(0.05, 5.0), method="bounded").x)
    found = [
        (
            float(cell["params"].iloc[0]),
            float(cell["unique_tokens"].iloc[0]),
            coefficient(cell, delta),
            cell["repeats"].to_numpy(dtype=float),
            cell["residual"].to_numpy(dtype=float),
        )
        for cell in cells
    ]
    return SharedExponent(delta, found)


@styled
def residual_repeats(setting: Setting, runs: pd.DataFrame) -> Figure:
    """Loss beyond the base law against repeats, both logarithmic: straight lines of one slope are a power law."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axis = figure.subplots()
    shared = shared_exponent(
        setting.law("chinchilla" if "chinchilla" in setting.laws else next(iter(setting.laws))), runs
    )
    cells = [] if shared is None else [cell for cell in shared.cells if cell[2] > 0]
    cells.sort(key=lambda cell: (-len(cell[3]), -cell[2]))  # the fullest cells say most about the slope
    for k, (params, unique, size, repeats, residual) in enumerate(cells[: len(SERIES)]):
        colour, above = SERIES[k], residual > 0
        label = f"{short(params)} on {short(unique)}"
        axis.scatter(
            repeats[above], residual[above], s=24, color=colour, marker=MARKERS[k], linewidths=0, label=label
        )
        span = np.array([repeats.min(), repeats.max()])
        axis.plot(span, size * span**shared.delta, color=colour, linewidth=1, linestyle="--")  # type: ignore[union-attr]
    if shared is not None and cells:
        drawn = f"; the {len(SERIES)} with most runs" if len(cells) > len(SERIES) else ""
        axis.set_title(f"shared exponent δ = {shared.delta:.2f} over {len(shared.cells)} cells{drawn}")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.legend(
            loc="center left", bbox_to_anchor=(1.0, 0.5), title="parameters on tokens", title_fontsize=9
        )
        plain_ticks(axis, "x", axis.get_xlim())
        below = sum(int((residual <= 0).sum()) for *_, residual in shared.cells)
        if below:
            axis.text(
                0.01,
                0.01,
                f"runs below the base law, not shown: {below}",
                transform=axis.transAxes,
                fontsize=8,
                va="bottom",
            )
    else:
        reason = (
            "no (size, budget) cell has two runs with repeated data"
            if shared is None
            else "no cell does worse than the base law"
        )
        axis.text(0.5, 0.5, reason, ha="center", transform=axis.transAxes)
    axis.set_xlabel("repeats (epochs - 1)")
    axis.set_ylabel("observed loss minus base law (nats)")
    return figure


@styled
def fit_quality(setting: Setting) -> Figure:
    """Huber sum, R² and held-out error of every form side by side."""
    forms = [form for form in FORMS if form in setting.laws]
    metrics = {form: setting.laws[form].metrics for form in forms}
    panels = [
        ("huber", "Huber sum (lower is better)"),
        ("r2_multi", "R² on repeated data (higher is better)"),
        ("held_out_error", "held-out error of ln loss (lower is better)"),
    ]
    shown = [
        (key, title) for key, title in panels if any(metrics[form].get(key) is not None for form in forms)
    ]
    figure = Figure(figsize=(max(3.6 * len(shown) + 1.2, 4), 0.42 * len(forms) + 1.0), layout="constrained")
    if not shown:
        axis = figure.subplots()
        axis.text(0.5, 0.5, "this calibration has no metrics", ha="center", transform=axis.transAxes)
        axis.set_axis_off()
        return figure
    axes = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    places = np.arange(len(forms))[::-1]
    for axis, (key, title) in zip(axes, shown, strict=True):
        values = [metrics[form].get(key) for form in forms]
        known = [value for value in values if value is not None]
        low = min(0.0, *known, 0.0)
        for place, form, value in zip(places, forms, values, strict=True):
            if value is None:
                axis.text(0, place, " not known", va="center", fontsize=9)
                continue
            axis.barh(place, value, color=COLOURS[form], height=0.7)
            text = f" {value:.3g}" if key != "r2_multi" else f" {value:.3f}"
            axis.text(max(value, 0), place, text, va="center", fontsize=9)
        axis.set_xlim(low * 1.05, max(max(known), 0) * 1.25 or 1)
        axis.set_title(title)
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(places, [LABELS[form] for form in forms])
    return figure


@styled
def parameter_clouds(setting: Setting, form: str) -> Figure:
    """Bootstrap refits of a law in pairs of parameters: a long thin cloud is a combination that the runs do not pin down."""
    members = setting.ensemble_law(form)
    names = repetition_parameters(form)
    pairs = [("alpha", "beta"), ("E", "alpha")]
    if len(names) == 4:
        pairs += [("kappa", "delta"), ("gamma", "P")]
    elif names:
        pairs.append((names[0], names[1]) if len(names) == 2 else ("alpha", names[0]))
    figure = Figure(figsize=(2.7 * len(pairs) + 0.3, 2.9), layout="constrained")
    axes = figure.subplots(1, len(pairs), squeeze=False)[0]
    fitted = setting.laws[form].parameters
    for axis, (across, up) in zip(axes, pairs, strict=True):
        if members is not None:
            x, y = (np.asarray(members.parameters[name], dtype=float) for name in (across, up))
            x, y = np.broadcast_arrays(np.atleast_1d(x), np.atleast_1d(y))
            axis.scatter(x, y, s=6, color=COLOURS[form], alpha=0.35, linewidths=0, rasterized=len(x) > 2000)
            for values, log, limit in (
                (x, axis.set_xscale, axis.set_xlim),
                (y, axis.set_yscale, axis.set_ylim),
            ):
                positive = values[values > 0]
                if len(positive) == len(values) and positive.max() > 30 * positive.min():
                    log("log")
                else:  # a few runaway refits must not shrink the cloud to a dot
                    low, high = np.quantile(values, [0.005, 0.995])
                    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
                    limit(low - room, high + room)
        axis.plot(fitted[across], fitted[up], marker="+", color=INK, markersize=11, markeredgewidth=1.6)
        axis.set_xlabel(SYMBOLS[across])
        axis.set_ylabel(SYMBOLS[up])
    return figure


@styled
def allocation(
    calibration: Calibration,
    ud: float,
    form: str | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Figure:
    """Optimal size, epochs and loss against compute at one corpus size, per weight decay, with 95% of the bootstrap refits."""
    form = form or calibration.default_law
    settings = [setting for setting in calibration.settings if form in setting.laws]
    once = one_epoch_flops(settings[0].law(form), ud)
    budgets = np.geomspace(low or once / 10, high or once * 100, 61)
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    axes = figure.subplots(1, 3)
    for k, setting in enumerate(settings):
        colour = SERIES[k % len(SERIES)]
        best = best_allocation(setting.law(form), ud, budgets)
        band = allocation_band(setting, form, ud, budgets)
        for axis, name in zip(axes, ("params", "epochs", "loss"), strict=True):
            style = ("-", "--", "-.", ":")[k % 4]
            axis.plot(
                budgets,
                getattr(best, name),
                color=colour,
                label=f"λ = {setting.weight_decay:g}",
                linestyle=style,
            )
            if band is not None:
                axis.fill_between(budgets, *band[name], color=colour, alpha=0.18, linewidth=0)
    for axis, name in zip(axes, ("optimal parameters", "optimal epochs", "loss at the optimum"), strict=True):
        axis.set_xscale("log")
        axis.set_xlabel("compute (FLOPs)")
        axis.set_title(name)
    axes[0].set_yscale("log")
    axes[1].set_yscale("log")
    axes[1].axhline(1, color=INK, linewidth=0.8, linestyle=":")
    plain_ticks(axes[1], "y", axes[1].get_ylim())
    axes[0].legend(loc="upper left")
    return figure


def one_epoch_flops(law: Law, ud: float) -> float:
    """Compute at which one epoch over `ud` tokens is optimal: the middle of any picture of an allocation."""
    with np.errstate(all="ignore"):
        flops = FLOPS_PER_PARAM_TOKEN * ud * float(law.optimal_params(ud))
    if not 1.0 < flops < 1e60 or not has_optimum(law, ud, flops * np.array([0.1, 100.0])).all():
        raise InvalidInput(
            f"{LABELS[law.form]} has no sensible optimum at {short(ud)} unique tokens; another ud or law would do."
        )
    return flops


def best_allocation(law: Law, ud: float, budgets: np.ndarray) -> Allocation:
    """The optimum of each budget with continuous epochs."""
    with np.errstate(all="ignore"):
        return allocate(law, ud, budgets, whole_epochs=False)


def allocation_band(
    setting: Setting, form: str, ud: float, budgets: np.ndarray
) -> dict[str, np.ndarray] | None:
    """Per quantity of an allocation the ends of the central 95% of the refits, (2, budgets); None without refits.

    Refits that ran away, and have no optimum at all, are left out; with fewer than half remaining there is no band.
    """
    members = setting.ensemble_law(form)
    if members is None:
        return None
    kept = has_optimum(members.member(np.s_[:, None]), ud, budgets[[0, -1]]).all(axis=-1)
    if kept.mean() < 0.5:
        return None
    spread = best_allocation(members.member(np.flatnonzero(kept)[:, None]), ud, budgets)
    return {name: np.quantile(values, [0.025, 0.975], axis=0) for name, values in spread._asdict().items()}


def _points(runs: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    params, unique, epochs = (
        runs[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")
    )
    return params, unique, epochs


def plain_ticks(axis: Any, which: str, ends: Iterable[float]) -> None:
    """A handful of round numbers instead of powers of ten, on a logarithmic axis that spans less than a few decades."""
    low, high = ends
    candidates = np.array([m * 10.0**e for e in range(-4, 7) for m in (1, 1.5, 2, 3, 5, 7)])
    inside = candidates[(candidates >= low) & (candidates <= high)]
    if not 2 <= len(inside) <= 24:
        return
    ticks = inside[:: -(-len(inside) // 6)]
    for name in ("x", "y") if which == "both" else which:
        side = axis.xaxis if name == "x" else axis.yaxis
        side.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        side.set_ticks([], minor=True)
