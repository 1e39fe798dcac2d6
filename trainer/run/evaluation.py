"""Validation loss over a fixed set of documents: nats per token, perplexity, and bits per byte of text.

A few long documents may hold more text than a run trains on, so that the set ends after a number of tokens
(`bounded`).

The documents are packed as in training (EOS, document, EOS, document, ...) and cut into sequences, the last
of which is padded, so that every token of every document is predicted exactly once. Bits per byte divides by
the UTF-8 bytes of the documents; the predictions of EOS are in the numerator, as they are in the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from planner.inputs import perplexity
from trainer.data.batches import windows
from trainer.data.joined import Tokens
from trainer.data.tokenizers import Tokenizer
from trainer.model.llama import Llama
from trainer.run import distributed

Tell = Callable[[int, int], None]  # hears how many tokens are done, of how many


@dataclass(frozen=True)
class Evaluation:
    loss: float
    perplexity: float
    bits_per_byte: float
    tokens: int
    documents: int
    bytes: int


def bounded(
    stream: Tokens, counts: dict[str, int], most: int, tokenizer: Callable[[], Tokenizer]
) -> tuple[Tokens, dict[str, int]]:
    """The first `most` predictions of a held-out stream, with their documents and bytes of text."""
    if len(stream) - 1 <= most:
        return stream, counts
    known, kept = tokenizer(), np.asarray(stream[: most + 1])
    pieces = np.split(kept, np.flatnonzero(kept == known.eos) + 1)
    texts = [known.decode(piece[piece != known.eos].tolist()) for piece in pieces]
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return kept, {"documents": sum(map(bool, texts)), "bytes": size}


def evaluate(
    model: Llama,
    stream: Tokens,
    counts: dict[str, int],
    *,
    sequence_length: int,
    rows: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    world: distributed.World = distributed.ALONE,
    compiled: bool = False,
    tell: Tell = lambda done, of: None,
) -> Evaluation:
    """Loss of a model over a token stream; `counts` holds its documents and bytes. With `compiled` the body
    runs the graph it was trained with, on `rows` rows at a time, as if a backward pass were to follow: one of
    its own would take longer to compile than it saves.
    """
    predicted = len(stream) - 1
    chunks = math.ceil(predicted / sequence_length)
    # every rank makes the same number of passes
    each = math.ceil(math.ceil(chunks / world.size) / rows) * rows
    nats = torch.zeros((), dtype=torch.float64, device=device)
    with (
        torch.no_grad(),
        torch.compiler.set_stance("default" if compiled else "force_eager"),
        autocast(device, dtype),
    ):
        for start in range(world.rank * each, (world.rank + 1) * each, rows):
            arrays = windows(stream, range(start, start + rows), sequence_length)
            inputs, targets = (torch.from_numpy(array).to(device) for array in arrays)
            if compiled:
                with torch.enable_grad():
                    hidden = model.hidden(inputs)
                nats += model.loss(hidden.detach(), targets).double()
            else:
                nats += model(inputs, targets).double()
            tell(min((start + rows - world.rank * each) * sequence_length * world.size, predicted), predicted)
    summed = distributed.total(nats, world).item()
    loss = summed / predicted
    return Evaluation(
        loss=loss,
        perplexity=perplexity(loss),
        bits_per_byte=summed / math.log(2) / counts["bytes"],
        tokens=predicted,
        documents=counts["documents"],
        bytes=counts["bytes"],
    )


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)
