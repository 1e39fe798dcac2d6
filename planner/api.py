"""The calls people make: plan, compare, frontier, crossover, predict.

Each takes plain values ("250M" or 250e6), checks them, and returns a frozen object. The mathematics is in `laws`,
`allocation`, `crossings` and `advice`; here it is put together and said in words.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner import units
from planner.advice import exchange_rate, flat_range, remarkable_points
from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.calibration import Calibration, Setting
from planner.crossings import crossings, landscape, search_range
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
from planner.uncertainty import crossover_interval, interval, interval_note, loss_intervals, plan_intervals, range_warnings

CalibrationSource = str | os.PathLike[str] | Calibration | None
DEFAULT_TOLERANCE = 0.01  # nats; about 1% of perplexity
_UD_RANGE, _FLOPS_RANGE = (1e3, 1e16), (1e6, 1e32)


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
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}


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
    slack = units.number(tolerance, "tolerance", examples="0.01")
    candidates = known.settings if weight_decay is None else (known.setting(weight_decay),)

    # -- the answer ---------------------------------------------------------------------------------------------
    for candidate in candidates:
        candidate.law(form)  # an error if it has no such law
    best = {s.weight_decay: allocate(s.law(form), ud, flops, **how) for s in known.settings if form in s.laws}
    chosen = min(candidates, key=lambda s: _loss_or_inf(best[s.weight_decay].loss))
    found, chosen_law = best[chosen.weight_decay], chosen.law(form)
    if not np.isfinite(found.loss):
        raise InvalidInput(_no_choice(ud, flops, how))
    params, n_epochs, loss = float(found.params), float(found.epochs), float(found.loss)

    # -- the advice ---------------------------------------------------------------------------------------------
    computes = search_range(chosen_law, ud)
    along = landscape(chosen_law, ud, computes)
    turn, limit = remarkable_points(chosen_law, ud, along)
    flat = flat_range(chosen_law, ud, flops, n_epochs, loss, slack, whole_epochs=how["whole_epochs"])
    value = _marginal_value(chosen_law, ud, flops)
    others = [_alternative(chosen, name, chosen_law, loss, ud, flops, how) for name in chosen.laws if name != form]
    rivals = [
        Alternative(
            law=form,
            weight_decay=decay,
            params=float(b.params),
            epochs=float(b.epochs),
            tokens=float(b.tokens),
            predicted_loss=float(b.loss),
            expected_loss=float(b.loss),
            regret=float(b.loss) - loss,
        )
        for decay, b in best.items()
        if decay != chosen.weight_decay and np.isfinite(b.loss)
    ]
    rival = min(rivals, key=lambda r: r.predicted_loss, default=None)
    swap = None
    if rival is not None:
        swap = _crossover(known, form, ud, chosen.weight_decay, rival.weight_decay, how)

    # -- how sure, how buildable --------------------------------------------------------------------------------
    members = chosen.ensemble_law(form)
    intervals = None
    if members is not None:
        intervals = {**plan_intervals(members, ud, flops, **how), **loss_intervals(members, params, ud, n_epochs)}
        if swap is not None and swap.interval is not None:
            intervals["crossover_flops"] = swap.interval
    unique = ud * min(n_epochs, 1.0)
    warnings = range_warnings(chosen, params, unique, n_epochs)
    architecture = _architecture(params, vocab_size, known, warnings)
    terms = LossTerms(**{k: float(v) for k, v in chosen_law.terms(params, ud, n_epochs)._asdict().items()})
    swap_note = swap.note if swap is not None else single_setting_note(known, form)
    (e_min, e_max), (n_min, n_max) = flat
    flat_model = FlatRange(tolerance=slack, epochs_min=e_min, epochs_max=e_max, params_min=n_min, params_max=n_max)
    return Plan(
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
        perplexity=math.exp(loss),
        terms=terms,
        crossover_flops=swap.crossover_flops if swap is not None else None,
        crossover_note=swap_note,
        architecture=architecture,
        flat_range=flat_model,
        turning_point=TurningPoint(flops=turn.flops, epochs=turn.epochs, params=turn.params) if turn else None,
        spending_limit=SpendingLimit(**limit.best._asdict(), regained_flops=limit.regained_flops) if limit else None,
        marginal_value=value,
        other_laws=others,
        other_weight_decays=rivals,
        intervals=intervals,
        interval_note=interval_note(chosen, form),
        reasons=reasons(ud, flops, chosen, n_epochs, loss, terms, weight_decay is None, rival, flat_model, turn, limit, value),
        warnings=warnings,
    )


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
    settings = known.settings if weight_decay is None else (known.setting(weight_decay),)
    rows = []
    for setting in settings:
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
    tokens = _many(ud, "ud", units.count, _UD_RANGE, "unique tokens")
    compute = _many(flops, "flops", units.compute, _FLOPS_RANGE, "FLOPs")
    try:
        tokens, compute = np.broadcast_arrays(tokens, compute)
    except ValueError:
        sizes = f"{len(tokens)} and {len(compute)}"
        raise InvalidInput(f"ud and flops must have one length or broadcast; got {sizes} values.") from None
    if np.any(tokens > compute):
        raise InvalidInput(_swapped(float(tokens[tokens > compute][0]), float(compute[tokens > compute][0])))
    known = Calibration.load(calibration)
    form = check_form(law) if law is not None else known.default_law
    how = _how(epochs, min_params, max_params, max_epochs)
    settings = known.settings if weight_decay is None else (known.setting(weight_decay),)
    found = [allocate(setting.law(form), tokens, compute, **how) for setting in settings]
    losses = np.stack([np.where(np.isfinite(f.loss), f.loss, np.inf) for f in found])
    winner = np.argmin(losses, axis=0)
    pick = np.arange(len(winner))
    chosen = [np.stack([getattr(f, name) for f in found])[winner, pick] for name in ("params", "epochs", "tokens", "loss")]
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
    low = units.compute(start, "--from") if start is not None else once
    high = units.compute(stop, "--to") if stop is not None else low * 1e4
    number = units.whole(points, "--points", example="25")
    if high <= low:
        raise InvalidInput(f"--to must be above --from; got {units.scientific(high)} and {units.scientific(low)}.")
    if not 2 <= number <= 100_000:
        raise InvalidInput(f"--points must be between 2 and 100000; got {number}.")
    if single_epoch:
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
        if len(known.settings) < 2:
            raise InvalidInput(f"{single_setting_note(known, form)}; a crossover needs two.")
        decays = [min(known.weight_decays), max(known.weight_decays)]
    else:
        decays = [known.setting(decay).weight_decay for decay in weight_decays]
        if len(decays) != 2 or decays[0] == decays[1]:
            raise InvalidInput(f"weight_decays must be two different ones; got {', '.join(str(d) for d in decays) or 'none'}.")
    return _crossover(known, form, tokens, decays[0], decays[1], how)


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
    size, tokens = units.count(params, "params"), _within(units.count(ud, "ud"), "ud", _UD_RANGE, "unique tokens")
    passes = units.number(epochs, "epochs", examples="4 or 0.5")
    known = Calibration.load(calibration)
    form = check_form(law) if law is not None else known.default_law
    settings = known.settings if weight_decay is None else (known.setting(weight_decay),)
    setting = min(settings, key=lambda s: float(s.law(form).loss(size, tokens, passes)))
    terms = setting.law(form).terms(size, tokens, passes)
    loss = float(terms.loss)
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
        perplexity=math.exp(loss) if loss < 700 else math.inf,
        terms=LossTerms(**{name: float(value) for name, value in terms._asdict().items()}),
        interval=interval(members.loss(size, tokens, passes)) if members is not None else None,
        interval_note=interval_note(setting, form),
        warnings=range_warnings(setting, size, tokens * min(passes, 1.0), passes),
    )


# -- checking what was given ------------------------------------------------------------------------------------


def _budget(ud: Any, flops: Any) -> tuple[float, float]:
    tokens, compute = units.count(ud, "ud"), units.compute(flops, "flops")
    if tokens > compute:
        raise InvalidInput(_swapped(tokens, compute))
    return _within(tokens, "ud", _UD_RANGE, "unique tokens"), _within(compute, "flops", _FLOPS_RANGE, "FLOPs")


def _swapped(tokens: float, compute: float) -> str:
    return (
        f"ud ({units.scientific(tokens)} tokens) is larger than flops ({units.scientific(compute)}), which buys less than one "
        f"FLOP per token: were ud and flops swapped?"
    )


def _within(value: float, field: str, limits: tuple[float, float], unit: str) -> float:
    if not limits[0] <= value <= limits[1]:
        raise InvalidInput(f"{field} must be between {limits[0]:.0e} and {limits[1]:.0e} {unit}; got {units.scientific(value)}.")
    return value


def _many(values: Any, field: str, parse: Any, limits: tuple[float, float], unit: str) -> np.ndarray:
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fiu":
        array = values.astype(float)  # the fast path: ten thousand budgets are checked at once
        if len(array) and np.all((array >= limits[0]) & (array <= limits[1])):
            return array
    if isinstance(values, str) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        values = [values]
    array = np.array([_within(parse(value, field), field, limits, unit) for value in values])
    if not len(array):
        raise InvalidInput(f"{field} must hold at least one number; got an empty list.")
    return array


def _how(epochs: Any, min_params: Any, max_params: Any, max_epochs: Any) -> dict[str, Any]:
    if epochs not in ("whole", "continuous"):
        raise InvalidInput(f"epochs must be 'whole' or 'continuous'; got {epochs!r}.")
    how: dict[str, Any] = {"whole_epochs": epochs == "whole"}
    if min_params is not None:
        how["min_params"] = units.count(min_params, "min_params")
    if max_params is not None:
        how["max_params"] = units.count(max_params, "max_params")
    if max_epochs is not None:
        how["max_epochs"] = units.number(max_epochs, "max_epochs", examples="16")
    if how.get("min_params", 0) > how.get("max_params", math.inf):
        raise InvalidInput(
            f"min_params ({units.short(how['min_params'])}) must not be above max_params ({units.short(how['max_params'])})."
        )
    return how


def _no_choice(ud: float, flops: float, how: dict[str, Any]) -> str:
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    largest = how.get("max_params", math.inf)
    low, high = product / largest, min(product / how.get("min_params", 1e-9), how.get("max_epochs", math.inf))
    if low <= high:
        return (
            f"no whole number of epochs lies between {low:.3g} and {high:.3g}, which is what the limits allow at this budget; "
            f"widen min_params, max_params or max_epochs, or ask for epochs='continuous'."
        )
    return (
        f"the limits leave no choice: with max_params {units.short(largest)} it takes {low:.3g} epochs to spend "
        f"{units.scientific(flops)} FLOPs on {units.short(ud)} tokens, but at most {high:.3g} are allowed; raise max_params or "
        f"max_epochs, or spend less."
    )


# -- putting it together ----------------------------------------------------------------------------------------


def _loss_or_inf(loss: Any) -> float:
    return float(loss) if np.isfinite(loss) else math.inf


def _alternative(
    setting: Setting, form: str, judge: Law, best: float, ud: float, flops: float, how: dict[str, Any]
) -> Alternative:
    found = allocate(setting.law(form), ud, flops, **how)
    expected = float(judge.loss(found.params, ud, found.epochs))
    return Alternative(
        law=form,
        weight_decay=setting.weight_decay,
        params=float(found.params),
        epochs=float(found.epochs),
        tokens=float(found.tokens),
        predicted_loss=float(found.loss),
        expected_loss=expected,
        regret=expected - best,
    )


def _marginal_value(law: Law, ud: float, flops: float) -> MarginalValue:
    at = allocate(law, [ud, 2 * ud, ud], [flops, flops, 2 * flops], whole_epochs=False)
    rate = exchange_rate(law, ud, at.params[0], at.epochs[0])
    change = at.loss - at.loss[0]
    return MarginalValue(**rate._asdict(), loss_if_twice_the_data=change[1], loss_if_twice_the_compute=change[2])


def _crossover(known: Calibration, form: str, ud: float, one: float, other: float, how: dict[str, Any]) -> Crossover:
    weaker, stronger = (known.setting(decay) for decay in sorted((one, other)))
    weak, strong = weaker.law(form), stronger.law(form)
    computes = search_range(weak, ud)
    found, weak_is_better_below = crossings(weak, strong, ud, computes, **how)
    better_below = weaker.weight_decay if weak_is_better_below else stronger.weight_decay
    # The better setting alternates from crossing to crossing; C× is the first from which the stronger one is better.
    upward = found[0::2] if better_below == weaker.weight_decay else found[1::2]
    members = weaker.ensemble_law(form), stronger.ensemble_law(form)
    bounds: Interval | None = None
    if members[0] is not None and members[1] is not None and upward:
        bounds = crossover_interval(members[0], members[1], ud, upward[0], **how)
    return Crossover(
        ud=ud,
        law=form,
        calibration=known.name,
        weaker=weaker.weight_decay,
        stronger=stronger.weight_decay,
        crossover_flops=upward[0] if upward else None,
        crossings=found,
        searched=(float(computes[0]), float(computes[-1])),
        better_below=better_below,
        interval=bounds,
        note=crossover_note(weaker.weight_decay, stronger.weight_decay, better_below, found, computes),
    )


def _architecture(params: float, vocab_size: Any, known: Calibration, warnings: list[str]) -> Architecture | None:
    given = vocab_size if vocab_size is not None else known.vocab_size or DEFAULT_VOCAB
    vocab = units.whole(given, "vocab_size", example="32100")
    try:
        return shape_for(params, vocab)
    except InvalidInput as error:
        warnings.append(str(error))
        return None
