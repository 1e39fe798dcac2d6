"""`plan` where more than one training run counts: ensembles, serving, and data that can be bought.

The search (`planner.ensembles`) finds what to train; here it becomes a `Plan`, with what else would do, how
sure it is, and what the same total would reach without an ensemble, serving or a purchase.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from planner import units
from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.beliefs import fit_warnings
from planner.budgets import unique_tokens
from planner.buildable import buildable, too_large
from planner.calibration_files import Calibration, Setting
from planner.costs import Accelerator, cost
from planner.dialling import FAMILIAR, Contest, Translation, advice, dial_warnings, has_dial
from planner.directions import towards
from planner.ensembles import (
    Found,
    Losses,
    Point,
    Task,
    best,
    best_below,
    best_of,
    one_and_several,
    solved,
    tasks_for,
)
from planner.errors import InvalidInput
from planner.evidence import check_plan
from planner.intervals import normal_share
from planner.laws import AVERAGE
from planner.limits import Limits
from planner.members import AUTO, Members, members_wanted
from planner.predictions import loss_terms
from planner.questions import Basics
from planner.records import made
from planner.remarks import Remark
from planner.results import (
    Alternative,
    Candidate,
    CheaperPlan,
    Distillation,
    EnsemblePlan,
    Findings,
    FlatRange,
    Interval,
    MarginalValue,
    Plan,
    PurchasePlan,
    ServingPlan,
    Sureness,
    Worth,
)
from planner.serving import SERVING_FLOPS, Bill, bill
from planner.total_words import (
    cannot_be_paid,
    cannot_be_reached,
    ensemble_reasons,
    member_warnings,
    serving_leaves_little,
    spare,
    total_reasons,
    total_verdict,
)
from planner.uncertainty import interval_note, loss_error, loss_intervals, loss_range

_BYTES = 2.0  # of a parameter in bf16
_BEYOND = 2  # times the members that were trained: as far as the law of members was tried
_STRIDE, _STRIDES = math.log(4.0), 12  # in search of the total from which ensembles win
_CLOSE = 0.02  # of ln(total), where that search ends
_STEP = 1e-4  # of ln(tokens) and ln(total), over which marginal values are taken


class Wanted(NamedTuple):
    """What was asked, checked."""

    known: Calibration
    form: str
    ceiling: float | None  # None: the least total that reaches the target
    target: float | None
    limits: Limits
    tolerance: float
    weight_decay: float | None
    own: Translation | None
    bill: Bill
    members: int | str | None = None
    data_price: float | None = None


class Alone(NamedTuple):
    """That one model is better than several: the ordinary plan holds."""

    members: EnsemblePlan
    words: list[Remark]

    def added_to(self, p: Plan) -> Plan:
        return p.model_copy(update={"members": self.members, "reasons": [*self.words, *p.reasons]})


def _wanted(
    asked: Basics, total: Mapping[str, Any], card: Accelerator | None, used: Mapping[str, Any]
) -> Wanted:
    """The question, checked: the ceiling is that of the total, or a loss is to be reached at the least."""
    known, target = asked.known, None
    members = members_wanted(known.members, known.name, total.get("members"), auto=True)
    if asked.target_loss is not None:
        target = units.number(asked.target_loss, "target_loss", examples="3.0")
        given = [*asked.amount, *([] if asked.limits.ceiling else ["spend"])]
        if given:
            names = " and ".join(f"‹{name}›" for name in given)
            raise InvalidInput(f"asks for the least total: leave out {names}.", field="target_loss")
    tokens, ceiling = (unique_tokens(asked.ud), None) if asked.within is None else asked.within
    if ceiling is not None:
        known = towards(known, asked.form, tokens, ceiling)
    prices = {name: value for name, value in total.items() if name != "members"}
    rates = {name: used[name] for name in ("mfu", "price") if name in used}
    costs = bill(tokens, card=card, **prices, **rates)
    price = total.get("data_price")
    paid = None if price is None else units.number(price, "data_price", examples="2e-6")
    return Wanted(
        known, asked.form, ceiling, target, *asked[6:], bill=costs, members=members, data_price=paid
    )


def total_plan(
    basics: Basics,
    total: Mapping[str, Any],
    card: Accelerator | None,
    used: Mapping[str, Any],
    vocab_size: int | None,
) -> Plan | Alone:
    """The plan, or that one model is better than several and nothing else counts."""
    asked = _wanted(basics, total, card, used)
    search = _Search(asked)
    found = search.found
    little = serving_leaves_little(asked.known, asked.form, asked.bill, found, search.ceiling)
    check_plan(asked.known, found.unique_tokens, found.params, found.epochs)
    ensemble = _ensemble(search) if asked.members is not None and asked.known.members is not None else None
    if found.members == 1 and ensemble is not None and not (asked.bill.serve_tokens or asked.bill.buys):
        return Alone(ensemble, ensemble_reasons(ensemble, asked.bill))
    setting = asked.known.setting(found.weight_decay)
    architecture, warnings = buildable(
        asked.known,
        setting,
        vocab_size,
        params=found.params,
        unique_tokens=search.used_tokens,
        epochs=found.epochs,
        loss=found.loss,
    )
    dial = search.dial(setting)
    numbers = _findings(search, setting, architecture).model_copy(
        update={
            "dial": dial,
            "members": ensemble,
            "serving": _serving(search) if asked.bill.serve_tokens else None,
            "purchase": _purchase(search) if asked.bill.buys else None,
        }
    )
    warnings += [*little, *dial_warnings(asked.known, setting, dial)]
    warnings += member_warnings(asked.known, found, search.used_tokens) + fit_warnings(setting)
    bill = None if card is None else cost(numbers.spent_flops, card, architecture=architecture, **used)
    return made(
        Plan,
        **vars(numbers),
        verdict=total_verdict(numbers, setting),
        reasons=total_reasons(
            numbers, asked.target, asked.known, asked.bill, committed=asked.weight_decay is not None
        ),
        warnings=warnings + too_large(bill),
        cost=bill,
        recipe=asked.known.recipe,
    )


def spare_ensemble(
    known: Calibration,
    form: str,
    ud: float,
    flops: float,
    limits: Limits,
    weight_decay: float | None,
    loss: float,
) -> list[Remark]:
    """What compute that one model cannot use would buy as an ensemble; `loss` is that of the one model."""
    assert known.members is not None
    counts = range(2, _BEYOND * known.members.most_members + 1)
    tasks = [
        replace(task, ceiling=flops)
        for task in tasks_for(known, form, weight_decay, Bill(ud), limits, counts)
    ]
    found = best_below(tasks, loss - known.members.error)
    if found is not None:
        found = found._replace(weight_decay=float(f"{found.weight_decay:.2g}"))
    return spare(known.members, found, loss)


def along_budgets(
    known: Calibration,
    form: str,
    tokens: np.ndarray,
    compute: np.ndarray,
    limits: Limits,
    weight_decay: Any,
    members: Any,
) -> list[tuple[float, ...]]:
    """Members, size, epochs, loss, weight decay and compute of the lowest loss within each budget; NaN where
    there is none.
    """
    counts = _counts(known, members_wanted(known.members, known.name, members, auto=True))
    rows: list[tuple[float, ...]] = []
    for ud, flops in zip(tokens.tolist(), compute.tolist(), strict=True):
        tasks = tasks_for(known, form, weight_decay, Bill(ud), limits, counts)
        found = best_of([replace(task, ceiling=flops) for task in tasks])
        rows.append(
            (math.nan,) * 6
            if found is None
            else (found.members, found.params, found.epochs, found.loss, found.weight_decay, found.total)
        )
    return rows


def _counts(known: Calibration, members: int | str | None) -> tuple[int, ...]:
    """The numbers of members that may be chosen from."""
    if members == AUTO and known.members is not None:
        return tuple(range(1, _BEYOND * known.members.most_members + 1))
    return (members,) if isinstance(members, int) else (1,)


class _Search:
    """The answer to a question, and the same search with something changed."""

    def __init__(self, asked: Wanted) -> None:
        self.asked = asked
        found = self.best()
        if found is None:
            raise self._impossible()
        self.found: Found = found
        self.used_tokens = found.unique_tokens * min(found.epochs, 1.0)
        # From here on the total is what there is, whether it was given or found.
        self.ceiling = found.total if asked.ceiling is None else asked.ceiling

    def counts(self) -> tuple[int, ...]:
        return _counts(self.asked.known, self.asked.members)

    def tasks(
        self,
        counts: Sequence[int] | None = None,
        decay: float | None = None,
        bill: Bill | None = None,
        *,
        any_decay: bool = False,
    ) -> list[Task]:
        """The searches of the question, perhaps for other members, at one or any weight decay, or another
        bill.
        """
        asked = self.asked
        fixed = None if any_decay else asked.weight_decay if decay is None else decay
        bought = asked.bill if bill is None else bill
        tasks = tasks_for(asked.known, asked.form, fixed, bought, asked.limits, counts or self.counts())
        ceiling = math.inf if asked.ceiling is None else asked.ceiling
        return [replace(task, ceiling=ceiling, target=asked.target) for task in tasks]

    def best(self, **changes: Any) -> Found | None:
        return best_of(self.tasks(**changes))

    def within(self, ceiling: float, **changes: Any) -> Found | None:
        """The lowest loss within a total."""
        return best_of([replace(task, ceiling=ceiling, target=None) for task in self.tasks(**changes)])

    def here(self, form: str | None = None) -> Task:
        """The lowest loss at the weight decay and with the members of the answer, within its total."""
        setting = self.asked.known.setting(self.found.weight_decay)
        losses = Losses(self.asked.known, form or self.asked.form, setting)
        counts = (self.found.members,)
        return Task(losses, self.asked.bill, self.asked.limits, counts, ceiling=self.ceiling)

    def loss_of(self, found: Found, tokens: float | None = None) -> float:
        """What the plan's own law expects of a configuration."""
        point = _point(found, tokens)
        return float(self.here().losses.along(point)(np.log([[found.params]]))[0, 0])

    def dial(self, setting: Setting) -> Any:
        """What there is to say of the weight decay."""
        known, form = self.asked.known, self.asked.form
        free = has_dial(known, form) and self.asked.weight_decay is None
        rivals = [
            Worth(weight_decay=found.weight_decay, loss=found.loss, gain=found.loss - self.found.loss)
            for found in (self.rivals if free else [])
        ]
        among = Contest((), (), self.found.weight_decay if free else None)
        return advice(known, setting, self.used_tokens, among, rivals, self.asked.own)

    @cached_property
    def rivals(self) -> list[Found]:
        """The best at each other weight decay that people would think of, the best first."""
        known, form = self.asked.known, self.asked.form
        if has_dial(known, form):
            assert known.dial is not None
            low, high = known.dial.weight_decays
            usual = {d for d in (FAMILIAR, known.dial.default_weight_decay) if low <= d <= high}
        else:
            usual = {setting.weight_decay for setting in known.settings if setting.has(form)}
        others = [self.within(self.ceiling, decay=d) for d in usual if d != self.found.weight_decay]
        if has_dial(known, form) and self.asked.weight_decay is not None:
            others.append(self.within(self.ceiling, any_decay=True))
        return sorted((one for one in others if one is not None), key=lambda one: one.loss)

    def _impossible(self) -> InvalidInput:
        asked = self.asked
        if asked.target is None:
            return cannot_be_paid(asked.bill, asked.ceiling or 0.0, asked.limits)
        return cannot_be_reached(asked.target, asked.bill.owned, self.within(math.inf), asked.limits)


