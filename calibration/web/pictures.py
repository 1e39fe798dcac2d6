"""Interactive pictures of a decision. Each function takes an answer and returns a Figure.

Looks are those of `planner.show.palette`: lines differ in dash as well as colour, and points in shape. They
are drawn for light paper on a transparent background; the page's style sheet gives each colour its pair on
dark paper, and text its ink.
"""

from __future__ import annotations

import numpy as np

from calibration.web import drawing
from calibration.web.answers import Answer, limits, without_draws
from calibration.web.compute_picture import loss_against_compute
from calibration.web.drawing import Figure, Mark
from planner.calibration import Setting
from planner.explain import law_error
from planner.inputs import CONTINUOUS, FREE, scientific, short, signed
from planner.inputs import epochs as passes
from planner.laws import BASE_FORM
from planner.plans import frontier_along
from planner.results import Alternative, Plan
from planner.show.palette import GOOD, NEUTRAL, PLAN, TERMS, law_label, law_style, series
from planner.solve import (
    FLOPS_PER_PARAM_TOKEN,
    Point,
    allocate,
    by_the_law,
    compute_curve,
    deciding_law,
    most_epochs,
    plan_within,
    search_range,
)

_DECAYS = 15
_EDGE = 1.15  # times beyond the ends there is room in the picture
_ABOVE = 0.6  # nats above the best that are shown, at most
_RISES = 1e-3  # nats, of a curve that one sees rise
_JUMP = 0.25  # in ln(epochs), from one point of a frontier to the next: another valley, not a way there


def isoflop(found: Answer) -> Figure:
    """Loss against epochs at the plan's compute: how flat the optimum is."""
    p = found.plan
    law = found.calibration.law(p.weight_decay, p.law)
    product = p.spent_flops / (FLOPS_PER_PARAM_TOKEN * p.ud)
    flat = p.flat_range
    low, high = min(flat.epochs_min / 4, p.epochs / 8), max(flat.epochs_max * 4, p.epochs * 6)
    epochs = np.geomspace(max(low, 1e-3), high, 160)
    epochs = np.union1d(epochs, [p.epochs])  # the plan itself, which may sit on a kink at one epoch
    loss, base = (np.asarray(one.loss(product / epochs, p.ud, epochs)) for one in (law, law.base()))
    figure = drawing.empty("epochs at this compute", "predicted loss (nats per token)")
    if p.predictive_uncertainty is not None:
        wide = p.predictive_uncertainty.as_good
        figure.shade(wide.epochs_min, wide.epochs_max, NEUTRAL.light, 0.14)
        drawing.key(figure, "within the law's error of the best", "square", NEUTRAL)
    figure.shade(flat.epochs_min, flat.epochs_max, GOOD.light, 0.18)
    text = drawing.sizes(product / epochs, epochs)
    fresh = law_style(BASE_FORM)
    drawing.line(figure, epochs, base, "if repeats were as good as new", fresh, text, width=1.5)
    drawing.line(figure, epochs, loss, law_label(p.law), law_style(p.law), text)
    plan = f"the plan: {short(p.params)} × {passes(p.epochs)}"
    drawing.point(figure, p.epochs, p.loss, plan, "circle", PLAN)
    drawing.key(figure, f"within {flat.tolerance:g} nats of the best", "square", GOOD)
    drawing.log_axis(figure, "xaxis", epochs, short)
    least = min(float(base.min()), p.loss)
    span = p.loss - least
    figure.axis("yaxis", range=[least - 0.1 * span - 0.05, p.loss + max(0.6, 3 * span)])
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
    figure = drawing.empty("weight decay λ", "loss of the plan within this compute (nats per token)")
    tolerance = law_error(p)
    near = np.where(best.loss <= np.nanmin(best.loss) + tolerance, best.loss, np.nan)
    drawing.glow(figure, decays, near, f"within {tolerance:.2g} nats of the best", GOOD)
    text = [
        f"weight decay {decay:.2g}<br>{size}"
        for decay, size in zip(decays, drawing.sizes(best.params, best.epochs), strict=True)
    ]
    drawing.line(figure, decays, best.loss, "the best plan at each weight decay", series(0), text)
    runs = np.isin(decays, calibrated)
    said = [words for words, there in zip(text, runs, strict=True) if there]
    drawing.ring(figure, decays[runs], best.loss[runs], "calibrated with runs", NEUTRAL, said)
    across = np.array([decays[0] / _EDGE, decays[-1] * _EDGE])
    marks = [Mark(chosen, f"best: {chosen:.2g}", solid=chosen == p.weight_decay, low=True)]
    if chosen != p.weight_decay:
        marks.append(Mark(p.weight_decay, f"yours: {p.weight_decay:.2g}", solid=True))
    drawing.marks(figure, [mark for mark in marks if mark.x > 0], across)
    drawing.point(figure, p.weight_decay, p.loss, "the plan", "circle", PLAN, text=f"loss {p.loss:.3f}")
    drawing.log_axis(figure, "xaxis", across, "{:.{}g}".format)
    low = float(np.nanmin(best.loss))
    high = max(min(float(np.nanmax(best.loss)), low + _ABOVE), p.loss)
    figure.axis("yaxis", range=[low - 0.2 * (high - low) - 0.02, high + 0.05 * (high - low) + 0.02])
    if len(decays) > 1:
        figure.layout["meta"] = {"field": "weight_decay", "at": p.weight_decay}  # what page.js drags
    return figure


