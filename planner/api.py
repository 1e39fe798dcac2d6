"""The calls people make: plan, compare, frontier, crossover, predict.

Each takes plain values ("250M" or 250e6), checks them, and returns a frozen object. The mathematics is in `laws`,
`allocation`, `crossings` and `advice`; here it is put together and said in words.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from planner import units
from planner.advice import Limit, Turn, exchange_rate, flat_range, remarkable_points
from planner.allocation import FLOPS_PER_PARAM_TOKEN, Allocation, allocate
from planner.calibration_files import Calibration, Setting
from planner.crossings import crossings, landscape, search_range, size_is_held
from planner.errors import InvalidInput
from planner.laws import Law, check_form
from planner.reasons import crossover_note, reasons, single_setting_note
from planner.results import (
    Alternative,
    Comparison,
    Crossover,
    FlatRange,
    Interval,
    LossTerms,
    MarginalValue,
    Plan,
    Prediction,
    SpendingLimit,
    TurningPoint,
)
from planner.shapes import DEFAULT_VOCAB, Architecture, shape_for
from planner.uncertainty import (
    crossover_interval,
    interval_note,
    loss_intervals,
    plan_intervals,
    range_warnings,
)

CalibrationSource = str | os.PathLike[str] | Calibration | None
DEFAULT_TOLERANCE = 0.01  # nats; about 1% of perplexity
_UD_RANGE, _FLOPS_RANGE = (1e3, 1e16), (1e6, 1e32)
_PARAMS_RANGE, _EPOCHS_RANGE = (1.0, 1e15), (1e-6, 1e5)


@dataclass(frozen=True)
class Frontier:
    """Optimal plans along many budgets, as arrays of one length."""

    ud: np.ndarray
    flops: np.ndarray
    params: np.ndarray
    epochs: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    weight_decay: np.ndarray
    law: str
    calibration: str

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, as `--json` prints them."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }


def plan(
    ud: Any,
    flops: Any,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    epochs: str = "whole",
    min_params: Any = None,
    max_params: Any = None,
    max_epochs: Any = None,
    tolerance: Any = DEFAULT_TOLERANCE,
    vocab_size: Any = None,
) -> Plan:
    """The best model size, epochs and weight decay for `ud` unique tokens and `flops` of compute.

    Without `weight_decay` the best of those calibrated is chosen. `epochs` is "whole" (as the paper sweeps; a
    fraction below one where data is plentiful) or "continuous". `tolerance` (nats) sets what counts as "as good as
    the best" in the flat range.
    """
    ud, flops = _budget(ud, flops)
    known = Calibration.load(calibration)
    form = check_form(law) if law is not None else known.default_law
    how = _how(epochs, min_params, max_params, max_epochs)
    limits = {name: value for name, value in how.items() if name != "whole_epochs"}
    slack = units.number(tolerance, "tolerance", examples="0.01")

    # -- the answer ---------------------------------------------------------------------------------------------
    candidates = _candidates(known, form, weight_decay)
    best = {s.weight_decay: allocate(s.law(form), ud, flops, **how) for s in known.settings if form in s.laws}
    chosen = min(candidates, key=lambda s: _loss_or_inf(best[s.weight_decay].loss))
    found, chosen_law = best[chosen.weight_decay], chosen.law(form)
    if not np.isfinite(found.loss):
        raise InvalidInput(_no_choice(ud, flops, how))
    params, n_epochs, loss = float(found.params), float(found.epochs), float(found.loss)

    # -- the advice ---------------------------------------------------------------------------------------------
    exact = allocate(chosen_law, ud, flops, whole_epochs=False, **limits)
    outlier = _outside_search(chosen_law, ud, flops)
    turn, limit = _remarkable_points(known, form, chosen.weight_decay, ud, outlier, tuple(limits.items()))
    overspent = limit is not None and flops > limit.best.flops * 1.005 and loss > limit.best.loss + 1e-9
    (e_min, e_max), (n_min, n_max) = flat_range(chosen_law, ud, flops, n_epochs, loss, slack, **how)
    others = [
        _alternative(chosen, name, chosen_law, loss, ud, flops, how) for name in chosen.laws if name != form
    ]
    rivals = [
        _as_alternative(form, decay, b, float(b.loss), loss)
        for decay, b in sorted(best.items(), key=lambda item: _loss_or_inf(item[1].loss))
        if decay != chosen.weight_decay and np.isfinite(b.loss)
    ]
    swap = None
    if rivals:
        swap = _crossover(
            known, form, ud, chosen.weight_decay, rivals[0].weight_decay, outlier, tuple(how.items())
        )

    # -- how sure, how buildable --------------------------------------------------------------------------------
    members = chosen.ensemble_law(form)
    intervals = None
    if members is not None:
        intervals = plan_intervals(members, ud, flops, slack, others, how) | loss_intervals(
            members, params, ud, n_epochs
        )
        if swap is not None and swap.interval is not None:
            intervals["crossover_flops"] = swap.interval
    unique = ud * min(n_epochs, 1.0)
    warnings = range_warnings(chosen, params, unique, n_epochs)
    architecture = _architecture(params, vocab_size, known, warnings)
    guessing = math.log(
        architecture.vocab_size if architecture is not None else known.vocab_size or DEFAULT_VOCAB
    )
    if loss > guessing:
        warnings.append(
            f"the predicted loss {loss:.4g} is above that of guessing ({guessing:.3g}): no law describes such a plan."
        )

    draft = Plan(
        ud=ud,
        flops=flops,
        law=form,
        calibration=known.name,
        weight_decay=chosen.weight_decay,
        params=params,
        epochs=n_epochs,
        repeats=max(n_epochs - 1, 0.0),
        tokens=float(found.tokens),
        unique_tokens=unique,
        loss=loss,
        perplexity=units.perplexity(loss),
        terms=_terms(chosen_law, params, ud, n_epochs),
        crossover_flops=swap.crossover_flops if swap is not None else None,
        crossover_note=swap.note if swap is not None else single_setting_note(known, form),
        architecture=architecture,
        continuous_epochs=float(exact.epochs),
        continuous_loss=float(exact.loss),
        flat_range=FlatRange(
            tolerance=slack, epochs_min=e_min, epochs_max=e_max, params_min=n_min, params_max=n_max
        ),
        turning_point=TurningPoint(flops=turn.flops, epochs=turn.epochs, params=turn.params)
        if turn
        else None,
        spending_limit=SpendingLimit(**limit.best._asdict(), regained_flops=limit.regained_flops)
        if limit
        else None,
        overspent=overspent,
        marginal_value=_marginal_value(chosen_law, ud, flops, loss, exact, how),
        other_laws=others,
        other_weight_decays=rivals,
        intervals=intervals,
        interval_note=interval_note(known, chosen, form),
        reasons=[],
        warnings=warnings,
    )
    rival_best = None
    if overspent and rivals:
        rival_best = _best_up_to(known, form, rivals[0].weight_decay, ud, flops, limits)
    words = reasons(draft, committed=weight_decay is not None, limited=bool(limits), rival_best=rival_best)
    return draft.model_copy(update={"reasons": words})


def compare(
    ud: Any,
    flops: Any,
    *,
    weight_decay: Any = None,
    calibration: CalibrationSource = None,
    epochs: str = "whole",
    min_params: Any = None,
    max_params: Any = None,
    max_epochs: Any = None,
) -> Comparison:
    """What each law recommends for one budget, and the loss the calibration's default law expects from that."""
    ud, flops = _budget(ud, flops)
    known = Calibration.load(calibration)
    how = _how(epochs, min_params, max_params, max_epochs)
    rows = []
    for setting in _candidates(known, known.default_law, weight_decay):
        judge = setting.law(known.default_law)
        best = float(allocate(judge, ud, flops, **how).loss)
        if not math.isfinite(best):
            raise InvalidInput(_no_choice(ud, flops, how))
        rows += [_alternative(setting, form, judge, best, ud, flops, how) for form in setting.laws]
    return Comparison(ud=ud, flops=flops, calibration=known.name, judge=known.default_law, rows=rows)


