"""What averaging gains at real scale, as studies/averaging/protocol.md has it; the tables of results.md.

    DATABOUND_SHARED=... python studies/averaging/make.py [--write]

With --write the tables go into results.md and the law into the shipped calibrations of web text, of which
nothing else is changed. How rewritten tokens compare with repeated ones is in rewritten.py.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from planner.calibration import QUANTITIES, Averaging, Calibration
from planner.weight_decay_rule import tuned_weight_decay

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("DATABOUND_SHARED", ROOT.parent / "shared"))
PAGE = Path(__file__).with_name("results.md")
MARK = "<!-- python studies/averaging/make.py --write -->"
END = "<!-- end of what it writes -->"
SHIPPED = ("fineweb-llama2", "dolma-olmo3")
CELL = ["source", "params", "unique_tokens", "epochs", "weight_decay"]
# Published limits at one model's settings, as 1/K has them: a.
PUBLISHED = {154147328: 0.23, 299649792: 0.25, 602457088: 0.21, 1540732416: 0.12}
ODD = 1540732416  # whose published limit is out of line
KEPT = 0.83  # of what eight of 300M gained, when distilled into one: by its authors' count
BETWEEN = 0.5  # standard deviation of ln of a source's constant
LOCAL = {"size": 0.1, "data": 0.35}  # by which exponents within a source differ from those over all
RULE = 0.42  # of ln(tuned weight decay): a factor of two holds 90%
WIDTH = 1.2816  # of 80%, in standard deviations
AT = 1e8  # parameters and unique tokens at which constants stand


def ladders() -> pd.DataFrame:
    """Every ladder: its losses, its slope over 1/K, and what its source tuned for one model of that size."""
    tiny = pd.read_csv(ROOT / "studies/ensembles/ensembles.csv")
    tiny = tiny[tiny["members"] <= 4].assign(source="tiny", batch_tokens=512.0, tuned_epochs=8.0)
    tiny["tuned_decay"] = np.where(tiny["unique_tokens"] == 65536, 1.5, 3.0)
    real = pd.read_csv(SHARED / "data/kim2025_dclm_ensembles.csv")
    singles = real[real["kind"] == "single"].set_index("params")
    real = real[real["kind"].str.startswith("ensemble")].copy()
    real["source"] = real["kind"].str.removeprefix("ensemble").str.removeprefix(" on ").replace("", "dclm")
    for name, column in (("tuned_epochs", "epochs"), ("tuned_decay", "weight_decay")):
        real[name] = singles[column].reindex(real["params"]).to_numpy(float)
    rows = []
    for cell, some in pd.concat([tiny, real]).groupby(CELL, sort=False):
        facts = some.iloc[0][["learning_rate", "batch_tokens", "tuned_epochs", "tuned_decay"]]
        losses = dict(zip(some["members"].astype(int), some["loss"], strict=True))
        rows.append({**dict(zip(CELL, cell, strict=True)), **facts, "a": slope(losses), "losses": losses})
    return pd.DataFrame(rows).assign(scale=1.0)


def slope(losses: dict[int, float]) -> float:
    """a, by least squares of L_K over 1/K."""
    return float(np.polyfit(1 / np.array([*losses]), [*losses.values()], 1)[0])


def published(table: pd.DataFrame) -> pd.DataFrame:
    """The published limits at one model's settings."""
    real = table[table["source"] == "dclm"].copy()
    real["a"] = [PUBLISHED[int(params)] for params in real["params"]]
    return real.assign(epochs=real["tuned_epochs"], weight_decay=real["tuned_decay"], losses=None, scale=4.0)


