"""`plan`: the best model size, epochs and weight decay for one budget; why; and how sure that is.

A plan is made in steps: the question is checked, each weight decay is given its best allocation, one of them
is chosen, and everything worth knowing about the choice is found out and said in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np

from planner import units
from planner.advice import Limit, Turn, exchange_rate, flat_ranges
from planner.allocation import Allocation, allocate, no_choice
from planner.beliefs import decay_probabilities, disagreement, fit_warnings
from planner.budgets import budget, unique_tokens
from planner.buildable import buildable, too_large
from planner.calibration_files import DEFAULT_TOLERANCE, Calibration, CalibrationSource, Setting
from planner.comparisons import alternative
from planner.costs import Accelerator, cost, given, named_or_own, training_compute
from planner.crossovers import crossover_between
from planner.dialling import Contest, Translation, advice, contest, dial_warnings
from planner.directions import Place, towards, where_it_ends
from planner.evidence import check_plan, check_question, suggest_remedies
from planner.intervals import normal_share
from planner.landscape import outside_search
from planner.laws import AVERAGE, Law
from planner.limits import LimitOptions, Limits, spelled_out
from planner.members import ELSEWHERE
from planner.minima import limit_of_any, turn_along
from planner.predictions import loss_terms
from planner.questions import Basics
from planner.reasons import Bound, corpus_note, reasons, single_setting_note, target_reason, verdict
from planner.records import made
from planner.remarks import Remark
from planner.results import (
    Alternative,
    CheaperPlan,
    Crossover,
    DialAdvice,
    Findings,
    FlatRange,
    Interval,
    MarginalValue,
    Plan,
    SpendingLimit,
    Sureness,
    TurningPoint,
    Worth,
)
from planner.shapes import Architecture, vocabulary
from planner.spending import Asked, cheapest_within, spend_each
from planner.spent import Spent
from planner.targets import compute_for
from planner.trials import measured_case
from planner.uncertainty import (
    interval_note,
    intervals_elsewhere,
    loss_error,
    loss_intervals,
    loss_range,
    plan_intervals,
)


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

    Without `weight_decay` the best of those calibrated is chosen, or of all where the law is a dial. With a
    `learning_rate` or `batch_tokens` of your own it is in your recipe, the plan's too: that of equal memory.
    `tolerance` (nats) is that of the flat range. With a `gpu` (or one of your own: `tflops`, `memory` in GB,
    `price`) the plan has a cost, and `hours` on `gpus` of them or `budget_usd` may stand for `flops`; so may
    `target_loss`, for the least compute that reaches it. Limits: `params` (the size is settled),
    `min_params`, `max_params`, `max_epochs`; `epochs` is "whole" (a fraction below one) or "continuous".

    `members` (a number, or "auto") allows for an ensemble, `serve_tokens` counts what is going to be served
    (at `serve_price` per GPU-hour and `serve_mfu`, where they differ from training), `data_price` (USD per
    token) lets data be bought: the ceiling is then one of the total, of which `target_loss` asks the least.
    """
    card = named_or_own(gpu, tflops=tflops, memory=memory, price=price)
    used = given(gpus=gpus, mfu=mfu, price=price)
    amount = given(flops=flops, hours=hours, budget_usd=budget_usd)
    within = budget(ud, training_compute(gpu=card, **amount, **used)) if target_loss is None else None
    known = Calibration.load(calibration)
    form, limits = known.form(law), Limits.of(**options)
    check_question(known, unique_tokens(ud), limits, target_loss, buys=data_price is not None)
    nats = units.number(tolerance, "tolerance", examples="0.01")
    vocab = None if vocab_size is None else vocabulary(vocab_size)
    own = Translation.of(known, learning_rate, batch_tokens)
    decay = weight_decay if own is None else own.calibrated(weight_decay)
    asked = Basics(known, form, ud, within, target_loss, amount, limits, nats, decay, own)
    served = given(serve_tokens=serve_tokens, serve_price=serve_price, serve_mfu=serve_mfu)
    total = given(members=members, data_price=data_price, **served)
    if not total:
        return _plan(asked, card, used, vocab)
    from planner.totals import total_plan  # loaded where more than one training counts

    wider = total_plan(asked, total, card, used, vocab)
    return wider if isinstance(wider, Plan) else wider.added_to(_plan(asked, card, used, vocab))


