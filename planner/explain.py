"""Results in sentences: what to train, why, what it costs to leave it, and what to be careful about.

The only place with sentences about a plan. Each is a `Remark` with a code for programs that does not change
with the wording; `CODES` lists them all, in the order in which a plan says them. A remark is made by one
function below, which returns nothing where there is nothing to say; `_reasons` and `_warnings` list those
functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from planner.averaging import ELSEWHERE
from planner.calibration import Calibration, Setting, Trial
from planner.hardware import DEFAULT_VOCAB, TotalCost
from planner.inputs import (
    CEILING,
    InvalidInput,
    Limits,
    dollars,
    percent,
    perplexity,
    scientific,
    short,
    signed,
)
from planner.inputs import epochs as in_epochs
from planner.inputs import size as in_bytes

if TYPE_CHECKING:
    from planner.results import Candidate, EnsemblePlan, Plan
    from planner.search import Found
    from planner.solve import Point
    from planner.uncertainty import FormDisagreement

CODES = {
    # reasons, in the order in which they are said
    "least_compute": "the compute is the least that reaches the loss asked for",
    "target_within_error": "the loss asked for is below what the law expects, but within its own error",
    "ensemble_compared": "several models, averaged, against the best single one for the same total",
    "ensemble_starts": "from which total on several members are better than one model",
    "ensemble_limit": "what one member and infinitely many would reach, and what is as good at less",
    "ensemble_cost": "memory and compute of serving an ensemble",
    "distilled": "what one model distilled from the ensemble may keep of its gain",
    "serving_cost": "what serving takes next to training",
    "data_bought": "what data is bought and what that leaves for compute",
    "unused_compute": "compute is left, and what would help instead",
    "ensemble_instead": "what all of the compute would buy as an ensemble",
    "ensemble_elsewhere": "what is known of ensembles from elsewhere, where the calibration has none",
    "cheaper_as_good": "a cheaper plan is within the law's error of this one",
    "stop_spending": "less compute than was to be spent has a lower loss, by more than the law's error",
    "less_would_do": "less compute would do at least as well as this plan, as far as the law can tell",
    "instead": "what to do instead of spending more",
    "data_plentiful": "part of the corpus is enough, nothing is repeated",
    "whole_epochs_cost": "a fraction of an epoch would be noticeably better",
    "best_weight_decay": "the weight decay is the best of all that the law covers, and what that is worth",
    "own_recipe": "the weight decay in a recipe of one's own",
    "weight_decay_compared": "what the other weight decay would reach",
    "weight_decay_better": "another weight decay would do better than the one given",
    "overfitting_cost": "what repeated tokens cost",
    "more_compute_helps": "up to which compute more of it helps, by the law and with this recipe",
    "no_gain": "from which compute on the law expects no gain with this recipe",
    "measured_case": "what was measured where the law was tried closest to this question",
    "repetition_turns": "from which compute on more repetition stops paying",
    "exchange_rate": "what more data and more compute would buy",
    "flat_optimum": "sizes and epochs that are as good within the tolerance",
    "sharp_optimum": "nothing else is as good within the tolerance",
    "forms_disagree": "forms that count in the average want quite different models",
    "law_ends": "where the plan leaves the runs, how far forms are apart there, and the run that settles it",
    "corpus": "the text that the laws were fitted on",
    # warnings, likewise
    "outside_params": "the model size is outside of what was fitted",
    "outside_unique_tokens": "the unique tokens are outside of what was fitted",
    "outside_epochs": "the epochs are above what was fitted",
    "vocabulary_unknown": "the calibration does not say its vocabulary",
    "vocabulary_differs": "the vocabulary is not that of the calibration",
    "no_shape": "no model shape has this size",
    "absurd_shape": "the shape is one that nobody trains",
    "worse_than_uniform": "the predicted loss is above the uniform one",
    "serving_leaves_little": "serving takes so much that models of sizes that were fitted cannot be paid",
    "interpolated": "the weight decay lies between two that were calibrated",
    "translated": "the weight decay of equal timescale in another recipe is not sure to be the best there",
    "outside_timescale": "AdamW's timescale is outside of what was fitted",
    "end_of_range": "the best weight decay is at the end of those that the law covers",
    "outside_members": "the members are outside of what was trained to calibrate their gain",
    "more_members": "the members are more than were trained",
    "fit": "what the fit behind the calibration warned of",
    "weight_decay_open": "no weight decay is probably enough the best",
    "memory": "training does not fit into the memory of the accelerators",
}
_ORDER = {code: place for place, code in enumerate(CODES)}
_RENAMED_CODES = {"above_guessing": "worse_than_uniform", "outside_memory": "outside_timescale"}


class Remark(str):
    """A sentence, which is the string itself, and the code of what it is about (a key of `CODES`)."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, text: str) -> Remark:
        code = _RENAMED_CODES.get(code, code)
        if code not in CODES:
            raise ValueError(f"no such code: {code!r}")
        remark = super().__new__(cls, text)
        remark.code = code
        return remark

    def __reduce__(self) -> tuple[type[Remark], tuple[str, str]]:  # for copies and pickles
        return Remark, (self.code, str(self))

    def __repr__(self) -> str:
        return f"Remark({self.code!r}, {str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def read(value: Any) -> Remark:
            return value if isinstance(value, Remark) else cls(value["code"], value["text"])

        def written(remark: Remark) -> dict[str, str]:
            return {"code": remark.code, "text": str(remark)}

        reader = core_schema.no_info_plain_validator_function(read)
        as_json = core_schema.plain_serializer_function_ser_schema(written, when_used="json")
        return core_schema.json_or_python_schema(reader, reader, serialization=as_json)


class Bound(NamedTuple):
    """What limits on size and epochs change: which figures would be others without them."""

    plan: bool = False
    minimum: bool = False  # the loss-minimising compute
    doubled: bool = False  # what twice the data or compute buys
    flat: bool = False  # the flat range
    turn: bool = False  # the turning point