@dataclass(frozen=True)
class Candidate:
    """Which numbers explain ln a."""

    w: str
    e: str
    dense: bool = False

    def features(self, rows: pd.DataFrame) -> np.ndarray:
        size, data = (np.log(rows[name].to_numpy(float) / AT) for name in ("params", "unique_tokens"))
        decay, rate = rows["weight_decay"], rows["learning_rate"]
        if self.w == "timescale":
            held = rows["batch_tokens"] / (rate * decay * rows["unique_tokens"])
        elif self.w == "rule":
            places = rows[["params", "unique_tokens", "learning_rate", "batch_tokens"]].to_numpy(float)
            held = np.array([tuned_weight_decay(*place) for place in places]) / decay
        else:
            held = rows["tuned_decay"] / decay
        passes = rows["epochs"] / (rows["tuned_epochs"] if self.e == "relative" else 1.0)
        w, tiny = np.log(held.to_numpy(float)), (rows["source"] == "tiny").to_numpy(float)
        columns = [tiny, 1 - tiny, size, data, np.log(passes.to_numpy(float)), w]
        return np.column_stack([*columns, *([(size - data) * w] if self.dense else [])])

    @property
    def prior(self) -> np.ndarray:
        """Its precision; what the two constants have in common is free."""
        spread = [1.0, 0.5, 1.0, 1.0, *([0.5] if self.dense else [])]
        precision = np.diag([0.0, 0.0, *(1 / np.square(spread))])
        precision[:2, :2] = np.array([[1, -1], [-1, 1]]) / (2 * BETWEEN**2)
        return precision


CHOSEN = Candidate("own", "relative")
EVERY = [
    Candidate(*each)
    for each in itertools.product(("timescale", "rule", "own"), ("epochs", "relative"), (False, True))
]


@dataclass(frozen=True)
class Fit:
    """The posterior of constants and exponents, and the noise of each source."""

    candidate: Candidate
    mean: np.ndarray
    covariance: np.ndarray
    noise: tuple[float, float]  # tiny, DCLM

    def ln_a(self, rows: pd.DataFrame) -> np.ndarray:
        return self.candidate.features(rows) @ self.mean

    def deviation(self, rows: pd.DataFrame) -> np.ndarray:
        """Of ln a of a run of DCLM."""
        x = self.candidate.features(rows)
        return np.sqrt(np.einsum("ij,jk,ik->i", x, self.covariance, x) + self.noise[1] ** 2)


def fit(candidate: Candidate, rows: pd.DataFrame, *, one_noise: bool = False) -> Fit:
    """Bayesian linear regression; the noise by maximum marginal likelihood."""
    x, y = candidate.features(rows), np.log(rows["a"].to_numpy(float))
    scale, tiny = rows["scale"].to_numpy(float), x[:, 0] == 1
    floor = math.log(0.05 if one_noise else 0.03)

    def posterior(ln_noise: np.ndarray) -> tuple[np.ndarray, ...]:
        each = np.exp(np.clip(ln_noise, floor, 0.0))
        weight = 1 / (np.where(tiny, each[0], each[-1]) * scale) ** 2
        precision = candidate.prior + x.T @ (weight[:, None] * x)
        covariance = np.linalg.inv(precision)
        return covariance @ (x.T @ (weight * y)), covariance, weight, precision

    def minus_evidence(ln_noise: np.ndarray) -> float:
        mean, _, weight, precision = posterior(ln_noise)
        misfit = weight @ (y - x @ mean) ** 2 + mean @ candidate.prior @ mean
        return float(0.5 * (misfit - np.log(weight).sum() + np.linalg.slogdet(precision)[1]))

    starts = [[-1.5], [-2.8]] if one_noise else [[-1.5, -1.5], [-1.5, -2.8]]
    found = [minimize(minus_evidence, start, method="Nelder-Mead") for start in starts]
    noise = min(found, key=lambda one: one.fun).x
    mean, covariance, _, _ = posterior(noise)
    each = np.exp(np.clip(noise, floor, 0.0))
    return Fit(candidate, mean, covariance, (float(each[0]), float(each[-1])))


def fitted_rows(table: pd.DataFrame) -> pd.DataFrame:
    """What the law that ships is fitted to."""
    limits = published(table)
    return pd.concat([table[table["source"].isin(["tiny", "dclm"])], limits[limits["params"] != ODD]])


