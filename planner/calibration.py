"""Calibrations: which law holds for which corpus, model family and weight decay, and how well that is known.

A calibration is one JSON file. Some ship with the package (`planner laws` lists them), and
`planner calibrate fit` writes more. The format, version 3:

    schema_version, name, title, corpus, model_family, source, vocab_size, data_fingerprint, default_law
    recipe: learning rate, batch, schedule, optimiser and first weights of the runs, without which a weight
    decay means little
    settings: one per weight decay
        weight_decay
        fitted_on: the range of params, unique_tokens and epochs that the runs covered, and how many
        laws: per form {parameters, metrics, spread, predictive_error}; the base law is always among them
        draws: bootstrap refits or posterior draws per form, one list per parameter
        method: how it was fitted, in words or fields
        trials: trainings that tested what the laws prescribe (params, unique_tokens, epochs, loss, law)
    weight_decay_law: where the laws hold for every weight decay of a range: the same, with parameters that do
        not depend on it, the range, and that of AdamW's timescale in epochs; its settings are the weight
        decays of the runs
    members: where models were averaged, what averaging several of them gains (`planner.averaging`)

Versions 1 and 2 are read as they are: `RENAMED` has what they called otherwise. Unknown fields are kept, a
newer version is refused.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from planner.averaging import Averaging
from planner.hardware import DEFAULT_VOCAB, LARGEST_VOCAB
from planner.inputs import InvalidCalibration, InvalidInput, number
from planner.laws import (
    AVERAGE,
    DEFAULT_FORM,
    FORMS,
    TIMESCALE,
    Array,
    At,
    Averaged,
    Law,
    Mixture,
    check_form,
    form_named,
    parameter_names,
)

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
}
DEFAULT_TOLERANCE = 0.01  # nats; about 1% of perplexity
DEFAULT_CALIBRATION = "fineweb-llama2"
# What nobody has trained, by far: numbers beyond are mistakes, and arithmetic with them overflows.
_MOST = 1e40  # parameters, tokens, FLOPs
_MOST_RUNS = 10**9
_MOST_NATS = 1e4
_MOST_DECAY = 1e6
LITTLE = 0.25  # of what was unknown of a part of the law: where runs have settled less, it is the prior's
_NUMBERS = re.compile(r"\[[-+\d.eE,\s]*\]")  # lists of numbers stay on one line: an ensemble has thousands
_FOREVER = 1e18  # tokens of timescale where nothing is ever forgotten
_REMEMBERED = 64  # weight decays between the calibrated ones
_WITH_DRAWS = 4  # of them where each has draws, which take megabytes
_SHIPPED = Path(__file__).parent / "data"
_STEEPEST, _LARGEST = 1e3, 1e80  # of exponents, of which fits find up to 5, and of A and B
_WEIGHED = ("_averaged", "_shares", "_mixture", "_loss_mixture")  # of a setting: by weights of forms


def _renamed(values: Any) -> Any:
    """What a file of an earlier version says, under the names of today; parameters of laws included."""
    if isinstance(values, list | tuple):
        return [_renamed(one) for one in values] if any(isinstance(one, dict) for one in values) else values
    if not isinstance(values, dict):
        return values
    return {RENAMED.get(name, name): _renamed(value) for name, value in values.items()}


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _from_earlier_versions(cls, values: Any) -> Any:
        return _renamed(values) if isinstance(values, dict) else values


def _check_size(law: Law) -> None:
    """Refuse coefficients whose terms overflow. Of fits and refits that did not settle some may be large, so
    this is asked of a calibration's laws only.
    """
    exponents = {one.name: _STEEPEST for one in law.declared.parameters if one.kind == "exponent"}
    for name, most in {"A": _LARGEST, "B": _LARGEST, **exponents}.items():
        if law.parameters[name] > most:
            raise ValueError(f"parameter {name} of law {law.form} must be at most {most:g}")


class PredictiveError(_Record):
    """How far a law was off for runs that it was not fitted on, in nats per token.

    Up to the size `params` that is `inside`; it grows with the logarithm of how far beyond it, or outside of
    the other quantities fitted, a plan is.
    """

    inside: float = Field(gt=0, le=_MOST_NATS)
    params: float = Field(gt=0, le=_MOST)
    runs: int = Field(gt=0, le=_MOST_RUNS)  # that it was measured on
    source: str = ""


class FittedLaw(_Record):
    """One law form with its fitted parameters and how well it fitted."""

    parameters: dict[str, float]
    metrics: dict[str, float | None] = {}
    spread: dict[str, float] = {}  # published spread of single parameters (MAD), not an ensemble
    predictive_error: PredictiveError | None = None


class FittedRange(_Record):
    """What the runs behind a fit covered. Outside of it a plan is an extrapolation and says so."""

    params: tuple[float, float]
    unique_tokens: tuple[float, float]
    epochs: tuple[float, float]
    repeated_params: tuple[float, float] | None = None  # of the runs with more than one epoch
    repeated_unique_tokens: tuple[float, float] | None = None
    loss: tuple[float, float] | None = None  # that the runs reached
    flops: tuple[float, float] | None = None
    runs: int | None = Field(default=None, ge=0, le=_MOST_RUNS)
    single_epoch_runs: int | None = Field(default=None, ge=0, le=_MOST_RUNS)
    multi_epoch_runs: int | None = Field(default=None, ge=0, le=_MOST_RUNS)

    @model_validator(mode="after")
    def _ordered(self) -> "FittedRange":
        repeated = ("repeated_params", "repeated_unique_tokens")
        names = ("params", "unique_tokens", "epochs", *repeated, "loss", "flops")
        for name in names:
            low, high = getattr(self, name) or (1.0, 1.0)
            if not 0 < low <= high <= _MOST:
                least = f"above zero and at most {_MOST:g}"
                raise ValueError(f"{name} must be two increasing numbers {least}, not [{low:g}, {high:g}]")
        return self


class Trial(_Record):
    """A training that tested a law: what the law prescribed, and the loss that came out."""

    params: float = Field(gt=0, le=_MOST)
    unique_tokens: float = Field(gt=0, le=_MOST)
    epochs: float = Field(gt=0, le=_MOST)
    loss: float = Field(gt=0, le=_MOST_NATS)
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
    laws: dict[str, dict[str, list[float]]]
    discrepancy: dict[str, list[float]] = {}
    loss_draws: dict[str, dict[str, list[float]]] = {}

    def parameters(self, form: str, of_losses: bool = False) -> dict[str, list[float]]:
        """Of all draws of a form: as they decide, or as they lose."""
        return {**self.laws[form], **(self.loss_draws.get(form, {}) if of_losses else {})}

    def by_form(self, of_losses: bool = False) -> dict[str, Law]:
        """Every form's draws as one law whose parameters are arrays."""
        return {
            form: Law(
                form,
                {k: np.asarray(v, dtype=float) for k, v in self.parameters(form, of_losses).items()},
            )
            for form in self.laws
        }

    def check(self) -> None:
        """Refuse draws that do not belong together; building them refuses a bad coefficient."""
        unknown = [form for form in (*self.discrepancy, *self.loss_draws) if form not in self.laws] + [
            f"{name} of {form}"
            for form, others in self.loss_draws.items()
            for name in others
            if name not in self.laws.get(form, {})
        ]
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
    """The laws fitted at one weight decay."""

    weight_decay: float = Field(ge=0, le=_MOST_DECAY)
    fitted_on: FittedRange
    laws: dict[str, FittedLaw] = Field(min_length=1)
    draws: Draws | None = None
    law_weights: dict[str, float] = {}  # how much each form counts in the average; empty: there is none
    # by direction: each form's error over the best, beyond the runs of other tables
    extrapolation_errors: dict[str, dict[str, float]] = {}
    warnings: list[str] = []  # what plans with it should know of the fit
    method: dict[str, Any] = {}
    trials: tuple[Trial, ...] = ()
    between: tuple[float, float] | None = None  # the weight decays that it was interpolated from

    @model_validator(mode="after")
    def _complete(self) -> "Setting":
        # Building every law here means that a file with a bad coefficient is refused when it is read.
        for form in self.laws:
            _check_size(self.law(form))
        for form, weight in self.law_weights.items():
            if form not in self.laws or not 0 < weight <= 1:
                raise ValueError(
                    f"the weight of {form} must be above 0, at most 1, and belong to one of the laws"
                )
        if self.draws is not None:
            self.draws.check()
        return self

    def with_weights(self, weights: dict[str, float]) -> "Setting":
        """The same laws with other weights in their average."""
        other = self.model_copy(update={"law_weights": weights})
        for name in _WEIGHED:  # what depends on them is worked out again
            other.__dict__.pop(name, None)
        return other

    def learnt_of(self, part: str) -> float:
        """The share of what was unknown of a part of the law ("repetition") that the runs have settled; one
        where nothing came from a prior.
        """
        return float(self.method.get("learnt_from_runs", {}).get(part, 1.0))

    def rests_on_prior(self, part: str) -> bool:
        """Whether the runs behind this say little about a part of the law."""
        return self.learnt_of(part) < LITTLE

    def has(self, form: str) -> bool:
        """Whether this form, or the average of forms, is calibrated here."""
        return form in self.laws or (form == AVERAGE and bool(self.law_weights))

    def law(self, form: str) -> Law:
        """The fitted law of this form, or the average of all that count."""
        if form == AVERAGE and self.law_weights:
            return self._averaged
        check_form(form)
        if form not in self.laws:
            raise InvalidInput(
                f"{form} is not calibrated at weight decay {self.weight_decay}; "
                f"calibrated there: {', '.join(self.laws)}.",
                field="law",
            )
        return self._built[form]

    def error(self, form: str, tolerance: float = DEFAULT_TOLERANCE) -> Callable[[Any, Any, Any], Any]:
        """The error (a standard deviation) of this form's predictions for model size, unique tokens and
        epochs; `tolerance` where it was not measured.
        """
        measured, fitted = self.measured(form), self.fitted_on
        if measured is None:
            return lambda params, unique_tokens, epochs: tolerance
        inside, sizes = measured.inside, (fitted.params[0], measured.params)
        repeated = fitted.repeated_unique_tokens or fitted.unique_tokens

        def error(params: Any, unique_tokens: Any, epochs: Any) -> Any:
            once = np.less_equal(epochs, 1.0)
            used = unique_tokens * np.minimum(epochs, 1.0)
            fewest, most = (np.where(once, a, b) for a, b in zip(fitted.unique_tokens, repeated, strict=True))
            ratios = (
                params / sizes[1],
                sizes[0] / params,
                used / most,
                fewest / used,
                epochs / fitted.epochs[1],
            )
            return inside * np.sqrt(1.0 + sum(np.log(np.maximum(ratio, 1.0)) ** 2 for ratio in ratios))

        return error

    def measured(self, form: str) -> PredictiveError | None:
        """How far a form was off for runs that it was not fitted on, where that was measured."""
        return self.laws[form].predictive_error if form in self.laws else None

    @cached_property
    def _built(self) -> dict[str, Law]:
        return {form: Law(form, dict(fitted.parameters)) for form, fitted in self.laws.items()}

    def law_draws(self, form: str, *, of_losses: bool = False) -> Law | None:
        """Draws as one law whose parameters are arrays, or None where there are none; `of_losses` where a
        loss is asked for, and not what is best.
        """
        if form == AVERAGE:
            return self._loss_mixture if of_losses else self._mixture
        return (self._loss_draws if of_losses else self._draws).get(form)

    def discrepancy(self, form: str) -> Any:
        """Of each draw; None where it was not told from noise."""
        kept = self.draws.discrepancy if self.draws else {}
        if form != AVERAGE:
            return np.asarray(kept[form]) if form in kept else None
        if self._mixture is None or not set(self._shares) <= set(kept):
            return None
        every = np.concatenate([kept[one][:count] for one, count in self._shares.items()])
        return every[self._mixture.order]

    @cached_property
    def _averaged(self) -> Averaged:
        return Averaged([self._built[form] for form in self.law_weights], list(self.law_weights.values()))

    @cached_property
    def _shares(self) -> dict[str, int]:
        """How many draws of each form make up the mixture."""
        sizes = {form: self._draws[form].draws for form in self.law_weights if form in self._draws}
        total = min((int(size / self.law_weights[form]) for form, size in sizes.items()), default=0)
        counts = {form: round(self.law_weights[form] * total) for form in sizes}
        return {form: count for form, count in counts.items() if count}

    @cached_property
    def _mixture(self) -> Mixture | None:
        return self._mixed(self._draws)

    @cached_property
    def _loss_mixture(self) -> Mixture | None:
        return self._mixture if self._loss_draws is self._draws else self._mixed(self._loss_draws)

    def _mixed(self, draws: dict[str, Law]) -> Mixture | None:
        parts = [draws[form].draw(slice(count)) for form, count in self._shares.items()]
        return Mixture(parts) if parts else None

    @cached_property
    def _draws(self) -> dict[str, Law]:
        return self.draws.by_form() if self.draws else {}

    @cached_property
    def _loss_draws(self) -> dict[str, Law]:
        if self.draws is None or not self.draws.loss_draws:
            return self._draws
        return self.draws.by_form(of_losses=True)


