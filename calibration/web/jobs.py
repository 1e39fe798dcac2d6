"""Hands files from strangers to `worker` processes and listens to what they say.

One worker is always kept waiting, with its libraries loaded, so that an upload is answered at once. A worker
does one job and ends; one that dies, or says nothing in time, becomes a sentence for the visitor. No visitor
gets all places: so many files are worked on at once, and so many of each address.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibration.fitting.runs.checks import Problem
from planner.inputs import InvalidInput

AT_ONCE = {"read": 4, "fit": 2}  # of all visitors
EACH = {"read": 2, "fit": 1}  # of one address
ENDS_WITHIN = 2.0  # seconds, what its visitor has stopped
# Seconds of wall clock, for a worker that is stuck; what a file may take is limited in processor time, there.
PATIENCE = {"check": 45.0, "calibration": 45.0, "fit": 1800.0}


class JobFailed(InvalidInput):
    """What the worker found wrong: a sentence and, for run tables, each unusable cell and column."""

    def __init__(
        self,
        sentence: str,
        problems: list[Problem] | None = None,
        columns: list[tuple[str, str]] | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(sentence, field=field)
        self.problems, self.columns = problems or [], columns or []


class Busy(JobFailed):
    """No place is free for this visitor right now."""


class Cancellation:
    """Ends a job from outside, at once, or as soon as it has begun."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[str] | None = None
        self._cancelled = False

    def watch(self, worker: subprocess.Popen[str]) -> None:
        self._worker = worker
        if self._cancelled:
            worker.kill()

    def cancel(self) -> None:
        self._cancelled = True
        if self._worker is not None:
            self._worker.kill()


class Jobs:
    """Starts workers, one ahead of time."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder  # where a file lies while it is worked on
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)  # a place
        self._spare: subprocess.Popen[str] | None = None
        self._running: set[subprocess.Popen[str]] = set()
        self._places: Counter[tuple[str, str]] = Counter()  # that are taken, by kind and visitor
        self._closed = False

    def warm_up(self) -> None:
        with self._lock:
            if not self._closed and (self._spare is None or self._spare.poll() is not None):
                self._spare = _start()

    def close(self) -> None:
        """End all workers; nothing is started any more."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, None
            running = list(self._running)
        for worker in running:
            worker.kill()  # whoever listens to it is told so
        if spare is not None:
            _end(spare)

    def run(
        self,
        task: str,
        content: bytes,
        filename: str,
        *,
        visitor: str = "",
        cancellation: Cancellation,
        **options: Any,
    ) -> Iterator[tuple[str, float] | dict[str, Any]]:
        """Progress as (what, share), and last the result; JobFailed where there is none. Whoever stops
        iterating ends the worker, and so does `cancellation` while the next message is waited for.
        """
        with self._place("fit" if task == "fit" else "read", visitor), contextlib.ExitStack() as after:
            folder = after.enter_context(tempfile.TemporaryDirectory(dir=self._folder))
            path = Path(folder, file_name(filename, content))
            path.write_bytes(content)
            worker = self._take()
            after.callback(self._put_away, worker)
            cancellation.watch(worker)
            overdue = threading.Timer(PATIENCE[task], worker.kill)
            overdue.start()
            after.callback(overdue.cancel)
            yield from _listen(worker, {"task": task, "path": str(path), **options})

    @contextlib.contextmanager
    def _place(self, kind: str, visitor: str) -> Iterator[None]:
        own = (kind, visitor)
        with self._freed:
            # One that its visitor has just stopped is about to end.
            self._freed.wait_for(lambda: self._places[own] < EACH[kind], ENDS_WITHIN)
            taken = sum(count for (what, _), count in self._places.items() if what == kind)
            if self._closed or taken >= AT_ONCE[kind]:
                raise Busy("the server works on as many files as it can; try again in a moment.")
            if self._places[own] >= EACH[kind]:
                raise Busy(f"the server still works on your last {_WHAT[kind]}; wait until it has ended.")
            self._places[own] += 1
        try:
            yield
        finally:
            with self._freed:
                self._places[own] -= 1
                self._places += Counter()  # forgets who has none
                self._freed.notify_all()

    def _take(self) -> subprocess.Popen[str]:
        with self._lock:
            ready, self._spare = self._spare, None
            if ready is None or ready.poll() is not None:
                ready = _start()
            self._running.add(ready)
        threading.Thread(target=self.warm_up, daemon=True).start()
        return ready

    def _put_away(self, worker: subprocess.Popen[str]) -> None:
        _end(worker)
        with self._lock:
            self._running.discard(worker)


_WHAT = {"read": "files", "fit": "fit"}


def _listen(
    worker: subprocess.Popen[str], request: dict[str, Any]
) -> Iterator[tuple[str, float] | dict[str, Any]]:
    """What a worker says of a request."""
    assert worker.stdin is not None and worker.stdout is not None  # noqa: PT018  both are pipes
    try:
        worker.stdin.write(json.dumps(request) + "\n")
        worker.stdin.close()
    except OSError:
        raise JobFailed("the file could not be handed over; try again.") from None
    for line in worker.stdout:
        message = json.loads(line)
        if "progress" in message:
            what, share = message["progress"]
            yield what, share
        elif "error" in message:
            problems = [Problem(*problem) for problem in message["problems"]]
            raise JobFailed(message["error"], problems, message["columns"], message["field"])
        else:
            yield message["result"]
            return
    kind = "calibration" if request["task"] == "calibration" else "table of runs"
    raise JobFailed(f"this file takes more memory or time than a {kind} should.")


def file_name(given: str, content: bytes = b"") -> str:
    """A visitor's name of a file as that of one, with nothing that a file system could mistake; what it ends
    in is what it is, and nothing where it is not the JSON that it is called.
    """
    name = re.sub(r"[^\w.() -]", "-", Path(given.replace("\\", "/")).name, flags=re.ASCII).strip(". ")
    stem = Path(name or "runs").stem[:60]
    if content.startswith(b"PAR1"):
        return f"{stem}.parquet"
    if content.lstrip()[:1] in (b"{", b"["):
        return f"{stem}.json"
    return str(stem) if name.lower().endswith(".json") else f"{stem}.csv"


def _start() -> subprocess.Popen[str]:
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    one_thread["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others reserve more addresses than a worker may have
    return subprocess.Popen(
        [sys.executable, "-m", "calibration.web.worker"],
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
