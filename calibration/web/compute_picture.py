"""The picture that the page opens with: the best loss against compute, where you are, and where to stop.

One curve for each weight decay, C× where the better one changes, the budget ("you are here", which page.js
lets be dragged), the plan, and the compute from which the law expects no gain. Both axes keep to round
numbers, so that the curves move when an input changes and not the paper below them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibration.web.answers import Answer, limits
from calibration.web.drawing import Figure, Mark, told
from calibration.web.state import IN_LOSS
from planner.calibration import Setting
from planner.evidence import predictive_width
from planner.explain import at_weight_decay, law_error, less_is_better
from planner.inputs import WHOLE, Limits, dollars, duration, scientific
from planner.laws import Style
from planner.results import Plan
from planner.show.palette import GOOD, NEUTRAL, PLAN, law_label, series
from planner.solve import Point, allocate_at_most, by_the_law, deciding_law
from planner.uncertainty import LEVEL, loss_intervals

_POINTS = 140
_BAND_POINTS = 48  # of the interval around a curve, and its ends
_FAR = 1e3  # times further away C× is not worth the room that it would take
_AROUND = 8.0  # times what is to be seen, at least, on either side
_ABOVE, _STEP = 0.7, 0.2  # nats above the plan that are shown, at least, and what the axis keeps to


class _Curve(NamedTuple):
    setting: Setting
    style: Style
    flops: np.ndarray
    best: Point


def loss_against_compute(found: Answer) -> Figure:
    """The best loss at each compute, for each weight decay; C×, the budget, the plan and where to stop."""
    p = found.plan
    flops = _computes(p)
    settings = [s for s in found.calibration.settings if s.has(p.law)]
    if all(s.weight_decay != p.weight_decay for s in settings):  # the plan's own, between those calibrated
        settings.append(found.calibration.setting(p.weight_decay))
    asked = limits(found.choices)
    curves = [_Curve(s, series(i), flops, _best(s, p, flops, asked)) for i, s in enumerate(settings)]
    figure = Figure("compute (FLOPs)", "best loss (nats per token)")
    lowest = min(float(np.nanmin(curve.best.loss)) for curve in curves)
    low = float(_STEP * np.floor((min(lowest, p.loss) - 0.04) / _STEP))
    high = float(_STEP * np.ceil((p.loss + _ABOVE) / _STEP))
    given = bool(found.choices.weight_decay)
    own = next(curve for curve in curves if curve.setting.weight_decay == p.weight_decay)
    _beyond(figure, p, flops, [own] if given else curves)
    if found.pinned is not None:
        _ghost(figure, found.pinned, flops)
    for curve in curves:
        _draw(figure, p, curve)
    _doubt(figure, p, own)
    figure.marks(_marks(p, flops), flops)
    _others(figure, p, high)
    _here(figure, p, own, high)
    figure.log_axis("xaxis", flops, scientific, digits=1)
    figure.axis("yaxis", range=[low, high])
    _tell(figure, found, flops)
    return figure


def _tell(figure: Figure, found: Answer, flops: np.ndarray) -> None:
    """Which line can be dragged, and which signs the caption explains."""
    if found.choices.compute != IN_LOSS:
        figure.layout["meta"] = {"field": "flops", "at": found.plan.flops}  # what page.js drags
        figure.drew.add("budget")
    crossing = found.plan.crossover_flops
    if crossing is not None and flops[0] <= crossing < flops[-1]:
        figure.drew.add("crossing")
    if found.choices.epochs == WHOLE:
        figure.drew.add("kinks")


def _best(setting: Setting, p: Plan, flops: np.ndarray, within: Limits) -> Point:
    """The best plans along compute as plans are decided, with the loss that the law expects of them."""
    law = deciding_law(setting, p.law, within)
    return by_the_law(law, allocate_at_most(law, p.ud, flops, within))


def stop_at(p: Plan) -> float | None:
    """The compute from which the law expects no gain: what the plan stops at, or else the law's own limit."""
    if p.spent_flops < 0.995 * p.flops:
        return p.spent_flops
    return p.loss_minimising_compute.flops if p.loss_minimising_compute is not None else None


