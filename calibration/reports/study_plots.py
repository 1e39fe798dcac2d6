"""The pictures of a validation: regret of each law, and the weight-decay crossover."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from calibration.reports.plots import COLOURS, INK, LABELS, MARKERS, SERIES, styled
from calibration.studies.outcomes import CrossoverFound, Verdict
from planner.laws import FORMS
from planner.units import scientific, short


@styled
def regret(verdict: Verdict) -> Figure:
    """Mean regret of each law, the regret at each budget as points, one panel per weight decay."""
    decays = list(dict.fromkeys(standing.weight_decay for standing in verdict.standings))
    forms = [form for form in FORMS if any(standing.law == form for standing in verdict.standings)]
    figure = Figure(figsize=(5.2 * len(decays) + 1.6, 0.5 * len(forms) + 1.4), layout="constrained")
    axes = figure.subplots(1, len(decays), squeeze=False, sharey=True)[0]
    places = {form: len(forms) - 1 - k for k, form in enumerate(forms)}
    for axis, decay in zip(axes, decays, strict=True):
        trials = [trial for trial in verdict.trials if trial.weight_decay == decay]
        for k, trial in enumerate(trials):
            shown = [
                (tried.regret, places[tried.law] + 0.15) for tried in trial.laws if tried.regret is not None
            ]
            if shown:
                label = f"{short(trial.ud)}, {scientific(trial.flops)}"
                x, y = zip(*shown, strict=True)
                axis.scatter(
                    x,
                    y,
                    s=22,
                    marker=MARKERS[k % len(MARKERS)],
                    color=INK,
                    zorder=3,
                    linewidths=0,
                    clip_on=False,
                    label=label,
                )
        for standing in (s for s in verdict.standings if s.weight_decay == decay):
            place = places[standing.law]
            if standing.regret is None:
                axis.text(0, place, " nothing trained", va="center", fontsize=9)
                continue
            axis.barh(place, standing.regret, color=COLOURS[standing.law], height=0.62, alpha=0.75)
            if standing.seed_error is not None:
                axis.errorbar(
                    standing.regret,
                    place - 0.15,
                    xerr=standing.seed_error,
                    color=INK,
                    capsize=3,
                    linewidth=1.2,
                    zorder=2,
                )
        axis.set_title(f"λ = {decay:g}")
        axis.set_xlabel("regret (nats per token)")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
        axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
    axes[0].set_yticks([places[form] for form in forms], [LABELS[form] for form in forms])
    axes[-1].legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), title="unique tokens, FLOPs", title_fontsize=9
    )
    return figure


@styled
def crossover(found: Sequence[CrossoverFound]) -> Figure:
    """Loss of each weight decay's own optimum against compute: seeds as points, means as lines, the crossover as upright lines."""
    figure = Figure(figsize=(4.6 * len(found) + 0.4, 3.7), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for axis, one in zip(axes, found, strict=True):
        for k, (side, decay) in enumerate((("weaker", one.weaker), ("stronger", one.stronger))):
            trained = [
                (budget.flops, getattr(budget, side))
                for budget in one.budgets
                if getattr(budget, side) is not None
            ]
            axis.plot(
                [flops for flops, _ in trained],
                [c.loss for _, c in trained],
                color=SERIES[k],
                linestyle=("-", "--")[k],
                label=f"λ = {decay:g}",
            )
            for flops, c in trained:
                axis.scatter(
                    [flops] * len(c.losses),
                    c.losses,
                    s=16,
                    color=SERIES[k],
                    marker=MARKERS[k],
                    alpha=0.7,
                    linewidths=0,
                )
        _upright(axis, one.predicted, one.predicted_interval, "predicted", ":", one.budgets)
        _upright(axis, one.observed, one.observed_interval, "observed", "-", one.budgets)
        axis.set_xscale("log")
        axis.set_xticks(
            [budget.flops for budget in one.budgets], [scientific(budget.flops, 2) for budget in one.budgets]
        )
        axis.set_xticks([], minor=True)
        axis.set_xlabel("compute (FLOPs)")
        axis.set_title(f"{short(one.ud)} unique tokens")
        axis.legend(loc="best")
    axes[0].set_ylabel("loss (nats per token)")
    return figure


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
