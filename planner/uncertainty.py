"""How sure an answer is: intervals from the draws of a calibration, the law's error on trainings that it had
not seen, and how far from all evidence a question or an answer is.

More than `FAR` times outside of all evidence, in model size, in unique tokens that are used or in epochs, a
question gets one sentence before any work: a corpus, or sizes that limits force, from which no plan leads
back; a loss above the uniform one; and all that `predict` is given. Plans are decided by the loss that can be
counted on (`planner.evidence`), which leads back to what was trained; only where the budget or limits leave
nothing near it, or where all compute has to be spent, is a plan refused. What the bare law says
(`extrapolate`), and what other laws or weight decays recommend, is shown however far it is: to show that is
what they are for. Of a `frontier` rows that are too far are marked (`refused`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import planner.evidence as evidence
import planner.solve as solve
from planner.calibration import HEARD, NO_GAIN, Calibration, FittedRange, Gain, Setting, shipped_names
from planner.evidence import Evidence, predictive_width
from planner.hardware import DEFAULT_VOCAB
from planner.inputs import InvalidInput, Limits, short
from planner.inputs import epochs as in_epochs
from planner.laws import AVERAGE, Law, Mixture
from planner.results import Alternative, Interval, PredictionError
from planner.solve import FLOPS_PER_PARAM_TOKEN, Choice, Point, allocate

LEVEL = 0.95
_CURVES = 100  # draws used for figures that need a search along compute for each draw
_PER_DECADE = 4  # computes looked at in that search: what is found is polished


# -- intervals


def interval(values: Any, level: float = LEVEL) -> Interval | None:
    """The central `level` of the finite values, or None if fewer than half are finite."""
    everything = np.ravel(np.asarray(values, dtype=float))
    finite = everything[np.isfinite(everything)]
    if len(finite) < max(2, 0.5 * len(everything)):
        return None
    low, median, high = np.quantile(finite, (0.5 - level / 2, 0.5, 0.5 + level / 2)).tolist()
    return Interval.model_construct(low=low, median=median, high=high)


def intervals_of(figures: Mapping[str, Any]) -> dict[str, Interval]:
    found = {name: interval(values) for name, values in figures.items()}
    return {name: value for name, value in found.items() if value is not None}


def normal_share(deviations: float) -> float:
    """The share of the normal distribution below so many standard deviations."""
    return 0.5 * (1 + math.erf(deviations / math.sqrt(2)))


def paired_draws(draws: Sequence[Law]) -> list[tuple[Law, ...]]:
    """Draws of several settings that belong together, one of each: of mixtures of forms, form by form."""
    parts = [one.parts if isinstance(one, Mixture) else (one,) for one in draws]
    by_form = [{part.form: part for part in some} for some in parts]
    shared = [form for form in by_form[0] if all(form in some for some in by_form)]
    least = {form: min(some[form].draws for some in by_form) for form in shared}
    return [tuple(some[form].draw(slice(least[form])) for some in by_form) for form in shared]


# -- the law's error


def prediction_error(setting: Setting, form: str, point: Point, error: float) -> PredictionError | None:
    """Between which losses a prediction with this error puts a run; None where no error was measured."""
    measured = setting.measured(form)
    if measured is None:
        return None
    width = predictive_width(measured.runs) * error
    terms = setting.law(form).terms(point.params, point.unique_tokens, point.epochs)
    return PredictionError.model_construct(
        error=error,
        runs=measured.runs,
        level=evidence.LEVEL,
        loss_low=max(point.loss - width, min(float(terms.irreducible), point.loss)),
        loss_high=point.loss + width,
        beyond_evidence=beyond_evidence(setting, point),
    )


def interval_note(known: Calibration, setting: Setting, form: str, tokens: float) -> str | None:
    """How the intervals were made, or why there is none; nothing where the law's error makes one."""
    if short_of := known.starved_of_steps(tokens):
        return f"{short_of}, so no interval can be given"
    draws = setting.law_draws(form)
    if draws is not None and setting.draws is not None:
        size = draws.draws
        some = f"; turning point, loss-minimising compute and flat range from the first {_CURVES}"
        return f"intervals hold {LEVEL:.0%} of {size:,} draws ({setting.draws.method})" + (
            some if size > _CURVES else ""
        )
    if setting.measured(form) is not None:
        return None
    if all(one.draws is None for one in known.settings):
        return "no uncertainty was published with this calibration, so no interval can be given"
    where = f"{form} at weight decay {setting.weight_decay}"
    return f"this calibration has no draws of {where}, so no interval can be given"


