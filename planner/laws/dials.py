"""Dials: law forms for every weight decay at once, by way of AdamW's memory.

With M = batch tokens / (learning rate x weight decay) tokens of memory, tau = M / U epochs of it, R repeats
and D' = U (1 + R* (1 - exp(-R / R*))), each is

    L = E + A / N^alpha + B / D'^beta + premium(tau) + P R^delta (N / U^gamma)^kappa exp(-c / tau)

The penalty is what is still remembered when a token comes round again, the premium what is forgotten too
soon: between them lies the best weight decay.
"""

from __future__ import annotations

from planner.laws.forms import DIALS, LawForm
from planner.laws.pieces import Decaying, Forgotten, Hinge, Remembered, amplitude, by_logarithm, exponent
from planner.look import Look

_REPETITION = (
    amplitude((0.03, 0.2)),
    exponent("delta", "δ", (1.5,), 0.3),
    exponent("kappa", "κ", (0.9,), 0.3),
)
_MEMORY = by_logarithm("c", "c", (1e-2, 1e3), (1.5, 4.0))
_REPEATS = Decaying((by_logarithm("R_D_star", "R*_D", (1e-2, 1e6), (1.5, 8.0), 1.0),))

DIALS.register(
    LawForm(
        "dial_data",
        "dial, premium of the data",
        Look("#8a3ffc", "#be95ff", "solid"),
        "any weight decay: a short memory makes data worth less, a long one overfits",
        "B/D'^β (1 + (τ_c/τ)^σ), + P R^δ (N/U^γ)^κ exp(-c/τ)",
        repeats=_REPEATS,
        penalty=Remembered((*_REPETITION, exponent("gamma", "γ", (0.9,), 0.4), _MEMORY)),
        premium=Forgotten(),
    )
)
DIALS.register(
    LawForm(
        "dial_hinge",
        "dial, premium in nats",
        Look("#005d5d", "#3ddbd9", "dash"),
        "any weight decay: the premium is a square above a threshold, the same for all sizes and data",
        "+ q [ln(τ_c/τ)]₊² + P R^δ (N/U^γ)^κ exp(-c/τ)",
        repeats=_REPEATS,
        penalty=Remembered((*_REPETITION, exponent("gamma", "γ", (0.9,), 0.4), _MEMORY)),
        premium=Hinge(),
    )
)
DIALS.register(
    LawForm(
        "dial_simple",
        "dial, simple",
        Look("#9f1853", "#ff7eb6", "dot"),
        "the first with size over data to one power, twelve parameters in all",
        "B/D'^β (1 + (τ_c/τ)^σ), + P R^δ (N/U)^κ exp(-c/τ)",
        repeats=_REPEATS,
        penalty=Remembered((*_REPETITION, _MEMORY)),
        premium=Forgotten(),
    )
)
