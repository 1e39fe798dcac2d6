r"""Models whose terms are curved in their parameters: forms with a fading value of repeats, or a penalty of
any shape.

The predicted loss is a sum of terms t_k = exp(l_k), with the floor E as a linear term. With the shares s_k =
t_k / prediction and the derivatives of the l_k, which the pieces of a form bring,

    dm    = sum_k s_k dl_k
    d^2 m = sum_k s_k (dl_k dl_k^T + d^2 l_k)  -  dm dm^T

for m, the logarithm of the prediction: exact, whatever the form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from calibration.fitting.objective import Array, Curvature, Move, weighted
from calibration.fitting.runs import Runs
from planner.laws.forms import At, Jet, LawForm, Parameter, Values, jet

_BASE = 5  # E / scale, ln A_c, alpha, ln B_c, beta


@dataclass(frozen=True)
class _Term:
    """ln of one term with its derivatives: by parameter number, and by pairs of them."""

    ln: Array  # (B, n)
    first: dict[int, Array]
    second: dict[tuple[int, int], Array]  # numbers ascending

    def beyond(self, size: int) -> _Term:
        """The same term with the first parameters held."""
        first = {i - size: one for i, one in self.first.items() if i >= size}
        second = {(i - size, j - size): bend for (i, j), bend in self.second.items() if i >= size}
        return _Term(self.ln, first, second)


@dataclass(frozen=True)
class Curved:
    """ln of E + A / N^alpha + B / D'^beta + penalty + premium, for any pieces.

    Parameters: the base law [E / scale, ln A_c, alpha, ln B_c, beta] unless it is locked, then those of the
    value of repeats, of the penalty and of the premium, each on the scale that its declaration names. A
    locked base is (5,) or (B, 5).
    """

    declared: LawForm
    runs: Runs
    base: Array | None = None
    curve: Move | None = None

    @property
    def size(self) -> int:
        return self._own + len(self.declared.repetition)

    @property
    def _own(self) -> int:
        """Where the form's own parameters begin."""
        return _BASE if self.base is None else 0

    def log_prediction(self, theta: Array) -> Array:
        floor, terms = self._terms(theta, derivatives=False)
        return np.asarray(np.log(sum((np.exp(term.ln) for term in terms), start=floor)))

    def curvature(self, theta: Array, target: Array, weights: Array, delta: float) -> Curvature:
        floor, terms = self._terms(theta, derivatives=True)
        values = [np.exp(term.ln) for term in terms]
        prediction = sum(values, start=floor * np.ones_like(values[0]))
        value, slope, core, secant = weighted(np.log(prediction) - target, weights, delta)
        inverse = np.reciprocal(prediction)
        first = np.zeros((self.size, *prediction.shape))
        bent = np.zeros((self.size, self.size, len(prediction)))  # sum_i w rho' d^2 m, without - dm dm^T
        for term, amount in zip(terms, values, strict=True):
            if not term.first:  # it is locked
                continue
            share = amount * inverse
            pull = slope * share
            for i, one in term.first.items():
                first[i] += share * one
                drawn = pull * one
                for j, other in term.first.items():
                    if j >= i:
                        bent[i, j] += _summed(drawn, other)
            for (i, j), bend in term.second.items():
                bent[i, j] += _summed(pull, bend)
        if self.base is None:
            first[0] += self.runs.scale * inverse
        lower = np.tril_indices(self.size, -1)
        bent[lower] = bent.transpose(1, 0, 2)[lower]
        core -= slope
        bent += _products(core, first)
        return Curvature(value, _summed(first, slope), bent, _products(secant, first))

    def pick(self, problems: Array | slice) -> Curved:
        return self if self.base is None or self.base.ndim == 1 else replace(self, base=self.base[problems])

    def move(self, theta: Array, step: Array) -> Array:
        return theta - step if self.curve is None else self.curve(theta, step)

    # -- terms -----------------------------------------------------------------------------------------------

    def _terms(self, theta: Array, *, derivatives: bool) -> tuple[Array, list[_Term]]:
        base = theta[:, :_BASE] if self.base is None else np.atleast_2d(self.base)
        own = [theta[:, self._own + i, None] for i in range(len(self.declared.repetition))]
        terms = [self._capacity(base), self._data(base, own, derivatives)]
        if self.declared.penalty is not None:
            terms.append(self._penalty(own, derivatives))
        if self.declared.premium is not None and not self.declared.premium.of_data:
            terms.append(self._premium(own, derivatives))
        if self.base is not None:  # what is locked has no derivatives
            terms = [term.beyond(_BASE) for term in terms]
        return base[:, :1] * self.runs.scale, terms

    def _capacity(self, base: Array) -> _Term:
        n = self.runs.ln_params - self.runs.ref_params
        return _Term(base[:, 1:2] - base[:, 2:3] * n, {1: np.ones_like(n), 2: -n}, {})

    def _data(self, base: Array, own: Sequence[Array], derivatives: bool) -> _Term:
        ln_b, beta = base[:, 3:4], base[:, 4:5]
        around = self.runs.ln_unique - self.runs.ref_tokens
        places = self._of_data
        parameters = [self.declared.repetition[place] for place in places]
        values, chain = _natural(parameters, [own[place] for place in places])
        if not derivatives:
            return _Term(ln_b - beta * (around + self._ln_seen(values)), {}, {})
        seen = _chained(self._seen_jet(values), chain)
        ln_d = around + seen.value
        first = {3: np.ones_like(ln_d), 4: -ln_d}
        second = {}
        for i, one in enumerate(seen.first):
            first[_BASE + places[i]] = -beta * one
            second[4, _BASE + places[i]] = -one
            for j in range(i, len(seen.first)):
                second[_BASE + places[i], _BASE + places[j]] = -beta * seen.second[i][j]
        return _Term(ln_b - beta * ln_d, first, second)

    @property
    def _of_data(self) -> list[int]:
        """Which of the form's own parameters the data term has: of the value of repeats, and of a premium
        that is charged in data.
        """
        count, premium = len(self.declared.repetition), self.declared.premium
        own = list(range(len(self.declared.repeats.parameters)))
        return (
            own + list(range(count - _premiums(self.declared), count)) if premium and premium.of_data else own
        )

    def _ln_seen(self, values: Values) -> Array:
        """ln of the data's worth over the unique tokens."""
        seen = self.declared.repeats.ln_seen(values, 1 + self.runs.repeats, self._ratio)
        premium = self.declared.premium
        if premium is None or not premium.of_data:
            return np.asarray(seen)
        ln_unique = self.runs.ln_unique
        ln_memory = self.runs.ln_memory + ln_unique  # in tokens
        ln_sees = premium.ln_sees(ln_unique + seen, self.runs.ln_params, ln_memory)
        return np.asarray(seen - premium.ln_shape(values, ln_sees))

    def _seen_jet(self, values: Values) -> Jet:
        """The same with its derivatives by the parameters of the data term."""
        repeats, premium = self.declared.repeats, self.declared.premium
        if premium is None or not premium.of_data:
            return repeats.seen_jet(values, 1 + self.runs.repeats, self._ratio)
        return jet(self._ln_seen, values, (*repeats.names, *premium.names))

    def _penalty(self, own: Sequence[Array], derivatives: bool) -> _Term:
        piece = self.declared.penalty
        assert piece is not None
        first_of_penalty = len(own) - len(piece.parameters) - _premiums(self.declared)
        size, *shape = own[first_of_penalty : len(own) - _premiums(self.declared)]
        values, chain = _natural(piece.parameters[1:], shape)
        values.update(piece.fixed)
        none = self.runs.single & (not piece.first_pass)
        if not derivatives:
            ln = size + piece.ln_shape(values, self._repeated) - piece.ln_shape(values, self._middle)
            return _Term(np.where(none, -np.inf, ln), {}, {})
        here = _chained(piece.shape_jet(values, self._repeated), chain)
        middle = _chained(piece.shape_jet(values, self._middle), chain)
        ln = np.where(none, -np.inf, size + here.value - middle.value)
        start = _BASE + first_of_penalty
        first = {start: np.ones_like(ln)}
        second = {}
        # Runs without repeats stand at the middle, so that nothing is left of theirs.
        for i, (one, at_middle) in enumerate(zip(here.first, middle.first, strict=True)):
            first[start + 1 + i] = one - at_middle
            for j in range(i, len(here.first)):
                second[start + 1 + i, start + 1 + j] = here.second[i][j] - middle.second[i][j]
        return _Term(ln, first, second)

    def _premium(self, own: Sequence[Array], derivatives: bool) -> _Term:
        piece, ln_memory = self.declared.premium, self.runs.ln_memory
        assert piece is not None
        before = len(own) - len(piece.parameters)
        values, chain = _natural(piece.parameters, own[before:])
        if not derivatives:
            return _Term(piece.ln_shape(values, ln_memory), {}, {})
        here = _chained(piece.shape_jet(values, ln_memory), chain)
        numbers = range(_BASE + before, _BASE + len(own))
        first = dict(zip(numbers, here.first, strict=True))
        second: dict[tuple[int, int], Array] = {}
        for i, number in enumerate(numbers):
            second |= {(number, numbers[j]): here.second[i][j] for j in range(i, len(numbers))}
        return _Term(here.value, first, second)

    # -- where the runs are ----------------------------------------------------------------------------------

    @cached_property
    def _ratio(self) -> Array:
        """ln(N / U) as the value of repeats sees it."""
        ratio: Array = self.runs.ln_params - self.runs.ln_unique
        middle = self.runs.middle
        return ratio - (middle.ln_params - middle.ln_unique) if self.declared.repeats.centred else ratio

    @cached_property
    def _middle(self) -> At:
        """The middle of the runs as the penalty sees it."""
        middle, penalty = self.runs.middle, self.declared.penalty
        return middle._replace(ln_params=0.0, ln_unique=0.0) if penalty and penalty.centred else middle

    @cached_property
    def _repeated(self) -> At:
        """Where the penalty sees the runs; those without repeats, whose penalty does not count, are put at
        the middle, unless passes are counted.
        """
        penalty, at, away = self.declared.penalty, self.runs.at, self.runs.single
        if penalty is not None and penalty.first_pass:
            at, away = at._replace(ln_repeats=np.log1p(self.runs.repeats)), np.zeros_like(away)
        places = zip(at, self.runs.middle, self._middle, strict=True)
        return At(*(np.where(away, seen, there - (middle - seen)) for there, middle, seen in places))


