r"""Law forms as fitting problems: which numbers are free, around which point, within which bounds, from which
starts.

Logarithms are taken relative to a reference point in the middle of the runs, so that an amplitude is the size
of its term there and is hardly correlated with its exponents:

    base        E / scale,  ln(A N0^-alpha),  alpha,  ln(B D0^-beta),  beta
    additive    ln of the penalty at (N0, U0, R0), then its exponents of R, N, 1/U (delta, kappa, kappa gamma)
    effective   ln R_D*,  ln R_N*
    others      ln of the penalty at (N0, U0, R0),  then each parameter or its logarithm, as it is declared

In these coordinates the four-parameter penalty, whose P and gamma are nearly degenerate (gamma from 0.4 to
0.7 moves P by three orders of magnitude at almost the same fit), is an ordinary well-conditioned problem.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calibration.fitting.curved import Curved, natural
from calibration.fitting.objective import Array, EffectiveData, LogSum, Model, Move, Term, along_power_laws
from calibration.fitting.runs import Runs
from calibration.fitting.solver import Bounds
from planner.laws import BASE_FORM, form_named
from planner.laws.forms import BASE, BASE_PARAMETERS, At, LawForm, Parameter
from planner.laws.pieces import Power


class Free(NamedTuple):
    """A fitting problem without its weights: model, bounds and starts."""

    model: Model
    bounds: Bounds
    starts: Array
    names: tuple[str, ...]


# -- the base law --------------------------------------------------------------------------------------


def base_problem(runs: Runs, rows: Array | slice = slice(None), *, tied: bool = False) -> Free:
    """Chinchilla on these rows: 4 x 3 x 3 x 3 x 3 = 324 starts. `tied` holds alpha = beta."""
    n = runs.ln_params[rows] - runs.ref_params
    d = runs.ln_tokens[rows] - runs.ref_tokens
    terms, exponents = _base_terms(n, d, runs.scale, tied)
    # E is fitted as a share of the lowest loss already; the others bring their scale.
    low, high, starts = _box(BASE[1:], runs.scale)
    floor = BASE[0]
    low, high = np.append(floor.bounds[0], low), np.append(floor.bounds[1], high)
    starts = np.array([[e, *rest] for e, rest in itertools.product(floor.starts, starts)])
    names = BASE_PARAMETERS
    if tied:
        low, high, names = low[:4], high[:4], names[:4]
        starts = np.unique(starts[:, :4], axis=0)
    model = LogSum(terms, len(low), along_power_laws(runs.scale, exponents))
    return Free(model, Bounds(low, high), starts, names)


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
    """ln of the base law's prediction for all runs: (runs,) of one parameter vector, (problems, runs) of
    several.
    """
    terms, _ = _base_terms(runs.ln_params - runs.ref_params, runs.ln_tokens - runs.ref_tokens, runs.scale)
    return LogSum(terms, 5).log_prediction(np.atleast_2d(theta)).reshape(*theta.shape[:-1], len(runs))


# -- the repetition forms ------------------------------------------------------------------------------


def repetition_problem(form: str, runs: Runs, base: Array) -> Free:
    """A repetition form on all runs with the base law locked at `base`, (5,) or one per problem (B, 5)."""
    declared = form_named(form)
    low, high, starts = _box(declared.repetition, runs.scale)
    return Free(_model(declared, runs, base), Bounds(low, high), starts, declared.repetition_names)


def joint_problem(form: str, runs: Runs, base: Array, repetition: Array) -> Free:
    """All parameters free, started from the locked fit, from its base law with every repetition start, and
    vice versa.
    """
    free = base_problem(runs)
    if form == BASE_FORM:
        return Free(free.model, free.bounds, np.vstack([base, free.starts]), free.names)
    declared = form_named(form)
    low, high, starts = _box(declared.repetition, runs.scale)
    some = free.starts[:: max(len(free.starts) // 54, 1)]
    everything = np.vstack(
        [
            np.concatenate([base, repetition])[None],
            np.hstack([np.tile(base, (len(starts), 1)), starts]),
            np.hstack([some, np.tile(repetition, (len(some), 1))]),
        ]
    )
    bounds = Bounds(np.concatenate([free.bounds.lower, low]), np.concatenate([free.bounds.upper, high]))
    return Free(_model(declared, runs, None), bounds, everything, declared.names)


def repetition_values(form: str, theta: Array, runs: Runs) -> dict[str, Array]:
    """The form's own parameters, as laws know them, of parameter vectors (..., p)."""
    declared = form_named(form)
    columns = [theta[..., i] for i in range(theta.shape[-1])]
    penalty = _additive(declared)
    if penalty is None:
        return natural(declared, columns, runs.middle)
    size, *own = columns
    shape, rest = penalty.design(runs.middle)
    linear = penalty.parameters[0].kind == "linear"
    ln_amount = (0.0 if linear else size) - rest
    for coordinate, column in zip(own, shape, strict=True):
        ln_amount = ln_amount - coordinate * column
    amount = np.exp(ln_amount) * (size if linear else 1.0)
    values = penalty.exponents(own) | {"P": amount}
    return {name: values[name] for name in penalty.names}


