"""Other people's runs replayed: from which of them would the best setting have been found?

    python studies/weight-decay/replay.py ../shared/data/marinfold_weight_decay_runs.csv

The table has 55 runs of 1.5B parameters for 8 epochs at many weight decays, learning rates and batches, and
59 with other epochs. A surface over timescale, learning rate, epochs and batch
(`design.tuning`, as `planner calibrate tune` uses it) is fitted to some of them; asked for
is how far the 8-epoch setting that it ranks first is from the best of the 55.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

from calibration.fitting.design.tuning import GaussianProcess, best_setting, propose

NEAR = 0.02
START, REPEATS = 5, 100
AFTER = (5, 8, 10, 12, 15, 20, 27)
STEPS, SEQUENCES, LENGTH = 4459, 128, 8192  # steps per epoch at so many sequences of so many tokens


def settings(table: pd.DataFrame) -> np.ndarray:
    steps = STEPS * SEQUENCES / table["batch_seqs"]
    timescale = 1 / (table["lr"] * table["weight_decay"] * steps)
    columns = (timescale, table["lr"], table["epochs"], table["batch_seqs"] * LENGTH)
    return np.asarray(np.log(np.column_stack(columns)))


def walk(place: np.ndarray, loss: np.ndarray, seed: int, by_design: bool) -> list[float]:
    """How far the setting ranked first is from the best, after 5, 6, ... runs."""
    order = list(np.random.default_rng(seed).permutation(len(loss)))
    seen, far = order[:START], []
    while True:
        model = GaussianProcess.of(place[seen], loss[seen])
        far.append(float(loss[best_setting(model, place)] - loss.min()))
        if len(seen) == AFTER[-1]:
            return far
        seen = [*seen, propose(model, place, 1, seen).places[0]] if by_design else order[: len(seen) + 1]


def main(path: str) -> None:
    table = pd.read_csv(path)
    table = table[table["size"] == "1_5b"].sort_values("epochs", kind="stable").reset_index(drop=True)
    place, loss = settings(table), table["val_loss"].to_numpy()
    eight = np.flatnonzero(table["epochs"] == 8)
    best = loss[eight].min()
    near = int((loss[eight] <= best + NEAR).sum())
    chance = f"a random choice is one of them with {near / len(eight):.1%}"
    print(f"{len(eight)} runs of 8 epochs, best {best:.4f}; {near} within {NEAR}: {chance}")
    half = len(table) // 2
    first = eight[best_setting(GaussianProcess.of(place[:half], loss[:half]), place[eight])]
    print(
        f"cheapest {half} of {len(table)} ({int((table['epochs'][:half] == 8).sum())} of them 8 epochs): "
        f"ranked first is learning rate "
        f"{table['lr'][first]:g}, weight decay {table['weight_decay'][first]:g}, batch "
        f"{table['batch_seqs'][first]}: {loss[first]:.4f}, {loss[first] - best:.4f} above the best"
    )
    print("| 8-epoch runs seen | by design | at random |\n| --- | --- | --- |")
    shares = {}
    for by_design in (True, False):
        far = np.array([walk(place[eight], loss[eight], seed, by_design) for seed in range(REPEATS)])
        shares[by_design] = (far <= NEAR).mean(axis=0)
    for runs in AFTER:
        print(f"| {runs} | {shares[True][runs - START]:.0%} | {shares[False][runs - START]:.0%} |")


if __name__ == "__main__":
    main(sys.argv[1])