def _point(found: Found, tokens: float | None = None) -> Point:
    """A configuration without its size."""
    ln_decay, ln_tokens = math.log(max(found.weight_decay, 1e-30)), math.log(tokens or found.unique_tokens)
    return Point(*(np.array([v]) for v in (float(found.members), found.epochs, ln_decay, ln_tokens)))


def candidate(found: Found | None) -> Candidate | None:
    if found is None:
        return None
    return made(
        Candidate,
        members=found.members,
        params=found.params,
        epochs=found.epochs,
        weight_decay=found.weight_decay,
        loss=found.loss,
        total_flops=found.total,
    )


# -- all numbers of a plan


def _findings(search: _Search, setting: Setting, architecture: Any) -> Findings:
    """Everything there is to know about the answer, in numbers."""
    asked, found = search.asked, search.found
    exact = best(replace(search.here(), limits=asked.limits.continuous())) or found
    training = float(asked.bill.training(found.members, found.params, found.unique_tokens, found.epochs))
    place = (found.params, found.unique_tokens, found.epochs)
    error = loss_error(asked.known, setting, asked.form, place, found.members, asked.tolerance)
    rivals = [_alternative(asked.form, one, one.loss, found.loss) for one in search.rivals]
    law = setting.law(asked.form)
    return made(
        Findings,
        ud=found.unique_tokens,
        flops=search.ceiling,
        spend=asked.limits.spend,
        spent_flops=training,
        unused_flops=max(search.ceiling - found.total, 0.0),
        law=asked.form,
        calibration=asked.known.name,
        weight_decay=found.weight_decay,
        params=found.params,
        epochs=found.epochs,
        repeats=max(found.epochs - 1, 0.0),
        tokens=found.unique_tokens * found.epochs,
        unique_tokens=search.used_tokens,
        loss=found.loss,
        perplexity=units.perplexity(found.loss),
        guessing_loss=asked.known.guessing_loss,
        terms=loss_terms(law, found.params, found.unique_tokens, found.epochs),
        cheapest_as_good=_cheaper(search, error),
        crossover_flops=None,
        crossover_note="looked for only where training one model is all that counts",
        architecture=architecture,
        continuous_epochs=exact.epochs,
        continuous_loss=exact.loss,
        flat_range=_flat(search, asked.tolerance),
        turning_point=None,
        spending_limit=None,
        overspent=False,
        marginal_value=_marginal_value(search),
        other_laws=_other_laws(search, setting),
        other_weight_decays=rivals,
        sureness=_sureness(search, setting, error, rivals),
        intervals=_intervals(search, setting),
        interval_note=interval_note(asked.known, setting, asked.form),
        law_weights=setting.law_weights if asked.form == AVERAGE else None,
    )


