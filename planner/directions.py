r"""Where a question leaves the runs behind a law: in which direction, what the forms make of it there, and
the one run that would settle it.

Forms that describe the same runs equally well part beyond them. Which of them to trust depends on the way:
one that holds for more compute may be wrong for more epochs. A calibration therefore keeps, for each
direction, how far every form was off on other tables beyond what it had seen there (`law_skill`, over the
best form). Where a question goes in such a direction, the weights of an average of forms become

    w  ~  (weight by the runs)  x  (error in these directions)^-8,

geometric mean over the directions in which the question leaves the runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from planner.allocation import FLOPS_PER_PARAM_TOKEN, allocate
from planner.calibration_files import Calibration, FittedRange, Setting
from planner.laws import AVERAGE
from planner.remarks import Remark
from planner.units import epochs as in_epochs
from planner.units import scientific, short

_FIRM = 8.0  # exponent of an error: the likelihood of so many independent ones
_LEAST = 0.01  # weight below which a form is dropped
_HEARD = 0.05  # weight from which a form is heard
_NOTICED = 0.01  # nats between forms that are worth a word
_BEYOND = 1.02  # ratio from which something is outside of the runs
_NAMES = {"compute": "compute", "size": "model size", "data": "data", "epochs": "epochs"}


class Place(NamedTuple):
    """A configuration."""

    params: float
    unique_tokens: float
    epochs: float

    @property
    def flops(self) -> float:
        return FLOPS_PER_PARAM_TOKEN * self.params * self.unique_tokens * self.epochs

    def __str__(self) -> str:
        return f"{short(self.params)} parameters on {short(self.unique_tokens)} for {in_epochs(self.epochs)}"


def leaving(fitted: FittedRange, place: Place) -> dict[str, float]:
    """The directions in which a configuration leaves the runs, and by which factor."""
    repeated = place.epochs > 1
    sizes = (fitted.repeated_params if repeated else None) or fitted.params
    data = (fitted.repeated_unique_tokens if repeated else None) or fitted.unique_tokens
    factors = {
        "size": place.params / sizes[1],
        "data": place.unique_tokens / data[1],
        "epochs": place.epochs / fitted.epochs[1],
        "compute": place.flops / fitted.flops[1] if fitted.flops else 1.0,
    }
    return {direction: factor for direction, factor in factors.items() if factor > _BEYOND}


def towards(known: Calibration, form: str, ud: float, flops: float) -> Calibration:
    """The calibration as it answers for this budget: forms weighed by skill in the question's direction."""
    if form != AVERAGE or not any(setting.law_skill for setting in known.settings):
        return known
    ways = tuple(_ways(setting, ud, flops) for setting in known.settings)
    if not any(ways):
        return known
    if ways not in known.turned:
        settings = [_turned(setting, way) for setting, way in zip(known.settings, ways, strict=True)]
        known.turned[ways] = known.with_settings(settings)
    return known.turned[ways]


def _ways(setting: Setting, ud: float, flops: float) -> tuple[str, ...]:
    """In which directions the best plan for this budget leaves the runs of a setting."""
    best = allocate(setting.law(AVERAGE), ud, flops)
    place = Place(float(best.params), ud * min(float(best.epochs), 1.0), max(float(best.epochs), 1.0))
    return tuple(sorted(direction for direction in leaving(setting.fitted_on, place)))


def _turned(setting: Setting, ways: tuple[str, ...]) -> Setting:
    weights = turned_weights(setting.law_weights, [setting.law_skill.get(way, {}) for way in ways])
    return setting.with_weights(weights)


def turned_weights(weights: Mapping[str, float], skills: list[Mapping[str, float]]) -> dict[str, float]:
    """The weights times the errors in some directions to the power of -8; a form without any stands in the
    middle.
    """
    told = [skill for skill in skills if any(form in skill for form in weights)]
    if not told:
        return dict(weights)
    behind = np.zeros(len(weights))
    for skill in told:
        known = [np.log(skill[form]) for form in weights if form in skill]
        behind += [np.log(skill[form]) if form in skill else np.median(known) for form in weights]
    score = np.log(list(weights.values())) - _FIRM * behind / len(told)
    raw = np.exp(score - score.max())
    raw[raw < _LEAST] = 0.0
    raw /= raw.sum()
    return {form: float(share) for form, share in zip(weights, raw, strict=True) if share}


# -- in words ------------------------------------------------------------------------------------------------


