"""The public calls: `plan`, `compare`, `frontier`, `crossover` and `predict`.

A plan is made in steps that read from top to bottom in `plan` and `_answer`: the question is checked and
becomes one frozen `Request`; each weight decay that may be chosen is given its best plan, and the best of
them is the choice (`solve.Choice`); everything worth knowing about the choice is put together in
`_described`, in one place for all kinds of plans; and `explain` says it in words.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack, overload

import numpy as np
from pydantic import BaseModel

import planner.evidence as evidence
import planner.explain as explain
import planner.hardware as hardware
import planner.inputs as inputs
import planner.published as published
import planner.results as results
import planner.solve as solve
import planner.uncertainty as uncertainty
import planner.weight_decay_rule as weight_decay_rule
from planner.calibration import (
    DEFAULT_TOLERANCE,
    ELSEWHERE,
    MOST_MEMBERS,
    Calibration,
    CalibrationSource,
    Gain,
    Recipe,
    Setting,
    setting_between,
    shipped_names,
)
from planner.hardware import DEFAULT_VOCAB, SERVING_FLOPS, Accelerator, TotalCost
from planner.inputs import FREE, InvalidInput, LimitOptions, Limits, number
from planner.laws import AVERAGE, BASE_FORM, Law, Terms
from planner.options import OPTIONS
from planner.results import Comparison, Crossover, Frontier, Interval, Plan, Prediction, Predictions
from planner.solve import FLOPS_PER_PARAM_TOKEN, Choice, Found, Point, Question

AUTO = "auto"  # the calibration that knows the question best
Call = TypeVar("Call", bound=Callable[..., Any])
Record = TypeVar("Record", bound=BaseModel)
Error = results.PredictionError


def clear_caches() -> None:
    """Forget what is kept of laws and corpora: for a server that lets go of a calibration."""
    for value in (setting_between, *vars(solve).values(), *vars(uncertainty).values()):
        if hasattr(value, "cache_clear"):
            value.cache_clear()


def with_hints(function: Call) -> Call:
    """Say what a keyword that is none was meant for."""

    @wraps(function)
    def hinting(*args: Any, **given: Any) -> Any:
        known = inspect.signature(hinting).parameters
        for name in given.keys() - known.keys():
            raise TypeError(f"{function.__name__}() has no {name!r}{_meant(name, known)}")
        return function(*args, **given)

    return hinting  # type: ignore[return-value]


def spell_out_limits(function: Call) -> Call:
    """Let `help` and notebooks show the limits one by one, although they are declared once."""
    hinting = with_hints(function)
    signature, defaults = inspect.signature(function), {**inputs.LIMIT_DEFAULTS}
    kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    limits = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name))
        for name in LimitOptions.__annotations__
    ]
    signature = signature.replace(parameters=[*kept, *limits])
    hinting.__signature__ = signature  # type: ignore[attr-defined]
    return hinting


def _meant(name: str, known: Iterable[str]) -> str:
    """What a keyword that is none was meant for, as the end of a sentence."""
    called = [field for field, option in OPTIONS.items() if name in option.also and field in known]
    found = called or difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else "."


@spell_out_limits
def plan(
    ud: Any,
    flops: Any = None,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    tolerance: Any = DEFAULT_TOLERANCE,
    vocab_size: Any = None,
    target_loss: Any = None,
    gpu: str | Accelerator | None = None,
    gpus: Any = None,
    hours: Any = None,
    budget_usd: Any = None,
    mfu: Any = None,
    price: Any = None,
    tflops: Any = None,
    memory: Any = None,
    learning_rate: Any = None,
    batch_tokens: Any = None,
    members: Any = None,
    serve_tokens: Any = None,
    serve_price: Any = None,
    serve_mfu: Any = None,
    data_price: Any = None,
    also: Any = None,
    finetune: bool = False,
    bytes_per_token: Any = None,
    **options: Unpack[LimitOptions],
) -> Plan:
    """The best model size, epochs and weight decay for `ud` unique tokens and `flops` of compute.

    `planner.options` says every argument in words, as `planner plan --help` does. Without `weight_decay` the
    best is chosen; `calibration` may be "auto", the shipped one that knows the question best. With a
    `learning_rate` or `batch_tokens` of your own `weight_decay` is in your recipe, and `own_recipe` has the
    one to train with. `hours` on `gpus` of a `gpu`, `budget_usd`, or a `target_loss` may stand for `flops`.
    `members`, `serve_tokens` and `data_price` (USD per token) make the ceiling one of the total.
    """
    explain.check_from_scratch(finetune)
    limits, nats = Limits.of(**options), number(tolerance, "tolerance", examples="0.01")
    amount = {"flops": flops, "hours": hours, "budget_usd": budget_usd}
    target = None if target_loss is None else _target(target_loss, amount, limits)
    used = hardware.machines(gpu, gpus, mfu, price, tflops, memory)
    given = _budget(ud, amount, used, target, limits, calibration, bytes_per_token, options.get("params"))
    known, tokens, ceiling, limits = given.known, given.tokens, given.ceiling, given.limits
    served = {"serve_tokens": serve_tokens, "serve_price": serve_price, "serve_mfu": serve_mfu}
    total = hardware.total_cost(tokens, used, **served, data_price=data_price)
    form, counts = known.form(law), _member_counts(known, members)
    own = RecipeTransfer.of(known, learning_rate, batch_tokens, weight_decay)
    decay = weight_decay if own is None else own.calibrated
    uncertainty.check_question(known, tokens, limits, target, buys=data_price is not None)
    if unlimited := target is None and math.isinf(ceiling):
        others = {**amount, **served, "members": members, "data_price": data_price}
        ceiling = _least_loss_compute(known, form, tokens, decay, limits, others)
    known = uncertainty.reweight(known, form, tokens, ceiling)
    asked = Question(known, form, total, limits, decay, counts, ceiling, target, nats)
    rows = None if vocab_size is None else hardware.vocabulary(vocab_size)
    given_as = " ".join(ud.split()) if inputs.is_text(ud) else None
    request = Request(asked, members is not None, own, rows, used, *given[4:], unlimited, given_as)
    return _with_other_tokens(request, _that_fits(request, _answer(request)), also)


class _Budget(NamedTuple):
    """How much text and compute there is, in tokens and FLOPs, and the calibration that is asked."""

    known: Calibration
    tokens: float
    ceiling: float
    limits: Limits
    chosen: str  # why this calibration, where that was left open
    bytes_per_token: float | None
    params: float | None  # the size, where it was given


def _budget(
    ud: Any,
    amount: dict[str, Any],
    used: hardware.Machines | None,
    target: float | None,
    limits: Limits,
    calibration: CalibrationSource,
    bytes_per_token: Any,
    params: Any,
) -> _Budget:
    """What was given, checked; there is no ceiling where the least is asked for, or compute is unlimited."""
    known, chosen, ceiling = Calibration.load(None if calibration == AUTO else calibration), "", math.inf
    tokens = inputs.count(_in_tokens(ud, known, bytes_per_token), "ud")
    if target is not None or inputs.unlimited(amount["flops"]):
        tokens = inputs.unique_tokens(tokens)
    else:
        try:
            flops = hardware.training_compute(**amount, used=used)
        except InvalidInput as error:
            missing = params is not None and all(value is None for value in amount.values())
            if missing and explain.has_few_tokens(inputs.count(params, "params"), tokens):
                text = str(error.args[0]).removesuffix(".")
                raise InvalidInput(f"{text} {explain.CONTINUED}.") from None
            raise
        tokens, ceiling = inputs.budget(tokens, flops)
    size = None if params is None else inputs.count(params, "params")
    if size is not None:
        limits = limits.affordable(ceiling, FLOPS_PER_PARAM_TOKEN * tokens)
    if calibration == AUTO:
        known, chosen = _best_informed(tokens, limits, ceiling, target)
    per_token = inputs.bytes_of_token(bytes_per_token, known.bytes_per_token)
    return _Budget(known, tokens, ceiling, limits, chosen, per_token, size)


def _least_loss_compute(
    known: Calibration, form: str, ud: float, decay: Any, limits: Limits, given: dict[str, Any]
) -> float:
    """The ceiling where there is none: the compute with the lowest loss of all that may be chosen."""
    superfluous = [name for name, value in given.items() if value is not None and name != "flops"]
    if superfluous:
        names = " and ".join(f"‹{name}›" for name in superfluous)
        raise InvalidInput(f"without a ceiling asks for the lowest loss: leave out {names}.", field="flops")
    if not limits.ceiling:
        raise InvalidInput("cannot be spent whole where it is unlimited.", field="flops")
    laws = [setting.law(form) for setting in known.candidates(form, decay)]
    found = [point for law in laws if (point := solve.lowest_loss(law, ud, limits)) is not None]
    if not found:
        raise solve.no_choice(ud, math.inf, limits)
    return float(min(found, key=lambda point: point.loss).flops)


def _target(target_loss: Any, amount: dict[str, Any], limits: Limits) -> float:
    """The loss to be reached with the least compute."""
    loss = number(target_loss, "target_loss", examples="3.0")
    given = {**amount, "spend": None if limits.ceiling else limits.spend}
    if superfluous := [name for name, value in given.items() if value is not None]:
        names = " and ".join(f"‹{name}›" for name in superfluous)
        raise InvalidInput(f"asks for the least compute: leave out {names}.", field="target_loss")
    return loss


def _member_counts(known: Calibration, members: Any, *, auto: bool = True) -> Sequence[int]:
    """The numbers of members that may be chosen from: one, the number given or, where that can be asked, as
    many as are best ("auto").
    """
    if members is None:
        return (1,)
    wants_best = auto and isinstance(members, str) and members.strip().lower() == "auto"
    try:
        count = 0 if wants_best else inputs.whole(members, "members", example="8")
    except InvalidInput:
        or_auto = "'auto' or " if auto else ""
        text = f"must be {or_auto}a whole number such as 8; got {members!r}."
        raise InvalidInput(text, field="members") from None
    if count > MOST_MEMBERS:
        raise InvalidInput(f"must be at most {MOST_MEMBERS:,}; got {count:,}.", field="members")
    if known.members is None and count != 1:
        raise InvalidInput(
            f"cannot be planned: no ensembles were trained for calibration {known.name} "
            f"(`planner calibrate ensemble` does); {ELSEWHERE}.",
            field="members",
        )
    return known.members.counts if wants_best and known.members is not None else (count,)


_TWO_DIGITS = 0.05  # what is lost where a number is written with two of them


class RecipeTransfer(NamedTuple):
    """A recipe of one's own next to that of the calibration, and the weight decay that is given in it."""

    learning_rate: float
    batch_tokens: float
    weight_decay: float | None
    known: Calibration
    rounded_from: float | None = None  # the batch that was given, where that was no whole sequences

    @classmethod
    def of(
        cls, known: Calibration, learning_rate: Any, batch_tokens: Any, weight_decay: Any
    ) -> RecipeTransfer | None:
        """What was given, checked; None where no recipe was. Where each run behind the calibration was tuned
        there is no weight decay to read off it, and its own recipe has one by the rule.
        """
        recipe, tuned = known.recipe, weight_decay is None and known.settings[0].tuned_weight_decays
        if learning_rate is None and batch_tokens is None and (recipe is None or not tuned):
            return None
        if recipe is None:
            raise _no_recipe(known, "batch_tokens" if learning_rate is None else "learning_rate")
        rate, batch, far = recipe.learning_rate, float(recipe.batch_tokens), uncertainty.FAR
        if learning_rate is not None:
            rate = number(learning_rate, "learning_rate", examples="3e-4")
        if batch_tokens is not None:
            batch = inputs.count(batch_tokens, "batch_tokens")
        calibrated = float(recipe.learning_rate), float(recipe.batch_tokens)
        for field, own, theirs in zip(
            ("learning_rate", "batch_tokens"), (rate, batch), calibrated, strict=True
        ):
            if not theirs / far <= own <= theirs * far:
                raise InvalidInput(
                    f"({own:g}) is more than {far:g} times off that of calibration {known.name} "
                    f"({theirs:g}), and nothing is known of weight decay so far from it.",
                    field=field,
                )
        given, length = batch, recipe.sequence_length
        if batch > length:
            batch = float(round(batch / length) * length)
        decay = None if weight_decay is None else number(weight_decay, "weight_decay", positive=False)
        found = cls(rate, batch, decay, known, None if given == batch else given)
        found.check_weight_decay()
        return found

    @property
    def calibrated(self) -> float | None:
        """The weight decay that was given, if any, as the calibration's recipe would have it: by the rule's
        power of the learning rate.
        """
        if self.weight_decay is None:
            return None
        found, (low, high) = self.weight_decay / self.per_calibrated, self.known.weight_decay_range
        for end in (low, high):  # the ends that can be asked are told to two digits
            if abs(found - end) < _TWO_DIGITS * end:
                found = end
        return float(f"{found:.3g}")

    @property
    def per_calibrated(self) -> float:
        """What a weight decay of one is in this recipe."""
        if self.known.recipe is None:
            return 1.0
        return float((self.learning_rate / self.known.recipe.learning_rate) ** weight_decay_rule.OF_RATE)

    def check_weight_decay(self) -> None:
        """Refuse a weight decay that stands for one that the calibration does not know."""
        found, (low, high) = self.calibrated, self.known.weight_decay_range
        if found is None or low == high or low <= found <= high:
            return
        least, most = (f"{end * self.per_calibrated:.2g}" for end in (low, high))
        stands = f"{self.weight_decay:g} in your recipe stands for {found:g} as calibrated"
        raise InvalidInput(f"{stands}; {least} to {most} can be asked here.", field="weight_decay")

    def own(self, weight_decay: float, params: float, unique_tokens: float) -> results.OwnRecipe:
        """The weight decay for one's own recipe, next to the plan's: where the law found that one among all,
        it is carried over by the rule; where it knows some only, the rule stands for itself.
        """
        place, mine = (params, unique_tokens), (self.learning_rate, self.batch_tokens)
        tuned = weight_decay_rule.tuned_weight_decay(*place, *mine)
        there = tuned_elsewhere(self.known, *place)
        if there is not None and self.known.weight_decay_law is not None:
            tuned *= weight_decay / there
        found = weight_decay_rule.within_factor(tuned)
        decay = found.weight_decay if self.weight_decay is None else self.weight_decay
        rate, batch = mine
        return results.OwnRecipe(
            learning_rate=rate,
            batch_tokens=batch,
            rounded_from=self.rounded_from,
            weight_decay=decay,
            low=found.low,
            high=found.high,
        )


