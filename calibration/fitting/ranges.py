"""What the runs of a table cover."""

from __future__ import annotations

import pandas as pd

from calibration.fitting.runs.arrays import SINGLE_EPOCH
from planner.calibration import FittedRange
from planner.solve import FLOPS_PER_PARAM_TOKEN


def fitted_range(table: pd.DataFrame) -> FittedRange:
    """What the runs of a table cover."""
    single = table["epochs"] <= SINGLE_EPOCH
    repeated = table if single.all() else table[~single]
    return FittedRange(
        params=_range(table["params"]),
        unique_tokens=_range(table["unique_tokens"]),
        epochs=_range(table["epochs"]),
        repeated_params=_range(repeated["params"]),
        repeated_unique_tokens=_range(repeated["unique_tokens"]),
        loss=_range(table["loss"]),
        flops=_range(FLOPS_PER_PARAM_TOKEN * table["params"] * table["unique_tokens"] * table["epochs"]),
        runs=len(table),
        single_epoch_runs=int(single.sum()),
        multi_epoch_runs=int((~single).sum()),
    )


def _range(column: pd.Series) -> tuple[float, float]:
    return float(column.min()), float(column.max())
