"""Processes that torchrun started end with it, however it ended.

Each of them is the leader of a session of its own, which no signal to torchrun reaches. One that is left
behind would go on training, or wait for others that never come, while the next start of the run writes to the
same directory.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time

from trainer.errors import TrainingStopped

_WAITS = (2, 12)  # the torch from which on torchrun heeds TORCH_ELASTIC_SHUTDOWN_TIMEOUT
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl, linux/prctl.h
_LOOK = 1.0  # seconds between two looks where the system does not tell
_PATIENCE = 10.0  # seconds for the launcher to answer, which is there before its processes


def end_with_launcher() -> None:
    """Have this process killed when torchrun dies, and raise where it is dead already; nothing without it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    parent = end_with_parent()
    reachable = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or _answers()
    if os.getppid() != parent or not reachable:
        raise TrainingStopped(
            "the torchrun that started this process is gone; the same command goes on from the last "
            "checkpoint."
        )


def hurried(torch: str) -> str:
    """What to be told where torchrun kills its processes soon, whatever it was told; else nothing."""
    if tuple(map(int, torch.split(".")[:2])) >= _WAITS:
        return ""
    later = ".".join(map(str, _WAITS))
    return (
        f"torchrun of torch {torch} kills its processes 30 seconds after SIGTERM, and a checkpoint that "
        f"takes longer is lost; from torch {later} on TORCH_ELASTIC_SHUTDOWN_TIMEOUT says when"
    )


def end_with_parent() -> int:
    """Have this process killed when its parent dies; the parent."""
    parent = os.getppid()
    if not _killed_with_parent():
        threading.Thread(target=_watch, args=(parent,), name="launcher", daemon=True).start()
    return parent


def _killed_with_parent() -> bool:
    """Ask Linux for a SIGKILL at the parent's death; whether it will come."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGKILL)


def _answers() -> bool:
    """Whether the store of torchrun, over which its processes find each other, is there."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            socket.create_connection(place, timeout=_PATIENCE).close()
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
