"""The advice in sentences: why this plan, what it costs to leave it, and what to do instead."""

from __future__ import annotations

import numpy as np

from planner import units
from planner.advice import Limit, Turn
from planner.calibration import Calibration, Setting
from planner.results import Alternative, FlatRange, LossTerms, MarginalValue


def reasons(
    ud: float,
    flops: float,
    chosen: Setting,
    epochs: float,
    loss: float,
    terms: LossTerms,
    free_choice: bool,
    rival: Alternative | None,
    flat: FlatRange,
    turn: Turn | None,
    limit: Limit | None,
    value: MarginalValue,
) -> list[str]:
    """The advice in sentences, most useful first."""
    decay = f"weight decay {chosen.weight_decay}"
    said = []
    if epochs < 1:
        said.append(f"Data is plentiful for this budget: {epochs:.1%} of the corpus is enough, and nothing is repeated.")
    if rival is not None and free_choice:
        said.append(f"At {decay} the best loss is {loss:.4f}; at {rival.weight_decay} it would be {rival.predicted_loss:.4f}.")
    elif rival is not None and rival.predicted_loss < loss:
        said.append(
            f"Weight decay {rival.weight_decay} would do better: loss {rival.predicted_loss:.4f} instead of {loss:.4f}, "
            f"with {units.short(rival.params)} parameters and {rival.epochs:.3g} epochs."
        )
    if terms.overfitting > 0:
        said.append(f"Overfitting on repeated tokens costs {terms.overfitting:.3f} nats of the {loss:.3f}.")
    if limit is not None and flops > limit.best.flops * 1.005:
        saved = 1 - limit.best.flops / flops
        text = (
            f"Stop spending at {units.scientific(limit.best.flops)} FLOPs: with {units.short(ud)} unique tokens and {decay} "
            f"more compute makes the optimal loss worse ({limit.best.loss:.4f} there with {units.short(limit.best.params)} parameters and "
            f"{limit.best.epochs:.2g} epochs, {loss:.4f} here); that saves {saved:.0%} of the compute."
        )
        if limit.regained_flops is not None:
            text += f" Only from about {units.scientific(limit.regained_flops, 2)} FLOPs would the loss be lower again."
        said.append(text)
        instead = [f"twice the unique tokens would change the loss by {value.loss_if_twice_the_data:+.3f}"]
        if rival is not None and rival.predicted_loss < loss:
            instead.insert(0, f"weight decay {rival.weight_decay} reaches {rival.predicted_loss:.4f} with this compute")
        said.append(f"Instead: {'; '.join(instead)}.")
    elif limit is not None:
        said.append(
            f"More compute helps up to {units.scientific(limit.best.flops)} FLOPs (loss {limit.best.loss:.4f}); "
            f"beyond that it makes the optimal loss worse at {decay}, and only more data or stronger regularisation helps."
        )
    if turn is not None:
        where = "is past" if flops > turn.flops else "is before"
        said.append(
            f"More repetition stops paying at {units.scientific(turn.flops)} FLOPs ({turn.epochs:.2g} epochs); "
            f"this budget {where} that point" + (": extra compute now goes into size." if flops > turn.flops else ".")
        )
    data, compute = f"{value.loss_if_twice_the_data:+.3f}", f"{value.loss_if_twice_the_compute:+.3f}"
    if value.flops_per_token is None:
        said.append(f"More compute does not help here; twice the unique tokens would change the loss by {data}.")
    elif value.loss_per_token == 0:
        said.append(f"More unique tokens would not help here; twice the compute would change the loss by {compute}.")
    else:
        said.append(
            f"One more unique token is worth {units.scientific(value.flops_per_token, 2)} FLOPs: twice the data would change "
            f"the loss by {data}, twice the compute by {compute}."
        )
    said.append(
        f"The optimum is flat: {_span(flat.epochs_min, flat.epochs_max, '.3g')} epochs ({units.short(flat.params_min)} to "
        f"{units.short(flat.params_max)} parameters) stay within {flat.tolerance:g} nats of it."
    )
    return said


def _span(low: float, high: float, form: str) -> str:
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def crossover_note(weaker: float, stronger: float, better_below: float, found: list[float], computes: np.ndarray) -> str:
    worse = stronger if better_below == weaker else weaker
    if not found:
        return (
            f"no crossover between {units.scientific(computes[0])} and {units.scientific(computes[-1])} FLOPs: "
            f"weight decay {better_below} is better than {worse} throughout"
        )
    if len(found) == 1:
        return f"weight decay {better_below} is better below {units.scientific(found[0])} FLOPs, {worse} above"
    places = ", ".join(units.scientific(flops) for flops in found)
    return f"the better weight decay changes {len(found)} times, at {places} FLOPs; the lowest compute belongs to {better_below}"


def single_setting_note(known: Calibration, form: str) -> str:
    with_form = [s.weight_decay for s in known.settings if form in s.laws]
    return f"calibration {known.name} has {form} at one weight decay only ({with_form[0]})"
