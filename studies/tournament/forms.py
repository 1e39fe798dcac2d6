"""The forms that took part in the tournament and are not fitted by default: variations of the shipped ones.

What repeats are worth (all, fading, fading sooner in large models) times what they cost (nothing, a power
law, Hill's curve), a law whose cost has a bound, and a weight-decay law with a premium in nats. They are
declared with the public `register`, as anybody's own form is:

    from studies.tournament.forms import registered

    with registered():
        ...     # everything that lists, fits, draws or explains forms knows these too

    python studies/tournament/forms.py calibrate tournament ...     # `planner` with these forms
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from planner.laws import (
    AMOUNTS,
    FADING,
    FEW_AMOUNTS,
    FORGETTING,
    HILL,
    POWER,
    Array,
    At,
    LawForm,
    Parameter,
    Style,
    Terms,
    Values,
    amplitude,
    base_terms,
    delta,
    exponent,
    faded,
    gamma,
    hill_cost,
    kappa,
    kappa_of_ratio,
    power_cost,
    register,
    remembered_power_cost,
    softplus,
    unregister,
)

_FURTHEST = 300.0  # ln of a number of repeats of which exponentials are numbers
_CORNER = 0.5  # width of the hinge's corner, in ln(tau)


def paced(p: Values, at: At) -> Array:
    """ln D' of repeats that fade over R_D* (U / N)^rho of them: a large model has had enough sooner."""
    ln_star = np.log(p["R_D_star"]) - p["rho"] * (at.ln_params - at.ln_unique)
    star = np.exp(np.minimum(np.maximum(ln_star, -_FURTHEST), _FURTHEST))
    return at.ln_used + np.log1p(-star * np.expm1(-at.repeats / star))


def bounded_cost(p: Values, at: At) -> Array:
    """P h / (1 + h), h = R^delta (N / (c U^gamma))^kappa: the level is one for everything."""
    ln_z = p["kappa"] * (at.ln_params - p["gamma"] * at.ln_unique - np.log(p["c"]))
    return p["P"] * at.repeated * np.exp(-softplus(-ln_z - p["delta"] * at.ln_repeats))


def hinge(p: Values, at: At) -> Array:
    """A timescale shorter than tau_c costs with the square of its logarithm, q [ln(tau_c / tau)]_+^2, with a
    smooth corner x -> (x + sqrt(x^2 + w^2)) / 2.
    """
    short = np.log(p["tau_c"]) - (at.ln_timescale - at.ln_used)
    return p["q"] * ((short + np.sqrt(short**2 + _CORNER**2)) / 2) ** 2


_PACE = (
    replace(FADING, unit=lambda p, at: np.exp(p["rho"] * (at.ln_params - at.ln_unique))),
    exponent("rho", "ρ", (0.2, 0.8), 0.5),
)
_AMOUNT = amplitude(power_cost, FEW_AMOUNTS)
_HILL_KAPPA = exponent("kappa", "κ", (1.0, 2.0), 0.3)
# By name: label, in words, parameters, and what it does.
_WORTH = {
    "": ("", "", "", (), None),
    "decay": ("decay + ", "repeated tokens fade, and ", "D' of exponential decay; ", (FADING,), faded),
    "paced": (
        "paced decay + ",
        "repeated tokens fade, the sooner the larger the model, and ",
        "D' with R*_D (U/N)^ρ for R*_D; ",
        _PACE,
        paced,
    ),
}
_COSTS: dict[str, tuple[str, str, str, tuple[Parameter, ...], Callable[[Values, At], Array]]] = {
    "1p": (
        "1p",
        "cost in proportion to repeats and to size over data",
        "+ P R (N/U)",
        (_AMOUNT,),
        power_cost,
    ),
    "2p": (
        "2p",
        "cost with a power of size over data",
        "+ P R (N/U)^κ",
        (_AMOUNT, kappa_of_ratio((0.4, 1.2))),
        power_cost,
    ),
    "4p": ("4p", "cost with powers of repeats, size and data", "+ P R^δ (N/U^γ)^κ", POWER, power_cost),
    "hill_4p": (
        "Hill 4p",
        "their cost levels off in large models",
        "+ P R^δ z²/(1+z²), z = N/(c U^γ)",
        HILL,
        hill_cost,
    ),
    "hill_5p": (
        "Hill 5p",
        "their cost levels off in large models, with a power of its own",
        "+ P R^δ z^κ/(1+z^κ), z = N/(c U^γ)",
        (*HILL, _HILL_KAPPA),
        hill_cost,
    ),
}
_STYLES = {
    "hill_5p": Style("#e50334", "#fb0c31", "6px,2px,2px,2px"),
    "decay_1p": Style("#290b89", "#1f66ef", "12px,3px,3px,3px"),
    "decay_2p": Style("#07aa04", "#4ca106", "4px,6px"),
    "decay_hill_5p": Style("#ac78f3", "#ce2165", "14px,4px"),
    "paced_1p": Style("#556004", "#6c6e1f", "8px,3px,2px,3px,2px,3px"),
    "paced_2p": Style("#01250b", "#daf298", "1px,3px"),
    "paced_4p": Style("#c97d69", "#fa6f02", "5px,5px"),
    "paced_hill_4p": Style("#f60290", "#e7ff06", "16px,3px"),
    "paced_hill_5p": Style("#1157fd", "#29fd8d", "3px,2px,8px,2px"),
}


