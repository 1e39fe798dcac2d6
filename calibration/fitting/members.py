"""`fit_members`: losses of ensembles in, the law of what members gain out.

By the law (`Averaging`), L_1 - L_K = a (1 - 1/K) with ln a linear in the logarithms of size, data, epochs and
timescale, and in one product of them. So each cell and K > 1 gives one value of ln a, and the
numbers follow by least squares, in closed form. A quantity that did not vary, or only together with another,
gets the smallest exponents that explain the rest; the product counts only where there are more cells than
numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from planner.calibration import (
    QUANTITIES,
    Averaging,
    Calibration,
    Distilled,
    Exponents,
    Recipe,
    Reference,
    TrainedOn,
)
from planner.inputs import InvalidInput

CELL = ["params", "unique_tokens", "epochs", "weight_decay"]
_NEEDED = (*CELL, "members", "loss")


def fit_members(
    table: pd.DataFrame,
    recipe: Recipe,
    *,
    upto: int | None = None,
    distilled: dict[str, Any] | None = None,
    source: str = "",
    plain: bool = False,
) -> Averaging:
    """The law of a table such as `planner calibrate ensemble` writes, fitted to at most `upto` members; a
    plain one is a product of powers only.

    `error` is that of predicting the most members of each cell from one: of those that were left out of the
    fit where there are any.
    """
    gains = observed_gains(table, recipe)
    fitted = gains[gains["members"] <= (upto or np.inf)]
    if fitted.empty:
        raise InvalidInput("the table has no ensemble of two members or more; more seeds would do.")
    if (fitted["gain"] <= 0).any():
        worst = fitted.iloc[int(np.argmin(fitted["gain"]))]
        raise InvalidInput(
            f"{worst['members']:.0f} members of {worst['params']:,.0f} parameters are no better than one, "
            f"which the law cannot describe; more seeds would do."
        )
    centre, numbers = _least_squares(fitted, plain=plain)
    known = Averaging(
        reference=Reference(**dict(zip(QUANTITIES, np.exp(centre), strict=True))),
        gain=float(np.exp(numbers[0])),
        exponents=Exponents(**dict(zip((*QUANTITIES, "density"), numbers[1:], strict=True))),
        error=0.0,
        most_members=int(table["members"].max()),
        fitted_on=TrainedOn(
            **{name: (gains[name].min(), gains[name].max()) for name in QUANTITIES},
            runs=int(table.groupby(CELL)["members"].max().sum()),
        ),
        distilled=Distilled(**distilled) if distilled else None,
        source=source,
    )
    return known.model_copy(update={"error": _error(known, gains, upto)})


def with_ensemble_law(known: Calibration, table: pd.DataFrame, source: str = "") -> Calibration:
    """A calibration with the law of a table of ensembles, trained by its own recipe, as its members."""
    if known.recipe is None:
        raise InvalidInput(
            f"{known.name} does not say the learning rate and batch of its runs, which the law of members "
            f"needs.",
            field="attach",
        )
    if "learning_rate" in table and not np.allclose(table["learning_rate"], known.recipe.learning_rate):
        raise InvalidInput(
            f"{known.name} was fitted at learning rate {known.recipe.learning_rate:g} and not "
            f"{table['learning_rate'].iloc[0]:g}, that of the members.",
            field="attach",
        )
    return known.model_copy(update={"members": fit_members(table, known.recipe, source=source)})


def _least_squares(fitted: pd.DataFrame, *, plain: bool) -> tuple[np.ndarray, np.ndarray]:
    """The reference (its ln) and the numbers of the law there: ln of the gain, four powers and the product's.

    The product is left out where the cells do not tell it from the rest.
    """
    logs = np.log(fitted[list(QUANTITIES)].to_numpy(dtype=float))
    centre = logs.mean(0)
    size, data, _, timescale = (logs - centre).T
    powers = np.column_stack([np.ones(len(logs)), logs - centre])
    every = np.column_stack([powers, (size - data) * timescale])
    cells = len(fitted[CELL].drop_duplicates())
    told = np.linalg.matrix_rank(every) == every.shape[1] < cells
    design = every if told and not plain else powers
    ln_gain = np.log(fitted["limit_gain"].to_numpy(dtype=float))
    numbers = np.zeros(every.shape[1])
    numbers[: design.shape[1]] = np.linalg.lstsq(design, ln_gain, rcond=1e-6)[0]
    return centre, numbers


def observed_gains(table: pd.DataFrame, recipe: Recipe) -> pd.DataFrame:
    """By how much every ensemble of two or more is better than one, and infinitely many would be by it."""
    missing = [name for name in _NEEDED if name not in table]
    if missing:
        raise InvalidInput(f"a table of ensembles needs a column {missing[0]}.")
    one = table[table["members"] == 1].set_index(CELL)["loss"]
    found = table[table["members"] > 1].copy()
    alone = one.reindex(pd.MultiIndex.from_frame(found[CELL])).to_numpy(dtype=float)
    if np.isnan(alone).any():
        raise InvalidInput("every cell of a table of ensembles needs a row of one member.")
    found["gain"] = alone - found["loss"].to_numpy(dtype=float)
    found["limit_gain"] = found["gain"] / (1 - 1 / found["members"])
    timescales = [recipe.timescale_tokens(decay) for decay in found["weight_decay"]]
    found["timescale_epochs"] = timescales / found["unique_tokens"]
    return found


def predicted_gain(known: Averaging, gains: pd.DataFrame) -> np.ndarray:
    """What the law says that the ensembles of a table of gains are better by."""
    limit = known.power(*(gains[name].to_numpy(dtype=float) for name in QUANTITIES))
    return np.asarray(limit * (1 - 1 / gains["members"].to_numpy(dtype=float)))


def _error(known: Averaging, gains: pd.DataFrame, upto: int | None) -> float:
    most = gains[gains["members"] == gains.groupby(CELL)["members"].transform("max")]
    left_out = most[most["members"] > (upto or np.inf)]
    judged = left_out if len(left_out) else most
    gap = predicted_gain(known, judged) - judged["gain"].to_numpy(dtype=float)
    return float(np.sqrt(np.mean(gap**2)))
