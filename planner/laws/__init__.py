"""Laws: validation loss as a function of model size, unique tokens and epochs.

- `forms`: what a law form is, and the registry in which each is declared once
- `pieces`: the repetition effects that forms are made of
- `published`: the forms of the paper and of the work it builds on
- `family`: those with fading repeats and penalties that level off
- `dials`: forms for every weight decay at once
- `law`: a form with its parameters, evaluated with exact slopes
- `common`: laws of different forms as one, so that all are evaluated at once
- `average`: several forms believed at once
"""

from planner.laws import published as _published  # noqa: F401,I001  (registers the forms)
from planner.laws import family as _family  # noqa: F401  (and those around them)
from planner.laws import dials as _dials  # noqa: F401  (and those for every weight decay)
from planner.laws.forms import (
    AVERAGE,
    BASE_FORM,
    BASE_PARAMETERS,
    DEFAULT_FORM,
    DIALS,
    FORMS,
    MEMORY,
    STANDARD,
    Array,
    LawForm,
    Parameter,
    check_form,
    every_form,
    form_named,
    parameter_names,
    register,
    repetition_parameters,
    unregister,
)
from planner.laws.law import Law, Slopes, Terms
from planner.laws.common import Stack, stacked  # isort: skip
from planner.laws.average import Averaged, Mixture, belonging  # isort: skip

__all__ = [
    "AVERAGE",
    "BASE_FORM",
    "BASE_PARAMETERS",
    "DEFAULT_FORM",
    "DIALS",
    "FORMS",
    "MEMORY",
    "STANDARD",
    "Array",
    "Averaged",
    "Law",
    "LawForm",
    "Mixture",
    "Parameter",
    "Slopes",
    "Stack",
    "Terms",
    "belonging",
    "check_form",
    "every_form",
    "form_named",
    "parameter_names",
    "register",
    "repetition_parameters",
    "stacked",
    "unregister",
]
