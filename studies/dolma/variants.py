"""Variants of the weight-decay law, on the inner splits of the protocol, and with several learning rates.

    OMP_NUM_THREADS=1 python studies/dolma/variants.py [rates]

Prototypes: scipy's Huber loss from eight starts, not the solver of the product. N in 1e8, U in 1e9, S in
thousands of steps, η in units of 3e-3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
from make import CELL, RATE, all_rates, one_rate, rms
from scipy.optimize import least_squares

Values = dict[str, float]
Columns = dict[str, np.ndarray]
Form = tuple[Callable[[Values, Columns], np.ndarray], Values]
DELTA, FOLDS, LARGEST = 0.01, 10, 190e6
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


def variants(rates: bool) -> dict[str, Form]:
    of_run = {**START, **PENALTY, "P": 0.002, "d": 1.5, "kap": 0.8}
    if not rates:
        return {
            "as known beforehand, without x": (law(), {**START, **PENALTY}),
            "penalty by the timescales of the run": (law(forgetting="run"), of_run),
            "premium, too: weight_decay_premium": (law("x", "run"), of_run),
        }
    powers = {"r": 0.5, "q": 0.5, "u": 1.3, "sr": 1.0}
    few = {"r": 0.5, "q": 0.5, "u": 1.3}
    return {
        "powers of the rate r, q, u": (law(), {**START, **PENALTY, **few}),
        "and in the exponent of steps": (law(), {**START, **PENALTY, **powers}),
        "the same, by the timescales of the run": (law("x", "run"), {**of_run, **powers}),
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


def main(rates: bool) -> None:
    at = columns(all_rates() if rates else one_rate())
    at = at if rates else some(at, at["nominal"] <= LARGEST)
    fold = (np.random.default_rng(0).permutation(at["cell"].max() + 1) % FOLDS)[at["cell"]]
    for name, form in variants(rates).items():
        theta = fitted(form, at)
        cells = np.concatenate([left_out(form, theta, at, fold == k) for k in range(FOLDS)])
        said = f"{name}: {len(theta)} parameters, in sample {rms(residual(form, theta, at)):.4f}, "
        said += f"cells left out {rms(cells):.4f}"
        if not rates:
            large = left_out(form, theta, at, at["nominal"] == LARGEST)
            said += f", nominal 190M left out {rms(large):.4f}"
        print(said, flush=True)


if __name__ == "__main__":
    main("rates" in sys.argv[1:])
