"""Both libraries of matrix products give the same numbers up to rounding, and the faster one is chosen."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from planner.hardware import Architecture
from planner.inputs import InvalidInput
from trainer.model import products
from trainer.model.llama import materialise, outline
from trainer.model.loss import CHUNK_BYTES

TINY = Architecture(d_model=32, layers=2, heads=2, d_head=16, d_ff=48, vocab_size=97)
CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [(5, 24), (3, 7, 24)])
def test_a_product_and_its_gradients_are_those_of_torch(size: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(*size, generator=generator).requires_grad_()
    matrix = torch.randn(40, 24, generator=generator).requires_grad_()
    found = []
    for multiply in (functional.linear, products.onednn):
        rows.grad = matrix.grad = None
        made = multiply(rows, matrix)
        made.square().sum().backward()
        found.append((made.detach(), rows.grad, matrix.grad))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two)


def test_a_model_has_the_same_loss_and_gradients_with_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHUNK_BYTES, "cpu", 64 * 4 * 97)  # several chunks
    ids = torch.randint(97, (5, 33), generator=torch.Generator().manual_seed(1))
    targets = ids[:, 1:].clone()
    targets[0, :9] = -100
    losses, gradients = [], []
    for multiply in (functional.linear, products.onednn, products.onednn):
        model = materialise(outline(TINY, 32, init="scaled", multiply=multiply), "cpu", seed=3)
        loss = model(ids[:, :-1], targets)
        loss.backward()
        losses.append(loss.detach())
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(losses[0], losses[1])
    for one, two, again in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
        assert torch.equal(two, again)  # runs must repeat to the bit


def test_onednn_is_chosen_in_fp32_on_the_cpus_that_it_is_faster_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor, chosen in (("AuthenticAMD", "onednn"), ("GenuineIntel", "torch"), ("", "torch")):
        monkeypatch.setattr(products, "cpu_fact", lambda name, vendor=vendor: vendor)
        assert products.resolve("auto", CPU, torch.float32) == chosen
        assert products.resolve("torch", CPU, torch.float32) == "torch"
        assert products.resolve("onednn", CPU, torch.float32) == "onednn"
        assert products.resolve("auto", CPU, torch.bfloat16) == "torch"
        assert products.resolve("auto", torch.device("cuda"), torch.float32) == "torch"
    with pytest.raises(InvalidInput, match="products = 'onednn' cannot work here: only products in fp32"):
        products.resolve("onednn", CPU, torch.bfloat16)
    with pytest.raises(InvalidInput, match="products must be one of"):
        products.resolve("magic", CPU, torch.float32)
