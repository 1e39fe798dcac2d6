"""How the error of a law grows beyond its evidence; protocol.md says how that is asked.

OMP_NUM_THREADS=1 python studies/predictive-error/make.py ../shared/data     # some minutes
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.stats import t as student

from calibration.fitting.huber import fit_forms
from calibration.fitting.identify import is_identified
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.two_phase import held_out_residuals
from planner.evidence import GROWTH, predictive_width
from planner.inputs import InvalidInput
from planner.laws import Law

FORM = "additive_4p"
QUANTITIES = ("params", "unique_tokens", "epochs")
VOCABULARY = {"C4": 50257, "micro": 1024, "Dolma": 100352}  # whose uniform loss no prediction exceeds
MICRO = Path(__file__).resolve().parent.parent / "micro" / "runs.csv"
FEWEST, BEYOND, TIES, STEPS = 20, 4, 1.02, 1000
FREEDOM, LEVEL = 5, 0.8


def tables(shared: Path) -> dict[str, pd.DataFrame]:
    c4 = pd.read_csv(shared / "datablations_c4_runs.csv").query("in_paper158 == 1")
    dolma = pd.read_csv(shared / "qin2026_dolma_repeat.csv").query(f"steps >= {STEPS}")
    best = dolma.groupby(list(QUANTITIES))["loss"].min().reset_index()
    micro = pd.read_csv(MICRO)
    found = {"C4": c4, "micro 0.1": micro.query("weight_decay == 0.1"), "Dolma": best}
    found["micro 1.0"] = micro.query("weight_decay == 1.0")
    return {name: table[[*QUANTITIES, "loss"]].reset_index(drop=True) for name, table in found.items()}


class Cut(NamedTuple):
    """The runs beyond a cut: by how much (ln) they are outside, and the law's errors, in nats."""

    table: str
    direction: str
    at: float
    inside: float
    outside: np.ndarray  # (runs, quantities)
    errors: np.ndarray


def cuts(name: str, table: pd.DataFrame) -> Iterator[Cut]:
    for direction in QUANTITIES:
        values = np.unique(table[direction])
        for at in values[np.append(np.diff(np.log(values)) > np.log(TIES), False)]:
            below = table[direction] <= at * TIES
            seen, tried = table[below].reset_index(drop=True), table[~below]
            enough = len(seen) >= FEWEST and len(tried) >= BEYOND
            if enough and is_identified(seen[list(QUANTITIES)].to_numpy(float), FORM):
                yield from cut(name, direction, at, seen, tried)


def cut(name: str, direction: str, at: float, seen: pd.DataFrame, tried: pd.DataFrame) -> list[Cut]:
    """What a law of the runs seen makes of the others; nothing where they do not determine one."""
    try:
        law, off = fitted(seen)
    except InvalidInput:
        return []
    inside = float(np.sqrt(np.mean(off**2)))
    uniform = np.log(VOCABULARY[name.split()[0]])
    with np.errstate(all="ignore"):
        predicted = np.nan_to_num(law.loss(*(tried[q].to_numpy(float) for q in QUANTITIES)), nan=np.inf)
    errors = np.minimum(predicted, np.maximum(uniform, tried["loss"])) - tried["loss"].to_numpy()
    return [Cut(name, direction, at, inside, distances(seen, tried), np.asarray(errors))]


def fitted(table: pd.DataFrame) -> tuple[Law, np.ndarray]:
    """The law of these runs, and its errors in nats on cells that were left out."""
    fits = fit_forms(Runs.of(table.assign(run="", weight_decay=0.1)), [FORM])
    if fits.forms[FORM].problem:
        raise InvalidInput(fits.forms[FORM].problem)
    residuals = held_out_residuals(fits)[FORM]
    told = np.isfinite(residuals)
    off = np.expm1(np.clip(residuals[told], -1, 1)) * table["loss"].to_numpy()[told]
    return Law(FORM, fits.forms[FORM].parameters), off


def distances(seen: pd.DataFrame, tried: pd.DataFrame) -> np.ndarray:
    """By how much (ln) each run is outside of those seen, or of those that repeat where it repeats."""
    found = np.zeros((len(tried), len(QUANTITIES)))
    for repeated in (False, True):
        rows = tried["epochs"].to_numpy() > 1 if repeated else tried["epochs"].to_numpy() <= 1
        evidence = seen[seen["epochs"] > 1] if repeated else seen
        for k, quantity in enumerate(QUANTITIES):
            low, high = evidence[quantity].min(), evidence[quantity].max()
            if quantity == "unique_tokens":  # see the amendment of the protocol
                high = seen[quantity].max()
            value = tried[quantity].to_numpy(float)[rows]
            found[rows, k] = np.log(np.maximum(np.maximum(value / high, low / value), 1.0))
    return found


# -- candidates: inside, distances and constants -> standard deviation

Sigma = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
CANDIDATES: dict[str, tuple[int, Sigma]] = {
    "today": (0, lambda inside, x, k: inside * np.sqrt(1 + (x**2).sum(axis=1))),
    "scaled": (3, lambda inside, x, k: inside * (1 + x @ k)),
    "scaled, one k": (1, lambda inside, x, k: inside * (1 + k[0] * x.sum(axis=1))),
    "added": (3, lambda inside, x, k: inside + x @ k),
    "added, one g": (1, lambda inside, x, k: inside + k[0] * x.sum(axis=1)),
    "squared": (3, lambda inside, x, k: inside + x**2 @ k),
}


