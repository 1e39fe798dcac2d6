"""Output head and cross entropy in chunks of rows: the logits of a whole batch never exist.

At the 15M shape the head is two thirds of the arithmetic and its logits (batch x sequence x 32,100) are by
far the largest tensor. Here each chunk of rows makes its logits, turns them in place into the gradient
softmax(logits) - onehot(target), and multiplies that into the gradients of the hidden states and of the head
weight at once. The forward pass therefore already holds the gradients, the backward pass only scales them,
and nothing is computed twice: three matrix products per chunk, as in the ordinary head.

    loss = sum over kept rows of  logsumexp(W h) - (W h)[target]
    d loss / d h = (softmax(W h) - onehot) W,        d loss / d W = sum (softmax(W h) - onehot)^T h

Rows with a negative target count nothing. Sums and softmax are in fp32 whatever the matrix products are in.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional

from trainer.model.distillation_loss import DistillationLoss
from trainer.model.products import Product

# fp32 logits of one chunk: enough for full-speed products, little to keep
CHUNK_BYTES = {"cpu": 16 * 2**20, "cuda": 512 * 2**20}
_RARE = 1e-30  # a probability whose logarithm is still exact in fp32


def rows_loss(
    multiply: Product, hidden: torch.Tensor, matrix: torch.Tensor, targets: torch.Tensor, room: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed loss of some rows, and its gradient to their logits, made in `room` by PyTorch's own product.

    Uncompiled on purpose: softmax takes one row at a time through the cache, in less time than the kernel a
    compiler makes of the same formula. The loss is read off the probability of the target; where that is too
    small for fp32 (beyond 69 nats, which happens in a run that diverges and may yet recover) the logits of
    the row are made again.
    """
    column = targets.clamp(min=0).unsqueeze(1)
    kept = (targets >= 0).unsqueeze(1).float()
    own = multiply is functional.linear
    logits = torch.mm(hidden, matrix.T, out=room) if own else multiply(hidden, matrix)
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        gradient = torch.softmax(logits, 1, out=logits)
    else:
        gradient = torch.softmax(logits, 1, dtype=torch.float32)
    probability = gradient.gather(1, column)
    nats = -probability.log()
    rare = (probability < _RARE).squeeze(1)
    if rare.any():
        again = torch.log_softmax(torch.mm(hidden[rare], matrix.T), 1, dtype=torch.float32)
        nats[rare] = -again.gather(1, column[rare])
    gradient.scatter_add_(1, column, -torch.ones_like(kept))
    return (nats * kept).sum(), gradient if kept.all() else gradient.mul_(kept)


def rows_loss_unasked(
    logits: torch.Tensor, targets: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same on a GPU: of logits in fp32, with no value that the host has to wait for, the gradient in
    `dtype`. Compiled it is one kernel that reads the logits twice and writes the gradient once; the target is
    found by comparison, because a scatter would be a kernel of its own.
    """
    column = targets.clamp(min=0).unsqueeze(1)
    kept = (targets >= 0).unsqueeze(1)
    total = torch.logsumexp(logits, 1, keepdim=True)
    nats = total - logits.gather(1, column)
    hit = torch.arange(logits.shape[1], device=logits.device) == column
    gradient = ((logits - total).exp() - hit.float()) * kept
    return (nats * kept).sum(), gradient.to(dtype)


@lru_cache(maxsize=1)
def compiled_rows_loss() -> Any:
    """That, compiled; made when it is first asked for, because the compiler is slow to load."""
    return torch.compile(rows_loss_unasked, dynamic=False)


def head_bytes(vocab_size: int, itemsize: int, device: str, compiled: bool) -> float:
    """Memory of a chunk at most: fp32 logits and their gradient, uncompiled with steps in between."""
    chunk = 4.0 * vocab_size * rows_per_chunk(vocab_size, device)
    if device == "cpu":
        return 2**26 + chunk
    return chunk * (1 + itemsize / 4) + (0 if compiled else 2 * chunk)


def _fp32_product(hidden: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """hidden @ matrix.T in fp32; a GPU multiplies bf16 and adds up in fp32 without rounding the sums."""
    if hidden.dtype == torch.float32:
        return torch.mm(hidden, matrix.T)
    if hidden.is_cuda:
        return torch.mm(hidden, matrix.T, out_dtype=torch.float32)
    return torch.mm(hidden.float(), matrix.T.float())


def rows_per_chunk(vocab_size: int, device: str = "cpu") -> int:
    """Rows of logits that fit the chunk size, in multiples of 64; on a CPU 512 at most, to stay in cache."""
    rows = max(64, CHUNK_BYTES[device] // (4 * vocab_size) // 64 * 64)
    return min(rows, 512) if device == "cpu" else rows


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        targets: torch.Tensor,
        distillation: DistillationLoss | None,
        multiply: Product,
        compiled: bool,
    ) -> torch.Tensor:
        learns = any(ctx.needs_input_grad[:2])
        matrix = weight.to(hidden.dtype)
        total = torch.zeros((), device=hidden.device)
        if learns:
            d_hidden, d_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        step = min(rows_per_chunk(weight.shape[0], hidden.device.type), hidden.shape[0])
        cpu = hidden.device.type == "cpu"
        room = hidden.new_empty(step if cpu else 0, weight.shape[0])  # the only logits there are
        for start in range(0, hidden.shape[0], step):
            chunk = hidden[start : start + step]
            wanted = targets[start : start + step]
            if cpu:
                loss, gradient = rows_loss(multiply, chunk, matrix, wanted, room[: len(chunk)])
            else:
                of = compiled_rows_loss() if compiled else rows_loss_unasked
                exact = hidden.dtype if distillation is None else torch.float32
                loss, gradient = of(_fp32_product(chunk, matrix), wanted, exact)
            if distillation is not None:
                logits, rows = _fp32_product(chunk, matrix), slice(start, start + step)
                loss, gradient = distillation.mixed(rows, (loss, gradient), logits, wanted >= 0)
            total += loss
            if learns:
                gradient = gradient.to(hidden.dtype)
                d_hidden[start : start + step] = multiply(gradient, matrix.T)
                if weight.dtype == hidden.dtype:
                    d_weight.addmm_(gradient.T, chunk)
                else:
                    d_weight += gradient.T @ chunk
        if learns:
            ctx.gradients = d_hidden, d_weight
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> Any:
        if ctx.gradients is None:
            raise RuntimeError("the gradients of the head loss can be had once; call it again.")
        d_hidden, d_weight = ctx.gradients
        ctx.gradients = None  # let go, so that autograd keeps them instead of copies
        return d_hidden.mul_(outputs[0].to(d_hidden.dtype)), d_weight.mul_(outputs[0]), None, None, None, None


def head_loss(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    distillation: DistillationLoss | None = None,
    multiply: Product = functional.linear,
    compiled: bool = False,
) -> torch.Tensor:
    """Summed cross entropy, and of an ensemble; hidden is (rows, d), weight (vocabulary, d)."""
    # which an autograd function cannot see from inside: it would make gradients for nobody
    if not torch.is_grad_enabled():
        hidden, weight = hidden.detach(), weight.detach()
    loss: torch.Tensor = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden, weight, targets, distillation, multiply, compiled
    )
    return loss
