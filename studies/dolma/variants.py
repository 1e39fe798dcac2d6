"""Variants of the weight-decay law, on the inner splits of the protocol, and laws of several learning rates.

    OMP_NUM_THREADS=1 python studies/dolma/variants.py [rates] [largest]

`largest` tries what is fitted to smaller models on nominal 370M. Prototypes: scipy's Huber loss from eight
starts, not the solver of the product. N in 1e8, U in 1e9, S in thousands of steps, η in units of 3e-3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
from make import CELL, RATE, all_rates, errors, fallen, one_rate, regrets, rms
from scipy.optimize import least_squares

Values = dict[str, float]
Columns = dict[str, np.ndarray]
Form = tuple[Callable[[Values, Columns], np.ndarray], Values]
DELTA, FOLDS, LARGEST = 0.01, 10, 190e6
REFITS, LEVEL = 100, 0.95
CHANCE = np.log(100_352)  # the loss of a model that knows nothing but the vocabulary
START = {"E": 1.5, "A": 1.7, "a": 0.33, "K": 1.7, "s": 0.6, "v": 1.7, "Q": 0.06}
PENALTY = {"P": 0.01, "d": 1.2, "k": 1.1, "g": 0.25, "kap": 0.7}


def columns(runs: pd.DataFrame) -> Columns:
    scales = {"params": 1e8, "unique_tokens": 1e9, "epochs": 1.0, "steps": 1e3, "weight_decay": 1.0}
    found = {name: runs[name].to_numpy(dtype=float) / by for name, by in scales.items()}
    found["rate"] = runs["learning_rate"].to_numpy(dtype=float) / RATE
    found["tau"] = (runs["timescale_tokens"] / runs["unique_tokens"]).to_numpy()
    found["ln_loss"] = np.log(runs["loss"].to_numpy())
    found["cell"] = runs.groupby(CELL).ngroup().to_numpy()
    found["nominal"] = runs["params_nominal"].to_numpy(dtype=float)
    found["named"] = fallen(runs)
    return found


def law(premium: str = "none", forgetting: str = "epoch") -> Callable[[Values, Columns], np.ndarray]:
    """`premium` acts at once or with x = epochs / (2 τ); the penalty falls with the timescales of an `epoch`
    or of the whole `run`; powers r, sr, q and u of the learning rate are zero where they are no parameters.
    """

    def loss(p: Values, at: Columns) -> np.ndarray:
        x, rate = 0.5 * at["epochs"] / at["tau"], at["rate"]
        size = p["A"] * at["params"] ** -p["a"]
        power = p["s"] * rate ** (p.get("sr", 1.0) - 1)
        steps = p["K"] * rate ** -p.get("r", 0.0) * at["steps"] ** -power
        base = p["E"] + (size ** p["v"] + steps ** p["v"]) ** (1 / p["v"])
        on = {"none": 1.0, "x": x / (1 + x)}[premium]
        dearer = p["Q"] * at["weight_decay"] ** 1.4 * rate ** p.get("q", 0.0) * on
        inside = {"epoch": 100 / at["tau"], "run": x}[forgetting]
        cost = (
            p["P"] * rate ** (p.get("u", 1.0) - 1) * (at["epochs"] - 1) ** p["d"] * (1 + inside) ** -p["kap"]
        )
        return base * (1 + dearer) + cost * at["params"] ** p["k"] * at["unique_tokens"] ** -p["g"]

    return loss


def law_of_rates(p: Values, at: Columns) -> np.ndarray:
    """A run gets as far as its steps times its rate, T, from the loss of chance on; a rate too high for the
    size and the steps wastes steps. Repeats cost with the rate until it saturates, and, where `z0` is a
    parameter, only once there are some.
    """
    rate, steps = at["rate"] * at["params"] ** p["w"], at["steps"]
    far = steps * rate / (1 + p["c"] * rate / steps) ** 2
    size, data = p["A"] * at["params"] ** -p["a"], (CHANCE - p["E"]) * (1 + far / p["T0"]) ** -p["s"]
    base = p["E"] + (size ** p["v"] + data ** p["v"]) ** (1 / p["v"])
    x = 0.5 * at["epochs"] / at["tau"]
    dearer = p["Q"] * at["weight_decay"] ** 1.25 * at["rate"] ** 0.25 * x / (1 + x)
    z = np.maximum(at["rate"] / (1 + at["rate"] / p["h"]) * (at["epochs"] - 1), 1e-9)
    cost = p["P"] * z ** p["d"] * np.exp(-p.get("z0", 0.0) / z) * (1 + x) ** -p["kap"]
    return base * (1 + dearer) + cost * at["params"] ** p["k"] * at["unique_tokens"] ** -p["g"]


def variants(rates: bool) -> dict[str, Form]:
    of_run = {**START, **PENALTY, "P": 0.002, "d": 1.5, "kap": 0.8}
    if not rates:
        return {
            "as known beforehand, without x": (law(), {**START, **PENALTY}),
            "penalty by the timescales of the run": (law(forgetting="run"), of_run),
            "premium, too: weight_decay_premium": (law("x", "run"), of_run),
        }
    powers = {"r": 0.5, "q": 0.5, "u": 1.3, "sr": 1.0}
    progress = {"E": 1.6, "A": 1.4, "a": 0.37, "s": 0.35, "v": 1.6, "T0": 0.002, "c": 0.66, "w": 0.48}
    repeats = {"Q": 0.077, "P": 0.021, "d": 1.68, "k": 1.27, "g": 0.37, "kap": 0.9, "h": 0.19}
    late = {"P": 0.046, "d": 1.36, "z0": 1.3}
    return {
        "powers of the rate": (law("x", "run"), {**of_run, **powers}),
        "steps times rate": (law_of_rates, {**progress, **repeats}),
        "steps times rate, few repeats free": (law_of_rates, {**progress, **repeats, **late}),
    }


def residual(form: Form, theta: np.ndarray, at: Columns) -> np.ndarray:
    with np.errstate(all="ignore"):
        predicted = np.log(form[0](dict(zip(form[1], np.exp(theta), strict=True)), at))
    return np.nan_to_num(predicted - at["ln_loss"], nan=10.0, posinf=10.0, neginf=-10.0)


def fitted(form: Form, at: Columns, start: np.ndarray | None = None) -> np.ndarray:
    middle, rng = np.log(list(form[1].values())), np.random.default_rng(0)
    starts = [middle, *(middle + 0.4 * rng.standard_normal(len(middle)) for _ in range(7))]
    found = [
        least_squares(lambda theta: residual(form, theta, at), one, loss="huber", f_scale=DELTA, max_nfev=400)
        for one in (starts if start is None else [start])
    ]
    return np.asarray(min(found, key=lambda one: one.cost).x)


def some(at: Columns, rows: np.ndarray) -> Columns:
    return {name: values[rows] for name, values in at.items()}


def left_out(form: Form, theta: np.ndarray, at: Columns, rows: np.ndarray) -> np.ndarray:
    return residual(form, fitted(form, some(at, ~rows), theta), some(at, rows))


def folds(at: Columns) -> np.ndarray:
    return (np.random.default_rng(0).permutation(at["cell"].max() + 1) % FOLDS)[at["cell"]]


def tried(form: Form, at: Columns) -> tuple[np.ndarray, str]:
    """The fit, and its errors in sample, in left-out cells and at left-out weight decays."""
    theta, fold, named = fitted(form, at), folds(at), at["named"]
    cells = np.zeros(len(fold))
    for k in range(FOLDS):
        cells[fold == k] = left_out(form, theta, at, fold == k)
    decays = [at["weight_decay"] == decay for decay in (0.2, 0.4, 0.8, 1.6, 3.2)]
    out = [rms(left_out(form, theta, at, rows)) for rows in decays if rows.sum() >= 5]
    said = f"{len(theta)} parameters, in sample {errors(residual(form, theta, at), named)}, cells left out "
    return theta, said + f"{errors(cells, named)}, weight decays left out {np.mean(out):.4f}"


def intervals(form: Form, theta: np.ndarray, seen: Columns, new: Columns) -> tuple[np.ndarray, float]:
    """Which new runs lie within 95% intervals, made as in the product, and how wide these are."""
    rng, some_cells = np.random.default_rng(0), np.unique(seen["cell"])
    irreducible = dict(zip(form[1], np.exp(theta), strict=True))["E"]
    above = np.clip(1 - irreducible / np.exp(seen["ln_loss"]), 0.05, 1.0)
    pool = -residual(form, theta, seen) / above * np.sqrt(len(above) / (len(above) - len(theta)))
    off = []
    for _ in range(REFITS):
        drawn = rng.choice(some_cells, len(some_cells))
        rows = np.concatenate([np.flatnonzero(seen["cell"] == cell) for cell in drawn])
        refit = residual(form, fitted(form, some(seen, rows), theta), new)
        share = np.clip(1 - irreducible / np.exp(refit + new["ln_loss"]), 0.05, 1.0)
        off.append(refit + rng.choice(pool, (20, 1)) * share)
    low, high = np.quantile(np.concatenate(off), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return (low <= 0) & (high >= 0), float(np.median(high - low))


def largest(form: Form, at: Columns, runs: pd.DataFrame, nominal: float) -> str:
    """Fitted to the sizes below, tried on one size: all its runs, and those at the rate of most runs."""
    below, rows = at["nominal"] < nominal, at["nominal"] == nominal
    seen, new = some(at, below), some(at, rows)
    theta = fitted(form, seen)
    off, usual = residual(form, theta, new), np.isclose(new["rate"], 1.0)
    inside, width = intervals(form, theta, seen, new)
    predicted = np.exp(off + new["ln_loss"])[usual]
    regret = regrets(runs[rows][usual].reset_index(drop=True), predicted)
    return (
        f"nominal {nominal / 1e6:g}M left out {errors(off, new['named'])}, within 95% intervals "
        f"{inside.mean():.1%} ({width:.3f} wide); of these the {usual.sum()} at 3e-3 "
        f"{errors(off[usual], new['named'][usual])}, within {inside[usual].mean():.1%}; regret of the weight "
        f"decay {regret.mean():.2%} on average, {regret.max():.2%} at most"
    )


def main(arguments: list[str]) -> None:
    rates = "rates" in arguments
    runs = all_rates() if rates else one_rate()
    small = runs[runs["params_nominal"] <= LARGEST].reset_index(drop=True)
    for name, form in variants(rates).items():
        print(f"{name}: up to nominal 190M, {tried(form, columns(small))[1]}", flush=True)
        print(f"    {largest(form, columns(small), small, LARGEST)}", flush=True)
        if rates:
            theta, said = tried(form, columns(runs))
            print(f"    all sizes, {said}", flush=True)
            print(f"    {dict(zip(form[1], np.exp(theta).round(4).tolist(), strict=True))}", flush=True)
        if "largest" in arguments:
            print(f"    {largest(form, columns(runs), runs, 370e6)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
