"""The public calls: `plan`, `compare`, `frontier`, `crossover` and `predict`.

A plan is made in steps that read from top to bottom in `plan`: the question is checked and becomes one frozen
`Request`; each weight decay that may be chosen is given its best plan, and the best of them is the choice
(`_OneModel`, or `_Total` where members, serving or bought data count as well); everything worth knowing about
the choice is put together in `_described`, in one place for all kinds of plans; and `explain` says it in
words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack, overload

import numpy as np

from planner.averaging import AUTO, members_wanted
from planner.calibration import (
    DEFAULT_TOLERANCE,
    Calibration,
    CalibrationSource,
    Setting,
    shipped_names,
)
from planner.explain import (
    Bound,
    Facts,
    cannot_be_paid,
    cannot_be_reached,
    check_serving,
    crossover_note,
    crossover_warnings,
    disagreement_in_words,
    explained,
    prediction_warnings,
    single_setting_note,
    unreachable,
)
from planner.hardware import (
    SERVING_FLOPS,
    Accelerator,
    Architecture,
    TotalCost,
    cost,
    named_or_own,
    shape_for,
    total_cost,
    training_compute,
    vocabulary,
)
from planner.inputs import (
    CONTINUOUS_EPOCHS,
    InvalidInput,
    LimitOptions,
    Limits,
    budget,
    budgets,
    compute,
    count,
    given,
    many,
    number,
    perplexity,
    scientific,
    spelled_out,
    unique_tokens,
    whole,
    within,
)
from planner.laws import AVERAGE, BASE_FORM, Law
from planner.results import (
    Alternative,
    Candidate,
    CheaperPlan,
    Comparison,
    Crossover,
    Distillation,
    EnsemblePlan,
    FlatRange,
    Frontier,
    Gain,
    Interval,
    LossMinimisingCompute,
    LossTerms,
    MarginalValue,
    OwnRecipe,
    Plan,
    Prediction,
    Predictions,
    PredictiveUncertainty,
    PurchasePlan,
    ServingPlan,
    TurningPoint,
    WeightDecayChoice,
)
from planner.search import Found, Grid, Search, best, best_of, best_sizes, searches
from planner.solve import (
    FLOPS_PER_PARAM_TOKEN,
    ExchangeRate,
    Point,
    Within,
    allocate,
    cheapest_within,
    compute_curve,
    crossings,
    exchange_rate,
    flat_epochs,
    least_compute,
    loss_minimising,
    lowest,
    lowest_along,
    lowest_loss,
    memoize,
    most_epochs,
    no_choice,
    once_flops,
    plan_within,
    regained,
    search_range,
)
from planner.uncertainty import (
    FAR,
    NEAR,
    Evidence,
    TooFar,
    check_plan,
    check_prediction,
    check_question,
    crossover_interval,
    form_disagreement,
    interval_note,
    intervals_elsewhere,
    loss_error,
    loss_intervals,
    normal_share,
    plan_intervals,
    prediction_error,
    predictive_width,
    refused,
    reweight,
    weight_decay_probabilities,
)

FAMILIAR = 0.1  # the weight decay that most people train with


Asking = TypeVar("Asking", bound=Callable[..., Any])


def suggest_remedies(ask: Asking) -> Asking:
    """Where a plan is refused as too far from all evidence, say what would do: the first change that is
    answered, and the first other shipped calibration whose plan is within ten times its own evidence. Both
    were tried.
    """

    @wraps(ask)
    def asking(ud: Any, flops: Any = None, **given: Any) -> Any:
        question = {"ud": ud, "flops": flops, **given}
        try:
            return ask(**question)
        except TooFar as refusal:
            would_do = []
            for words, change in refusal.changes(question):
                if _answered(ask, question | change) is not None:
                    would_do.append(words)
                    break
            for name in shipped_names() if not isinstance(given.get("calibration"), Calibration) else ():
                found = _answered(ask, question | {"calibration": name})
                if found is not None and not Evidence.of(Calibration.load(name).settings).outside(
                    NEAR, params=found.params, unique_tokens=found.unique_tokens, epochs=found.epochs
                ):
                    would_do.append(f"‹calibration› {name}")
                    break
            end = f"; {' or '.join(would_do)} would do." if would_do else "."
            raise InvalidInput(refusal.sentence + end) from None

    return asking  # type: ignore[return-value]


def _answered(ask: Callable[..., Any], question: dict[str, Any]) -> Any:
    try:
        return ask(**question)
    except InvalidInput:
        return None


@spelled_out
@suggest_remedies
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
    **options: Unpack[LimitOptions],
) -> Plan:
    """The best model size, epochs and weight decay for `ud` unique tokens and `flops` of compute.

    Without `weight_decay` the best of those calibrated is chosen, or of all where there is a weight-decay
    law. With a `learning_rate` or `batch_tokens` of your own it is in your recipe, the plan's too: that of
    equal timescale. `tolerance` (nats) is that of the flat range. With a `gpu` (or one of your own: `tflops`,
    `memory` in GB, `price`) the plan has a cost, and `hours` on `gpus` of them or `budget_usd` may stand for
    `flops`; so may `target_loss`, for the least compute that reaches it. Limits: `params` (the size is
    settled), `min_params`, `max_params`, `min_epochs`, `max_epochs`; `epochs` is "whole" (a fraction below
    one) or "continuous".

    `members` (a number, or "auto") allows for an ensemble, `serve_tokens` counts what is going to be served
    (at `serve_price` per GPU-hour and `serve_mfu`, where they differ from training), `data_price` (USD per
    token) lets data be bought: the ceiling is then one of the total, of which `target_loss` asks the least.
    """
    card = named_or_own(gpu, tflops=tflops, memory=memory, price=price)
    used, limits = given(gpus=gpus, mfu=mfu, price=price), Limits.of(**options)
    amount = given(flops=flops, hours=hours, budget_usd=budget_usd)
    known = Calibration.load(calibration)
    tokens, ceiling, target = _budget(ud, amount, card, used, target_loss, limits)
    check_question(known, tokens, limits, target_loss, buys=data_price is not None)
    served = given(serve_tokens=serve_tokens, serve_price=serve_price, serve_mfu=serve_mfu)
    total = total_cost(tokens, card=card, **served, **given(data_price=data_price, mfu=mfu, price=price))
    paid = None if data_price is None else number(data_price, "data_price", examples="2e-6")
    nats = number(tolerance, "tolerance", examples="0.01")
    own = RecipeTransfer.of(known, learning_rate, batch_tokens)
    decay = weight_decay if own is None else own.calibrated(weight_decay)
    some = members if members is None else members_wanted(known.members, known.name, members, auto=True)
    form, rows = known.form(law), None if vocab_size is None else vocabulary(vocab_size)
    asked = (known, form, tokens, ceiling, target, limits, nats, decay, own, some, total, paid, rows)
    return _answer(Request(*asked), card, used)


def _budget(
    ud: Any,
    amount: dict[str, Any],
    card: Accelerator | None,
    used: dict[str, Any],
    target_loss: Any,
    limits: Limits,
) -> tuple[float, float | None, float | None]:
    """Unique tokens, and the compute that there is or the loss to be reached with the least of it."""
    if target_loss is None:
        return *budget(ud, training_compute(gpu=card, **amount, **used)), None
    training_compute(1.0, gpu=card, **used)  # what has no effect without an accelerator is refused
    tokens, loss = unique_tokens(ud), number(target_loss, "target_loss", examples="3.0")
    if superfluous := [*amount, *([] if limits.ceiling else ["spend"])]:
        names = " and ".join(f"‹{name}›" for name in superfluous)
        raise InvalidInput(f"asks for the least compute: leave out {names}.", field="target_loss")
    return tokens, None, loss


@dataclass(frozen=True)
class Request:
    """What was asked, checked."""

    known: Calibration
    form: str
    ud: float
    ceiling: float | None  # None: the least compute that reaches the target
    target: float | None
    limits: Limits
    tolerance: float
    weight_decay: float | None  # as calibrated; None: the best
    own: RecipeTransfer | None
    members: int | str | None  # that may be averaged; None: one model
    cost: TotalCost
    data_price: float | None
    vocab_size: int | None

    @property
    def only_training(self) -> bool:
        """Whether nothing but training counts."""
        return not (self.cost.serve_tokens or self.cost.buys)


class RecipeTransfer(NamedTuple):
    """A recipe of one's own next to that of the calibration: weight decays of equal timescale."""

    learning_rate: float
    batch_tokens: float
    scale: float  # own weight decay over that of the calibration

    @classmethod
    def of(cls, known: Calibration, learning_rate: Any, batch_tokens: Any) -> RecipeTransfer | None:
        """What was given, checked; None where nothing was."""
        if learning_rate is None and batch_tokens is None:
            return None
        recipe = known.recipe
        if recipe is None:
            raise InvalidInput(
                f"cannot be translated: calibration {known.name} does not say the learning rate and batch of "
                f"its runs.",
                field="learning_rate" if learning_rate is not None else "batch_tokens",
            )
        rate, batch = recipe.learning_rate, float(recipe.batch_tokens)
        if learning_rate is not None:
            rate = number(learning_rate, "learning_rate", examples="3e-4")
        if batch_tokens is not None:
            batch = count(batch_tokens, "batch_tokens")
        for field, own, calibrated in (
            ("learning_rate", rate, recipe.learning_rate),
            ("batch_tokens", batch, recipe.batch_tokens),
        ):
            if not 1 / FAR <= own / calibrated <= FAR:
                raise InvalidInput(
                    f"({own:g}) is more than {FAR:g} times off that of calibration {known.name} "
                    f"({calibrated:g}), and nothing is known of weight decay so far from it.",
                    field=field,
                )
        return cls(rate, batch, batch / recipe.batch_tokens * recipe.learning_rate / rate)

    def calibrated(self, weight_decay: Any) -> float | None:
        """A weight decay of one's own, if any, in the calibration's recipe."""
        if weight_decay is None:
            return None
        return float(number(weight_decay, "weight_decay", positive=False)) / self.scale

    def own(self, weight_decay: float) -> OwnRecipe:
        """A weight decay of the calibration in one's own recipe."""
        return OwnRecipe(
            learning_rate=self.learning_rate,
            batch_tokens=self.batch_tokens,
            weight_decay=float(f"{weight_decay * self.scale:.3g}"),
        )