def left_out(candidate: Candidate, table: pd.DataFrame, rows: pd.DataFrame, **how: bool) -> pd.DataFrame:
    """Each real size predicted from all that has another."""
    found = []
    for _, ladder in table[table["source"] == "dclm"].iterrows():
        here, law = ladder.to_frame().T, fit(candidate, rows[rows["params"] != ladder["params"]], **how)
        ln_a, losses = float(law.ln_a(here)[0]), ladder["losses"]
        foretold = losses[1] - 0.8 * math.exp(ln_a)
        found.append(
            {
                "params": ladder["params"],
                "a": ladder["a"],
                "foretold": math.exp(ln_a),
                "ln_error": ln_a - math.log(ladder["a"]),
                "deviation": float(law.deviation(here)[0]),
                "five": losses[5],
                "five_error": foretold - losses[5],
            }
        )
    return pd.DataFrame(found)


# -- what ships


def shipped(table: pd.DataFrame, law: Fit) -> Averaging:
    """The law for a source that is neither of the two: DCLM's constant, and what is not known of it."""
    here = table[table["source"] == "dclm"]
    centre = {
        "params": float(np.exp(np.log(here["params"].astype(float)).mean())),
        "unique_tokens": 196608000.0,
    }
    x = np.array([0.0, 1.0, *(math.log(value / AT) for value in centre.values()), math.log(2), math.log(2)])
    to = np.zeros((5, 6))  # from constants and exponents to ln of the gain there, and exponents
    to[0], to[1:, 2:] = x, np.eye(4)
    covariance = to @ law.covariance @ to.T + np.diag([0.0, LOCAL["size"] ** 2, LOCAL["data"] ** 2, 0.0, 0.0])
    powers = dict(zip(QUANTITIES, law.mean[2:].tolist(), strict=True))
    between = max(BETWEEN, abs(float(law.mean[0] - law.mean[1])) / math.sqrt(2))
    spread = math.sqrt(between**2 + law.noise[1] ** 2 + (RULE * powers["timescale_epochs"]) ** 2)
    errors = left_out(CHOSEN, table, fitted_rows(table))["five_error"]
    tiny = Calibration.load("micro-weight-decay").members
    ranges = {
        "params": [here["params"].min(), here["params"].max()],
        "unique_tokens": [centre["unique_tokens"]] * 2,
    }
    return Averaging.model_validate(
        {
            "reference": centre | {"epochs": 2.0, "timescale_epochs": 2.0},
            "gain": math.exp(float(x @ law.mean)),
            "exponents": powers,
            "error": float(np.sqrt(np.mean(errors**2))),
            "most_members": 5,
            "fitted_on": ranges | {"epochs": [1.0, 2.0], "timescale_epochs": [1.0, 2.0], "runs": 20},
            "distilled": {
                "kept": (tiny.distilled.kept + KEPT) / 2,
                "between": [tiny.distilled.kept, KEPT],
                "members": 8,
            },
            "source": "borrowed from DCLM, 196.6M tokens",
            "borrowed": {
                "corpus": "DCLM",
                "spread": spread,
                "covariance": ((covariance + covariance.T) / 2).tolist(),
            },
        }
    )


def write_law(known: Averaging) -> None:
    for name in SHIPPED:
        own = Calibration.load(name)
        own.changed(members=known).save(ROOT / "planner/data" / f"{name}.json")


# -- the tables of results.md


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def of_ladders(table: pd.DataFrame) -> Iterator[str]:
    yield "### Five members from three"
    yield ""
    yield row("ladder", "parameters", "epochs", "λ", "a", "L₅", "from K ≤ 3", "off by")
    yield row(*["---"] * 8)
    for _, one in table[table["source"] != "tiny"].iterrows():
        losses, few = one["losses"], {k: loss for k, loss in one["losses"].items() if k <= 3}
        level = float(np.mean([loss - slope(few) / k for k, loss in few.items()]))
        foretold = level + slope(few) / 5
        facts = f"{one['params']:,.0f}", f"{one['epochs']:g}", f"{one['weight_decay']:g}", f"{one['a']:.3f}"
        yield row(
            one["source"], *facts, f"{losses[5]:.4f}", f"{foretold:.4f}", f"{foretold - losses[5]:+.4f}"
        )


