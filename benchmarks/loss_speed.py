"""The loss of a chunk of rows on a CPU: as it is trained with there, and as the formula that GPUs compile.

    OMP_NUM_THREADS=1 python -m benchmarks.loss_speed

Variants take turns. Printed are processor seconds for each chunk, the least and the median, with the product
that makes the logits, which all of them need.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch.nn import functional

from planner.hardware import preset
from trainer.model.loss import compiled_rows_loss, rows_loss, rows_loss_unasked, rows_per_chunk


class Chunk(NamedTuple):
    """Rows of one chunk, and the room for their logits."""

    hidden: torch.Tensor
    matrix: torch.Tensor
    targets: torch.Tensor
    room: torch.Tensor

    @classmethod
    def random(cls, width: int, vocab: int) -> Chunk:
        rows, seeded = rows_per_chunk(vocab), torch.Generator().manual_seed(0)
        matrix = torch.randn(vocab, width, generator=seeded) / width**0.5
        hidden, targets = (
            torch.randn(rows, width, generator=seeded),
            torch.randint(vocab, (rows,), generator=seeded),
        )
        return cls(hidden, matrix, targets, torch.empty(rows, vocab))

    def trained(self) -> None:
        rows_loss(functional.linear, *self)

    def formula(self, of: Callable[..., object]) -> None:
        of(torch.mm(self.hidden, self.matrix.T, out=self.room), self.targets, torch.float32)


def main(rounds: int) -> None:
    for name, width, vocab in (("15M", preset("15M").d_model, preset("15M").vocab_size), ("micro", 64, 2048)):
        chunk = Chunk.random(width, vocab)
        variants = {
            "as trained on CPUs": chunk.trained,
            "GPU formula, eager": partial(chunk.formula, rows_loss_unasked),
            "GPU formula, compiled": partial(chunk.formula, compiled_rows_loss()),
        }
        seconds: dict[str, list[float]] = {variant: [] for variant in variants}
        for turn in range(-3, rounds):
            for variant, run in variants.items():
                began = time.process_time()
                run()
                if turn >= 0:
                    seconds[variant].append(time.process_time() - began)
        least = min(seconds["as trained on CPUs"])
        print(f"{name}: {len(chunk.hidden)} rows of {vocab:,} logits")
        for variant, taken in seconds.items():
            fastest, middle = min(taken), statistics.median(taken)
            print(f"  {variant:22} {1e3 * fastest:8.3f} ms  {1e3 * middle:8.3f} ms  {fastest / least:.2f}x")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    main(parser.parse_args().rounds)