def _answer(request: Request, card: Accelerator | None, used: dict[str, Any]) -> Plan:
    """The choice, everything worth knowing about it, its cost, and all of that in words."""
    choice, ensemble = _chosen(request)
    check_plan(choice.known, choice.found.point)
    p = _described(request, choice, ensemble)
    if card is not None:
        p = p.model_copy(update={"cost": cost(p.spent_flops, card, architecture=p.architecture, **used)})
    return explained(p, _facts(request, choice, p))


def _chosen(request: Request) -> tuple[_OneModel | _Total, EnsemblePlan | None]:
    """The search that answers a request, and one model against several where that was asked."""
    if request.members is None and request.only_training:
        return _OneModel.of(request), None
    total = _Total(request)
    ensemble = None
    if request.members is not None and request.known.members is not None:
        ensemble = _ensemble(total)
        if total.found.members == 1 and request.only_training:  # one model is better: the ordinary plan holds
            return _OneModel.of(request), ensemble
    return total, ensemble


# -- weight decays that may be chosen

_STEPS, _CLOSER = 21, 9  # weight decays that are tried, and again around the best of them
_LESS = 0.25 ** np.arange(3.0)  # shares of the compute that are tried where it is a ceiling
_BLOCK = 128  # budgets at a time


class Candidates(NamedTuple):
    """The weight decays that a plan may have, and those that it is compared with."""

    settings: tuple[Setting, ...]
    others: tuple[Setting, ...]
    best: float | None = None  # of all that the weight-decay law has, for this budget
    with_data: tuple[Setting, ...] = ()  # those that a plan may have with twice the data
    with_compute: tuple[Setting, ...] = ()  # with twice the compute
    along_compute: tuple[Setting, ...] = ()  # at whatever compute has the lowest loss


def _candidates(request: Request, ceiling: float) -> Candidates:
    """The weight decay asked for, the best that the weight-decay law finds, or all calibrated."""
    known, form, ud, wanted = request.known, request.form, request.ud, request.weight_decay
    if not known.has_weight_decay_law(form):
        settings = known.candidates(form, wanted)
        chosen = {setting.weight_decay for setting in settings}
        others = tuple(s for s in known.settings if s.has(form) and s.weight_decay not in chosen)
        return Candidates(settings, others, None, settings, settings, settings)
    asked = [(ud, ceiling), (2 * ud, ceiling), (ud, 2 * ceiling)][: 3 if wanted is None else 1]
    tokens, computes = np.array(asked).T
    found, *more = best_weight_decays(known, form, tokens, computes, request.limits).tolist()
    settings = known.candidates(form, found if wanted is None else wanted)
    further = [settings] * 3
    if wanted is None:
        more.append(_lowest_weight_decay(known, form, ud, request.limits))
        further = [(known.setting(decay),) for decay in more]
    rivals = {s.weight_decay: s for s in map(known.setting, (found, *_usual_weight_decays(known, form)))}
    for setting in settings:
        rivals.pop(setting.weight_decay, None)
    return Candidates(settings, tuple(rivals.values()), found, *further)


def _usual_weight_decays(known: Calibration, form: str) -> list[float]:
    """What people train with where nobody chooses, or what was calibrated."""
    if not known.has_weight_decay_law(form):
        return [setting.weight_decay for setting in known.settings if setting.has(form)]
    assert known.weight_decay_law is not None
    low, high = known.weight_decay_range
    usual = (FAMILIAR, known.weight_decay_law.default_weight_decay)
    return [decay for decay in dict.fromkeys(usual) if low <= decay <= high]


def best_weight_decays(
    known: Calibration, form: str, ud: np.ndarray, flops: np.ndarray, limits: Limits
) -> np.ndarray:
    """The weight decay with the lowest loss that each budget can reach, to two digits: on a grid, and again
    around the best of it.
    """
    low, high = _searched_weight_decays(known)

    def losses(tokens: np.ndarray, computes: np.ndarray, decays: np.ndarray) -> np.ndarray:
        found = allocate(known.law_at(form, decays), tokens, computes, limits).loss
        return np.asarray(np.where(np.isfinite(found), found, np.inf))

    found = []
    for start in range(0, len(ud), _BLOCK):
        tokens, computes = ud[start : start + _BLOCK], flops[start : start + _BLOCK]
        grid, rows = np.geomspace(low, high, _STEPS), np.arange(len(tokens))
        shares = _LESS if limits.ceiling else _LESS[:1]
        table = losses(tokens[:, None, None], computes[:, None, None] * shares[:, None], grid)
        share, pick = np.divmod(table.reshape(len(tokens), -1).argmin(axis=1), _STEPS)
        below, above = (grid[np.clip(pick + side, 0, _STEPS - 1)] for side in (-1, 1))
        near = np.geomspace(below, above, _CLOSER, axis=1)
        best_near = losses(tokens[:, None], (computes * shares[share])[:, None], near).argmin(axis=1)
        found.append(near[rows, best_near])
    return np.array([_two_digits(value, low, high) for value in np.concatenate(found)])


@memoize(128)
def _lowest_weight_decay(known: Calibration, form: str, ud: float, limits: Limits) -> float:
    """The weight decay with the lowest loss at whatever compute has it, to two digits."""
    low, high = _searched_weight_decays(known)
    grid = np.geomspace(low, high, _STEPS)
    for _ in range(2):
        laws = known.law_at(form, grid)
        curve = allocate(
            laws.draw((slice(None), None)), ud, search_range(laws, ud, per_decade=4), limits.continuous()
        )
        first = loss_minimising(laws, ud, curve, limits).loss
        least = np.where(np.isfinite(curve.loss), curve.loss, np.inf).min(axis=1)
        pick = int(np.where(np.isfinite(first), first, least).argmin())
        best_decay, ends = grid[pick], (grid[max(pick - 1, 0)], grid[min(pick + 1, len(grid) - 1)])
        grid = np.geomspace(*ends, _CLOSER)
    return _two_digits(best_decay, low, high)


def _searched_weight_decays(known: Calibration) -> tuple[float, float]:
    low, high = known.weight_decay_range
    return max(low, 1e-3 * high), high


def _two_digits(value: float, low: float, high: float) -> float:
    return min(max(float(f"{value:.1e}"), low), high)


# -- one training


class _Change(NamedTuple):
    """By how much twice the data or compute changes the loss (None: the limits leave no plan), and the weight
    decay that it takes.
    """

    loss: float | None
    weight_decay: float | None