def _alternative(form: str, found: Found, expected: float, least: float) -> Alternative:
    flops = FLOPS_PER_PARAM_TOKEN * found.members * found.params * found.unique_tokens * found.epochs
    return made(
        Alternative,
        law=form,
        weight_decay=found.weight_decay,
        spent_flops=flops,
        params=found.params,
        epochs=found.epochs,
        tokens=found.unique_tokens * found.epochs,
        predicted_loss=found.loss,
        expected_loss=expected,
        regret=expected - least,
    )


def _other_laws(search: _Search, setting: Setting) -> list[Alternative]:
    """What other laws recommend for as many members within the same total, in the eyes of the plan's own."""
    rows, least = [], min(search.found.loss, getattr(best(search.here()), "loss", math.inf))
    for form in setting.laws:
        found = best(search.here(form)) if form != search.asked.form else None
        if found is not None:
            rows.append(_alternative(form, found, search.loss_of(found), least))
    return rows


def _cheaper(search: _Search, error: float) -> CheaperPlan | None:
    """The least total whose answer, at the same weight decay, cannot be told from this one."""
    if not search.asked.limits.ceiling:
        return None
    task = replace(search.here(), ceiling=math.inf, target=search.found.loss + error)
    found = best(task)
    if found is None or found.total > 0.95 * search.found.total:
        return None
    tokens = found.unique_tokens if task.bill.buys else None
    return made(
        CheaperPlan,
        flops=found.total,
        params=found.params,
        epochs=found.epochs,
        loss=found.loss,
        unique_tokens=tokens,
    )


