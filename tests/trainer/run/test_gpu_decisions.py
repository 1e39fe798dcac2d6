"""What a run does on a GPU, as far as it can be seen without one: memory, what is waited for, what is read
ahead.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from planner.hardware import preset
from tests.trainer.run.test_loop import same
from trainer import RunConfig, TrainingStopped, train
from trainer.data.batches import Batches
from trainer.run import device
from trainer.run.distributed import World
from trainer.run.prefetch import Prefetcher
from trainer.run.readings import Readings, reading

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
    def of(step: int, loss: float) -> Any:
        return reading(step, torch.tensor(loss, dtype=torch.float64), torch.tensor(1.5))

    at_once, late = Readings(late=False), Readings(late=True)
    assert at_once.add(of(1, 2.0)) == [(2.0, 1.5)]
    assert late.add(of(1, 3.0)) == []
    assert late.add(of(2, 2.5)) == [(3.0, 1.5)]
    assert late.all() == [(2.5, 1.5)]
    assert late.all() == []
    assert late.add(of(3, float("nan"))) == []
    with pytest.raises(TrainingStopped, match="loss of step 3 is not a number"):
        late.add(of(4, 2.0))