@dataclass(frozen=True, eq=False)
class _OneModel:
    """The plan where training one model is all that counts, and what is around it."""

    request: Request
    known: Calibration  # as it answers for this budget
    ceiling: float

    @classmethod
    def of(cls, request: Request) -> _OneModel:
        """The search of a request; with a target, within the least compute that reaches it by the laws that
        answer for that compute.
        """
        if request.ceiling is not None:
            return cls(
                request, reweight(request.known, request.form, request.ud, request.ceiling), request.ceiling
            )
        least = _compute_for(request, request.known)
        known = reweight(request.known, request.form, request.ud, least)
        if known is not request.known:
            least = _compute_for(request, known)
        return cls(request, known, budget(request.ud, least)[1])

    @cached_property
    def candidates(self) -> Candidates:
        return _candidates(replace(self.request, known=self.known), self.ceiling)

    @cached_property
    def best(self) -> dict[float, Point]:
        """The best plan of each weight decay."""
        everyone = (*self.candidates.settings, *self.candidates.others)
        return {setting.weight_decay: self._within(setting).plan for setting in everyone}

    @cached_property
    def found(self) -> Found:
        """The weight decay with the lowest loss."""
        decays = [setting.weight_decay for setting in self.candidates.settings]
        decay = min(decays, key=lambda one: self.best[one].loss_or_inf)
        point = self.best[decay].single()
        if not math.isfinite(point.loss):
            raise no_choice(self.request.ud, self.ceiling, self.request.limits)
        return Found(1, decay, point)

    @property
    def setting(self) -> Setting:
        return self.known.setting(self.found.weight_decay)

    @property
    def law(self) -> Law:
        return self.setting.law(self.request.form)

    def _within(
        self, setting: Setting, form: str | None = None, *, data: float = 1, more: float = 1
    ) -> Within:
        """The plan of a setting within the ceiling, at a multiple of the data or the compute."""
        request = self.request
        tolerance = request.tolerance if form is None else DEFAULT_TOLERANCE
        form = form or request.form
        law, error = setting.law(form), setting.error(form, tolerance)
        return plan_within(law, data * request.ud, more * self.ceiling, error, request.limits)

    def continuous(self) -> Point:
        limits = self.request.limits.continuous()
        return allocate(self.law, self.request.ud, self.found.point.flops, limits).single()

    def cheaper(self, error: float) -> Point | None:
        point = self.found.point
        return cheapest_within(
            self.law, self.request.ud, point.flops, point.loss + error, self.request.limits
        )

    def flat(self, tolerance: float) -> FlatRange:
        """Sizes and epochs at the same compute whose loss is within the tolerance."""
        point = self.found.point
        low, high = (
            float(end[0])
            for end in flat_epochs(self.law, self.request.ud, point, tolerance, self.request.limits)
        )
        product = point.flops / (FLOPS_PER_PARAM_TOKEN * self.request.ud)
        return _flat_range(tolerance, low, high, product / high, product / low)

    def exchange_rate(self) -> ExchangeRate:
        return exchange_rate(self.law, self.request.ud, self.continuous(), self.request.limits)

    def rivals(self) -> list[Found]:
        """What the other weight decays would do, the best of them first."""
        others = [
            Found(1, decay, point.single())
            for decay, point in self.best.items()
            if decay != self.found.weight_decay
        ]
        return sorted(
            (one for one in others if math.isfinite(one.point.loss)), key=lambda one: one.point.loss
        )

    def other_laws(self) -> list[tuple[str, Found]]:
        """What other laws recommend."""
        decay = self.found.weight_decay
        forms = [form for form in self.setting.laws if form != self.request.form]
        return [(form, Found(1, decay, self._within(self.setting, form).plan.single())) for form in forms]

    def expected_loss(self, found: Found) -> float:
        return float(self.law.loss(found.point.params, self.request.ud, found.point.epochs))

    def least_loss(self) -> float:
        return float(min(self.found.point.loss, self._within(self.setting).least))

    def changes(self) -> tuple[_Change, _Change]:
        """What twice the data and twice the compute change."""
        changes = []
        for settings, data, more in (
            (self.candidates.with_data, 2.0, 1.0),
            (self.candidates.with_compute, 1.0, 2.0),
        ):
            plans = [(self._within(one, data=data, more=more).plan, one.weight_decay) for one in settings]
            point, decay = min(plans, key=lambda each: (each[0].loss_or_inf, each[1]))
            here = self.found.point
            # Nobody has to use it; and what is reached with less than now is no gain from more.
            gains = point.loss < here.loss and (data > 1 or point.flops > here.flops)
            if not np.isfinite(point.loss):
                changes.append(_Change(None, None))
            elif self.request.limits.ceiling and not gains:
                changes.append(_Change(0.0, self.found.weight_decay))
            else:
                changes.append(_Change(float(point.loss) - here.loss, decay))
        return changes[0], changes[1]

    # Along compute, which only a single training is looked at.

    def turning_point(self) -> TurningPoint | None:
        """Where the best plan repeats most."""
        law, ud, limits = self.law, self.request.ud, self.request.limits
        turn = most_epochs(law, ud, compute_curve(law, ud, limits, self._outlier(law)), limits).single()
        if not math.isfinite(turn.loss):
            return None
        return TurningPoint.model_construct(flops=turn.flops, epochs=turn.epochs, params=turn.params)

    def loss_minimising(self, settings: Sequence[Setting] | None = None) -> LossMinimisingCompute | None:
        """The compute with the lowest loss where any of these settings may be chosen, by default those that a
        plan may have; None where another is lower there already: more compute goes on helping by that one.
        """
        settings = self.candidates.along_compute if settings is None else settings
        ud, limits, best, curves = self.request.ud, self.request.limits, [], []
        for setting in settings:
            law = setting.law(self.request.form)
            curves.append(compute_curve(law, ud, limits, self._outlier(law)))
            best.append(lowest_along(law, ud, limits, self._outlier(law)))
        place = min(range(len(best)), key=lambda k: best[k].loss_or_inf)
        lowest_point = best[place]
        if not math.isfinite(lowest_point.loss):
            return None
        again = [regained(curves[place], lowest_point)]
        for k, curve in enumerate(curves):
            if k == place:
                continue
            there = np.interp(np.log(lowest_point.flops), np.log(curve.flops), curve.loss)
            if there < lowest_point.loss - 1e-9:
                return None
            again.append(regained(curve, lowest_point))
        params, _, epochs, flops, loss = lowest_point
        return LossMinimisingCompute.model_construct(
            flops=flops,
            params=params,
            epochs=epochs,
            loss=loss,
            regained_flops=min((one for one in again if one is not None), default=None),
            weight_decay=settings[place].weight_decay,
        )

    def _outlier(self, law: Law) -> float | None:
        """The budget, if the usual search along compute would not cover it."""
        computes = search_range(law, self.request.ud)
        return None if computes[0] <= self.ceiling <= computes[-1] else self.ceiling

    def crossover(self) -> Crossover | None:
        """Where the best rival and the choice swap places."""
        rivals = self.rivals()
        if not rivals:
            return None
        request, decay = self.request, self.found.weight_decay
        outlier = self._outlier(self.law)
        return crossover_between(
            self.known, request.form, request.ud, decay, rivals[0].weight_decay, request.limits, outlier
        )

    def rival_best(self, p: Plan) -> Point | None:
        """The lowest loss that the best rival reaches with at most this compute, where the choice
        overspends."""
        if not (p.overspent and p.other_weight_decays):
            return None
        setting = self.known.setting(p.other_weight_decays[0].weight_decay)
        limit = self.loss_minimising([setting])
        law, ud = setting.law(self.request.form), self.request.ud
        if limit is not None and limit.flops < self.ceiling:
            return Point(limit.params, ud, limit.epochs, limit.flops, limit.loss)
        here = allocate(law, ud, self.ceiling, self.request.limits.continuous()).single()
        return here if math.isfinite(here.loss) else None

    def spare_ensemble(self) -> Found | None:
        """What compute that one model cannot use would buy as an ensemble, roughly, if that is more than the
        error of its law.
        """
        averaging = self.known.members
        assert averaging is not None
        request, loss = self.request, self.found.point.loss - averaging.error
        counts = range(2, _BEYOND * averaging.most_members + 1)
        tasks = searches(
            self.known, request.form, request.weight_decay, TotalCost(request.ud), request.limits, counts
        )
        found = [best(replace(task, ceiling=self.ceiling), rough=True) for task in tasks]
        below = [one for one in found if one is not None and one.point.loss < loss]
        some = min(below, key=lambda one: one.point.loss, default=None)
        return None if some is None else some._replace(weight_decay=float(f"{some.weight_decay:.2g}"))


def _compute_for(request: Request, known: Calibration) -> float:
    """The least compute with which a setting reaches the target or, where the lowest loss is within the law's
    own error of it, that of the lowest.
    """
    assert request.target is not None
    ud, form, limits, target = request.ud, request.form, request.limits, request.target
    settings = known.candidates(form, request.weight_decay)
    laws = [setting.law(form) for setting in settings]
    found = [point.flops for law in laws if (point := least_compute(law, ud, target, limits)) is not None]
    if found:
        return float(min(found))
    plans = [(lowest_loss(law, ud, limits), setting) for law, setting in zip(laws, settings, strict=True)]
    reachable = [(point, setting) for point, setting in plans if point is not None]
    if not reachable:
        raise InvalidInput(f"({target:g}) cannot be reached: the limits leave no plan.", field="target_loss")
    point, setting = min(reachable, key=lambda one: one[0].loss)
    measured = setting.measured(form)
    if measured is not None:
        doubt = predictive_width(measured.runs) * float(setting.error(form)(point.params, ud, point.epochs))
        if point.loss - target <= doubt:
            return float(point.flops)
    elif point.loss <= target:
        return float(point.flops)

    needed = _tokens_for(target, ud, laws, limits)
    irreducible = min(float(law.terms(1.0, 1.0, 1.0).irreducible) for law in laws)
    raise unreachable(target, ud, point, setting.weight_decay, needed, irreducible, limits)


_MOST_TOKENS = 1e16


def _tokens_for(loss: float, ud: float, laws: Sequence[Law], limits: Limits) -> float | None:
    """The fewest unique tokens, above these, with which one of the laws reaches the loss."""

    def reaches(tokens: float) -> bool:
        found = (lowest_loss(law, tokens, limits) for law in laws)
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


