"""What an ensemble teaches about a batch: the mean of its members' probabilities, mixed into the loss.

With members' mean p and the model's q, both at temperature T (p^(1/T) and softmax(logits / T)),

    loss = (1 - w) * cross entropy of the data + w * T^2 * cross entropy of q against p
    d loss / d logits = (1 - w) (softmax(logits) - onehot) + w T (q - p)

Members bring their last states and their heads. Probabilities are made of a chunk of rows at a time, as the
head's loss is (`trainer.model.loss`): those of a whole batch never exist, whatever the vocabulary. Where all
of them fit into memory they are given instead, and the members need not predict again what they have.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class DistillationLoss:
    """The members' predictions of some rows; rows with a negative target count nothing."""

    weight: float
    temperature: float
    states: tuple[torch.Tensor, ...] = ()  # of each member, (rows, width)
    heads: tuple[torch.Tensor, ...] = ()  # of each member, (vocabulary, width)
    known: torch.Tensor | None = None  # the mean of their probabilities, (rows, vocabulary)

    def mixed(
        self, rows: slice, hard: tuple[torch.Tensor, torch.Tensor], logits: torch.Tensor, kept: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Summed loss of some rows and its gradient to their logits; `hard` are the data's."""
        taught, own = self.probabilities(rows), torch.log_softmax(logits / self.temperature, 1)
        kept = kept.float().unsqueeze(1)
        soft = -(taught * own * kept).sum() * self.temperature**2
        gradient = (own.exp_() - taught) * (kept * (self.weight * self.temperature))
        loss, wrong = hard
        return (1 - self.weight) * loss + self.weight * soft, gradient + (1 - self.weight) * wrong

    def probabilities(self, rows: slice) -> torch.Tensor:
        """The mean of the members' probabilities, at the temperature."""
        mean = self.mean(rows) if self.known is None else self.known[rows]
        return mean if self.temperature == 1 else torch.softmax(mean.log() / self.temperature, 1)

    def mean(self, rows: slice) -> torch.Tensor:
        """The mean of the members' probabilities, of their states."""
        mean = torch.zeros((), device=self.states[0].device)
        for states, head in zip(self.states, self.heads, strict=True):
            mean = mean + torch.softmax(states[rows].float() @ head.float().T, 1)
        return mean / len(self.states)
