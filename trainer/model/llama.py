"""Llama-2, built from a planner shape: RoPE, SwiGLU, RMSNorm before each block, multi-head attention, no
biases.

    h  = embed(ids)
    h += attention(norm(h));  h += down(silu(gate(norm(h))) * up(norm(h)))        for every layer
    loss = cross entropy of head(norm(h))

The query, key and value matrices are stored as one, and so are gate and up: the same numbers in fewer, larger
products. Weights are drawn from a normal distribution, each tensor from its own generator seeded by (seed,
name), so that they do not depend on the order in which tensors are made or on how many devices share them.
The standard deviation is 0.02 for every matrix (`init="normal"`, as transformers does), or follows the shape
(`init="scaled"`): 1 for the input embedding, half of 1 / sqrt(inputs) for other matrices, and 1 / sqrt(2
layers) of that for the two of each layer that write to h, so that narrow models begin with the embedding
still visible after the last layer. Tied embeddings, which are also the head, begin with 1 / sqrt(d).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from planner.hardware import Architecture
from trainer.model import attention, products
from trainer.model.distillation_loss import DistillationLoss
from trainer.model.loss import head_loss

INIT_STD = 0.02


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE on (batch, sequence, heads, head size); the halves of a head are a rotation's coordinates."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def rotations(
    length: int, d_head: int, theta: float, device: torch.device | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotation angles, (1, length, 1, d_head / 2)."""
    frequency = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float32, device=device) / d_head)
    angle = torch.outer(torch.arange(length, dtype=torch.float32, device=device), frequency)
    return angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]


