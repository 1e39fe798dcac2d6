"""The dial study, settled where two seeds of six weight decays leave it open.

    python studies/dial/settle.py --write     # settle.toml: more seeds of single epochs, and the law's own λ*
    python studies/dial/settle.py             # what came out, from settle.csv, as docs/dial.md has it

Why, and what is asked, stands in README.md under "Settling", which is older than these runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from make import CELL, grid, recipe, trained_best

from calibration.fitting.tables import read_runs
from planner.calibration_files import Calibration

HERE = Path(__file__).parent
MORE = tuple(range(2, 10))


def law_best(size: float, tokens: float, epochs: float) -> float:
    """The weight decay that the shipped law finds best in a cell, to three digits."""
    known = Calibration.load("dial")
    decays = np.geomspace(0.03, 10, 401)
    losses = [float(known.law(float(decay)).loss(size, tokens, epochs)) for decay in decays]
    return float(f"{decays[int(np.argmin(losses))]:.3g}")


def study() -> str:
    """The runs as a study file."""
    cells = grid().groupby(CELL).size().index.tolist()
    parts = [
        "# By settle.py: single epochs with eight more seeds, and every cell at the law's own λ*.",
        recipe("settling runs"),
        _grid(
            "90k",
            "220k",
            tokens=(24576, 49152, 98304),
            epochs=1,
            decays=(0.03, 0.1, 0.3, 1, 3, 10),
            seeds=MORE,
        ),
        *(
            _grid(
                int(size),
                tokens=(int(tokens),),
                epochs=epochs,
                decays=(law_best(size, tokens, epochs),),
                seeds=(0, 1, *(MORE if epochs == 1 else ())),
            )
            for size, tokens, epochs in cells
        ),
    ]
    return "\n".join(parts)


def _grid(
    *sizes: int | str,
    tokens: tuple[int, ...],
    epochs: float,
    decays: tuple[float, ...],
    seeds: tuple[int, ...],
) -> str:
    return (
        f"[[grid]]\nparams = {list(sizes)}\nunique_tokens = {list(tokens)}\nepochs = [{epochs:g}]\n"
        f"weight_decays = {list(decays)}\nseeds = {list(seeds)}\n"
    ).replace("'", '"')


def report() -> list[str]:
    """Every cell: the trained optimum with all seeds, the law's, and the loss that was trained there."""
    first, more = grid(), read_runs(HERE / "settle.csv")
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
    if "--write" in sys.argv[1:]:
        (HERE / "settle.toml").write_text(study(), encoding="utf-8")
    else:
        print("\n".join(report()))
