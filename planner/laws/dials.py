"""Dials: law forms for every weight decay at once, by way of AdamW's memory.

With M = batch tokens / (learning rate x weight decay) tokens of memory, tau = M / U epochs of it, R repeats
and D' = U (1 + R* (1 - exp(-R / R*))), each is

    L = E + A / N^alpha + B / D''^beta + premium + penalty exp(-mu / tau)

The penalty is what is still remembered when a token comes round again. What is forgotten too soon is charged
as a premium, or leaves less of the data, as 1 / D'' = 1 / D' + 1 / (k M): between the two lies the best
weight decay.
"""

from __future__ import annotations

from planner.laws.forms import DIALS, LawForm, Parameter
from planner.laws.pieces import (
    Decaying,
    Forgotten,
    Hinge,
    Outgrown,
    Power,
    Remembered,
    Steepening,
    amplitude,
    by_logarithm,
    exponent,
)
from planner.look import Look

_SIZE = amplitude((0.03, 0.2))
_DELTA, _GAMMA = exponent("delta", "δ", (1.7,), 0.3), exponent("gamma", "γ", (0.7,), 0.4)
_REPEATS = Decaying((by_logarithm("R_D_star", "R*_D", (1e-2, 1e6), (1.5, 8.0), 1.0),))
_STEEPENING = Remembered(
    Steepening((_SIZE, _DELTA, Parameter("c", "c", "logarithm", (1e-4, 1e4), (0.5, 1.5), 1.0), _GAMMA)),
    first_pass=True,
)


def _power(*more: Parameter) -> Remembered:
    return Remembered(Power((_SIZE, _DELTA, exponent("kappa", "κ", (0.9,), 0.3), *more)))


for form in (
    LawForm(
        "dial_hinge",
        "dial, premium in nats",
        Look("#005d5d", "#3ddbd9", "dash"),
        "any weight decay: the premium is a square above a threshold, the same for all sizes and data",
        "+ q [ln(τ_c/τ)]₊² + P R^δ (N/U^γ)^κ exp(-μ/τ)",
        repeats=_REPEATS,
        penalty=_power(_GAMMA),
        premium=Hinge(),
    ),
    LawForm(
        "dial_simple",
        "dial, simple",
        Look("#9f1853", "#ff7eb6", "dot"),
        "any weight decay: data is worth no more than is remembered; eleven parameters in all",
        "B/D''^β, 1/D'' = 1/D' + 1/(k M), + P R^δ (N/U)^κ exp(-μ/τ)",
        repeats=_REPEATS,
        penalty=_power(),
        premium=Forgotten(),
    ),
    LawForm(
        "dial_steep",
        "dial, steeper in large models",
        Look("#b28600", "#f1c21b", "dashdot"),
        "any weight decay: large models overfit with a higher power of the passes and want a longer memory",
        "B/D''^β, D'' = D' (1 + N D'/(k M)²)^(-s/2), + P e^(δ h) exp(-μ/τ), h = N/(N + c U^γ)",
        repeats=_REPEATS,
        penalty=_STEEPENING,
        premium=Outgrown(),
    ),
):
    DIALS.register(form)
