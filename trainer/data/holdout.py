"""Which documents are held out, and proof by content that training text does not repeat them.

A document is known by the hash of its text, whitespace and case aside. The documents with the lowest hashes
are held out (of a stream, the first ones): a choice that depends on nothing but the text, so that it is the
same for every run, seed and model, and that no copy of a held-out document can be on the other side.

Copies inside other documents are found by passages: every window of `PASSAGE` words of the held-out documents
is remembered, and a training document is checked at every `PASSAGE`-th word, so that no shared stretch of 2 *
`PASSAGE` - 1 words can be missed. A training document with one such passage is dropped, and counted. Shorter
common stretches are ordinary language.
"""

from __future__ import annotations

import hashlib
from bisect import insort

PASSAGE = 25  # words


def content_key(text: str) -> bytes:
    """A hash of the words: 16 bytes, the first half used to choose and the second to order."""
    return _hash(text.casefold().split())


class Candidates:
    """The documents to hold out, found while a corpus goes by once: those with the lowest keys, or the first;
    copies count once. One more than is wanted is kept, as a sign that others are left.
    """

    def __init__(self, validation: int, development: int, first: bool):
        self.validation, self.development, self.first = validation, development, first
        self.met = 0
        self.kept: dict[bytes, tuple[int, str]] = {}
        self.ranks: list[tuple[bytes, bytes]] = []

    @property
    def enough(self) -> bool:
        """Whether all places are taken; of a stream, nothing that follows changes them."""
        return len(self.kept) > self.validation + self.development

    def offer(self, key: bytes, text: str) -> None:
        self.met += 1
        rank = self.met.to_bytes(16, "big") if self.first else key
        if key in self.kept or (self.enough and rank > self.ranks[-1][0]):
            return
        if self.enough:
            del self.kept[self.ranks.pop()[1]]
        insort(self.ranks, (rank, key))
        self.kept[key] = (self.met, text)

    def chosen(self) -> dict[str, list[str]]:
        """Texts of the validation and of the development documents, each in the order of the corpus."""
        keys = [key for _, key in self.ranks]
        end = self.validation + self.development
        sets = {"validation": keys[: self.validation], "development": keys[self.validation : end]}
        return {
            name: [text for _, text in sorted(self.kept[key] for key in chosen)]
            for name, chosen in sets.items()
        }


class Overlap:
    """Remembers held-out documents, and tells which other documents repeat them."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.passages: set[bytes] = set()
        self.begin()

    def begin(self) -> None:
        """Begin to count anew: documents are read more than once."""
        self.met: set[bytes] = set()
        self.dropped_documents = self.dropped_bytes = 0

    def hold_out(self, text: str) -> None:
        words = text.casefold().split()
        self.keys.add(_hash(words))
        self.passages.update(_passage(words, start) for start in range(len(words) - PASSAGE + 1))

    def repeats(self, text: str) -> bool:
        """Whether a document is held out or, which is counted, repeats one that is, whole or in a passage."""
        words = text.casefold().split()
        key = _hash(words)
        if key in self.keys and key not in self.met:  # itself, which is rightly not trained on
            self.met.add(key)
            return True
        windows = range(0, len(words) - PASSAGE + 1, PASSAGE)
        found = key in self.keys or any(_passage(words, start) in self.passages for start in windows)
        if found:
            self.dropped_documents += 1
            self.dropped_bytes += len(text.encode("utf-8", "surrogatepass"))
        return found


def _passage(words: list[str], start: int) -> bytes:
    return _hash(words[start : start + PASSAGE], 8)


def _hash(words: list[str], size: int = 16) -> bytes:
    return hashlib.blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=size).digest()
