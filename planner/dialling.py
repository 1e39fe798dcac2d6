"""Weight decay as a dial: the best one for each budget, which others to hold it against, and what it is in a
recipe of one's own.

A law for every weight decay is an ordinary law once the memory is given, and with an array of memories it is
an ensemble: the best allocations at all weight decays of a grid, and at less than all of the compute, are
found at once. The best of them is looked at more closely and rounded to two digits, which the loss does not
notice.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from planner import units
from planner.allocation import allocate
from planner.calibration_files import Calibration, Recipe, Setting, memory_tokens
from planner.errors import InvalidInput
from planner.evidence import FAR
from planner.laws import MEMORY, Law, form_named
from planner.limits import Limits
from planner.memo import memoize
from planner.minima import lowest_losses
from planner.remarks import Remark
from planner.results import DialAdvice, OwnRecipe, Worth

FAMILIAR = 0.1  # what most people train with
_STEPS, _CLOSER = 21, 9  # weight decays that are tried, and again around the best of them
_LESS = 0.25 ** np.arange(3.0)  # shares of the compute that are tried where it is a ceiling
_BLOCK = 128  # budgets at a time


class Contest(NamedTuple):
    """The weight decays that a plan may have, and those that it is held against."""

    candidates: tuple[Setting, ...]
    others: tuple[Setting, ...]
    best: float | None = None  # of all weight decays that a dial has, for this budget
    with_data: tuple[Setting, ...] = ()  # those that a plan may have with twice the data
    with_compute: tuple[Setting, ...] = ()  # with twice the compute
    along_compute: tuple[Setting, ...] = ()  # at whatever compute has the lowest loss


def contest(
    known: Calibration, form: str, ud: float, flops: float, limits: Limits, weight_decay: float | None
) -> Contest:
    """Who may be chosen for a budget: the weight decay asked for, the best that a dial finds, or all
    calibrated.
    """
    if not has_dial(known, form):
        candidates = known.candidates(form, weight_decay)
        chosen = {setting.weight_decay for setting in candidates}
        others = tuple(s for s in known.settings if s.has(form) and s.weight_decay not in chosen)
        return Contest(candidates, others, None, candidates, candidates, candidates)
    budgets = [(ud, flops), (2 * ud, flops), (ud, 2 * flops)][: 3 if weight_decay is None else 1]
    tokens, compute = np.array(budgets).T
    found, *more = best_weight_decays(known, form, tokens, compute, limits).tolist()
    candidates = known.candidates(form, found if weight_decay is None else weight_decay)
    further = [candidates] * 3
    if weight_decay is None:
        more.append(_lowest_weight_decay(known, form, ud, limits))
        further = [(known.setting(decay),) for decay in more]
    rivals = {s.weight_decay: s for s in map(known.setting, (found, *_usual(known)))}
    for setting in candidates:
        rivals.pop(setting.weight_decay, None)
    return Contest(candidates, tuple(rivals.values()), found, *further)


def has_dial(known: Calibration, form: str) -> bool:
    return known.dial is not None and form in known.dial.laws


def _usual(known: Calibration) -> list[float]:
    """What people train with where nobody chooses."""
    assert known.dial is not None
    low, high = known.dial.weight_decays
    return [decay for decay in (FAMILIAR, known.dial.default_weight_decay) if low <= decay <= high]


def best_weight_decays(
    known: Calibration, form: str, ud: np.ndarray, flops: np.ndarray, limits: Limits
) -> np.ndarray:
    """The weight decay with the lowest loss that each budget can reach, to two digits."""
    low, high = (math.log(end) for end in _searched(known))
    starts = range(0, len(ud), _BLOCK)
    found = []
    for tokens, compute in ((ud[i : i + _BLOCK], flops[i : i + _BLOCK]) for i in starts):
        grid, rows = np.linspace(low, high, _STEPS), np.arange(len(tokens))
        shares = _LESS if limits.ceiling else _LESS[:1]
        wide = _losses(
            known, form, tokens[:, None, None], compute[:, None, None] * shares[:, None], grid, limits
        )
        share, pick = np.divmod(wide.reshape(len(tokens), -1).argmin(axis=1), _STEPS)
        below, above = (grid[np.clip(pick + side, 0, _STEPS - 1)] for side in (-1, 1))
        near = np.linspace(below, above, _CLOSER, axis=1)
        losses = _losses(known, form, tokens[:, None], (compute * shares[share])[:, None], near, limits)
        found.append(np.exp(near[rows, losses.argmin(axis=1)]))
    return np.array([_two_digits(value, *_searched(known)) for value in np.concatenate(found)])


@memoize(128)
def _lowest_weight_decay(known: Calibration, form: str, ud: float, limits: Limits) -> float:
    """The weight decay with the lowest loss at whatever compute has it, to two digits."""
    low, high = _searched(known)
    grid = np.geomspace(low, high, _STEPS)
    for _ in range(2):
        pick = int(lowest_losses(dial_law(known, form, grid), ud, limits).argmin())
        best, ends = grid[pick], (grid[max(pick - 1, 0)], grid[min(pick + 1, len(grid) - 1)])
        grid = np.geomspace(*ends, _CLOSER)
    return _two_digits(best, low, high)


def _searched(known: Calibration) -> tuple[float, float]:
    """The weight decays that a dial has; without weight decay there is nothing to turn."""
    low, high = known.weight_decay_range
    return max(low, 1e-3 * high), high


def _two_digits(value: float, low: float, high: float) -> float:
    return min(max(float(f"{value:.1e}"), low), high)


def _losses(
    known: Calibration, form: str, ud: np.ndarray, flops: np.ndarray, ln_decays: np.ndarray, limits: Limits
) -> np.ndarray:
    """The lowest loss at each compute and weight decay, which broadcast."""
    losses = allocate(dial_law(known, form, np.exp(ln_decays)), ud, flops, limits).loss
    return np.asarray(np.where(np.isfinite(losses), losses, np.inf))


def dial_law(known: Calibration, form: str, decays: Any) -> Law:
    """The law at many weight decays at once."""
    assert known.dial is not None
    assert known.recipe is not None
    declared, fitted = form_named(form), known.dial.laws[form].parameters
    memory = known.recipe.memory_tokens(np.asarray(decays))
    return Law.of_values(declared, {**declared.fixed, **fitted, MEMORY: memory})


def best_for_runs(
    known: Calibration, form: str, params: np.ndarray, ud: np.ndarray, epochs: np.ndarray, members: int = 1
) -> np.ndarray:
    """The weight decay with the lowest loss of each configuration, to two digits."""
    low, high = _searched(known)
    decays = np.geomspace(low, high, 8 * _STEPS)
    law, at = dial_law(known, form, decays), (params[:, None], ud[:, None], epochs[:, None])
    losses = law.loss(*at) - averaging(known, law, members, *at, decays)
    return np.array([_two_digits(value, low, high) for value in decays[np.argmin(losses, axis=1)]])


def averaging(
    known: Calibration, law: Law, members: int, params: Any, ud: Any, epochs: Any, weight_decay: Any
) -> Any:
    """By how much so many models, averaged, are better than one of them."""
    if members == 1 or known.members is None or known.recipe is None:
        return 0.0
    memory = known.recipe.memory_tokens(weight_decay)
    return known.members.limit_gain(law, params, ud, epochs, memory) * (1 - 1 / members)


# -- recipes ---------------------------------------------------------------------------------------------


class Translation(NamedTuple):
    """A recipe of one's own next to that of the calibration: weight decays of equal memory."""

    learning_rate: float
    batch_tokens: float
    scale: float  # own weight decay over that of the calibration

    @classmethod
    def of(cls, known: Calibration, learning_rate: Any, batch_tokens: Any) -> Translation | None:
        """What was given, checked; None where nothing was."""
        if learning_rate is None and batch_tokens is None:
            return None
        recipe = known.recipe
        if recipe is None:
            field = "learning_rate" if learning_rate is not None else "batch_tokens"
            raise InvalidInput(
                f"cannot be translated: calibration {known.name} does not say the learning rate and batch of "
                f"its runs.",
                field=field,
            )
        rate, batch = recipe.learning_rate, float(recipe.batch_tokens)
        if learning_rate is not None:
            rate = units.number(learning_rate, "learning_rate", examples="3e-4")
        if batch_tokens is not None:
            batch = units.count(batch_tokens, "batch_tokens")
        for field, own, calibrated in (
            ("learning_rate", rate, recipe.learning_rate),
            ("batch_tokens", batch, recipe.batch_tokens),
        ):
            if not 1 / FAR <= own / calibrated <= FAR:
                raise InvalidInput(
                    f"({own:g}) is more than {FAR:g} times off that of calibration {known.name} "
                    f"({calibrated:g}), and nothing is known of weight decay so far from it.",
                    field=field,
                )
        return cls(rate, batch, batch / recipe.batch_tokens * recipe.learning_rate / rate)

    def calibrated(self, weight_decay: Any) -> float | None:
        """A weight decay of one's own, if any, in the calibration's recipe."""
        if weight_decay is None:
            return None
        return float(units.number(weight_decay, "weight_decay", positive=False)) / self.scale

    def own(self, weight_decay: float) -> OwnRecipe:
        """A weight decay of the calibration in one's own recipe."""
        return OwnRecipe(
            learning_rate=self.learning_rate,
            batch_tokens=self.batch_tokens,
            weight_decay=float(f"{weight_decay * self.scale:.3g}"),
        )


