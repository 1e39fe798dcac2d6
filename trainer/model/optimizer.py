"""AdamW with an explicit set of decayed tensors, and the learning-rate schedule.

Weight decay is PyTorch's: each step multiplies the decayed weights by 1 - learning rate * weight_decay. Which
tensors that are is `decay`: all matrices including the embeddings (the default), matrices without the
embeddings, or everything, norm gains too. The names are recorded with the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from trainer.config import RunConfig

_EMBEDDINGS = ("embed.weight", "head.weight")


def decayed_names(parameters: Iterable[tuple[str, nn.Parameter]], decay: str) -> list[str]:
    """Which tensors are decayed."""
    if decay == "all":
        return [name for name, _ in parameters]
    return [
        name
        for name, p in parameters
        if p.ndim > 1 and not (decay == "matrices-without-embeddings" and name in _EMBEDDINGS)
    ]


def adamw(model: nn.Module, config: RunConfig) -> torch.optim.AdamW:
    """Fused AdamW over all parameters, in two groups."""
    named = dict(model.named_parameters())
    decayed = set(decayed_names(named.items(), config.decay))
    groups = [
        {"params": [p for name, p in named.items() if name in decayed], "weight_decay": config.weight_decay},
        {"params": [p for name, p in named.items() if name not in decayed], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=config.betas, eps=config.adam_eps, fused=True
    )


def learning_rate(step: int, steps: int, config: RunConfig) -> float:
    """The rate of a step: a linear rise to the peak over the first `warmup_ratio` of all steps, then a cosine
    down to `min_lr_ratio` of the peak, reached at the last step. A run of a single step has it at the peak.
    """
    warmup = math.ceil(config.warmup_ratio * steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    along = (step - warmup) / (steps - 1 - warmup) if steps - 1 > warmup else 1.0
    low = config.min_lr_ratio
    return config.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * along)))
