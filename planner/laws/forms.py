r"""What a law form is, and the registry in which each is declared once.

With N parameters, U unique tokens, e epochs, D = U e tokens and R = max(e - 1, 0) repeats, every form is

    L = E  +  A / N'^alpha  +  B / D'^beta  +  penalty
       floor   capacity         data           overfitting

and differs in three pieces only: what repeated tokens are worth (`repeats`: D'), what a model too large for
its data is worth (`size`: N'), and what repetition costs (`penalty`). A `LawForm` names its pieces and how it
is shown; the pieces bring their parameters (symbol, range, starts, prior) and their mathematics. Planner,
fits, designs, pictures, reports, help texts and documentation read all of it from `FORMS`; to add a form is
to `register` one.

These three change nothing up to one epoch, where no token is seen twice: the search for the best plan relies
on it.

A **dial** is a form for every weight decay at once. Its pieces see AdamW's memory too, τ = M / U epochs,
where M = batch tokens / (learning rate x weight decay) is the memory in tokens; with M given it is a law
over (N, U, e) like any other. It adds a fourth piece, the premium of what is forgotten too soon, which is
there at one epoch as well. Below one epoch the unique tokens in use are U e, so that the memory of a given
weight decay covers more of them: such a form has its own search there. Dials have a registry of their own,
`DIALS`, as they are fitted to tables with several weight decays and known recipe only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from planner.errors import InvalidInput
from planner.look import Look

Array = Any  # a float or a numpy array of floats; all arguments broadcast against each other
Values = Mapping[str, Array]  # parameters by name, those held fixed included

_IMAGINARY = (
    1e-30  # the step of complex differentiation: no difference is taken, so it can be as small as one likes
)


class At(NamedTuple):
    """Where an effect is evaluated: logarithms of model size, unique tokens, repeats (above zero) and memory
    in epochs, which only dials look at.
    """

    ln_params: Array
    ln_unique: Array
    ln_repeats: Array
    ln_memory: Array = 0.0


@dataclass(frozen=True)
class Parameter:
    """A free parameter: how it is written, where a fit looks for it, and how far corpora and recipes differ
    in it.

    `kind` says on which scale it is fitted: "exponent" as it is; "logarithm" by its logarithm; "amplitude" by
    the logarithm of its term at the middle of the runs, with range and starts in units of the lowest loss;
    "linear" likewise without the logarithm, so that a term of zero is a point of the fit.
    """

    name: str
    symbol: str
    kind: str
    bounds: tuple[float, float]
    starts: tuple[float, ...]
    prior_sd: float  # of its logarithm


class Varied(NamedTuple):
    """A quantity that must differ between repeated runs, or the form's parameters cannot be told apart."""

    label: str
    ln: Callable[[At], Array]  # its logarithm


class Jet(NamedTuple):
    """A function of some parameters with its exact first and its second derivatives by them."""

    value: Array
    first: tuple[Array, ...]
    second: tuple[tuple[Array, ...], ...]


def jet(formula: Callable[[Values], Array], p: Values, names: tuple[str, ...]) -> Jet:
    """The jet of any formula that numpy can evaluate at complex numbers.

    First derivatives are taken along the imaginary axis, which is exact; second ones are central differences
    of those.
    """

    def first(q: Values) -> tuple[Array, ...]:
        return tuple(np.imag(formula({**q, name: q[name] + 1j * _IMAGINARY})) / _IMAGINARY for name in names)

    second = []
    for name in names:
        step = 1e-5 * np.maximum(np.abs(p[name]), 1e-3)
        ahead, behind = (first({**p, name: p[name] + sign * step}) for sign in (1, -1))
        second.append(tuple((a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)))
    return Jet(formula(p), first(p), tuple(second))


class Piece:
    """A repetition effect with its parameters."""

    parameters: tuple[Parameter, ...] = ()
    fixed: Mapping[str, float] = {}
    centred = False  # whether fits measure N and U from the middle of their runs, which `absolute` undoes

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def needs(self) -> tuple[Varied, ...] | None:
        """What must vary between repeated runs; None: judged by the rank of the derivatives by the
        parameters.
        """
        return ()

    def ln_units(self, p: Values, middle: At) -> dict[str, Array]:
        """ln of what a parameter is multiplied with if N and U were measured from this point."""
        return {}

    def absolute(self, p: Values, middle: At) -> dict[str, Array]:
        """The parameters of a fit that measured N and U from the middle of its runs, as laws know them."""
        units = self.ln_units(p, middle)
        return {name: value * np.exp(units[name]) if name in units else value for name, value in p.items()}