# -- members, serving, bought data

_BYTES = 2.0  # of a parameter in bf16
_BEYOND = 2  # times the members that were trained: as far as the law of averaging was tried
_STRIDE, _STRIDES = math.log(4.0), 12  # in search of the total from which ensembles win
_STEP = 1e-4  # of ln(tokens) and ln(total), over which marginal values are taken


class _Total:
    """The plan where more than one training counts, and what is around it: the same search with something
    changed. The total is a ceiling, of which the lowest loss is asked, or the least of it reaches a loss.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        ceiling = request.ceiling
        self.known = (
            request.known if ceiling is None else reweight(request.known, request.form, request.ud, ceiling)
        )
        found = self.search()
        if found is None:
            if request.target is None:
                raise cannot_be_paid(request.cost, ceiling or 0.0, request.limits)
            lowest_found = self.search(math.inf, None)
            raise cannot_be_reached(request.target, request.ud, lowest_found, request.limits)
        self.found: Found = found
        # From here on the total is what there is, whether it was given or found.
        self.ceiling = found.point.flops if ceiling is None else ceiling
        check_serving(self.known, request.cost, found, self.ceiling)

    @property
    def setting(self) -> Setting:
        return self.known.setting(self.found.weight_decay)

    @property
    def members(self) -> tuple[int, ...]:
        return _member_counts(self.known, self.request.members)

    def tasks(
        self,
        ceiling: float | None = None,
        target: float | None = None,
        *,
        members: Sequence[int] | None = None,
        decay: float | None = None,
        cost: TotalCost | None = None,
        any_decay: bool = False,
    ) -> list[Search]:
        """The searches of the question, perhaps for other members, at one or any weight decay, or another
        cost."""
        request = self.request
        fixed = None if any_decay else request.weight_decay if decay is None else decay
        some = searches(
            self.known, request.form, fixed, cost or request.cost, request.limits, members or self.members
        )
        if ceiling is None and target is None:
            ceiling, target = request.ceiling, request.target
        return [replace(one, ceiling=math.inf if ceiling is None else ceiling, target=target) for one in some]

    def search(
        self, ceiling: float | None = None, target: float | None = None, **changes: Any
    ) -> Found | None:
        """By default the question itself."""
        return best_of(self.tasks(ceiling, target, **changes))

    def here(self, form: str | None = None) -> Search:
        """The lowest loss at the weight decay and with the members of the answer, within its total."""
        request, counts = self.request, (self.found.members,)
        return Search(
            self.known, form or request.form, self.setting, request.cost, request.limits, counts, self.ceiling
        )

    def expected_loss(self, found: Found) -> float:
        return float(self.here().loss_along(Grid.at(found))(np.log([[found.point.params]]))[0, 0])

    def least_loss(self) -> float:
        here = best(self.here())
        loss = self.found.point.loss
        return float(loss if here is None else min(loss, here.point.loss))

    def continuous(self) -> Point:
        task = replace(self.here(), limits=self.request.limits.continuous())
        return (best(task) or self.found).point

    def cheaper(self, error: float) -> Point | None:
        """The least total whose answer, at the same weight decay, is within the law's error of this one."""
        if not self.request.limits.ceiling:
            return None
        found = best(replace(self.here(), ceiling=math.inf, target=self.found.point.loss + error))
        return None if found is None or found.point.flops > 0.95 * self.found.point.flops else found.point

    def flat(self, tolerance: float) -> FlatRange:
        """The epochs around the best, each with its best size, that stay within `tolerance` of its loss."""
        here, task = self.found.point, self.here()
        fewest, most = task.epochs
        if here.epochs >= 1 and task.limits.whole_epochs:
            near = np.append(np.arange(1.0, 33.0), np.floor(here.epochs * np.geomspace(0.05, 20, 200)))
            near = near[near >= 1]
        else:
            near = here.epochs * np.geomspace(0.05, 20, 400)
        epochs = np.unique(np.append(near[(near >= fewest) & (near <= most)], here.epochs))
        grid = Grid(*(np.full(len(epochs), float(values[0])) for values in Grid.at(self.found)))
        sizes, losses = best_sizes(task, grid._replace(epochs=epochs))
        near_best = losses <= here.loss + tolerance
        place = int(np.argmin(np.abs(epochs - here.epochs)))
        apart = np.flatnonzero(~near_best)
        low = max(apart[apart < place], default=-1) + 1
        high = min(apart[apart > place], default=len(epochs)) - 1
        params = np.append(np.exp(sizes[min(low, place) : max(high, place) + 1]), here.params)
        return _flat_range(tolerance, float(epochs[low]), float(epochs[high]), params.min(), params.max())

    def exchange_rate(self) -> ExchangeRate:
        """What more data and a larger total would buy, the members of the answer being kept."""
        task, point, total = self.here(), self.found.point, self.ceiling
        spent_on_data = float(task.cost.data(point.unique_tokens))

        def loss(tokens: float, total: float) -> float:
            owned = replace(task.cost, owned=tokens, token_flops=0.0)
            at = replace(task, cost=owned, ceiling=total - spent_on_data)
            return float(best_sizes(at, Grid.at(self.found, tokens))[1][0])

        here, up, down = point.unique_tokens, 1 + _STEP, 1 - _STEP
        by_token = (loss(here * up, total) - loss(here * down, total)) / (2 * _STEP * here)
        by_flop = (loss(here, total * up) - loss(here, total * down)) / (2 * _STEP * total)
        by_token, by_flop = (value if math.isfinite(value) else 0.0 for value in (by_token, by_flop))
        return ExchangeRate(by_token, by_flop, by_token / by_flop if by_flop < 0 else None)

    def rivals(self) -> list[Found]:
        """The best at each other weight decay that people would think of, the best first."""
        form, chosen = self.request.form, self.found.weight_decay
        usual = [d for d in dict.fromkeys(_usual_weight_decays(self.known, form)) if d != chosen]
        others = [self.search(self.ceiling, decay=decay) for decay in usual]
        if self.known.has_weight_decay_law(form) and self.request.weight_decay is not None:
            others.append(self.search(self.ceiling, any_decay=True))
        return sorted((one for one in others if one is not None), key=lambda one: one.point.loss)

    def other_laws(self) -> list[tuple[str, Found]]:
        """What other laws recommend for as many members within the same total."""
        forms = [form for form in self.setting.laws if form != self.request.form]
        return [(form, found) for form in forms if (found := best(self.here(form))) is not None]

    def changes(self) -> tuple[_Change, _Change]:
        """What owning twice the data and twice the total change."""
        cost = self.request.cost
        twice = (
            self.search(self.ceiling, cost=replace(cost, owned=2 * cost.owned)),
            self.search(2 * self.ceiling),
        )
        changes = []
        for one in twice:
            kept = None if one is None else min(one, self.found, key=lambda each: each.point.loss)
            changes.append(
                _Change(None, None)
                if kept is None
                else _Change(kept.point.loss - self.found.point.loss, kept.weight_decay)
            )
        return changes[0], changes[1]


def _member_counts(known: Calibration, members: int | str | None) -> tuple[int, ...]:
    """The numbers of members that may be chosen from."""
    if members == AUTO and known.members is not None:
        return tuple(range(1, _BEYOND * known.members.most_members + 1))
    return (members,) if isinstance(members, int) else (1,)


def _candidate(found: Found | None) -> Candidate | None:
    if found is None:
        return None
    point = found.point
    return Candidate.model_construct(
        members=found.members,
        params=point.params,
        epochs=point.epochs,
        weight_decay=found.weight_decay,
        loss=point.loss,
        total_flops=point.flops,
    )


def _ensemble(total: _Total) -> EnsemblePlan:
    """One model against several."""
    found, averaging, request = total.found, total.known.members, total.request
    assert averaging is not None
    auto = request.members == AUTO
    several = [number for number in total.members if number > 1]
    single = found if found.members == 1 else total.search(members=(1,))
    ensemble = found if found.members > 1 else total.search(members=several) if several else None
    shown = ensemble or found
    one, loss = total.expected_loss(shown._replace(members=1)), shown.point.loss
    return EnsemblePlan.model_construct(
        count=found.members,
        member_loss=one,
        gain=one - loss,
        limit_loss=one - (one - loss) * shown.members / max(shown.members - 1, 1),
        single=_candidate(single),
        ensemble=_candidate(ensemble),
        start_flops=_ensembles_start(total, single, ensemble) if auto and request.target is None else None,
        weights_bytes=_BYTES * shown.members * shown.point.params,
        flops_per_token=SERVING_FLOPS * shown.members * shown.point.params,
        cheapest_as_good=_candidate(_cheaper_ensemble(total, ensemble, several)),
        distilled=None if ensemble is None else _distilled(total, ensemble),
        error=averaging.error,
        most_members=averaging.most_members,
        source=averaging.source,
    )


