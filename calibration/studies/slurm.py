"""Ray inside a SLURM allocation, one command for all tasks of a step: `srun ... --engine slurm`.

Every task of the step is the same command. The first one starts the head of a Ray cluster on its node, leaves
the address in the study's directory and drives the sweep; each other one adds its node to the cluster and
stays until the head is gone. The processes of Ray are deaf to what SLURM sends to all of a step when the
machines are taken back: the driver hears it and has every run write a checkpoint first.

Whoever may submit to a Ray cluster runs what they like as its user, and its ports are open to the network. So
the cluster asks for a token (`RAY_AUTH_MODE=token`), made for the step and left beside the address in a file
that only its owner can read.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from calibration.studies.cluster import RayEngine, _port_is_open
from calibration.studies.engine import INTERRUPTIONS, signals_blocked
from planner.inputs import InvalidInput
from trainer.files import read_json, write_json

_PATIENCE = 300.0  # seconds that a head is given to come up, on nodes that boot and disks that are slow
_WITH_TOKENS = (2, 52)  # the first release of Ray that can ask for a token
_USAGE = "srun --ntasks-per-node=1 planner calibrate sweep STUDY -o DIR --engine slurm"


def task_number() -> int:
    """Which task of the step this is."""
    try:
        return int(os.environ["SLURM_PROCID"])
    except (KeyError, ValueError):
        raise InvalidInput(f"the slurm engine is for a step of an allocation: {_USAGE}") from None


@dataclass
class SlurmEngine(RayEngine):
    """The engine of the first task: a Ray cluster of the nodes of the step, while the sweep lasts."""

    _process: subprocess.Popen[bytes] | None = None

    def describe(self) -> str:
        tasks = os.environ.get("SLURM_NTASKS", "the")
        return f"{self.needs or 'a GPU or core'} each, on {tasks} nodes of SLURM job {_job()}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if tuple(map(int, version("ray").split(".")[:2])) < _WITH_TOKENS:
            raise InvalidInput(
                f"ray {version('ray')} lets everybody on the network submit to the cluster of a step; "
                f"pip install 'ray>={_WITH_TOKENS[0]}.{_WITH_TOKENS[1]}' would do."
            )

    def __enter__(self) -> SlurmEngine:
        self.compiled.mkdir(parents=True, exist_ok=True)
        for file in (_address_file(self.compiled), _token_file(self.compiled)):  # of a killed step
            file.unlink(missing_ok=True)
        token = secrets.token_hex(32)
        _require_token(token)  # before Ray is loaded, which looks once
        private = os.open(_token_file(self.compiled), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(private, "w", encoding="utf-8") as key:
            key.write(token)
        try:
            from ray.util import get_node_ip_address

            with socket.socket() as free:
                free.bind(("", 0))
                port = free.getsockname()[1]
            self._process = _start_ray_node("--head", f"--port={port}", "--include-dashboard=false")
            self.address = f"{get_node_ip_address()}:{port}"  # type: ignore[no-untyped-call]
            _wait_for(lambda: _port_is_open(self.address or ""), self._process)
            super().__enter__()
            write_json(_address_file(self.compiled), {"address": self.address})
        except BaseException:
            _token_file(self.compiled).unlink(missing_ok=True)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        _address_file(self.compiled).unlink(missing_ok=True)
        _token_file(self.compiled).unlink(missing_ok=True)
        try:
            super().__exit__(*error)
        finally:
            _kill_node(self._process)


def join(compiled: Path) -> None:
    """What all tasks but the first do: be a node of the cluster until there is none any more."""
    notice = _address_file(compiled)
    for number in INTERRUPTIONS:  # the driver hears them, and ends the cluster when checkpoints are written
        signal.signal(number, signal.SIG_IGN)
    _wait_for(lambda: notice.is_file() and _token_file(compiled).is_file())
    _require_token(_token_file(compiled).read_text(encoding="utf-8"))
    process = _start_ray_node(f"--address={read_json(notice)['address']}")
    try:
        while process.poll() is None and notice.is_file():
            time.sleep(1.0)
    finally:
        _kill_node(process)


def _job() -> str:
    return f"{os.environ.get('SLURM_JOB_ID', '0')}.{os.environ.get('SLURM_STEP_ID', '0')}"


def _address_file(compiled: Path) -> Path:
    """Where the first task tells the others the address of the head."""
    return compiled / f".ray-{_job()}.json"


def _token_file(compiled: Path) -> Path:
    """Where it leaves the token for them."""
    return compiled / f".ray-{_job()}.token"


def _require_token(token: str) -> None:
    """Have every Ray process that this one starts ask for a token and show it."""
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token)


def _start_ray_node(*options: str) -> subprocess.Popen[bytes]:
    """A node of the cluster with what SLURM gave the task, deaf to signals."""
    cores = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE")
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    more = [f"--num-cpus={cores}"] if cores else []
    with signals_blocked():
        return subprocess.Popen([*command, *more, *options], start_new_session=True, **quiet)


def _wait_for(holds: Any, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            _kill_node(process)
            raise InvalidInput(f"the head of a Ray cluster did not come up in SLURM job {_job()}.")
        time.sleep(0.5)


def _kill_node(process: subprocess.Popen[bytes] | None) -> None:
    """End a node: its processes share the fate of the first."""
    if process is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
