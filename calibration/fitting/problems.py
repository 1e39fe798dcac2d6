r"""The six law forms as fitting problems: which numbers are free, around which point, within which bounds, from which starts.

Logarithms are taken relative to a reference point in the middle of the runs, so that an amplitude is the size of its term
there and is hardly correlated with its exponents:

    base        E / scale,  ln(A N0^-alpha),  alpha,  ln(B D0^-beta),  beta
    additive    ln of the penalty at (N0, U0, R0),  then its exponents of R, N and 1/U (delta, kappa, kappa gamma)
    effective   ln R_D*,  ln R_N*

In these coordinates the four-parameter penalty, whose P and gamma are nearly degenerate (gamma from 0.4 to 0.7 moves P by
three orders of magnitude at almost the same fit), is an ordinary well-conditioned problem.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.objective import Array, EffectiveData, LogSum, Model, Term, along_power_laws
from calibration.fitting.solver import Bounds
from planner.laws import BASE_PARAMETERS, repetition_parameters

SINGLE_EPOCH = 1 + 1e-9  # up to here no token is seen twice

_SMALLEST_EXPONENT, _LARGEST_EXPONENT = (
    0.02,
    5.0,
)  # a power law below the first is a constant, above the second a step
_ADDITIVE = ("additive_1p", "additive_2p", "additive_4p")


@dataclass(frozen=True)
class Runs:
    """The columns of a run table that a fit needs, as logarithms, with the reference point in their middle."""

    ln_params: Array
    ln_unique: Array  # tokens seen at least once: the unique tokens, or less below one epoch
    ln_tokens: Array
    repeats: Array
    ln_loss: Array
    cells: Array  # number of the (size, budget) cell of each run
    scale: float  # lowest loss
    ref_params: float  # ln N0 and ln D0 of the single-epoch runs
    ref_tokens: float
    ref_multi: tuple[float, float, float]  # ln N0, ln U0, ln R0 of the runs with repetition

    @staticmethod
    def of(table: pd.DataFrame) -> Runs:
        columns = ("params", "unique_tokens", "epochs", "loss")
        params, unique, epochs, loss = (table[name].to_numpy(dtype=float) for name in columns)
        repeats = np.where(epochs <= SINGLE_EPOCH, 0.0, epochs - 1)
        seen = unique * np.minimum(epochs, 1)
        ln_params, ln_unique, ln_tokens = np.log(params), np.log(seen), np.log(unique) + np.log(epochs)
        single = repeats == 0
        multi = ~single if not single.all() else single
        with np.errstate(divide="ignore"):
            ln_repeats = np.log(repeats)
        ref = tuple(
            float(a[multi].mean()) if not single.all() else 0.0 for a in (ln_params, ln_unique, ln_repeats)
        )
        base = single if single.any() else multi
        cells = np.unique(np.stack([params, unique]), axis=1, return_inverse=True)[1].ravel()
        return Runs(
            ln_params,
            ln_unique,
            ln_tokens,
            repeats,
            np.log(loss),
            cells,
            float(loss.min()),
            float(ln_params[base].mean()),
            float(ln_tokens[base].mean()),
            ref,  # type: ignore[arg-type]
        )

    @property
    def single(self) -> Array:
        return self.repeats == 0

    @property
    def loss(self) -> Array:
        return np.exp(self.ln_loss)

    def pick(self, rows: Array) -> Runs:
        """Some of the runs, around the same reference point."""
        names = ("ln_params", "ln_unique", "ln_tokens", "repeats", "ln_loss", "cells")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def __len__(self) -> int:
        return len(self.ln_loss)


class Free(NamedTuple):
    """A fitting problem without its weights: model, bounds and starts."""

    model: Model
    bounds: Bounds
    starts: Array
    names: tuple[str, ...]


# -- the base law --------------------------------------------------------------------------------------------------------


def base_problem(runs: Runs, rows: Array | slice = slice(None), *, tied: bool = False) -> Free:
    """Chinchilla on these rows: 4 x 3 x 3 x 3 x 3 = 324 starts. `tied` holds alpha = beta."""
    n = runs.ln_params[rows] - runs.ref_params
    d = runs.ln_tokens[rows] - runs.ref_tokens
    terms, exponents = _base_terms(n, d, runs.scale, tied)
    low = [0.0, np.log(1e-6 * runs.scale), _SMALLEST_EXPONENT, np.log(1e-6 * runs.scale), _SMALLEST_EXPONENT]
    high = [2.0, np.log(10 * runs.scale), _LARGEST_EXPONENT, np.log(10 * runs.scale), _LARGEST_EXPONENT]
    shares = np.log(np.array([0.05, 0.2, 0.6]) * runs.scale)
    slopes = np.array([0.15, 0.35, 0.7])
    starts = np.array(list(itertools.product([0.2, 0.5, 0.7, 0.9], shares, slopes, shares, slopes)))
    names: tuple[str, ...] = BASE_PARAMETERS
    if tied:
        low, high, names = low[:4], high[:4], names[:4]
        starts = np.unique(starts[:, :4], axis=0)
    model = LogSum(terms, len(low), along_power_laws(runs.scale, exponents))
    return Free(model, Bounds(np.array(low), np.array(high)), starts, names)


def _base_terms(
    n: Array, d: Array, scale: float, tied: bool = False
) -> tuple[tuple[Term, ...], tuple[tuple[int, int], ...]]:
    one = np.ones_like(n)
    beta = 2 if tied else 4
    terms = (
        Term((0,), scale * one[:, None], linear=True),
        Term((1, 2), np.stack([one, -n], axis=1)),
        Term((3, beta), np.stack([one, -d], axis=1)),
    )
    return terms, ((1, 2), (3, beta))


def base_parameters(theta: Array, runs: Runs) -> dict[str, Array]:
    """E, A, alpha, B, beta of parameter vectors (..., 5), or (..., 4) with tied exponents."""
    e, ln_a, alpha, ln_b = (theta[..., i] for i in range(4))
    beta = theta[..., 4] if theta.shape[-1] > 4 else alpha
    return {
        "E": e * runs.scale,
        "A": np.exp(ln_a + alpha * runs.ref_params),
        "alpha": alpha,
        "B": np.exp(ln_b + beta * runs.ref_tokens),
        "beta": beta,
    }


def base_theta(parameters: dict[str, float], runs: Runs) -> Array:
    """The inverse of `base_parameters`, for a base law from elsewhere."""
    p = parameters
    return np.array(
        [
            p["E"] / runs.scale,
            np.log(p["A"]) - p["alpha"] * runs.ref_params,
            p["alpha"],
            np.log(p["B"]) - p["beta"] * runs.ref_tokens,
            p["beta"],
        ]
    )


def base_log_prediction(theta: Array, runs: Runs) -> Array:
    """ln of the base law's prediction for all runs: (runs,) of one parameter vector, (problems, runs) of several."""
    terms, _ = _base_terms(runs.ln_params - runs.ref_params, runs.ln_tokens - runs.ref_tokens, runs.scale)
    return LogSum(terms, 5).log_prediction(np.atleast_2d(theta)).reshape(*theta.shape[:-1], len(runs))