def of_candidates(table: pd.DataFrame) -> Iterator[str]:
    sizes = [f"{one / 1e6:,.0f}M" for one in PUBLISHED]
    yield "### The candidates: error of ln a of each size left out"
    first = table.copy()
    first.loc[(first["source"] == "dclm") & (first["params"] == ODD), "weight_decay"] = math.sqrt(1.6 * 3.2)
    home = first[first["source"].isin(["tiny", "dclm"])]
    rounds = {
        "first round": (first, pd.concat([home, published(first).assign(scale=2.0)]), True),
        "second round": (table, fitted_rows(table), False),
    }
    for name, (ladder, rows, one_noise) in rounds.items():
        yield from ["", f"{name.capitalize()}:", "", row("w", "e", "t", *sizes), row(*["---"] * 7)]
        for one in EVERY:
            errors = left_out(one, ladder, rows, one_noise=one_noise)["ln_error"]
            yield row(one.w, one.e, "yes" if one.dense else "no", *(f"{error:+.2f}" for error in errors))


def of_left_out(table: pd.DataFrame) -> Iterator[str]:
    yield "### Each size left out, by the law that ships"
    yield ""
    yield row("parameters", "a", "foretold", "off by", "80% of DCLM", "L₅", "off by")
    yield row(*["---"] * 7)
    for _, one in left_out(CHOSEN, table, fitted_rows(table)).iterrows():
        ends = [one["foretold"] * math.exp(side * WIDTH * one["deviation"]) for side in (-1, 1)]
        told = f"{one['a']:.3f}", f"{one['foretold']:.3f}", f"{math.expm1(one['ln_error']):+.0%}"
        between = "{:.2f} to {:.2f}".format(*ends)
        yield row(f"{one['params']:,.0f}", *told, between, f"{one['five']:.4f}", f"{one['five_error']:+.4f}")


def of_others(table: pd.DataFrame, law: Fit, known: Averaging) -> Iterator[str]:
    yield "### Other settings and other data"
    yield ""
    yield row(
        "what", "parameters", "a", "foretold", "80% on DCLM", "80% elsewhere", "held on DCLM", "elsewhere"
    )
    yield row(*["---"] * 8)
    others = table[~table["source"].isin(["tiny", "dclm"])]
    for _, one in pd.concat([published(table).assign(source="published limit"), others]).iterrows():
        here = one.to_frame().T
        a, home = float(one["a"]), float(law.deviation(here)[0])
        foretold, away = math.exp(float(law.ln_a(here)[0])), math.hypot(home, known.borrowed.spread)
        ends = [[foretold * math.exp(side * WIDTH * sd) for side in (-1, 1)] for sd in (home, away)]
        held = ["yes" if low <= a <= high else "no" for low, high in ends]
        between = ["{:.2f} to {:.2f}".format(*each) for each in ends]
        yield row(one["source"], f"{one['params']:,.0f}", f"{a:.3f}", f"{foretold:.3f}", *between, *held)


def asked(table: pd.DataFrame) -> pd.DataFrame:
    """What those who plan are told of each real size by a law that was fitted without it: of its ladder and
    of its published limit, at the weight decay that their calibration has next to its own.
    """
    rows, real, found = fitted_rows(table), published(table), []
    for params in PUBLISHED:
        law = fit(CHOSEN, rows[rows["params"] != params])
        known = shipped(table[table["params"] != params], law)
        for name in SHIPPED:
            own = Calibration.load(name).changed(members=known)
            for what, some in (("ladder", table[table["source"] == "dclm"]), ("published limit", real)):
                one = some[some["params"] == params].iloc[0]
                decay = float(np.clip(one["weight_decay"], *own.weight_decay_range))
                place = params, one["unique_tokens"], one["epochs"], decay
                gain = own.averaging_gains(own.law(decay), np.inf, *place)
                found.append({"calibration": name, "what": what, "params": params, "a": one["a"]})
                found[-1] |= gain._asdict() | {"held": bool(gain.low <= one["a"] <= gain.high)}
    return pd.DataFrame(found)


