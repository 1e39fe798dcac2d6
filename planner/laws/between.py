"""A law between two of one form, fitted at two weight decays: each term of the loss is interpolated.

The logarithm of every term (floor, capacity, data, overfitting) is taken to be a straight line in ln τ,
which at one recipe and corpus is one in the logarithm of the weight decay. Terms are powers, so the result
is a law of the same form: amplitudes are interpolated by their logarithms, exponents as they are, and κγ,
the power of the unique tokens, as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.laws.forms import Array, form_named


def between(
    form: str, one: Mapping[str, Array], other: Mapping[str, Array], share: float
) -> dict[str, Array]:
    """The parameters at `share` of the way from one law to the other."""
    values: dict[str, Array] = {}
    one, other = (
        {name: np.asarray(value, dtype=float) for name, value in law.items()} for law in (one, other)
    )
    for parameter in form_named(form).parameters:
        a, b = one[parameter.name], other[parameter.name]
        straight = (1 - share) * a + share * b
        if parameter.kind != "exponent":  # a term that is nothing on one side has no logarithm
            both = (a > 0) & (b > 0)
            ln = (1 - share) * np.log(np.where(both, a, 1.0)) + share * np.log(np.where(both, b, 1.0))
            straight = np.where(both, np.exp(ln), straight)
        values[parameter.name] = straight
    if "kappa" in values and "gamma" in values:
        power = (1 - share) * one["kappa"] * one["gamma"] + share * other["kappa"] * other["gamma"]
        values["gamma"] = np.asarray(power) / values["kappa"]
    return {name: float(value) if np.ndim(value) == 0 else value for name, value in values.items()}
