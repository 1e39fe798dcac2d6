"""How far off are laws from few runs, beyond what they were fitted on? Measured on public and own runs.

    OMP_NUM_THREADS=1 python -m benchmarks.few_runs ../shared/data [seeds]

**Few runs.** Of each table the fifth of the runs with the most compute is held out, and n of the others are
drawn with each seed: `fit` as it is by default (the average of forms, the prior being the shipped
calibration that suits best and was fitted on none of the runs), the posterior of `design` before it was this
one (additive_4p around fineweb-llama2 at the table's weight decay, every run doubted by a fifth of its loss
above E), and `fit --prior none` (its recommended form). The mean of |ln(predicted / observed)|, at
most 0.5 for one run, and how far the first is above the second on the same draws, with its standard error.

**Extrapolation.** Of each table the 30% of the runs with the most compute, then the 40% with the largest
models, are held out in turn (ties with the first of them too); all others are fitted: the average as plans
take it there (its weights by skill in that direction, learnt from other tables), as it is within the
runs, the form that counts most in it, and additive_4p alone, all with the same prior.

**Medians.** The same question asked otherwise: of the 182 runs the 37 with the most compute
held out, the median of |ln(predicted / observed)| over them, averaged over the seeds, and the published law
(fineweb-llama2's additive_4p at weight decay 1.0) as the prior of `design`. That law alone gives 0.148
there.

Tables: the public C4 runs of 2023 by both of their row filters (158: up to 64 epochs; 182: without the
authors' outliers, up to 9,000 epochs), and studies/micro/runs.csv by weight decay; `micro pilot` is a table
of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from calibration import fit
from calibration.fitting.bayes.hierarchical import with_extrapolation_weights
from calibration.fitting.evaluate.summary import capped
from calibration.fitting.solver import Reference, points_of
from planner.calibration import Calibration
from planner.inputs import InvalidInput
from planner.laws import AVERAGE, DEFAULT_FORM, FORMS, Law

NS = (5, 8, 12, 20, 40, 100)
MICRO = Path(__file__).resolve().parent.parent / "studies" / "micro" / "runs.csv"


def tables(shared: Path) -> dict[str, pd.DataFrame]:
    c4 = pd.read_csv(shared / "datablations_c4_runs.csv").assign(weight_decay=0.1)
    pilot = pd.read_csv(shared / "micro_pilot_runs.csv").query("held_out == 0")
    micro = pd.read_csv(MICRO)
    found = {"C4 158": c4[c4["in_paper158"] == 1], "C4 182": c4[c4["in_filtered182"] == 1]}
    for name, table in (("micro", micro), ("micro pilot", pilot)):
        found |= {f"{name} {decay:g}": runs for decay, runs in table.groupby("weight_decay")}
    columns = ["run", "params", "unique_tokens", "epochs", "weight_decay", "loss"]
    return {name: table[columns].reset_index(drop=True) for name, table in found.items()}


def error(law: Law, held_out: pd.DataFrame) -> float:
    with np.errstate(all="ignore"):
        predicted = np.log(law.loss(*points_of(held_out)))
    return float(np.mean(capped(np.nan_to_num(predicted, nan=np.inf) - np.log(held_out["loss"].to_numpy()))))


def averaged(table: pd.DataFrame) -> Law:
    return fit(table, bootstrap=0).settings[0].law(AVERAGE)


def without_prior(table: pd.DataFrame) -> Law | None:
    try:
        found = fit(table, bootstrap=0, prior="none")
    except InvalidInput:
        return None
    return found.settings[0].law(found.default_law)


def doubted(table: pd.DataFrame, weight_decay: float | None = None) -> Law:
    """The posterior that `design` had: one form, one published law, every run doubted on its own."""
    known = Calibration.load("fineweb-llama2")
    setting = known.setting(weight_decay or (1.0 if table["weight_decay"].iloc[0] == 1.0 else 0.1))
    prior, reference = setting.law(DEFAULT_FORM), Reference.of(setting)
    start, points = reference.theta(prior), points_of(table)
    loss = table["loss"].to_numpy(dtype=float)
    sd = np.array([parameter.prior_sd for parameter in FORMS[DEFAULT_FORM].parameters])
    doubt = np.hypot(0.01, 0.2 * np.clip(1 - float(prior.parameters["E"]) / loss, 0.05, 1.0))

    def residuals(theta: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            off = np.log(reference.law(DEFAULT_FORM, theta).loss(*points)) - np.log(loss)
        return np.concatenate([np.clip(off / doubt, -1e6, 1e6), (theta - start) / sd])

    return reference.law(DEFAULT_FORM, least_squares(residuals, start, max_nfev=200).x)


def few_runs(table: pd.DataFrame, n: int, seeds: int) -> list[str]:
    flops = (table["params"] * table["unique_tokens"] * table["epochs"]).to_numpy()
    order = np.argsort(flops, kind="stable")
    cut = round(0.8 * len(table))
    held_out = table.iloc[order[cut:]]
    errors: list[list[float]] = [[], [], []]
    for seed in range(seeds):
        drawn = table.iloc[np.random.default_rng(seed).permutation(order[:cut])[:n]]
        for kind, law in enumerate((averaged(drawn), doubted(drawn), without_prior(drawn))):
            if law is not None:
                errors[kind].append(error(law, held_out))
    return compared(errors, seeds)


def compared(errors: list[list[float]], seeds: int) -> list[str]:
    """The mean of each over the draws, and the first against the second."""
    refused = seeds - len(errors[2])
    first, second, last = (f"{np.mean(found):.3f}" if found else "-" for found in errors)
    above = np.subtract(errors[0], errors[1])
    difference = f"{above.mean():+.3f} ± {above.std(ddof=1) / np.sqrt(seeds):.3f}"
    return [first, second, difference, last + f" ({refused} refused)" * bool(refused)]


def medians(table: pd.DataFrame, n: int, seeds: int) -> list[str]:
    """Of the average of forms, the posterior that `design` had, and fits without a prior."""
    flops = (table["params"] * table["unique_tokens"] * table["epochs"]).to_numpy()
    order, cut = np.argsort(flops, kind="stable"), int(0.8 * len(table))
    held_out = table.iloc[order[cut:]]
    errors: list[list[float]] = [[], [], []]
    for seed in range(seeds):
        drawn = table.iloc[np.random.default_rng(seed).permutation(order[:cut])[:n]]
        for kind, law in enumerate((averaged(drawn), doubted(drawn, 1.0), without_prior(drawn))):
            if law is not None:
                errors[kind].append(_median(law, held_out))
    return compared(errors, seeds)


def _median(law: Law, held_out: pd.DataFrame) -> float:
    off = np.log(law.loss(*points_of(held_out))) - np.log(held_out["loss"].to_numpy())
    return float(np.median(np.abs(off)))


def extrapolated(name: str, table: pd.DataFrame, by: str, share: float) -> list[float]:
    flops = table["params"] * table["unique_tokens"] * table["epochs"]
    ranked = (table["params"] if by == "size" else flops).to_numpy()
    edge = np.sort(ranked)[round((1 - share) * len(table))]
    beyond = ranked >= edge * (1 - 1e-9)
    setting = fit(table[~beyond], bootstrap=0).settings[0]
    best = max(setting.law_weights, key=setting.law_weights.__getitem__)
    beyond_it = with_extrapolation_weights(setting, [by], without=(name.split()[0],))
    laws = [beyond_it.law(AVERAGE), *(setting.law(form) for form in (AVERAGE, best, DEFAULT_FORM))]
    return [error(law, table[beyond]) for law in laws]


def main(shared: Path, seeds: int = 20) -> None:
    print("| table | n | average of forms | posterior of `design` before | difference | without a prior |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, table in tables(shared).items():
        for n in NS:
            if n <= 0.8 * len(table):
                print(f"| {name} | {n} | {' | '.join(few_runs(table, n, seeds))} |", flush=True)
    print("\n| n | average of forms | posterior of `design` before | difference | without a prior |")
    print("| --- | --- | --- | --- | --- |")
    for n in NS:
        print(f"| {n} | {' | '.join(medians(tables(shared)['C4 182'], n, seeds))} |", flush=True)
    print("\n| table | held out | average, by skill there | as it is | form that counts most | additive_4p |")
    print("| --- | --- | --- | --- | --- | --- |")
    every = []
    for name, table in tables(shared).items():
        for by, share in (("compute", 0.3), ("size", 0.4)):
            every.append(extrapolated(name, table, by, share))
            print(f"| {name} | {by} | {' | '.join(f'{value:.4f}' for value in every[-1])} |", flush=True)
    print(f"| mean | | {' | '.join(f'{value:.4f}' for value in np.mean(every, axis=0))} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(argument) for argument in sys.argv[2:]))
