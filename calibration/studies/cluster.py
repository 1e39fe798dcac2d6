"""The engine of many machines: every run is a task of a Ray cluster, placed on any node that has a free GPU, part of one, or core.

The study directory has to be on storage that all nodes share: a run writes its directory where it is trained, and whoever continues
it after a node has died finds its checkpoint there. Nodes may join and leave at any time. A worker that is cancelled stops after its
step with a checkpoint; one that is killed, with its node or alone, leaves the checkpoint it wrote last.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from calibration.studies.engine import FAILED, STOPPED, Outcome, Task
from calibration.studies.worker import perform
from planner.errors import InvalidInput
from trainer.errors import TrainingStopped

_PATIENCE = 60.0  # seconds that workers are given to write their checkpoints
_CONNECT = 3.0  # seconds for a port to open
_ANSWER = 30.0  # and for a cluster behind it to answer, on a busy machine; Ray itself would try for minutes
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@dataclass
class RayEngine:
    """As many runs at the same time as the cluster has room for, at most `workers`.

    Without an address: the one in RAY_ADDRESS, else a cluster that runs on this machine, else one that is started for the sweep.
    """

    compiled: Path
    workers: int | None = None
    per_gpu: int = 1
    address: str | None = None
    _running: dict[Any, Task] = field(default_factory=dict)
    _on_gpus: bool = False

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise InvalidInput("ray is not installed; pip install 'databound[cluster]' would do.")
        if self.workers is not None and self.workers < 1:
            raise InvalidInput(f"must be at least 1; got {self.workers}.", field="workers")
        if self.per_gpu < 1:
            raise InvalidInput(f"must be at least 1; got {self.per_gpu}.", field="per_gpu")
        self.address = self.address or os.environ.get("RAY_ADDRESS") or None
        if self.address not in (None, "auto", "local"):
            _check_reachable(self.address)

    def describe(self) -> str:
        where = f"the Ray cluster at {self.address}" if self.address else "the Ray cluster of this machine"
        most = f"at most {self.workers} at a time, " if self.workers else ""
        return f"{most}a GPU or core each, on {where}"

    def __enter__(self) -> RayEngine:
        self.compiled.mkdir(parents=True, exist_ok=True)
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        import ray

        with _own_signals():
            try:
                ray.init(
                    self.address, include_dashboard=False, log_to_driver=False, logging_level=logging.CRITICAL
                )
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise InvalidInput(
                    f"there is no Ray cluster at {self.address or 'this machine'}: {_sentence(error)}."
                ) from None
        self._train = ray.remote(max_retries=0)(_perform)
        self._silence = (
            ExitStack()
        )  # Ray prints what happens to nodes to standard output, into the middle of any JSON
        self._silence.enter_context(
            redirect_stdout(self._silence.enter_context(open(os.devnull, "w", encoding="utf-8")))
        )
        return self

    def __exit__(self, *error: object) -> None:
        import ray

        with suppress(ray.exceptions.RayError), _own_signals():
            for running in self._running:
                ray.cancel(running)
            if self._running:
                _, left = ray.wait(list(self._running), num_returns=len(self._running), timeout=_PATIENCE)
                for running in left:
                    ray.cancel(running, force=True)
        self._running.clear()
        ray.shutdown()
        self._silence.close()

    def room(self) -> int:
        slots, _ = self._slots()
        return max(0, min(slots, self.workers or slots) - len(self._running))

    def start(self, task: Task) -> None:
        _, resources = self._slots()
        train = self._train.options(name=task.name, **resources)
        self._running[train.remote(task, str(self.compiled.absolute()))] = task

    def wait(self, seconds: float) -> Collection[Outcome]:
        if not self._running:
            time.sleep(seconds)
            return []
        import ray

        with _cluster_there():
            ready, _ = ray.wait(list(self._running), timeout=seconds)
            if ready:  # and whatever else has ended by now
                ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [self._outcome(ended) for ended in ready]

    def _outcome(self, ended: Any) -> Outcome:
        import ray

        task = self._running.pop(ended)
        try:
            return ray.get(ended)
        except ray.exceptions.TaskCancelledError:
            return Outcome(task.name, STOPPED, "it was cancelled")
        except ray.exceptions.OutOfMemoryError:
            reason = "memory ran out on its node; fewer --workers would do"
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
            reason = "its process died, or the node that it ran on"
        except ray.exceptions.RayTaskError as error:
            reason = _sentence(error.cause or error)
        except ray.exceptions.RayError as error:
            reason = f"Ray lost it: {_sentence(error)}"
        return Outcome(task.name, FAILED, reason)

    def _slots(self) -> tuple[int, dict[str, float]]:
        """How many runs the nodes that are alive have room for, and what each of them asks for.

        Never less than one, so that a run waits in the cluster while it has no room at all and may be given another node.
        """
        import ray

        with _cluster_there():
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = sum(int(node.get("GPU", 0)) for node in nodes)
        self._on_gpus = self._on_gpus or gpus > 0  # and when the last such node is lost, wait for one
        if self._on_gpus:
            return max(1, gpus * self.per_gpu), {"num_cpus": 0, "num_gpus": 1 / self.per_gpu}
        return max(1, sum(int(node.get("CPU", 0)) for node in nodes)), {"num_cpus": 1}


def _perform(task: Task, compiled: str) -> Outcome:
    """Train a run in a process of Ray's; a cancelled task is sent SIGINT."""
    if not Path(compiled).is_dir():
        return Outcome(
            task.name,
            FAILED,
            f"{platform.node()} does not see {compiled}; the study directory must be on shared storage",
        )
    cancelled = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: cancelled.set())
    try:
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(compiled) / platform.node())
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        import torch

        torch.set_num_threads(1)
        return perform(task, cancelled.is_set)
    finally:
        signal.signal(signal.SIGINT, before)


def _check_reachable(address: str) -> None:
    """Raise unless a Ray cluster answers."""
    missing = InvalidInput(
        f"no Ray cluster answers at {address}; `ray start --head` prints the address of one."
    )
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInput(f"the address of a Ray cluster is HOST:PORT; got {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
    except (OSError, OverflowError):
        raise missing from None
    connect = (
        "import ray, sys; ray.init(sys.argv[1], log_to_driver=False)"  # in a process that can be given up
    )
    try:
        subprocess.run(
            [sys.executable, "-c", connect, address],
            capture_output=True,
            timeout=_ANSWER,
            check=True,
            env={**os.environ, **_QUIET},
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        if b"InvalidAuthToken" in (error.stderr or b""):
            raise InvalidInput(
                f"the Ray cluster at {address} asks for another token; RAY_AUTH_TOKEN_PATH with the file that has it would do."
            ) from None
        raise missing from None


@contextmanager
def _cluster_there() -> Iterator[None]:
    """Say so where the whole cluster has gone away."""
    import ray

    try:
        yield
    except ray.exceptions.RayError as error:
        raise TrainingStopped(
            f"the Ray cluster is gone ({_sentence(error)}); the same command goes on from here."
        ) from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what Ctrl-C and a polite kill do: Ray would have the latter end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sentence(error: BaseException) -> str:
    """The first line of what Ray says, which is often a page."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(lines[0].split())[:300].rstrip(".")