# -- intervals from draws


def with_discrepancy(loss: np.ndarray, irreducible: Any, discrepancy: np.ndarray | None) -> np.ndarray:
    """Losses of draws that take their forms to be off by so much of what is above the irreducible loss."""
    return loss if discrepancy is None else np.asarray(loss * np.exp(discrepancy * (1 - irreducible / loss)))


def loss_intervals(
    setting: Setting, form: str, point: Point, uniform: float = np.inf, gain: Gain = NO_GAIN
) -> dict[str, Interval] | None:
    """Intervals of loss, perplexity and each loss term of one configuration, where there are draws.

    Nothing loses more than the `uniform` loss, unless the law itself says so. Averaging several such models
    is taken to gain what it was fitted to `gain`, with the doubt of a law that was borrowed; the terms are
    those of one.
    """
    draws = setting.law_draws(form, of_losses=True)
    if draws is None:
        return None
    place = point.params, point.unique_tokens, point.epochs
    terms = draws.terms(*place)
    most = max(uniform, float(setting.law(form).loss(*place)))
    with np.errstate(over="ignore"):
        loss = with_discrepancy(np.asarray(terms.loss), terms.irreducible, setting.discrepancy(form))
        loss = np.minimum(loss, most) - _drawn_gains(gain, loss.size).reshape(loss.shape)
        return intervals_of({"loss": loss, "perplexity": np.exp(loss), **terms._asdict()})


def _drawn_gains(gain: Gain, draws: int) -> np.ndarray:
    """So many values of a gain, log-normal on either side; always the same, in no order."""
    if not gain.high > gain.low > 0:
        return np.full(draws, float(gain.expected))
    z = np.random.default_rng(0).standard_normal(draws) / predictive_width(None)
    ends = np.where(z > 0, gain.high, gain.low) / gain.expected
    return np.asarray(gain.expected * ends ** np.abs(z))


def plan_intervals(
    choice: Choice, others: Sequence[Alternative], elsewhere: Mapping[str, float | None]
) -> dict[str, Interval] | None:
    """An interval of each figure of a plan, where the calibration has draws: what each of them would have
    recommended and expected, and what it says of other laws. `elsewhere` are figures of other weight decays.
    """
    question, found, draws = choice.question, choice.found, choice.draws
    if draws is None or question.known.starved_of_steps(found.point.unique_tokens * found.point.epochs):
        return None
    losses = loss_intervals(choice.setting, question.form, found.point, choice.uniform_loss, choice.gain)
    if losses is None or not choice.single:
        return losses
    figures = _joined([_plan_figures(part, draws.draws, choice, others) for part in _parts(draws)])
    for figure, decay in elsewhere.items():
        if decay not in (None, found.weight_decay):
            figures = {name: values for name, values in figures.items() if not name.startswith(figure)}
            other = question.known.setting(decay).law_draws(question.form)
            figures |= {} if other is None else _figures_elsewhere(figure, draws, other, choice)
    found_here = {"params": found.point.params, "epochs": found.point.epochs, "tokens": found.point.tokens}
    within = {name: _holding(one, found_here.get(name)) for name, one in intervals_of(figures).items()}
    return within | losses


def _holding(one: Interval, value: float | None) -> Interval:
    """An interval that holds the plan, which stays near the evidence where bare laws of draws need not."""
    if value is None:
        return one
    return one.model_copy(update={"low": min(one.low, value), "high": max(one.high, value)})


