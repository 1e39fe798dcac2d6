"""Two processes with FSDP2 train the same run as one."""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from planner.hardware import presets
from planner.inputs import InvalidInput
from tests.trainer.conftest import losses, start
from tests.trainer.run.test_loop import stop_after
from trainer import RunConfig, TrainingStopped, read_result, train
from trainer.data.batches import PADDING
from trainer.run import launcher
from trainer.run.device import needed_memory, resolve, resolve_device
from trainer.run.distributed import World, all_succeed, decided
from trainer.run.launcher import end_with_launcher
from trainer.run.prefetch import passes

TWO = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

SCRIPT = """
import json, sys
from trainer import RunConfig, train
train(RunConfig(**json.loads(sys.argv[1])), sys.argv[2])
"""


@pytest.mark.slow
def test_two_gloo_processes_give_the_losses_of_one(settings: dict[str, Any], tmp_path: Path) -> None:
    settings |= {
        "batch_size": 5,
        "epochs": 1.5,
        "learning_rate": 1e-3,
    }  # five rows: the ranks have different shares
    (tmp_path / "run.py").write_text(SCRIPT)
    one = train(RunConfig(**settings), tmp_path / "one")
    with pytest.raises(
        TrainingStopped
    ):  # one process begins, two continue: checkpoints do not know how many there were
        train(RunConfig(**settings), tmp_path / "two", should_stop=stop_after(4))
    done = start(str(tmp_path / "run.py"), json.dumps(settings), str(tmp_path / "two"), launcher=TWO)
    two = read_result(tmp_path / "two")
    assert two is not None, done.stderr
    assert two.execution["world_size"] == 2
    assert two.loss == pytest.approx(one.loss, abs=1e-4)
    assert [step for step, _ in losses(tmp_path / "two")] == [step for step, _ in losses(tmp_path / "one")]
    assert [x for _, x in losses(tmp_path / "two")] == pytest.approx(
        [x for _, x in losses(tmp_path / "one")], abs=1e-4
    )
    assert "world_size" in two.remarks[0]


@pytest.mark.slow
def test_muon_and_averages_are_the_same_on_two_processes(settings: dict[str, Any], tmp_path: Path) -> None:
    """Matrices are turned whole, though each process holds some of their rows."""
    settings |= {"epochs": 0.5, "optimizer": "muon", "ema_decay": 0.9, "learning_rate": 1e-3}
    settings |= {"validate_every": 4, "checkpoint_every": 4}
    (tmp_path / "run.py").write_text(SCRIPT)
    one = train(RunConfig(**settings), tmp_path / "one")
    done = start(str(tmp_path / "run.py"), json.dumps(settings), str(tmp_path / "two"), launcher=TWO)
    two = read_result(tmp_path / "two")
    assert two is not None, done.stderr
    assert two.loss == pytest.approx(one.loss, abs=1e-3)
    assert [found["loss"] for found in two.validations] == pytest.approx(
        [found["loss"] for found in one.validations], abs=1e-3
    )
    assert two.unaveraged_loss == pytest.approx(one.unaveraged_loss, abs=1e-3)


