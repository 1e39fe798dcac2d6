"""A law: one form with its parameters, evaluated with exact logarithmic slopes.

Everything broadcasts over numpy arrays, the law's own parameters included, so that a bootstrap ensemble is
simply a law whose parameters are arrays. Inside, powers are exponentials of logarithms: the same few lines
give the terms and their slopes, on which allocation and advice are built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from planner.errors import InvalidInput
from planner.laws.forms import BASE_FORM, BASE_PARAMETERS, MEMORY, Array, At, LawForm, form_named

_TINY = 1e-300


class Terms(NamedTuple):
    """The loss broken into what causes it, in nats per token."""

    floor: Array
    capacity: Array
    data: Array
    overfitting: Array

    @property
    def loss(self) -> Array:
        return self.floor + self.capacity + self.data + self.overfitting


class Slopes(NamedTuple):
    """Partial derivatives of the loss by the logarithm of each input, the other two held."""

    params: Array
    unique_tokens: Array
    epochs: Array


@dataclass(
    frozen=True, eq=False
)  # arrays have no truth value: laws are the same only if they are the same object
class Law:
    """One law form with its parameters (numbers, or arrays for an ensemble of laws)."""

    form: str
    parameters: Mapping[str, Array]
    declared: LawForm = field(init=False, repr=False)
    is_ensemble: bool = field(init=False, repr=False)
    values: dict[str, Array] = field(init=False, repr=False)  # all parameters, fixed exponents included

    def __post_init__(self) -> None:
        declared = form_named(self.form)
        given = _checked(declared, self.parameters)
        everything: dict[str, Any] = {**declared.fixed, **given}
        p = {k: float(v) if np.ndim(v) == 0 else v for k, v in everything.items()}
        self._set(declared, {name: self.parameters[name] for name in (*declared.names, *declared.given)}, p)

    def _set(self, declared: LawForm, parameters: Mapping[str, Array], p: dict[str, Array]) -> None:
        object.__setattr__(self, "declared", declared)
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "values", p)
        object.__setattr__(self, "is_ensemble", any(isinstance(value, np.ndarray) for value in p.values()))

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
        """Predicted loss as floor + capacity + data + overfitting, each of the full broadcast shape."""
        return Terms(*np.broadcast_arrays(*self._terms(params, unique_tokens, epochs)))

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        p = self.values
        epochs = np.asarray(epochs, dtype=float)
        ln_n, ln_u = np.log(params), np.log(unique_tokens)
        ln_n_eff, _, _ = self._effective_params(ln_n, ln_u, epochs)
        ln_seen = self.declared.repeats.ln_seen(p, epochs, ln_n - ln_u)
        capacity = p["A"] * np.exp(-p["alpha"] * ln_n_eff)
        forgotten, _, _ = self._forgotten(ln_u + ln_seen, ln_n, slopes=False)
        data = p["B"] * np.exp(-p["beta"] * (ln_u + ln_seen - forgotten)) + self._premium(ln_u, epochs)[0]
        if self.declared.penalty is None:
            return Terms(p["E"], capacity, data, 0.0)
        ln_shape = self.declared.penalty.ln_shape(p, self._at(ln_n, ln_u, epochs))
        return Terms(p["E"], capacity, data, self._penalty(ln_shape, epochs))

    def slopes(self, params: Array, unique_tokens: Array, epochs: Array) -> Slopes:
        """dL/dln(params), dL/dln(unique_tokens), dL/dln(epochs), exact."""
        p = self.values
        epochs = np.asarray(epochs, dtype=float)
        ln_n, ln_u = np.log(params), np.log(unique_tokens)
        ln_n_eff, by_n, by_used = self._effective_params(ln_n, ln_u, epochs)
        ln_seen, by_epochs, by_ratio = self.declared.repeats.with_slopes(p, epochs, ln_n - ln_u)
        capacity = -p["alpha"] * p["A"] * np.exp(-p["alpha"] * ln_n_eff)  # d capacity / d ln N'
        forgotten, by_seen, by_size = self._forgotten(ln_u + ln_seen, ln_n)
        left = -p["beta"] * p["B"] * np.exp(-p["beta"] * (ln_u + ln_seen - forgotten))
        data = left * (1 - by_seen)  # d data / d ln D'
        d_params = capacity * by_n + data * by_ratio - left * by_size
        d_unique = data * (1 - by_ratio) + capacity * by_used
        d_epochs = data * by_epochs
        if (
            self.declared.size.parameters
        ):  # below one epoch the unique tokens in use are U e, so epochs act on N' too
            d_epochs = d_epochs + np.where(epochs < 1, capacity * by_used, 0.0)
        if self.declared.premium is not None and not self.declared.premium.of_data:
            _, by_memory = self._premium(ln_u, epochs)
            d_unique = d_unique - by_memory
            d_epochs = d_epochs - np.where(epochs < 1, by_memory, 0.0)
        if self.declared.penalty is not None:
            ln_shape, by = self.declared.penalty.with_slopes(p, self._at(ln_n, ln_u, epochs))
            penalty = self._penalty(ln_shape, epochs)
            by_unique, by_repeats = by.ln_unique - by.ln_memory, by.ln_repeats
            if self.declared.penalty.first_pass:
                by_epochs = np.where(epochs < 1, by_unique, by_repeats)
            else:
                by_epochs = by_repeats * epochs / _above_zero(epochs - 1)
            d_params = d_params + by.ln_params * penalty
            d_unique = d_unique + by_unique * penalty
            d_epochs = d_epochs + by_epochs * penalty
        return Slopes(d_params, d_unique, d_epochs)

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
        """Epochs beyond which the capacity term and the least that repeats leave of the data term exceed
        `loss`: no form can be better there.
        """
        p, most = self.values, self.declared.repeats.ln_most(self.values)
        data = 0.0 if most is None else p["B"] * np.exp(-p["beta"] * (np.log(unique_tokens) + most))
        ln_bound = np.log(np.maximum(loss - p["E"] - data, _TINY) / p["A"]) / p["alpha"]
        return product * np.exp(np.minimum(ln_bound, 50.0))  # 1e-22 of a parameter is little enough

    def fresh_bound(self, product: Array, unique_tokens: Array) -> Array:
        """The lowest loss of the base law at up to one epoch: no form can be better there."""
        p, share = self.values, np.minimum(self.fresh_epochs(product, unique_tokens), 1.0)
        return (
            p["E"]
            + p["A"] * (product / share) ** -p["alpha"]
            + p["B"] * (unique_tokens * share) ** -p["beta"]
        )

    @property
    def members(self) -> int:
        """How many laws an ensemble holds, along its only axis."""
        return (
            max(len(value) for value in self.parameters.values() if np.ndim(value)) if self.is_ensemble else 1
        )

    def base(self) -> Law:
        """The Chinchilla law underneath: the same law without repetition effects."""
        return Law(BASE_FORM, {name: self.parameters[name] for name in BASE_PARAMETERS})

    def member(self, index: Any) -> Law:
        """The law(s) at `index` of an ensemble; scalar parameters stay as they are."""
        if not self.is_ensemble or index is ...:
            return self
        return self.member_by(lambda value: value[index])

    def member_by(self, of: Callable[[np.ndarray], np.ndarray]) -> Law:
        """The laws of an ensemble that are left if each array of parameters is taken like this."""
        return self._with({k: of(v) if isinstance(v, np.ndarray) else v for k, v in self.values.items()})

    def spread(self, shape: tuple[int, ...]) -> Law:
        """One law for each place of an array of this shape, all in a row."""
        return self.member_by(lambda value: np.full(shape, value).ravel())

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

    # -- the iso-FLOP curve ----------------------------------------------------------------------------------

    def on_isoflop(self, product: Array, unique_tokens: Array, epochs: Array) -> Array:
        """Loss at params = product / epochs for every (budget, epoch count) pair: shape (budgets, epochs).

        `product` = flops / (6 U) = params * epochs is what compute buys. Budgets and the laws of an ensemble
        broadcast.
        """
        factors = self.isoflop_factors(product, unique_tokens, epochs)
        if factors is not None:
            return factors[0] @ factors[1]
        return self.member((..., None))._tabulated(product[..., None], unique_tokens[..., None], epochs)

    def _tabulated(self, product: Array, unique_tokens: Array, epochs: Array) -> Array:
        """The same for arrays that broadcast; what depends on the budget or on the epochs alone is worked out
        once for each.
        """
        p, declared = self.values, self.declared
        if declared.premium is not None:
            return self.loss(product / epochs, unique_tokens, epochs)
        ln_k, ln_u, ln_e = np.log(product), np.log(unique_tokens), np.log(epochs)
        if declared.size.parameters:
            capacity = p["A"] * np.exp(-p["alpha"] * self._effective_params(ln_k - ln_e, ln_u, epochs)[0])
        else:
            capacity = p["A"] * np.exp(-p["alpha"] * ln_k) * np.exp(p["alpha"] * ln_e)
        ln_seen = declared.repeats.on_isoflop(p, ln_k - ln_u, epochs)
        data = p["B"] * np.exp(-p["beta"] * ln_u) * np.exp(-p["beta"] * ln_seen)
        loss = p["E"] + capacity + data
        if declared.penalty is None:
            return loss
        return loss + declared.penalty.on_isoflop(p, ln_k, ln_u, epochs)

    @property
    def is_separable(self) -> bool:
        """Whether each term along an iso-FLOP curve may be (a factor of the budget) x (one of the epochs)."""
        declared = self.declared
        return not (declared.size.parameters or declared.repeats.by_size or declared.premium)

    def isoflop_factors(
        self, product: Array, unique_tokens: Array, epochs: Array
    ) -> tuple[Array, Array] | None:
        """Two matrices whose product is `on_isoflop`, or None where there are none; of an ensemble two stacks
        of them, if each law has a row of budgets.

        Where each term is (a factor of the budget) x (a factor of the epochs), a matrix product replaces a
        grid of powers, which is what makes ten thousand budgets cheap.
        """
        p, declared = self.values, self.declared
        if not self.is_separable or any(np.shape(value)[-1:] not in ((), (1,)) for value in p.values()):
            return None
        ln_k, ln_u, ln_e = np.log(product), np.log(unique_tokens), np.log(epochs)
        ln_seen = declared.repeats.ln_seen(p, epochs, 0.0)
        terms = [
            (p["E"], 1.0),
            (p["A"] * np.exp(-p["alpha"] * ln_k), np.exp(p["alpha"] * ln_e)),
            (p["B"] * np.exp(-p["beta"] * ln_u), np.exp(-p["beta"] * ln_seen)),
        ]
        if declared.penalty is not None:
            penalty = declared.penalty.factors(p, ln_k, ln_u, epochs)
            if penalty is None:
                return None
            terms.append(penalty)
        budgets, repetitions = zip(*terms, strict=True)
        return _together(budgets, -1), _together(repetitions, -2)

    # -- the pieces ------------------------------------------------------------------------------------------

    def _penalty(self, ln_shape: Array, epochs: Array) -> Array:
        assert self.declared.penalty is not None
        penalty = self.values["P"] * np.exp(ln_shape)
        return penalty if self.declared.penalty.first_pass else np.where(epochs > 1, penalty, 0.0)

    def _at(self, ln_n: Array, ln_u: Array, epochs: Array) -> At:
        """Where the penalty is evaluated: above one epoch, where all unique tokens are in use, unless it
        counts passes.
        """
        penalty = self.declared.penalty
        if penalty is not None and penalty.first_pass:
            ln_epochs = np.log(epochs)
            ln_used = ln_u + np.minimum(ln_epochs, 0)
            return At(ln_n, ln_used, np.maximum(ln_epochs, 0), np.log(self.values[MEMORY]) - ln_used)
        ln_repeats = np.log(_above_zero(epochs - 1))
        if self.declared.premium is None:
            return At(ln_n, ln_u, ln_repeats)
        return At(ln_n, ln_u, ln_repeats, np.log(self.values[MEMORY]) - ln_u)

    def _forgotten(self, ln_seen: Array, ln_n: Array, *, slopes: bool = True) -> tuple[Array, Array, Array]:
        """What a short memory takes of the tokens seen, as a logarithm, and its slopes by the logarithms of
        those tokens and of the size.
        """
        premium = self.declared.premium
        if premium is None or not premium.of_data:
            return 0.0, 0.0, 0.0
        ln_sees = premium.ln_sees(ln_seen, ln_n, np.log(self.values[MEMORY]))
        if not slopes:
            return premium.ln_shape(self.values, ln_sees), 0.0, 0.0
        shape, slope = premium.with_slope(self.values, ln_sees)
        return shape, premium.powers[0] * slope, premium.powers[1] * slope

    def _premium(self, ln_u: Array, epochs: Array) -> tuple[Array, Array]:
        """What a short memory costs in nats, and its slope by ln of the memory in epochs of the unique tokens
        in use, of which there are fewer below one epoch.
        """
        premium, p = self.declared.premium, self.values
        if premium is None or premium.of_data:
            return 0.0, 0.0
        ln_memory = np.log(p[MEMORY]) - ln_u - np.log(np.minimum(epochs, 1))
        shape, slope = premium.with_slope(p, ln_memory)
        amount = np.exp(shape)
        return amount, amount * slope

    def _effective_params(self, ln_n: Array, ln_u: Array, epochs: Array) -> tuple[Array, Array, Array]:
        """ln N', d ln N' / d ln N, and d ln N' / d ln (unique tokens in use)."""
        return self.declared.size.ln_effective(
            self.values, ln_n, lambda: self._ln_optimal_params(ln_u + np.log(np.minimum(epochs, 1)))
        )

    def _ln_optimal_params(self, ln_tokens: Array) -> Array:
        # minimise A N^-alpha + B D^-beta along N D = const: alpha A N^-alpha = beta B D^-beta
        p = self.values
        return (self._ln_balance + p["beta"] * ln_tokens) / p["alpha"]


def _together(factors: Sequence[Array], axis: int) -> np.ndarray:
    """Arrays that broadcast, along a new axis before (-2) or after (-1) their last one."""
    shape = np.broadcast_shapes(*(np.shape(factor) for factor in factors))
    every = np.empty((*shape, len(factors)) if axis == -1 else (*shape[:-1], len(factors), *shape[-1:]))
    for place, factor in enumerate(factors):
        every[(..., place) if axis == -1 else (..., place, slice(None))] = factor
    return every


def _above_zero(repeats: Array) -> Array:
    """Repeats, and one where there are none and a penalty does not count."""
    return np.where(repeats > 0, repeats, 1.0)


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
    vanish = {"E", "P"}
    for name, value in given.items():
        if not np.all(np.isfinite(value) & ((value > 0) | ((name in vanish) & (value == 0)))):
            least = "not negative" if name in vanish else "above zero"
            raise InvalidInput(f"parameter {name} of law {declared.name} must be finite and {least}.")
    return given
