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
from itertools import count, islice
from typing import Any

from planner.inputs import InvalidInput
from trainer.config import Corpus
from trainer.errors import reason

TOGETHER = 16  # sequences of files that are read in turn
WAITS = tuple(2.0**power for power in range(6))  # seconds before each attempt; a row begins them anew
POSITIONS = 2  # how positions are written: shards that an earlier version did not finish are made again
_TURNS = 64  # from one place that is known to the next
_LOG = logging.getLogger("trainer")


class Rows:
    """Iterates over texts of rows, those without any left out; `position` says where the next row is, can be
    kept as JSON, and another one begins there.
    """

    def __init__(self, corpus: Corpus, text: Callable[[Any], str], position: dict[str, Any] | None = None):
        self.corpus, self.text = corpus, text
        rows = self._patiently(self._open, FileNotFoundError)
        parts = min(rows.num_shards, TOGETHER) if corpus.interleaved else 1
        self.parts = [rows.shard(parts, index) for index in range(parts)] if parts > 1 else [rows]
        # places that the library can go to, and how many rows after them
        self.position = position or {"places": [part.state_dict() for part in self.parts], "since": 0}
        self.rows: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[str]:
        while (row := self._patiently(self._take)) is not None:
            if (text := self.text(row)) and not text.isspace():
                yield text

    def _open(self) -> Any:
        from datasets import load_dataset

        how = {"split": self.corpus.split, "revision": self.corpus.revision, "streaming": True}
        return load_dataset(self.corpus.dataset, self.corpus.subset, **how)

    def _take(self) -> Any:
        """The next row, or None after the last; after an error it begins again where it was."""
        try:
            if self.rows is None:
                self.rows = islice(self._in_turn(), self.position["since"], None)
            row = next(self.rows, None)
        except Exception:
            self.rows = None
            raise
        self.position = self.position | {"since": self.position["since"] + 1}
        return row

    def _in_turn(self) -> Iterator[Any]:
        """One row of every part in turn, until all have ended."""
        for part, place in zip(self.parts, self.position["places"], strict=True):
            part.load_state_dict(place)
        parts = [iter(part) for part in self.parts]
        for number in count(1):
            turn = [row for part in parts if (row := next(part, None)) is not None]
            if not turn:
                return
            yield from turn
            if number % _TURNS == 0:
                self.position = {"places": [part.state_dict() for part in self.parts], "since": 0}

    def _patiently(self, act: Callable[[], Any], *final: type[Exception]) -> Any:
        """What `act` gives, tried again after any error of library or network but those in `final`."""
        waits = iter(WAITS)
        while True:
            try:
                return act()
            except Exception as error:
                kind = type(error).__name__
                what = f"dataset {self.corpus.describe()} cannot be read: {kind}: {reason(error)}"
                wait = next(waits, None)
                if wait is None or isinstance(error, (*final, InvalidInput, ValueError)):
                    raise InvalidInput(f"{what}.") from None
                _LOG.warning("%s; trying again in %g s", what, wait)
                time.sleep(wait)
