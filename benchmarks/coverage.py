"""Do nominal 95% intervals cover the truth 95% of the time? Measured, and written into docs/intervals.md.

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

from calibration.fitting.intervals import bootstrap
from calibration.fitting.runs import Runs
from calibration.fitting.stages import fit_forms, parameter_arrays
from planner.allocation import allocate
from planner.calibration_files import Calibration
from planner.intervals import interval
from planner.laws import Law
from planner.limits import CONTINUOUS

FORM = "additive_4p"
UD, FLOPS = 250e6, 5e18
MARKS = ("<!-- coverage: begin -->", "<!-- coverage: end -->")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "intervals.md"


def measure(
    runs: int, noise: float, cell_noise: float, ways: list[tuple[str, str]], tables: int, replicates: int
) -> list[str]:
    truth = Calibration.load("fineweb-llama2").law(0.1, FORM)
    best = allocate(truth, UD, FLOPS, CONTINUOUS)
    point = (float(best.params), UD, float(best.epochs))
    true = {"N*": float(best.params), "epochs*": float(best.epochs), "loss": float(truth.loss(*point))}
    hits: dict[tuple[str, str], dict[str, list[bool]]] = {way: {name: [] for name in true} for way in ways}
    widths: dict[tuple[str, str], list[tuple[float, float]]] = {way: [] for way in ways}
    refused, seed = 0, 0
    while len(widths[ways[0]]) < tables:
        seed += 1
        table = grid_table(truth, runs, noise, np.random.default_rng(seed), cell_noise=cell_noise)
        fits = fit_forms(Runs.of(table), [FORM])
        if any(fit.problem for fit in fits.forms.values()):
            refused += 1
            continue
        for way in ways:
            refits = bootstrap(fits, replicates, scheme=way[0], resample=way[1], seed=seed)[FORM]
            columns = parameter_arrays(FORM, refits, fits.runs)
            law = Law(FORM, {name: values[refits.converged] for name, values in columns.items()})
            plans = allocate(law, UD, FLOPS, CONTINUOUS)
            found = {
                "N*": interval(plans.params),
                "epochs*": interval(plans.epochs),
                "loss": interval(law.loss(*point)),
            }
            for name, value in found.items():
                hits[way][name].append(value is not None and value.low <= true[name] <= value.high)
            size, loss = found["N*"], found["loss"]
            known = size is not None and loss is not None
            widths[way].append((size.high / size.low, loss.high - loss.low) if known else (np.inf, np.inf))
    noise_text = f"{noise:.1%}" + (f" + {cell_noise:.1%} per cell" if cell_noise else "")
    lines = []
    for way in ways:
        size, loss = np.median(widths[way], axis=0)
        shares = " | ".join(f"{np.mean(hits[way][name]):.1%}" for name in true)
        named = f"{runs} | {noise_text} | {way[0]} over {way[1]}"
        lines.append(f"| {named} | {shares} | x{size:.2f} | {loss:.3f} | {refused} of {seed} |")
    return lines


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
