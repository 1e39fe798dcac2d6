"""The model is Llama-2: counts, logits and gradients agree with the planner and with transformers."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from planner.hardware import Architecture, presets
from planner.inputs import InvalidInput
from trainer.model import attention
from trainer.model.llama import Llama, initialise
from trainer.model.loss import CHUNK_BYTES, compiled_rows_loss, head_loss, rows_loss, rows_loss_unasked
from trainer.run.device import data_sheet_peak
from trainer.run.export import hf_weights

TINY = Architecture(d_model=48, layers=3, heads=4, d_head=12, d_ff=80, vocab_size=211)


@pytest.mark.parametrize("name", presets())
def test_parameter_counts_are_the_planners(name: str) -> None:
    shape = presets()[name]
    with torch.device("meta"):
        model = Llama(shape, 512)
    assert sum(p.numel() for p in model.parameters()) == shape.params


@pytest.mark.parametrize("tied", [False, True])
def test_logits_and_gradients_match_transformers(tied: bool) -> None:
    transformers = pytest.importorskip("transformers")
    shape = TINY.model_copy(update={"tied_embeddings": tied})
    ours = Llama(shape, 64)
    initialise(ours, 3)
    for p in ours.parameters():  # larger weights than at the start, so that nothing is hidden by being small
        p.data.mul_(5) if p.ndim > 1 else p.data.add_(0.1 * torch.arange(len(p)) / len(p))
    config = transformers.LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.d_model,
        intermediate_size=shape.d_ff,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
    )
    theirs = transformers.LlamaForCausalLM(config)
    missing = theirs.load_state_dict(hf_weights(dict(ours.named_parameters()), shape), strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    tokens = torch.randint(shape.vocab_size, (3, 65), generator=torch.Generator().manual_seed(0))
    inputs, targets = tokens[:, :-1], tokens[:, 1:].contiguous()

    expected = theirs(input_ids=inputs).logits
    torch.testing.assert_close(ours.logits(inputs), expected, atol=1e-4, rtol=1e-4)
    wanted = functional.cross_entropy(expected.flatten(0, 1), targets.flatten())
    wanted.backward()
    loss = ours(inputs, targets) / targets.numel()
    loss.backward()
    torch.testing.assert_close(loss, wanted, atol=1e-4, rtol=1e-4)
    gradients = hf_weights({name: p.grad for name, p in ours.named_parameters() if p.grad is not None}, shape)
    assert len(gradients) == len(list(theirs.parameters()))
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, theirs.get_parameter(name).grad, atol=1e-4, rtol=1e-4, msg=name)


def test_a_position_never_sees_the_future() -> None:
    model = Llama(TINY, 32)
    initialise(model, 0)
    first = torch.randint(211, (1, 32))
    second = first.clone()
    second[0, 20:] = (second[0, 20:] + 1) % 211
    torch.testing.assert_close(model.logits(first)[:, :20], model.logits(second)[:, :20])


def test_first_weights_depend_on_the_seed_alone() -> None:
    models = [Llama(TINY, 32) for _ in range(3)]
    for model, seed in zip(models, (7, 7, 8), strict=True):
        initialise(model, seed)
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))
    assert not torch.equal(models[0].head.weight, models[2].head.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 63, 300])
def test_head_loss_is_cross_entropy_with_ignored_rows(
    rows: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHUNK_BYTES, "cpu", 64 * 4 * 50)  # several chunks
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, 24, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(50, 24, generator=generator).requires_grad_()
    targets = torch.randint(50, (rows,), generator=generator)
    targets[::7] = -100
    loss = head_loss(hidden, weight, targets)
    (loss * 0.5).backward()
    ours = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    expected = functional.cross_entropy(
        (hidden @ weight.to(dtype).T).float(), targets, ignore_index=-100, reduction="sum"
    )
    (expected * 0.5).backward()
    close = {"atol": 1e-4, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 0.1, "rtol": 0.05}
    torch.testing.assert_close(loss, expected, **close)
    torch.testing.assert_close(ours[0], hidden.grad, **close)
    torch.testing.assert_close(ours[1], weight.grad, **close)


def test_validation_makes_no_gradients_of_the_head() -> None:
    hidden, targets = torch.randn(40, 8), torch.randint(30, (40,))
    weight = torch.randn(30, 8, requires_grad=True)

    def products() -> tuple[list[str], float]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            loss = head_loss(hidden, weight, targets).item()
        return sorted(
            event.name for event in seen.events() if event.name in ("aten::mm", "aten::addmm_")
        ), loss

    training, loss = products()
    with torch.no_grad():
        validating, same = products()
    assert training == ["aten::addmm_", "aten::mm", "aten::mm"]
    assert validating == ["aten::mm"]
    assert loss == same


def test_a_target_of_hardly_any_probability_has_its_exact_loss() -> None:
    hidden = torch.tensor([[1.0], [1.0], [1.0], [1.0]], requires_grad=True)
    weight = torch.tensor([[0.0], [-60.0], [-90.0], [-500.0]], requires_grad=True)
    losses = [head_loss(hidden[i : i + 1], weight, torch.tensor([i])).item() for i in range(4)]
    assert losses == pytest.approx([0.0, 60.0, 90.0, 500.0])
    loss = head_loss(hidden, weight, torch.tensor([0, 3, -100, 2]))
    loss.backward()
    assert loss.item() == pytest.approx(590.0)
    assert hidden.grad is not None
    assert hidden.grad.flatten().tolist() == pytest.approx([0.0, 500.0, 0.0, 90.0])
    with pytest.raises(RuntimeError):
        loss.backward()


def test_the_logits_of_a_batch_never_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHUNK_BYTES, "cpu", 64 * 4 * 211)
    sizes: list[int] = []
    model = Llama(TINY, 64)
    initialise(model, 0)
    monkeypatch.setattr(
        "trainer.model.loss.rows_loss",
        lambda *given: (sizes.append(given[-1].shape[0]), rows_loss(*given))[1],
    )
    ids = torch.randint(211, (4, 64))
    model(ids, ids).backward()
    assert sum(sizes) == 4 * 64
    assert max(sizes) <= 64


def test_attention_backends_are_decided_before_the_run() -> None:
    cpu = torch.device("cpu")
    assert attention.resolve("auto", cpu, torch.float32, 64) == "sdpa"
    with pytest.raises(InvalidInput, match="flash-attn needs a CUDA device"):
        attention.resolve("flash", cpu, torch.float32, 64)
    with pytest.raises(InvalidInput, match="attention must be one of"):
        attention.resolve("magic", cpu, torch.float32, 64)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler about torch itself
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_loss_without_questions_to_the_device_is_the_same(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    hidden, matrix = (torch.randn(size, 8, generator=generator).to(dtype) for size in (20, 50))
    hidden[0] *= 60  # a target that is all but impossible
    targets = torch.randint(50, (20,), generator=generator)
    targets[5:8] = -100
    plain = rows_loss(functional.linear, hidden.float(), matrix.float(), targets, torch.empty(20, 50))
    logits = hidden.float() @ matrix.float().T
    for way in (rows_loss_unasked, compiled_rows_loss()):
        for one, two in zip(plain, way(logits, targets, torch.float32), strict=True):
            assert two.dtype == torch.float32
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    assert rows_loss_unasked(logits, targets, dtype)[1].dtype == dtype


def test_flash_attention_that_does_not_load_is_no_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flash_attn.py").write_text("raise ImportError('undefined symbol: _ZN3c104cuda')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "flash_attn", raising=False)
    assert "does not load (undefined symbol" in attention._not_importable()
    (tmp_path / "flash_attn.py").write_text("")
    importlib.invalidate_caches()
    assert attention._not_importable() == ""
    monkeypatch.delitem(sys.modules, "flash_attn", raising=False)


@pytest.mark.parametrize(
    ("name", "peak"),
    [("NVIDIA H100 NVL", 835e12), ("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12)],
)
def test_peaks_of_one_name_are_told_apart(name: str, peak: float) -> None:
    assert data_sheet_peak(name) == peak
