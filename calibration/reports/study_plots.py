"""The pictures of a validation: regret of each law, and the weight-decay crossover."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibration.reports.fit_plots import INK, bare, styled
from calibration.studies.verdict import CrossoverFound, Standing, Verdict
from planner.inputs import scientific, short
from planner.laws import FORMS
from planner.show import palette


@styled
def regret(verdict: Verdict) -> Figure:
    """Mean regret of each law, the regret at each budget as points, one panel per weight decay."""
    decays = list(dict.fromkeys(standing.weight_decay for standing in verdict.standings))
    named = {standing.law for standing in verdict.standings}
    upwards = [form for form in FORMS if form in named][::-1]
    places = dict(zip(upwards, range(len(upwards)), strict=True))
    figure = Figure(figsize=(5.2 * len(decays) + 1.6, 0.5 * len(places) + 1.4), layout="constrained")
    axes = figure.subplots(1, len(decays), squeeze=False, sharey=True)[0]
    for axis, decay in zip(axes, decays, strict=True):
        for k, trial in enumerate(t for t in verdict.trials if t.weight_decay == decay):
            shown = [(one.regret, places[one.law] + 0.15) for one in trial.laws if one.regret is not None]
            if shown:
                dots: dict[str, Any] = {
                    "marker": palette.marker(k),
                    "color": INK,
                    "linewidths": 0,
                    "zorder": 3,
                }
                label = f"{short(trial.ud)}, {scientific(trial.flops)}"
                axis.scatter(*zip(*shown, strict=True), s=22, clip_on=False, label=label, **dots)
        for standing in verdict.standings:
            if standing.weight_decay == decay:
                _regret_bar(axis, places[standing.law], standing)
        axis.set(title=f"λ = {decay:g}", xlabel="regret (nats per token)")
        axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
        bare(axis)
    axes[0].set_yticks(list(places.values()), [palette.law_label(form) for form in places])
    title = "unique tokens, FLOPs"
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title=title, title_fontsize=9)
    return figure


def _regret_bar(axis: Axes, place: int, standing: Standing) -> None:
    if standing.regret is None:
        axis.text(0, place, " nothing trained", va="center", fontsize=9)
        return
    axis.barh(place, standing.regret, color=palette.law_colour(standing.law), height=0.62, alpha=0.75)
    if standing.seed_error is not None:
        how: dict[str, Any] = {"color": INK, "capsize": 3, "linewidth": 1.2, "zorder": 2}
        axis.errorbar(standing.regret, place - 0.15, xerr=standing.seed_error, **how)


@styled
def crossover(found: Sequence[CrossoverFound]) -> Figure:
    """Loss of each weight decay's own optimum against compute: seeds as points, means as lines, and C×."""
    figure = Figure(figsize=(4.6 * len(found) + 0.4, 3.7), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for axis, one in zip(axes, found, strict=True):
        for number, side in enumerate(("weaker", "stronger")):
            _side(axis, one, side, number)
        _upright(axis, one.predicted, one.predicted_interval, "predicted", ":", one.budgets)
        _upright(axis, one.observed, one.observed_interval, "observed", "-", one.budgets)
        axis.set(xscale="log", xlabel="compute (FLOPs)", title=f"{short(one.ud)} unique tokens")
        tried = [budget.flops for budget in one.budgets]
        axis.set_xticks(tried, [scientific(flops, 2) for flops in tried])
        axis.set_xticks([], minor=True)
        axis.legend(loc="best")
    axes[0].set_ylabel("loss (nats per token)")
    return figure


def _side(axis: Axes, one: CrossoverFound, side: str, number: int) -> None:
    """What one weight decay's optimum came to at each budget."""
    look = palette.series(number)
    trained = [
        (budget.flops, chosen) for budget in one.budgets if (chosen := getattr(budget, side)) is not None
    ]
    flops, losses = [at for at, _ in trained], [chosen.loss for _, chosen in trained]
    style, label = palette.line_style(look.dash), f"λ = {getattr(one, side):g}"
    axis.plot(flops, losses, color=look.light, linestyle=style, label=label)
    points: dict[str, Any] = {"color": look.light, "marker": palette.marker(number), "alpha": 0.7}
    for at, chosen in trained:
        axis.scatter([at] * len(chosen.losses), chosen.losses, s=16, linewidths=0, **points)


def _upright(
    axis: Any, place: float | None, ends: Any, label: str, style: str, budgets: Sequence[Any]
) -> None:
    if place is None:
        return
    axis.axvline(place, color=INK, linestyle=style, linewidth=1.1, label=f"{label} {scientific(place, 2)}")
    if ends is not None and budgets:
        tried = budgets[0].flops, budgets[-1].flops
        low = max(ends[0] or 0.0, tried[0])
        high = min(ends[1] or math.inf, tried[1])
        if low < high:
            axis.axvspan(low, high, color=INK, alpha=0.08 if label == "observed" else 0.04, linewidth=0)
