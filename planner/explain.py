"""Results in sentences: what to train, why, what it costs to leave it, and what to be careful about.

The place of all sentences about a plan, but for refusals of inputs, which stand where they are checked. Each
is a `Remark` with a code for programs that does not change with the wording; `CODES` lists them all, in the
order in which a plan says them. The functions below collect what there is to say, by code, and `_remarks`
puts it in that order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from planner.calibration import ELSEWHERE, HEARD, LITTLE, Calibration, Setting, Trial
from planner.evidence import LEVEL, TOGETHER, Evidence
from planner.hardware import DEFAULT_VOCAB, TotalCost
from planner.inputs import (
    CEILING,
    InvalidInput,
    Limits,
    dollars,
    duration,
    percent,
    perplexity,
    scientific,
    short,
    signed,
)
from planner.inputs import epochs as in_epochs
from planner.inputs import size as in_bytes
from planner.weight_decay_rule import LABS

if TYPE_CHECKING:
    from planner.calibration import Recipe
    from planner.results import (
        Alternative,
        Crossover,
        EnsemblePlan,
        FlatRange,
        LossMinimisingCompute,
        Mixture,
        OwnRecipe,
        Plan,
        Predicted,
        Prediction,
        TunedWeightDecay,
        TurningPoint,
    )
    from planner.solve import Found, Point, Question
    from planner.uncertainty import FormDisagreement

# Reasons, then warnings, as they are said; docs/api/remarks.md has what each is about.
_CODES = """
    least_compute target_within_error
    ensemble_compared ensemble_starts ensemble_limit ensemble_cost distilled serving_cost data_bought
    unused_compute ensemble_instead ensemble_elsewhere other_uses
    cheaper_as_good stop_spending less_would_do instead data_plentiful whole_epochs_cost
    best_weight_decay own_recipe tuned_elsewhere weight_decay_compared weight_decay_better
    overfitting_cost more_compute_helps no_gain measured_case repetition_turns exchange_rate
    flat_optimum sharp_optimum forms_disagree law_ends calibration_chosen second_opinions tokens_per_parameter
    smaller_models data_mixture

    outside_params outside_unique_tokens outside_epochs outside_together small_batch_per_gpu
    vocabulary_unknown vocabulary_differs no_shape absurd_shape worse_than_uniform starved_of_steps
    serving_leaves_little interpolated translated outside_timescale end_of_range outside_members more_members
    fit weight_decay_open memory corpus
