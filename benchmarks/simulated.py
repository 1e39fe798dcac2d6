"""Run tables generated from a known law, for tests and benchmarks."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pandas as pd

from planner.laws import Law, repetition_parameters

SIZES = tuple(np.geomspace(16e6, 1.1e9, 7))
BUDGETS = tuple(np.geomspace(50e6, 3.2e9, 7))
EPOCHS = (2.0, 4.0, 8.0, 12.0, 16.0)


class Losing(Protocol):
    """Whatever says what a configuration loses: a law, or something that is none."""

    def loss(self, params: Any, unique_tokens: Any, epochs: Any) -> Any: ...


def grid_table(
    law: Losing,
    runs: int,
    noise: float,
    rng: np.random.Generator,
    *,
    weight_decay: float = 0.1,
    cell_noise: float = 0.0,
) -> pd.DataFrame:
    """`runs` runs on a banded grid like the paper's, half of them single-epoch, with noise on the log loss.

    The repeated runs reuse the cells of the single-epoch runs. `cell_noise` is shared by the runs of one
    (size, budget) cell.
    """
    cells = [(n, u) for n in SIZES for u in BUDGETS if n * u < 1e18]
    single = [cells[i] for i in rng.permutation(len(cells))[: (runs + 1) // 2]]
    more = [
        cells[i] for i in rng.integers(len(cells), size=max((runs + 1) // 2 - len(single), 0))
    ]  # second seeds
    rows = [(n, u, 1.0) for n, u in single + more]
    repeated = [(n, u, e) for n, u in single for e in EPOCHS]
    rows += [repeated[i] for i in rng.permutation(len(repeated))[: runs - len(rows)]]
    table = pd.DataFrame(rows, columns=["params", "unique_tokens", "epochs"])
    return with_losses(law, table, noise, rng, weight_decay, cell_noise)


def with_losses(
    law: Losing,
    table: pd.DataFrame,
    noise: float,
    rng: np.random.Generator,
    weight_decay: float = 0.1,
    cell_noise: float = 0.0,
) -> pd.DataFrame:
    """The table with the columns of a run table; losses are those of `law` times exp(noise)."""
    exact = law.loss(*(table[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")))
    cell = table.groupby(["params", "unique_tokens"]).ngroup().to_numpy()
    shared = cell_noise * rng.standard_normal(int(cell.max()) + 1)[cell]
    return table.assign(
        run=[f"run-{i}" for i in range(len(table))],
        tokens=table["unique_tokens"] * table["epochs"],
        weight_decay=weight_decay,
        loss=exact * np.exp(noise * rng.standard_normal(len(table)) + shared),
    )


def random_base_table(rng: np.random.Generator) -> pd.DataFrame:
    """A single-epoch table from a random base law: 12 to 200 runs, noise 0.1% to 2%."""
    runs = int(rng.integers(12, 201))
    noise = float(np.exp(rng.uniform(np.log(0.001), np.log(0.02))))
    alpha, beta = rng.uniform(0.2, 0.5, 2)
    parameter, data = rng.uniform(0.2, 1.2, 2)  # the two terms at 200M parameters and 2B tokens
    base = {
        "E": rng.uniform(1.2, 2.5),
        "A": parameter * 2e8**alpha,
        "alpha": alpha,
        "B": data * 2e9**beta,
        "beta": beta,
    }
    if rng.random() < 0.5:
        params = np.exp(rng.uniform(np.log(1e7), np.log(2e9), runs))
    else:
        params = rng.choice(np.geomspace(1e7, 1e9, int(rng.integers(4, 9))), runs)
    unique = np.exp(rng.uniform(np.log(5e7), np.log(3e10), runs))
    table = pd.DataFrame({"params": params, "unique_tokens": unique, "epochs": 1.0})
    return with_losses(Law("chinchilla", base), table, noise, rng)


_ORDINARY = {"R_D_star": (2.0, 60.0), "R_N_star": (2.0, 1e3), "rho": (0.1, 1.0), "delta": (0.6, 1.8)}
_ORDINARY |= {"kappa": (0.4, 1.6), "gamma": (0.5, 1.1), "c": (0.2, 5.0)}


def random_table(form: str, rng: np.random.Generator) -> pd.DataFrame:
    """A table from a random law of any form: 40 to 160 runs, noise 0.1% to 2%.

    The penalty is 2% to 20% of the loss at a common point, and c such that sizes around it are half way.
    """
    base = Law("chinchilla", {"E": 1.9, "A": 420.0, "alpha": 0.34, "B": 3600.0, "beta": 0.37})
    own = {name: float(np.exp(rng.uniform(*np.log(span)))) for name, span in _ORDINARY.items()}
    n, u, e = 2e8, 4e8, 6.0
    own["c"] *= n / u ** own["gamma"]
    own["R_D_star"] *= (n / u) ** own["rho"] if form.startswith("paced") else 1.0
    own["P"] = 1.0
    names = repetition_parameters(form)
    law = Law(form, {**base.parameters, **{name: own[name] for name in names}})
    if "P" in names:
        wanted = rng.uniform(0.02, 0.2) * float(base.loss(n, u, e))
        amount = wanted / float(law.terms(n, u, e).overfitting)
        law = Law(form, {**law.parameters, "P": amount})
    noise = float(np.exp(rng.uniform(np.log(0.001), np.log(0.02))))
    return grid_table(law, int(rng.integers(40, 161)), noise, rng)
