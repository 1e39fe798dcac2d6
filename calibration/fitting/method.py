"""How laws are fitted and how often again: the choices that a user has, checked in one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibration.fitting.bayes.prior import AUTO, NO_PRIOR
from calibration.fitting.bootstrap import RESAMPLE, SCHEMES
from calibration.fitting.huber import PAPER_DELTA
from planner.inputs import InvalidInput, number
from planner.laws import FORMS, STANDARD, check_form

NOISE = "noise"
_MOST_REFITS = 100_000


@dataclass(frozen=True)
class Method:
    """Which laws are fitted, and how.

    `delta` is Huber's threshold on ln(loss), or "noise" to choose it from the residuals. `joint` fits base
    law and repetition together instead of locking the base. `bootstrap` is how many refits the intervals come
    from, none for 0; `calibration.fitting.bootstrap` says what `resample` and `scheme` mean. The same `seed`
    gives the same result.

    `prior` is the calibration to start from: "auto" (the shipped calibration that suits the runs best), the
    name of a calibration, or "none": the fit of the paper, which alone knows `delta`, `joint`, `resample`
    and `scheme`. It is "auto" where nothing is said and none of these is asked for. With a prior, forms are
    averaged.
    """

    laws: Iterable[str] = field(default_factory=lambda: STANDARD)
    delta: float | str = PAPER_DELTA
    joint: bool = False
    bootstrap: int = 1000
    resample: str = "runs"
    scheme: str = "residuals"
    seed: int = 0
    prior: str | None = None

    @property
    def forms(self) -> tuple[str, ...]:
        """The laws, each once, in the order of the registry."""
        return tuple(self.laws)

    def __post_init__(self) -> None:
        asked = (_delta(self.delta), self.joint, self.resample, self.scheme)
        plain = asked == (PAPER_DELTA, False, RESAMPLE[0], SCHEMES[0])
        object.__setattr__(self, "prior", _prior(self.prior, plain))
        _one_of(self.resample, RESAMPLE, "resample")
        _one_of(self.scheme, SCHEMES, "scheme")
        checked = {
            "laws": _forms(self.laws),
            "delta": _delta(self.delta),
            "bootstrap": _replicates(self.bootstrap),
            "seed": _seed(self.seed),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def _prior(prior: Any, plain: bool) -> str:
    if prior is None:
        return AUTO if plain else NO_PRIOR
    if not isinstance(prior, str) or not prior.strip():
        raise InvalidInput(f"must be {AUTO!r}, {NO_PRIOR!r} or a calibration; got {prior!r}.", field="prior")
    if prior != NO_PRIOR and not plain:
        raise InvalidInput(
            f"{prior} goes without ‹delta›, ‹joint›, ‹resample› and ‹scheme›: those belong to {NO_PRIOR!r}.",
            field="prior",
        )
    return prior


def _forms(laws: Iterable[str]) -> tuple[str, ...]:
    """Each once, in the order of the registry."""
    names = [laws] if isinstance(laws, str) else list(laws)
    if not names:
        raise InvalidInput(f"must name at least one of {', '.join(FORMS)}.", field="laws")
    wanted = {check_form(name) for name in names}
    return tuple(form for form in FORMS if form in wanted)


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


def _replicates(value: Any) -> int:
    if not _is_whole(value) or value < 0 or value == 1 or value > _MOST_REFITS:
        raise InvalidInput(
            f"must be 0 (no intervals) or a whole number from 2 to {_MOST_REFITS}, such as 1000; "
            f"got {value!r}.",
            field="bootstrap",
        )
    return int(value)


def _seed(value: Any) -> int:
    if not _is_whole(value) or value < 0:
        raise InvalidInput(f"must be a whole number of at least 0, such as 0; got {value!r}.", field="seed")
    return int(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _one_of(value: Any, known: tuple[str, ...], field: str) -> None:
    if value not in known:
        raise InvalidInput(f"must be one of {', '.join(known)}; got {value!r}.", field=field)