def _parts(draws: Law) -> Sequence[Law]:
    """Draws of one form each."""
    return draws.parts if isinstance(draws, Mixture) else (draws,)


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _plan_figures(
    draws: Law, total: int, choice: Choice, others: Sequence[Alternative]
) -> dict[str, np.ndarray]:
    """The figures of each draw of one form; those that need a search along compute of some of them only."""
    ud, flops, limits = choice.question.ud, choice.found.point.flops, choice.question.limits
    corpora, computes = np.array([[ud], [2 * ud], [ud]]), np.array([[flops], [flops], [2 * flops]])
    plans = allocate(draws, corpora, computes, limits)
    own = plans.at(0)
    data, compute_ = plans.loss[1:] - plans.loss[0]
    if limits.ceiling:  # nobody has to use it
        data, compute_ = np.minimum(data, 0.0), np.minimum(compute_, 0.0)
    figures = {"params": own.params, "epochs": own.epochs, "tokens": own.tokens}
    figures |= {"loss_if_twice_the_data": data, "loss_if_twice_the_compute": compute_}
    figures |= {f"regret_{row.law}": draws.loss(row.params, ud, row.epochs) - own.loss for row in others}
    figures |= critical_points_of_draws(draws, total, ud, round(math.log10(flops)), limits)
    few = slice(_few(draws, total))
    own, tolerance = own.at(few), choice.question.tolerance
    low, high = solve.flat_epochs(draws.draw(few), ud, own._replace(flops=flops), tolerance, limits)
    product = flops / (FLOPS_PER_PARAM_TOKEN * ud)
    figures |= {"flat_epochs_min": low, "flat_epochs_max": high}
    return figures | {"flat_params_min": product / high, "flat_params_max": product / low}


def _few(draws: Law, total: int) -> int:
    """How many draws of a form are enough for what needs a search along compute."""
    return max(round(min(1.0, _CURVES / total) * draws.draws), 1)


@lru_cache(256)
def critical_points_of_draws(
    draws: Law, total: int, ud: float, magnitude: int, limits: Limits
) -> dict[str, np.ndarray]:
    """Where each of some draws turns and where it is lowest along compute, 10^`magnitude` being in sight."""
    few = draws.draw(slice(_few(draws, total)))
    computes = solve.search_range(few, ud, 10.0**magnitude, _PER_DECADE)
    curve = allocate(few.draw((slice(None), None)), ud, computes, limits.continuous())
    turn, best = (
        find(few, ud, curve, limits, grids=2) for find in (solve.most_epochs, solve.loss_minimising)
    )
    figures = {"turning_flops": turn.flops, "turning_epochs": turn.epochs}
    return figures | {"loss_minimising_flops": best.flops, "loss_minimising_loss": best.loss}


def _figures_elsewhere(figure: str, draws: Law, others: Law, choice: Choice) -> dict[str, np.ndarray]:
    """A figure of a plan that another weight decay, with the draws `others`, has: one draw of each at a
    time."""
    ud, flops, limits = choice.question.ud, choice.found.point.flops, choice.question.limits
    if figure == "loss_minimising":
        place = others.draws, ud, round(math.log10(flops)), limits
        found = _joined([critical_points_of_draws(part, *place) for part in _parts(others)])
        return {name: values for name, values in found.items() if name.startswith(figure)}
    data, more = (2.0, 1.0) if figure == "loss_if_twice_the_data" else (1.0, 2.0)
    changes = [
        allocate(other, data * ud, more * flops, limits).loss - allocate(own, ud, flops, limits).loss
        for own, other in paired_draws((draws, others))
    ]
    every = np.concatenate(changes) if changes else np.array([])
    return {figure: np.minimum(every, 0.0) if limits.ceiling else every}


