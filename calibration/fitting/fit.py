"""`fit`: a run table in, a Calibration out.

By default that is a Bayesian fit (`bayes`): all forms with a prior from a shipped calibration, all weight
decays together, averaged as far as the runs bear each form out, with draws of the posterior for the
intervals. `two_phase` is the paper's own fit, for `prior="none"`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.bayes.hierarchical import hierarchical_fit, reason, settings_of
from calibration.fitting.bayes.prior import AUTO, NO_PRIOR, fingerprints
from calibration.fitting.evaluate.summary import PAPER_DELTA
from calibration.fitting.huber import RESAMPLE, SCHEMES
from calibration.fitting.runs.tables import Origin
from calibration.fitting.solver import Progress, silent
from calibration.fitting.two_phase import NOISE, two_phase_fit
from planner.calibration import Calibration
from planner.inputs import InvalidInput, number
from planner.laws import BASE_FORM, FORMS, STANDARD, check_form

_FEWEST_RUNS = 3
_MOST_REFITS = 100_000


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
    method, facts, progress = method or Method(), (origin or Origin()).facts(), progress or silent
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"must be a text such as 'my-corpus'; got {name!r}.", field="name")
    if method.prior == NO_PRIOR:
        settings, kept = two_phase_fit(table, method, progress)
    else:
        if len(table) < _FEWEST_RUNS:
            says = "run says" if len(table) == 1 else "runs say"
            raise InvalidInput(f"{len(table)} {says} nothing about a law; {_FEWEST_RUNS} would do.")
        forms = tuple(dict.fromkeys((BASE_FORM, *method.laws)))
        # The posterior of every form at every weight decay, and how much each form counts.
        found = hierarchical_fit(table, forms, str(method.prior), facts.get("vocab_size"), progress)
        best = max(found.weights, key=found.weights.__getitem__)
        kept = {
            "recommendation": {"law": best, "reason": reason(found), "weights": dict(found.weights)},
            "left_out": {},
            "prior": {"name": found.prior.name, "left_out": list(found.set_aside)},
        }
        settings = settings_of(found, table, method.bootstrap, method.seed, progress)
    return Calibration(
        name=name,
        source=source,
        **facts,
        default_law=kept["recommendation"]["law"],
        settings=settings,
        **kept,
        run_fingerprints=fingerprints(table),
    )


@dataclass(frozen=True)
class Method:
    """Which laws are fitted, and how: the choices that a user has, checked.

    `delta` is Huber's threshold on ln(loss), or "noise" to choose it from the residuals. `joint` fits base
    law and repetition together instead of locking the base. `bootstrap` is how many refits the intervals come
    from, none for 0; `calibration.fitting.huber` says what `resample` and `scheme` mean. The same `seed`
    gives the same result.

    `prior` is the calibration to start from: "auto" (the shipped calibration that suits the runs best), the
    name of a calibration, or "none": the fit of the paper, which alone knows `delta`, `joint`, `resample`
    and `scheme`. It is "auto" where nothing is said and none of these is asked for. With a prior, forms are
    averaged.
    """

    laws: Iterable[str] = field(default_factory=lambda: STANDARD)  # each once, in the order of the registry
    delta: float | str = PAPER_DELTA
    joint: bool = False
    bootstrap: int = 1000
    resample: str = "runs"
    scheme: str = "residuals"
    seed: int = 0
    prior: str | None = None

    def __post_init__(self) -> None:
        delta = _delta(self.delta)
        of_paper = (delta, self.joint, self.resample, self.scheme)
        default = of_paper == (PAPER_DELTA, False, RESAMPLE[0], SCHEMES[0])
        prior = (AUTO if default else NO_PRIOR) if self.prior is None else self.prior
        named = isinstance(prior, str) and bool(prior.strip())
        _require(named, f"must be {AUTO!r}, {NO_PRIOR!r} or a calibration; got {prior!r}.", "prior")
        others = "‹delta›, ‹joint›, ‹resample› and ‹scheme›"
        text = f"{prior} goes without {others}: those belong to {NO_PRIOR!r}."
        _require(default or prior == NO_PRIOR, text, "prior")
        for name, known in (("resample", RESAMPLE), ("scheme", SCHEMES)):
            chosen = getattr(self, name)
            _require(chosen in known, f"must be one of {', '.join(known)}; got {chosen!r}.", name)
        text = f"must be 0 (no intervals) or a whole number from 2 to {_MOST_REFITS}, such as 1000; "
        possible = _is_whole(self.bootstrap) and self.bootstrap != 1 and self.bootstrap <= _MOST_REFITS
        _require(possible, f"{text}got {self.bootstrap!r}.", "bootstrap")
        text = f"must be a whole number of at least 0, such as 0; got {self.seed!r}."
        _require(_is_whole(self.seed), text, "seed")
        asked = [self.laws] if isinstance(self.laws, str) else list(self.laws)
        _require(bool(asked), f"must name at least one of {', '.join(FORMS)}.", "laws")
        wanted = {check_form(law) for law in asked}
        checked = {"laws": tuple(form for form in FORMS if form in wanted), "delta": delta, "prior": prior}
        checked |= {"bootstrap": int(self.bootstrap), "seed": int(self.seed)}
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def _require(holds: bool, text: str, field: str) -> None:
    if not holds:
        raise InvalidInput(text, field=field)


def _delta(delta: Any) -> float | str:
    if delta == NOISE:
        return NOISE
    if isinstance(delta, str):
        try:
            delta = float(delta)
        except ValueError:
            raise InvalidInput(
                f"must be a number such as 0.001, or {NOISE!r}; got {delta!r}.", field="delta"
            ) from None
    return number(delta, "delta", examples="0.001")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)