"""
CODES = tuple(_CODES.split())
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

        written = core_schema.plain_serializer_function_ser_schema(
            lambda remark: {"code": remark.code, "text": str(remark)}, when_used="json"
        )
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, Remark) else cls(**value), serialization=written
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        text = {"type": "string"}
        properties = {"code": {**text, "enum": list(CODES)}, "text": text}
        return {
            "title": "Remark",
            "type": "object",
            "properties": properties,
            "required": list(properties),
        }


def _remarks(said: Mapping[str, str], of_the_fit: Sequence[str] = ()) -> list[Remark]:
    """What was said, by code, in the order of `CODES`. A fit may have warned of several things."""
    found = [*said.items(), *(("fit", text) for text in of_the_fit)]
    return sorted((Remark(code, text) for code, text in found), key=lambda one: CODES.index(one.code))


class Bound(NamedTuple):
    """What limits on size and epochs change: which figures would be others without them."""

    plan: bool = False
    minimum: bool = False  # the loss-minimising compute
    doubled: bool = False  # what twice the data or compute buys
    flat: bool = False  # the flat range
    turn: bool = False  # the turning point


class Facts(NamedTuple):
    """What the words need next to the numbers of a plan."""

    asked: Question
    setting: Setting
    single: bool  # whether training one model is all that counts
    vocab_size: int | None
    shape_problem: str | None
    bound: Bound = Bound()
    rival_best: Point | None = None  # the best that another weight decay reaches with at most this compute
    disagreement: FormDisagreement | None = None  # of averaged forms, where the plan leaves the runs
    held_back: bool = False  # whether the bare law would go further than anything that was trained
    chosen: str = ""  # why this calibration, where that was left open
    unlimited: bool = False  # whether compute was said to have no ceiling


def explained(p: Plan, facts: Facts) -> Plan:
    """The plan with its verdict, reasons and warnings."""
    reasons: dict[str, str] = {}
    asked = facts.asked
    if (cheap := p.cheapest_as_good) is not None and (p.members is None or p.members.count == 1):
        model = _model(cheap)
        if p.purchase is not None and cheap.unique_tokens is not None:
            more = cheap.unique_tokens - p.purchase.owned
            model += f" with {short(more)} tokens bought ({dollars(more * p.purchase.price)})"
        spent = p.spent_flops if facts.single else p.flops - p.unused_flops
        share = f"{percent(cheap.flops / spent)} of its"
        takes = f"takes {share} {'compute' if facts.single else 'total'} (loss {cheap.loss:.4f})"
        reasons["cheaper_as_good"] = f"{model} is within the law's error of it and {takes}."
    if p.terms.overfitting >= 0.0005:
        costs = f"costs {p.terms.overfitting:.3f} nats of the {p.loss:.3f}"
        reasons["overfitting_cost"] = f"Overfitting on repeated tokens {costs}."
    reasons |= _about_the_plan(p, facts.chosen)
    reasons |= _training_reasons(p, facts) if facts.single else _total_reasons(p, facts)
    reasons |= _ensemble_reasons(p, asked.cost)
    if _leaves_most(p):
        reasons["other_uses"] = _OTHER_USES
    if asked.target is not None and "target_within_error" not in reasons:
        least = _total(p.flops - p.unused_flops, asked.cost) + ("" if facts.single else " in all")
        reach = f"are expected to reach a loss of {asked.target:g} with this data"
        reasons["least_compute"] = f"No less than {least} {reach}."
    words = {
        "verdict": _verdict(p, facts),
        "budget": _budget_in_words(p, facts),
        "reasons": _remarks(reasons),
        "warnings": _remarks(_warnings(p, facts), facts.setting.warnings),
    }
    return p.model_copy(update=words)


def _about_the_plan(p: Plan, chosen: str) -> dict[str, str]:
    """Tokens for each parameter, smaller models, why this calibration, and what others say."""
    trained, different = p.tokens / p.params, p.unique_tokens / p.params
    each = f"{trained:.3g} training tokens a parameter, {different:.3g} of them different"
    counted = "" if p.bytes_per_token is None else f"; a token is taken to be {p.bytes_per_token:.3g} bytes"
    said = {"tokens_per_parameter": f"That is {each}{counted}."}
    if p.smaller_models:
        said["smaller_models"] = f"Smaller models, for serving: {_smaller(p)}."
    if chosen:
        said["calibration_chosen"] = chosen
    if others := others_in_words(p):
        said["second_opinions"] = f"Others: {others}."
    return said


# -- the verdict

_ALL = 0.995  # of the compute: whoever spends that much has spent it all
_PAST_THE_END = 1.05  # times the end of all that was trained: as near as that is at its end
_NOTHING = 0.0005  # of the tokens that are owned: whoever buys less has bought none
_ONE_PLACE = 1.2  # sizes or amounts of data within this factor show nothing of what more of it does


def _verdict(p: Plan, facts: Facts) -> str:
    """The answer in a sentence: what to train, and whether that is more than a first guess."""
    size, decay = f"{short(p.params)} parameters", weight_decay_in_words(p)
    passes = f"for {in_epochs(p.epochs)}" if p.epochs >= 1 else f"on {short(p.tokens)} of the tokens"
    said = f"Train {size} {passes} at weight decay {decay}, from scratch"
    if p.members is not None and p.members.count > 1:
        several = f"Train {p.members.count} models of {said.removeprefix('Train ')}"
        said = f"{several}, with different seeds, and average their probabilities"
    said += "" if p.first_guess is None else f": a first guess, because {p.first_guess}"
    if facts.asked.limits.size is not None and has_few_tokens(p.params, p.ud):
        said += " (of a model that is trained already no law here says anything)"
    said += "."
    if p.purchase is not None:
        bought = f"Buy {short(p.purchase.bought)} unique tokens ({dollars(p.purchase.usd)})."
        said = f"{'Buy no data.' if p.purchase.bought < _NOTHING * p.purchase.owned else bought} {said}"
    if p.serving is not None and p.serving.share >= 0.005:
        said += f" Serving takes {percent(p.serving.share)} of the total."
    return said


def _budget_in_words(p: Plan, facts: Facts) -> str:
    """How much of the budget the plan takes, and why not all of it."""
    share, bill = 1 - p.unused_flops / p.flops, p.cost
    whole = f"{scientific(p.flops)} FLOPs"
    part = f"{scientific(p.flops - p.unused_flops)} of your {whole} ({percent(share)})"
    if bill is not None and p.serving is None and p.purchase is None:
        there = duration(bill.hours * 3600 / share)
        on = f"on {bill.gpus} x {bill.gpu}, {dollars(bill.usd)}"
        whole, part = f"{there} {on}", f"{duration(bill.hours * 3600)} of your {there} {on}"
    elif (usd := facts.asked.cost.usd(p.flops)) is not None:
        whole = dollars(usd).removeprefix("about ")
        part = f"{dollars(share * usd)} of your {whole} ({percent(share)})"
    if facts.asked.target is not None:
        return f"It takes {whole}."
    if facts.unlimited:
        return f"It takes {whole}; {_why_no_more(p, facts, 'more')}."
    doubt = _gain_in_words(p)
    if share > _ALL:
        less = ""
        if (best := stops_at(p)) is not None:
            less = f", as you ask: spend only {scientific(best.flops)} for a lower loss ({best.loss:.2f})"
        return f"It takes all of your {whole}{less}.{doubt}"
    if p.members is not None and p.members.count > 1:
        return f"{part[0].upper()}{part[1:]}; {_why_no_more_members(p, facts)}.{doubt}"
    why = _why_no_more(p, facts, "the rest")
    return f"{part[0].upper()}{part[1:]}; {why}.{doubt or _spare_in_words(p, facts)}"


def _why_no_more(p: Plan, facts: Facts, rest: str) -> str:
    """Why one model does not take all of the budget or, where there is none, no more."""
    limit = p.loss_minimising_compute
    why = f"with this recipe the law expects no gain from {rest}"
    if facts.asked.limits.by_memory:
        why = "no larger model fits on your GPUs"
    elif facts.bound.plan:
        why = f"your limits leave no better use for {rest}"
    elif p.first_guess is not None and facts.held_back:
        why = f"what {rest} could buy is not known"
        if p.second_opinions:
            other = p.second_opinions[0]
            why += f"; {other.calibration}, which knows such questions better, says {_trained(other)}"
    elif limit is not None and (limit.regained_flops or math.inf) < p.flops:
        why += " beyond its own error"
    return why


def _why_no_more_members(p: Plan, facts: Facts) -> str:
    """Why several models do not take all of the budget."""
    found = p.members
    assert found is not None
    if len(facts.asked.members) > 1 and found.count == 2 * found.most_members:
        return f"no more than {found.count} are planned, as {found.most_members} were tried"
    if p.first_guess is not None:
        return "what the rest could buy is not known"
    return f"with {found.count} members the law expects no gain from the rest"


def _gain_in_words(p: Plan) -> str:
    """What one model reaches for the same compute, and what averaging is expected to gain where that was
    borrowed.
    """
    found = p.members
    if found is None:
        return ""
    if found.count == 1:
        several = found.ensemble
        if several is None or several.loss >= p.loss:
            return " Several models, averaged, are expected to do no better."
        models = f"{several.members} models of {_trained(several)}, averaged,"
        return f" {models} are expected to reach {several.loss:.2f}, which can be counted on less."
    said = ""
    if (one := found.single) is not None:
        better = ", which is better" if one.loss < p.loss else ""
        said = f" One model reaches {one.loss:.2f} for the same compute{better}."
    if found.gain_low is None or found.gain_high is None:
        return said
    between = f"{LEVEL:.0%}: {found.gain_low:.2f} to {found.gain_high:.2f}"
    gains = f"is expected to gain {found.gain:.2f} nats over one of the members ({between})"
    return f"{said} Averaging {gains}, {found.source}."


def _spare_in_words(p: Plan, facts: Facts) -> str:
    """What most of the compute would buy as an ensemble."""
    spare, bill = p.spare_ensemble, p.cost
    if spare is None or not _leaves_most(p) or p.first_guess or facts.asked.limits.by_memory:
        return ""
    takes = f"{scientific(spare.total_flops)} FLOPs"
    if bill is not None:
        takes = duration(bill.hours * 3600 * spare.total_flops / p.spent_flops)
    between = f"{spare.level:.0%}: {spare.loss_low:.2f} to {spare.loss_high:.2f}"
    several = f"Roughly {spare.members} models of {_trained(spare)}, averaged"
    return f" {several}, may reach {spare.loss:.2f} ({between}) in {takes} (--members auto)."


def hardly_shown(setting: Setting, point: Point) -> str | None:
    """What a plan depends on and its runs, which a setting between two has none of, cannot have shown."""
    fitted, found = setting.fitted_on, []
    for value, (low, high), what in (
        (point.params, fitted.params, "what model size does"),
        (point.unique_tokens * min(point.epochs, 1.0), fitted.unique_tokens, "what data is worth"),
    ):
        in_one_place = high < _ONE_PLACE * low and not low / _ONE_PLACE <= value <= high * _ONE_PLACE
        if in_one_place and setting.between is None:
            found.append(what)
    if point.epochs > 1 and setting.method.get("learnt_from_runs", {}).get("repetition", 1.0) < LITTLE:
        found.append("what repetition costs")
    return f"the runs behind it hardly show {_listed(found)}" if found else None


NOT_FOR_FINE_TUNING = (
    "cannot be planned: the laws were fitted to models trained from scratch, not to fine-tuning or continued "
    "pretraining, and know nothing of what a trained model keeps or forgets; without ‹finetune› a training "
    "from scratch is planned."
)


CONTINUED = "(continuing the training of a model? that is --finetune)"
_FEW_TOKENS_PER_PARAM = 0.1  # with fewer nobody trains a model from scratch


def has_few_tokens(params: float, unique_tokens: float) -> bool:
    """Whether so large a model for so little text is more likely one that was trained before."""
    return unique_tokens < _FEW_TOKENS_PER_PARAM * params


def check_from_scratch(finetune: Any) -> None:
    if finetune:
        raise InvalidInput(NOT_FOR_FINE_TUNING, field="finetune")


def mixture_remark(p: Plan, mixture: Mixture) -> Remark:
    """That what other tokens are worth is not known, what both ends are, and which runs would decide."""
    runs = mixture.runs
    if not runs:
        few = _too_few(p, mixture)
        return Remark("data_mixture", f"{few[0].upper()}{few[1:]}.")
    ends = f"none of it: {_model(p)}; as much as your own: {_as_one_corpus(p, mixture)}"
    tried = "; ".join(f"{one.on} ({short(one.unique_tokens)}, {in_epochs(one.epochs)})" for one in runs)
    small = f"models of {short(runs[0].params)} on a tenth of the tokens, validated on text of your own kind"
    return Remark(
        "data_mixture",
        f"What the other {short(mixture.also)} tokens are worth is not known. If {ends}. These runs would "
        f"decide, {small}: {tried}. Runs of your own with a column `mixture` can be fitted for each kind "
        f"(`planner calibrate fit --where mixture=NAME`) and planned from.",
    )


def _too_few(p: Plan, mixture: Mixture) -> str:
    return f"the other {short(mixture.also)} tokens are too few next to your {short(p.ud)} to change the plan"


def _as_one_corpus(p: Plan, mixture: Mixture) -> str:
    """The plan if tokens of another kind were as good as one's own."""
    end, together = mixture.together, p.ud + mixture.also
    of = "all" if end.unique_tokens > _ALL * together else f"{short(end.unique_tokens)} of all"
    return f"{short(end.params)} x {max(end.epochs, 1):.3g} on {of} {short(together)}"


# -- the plan in a few rows, as the terminal and the page show it