class Penalty(Piece):
    """What repetition costs, P exp(ln_shape): subclasses write `ln_shape`, and exact derivatives follow from
    it.

    `ln_shape` must be written in functions that numpy knows for complex numbers (no max, abs or where): its
    derivatives are then taken along the imaginary axis, which is exact to the last digit. P is always the
    first parameter.
    """

    in_logarithms_linear = False  # whether ln(penalty) is linear in what is fitted
    first_pass = False  # of a dial: whether passes are counted and not repeats, so that one epoch costs too

    def ln_shape(self, p: Values, at: At) -> Array:
        """ln(penalty / P)."""
        raise NotImplementedError

    def with_slopes(self, p: Values, at: At) -> tuple[Array, At]:
        """`ln_shape`, and its slopes by ln N, ln U, ln R and ln(memory)."""
        steps = np.eye(len(at)) * 1j * _IMAGINARY
        moved = (At(*(value + step for value, step in zip(at, row, strict=True))) for row in steps)
        slopes = At(*(np.imag(self.ln_shape(p, there)) / _IMAGINARY for there in moved))
        return self.ln_shape(p, at), slopes

    def shape_jet(self, p: Values, at: At) -> Jet:
        """`ln_shape` with its derivatives by all parameters but P."""
        return jet(lambda q: self.ln_shape(q, at), p, self.names[1:])

    def factors(
        self, p: Values, ln_product: Array, ln_unique: Array, epochs: Array
    ) -> tuple[Array, Array] | None:
        """The penalty at params = product / epochs as (a factor of the budget) x (a factor of the epochs), if
        it is one.
        """
        return None

    def on_isoflop(self, p: Values, ln_product: Array, ln_unique: Array, epochs: Array) -> Array:
        """The penalty at params = product / epochs, for every budget and epochs, which broadcast."""
        repeats = epochs - 1
        at = At(ln_product - np.log(epochs), ln_unique, np.log(np.where(repeats > 0, repeats, 1.0)))
        return np.where(repeats > 0, p["P"] * np.exp(self.ln_shape(p, at)), 0.0)

    @property
    def needs(self) -> tuple[Varied, ...] | None:
        return None


class Repeats(Piece):
    """What repeated tokens are worth. This one: as much as new ones, D' = U e."""

    by_size = False  # whether it depends on N / U

    def ln_seen(self, p: Values, epochs: Array, ln_ratio: Array) -> Array:
        """ln(D' / U), where `ln_ratio` is ln(N / U)."""
        return np.log(epochs)

    def with_slopes(self, p: Values, epochs: Array, ln_ratio: Array) -> tuple[Array, Array, Array]:
        """The same, and its slopes by ln(epochs) and by ln(N / U)."""
        return np.log(epochs), 1.0, 0.0

    def ln_most(self, p: Values) -> Array | None:
        """ln(D' / U) of which no number of epochs is worth more, for all sizes; None: there is no end."""
        return None

    def on_isoflop(self, p: Values, ln_ratio: Array, epochs: Array) -> Array:
        """ln(D' / U) at params = product / epochs, where `ln_ratio` is ln(product / U), which broadcast."""
        return self.ln_seen(p, epochs, ln_ratio - np.log(epochs) if self.by_size else 0.0)

    def seen_jet(self, p: Values, epochs: Array, ln_ratio: Array) -> Jet:
        """ln(D' / U) with its derivatives by the parameters."""
        return jet(lambda q: self.ln_seen(q, epochs, ln_ratio), p, self.names)


class Size(Piece):
    """What a model is worth that is too large for its data. This one: all of it, N' = N."""

    def ln_effective(
        self, p: Values, ln_params: Array, ln_optimal: Callable[[], Array]
    ) -> tuple[Array, Array, Array]:
        """ln N', and its slopes by ln N and by ln of the unique tokens in use; `ln_optimal` is ln N_opt of
        those.
        """
        return ln_params, 1.0, 0.0


class Premium(Piece):
    """What forgetting too soon costs: nats, exp(ln_shape) of the memory in epochs; or data, exp(-ln_shape) of
    D' being all that is left of it, where it sees D'^a N^b over the memory in tokens.

    `ln_shape` is written as that of a penalty is, of nothing but the logarithm of what it sees.
    """

    of_data = False
    powers = (1.0, 0.0)  # a and b

    def ln_sees(self, ln_seen: Array, ln_params: Array, ln_memory: Array) -> Array:
        """ln of what a premium that is charged in data sees, from D', N and the memory, all in tokens."""
        of_seen, of_size = self.powers
        return of_seen * ln_seen + of_size * ln_params - ln_memory

    def ln_shape(self, p: Values, ln_sees: Array) -> Array:
        raise NotImplementedError

    def with_slope(self, p: Values, ln_sees: Array) -> tuple[Array, Array]:
        """`ln_shape`, and its slope by ln(what it sees)."""
        moved = self.ln_shape(p, ln_sees + 1j * _IMAGINARY)
        return np.real(moved), np.imag(moved) / _IMAGINARY

    def shape_jet(self, p: Values, ln_sees: Array) -> Jet:
        return jet(lambda q: self.ln_shape(q, ln_sees), p, self.names)