@lru_cache(128)
def crossover_interval(
    weaker: Law, stronger: Law, ud: float, between: tuple[float, float], limits: Limits
) -> tuple[Interval | None, float]:
    """Interval of the crossover between two computes, and the share of draws that cross there."""
    pairs = paired_draws((weaker, stronger))
    places = np.concatenate([solve.draws_crossings(one, other, ud, between, limits) for one, other in pairs])
    inside = np.isfinite(places)
    if isinstance(weaker, Mixture):  # draws that cross further out count where they are last seen
        places = np.clip(places, *between)
    return interval(places), float(np.mean(inside))


def weight_decay_probabilities(choice: Choice) -> dict[str, float] | None:
    """The share of draws in which the plan of each weight decay is the best one; None without draws."""
    known, form = choice.question.known, choice.question.form
    points = {one.weight_decay: one.point for one in (choice.found, *choice.rivals)}
    settings = [setting for setting in known.candidates(form) if setting.weight_decay in points]
    draws = [law for setting in settings if (law := setting.law_draws(form)) is not None]
    if len(settings) < 2 or len(draws) < len(settings) or not all(one.law_weights for one in settings):
        return None
    best = [points[setting.weight_decay][:3] for setting in settings]
    losses = np.concatenate(
        [
            np.stack([law.loss(*place) for law, place in zip(laws, best, strict=True)])
            for laws in paired_draws(draws)
        ],
        axis=1,
    )
    if not np.isfinite(losses).any(axis=0).all():
        return None
    wins = np.bincount(np.nanargmin(losses, axis=0), minlength=len(settings)) / losses.shape[1]
    return {f"{one.weight_decay:g}": float(share) for one, share in zip(settings, wins, strict=True)}


# -- beyond the runs

_FIRM = 8.0  # exponent of an error: the likelihood of so many independent ones
_LEAST_WEIGHT = 0.01  # below which a form is dropped
_BEYOND = 1.02  # ratio from which something is outside of the runs


def directions_beyond(fitted: FittedRange, point: Point) -> dict[str, float]:
    """The directions in which a configuration leaves the runs, and by which factor."""
    repeated = point.epochs > 1
    sizes = (fitted.repeated_params if repeated else None) or fitted.params
    data = (fitted.repeated_unique_tokens if repeated else None) or fitted.unique_tokens
    factors = {
        "size": point.params / sizes[1],
        "data": point.unique_tokens / data[1],
        "epochs": point.epochs / fitted.epochs[1],
        "compute": point.flops / fitted.flops[1] if fitted.flops else 1.0,
    }
    return {direction: factor for direction, factor in factors.items() if factor > _BEYOND}


def used(point: Point) -> Point:
    """A configuration in terms of the tokens that it uses: below one epoch only a part of the corpus,
    once."""
    part, passes = point.unique_tokens * min(point.epochs, 1.0), max(point.epochs, 1.0)
    flops = FLOPS_PER_PARAM_TOKEN * point.params * part * passes
    return Point(point.params, part, passes, flops, point.loss)


def reweight(known: Calibration, form: str, ud: float, flops: float) -> Calibration:
    """The calibration as it answers for this budget: forms weighed by their errors in the question's
    direction.

    Forms that describe the same runs equally well part beyond them, and which to trust depends on the
    direction: one that holds for more compute may be wrong for more epochs. A calibration keeps, for each
    direction, how far every form was off on other tables beyond what it had seen there
    (`extrapolation_errors`, over the best form). Where a question goes there, the weights of an average of
    forms become

        w  ~  (weight by the runs)  x  (error in these directions)^-8,

    geometric mean over the directions in which the question leaves the runs.
    """
    known_errors = any(setting.extrapolation_errors for setting in known.settings)
    if form != AVERAGE or not known_errors or not math.isfinite(flops):
        return known
    ways = []
    for setting in known.settings:
        best = used(allocate(setting.law(AVERAGE), ud, flops).single())
        ways.append(tuple(sorted(directions_beyond(setting.fitted_on, best))))
    if not any(ways):
        return known
    if tuple(ways) not in known.reweighted:
        settings = [
            setting.changed(
                law_weights=extrapolation_weights(
                    setting.law_weights, [setting.extrapolation_errors.get(way, {}) for way in own]
                )
            )
            for setting, own in zip(known.settings, ways, strict=True)
        ]
        known.reweighted[tuple(ways)] = known.changed(settings=tuple(settings))
    return known.reweighted[tuple(ways)]


