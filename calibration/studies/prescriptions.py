"""What each law would train: the runs that put the laws of a calibration to the test.

A law is solved for its best whole-epoch allocation of a budget. The nearest shape that can be built is up to
2% off in size, so the epochs are adjusted until 6 N D meets the budget again: all laws get **equal compute**.

- A size within 2% that the study has already is preferred, because its runs may exist.
- Whole epochs stay whole where they meet the budget to 1%; otherwise they become the fraction that meets it.
- Less than one epoch is one epoch over fewer unique tokens.
- Laws that prescribe the same configuration share its runs; runs are known by name, so what is trained is
  never trained again.
- The learning rate is the one of the study's runs. Where they have several, nothing can be prescribed.

A law that prescribes nothing that can be trained is kept, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.studies.study import Study, StudyRun
from planner.calibration import Calibration, Setting
from planner.hardware import TOLERANCE, shape_for
from planner.inputs import InvalidInput, Limits, short, unique_tokens
from planner.laws import STANDARD
from planner.plans import crossover_between, two_weight_decays
from planner.solve import FLOPS_PER_PARAM_TOKEN, allocate, has_optimum

WHOLE_EPOCHS = 0.01  # epochs stay whole where the compute is this close to the budget
MANY, FEW = 5, 3  # seeds of each configuration
LARGEST = 10.0  # times the largest size that the laws were fitted on: what is trained unless a limit is given


@dataclass(frozen=True)
class Prescription:
    """What one law says for one budget at one weight decay, and the runs, one per seed, that try it."""

    law: str
    weight_decay: float
    ud: float
    flops: float
    wanted_params: float | None = None
    wanted_epochs: float | None = None
    predicted_loss: float | None = None  # by this law, of the configuration that is trained
    runs: tuple[StudyRun, ...] = ()
    reason: str = ""  # why there are none


@dataclass(frozen=True)
class PredictedCrossover:
    """The compute at which a law says that the stronger of two weight decays overtakes."""

    ud: float
    law: str
    weaker: float
    stronger: float
    predicted: float | None
    predicted_interval: tuple[float, float] | None


@dataclass(frozen=True)
class CrossoverTest(PredictedCrossover):
    """Two weight decays around the compute at which they should swap places, each at its own optimum."""

    note: str
    prescriptions: tuple[Prescription, ...] = ()  # weaker and stronger in turns, compute ascending


def prescriptions(
    study: Study,
    calibration: Calibration,
    pairs: Iterable[tuple[float, float]],
    *,
    laws: Sequence[str],
    weight_decays: Sequence[float] | None = None,
    seeds: int = 3,
    max_params: float | None = None,
) -> list[Prescription]:
    """Every law at every (unique tokens, FLOPs) pair, each once, at these weight decays [the weakest one]."""
    decays = weight_decays or [min(calibration.weight_decays)]
    settings = [calibration.setting(decay) for decay in dict.fromkeys(decays)]
    return [
        prescribe(study, setting, law, ud, flops, seeds=seeds, max_params=max_params)
        for ud, flops in dict.fromkeys(pairs)
        for setting in settings
        for law in dict.fromkeys(laws)
    ]


def laws_to_try(calibration: Calibration, laws: Sequence[str]) -> tuple[str, ...]:
    """The laws that are asked for; where nobody chose, without those that the calibration never fitted."""
    if tuple(laws) != tuple(STANDARD):
        return tuple(laws)
    fitted = {form for setting in calibration.settings for form in setting.laws}
    fitted |= {form for setting in calibration.settings for form in setting.method.get("not_identified", {})}
    return tuple(law for law in laws if law in fitted)


def affordable_seeds(study: Study, prescribed: Callable[[int], Sequence[Prescription]]) -> int:
    """How many seeds to train where nobody says: five, which tell laws apart that three cannot, where what is
    prescribed takes no more compute than the grid did; else three.
    """
    grid = sum(run.flops for run in study.runs)
    return MANY if sum(run.flops for run in runs_of(prescribed(MANY))) <= grid else FEW


def prescribe(
    study: Study,
    setting: Setting,
    law: str,
    ud: float,
    flops: float,
    *,
    seeds: int = 3,
    max_params: float | None = None,
) -> Prescription:
    """What a law says for a budget, as runs of the study's recipe."""
    asked: dict[str, Any] = {"law": law, "weight_decay": setting.weight_decay, "ud": ud, "flops": flops}
    if law not in setting.laws:
        why = setting.method.get("not_identified", {}).get(law, "it was not fitted")
        return Prescription(**asked, reason=f"not calibrated at this weight decay: {why}")
    known = setting.law(law)
    if not has_optimum(known, ud, flops):
        return Prescription(**asked, reason="this law has no optimum here")
    best = allocate(known, ud, flops)
    size, epochs = float(best.params), float(best.epochs)
    if not (np.isfinite(size) and np.isfinite(epochs) and np.isfinite(best.loss)):
        return Prescription(**asked, reason="this law has no optimum here")
    asked |= {"wanted_params": size, "wanted_epochs": epochs}
    limit = max_params if max_params is not None else LARGEST * setting.fitted_on.params[1]
    if size > limit:
        return Prescription(**asked, reason=f"{short(size)} parameters are above the limit of {short(limit)}")
    rate = study.shared_learning_rate
    try:
        cell = cell_at_compute(study, size, epochs, ud, flops) | rate
        runs = tuple(study.run(**cell, weight_decay=setting.weight_decay, seed=seed) for seed in range(seeds))
    except InvalidInput as error:
        return Prescription(**asked, reason=f"cannot be built: {error}")
    first = runs[0]
    unique = first.config.unique_tokens // first.config.sequence_length * first.config.sequence_length
    predicted = float(known.loss(first.params, unique, first.tokens / unique))
    return Prescription(**asked, predicted_loss=predicted, runs=runs)


