"""How much faster a sweep is than the same runs one after the other: one process per core against one process with all threads.

Both sides go through the same engine, with models compiled beforehand and the same configurations; only the number of
workers differs. Whole sweeps are timed, starting the processes included, alternately, and the ratio is of the medians.

    python benchmarks/sweep_speed.py [--rounds 2] [--epochs 4]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from calibration.sweeps import directory as directories
from calibration.sweeps.local import LocalEngine
from calibration.sweeps.study import Study, load
from calibration.sweeps.sweep import sweep


def subset(epochs: float, seeds: int) -> Study:
    """Cells of the micro study: three sizes, one budget."""
    micro = load("micro")
    grid = {
        **micro.grids[0], "params": [110_304, 179_856, 282_048], "unique_tokens": [65_536], "epochs": [epochs],
        "seeds": list(range(seeds)), "max_flops": None,
    }  # fmt: skip
    return Study("subset", micro.title, micro.recipe, (grid,), (), micro.validation)


def timed(study: Study, shared: Path, workers: int) -> float:
    folder = directories.begin(study, shared / f"{workers}-{time.time_ns()}")
    (folder.path / "tokens").symlink_to(shared / "tokens")
    start = time.perf_counter()
    progress = sweep(study.runs, folder, LocalEngine(shared / f"compiled-{workers}", workers=workers))
    seconds = time.perf_counter() - start
    if progress.failed:
        raise SystemExit(f"some runs could not be trained: {progress.failed}")
    shutil.rmtree(folder.path)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    cores = LocalEngine(Path()).cores
    if cores < 2:
        parser.error("this needs two cores or more")
    with tempfile.TemporaryDirectory() as scratch:
        shared = Path(scratch)
        (shared / "tokens").mkdir()
        warm, full = subset(0.25, 1), subset(options.epochs, options.seeds)
        for workers in (1, cores):
            print(f"compiling for {workers} worker(s): {timed(warm, shared, workers):.0f} s", flush=True)
        taken: dict[int, list[float]] = {1: [], cores: []}
        for _ in range(options.rounds):
            for workers, times in taken.items():
                times.append(timed(full, shared, workers))
                print(f"{len(full.runs)} runs, {workers} worker(s): {times[-1]:.1f} s", flush=True)
    alone, together = (statistics.median(times) for times in taken.values())
    print(
        f"one after the other with {cores} threads: {alone:.1f} s; {cores} at a time: {together:.1f} s; {alone / together:.2f}x"
    )


if __name__ == "__main__":
    main()
