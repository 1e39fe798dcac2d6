"""The picture of the manual's page on epochs: loss over epochs at weight decays that were trained.

    python studies/weight-decay-rule/picture.py docs/pictures/epochs.png

draws it and prints what the page says of it, from the runs of studies/weight-decay and
$DATABOUND_SHARED/data/qin2026_dolma_repeat.csv (../shared/data).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd

from planner.inputs import short

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("DATABOUND_SHARED", ROOT.parent / "shared")) / "data"
COLOURS = {0.1: "#c2452d", 0.4: "#9db8dd", 0.3: "#9db8dd", 0.8: "#5f8fcf", 1.0: "#5f8fcf", 1.6: "#2b5ea8"}
COLOURS |= {3.0: "#2b5ea8"}


def panels() -> list[tuple[str, pd.DataFrame, float]]:
    """What each panel is of, its runs as loss by epochs and weight decay, and tokens a step."""
    tiny = pd.read_csv(ROOT / "studies" / "weight-decay" / "runs.csv")
    dolma = pd.read_csv(SHARED / "qin2026_dolma_repeat.csv")
    dolma = dolma[dolma.learning_rate == 0.003]
    found = []
    for runs, params, unique_tokens, batch in (
        (tiny, 219600, 49152, 512),
        (dolma, 474022912, 740e6, 2097152),
        (dolma, 54792448, 60e6, 2097152),
    ):
        near = (runs.params / params - 1).abs() < 0.001
        cell = runs[near & (runs.unique_tokens == unique_tokens)]
        title = f"{short(params)} parameters, {short(unique_tokens)} tokens"
        table = cell.pivot_table(index="epochs", columns="weight_decay", values="loss")
        if unique_tokens == 740e6:  # implausible in the source, see the table's README
            table = table.drop(index=64)
        found.append((title, table, float(batch) / unique_tokens))
    return found


def best(losses: pd.Series) -> tuple[float, float]:
    """Epochs and loss at the minimum."""
    return float(losses.idxmin()), float(losses.min())


def draw(axis: Any, title: str, table: pd.DataFrame, share: float) -> None:
    for decay, losses in table.items():
        if decay in COLOURS:
            losses = losses.dropna()
            width = 2.4 if decay == 0.1 else 1.6
            axis.plot(
                losses.index, losses, "o-", color=COLOURS[decay], lw=width, ms=4, label=f"λ = {decay:g}"
            )
    tuned = table.min(axis=1)
    axis.plot(tuned.index, tuned, ":", color="black", lw=1.4, label="best λ at each")
    untuned, best_of_all = best(table[0.1].dropna()), best(tuned)
    axis.plot(*untuned, "*", color=COLOURS[0.1], ms=15, mec="black", zorder=5)
    axis.plot(*best_of_all, "*", color="black", ms=15, mec="white", zorder=5)
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(table.index), [f"{epochs:g}" for epochs in table.index])
    low = float(tuned.min())
    axis.set_ylim(low - 0.08, low + 1.6)
    steps = f"{1 / share:,.0f} steps an epoch"
    axis.set_title(
        f"{title}\n{steps}; best: {untuned[0]:g} epochs at 0.1, {best_of_all[0]:g} tuned", fontsize=10
    )
    axis.set_xlabel("epochs")
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, frameon=False, loc="best")


def main(target: str) -> None:
    drawn = panels()
    figure, axes = plt.subplots(1, len(drawn), figsize=(12.6, 3.9), constrained_layout=True)
    for axis, panel in zip(axes, drawn, strict=True):
        draw(axis, *panel)
    axes[0].set_ylabel("loss (nats per token)")
    figure.savefig(target, dpi=110, metadata={"Software": None})
    for title, table, share in drawn:
        (epochs, loss), (longer, lower) = best(table[0.1].dropna()), best(table.min(axis=1))
        model, tuned = title.replace(" parameters,", " on"), table.loc[longer].idxmin()
        print(f"| {model} | 0.1 | {epochs:g} | {epochs / share:,.0f} | {loss:.2f} |")
        print(f"| | tuned: {tuned:g} | {longer:g} | {longer / share:,.0f} | {lower:.2f} |")


if __name__ == "__main__":
    main(sys.argv[1])
