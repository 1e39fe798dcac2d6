r"""How far predictions may be off together, given what is believed: what runs not yet trained would tell.

A belief (`posterior`) has theta normal around a prior, a smooth model discrepancy d and noise. On
ln(loss), to first order around the most probable law, any two configurations x, x' have the prior covariance

    K(x, x') = J(x) S J(x')^T  +  d^2 s(x) s(x') k(x, x'),     J = d ln L / d theta,  s = (L - E) / L,

and every run that is trained lowers it by a known amount, whatever its loss. Without the second term a law
would be thought exact, and thousands of tiny runs would seem to settle anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from calibration.fitting.bayes.posterior import Normal, Posterior, kernel
from calibration.fitting.coordinates import Points, Reference, log_loss
from planner.laws import Law

# Times the model discrepancy, where runs are chosen: a law fails together and where it was not looked at.
CAUTION = 3.0


@dataclass(frozen=True)
class PredictiveCovariance:
    """The most probable law of a belief, and what was unknown around it before any run."""

    form: str
    reference: Reference
    theta: np.ndarray
    prior: Normal
    noise: float
    model_discrepancy: float

    @staticmethod
    def of(belief: Posterior) -> PredictiveCovariance:
        noise, model_discrepancy = belief.levels
        return PredictiveCovariance(
            belief.form, belief.reference, belief.mean, belief.prior, noise, model_discrepancy
        )

    @cached_property
    def law(self) -> Law:
        return self.reference.law(self.form, self.theta)

    def covariance(self, points: Points) -> np.ndarray:
        """Of ln(loss) at these configurations before any run, linearised around the most probable law."""
        jacobian = log_loss(self.form, self.reference, self.theta[None], points)[1][0] @ self.prior.root
        loss = self.law.loss(*points)
        above = (loss - float(self.law.parameters["E"])) / loss
        together = self.model_discrepancy**2 * np.outer(above, above) * kernel(points, points)
        return np.asarray(jacobian @ jacobian.T + together)

    def cautious(self) -> PredictiveCovariance:
        """The same with less trust in the form of the law."""
        return replace(self, model_discrepancy=CAUTION * self.model_discrepancy)
