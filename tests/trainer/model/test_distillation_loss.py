"""The loss that an ensemble is mixed into is the formula, and its gradients are those of autograd."""

from __future__ import annotations

import pytest
import torch

from trainer.model.distillation_loss import DistillationLoss
from trainer.model.loss import head_loss


def states(rows: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("weight", "temperature"), [(0.0, 1.0), (0.7, 1.0), (1.0, 2.0), (0.4, 3.0)])
def test_loss_and_gradients_are_those_of_the_formula(weight: float, temperature: float) -> None:
    rows, vocabulary = 600, 50  # more rows than one chunk
    hidden, head = states(rows, 8, 0).requires_grad_(), states(vocabulary, 8, 1).requires_grad_()
    targets = torch.randint(0, vocabulary, (rows,), generator=torch.Generator().manual_seed(2))
    targets[::7] = -100
    members = [(states(rows, width, width), states(vocabulary, width, 10 + width)) for width in (6, 9)]
    mean = sum(torch.softmax(h @ w.T, 1) for h, w in members) / 2
    taught = mean ** (1 / temperature) / (mean ** (1 / temperature)).sum(1, keepdim=True)
    logits = hidden @ head.T
    hard = torch.nn.functional.cross_entropy(logits, targets, reduction="sum", ignore_index=-100)
    soft = -(taught * torch.log_softmax(logits / temperature, 1)).sum(1)[targets >= 0].sum()
    plain = (1 - weight) * hard + weight * temperature**2 * soft
    wanted = torch.autograd.grad(plain, (hidden, head))

    made = DistillationLoss(weight, temperature, *map(tuple, zip(*members, strict=True)))
    for distillation in (made, DistillationLoss(weight, temperature, known=mean)):
        loss = head_loss(hidden, head, targets, distillation)
        found = torch.autograd.grad(loss, (hidden, head))
        torch.testing.assert_close(loss, plain)
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)
