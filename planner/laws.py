r"""Laws: validation loss as a function of model size, unique tokens and epochs.

With N parameters, U unique tokens, e epochs, D = U e tokens and R = max(e - 1, 0) repeats, every form is

    L = E  +  A / N'^alpha  +  B / D'^beta  +  penalty
   irreducible parameter        data           overfitting

and a form is ONE function `terms(p, at)` of its parameters and a configuration, together with the declaration
of the parameters that it adds to the base law. Values, slopes by size, data and epochs, derivatives by the
parameters, fits, designs, pictures, reports, help texts and documentation all come from these two; to add a
form, or a new kind of term, is to `register` one `LawForm`.

Derivatives are taken along the imaginary axis (the complex step: Squire and Trapp 1998), which is exact to
the last digit. So `terms` must be written in functions that numpy knows for complex numbers: no `abs`, and
comparisons only of real parts. `np.maximum` and `np.minimum` order complex numbers by their real part and may
be used. `register` refuses a form that breaks this.

Up to one epoch no token is seen twice, and no form may differ from the base law there: the search for the
best plan relies on it.

A **weight-decay law** is a form for every weight decay at once: its terms see AdamW's timescale too,
`at.timescale_tokens` = batch tokens / (learning rate x weight decay); with that given it is a law over (N, U,
e) like any other. It may differ from the base law at one epoch, too. They are in a dictionary of their own,
`WEIGHT_DECAY_FORMS`, as they are fitted to tables with several weight decays and known recipe only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from planner.inputs import InvalidInput

Array = Any  # a float or a numpy array of floats; all arguments broadcast against each other
Values = Mapping[str, Array]  # parameters by name
Starts = tuple[float, ...]  # of a fit

STEP = 1e-30  # of complex differentiation: no difference is taken, so it can be as small as one likes


def softplus(x: Array) -> Array:
    """ln(1 + e^x)."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(np.minimum(x, -x)))


# -- what a form is


class Style(NamedTuple):
    """How a form is drawn: a colour on light paper, the same on dark, and a dash as plotly names it."""

    light: str
    dark: str
    dash: str = "solid"

    def colour(self, dark: bool = False) -> str:
        return self.dark if dark else self.light


class At:
    """A configuration, or arrays of them, possibly complex, with its logarithms. AdamW's timescale is for
    weight-decay laws only.
    """

    def __init__(
        self, params: Array, unique_tokens: Array, epochs: Array, timescale_tokens: Array = 1.0
    ) -> None:
        self.params, self.unique_tokens, self.epochs = params, unique_tokens, epochs
        self.ln_params, self.ln_unique, self.ln_epochs = np.log(params), np.log(unique_tokens), np.log(epochs)
        self.ln_timescale = np.log(timescale_tokens)
        # of the unique tokens that are ever seen: U e below one epoch
        self.ln_used = self.ln_unique + np.minimum(self.ln_epochs, 0.0)
        self.repeated = np.real(epochs) > 1  # whether anything is seen twice
        self.repeats = np.maximum(epochs - 1, 0.0)
        # zero where there are none: what repetition costs is then multiplied with `repeated`
        self.ln_repeats = np.log(np.where(self.repeated, epochs - 1, 1.0))


class Terms(NamedTuple):
    """The loss broken into what causes it, in nats per token."""

    irreducible: Array
    parameter: Array
    data: Array
    overfitting: Array

    @property
    def loss(self) -> Array:
        return self.irreducible + self.parameter + self.data + self.overfitting


def base_terms(
    p: Values, at: At, *, ln_size: Array = None, ln_data: Array = None, overfitting: Array = 0.0
) -> Terms:
    """Chinchilla, E + A / N^alpha + B / (U e)^beta, with what a form puts in the place of N and of U e, and
    what it adds.
    """
    ln_size = at.ln_params if ln_size is None else ln_size
    ln_data = at.ln_unique + at.ln_epochs if ln_data is None else ln_data
    parameter, data = p["A"] * np.exp(-p["alpha"] * ln_size), p["B"] * np.exp(-p["beta"] * ln_data)
    return Terms(p["E"], parameter, data, overfitting)


