r"""A law as it is believed before and after some runs, and how far its predictions may be off together.

A law with parameters theta (logarithms, around a reference configuration so that they are nearly independent)
has a weak normal prior around a published law. Next to its noise, each run may deviate from the law: the part
of the loss above the floor is described only up to a relative `misfit`, smoothly over configurations. On
ln(loss), to first order around the current estimate, any two configurations x, x' then have the covariance

    K(x, x') = J(x) S J(x')^T  +  misfit^2 s(x) s(x') k(x, x'),     J = d ln L / d theta,  s = (L - E) / L,

with S the prior variances and k falling off as a Gaussian once sizes, budgets or repeats differ by a factor
of about two. Without the second term a law would be thought exact, and thousands of tiny runs would seem to
settle anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.calibration_files import Setting
from planner.laws import FORMS, Law, parameter_names
from planner.laws.forms import At

# Of ln(loss) between seeds: 0.7% over the 16 repeated configurations of the public C4 runs.
NOISE = 0.01
# Relative, of the loss above the floor: the best law leaves 0.09 unexplained on the public C4 runs.
MISFIT = 0.1
# Times the misfit, where runs are weighed one by one: neighbours share theirs, and say less than they seem
# to.
NEIGHBOURS = 2.0
# Times the misfit, where runs are chosen: a law fails together and where it was not looked at.
CAUTION = 3.0
LENGTH = 0.8  # ln of the factor in size, budget or epochs over which the misfit changes
_STEP = 1e-4  # of theta, for central differences

Points = tuple[np.ndarray, np.ndarray, np.ndarray]  # params, unique tokens, epochs


@dataclass(frozen=True)
class Reference:
    """Where the terms of a law are compared: at theta = (ln of each term there, ln of each exponent)."""

    params: float
    unique_tokens: float
    repeats: float = 4.0

    @staticmethod
    def of(setting: Setting) -> Reference:
        """The middle of what a setting was fitted on, where its terms are known best."""
        low, high = setting.fitted_on.unique_tokens
        return Reference(float(np.sqrt(np.prod(setting.fitted_on.params))), float(np.sqrt(low * high)))

    def theta(self, law: Law) -> np.ndarray:
        p = {name: np.log(np.asarray(value, dtype=float)) for name, value in law.parameters.items()}
        return np.array([p[name] - self._shift(name, p, law.form) for name in parameter_names(law.form)])

    def law(self, form: str, theta: np.ndarray) -> Law:
        """The law of theta; theta may be (parameters, members) for an ensemble."""
        names = parameter_names(form)
        p = dict(zip(names, np.clip(theta, -300, 300), strict=True))
        for name in sorted(names, key=lambda name: name == "P"):  # P depends on how the others are shifted
            p[name] = p[name] + self._shift(name, p, form)
        return Law(form, {name: np.exp(p[name]) for name in names})

    def _shift(self, name: str, p: Mapping[str, Any], form: str) -> Any:
        """ln of what a coefficient is multiplied with at the reference, negated:
        A = a N^alpha, B = b U^beta.
        """
        if name == "A":
            return np.exp(p["alpha"]) * np.log(self.params)
        if name == "B":
            return np.exp(p["beta"]) * np.log(self.unique_tokens)
        here = At(np.log(self.params), np.log(self.unique_tokens), np.log(self.repeats))
        penalty = FORMS[form].penalty
        if name == "P" and penalty is not None:
            values = {key: np.exp(p[key]) for key in penalty.names[1:]} | dict(penalty.fixed)
            return -penalty.ln_shape(values, here)
        for piece in FORMS[form].pieces:
            if piece.centred and name in piece.names:
                natural = {key: np.exp(p[key]) for key in piece.names}
                return piece.ln_units(natural, here).get(name, 0.0)
        return 0.0


@dataclass(frozen=True)
class Belief:
    """The law as it is currently believed, and how far its predictions may be off together."""

    form: str
    reference: Reference
    theta: np.ndarray
    noise: float = NOISE
    misfit: float = MISFIT

    @cached_property
    def law(self) -> Law:
        return self.reference.law(self.form, self.theta)

    @property
    def prior_sd(self) -> np.ndarray:
        return prior_spread(self.form)

    def jacobian(self, points: Points) -> np.ndarray:
        """d ln(loss) / d theta, (points, parameters)."""
        return _jacobian(self.form, self.reference, self.theta, points)

    def covariance(self, points: Points) -> np.ndarray:
        """Prior covariance of ln(loss) at these configurations, linearised around the current estimate."""
        jacobian = self.jacobian(points) * self.prior_sd
        loss = self.law.loss(*points)
        above = (loss - float(self.law.parameters["E"])) / loss
        params, unique, epochs = points
        where = np.column_stack([np.log(params), np.log(unique), np.log(np.maximum(epochs, 1.0))]) / LENGTH
        apart = ((where[:, None] - where[None]) ** 2).sum(axis=-1)
        together = self.misfit**2 * np.outer(above, above) * np.exp(-0.5 * apart)
        return np.asarray(jacobian @ jacobian.T + together)

    def cautious(self) -> Belief:
        """The same belief with less trust in the form of the law."""
        return dataclasses.replace(self, misfit=CAUTION * self.misfit)


def prior_spread(form: str) -> np.ndarray:
    """Prior standard deviations: as much as terms and exponents differ between corpora and settings."""
    return np.array([parameter.prior_sd for parameter in FORMS[form].parameters])


def believe(
    prior: Law,
    reference: Reference,
    runs: pd.DataFrame | None = None,
    *,
    noise: float = NOISE,
    misfit: float = MISFIT,
) -> Belief:
    """The most probable law after these runs: the prior law without any, the data's own with many."""
    start = reference.theta(prior)
    if runs is None or not len(runs):
        return Belief(prior.form, reference, start, noise, misfit)
    points, loss = points_of(runs), runs["loss"].to_numpy(dtype=float)
    observed = np.log(loss)
    sd = prior_spread(prior.form)
    floor = float(prior.parameters["E"])
    # The share above the floor is taken from the observed loss: a run below the prior's floor has little of
    # it.
    doubt = np.hypot(noise, NEIGHBOURS * misfit * np.clip((loss - floor) / loss, 0.05, 1.0))

    def residuals(theta: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            predicted = np.log(reference.law(prior.form, theta).loss(*points))
        return np.concatenate([np.clip((predicted - observed) / doubt, -1e6, 1e6), (theta - start) / sd])

    def slopes(theta: np.ndarray) -> np.ndarray:
        return np.vstack([_jacobian(prior.form, reference, theta, points) / doubt[:, None], np.diag(1 / sd)])

    found = least_squares(residuals, start, jac=slopes, max_nfev=200).x
    return Belief(prior.form, reference, found, noise, misfit)


def flops_of(points: Points) -> np.ndarray:
    return FLOPS_PER_PARAM_TOKEN * points[0] * points[1] * points[2]


def _jacobian(form: str, reference: Reference, theta: np.ndarray, points: Points) -> np.ndarray:
    size = len(theta)
    steps = np.concatenate([np.eye(size), -np.eye(size)], axis=1) * _STEP  # (parameters, 2 x parameters)
    members = reference.law(form, (theta[:, None] + steps)[:, :, None])
    with np.errstate(over="ignore", invalid="ignore"):
        ln_loss = np.log(members.loss(*points))
    return np.asarray(((ln_loss[:size] - ln_loss[size:]) / (2 * _STEP)).T)


def points_of(table: pd.DataFrame) -> Points:
    params, unique, epochs = (
        table[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")
    )
    return params, unique, epochs


def joined(*parts: Points) -> Points:
    params, unique, epochs = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return params, unique, epochs