class Facts(NamedTuple):
    """What the words need next to the numbers of a plan."""

    known: Calibration
    setting: Setting
    limits: Limits
    cost: TotalCost
    committed: bool  # whether the weight decay was given
    target: float | None  # the loss to be reached
    vocab_size: int | None
    shape_problem: str | None
    single: bool  # whether training one model is all that counts
    bound: Bound = Bound()
    rival_best: Point | None = None  # the best that another weight decay reaches with at most this compute
    spare: Found | None = None  # what all of the compute would buy as an ensemble
    disagreement: FormDisagreement | None = None  # of averaged forms, where the plan leaves the runs


def explained(p: Plan, facts: Facts) -> Plan:
    """The plan with its verdict, reasons and warnings."""
    reasons = [
        *_ensemble(p, facts),
        *(_single_reasons(p, facts) if facts.single else _total_reasons(p, facts)),
    ]
    reasons += [*_overfitting(p), *_corpus(facts.known)]
    return p.model_copy(
        update={
            "verdict": _verdict(p, facts),
            "reasons": sorted(reasons, key=lambda one: _ORDER[one.code]),
            "warnings": sorted(_warnings(p, facts), key=lambda one: _ORDER[one.code]),
        }
    )


def _single_reasons(p: Plan, facts: Facts) -> Iterator[Remark]:
    """Where training one model is all that counts."""
    bound, stops = facts.bound, [*_stop_spending(p, facts)]
    yield from stops
    yield from _target(p, facts)
    yield from _unused_compute(p)
    yield from _spare_compute(p, facts)
    yield from _as_good(p)
    if p.epochs < 1 and not bound.plan:
        enough = f"{short(p.tokens)} tokens of the corpus are enough, none is repeated"
        yield Remark("data_plentiful", f"Data is plentiful for this budget: {enough}.")
    yield from _whole_epochs(p)
    yield from _weight_decay(p)
    advice = p.weight_decay_advice
    chosen = advice is not None and advice.best_weight_decay == p.weight_decay
    instead = any(one.code == "instead" for one in stops)
    if not (instead and facts.committed) and not chosen:  # that has said it already, or the weight-decay law
        yield from _weight_decay_compared(p, facts.committed)
    if not stops:
        yield from _headroom(p, facts)
    if p.loss_minimising_compute is not None:
        yield from _measured_case(p, facts.known)
    if not bound.turn:  # a limit on epochs is where repetition stops, and known to who set it
        yield from _repetition(p)
    yield _exchange_rate(p, bound)
    if not (bound.flat and p.flat_range.sharp):  # limits that leave no choice are known to who set them
        yield _flatness(p, bound)
    yield from _forms_disagree(p)
    yield from _law_ends(facts)


def _total_reasons(p: Plan, facts: Facts) -> Iterator[Remark]:
    """Where members, serving or bought data count."""
    if facts.target is not None:
        least = _total(p.flops, facts.cost)
        text = f"No less than {least} in all is expected to reach a loss of {facts.target:g}."
        yield Remark("least_compute", text)
    yield from _serving(p, facts.cost)
    yield from _purchase(p)
    if p.cheapest_as_good is not None and (p.members is None or p.members.count == 1):
        cheap = p.cheapest_as_good
        share = percent(cheap.flops / (p.flops - p.unused_flops))
        yield Remark(
            "cheaper_as_good",
            f"{short(cheap.params)} x {in_epochs(cheap.epochs)}{_bought(p, cheap.unique_tokens)} is "
            f"within the law's error of it and takes {share} of its total (loss {cheap.loss:.4f}).",
        )
    yield from _weight_decay_compared(p, facts.committed)
    data = "twice the data" if p.purchase is None else "owning twice the tokens that you do"
    yield Remark("exchange_rate", f"What would help: {_twice_as_much(p, data, 'twice the total')}.")


def _warnings(p: Plan, facts: Facts) -> Iterator[Remark]:
    """What to be careful about."""
    yield from outside_the_runs(facts.setting, p.params, p.unique_tokens, p.epochs)
    yield from _vocabulary(p, facts)
    yield from _worse_than_uniform(facts.known, p.loss)
    if not facts.single:
        yield from _serving_leaves_little(p, facts)
    yield from _interpolated(facts.setting)
    yield from _weight_decay_warnings(p, facts)
    yield from _member_warnings(p, facts.known)
    yield from (Remark("fit", text) for text in facts.setting.warnings)
    if facts.single and not facts.committed:
        yield from _weight_decay_open(p.weight_decay_probabilities)
    yield from _too_large(p)


# -- the verdict

_ONE_PLACE = 1.2  # sizes or amounts of data within this factor show nothing of what more of it does


def _verdict(p: Plan, facts: Facts) -> str:
    """The answer, in a sentence or two: what to train, where that is less than all how much of the compute it
    takes, and whether it rests on runs at all.
    """
    size, passes, decay = short(p.params), in_epochs(p.epochs), weight_decay_in_words(p)
    count = 1 if p.members is None else p.members.count
    said = f"Train {size} for {passes} at weight decay {decay}."
    if count > 1:
        said = (
            f"Train {count} models of {size} for {passes} at weight decay {decay}, with different seeds, and "
            f"average their probabilities."
        )
    said += _first_guess(p, facts.setting)
    no_gain = "with this recipe the law expects no gain from more"
    if facts.single:
        share = p.spent_flops / p.flops
        if share > 0.995:
            return said
        why = no_gain + (" beyond its own error" if _regained(p) else "")
        if facts.bound.plan:
            why = "your limits leave no better use for the rest"
        return f"{said} That takes {percent(share)} of your compute; {why}."
    if p.purchase is not None:
        bought = p.purchase
        buying = f"Buy {short(bought.bought)} unique tokens ({_dollars(bought.usd)})."
        said = f"{'Buy no data.' if bought.bought < 0.0005 * bought.owned else buying} {said}"
    if p.serving is not None and p.serving.share >= 0.005:
        said += f" Serving takes {percent(p.serving.share)} of the total."
    share = 1 - p.unused_flops / p.flops
    return said if share > 0.995 else f"{said} That takes {percent(share)} of what you have; {no_gain}."


