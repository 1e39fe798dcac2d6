"""Epochs are exact, and the order is a pure function of seed, epoch and step."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs import InvalidInput
from trainer.data.batches import IGNORED, PADDING, Batches, epoch_order

STREAM = np.arange(2001, dtype=np.uint16)


def batches(**changes: object) -> Batches:
    values = {
        "unique_tokens": 1000,
        "epochs": 2.0,
        "batch_size": 7,
        "sequence_length": 10,
        "seed": 1,
    } | changes
    return Batches(STREAM, **values)  # type: ignore[arg-type]


@given(
    unique=st.integers(10, 2000),
    epochs=st.floats(0.1, 5.0),
    batch=st.integers(1, 40),
    seed=st.integers(0, 99),
    order=st.sampled_from(["shuffle", "fixed"]),
)
def test_every_chunk_exactly_once_per_epoch(
    unique: int, epochs: float, batch: int, seed: int, order: str
) -> None:
    run = batches(unique_tokens=unique, epochs=epochs, batch_size=batch, seed=seed, order=order)
    seen = np.concatenate([run.rows(step) for step in range(run.steps)])
    real = seen[seen != PADDING]
    assert len(real) == max(1, round(epochs * (unique // 10)))
    assert (seen[: len(real)] != PADDING).all()  # padding only at the very end
    for start in range(0, len(real) - run.chunks + 1, run.chunks):
        assert sorted(real[start : start + run.chunks]) == list(range(unique // 10))
    rest = Counter(real[len(real) // run.chunks * run.chunks :])
    assert not rest or max(rest.values()) == 1  # a fractional last epoch repeats nothing
    assert run.tokens == len(real) * 10
    assert run.unique_tokens == len(set(real)) * 10
    assert run.epochs * run.unique_tokens == pytest.approx(run.tokens)
    assert sum(run.real_tokens(step) for step in range(run.steps)) == run.tokens


def test_seeds_and_epochs_differ_and_repeat() -> None:
    first = [batches().rows(step).tolist() for step in range(5)]
    assert first == [batches().rows(step).tolist() for step in range(5)]
    assert first != [batches(seed=2).rows(step).tolist() for step in range(5)]
    assert epoch_order(1, 0, 100).tolist() != epoch_order(1, 1, 100).tolist()


def test_the_order_is_the_same_on_every_machine() -> None:
    assert epoch_order(0, 0, 10).tolist() == [0, 8, 9, 3, 7, 5, 1, 2, 6, 4]


def test_fixed_order_is_the_corpus_order() -> None:
    run = batches(order="fixed", batch_size=60)
    assert run.rows(1).tolist() == [*range(60, 100), *range(20)]


def test_chunks_are_consecutive_and_targets_are_the_next_tokens() -> None:
    run = batches()
    inputs, targets = run.arrays(np.array([0, 3, PADDING]))
    assert inputs[1].tolist() == list(range(30, 40))
    assert targets[1].tolist() == list(range(31, 41))
    assert (targets[2] == IGNORED).all()


def test_only_the_first_unique_tokens_are_used() -> None:
    run = batches(unique_tokens=105)
    assert run.chunks == 10
    assert run.unique_tokens == 100


def test_asking_for_more_than_there_is() -> None:
    with pytest.raises(InvalidInput, match="asks for 2,001 tokens, but the training documents have 2,000"):
        batches(unique_tokens=2001)
    with pytest.raises(InvalidInput, match="fewer than one sequence"):
        batches(sequence_length=3000)
