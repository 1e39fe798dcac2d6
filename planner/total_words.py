"""Ensembles, serving and bought data in sentences: what a plan says of them, and why it cannot."""

from __future__ import annotations

from planner import units
from planner.calibration_files import Calibration, Setting
from planner.ensembles import Found
from planner.errors import InvalidInput
from planner.limits import Limits
from planner.members import Members, outside
from planner.reasons import (
    corpus_note,
    first_guess,
    overfitting_cost,
    twice_as_much,
    weight_decay_compared,
    weight_decay_in_words,
)
from planner.remarks import Remark
from planner.results import Candidate, EnsemblePlan, Findings
from planner.serving import Bill

_NAMES = {
    "params": ("model size", units.short),
    "unique_tokens": ("unique tokens", units.short),
    "epochs": ("epochs", "{:.3g}".format),
    "memory_epochs": ("AdamW's memory in epochs", "{:.2g}".format),
}


# -- why not


def cannot_be_paid(bill: Bill, ceiling: float, limits: Limits) -> InvalidInput:
    what = "training and serving" if bill.serve_tokens else "training"
    within = " within your limits" if limits.bounded else ""
    return InvalidInput(
        f"({units.scientific(ceiling)}) pays for no plan{within}: {what} must fit into it; "
        f"give more, or widen ‹min_params›, ‹max_params›, ‹max_epochs› or ‹members›.",
        field="flops",
    )


def cannot_be_reached(target: float, ud: float, lowest: Found | None, limits: Limits) -> InvalidInput:
    within = " within your limits" if limits.bounded else ""
    text = f"({target:g}) cannot be reached with {units.short(ud)} unique tokens{within}"
    if lowest is None:
        return InvalidInput(f"{text}: the limits leave no plan.", field="target_loss")
    return InvalidInput(
        f"{text}: the lowest loss is {lowest.loss:.4f} ({_models(lowest)}).", field="target_loss"
    )


def serving_leaves_little(
    known: Calibration, form: str, bill: Bill, found: Found, ceiling: float
) -> list[Remark]:
    """That serving takes so much that only a model below all that were fitted can be paid; where that is one
    that no law describes there is no plan.
    """
    setting = known.setting(found.weight_decay)
    smallest = setting.fitted_on.params[0]
    served = bill.serve_rate * float(bill.serving(found.members, found.params))
    if found.params >= smallest or served < 0.5 * found.total:
        return []
    needed = bill.serve_rate * float(bill.serving(found.members, smallest))
    text = (
        f"serving {units.short(bill.serve_tokens)} tokens leaves no room for a model: the smallest that was "
        f"fitted ({units.short(smallest)}) would take {_total(needed, bill)} to serve, "
        f"{needed / ceiling:,.3g} times all that there is"
    )
    if found.loss > known.guessing_loss:
        raise InvalidInput(
            f"({units.scientific(bill.serve_tokens)}) is too many: {text}.", field="serve_tokens"
        )
    return [Remark("serving_leaves_little", f"{text}.")] if needed > ceiling else []


# -- the answer


def total_verdict(p: Findings, setting: Setting) -> str:
    """What to train, in a sentence or two, whether it rests on runs at all, and what takes most of the
    total.
    """
    count = 1 if p.members is None else p.members.count
    size, passes, decay = units.short(p.params), units.epochs(p.epochs), weight_decay_in_words(p)
    if count == 1:
        said = f"Train {size} for {passes} at weight decay {decay}."
    else:
        said = (
            f"Train {count} models of {size} for {passes} at weight decay {decay}, with different seeds, and "
            f"average their probabilities."
        )
    said += first_guess(p, setting)
    if p.purchase is not None:
        said = f"{_buying(p)} {said}"
    if p.serving is not None and p.serving.share >= 0.005:
        said += f" Serving takes {units.percent(p.serving.share)} of the total."
    share = 1 - p.unused_flops / p.flops
    if share <= 0.995:
        said += (
            f" That takes {units.percent(share)} of what you have; with this recipe the law expects no gain "
            f"from more."
        )
    return said