def frontier(
    ud: Any,
    flops: Any,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    epochs: str = "whole",
    min_params: Any = None,
    max_params: Any = None,
    max_epochs: Any = None,
) -> Frontier:
    """Optimal plans for many budgets at once: `ud` and `flops` are numbers or arrays that broadcast.

    Without `weight_decay` each budget gets the best of those calibrated. Budgets for which the limits leave no choice
    are NaN.
    """
    tokens, compute = _many(ud, "ud", units.count), _many(flops, "flops", units.compute)
    try:
        tokens, compute = np.broadcast_arrays(tokens, compute)
    except ValueError:
        sizes = f"{len(tokens)} and {len(compute)}"
        raise InvalidInput(f"ud and flops must have one length or broadcast; got {sizes} values.") from None
    if np.any(tokens > compute):
        raise _swapped(float(tokens[tokens > compute][0]), float(compute[tokens > compute][0]))
    for values, field, limits, unit in (
        (tokens, "ud", _UD_RANGE, "unique tokens"),
        (compute, "flops", _FLOPS_RANGE, "FLOPs"),
    ):
        _within(float(values.min()), field, limits, unit)
        _within(float(values.max()), field, limits, unit)
    known = Calibration.load(calibration)
    form = check_form(law) if law is not None else known.default_law
    how = _how(epochs, min_params, max_params, max_epochs)
    settings = _candidates(known, form, weight_decay)
    found = [allocate(setting.law(form), tokens, compute, **how) for setting in settings]
    losses = np.stack([np.where(np.isfinite(f.loss), f.loss, np.inf) for f in found])
    winner = np.argmin(losses, axis=0)
    pick = np.arange(len(winner))
    chosen = [
        np.stack([getattr(f, name) for f in found])[winner, pick]
        for name in ("params", "epochs", "tokens", "loss")
    ]
    decays = np.array([setting.weight_decay for setting in settings])[winner]
    params, passes, trained, loss = chosen
    return Frontier(tokens, compute, params, passes, trained, loss, decays, form, known.name)


