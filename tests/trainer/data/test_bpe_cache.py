"""Remembered words give the very tokens of the tokenizer."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tokenizers

from trainer.data import bpe_cache
from trainer.data.bpe_cache import BPECache
from trainer.data.tokenizers import END, HuggingFace, byte_tokenizer, train_bpe

CHARACTERS = [
    "a",
    "b",
    "S",
    "'s",
    "'",
    "é",
    "1",
    "½",
    "!",
    "_",
    "日",
    "\u0301",
    "\x00",
    "\x1c",
    "\u200b",
    END,
]
SPACES = [" ", " ", "  ", "\n", "\r\n", "\t", "\xa0", "\u2003", "\x0b", "\x85"]


def texts(spaces: list[str]) -> list[str]:
    generator = random.Random(0)
    return ["".join(generator.choices(CHARACTERS + spaces * 2, k=k)) for k in range(120) for _ in range(4)]


@pytest.fixture(scope="module")
def bpe() -> HuggingFace:
    return train_bpe(["a banana's bab 11 !! __ " * 9, *texts(SPACES)], 400)


@pytest.mark.parametrize("spaces", [SPACES[:6], SPACES])
def test_they_are_those_of_the_tokenizer(bpe: HuggingFace, spaces: list[str]) -> None:
    assert bpe_cache.fits(bpe.inner)
    remembering = BPECache(bpe.inner)
    given = [*texts(spaces), "", " ", "\n\n a", "x" * 500, "a  \n"]
    for _ in range(2):  # new, and known
        for one, two in zip(remembering.encode(given), bpe.encode(given), strict=True):
            assert one.dtype == two.dtype
            assert np.array_equal(one, two)
    assert max(map(len, remembering.known)) <= 64


def test_memory_is_bounded(bpe: HuggingFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe_cache, "_REMEMBERED", 20)
    remembering = BPECache(bpe.inner)
    for start in range(10):
        remembering.encode([" ".join(str(start * 15 + i) for i in range(15))])
        assert len(remembering.known) <= 20 + 15


def test_other_kinds_of_tokenizers_are_left_alone(bpe: HuggingFace) -> None:
    assert not bpe_cache.fits(byte_tokenizer().inner)
    prefixed = tokenizers.Tokenizer.from_str(bpe.inner.to_str())
    prefixed.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    spaced = tokenizers.Tokenizer.from_str(bpe.inner.to_str())
    spaced.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
    folded = tokenizers.Tokenizer.from_str(bpe.inner.to_str())
    folded.normalizer = tokenizers.normalizers.Lowercase()
    for other in (prefixed, spaced, folded):
        assert not bpe_cache.fits(other)
