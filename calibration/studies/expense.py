"""What a study will take before it is trained: FLOPs, hours and money, here and on named accelerators.

Hours on this machine are measured: one pass of some shapes, from the smallest to the largest, is timed where
it is small enough (see `trainer.estimate`), and others are taken to be as fast as the nearest of these. Those
on an accelerator are FLOPs over its data-sheet peak at the given utilisation. Money follows from a price per
hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from calibration.studies.directory import StudyDirectory
from calibration.studies.local import LocalEngine
from calibration.studies.study import Study, StudyRun
from planner.hardware import cost
from planner.inputs import InvalidInput, duration
from trainer.run.result import RunResult

_PROBES = 6  # shapes that are timed
_GUESS = 2e10  # FLOPs per second of a worker, to choose the sizes that are timed
_TRAINING = 0.8  # of a worker's time: the rest starts, compiles and tests (micro study: 3,168 of 4,080 s)


@dataclass(frozen=True)
class Expense:
    """A list of runs on one engine."""

    engine: str
    on: str
    hours: float | None  # of one device
    wall_hours: float | None  # with `devices` of them
    devices: int
    usd: float | None
    basis: str

    def __str__(self) -> str:
        start = f"{self.engine:6s} {self.on}: "
        if self.hours is None or self.wall_hours is None:
            return start + self.basis
        money = f", ${self.usd:,.2f}" if self.usd is not None else ""
        hours = f"{self.hours:,.0f}" if self.hours >= 100 else f"{self.hours:.3g}"
        work = (
            f"{hours} GPU-hours" if self.engine == "ray" else f"{duration(self.hours * 3600)} of one worker"
        )
        together = f", {duration(self.wall_hours * 3600)} with {self.devices}" if self.devices > 1 else ""
        return f"{start}{work}{together}{money} ({self.basis})"


def on_accelerator(runs: Sequence[StudyRun], gpu: str, gpus: int, mfu: float, price: float | None) -> Expense:
    """Hours and money on a named card: the runs share `gpus` of them, one run on each."""
    found = cost(sum(run.flops for run in runs), gpu=gpu, gpus=gpus, mfu=mfu, price=price)
    longest = cost(max(run.flops for run in runs), gpu=gpu, mfu=mfu).hours
    peak = found.flops / found.gpu_hours / 3600 / mfu / 1e12
    basis = f"6 N D at {mfu:.0%} of its {peak:,.0f} TFLOP/s, ${found.price_per_gpu_hour:.2f} an hour"
    return Expense(
        "ray", f"{gpus} x {found.gpu}", found.gpu_hours, max(found.hours, longest), gpus, found.usd, basis
    )


def on_this_machine(runs: Sequence[StudyRun], machine: LocalEngine, price: float | None) -> Expense:
    """Hours on this machine, from timed passes of a few shapes."""
    here = partial(
        Expense, "local", "this machine", hours=None, wall_hours=None, devices=machine.size, usd=None
    )
    try:
        import torch

        from trainer.run.estimate import estimate
    except ImportError:
        return here(basis="not timed, as torch is not installed; pip install '.[train]' would do")
    before = torch.get_num_threads()
    torch.set_num_threads(machine.threads)
    try:
        by_size = sorted({run.params: run for run in runs}.values(), key=lambda run: run.params)
        places = np.linspace(0, len(by_size) - 1, min(_PROBES, len(by_size))).round().astype(int)
        per_flop, bases = {}, set()
        for run in (by_size[place] for place in places):
            # The time does not depend on the tokenizer, which may not be there yet.
            facts = estimate(run.config.having(tokenizer="bytes", vocab_size=run.architecture.vocab_size))
            per_flop[run.params] = facts["seconds"] / facts["flops"]
            bases.add(facts["seconds_from"])
        taken = [
            run.flops * per_flop[min(per_flop, key=lambda size: abs(math.log(size / run.params)))]
            for run in runs
        ]
    except InvalidInput as error:
        return here(basis=f"cannot be timed here: {error}")
    finally:
        torch.set_num_threads(before)
    wall_hours = max(sum(taken) / machine.size, max(taken)) / 3600
    usd = None if price is None else price * wall_hours
    return here(hours=sum(taken) / 3600, wall_hours=wall_hours, usd=usd, basis=" and ".join(sorted(bases)))


def flops_in(study: Study, hours: float, machine: LocalEngine) -> float:
    """The compute of so many hours here, from timed passes of the sizes that suit it."""
    flops = hours * 3600 * machine.size * _GUESS
    smallest = 64 * study.runs[0].architecture.vocab_size
    length = study.runs[0].config.sequence_length
    for _ in range(2):
        middle = max(math.sqrt(flops / 24 / 120), smallest)  # compute-optimal, with a 24th of it
        sizes = (middle, 3 * middle)
        probes = [
            study.run(params=round(size), unique_tokens=64 * length, epochs=1.0, weight_decay=0.1, seed=0)
            for size in sizes
        ]
        taken = on_this_machine(probes, machine, None)
        if taken.hours is None:
            raise InvalidInput(f"cannot be told in FLOPs: {taken.basis}.", field="budget")
        per_second = sum(run.flops for run in probes) / (taken.hours * 3600)
        flops = hours * 3600 * machine.size * per_second * _TRAINING
    return flops


def flops_left(folder: StudyDirectory, machine: LocalEngine, hours: float) -> float:
    """The compute that so many hours have left, at the speed of the runs so far."""
    results = folder.results()
    taken = sum(_seconds(folder.run_folder(result.run), result) for result in results)
    left = hours * 3600 - taken / machine.size
    return max(left, 0.0) * machine.size * sum(result.flops for result in results) / taken


def _seconds(run: Path, result: RunResult) -> float:
    """What a run took its worker, from its folder to its result; where it was interrupted, its training."""
    if result.starts > 1:
        return result.seconds / _TRAINING
    begun = min(path.stat().st_mtime for path in run.iterdir())
    return max((run / "result.json").stat().st_mtime - begun, result.seconds)


def rows(runs: Iterable[StudyRun], done: set[str]) -> list[dict[str, Any]]:
    """Every run as plain values, longest first."""
    return [
        {
            "run": run.name,
            "params": run.params,
            "unique_tokens": run.config.unique_tokens,
            "epochs": run.config.epochs,
            "weight_decay": run.config.weight_decay,
            "seed": run.config.seed,
            "steps": run.steps,
            "flops": run.flops,
            "done": run.name in done,
        }
        for run in sorted(runs, key=lambda run: -run.flops)
    ]
