"""Two looks at the tournament's cuts from elsewhere: the prototype's compute, and what `fit` does by default.

    python studies/tournament/other_ways.py ../shared/data          # prints the tables of results.md

**The prototype's compute.** Its figures by compute on C4 are met only where 6 N D is computed in 64-bit
integers, in which everything above 9.2e18 wraps around: the "70% with the least compute" are then other runs.

**The default fit.** The tournament's own choice averages joint fits. `planner calibrate fit` starts from a
prior instead, and plans turn its weights by skill in their direction: here that is tried on the same cuts,
with a prior and skills that have not seen the table.
"""

from __future__ import annotations

import sys
from pathlib import Path

import extrapolation
import numpy as np
import pandas as pd
import weighing

from calibration import fit
from calibration.fitting.bayes.hierarchical import tournament_errors, with_extrapolation_weights
from calibration.fitting.evaluate.summary import PAPER_DELTA
from calibration.fitting.runs.tables import read_runs
from planner.laws import AVERAGE, STANDARD

HERE = Path(__file__).resolve().parent
MICRO = HERE.parent / "micro" / "runs.csv"
C4 = {"C4 158": "in_paper158 == 1", "C4 182": "in_filtered182 == 1"}
C4 |= {"C4 230": "kind == base and in_full296 == 1"}
PROTOTYPE = ("exponential_decay", "additive_4p", "hill_4p", "decay_hill_4p")
IN_SAMPLE = "in sample"


def tables(shared: Path) -> dict[str, pd.DataFrame]:
    """By family and filter, one for each weight decay."""
    runs = shared / "datablations_c4_runs.csv"
    found = {name: read_runs(str(runs), where=where, weight_decay=0.1) for name, where in C4.items()}
    for decay, some in read_runs(str(MICRO)).groupby("weight_decay"):
        found[f"micro {decay:g}"] = some.reset_index(drop=True)
    return found


def errors(table: pd.DataFrame, tried: np.ndarray, predicted: dict[str, np.ndarray]) -> dict[str, float]:
    ln_loss = np.log(table["loss"].to_numpy(dtype=float))
    return {form: weighing.error_of((values - ln_loss)[tried]) for form, values in predicted.items()}


def places(table: pd.DataFrame) -> np.ndarray:
    return table[["params", "unique_tokens", "epochs"]].to_numpy(dtype=float)


# -- the prototype's compute ---------------------------------------------------------------------------------


def wrapped(table: pd.DataFrame) -> np.ndarray:
    """6 N D as 64-bit integers have it."""
    params, tokens = (
        table[name].to_numpy(dtype=float).round().astype(np.int64) for name in ("params", "tokens")
    )
    return np.asarray(np.int64(6) * params * tokens)


def by_wrapped_compute(name: str, table: pd.DataFrame) -> str:
    """Errors with the prototype's Huber threshold, and of the tool's choice as the tournament makes it."""
    compute = wrapped(table)
    below = compute <= np.quantile(compute, extrapolation.DIRECTIONS["compute"])
    tried = ~below & (table["epochs"].to_numpy(dtype=float) > 1)
    part = table[below].reset_index(drop=True)
    as_prototype = weighing.FitMethod(delta=PAPER_DELTA).fits(part, PROTOTYPE)
    found = errors(table, tried, weighing.ln_losses(as_prototype, places(table)))
    fits = weighing.FitMethod().fits(part, STANDARD)
    predicted = weighing.ln_losses(fits, places(table))
    others = [
        ratios for known, ratios in tournament_errors()["compute"].items() if not known.startswith("C4")
    ]
    here = [
        {form: one[form] for form in STANDARD if form in one}
        for one in (weighing.in_sample_errors(fits), weighing.left_out(fits, part))
    ]
    choice = {AVERAGE: weighing.weighted_mean(predicted, weighing.weights_of(here, others))}
    figures = [*(found[form] for form in PROTOTYPE), errors(table, tried, choice)[AVERAGE]]
    figures.append(default_fit(name, table, below, tried, "compute")[0][AVERAGE])
    cells = " | ".join(f"{figure:.3f}" for figure in figures)
    return f"| {name} | {below.sum()} / {tried.sum()} | {cells} |"


# -- the default fit -----------------------------------------------------------------------------------------


def default_fit(
    name: str, table: pd.DataFrame, below: np.ndarray, tried: np.ndarray, direction: str
) -> tuple[dict[str, float], str]:
    """The errors of its average, by skill in this direction, and of its additive law; and its prior."""
    known = fit(table[below].reset_index(drop=True), bootstrap=0, name="seen")
    setting = known.settings[0]
    beyond_it = with_extrapolation_weights(setting, [direction], without=(name.split()[0],))
    laws = {AVERAGE: beyond_it.law(AVERAGE), "additive_4p": setting.law("additive_4p")}
    predicted = {what: np.log(law.loss(*places(table).T)) for what, law in laws.items()}
    return errors(table, tried, predicted), str((known.prior or {}).get("name"))


def by_default_fit(name: str, table: pd.DataFrame, direction: str) -> str | None:
    everything = np.ones(len(table), dtype=bool)
    cut = (
        (everything, table["epochs"].to_numpy(dtype=float) > 1)
        if direction == IN_SAMPLE
        else extrapolation.split(table, direction, extrapolation.DIRECTIONS[direction])
    )
    if cut is None:
        return None
    below, tried = cut
    found, prior = default_fit(name, table, below, tried, direction)
    counts = f"{below.sum()} / {tried.sum()}"
    figures = f"{found[AVERAGE]:.4f} | {found['additive_4p']:.4f}"
    return f"| {name} | {direction} | {counts} | {prior} | {figures} |"


def main(shared: str = "../shared/data") -> None:
    found = tables(Path(shared))
    print("| table | seen / tried |", *(f"{form} |" for form in PROTOTYPE), "tool's choice | default fit |")
    for name in C4:
        print(by_wrapped_compute(name, found[name]), flush=True)
    print("\n| table | beyond | seen / tried | prior | default fit | its additive 4p |")
    for name, table in found.items():
        for direction in (IN_SAMPLE, *extrapolation.DIRECTIONS):
            line = by_default_fit(name, table, direction)
            if line is not None:
                print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
