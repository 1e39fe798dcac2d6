"""What the planner answers with: frozen pydantic models whose JSON is what `--json` prints.

`print` gives what the command line prints. `plot` draws what `--plot` draws; it reads the calibration by its
name: one of your own is given as a file.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from planner import hardware
from planner.calibration import CalibrationSource, Recipe
from planner.explain import Remark
from planner.hardware import Architecture, Cost, TrainingMemory
from planner.inputs import FREE, Limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

# What earlier versions called otherwise: their JSON is still read.
RENAMED = {
    "floor": "irreducible",
    "capacity": "parameter",
    "guessing_loss": "uniform_loss",
    "sureness": "predictive_uncertainty",
    "spending_limit": "loss_minimising_compute",
    "dial": "weight_decay_advice",
    "memory_epochs": "timescale_epochs",
    "calibrated_memory": "calibrated_timescale",
    "worth": "gains",
    "untried": "beyond_evidence",
    "spending_limit_flops": "loss_minimising_flops",  # of intervals
    "spending_limit_loss": "loss_minimising_loss",
}


class _Answer(BaseModel):
    # Schemas are built when first used: a plan should not wait for those of a comparison.
    model_config = ConfigDict(frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _from_earlier_versions(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        found = {RENAMED.get(name, name): value for name, value in values.items()}
        if isinstance(within := found.get("intervals"), dict):
            found["intervals"] = {RENAMED.get(name, name): value for name, value in within.items()}
        return found


class Shown:
    """An answer that prints as the command line prints it, and is drawn as `--plot` draws it."""

    calibration: str

    def __str__(self) -> str:
        from planner.show.terminal import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def plot(self, calibration: CalibrationSource = None) -> "Figure":
        """The picture of the decision (`planner.show.plots`)."""
        from planner.show import plots

        return plots.picture(self, calibration or self.calibration)


class Columns:
    """Fields of which the arrays have one length."""

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, as `--json` prints them."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }

    def to_frame(self) -> "DataFrame":
        """One row for each entry of the arrays."""
        from pandas import DataFrame

        return DataFrame({name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)})


class Interval(_Answer):
    """A percentile interval over the draws of the calibration."""

    low: float
    median: float
    high: float


class LossTerms(_Answer):
    """The predicted loss broken into what causes it, in nats per token."""

    irreducible: float
    parameter: float
    data: float
    overfitting: float


class FlatRange(_Answer):
    """Sizes and epochs at the same compute whose loss is within `tolerance` nats of the best."""

    tolerance: float
    epochs_min: float
    epochs_max: float
    params_min: float
    params_max: float


class Model(_Answer):
    """A model and how long it is trained."""

    params: float
    epochs: float


class TurningPoint(Model):
    """The compute at which the best plan repeats most. Beyond it more of it goes into size."""

    flops: float


class LossMinimisingCompute(Model):
    """The compute with the lowest optimal loss: at the weight decay that was given, or else at the one of all
    that may be chosen which goes lowest. Beyond it the law expects more to make the model worse, with the
    recipe of its runs, until `regained_flops`.
    """

    flops: float
    loss: float
    regained_flops: float | None
    weight_decay: float | None = None


class MarginalValue(_Answer):
    """What more data or more compute would buy: at the margin by the plan's weight decay, twice as much by
    the one that was given or else by the best of all for that. Negative changes are improvements.
    """

    loss_per_token: float  # at the margin, with continuous epochs
    loss_per_flop: float
    flops_per_token: float | None  # None: a little more compute does not help
    loss_if_twice_the_data: float | None  # change of the plan's loss; None: the limits leave no such plan
    loss_if_twice_the_compute: float | None
    weight_decay_if_twice_the_data: float | None = None
    weight_decay_if_twice_the_compute: float | None = None


class PredictionError(_Answer):
    """How far the predictions of a law were off for runs that it had not seen, and between which losses that
    puts a prediction.
    """

    error: float  # of the predicted loss, in nats: a standard deviation
    runs: int  # that it was measured on
    level: float  # of the interval
    loss_low: float
    loss_high: float
    beyond_evidence: str | None = None  # beyond which trainings this is: the error is extrapolated


class PredictiveUncertainty(PredictionError):
    """The same of a plan's loss, and what it means for the plan."""

    as_good: FlatRange  # sizes and epochs at the same compute that are within the law's error of the best
    weight_decay_probability: float | None  # that this weight decay is better than the best other one


