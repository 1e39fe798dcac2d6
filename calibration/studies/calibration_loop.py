r"""From a corpus to a plan of its own: design, sweep, fit, plan, and again, until the plan is certain enough.

    question.json       what was asked, and what follows from it: tokens, compute, weight decays, recipe
    waves/1.csv ...     the runs that were decided on, as `planner calibrate design -o` writes them
    runs/ validation/   what was trained, see `directory`; the loop's own directory is that of a study
    calibration.json    the laws of all finished runs

A wave is decided once, from what was trained before it, and written before any of it is trained. So a loop
that is killed goes on where it was, and nothing is known that is not in its directory.

**What is trained.** The budget is divided over `WAVES` waves, what one leaves over goes to the next. Each has
the runs that `design` proposes for the question's plan, at two or three weight decays:

- *weight decay*: the first wave has the one that the rule of `planner.weight_decay_rule` names for the plan
  of a shipped law, a third and three times of it. Later ones have that of the plan so far and its rival: the
  next best, or three times further on where the plan's is at an end of those trained.
- *learning rate*: that of the recipe, up to `_RATE_HOLDS` parameters in the micro recipe; above it falls with
  the root of the size (`studies/micro/new-budgets.md`).

**When it stops.** After each wave the laws are fitted and the question is planned. The *expected regret* of
the plan is what knowing the law exactly would gain on average: the mean, over the draws of the posterior, of
the plan's loss minus the lowest of any size, epochs and weight decay trained (the expected value of perfect
information; Raiffa & Schlaifer 1961). Where it is at most the tolerance nothing more is trained.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.design.proposal import default_form, design, suitable_calibration
from calibration.studies.corpus_recipe import any_config, check_tokens, expected_tokens, recipe_of
from calibration.studies.directory import (
    GRID,
    StudyDirectory,
    begin,
    prepare,
    unfinished,
    write_if_changed,
)
from calibration.studies.fit import NONE, fit, open_source
from calibration.studies.prescriptions import cell_at_compute
from calibration.studies.study import Study, StudyRun, Validation
from planner.calibration import Calibration, Recipe, shipped_names
from planner.inputs import InvalidInput, Limits, epochs, scientific, short
from planner.plans import plan
from planner.results import Plan
from planner.solve import FLOPS_PER_PARAM_TOKEN, Point, allocate
from planner.uncertainty import FAR, paired_draws
from planner.weight_decay_rule import tuned_weight_decay
from trainer.config import LATER, RunConfig, changed, differences
from trainer.data.tokens import open_set
from trainer.files import read_json, write_json

WAVES = 4
FEWEST_RUNS, MOST_RUNS = 3, 24
TOLERANCE = 0.01  # nats of expected regret
QUESTION = "question.json"
AHEAD = 100.0  # times the compute of the budget: what is planned for where nobody says it
_APART = 3.0  # between weight decays
_RATE_HOLDS = 444_096  # parameters up to which the learning rate of the micro recipe was tried
_FEWEST_STEPS = 64  # of a run, as in the micro study's grid
_LEAST_DATA = 0.25  # of the corpus: runs on a sixteenth of German manual pages misled the plan
_DECAYS = (0.001, 30.0)  # that are trained at most
_FORECAST = 1.5  # times the tokens that are expected: what may turn out to be there
_FORMAT = 1


# -- the question --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What was asked; a directory belongs to one question."""

    corpus: str
    changes: tuple[str, ...] = ()
    ud: float | None = None  # None: all of the corpus
    flops: float | None = None  # None: `AHEAD` times the budget
    budget: float | None = None  # FLOPs of all runs together, or
    hours: float | None = None  # of this machine
    runs: int = MOST_RUNS
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Question:
    """What follows from it, and is decided once."""

    asked: Asked
    recipe: Mapping[str, Any]
    ud: float
    flops: float
    budget: float  # FLOPs, reckoned from timed passes where hours were given
    weight_decays: tuple[float, ...]

    def min_params(self, target_flops: float) -> float:
        """The smallest model worth training: the size whose compute-optimal run (Hoffmann et al. 2022, 20
        tokens for each parameter) takes the share of one run, of the budget or of what the plan takes.
        """
        share = min(self.budget, target_flops) / self.asked.runs
        return math.sqrt(share / (FLOPS_PER_PARAM_TOKEN * 20))

    @property
    def batch_tokens(self) -> int:
        config = any_config(self.recipe)
        return config.batch_size * config.sequence_length