def _first_guess(p: Plan, setting: Setting) -> str:
    """A sentence on what the plan depends on and its runs cannot have shown; nothing where there is nothing.

    What was interpolated has no runs of its own: `fitted_on` is what two weight decays share.
    """
    fitted, said = setting.fitted_on, []
    for value, (low, high), what, unit in (
        (p.params, fitted.params, "what model size does", "parameters"),
        (p.ud * min(p.epochs, 1.0), fitted.unique_tokens, "what data is worth", "unique tokens"),
    ):
        in_one_place = high < _ONE_PLACE * low and not low / _ONE_PLACE <= value <= high * _ONE_PLACE
        if setting.between is None and in_one_place:
            said.append(f"{what} (all have about {short(math.sqrt(low * high))} {unit})")
    if p.epochs > 1 and setting.rests_on_prior("repetition"):
        said.append("what repetition costs")
    listed = " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:])))
    return f" That is a first guess: the runs behind it hardly show {listed}." if said else ""


def weight_decay_in_words(p: Plan) -> str:
    """The weight decay to train with, in one's own recipe where that was given."""
    own = p.own_recipe
    return f"{p.weight_decay}" if own is None else f"{own.weight_decay:g} ({p.weight_decay:g} as calibrated)"


def law_error(p: Plan) -> float:
    """Within which losses are as good: the law's own error or, where none was measured, the tolerance."""
    return p.flat_range.tolerance if p.predictive_uncertainty is None else p.predictive_uncertainty.error


def less_is_better(p: Plan) -> bool:
    """Whether the loss-minimising compute has a loss that is lower than the plan's by more than the law's
    error."""
    limit = p.loss_minimising_compute
    return limit is not None and p.overspent and p.loss - limit.loss > law_error(p)


def at_weight_decay(p: Plan, weight_decay: float | None) -> str:
    """At which weight decay something holds, where there are several."""
    return f" at weight decay {weight_decay}" if p.other_weight_decays and weight_decay is not None else ""


def _regained(p: Plan) -> bool:
    """Whether the budget is so large that the law expects a gain from all of it again, however small."""
    limit = p.loss_minimising_compute
    return limit is not None and limit.regained_flops is not None and limit.regained_flops < p.flops


def _within(limited: bool) -> str:
    return " within your limits" if limited else ""


# -- reasons of one training

_MUCH_LESS = 0.95  # of the compute: whoever spends that much has not spent more
_HEARD = 0.05  # weight from which a form of an average is heard


def _target(p: Plan, facts: Facts) -> Iterator[Remark]:
    """What the compute of a plan for a loss is, or that the law hardly expects this loss."""
    target = facts.target
    if target is None:
        return
    if p.loss <= target + 1e-6:
        least = scientific(p.spent_flops)
        yield Remark(
            "least_compute",
            f"No less than {least} FLOPs are expected to reach a loss of {target:g} with this data.",
        )
        return
    assert p.predictive_uncertainty is not None
    error = p.predictive_uncertainty.error
    chance = 0.5 * math.erfc((p.loss - target) / error / math.sqrt(2))
    yield Remark(
        "target_within_error",
        f"The law does not expect a loss of {target:g} from this data: its lowest is {p.loss:.4f}, "
        f"{p.loss - target:.3f} above. That is within its own error ({error:.3f} nats), "
        f"so this plan, the best there is, may reach it with probability {chance:.0%}.",
    )


def _unused_compute(p: Plan) -> Iterator[Remark]:
    """What the compute that is not spent could buy."""
    value = p.marginal_value
    if p.spent_flops < 0.995 * p.flops and value.loss_if_twice_the_data is not None:
        yield Remark(
            "unused_compute",
            f"{scientific(p.unused_flops)} FLOPs are left. Data would help: "
            f"with twice the unique tokens the loss would change by {signed(value.loss_if_twice_the_data)} "
            f"within the same compute{at_weight_decay(p, value.weight_decay_if_twice_the_data)}.",
        )


def _spare_compute(p: Plan, facts: Facts) -> Iterator[Remark]:
    """What the compute would buy as an ensemble: where that is known, or where one model cannot use it."""
    averaging, several = facts.known.members, facts.spare
    if averaging is not None:
        if several is not None:
            loss, where = several.point.loss, f"; measured: {averaging.source}" if averaging.source else ""
            yield Remark(
                "ensemble_instead",
                f"As an ensemble all of the compute could gain {p.loss - loss:.3f} nats: {_models(several)}, "
                f"averaged, reach about {loss:.3f} (ask for members{where}).",
            )
    elif 2 * p.spent_flops <= p.flops:
        unknown = "The other known use of the rest is an ensemble, not measured for this calibration"
        yield Remark("ensemble_elsewhere", f"{unknown}: {ELSEWHERE}.")


def _as_good(p: Plan) -> Iterator[Remark]:
    """Which cheaper plan is as good."""
    if (cheap := p.cheapest_as_good) is not None:
        yield Remark(
            "cheaper_as_good",
            f"{short(cheap.params)} x {in_epochs(cheap.epochs)} is within the law's error of it and takes "
            f"{percent(cheap.flops / p.spent_flops)} of its compute (loss {cheap.loss:.4f}).",
        )


def _stop_spending(p: Plan, facts: Facts) -> Iterator[Remark]:
    """What less compute would do, where its loss is lower. A plan within a ceiling that spends more does so
    on purpose: by the law's error both are as good.
    """
    limit = p.loss_minimising_compute
    if limit is None or not p.overspent or limit.flops > _MUCH_LESS * p.spent_flops:
        return
    within = _within(facts.bound.minimum)
    where = f"{scientific(limit.flops)} FLOPs"
    how = (
        f"with {short(limit.params)} parameters and {in_epochs(limit.epochs)}"
        f"{at_weight_decay(p, limit.weight_decay)}"
    )
    if not less_is_better(p):
        error = "the law's error" if p.predictive_uncertainty is not None else f"{law_error(p):g} nats"
        text = f"{where} would do as well ({limit.loss:.3f}, within {error}), {how}{within}."
        yield Remark("less_would_do", text)
        return
    if p.spend == CEILING:
        yield Remark("less_would_do", f"{where} would reach {limit.loss:.4f}, {how}{within}.")
        return
    text = (
        f"Stop spending at {where}: with {short(p.ud)} unique tokens and this recipe "
        f"the law expects no gain from more compute{within} ({limit.loss:.4f} there {how}, "
        f"{p.loss:.4f} here); that saves {1 - limit.flops / p.flops:.0%} of the compute."
    )
    if limit.regained_flops is not None:
        regained = scientific(limit.regained_flops, 2)
        text += f" Only from about {regained} FLOPs on would the loss be lower again."
    yield Remark("stop_spending", text)
    instead, rival, value = [], facts.rival_best, p.marginal_value
    if rival is not None and rival.loss < limit.loss:
        instead.append(
            f"weight decay {p.other_weight_decays[0].weight_decay} reaches {rival.loss:.4f} "
            f"at {scientific(rival.flops)} FLOPs "
            f"with {short(rival.params)} parameters and {in_epochs(rival.epochs)}"
        )
    if value.loss_if_twice_the_data is not None:
        instead.append(
            f"twice the unique tokens would change the loss by {signed(value.loss_if_twice_the_data)}"
            f"{at_weight_decay(p, value.weight_decay_if_twice_the_data)}"
        )
    if instead:
        yield Remark("instead", f"Instead: {'; '.join(instead)}.")