def _plan(basics: Basics, card: Accelerator | None, used: Mapping[str, Any], vocab_size: int | None) -> Plan:
    """The plan where training one model is all that counts."""
    known, form, ud, within, target_loss, amount, limits, nats, decay, own = basics
    if within is None:
        known, least = _for_loss(known, form, decay, ud, target_loss, limits, amount)
        within = budget(ud, training_compute(least, gpu=card, **used))
    else:
        known = towards(known, form, *within)
    asked = _Question(known, form, *within, limits, nats)
    found, words, warnings, limited = _answer(asked, decay, own, vocab_size)
    if target_loss is not None:
        words.insert(0, target_reason(found, units.number(target_loss, "target_loss")))
    bill = None if card is None else cost(found.spent_flops, card, architecture=found.architecture, **used)
    return made(
        Plan,
        **vars(found),
        verdict=verdict(found, asked.known.setting(found.weight_decay), limited=limited),
        reasons=words,
        warnings=warnings + too_large(bill),
        cost=bill,
        recipe=known.recipe,
    )


def _for_loss(
    known: Calibration, form: str, decay: Any, ud: Any, loss: Any, limits: Limits, amount: Mapping[str, Any]
) -> tuple[Calibration, float]:
    """The least compute that reaches a loss, by the laws that answer for that compute."""
    least = compute_for(loss, ud, known.candidates(form, decay), form, limits, amount)
    turned = towards(known, form, *budget(ud, least))
    if turned is known:
        return known, least
    return turned, compute_for(loss, ud, turned.candidates(form, decay), form, limits, amount)


class _Question(NamedTuple):
    """What was asked, checked."""

    known: Calibration
    form: str
    ud: float
    flops: float
    limits: Limits
    tolerance: float

    def of(self, setting: Setting, *, data: float = 1.0, compute: float = 1.0) -> Asked:
        """The question for one weight decay, at a multiple of the data or the compute."""
        error = setting.error(self.form, self.tolerance)
        return Asked(setting.law(self.form), error, data * self.ud, compute * self.flops)


def _answer(
    asked: _Question, weight_decay: float | None, own: Translation | None, vocab_size: int | None
) -> tuple[Findings, list[Remark], list[Remark], bool]:
    """The choice with all that is known of it, in numbers and in words, what to be careful about, and whether
    the limits have made it another one.
    """
    known, limits = asked.known, asked.limits
    among = contest(known, asked.form, asked.ud, asked.flops, limits, weight_decay)
    around = _look_around(asked, among)
    best, choice = around.best, _choose(asked, among.candidates, around.best)
    check_plan(known, asked.ud, choice.params, choice.epochs)
    architecture, warnings = buildable(
        known,
        choice.setting,
        vocab_size,
        params=choice.params,
        unique_tokens=choice.unique_tokens,
        epochs=choice.epochs,
        loss=choice.loss,
    )
    dial = _dial(asked, choice, among, best, own)
    limit = _limit(asked, among.along_compute)
    found = _findings(asked, choice, around, limit, architecture).model_copy(update={"dial": dial})
    committed = weight_decay is not None
    rival = _rival_best(asked, found) if committed else None
    tried = measured_case(known, asked.form, found.weight_decay, found.ud) if found.spending_limit else []
    bound = _bound(asked, weight_decay, found)
    words = reasons(found, committed=committed, bound=bound, rival_best=rival, tried=tried)
    place = 1 if words[0].code == "unused_compute" else 0
    words[place:place] = _rest(asked, found, weight_decay)
    words += disagreement(found) + _ends(asked, choice) + corpus_note(known)
    warnings += dial_warnings(known, choice.setting, dial)
    warnings += fit_warnings(choice.setting, found, committed=committed)
    return found, words, warnings, bound.plan


