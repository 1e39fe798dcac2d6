"""A law: one form with its parameters; an average of laws of several forms; and draws of such an average.

Everything broadcasts over numpy arrays, the law's own parameters included, so that many draws of a law are
simply a law whose parameters are arrays. The form says what the terms of the loss are; slopes are taken of
them along the imaginary axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from planner.inputs import InvalidInput
from planner.laws.forms import (
    AVERAGE,
    BASE_FORM,
    BASE_PARAMETERS,
    TIMESCALE,
    Array,
    At,
    LawForm,
    Terms,
    form_named,
)
from planner.laws.steps import STEP

_TINY = 1e-300
_ENDLESS = 1e30  # epochs


class Slopes(NamedTuple):
    """Partial derivatives of the loss by the logarithm of each input, the other two held."""

    params: Array
    unique_tokens: Array
    epochs: Array


@dataclass(
    frozen=True, eq=False
)  # arrays have no truth value: laws are the same only if they are the same object
class Law:
    """One law form with its parameters: numbers, or arrays for draws of a law."""

    form: str
    parameters: Mapping[str, Array]
    declared: LawForm = field(init=False, repr=False)
    has_draws: bool = field(init=False, repr=False)
    values: dict[str, Array] = field(init=False, repr=False)  # numbers or arrays

    def __post_init__(self) -> None:
        declared = form_named(self.form)
        given = _checked(declared, self.parameters)
        p = {k: float(v) if np.ndim(v) == 0 else v for k, v in given.items()}
        self._set(declared, {name: self.parameters[name] for name in (*declared.names, *declared.given)}, p)

    def _set(self, declared: LawForm, parameters: Mapping[str, Array], p: dict[str, Array]) -> None:
        object.__setattr__(self, "declared", declared)
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "values", p)
        object.__setattr__(self, "has_draws", any(isinstance(value, np.ndarray) for value in p.values()))

    @property
    def overfits(self) -> bool:
        """Whether repetition can cost more than it brings."""
        return self.declared.overfits

    @cached_property
    def _ln_balance(self) -> Array:
        """ln(alpha A / (beta B))."""
        p = self.values
        return np.log(p["alpha"] * p["A"]) - np.log(p["beta"] * p["B"])

    # -- what users call ------------------------------------------------------------------------------------

    def loss(self, params: Array, unique_tokens: Array, epochs: Array) -> Array:
        """Predicted validation loss in nats per token."""
        return self._terms(params, unique_tokens, epochs).loss

    def terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        """Predicted loss as irreducible + parameter + data + overfitting, each of the full broadcast
        shape."""
        return Terms(*np.broadcast_arrays(*self._terms(params, unique_tokens, epochs)))

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        timescale = self.values.get(TIMESCALE, 1.0)
        return self.declared.terms(self.values, At(params, unique_tokens, np.asarray(epochs), timescale))

    def slopes(self, params: Array, unique_tokens: Array, epochs: Array) -> Slopes:
        """dL/dln(params), dL/dln(unique_tokens), dL/dln(epochs), exact: by the complex step."""
        at = [np.asarray(values, dtype=float) for values in (params, unique_tokens, epochs)]
        stepped = [[v * (1 + 1j * STEP) if i == j else v for j, v in enumerate(at)] for i in range(3)]
        return Slopes(*(np.imag(self._terms(*there).loss) / STEP for there in stepped))

    def optimal_params(self, tokens: Array) -> Array:
        """N_opt: the model size for which this many fresh tokens are compute-optimal under the base law."""
        return np.exp(self._ln_optimal_params(np.log(tokens)))

    def fresh_epochs(self, product: Array, unique_tokens: Array) -> Array:
        """Epochs that would be optimal on the iso-FLOP curve params * epochs = product if repeats were as
        good as new.
        """
        p = self.values
        ln_ratio = p["alpha"] * np.log(product) - p["beta"] * np.log(unique_tokens) - self._ln_balance
        return np.exp(ln_ratio / (p["alpha"] + p["beta"]))

    def epochs_bound(self, product: Array, unique_tokens: Array, loss: Array) -> Array:
        """Epochs beyond which the parameter term and the least that repeats leave of the data term exceed
        `loss`: no form can be better there.
        """
        p = self.values
        with np.errstate(over="ignore"):  # of what repetition costs there
            data = self._terms(product / _ENDLESS, unique_tokens, _ENDLESS).data
        ln_bound = np.log(np.maximum(loss - p["E"] - data, _TINY) / p["A"]) / p["alpha"]
        return product * np.exp(np.minimum(ln_bound, 50.0))  # 1e-22 of a parameter is little enough

    @property
    def draws(self) -> int:
        """How many draws there are, along their only axis."""
        sizes = [len(value) for value in self.parameters.values() if np.ndim(value)]
        return max(sizes, default=1)

    def base(self) -> Law:
        """The Chinchilla law underneath: the same law without repetition effects."""
        return Law(BASE_FORM, {name: self.parameters[name] for name in BASE_PARAMETERS})

    def draw(self, index: Any) -> Law:
        """Some of the draws; parameters that are numbers stay as they are."""
        if not self.has_draws:
            return self
        return self._with({k: v[index] if isinstance(v, np.ndarray) else v for k, v in self.values.items()})

    def spread(self, shape: tuple[int, ...]) -> Law:
        """One law for each place of an array of this shape, all in a row."""
        spread = (np.full(shape, v).ravel() if isinstance(v, np.ndarray) else v for v in self.values.values())
        return self._with(dict(zip(self.values, spread, strict=True)))

    @classmethod
    def of_values(cls, declared: LawForm, values: Mapping[str, Array]) -> Law:
        """A law from values of all parameters that are known to be good, without a check."""
        law = object.__new__(Law)
        object.__setattr__(law, "form", declared.name)
        law._set(declared, values, dict(values))
        return law

    def _with(self, values: dict[str, Array]) -> Law:
        """The same form with other values: this is on the hot path."""
        law = object.__new__(Law)
        object.__setattr__(law, "form", self.form)
        law._set(self.declared, {name: values[name] for name in self.parameters}, values)
        return law

    def _ln_optimal_params(self, ln_tokens: Array) -> Array:
        # minimise A N^-alpha + B D^-beta along N D = const: alpha A N^-alpha = beta B D^-beta
        p = self.values
        return (self._ln_balance + p["beta"] * ln_tokens) / p["alpha"]


def _checked(declared: LawForm, parameters: Mapping[str, Array]) -> dict[str, Any]:
    """The parameters as arrays, all of them there, finite and above zero (or zero where their term may
    vanish).
    """
    needed = (*declared.names, *declared.given)
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
    return given


class Averaged(Law):
    """The weighted average of laws of different forms: a plan minimises the averaged loss."""

    parts: tuple[Law, ...]
    weights: tuple[float, ...]

    def __init__(self, parts: Sequence[Law], weights: Sequence[float]) -> None:
        total = float(sum(weights))
        every = {f"{part.form} {name}": v for part in parts for name, v in part.parameters.items()}
        fields = {"form": AVERAGE, "declared": form_named(AVERAGE), "parameters": every, "has_draws": False}
        own = {"parts": tuple(parts), "weights": tuple(float(weight) / total for weight in weights)}
        for name, value in {**fields, **own}.items():  # a law is frozen
            object.__setattr__(self, name, value)

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        parts = [part._terms(params, unique_tokens, epochs) for part in self.parts]
        return Terms(
            *(sum(w * v for w, v in zip(self.weights, vs, strict=True)) for vs in zip(*parts, strict=True))
        )

    def optimal_params(self, tokens: Array) -> Array:
        """The geometric mean of those of the parts."""
        logarithms = [weight * np.log(part.optimal_params(tokens)) for weight, part in self._weighted()]
        return np.exp(sum(logarithms))

    def _weighted(self) -> list[tuple[float, Law]]:
        return list(zip(self.weights, self.parts, strict=True))

    def fresh_epochs(self, product: Array, unique_tokens: Array) -> Array:
        """The fewest of those of the parts."""
        return np.min([part.fresh_epochs(product, unique_tokens) for part in self.parts], axis=0)

    def epochs_bound(self, product: Array, unique_tokens: Array, loss: Array) -> Array:
        """Where the parameter term of every part exceeds what it may, so does their average."""
        return np.max([part.epochs_bound(product, unique_tokens, loss) for part in self.parts], axis=0)

    def base(self) -> Law:
        return Averaged([part.base() for part in self.parts], self.weights)

    def draw(self, index: Any) -> Law:
        return self


class Mixture(Law):
    """Draws of laws, each of one of several forms; draws of all forms alternate, so that where two mixtures
    are made alike, draw i of one belongs to draw i of the other.
    """

    parts: tuple[Law, ...]
    order: np.ndarray  # place of draw i among the draws of all parts, one part after the other

    def __init__(self, parts: Sequence[Law]) -> None:
        evenly = np.concatenate([(np.arange(part.draws) + 0.5) / part.draws for part in parts])
        fields = {"form": AVERAGE, "declared": form_named(AVERAGE), "parameters": {}, "has_draws": True}
        for name, value in {
            **fields,
            "parts": tuple(parts),
            "order": np.argsort(evenly, kind="stable"),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def draws(self) -> int:
        return len(self.order)

    def each_of(self, of: Callable[..., Sequence[Array]], *values: Array) -> list[Array]:
        """Figures of the draws of each part at their share of some values, for all draws: each as one
        array."""
        number, start = np.argsort(self.order), 0
        found: list[np.ndarray] = []
        for part in self.parts:
            mine = number[start : start + part.draws]
            start += part.draws
            figures = of(part, *(value[..., mine] if np.ndim(value) else value for value in values))
            found = found or [np.empty(self.draws) for _ in figures]
            for every, figure in zip(found, figures, strict=True):
                every[mine] = figure
        return list(found)

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        return Terms(*self.each_of(lambda some, *at: some._terms(*at), params, unique_tokens, epochs))

    def draw(self, index: Any) -> Law:
        """One draw, by its number."""
        if isinstance(index, slice) and index.indices(self.draws) == (0, self.draws, 1):
            return self
        place = int(self.order[index])
        for part in self.parts:
            if place < part.draws:
                return part.draw(place)
            place -= part.draws
        raise IndexError(index)