def _whole_epochs(p: Plan) -> Iterator[Remark]:
    """What it costs that epochs are whole, where that is more than the tolerance."""
    cost = p.loss - p.continuous_loss
    if cost > p.flat_range.tolerance:
        yield Remark(
            "whole_epochs_cost",
            f"Whole epochs cost {cost:.3f} nats here: {in_epochs(p.continuous_epochs)} would reach "
            f"{p.continuous_loss:.4f} (ask for continuous epochs).",
        )


def _weight_decay(p: Plan) -> Iterator[Remark]:
    """What the weight decay is worth where any can be had, and what it is in one's own recipe."""
    advice = p.weight_decay_advice
    if advice is None:
        return
    timescale = "" if advice.timescale_epochs is None else f" of {advice.timescale_epochs:.2g} epochs"
    if advice.best_weight_decay == p.weight_decay and all(one.gain >= 0 for one in advice.gains):
        gains = [f"{one.gain:.3f} nats against {one.weight_decay:g}" for one in advice.gains]
        worth = f": worth {' and '.join(gains)}" if gains else ""
        yield Remark(
            "best_weight_decay",
            f"Weight decay {p.weight_decay:g} is the best of all for this budget, "
            f"a timescale{timescale}{worth}.",
        )
    if (own := p.own_recipe) is not None:
        yield Remark(
            "own_recipe",
            f"In your recipe (learning rate {own.learning_rate:g}, {own.batch_tokens:,.0f} tokens a step) "
            f"weight decay {p.weight_decay:g} is {own.weight_decay:g}: the same timescale{timescale}.",
        )


def _weight_decay_compared(p: Plan, committed: bool) -> Iterator[Remark]:
    """What the best other weight decay would reach; next to one that was given, only if it is better."""
    if not p.other_weight_decays:
        return
    rival = p.other_weight_decays[0]
    if not committed:
        yield Remark(
            "weight_decay_compared",
            f"At weight decay {p.weight_decay} the best loss is {p.loss:.4f}; "
            f"at {rival.weight_decay} it would be {rival.predicted_loss:.4f}.",
        )
    elif rival.predicted_loss < p.loss:
        calibrated = " (as calibrated)" if p.own_recipe is not None else ""
        yield Remark(
            "weight_decay_better",
            f"Weight decay {rival.weight_decay}{calibrated} would do better: "
            f"loss {rival.predicted_loss:.4f} instead of {p.loss:.4f}, "
            f"with {short(rival.params)} parameters and {in_epochs(rival.epochs)}.",
        )


def _overfitting(p: Plan) -> Iterator[Remark]:
    """What repeated tokens cost, where that is noticeable."""
    if p.terms.overfitting >= 0.0005:
        text = f"Overfitting on repeated tokens costs {p.terms.overfitting:.3f} nats of the {p.loss:.3f}."
        yield Remark("overfitting_cost", text)


def _headroom(p: Plan, facts: Facts) -> Iterator[Remark]:
    """Up to which compute more of it helps."""
    limit = p.loss_minimising_compute
    if limit is None:
        return
    at, within = at_weight_decay(p, limit.weight_decay), _within(facts.bound.minimum)
    until = "as far as the search goes"
    if limit.regained_flops:
        until = f"until about {scientific(limit.regained_flops, 2)}"
    where = f"{scientific(limit.flops)} FLOPs"
    if p.flops > limit.flops:
        here = "this budget is beyond that"
        if _regained(p):
            little = ", by less than its own error" if p.spent_flops < 0.995 * p.flops else ""
            here += f", where it expects a lower loss again{little}"
        no_gain = f"Past {where}{at} the law expects no gain from more compute with this recipe"
        yield Remark("no_gain", f"{no_gain}{within}, {until}; {here}.")
        return
    more = "More compute" if p.spent_flops > 0.995 * p.flops else "More compute than this budget"
    yield Remark(
        "more_compute_helps",
        f"{more} helps up to {where} (loss {limit.loss:.4f}{'' if facts.committed else at}){within}; "
        f"beyond that the law expects no gain with this recipe{at if facts.committed else ''}, {until}.",
    )


def _measured_case(p: Plan, known: Calibration) -> Iterator[Remark]:
    """What was measured where the law was tried closest to this question, next to what the law says of it.

    A case is one amount of unique tokens at one weight decay, trained at several budgets as the law
    prescribes. The closest is chosen by what is asked (weight decay, then unique tokens) and never by how it
    came out.
    """
    cases: dict[tuple[float, float], dict[float, Trial]] = {}
    for setting in known.settings:
        for trial in setting.trials:
            if trial.law == p.law:
                cases.setdefault((setting.weight_decay, trial.unique_tokens), {})[trial.flops] = trial
    several = [case for case, along in cases.items() if len(along) > 1]
    if not several:
        return
    decay, tokens = min(several, key=lambda case: (case[0] != p.weight_decay, abs(math.log(case[1] / p.ud))))
    trials = [trial for _, trial in sorted(cases[decay, tokens].items())]
    law = known.law(decay, p.law)
    predicted = [float(law.loss(t.params, t.unique_tokens, t.epochs)) for t in trials]
    budgets, models, measured, expected = (
        f"{', '.join(words[:-1])} and {words[-1]}"
        for words in (
            [scientific(trial.flops) for trial in trials],
            [f"{short(t.params)} x {t.epochs:g}" for t in trials],
            [f"{perplexity(trial.loss):.2f}" for trial in trials],
            [f"{perplexity(loss):.2f}" for loss in predicted],
        )
    )
    yield Remark(
        "measured_case",
        f"Tried with {short(tokens)} tokens at weight decay {decay}, with {budgets} FLOPs ({models}): "
        f"perplexity {measured} measured, {expected} predicted.",
    )


