r"""Model averaging: how much each form counts, over all weight decays of a table.

All forms are wrong, mostly in the same places. Two things are asked.

**The evidence**, which can compare forms even where the runs are all used up for parameters. n runs tell no
more about forms than n m / (n + m) would if one of them were right (m = 20): the likelihood is raised to the
power m / (n + m), as Miller and Dunson (2019) propose for models that are only nearly right.

**Stacking** (of means: Wolpert 1992, Breiman 1996, Yao et al. 2018), because the evidence forgives what a
smooth discrepancy explains, and plans are made with laws alone: those weights w with which the *average*
misses the runs least. With r_f the errors of ln(loss) of form f alone (in units of how much each run
scatters, as large as if the form had not seen the runs) and K forms, they minimise

    sum_decays sum_runs (sum_f w_f r_f)^2 / (2 sigma_d^2)  -  (1 / K) sum_f ln w_f.

sigma_d is the least root mean square of a form's errors at a weight decay; since few runs are hit by some
form by luck, the geometric mean over all weight decays counts as ten runs of each. The last term is one
run's worth of doubt that some form should not count at all. Forms that miss the runs in opposite directions
may both count, which no weighing of one by one can see; a weight is then a share in the average, not the
probability that a form is right. (Plans average the loss, and not its logarithm: to first order that is the
same.)

Few runs are weighed by their evidence, many are stacked: where n is the number of runs of the weight decay
that has most, exp(-(n / 50)^2) of a weight is the evidence's. Every weight decay has parameters of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import minimize

from calibration.fitting.bayes.posterior import Posterior
from planner.laws import BASE_FORM

_TOLD = 20.0  # runs: as many as all runs together tell about forms at most
_FEW = 50.0  # runs
_DOUBT = 1.0  # runs
_ALIKE = 10.0  # runs
_LEAST = 0.02  # weight below which a form is dropped
_EXACT = 1e-6  # an error that is none

Posteriors = Mapping[float, Posterior]  # of one form, by weight decay


def model_weights(posteriors: Mapping[str, Posteriors]) -> dict[str, float]:
    """The weight of each form that counts."""
    asked = {form: found for form, found in posteriors.items() if _is_finite(found)} or dict(posteriors)
    if len(asked) > 1:
        asked.pop(BASE_FORM, None)  # known to be wrong wherever anything repeats
    forms = list(asked.values())
    few = np.exp(-((max(len(one.seen) for one in forms[0].values()) / _FEW) ** 2))
    raw = few * _by_evidence(forms) + (1 - few) * stacking_weights(*_errors(forms))
    kept = np.where(raw >= min(_LEAST, raw.max()), raw, 0.0)
    return {form: float(weight) for form, weight in zip(asked, kept / kept.sum(), strict=True) if weight}


def _is_finite(found: Posteriors) -> bool:
    return all(np.isfinite(one.evidence) and np.isfinite(one.residuals).all() for one in found.values())


def _by_evidence(forms: list[Posteriors]) -> np.ndarray:
    runs = sum(len(one.seen) for one in forms[0].values())
    score = np.array([sum(one.evidence for one in found.values()) for found in forms])
    return _shares(_TOLD / (_TOLD + runs) * score)


def _errors(forms: list[Posteriors]) -> list[np.ndarray]:
    """Of each weight decay, (forms, runs); as large as if the runs had not been seen, by generalised
    cross-validation over all weight decays together: one with few runs has hardly any to spare.
    """
    runs = sum(len(one.seen) for one in forms[0].values())
    unseen = np.array(
        [runs / (runs - sum(one.parameters_learnt for one in found.values())) for found in forms]
    )
    return [unseen[:, None] * np.stack([found[decay].residuals for found in forms]) for decay in forms[0]]


def stacking_weights(*errors: np.ndarray) -> np.ndarray:
    """The weights with which the average misses the runs least, whose errors are given for each weight decay
    by form and run.
    """
    forms, runs = len(errors[0]), np.array([one.shape[1] for one in errors])
    least = np.log([np.mean(one**2, axis=1).min() + _EXACT**2 for one in errors])
    noise = np.exp((runs * least + _ALIKE * (runs @ least) / runs.sum()) / (runs + _ALIKE))
    together = np.sum([one @ one.T / level for one, level in zip(errors, noise, strict=True)], axis=0)
    doubt = _DOUBT / forms

    def missed(score: np.ndarray) -> tuple[float, np.ndarray]:
        weights = _shares(score)
        slopes = together @ weights
        value = 0.5 * weights @ slopes - doubt * np.log(weights).sum()
        return float(value), weights * (slopes - weights @ slopes) - doubt + _DOUBT * weights

    return _shares(minimize(missed, np.zeros(forms), jac=True, method="L-BFGS-B").x)


def _shares(score: np.ndarray) -> np.ndarray:
    """Positive numbers that sum to one, from their logarithms up to a constant."""
    raw = np.exp(np.maximum(score - score.max(), -700.0))
    return np.asarray(raw / raw.sum())
