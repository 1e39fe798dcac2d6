"""`fit`: a run table in, a Calibration out.

By default that is a Bayesian fit (`bayes`): all forms with a prior from a shipped calibration, all weight
decays together, averaged as far as the runs bear each form out, with draws of the posterior for the
intervals. `two_phase` is the paper's own fit, for `prior="none"`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.bayes.hierarchical import Drawn, HierarchicalFit, by_weight_decay, hierarchical_fit
from calibration.fitting.bayes.prior import NO_PRIOR, fingerprints
from calibration.fitting.bayes.settings import reason, setting_of
from calibration.fitting.huber import Progress
from calibration.fitting.method import Method
from calibration.fitting.runs.tables import Origin
from calibration.fitting.two_phase import two_phase_fit
from planner.calibration import Calibration
from planner.inputs import InvalidInput
from planner.laws import BASE_FORM

FEWEST_RUNS = 3
_FEWEST_DRAWS = 5  # of all draws, one part in so many for a form that hardly counts


def fit(
    table: pd.DataFrame,
    method: Method | None = None,
    *,
    origin: Origin | None = None,
    name: str = "my-calibration",
    source: str = "",
    progress: Progress | None = None,
) -> Calibration:
    """Fit laws to a run table, as `read_runs` gives it, for each of its weight decays: with a prior and
    averaged, or where `method` says so each form alone.

    `origin` says where the runs come from, `source` how the calibration came about; both are only recorded.
    """
    method, facts = method or Method(), (origin or Origin()).facts()
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"must be a text such as 'my-corpus'; got {name!r}.", field="name")
    if method.prior == NO_PRIOR:
        return two_phase_fit(table, method, facts=facts, name=name, source=source, progress=progress)
    if len(table) < FEWEST_RUNS:
        says = "run says" if len(table) == 1 else "runs say"
        raise InvalidInput(f"{len(table)} {says} nothing about a law; {FEWEST_RUNS} would do.")
    forms = tuple(dict.fromkeys((BASE_FORM, *method.forms)))
    # The posterior of every form at every weight decay, and how much each form counts.
    found = hierarchical_fit(table, forms, str(method.prior), facts.get("vocab_size"), progress)
    drawn = _drawn(found, forms, method.bootstrap, method.seed, progress)
    settings = [
        setting_of(found, decay, runs, {form: one[decay] for form, one in drawn.items()})
        for decay, runs in by_weight_decay(table).items()
    ]
    best = max(found.weights, key=found.weights.__getitem__)
    kept: dict[str, Any] = {
        "recommendation": {"law": best, "reason": reason(found), "weights": dict(found.weights)},
        "left_out": {},
        "prior": {"name": found.prior.name, "left_out": list(found.set_aside)},
        "run_fingerprints": fingerprints(table),
    }
    return Calibration(name=name, source=source, **facts, default_law=best, settings=tuple(settings), **kept)


def _drawn(
    found: HierarchicalFit, forms: tuple[str, ...], draws: int, seed: int, progress: Progress | None
) -> dict[str, dict[float, Drawn]]:
    """Draws of every form at every weight decay; those that count more have more of them."""
    if not draws:
        return {}
    drawn = {}
    for done, form in enumerate(forms):
        if progress is not None:
            progress(f"draws of {form}", 0.5 + 0.5 * done / len(forms))
        count = max(int(np.ceil(found.weights.get(form, 0.0) * draws)), draws // _FEWEST_DRAWS, 2)
        drawn[form] = found.draws(form, count, seed)
    return drawn
