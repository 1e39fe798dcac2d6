"""The advice in sentences: why this plan, what it costs to leave it, and what to do instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from planner import units
from planner.advice import Turn
from planner.calibration_files import Calibration, Setting
from planner.intervals import normal_share
from planner.limits import CEILING
from planner.remarks import Remark
from planner.results import Findings

_MUCH_LESS = 0.95  # of the compute: whoever spends that much has not spent more
_ONE_PLACE = 1.2  # sizes or amounts of data within this factor show nothing of what more of it does


class Bound(NamedTuple):
    """What limits on size and epochs change: which figures would be others without them."""

    plan: bool = False
    limit: bool = False  # the spending limit
    doubled: bool = False  # what twice the data or compute buys
    flat: bool = False  # the flat range
    turn: bool = False  # the turning point


def verdict(p: Findings, setting: Setting, *, limited: bool) -> str:
    """The answer, in a sentence or two: what to train, where that is less than all how much of the compute it
    takes, and whether it rests on runs at all.
    """
    size, passes = units.short(p.params), units.epochs(p.epochs)
    train = f"Train {size} for {passes} at weight decay {weight_decay_in_words(p)}."
    train += first_guess(p, setting)
    share = p.spent_flops / p.flops
    if share > 0.995:
        return train
    why = (
        "your limits leave no better use for the rest"
        if limited
        else "with this recipe the law expects no gain from more"
        + (" beyond its own error" if _regained(p) else "")
    )
    return f"{train} That takes {units.percent(share)} of your compute; {why}."


def first_guess(p: Findings, setting: Setting) -> str:
    """A sentence on what the plan depends on and its runs cannot have shown; nothing where there is nothing.

    What was interpolated has no runs of its own: `fitted_on` is what two weight decays share.
    """
    fitted, tokens = setting.fitted_on, p.ud * min(p.epochs, 1.0)
    said = []
    if setting.between is None and _elsewhere(p.params, fitted.params):
        said.append(f"what model size does (all have about {_middle(fitted.params)} parameters)")
    if setting.between is None and _elsewhere(tokens, fitted.unique_tokens):
        said.append(f"what data is worth (all have about {_middle(fitted.unique_tokens)} unique tokens)")
    if p.epochs > 1 and setting.rests_on_prior("repetition"):
        said.append("what repetition costs")
    listed = " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:])))
    return f" That is a first guess: the runs behind it hardly show {listed}." if said else ""


def _middle(fitted: tuple[float, float]) -> str:
    return units.short(math.sqrt(fitted[0] * fitted[1]))


def _elsewhere(value: float, fitted: tuple[float, float]) -> bool:
    """Whether all runs are in one place, and this is not it."""
    low, high = fitted
    return high < _ONE_PLACE * low and not low / _ONE_PLACE <= value <= high * _ONE_PLACE


def reasons(
    p: Findings, *, committed: bool, bound: Bound, rival_best: Turn | None, tried: Sequence[Remark] = ()
) -> list[Remark]:
    """Most useful first. `committed`: the weight decay was given; `bound`: what limits change; `rival_best`:
    the best that another weight decay reaches with at most this compute; `tried`: what was measured where
    more compute was tried.
    """
    said = [*_unused(p), *_as_good(p)]
    stop = _stop_spending(p, bound, rival_best)
    if stop:
        said += [*stop, *tried]
    if p.epochs < 1 and not bound.plan:
        enough = f"{units.short(p.tokens)} tokens of the corpus are enough, none is repeated"
        said.append(Remark("data_plentiful", f"Data is plentiful for this budget: {enough}."))
    said += [*_whole_epochs(p), *_dial(p)]
    chosen = p.dial is not None and p.dial.best_weight_decay == p.weight_decay
    instead = any(one.code == "instead" for one in stop)
    if not (instead and committed) and not chosen:  # that has said it already, or the dial
        said += weight_decay_compared(p, committed)
    said += overfitting_cost(p)
    if not stop:
        said += [*_headroom(p, bound, committed), *tried]
    if not bound.turn:  # a limit on epochs is where repetition stops, and known to who set it
        said += _repetition(p)
    said.append(_worth(p, bound))
    if not (bound.flat and p.flat_range.sharp):  # limits that leave no choice are known to who set them
        said.append(_flatness(p, bound))
    return said


def _whole_epochs(p: Findings) -> list[Remark]:
    """What it costs that epochs are whole, where that is more than the tolerance."""
    cost = p.loss - p.continuous_loss
    if cost <= p.flat_range.tolerance:
        return []
    text = (
        f"Whole epochs cost {cost:.3f} nats here: {units.epochs(p.continuous_epochs)} would reach "
        f"{p.continuous_loss:.4f} (ask for continuous epochs)."
    )
    return [Remark("whole_epochs_cost", text)]


def _within(limited: bool) -> str:
    return " within your limits" if limited else ""


def weight_decay_in_words(p: Findings) -> str:
    """The weight decay to train with, in one's own recipe where that was given."""
    own = p.own_recipe
    return f"{p.weight_decay}" if own is None else f"{own.weight_decay:g} ({p.weight_decay:g} as calibrated)"