def _bound(asked: _Question, weight_decay: float | None, found: Findings) -> Bound:
    """What the limits change: which figures would be others without them."""
    if not asked.limits.bounded:
        return Bound()
    free = asked._replace(limits=asked.limits.unbounded())
    among = contest(free.known, free.form, free.ud, free.flops, free.limits, weight_decay)
    around = _look_around(free, among)
    choice = _choose(free, among.candidates, around.best)
    own, other = ((one.params, one.epochs, one.weight_decay) for one in (found, choice))
    limit, value = _spending_limit(_limit(free, among.along_compute)), found.marginal_value
    turned = not _alike(_turning_point(_turn(free, choice)), found.turning_point)
    if not np.allclose(own, other, rtol=1e-6, atol=0.0):
        limited = not _alike(limit, found.spending_limit)
        return Bound(plan=True, limit=limited, doubled=True, flat=True, turn=turned)
    doubled = _changes(free, choice, around.doubled)
    changes = (value.loss_if_twice_the_data, value.loss_if_twice_the_compute)
    flat = _as_good(free, choice, (free.tolerance, choice.error))[0]
    return Bound(
        limit=not _alike(limit, found.spending_limit),
        turn=turned,
        doubled=any(not _close(one.loss, other) for one, other in zip(doubled, changes, strict=True)),
        flat=not _alike(flat, found.flat_range),
    )


def _alike(one: Any, other: Any) -> bool:
    """Whether two records have the same figures, as far as anybody would notice."""
    if one is None or other is None:
        return one is other
    return all(_close(value, vars(other)[name]) for name, value in vars(one).items())


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)


def _rest(asked: _Question, found: Findings, weight_decay: float | None) -> list[Remark]:
    """What the compute would buy as an ensemble: where that is known, or where one model cannot use it."""
    if asked.known.members is not None:
        from planner.totals import spare_ensemble  # loaded where it is known

        return spare_ensemble(*asked[:5], weight_decay, found.loss)
    if 2 * found.spent_flops > asked.flops:
        return []
    unknown = "The other known use of the rest is an ensemble, not measured for this calibration"
    return [Remark("ensemble_elsewhere", f"{unknown}: {ELSEWHERE}.")]


class _Around(NamedTuple):
    """What else is found for a weight decay: the lowest loss within the compute, and the plans of other
    laws.
    """

    least: float
    other_laws: Mapping[str, Spent]


class _Doubled(NamedTuple):
    """The loss with twice the data or compute, the weight decay that has it, and the compute it takes."""

    loss: float  # infinite where the limits leave no plan
    weight_decay: float
    flops: float


class _Found(NamedTuple):
    """The best plan of each weight decay, what is around those that may be chosen, and the best of any weight
    decay with twice the data and with twice the compute.
    """

    best: dict[float, Spent]
    around: dict[float, _Around]
    doubled: tuple[_Doubled, _Doubled]


def _look_around(asked: _Question, among: Contest) -> _Found:
    """All of it at once, which takes hardly longer than one of them."""
    everyone = (*among.candidates, *among.others)
    questions = [asked.of(setting) for setting in everyone]
    questions += [asked.of(setting, data=2.0) for setting in among.with_data]
    questions += [asked.of(setting, compute=2.0) for setting in among.with_compute]
    for setting in among.candidates:
        others = [form for form in setting.laws if form != asked.form]
        questions += [Asked(setting.law(f), setting.error(f), asked.ud, asked.flops) for f in others]
    answers = iter(spend_each(questions, asked.limits))
    best = {setting.weight_decay: next(answers) for setting in everyone}
    data, compute = (
        min(_doubled(next(answers).plan, setting) for setting in some)
        for some in (among.with_data, among.with_compute)
    )
    around = {}
    for setting in among.candidates:
        other_laws = {form: next(answers).plan for form in setting.laws if form != asked.form}
        around[setting.weight_decay] = _Around(best[setting.weight_decay].least, other_laws)
    return _Found({decay: found.plan for decay, found in best.items()}, around, (data, compute))


def _doubled(found: Spent, setting: Setting) -> _Doubled:
    return _Doubled(_loss_or_inf(found), setting.weight_decay, float(found.flops))


def _ends(asked: _Question, choice: _Choice) -> list[Remark]:
    """Where the law ends, if the plan is beyond it."""
    if asked.form != AVERAGE:
        return []
    return where_it_ends(choice.setting, Place(choice.params, choice.unique_tokens, max(choice.epochs, 1.0)))


