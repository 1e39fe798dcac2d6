"""Hands files from strangers to `file_worker` processes and listens to what they say.

One worker is always kept waiting, with its libraries loaded, so that an upload is answered at once. A worker
does one job and ends; one that dies, or says nothing in time, becomes a sentence for the visitor.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibration.fitting.runs.checks import Problem
from planner.inputs import InvalidInput

READS_AT_ONCE, FITS_AT_ONCE = 3, 2
TURN = 0.5  # seconds that a visitor waits for one of these before being told to come back
# Seconds of wall clock, for a worker that is stuck; what a file may take is limited in processor time, there.
PATIENCE = {"check": 45.0, "calibration": 45.0, "fit": 7200.0}


class JobFailed(InvalidInput):
    """What the worker found wrong: a sentence, and for run tables each unusable cell."""

    def __init__(self, sentence: str, problems: list[Problem]) -> None:
        super().__init__(sentence)
        self.problems = problems


class FileJobs:
    """Starts workers, one ahead of time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: subprocess.Popen[str] | None = None
        self._reads = threading.BoundedSemaphore(READS_AT_ONCE)
        self._fits = threading.BoundedSemaphore(FITS_AT_ONCE)
        atexit.register(self.close)

    def warm_up(self) -> None:
        with self._lock:
            if self._spare is None or self._spare.poll() is not None:
                self._spare = _start()

    def close(self) -> None:
        with self._lock:
            if self._spare is not None:
                _end(self._spare)
                self._spare = None

    def run(
        self, task: str, path: str | os.PathLike[str], **options: Any
    ) -> Iterator[tuple[str, float] | dict[str, Any]]:
        """Progress as (what, share), and last the result; JobFailed where there is none.

        Whoever asks, and however: no more than so many of these are under way.
        """
        turn = self._fits if task == "fit" else self._reads
        if not turn.acquire(timeout=TURN):
            raise JobFailed("the server works on as many files as it can; try again in a moment.", [])
        with contextlib.ExitStack() as after:  # also when the visitor left
            after.callback(turn.release)
            worker = self._take()
            after.callback(_end, worker)
            overdue = threading.Timer(PATIENCE[task], worker.kill)
            overdue.start()
            after.callback(overdue.cancel)
            assert worker.stdin is not None and worker.stdout is not None  # noqa: PT018  both are pipes
            try:
                worker.stdin.write(json.dumps({"task": task, "path": str(path), **options}) + "\n")
                worker.stdin.close()
            except OSError:
                raise JobFailed("the file could not be handed over; try again.", []) from None
            for line in worker.stdout:
                message = json.loads(line)
                if "progress" in message:
                    what, share = message["progress"]
                    yield what, share
                elif "error" in message:
                    raise JobFailed(message["error"], [Problem(*problem) for problem in message["problems"]])
                else:
                    yield message["result"]
                    return
            kind = "calibration" if task == "calibration" else "table of runs"
            raise JobFailed(f"this file takes more memory or time than a {kind} should.", [])

    def result(self, task: str, path: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
        """The result alone."""
        for message in self.run(task, path, **options):
            if isinstance(message, dict):
                return message
        raise AssertionError("a worker ends with a result or an error")

    def _take(self) -> subprocess.Popen[str]:
        with self._lock:
            ready, self._spare = self._spare, None
        if ready is None or ready.poll() is not None:
            ready = _start()
        threading.Thread(target=self.warm_up, daemon=True).start()
        return ready


def _start() -> subprocess.Popen[str]:
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-m", "calibration.ui.file_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **one_thread, "PYTHONPATH": paths},
    )


def _end(worker: subprocess.Popen[str]) -> None:
    if worker.poll() is None:
        worker.kill()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    worker.wait()