def _no_recipe(known: Calibration, field: str) -> InvalidInput:
    """That nothing can be carried over from a calibration; of a fit, whether its runs had several recipes."""
    notes = getattr(known, "table_notes", ())
    differ = [f": {note['text']}" for note in notes if note["code"] == "recipes_differ"]
    lacking = f"calibration {known.name} does not say the learning rate and batch of its runs"
    return InvalidInput(f"cannot be compared: {lacking}{''.join(differ[:1])}.", field=field)


def tuned_elsewhere(known: Calibration, params: float, unique_tokens: float) -> float | None:
    """What the rule says in the recipe of a calibration; None: it does not say its recipe."""
    if known.recipe is None:
        return None
    recipe = known.recipe.learning_rate, known.recipe.batch_tokens
    return float(weight_decay_rule.tuned_weight_decay(params, unique_tokens, *recipe))


@dataclass(frozen=True)
class Request:
    """What was asked, checked: the question, and what the answer is told in."""

    question: Question
    members: bool  # whether ensembles were asked for
    own: RecipeTransfer | None
    vocab_size: int | None
    used: hardware.Machines | None
    chosen: str = ""  # why this calibration, where that was left open
    bytes_per_token: float | None = None
    params: float | None = None  # the size, where it was given
    unlimited: bool = False  # whether compute was said to have no ceiling
    given_as: str | None = None  # how long the text was said to be, where that was not in tokens


def _answer(request: Request) -> Plan:
    """The choice, everything worth knowing about it, its cost, and all of that in words."""
    question, choice, ensemble = request.question, None, None
    only_training = not (question.cost.serve_tokens or question.cost.token_flops)
    if request.members or not only_training:
        choice = Choice(question, single=False)
        if request.members and question.known.members is not None:
            ensemble = _ensemble(choice)  # one model against several
    if choice is None or (choice.found.members == 1 and only_training):
        choice = _one_model(question)  # where one model is better, the ordinary plan holds
    if not question.limits.extrapolate:
        uncertainty.check_plan(question.known, choice.found.point)
    p = _in_practice(request, choice, _described(request, choice, ensemble))
    if request.unlimited:  # the ceiling was the bare law's
        value = _with_twice_the_data(choice, p.marginal_value)
        p = p.model_copy(update={"flops": p.spent_flops, "unused_flops": 0.0, "marginal_value": value})
    if request.used is not None:
        bill = hardware.cost(p.spent_flops, *request.used, p.architecture, *_micro_batch(p.recipe))
        p = p.model_copy(update={"cost": bill})
    guess, held_back = _first_guess(choice)
    opinions = _second_opinions(choice) if guess is not None else []
    near = published.nearest(p.unique_tokens, p.params)
    words = {"first_guess": guess, "second_opinions": opinions, "published_trainings": near}
    p = p.model_copy(update=words | {"spare_ensemble": None if request.unlimited else _spare(choice)})
    facts = _facts(request, choice, p)._replace(
        held_back=held_back, chosen=request.chosen, unlimited=request.unlimited
    )
    return explain.explained(_with_crossover(choice, p) if choice.single else p, facts)


def _that_fits(request: Request, p: Plan) -> Plan:
    """The plan or, where its model cannot be trained on the accelerators at hand and nobody insists on its
    size, the best of those that can.
    """
    used, bill, limits = request.used, p.cost, request.question.limits
    if used is None or bill is None or bill.memory is None or bill.memory.trainable_on(used.gpus):
        return p
    known = request.question.known
    vocab, tied = request.vocab_size or known.vocab_size or DEFAULT_VOCAB, bool(known.tied_embeddings)
    largest = hardware.largest_trainable(used, p.params, vocab, tied_embeddings=tied)
    if largest is None or limits.min_params is not None or not limits.ceiling:
        return p
    held = replace(limits, max_params=min(largest, limits.max_params or math.inf), by_memory=True)
    return _answer(replace(request, question=replace(request.question, limits=held)))