class _Choice(NamedTuple):
    """What is recommended."""

    setting: Setting
    law: Law
    flops: float  # that are spent
    params: float
    epochs: float
    tokens: float
    loss: float
    unique_tokens: float  # that are used
    error: float  # of the predicted loss

    @property
    def weight_decay(self) -> float:
        return self.setting.weight_decay


def _choose(asked: _Question, candidates: tuple[Setting, ...], best: Mapping[float, Spent]) -> _Choice:
    """The weight decay with the lowest loss."""
    setting = min(candidates, key=lambda one: _loss_or_inf(best[one.weight_decay]))
    found = best[setting.weight_decay]
    if not np.isfinite(found.loss):
        raise no_choice(asked.ud, asked.flops, asked.limits)
    flops, params, epochs, tokens, loss = (float(value) for value in found)
    place = (params, asked.ud, epochs)
    error = loss_error(asked.known, setting, asked.form, place, tolerance=asked.tolerance)
    unique = asked.ud * min(epochs, 1.0)
    return _Choice(setting, setting.law(asked.form), flops, params, epochs, tokens, loss, unique, error)


def _dial(
    asked: _Question,
    choice: _Choice,
    among: Contest,
    best: Mapping[float, Spent],
    own: Translation | None,
) -> DialAdvice | None:
    """What there is to say of the weight decay, with what a dial's gains over those it is held against."""
    rivals = {} if among.best is None else {s.weight_decay: best[s.weight_decay] for s in among.others}
    worth = [
        Worth(weight_decay=decay, loss=float(spent.loss), gain=float(spent.loss) - choice.loss)
        for decay, spent in rivals.items()
        if np.isfinite(spent.loss)
    ]
    return advice(asked.known, choice.setting, choice.unique_tokens, among, worth, own)


def _loss_or_inf(found: Spent) -> float:
    return float(found.loss) if np.isfinite(found.loss) else math.inf


def _findings(
    asked: _Question,
    choice: _Choice,
    found: _Found,
    limit: tuple[float, Limit] | None,
    architecture: Architecture | None,
) -> Findings:
    """Everything there is to know about the choice, in numbers."""
    known, form, ud, flops, limits, tolerance = asked
    exact = allocate(choice.law, ud, choice.flops, limits.continuous())
    turn = _turn(asked, choice)
    others = _other_laws(asked, choice, found.around[choice.weight_decay])
    rivals = _rivals(asked, choice, found.best)
    value = _marginal_value(asked, choice, exact, found.doubled)
    flat, as_good = _as_good(asked, choice, (tolerance, choice.error))
    swap = _crossover(asked, choice, rivals)
    return made(
        Findings,
        ud=ud,
        flops=flops,
        spend=limits.spend,
        spent_flops=choice.flops,
        unused_flops=max(flops - choice.flops, 0.0),
        law=form,
        calibration=known.name,
        weight_decay=choice.weight_decay,
        params=choice.params,
        epochs=choice.epochs,
        repeats=max(choice.epochs - 1, 0.0),
        tokens=choice.tokens,
        unique_tokens=choice.unique_tokens,
        loss=choice.loss,
        perplexity=units.perplexity(choice.loss),
        guessing_loss=known.guessing_loss,
        cheapest_as_good=_cheapest_as_good(asked, choice),
        terms=loss_terms(choice.law, choice.params, ud, choice.epochs),
        crossover_flops=swap.crossover_flops if swap is not None else None,
        crossover_note=swap.note if swap is not None else single_setting_note(known, form),
        architecture=architecture,
        continuous_epochs=float(exact.epochs),
        continuous_loss=float(exact.loss),
        flat_range=flat,
        turning_point=_turning_point(turn),
        spending_limit=_spending_limit(limit),
        overspent=_is_overspent(choice, limit),
        marginal_value=value,
        other_laws=others,
        other_weight_decays=rivals,
        sureness=_sureness(asked, choice, rivals, as_good),
        intervals=_intervals(asked, choice, others, swap, limit, value),
        interval_note=interval_note(known, choice.setting, form),
        law_weights=choice.setting.law_weights if form == AVERAGE else None,
        weight_decay_probabilities=decay_probabilities(known, form, ud, found.best),
    )