# -- pieces -------------------------------------------------------------------------------------------------


def _computes(p: Plan) -> np.ndarray:
    """Whole decades around all that is marked, with the marks themselves."""
    marks = [p.flops, p.spent_flops, *(m for m in (stop_at(p),) if m is not None)]
    near = min(marks) / _FAR, max(marks) * _FAR
    if p.crossover_flops is not None and near[0] < p.crossover_flops < near[1]:
        marks.append(p.crossover_flops)
    ends = np.floor(np.log10(min(marks) / _AROUND)), np.ceil(np.log10(max(marks) * _AROUND))
    return np.union1d(np.logspace(ends[0], ends[1], _POINTS), [p.flops, p.spent_flops])


def _beyond(figure: Figure, p: Plan, flops: np.ndarray, choosable: list[_Curve]) -> None:
    """The shade from where to stop on, as far as no weight decay that may be chosen goes lower."""
    stop = stop_at(p)
    if stop is None or stop >= flops[-1] or p.serving is not None:
        return
    limit, end = p.loss_minimising_compute, None
    if p.spent_flops < 0.995 * p.flops:  # until the gain is more than the law's error, as plans have it
        lowest = np.fmin.reduce([curve.best.loss for curve in choosable])
        lower = flops[(flops >= p.flops) & (lowest < p.loss - law_error(p))]
        end = float(lower[0]) if len(lower) else None
    elif limit is not None:
        end = limit.regained_flops
    figure.shade(stop, max(min(end or flops[-1], flops[-1]), stop), NEUTRAL.light, 0.13)
    figure.drew.add("shade")


def _marks(p: Plan, flops: np.ndarray) -> list[Mark]:
    """C×, the budget, and where to stop, as far as they are in the picture."""
    marks = [Mark(p.flops, f"you are here: {scientific(p.flops)}", solid=True)]
    if p.crossover_flops is not None:
        marks.append(Mark(p.crossover_flops, f"C× {scientific(p.crossover_flops)}"))
    if (stop := stop_at(p)) is not None:
        marks.append(Mark(stop, _why_stop(p, stop), low=True))
    return [mark for mark in marks if flops[0] <= mark.x < flops[-1]]


def _why_stop(p: Plan, stop: float) -> str:
    """Where a plan stops and what it takes; of one that spends all, what the loss-minimising compute means:
    where to stop or, where it lies behind, what less would do.
    """
    limit, cheap = p.loss_minimising_compute, p.cheapest_as_good
    if p.spent_flops < 0.995 * p.flops or limit is None:
        bill = f":<br>{duration(p.cost.hours * 3600)}, {dollars(p.cost.usd)}" if p.cost is not None else ""
        # What the law cannot tell from the plan: where to stop is no sharp line.
        sooner = "" if cheap is None else f"<br>as good from {scientific(cheap.flops, 2)} on"
        return f"{'train with this' if p.serving else 'stop here'}{bill}{sooner}"
    at = at_weight_decay(p, limit.weight_decay)
    if stop >= p.spent_flops:
        return f"stop by {scientific(stop)}{at}:<br>no gain expected from more"
    if p.overspent:
        said = "would be better" if less_is_better(p) else "would do as well"
        return f"{scientific(stop)} {said}{at.replace(' ', '<br>', 1)}"
    again = "" if limit.regained_flops is None else f" until {scientific(limit.regained_flops, 2)}"
    return f"from {scientific(stop)}{at}<br>no gain{again}"