_SMALL = 0.1  # of the plan's size and tokens: runs that decide what other tokens are worth
_MATTERS = 0.01  # of one's own tokens: with fewer others no plan is another


def _with_other_tokens(request: Request, p: Plan, other: Any) -> Plan:
    """The plan of one's own tokens, next to that of all as one corpus where there are others of another kind,
    and the runs that would decide.
    """
    if other is None:
        return p
    question = request.question
    also = inputs.count(inputs.in_tokens(other, request.bytes_per_token, "also"), "also")
    cost = replace(question.cost, owned=question.ud + also)
    together = _that_fits(request, _answer(replace(request, question=replace(question, cost=cost))))
    runs = _deciding_runs(p, also, max(together.epochs, 1.0)) if also >= _MATTERS * p.ud else []
    end = results.MixtureEnd.model_construct(
        **{name: getattr(together, name) for name in results.MixtureEnd.model_fields}
    )
    mixture = results.Mixture(also=also, together=end, runs=runs)
    remark = explain.mixture_remark(p, mixture)
    reasons = sorted([*p.reasons, remark], key=lambda one: explain.CODES.index(one.code))
    return p.model_copy(update={"mixture": mixture, "reasons": reasons})


def _deciding_runs(p: Plan, also: float, epochs: float) -> list[results.DecidingRun]:
    """Small runs that would tell what other tokens are worth, those of both kinds for so many epochs."""
    size, own, both = _SMALL * p.params, _SMALL * p.ud, _SMALL * (p.ud + also)
    runs = []
    for on, tokens, passes in (
        ("your tokens alone", own, p.epochs),
        ("all of both kinds as one corpus", both, epochs),
        ("both, the other kind first and your own last", both, epochs),
    ):
        flops = FLOPS_PER_PARAM_TOKEN * size * tokens * passes
        runs.append(results.DecidingRun(params=size, epochs=passes, unique_tokens=tokens, flops=flops, on=on))
    return runs


def _in_practice(request: Request, choice: Choice, p: Plan) -> Plan:
    """With the size as it was given, bits per byte, memory, and what smaller models take."""
    shape, per_token = p.architecture, request.bytes_per_token
    more = {
        "params": request.params or p.params,
        "given_as": request.given_as,
        "bytes_per_token": per_token,
        "bits_per_byte": inputs.bits_per_byte(p.loss, per_token),
        "memory": shape and hardware.memory_of(shape, *_micro_batch(p.recipe)),
        "smaller_models": _smaller_models(choice) if choice.single else [],
    }
    return p.model_copy(update=more)


def _micro_batch(recipe: Recipe | None) -> tuple[int, int]:
    """Sequences that are trained at a time, and their length: the recipe's, and no more than its batch."""
    if recipe is None:
        return hardware.DEFAULT_SEQUENCES, hardware.DEFAULT_LENGTH
    return min(hardware.DEFAULT_SEQUENCES, recipe.batch_sequences), recipe.sequence_length


def _one_model(question: Question) -> Choice:
    """The plan of one model; with a target, within the least compute that reaches it by the laws that answer
    for that compute.
    """
    if question.target is None:
        return Choice(question, single=True)
    ud, least = question.ud, _compute_for(question)
    answering = replace(question, known=uncertainty.reweight(question.known, question.form, ud, least))
    if answering.known is not question.known:
        least = _compute_for(answering)
    return Choice(replace(answering, ceiling=inputs.budget(ud, least)[1]), single=True)


def _compute_for(question: Question) -> float:
    """The least compute with which a setting reaches the target or, where the lowest loss is within the law's
    own error of it, that of the lowest.
    """
    assert question.target is not None
    ud, form, limits, target = question.ud, question.form, question.limits, question.target
    settings = question.known.candidates(form, question.weight_decay)
    laws = [solve.deciding_law(setting, form, limits) for setting in settings]
    found = [solve.least_compute(law, ud, target, limits) for law in laws]
    if reached := [point.flops for point in found if point is not None]:
        return float(min(reached))
    plans = [(solve.lowest_loss(law, ud, limits), one) for law, one in zip(laws, settings, strict=True)]
    reachable = [(point, setting) for point, setting in plans if point is not None]
    if not reachable:
        raise explain.cannot_be_reached(target, ud, None, limits)
    point, setting = min(reachable, key=lambda one: one[0].loss)
    point = solve.by_the_law(solve.deciding_law(setting, form, limits), point).single()
    doubt, measured = 0.0, setting.measured(form)
    if measured is not None:
        error = float(setting.error(form)(point.params, ud, point.epochs))
        doubt = evidence.predictive_width(measured.runs) * error
    if point.loss - target <= doubt:
        return float(point.flops)
    needed = _tokens_for(target, ud, laws, limits)
    irreducible = min(float(law.terms(1.0, 1.0, 1.0).irreducible) for law in laws)
    lowest = Found(1, setting.weight_decay, point)
    raise explain.cannot_be_reached(target, ud, lowest, limits, needed, irreducible)


_MOST_TOKENS = 1e16


def _tokens_for(loss: float, ud: float, laws: Sequence[Law], limits: Limits) -> float | None:
    """The fewest unique tokens, above these, with which one of the laws reaches the loss: by bisection."""

    def reaches(tokens: float) -> bool:
        found = (solve.lowest_loss(law, tokens, limits) for law in laws)
        return any(best is not None and best.loss <= loss for best in found)

    few, enough = ud, min(2 * ud, _MOST_TOKENS)
    while not reaches(enough):
        if enough >= _MOST_TOKENS:
            return None
        few, enough = enough, min(4 * enough, _MOST_TOKENS)
    while enough / few > 1.002:
        middle = math.sqrt(few * enough)
        few, enough = (few, middle) if reaches(middle) else (middle, enough)
    return enough


# -- beyond the evidence

_NOTED = 1.5  # times outside of all that was trained from which on a plan is a first guess
_OPINION = 10.0  # times more or less data than was tried under a calibration: it is not asked
_EDGE = 1.05  # as near as this to the end of the evidence is at its end


def _first_guess(choice: Choice) -> tuple[str | None, bool]:
    """Why a plan is no more than a first guess: it leaves all that was trained, its runs hardly show what it
    depends on, or the bare law would leave them and the plan stays where something is known. And whether the
    last of these.
    """
    setting, point, question = choice.setting, choice.found.point, choice.question
    outside = uncertainty.beyond_evidence(setting, point, _NOTED)
    averaged = None if choice.gain_is_near else "what averaging gains was not measured near here"
    starved = question.known.starved_of_steps(point.unique_tokens * point.epochs)
    reasons = (outside, explain.hardly_shown(setting, point), averaged, starved)
    guess = " and ".join(filter(None, reasons)) or None
    params, passes = _EDGE * point.params, _EDGE * point.epochs if point.epochs > 1 else point.epochs
    at_the_end = setting.evidence.excess(params, point.unique_tokens, passes) > 0
    if not at_the_end or choice.upper is choice.law or question.limits.by_memory:
        return guess, False
    bare = choice.best(limits=replace(question.limits, extrapolate=True))
    if bare is None or bare.point.flops < _NOTED * point.flops:
        return guess, False
    further = uncertainty.beyond_evidence(question.known.setting(bare.weight_decay), bare.point, _NOTED)
    if guess is None and further is not None:
        # in the words of the weight decay that was chosen, and of its epochs, where they say it
        near = bare.point._replace(epochs=point.epochs)
        said = (uncertainty.beyond_evidence(setting, at, _NOTED) for at in (near, bare.point))
        guess = f"the law alone would go further, and {next(filter(None, said), further)}"
    return guess, further is not None


def _second_opinions(choice: Choice) -> list[results.SecondOpinion]:
    """What shipped calibrations recommend that know the question better."""
    own, found = _error_at_bare_optimum(choice.question), []
    for name in shipped_names():
        asked = _asked_of(name, choice.question)
        if name == choice.question.known.name or asked is None or not _error_at_bare_optimum(asked) < own:
            continue
        if (best := solve.best_model(asked) if choice.single else solve.best_of(asked)) is not None:
            error = asked.known.setting(best.weight_decay).error(asked.form)
            off = float(error(best.point.params, best.point.unique_tokens, best.point.epochs))
            opinion = {"calibration": name, "weight_decay": best.weight_decay, "error": off}
            found.append(_record(results.SecondOpinion, best.point, **opinion))
    return sorted(found, key=lambda one: one.error)


def _asked_of(name: str, question: Question) -> Question | None:
    """The question of one model, put to a shipped calibration; None where it is not for that."""
    known = Calibration.load(name)
    if uncertainty.outside(evidence.Evidence.of(known.settings), _OPINION, {"unique_tokens": question.ud}):
        return None
    try:
        uncertainty.check_question(known, question.ud, question.limits)
    except InvalidInput:
        return None
    return replace(question, known=known, form=known.form(None), weight_decay=None, members=(1,))


