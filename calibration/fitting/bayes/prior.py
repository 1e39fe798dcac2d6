r"""The prior: the shipped calibrations, and how far corpora differ.

A prior is one setting of a shipped calibration: its laws in coordinates (`solver`) in which
corpora differ by factors. Around it theta is normal. Corpora differ the more, the further their models are
apart in size: at a distance of d decades the variance is

    S^2 (1 + d^2),

and S^2 is estimated from the shipped calibrations, each squared difference divided by its 1 + d^2, together
with what the registry says, which counts as two corpora. All terms may be scaled together, since another
tokenizer packs more or fewer bytes into a token, and are scaled by ln(vocabulary) where both vocabularies
are known. A form that a calibration lacks takes what it shares with others from them, and ordinary values
for the rest.

A calibration that was fitted on any of the runs at hand is no prior for them: each run has a fingerprint, and
calibrations carry those of their runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.solver import Reference
from planner.calibration import Calibration, Setting, shipped_names
from planner.inputs import InvalidInput
from planner.laws import BASE_FORM, DEFAULT_FORM, FORMS

AUTO, NO_PRIOR = "auto", "none"
_DECAYS = 0.5  # of what corpora differ by is what weight decays of one corpus differ by
_SCALE = 0.2  # of ln(nats per token), between tokenizers and corpora
_NO_DECAY = 1e-3  # weight decays below are as good as none
_COUNTS = 2.0  # of how many corpora the registry's spread counts for


class ThetaPrior(NamedTuple):
    """What is known of theta of a form before any run."""

    mean: np.ndarray
    covariance: np.ndarray
    between_decays: np.ndarray  # how far the weight decays of one corpus differ: a covariance


@dataclass(frozen=True)
class Prior:
    """One setting of a calibration, as the prior of others."""

    name: str
    calibration: Calibration
    setting: Setting
    others: tuple[str, ...]  # shipped calibrations from which the spread was learnt
    scale: float = 0.0  # ln of what all terms are multiplied with
    wider: float = 1.0  # variance, because the sizes that are asked for are not those it was fitted on

    @cached_property
    def reference(self) -> Reference:
        return Reference.of(self.setting)

    @property
    def irreducible(self) -> float:
        return float(self.setting.law(BASE_FORM).parameters["E"] * np.exp(self.scale))

    def of(self, form: str) -> ThetaPrior:
        parameters = FORMS[form].parameters
        # What the setting does not have comes from its nearest relatives, of which the last one counts, or is
        # ln of the middle of what a fit starts from.
        known: dict[str, float] = {}
        for relative in (*self.setting.laws, DEFAULT_FORM, BASE_FORM, form):
            known |= _theta(self.setting, relative)
        starts = [np.mean(np.log([start for start in one.starts if start > 0])) for one in parameters]
        mean = [known.get(one.name, start) for one, start in zip(parameters, starts, strict=True)]
        is_term = np.array([float(one.kind in ("amplitude", "linear")) for one in parameters])
        tokenizers = _SCALE**2 * np.outer(is_term, is_term)
        spread = self._spread(form)
        return ThetaPrior(
            np.array(mean, dtype=float) + self.scale * is_term,
            np.diag(self.wider * spread**2) + tokenizers,
            np.diag(self.wider * (_DECAYS * spread) ** 2),
        )

    def _spread(self, form: str) -> np.ndarray:
        """Standard deviations of theta between corpora whose models are of this size: what the registry says,
        and what the shipped calibrations differ by, each counting the less the further it is away.
        """
        corpora = [Calibration.load(name).settings for name in self.others]
        # Of a form that a setting lacks, a parameter is as in the usual one.
        known = [[_theta(one, DEFAULT_FORM) | _theta(one, form) for one in settings] for settings in corpora]
        found = []
        for parameter in FORMS[form].parameters:
            values, trust = [], []
            for settings, thetas in zip(corpora, known, strict=True):
                if all(parameter.name in theta for theta in thetas):
                    values.append(np.mean([theta[parameter.name] for theta in thetas]))
                    trust.append(1 / _wider(settings[0], self.reference.params))
            apart = 0.0
            if values:
                apart = float(np.dot(trust, (values - np.average(values, weights=trust)) ** 2))
            more = max(len(values) - 1, 0)
            found.append((_COUNTS * parameter.prior_sd**2 + apart) / (_COUNTS + more))
        return np.sqrt(found)


def _theta(setting: Setting, form: str) -> dict[str, float]:
    """theta of a form by the names of its parameters, in the middle of the setting's runs; nothing where the
    setting has no such law.
    """
    if form not in setting.laws:
        return {}
    law = setting.law(form)
    return dict(zip(law.declared.names, Reference.of(setting).theta(law).tolist(), strict=True))


def _wider(setting: Setting, params: float | None) -> float:
    """By how much corpora vary more with models of this size than with those of a setting."""
    return 1.0 if params is None else 1 + float(np.log10(params / Reference.of(setting).params)) ** 2


def fingerprints(table: pd.DataFrame) -> list[str]:
    """Of all runs of a table, each once, in order: the same for the same run, however it was rounded."""
    columns = table[["params", "unique_tokens", "epochs", "loss"]].to_numpy(dtype=float)
    texts = {f"{n:.2e} {u:.2e} {epochs:.3g} {loss:.4f}" for n, u, epochs, loss in columns}
    return sorted({hashlib.sha256(text.encode()).hexdigest()[:8] for text in texts})


def shares_runs(calibration: Calibration, runs: Collection[str]) -> bool:
    """Whether a calibration was fitted on some of the runs with these fingerprints."""
    return bool(set(calibration.run_fingerprints) & set(runs))


def candidates(
    name: str | Calibration,
    runs: Collection[str] = (),
    vocab_size: int | None = None,
    weight_decays: Sequence[float] = (),
    params: float | None = None,
) -> tuple[list[Prior], list[str]]:
    """The priors that a name (or a calibration) stands for, `auto` for all shipped ones, and the calibrations
    that are left out because they were fitted on some of the runs with these fingerprints; `params` is the
    middle of the runs' sizes.

    Of each calibration it is the setting nearest to the weight decays of the runs: single-epoch runs fit
    several as well, and what repetition costs, which they do not show, depends on it most of all.
    """
    known = {one: Calibration.load(one) for one in shipped_names()}
    asked = known if name == AUTO else {str(getattr(name, "name", name)): Calibration.load(name)}
    seen = [one for one, found in {**known, **asked}.items() if shares_runs(found, runs)]
    usable = {one: found for one, found in asked.items() if one not in seen}
    if not usable:
        raise InvalidInput(
            f"{', '.join(asked)} was fitted on some of these runs and cannot be the prior of "
            f"them; ‹prior› '{AUTO}' takes another one.",
            field="prior",
        )
    others = tuple(one for one in known if one not in seen)
    how = (others, vocab_size, weight_decays, params)
    found = [prior for calibration in usable.values() for prior in _nearest(calibration, *how)]
    if not found:
        raise InvalidInput(
            f"{', '.join(usable)} has no {BASE_FORM} law to start from; ‹prior› '{AUTO}' takes another one.",
            field="prior",
        )
    return found, [one for one in seen if one in asked]


def _nearest(
    calibration: Calibration,
    others: tuple[str, ...],
    vocab_size: int | None,
    weight_decays: Sequence[float],
    params: float | None,
) -> list[Prior]:
    """The settings of a calibration nearest to the middle of these weight decays, as priors; all where there
    are none, or several as near.
    """
    settings = [one for one in calibration.settings if BASE_FORM in one.laws]
    if len(weight_decays) and settings:
        middle = np.mean(np.log(np.maximum(weight_decays, _NO_DECAY)))
        apart = [abs(float(np.log(max(one.weight_decay, _NO_DECAY))) - middle) for one in settings]
        settings = [one for one, far in zip(settings, apart, strict=True) if far <= min(apart) + 1e-6]
    scale = 0.0  # ln of nats per token: a larger vocabulary has more bytes in a token
    if vocab_size is not None and calibration.vocab_size is not None:
        scale = float(np.log(np.log(vocab_size) / np.log(calibration.vocab_size)))
    found = []
    for setting in settings:
        where = f" at weight decay {setting.weight_decay:g}" if len(calibration.settings) > 1 else ""
        known = (calibration, setting, others, scale, _wider(setting, params))
        found.append(Prior(calibration.name + where, *known))
    return found
