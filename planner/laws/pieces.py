r"""The pieces that law forms are made of: what repeated tokens and oversized models are worth, and what
repetition costs.

    Decaying     D' = U (1 + R_D* (1 - exp(-R / R_D*)))         repeats fade
    Paced        the same with R_D* (U / N)^rho for R_D*         and the sooner the larger the model
    Saturating   N' = U_N (1 + R_N* (1 - exp(-R_N / R_N*)))     size beyond what the data wants fades,
                 U_N = min(N_opt(U), N),  R_N = N / U_N - 1
    Power        P R^delta (N / U^gamma)^kappa                  overfitting grows with repeats and size
    Hill         P R^delta z / (1 + z),  z = (N / (c U^gamma))^kappa        it levels off in size
    Bounded      P h / (1 + h),  h = R^delta (N / (c U^gamma))^kappa        and in repeats
    Steepening   P e^(delta h),  h = N / (N + c U^gamma)        the first pass costs all models the same

and, for dials, which know AdamW's memory of M tokens or tau = M / U epochs,

    Remembered   any of these penalties times exp(-mu / tau)    what is still remembered of what overfits
    Forgotten    1 / D'' = 1 / D' + 1 / (k M)                   data is worth no more than is remembered
    Outgrown     D'' = D' (1 + N D' / (k M)^2)^(-s / 2)         the same, and large models want longer memory
    Hinge        q [ln(tau_c / tau)]_+^2                        the same in nats, with a smooth corner

N_opt(U) is the model size for which U tokens are compute-optimal under the same base law. Below one epoch
only U e tokens are ever seen, none of them twice: the unique tokens are then U e.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.laws.forms import (
    Array,
    At,
    Jet,
    Parameter,
    Penalty,
    Premium,
    Repeats,
    Size,
    Values,
    Varied,
)

_TINY = 1e-300
_STAR = (1e-2, 1e6)  # beyond a million repeats nothing saturates
_AMOUNT = (1e-7, 100.0)
_EXPONENT = (0.02, 5.0)
HILL_KAPPA = 2.0  # where it is not free
DECAY_STARTS = (1.5, 5.0, 10.0, 20.0, 50.0, 200.0, 1000.0)


def amplitude(
    starts: tuple[float, ...] = (0.001, 0.01, 0.03, 0.1, 0.5), *, linear: bool = False
) -> Parameter:
    """P, the size of a penalty; `linear` lets a fit find none at all."""
    bounds = (0.0, 100.0) if linear else _AMOUNT
    return Parameter("P", "P", "linear" if linear else "amplitude", bounds, starts, 2.0)


def exponent(name: str, symbol: str, starts: tuple[float, ...], prior_sd: float) -> Parameter:
    return Parameter(name, symbol, "exponent", _EXPONENT, starts, prior_sd)


@dataclass(frozen=True)
class Decaying(Repeats):
    """Each repeat of the data is worth less than the one before: exponential decay over R_D* repeats."""

    parameters: tuple[Parameter, ...] = (
        Parameter("R_D_star", "R*_D", "logarithm", _STAR, DECAY_STARTS, 1.0),
    )

    def ln_seen(self, p: Values, epochs: Array, ln_ratio: Array) -> Array:
        repeats = np.maximum(epochs - 1, 0)
        return np.log(np.minimum(epochs, 1) - p["R_D_star"] * np.expm1(-repeats / p["R_D_star"]))

    def with_slopes(self, p: Values, epochs: Array, ln_ratio: Array) -> tuple[Array, Array, Array]:
        share = np.maximum(epochs - 1, 0) / p["R_D_star"]
        seen = np.minimum(epochs, 1) - p["R_D_star"] * np.expm1(-share)
        return np.log(seen), np.exp(-share) * epochs / seen, 0.0

    def ln_most(self, p: Values) -> Array:
        return np.log1p(p["R_D_star"])

    def seen_jet(self, p: Values, epochs: Array, ln_ratio: Array) -> Jet:
        star = p["R_D_star"]
        value, first, second = _by_half_life(star, epochs)
        return Jet(value, (first / star,), (((second - first) / star**2,),))


@dataclass(frozen=True)
class Paced(Repeats):
    """Repeats fade over R_D* (U / N)^rho repeats: a large model has had enough of its data sooner."""

    parameters: tuple[Parameter, ...] = (
        Parameter("R_D_star", "R*_D", "logarithm", _STAR, (3.0, 15.0, 100.0), 1.0),
        Parameter("rho", "ρ", "exponent", _EXPONENT, (0.2, 0.8), 0.5),
    )
    by_size = True
    centred = True

    def ln_seen(self, p: Values, epochs: Array, ln_ratio: Array) -> Array:
        return _by_half_life(_half_life(p["R_D_star"], p["rho"], ln_ratio), epochs)[0]

    def with_slopes(self, p: Values, epochs: Array, ln_ratio: Array) -> tuple[Array, Array, Array]:
        star = _half_life(p["R_D_star"], p["rho"], ln_ratio)
        value, by_star, _ = _by_half_life(star, epochs)
        faded = np.exp(-np.maximum(epochs - 1, 0) / star)
        slope = np.where(epochs > 1, faded * epochs * np.exp(-value), 1.0)
        return value, slope, -p["rho"] * by_star

    def seen_jet(self, p: Values, epochs: Array, ln_ratio: Array) -> Jet:
        star = p["R_D_star"]
        value, first, second = _by_half_life(_half_life(star, p["rho"], ln_ratio), epochs)
        cross = -ln_ratio * second / star
        bends = (((second - first) / star**2, cross), (cross, ln_ratio**2 * second))
        return Jet(value, (first / star, -ln_ratio * first), bends)

    def ln_units(self, p: Values, middle: At) -> dict[str, Array]:
        return {"R_D_star": p["rho"] * (middle.ln_params - middle.ln_unique)}


def _half_life(star: Array, rho: Array, ln_ratio: Array) -> Array:
    """R_D* (U / N)^rho, kept where exponentials of it are numbers."""
    return np.exp(np.clip(np.log(star) - rho * ln_ratio, -300.0, 300.0))


def _by_half_life(star: Array, epochs: Array) -> tuple[Array, Array, Array]:
    """ln(D' / U) with its first and second derivative by ln R*."""
    repeats = np.maximum(epochs - 1, 0)
    share = repeats / star
    faded = repeats * np.exp(-share)
    gain = -star * np.expm1(-share)
    seen = np.minimum(epochs, 1) + gain
    first = (gain - faded) / seen
    return np.log(seen), first, (gain - faded - faded * share) / seen - first**2


@dataclass(frozen=True)
class Saturating(Size):
    """Size beyond what is optimal for the unique tokens is worth less: exponential decay over R_N*."""

    parameters: tuple[Parameter, ...] = (
        Parameter(
            "R_N_star", "R*_N", "logarithm", _STAR, (0.3, 1.0, 2.0, 5.0, 15.0, 50.0, 200.0, 1e3, 1e4), 2.0
        ),
    )

    def ln_effective(
        self, p: Values, ln_params: Array, ln_optimal: Callable[[], Array]
    ) -> tuple[Array, Array, Array]:
        ln_used = np.minimum(ln_optimal(), ln_params)
        excess = np.exp(ln_params - ln_used)  # N / U_N >= 1
        growth = 1 - p["R_N_star"] * np.expm1(-(excess - 1) / p["R_N_star"])
        by_n = np.where(excess > 1, np.exp(-(excess - 1) / p["R_N_star"]) * excess / growth, 1.0)
        return ln_used + np.log(growth), by_n, (1 - by_n) * p["beta"] / p["alpha"]


@dataclass(frozen=True)
class Power(Penalty):
    """The additive penalty of the paper; exponents that are not parameters are held at one.

    Its logarithm is linear in (ln P, delta, kappa, kappa gamma), the coordinates in which it is fitted.
    """

    parameters: tuple[Parameter, ...]
    fixed: Mapping[str, float] = field(init=False)
    in_logarithms_linear = True

    def __post_init__(self) -> None:
        free = {parameter.name for parameter in self.parameters}
        held = {name: 1.0 for name in ("delta", "kappa", "gamma") if name not in free}
        object.__setattr__(self, "fixed", held)

    def ln_shape(self, p: Values, at: At) -> Array:
        return p["delta"] * at.ln_repeats + p["kappa"] * (at.ln_params - p["gamma"] * at.ln_unique)

    def with_slopes(self, p: Values, at: At) -> tuple[Array, At]:
        return self.ln_shape(p, at), At(p["kappa"], -(p["kappa"] * p["gamma"]), p["delta"])

    def shape_jet(self, p: Values, at: At) -> Jet:
        around = at.ln_params - p["gamma"] * at.ln_unique
        by = {"delta": at.ln_repeats, "kappa": around, "gamma": -p["kappa"] * at.ln_unique}
        twice = {("kappa", "gamma"): -at.ln_unique, ("gamma", "kappa"): -at.ln_unique}
        names = self.names[1:]
        second = tuple(tuple(twice.get((one, other), 0.0) for other in names) for one in names)
        return Jet(self.ln_shape(p, at), tuple(by[name] for name in names), second)

    def factors(self, p: Values, ln_product: Array, ln_unique: Array, epochs: Array) -> tuple[Array, Array]:
        repeats = epochs - 1
        ln_repeats = np.log(np.maximum(repeats, _TINY))
        there = self.ln_shape(p, At(-np.log(epochs), 0.0, ln_repeats))
        repetition = np.where(repeats > 0, p["P"] * np.exp(there), 0.0)
        return np.exp(p["kappa"] * (ln_product - p["gamma"] * ln_unique)), repetition

    def on_isoflop(self, p: Values, ln_product: Array, ln_unique: Array, epochs: Array) -> Array:
        budget, repetition = self.factors(p, ln_product, ln_unique, epochs)
        return budget * repetition

    # -- the linear form, for fits ---------------------------------------------------------------------------

    def design(self, at: At) -> tuple[list[Array], Array]:
        """Columns of the coordinates after ln P, and what exponents held at one add to ln(penalty)."""
        columns, rest = [], 0.0 * at.ln_params
        if "delta" in self.fixed:
            rest = rest + at.ln_repeats
        else:
            columns.append(at.ln_repeats)
        if "kappa" in self.fixed:
            rest = rest + at.ln_params - at.ln_unique
        elif "gamma" in self.fixed:
            columns.append(at.ln_params - at.ln_unique)
        else:
            columns += [at.ln_params, -at.ln_unique]
        return columns, rest

    def exponents(self, coordinates: Sequence[Array]) -> dict[str, Array]:
        """The exponents that belong to the coordinates after ln P."""
        found: dict[str, Array] = dict(self.fixed)
        rest = list(coordinates)
        for name in ("delta", "kappa"):
            if name not in found:
                found[name] = rest.pop(0)
        if rest:
            found["gamma"] = rest[0] / found["kappa"]
        return found

    @property
    def needs(self) -> tuple[Varied, ...]:
        varied = []
        if "kappa" not in self.fixed and "gamma" in self.fixed:
            varied.append(Varied("params / unique_tokens", lambda at: at.ln_params - at.ln_unique))
        elif "kappa" not in self.fixed:
            varied += [
                Varied("params", lambda at: at.ln_params),
                Varied("unique_tokens", lambda at: at.ln_unique),
            ]
        if "delta" not in self.fixed:
            varied.append(Varied("repeats", lambda at: at.ln_repeats))
        return tuple(varied)


@dataclass(frozen=True)
class Hill(Penalty):
    """A penalty that grows with size no further than to a level: Hill's curve z / (1 + z) of z = (N / (c
    U^gamma))^kappa.

    c U^gamma is the size at which half of the level is reached. For c -> infinity it is the additive penalty.
    With `repeats_too` the power of the repeats stands inside of z, so that the level is one for everything.
    """

    parameters: tuple[Parameter, ...]
    repeats_too: bool = False
    fixed: Mapping[str, float] = field(init=False)
    centred = True

    def __post_init__(self) -> None:
        held = {} if "kappa" in self.names else {"kappa": HILL_KAPPA}
        object.__setattr__(self, "fixed", held)

    def _inside(self, p: Values, at: At) -> Array:
        """ln z."""
        ln_z = p["kappa"] * (at.ln_params - p["gamma"] * at.ln_unique - np.log(p["c"]))
        return ln_z + p["delta"] * at.ln_repeats if self.repeats_too else ln_z

    def ln_shape(self, p: Values, at: At) -> Array:
        levelled = -softplus(-self._inside(p, at))
        return levelled if self.repeats_too else p["delta"] * at.ln_repeats + levelled

    def with_slopes(self, p: Values, at: At) -> tuple[Array, At]:
        ln_z = self._inside(p, at)
        levelled = -softplus(-ln_z)
        left = np.exp(levelled - ln_z)  # of the power law's slope: 1 / (1 + z)
        by_params = left * p["kappa"]
        if self.repeats_too:
            return levelled, At(by_params, -by_params * p["gamma"], left * p["delta"])
        return p["delta"] * at.ln_repeats + levelled, At(by_params, -by_params * p["gamma"], p["delta"])

    def shape_jet(self, p: Values, at: At) -> Jet:
        ln_z = self._inside(p, at)
        left = left_of(ln_z)
        levelled = -softplus(-ln_z)
        bend = left * (left - 1)  # d^2 by ln z
        outside = 0.0 if self.repeats_too else at.ln_repeats
        by = {
            "delta": at.ln_repeats if self.repeats_too else 0.0,
            "c": -p["kappa"] / p["c"],
            "gamma": -p["kappa"] * at.ln_unique,
            "kappa": at.ln_params - p["gamma"] * at.ln_unique - np.log(p["c"]),
        }
        twice = {
            ("c", "c"): p["kappa"] / p["c"] ** 2,
            ("c", "kappa"): -1.0 / p["c"],
            ("gamma", "kappa"): -at.ln_unique,
        }  # in the order of the parameters
        names = self.names[1:]
        first = tuple(left * by[name] + (outside if name == "delta" else 0.0) for name in names)
        curved = {name: bend * by[name] for name in names}
        found: dict[tuple[str, str], Array] = {}
        for i, one in enumerate(names):
            for other in names[i:]:
                product = curved[one] * by[other]
                known = twice.get((one, other))
                found[one, other] = found[other, one] = product if known is None else product + left * known
        second = tuple(tuple(found[one, other] for other in names) for one in names)
        return Jet(levelled + p["delta"] * outside, first, second)

    def ln_units(self, p: Values, middle: At) -> dict[str, Array]:
        return {"c": middle.ln_params - p["gamma"] * middle.ln_unique}


@dataclass(frozen=True)
class Steepening(Penalty):
    """A penalty that grows with a power of the passes, the higher the larger the model: P e^(delta h), where
    h = N / (N + c U^gamma) is the model's share next to its data.

    One pass costs P, whatever the size and the data; c U^gamma is the size at which half of the power delta
    is reached.
    """

    parameters: tuple[Parameter, ...]
    centred = True

    def _share(self, p: Values, at: At) -> Array:
        """h."""
        return left_of(p["gamma"] * at.ln_unique + np.log(p["c"]) - at.ln_params)

    def ln_shape(self, p: Values, at: At) -> Array:
        return p["delta"] * at.ln_repeats * self._share(p, at)

    def with_slopes(self, p: Values, at: At) -> tuple[Array, At]:
        share = self._share(p, at)
        shape = p["delta"] * at.ln_repeats * share
        by_params = shape * (1 - share)
        return shape, At(by_params, -p["gamma"] * by_params, p["delta"] * share)

    def shape_jet(self, p: Values, at: At) -> Jet:
        share, c, passes = self._share(p, at), p["c"], at.ln_repeats
        falls = -passes * share * (1 - share)  # by ln(c U^gamma), as the two below, over delta
        by_c, by_gamma = falls / c, falls * at.ln_unique
        bends = p["delta"] * falls * (2 * share - 1)
        cross = bends * at.ln_unique / c
        second = (
            (0.0, by_c, by_gamma),
            (by_c, (bends - p["delta"] * falls) / c**2, cross),
            (by_gamma, cross, bends * at.ln_unique**2),
        )
        return Jet(
            p["delta"] * passes * share, (passes * share, p["delta"] * by_c, p["delta"] * by_gamma), second
        )

    def ln_units(self, p: Values, middle: At) -> dict[str, Array]:
        return {"c": middle.ln_params - p["gamma"] * middle.ln_unique}


def left_of(ln_z: Array) -> Array:
    """1 / (1 + z)."""
    return np.exp(-softplus(ln_z))


def softplus(x: Array) -> Array:
    """ln(1 + e^x); numpy's own way to say it, logaddexp, takes a hundred times as long."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


# -- pieces of dials -------------------------------------------------------------------------------------

_CORNER = 0.5  # width of the hinge's corner, in ln(tau)


def by_logarithm(
    name: str, symbol: str, bounds: tuple[float, float], starts: tuple[float, ...], prior_sd: float = 0.5
) -> Parameter:
    return Parameter(name, symbol, "logarithm", bounds, starts, prior_sd)


@dataclass(frozen=True)
class Remembered(Penalty):
    """A penalty times what AdamW still remembers when a token comes round again, exp(-mu / tau).

    With `first_pass` it is of e passes and not of R repeats: what was seen once is remembered too.
    """

    of: Penalty
    first_pass: bool = False
    parameters: tuple[Parameter, ...] = field(init=False)
    fixed: Mapping[str, float] = field(init=False)
    centred: bool = field(init=False)

    def __post_init__(self) -> None:
        memory = by_logarithm("mu", "μ", (1e-2, 1e3), (1.5, 4.0))
        object.__setattr__(self, "parameters", (*self.of.parameters, memory))
        object.__setattr__(self, "fixed", self.of.fixed)
        object.__setattr__(self, "centred", self.of.centred)

    def ln_shape(self, p: Values, at: At) -> Array:
        return self.of.ln_shape(p, at) - p["mu"] * np.exp(-at.ln_memory)

    def with_slopes(self, p: Values, at: At) -> tuple[Array, At]:
        shape, by = self.of.with_slopes(p, at)
        forgotten = p["mu"] * np.exp(-at.ln_memory)
        return shape - forgotten, by._replace(ln_memory=forgotten)

    def shape_jet(self, p: Values, at: At) -> Jet:
        inner, forgetting = self.of.shape_jet(p, at), -np.exp(-at.ln_memory)
        none = (0.0,) * (len(inner.first) + 1)
        value = inner.value + p["mu"] * forgetting
        return Jet(value, (*inner.first, forgetting), (*((*row, 0.0) for row in inner.second), none))

    def ln_units(self, p: Values, middle: At) -> dict[str, Array]:
        return self.of.ln_units(p, middle)


class Forgotten(Premium):
    """No more is known than is remembered: the harmonic sum 1 / D'' = 1 / D' + 1 / (k M)."""

    parameters: tuple[Parameter, ...] = (by_logarithm("k", "k", (1e-2, 1e6), (10.0, 40.0)),)
    of_data = True
    corner = 1.0

    def ln_shape(self, p: Values, ln_sees: Array) -> Array:
        inside = self.corner * (ln_sees - np.log(p["k"]))
        curve = np.log1p(np.exp(inside)) if np.iscomplexobj(inside) else softplus(inside)
        return p.get("s", 1.0) / self.corner * curve

    def with_slope(self, p: Values, ln_sees: Array) -> tuple[Array, Array]:
        curve, steep = softplus(self.corner * (ln_sees - np.log(p["k"]))), p.get("s", 1.0)
        return steep / self.corner * curve, -steep * np.expm1(-curve)


@dataclass(frozen=True)
class Outgrown(Forgotten):
    """A memory is short for a large model on much data: D'' = D' (1 + x^2)^(-s / 2), x^2 = N D' / (k M)^2."""

    parameters: tuple[Parameter, ...] = (
        by_logarithm("k", "k", (1e-2, 1e6), (3.0, 10.0)),
        Parameter("s", "s", "exponent", (0.05, 20.0), (0.6,), 0.5),
    )
    corner = 2.0
    powers = (0.5, 0.5)


@dataclass(frozen=True)
class Hinge(Premium):
    """A memory shorter than tau_c costs with the square of its logarithm.

    The corner is smooth, x -> (x + sqrt(x^2 + w^2)) / 2, whose logarithm is arcsinh(x / w) + ln(w / 2).
    """

    parameters: tuple[Parameter, ...] = (
        by_logarithm("q", "q", (1e-5, 10.0), (0.03,)),
        by_logarithm("tau_c", "τ_c", (1e-3, 100.0), (0.3, 1.0)),
    )

    def ln_shape(self, p: Values, ln_sees: Array) -> Array:
        corner = np.arcsinh((np.log(p["tau_c"]) - ln_sees) / _CORNER) + np.log(_CORNER / 2)
        return np.log(p["q"]) + 2 * corner

    def with_slope(self, p: Values, ln_sees: Array) -> tuple[Array, Array]:
        return self.ln_shape(p, ln_sees), -2 / np.hypot(np.log(p["tau_c"]) - ln_sees, _CORNER)
