"""The engine of many machines: every run is a task of a Ray cluster, on any node that has what it needs.

The study directory has to be on storage that all nodes share: a run writes its directory where it is trained,
and whoever continues it after a node has died finds its checkpoint there. A node shows that it sees the very
directory, not a copy of it, before it trains: the driver leaves a file there whose name nobody can know.
Nodes may join and leave at any time, and a cluster that grows on demand sees what is waiting. A worker that
is cancelled stops after its step with a checkpoint; one that is killed, with its node or alone, leaves the
checkpoint it wrote last.
"""

from __future__ import annotations

import logging
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from calibration.studies.engine import INTERRUPTIONS, Needs, Outcome, Task, check_room
from calibration.studies.worker import prepare_process, train_task
from planner.inputs import InvalidInput
from trainer.errors import TrainingStopped
from trainer.run.store import Store

_PATIENCE = 60.0  # seconds that workers are given to write their checkpoints
_CONNECT = 3.0  # seconds for a port to open
_ANSWER = 30.0  # and for a cluster behind it to answer, on a busy machine; Ray itself would try for minutes
_GONE = 10.0  # seconds without the head after which it is gone; Ray itself ends the process after a minute
_AT_ONCE = 256  # runs in the cluster, those that wait for room included, so that it may grow
_AGAIN = "the same command goes on from here."
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@dataclass
class RayEngine:
    """So many runs in the cluster, which trains as many at the same time as it has room for, and grows.

    Without an address: the one in RAY_ADDRESS, else a cluster that runs on this machine, else one that is
    started for the sweep. What a run needs is what the study says; where it does not, a GPU or part of one
    where the cluster has any, else a core.
    """

    compiled: Path
    workers: int | None = None
    per_gpu: int = 1
    address: str | None = None
    needs: Needs = field(default_factory=Needs)
    store: Store | None = None
    _running: dict[Any, Task] = field(default_factory=dict)
    _on_gpus: bool = False

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise InvalidInput("ray is not installed; pip install '.[cluster]' would do.")
        check_room(self.workers, self.per_gpu)
        self.address = self.address or os.environ.get("RAY_ADDRESS") or None
        if self.address not in (None, "auto", "local"):
            _check_reachable(self.address)

    def describe(self) -> str:
        where = f"the Ray cluster at {self.address}" if self.address else "the Ray cluster of this machine"
        most = f"at most {self.workers} at a time, " if self.workers else ""
        return f"{most}{self.needs or 'a GPU or core'} each, on {where}"

    def __enter__(self) -> RayEngine:
        self.compiled.mkdir(parents=True, exist_ok=True)
        os.environ |= {**_QUIET, **os.environ}
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
        self._head = ray.get_runtime_context().gcs_address
        self._remote = cache(lambda calls: ray.remote(max_retries=0, max_calls=calls)(_train_task))
        self._shared = self.store or Store(str(self.compiled.absolute()))
        self._proof = f".seen-{secrets.token_hex(16)}"
        self._shared.write(self._proof, b"")
        self._silence = ExitStack()  # Ray prints what happens to nodes, into the middle of any JSON
        nowhere = self._silence.enter_context(open(os.devnull, "w", encoding="utf-8"))
        self._silence.enter_context(redirect_stdout(nowhere))
        return self

    def __exit__(self, *error: object) -> None:
        import ray

        with suppress(TrainingStopped):
            self._shared.delete(self._proof)
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
        return max(0, (self.workers or _AT_ONCE) - len(self._running))

    def start(self, task: Task, avoided_nodes: Collection[str] = ()) -> None:
        options = self._needed() | {"name": task.name}
        if avoided_nodes:
            left_out = ",".join(sorted({node.rpartition("/")[2] for node in avoided_nodes}))
            options["label_selector"] = {"ray.io/node-id": f"!in({left_out})"}
        # Ray gives a process back for another task, CUDA stays with the GPU that it first saw: for each run
        # its own. In `.options()` a number of GPUs does not do that, and max_calls is refused.
        train = self._remote(1 if "num_gpus" in options else 0).options(**options)
        gpus = options.get("num_gpus", 1)
        task = replace(task, processes=max(1, int(gpus)))
        how = (self.needs.threads or 1, "" if self.store else self._shared.url, gpus)
        self._running[train.remote(task, (self._shared.url, self._proof), *how)] = task

    def wait(self, seconds: float) -> Collection[Outcome]:
        if not self._running:
            time.sleep(seconds)
            return []
        import ray

        with self._cluster_there():
            ready, _ = ray.wait(list(self._running), timeout=seconds)
            if ready:  # and whatever else has ended by now
                ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [self._outcome(ended) for ended in ready]

    def abandon(self, name: str) -> None:
        import ray

        for running in [running for running, task in self._running.items() if task.name == name]:
            ray.cancel(running, force=True)
            del self._running[running]

    def nodes(self) -> set[str]:
        return {f"{node['NodeManagerHostname']}/{node['NodeID']}" for node in self._nodes()}

    def _outcome(self, ended: Any) -> Outcome:
        import ray

        task = self._running.pop(ended)
        try:
            outcome: Outcome = ray.get(ended)
            return outcome
        except ray.exceptions.TaskCancelledError:
            return Outcome(task.name, "stopped", "it was cancelled")
        except ray.exceptions.OutOfMemoryError:
            reason = "memory ran out on its node; fewer --workers would do"
        except ray.exceptions.NodeDiedError:
            return Outcome(task.name, "lost", "the node that it ran on died")
        except ray.exceptions.WorkerCrashedError:
            reason = "its process died"
        except ray.exceptions.RayTaskError as error:
            reason = _sentence(error.cause or error)
        except ray.exceptions.RayError as error:
            reason = f"Ray lost it: {_sentence(error)}"
        return Outcome(task.name, "failed", reason)

    def _nodes(self) -> list[dict[str, Any]]:
        """The nodes that are alive."""
        import ray

        with self._cluster_there():
            return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]

    def _needed(self) -> dict[str, Any]:
        """What Ray is asked for, for each run: a GPU even when the last node that had one is lost."""
        needs, gpus = self.needs, self.needs.gpus
        if gpus is None:
            has_any = any(node["Resources"].get("GPU", 0) >= 1 for node in self._nodes())
            self._on_gpus = self._on_gpus or has_any or needs.accelerator is not None
            gpus = 1 / self.per_gpu if self._on_gpus else 0
        asked = {"num_gpus": gpus, "memory": needs.memory, "accelerator_type": needs.accelerator}
        cpus = needs.threads or (0 if gpus else 1)
        return {"num_cpus": cpus} | {name: value for name, value in asked.items() if value}

    @contextmanager
    def _cluster_there(self) -> Iterator[None]:
        """Say so where the whole cluster has gone away, before Ray ends this process."""
        import ray

        deadline = time.monotonic() + _GONE
        while not _port_is_open(self._head):
            if time.monotonic() > deadline:
                self._running.clear()
                raise TrainingStopped(f"the head of the Ray cluster at {self._head} is gone; {_AGAIN}")
            time.sleep(0.5)
        try:
            yield
        except ray.exceptions.RayError as error:
            self._running.clear()
            raise TrainingStopped(f"the Ray cluster is gone ({_sentence(error)}); {_AGAIN}") from None


