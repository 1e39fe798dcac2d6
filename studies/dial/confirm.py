"""The dial study's confirming budgets: what to train there, and which plan won.

    python studies/dial/confirm.py --write     # confirm.toml, from the plans of the calibration that ships
    python studies/dial/confirm.py             # who won, from confirm.csv, as docs/dial.md has it

Budgets, rivals and what counts as a win stand in README.md, which is older than the first run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from make import recipe

from planner import plan

HERE = Path(__file__).parent
BUDGETS = ((32_768, 1.5e11), (49_152, 3e11), (98_304, 6e11), (131_072, 9e11))
LARGEST = 450e3
AROUND = (0.25, 0.5, 2.0, 4.0)
USUAL = (0.1, 1.0)
CHOICE = "plan with λ*"
SEEDS = 5


class Entry(NamedTuple):
    """One configuration that is trained at a budget."""

    role: str
    params: float
    ud: int
    epochs: float
    weight_decay: float


def entries(ud: int, flops: float) -> list[Entry]:
    """The plan with its own weight decay, the best plans at the usual ones, and a grid around the first."""

    def planned(role: str, decay: float | None = None) -> Entry:
        found = plan(ud, flops, calibration="dial", weight_decay=decay, max_params=LARGEST)
        return Entry(role, round(found.params, -3), ud, found.epochs, found.weight_decay)

    best = planned(CHOICE)
    around = [best._replace(role=f"{x:g} λ*", weight_decay=best.weight_decay * x) for x in AROUND]
    return [best, *(planned(f"plan at {decay:g}", decay) for decay in USUAL), *around]


def study() -> str:
    """The runs as a study file."""
    parts = [
        "# What the plans of the dial's calibration say at the budgets fixed in README.md, by confirm.py.",
        recipe("confirming budgets"),
    ]
    for ud, flops in BUDGETS:
        for one in entries(ud, flops):
            parts.append(
                f"# {ud:,} unique tokens, {flops:g} FLOPs: {one.role}\n[[grid]]\n"
                f"params = [{one.params:.0f}]\nunique_tokens = [{ud}]\nepochs = [{one.epochs:g}]\n"
                f"weight_decays = [{one.weight_decay:.6g}]\nseeds = {list(range(SEEDS))}\n"
            )
    return "\n".join(parts)


def trained(runs: pd.DataFrame, one: Entry) -> np.ndarray:
    """The losses of a configuration's seeds; its size is the nearest shape that can be built."""
    near = (
        (runs["unique_tokens"] == one.ud)
        & (abs(runs["epochs"] / one.epochs - 1) < 0.02)
        & (abs(runs["weight_decay"] / one.weight_decay - 1) < 1e-3)
        & (abs(runs["params"] / one.params - 1) < 0.06)
    )
    return runs[near].sort_values("seed")["loss"].to_numpy()


def judged(runs: pd.DataFrame, ud: int, flops: float) -> tuple[list[str], str]:
    """A budget's rows, and who won there."""
    tried = {one: trained(runs, one) for one in entries(ud, flops)}
    losses = {one: found for one, found in tried.items() if len(found)}
    rows = [
        f"| {ud:,} | {flops:g} | {one.role} | {one.params / 1e3:.0f}k x {one.epochs:.3g} | "
        f"{one.weight_decay:.2g} | {found.mean():.3f} ± {found.std(ddof=1):.3f} ({len(found)}) |"
        for one, found in losses.items()
    ]
    by_role = {one.role: found for one, found in losses.items()}
    rival = min((f"plan at {decay:g}" for decay in USUAL), key=lambda role: by_role[role].mean())
    gap, noise = _difference(by_role[CHOICE], by_role[rival])
    verdict = "wins" if gap < -noise else "loses" if gap > noise else "cannot be told from it"
    return rows, f"| {ud:,} | {flops:g} | {rival} | {gap:+.3f} | {noise:.3f} | {verdict} |"


def _difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The difference of means, and twice its standard error."""
    error = np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other))
    return float(one.mean() - other.mean()), float(2 * error)


def main() -> None:
    if "--write" in sys.argv[1:]:
        (HERE / "confirm.toml").write_text(study(), encoding="utf-8")
        return
    runs = pd.read_csv(HERE / "confirm.csv")
    found = [judged(runs, *budget) for budget in BUDGETS]
    print("| unique tokens | FLOPs | what | size x epochs | λ | loss (seeds) |\n" + "| --- " * 6 + "|")
    print("\n".join(row for rows, _ in found for row in rows))
    head = (
        "unique tokens",
        "FLOPs",
        "best plan of {0.1, 1.0}",
        "plan with λ* above it",
        "twice the error",
        "it",
    )
    print(f"\n| {' | '.join(head)} |")
    print("| --- " * 6 + "|\n" + "\n".join(verdict for _, verdict in found))


if __name__ == "__main__":
    main()
