"""Do the 95% intervals of the default flow cover real runs that were not fitted?

    OMP_NUM_THREADS=1 python -m benchmarks.held_out_coverage ../shared/data [seeds]

Generated tables (`bayesian_coverage`) come from laws; real runs do not. Each table of `few_runs` but the
pilots is cut along size, compute, data or epochs as the tournament cuts it (`studies.tournament`):
the smallest 60% or 70% are seen, the repeated runs beyond them are asked about. Of those seen 20, 40 (drawn
with each seed) or all are fitted as `fit` does by default, with a prior that was fitted on none of them;
weights of forms are those by skill in the direction of the cut, learnt from other tables, as plans
do. Asked: how many of the runs beyond lie within the 95% interval of their loss, to which the noise of a run
that the fit believes in is added; and how wide it is, in ln(loss). `within` is no cut: of all runs 20, 40 or
80 are drawn and fitted, and of the others those that repeat are asked about whose size, data and epochs are
within the middle 80% of what was drawn.

Runs of one table beyond one cut are no independent trials: a share of one cut says little, the mean of many
something.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.few_runs import tables
from calibration import fit
from calibration.fitting.bayes.hierarchical import with_extrapolation_weights
from calibration.fitting.solver import points_of
from planner.laws import AVERAGE
from planner.uncertainty import with_discrepancy
from studies.tournament import extrapolation

NS = (20, 40, None)  # None: all that are seen
AMONG, MIDDLE = (20, 40, 80), (0.1, 0.9)  # runs fitted, and the range of those asked about
DRAWS = 300
LEVEL = (2.5, 97.5)


def covered(name: str, seen: pd.DataFrame, tried: pd.DataFrame, *ways: str) -> tuple[float, float]:
    """The share of runs within their intervals, and the median width."""
    fitted = fit(seen, bootstrap=DRAWS, name="seen").settings[0]
    setting = with_extrapolation_weights(fitted, ways, without=(name.split()[0],))
    draws, discrepancy = setting.law_draws(AVERAGE, of_losses=True), setting.discrepancy(AVERAGE)
    assert draws is not None
    noise = setting.method["noise_repeated"] * np.random.default_rng(0).standard_normal(len(discrepancy))
    inside, widths = [], []
    for place, loss in zip(zip(*points_of(tried), strict=True), tried["loss"], strict=True):
        with np.errstate(all="ignore"):
            terms = draws.terms(*place)
            drawn = np.log(with_discrepancy(terms.loss, terms.irreducible, discrepancy)) + noise
        low, high = np.percentile(np.nan_to_num(drawn, nan=np.inf), LEVEL)
        inside.append(low <= np.log(loss) <= high)
        widths.append(high - low)
    return float(np.mean(inside)), float(np.median(widths))


def cut(
    name: str, table: pd.DataFrame, direction: str, n: int | None, seeds: int
) -> tuple[float, float] | None:
    """Over the seeds, the mean share and width; None where there is no such cut."""
    found = extrapolation.split(table, direction, extrapolation.DIRECTIONS[direction])
    if found is None or (n is not None and found[0].sum() < n):
        return None
    seen, tried = (table[rows].reset_index(drop=True) for rows in found)
    drawn = [seen] if n is None else [shuffled(seen, seed).head(n) for seed in range(seeds)]
    share, width = np.mean([covered(name, some, tried, direction) for some in drawn], axis=0)
    return float(share), float(width)


def shuffled(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    return table.iloc[np.random.default_rng(seed).permutation(len(table))].reset_index(drop=True)


def within(name: str, table: pd.DataFrame, n: int, seeds: int) -> tuple[float, float] | None:
    """The same for runs among those that were fitted."""
    found = []
    for seed in range(seeds):
        drawn = shuffled(table, seed)
        seen, others = drawn.head(n), drawn.iloc[n:]
        low, high = np.quantile(np.stack(points_of(seen)), MIDDLE, axis=1)[..., None]
        places = np.stack(points_of(others))
        tried = others[((places >= low) & (places <= high)).all(axis=0) & (places[2] > 1.5)]
        if len(tried):
            found.append(covered(name, seen, tried))
    if not found:
        return None
    share, width = np.mean(found, axis=0)
    return float(share), float(width)


def line(what: str, n: int | None, found: dict[str, tuple[float, float] | None]) -> str:
    cells = ["-" if one is None else f"{one[0]:.0%} ({one[1]:.3f})" for one in found.values()]
    share = np.mean([one[0] for one in found.values() if one is not None])
    return f"| {what} | {n or 'all'} | {' | '.join(cells)} | {share:.1%} |"


def main(shared: Path, seeds: int = 5) -> None:
    known = {name: table for name, table in tables(shared).items() if "pilot" not in name}
    print("| runs beyond, by | fitted |", *(f"{name} |" for name in known), "mean |")
    print("| --- " * (3 + len(known)) + "|")
    for n in AMONG:
        among = {name: within(name, table, n, seeds) for name, table in known.items()}
        print(line("within", n, among), flush=True)
    for direction in extrapolation.DIRECTIONS:
        for n in NS:
            found = {name: cut(name, table, direction, n, seeds) for name, table in known.items()}
            print(line(direction, n, found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(argument) for argument in sys.argv[2:]))
