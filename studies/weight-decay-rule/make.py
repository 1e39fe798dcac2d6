"""Which weight decay was best in which cell of which lab, and the rule that carries it to another recipe.

    python studies/weight-decay-rule/make.py [--every-vertex]

prints the tables of results.md, by protocol.md, in half a minute; the coefficients are those of
planner/weight_decay_rule.py. It reads the public tables in $DATABOUND_SHARED/data (../shared/data) and the
runs of studies/weight-decay. With --every-vertex the best weight decay of a cell counts wherever it is not at
an end, whatever the noise, as in the first round. picture.py draws what a page of the manual shows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from planner import Calibration, weight_decay_rule

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHARED = Path(os.environ.get("DATABOUND_SHARED", ROOT.parent / "shared")) / "data"
CELL = ["params", "unique_tokens", "epochs", "batch_tokens", "learning_rate"]
ENOUGH_STEPS = 400  # of the Dolma recipe: below, runs are starved of steps
GOOD_RATE = 1.01  # times the best loss over learning rates
RISE = 0.0 if "--every-vertex" in sys.argv else 0.01  # of ln(loss); twice the noise of one run

# -- the runs, with one set of columns


def micro() -> pd.DataFrame:
    """Our own tiny runs, of all waves of the weight-decay study."""
    study, tables = ROOT / "studies" / "weight-decay", []
    for path in [*sorted(study.glob("*.csv")), SHARED / "weight_decay_pilot_runs.csv"]:
        batch = 1024 if path.stem == "double-batch" else 512
        tables.append(pd.read_csv(path).assign(batch_tokens=batch))
    return pd.concat(tables)


def dolma() -> pd.DataFrame:
    """Without runs of too few steps and the two places that the README calls implausible."""
    found = pd.read_csv(SHARED / "qin2026_dolma_repeat.csv")
    size, corpus, epochs = found.params_nominal, found.unique_tokens, found.epochs
    implausible = (size == 370e6) & (corpus == 740e6) & (epochs == 64)
    implausible |= (size == 30e6) & (corpus == 2.4e9) & (epochs == 4)
    return found[(found.steps >= ENOUGH_STEPS) & ~implausible]


def marinfold() -> pd.DataFrame:
    found = pd.read_csv(SHARED / "marinfold_weight_decay_runs.csv")
    return found.assign(
        params=found["size"].map({"1_5b": 1.5e9, "3b": 3e9}),
        unique_tokens=4.676e9,
        batch_tokens=found.batch_seqs * 8192,
        learning_rate=found.lr,
        loss=found.val_loss,
    )


# -- from runs to cells


class Ends(NamedTuple):
    """Between which weight decays the best one lies: one value where the cell determines it."""

    low: float
    high: float


def best_weight_decay(decays: np.ndarray, losses: np.ndarray) -> Ends:
    """The vertex of the parabola in ln λ through the best and its neighbours, where the loss rises on both
    sides; on one side only, the nearest weight decay there that is worse by more than noise.
    """
    order = np.argsort(decays)
    x, y = np.log(decays[order]), np.log(losses[order])
    best = int(np.argmin(y))
    worse = y - y[best] >= RISE
    below, above = x[:best][worse[:best]], x[best + 1 :][worse[best + 1 :]]
    if len(below) and len(above):
        around = slice(best - 1, best + 2)
        curve, slope, _ = np.polyfit(x[around] - x[best], y[around], 2)
        vertex = float(np.exp(x[best] - slope / (2 * curve)))
        return Ends(vertex, vertex)
    low = float(np.exp(below[-1])) if len(below) else 0.0
    return Ends(low, float(np.exp(above[0])) if len(above) else np.inf)


def cells(lab: str, runs: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell of three weight decays or more, at a learning rate that one would train with."""
    rows = []
    losses = runs.groupby([*CELL, "weight_decay"]).loss.mean().reset_index()
    for cell, of_cell in losses.groupby(CELL):
        ends = Ends(0.0, np.inf)
        if len(of_cell) >= 3:
            ends = best_weight_decay(of_cell.weight_decay.to_numpy(), of_cell.loss.to_numpy())
        rows.append((lab, *cell, *ends, of_cell.loss.min()))
    found = pd.DataFrame(rows, columns=["lab", *CELL, "low", "high", "loss"])
    best = found.groupby(CELL[:-1]).loss.transform("min")
    says = (found.low > 0) | np.isfinite(found.high)
    return found[(found.loss <= GOOD_RATE * best) & says]


def dclm() -> pd.DataFrame:
    """The four settings that others tuned over powers of two."""
    found = pd.read_csv(SHARED / "trained_elsewhere.csv")
    tuned = found[found.note == "epochs, rate and weight decay tuned for this size"]
    return tuned.assign(lab="DCLM", low=tuned.weight_decay, high=tuned.weight_decay)


