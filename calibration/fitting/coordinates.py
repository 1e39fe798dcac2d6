r"""The coordinates in which laws are believed: logarithms of each term at a reference configuration, and of
each exponent. There the parameters of a law are nearly independent, and corpora differ in them by factors.

With N0, U0 and R0 the reference, theta = (ln E, ln A N0^-alpha, ln alpha, ln B U0^-beta, ln beta, ...), where
a penalty's P stands for its size at the reference. `log_loss` gives ln(loss) of many laws at many runs with
its exact derivatives by theta: the terms of the law are exponentials, and the rest is differentiated along
the imaginary axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.calibration_files import Setting
from planner.laws import FORMS, Array, Law, parameter_names
from planner.laws.forms import At, Penalty, Piece, Values

REPEATS = 4.0
_STEP = 1e-4  # of theta, for central differences
_IMAGINARY = 1e-30
_FURTHEST = 300.0
_LARGEST = 700.0  # logarithm of what a double holds

Points = tuple[np.ndarray, np.ndarray, np.ndarray]  # params, unique tokens, epochs


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

    def theta(self, law: Law) -> np.ndarray:
        p = {name: np.log(np.asarray(value, dtype=float)) for name, value in law.parameters.items()}
        return np.array([p[name] - self._shift(name, p, law.form) for name in parameter_names(law.form)])

    def law(self, form: str, theta: np.ndarray) -> Law:
        """The law of theta; theta may be (parameters, members) for an ensemble."""
        names = parameter_names(form)
        p = dict(zip(names, np.clip(theta, -_FURTHEST, _FURTHEST), strict=True))
        for name in sorted(names, key=lambda name: name == "P"):  # P depends on how the others are shifted
            p[name] = p[name] + self._shift(name, p, form)
        return Law(form, {name: np.exp(np.clip(p[name], -_LARGEST, _LARGEST)) for name in names})

    @property
    def at(self) -> At:
        return At(np.log(self.params), np.log(self.unique_tokens), np.log(self.repeats))

    def _shift(self, name: str, p: Mapping[str, Any], form: str) -> Any:
        """ln of what a coefficient is multiplied with at the reference, negated:
        A = a N^alpha, B = b U^beta.
        """
        if name == "A":
            return np.exp(p["alpha"]) * np.log(self.params)
        if name == "B":
            return np.exp(p["beta"]) * np.log(self.unique_tokens)
        penalty = FORMS[form].penalty
        if name == "P" and penalty is not None:
            values = {key: np.exp(p[key]) for key in penalty.names[1:]} | dict(penalty.fixed)
            return -penalty.ln_shape(values, self.at)
        for piece in FORMS[form].pieces:
            if piece.centred and name in piece.names:
                natural = {key: np.exp(p[key]) for key in piece.names}
                return piece.ln_units(natural, self.at).get(name, 0.0)
        return 0.0

    def seen_by(self, piece: Piece, at: At) -> At:
        """Where a piece sees a configuration: one that is centred measures N and U from the reference."""
        if not piece.centred:
            return at
        return At(at.ln_params - self.at.ln_params, at.ln_unique - self.at.ln_unique, at.ln_repeats)


def log_loss(
    form: str, reference: Reference, theta: np.ndarray, points: Points
) -> tuple[np.ndarray, np.ndarray]:
    """ln(loss), (laws, runs), and its derivatives by theta, (laws, runs, parameters), of theta (laws,
    parameters)."""
    theta = np.clip(theta, -_FURTHEST, _FURTHEST)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if FORMS[form].size.parameters:
            return _by_differences(form, reference, theta, points)
        return _by_terms(form, reference, theta, points)


def _by_terms(
    form: str, reference: Reference, theta: np.ndarray, points: Points
) -> tuple[np.ndarray, np.ndarray]:
    declared = FORMS[form]
    place = {name: i for i, name in enumerate(declared.names)}
    column = {name: theta[:, i, None] for name, i in place.items()}
    p = {name: np.exp(value) for name, value in column.items()} | dict(declared.fixed)
    params, unique, epochs = points
    size, ln_unique = np.log(params / reference.params), np.log(unique / reference.unique_tokens)
    repeats = np.where(epochs > 1, epochs - 1, reference.repeats)  # any number where there are none
    here = At(np.log(params), np.log(unique), np.log(repeats))
    sees = reference.seen_by(declared.repeats, here)
    seen = declared.repeats.seen_jet(p, epochs, sees.ln_params - sees.ln_unique)
    ln_seen = ln_unique + seen.value
    capacity = np.exp(column["A"] - p["alpha"] * size)
    data = np.exp(column["B"] - p["beta"] * ln_seen)
    jacobian = np.zeros((*data.shape, len(declared.names)))
    jacobian[..., place["E"]], jacobian[..., place["A"]], jacobian[..., place["B"]] = p["E"], capacity, data
    jacobian[..., place["alpha"]] = -p["alpha"] * size * capacity
    jacobian[..., place["beta"]] = -p["beta"] * ln_seen * data
    for name, slope in zip(declared.repeats.names, seen.first, strict=True):
        jacobian[..., place[name]] = -p["beta"] * data * slope * p[name]
    loss = p["E"] + capacity + data
    if declared.penalty is not None:
        value, slopes = _shape(declared.penalty, p, reference.seen_by(declared.penalty, here))
        value_there, slopes_there = _shape(
            declared.penalty, p, reference.seen_by(declared.penalty, reference.at)
        )
        cost = np.where(epochs > 1, np.exp(column["P"] + value - value_there), 0.0)
        jacobian[..., place["P"]] = cost
        for name, slope, there in zip(declared.penalty.names[1:], slopes, slopes_there, strict=True):
            jacobian[..., place[name]] = cost * (slope - there) * p[name]
        loss = loss + cost
    return np.log(loss), jacobian / loss[..., None]


def _shape(penalty: Penalty, p: Values, at: At) -> tuple[Array, Sequence[Array]]:
    """ln(penalty / P) with its derivatives by all parameters but P."""
    if not penalty.in_logarithms_linear:
        found = penalty.shape_jet(p, at)
        return found.value, found.first
    moved = ({**p, name: p[name] + 1j * _IMAGINARY} for name in penalty.names[1:])
    return penalty.ln_shape(p, at), [np.imag(penalty.ln_shape(q, at)) / _IMAGINARY for q in moved]


def _by_differences(
    form: str, reference: Reference, theta: np.ndarray, points: Points
) -> tuple[np.ndarray, np.ndarray]:
    laws, size = theta.shape
    steps = np.concatenate([np.zeros((size, 1)), np.eye(size), -np.eye(size)], axis=1) * _STEP
    moved = theta.T[:, None, :] + steps[:, :, None]
    members = reference.law(form, moved.reshape(size, -1)[:, :, None])
    ln_loss = np.log(members.loss(*points)).reshape(2 * size + 1, laws, -1)
    slopes = (ln_loss[1 : size + 1] - ln_loss[size + 1 :]) / (2 * _STEP)
    return ln_loss[0], np.moveaxis(slopes, 0, -1)


def flops_of(points: Points) -> np.ndarray:
    return FLOPS_PER_PARAM_TOKEN * points[0] * points[1] * points[2]


def points_of(table: pd.DataFrame) -> Points:
    params, unique, epochs = (
        table[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")
    )
    return params, unique, epochs


def joined(*parts: Points) -> Points:
    params, unique, epochs = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return params, unique, epochs
