"""Does the design choose better runs than chance or thrift? On public runs, whose losses are known.

    python benchmarks/design.py [../shared/data] [--write studies/fitting/design.md]

The pool are the runs up to 64 epochs without the tenth with the most compute, which are held out. Each seed
hides a random fifth of the pool. Each strategy spends 1%, 5% and 10% of the pool's FLOPs; its runs are then
"trained" by looking them up, the law is estimated from them alone (weak prior: the published FineWeb law),
and the held-out losses are predicted.

- design: as the command is used. Asked for runs, the cheapest are trained, asked again with those, six times.
- random: runs in random order, each taken that still fits into the budget.
- cheapest: the cheapest runs, as many as fit.

A second table does the same on a study that was not looked at when the method was made (micro pilot, both
weight decays).
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from calibration.fitting.bayes.hierarchical import hierarchical_fit
from calibration.fitting.bayes.posterior import Posterior
from calibration.fitting.design.proposal import prior_near
from calibration.fitting.design.select_runs import Wanted, identifying_runs, select_runs
from calibration.fitting.runs.tables import read_runs
from calibration.fitting.solver import flops_of, points_of
from planner.calibration import Calibration

PRIOR = "fineweb-llama2"
SHARES, SEEDS, ROUNDS, FORM = (0.01, 0.05, 0.10), 10, 6, "additive_4p"
START, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def posterior_after(runs: pd.DataFrame, decay: float) -> Posterior:
    """The posterior after some runs, or before any."""
    if not len(runs):
        return prior_near(Calibration.load(PRIOR), FORM, decay)
    return hierarchical_fit(runs, (FORM,), PRIOR).posteriors[FORM][decay]


def by_design(pool: pd.DataFrame, held_out: pd.DataFrame, budget: float, decay: float) -> list[int]:
    """Indices into the pool. Losses are looked at only once a run is trained; of the held-out runs, never."""
    candidates, wanted = points_of(pool), Wanted(points_of(held_out), np.eye(len(held_out)))
    cost, left = flops_of(candidates), budget
    trained: list[int] = []
    for round_ in range(ROUNDS):
        have = points_of(pool.iloc[trained]) if trained else None
        posterior = posterior_after(pool.iloc[trained], decay)
        free = np.setdiff1d(np.arange(len(pool)), trained)
        sizes, unique, epochs = candidates
        some = sizes[free], unique[free], epochs[free]
        first = identifying_runs(FORM, some, have, left)
        chosen = select_runs(posterior, some, wanted, left, trained=have, first=first)
        chosen = sorted((int(free[i]) for i in chosen), key=lambda i: cost[i])
        if round_ < ROUNDS - 1:  # train the cheap half, and half of that at first, then ask again
            spent = np.cumsum(cost[chosen])
            chosen = [
                i
                for i, total in zip(chosen, spent, strict=True)
                if total <= left * 0.5 ** (ROUNDS - 1 - round_)
            ]
        trained += chosen
        left -= cost[chosen].sum()
    return trained


def by_chance(pool: pd.DataFrame, budget: float, rng: np.random.Generator) -> list[int]:
    cost, left, chosen = flops_of(points_of(pool)), budget, []
    for i in rng.permutation(len(pool)):
        if cost[i] <= left:
            chosen.append(int(i))
            left -= cost[i]
    return chosen


def by_thrift(pool: pd.DataFrame, budget: float) -> list[int]:
    cost = flops_of(points_of(pool))
    order = np.argsort(cost, kind="stable")
    return [int(i) for i in order[np.cumsum(cost[order]) <= budget]]


def experiment(
    table: pd.DataFrame, share_held_out: float, weight_decay: float, seeds: int = SEEDS
) -> pd.DataFrame:
    """Errors on the held-out runs per share of FLOPs, strategy and seed."""
    order = (
        table.assign(flops=flops_of(points_of(table)))
        .sort_values("flops", kind="stable")
        .reset_index(drop=True)
    )
    held = round(share_held_out * len(order))
    everything, held_out = order.iloc[:-held], order.iloc[-held:]
    rows = []
    for share in SHARES:
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            keep = np.sort(rng.choice(len(everything), round(0.8 * len(everything)), replace=False))
            pool = everything.iloc[keep].reset_index(drop=True)
            budget = share * float(pool["flops"].sum())
            for name, chosen in {
                "design": by_design(pool, held_out, budget, weight_decay),
                "random": by_chance(pool, budget, rng),
                "cheapest": by_thrift(pool, budget),
            }.items():
                assert pool["flops"].iloc[chosen].sum() <= budget * (1 + 1e-9)
                law = posterior_after(pool.iloc[chosen], weight_decay).law
                error = np.abs(law.loss(*points_of(held_out)) - held_out["loss"].to_numpy())
                rows.append(
                    {
                        "share": share,
                        "strategy": name,
                        "runs": len(chosen),
                        "mean": error.mean(),
                        "median": np.median(error),
                    }
                )
    return pd.DataFrame(rows)


def as_text(results: pd.DataFrame) -> str:
    lines = ["| FLOPs spent | strategy | runs | mean error | median error |", "|---|---|---|---|---|"]
    for share in SHARES:
        for name in ("design", "random", "cheapest"):
            here = results[(results["share"] == share) & (results["strategy"] == name)]
            mean = here.mean(numeric_only=True)
            error = here["mean"].std() / np.sqrt(len(here))
            lines.append(
                f"| {share:.0%} | {name} | {mean['runs']:.0f} | {mean['mean']:.3f} ± {error:.3f} | "
                f"{mean['median']:.3f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--write", type=Path, help="replace the measured part of this document")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    c4 = read_runs(arguments.data / "datablations_c4_runs.csv", where="in_paper158 == 1", weight_decay=0.1)
    pilot = read_runs(arguments.data / "micro_pilot_runs.csv", where="held_out == 0")
    parts = []
    for title, table, held, decay in (
        ("C4, the tenth with the most compute held out (16 of 158 runs)", c4, 0.1, 0.1),
        ("C4, the fifth with the most compute held out (32 of 158 runs)", c4, 0.2, 0.1),
        ("Micro pilot, weight decay 0.1, a tenth held out", pilot[pilot["weight_decay"] == 0.1], 0.1, 0.1),
        ("Micro pilot, weight decay 1.0, a tenth held out", pilot[pilot["weight_decay"] == 1.0], 0.1, 1.0),
    ):
        parts.append(f"**{title}**\n\n{as_text(experiment(table, held, decay, arguments.seeds))}")
        print(parts[-1] + "\n", flush=True)
    if arguments.write:
        text = arguments.write.read_text()
        before, _, rest = text.partition(START)
        _, _, after = rest.partition(END)
        arguments.write.write_text(before + START + "\n" + "\n\n".join(parts) + "\n" + END + after)


if __name__ == "__main__":
    main()
