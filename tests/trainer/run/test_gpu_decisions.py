"""What a run does on a GPU, as far as it can be seen without one: memory, what is waited for, what is read
ahead.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from planner.hardware import preset
from tests.trainer.run.test_loop import same
from trainer import RunConfig, train
from trainer.data.batches import Batches
from trainer.model import loss, optimizer
from trainer.run import averaging, checkpoints, device, loop
from trainer.run.distributed import World
from trainer.run.prefetch import Prefetcher
from trainer.run.readings import Reading, Readings

GIB = 2**30


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU as torch describes it; its memory can be changed."""
    found = SimpleNamespace(total_memory=80 * GIB)
    for name, value in (
        ("is_available", True),
        ("device_count", 1),
        ("get_device_capability", (9, 0)),
        ("get_device_name", "NVIDIA H100 NVL"),
        ("get_device_properties", found),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda *device, value=value: value)
    return found


def decided(shape: str, **settings: Any) -> device.Execution:
    config = RunConfig(shape=shape, unique_tokens="1M", tokenizer="bytes", attention="sdpa", **settings)
    return device.resolve(config, preset(shape), steps=100)[0]


def test_layers_are_computed_again_where_one_row_does_not_fit(card: SimpleNamespace) -> None:
    assert not decided("1B", sequence_length=2048).recompute
    assert decided("1B", recompute="on").recompute
    card.total_memory = 44 * GIB  # of which weights, gradients and moments take all but a little
    saved = decided("1B", sequence_length=2048)
    assert saved.recompute
    assert saved.micro_batch >= 1
    assert not decided("1B", sequence_length=2048, recompute="off").recompute
    whole, again = (device.activation_bytes(preset("1B"), 2048, torch.bfloat16, r) for r in (False, True))
    assert whole > 8 * again


def test_small_passes_are_launched_as_one_graph(card: SimpleNamespace) -> None:
    assert decided("15M", batch_size=4).graphs
    assert not decided("15M", batch_size=4, compile="off").graphs
    assert not decided("1B").graphs
    assert not decided("15M", batch_size=4, device="cpu", compile="on").graphs


def test_gradients_are_added_up_once_a_step_where_there_is_room(card: SimpleNamespace) -> None:
    shape, execution = preset("1B"), decided("1B", micro_batch=1)
    needed = device.needed_memory(shape, 512, execution)
    for room, defers in ((needed + 5 * shape.params, False), (1.2 * (needed + 5 * shape.params), True)):
        card.total_memory = room
        assert device.defers(shape, 512, execution) == defers


def test_the_logits_of_a_chunk_are_in_the_memory_that_is_expected(card: SimpleNamespace) -> None:
    compiled, plain = (decided("15M", compile=switch, micro_batch=1) for switch in ("on", "off"))
    needed = [device.needed_memory(preset("15M"), 512, execution) for execution in (compiled, plain)]
    assert needed[0] > 0.75 * GIB  # half of it in fp32, a quarter as gradients in bf16
    assert needed[1] > 1.7 * GIB