def _cheaper_ensemble(total: _Total, ensemble: Found | None, several: Sequence[int]) -> Found | None:
    """The cheapest whose loss is within the error of the law of averaging, where it costs much less."""
    request, averaging = total.request, total.known.members
    if ensemble is None or averaging is None or not request.limits.ceiling or request.members != AUTO:
        return None
    target = ensemble.point.loss + max(averaging.error, request.tolerance)
    found = total.search(math.inf, target, members=several)
    return found if found is not None and found.point.flops < 0.7 * ensemble.point.flops else None


def _distilled(total: _Total, ensemble: Found) -> Distillation | None:
    """What one model of the members' size would reach, if it kept what was kept where it was measured."""
    averaging, loss = total.known.members, ensemble.point.loss
    if averaging is None or averaging.distilled is None:
        return None
    whole_epochs = total.request.limits.whole_epochs
    limits = replace(Limits.of(params=ensemble.point.params), whole_epochs=whole_epochs)
    alone = best_of([replace(task, limits=limits) for task in total.tasks(math.inf, members=(1,))])
    if alone is None or alone.point.loss <= loss:  # no gain of which something could be kept
        return None
    kept, members = averaging.distilled.kept, averaging.distilled.members
    expected = alone.point.loss - kept * (alone.point.loss - loss)
    return Distillation.model_construct(kept=kept, members=members, loss=expected)


def _ensembles_start(total: _Total, single: Found | None, ensemble: Found | None) -> float | None:
    """The total from which two or more members are better than one; None where that is not in sight. In
    strides until it is enclosed, then by the Illinois variant of regula falsi.
    """

    def lead(ln_total: float) -> float:
        """By how much several are better there."""
        tasks = {n: total.tasks(math.exp(ln_total), members=n) for n in ((1,), (2, 3, 4))}
        one, several = (
            min((found.point.loss for task in some if (found := best(task, rough=True))), default=math.inf)
            for some in tasks.values()
        )
        return one - several if math.isfinite(several) else -math.inf

    low = high = math.log(total.ceiling)
    behind = ahead = (
        lead(low) if single is None or ensemble is None else single.point.loss - ensemble.point.loss
    )
    for _ in range(_STRIDES):  # down to where one model is better, or up to where several are
        if behind <= 0 < ahead:
            break
        if behind > 0:
            high, ahead, low = low, behind, low - _STRIDE
            behind = lead(low)
        else:
            low, behind, high = high, ahead, high + _STRIDE
            ahead = lead(high)
    else:
        return None
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


def _serving(total: _Total) -> ServingPlan | None:
    """What the tokens to be served add to the training."""
    price, (members, _, point) = total.request.cost, total.found
    if not price.serve_tokens:
        return None
    flops = float(price.serving(members, point.params))
    nothing = replace(price, serve_tokens=0.0)
    alone = total.search(cost=nothing) if total.request.target else total.search(total.ceiling, cost=nothing)
    if alone is not None:
        a = alone.point
        true = float(price.total(alone.members, a.params, a.unique_tokens, a.epochs))
        alone = alone._replace(point=a._replace(flops=true))
    return ServingPlan.model_construct(
        tokens=price.serve_tokens,
        flops=flops,
        rate=price.serve_rate,
        training_flops=float(price.training(members, point.params, point.unique_tokens, point.epochs)),
        total_flops=point.flops,
        share=price.serve_rate * flops / point.flops,
        usd=price.usd(price.serve_rate * flops),
        total_usd=price.usd(point.flops),
        training_only=_candidate(alone),
    )


def _purchase(total: _Total) -> PurchasePlan | None:
    """Data bought against compute bought."""
    price, point = total.request.cost, total.found.point
    if not price.buys:
        return None
    assert total.request.data_price is not None
    assert price.usd_per_flop is not None
    paid = float(price.data(point.unique_tokens))
    return PurchasePlan.model_construct(
        price=total.request.data_price,
        owned=price.owned,
        bought=point.unique_tokens - price.owned,
        usd=paid * price.usd_per_flop,
        compute_usd=(point.flops - paid) * price.usd_per_flop,
        nothing_bought=_candidate(total.search(cost=replace(price, token_flops=0.0))),
    )


# -- everything about a choice, for all kinds of plans


def _described(request: Request, choice: _OneModel | _Total, ensemble: EnsemblePlan | None) -> Plan:
    """The choice with all that is known of it in numbers, for all kinds of plans."""
    known, form, found, setting = choice.known, request.form, choice.found, choice.setting
    point, members = found.point, found.members
    error = loss_error(known, setting, form, point, members, request.tolerance)
    rivals = [_alternative(form, one, one.point.loss, point.loss) for one in choice.rivals()]
    least = choice.least_loss()
    others = [_alternative(law, one, choice.expected_loss(one), least) for law, one in choice.other_laws()]
    exact, cheaper = choice.continuous(), choice.cheaper(error)
    data, more = choice.changes()
    single = isinstance(choice, _OneModel)
    trained = float(request.cost.training(members, point.params, point.unique_tokens, point.epochs))
    return Plan.model_construct(
        ud=point.unique_tokens,
        flops=choice.ceiling,
        spend=request.limits.spend,
        spent_flops=point.flops if single else trained,
        unused_flops=max(choice.ceiling - point.flops, 0.0),
        law=form,
        calibration=known.name,
        weight_decay=found.weight_decay,
        params=point.params,
        epochs=point.epochs,
        repeats=max(point.epochs - 1, 0.0),
        tokens=point.tokens,
        unique_tokens=point.unique_tokens * min(point.epochs, 1.0),
        loss=point.loss,
        perplexity=perplexity(point.loss),
        uniform_loss=known.uniform_loss,
        terms=loss_terms(setting.law(form), point),
        cheapest_as_good=_cheaper_plan(cheaper, bought=request.cost.buys),
        architecture=_shape(request, known, point.params)[0],
        continuous_epochs=exact.epochs,
        continuous_loss=exact.loss,
        flat_range=choice.flat(request.tolerance),
        marginal_value=_marginal_value(choice.exchange_rate(), data, more),
        other_laws=others,
        other_weight_decays=rivals,
        weight_decay_advice=_weight_decay_advice(request, choice),
        predictive_uncertainty=_predictive_uncertainty(request, choice, rivals, error),
        interval_note=interval_note(known, setting, form),
        law_weights=setting.law_weights if form == AVERAGE else None,
        recipe=known.recipe,
        members=ensemble,
        **_along_compute(choice, others, (data, more))
        if isinstance(choice, _OneModel)
        else _in_total(choice),
    )


def _along_compute(
    choice: _OneModel, others: list[Alternative], changes: tuple[_Change, _Change]
) -> dict[str, Any]:
    """What is looked for along compute, where training one model is all that counts."""
    request, point = choice.request, choice.found.point
    minimum, swap = choice.loss_minimising(), choice.crossover()
    overspent = (
        minimum is not None and point.flops > minimum.flops * 1.005 and point.loss > minimum.loss + 1e-9
    )
    return {
        "crossover_flops": None if swap is None else swap.crossover_flops,
        "crossover_note": single_setting_note(choice.known, request.form) if swap is None else swap.note,
        "turning_point": choice.turning_point(),
        "loss_minimising_compute": minimum,
        "overspent": overspent,
        "intervals": _intervals(choice, others, swap, minimum, changes),
        "weight_decay_probabilities": weight_decay_probabilities(
            choice.known, request.form, request.ud, choice.best
        ),
    }


def _in_total(choice: _Total) -> dict[str, Any]:
    """What serving and bought data add, where more than one training counts."""
    found, form = choice.found, choice.request.form
    gain = choice.expected_loss(found._replace(members=1)) - found.point.loss if found.members > 1 else 0.0
    return {
        "crossover_flops": None,
        "crossover_note": "looked for only where training one model is all that counts",
        "turning_point": None,
        "loss_minimising_compute": None,
        "overspent": False,
        "intervals": loss_intervals(choice.setting, form, found.point, choice.known.uniform_loss, gain),
        "serving": _serving(choice),
        "purchase": _purchase(choice),
    }


def _facts(request: Request, choice: _OneModel | _Total, p: Plan) -> Facts:
    """What the words need next to the numbers."""
    known, setting, committed = choice.known, choice.setting, request.weight_decay is not None
    facts = Facts(
        known=known,
        setting=setting,
        limits=request.limits,
        cost=request.cost,
        committed=committed,
        target=request.target,
        vocab_size=request.vocab_size,
        shape_problem=_shape(request, known, p.params)[1],
        single=isinstance(choice, _OneModel),
    )
    if not isinstance(choice, _OneModel):
        return facts
    return facts._replace(
        bound=_what_limits_change(choice, p),
        rival_best=choice.rival_best(p) if committed else None,
        spare=choice.spare_ensemble() if known.members is not None else None,
        disagreement=form_disagreement(setting, choice.found.point) if p.law == AVERAGE else None,
    )