# -- the advice
# ------------------------------------------------------------------------------------------------


def _turn(asked: _Question, choice: _Choice) -> Turn | None:
    """The turning point of the choice."""
    seen = outside_search(choice.law, asked.ud, asked.flops)
    return turn_along(choice.law, asked.ud, asked.limits, seen)


def _limit(asked: _Question, settings: Sequence[Setting]) -> tuple[float, Limit] | None:
    """The spending limit where any of these may be chosen, with its weight decay; the budget at hand is
    inside of what is searched.
    """
    laws = [setting.law(asked.form) for setting in settings]
    seen = [outside_search(law, asked.ud, asked.flops) for law in laws]
    found = limit_of_any(laws, asked.ud, asked.limits, seen)
    return None if found is None else (settings[found[0]].weight_decay, found[1])


def _cheapest_as_good(asked: _Question, choice: _Choice) -> CheaperPlan | None:
    """The least compute whose plan cannot be told from the choice: its loss is within the law's error."""
    found = cheapest_within(choice.law, asked.ud, choice.flops, choice.loss + choice.error, asked.limits)
    return None if found is None else made(CheaperPlan, **found._asdict())


def _turning_point(turn: Turn | None) -> TurningPoint | None:
    return (
        None if turn is None else made(TurningPoint, flops=turn.flops, epochs=turn.epochs, params=turn.params)
    )


def _spending_limit(limit: tuple[float, Limit] | None) -> SpendingLimit | None:
    if limit is None:
        return None
    decay, (best, regained) = limit
    return made(SpendingLimit, **best._asdict(), regained_flops=regained, weight_decay=decay)


def _is_overspent(choice: _Choice, limit: tuple[float, Limit] | None) -> bool:
    """Whether the spending limit has a lower loss, at less compute."""
    if limit is None:
        return False
    best = limit[1].best
    return choice.flops > best.flops * 1.005 and choice.loss > best.loss + 1e-9


class _Change(NamedTuple):
    """By how much twice the data or compute changes the loss (None: the limits leave no plan), and the weight
    decay that it takes.
    """

    loss: float | None
    weight_decay: float | None


def _changes(asked: _Question, choice: _Choice, doubled: Sequence[_Doubled]) -> list[_Change]:
    data, compute = doubled
    # Nobody has to use it; and what is reached with less than now is no gain from more.
    worth_it = (data.loss < choice.loss, compute.loss < choice.loss and compute.flops > choice.flops)
    found = []
    for (loss, decay, _), worth in zip(doubled, worth_it, strict=True):
        if not math.isfinite(loss):
            found.append(_Change(None, None))
        elif asked.limits.ceiling and not worth:
            found.append(_Change(0.0, choice.weight_decay))
        else:
            found.append(_Change(loss - choice.loss, decay))
    return found


def _marginal_value(
    asked: _Question, choice: _Choice, exact: Allocation, doubled: Sequence[_Doubled]
) -> MarginalValue:
    """What more data or compute would buy."""
    held = bool(asked.limits.hold_size(exact.params))
    rate = exchange_rate(choice.law, asked.ud, exact.params, exact.epochs, size_held=held)
    data, compute = _changes(asked, choice, doubled)
    return made(
        MarginalValue,
        **rate._asdict(),
        loss_if_twice_the_data=data.loss,
        loss_if_twice_the_compute=compute.loss,
        weight_decay_if_twice_the_data=data.weight_decay,
        weight_decay_if_twice_the_compute=compute.weight_decay,
    )


# -- other weight decays
# ---------------------------------------------------------------------------------------


def _other_laws(asked: _Question, choice: _Choice, around: _Around) -> list[Alternative]:
    """What other laws recommend, in the eyes of the law that was chosen."""
    found, least = [], min(choice.loss, around.least)
    for form, spent in around.other_laws.items():
        expected = float(choice.law.loss(spent.params, asked.ud, spent.epochs))
        found.append(alternative(form, choice.weight_decay, spent, expected, least))
    return found


def _rivals(asked: _Question, choice: _Choice, best: Mapping[float, Spent]) -> list[Alternative]:
    """What the other weight decays would do, the best of them first."""
    return [
        alternative(asked.form, decay, found, float(found.loss), choice.loss)
        for decay, found in sorted(best.items(), key=lambda item: _loss_or_inf(item[1]))
        if decay != choice.weight_decay and np.isfinite(found.loss)
    ]


