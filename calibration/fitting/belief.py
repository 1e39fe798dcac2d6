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
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from calibration.fitting.coordinates import Points, Reference, log_loss, points_of
from calibration.fitting.posterior import kernel
from planner.laws import FORMS, Law

# Of ln(loss) between seeds: 0.7% over the 16 repeated configurations of the public C4 runs.
NOISE = 0.01
# Relative, of the loss above the floor: the best law leaves 0.09 unexplained on the public C4 runs.
MISFIT = 0.1
# Times the misfit, where runs are weighed one by one: neighbours share theirs, and say less than they seem
# to.
NEIGHBOURS = 2.0
# Times the misfit, where runs are chosen: a law fails together and where it was not looked at.
CAUTION = 3.0


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
        together = self.misfit**2 * np.outer(above, above) * kernel(points, points)
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


def _jacobian(form: str, reference: Reference, theta: np.ndarray, points: Points) -> np.ndarray:
    return np.asarray(log_loss(form, reference, theta[None], points)[1][0])