def extrapolation_weights(
    weights: Mapping[str, float], errors: list[Mapping[str, float]]
) -> dict[str, float]:
    """The weights times the errors in some directions to the power of -8; a form without any stands in the
    middle.
    """
    table = np.log([[error.get(form, np.nan) for form in weights] for error in errors])  # (directions, forms)
    told = table[np.isfinite(table).any(axis=-1)]
    if not len(told):
        return dict(weights)
    behind = np.where(np.isnan(told), np.nanmedian(told, axis=1, keepdims=True), told).mean(axis=0)
    score = np.log(list(weights.values())) - _FIRM * behind
    raw = np.exp(score - score.max())
    raw[raw < _LEAST_WEIGHT] = 0.0
    raw /= raw.sum()
    return {form: float(share) for form, share in zip(weights, raw, strict=True) if share}


# Where forms that are averaged part, and the one run that would settle it.

_NOTICED = 0.01  # nats between forms that are worth a word
# Shares of the plan's compute that are tried for a run that settles it.
_CHEAP = (0.03, 0.06, 0.12, 0.25, 0.5)


class FormDisagreement(NamedTuple):
    """Where a plan leaves the runs and the forms that count disagree."""

    point: Point
    beyond: dict[str, float]  # by which factor, in each direction
    losses: list[tuple[float, str]]  # and their forms, the lowest first
    mostly_by: str  # the direction that makes most of it
    run: Point | None  # the cheapest that shows half of it
    run_nats: float


def _form_losses(setting: Setting, point: Point) -> list[tuple[float, str]]:
    """What each form that counts expects there, the lowest first."""
    heard = [form for form, weight in setting.law_weights.items() if weight >= HEARD]
    return sorted((float(setting.law(form).loss(*point[:3])), form) for form in heard)


def _nats_apart(setting: Setting, point: Point) -> float:
    losses = _form_losses(setting, point)
    return losses[-1][0] - losses[0][0]


def form_disagreement(setting: Setting, point: Point) -> FormDisagreement | None:
    """By how much the forms of an average disagree at a plan beyond the runs; None: nothing worth a word."""
    point, fitted = used(point), setting.fitted_on
    beyond = directions_beyond(fitted, point)
    if not beyond or not setting.law_weights or _nats_apart(setting, point) < _NOTICED:
        return None
    back = {  # the plan moved back into the runs along one direction; along compute, in size
        "size": {"params": (fitted.repeated_params or fitted.params)[1]},
        "data": {"unique_tokens": (fitted.repeated_unique_tokens or fitted.unique_tokens)[1]},
        "epochs": {"epochs": fitted.epochs[1]},
        "compute": {
            "params": point.params * (fitted.flops[1] if fitted.flops else point.flops) / point.flops
        },
    }
    moved = [way for way in beyond if way != "compute"] or list(beyond)  # compute is more of the others
    mostly_by = min(moved, key=lambda way: _nats_apart(setting, point._replace(**back[way])))
    run = settling_run(setting, point)
    run_nats = 0.0 if run is None else _nats_apart(setting, run)
    return FormDisagreement(point, beyond, _form_losses(setting, point), mostly_by, run, run_nats)


