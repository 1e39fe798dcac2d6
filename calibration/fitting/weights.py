r"""How much each form counts in the average of all, over all weight decays of a table.

All forms are wrong, mostly in the same places. Two things are asked.

**The evidence**, which can compare forms even where the runs are all used up for parameters. n runs tell no
more about forms than n m / (n + m) would if one of them were right (m = 20): the likelihood is raised to the
power m / (n + m), as Miller and Dunson (2019) propose for models that are only nearly right.

**Stacking** (Yao, Vehtari, Simpson and Gelman 2018), because the evidence forgives what a smooth misfit
explains, and plans are made with laws alone: those weights w with which the *average* misses the runs least.
With r_f the errors of form f alone, as large as if it had not seen the runs, sigma the least root mean
square among the forms, and K forms, they minimise

    sum_runs (sum_f w_f r_f)^2 / (2 sigma^2)  -  (1 / K) sum_f ln w_f,

the last term being one run's worth of doubt that some form should not count at all. Forms that miss the runs
in opposite directions may both count, which no weighing of one by one can see.

Few runs are weighed by their evidence, many are stacked; at n runs exp(-(n / 50)^2) of a weight is the
evidence's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import minimize

from calibration.fitting.posterior import Posterior
from planner.laws import BASE_FORM

_TOLD = 20.0  # runs: as many as all runs together tell about forms at most
_FEW = 50.0  # runs
_DOUBT = 1.0  # runs
_LEAST = 0.02  # weight below which a form is not heard
_EXACT = 1e-6  # an error that is none

Beliefs = Mapping[float, Posterior]  # in one form, by weight decay


def weigh(beliefs: Mapping[str, Beliefs]) -> dict[str, float]:
    """The weight of each form that is heard."""
    heard = dict(beliefs)
    if len(heard) > 1:
        heard.pop(BASE_FORM, None)  # known to be wrong wherever anything repeats
    few = np.exp(-((_count(next(iter(heard.values()))) / _FEW) ** 2))
    raw = few * _by_evidence(list(heard.values())) + (1 - few) * _stacked(list(heard.values()))
    kept = np.where(raw >= min(_LEAST, raw.max()), raw, 0.0)
    return {form: float(weight) for form, weight in zip(heard, kept / kept.sum(), strict=True) if weight}


def _count(found: Beliefs) -> int:
    return sum(len(one.seen) for one in found.values())


def _by_evidence(forms: list[Beliefs]) -> np.ndarray:
    power = _TOLD / (_TOLD + _count(forms[0]))
    return _shares(power * np.array([sum(one.evidence for one in found.values()) for found in forms]))


def _stacked(forms: list[Beliefs]) -> np.ndarray:
    """The weights with which the average misses the runs least."""
    together = np.zeros((len(forms), len(forms)))
    for decay in forms[0]:
        errors = np.stack([found[decay].alone() for found in forms])
        together += errors @ errors.T / (np.mean(errors**2, axis=1).min() + _EXACT**2)
    doubt = _DOUBT / len(forms)

    def missed(score: np.ndarray) -> tuple[float, np.ndarray]:
        weights = _shares(score)
        slopes = together @ weights
        value = 0.5 * weights @ slopes - doubt * np.log(weights).sum()
        return float(value), weights * (slopes - weights @ slopes) - doubt + _DOUBT * weights

    return _shares(minimize(missed, np.zeros(len(forms)), jac=True, method="L-BFGS-B").x)


def _shares(score: np.ndarray) -> np.ndarray:
    """Positive numbers that sum to one, from their logarithms up to a constant."""
    raw = np.exp(np.maximum(score - score.max(), -700.0))
    return np.asarray(raw / raw.sum())