class Together(NamedTuple):
    """All runs beyond the cuts of some tables; each table and each cut counts as one."""

    inside: np.ndarray
    outside: np.ndarray
    errors: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, some: list[Cut]) -> Together:
        number = Counter(one.table for one in some)
        weights = [
            np.full(len(one.errors), 1 / len(number) / number[one.table] / len(one.errors)) for one in some
        ]
        inside = [np.full(len(one.errors), one.inside) for one in some]
        columns = (inside, [one.outside for one in some], [one.errors for one in some], weights)
        return cls(*(np.concatenate(column) for column in columns))


def score(sigma: Sigma, constants: np.ndarray, some: Together) -> float:
    """Mean log density."""
    scale = sigma(some.inside, some.outside, constants)
    return float(some.weights @ (student.logpdf(some.errors / scale, FREEDOM) - np.log(scale)))


def fit_constants(sigma: Sigma, number: int, some: Together) -> np.ndarray:
    if not number:
        return np.array([])
    starts = [np.full(number, np.log(value)) for value in (0.01, 0.1, 1.0)]
    found = [minimize(lambda z: -score(sigma, np.exp(z), some), z, method="Nelder-Mead") for z in starts]
    return np.asarray(np.exp(min(found, key=lambda one: one.fun).x))


def coverage(sigma: Sigma, constants: np.ndarray, some: Together) -> float:
    width = student.ppf(0.5 + LEVEL / 2, FREEDOM)
    return float(some.weights @ (abs(some.errors) <= width * sigma(some.inside, some.outside, constants)))


def main(shared: Path) -> None:
    every = {name: list(cuts(name, table)) for name, table in tables(shared).items()}
    print("| table | cuts | runs beyond | farthest in size, data, epochs | inside | rms error beyond |")
    print("|---|---|---|---|---|---|")
    for name, some in every.items():
        far = np.exp(np.max([one.outside.max(axis=0) for one in some], axis=0))
        inside = np.mean([one.inside for one in some])
        error = np.sqrt(np.mean(np.concatenate([one.errors for one in some]) ** 2))
        farthest = ", ".join(f"{value:.3g}x" for value in far)
        print(
            f"| {name} | {len(some)} | {sum(len(one.errors) for one in some)} | {farthest} "
            f"| {inside:.3f} | {error:.3f} |"
        )
    groups = sorted({name.split()[0] for name in every})

    def together(*which: str) -> Together:
        return Together.of([one for name, some in every.items() if name.split()[0] in which for one in some])

    rest = {group: together(*(other for other in groups if other != group)) for group in groups}
    print("\n| candidate |", *(f"{group} left out |" for group in groups), "mean | constants from all |")
    print("|---" * (len(groups) + 3) + "|")
    for name, (number, sigma) in CANDIDATES.items():
        scores = []
        for group in groups:
            constants = fit_constants(sigma, number, rest[group])
            scores.append(
                (score(sigma, constants, together(group)), coverage(sigma, constants, together(group)))
            )
        overall = fit_constants(sigma, number, together(*groups))
        cells = " | ".join(f"{value:.3f} ({held:.0%})" for value, held in scores)
        mean = np.mean([value for value, _ in scores])
        print(f"| {name} | {cells} | {mean:.3f} | {np.array2string(overall, precision=4)} |", flush=True)
    for name in CANDIDATES:
        number, sigma = CANDIDATES[name]
        fitted_to = {group: fit_constants(sigma, number, rest[group]) for group in groups}
        for factor in np.arange(1.0, 10.05, 0.1):
            held = {
                table: coverage(sigma, factor * fitted_to[table.split()[0]], Together.of(some))
                for table, some in every.items()
            }
            if min(held.values()) >= LEVEL:
                break
        print(f"\n{name}: stretched {factor:.1f} times, held {held}")


def shipped(c4: pd.DataFrame) -> None:
    """The error that ships for C4, and the shipped rule tried on its largest models."""
    _, off = fitted(c4)
    most = float(np.quantile(abs(off), LEVEL))
    inside = most / predictive_width(len(c4))
    print(f"\nC4: {LEVEL:.0%} of the runs within {most:.3f} nats, a standard deviation of {inside:.3f}")
    held, number, at = largest_third_hidden(c4)
    print(f"C4, {number} runs above {at:.3g} parameters hidden: {held:.0%} within what was stated")


def largest_third_hidden(c4: pd.DataFrame) -> tuple[float, int, float]:
    """Which share of the runs of the largest third of the models is within what the law of the others states,
    how many these are, and above which size.
    """
    at = float(c4["params"].quantile(2 / 3))
    seen, tried = c4[c4["params"] <= at].reset_index(drop=True), c4[c4["params"] > at]
    (hidden,) = cut("C4", "params", at, seen, tried)
    sure = float(np.quantile(abs(fitted(seen)[1]), LEVEL)) / predictive_width(len(seen))
    error = sure + hidden.outside @ list(GROWTH.values())
    held = float(np.mean(abs(hidden.errors) <= predictive_width(len(seen)) * error))
    return held, len(tried), at


if __name__ == "__main__":
    shipped(tables(Path(sys.argv[1]))["C4"])
    main(Path(sys.argv[1]))
