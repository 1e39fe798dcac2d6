"""The recipe for a corpus that somebody names: what it is, what counts as a document and how many of them are
held out, where nobody says so; and what is wrong with it, before anything is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.studies.directory import is_study, token_set
from planner.inputs import InvalidInput
from trainer.config import RunConfig, anchored, changed
from trainer.data import corpus as corpora
from trainer.data.tokens import open_set

FEWEST_TOKENS = 20_000  # of a corpus
_FEWEST_DOCUMENTS = 20
_MANY_DOCUMENTS = 200  # with fewer, those of text files are their paragraphs
_HELD_OUT_BYTES, _HELD_OUT_SHARE = 200_000, 0.05
_BYTES_PER_TOKEN = 2.7  # of a BPE of 1,024, for what is only a forecast


def recipe_of(corpus: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe for a corpus: text, JSON lines or Parquet, a token set, or a Hugging Face dataset by name.
    Raises where nothing can be learnt from it.
    """
    if is_study(corpus):
        raise InvalidInput(f"corpus {corpus} is the directory of a study; {corpus}/tokens would do.")
    if made := token_set((corpus,)):
        tokens = open_set(made)
        kept = str(made / "tokenizer" / "tokenizer.json")
        recipe = {"preset": "micro", "corpus": {"paths": [str(made)]}, "tokenizer": kept}
        check_tokens(corpus, tokens.facts["streams"]["train"]["tokens"])
        return changed(recipe, dict(changes))
    named = re.fullmatch(r"[\w-]+/[\w-][\w.-]*", corpus) and not Path(corpus).parent.exists()
    source = {"dataset": corpus} if named else {"paths": [corpus]}
    recipe = changed(anchored({"preset": "micro", "corpus": source}, Path.cwd()), dict(changes))
    found = any_config(recipe).corpus
    corpora.check(found)
    return recipe if found.streamed else _with_documents(corpus, recipe, changes)


def any_config(recipe: Mapping[str, Any]) -> RunConfig:
    """A run of a recipe, whatever its size."""
    return RunConfig(**{"params": 100_000, "unique_tokens": 2**20, **recipe})


def _with_documents(name: str, recipe: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe with what counts as a document, and how many of them are held out, where nobody says so."""
    text = _Text.of(any_config(recipe))
    if "corpus.separator" not in changes and "corpus" not in changes and text.documents < _MANY_DOCUMENTS:
        parted = changed(recipe, {"corpus.separator": "\n\n"})
        apart = _Text.of(any_config(parted))
        if apart.documents > text.documents:
            recipe, text = parted, apart
    text.check(name)
    held_out = min(text.documents * _HELD_OUT_SHARE, _HELD_OUT_BYTES * text.documents / text.bytes)
    counts = {"validation_documents": max(1, round(held_out)), "development_documents": 0}
    return counts | recipe


@dataclass(frozen=True)
class _Text:
    """How much text there is."""

    documents: int
    bytes: int
    binary: bool

    @classmethod
    def of(cls, config: RunConfig) -> _Text:
        documents = size = 0
        binary = False
        for text in corpora.documents(config.corpus):
            documents, size = documents + 1, size + len(text.encode("utf-8", "surrogatepass"))
            binary = binary or "\0" in text
        return cls(documents, size, binary)

    def check(self, name: str) -> None:
        if not self.documents:
            raise InvalidInput(f"corpus {name} holds no text; files with some would do.")
        if self.binary:
            raise InvalidInput(f"corpus {name} is binary (it has NUL characters); files of text would do.")
        if self.documents < _FEWEST_DOCUMENTS:
            few = "one document" if self.documents == 1 else f"{self.documents} documents"
            raise InvalidInput(
                f"corpus {name} is {few} of {self.bytes:,} bytes, and some are held out to be tested on: "
                f"{_FEWEST_DOCUMENTS} would do, as more files or with ‹set› corpus.separator=TEXT."
            )
        if self.bytes < FEWEST_TOKENS:  # a token is a byte or more
            raise _too_small(name, f"{self.bytes:,} bytes")


def check_tokens(name: str, tokens: int) -> None:
    if tokens < FEWEST_TOKENS:
        raise _too_small(name, f"{tokens:,} training tokens")


def _too_small(name: str, amount: str) -> InvalidInput:
    return InvalidInput(
        f"corpus {name} has {amount}, which is too small to learn from; {FEWEST_TOKENS:,} tokens would do."
    )


def expected_tokens(recipe: Mapping[str, Any]) -> float:
    """About how many training tokens there will be, before there are any; exact of a token set."""
    config = any_config(recipe)
    if made := token_set(config.corpus.paths):
        return float(open_set(made).facts["streams"]["train"]["tokens"] - 1)
    if config.corpus.streamed:
        return float(config.corpus.tokens or 0)
    size = _Text.of(config).bytes * (1 - _HELD_OUT_SHARE)
    return size if config.tokenizer == "bytes" else size / _BYTES_PER_TOKEN