# -- the repetition forms ------------------------------------------------------------------------------------------------


def repetition_problem(form: str, runs: Runs, base: Array) -> Free:
    """A repetition form on all runs with the base law locked at `base`, (5,) or one per problem (B, 5)."""
    low, high, starts = _repetition_box(form, runs)
    model: Model
    if form in _ADDITIVE:
        locked = Term((), np.empty((len(runs), 0)), base_log_prediction(base, runs))
        model = LogSum((locked, _penalty(form, runs, 0)), len(low))
    else:
        model = _effective(form, runs, base)
    return Free(model, Bounds(low, high), starts, repetition_parameters(form))


def joint_problem(form: str, runs: Runs, base: Array, repetition: Array) -> Free:
    """All parameters free, started from the locked fit, from its base law with every repetition start, and vice versa."""
    free = base_problem(runs)
    if form == "chinchilla":
        return Free(free.model, free.bounds, np.vstack([base, free.starts]), free.names)
    low, high, starts = _repetition_box(form, runs)
    model: Model
    if form in _ADDITIVE:
        terms, exponents = _base_terms(
            runs.ln_params - runs.ref_params, runs.ln_tokens - runs.ref_tokens, runs.scale
        )
        model = LogSum(
            (*terms, _penalty(form, runs, 5)), 5 + len(low), along_power_laws(runs.scale, exponents)
        )
    else:
        model = _effective(form, runs, None)
    some = free.starts[:: max(len(free.starts) // 54, 1)]
    everything = np.vstack(
        [
            np.concatenate([base, repetition])[None],
            np.hstack([np.tile(base, (len(starts), 1)), starts]),
            np.hstack([some, np.tile(repetition, (len(some), 1))]),
        ]
    )
    bounds = Bounds(np.concatenate([free.bounds.lower, low]), np.concatenate([free.bounds.upper, high]))
    return Free(model, bounds, everything, free.names + repetition_parameters(form))


def repetition_values(form: str, theta: Array, runs: Runs) -> dict[str, Array]:
    """The form's own parameters, as laws know them, of parameter vectors (..., p)."""
    n0, u0, r0 = runs.ref_multi
    columns = [theta[..., i] for i in range(theta.shape[-1])]
    if form == "exponential_decay":
        return {"R_D_star": np.exp(columns[0])}
    if form == "effective_parameters":
        return {"R_D_star": np.exp(columns[0]), "R_N_star": np.exp(columns[1])}
    if form == "additive_1p":
        return {"P": columns[0] * np.exp(-r0 - n0 + u0)}
    if form == "additive_2p":
        return {"P": np.exp(columns[0] - r0 - columns[1] * (n0 - u0)), "kappa": columns[1]}
    at, delta, kappa, by_unique = columns
    return {
        "P": np.exp(at - delta * r0 - kappa * n0 + by_unique * u0),
        "delta": delta,
        "kappa": kappa,
        "gamma": by_unique / kappa,
    }


def _repetition_box(form: str, runs: Runs) -> tuple[Array, Array, Array]:
    """Lower and upper bounds and starts of a form's own parameters."""
    exponent = (_SMALLEST_EXPONENT, _LARGEST_EXPONENT)
    amplitude = (np.log(1e-7 * runs.scale), np.log(100 * runs.scale))
    sizes = list(np.log(np.array([0.001, 0.01, 0.03, 0.1, 0.5]) * runs.scale))
    star = (np.log(1e-2), np.log(1e6))  # beyond a million repeats nothing saturates
    stars = np.log([1.5, 5, 10, 20, 50, 200, 1000])
    if form == "exponential_decay":
        box, grid = [star], [list(stars)]
    elif form == "effective_parameters":
        box, grid = [star, star], [list(stars), list(np.log([0.3, 1, 2, 5, 15, 50, 200, 1e3, 1e4]))]
    elif form == "additive_1p":
        box, grid = (
            [(0.0, 100 * runs.scale)],
            [[share * runs.scale for share in (0, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0)]],
        )
    elif form == "additive_2p":
        box, grid = [amplitude, exponent], [sizes, [0.2, 0.4, 0.6, 0.9, 1.2, 1.6, 2.2]]
    else:
        box, grid = (
            [amplitude, exponent, exponent, exponent],
            [sizes, [0.5, 0.9, 1.3, 2.0], [0.3, 0.7, 1.1, 1.6], [0.3, 0.9]],
        )
    low, high = np.array(box, dtype=float).T
    return low, high, np.array(list(itertools.product(*grid)), dtype=float)


def _penalty(form: str, runs: Runs, first: int) -> Term:
    n0, u0, r0 = runs.ref_multi
    repeated = runs.repeats > 0
    n, u = np.where(repeated, runs.ln_params - n0, 0.0), np.where(repeated, runs.ln_unique - u0, 0.0)
    with np.errstate(divide="ignore"):
        ln_r = np.log(runs.repeats) - r0
    r, one = np.where(repeated, ln_r, 0.0), np.ones_like(n)
    if form == "additive_1p":  # linear in P, so that no overfitting at all is a point of the fit
        return Term((first,), np.where(repeated, np.exp(r + n - u), 0.0)[:, None], linear=True)
    if form == "additive_2p":
        return Term((first, first + 1), np.stack([one, n - u], axis=1), ln_r)
    absent = np.where(repeated, 0.0, -np.inf)
    return Term(tuple(range(first, first + 4)), np.stack([one, r, n, -u], axis=1), absent)


def _effective(form: str, runs: Runs, base: Array | None) -> EffectiveData:
    curve = along_power_laws(runs.scale, ((1, 2), (3, 4))) if base is None else None
    return EffectiveData(
        runs.ln_params,
        runs.ln_unique,
        runs.repeats,
        runs.scale,
        runs.ref_params,
        runs.ref_tokens,
        form == "effective_parameters",
        base,
        curve,
    )