def _repetition(p: Plan) -> Iterator[Remark]:
    if (turn := p.turning_point) is not None:
        here = "before that point"
        if p.flops > turn.flops:
            here = "past that point: extra compute goes into size, with fewer epochs"
        where = f"{scientific(turn.flops)} FLOPs ({in_epochs(turn.epochs)})"
        yield Remark("repetition_turns", f"More repetition stops paying at {where}; this budget is {here}.")


def _exchange_rate(p: Plan, bound: Bound) -> Remark:
    """What more data and more compute would buy."""
    value = p.marginal_value
    changes = _twice_as_much(p, "twice the data", "twice the compute") + _within(bound.doubled)
    if value.loss_per_token == 0:
        return Remark("exchange_rate", f"More unique tokens would not help here: {changes}.")
    if value.flops_per_token is None or p.spent_flops < 0.995 * p.flops:  # there, compute has no price
        return Remark("exchange_rate", f"{changes[0].upper()}{changes[1:]}.")
    token = f"One more unique token is worth {scientific(value.flops_per_token, 2)} FLOPs here"
    return Remark("exchange_rate", f"{token}: {changes}.")


def _twice_as_much(p: Plan, data: str, compute: str) -> str:
    """What twice as much of either changes, and at which weight decay."""
    value = p.marginal_value
    decays = value.weight_decay_if_twice_the_data, value.weight_decay_if_twice_the_compute
    first, last = (at_weight_decay(p, decay) for decay in decays)
    first = "" if first == last else first  # said once
    figures = ((data, value.loss_if_twice_the_data, first), (compute, value.loss_if_twice_the_compute, last))
    return ", ".join(
        f"{what} leaves no plan"
        if change is None
        else f"{what} would change the loss by {signed(change)}{at}"
        for what, change, at in figures
    )


def _flatness(p: Plan, bound: Bound) -> Remark:
    flat, within = p.flat_range, _within(bound.flat)
    if flat.sharp:
        near = f"within {flat.tolerance:g} nats of it"
        text = f"The optimum is sharp: hardly another size or number of epochs is {near}{within}."
        return Remark("sharp_optimum", text)
    low = in_epochs(flat.epochs_min).split()[0]
    return Remark(
        "flat_optimum",
        f"The optimum is flat: {low} to {in_epochs(flat.epochs_max)} ({short(flat.params_min)} to "
        f"{short(flat.params_max)} parameters) stay within {flat.tolerance:g} nats of it{within}.",
    )


def _forms_disagree(p: Plan) -> Iterator[Remark]:
    """That forms which count want quite different models, where they do."""
    weights = p.law_weights or {}
    heard = [one for one in p.other_laws if weights.get(one.law, 0.0) >= _HEARD]
    if len(heard) < 2:
        return
    small, large = (end(heard, key=lambda one: one.params) for end in (min, max))
    if large.params >= 2.0 * small.params:
        ends = ", ".join(
            f"{one.law} ({weights[one.law]:.0%}) wants {short(one.params)} for {in_epochs(one.epochs)}"
            for one in (small, large)
        )
        costs = max(small.regret, large.regret)
        text = f"the forms disagree: {ends}; by their average that costs up to {costs:.3f} nats."
        yield Remark("forms_disagree", text)


def _law_ends(facts: Facts) -> Iterator[Remark]:
    """Where the law ends, if the plan is beyond it."""
    if facts.disagreement is not None:
        yield Remark("law_ends", disagreement_in_words(facts.disagreement))


def disagreement_in_words(found: FormDisagreement) -> str:
    """That a plan leaves the runs, by how much forms that count disagree there, and what would settle it."""
    names = {"compute": "compute", "size": "model size", "data": "data", "epochs": "epochs"}
    parts = [f"{names[way]} ({factor:.2g}x)" for way, factor in found.beyond.items()]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    text = (
        f"The plan leaves the runs in {listed}; there the forms disagree by {found.apart.nats:.3f} nats "
        f"({found.apart.low} {found.apart.least:.3f}, {found.apart.high} {found.apart.most:.3f}), "
        f"most of it by {names[found.mostly_by]}."
    )
    if found.run is not None:
        run, flops = found.run, scientific(found.run.flops)
        place = f"{short(run.params)} parameters on {short(run.unique_tokens)} for"
        text += (
            f" One run would settle it: {place} {in_epochs(run.epochs)} ({flops} FLOPs, "
            f"{run.flops / found.point.flops:.0%} of the plan), where they differ by {found.run_nats:.3f}."
        )
    return text


def _corpus(known: Calibration) -> Iterator[Remark]:
    """What text the laws hold for, where the calibration says so."""
    if corpus := known.corpus.split(";")[0].strip():
        yield Remark(
            "corpus",
            f"The laws were fitted on {corpus}; on other text (another language, code, another tokenizer) "
            f"losses differ and the best plan may too.",
        )


# -- ensembles, serving, bought data


def _ensemble(p: Plan, facts: Facts) -> Iterator[Remark]:
    """One model against several, what several cost, and what distillation keeps of them."""
    found = p.members
    if found is None:
        return
    several, single = found.ensemble, found.single
    if single is not None and several is not None:
        gain = single.loss - several.loss
        how = f"better by {gain:.3f} nats" if gain > 0 else f"worse by {-gain:.3f} nats"
        source = f" ({found.source})" if found.source else ""
        yield Remark(
            "ensemble_compared",
            f"For the same total {_models(several)} reach {several.loss:.4f}, {how} than the best single "
            f"model ({_one(single)}: {single.loss:.4f}); measured with up to {found.most_members} members, "
            f"predicted within {found.error:.3f} nats{source}.",
        )
    if found.start_flops is not None:
        yield Remark(
            "ensemble_starts",
            f"Stop growing the model and start an ensemble at about "
            f"{_total(found.start_flops, facts.cost, 2)}: from there on several members are better than one.",
        )
    if several is not None and found.count > 1:
        yield from _several(found, several)