def _error_at_bare_optimum(question: Question) -> float:
    """How well a calibration knows a question: the law's error, in nats, at what its bare law recommends;
    infinite where no error was ever measured.
    """
    bare = replace(question, limits=replace(question.limits, extrapolate=True))
    try:
        best = solve.best_model(replace(bare, ceiling=_ceiling_of(bare)))
    except InvalidInput:
        return math.inf
    if best is None or question.known.setting(best.weight_decay).measured(question.form) is None:
        return math.inf
    error = question.known.setting(best.weight_decay).error(question.form)
    return float(error(best.point.params, best.point.unique_tokens, best.point.epochs))


def _ceiling_of(question: Question) -> float:
    """The compute that there is or, where none was given, what the target or the lowest loss takes."""
    if math.isfinite(question.ceiling):
        return question.ceiling
    if question.target is not None:
        return _compute_for(question)
    return _least_loss_compute(question.known, question.form, question.ud, None, question.limits, {})


def _best_informed(
    tokens: float, limits: Limits, ceiling: float, target: float | None
) -> tuple[Calibration, str]:
    """The shipped calibration that knows a question best, and why; the default where none knows it better."""
    default = Calibration.load()
    cost = TotalCost(tokens)
    form, one = default.form(None), (1,)
    asked = Question(default, form, cost, limits, None, one, ceiling, target, DEFAULT_TOLERANCE)
    put = {name: _asked_of(name, asked) for name in shipped_names()}
    known = {name: math.inf if one is None else _error_at_bare_optimum(one) for name, one in put.items()}
    best = min(known, key=lambda name: (known[name], name != default.name))
    if not math.isfinite(known[best]):
        return default, f"{default.name} was chosen: no shipped calibration knows such a question."
    other = f", that of {default.name} by {known[default.name]:.2f}"
    others = other if best != default.name and math.isfinite(known[default.name]) else ""
    why = f"its law is expected to be off by {known[best]:.2f} nats at what it alone would choose{others}"
    return Calibration.load(best), f"{best} was chosen: {why}."


# -- everything about a choice, for all kinds of plans


def _record(kind: type[Record], point: Point, **more: Any) -> Record:
    """A record of `results` with those figures of a point that it has, and more."""
    figures = {**point._asdict(), "tokens": point.unique_tokens * point.epochs}
    return kind.model_construct(**{k: v for k, v in figures.items() if k in kind.model_fields} | more)


def _other_laws(choice: Choice) -> list[results.Alternative]:
    """What other laws recommend, judged by the plan's: far from the evidence perhaps less than the plan."""
    laws = [(name, one, choice.expected_loss(one)) for name, one in choice.other_laws()]
    least = min([choice.least_loss(), *(expected for _, _, expected in laws)])
    return [_alternative(name, one, expected, least) for name, one, expected in laws]


def _described(request: Request, choice: Choice, ensemble: results.EnsemblePlan | None) -> Plan:
    """The choice with all that is known of it in numbers, for all kinds of plans."""
    question, found, point = choice.question, choice.found, choice.found.point
    known, form, setting = question.known, question.form, choice.setting
    rivals, changes, cheaper = choice.rivals, choice.changes(), choice.cheaper()
    minimum, turn, overspent = choice.along_compute() if choice.single else (None, None, False)
    again = {"regained_flops": minimum[1], "weight_decay": minimum[2]} if minimum else {}
    terms = choice.law.terms(point.params, point.unique_tokens, point.epochs)
    no_data = {} if question.cost.token_flops else {"unique_tokens": None}  # that could be bought
    others = _other_laws(choice)
    elsewhere = {  # figures of other weight decays than the plan's
        "loss_minimising": minimum and minimum[2],
        "loss_if_twice_the_data": changes[0][1],
        "loss_if_twice_the_compute": changes[1][1],
    }
    return Plan.model_construct(
        ud=point.unique_tokens,
        flops=question.ceiling,
        spend=question.limits.spend,
        spent_flops=point.flops if choice.single else _trained(found),
        unused_flops=max(question.ceiling - point.flops, 0.0),
        law=form,
        calibration=known.name,
        tokenizer=known.tokenizer,
        weight_decay=found.weight_decay,
        tuned_weight_decays=setting.tuned_weight_decays,
        params=point.params,
        epochs=point.epochs,
        repeats=max(point.epochs - 1, 0.0),
        tokens=point.unique_tokens * point.epochs,
        unique_tokens=point.unique_tokens * min(point.epochs, 1.0),
        loss=point.loss,
        perplexity=inputs.perplexity(point.loss),
        uniform_loss=choice.uniform_loss,
        terms=_loss_terms(terms),
        cheapest_as_good=cheaper and _record(results.CheaperPlan, cheaper, **no_data),
        crossover_flops=None,
        crossover_note="looked for only where training one model is all that counts",
        architecture=_shape(request, known, point.params)[0],
        continuous_epochs=choice.continuous.epochs,
        continuous_loss=choice.continuous.loss,
        flat_range=_flat_range(question.tolerance, choice.flat(question.tolerance)),
        turning_point=turn and _record(results.TurningPoint, turn),
        loss_minimising_compute=minimum and _record(results.LossMinimisingCompute, minimum[0], **again),
        overspent=overspent,
        marginal_value=_marginal_value(choice.exchange_rate(), changes),
        other_laws=others,
        other_weight_decays=[_alternative(form, one, one.point.loss, point.loss) for one in rivals],
        weight_decay_advice=_weight_decay_advice(request, choice),
        tuned_elsewhere=_tuned_elsewhere(known, point),
        serving=_serving(choice),
        purchase=_purchase(choice),
        predictive_uncertainty=_predictive_uncertainty(choice),
        intervals=uncertainty.plan_intervals(choice, others, elsewhere),
        interval_note=uncertainty.interval_note(known, setting, form, point.unique_tokens * point.epochs),
        law_weights=setting.law_weights if form == AVERAGE else None,
        weight_decay_probabilities=uncertainty.weight_decay_probabilities(choice) if choice.single else None,
        members=ensemble,
        recipe=known.recipe,
    )


_SMALLER = np.array([0.1, 0.3, 0.5])
_FRACTIONS, _MANY, _WHOLE = np.geomspace(1e-3, 1, 2001), np.geomspace(1, 4e3, 4001), np.arange(2.0, 4001.0)


def _smaller_models(choice: Choice) -> list[results.SmallerModel]:
    """What models that are cheaper to serve take for the same loss, or what they reach at best: the size is
    settled, so the fewest epochs are the least compute.
    """
    limits, point = choice.question.limits, choice.found.point
    fewest, most = limits.box[1]
    beyond_one = _WHOLE if limits.whole_epochs else _MANY
    epochs = np.unique(np.clip(np.concatenate([_FRACTIONS, beyond_one]), fewest, most))
    sizes = (1 - _SMALLER) * point.params
    losses = choice.law.loss(sizes[:, None], point.unique_tokens, epochs[None, :])
    found = []
    for share, size, reached in zip(_SMALLER.tolist(), sizes.tolist(), losses, strict=True):
        same = bool((reached <= point.loss + 1e-9).any())
        at = int(np.argmax(reached <= point.loss + 1e-9) if same else np.argmin(reached))
        there = Found(1, choice.found.weight_decay, Point(size, point.unique_tokens, float(epochs[at]), 0, 0))
        told = {"smaller_by": share, "flops": _trained(there), "loss": float(reached[at]), "same_loss": same}
        told["compute_ratio"] = told["flops"] / _trained(choice.found)
        found.append(_record(results.SmallerModel, there.point, **told))
    return found


def _trained(found: Found) -> float:
    """The compute of training alone."""
    point = found.point
    return float(FLOPS_PER_PARAM_TOKEN * found.members * point.params * point.unique_tokens * point.epochs)


def _alternative(form: str, found: Found, expected: float, least: float) -> results.Alternative:
    """What another law or weight decay recommends."""
    return _record(
        results.Alternative,
        found.point,
        law=form,
        weight_decay=found.weight_decay,
        spent_flops=_trained(found),
        predicted_loss=found.point.loss,
        expected_loss=expected,
        regret=expected - least,
    )


def _flat_range(tolerance: float, ends: solve.Ends) -> results.FlatRange:
    names = ("epochs_min", "epochs_max", "params_min", "params_max")
    figures: dict[str, Any] = dict(zip(names, ends, strict=True))
    return results.FlatRange.model_construct(tolerance=tolerance, **figures)


def _marginal_value(rate: solve.ExchangeRate, changes: list[solve.Change]) -> results.MarginalValue:
    (data, data_decay), (more, more_decay) = changes
    return results.MarginalValue.model_construct(
        **rate._asdict(),
        loss_if_twice_the_data=data,
        loss_if_twice_the_compute=more,
        weight_decay_if_twice_the_data=data_decay,
        weight_decay_if_twice_the_compute=more_decay,
    )


