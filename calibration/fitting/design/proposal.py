r"""Which runs to train next, so that the plan at a target becomes certain soonest per FLOP.

**What is wanted.** Small variance of linear functions of ln(loss) at chosen configurations: the loss of the
planned run, and ln N*, which moves with the slope of the iso-FLOP curve at the plan: -(d slope) / curvature.
The law before and after runs is the prior and the posterior of a fit (`bayes`); `select_runs` says what they
imply for runs that are not trained, and how runs are chosen.

The estimate is updated by giving the runs so far: train the cheap ones first, then ask again.

**Expected information** of a grid, before any of it is trained: which laws it identifies, how surely, and
what would add most. How much a run tells does not depend on its loss, so a plan's error after all of them is
known now. The plan that is asked about is one for the largest corpus of the grid with ten times the compute
of its dearest run, unless the caller names another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.bayes.hierarchical import (
    AUTO,
    by_weight_decay,
    candidates,
    fingerprints,
    hierarchical_fit,
    no_pooling,
    shares_runs,
)
from calibration.fitting.bayes.posterior import FINE, NoiseGrid, Posterior
from calibration.fitting.design.select_runs import (
    Wanted,
    errors_after_runs,
    identifying_runs,
    joined,
    select_runs,
)
from calibration.fitting.identify import Run, Unidentified, is_identified, unidentified
from calibration.fitting.runs.recipes import STEPS_NEEDED, comparable_runs
from calibration.fitting.runs.tables import warnings_of
from calibration.fitting.solver import Points, Progress, flops_of, points_of, silent
from planner.calibration import Calibration, shipped_names
from planner.hardware import Architecture, shape_for, vocabulary
from planner.inputs import CONTINUOUS, InvalidInput, compute, count, number, scientific, short
from planner.laws import BASE_FORM, DEFAULT_FORM, STANDARD, Law, check_form
from planner.plans import plan
from planner.solve import FLOPS_PER_PARAM_TOKEN, allocate
from planner.weight_decay_rule import tuned_weight_decay, within_factor

_APART = 0.35  # ln of the size ratio at which the slope of the iso-FLOP curve is taken
_FAR = 10.0  # times the unique tokens of a calibration, from where another one is the prior
_EXACT = 1e-6  # model discrepancy of a law that is taken for exact
_LEAST_GAIN = 0.002  # a run that lowers the wanted variance by less than this share is not worth listing
_EPOCHS = (1.0, 2.0, 4.0, 8.0, 16.0)

# of a grid that is being planned
_BEYOND = 10.0  # times the dearest run of a grid is what plans are made for
_WORTH = 0.02  # of what is left unknown: a run that settles less is not worth naming
_MOST = 300  # configurations that are reckoned with: more settle no less


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
    steps: float | None = None  # where the batch is known
    weight_decay: float | None = None  # None: to be tuned, from nothing that is known


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
    batch_tokens: float | None = None  # of the existing runs
    steps_needed: float | None = None  # that a run must have, as the existing ones show or at least had
    steps_shown: bool = False  # whether they show that fewer tell nothing; otherwise none had fewer
    tuned: bool = False  # whether each existing run is the best of several settings
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
            name = f"n{run.params}-u{run.unique_tokens:.0f}-e{run.epochs:g}"
            name += "" if run.weight_decay is None else f"-wd{run.weight_decay:g}"
            apart = ("architecture", "steps", "weight_decay")
            values = {key: value for key, value in vars(run).items() if key not in apart}
            if run.steps is not None:
                values |= {"batch_tokens": self.batch_tokens, "steps": run.steps}
            shape = ("d_model", "layers", "heads", "d_head", "d_ff", "vocab_size")
            rows.append({"run": name, **values} | {key: getattr(run.architecture, key) for key in shape})
        table = pd.DataFrame(rows)
        if rows:
            table.insert(5, "weight_decay", [run.weight_decay for run in self.runs])
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
    min_tokens: Any = None,
    min_unique: Any = None,
    batch_tokens: Any = None,
    identify: bool = True,
    noise: Any = None,
    model_discrepancy: Any = None,
    progress: Progress | None = None,
) -> Design:
    """Propose runs, worth at most `budget` FLOPs, that make the plan for a target certain soonest.

    `runs` are those that exist already; `calibration` is the prior law, weak enough to be overruled by a
    dozen runs, by default the shipped one that suits the runs, or the target; `weight_decay` by default that
    of the runs, or of the prior's plan. `noise` and `model_discrepancy` are learnt from the runs unless
    given. Candidates use the target's compute and data at most, `min_unique` of it at least, and `min_tokens`
    or the steps needed (`recipes`, or as many as every run had); `identify`: the first identify a law.
    """
    total, flops = compute(budget, "budget"), compute(target_flops, "target_flops")
    ud, grid = count(target_ud, "target_ud"), _noise_grid(noise, model_discrepancy)
    known = suitable_calibration(ud) if calibration is None else Calibration.load(calibration)
    form = check_form(law) if law is not None else default_form(known)
    rows = known.vocab_size if vocab_size is None else vocab_size
    decay, runs, existing, told = _existing(runs, weight_decay, lambda: _planned_decay(known, ud, flops))
    compared = None if existing is None else runs
    known, belief, said = _belief(compared, form, decay, known, calibration is not None, grid)
    batch, (steps, shown) = _batch(runs, known, batch_tokens), _fewest_steps(runs, known, min_tokens)
    target, warnings = Target.of(belief.law, ud, flops).no_worse_than_uniform(rows, known.name)
    trained = None if existing is None else points_of(existing)
    limits = min(total, flops), min_params, rows, trained, _fewest_tokens(min_tokens, batch, steps)
    shapes, points = _candidates(target.params, _parts(ud, min_unique), *limits)
    if not shapes:
        raise _too_little(total, batch, steps)
    chosen = select_runs(
        belief,
        points,
        target.wanted,
        total,
        trained=trained,
        first=identifying_runs(form, points, trained, total * identify),
        least_gain=_LEAST_GAIN,
        max_runs=max_runs,
        progress=progress or silent,
    )
    cheapest_first = sorted(chosen, key=lambda i: (flops_of(points)[i], i))
    picked = [shapes[i] for i in cheapest_first], _some(points, cheapest_first)
    found = _proposal(belief, decay, target, *picked, trained, total, batch)
    facts: dict[str, Any] = {"calibration": known.name, "batch_tokens": batch, "steps_needed": steps}
    facts |= {"steps_shown": shown, "warnings": (*told, *said, *warnings)}
    return _by_the_rule(dataclasses.replace(found, **facts), runs)


def _by_the_rule(found: Design, runs: pd.DataFrame | None) -> Design:
    """Next to runs that were tuned one by one, weight decays to start from: none is known where the rule has
    no learning rate and batch.
    """
    if runs is None or "tuned_weight_decay" not in runs:
        return found
    rates = runs["learning_rate"].mode().tolist() if "learning_rate" in runs else []
    proposed, batch = [], found.batch_tokens
    for run in found.runs:
        decay = None
        if batch is not None and rates:
            tuned = tuned_weight_decay(run.params, run.unique_tokens, rates[0], batch)
            decay = within_factor(tuned).weight_decay
        proposed.append(dataclasses.replace(run, weight_decay=decay))
    return dataclasses.replace(found, tuned=True, runs=tuple(proposed))


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


def prior_near(known: Calibration, form: str, decay: float, grid: NoiseGrid = FINE) -> Posterior:
    """Before any run, the calibrated setting nearest to a weight decay is a weak prior."""
    prior = candidates(known, weight_decays=(decay,))[0][0]
    nothing = pd.DataFrame(columns=["params", "unique_tokens", "epochs", "loss"], dtype=float)
    return no_pooling(prior, {decay: nothing}, form, grid)[decay]


def _belief(
    runs: pd.DataFrame | None,
    form: str,
    decay: float,
    known: Calibration,
    given: bool,
    grid: NoiseGrid | None,
) -> tuple[Calibration, Posterior, tuple[str, ...]]:
    """The posterior of a fit of these runs, its prior, and a warning where that is not the given one; without
    runs the prior itself.
    """
    if runs is None:
        return known, prior_near(known, form, decay, grid or FINE), ()
    said: tuple[str, ...] = ()
    if given and shares_runs(known, fingerprints(runs)):
        said = (f"{known.name} was fitted on some of these runs: another law is their prior",)
    found = hierarchical_fit(runs, (form,), known if given and not said else AUTO, grid=grid)
    return found.prior.calibration, found.posteriors[form][decay], said


def _noise_grid(noise: Any, model_discrepancy: Any) -> NoiseGrid | None:
    """Levels that are given instead of learnt; None where neither is."""
    given: dict[str, tuple[float, ...]] = {}
    if noise is not None:
        given["noise_levels"] = (number(noise, "noise", examples="0.01"),)
    if model_discrepancy is not None:
        off = number(model_discrepancy, "model_discrepancy", positive=False, examples="0.3")
        if off < 0:
            raise InvalidInput(f"must not be negative, such as 0.3; got {off:g}.", field="model_discrepancy")
        given["discrepancy_levels"] = (max(off, _EXACT),)
    return NoiseGrid(**given) if given else None


def _existing(
    runs: pd.DataFrame | None, weight_decay: Any, planned: Callable[[], float]
) -> tuple[float, pd.DataFrame | None, pd.DataFrame | None, tuple[str, ...]]:
    """The weight decay that is designed for, the runs that can be compared with each other, those of them at
    it, and how they were chosen.
    """
    wanted = None if weight_decay is None else number(weight_decay, "weight_decay", positive=False)
    if runs is None:
        return (planned() if wanted is None else wanted), None, None, ()
    before = len(warnings_of(runs))
    chosen = comparable_runs(runs, wanted)
    told = tuple(warning.text for warning in warnings_of(chosen, "‹{}›".format)[before:])
    if wanted is not None:
        return wanted, chosen, (chosen if len(chosen) else None), told
    decays = sorted(set(chosen["weight_decay"]))
    if len(decays) > 1:
        raise InvalidInput(
            f"the runs have several weight decays ({', '.join(f'{d:g}' for d in decays)}); say which one "
            "to design for."
        )
    return float(decays[0]), chosen, chosen, told


def _too_little(budget: float, batch: float | None, steps: float | None) -> InvalidInput:
    needed = f" with the {steps:,.0f} steps of {short(batch)} tokens that it needs" if batch and steps else ""
    return InvalidInput(
        f"no run worth training{needed} fits into a budget of {scientific(budget)} FLOPs; "
        f"a larger budget, smaller models (‹min_params›, a smaller vocabulary) or a smaller batch "
        f"(‹batch_tokens›) would do."
    )


def _planned_decay(known: Calibration, ud: float, flops: float) -> float:
    """That of the plan by this calibration; its first where it has no plan so far from its runs."""
    try:
        return plan(ud, flops, calibration=known).weight_decay
    except InvalidInput:
        return known.settings[0].weight_decay


def _batch(runs: pd.DataFrame | None, known: Calibration, given: Any) -> float | None:
    """Tokens of a step: as said, or of the runs, or else of those behind the calibration."""
    if given is not None:
        return count(given, "batch_tokens")
    if runs is None:
        return None if known.recipe is None else float(known.recipe.batch_tokens)
    has_batch = "batch_tokens" in runs and runs["batch_tokens"].notna().any()
    return float(runs["batch_tokens"].max()) if has_batch else None


def _fewest_steps(
    runs: pd.DataFrame | None, known: Calibration, min_tokens: Any
) -> tuple[float | None, bool]:
    """How many steps a run needs, and whether the runs show that, or else those behind the calibration; where
    they show nothing, and nobody says what a run has to see, what the shortest of them had.
    """
    shown = known.steps_needed if runs is None else runs.attrs.get(STEPS_NEEDED)
    if shown is not None or min_tokens is not None:
        return shown, shown is not None
    if runs is not None:
        has_steps = "steps" in runs and runs["steps"].notna().any()
        return (float(runs["steps"].min()) if has_steps else None), False
    if known.recipe is None:
        return None, False
    ranges = [setting.fitted_on for setting in known.settings]
    fewest = min(on.unique_tokens[0] * on.epochs[0] for on in ranges)
    return fewest / known.recipe.batch_tokens, False


def _parts(ud: float, min_unique: Any) -> list[float]:
    """How much of a corpus a run may use: at least as much as is asked for."""
    least = count(min_unique or 1, "min_unique")
    return [ud / 2**k for k in range(7) if ud / 2**k >= least]


def _fewest_tokens(given: Any, batch: float | None, steps: float | None) -> float:
    """What a run has to see: as many as are asked for, and the steps that it needs."""
    return max((batch or 0.0) * (steps or 0.0), count(given or 1, "min_tokens"))


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


def _some(points: Points, which: list[int] | np.ndarray) -> Points:
    params, unique, epochs = (values[which] for values in points)
    return params, unique, epochs


def _candidates(
    params: float,
    data: Sequence[float],
    dearest: float,
    min_params: Any,
    vocab_size: Any,
    trained: Points | None,
    fewest: float = 0.0,
) -> tuple[list[Architecture], Points]:
    """Buildable sizes x subsets of the corpus x epochs that cost at most `dearest` and see at least the
    `fewest` tokens, without those that are, to within 5% in each number, among the trained runs.
    """
    smallest = params / 64 if min_params is None else count(min_params, "min_params")
    rows = [
        (shape, budget, epochs)
        for shape in _ladder(2 * params, smallest, vocab_size)
        for budget in data
        for epochs in _EPOCHS
        if FLOPS_PER_PARAM_TOKEN * shape.params * budget * epochs <= dearest
        and budget * epochs >= fewest
        and 0.5 <= budget * epochs / shape.params <= 2000  # outside of this a run says nothing about a plan
    ]
    columns = [(shape.params, budget, epochs) for shape, budget, epochs in rows]
    points = np.array(columns, dtype=float).reshape(-1, 3)
    known = np.empty((0, 3)) if trained is None else np.column_stack(trained)
    near = (np.abs(np.log(points[:, None] / known[None])) < 0.05).all(axis=-1).any(axis=1)
    new = np.flatnonzero(~near)
    return [rows[i][0] for i in new], (points[new, 0], points[new, 1], points[new, 2])


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
    belief: Posterior,
    decay: float,
    target: Target,
    shapes: list[Architecture],
    points: Points,
    trained: Points | None,
    budget: float,
    batch: float | None,
) -> Design:
    """The chosen runs in their order, each with what is known once it is trained."""
    cost = flops_of(points)
    spent = np.cumsum([0.0, *cost])
    errors = errors_after_runs(belief, points, target.wanted, trained)
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
            steps=None if batch is None else float(unique * epochs / batch),
            weight_decay=decay,
        )
        for k, (shape, _, unique, epochs, flops) in enumerate(
            zip(shapes, *points, cost, strict=True), start=1
        )
    )
    known_runs = np.column_stack(joined(trained, points))
    return Design(
        law=belief.form,
        weight_decay=decay,
        target_ud=target.ud,
        target_flops=target.flops,
        target_params=target.params,
        target_epochs=target.epochs,
        target_loss=target.loss,
        existing_runs=0 if trained is None else len(trained[0]),
        budget=budget,
        flops=float(spent[-1]),
        loss_error_before=loss_errors[0],
        params_error_before=params_errors[0],
        loss_error_after=loss_errors[-1],
        params_error_after=params_errors[-1],
        runs=proposed,
        not_identified=tuple(form for form in STANDARD if not is_identified(known_runs, form)),
    )


def describe(plan: Design) -> str:
    """One line on what the design is for."""
    return (
        f"plan at {short(plan.target_ud)} unique tokens and {scientific(plan.target_flops)} FLOPs: "
        f"{short(plan.target_params)} parameters, {plan.target_epochs:.3g} epochs, loss "
        f"{plan.target_loss:.3f}"
    )


# -- expected information of a grid --------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpectedInformation:
    """What the runs of one weight decay will tell about a plan."""

    weight_decay: float
    runs: int
    calibration: str  # the law that is the prior
    target_ud: float
    target_flops: float
    identified: tuple[str, ...]  # forms that are fitted without a prior
    missing: tuple[Unidentified, ...]
    loss_error: float  # a share of the plan's loss: standard error
    loss_error_before: float
    params_error: float | None  # of ln N*; None where the optimum is flat
    add: Run | None  # what would tell most, within the compute of the dearest run

    def as_dict(self) -> dict[str, Any]:
        missing = [{"form": one.form, "reason": one.reason, "advice": one.remedy} for one in self.missing]
        added = None if self.add is None else self.add._asdict()
        return dataclasses.asdict(self) | {"missing": missing, "add": added}

    @property
    def lacks(self) -> str:
        """In words: which laws the runs do not identify, and what to add; or what would tell most."""
        if not self.missing:
            return "" if self.add is None else f"most would be added by a run of {self.add}"
        first = self.missing[0]
        forms = ", ".join(one.form for one in self.missing) if self.identified else "no law"
        verb = "is identified" if forms == "no law" else "cannot be identified"
        return f"{forms} {verb} ({first.reason}), so that a fit will lean on its prior there; {first.remedy}"


def expected_information(
    grid: pd.DataFrame, *, target_ud: Any = None, target_flops: Any = None
) -> list[ExpectedInformation]:
    """What a table of runs, which need no losses, will tell at each of its weight decays."""
    ud = float(grid["unique_tokens"].max()) if target_ud is None else count(target_ud, "target_ud")
    dearest = float(flops_of(points_of(grid)).max())
    flops = _BEYOND * dearest if target_flops is None else compute(target_flops, "target_flops")
    missing = unidentified(grid, STANDARD)
    return [
        _information_at(runs, ud, flops, [one for one in missing if one.weight_decay == decay])
        for decay, runs in by_weight_decay(grid).items()
    ]


def _information_at(
    runs: pd.DataFrame, ud: float, flops: float, missing: list[Unidentified]
) -> ExpectedInformation:
    known, decay = suitable_calibration(ud), float(runs["weight_decay"].iloc[0])
    belief = prior_near(known, default_form(known), decay)
    target = Target.of(belief.law, ud, flops)
    distinct = runs.groupby(["params", "unique_tokens", "epochs"], as_index=False).size()
    distinct = distinct.iloc[np.linspace(0, len(distinct) - 1, min(len(distinct), _MOST)).astype(int)]
    points = points_of(distinct)
    with_seeds = _some(points, np.repeat(np.arange(len(distinct)), distinct["size"]))
    before, *_, after = errors_after_runs(belief, with_seeds, target.wanted)
    lacking = {one.form for one in missing}
    return ExpectedInformation(
        weight_decay=decay,
        runs=len(runs),
        calibration=known.name,
        target_ud=ud,
        target_flops=flops,
        identified=tuple(form for form in STANDARD if form not in lacking),
        missing=tuple(missing),
        loss_error=after[0],
        loss_error_before=before[0],
        params_error=after[1] if len(after) > 1 else None,
        add=None if missing else _next(belief, points, target),
    )


def _next(belief: Posterior, points: Points, target: Target) -> Run | None:
    """The run, of sizes and data around those of the grid, that would tell most for its compute."""
    dearest = float(flops_of(points).max())
    params, unique = (_around(values) for values in points[:2])
    rows = [(n, u, e) for n in params for u in unique for e in _EPOCHS if u <= target.ud * 1.001]
    cells = np.array(rows, dtype=float).reshape(-1, 3)
    possible: Points = (cells[:, 0], cells[:, 1], cells[:, 2])
    affordable = _some(possible, np.flatnonzero(flops_of(possible) <= dearest * 1.001))
    chosen = select_runs(
        belief, affordable, target.wanted, dearest, trained=points, least_gain=_WORTH, max_runs=1
    )
    return Run(*(float(values[chosen[0]]) for values in affordable)) if chosen else None


def _around(values: np.ndarray) -> list[float]:
    """Some of the distinct values, and one below and above them."""
    distinct = np.unique(values)
    distinct = distinct[np.unique(np.linspace(0, len(distinct) - 1, 5).astype(int))]
    return [float(v) for v in (distinct[0] / 2, *distinct, distinct[-1] * 2)]
