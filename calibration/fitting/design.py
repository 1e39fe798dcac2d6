r"""Which runs to train next, so that the plan at a target becomes certain soonest per FLOP.

**What is believed.** A law with parameters theta (logarithms, around a reference configuration so that they are nearly
independent) and a weak normal prior around a published law. Next to its noise, each run may deviate from the law: the
part of the loss above the floor is described only up to a relative `misfit`, smoothly over configurations. On ln(loss),
to first order around the current estimate, any two configurations x, x' then have the covariance

    K(x, x') = J(x) S J(x')^T  +  misfit^2 s(x) s(x') k(x, x'),     J = d ln L / d theta,  s = (L - E) / L,

with S the prior variances and k falling off as a Gaussian once sizes, budgets or repeats differ by a factor of about two.
Without the second term a law would be thought exact, and thousands of tiny runs would seem to settle the target.

**What is wanted.** Small variance of linear functions of ln(loss) at chosen configurations: the loss of the planned run,
and ln N*, which moves with the slope of the iso-FLOP curve at the plan: -(d slope) / curvature.

**How runs are chosen.** Training run i changes K by -K_i K_i^T / (K_ii + noise^2), whatever its loss will be. Greedy:
take the run with the largest fall of the wanted variance per FLOP^rho, until the budget is spent. rho = 1 is thrifty to a
fault and rho = 0 spends on the largest runs; all of 0 to 1 are tried, and the set that ends with the least variance wins.
The first runs are those without which the law could not be fitted at all (see `identify`).

The estimate is updated by giving the runs so far: train the cheap ones first, then ask again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from calibration.fitting.identify import runs_to_add
from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.calibration_files import Calibration, Setting
from planner.errors import InvalidInput
from planner.laws import BASE_FORM, DEFAULT_FORM, FORMS, Law, check_form, parameter_names
from planner.laws.forms import At
from planner.shapes import Architecture, shape_for
from planner.units import compute, count, number, scientific, short

NOISE = 0.01  # of ln(loss) between seeds: 0.7% over the 16 repeated configurations of the public C4 runs
MISFIT = (
    0.1  # relative, of the loss above the floor: the best law leaves 0.09 unexplained on the public C4 runs
)
NEIGHBOURS = 2.0  # times the misfit, where runs are weighed one by one: neighbours share theirs, and say less than they seem to
CAUTION = 3.0  # times the misfit, where runs are chosen: a law fails together and where it was not looked at
LENGTH = 0.8  # ln of the factor in size, budget or epochs over which the misfit changes
THRIFT = (0.0, 0.25, 0.5, 0.75, 1.0)
_STEP = 1e-4  # of theta, for central differences
_APART = 0.35  # ln of the size ratio at which the slope of the iso-FLOP curve is taken
_LEAST_GAIN = 0.002  # a run that lowers the wanted variance by less than this share is not worth listing

Points = tuple[np.ndarray, np.ndarray, np.ndarray]  # params, unique tokens, epochs


@dataclass(frozen=True)
class Reference:
    """Where the terms of a law are compared: at theta = (ln of each term there, ln of each exponent)."""

    params: float
    unique_tokens: float
    repeats: float = 4.0

    @staticmethod
    def of(setting: Setting) -> Reference:
        """The middle of what a setting was fitted on: there its terms are known best, elsewhere as well as its exponents are."""
        low, high = setting.fitted_on.unique_tokens
        return Reference(float(np.sqrt(np.prod(setting.fitted_on.params))), float(np.sqrt(low * high)))

    def theta(self, law: Law) -> np.ndarray:
        p = {name: np.log(np.asarray(value, dtype=float)) for name, value in law.parameters.items()}
        return np.array([p[name] - self._shift(name, p, law.form) for name in parameter_names(law.form)])

    def law(self, form: str, theta: np.ndarray) -> Law:
        """The law of theta; theta may be (parameters, members) for an ensemble."""
        names = parameter_names(form)
        p = dict(zip(names, np.clip(theta, -300, 300), strict=True))
        return Law(form, {name: np.exp(p[name] + self._shift(name, p, form)) for name in names})

    def _shift(self, name: str, p: Mapping[str, Any], form: str) -> Any:
        """ln of what a coefficient is multiplied with at the reference, negated: A = a N^alpha, B = b U^beta, ..."""
        if name == "A":
            return np.exp(p["alpha"]) * np.log(self.params)
        if name == "B":
            return np.exp(p["beta"]) * np.log(self.unique_tokens)
        penalty = FORMS[form].penalty
        if name == "P" and penalty is not None:
            here = At(np.log(self.params), np.log(self.unique_tokens), np.log(self.repeats))
            return -penalty.ln_shape(
                {key: np.exp(value) for key, value in p.items()} | dict(penalty.fixed), here
            )
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
        where = (
            np.column_stack([np.log(points[0]), np.log(points[1]), np.log(np.maximum(points[2], 1.0))])
            / LENGTH
        )
        apart = ((where[:, None] - where[None]) ** 2).sum(axis=-1)
        return jacobian @ jacobian.T + self.misfit**2 * np.outer(above, above) * np.exp(-0.5 * apart)

    def cautious(self) -> Belief:
        """The same belief with less trust in the form of the law."""
        return dataclasses.replace(self, misfit=CAUTION * self.misfit)


def prior_spread(form: str) -> np.ndarray:
    """Prior standard deviations: about as much as floors, terms and exponents differ between corpora and settings."""
    return np.array([parameter.prior_sd for parameter in FORMS[form].parameters])


def believe(
    prior: Law,
    reference: Reference,
    runs: pd.DataFrame | None = None,
    *,
    noise: float = NOISE,
    misfit: float = MISFIT,
) -> Belief:
    """The most probable law after these runs: the prior law where there are none, the data's own where there are many."""
    start = reference.theta(prior)
    if runs is None or not len(runs):
        return Belief(prior.form, reference, start, noise, misfit)
    points, loss = _points(runs), runs["loss"].to_numpy(dtype=float)
    observed = np.log(loss)
    sd = prior_spread(prior.form)
    floor = float(prior.parameters["E"])
    # The share above the floor is taken from the observed loss: a run below the prior's floor has little of it.
    doubt = np.hypot(noise, NEIGHBOURS * misfit * np.clip((loss - floor) / loss, 0.05, 1.0))

    def residuals(theta: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            predicted = np.log(reference.law(prior.form, theta).loss(*points))
        return np.concatenate([np.clip((predicted - observed) / doubt, -1e6, 1e6), (theta - start) / sd])

    def slopes(theta: np.ndarray) -> np.ndarray:
        return np.vstack([_jacobian(prior.form, reference, theta, points) / doubt[:, None], np.diag(1 / sd)])

    found = least_squares(residuals, start, jac=slopes, max_nfev=200).x
    return Belief(prior.form, reference, found, noise, misfit)


def choose(
    belief: Belief,
    candidates: Points,
    wanted: Points,
    functions: np.ndarray,
    budget: float,
    *,
    trained: Points | None = None,
    first: Sequence[int] = (),
    least_gain: float = 0.0,
    max_runs: int | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> list[int]:
    """Indices of the candidates to train within `budget` FLOPs, in the order in which they were chosen.

    `functions` (rows, wanted points) are what shall become certain: each row a linear function of ln(loss) at `wanted`.
    Candidates in `first` are taken in any case.
    """
    belief = belief.cautious()
    cost = flops_of(candidates)
    everything = [candidates, wanted] + ([trained] if trained is not None and len(trained[0]) else [])
    start = belief.covariance(_join(*everything))
    size, targets = len(cost), slice(len(cost), len(cost) + len(wanted[0]))
    for row in (*range(targets.stop, len(start)), *first):
        start = _conditioned(start, row, belief.noise)
    before = np.einsum("ij,jk,ik->i", functions, start[targets, targets], functions)
    functions = (
        functions / np.sqrt(np.maximum(before, 1e-300))[:, None]
    )  # each as a share of what is unknown about it now
    best: tuple[float, list[int]] = (np.inf, [])
    for done, thrift in enumerate(THRIFT):
        if progress is not None:
            progress("choosing runs", done / len(THRIFT))
        covariance, left, chosen = start.copy(), budget - cost[list(first)].sum(), list(first)
        free = ~np.isin(np.arange(size), chosen)
        unknown = float(len(functions))
        while max_runs is None or len(chosen) < max_runs:
            gain = ((functions @ covariance[targets, :size]) ** 2).sum(axis=0) / (
                np.diag(covariance)[:size] + belief.noise**2
            )
            possible = free & (cost <= left) & (gain > least_gain * unknown)
            if not possible.any():
                break
            index = int(
                np.argmax(
                    np.where(possible, np.log(np.maximum(gain, 1e-300)) - thrift * np.log(cost), -np.inf)
                )
            )
            covariance = _conditioned(covariance, index, belief.noise)
            chosen.append(index)
            free[index] = False
            left -= cost[index]
            unknown -= float(gain[index])
        if unknown < best[0] - 1e-12:
            best = (unknown, chosen)
    return best[1]


def foundation(form: str, candidates: Points, trained: Points | None, budget: float) -> list[int]:
    """Candidates without which the form could not be fitted at all; none where they would take more than half the budget."""
    cost, pool = flops_of(candidates), np.column_stack(candidates)
    runs = np.empty((0, 3)) if trained is None else np.unique(np.column_stack(trained), axis=0)
    affordable = np.nonzero(cost <= budget / 16)[0]
    chosen: list[int] = []
    for part in dict.fromkeys([BASE_FORM, form]):
        for run in runs_to_add(runs, part, pool[affordable]):
            chosen.append(int(affordable[np.nonzero((pool[affordable] == run).all(axis=1))[0][0]]))
            runs = np.vstack([runs, run])
    return chosen if cost[chosen].sum() <= budget / 2 else []


# -- the command ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProposedRun:
    """A run to train, and how well the target is known once it and those before it are trained."""

    params: int
    unique_tokens: float
    epochs: float
    tokens: float
    flops: float
    cumulative_flops: float
    loss_error: float  # standard error of the predicted loss at the target, in nats
    params_error: float | None  # standard error of ln N* at the target; None where the optimum is flat
    architecture: Architecture


@dataclass(frozen=True)
class Design:
    """Runs to train, cheapest first, for a plan at (target_ud, target_flops)."""

    law: str
    weight_decay: float
    target_ud: float
    target_flops: float
    target_params: float
    target_epochs: float
    target_loss: float
    existing_runs: int
    budget: float
    flops: float
    loss_error_before: float
    params_error_before: float | None
    loss_error_after: float
    params_error_after: float | None
    runs: tuple[ProposedRun, ...]

    def as_dict(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        for values_of_run, run in zip(values["runs"], self.runs, strict=True):
            values_of_run["architecture"] = run.architecture.model_dump()
        return values

    def table(self) -> pd.DataFrame:
        """The proposed runs as a run table that lacks only its losses."""
        rows = [
            {
                "run": f"n{run.params}-u{run.unique_tokens:.0f}-e{run.epochs:g}-wd{self.weight_decay:g}",
                "params": run.params,
                "unique_tokens": run.unique_tokens,
                "epochs": run.epochs,
                "tokens": run.tokens,
                "weight_decay": self.weight_decay,
                "flops": run.flops,
                "cumulative_flops": run.cumulative_flops,
                "loss_error": run.loss_error,
                "params_error": run.params_error,
                **{
                    name: getattr(run.architecture, name)
                    for name in ("d_model", "layers", "heads", "d_head", "d_ff", "vocab_size")
                },
            }
            for run in self.runs
        ]
        return pd.DataFrame(rows)


def design(
    budget: Any,
    target_ud: Any,
    target_flops: Any,
    *,
    runs: pd.DataFrame | None = None,
    calibration: str | Calibration | None = None,
    weight_decay: Any = None,
    law: str | None = None,
    max_runs: int | None = 30,
    min_params: Any = None,
    vocab_size: Any = None,
    noise: Any = NOISE,
    misfit: Any = MISFIT,
    progress: Callable[[str, float], None] | None = None,
) -> Design:
    """Propose runs worth at most `budget` FLOPs that make the plan for (target_ud, target_flops) certain soonest.

    `runs` are those that exist already (at one weight decay); `calibration` is the prior law, weak enough to be
    overruled by a dozen runs. Candidates use at most `target_ud` unique tokens and no more compute than the target.
    """
    total, flops, ud = (
        compute(budget, "budget"),
        compute(target_flops, "target_flops"),
        count(target_ud, "target_ud"),
    )
    noise, misfit = (
        number(noise, "noise", examples="0.01"),
        number(misfit, "misfit", positive=False, examples="0.3"),
    )
    if misfit < 0:
        raise InvalidInput(f"must not be negative, such as 0.3; got {misfit:g}.", field="misfit")
    known = Calibration.load(calibration)
    form = (
        check_form(law)
        if law is not None
        else (DEFAULT_FORM if DEFAULT_FORM in known.settings[0].laws else known.default_law)
    )
    decay, runs = _decay(runs, weight_decay, known)
    # The prior holds for any weight decay: it is weak, and the nearest calibrated setting is the best guess there is.
    nearest = min(
        known.settings, key=lambda setting: abs(np.log((setting.weight_decay + 1e-3) / (decay + 1e-3)))
    )
    belief = believe(nearest.law(form), Reference.of(nearest), runs, noise=noise, misfit=misfit)

    plan = allocate(belief.law, ud, flops, whole_epochs=False)
    wanted, functions = _what_matters(belief.law, float(plan.params), ud, flops)
    vocabulary = vocab_size if vocab_size is not None else known.vocab_size
    shapes, candidates = _candidates(float(plan.params), ud, min(total, flops), min_params, vocabulary)
    if runs is not None:
        candidates, shapes = _without(candidates, shapes, _points(runs))
    if not len(shapes):
        raise InvalidInput(
            f"no run worth training fits into a budget of {scientific(total)} FLOPs; a larger budget or smaller models "
            f"(min_params, a smaller vocabulary) would do."
        )
    trained = None if runs is None else _points(runs)
    first = foundation(form, candidates, trained, total)
    chosen = choose(
        belief,
        candidates,
        wanted,
        functions,
        total,
        trained=trained,
        first=first,
        least_gain=_LEAST_GAIN,
        max_runs=max_runs,
        progress=progress,
    )
    cost = flops_of(candidates)
    chosen = sorted(chosen, key=lambda i: (cost[i], i))
    errors = _errors(belief, candidates, chosen, wanted, functions, trained)
    spent = np.cumsum([0.0, *cost[chosen]])
    loss = float(plan.loss)
    proposed = tuple(
        ProposedRun(
            params=shapes[i].params,
            unique_tokens=float(candidates[1][i]),
            epochs=float(candidates[2][i]),
            tokens=float(candidates[1][i] * candidates[2][i]),
            flops=float(cost[i]),
            cumulative_flops=float(spent[k]),
            loss_error=errors[k][0] * loss,
            params_error=errors[k][1],
            architecture=shapes[i],
        )
        for k, i in enumerate(chosen, start=1)
    )
    return Design(
        law=form,
        weight_decay=decay,
        target_ud=ud,
        target_flops=flops,
        target_params=float(plan.params),
        target_epochs=float(plan.epochs),
        target_loss=loss,
        existing_runs=0 if runs is None else len(runs),
        budget=total,
        flops=float(spent[-1]),
        loss_error_before=errors[0][0] * loss,
        params_error_before=errors[0][1],
        loss_error_after=errors[-1][0] * loss,
        params_error_after=errors[-1][1],
        runs=proposed,
    )


def flops_of(points: Points) -> np.ndarray:
    return FLOPS_PER_PARAM_TOKEN * points[0] * points[1] * points[2]


def _decay(
    runs: pd.DataFrame | None, weight_decay: Any, known: Calibration
) -> tuple[float, pd.DataFrame | None]:
    """The weight decay that is designed for, and the existing runs at it."""
    wanted = None if weight_decay is None else number(weight_decay, "weight_decay", positive=False)
    if runs is None:
        return (known.settings[0].weight_decay if wanted is None else wanted), None
    decays = sorted(set(runs["weight_decay"]))
    if wanted is None:
        if len(decays) > 1:
            raise InvalidInput(
                f"the runs have several weight decays ({', '.join(f'{d:g}' for d in decays)}); say which one to design for."
            )
        return float(decays[0]), runs
    here = runs[np.isclose(runs["weight_decay"], wanted, rtol=1e-9, atol=1e-12)]
    return wanted, (here.reset_index(drop=True) if len(here) else None)


def _what_matters(law: Law, params: float, ud: float, flops: float) -> tuple[Points, np.ndarray]:
    """Three configurations on the target's iso-FLOP curve, and the loss at the plan and ln N* as functions of ln(loss) there."""
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    sizes = params * np.exp(np.array([0.0, -_APART, _APART]))
    points = (sizes, np.full(3, ud), product / sizes)
    at, below, above = np.log(law.loss(*points))
    curvature = (above - 2 * at + below) / _APART**2
    rows = [[1.0, 0.0, 0.0]]
    if curvature > 1e-4:
        rows.append([0.0, 0.5 / (_APART * curvature), -0.5 / (_APART * curvature)])
    return points, np.array(rows)


def _candidates(
    params: float, ud: float, dearest: float, min_params: Any, vocab_size: Any
) -> tuple[list[Architecture], Points]:
    """Buildable sizes x subsets of the corpus x epochs that cost at most `dearest`."""
    smallest = params / 64 if min_params is None else count(min_params, "min_params")
    vocabulary = {} if vocab_size is None else {"vocab_size": vocab_size}
    ladder: dict[int, Architecture] = {}
    for step in range(40):
        size = 2 * params / 2 ** (step / 2)
        if size < smallest * 0.99:
            break
        try:
            shape = shape_for(size, **vocabulary)
        except InvalidInput:
            continue  # a size that cannot be built with this vocabulary
        ladder[shape.params] = shape
    rows = [
        (shape, budget, epochs)
        for shape in ladder.values()
        for budget in (ud / 2**k for k in range(7))
        for epochs in (1.0, 2.0, 4.0, 8.0, 16.0)
        if FLOPS_PER_PARAM_TOKEN * shape.params * budget * epochs <= dearest
        and 0.5 <= budget * epochs / shape.params <= 2000  # outside of this a run says nothing about a plan
    ]
    points = (
        np.array([shape.params for shape, _, _ in rows], dtype=float),
        np.array([budget for _, budget, _ in rows], dtype=float),
        np.array([epochs for _, _, epochs in rows], dtype=float),
    )
    return [shape for shape, _, _ in rows], points


def _without(
    candidates: Points, shapes: list[Architecture], trained: Points
) -> tuple[Points, list[Architecture]]:
    """Candidates that are not, to within 5% in each number, among the trained runs."""
    near = np.ones((len(shapes), len(trained[0])), dtype=bool)
    for mine, theirs in zip(candidates, trained, strict=True):
        near &= np.abs(np.log(mine[:, None] / theirs[None])) < 0.05
    keep = ~near.any(axis=1)
    a, b, c = (values[keep] for values in candidates)
    return (a, b, c), [shapes[i] for i in np.flatnonzero(keep)]


def _errors(
    belief: Belief,
    candidates: Points,
    chosen: Sequence[int],
    wanted: Points,
    functions: np.ndarray,
    trained: Points | None,
) -> list[tuple[float, float | None]]:
    """Standard errors of ln(loss) and ln N* at the target before, and after each of the chosen runs."""
    order = list(chosen)
    picked: Points = (candidates[0][order], candidates[1][order], candidates[2][order])
    parts = [wanted, picked] + ([trained] if trained is not None else [])
    covariance = belief.covariance(_join(*parts))
    targets = slice(0, len(wanted[0]))
    for row in range(len(wanted[0]) + len(order), len(covariance)):
        covariance = _conditioned(covariance, row, belief.noise)
    errors = []
    for step in range(len(order) + 1):
        if step:
            covariance = _conditioned(covariance, len(wanted[0]) + step - 1, belief.noise)
        variance = np.einsum("ij,jk,ik->i", functions, covariance[targets, targets], functions)
        sd = np.sqrt(np.maximum(variance, 0.0))
        errors.append((float(sd[0]), float(sd[1]) if len(sd) > 1 else None))
    return errors


def _conditioned(covariance: np.ndarray, row: int, noise: float) -> np.ndarray:
    """The covariance after the loss in this row has been observed."""
    column = covariance[:, row]
    return covariance - np.outer(column, column) / (covariance[row, row] + noise**2)


def _jacobian(form: str, reference: Reference, theta: np.ndarray, points: Points) -> np.ndarray:
    size = len(theta)
    steps = np.concatenate([np.eye(size), -np.eye(size)], axis=1) * _STEP  # (parameters, 2 x parameters)
    members = reference.law(form, (theta[:, None] + steps)[:, :, None])
    with np.errstate(over="ignore", invalid="ignore"):
        ln_loss = np.log(members.loss(*points))
    return ((ln_loss[:size] - ln_loss[size:]) / (2 * _STEP)).T


def _points(table: pd.DataFrame) -> Points:
    params, unique, epochs = (
        table[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")
    )
    return params, unique, epochs


def _join(*parts: Points) -> Points:
    params, unique, epochs = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return params, unique, epochs


def describe(plan: Design) -> str:
    """One line on what the design is for."""
    return (
        f"plan at {short(plan.target_ud)} unique tokens and {scientific(plan.target_flops)} FLOPs: "
        f"{short(plan.target_params)} parameters, {plan.target_epochs:.3g} epochs, loss {plan.target_loss:.3f}"
    )
