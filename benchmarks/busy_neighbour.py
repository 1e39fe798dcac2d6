"""Tokens per second of a worker beside other busy processes: with threads that spin while they wait, as
OpenMP has them, and with threads that sleep, as workers of a sweep have them.

    python benchmarks/busy_neighbour.py
    python benchmarks/busy_neighbour.py --neighbours 0 1 2 --seconds 20

Each figure is from a process of its own that takes steps of the micro shape, uncompiled, as many as it can.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from trainer.waiting import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[1]
STEPS = """
import sys, time, torch
sys.path.insert(0, "benchmarks")
from train_speed import CASES, ours, stepper
torch.set_num_threads(int(sys.argv[1]))
shape, length, rows = CASES["micro"]
step = stepper(ours, shape, length, rows, False)
step()
began, done = time.perf_counter(), 0
while time.perf_counter() - began < float(sys.argv[2]):
    step()
    done += rows * length
print(done / (time.perf_counter() - began))
"""
BUSY = "while True: pass"


def speed(threads: int, sleeping: bool, neighbours: int, seconds: float) -> float:
    """Tokens per second of a worker with so many threads, beside so many processes that never wait."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))
    }
    plain |= {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    environment = plain | ENVIRONMENT if sleeping else plain
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(neighbours)]
    try:
        time.sleep(0.5)
        command = [sys.executable, "-c", STEPS, str(threads), str(seconds)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return float(done.stdout)
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    print("busy neighbours   1 thread   spinning   sleeping   (tokens/s; the last two with more threads)")
    for neighbours in asked.neighbours:
        found = [
            speed(threads, sleeping, neighbours, asked.seconds)
            for threads, sleeping in ((1, True), (asked.threads, False), (asked.threads, True))
        ]
        print(f"{neighbours:15d}" + "".join(f"{figure:11,.0f}" for figure in found), flush=True)


if __name__ == "__main__":
    main()