def summary(p: Plan, brief: bool = False) -> list[tuple[str, str]]:
    """What there is to know of a plan at first, in rows of a name and a text; where it has to be `brief`,
    without what is least missed.
    """
    rows = [("your text", _text_in_tokens(p)), ("calibration", _why_this_calibration(p))]
    rows += [("expected loss", _expected_loss(p)), ("members", _members(p)), ("as good", _as_good(p))]
    rows += [("weight decay", _weight_decays(p, brief)), ("limited by", _limited_by(p))]
    if (recipe := p.recipe) is not None:
        rows.append(("recipe", _recipe(recipe, p.own_recipe)))
    if (shape := p.architecture) is not None:
        model = f"d_model {shape.d_model:,}, {shape.layers} layers, {shape.heads} heads, d_ff {shape.d_ff:,}"
        if p.cost is not None and p.cost.memory is not None:
            model += f"; {in_bytes(p.cost.memory.total)}, {p.cost.fits(p.cost.gpu)}"
        rows.append(("model", f"Llama-2, {model}"))
    if (mixture := p.mixture) is not None:
        rows.append(("other tokens", _other_tokens(p, mixture)))
    if (others := others_in_words(p)) and not brief:
        rows.append(("others", others))
    return [(name, text) for name, text in rows if text]


def _text_in_tokens(p: Plan) -> str:
    """How many tokens a text was taken to have."""
    if p.given_as is None or p.bytes_per_token is None:
        return ""
    given, tokens = p.ud if p.purchase is None else p.purchase.owned, f"{p.bytes_per_token:.3g} bytes each"
    return f"{p.given_as} taken as {short(given)} tokens ({tokens})"


def _why_this_calibration(p: Plan) -> str:
    """Which was chosen where that was left open, and why."""
    why = "".join(one for one in p.reasons if one.code == "calibration_chosen").removesuffix(".")
    for words in ("its law is ", " at what it alone would choose", "that of "):  # one line has no room for
        why = why.replace(words, "")
    return why


def _members(p: Plan) -> str:
    """One model for the same compute, and what several take to serve or to distil into one."""
    found = p.members
    if found is None or found.count == 1:
        return ""
    one, kept = found.single, found.distilled
    said = [] if one is None else [f"one model ({_trained(one)}) {one.loss:.2f}"]
    if kept is not None and kept.kept_between is not None:
        least, most = kept.kept_between
        shares = f"keeping {least:.0%} to {most:.0%} of the gain"
        between = f"{kept.loss_low:.2f} to {kept.loss_high:.2f}"
        said.append(f"distilled into one {kept.loss:.2f} ({between}), {shares}")
    elif kept is not None:
        said.append(f"distilled into one {kept.loss:.2f}, keeping {kept.kept:.0%} of the gain")
    return "; ".join([*said, f"serving takes {found.count} times that of one"])


def _other_tokens(p: Plan, mixture: Mixture) -> str:
    """Between which plans it lies, as what the other tokens are worth is not known."""
    if not mixture.runs:
        return _too_few(p, mixture)
    own = f"{_trained(p)} on your {short(p.ud)} (loss {p.loss:.2f})"
    most = f"{_as_one_corpus(p, mixture)} ({mixture.together.loss:.2f})"
    return f"between {own} and {most}; which, three small runs decide (--why)"


def _expected_loss(p: Plan) -> str:
    within, sure = (p.intervals or {}).get("loss"), p.predictive_uncertainty
    between = "" if sure is None else f" ({sure.level:.0%}: {sure.loss_low:.2f} to {sure.loss_high:.2f})"
    if within is not None:
        between = f" (95%: {within.low:.2f} to {within.high:.2f})"
    said = f"{p.loss:.2f} {nats_per_token(p)}{between}, perplexity {p.perplexity:.4g}"
    if p.bits_per_byte is not None:
        said += f", {p.bits_per_byte:.2f} bits/byte"
    return said


def _as_good(p: Plan) -> str:
    """Other sizes and epochs for the same compute, and the cheapest plan, within the law's error."""
    flat = p.flat_range if p.predictive_uncertainty is None else p.predictive_uncertainty.as_good
    said = []
    if not is_sharp(flat):
        sizes = f"{short(flat.params_min)} to {short(flat.params_max)} parameters"
        most, fewest = in_epochs(flat.epochs_max).split()[0], in_epochs(flat.epochs_min)
        said.append(f"{sizes} ({most} to {fewest})")
    if (cheap := p.cheapest_as_good) is not None:
        spent = p.flops - p.unused_flops
        if not said:
            said.append("hardly another size for this compute")
        said.append(f"cheapest {_trained(cheap)}, {percent(cheap.flops / spent)} of the compute")
    return "; ".join(said)


def nats_per_token(p: Predicted) -> str:
    """The unit of losses, with whose tokens."""
    return " ".join(filter(None, ("nats per", p.tokenizer, "token")))


_NAMED = 0.8  # probability from which on the better of two weight decays is named


def _weight_decays(p: Plan, brief: bool = False) -> str:
    """The plan's weight decay against the best other one, where they swap, and what was tuned elsewhere."""
    if not p.other_weight_decays:
        return ""
    rival, sure = p.other_weight_decays[0], p.predictive_uncertainty
    chance = None if sure is None else sure.weight_decay_probability
    if p.weight_decay_probabilities is not None:
        chance = p.weight_decay_probabilities.get(f"{p.weight_decay:g}", chance)
    worse = rival.predicted_loss < p.loss
    how, undecided = "expected to be better", ""
    if chance is not None:
        how = f"better with probability {1 - chance if worse else chance:.0%}"
        undecided = "open: " if max(chance, 1 - chance) < _NAMED else ""
    said = f"{undecided}{p.weight_decay} {how} ({rival.weight_decay}: {rival.predicted_loss:.2f})"
    if worse:
        why = "is surer" if _was_chosen(p) else "given"
        said = f"{p.weight_decay} {why}; {rival.weight_decay} {how} ({rival.predicted_loss:.2f})"
    if p.crossover_flops is not None and p.crossover_is_clear:
        side = "below" if p.weight_decay > rival.weight_decay else "above"
        said += f"; {side} {scientific(p.crossover_flops, 2)} FLOPs (C×) {rival.weight_decay} is"
    if p.own_recipe is not None:
        return f"as calibrated, {said}"
    if p.tuned_elsewhere is not None and not brief:
        said += f"; tuned elsewhere {_range(p.tuned_elsewhere)}"
    return said


def _was_chosen(p: Plan) -> bool:
    """Whether the weight decay was not given."""
    advice = p.weight_decay_advice
    best = advice is not None and advice.best_weight_decay == p.weight_decay
    return best or any(one.code == "weight_decay_compared" for one in p.reasons)


def _limited_by(p: Plan) -> str:
    """Whether more data or more compute would help, and what repetition costs."""
    data, more = p.marginal_value.loss_if_twice_the_data, p.marginal_value.loss_if_twice_the_compute
    if data is None or more is None:
        return ""
    what = "data" if data < more else "compute"
    changes = {"twice the tokens": data, "twice the compute": more}
    known = {name: change for name, change in changes.items() if not _not_known(p, change)}
    if max(map(abs, known.values()), default=0.0) < 0.005:
        what = "neither" if known else "not known so far from what was trained"
    said = ", ".join(f"{name} {signed(change, 2)}" for name, change in known.items())
    said = f"{what}: {said}" if known else what
    if len(known) == 1:
        (other,) = changes.keys() - known.keys()
        said += f" ({other}: not known)"
    return f"{said}; overfitting costs {p.terms.overfitting:.2f}"


def _not_known(p: Plan, change: float | None) -> bool:
    """Whether more changes nothing only because the plan stays where something is known."""
    return p.first_guess is not None and change is not None and abs(change) < 0.0005


def _smaller(p: Plan) -> str:
    """What smaller models take for the same loss, or what they reach."""
    said = []
    for one in p.smaller_models:
        takes = f"takes {one.compute_ratio:.2f} times the compute for the same loss"
        reaches = takes if one.same_loss else f"reaches {one.loss:.3f} at best, with {_model(one)}"
        said.append(f"{one.smaller_by:.0%} smaller {reaches}")
    return "; ".join(said)


def _recipe(recipe: Recipe, own: OwnRecipe | None) -> str:
    rate, batch = recipe.learning_rate, f"{recipe.batch_sequences:,} x {recipe.sequence_length:,}"
    if own is not None and (own.learning_rate, own.batch_tokens) != (rate, recipe.batch_tokens):
        rate, batch = own.learning_rate, f"{own.batch_tokens:,.0f}"
    said = [recipe.optimizer.split(",")[0], f"lr {rate:.3g}", f"{batch} tokens a batch"]
    if recipe.warmup_ratio is not None:
        said.append(f"warm-up {recipe.warmup_ratio:.0%}")
    if recipe.schedule:
        said.append(recipe.schedule.split(",")[0].removesuffix(" of the peak"))
    if recipe.dropout is not None:
        said.append(f"dropout {recipe.dropout:g}" if recipe.dropout else "no dropout")
    said.append(f"EMA of weights {recipe.ema_decay:g}" if recipe.ema_decay else "")
    said.append(f"mean of the last {recipe.average_last} weights" if recipe.average_last else "")
    return ", ".join(filter(None, said))


