"""How much faster a sweep is than the same runs one after the other, each with all threads of the machine.

"One after the other" is measured twice: as commands, `planner train` for one run after the other, which is
what a sweep replaces; and as the sweep engine itself with a single worker, which starts once and keeps what
it has compiled, so that only the gain of small processes side by side is left. The runs are every Nth of the
micro study, from its longest to its shortest. Models are compiled beforehand and found in a cache on all
sides; whole lists of runs are timed, starting the processes included, in turns, and the ratios are of the
medians.

    python benchmarks/sweep_speed.py [--rounds 2] [--every 20]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from calibration.studies import directory as directories
from calibration.studies.local import LocalEngine
from calibration.studies.study import SHIPPED, Study, StudyRun, load
from calibration.studies.sweep import sweep

# The recipe as the study's file has it, and compiled as sweeps are.
CONFIG = (SHIPPED / "micro.toml").read_text().partition("[recipe]")[2].partition("[[grid]]")[
    0
] + '\ncompile = "on"\n'


def shortened(study: Study, runs: Sequence[StudyRun]) -> list[StudyRun]:
    """A short run of every size, to have it compiled."""
    sizes = {run.params: run for run in runs}
    return [
        study.run(params=size, unique_tokens=65_536, epochs=0.1, weight_decay=0.1, seed=9) for size in sizes
    ]


def in_a_sweep(study: Study, runs: Sequence[StudyRun], shared: Path, workers: int) -> float:
    folder = directories.begin(study, shared / f"{workers}-{time.time_ns()}")
    (folder.path / "tokens").symlink_to(shared / "tokens")
    start = time.perf_counter()
    progress = sweep(runs, folder, LocalEngine(shared / f"compiled-{workers}", workers=workers))
    seconds = time.perf_counter() - start
    if progress.failed:
        raise SystemExit(f"some runs could not be trained: {progress.failed}")
    shutil.rmtree(folder.path)
    return seconds


def as_commands(runs: Sequence[StudyRun], shared: Path, threads: int) -> float:
    """One `planner train` after the other, with the models that the single worker has compiled."""
    (shared / "run.toml").write_text(CONFIG)
    compiled = next((shared / "compiled-1").iterdir())
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_CACHE_DIR": str(compiled)}
    start = time.perf_counter()
    for run in runs:
        c = run.config
        cell = {
            "params": c.params,
            "unique_tokens": c.unique_tokens,
            "epochs": c.epochs,
            "weight_decay": c.weight_decay,
            "seed": c.seed,
        }
        changes = [f"--set={name}={value}" for name, value in {**cell, "cache": shared / "tokens"}.items()]
        command = [
            sys.executable,
            "-m",
            "planner",
            "train",
            str(shared / "run.toml"),
            "-o",
            str(shared / "single" / run.name),
            *changes,
        ]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    shutil.rmtree(shared / "single")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--every", type=int, default=20, help="take every Nth run of the micro study")
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
            print(
                f"compiling for {workers} worker(s): "
                f"{in_a_sweep(study, shortened(study, runs), shared, workers):.0f} s",
                flush=True,
            )
        sides: dict[str, Callable[[], float]] = {
            f"planner train, {cores} threads": lambda: as_commands(runs, shared, cores),
            f"one worker of {cores} threads": lambda: in_a_sweep(study, runs, shared, 1),
            f"{cores} workers": lambda: in_a_sweep(study, runs, shared, cores),
        }
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, side in sides.items():
                taken[name].append(side())
                print(f"{len(runs)} runs, {name}: {taken[name][-1]:.1f} s", flush=True)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    *others, together = medians.values()
    for name, seconds in zip(medians, others, strict=False):
        print(
            f"{cores} workers against {name}: {seconds:.1f} s / {together:.1f} s = {seconds / together:.2f}x"
        )


if __name__ == "__main__":
    main()