def _buying(p: Findings) -> str:
    bought = p.purchase
    assert bought is not None
    if bought.bought < 0.0005 * bought.owned:
        return "Buy no data."
    return f"Buy {units.short(bought.bought)} unique tokens ({_dollars(bought.usd)})."


def total_reasons(
    p: Findings, target: float | None, known: Calibration, bill: Bill, *, committed: bool
) -> list[Remark]:
    """Most useful first; `committed` is whether the weight decay was given."""
    said = []
    if target is not None:
        text = f"No less than {_total(p.flops, bill)} in all is expected to reach a loss of {target:g}."
        said.append(Remark("least_compute", text))
    if p.members is not None:
        said += ensemble_reasons(p.members, bill)
    said += [*_serving(p, bill), *_purchase(p)]
    if p.cheapest_as_good is not None and (p.members is None or p.members.count == 1):
        cheap = p.cheapest_as_good
        share = units.percent(cheap.flops / (p.flops - p.unused_flops))
        text = (
            f"{units.short(cheap.params)} x {units.epochs(cheap.epochs)}{_bought(p, cheap.unique_tokens)} "
            f"cannot be told from it and takes {share} of its total (loss {cheap.loss:.4f})."
        )
        said.append(Remark("cheaper_as_good", text))
    said += [*weight_decay_compared(p, committed), *overfitting_cost(p), _worth(p)]
    return [*said, *corpus_note(known)]


def _bought(p: Findings, tokens: float | None) -> str:
    """What data another plan would buy, where any can be bought."""
    if p.purchase is None or tokens is None:
        return ""
    if (more := tokens - p.purchase.owned) < 0.0005 * p.purchase.owned:
        return " without buying data"
    return f" with {units.short(more)} tokens bought ({_dollars(more * p.purchase.price)})"


def _worth(p: Findings) -> Remark:
    data = "twice the data" if p.purchase is None else "owning twice the tokens that you do"
    return Remark("exchange_rate", f"What would help: {twice_as_much(p, data, 'twice the total')}.")


# -- ensembles


def ensemble_reasons(found: EnsemblePlan, bill: Bill) -> list[Remark]:
    """One model against several, what several cost, and what distillation keeps of them."""
    said, several = [], found.ensemble
    if found.single is not None and several is not None:
        gain = found.single.loss - several.loss
        how = f"better by {gain:.3f} nats" if gain > 0 else f"worse by {-gain:.3f} nats"
        text = (
            f"For the same total {_models(several)} reach {several.loss:.4f}, {how} than the best single "
            f"model ({_size(found.single)}: {found.single.loss:.4f}); {_measured(found)}."
        )
        said.append(Remark("ensemble_compared", text))
    if found.start_flops is not None:
        text = (
            f"Stop growing the model and start an ensemble at about {_total(found.start_flops, bill, 2)}: "
            f"from there on several members are better than one."
        )
        said.append(Remark("ensemble_starts", text))
    if several is not None and found.count > 1:
        said += _several(found, several)
    return said


def _several(found: EnsemblePlan, several: Candidate) -> list[Remark]:
    said = []
    alone, limit = f"{found.member_loss:.4f}", f"{found.limit_loss:.4f}"
    text = f"One of the members alone would reach {alone}, infinitely many {limit}."
    if found.cheapest_as_good is not None:
        cheap = found.cheapest_as_good
        share = units.percent(cheap.total_flops / several.total_flops)
        text += (
            f" {_models(cheap)} cannot be told from {several.members} and take {share} ({cheap.loss:.4f})."
        )
    said.append(Remark("ensemble_limit", text))
    text = (
        f"Serving {several.members} members takes {several.members} times the memory and compute of one: "
        f"{units.size(found.weights_bytes)} of weights in bf16 and {units.scientific(found.flops_per_token)} "
        f"FLOPs a token."
    )
    said.append(Remark("ensemble_cost", text))
    if found.distilled is not None:
        kept = found.distilled
        text = (
            f"Distilled into one model of {units.short(several.params)} it may keep {kept.kept:.0%} of the "
            f"gain over the best single one, as {kept.members} members did where it was measured: about "
            f"{kept.loss:.3f}, at the serving cost of one."
        )
        said.append(Remark("distilled", text))
    return said