def _with_twice_the_data(choice: Choice, value: results.MarginalValue) -> results.MarginalValue:
    """Where compute has no ceiling: twice the data takes as much of it as is best then."""
    q = choice.question
    ceiling = _least_loss_compute(q.known, q.form, 2 * q.ud, q.weight_decay, q.limits, {})
    found = choice.best(cost=replace(q.cost, owned=2 * q.ud), ceiling=ceiling)
    if found is None:
        return value
    gain = min(found.point.loss - choice.found.point.loss, 0.0)
    return value.model_copy(
        update={"loss_if_twice_the_data": gain, "weight_decay_if_twice_the_data": found.weight_decay}
    )


def _loss_terms(terms: Terms) -> results.LossTerms:
    figures: dict[str, Any] = {name: float(value) for name, value in terms._asdict().items()}
    return results.LossTerms.model_construct(**figures)


def _shape(request: Request, known: Calibration, params: float) -> tuple[Any, str | None]:
    """A shape for the model, or why there is none."""
    vocab = request.vocab_size or known.vocab_size or DEFAULT_VOCAB
    try:
        return hardware.shape_for(params, vocab, tied_embeddings=bool(known.tied_embeddings)), None
    except InvalidInput as error:
        return None, str(error)


def _with_crossover(choice: Choice, p: Plan) -> Plan:
    """With where the best rival and the choice swap places."""
    question = choice.question
    known, form, ud = question.known, question.form, question.ud
    if not choice.rivals:
        return p.model_copy(update={"crossover_note": explain.single_setting_note(known, form)})
    decays, include = (p.weight_decay, choice.rivals[0].weight_decay), choice.outlier(choice.law)
    swap = crossover_between(known, form, ud, *decays, question.limits, include)
    intervals = p.intervals
    if intervals is not None and swap.interval is not None:
        intervals = {**intervals, "crossover_flops": swap.interval}
    told = {"crossover_flops": swap.crossover_flops, "crossover_note": swap.note, "intervals": intervals}
    told["crossover_is_clear"] = not question.any_decay and _is_clear(swap, p)
    return p.model_copy(update=told)


def _is_clear(swap: Crossover, p: Plan) -> bool:
    """Whether two weight decays swap places once, in most draws, and a plan and the best that the other one
    reaches are on the sides where that puts them.
    """
    if swap.crossover_flops is None or len(swap.crossings) > 1 or swap.share < _CROSSES:
        return False
    rival = p.other_weight_decays[0]
    above = p.spent_flops >= swap.crossover_flops
    stronger_is_better = (p.weight_decay > rival.weight_decay) == (p.loss <= rival.predicted_loss)
    return above == stronger_is_better


def _weight_decay_advice(request: Request, choice: Choice) -> results.WeightDecayChoice | None:
    """What there is to say of a plan's weight decay beyond its value; None where that is nothing."""
    known, setting, point = choice.question.known, choice.setting, choice.found.point
    best_decay, gains, question = None, [], choice.question
    if question.any_decay and question.weight_decay is None:
        best_decay = choice.found.weight_decay
    elif question.any_decay and choice.single:
        free = choice.best(weight_decay=None)
        best_decay = free and free.weight_decay
    if best_decay is not None:
        for rival in sorted(choice.rivals, key=lambda one: one.weight_decay):
            loss = rival.point.loss
            gains.append(results.Gain(weight_decay=rival.weight_decay, loss=loss, gain=loss - point.loss))
    if best_decay is None and setting.between is None and request.own is None:
        return None
    used = point.unique_tokens * min(point.epochs, 1.0)
    return results.WeightDecayChoice(
        best_weight_decay=best_decay,
        interpolated_from=setting.between,
        timescale_epochs=_timescale(known, setting, used),
        calibrated_timescale=_calibrated_timescales(known),
        gains=gains,
        own_recipe=None if request.own is None else request.own.own(setting.weight_decay, point.params, used),
    )


def _tuned_elsewhere(known: Calibration, point: Point) -> results.TunedWeightDecay | None:
    """What tuning found elsewhere for such a model, where the law knows some weight decays only."""
    tuned = tuned_elsewhere(known, point.params, point.unique_tokens)
    of_some = known.weight_decay_law is None and known.settings[0].tuned_weight_decays is None
    if tuned is None or not of_some or point.epochs <= 1:
        return None
    return results.TunedWeightDecay(**weight_decay_rule.within_factor(tuned)._asdict())


def _timescale(known: Calibration, setting: Setting, used: float) -> float | None:
    """AdamW's timescale in epochs over so many tokens in use; None: the calibration does not say its recipe,
    or has no weight decay of its own.
    """
    if known.recipe is None or setting.tuned_weight_decays is not None:
        return None
    return float(known.recipe.timescale_tokens(setting.weight_decay) / used)


def _calibrated_timescales(known: Calibration) -> tuple[float, float] | None:
    """Between which timescales the runs were."""
    if known.weight_decay_law is not None:
        return known.weight_decay_law.timescale_epochs
    runs = [(one, corpus) for one in known.settings for corpus in one.fitted_on.unique_tokens]
    ends = [end for one, corpus in runs if (end := _timescale(known, one, corpus)) is not None]
    return (min(ends), max(ends)) if ends else None


def _predictive_uncertainty(choice: Choice) -> results.PredictiveUncertainty | None:
    """What the law's error on runs that it had not seen means for this plan; None where it was never
    measured."""
    question, point, error = choice.question, choice.found.point, choice.error
    known, form, probability = question.known, question.form, None
    measured = uncertainty.prediction_error(choice.setting, form, point, error)
    measured = _with_gain(measured, point, choice.gain)
    if measured is None or known.starved_of_steps(point.unique_tokens * point.epochs):
        return None
    if choice.rivals:
        _, decay, rival = choice.rivals[0]
        law_error = known.setting(decay).error(form, question.tolerance)
        doubt = math.hypot(error, float(law_error(rival.params, point.unique_tokens, rival.epochs)))
        probability = uncertainty.normal_share((rival.loss - point.loss) / doubt)
    return results.PredictiveUncertainty.model_construct(
        **vars(measured),
        as_good=_flat_range(choice.inside_error, choice.flat(choice.inside_error)),
        weight_decay_probability=probability,
    )


def _facts(request: Request, choice: Choice, p: Plan) -> explain.Facts:
    """What the words need next to the numbers."""
    asked, setting = choice.asked, choice.setting
    known, committed = asked.known, asked.weight_decay is not None
    problem = _shape(request, known, p.params)[1]
    facts = explain.Facts(asked, setting, choice.single, request.vocab_size, problem)
    if not choice.single:
        return facts
    return facts._replace(
        bound=_what_limits_change(choice),
        rival_best=choice.rival_best() if committed and p.overspent and choice.rivals else None,
        disagreement=uncertainty.form_disagreement(setting, choice.found.point) if p.law == AVERAGE else None,
    )


def _what_limits_change(choice: Choice) -> explain.Bound:
    """Which figures would be others without the limits on size and epochs."""
    question = choice.question
    if question.limits.box == FREE.box:
        return explain.Bound()
    free = Choice(replace(question, limits=question.limits.unbounded()), single=True)
    own, other = ((one.found.weight_decay, *one.found.point[:3]) for one in (choice, free))
    moved, tolerance = not np.allclose(own, other, rtol=1e-6, atol=0.0), question.tolerance
    doubled = [[loss for loss, _ in one.changes()] for one in (free, choice)]
    return explain.Bound(
        plan=moved,
        minimum=not _alike(free.loss_minimising(), choice.loss_minimising()),
        doubled=moved or not _alike(*doubled),
        flat=moved or not _alike(free.flat(tolerance), choice.flat(tolerance)),
        turn=not _alike(free.turning_point(), choice.turning_point()),
    )


def _alike(one: Any, other: Any) -> bool:
    """Whether two figures, or several of each, are the same as far as anybody would notice."""
    if one is None or other is None:
        return one is other
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-6)


def disagreement_at(known: Calibration, ud: float, flops: float, weight_decay: float | None = None) -> str:
    """What forms disagree by at the best plan for a budget that is all spent, in words; nothing where they
    agree or where the calibration has one form only.
    """
    if not all(setting.law_weights for setting in known.settings):
        return ""
    answering = uncertainty.reweight(known, AVERAGE, ud, flops)
    setting = answering.settings[0] if weight_decay is None else answering.setting(weight_decay)
    found = uncertainty.form_disagreement(setting, solve.allocate(setting.law(AVERAGE), ud, flops).single())
    return "" if found is None else explain.disagreement_in_words(found)


# -- members, serving, bought data

_BYTES = 2.0  # of a parameter in bf16
_STRIDE, _STRIDES = math.log(4.0), 11  # in search of the total from which ensembles win


def _candidate(found: Found | None) -> results.Candidate | None:
    if found is None:
        return None
    members, decay, point = found
    return _record(results.Candidate, point, members=members, weight_decay=decay, total_flops=point.flops)


