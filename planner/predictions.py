"""`predict`: the loss that a law expects from one configuration, or from each of many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import numpy as np

from planner import units
from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.beliefs import fit_warnings
from planner.budgets import many, unique_tokens, within
from planner.buildable import above_guessing
from planner.calibration_files import Calibration, CalibrationSource, Setting
from planner.dialling import Translation, averaging, best_for_runs, dial_law, has_dial, interpolation_note
from planner.errors import InvalidInput
from planner.evidence import check_prediction, refused
from planner.laws import AVERAGE, Law
from planner.members import members_wanted
from planner.records import made
from planner.results import LossTerms, Prediction
from planner.showing import Columns
from planner.uncertainty import interval_note, loss_error, loss_intervals, loss_range, range_warnings

_PARAMS, _UD, _EPOCHS = (1.0, 1e15, "parameters"), (1e3, 1e16, "unique tokens"), (1e-6, 1e5, "epochs")


@dataclass(frozen=True)
class Predictions(Columns):
    """The losses of many configurations, as arrays of one length."""

    params: np.ndarray
    ud: np.ndarray
    epochs: np.ndarray
    weight_decay: np.ndarray
    loss: np.ndarray
    law: str
    calibration: str


class _By(TypedDict, total=False):
    """What the prediction is made with; `predict` says it in words."""

    weight_decay: Any
    law: str | None
    calibration: CalibrationSource
    learning_rate: Any
    batch_tokens: Any
    members: Any


@overload
def predict(
    params: float | str, ud: float | str, epochs: float | str = 1.0, **by: Unpack[_By]
) -> Prediction: ...


@overload
def predict(params: Any, ud: Any = None, epochs: Any = 1.0, **by: Unpack[_By]) -> Predictions: ...


def predict(
    params: Any,
    ud: Any = None,
    epochs: Any = 1.0,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    learning_rate: Any = None,
    batch_tokens: Any = None,
    members: Any = None,
) -> Prediction | Predictions:
    """The loss of one configuration; without `weight_decay`, at the one that does best there: of those
    calibrated, or of all where the law is a dial. With a `learning_rate` or `batch_tokens` of your own,
    `weight_decay` is in your recipe. `members` is how many such models are averaged.

    Arrays (or lists) that broadcast give the losses of many; so does a table in the place of `params` with
    the columns `params`, `unique_tokens` and perhaps `epochs`.
    """
    if hasattr(params, "columns"):
        params, ud, epochs = _columns(params, ud, epochs)
    known = Calibration.load(calibration)
    own = Translation.of(known, learning_rate, batch_tokens)
    if own is not None:
        weight_decay = own.calibrated(weight_decay)
    count = members_wanted(known.members, known.name, members, auto=False) or 1
    assert isinstance(count, int)
    if any(_is_many(value) for value in (params, ud, epochs)):
        return _predict_many(params, ud, epochs, weight_decay, law, known, count)
    size = within(units.count(params, "params"), "params", *_PARAMS)
    tokens = unique_tokens(ud)
    passes = within(_passes(epochs, "epochs"), "epochs", *_EPOCHS)
    check_prediction(known, size, tokens, passes)
    found = _predict_one(size, tokens, passes, weight_decay, law, known, count, own)
    return found if members is None else found.model_copy(update={"members": count})


def _predict_one(
    size: float,
    tokens: float,
    passes: float,
    weight_decay: Any,
    law: str | None,
    known: Calibration,
    count: int,
    own: Translation | None,
) -> Prediction:
    form = known.form(law)
    if weight_decay is None and has_dial(known, form):
        one, corpus, times = (np.array([value]) for value in (size, tokens, passes))
        weight_decay = float(best_for_runs(known, form, one, corpus, times, count)[0])

    def loss_at(one: Setting) -> float:
        return float(_loss(known, one, form, size, tokens, passes, count))

    setting = min(known.candidates(form, weight_decay), key=loss_at)
    place, loss = (size, tokens, passes), loss_at(setting)
    gain = float(averaging(known, setting.law(form), count, *place, setting.weight_decay))
    used, notes = tokens * min(passes, 1.0), interpolation_note(setting) + fit_warnings(setting)
    absurd = above_guessing(known, loss)
    error = loss_error(known, setting, form, place, count)
    return made(
        Prediction,
        params=size,
        ud=tokens,
        epochs=passes,
        tokens=tokens * passes,
        flops=FLOPS_PER_PARAM_TOKEN * size * tokens * passes,
        weight_decay=setting.weight_decay,
        law=form,
        calibration=known.name,
        loss=loss,
        perplexity=units.perplexity(loss),
        terms=loss_terms(setting.law(form), *place),
        sureness=None if absurd else loss_range(known, setting, form, place, loss, error),
        intervals=loss_intervals(setting, form, *place, known.guessing_loss, gain),
        interval_note=interval_note(known, setting, form),
        warnings=range_warnings(setting, size, used, passes) + absurd + notes,
        memory_epochs=None
        if known.recipe is None
        else known.recipe.memory_tokens(setting.weight_decay) / used,
        own_recipe=None if own is None else own.own(setting.weight_decay),
        law_weights=setting.law_weights if form == AVERAGE else None,
    )


def _loss(
    known: Calibration, setting: Setting, form: str, params: Any, ud: Any, epochs: Any, members: int
) -> Any:
    """The loss of so many such models, averaged."""
    law = setting.law(form)
    one = np.asarray(law.loss(params, ud, epochs))
    return one - averaging(known, law, members, params, ud, epochs, setting.weight_decay)


def _passes(value: Any, field: str) -> float:
    return units.number(value, field, examples="4 or 0.5")


def _is_many(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | dict) and getattr(value, "ndim", 1) > 0


def _columns(table: Any, ud: Any, epochs: Any) -> tuple[Any, Any, Any]:
    """Sizes, unique tokens and epochs of a table."""
    for name in ("params", "unique_tokens"):
        if name not in table.columns and not (name == "unique_tokens" and ud is not None):
            known = ", ".join(str(column) for column in table.columns)
            raise InvalidInput(f"must be a table with the column {name}; it has {known}.", field="params")
    unique = table["unique_tokens"].to_numpy() if ud is None else ud
    return (
        table["params"].to_numpy(),
        unique,
        table["epochs"].to_numpy() if "epochs" in table.columns else epochs,
    )


def _predict_many(
    params: Any, ud: Any, epochs: Any, weight_decay: Any, law: str | None, known: Calibration, members: int
) -> Predictions:
    given = (
        (params, "params", units.count, _PARAMS),
        (ud, "ud", units.count, _UD),
        (epochs, "epochs", _passes, _EPOCHS),
    )
    columns = [many(values, field, parse) for values, field, parse, _ in given]
    for values, (_, field, _, bounds) in zip(columns, given, strict=True):
        within(float(values.min()), field, *bounds)
        within(float(values.max()), field, *bounds)
    try:
        sizes, tokens, passes = np.broadcast_arrays(*columns)
    except ValueError:
        lengths = ", ".join(str(len(values)) for values in columns)
        raise InvalidInput(
            f", ‹ud› and ‹epochs› must have one length or broadcast; got {lengths} values.", field="params"
        ) from None
    for row in np.flatnonzero(refused(known, sizes, tokens * np.minimum(passes, 1.0), passes)):
        check_prediction(known, *(float(values[row]) for values in (sizes, tokens, passes)))
    form = known.form(law)
    if weight_decay is None and has_dial(known, form):
        decays = best_for_runs(known, form, sizes, tokens, passes, members)
        dialled = dial_law(known, form, decays)
        losses = np.asarray(dialled.loss(sizes, tokens, passes))
        losses = losses - averaging(known, dialled, members, sizes, tokens, passes, decays)
        return Predictions(sizes, tokens, passes, decays, losses, form, known.name)
    settings = known.candidates(form, weight_decay)
    losses = np.stack([_loss(known, s, form, sizes, tokens, passes, members) for s in settings])
    best = np.argmin(losses, axis=0)
    decays = np.array([setting.weight_decay for setting in settings])[best]
    return Predictions(sizes, tokens, passes, decays, losses.min(axis=0), form, known.name)


def loss_terms(law: Law, params: float, ud: float, epochs: float) -> LossTerms:
    terms = law.terms(params, ud, epochs)._asdict()
    return made(LossTerms, **{name: float(value) for name, value in terms.items()})