def _marginal_value(rate: ExchangeRate, data: _Change, more: _Change) -> MarginalValue:
    return MarginalValue.model_construct(
        **rate._asdict(),
        loss_if_twice_the_data=data.loss,
        loss_if_twice_the_compute=more.loss,
        weight_decay_if_twice_the_data=data.weight_decay,
        weight_decay_if_twice_the_compute=more.weight_decay,
    )


def _alternative(form: str, found: Found, expected: float, least: float) -> Alternative:
    point = found.point
    return Alternative.model_construct(
        law=form,
        weight_decay=found.weight_decay,
        spent_flops=FLOPS_PER_PARAM_TOKEN * found.members * point.params * point.tokens,
        params=point.params,
        epochs=point.epochs,
        tokens=point.tokens,
        predicted_loss=point.loss,
        expected_loss=expected,
        regret=expected - least,
    )


def _cheaper_plan(point: Point | None, *, bought: bool) -> CheaperPlan | None:
    if point is None:
        return None
    return CheaperPlan.model_construct(
        flops=point.flops,
        params=point.params,
        epochs=point.epochs,
        loss=point.loss,
        unique_tokens=point.unique_tokens if bought else None,
    )


def _flat_range(tolerance: float, low: float, high: float, smallest: float, largest: float) -> FlatRange:
    return FlatRange.model_construct(
        tolerance=tolerance,
        epochs_min=low,
        epochs_max=high,
        params_min=float(smallest),
        params_max=float(largest),
    )


def _shape(request: Request, known: Calibration, params: float) -> tuple[Architecture | None, str | None]:
    """A shape for the model, or why there is none."""
    vocab = request.vocab_size or known.vocab_size
    try:
        shape = shape_for(params, *([vocab] if vocab else []), tied_embeddings=bool(known.tied_embeddings))
        return shape, None
    except InvalidInput as error:
        return None, str(error)


def loss_terms(law: Law, point: Point) -> LossTerms:
    terms = law.terms(point.params, point.unique_tokens, point.epochs)
    irreducible, parameter, data, overfitting = (float(value) for value in terms)
    return LossTerms.model_construct(
        irreducible=irreducible, parameter=parameter, data=data, overfitting=overfitting
    )


def _weight_decay_advice(request: Request, choice: _OneModel | _Total) -> WeightDecayChoice | None:
    """What there is to say of a plan's weight decay beyond its value; None where that is nothing."""
    known, setting, found = choice.known, choice.setting, choice.found
    gains: list[Gain] = []
    best_decay = None
    if known.has_weight_decay_law(request.form):
        if isinstance(choice, _OneModel):
            best_decay = choice.candidates.best
        elif request.weight_decay is None:
            best_decay = found.weight_decay
        for rival in choice.rivals() if best_decay is not None else []:
            loss = rival.point.loss
            gains.append(Gain(weight_decay=rival.weight_decay, loss=loss, gain=loss - found.point.loss))
        gains.sort(key=lambda one: one.weight_decay)
    if best_decay is None and setting.between is None and request.own is None:
        return None
    recipe, timescale, calibrated = known.recipe, None, None
    if recipe is not None:
        tokens = found.point.unique_tokens * min(found.point.epochs, 1.0)
        timescale = recipe.timescale_tokens(setting.weight_decay) / tokens
        if known.weight_decay_law is not None:
            calibrated = known.weight_decay_law.timescale_epochs
        else:
            ends = [
                recipe.timescale_tokens(one.weight_decay) / corpus
                for one in known.settings
                for corpus in one.fitted_on.unique_tokens
            ]
            calibrated = min(ends), max(ends)
    return WeightDecayChoice(
        best_weight_decay=best_decay,
        interpolated_from=setting.between,
        timescale_epochs=timescale,
        calibrated_timescale=calibrated,
        gains=gains,
        own_recipe=None if request.own is None else request.own.own(setting.weight_decay),
    )


def _predictive_uncertainty(
    request: Request, choice: _OneModel | _Total, rivals: list[Alternative], error: float
) -> PredictiveUncertainty | None:
    """What the law's error on runs that it had not seen means for this plan; None where it was never
    measured."""
    known, point = choice.known, choice.found.point
    measured = prediction_error(known, choice.setting, request.form, point, error)
    if measured is None:
        return None
    probability = None
    if rivals:
        rival = known.setting(rivals[0].weight_decay).error(request.form, request.tolerance)
        doubt = math.hypot(error, float(rival(rivals[0].params, point.unique_tokens, rivals[0].epochs)))
        probability = normal_share((rivals[0].predicted_loss - point.loss) / doubt)
    return PredictiveUncertainty.model_construct(
        **vars(measured), as_good=choice.flat(error), weight_decay_probability=probability
    )


def _intervals(
    choice: _OneModel,
    others: list[Alternative],
    swap: Crossover | None,
    minimum: LossMinimisingCompute | None,
    changes: tuple[_Change, _Change],
) -> dict[str, Interval] | None:
    """An interval of each figure, where the calibration has draws."""
    known, setting, found, request = choice.known, choice.setting, choice.found, choice.request
    form, ud, limits, flops = request.form, request.ud, request.limits, found.point.flops
    draws = setting.law_draws(form)
    if draws is None:
        return None
    figures = plan_intervals(draws, ud, flops, request.tolerance, others, limits)
    elsewhere = (
        ("loss_minimising", None if minimum is None else minimum.weight_decay),
        ("loss_if_twice_the_data", changes[0].weight_decay),
        ("loss_if_twice_the_compute", changes[1].weight_decay),
    )
    for figure, decay in elsewhere:  # that another weight decay has
        if decay not in (None, found.weight_decay):
            other = known.setting(decay).law_draws(form)
            figures = {name: bounds for name, bounds in figures.items() if not name.startswith(figure)}
            figures |= intervals_elsewhere(figure, draws, other, ud, flops, limits)
    figures |= loss_intervals(setting, form, found.point, known.uniform_loss) or {}
    if swap is not None and swap.interval is not None:
        figures["crossover_flops"] = swap.interval
    return figures


def _what_limits_change(choice: _OneModel, p: Plan) -> Bound:
    """Which figures would be others without the limits on size and epochs."""
    request = choice.request
    if not request.limits.bounded:
        return Bound()
    free = _OneModel(replace(request, limits=request.limits.unbounded()), choice.known, choice.ceiling)
    own = (p.params, p.epochs, p.weight_decay)
    other = (free.found.point.params, free.found.point.epochs, free.found.weight_decay)
    minimum = not _alike(free.loss_minimising(), p.loss_minimising_compute)
    turn = not _alike(free.turning_point(), p.turning_point)
    if not np.allclose(own, other, rtol=1e-6, atol=0.0):
        return Bound(plan=True, minimum=minimum, doubled=True, flat=True, turn=turn)
    value = p.marginal_value
    changed = (value.loss_if_twice_the_data, value.loss_if_twice_the_compute)
    return Bound(
        minimum=minimum,
        turn=turn,
        doubled=any(not _close(a.loss, b) for a, b in zip(free.changes(), changed, strict=True)),
        flat=not _alike(free.flat(request.tolerance), p.flat_range),
    )


def disagreement_at(known: Calibration, ud: float, flops: float, weight_decay: float | None = None) -> str:
    """What forms disagree by at the best plan for a budget that is all spent, in words; nothing where they
    agree or where the calibration has one form only.
    """
    if not all(setting.law_weights for setting in known.settings):
        return ""
    answering = reweight(known, AVERAGE, ud, flops)
    setting = answering.settings[0] if weight_decay is None else answering.setting(weight_decay)
    found = form_disagreement(setting, allocate(setting.law(AVERAGE), ud, flops).single())
    return "" if found is None else disagreement_in_words(found)


def _alike(one: Any, other: Any) -> bool:
    """Whether two records have the same figures, as far as anybody would notice."""
    if one is None or other is None:
        return one is other
    return all(_close(value, vars(other)[name]) for name, value in vars(one).items())


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-6)


# -- compare


@spelled_out
def compare(
    ud: Any,
    flops: Any,
    *,
    weight_decay: Any = None,
    calibration: CalibrationSource = None,
    **options: Unpack[LimitOptions],
) -> Comparison:
    """What each law recommends for one budget, and what the calibration's default law expects of that."""
    tokens, ceiling = budget(ud, flops)
    known, limits = Calibration.load(calibration), Limits.of(**options)
    check_question(known, tokens, limits)
    rows = []
    for setting in known.candidates(known.default_law, weight_decay):
        judge = setting.law(known.default_law)
        least = float(lowest(judge, tokens, np.array([ceiling]), limits)[0])
        if not math.isfinite(least):
            raise no_choice(tokens, ceiling, limits)
        for form in setting.laws:
            point = plan_within(setting.law(form), tokens, ceiling, setting.error(form), limits).plan.single()
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
        limits=limits,
    )


# -- frontier

_MOST_POINTS = 100_000


