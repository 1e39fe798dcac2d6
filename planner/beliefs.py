"""What plans say where a calibration believes in several forms: which weight decay is probably best, whether
the
forms agree, and what the fit warned of.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.calibration_files import Calibration, Setting
from planner.laws import belonging
from planner.remarks import Remark
from planner.results import Findings
from planner.spending import Spent
from planner.units import epochs, short

SURE_ENOUGH = 0.8  # below this probability no weight decay is called the best
_COUNTS = 0.05  # weight from which a form is heard
_APART = 2.0  # ratio of sizes that is a disagreement


def decay_probabilities(
    known: Calibration, form: str, ud: float, best: Mapping[float, Spent]
) -> dict[str, float] | None:
    """The share of draws in which the plan of each weight decay is the best one; None without paired
    draws."""
    settings = [setting for setting in known.candidates(form) if setting.weight_decay in best]
    members = [setting.ensemble_law(form) for setting in settings]
    known_members = [law for law in members if law is not None]
    if len(settings) < 2 or len(known_members) < len(members) or not all(s.law_weights for s in settings):
        return None
    plans = [best[setting.weight_decay] for setting in settings]
    losses = np.concatenate(
        [
            np.stack(
                [law.loss(float(p.params), ud, float(p.epochs)) for law, p in zip(laws, plans, strict=True)]
            )
            for laws in belonging(known_members)
        ],
        axis=1,
    )
    if not np.isfinite(losses).any(axis=0).all():
        return None
    winner = np.nanargmin(losses, axis=0)
    return {
        f"{decay:g}": float(np.mean(winner == i)) for i, decay in enumerate(s.weight_decay for s in settings)
    }


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
