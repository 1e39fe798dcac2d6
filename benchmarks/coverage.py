"""Do nominal 95% intervals cover the truth 95% of the time? Measured for studies/fitting/intervals.md.

    OMP_NUM_THREADS=1 python benchmarks/coverage.py [tables] [replicates]

Tables of 60 and of 20 runs, half of them single-epoch, are generated from the paper's four-parameter law at
weight decay 0.1 with 0.5% noise, fitted and bootstrapped as `planner calibrate fit` does. The truth is known:
the optimal size N* and epochs at 250M unique tokens and 5e18 FLOPs, and the loss of that configuration. In
the last rows the runs of a (size, budget) cell share most of their noise (0.4% of the cell, 0.3% of the run),
which is what redrawing cells is for.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from simulated import grid_table

from calibration.fitting.huber import Fits, bootstrap, fit_forms, parameters_of
from calibration.fitting.runs.arrays import Runs
from planner.calibration import Calibration
from planner.inputs import CONTINUOUS
from planner.laws import Law
from planner.solve import allocate
from planner.uncertainty import interval

FORM = "additive_4p"
UD, FLOPS = 250e6, 5e18
TRUTH = Calibration.load("fineweb-llama2").law(0.1, FORM)
BEST = allocate(TRUTH, UD, FLOPS, CONTINUOUS)
POINT = (float(BEST.params), UD, float(BEST.epochs))
TRUE = {"N*": float(BEST.params), "epochs*": float(BEST.epochs), "loss": float(TRUTH.loss(*POINT))}
MARKS = ("<!-- coverage: begin -->", "<!-- coverage: end -->")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "intervals.md"


class Covered:
    """How often the intervals of one way to bootstrap hold the truth, and how wide they are."""

    def __init__(self, scheme: str, resample: str) -> None:
        self.scheme, self.resample = scheme, resample
        self.hits: dict[str, list[bool]] = {name: [] for name in TRUE}
        self.widths: list[tuple[float, float]] = []

    def add(self, fits: Fits, replicates: int, seed: int) -> None:
        refits = bootstrap(fits, replicates, scheme=self.scheme, resample=self.resample, seed=seed)[FORM]
        columns = parameters_of(FORM, refits.theta, fits.runs)
        law = Law(FORM, {name: values[refits.converged] for name, values in columns.items()})
        plans = allocate(law, UD, FLOPS, CONTINUOUS)
        size, epochs, loss = map(interval, (plans.params, plans.epochs, law.loss(*POINT)))
        for name, value in zip(TRUE, (size, epochs, loss), strict=True):
            self.hits[name].append(value is not None and value.low <= TRUE[name] <= value.high)
        if size is None or loss is None:
            self.widths.append((np.inf, np.inf))
        else:
            self.widths.append((size.high / size.low, loss.high - loss.low))

    def row(self, about: str, refused: str) -> str:
        size, loss = np.median(self.widths, axis=0)
        shares = " | ".join(f"{np.mean(self.hits[name]):.1%}" for name in TRUE)
        named = f"{about} | {self.scheme} over {self.resample}"
        return f"| {named} | {shares} | x{size:.2f} | {loss:.3f} | {refused} |"


def measure(
    runs: int, noise: float, cell_noise: float, ways: list[tuple[str, str]], tables: int, replicates: int
) -> list[str]:
    covered = [Covered(*way) for way in ways]
    done, seed = 0, 0
    while done < tables:
        seed += 1
        table = grid_table(TRUTH, runs, noise, np.random.default_rng(seed), cell_noise=cell_noise)
        fits = fit_forms(Runs.of(table), [FORM])
        if any(fit.problem for fit in fits.forms.values()):
            continue
        done += 1
        for way in covered:
            way.add(fits, replicates, seed)
    about = f"{runs} | {noise:.1%}" + (f" + {cell_noise:.1%} per cell" if cell_noise else "")
    return [way.row(about, f"{seed - done} of {seed}") for way in covered]


def main(tables: int = 400, replicates: int = 300) -> None:
    began = time.perf_counter()
    lines = [
        "| runs | noise | bootstrap | N* covered | epochs* covered | loss covered "
        "| width of N* | of the loss | tables refused |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    both = [("residuals", "runs"), ("residuals", "cells"), ("weights", "runs")]
    for runs in (60, 20):
        lines += measure(runs, 0.005, 0.0, both, tables, replicates)
        print(*lines[-3:], sep="\n", flush=True)
    lines += measure(60, 0.003, 0.004, both[:2], tables, replicates)
    print(*lines[-2:], sep="\n", flush=True)
    error = 1.96 * (0.95 * 0.05 / tables) ** 0.5
    note = f"{tables} tables per row, {replicates} refits each: a share of 95% is known to ±{error:.1%}."
    note += " Widths are medians."
    print(note, f"{time.perf_counter() - began:.0f} s")
    if PAGE.exists() and all(mark in PAGE.read_text() for mark in MARKS):
        text = PAGE.read_text()
        before, after = text[: text.index(MARKS[0]) + len(MARKS[0])], text[text.index(MARKS[1]) :]
        PAGE.write_text("\n".join([before, "", *lines, "", note, "", after]))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
