r"""How well the paper's fit is known: bootstrap refits of all forms at once (Efron 1979).

Both phases are refitted for every replicate, so that the base law's uncertainty reaches the repetition
parameters. Two schemes, each over runs or over (size, budget) cells:

**residuals** (default). The runs stay as they are and their residuals are drawn anew: loss* = predicted loss
x exp(residual*). Single-epoch and repeated runs have pools of their own, each centred by its median and
widened by sqrt(n / (n - p)), p being the five parameters of the base law or those of the repetition form:
what a form misses of repetition says nothing about the base law, whose refits are therefore the same under
all forms. Over cells, what the runs of a cell have in common is drawn per cell, the rest per run.

**weights**. Runs are drawn with replacement, within the single-epoch and within the repeated ones, or whole
cells are; a resample is a row of weights. It asks nothing of the noise, but 20 runs resampled are only 13
different ones: its intervals are far too wide in small tables (studies/fitting/intervals.md has the measured
coverage of both).

Multiplying residuals by random signs or factors (the wild bootstrap) is not offered: with delta = 0.001 the
fit passes through about as many runs as it has parameters, whose residuals vanish, and its intervals come out
far too narrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibration.fitting.coordinates import Array
from calibration.fitting.huber import Fits, Progress, Refits, parameter_arrays, refit
from planner.calibration import Draws
from planner.laws import BASE_FORM, BASE_PARAMETERS, repetition_parameters
from planner.uncertainty import LEVEL

RESAMPLE = ("runs", "cells")
SCHEMES = ("residuals", "weights")
DIGITS = 7
NOISE = 0.007  # of ln(loss) between seeds: over the 16 repeated configurations of the public C4 runs
_FEWEST_LEFT, _NORMAL = 2, 1000  # runs beyond the parameters, or as many normal errors are drawn instead


def bootstrap(
    fits: Fits,
    replicates: int,
    *,
    resample: str = "runs",
    scheme: str = "residuals",
    seed: int | tuple[int, ...] = 0,
    progress: Progress | None = None,
) -> dict[str, Refits]:
    """Refit every form `replicates` times.

    The same seed gives the same refits; settings to be compared need different seeds.
    """
    rng = np.random.default_rng(seed)
    if scheme == "weights":
        return refit(fits, weights=resampled_weights(fits, replicates, resample, rng), progress=progress)
    found: dict[str, Refits] = {}
    # Each form has repeated residuals of its own; all share the base law's refits, to be compared one by one.
    for done, form in enumerate(fits.forms):
        one = Fits(
            fits.runs,
            fits.delta,
            fits.joint,
            {name: fits.forms[name] for name in dict.fromkeys((BASE_FORM, form))},
        )
        targets = resampled_losses(one, form, replicates, resample, np.random.default_rng(seed))
        if progress is not None:
            progress(f"bootstrap of {form}", done / len(fits.forms))
        base = None if fits.joint else found.get(BASE_FORM)
        found[form] = refit(one, targets=targets, base=base)[form]
    return found


def resampled_weights(fits: Fits, replicates: int, resample: str, rng: np.random.Generator) -> Array:
    """Row weights (replicates, runs): how often each run was drawn."""
    runs = fits.runs
    if resample == "cells":
        count = int(runs.cells.max()) + 1
        return rng.multinomial(count, np.full(count, 1 / count), size=replicates).astype(float)[:, runs.cells]
    weights = np.empty((replicates, len(runs)))
    for part in (runs.single, ~runs.single):
        if size := int(part.sum()):
            weights[:, part] = rng.multinomial(size, np.full(size, 1 / size), size=replicates)
    return weights


def resampled_losses(
    fits: Fits, form: str, replicates: int, resample: str, rng: np.random.Generator
) -> Array:
    """ln(loss) (replicates, runs): predictions with residuals drawn anew."""
    runs, fit = fits.runs, fits.forms[form]
    predicted = fits.log_prediction(form, fit.base, fit.repetition)
    # Where the base law was fitted first, the noise of single-epoch runs is what it left, under any form.
    single = predicted if fits.joint else fits.log_prediction(BASE_FORM, fit.base, np.empty(0))
    drawn = np.empty((replicates, len(runs)))
    luck = rng.random((replicates, int(runs.cells.max()) + 1))  # of each cell, in both of its parts
    parts = (
        (runs.single, single, len(BASE_PARAMETERS)),
        (~runs.single, predicted, len(repetition_parameters(form))),
    )
    for part, expected, p in parts:
        n = int(part.sum())
        if not n:
            continue
        residual = (runs.ln_loss - expected)[part]
        residual = (residual - np.median(residual)) * np.sqrt(n / max(n - p, 1))
        spent = n - p < _FEWEST_LEFT
        if spent:  # the fit passes through the runs: their residuals say nothing of the noise
            residual = np.maximum(np.sqrt(np.mean(residual**2)), NOISE) * rng.standard_normal(_NORMAL)
        if spent or resample == "runs":
            drawn[:, part] = rng.choice(residual, size=(replicates, n))
            continue
        shared, own = _cell_parts(residual, runs.cells[part])
        of_cells = np.sort(shared)[(luck * len(shared)).astype(int)]
        drawn[:, part] = of_cells[:, runs.cells[part]] + rng.choice(own, size=(replicates, n))
    return predicted + drawn


def _cell_parts(residual: Array, cells: Array) -> tuple[Array, Array]:
    """What the runs of a cell share and what they do not, each pool scaled to its estimated variance."""
    number = np.unique(cells, return_inverse=True)[1]
    sizes = np.bincount(number)
    means = np.bincount(number, residual) / sizes
    total = float(np.mean(residual**2))
    several = sizes[number] > 1  # a run alone in its cell says nothing about the difference
    if not several.any():
        return np.zeros(1), residual
    within = (residual - means[number])[several]
    own = min(float((within**2).sum()) / float((sizes[sizes > 1] - 1).sum()), total)
    return _scaled(means - means.mean(), total - own), _scaled(within, own)


def _scaled(values: Array, variance: float) -> Array:
    size = float(np.sqrt(np.mean(values**2)))
    return values * (np.sqrt(variance) / size) if size > 0 else values


def draws_of(fits: Fits, refits: dict[str, Refits], method: str) -> Draws:
    """The refits that converged, as a Calibration keeps them: seven significant digits."""
    laws = {}
    for form, found in refits.items():
        good = found.converged
        if good.sum() >= 2:
            values = parameter_arrays(form, Refits(*(part[good] for part in found)), fits.runs)
            laws[form] = {
                name: [float(f"{value:.{DIGITS}g}") for value in column] for name, column in values.items()
            }
    return Draws(method=method, laws=laws)


def refit_record(fits: Fits, form: str, refits: Refits) -> dict[str, Any]:
    """How the refits of a form ended: how many count, and which parameters sit on a bound in some.

    An interval is open on a side on which more refits sit on the bound than lie beyond its end.
    """
    names = fits.forms[form].names
    names = names if len(names) == refits.side.shape[1] else (*BASE_PARAMETERS, *names)
    side = refits.side[refits.converged]
    record: dict[str, Any] = {"made": len(refits.converged), "kept": len(side), "at_bound": {}, "open": {}}
    for name, column in zip(names, side.T, strict=True):
        if column.any():
            record["at_bound"][name] = int((column != 0).sum())
        ends = [
            end for end, sign in (("below", -1), ("above", 1)) if np.mean(column == sign) >= 0.5 - LEVEL / 2
        ]
        if ends:
            record["open"][name] = ends
    return record