def _ensemble(total: Choice) -> results.EnsemblePlan:
    """One model against several."""
    found, asked, averaging = total.found, total.asked, total.asked.known.members
    assert averaging is not None
    several, auto = [number for number in asked.members if number > 1], len(asked.members) > 1
    single: Found | None = found
    ensemble: Found | None = found
    if found.members > 1:
        single = solve.best_of(replace(asked, members=(1,)))
    else:
        ensemble = solve.best_of(replace(asked, members=several)) if several else None
    shown = ensemble or found
    one, loss = total.expected_loss(shown._replace(members=1)), shown.point.loss
    start = cheaper = None
    if auto and asked.target is None:
        start = _ensembles_start(total, single, ensemble)
    if auto and ensemble is not None and asked.limits.ceiling:
        # The cheapest whose loss is within the error of the law of averaging, where it costs much less.
        target = loss + max(averaging.error, asked.tolerance)
        cheaper = total.best(ceiling=math.inf, target=target, members=several)
        cheaper = cheaper if cheaper and cheaper.point.flops < 0.7 * ensemble.point.flops else None
    return results.EnsemblePlan.model_construct(
        count=found.members,
        member_loss=one,
        gain=one - loss,
        limit_loss=one - (one - loss) * shown.members / max(shown.members - 1, 1),
        single=_candidate(single),
        ensemble=_candidate(ensemble),
        start_flops=start,
        weights_bytes=_BYTES * shown.members * shown.point.params,
        flops_per_token=SERVING_FLOPS * shown.members * shown.point.params,
        cheapest_as_good=_candidate(cheaper),
        distilled=ensemble and _distilled(total, ensemble),
        error=averaging.error,
        most_members=averaging.most_members,
        source=averaging.source,
        **_gain_range(total, shown),
    )


def _gain(total: Choice, shown: Found) -> Gain:
    """What averaging is expected to gain over one of the members."""
    known, place = total.asked.known, shown.point
    at = place.params, place.unique_tokens, place.epochs
    law = known.setting(shown.weight_decay).law(total.asked.form)
    return Gain(*map(float, known.averaging_gains(law, shown.members, *at, shown.weight_decay)))


def _gain_range(total: Choice, shown: Found) -> dict[str, Any]:
    """Between which gains averaging is expected, where its law was borrowed."""
    known, gain = total.asked.known.members, _gain(total, shown)
    return {} if known is None or known.borrowed is None else {"gain_low": gain.low, "gain_high": gain.high}


def _spare(choice: Choice) -> results.SpareEnsemble | None:
    """What compute that one model cannot use would buy as an ensemble; None where that is not known, or
    nothing.
    """
    if not choice.single or choice.question.known.members is None:
        return None
    spare = choice.spare_ensemble()
    if spare is None or not spare.near:
        return None
    members, decay, point = spare.found
    told = {"members": members, "weight_decay": decay, "total_flops": point.flops, "level": evidence.LEVEL}
    return _record(results.SpareEnsemble, point, **told, loss_low=spare.low, loss_high=spare.high)


def _distilled(total: Choice, ensemble: Found) -> results.Distillation | None:
    """What one model of the members' size would reach, if it kept what was kept where it was measured."""
    averaging, loss = total.question.known.members, ensemble.point.loss
    if averaging is None or averaging.distilled is None:
        return None
    size = Limits.of(params=ensemble.point.params)
    limits = replace(size, whole_epochs=total.question.limits.whole_epochs)
    alone = total.best(ceiling=math.inf, members=(1,), limits=limits)
    if alone is None or alone.point.loss <= loss:  # no gain of which something could be kept
        return None
    kept, members = averaging.distilled.kept, averaging.distilled.members
    between, gain = averaging.distilled.between, alone.point.loss - loss
    averaged = _gain(total, ensemble)
    ends = [gain + end - averaged.expected for end in averaged]
    losses = [alone.point.loss - share * end for share in between or () for end in ends]
    return results.Distillation.model_construct(
        kept=kept,
        members=members,
        loss=alone.point.loss - kept * gain,
        kept_between=between,
        loss_low=min(losses, default=None),
        loss_high=max(losses, default=None),
    )


def _ensembles_start(total: Choice, single: Found | None, ensemble: Found | None) -> float | None:
    """The total from which two or more members are better than one; None where that is not in sight. In
    strides until it is enclosed, then by the Illinois variant of regula falsi.
    """

    def lead(ln_total: float) -> float:
        """By how much several are better there."""
        at = replace(total.question, ceiling=math.exp(ln_total))
        one, several = (solve.best_of(replace(at, members=n), rough=True) for n in ((1,), (2, 3, 4)))
        if several is None:
            return -math.inf
        return (math.inf if one is None else float(one.point.loss)) - float(several.point.loss)

    place = math.log(total.question.ceiling)
    here = lead(place) if single is None or ensemble is None else single.point.loss - ensemble.point.loss
    stride = -_STRIDE if here > 0 else _STRIDE
    for _ in range(_STRIDES):  # down to where one model is better, or up to where several are
        before, there, place = place, here, place + stride
        here = lead(place)
        if (here > 0) != (there > 0):
            break
    else:
        return None
    (low, behind), (high, ahead) = sorted([(before, there), (place, here)])
    place, before = high, low
    while abs(place - before) > 0.02:
        share = -behind / (ahead - behind) if math.isfinite(ahead - behind) else 0.5
        before, place = place, low + share * (high - low)
        here = lead(place)
        if here > 0:
            high, ahead, behind = place, here, 0.5 * behind
        else:
            low, behind, ahead = place, here, 0.5 * ahead
    return math.exp(place)


def _serving(total: Choice) -> results.ServingPlan | None:
    """What the tokens to be served add to the training."""
    price, (members, _, point) = total.asked.cost, total.found
    if not price.serve_tokens:
        return None
    flops = float(price.serving(members, point.params))
    alone = solve.best_of(replace(total.asked, cost=replace(price, serve_tokens=0.0)))
    if alone is not None:
        a = alone.point
        true = float(price.total(alone.members, a.params, a.unique_tokens, a.epochs))
        alone = alone._replace(point=a._replace(flops=true))
    return results.ServingPlan.model_construct(
        tokens=price.serve_tokens,
        flops=flops,
        rate=price.serve_rate,
        training_flops=_trained(total.found),
        total_flops=point.flops,
        share=price.serve_rate * flops / point.flops,
        usd=price.usd(price.serve_rate * flops),
        total_usd=price.usd(point.flops),
        training_only=_candidate(alone),
    )


def _purchase(total: Choice) -> results.PurchasePlan | None:
    """Data bought against compute bought."""
    price, point = total.question.cost, total.found.point
    if not price.token_flops or price.usd_per_flop is None:
        return None
    paid = float(price.data(point.unique_tokens))
    return results.PurchasePlan.model_construct(
        price=float(f"{price.token_flops * price.usd_per_flop:.12g}"),
        owned=price.owned,
        bought=point.unique_tokens - price.owned,
        usd=paid * price.usd_per_flop,
        compute_usd=(point.flops - paid) * price.usd_per_flop,
        nothing_bought=_candidate(solve.best_of(replace(total.asked, cost=replace(price, token_flops=0.0)))),
    )


# -- compare


def _in_tokens(ud: Any, known: Calibration, bytes_per_token: Any) -> Any:
    """What was given, as tokens where it was the length of a text."""
    return inputs.in_tokens(ud, inputs.bytes_of_token(bytes_per_token, known.bytes_per_token))


@spell_out_limits
def compare(
    ud: Any,
    flops: Any,
    *,
    weight_decay: Any = None,
    calibration: CalibrationSource = None,
    bytes_per_token: Any = None,
    **options: Unpack[LimitOptions],
) -> Comparison:
    """What each law recommends for one budget, and what the calibration's default law expects of that."""
    known, limits = Calibration.load(calibration), Limits.of(**options)
    tokens, ceiling = inputs.budget(_in_tokens(ud, known, bytes_per_token), flops)
    if options.get("params") is not None:
        limits = limits.affordable(ceiling, FLOPS_PER_PARAM_TOKEN * tokens)
    uncertainty.check_question(known, tokens, limits)
    rows = []
    for setting in known.candidates(known.default_law, weight_decay):
        judge = setting.law(known.default_law)
        least = float(solve.lowest(judge, tokens, ceiling, limits))
        if not math.isfinite(least):
            raise solve.no_choice(tokens, ceiling, limits)
        for form in setting.laws:
            law, error = setting.law(form), setting.inside_error(form)
            point = solve.plan_within(law, tokens, ceiling, error, limits).single()
            expected = float(judge.loss(point.params, tokens, point.epochs))
            rows.append(_alternative(form, Found(1, setting.weight_decay, point), expected, least))
    return Comparison(
        ud=tokens,
        flops=ceiling,
        spend=limits.spend,
        calibration=known.name,
        judge=known.default_law,
        uniform_loss=known.uniform_loss,
        rows=rows,
        warnings=explain.comparison_warnings(known, rows),
        limits=limits,
    )


# -- frontier

_MOST_POINTS = 100_000


