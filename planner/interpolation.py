"""A setting between two calibrated weight decays, for those who ask for one: interpolated, and labelled so.

Each term of the loss is a power law in the weight decay (`planner.laws.between`). `studies/dial` measures
how well that predicts runs at a weight decay that was left out.
"""

from __future__ import annotations

import math
from typing import Any

from planner.calibration_files import Ensemble, FittedLaw, FittedRange, Setting
from planner.laws.between import between


def interpolated(weaker: Setting, stronger: Setting, weight_decay: float) -> Setting:
    """The setting at a weight decay between two: each term of the loss a power law in the weight decay, which
    at one recipe is one in AdamW's memory.
    """
    ends = math.log(weaker.weight_decay), math.log(stronger.weight_decay)
    share = (math.log(weight_decay) - ends[0]) / (ends[1] - ends[0])
    laws = {}
    for form in weaker.laws.keys() & stronger.laws.keys():
        one, other = weaker.laws[form], stronger.laws[form]
        errors = [law.predictive_error for law in (one, other) if law.predictive_error is not None]
        laws[form] = FittedLaw(
            parameters=between(form, one.parameters, other.parameters, share),
            predictive_error=max(errors, key=lambda error: error.inside, default=None),
        )
    return Setting(
        weight_decay=weight_decay,
        between=(weaker.weight_decay, stronger.weight_decay),
        fitted_on=_common(weaker.fitted_on, stronger.fitted_on),
        laws={form: laws[form] for form in weaker.laws if form in laws},
        law_weights={form: weight for form, weight in weaker.law_weights.items() if form in laws},
        warnings=list(dict.fromkeys((*weaker.warnings, *stronger.warnings))),
        ensemble=_refits_between(weaker.ensemble, stronger.ensemble, share),
        method={"interpolated": "each term of the loss a power law in the weight decay"},
    )


def _refits_between(weaker: Ensemble | None, stronger: Ensemble | None, share: float) -> Ensemble | None:
    """Refit by refit, as many as both have."""
    if weaker is None or stronger is None:
        return None
    laws = {}
    for form in weaker.laws.keys() & stronger.laws.keys():
        both = (weaker.laws[form], stronger.laws[form])
        size = min(len(values) for one in both for values in one.values())
        one, other = ({name: values[:size] for name, values in members.items()} for members in both)
        laws[form] = {name: value.tolist() for name, value in between(form, one, other, share).items()}
    return Ensemble(method=weaker.method, laws=laws) if laws else None


def _common(one: FittedRange, other: FittedRange) -> FittedRange:
    """What both covered, where that is anything."""
    common: dict[str, Any] = {}
    for name in ("params", "unique_tokens", "epochs", "repeated_params", "repeated_unique_tokens", "loss"):
        a, b = getattr(one, name), getattr(other, name)
        if a is not None and b is not None:
            low, high = max(a[0], b[0]), min(a[1], b[1])
            common[name] = (low, high) if low <= high else a
    return FittedRange(**common)