@spelled_out
def frontier(
    ud: Any,
    flops: Any,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    members: Any = None,
    **options: Unpack[LimitOptions],
) -> Frontier:
    """Plans for many budgets at once: `ud` and `flops` are numbers or arrays that broadcast.

    Without `weight_decay` each budget gets the best of those calibrated, or of all where there is a
    weight-decay law. Budgets are ceilings, of which a plan spends what helps, unless `spend` is "all";
    budgets for which the limits then leave no choice are NaN. With `members` (a number, or "auto") each
    budget gets the lowest loss of so many models, averaged. Plans that are too far from all evidence are
    kept, and marked in `refused`: `plan` would refuse them.
    """
    tokens, computes = budgets(ud, flops)
    known, limits = Calibration.load(calibration), Limits.of(**options)
    check_question(known, float(tokens.max()), limits)
    form = known.form(law)
    if members is not None:
        found = _averaged_frontier(known, form, tokens, computes, limits, weight_decay, members)
    else:
        found = frontier_along(known, form, tokens, computes, limits, weight_decay)
    return _marked(found, known, tokens * np.minimum(found.epochs, 1.0), found.epochs)


def _marked(found: Frontier, known: Calibration, unique: np.ndarray, epochs: np.ndarray) -> Frontier:
    """With what is too far from all evidence, of plans that use so many unique tokens for so many epochs."""
    return replace(found, refused=refused(known, found.params, unique, epochs))


def frontier_along(
    known: Calibration,
    form: str,
    tokens: np.ndarray,
    computes: np.ndarray,
    limits: Limits,
    weight_decay: Any = None,
) -> Frontier:
    """The same for budgets of one length that were checked already, one model each."""
    if weight_decay is None and known.has_weight_decay_law(form):
        decays = best_weight_decays(known, form, tokens, computes, limits)
        candidates = [(decay, decays == decay) for decay in np.unique(decays)]
    else:
        everywhere = np.ones(len(tokens), dtype=bool)
        candidates = [(s.weight_decay, everywhere) for s in known.candidates(form, weight_decay)]
    best_points = Point(*np.full((5, len(tokens)), np.nan))
    decays = np.full(len(tokens), candidates[0][0])
    for decay, here in candidates:
        setting = known.setting(float(decay))
        for corpus in np.unique(tokens[here]):
            rows = np.flatnonzero(here & (tokens == corpus))
            found = plan_within(setting.law(form), corpus, computes[rows], setting.error(form), limits).plan
            better = rows[~(found.loss >= best_points.loss[rows]) & np.isfinite(found.loss)]
            picked = np.isin(rows, better)
            for column, values in zip(best_points, found, strict=True):
                column[better] = np.broadcast_to(values, len(rows))[picked]
            decays[better] = decay
    params, _, epochs, spent, loss = best_points
    columns = (tokens, computes, spent, params, epochs, tokens * epochs, loss, decays)
    return Frontier(*columns, form, known.name, known.uniform_loss)


def _averaged_frontier(
    known: Calibration,
    form: str,
    tokens: np.ndarray,
    computes: np.ndarray,
    limits: Limits,
    weight_decay: Any,
    members: Any,
) -> Frontier:
    """Each budget with the members that are best for it, one search after the other."""
    counts = _member_counts(known, members_wanted(known.members, known.name, members, auto=True))
    rows: list[tuple[float, ...]] = []
    for ud, flops in zip(tokens.tolist(), computes.tolist(), strict=True):
        tasks = searches(known, form, weight_decay, TotalCost(ud), limits, counts)
        found = best_of([replace(task, ceiling=flops) for task in tasks])
        point = None if found is None else found.point
        rows.append(
            (math.nan,) * 6
            if found is None or point is None
            else (found.members, point.params, point.epochs, point.loss, found.weight_decay, point.flops)
        )
    number_of, params, epochs, loss, decays, spent = np.array(rows, dtype=float).T
    columns = (tokens, computes, spent, params, epochs, tokens * epochs, loss, decays)
    return Frontier(*columns, form, known.name, known.uniform_loss, members=number_of)


@spelled_out
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
    **options: Unpack[LimitOptions],
) -> Frontier:
    """The frontier over a range of compute: by default from one pass over the corpus to 10,000 times that.

    With `single_epoch` the data is taken to be unlimited: every budget gets as many fresh tokens as it wants,
    which is the base law; the "epochs" are then multiples of `ud` in fresh tokens.
    """
    tokens, known = unique_tokens(ud), Calibration.load(calibration)
    once = once_flops(known.settings[0].law(law or known.default_law), tokens)
    low = compute(start, "start") if start is not None else once
    high = compute(stop, "stop") if stop is not None else low * 1e4
    if high <= low:
        said = f"{scientific(high)} and {scientific(low)}"
        raise InvalidInput(f"must be above ‹start›; got {said}.", field="stop")
    number_of = whole(points, "points", example="25")
    if not 2 <= number_of <= _MOST_POINTS:
        raise InvalidInput(f"must be between 2 and {_MOST_POINTS}; got {number_of}.", field="points")
    if single_epoch:
        if law not in (None, BASE_FORM):
            raise InvalidInput(f"is the base law and takes no other; got ‹law› {law}.", field="single_epoch")
        law, options["epochs"] = BASE_FORM, CONTINUOUS_EPOCHS
    by: dict[str, Any] = {"weight_decay": weight_decay, "law": law, "members": members}
    found = frontier(tokens, np.geomspace(low, high, number_of), calibration=known, **by, **options)
    return _marked(found, known, found.tokens, np.ones(number_of)) if single_epoch else found


# -- crossover

_CROSSES = 0.5  # share of draws below which an average of forms does not name a crossing


@spelled_out
def crossover(
    ud: Any,
    *,
    weight_decays: Iterable[Any] | None = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    **options: Unpack[LimitOptions],
) -> Crossover:
    """C×: the compute above which the stronger weight decay is better, and every other crossing.

    By default between the weakest and the strongest setting calibrated.
    """
    tokens, known = unique_tokens(ud), Calibration.load(calibration)
    form, limits = known.form(law), Limits.of(**options)
    check_question(known, tokens, limits)
    found = crossover_between(known, form, tokens, *two_weight_decays(known, form, weight_decays), limits)
    if found.crossover_flops is None:
        return found
    places = {}
    for decay in (found.weaker, found.stronger):  # the plans between which the crossover decides
        best_there = allocate(known.setting(decay).law(form), tokens, found.crossover_flops, limits).single()
        if math.isfinite(best_there.loss):
            places[decay] = best_there
    return found.model_copy(update={"warnings": crossover_warnings(known, places)})


def two_weight_decays(known: Calibration, form: str, wanted: Any) -> tuple[float, float]:
    """The weight decays to compare."""
    if wanted is None:
        decays = [setting.weight_decay for setting in known.candidates(form)]
        if len(decays) < 2:
            raise InvalidInput(f"{single_setting_note(known, form)}; a crossover needs two.")
        return min(decays), max(decays)
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise InvalidInput(f"must be two numbers such as (0.1, 1.0); got {wanted!r}.", field="weight_decays")
    decays = [known.setting(decay).weight_decay for decay in wanted]
    if len(decays) != 2 or decays[0] == decays[1]:
        got = ", ".join(str(decay) for decay in decays) or "none"
        raise InvalidInput(f"must be two different ones; got {got}.", field="weight_decays")
    return decays[0], decays[1]


@memoize(128)
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
    weak, strong = weaker.law(form), stronger.law(form)
    computes = search_range(weak, ud, include)
    found, weak_is_better_below, searched = crossings(weak, strong, ud, computes, limits)
    changed = False
    if limits.bounded:
        free = crossings(weak, strong, ud, computes, limits.unbounded())
        changed = (
            free.first_is_better_below != weak_is_better_below
            or len(free.flops) != len(found)
            or not np.allclose(free.flops, found, rtol=1e-4, atol=0.0)
        )
    better_below: float | None = weaker.weight_decay if weak_is_better_below else stronger.weight_decay
    if weak.parameters == strong.parameters or searched is None:
        better_below = None
    centre = _first_upward(found, better_below, weaker, stronger)
    bounds, share, between = _interval_of(centre, found, weaker, stronger, form, ud, limits)
    named = centre is None or form != AVERAGE or not (share < _CROSSES or _cut_short(bounds, centre, found))
    return Crossover.model_construct(
        ud=ud,
        law=form,
        calibration=known.name,
        weaker=weaker.weight_decay,
        stronger=stronger.weight_decay,
        crossover_flops=centre if named else None,
        crossings=found,
        searched=searched or (float(computes[0]), float(computes[-1])),
        better_below=better_below,
        interval=bounds if named else None,
        note=crossover_note(
            weaker.weight_decay,
            stronger.weight_decay,
            better_below,
            found,
            searched,
            centre=centre,
            named=named,
            share=share,
            between=between,
            limits=limits,
            changed=changed,
        ),
        warnings=[],
        limits=limits,
    )


def _first_upward(
    found: Sequence[float], better_below: float | None, weaker: Setting, stronger: Setting
) -> float | None:
    """C× among all crossings, between which the better setting alternates: the first from which the stronger
    one is better, except that where laws cross below everything they were fitted on, and again above, the
    latter counts.
    """
    upward = found[0::2] if better_below == weaker.weight_decay else found[1::2]
    fitted = [setting.fitted_on for setting in (weaker, stronger)]
    smallest = max(FLOPS_PER_PARAM_TOKEN * f.params[0] * f.unique_tokens[0] for f in fitted)
    return next((flops for flops in upward if flops >= smallest), upward[0] if upward else None)