class WeightDecayLaw(_Record):
    """Laws for every weight decay of a range, given AdamW's timescale (Wang & Aitchison, arXiv
    2405.13698)."""

    weight_decays: tuple[float, float]
    timescale_epochs: tuple[float, float]  # that the runs covered
    # what the recipe uses where nobody chooses
    default_weight_decay: float = Field(default=0.1, ge=0, le=_MOST_DECAY)
    fitted_on: FittedRange
    laws: dict[str, FittedLaw] = Field(min_length=1)
    draws: Draws | None = None
    method: dict[str, Any] = {}

    @model_validator(mode="after")
    def _complete(self) -> "WeightDecayLaw":
        for form, fitted in self.laws.items():  # building them refuses a bad coefficient
            _check_size(Law(form, {**fitted.parameters, TIMESCALE: 1.0}))
        for name, most in (("weight_decays", _MOST_DECAY), ("timescale_epochs", _MOST)):
            low, high = getattr(self, name)
            if not 0 <= low <= high <= most:
                least = f"from zero to {most:g}"
                raise ValueError(f"{name} must be two increasing numbers {least}, not [{low:g}, {high:g}]")
        return self

    def setting(self, weight_decay: float, timescale_tokens: float) -> Setting:
        """The laws at one weight decay."""
        laws = {
            form: fitted.model_copy(update={"parameters": {**fitted.parameters, TIMESCALE: timescale_tokens}})
            for form, fitted in self.laws.items()
        }
        draws = self.draws
        if draws is not None:
            at_decay = {
                form: {**values, TIMESCALE: [timescale_tokens] * len(next(iter(values.values())))}
                for form, values in draws.laws.items()
            }
            draws = draws.model_copy(update={"laws": at_decay})
        return Setting(
            weight_decay=weight_decay,
            fitted_on=self.fitted_on,
            laws=laws,
            draws=draws,
            method=self.method,
        )