@spell_out_limits
def frontier(
    ud: Any,
    flops: Any,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    members: Any = None,
    bytes_per_token: Any = None,
    **options: Unpack[LimitOptions],
) -> Frontier:
    """Plans for many budgets at once: `ud` and `flops` are numbers or arrays that broadcast.

    Without `weight_decay` each budget gets the best of those calibrated, or of all where there is a
    weight-decay law. Budgets are ceilings, of which a plan spends what helps, unless `spend` is "all";
    budgets for which the limits then leave no choice are NaN. With `members` (a number, or "auto") each
    budget gets the lowest loss of so many models, averaged. Plans that are too far from all evidence are
    kept, and marked in `refused`: `plan` would refuse them.
    """
    known, limits = Calibration.load(calibration), Limits.of(**options)
    tokens, computes = inputs.budgets(_in_tokens(ud, known, bytes_per_token), flops)
    uncertainty.check_question(known, float(tokens.max()), limits)
    form, counts = known.form(law), None if members is None else _member_counts(known, members)
    found = frontier_along(known, form, tokens, computes, limits, weight_decay, counts)
    return replace(found, refused=uncertainty.refused(known, found.params, tokens, found.epochs))


def frontier_along(
    known: Calibration,
    form: str,
    tokens: np.ndarray,
    computes: np.ndarray,
    limits: Limits,
    weight_decay: Any = None,
    counts: Sequence[int] | None = None,
) -> Frontier:
    """The same for budgets of one length that were checked already; several models each are searched for one
    budget after the other.
    """
    candidates: list[tuple[Setting, np.ndarray]] = []  # and the budgets for which they are tried
    best = np.full((5, len(tokens)), np.nan)  # the columns of a Point
    decays, members, least = np.full((3, len(tokens)), np.nan)
    if counts is not None:
        for row, (ud, flops) in enumerate(zip(tokens.tolist(), computes.tolist(), strict=True)):
            cost, rest = TotalCost(ud), (counts, flops, None, DEFAULT_TOLERANCE)
            if found := solve.best_of(Question(known, form, cost, limits, weight_decay, *rest)):
                members[row], decays[row], best[:, row] = found
    elif weight_decay is None and known.has_weight_decay_law(form):
        chosen = solve.best_weight_decays(known, form, tokens, computes, limits)
        candidates = [(known.setting(float(decay)), chosen == decay) for decay in np.unique(chosen)]
    else:
        everywhere = np.ones(len(tokens), dtype=bool)
        candidates = [(setting, everywhere) for setting in known.candidates(form, weight_decay)]
    for setting, here in candidates:
        decays[np.isnan(decays)] = setting.weight_decay  # of the first, where there is no plan
        law, error = solve.deciding_law(setting, form, limits), setting.inside_error(form)
        for corpus in np.unique(tokens[here]):
            rows = np.flatnonzero(here & (tokens == corpus))
            points = solve.plan_within(law, corpus, computes[rows], error, limits)
            better = ~(points.loss >= least[rows]) & np.isfinite(points.loss)
            least[rows[better]] = points.loss[better]
            points = solve.by_the_law(law, points)
            best[:, rows[better]] = np.array(np.broadcast_arrays(*points))[:, better]
            decays[rows[better]] = setting.weight_decay
    params, _, epochs, spent, loss = best
    columns = (tokens, computes, spent, params, epochs, tokens * epochs, loss, decays)
    averaged = None if counts is None else members
    return Frontier(*columns, form, known.name, known.uniform_loss, averaged)


@spell_out_limits
def frontier_range(
    ud: Any,
    start: Any = None,
    stop: Any = None,
    points: Any = 25,
    *,
    single_epoch: bool = False,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    members: Any = None,
    bytes_per_token: Any = None,
    **options: Unpack[LimitOptions],
) -> Frontier:
    """The frontier over a range of compute: by default from one pass over the corpus to 10,000 times that.

    With `single_epoch` the data is taken to be unlimited: every budget gets as many fresh tokens as it wants,
    which is the base law; the "epochs" are then multiples of `ud` in fresh tokens.
    """
    known = Calibration.load(calibration)
    tokens = inputs.unique_tokens(_in_tokens(ud, known, bytes_per_token))
    once = solve.once_flops(known.settings[0].law(law or known.default_law), tokens)
    low = inputs.compute(start, "start") if start is not None else once
    high = inputs.compute(stop, "stop") if stop is not None else low * 1e4
    if high <= low:
        said = f"{inputs.scientific(high)} and {inputs.scientific(low)}"
        raise InvalidInput(f"must be above ‹start›; got {said}.", field="stop")
    number_of = inputs.whole(points, "points", example="25")
    if not 2 <= number_of <= _MOST_POINTS:
        raise InvalidInput(f"must be between 2 and {_MOST_POINTS}; got {number_of}.", field="points")
    if single_epoch:
        if law not in (None, BASE_FORM):
            raise InvalidInput(f"is the base law and takes no other; got ‹law› {law}.", field="single_epoch")
        law, options["epochs"] = BASE_FORM, inputs.CONTINUOUS_EPOCHS
    by: dict[str, Any] = {"weight_decay": weight_decay, "law": law, "members": members}
    found = frontier(tokens, np.geomspace(low, high, number_of), calibration=known, **by, **options)
    if not single_epoch:
        return found
    return replace(found, refused=uncertainty.refused(known, found.params, found.tokens, np.ones(number_of)))


# -- crossover

_CROSSES = 0.5  # share of draws below which an average of forms does not name a crossing
_AT_THE_END = 1.01  # as near as this to the end of a search is at its end


@spell_out_limits
def crossover(
    ud: Any,
    *,
    weight_decays: Iterable[Any] | None = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    bytes_per_token: Any = None,
    **options: Unpack[LimitOptions],
) -> Crossover:
    """C×: the compute above which the stronger weight decay is better, and every other crossing.

    By default between the weakest and the strongest setting calibrated.
    """
    known = Calibration.load(calibration)
    tokens = inputs.unique_tokens(_in_tokens(ud, known, bytes_per_token))
    form, limits = known.form(law), Limits.of(**options)
    uncertainty.check_question(known, tokens, limits)
    found = crossover_between(known, form, tokens, *two_weight_decays(known, form, weight_decays), limits)
    if found.crossover_flops is None:
        return found
    places = {}
    for decay in (found.weaker, found.stronger):  # the plans between which the crossover decides
        there = solve.allocate(known.setting(decay).law(form), tokens, found.crossover_flops, limits).single()
        if math.isfinite(there.loss):
            places[decay] = there
    return found.model_copy(update={"warnings": explain.crossover_warnings(known, places)})


def two_weight_decays(known: Calibration, form: str, wanted: Any) -> tuple[float, float]:
    """The weight decays to compare."""
    if wanted is None:
        decays = [setting.weight_decay for setting in known.candidates(form)]
        if len(decays) < 2:
            raise InvalidInput(f"{explain.single_setting_note(known, form)}; a crossover needs two.")
        return min(decays), max(decays)
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise InvalidInput(f"must be two numbers such as (0.1, 1.0); got {wanted!r}.", field="weight_decays")
    decays = [known.setting(decay).weight_decay for decay in wanted]
    if len(decays) != 2 or decays[0] == decays[1]:
        got = ", ".join(str(decay) for decay in decays) or "none"
        raise InvalidInput(f"must be two different ones; got {got}.", field="weight_decays")
    return decays[0], decays[1]


def crossover_between(
    known: Calibration,
    form: str,
    ud: float,
    one: float,
    other: float,
    limits: Limits,
    include: float | None = None,
) -> Crossover:
    """The crossover of two settings of a calibration; `include` is a compute that is searched for sure."""
    weaker, stronger = (known.setting(decay) for decay in sorted((one, other)))
    laws = weaker.law(form), stronger.law(form)
    found = solve.crossings_between(*laws, ud, limits, include)
    free = solve.crossings_between(*laws, ud, limits.unbounded(), include)
    better_below: float | None = (weaker if found.first_is_better_below else stronger).weight_decay
    if laws[0].parameters == laws[1].parameters or found.searched is None:
        better_below = None
    fitted = [setting.fitted_on for setting in (weaker, stronger)]
    smallest = max(FLOPS_PER_PARAM_TOKEN * f.params[0] * f.unique_tokens[0] for f in fitted)
    centre, bounds, doubt = found.upward(smallest), None, explain.Doubt()
    draws = weaker.law_draws(form), stronger.law_draws(form)
    if centre is not None and draws[0] is not None and draws[1] is not None:
        bounds, doubt = _crossover_interval(draws[0], draws[1], ud, centre, found.flops, limits)
    computes = solve.search_range(laws[0], ud, include)
    answer = Crossover.model_construct(
        ud=ud,
        law=form,
        calibration=known.name,
        weaker=weaker.weight_decay,
        stronger=stronger.weight_decay,
        crossover_flops=centre if doubt.named else None,
        crossings=found.flops,
        searched=found.searched or (float(computes[0]), float(computes[-1])),
        better_below=better_below,
        interval=bounds if doubt.named else None,
        share=doubt.share,
        note="",
        warnings=[],
        limits=limits,
    )
    changed = not _alike(found[:2], free[:2])
    note = explain.crossover_note(answer, doubt, searched=found.searched is not None, changed=changed)
    return answer.model_copy(update={"note": note})