def _combined(name: str) -> LawForm:
    """A form of one worth and one cost, by its name."""
    value, cost = name.split("_", 1) if name.split("_")[0] in _WORTH else ("", name)
    label, worth, formula, fading, ln_data = _WORTH[value]
    short, costs, cost_formula, own, charged = _COSTS[cost]

    def terms(p: Values, at: At) -> Terms:
        data = None if ln_data is None else ln_data(p, at)
        return base_terms(p, at, ln_data=data, overfitting=charged(p, at))

    words = (label + short, _STYLES[name], worth + costs, formula + cost_formula)
    return LawForm(name, *words, (*fading, *own), terms, standard=False)


def _hinged(p: Values, at: At) -> Terms:
    found = base_terms(p, at, ln_data=faded(p, at), overfitting=remembered_power_cost(p, at))
    return found._replace(data=found.data + hinge(p, at))


FORMS_OF_THE_STUDY = (
    LawForm(
        "paced_decay",
        "paced decay",
        Style("#3800ff", "#9307fb", "10px,3px"),
        "repeated tokens fade, the sooner the larger the model",
        "D' with R*_D (U/N)^ρ for R*_D",
        _PACE,
        lambda p, at: base_terms(p, at, ln_data=paced(p, at)),
        standard=False,
    ),
    *map(_combined, _STYLES),
    LawForm(
        "bounded",
        "bounded",
        Style("#9b1098", "#1cfe02", "6px,6px,2px,6px"),
        "the cost of repetition has a bound in size and repeats (after arXiv 2605.09189, of the excess only)",
        "+ P h/(1+h), h = R^δ (N/(c U^γ))^κ",
        (amplitude(bounded_cost, FEW_AMOUNTS), *HILL[1:], _HILL_KAPPA),
        lambda p, at: base_terms(p, at, overfitting=bounded_cost(p, at)),
        standard=False,
    ),
)
DECAY_FORMS_OF_THE_STUDY = (
    LawForm(
        "weight_decay_hinge",
        "weight decay, premium in nats",
        Style("#005d5d", "#3ddbd9", "dash"),
        "any weight decay: the premium is a square above a threshold, the same for all sizes and data",
        "+ q [ln(τ_c/τ)]₊² + P R^δ (N/U^γ)^κ exp(-μ/τ)",
        (
            FADING,
            amplitude(remembered_power_cost, AMOUNTS),
            delta((1.7,)),
            kappa((0.9,)),
            gamma((0.7,)),
            FORGETTING,
            Parameter("q", "q", "logarithm", (1e-5, 10.0), (0.03,), 0.5),
            Parameter("tau_c", "τ_c", "logarithm", (1e-3, 100.0), (0.3, 1.0), 0.5),
        ),
        _hinged,
        every_weight_decay=True,
    ),
)


@contextmanager
def registered() -> Iterator[None]:
    """All of them known, for as long as it takes."""
    every = (*FORMS_OF_THE_STUDY, *DECAY_FORMS_OF_THE_STUDY)
    for form in every:
        register(form)
    try:
        yield
    finally:
        for form in every:
            unregister(form.name)


if __name__ == "__main__":
    from planner.__main__ import main

    with registered():
        main()
