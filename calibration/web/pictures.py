"""Interactive pictures of a decision. Each function takes an answer and returns a Figure.

Looks are those of `planner.show.palette`: lines differ in dash as well as colour, and points in shape. They
are drawn for light paper on a transparent background; the page's style sheet gives each colour its pair on
dark paper, and text its ink.
"""

from __future__ import annotations

import numpy as np

from calibration.web.answers import Answer, limits, without_draws
from calibration.web.compute_picture import loss_against_compute
from calibration.web.drawing import Figure, Mark, told
from planner import solve
from planner.explain import law_error
from planner.inputs import CONTINUOUS, FREE, scientific, short, signed
from planner.inputs import epochs as passes
from planner.laws import BASE_FORM, Law
from planner.plans import frontier_along
from planner.results import Alternative, Plan
from planner.show import curves
from planner.show.palette import GOOD, NEUTRAL, PLAN, TERMS, law_label, law_style, series

_DECAYS = 15
_EDGE = 1.15  # times beyond the ends there is room in the picture
_ABOVE = 0.6  # nats above the best that are shown, at most
_RISES = 1e-3  # nats, of a curve that one sees rise


def isoflop(found: Answer) -> Figure:
    """Loss against epochs at the plan's compute: how flat the optimum is."""
    p, flat = found.plan, found.plan.flat_range
    epochs, params, loss, base, shown = curves.isoflop(p, found.calibration, 160)
    figure = Figure("epochs at this compute", "predicted loss (nats per token)")
    if p.predictive_uncertainty is not None:
        wide = p.predictive_uncertainty.as_good
        figure.shade(wide.epochs_min, wide.epochs_max, NEUTRAL.light, 0.14)
        figure.key("within the law's error of the best", "square", NEUTRAL)
    figure.shade(flat.epochs_min, flat.epochs_max, GOOD.light, 0.18)
    lines = (
        (base, "if repeats were as good as new", BASE_FORM, 1.5),
        (loss, law_label(p.law), p.law, 2.5),
    )
    for losses, name, form, width in lines:
        figure.line(epochs, losses, name, law_style(form), told(params, epochs, losses), width)
    plan = f"the plan: {short(p.params)} × {passes(p.epochs)}"
    figure.point(p.epochs, p.loss, plan, "circle", PLAN)
    figure.key(f"within {flat.tolerance:g} nats of the best", "square", GOOD)
    figure.log_axis("xaxis", epochs, short)
    figure.axis("yaxis", range=shown)
    return figure


def loss_against_decay(found: Answer) -> Figure:
    """The loss of the plan at each weight decay; the best, those calibrated, and the plan.

    A calibration with a law for every weight decay is drawn over all that it covers, one with a few weight
    decays between the weakest and the strongest of them.
    """
    p, known = found.plan, found.calibration
    calibrated = [s.weight_decay for s in known.settings if s.has(p.law) and s.weight_decay > 0]
    weakest, strongest = known.weight_decay_range
    decays = np.geomspace(max(weakest, 1e-3 * strongest), strongest, _DECAYS)
    chosen = p.weight_decay  # the best, unless another was asked for
    if found.choices.weight_decay:
        asked = np.array([p.ud]), np.array([p.flops]), limits(found.choices)
        chosen = float(frontier_along(without_draws(known), p.law, *asked).weight_decay[0])
    decays = np.union1d(decays, [*calibrated, p.weight_decay, chosen])
    decays = decays[decays > 0]
    best = _best_at_decays(found, decays)
    figure = Figure("weight decay λ", "loss of the plan within this compute (nats per token)")
    tolerance = law_error(p)
    near = np.where(best.loss <= np.nanmin(best.loss) + tolerance, best.loss, np.nan)
    figure.glow(decays, near, f"within {tolerance:.2g} nats of the best", GOOD)
    text = told(best.params, best.epochs, best.loss, (f"weight decay {decay:.2g}" for decay in decays))
    figure.line(decays, best.loss, "the best plan at each weight decay", series(0), text)
    runs = np.isin(decays, calibrated)
    said = [words for words, there in zip(text, runs, strict=True) if there]
    figure.ring(decays[runs], best.loss[runs], "calibrated with runs", NEUTRAL, said)
    across = np.array([decays[0] / _EDGE, decays[-1] * _EDGE])
    marks = [Mark(chosen, f"best: {chosen:.2g}", solid=chosen == p.weight_decay, low=True)]
    if chosen != p.weight_decay:
        marks.append(Mark(p.weight_decay, f"yours: {p.weight_decay:.2g}", solid=True))
    figure.marks([mark for mark in marks if mark.x > 0], across)
    figure.point(p.weight_decay, p.loss, "the plan", "circle", PLAN, text=f"loss {p.loss:.3f}")
    figure.log_axis("xaxis", across, "{:.{}g}".format)
    low = float(np.nanmin(best.loss))
    high = max(min(float(np.nanmax(best.loss)), low + _ABOVE), p.loss)
    figure.axis("yaxis", range=[low - 0.2 * (high - low) - 0.02, high + 0.05 * (high - low) + 0.02])
    if len(decays) > 1:
        figure.layout["meta"] = {"field": "weight_decay", "at": p.weight_decay}  # what page.js drags
    return figure