@dataclass(frozen=True)
class LawForm:
    """One law form, declared whole."""

    name: str
    label: str
    look: Look
    summary: str  # one line for lists and documentation
    formula: str = ""
    repeats: Repeats = field(default_factory=Repeats)
    size: Size = field(default_factory=Size)
    penalty: Penalty | None = None
    premium: Premium | None = None  # of a dial
    standard: bool = True  # whether it is fitted where nobody names the forms

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        optional = (self.penalty, self.premium)
        return (self.repeats, self.size, *(piece for piece in optional if piece is not None))

    @cached_property
    def given(self) -> tuple[str, ...]:
        """What a law of this form must be told next to its parameters."""
        return () if self.premium is None else (MEMORY,)

    @cached_property
    def repetition(self) -> tuple[Parameter, ...]:
        """The free parameters that the form adds to the base law."""
        return tuple(parameter for piece in self.pieces for parameter in piece.parameters)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All free parameters, base law first."""
        return BASE + self.repetition

    @cached_property
    def repetition_names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.repetition)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def fixed(self) -> dict[str, float]:
        return {name: value for piece in self.pieces for name, value in piece.fixed.items()}


_EXPONENT = (0.02, 5.0)  # a power law below the first is a constant, above the second a step
_TERM = (1e-6, 10.0)

BASE = (
    Parameter("E", "E", "linear", (0.0, 2.0), (0.2, 0.5, 0.7, 0.9), 0.2),
    Parameter("A", "A", "amplitude", _TERM, (0.05, 0.2, 0.6), 0.6),
    Parameter("alpha", "α", "exponent", _EXPONENT, (0.15, 0.35, 0.7), 0.27),
    Parameter("B", "B", "amplitude", _TERM, (0.05, 0.2, 0.6), 0.8),
    Parameter("beta", "β", "exponent", _EXPONENT, (0.15, 0.35, 0.7), 0.25),
)
BASE_PARAMETERS = tuple(parameter.name for parameter in BASE)
MEMORY = "memory_tokens"  # AdamW's memory in tokens: batch tokens / (learning rate x weight decay)
BASE_FORM = "chinchilla"  # the law without any effect of repetition
DEFAULT_FORM = "additive_4p"
AVERAGE = "average"  # of several forms, by how much each counts


class Registry(Mapping[str, LawForm]):
    """All law forms by name, in the order in which they were registered."""

    def __init__(self) -> None:
        self._forms: dict[str, LawForm] = {}

    def __getitem__(self, name: str) -> LawForm:
        return self._forms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._forms))

    def __len__(self) -> int:
        return len(self._forms)

    def __repr__(self) -> str:
        return f"<law forms {', '.join(self._forms)}>"

    def register(self, form: LawForm) -> LawForm:
        """Add a form; from here on everything that lists, fits, draws or explains forms knows it."""
        if form.name in self._forms:
            raise InvalidInput(f"law {form.name} is registered already; another name would do.")
        if len(set(form.names)) < len(form.names):
            raise InvalidInput(f"law {form.name} has two parameters of one name: {', '.join(form.names)}.")
        if form.penalty is not None and form.penalty.names[:1] != ("P",):
            raise InvalidInput(f"the first parameter of the penalty of law {form.name} must be P, its size.")
        kinds = (
            ("amplitude", "linear")
            if form.penalty is None or form.penalty.in_logarithms_linear
            else ("amplitude",)
        )
        if form.penalty is not None and form.penalty.parameters[0].kind not in kinds:
            raise InvalidInput(f"P of law {form.name} must be of the kind {' or '.join(kinds)}.")
        if form.penalty is not None and form.size.parameters:
            raise InvalidInput(
                f"law {form.name} has both a penalty and a fading size, for which there is no fit."
            )
        self._forms[form.name] = form
        return form

    def unregister(self, name: str) -> None:
        """Forget a form that was registered."""
        self._forms.pop(check_form(name))


class Standard(Collection[str]):
    """The names of the forms that are fitted where nobody names any, as the registry has them."""

    def __init__(self, forms: Registry) -> None:
        self._forms = forms

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)

    def __iter__(self) -> Iterator[str]:
        return (name for name, form in self._forms.items() if form.standard)

    def __len__(self) -> int:
        return sum(form.standard for form in self._forms.values())


FORMS = Registry()
DIALS = Registry()  # forms for every weight decay at once
STANDARD = Standard(FORMS)
register = FORMS.register
unregister = FORMS.unregister


_AVERAGED = LawForm(
    AVERAGE,
    "average of forms",
    Look("#111111", "#f2f2f2", "solid"),
    "every form counts by how well it predicted what it had not seen",
    "sum of weight x law",
    penalty=Penalty(),
)


def check_form(form: object) -> str:
    """The form's name if it is known, otherwise an error that lists those that are."""
    if not isinstance(form, str) or (form not in FORMS and form not in DIALS):
        raise InvalidInput(f"must be one of {', '.join(FORMS)}; got {form!r}.", field="law")
    return form


def every_form() -> tuple[str, ...]:
    """The names of all forms, dials last."""
    return (*FORMS, *DIALS)


def form_named(name: str) -> LawForm:
    """A form by its name, a dial or not, or the average of several."""
    if name == AVERAGE:
        return _AVERAGED
    return DIALS[name] if name in DIALS else FORMS[check_form(name)]


def repetition_parameters(form: str) -> tuple[str, ...]:
    """The names of the free parameters that a form adds to the base law."""
    return form_named(form).repetition_names


def parameter_names(form: str) -> tuple[str, ...]:
    """The names of all free parameters of a form, base law first."""
    return form_named(form).names