def frontier_range(
    ud: Any, start: Any = None, stop: Any = None, points: Any = 25, *, single_epoch: bool = False, **how: Any
) -> Frontier:
    """The frontier over a range of compute, by default from where the corpus is used once to 10,000 times that.

    With `single_epoch` the data is taken to be unlimited: every budget gets as many fresh tokens as it wants, which is the
    base law; the "epochs" are then multiples of `ud` in fresh tokens.
    """
    tokens = _within(units.count(ud, "ud"), "ud", _UD_RANGE, "unique tokens")
    known = Calibration.load(how.get("calibration"))
    once = float(search_range(known.settings[0].law(how.get("law") or known.default_law), tokens)[0]) * 1e4
    low = units.compute(start, "start") if start is not None else once
    high = units.compute(stop, "stop") if stop is not None else low * 1e4
    number = units.whole(points, "points", example="25")
    if high <= low:
        raise InvalidInput(
            f"must be above ‹start›; got {units.scientific(high)} and {units.scientific(low)}.", field="stop"
        )
    if not 2 <= number <= 100_000:
        raise InvalidInput(f"must be between 2 and 100000; got {number}.", field="points")
    if single_epoch:
        if how.get("law") not in (None, "chinchilla"):
            raise InvalidInput(
                f"is the base law and takes no other; got ‹law› {how['law']}.", field="single_epoch"
            )
        how = {**how, "law": "chinchilla", "epochs": "continuous"}
    return frontier(tokens, np.geomspace(low, high, number), **how)


def crossover(
    ud: Any,
    *,
    weight_decays: Iterable[Any] | None = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
    epochs: str = "whole",
    min_params: Any = None,
    max_params: Any = None,
    max_epochs: Any = None,
) -> Crossover:
    """C×: the compute above which the stronger weight decay has the lower optimal loss, with every other crossing.

    By default between the weakest and the strongest setting calibrated.
    """
    tokens = _within(units.count(ud, "ud"), "ud", _UD_RANGE, "unique tokens")
    known = Calibration.load(calibration)
    form = check_form(law) if law is not None else known.default_law
    how = _how(epochs, min_params, max_params, max_epochs)
    if weight_decays is None:
        decays = [setting.weight_decay for setting in _candidates(known, form, None)]
        if len(decays) < 2:
            raise InvalidInput(f"{single_setting_note(known, form)}; a crossover needs two.")
        decays = [min(decays), max(decays)]
    else:
        if isinstance(weight_decays, str) or not isinstance(weight_decays, Iterable):
            raise InvalidInput(
                f"must be two numbers such as (0.1, 1.0); got {weight_decays!r}.", field="weight_decays"
            )
        decays = [known.setting(decay).weight_decay for decay in weight_decays]
        if len(decays) != 2 or decays[0] == decays[1]:
            raise InvalidInput(
                f"must be two different ones; got {', '.join(str(d) for d in decays) or 'none'}.",
                field="weight_decays",
            )
    return _crossover(known, form, tokens, decays[0], decays[1], None, tuple(how.items()))