def _doubt(figure: Figure, p: Plan, curve: _Curve) -> None:
    """The interval around the curve: of the draws or, without them, by how far the law was off on runs that
    it had not seen. And what is within the law's error of the plan.
    """
    loss, sure = curve.best.loss, p.predictive_uncertainty
    drawn = loss_band(curve.setting, p.law, curve.best, p.uniform_loss)
    if drawn is not None:
        flops, low, high = drawn
        figure.band(flops, low, high, f"{LEVEL:.0%} interval", curve.style)
    elif sure is not None:
        off = curve.setting.error(p.law, 0.0)(curve.best.params, p.ud, curve.best.epochs)
        off = predictive_width(sure.runs) * np.asarray(off)
        figure.band(curve.flops, loss - off, loss + off, f"{sure.level:.0%} interval", curve.style)
    apart = ~(np.abs(loss - p.loss) <= law_error(p))
    here = int(np.searchsorted(curve.flops, p.spent_flops))
    piece = np.cumsum(apart)  # points of one stretch without a point that is apart share their count
    near = np.where(~apart & (piece == piece[here]), loss, np.nan)
    figure.glow(curve.flops, near, "as good as the plan", GOOD)


def loss_band(setting: Setting, form: str, along: Point, uniform_loss: float) -> np.ndarray | None:
    """Compute, and the ends of the loss interval that `plan` gives, for some plans; None without draws."""
    plans = [Point(*map(float, one)) for one in zip(*np.broadcast_arrays(*along), strict=True)]
    plans = [one for one in plans if np.isfinite(one.loss)]
    picked = [plans[i] for i in np.unique(np.linspace(0, len(plans) - 1, _BAND_POINTS).astype(int))]
    found = ((one.flops, loss_intervals(setting, form, one, uniform_loss)) for one in picked)
    known = [(flops, each["loss"].low, each["loss"].high) for flops, each in found if each and "loss" in each]
    return np.array(known).T if known else None


def _draw(figure: Figure, p: Plan, curve: _Curve) -> None:
    decay, best = curve.setting.weight_decay, curve.best
    name = f"weight decay {decay}"
    text = told(best.params, best.epochs, best.loss, (f"{name}, {scientific(c)} FLOPs" for c in best.flops))
    width = 3.5 if decay == p.weight_decay else 2.0
    figure.line(curve.flops, best.loss, name, curve.style, text, width)


def _others(figure: Figure, p: Plan, top: float) -> None:
    """What the other laws would train instead, by the law in use: whether it matters that they disagree."""
    shown = [other for other in p.other_laws if other.expected_loss < top]
    if shown:
        rows = [(one.spent_flops, one.params, one.epochs, one.expected_loss) for one in shown]
        flops, params, epochs, loss = zip(*rows, strict=True)
        names = (f"{law_label(one.law)} would train, by the law in use:" for one in shown)
        figure.ring(flops, loss, "plans of other laws", NEUTRAL, told(params, epochs, loss, names))


def _ghost(figure: Figure, pinned: Answer, flops: np.ndarray) -> None:
    """The pinned plan and the curve that it lies on."""
    p = pinned.plan
    best = _best(pinned.calibration.setting(p.weight_decay), p, flops, limits(pinned.choices))
    style = NEUTRAL._replace(dash="longdash")
    figure.line(flops, best.loss, "pinned", style, width=2.0)
    figure.point(p.spent_flops, p.loss, "pinned plan", "square", NEUTRAL, text=f"loss {p.loss:.3f}")


def _here(figure: Figure, p: Plan, own: _Curve, top: float) -> None:
    """The budget, and what becomes of all of it; then the plan, above everything else."""
    flops = own.flops
    if p.spent_flops < 0.995 * p.flops:
        all_of_it = float(own.best.loss[np.searchsorted(flops, p.flops)])
        if np.isfinite(all_of_it):
            said = f"all of your compute: loss {all_of_it:.3f}"
            at = min(all_of_it, top)
            figure.point(p.flops, at, "with all of it", "diamond", own.style, text=said)
    figure.point(p.spent_flops, p.loss, "the plan", "circle", PLAN, text=f"loss {p.loss:.3f}")
