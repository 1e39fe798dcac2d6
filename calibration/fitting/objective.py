r"""What a fit minimises, for a whole batch of problems at once, with exact first and second derivatives.

The objective of one problem is the weighted Huber loss of the log residuals, summed over the runs,

    f(theta) = sum_i w_i rho(m_i(theta) - ln L_i)
    rho(r)   = r^2 / 2 up to |r| = delta,  delta |r| - delta^2 / 2 beyond,

where m_i is the logarithm of the predicted loss. A batch is many such problems that share the runs but differ
in theta (starts), in the weights w (bootstrap resamples, held-out cells), or in a locked part of the
prediction.

**Sums of terms** (`LogSum`). Chinchilla and the additive forms are sums of terms t_k = exp(x_k(i) . theta_k +
c_k(i)), with the floor E as a linear term so that E = 0 is a point and not a limit. With the shares s_k = t_k
/ prediction,

    dm    = sum_k s_k x_k
    d^2 m = sum_k s_k x_k x_k^T - dm dm^T            (a linear term has no second derivative of its own)
    d^2 f = sum_i w_i [ (rho'' - rho') dm dm^T  +  rho' sum_k s_k x_k x_k^T ],

and every block of the Hessian is one matrix product of (problems x runs) coefficients with the fixed (runs x
pairs) products of the design columns. That is what makes the exact Hessian hardly dearer than the gradient.

**Effective data** (`EffectiveData`). The two forms of Muennighoff et al. saturate inside a logarithm and are
not of that shape: they bring their exact Jacobian, and the second derivatives of m are central differences of
it.

Next to the Hessian stands a *majorant*: the Gauss-Newton matrix with the weights rho'(r) / r of reweighted
least squares. It is positive semidefinite and bounds the Huber curvature from above, which is what a solver
falls back on where delta = 0.001 leaves too few runs in the quadratic core for the Hessian to say anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

Array = np.ndarray
Move = Callable[[Array, Array], Array]

_BLOCK = 15_000  # problems x runs worked on at a time: the arrays of one block fit in the L2 cache


class Curvature(NamedTuple):
    """Objective, gradient, Hessian and majorant of every problem; problems come last, as the solver wants
    them.
    """

    value: Array  # (B,)
    gradient: Array  # (p, B)
    hessian: Array  # (p, p, B)
    majorant: Array  # (p, p, B)


class Model(Protocol):
    """Predicts ln(loss) of all runs for a batch of parameter vectors and knows its derivatives."""

    @property
    def size(self) -> int:
        """Number of parameters."""

    def log_prediction(self, theta: Array) -> Array:
        """m, (problems, runs)."""

    def curvature(self, theta: Array, target: Array, weights: Array, delta: float) -> Curvature:
        """The objective and its derivatives; `weights` is (problems, runs)."""

    def pick(self, problems: Array | slice) -> Model:
        """The model restricted to some of its problems."""

    def move(self, theta: Array, step: Array) -> Array:
        """Where a step leads, both (p, B): theta - step, or a curve that starts in that direction."""


@dataclass(frozen=True)
class Problems:
    """A batch of fits to the same runs. `target` and `weights` are one row for all problems or one row per
    problem.
    """

    model: Model
    target: Array  # ln(loss)
    weights: Array
    delta: float

    def curvature(self, theta: Array) -> Curvature:
        block = max(_BLOCK // self.target.shape[-1], 1)
        parts = []
        for start in range(0, len(theta), block):
            some = self if len(theta) <= block else self.pick(slice(start, start + block))
            weights = some.weights if some.weights.ndim == 2 else some.weights[None]
            parts.append(some.model.curvature(theta[start : start + block], some.target, weights, self.delta))
        if len(parts) == 1:
            return parts[0]
        return Curvature(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))

    def values(self, theta: Array) -> Array:
        residual = self.model.log_prediction(theta) - self.target
        return np.asarray((self.weights * huber(residual, self.delta)).sum(-1))

    def pick(self, problems: Array | slice) -> Problems:
        target = self.target[problems] if self.target.ndim == 2 else self.target
        weights = self.weights[problems] if self.weights.ndim == 2 else self.weights
        return Problems(self.model.pick(problems), target, weights, self.delta)


def huber(residual: Array, delta: float) -> Array:
    """rho(r), elementwise."""
    inside: Array = np.clip(residual, -delta, delta)
    return inside * (residual - 0.5 * inside)


class Weighted(NamedTuple):
    """The Huber coefficients of every residual: objective, w rho', w rho'' and w rho' / r."""

    value: Array
    slope: Array
    core: Array
    secant: Array


def weighted(residual: Array, weights: Array, delta: float) -> Weighted:
    slope = np.clip(residual, -delta, delta)
    core = slope == residual
    with np.errstate(invalid="ignore", divide="ignore"):
        secant = slope / residual
    secant[core] = 1.0
    secant *= weights
    middle = residual - 0.5 * slope
    slope *= weights
    return Weighted(np.einsum("bn,bn->b", slope, middle), slope, weights * core, secant)


# -- sums of terms -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Term:
    """One term of a predicted loss: exp(design @ theta[index] + offset), or design @ theta[index] where
    `linear`.

    `offset` is the logarithm of a constant factor, per run or per problem and run; -inf makes the term
    vanish. A term without parameters is a locked part of the prediction.
    """

    index: tuple[int, ...]
    design: Array  # (n, len(index))
    offset: Array | float = 0.0
    linear: bool = False


@dataclass(frozen=True)
class LogSum:
    """ln of a sum of terms, each an exponential of a linear form in the parameters or linear in them."""

    terms: tuple[Term, ...]
    size: int
    curve: Move | None = None
    _pairs: dict[tuple[int, int], Array] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._pairs:
            return
        for k, one in enumerate(self.terms):
            for other in range(k, len(self.terms)):
                product = one.design[:, :, None] * self.terms[other].design[:, None, :]
                self._pairs[k, other] = np.ascontiguousarray(product.reshape(len(product), -1))

    def log_prediction(self, theta: Array) -> Array:
        return np.log(sum(self._terms(theta)))

    def curvature(self, theta: Array, target: Array, weights: Array, delta: float) -> Curvature:
        values = self._terms(theta)
        prediction = sum(values[1:], start=values[0].copy())
        residual = np.log(prediction)
        residual -= target
        value, slope, bend, secant = weighted(residual, weights, delta)
        bend -= slope
        inverse = np.reciprocal(prediction, out=prediction)
        shares = [
            inverse if term.linear else np.multiply(v, inverse, out=v)
            for term, v in zip(self.terms, values, strict=True)
        ]
        p, b = self.size, len(theta)
        gradient, hessian, majorant = np.zeros((p, b)), np.zeros((p, p, b)), np.zeros((p, p, b))
        for k, term in enumerate(self.terms):
            if not term.index:
                continue
            pull = slope * shares[k]
            for column, part in zip(term.index, (pull @ term.design).T, strict=True):
                gradient[column] += part
            if not term.linear:
                _add_block(hessian, term.index, term.index, pull @ self._pairs[k, k])
            for other in range(k, len(self.terms)):
                theirs = self.terms[other].index
                if theirs:
                    share = shares[k] * shares[other]
                    _add_block(majorant, term.index, theirs, (secant * share) @ self._pairs[k, other])
                    share *= bend
                    _add_block(hessian, term.index, theirs, share @ self._pairs[k, other])
        for i in range(p):
            for j in range(i):
                hessian[i, j], majorant[i, j] = hessian[j, i], majorant[j, i]
        return Curvature(value, gradient, hessian, majorant)

    def pick(self, problems: Array | slice) -> LogSum:
        if all(np.ndim(term.offset) < 2 for term in self.terms):
            return self
        terms = tuple(
            replace(term, offset=np.asarray(term.offset)[problems]) if np.ndim(term.offset) == 2 else term
            for term in self.terms
        )
        return replace(self, terms=terms)

    def move(self, theta: Array, step: Array) -> Array:
        return theta - step if self.curve is None else self.curve(theta, step)

    def _terms(self, theta: Array) -> list[Array]:
        values = []
        for term in self.terms:
            value = theta[:, term.index] @ term.design.T
            if not term.linear:
                value += term.offset
                np.exp(value, out=value)
            values.append(value)
        return values


def _add_block(matrix: Array, rows: tuple[int, ...], columns: tuple[int, ...], block: Array) -> None:
    """Add a block to the upper triangle; terms may share a parameter, so index pairs come in any order."""
    entries = iter(block.T)
    for i in rows:
        for j in columns:
            entry = next(entries)
            if rows is not columns:
                matrix[min(i, j), max(i, j)] += entry if i != j else 2 * entry
            elif i <= j:
                matrix[i, j] += entry


# -- effective data and parameters ---------------------------------------------------------------------------


@dataclass(frozen=True)
class EffectiveData:
    """ln of E + A / N'^alpha + B / D'^beta with saturating D' and, where there is an R_N*, saturating N'.

    Parameters: the base law [E / scale, ln A_c, alpha, ln B_c, beta] unless it is locked, then ln R_D*, then
    ln R_N* if `saturate_params`. A_c and B_c are the terms at the reference size and tokens. A locked base is
    (5,), or (B, 5) with one per problem.
    """

    ln_params: Array
    ln_unique: Array  # of the tokens that are seen at least once
    repeats: Array
    scale: float
    ln_params_ref: float
    ln_tokens_ref: float
    saturate_params: bool
    base: Array | None = None
    curve: Move | None = None

    @property
    def size(self) -> int:
        return (5 if self.base is None else 0) + 1 + self.saturate_params

    def log_prediction(self, theta: Array) -> Array:
        return self._evaluate(theta)[0]

    def curvature(self, theta: Array, target: Array, weights: Array, delta: float) -> Curvature:
        m, jacobian = self._evaluate(theta)
        value, slope, core, secant = weighted(m - target, weights, delta)
        gradient = np.einsum("bn,pbn->pb", slope, jacobian)
        hessian = np.einsum("bn,pbn,qbn->pqb", core, jacobian, jacobian, optimize=True)
        majorant = np.einsum("bn,pbn,qbn->pqb", secant, jacobian, jacobian, optimize=True)
        bent = np.empty_like(hessian)  # sum_i w rho' d^2 m, from differences of the exact Jacobian
        for k in range(self.size):
            nudge = np.zeros(self.size)
            nudge[k] = 1e-5
            ahead, behind = (
                np.einsum("bn,pbn->pb", slope, self._evaluate(theta + sign * nudge)[1]) for sign in (1, -1)
            )
            bent[k] = (ahead - behind) / 2e-5
        hessian += 0.5 * (bent + bent.transpose(1, 0, 2))
        return Curvature(value, gradient, hessian, majorant)

    def pick(self, problems: Array | slice) -> EffectiveData:
        return self if self.base is None or self.base.ndim == 1 else replace(self, base=self.base[problems])

    def move(self, theta: Array, step: Array) -> Array:
        return theta - step if self.curve is None else self.curve(theta, step)

    def _evaluate(self, theta: Array) -> tuple[Array, Array]:
        """m (B, n) and its Jacobian (p, B, n)."""
        base = theta[:, :5] if self.base is None else np.atleast_2d(self.base)
        floor, ln_a, alpha, ln_b, beta = (base[:, i : i + 1] for i in range(5))
        ln_d, d_by_star = _saturated(
            self.repeats, np.exp(theta[:, -2:-1] if self.saturate_params else theta[:, -1:])
        )
        ln_d = ln_d + self.ln_unique - self.ln_tokens_ref
        data = np.exp(ln_b - beta * ln_d)
        if self.saturate_params:
            ln_optimal = (
                np.log(alpha / beta)
                + ln_a
                + alpha * self.ln_params_ref
                - ln_b
                + beta * (self.ln_unique - self.ln_tokens_ref)
            ) / alpha
            over = ln_optimal < self.ln_params
            ln_used = np.where(over, ln_optimal, self.ln_params)
            star = np.exp(theta[:, -1:])
            excess = np.expm1(np.minimum(self.ln_params - ln_used, 300.0))
            growth, n_by_star = _saturated(excess, star)
            ln_n = ln_used + growth - self.ln_params_ref
            by_used = np.where(over, 1 - np.exp(-excess / star - growth) * (1 + excess), 0.0)
        else:
            ln_n = self.ln_params - self.ln_params_ref
        capacity = np.exp(ln_a - alpha * ln_n)
        prediction = floor * self.scale + capacity + data
        rows = []
        if self.base is None:
            rows += [np.full_like(prediction, self.scale), capacity, -capacity * ln_n, data, -data * ln_d]
            if self.saturate_params:  # N_opt moves with the base law, and N' with N_opt
                pull = -capacity * by_used  # alpha d capacity / d ln_used
                rows[1] = rows[1] + pull
                rows[2] = rows[2] + pull * (1 / alpha + self.ln_params_ref - ln_optimal)
                rows[3] = rows[3] - pull
                rows[4] = rows[4] + pull * (self.ln_unique - self.ln_tokens_ref - 1 / beta)
        rows.append(-data * beta * d_by_star)
        if self.saturate_params:
            rows.append(-capacity * alpha * n_by_star)
        jacobian = np.stack(np.broadcast_arrays(*rows))
        jacobian /= prediction
        return np.log(prediction), jacobian


def _saturated(excess: Array, star: Array) -> tuple[Array, Array]:
    """ln(1 + R* (1 - exp(-x / R*))) and its derivative by ln R*."""
    gain = -star * np.expm1(-excess / star)
    return np.log1p(gain), (gain - excess * np.exp(-excess / star)) / (1 + gain)


# -- moving along the valley of a power law ------------------------------------------------------------------


def along_power_laws(scale: float, exponents: tuple[tuple[int, int], ...]) -> Move:
    """Steps that change E, ln A_c and alpha together so that the loss at the reference point and its slopes
    follow the step.

    E, A and alpha trade against each other along a curved valley: a larger alpha with a smaller A and a
    larger E predicts nearly the same. In terms of the loss at the reference point (E + A_c + B_c), the
    logarithmic slopes (alpha A_c, beta B_c) and the exponents the valley is straight, so a step is taken
    there and mapped back. `exponents` are the index pairs (ln amplitude, exponent); E / scale is parameter 0.
    """

    def move(theta: Array, step: Array) -> Array:
        moved: Array = theta - step
        with np.errstate(
            invalid="ignore", divide="ignore", over="ignore"
        ):  # a step out of the domain is refused later
            level = moved[0] * scale
            for amplitude, exponent in exponents:
                at = np.exp(theta[amplitude])
                ratio = np.log(theta[exponent] / moved[exponent])
                moved[amplitude] += ratio - step[exponent] / theta[exponent]
                level = level + at * (1 - step[amplitude]) - np.exp(moved[amplitude])
        moved[0] = level / scale
        return moved

    return move