PAPER_GRID = {  # repeated sizes and unique tokens, in millions
    25: (50, 100, 200),
    50: (50, 100, 200),
    125: (100, 200, 400, 800),
    250: (100, 200, 400, 800),
    500: (100, 200, 400),
}


def fineweb() -> pd.DataFrame:
    """Bounds by the two published laws: the worse of 0.1 and 1.0 bounds the best weight decay."""
    known, rows = Calibration.load("fineweb-llama2"), []
    laws = [known.setting(decay).law("additive_4p") for decay in (0.1, 1.0)]
    assert known.recipe is not None
    for size, corpora in PAPER_GRID.items():
        for corpus in corpora:
            for epochs in (2, 4, 8, 12, 16):
                place = size * 1e6, corpus * 1e6, float(epochs)
                losses = np.array([float(law.loss(*place)) for law in laws])
                ends = best_weight_decay(np.array([0.1, 1.0]), losses)
                if ends != Ends(0.0, np.inf):
                    row = *place, known.recipe.batch_tokens, known.recipe.learning_rate
                    rows.append(("FineWeb", *row, *ends))
    return pd.DataFrame(rows, columns=["lab", *CELL, "low", "high"])


def all_cells() -> pd.DataFrame:
    runs = {"micro": micro, "Dolma": dolma, "MarinFold": marinfold}
    found = [cells(lab, read()) for lab, read in runs.items()]
    together = pd.concat([*found, dclm(), fineweb()], ignore_index=True)
    together["determined"] = together.low == together.high
    return together[["lab", *CELL, "low", "high", "determined"]]


# -- rules


def ratio(at: pd.DataFrame) -> pd.Series:
    return np.log(at.params / at.unique_tokens)


def rate(at: pd.DataFrame) -> pd.Series:
    return np.log(at.learning_rate)


def batch(at: pd.DataFrame) -> pd.Series:
    return np.log(at.batch_tokens)


def share(at: pd.DataFrame) -> pd.Series:
    return np.log(at.batch_tokens / at.unique_tokens)


def passes(at: pd.DataFrame) -> pd.Series:
    return np.log(at.epochs)


class Rule(NamedTuple):
    """ln λ* = c + a known part + columns with a coefficient each; capped: at most ln k + ln(B/(ηU))."""

    columns: Callable[[pd.DataFrame], list[pd.Series]]
    known: Callable[[pd.DataFrame], pd.Series | float] = lambda at: 0.0
    capped: bool = False

    def ln_weight_decay(self, coefficients: np.ndarray, at: pd.DataFrame) -> np.ndarray:
        (c, *others), cap = coefficients, np.inf
        if self.capped:
            *others, ln_k = others
            cap = ln_k + share(at) - rate(at)
        terms = (one * column for one, column in zip(others, self.columns(at), strict=True))
        return np.asarray(np.minimum(c + self.known(at) + sum(terms) + 0 * rate(at), cap))

    def coefficients(self, at: pd.DataFrame) -> int:
        return 1 + len(self.columns(at)) + self.capped


def powers(of_ratio: float, of_rate: float) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda at: of_ratio * ratio(at) - of_rate * rate(at)


RULES = {
    "constant": Rule(lambda at: []),
    "timescale": Rule(lambda at: [], lambda at: share(at) - rate(at)),
    "ratio": Rule(lambda at: [ratio(at)]),
    "root": Rule(lambda at: [], powers(1 / 2, 0)),
    "root-rate": Rule(lambda at: [], powers(1 / 2, 1 / 3)),
    "ratio-rate": Rule(lambda at: [ratio(at), rate(at)]),
    "ratio-steps": Rule(lambda at: [ratio(at), share(at)]),
    "ratio-epochs": Rule(lambda at: [ratio(at), passes(at)]),
    "ratio-timescale": Rule(lambda at: [ratio(at), share(at) - rate(at)]),
    "ratio-rate-epochs": Rule(lambda at: [ratio(at), rate(at), passes(at)]),
    "ratio-rate-batch": Rule(lambda at: [ratio(at), rate(at), batch(at)]),
    "ratio-rate-steps": Rule(lambda at: [ratio(at), rate(at), share(at)]),
    "size-data-rate": Rule(lambda at: [np.log(at.params), np.log(at.unique_tokens), rate(at)]),
    "capped ratio": Rule(lambda at: [ratio(at)], capped=True),
    "capped root": Rule(lambda at: [], powers(1 / 2, 0), capped=True),
    "capped ratio-rate": Rule(lambda at: [ratio(at), rate(at)], capped=True),
    "capped ½, -¼": Rule(lambda at: [], powers(1 / 2, 1 / 4), capped=True),
    "capped ½, -⅓": Rule(lambda at: [], powers(1 / 2, 1 / 3), capped=True),
    "capped ⅔, -¼": Rule(lambda at: [], powers(2 / 3, 1 / 4), capped=True),
    "capped ⅔, -⅓": Rule(lambda at: [], powers(2 / 3, 1 / 3), capped=True),
    "capped ¾, -¼": Rule(lambda at: [], powers(3 / 4, 1 / 4), capped=True),
    "capped ¾, -⅓": Rule(lambda at: [], powers(3 / 4, 1 / 3), capped=True),
}