def others_in_words(p: Plan) -> str:
    """What calibrations that know the question better recommend, and what others trained near here."""
    said = [f"{one.calibration} {_trained(one)} at {one.weight_decay:g}" for one in p.second_opinions]
    near = [
        f"{_trained(one)} at {one.weight_decay:g} ({one.corpus}, {short(one.unique_tokens)} tokens)"
        for one in p.published_trainings
    ]
    return "; ".join([*said, *([f"trained near here: {', '.join(near)}"] if near else [])])


def _trained(one: Any) -> str:
    return f"{short(one.params)} x {in_epochs(one.epochs).split()[0]}"


# -- words that several sentences share


def weight_decay_in_words(p: Plan | Prediction) -> str:
    """The weight decay to train with, in one's own recipe where that was given, and where the runs were tuned
    one by one.
    """
    own, tuned = p.own_recipe, p.tuned_weight_decays
    if tuned is not None:
        least, most = tuned
        found = f"{least:g} to {most:g} (" if own is None else f"{own.weight_decay:g} ({_range(own)}; "
        return f"{found}tuned in every run)"
    if own is None:
        return f"{p.weight_decay}"
    known_to = f"{_range(own)}; " if own.low <= own.weight_decay <= own.high else ""
    return f"{own.weight_decay:g} ({known_to}{p.weight_decay:g} as calibrated)"


def _range(tuned: TunedWeightDecay) -> str:
    return f"{tuned.low:.2g} to {tuned.high:.2g}"


def law_error(p: Plan) -> float:
    """Within which losses are as good: the law's own error or, where none was measured, the tolerance."""
    return p.flat_range.tolerance if p.predictive_uncertainty is None else p.predictive_uncertainty.error


def less_is_better(p: Plan) -> bool:
    """Whether the loss-minimising compute has a loss that is lower than the plan's by more than the law's
    error."""
    limit = p.loss_minimising_compute
    return limit is not None and p.overspent and p.loss - limit.loss > law_error(p)


def stops_at(p: Plan) -> LossMinimisingCompute | None:
    """At which compute to stop spending: told to who spends all, where less of it is better."""
    limit = p.loss_minimising_compute
    if limit is None or p.spend == CEILING or limit.flops > _MUCH_LESS * p.spent_flops:
        return None
    return limit if less_is_better(p) else None


def is_sharp(flat: FlatRange) -> bool:
    """Whether a flat range leaves next to nothing else to choose from."""
    return flat.epochs_max < flat.epochs_min * 1.05


def at_weight_decay(p: Plan, weight_decay: float | None) -> str:
    """At which weight decay something holds, where there are several."""
    return f" at weight decay {weight_decay}" if p.other_weight_decays and weight_decay is not None else ""


def _within(limited: bool) -> str:
    return " within your limits" if limited else ""


