"""The best loss of this budget against the weight decay: what the dial of the page is turned along.

A calibration with a law for every weight decay is drawn over all that it covers, one with a few weight decays
between the weakest and the strongest of them. The plan can be dragged along the curve.
"""

from __future__ import annotations

import numpy as np

from calibration.ui import drawing
from calibration.ui.answers import Answer, limits, without_refits
from calibration.ui.drawing import Figure, Mark
from planner.show.palette import GOOD, NEUTRAL, PLAN, series
from planner.solve import Point, allocate

_DECAYS = 41
_SHARES = 2.0 ** -np.arange(0.0, 8.0, 0.25)  # of the compute, where that is a ceiling
_EDGE = 1.15  # times beyond the ends there is room in the picture
_ABOVE = 0.6  # nats above the best that are shown, at most


def loss_against_decay(found: Answer) -> Figure:
    """The lowest loss within the budget at each weight decay; the best, those calibrated, and the plan."""
    p, known = found.plan, found.calibration
    calibrated = [s.weight_decay for s in known.settings if s.has(p.law) and s.weight_decay > 0]
    decays = np.union1d(np.geomspace(*_ends(found), _DECAYS), [*calibrated, p.weight_decay])
    decays = decays[decays > 0]
    best = _best(found, decays)
    figure = drawing.empty("weight decay λ", "best loss within this compute (nats per token)")
    least = int(np.nanargmin(best.loss))
    tolerance = (
        p.predictive_uncertainty.error if p.predictive_uncertainty is not None else p.flat_range.tolerance
    )
    near = np.where(best.loss <= best.loss[least] + tolerance, best.loss, np.nan)
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
    drawing.marks(figure, [Mark(float(decays[least]), f"best: {decays[least]:.2g}", low=True)], across)
    drawing.point(figure, p.weight_decay, p.loss, "the plan", "circle", PLAN, text=f"loss {p.loss:.3f}")
    drawing.log_axis(figure, "xaxis", across, "{:.{}g}".format)
    low, high = (drawing.least(best.loss), drawing.most(best.loss))
    high = max(min(high, low + _ABOVE), p.loss)
    figure.axis("yaxis", range=[low - 0.2 * (high - low) - 0.02, high + 0.05 * (high - low) + 0.02])
    if len(decays) > 1:
        figure.layout["meta"] = {"field": "weight_decay", "at": p.weight_decay}  # what page.js drags
    return figure


def _ends(found: Answer) -> tuple[float, float]:
    """The weight decays that can be asked for."""
    low, high = found.calibration.weight_decay_range
    return max(low, 1e-3 * high), high


def _best(found: Answer, decays: np.ndarray) -> Point:
    """The best plan at each weight decay: with all of the compute, or with less where that is better."""
    p, known, asked = found.plan, without_refits(found.calibration), limits(found.choices)
    shares = _SHARES if asked.ceiling else _SHARES[:1]
    if known.has_weight_decay_law(p.law):
        return _lowest(allocate(known.law_at(p.law, decays), p.ud, p.flops * shares[:, None], asked))
    laws = (known.setting(decay).law(p.law) for decay in decays)
    each = [_lowest(allocate(law, p.ud, p.flops * shares[:, None], asked)) for law in laws]
    return Point(*(np.concatenate(values) for values in zip(*each, strict=True)))


def _lowest(along: Point) -> Point:
    """Of plans with different shares of the compute, one column for each weight decay, the best ones."""
    loss = np.where(np.isfinite(along.loss), along.loss, np.inf)
    pick = loss.argmin(axis=0)[None]
    return Point(*(np.take_along_axis(np.asarray(values), pick, axis=0)[0] for values in along))
