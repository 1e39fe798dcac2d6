"""Runs at several weight decays, from tables or studies, as one law for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.dial import fit_dial
from calibration.fitting.tables import Table
from calibration.studies.sources import open_source
from planner.calibration_files import Calibration, Recipe
from planner.errors import InvalidInput
from planner.units import number, whole


def fit(
    tables: Sequence[Table],
    *,
    learning_rate: Any = None,
    batch_sequences: Any = None,
    sequence_length: Any = None,
    where: str | None = None,
    bootstrap: int = 200,
    seed: int = 0,
    name: str = "dial",
) -> Calibration:
    """One law for every weight decay of these runs; the forms are judged on those of the first table."""
    sources = [open_source(table, where=where) for table in tables]
    origin = sources[0].origin
    recipe = _recipe(origin.recipe, learning_rate, batch_sequences, sequence_length)
    together = pd.concat([source.table for source in sources], ignore_index=True)
    judged = np.arange(len(together)) < len(sources[0].table)
    named = ", ".join(Path(table).resolve().name for table in tables if not isinstance(table, pd.DataFrame))
    return fit_dial(
        together,
        recipe,
        judged=judged,
        origin=replace(origin, recipe=None),
        bootstrap=bootstrap,
        seed=seed,
        name=name,
        source=f"fitted to {named}" if named else "",
    )


def _recipe(known: dict[str, Any] | None, rate: Any, sequences: Any, length: Any) -> Recipe:
    """The recipe of the study, or what was given."""
    given: dict[str, Any] = dict(known or {})
    if rate is not None:
        given["learning_rate"] = number(rate, "learning_rate", examples="3e-4")
    if sequences is not None:
        given["batch_sequences"] = whole(sequences, "batch_sequences", example="128")
    if length is not None:
        given["sequence_length"] = whole(length, "sequence_length", example="512")
    for name in ("learning_rate", "batch_sequences", "sequence_length"):
        if name not in given:
            raise InvalidInput(
                "is missing: AdamW's memory depends on learning rate and batch, which the runs do not say.",
                field=name,
            )
    return Recipe(**given)