def settling_run(setting: Setting, point: Point) -> Point | None:
    """The cheapest run that shows half of what forms disagree by at this place; None where none does.

    It is the plan with a smaller model, with less data, with both, or with fewer epochs: what can be had for
    a share of the compute. Size and data are no less than the runs had, nor is the data so little that there
    are more parameters a token than in plan and runs.
    """
    fitted = setting.fitted_on
    densest = max(point.params / point.unique_tokens, fitted.params[1] / fitted.unique_tokens[0])
    wanted = max(0.5 * _nats_apart(setting, point), _NOTICED)
    for share in _CHEAP:
        root = share**0.5
        candidates = (
            point._replace(params=point.params * share),
            point._replace(params=point.params * root, unique_tokens=point.unique_tokens * root),
            point._replace(unique_tokens=point.unique_tokens * share),
            point._replace(epochs=max(point.epochs * share, 1.0)),
        )
        possible = [
            used(one)
            for one in candidates
            if one.params * one.unique_tokens * one.epochs < point.params * point.unique_tokens * point.epochs
            and one.params >= fitted.params[0]
            and one.unique_tokens >= fitted.unique_tokens[0]
            and one.params / one.unique_tokens <= densest * (1 + 1e-9)
        ]
        best = max(possible, key=lambda one: _nats_apart(setting, one), default=None)
        if best is not None and _nats_apart(setting, best) >= wanted:
            return best
    return None


# -- evidence

FAR = 100.0
_ROUNDED = 1.005  # what is lost where an amount is written with three digits
_TOO_FAR = FAR * _ROUNDED


class Outside(NamedTuple):
    """A quantity that is beyond an end of the evidence."""

    name: str
    value: float
    end: float

    @property
    def above(self) -> bool:
        return self.value > self.end

    @property
    def times(self) -> float:
        return self.value / self.end if self.above else self.end / self.value


def outside(
    seen: Evidence, times: float, place: Mapping[str, float], repeated: bool = False
) -> list[Outside]:
    """The quantities of a place that are more than so many times outside of what was trained, or of what was
    trained more than once. Below one epoch nothing repeats: few epochs never are.
    """
    ranges = {"params": seen.sizes(repeated), "unique_tokens": seen.data(repeated), "epochs": seen.epochs}
    found = []
    for name, value in place.items():
        low, high = ranges[name]
        if value > times * high:
            found.append(Outside(name, value, high))
        elif value < low / times and name != "epochs":
            found.append(Outside(name, value, low))
    return found


def check_question(
    known: Calibration, ud: float, limits: Limits, target: float | None = None, *, buys: bool = False
) -> None:
    """Refuse a question that no plan near any evidence can answer: a plan uses the corpus, or a part of it
    where it `buys` no more, and no size outside of the limits; and a uniform guess needs no training.
    """
    vocab = known.vocab_size or DEFAULT_VOCAB
    if target is not None and target > math.log(vocab):
        raise InvalidInput(
            f"({target:.6g}) is above the uniform loss, which needs no training, ln({vocab:,}) = "
            f"{math.log(vocab):.4f}; a loss below that would do.",
            field="target_loss",
        )
    seen = Evidence.of(known.settings)
    asked = (
        ("ud", "unique_tokens", None if buys else ud, False),
        ("max_params", "params", limits.max_params, False),
        ("min_params", "params", limits.min_params, True),
    )
    for field, name, value, above in asked:
        for far in outside(seen, _TOO_FAR, {name: value}) if value is not None else ():
            if far.above != above:
                continue
            if name == "params" and limits.size is not None:  # that was given as one number
                field, far = "params", far._replace(value=limits.size)
            raise _refusal(known, far, field, {"unique_tokens": ud, name: far.value})


def check_prediction(known: Calibration, params: float, ud: float, epochs: float) -> None:
    """Refuse a configuration that is too far from all evidence."""
    for far in _far_from(known, ud, params, epochs):
        if far.name == "unique_tokens" and epochs < 1 and not far.above:
            least = far.end / FAR / ud
            text = f"({epochs:g}) leaves {short(far.value)} tokens in use, {_how_far(known, far)}; "
            raise InvalidInput(f"{text}at least {least:.2g} would do.", field="epochs")
        place = {"unique_tokens": ud * min(epochs, 1.0), "params": params, "epochs": epochs}
        raise _refusal(known, far, "ud" if far.name == "unique_tokens" else far.name, place)