class SecondOpinion(Model):
    """What a calibration whose evidence covers the question better recommends."""

    calibration: str
    weight_decay: float
    loss: float  # per token of its own tokenizer: not to be compared with the plan's
    error: float  # of its prediction, in nats


class PublishedTraining(Model):
    """What others trained on about as much data, and published."""

    who: str
    source: str
    corpus: str
    unique_tokens: float
    weight_decay: float
    loss: float  # comparable within one source only
    note: str = ""


class MixtureEnd(Model):
    """The plan if tokens of another kind were worth as much as one's own: the other end of what can be."""

    unique_tokens: float  # of both kinds together
    weight_decay: float
    loss: float  # on text like all of them: not to be compared with the plan's
    spent_flops: float


class DecidingRun(Model):
    """A run that would tell what tokens of another kind are worth."""

    unique_tokens: float
    flops: float
    on: str  # which tokens


class Mixture(_Answer):
    """Two kinds of data: what the other kind is worth is not known, so both ends are planned."""

    also: float  # tokens of the other kind
    together: MixtureEnd
    # small ones that would decide, each validated on text of one's own kind; none: too few to matter
    runs: list[DecidingRun]


class CheaperPlan(Model):
    """A plan that takes less compute."""

    flops: float
    loss: float
    unique_tokens: float | None = None  # of the corpus, where data can be bought


class SmallerModel(Model):
    """A model that is cheaper to serve, on the same data at the same weight decay: trained until it has the
    plan's loss or, where it cannot, to the lowest that it reaches.
    """

    smaller_by: float  # share of the plan's parameters
    flops: float
    compute_ratio: float  # flops over those of the plan
    loss: float
    same_loss: bool


class Gain(_Answer):
    """What a plan's weight decay gains over another, each with its own best size and epochs."""

    weight_decay: float
    loss: float
    gain: float  # its loss minus that of the plan


class TunedWeightDecay(_Answer):
    """What tuning weight decay is expected to find, by a rule from several labs: a value, and its range."""

    weight_decay: float
    low: float
    high: float


class OwnRecipe(TunedWeightDecay):
    """A recipe of one's own, and a weight decay for it: the one given or, with the range, the tuned one."""

    learning_rate: float
    batch_tokens: float
    rounded_from: float | None = None  # the batch as given, where that was no whole sequences


class WeightDecayChoice(_Answer):
    """What there is to say of a plan's weight decay beyond its value."""

    best_weight_decay: float | None  # of all that the law covers; None: it holds for some only
    interpolated_from: tuple[float, float] | None  # the calibrated weight decays on either side
    timescale_epochs: float | None  # AdamW's; None: the calibration does not say its recipe
    calibrated_timescale: tuple[float, float] | None
    gains: list[Gain]  # against what people use where nobody chooses
    own_recipe: OwnRecipe | None


class Alternative(Model):
    """What another law or weight decay recommends for the same budget."""

    law: str
    weight_decay: float
    spent_flops: float
    tokens: float
    predicted_loss: float  # by that law itself
    expected_loss: float  # of its recommendation, by the law that the plan relies on
    regret: float  # expected_loss minus the best that law can do


class Crossover(Shown, _Answer):
    """Where the stronger of two weight decays overtakes the weaker one, at fixed unique tokens."""

    ud: float
    law: str
    calibration: str
    weaker: float
    stronger: float
    crossover_flops: float | None  # above it the stronger weight decay has the lower optimal loss
    crossings: list[float]  # all computes at which the better one changes
    searched: tuple[float, float]  # where both settings have a plan
    better_below: float | None  # below the first crossing, or everywhere; None: nowhere a difference
    interval: Interval | None = None
    share: float = 1.0  # of the draws that cross, where there are any
    note: str
    warnings: list[Remark] = []  # where the plans at C× leave what was fitted
    limits: Limits = FREE


class Predicted(Shown, Model):
    """What a law expects from a model and `ud` unique tokens: what plans and predictions have in common."""

    ud: float
    tokens: float
    weight_decay: float
    # of the runs behind the law, where each was tuned: `weight_decay` is only their middle then
    tuned_weight_decays: tuple[float, float] | None = None
    law: str
    calibration: str
    tokenizer: str | None = None  # whose tokens the loss is per, where the calibration says it
    loss: float
    perplexity: float
    # of the text, as given or the calibration's: what the loss in bits per byte depends on; None: not known
    bytes_per_token: float | None = None
    bits_per_byte: float | None = None
    terms: LossTerms
    # where the law was tried on runs that it had not seen
    predictive_uncertainty: PredictionError | None = None
    intervals: dict[str, Interval] | None
    interval_note: str | None  # how the intervals were made, or why there is none
    law_weights: dict[str, float] | None = None  # where the law is the average of several forms
    warnings: list[Remark] = []


