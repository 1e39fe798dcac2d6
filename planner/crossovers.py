"""`crossover`: the compute above which the stronger of two weight decays is the better one (C×)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import numpy as np

from planner import units
from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.budgets import unique_tokens
from planner.calibration_files import Calibration, CalibrationSource, Setting
from planner.crossings import crossings
from planner.errors import InvalidInput
from planner.evidence import check_question
from planner.landscape import search_range
from planner.laws import AVERAGE
from planner.limits import LimitOptions, Limits, spelled_out
from planner.memo import memoize
from planner.reasons import crossover_note, single_setting_note
from planner.records import made
from planner.remarks import Remark
from planner.results import Crossover, Interval
from planner.uncertainty import crossover_interval, range_warnings

_NEARLY = 1.01  # as near as this to the end of a search is at its end
_CROSSES = 0.5  # share of draws below which forms that are averaged do not name a crossing


@spelled_out
def crossover(
    ud: Any,
    *,
    weight_decays: Iterable[Any] | None = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    **options: Unpack[LimitOptions],
) -> Crossover:
    """C×: the compute above which the stronger weight decay is better, and every other crossing.

    By default between the weakest and the strongest setting calibrated.
    """
    tokens, known = unique_tokens(ud), Calibration.load(calibration)
    form, limits = known.form(law), Limits.of(**options)
    check_question(known, tokens, limits)
    one, other = two_weight_decays(known, form, weight_decays)
    found = crossover_between(known, form, tokens, one, other, limits)
    return found.model_copy(update={"warnings": _warnings(known, found)})


def _warnings(known: Calibration, found: Crossover) -> list[Remark]:
    """Where the plans between which the crossover decides leave what was fitted."""
    if found.crossover_flops is None:
        return []
    said: dict[str, Remark] = {}
    for decay in (found.weaker, found.stronger):
        setting = known.setting(decay)
        best = allocate(setting.law(found.law), found.ud, found.crossover_flops, found.limits)
        if not np.isfinite(best.loss):
            continue
        size, passes = float(best.params), float(best.epochs)
        for remark in range_warnings(setting, size, found.ud * min(passes, 1.0), passes):
            said.setdefault(remark.code, Remark(remark.code, f"at C× and weight decay {decay}, {remark}"))
    return list(said.values())


def two_weight_decays(known: Calibration, form: str, wanted: Any) -> tuple[float, float]:
    """The weight decays to compare."""
    if wanted is None:
        decays = [setting.weight_decay for setting in known.candidates(form)]
        if len(decays) < 2:
            raise InvalidInput(f"{single_setting_note(known, form)}; a crossover needs two.")
        return min(decays), max(decays)
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise InvalidInput(f"must be two numbers such as (0.1, 1.0); got {wanted!r}.", field="weight_decays")
    decays = [known.setting(decay).weight_decay for decay in wanted]
    if len(decays) != 2 or decays[0] == decays[1]:
        got = ", ".join(str(decay) for decay in decays) or "none"
        raise InvalidInput(f"must be two different ones; got {got}.", field="weight_decays")
    return decays[0], decays[1]


@memoize(128)
def crossover_between(
    known: Calibration,
    form: str,
    ud: float,
    one: float,
    other: float,
    limits: Limits,
    include: float | None = None,
) -> Crossover:
    """The crossover of two settings of a calibration; `include` is a compute that is searched for sure."""
    weaker, stronger = (known.setting(decay) for decay in sorted((one, other)))
    weak, strong = weaker.law(form), stronger.law(form)
    computes = search_range(weak, ud, include)
    found, weak_is_better_below, searched = crossings(weak, strong, ud, computes, limits)
    free = crossings(weak, strong, ud, computes, limits.unbounded()) if limits.bounded else None
    changed = free is not None and (
        free.first_is_better_below != weak_is_better_below
        or len(free.flops) != len(found)
        or not np.allclose(free.flops, found, rtol=1e-4, atol=0.0)
    )
    better_below: float | None = weaker.weight_decay if weak_is_better_below else stronger.weight_decay
    if weak.parameters == strong.parameters or searched is None:
        better_below = None
    centre = _centre(found, better_below, weaker, stronger)
    note = crossover_note(weaker.weight_decay, stronger.weight_decay, better_below, found, searched)
    bounds: Interval | None = None
    if centre is not None:
        if len(found) > 1:
            note += f"; C× is {units.scientific(centre)}, from which {stronger.weight_decay} is better"
        bounds, doubt, crosses = _sureness(weaker, stronger, form, ud, centre, found, limits)
        note += doubt
        if form == AVERAGE and (crosses < _CROSSES or _cut_short(bounds, centre, found)):
            centre, bounds = None, None
            note = f"{weaker.weight_decay} and {stronger.weight_decay} are not told apart by the runs{doubt}"
    return made(
        Crossover,
        ud=ud,
        law=form,
        calibration=known.name,
        weaker=weaker.weight_decay,
        stronger=stronger.weight_decay,
        crossover_flops=centre,
        crossings=found,
        searched=searched or (float(computes[0]), float(computes[-1])),
        better_below=better_below,
        interval=bounds,
        note=note + _where(limits, changed),
        limits=limits,
    )


def _where(limits: Limits, changed: bool) -> str:
    """For which plans a crossover holds, where limits have changed it or settled the size."""
    if limits.size is not None:
        few = "" if limits.max_epochs is None else f" and at most {units.epochs(limits.max_epochs)}"
        return f" (for models of {units.short(limits.size)} parameters{few})"
    return " (within your limits)" if changed else ""


def _centre(
    found: Sequence[float], better_below: float | None, weaker: Setting, stronger: Setting
) -> float | None:
    """C× among all crossings. The better setting alternates from one to the next; C× is the first from which
    the stronger one is better, except that where laws cross below everything they were fitted on, and again
    above, the latter counts.
    """
    upward = found[0::2] if better_below == weaker.weight_decay else found[1::2]
    fitted = [setting.fitted_on for setting in (weaker, stronger)]
    smallest = max(FLOPS_PER_PARAM_TOKEN * f.params[0] * f.unique_tokens[0] for f in fitted)
    return next((flops for flops in upward if flops >= smallest), upward[0] if upward else None)


def _sureness(
    weaker: Setting,
    stronger: Setting,
    form: str,
    ud: float,
    centre: float,
    found: Sequence[float],
    limits: Limits,
) -> tuple[Interval | None, str, float]:
    """The interval of C× where there are refits of both settings, a word on those that do not cross, and the
    share of those that do.
    """
    weak, strong = weaker.ensemble_law(form), stronger.ensemble_law(form)
    if weak is None or strong is None:
        return None, "", 1.0
    between = _room_around(centre, found)
    bounds, share = crossover_interval(weak, strong, ud, between, limits)
    if share >= 0.975:
        return bounds, "", share
    low, high = (units.scientific(end, 2) for end in between)
    return bounds, f"; {1 - share:.0%} of the refits do not cross between {low} and {high}", share


def _cut_short(bounds: Interval | None, centre: float, found: Sequence[float]) -> bool:
    """Whether an interval ends only where the next crossing begins: how far draws go on is not known then."""
    if bounds is None:
        return False
    (low, high), (lowest, highest) = _room_around(centre, found), _room_around(centre, ())
    below, above = bounds.low <= low * _NEARLY, bounds.high * _NEARLY >= high
    return (below and low > lowest) or (above and high < highest)


def _room_around(centre: float, found: Sequence[float]) -> tuple[float, float]:
    """Where refits may have the same crossing: within a factor of 100, and half-way to the next ones."""
    low, high = centre / 100, centre * 100
    for other in found:
        if other < centre:
            low = max(low, (other * centre) ** 0.5)
        elif other > centre:
            high = min(high, (other * centre) ** 0.5)
    return low, high
