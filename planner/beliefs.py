"""What plans say where a calibration believes in several forms: which weight decay is probably best, whether
the
forms agree, and what the fit warned of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.calibration_files import Calibration, Setting
from planner.laws import Law, belonging
from planner.remarks import Remark
from planner.results import Findings
from planner.spent import Spent
from planner.units import epochs, short

SURE_ENOUGH = 0.8  # below this probability no weight decay is called the best
_COUNTS = 0.05  # weight from which a form is heard
_APART = 2.0  # ratio of sizes that is a disagreement


def decay_probabilities(
    known: Calibration, form: str, ud: float, best: Mapping[float, Spent]
) -> dict[str, float] | None:
    """The share of draws in which the plan of each weight decay is the best one; None without draws."""
    settings = [setting for setting in known.candidates(form) if setting.weight_decay in best]
    members = [law for setting in settings if (law := setting.ensemble_law(form)) is not None]
    if len(settings) < 2 or len(members) < len(settings) or not all(one.law_weights for one in settings):
        return None
    plans = [(float(best[s.weight_decay].params), ud, float(best[s.weight_decay].epochs)) for s in settings]
    losses = np.concatenate([_losses(laws, plans) for laws in belonging(members)], axis=1)
    if not np.isfinite(losses).any(axis=0).all():
        return None
    wins = np.bincount(np.nanargmin(losses, axis=0), minlength=len(settings)) / losses.shape[1]
    return {f"{one.weight_decay:g}": float(share) for one, share in zip(settings, wins, strict=True)}


def _losses(laws: Sequence[Law], plans: Sequence[tuple[float, float, float]]) -> np.ndarray:
    """Of the plan of each weight decay by the members of its law, (weight decays, members)."""
    return np.stack([law.loss(*plan) for law, plan in zip(laws, plans, strict=True)])


def _open_question(probabilities: Mapping[str, float] | None) -> list[Remark]:
    """That no weight decay is the winner, where none is."""
    if probabilities is None or max(probabilities.values()) >= SURE_ENOUGH:
        return []
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{decay} with {share:.0%}" for decay, share in ranked[:4])
    more = f" and {len(ranked) - 4} more" if len(ranked) > 4 else ""
    text = (
        f"which weight decay is best is open: {shown}{more} probability; more runs of these would settle it."
    )
    return [Remark("weight_decay_open", text)]


def disagreement(found: Findings) -> list[Remark]:
    """That forms which count want quite different models, where they do."""
    weights = found.law_weights or {}
    heard = [one for one in found.other_laws if weights.get(one.law, 0.0) >= _COUNTS]
    if len(heard) < 2:
        return []
    small, large = (end(heard, key=lambda one: one.params) for end in (min, max))
    if large.params < _APART * small.params:
        return []
    ends = (
        f"{one.law} ({weights[one.law]:.0%}) wants {short(one.params)} for {epochs(one.epochs)}"
        for one in (small, large)
    )
    costs = max(small.regret, large.regret)
    text = f"the forms disagree: {', '.join(ends)}; by their average that costs up to {costs:.3f} nats."
    return [Remark("forms_disagree", text)]


def fit_warnings(setting: Setting, found: Findings | None = None, *, committed: bool = False) -> list[Remark]:
    """What the fit behind a setting warned of and, unless one was asked for, that no weight decay is best."""
    warned = [Remark("fit", text) for text in setting.warnings]
    if found is None or committed:
        return warned
    return warned + _open_question(found.weight_decay_probabilities)