def _several(found: EnsemblePlan, several: Candidate) -> Iterator[Remark]:
    alone, limit = f"{found.member_loss:.4f}", f"{found.limit_loss:.4f}"
    text = f"One of the members alone would reach {alone}, infinitely many {limit}."
    if (cheap := found.cheapest_as_good) is not None:
        share = percent(cheap.total_flops / several.total_flops)
        text += (
            f" {_models(cheap)} are within the law's error of {several.members} and take {share} "
            f"({cheap.loss:.4f})."
        )
    yield Remark("ensemble_limit", text)
    yield Remark(
        "ensemble_cost",
        f"Serving {several.members} members takes {several.members} times the memory and compute of one: "
        f"{in_bytes(found.weights_bytes)} of weights in bf16 and {scientific(found.flops_per_token)} "
        f"FLOPs a token.",
    )
    if (kept := found.distilled) is not None:
        yield Remark(
            "distilled",
            f"Distilled into one model of {short(several.params)} it may keep {kept.kept:.0%} of the "
            f"gain over the best single one, as {kept.members} members did where it was measured: about "
            f"{kept.loss:.3f}, at the serving cost of one.",
        )


def _serving(p: Plan, cost: TotalCost) -> Iterator[Remark]:
    served = p.serving
    if served is None:
        return
    paid, trained = _total(served.rate * served.flops, cost), _total(served.training_flops, cost)
    text = f"Serving {short(served.tokens)} tokens takes {paid} and training {trained}"
    alone = served.training_only
    if alone is not None and abs(alone.params / p.params - 1) > 0.01:
        times = alone.total_flops / served.total_flops
        text += (
            f"; what is best for training alone ({_one(alone)}, loss {alone.loss:.4f}) would cost "
            f"{times:.3g} times as much in all"
        )
    yield Remark("serving_cost", f"{text}.")


def _purchase(p: Plan) -> Iterator[Remark]:
    bought = p.purchase
    if bought is None:
        return
    if bought.bought < 0.0005 * bought.owned:
        text = f"At ${bought.price:g} a token buying data would not pay: compute is the better use."
    else:
        text = (
            f"{_dollars(bought.usd)} for {short(bought.bought)} unique tokens leave "
            f"{_dollars(bought.compute_usd)} for compute"
        )
        if bought.nothing_bought is not None:
            text += f"; without buying any the best loss would be {bought.nothing_bought.loss:.4f}"
        text += "."
    yield Remark("data_bought", text)


def _bought(p: Plan, tokens: float | None) -> str:
    """What data another plan would buy, where any can be bought."""
    if p.purchase is None or tokens is None:
        return ""
    if (more := tokens - p.purchase.owned) < 0.0005 * p.purchase.owned:
        return " without buying data"
    return f" with {short(more)} tokens bought ({_dollars(more * p.purchase.price)})"


def _total(flops: float, cost: TotalCost, digits: int = 3) -> str:
    usd = cost.usd(flops)
    money = "" if usd is None else f" ({_dollars(usd)})"
    return f"{scientific(flops, digits)} FLOPs{money}"


def _dollars(usd: float) -> str:
    return dollars(usd).removeprefix("about ")


def _models(some: Candidate | Found) -> str:
    """Models in a few words."""
    return _one(some) if some.members == 1 else f"{some.members} models of {_one(some)}"


def _one(some: Candidate | Found) -> str:
    at: Any = getattr(some, "point", some)
    return f"{short(at.params)} x {in_epochs(at.epochs)} at weight decay {some.weight_decay:g}"


# -- warnings


def outside_the_runs(
    setting: Setting, params: float, unique_tokens: float, epochs: float
) -> Iterator[Remark]:
    """One sentence for each quantity that lies outside of what the law, or its cost of repetition, was fitted
    on, with by how much: of the two, outside of the one that it is further from.
    """
    fitted, law, penalty = setting.fitted_on, "the law", "the cost of repetition"
    checks = [
        ("params", params, fitted.params, law),
        ("unique_tokens", unique_tokens, fitted.unique_tokens, law),
    ]
    if epochs > fitted.epochs[1]:  # below one epoch nothing repeats: that is inside every fit
        checks.append(("epochs", epochs, fitted.epochs, law))
    if epochs > 1:
        tokens = fitted.repeated_unique_tokens or fitted.unique_tokens
        checks.append(("params", params, fitted.repeated_params or fitted.params, penalty))
        checks.append(("unique_tokens", unique_tokens, tokens, penalty))
    names = {"params": "model size", "unique_tokens": "unique tokens", "epochs": "number of epochs"}
    worst: dict[str, tuple[float, Remark]] = {}
    for name, value, (low, high), what in checks:
        factor, above = max(value / high, low / value), value > high
        if factor <= max(1.005, worst[name][0] if name in worst else 0.0):
            continue
        far = _how_far(factor, above)
        said, end = (f"{x:,.0f}" if name == "epochs" else short(x) for x in (value, high if above else low))
        text = f"{names[name]} {said} is {far} that {what} was fitted on ({end}): this is an extrapolation."
        worst[name] = factor, Remark(f"outside_{name}", text)
    yield from (remark for _, remark in worst.values())


def _how_far(factor: float, above: bool) -> str:
    """How far a value is outside of what was fitted."""
    if factor >= 2:
        times = f"{factor:,.0f}" if factor >= 1000 else f"{factor:.3g}"
        return f"{times} times {'the largest' if above else 'below the smallest'}"
    return f"{factor - 1:.0%} above the largest" if above else f"{1 - 1 / factor:.0%} below the smallest"