def _dial(p: Findings) -> list[Remark]:
    """What the weight decay is worth where any can be had, and what it is in one's own recipe."""
    if p.dial is None:
        return []
    said, memory = [], ""
    if p.dial.memory_epochs is not None:
        memory = f" of {p.dial.memory_epochs:.2g} epochs"
    if p.dial.best_weight_decay == p.weight_decay and all(one.gain >= 0 for one in p.dial.worth):
        gains = [f"{one.gain:.3f} nats against {one.weight_decay:g}" for one in p.dial.worth]
        worth = f": worth {' and '.join(gains)}" if gains else ""
        text = f"Weight decay {p.weight_decay:g} is the best of all for this budget, a memory{memory}{worth}."
        said.append(Remark("best_weight_decay", text))
    own = p.own_recipe
    if own is not None:
        text = (
            f"In your recipe (learning rate {own.learning_rate:g}, {own.batch_tokens:,.0f} tokens a step) "
            f"weight decay {p.weight_decay:g} is {own.weight_decay:g}: the same memory{memory}."
        )
        said.append(Remark("own_recipe", text))
    return said


def overfitting_cost(p: Findings) -> list[Remark]:
    """What repeated tokens cost, where that is noticeable."""
    if p.terms.overfitting < 0.0005:
        return []
    text = f"Overfitting on repeated tokens costs {p.terms.overfitting:.3f} nats of the {p.loss:.3f}."
    return [Remark("overfitting_cost", text)]


def target_reason(p: Findings, target_loss: float) -> Remark:
    """What the compute of a plan for a loss is, or that the law hardly expects this loss."""
    least = units.scientific(p.spent_flops)
    if p.loss <= target_loss + 1e-6:
        text = f"No less than {least} FLOPs are expected to reach a loss of {target_loss:g} with this data."
        return Remark("least_compute", text)
    assert p.sureness is not None
    short, chance = p.loss - target_loss, normal_share((target_loss - p.loss) / p.sureness.error)
    text = (
        f"The law does not expect a loss of {target_loss:g} from this data: its lowest is {p.loss:.4f}, "
        f"{short:.3f} above. That is within its own error ({p.sureness.error:.3f} nats), "
        f"so this plan, the best there is, may reach it with {chance:.0%}."
    )
    return Remark("target_within_error", text)


def _as_good(p: Findings) -> list[Remark]:
    """Which cheaper plan cannot be told from this one."""
    cheap = p.cheapest_as_good
    if cheap is None:
        return []
    text = (
        f"{units.short(cheap.params)} x {units.epochs(cheap.epochs)} cannot be told from it and takes "
        f"{units.percent(cheap.flops / p.spent_flops)} of its compute (loss {cheap.loss:.4f})."
    )
    return [Remark("cheaper_as_good", text)]


def _unused(p: Findings) -> list[Remark]:
    """What the compute that is not spent could buy."""
    if p.spent_flops >= 0.995 * p.flops or p.marginal_value.loss_if_twice_the_data is None:
        return []
    change = units.signed(p.marginal_value.loss_if_twice_the_data)
    text = (
        f"{units.scientific(p.unused_flops)} FLOPs are left. Data would help: "
        f"with twice the unique tokens the loss would change by {change} within the same compute"
        f"{at_weight_decay(p, p.marginal_value.weight_decay_if_twice_the_data)}."
    )
    return [Remark("unused_compute", text)]


def less_is_better(p: Findings) -> bool:
    """Whether the spending limit has a loss that is lower than the plan's by more than the law's error."""
    limit = p.spending_limit
    return limit is not None and p.overspent and p.loss - limit.loss > law_error(p)


def law_error(p: Findings) -> float:
    """Within which losses are as good: the law's own error or, where none was measured, the tolerance."""
    return p.flat_range.tolerance if p.sureness is None else p.sureness.error


