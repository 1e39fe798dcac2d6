"""Held-out documents stay out of training, however they are written or quoted."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.trainer.conftest import sentence, start
from tests.trainer.data.conftest import prepared, split
from trainer.data.holdout import PASSAGE, Overlap, content_key


def test_training_never_repeats_held_out_text(settings: dict[str, Any], tmp_path: Path) -> None:
    generator = random.Random(5)
    texts = ["".join(sentence(generator) for _ in range(12)) for _ in range(30)]
    copies = [text.upper().replace(" ", "  ") for text in texts]  # the same content, written differently
    inside = [f"An introduction of some length. {text} And an end." for text in texts[:15]]
    (tmp_path / "all.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts + copies + inside)
    )
    found = prepared(settings, corpus=str(tmp_path / "all.jsonl"), validation_documents=8)
    held_out, training = split(found, "validation"), split(found, "train")
    keys = {content_key(text) for text in held_out}
    assert len(held_out) == 8
    assert not any(content_key(text) in keys for text in training)
    for text in held_out:
        words = text.split()
        middle = " ".join(words[: 2 * PASSAGE]).casefold()
        assert not any(middle in " ".join(other.split()).casefold() for other in training)
    dropped = found.facts["dropped_as_repeating_held_out_text"]["documents"]
    assert dropped == 75 - len(held_out) - len(training)
    assert dropped >= 8


def test_any_shared_stretch_of_two_passages_is_found() -> None:
    generator = random.Random(2)
    words = [f"w{generator.randrange(10**6)}" for _ in range(400)]
    overlap = Overlap()
    overlap.hold_out(" ".join(words))
    for offset in range(PASSAGE):
        other = [f"x{i}" for i in range(100 + offset)]
        assert overlap.repeats(" ".join(other + words[130 : 130 + 2 * PASSAGE - 1] + other))
        assert not overlap.repeats(" ".join(other + words[130 : 130 + PASSAGE - 1] + other))


def test_passages_are_known_by_the_same_hash_in_every_process() -> None:
    text = sentence(random.Random(3)) * 4
    overlap = Overlap()
    overlap.hold_out(text)
    code = (
        "import sys; from trainer.data.holdout import Overlap; "
        "o = Overlap(); o.hold_out(sys.argv[1]); print(sorted(o.passages))"
    )
    assert start(code, text).stdout.strip() == str(sorted(overlap.passages))