def question_of(
    asked: Asked, folder: StudyDirectory, flops_of_hours: Callable[[Study, float], float]
) -> Question:
    """The question of a directory: read where it was begun, else decided. Tokens are made in between."""
    stored = stored_question(asked, folder)
    if stored is not None:
        return stored
    recipe = _recipe(asked)
    study = study_of(folder, recipe)
    begin(study, folder.path)
    available = open_set(prepare(study.runs, folder)).facts["streams"]["train"]["tokens"] - 1
    check_tokens(asked.corpus, available)
    question = _decided(asked, recipe, available, folder, flops_of_hours)
    write_json(folder.path / QUESTION, _plain(question))
    return question


def planned_ahead(
    asked: Asked, folder: StudyDirectory, flops_of_hours: Callable[[Study, float], float]
) -> Question:
    """About the same before there are tokens; nothing is written."""
    recipe = _recipe(asked)
    about = expected_tokens(recipe)
    available = max(about, min(asked.ud or 0.0, _FORECAST * about))
    return _decided(asked, recipe, available, folder, flops_of_hours)


def _recipe(asked: Asked) -> dict[str, Any]:
    from trainer.cli import assignments

    recipe = recipe_of(asked.corpus, assignments(asked.changes))
    if not any_config(recipe).corpus.streamed:
        return recipe
    if asked.ud is None:
        raise InvalidInput(
            "is missing: how much of the dataset there is to be used, such as 10M.", field="ud"
        )
    return changed(recipe, {"corpus.tokens": round(asked.ud)})


