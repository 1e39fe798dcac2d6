"""Trainings on little data that others published, each with its source: facts to hold a plan against, to
which no law here was fitted. Losses are comparable within one source only.
"""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path

from planner.results import PublishedTraining

_TABLE = Path(__file__).parent / "data" / "published_trainings.csv"
_NEAR = 4.0  # times as much data or as large a model, or as little, that still says something


@cache
def trainings() -> tuple[PublishedTraining, ...]:
    with _TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(PublishedTraining.model_validate(row) for row in csv.DictReader(file))


def nearest(unique_tokens: float, params: float) -> list[PublishedTraining]:
    """Of each source the training nearest in data and size, where one is near at all; of two the better."""

    def apart(one: PublishedTraining) -> tuple[float, float]:
        return math.log(one.unique_tokens / unique_tokens), math.log(one.params / params)

    def distance(one: PublishedTraining) -> tuple[float, float]:
        return math.hypot(*apart(one)), one.loss

    near = [one for one in trainings() if max(map(abs, apart(one))) <= math.log(_NEAR)]
    sources = dict.fromkeys(one.who for one in sorted(near, key=distance))
    return [min((one for one in near if one.who == who), key=distance) for who in sources]