def _flat(search: _Search, tolerance: float) -> FlatRange:
    """The epochs around the best, each with its best size, that stay within `tolerance` of its loss."""
    found, task = search.found, search.here()
    if found.epochs >= 1 and task.limits.whole_epochs:
        epochs = np.unique(
            np.append(np.arange(1.0, 33.0), np.floor(found.epochs * np.geomspace(0.05, 20, 200)))
        )
        epochs = epochs[(epochs >= 1) & (epochs <= task.most_epochs)]
    else:
        epochs = found.epochs * np.geomspace(0.05, 20, 400)
        epochs = np.append(epochs[epochs <= task.most_epochs], found.epochs)
    epochs = np.unique(np.append(epochs, found.epochs))
    point = Point(*(np.full(len(epochs), float(values[0])) for values in _point(found)))._replace(
        epochs=epochs
    )
    sizes, losses = solved(task, point)
    near = losses <= found.loss + tolerance
    here = int(np.argmin(np.abs(epochs - found.epochs)))
    low, high = here, here
    while low > 0 and near[low - 1]:
        low -= 1
    while high < len(epochs) - 1 and near[high + 1]:
        high += 1
    params = np.append(np.exp(sizes[low : high + 1]), found.params)
    return made(
        FlatRange,
        tolerance=tolerance,
        epochs_min=float(epochs[low]),
        epochs_max=float(epochs[high]),
        params_min=float(params.min()),
        params_max=float(params.max()),
    )