def _vocabulary(p: Plan, facts: Facts) -> Iterator[Remark]:
    """Whether the model shape is one that the laws know."""
    known, shape = facts.known, p.architecture
    vocab = facts.vocab_size or known.vocab_size or DEFAULT_VOCAB
    if facts.vocab_size is None and known.vocab_size is None:
        text = (
            f"calibration {known.name} does not say its vocabulary: the model shape assumes {vocab:,} rows."
        )
        yield Remark("vocabulary_unknown", text)
    elif known.vocab_size not in (None, vocab):
        yield Remark(
            "vocabulary_differs",
            f"the laws were fitted with a vocabulary of {known.vocab_size:,} and not {vocab:,}: "
            f"losses per token are then not comparable, and embeddings take another share of the model.",
        )
    if facts.shape_problem is not None:
        yield Remark("no_shape", facts.shape_problem)
    if shape is not None and shape.absurd:
        rest = f"{short(shape.non_embedding_params)} of {short(shape.params)} parameters"
        yield Remark(
            "absurd_shape",
            f"nobody trains such a shape (d_model {shape.d_model}, {shape.layers} layers): a vocabulary of "
            f"{shape.vocab_size:,} leaves {rest} for its layers; a smaller vocabulary would do.",
        )


def _worse_than_uniform(known: Calibration, loss: float) -> Iterator[Remark]:
    """That a predicted loss is none that a law describes."""
    if loss > known.uniform_loss:
        yield Remark(
            "worse_than_uniform",
            f"the predicted loss {loss:.4g} is above the uniform one ({known.uniform_loss:.3g}): "
            f"no law describes such a plan.",
        )


def _serving_needs(
    known: Calibration, cost: TotalCost, weight_decay: float, members: int, params: float, total: float
) -> tuple[str, float] | None:
    """Why serving leaves only a model below all that were fitted, and what the smallest would take."""
    smallest = known.setting(weight_decay).fitted_on.params[0]
    served = cost.serve_rate * float(cost.serving(members, params))
    if params >= smallest or served < 0.5 * total:
        return None
    needed = cost.serve_rate * float(cost.serving(members, smallest))
    text = (
        f"serving {short(cost.serve_tokens)} tokens leaves no room for a model: the smallest that was "
        f"fitted ({short(smallest)}) would take {_total(needed, cost)} to serve"
    )
    return text, needed


def check_serving(known: Calibration, cost: TotalCost, found: Found, ceiling: float) -> None:
    """Refuse to serve so much that only a model can be paid that no law describes."""
    members, decay, point = found
    needs = _serving_needs(known, cost, decay, members, point.params, point.flops)
    if needs is not None and point.loss > known.uniform_loss:
        times = f"{needs[1] / ceiling:,.3g} times all that there is"
        raise InvalidInput(
            f"({scientific(cost.serve_tokens)}) is too many: {needs[0]}, {times}.",
            field="serve_tokens",
        )


def _serving_leaves_little(p: Plan, facts: Facts) -> Iterator[Remark]:
    count = 1 if p.members is None else p.members.count
    total = p.flops - p.unused_flops
    needs = _serving_needs(facts.known, facts.cost, p.weight_decay, count, p.params, total)
    if needs is not None and needs[1] > p.flops:
        text = f"{needs[0]}, {needs[1] / p.flops:,.3g} times all that there is."
        yield Remark("serving_leaves_little", text)


def _interpolated(setting: Setting) -> Iterator[Remark]:
    """That a setting was not calibrated but lies between two that were."""
    if setting.between is not None:
        low, high = setting.between
        yield Remark(
            "interpolated",
            f"weight decay {setting.weight_decay:g} is interpolated between {low:g} and {high:g}: each term "
            f"of the loss is taken to be a straight line in ln(weight decay).",
        )


def _weight_decay_warnings(p: Plan, facts: Facts) -> Iterator[Remark]:
    """Where a weight decay was not calibrated as it stands."""
    advice, known = p.weight_decay_advice, facts.known
    if advice is None:
        return
    if advice.own_recipe is not None and advice.own_recipe.weight_decay != p.weight_decay:
        yield Remark(
            "translated",
            f"weight decay {advice.own_recipe.weight_decay:g} in your recipe has the timescale of "
            f"{p.weight_decay:g} in that of the calibration. In the weight-decay study the best one moved "
            f"less than equal timescale says when learning rate or batch changed, so try what lies between "
            f"too.",
        )
    if advice.timescale_epochs is not None and advice.calibrated_timescale is not None:
        low, high = advice.calibrated_timescale
        if not low <= advice.timescale_epochs <= high:
            yield Remark(
                "outside_timescale",
                f"AdamW's timescale would be {advice.timescale_epochs:.2g} epochs here, outside of the "
                f"{low:.2g} to {high:.2g} that were calibrated.",
            )
    if advice.best_weight_decay is not None and advice.best_weight_decay in known.weight_decay_range:
        end = "weakest" if advice.best_weight_decay == known.weight_decay_range[0] else "strongest"
        text = f"the best weight decay is the {end} of those calibrated: beyond it may lie a better one."
        yield Remark("end_of_range", text)


def _member_warnings(p: Plan, known: Calibration) -> Iterator[Remark]:
    """Where an ensemble leaves what was trained to calibrate its gain."""
    averaging, recipe = known.members, known.recipe
    if p.members is None or p.members.count == 1 or averaging is None or recipe is None:
        return
    shown: dict[str, tuple[str, float, Any]] = {
        "params": ("model size", p.params, short),
        "unique_tokens": ("unique tokens", p.unique_tokens, short),
        "epochs": ("epochs", max(p.epochs, 1.0), "{:.3g}".format),
        "timescale_epochs": (
            "AdamW's timescale in epochs",
            recipe.timescale_tokens(p.weight_decay) / p.unique_tokens,
            "{:.2g}".format,
        ),
    }
    said = []
    for name, (called, value, show) in shown.items():
        low, high = getattr(averaging.fitted_on, name)
        if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            said.append(f"{called} {show(value)} (trained: {show(low)} to {show(high)})")
    if said:
        text = (
            f"what averaging gains was not measured here: {'; '.join(said)}. It is taken to grow no further."
        )
        yield Remark("outside_members", text)
    if p.members.count > averaging.most_members:
        yield Remark(
            "more_members",
            f"{p.members.count} members are more than the {averaging.most_members} that were trained: "
            f"their gain is extrapolated.",
        )


