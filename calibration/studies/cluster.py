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
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from calibration.studies.engine import BLIND, FAILED, HUNG, INTERRUPTIONS, LOST, STOPPED, Needs, Outcome, Task
from calibration.studies.worker import train_task, training_environment
from planner.inputs import InvalidInput
from trainer.errors import TrainingStopped
from trainer.run.store import Store, is_url

_PATIENCE = 60.0  # seconds that workers are given to write their checkpoints
_CONNECT = 3.0  # seconds for a port to open
_ANSWER = 30.0  # and for a cluster behind it to answer, on a busy machine; Ray itself would try for minutes
_GONE = 10.0  # seconds without the head after which it is gone; Ray itself ends the process after a minute
_WAITING = 64  # runs that wait in the cluster beyond those it has room for, so that it may grow
_GLANCE = 2.0  # seconds for which what is known of the nodes is good enough
_AGAIN = "the same command goes on from here."
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@dataclass
class RayEngine:
    """As many runs at the same time as the cluster has room for, at most `workers`, and some that wait there.

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
    _hung: list[str] = field(default_factory=list)
    _on_gpus: bool = False
    _gone: bool = False
    _known: tuple[float, list[dict[str, Any]]] = (0.0, [])

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise InvalidInput("ray is not installed; pip install '.[cluster]' would do.")
        for name, value in (("workers", self.workers), ("per_gpu", self.per_gpu)):
            if value is not None and value < 1:
                raise InvalidInput(f"must be at least 1; got {value}.", field=name)
        self.address = self.address or os.environ.get("RAY_ADDRESS") or None
        if self.address not in (None, "auto", "local"):
            _check_reachable(self.address)

    def describe(self) -> str:
        where = f"the Ray cluster at {self.address}" if self.address else "the Ray cluster of this machine"
        most = f"at most {self.workers} at a time, " if self.workers else ""
        return f"{most}{self.needs or 'a GPU or core'} each, on {where}"

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
        self._head = ray.get_runtime_context().gcs_address
        self._remote = lru_cache(
            lambda max_calls: ray.remote(max_retries=0, max_calls=max_calls)(_train_task)
        )
        name = f".seen-{secrets.token_hex(16)}"
        self._proof = f"{self.store.url if self.store else self.compiled.absolute()}/{name}"
        if self.store:
            self.store.write(name, b"")
        else:
            Path(self._proof).touch()
        self._silence = ExitStack()  # Ray prints what happens to nodes, into the middle of any JSON
        nowhere = self._silence.enter_context(open(os.devnull, "w", encoding="utf-8"))
        self._silence.enter_context(redirect_stdout(nowhere))
        return self

    def __exit__(self, *error: object) -> None:
        import ray

        if self.store:
            with suppress(TrainingStopped):
                self.store.delete(self._proof.rpartition("/")[2])
        else:
            Path(self._proof).unlink(missing_ok=True)
        with suppress(ray.exceptions.RayError), _own_signals():
            for running in self._running if not self._gone else ():
                ray.cancel(running)
            if self._running and not self._gone:
                _, left = ray.wait(list(self._running), num_returns=len(self._running), timeout=_PATIENCE)
                for running in left:
                    ray.cancel(running, force=True)
        self._running.clear()
        ray.shutdown()
        self._silence.close()

    def room(self) -> int:
        return max(0, (self.workers or self._slots() + _WAITING) - len(self._running))

    def start(self, task: Task, avoided_nodes: Collection[str] = ()) -> None:
        options = self._needed() | {"name": task.name}
        if avoided_nodes:
            left_out = ",".join(sorted({*map(_node_id, avoided_nodes)}))
            options["label_selector"] = {"ray.io/node-id": f"!in({left_out})"}
        # Ray gives a process back for another task, CUDA stays with the GPU that it first saw: for each run
        # its own. In `.options()` a number of GPUs does not do that, and max_calls is refused.
        train = self._remote(max_calls=1 if "num_gpus" in options else 0).options(**options)
        compiled = "" if self.store else str(self.compiled.absolute())
        how = (compiled, self._proof, self.needs.threads, options.get("num_gpus") or 1.0)
        task = replace(task, processes=max(1, int(options.get("num_gpus", 1))))
        self._running[train.remote(task, *how)] = task

    def wait(self, seconds: float) -> Collection[Outcome]:
        hung = [Outcome(name, FAILED, HUNG) for name in self._hung]
        self._hung.clear()
        if not self._running:
            time.sleep(0 if hung else seconds)
            return hung
        import ray

        with self._cluster_there():
            ready, _ = ray.wait(list(self._running), timeout=seconds)
            if ready:  # and whatever else has ended by now
                ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [*hung, *(self._outcome(ended) for ended in ready)]

    def abandon(self, name: str) -> None:
        import ray

        for running in [running for running, task in self._running.items() if task.name == name]:
            ray.cancel(running, force=True)
            del self._running[running]
            self._hung.append(name)

    def nodes(self) -> set[str]:
        return {f"{node['NodeManagerHostname']}/{node['NodeID']}" for node in self._nodes()}

    def _outcome(self, ended: Any) -> Outcome:
        import ray

        task = self._running.pop(ended)
        try:
            outcome: Outcome = ray.get(ended)
            return outcome
        except ray.exceptions.TaskCancelledError:
            return Outcome(task.name, STOPPED, "it was cancelled")
        except ray.exceptions.OutOfMemoryError:
            reason = "memory ran out on its node; fewer --workers would do"
        except ray.exceptions.NodeDiedError:
            return Outcome(task.name, LOST, "the node that it ran on died")
        except ray.exceptions.WorkerCrashedError:
            reason = "its process died"
        except ray.exceptions.RayTaskError as error:
            reason = _sentence(error.cause or error)
        except ray.exceptions.RayError as error:
            reason = f"Ray lost it: {_sentence(error)}"
        return Outcome(task.name, FAILED, reason)

    def _nodes(self) -> list[dict[str, Any]]:
        """The nodes that are alive, as of a moment ago."""
        import ray

        if time.monotonic() - self._known[0] > _GLANCE:
            with self._cluster_there():
                self._known = time.monotonic(), [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        return self._known[1]

    def _slots(self) -> int:
        """How many runs the nodes have room for.

        Never less than one, so that a run waits in the cluster while it has no room at all and may be given
        another node.
        """
        needed = self._needed()
        wanted = {
            "CPU": needed["num_cpus"],
            "GPU": needed.get("num_gpus", 0),
            "memory": needed.get("memory", 0),
        }
        per_node = (
            min(node["Resources"].get(kind, 0) / amount for kind, amount in wanted.items() if amount)
            for node in self._nodes()
        )
        return max(1, sum(int(count + 1e-9) for count in per_node))

    def _needed(self) -> dict[str, Any]:
        """What Ray is asked for, for each run."""
        gpus = self.needs.gpus
        if gpus is None:
            has_any = any(node["Resources"].get("GPU", 0) >= 1 for node in self._nodes())
            self._on_gpus = self._on_gpus or has_any  # and when the last such node is lost, wait for one
            gpus = 1 / self.per_gpu if self._on_gpus else 0
        cpus = self.needs.threads or (0 if gpus else 1)
        found: dict[str, Any] = {"num_cpus": cpus} | ({"num_gpus": gpus} if gpus else {})
        found |= {"accelerator_type": self.needs.accelerator} if self.needs.accelerator else {}
        return found | ({"memory": self.needs.memory} if self.needs.memory else {})

    @contextmanager
    def _cluster_there(self) -> Iterator[None]:
        """Say so where the whole cluster has gone away, before Ray ends this process."""
        import ray

        deadline = time.monotonic() + _GONE
        while not _port_is_open(self._head):
            if time.monotonic() > deadline:
                self._gone = True
                raise TrainingStopped(f"the head of the Ray cluster at {self._head} is gone; {_AGAIN}")
            time.sleep(0.5)
        try:
            yield
        except ray.exceptions.RayError as error:
            self._gone = True
            raise TrainingStopped(f"the Ray cluster is gone ({_sentence(error)}); {_AGAIN}") from None


def _node_id(node: str) -> str:
    """A node as Ray knows it; for people its name stands before."""
    return node.rpartition("/")[2]


def _train_task(task: Task, compiled: str, proof: str, threads: int, gpus: float) -> Outcome:
    """Train a run in a process of Ray's; a cancelled task is sent SIGINT."""
    import ray

    node = f"{platform.node()}/{ray.get_runtime_context().get_node_id()}"
    if reason := _storage_problem(proof):
        return Outcome(task.name, BLIND, reason, node)
    compiled = compiled or str(Path(tempfile.gettempdir(), "databound-compiled"))
    cancelled = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: cancelled.set())
    try:
        os.environ.update(training_environment(threads or 1, Path(compiled), gpus))
        import torch

        torch.set_num_threads(threads or 1)
        return replace(train_task(task, cancelled.is_set), node=node)
    finally:
        signal.signal(signal.SIGINT, before)


