"""Hands files from strangers to `worker` processes and listens to what they say.

One worker is always kept waiting, with its libraries loaded, so that an upload is answered at once. A worker
does one job and ends; one that dies, or says nothing in time, becomes a sentence for the visitor. No visitor
gets all places: so many files are worked on at once, and so many of each address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from calibration.web.limits import Shares
from planner.inputs import InvalidInput

FILES, FITS = (2, 4), (1, 2)  # that are worked on at once: of one address, and of all
ENDS_WITHIN = 2.0  # seconds, what its visitor has just stopped
# Seconds of wall clock, for a worker that is stuck; what a file may take is limited in processor time, there.
PATIENCE = {"check": 45.0, "calibration": 45.0, "fit": 1800.0}
LONGEST_LINE = 2**28  # bytes of what a worker says at once, which holds a calibration and its report


class JobFailed(InvalidInput):
    """What the worker found wrong: a sentence and, for run tables, each unusable cell and column."""

    def __init__(self, detail: str, problems: list[dict[str, Any]], field: str | None = None) -> None:
        super().__init__(detail, field=field)
        self.problems = problems


class Jobs:
    """Starts workers, one ahead of time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # where a file lies while it is worked on
        self._spare: asyncio.Task[Process] | None = None
        full = 429, "the server works on as many files as it can; try again in a moment.", 5
        last = "the server still works on your last {}; wait until it has ended."
        self._fits = Shares(FITS, (429, last.format("fit"), 5), full)
        self._files = Shares(FILES, (429, last.format("files"), 5), full)

    def warm_up(self) -> None:
        self._spare = asyncio.create_task(_start())

    async def close(self) -> None:
        """End the worker that waits; those at work end with the requests that they work for."""
        if self._spare is not None:
            await _end(await self._spare)

    async def run(
        self, task: str, content: bytes, filename: str, visitor: str, **options: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """What the worker says: {"progress": [what, share]}, and last {"result": ...}; JobFailed where there
        is none. Whoever stops iterating ends the worker.
        """
        places = self._fits if task == "fit" else self._files
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDS_WITHIN):
                while not places.has_room(visitor):
                    await asyncio.sleep(0.05)
        with places.held(visitor), tempfile.TemporaryDirectory(dir=self._folder) as folder:
            path = Path(folder, file_name(filename, content))
            path.write_bytes(content)
            worker = await self._take()
            overdue = asyncio.get_running_loop().call_later(PATIENCE[task], _kill, worker)
            try:
                async for message in _listen(worker, {"task": task, "path": str(path), **options}):
                    yield message
            finally:
                overdue.cancel()
                await _end(worker)

    async def _take(self) -> Process:
        """The worker that waits; the next one is started in its place."""
        waiting = self._spare
        self.warm_up()
        worker = await (waiting or _start())
        return worker if worker.returncode is None else await _start()


async def _listen(worker: Process, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """What a worker says of a request."""
    assert worker.stdin is not None and worker.stdout is not None  # noqa: PT018  both are pipes
    worker.stdin.write(json.dumps(request).encode() + b"\n")
    worker.stdin.close()
    async for line in worker.stdout:
        message = json.loads(line)
        if "detail" in message:
            raise JobFailed(**message)
        yield message
        if "result" in message:
            return
    kind = "calibration" if request["task"] == "calibration" else "table of runs"
    raise JobFailed(f"this file takes more memory or time than a {kind} should.", [])


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


async def _start() -> Process:
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    one_thread["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others reserve more addresses than a worker may have
    around = {**os.environ, **one_thread, "PYTHONPATH": paths}
    command = (sys.executable, "-m", "calibration.web.worker")
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env=around, limit=LONGEST_LINE
    )


def _kill(worker: Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        worker.kill()


async def _end(worker: Process) -> None:
    _kill(worker)
    await worker.wait()
