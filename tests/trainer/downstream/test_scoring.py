"""Sharing and batching change the speed and never the result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.downstream import models
from trainer.downstream.requests import Request, Window
from trainer.downstream.scoring import score
from trainer.model.llama import Llama
from trainer.run.export import load_run

Tokens = tuple[int, ...]
tokens = st.lists(st.integers(0, 5), min_size=0, max_size=40).map(tuple)


@pytest.fixture(scope="module")
def scorer(run: Path) -> models.LanguageModel:
    return models.find(run).load()


@pytest.fixture(scope="module")
def own(run: Path) -> Llama:
    return load_run(run)[0]


def plainly(model: Llama, request: Request) -> float:
    """One window at a time through the trainer's own model."""
    total = 0.0
    for window in request.windows:
        with torch.no_grad():
            logs = model.logits(torch.tensor([window.inputs]))[0].double().log_softmax(-1)
        total += sum(logs[window.start + i, target].item() for i, target in enumerate(window.targets))
    return total


@st.composite
def documents(draw: st.DrawFn) -> list[list[Request]]:
    """Documents whose answers share beginnings of any length, some of them equal, some in two windows."""
    examples = draw(st.sampled_from([(), tuple(range(20, 45))]))
    found = []
    for _ in range(draw(st.integers(1, 5))):
        question = examples + draw(tokens)
        answers = []
        for _ in range(draw(st.integers(1, 4))):
            windows = []
            for _ in range(draw(st.integers(1, 2))):
                targets = draw(st.lists(st.integers(0, 5), min_size=1, max_size=8).map(tuple))
                windows.append(Window((*question, 9, *targets[:-1]), targets))
            answers.append(Request(tuple(windows), truncated=False, merged=False))
        found.append(answers)
    return found


@settings(max_examples=60)
@given(documents(), st.sampled_from([1, 50, 400, 5000]), st.booleans())
def test_shared_and_batched_equals_one_at_a_time(
    scorer: models.LanguageModel, own: Llama, found: list[list[Request]], budget: int, shares: bool
) -> None:
    told: list[int] = []
    scorer.shares = shares
    try:
        values = score(scorer, found, told.append, batch_tokens=budget)
    finally:
        scorer.shares = True
    assert sum(told) == len(found)
    for requests, row in zip(found, values, strict=True):
        assert row == pytest.approx([plainly(own, request) for request in requests], abs=1e-4)


def test_shared_beginnings_are_computed_once(
    scorer: models.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 tokens of examples, 50 of question, answers of 2: counted in tokens that go through the model."""
    fed: list[int] = []
    extend = scorer.extend

    def counted(ids: torch.Tensor, real: torch.Tensor, *rest: object, **more: object) -> object:
        fed.append(int(real.sum()))
        return extend(ids, real, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(scorer, "extend", counted)
    examples = tuple(i % 7 for i in range(100))
    found = []
    for number in range(3):
        question = examples + (10 + number,) * 50
        found.append(
            [Request((Window((*question, answer), (answer, 5)),), False, False) for answer in (1, 2, 3, 4)]
        )
    score(scorer, found, batch_tokens=5000)
    # the last token of the question predicts the first of the answer, so it is fed with each answer
    assert sum(fed) == 100 + 3 * 49 + 3 * 4 * 2
    fed.clear()
    score(scorer, [[Request((Window(examples, (answer,)),), False, False) for answer in (1, 2)]])
    assert sum(fed) == 100  # one pass for two answers of one token