def errors(rule: Rule, coefficients: np.ndarray, at: pd.DataFrame) -> np.ndarray:
    """ln(rule / λ*); next to a bound, by how much it is on the wrong side."""
    ln_rule = rule.ln_weight_decay(coefficients, at)
    with np.errstate(divide="ignore"):
        above, below = ln_rule - np.log(at.high), ln_rule - np.log(at.low)
    return np.asarray(np.maximum(above, 0.0) + np.minimum(below, 0.0))


def fit(rule: Rule, at: pd.DataFrame, *, labs_alike: bool = True) -> np.ndarray:
    """Least squares; every lab has the same weight as a whole, or every cell. The best of several starts: a
    bound and a cap make corners.
    """
    weight = 1 / np.sqrt(at.groupby("lab").low.transform("size")) if labs_alike else np.ones(len(at))
    count, found = rule.coefficients(at), []
    arrays: Any = SimpleNamespace(**{name: at[name].to_numpy() for name in at})  # far faster
    weight = np.asarray(weight)
    for upper_end in (0.5, 1.0, 1.5, 2.0) if rule.capped else (0.0,):
        start = np.zeros(count)
        start[-1] += upper_end
        found.append(least_squares(lambda c: weight * errors(rule, c, arrays), start))
    best = min(found, key=lambda one: float(one.cost))
    assert best.success
    return np.asarray(best.x)


def left_out(rule: Rule, at: pd.DataFrame, *, labs_alike: bool = True) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each lab with the errors of the rule that was fitted to the others."""
    for lab in at.lab.unique():
        own, others = at[at.lab == lab], at[at.lab != lab]
        yield lab, own.assign(error=errors(rule, fit(rule, others, labs_alike=labs_alike), own))


def held(found: pd.Series, factor: float = 2.0) -> float:
    """The share of cells within this factor."""
    return float((found.abs() <= np.log(factor)).mean())


def leaderboard(at: pd.DataFrame, *, labs_alike: bool = True) -> pd.DataFrame:
    """Of every rule: the share within a factor of two in each left-out lab, and the median error."""
    rows = []
    for name, rule in RULES.items():
        row: dict[str, object] = {"rule": name, "coefficients": rule.coefficients(at)}
        shares, medians = [], []
        for lab, tried in left_out(rule, at, labs_alike=labs_alike):
            exact, bounds = tried[tried.determined], tried[~tried.determined]
            if len(exact):
                shares.append(held(exact.error))
                medians.append(float(exact.error.abs().median()))
                row[lab] = shares[-1]
            if len(bounds):
                row[f"{lab}, bounds"] = held(bounds.error)
        row |= {"worst": min(shares), "median error": float(np.mean(medians))}
        rows.append(row)
    return pd.DataFrame(rows)


def chosen(board: pd.DataFrame) -> str:
    """By the protocol: the worst lab, then the error; more coefficients have to be worth it."""
    near = board[board.worst >= board.worst.max() - 0.05].sort_values("coefficients", kind="stable")
    best = near.iloc[0]
    for _, one in near.iterrows():
        better = one["median error"] < best["median error"]
        if one.coefficients > best.coefficients:
            better = one.worst > best.worst + 0.05 or one["median error"] < 0.9 * best["median error"]
        if better:
            best = one
    return str(best.rule)


def unseen(at: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Each lab with the rule that was chosen and fitted without it, as for a lab that nobody has seen."""
    for lab in at.lab.unique():
        own, others = at[at.lab == lab], at[at.lab != lab]
        name = chosen(leaderboard(others))
        yield lab, name, own.assign(error=errors(RULES[name], fit(RULES[name], others), own))


def spread(tried: pd.DataFrame) -> float:
    """The factor that holds 90% of determined cells, rounded up to half a unit, at least 2."""
    factor = np.exp(np.quantile(tried[tried.determined].error.abs(), 0.9, method="higher"))
    return float(max(2.0, np.ceil(2 * factor) / 2))


# -- tables


