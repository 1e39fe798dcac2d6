"""Exact epochs: which chunk of the token stream is in which row of which step, as a pure function of (seed,
epoch, step).

The training set is the first `unique_tokens` of the stream, cut into chunks of `sequence_length`; what does
not fill a chunk is left out, and the true number is reported. Chunk i has the inputs t[iT : iT+T] and the
targets t[iT+1 : iT+T+1], so every token is predicted once per epoch.

The run is one long row of chunks: all chunks in the order of epoch 0, then all in the order of epoch 1, and
so on, cut off after round(epochs * chunks). Batches are taken from it one after the other and may span two
epochs. So each chunk is seen exactly once per epoch, nothing is dropped, and only the very last batch may be
short: its missing rows are padding whose targets are ignored, and the loss is the mean over real targets.

The order of an epoch sorts the raw output of a Philox generator keyed by (seed, epoch), both of which numpy
keeps stable over versions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from planner.hardware import run_length
from planner.inputs import InvalidInput
from trainer.data.joined import Tokens

PADDING = -1  # a row after the end of the run
IGNORED = -100  # the target of a position that does not count


class Batches:
    """The rows of every step of a run."""

    def __init__(
        self,
        stream: Tokens,
        *,
        unique_tokens: int,
        epochs: float,
        batch_size: int,
        sequence_length: int,
        seed: int,
        order: str = "shuffle",
    ):
        available = len(stream) - 1  # the last token is only ever a target
        if available < sequence_length:
            raise InvalidInput(
                f"the training documents have {max(available, 0):,} tokens, fewer than one sequence of "
                f"{sequence_length:,}; more text or a shorter sequence_length would do."
            )
        if unique_tokens > available:
            more = f"the training documents have {available:,}; more text or fewer unique tokens would do."
            raise InvalidInput(f"asks for {unique_tokens:,} tokens, but {more}", field="unique_tokens")
        self.stream, self.seed, self.order = stream, seed, order
        self.batch_size, self.length = batch_size, sequence_length
        # sequences of an epoch and of the whole run
        self.chunks, self.total, self.steps = run_length(unique_tokens, epochs, sequence_length, batch_size)

    @property
    def tokens(self) -> int:
        """Tokens trained on in the whole run, repetitions included."""
        return self.total * self.length

    @property
    def unique_tokens(self) -> int:
        """Different tokens trained on: below one epoch, fewer than the chunks hold."""
        return min(self.chunks, self.total) * self.length

    @property
    def epochs(self) -> float:
        """Passes over the tokens that were trained on."""
        return self.tokens / self.unique_tokens

    def rows(self, step: int) -> np.ndarray:
        """The chunk in each row of a step; rows after the end of the run are `PADDING`."""
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        chosen = np.full(self.batch_size, PADDING)
        for epoch in np.unique(places[places < self.total] // self.chunks):
            inside = (places // self.chunks == epoch) & (places < self.total)
            within = places[inside] % self.chunks
            shuffled = self.order == "shuffle"
            chosen[inside] = epoch_order(self.seed, int(epoch), self.chunks)[within] if shuffled else within
        return chosen

    def real_tokens(self, step: int) -> int:
        """Targets of a step that count."""
        return min(self.batch_size, self.total - step * self.batch_size) * self.length

    def arrays(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return windows(self.stream, rows, self.length)


def windows(stream: Tokens, chunks: Iterable[int], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of some chunks, int64; padding, and what is past the end, has inputs 0 and ignored
    targets.
    """
    chunks = list(chunks)
    inputs = np.zeros((len(chunks), length), dtype=np.int64)
    targets = np.full_like(inputs, IGNORED)
    for row, chunk in enumerate(chunks):
        if chunk != PADDING:
            piece = stream[chunk * length : (chunk + 1) * length + 1]
            known = max(0, len(piece) - 1)
            inputs[row, :known], targets[row, :known] = piece[:known], piece[1:]
    return inputs, targets


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, chunks: int) -> np.ndarray:
    """The order of an epoch: the same for the same (seed, epoch), on every machine."""
    generator = np.random.Philox(np.random.SeedSequence([seed, epoch]))
    return np.argsort(generator.random_raw(chunks), kind="stable")