def check_plan(known: Calibration, point: Point) -> None:
    """Refuse a plan that is too far from all evidence: compute that is so little, limits or a budget that has
    to be spent whole leave no other.
    """
    for far in _far_from(known, point.unique_tokens, point.params, point.epochs):
        best = f"the best plan would be {short(point.params)} for {in_epochs(point.epochs)}"
        how = "‹extrapolate› asks the bare law all the same"
        raise InvalidInput(f"{best}: {_how_far(known, far)}; {how}.")


def _far_from(known: Calibration, ud: float, params: float, epochs: float) -> list[Outside]:
    """Where a configuration is too far from all evidence, that of repeated tokens where it repeats any."""
    place = {"unique_tokens": ud * min(epochs, 1.0), "params": params, "epochs": epochs}
    seen = Evidence.of(known.settings)
    repeated, every = outside(seen, _TOO_FAR, place, epochs > 1), outside(seen, _TOO_FAR, place)
    return [far for far in repeated if far.above] + [far for far in every if not far.above]


def refused(known: Calibration, params: Any, ud: Any, epochs: Any) -> np.ndarray:
    """Which of many plans are too far from all evidence."""
    seen = Evidence.of(known.settings)
    far: np.ndarray = np.greater(epochs, _TOO_FAR * seen.epochs[1])
    for ranges, values in ((seen.sizes, params), (seen.data, ud * np.minimum(epochs, 1.0))):
        (low, once), (_, again) = ranges(repeated=False), ranges(repeated=True)
        high = np.where(np.greater(epochs, 1.0), again, once)
        far = far | np.greater(values, _TOO_FAR * high) | np.less(values, low / _TOO_FAR)
    return far


def beyond_evidence(setting: Setting, point: Point, times: float = _ROUNDED) -> str | None:
    """Beyond which trainings a configuration is at a setting, in words; None: it is between them."""
    params, ud, epochs = point.params, point.unique_tokens, point.epochs
    place = {"params": params, "unique_tokens": ud * min(epochs, 1.0), "epochs": epochs}
    beyond = outside(setting.evidence, times, place, epochs > 1)
    ends = [f"{'above' if one.above else 'below'} {_amount(one.name, one.end)}" for one in beyond]
    what = "nothing repeated" if epochs > 1 else "nothing"
    if ends:
        return f"{what} {' or '.join(ends)} was tried"
    together = setting.evidence.from_nearest_cell(params, ud, epochs) == 0
    return None if together else "nothing of such size, data and epochs together was tried"


def _refusal(known: Calibration, far: Outside, field: str, place: dict[str, float]) -> InvalidInput:
    """Why a question is not answered, what would do, and the first shipped calibration that knows such
    runs."""

    def figure(value: float) -> str:
        return f"{value:,.0f}" if far.name == "epochs" else short(value)

    def knows(one: Calibration) -> bool:
        return not outside(Evidence.of(one.settings), 1.0, place)

    end = f"at most {figure(FAR * far.end)}" if far.above else f"at least {figure(far.end / FAR)}"
    others = [] if knows(known) else [name for name in shipped_names() if knows(Calibration.load(name))]
    would_do = " or ".join([end, *(f"‹calibration› {name}" for name in others[:1])])
    return InvalidInput(f"({figure(far.value)}) is {_how_far(known, far)}; {would_do} would do.", field=field)


def _how_far(known: Calibration, far: Outside) -> str:
    ends = {"params": ("smallest", "largest"), "unique_tokens": ("fewest", "most"), "epochs": ("", "most")}
    end = f"{'' if far.above else 'below '}the {ends[far.name][far.above]}"
    return (
        f"{far.times:,.0f} times {end} that calibration {known.name} knows from runs "
        f"({_amount(far.name, far.end)}), and beyond {FAR:g} times nothing is known"
    )


def _amount(name: str, value: float) -> str:
    if name == "epochs":
        return in_epochs(value)
    return f"{short(value)} {'parameters' if name == 'params' else 'unique tokens'}"
