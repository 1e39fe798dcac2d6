"""From text to what is fed and what is scored.

Context and continuation are tokenised **together** and then split, because many tokenizers (SentencePiece
above all) give other tokens for a text that stands alone. The split is where the tokens of the whole leave
those of the context alone; a token that reaches over the boundary is scored, so that no byte of the
continuation goes unpaid.

A model that sees L tokens is fed the last L of everything but the final token, which is only a target:

    tokens    [bos] c1 c2 ... ck | a1 a2 a3         fed: ... ck a1 a2, at most L         scored: a1 a2 a3

A continuation longer than L is scored in pieces of L / 2 tokens, each after at least L / 2 tokens of what
precedes it, so every token is scored exactly once. Where nothing precedes the first scored token, the token
that begins (or else ends) documents does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.inputs import InvalidInput
from trainer.downstream.tasks import Document

if TYPE_CHECKING:
    from trainer.downstream.models import LanguageModel

TOGETHER = 256  # documents tokenised at a time: tokenizers take far more memory than the windows that remain


@dataclass(frozen=True)
class Window:
    """Tokens to feed, and the targets of the last len(targets) of them."""

    inputs: tuple[int, ...]
    targets: tuple[int, ...]

    @property
    def start(self) -> int:
        """The first position whose prediction is scored."""
        return len(self.inputs) - len(self.targets)


@dataclass(frozen=True)
class Request:
    """One answer, as windows whose log-probabilities add up."""

    windows: tuple[Window, ...]
    truncated: bool  # context was cut off
    merged: bool  # a token reaches over the boundary of context and continuation


def prepare(documents: Sequence[Document], model: LanguageModel, length: int) -> list[list[Request]]:
    """The requests of every document, one per answer, for a model that sees `length` tokens."""
    prepared = []
    for start in range(0, len(documents), TOGETHER):
        block = documents[start : start + TOGETHER]
        texts = {text for d in block for a in d.answers for text in (a.context, a.context + a.continuation)}
        unique = [text for text in texts if text]
        encoded = {"": [], **dict(zip(unique, model.encode(unique), strict=True))}
        for document in block:
            place = f"document {document.number}"
            answers = [(encoded[a.context], encoded[a.context + a.continuation]) for a in document.answers]
            prepared.append([request(*answer, model, length, place) for answer in answers])
    return prepared


def request(
    context: Sequence[int], whole: Sequence[int], model: LanguageModel, length: int, place: str = "a request"
) -> Request:
    """The request of one answer, from tokens of its context and of context and continuation together."""
    split = common_prefix(context, whole)
    if split == len(whole):
        raise InvalidInput(f"{place} has a continuation that this tokenizer turns into no tokens.")
    if max(whole) >= model.vocab_size:
        known = f"the model knows {model.vocab_size}; the tokenizer is another model's"
        raise InvalidInput(f"{place} has token {max(whole)}, and {known}.")
    before = model.before
    if not before and split == 0:
        if model.fallback is None:
            nothing = "the tokenizer neither begins nor ends texts"
            raise InvalidInput(f"{place} has nothing before its first scored token, and {nothing}.")
        before = (model.fallback,)
    every = (*before, *whole)
    first, last = len(before) + split, len(every)  # targets are every[first:last]
    if last - first <= length:
        pieces = [(first, last)]
    else:
        step = max(1, length // 2)
        pieces = [(start, min(start + step, last)) for start in range(first, last, step)]
    windows = tuple(
        Window(every[max(0, end - 1 - length) : end - 1], every[start:end]) for start, end in pieces
    )
    return Request(windows, truncated=last - 1 > length, merged=split < len(context))


def common_prefix(*sequences: Any) -> int:
    """How many leading items all sequences share: as many as the first and the last in order do."""
    first, last = min(sequences), max(sequences)
    differ = (i for i, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return next(differ, min(len(first), len(last)))