def _decided(
    asked: Asked,
    recipe: Mapping[str, Any],
    available: float,
    folder: StudyDirectory,
    flops_of_hours: Callable[[Study, float], float],
) -> Question:
    """What there is to know before the first wave, for a corpus of so many tokens."""
    ud = float(available) if asked.ud is None else asked.ud
    if ud > available:
        raise InvalidInput(
            f"({short(ud)}) is more than the {short(available)} tokens of the corpus.", field="ud"
        )
    config = any_config(recipe)
    ud = float(int(ud) // config.sequence_length * config.sequence_length)
    study = study_of(folder, recipe)
    budget = asked.budget or flops_of_hours(study, asked.hours or 0.0)
    flops = AHEAD * budget if asked.flops is None else asked.flops
    return Question(asked, recipe, ud, flops, budget, _weight_decays(config, ud, flops))


def stored_question(asked: Asked, folder: StudyDirectory) -> Question | None:
    """The question that a directory was begun with; raises where that is another one."""
    found = read_question(folder)
    if found is not None and (differs := differences(asdict(found.asked), asdict(asked))):
        raise InvalidInput(f"{folder.path} was begun with another {differs}; another directory would do.")
    return found


def read_question(folder: StudyDirectory) -> Question | None:
    """The question of a directory; None where it was not begun."""
    path = folder.path / QUESTION
    try:
        facts = read_json(path)
        values = facts["asked"] | {"changes": tuple(facts["asked"]["changes"])}
        ud, flops, budget = (float(facts[name]) for name in ("ud", "flops", "budget"))
        decays = tuple(facts["weight_decays"])
        return Question(Asked(**values), dict(facts["recipe"]), ud, flops, budget, decays)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(f"{path} is damaged; restore it, or name a new directory with ‹out›.") from None


def _plain(question: Question) -> dict[str, Any]:
    return {"format": _FORMAT, **asdict(question)}


def _weight_decays(config: RunConfig, ud: float, flops: float) -> tuple[float, ...]:
    """Those of the first wave: around what the rule says for the plan of a shipped law."""
    first = shipped_plan(ud, flops)
    used, batch = ud * min(first.epochs, 1.0), config.batch_size * config.sequence_length
    middle = tuned_weight_decay(first.params, used, config.learning_rate, batch)
    return tuple(_rung(middle * _APART**step) for step in (-1, 0, 1))


def shipped_plan(ud: float, flops: float) -> Point:
    """What the shipped law that suits so many tokens would train; it may leave compute unspent."""
    known = suitable_calibration(ud)
    try:
        found = plan(ud, flops, calibration=known)
    except InvalidInput:  # too far from all that was trained for a plan
        return allocate(known.settings[-1].law(default_form(known)), ud, flops)
    return Point(found.params, ud, found.epochs, found.spent_flops, found.loss)


def informed_plan(loop: Loop) -> Plan | None:
    """What the shipped law that has the recipe of the runs, and was fitted on as many tokens, would train;
    of several the one whose error is the smallest, None where there is none.
    """
    question, run = loop.question, loop.study.runs[0]
    found = []
    for known in map(Calibration.load, shipped_names()):
        tokens = [setting.fitted_on.unique_tokens for setting in known.settings]
        covered = min(low for low, _ in tokens) <= question.ud <= max(high for _, high in tokens)
        if covered and known.vocab_size == run.architecture.vocab_size and _has_recipe(known, run.config):
            with contextlib.suppress(InvalidInput):
                found.append(plan(question.ud, question.flops, calibration=known))
    return min(found, key=_error, default=None)


def _has_recipe(known: Calibration, config: RunConfig) -> bool:
    """Whether the runs behind a calibration were trained as these will be, as far as it says."""
    recipe = known.recipe
    if recipe is None or recipe.batch_tokens != config.batch_size * config.sequence_length:
        return False
    said = {name: getattr(recipe, name) for name in ("learning_rate", *Recipe.as_in_runs)}
    said = {
        name: RunConfig.model_fields[name].default if name in LATER and value is None else value
        for name, value in said.items()
    }
    alike = all(value is None or value == getattr(config, name) for name, value in said.items())
    words = ((recipe.optimizer, config.optimizer), (recipe.schedule, config.schedule))
    return alike and all(text.lower().startswith(word) for text, word in words)


def _error(found: Plan) -> float:
    return math.inf if found.predictive_uncertainty is None else found.predictive_uncertainty.error


def known_already(found: Plan) -> str:
    """What there is to know before anything is trained, where a shipped law answers the question."""
    guess = ", a first guess" if found.first_guess is not None else ""
    return (
        f"{found.calibration}, which ships, has this recipe and was fitted on as many tokens: it plans "
        f"{short(found.params)} x {found.epochs:g} at {found.weight_decay:g}{guess}, without any run. In a "
        "study of models below 1.1M parameters on four other corpora, plans by a shipped law were best in 11 "
        "of 12 cells and own runs did not pay, at 1 to 17 times the compute of the final run "
        "(docs/new-corpora.md)."
    )


def _rung(decay: float) -> float:
    return float(f"{min(max(decay, _DECAYS[0]), _DECAYS[1]):.2g}")


# -- its runs ------------------------------------------------------------------------------------------------


def study_of(folder: StudyDirectory, recipe: Mapping[str, Any]) -> Study:
    """A study of this recipe, with a run that stands for all; which there are, the waves say."""
    name, length = folder.path.resolve().name, any_config(recipe).sequence_length
    cell = {"params": 100_000, "unique_tokens": length, "epochs": 1.0, "weight_decay": 0.1, "seed": 0}
    return Study(name, f"Calibration of {name}", dict(recipe), (), (cell,), Validation())


def learning_rate(recipe: Mapping[str, Any], params: float) -> dict[str, float]:
    """What a cell of this size says of its learning rate; nothing where it is that of the recipe."""
    config = any_config(recipe)
    if config.preset != "micro" or params <= _RATE_HOLDS:
        return {}
    return {"learning_rate": float(f"{config.learning_rate * math.sqrt(_RATE_HOLDS / params):.2g}")}


@dataclass(frozen=True)
class Belief:
    """What the runs so far say of the question."""

    calibration: Calibration
    plan: Plan | None
    expected_regret: float | None  # nats; None: the calibration has no draws
    tolerance: float
    reason: str = ""  # why there is no plan

    @property
    def certain(self) -> bool:
        return self.expected_regret is not None and self.expected_regret <= self.tolerance

    def __str__(self) -> str:
        if self.plan is None:
            return f"no plan so far: {self.reason}"
        found, within = self.plan, (self.plan.intervals or {}).get("params")
        text = f"plan so far: {short(found.params)} x {found.epochs:g} at {found.weight_decay:g}"
        if within is not None:
            factor = math.sqrt(within.high / within.low)
            text += f", within ±{factor - 1:.0%} in size" if factor < 2 else f", size within x/÷ {factor:.2g}"
        if self.expected_regret is not None:
            text += f", expected regret {self.expected_regret:.3f} nats"
        return text


@dataclass(frozen=True)
class Loop:
    """A question and the directory that it is answered in."""

    question: Question
    folder: StudyDirectory
    speed: Callable[[float], float] = field(default=lambda hours: math.inf)  # FLOPs of so many hours here

    @cached_property
    def study(self) -> Study:
        return study_of(self.folder, self.question.recipe)

    def wave_file(self, number: int) -> Path:
        return self.folder.path / "waves" / f"{number}.csv"

    def wave(self, number: int) -> list[StudyRun] | None:
        """The runs of a wave that was decided on; None where it was not."""
        path = self.wave_file(number)
        if not path.exists():
            return None
        try:
            cells: list[Any] = pd.read_csv(path).to_dict("records")
            return self._runs(cells)
        except (OSError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise InvalidInput(
                f"{path} is damaged ({reason}); restore it or delete it and all later ones."
            ) from None

    def _runs(self, cells: Sequence[Mapping[str, Any]]) -> list[StudyRun]:
        kept = ("params", "unique_tokens", "epochs", "weight_decay")
        recipe = self.question.recipe
        return [
            self.study.run(
                **{name: cell[name] for name in kept}, seed=0, **learning_rate(recipe, cell["params"])
            )
            for cell in cells
        ]

    def waves(self) -> list[list[StudyRun]]:
        """All that were decided on."""
        found: list[list[StudyRun]] = []
        while (runs := self.wave(len(found) + 1)) is not None:
            found.append(runs)
        return found

    def decide(self, belief: Belief | None) -> list[StudyRun]:
        """The runs of the next wave, written before any of them is trained; none where the budget is spent or
        no run is worth it.
        """
        before = self.waves()
        runs = self.proposed(before, belief) if len(before) < WAVES else []
        if runs:
            kept = ("params", "unique_tokens", "epochs", "weight_decay")
            rows = [
                {"params": run.params, **{name: getattr(run.config, name) for name in kept[1:]}}
                for run in runs
            ]
            path = self.wave_file(len(before) + 1)
            path.parent.mkdir(exist_ok=True)
            write_if_changed(path, pd.DataFrame(rows).to_csv(index=False))
        return runs

    def proposed(
        self, before: Sequence[Sequence[StudyRun]] = (), belief: Belief | None = None
    ) -> list[StudyRun]:
        """The runs of the next wave."""
        asked, question = self.question.asked, self.question
        waves = WAVES - len(before)
        left = asked.runs - sum(map(len, before))
        number = min(left, max(math.ceil(left / waves), 0 if before else len(question.weight_decays)))
        budget = self.left(before) * max(1 / waves, number / left) if left else 0.0
        decays = list(question.weight_decays) if belief is None else rivals(belief, question.weight_decays)
        cells: list[dict[str, Any]] = []
        refused: InvalidInput | None = None
        if belief is not None and belief.plan is not None:
            target_flops = belief.plan.spent_flops
        else:
            target_flops = float(shipped_plan(question.ud, question.flops).flops)
        table = open_source(self.folder.path, weight_decay_is_choice=True).table if before else None
        for place, decay in enumerate(decays):
            count = number // len(decays) + (place < number % len(decays))
            if not count:
                continue
            try:
                cells += self._designed(table, decay, budget * count / number, count, target_flops)
            except InvalidInput as error:
                refused = error
        if not cells and refused is not None and not before:
            text = f"({scientific(budget * waves)} FLOPs) is too little for any run worth training here"
            raise InvalidInput(f"{text}; ten times as much would do.", field="budget") from refused
        return self._runs(cells)

    def _designed(
        self, table: pd.DataFrame | None, decay: float, budget: float, count: int, target_flops: float
    ) -> Iterator[dict[str, Any]]:
        """Runs for a plan of `target_flops`: beyond it the law expects no gain, and may know nothing."""
        question, length = self.question, self.study.runs[0].config.sequence_length
        found = design(
            budget,
            question.ud,
            target_flops,
            runs=table,
            weight_decay=decay,
            vocab_size=self.study.runs[0].architecture.vocab_size,
            max_runs=count,
            min_params=question.min_params(target_flops),
            min_tokens=_FEWEST_STEPS * question.batch_tokens,
            min_unique=_LEAST_DATA * question.ud,
            identify=False,
        )
        for run in found.runs:
            unique = max(1, round(run.unique_tokens / length)) * length
            yield {
                "params": run.params,
                "unique_tokens": min(unique, int(question.ud)),
                "epochs": run.epochs,
                "weight_decay": decay,
            }

    def left(self, before: Sequence[Sequence[StudyRun]]) -> float:
        """FLOPs that the budget leaves. Hours are reckoned by how fast the runs so far were."""
        done = [run for runs in before for run in runs]
        if self.question.asked.hours is None or not done:
            return self.question.budget - sum(run.flops for run in done)
        return self.speed(self.question.asked.hours)

    def belief(self) -> Belief:
        """Fit the finished runs, plan the question, and keep the calibration."""
        question, name = self.question, self.study.name
        runs = open_source(self.folder.path)
        known = fit(runs, name=name, source=f"fitted to {name}", weight_decay_law=NONE)
        known.save(self.folder.path / "calibration.json")
        try:
            found = plan(question.ud, question.flops, calibration=known)
        except InvalidInput as error:
            return Belief(known, None, None, question.asked.tolerance, str(error))
        return Belief(known, found, expected_regret(known, found), question.asked.tolerance)

    def rivals_of(self, belief: Belief, seeds: int) -> dict[str, list[StudyRun]]:
        """The plan and its two nearest rivals, with seeds: another weight decay at its own best size, and the
        better of half and twice the epochs at the same compute.
        """
        if belief.plan is None:
            raise InvalidInput(f"there is no plan to confirm: {belief.reason}")
        found, known = belief.plan, belief.calibration
        law = known.law(found.weight_decay, known.form(None))
        product = found.spent_flops / (FLOPS_PER_PARAM_TOKEN * found.ud)
        shares = [found.epochs * factor for factor in (0.5, 2.0)]
        other = min(shares, key=lambda share: float(law.loss(product / share, found.ud, share)))
        kept = {"the plan": (found.params, found.epochs, found.weight_decay)}
        for rival in found.other_weight_decays[:1]:
            kept["another weight decay"] = (rival.params, rival.epochs, rival.weight_decay)
        kept["half the epochs" if other < found.epochs else "twice the epochs"] = (
            product / other,
            other,
            found.weight_decay,
        )
        return {
            what: self.at_compute(size, passes, found.ud, found.spent_flops, decay, seeds)
            for what, (size, passes, decay) in kept.items()
        }

    def at_compute(
        self, size: float, passes: float, ud: float, flops: float, decay: float, seeds: int
    ) -> list[StudyRun]:
        """The runs of a configuration at this compute, one for each seed."""
        cell = cell_at_compute(self.study, size, passes, ud, flops)
        first = self.study.run(**cell, weight_decay=decay, seed=0)
        rate = learning_rate(self.question.recipe, first.params)
        return [self.study.run(**cell, weight_decay=decay, seed=seed, **rate) for seed in range(seeds)]


def rivals(belief: Belief, first: Sequence[float]) -> list[float]:
    """The weight decays of a later wave: that of the plan and its rival."""
    trained = sorted(belief.calibration.weight_decays)
    if belief.plan is None:
        return list(first)
    best = belief.plan.weight_decay
    outwards = {trained[0]: _rung(best / _APART), trained[-1]: _rung(best * _APART)}.get(best)
    if outwards is not None and outwards not in trained and len(trained) == len(first):  # one step further
        return [best, outwards]
    shares = belief.plan.weight_decay_probabilities or {}
    others = [decay for decay in trained if decay != best]
    return [best, *sorted(others, key=lambda decay: -shares.get(f"{decay:g}", 0.0))[:1]]


def expected_regret(known: Calibration, found: Plan) -> float | None:
    """The expected value of perfect information, in nats: what the best of each draw gains over the plan."""
    form = known.form(None)
    settings = [one for one in known.settings if one.law_draws(form) is not None]
    own = next((place for place, one in enumerate(settings) if one.weight_decay == found.weight_decay), None)
    if own is None:
        return None
    largest = max(found.params, *(FAR * one.fitted_on.params[1] for one in settings))
    most = max(found.epochs, *(FAR * one.fitted_on.epochs[1] for one in settings))
    limits = Limits.of(max_params=largest, max_epochs=most, epochs="continuous")
    computes = np.array([[found.spent_flops], [found.flops]])
    gains: list[np.ndarray] = []
    for laws in paired_draws([setting.law_draws(form) for setting in settings]):  # type: ignore[misc]
        losses = [allocate(law, found.ud, computes, limits).loss for law in laws]
        best = np.nanmin(np.concatenate([np.full((1, laws[0].draws), np.inf), *losses]), axis=0)
        chosen = np.asarray(laws[own].loss(found.params, found.ud, found.epochs))
        gains.append(np.clip(chosen - best, 0.0, found.uniform_loss))
    every = np.concatenate(gains)
    every = every[np.isfinite(every)]
    return float(every.mean()) if len(every) else None


# -- the loop ------------------------------------------------------------------------------------------------

Train = Callable[[Study, Sequence[StudyRun], str], Mapping[str, str]]  # in which part; what failed, and why


def calibrate(loop: Loop, train: Train, say: Callable[[str], None]) -> tuple[Belief, dict[str, str]]:
    """Train wave after wave until the plan is certain enough or the budget is spent: what is known then, and
    which runs failed.
    """
    failed: dict[str, str] = {}
    belief: Belief | None = None
    for number in range(1, WAVES + 1):
        runs = loop.wave(number) or loop.decide(belief)
        if not runs:
            break
        begin(loop.study, loop.folder.path)  # refuses a corpus that is not that of the beginning
        if unfinished(loop.folder, runs):
            failed |= train(loop.study, runs, GRID)
        if loop.wave(number + 1):  # what came of this wave was decided before a kill
            continue
        belief = loop.belief()
        say(f"After {number} of {WAVES} waves, {belief}.")
        if belief.certain:
            break
    return belief or loop.belief(), failed


def first_words(question: Question) -> str:
    """What is asked, in a line."""
    return (
        f"{short(question.ud)} unique tokens, to be planned for {scientific(question.flops)} FLOPs, with "
        f"{scientific(question.budget)} FLOPs of runs"
    )


def as_cells(runs: Sequence[StudyRun]) -> str:
    """Runs in a few words each, as progress names them."""
    return ", ".join(f"{short(run.params)} x {epochs(run.config.epochs)}" for run in runs)


def as_json(loop: Loop, belief: Belief) -> dict[str, Any]:
    """What came out, as plain values."""
    return {
        "question": json.loads(json.dumps(_plain(loop.question))),
        "waves": [[run.name for run in runs] for runs in loop.waves()],
        "expected_regret": belief.expected_regret,
        "reason": belief.reason,
        "plan": None if belief.plan is None else belief.plan.model_dump(mode="json"),
    }