def predict(
    params: Any,
    ud: Any,
    epochs: Any = 1.0,
    *,
    weight_decay: Any = None,
    law: str | None = None,
    calibration: CalibrationSource = None,
) -> Prediction:
    """The loss expected from one configuration; without `weight_decay`, at the calibrated one that does best there."""
    size = _within(units.count(params, "params"), "params", _PARAMS_RANGE, "parameters")
    tokens = _within(units.count(ud, "ud"), "ud", _UD_RANGE, "unique tokens")
    passes = _within(units.number(epochs, "epochs", examples="4 or 0.5"), "epochs", _EPOCHS_RANGE, "epochs")
    known = Calibration.load(calibration)
    form = check_form(law) if law is not None else known.default_law
    settings = _candidates(known, form, weight_decay)
    setting = min(settings, key=lambda s: float(s.law(form).loss(size, tokens, passes)))
    loss = float(setting.law(form).loss(size, tokens, passes))
    members = setting.ensemble_law(form)
    return Prediction(
        params=size,
        ud=tokens,
        epochs=passes,
        tokens=tokens * passes,
        flops=FLOPS_PER_PARAM_TOKEN * size * tokens * passes,
        weight_decay=setting.weight_decay,
        law=form,
        calibration=known.name,
        loss=loss,
        perplexity=units.perplexity(loss),
        terms=_terms(setting.law(form), size, tokens, passes),
        intervals=loss_intervals(members, size, tokens, passes) if members is not None else None,
        interval_note=interval_note(known, setting, form),
        warnings=range_warnings(setting, size, tokens * min(passes, 1.0), passes),
    )


# -- checking what was given ------------------------------------------------------------------------------------


def _budget(ud: Any, flops: Any) -> tuple[float, float]:
    tokens, compute = units.count(ud, "ud"), units.compute(flops, "flops")
    if tokens > compute:
        raise _swapped(tokens, compute)
    return _within(tokens, "ud", _UD_RANGE, "unique tokens"), _within(compute, "flops", _FLOPS_RANGE, "FLOPs")


def _swapped(tokens: float, compute: float) -> InvalidInput:
    return InvalidInput(
        f"({units.scientific(tokens)} tokens) is larger than ‹flops› ({units.scientific(compute)}), which buys less "
        f"than one FLOP per token: were ‹ud› and ‹flops› swapped?",
        field="ud",
    )


def _within(value: float, field: str, limits: tuple[float, float], unit: str) -> float:
    if not limits[0] <= value <= limits[1]:
        raise InvalidInput(
            f"must be between {limits[0]:.0e} and {limits[1]:.0e} {unit}; got {units.scientific(value)}.",
            field=field,
        )
    return value


def _many(values: Any, field: str, parse: Any) -> np.ndarray:
    if (
        isinstance(values, np.ndarray)
        and values.ndim == 1
        and values.dtype.kind in "fiu"
        and np.all(values > 0)
    ):
        array = values.astype(float)  # the fast path: ten thousand budgets are checked at once
        if len(array) and np.all(np.isfinite(array)):
            return array
    if isinstance(values, str) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        values = [values]
    array = np.array([parse(value, field) for value in values])
    if not len(array):
        raise InvalidInput("must hold at least one number; got an empty list.", field=field)
    return array


def _candidates(known: Calibration, form: str, weight_decay: Any) -> tuple[Setting, ...]:
    """The settings that may be chosen: the one asked for, or all that have the law."""
    if weight_decay is not None:
        setting = known.setting(weight_decay)
        setting.law(form)  # an error if it has no such law
        return (setting,)
    having = tuple(setting for setting in known.settings if form in setting.laws)
    if not having:
        known.settings[0].law(form)  # raises, naming the laws there are
    return having


