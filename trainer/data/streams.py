"""Rows of a Hugging Face dataset as they are downloaded: a connection may break, and reading may begin
anywhere.

Datasets are often stored in the order in which they were collected (FineWeb's files go by crawl), so that the
first rows are not a sample of the whole. Interleaved, the files are taken as up to `TOGETHER` sequences that
give one row each in turn: the first tokens then come from all of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from planner.inputs import InvalidInput
from trainer.config import Corpus

TOGETHER = 16  # sequences of files that are read in turn
WAITS = tuple(2.0**power for power in range(6))  # seconds before each attempt; a row begins them anew
_BETWEEN = 64  # rows from one known place of a sequence to the next
_LOG = logging.getLogger("trainer")


class Rows:
    """Iterates over rows; `position` says where the next one is, and another one begins there."""

    def __init__(self, corpus: Corpus, position: dict[str, Any] | None = None):
        self.corpus = corpus
        rows = self._patiently(lambda: self._open(corpus), FileNotFoundError)
        count = min(rows.num_shards, TOGETHER) if corpus.interleaved else 1
        parts = [rows.shard(count, index) for index in range(count)] if count > 1 else [rows]
        places = position["places"] if position else [None] * count
        self.sequences = [_Sequence(part, place) for part, place in zip(parts, places, strict=True)]
        self.turn = position["turn"] if position else 0

    @property
    def position(self) -> dict[str, Any]:
        return {"turn": self.turn, "places": [sequence.place for sequence in self.sequences]}

    def __iter__(self) -> Iterator[Any]:
        while not all(sequence.ended for sequence in self.sequences):
            sequence = self.sequences[self.turn]
            row = None if sequence.ended else self._patiently(sequence.take)
            self.turn = (self.turn + 1) % len(self.sequences)
            if row is not None:
                yield row

    def _open(self, corpus: Corpus) -> Any:
        from datasets import load_dataset

        how = {"split": corpus.split, "revision": corpus.revision, "streaming": True}
        return load_dataset(corpus.dataset, corpus.subset, **how)

    def _patiently(self, act: Callable[[], Any], *final: type[Exception]) -> Any:
        """What `act` gives, tried again after any error of library or network but those in `final`."""
        waits = iter(WAITS)
        while True:
            try:
                return act()
            except Exception as error:
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200].rstrip('.')}"
                what = f"dataset {self.corpus.describe()} cannot be read: {reason}"
                wait = next(waits, None)
                if wait is None or isinstance(error, (*final, InvalidInput, ValueError)):
                    raise InvalidInput(f"{what}.") from None
                _LOG.warning("%s; trying again in %g s", what, wait)
                time.sleep(wait)


class _Sequence:
    """Some files of a dataset, one after the other, from a place on."""

    def __init__(self, part: Any, place: dict[str, Any] | None):
        self.part = part
        self.known: Any = place["known"] if place else None  # a place that the library can go to
        self.since: int = place["since"] if place else 0  # rows after it
        self.ended = bool(place and place["ended"])
        self.rows: Iterator[Any] | None = None

    @property
    def place(self) -> dict[str, Any]:
        return {"known": self.known, "since": self.since, "ended": self.ended}

    def take(self) -> Any:
        """The next row, or None after the last; after an error it begins again where it was."""
        try:
            if self.rows is None:
                self.rows = self._resumed()
            row = next(self.rows, None)
        except Exception:
            self.rows = None
            raise
        if row is None:
            self.ended = True
            return None
        self.since += 1
        if self.since == _BETWEEN:
            self.known, self.since = self.part.state_dict(), 0
        return row

    def _resumed(self) -> Iterator[Any]:
        if self.known is not None:
            self.part.load_state_dict(self.known)
        else:
            self.known = self.part.state_dict()
        rows: Iterator[Any] = iter(self.part)
        for _ in range(self.since):
            next(rows, None)
        return rows