def _weight_decay_open(probabilities: Mapping[str, float] | None) -> Iterator[Remark]:
    """That no weight decay is the winner, where none is probably enough."""
    if probabilities is not None and max(probabilities.values()) < 0.8:
        ranked = sorted(probabilities.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{decay} with {share:.0%}" for decay, share in ranked[:4])
        more = f" and {len(ranked) - 4} more" if len(ranked) > 4 else ""
        yield Remark(
            "weight_decay_open",
            f"which weight decay is best is open: {shown}{more} probability; more runs of these would settle "
            f"it.",
        )


def _too_large(p: Plan) -> Iterator[Remark]:
    """That training does not fit into the memory of the accelerators at hand."""
    bill = p.cost
    if bill is not None and bill.memory is not None and not bill.memory.trainable_on(bill.gpus):
        more = " or more accelerators" if bill.memory.devices_needed else ""
        yield Remark(
            "memory",
            f"training takes {in_bytes(bill.memory.total)} and {bill.fits(bill.gpu)}: a smaller model "
            f"(max_params){more} would do.",
        )


def prediction_warnings(known: Calibration, setting: Setting, point: Point) -> list[Remark]:
    """What to be careful about with the prediction of one configuration."""
    part = point.unique_tokens * min(point.epochs, 1.0)
    return [
        *outside_the_runs(setting, point.params, part, point.epochs),
        *_worse_than_uniform(known, point.loss),
        *_interpolated(setting),
        *(Remark("fit", text) for text in setting.warnings),
    ]


def crossover_warnings(known: Calibration, places: Mapping[float, Point]) -> list[Remark]:
    """Where the plans between which a crossover decides leave what was fitted."""
    said: dict[str, Remark] = {}
    for decay, point in places.items():
        part = point.unique_tokens * min(point.epochs, 1.0)
        for remark in outside_the_runs(known.setting(decay), point.params, part, point.epochs):
            said.setdefault(remark.code, Remark(remark.code, f"at C× and weight decay {decay}, {remark}"))
    return list(said.values())


# -- crossovers


def single_setting_note(known: Calibration, form: str) -> str:
    """Why there is no crossover to speak of."""
    decays = [str(setting.weight_decay) for setting in known.settings if setting.has(form)]
    if not decays:
        return f"calibration {known.name} has no {form}"
    return f"calibration {known.name} has {form} at one weight decay only ({decays[0]})"


def crossover_note(
    weaker: float,
    stronger: float,
    better_below: float | None,
    found: Sequence[float],
    searched: tuple[float, float] | None,
    *,
    centre: float | None,
    named: bool,
    share: float,
    between: tuple[float, float],
    limits: Limits,
    changed: bool,
) -> str:
    """Which of two weight decays is better where; `share` of the draws cross `between` two computes."""
    doubt = ""
    if share < 0.975:
        low, high = (scientific(end, 2) for end in between)
        doubt = f"; {1 - share:.0%} of the draws do not cross between {low} and {high}"
    if named:
        note = _better_where(weaker, stronger, better_below, found, searched)
        if centre is not None and len(found) > 1:
            note += f"; C× is {scientific(centre)}, from which {stronger} is better"
    else:
        note = f"{weaker} and {stronger} are not told apart by the runs"
    where = " (within your limits)" if changed else ""
    if limits.size is not None:  # for which plans it holds
        few = "" if limits.max_epochs is None else f" and at most {in_epochs(limits.max_epochs)}"
        where = f" (for models of {short(limits.size)} parameters{few})"
    return note + doubt + where


def _better_where(
    weaker: float,
    stronger: float,
    better_below: float | None,
    found: Sequence[float],
    searched: tuple[float, float] | None,
) -> str:
    if searched is None:
        return "the limits leave no compute at which both weight decays have a plan"
    span = f"between {scientific(searched[0])} and {scientific(searched[1])} FLOPs"
    if better_below is None:
        return f"weight decay {weaker} and {stronger} are equally good {span}"
    worse = stronger if better_below == weaker else weaker
    if not found:
        return f"no crossover {span}: weight decay {better_below} is better than {worse} throughout"
    if len(found) == 1:
        return f"weight decay {better_below} is better below {scientific(found[0])} FLOPs, {worse} above"
    places = ", ".join(scientific(flops) for flops in found)
    return (
        f"the better weight decay changes {len(found)} times, at {places} FLOPs; "
        f"the lowest compute belongs to {better_below}"
    )


# -- why there is no plan


def unreachable(
    loss: float,
    ud: float,
    best: Point,
    weight_decay: float,
    needed: float | None,
    irreducible: float,
    limits: Limits,
) -> InvalidInput:
    """What the lowest loss with this data is, and how much data would do."""
    within = _within(limits.bounded)
    text = (
        f"({loss:g}) cannot be reached with {short(ud)} unique tokens{within}: the lowest loss is "
        f"{best.loss:.4f} ({short(best.params)} for {in_epochs(best.epochs)} "
        f"at weight decay {weight_decay}, {scientific(best.flops)} FLOPs)"
    )
    if needed is not None:
        return InvalidInput(f"{text}; about {short(needed)} would do.", field="target_loss")
    why = f": the law's irreducible loss is {irreducible:.4f}" if loss <= irreducible else within
    return InvalidInput(f"{text}, and no amount of data would do{why}.", field="target_loss")


def cannot_be_paid(cost: TotalCost, ceiling: float, limits: Limits) -> InvalidInput:
    what = "training and serving" if cost.serve_tokens else "training"
    return InvalidInput(
        f"({scientific(ceiling)}) pays for no plan{_within(limits.bounded)}: {what} must fit into it; "
        f"give more, or widen ‹min_params›, ‹max_params›, ‹max_epochs› or ‹members›.",
        field="flops",
    )


def cannot_be_reached(target: float, ud: float, lowest: Found | None, limits: Limits) -> InvalidInput:
    text = f"({target:g}) cannot be reached with {short(ud)} unique tokens{_within(limits.bounded)}"
    if lowest is None:
        return InvalidInput(f"{text}: the limits leave no plan.", field="target_loss")
    loss, models = lowest.point.loss, _models(lowest)
    return InvalidInput(f"{text}: the lowest loss is {loss:.4f} ({models}).", field="target_loss")