class AveragingGain(_Answer):
    """What averaging several models gains over one of them, in nats."""

    gain: float
    low: float | None  # of an interval, where the law of averaging was borrowed
    high: float | None
    level: float  # of that
    limit: float  # of infinitely many
    source: str  # where that was measured


class Prediction(Predicted):
    """The loss that a law expects from one configuration."""

    flops: float
    timescale_epochs: float | None = None  # AdamW's; None: the calibration does not say its recipe
    own_recipe: OwnRecipe | None = None  # the weight decay in a recipe of one's own, where that was given
    members: int | None = None  # that are averaged, where that was asked; `flops` and `terms` are of one
    averaging: AveragingGain | None = None  # what that gains; None: nothing is averaged


class Comparison(Shown, _Answer):
    """What every law recommends for one budget, at every weight decay asked for."""

    ud: float
    flops: float  # the ceiling, or with spend "all" what every row spends
    spend: str
    calibration: str
    judge: str  # the law by which expected_loss is judged, at each row's own weight decay
    uniform_loss: float  # of guessing all tokens alike: a predicted loss above it means nothing
    rows: list[Alternative]
    warnings: list[Remark] = []  # where rows leave all that was trained
    limits: Limits = FREE

    def to_frame(self) -> "DataFrame":
        """One row for each law and weight decay."""
        from pandas import DataFrame

        return DataFrame([row.model_dump() for row in self.rows])


class Candidate(Model):
    """One model, or several of this size whose probabilities are averaged, and what it takes in all."""

    members: int
    weight_decay: float
    loss: float
    total_flops: float  # training, and serving and data where they count


class Distillation(_Answer):
    """What one model trained on the predictions of an ensemble kept of its gain, and what that means here."""

    kept: float  # share of the gain over the best single model of that size, as it was measured
    members: int  # of the ensemble that it was measured with
    loss: float  # to be expected here, if the share holds
    kept_between: tuple[float, float] | None = None  # where several sources measured it
    loss_low: float | None = None  # by these shares and, where the gain was borrowed, its interval
    loss_high: float | None = None


class SpareEnsemble(Candidate):
    """What compute that one model cannot use may buy as an ensemble, roughly."""

    loss_low: float
    loss_high: float
    level: float  # of that interval


class EnsemblePlan(_Answer):
    """One model against several whose probabilities are averaged, for the same total."""

    count: int  # how many members the plan has; one: a single model is better
    member_loss: float  # of one member alone
    gain: float  # by which the average is better
    limit_loss: float  # of infinitely many such members
    single: Candidate | None  # the best single model for the same total; None: it was not asked for
    ensemble: Candidate | None  # the best of two or more; None: none can be paid
    start_flops: float | None  # the total from which two or more beat one; None: not in sight, or not asked
    weights_bytes: float  # of all members in bf16
    flops_per_token: float  # to serve, all members together
    cheapest_as_good: Candidate | None  # within the law's error of the plan, at less
    distilled: Distillation | None
    error: float  # of predicting more members from fewer, in nats
    most_members: int  # that were trained to calibrate it
    source: str
    gain_low: float | None = None  # where the law of averaging was borrowed
    gain_high: float | None = None


class ServingPlan(_Answer):
    """What the tokens to be served add to the training; FLOPs are as they are, shares by what they cost."""

    tokens: float
    flops: float
    rate: float  # what a FLOP of serving costs, in FLOPs of training
    training_flops: float
    total_flops: float  # in FLOPs of training
    share: float  # of serving in the total
    usd: float | None  # of serving
    total_usd: float | None
    training_only: Candidate | None  # what would be best if only training counted, with its true total


class PurchasePlan(_Answer):
    """Data bought against compute bought."""

    price: float  # USD per unique token
    owned: float  # tokens that were there
    bought: float
    usd: float  # for the tokens
    compute_usd: float  # for training and serving
    nothing_bought: Candidate | None  # the best without buying any


