"""The family: what repeats are worth (all, fading, fading sooner in large models) times what they cost
(nothing, a power law, Hill's curve), and a bounded law.

The additive law's penalty grows with the model without end, where runs beyond its grid show that it levels
off, and it takes repeated tokens for as good as new. `planner calibrate tournament` compares all of these
where it matters, beyond the runs that they were fitted on; those that did best there are fitted by default,
the others where they are asked for.
"""

from __future__ import annotations

from planner.laws.forms import LawForm, Parameter, Penalty, Repeats, register
from planner.laws.pieces import Decaying, Hill, Paced, Power, amplitude, exponent
from planner.look import Look

_AMOUNTS = (0.003, 0.03, 0.3)
_POWERS: dict[str, tuple[Parameter, ...]] = {
    "delta": (exponent("delta", "δ", (0.7, 1.5), 0.3),),
    "kappa": (exponent("kappa", "κ", (0.4, 1.2), 0.3),),
    "gamma": (exponent("gamma", "γ", (0.3, 0.9), 0.4),),
}
_LEVEL = Parameter("c", "c", "logarithm", (1e-4, 1e4), (0.3, 3.0), 1.0)  # in units of the runs' middle
_HILL_KAPPA = exponent("kappa", "κ", (1.0, 2.0), 0.3)


def _power(*exponents: str) -> Power:
    return Power((amplitude(_AMOUNTS), *(parameter for name in exponents for parameter in _POWERS[name])))


def _hill(*, free: bool, repeats_too: bool = False) -> Hill:
    shape = (*_POWERS["delta"], _LEVEL, *_POWERS["gamma"])
    return Hill((amplitude(_AMOUNTS), *shape, *((_HILL_KAPPA,) if free else ())), repeats_too)


_FADING = Decaying((Parameter("R_D_star", "R*_D", "logarithm", (1e-2, 1e6), (3.0, 15.0, 100.0), 1.0),))
_VALUES: dict[str, tuple[str, str, str, Repeats]] = {
    "": ("", "", "", Repeats()),
    "decay": ("decay + ", "repeated tokens fade, and ", "D' of exponential decay; ", _FADING),
    "paced": (
        "paced decay + ",
        "repeated tokens fade, the sooner the larger the model, and ",
        "D' with R*_D (U/N)^ρ for R*_D; ",
        Paced(),
    ),
}
_COSTS: dict[str, tuple[str, str, str, Penalty]] = {
    "1p": ("1p", "cost in proportion to repeats and to size over data", "+ P R (N/U)", _power()),
    "2p": ("2p", "cost with a power of size over data", "+ P R (N/U)^κ", _power("kappa")),
    "4p": (
        "4p",
        "cost with powers of repeats, size and data",
        "+ P R^δ (N/U^γ)^κ",
        _power("delta", "kappa", "gamma"),
    ),
    "hill_4p": (
        "Hill 4p",
        "their cost levels off in large models",
        "+ P R^δ z²/(1+z²), z = N/(c U^γ)",
        _hill(free=False),
    ),
    "hill_5p": (
        "Hill 5p",
        "their cost levels off in large models, with a power of its own",
        "+ P R^δ z^κ/(1+z^κ), z = N/(c U^γ)",
        _hill(free=True),
    ),
}
_LOOKS = {
    "paced_decay": Look("#3800ff", "#9307fb", "10px,3px"),
    "hill_4p": Look("#fa22eb", "#fa0abb", "3px,3px"),
    "hill_5p": Look("#e50334", "#fb0c31", "6px,2px,2px,2px"),
    "decay_1p": Look("#290b89", "#1f66ef", "12px,3px,3px,3px"),
    "decay_2p": Look("#07aa04", "#4ca106", "4px,6px"),
    "decay_4p": Look("#5c1706", "#a85839", "2px,6px"),
    "decay_hill_4p": Look("#21082e", "#9d46a2", "10px,6px"),
    "decay_hill_5p": Look("#ac78f3", "#ce2165", "14px,4px"),
    "paced_1p": Look("#556004", "#6c6e1f", "8px,3px,2px,3px,2px,3px"),
    "paced_2p": Look("#01250b", "#daf298", "1px,3px"),
    "paced_4p": Look("#c97d69", "#fa6f02", "5px,5px"),
    "paced_hill_4p": Look("#f60290", "#e7ff06", "16px,3px"),
    "paced_hill_5p": Look("#1157fd", "#29fd8d", "3px,2px,8px,2px"),
    "bounded": Look("#9b1098", "#1cfe02", "6px,6px,2px,6px"),
}
_STANDARD = ("hill_4p", "decay_4p", "decay_hill_4p")

register(
    LawForm(
        "paced_decay",
        "paced decay",
        _LOOKS["paced_decay"],
        "repeated tokens fade, the sooner the larger the model",
        "D' with R*_D (U/N)^ρ for R*_D",
        repeats=Paced(),
        standard=False,
    )
)
for _value, (_label, _worth, _formula, _repeats) in _VALUES.items():
    for _cost, (_name, _costs, _penalty_formula, _penalty) in _COSTS.items():
        if not _value and not _cost.startswith("hill"):
            continue  # the additive forms are published
        _form = f"{_value}_{_cost}".strip("_")
        register(
            LawForm(
                _form,
                _label + _name,
                _LOOKS[_form],
                _worth + _costs,
                _formula + _penalty_formula,
                repeats=_repeats,
                penalty=_penalty,
                standard=_form in _STANDARD,
            )
        )
register(
    LawForm(
        "bounded",
        "bounded",
        _LOOKS["bounded"],
        "the cost of repetition has a bound in size and repeats (after arXiv 2605.09189, of the excess only)",
        "+ P h/(1+h), h = R^δ (N/(c U^γ))^κ",
        penalty=_hill(free=True, repeats_too=True),
        standard=False,
    )
)