def _stop_spending(p: Findings, bound: Bound, rival_best: Turn | None) -> list[Remark]:
    """What less compute would do, where its loss is lower. A plan within a ceiling that spends more does so
    on purpose: by the law's error both are as good.
    """
    limit = p.spending_limit
    if limit is None or not p.overspent or limit.flops > _MUCH_LESS * p.spent_flops:
        return []
    where = f"{units.scientific(limit.flops)} FLOPs"
    how = (
        f"with {units.short(limit.params)} parameters and {units.epochs(limit.epochs)}"
        f"{at_weight_decay(p, limit.weight_decay)}"
    )
    if not less_is_better(p):
        error = "the law's error" if p.sureness is not None else f"{law_error(p):g} nats"
        text = f"{where} would do as well ({limit.loss:.3f}, within {error}), {how}{_within(bound.limit)}."
        return [Remark("less_would_do", text)]
    if p.spend == CEILING:
        text = f"{where} would reach {limit.loss:.4f}, {how}{_within(bound.limit)}."
        return [Remark("less_would_do", text)]
    text = (
        f"Stop spending at {where}: with {units.short(p.ud)} unique tokens and this recipe "
        f"the law expects no gain from more compute{_within(bound.limit)} ({limit.loss:.4f} there {how}, "
        f"{p.loss:.4f} here); that saves {1 - limit.flops / p.flops:.0%} of the compute."
    )
    if limit.regained_flops is not None:
        regained = units.scientific(limit.regained_flops, 2)
        text += f" Only from about {regained} FLOPs on would the loss be lower again."
    instead = []
    if rival_best is not None and rival_best.loss < limit.loss:
        decay = p.other_weight_decays[0].weight_decay
        instead.append(
            f"weight decay {decay} reaches {rival_best.loss:.4f} "
            f"at {units.scientific(rival_best.flops)} FLOPs "
            f"with {units.short(rival_best.params)} parameters and {units.epochs(rival_best.epochs)}"
        )
    if p.marginal_value.loss_if_twice_the_data is not None:
        instead.append(
            f"twice the unique tokens would change the loss "
            f"by {units.signed(p.marginal_value.loss_if_twice_the_data)}"
            f"{at_weight_decay(p, p.marginal_value.weight_decay_if_twice_the_data)}"
        )
    said = [Remark("stop_spending", text)]
    return [*said, Remark("instead", f"Instead: {'; '.join(instead)}.")] if instead else said


def weight_decay_compared(p: Findings, committed: bool) -> list[Remark]:
    """What the best other weight decay would reach; next to one that was given, only if it is better."""
    if not p.other_weight_decays:
        return []
    rival = p.other_weight_decays[0]
    if not committed:
        return _rival_weight_decay(p)
    if rival.predicted_loss >= p.loss:
        return []
    calibrated = " (as calibrated)" if p.own_recipe is not None else ""
    text = (
        f"Weight decay {rival.weight_decay}{calibrated} would do better: "
        f"loss {rival.predicted_loss:.4f} instead of {p.loss:.4f}, "
        f"with {units.short(rival.params)} parameters and {units.epochs(rival.epochs)}."
    )
    return [Remark("weight_decay_better", text)]


def _rival_weight_decay(p: Findings) -> list[Remark]:
    """What the best other weight decay would reach."""
    if not p.other_weight_decays:
        return []
    rival = p.other_weight_decays[0]
    text = (
        f"At weight decay {p.weight_decay} the best loss is {p.loss:.4f}; "
        f"at {rival.weight_decay} it would be {rival.predicted_loss:.4f}."
    )
    return [Remark("weight_decay_compared", text)]


def _regained(p: Findings) -> bool:
    """Whether the budget is so large that the law expects a gain from all of it again, however small."""
    limit = p.spending_limit
    return limit is not None and limit.regained_flops is not None and limit.regained_flops < p.flops


def _headroom(p: Findings, bound: Bound, committed: bool) -> list[Remark]:
    limit = p.spending_limit
    if limit is None:
        return []
    at = at_weight_decay(p, limit.weight_decay)
    until = (
        f"until about {units.scientific(limit.regained_flops, 2)}"
        if limit.regained_flops
        else "as far as the search goes"
    )
    where = f"{units.scientific(limit.flops)} FLOPs"
    if p.flops > limit.flops:
        no_gain = f"Past {where}{at} the law expects no gain from more compute with this recipe"
        here = "this budget is beyond that"
        if _regained(p):
            little = ", by less than its own error" if p.spent_flops < 0.995 * p.flops else ""
            here += f", where it expects a lower loss again{little}"
        text = f"{no_gain}{_within(bound.limit)}, {until}; {here}."
        return [Remark("no_gain", text)]
    more = "More compute" if p.spent_flops > 0.995 * p.flops else "More compute than this budget"
    reached = f"loss {limit.loss:.4f}{'' if committed else at}"
    text = (
        f"{more} helps up to {where} ({reached}){_within(bound.limit)}; "
        f"beyond that the law expects no gain with this recipe{at if committed else ''}, {until}."
    )
    return [Remark("more_compute_helps", text)]