class Recipe(_Record):
    """What the runs behind a calibration have in common, next to their weight decay; what is not known of
    them is None.
    """

    # what a run of `planner train` calls the same
    as_in_runs: ClassVar[tuple[str, ...]] = (
        "min_lr_ratio",
        "warmup_ratio",
        "betas",
        "clip",
        "adam_eps",
        "decay",
        "init",
        "norm_eps",
        "rope_theta",
        "order",
    )

    learning_rate: float = Field(gt=0, le=1e3)  # peak
    batch_sequences: int = Field(gt=0, le=2**30)
    sequence_length: int = Field(gt=0, le=2**30)
    schedule: str = ""
    optimizer: str = ""
    min_lr_ratio: float | None = Field(default=None, ge=0, le=1)  # of the last learning rate to the peak
    warmup_ratio: float | None = Field(default=None, ge=0, lt=1)  # share of the steps
    betas: tuple[float, float] | None = None
    clip: float | None = Field(default=None, gt=0)
    adam_eps: float | None = Field(default=None, gt=0, le=1)
    decay: Literal["matrices", "matrices-without-embeddings", "all"] | None = None  # what weight decay is on
    init: Literal["normal", "scaled"] | None = None  # first weights
    norm_eps: float | None = Field(default=None, gt=0, le=1)
    rope_theta: float | None = Field(default=None, gt=0, le=1e12)
    order: Literal["shuffle", "fixed"] | None = None  # of the data, from epoch to epoch

    @field_validator("betas")
    @classmethod
    def _below_one(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not all(0 <= beta < 1 for beta in value):
            raise ValueError(f"must be at least 0 and below 1, not {list(value)}")
        return value

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


class Calibration(_Record):
    """Fitted laws for one corpus and model family, per weight decay."""

    schema_version: int = SCHEMA_VERSION
    name: str
    title: str = ""
    corpus: str = ""
    model_family: str = ""
    source: str = ""
    vocab_size: int | None = Field(default=None, gt=0, le=LARGEST_VOCAB)
    tied_embeddings: bool | None = None  # None: not known, and taken to be untied
    data_fingerprint: str | None = None  # of the tokens that the runs were trained on
    run_fingerprints: list[str] = []  # of the runs that it was fitted on, however they were rounded
    default_law: str = DEFAULT_FORM
    recipe: Recipe | None = None
    settings: tuple[Setting, ...] = Field(min_length=1)
    weight_decay_law: WeightDecayLaw | None = None
    members: Averaging | None = None

    @field_validator("schema_version", mode="before")
    @classmethod
    def _known_version(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"must be a whole number from 1 to {SCHEMA_VERSION}, not {value!r}")
        if value > SCHEMA_VERSION:
            raise ValueError(
                f"the file has schema version {value}, this release reads up to {SCHEMA_VERSION}: upgrade "
                f"databound"
            )
        return SCHEMA_VERSION  # as which it is kept

    @model_validator(mode="after")
    def _consistent(self) -> "Calibration":
        decays = self.weight_decays
        if len(set(decays)) != len(decays):
            raise ValueError("each weight decay may appear only once in settings")
        if self.default_law != AVERAGE:
            check_form(self.default_law)
        for setting in self.settings:
            if not setting.has(self.default_law):
                raise ValueError(
                    f"default_law {self.default_law} is missing at weight decay {setting.weight_decay}"
                )
        if self.weight_decay_law is not None and self.recipe is None:
            raise ValueError(
                "a weight-decay law needs the recipe: the timescale depends on learning rate and batch"
            )
        if self.members is not None and self.recipe is None:
            raise ValueError("members need the recipe: the timescale depends on learning rate and batch")
        return self

    @model_serializer(mode="wrap")
    def _what_is_known(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is not known (fingerprints, a weight-decay law, members) is no field of the file."""
        values: dict[str, Any] = dump(self)
        for name in (
            "tied_embeddings",
            "data_fingerprint",
            "run_fingerprints",
            "weight_decay_law",
            "members",
        ):
            if values.get(name) in (None, "", []):
                values.pop(name, None)
        return values

    def __hash__(self) -> int:
        return hash(
            (self.name, self.weight_decays)
        )  # laws and ensembles are left to comparison: hashing must be cheap

    @property
    def weight_decays(self) -> tuple[float, ...]:
        return tuple(setting.weight_decay for setting in self.settings)

    @property
    def uniform_loss(self) -> float:
        """The loss of guessing all tokens alike or, if more, the largest of the runs: above it no law
        holds."""
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
        if wanted < 0:
            raise InvalidInput(f"must not be negative; got {wanted}.", field="weight_decay")
        low, high = self.weight_decay_range
        if not low <= wanted <= high or low == high:
            raise InvalidInput(self._no_such_decay(wanted), field="weight_decay")
        found = self._made.get(wanted)
        if found is None:
            found = self._setting_between(wanted)
            most = _REMEMBERED if found.draws is None else _WITH_DRAWS
            for old in list(self._made)[: max(len(self._made) - most + 1, 0)]:
                self._made.pop(old, None)
            self._made[wanted] = found
        return found

    @property
    def weight_decay_range(self) -> tuple[float, float]:
        """The weight decays that something can be said about; zero has no logarithm to interpolate from."""
        if self.weight_decay_law is not None:
            return self.weight_decay_law.weight_decays
        decays = [decay for decay in self.weight_decays if decay > 0] or [0.0]
        return min(decays), max(decays)

    def _no_such_decay(self, wanted: float) -> str:
        low, high = self.weight_decay_range
        if low == high:
            known = " and ".join(str(decay) for decay in self.weight_decays)
            return f"must be one that calibration {self.name} was fitted at ({known}); got {wanted}."
        what = "was fitted from" if self.weight_decay_law is not None else "can be interpolated from"
        beyond = "below" if wanted < low else "above"
        return (
            f"must be within what calibration {self.name} {what} ({low:g} to {high:g}); got {wanted}, and "
            f"{beyond} it runs of your own would tell (`planner calibrate fit`)."
        )

    @cached_property
    def reweighted(self) -> dict[Any, "Calibration"]:
        """By the directions in which questions leave the runs, what answers them (`uncertainty.reweight`)."""
        return {}

    def with_settings(self, settings: list[Setting]) -> "Calibration":
        """The same calibration with other settings at the same weight decays."""
        other = self.model_copy(update={"settings": tuple(settings)})
        for name in ("_made", "reweighted"):
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def _made(self) -> dict[float, Setting]:
        return {}  # the same question gets the same laws: what is found out about them is remembered by law

    def _setting_between(self, weight_decay: float) -> Setting:
        if self.weight_decay_law is not None:
            assert self.recipe is not None
            return self.weight_decay_law.setting(weight_decay, self.recipe.timescale_tokens(weight_decay))
        ordered = sorted(self.settings, key=lambda setting: setting.weight_decay)
        weaker = [setting for setting in ordered if 0 < setting.weight_decay < weight_decay][-1]
        stronger = next(setting for setting in ordered if setting.weight_decay > weight_decay)
        return interpolate(weaker, stronger, weight_decay)

    def law_at(self, form: str, weight_decays: Any) -> Law:
        """The weight-decay law of this form at many weight decays at once."""
        assert self.weight_decay_law is not None
        assert self.recipe is not None
        fitted = self.weight_decay_law.laws[form].parameters
        timescale = self.recipe.timescale_tokens(np.asarray(weight_decays))
        return Law(form, {**fitted, TIMESCALE: timescale}, check=False)

    def has_weight_decay_law(self, form: str) -> bool:
        return self.weight_decay_law is not None and form in self.weight_decay_law.laws

    def averaging_gain(
        self, law: Law, members: int, params: Any, ud: Any, epochs: Any, weight_decay: Any
    ) -> Any:
        """By how much so many models, averaged, are better than one of them."""
        if members == 1 or self.members is None or self.recipe is None:
            return 0.0
        timescale = self.recipe.timescale_tokens(weight_decay)
        return self.members.limit_gain(law, params, ud, epochs, timescale) * (1 - 1 / members)

    def form(self, law: str | None) -> str:
        """The law form asked for, or the calibration's own default."""
        if law is None:
            averages = all(setting.law_weights for setting in self.settings)
            return AVERAGE if averages else self.default_law
        return law if law == AVERAGE else check_form(law)

    def candidates(self, form: str, weight_decay: Any = None) -> tuple[Setting, ...]:
        """The settings that may be chosen: the one at this weight decay, or all that have the law."""
        if weight_decay is not None:
            setting = self.setting(weight_decay)
            setting.law(form)  # an error if it has no such law
            return (setting,)
        having = tuple(setting for setting in self.settings if setting.has(form))
        if not having:
            self.settings[0].law(form)  # raises, naming the laws there are
        return having

    def law(self, weight_decay: Any, form: str | None = None) -> Law:
        """The law of this form (by default the calibration's own default) at this weight decay."""
        return self.setting(weight_decay).law(self.form(form))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file whole or not at all."""
        import tempfile

        target = Path(path)
        text = json.dumps(self.model_dump(mode="json", exclude_none=True), indent=1) + "\n"
        text = _NUMBERS.sub(lambda match: re.sub(r"\s+", " ", match[0]), text)
        try:
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        except OSError as error:
            raise InvalidInput(f"cannot write calibration {target}: {error.strerror}.") from None
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        except OSError as error:
            os.unlink(temporary)
            raise InvalidInput(f"cannot write calibration {target}: {error.strerror}.") from None

    @staticmethod
    def load(source: "CalibrationSource" = None) -> "Calibration":
        """A shipped calibration by name, a file by path, or the one given; by default that of the paper."""
        if isinstance(source, Calibration):
            return source
        if source is None:
            return _shipped(DEFAULT_CALIBRATION)
        if not isinstance(source, str | os.PathLike) or not str(source).strip():
            raise InvalidInput(
                f"must be a name or a path of a JSON file; got {source!r}.", field="calibration"
            )
        if isinstance(source, str) and source in shipped_names():
            return _shipped(source)
        return _read(Path(source))


CalibrationSource = str | os.PathLike[str] | Calibration | None


def shipped_names() -> tuple[str, ...]:
    """The calibrations that come with the package, the default first."""
    names = sorted(path.stem for path in _SHIPPED.glob("*.json"))
    return tuple(sorted(names, key=lambda name: name != DEFAULT_CALIBRATION))


_TABLES = (".csv", ".parquet")  # as run tables are called


@cache
def _shipped(name: str) -> Calibration:
    # A shipped file has been validated by a test: building it without the validators is three times as fast.
    known: Calibration = _unvalidated(Calibration, json.loads((_SHIPPED / f"{name}.json").read_text("utf-8")))
    return known


def _unvalidated(kind: Any, value: Any) -> Any:
    """What validation makes of a valid value: records from dictionaries, tuples from lists."""
    origin, inner = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if origin in (Union, UnionType):
        return _unvalidated(inner[0], value)
    if origin is tuple:
        return tuple(_unvalidated(inner[0], each) for each in value)
    if origin is dict:
        return {name: _unvalidated(inner[1], each) for name, each in value.items()}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields
        known = {
            name: _unvalidated(fields[name].annotation, each)
            for name, each in value.items()
            if name in fields
        }
        return kind.model_construct(**{**value, **known})
    return float(value) if kind is float else value


def _read(path: Path) -> Calibration:
    name = repr(str(path)) if len(str(path)) <= 200 else repr(str(path)[:200] + "...")
    text = _text(path, name)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        if path.suffix.lower() != ".json" and not text.lstrip().startswith("{"):
            raise _no_calibration(path, text) from None
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidCalibration(
            f"{name} is not valid JSON{where}; restore a copy.", field="calibration"
        ) from None
    if isinstance(data, dict) and "schema_version" not in data:
        raise InvalidCalibration(
            f"{name} is not usable: schema_version is missing; it should be {SCHEMA_VERSION}.",
            field="calibration",
        )
    try:
        return Calibration.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        reason = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise InvalidCalibration(f"{name} is not usable: {where}: {reason}.", field="calibration") from None


def _text(path: Path, name: str) -> str:
    """What a file says, or why it cannot be a calibration."""
    if path.suffix.lower() in _TABLES and path.is_file():
        raise _no_calibration(path, "")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidCalibration(
            f"{name} is neither a file nor a shipped name ({', '.join(shipped_names())}).",
            field="calibration",
        ) from None
    except IsADirectoryError:
        what = f"is a directory; of a study `{_fit_command(path, f'{path.name}.json')}` makes one"
        raise InvalidCalibration(f"{name} {what}.", field="calibration") from None
    except UnicodeDecodeError:
        raise InvalidCalibration(
            f"{name} cannot be read: it is not UTF-8 text.", field="calibration"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidCalibration(
            f"{name} cannot be read: {getattr(error, 'strerror', None) or error}.", field="calibration"
        ) from None


def _no_calibration(path: Path, text: str) -> InvalidCalibration:
    """What a file is that is no calibration, and which command makes one."""
    first = text.partition("\n")[0].split(",")
    if path.suffix.lower() in _TABLES or {"params", "loss"} <= {name.strip() for name in first}:
        made = _fit_command(path, path.with_suffix(".json").name)
        what = f"is a run table; `{made}` makes a calibration of it"
    else:
        what = (
            "is no calibration, which is a JSON file as `planner calibrate fit runs.csv -o my.json` writes it"
        )
    return InvalidCalibration(f"{str(path)!r} {what}.", field="calibration")


def _fit_command(source: Path, target: str) -> str:
    """As it can be pasted into a shell."""
    import shlex

    return shlex.join(["planner", "calibrate", "fit", str(source), "-o", target])


# -- between two weight decays


def interpolate(weaker: Setting, stronger: Setting, weight_decay: float) -> Setting:
    """The setting at a weight decay between two: each term of the loss a straight line in the logarithm of
    the weight decay, which at one recipe is one in that of AdamW's timescale.
    """
    ends = math.log(weaker.weight_decay), math.log(stronger.weight_decay)
    share = (math.log(weight_decay) - ends[0]) / (ends[1] - ends[0])
    reference = _reference(weaker.fitted_on, stronger.fitted_on)
    laws = {}
    for form in weaker.laws.keys() & stronger.laws.keys():
        one, other = weaker.laws[form], stronger.laws[form]
        errors = [law.predictive_error for law in (one, other) if law.predictive_error is not None]
        laws[form] = FittedLaw(
            parameters=between(form, one.parameters, other.parameters, share, reference),
            predictive_error=max(errors, key=lambda error: error.inside, default=None),
        )
    return Setting(
        weight_decay=weight_decay,
        between=(weaker.weight_decay, stronger.weight_decay),
        fitted_on=_common(weaker.fitted_on, stronger.fitted_on),
        laws={form: laws[form] for form in weaker.laws if form in laws},
        law_weights={form: weight for form, weight in weaker.law_weights.items() if form in laws},
        warnings=list(dict.fromkeys((*weaker.warnings, *stronger.warnings))),
        draws=_draws_between(weaker.draws, stronger.draws, share, reference),
        method={"interpolated": "each term of the loss a straight line in ln(weight decay)"},
    )


def _draws_between(weaker: Draws | None, stronger: Draws | None, share: float, reference: At) -> Draws | None:
    """Draw by draw, as many as both have."""
    if weaker is None or stronger is None:
        return None
    both = (weaker, stronger)
    forms = [form for form in weaker.laws if form in stronger.laws]
    own = [form for form in forms if form in {*weaker.loss_draws, *stronger.loss_draws}]
    if not forms:
        return None
    return Draws(
        method=weaker.method,
        laws={form: _laws(form, both, share, reference) for form in forms},
        discrepancy=_discrepancys(*both, share),
        loss_draws={form: _laws(form, both, share, reference, of_losses=True) for form in own},
    )


def _laws(
    form: str, both: tuple[Draws, Draws], share: float, reference: At, of_losses: bool = False
) -> dict[str, list[float]]:
    ends = [one.parameters(form, of_losses) for one in both]
    size = min(len(values) for end in ends for values in end.values())
    one, other = ({name: values[:size] for name, values in end.items()} for end in ends)
    return {name: v.tolist() for name, v in between(form, one, other, share, reference).items()}


def _discrepancys(weaker: Draws, stronger: Draws, share: float) -> dict[str, list[float]]:
    return {
        form: [
            (1 - share) * low + share * high
            for low, high in zip(one, stronger.discrepancy[form], strict=False)
        ]
        for form, one in weaker.discrepancy.items()
        if form in stronger.discrepancy
    }


def _reference(one: FittedRange, other: FittedRange) -> At:
    """The middle of the repeated runs, and the most repeats that both saw."""
    both = _common(one, other)
    sizes, tokens = both.repeated_params or both.params, both.repeated_unique_tokens or both.unique_tokens
    params, unique_tokens = (math.sqrt(low * high) for low, high in (sizes, tokens))
    return At(params, unique_tokens, 1 + max(both.epochs[1] - 1, 1.0))


def _common(one: FittedRange, other: FittedRange) -> FittedRange:
    """What both covered, where that is anything."""
    common: dict[str, Any] = {}
    for name in ("params", "unique_tokens", "epochs", "repeated_params", "repeated_unique_tokens", "loss"):
        a, b = getattr(one, name), getattr(other, name)
        if a is not None and b is not None:
            low, high = max(a[0], b[0]), min(a[1], b[1])
            common[name] = (low, high) if low <= high else a
    return FittedRange(**common)


def between(
    form: str, one: Mapping[str, Array], other: Mapping[str, Array], share: float, reference: At
) -> dict[str, Array]:
    """The parameters at `share` of the way from one law to the other."""
    ends = [{name: np.asarray(value, dtype=float) for name, value in law.items()} for law in (one, other)]

    def line(values: list[Array]) -> Array:
        return (1 - share) * values[0] + share * values[1]

    found: dict[str, Array] = {}
    parameters = form_named(form).parameters
    for parameter in parameters:
        values = [p[parameter.name] for p in ends]
        by_logarithm = parameter.kind == "logarithm"
        found[parameter.name] = np.exp(line([np.log(v) for v in values])) if by_logarithm else line(values)
    if {"kappa", "gamma"} <= found.keys():  # their product is the power of the unique tokens
        found["gamma"] = line([p["kappa"] * p["gamma"] for p in ends]) / found["kappa"]
    for parameter in parameters:
        if parameter.kind in ("amplitude", "linear") and parameter.unit is not None:
            terms = [p[parameter.name] / parameter.unit(p, reference) for p in ends]
            found[parameter.name] = line(terms) * parameter.unit(found, reference)
    return {name: float(value) if np.ndim(value) == 0 else value for name, value in found.items()}


__all__ = [
    "FORMS",
    "Calibration",
    "Draws",
    "FittedLaw",
    "FittedRange",
    "Setting",
    "Trial",
    "parameter_names",
    "shipped_names",
]