@dataclass(frozen=True)
class Parameter:
    """A free parameter: how it is written, where a fit looks for it, and how far corpora and recipes differ
    in it.

    `kind` says on which scale it is fitted: "exponent" as it is; "logarithm" by its logarithm; "amplitude" by
    the logarithm of its term at the middle of the runs, with range and starts in units of the lowest loss;
    "linear" likewise without the logarithm, so that a term of zero is a point of the fit.

    `unit` is what the parameter is measured in by a fit, a function of the other parameters and of the middle
    of the runs (of those that repeat; for the base law, of those that do not). For an amplitude it is one
    over the term there with an amplitude of one. It may use parameters without a unit, and those declared
    after this one.
    """

    name: str
    symbol: str
    kind: str
    bounds: tuple[float, float]
    starts: Starts
    prior_sd: float  # of its logarithm
    unit: Callable[[Values, At], Array] | None = None
    acts_on: str = ""  # what must differ between repeated runs to show it, by its name in a run table

    @property
    def ordinary(self) -> float:
        """A value as good as any, in its unit."""
        return self.starts[len(self.starts) // 2]


KINDS = ("exponent", "logarithm", "amplitude", "linear")
_EXPONENT = (0.02, 5.0)  # a power law below the first is a constant, above the second a step
_TERM = (1e-6, 10.0), (0.05, 0.2, 0.6)  # bounds and starts

BASE = (
    Parameter("E", "E", "linear", (0.0, 2.0), (0.2, 0.5, 0.7, 0.9), 0.2),
    Parameter("A", "A", "amplitude", *_TERM, 0.6, lambda p, at: np.exp(p["alpha"] * at.ln_params)),
    Parameter("alpha", "α", "exponent", _EXPONENT, (0.15, 0.35, 0.7), 0.27),
    Parameter("B", "B", "amplitude", *_TERM, 0.8, lambda p, at: np.exp(p["beta"] * at.ln_unique)),
    Parameter("beta", "β", "exponent", _EXPONENT, (0.15, 0.35, 0.7), 0.25),
)
BASE_PARAMETERS = tuple(parameter.name for parameter in BASE)
TIMESCALE = "timescale_tokens"  # of AdamW: batch tokens / (learning rate x weight decay)
BASE_FORM = "chinchilla"  # the law without any effect of repetition
DEFAULT_FORM = "additive_4p"
AVERAGE = "average"  # of several forms, by how much each counts


def natural(parameters: Collection[Parameter], in_units: Values, at: At) -> dict[str, Array]:
    """Parameters as laws know them, from those in their units at a point."""
    found = dict(in_units)
    for parameter in reversed(tuple(parameters)):
        if parameter.unit is not None:
            found[parameter.name] = found[parameter.name] * parameter.unit(found, at)
    return found


@dataclass(frozen=True)
class LawForm:
    """One law form, declared whole."""

    name: str
    label: str
    style: Style
    summary: str  # one line for lists and documentation
    formula: str = ""
    repetition: tuple[Parameter, ...] = ()  # what the form adds to the base law
    terms: Callable[[Values, At], Terms] = base_terms
    standard: bool = True  # whether it is fitted where nobody names the forms
    every_weight_decay: bool = False  # whether a law must be told AdamW's timescale next to its parameters

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All free parameters, base law first."""
        return BASE + self.repetition

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def overfits(self) -> bool:
        """Whether repetition can cost more than it brings, so that there may be too many epochs."""
        return self.name == AVERAGE or bool(self.terms(*self.somewhere()).overfitting > 0)

    def somewhere(self) -> tuple[dict[str, float], At]:
        """Ordinary parameters and an ordinary configuration."""
        at = At(2e8, 4e8, 6.0, 1e9)
        return natural(self.parameters, {p.name: p.ordinary for p in self.parameters}, at), at

    def __reduce__(self) -> tuple[Callable[[str], LawForm], tuple[str]]:
        """Formulas are no data: a copy or a pickle is the registered form."""
        return form_named, (self.name,)


# -- the forms that are known, in the order in which they were registered; those that ship are at the end

FORMS: dict[str, LawForm] = {}
WEIGHT_DECAY_FORMS: dict[str, LawForm] = {}  # forms for every weight decay at once
STANDARD: list[str] = []  # of FORMS, those that are fitted where nobody names any
_AVERAGED = LawForm(
    AVERAGE,
    "average of forms",
    Style("#111111", "#f2f2f2", "solid"),
    "every form counts by how well it predicted what it had not seen",
    "sum of weight x law",
)


def register(form: LawForm) -> LawForm:
    """Add a form; from here on everything that lists, fits, draws or explains forms knows it."""
    if form.name in every_form():
        raise InvalidInput(f"law {form.name} is registered already; another name would do.")
    if len(set(form.names)) < len(form.names):
        raise InvalidInput(f"law {form.name} has two parameters of one name: {', '.join(form.names)}.")
    if kinds := {parameter.kind for parameter in form.repetition} - set(KINDS):
        raise InvalidInput(f"law {form.name} has a parameter of the kind {min(kinds)}, not of {KINDS}.")
    p, at = form.somewhere()
    for name, value in p.items():  # a formula that is none of complex numbers, say with abs, is refused
        stepped = form.terms({**p, name: value * (1 + 1j * STEP)}, at).loss
        ahead, behind = (form.terms({**p, name: value * factor}, at).loss for factor in (1 + 1e-6, 1 - 1e-6))
        if not np.isclose(np.imag(stepped) / STEP, (ahead - behind) / 2e-6, rtol=1e-3, atol=1e-6):
            raise InvalidInput(
                f"the terms of law {form.name} cannot be differentiated by {name} along "
                f"the imaginary axis: they must be functions of complex numbers."
            )
    if form.every_weight_decay:
        WEIGHT_DECAY_FORMS[form.name] = form
    else:
        FORMS[form.name] = form
        STANDARD.extend([form.name] if form.standard else [])
    return form


def unregister(name: str) -> None:
    """Forget a form that was registered."""
    (WEIGHT_DECAY_FORMS if name in WEIGHT_DECAY_FORMS else FORMS).pop(check_form(name))
    if name in STANDARD:
        STANDARD.remove(name)


# As earlier versions called them: files and commands that say so still work.
RENAMED_FORMS = {f"dial_{kind}": f"weight_decay_{kind}" for kind in ("simple", "steep", "hinge")}


def check_form(form: object) -> str:
    """The form's name if it is known, otherwise an error that lists those that are."""
    form = RENAMED_FORMS.get(form, form) if isinstance(form, str) else form
    if not isinstance(form, str) or form not in every_form():
        raise InvalidInput(f"must be one of {', '.join(FORMS)}; got {form!r}.", field="law")
    return form


def every_form() -> tuple[str, ...]:
    """The names of all forms, weight-decay laws last."""
    return (*FORMS, *WEIGHT_DECAY_FORMS)


def form_named(name: str) -> LawForm:
    """A form by its name, a weight-decay law or not, or the average of several."""
    if name == AVERAGE:
        return _AVERAGED
    name = check_form(name)
    return WEIGHT_DECAY_FORMS[name] if name in WEIGHT_DECAY_FORMS else FORMS[name]


def repetition_parameters(form: str) -> tuple[str, ...]:
    """The names of the free parameters that a form adds to the base law."""
    return tuple(parameter.name for parameter in form_named(form).repetition)


def parameter_names(form: str) -> tuple[str, ...]:
    """The names of all free parameters of a form, base law first."""
    return form_named(form).names


# -- a law: one form with its parameters

_ENDLESS = 1e30  # epochs


class Slopes(NamedTuple):
    """Partial derivatives of the loss by the logarithm of each input, the other two held."""

    params: Array
    unique_tokens: Array
    epochs: Array


class Law:
    """One law form with its parameters: numbers, or arrays for draws of a law.

    Everything broadcasts over numpy arrays, the law's own parameters included, so that many draws of a law
    are simply a law whose parameters are arrays. Values that are known to be good need no `check`.
    """

    def __init__(self, form: str, parameters: Values, *, check: bool = True) -> None:
        self.form = form
        self.declared = form_named(form)
        self.overfits = self.declared.overfits  # whether repetition can cost more than it brings
        self.parameters = _checked(self.declared, parameters) if check else parameters
        self.has_draws = any(isinstance(value, np.ndarray) for value in self.parameters.values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(form={self.form!r}, parameters={self.parameters!r})"

    def loss(self, params: Array, unique_tokens: Array, epochs: Array) -> Array:
        """Predicted validation loss in nats per token."""
        return self._terms(params, unique_tokens, epochs).loss

    def terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        """Predicted loss, broken into what causes it; each term has the full broadcast shape."""
        return Terms(*np.broadcast_arrays(*self._terms(params, unique_tokens, epochs)))

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        timescale = self.parameters.get(TIMESCALE, 1.0)
        return self.declared.terms(self.parameters, At(params, unique_tokens, np.asarray(epochs), timescale))

    def slopes(self, params: Array, unique_tokens: Array, epochs: Array) -> Slopes:
        """dL/dln(params), dL/dln(unique_tokens), dL/dln(epochs), exact: by the complex step."""
        at = [np.asarray(values, dtype=float) for values in (params, unique_tokens, epochs)]
        stepped = [[v * (1 + 1j * STEP) if i == j else v for j, v in enumerate(at)] for i in range(3)]
        return Slopes(*(np.imag(self._terms(*there).loss) / STEP for there in stepped))

    def optimal_params(self, tokens: Array) -> Array:
        """N_opt: the model size for which this many fresh tokens are compute-optimal under the base law."""
        p = self.parameters
        return np.exp((_ln_balance(p) + p["beta"] * np.log(tokens)) / p["alpha"])

    def fresh_epochs(self, product: Array, unique_tokens: Array) -> Array:
        """Epochs that would be optimal on the iso-FLOP curve params * epochs = product if repeats were as
        good as new.
        """
        p = self.parameters
        ln_ratio = p["alpha"] * np.log(product) - p["beta"] * np.log(unique_tokens) - _ln_balance(p)
        return np.exp(ln_ratio / (p["alpha"] + p["beta"]))

    def epochs_bound(self, product: Array, unique_tokens: Array, loss: Array) -> Array:
        """Epochs beyond which the parameter term and the least that repeats leave of the data term exceed
        `loss`: no form can be better there.
        """
        p = self.parameters
        with np.errstate(over="ignore"):  # of what repetition costs there
            data = self._terms(product / _ENDLESS, unique_tokens, _ENDLESS).data
        ln_bound = np.log(np.maximum(loss - p["E"] - data, 1e-300) / p["A"]) / p["alpha"]
        return product * np.exp(np.minimum(ln_bound, 50.0))  # 1e-22 of a parameter is little enough

    def base(self) -> Law:
        """The Chinchilla law underneath: the same law without repetition effects."""
        return Law(BASE_FORM, {name: self.parameters[name] for name in BASE_PARAMETERS})

    @property
    def draws(self) -> int:
        """How many draws there are, along their only axis."""
        return max((len(value) for value in self.parameters.values() if np.ndim(value)), default=1)

    def draw(self, index: Any) -> Law:
        """Some of the draws; parameters that are numbers stay as they are."""
        return self._with_arrays(lambda values: values[index]) if self.has_draws else self

    def spread(self, shape: tuple[int, ...]) -> Law:
        """One law for each place of an array of this shape, all in a row."""
        return self._with_arrays(lambda values: np.full(shape, values).ravel())

    def _with_arrays(self, of: Callable[[np.ndarray], Array]) -> Law:
        changed = {k: of(v) if isinstance(v, np.ndarray) else v for k, v in self.parameters.items()}
        return Law(self.form, changed, check=False)


def _ln_balance(p: Values) -> Array:
    """ln(alpha A / (beta B)): alpha A N^-alpha = beta B D^-beta where the base law is lowest along N D."""
    return np.log(p["alpha"] * p["A"]) - np.log(p["beta"] * p["B"])


def _checked(declared: LawForm, parameters: Values) -> dict[str, Array]:
    """The parameters as numbers or arrays, all of them there, finite and above zero (or zero where their term
    may vanish).
    """
    needed = (*declared.names, TIMESCALE) if declared.every_weight_decay else declared.names
    try:
        given = {name: np.asarray(value, dtype=float) for name, value in parameters.items()}
    except (TypeError, ValueError):
        raise InvalidInput(
            f"the parameters of law {declared.name} must be numbers: {', '.join(needed)}."
        ) from None
    if set(given) != set(needed):
        got = ", ".join(given) or "none"
        raise InvalidInput(f"law {declared.name} needs the parameters {', '.join(needed)}; got {got}.")
    vanish = {p.name for p in declared.parameters if p.kind in ("linear", "amplitude")} - {"A", "B"}
    for name, value in given.items():
        if not np.all(np.isfinite(value) & ((value > 0) | ((name in vanish) & (value == 0)))):
            least = "not negative" if name in vanish else "above zero"
            raise InvalidInput(f"parameter {name} of law {declared.name} must be finite and {least}.")
    return {name: given[name] if given[name].ndim else float(given[name]) for name in needed}


def between(form: str, one: Values, other: Values, share: float, reference: At) -> dict[str, Any]:
    """The parameters at `share` of the way from one law to another, each term at the reference point a
    straight line: numbers, or lists for draws, of which there are as many as both have.
    """
    declared, few = form_named(form).parameters, min(np.size(law["E"]) for law in (one, other))

    def in_units(law: Values) -> dict[str, Array]:
        p = {name: np.asarray(value[:few]) if np.ndim(value) else value for name, value in law.items()}
        units = {each.name: each.unit(p, reference) for each in declared if each.unit is not None}
        return {name: p[name] / units.get(name, 1.0) for name in p}

    def line(low: Array, high: Array) -> Array:
        return (1 - share) * low + share * high

    p, q, found = in_units(one), in_units(other), {}
    for each in declared:
        low, high, by_logarithm = p[each.name], q[each.name], each.kind == "logarithm"
        found[each.name] = np.exp(line(np.log(low), np.log(high))) if by_logarithm else line(low, high)
    if {"kappa", "gamma"} <= found.keys():  # their product is the power of the unique tokens
        found["gamma"] = line(p["kappa"] * p["gamma"], q["kappa"] * q["gamma"]) / found["kappa"]
    return {name: np.asarray(value).tolist() for name, value in natural(declared, found, reference).items()}


# -- several forms at once


class Averaged(Law):
    """The weighted average of laws of different forms: a plan minimises the averaged loss."""

    def __init__(self, parts: Sequence[Law], weights: Sequence[float]) -> None:
        every = {f"{part.form} {name}": v for part in parts for name, v in part.parameters.items()}
        super().__init__(AVERAGE, every, check=False)
        self.parts = tuple(parts)
        self.weights = tuple(float(weight) / float(sum(weights)) for weight in weights)

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        parts = [part._terms(params, unique_tokens, epochs) for part in self.parts]
        return Terms(*(self._mean(values) for values in zip(*parts, strict=True)))

    def _mean(self, values: Sequence[Array]) -> Array:
        return sum(weight * value for weight, value in zip(self.weights, values, strict=True))

    def optimal_params(self, tokens: Array) -> Array:
        """The geometric mean of those of the parts."""
        return np.exp(self._mean([np.log(part.optimal_params(tokens)) for part in self.parts]))

    def fresh_epochs(self, product: Array, unique_tokens: Array) -> Array:
        """The fewest of those of the parts."""
        return np.min([part.fresh_epochs(product, unique_tokens) for part in self.parts], axis=0)

    def epochs_bound(self, product: Array, unique_tokens: Array, loss: Array) -> Array:
        """Where the parameter term of every part exceeds what it may, so does their average."""
        return np.max([part.epochs_bound(product, unique_tokens, loss) for part in self.parts], axis=0)

    def base(self) -> Law:
        return Averaged([part.base() for part in self.parts], self.weights)


class Mixture(Law):
    """Draws of laws, each of one of several forms; draws of all forms alternate, so that where two mixtures
    are made alike, draw i of one belongs to draw i of the other.
    """

    def __init__(self, parts: Sequence[Law]) -> None:
        super().__init__(AVERAGE, {}, check=False)
        self.has_draws = True
        self.parts = tuple(parts)
        evenly = np.concatenate([(np.arange(part.draws) + 0.5) / part.draws for part in parts])
        # place of draw i among the draws of all parts, one part after the other; and where those of each are
        self.order = np.argsort(evenly, kind="stable")
        ends = np.cumsum([part.draws for part in parts])
        self.numbers = np.split(np.argsort(self.order), ends[:-1])

    @property
    def draws(self) -> int:
        return len(self.order)

    def each_of(self, of: Callable[..., Sequence[Array]], *values: Array) -> list[Array]:
        """Figures of each part at the values that belong to its draws; each as one array of all draws."""
        found: list[np.ndarray] = []
        for part, mine in zip(self.parts, self.numbers, strict=True):
            figures = of(part, *(value[..., mine] if np.ndim(value) else value for value in values))
            found = found or [np.empty(self.draws) for _ in figures]
            for every, figure in zip(found, figures, strict=True):
                every[mine] = figure
        return list(found)

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        return Terms(*self.each_of(lambda some, *at: some._terms(*at), params, unique_tokens, epochs))

    def draw(self, index: int) -> Law:
        """One draw, by its number."""
        mine = next(i for i, numbers in enumerate(self.numbers) if index in numbers)
        return self.parts[mine].draw(self.numbers[mine].tolist().index(index))


# -- what the shipped forms are made of
#
#     faded        D' = U (1 + R_D* (1 - exp(-R / R_D*)))         repeats fade (Muennighoff et al. 2023)
#     saturated    N' = U_N (1 + R_N* (1 - exp(-R_N / R_N*)))     size beyond what the data wants fades,
#                  U_N = min(N_opt(U), N),  R_N = N / U_N - 1
#     power_cost   P R^delta (N / U^gamma)^kappa                  overfitting grows with repeats and size
#     hill_cost    P R^delta z / (1 + z),  z = (N / (c U^gamma))^kappa        it levels off in size
#
# N_opt(U) is the model size for which U tokens are compute-optimal under the same base law. Below one epoch
# only U e tokens are ever seen, none of them twice: the unique tokens are then U e.

HILL_KAPPA = 2.0  # where it is not free
_FURTHEST = 300.0  # ln of a ratio beyond which exponentials are no numbers


def faded(p: Values, at: At) -> Array:
    """ln D' of repeats that fade exponentially over R_D* of them."""
    return at.ln_used + np.log1p(-p["R_D_star"] * np.expm1(-at.repeats / p["R_D_star"]))


def saturated(p: Values, at: At) -> Array:
    """ln N' of a size that fades exponentially beyond what is optimal for the unique tokens in use."""
    ln_optimal = (_ln_balance(p) + p["beta"] * at.ln_used) / p["alpha"]
    ln_fresh = np.minimum(ln_optimal, at.ln_params)
    excess = np.expm1(np.minimum(at.ln_params - ln_fresh, _FURTHEST))
    return ln_fresh + np.log1p(-p["R_N_star"] * np.expm1(-excess / p["R_N_star"]))


def power_cost(p: Values, at: At) -> Array:
    """The additive penalty of the paper; exponents that are not parameters are one."""
    size = at.ln_params - p.get("gamma", 1.0) * at.ln_unique
    return p["P"] * at.repeated * np.exp(p.get("delta", 1.0) * at.ln_repeats + p.get("kappa", 1.0) * size)


def hill_cost(p: Values, at: At) -> Array:
    """The same up to a level: for c -> infinity it is the additive penalty."""
    ln_z = p.get("kappa", HILL_KAPPA) * (at.ln_params - p["gamma"] * at.ln_unique - np.log(p["c"]))
    return p["P"] * at.repeated * np.exp(p["delta"] * at.ln_repeats - softplus(-ln_z))


# The parameters of these effects; each is called with the starts of a form.


def amplitude(cost: Callable[[Values, At], Array], starts: Starts, *, linear: bool = False) -> Parameter:
    """P, the size of a cost; `linear` lets a fit find none at all."""
    kind, bounds = ("linear", (0.0, 100.0)) if linear else ("amplitude", (1e-7, 100.0))
    return Parameter("P", "P", kind, bounds, starts, 2.0, lambda p, at: 1 / cost({**p, "P": 1.0}, at))


def _size_over_data(p: Values, at: At) -> Array:
    return np.exp(at.ln_params - p["gamma"] * at.ln_unique)


def exponent(name: str, symbol: str, starts: Starts, prior_sd: float, acts_on: str = "") -> Parameter:
    return Parameter(name, symbol, "exponent", _EXPONENT, starts, prior_sd, acts_on=acts_on)


delta = partial(exponent, "delta", "δ", prior_sd=0.3, acts_on="repeats")
kappa = partial(exponent, "kappa", "κ", prior_sd=0.3, acts_on="params")
kappa_of_ratio = partial(kappa, acts_on="params / unique_tokens")
gamma = partial(exponent, "gamma", "γ", prior_sd=0.4, acts_on="unique_tokens")
_STAR = (1e-2, 1e6)  # beyond a million repeats nothing saturates
half_life = partial(Parameter, "R_D_star", "R*_D", "logarithm", _STAR, prior_sd=1.0)
oversize = partial(Parameter, "R_N_star", "R*_N", "logarithm", _STAR, prior_sd=2.0)
level = partial(  # c U^gamma is the size at which half of something is reached
    Parameter, "c", "c", "logarithm", (1e-4, 1e4), prior_sd=1.0, unit=_size_over_data, acts_on="params"
)

# -- the forms that ship: of the paper and of the work it builds on
#
# The additive law's penalty grows with the model without end, where runs beyond its grid show that it levels
# off, and it takes repeated tokens for as good as new: hence the forms with Hill's curve and with fading
# repeats, those around the paper's that did best beyond the runs that they were fitted on.
# `studies/tournament` compares them with others where it matters.

DECAY_STARTS = (1.5, 5.0, 10.0, 20.0, 50.0, 200.0, 1000.0)
AMOUNTS = (0.001, 0.01, 0.03, 0.1, 0.5)
FEW_AMOUNTS = (0.003, 0.03, 0.3)
FADING = half_life((3.0, 15.0, 100.0))
POWER = (amplitude(power_cost, FEW_AMOUNTS), delta((0.7, 1.5)), kappa((0.4, 1.2)), gamma((0.3, 0.9)))
HILL = (amplitude(hill_cost, FEW_AMOUNTS), delta((0.7, 1.5)), level((0.3, 3.0)), gamma((0.3, 0.9)))

_SHIPPED = (
    LawForm(
        BASE_FORM,
        "Chinchilla",
        Style("#666666", "#b3b3b3", "dot"),
        "every token is as good as new (Hoffmann et al. 2022)",
        "E + A/N^α + B/D^β",
    ),
    LawForm(
        "exponential_decay",
        "exponential decay",
        Style("#b87400", "#f0b140", "dash"),
        "repeated tokens fade (Muennighoff et al. 2023)",
        "D' = U (1 + R*_D (1 - exp(-R/R*_D)))",
        (half_life(DECAY_STARTS),),
        lambda p, at: base_terms(p, at, ln_data=faded(p, at)),
    ),
    LawForm(
        "effective_parameters",
        "effective parameters",
        Style("#b8578e", "#e29bc2", "longdash"),
        "repeated tokens and size beyond what the data wants both fade (Muennighoff et al. 2023)",
        "D' as above; N' = U_N (1 + R*_N (1 - exp(-R_N/R*_N)))",
        (half_life(DECAY_STARTS), oversize((0.3, 1.0, 2.0, 5.0, 15.0, 50.0, 200.0, 1e3, 1e4))),
        lambda p, at: base_terms(p, at, ln_size=saturated(p, at), ln_data=faded(p, at)),
    ),
    LawForm(
        "additive_1p",
        "additive 1p",
        Style("#2e9bd6", "#8ccdf2", "dashdot"),
        "repetition costs in proportion to repeats and to size over data",
        "+ P R (N/U)",
        (amplitude(power_cost, (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0), linear=True),),
        lambda p, at: base_terms(p, at, overfitting=power_cost(p, at)),
    ),
    LawForm(
        "additive_2p",
        "additive 2p",
        Style("#008f68", "#3fc99f", "longdashdot"),
        "the same with a power of size over data",
        "+ P R (N/U)^κ",
        (amplitude(power_cost, AMOUNTS), kappa_of_ratio((0.2, 0.4, 0.6, 0.9, 1.2, 1.6, 2.2))),
        lambda p, at: base_terms(p, at, overfitting=power_cost(p, at)),
    ),
    LawForm(
        DEFAULT_FORM,
        "additive 4p",
        Style("#0063a3", "#5db1f0", "solid"),
        "the paper's law: repeats, size and data each with a power of its own",
        "+ P R^δ (N/U^γ)^κ",
        (
            amplitude(power_cost, AMOUNTS),
            delta((0.5, 0.9, 1.3, 2.0)),
            kappa((0.3, 0.7, 1.1, 1.6)),
            gamma((0.3, 0.9)),
        ),
        lambda p, at: base_terms(p, at, overfitting=power_cost(p, at)),
    ),
    LawForm(
        "hill_4p",
        "Hill 4p",
        Style("#fa22eb", "#fa0abb", "3px,3px"),
        "their cost levels off in large models",
        "+ P R^δ z²/(1+z²), z = N/(c U^γ)",
        HILL,
        lambda p, at: base_terms(p, at, overfitting=hill_cost(p, at)),
    ),
    LawForm(
        "decay_4p",
        "decay + 4p",
        Style("#5c1706", "#a85839", "2px,6px"),
        "repeated tokens fade, and cost with powers of repeats, size and data",
        "D' of exponential decay; + P R^δ (N/U^γ)^κ",
        (FADING, *POWER),
        lambda p, at: base_terms(p, at, ln_data=faded(p, at), overfitting=power_cost(p, at)),
    ),
    LawForm(
        "decay_hill_4p",
        "decay + Hill 4p",
        Style("#21082e", "#9d46a2", "10px,6px"),
        "repeated tokens fade, and their cost levels off in large models",
        "D' of exponential decay; + P R^δ z²/(1+z²), z = N/(c U^γ)",
        (FADING, *HILL),
        lambda p, at: base_terms(p, at, ln_data=faded(p, at), overfitting=hill_cost(p, at)),
    ),
)
FORMS |= {form.name: form for form in _SHIPPED}
STANDARD += list(FORMS)

# -- the forms that ship: for every weight decay at once
#
# With M = batch tokens / (learning rate x weight decay) tokens, AdamW's timescale (Wang & Aitchison, arXiv
# 2405.13698), tau = M / U epochs, R repeats and D' of repeats that fade, each is
#
#     L = E + A / N^alpha + B / D''^beta + penalty exp(-mu / tau)
#
# The penalty is what is still remembered when a token comes round again. What is forgotten too soon leaves
# less of the data, as 1 / D'' = 1 / D' + 1 / (k M): between the two lies the best weight decay.
#
# That is what tiny models show. Real ones (27M to 474M parameters, `studies/dolma`) are better described by
#
#     L = [E + ((A / N^alpha)^v + (B / D^beta)^v)^(1/v)] (1 + Q M^-1.4 x / (1 + x)) + penalty (1 + x)^-eps,
#
# x = D / (2 M): half as many timescales as the run lasts. Repeated tokens do not fade, strong decay costs a
# share of the whole loss once it has had time to act, and the penalty falls with a power of the timescale. At
# one batch D counts steps as well as tokens, and steps are what short runs lack.

_DECAY_AMOUNTS = (0.03, 0.2)
_DECAY_FADING = half_life((1.5, 8.0))
FORGETTING = Parameter("mu", "μ", "logarithm", (1e-2, 1e3), (1.5, 4.0), 0.5)
_kept = partial(Parameter, "k", "k", "logarithm", (1e-2, 1e6), prior_sd=0.5)


def remembered(p: Values, at: At) -> Array:
    """exp(-mu / tau): what AdamW still remembers when a token comes round again."""
    return np.exp(-p["mu"] * np.exp(at.ln_used - at.ln_timescale))


def remembered_power_cost(p: Values, at: At) -> Array:
    return power_cost(p, at) * remembered(p, at)


def _steepening_cost(p: Values, at: At) -> Array:
    """P e^(delta h), h = N / (N + c U^gamma): a power of the passes, the higher the larger the model next to
    its data. One pass costs P, whatever the size and the data.
    """
    share = np.exp(-softplus(p["gamma"] * at.ln_used + np.log(p["c"]) - at.ln_params))
    passes = np.maximum(at.ln_epochs, 0.0)
    return p["P"] * np.exp(p["delta"] * passes * share) * remembered(p, at)


def _simple(p: Values, at: At) -> Terms:
    """Data is worth no more than is remembered: 1 / D'' = 1 / D' + 1 / (k M)."""
    ln_data = faded(p, at)
    left = ln_data - softplus(ln_data - at.ln_timescale - np.log(p["k"]))
    return base_terms(p, at, ln_data=left, overfitting=remembered_power_cost(p, at))


def _steep(p: Values, at: At) -> Terms:
    """The same, and a large model on much data wants a longer timescale:
    D'' = D' (1 + N D' / (k M)^2)^(-s / 2).
    """
    ln_data = faded(p, at)
    inside = ln_data + at.ln_params - 2 * (at.ln_timescale + np.log(p["k"]))
    left = ln_data - p["s"] / 2 * softplus(inside)
    return base_terms(p, at, ln_data=left, overfitting=_steepening_cost(p, at))


_PREMIUM = 1.4  # power of the weight decay: left free it is 1.4 (studies/dolma)
_LASTS = np.log(2.0)  # ln of the timescales over which decay comes to act


def _ln_timescales(at: At) -> Array:
    """ln x: of half the timescales that a run lasts."""
    return at.ln_unique + at.ln_epochs - at.ln_timescale - _LASTS


def _forgotten_power_cost(p: Values, at: At) -> Array:
    """The additive penalty, less by a power of the timescales that a run lasts."""
    return power_cost(p, at) * np.exp(-p["epsilon"] * softplus(_ln_timescales(at)))


def _premium(p: Values, at: At) -> Terms:
    """Size and data in a v-norm, so that the scarcer one counts; all of it dearer under strong decay."""
    ln_parameter = np.log(p["A"]) - p["alpha"] * at.ln_params
    ln_ratio = p["v"] * (np.log(p["B"]) - p["beta"] * (at.ln_unique + at.ln_epochs) - ln_parameter)
    ln_both = softplus(ln_ratio)
    both = np.exp(ln_parameter + ln_both / p["v"])
    of_data = both * np.exp(ln_ratio - ln_both)
    ln_lasted = softplus(ln_timescales := _ln_timescales(at))
    extra = p["Q"] * np.exp(ln_timescales - ln_lasted - _PREMIUM * at.ln_timescale)
    dearer = (both - of_data) * (1 + extra), of_data * (1 + extra) + p["E"] * extra
    return Terms(p["E"], *dearer, power_cost(p, at) * np.exp(-p["epsilon"] * ln_lasted))


WEIGHT_DECAY_FORMS["weight_decay_simple"] = LawForm(
    "weight_decay_simple",
    "weight decay, simple",
    Style("#9f1853", "#ff7eb6", "dot"),
    "any weight decay: data is worth no more than is remembered; eleven parameters in all",
    "B/D''^β, 1/D'' = 1/D' + 1/(k M), + P R^δ (N/U)^κ exp(-μ/τ)",
    (
        _DECAY_FADING,
        amplitude(remembered_power_cost, _DECAY_AMOUNTS),
        delta((1.7,)),
        kappa_of_ratio((0.9,)),
        FORGETTING,
        _kept((10.0, 40.0)),
    ),
    _simple,
    every_weight_decay=True,
)
WEIGHT_DECAY_FORMS["weight_decay_steep"] = LawForm(
    "weight_decay_steep",
    "weight decay, steeper in large models",
    Style("#b28600", "#f1c21b", "dashdot"),
    "any weight decay: large models overfit with a higher power of the passes and want a long timescale",
    "B/D''^β, D'' = D' (1 + N D'/(k M)²)^(-s/2), + P e^(δ h) exp(-μ/τ), h = N/(N + c U^γ)",
    (
        _DECAY_FADING,
        amplitude(_steepening_cost, _DECAY_AMOUNTS),
        delta((1.7,)),
        level((0.5, 1.5)),
        gamma((0.7,)),
        FORGETTING,
        _kept((3.0, 10.0)),
        Parameter("s", "s", "exponent", (0.05, 20.0), (0.6,), 0.5),
    ),
    _steep,
    every_weight_decay=True,
)
WEIGHT_DECAY_FORMS["weight_decay_premium"] = LawForm(
    "weight_decay_premium",
    "weight decay, with a premium",
    Style("#198038", "#42be65", "longdash"),
    "any weight decay: strong decay costs a share of the loss, overfitting falls by a power of the timescale",
    "[E + ((A/N^α)^v + (B/D^β)^v)^(1/v)] (1 + Q M^-1.4 x/(1+x)) + P R^δ (N/U^γ)^κ (1 + x)^-ε, x = D/(2 M)",
    (
        Parameter("v", "v", "exponent", (1.0, 10.0), (1.6,), 0.4),
        Parameter(
            "Q",
            "Q",
            "logarithm",
            (1e-6, 10.0),
            (0.03,),
            1.0,
            lambda p, at: np.exp(_PREMIUM * at.ln_timescale),
        ),
        amplitude(_forgotten_power_cost, _DECAY_AMOUNTS),
        delta((1.2,)),
        kappa((1.1,)),
        gamma((0.3,)),
        exponent("epsilon", "ε", (0.8,), 0.4),
    ),
    _premium,
    every_weight_decay=True,
)
