r"""What an ensemble gains: the loss of K models whose probabilities are averaged.

Members differ in their seeds only (weights and order of the data). With N parameters each, U unique tokens,
e epochs and AdamW's timescale of tau epochs,

    L_K = L_1 - a (1 - 1 / K)
    ln a = ln a_0 + p ln(N/N_0) + q ln(U/U_0) + r ln(e/e_0) + (s + t ln(d/d_0)) ln(tau/tau_0)

where L_1 is the calibration's own law and d = N/U, parameters per unique token: the more of them, the more a
longer timescale (less weight decay) lets members differ. Infinitely many members reach L_1 - a. Below one
epoch only U e tokens are in use: they are then the unique tokens, seen once, and the timescale is counted in
them.

Beyond what the members were trained on the gain does not grow: each of the four factors is the lesser of what
its power says and of what it was at the nearest end of the range, and the power of the timescale is that of
the nearest size and data of the range. And no ensemble gets below the irreducible loss: a <= L_1 - E.

In a calibration file, as the part `members`:

    gain            a_0 in nats, at the reference
    reference       params, unique_tokens, epochs, timescale_epochs: N_0, U_0, e_0, tau_0
    exponents       the same names: p, q, r, s; and `density`, t
    error           root mean square error, in nats, of predicting the most members from fewer
    most_members    the largest K that was trained
    fitted_on       the same names, each [low, high] over the members' configurations; and `runs`, how many
    distilled       optional: `kept`, the share of the ensemble's gain over the best single model of its size
                    that one model kept, distilled from it: (L_single - L_student) / (L_single - L_K); of
                    `members` models of `params`, on `unique_tokens` for `epochs` at `weight_decay`;
                    `single_loss`, `ensemble_loss` and `loss` as measured
    source          where that was measured, in words
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.laws import Array, Law, Terms

AUTO = "auto"
MOST_MEMBERS = 10_000
_MOST = 1e40  # parameters, tokens, epochs: nobody has trained that
_STEEPEST = 100.0
_BEYOND = 2  # times the members that were trained: as far as the law was tried

# What is known from others where a calibration has no ensembles of its own.
ELSEWHERE = (
    "elsewhere (arXiv 2509.14786, DCLM, 209.7M tokens) single models of 150M, 300M, 600M and 1.4B reached "
    "3.750, 3.587, 3.510 and 3.462, ensembles of them without end 3.50, 3.27, 3.21 and 3.17, and eight of "
    "300M distilled into one 3.364"
)
QUANTITIES = ("params", "unique_tokens", "epochs", "timescale_epochs")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, defer_build=True)


class Reference(_Record):
    """The configuration at which the gain is written down."""

    params: float = Field(gt=0, le=_MOST)
    unique_tokens: float = Field(gt=0, le=_MOST)
    epochs: float = Field(gt=0, le=_MOST)
    timescale_epochs: float = Field(gt=0, le=_MOST)


class Exponents(_Record):
    """To which power of each quantity the gain grows."""

    params: float = Field(ge=-_STEEPEST, le=_STEEPEST)
    unique_tokens: float = Field(ge=-_STEEPEST, le=_STEEPEST)
    epochs: float = Field(ge=-_STEEPEST, le=_STEEPEST)
    timescale_epochs: float = Field(ge=-_STEEPEST, le=_STEEPEST)
    # added to that of timescale_epochs, per e-fold of parameters per unique token
    density: float = Field(default=0.0, ge=-_STEEPEST, le=_STEEPEST)


class TrainedOn(_Record):
    """What the members covered."""

    params: tuple[float, float]
    unique_tokens: tuple[float, float]
    epochs: tuple[float, float]
    timescale_epochs: tuple[float, float]
    runs: int | None = None

    @model_validator(mode="after")
    def _ordered(self) -> TrainedOn:
        for name in QUANTITIES:
            low, high = getattr(self, name)
            if not 0 < low <= high <= _MOST:
                least = f"above zero and at most {_MOST:g}"
                raise ValueError(f"{name} must be two increasing numbers {least}, not [{low:g}, {high:g}]")
        return self


class Distilled(_Record):
    """One model that was trained on the predictions of an ensemble."""

    kept: float  # share of the ensemble's gain over the best single model of its size
    members: int = Field(ge=2, le=MOST_MEMBERS)
    params: float | None = Field(default=None, gt=0)
    unique_tokens: float | None = Field(default=None, gt=0)
    epochs: float | None = Field(default=None, gt=0)
    weight_decay: float | None = Field(default=None, ge=0)
    single_loss: float | None = None
    ensemble_loss: float | None = None
    loss: float | None = None


class Averaging(_Record):
    """How much averaging the probabilities of K models gains, as fitted on trained ensembles."""

    reference: Reference
    gain: float = Field(gt=0, le=1e4)
    exponents: Exponents
    error: float = Field(ge=0, le=1e4)
    most_members: int = Field(ge=2, le=MOST_MEMBERS)
    fitted_on: TrainedOn
    distilled: Distilled | None = None
    source: str = ""

    @property
    def counts(self) -> Sequence[int]:
        """The numbers of members that may be planned with: as far as the law of averaging was tried."""
        return range(1, _BEYOND * self.most_members + 1)

    def power(self, params: Array, unique_tokens: Array, epochs: Array, timescale_epochs: Array) -> Array:
        """The gain of infinitely many members as its power law says, without the guards: for fits."""
        found, timescale = np.log(self.gain), self._timescale_power(params, unique_tokens)
        powers = (*(getattr(self.exponents, name) for name in QUANTITIES[:3]), timescale)
        values = (params, unique_tokens, epochs, timescale_epochs)
        for name, power, value in zip(QUANTITIES, powers, values, strict=True):
            found = found + power * np.log(np.divide(value, getattr(self.reference, name)))
        return np.exp(found)

    def limit_gain(
        self, law: Law, params: Array, unique_tokens: Array, epochs: Array, timescale_tokens: Array
    ) -> Array:
        """By how much infinitely many members are better than one, in nats."""
        one = law.terms(params, unique_tokens, epochs)
        return self._measured(one, params, unique_tokens, epochs, timescale_tokens)

    def loss(
        self,
        law: Law,
        members: Array,
        params: Array,
        unique_tokens: Array,
        epochs: Array,
        timescale_tokens: Array,
    ) -> Array:
        """The loss of `members` models whose probabilities are averaged; of one it is the law's own."""
        one = law.terms(params, unique_tokens, epochs)
        gain = self._measured(one, params, unique_tokens, epochs, timescale_tokens)
        return one.loss - gain * (1.0 - 1.0 / np.asarray(members, dtype=float))

    def _measured(
        self, one: Terms, params: Array, unique_tokens: Array, epochs: Array, timescale_tokens: Array
    ) -> Array:
        """The gain, no larger than it was measured to be, nor than leads below the irreducible loss."""
        used, passes = unique_tokens * np.minimum(epochs, 1.0), np.maximum(epochs, 1.0)
        powers, trained = self.exponents, self.fitted_on
        timescale = self._timescale_power(
            np.clip(params, *trained.params), np.clip(used, *trained.unique_tokens)
        )
        gain = self.gain * np.exp(
            self._guarded("params", powers.params, params)
            + self._guarded("unique_tokens", powers.unique_tokens, used)
            + self._guarded("epochs", powers.epochs, passes)
            + self._guarded("timescale_epochs", timescale, timescale_tokens / used)
        )
        return np.minimum(gain, np.maximum(one.loss - one.irreducible, 0.0))

    def _guarded(self, name: str, power: Array, values: Array) -> Array:
        """What one quantity multiplies the gain with, as a logarithm: no more than it was measured to."""
        low, high = getattr(self.fitted_on, name)
        start = getattr(self.reference, name)
        return np.minimum(power * np.log(values / start), power * np.log(np.clip(values, low, high) / start))

    def _timescale_power(self, params: Array, unique_tokens: Array) -> Array:
        """To which power of the timescale the gain grows, for members of so many parameters per token."""
        per_token = np.divide(params, unique_tokens) * (self.reference.unique_tokens / self.reference.params)
        return self.exponents.timescale_epochs + self.exponents.density * np.log(per_token)


def outside(known: Averaging, **quantities: Any) -> list[tuple[str, float, tuple[float, float]]]:
    """Which quantities of a member leave what was trained: name, value and range."""
    found = []
    for name, value in quantities.items():
        low, high = getattr(known.fitted_on, name)
        if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            found.append((name, float(value), (low, high)))
    return found
