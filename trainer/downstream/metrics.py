"""Bits per byte, accuracy, and how sure both are.

    BPB of a document  =  - log-probability of the right answer  /  its UTF-8 bytes  *  log2(e)
    BPB of a task      =  mean over documents          BPB of a suite  =  mean over tasks

The leading space of an answer counts. Bytes, not tokens, so that models with different tokenizers compare.

Accuracy is the share of documents whose right answer has the highest log-probability, per character of the
answer (`accuracy`) or in sum (`accuracy_raw`). The first counts no answer as better for being short.

Standard errors and intervals come from a bootstrap over documents, each task on its own; deviations are
widened by sqrt(n / (n - 1)), by which samples from n documents vary too little. Two models are compared on
the same documents, so documents are drawn as pairs: most of what makes a document hard is hard for both and
cancels in the difference.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.uncertainty import LEVEL
from trainer.downstream.tasks import Document

DRAWS = 1000


@dataclass(frozen=True)
class Scores:
    """What one model made of one task, document by document."""

    documents: list[int]
    bpb: list[float]
    correct: list[int] | None  # by log-probability per character; None where there is nothing to choose from
    correct_raw: list[int] | None  # by log-probability


@dataclass(frozen=True)
class Estimate:
    """A figure with its standard error and interval."""

    value: float
    error: float
    low: float
    high: float


def bits_per_byte(log_probability: float, size: int) -> float:
    return -log_probability / size * math.log2(math.e)


def scores(
    documents: Sequence[Document], log_probabilities: Sequence[Sequence[float]], choices: bool
) -> Scores:
    """Turn log-probabilities of all answers into scores."""
    bpb, correct, raw = [], [], []
    for document, values in zip(documents, log_probabilities, strict=True):
        bpb.append(bits_per_byte(values[document.gold], document.answers[document.gold].bytes))
        characters = [len(answer.continuation) for answer in document.answers]
        correct.append(int(np.argmax(np.divide(values, characters)) == document.gold))
        raw.append(int(np.argmax(values) == document.gold))
    numbers = [document.number for document in documents]
    return Scores(numbers, bpb, correct if choices else None, raw if choices else None)


def resampled(values: Sequence[float], name: str) -> np.ndarray:
    """Means of `DRAWS` bootstrap samples; the same `name` and length draw the same documents."""
    array = np.asarray(values, dtype=np.float64)
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
    generator = np.random.default_rng(seed)
    together = max(1, 2**20 // len(array))  # samples drawn at a time
    means = [
        array[generator.integers(len(array), size=(min(together, DRAWS - start), len(array)))].mean(axis=1)
        for start in range(0, DRAWS, together)
    ]
    mean = float(array.mean())
    return mean + (np.concatenate(means) - mean) * math.sqrt(len(array) / max(1, len(array) - 1))


def estimate(value: float, draws: np.ndarray) -> Estimate:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(draws.std(ddof=1)), float(low), float(high))


def task_mean(values: Sequence[float], name: str) -> Estimate:
    """Mean over the documents of a task."""
    return estimate(float(np.mean(values)), resampled(values, name))


def suite_mean(tasks: Mapping[str, Sequence[float]]) -> Estimate:
    """Mean over tasks of the means over documents."""
    return estimate(
        float(np.mean([np.mean(values) for values in tasks.values()])),
        np.mean([resampled(values, name) for name, values in tasks.items()], axis=0),
    )
