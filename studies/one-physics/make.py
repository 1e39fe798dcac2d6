"""Does one physics hold? Laws of all corpora fitted together, and what a prior from them is worth.

    OMP_NUM_THREADS=1 python studies/one-physics/make.py [shared] [prior]

The public run tables are read where `DATABOUND_SHARED` points to (by default `../shared`). `protocol.md` says
what is done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import chi2

from calibration.fitting.bayes.hierarchical import (
    HierarchicalFit,
    by_weight_decay,
    fit_with_prior,
    hierarchical_fit,
)
from calibration.fitting.bayes.posterior import Normal, laplace_posterior
from calibration.fitting.solver import Reference, flops_of, points_of
from planner.calibration import Calibration
from planner.laws import DEFAULT_FORM, FORMS, STANDARD, Averaged

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("DATABOUND_SHARED", ROOT.parent / "shared")) / "data"
CELL = ["params", "unique_tokens", "epochs"]
FINEWEB = "FineWeb"
BATCH = {"C4": 524_288, "Dolma": 2_097_152, "micro": 512, "weight decay": 512, FINEWEB: 65_536}
KNOWN = 0.1  # of ln of a published parameter
WIDE = 3.0  # registry's standard deviations, of the fit that a likelihood is taken from
COUNTS, DECAYS, SCALE = (
    2.0,
    0.5,
    0.2,
)  # of the registry, of weight decays, of tokenizers: as in `hierarchical`
DECADES = 3.0  # over which the batch may move a parameter by the registry's standard deviation
NS, DRAWS, UPPER = (5, 10, 20), 20, 0.3


@cache
def tables() -> dict[str, pd.DataFrame]:
    """The runs of each corpus; those of an envelope are called one weight decay."""
    c4 = pd.read_csv(SHARED / "datablations_c4_runs.csv").query("in_paper158 == 1").assign(weight_decay=0.1)
    dolma = pd.read_csv(SHARED / "qin2026_dolma_repeat.csv").query("steps >= 400")
    dolma = dolma[dolma.groupby(CELL)["loss"].transform("size") > 1]
    dolma = dolma.loc[dolma.groupby(CELL)["loss"].idxmin()].assign(weight_decay=1.0)
    decays = pd.read_csv(ROOT / "studies" / "weight-decay" / "runs.csv")
    mean = decays.groupby([*CELL, "weight_decay"])["loss"].transform("mean")
    decays = decays[np.isclose(mean, mean.groupby([decays[name] for name in CELL]).transform("min"))]
    micro = pd.read_csv(ROOT / "studies" / "micro" / "runs.csv")
    found = {"C4": c4, "Dolma": dolma, "micro": micro, "weight decay": decays.assign(weight_decay=1.0)}
    return {
        name: one[["run", *CELL, "weight_decay", "loss"]].reset_index(drop=True)
        for name, one in found.items()
    }


# -- the model of all corpora --------------------------------------------------------------------------------

Said = tuple[np.ndarray, np.ndarray]  # of theta: a precision, and it times the mean


@cache
def likelihoods(corpus: str, form: str) -> tuple[Said, ...]:
    """What a corpus says of theta in the middle of its runs, at each of its weight decays."""
    if corpus == FINEWEB:
        settings = [one for one in Calibration.load("fineweb-llama2").settings if form in one.laws]
        theta = [Reference.of(one).theta(one.law(form)) for one in settings]
        return tuple((np.eye(len(one)) / KNOWN**2, one / KNOWN**2) for one in theta)
    reference, fitted = Reference.among(points_of(tables()[corpus])), own_fit(corpus)
    found = []
    for posterior in fitted.posteriors[form].values():
        wide = np.diag((WIDE * registry(form)) ** 2)
        start = Normal(reference.theta(posterior.law), wide)
        found.append(laplace_posterior(form, reference, start, posterior.seen).likelihood())
    return tuple(found)


@cache
def own_fit(corpus: str) -> HierarchicalFit:
    return hierarchical_fit(tables()[corpus], STANDARD)


def registry(form: str) -> np.ndarray:
    return np.array([one.prior_sd for one in FORMS[form].parameters])


def x_of(corpus: str, batch: bool) -> float:
    return float(np.log10(BATCH[corpus] / BATCH[FINEWEB])) if batch else 0.0


@dataclass(frozen=True)
class Together:
    """m and s, and by how much corpora differ from them."""

    coefficients: Normal  # m, then s
    variances: np.ndarray  # T

    def at(self, x: float) -> Normal:
        """theta of a new corpus."""
        design = _design(x, len(self.variances))
        spread = design @ self.coefficients.covariance @ design.T + np.diag(self.variances)
        return Normal(design @ self.coefficients.mean, spread)


def _design(x: float, size: int) -> np.ndarray:
    return np.hstack([np.eye(size), x * np.eye(size)])


def passed(said: Said, variances: np.ndarray) -> Said:
    """What is said of the mean of theta, which deviates from it with these variances."""
    precision, pull = said
    close = np.diag(1 / variances)
    through = close @ np.linalg.inv(precision + close)
    return close - through @ close, through @ pull


@cache
def together(form: str, corpora: tuple[str, ...], batch: bool = True) -> Together:
    """m, s and T by expectation-maximisation."""
    sd = registry(form)
    size, variances = len(sd), registry(form) ** 2
    known = {corpus: said for corpus in corpora if (said := likelihoods(corpus, form))}
    free = Normal(np.zeros(2 * size), np.diag(np.concatenate([np.full(size, 100.0), (sd / DECADES) ** 2])))
    for _ in range(100):
        of_corpus = {}
        for corpus, said in known.items():
            parts = [passed(one, DECAYS**2 * variances) if len(said) > 1 else one for one in said]
            of_corpus[corpus] = sum(one for one, _ in parts), sum(one for _, one in parts)
        designs = {corpus: _design(x_of(corpus, batch), size) for corpus in known}
        messages = []
        for corpus, said in of_corpus.items():
            precision, pull = passed(said, variances)
            messages.append((designs[corpus].T @ precision @ designs[corpus], designs[corpus].T @ pull))
        coefficients = free.updated(messages)
        apart = np.zeros(size)
        for corpus, (precision, pull) in of_corpus.items():
            inside = np.linalg.inv(precision + np.diag(1 / variances))
            slope = (inside / variances - np.eye(size)) @ designs[corpus]
            mean = inside @ pull + slope @ coefficients.mean
            apart += mean**2 + np.diagonal(inside + slope @ coefficients.covariance @ slope.T)
        variances = (COUNTS * sd**2 + apart) / (COUNTS + len(known))
    return Together(coefficients, variances)


# -- what is shared ------------------------------------------------------------------------------------------


def shared() -> Iterator[str]:
    """additive_4p of all corpora: values, and whether they differ by more than they are known to."""
    names, size = FORMS[DEFAULT_FORM].names, len(registry(DEFAULT_FORM))
    models = [together(DEFAULT_FORM, tuple(BATCH), batch) for batch in (True, False)]
    values, errors = {}, {}
    for corpus in BATCH:
        said = likelihoods(corpus, DEFAULT_FORM)
        precision = sum(one for one, _ in said)
        # with the registry's wide prior, where runs say nothing
        inside = np.linalg.inv(precision + np.diag((WIDE * registry(DEFAULT_FORM)) ** -2.0))
        start = models[1].at(0.0).mean
        pull = sum(one for _, one in said) + (WIDE * registry(DEFAULT_FORM)) ** -2.0 * start
        values[corpus], errors[corpus] = inside @ pull, np.sqrt(np.diagonal(inside))
    yield (
        "| | "
        + " | ".join(BATCH)
        + " | sd between, batch regarded | not | per decade of batch | chi² | not |"
    )
    yield "| --- " * (len(BATCH) + 6) + "|"
    x = np.array([x_of(corpus, True) for corpus in BATCH])
    for k in range(size):
        value = np.array([values[corpus][k] for corpus in BATCH])
        error = np.array([errors[corpus][k] for corpus in BATCH])
        cells = [f"{np.exp(one):.3g} ± {off:.0%}" for one, off in zip(value, error, strict=True)]
        slope = models[0].coefficients.mean[size + k]
        slope_error = np.sqrt(models[0].coefficients.covariance[size + k, size + k])
        tests = []
        for columns in (np.column_stack([np.ones_like(x), x]), np.ones((len(x), 1))):
            white, target = columns / error[:, None], value / error
            left = target - white @ np.linalg.lstsq(white, target, rcond=None)[0]
            free = len(x) - columns.shape[1]
            differs = left @ left > chi2.ppf(0.95, free)
            tests.append(f"{left @ left:.1f} of {chi2.ppf(0.95, free):.1f}" + ", differs" * bool(differs))
        spreads = " | ".join(f"{np.sqrt(one.variances[k]):.2f}" for one in models)
        row = (names[k], *cells, spreads, f"{slope:+.2f} ± {slope_error:.2f}", *tests)
        yield f"| {' | '.join(row)} |"


# -- as a prior ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CorporaPrior:
    """What other corpora say of the laws of one, as the prior of its runs."""

    name: str
    reference: Reference
    models: Mapping[str, Together]
    x: float

    @property
    def irreducible(self) -> float:
        return float(np.exp(self.of(DEFAULT_FORM)[0].mean[FORMS[DEFAULT_FORM].names.index("E")]))

    def of(self, form: str) -> tuple[Normal, np.ndarray]:
        found = self.models[form].at(self.x)
        is_term = np.array([float(one.kind in ("amplitude", "linear")) for one in FORMS[form].parameters])
        known_to = found.covariance + SCALE**2 * np.outer(is_term, is_term)
        return Normal(found.mean, known_to), np.diag(DECAYS**2 * self.models[form].variances)


def prior_of(corpus: str, runs: pd.DataFrame, batch: bool) -> CorporaPrior:
    others = tuple(one for one in BATCH if one != corpus)
    models = {form: together(form, others, batch) for form in STANDARD}
    return CorporaPrior("other corpora", Reference.among(points_of(runs)), models, x_of(corpus, batch))


def error(found: HierarchicalFit, tried: pd.DataFrame) -> float:
    """Of the average of forms, mean of |ln(predicted / trained)|; a weight decay that was not drawn is
    predicted by the nearest."""
    off = []
    decays = np.array(list(found.outliers))
    for decay, runs in by_weight_decay(tried).items():
        nearest = float(decays[np.argmin(np.abs(np.log(decays / decay)))])
        laws = [found.posteriors[form][nearest].law for form in found.weights]
        law = Averaged(laws, list(found.weights.values()))
        off.append(np.abs(np.log(law.loss(*points_of(runs)) / runs["loss"].to_numpy())))
    return float(np.minimum(np.concatenate(off), 0.5).mean())


def compared(corpus: str, n: int) -> np.ndarray:
    """(draws, 3): errors with the present prior, with that of the others, and with that without batch."""
    table = tables()[corpus]
    flops = flops_of(points_of(table))
    upper = flops >= np.sort(flops)[round((1 - UPPER) * len(table))] * (1 - 1e-9)
    lower, tried = table[~upper], table[upper]
    rng, found = np.random.default_rng(0), []
    for _ in range(DRAWS):
        runs = lower.iloc[rng.permutation(len(lower))[:n]]
        fits = [hierarchical_fit(runs, STANDARD)]
        fits += [
            fit_with_prior(by_weight_decay(runs), STANDARD, prior_of(corpus, runs, one))
            for one in (True, False)
        ]
        found.append([error(one, tried) for one in fits])
    return np.array(found)


def prior() -> Iterator[str]:
    """The present prior against that from the other corpora."""
    yield "| corpus | runs | present prior | other corpora | difference | without batch | difference |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    means, worse = [], []
    for corpus in tables():
        for n in NS:
            errors = compared(corpus, n)
            means.append(errors.mean(axis=0))
            cells = [f"{means[-1][0]:.4f}"]
            for kind in (1, 2):
                more = errors[:, kind] - errors[:, 0]
                se = more.std(ddof=1) / np.sqrt(DRAWS)
                cells += [f"{means[-1][kind]:.4f}", f"{more.mean():+.4f} ± {se:.4f}"]
                if kind == 1 and more.mean() > 2 * se:
                    worse.append(f"{corpus} with {n}")
            yield f"| {corpus} | {n} | {' | '.join(cells)} |"
    average = np.mean(means, axis=0)
    others = " | ".join(f"{one:.4f} | {one - average[0]:+.4f}" for one in average[1:3])
    yield f"| mean | | {average[0]:.4f} | {others} |"
    yield f"worse by more than two standard errors: {', '.join(worse) or 'nowhere'}"


PARTS = {"shared": shared, "prior": prior}


def main(arguments: Sequence[str]) -> None:
    for name in arguments or PARTS:
        print(f"\n{name}", flush=True)
        for line in PARTS[name]():
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
