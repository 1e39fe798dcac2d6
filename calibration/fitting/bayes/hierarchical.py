r"""The Bayesian fit of a table: a hierarchical model of all its weight decays for each form, the average of
the forms, and what a calibration keeps of it.

**Prior.** A prior is one setting of a shipped calibration: its laws in coordinates (`solver`) in which
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

**Partial pooling** (Gelman and Hill 2007). The prior is the shipped setting that makes the runs most
probable. Repeated runs may be noisier than single-epoch ones, where the runs show it clearly. Weight decays
of one corpus are alike: theta of each is what they share plus a deviation,

    theta_d = phi + u_d,     phi ~ N(mean, S),  u_d ~ N(0, T),

so that one with few runs borrows from the others, and gives them little.

**Model averaging.** All forms are wrong, mostly in the same places. Two things are asked.

*The evidence*, which can compare forms even where the runs are all used up for parameters. n runs tell no
more about forms than n m / (n + m) would if one of them were right (m = 20): the likelihood is raised to the
power m / (n + m), as Miller and Dunson (2019) propose for models that are only nearly right.

*Stacking* (of means: Wolpert 1992, Breiman 1996, Yao et al. 2018), because the evidence forgives what a
smooth discrepancy explains, and plans are made with laws alone: those weights w with which the *average*
misses the runs least. With r_f the errors of ln(loss) of form f alone (in units of how much each run
scatters, as large as if the form had not seen the runs) and K forms, they minimise

    sum_decays sum_runs (sum_f w_f r_f)^2 / (2 sigma_d^2)  -  (1 / K) sum_f ln w_f.

sigma_d is the least root mean square of a form's errors at a weight decay; since few runs are hit by some
form by luck, the geometric mean over all weight decays counts as ten runs of each. The last term is one
run's worth of doubt that some form should not count at all. Forms that miss the runs in opposite directions
may both count, which no weighing of one by one can see; a weight is then a share in the average, not the
probability that a form is right. (Plans average the loss, and not its logarithm: to first order that is the
same.)

Few runs are weighed by their evidence, many are stacked: where n is the number of runs of the weight decay
that has most, exp(-(n / 50)^2) of a weight is the evidence's. Every weight decay has parameters of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from calibration.fitting.bayes.posterior import (
    COARSE,
    FINE,
    Drawn,
    NoiseGrid,
    Normal,
    Observed,
    Outlier,
    Posterior,
    evidence,
    laplace_posterior,
    noise_of_runs,
)
from calibration.fitting.evaluate.summary import fitted_range, goodness_of_fit, kept_draws, spread_of_draws
from calibration.fitting.identify import unidentified
from calibration.fitting.runs.arrays import SINGLE_EPOCH
from calibration.fitting.solver import Progress, Reference, points_of, silent
from planner.calibration import LITTLE, Calibration, Draws, FittedLaw, Setting, shipped_names
from planner.inputs import InvalidInput, short
from planner.laws import BASE_FORM, DEFAULT_FORM, FORMS
from planner.uncertainty import extrapolation_weights

AUTO, NO_PRIOR = "auto", "none"
# of the prior
_DECAYS = 0.5  # of what corpora differ by is what weight decays of one corpus differ by
_SCALE = 0.2  # of ln(nats per token), between tokenizers and corpora
_NO_DECAY = 1e-3  # weight decays below are as good as none
_COUNTS = 2.0  # of how many corpora the registry's spread counts for

# of the average, in runs
_TOLD = 20.0  # as many as all runs together tell about forms at most
_FEW = 50.0
_DOUBT = 1.0
_ALIKE = 10.0
_LEAST = 0.02  # weight below which a form is dropped
_EXACT = 1e-6  # an error that is none

_FEWEST_RUNS = 3
_FEWEST_DRAWS = 5  # of all draws, one part in so many for a form that hardly counts
_SKILLS = Path(__file__).parents[1] / "skills.json"
_GROUPS = {"irreducible loss": ("E",), "model size": ("A", "alpha"), "data": ("B", "beta")}
_REPETITION = "repetition"
_FEW_LOSSES = 3  # runs, of whose losses nothing is said
_HARDLY = 0.01  # of a run


# -- the prior -----------------------------------------------------------------------------------------------


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

    def of(self, form: str) -> tuple[Normal, np.ndarray]:
        """What is known of theta of a form before any run, and the covariance of by how much the weight
        decays of one corpus differ.
        """
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
        theta = np.array(mean, dtype=float) + self.scale * is_term
        known_to = np.diag(self.wider * spread**2) + tokenizers
        return Normal(theta, known_to), np.diag(self.wider * (_DECAYS * spread) ** 2)

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


# -- partial pooling -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HierarchicalFit:
    """The posteriors of all forms after a table of runs."""

    prior: Prior
    set_aside: tuple[str, ...]  # calibrations that were fitted on some of the runs
    posteriors: Mapping[str, Mapping[float, Posterior]]  # by form and weight decay
    shared: Mapping[str, Normal]  # phi by form, after all runs
    weights: Mapping[str, float]
    outliers: Mapping[float, tuple[Outlier, ...]]
    noise_ratio: float  # noise of repeated runs over that of single-epoch ones

    def draws(self, form: str, count: int, seed: int) -> dict[float, Drawn]:
        """Draws of the law of a form at every weight decay, one belonging to the other."""
        rng = np.random.default_rng([seed, *form.encode()])
        several = len(self.outliers) > 1
        common = self.shared[form].draws(count, rng) if several else None
        luck = rng.standard_normal((4, count))  # of the discrepancy: its level, and its slopes
        found = {}
        for decay, posterior in self.posteriors[form].items():
            prior = posterior.prior
            if common is None:
                means = prior.draws(count, rng)
            else:
                apart = Normal(np.zeros(len(prior.mean)), self.prior.of(form)[1])
                means = common + apart.draws(count, rng)
                prior = Normal(self.shared[form].mean, apart.covariance)
            found[decay] = posterior.draws(prior, means, luck, rng)
        return found


def hierarchical_fit(
    table: pd.DataFrame,
    forms: Sequence[str],
    prior: str | Calibration = AUTO,
    vocab_size: int | None = None,
    progress: Progress = silent,
    grid: NoiseGrid | None = None,
) -> HierarchicalFit:
    """The posteriors of these forms after the runs of a table; levels of noise and discrepancy
    are learnt unless `grid` has them.
    """
    by_decay = by_weight_decay(table)
    middle = Reference.among(points_of(table)).params
    possible, aside = candidates(prior, fingerprints(table), vocab_size, tuple(by_decay), middle)
    # One form chooses the prior and finds out how noisy the runs are.
    form = DEFAULT_FORM if DEFAULT_FORM in forms else forms[0]
    chosen = possible[0]
    if len(possible) > 1:
        chosen = max(possible, key=lambda one: evidence(no_pooling(one, by_decay, form, grid or COARSE)))
    return fit_with_prior(by_decay, forms, chosen, tuple(aside), progress, grid or FINE)


def fit_with_prior(
    by_decay: Mapping[float, pd.DataFrame],
    forms: Sequence[str],
    prior: Prior,
    set_aside: tuple[str, ...] = (),
    progress: Progress = silent,
    grid: NoiseGrid = FINE,
) -> HierarchicalFit:
    """The posteriors of these forms, given the prior."""
    form = DEFAULT_FORM if DEFAULT_FORM in forms else forms[0]
    noise_ratio, seen, outliers = noise_of_runs(no_pooling(prior, by_decay, form, grid))
    posteriors, shared = {}, {}
    for done, form in enumerate(forms):
        progress(form, 0.5 * done / len(forms))
        posteriors[form], shared[form] = _partial_pooling(form, prior, seen)
    weights = model_weights(posteriors)
    return HierarchicalFit(prior, set_aside, posteriors, shared, weights, outliers, noise_ratio)


def by_weight_decay(table: pd.DataFrame) -> dict[float, pd.DataFrame]:
    """The runs of each weight decay, the weakest first."""
    decays = sorted(float(decay) for decay in table["weight_decay"].unique())
    return {decay: table[table["weight_decay"] == decay] for decay in decays}


def no_pooling(
    prior: Prior, by_decay: Mapping[float, pd.DataFrame], form: str, grid: NoiseGrid = FINE
) -> dict[float, Posterior]:
    """A form at each weight decay without the others."""
    theta, reference, irreducible = prior.of(form)[0], prior.reference, prior.irreducible
    seen = {decay: Observed.of(runs, irreducible, grid) for decay, runs in by_decay.items()}
    return {decay: laplace_posterior(form, reference, theta, runs) for decay, runs in seen.items()}


def _partial_pooling(
    form: str, prior: Prior, seen: Mapping[float, Observed]
) -> tuple[dict[float, Posterior], Normal]:
    """The posterior at each weight decay, given all others, and what they share."""
    (before, apart), reference = prior.of(form), prior.reference
    alone = {decay: laplace_posterior(form, reference, before, runs) for decay, runs in seen.items()}
    if len(alone) == 1:
        return alone, before
    closeness = np.linalg.inv(apart)
    said = {}  # by the runs of one weight decay of phi: a precision, and it times the mean
    for decay, found in alone.items():
        precision, pull = found.likelihood()
        passed = closeness @ np.linalg.inv(precision + closeness)
        said[decay] = closeness - passed @ closeness, passed @ pull
    pooled = {}
    for decay in seen:
        others = before.updated([told for other, told in said.items() if other != decay])
        borrowed = Normal(others.mean, others.covariance + apart)
        pooled[decay] = laplace_posterior(form, reference, borrowed, seen[decay], alone[decay].theta)
    return pooled, before.updated(list(said.values()))


# -- model averaging -----------------------------------------------------------------------------------------


def model_weights(posteriors: Mapping[str, Mapping[float, Posterior]]) -> dict[str, float]:
    """The weight of each form that counts, from its posteriors by weight decay."""
    scores = {form: _score(found) for form, found in posteriors.items()}
    finite = [form for form, (told, errors) in scores.items() if np.isfinite(told + np.hstack(errors).sum())]
    # The base law is known to be wrong wherever anything repeats.
    forms = [form for form in finite or posteriors if form != BASE_FORM] or [BASE_FORM]
    told, by_form = zip(*(scores[form] for form in forms), strict=True)
    by_evidence = _softmax(np.array(told))
    by_decay = [np.stack(errors) for errors in zip(*by_form, strict=True)]
    few = np.exp(-((max(errors.shape[1] for errors in by_decay) / _FEW) ** 2))
    raw = few * by_evidence + (1 - few) * stacking_weights(*by_decay)
    kept = np.where(raw >= min(_LEAST, raw.max()), raw, 0.0)
    return {form: float(weight) for form, weight in zip(forms, kept / kept.sum(), strict=True) if weight}


def _score(found: Mapping[float, Posterior]) -> tuple[float, list[np.ndarray]]:
    """The tempered evidence of a form, and the errors of its runs by weight decay: as large as if the runs
    had not been seen, by generalised cross-validation over all weight decays together, since one with few
    runs has hardly any to spare.
    """
    parameters = sum(one.effective_parameters for one in found.values())
    errors = [one.residuals for one in found.values()]
    runs = sum(len(one) for one in errors)
    return _TOLD / (_TOLD + runs) * evidence(found), [runs / (runs - parameters) * one for one in errors]


def stacking_weights(*errors: np.ndarray) -> np.ndarray:
    """The weights with which the average misses the runs least, whose errors are given for each weight decay
    by form and run.
    """
    forms, runs = len(errors[0]), np.array([one.shape[1] for one in errors])
    least = np.log([np.mean(one**2, axis=1).min() + _EXACT**2 for one in errors])
    noise = np.exp((runs * least + _ALIKE * (runs @ least) / runs.sum()) / (runs + _ALIKE))
    together = np.sum([one @ one.T / level for one, level in zip(errors, noise, strict=True)], axis=0)
    doubt = _DOUBT / forms

    def missed(score: np.ndarray) -> tuple[float, np.ndarray]:
        weights = _softmax(score)
        slopes = together @ weights
        value = 0.5 * weights @ slopes - doubt * np.log(weights).sum()
        return float(value), weights * (slopes - weights @ slopes) - doubt + _DOUBT * weights

    return _softmax(minimize(missed, np.zeros(forms), jac=True, method="L-BFGS-B").x)


def _softmax(score: np.ndarray) -> np.ndarray:
    raw = np.exp(np.maximum(score - score.max(), -700.0))
    return np.asarray(raw / raw.sum())


@cache
def tournament_errors() -> dict[str, dict[str, dict[str, float]]]:
    """How well each form has held beyond its runs elsewhere: by direction and table (those that share runs
    are one), each form's error over the smallest. `studies/tournament/make.py` writes it.
    """
    found: dict[str, dict[str, dict[str, float]]] = json.loads(_SKILLS.read_text("utf-8"))["over_best"]
    return found


def extrapolation_errors(forms: Sequence[str], without: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """By direction, the error of each of these forms over the best of them, a geometric mean over tables:
    with it plans weigh forms where they leave the runs. `without` names tables that must not be asked; forms
    that no table tried are missing.
    """
    found = {}
    for direction, tables in tournament_errors().items():
        asked = [errors for name, errors in tables.items() if name.split(",")[0] not in without]
        known = {form: [np.log(errors[form]) for errors in asked if form in errors] for form in forms}
        behind = {form: float(np.mean(errors)) for form, errors in known.items() if errors}
        if behind:
            least = min(behind.values())
            found[direction] = {form: float(f"{np.exp(value - least):.4g}") for form, value in behind.items()}
    return found


def with_extrapolation_weights(
    setting: Setting, directions: Sequence[str], without: Sequence[str] = ()
) -> Setting:
    """A setting whose forms are weighed as plans weigh them in these directions, by what other tables than
    those say.
    """
    errors = extrapolation_errors(tuple(setting.law_weights), without)
    weights = extrapolation_weights(setting.law_weights, [errors.get(way, {}) for way in directions])
    return setting.changed(law_weights=weights)


# -- what a calibration keeps --------------------------------------------------------------------------------


def bayesian_fit(
    table: pd.DataFrame,
    laws: Sequence[str],
    prior: str,
    vocab_size: int | None,
    draws: int,
    seed: int,
    progress: Progress = silent,
) -> tuple[tuple[Setting, ...], dict[str, Any]]:
    """Fit all forms together with a prior: each weight decay with its laws, their weights, so many draws of
    the average and what to be careful about; and what else a calibration keeps.
    """
    if len(table) < _FEWEST_RUNS:
        says = "run says" if len(table) == 1 else "runs say"
        raise InvalidInput(f"{len(table)} {says} nothing about a law; {_FEWEST_RUNS} would do.")
    found = hierarchical_fit(table, tuple(dict.fromkeys((BASE_FORM, *laws))), prior, vocab_size, progress)
    best = max(found.weights, key=found.weights.__getitem__)
    kept = {
        "recommendation": {"law": best, "reason": _reason(found), "weights": dict(found.weights)},
        "left_out": {},
        "prior": {"name": found.prior.name, "left_out": list(found.set_aside)},
    }
    drawn: dict[str, dict[float, Drawn]] = {}
    for done, form in enumerate(found.posteriors if draws else ()):
        progress(f"draws of {form}", 0.5 + 0.5 * done / len(found.posteriors))
        # Forms that count more have more of them.
        count = max(int(np.ceil(found.weights.get(form, 0.0) * draws)), draws // _FEWEST_DRAWS, 2)
        drawn[form] = found.draws(form, count, seed)
    settings = tuple(
        _setting(found, decay, runs, {form: one[decay] for form, one in drawn.items()})
        for decay, runs in by_weight_decay(table).items()
    )
    return settings, kept


def _setting(found: HierarchicalFit, decay: float, runs: pd.DataFrame, drawn: Mapping[str, Drawn]) -> Setting:
    learnt, prior = _learnt(found, decay), found.prior.name
    names = [str(name) for name in (runs["run"] if "run" in runs else range(len(runs)))]
    of_laws = {form: kept_draws(one.law.parameters) for form, one in drawn.items()}
    of_losses = {form: kept_draws(one.loss_law.parameters) for form, one in drawn.items()}
    fitted_on, draws = fitted_range(runs), None
    if drawn:
        draws = Draws(
            method=f"draws of the posterior after the runs, with {prior} as prior",
            laws=of_laws,
            discrepancy=kept_draws({form: one.discrepancy for form, one in drawn.items()}),
            loss_draws={  # those parameters that differ
                form: {name: values for name, values in own.items() if values != of_laws[form][name]}
                for form, own in of_losses.items()
            },
        )
    return Setting(
        weight_decay=decay,
        fitted_on=fitted_on,
        laws={form: _fitted(one[decay], drawn.get(form)) for form, one in found.posteriors.items()},
        draws=draws,
        law_weights={form: float(f"{weight:.4g}") for form, weight in found.weights.items()},
        extrapolation_errors=extrapolation_errors(tuple(found.weights)),
        warnings=_warnings(found, decay, runs, names, learnt),
        method=_method(found, decay, names, learnt),
    )


def _fitted(posterior: Posterior, drawn: Drawn | None) -> FittedLaw:
    law, seen = posterior.law, posterior.seen
    figures = goodness_of_fit(
        seen.ln_loss,
        np.log(law.terms(*seen.points).loss),
        seen.points[2] <= SINGLE_EPOCH,
        len(law.parameters),
        cells=seen.cells,
        held_out=posterior.left_out(seen.cells)[0],
    )
    spread: dict[str, Any] = {} if drawn is None else spread_of_draws(drawn.law)
    parameters = {name: float(value) for name, value in law.parameters.items()}
    return FittedLaw(parameters=parameters, metrics=figures, **spread)


def _learnt(found: HierarchicalFit, decay: float) -> dict[str, float]:
    """The share of what was unknown of each part of the law that the runs have told."""
    form = DEFAULT_FORM if DEFAULT_FORM in found.posteriors else next(iter(found.weights))
    before, after = found.prior.of(form)[0].covariance, found.posteriors[form][decay].covariance
    left = dict(zip(FORMS[form].names, np.diagonal(after) / np.diagonal(before), strict=True))
    base = {group: [left.pop(name) for name in names] for group, names in _GROUPS.items()}
    groups = base | ({_REPETITION: list(left.values())} if left else {})
    shares = {group: 1 - float(np.mean(values)) for group, values in groups.items()}
    return {group: float(f"{min(max(share, 0.0), 1.0):.3g}") for group, share in shares.items()}


def _method(
    found: HierarchicalFit, decay: float, names: Sequence[str], learnt: Mapping[str, float]
) -> dict[str, Any]:
    """How a setting was fitted, for people and files."""
    heaviest = max(found.weights, key=found.weights.__getitem__)
    posterior = found.posteriors[heaviest][decay]
    noise, discrepancy = (
        float(np.exp(posterior.weights @ np.log(values)))
        for values in (posterior.seen.grid.noise, posterior.seen.grid.discrepancy)
    )
    return {
        "objective": "posterior of ln(loss) with a prior, a smooth model discrepancy and noise",
        "prior": found.prior.name,
        "learnt_from_runs": dict(learnt),
        "noise": float(f"{noise:.3g}"),
        "noise_repeated": float(f"{noise * found.noise_ratio:.3g}"),
        "discrepancy": float(f"{discrepancy:.3g}"),
        "outliers": [
            {
                "run": names[one.row],
                "off": round(one.off, 4),
                "deviations": round(one.deviations, 1),
                "counts": float(f"{one.counts:.2g}"),
            }
            for one in found.outliers[decay]
        ],
    }


def _reason(found: HierarchicalFit) -> str:
    """Why plans use what they use."""
    ordered = sorted(found.weights.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{form} {weight:.0%}" for form, weight in ordered[:4])
    more = f" and {len(ordered) - 4} more" if len(ordered) > 4 else ""
    aside = (
        f" ({', '.join(found.set_aside)} left out: fitted on some of these runs)" if found.set_aside else ""
    )
    count = f"the average of {len(ordered)} forms: " * (len(ordered) > 1)
    return f"{count}{shown}{more}; prior {found.prior.name}{aside}."


def _warnings(
    found: HierarchicalFit,
    decay: float,
    runs: pd.DataFrame,
    names: Sequence[str],
    learnt: Mapping[str, float],
) -> list[str]:
    """What a plan with this fit should say."""
    texts = [_outlier(names[one.row], one) for one in found.outliers[decay]]
    prior = found.prior.name
    if (runs["epochs"] <= SINGLE_EPOCH).all():
        texts.append(
            f"no run repeats its data: what repetition does is all taken from {prior}; {_advice(runs)}."
        )
    unknown = [group for group, share in learnt.items() if share < LITTLE]
    if unknown and len(unknown) < len(learnt):
        texts.append(f"the runs say little about {' and '.join(unknown)}: that is mostly taken from {prior}.")
    elif unknown:
        texts.append(f"{len(runs)} runs say little: the law is mostly that of {prior}; {_advice(runs)}.")
    low, high = runs["loss"].min(), runs["loss"].max()
    if len(runs) > _FEW_LOSSES and high / low < 1.005:
        texts.append(
            f"all losses are within {high / low - 1:.2%} of each other: they hardly tell size from data "
            f"(runs from {short(runs['params'].min())} to {short(runs['params'].max())} parameters)."
        )
    return texts


def _outlier(run: str, one: Outlier) -> str:
    share, side = np.expm1(one.off), "above" if one.off > 0 else "below"
    far = f"{abs(share):.0%}" if abs(share) >= 0.01 else f"{abs(share):.1%}"
    counts = f"counts as {one.counts:.0%} of a run"
    if one.counts < _HARDLY:
        counts = "hardly counts"
    elif one.counts > 1 - _HARDLY:
        counts = "still counts"
    return (
        f"the loss of run {run} is {far} {side} what the other runs say, {one.deviations:.0f} standard "
        f"deviations; it {counts}."
    )


def _advice(runs: pd.DataFrame) -> str:
    lacking = unidentified(runs, [BASE_FORM, DEFAULT_FORM])
    return lacking[0].remedy if lacking else "more runs, larger ones above all, would replace it"