def advice(
    known: Calibration,
    setting: Setting,
    unique_tokens: float,
    found: Contest,
    worth: list[Worth],
    own: Translation | None,
) -> DialAdvice | None:
    """What there is to say of a plan's weight decay beyond its value; None where that is nothing."""
    if found.best is None and setting.between is None and own is None:
        return None
    recipe = known.recipe
    return DialAdvice(
        best_weight_decay=found.best,
        interpolated_from=setting.between,
        memory_epochs=None if recipe is None else recipe.memory_tokens(setting.weight_decay) / unique_tokens,
        calibrated_memory=None if recipe is None else calibrated_memory(known, recipe),
        worth=worth,
        own_recipe=None if own is None else own.own(setting.weight_decay),
    )


def calibrated_memory(known: Calibration, recipe: Recipe) -> tuple[float, float]:
    """AdamW's memory in epochs that the runs covered."""
    if known.dial is not None:
        return known.dial.memory_epochs
    ends = [
        memory_tokens(recipe.learning_rate, recipe.batch_tokens, setting.weight_decay) / tokens
        for setting in known.settings
        for tokens in setting.fitted_on.unique_tokens
    ]
    return min(ends), max(ends)


def interpolation_note(setting: Setting) -> list[Remark]:
    """That a setting was not calibrated but lies between two that were."""
    if setting.between is None:
        return []
    low, high = setting.between
    text = (
        f"weight decay {setting.weight_decay:g} is interpolated between {low:g} and {high:g}: each term of "
        f"the loss is taken to be a straight line in ln(weight decay)."
    )
    return [Remark("interpolated", text)]