def where_it_ends(setting: Setting, place: Place) -> list[Remark]:
    """That a plan leaves the runs, by how much forms that count disagree there, and what would settle it."""
    beyond = leaving(setting.fitted_on, place)
    heard = [form for form, weight in setting.law_weights.items() if weight >= _HEARD]
    if not beyond or len(heard) < 2:
        return []
    apart = _apart(setting, heard, place)
    if apart.nats < _NOTICED:
        return []
    moved = [way for way in beyond if way != "compute"] or list(beyond)  # compute is more of the others
    ways = {
        way: apart.nats - _apart(setting, heard, _back(setting.fitted_on, place, way)).nats for way in moved
    }
    most = max(ways, key=lambda way: ways[way])
    text = (
        f"The plan leaves the runs in {_listed(beyond)}; there the forms disagree by {apart.nats:.3f} nats "
        f"({apart.low} {apart.least:.3f}, {apart.high} {apart.most:.3f}), most of it by {_NAMES[most]}."
    )
    run = settling_run(setting, place)
    if run is not None:
        share = run.place.flops / place.flops
        text += (
            f" One run would settle it: {run.place} ({scientific(run.place.flops)} FLOPs, {share:.0%} of the "
            f"plan), where they differ by {run.nats:.3f}."
        )
    return [Remark("law_ends", text)]


def settled_by(known: Calibration, ud: float, flops: float, weight_decay: float | None = None) -> str:
    """What `where_it_ends` says of the best plan for a budget that is all spent; nothing where forms agree or
    where the calibration believes in one only.
    """
    if not all(setting.law_weights for setting in known.settings):
        return ""
    turned = towards(known, AVERAGE, ud, flops)
    setting = turned.settings[0] if weight_decay is None else turned.setting(weight_decay)
    best = allocate(setting.law(AVERAGE), ud, flops)
    epochs = float(best.epochs)
    return " ".join(
        where_it_ends(setting, Place(float(best.params), ud * min(epochs, 1.0), max(epochs, 1.0)))
    )


class Apart(NamedTuple):
    """How far forms are apart somewhere."""

    nats: float
    low: str
    least: float
    high: str
    most: float


def _apart(setting: Setting, forms: list[str], place: Place) -> Apart:
    losses = {form: float(setting.law(form).loss(*place)) for form in forms}
    low, high = (end(losses, key=lambda form: losses[form]) for end in (min, max))
    return Apart(losses[high] - losses[low], low, losses[low], high, losses[high])


def _back(fitted: FittedRange, place: Place, way: str) -> Place:
    """The place moved back into the runs along one direction; along compute, in size."""
    if way == "data":
        return place._replace(unique_tokens=(fitted.repeated_unique_tokens or fitted.unique_tokens)[1])
    if way == "epochs":
        return place._replace(epochs=fitted.epochs[1])
    if way == "compute" and fitted.flops:
        return place._replace(params=place.params * fitted.flops[1] / place.flops)
    return place._replace(params=(fitted.repeated_params or fitted.params)[1])


class Settling(NamedTuple):
    """A run that tells forms apart, and by how many nats they differ there."""

    place: Place
    nats: float


_CHEAP = (0.03, 0.06, 0.12, 0.25, 0.5)  # of the plan's compute
_ENOUGH = 0.5  # of the disagreement


def settling_run(setting: Setting, place: Place) -> Settling | None:
    """The cheapest run that shows half of what forms disagree by at this place; None where none does.

    It is the plan with a smaller model, with less data, with both, or with fewer epochs: what can be had for
    a share of the compute. Size and data are no less than the runs had, nor is the data so little that there
    are more parameters a token than in plan and runs.
    """
    fitted = setting.fitted_on
    most_a_token = max(place.params / place.unique_tokens, fitted.params[1] / fitted.unique_tokens[0])
    heard = [form for form, weight in setting.law_weights.items() if weight >= _HEARD]
    if len(heard) < 2:
        return None
    wanted = _ENOUGH * _apart(setting, heard, place).nats
    for share in _CHEAP:
        root = share**0.5
        candidates = (
            place._replace(params=place.params * share),
            place._replace(params=place.params * root, unique_tokens=place.unique_tokens * root),
            place._replace(unique_tokens=place.unique_tokens * share),
            place._replace(epochs=max(place.epochs * share, 1.0)),
        )
        found = [
            Settling(one, _apart(setting, heard, one).nats)
            for one in candidates
            if one.flops < place.flops
            and one.params >= fitted.params[0]
            and one.unique_tokens >= fitted.unique_tokens[0]
            and one.params / one.unique_tokens <= most_a_token * (1 + 1e-9)
        ]
        best = max(found, key=lambda one: one.nats, default=None)
        if best is not None and best.nats >= max(wanted, _NOTICED):
            return best
    return None


def _listed(beyond: Mapping[str, float]) -> str:
    parts = [f"{_NAMES[way]} ({factor:.2g}x)" for way, factor in beyond.items()]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
