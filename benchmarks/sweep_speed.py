"""How much faster a sweep is than the same runs one after the other: one process per core against one process with all threads.

The runs are every Nth of the micro study, from its longest to its shortest. Both sides go through the same engine, and one
process of the slower side trains all of its runs, so nothing is compiled or started more often there. Models are compiled
beforehand; whole sweeps are timed, starting the processes and loading what was compiled included, alternately, and the ratio is of
the medians.

    python benchmarks/sweep_speed.py [--rounds 2] [--every 10]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from calibration.sweeps import directory as directories
from calibration.sweeps.local import LocalEngine
from calibration.sweeps.study import Study, StudyRun, load
from calibration.sweeps.sweep import sweep


def shortened(study: Study, runs: Sequence[StudyRun]) -> list[StudyRun]:
    """A short run of every size, to have it compiled."""
    sizes = {run.params: run for run in runs}
    return [study.run(params=size, unique_tokens=65_536, epochs=0.1, weight_decay=0.1, seed=9) for size in sizes]


def timed(study: Study, runs: Sequence[StudyRun], shared: Path, workers: int) -> float:
    folder = directories.begin(study, shared / f"{workers}-{time.time_ns()}")
    (folder.path / "tokens").symlink_to(shared / "tokens")
    start = time.perf_counter()
    progress = sweep(runs, folder, LocalEngine(shared / f"compiled-{workers}", workers=workers))
    seconds = time.perf_counter() - start
    if progress.failed:
        raise SystemExit(f"some runs could not be trained: {progress.failed}")
    shutil.rmtree(folder.path)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--every", type=int, default=10, help="take every Nth run of the micro study")
    options = parser.parse_args()
    cores = LocalEngine(Path()).cores
    if cores < 2:
        parser.error("this needs two cores or more")
    study = load("micro")
    runs = sorted(study.runs, key=lambda run: -run.flops)[options.every // 2 :: options.every]
    with tempfile.TemporaryDirectory() as scratch:
        shared = Path(scratch)
        (shared / "tokens").mkdir()
        for workers in (1, cores):
            print(f"compiling for {workers} worker(s): {timed(study, shortened(study, runs), shared, workers):.0f} s", flush=True)
        taken: dict[int, list[float]] = {1: [], cores: []}
        for _ in range(options.rounds):
            for workers, times in taken.items():
                times.append(timed(study, runs, shared, workers))
                print(f"{len(runs)} runs, {workers} worker(s): {times[-1]:.1f} s", flush=True)
    alone, together = (statistics.median(times) for times in taken.values())
    print(
        f"one after the other with {cores} threads: {alone:.1f} s; {cores} at a time: {together:.1f} s; {alone / together:.2f}x"
    )


if __name__ == "__main__":
    main()