def table(rows: pd.DataFrame, **formats: str) -> str:
    """As Markdown; figures by column, two places otherwise."""

    def shown(value: object, name: str) -> str:
        if isinstance(value, float):
            return "" if np.isnan(value) else format(value, formats.get(name, ".2f"))
        return str(value)

    lines = ["| " + " | ".join(rows.columns) + " |", "|" + " --- |" * len(rows.columns)]
    for values in rows.itertuples(index=False):
        cells_ = (shown(value, name) for value, name in zip(values, rows.columns, strict=True))
        lines.append("| " + " | ".join(cells_) + " |")
    return "\n".join(lines)


def counted(at: pd.DataFrame) -> pd.DataFrame:
    found = at.groupby("lab", sort=False).determined.agg(["sum", "size"])
    return pd.DataFrame(
        {"lab": found.index, "determined": found["sum"], "bounds": found["size"] - found["sum"]}
    )


def held_unseen(without: list[tuple[str, str, pd.DataFrame]]) -> pd.DataFrame:
    """Of every lab's cells, the share within a factor by the rule that was chosen without it."""
    rows, factors = [], (2.0, 2.5, 3.0, 4.0)
    for lab, name, tried in without:
        for what, cells_ in (("determined", tried[tried.determined]), ("bounds", tried[~tried.determined])):
            if len(cells_):
                shares = {f"{factor:g}": held(cells_.error, factor) for factor in factors}
                rows.append({"lab": lab, "rule": name, "cells": f"{len(cells_)} {what}"} | shares)
    every = pd.concat([tried[tried.determined] for _, _, tried in without])
    shares = {f"{factor:g}": held(every.error, factor) for factor in factors}
    return pd.DataFrame([*rows, {"lab": "all", "rule": "", "cells": f"{len(every)} determined"} | shares])


def shipped(at: pd.DataFrame) -> np.ndarray:
    """The rule of the package at these cells."""
    rows = zip(at.params, at.unique_tokens, at.learning_rate, at.batch_tokens, strict=True)
    return np.array([weight_decay_rule.tuned_weight_decay(*row) for row in rows])


def determined_cells(at: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    """Every determined cell with the rule, fitted to all and without its lab."""
    tried = pd.concat([one for _, one in left_out(rule, at)])
    tried = tried[tried.determined]
    return pd.DataFrame(
        {
            "lab": tried.lab,
            "parameters": tried.params,
            "unique tokens": tried.unique_tokens,
            "N/U": tried.params / tried.unique_tokens,
            "epochs": tried.epochs,
            "rate": tried.learning_rate,
            "batch": tried.batch_tokens,
            "λ*": tried.low,
            "rule": shipped(tried),
            "lab left out": tried.low * np.exp(tried.error),
        }
    )


CELL_FORMATS = dict.fromkeys(
    ("parameters", "unique tokens", "N/U", "rate", "λ*", "rule", "lab left out"), ".3g"
)
CELL_FORMATS |= {"epochs": ".0f", "batch": ".0f"}


def unfitted() -> pd.DataFrame:
    """Settings that are no tuned cells of AdamW, next to the rule; at 0.003 where no rate is known."""
    found = pd.read_csv(SHARED / "trained_elsewhere.csv")
    untuned = (found.note == "settings of the next smaller size") | found.who.str.startswith("NanoGPT")
    found = found[untuned & (found.members == 1)]
    return pd.DataFrame(
        {
            "who": found.who,
            "N/U": found.params / found.unique_tokens,
            "weight decay": found.weight_decay,
            "rule": shipped(found.assign(learning_rate=found.learning_rate.fillna(0.003))),
        }
    )


def main() -> None:
    every = all_cells()
    repeated, single = every[every.epochs >= 2], every[(every.epochs == 1) & every.determined]
    print("Cells of two epochs or more:\n", table(counted(repeated)), "", sep="\n")
    for alike in (True, False):
        print("Labs alike:" if alike else "Cells alike:")
        board = leaderboard(repeated, labs_alike=alike)
        print("", table(board), "", sep="\n")
        if RISE == 0:
            return
        if alike:
            best = chosen(board)
    rule = RULES[best]
    c, ln_k = fit(rule, repeated)
    without = list(unseen(repeated))
    factor = spread(pd.concat([tried for _, _, tried in without]))
    print(f"Chosen: {best}; c = {np.exp(c):.3f}, k = {np.exp(ln_k):.2f}, factor {factor:g}\n")
    print("Labs left out of the choice as well:\n", table(held_unseen(without)), "", sep="\n")
    print("Determined cells:\n", table(determined_cells(repeated, rule), **CELL_FORMATS), "", sep="\n")
    off = np.log(shipped(single) / single.low)
    print(f"Single epochs: {held(off):.2f} of {len(single)} determined cells within a factor of two\n")
    print("No tuned cells:\n", table(unfitted()), sep="\n")


if __name__ == "__main__":
    main()