def _marginal_value(search: _Search) -> MarginalValue:
    """What more data and a larger total would buy, the members of the answer being kept."""
    found, task = search.found, search.here()

    def loss(tokens: float, total: float) -> float:
        bill = replace(task.bill, owned=tokens, token_flops=0.0)
        paid = total - float(task.bill.data(found.unique_tokens))
        at = replace(task, bill=bill, ceiling=paid)
        return float(solved(at, _point(found, tokens))[1][0])

    here, total = found.unique_tokens, search.ceiling
    by_token = (loss(here * (1 + _STEP), total) - loss(here * (1 - _STEP), total)) / (2 * _STEP * here)
    by_flop = (loss(here, total * (1 + _STEP)) - loss(here, total * (1 - _STEP))) / (2 * _STEP * total)
    by_token, by_flop = (value if math.isfinite(value) else 0.0 for value in (by_token, by_flop))
    bill = search.asked.bill
    twice = replace(bill, owned=2 * bill.owned)
    changes = (search.within(total, bill=twice), search.within(2 * total))
    kept = [None if one is None else min(one, found, key=lambda each: each.loss) for one in changes]
    data, compute = (None if one is None else one.loss - found.loss for one in kept)
    decays = [None if one is None else one.weight_decay for one in kept]
    return made(
        MarginalValue,
        loss_per_token=by_token,
        loss_per_flop=by_flop,
        flops_per_token=by_token / by_flop if by_flop < 0 else None,
        loss_if_twice_the_data=data,
        loss_if_twice_the_compute=compute,
        weight_decay_if_twice_the_data=decays[0],
        weight_decay_if_twice_the_compute=decays[1],
    )


def _sureness(
    search: _Search, setting: Setting, error: float, rivals: Sequence[Alternative]
) -> Sureness | None:
    asked, found = search.asked, search.found
    place = (found.params, found.unique_tokens, found.epochs)
    lost = loss_range(asked.known, setting, asked.form, place, found.loss, error)
    if lost is None:
        return None
    probability = None
    if rivals:
        rival = asked.known.setting(rivals[0].weight_decay)
        other = rival.error(asked.form, asked.tolerance)
        doubt = math.hypot(error, float(other(rivals[0].params, found.unique_tokens, rivals[0].epochs)))
        probability = normal_share((rivals[0].predicted_loss - found.loss) / doubt)
    as_good = _flat(search, error)
    return made(Sureness, **vars(lost), as_good=as_good, weight_decay_probability=probability)


def _intervals(search: _Search, setting: Setting) -> dict[str, Interval] | None:
    """Of the loss of this configuration."""
    asked, found = search.asked, search.found
    place = found.params, found.unique_tokens, found.epochs
    gain = search.loss_of(found._replace(members=1)) - found.loss if found.members > 1 else 0.0
    return loss_intervals(setting, asked.form, *place, asked.known.guessing_loss, gain)


# -- ensembles, serving, data


def _ensemble(search: _Search) -> EnsemblePlan:
    """One model against several."""
    found, known = search.found, search.asked.known.members
    assert known is not None
    auto = search.asked.members == AUTO
    several = [count for count in search.counts() if count > 1]
    single = found if found.members == 1 else search.best(counts=(1,))
    ensemble = found if found.members > 1 else search.best(counts=several) if several else None
    shown = ensemble or found
    one = search.loss_of(shown._replace(members=1))
    limit = one - (one - shown.loss) * shown.members / max(shown.members - 1, 1)
    return made(
        EnsemblePlan,
        count=found.members,
        member_loss=one,
        gain=one - shown.loss,
        limit_loss=limit,
        single=candidate(single),
        ensemble=candidate(ensemble),
        start_flops=_start(search, single, ensemble) if auto and search.asked.target is None else None,
        weights_bytes=_BYTES * shown.members * shown.params,
        flops_per_token=SERVING_FLOPS * shown.members * shown.params,
        cheapest_as_good=_fewer(search, ensemble, known),
        distilled=_distilled(search, shown, known) if ensemble is not None else None,
        error=known.error,
        most_members=known.most_members,
        source=known.source,
    )


