"""The law forms of the paper and of the work it builds on."""

from __future__ import annotations

from planner.laws.forms import BASE_FORM, DEFAULT_FORM, LawForm, register
from planner.laws.pieces import Decaying, Power, Saturating, amplitude, exponent
from planner.look import Look

register(
    LawForm(
        BASE_FORM,
        "Chinchilla",
        Look("#666666", "#b3b3b3", "dot"),
        "every token is as good as new (Hoffmann et al. 2022)",
        "E + A/N^α + B/D^β",
    )
)
register(
    LawForm(
        "exponential_decay",
        "exponential decay",
        Look("#b87400", "#f0b140", "dash"),
        "repeated tokens fade (Muennighoff et al. 2023)",
        "D' = U (1 + R*_D (1 - exp(-R/R*_D)))",
        repeats=Decaying(),
    )
)
register(
    LawForm(
        "effective_parameters",
        "effective parameters",
        Look("#b8578e", "#e29bc2", "longdash"),
        "repeated tokens and size beyond what the data wants both fade (Muennighoff et al. 2023)",
        "D' as above; N' = U_N (1 + R*_N (1 - exp(-R_N/R*_N)))",
        repeats=Decaying(),
        size=Saturating(),
    )
)
register(
    LawForm(
        "additive_1p",
        "additive 1p",
        Look("#2e9bd6", "#8ccdf2", "dashdot"),
        "repetition costs in proportion to repeats and to size over data",
        "+ P R (N/U)",
        penalty=Power((amplitude((0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0), linear=True),)),
    )
)
register(
    LawForm(
        "additive_2p",
        "additive 2p",
        Look("#008f68", "#3fc99f", "longdashdot"),
        "the same with a power of size over data",
        "+ P R (N/U)^κ",
        penalty=Power((amplitude(), exponent("kappa", "κ", (0.2, 0.4, 0.6, 0.9, 1.2, 1.6, 2.2), 0.3))),
    )
)
register(
    LawForm(
        DEFAULT_FORM,
        "additive 4p",
        Look("#0063a3", "#5db1f0", "solid"),
        "the paper's law: repeats, size and data each with a power of its own",
        "+ P R^δ (N/U^γ)^κ",
        penalty=Power(
            (
                amplitude(),
                exponent("delta", "δ", (0.5, 0.9, 1.3, 2.0), 0.3),
                exponent("kappa", "κ", (0.3, 0.7, 1.1, 1.6), 0.3),
                exponent("gamma", "γ", (0.3, 0.9), 0.4),
            )
        ),
    )
)
