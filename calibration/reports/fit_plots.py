"""The pictures of a calibration, each a matplotlib Figure made from plain values; no pyplot, no display.

Colours, dashes and markers are those of `planner.palette`. Text and axes are drawn in one ink, so that a
document can make it follow its own light or dark theme (see `document`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from planner.calibration import Calibration, Setting
from planner.inputs import CONTINUOUS, InvalidInput, short
from planner.laws import BASE_FORM, Law, every_form, repetition_parameters
from planner.show import palette
from planner.show.palette import law_colour, law_label, line_style
from planner.solve import FLOPS_PER_PARAM_TOKEN, Point, allocate, has_optimum

INK = palette.INK.light
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


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    @functools.wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Figure:
        with matplotlib.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return drawn


@styled
def predicted_observed(setting: Setting, runs: pd.DataFrame) -> Figure:
    """Predicted against observed loss, one panel per law; the distance to the diagonal is the error."""
    forms = [form for form in every_form() if form in setting.laws]
    columns = min(3, len(forms))
    lines = -(-len(forms) // columns)
    figure = Figure(figsize=(3.1 * columns + 0.4, 2.9 * lines + 0.3), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axis, form in zip(axes.flat, forms, strict=False):
        _panel(axis, setting, form, runs)
    for axis in axes.flat[len(forms) :]:
        axis.set_visible(False)
    axes[0, 0].legend(loc="upper left", handletextpad=0.2)
    figure.supxlabel("observed loss (nats per token)", fontsize=10)
    figure.supylabel("predicted loss", fontsize=10)
    return figure


def _panel(axis: Axes, setting: Setting, form: str, runs: pd.DataFrame) -> None:
    observed = runs["loss"].to_numpy(dtype=float)
    once = runs["epochs"].to_numpy(dtype=float) <= 1
    # Axes follow the observed losses: a form that is far off would hide the others; it is drawn at the edge.
    ends = [observed.min() * 0.98, observed.max() * 1.02]
    with np.errstate(all="ignore"):
        predicted = np.clip(setting.law(form).loss(*_points(runs)), ends[0], ends[1])
    axis.plot(ends, ends, color=INK, linewidth=0.8)
    hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": INK, "linewidths": 0.8}
    full: dict[str, Any] = {"color": law_colour(form), "alpha": 0.75, "linewidths": 0}
    axis.scatter(observed[once], predicted[once], s=16, label="one epoch", **hollow)
    axis.scatter(observed[~once], predicted[~once], s=14, label="repeated data", **full)
    r2 = setting.laws[form].metrics.get("r2_multi")
    axis.set_title(law_label(form) + (f"   R² (repeated) {r2:.3f}" if r2 is not None else ""))
    axis.set_xscale("log")
    axis.set_yscale("log")
    plain_ticks(axis, "both", ends)


class Cell(NamedTuple):
    """The runs of one model size on one corpus, and the coefficient of their residual."""

    params: float
    unique_tokens: float
    size: float
    repeats: np.ndarray
    residual: np.ndarray


class SharedExponent(NamedTuple):
    """Residual = size_i repeats^delta with one delta for all cells and a coefficient for each."""

    delta: float
    cells: list[Cell]


def shared_exponent(law: Law, runs: pd.DataFrame) -> SharedExponent | None:
    """How the loss beyond the base law grows with repeats: one exponent for all cells of one size and budget.

    Least squares of residual / loss, the coefficients solved for exactly at each exponent. Only cells with
    two runs or more count; None where there is none.
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

    def squares(cell: pd.DataFrame, delta: float) -> float:
        explained = coefficient(cell, delta) * cell["repeats"] ** delta
        return float((((cell["residual"] - explained) * cell["weight"]) ** 2).sum())

    def misfit(delta: float) -> float:
        return sum(squares(cell, delta) for cell in cells)

    delta = float(minimize_scalar(misfit, bounds=(0.05, 5.0), method="bounded").x)
    found = [
        Cell(
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
    """Loss beyond the base law against repeats, both logarithmic: lines of one slope are a power law."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axis = figure.subplots()
    form = BASE_FORM if BASE_FORM in setting.laws else next(iter(setting.laws))
    shared = shared_exponent(setting.law(form), runs)
    if shared is not None and any(cell.size > 0 for cell in shared.cells):
        _residuals(axis, shared)
    else:
        none = "no (size, budget) cell has two runs with repeated data"
        reason = none if shared is None else "no cell does worse than the base law"
        axis.text(0.5, 0.5, reason, ha="center", transform=axis.transAxes)
    axis.set_xlabel("repeats (epochs - 1)")
    axis.set_ylabel("observed loss minus base law (nats)")
    return figure


def _residuals(axis: Axes, shared: SharedExponent) -> None:
    cells = [cell for cell in shared.cells if cell.size > 0]
    cells.sort(key=lambda cell: (-len(cell.repeats), -cell.size))  # the fullest say most about the slope
    most = len(palette.SERIES)
    draw_cells(
        axis, shared, cells[:most], lambda cell: f"{short(cell.params)} on {short(cell.unique_tokens)}"
    )
    drawn = f"; the {most} with most runs" if len(cells) > most else ""
    axis.set_title(f"shared exponent δ = {shared.delta:.2f} over {len(shared.cells)} cells{drawn}")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="parameters on tokens", title_fontsize=9)
    below = sum(int((cell.residual <= 0).sum()) for cell in shared.cells)
    if below:
        words = f"runs below the base law, not shown: {below}"
        axis.text(0.01, 0.01, words, transform=axis.transAxes, fontsize=8, va="bottom")


def draw_cells(axis: Axes, shared: SharedExponent, cells: list[Cell], label: Callable[[Cell], str]) -> None:
    """The residuals of cells against repeats, both logarithmic, each with its line of the shared slope."""
    for k, cell in enumerate(cells):
        colour, above = palette.series(k).light, cell.residual > 0
        points: dict[str, Any] = {"marker": palette.marker(k), "color": colour, "linewidths": 0, "s": 26}
        axis.scatter(cell.repeats[above], cell.residual[above], label=label(cell), **points)
        span = np.array([cell.repeats.min(), cell.repeats.max()])
        axis.plot(span, cell.size * span**shared.delta, color=colour, linewidth=1, linestyle="--")
    axis.set_xscale("log")
    axis.set_yscale("log")
    plain_ticks(axis, "x", axis.get_xlim())


_QUALITY = (
    ("huber", "Huber sum (lower is better)", ".3g"),
    ("r2_multi", "R² on repeated data (higher is better)", ".3f"),
    ("held_out_error", "held-out error of ln loss (lower is better)", ".3g"),
)


@styled
def fit_quality(setting: Setting) -> Figure:
    """Huber sum, R² and held-out error of every form side by side."""
    forms = [form for form in every_form() if form in setting.laws]
    values = {key: [setting.laws[form].metrics.get(key) for form in forms] for key, _, _ in _QUALITY}
    shown = [panel for panel in _QUALITY if any(value is not None for value in values[panel[0]])]
    figure = Figure(figsize=(max(3.6 * len(shown) + 1.2, 4), 0.42 * len(forms) + 1.0), layout="constrained")
    if not shown:
        axis = figure.subplots()
        axis.text(0.5, 0.5, "this calibration has no metrics", ha="center", transform=axis.transAxes)
        axis.set_axis_off()
        return figure
    axes = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axis, (key, title, digits) in zip(axes, shown, strict=True):
        _bars(axis, forms, values[key], digits)
        axis.set_title(title)
    axes[0].set_yticks(range(len(forms))[::-1], [law_label(form) for form in forms])
    return figure


def _bars(axis: Axes, forms: Sequence[str], values: Sequence[float | None], digits: str) -> None:
    """One bar per form, the first on top, with its value behind it."""
    known = [value for value in values if value is not None]
    for place, form, value in zip(range(len(forms))[::-1], forms, values, strict=True):
        if value is None:
            axis.text(0, place, " not known", va="center", fontsize=9)
            continue
        axis.barh(place, value, color=law_colour(form), height=0.7)
        axis.text(max(value, 0), place, f" {value:{digits}}", va="center", fontsize=9)
    axis.set_xlim(min(0.0, *known, 0.0) * 1.05, max(*known, 0.0) * 1.25 or 1)
    bare(axis)


def bare(axis: Axes) -> None:
    """No lines and ticks upwards, where the places are names."""
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)


@styled
def parameter_clouds(setting: Setting, form: str) -> Figure:
    """Bootstrap refits of a law in pairs of parameters: a thin cloud is what the runs do not pin down."""
    draws = setting.law_draws(form)
    pairs = _pairs(repetition_parameters(form))
    figure = Figure(figsize=(2.7 * len(pairs) + 0.3, 2.9), layout="constrained")
    axes = figure.subplots(1, len(pairs), squeeze=False)[0]
    fitted = setting.laws[form].parameters
    for axis, (across, up) in zip(axes, pairs, strict=True):
        if draws is not None:
            x, y = (np.atleast_1d(np.asarray(draws.parameters[name], dtype=float)) for name in (across, up))
            x, y = np.broadcast_arrays(x, y)
            many = len(x) > 2000
            axis.scatter(x, y, s=6, color=law_colour(form), alpha=0.35, linewidths=0, rasterized=many)
            _scale(x, axis.set_xscale, axis.set_xlim)
            _scale(y, axis.set_yscale, axis.set_ylim)
        axis.plot(fitted[across], fitted[up], marker="+", color=INK, markersize=11, markeredgewidth=1.6)
        axis.set_xlabel(palette.symbol(across))
        axis.set_ylabel(palette.symbol(up))
    return figure


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Which parameters are drawn against each other, those of the base law first."""
    pairs = [("alpha", "beta"), ("E", "alpha")]
    if len(names) == 4:
        return [*pairs, ("kappa", "delta"), ("gamma", "P")]
    if len(names) > 1:
        return [*pairs, (names[0], names[1])]
    return [*pairs, *(("alpha", name) for name in names)]


def _scale(values: np.ndarray, scale: Callable[[str], Any], limit: Callable[[float, float], Any]) -> None:
    positive = values[values > 0]
    if len(positive) == len(values) and positive.max() > 30 * positive.min():
        scale("log")
        return
    low, high = np.quantile(values, [0.005, 0.995])  # a few runaway refits must not shrink the cloud to a dot
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    limit(low - room, high + room)


@styled
def allocation(
    calibration: Calibration,
    ud: float,
    form: str | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Figure:
    """Optimal size, epochs and loss against compute, per weight decay, with 95% of the bootstrap refits."""
    form = form or calibration.default_law
    settings = [setting for setting in calibration.settings if form in setting.laws]
    once = one_epoch_flops(settings[0].law(form), ud)
    budgets = np.geomspace(low or once / 10, high or once * 100, 61)
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    axes = figure.subplots(1, 3)
    for k, setting in enumerate(settings):
        look = palette.series(k)
        style: dict[str, Any] = {"color": look.light, "linestyle": line_style(look.dash)}
        best = best_allocation(setting.law(form), ud, budgets)
        band = allocation_band(setting, form, ud, budgets)
        for axis, name in zip(axes, ("params", "epochs", "loss"), strict=True):
            axis.plot(budgets, getattr(best, name), label=f"λ = {setting.weight_decay:g}", **style)
            if band is not None:
                axis.fill_between(budgets, *band[name], color=look.light, alpha=0.18, linewidth=0)
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
            f"{law_label(law.form)} has no sensible optimum at {short(ud)} unique tokens; "
            "another ud or law would do."
        )
    return flops


def best_allocation(law: Law, ud: float, budgets: np.ndarray) -> Point:
    """The optimum of each budget with continuous epochs."""
    with np.errstate(all="ignore"):
        return allocate(law, ud, budgets, CONTINUOUS)


def allocation_band(
    setting: Setting, form: str, ud: float, budgets: np.ndarray
) -> dict[str, np.ndarray] | None:
    """Per quantity of an allocation the ends of the central 95% of the refits, (2, budgets); None without.

    Refits that ran away, and have no optimum, are left out; with fewer than half remaining there is no band.
    """
    draws, losing = setting.law_draws(form), setting.law_draws(form, of_losses=True)
    if draws is None or losing is None:
        return None
    kept = has_optimum(draws.draw(np.s_[:, None]), ud, budgets[[0, -1]]).all(axis=-1)
    if kept.mean() < 0.5:
        return None
    rows = np.flatnonzero(kept)[:, None]
    spread = best_allocation(draws.draw(rows), ud, budgets)
    spread = spread._replace(loss=losing.draw(rows).loss(spread.params, ud, spread.epochs))
    return {name: np.quantile(values, [0.025, 0.975], axis=0) for name, values in spread._asdict().items()}


def _points(runs: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    params, unique, epochs = (
        runs[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")
    )
    return params, unique, epochs


def plain_ticks(axis: Any, which: str, ends: Iterable[float]) -> None:
    """A handful of round numbers instead of powers of ten, on a logarithmic axis of a few decades at most."""
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