def _interval_of(
    centre: float | None,
    found: Sequence[float],
    weaker: Setting,
    stronger: Setting,
    form: str,
    ud: float,
    limits: Limits,
) -> tuple[Interval | None, float, tuple[float, float]]:
    """The interval of C× where there are draws of both settings, the share of them that cross, and between
    which computes they were looked at.
    """
    weak, strong = weaker.law_draws(form), stronger.law_draws(form)
    if centre is None or weak is None or strong is None:
        return None, 1.0, (0.0, 0.0)
    between = _room_around(centre, found)
    return *crossover_interval(weak, strong, ud, between, limits), between


def _cut_short(bounds: Interval | None, centre: float, found: Sequence[float]) -> bool:
    """Whether an interval ends only where the next crossing begins: how far draws go on is not known then."""
    if bounds is None:
        return False
    nearly = 1.01  # as near as this to the end of a search is at its end
    (low, high), (lowest_end, highest_end) = _room_around(centre, found), _room_around(centre, ())
    below, above = bounds.low <= low * nearly, bounds.high * nearly >= high
    return (below and low > lowest_end) or (above and high < highest_end)


def _room_around(centre: float, found: Sequence[float]) -> tuple[float, float]:
    """Where draws may have the same crossing: within a factor of 100, and half-way to the next ones."""
    low, high = centre / 100, centre * 100
    for other in found:
        if other < centre:
            low = max(low, (other * centre) ** 0.5)
        elif other > centre:
            high = min(high, (other * centre) ** 0.5)
    return low, high


# -- predict

_PARAMS, _UD, _EPOCHS = (1.0, 1e15, "parameters"), (1e3, 1e16, "unique tokens"), (1e-6, 1e5, "epochs")


class _By(TypedDict, total=False):
    """What the prediction is made with; `predict` says it in words."""

    weight_decay: Any
    law: str | None
    calibration: CalibrationSource
    learning_rate: Any
    batch_tokens: Any
    members: Any


@overload
def predict(
    params: float | str, ud: float | str, epochs: float | str = 1.0, **by: Unpack[_By]
) -> Prediction: ...


@overload
def predict(params: Any, ud: Any = None, epochs: Any = 1.0, **by: Unpack[_By]) -> Predictions: ...


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
    own = RecipeTransfer.of(known, learning_rate, batch_tokens)
    if own is not None:
        weight_decay = own.calibrated(weight_decay)
    number_of = members_wanted(known.members, known.name, members, auto=False) or 1
    assert isinstance(number_of, int)
    if any(
        isinstance(value, Iterable) and not isinstance(value, str | dict) and getattr(value, "ndim", 1) > 0
        for value in (params, ud, epochs)
    ):
        return _predict_many(params, ud, epochs, weight_decay, known.form(law), known, number_of)
    size = within(count(params, "params"), "params", *_PARAMS)
    tokens = unique_tokens(ud)
    passes = within(_passes(epochs, "epochs"), "epochs", *_EPOCHS)
    check_prediction(known, size, tokens, passes)
    found = _predict_one(size, tokens, passes, weight_decay, known.form(law), known, number_of, own)
    return found if members is None else found.model_copy(update={"members": number_of})


def _predict_one(
    size: float,
    tokens: float,
    passes: float,
    weight_decay: Any,
    form: str,
    known: Calibration,
    members: int,
    own: RecipeTransfer | None,
) -> Prediction:
    if weight_decay is None and known.has_weight_decay_law(form):
        one, corpus, times = (np.array([value]) for value in (size, tokens, passes))
        weight_decay = float(best_for_runs(known, form, one, corpus, times, members)[0])
    place = (size, tokens, passes)
    losses = {
        setting.weight_decay: _averaged_loss(known, setting, form, *place, members)
        for setting in known.candidates(form, weight_decay)
    }
    setting = known.setting(min(losses, key=lambda decay: float(losses[decay])))
    flops = FLOPS_PER_PARAM_TOKEN * size * tokens * passes
    point = Point(size, tokens, passes, flops, float(losses[setting.weight_decay]))
    gain = float(known.averaging_gain(setting.law(form), members, *place, setting.weight_decay))
    error = loss_error(known, setting, form, point, members)
    warnings = prediction_warnings(known, setting, point)
    worse_than_uniform = any(one.code == "worse_than_uniform" for one in warnings)
    recipe = known.recipe
    return Prediction.model_construct(
        params=size,
        ud=tokens,
        epochs=passes,
        tokens=tokens * passes,
        flops=flops,
        weight_decay=setting.weight_decay,
        law=form,
        calibration=known.name,
        loss=point.loss,
        perplexity=perplexity(point.loss),
        terms=loss_terms(setting.law(form), point),
        predictive_uncertainty=None
        if worse_than_uniform
        else prediction_error(known, setting, form, point, error),
        intervals=loss_intervals(setting, form, point, known.uniform_loss, gain),
        interval_note=interval_note(known, setting, form),
        warnings=warnings,
        timescale_epochs=None
        if recipe is None
        else recipe.timescale_tokens(setting.weight_decay) / (tokens * min(passes, 1.0)),
        own_recipe=None if own is None else own.own(setting.weight_decay),
        law_weights=setting.law_weights if form == AVERAGE else None,
    )


def _averaged_loss(
    known: Calibration, setting: Setting, form: str, params: Any, ud: Any, epochs: Any, members: int
) -> Any:
    """The loss of so many such models, averaged."""
    law = setting.law(form)
    one = np.asarray(law.loss(params, ud, epochs))
    return one - known.averaging_gain(law, members, params, ud, epochs, setting.weight_decay)


def best_for_runs(
    known: Calibration, form: str, params: np.ndarray, ud: np.ndarray, epochs: np.ndarray, members: int = 1
) -> np.ndarray:
    """The weight decay with the lowest loss of each configuration, to two digits."""
    low, high = _searched_weight_decays(known)
    decays = np.geomspace(low, high, 8 * _STEPS)
    law, at = known.law_at(form, decays), (params[:, None], ud[:, None], epochs[:, None])
    losses = law.loss(*at) - known.averaging_gain(law, members, *at, decays)
    return np.array([_two_digits(value, low, high) for value in decays[np.argmin(losses, axis=1)]])


def _passes(value: Any, field: str) -> float:
    return number(value, field, examples="4 or 0.5")


def _columns(table: Any, ud: Any, epochs: Any) -> tuple[Any, Any, Any]:
    """Sizes, unique tokens and epochs of a table."""
    for name in ("params", "unique_tokens"):
        if name not in table.columns and not (name == "unique_tokens" and ud is not None):
            known = ", ".join(str(column) for column in table.columns)
            raise InvalidInput(f"must be a table with the column {name}; it has {known}.", field="params")
    unique = table["unique_tokens"].to_numpy() if ud is None else ud
    passes = table["epochs"].to_numpy() if "epochs" in table.columns else epochs
    return table["params"].to_numpy(), unique, passes


def _predict_many(
    params: Any, ud: Any, epochs: Any, weight_decay: Any, form: str, known: Calibration, members: int
) -> Predictions:
    asked = (
        (params, "params", count, _PARAMS),
        (ud, "ud", count, _UD),
        (epochs, "epochs", _passes, _EPOCHS),
    )
    columns = [many(values, field, parse) for values, field, parse, _ in asked]
    for values, (_, field, _, bounds) in zip(columns, asked, strict=True):
        within(float(values.min()), field, *bounds)
        within(float(values.max()), field, *bounds)
    try:
        sizes, tokens, passes = np.broadcast_arrays(*columns)
    except ValueError:
        lengths = ", ".join(str(len(values)) for values in columns)
        raise InvalidInput(
            f", ‹ud› and ‹epochs› must have one length or broadcast; got {lengths} values.", field="params"
        ) from None
    for row in np.flatnonzero(refused(known, sizes, tokens * np.minimum(passes, 1.0), passes)):
        check_prediction(known, *(float(values[row]) for values in (sizes, tokens, passes)))
    if weight_decay is None and known.has_weight_decay_law(form):
        decays = best_for_runs(known, form, sizes, tokens, passes, members)
        law = known.law_at(form, decays)
        losses = np.asarray(law.loss(sizes, tokens, passes))
        losses = losses - known.averaging_gain(law, members, sizes, tokens, passes, decays)
        return Predictions(sizes, tokens, passes, decays, losses, form, known.name)
    settings = known.candidates(form, weight_decay)
    losses = np.stack([_averaged_loss(known, s, form, sizes, tokens, passes, members) for s in settings])
    decays = np.array([setting.weight_decay for setting in settings])[np.argmin(losses, axis=0)]
    return Predictions(sizes, tokens, passes, decays, losses.min(axis=0), form, known.name)
