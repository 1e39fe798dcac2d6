"""`predict`: the loss that a law expects from one configuration."""

from __future__ import annotations

from typing import Any

from planner import units
from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.budgets import unique_tokens, within
from planner.calibration_files import Calibration, CalibrationSource
from planner.laws import Law
from planner.results import LossTerms, Prediction
from planner.uncertainty import interval_note, loss_intervals, range_warnings


def predict(
    params: Any,
    ud: Any,
    epochs: Any = 1.0,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
) -> Prediction:
    """The loss of one configuration; without `weight_decay`, at the calibrated one that does best there."""
    size = within(units.count(params, "params"), "params", 1.0, 1e15, "parameters")
    tokens = unique_tokens(ud)
    passes = within(units.number(epochs, "epochs", examples="4 or 0.5"), "epochs", 1e-6, 1e5, "epochs")
    known = Calibration.load(calibration)
    form = known.form(law)
    settings = known.candidates(form, weight_decay)
    setting = min(settings, key=lambda s: float(s.law(form).loss(size, tokens, passes)))
    loss = float(setting.law(form).loss(size, tokens, passes))
    members = setting.ensemble_law(form)
    return Prediction(
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
        terms=loss_terms(setting.law(form), size, tokens, passes),
        intervals=loss_intervals(members, size, tokens, passes) if members is not None else None,
        interval_note=interval_note(known, setting, form),
        warnings=range_warnings(setting, size, tokens * min(passes, 1.0), passes),
    )


def loss_terms(law: Law, params: float, ud: float, epochs: float) -> LossTerms:
    terms = law.terms(params, ud, epochs)._asdict()
    return LossTerms(**{name: float(value) for name, value in terms.items()})
