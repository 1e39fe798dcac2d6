r"""Which runs to train next, so that the plan at a target becomes certain soonest per FLOP.

**What is wanted.** Small variance of linear functions of ln(loss) at chosen configurations: the loss of the
planned run, and ln N*, which moves with the slope of the iso-FLOP curve at the plan: -(d slope) / curvature.
The law before and after runs is the prior and the posterior of a fit (`bayes`); `predictive_covariance` says
what they imply for runs that are not trained, `select_runs` how runs are chosen.

The estimate is updated by giving the runs so far: train the cheap ones first, then ask again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.bayes.hierarchical import hierarchical_fit, without_runs
from calibration.fitting.bayes.posterior import NoiseGrid
from calibration.fitting.bayes.prior import AUTO, fingerprints, shares_runs
from calibration.fitting.coordinates import Points, flops_of, joined, points_of
from calibration.fitting.design.predictive_covariance import PredictiveCovariance
from calibration.fitting.design.select_runs import Wanted, errors_after_runs, identifying_runs, select_runs
from calibration.fitting.huber import Progress
from calibration.fitting.identify import is_identified
from planner.calibration import Calibration, shipped_names
from planner.hardware import Architecture, shape_for, vocabulary
from planner.inputs import CONTINUOUS, InvalidInput, compute, count, number, scientific, short
from planner.laws import BASE_FORM, DEFAULT_FORM, STANDARD, Law, check_form
from planner.solve import FLOPS_PER_PARAM_TOKEN, allocate

_APART = 0.35  # ln of the size ratio at which the slope of the iso-FLOP curve is taken
_FAR = 10.0  # times the unique tokens of a calibration, from where another one is the prior
_EXACT = 1e-6  # model discrepancy of a law that is taken for exact
_LEAST_GAIN = 0.002  # a run that lowers the wanted variance by less than this share is not worth listing


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
    calibration: str = ""  # the law that was the prior
    not_identified: tuple[str, ...] = ()  # forms that cannot be fitted without a prior once all are trained
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        for values_of_run, run in zip(values["runs"], self.runs, strict=True):
            values_of_run["architecture"] = run.architecture.model_dump()
        return values

    def table(self) -> pd.DataFrame:
        """The proposed runs as a run table that lacks only its losses."""
        rows = []
        for run in self.runs:
            name = f"n{run.params}-u{run.unique_tokens:.0f}-e{run.epochs:g}-wd{self.weight_decay:g}"
            values = {key: value for key, value in vars(run).items() if key != "architecture"}
            shape = ("d_model", "layers", "heads", "d_head", "d_ff", "vocab_size")
            rows.append({"run": name, **values} | {key: getattr(run.architecture, key) for key in shape})
        table = pd.DataFrame(rows)
        if rows:
            table.insert(5, "weight_decay", self.weight_decay)
        return table


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
    noise: Any = None,
    model_discrepancy: Any = None,
    progress: Progress | None = None,
) -> Design:
    """Propose runs, worth at most `budget` FLOPs, that make the plan for a target certain soonest.

    `runs` are those that exist already; `calibration` is the prior law, weak enough to be overruled by a
    dozen runs, by default the shipped one that suits the runs, or the target where there are none. `noise`
    and `model_discrepancy` are learnt from the runs unless they are given. Candidates use at most `target_ud`
    unique tokens and no more compute than the target.
    """
    total, flops = compute(budget, "budget"), compute(target_flops, "target_flops")
    ud, doubts = count(target_ud, "target_ud"), _doubts(noise, model_discrepancy)
    known = suitable_calibration(ud) if calibration is None else Calibration.load(calibration)
    form = check_form(law) if law is not None else default_form(known)
    rows = known.vocab_size if vocab_size is None else vocab_size
    decay, existing = _decay(runs, weight_decay, known)
    said: tuple[str, ...] = ()
    if existing is None or runs is None:
        belief = prior_near(known, form, decay, doubts)
    else:
        known, belief, said = _after(runs, form, decay, known if calibration is not None else None, doubts)
    target, warnings = Target.of(belief.law, ud, flops).no_worse_than_uniform(rows, known.name)
    trained = None if existing is None else points_of(existing)
    candidates = _candidates(target.params, ud, min(total, flops), min_params, rows).without(trained)
    if not candidates.shapes:
        raise InvalidInput(
            f"no run worth training fits into a budget of {scientific(total)} FLOPs; "
            f"a larger budget or smaller models (‹min_params›, a smaller vocabulary) would do."
        )
    chosen = select_runs(
        belief,
        candidates.points,
        target.wanted,
        total,
        trained=trained,
        first=identifying_runs(form, candidates.points, trained, total),
        least_gain=_LEAST_GAIN,
        max_runs=max_runs,
        progress=progress,
    )
    picked = candidates.cheapest_first(chosen)
    found = _proposal(belief, decay, target, picked, trained, total)
    known_runs = np.column_stack(picked.points if trained is None else joined(trained, picked.points))
    lacking = tuple(form for form in STANDARD if not is_identified(known_runs, form))
    return dataclasses.replace(
        found, calibration=known.name, warnings=(*said, *warnings), not_identified=lacking
    )


def suitable_calibration(ud: float) -> Calibration:
    """The shipped calibration to believe in before any run with so many unique tokens: the published one, or
    where that is more than a factor of ten away from all it was fitted on, the nearest.
    """
    default, *others = (Calibration.load(name) for name in (None, *shipped_names()))
    if _away(default, ud) <= np.log(_FAR):
        return default
    believable = [known for known in others if all(BASE_FORM in setting.laws for setting in known.settings)]
    return min((default, *believable), key=lambda known: _away(known, ud))


def _away(known: Calibration, ud: float) -> float:
    """ln of the factor between unique tokens and what a calibration was fitted on; 0 inside of it."""
    ranges = [setting.fitted_on.unique_tokens for setting in known.settings]
    return float(min(max(np.log(low / ud), np.log(ud / high), 0.0) for low, high in ranges))


def default_form(known: Calibration) -> str:
    return DEFAULT_FORM if DEFAULT_FORM in known.settings[0].laws else known.default_law


def prior_near(
    known: Calibration, form: str, decay: float, doubts: NoiseGrid | None = None
) -> PredictiveCovariance:
    """Before any run, the calibrated setting nearest to a weight decay is a weak prior."""
    return PredictiveCovariance.of(without_runs(known, form, decay, doubts))


def _after(
    runs: pd.DataFrame, form: str, decay: float, given: Calibration | None, doubts: NoiseGrid | None
) -> tuple[Calibration, PredictiveCovariance, tuple[str, ...]]:
    """What a fit of these runs believes, the prior in it, and a warning where that is not the given one."""
    seen = given is not None and shares_runs(given, fingerprints(runs))
    found = hierarchical_fit(runs, (form,), AUTO if given is None or seen else given, grid=doubts)
    said = (f"{given.name} was fitted on some of these runs: another law is their prior",) if given else ()
    return (
        found.prior.calibration,
        PredictiveCovariance.of(found.posteriors[form][decay]),
        said if seen else (),
    )


def _doubts(noise: Any, model_discrepancy: Any) -> NoiseGrid | None:
    """Levels that are given instead of learnt; None where neither is."""
    given: dict[str, tuple[float, ...]] = {}
    if noise is not None:
        given["noise"] = (number(noise, "noise", examples="0.01"),)
    if model_discrepancy is not None:
        off = number(model_discrepancy, "model_discrepancy", positive=False, examples="0.3")
        if off < 0:
            raise InvalidInput(f"must not be negative, such as 0.3; got {off:g}.", field="model_discrepancy")
        given["discrepancy"] = (max(off, _EXACT),)
    return NoiseGrid.grid(**given) if given else None


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
                f"the runs have several weight decays ({', '.join(f'{d:g}' for d in decays)}); say which one "
                "to design for."
            )
        return float(decays[0]), runs
    here = runs[np.isclose(runs["weight_decay"], wanted, rtol=1e-9, atol=1e-12)]
    return wanted, (here.reset_index(drop=True) if len(here) else None)


@dataclass(frozen=True)
class Target:
    """The plan that shall become certain."""

    ud: float
    flops: float
    params: float
    epochs: float
    loss: float
    wanted: Wanted  # the loss at the plan and, unless the optimum is flat, ln N*

    @staticmethod
    def of(law: Law, ud: float, flops: float) -> Target:
        plan = allocate(law, ud, flops, CONTINUOUS)
        params = float(plan.params)
        product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
        sizes = params * np.exp(np.array([0.0, -_APART, _APART]))
        points = (sizes, np.full(3, ud), product / sizes)
        at, below, above = np.log(law.loss(*points))
        curvature = (above - 2 * at + below) / _APART**2
        rows = [[1.0, 0.0, 0.0]]
        if curvature > 1e-4:
            rows.append([0.0, 0.5 / (_APART * curvature), -0.5 / (_APART * curvature)])
        wanted = Wanted(points, np.array(rows))
        return Target(ud, flops, params, float(plan.epochs), float(plan.loss), wanted)

    def no_worse_than_uniform(self, vocab_size: Any, believed: str) -> tuple[Target, tuple[str, ...]]:
        """The same with a loss of at most the uniform loss, and a warning where it had to be cut."""
        tokens = None if vocab_size is None else vocabulary(vocab_size)
        if tokens is None or self.loss <= np.log(tokens):
            return self, ()
        uniform = float(np.log(tokens))
        warning = (
            f"{believed} would say {self.loss:.2f}, worse than uniform over {tokens:,} tokens "
            f"({uniform:.2f}): it is a law of another scale, so the loss is no more than a guess until "
            f"there are runs of your own (‹runs›) or a law of a similar scale (‹calibration›)"
        )
        return dataclasses.replace(self, loss=uniform), (warning,)


@dataclass(frozen=True)
class _Candidates:
    """Runs that could be trained: the shape of each, and where it is."""

    shapes: list[Architecture]
    points: Points

    def pick(self, which: list[int]) -> _Candidates:
        params, unique, epochs = (values[which] for values in self.points)
        return _Candidates([self.shapes[i] for i in which], (params, unique, epochs))

    def cheapest_first(self, which: list[int]) -> _Candidates:
        cost = flops_of(self.points)
        return self.pick(sorted(which, key=lambda i: (cost[i], i)))

    def without(self, trained: Points | None) -> _Candidates:
        """Those that are not, to within 5% in each number, among the trained runs."""
        if trained is None:
            return self
        near = np.ones((len(self.shapes), len(trained[0])), dtype=bool)
        for mine, theirs in zip(self.points, trained, strict=True):
            near &= np.abs(np.log(mine[:, None] / theirs[None])) < 0.05
        return self.pick([int(i) for i in np.flatnonzero(~near.any(axis=1))])


def _candidates(params: float, ud: float, dearest: float, min_params: Any, vocab_size: Any) -> _Candidates:
    """Buildable sizes x subsets of the corpus x epochs that cost at most `dearest`."""
    smallest = params / 64 if min_params is None else count(min_params, "min_params")
    rows = [
        (shape, budget, epochs)
        for shape in _ladder(2 * params, smallest, vocab_size)
        for budget in (ud / 2**k for k in range(7))
        for epochs in (1.0, 2.0, 4.0, 8.0, 16.0)
        if FLOPS_PER_PARAM_TOKEN * shape.params * budget * epochs <= dearest
        and 0.5 <= budget * epochs / shape.params <= 2000  # outside of this a run says nothing about a plan
    ]
    sizes = np.array([shape.params for shape, _, _ in rows], dtype=float)
    budgets = np.array([budget for _, budget, _ in rows], dtype=float)
    return _Candidates(
        [shape for shape, _, _ in rows],
        (sizes, budgets, np.array([epochs for _, _, epochs in rows], dtype=float)),
    )


def _ladder(largest: float, smallest: float, vocab_size: Any) -> list[Architecture]:
    """Buildable shapes, each smaller than the one before by a factor of about the square root of two."""
    embedding = {} if vocab_size is None else {"vocab_size": vocab_size}
    found: dict[int, Architecture] = {}
    for step in range(40):
        size = largest / 2 ** (step / 2)
        if size < smallest * 0.99:
            break
        try:
            shape = shape_for(size, **embedding)
        except InvalidInput:
            continue  # a size that cannot be built with this vocabulary
        found[shape.params] = shape
    return list(found.values())


def _proposal(
    belief: PredictiveCovariance,
    decay: float,
    target: Target,
    picked: _Candidates,
    trained: Points | None,
    budget: float,
) -> Design:
    """The chosen runs in their order, each with what is known once it is trained."""
    cost = flops_of(picked.points)
    spent = np.cumsum([0.0, *cost])
    errors = errors_after_runs(belief, picked.points, target.wanted, trained)
    loss_errors = [error[0] * target.loss for error in errors]
    params_errors = [error[1] if len(error) > 1 else None for error in errors]
    proposed = tuple(
        ProposedRun(
            params=shape.params,
            unique_tokens=float(unique),
            epochs=float(epochs),
            tokens=float(unique * epochs),
            flops=float(flops),
            cumulative_flops=float(spent[k]),
            loss_error=loss_errors[k],
            params_error=params_errors[k],
            architecture=shape,
        )
        for k, (shape, _, unique, epochs, flops) in enumerate(
            zip(picked.shapes, *picked.points, cost, strict=True), start=1
        )
    )
    planned = {
        f"target_{name}": getattr(target, name) for name in ("ud", "flops", "params", "epochs", "loss")
    }
    return Design(
        law=belief.form,
        weight_decay=decay,
        **planned,
        existing_runs=0 if trained is None else len(trained[0]),
        budget=budget,
        flops=float(spent[-1]),
        loss_error_before=loss_errors[0],
        params_error_before=params_errors[0],
        loss_error_after=loss_errors[-1],
        params_error_after=params_errors[-1],
        runs=proposed,
    )


def describe(plan: Design) -> str:
    """One line on what the design is for."""
    return (
        f"plan at {short(plan.target_ud)} unique tokens and {scientific(plan.target_flops)} FLOPs: "
        f"{short(plan.target_params)} parameters, {plan.target_epochs:.3g} epochs, loss "
        f"{plan.target_loss:.3f}"
    )