CHECKPOINTS = """
import json, sys
from trainer import RunConfig, train
from trainer.run import checkpoints
from trainer.run import distributed
from trainer.run.loop import build
from trainer.run import loop
plain = distributed.gathered
def watched(named, world):
    found = plain(named, world)
    assert bool(found) == world.first
    return found
distributed.gathered = watched
def built(*args):
    model = build(*args)
    assert all(hasattr(p, "device_mesh") for p in model.parameters())
    travels = model.body.layers[0]._get_fsdp_state()._mp_policy.param_dtype
    assert (str(travels) == "torch.bfloat16") == (args[0].dtype == "bf16")
    return model
loop.build = built
hurried = distributed.hurried
distributed.hurried = lambda torch: hurried("2.11.1+cu130")
train(RunConfig(**json.loads(sys.argv[1])), sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "tied"),
    [("fp32", False), ("bf16", True)],
)
def test_a_sharded_run_starts_from_the_same_weights_and_is_gathered_on_one_rank(
    settings: dict[str, Any], tmp_path: Path, dtype: str, tied: bool
) -> None:
    """In passes of one row, whose gradients are added up once a step, and with layers that are computed
    again.
    """
    settings |= {"epochs": 0.3, "learning_rate": 1e-3, "checkpoint_every": 2, "tied_embeddings": tied}
    settings |= {"dtype": dtype, "micro_batch": 1, "recompute": "on"}
    (tmp_path / "run.py").write_text(CHECKPOINTS)
    train(RunConfig(**settings), tmp_path / "one")
    done = start(str(tmp_path / "run.py"), json.dumps(settings), str(tmp_path / "two"), launcher=TWO)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("torchrun of torch 2.11.1+cu130 kills its processes 30 seconds after") == 1
    assert launcher.hurried("2.12.0") == launcher.hurried("3.0.0.dev1+cpu") == ""
    assert [x for _, x in losses(tmp_path / "two")] == pytest.approx(
        [x for _, x in losses(tmp_path / "one")], abs=1e-4 if dtype == "fp32" else 5e-3
    )


@pytest.mark.slow
def test_one_of_two_processes_reports(settings: dict[str, Any], tmp_path: Path) -> None:
    table = "shape = { d_model = 16, layers = 2, heads = 2, d_ff = 32 }\n"
    (tmp_path / "run.toml").write_text(
        table
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items() if name != "shape")
    )
    arguments = ("train", str(tmp_path / "run.toml"), "--set", "epochs=0.2")
    done = start("-m", "planner", *arguments, launcher=TWO)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("loss") == 1
    assert read_result(tmp_path / "run") is not None


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert [str(resolve_device(wanted)) for wanted in ("auto", "cuda", "cuda:1", "cpu")] == [
        "cuda:3",
        "cuda:3",
        "cuda:1",
        "cpu",
    ]
    monkeypatch.setenv("LOCAL_RANK", "4")
    with pytest.raises(InvalidInput, match="device 'cuda:4' is not there"):
        resolve_device("cuda")


def test_memory_is_shared_between_devices() -> None:
    shape = presets()["1B"]
    config = RunConfig(shape="1B", unique_tokens="1M", tokenizer="bytes", device="cpu", micro_batch=1)
    alone = resolve(config, shape, steps=100)[0]
    for where, each in (("cpu", 28), ("cuda", 16)):  # on a CPU with the copy for checkpoints
        run = replace(alone, device=where)
        one, eight = (needed_memory(shape, 512, replace(run, world_size=size)) for size in (1, 8))
        assert one - eight == each * shape.params * 7 / 8


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("micro_batch", [1, 2, 4, 9])
def test_every_row_is_in_exactly_one_pass_of_one_rank(size: int, micro_batch: int) -> None:
    rows = np.arange(9)
    ranks = [list(passes(rows, World(rank, size), micro_batch)) for rank in range(size)]
    assert len({len(rank) for rank in ranks}) == 1  # as many passes on every rank
    assert len({len(piece) for rank in ranks for piece in rank}) == 1
    seen = np.concatenate([piece for rank in ranks for piece in rank])
    assert sorted(seen[seen != PADDING]) == rows.tolist()


APART = """
import json, os, sys
from trainer import RunConfig, train
train(RunConfig(**json.loads(sys.argv[1])), sys.argv[2] + os.environ["RANK"])
"""


@pytest.mark.slow
def test_processes_that_do_not_share_the_directory_say_so_at_once(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "run.py").write_text(APART)
    with pytest.raises(TrainingStopped):  # the first process has a checkpoint, the second has none
        train(RunConfig(**settings), tmp_path / "run0", should_stop=stop_after(4))
    done = start(str(tmp_path / "run.py"), json.dumps(settings), str(tmp_path / "run"), launcher=TWO)
    assert done.returncode != 0  # neither waits for the other until `start` loses its patience
    assert "process 1 on" in done.stderr
    assert "does not see run directory" in done.stderr
    assert not (tmp_path / "run1").exists()


@pytest.mark.slow
def test_each_process_writes_its_part_and_any_number_continues(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    settings |= {"epochs": 0.5, "learning_rate": 1e-3, "checkpoint_every": 4}
    (tmp_path / "run.py").write_text(STOPS)
    one = train(RunConfig(**settings), tmp_path / "one")
    done = start(str(tmp_path / "run.py"), json.dumps(settings), str(tmp_path / "two"), launcher=TWO)
    assert "Interrupted: stopped at step 6 of 10" in done.stderr
    newest = tmp_path / "two" / "checkpoints" / "step-00000006"
    assert sorted(path.name for path in newest.iterdir()) == [
        "part-00000.safetensors",
        "part-00001.safetensors",
        "state.json",
    ]
    result = train(RunConfig(**settings), tmp_path / "two")  # alone
    assert result.loss == pytest.approx(one.loss, abs=1e-4)


STOPS = """
import json, sys
from trainer import RunConfig, train
count = iter(range(1, 100))
train(RunConfig(**json.loads(sys.argv[1])), sys.argv[2], should_stop=lambda: next(count) >= 6)
"""


def test_the_first_decides_and_a_failure_of_one_is_that_of_all() -> None:
    alone = World()
    assert decided(alone, lambda: 3) == all_succeed(alone, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        decided(alone, lambda: 1 / 0)


KILLS_TORCHRUN = """
import json, os, signal, sys, time
from dataclasses import replace
from pathlib import Path
from trainer import RunConfig, train
count, out = iter(range(1, 100)), Path(sys.argv[2])
def killing():
    if next(count) == 5 and os.environ["RANK"] == "0" and not (out.parent / "before").exists():
        (out.parent / "before").write_text((out / "metrics.jsonl").read_text())
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(3600)  # nobody waits that long: it is killed with its parent, or the test fails
    return False
