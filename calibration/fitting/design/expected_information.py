"""What a grid of runs will tell before any of it is trained: which laws, how surely, and what would add most.

How much a run tells does not depend on its loss (see `predictive_covariance`), so a plan's error after all of
them is known now. The plan that is asked about is one for the largest corpus of the grid with ten times the
compute of its dearest run, unless the caller names another."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.coordinates import Points, flops_of, joined, points_of
from calibration.fitting.design.predictive_covariance import PredictiveCovariance
from calibration.fitting.design.proposal import Target, default_form, prior_near, suitable_calibration
from calibration.fitting.design.select_runs import Wanted, select_runs
from calibration.fitting.identify import Run, Unidentified, unidentified
from planner.inputs import compute, count
from planner.laws import STANDARD

_BEYOND = 10.0  # times the dearest run of a grid is what plans are made for
_WORTH = 0.02  # of what is left unknown: a run that settles less is not worth naming
_MOST = 300  # configurations that are reckoned with: more settle no less
_EPOCHS = (1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True)
class ExpectedInformation:
    """What the runs of one weight decay will tell about a plan."""

    weight_decay: float
    runs: int
    calibration: str  # the law that is the prior
    target_ud: float
    target_flops: float
    identified: tuple[str, ...]  # forms that are fitted without a prior
    missing: tuple[Unidentified, ...]
    loss_error: float  # a share of the plan's loss: standard error
    loss_error_before: float
    params_error: float | None  # of ln N*; None where the optimum is flat
    add: Run | None  # what would tell most, within the compute of the dearest run

    def as_dict(self) -> dict[str, Any]:
        missing = [{"form": one.form, "reason": one.reason, "advice": one.remedy} for one in self.missing]
        added = None if self.add is None else self.add._asdict()
        return asdict(self) | {"missing": missing, "add": added}

    @property
    def lacks(self) -> str:
        """In words: which laws the runs do not identify, and what to add; or what would tell most."""
        if not self.missing:
            return "" if self.add is None else f"most would be added by a run of {self.add}"
        first = self.missing[0]
        forms = ", ".join(one.form for one in self.missing) if self.identified else "no law"
        verb = "is identified" if forms == "no law" else "cannot be identified"
        return f"{forms} {verb} ({first.reason}), so that a fit will lean on its prior there; {first.remedy}"


def expected_information(
    grid: pd.DataFrame, *, target_ud: Any = None, target_flops: Any = None
) -> list[ExpectedInformation]:
    """What a table of runs, which need no losses, will tell at each of its weight decays."""
    ud = float(grid["unique_tokens"].max()) if target_ud is None else count(target_ud, "target_ud")
    dearest = float(flops_of(points_of(grid)).max())
    flops = _BEYOND * dearest if target_flops is None else compute(target_flops, "target_flops")
    missing = unidentified(grid, STANDARD)
    decays = [float(decay) for decay in sorted(grid["weight_decay"].unique())]
    return [
        _information_at(
            grid[grid["weight_decay"] == decay], ud, flops, [m for m in missing if m.weight_decay == decay]
        )
        for decay in decays
    ]


def _information_at(
    runs: pd.DataFrame, ud: float, flops: float, missing: list[Unidentified]
) -> ExpectedInformation:
    known, decay = suitable_calibration(ud), float(runs["weight_decay"].iloc[0])
    belief = prior_near(known, default_form(known), decay)
    target = Target.of(belief.law, ud, flops)
    distinct = runs.groupby(["params", "unique_tokens", "epochs"], as_index=False).size()
    distinct = distinct.iloc[np.linspace(0, len(distinct) - 1, min(len(distinct), _MOST)).astype(int)]
    points = points_of(distinct)
    before, after = _errors(belief, target.wanted, points, distinct["size"].to_numpy(dtype=float))
    lacking = {one.form for one in missing}
    return ExpectedInformation(
        weight_decay=decay,
        runs=len(runs),
        calibration=known.name,
        target_ud=ud,
        target_flops=flops,
        identified=tuple(form for form in STANDARD if form not in lacking),
        missing=tuple(missing),
        loss_error=float(after[0]),
        loss_error_before=float(before[0]),
        params_error=float(after[1]) if len(after) > 1 else None,
        add=None if missing else _next(belief, points, target),
    )


def _errors(
    belief: PredictiveCovariance, wanted: Wanted, points: Points, seeds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors of what is wanted before and after all these runs, each trained with so many seeds."""
    covariance, size = belief.covariance(joined(wanted.points, points)), len(wanted)
    among, across = covariance[size:, size:] + np.diag(belief.noise**2 / seeds), covariance[:size, size:]
    after = covariance[:size, :size] - across @ np.linalg.solve(among, across.T)
    both = (wanted.variances(part) for part in (covariance[:size, :size], after))
    before, left = (np.sqrt(np.maximum(variances, 0.0)) for variances in both)
    return before, left


def _next(belief: PredictiveCovariance, points: Points, target: Target) -> Run | None:
    """The run, of sizes and data around those of the grid, that would tell most for its compute."""
    dearest = float(flops_of(points).max())
    params, unique = (_around(values) for values in points[:2])
    cells = [
        (n, u, e)
        for n in params
        for u in unique
        for e in _EPOCHS
        if u <= target.ud * 1.001 and 6 * n * u * e <= dearest * 1.001
    ]
    table = np.array(cells, dtype=float).reshape(-1, 3)
    candidates = (table[:, 0], table[:, 1], table[:, 2])
    chosen = select_runs(
        belief, candidates, target.wanted, dearest, trained=points, least_gain=_WORTH, max_runs=1
    )
    return Run(*cells[chosen[0]]) if chosen else None


def _around(values: np.ndarray) -> list[float]:
    """Some of the distinct values, and one below and above them."""
    distinct = np.unique(values)
    distinct = distinct[np.unique(np.linspace(0, len(distinct) - 1, 5).astype(int))]
    return [float(v) for v in (distinct[0] / 2, *distinct, distinct[-1] * 2)]