def _how(epochs: Any, min_params: Any, max_params: Any, max_epochs: Any) -> dict[str, Any]:
    if not isinstance(epochs, str) or epochs not in ("whole", "continuous"):
        raise InvalidInput(f"must be 'whole' or 'continuous'; got {epochs!r}.", field="epochs")
    how: dict[str, Any] = {"whole_epochs": epochs == "whole"}
    if min_params is not None:
        how["min_params"] = units.count(min_params, "min_params")
    if max_params is not None:
        how["max_params"] = units.count(max_params, "max_params")
    if max_epochs is not None:
        how["max_epochs"] = units.number(max_epochs, "max_epochs", examples="16")
    if how.get("min_params", 0) > how.get("max_params", math.inf):
        raise InvalidInput(
            f"({units.short(how['min_params'])}) must not be above ‹max_params› ({units.short(how['max_params'])}).",
            field="min_params",
        )
    return how


def _no_choice(ud: float, flops: float, how: dict[str, Any]) -> str:
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    largest = how.get("max_params", math.inf)
    low, high = product / largest, min(product / how.get("min_params", 1e-9), how.get("max_epochs", math.inf))
    if low <= high:
        return (
            f"no whole number of epochs lies between {low:.3g} and {high:.3g}, which is what the limits allow at this budget; "
            f"widen ‹min_params›, ‹max_params› or ‹max_epochs›, or ask for continuous ‹epochs›."
        )
    return (
        f"the limits leave no choice: with ‹max_params› {units.short(largest)} it takes {low:.3g} epochs to spend "
        f"{units.scientific(flops)} FLOPs on {units.short(ud)} tokens, but at most {high:.3g} are allowed; "
        f"raise ‹max_params› or ‹max_epochs›, or spend less."
    )


# -- putting it together ----------------------------------------------------------------------------------------


def _loss_or_inf(loss: Any) -> float:
    return float(loss) if np.isfinite(loss) else math.inf


def _terms(law: Law, params: float, ud: float, epochs: float) -> LossTerms:
    return LossTerms(
        **{name: float(value) for name, value in law.terms(params, ud, epochs)._asdict().items()}
    )


def _alternative(
    setting: Setting, form: str, judge: Law, best: float, ud: float, flops: float, how: dict[str, Any]
) -> Alternative:
    found = allocate(setting.law(form), ud, flops, **how)
    return _as_alternative(
        form, setting.weight_decay, found, float(judge.loss(found.params, ud, found.epochs)), best
    )


def _as_alternative(form: str, decay: float, found: Allocation, expected: float, best: float) -> Alternative:
    return Alternative(
        law=form,
        weight_decay=decay,
        params=float(found.params),
        epochs=float(found.epochs),
        tokens=float(found.tokens),
        predicted_loss=float(found.loss),
        expected_loss=expected,
        regret=expected - best,
    )


def _marginal_value(
    law: Law, ud: float, flops: float, loss: float, exact: Allocation, how: dict[str, Any]
) -> MarginalValue:
    held = bool(size_is_held(exact.params, how.get("min_params"), how.get("max_params")))
    rate = exchange_rate(law, ud, exact.params, exact.epochs, size_held=held)
    doubled = allocate(law, [2 * ud, ud], [flops, 2 * flops], **how).loss - loss
    data, compute = (float(change) if np.isfinite(change) else None for change in doubled)
    return MarginalValue(**rate._asdict(), loss_if_twice_the_data=data, loss_if_twice_the_compute=compute)


def _best_up_to(
    known: Calibration, form: str, weight_decay: float, ud: float, flops: float, limits: dict[str, Any]
) -> Turn | None:
    """The lowest loss that this weight decay reaches with at most `flops`, and where."""
    law = known.law(weight_decay, form)
    _, limit = _remarkable_points(
        known, form, weight_decay, ud, _outside_search(law, ud, flops), tuple(limits.items())
    )
    if limit is not None and limit.best.flops < flops:
        return limit.best
    here = allocate(law, ud, flops, whole_epochs=False, **limits)
    return (
        Turn(flops, float(here.params), float(here.epochs), float(here.loss))
        if np.isfinite(here.loss)
        else None
    )


