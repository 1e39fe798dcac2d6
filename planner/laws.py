r"""The six law forms of the paper: validation loss as a function of model size, unique tokens and epochs.

With N parameters, U unique tokens, e epochs, D = U e tokens and R = max(e - 1, 0) repeats, every form is

    L = E  +  A / N'^alpha  +  B / D'^beta  +  penalty
       floor   capacity         data           overfitting

| form                   | N'  | D'  | penalty                         | free parameters        |
|------------------------|-----|-----|---------------------------------|------------------------|
| `chinchilla`           | N   | D   | 0                               | none                   |
| `exponential_decay`    | N   | D^  | 0                               | R_D_star               |
| `effective_parameters` | N^  | D^  | 0                               | R_D_star, R_N_star     |
| `additive_1p`          | N   | D   | P R (N / U)                     | P                      |
| `additive_2p`          | N   | D   | P R (N / U)^kappa               | P, kappa               |
| `additive_4p`          | N   | D   | P R^delta (N / U^gamma)^kappa   | P, delta, kappa, gamma |

    D^ = U (1 + R_D* (1 - exp(-R / R_D*)))
    N^ = U_N (1 + R_N* (1 - exp(-R_N / R_N*))),  U_N = min(N_opt(U), N),  R_N = N / U_N - 1

N_opt(U) is the model size for which U tokens are compute-optimal under the same base law. Below one epoch only
U e tokens are ever seen, none of them twice: the unique tokens are then U e.

Everything broadcasts over numpy arrays, the law's own parameters included, so that a bootstrap ensemble is
simply a law whose parameters are arrays. Inside, powers are exponentials of logarithms: the same four lines give
the terms and their exact logarithmic slopes, on which allocation and advice are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from planner.errors import InvalidInput

Array = Any  # a float or a numpy array of floats; all arguments broadcast against each other

_TINY = 1e-300
BASE_PARAMETERS = ("E", "A", "alpha", "B", "beta")


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
    _p: dict[str, Array] = field(init=False, repr=False)  # all parameters, fixed exponents included
    is_ensemble: bool = field(init=False, repr=False)
    _ln_balance: Array = field(init=False, repr=False)  # ln(alpha A / (beta B))

    def __post_init__(self) -> None:
        check_form(self.form)
        needed = parameter_names(self.form)
        try:
            given = {name: np.asarray(value, dtype=float) for name, value in self.parameters.items()}
        except (TypeError, ValueError):
            raise InvalidInput(
                f"the parameters of law {self.form} must be numbers: {', '.join(needed)}."
            ) from None
        if set(given) != set(needed):
            raise InvalidInput(
                f"law {self.form} needs the parameters {', '.join(needed)}; got {', '.join(given) or 'none'}."
            )
        for name, value in given.items():
            at_least_zero = name in ("E", "P")
            if not np.all(np.isfinite(value) & ((value > 0) | (at_least_zero & (value == 0)))):
                raise InvalidInput(
                    f"parameter {name} of law {self.form} must be finite and {'not negative' if at_least_zero else 'above zero'}."
                )
        everything: dict[str, Any] = {**_FIXED.get(self.form, {}), **given}
        object.__setattr__(self, "parameters", {name: self.parameters[name] for name in needed})
        object.__setattr__(self, "_p", {k: float(v) if np.ndim(v) == 0 else v for k, v in everything.items()})
        object.__setattr__(self, "is_ensemble", any(np.ndim(v) for v in given.values()))
        object.__setattr__(self, "_ln_balance", _ln_balance(self._p))

    # -- what users call ------------------------------------------------------------------------------------

    def loss(self, params: Array, unique_tokens: Array, epochs: Array) -> Array:
        """Predicted validation loss in nats per token."""
        return self._terms(params, unique_tokens, epochs).loss

    def terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        """Predicted loss as floor + capacity + data + overfitting, each of the full broadcast shape."""
        return Terms(*np.broadcast_arrays(*self._terms(params, unique_tokens, epochs)))

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        p = self._p
        epochs = np.asarray(epochs, dtype=float)
        ln_n, ln_u = np.log(params), np.log(unique_tokens)
        ln_n_eff, _, _ = self._effective_params(ln_n, ln_u, epochs)
        ln_d_eff, _ = self._effective_tokens(ln_u, epochs)
        capacity = p["A"] * np.exp(-p["alpha"] * ln_n_eff)
        data = p["B"] * np.exp(-p["beta"] * ln_d_eff)
        return Terms(p["E"], capacity, data, self._penalty(ln_n, ln_u, epochs))

    def slopes(self, params: Array, unique_tokens: Array, epochs: Array) -> Slopes:
        """dL/dln(params), dL/dln(unique_tokens), dL/dln(epochs), exact."""
        p = self._p
        epochs = np.asarray(epochs, dtype=float)
        ln_n, ln_u = np.log(params), np.log(unique_tokens)
        ln_n_eff, by_n, by_used = self._effective_params(ln_n, ln_u, epochs)
        ln_d_eff, by_epochs = self._effective_tokens(ln_u, epochs)
        capacity = -p["alpha"] * p["A"] * np.exp(-p["alpha"] * ln_n_eff)  # d capacity / d ln N'
        data = -p["beta"] * p["B"] * np.exp(-p["beta"] * ln_d_eff)  # d data / d ln D'
        d_params, d_unique, d_epochs = capacity * by_n, data + capacity * by_used, data * by_epochs
        if "R_N_star" in p:  # below one epoch the unique tokens in use are U e, so epochs act on N' as well
            d_epochs = d_epochs + np.where(epochs < 1, capacity * by_used, 0.0)
        if "P" in p:
            penalty = self._penalty(ln_n, ln_u, epochs)
            d_params = d_params + p["kappa"] * penalty
            d_unique = d_unique - p["kappa"] * p["gamma"] * penalty
            d_epochs = d_epochs + p["delta"] * penalty * epochs / np.maximum(epochs - 1, _TINY)
        return Slopes(d_params, d_unique, d_epochs)

    def optimal_params(self, tokens: Array) -> Array:
        """N_opt: the model size for which this many fresh tokens are compute-optimal under the base law."""
        return np.exp(self._ln_optimal_params(np.log(tokens)))

    def fresh_epochs(self, product: Array, unique_tokens: Array) -> Array:
        """Epochs that would be optimal on the iso-FLOP curve params * epochs = product if repeats were as good as new."""
        p = self._p
        ln_ratio = p["alpha"] * np.log(product) - p["beta"] * np.log(unique_tokens) - self._ln_balance
        return np.exp(ln_ratio / (p["alpha"] + p["beta"]))

    def epochs_bound(self, product: Array, loss: Array) -> Array:
        """Epochs beyond which the capacity term alone exceeds `loss`: no form can be better there."""
        p = self._p
        ln_bound = np.log(np.maximum(loss - p["E"], _TINY) / p["A"]) / p["alpha"]
        return product * np.exp(np.minimum(ln_bound, 50.0))  # 1e-22 of a parameter is little enough

    def base(self) -> Law:
        """The Chinchilla law underneath: the same law without repetition effects."""
        return Law("chinchilla", {name: self.parameters[name] for name in BASE_PARAMETERS})

    def member(self, index: Any) -> Law:
        """The law(s) at `index` of an ensemble; scalar parameters stay as they are."""
        if not self.is_ensemble:
            return self
        picked = object.__new__(Law)  # already validated: skip __post_init__, this is on the hot path
        object.__setattr__(picked, "form", self.form)
        take = {k: v[index] if np.ndim(v) else v for k, v in self._p.items()}
        object.__setattr__(picked, "_p", take)
        object.__setattr__(picked, "is_ensemble", any(np.ndim(v) for v in take.values()))
        object.__setattr__(picked, "_ln_balance", _ln_balance(take))
        object.__setattr__(picked, "parameters", {name: take[name] for name in parameter_names(self.form)})
        return picked

    # -- the iso-FLOP curve -----------------------------------------------------------------------------------

    def on_isoflop(self, product: Array, unique_tokens: Array, epochs: Array) -> Array:
        """Loss at params = product / epochs for every (budget, epoch count) pair: shape (budgets, epochs).

        `product` = flops / (6 U) = params * epochs is what compute buys.
        """
        factors = self.isoflop_factors(product, unique_tokens, epochs)
        if factors is not None:
            return factors[0] @ factors[1]
        column = self.member((slice(None), None)) if self.is_ensemble else self
        return column.loss(product[:, None] / epochs, unique_tokens[:, None], epochs)

    def isoflop_factors(
        self, product: Array, unique_tokens: Array, epochs: Array
    ) -> tuple[Array, Array] | None:
        """Two matrices whose product is `on_isoflop`, or None where there are none.

        For all forms but effective_parameters each term is (a factor of the budget) x (a factor of the epochs): a matrix
        product instead of a grid of powers, which is what makes ten thousand budgets cheap.
        """
        p = self._p
        if self.form == "effective_parameters" or self.is_ensemble:
            return None
        ln_k, ln_u, ln_e = np.log(product), np.log(unique_tokens), np.log(epochs)
        ln_d, _ = self._effective_tokens(0.0, epochs)
        terms = [
            (np.full_like(ln_k, p["E"]), np.ones_like(ln_e)),
            (p["A"] * np.exp(-p["alpha"] * ln_k), np.exp(p["alpha"] * ln_e)),
            (p["B"] * np.exp(-p["beta"] * ln_u), np.exp(-p["beta"] * ln_d)),
        ]
        if "P" in p:
            terms.append((np.exp(p["kappa"] * (ln_k - p["gamma"] * ln_u)), self._penalty(-ln_e, 0.0, epochs)))
        return np.stack([budget for budget, _ in terms], axis=1), np.stack(
            [repetition for _, repetition in terms]
        )

    # -- the pieces -------------------------------------------------------------------------------------------

    def _penalty(self, ln_n: Array, ln_u: Array, epochs: Array) -> Array:
        p = self._p
        if "P" not in p:
            return 0.0
        repeats = epochs - 1
        ln_repeats = np.log(np.maximum(repeats, _TINY))
        return np.where(
            repeats > 0,
            p["P"] * np.exp(p["delta"] * ln_repeats + p["kappa"] * (ln_n - p["gamma"] * ln_u)),
            0.0,
        )

    def _effective_tokens(self, ln_u: Array, epochs: Array) -> tuple[Array, Array]:
        """ln D' and d ln D' / d ln epochs (its slope by ln U is always 1)."""
        p = self._p
        if "R_D_star" not in p:
            return ln_u + np.log(epochs), 1.0
        repeats = np.maximum(epochs - 1, 0)
        seen = np.minimum(epochs, 1) - p["R_D_star"] * np.expm1(-repeats / p["R_D_star"])
        slope = np.where(epochs > 1, np.exp(-repeats / p["R_D_star"]) * epochs / seen, 1.0)
        return ln_u + np.log(seen), slope

    def _effective_params(self, ln_n: Array, ln_u: Array, epochs: Array) -> tuple[Array, Array, Array]:
        """ln N', d ln N' / d ln N, and d ln N' / d ln (unique tokens in use)."""
        p = self._p
        if "R_N_star" not in p:
            return ln_n, 1.0, 0.0
        ln_opt = self._ln_optimal_params(ln_u + np.log(np.minimum(epochs, 1)))
        ln_used = np.minimum(ln_opt, ln_n)
        excess = np.exp(ln_n - ln_used)  # N / U_N >= 1
        growth = 1 - p["R_N_star"] * np.expm1(-(excess - 1) / p["R_N_star"])
        by_n = np.where(excess > 1, np.exp(-(excess - 1) / p["R_N_star"]) * excess / growth, 1.0)
        return ln_used + np.log(growth), by_n, (1 - by_n) * p["beta"] / p["alpha"]

    def _ln_optimal_params(self, ln_tokens: Array) -> Array:
        # minimise A N^-alpha + B D^-beta along N D = const: alpha A N^-alpha = beta B D^-beta
        p = self._p
        return (self._ln_balance + p["beta"] * ln_tokens) / p["alpha"]


