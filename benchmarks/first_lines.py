"""Can the first line of a plan be quoted? A grid of questions that labs ask, and random pairs.

    python -m benchmarks.first_lines [--pairs 10000] [--jobs 2]

**Questions**: 10M to 100B unique tokens, from one RTX 4090 for a day to 1,000 H100s for a month, of every
shipped calibration that takes them. Counted are plans of more than twice the largest model ever trained under
their calibration whose first line does not say "first guess", of more than ten times, that do not fit on
their own GPUs when sharded, and answers of more than 20 lines in a terminal of 100 columns.

**Pairs**: of random questions that differ in compute or in data alone, six at a time. Counted are those whose
upper bound of the loss rises with more of it by more than the law's error there.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from planner import Calibration, InvalidInput, Plan, plan
from planner.calibration import shipped_names
from planner.evidence import Evidence

TOKENS = tuple(np.geomspace(10e6, 100e9, 10).tolist())
MACHINES = (
    ("RTX-4090", 1, 24),
    ("RTX-4090", 4, 48),
    ("A100", 8, 24),
    ("H100", 8, 20),
    ("H100", 8, 168),
    ("H100", 64, 336),
    ("H100", 256, 336),
    ("H100", 1000, 720),
)
MOST_LINES, COLUMNS = 20, "100"
ALIKE = 6  # questions that differ in one thing, and are compared with each other


class Asked(NamedTuple):
    """One question of the grid."""

    calibration: str
    ud: float
    gpu: str
    gpus: int
    hours: float


def questions() -> list[Asked]:
    """All of them: 400 for five calibrations."""
    grid = itertools.product(shipped_names(), TOKENS, MACHINES)
    return [Asked(name, ud, *machines) for name, ud, machines in grid]


def faults(asked: Asked) -> list[str]:
    """What is wrong with the answer to a question; that it was refused in one sentence is not."""
    os.environ["COLUMNS"] = COLUMNS
    try:
        p = plan(asked.ud, gpu=asked.gpu, gpus=asked.gpus, hours=asked.hours, calibration=asked.calibration)
    except InvalidInput as refusal:
        return ["refusal of more than one line"] if "\n" in str(refusal) else ["(refused)"]
    largest = Evidence.of(Calibration.load(asked.calibration).settings).params[1]
    text = str(p)
    found = []
    if p.params > 2 * largest and "first guess" not in text.splitlines()[0]:
        found.append("large, and no first guess")
    if p.params > 10 * largest:
        found.append("ten times the largest")
    if p.cost is not None and p.cost.memory is not None and not p.cost.memory.trainable_on(asked.gpus):
        found.append("does not fit")
    if "more than your" in text:
        found.append("says that it does not fit")
    if len(text.splitlines()) > MOST_LINES:
        found.append("long")
    return found


def upper_bound(p: Plan) -> float:
    assert p.predictive_uncertainty is not None
    return p.predictive_uncertainty.loss_high


def rising_pairs(seed: int) -> list[tuple[Plan, Plan]]:
    """Of the pairs of six questions that differ in compute, or in data, alone: those whose upper bound of the
    loss is higher with more of it, by more than the law's error there.
    """
    rng = np.random.default_rng(seed)
    name = str(rng.choice(["fineweb-llama2", "c4-gpt2"]))
    ud = 10 ** rng.uniform(7.0, 11.0)
    flops = ud * 10 ** rng.uniform(8.5, 13.0)
    times = [1.0, *sorted(10 ** rng.uniform(0.0, 2.0, ALIKE - 1))]
    more_compute = rng.random() < 0.5
    plans = []
    for factor in times:
        asked = (ud, flops * factor) if more_compute else (min(ud * factor, 1e11), flops)
        with suppress(InvalidInput):
            plans.append(plan(*asked, calibration=name))
    return [pair for pair in itertools.combinations(plans, 2) if _rises(*pair)]


def _rises(less: Plan, more: Plan) -> bool:
    assert more.predictive_uncertainty is not None
    return upper_bound(more) > upper_bound(less) + more.predictive_uncertainty.error


def main(pairs: int, jobs: int) -> int:
    with ProcessPoolExecutor(jobs) as pool:
        asked = questions()
        found = Counter(fault for faults_of in pool.map(faults, asked, chunksize=8) for fault in faults_of)
        print(f"{len(asked)} questions: {dict(found) or 'no fault'}", flush=True)
        seeds = range(math.ceil(pairs / math.comb(ALIKE, 2)))
        rising = [seed for seed, bad in enumerate(pool.map(rising_pairs, seeds, chunksize=4)) if bad]
        print(f"{len(seeds) * math.comb(ALIKE, 2):,} pairs: {len(rising)} sixes with a rise {rising[:10]}")
    return sum(count for fault, count in found.items() if fault != "(refused)") + len(rising)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    raise SystemExit(bool(main(given.pairs, given.jobs)))
