r"""Laws of different forms as one law, so that all of them are evaluated at once.

The forms of this package differ in which effects they have. Written with rates instead of half-lives,

    D'      = U (1 + R f(k R)),             k = (N / U)^rho / R_D*      f(x) = (1 - exp(-x)) / x
    penalty = P R^delta s / (1 + h s R^(j delta)),      s = (N / U^gamma)^kappa

an effect that a form does not have is a rate of zero, exactly: f(0) = 1. So laws of many forms, or many draws
of each, are one ensemble with arrays for parameters. Forms with pieces of their own are stacked among
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from planner.laws.forms import AVERAGE, BASE_PARAMETERS, Array, At, LawForm, Penalty, Repeats, Values
from planner.laws.law import Law
from planner.laws.pieces import Decaying, Hill, Paced, Power, softplus
from planner.look import Look

_COMMON = "common"
_TINY = 1e-300
# What a parameter is where a form does not have its effect.
_NEUTRAL = {"fade": 0.0, "rho": 0.0, "P": 0.0, "delta": 1.0, "kappa": 1.0, "gamma": 1.0}
_NEUTRAL |= {"ln_level": -np.inf, "joined": 0.0}


@dataclass(frozen=True)
class Fading(Repeats):
    """Repeats that fade at a rate, or do not fade."""

    by_size: bool = False  # whether some of the laws fade sooner in large models

    def ln_seen(self, p: Values, epochs: Array, ln_ratio: Array) -> Array:
        return np.log(np.minimum(epochs, 1) + self._gain(p, epochs, ln_ratio)[0])

    def with_slopes(self, p: Values, epochs: Array, ln_ratio: Array) -> tuple[Array, Array, Array]:
        gain, share = self._gain(p, epochs, ln_ratio)
        seen = np.minimum(epochs, 1) + gain
        faded = np.exp(-share)
        slope = np.where(epochs > 1, faded * epochs / seen, 1.0)
        by_ratio = -p["rho"] * (gain - np.maximum(epochs - 1, 0) * faded) / seen if self.by_size else 0.0
        return np.log(seen), slope, by_ratio

    def _gain(self, p: Values, epochs: Array, ln_ratio: Array) -> tuple[Array, Array]:
        """What repeats add to D' / U, and their number at the rate at which they fade."""
        rate = p["fade"]
        if self.by_size:
            rate = rate * np.exp(np.clip(p["rho"] * ln_ratio, -300.0, 300.0))
        repeats = np.maximum(epochs - 1, 0)
        share = np.maximum(repeats * rate, _TINY)
        return -repeats * np.expm1(-share) / share, share

    def ln_most(self, p: Values) -> Array | None:
        return None if self.by_size else np.log1p(1 / np.maximum(p["fade"], _TINY))

    def on_isoflop(self, p: Values, ln_ratio: Array, epochs: Array) -> Array:
        repeats, share = np.maximum(epochs - 1, 0), p["fade"]
        if self.by_size:
            by_budget = p["fade"] * np.exp(np.clip(p["rho"] * ln_ratio, -300.0, 300.0))
            share = by_budget * np.exp(-p["rho"] * np.log(epochs))
        share = np.maximum(share * repeats, _TINY)
        gain = np.expm1(-share)
        gain /= share
        gain *= -repeats
        gain += np.minimum(epochs, 1)
        return np.log(gain, out=gain)


@dataclass(frozen=True)
class Levelled(Penalty):
    """A power of repeats, size and data that levels off, or does not."""

    def _ln_size(self, p: Values, at: At) -> Array:
        return p["kappa"] * (at.ln_params - p["gamma"] * at.ln_unique)

    def _inside(self, p: Values, at: At) -> Array:
        return p["ln_level"] + self._ln_size(p, at) + p["joined"] * p["delta"] * at.ln_repeats

    def ln_shape(self, p: Values, at: At) -> Array:
        power = p["delta"] * at.ln_repeats + self._ln_size(p, at)
        return power - softplus(self._inside(p, at))

    def with_slopes(self, p: Values, at: At) -> tuple[Array, At]:
        power, level = p["delta"] * at.ln_repeats + self._ln_size(p, at), softplus(self._inside(p, at))
        left = np.exp(-level)
        by_params = left * p["kappa"]
        by_repeats = p["delta"] * (1 - p["joined"] * (1 - left))
        return power - level, At(by_params, -by_params * p["gamma"], by_repeats)

    def on_isoflop(self, p: Values, ln_product: Array, ln_unique: Array, epochs: Array) -> Array:
        ln_e, ln_repeats = np.log(epochs), np.log(np.maximum(epochs - 1, _TINY))
        with np.errstate(over="ignore"):
            size = np.exp(p["kappa"] * (ln_product - p["gamma"] * ln_unique))
            power = np.exp(p["delta"] * ln_repeats - p["kappa"] * ln_e)
            level = np.exp(p["ln_level"] + (p["joined"] * p["delta"]) * ln_repeats - p["kappa"] * ln_e)
            levelled = size * level
            levelled += 1
            return np.divide(np.where(epochs > 1, p["P"] * power, 0.0) * size, levelled, out=levelled)


