"""AdamW with an explicit set of decayed tensors, or Muon for the matrices of the body, and the learning-rate
schedule.

Weight decay is PyTorch's: each step multiplies the decayed weights by 1 - learning rate * weight_decay. Which
tensors that are is `decay`: all matrices including the embeddings (the default), matrices without the
embeddings, or everything, norm gains too. The names are recorded with the run.

Muon (Jordan et al. 2024) is torch's, with updates scaled to the size that AdamW's have (Liu et al. 2025,
arXiv 2502.16982), so that both go by one learning rate. It turns matrices as they are stored: query, key and
value as one, and gate and up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from planner.inputs import InvalidInput
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


class Optimizer:
    """AdamW, alone or next to Muon; moments are there from the start."""

    def __init__(self, model: nn.Module, config: RunConfig):
        named = dict(model.named_parameters())
        # those between embedding and head
        matrices = {name for name, p in named.items() if p.ndim == 2 and name not in _EMBEDDINGS}
        turned = matrices if config.optimizer == "muon" else set()
        self.parts: list[torch.optim.Optimizer] = [_adamw(named, turned, config)]
        if turned:
            self.parts.append(_muon([named[name] for name in sorted(turned)], config))
        self.moments: dict[str, dict[str, torch.Tensor]] = {}
        for name, p in named.items():
            moments = ("momentum_buffer",) if name in turned else ("exp_avg", "exp_avg_sq")
            self.moments[name] = {moment: torch.zeros_like(p) for moment in moments}
            self.parts[name in turned].state[p] = {**self.moments[name]}
            if name not in turned:
                self.parts[0].state[p]["step"] = torch.zeros((), device=p.device)

    def updated(self, steps: int) -> None:
        """Say how many updates the moments are of."""
        for state in self.parts[0].state.values():
            state["step"].fill_(float(steps))

    def update(self, rate: float, wrong: torch.Tensor, ask: bool) -> None:
        """One step, unless its loss or gradient is no number: then weights and moments stay as they are.
        Without `ask` the device decides, as under a gradient scaler, and the host does not wait for it; Muon
        has to be asked for.
        """
        if (ask or len(self.parts) > 1) and wrong.item():
            return
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate
            if not ask and len(self.parts) == 1:
                part.found_inf = wrong.float()  # type: ignore[attr-defined]
            part.step()


def _adamw(named: dict[str, nn.Parameter], turned: set[str], config: RunConfig) -> torch.optim.AdamW:
    """Fused, in two groups, over all parameters that Muon has not."""
    decayed = {*decayed_names(named.items(), config.decay)}
    groups: list[dict[str, Any]] = []
    for wanted, decay in ((True, config.weight_decay), (False, 0.0)):
        found = [p for name, p in named.items() if name not in turned and (name in decayed) == wanted]
        groups += [{"params": found, "weight_decay": decay}] if found else []
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=config.betas, eps=config.adam_eps, fused=True
    )


def _muon(matrices: list[nn.Parameter], config: RunConfig) -> torch.optim.Optimizer:
    decay = config.weight_decay if config.muon_weight_decay is None else config.muon_weight_decay
    rate = config.learning_rate
    return torch.optim.Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")


def check(config: RunConfig) -> None:
    if config.optimizer == "muon" and not hasattr(torch.optim, "Muon"):
        other = f"muon needs torch 2.9 and this is {torch.__version__}; adamw would do."
        raise InvalidInput(other, field="optimizer")


def learning_rate(step: int, steps: int, config: RunConfig) -> float:
    """The rate of a step: a linear rise to the peak over the first `warmup_ratio` of all steps, then a cosine
    down to `min_lr_ratio` of the peak, reached at the last step. A run of a single step has it at the peak.

    With "wsd" the peak is held until `decay_begins`, then falls as 1 - sqrt (Hägele et al. 2024, arXiv
    2405.18392): up to there it does not depend on the length of a run.
    """
    warmup = config.warmup_steps
    warmup = math.ceil(config.warmup_ratio * steps) if warmup is None else warmup
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    low = config.min_lr_ratio
    if config.schedule == "wsd":
        along = max(0, step + 1 - decay_begins(steps, config)) / (steps - decay_begins(steps, config))
        return config.learning_rate * (low + (1 - low) * (1 - math.sqrt(along)))
    along = (step - warmup) / (steps - 1 - warmup) if steps - 1 > warmup else 1.0
    return config.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * along)))


def decay_begins(steps: int, config: RunConfig) -> int:
    """How many steps a run with "wsd" does before its rate falls."""
    return max(0, steps - max(1, round(config.decay_ratio * steps)))