def spare(known: Members, several: Found | None, loss: float) -> list[Remark]:
    """What all of the compute would buy as an ensemble, if that is more than the error of its law."""
    if several is None or loss - several.loss <= known.error:
        return []
    where = f"; measured: {known.source}" if known.source else ""
    text = (
        f"As an ensemble all of the compute could gain {loss - several.loss:.3f} nats: {_models(several)}, "
        f"averaged, reach about {several.loss:.3f} (ask for members{where})."
    )
    return [Remark("ensemble_instead", text)]


def member_warnings(known: Calibration, found: Found, used: float) -> list[Remark]:
    """Where an ensemble leaves what was trained to calibrate its gain."""
    members, recipe = known.members, known.recipe
    if found.members == 1 or members is None or recipe is None:
        return []
    memory = recipe.memory_tokens(found.weight_decay) / used
    places = outside(
        members,
        params=found.params,
        unique_tokens=used,
        epochs=max(found.epochs, 1.0),
        memory_epochs=memory,
    )
    said = []
    for name, value, ends in places:
        called, show = _NAMES[name]
        low, high = map(show, ends)
        said.append(f"{called} {show(value)} (trained: {low} to {high})")
    warned = []
    if said:
        text = (
            f"what averaging gains was not measured here: {'; '.join(said)}. It is taken to grow no further."
        )
        warned.append(Remark("outside_members", text))
    if found.members > members.most_members:
        text = (
            f"{found.members} members are more than the {members.most_members} that were trained: "
            f"their gain is extrapolated."
        )
        warned.append(Remark("more_members", text))
    return warned


def _measured(found: EnsemblePlan) -> str:
    where = f" ({found.source})" if found.source else ""
    return f"measured with up to {found.most_members} members, foretold within {found.error:.3f} nats{where}"


# -- serving and data


def _serving(p: Findings, bill: Bill) -> list[Remark]:
    served = p.serving
    if served is None:
        return []
    paid = _total(served.rate * served.flops, bill)
    trained = _total(served.training_flops, bill)
    text = f"Serving {units.short(served.tokens)} tokens takes {paid} and training {trained}"
    alone = served.training_only
    if alone is not None and abs(alone.params / p.params - 1) > 0.01:
        times = alone.total_flops / served.total_flops
        text += (
            f"; what is best for training alone ({_size(alone)}, loss {alone.loss:.4f}) would cost "
            f"{times:.3g} times as much in all"
        )
    return [Remark("serving_cost", f"{text}.")]


def _purchase(p: Findings) -> list[Remark]:
    bought = p.purchase
    if bought is None:
        return []
    if bought.bought < 0.0005 * bought.owned:
        text = f"At ${bought.price:g} a token buying data would not pay: compute is the better use."
        return [Remark("data_bought", text)]
    text = (
        f"{_dollars(bought.usd)} for {units.short(bought.bought)} unique tokens leave "
        f"{_dollars(bought.compute_usd)} for compute"
    )
    if bought.nothing_bought is not None:
        text += f"; without buying any the best loss would be {bought.nothing_bought.loss:.4f}"
    return [Remark("data_bought", f"{text}.")]


def _total(flops: float, bill: Bill, digits: int = 3) -> str:
    usd = bill.usd(flops)
    money = "" if usd is None else f" ({_dollars(usd)})"
    return f"{units.scientific(flops, digits)} FLOPs{money}"


def _dollars(usd: float) -> str:
    return units.dollars(usd).removeprefix("about ")


def _size(one: Candidate | Found) -> str:
    size, passes = units.short(one.params), units.epochs(one.epochs)
    return f"{size} x {passes} at weight decay {one.weight_decay:g}"


def _models(some: Candidate | Found) -> str:
    return _size(some) if some.members == 1 else f"{some.members} models of {_size(some)}"