def _best_at_decays(found: Answer, decays: np.ndarray) -> solve.Point:
    """The plan at each weight decay, which spends by the same rule as the answer."""
    p, known, asked = found.plan, without_draws(found.calibration), limits(found.choices)
    ceiling = p.flops if p.serving is None else p.spent_flops
    each = []
    for setting in map(known.setting, decays.tolist()):
        law = solve.deciding_law(setting, p.law, asked)
        best = solve.plan_within(law, p.ud, ceiling, setting.inside_error(p.law), asked)
        each.append(solve.by_the_law(law, best))
    return solve.Point(*np.array(each, dtype=float).T)


def frontier(found: Answer) -> Figure:
    """Optimal size and epochs of each law as compute grows, where it turns back, and this budget."""
    p = found.plan
    setting = found.calibration.setting(p.weight_decay)
    start = float(solve.search_range(setting.law(p.law), p.ud)[0])
    flops = np.geomspace(min(start * 1e4, p.flops / 10), max(start * 1e8, p.flops * 10), 180)
    figure = Figure("parameters", "epochs")
    forms: list[Plan | Alternative] = [*p.other_laws, p]
    best = {one.law: solve.allocate(setting.law(one.law), p.ud, flops, CONTINUOUS) for one in forms}
    for one in forms:
        _frontier_of(figure, p, setting.law(one.law), one, best[one.law])
    params = np.concatenate([one.params for one in best.values()])
    ends = np.array([np.nanmin(params), np.nanmax(params)])
    top = max(float(np.nanmax(one.epochs)) for one in best.values())
    same = p.spent_flops / (solve.FLOPS_PER_PARAM_TOKEN * p.ud * ends)
    figure.line(ends, same, f"{scientific(p.spent_flops)} FLOPs", NEUTRAL, width=1)
    figure.key("this budget", "circle", NEUTRAL)
    figure.key("turns back", "triangle-down", NEUTRAL)
    figure.log_axis("xaxis", ends, short)
    figure.log_axis("yaxis", np.array([0.7, top * 1.3]), short)
    return figure


def _frontier_of(figure: Figure, p: Plan, law: Law, here: Plan | Alternative, best: solve.Point) -> None:
    style, name = law_style(here.law), law_label(here.law) + " (in use)" * (here is p)
    text = told(best.params, best.epochs, best.loss, (f"{scientific(c)} FLOPs" for c in best.flops))
    figure.line(best.params, curves.unbroken(best), name, style, text, width=3.5 if here is p else 2)
    said = f"this budget: {short(here.params)} parameters × {passes(here.epochs)}"
    figure.point(here.params, here.epochs, name, "circle", style, said, showlegend=False)
    turn = solve.most_epochs(law, p.ud, solve.compute_curve(law, p.ud, FREE), FREE).single()
    if np.isfinite(turn.loss):
        said = f"turns back at {scientific(turn.flops)} FLOPs"
        figure.point(turn.params, turn.epochs, name, "triangle-down", style, said, showlegend=False)


