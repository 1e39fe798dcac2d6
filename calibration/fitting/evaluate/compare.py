r"""How much less one setting overfits than another: the ratio of their penalties at a common point.

The coefficient P alone is comparable only between fits with the same exponents (the one-parameter form). In
P R^delta (N / U^gamma)^kappa it carries whatever units the exponents leave over: from weight decay 0.1 to 1.0
the paper's P of the four-parameter form grows 8,000-fold while the penalty falls. So the penalty itself is
compared, at one model size, one number of unique tokens and one number of epochs that both fits cover; in the
one-parameter form that is the ratio of P.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from calibration.fitting.evaluate.summary import Point, common_point
from planner.calibration import Setting
from planner.explain import outside_the_runs
from planner.inputs import InvalidInput
from planner.laws import FORMS, check_form, repetition_parameters
from planner.uncertainty import interval

_MAD_TO_SIGMA = 1.4826


class Comparison(BaseModel):
    """Overfitting of a second setting relative to a first, under one law form."""

    model_config = ConfigDict(frozen=True)

    law: str
    first_weight_decay: float
    second_weight_decay: float
    reference: Point
    first_penalty: float  # nats per token at the reference point
    second_penalty: float
    ratio: float  # second over first
    ratio_low: float | None  # 95%
    ratio_high: float | None
    interval_from: str
    coefficient_ratio: float  # of P alone
    coefficients_comparable: bool  # whether the exponents are the same, so that P alone means something
    warnings: tuple[str, ...] = ()  # that the point is outside of what repetition was fitted on

    @property
    def excludes_no_difference(self) -> bool | None:
        """Whether the interval leaves out a ratio of one; None where there is no interval."""
        if self.ratio_low is None or self.ratio_high is None:
            return None
        return not self.ratio_low <= 1 <= self.ratio_high

    @property
    def sentence(self) -> str:
        change = f"{abs(1 - self.ratio):.0%} {'less' if self.ratio < 1 else 'more'}"
        spread = ""
        if self.ratio_low is not None and self.ratio_high is not None:
            spread = f", 95% interval {self.ratio_low:.3g} to {self.ratio_high:.3g}"
            if not self.excludes_no_difference:
                spread += ", which does not exclude that there is no difference"
        return (
            f"Weight decay {self.second_weight_decay:g} overfits {change} than {self.first_weight_decay:g} "
            f"(penalty ratio {self.ratio:.3g}{spread}; {self.law}, at {self.reference})."
        )


def compare(
    first: Setting,
    second: Setting,
    *,
    law: str | None = None,
    recommended: str | None = None,
    params: Any = None,
    ud: Any = None,
    epochs: Any = None,
) -> list[Comparison]:
    """Compare the overfitting of two settings, for one form with a penalty or for all that both have, the
    recommended one first.
    """
    if first is second:
        raise InvalidInput(
            f"weight decay {first.weight_decay:g} cannot be compared with itself; "
            f"name two different settings."
        )
    penalised = tuple(form for form, declared in FORMS.items() if declared.overfits)
    if law is not None and check_form(law) not in penalised:
        raise InvalidInput(
            f"must be one of {', '.join(penalised)} to compare overfitting; "
            f"{law} has no overfitting penalty.",
            field="law",
        )
    wanted = penalised if law is None else (law,)
    forms = [form for form in wanted if form in first.laws and form in second.laws]
    if not forms:
        raise InvalidInput(
            f"the two settings have none of {', '.join(wanted)} in common; fit both with one of them."
        )
    forms.sort(key=lambda form: form != recommended)
    point = common_point(first, second, params, ud, epochs)
    warnings = tuple(
        f"At weight decay {setting.weight_decay:g}: {text}"
        for setting in (first, second)
        for text in outside_the_runs(setting, point.params, point.unique_tokens, point.epochs).values()
    )
    return [_compare(first, second, form, point, warnings) for form in forms]


def _compare(
    first: Setting, second: Setting, form: str, point: Point, warnings: tuple[str, ...]
) -> Comparison:
    where = (point.params, point.unique_tokens, point.epochs)
    one, two = (float(setting.law(form).terms(*where).overfitting) for setting in (first, second))
    if one <= 0:
        raise InvalidInput(
            f"{form} at weight decay {first.weight_decay:g} has no overfitting at {point}, so that there is "
            "no ratio to it; swap the two settings or name another point."
        )
    low, high, source = _ratio_interval(first, second, form, where)
    p, q = first.laws[form].parameters, second.laws[form].parameters
    return Comparison(
        law=form,
        first_weight_decay=first.weight_decay,
        second_weight_decay=second.weight_decay,
        reference=point,
        first_penalty=one,
        second_penalty=two,
        ratio=two / one,
        ratio_low=low,
        ratio_high=high,
        interval_from=source,
        coefficient_ratio=q["P"] / p["P"] if p["P"] > 0 else float("inf"),
        coefficients_comparable=all(
            p[name] == q[name] for name in repetition_parameters(form) if name != "P"
        ),
        warnings=warnings,
    )


def _ratio_interval(
    first: Setting, second: Setting, form: str, where: tuple[float, float, float]
) -> tuple[float | None, float | None, str]:
    draws = [setting.law_draws(form) for setting in (first, second)]
    if draws[0] is not None and draws[1] is not None:
        one, two = (np.asarray(law.terms(*where).overfitting) for law in draws if law is not None)
        size = min(len(one), len(two))
        # Two files may have been drawn with the same seed: pair their draws at random, or they would move
        # together.
        order = np.random.default_rng(0).permutation(size)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = interval(np.divide(two[:size][order], one[:size]))
        if found is not None:
            return found.low, found.high, f"{size} draws of each setting"
    spreads = [setting.laws[form].spread.get("P") for setting in (first, second)]
    if repetition_parameters(form) == ("P",) and all(spreads):
        coefficients = [setting.laws[form].parameters["P"] for setting in (first, second)]
        parts = [
            _MAD_TO_SIGMA * float(spread or 0.0) / p for spread, p in zip(spreads, coefficients, strict=True)
        ]
        width = 1.96 * math.hypot(*parts)
        ratio = coefficients[1] / coefficients[0]
        source = "the published median absolute deviations of P, taken as normal"
        return float(ratio * np.exp(-width)), float(ratio * np.exp(width)), source
    return None, None, "no draws in at least one of the two, so no interval"