def _outside_search(law: Law, ud: float, flops: float) -> float | None:
    """The budget, if the usual search along compute would not cover it."""
    computes = search_range(law, ud)
    return None if computes[0] <= flops <= computes[-1] else flops


# What depends on the data and not on the compute is remembered: one corpus is usually asked about many times.


@lru_cache(maxsize=128)
def _remarkable_points(
    known: Calibration,
    form: str,
    weight_decay: float,
    ud: float,
    include: float | None,
    limits: tuple[tuple[str, Any], ...],
) -> tuple[Turn | None, Limit | None]:
    law, within = known.law(weight_decay, form), dict(limits)
    return remarkable_points(law, ud, landscape(law, ud, search_range(law, ud, include), **within), **within)


@lru_cache(maxsize=128)
def _crossover(
    known: Calibration,
    form: str,
    ud: float,
    one: float,
    other: float,
    include: float | None,
    limits: tuple[tuple[str, Any], ...],
) -> Crossover:
    how = dict(limits)
    weaker, stronger = (known.setting(decay) for decay in sorted((one, other)))
    weak, strong = weaker.law(form), stronger.law(form)
    computes = search_range(weak, ud, include)
    found, weak_is_better_below, searched = crossings(weak, strong, ud, computes, **how)
    better_below: float | None = weaker.weight_decay if weak_is_better_below else stronger.weight_decay
    if weak.parameters == strong.parameters or searched is None:
        better_below = None
    # The better setting alternates from crossing to crossing; C× is the first from which the stronger one is better, except
    # that where laws cross below everything they were fitted on, and again above, the latter counts.
    upward = found[0::2] if better_below == weaker.weight_decay else found[1::2]
    smallest = max(
        FLOPS_PER_PARAM_TOKEN * s.fitted_on.params[0] * s.fitted_on.unique_tokens[0]
        for s in (weaker, stronger)
    )
    centre = next((flops for flops in upward if flops >= smallest), upward[0] if upward else None)
    note = crossover_note(weaker.weight_decay, stronger.weight_decay, better_below, found, searched)
    members = weaker.ensemble_law(form), stronger.ensemble_law(form)
    bounds: Interval | None = None
    if len(found) > 1 and centre is not None:
        note += f"; C× is {units.scientific(centre)}, from which {stronger.weight_decay} is better"
    if members[0] is not None and members[1] is not None and centre is not None:
        between = _room_around(centre, found)
        bounds, share = crossover_interval(members[0], members[1], ud, between, how)
        if share < 0.975:
            low, high = (units.scientific(end, 2) for end in between)
            note += f"; {1 - share:.0%} of the refits do not cross between {low} and {high}"
    return Crossover(
        ud=ud,
        law=form,
        calibration=known.name,
        weaker=weaker.weight_decay,
        stronger=stronger.weight_decay,
        crossover_flops=centre,
        crossings=found,
        searched=searched or (float(computes[0]), float(computes[-1])),
        better_below=better_below,
        interval=bounds,
        note=note,
    )


def _room_around(centre: float, found: list[float]) -> tuple[float, float]:
    """Where refits may have the same crossing: within a factor of 100, and half-way to the next ones."""
    low, high = centre / 100, centre * 100
    for other in found:
        if other < centre:
            low = max(low, (other * centre) ** 0.5)
        elif other > centre:
            high = min(high, (other * centre) ** 0.5)
    return low, high


def _architecture(
    params: float, vocab_size: Any, known: Calibration, warnings: list[str]
) -> Architecture | None:
    given = vocab_size if vocab_size is not None else known.vocab_size or DEFAULT_VOCAB
    vocab = units.whole(given, "vocab_size", example="32100")
    if vocab_size is None and known.vocab_size is None:
        warnings.append(
            f"calibration {known.name} does not say its vocabulary: the model shape assumes {vocab:,} rows."
        )
    try:
        return shape_for(params, vocab)
    except InvalidInput as error:
        warnings.append(str(error))
        return None