class Layer(nn.Module):
    def __init__(
        self,
        shape: Architecture,
        eps: float,
        attend: attention.Attention,
        multiply: products.Product,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.dropout = dropout
        d, inner = shape.d_model, shape.heads * shape.d_head
        self.heads, self.d_head = shape.heads, shape.d_head
        self.attend, self.multiply = attend, multiply
        self.attention_norm = nn.RMSNorm(d, eps)
        self.qkv = nn.Linear(d, 3 * inner, bias=False)
        self.out = nn.Linear(inner, d, bias=False)
        self.feed_forward_norm = nn.RMSNorm(d, eps)
        self.gate_up = nn.Linear(d, 2 * shape.d_ff, bias=False)
        self.down = nn.Linear(shape.d_ff, d, bias=False)

    def forward(self, h: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = h.shape
        together = self.multiply(self.attention_norm(h), self.qkv.weight)
        query, key, value = together.view(batch, length, 3, self.heads, self.d_head).unbind(2)
        mixed = self.attend(rotate(query, cos, sin), rotate(key, cos, sin), value)
        h = h + self._dropped(self.multiply(mixed.reshape(batch, length, -1), self.out.weight))
        gate, up = self.multiply(self.feed_forward_norm(h), self.gate_up.weight).chunk(2, dim=-1)
        return h + self._dropped(self.multiply(functional.silu(gate) * up, self.down.weight))

    def _dropped(self, added: torch.Tensor) -> torch.Tensor:
        return functional.dropout(added, self.dropout, self.training) if self.dropout else added


class Body(nn.Module):
    """All layers and the final norm: what torch.compile sees as one graph. The embedding stays outside, whose
    backward, compiled for a CPU, adds rows from several threads in any order, not in the same bits.
    """

    def __init__(
        self,
        shape: Architecture,
        eps: float,
        attend: attention.Attention,
        multiply: products.Product,
        recompute: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.dropout = dropout
        self.recompute = recompute  # each layer keeps only its input, and is computed again going backward
        self.layers = nn.ModuleList(Layer(shape, eps, attend, multiply, dropout) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.d_model, eps)

    def forward(self, h: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        h = functional.dropout(h, self.dropout, self.training) if self.dropout else h
        for layer in self.layers:
            if self.recompute and torch.is_grad_enabled():
                h = checkpoint(layer, h, cos, sin, use_reentrant=False, preserve_rng_state=bool(self.dropout))
            else:
                h = layer(h, cos, sin)
        normed: torch.Tensor = self.norm(h)
        return normed


class Llama(nn.Module):
    """The whole model. `forward` gives the summed loss, `logits` the logits."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(
        self,
        shape: Architecture,
        sequence_length: int,
        *,
        rope_theta: float = 10_000.0,
        norm_eps: float = 1e-5,
        init: str = "normal",
        attend: attention.Attention = attention.sdpa,
        multiply: products.Product = functional.linear,
        recompute: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.shape, self.init, self.multiply = shape, init, multiply
        self.compiled_loss = False
        # Without numbers of its own, and rotations that are small enough to be there even in an outline:
        # drawing or computing them without memory would load what compiles, a second of every start.
        empty = torch.empty(shape.vocab_size, shape.d_model)
        self.embed = nn.Embedding(shape.vocab_size, shape.d_model, _weight=empty)
        self.body = Body(shape, norm_eps, attend, multiply, recompute, dropout)
        self.head = nn.Linear(shape.d_model, shape.vocab_size, bias=False)
        if shape.tied_embeddings:
            self.head.weight = self.embed.weight
        self.sequence_length, self.rope_theta = sequence_length, rope_theta
        tables = rotations(sequence_length, shape.d_head, rope_theta, torch.device("cpu"))
        for name, table in zip(("cos", "sin"), tables, strict=True):
            self.register_buffer(name, table, persistent=False)

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        """The normalised states that the head reads, (batch, sequence, d_model)."""
        length = ids.shape[1]
        states: torch.Tensor = self.body(self.embed(ids), self.cos[:, :length], self.sin[:, :length])
        return states

    def forward(
        self, ids: torch.Tensor, targets: torch.Tensor, distillation: DistillationLoss | None = None
    ) -> torch.Tensor:
        """Summed cross entropy in nats over all targets that are not ignored."""
        return self.loss(self.hidden(ids), targets, distillation)

    def loss(
        self, hidden: torch.Tensor, targets: torch.Tensor, distillation: DistillationLoss | None = None
    ) -> torch.Tensor:
        """That of states that the body has already made."""
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        rows, wanted = hidden.flatten(0, 1), targets.flatten()
        return head_loss(rows, self.head.weight, wanted, distillation, self.multiply, self.compiled_loss)

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """All logits at once: for tests and small uses, never in training."""
        scores: torch.Tensor = self.head(self.hidden(ids))
        return scores


def outline(shape: Architecture, sequence_length: int, **options: Any) -> Llama:
    """A model that takes up no memory yet."""
    with torch.device("meta"):
        return Llama(shape, sequence_length, **options)


def materialise(
    model: Llama, device: str, seed: int, place: Callable[[Any, torch.Tensor], Any] = torch.Tensor.copy_
) -> Llama:
    """Give an outline its memory and first weights; `place` copies a tensor into one that may be sharded."""
    model.to_empty(device=device)
    if model.shape.tied_embeddings:
        model.head.weight = model.embed.weight  # leaving the meta device has separated them
    initialise(model, seed, place)
    return model


def initialise(
    model: Llama, seed: int, place: Callable[[Any, torch.Tensor], Any] = torch.Tensor.copy_
) -> None:
    """Draw every matrix, set every gain to one, and fill the table of rotations."""
    with torch.no_grad():
        tables = rotations(model.sequence_length, model.shape.d_head, model.rope_theta)
        for buffer, table in zip((model.cos, model.sin), tables, strict=True):
            buffer.copy_(table)
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(1.0)
                continue
            key = int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=7).digest(), "big")
            generator = torch.Generator().manual_seed(key)
            std = INIT_STD if model.init == "normal" else _scaled_std(name, parameter, model.shape)
            drawn = torch.empty(parameter.shape, dtype=torch.float32)
            place(parameter, drawn.normal_(0.0, std, generator=generator))


def _scaled_std(name: str, matrix: torch.Tensor, shape: Architecture) -> float:
    if name.startswith("embed"):
        return float(shape.d_model**-0.5) if shape.tied_embeddings else 1.0
    std = float(0.5 * matrix.shape[1] ** -0.5)
    return std * float((2 * shape.layers) ** -0.5) if name.endswith(("out.weight", "down.weight")) else std