def _repetition(p: Findings) -> list[Remark]:
    turn = p.turning_point
    if turn is None:
        return []
    where = (
        f"More repetition stops paying at {units.scientific(turn.flops)} FLOPs ({units.epochs(turn.epochs)})"
    )
    here = "before that point"
    if p.flops > turn.flops:
        here = "past that point: extra compute goes into size, with fewer epochs"
    return [Remark("repetition_turns", f"{where}; this budget is {here}.")]


def _worth(p: Findings, bound: Bound) -> Remark:
    value = p.marginal_value
    changes = twice_as_much(p, "twice the data", "twice the compute") + _within(bound.doubled)
    if value.loss_per_token == 0:
        return Remark("exchange_rate", f"More unique tokens would not help here: {changes}.")
    if value.flops_per_token is None or p.spent_flops < 0.995 * p.flops:  # there, compute has no price
        return Remark("exchange_rate", f"{changes[0].upper()}{changes[1:]}.")
    token = f"One more unique token is worth {units.scientific(value.flops_per_token, 2)} FLOPs here"
    return Remark("exchange_rate", f"{token}: {changes}.")


def twice_as_much(p: Findings, data: str, compute: str) -> str:
    """What twice as much of either changes, and at which weight decay."""
    value = p.marginal_value
    decays = value.weight_decay_if_twice_the_data, value.weight_decay_if_twice_the_compute
    first, last = (at_weight_decay(p, decay) for decay in decays)
    first = "" if first == last else first  # said once
    figures = (
        (data, value.loss_if_twice_the_data, first),
        (compute, value.loss_if_twice_the_compute, last),
    )
    return ", ".join(
        f"{what} leaves no plan"
        if change is None
        else f"{what} would change the loss by {units.signed(change)}{at}"
        for what, change, at in figures
    )


def at_weight_decay(p: Findings, weight_decay: float | None) -> str:
    """At which weight decay something holds, where there are several."""
    return f" at weight decay {weight_decay}" if p.other_weight_decays and weight_decay is not None else ""


def _flatness(p: Findings, bound: Bound) -> Remark:
    flat, within = p.flat_range, _within(bound.flat)
    if flat.sharp:
        near = f"within {flat.tolerance:g} nats of it"
        text = f"The optimum is sharp: hardly another size or number of epochs is {near}{within}."
        return Remark("sharp_optimum", text)
    low = units.epochs(flat.epochs_min).split()[0]
    text = (
        f"The optimum is flat: {low} to {units.epochs(flat.epochs_max)} ({units.short(flat.params_min)} to "
        f"{units.short(flat.params_max)} parameters) stay within {flat.tolerance:g} nats of it{within}."
    )
    return Remark("flat_optimum", text)


def corpus_note(known: Calibration) -> list[Remark]:
    """What text the laws hold for, where the calibration says so."""
    corpus = known.corpus.split(";")[0].strip()
    if not corpus:
        return []
    text = (
        f"The laws were fitted on {corpus}; on other text (another language, code, another tokenizer) "
        f"losses differ and the best plan may too."
    )
    return [Remark("corpus", text)]


def crossover_note(
    weaker: float,
    stronger: float,
    better_below: float | None,
    found: list[float],
    searched: tuple[float, float] | None,
) -> str:
    """Which of two weight decays is better where, in words."""
    if searched is None:
        return "the limits leave no compute at which both weight decays have a plan"
    span = f"between {units.scientific(searched[0])} and {units.scientific(searched[1])} FLOPs"
    if better_below is None:
        return f"weight decay {weaker} and {stronger} are equally good {span}"
    worse = stronger if better_below == weaker else weaker
    if not found:
        return f"no crossover {span}: weight decay {better_below} is better than {worse} throughout"
    if len(found) == 1:
        return (
            f"weight decay {better_below} is better below {units.scientific(found[0])} FLOPs, {worse} above"
        )
    places = ", ".join(units.scientific(flops) for flops in found)
    return (
        f"the better weight decay changes {len(found)} times, at {places} FLOPs; "
        f"the lowest compute belongs to {better_below}"
    )


def single_setting_note(known: Calibration, form: str) -> str:
    """Why there is no crossover to speak of."""
    decays = [str(setting.weight_decay) for setting in known.settings if setting.has(form)]
    return (
        f"calibration {known.name} has {form} at one weight decay only ({decays[0]})"
        if decays
        else f"calibration {known.name} has no {form}"
    )