def _ln_balance(p: dict[str, Array]) -> Array:
    return np.log(p["alpha"] * p["A"]) - np.log(p["beta"] * p["B"])


_REPETITION_PARAMETERS = {
    "chinchilla": (),
    "exponential_decay": ("R_D_star",),
    "effective_parameters": ("R_D_star", "R_N_star"),
    "additive_1p": ("P",),
    "additive_2p": ("P", "kappa"),
    "additive_4p": ("P", "delta", "kappa", "gamma"),
}
# The additive ladder is one formula; the shorter forms hold some of its exponents at one.
_FIXED: dict[str, dict[str, float]] = {
    "additive_1p": {"delta": 1.0, "kappa": 1.0, "gamma": 1.0},
    "additive_2p": {"delta": 1.0, "gamma": 1.0},
}

FORMS = tuple(_REPETITION_PARAMETERS)
DEFAULT_FORM = "additive_4p"


def check_form(form: str) -> str:
    """The form itself if it is known, otherwise an error that lists those that are."""
    if not isinstance(form, str) or form not in _REPETITION_PARAMETERS:
        raise InvalidInput(f"law must be one of {', '.join(FORMS)}; got {form!r}.")
    return form


def repetition_parameters(form: str) -> tuple[str, ...]:
    """The free parameters that a form adds to the base law."""
    return _REPETITION_PARAMETERS[check_form(form)]


def parameter_names(form: str) -> tuple[str, ...]:
    """All free parameters of a form, base law first."""
    return BASE_PARAMETERS + repetition_parameters(form)