def _train_task(task: Task, proof: tuple[str, str], threads: int, compiled: str, gpus: float) -> Outcome:
    """Train a run in a process of Ray's; a cancelled task is sent SIGINT."""
    import ray

    node = f"{platform.node()}/{ray.get_runtime_context().get_node_id()}"
    if reason := _storage_problem(*proof):
        return Outcome(task.name, "blind", reason, node)
    cancelled = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: cancelled.set())
    try:
        prepare_process(threads, compiled or os.path.join(tempfile.gettempdir(), "databound-compiled"), gpus)
        return replace(train_task(task, cancelled.is_set), node=node)
    finally:
        signal.signal(signal.SIGINT, before)


def _storage_problem(place: str, name: str) -> str:
    """Why this node is of no use: it does not see what the driver left on the study's storage."""
    here = platform.node()
    try:
        seen = Store(place).read(name) is not None
    except (InvalidInput, TrainingStopped) as error:
        return f"{here}: {str(error).rstrip('.')}"
    return "" if seen else f"{here} sees another {place}, or none; all nodes must share the study's storage"


def _port_is_open(address: str) -> bool:
    """Whether somebody listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, OverflowError), socket.create_connection((host.strip("[]"), int(port)), _CONNECT):
        return True
    return False


def _check_reachable(address: str) -> None:
    """Raise unless a Ray cluster answers: a process asks that can be given up, as Ray itself does not."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInput(f"the address of a Ray cluster is HOST:PORT; got {address!r}.")
    ask = [sys.executable, "-c", "import ray, sys; ray.init(sys.argv[1], log_to_driver=False)", address]
    said = b""
    with suppress(subprocess.TimeoutExpired):
        if _port_is_open(f"{host}:{port}"):
            done = subprocess.run(ask, capture_output=True, timeout=_ANSWER, env={**os.environ, **_QUIET})
            if done.returncode == 0:
                return
            said = done.stderr
    if b"InvalidAuthToken" in said:
        raise InvalidInput(
            f"the Ray cluster at {address} asks for another token; "
            f"RAY_AUTH_TOKEN_PATH with the file that has it would do."
        )
    raise InvalidInput(f"no Ray cluster answers at {address}; `ray start --head` prints the address of one.")


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what Ctrl-C and a polite kill do: Ray would have the latter end the process at once."""
    before = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _sentence(error: BaseException) -> str:
    """The first line of what Ray says, which is often a page."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(lines[0].split())[:300].rstrip(".")
