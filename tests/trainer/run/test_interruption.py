"""kill -9 at any step of any epoch, a kill in the middle of a
checkpoint, and a full disk: nothing is lost, no bit differs.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import losses, start
from tests.trainer.run.test_loop import same
from trainer import RunConfig, read_result, train

KILL_AT_STEP = """
import json, os, signal, sys
from trainer import RunConfig, train
settings, folder, victim = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def killed():
    from pathlib import Path
    lines = Path(folder, "metrics.jsonl").read_text().splitlines()
    if json.loads(lines[-1])["step"] >= victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return False
train(RunConfig(**settings), folder, should_stop=killed)
"""

KILL_IN_CHECKPOINT = """
import json, os, signal, sys
from trainer import RunConfig, train
from trainer.run import checkpoints, tensors
settings, folder, point = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
place = tensors if point == "write" else checkpoints
plain, calls = getattr(place, point), iter(range(1, 1000))
def killed(*args, **kwargs):
    if next(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(*args, **kwargs)
setattr(place, point, killed)
train(RunConfig(**settings), folder)
"""

FULL_DISK = """
import json, resource, sys, time
from pathlib import Path
from trainer import RunConfig, TrainingStopped, train
settings, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
steps = iter(range(1, 10**6))
def fills():
    if next(steps) == 12:  # from here on no file may grow beyond 2 kB
        until = time.monotonic() + 600  # the checkpoint of step 10 is written beside the training
        while not (folder / "checkpoints" / "step-00000010").exists() and time.monotonic() < until:
            time.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    return False
try:
    train(RunConfig(**settings), folder, should_stop=fills)
except TrainingStopped as stopped:
    print(stopped)
"""


@pytest.fixture(scope="module")
def threads() -> Any:
    """The same number of threads as the processes that are
    started: bits are promised for the same machine and setting.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_killed_in_three_epochs_and_still_the_same_bits(
    settings: dict[str, Any], tmp_path: Path, threads: None
) -> None:
    settings |= {"checkpoint_every": 3}
    whole = train(RunConfig(**settings), tmp_path / "whole")
    victims = [random.randrange(20 * epoch + 1, 20 * epoch + 20) for epoch in range(3)]
    for victim in victims:
        done = start(KILL_AT_STEP, json.dumps(settings), str(tmp_path / "killed"), str(victim))
        assert done.returncode == -9, done.stderr
        assert read_result(tmp_path / "killed") is None
    result = train(RunConfig(**settings), tmp_path / "killed")
    assert result.starts >= 2, victims
    assert same(tmp_path / "whole", tmp_path / "killed"), victims
    assert losses(tmp_path / "whole") == losses(tmp_path / "killed"), victims
    assert (result.loss, result.weights_checksum, result.train_loss) == (
        whole.loss,
        whole.weights_checksum,
        whole.train_loss,
    )


@pytest.mark.slow
@pytest.mark.parametrize("point", ["write", "write_json", "sync"])
def test_killed_while_writing_a_checkpoint(
    settings: dict[str, Any], tmp_path: Path, threads: None, point: str
) -> None:
    settings |= {"checkpoint_every": 4, "epochs": 1}
    train(RunConfig(**settings), tmp_path / "whole")
    done = start(KILL_IN_CHECKPOINT, json.dumps(settings), str(tmp_path / "killed"), point)
    assert done.returncode == -9, done.stderr
    assert any((tmp_path / "killed" / "checkpoints").glob("step-*"))
    train(RunConfig(**settings), tmp_path / "killed")
    assert same(tmp_path / "whole", tmp_path / "killed")
    assert not any((tmp_path / "killed").glob("**/.step*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "log_every", [1, 100]
)  # the metrics meet the full disk first, or the checkpoint does
def test_a_full_disk_stops_the_run_with_its_checkpoint_intact(
    settings: dict[str, Any], tmp_path: Path, threads: None, log_every: int
) -> None:
    settings |= {"checkpoint_every": 10, "log_every": log_every}
    train(RunConfig(**settings), tmp_path / "whole")
    done = start(FULL_DISK, json.dumps(settings), str(tmp_path / "full"))
    assert "cannot be written" in done.stdout, done.stderr
    assert [path.name for path in (tmp_path / "full" / "checkpoints").iterdir()] == ["step-00000010"]
    train(RunConfig(**settings), tmp_path / "full")  # there is room again
    assert same(tmp_path / "whole", tmp_path / "full")
