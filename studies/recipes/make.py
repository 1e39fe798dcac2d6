"""What protocol.md asks, of the runs of all arms that are there: python studies/recipes/make.py FOLDER

FOLDER has a study directory for each arm, as the commands of protocol.md's files make them:

    for arm in wsd ema dropout muon mean; do
        planner calibrate sweep studies/recipes/$arm.toml -o FOLDER/$arm
    done

Prints the tables of results.md, and copies each arm's runs.csv next to this file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from calibration import fit
from planner import plan, predict

HERE = Path(__file__).parent
ARMS = ("wsd", "ema", "dropout", "muon", "mean")
CELL = ["params", "unique_tokens", "epochs", "weight_decay"]
NOTHING = 0.005  # nats


def base() -> pd.DataFrame:
    table = pd.read_csv(HERE.parent / "weight-decay" / "runs.csv")
    return table[table["weight_decay"].isin([0.1, 1.0]) & table["unique_tokens"].isin([24576, 49152])]


def best_epochs(table: pd.DataFrame) -> pd.Series:
    """Lowest point of the parabola through the mean losses at ln 1, ln 4 and ln 12, between 1 and 24."""

    def lowest(losses: pd.Series) -> float:
        x = np.log(losses.index.to_numpy(dtype=float))
        a, b, _ = np.polyfit(x, losses.to_numpy(), 2)
        ends = np.log([1, 24])
        found = -b / (2 * a) if a > 0 else ends[np.argmin(a * ends**2 + b * ends)]
        return float(np.exp(np.clip(found, *ends)))

    means = table.groupby(["params", "weight_decay", "epochs"])["loss"].mean()
    return means.groupby(level=[0, 1]).apply(lambda one: lowest(one.droplevel([0, 1])))


def worth(arm: pd.DataFrame, against: pd.DataFrame) -> str:
    """Mean difference of losses at 4 and 12 epochs, and its standard error with cells as the unit."""
    both = arm.merge(against, on=[*CELL, "seed"], suffixes=("", "_base"))
    both = both[both["epochs"] > 1].assign(gain=both["loss"] - both["loss_base"])
    cells = both.groupby(CELL)["gain"].mean()
    error = cells.std(ddof=1) / np.sqrt(len(cells))
    nothing = abs(cells.mean()) < max(2 * error, NOTHING)
    by_decay = cells.groupby("weight_decay").mean()
    parts = " | ".join(f"{by_decay[decay]:+.3f}" for decay in (0.1, 1.0))
    return f"{cells.mean():+.4f} ± {error:.4f} | {'nothing' if nothing else 'counts'} | {parts}"


def tables(arms: dict[str, pd.DataFrame]) -> Iterator[str]:
    reference = base()
    small = reference[reference["unique_tokens"] == 24576]
    for name in ("ema", "mean"):
        if name in arms:
            both = arms[name].merge(small, on=[*CELL, "seed"], suffixes=("", "_base"))
            off = (both["unaveraged_loss"] - both["loss_base"]).abs().max()
            yield f"unaveraged losses of {name} differ from base by at most {off:.1e}"
    yield "\n| arm | nats | | at 0.1 | at 1.0 |\n|---|---|---|---|---|"
    for name, arm in arms.items():
        yield f"| {name} | {worth(arm[arm['unique_tokens'] == 24576], small)} |"
    yield "\nBest epochs by size and weight decay:\n"
    found = {"base": small, **{name: arm[arm["unique_tokens"] == 24576] for name, arm in arms.items()}}
    bests = pd.DataFrame({name: best_epochs(one) for name, one in found.items()})
    yield f"| size | weight decay | {' | '.join(bests)} |\n|{'---|' * (len(bests.columns) + 2)}"
    for (size, decay), row in bests.iterrows():
        yield f"| {size:,.0f} | {decay:g} | {' | '.join(f'{value:.1f}' for value in row)} |"
    if "wsd" in arms:
        yield from laws(reference[reference["epochs"].isin([1, 4, 12])], arms["wsd"])


def laws(reference: pd.DataFrame, branches: pd.DataFrame) -> Iterator[str]:
    """Of runs with a cosine and of branches of trunks: the same where plans and predictions are near."""
    runs = {"cosine": reference, "wsd": branches}
    fits = {name: fit(table[["run", *CELL, "loss"]], bootstrap=100) for name, table in runs.items()}
    yield "\n| unique tokens | FLOPs | cosine | wsd |\n|---|---|---|---|"
    for ud in (24576, 49152):
        for flops in (1e11, 3e11):
            plans = [plan(ud, flops, calibration=one, weight_decay=1.0) for one in fits.values()]
            cells = (f"{one.params:,.0f} x {one.epochs:g}: {one.loss:.3f}" for one in plans)
            yield f"| {ud:,} | {flops:.0e} | {' | '.join(cells)} |"

    def rms(law: str, on: str) -> float:
        cells = runs[on][["params", "unique_tokens", "epochs", "weight_decay"]].itertuples(index=False)
        said = [predict(*cell, calibration=fits[law], weight_decay=decay) for *cell, decay in cells]
        ratios = np.log([one.loss for one in said]) - np.log(runs[on]["loss"].to_numpy())
        return float(np.sqrt(np.mean(ratios**2)))

    yield "\n| law of | error on its own runs | on the other's |\n|---|---|---|"
    for law, other in (("cosine", "wsd"), ("wsd", "cosine")):
        yield f"| {law} | {rms(law, law):.4f} | {rms(law, other):.4f} |"


if __name__ == "__main__":
    there = {name: Path(sys.argv[1]) / name / "runs.csv" for name in ARMS}
    for name, path in there.items():
        if path.exists():
            (HERE / f"{name}.csv").write_text(path.read_text())
    read = {name: pd.read_csv(HERE / f"{name}.csv") for name in ARMS if (HERE / f"{name}.csv").exists()}
    print("\n".join(tables(read)))
