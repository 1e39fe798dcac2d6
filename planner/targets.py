"""The other way round: the least compute that reaches a loss with this data, or why none does.

It is looked for as far as the first minimum of the loss along compute: no plan within a ceiling spends more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner import units
from planner.advice import Turn
from planner.budgets import unique_tokens
from planner.calibration_files import Setting
from planner.errors import InvalidInput
from planner.intervals import sure_width
from planner.landscape import search_range
from planner.laws import Law
from planner.limits import Limits
from planner.minima import first_minimum
from planner.spent import spend_all

_STEPS, _PASSES = 97, 6  # budgets in a pass, and passes, each of which looks into one step of the last
_LEAST = 1e6  # FLOPs
_MOST_TOKENS, _CLOSE = 1e16, 1.002  # where the data that would do is looked for, and how closely


def compute_for(
    target: Any,
    ud: Any,
    settings: Sequence[Setting],
    form: str,
    limits: Limits,
    amounts: Mapping[str, Any],
) -> float:
    """The least compute with which one of the settings reaches the loss or, where the lowest is within the
    law's own error of it, that of the lowest; other `amounts` are refused.
    """
    loss = units.number(target, "target_loss", examples="3.0")
    if amounts:
        given = " and ".join(f"‹{name}›" for name in amounts)
        raise InvalidInput(f"asks for the least compute: leave out {given}.", field="target_loss")
    if not limits.ceiling:
        raise InvalidInput("asks for the least compute: leave out ‹spend›.", field="target_loss")
    tokens = unique_tokens(ud)
    laws = [setting.law(form) for setting in settings]
    found = [least_compute(law, tokens, loss, limits) for law in laws]
    least = min((flops for flops in found if flops is not None), default=None)
    if least is not None:
        return least
    plans = [(lowest_loss(setting.law(form), tokens, limits), setting) for setting in settings]
    known = [(best, setting) for best, setting in plans if best is not None]
    if not known:
        raise InvalidInput(f"({loss:g}) cannot be reached: the limits leave no plan.", field="target_loss")
    best, setting = min(known, key=lambda one: one[0].loss)
    if best.loss - loss <= _doubt(setting, form, best, tokens):
        return best.flops
    raise _unreachable(loss, tokens, best, setting, settings, form, limits)


def _doubt(setting: Setting, form: str, best: Turn, ud: float) -> float:
    """By how much less than predicted a loss may well be."""
    measured = setting.measured(form)
    if measured is None:
        return 0.0
    return sure_width(measured.runs) * float(setting.error(form)(best.params, ud, best.epochs))


def least_compute(law: Law, ud: float, loss: float, limits: Limits) -> float | None:
    """The least compute with which a law expects this loss, or None where none in sight does."""
    low, high = _searched(law, ud, limits)
    for _ in range(_PASSES):
        ceilings = np.geomspace(low, high, _STEPS)
        spent = spend_all(law, ud, ceilings, limits)
        reached = np.flatnonzero(spent.loss <= loss)
        if not len(reached):
            return None
        first = int(reached[0])
        if not first:  # the least that is looked at
            break
        low, high = float(ceilings[first - 1]), float(ceilings[first])
    return float(spent.flops[first])


def lowest_loss(law: Law, ud: float, limits: Limits) -> Turn | None:
    """The plan with the lowest loss that this data allows; None where the limits leave none."""
    spent = spend_all(law, ud, np.geomspace(*_searched(law, ud, limits), _STEPS), limits)
    if not np.isfinite(spent.loss).any():
        return None
    best = int(np.nanargmin(spent.loss))
    return Turn(*(float(values[best]) for values in (spent.flops, spent.params, spent.epochs, spent.loss)))


def _searched(law: Law, ud: float, limits: Limits) -> tuple[float, float]:
    first = first_minimum(law, ud, limits)
    low = max(ud, _LEAST)  # less than one FLOP per token is no budget
    return low, max(first.flops if first is not None else float(search_range(law, ud)[-1]), low)


def _unreachable(
    loss: float,
    ud: float,
    best: Turn,
    setting: Setting,
    settings: Sequence[Setting],
    form: str,
    limits: Limits,
) -> InvalidInput:
    """What the lowest loss with this data is, and how much data would do."""
    within = " within your limits" if limits.bounded else ""
    text = (
        f"({loss:g}) cannot be reached with {units.short(ud)} unique tokens{within}: the lowest loss is "
        f"{best.loss:.4f} ({units.short(best.params)} for {units.epochs(best.epochs)} "
        f"at weight decay {setting.weight_decay}, {units.scientific(best.flops)} FLOPs)"
    )
    needed = _tokens_for(loss, ud, [setting.law(form) for setting in settings], limits)
    if needed is not None:
        return InvalidInput(f"{text}; about {units.short(needed)} would do.", field="target_loss")
    floor = min(float(setting.law(form).terms(1.0, 1.0, 1.0).floor) for setting in settings)
    why = f": the law's floor is {floor:.4f}" if loss <= floor else within
    return InvalidInput(f"{text}, and no amount of data would do{why}.", field="target_loss")


def _tokens_for(loss: float, ud: float, laws: Sequence[Law], limits: Limits) -> float | None:
    """The fewest unique tokens, above these, with which one of the laws reaches the loss."""

    def reaches(tokens: float) -> bool:
        found = (lowest_loss(law, tokens, limits) for law in laws)
        return any(best is not None and best.loss <= loss for best in found)

    few, many = ud, min(2 * ud, _MOST_TOKENS)
    while not reaches(many):
        if many >= _MOST_TOKENS:
            return None
        few, many = many, min(4 * many, _MOST_TOKENS)
    while many / few > _CLOSE:
        middle = math.sqrt(few * many)
        few, many = (few, middle) if reaches(middle) else (middle, many)
    return many
