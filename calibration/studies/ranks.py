"""A run on several GPUs of one node: torchrun as a process of its own, which lives as long as who started it.

Its ranks inherit the pipe that is its standard input. When that closes, because the worker was asked to stop
or is gone, all of them write a checkpoint after the same step: no signal is involved, after which torchrun
would kill them within seconds.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from calibration.studies.engine import Outcome, Task
from calibration.studies.heartbeat import heartbeats, last_sign
from calibration.studies.worker import tokens_here, train_task
from trainer.errors import or_unfit
from trainer.run.launcher import end_with_parent
from trainer.run.store import is_url, staged


def train_on_several(task: Task, should_stop: Callable[[], bool]) -> Outcome:
    """Train a run in as many processes as it asks for."""
    with ExitStack() as stack:
        room = Path(stack.enter_context(TemporaryDirectory(prefix="databound-ranks-")))
        here = replace(task, processes=1)
        asked, sign = should_stop, 0
        if is_url(task.folder):  # the ranks give their signs of life in a folder of this machine
            asked = stack.enter_context(heartbeats(task.folder, should_stop))
            with or_unfit():
                tokens = tokens_here(task)
            here = replace(here, folder=str(stack.enter_context(staged(task.folder))), tokens=str(tokens))
        (room / "task").write_bytes(pickle.dumps(here))
        said = stack.enter_context(open(room / "said", "wb"))
        command = [sys.executable, "-m", __name__, str(task.processes), str(room)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said)
        assert process.stdin is not None
        while process.poll() is None:
            last = last_sign(Path(here.folder))
            if (asked if last != sign else should_stop)():
                process.stdin.close()
            sign = last
            time.sleep(0.5)
        process.stdin.close()
        if (room / "outcome").exists():
            outcome: Outcome = pickle.loads((room / "outcome").read_bytes())
            return outcome
        words = (room / "said").read_text(errors="replace")
        return Outcome(task.name, "failed", _reason(words, process.returncode))


def _reason(said: str, code: int) -> str:
    """Why no outcome was left: what a rank said before it left, among all that torchrun says of it."""
    sentences = [line.removeprefix("Error: ") for line in said.splitlines() if line.startswith("Error: ")]
    return sentences[-1][:300] if sentences else f"torchrun ended with code {code}"


def _main(*arguments: str) -> int:
    room = Path(arguments[-1])
    if "RANK" not in os.environ:
        from torch.distributed.run import main

        end_with_parent()
        main(["--standalone", "--nproc-per-node", arguments[0], "-m", "calibration.studies.ranks", str(room)])
        return 0
    outcome = train_task(pickle.loads((room / "task").read_bytes()), _pipe_is_closed)
    if os.environ["RANK"] == "0":
        (room / "draft").write_bytes(pickle.dumps(outcome))
        os.replace(room / "draft", room / "outcome")
    return 0 if outcome.kind == "done" else 1


def _pipe_is_closed() -> bool:
    return bool(select.select([0], [], [], 0)[0])  # nothing is ever sent through it


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
