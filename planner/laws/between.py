"""A law between two of one form, fitted at two weight decays: each term of the loss is interpolated.

Every term (floor, capacity, data, overfitting) is a straight line in ln τ, AdamW's memory, which at one
recipe and corpus is one in the logarithm of the weight decay: at a reference point, and its exponents
likewise. So the result is a law of the same form, equal to the two at its ends. The penalty's reference is
where the runs repeat most, as that is where it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from planner.laws.forms import Array, At, LawForm, form_named


def between(
    form: str, one: Mapping[str, Array], other: Mapping[str, Array], share: float, reference: At
) -> dict[str, Array]:
    """The parameters at `share` of the way from one law to the other."""
    declared = form_named(form)
    ends = [{name: np.asarray(value, dtype=float) for name, value in law.items()} for law in (one, other)]

    def line(values: list[Array]) -> Array:
        return (1 - share) * values[0] + share * values[1]

    found: dict[str, Array] = {"E": line([p["E"] for p in ends])}
    for amount, power, at in (("A", "alpha", reference.ln_params), ("B", "beta", reference.ln_unique)):
        found[power] = line([p[power] for p in ends])
        found[amount] = line([p[amount] * np.exp(-p[power] * at) for p in ends]) * np.exp(found[power] * at)
    for parameter in declared.repetition:
        values = [p[parameter.name] for p in ends]
        by_logarithm = parameter.kind == "logarithm"
        found[parameter.name] = np.exp(line([np.log(v) for v in values])) if by_logarithm else line(values)
    if declared.penalty is not None:
        found |= _penalty_between(declared, ends, found, line, reference)
    return {name: float(value) if np.ndim(value) == 0 else value for name, value in found.items()}


def _penalty_between(
    declared: LawForm,
    ends: list[dict[str, Array]],
    found: Mapping[str, Array],
    line: Callable[[list[Array]], Array],
    reference: At,
) -> dict[str, Array]:
    """The penalty's amount, a straight line at the reference, and the power of the unique tokens."""
    own = dict(found)
    if {"kappa", "gamma"} <= own.keys():  # their product is the power of the unique tokens
        own["gamma"] = line([p["kappa"] * p["gamma"] for p in ends]) / own["kappa"]
    own["P"] = 1.0
    own["P"] = line([_penalty(declared, p, reference) for p in ends]) / _penalty(declared, own, reference)
    return own


def _penalty(declared: LawForm, p: Mapping[str, Array], at: At) -> Array:
    assert declared.penalty is not None
    return p["P"] * np.exp(declared.penalty.ln_shape({**declared.fixed, **p}, at))
