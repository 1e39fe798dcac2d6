r"""The prior: the shipped calibrations, and how far corpora differ.

A prior is one setting of a shipped calibration: its laws in the coordinates of `coordinates`, in which
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
from functools import cache

import numpy as np
import pandas as pd

from calibration.fitting.coordinates import Reference
from planner.calibration import Calibration, Setting, shipped_names
from planner.inputs import InvalidInput
from planner.laws import BASE_FORM, DEFAULT_FORM, FORMS, Parameter

AUTO, NO_PRIOR = "auto", "none"
DECAYS = 0.5  # of what corpora differ by is what weight decays of one corpus differ by
_SCALE = 0.2  # of ln(nats per token), between tokenizers and corpora
_NO_DECAY = 1e-3  # weight decays below are as good as none
_COUNTS = 2.0  # of how many corpora the registry's spread counts for


@dataclass(frozen=True)
class Prior:
    """One setting of a calibration, as the prior of others."""

    calibration: Calibration
    setting: Setting
    others: tuple[str, ...]  # shipped calibrations from which the spread was learnt
    scale: float = 0.0  # ln of what all terms are multiplied with
    wider: float = 1.0  # variance, because the sizes that are asked for are not those it was fitted on

    @property
    def name(self) -> str:
        several = len(self.calibration.settings) > 1
        where = f" at weight decay {self.setting.weight_decay:g}" if several else ""
        return self.calibration.name + where

    @property
    def reference(self) -> Reference:
        return Reference.of(self.setting)

    @property
    def irreducible(self) -> float:
        return float(self.setting.law(BASE_FORM).parameters["E"] * np.exp(self.scale))

    def mean(self, form: str) -> np.ndarray:
        return _centre(self.setting, form) + self.scale * _scaled(form)

    def covariance(self, form: str) -> np.ndarray:
        tokenizers = _SCALE**2 * np.outer(_scaled(form), _scaled(form))
        return np.diag(self.wider * self._spread(form) ** 2) + tokenizers

    def between_decays(self, form: str) -> np.ndarray:
        """How far the weight decays of one corpus differ: a covariance."""
        return np.diag(self.wider * (DECAYS * self._spread(form)) ** 2)

    def _spread(self, form: str) -> np.ndarray:
        return _spread(form, self.others, self.reference.params)


def fingerprint(params: float, unique_tokens: float, epochs: float, loss: float) -> str:
    """Of one run: the same for the same run, however its table was rounded."""
    text = f"{params:.2e} {unique_tokens:.2e} {epochs:.3g} {loss:.4f}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def fingerprints(table: pd.DataFrame) -> list[str]:
    """Of all runs of a table, each once, in order."""
    columns = table[["params", "unique_tokens", "epochs", "loss"]].to_numpy(dtype=float)
    return sorted({fingerprint(*row) for row in columns})


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
    asked = known if name == AUTO else {_called(name): Calibration.load(name)}
    seen = [one for one, found in {**known, **asked}.items() if shares_runs(found, runs)]
    usable = {one: found for one, found in asked.items() if one not in seen}
    if not usable:
        raise InvalidInput(
            f"{', '.join(asked)} was fitted on some of these runs and cannot be the prior of "
            f"them; ‹prior› '{AUTO}' takes another one.",
            field="prior",
        )
    others = tuple(one for one in known if one not in seen)
    found = [
        Prior(calibration, setting, others, _tokenizer(calibration, vocab_size), _wider(setting, params))
        for calibration in usable.values()
        for setting in _nearest(calibration, weight_decays)
    ]
    if not found:
        raise InvalidInput(
            f"{', '.join(usable)} has no {BASE_FORM} law to start from; ‹prior› '{AUTO}' takes another one.",
            field="prior",
        )
    return found, [one for one in seen if one in asked]


def _called(source: str | Calibration) -> str:
    return source.name if isinstance(source, Calibration) else source


def _nearest(calibration: Calibration, weight_decays: Sequence[float]) -> list[Setting]:
    """Those nearest to the middle of these weight decays; all where there are none, or several as near."""
    settings = [one for one in calibration.settings if BASE_FORM in one.laws]
    if not len(weight_decays) or not settings:
        return settings
    middle = np.mean(np.log(np.maximum(weight_decays, _NO_DECAY)))
    apart = [abs(float(np.log(max(one.weight_decay, _NO_DECAY))) - middle) for one in settings]
    return [one for one, far in zip(settings, apart, strict=True) if far <= min(apart) + 1e-6]


def _wider(setting: Setting, params: float | None) -> float:
    """By how much corpora vary more with models of this size than with those of a setting."""
    if params is None:
        return 1.0
    return 1 + float(np.log10(params / Reference.of(setting).params)) ** 2


def shares_runs(calibration: Calibration, runs: Collection[str]) -> bool:
    return bool(set(calibration.run_fingerprints) & set(runs))


def _tokenizer(calibration: Calibration, vocab_size: int | None) -> float:
    """ln of nats per token over those of the calibration: a larger vocabulary has more bytes in a token."""
    if vocab_size is None or calibration.vocab_size is None:
        return 0.0
    return float(np.log(np.log(vocab_size) / np.log(calibration.vocab_size)))


def _scaled(form: str) -> np.ndarray:
    return np.array([float(one.kind in ("amplitude", "linear")) for one in FORMS[form].parameters])


def _centre(setting: Setting, form: str) -> np.ndarray:
    """theta of a form in a setting; what the setting does not have comes from its nearest relatives."""
    reference = Reference.of(setting)
    if form in setting.laws:
        return reference.theta(setting.law(form))
    known: dict[str, float] = {}
    for relative in (*setting.laws, DEFAULT_FORM, BASE_FORM):  # the last one counts
        if relative in setting.laws:
            known |= dict(
                zip(FORMS[relative].names, reference.theta(setting.law(relative)).tolist(), strict=True)
            )
    return np.array([known.get(parameter.name, _ordinary(parameter)) for parameter in FORMS[form].parameters])


def _ordinary(parameter: Parameter) -> float:
    """ln of the middle of what a fit starts from."""
    return float(np.mean(np.log([start for start in parameter.starts if start > 0])))


@cache
def _spread(form: str, others: tuple[str, ...], params: float) -> np.ndarray:
    """Standard deviations of theta between corpora whose models are of this size: what the registry says,
    and what the shipped calibrations differ by, each counting the less the further it is away.
    """
    corpora = [Calibration.load(name).settings for name in others]
    found = []
    for parameter in FORMS[form].parameters:
        values, trust = [], []
        for settings in corpora:
            known = [_known(one, form, parameter.name) for one in settings]
            if known and None not in known:
                values.append(np.mean(np.array(known, dtype=float)))
                trust.append(1 / _wider(settings[0], params))
        apart = 0.0
        if values:
            apart = float(np.dot(trust, (values - np.average(values, weights=trust)) ** 2))
        more = max(len(values) - 1, 0)
        found.append((_COUNTS * parameter.prior_sd**2 + apart) / (_COUNTS + more))
    return np.sqrt(found)


def _known(setting: Setting, form: str, name: str) -> float | None:
    """ln of a parameter, of a term in the middle of the setting's runs: in this form, or in the usual one."""
    for law in (form, DEFAULT_FORM):
        if law in setting.laws and name in FORMS[law].names:
            return float(Reference.of(setting).theta(setting.law(law))[FORMS[law].names.index(name)])
    return None
