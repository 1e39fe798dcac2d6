"""Memory of the page's server while thousands of visitors come and go.

    python -m benchmarks.ui_memory                 # 5,000 requests, some minutes
    python -m benchmarks.ui_memory --requests 500

Each request is a visitor of its own, who asks for a plan nobody asked for before. Prints what the server and
its workers occupy as it goes on; ends with an error where the second half grows by more than a tenth.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.ui_visitor import ask, config_of

MEGABYTE = 1e6
GROWTH = 1.1


def occupied(pid: int) -> float:
    """Megabytes of a process and of those that it started."""
    return sum(_resident(one) for one in family_of(pid))


def family_of(pid: int) -> set[int]:
    """A process, those that it started, and those that they did."""
    family, grown = {pid}, True
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        parents[int(name.split(" ", 1)[0])] = int(rest.split()[1])
    while grown:
        more = {child for child, parent in parents.items() if parent in family} - family
        family, grown = family | more, bool(more)
    return family


def _resident(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")) / MEGABYTE


def question(number: int) -> dict[str, str]:
    """No two alike; every fourth is about a calibration with refits, at a weight decay of its own."""
    if number % 4:
        return {"ud": f"{100 + 0.37 * number:.2f}M"}
    decay = f"{0.1 + 0.00017 * number:.5f}"
    return {"ud": "2M", "flops": "1e14", "calibration": "micro", "weight_decay": decay}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=5000)
    options.add_argument("--at-once", type=int, default=8)
    given = options.parse_args()
    command = [sys.executable, "-u", "-m", "planner", "ui", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().split()[2]
        _wait(address)
        config = config_of(address)
        step = max(given.requests // 20, 1)
        seen: list[float] = []
        print(f"{'requests':>9} {'MB':>7}", flush=True)
        with ThreadPoolExecutor(given.at_once) as visitors:
            for done in range(0, given.requests, step):
                asked = [question(i) for i in range(done, done + step)]
                list(visitors.map(lambda changes: ask(address, config, changes), asked))
                seen.append(occupied(server.pid))
                print(f"{done + step:9,} {seen[-1]:7.0f}", flush=True)
        half = max(seen[: len(seen) // 2] or seen)
        print(f"most: {half:.0f} MB in the first half, {max(seen):.0f} MB in all")
        if max(seen) > GROWTH * half:
            sys.exit(f"the second half grew by {max(seen) / half - 1:.0%}")
    finally:
        server.terminate()
        server.wait(60)


def _wait(address: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing answers at {address}")


if __name__ == "__main__":
    main()