def test_the_copy_that_checkpoints_are_written_from_is_in_the_memory_of_a_cpu(
    card: SimpleNamespace, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = RunConfig(**settings, ema_decay=0.9)
    shape, length = config.architecture(257), config.sequence_length
    on_cpu = device.resolve(config.having(device="cpu"), shape, steps=100)[0]
    model = loop.build(config, shape, on_cpu)
    writer = checkpoints.Writer(tmp_path)
    steps = optimizer.Optimizer(model, config)
    writer.begin({"step": 1}, loop.held(model, steps, averaging.average(model, config, 100)))
    writer.wait()
    copied = sum(tensor.nbytes for tensor in writer.room.values())
    assert copied == 16 * shape.params
    for world_size in (1, 4):
        here = replace(on_cpu, world_size=world_size)
        there = replace(here, device="cuda:0")
        counted = {
            one.device: device.needed_memory(shape, length, one)
            - loss.head_bytes(shape.vocab_size, 4, one.device.split(":")[0], one.compiled)
            + averaging.bytes_of(config, shape.params, one)
            for one in (here, there)
        }
        assert counted["cpu"] - counted["cuda:0"] == pytest.approx(device._PROCESS + copied / world_size)


def test_a_step_is_the_same_with_layers_computed_again(settings: dict[str, Any], tmp_path: Path) -> None:
    settings |= {"epochs": 0.3}
    plain = train(RunConfig(**settings), tmp_path / "plain")
    again = train(RunConfig(**settings, recompute="on"), tmp_path / "again")
    assert same(tmp_path / "plain", tmp_path / "again")
    assert (plain.execution["recompute"], again.execution["recompute"]) == (False, True)


def test_what_is_read_ahead_is_what_is_asked_for() -> None:
    stream = np.arange(1000, dtype=np.uint16)
    batches = Batches(stream, unique_tokens=960, epochs=2, batch_size=7, sequence_length=32, seed=1)
    plain, ahead = (Prefetcher(batches, World(), torch.device("cpu"), ahead=ahead) for ahead in (False, True))
    widths = [3, 3, 3, 1, 1, 7, 3, 3, 3]  # memory may turn out too small on the way
    for step, width in enumerate(widths):
        theirs, ours = list(plain.step(step, width)), list(ahead.step(step, width))
        assert len(theirs) == len(ours)
        assert all(
            torch.equal(x, y) for a, b in zip(theirs, ours, strict=True) for x, y in zip(a, b, strict=True)
        )
    ahead.close()


def test_a_loss_is_looked_at_after_the_next_step_and_never_forgotten() -> None:
    def of(loss: float) -> Any:
        return Reading(torch.tensor(loss, dtype=torch.float64), torch.tensor(1.5))

    at_once, late = Readings(late=False), Readings(late=True)
    assert at_once.add(of(2.0)) == [(2.0, 1.5)]
    assert late.add(of(3.0)) == []
    assert late.add(of(2.5)) == [(3.0, 1.5)]
    assert late.all() == [(2.5, 1.5)]
    assert late.all() == []


def test_a_gpu_leaves_out_a_step_by_itself() -> None:
    config = RunConfig(preset="micro", params="100k", unique_tokens="128k")
    for ask in (True, False):
        module = torch.nn.LayerNorm(3, bias=False)
        p, adam = module.weight, optimizer.Optimizer(module, config)
        for wrong in (False, True, False):
            p.grad = torch.full_like(p, float("nan") if wrong else 1.0)
            adam.update(0.1, torch.tensor(wrong), ask)
        assert adam.parts[0].state[p]["step"] == 2
        assert p.tolist() == pytest.approx([0.8] * 3, abs=1e-3)


@pytest.mark.parametrize("late", [False, True])
def test_the_logged_speed_is_that_of_the_time_between_lines(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    clock = [0.0]  # on which a second passes whenever a step is waited for, and only then
    plain = Reading.values
    monkeypatch.setattr(loop.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(Reading, "values", lambda self: (clock.__setitem__(0, clock[0] + 1), plain(self))[1])
    monkeypatch.setattr(loop, "Readings", lambda **_: Readings(late))
    train(RunConfig(**settings | {"log_every": 5, "epochs": 1}), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["tokens_per_second"] for line in lines[:-1]] == [4 * 32] * 4


def test_gradients_of_several_graphed_passes_are_kept(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings |= {"micro_batch": 1, "epochs": 0.2}
    train(RunConfig(**settings), tmp_path / "plain")
    runs: list[Any] = []
    plain = loop._Run._passes
    ours: set[int] = set()

    def passes(run: Any, real: int) -> torch.Tensor:
        runs.append(run)
        ours.clear()
        ours.update(p.grad.data_ptr() for p in run.model.parameters() if p.grad is not None)
        return plain(run, real)

    def overwritten() -> None:  # as memory of a graph is by its next pass
        for p in runs[-1].model.parameters():
            if p.grad is not None and p.grad.data_ptr() not in ours:
                p.grad.fill_(float("nan"))

    monkeypatch.setattr(loop._Run, "_passes", passes)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", overwritten)
    resolved = device.resolve
    monkeypatch.setattr(
        loop, "resolve", lambda *a: (found := resolved(*a)) and (replace(found[0], graphs=True), found[1])
    )
    train(RunConfig(**settings), tmp_path / "graphs")
    assert same(tmp_path / "plain", tmp_path / "graphs")


def test_an_estimate_leaves_a_gpu_fit_for_a_deterministic_run(
    card: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert not decided("15M", deterministic=False).deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"  # before anything is computed there
