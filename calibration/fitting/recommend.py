"""Which form to plan with: the one that predicts (size, budget) cells best that it was not fitted on.

A simpler form is preferred where it is not worse by more than one standard error of the difference, cells
being what is drawn: what cannot be told apart on unseen runs is decided for the form with less to get wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from calibration.fitting.metrics import capped
from calibration.fitting.runs.arrays import Runs
from planner.laws import FORMS, parameter_names


class Evidence(NamedTuple):
    """Held-out errors of one weight decay."""

    by_cell: dict[str, np.ndarray]  # per form, |ln(predicted / observed)| summed over the runs of each cell
    runs: int  # in the cells that count
    cells: int  # in all

    @staticmethod
    def of(runs: Runs, held_out: Mapping[str, np.ndarray]) -> Evidence:
        """From the held-out residuals of each form, NaN in cells that do not count."""
        judged = ~np.logical_or.reduce([np.isnan(values) for values in held_out.values()])
        _, cells = np.unique(runs.cells[judged], return_inverse=True)
        by_cell = {form: np.bincount(cells, capped(values[judged])) for form, values in held_out.items()}
        return Evidence(by_cell, int(judged.sum()), len(np.unique(runs.cells)))


def recommend(evidence: Sequence[Evidence]) -> dict[str, Any]:
    """The form to plan with, and the figures behind the choice."""
    common = [form for form in FORMS if all(form in setting.by_cell for setting in evidence)]
    cells = {form: np.concatenate([setting.by_cell[form] for setting in evidence]) for form in common}
    runs, of = sum(setting.runs for setting in evidence), sum(setting.cells for setting in evidence)
    counted = len(cells[common[0]])
    if not runs:
        law = min(common, key=_parameters)
        untold = "no (size, budget) cell can be left out of these fits to tell the forms apart"
        reason = f"{law} is the simplest; {untold}."
        return {"law": law, "reason": reason, "held_out_error": {}, "cells": 0, "cells_in_all": of}
    errors = {form: float(values.sum()) / runs for form, values in cells.items()}
    law, reason = _choice(cells, errors, runs)
    if counted < of:
        reason += f"; {counted} of {of} cells count, the others being needed to fit all forms"
    found = {"law": law, "reason": f"{reason}.", "held_out_error": errors}
    return found | {"cells": counted, "cells_in_all": of}


def _choice(cells: Mapping[str, np.ndarray], errors: Mapping[str, float], runs: int) -> tuple[str, str]:
    """The simplest of the forms that are as good as the best, and why."""
    best = min(errors, key=errors.__getitem__)
    behind = {form: _paired(values - cells[best], runs) for form, values in cells.items()}
    as_good = [form for form, (difference, error) in behind.items() if difference <= error]
    chosen = min(as_good, key=lambda form: (_parameters(form), errors[form]))
    error_of_loss = f"a mean error of {errors[chosen]:.3%} of the loss"
    reason = f"{chosen} predicts left-out (size, budget) cells with {error_of_loss}"
    if chosen != best:
        difference, error = behind[chosen]
        told = f"{errors[best]:.3%}, difference {difference:.3%} ± {error:.3%}"
        return chosen, f"{reason}: not told apart from {best} ({told}), and simpler"
    if len(errors) > 1:
        second = min((form for form in errors if form != best), key=errors.__getitem__)
        reason += f", the least of all; next is {second} with {errors[second]:.3%}"
    return chosen, reason


def _paired(by_cell: np.ndarray, runs: int) -> tuple[float, float]:
    """Mean difference per run, and its standard error when cells are drawn."""
    spread = float(by_cell.std(ddof=1)) if len(by_cell) > 1 else 0.0
    return float(by_cell.sum()) / runs, spread * len(by_cell) ** 0.5 / runs


def _parameters(form: str) -> int:
    return len(parameter_names(form))
