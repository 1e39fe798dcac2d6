"""The members of an ensemble while one model is trained on their predictions.

Their weights stay in memory, without gradients or moments: a sixth or less of what a run of their size takes
each. Where the probabilities of all training tokens fit into `ROOM`, each sequence is predicted when it is
first seen, alone, and remembered for the epochs that follow. Otherwise they predict every batch, and only the
states that their heads read are kept of it. Nothing is written and nothing is drawn, and what is predicted of
a sequence does not depend on when: a run that was killed goes on in the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from planner.hardware import Architecture
from planner.inputs import InvalidInput
from trainer.config import RunConfig, changed
from trainer.data import tokens
from trainer.model.distillation_loss import DistillationLoss
from trainer.run.ensembles import Member, content, members
from trainer.run.export import load_run

ROOM = 2**30  # bytes of probabilities that are remembered at most


def check(config: RunConfig, shape: Architecture) -> float:
    """Raise where the members of a run cannot teach it; the bytes that their weights take."""
    if config.distill is None:
        return 0.0
    found = members(config.distill.members)
    for member, wanted in zip(found, config.distill.checksums or [None] * len(found), strict=True):
        rows, length = member.result.architecture["vocab_size"], member.config.sequence_length
        if wanted not in (None, member.result.weights_checksum):
            other = f"{member.name} is not the run that distillation began with (its weights differ)"
            raise InvalidInput(f"{other}; bring that back, or name a new directory.")
        if rows != shape.vocab_size:
            raise InvalidInput(
                f"{member.name} has a vocabulary of {rows:,} and the model to train of {shape.vocab_size:,}; "
                f"members teach models of their own vocabulary only."
            )
        if length < config.sequence_length:
            short = f"{member.name} sees {length:,} tokens; a sequence_length of at most that would do."
            raise InvalidInput(short, field="sequence_length")
    table = 4.0 * config.unique_tokens * shape.vocab_size
    return sum(4.0 * member.result.params for member in found) + (table if table <= ROOM else 0)


def student(folders: Sequence[str], weight: float, temperature: float, changes: dict[str, Any]) -> RunConfig:
    """The run that learns from some others: configured as the first, with a seed that none of them has."""
    found = members(folders)
    values = found[0].result.config | {"seed": max(member.result.seed for member in found) + 1}
    values["distill"] = {
        "members": [str(member.folder.absolute()) for member in found],
        "weight": weight,
        "temperature": temperature,
        "checksums": [member.result.weights_checksum for member in found],
    }
    sizes = {"params", "shape"}
    if sizes & {*changes}:  # one of them is the size, and what is given replaces what there was
        values |= dict.fromkeys(sizes)
    return RunConfig(**changed(values, changes))


class Teachers:
    """Members in memory, for one run."""

    def __init__(self, config: RunConfig, data: tokens.TokenSet, device: torch.device):
        assert config.distill is not None
        self.weight, self.temperature = config.distill.weight, config.distill.temperature
        found = members(config.distill.members)
        _same_tokens(found[0], data)
        self.models = [load_run(member.folder)[0].to(device).requires_grad_(False) for member in found]
        size = 4 * config.unique_tokens * self.models[0].shape.vocab_size
        self.remembered: dict[bytes, torch.Tensor] | None = {} if size <= ROOM else None

    def loss(self, inputs: torch.Tensor) -> DistillationLoss:
        """What they predict at every position of some rows."""
        if self.remembered is None:
            return self._predict(inputs)
        known = torch.cat([self._remember(row) for row in inputs.unsqueeze(1)])
        return DistillationLoss(self.weight, self.temperature, known=known)

    def _predict(self, inputs: torch.Tensor) -> DistillationLoss:
        with torch.no_grad():
            states = tuple(model.hidden(inputs).flatten(0, 1) for model in self.models)
        heads = tuple(model.head.weight for model in self.models)
        return DistillationLoss(self.weight, self.temperature, states, heads)

    def _remember(self, row: torch.Tensor) -> torch.Tensor:
        assert self.remembered is not None
        key = row.cpu().numpy().tobytes()
        if key not in self.remembered:
            with torch.no_grad():
                self.remembered[key] = self._predict(row).mean(slice(None))
        return self.remembered[key]


def _same_tokens(member: Member, data: tokens.TokenSet) -> None:
    """Raise where a member knows other tokens, or may have been trained on what the run is validated on."""
    one, other = (
        {file.name: file.read_bytes() for file in (place.folder / "tokenizer").glob("tokenizer.*")}
        for place in (member.data, data)
    )
    if one != other or content(member.data) != content(data):
        raise InvalidInput(
            f"{member.name} was trained with another tokenizer or other held-out documents than this run is; "
            f"members teach on their own corpus only."
        )