def _best_at_decays(found: Answer, decays: np.ndarray) -> Point:
    """The plan at each weight decay, which spends by the same rule as the answer."""
    p, known, asked = found.plan, without_draws(found.calibration), limits(found.choices)
    ceiling = p.flops if p.serving is None else p.spent_flops
    each = []
    for setting in map(known.setting, decays.tolist()):
        law = deciding_law(setting, p.law, asked)
        each.append(by_the_law(law, plan_within(law, p.ud, ceiling, setting.inside_error(p.law), asked)))
    return Point(*np.array(each, dtype=float).T)


def frontier(found: Answer) -> Figure:
    """Optimal size and epochs of each law as compute grows, where it turns back, and this budget."""
    p = found.plan
    setting = found.calibration.setting(p.weight_decay)
    start = float(search_range(setting.law(p.law), p.ud)[0])
    flops = np.geomspace(min(start * 1e4, p.flops / 10), max(start * 1e8, p.flops * 10), 180)
    figure = drawing.empty("parameters", "epochs")
    forms = [*(other.law for other in p.other_laws), p.law]
    best = {form: allocate(setting.law(form), p.ud, flops, CONTINUOUS) for form in forms}
    for form, one in best.items():
        _frontier_of(figure, found, setting, form, flops, one)
    sizes = np.concatenate([one.params for one in best.values()])
    params = np.array([np.nanmin(sizes), np.nanmax(sizes)])
    top = max(float(np.nanmax(one.epochs)) for one in best.values())
    same = p.spent_flops / (FLOPS_PER_PARAM_TOKEN * p.ud * params)
    drawing.line(figure, params, same, f"{scientific(p.spent_flops)} FLOPs", NEUTRAL, None, width=1)
    drawing.key(figure, "this budget", "circle", NEUTRAL)
    drawing.key(figure, "turns back", "triangle-down", NEUTRAL)
    drawing.log_axis(figure, "xaxis", params, short)
    drawing.log_axis(figure, "yaxis", np.array([0.7, top * 1.3]), short)
    return figure


def _frontier_of(
    figure: Figure, found: Answer, setting: Setting, form: str, flops: np.ndarray, best: Point
) -> None:
    p, law, style = found.plan, setting.law(form), law_style(form)
    name = law_label(form) + (" (in use)" if form == p.law else "")
    text = [
        f"{scientific(c)} FLOPs: {size}<br>loss {loss:.3f}"
        for c, size, loss in zip(flops, drawing.sizes(best.params, best.epochs), best.loss, strict=True)
    ]
    jumps = np.abs(np.diff(np.log(best.epochs), prepend=np.log(best.epochs[0]))) > _JUMP
    steps = np.where(jumps, np.nan, best.epochs)
    drawing.line(figure, best.params, steps, name, style, text, width=3.5 if form == p.law else 2, group=form)
    chosen: dict[str, Plan | Alternative] = {p.law: p, **{other.law: other for other in p.other_laws}}
    here = chosen[form]
    said = f"this budget: {short(here.params)} parameters × {passes(here.epochs)}"
    drawing.point(figure, here.params, here.epochs, name, "circle", style, group=form, text=said)
    turn = most_epochs(law, p.ud, compute_curve(law, p.ud, FREE), FREE).single()
    if np.isfinite(turn.loss):
        said = f"turns back at {scientific(turn.flops)} FLOPs"
        drawing.point(figure, turn.params, turn.epochs, name, "triangle-down", style, group=form, text=said)


