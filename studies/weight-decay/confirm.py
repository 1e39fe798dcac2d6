"""The weight-decay study's confirming budgets: which plan of the calibration that ships won, as
results.md has it.

    python studies/weight-decay/confirm.py

Budgets, rivals and what counts as a win stand in README.md, which is older than the first run. confirm.csv
has the runs of the plans of the law that shipped first, again.csv those that a later one asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

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


def plans(ud: int, flops: float) -> list[Entry]:
    """The plan with its own weight decay, and the best plans at the usual ones."""

    def planned(role: str, decay: float | None = None) -> Entry:
        found = plan(ud, flops, calibration="micro-weight-decay", weight_decay=decay, max_params=LARGEST)
        return Entry(role, round(found.params, -3), ud, found.epochs, found.weight_decay)

    return [planned(CHOICE), *(planned(f"plan at {decay:g}", decay) for decay in USUAL)]


def known() -> pd.DataFrame:
    """All runs at the confirming budgets."""
    return pd.concat([pd.read_csv(HERE / name) for name in ("confirm.csv", "again.csv")], ignore_index=True)


def same_plan(runs: pd.DataFrame, one: Entry) -> pd.Series:
    """Which runs have a configuration's data, epochs and size, the nearest that can be built."""
    return (
        (runs["unique_tokens"] == one.ud)
        & (abs(runs["epochs"] / one.epochs - 1) < 0.02)
        & (abs(runs["params"] / one.params - 1) < 0.06)
    )


def trained(runs: pd.DataFrame, one: Entry) -> np.ndarray:
    """The losses of a configuration's seeds."""
    near = same_plan(runs, one) & (abs(runs["weight_decay"] / one.weight_decay - 1) < 1e-3)
    return runs[near].sort_values("seed")["loss"].to_numpy()


def around(runs: pd.DataFrame, one: Entry) -> list[Entry]:
    """The same plan at the other weight decays that were trained, one of those that agree in two digits."""
    decays = {f"{x:.2g}": float(x) for x in sorted(runs[same_plan(runs, one)]["weight_decay"].unique())}
    decays.pop(f"{one.weight_decay:.2g}", None)
    return [one._replace(role=f"{x / one.weight_decay:.2g} λ*", weight_decay=x) for x in decays.values()]


def judged(runs: pd.DataFrame, ud: int, flops: float) -> tuple[list[str], str]:
    """A budget's rows, and who won there."""
    planned = plans(ud, flops)
    losses = [trained(runs, one) for one in planned]
    others = around(runs, planned[0])
    rows = [
        f"| {ud:,} | {flops:g} | {one.role} | {one.params / 1e3:.0f}k x {one.epochs:.3g} | "
        f"{one.weight_decay:.2g} | {found.mean():.3f} ± {found.std(ddof=1):.3f} ({len(found)}) |"
        for one, found in zip(
            [*planned, *others], [*losses, *(trained(runs, one) for one in others)], strict=True
        )
    ]
    rival = min((1, 2), key=lambda place: losses[place].mean())
    gap, noise = _difference(losses[0], losses[rival])
    verdict = "wins" if gap < -noise else "loses" if gap > noise else "within noise"
    return rows, f"| {ud:,} | {flops:g} | {planned[rival].role} | {gap:+.3f} | {noise:.3f} | {verdict} |"


def _difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The difference of means, and twice its standard error."""
    error = np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other))
    return float(one.mean() - other.mean()), float(2 * error)


def main() -> None:
    runs = known()
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