class Plan(Predicted):
    """The answer: how large a model, how many epochs, which weight decay; why; and how sure that is."""

    verdict: str = ""  # what to train, in a sentence
    budget: str = ""  # how much of the budget that takes, and what of the rest
    given_as: str | None = None  # how long the text was said to be, where that was not in tokens
    first_guess: str | None = None  # why the plan is no more than that: what no training has shown
    reasons: list[Remark] = []
    flops: float  # the ceiling
    spend: str  # "ceiling": at most that much compute is spent; "all": exactly that much
    spent_flops: float
    unused_flops: float
    repeats: float
    unique_tokens: float  # tokens of the corpus that are used: all of them from one epoch on
    uniform_loss: float  # of guessing all tokens alike: a predicted loss above it means nothing
    spare_ensemble: SpareEnsemble | None = None  # what the rest may buy; None: it is not known, or nothing
    cheapest_as_good: CheaperPlan | None  # within the law's error of this plan; None: nothing cheaper
    crossover_flops: float | None
    crossover_note: str
    # whether the two swap places once, in most draws, and the plan is on its side of that
    crossover_is_clear: bool = False
    architecture: Architecture | None
    continuous_epochs: float  # the exact optimum, and its loss
    continuous_loss: float
    flat_range: FlatRange
    turning_point: TurningPoint | None
    loss_minimising_compute: LossMinimisingCompute | None
    overspent: bool  # true: that has a lower loss than this plan, at less compute
    marginal_value: MarginalValue
    other_laws: list[Alternative]
    other_weight_decays: list[Alternative]
    # where any weight decay, or a recipe of one's own, can be asked for
    weight_decay_advice: WeightDecayChoice | None = None
    # in the recipe of the runs behind the law, where that knows some weight decays only and data repeats
    tuned_elsewhere: TunedWeightDecay | None = None
    predictive_uncertainty: PredictiveUncertainty | None
    weight_decay_probabilities: dict[str, float] | None = None  # that each calibrated one is the best
    members: EnsemblePlan | None = None  # where ensembles were asked for; `loss` is then theirs
    serving: ServingPlan | None = None  # where tokens to be served were given
    purchase: PurchasePlan | None = None  # where data can be bought; `ud` is then what there is in the end
    cost: Cost | None = None  # where an accelerator was named
    memory: TrainingMemory | None = None  # to train on one device; None: no shape can be built
    smaller_models: list[SmallerModel] = []  # where training one model is all that counts
    recipe: Recipe | None = None  # of the runs behind the calibration, where it is known
    mixture: Mixture | None = None  # where there are tokens of another kind
    second_opinions: list[SecondOpinion] = []  # of calibrations that know the question better
    published_trainings: list[PublishedTraining] = []  # the nearest, one of each source

    @property
    def own_recipe(self) -> OwnRecipe | None:
        """A recipe of one's own, where that was given."""
        return None if self.weight_decay_advice is None else self.weight_decay_advice.own_recipe

    def why(self) -> str:
        """All that is known of the plan, as `--why` prints it."""
        from planner.show.terminal import as_text

        return as_text(self, why=True)

    def run_config(self, corpus: str | None = "corpus", tokenizer: str = "tokenizer.json") -> str:
        """This run as the text of a TOML file for `planner train`."""
        return hardware.run_config(self, corpus, tokenizer)

    def study_config(self, corpus: str | None = "corpus", tokenizer: str = "tokenizer.json") -> str:
        """All members, and one model distilled from them, as a study for `planner calibrate ensemble`."""
        return hardware.study_config(self, corpus, tokenizer)

    def hf_config(self) -> dict[str, Any]:
        """This model as the `config.json` of transformers' Llama."""
        return hardware.hf_config(self)

    def export(self, target: str) -> dict[str, str]:
        """Files that hf (transformers), torchtitan or litgpt need to train this plan, by name."""
        from planner.export import export

        return export(self, target)


@dataclass(frozen=True)
class Frontier(Shown, Columns):
    """Optimal plans along many budgets, as arrays of one length."""

    ud: np.ndarray
    flops: np.ndarray  # ceilings
    spent_flops: np.ndarray
    params: np.ndarray
    epochs: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    weight_decay: np.ndarray
    law: str
    calibration: str
    uniform_loss: float  # of guessing all tokens alike: a predicted loss above it means nothing
    members: np.ndarray | None = None  # that are averaged, where that was asked; sizes are then of each
    refused: np.ndarray | None = None  # true: too far from all evidence, so that `plan` gives no such answer


@dataclass(frozen=True)
class Predictions(Columns):
    """The losses of many configurations, as arrays of one length."""

    params: np.ndarray
    ud: np.ndarray
    epochs: np.ndarray
    weight_decay: np.ndarray
    loss: np.ndarray
    law: str
    calibration: str