_REPEATS: dict[type, Callable[[Values], dict[str, Array]]] = {
    Repeats: lambda p: {},
    Decaying: lambda p: {"fade": 1 / p["R_D_star"]},
    Paced: lambda p: {"fade": 1 / p["R_D_star"], "rho": p["rho"]},
}


def _of_hill(piece: Hill, p: Values) -> dict[str, Array]:
    ln_level = -p["kappa"] * np.log(p["c"])
    amount = {"P": p["P"] * np.exp(ln_level), "ln_level": ln_level}
    powers = {name: p[name] for name in ("delta", "kappa", "gamma")}
    return {**amount, **powers, "joined": float(piece.repeats_too)}


def _of_power(piece: Power, p: Values) -> dict[str, Array]:
    return {name: p[name] for name in ("P", "delta", "kappa", "gamma")}


_PENALTIES: dict[type, Callable[[Any, Values], dict[str, Array]]] = {
    NoneType: lambda piece, p: {},
    Power: _of_power,
    Hill: _of_hill,
}


class Stack(NamedTuple):
    """Several laws as one ensemble, and where its members stood among those of all laws."""

    law: Law
    places: np.ndarray


def stacked(laws: Sequence[Law]) -> list[Stack]:
    """As few ensembles as can hold these laws, of which each is one law or an ensemble itself.

    Places count the members of all laws, one law after the other. What has no equal stays as it is, as an
    average of laws does.
    """
    return _remembered(tuple(laws)) if not any(law.is_ensemble for law in laws) else _stacked(laws)


@lru_cache(maxsize=64)
def _remembered(laws: tuple[Law, ...]) -> list[Stack]:
    return _stacked(laws)


def _stacked(laws: Sequence[Law]) -> list[Stack]:
    ends = np.cumsum([0, *(law.members for law in laws)])
    groups: dict[str, list[_Told]] = {}
    for k, law in enumerate(laws):
        kind, p = (f"{AVERAGE} {id(law)}", {}) if law.form == AVERAGE else _told(law)
        groups.setdefault(kind, []).append(_Told(law, p, np.arange(ends[k], ends[k + 1])))
    return [_one(kind, members) for kind, members in groups.items()]


class _Told(NamedTuple):
    law: Law
    values: Values  # in the parameters of the kind
    places: np.ndarray


def _told(law: Law) -> tuple[str, Values]:
    """Which laws this one can be stacked with, those of a kind, and its parameters there."""
    declared, p = law.declared, law.values
    repeats, penalty = _REPEATS.get(type(declared.repeats)), _PENALTIES.get(type(declared.penalty))
    if repeats is None or penalty is None or declared.size.parameters or declared.premium is not None:
        return law.form, p
    base = {name: p[name] for name in BASE_PARAMETERS}
    return _COMMON, {**base, **repeats(p), **penalty(declared.penalty, p)}


def _one(kind: str, members: list[_Told]) -> Stack:
    """One ensemble of all laws of a kind; effects that some of them have are there for all."""
    law = members[0].law
    if len(members) == 1 or law.form == AVERAGE:  # the same one, however often it was given
        return Stack(law, np.concatenate([one.places for one in members]))
    names = dict.fromkeys(name for one in members for name in one.values)
    columns = {
        name: np.concatenate(
            [np.broadcast_to(one.values.get(name, _NEUTRAL.get(name)), len(one.places)) for one in members]
        )
        for name in names
    }
    declared = _declared(columns) if kind == _COMMON else law.declared
    return Stack(Law.of_values(declared, columns), np.concatenate([one.places for one in members]))


def _declared(columns: Values) -> LawForm:
    """The simplest form that has all effects of these parameters."""
    penalty = None
    if "P" in columns:
        penalty = Levelled() if "ln_level" in columns else Power(())
    return LawForm(
        _COMMON,
        "several forms",
        Look("#111111", "#f2f2f2", "solid"),
        "several forms as one",
        repeats=Fading("rho" in columns) if "fade" in columns else Repeats(),
        penalty=penalty,
    )