def _listed(words: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _model(at: Any) -> str:
    """Anything with a size and epochs."""
    return f"{short(at.params)} x {in_epochs(at.epochs)}"


def _models(count: int, at: Any, weight_decay: float) -> str:
    several = "" if count == 1 else f"{count} models of "
    return f"{several}{_model(at)} at weight decay {weight_decay:g}"


def _total(flops: float, cost: TotalCost, digits: int = 3) -> str:
    usd = cost.usd(flops)
    return f"{scientific(flops, digits)} FLOPs{'' if usd is None else f' ({dollars(usd)})'}"


def _twice_as_much(p: Plan, data: str, compute: str) -> tuple[str, str]:
    """What twice as much of either changes, and at which weight decay."""
    value = p.marginal_value
    changes = (
        (data, value.loss_if_twice_the_data, value.weight_decay_if_twice_the_data),
        (compute, value.loss_if_twice_the_compute, value.weight_decay_if_twice_the_compute),
    )
    first, last = (
        f"{what} leaves no plan"
        if change is None
        else f"what {what} would do is not known"
        if _not_known(p, change)
        else f"{what} would change the loss by {signed(change)}{at_weight_decay(p, decay)}"
        for what, change, decay in changes
    )
    return first, last


# -- reasons of one training

_MUCH_LESS = 0.95  # of the compute: whoever spends that much has not spent more


def _training_reasons(p: Plan, facts: Facts) -> dict[str, str]:
    """Where training one model is all that counts."""
    data, compute = _twice_as_much(p, "twice the data", "twice the compute")
    said = _budget(p, facts, data) | _along_compute(p, facts, data)
    tried, doubled = facts.setting.evidence.epochs[1], f"{data}, {compute}{_within(facts.bound.doubled)}"
    said |= _around_the_optimum(p, facts.bound, tried, doubled)
    said |= _weight_decay_reasons(p, facts, compared="instead" in said)
    if p.loss_minimising_compute is not None and (case := _measured_case(p, facts.asked.known)):
        said["measured_case"] = case
    weights = p.law_weights or {}
    heard = sorted((o for o in p.other_laws if weights.get(o.law, 0.0) >= HEARD), key=lambda o: o.params)
    if len(heard) > 1 and heard[-1].params >= 2.0 * heard[0].params:
        ends = [f"{o.law} ({weights[o.law]:.0%}) wants {_model(o)}" for o in (heard[0], heard[-1])]
        regret = max(heard[0].regret, heard[-1].regret)
        average = f"by their average that costs up to {regret:.3f} nats"
        said["forms_disagree"] = f"the forms disagree: {', '.join(ends)}; {average}."
    if facts.disagreement is not None:
        said["law_ends"] = disagreement_in_words(facts.disagreement)
    return said


def _budget(p: Plan, facts: Facts, data: str) -> dict[str, str]:
    """What the compute is, or that the law hardly expects the loss asked for, and what the rest could buy."""
    said: dict[str, str] = {}
    known, target = facts.asked.known, facts.asked.target
    if target is not None and p.loss > target + 1e-6:
        error = law_error(p)
        chance = 0.5 * math.erfc((p.loss - target) / error / math.sqrt(2))
        lowest = (
            f"The law's lowest loss with this data is {p.loss:.4f}, within its own error ({error:.3f} nats)"
        )
        reach = f"this plan, the best there is, may reach it with probability {chance:.0%}"
        said["target_within_error"] = f"{lowest} of {target:g}: {reach}."
    if p.spent_flops < _ALL * p.flops and p.marginal_value.loss_if_twice_the_data is not None:
        left = f"{scientific(p.unused_flops)} FLOPs are left"
        said["unused_compute"] = f"{left}. Data would help: within the same compute {data}."
    if (spare := p.spare_ensemble) is not None and known.members is not None:
        several = _models(spare.members, spare, spare.weight_decay)
        measured = f"; {known.members.source}" if known.members.source else ""
        gain = f"As an ensemble the compute could gain {p.loss - spare.loss:.3f} nats: {several}, averaged"
        between = f"{spare.level:.0%}: {spare.loss_low:.2f} to {spare.loss_high:.2f}"
        said["ensemble_instead"] = (
            f"{gain}, reach about {spare.loss:.3f} ({between}; ask for members{measured})."
        )
    unmeasured = known.members is None or known.members.borrowed is not None
    if _leaves_most(p) and spare is None and unmeasured:
        unknown = "The other known use of the rest is an ensemble, not measured for this calibration"
        if known.members is not None:
            unknown = (
                "The other known use of the rest is an ensemble, measured too far from here for a number"
            )
        said["ensemble_elsewhere"] = f"{unknown}: {ELSEWHERE}."
    return said


_OTHER_USES = (
    "What else was found to be worth data where compute is left: dropout, stronger weight decay, weight "
    "averaging, masked inputs, ensembles and distillation; what each gained, where, and with which caveat is "
    "in the manual (What else buys data)."
)


def _leaves_most(p: Plan) -> bool:
    """Whether most of the compute is left."""
    return 2 * p.unused_flops >= p.flops


def is_known(turn: TurningPoint, p: Plan, most_epochs: float) -> bool:
    """Whether a turning point is where a law says something: at no more compute than helps, and epochs that
    were tried.
    """
    limit = p.loss_minimising_compute
    return turn.epochs <= _PAST_THE_END * most_epochs and (limit is None or turn.flops <= limit.flops)


def _around_the_optimum(p: Plan, bound: Bound, most_epochs: float, doubled: str) -> dict[str, str]:
    """What other epochs, sizes, data and compute would do; a turning point is known to who set a limit on
    epochs.
    """
    said: dict[str, str] = {}
    flat, value = p.flat_range, p.marginal_value
    if p.epochs < 1 and not bound.plan:
        enough = f"{short(p.tokens)} tokens of the corpus are enough, none is repeated"
        said["data_plentiful"] = f"Data is plentiful for this budget: {enough}."
    if p.loss - p.continuous_loss > flat.tolerance:
        exact = f"{in_epochs(p.continuous_epochs)} would reach {p.continuous_loss:.4f}"
        costs = f"Whole epochs cost {p.loss - p.continuous_loss:.3f} nats here"
        said["whole_epochs_cost"] = f"{costs}: {exact} (ask for continuous epochs)."
    if (turn := p.turning_point) is not None and not bound.turn and is_known(turn, p, most_epochs):
        here = "past that point: extra compute goes into size, with fewer epochs"
        here = here if p.flops > turn.flops else "before that point"
        where = f"{scientific(turn.flops)} FLOPs ({in_epochs(turn.epochs)})"
        said["repetition_turns"] = f"More repetition stops paying at {where}; this budget is {here}."
    worth = "What more would do"
    if value.loss_per_token == 0:
        worth = "More unique tokens would not help here"
    elif value.flops_per_token is not None and p.spent_flops >= _ALL * p.flops:  # or else it has no price
        worth = f"One more unique token is worth {scientific(value.flops_per_token, 2)} FLOPs here"
    said["exchange_rate"] = f"{worth}: {doubled}."
    near = f"within {flat.tolerance:g} nats of it{_within(bound.flat)}"
    if not is_sharp(flat):
        epochs = f"{in_epochs(flat.epochs_min).split()[0]} to {in_epochs(flat.epochs_max)}"
        sizes = f"{short(flat.params_min)} to {short(flat.params_max)} parameters"
        said["flat_optimum"] = f"The optimum is flat: {epochs} ({sizes}) stay {near}."
    elif not bound.flat:  # limits that leave no choice are known to who set them
        said["sharp_optimum"] = f"The optimum is sharp: hardly another size or number of epochs is {near}."
    return said


def _along_compute(p: Plan, facts: Facts, data: str) -> dict[str, str]:
    """Up to which compute more of it helps, or that less would do. A plan within a ceiling that spends more
    than the loss-minimising compute does so on purpose: by the law's error both are as good.
    """
    limit, rival = p.loss_minimising_compute, facts.rival_best
    if limit is None or facts.held_back:  # what lies beyond is not known
        return {}
    within, at = _within(facts.bound.minimum), at_weight_decay(p, limit.weight_decay)
    where, how = f"{scientific(limit.flops)} FLOPs", f"with {_model(limit)}{at}"
    no_gain = "the law expects no gain from more compute with this recipe"
    until = "as far as the search goes"
    if limit.regained_flops:
        until = f"until about {scientific(limit.regained_flops, 2)}"
    if p.overspent and limit.flops <= _MUCH_LESS * p.spent_flops:
        if stops_at(p) is None:
            error = "the law's error" if p.predictive_uncertainty is not None else f"{law_error(p):g} nats"
            well = "better" if less_is_better(p) else f"as well ({limit.loss:.3f}, within {error})"
            return {"less_would_do": f"{where} would do {well}, {how}{within}."}
        stop = (
            f"Stop spending at {where}: {no_gain}{within}, {until} ({limit.loss:.4f} there {how}, "
            f"{p.loss:.4f} here); that saves {1 - limit.flops / p.flops:.0%} of the compute."
        )
        instead = [data] if p.marginal_value.loss_if_twice_the_data is not None else []
        if rival is not None and rival.loss < limit.loss:
            other = f"weight decay {p.other_weight_decays[0].weight_decay} reaches {rival.loss:.4f}"
            instead.insert(0, f"{other} at {scientific(rival.flops)} FLOPs with {_model(rival)}")
        return {"stop_spending": stop} | ({"instead": f"Instead: {'; '.join(instead)}."} if instead else {})
    if p.flops > limit.flops:
        return {"no_gain": f"Past {where}{at} {no_gain}{within}, {until}; this budget is beyond that."}
    helps = f"More compute helps up to {where} (loss {limit.loss:.4f}{at}){within}"
    return {"more_compute_helps": f"{helps}; beyond that the law expects no gain with this recipe, {until}."}


def _weight_decay_reasons(p: Plan, facts: Facts, *, compared: bool) -> dict[str, str]:
    """What the weight decay is worth where any can be had, what it is in one's own recipe, and what another
    would reach, unless one that was given has been `compared` already.
    """
    said, committed = _tuned_elsewhere(p, facts.asked.known), facts.asked.weight_decay is not None
    chosen, given = False, f"weight decay {p.weight_decay:g}"
    if (advice := p.weight_decay_advice) is not None:
        lasting = "" if advice.timescale_epochs is None else f" of {advice.timescale_epochs:.2g} epochs"
        chosen = advice.best_weight_decay == p.weight_decay
        if chosen and all(one.gain >= 0 for one in advice.gains):
            gains = [f"{one.gain:.3f} nats against {one.weight_decay:g}" for one in advice.gains]
            worth = f"a timescale{lasting}{f': worth {_listed(gains)}' if gains else ''}"
            said["best_weight_decay"] = f"{given.capitalize()} is the best of all for this budget, {worth}."
        if (own := advice.own_recipe) is not None:
            recipe = f"learning rate {own.learning_rate:g}, {own.batch_tokens:,.0f} tokens a step"
            source = f"a rule from {LABS} labs, which held nine of ten cells of labs it had not seen"
            said["own_recipe"] = (
                f"In your recipe ({recipe}) tuning is expected to find {_range(own)}: {source}."
            )
    return said if chosen or (compared and committed) else said | _weight_decay_compared(p, committed)


def _tuned_elsewhere(p: Plan, known: Calibration) -> dict[str, str]:
    """What tuned weight decays elsewhere were, and whether the law knows such."""
    if (tuned := p.tuned_elsewhere) is None:
        return {}
    place = f"{p.params / p.unique_tokens:.2g} parameters for each unique token in the recipe of this law"
    text, largest = (
        f"Tuned weight decays elsewhere point to {_range(tuned)} for {place}",
        known.weight_decay_range[1],
    )
    ends = f"; {largest:g} is the largest that it knows" if tuned.high > largest else ""
    return {"tuned_elsewhere": f"{text}{ends}."}


def _weight_decay_compared(p: Plan, committed: bool) -> dict[str, str]:
    """What the best other weight decay would reach; next to one that was given, only if it is better."""
    if not p.other_weight_decays:
        return {}
    rival = p.other_weight_decays[0]
    if not committed:
        best = f"At weight decay {p.weight_decay} the best loss is {p.loss:.4f}"
        other = f"at {rival.weight_decay} it would be {rival.predicted_loss:.4f}"
        if rival.predicted_loss < p.loss:
            other += ", further from all that was trained: not to be counted on as much"
        return {"weight_decay_compared": f"{best}; {other}."}
    if rival.predicted_loss >= p.loss:
        return {}
    calibrated = "" if p.own_recipe is None else " (as calibrated)"
    better = f"loss {rival.predicted_loss:.4f} instead of {p.loss:.4f}, with {_model(rival)}"
    return {
        "weight_decay_better": f"Weight decay {rival.weight_decay}{calibrated} would do better: {better}."
    }


def _measured_case(p: Plan, known: Calibration) -> str:
    """What was measured where the law was tried closest to this question, next to what the law says of it.

    A case is one amount of unique tokens at one weight decay, trained at several budgets as the law
    prescribes. The closest is chosen by what is asked (weight decay, then unique tokens) and never by how it
    came out.
    """
    cases: dict[tuple[float, float], dict[str, Trial]] = {}  # of each the trials by their compute
    for setting in known.settings:
        for trial in setting.trials:
            if trial.law == p.law:
                flops = scientific(trial.flops)
                cases.setdefault((setting.weight_decay, trial.unique_tokens), {})[flops] = trial
    several = [case for case, along in cases.items() if len(along) > 1]
    if not several:
        return ""
    decay, tokens = min(several, key=lambda case: (case[0] != p.weight_decay, abs(math.log(case[1] / p.ud))))
    law = known.setting(decay).law(p.law)
    rows = []
    for flops, trial in sorted(cases[decay, tokens].items(), key=lambda item: float(item[0])):
        losses = trial.loss, float(law.loss(trial.params, trial.unique_tokens, trial.epochs))
        model = f"{short(trial.params)} x {trial.epochs:g}"
        rows.append((flops, model, *(f"{perplexity(loss):.2f}" for loss in losses)))
    budgets, models, measured, expected = (_listed(column) for column in zip(*rows, strict=True))
    return (
        f"Tried with {short(tokens)} tokens at weight decay {decay}, with {budgets} FLOPs ({models}): "
        f"perplexity {measured} measured, {expected} predicted."
    )


def disagreement_in_words(found: FormDisagreement) -> str:
    """That a plan leaves the runs, by how much forms that count disagree there, and what would settle it."""
    ways = [f"{way.replace('size', 'model size')} ({factor:.2g}x)" for way, factor in found.beyond.items()]
    (least, low), (most, high), run = found.losses[0], found.losses[-1], found.run
    text = (
        f"The plan leaves the runs in {_listed(ways)}; there the forms disagree by {most - least:.3f} nats "
        f"({low} {least:.3f}, {high} {most:.3f}), "
        f"most of it by {found.mostly_by.replace('size', 'model size')}."
    )
    if run is None:
        return text
    return (
        f"{text} One run would settle it: {short(run.params)} parameters on {short(run.unique_tokens)} for "
        f"{in_epochs(run.epochs)} ({scientific(run.flops)} FLOPs, {run.flops / found.point.flops:.0%} of the "
        f"plan), where they differ by {found.run_nats:.3f}."
    )


# -- ensembles, serving, bought data


def _total_reasons(p: Plan, facts: Facts) -> dict[str, str]:
    """Where members, serving or bought data count."""
    said = _weight_decay_compared(p, committed=facts.asked.weight_decay is not None)
    cost, served, bought = facts.asked.cost, p.serving, p.purchase
    if served is not None:
        text = (
            f"Serving {short(served.tokens)} tokens takes {_total(served.rate * served.flops, cost)} and "
            f"training {_total(served.training_flops, cost)}"
        )
        alone = served.training_only
        if alone is not None and abs(alone.params / p.params - 1) > 0.01:
            text += (
                f"; what is best for training alone ({_models(1, alone, alone.weight_decay)}, loss "
                f"{alone.loss:.4f}) would cost {alone.total_flops / served.total_flops:.3g} times as much"
            )
        said["serving_cost"] = f"{text}."
    if bought is not None and bought.bought < _NOTHING * bought.owned:
        price = f"At ${bought.price:g} a token"
        said["data_bought"] = f"{price} buying data would not pay: compute is the better use."
    elif bought is not None:
        without, left = bought.nothing_bought, f"leaves {dollars(bought.compute_usd)} for compute"
        text = f"Buying {short(bought.bought)} unique tokens for {dollars(bought.usd)} {left}"
        text += "" if without is None else f"; without any the best loss would be {without.loss:.4f}"
        said["data_bought"] = f"{text}."
    data = "twice the data" if bought is None else "owning twice the tokens that you do"
    said["exchange_rate"] = f"What more would do: {', '.join(_twice_as_much(p, data, 'twice the total'))}."
    return said


def _foretold(found: EnsemblePlan) -> str:
    """How well more members were foretold from fewer, and where."""
    error = f"{found.most_members} members were foretold from fewer to {found.error:.3f} nats"
    return f"{error} (root mean square{f'; {found.source}' if found.source else ''})"


def _ensemble_reasons(p: Plan, cost: TotalCost) -> dict[str, str]:
    """One model against several, what several cost, and what distillation keeps of them."""
    said: dict[str, str] = {}
    if (found := p.members) is None:
        return said
    several, single = found.ensemble, found.single
    if single is not None and several is not None:
        gain = single.loss - several.loss
        models, one = (_models(some.members, some, some.weight_decay) for some in (several, single))
        said["ensemble_compared"] = (
            f"For the same total {models} reach {several.loss:.4f}, {'better' if gain > 0 else 'worse'} by "
            f"{abs(gain):.3f} nats than the best single model ({one}: {single.loss:.4f}); {_foretold(found)}."
        )
        if gain > 0 and found.count == 1:
            said["ensemble_compared"] += " At the lower end of what averaging may gain, one model is better."
    if found.start_flops is not None:
        start = f"Stop growing the model and start an ensemble at about {_total(found.start_flops, cost, 2)}"
        said["ensemble_starts"] = f"{start}: from there on several are expected to be better than one."
    if several is None or found.count == 1:
        return said
    alone = f"One of the members alone would reach {found.member_loss:.4f}"
    said["ensemble_limit"] = f"{alone}, infinitely many {found.limit_loss:.4f}."
    if (cheap := found.cheapest_as_good) is not None:
        said["ensemble_limit"] += (
            f" {_models(cheap.members, cheap, cheap.weight_decay)} are within the law's error of "
            f"{several.members} and take {percent(cheap.total_flops / several.total_flops)} of that total "
            f"({cheap.loss:.4f})."
        )
    times = f"Serving {several.members} members takes {several.members} times the memory and compute of one"
    weights, served = in_bytes(found.weights_bytes), scientific(found.flops_per_token)
    said["ensemble_cost"] = f"{times}: {weights} of weights in bf16 and {served} FLOPs a token."
    takes = 1 + several.members / 3  # predicting is a third of training
    teaching = f"Trained as long as a member it takes up to {takes:.2g} times the compute of one."
    if (kept := found.distilled) is not None and kept.kept_between is not None:
        low, high = kept.kept_between
        said["distilled"] = (
            f"Distilled into one model of {short(several.params)} it may keep {low:.0%} to {high:.0%} of the "
            f"gain over the best single one, as {kept.members} members did where that was measured: about "
            f"{kept.loss:.2f}, or {kept.loss_low:.2f} to {kept.loss_high:.2f} by these shares and the "
            f"interval of the gain. {teaching}"
        )
    elif kept is not None:
        said["distilled"] = (
            f"Distilled into one model of {short(several.params)} it may keep {kept.kept:.0%} of the gain "
            f"over the best single one, as {kept.members} members did where measured: about {kept.loss:.3f}. "
            f"{teaching}"
        )
    return said


# -- warnings

# Of all cautions, where there is no room for them.
WEIGHTIEST = ("worse_than_uniform", "serving_leaves_little", "small_batch_per_gpu", "corpus")
_EXTRAPOLATED = re.compile(r"(.+?)( that .+ was fitted on) (\(.+\)): this is an extrapolation\.")


def cautions(p: Plan) -> list[str]:
    """The warnings of a plan, those that weigh most first, and what was said of several extrapolations in
    one sentence.
    """
    ranked = sorted(p.warnings, key=lambda one: (*WEIGHTIEST, one.code).index(one.code))
    outside = [one for one in ranked if _EXTRAPOLATED.fullmatch(one)]
    if len(outside) < 2:
        return [str(one) for one in ranked]
    found = [match.groups() for one in outside if (match := _EXTRAPOLATED.fullmatch(one)) is not None]
    same = len({what for _, what, _ in found}) == 1  # what was fitted, said once
    each = [f"{how}{'' if same else what} {end}" for how, what, end in found]
    together = f"{_listed(each)}{found[0][1] if same else ''}: an extrapolation."
    return [together if one is outside[0] else str(one) for one in ranked if one not in outside[1:]]


_FEW_TOKENS = 4096  # a step and GPU, below which GPUs mostly wait


def _warnings(p: Plan, facts: Facts) -> dict[str, str]:
    """What to be careful about."""
    said = _point_warnings(facts.asked.known, facts.setting, p, p.ud) | _shape_warnings(p, facts)
    count = 1 if p.members is None else p.members.count
    said |= _weight_decay_warnings(p, facts)
    said |= _member_warnings(facts.asked.known, count, p, p.weight_decay)
    corpus = facts.asked.known.corpus.split(";")[0].strip() or f"the runs of {facts.asked.known.name}"
    said["corpus"] = f"Fitted on {corpus}, from scratch; not for fine-tuning or continued pretraining."
    if (bill := p.cost) is not None and p.recipe is not None and bill.gpus > 1:
        batch = p.recipe.batch_tokens if p.own_recipe is None else p.own_recipe.batch_tokens
        if (each := batch / bill.gpus) < _FEW_TOKENS:
            enough = max(math.floor(batch / _FEW_TOKENS), 1)
            said["small_batch_per_gpu"] = (
                f"A batch of {batch:,.0f} tokens is {each:,.0f} a step for each of {bill.gpus} {bill.gpu}s, "
                f"which will mostly wait for each other and take longer than the time above: {enough} would "
                f"do, or a larger batch (batch_tokens)."
            )
    if not facts.single:
        total = p.flops - p.unused_flops
        needs = _serving_needs(facts.setting, facts.asked.cost, count, p.params, total, p.flops)
        if needs is not None and needs[1] > p.flops:
            said["serving_leaves_little"] = needs[0]
    return said


def _shape_warnings(p: Plan, facts: Facts) -> dict[str, str]:
    """Whether the model is one that the laws know, that people build and that fits into memory."""
    said: dict[str, str] = {}
    known, shape, bill = facts.asked.known, p.architecture, p.cost
    vocab = facts.vocab_size or known.vocab_size or DEFAULT_VOCAB
    if facts.vocab_size is None and known.vocab_size is None:
        unknown = f"calibration {known.name} does not say its vocabulary"
        said["vocabulary_unknown"] = f"{unknown}: the model shape assumes {vocab:,} rows."
    elif known.vocab_size not in (None, vocab):
        other = f"the laws were fitted with a vocabulary of {known.vocab_size:,} and not {vocab:,}"
        said["vocabulary_differs"] = f"{other}: losses per token are then not comparable."
    if facts.shape_problem is not None:
        said["no_shape"] = facts.shape_problem
    if shape is not None and (shape.layers > shape.d_model or shape.d_head < 8):
        built = f"nobody trains such a shape (d_model {shape.d_model}, {shape.layers} layers)"
        left = f"{short(shape.non_embedding_params)} of {short(shape.params)} parameters for its layers"
        rows = f"a vocabulary of {shape.vocab_size:,} leaves {left}"
        said["absurd_shape"] = f"{built}: {rows}; a smaller vocabulary would do."
    if bill is not None and bill.memory is not None and not bill.memory.trainable_on(bill.gpus):
        more = " or more accelerators" if bill.memory.devices_needed else ""
        takes = f"training takes {in_bytes(bill.memory.total)} and {bill.fits(bill.gpu)}"
        said["memory"] = f"{takes}: a smaller model (max_params){more} would do."
    return said


def _translated(p: Plan, own: OwnRecipe) -> str:
    """What the weight decay of a recipe stands for, and what the law does not know of that recipe."""
    said, known = [], p.recipe is not None and (p.recipe.learning_rate, float(p.recipe.batch_tokens))
    if (tuned := p.tuned_weight_decays) is not None:
        best = f"each run behind the law was tuned, to weight decays of {tuned[0]:g} to {tuned[1]:g}"
        said.append(f"{best}; for this plan a rule expects {_range(own)}, so try more than one.")
    elif own.weight_decay != p.weight_decay:
        taken = f"weight decay {own.weight_decay:g} in your recipe stands for {p.weight_decay:g}"
        tried = f"tuning is known to {_range(own)} only, so try more than one"
        said.append(f"{taken} as calibrated; {tried}.")
    if p.tuned_weight_decays is None or known != (own.learning_rate, own.batch_tokens):
        said.append("Loss, interval and epochs are the law's, which does not know your recipe.")
    if own.rounded_from is not None:
        said.append(
            f"{own.rounded_from:,.0f} tokens a step are taken as {own.batch_tokens:,.0f}, whole sequences."
        )
    return " ".join(said)


def _weight_decay_warnings(p: Plan, facts: Facts) -> dict[str, str]:
    """Where a weight decay was not calibrated as it stands, or may not be the best."""
    said: dict[str, str] = {}
    chances = p.weight_decay_probabilities
    if (advice := p.weight_decay_advice) is not None:
        own, lasts, calibrated = advice.own_recipe, advice.timescale_epochs, advice.calibrated_timescale
        if own is not None:
            said["translated"] = _translated(p, own)
        if lasts is not None and calibrated is not None and not calibrated[0] <= lasts <= calibrated[1]:
            outside = f"outside of the {calibrated[0]:.2g} to {calibrated[1]:.2g} that were calibrated"
            said["outside_timescale"] = f"AdamW's timescale would be {lasts:.2g} epochs here, {outside}."
        ends = facts.asked.known.weight_decay_range
        if advice.best_weight_decay in ends:
            best = (
                f"the {'weakest' if advice.best_weight_decay == ends[0] else 'strongest'} of those calibrated"
            )
            said["end_of_range"] = f"the best weight decay is {best}: beyond it may lie a better one."
    if facts.asked.weight_decay is None and chances and max(chances.values()) < _NAMED:
        ranked = sorted(chances, key=chances.__getitem__, reverse=True)[:4]
        shown = ", ".join(f"{decay} with probability {chances[decay]:.0%}" for decay in ranked)
        undecided = f"which weight decay is best is open: {shown}"
        said["weight_decay_open"] = f"{undecided}; more runs of these would settle it."
    return said


def _point_warnings(known: Calibration, setting: Setting, point: Plan | Point, ud: float) -> dict[str, str]:
    """What there is to say of any size and epochs on a corpus, and of the loss predicted for them."""
    part = ud * min(point.epochs, 1.0)
    said = outside_the_runs(setting, point.params, part, point.epochs)
    if point.loss > known.uniform_loss:
        above = f"the predicted loss {point.loss:.4g} is above the uniform one ({known.uniform_loss:.3g})"
        said["worse_than_uniform"] = f"{above}: no law describes such a plan."
    if starved := known.starved_of_steps(ud * point.epochs):
        said["starved_of_steps"] = (
            f"{starved}: expect a higher loss than this, or train with a smaller batch."
        )
    if setting.between is not None:
        low, high = setting.between
        between = f"weight decay {setting.weight_decay:g} is interpolated between {low:g} and {high:g}"
        said["interpolated"] = f"{between}: each term of the loss is a straight line in ln(weight decay)."
    return said


def outside_the_runs(setting: Setting, params: float, unique_tokens: float, epochs: float) -> dict[str, str]:
    """One sentence, by its code, for each quantity that lies outside of what the law, or its cost of
    repetition, was fitted on, with by how much: of the two, outside of the one that it is further from; and
    whether trainings tested it there.
    """
    found, fitted, repeats = {}, setting.fitted_on, epochs > 1
    passes = (0.0, fitted.epochs[1])  # below one epoch nothing repeats: that is inside every fit
    tokens, repeated_tokens = fitted.unique_tokens, fitted.repeated_unique_tokens
    for field, name, value, of_law, of_repetition in (
        ("params", "model size", params, fitted.params, fitted.repeated_params),
        ("unique_tokens", "unique tokens", unique_tokens, tokens, repeated_tokens),
        ("epochs", "number of epochs", epochs, passes, None),
    ):
        ranges = {"the law": of_law}
        if repeats and of_repetition is not None:
            ranges["the cost of repetition"] = of_repetition
        factor, what = max((max(value / high, low / value), what) for what, (low, high) in ranges.items())
        if factor <= 1.005:
            continue
        (low, high), above = ranges[what], value > ranges[what][1]
        said, end = (f"{x:,.0f}" if field == "epochs" else short(x) for x in (value, high if above else low))
        known = above and _tested(setting, field, value, repeats)
        found[f"outside_{field}"] = (
            f"{name} {said} is {_times_outside(factor, above)} that {what} was fitted on ({end}): "
            f"{known or 'this is an extrapolation'}."
        )
    if not found and setting.evidence.from_nearest_cell(params, unique_tokens, epochs) > 0:
        found["outside_together"] = (
            f"size, data and epochs are inside of what was trained, but nothing within a factor of "
            f"{TOGETHER:g} of all three was: this is an extrapolation."
        )
    return found


def _tested(setting: Setting, field: str, value: float, repeats: bool) -> str | None:
    """That trainings tested the law there, of repeated tokens or of fresh ones; None where none did."""
    tested = max((getattr(one, field) for one in setting.trials if (one.epochs > 1) == repeats), default=0.0)
    return f"tested by trainings up to {short(tested)}" if value <= tested else None


def _times_outside(factor: float, above: bool) -> str:
    if factor >= 2:
        times = f"{factor:,.0f}" if factor >= 1000 else f"{factor:.3g}"
        return f"{times} times {'the largest' if above else 'below the smallest'}"
    return f"{factor - 1:.0%} above the largest" if above else f"{1 - 1 / factor:.0%} below the smallest"


def _member_warnings(known: Calibration, count: int, at: Plan | Point, weight_decay: float) -> dict[str, str]:
    """Where an ensemble leaves what was trained to calibrate its gain."""
    said: dict[str, str] = {}
    averaging, recipe = known.members, known.recipe
    if count == 1 or averaging is None or recipe is None:
        return said
    fitted, timescale = averaging.fitted_on, recipe.timescale_tokens(weight_decay) / at.unique_tokens
    places = [
        ("model size", at.params, fitted.params, short),
        ("unique tokens", at.unique_tokens, fitted.unique_tokens, short),
        ("epochs", max(at.epochs, 1.0), fitted.epochs, "{:.3g}".format),
        ("AdamW's timescale in epochs", timescale, fitted.timescale_epochs, "{:.2g}".format),
    ]
    if averaging.borrowed is not None:  # the rest is relative to one model, and its doubt is in the interval
        places = places[:2]
    slack = 1e-9 if averaging.borrowed is None else 0.2  # within which nobody would notice
    outside = [
        f"{name} {show(value)} (trained: {show(low)}{'' if low == high else f' to {show(high)}'})"
        for name, value, (low, high), show in places
        if not low * (1 - slack) <= value <= high * (1 + slack)
    ]
    if outside:
        not_measured = f"what averaging gains was not measured here: {'; '.join(outside)}"
        said["outside_members"] = f"{not_measured}. It is taken to grow no further."
    if count > averaging.most_members:
        more = f"{count} members are more than the {averaging.most_members} that were trained"
        said["more_members"] = f"{more}: their gain is extrapolated."
    return said


def prediction_warnings(known: Calibration, setting: Setting, point: Point, members: int = 1) -> list[Remark]:
    """What to be careful about with the prediction of one configuration, or of several such models."""
    said = _point_warnings(known, setting, point, point.unique_tokens)
    said |= _member_warnings(known, members, point, setting.weight_decay)
    return _remarks(said, setting.warnings)


def comparison_warnings(known: Calibration, rows: Sequence[Alternative]) -> list[Remark]:
    """Where what laws recommend is larger, or repeats more, than all that was trained."""
    seen = Evidence.of(known.settings)
    said: dict[str, str] = {}
    if max(row.params for row in rows) > _PAST_THE_END * seen.params[1]:
        said["outside_params"] = f"models above {short(seen.params[1])} parameters"
    if max(row.epochs for row in rows) > _PAST_THE_END * seen.epochs[1]:
        said["outside_epochs"] = f"more than {in_epochs(seen.epochs[1])}"
    stays = "nothing such was tried; `planner plan` stays near what was"
    return _remarks({code: f"{text[0].upper()}{text[1:]}: {stays}." for code, text in said.items()})


def crossover_warnings(known: Calibration, places: Mapping[float, Point]) -> list[Remark]:
    """Where the plans between which a crossover decides leave what was fitted."""
    said: dict[str, str] = {}
    for decay, point in places.items():
        part = point.unique_tokens * min(point.epochs, 1.0)
        outside = outside_the_runs(known.setting(decay), point.params, part, point.epochs)
        said = {code: f"at C× and weight decay {decay}, {text}" for code, text in outside.items()} | said
    return _remarks(said)


# -- crossovers


def single_setting_note(known: Calibration, form: str) -> str:
    """Why there is no crossover to speak of."""
    decays = [str(setting.weight_decay) for setting in known.settings if setting.has(form)]
    if not decays:
        return f"calibration {known.name} has no {form}"
    return f"calibration {known.name} has {form} at one weight decay only ({decays[0]})"


class Doubt(NamedTuple):
    """What draws say of a crossing: whether it can be named, and how many cross between which computes."""

    named: bool = True
    share: float = 1.0
    between: tuple[float, float] = (0.0, 0.0)


def crossover_note(c: Crossover, doubt: Doubt, *, searched: bool, changed: bool) -> str:
    """Which of two weight decays is better where; whether both have a plan anywhere, and limits change it."""
    span = f"between {scientific(c.searched[0])} and {scientific(c.searched[1])} FLOPs"
    worse = c.stronger if c.better_below == c.weaker else c.weaker
    if not doubt.named:
        note = f"{c.weaker} and {c.stronger} are not told apart by the runs"
    elif not searched:
        note = "the limits leave no compute at which both weight decays have a plan"
    elif c.better_below is None:
        note = f"weight decay {c.weaker} and {c.stronger} are equally good {span}"
    elif not c.crossings:
        note = f"no crossover {span}: weight decay {c.better_below} is better than {worse} throughout"
    elif len(c.crossings) == 1:
        below = f"weight decay {c.better_below} is better below {scientific(c.crossings[0])} FLOPs"
        note = f"{below}, {worse} above"
    else:
        places = ", ".join(scientific(flops) for flops in c.crossings)
        note = f"the better weight decay changes {len(c.crossings)} times, at {places} FLOPs; "
        note += f"the lowest compute belongs to {c.better_below}"
        if c.crossover_flops is not None:
            note += f"; C× is {scientific(c.crossover_flops)}, from which {c.stronger} is better"
    if doubt.share < 0.975:
        low, high = (scientific(end, 2) for end in doubt.between)
        note += f"; {1 - doubt.share:.0%} of the draws do not cross between {low} and {high}"
    if c.limits.size is not None:  # for which plans it holds
        few = "" if c.limits.max_epochs is None else f" and at most {in_epochs(c.limits.max_epochs)}"
        return f"{note} (for models of {short(c.limits.size)} parameters{few})"
    return f"{note} (within your limits)" if changed else note


# -- why there is no plan


def _serving_needs(
    setting: Setting, cost: TotalCost, members: int, params: float, total: float, ceiling: float
) -> tuple[str, float] | None:
    """Why serving leaves only a model below all that were fitted, and what the smallest would take."""
    smallest = setting.fitted_on.params[0]
    served, needed = (cost.serve_rate * float(cost.serving(members, one)) for one in (params, smallest))
    if params >= smallest or served < 0.5 * total:
        return None
    text = (
        f"serving {short(cost.serve_tokens)} tokens leaves no room for a model: the smallest that was fitted "
        f"({short(smallest)}) would take {_total(needed, cost)} to serve, {needed / ceiling:,.3g} times all "
        f"that there is."
    )
    return text, needed


def check_serving(known: Calibration, cost: TotalCost, found: Found, ceiling: float) -> None:
    """Refuse to serve so much that only a model can be paid that no law describes."""
    setting, point = known.setting(found.weight_decay), found.point
    needs = _serving_needs(setting, cost, found.members, point.params, point.flops, ceiling)
    if needs is not None and point.loss > known.uniform_loss:
        raise InvalidInput(f"({scientific(cost.serve_tokens)}) is too many: {needs[0]}", field="serve_tokens")


def cannot_be_paid(cost: TotalCost, ceiling: float, limits: Limits) -> InvalidInput:
    what = "training and serving" if cost.serve_tokens else "training"
    return InvalidInput(
        f"({scientific(ceiling)}) pays for no plan{_within(limits.bounded)}: {what} must fit into it; "
        f"give more, or widen ‹min_params›, ‹max_params›, ‹max_epochs› or ‹members›.",
        field="flops",
    )


def cannot_be_reached(
    target: float,
    ud: float,
    lowest: Found | None,
    limits: Limits,
    needed: float | None = None,
    irreducible: float | None = None,
) -> InvalidInput:
    """What the lowest loss with this data is and, where that was looked for, how much data would do."""
    within, says = _within(limits.bounded), "the limits leave no plan"
    if lowest is not None:
        models = _models(lowest.members, lowest.point, lowest.weight_decay)
        models += f", {scientific(lowest.point.flops)} FLOPs"
        says = f"the lowest loss is {lowest.point.loss:.4f} ({models})"
    if needed is not None:
        says += f"; about {short(needed)} would do"
    elif irreducible is not None:
        why = f": the law's irreducible loss is {irreducible:.4f}" if target <= irreducible else within
        says += f", and no amount of data would do{why}"
    data = f"{short(ud)} unique tokens{within}"
    return InvalidInput(f"({target:g}) cannot be reached with {data}: {says}.", field="target_loss")
