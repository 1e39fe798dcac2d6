"""Calibrations: which law holds for which corpus, model family and weight decay, and how well that is known.

A calibration is one JSON file. Some ship with the package (`planner laws` lists them), and
`planner calibrate fit` writes more. The format is that of the records below: the whole file is a
`Calibration` with one `Setting` for each weight decay. docs/files.md shows one.

Versions 1 and 2 are read as they are: `RENAMED` has what they called otherwise. Unknown fields are kept, a
newer version is refused.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_serializer, model_validator

from planner.evidence import Evidence, UpperBound, predictive_width
from planner.hardware import DEFAULT_VOCAB, LARGEST_VOCAB
from planner.inputs import InvalidCalibration, InvalidInput, number, short
from planner.laws import (
    AVERAGE,
    DEFAULT_FORM,
    RENAMED_FORMS,
    TIMESCALE,
    Array,
    At,
    Averaged,
    Law,
    Mixture,
    between,
    check_form,
)
from planner.weight_decay_rule import tuned_weight_decay

SCHEMA_VERSION = 3
# What files of earlier versions call otherwise, wherever it stands in them.
RENAMED = {
    "ensemble": "draws",
    "misfit": "discrepancy",
    "over_all": "loss_draws",
    "law_skill": "extrapolation_errors",
    "dial": "weight_decay_law",
    "memory_epochs": "timescale_epochs",
    "memory_tokens": "timescale_tokens",
    **RENAMED_FORMS,
}
RENAMED_SHIPPED = {"dial": "micro-weight-decay"}  # calibrations that shipped under another name
DEFAULT_TOLERANCE = 0.01  # nats; about 1% of perplexity
HEARD = 0.05  # weight from which a form of an average is spoken of
DEFAULT_CALIBRATION = "fineweb-llama2"
MOST_MEMBERS = 10_000
LITTLE = 0.25  # of what was unknown of a part of the law: where runs have settled less, it is the prior's
_NUMBERS = re.compile(r"\[[-+\d.eE,\s]*\]")  # lists of numbers stay on one line: draws are thousands
_FOREVER = 1e18  # tokens of timescale where nothing is ever forgotten
_SHIPPED = Path(__file__).parent / "data"

# What nobody has trained, by far: numbers beyond are mistakes, and arithmetic with them overflows.
_MOST = 1e40  # parameters, tokens, FLOPs
_Positive = Annotated[float, Field(gt=0, le=_MOST)]
_Nats = Annotated[float, Field(gt=0, le=1e4)]
_Runs = Annotated[int, Field(ge=0, le=10**9)]
_Decay = Annotated[float, Field(ge=0, le=1e6)]
_Beta = Annotated[float, Field(ge=0, lt=1)]
_Share = Annotated[float, Field(gt=0, le=1)]
_Power = Annotated[float, Field(ge=-100, le=100)]
_Members = Annotated[int, Field(ge=2, le=MOST_MEMBERS)]
_Drawn = dict[str, list[float]]  # by parameter, one value for each draw


def _increasing(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError("must be two increasing numbers, not [{:g}, {:g}]".format(*ends))
    return ends


_Range = Annotated[tuple[_Positive, _Positive], AfterValidator(_increasing)]


def _renamed(values: Any) -> Any:
    """What a file of an earlier version says, under the names of today; parameters of laws included."""
    if isinstance(values, dict):
        return {RENAMED.get(name, name): _renamed(value) for name, value in values.items()}
    if isinstance(values, list | tuple) and any(isinstance(one, dict) for one in values):
        return [_renamed(one) for one in values]
    return RENAMED_FORMS.get(values, values) if isinstance(values, str) else values


class _Record(BaseModel):
    model_config = {"frozen": True, "extra": "allow", "allow_inf_nan": False, "defer_build": True}

    def changed(self, **fields: Any) -> Self:
        """The same record with other fields; what was worked out from the old ones is not kept."""
        kept = {name: getattr(self, name) for name in (*type(self).model_fields, *(self.model_extra or ()))}
        return self.model_construct(**kept | fields)


def _check_size(law: Law) -> None:
    """Refuse coefficients whose terms overflow. Of fits and refits that did not settle some may be large, so
    this is asked of a calibration's laws only.
    """
    exponents = {one.name: 1e3 for one in law.declared.parameters if one.kind == "exponent"}  # fits find <= 5
    for name, most in {"A": 1e80, "B": 1e80, **exponents}.items():
        if law.parameters[name] > most:
            raise ValueError(f"parameter {name} of law {law.form} must be at most {most:g}")


class PredictiveError(_Record):
    """How far a law was off for runs that it was not fitted on, in nats per token.

    That is `inside` of the evidence; beyond it the error grows (`planner.evidence`).
    """

    inside: _Nats
    params: _Positive
    runs: _Runs = Field(gt=0)  # that it was measured on
    source: str = ""


class FittedLaw(_Record):
    """One law form with its fitted parameters and how well it fitted."""

    parameters: dict[str, float]
    metrics: dict[str, float | None] = {}
    spread: dict[str, float] = {}  # published spread of single parameters (MAD), not draws
    predictive_error: PredictiveError | None = None


class FittedRange(_Record):
    """What the runs behind a fit covered. Outside of it a plan is an extrapolation and says so."""

    params: _Range
    unique_tokens: _Range
    epochs: _Range
    repeated_params: _Range | None = None  # of the runs with more than one epoch
    repeated_unique_tokens: _Range | None = None
    loss: _Range | None = None  # that the runs reached
    flops: _Range | None = None
    runs: _Runs | None = None
    single_epoch_runs: _Runs | None = None
    multi_epoch_runs: _Runs | None = None
    # trained together: a size, unique tokens, and the most epochs over them; None where nobody wrote it down
    cells: list[tuple[_Positive, _Positive, _Positive]] | None = None


class Trial(_Record):
    """A training that tested a law: what the law prescribed, and the loss that came out."""

    params: _Positive
    unique_tokens: _Positive
    epochs: _Positive
    loss: _Nats
    law: str  # that prescribed it

    @property
    def flops(self) -> float:
        return float(f"{6 * self.params * self.unique_tokens * self.epochs:.6g}")


class Draws(_Record):
    """Bootstrap refits or posterior draws: `laws[form][parameter][i]` is that parameter in draw i.

    `discrepancy[form][i]` is by how much, relative to the loss above the irreducible one, that draw takes the
    form to be off at a new configuration (model discrepancy, Kennedy & O'Hagan 2001).

    How steep a law is at one place, which decides what is best, is less certain than how steep it is over all
    runs, which decides what is lost: `loss_draws[form]` has those parameters that differ in the latter.
    """

    method: str
    laws: dict[str, _Drawn]
    discrepancy: dict[str, list[float]] = {}
    loss_draws: dict[str, _Drawn] = {}

    def parameters(self, form: str, of_losses: bool = False) -> _Drawn:
        """Of the draws of a form: as they decide, or as they lose."""
        return {**self.laws[form], **(self.loss_draws.get(form, {}) if of_losses else {})}

    def by_form(self, of_losses: bool = False) -> dict[str, Law]:
        """Every form's draws as one law whose parameters are arrays."""
        return {form: Law(form, self.parameters(form, of_losses)) for form in self.laws}

    def check(self) -> None:
        """Refuse draws that do not belong together; building them refuses a bad coefficient."""
        unknown = [form for form in (*self.discrepancy, *self.loss_draws) if form not in self.laws]
        for form in self.loss_draws.keys() & self.laws.keys():
            unknown += [f"{name} of {form}" for name in self.loss_draws[form] if name not in self.laws[form]]
        if unknown:
            raise ValueError(f"there are no draws of {unknown[0]}, for which others are given")
        for form in {**self.by_form(), **self.by_form(of_losses=True)}:
            lists = [*self.laws[form].values(), *self.loss_draws.get(form, {}).values()]
            sizes = {len(values) for values in [*lists, self.discrepancy.get(form, lists[0])]}
            if len(sizes) != 1 or min(sizes) < 2:
                raise ValueError(
                    f"the draws of {form} must be the same number, at least 2, for each parameter"
                )


class Setting(_Record):
    """The laws fitted at one weight decay, by form; the base law is always among them."""

    weight_decay: _Decay
    fitted_on: FittedRange
    laws: dict[str, FittedLaw] = Field(min_length=1)
    draws: Draws | None = None
    law_weights: dict[str, _Share] = {}  # how much each form counts in the average; empty: there is none
    # by direction: each form's error over the best, beyond the runs of other tables
    extrapolation_errors: dict[str, dict[str, float]] = {}
    warnings: list[str] = []  # what plans with it should know of the fit
    method: dict[str, Any] = {}  # how it was fitted
    trials: tuple[Trial, ...] = ()
    between: tuple[float, float] | None = None  # the weight decays that it was interpolated from
    # the least and the most of runs that were tuned one by one; `weight_decay` is only their middle then
    tuned_weight_decays: tuple[_Decay, _Decay] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if unknown := self.law_weights.keys() - self.laws.keys():
            raise ValueError(f"the weight of {min(unknown)} must belong to one of the laws")
        # Building every law here means that a file with a bad coefficient is refused when it is read.
        for form in self.laws:
            _check_size(self._laws[form])
        if self.draws is not None:
            self.draws.check()
        return self

    def has(self, form: str) -> bool:
        """Whether this form, or the average of forms, is calibrated here."""
        return form in self._laws

    def law(self, form: str) -> Law:
        """The fitted law of this form, or the average of all that count."""
        if form not in self._laws:
            raise InvalidInput(
                f"{check_form(form)} is not calibrated at weight decay {self.weight_decay}; "
                f"calibrated there: {', '.join(self.laws)}.",
                field="law",
            )
        return self._laws[form]

    @cached_property
    def _laws(self) -> dict[str, Law]:
        found = {form: Law(form, fitted.parameters) for form, fitted in self.laws.items()}
        if self.law_weights:
            forms, weights = zip(*self.law_weights.items(), strict=True)
            found[AVERAGE] = Averaged([found[form] for form in forms], weights)
        return found

    @cached_property
    def evidence(self) -> Evidence:
        """What was trained: the runs that the laws were fitted on, and those that tested them."""
        return Evidence.of([self])

    def error(self, form: str, tolerance: float = DEFAULT_TOLERANCE) -> Callable[[Any, Any, Any], Any]:
        """The error (a standard deviation) of this form's predictions for model size, unique tokens and
        epochs: what was measured, or the `tolerance`, and what it grows by beyond the evidence.
        """
        inside = self.inside_error(form, tolerance)
        return lambda params, ud, epochs: inside + self.evidence.growth(params, ud, epochs)

    def inside_error(self, form: str, tolerance: float = DEFAULT_TOLERANCE) -> float:
        """The same inside of the evidence, where it is one number."""
        measured = self.measured(form)
        return tolerance if measured is None else measured.inside

    def upper_bound(self, form: str, law: Law | None = None) -> Law:
        """The law of this form, or one given, by the loss that can be counted on: what plans minimise."""
        if law is not None or form not in self._upper_bounds:
            measured = self.measured(form)
            width = predictive_width(None if measured is None else measured.runs)
            found = UpperBound(law or self.law(form), lambda *at: width * self.evidence.excess(*at))
            if law is not None:
                return found
            self._upper_bounds[form] = found
        return self._upper_bounds[form]

    @cached_property
    def _upper_bounds(self) -> dict[str, Law]:
        return {}

    def measured(self, form: str) -> PredictiveError | None:
        """How far a form was off for runs that it was not fitted on, where that was measured."""
        return self.laws[form].predictive_error if form in self.laws else None

    def law_draws(self, form: str, *, of_losses: bool = False) -> Law | None:
        """Draws as one law whose parameters are arrays, or None where there are none; `of_losses` where a
        loss is asked for, and not what is best.
        """
        deciding, losing, _ = self._drawn
        return (losing if of_losses else deciding).get(form)

    def discrepancy(self, form: str) -> Any:
        """Of each draw; None where it was not told from noise."""
        return self._drawn[2].get(form)

    @cached_property
    def _drawn(self) -> tuple[dict[str, Law], dict[str, Law], dict[str, np.ndarray]]:
        """By form, and of their average: draws as they decide, as they lose, and their discrepancies."""
        if self.draws is None:
            return {}, {}, {}
        deciding = self.draws.by_form()
        losing = self.draws.by_form(of_losses=True) if self.draws.loss_draws else deciding
        discrepancy = {form: np.asarray(values) for form, values in self.draws.discrepancy.items()}
        weights = {form: weight for form, weight in self.law_weights.items() if form in deciding}
        total = min((int(deciding[form].draws / weight) for form, weight in weights.items()), default=0)
        counts = {form: round(weight * total) for form, weight in weights.items()}
        some = {form: slice(count) for form, count in counts.items() if count}
        if some:
            for draws in (deciding, losing):
                draws[AVERAGE] = mixture = Mixture([draws[form].draw(few) for form, few in some.items()])
            if some.keys() <= discrepancy.keys():
                parts = [discrepancy[form][few] for form, few in some.items()]
                discrepancy[AVERAGE] = np.concatenate(parts)[mixture.order]
        return deciding, losing, discrepancy


class WeightDecayLaw(_Record):
    """Laws for every weight decay of a range given AdamW's timescale (Wang & Aitchison, arXiv 2405.13698):
    their parameters do not depend on it. Settings of such a calibration are the weight decays of the runs.
    """

    weight_decays: Annotated[tuple[_Decay, _Decay], AfterValidator(_increasing)]
    timescale_epochs: _Range  # that the runs covered
    default_weight_decay: _Decay = 0.1  # what the recipe uses where nobody chooses
    fitted_on: FittedRange
    laws: dict[str, FittedLaw] = Field(min_length=1)
    draws: Draws | None = None
    method: dict[str, Any] = {}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for form, fitted in self.laws.items():  # building them refuses a bad coefficient
            _check_size(Law(form, {**fitted.parameters, TIMESCALE: 1.0}))
        return self

    def setting(self, weight_decay: float, timescale_tokens: float) -> Setting:
        """The laws at one weight decay."""
        at, draws = {TIMESCALE: timescale_tokens}, self.draws
        laws = {form: fitted.changed(parameters=fitted.parameters | at) for form, fitted in self.laws.items()}
        if draws is not None:
            at_decay = {
                form: {**values, TIMESCALE: [timescale_tokens] * len(next(iter(values.values()), ()))}
                for form, values in draws.laws.items()
            }
            draws = draws.changed(laws=at_decay)
        return Setting(
            weight_decay=weight_decay, fitted_on=self.fitted_on, laws=laws, draws=draws, method=self.method
        )


class Recipe(_Record):
    """What the runs behind a calibration have in common, without which a weight decay means little; what is
    not known of them is None.
    """

    as_in_runs: ClassVar[tuple[str, ...]]  # what a run of `planner train` calls the same
    learning_rate: float = Field(gt=0, le=1e3)  # peak
    batch_sequences: int = Field(gt=0, le=2**30)
    sequence_length: int = Field(gt=0, le=2**30)
    schedule: str = ""
    optimizer: str = ""
    min_lr_ratio: float | None = Field(default=None, ge=0, le=1)  # of the last learning rate to the peak
    warmup_ratio: float | None = Field(default=None, ge=0, lt=1)  # share of the steps
    betas: tuple[_Beta, _Beta] | None = None
    clip: float | None = Field(default=None, gt=0)
    adam_eps: float | None = Field(default=None, gt=0, le=1)
    decay: Literal["matrices", "matrices-without-embeddings", "all"] | None = None  # what weight decay is on
    init: Literal["normal", "scaled"] | None = None  # first weights
    norm_eps: float | None = Field(default=None, gt=0, le=1)
    rope_theta: float | None = Field(default=None, gt=0, le=1e12)
    order: Literal["shuffle", "fixed"] | None = None  # of the data, from epoch to epoch
    muon_weight_decay: float | None = Field(default=None, ge=0)  # of the matrices that Muon has
    dropout: float | None = Field(default=None, ge=0, lt=1)
    warmup_steps: int | None = Field(default=None, ge=0)
    decay_ratio: float | None = Field(default=None, gt=0, le=1)  # share of the steps, of a schedule "WSD"
    ema_decay: float | None = Field(default=None, gt=0, lt=1)  # averages of weights
    average_last: int | None = Field(default=None, gt=1)
    average_every: int | None = Field(default=None, gt=0)

    @property
    def batch_tokens(self) -> int:
        return self.batch_sequences * self.sequence_length

    def timescale_tokens(self, weight_decay: Any) -> Any:
        """AdamW's timescale in tokens, batch tokens / (learning rate x weight decay), of one weight decay or
        of many; without weight decay it never ends, which is a number too.
        """
        rate = self.learning_rate * np.maximum(weight_decay, 1e-30)
        found = np.minimum(self.batch_tokens / rate, _FOREVER)
        return found if np.ndim(found) else float(found)


Recipe.as_in_runs = tuple(name for name, field in Recipe.model_fields.items() if field.default is None)


# -- what averaging several models gains

QUANTITIES = ("params", "unique_tokens", "epochs", "timescale_epochs")  # of a member

# What is known from others where a calibration has no ensembles of its own.
ELSEWHERE = (
    "elsewhere (arXiv 2509.14786, DCLM, 209.7M tokens) single models of 150M, 300M, 600M and 1.4B reached "
    "3.750, 3.587, 3.510 and 3.462, ensembles of them without end 3.50, 3.27, 3.21 and 3.17, and eight of "
    "300M distilled into one 3.364"
)


class Reference(_Record):
    """The configuration at which the gain is written down."""

    params: _Positive
    unique_tokens: _Positive
    epochs: _Positive
    timescale_epochs: _Positive


class Exponents(_Record):
    """To which power of each quantity the gain grows."""

    params: _Power
    unique_tokens: _Power
    epochs: _Power
    timescale_epochs: _Power
    density: _Power = 0.0  # added to that of timescale_epochs, per e-fold of parameters per unique token


class TrainedOn(_Record):
    """What the members covered."""

    params: _Range
    unique_tokens: _Range
    epochs: _Range
    timescale_epochs: _Range
    runs: int | None = None


_TOKENIZER = re.compile(r"; tokenizer ([A-Z][\w-]*)(?:;|$)")  # as `corpus` has it


class Distilled(_Record):
    """One model that was trained on the predictions of an ensemble. What else a file says of it (params,
    unique_tokens, epochs, weight_decay; single_loss, ensemble_loss and loss as measured) is kept.
    """

    # of the ensemble's gain over the best single model of its size: (L_single - L) / (L_single - L_K)
    kept: float
    members: _Members
    between: Annotated[tuple[float, float], AfterValidator(_increasing)] | None = None  # of several sources


class Borrowed(_Record):
    """A law of averaging that was measured elsewhere, and what is not known of it here.

    Sources tune different epochs and weight decays, so those of a member are told as multiples of what is
    best for one model of its size, whatever the compute: in the law's place of e stands e/e_1, in that of tau
    stands lambda_1/lambda. The logarithm of the gain has the standard deviation

        sqrt(spread^2 + x^T covariance x),    x = (1, ln N/N_0, ln U/U_0, ln e/e_0, ln tau/tau_0)

    which grows with the distance from what was trained.
    """

    corpus: str  # where
    spread: float = Field(ge=0, le=10)  # of another source's ln a_0, its noise included
    covariance: list[list[float]] = Field(min_length=5, max_length=5)  # of ln a_0, p, q, r and s

    @model_validator(mode="after")
    def _is_a_covariance(self) -> Self:
        found = np.array([row for row in self.covariance if len(row) == 5])
        sound = found.shape == (5, 5) and np.abs(found).max() < 1e6 and np.allclose(found, found.T)
        if not sound or np.linalg.eigvalsh(found)[0] < -1e-9:
            raise ValueError("covariance must be that of five numbers: symmetric, none of it negative")
        return self


class Gain(NamedTuple):
    """By how much several models are better than one, in nats: expected, and at the ends of an interval of
    `evidence.LEVEL` where the law was borrowed. Plans count on the lower end.
    """

    expected: Any
    low: Any
    high: Any


NO_GAIN = Gain(0.0, 0.0, 0.0)


class Averaging(_Record):
    """What an ensemble gains: the loss of K models whose probabilities are averaged.

    Members differ in their seeds only (weights and order of the data). With N parameters each, U unique
    tokens, e epochs and AdamW's timescale of tau epochs,

        L_K = L_1 - a (1 - 1 / K)
        ln a = ln a_0 + p ln(N/N_0) + q ln(U/U_0) + r ln(e/e_0) + (s + t ln(d/d_0)) ln(tau/tau_0)

    where L_1 is the calibration's own law and d = N/U, parameters per unique token: the more of them, the
    more a longer timescale (less weight decay) lets members differ. Infinitely many members reach L_1 - a.
    """

    reference: Reference  # N_0, U_0, e_0, tau_0
    gain: _Nats  # a_0, at the reference
    exponents: Exponents  # p, q, r, s and t
    error: float = Field(ge=0, le=1e4)  # root mean square, of predicting the most members from fewer
    most_members: _Members  # the largest K that was trained
    fitted_on: TrainedOn
    distilled: Distilled | None = None
    source: str = ""  # where that was measured, in words
    borrowed: Borrowed | None = None  # None: it was measured with the runs behind the calibration

    @property
    def counts(self) -> range:
        """The numbers of members that may be planned with: as far as the law of averaging was tried, twice
        those that were trained.
        """
        return range(1, 2 * self.most_members + 1)

    def power(self, params: Array, unique_tokens: Array, epochs: Array, timescale_epochs: Array) -> Array:
        """The gain of infinitely many members as its power law says, without the guards: for fits."""
        at = (params, unique_tokens, epochs, timescale_epochs)
        return self.gain * np.exp(sum(self._ln_factors(at, at)))

    def limit_gain(
        self, law: Law, params: Array, unique_tokens: Array, epochs: Array, timescale_tokens: Array
    ) -> Array:
        """By how much infinitely many members, trained with the runs behind the law, are better than one."""
        used = unique_tokens * np.minimum(epochs, 1.0)
        member = params, used, np.maximum(epochs, 1.0), timescale_tokens / used
        return self.gains(law, (params, unique_tokens, epochs), member).expected

    def gains(self, law: Law, trained: Sequence[Array], at: Sequence[Array]) -> Gain:
        """By how much infinitely many members are better than one that was `trained` with so many parameters,
        unique tokens and epochs, and that is `at` these values of `QUANTITIES`.

        Beyond what the members were trained on the gain does not grow: each of the four factors is the lesser
        of what its power says and of what it was at the nearest end of the range, and the power of the
        timescale is that of the nearest size and data of the range. And no ensemble gets below the
        irreducible loss: a <= L_1 - E.
        """
        nearest = [np.clip(v, *getattr(self.fitted_on, name)) for name, v in zip(QUANTITIES, at, strict=True)]
        here, there = self._ln_factors(at, nearest), self._ln_factors(nearest, nearest)
        guarded = sum(np.minimum(one, other) for one, other in zip(here, there, strict=True))
        one = law.terms(*trained)
        most, gain = np.maximum(one.loss - one.irreducible, 0.0), self.gain * np.exp(guarded)
        expected = np.minimum(gain, most)
        if self.borrowed is None:
            return Gain(expected, expected, expected)
        doubt = np.exp(predictive_width(None) * self.deviation(at))
        unguarded = np.maximum(self.gain * np.exp(sum(here)), gain)
        return Gain(expected, np.minimum(gain / doubt, most), np.minimum(unguarded * doubt, most))

    def deviation(self, at: Sequence[Array]) -> Array:
        """The standard deviation of the logarithm of a borrowed gain."""
        assert self.borrowed is not None
        start = [getattr(self.reference, name) for name in QUANTITIES]
        x = [1.0, *(np.log(np.divide(v, s)) for v, s in zip(at, start, strict=True))]
        square: Array = self.borrowed.spread**2
        for i, row in enumerate(self.borrowed.covariance):
            square = square + x[i] * sum(value * other for value, other in zip(row, x, strict=True))
        return np.sqrt(square)

    def _ln_factors(self, at: Sequence[Array], dense: Sequence[Array]) -> list[Array]:
        """What each quantity multiplies the gain with, as logarithms; with the power of the timescale for
        members of as many parameters per token as `dense` have.
        """
        start = [getattr(self.reference, name) for name in QUANTITIES]
        powers = [getattr(self.exponents, name) for name in QUANTITIES]
        powers[3] = powers[3] + self.exponents.density * np.log(dense[0] / dense[1] * start[1] / start[0])
        return [p * np.log(np.divide(v, s)) for p, v, s in zip(powers, at, start, strict=True)]


# Of the tables below, in ln.
_SIZES, _TOKENS = np.linspace(7.0, 34.5, 31), np.linspace(7.0, 37.0, 33)
_EPOCHS = np.linspace(0.0, math.log(512.0), 19)


@dataclass(frozen=True, eq=False)
class BestAlone:
    """The epochs and the weight decay that are best for one model of each size, whatever the compute: by the
    default law of a calibration, in a table over ln(params) and ln(unique tokens) with lines between, and by
    the rule of weight decay, within what the calibration knows.
    """

    known: Calibration
    epochs: np.ndarray  # ln

    @classmethod
    def of(cls, known: Calibration) -> BestAlone:
        form = known.form(None)
        place = [np.exp(values) for values in np.meshgrid(_SIZES, _TOKENS, _EPOCHS, indexing="ij")]
        if known.has_weight_decay_law(form):
            low, high = known.weight_decay_range
            laws = [known.law_at(form, decay) for decay in np.geomspace(max(low, 1e-3 * high), high, 9)]
        else:
            laws = [one.law(form) for one in known.settings if one.has(form)]
        with np.errstate(over="ignore", invalid="ignore"):
            losses = np.stack([np.nan_to_num(law.loss(*place), nan=np.inf) for law in laws])
        return cls(known, _EPOCHS[losses.min(axis=0).argmin(axis=-1)])

    def at(self, params: Any, unique_tokens: Any) -> tuple[Any, Any]:
        """Epochs and weight decay."""
        places = []
        for value, axis in ((params, _SIZES), (unique_tokens, _TOKENS)):
            place = np.clip((np.log(value) - axis[0]) / (axis[1] - axis[0]), 0.0, len(axis) - 1.001)
            places.append((place.astype(int), place - np.floor(place)))
        (row, down), (column, right) = places
        above, below = (
            (1 - right) * self.epochs[row + one, column] + right * self.epochs[row + one, column + 1]
            for one in (0, 1)
        )
        recipe = self.known.recipe
        assert recipe is not None
        rule = tuned_weight_decay(params, unique_tokens, recipe.learning_rate, float(recipe.batch_tokens))
        return np.exp((1 - down) * above + down * below), np.clip(rule, *self.known.weight_decay_range)


class Calibration(_Record):
    """Fitted laws for one corpus and model family, per weight decay."""

    schema_version: int = SCHEMA_VERSION
    name: str
    title: str = ""
    corpus: str = ""
    model_family: str = ""
    source: str = ""
    vocab_size: int | None = Field(default=None, gt=0, le=LARGEST_VOCAB)
    bytes_per_token: float | None = Field(default=None, gt=0, le=1000)  # of its corpus and tokenizer
    tied_embeddings: bool | None = None  # None: not known, and taken to be untied
    data_fingerprint: str | None = None  # of the tokens that the runs were trained on
    run_fingerprints: list[str] = []  # of the runs that it was fitted on, however they were rounded
    default_law: str = DEFAULT_FORM
    recipe: Recipe | None = None
    steps_needed: float | None = Field(default=None, gt=0)  # with fewer, runs lack updates, not data
    settings: tuple[Setting, ...] = Field(min_length=1)
    weight_decay_law: WeightDecayLaw | None = None
    members: Averaging | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_earlier_versions(cls, values: Any) -> Any:
        """Under the names of this version, as which it is kept."""
        found = _renamed(values)
        if isinstance(found, dict):
            version = found.setdefault("schema_version", SCHEMA_VERSION)
            if isinstance(version, bool) or not isinstance(version, int) or version < 1:
                known = f"a whole number from 1 to {SCHEMA_VERSION}"
                raise ValueError(f"schema_version must be {known}, not {version!r}")
            if version > SCHEMA_VERSION:
                known = f"this release reads up to {SCHEMA_VERSION}"
                raise ValueError(f"schema version {version}, {known}: upgrade databound")
            found["schema_version"] = SCHEMA_VERSION
        return found

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.weight_decays)) < len(self.settings):
            raise ValueError("each weight decay may appear only once in settings")
        self.form(self.default_law)  # an error if nobody knows it
        for setting in self.settings:
            if not setting.has(self.default_law):
                raise ValueError(
                    f"default_law {self.default_law} is missing at weight decay {setting.weight_decay}"
                )
        needing = {"a weight-decay law needs": self.weight_decay_law, "members need": self.members}
        for what, part in needing.items():
            if part is not None and self.recipe is None:
                raise ValueError(f"{what} the recipe: the timescale depends on learning rate and batch")
        return self

    @model_serializer(mode="wrap")
    def _what_is_known(self, dump: Callable[[Calibration], dict[str, Any]]) -> dict[str, Any]:
        """What is not known (fingerprints, a weight-decay law, members) is no field of the file."""
        facts = ("bytes_per_token", "tied_embeddings", "data_fingerprint", "run_fingerprints", "steps_needed")
        optional = (*facts, "weight_decay_law", "members")
        return {k: v for k, v in dump(self).items() if k not in optional or v not in (None, "", [])}

    def __hash__(self) -> int:
        return hash((self.name, self.weight_decays))  # laws and draws are left to comparison: this is cheap

    def starved_of_steps(self, tokens: float) -> str | None:
        """How many steps so many tokens are, where the runs show that more are needed: no law of data has
        parameters for that, and its error there is not known.
        """
        if self.recipe is None or self.steps_needed is None:
            return None
        batch, needed = self.recipe.batch_tokens, self.steps_needed
        if tokens >= 0.995 * needed * batch:  # three digits
            return None
        steps = f"{tokens / batch:,.0f} steps of {short(batch)} tokens"
        return f"{steps} are fewer than the {needed:,.0f} that runs need"

    @property
    def weight_decays(self) -> tuple[float, ...]:
        return tuple(setting.weight_decay for setting in self.settings)

    @property
    def uniform_loss(self) -> float:
        """The loss of guessing all tokens alike or, if more, the largest of the runs: no law holds above."""
        reached = [setting.fitted_on.loss[1] for setting in self.settings if setting.fitted_on.loss]
        return max([math.log(self.vocab_size or DEFAULT_VOCAB), *reached])

    def setting(self, weight_decay: Any) -> Setting:
        """The setting calibrated at this weight decay, of the weight-decay law, or interpolated between two
        of them; any other is an error, not a guess.
        """
        wanted = number(weight_decay, "weight_decay", positive=False)
        for setting in self.settings:
            if math.isclose(setting.weight_decay, wanted, rel_tol=1e-9, abs_tol=1e-12):
                return setting
        low, high = self.weight_decay_range
        if low < high and low <= wanted <= high:
            return setting_between(self, wanted)
        if low == high:
            known = " and ".join(str(decay) for decay in self.weight_decays)
            why = f"must be one that calibration {self.name} was fitted at ({known}); got {wanted}."
        else:
            what = "was fitted from" if self.weight_decay_law is not None else "can be interpolated from"
            why = (
                f"must be within what calibration {self.name} {what} ({low:g} to {high:g}); got {wanted}, "
                f"and {'below' if wanted < low else 'above'} it runs of your own would tell "
                f"(`planner calibrate fit`)."
            )
        raise InvalidInput(why, field="weight_decay")

    @property
    def weight_decay_range(self) -> tuple[float, float]:
        """The weight decays that something can be said about; zero has no logarithm to interpolate from."""
        if self.weight_decay_law is not None:
            return self.weight_decay_law.weight_decays
        decays = [decay for decay in self.weight_decays if decay > 0] or [0.0]
        return min(decays), max(decays)

    @cached_property
    def reweighted(self) -> dict[Any, Calibration]:
        """By the directions in which questions leave the runs, what answers them (`uncertainty.reweight`)."""
        return {}

    def law_at(self, form: str, weight_decays: Any) -> Law:
        """The weight-decay law of this form at many weight decays at once."""
        assert self.weight_decay_law is not None
        assert self.recipe is not None
        fitted = self.weight_decay_law.laws[form].parameters
        timescale = self.recipe.timescale_tokens(np.asarray(weight_decays))
        return Law(form, {**fitted, TIMESCALE: timescale}, check=False)

    def has_weight_decay_law(self, form: str) -> bool:
        return self.weight_decay_law is not None and form in self.weight_decay_law.laws

    @property
    def tokenizer(self) -> str | None:
        """Whose tokens losses are per, where that has a name: none is one that was made for the corpus."""
        found = _TOKENIZER.search(self.corpus)
        return None if found is None else found[1]

    def averaging_gain(
        self, law: Law, members: Any, params: Any, ud: Any, epochs: Any, weight_decay: Any
    ) -> Any:
        """By how much so many models, averaged, are expected to be better than one of them."""
        return self.averaging_gains(law, members, params, ud, epochs, weight_decay).expected

    def averaging_gains(
        self, law: Law, members: Any, params: Any, ud: Any, epochs: Any, weight_decay: Any
    ) -> Gain:
        """The same with its interval."""
        if np.all(members == 1) or self.members is None or self.recipe is None:
            return NO_GAIN
        share, member = 1 - 1 / members, self._member(params, ud, epochs, weight_decay)
        return Gain(*(each * share for each in self.members.gains(law, (params, ud, epochs), member)))

    def _member(self, params: Any, ud: Any, epochs: Any, weight_decay: Any) -> Sequence[Any]:
        """A member in the quantities of the law of averaging. Below one epoch only U e tokens are in use:
        they are then the unique tokens, seen once, and the timescale is counted in them.
        """
        assert self.members is not None
        assert self.recipe is not None
        used, passes = ud * np.minimum(epochs, 1.0), np.maximum(epochs, 1.0)
        if self.members.borrowed is None:
            return params, used, passes, self.recipe.timescale_tokens(weight_decay) / used
        best_epochs, best_decay = self.best_alone.at(params, used)
        return params, used, passes / best_epochs, best_decay / np.maximum(weight_decay, 1e-30)

    def averaging_deviation(self, params: Any, ud: Any, epochs: Any, weight_decay: Any) -> Any:
        """The standard deviation of the logarithm of what averaging gains; 0 where that is not borrowed."""
        if self.members is None or self.members.borrowed is None or self.recipe is None:
            return 0.0
        return self.members.deviation(self._member(params, ud, epochs, weight_decay))

    @cached_property
    def best_alone(self) -> BestAlone:
        return BestAlone.of(self)

    def form(self, law: str | None) -> str:
        """The law form asked for, or the calibration's own default."""
        if law is None:
            averages = all(setting.law_weights for setting in self.settings)
            return AVERAGE if averages else self.default_law
        return law if law == AVERAGE else check_form(law)

    def candidates(self, form: str, weight_decay: Any = None) -> tuple[Setting, ...]:
        """The settings that may be chosen: the one at this weight decay, or all that have the law."""
        having = tuple(setting for setting in self.settings if setting.has(form))
        if weight_decay is not None:
            having = (self.setting(weight_decay),)
        (having or self.settings)[0].law(form)  # an error that names the laws there are, where it has none
        return having

    def law(self, weight_decay: Any, form: str | None = None) -> Law:
        """The law of this form (by default the calibration's own default) at this weight decay."""
        return self.setting(weight_decay).law(self.form(form))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file whole or not at all."""
        target = Path(path)
        text = json.dumps(self.model_dump(mode="json", exclude_none=True), indent=1) + "\n"
        text = _NUMBERS.sub(lambda match: re.sub(r"\s+", " ", match[0]), text)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise InvalidInput(f"cannot write calibration {target}: {error.strerror}.") from None

    @staticmethod
    def load(source: CalibrationSource = None) -> Calibration:
        """A shipped calibration by name, a file by path, or the one given; by default that of the paper."""
        if isinstance(source, Calibration):
            return source
        source = DEFAULT_CALIBRATION if source is None else source
        if not isinstance(source, str | os.PathLike) or not str(source).strip():
            raise _refused(f"must be a name or a path of a JSON file; got {source!r}.")
        if isinstance(source, str) and (name := RENAMED_SHIPPED.get(source, source)) in shipped_names():
            return _shipped(name)
        return _read(Path(source))


CalibrationSource = str | os.PathLike[str] | Calibration | None


def shipped_names() -> tuple[str, ...]:
    """The calibrations that come with the package, the default first."""
    names = [path.stem for path in sorted(_SHIPPED.glob("*.json"))]
    return tuple(sorted(names, key=lambda name: name != DEFAULT_CALIBRATION))


@cache
def _shipped(name: str) -> Calibration:
    return Calibration.model_validate_json((_SHIPPED / f"{name}.json").read_text("utf-8"))


_refused = partial(InvalidCalibration, field="calibration")
_TABLES = (".csv", ".parquet")  # as run tables are called


def _read(path: Path) -> Calibration:
    text, table = "", path.suffix.lower() in _TABLES and path.is_file()
    try:
        text = "" if table else path.read_text(encoding="utf-8")
        data = json.loads(text)
        if not isinstance(data, dict) or "schema_version" in data:
            return Calibration.model_validate(data)
        why = f"is not usable: schema_version is missing; it should be {SCHEMA_VERSION}"
    except (OSError, ValueError, RecursionError) as error:
        why = _why_unusable(path, text, error)
    name = repr(str(path)) if len(str(path)) <= 200 else repr(str(path)[:200] + "...")
    raise _refused(f"{name} {why}.")


def _why_unusable(path: Path, text: str, error: Exception) -> str:
    """What is wrong with a file of which nothing or this text could be read; if it is something else than a
    calibration, what, and which command makes one of it, as it can be pasted into a shell.
    """
    made = ["planner", "calibrate", "fit", str(path), "-o"]
    match error:
        case FileNotFoundError():
            return f"is neither a file nor a shipped name ({', '.join(shipped_names())})"
        case IsADirectoryError():
            return f"is a directory; of a study `{shlex.join([*made, path.name + '.json'])}` makes one"
        case UnicodeDecodeError():
            return "cannot be read: it is not UTF-8 text"
        case ValidationError():
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            return f"is not usable: {where}: {first['msg'].removeprefix('Value error, ').rstrip('.')}"
        case json.JSONDecodeError():
            pass
        case _ if not text:
            return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if path.suffix.lower() == ".json" or text.lstrip().startswith("{"):
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        return f"is not valid JSON{where}; restore a copy"
    columns = {name.strip() for name in text.partition("\n")[0].split(",")}
    if path.suffix.lower() in _TABLES or {"params", "loss"} <= columns:
        made.append(path.with_suffix(".json").name)
        return f"is a run table; `{shlex.join(made)}` makes a calibration of it"
    return "is no calibration, which is a JSON file as `planner calibrate fit runs.csv -o my.json` writes it"


# -- between two weight decays


@lru_cache(maxsize=8)  # the same question gets the same laws; with draws each takes megabytes
def setting_between(known: Calibration, weight_decay: float) -> Setting:
    """The setting at a weight decay between those calibrated: of the weight-decay law, or interpolated."""
    if known.weight_decay_law is not None and known.recipe is not None:
        return known.weight_decay_law.setting(weight_decay, known.recipe.timescale_tokens(weight_decay))
    settings = {setting.weight_decay: setting for setting in known.settings}
    weaker = settings[max(decay for decay in settings if 0 < decay < weight_decay)]
    stronger = settings[min(decay for decay in settings if decay > weight_decay)]
    return _interpolated(weaker, stronger, weight_decay)


def _interpolated(weaker: Setting, stronger: Setting, weight_decay: float) -> Setting:
    """Each term of the loss a straight line in the logarithm of the weight decay, which at one recipe is one
    in that of AdamW's timescale.
    """
    ends = math.log(weaker.weight_decay), math.log(stronger.weight_decay)
    share = (math.log(weight_decay) - ends[0]) / (ends[1] - ends[0])
    common = _common(weaker.fitted_on, stronger.fitted_on)
    # the middle of the repeated runs, and the most repeats that both saw
    sizes = common.repeated_params or common.params
    tokens = common.repeated_unique_tokens or common.unique_tokens
    reference = At(math.sqrt(math.prod(sizes)), math.sqrt(math.prod(tokens)), max(common.epochs[1], 2.0))
    laws = {}
    for form in [form for form in weaker.laws if form in stronger.laws]:
        one, other = weaker.laws[form], stronger.laws[form]
        errors = [law.predictive_error for law in (one, other) if law.predictive_error is not None]
        laws[form] = FittedLaw(
            parameters=between(form, one.parameters, other.parameters, share, reference),
            predictive_error=max(errors, key=lambda error: error.inside, default=None),
        )
    return Setting(
        weight_decay=weight_decay,
        between=(weaker.weight_decay, stronger.weight_decay),
        fitted_on=common,
        laws=laws,
        law_weights={form: weight for form, weight in weaker.law_weights.items() if form in laws},
        warnings=list(dict.fromkeys((*weaker.warnings, *stronger.warnings))),
        draws=_draws_between(weaker.draws, stronger.draws, share, reference),
        trials=(*weaker.trials, *stronger.trials),
        method={"interpolated": "each term of the loss a straight line in ln(weight decay)"},
    )


def _common(one: FittedRange, other: FittedRange) -> FittedRange:
    """What both covered, where that is anything."""
    common: dict[str, Any] = {}
    for name in ("params", "unique_tokens", "epochs", "repeated_params", "repeated_unique_tokens", "loss"):
        a, b = getattr(one, name), getattr(other, name)
        if a is not None and b is not None:
            low, high = max(a[0], b[0]), min(a[1], b[1])
            common[name] = (low, high) if low <= high else a
    return FittedRange(**common)


def _draws_between(one: Draws | None, other: Draws | None, share: float, reference: At) -> Draws | None:
    """Draw by draw, as many as both have."""
    if one is None or other is None or not one.laws.keys() & other.laws.keys():
        return None
    forms = [form for form in one.laws if form in other.laws]
    paired = {
        form: zip(values, other.discrepancy[form], strict=False)
        for form, values in one.discrepancy.items()
        if form in other.discrepancy
    }

    def law(form: str, of_losses: bool) -> _Drawn:
        ends = one.parameters(form, of_losses), other.parameters(form, of_losses)
        return between(form, *ends, share, reference)

    return Draws(
        method=one.method,
        laws={form: law(form, of_losses=False) for form in forms},
        discrepancy={form: [(1 - share) * a + share * b for a, b in pairs] for form, pairs in paired.items()},
        loss_draws={form: law(form, of_losses=True) for form in forms if one.loss_draws or other.loss_draws},
    )