train(RunConfig(**json.loads(sys.argv[1])), out, should_stop=killing)
"""


@pytest.mark.slow
def test_a_torchrun_that_is_killed_takes_its_processes_along_and_the_next_goes_on(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    settings |= {"epochs": 0.4, "checkpoint_every": 2}
    (tmp_path / "run.py").write_text(KILLS_TORCHRUN)
    killed = start(str(tmp_path / "run.py"), json.dumps(settings), str(tmp_path / "run"), launcher=TWO)
    assert killed.returncode == -9, killed.stderr  # its output ended, as it does with the last process
    done = start(str(tmp_path / "run.py"), json.dumps(settings), str(tmp_path / "run"), launcher=TWO)
    assert done.returncode == 0, done.stderr
    before = [json.loads(line)["loss"] for line in (tmp_path / "before").read_text().splitlines()]
    assert [loss for _, loss in losses(tmp_path / "run")][: len(before)] == before
    assert len(before) == 5


def test_a_process_whose_torchrun_is_gone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    end_with_launcher()  # without torchrun there is nothing to end with
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(launcher, "_killed_with_parent", lambda: True)
    monkeypatch.setattr(launcher, "_PATIENCE", 0.1)
    for name, value in (("RUN_ID", "x"), ("USE_AGENT_STORE", "True")):
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    with pytest.raises(TrainingStopped, match="torchrun that started this process is gone"):
        end_with_launcher()


FAILS = """
import json, os, sys, time
import torch
from trainer import RunConfig, train
from trainer.run import loop, tensors
torch.distributed.destroy_process_group = lambda *a: time.sleep(3600)  # as NCCL's does beside a collective
count, rank, how = iter(range(1, 100)), os.environ["RANK"], sys.argv[3]
passes = loop._Run._passes
def failing(self, real):
    if how == "memory" and rank == "1" and next(count) == 4:
        raise torch.OutOfMemoryError("no memory")
    return passes(self, real)
loop._Run._passes = failing
write = tensors.write
def full(*args):
    if how == "part" and rank == "1":
        raise OSError(28, "No space left on device")
    return write(*args)
tensors.write = full
try:
    train(RunConfig(**json.loads(sys.argv[1])), sys.argv[2])
except Exception as error:
    sys.stderr.write(f"process {rank}: {error}\\n")  # at once: print writes the end of a line by itself
    sys.exit(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "sentence"),
    [("memory", "a pass of 1 rows does not fit the memory"), ("part", "no space left on device")],
)
def test_what_fails_on_one_process_ends_all_with_its_sentence(
    how: str, sentence: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    settings |= {"epochs": 1, "checkpoint_every": 2, "micro_batch": 1}
    (tmp_path / "run.py").write_text(FAILS)
    words = (str(tmp_path / "run.py"), json.dumps(settings), str(tmp_path / "run"), how)
    began = time.monotonic()
    done = start(*words, launcher=TWO)
    assert done.returncode == 1
    assert time.monotonic() - began < 300  # on a busy machine; what it waits for would take an hour
    for rank in (0, 1):
        said = [line for line in done.stderr.splitlines() if line.startswith(f"process {rank}: ")]
        assert len(said) == 1, done.stderr
        assert sentence in said[0].lower()


CACHED = """
import json, sys
from dataclasses import replace
from pathlib import Path
from trainer import RunConfig, train
count, seen = iter(range(1, 100)), Path.exists
def cached(self, **how):  # a shared disk on which what was not there a moment ago stays away
    return False if self.name.startswith("part-") else seen(self, **how)
Path.exists = cached
train(RunConfig(**json.loads(sys.argv[1])), sys.argv[2], should_stop=lambda: next(count) >= 6)
"""


@pytest.mark.slow
def test_a_checkpoint_needs_no_look_at_a_shared_disk(settings: dict[str, Any], tmp_path: Path) -> None:
    """Parts are told over the network: whoever asked a shared disk for a file too early may be told for a
    minute that there is none, while a launcher kills after 30 seconds.
    """
    (tmp_path / "run.py").write_text(CACHED)
    words = (str(tmp_path / "run.py"), json.dumps(settings), str(tmp_path / "run"))
    done = start(*words, launcher=TWO)
    assert "Interrupted: stopped at step 6" in done.stderr
    assert (tmp_path / "run" / "checkpoints" / "step-00000006" / "state.json").exists()
