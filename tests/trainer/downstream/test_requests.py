"""What is fed and what is scored: joint tokenisation, truncation
on the left, long answers in pieces, special tokens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs import InvalidInput
from tests.trainer.conftest import sentence
from trainer.data import tokenizers
from trainer.downstream import requests as requests_module
from trainer.downstream.requests import Request, common_prefix, prepare, request
from trainer.downstream.tasks import Answer, Document


@dataclass
class Tokens:
    """A real tokenizer as a model would show it."""

    tokenizer: tokenizers.Tokenizer
    before: tuple[int, ...] = ()
    fallback: int | None = None
    vocab_size: int = 10**6

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [ids.tolist() for ids in self.tokenizer.encode(texts)]


BYTES = Tokens(tokenizers.byte_tokenizer(), fallback=256)


def one(tokens: Tokens, context: str, continuation: str, length: int = 512) -> Request:
    return prepare([Document(0, (Answer(context, continuation),), 0)], tokens, length)[0][0]


def test_sentencepiece_tokenises_together(pieces: Path) -> None:
    """Alone, the answer would begin with the piece of a new text."""
    tokens = Tokens(tokenizers.SentencePiece(pieces))
    window = one(tokens, "alpha beta", " gamma 17").windows[0]
    alone = tokens.encode([" gamma 17"])[0]
    together = tokens.encode(["alpha beta gamma 17"])[0]
    assert [*window.inputs, window.targets[-1]] == together
    assert list(window.targets) == together[len(tokens.encode(["alpha beta"])[0]) :]
    assert list(window.targets) != alone


def test_a_token_over_the_boundary_is_scored() -> None:
    texts = ["".join(sentence(random.Random(seed)) for _ in range(20)) for seed in range(20)]
    tokens = Tokens(tokenizers.train_bpe(texts, 400))
    found = one(tokens, "beta al", "pha beta")
    assert found.merged
    assert tokens.tokenizer.decode(found.windows[0].targets) == " alpha beta"
    assert not one(tokens, "beta", " alpha beta").merged


def test_documents_are_prepared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document(i, (Answer("a" * i, "b"), Answer("a" * i, "c")), 0) for i in range(1, 8)]
    expected = prepare(documents, BYTES, 512)
    assert [len(requests) for requests in expected] == [2] * 7
    monkeypatch.setattr(requests_module, "TOGETHER", 3)
    assert prepare(documents, BYTES, 512) == expected


def test_bytes_of_any_script_are_scored() -> None:
    found = one(BYTES, "Wo? ", "Zürich 🙂")
    assert bytes(found.windows[0].targets).decode() == "Zürich 🙂"


def test_truncation_keeps_what_stands_last() -> None:
    found = one(BYTES, "0123456789", "abc", length=6)
    assert found.truncated
    assert bytes(found.windows[0].inputs) == b"6789ab"
    assert bytes(found.windows[0].targets) == b"abc"
    assert not one(BYTES, "0123", "abc", length=6).truncated  # seven tokens, of which six are fed


def test_special_tokens_stand_before_the_text() -> None:
    begun = Tokens(BYTES.tokenizer, before=(256,), fallback=256)
    assert one(begun, "ab", "c").windows[0].inputs == (256, 97, 98)
    assert one(begun, "ab", "c", length=2).windows[0].inputs == (97, 98)  # cut off with the rest
    assert one(begun, "", "c").windows[0].inputs == (256,)
    assert one(BYTES, "ab", "c").windows[0].inputs == (97, 98)
    assert one(BYTES, "", "c").windows[0].inputs == (256,)  # something must precede the first token
    with pytest.raises(InvalidInput, match="nothing before its first scored token"):
        one(Tokens(BYTES.tokenizer), "", "c")


def test_answers_without_tokens_and_tokens_without_embedding() -> None:
    with pytest.raises(InvalidInput, match="turns into no tokens"):
        request([1, 2], [1, 2], BYTES, 512)
    with pytest.raises(InvalidInput, match="has token 98, and the model knows 98"):
        one(Tokens(BYTES.tokenizer, fallback=256, vocab_size=98), "a", "b")


@given(st.integers(0, 40), st.integers(1, 60), st.integers(1, 30), st.booleans())
def test_every_token_of_an_answer_is_scored_once(before: int, after: int, length: int, begun: bool) -> None:
    whole = list(range(before + after))
    found = request(whole[:before], whole, Tokens(BYTES.tokenizer, (999,) if begun else (), 999), length)
    assert [t for window in found.windows for t in window.targets] == whole[before:]
    for window in found.windows:
        assert 1 <= len(window.targets) <= len(window.inputs) <= length
        assert (
            window.inputs[window.start + 1 :] == window.targets[:-1]
        )  # each is predicted from all that precedes it
        if len(found.windows) > 1:
            assert len(window.inputs) == length or window is found.windows[0] or window.inputs[0] in (0, 999)
    assert (len(found.windows) > 1) == (after > length)


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), max_size=6))
def test_common_prefix(a: list[int], b: list[int]) -> None:
    shared = common_prefix(a, b)
    assert a[:shared] == b[:shared]
    assert shared == min(len(a), len(b)) or a[shared] != b[shared]