def dial_warnings(known: Calibration, setting: Setting, found: DialAdvice | None) -> list[Remark]:
    """Where a weight decay was not calibrated as it stands."""
    said = interpolation_note(setting)
    if found is None:
        return said
    if found.own_recipe is not None and found.own_recipe.weight_decay != setting.weight_decay:
        text = (
            f"weight decay {found.own_recipe.weight_decay:g} in your recipe has the memory of "
            f"{setting.weight_decay:g} in that of the calibration. In the dial study the best one moved "
            f"less than equal memory says when learning rate or batch changed, so try what lies between too."
        )
        said.append(Remark("translated", text))
    if found.memory_epochs is not None and found.calibrated_memory is not None:
        low, high = found.calibrated_memory
        if not low <= found.memory_epochs <= high:
            text = (
                f"AdamW's memory would be {found.memory_epochs:.2g} epochs here, outside of the {low:.2g} to "
                f"{high:.2g} that were calibrated."
            )
            said.append(Remark("outside_memory", text))
    if found.best_weight_decay is not None and found.best_weight_decay in known.weight_decay_range:
        low, high = known.weight_decay_range
        end = "weakest" if found.best_weight_decay == low else "strongest"
        text = f"the best weight decay is the {end} of those calibrated: beyond it may lie a better one."
        said.append(Remark("end_of_range", text))
    return said