def terms(found: Answer) -> Figure:
    """The planned model's loss broken into its terms, as it is trained for more epochs."""
    p = found.plan
    law = found.calibration.law(p.weight_decay, p.law)
    epochs = np.linspace(1.0, max(16.0, 2 * p.epochs), 120)
    parts = law.terms(p.params, p.ud, epochs)
    figure = Figure(f"epochs of a model with {short(p.params)} parameters", "predicted loss (nats per token)")
    below = float(np.max(np.broadcast_to(parts.irreducible, epochs.shape)))
    for name, values in parts._asdict().items():
        height, line = np.broadcast_to(values, epochs.shape), {"color": TERMS[name].light, "width": 1}
        figure.add(epochs, height, name, stackgroup="terms", line=line, hovertemplate="%{y:.3f}")
    total = np.asarray(parts.loss)
    least = int(np.argmin(total))
    if least < len(epochs) - 1:
        lowest = f"lowest at {epochs[least]:.1f} epochs"
        figure.point(epochs[least], total[least], lowest, "triangle-down", NEUTRAL)
    if p.epochs >= 1:
        figure.point(p.epochs, p.loss, f"the plan: {passes(p.epochs)}", "circle", PLAN)
    # An area means its height, but the lowest is two thirds of all, and no training changes it: it is cut.
    top = float(np.max(total))
    cut = below - 0.12 * (top - below)
    title = {"text": "%{x} epochs"}
    figure.axis("xaxis", range=[1, float(epochs[-1])], hoverformat=".1f", unifiedhovertitle=title)
    figure.axis("yaxis", range=[cut, top + 0.05 * (top - cut)])
    said = {"text": f"irreducible: {below:.3f}, cut off here", "showarrow": False, "font": {"size": 12}}
    place = {"x": 0.01, "xref": "paper", "xanchor": "left", "y": cut, "yanchor": "bottom"}
    figure.layout["annotations"].append({**said, **place})
    figure.layout["hovermode"] = "x unified"
    return figure


def whatif(found: Answer) -> Figure:
    """The best loss with more or less data, compute, or both; at one, the plan as it is."""
    p = found.plan
    factors = 2.0 ** np.linspace(-2, 4, 25)
    twice = int(np.argmin(np.abs(factors - 2)))
    figure = Figure("times what you have", "loss of the plan (nats per token)")
    # At the weight decay that was given, or else at the one that is best for each, as the text has it.
    known, decay, asked = without_draws(found.calibration), found.choices.weight_decay, limits(found.choices)
    for i, (name, data, compute) in enumerate(_MORE):
        ud, flops, style = p.ud * factors**data, p.flops * factors**compute, series(2 + i)
        best = frontier_along(known, p.law, ud, flops, asked, decay or None)
        decays = (f"weight decay {one:g}" for one in best.weight_decay)
        losses, text = best.loss, told(best.params, best.epochs, best.loss, decays)
        change = signed(float(losses[twice] - p.loss))
        if compute and np.nanmax(np.diff(losses)) > _RISES:
            figure.drew.add("rise")
        figure.line(factors, losses, f"{name}: {change} if doubled", style, text)
        said = f"twice: {change} nats<br>{text[twice]}"
        figure.point(2.0, losses[twice], name, "diamond", style, said, showlegend=False)
    figure.point(1.0, p.loss, "the plan", "circle", PLAN)
    shown = np.concatenate([np.asarray(trace["y"], dtype=float) for trace in figure.data])
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    high = min(high, p.loss + max(0.5, 2 * (p.loss - low)))  # what explodes would flatten the rest
    figure.axis("yaxis", range=[low - 0.08 * (high - low), high + 0.05 * (high - low)])
    figure.axis("xaxis", type="log", tickvals=list(_FACTORS), ticktext=list(_FACTORS.values()))
    return figure


_MORE = (("more data", 1, 0), ("more compute", 0, 1), ("more of both", 1, 1))
_FACTORS = {0.25: "¼ ×", 0.5: "½ ×", 1.0: "1 ×", 2.0: "2 ×", 4.0: "4 ×", 8.0: "8 ×", 16.0: "16 ×"}


PICTURES = {
    "crossover": loss_against_compute,
    "isoflop": isoflop,
    "decay": loss_against_decay,
    "frontier": frontier,
    "terms": terms,
    "whatif": whatif,
}
