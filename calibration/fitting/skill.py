"""How well each law form has held beyond its runs elsewhere, by direction: what the tournament found.

`skills.json` is made of the tournament's table by `studies/tournament/make.py`: for every direction and every
table (those that share runs are one), each form's error over the best one's. A calibration keeps the
geometric mean over the tables, with which plans weigh forms where they leave the runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from planner.calibration import Setting
from planner.uncertainty import extrapolation_weights

_FILE = Path(__file__).with_name("skills.json")


@cache
def elsewhere() -> dict[str, dict[str, dict[str, float]]]:
    """By direction and table, each form's error over the smallest."""
    found: dict[str, dict[str, dict[str, float]]] = json.loads(_FILE.read_text(encoding="utf-8"))["over_best"]
    return found


def extrapolation_errors(forms: Sequence[str], without: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """By direction, the error of each of these forms over the best of them; `without` names tables that must
    not be asked. Forms that no table tried are missing.
    """
    found = {}
    for direction, tables in elsewhere().items():
        asked = [errors for name, errors in tables.items() if name.split(",")[0] not in without]
        known = [form for form in forms if any(form in errors for errors in asked)]
        if known:
            behind = {
                form: float(np.mean([np.log(errors[form]) for errors in asked if form in errors]))
                for form in known
            }
            least = min(behind.values())
            found[direction] = {form: float(f"{np.exp(value - least):.4g}") for form, value in behind.items()}
    return found


def with_extrapolation_weights(
    setting: Setting, directions: Sequence[str], without: Sequence[str] = ()
) -> Setting:
    """A setting whose forms are weighed as plans weigh them in these directions, by what other tables than
    those say.
    """
    errors = extrapolation_errors(tuple(setting.law_weights), without)
    weights = extrapolation_weights(setting.law_weights, [errors.get(way, {}) for way in directions])
    return setting.with_weights(weights)
