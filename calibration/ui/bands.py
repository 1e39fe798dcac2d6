"""How sure a curve of best plans is, where a calibration carries refits: between which losses they lie."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.calibration import Setting
from planner.laws import Law, Mixture
from planner.solve import Point
from planner.uncertainty import LEVEL, with_discrepancy

_POINTS = 48  # of a curve, and its ends


class Band(NamedTuple):
    flops: np.ndarray
    low: np.ndarray
    high: np.ndarray


def refit_band(setting: Setting, form: str, ud: float, along: Point, guessing: float = np.inf) -> Band | None:
    """The central 95% of what the refits predict for plans along compute; None where there are no refits.

    At each point that is the interval of the loss that `plan` gives for the same configuration, which ends at
    the loss of `guessing`.
    """
    members = setting.law_draws(form, of_losses=True)
    there = np.flatnonzero(np.isfinite(along.loss))
    if members is None or not len(there):
        return None
    picked = there[np.unique(np.linspace(0, len(there) - 1, _POINTS).astype(int))]
    losses = _losses(members, ud, along.params[picked], along.epochs[picked], setting.discrepancy(form))
    enough = np.isfinite(losses).mean(axis=1) >= 0.5
    ends = 0.5 - LEVEL / 2, 0.5 + LEVEL / 2
    low, high = np.nanquantile(np.where(np.isfinite(losses), losses, np.nan)[enough], ends, axis=1)
    most = np.maximum(guessing, along.loss[picked][enough])
    return Band(along.flops[picked][enough], np.minimum(low, most), np.minimum(high, most))


def _losses(
    members: Law, ud: float, params: np.ndarray, epochs: np.ndarray, misfit: np.ndarray | None
) -> np.ndarray:
    """Of each configuration by each member, (configurations, members)."""
    parts = members.parts if isinstance(members, Mixture) else (members,)
    with np.errstate(over="ignore", invalid="ignore"):
        found = [part.terms(params[:, None], ud, epochs[:, None]) for part in parts]
        loss, irreducible = (
            np.concatenate([np.asarray(getattr(terms, name)) for terms in found], axis=1)
            for name in ("loss", "irreducible")
        )
        if isinstance(members, Mixture):
            loss, irreducible = loss[:, members.order], irreducible[:, members.order]
        return with_discrepancy(loss, irreducible, misfit)
