"""A setting between two calibrated weight decays, for those who ask for one: interpolated, and labelled so.

Each term of the loss is a straight line in the logarithm of the weight decay (`planner.laws.between`).
`studies/dial` measures how well that predicts runs at a weight decay that was left out.
"""

from __future__ import annotations

import math
from typing import Any

from planner.calibration_files import Ensemble, FittedLaw, FittedRange, Setting
from planner.laws.between import between
from planner.laws.forms import At


def interpolated(weaker: Setting, stronger: Setting, weight_decay: float) -> Setting:
    """The setting at a weight decay between two: each term of the loss a straight line in the logarithm of
    the weight decay, which at one recipe is one in that of AdamW's memory.
    """
    ends = math.log(weaker.weight_decay), math.log(stronger.weight_decay)
    share = (math.log(weight_decay) - ends[0]) / (ends[1] - ends[0])
    reference = _reference(weaker.fitted_on, stronger.fitted_on)
    laws = {}
    for form in weaker.laws.keys() & stronger.laws.keys():
        one, other = weaker.laws[form], stronger.laws[form]
        errors = [law.predictive_error for law in (one, other) if law.predictive_error is not None]
        laws[form] = FittedLaw(
            parameters=between(form, one.parameters, other.parameters, share, reference),
            predictive_error=max(errors, key=lambda error: error.inside, default=None),
        )
    return Setting(
        weight_decay=weight_decay,
        between=(weaker.weight_decay, stronger.weight_decay),
        fitted_on=_common(weaker.fitted_on, stronger.fitted_on),
        laws={form: laws[form] for form in weaker.laws if form in laws},
        law_weights={form: weight for form, weight in weaker.law_weights.items() if form in laws},
        warnings=list(dict.fromkeys((*weaker.warnings, *stronger.warnings))),
        ensemble=_refits_between(weaker.ensemble, stronger.ensemble, share, reference),
        method={"interpolated": "each term of the loss a straight line in ln(weight decay)"},
    )


def _refits_between(
    weaker: Ensemble | None, stronger: Ensemble | None, share: float, reference: At
) -> Ensemble | None:
    """Refit by refit, as many as both have."""
    if weaker is None or stronger is None:
        return None
    both = (weaker, stronger)
    forms = [form for form in weaker.laws if form in stronger.laws]
    own = [form for form in forms if form in {*weaker.over_all, *stronger.over_all}]
    if not forms:
        return None
    return Ensemble(
        method=weaker.method,
        laws={form: _laws(form, both, share, reference) for form in forms},
        misfit=_misfits(*both, share),
        over_all={form: _laws(form, both, share, reference, of_losses=True) for form in own},
    )


def _laws(
    form: str, both: tuple[Ensemble, Ensemble], share: float, reference: At, of_losses: bool = False
) -> dict[str, list[float]]:
    ends = [one.parameters(form, of_losses) for one in both]
    size = min(len(values) for end in ends for values in end.values())
    one, other = ({name: values[:size] for name, values in end.items()} for end in ends)
    return {name: v.tolist() for name, v in between(form, one, other, share, reference).items()}


def _misfits(weaker: Ensemble, stronger: Ensemble, share: float) -> dict[str, list[float]]:
    return {
        form: [
            (1 - share) * low + share * high for low, high in zip(one, stronger.misfit[form], strict=False)
        ]
        for form, one in weaker.misfit.items()
        if form in stronger.misfit
    }


def _reference(one: FittedRange, other: FittedRange) -> At:
    """The middle of the repeated runs, and the most repeats that both saw."""
    both = _common(one, other)
    sizes, tokens = both.repeated_params or both.params, both.repeated_unique_tokens or both.unique_tokens
    ln_params, ln_unique = (0.5 * math.log(low * high) for low, high in (sizes, tokens))
    return At(ln_params, ln_unique, math.log(max(both.epochs[1] - 1, 1.0)))


def _common(one: FittedRange, other: FittedRange) -> FittedRange:
    """What both covered, where that is anything."""
    common: dict[str, Any] = {}
    for name in ("params", "unique_tokens", "epochs", "repeated_params", "repeated_unique_tokens", "loss"):
        a, b = getattr(one, name), getattr(other, name)
        if a is not None and b is not None:
            low, high = max(a[0], b[0]), min(a[1], b[1])
            common[name] = (low, high) if low <= high else a
    return FittedRange(**common)
