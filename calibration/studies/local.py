"""The engine of one machine: a process per CPU core or GPU, each of which trains run after run.

Small models do not fill two cores: two processes of one thread train almost twice as much as one process of
two. A process keeps what it has compiled, and all share one cache on disk, so that a shape is compiled once
and loaded in seconds afterwards.

A worker lives as long as the pipe to its driver. When the driver is gone, however it went, the worker finds
the pipe closed after its next step, writes a checkpoint and ends.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from calibration.studies.engine import Needs, Outcome, Task, check_room, signals_blocked
from calibration.studies.worker import prepare_process, train_task
from planner.inputs import InvalidInput

_PATIENCE = 60.0  # seconds that workers are given to write their checkpoints


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    group: int  # of GPUs, those of one run
    task: Task | None = None


@dataclass
class LocalEngine:
    """`workers` processes; by default one per CPU core, or per GPU where there are any."""

    compiled: Path
    workers: int | None = None
    per_gpu: int = 1
    needs: Needs = field(default_factory=Needs)
    _running: list[_Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gpus = _gpus()
        self.cores = _cores()
        check_room(self.workers, self.per_gpu)
        self.each = max(1, int(self.needs.gpus or 1))  # GPUs of a run
        on_cores = self.workers or max(1, self.cores // (self.needs.threads or 1))
        self.size, self.share = self._on_gpus() if self.gpus else (on_cores, 1.0)
        self.threads = self.needs.threads or max(1, self.cores // self.size)

    def _on_gpus(self) -> tuple[int, float]:
        """How many workers, and which part of a GPU each has."""
        groups = self.gpus // self.each
        if not groups:
            raise InvalidInput(f"needs.gpus asks for {self.each} a run and this machine has {self.gpus}.")
        if self.each > 1:
            return min(self.workers or groups, groups), 1.0
        size = self.workers or groups * (int(1 / self.needs.gpus) if self.needs.gpus else self.per_gpu)
        return size, 1 / -(-size // groups)

    def describe(self) -> str:
        where = f"{self.gpus} GPU{'s' * (self.gpus > 1)}" if self.gpus else f"{self.cores} CPU cores"
        threads = f"{self.threads} thread{'s' * (self.threads > 1)} each"
        return f"{self.size} worker{'s' * (self.size > 1)} on {where}, {threads}"

    def __enter__(self) -> LocalEngine:
        self.compiled.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._running:
            worker.pipe.close()  # a worker that is training sees it after its step, an idle one at once
        deadline = time.monotonic() + _PATIENCE
        for worker in self._running:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()  # nothing where it has ended
            worker.process.join()
        self._running.clear()

    def room(self) -> int:
        return self.size - sum(worker.task is not None for worker in self._running)

    def start(self, task: Task, avoided_nodes: Collection[str] = ()) -> None:
        for worker in [each for each in self._running if each.task is None and not each.process.is_alive()]:
            self._remove_worker(worker)  # it died between two runs, which is no run's fault
        idle = next((worker for worker in self._running if worker.task is None), None) or self._start_worker()
        idle.task = task
        with suppress(OSError):  # where it has died meanwhile, `wait` says so
            idle.pipe.send(replace(task, processes=self.each if self.gpus else 1))

    def wait(self, seconds: float) -> Collection[Outcome]:
        busy = {worker.pipe: worker for worker in self._running if worker.task is not None}
        ended = []
        for ready in connection.wait(list(busy), timeout=seconds):
            worker = busy[ready]  # type: ignore[index]
            try:
                ended.append(worker.pipe.recv())
                worker.task = None
            except (EOFError, OSError):
                ended.append(self._dead_worker(worker))
        return ended

    def abandon(self, name: str) -> None:
        for worker in [each for each in self._running if each.task is not None and each.task.name == name]:
            worker.process.kill()  # which may take effect much later, where a disk does not answer
            worker.pipe.close()
            self._running.remove(worker)

    def nodes(self) -> set[str]:
        return set()

    def _dead_worker(self, worker: _Worker) -> Outcome:
        """What is to be said of a worker that died while it trained."""
        self._remove_worker(worker)
        assert worker.task is not None
        code = worker.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        hint = "; if memory ran out, fewer --workers would do" if -code == signal.SIGKILL else ""
        return Outcome(worker.task.name, "failed", f"its process {how}{hint}")

    def _remove_worker(self, worker: _Worker) -> None:
        worker.process.join()
        worker.pipe.close()
        self._running.remove(worker)

    def _start_worker(self) -> _Worker:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        group, visible = 0, ""
        if self.gpus:
            taken = Counter(worker.group for worker in self._running)
            group = min(range(self.gpus // self.each), key=taken.__getitem__)
            known = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.gpus)))
            visible = ",".join(known.split(",")[group * self.each : (group + 1) * self.each])
        how = (visible, self.threads, str(self.compiled), self.share)
        process = context.Process(target=_worker_loop, args=(theirs, *how), daemon=True)
        resource_tracker.ensure_running()  # else `start` would do it, which ends the deafness
        with signals_blocked():
            process.start()
            theirs.close()
            self._running.append(_Worker(process, ours, group))
        return self._running[-1]


def _worker_loop(pipe: Connection, visible: str, threads: int, compiled: str, share: float) -> None:
    """The life of a worker: one task after the other, until the pipe closes."""
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    prepare_process(threads, compiled, share)
    with suppress(EOFError, OSError):
        while True:
            # While a task runs nothing is sent: anything to read is the end of the pipe, the driver is gone.
            outcome = train_task(pipe.recv(), pipe.poll)
            if outcome.kind == "stopped":
                return
            pipe.send(outcome)


def _cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The cores that this process may use, of which a container may be given only some time: "200000 100000"
    is that of two.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        time_given, period = quota.read_text().split()
        return min(cores, max(1, math.ceil(int(time_given) / int(period))))
    except (OSError, ValueError):  # there is no such file, or it says "max"
        return cores


def _gpus() -> int:
    if not Path("/dev/nvidiactl").exists() and not Path("/dev/kfd").exists():
        return 0  # without asking torch, which takes seconds to import
    import torch

    return torch.cuda.device_count()