def _box(parameters: tuple[Parameter, ...], scale: float) -> tuple[Array, Array, Array]:
    """Lower and upper bounds and all combinations of starts, on the scale of the fit."""
    on_scale: dict[str, Callable[[Array], Array]] = {
        "exponent": lambda values: values,
        "logarithm": np.log,
        "amplitude": lambda values: np.log(values * scale),
        "linear": lambda values: values * scale,
    }
    bounds = [on_scale[p.kind](np.array(p.bounds)) for p in parameters]
    grid = [on_scale[p.kind](np.array(p.starts)) for p in parameters]
    low, high = np.array(bounds, dtype=float).reshape(-1, 2).T
    return low, high, np.array(list(itertools.product(*grid)), dtype=float)


def _additive(declared: LawForm) -> Power | None:
    """The penalty of a form that is linear in its logarithm, if nothing else distinguishes the form from the
    base law.
    """
    fades = declared.repeats.parameters or declared.size.parameters
    return declared.penalty if isinstance(declared.penalty, Power) and not fades else None


def _model(declared: LawForm, runs: Runs, base: Array | None) -> Model:
    """ln of the predicted loss as a function of the free parameters; the base law is free where `base` is
    None.
    """
    curve = None if base is not None else along_power_laws(runs.scale, ((1, 2), (3, 4)))
    penalty = _additive(declared)
    if penalty is not None:
        return _log_sum(penalty, runs, base, curve)
    if declared.penalty is not None or declared.repeats.by_size:
        return Curved(declared, runs, base, curve)
    return EffectiveData(
        runs.ln_params,
        runs.ln_unique,
        runs.repeats,
        runs.scale,
        runs.ref_params,
        runs.ref_tokens,
        bool(declared.size.parameters),
        base,
        curve,
    )


def _log_sum(penalty: Power, runs: Runs, base: Array | None, curve: Move | None) -> LogSum:
    own = len(penalty.parameters)
    if base is not None:
        locked = Term((), np.empty((len(runs), 0)), base_log_prediction(base, runs))
        return LogSum((locked, _penalty(penalty, runs, 0)), own)
    n, d = runs.ln_params - runs.ref_params, runs.ln_tokens - runs.ref_tokens
    terms, _ = _base_terms(n, d, runs.scale)
    return LogSum((*terms, _penalty(penalty, runs, 5)), 5 + own, curve)


def _penalty(penalty: Power, runs: Runs, first: int) -> Term:
    """The penalty around the middle of the runs; without repeats there is none."""
    repeated = runs.repeats > 0
    with np.errstate(invalid="ignore"):
        around = At(*(value - middle for value, middle in zip(runs.at, runs.middle, strict=True)))
    around = At(*(np.where(repeated, value, 0.0) for value in around))
    columns, rest = penalty.design(around)
    if penalty.parameters[0].kind == "linear":  # no overfitting at all is a point of the fit
        return Term((first,), np.where(repeated, np.exp(rest), 0.0)[:, None], linear=True)
    index = tuple(range(first, first + len(penalty.parameters)))
    design = np.stack([np.ones(len(runs)), *columns], axis=1)
    return Term(index, design, np.where(repeated, rest, -np.inf))