def of_asked(table: pd.DataFrame) -> Iterator[str]:
    yield "### What plans say of a size that was left out"
    yield ""
    yield row("calibration", "what", "parameters", "a", "foretold", "80%", "held")
    yield row(*["---"] * 7)
    for _, one in asked(table).iterrows():
        between, held = f"{one['low']:.2f} to {one['high']:.2f}", "yes" if one["held"] else "no"
        facts = one["calibration"], one["what"], f"{one['params']:,.0f}", f"{one['a']:.3f}"
        yield row(*facts, f"{one['expected']:.3f}", between, held)
    yield ""
    here = table[table["source"] == "dclm"]
    sizes, tokens, tuned = (
        here[name].to_numpy(float) for name in ("params", "unique_tokens", "tuned_epochs")
    )
    off = [np.log(Calibration.load(name).best_alone.at(sizes, tokens)[0] / tuned) for name in SHIPPED]
    said = " and ".join(
        f"{np.sqrt(np.mean(each**2)):.2f} ({name})" for each, name in zip(off, SHIPPED, strict=True)
    )
    yield from textwrap.wrap(
        f"The best epochs of one model by these calibrations are off from those that DCLM tuned by {said}, "
        f"root mean square of the logarithm. No part of the interval counts that.",
        110,
    )


def of_sources(table: pd.DataFrame) -> Iterator[str]:
    """Each source left out: foretold from the other alone, with all that is not known of a new source."""
    yield "### Each source foretold from the other"
    yield ""
    yield row("from", "ladders of", "ln a off by", "standard deviations of it")
    yield row(*["---"] * 4)
    rows = fitted_rows(table)
    for one, other in (("tiny", "dclm"), ("dclm", "tiny")):
        law, there = fit(CHOSEN, rows[rows["source"] == one]), table[table["source"] == other]
        from_here = CHOSEN.features(there) - CHOSEN.features(rows[rows["source"] == one]).mean(0)
        local = np.square(from_here[:, 2:4]) @ np.square([LOCAL["size"], LOCAL["data"]])
        spread = BETWEEN**2 + (RULE * law.mean[5]) ** 2 + local
        errors = law.ln_a(there) - np.log(there["a"].to_numpy(float))
        each = errors / np.sqrt(law.deviation(there) ** 2 + spread)
        yield row(one, other, *(f"{v.min():+.1f} to {v.max():+.1f}" for v in (errors, each)))


def of_law(law: Fit, known: Averaging) -> Iterator[str]:
    yield "### The law"
    yield ""
    spread = np.sqrt(np.diag(law.covariance))
    names = ("ln a, tiny", "ln a, DCLM", "p, size", "q, data", "r, epochs", "s, weight decay")
    yield row("number", "value", "standard deviation")
    yield row(*["---"] * 3)
    for name, value, doubt in zip(names, law.mean, spread, strict=True):
        yield row(name, f"{value:+.3f}", f"{doubt:.3f}")
    yield ""
    tiny, real = law.noise
    yield textwrap.fill(
        f"Constants at {AT / 1e6:,.0f}M parameters, {AT / 1e6:,.0f}M tokens and one model's settings. Noise "
        f"of ln a: tiny {tiny:.2f}, DCLM {real:.2f}. Constants of new sources: {known.borrowed.spread:.2f}, "
        f"so that an interval at the ladders is a factor of {math.exp(WIDTH * known.borrowed.spread):.1f} to "
        f"either side.",
        110,
    )


def main() -> None:
    table = ladders()
    law = fit(CHOSEN, fitted_rows(table))
    known = shipped(table, law)
    parts = (
        of_ladders(table),
        of_candidates(table),
        of_left_out(table),
        of_others(table, law, known),
        of_asked(table),
        of_sources(table),
        of_law(law, known),
    )
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    print(text)
    print(json.dumps(known.model_dump(mode="json", exclude_none=True), indent=1))
    if "--write" in sys.argv:
        before = PAGE.read_text("utf-8").split(MARK)[0] if PAGE.is_file() else ""
        PAGE.write_text(f"{before}{MARK}\n\n{text}\n{END}\n", "utf-8")
        write_law(known)


if __name__ == "__main__":
    main()
