"""The pictures of a calibration, each a matplotlib Figure made from plain values; no pyplot, no display.

Colours, dashes and markers are those of `planner.show.palette`. Text and axes are drawn in one ink, so that a
document can make it follow its own light or dark theme (see `document`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibration.fitting.evaluate.summary import allocation_intervals
from planner.calibration import Calibration, Setting
from planner.inputs import CONTINUOUS, InvalidInput, short
from planner.laws import Law, every_form, repetition_parameters
from planner.results import Interval
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
def predicted_observed(setting: Setting, runs: pd.DataFrame, law: str | None = None) -> Figure:
    """Observed against predicted loss of this law, or one panel for each; the distance to the diagonal is the
    error.
    """
    forms = [form for form in every_form() if form in setting.laws] if law is None else [law]
    columns = min(3, len(forms))
    lines = -(-len(forms) // columns)
    side = 3.1 if len(forms) > 1 else 5.0
    figure = Figure(figsize=(side * columns + 0.4, (side - 0.2) * lines + 0.3), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    observed, once = runs["loss"].to_numpy(dtype=float), runs["epochs"].to_numpy(dtype=float) <= 1
    # Axes follow the observed losses: a form that is far off would hide the others; it is drawn at the edge.
    ends = [observed.min() * 0.98, observed.max() * 1.02]
    scale = "log" if ends[1] > _DECADE * ends[0] else "linear"
    for axis, form in zip(axes.flat, forms, strict=False):
        with np.errstate(all="ignore"):
            predicted = np.clip(setting.law(form).loss(*points(runs)), *ends)
        axis.plot(ends, ends, color=INK, linewidth=0.8)
        hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": INK, "linewidths": 0.8}
        full: dict[str, Any] = {"color": law_colour(form), "alpha": 0.75, "linewidths": 0}
        axis.scatter(predicted[once], observed[once], s=16, label="one epoch", **hollow)
        axis.scatter(predicted[~once], observed[~once], s=14, label="repeated data", **full)
        r2 = _metric(setting, form, "r2_multi")
        title = law_label(form) + (f"   R² (repeated) {r2:.3f}" if r2 is not None else "")
        axis.set(title=title, xscale=scale, yscale=scale)
        if scale == "log":
            plain_ticks(axis, "both", ends)
    for axis in axes.flat[len(forms) :]:
        axis.set_visible(False)
    axes[0, 0].legend(loc="upper left", handletextpad=0.2)
    figure.supxlabel("predicted loss (nats per token)", fontsize=10)
    figure.supylabel("observed loss", fontsize=10)
    return figure


_DECADE = 10.0  # within which a linear axis has room for its numbers
METRICS = {
    "huber": ("Huber loss, summed (lower is better)", ".3g"),
    "r2": ("R² of the loss (higher is better)", ".4f"),
    "r2_multi": ("R² on repeated data (higher is better)", ".3f"),
    "held_out_error": ("held-out error of ln loss (lower is better)", ".3g"),
}


@styled
def fit_quality(studies: Sequence[tuple[str, Setting]], metrics: Sequence[str]) -> Figure:
    """Metrics of every form side by side: a group of points for each study, below its name if it has one."""
    forms = [form for form in every_form() if any(form in setting.laws for _, setting in studies)]
    rows = [(name, setting, form) for name, setting in studies for form in ("", *forms) if name or form]
    every = {key: [_metric(setting, form, key) for _, setting, form in rows] for key in metrics}
    shown = {key: values for key, values in every.items() if set(values) != {None}}
    if not shown:
        raise InvalidInput("must have been fitted with metrics; none of these has any.", field="calibrations")
    figure = Figure(figsize=(3.6 * len(shown) + 1.6, 0.3 * len(rows) + 0.9), layout="constrained")
    axes = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axis, (key, values) in zip(axes, shown.items(), strict=True):
        _points(axis, [(study, form) for study, _, form in rows], values, *METRICS[key])
    return figure


def _points(
    axis: Axes, rows: list[tuple[str, str]], values: list[float | None], title: str, digits: str
) -> None:
    """One point per form, the first on top, with its value behind it; names of studies stand above theirs.

    The axis ends where the values do: forms that fit are alike, and bars from zero would all be equal.
    """
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    room = (high - low) or abs(high) or 1.0
    for place, ((study, form), value) in enumerate(zip(rows, values, strict=True)):
        if value is not None:
            axis.plot(value, place, "o", color=law_colour(form), markersize=7)
            axis.text(value + 0.03 * room, place, f" {value:{digits}}", va="center", fontsize=9)
        elif form:
            axis.text(low, place, " not known", va="center", fontsize=9)
        else:
            axis.text(low, place, study, va="center", fontweight="bold")
    axis.set(xlim=(low - 0.1 * room, high + 0.4 * room), ylim=(len(rows) - 0.4, -0.6), title=title)
    axis.set_yticks(range(len(rows)), [form and law_label(form) for _, form in rows])
    bare(axis)


def _metric(setting: Setting, form: str, key: str) -> float | None:
    return setting.laws[form].metrics.get(key) if form in setting.laws else None


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
        axis.set(xlabel=palette.symbol(across), ylabel=palette.symbol(up))
    return figure


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Which parameters are drawn against each other, those of the base law first."""
    pairs = [("alpha", "beta"), ("E", "alpha")]
    if len(names) == 4:  # an amplitude, the exponent of repeats, and two of size and data
        amplitude, repeats, size, data = names
        return [*pairs, (size, repeats), (data, amplitude)]
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
def allocation(calibration: Calibration, ud: float, form: str, flops: float) -> Figure:
    """Optimal size, epochs and loss against compute, per weight decay, with 95% of the draws; a line where
    the compute is the one asked about.
    """
    settings = [setting for setting in calibration.settings if setting.has(form)]
    one_epoch_flops(settings[0].law(form), ud)  # refuses what has no optimum
    budgets = np.geomspace(flops / 100, flops * 10, 37)
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
        axis.set(xscale="log", xlabel="compute (FLOPs)", title=name)
    for axis in axes[:2]:
        axis.set_yscale("log")
    for axis in axes:
        axis.axvline(flops, color=INK, linewidth=0.8, linestyle="--")
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
    """Per quantity of an allocation the ends of its 95% interval, (2, budgets), NaN where draws that ran away
    leave none; None without draws.
    """
    if setting.law_draws(form) is None:
        return None
    with np.errstate(all="ignore"):
        found = [allocation_intervals(setting, form, ud, float(flops)) for flops in budgets]
    none = Interval.model_construct(low=np.nan, median=np.nan, high=np.nan)
    ends = {name: [one.get(name, none) for one in found] for name in ("params", "epochs", "loss")}
    return {name: np.array([[e.low for e in each], [e.high for e in each]]) for name, each in ends.items()}


def points(runs: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, unique tokens and epochs, as laws take them."""
    params, unique, epochs = runs[["params", "unique_tokens", "epochs"]].to_numpy(dtype=float).T
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
