"""How long all law forms of one table take with 1,000 refits, on one processor.

    OMP_NUM_THREADS=1 python benchmarks/all_forms.py [TABLE] [refits]

The table is a grid of 160 simulated runs unless one is given. Seconds are of the processor, not of the clock;
next to them stands how much that is of what the published six forms take, which does not depend on the
machine.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pandas as pd
from simulated import grid_table

from calibration import fit
from planner import Calibration, Law
from planner.laws import FORMS

PUBLISHED = tuple(Calibration.load().settings[0].laws)


def seconds(table: pd.DataFrame, laws: tuple[str, ...], refits: int) -> tuple[float, int]:
    began = time.process_time()
    found = fit(table, laws=laws, prior="none", bootstrap=refits)
    return time.process_time() - began, len(found.settings[0].laws)


def main(path: str | None = None, refits: int = 1000) -> None:
    law = Calibration.load().law(0.1, "additive_4p")
    table = (
        grid_table(Law("additive_4p", law.parameters), 160, 0.005, np.random.default_rng(0))
        if path is None
        else pd.read_csv(path)
    )
    table = table[table["weight_decay"] == table["weight_decay"].min()]
    everything, kept = seconds(table, tuple(FORMS), refits)
    six, _ = seconds(table, PUBLISHED, refits)
    print(f"{len(table)} runs, {refits} refits: {len(FORMS)} forms {everything:.1f} s ({kept} identified), ")
    print(f"the published {len(PUBLISHED)} {six:.1f} s: {everything / six:.1f} times as long")


if __name__ == "__main__":
    main(*sys.argv[1:2], *(int(argument) for argument in sys.argv[2:3]))