def terms(found: Answer) -> Figure:
    """The planned model's loss broken into its terms, as it is trained for more epochs."""
    p = found.plan
    law = found.calibration.law(p.weight_decay, p.law)
    epochs = np.linspace(1.0, max(16.0, 2 * p.epochs), 120)
    parts = law.terms(p.params, p.ud, epochs)
    figure = drawing.empty(
        f"epochs of a model with {short(p.params)} parameters", "predicted loss (nats per token)"
    )
    below = float(np.max(np.broadcast_to(parts.irreducible, epochs.shape)))
    for name, values in parts._asdict().items():
        figure.add(
            x=drawing.plain(epochs),
            y=drawing.plain(np.broadcast_to(values, epochs.shape)),
            name=name,
            stackgroup="terms",
            mode="lines",
            line={"color": TERMS[name].light, "width": 1},
            hovertemplate="%{y:.3f}",
        )
    total = np.asarray(parts.loss)
    least = int(np.argmin(total))
    if least < len(epochs) - 1:
        lowest = f"lowest at {epochs[least]:.1f} epochs"
        drawing.point(figure, epochs[least], total[least], lowest, "triangle-down", NEUTRAL)
    if p.epochs >= 1:
        drawing.point(figure, p.epochs, p.loss, f"the plan: {passes(p.epochs)}", "circle", PLAN)
    # An area means its height, but the lowest is two thirds of all, and no training changes it: it is cut.
    top = float(np.max(total))
    cut = below - 0.12 * (top - below)
    title = {"text": "%{x} epochs"}
    figure.axis("xaxis", range=[1, float(epochs[-1])], hoverformat=".1f", unifiedhovertitle=title)
    figure.axis("yaxis", range=[cut, top + 0.05 * (top - cut)])
    said = {"x": 0.01, "xref": "paper", "xanchor": "left", "y": cut, "yanchor": "bottom", "showarrow": False}
    figure.layout["annotations"].append(
        {**said, "text": f"irreducible: {below:.3f}, cut off here", "font": {"size": 12}}
    )
    figure.layout["hovermode"] = "x unified"
    return figure


def whatif(found: Answer) -> Figure:
    """The best loss with more or less data, compute, or both; at one, the plan as it is."""
    p = found.plan
    factors = 2.0 ** np.linspace(-2, 4, 25)
    twice = int(np.argmin(np.abs(factors - 2)))
    figure = drawing.empty("times what you have", "loss of the plan (nats per token)")
    # At the weight decay that was given, or else at the one that is best for each, as the text has it.
    known, decay, asked = without_draws(found.calibration), found.choices.weight_decay, limits(found.choices)
    for i, (name, data, compute) in enumerate(_MORE):
        ud, flops, style = p.ud * factors**data, p.flops * factors**compute, series(2 + i)
        best = frontier_along(known, p.law, ud, flops, asked, decay or None)
        losses, sizes = best.loss, drawing.sizes(best.params, best.epochs)
        text = [
            f"{size}, weight decay {decay:g}<br>loss {loss:.3f}"
            for size, decay, loss in zip(sizes, best.weight_decay, losses, strict=True)
        ]
        change = signed(float(losses[twice] - p.loss))
        if compute and np.nanmax(np.diff(losses)) > _RISES:
            figure.drew.add("rise")
        drawing.line(figure, factors, losses, f"{name}: {change} if doubled", style, text, group=name)
        said = f"twice: {change} nats, {text[twice]}"
        drawing.point(figure, 2.0, losses[twice], name, "diamond", style, group=name, text=said)
    drawing.point(figure, 1.0, p.loss, "the plan", "circle", PLAN)
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