def crossover_test(
    study: Study,
    calibration: Calibration,
    ud: float,
    *,
    law: str | None = None,
    weight_decays: Sequence[float] | None = None,
    factors: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
    seeds: int = 3,
    max_params: float | None = None,
) -> CrossoverTest:
    """The optimum of each of two weight decays at multiples of the compute at which they should swap."""
    form = calibration.form(law)
    decays = two_weight_decays(calibration, form, weight_decays)
    tokens, everything = unique_tokens(ud), Limits(ceiling=False)
    found = crossover_between(calibration, form, tokens, *decays, everything)  # however far: laws are tried
    between = None if found.interval is None else (found.interval.low, found.interval.high)
    swap, how = found.crossover_flops, {"seeds": seeds, "max_params": max_params}
    budgets = [] if swap is None else [float(f"{swap * factor:.3g}") for factor in sorted(factors)]
    tried = [
        prescribe(study, calibration.setting(decay), found.law, ud, flops, **how)  # type: ignore[arg-type]
        for flops in budgets
        for decay in (found.weaker, found.stronger)
    ]
    return CrossoverTest(
        ud, found.law, found.weaker, found.stronger, found.crossover_flops, between, found.note, tuple(tried)
    )


def runs_of(planned: Iterable[Prescription]) -> list[StudyRun]:
    """Every run once, whoever prescribed it."""
    return list({run.name: run for prescription in planned for run in prescription.runs}.values())


def cell_at_compute(study: Study, size: float, epochs: float, ud: float, flops: float) -> dict[str, Any]:
    """The size, unique tokens and epochs to train: the nearest shape, at the budget's compute."""
    length = study.runs[0].config.sequence_length
    chunks = int(ud) // length
    if chunks < 1:
        raise InvalidInput(f"{short(ud)} unique tokens are less than one sequence of {length}.")
    shape, built = _size(study, size)
    per_sequence = FLOPS_PER_PARAM_TOKEN * built * length
    if epochs >= 1 and abs(round(epochs * chunks) * per_sequence / flops - 1) <= WHOLE_EPOCHS:
        return {**shape, "unique_tokens": int(ud), "epochs": epochs}
    sequences = round(flops / per_sequence)
    if sequences < 1:
        raise InvalidInput(
            f"the budget pays for less than one sequence of {length} tokens at {short(built)} parameters."
        )
    if sequences <= chunks:
        return {**shape, "unique_tokens": sequences * length, "epochs": 1.0}
    # Rounded as the run's name shows it, so that one name is one configuration.
    return {**shape, "unique_tokens": int(ud), "epochs": float(f"{sequences / chunks:g}")}


def _size(study: Study, size: float) -> tuple[dict[str, Any], int]:
    """How to ask for a size, and its parameters: one of the study's where near, else the nearest shape."""
    near = min(study.runs, key=lambda run: abs(run.params / size - 1))
    if abs(near.params / size - 1) <= TOLERANCE:
        return _as_asked(near), near.params
    vocab, tied = near.architecture.vocab_size, near.architecture.tied_embeddings
    built = shape_for(size, vocab, tied_embeddings=tied)
    same = next((run for run in study.runs if run.architecture == built), None)
    if same is not None:
        return _as_asked(same), built.params
    if built.preset is not None:
        return {"shape": built.preset}, built.params
    # By its shape and not by the size asked for, of which many lead to this shape.
    shape = {name: getattr(built, name) for name in ("d_model", "layers", "heads", "d_ff")}
    return {"shape": shape, "vocab_size": vocab}, built.params


def _as_asked(run: StudyRun) -> dict[str, Any]:
    return {"params": run.config.params} if run.config.shape is None else {"shape": run.config.shape}
