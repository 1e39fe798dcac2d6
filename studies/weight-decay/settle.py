"""The weight-decay study, settled where two seeds of six weight decays leave it open.

    python studies/weight-decay/settle.py     # what came out, as studies/weight-decay/results.md has it

Why, and what is asked, stands in README.md under "Settling", which is older than these runs: more seeds of
single epochs, and the λ* of the law that shipped then, in settle.csv. again.csv has the λ* of a later one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from make import CELL, grid, trained_best

from calibration.fitting.runs.tables import read_runs
from planner.calibration import Calibration

HERE = Path(__file__).parent
MORE = tuple(range(2, 10))


def law_best(size: float, tokens: float, epochs: float) -> float:
    """The weight decay that the shipped law finds best in a cell, to three digits."""
    known = Calibration.load("micro-weight-decay")
    decays = np.geomspace(0.03, 10, 401)
    losses = [float(known.law(float(decay)).loss(size, tokens, epochs)) for decay in decays]
    return float(f"{decays[int(np.argmin(losses))]:.3g}")


def report() -> list[str]:
    """Every cell: the trained optimum with all seeds, the law's, and the loss that was trained there."""
    first = grid()
    more = pd.concat([read_runs(HERE / name) for name in ("settle.csv", "again.csv")], ignore_index=True)
    more = more[more["params"].isin(first["params"])]  # not those of plans
    usual = sorted(first["weight_decay"].unique())
    runs = pd.concat([first, more[more["weight_decay"].isin(usual)]], ignore_index=True)
    spread = runs.groupby([*CELL, "weight_decay"])["loss"].std()
    deviation = float(np.sqrt((spread**2).mean()))
    lines = [
        "| parameters | unique tokens | epochs | seeds | trained λ* | law's λ* | loss at the law's "
        "| best of six | difference | noise |",
        "| --- " * 10 + "|",
    ]
    near = level = 0
    cells = runs.groupby(CELL)
    for place, cell in cells:
        size, tokens, epochs = (float(value) for value in place)
        means = cell.groupby("weight_decay")["loss"].mean()
        seeds = len(cell) // len(means)
        found, (trained, inside) = law_best(size, tokens, epochs), trained_best(means)
        there = more[(more[CELL] == list(place)).all(axis=1) & np.isclose(more["weight_decay"], found)][
            "loss"
        ]
        gap, noise = there.mean() - means.min(), 2 * deviation * np.sqrt(1 / len(there) + 1 / seeds)
        is_near = 0.5 <= found / trained <= 2
        near += is_near
        level += gap <= noise
        best = f"{trained:.2g}{'' if inside else ' (end)'}"
        lines.append(
            f"| {size:,.0f} | {tokens:,.0f} | {epochs:g} | {seeds} | {best} "
            f"| {found:.2g}{'' if is_near else ' (far)'} | {there.mean():.3f} | {means.min():.3f} "
            f"| {gap:+.3f} | {noise:.3f} |"
        )
    return [
        *lines,
        f"within a factor of 2: {near} of {len(cells)}; loss within seed noise: {level} of {len(cells)}",
    ]


if __name__ == "__main__":
    print("\n".join(report()))
