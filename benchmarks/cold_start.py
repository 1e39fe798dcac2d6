"""How long `planner plan` takes from a cold start, next to importing the libraries that it is made of.

    python benchmarks/cold_start.py [rounds]

Both commands are started in turn, so that a busy machine slows both. Printed are the ratios, by the clock and
by processor time, of the least times and of the medians. Modules are compiled once, as an installation does,
also where the environment says to write no bytecode: those of the libraries are too.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

PLAN = [str(Path(sys.executable).with_name("planner")), "plan", "--ud", "250M", "--flops", "5e18"]
IMPORTS = [sys.executable, "-c", "import numpy, pydantic, click, rich.table"]
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Took(NamedTuple):
    """Seconds of one process."""

    clock: float
    processor: float


def run(command: list[str]) -> Took:
    before, start = _processor(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=_ENVIRONMENT)
    return Took(time.perf_counter() - start, _processor() - before)


def _processor() -> float:
    """Seconds of processor that finished processes have taken so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(rounds: int) -> None:
    for command in (PLAN, IMPORTS):
        run(command)  # compiles what is not compiled yet, and fills the disk's cache
    took = [(run(PLAN), run(IMPORTS)) for _ in range(rounds)]
    plans, imports = ([pair[k] for pair in took] for k in (0, 1))
    for name in Took._fields:
        ours, theirs = ([getattr(one, name) for one in each] for each in (plans, imports))
        for how, middle in (("least", min), ("median", statistics.median)):
            a, b = middle(ours), middle(theirs)
            print(f"{name:<9}  {how:<6}  {a:.3f} s against {b:.3f} s: {a / b:.2f} times")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
