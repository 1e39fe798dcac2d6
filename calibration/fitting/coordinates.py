r"""The coordinates in which laws are fitted, and ln(loss) as a function of them.

A term of a law is measured at the middle of the runs and not where all its logarithms vanish: with N0 and D0
in the middle of the single-epoch runs, and (N0, U0, R0) in that of the runs that repeat,

    E / loss,  ln(A N0^-alpha / loss),  alpha,  ln(B D0^-beta / loss),  beta,
    ln(penalty at (N0, U0, R0) / loss),  its exponents ...

There an amplitude is hardly correlated with its exponents: the four-parameter penalty, whose P and gamma are
nearly degenerate (gamma from 0.4 to 0.7 moves P by three orders of magnitude at almost the same fit), is an
ordinary well-conditioned problem. Which parameter is measured in which unit, and on which scale, is said
where it is declared.

The Huber fit takes each parameter on the scale that it declares, so that E = 0 is a point and not a limit.
The Bayesian fit takes the logarithms of all, since corpora differ by factors.

Derivatives are exact for any form: they are taken along the imaginary axis, and second ones are differences
of those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from planner.calibration import Setting
from planner.laws import (
    BASE_PARAMETERS,
    FORMS,
    STEP,
    At,
    Law,
    Parameter,
    Terms,
    Values,
    form_named,
    natural,
)
from planner.solve import FLOPS_PER_PARAM_TOKEN

Array = np.ndarray
Points = tuple[Array, Array, Array]  # params, unique tokens, epochs

REPEATS = 4.0  # of a reference point
_LOGARITHMIC = ("amplitude", "logarithm")
_TERMS = ("amplitude", "linear")
_FURTHEST = 300.0  # of theta
_LEAST, _MOST = 1e-300, 1e300  # of a parameter: what a double holds
_DIFFERENCE = 1e-6  # of theta, for second derivatives


@dataclass(frozen=True)
class Coordinates:
    """How parameters become theta, and back."""

    parameters: tuple[Parameter, ...]
    single: At  # where the base law's terms are measured
    repeated: At  # and those that repetition adds
    loss: float = 1.0  # the unit of all terms
    logarithms: bool = False  # whether theta has those of all parameters, whatever they declare

    def natural(self, columns: Sequence[Any], known: Values | None = None) -> dict[str, Any]:
        """The parameters of theta, given column by column, as laws know them; `known` are others that their
        units may need.
        """
        found = dict(known or {})
        for parameter, column in zip(self.parameters, columns, strict=True):
            value = np.exp(column) if self._by_logarithm(parameter) else column
            found[parameter.name] = value * self.loss if parameter.kind in _TERMS else value
        return natural(self._own, natural(self._base, found, self.single), self.repeated)

    def theta(self, values: Values) -> list[Array]:
        """The other way round, column by column."""
        columns = []
        for parameter in self.parameters:
            value = np.asarray(values[parameter.name], dtype=float)
            if parameter.unit is not None:
                value = value / parameter.unit(
                    values, self.single if parameter in self._base else self.repeated
                )
            value = value / self.loss if parameter.kind in _TERMS else value
            columns.append(np.log(value) if self._by_logarithm(parameter) else value)
        return columns

    def scaled(self, parameter: Parameter, values: Sequence[float]) -> Array:
        """Bounds or starts as they are declared, on the scale of theta."""
        return np.log(values) if self._by_logarithm(parameter) else np.array(values, dtype=float)

    def _by_logarithm(self, parameter: Parameter) -> bool:
        return self.logarithms or parameter.kind in _LOGARITHMIC

    @cached_property
    def _base(self) -> tuple[Parameter, ...]:
        return tuple(parameter for parameter in self.parameters if parameter.name in BASE_PARAMETERS)

    @cached_property
    def _own(self) -> tuple[Parameter, ...]:
        return self.parameters[len(self._base) :]


@dataclass(frozen=True)
class Model:
    """ln(loss) of all runs as a function of theta, for a batch of problems: theta is (problems, parameters).

    `known` are parameters that are locked, each one for all problems or (problems, 1).
    """

    terms: Callable[[Values, At], Terms]
    coordinates: Coordinates
    at: At  # the runs
    known: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.coordinates.parameters)

    def log_prediction(self, theta: Array) -> Array:
        """(problems, runs)."""
        return np.asarray(np.log(self._loss(self._columns(theta))))

    def slopes(self, theta: Array) -> tuple[Array, Array]:
        """ln(loss), and its derivatives by theta: (parameters, problems, runs)."""
        columns = self._columns(theta)
        loss = self._loss(columns)
        first = np.empty((self.size, *loss.shape))
        for k in range(self.size):
            first[k] = self._slope(columns, k)
        first /= loss
        return np.log(loss), first

    def bends(self, theta: Array, pull: Array) -> Array:
        """Second derivatives of ln(loss), summed over the runs with the weights `pull`, (problems, runs):
        (parameters, parameters, problems). Differences of exact first derivatives.
        """
        columns = self._columns(theta)
        share = pull / self._loss(columns)
        first = [self._slope(columns, k) for k in range(self.size)]
        drawn = share / self._loss(columns)
        found = np.empty((self.size, self.size, len(theta)))
        for j in range(self.size):
            ahead = [column + _DIFFERENCE if i == j else column for i, column in enumerate(columns)]
            for k in range(j + 1):
                second = (self._slope(ahead, k) - first[k]) / _DIFFERENCE
                found[j, k] = np.einsum("bn,bn->b", share, second)
                found[j, k] -= np.einsum("bn,bn,bn->b", drawn, first[j], first[k])
                found[k, j] = found[j, k]
        return found

    def pick(self, problems: Array | slice) -> Model:
        """The model restricted to some of its problems."""
        if not any(np.ndim(value) for value in self.known.values()):
            return self
        known = {name: v[problems] if np.ndim(v) else v for name, v in self.known.items()}
        return replace(self, known=known)

    def _columns(self, theta: Array) -> list[Array]:
        return [theta[:, k, None] for k in range(self.size)]

    def _slope(self, columns: list[Array], k: int) -> Array:
        """Of the loss by theta k."""
        stepped = [column + 1j * STEP if i == k else column for i, column in enumerate(columns)]
        return np.asarray(np.imag(self._loss(stepped)) / STEP)

    def _loss(self, columns: list[Array]) -> Array:
        with np.errstate(all="ignore"):  # a step out of the domain is refused later
            return np.asarray(self.terms(self.coordinates.natural(columns, self.known), self.at).loss)


# -- around a reference point --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """Where the terms of a law are compared: at theta = (ln of each term there, ln of each exponent)."""

    params: float
    unique_tokens: float
    repeats: float = REPEATS

    @staticmethod
    def of(setting: Setting) -> Reference:
        """The middle of what a setting was fitted on, where its terms are known best."""
        low, high = setting.fitted_on.unique_tokens
        return Reference(float(np.sqrt(np.prod(setting.fitted_on.params))), float(np.sqrt(low * high)))

    @staticmethod
    def among(points: Points) -> Reference:
        """The middle of some runs."""
        return Reference(*(float(np.exp(np.log(values).mean())) for values in points[:2]))

    def coordinates(self, form: str) -> Coordinates:
        single, repeated = (At(self.params, self.unique_tokens, epochs) for epochs in (1.0, 1 + self.repeats))
        return Coordinates(form_named(form).parameters, single, repeated, logarithms=True)

    def theta(self, law: Law) -> Array:
        return np.array(self.coordinates(law.form).theta(law.parameters))

    def law(self, form: str, theta: Array) -> Law:
        """The law of theta; theta may be (parameters, draws) for many."""
        with np.errstate(over="ignore", divide="ignore"):
            found = self.coordinates(form).natural(list(np.clip(theta, -_FURTHEST, _FURTHEST)))
        return Law(form, {name: np.clip(found[name], _LEAST, _MOST) for name in FORMS[form].names})

    def model(self, form: str, points: Points) -> Model:
        return Model(form_named(form).terms, self.coordinates(form), At(*points), {})


def log_loss(form: str, reference: Reference, theta: Array, points: Points) -> tuple[Array, Array]:
    """ln(loss), (laws, runs), and its derivatives by theta, (laws, runs, parameters), of theta (laws,
    parameters)."""
    value, slopes = reference.model(form, points).slopes(np.clip(theta, -_FURTHEST, _FURTHEST))
    return value, np.moveaxis(slopes, 0, -1)


def flops_of(points: Points) -> Array:
    return FLOPS_PER_PARAM_TOKEN * points[0] * points[1] * points[2]


def points_of(table: pd.DataFrame) -> Points:
    params, unique, epochs = (
        table[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")
    )
    return params, unique, epochs


def joined(*parts: Points) -> Points:
    params, unique, epochs = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return params, unique, epochs
