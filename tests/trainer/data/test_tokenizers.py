"""Text becomes numbers and comes back, the same in every process, and broken tokenizers are named."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from planner.inputs import InvalidInput
from tests.trainer.conftest import sentence
from tests.trainer.data.conftest import prepared, split
from trainer.data import tokenizers


def test_half_a_surrogate_pair_can_be_tokenised(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text(
        "".join(json.dumps({"text": f"odd \udc00 {i}"}) + "\n" for i in range(50))
    )
    found = prepared(settings, corpus=str(tmp_path / "odd.jsonl"), tokenizer="bpe:300")
    assert all("odd \ufffd" in text for text in split(found, "train"))


@pytest.mark.parametrize("text", ["plain", "tabs\tand\nlines  two", "üñí ✓ 漢字 🙂", "\x00\x01"])
@pytest.mark.parametrize("kind", ["bytes", "bpe", "sentencepiece"])
def test_tokenizers_round_trip_and_load_again(kind: str, text: str, tmp_path: Path, pieces: Path) -> None:
    if kind == "sentencepiece":
        if "\n" in text or "\x00" in text:
            pytest.skip("SentencePiece normalises whitespace and control characters")
        tokenizer = tokenizers.Spec(str(pieces)).tokenizer([])
    else:
        tokenizer = tokenizers.Spec("bytes" if kind == "bytes" else "bpe:300").tokenizer(
            [sentence(random.Random(1))] * 3
        )
    ids = tokenizer.encode([text])[0]
    assert tokenizer.eos not in ids
    assert tokenizer.decode(ids) == text
    assert max(ids) < tokenizer.size
    tokenizer.save(tmp_path)
    again = tokenizers.load(tmp_path)
    assert again.encode([text])[0].tolist() == ids.tolist()
    assert again.eos == tokenizer.eos


def test_bpe_is_trained_the_same_twice() -> None:
    texts = ["".join(sentence(random.Random(seed)) for _ in range(20)) for seed in range(20)]
    one, two = (tokenizers.train_bpe(texts, 320).encode(texts[:3]) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(
    ("name", "message"),
    [("tokenizer.json", "is not a tokenizer.json"), ("a.model", "is not a SentencePiece model")],
)
def test_broken_tokenizer_files_are_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(InvalidInput, match=message):
        tokenizers.Spec(str(tmp_path / name))


def test_a_tokenizer_without_an_end_asks_for_one(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    inner = library.Tokenizer(library.models.WordLevel({"a": 0, "b": 1, "stop": 2}, unk_token="a"))
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InvalidInput, match="set eos_token"):
        tokenizers.Spec(str(tmp_path / "tokenizer.json"))
    assert tokenizers.Spec(str(tmp_path / "tokenizer.json"), "stop").ready.eos == 2  # type: ignore[union-attr]
    with pytest.raises(InvalidInput, match="'end' is not a token"):
        tokenizers.Spec(str(tmp_path / "tokenizer.json"), "end")