def _storage_problem(proof: str) -> str:
    """Why this node is of no use: it does not see what the driver left on the study's storage."""
    place, _, name = proof.rpartition("/")
    if not is_url(proof):
        other = f"{platform.node()} sees another {Path(place).parent}, or none"
        return "" if Path(proof).is_file() else f"{other}; all nodes must share the study's storage"
    try:
        seen = Store(place).read(name) is not None
    except (InvalidInput, TrainingStopped) as error:
        return f"{platform.node()}: {str(error).rstrip('.')}"
    return "" if seen else f"{platform.node()} sees another {place}; all nodes must reach the study's storage"


def _port_is_open(address: str) -> bool:
    """Whether somebody listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
    except (OSError, OverflowError):
        return False
    return True


def _check_reachable(address: str) -> None:
    """Raise unless a Ray cluster answers."""
    missing = InvalidInput(
        f"no Ray cluster answers at {address}; `ray start --head` prints the address of one."
    )
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInput(f"the address of a Ray cluster is HOST:PORT; got {address!r}.")
    if not _port_is_open(f"{host}:{port}"):
        raise missing
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
                f"the Ray cluster at {address} asks for another token; "
                f"RAY_AUTH_TOKEN_PATH with the file that has it would do."
            ) from None
        raise missing from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what Ctrl-C and a polite kill do: Ray would have the latter end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sentence(error: BaseException) -> str:
    """The first line of what Ray says, which is often a page."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(lines[0].split())[:300].rstrip(".")
