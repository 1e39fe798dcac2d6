"""Output head and cross entropy in chunks of rows: the logits of a whole batch never exist.

At the 15M shape the head is two thirds of the arithmetic and its logits (batch x sequence x 32,100) are by far the largest tensor.
Here each chunk of rows makes its logits, turns them in place into the gradient softmax(logits) - onehot(target), and multiplies that
into the gradients of the hidden states and of the head weight at once. The forward pass therefore already holds the gradients,
the backward pass only scales them, and nothing is computed twice: three matrix products per chunk, as in the ordinary head.

    loss = sum over kept rows of  logsumexp(W h) - (W h)[target]
    d loss / d h = (softmax(W h) - onehot) W,        d loss / d W = sum (softmax(W h) - onehot)^T h

Rows with a negative target count nothing. Sums and softmax are in fp32 whatever the matrix products are in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

CHUNK_BYTES = 32 * 2**20  # fp32 logits of one chunk: large enough for full-speed products, small enough to stay in cache

Rows = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def rows_loss(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed loss of some rows, and its gradient with respect to their logits."""
    logits = logits.float()
    kept = targets >= 0
    column = targets.clamp(min=0).unsqueeze(1)
    top = logits.amax(1, keepdim=True)
    log_sum = top + (logits - top).exp().sum(1, keepdim=True).log()
    loss = torch.where(kept, (log_sum - logits.gather(1, column)).squeeze(1), 0.0).sum()
    onehot = torch.arange(logits.shape[1], device=logits.device).unsqueeze(0) == column
    gradient = torch.where(kept.unsqueeze(1), (logits - log_sum).exp() - onehot.float(), 0.0)
    return loss, gradient


def rows_per_chunk(vocab_size: int) -> int:
    """How many rows of logits fit the chunk size; a multiple of 64."""
    return max(64, CHUNK_BYTES // (4 * vocab_size) // 64 * 64)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, rows: Rows) -> torch.Tensor:
        step = rows_per_chunk(weight.shape[0])
        total = torch.zeros((), device=hidden.device)
        learns = any(ctx.needs_input_grad[:2])
        product_weight = weight.to(hidden.dtype)
        d_hidden = torch.empty_like(hidden) if learns else None
        d_weight = torch.zeros_like(weight) if learns else None
        for start in range(0, hidden.shape[0], step):
            chunk = hidden[start : start + step]
            loss, gradient = rows(chunk @ product_weight.T, targets[start : start + step])
            total += loss
            if d_hidden is not None and d_weight is not None:
                gradient = gradient.to(hidden.dtype)
                torch.mm(gradient, product_weight, out=d_hidden[start : start + step])
                if weight.dtype == hidden.dtype:
                    d_weight.addmm_(gradient.T, chunk)
                else:
                    d_weight += gradient.T @ chunk
        if learns:
            ctx.save_for_backward(d_hidden, d_weight)
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> Any:
        d_hidden, d_weight = ctx.saved_tensors
        return d_hidden * outputs[0].to(d_hidden.dtype), d_weight * outputs[0], None, None


def head_loss(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, rows: Rows = rows_loss) -> torch.Tensor:
    """Summed cross entropy of `hidden @ weight.T` against `targets`; hidden is (rows, d), weight (vocabulary, d).

    `rows` is `rows_loss` or its compiled twin.
    """
    return _HeadLoss.apply(hidden, weight, targets, rows)
