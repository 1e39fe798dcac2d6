"""What every plan is asked with, checked, before it is known which search answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from planner.calibration_files import Calibration
from planner.dialling import Translation
from planner.limits import Limits


class Basics(NamedTuple):
    """A question."""

    known: Calibration
    form: str
    ud: Any
    within: tuple[float, float] | None  # unique tokens and compute; None: a loss is to be reached
    target_loss: Any
    amount: Mapping[str, Any]  # of compute, as given
    limits: Limits
    tolerance: float
    weight_decay: float | None  # as calibrated
    own: Translation | None