def _crossover(asked: _Question, choice: _Choice, rivals: list[Alternative]) -> Crossover | None:
    """Where the best rival and the choice swap places."""
    if not rivals:
        return None
    known, form, ud, flops, limits, _ = asked
    outlier = outside_search(choice.law, ud, flops)
    return crossover_between(known, form, ud, choice.weight_decay, rivals[0].weight_decay, limits, outlier)


def _rival_best(asked: _Question, found: Findings) -> Turn | None:
    """The lowest loss that the best rival reaches with at most this compute, where the choice overspends."""
    if not (found.overspent and found.other_weight_decays):
        return None
    setting = asked.known.setting(found.other_weight_decays[0].weight_decay)
    limit = _limit(asked, [setting])
    if limit is not None and limit[1].best.flops < asked.flops:
        return limit[1].best
    law = setting.law(asked.form)
    here = allocate(law, asked.ud, asked.flops, asked.limits.continuous())
    if not np.isfinite(here.loss):
        return None
    return Turn(asked.flops, float(here.params), float(here.epochs), float(here.loss))


# -- how sure, how buildable
# -----------------------------------------------------------------------------------


def _as_good(asked: _Question, choice: _Choice, tolerances: tuple[float, float]) -> list[FlatRange]:
    """Sizes and epochs at the same compute whose loss is within each tolerance of the choice's."""
    plan = (choice.flops, choice.epochs, choice.loss)
    found = flat_ranges(choice.law, asked.ud, *plan, tolerances, asked.limits)
    return [
        made(
            FlatRange,
            tolerance=tolerance,
            epochs_min=flat.epochs[0],
            epochs_max=flat.epochs[1],
            params_min=flat.params[0],
            params_max=flat.params[1],
        )
        for tolerance, flat in zip(tolerances, found, strict=True)
    ]


def _sureness(
    asked: _Question, choice: _Choice, rivals: list[Alternative], as_good: FlatRange
) -> Sureness | None:
    """What the law's error on runs that it had not seen means for this plan; None where it was never
    measured.
    """
    place = (choice.params, asked.ud, choice.epochs)
    lost = loss_range(asked.known, choice.setting, asked.form, place, choice.loss, choice.error)
    if lost is None:
        return None
    probability = None
    if rivals:
        rival = asked.known.setting(rivals[0].weight_decay)
        error = rival.error(asked.form, asked.tolerance)
        doubt = math.hypot(choice.error, float(error(rivals[0].params, asked.ud, rivals[0].epochs)))
        probability = normal_share((rivals[0].predicted_loss - choice.loss) / doubt)
    return made(Sureness, **vars(lost), as_good=as_good, weight_decay_probability=probability)


def _intervals(
    asked: _Question,
    choice: _Choice,
    others: list[Alternative],
    swap: Crossover | None,
    limit: tuple[float, Limit] | None,
    value: MarginalValue,
) -> dict[str, Interval] | None:
    """An interval of each figure, where the calibration has refits."""
    known, form, ud, _, limits, tolerance = asked
    flops = choice.flops
    members = choice.setting.ensemble_law(form)
    if members is None:
        return None
    found = plan_intervals(members, ud, flops, tolerance, others, limits)
    elsewhere = (
        ("spending_limit", None if limit is None else limit[0]),
        ("loss_if_twice_the_data", value.weight_decay_if_twice_the_data),
        ("loss_if_twice_the_compute", value.weight_decay_if_twice_the_compute),
    )
    for figure, decay in elsewhere:  # that another weight decay has
        if decay not in (None, choice.weight_decay):
            other = known.setting(decay).ensemble_law(form)
            found = {name: bounds for name, bounds in found.items() if not name.startswith(figure)}
            found |= intervals_elsewhere(figure, members, other, ud, flops, limits)
    found |= loss_intervals(choice.setting, form, choice.params, ud, choice.epochs, known.guessing_loss) or {}
    if swap is not None and swap.interval is not None:
        found["crossover_flops"] = swap.interval
    return found
