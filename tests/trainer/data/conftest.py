"""Token sets made from settings, and read back as documents."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from trainer.config import RunConfig
from trainer.data import tokenizers, tokens


def prepared(settings: dict[str, Any], **changes: Any) -> tokens.TokenSet:
    config = RunConfig(**settings | changes)
    return tokens.prepare(config, tokenizers.Spec(config.tokenizer, config.eos_token))


def split(found: tokens.TokenSet, name: str) -> list[str]:
    """The documents of a stream, decoded."""
    stream, tokenizer = np.asarray(found.stream(name)), found.tokenizer()
    ends = np.flatnonzero(stream == tokenizer.eos)
    assert ends[0] == 0
    return [tokenizer.decode(stream[a + 1 : b]) for a, b in pairwise(ends)]