def _fewer(search: _Search, ensemble: Found | None, known: Members) -> Candidate | None:
    """The cheapest ensemble whose loss is within the error of the members' law."""
    if ensemble is None or not search.asked.limits.ceiling or search.asked.members != AUTO:
        return None
    counts = [count for count in search.counts() if count > 1]
    tasks = search.tasks(counts=counts)
    target = ensemble.loss + max(known.error, search.asked.tolerance)
    found = best_of([replace(task, ceiling=math.inf, target=target) for task in tasks])
    return candidate(found) if found is not None and found.total < 0.7 * ensemble.total else None


def _distilled(search: _Search, ensemble: Found, known: Members) -> Distillation | None:
    """What one model of the members' size would reach, if it kept what was kept where it was measured."""
    if known.distilled is None:
        return None
    size = Limits.of(params=ensemble.params)
    limits = replace(size, whole_epochs=search.asked.limits.whole_epochs)
    tasks = [
        replace(task, ceiling=math.inf, target=None, limits=limits) for task in search.tasks(counts=(1,))
    ]
    alone = best_of(tasks)
    if alone is None or alone.loss <= ensemble.loss:  # no gain of which something could be kept
        return None
    kept = known.distilled.kept
    loss = alone.loss - kept * (alone.loss - ensemble.loss)
    return made(Distillation, kept=kept, members=known.distilled.members, loss=loss)


def _start(search: _Search, single: Found | None, ensemble: Found | None) -> float | None:
    """The total from which two or more members are better than one; None where that is not in sight."""

    def lead(ln_total: float) -> float:
        """By how much several are better there."""
        tasks = search.tasks(counts=(1, 2, 3, 4))
        found = [one_and_several(replace(task, ceiling=math.exp(ln_total), target=None)) for task in tasks]
        one, several = (min(column) for column in zip(*found, strict=True))
        return one - several if math.isfinite(several) else -math.inf

    low = high = math.log(search.ceiling)
    behind = ahead = lead(low) if single is None or ensemble is None else single.loss - ensemble.loss
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
    return math.exp(_crossing(lead, (low, behind), (high, ahead)))


def _crossing(lead: Callable[[float], float], low: tuple[float, float], high: tuple[float, float]) -> float:
    """Where a lead turns positive between two places: on the line through them, of which an end that stays
    counts half; in the middle where that is no number.
    """
    (left, behind), (right, ahead) = low, high
    place, before = right, left
    while abs(place - before) > _CLOSE:
        share = -behind / (ahead - behind) if math.isfinite(ahead - behind) else 0.5
        before, place = place, left + share * (right - left)
        here = lead(place)
        if here > 0:
            right, ahead, behind = place, here, 0.5 * behind
        else:
            left, behind, ahead = place, here, 0.5 * ahead
    return place


def _serving(search: _Search) -> ServingPlan:
    asked, found, bill = search.asked, search.found, search.asked.bill
    flops = float(bill.serving(found.members, found.params))
    share = bill.serve_rate * flops / found.total
    alone = search.within(search.ceiling, bill=replace(bill, serve_tokens=0.0))
    if asked.target is not None:
        alone = search.best(bill=replace(bill, serve_tokens=0.0))
    if alone is not None:
        true = float(bill.total(alone.members, alone.params, alone.unique_tokens, alone.epochs))
        alone = alone._replace(total=true)
    return made(
        ServingPlan,
        tokens=bill.serve_tokens,
        flops=flops,
        rate=bill.serve_rate,
        training_flops=float(bill.training(found.members, found.params, found.unique_tokens, found.epochs)),
        total_flops=found.total,
        share=share,
        usd=bill.usd(bill.serve_rate * flops),
        total_usd=bill.usd(found.total),
        training_only=candidate(alone),
    )


def _purchase(search: _Search) -> PurchasePlan:
    asked, found, bill = search.asked, search.found, search.asked.bill
    assert asked.data_price is not None
    assert bill.usd_per_flop is not None
    paid = float(bill.data(found.unique_tokens))
    nothing = replace(bill, token_flops=0.0)
    return made(
        PurchasePlan,
        price=asked.data_price,
        owned=bill.owned,
        bought=found.unique_tokens - bill.owned,
        usd=paid * bill.usd_per_flop,
        compute_usd=(found.total - paid) * bill.usd_per_flop,
        nothing_bought=candidate(search.best(bill=nothing)),
    )
