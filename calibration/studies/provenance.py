"""Where the runs of a study come from, and whether a calibration is from there too."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from calibration.fitting.runs.tables import Origin
from calibration.studies.directory import StudyDirectory
from planner.calibration import Calibration, Recipe
from planner.inputs import InvalidInput
from trainer.config import LATER, RunConfig
from trainer.run.result import RunResult


def origin_of(directory: StudyDirectory) -> Origin:
    """What is known about the runs of a study."""
    facts, results = directory.facts(), directory.results()
    recipe = facts["recipe"]
    corpus = recipe.get("corpus") or {}
    texts = corpus.get("paths") or []
    if corpus.get("dataset"):
        texts = [corpus["dataset"], corpus.get("subset"), corpus.get("split")]
    shapes = {(run.architecture["vocab_size"], run.architecture["tied_embeddings"]) for run in results}
    if len(shapes) > 1:
        raise InvalidInput(
            f"the runs of the study in {directory.path} differ in vocabulary or in tied embeddings; "
            f"one law cannot hold for both."
        )
    vocab, tied = next(iter(shapes), (None, bool(recipe.get("tied_embeddings"))))
    family = f"Llama-2, {'tied' if tied else 'untied'} embeddings"
    return Origin(
        title=str(facts.get("title") or ""),
        corpus=f"{', '.join(str(part) for part in texts if part)}; tokenizer {recipe.get('tokenizer')}",
        model_family=f"{family}, sequences of {recipe.get('sequence_length')}",
        vocab_size=vocab,
        bytes_per_token=_bytes_per_token(results),
        tied_embeddings=tied,
        data_fingerprint=facts["data"] or None,
        recipe=_recipe(recipe, {run.learning_rate for run in results}),
    )


def _bytes_per_token(results: Sequence[RunResult]) -> float | None:
    """Of the text that the runs were tested on: what turns their losses into their bits per byte."""
    found = [run.loss / (math.log(2) * run.bits_per_byte) for run in results if run.bits_per_byte > 0]
    return float(f"{statistics.median(found):.6g}") if found else None


def _recipe(recipe: dict[str, Any], rates: set[float]) -> dict[str, Any] | None:
    """Learning rate, batch, schedule and first weights, without which a weight decay means little; None where
    the runs have several learning rates.
    """
    if len(rates) != 1:
        return None
    warmup, least = recipe.get("warmup_ratio"), recipe.get("min_lr_ratio")
    facts: dict[str, Any] = {
        "learning_rate": rates.pop(),
        "batch_sequences": recipe["batch_size"],
        "sequence_length": recipe["sequence_length"],
        "optimizer": "Muon, AdamW" if recipe.get("optimizer") == "muon" else "AdamW",
        **{name: recipe.get(name) for name in Recipe.as_in_runs},
    }
    unset = {name for name in LATER if recipe.get(name) == RunConfig.model_fields[name].default}
    facts |= dict.fromkeys(unset & {*Recipe.as_in_runs})
    if recipe.get("schedule") == "wsd":
        facts["warmup_ratio"] = None
        over, steps = recipe.get("decay_ratio", 0.2), recipe.get("warmup_steps")
        facts["schedule"] = (
            f"WSD to {least:.0%} of the peak over the last {over:.0%}, warm-up of {steps} steps"
        )
    elif warmup is not None and least is not None:
        facts["schedule"] = f"cosine to {least:.0%} of the peak, linear warm-up over {warmup:.0%} of steps"
    return {name: value for name, value in facts.items() if value is not None}


def provenance_mismatch(calibration: Calibration, vocab: int | None, directory: StudyDirectory) -> str:
    """In which recorded facts a calibration is of something else than a study of that vocabulary;
    nothing where all of them agree.
    """
    data, fitted = directory.facts().get("data"), calibration.data_fingerprint
    if fitted is None:  # files of earlier releases have it at the end of `corpus`
        _, found, fingerprint = calibration.corpus.rpartition("; data ")
        fitted = fingerprint if found else ""
    differing = []
    if fitted and data and fitted != data:
        differing.append(f"another corpus ({fitted}, here {data})")
    if calibration.vocab_size and vocab and calibration.vocab_size != vocab:
        differing.append(f"another vocabulary ({calibration.vocab_size:,}, here {vocab:,})")
    return " and ".join(differing)
