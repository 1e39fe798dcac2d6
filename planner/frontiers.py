"""`frontier`: optimal plans along many budgets at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from planner import units
from planner.budgets import budgets, unique_tokens
from planner.calibration_files import Calibration, CalibrationSource
from planner.dialling import best_weight_decays, has_dial
from planner.errors import InvalidInput
from planner.evidence import check_question, refused
from planner.landscape import once_flops
from planner.laws import BASE_FORM
from planner.limits import CONTINUOUS_EPOCHS, LimitOptions, Limits, spelled_out
from planner.showing import Columns, Shown
from planner.spending import spend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_POINTS = 100_000


@dataclass(frozen=True)
class Frontier(Shown, Columns):
    """Optimal plans along many budgets, as arrays of one length."""

    ud: np.ndarray
    flops: np.ndarray  # ceilings
    spent_flops: np.ndarray
    params: np.ndarray
    epochs: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    weight_decay: np.ndarray
    law: str
    calibration: str
    guessing_loss: float  # what guessing reaches: a predicted loss above it means nothing
    members: np.ndarray | None = None  # that are averaged, where that was asked; sizes are then of each
    refused: np.ndarray | None = None  # true: too far from all evidence, so that `plan` gives no such answer

    def plot(self) -> Figure:
        """Size, epochs and loss along compute."""
        from planner import plots

        return plots.frontier(self)


@spelled_out
def frontier(
    ud: Any,
    flops: Any,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    members: Any = None,
    **options: Unpack[LimitOptions],
) -> Frontier:
    """Plans for many budgets at once: `ud` and `flops` are numbers or arrays that broadcast.

    Without `weight_decay` each budget gets the best of those calibrated, or of all where the law is a dial.
    Budgets are ceilings, of which a
    plan spends what helps, unless `spend` is "all"; budgets for which the limits then leave no choice are
    NaN. With `members` (a number, or "auto") each budget gets the lowest loss of so many models, averaged.
    Plans that are too far from all evidence are kept, and marked in `refused`: `plan` would refuse them.
    """
    tokens, compute = budgets(ud, flops)
    known, limits = Calibration.load(calibration), Limits.of(**options)
    check_question(known, float(tokens.max()), limits)
    form = known.form(law)
    if members is not None:
        found = _averaged(known, form, tokens, compute, limits, weight_decay, members)
    else:
        found = along(known, form, tokens, compute, limits, weight_decay)
    return _marked(found, known, tokens * np.minimum(found.epochs, 1.0), found.epochs)


def _marked(found: Frontier, known: Calibration, unique: np.ndarray, epochs: np.ndarray) -> Frontier:
    """With what is too far from all evidence, of plans that use so many unique tokens for so many epochs."""
    return replace(found, refused=refused(known, found.params, unique, epochs))


def along(
    known: Calibration,
    form: str,
    tokens: np.ndarray,
    compute: np.ndarray,
    limits: Limits,
    weight_decay: Any = None,
) -> Frontier:
    """The same for budgets of one length that were checked already, one model each."""
    if weight_decay is None and has_dial(known, form):
        return _dialled(known, form, tokens, compute, limits)
    settings = known.candidates(form, weight_decay)
    found = [spend(setting.law(form), tokens, compute, setting.error(form), limits) for setting in settings]
    losses = np.stack([np.where(np.isfinite(each.loss), each.loss, np.inf) for each in found])
    winner = np.argmin(losses, axis=0)
    pick = np.arange(len(winner))
    spent, params, epochs, trained, loss = (np.stack(each)[winner, pick] for each in zip(*found, strict=True))
    decays = np.array([setting.weight_decay for setting in settings])[winner]
    columns = (tokens, compute, spent, params, epochs, trained, loss, decays)
    return Frontier(*columns, form, known.name, known.guessing_loss)


def _dialled(
    known: Calibration, form: str, tokens: np.ndarray, compute: np.ndarray, limits: Limits
) -> Frontier:
    """Each budget at the weight decay that is best for it."""
    decays = best_weight_decays(known, form, tokens, compute, limits)
    columns = np.empty((5, len(tokens)))
    for decay in np.unique(decays):
        here, setting = decays == decay, known.setting(float(decay))
        spent = spend(setting.law(form), tokens[here], compute[here], setting.error(form), limits)
        columns[:, here] = np.stack(spent)
    spent_flops, params, epochs, trained, loss = columns
    found = (tokens, compute, spent_flops, params, epochs, trained, loss, decays)
    return Frontier(*found, form, known.name, known.guessing_loss)


def _averaged(
    known: Calibration,
    form: str,
    tokens: np.ndarray,
    compute: np.ndarray,
    limits: Limits,
    weight_decay: Any,
    members: Any,
) -> Frontier:
    """Each budget with the members that are best for it, one search after the other."""
    from planner.totals import along_budgets  # loaded where more than one training counts

    found = along_budgets(known, form, tokens, compute, limits, weight_decay, members)
    counts, params, epochs, loss, decays, spent = np.array(found, dtype=float).T
    columns = (tokens, compute, spent, params, epochs, tokens * epochs, loss, decays)
    return Frontier(*columns, form, known.name, known.guessing_loss, members=counts)


@spelled_out
def frontier_range(
    ud: Any,
    start: Any = None,
    stop: Any = None,
    points: Any = 25,
    *,
    single_epoch: bool = False,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    members: Any = None,
    **options: Unpack[LimitOptions],
) -> Frontier:
    """The frontier over a range of compute: by default from one pass over the corpus to 10,000 times that.

    With `single_epoch` the data is taken to be unlimited: every budget gets as many fresh tokens as it wants,
    which is the base law; the "epochs" are then multiples of `ud` in fresh tokens.
    """
    tokens, known = unique_tokens(ud), Calibration.load(calibration)
    low, high = _ends(start, stop, once_flops(known.settings[0].law(law or known.default_law), tokens))
    number = units.whole(points, "points", example="25")
    if not 2 <= number <= _MOST_POINTS:
        raise InvalidInput(f"must be between 2 and {_MOST_POINTS}; got {number}.", field="points")
    if single_epoch:
        if law not in (None, BASE_FORM):
            raise InvalidInput(f"is the base law and takes no other; got ‹law› {law}.", field="single_epoch")
        law, options["epochs"] = BASE_FORM, CONTINUOUS_EPOCHS
    computes = np.geomspace(low, high, number)
    by: dict[str, Any] = {"weight_decay": weight_decay, "law": law, "members": members}
    found = frontier(tokens, computes, calibration=known, **by, **options)
    return _marked(found, known, found.tokens, np.ones(number)) if single_epoch else found


def _ends(start: Any, stop: Any, once: float) -> tuple[float, float]:
    low = units.compute(start, "start") if start is not None else once
    high = units.compute(stop, "stop") if stop is not None else low * 1e4
    if high <= low:
        said = f"{units.scientific(high)} and {units.scientific(low)}"
        raise InvalidInput(f"must be above ‹start›; got {said}.", field="stop")
    return low, high