def _premiums(declared: LawForm) -> int:
    """How many of a form's own parameters, the last ones, are those of its premium."""
    return 0 if declared.premium is None else len(declared.premium.parameters)


def _summed(amounts: Array, by: Array) -> Array:
    """sum_n a_n b_n for every problem, where b may be the same for all of them."""
    if np.ndim(by) < 2:
        return np.asarray(amounts @ by if np.ndim(by) else by * amounts.sum(axis=-1))
    return np.asarray(np.einsum("...bn,bn->...b", amounts, by))


def _products(weights: Array, rows: Array) -> Array:
    """sum_n w_n x_n x_n^T for every problem: (B, n) and (p, B, n) give (p, p, B)."""
    left = (weights * rows).transpose(1, 0, 2)
    return np.asarray(np.matmul(left, rows.transpose(1, 2, 0)).transpose(1, 2, 0))


def natural(declared: LawForm, columns: Sequence[Array], middle: At) -> dict[str, Array]:
    """A form's own parameters, as laws know them, from those of a fit."""
    if declared.premium is not None:
        before = len(columns) - _premiums(declared)
        premium, _ = _natural(declared.premium.parameters, columns[before:])
        return natural(replace(declared, premium=None), columns[:before], middle) | premium
    fading = [p for piece in (declared.repeats, declared.size) for p in piece.parameters]
    values, _ = _natural(fading, columns[: len(fading)])
    values = declared.repeats.absolute(values, middle)
    if declared.penalty is None:
        return values
    size, *shape = columns[len(fading) :]
    own, _ = _natural(declared.penalty.parameters[1:], shape)
    own = declared.penalty.absolute(own, middle)
    ln_shape = declared.penalty.ln_shape({**own, **declared.penalty.fixed}, middle)
    return {**values, "P": np.exp(size - ln_shape), **own}


def _natural(
    parameters: Sequence[Parameter], columns: Sequence[Array]
) -> tuple[dict[str, Any], list[Array | None]]:
    """Parameters by name, and d p / d theta of each: p itself for a logarithm, None (one) for an exponent."""
    values: dict[str, Any] = {}
    chain: list[Array | None] = []
    for parameter, column in zip(parameters, columns, strict=True):
        by_logarithm = parameter.kind == "logarithm"
        values[parameter.name] = np.exp(column) if by_logarithm else column
        chain.append(values[parameter.name] if by_logarithm else None)
    return values, chain


def _chained(of: Jet, chain: Sequence[Array | None]) -> Jet:
    """A jet by the parameters of a fit: d/d ln p = p d/dp, and its square."""
    first = tuple(_times(one, factor) for factor, one in zip(chain, of.first, strict=True))
    second = [list(row) for row in of.second]
    for i, own in enumerate(chain):
        for j in range(i, len(chain)):
            second[i][j] = second[j][i] = _times(_times(second[i][j], own), chain[j])
        if own is not None:
            second[i][i] = second[i][i] + first[i]
    return Jet(of.value, first, tuple(map(tuple, second)))


def _times(value: Array, factor: Array | None) -> Array:
    return value if factor is None else value * factor