def _crossover_interval(
    weaker: Law, stronger: Law, ud: float, centre: float, found: Sequence[float], limits: Limits
) -> tuple[Interval | None, explain.Doubt]:
    """The interval of C× by draws, the share of them that cross between which computes, and whether the
    crossing can be named: an average of forms does not where few of its draws cross, nor where the interval
    ends only because the next crossing begins, so that it is not known how far draws go on.
    """
    lowest, highest = centre / 100, centre * 100
    halfway = [(other * centre) ** 0.5 for other in found if other != centre]  # to the next crossings
    low = max([lowest, *(end for end in halfway if end < centre)])
    high = min([highest, *(end for end in halfway if end > centre)])
    bounds, share = uncertainty.crossover_interval(weaker, stronger, ud, (low, high), limits)
    cut_short = bounds is not None and (
        (bounds.low <= low * _AT_THE_END and low > lowest)
        or (bounds.high * _AT_THE_END >= high and high < highest)
    )
    named = weaker.form != AVERAGE or not (share < _CROSSES or cut_short)
    return bounds, explain.Doubt(named, share, (low, high))


# -- predict

_PARAMS, _UD, _EPOCHS = (1.0, 1e15, "parameters"), (1e3, 1e16, "unique tokens"), (1e-6, 1e5, "epochs")
_DECAYS = 168  # weight decays that are tried where all of a range may be chosen


Place = tuple[np.ndarray, np.ndarray, np.ndarray]  # params, unique tokens and epochs of configurations


class _By(TypedDict, total=False):
    """What the prediction is made with; `predict` says it in words."""

    weight_decay: Any
    law: str | None
    calibration: CalibrationSource
    learning_rate: Any
    batch_tokens: Any
    members: Any
    bytes_per_token: Any


@overload
def predict(
    params: float | str, ud: float | str, epochs: float | str = 1.0, **by: Unpack[_By]
) -> Prediction: ...


@overload
def predict(params: Any, ud: Any = None, epochs: Any = 1.0, **by: Unpack[_By]) -> Predictions: ...


@with_hints
def predict(
    params: Any,
    ud: Any = None,
    epochs: Any = 1.0,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    learning_rate: Any = None,
    batch_tokens: Any = None,
    members: Any = None,
    bytes_per_token: Any = None,
) -> Prediction | Predictions:
    """The loss of one configuration; without `weight_decay`, at the one that does best there: of those
    calibrated, or of all where there is a weight-decay law. With a `learning_rate` or `batch_tokens` of your
    own, `weight_decay` is in your recipe. `members` is how many such models are averaged.

    Arrays (or lists) that broadcast give the losses of many; so does a table in the place of `params` with
    the columns `params`, `unique_tokens` and perhaps `epochs`.
    """
    if hasattr(params, "columns"):
        params, ud, epochs = _columns(params, ud, epochs)
    known = Calibration.load(calibration)
    per_token = inputs.bytes_of_token(bytes_per_token, known.bytes_per_token)
    ud = inputs.in_tokens(ud, per_token)
    own = RecipeTransfer.of(known, learning_rate, batch_tokens, weight_decay)
    decay = weight_decay if own is None else own.calibrated
    number_of = _member_counts(known, members, auto=False)[0]
    several = any(
        isinstance(value, Iterable) and not isinstance(value, str | dict) and getattr(value, "ndim", 1) > 0
        for value in (params, ud, epochs)
    )
    given = (params, ud, epochs) if several else ([params], [ud], [epochs])
    place = _configurations(*given)
    for row in np.flatnonzero(uncertainty.refused(known, *place)):
        uncertainty.check_prediction(known, *(float(values[row]) for values in place))
    form = known.form(law)
    decays, losses = _best_losses(known, form, decay, number_of, place)
    if several:
        return Predictions(*place, decays, losses, form, known.name)
    one = float(place[0][0]), float(place[1][0]), float(place[2][0])
    found = _prediction(known, form, known.setting(float(decays[0])), one, number_of, own)
    in_bytes = {"bytes_per_token": per_token, "bits_per_byte": inputs.bits_per_byte(found.loss, per_token)}
    return found.model_copy(update={"members": None if members is None else number_of, **in_bytes})


def _best_losses(
    known: Calibration, form: str, weight_decay: Any, members: int, place: Place
) -> tuple[np.ndarray, np.ndarray]:
    """The weight decay with the lowest loss of each configuration of so many models, and that loss; where all
    of a range may be chosen, to two digits.
    """

    def losses(law: Law, at: Place, decay: Any) -> np.ndarray:
        return np.asarray(law.loss(*at) - known.averaging_gain(law, members, *at, decay))

    if weight_decay is None and known.has_weight_decay_law(form):
        tried = np.geomspace(*solve.searched_decays(known), _DECAYS)
        rows = place[0][:, None], place[1][:, None], place[2][:, None]
        table = losses(known.law_at(form, tried), rows, tried)
        decays = solve.two_digits(known, tried[np.argmin(table, axis=1)].tolist())
        return decays, losses(known.law_at(form, decays), place, decays)
    settings = known.candidates(form, weight_decay)
    table = np.stack([losses(one.law(form), place, one.weight_decay) for one in settings])
    decays = np.array([setting.weight_decay for setting in settings])[np.argmin(table, axis=0)]
    return decays, table.min(axis=0)


def _prediction(
    known: Calibration,
    form: str,
    setting: Setting,
    place: tuple[float, float, float],
    members: int,
    own: RecipeTransfer | None,
) -> Prediction:
    """All that is known of the loss of one configuration."""
    (params, ud, epochs), law = place, setting.law(form)
    gain = Gain(*map(float, known.averaging_gains(law, members, *place, setting.weight_decay)))
    flops = FLOPS_PER_PARAM_TOKEN * params * ud * epochs
    point = Point(*place, flops, float(law.loss(*place)) - gain.expected)
    error = float(setting.error(form)(*place))
    if members > 1 and known.members is not None:
        error = math.hypot(error, known.members.error)
    warnings = explain.prediction_warnings(known, setting, point, members)
    measured, intervals = None, None
    codes = {one.code for one in warnings}
    if "starved_of_steps" not in codes:
        intervals = uncertainty.loss_intervals(setting, form, point, known.uniform_loss, gain)
    if not {"worse_than_uniform", "starved_of_steps"} & codes:
        measured = _with_gain(uncertainty.prediction_error(setting, form, point, error), point, gain)
    averaged = None
    if members > 1 and known.members is not None:
        borrowed = known.members.borrowed is not None
        averaged = results.AveragingGain(
            gain=gain.expected,
            low=gain.low if borrowed else None,
            high=gain.high if borrowed else None,
            level=evidence.LEVEL,
            limit=gain.expected * members / (members - 1),
            source=known.members.source,
        )
    return _record(
        Prediction,
        point,
        ud=ud,
        weight_decay=setting.weight_decay,
        tuned_weight_decays=setting.tuned_weight_decays,
        law=form,
        calibration=known.name,
        tokenizer=known.tokenizer,
        perplexity=inputs.perplexity(point.loss),
        terms=_loss_terms(law.terms(*place)),
        predictive_uncertainty=measured,
        intervals=intervals,
        interval_note=uncertainty.interval_note(known, setting, form, ud * epochs),
        warnings=warnings,
        timescale_epochs=_timescale(known, setting, ud * min(epochs, 1.0)),
        own_recipe=None if own is None else own.own(setting.weight_decay, params, ud * min(epochs, 1.0)),
        law_weights=setting.law_weights if form == AVERAGE else None,
        averaging=averaged,
    )


def _with_gain(measured: Error | None, point: Point, gain: Gain) -> Error | None:
    """The error of a prediction with that of a gain that was borrowed, whose ends are uneven."""
    if measured is None or gain.high <= gain.low:
        return measured
    low, high = solve.loss_range(point.loss, measured.loss_high - point.loss, gain)
    return measured.model_copy(update={"loss_low": low, "loss_high": high})


def _columns(table: Any, ud: Any, epochs: Any) -> tuple[Any, Any, Any]:
    """Sizes, unique tokens and epochs of a table."""
    for name in ("params", "unique_tokens"):
        if name not in table.columns and not (name == "unique_tokens" and ud is not None):
            known = ", ".join(str(column) for column in table.columns)
            raise InvalidInput(f"must be a table with the column {name}; it has {known}.", field="params")
    unique = table["unique_tokens"].to_numpy() if ud is None else ud
    passes = table["epochs"].to_numpy() if "epochs" in table.columns else epochs
    return table["params"].to_numpy(), unique, passes


def _configurations(params: Any, ud: Any, epochs: Any) -> Place:
    """Many configurations, checked, as arrays of one length."""
    columns = []
    for values, field, parse, bounds in (
        (params, "params", inputs.count, _PARAMS),
        (ud, "ud", inputs.count, _UD),
        (epochs, "epochs", partial(number, examples="4 or 0.5"), _EPOCHS),
    ):
        column = inputs.many(values, field, parse)
        inputs.within(float(column.min()), field, *bounds)
        inputs.within(float(column.max()), field, *bounds)
        columns.append(column)
    try:
        sizes, tokens, passes = np.broadcast_arrays(*columns)
        return sizes, tokens, passes
    except ValueError:
        lengths = ", ".join(str(len(values)) for values in columns)
        raise InvalidInput(
            f", ‹ud› and ‹epochs› must have one length or broadcast; got {lengths} values.", field="params"
        ) from None
