"""Laws: validation loss as a function of model size, unique tokens and epochs.

- `forms`: what a law form is, the registry in which each is declared once, and those that ship
- `law`: a form with its parameters; averages and draws of laws
"""

from planner.laws.forms import (
    AVERAGE,
    BASE_FORM,
    BASE_PARAMETERS,
    DEFAULT_FORM,
    FORMS,
    STANDARD,
    TIMESCALE,
    WEIGHT_DECAY_FORMS,
    Array,
    At,
    LawForm,
    Parameter,
    Terms,
    Values,
    base_terms,
    check_form,
    every_form,
    form_named,
    parameter_names,
    register,
    repetition_parameters,
    unregister,
)
from planner.laws.law import Averaged, Law, Mixture, Slopes

__all__ = [
    "AVERAGE",
    "BASE_FORM",
    "BASE_PARAMETERS",
    "DEFAULT_FORM",
    "FORMS",
    "STANDARD",
    "TIMESCALE",
    "WEIGHT_DECAY_FORMS",
    "Array",
    "At",
    "Averaged",
    "Law",
    "LawForm",
    "Mixture",
    "Parameter",
    "Slopes",
    "Terms",
    "Values",
    "base_terms",
    "check_form",
    "every_form",
    "form_named",
    "parameter_names",
    "register",
    "repetition_parameters",
    "unregister",
]
