"""What the ensemble study says, as studies/ensembles/results.md has it; with --write also what ships of it.

    python studies/ensembles/make.py [--write]

With --write the tables go into that page and the law into planner/data/micro-weight-decay.json, of which
nothing else is changed. Runs that are not there yet are left out: the tables say how many there are.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import curve_fit

from calibration.fitting.members import CELL, fit_members, observed_gains, predicted_gain
from planner import plan
from planner.calibration import QUANTITIES, Averaging, Calibration

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DECAY_LAW = ROOT / "planner" / "data" / "micro-weight-decay.json"
PAGE = HERE / "results.md"
BEGIN, END = "<!-- python studies/ensembles/make.py --write -->", "<!-- end of what it writes -->"
FEW, MANY = 4, 8
TEACHERS = (219_600, 65_536, 16.0, 0.75)
MEMBER = 219_600  # parameters; budgets are multiples of one of these for 8 epochs
BUDGETS = [(32768, 1), (32768, 2), (32768, 4), (32768, 8), (65536, 1), (65536, 2), (65536, 4)]
NEAR = 0.02  # nats: what was asked for
SLACK = 1.025  # sizes of single models are those that shapes allow
Rows = list[str]


def tables() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    return tuple(pd.read_csv(HERE / name) for name in ("runs.csv", "ensembles.csv", "first-four.csv"))  # type: ignore[return-value]


def budget(unique_tokens: int, times: int) -> float:
    """FLOPs of so many members of 220k parameters for 8 epochs."""
    return 6.0 * MEMBER * unique_tokens * 8 * times


def best_single(runs: pd.DataFrame, unique: int, times: int) -> pd.Series:
    """Of one model's runs at seed 0 within a budget, the one with the lowest development loss."""
    within = runs[(runs["part"] != "distilled") & (runs["unique_tokens"] == unique) & (runs["seed"] == 0)]
    within = within[within["flops"] <= SLACK * budget(unique, times)]
    return within.loc[within["development_loss"].idxmin()]


def best_ensemble(scored: pd.DataFrame, unique: int, times: int) -> pd.Series | None:
    """Of the cells with as many members as the budget pays for, the one with the lowest development loss."""
    one = 6.0 * scored["params"] * scored["unique_tokens"] * scored["epochs"]
    paid = np.minimum(np.floor(budget(unique, times) / one + 1e-9), MANY)
    most = scored.groupby(CELL)["members"].transform("max")
    here = (scored["unique_tokens"] == unique) & (scored["members"] == np.minimum(paid, most))
    found = scored[here & (scored["members"] > 1)]
    return found.loc[found["development_loss"].idxmin()] if len(found) else None


def seed_noise(runs: pd.DataFrame) -> float:
    """Standard deviation of one run's loss between seeds, pooled over settings of two seeds or more."""
    groups = runs[runs["part"] != "distilled"].groupby(CELL)["loss"]
    counts, spread = groups.count(), groups.var()
    kept = counts > 1
    return float(np.sqrt(np.sum((counts - 1)[kept] * spread[kept]) / np.sum((counts - 1)[kept])))


def ladder(scored: pd.DataFrame) -> Rows:
    lines = [
        "| parameters | unique tokens | epochs | λ | "
        + " | ".join(f"K = {k}" for k in range(1, MANY + 1))
        + " |",
        "| --- " * (4 + MANY) + "|",
    ]
    for place, cell in scored.groupby(CELL, sort=False):
        losses = dict(zip(cell["members"], cell["loss"], strict=True))
        shown = " | ".join(f"{losses[k]:.3f}" if k in losses else "" for k in range(1, MANY + 1))
        lines.append(f"| {_words(place)} | {shown} |")
    return lines


def foretold(scored: pd.DataFrame, four: pd.DataFrame, recipe: Any) -> tuple[Rows, dict[str, list[float]]]:
    """Eight members from at most four: by the protocol's law, the one that ships, and the cell alone."""
    lines = [
        "| parameters | unique tokens | epochs | λ | eight members | noise | protocol's law | "
        "law that ships | cell alone | law that ships, K ≤ 4 of all seeds |",
        "| --- " * 10 + "|",
    ]
    plain, law = (fit_members(four, recipe, upto=FEW, plain=plain) for plain in (True, False))
    wide = fit_members(scored, recipe, upto=FEW)
    off: dict[str, list[float]] = {name: [] for name in ("noise", "plain", "law", "alone", "wide")}
    for place, cell in scored.groupby(CELL, sort=False):
        if cell["members"].max() < MANY:
            continue  # of four seeds by design, or not trained yet
        first, eight = _cell(four, place), cell[cell["members"] == MANY].iloc[0]
        alone, ahead = first[first["members"] == 1].iloc[0], observed_gains(cell, recipe).iloc[[-1]]
        own = observed_gains(first, recipe)["limit_gain"].mean() * (1 - 1 / MANY)
        start = {"plain": alone["loss"], "law": alone["loss"], "wide": cell["loss"].iloc[0]}
        for name, known in (("plain", plain), ("law", law), ("wide", wide)):
            off[name].append(start[name] - float(predicted_gain(known, ahead)[0]) - eight["loss"])
        off["alone"].append(alone["loss"] - own - eight["loss"])
        off["noise"].append(2 * float(np.hypot(alone["error"], eight["error"])))
        lines.append(
            f"| {_words(place)} | {eight['loss']:.4f} | {off['noise'][-1]:.4f} | "
            + " | ".join(f"{off[name][-1]:+.4f}" for name in ("plain", "law", "alone", "wide"))
            + " |"
        )
    return lines, off


def foretold_words(off: dict[str, list[float]]) -> Rows:
    """How many cells each way of foretelling has right, and by how much it is off."""
    allowed, said = np.maximum(off["noise"], NEAR), []
    names = {"plain": "protocol's law", "law": "law that ships", "alone": "cell alone"}
    for name, words in names.items():
        gaps = np.abs(off[name])
        said.append(
            f"{words}: {int((gaps <= allowed).sum())} of {len(gaps)} cells, off by at most {gaps.max():.4f}, "
            f"root mean square {np.sqrt(np.mean(gaps**2)):.4f}"
        )
    return [f"Within {NEAR} nats or seed noise: {'; '.join(said)}."]


def left_out(four: pd.DataFrame, recipe: Any) -> str:
    """How well each law foretells the gain of cells that it was not fitted to, one after the other."""
    said = []
    for plain in (True, False):
        gaps = []
        for _, cell in four.groupby(CELL, sort=False):
            rest = four.drop(cell.index)
            ahead = observed_gains(cell, recipe).iloc[[-1]]
            known = fit_members(rest, recipe, upto=FEW, plain=plain)
            gaps.append(float(predicted_gain(known, ahead)[0] - ahead["gain"].iloc[0]))
        said.append(f"{np.sqrt(np.mean(np.square(gaps))):.4f}")
    return (
        f"Four members of each cell, foretold from the other cells: off by {said[0]} with the protocol's "
        f"law, by {said[1]} with the one that ships, root mean square."
    )


def exponents(scored: pd.DataFrame) -> Rows:
    """The free exponent of K in each cell of eight."""
    found = []
    for place, cell in scored.groupby(CELL, sort=False):
        if cell["members"].max() == MANY:
            sizes, losses = cell["members"].to_numpy(dtype=float), cell["loss"].to_numpy()
            start = (losses[-1], losses[0] - losses[-1], 1.0)
            fitted, _ = curve_fit(lambda k, low, b, c: low + b / k**c, sizes, losses, p0=start)
            plain = np.polyfit(1 / sizes, losses, 1)
            worst = np.abs(np.polyval(plain, 1 / sizes) - losses).max()
            found.append(f"| {_words(place)} | {fitted[2]:.2f} | {worst:.4f} |")
    head = "| parameters | unique tokens | epochs | λ | free exponent | 1/K off by at most |"
    return [head, "| --- " * 6 + "|", *found] if found else []


def equal_compute(runs: pd.DataFrame, scored: pd.DataFrame, known: Calibration) -> Rows:
    """One larger model against an ensemble, at the budgets whose single models have been trained."""
    if not (runs["part"] == "singles").any():
        return []
    lines = [
        "| unique tokens | FLOPs | one model | its loss | ensemble | its loss | difference | better | plan |",
        "| --- " * 9 + "|",
    ]
    noise = seed_noise(runs)
    for unique, times in BUDGETS:
        single, several = best_single(runs, unique, times), best_ensemble(scored, unique, times)
        if several is None or not _tried(runs, unique, times):
            continue
        losses = _cell(runs[runs["part"] != "distilled"], tuple(single[CELL]))["loss"]
        gap = several["loss"] - losses.mean()
        error = 2 * float(np.hypot(noise / np.sqrt(len(losses)), several["error"]))
        better = "neither" if abs(gap) <= error else "ensemble" if gap < 0 else "one model"
        lines.append(
            f"| {unique:,} | {budget(unique, times):.2e} | {_setting(single)}, {len(losses)} seeds | "
            f"{losses.mean():.4f} | {several['members']:.0f} of {_setting(several)} | "
            f"{several['loss']:.4f} | {gap:+.4f} ± {error:.4f} | {better} | "
            f"{_planned(known, unique, times)} |"
        )
    return [*lines, "", f"Standard deviation of one run between seeds, pooled: {noise:.4f}."]


def _tried(runs: pd.DataFrame, unique: int, times: int) -> bool:
    """Whether the single models of a budget have been trained; those of the first are members."""
    flops = runs["flops"] / budget(unique, times)
    there = runs[(runs["part"] == "singles") & (runs["unique_tokens"] == unique) & flops.between(0.95, SLACK)]
    return times == 1 or len(there[there["seed"] == 0]) == 4


def _planned(known: Calibration, unique: int, times: int) -> str:
    found = plan(ud=unique, flops=budget(unique, times), calibration=known, members="auto", spend="all")
    count = found.members.count if found.members else 1
    size = f"{found.params / 1e3:,.0f}k x {found.epochs:g} at {found.weight_decay:.2g}"
    return f"{count} of {size}" if count > 1 else f"one of {size}"


def distilled(runs: pd.DataFrame, scored: pd.DataFrame) -> tuple[Rows, dict[str, Any] | None]:
    """The students, and what the chosen ones kept of the gain of their eight teachers."""
    students = runs[runs["part"] == "distilled"]
    if students.empty:
        return [], None
    cell = _cell(scored, TEACHERS).set_index("members")
    alone, eight = float(cell.loc[1, "loss"]), float(cell.loc[MANY, "loss"])
    same = scored[(scored["members"] == 1) & (scored["params"] == MEMBER)]
    same = same[same["unique_tokens"] == TEACHERS[1]]
    single = float(same.loc[same["development_loss"].idxmin(), "loss"])
    lines = [
        f"One member {alone:.4f}, best single setting of its size {single:.4f}, eight members {eight:.4f}.",
        "",
        "| student | members' weight | seed | loss | kept over the member | kept over the best single |",
        "| --- " * 6 + "|",
    ]
    for _, row in students.iterrows():
        kept = (alone - row["loss"]) / (alone - eight), (single - row["loss"]) / (single - eight)
        lines.append(
            f"| {row['params']:,.0f} | {row['weight']:g} | {row['seed']:.0f} | {row['loss']:.4f} | "
            f"{kept[0]:.0%} | {kept[1]:.0%} |"
        )
    own = students[students["params"] == MEMBER]
    weight = own.loc[own[own["seed"] == 100]["development_loss"].idxmin(), "weight"]
    loss = float(own[own["weight"] == weight]["loss"].mean())
    facts = dict(zip(("params", "unique_tokens", "epochs", "weight_decay"), TEACHERS, strict=True))
    facts |= {"members": MANY, "member_loss": alone, "single_loss": single}
    facts |= {"ensemble_loss": eight, "loss": loss}
    return lines, facts | {"kept": (single - loss) / (single - eight)}


def _cell(table: pd.DataFrame, place: Any) -> pd.DataFrame:
    here = np.all([np.isclose(table[name], value) for name, value in zip(CELL, place, strict=True)], axis=0)
    return table[here]


def _words(place: Any) -> str:
    return f"{place[0]:,.0f} | {place[1]:,.0f} | {place[2]:g} | {place[3]:g}"


def _setting(row: pd.Series) -> str:
    return f"{row['params'] / 1e3:,.0f}k x {row['epochs']:g} at {row['weight_decay']:g}"


def law_words(known: Averaging) -> Rows:
    powers = ", ".join(f"{name} {getattr(known.exponents, name):+.2f}" for name in (*QUANTITIES, "density"))
    at = ", ".join(f"{name} {getattr(known.reference, name):,.3g}" for name in QUANTITIES)
    return [
        f"a = {known.gain:.4f} nats at {at}; exponents: {powers}.",
        f"Fitted to K ≤ 4 of all seeds, off by {known.error:.4f} at the most members, root mean square.",
    ]


def law(known: Calibration) -> Averaging:
    """What ships: the law of at most four members, over all seeds, with what distillation kept."""
    runs, scored, _ = tables()
    assert known.recipe is not None
    source = "the ensemble study: Llama 2 of 90k and 220k parameters on Python's standard library"
    return fit_members(scored, known.recipe, upto=FEW, distilled=distilled(runs, scored)[1], source=source)


def page(known: Calibration) -> str:
    """The tables, as the page has them."""
    runs, scored, four = tables()
    members = law(known)
    lines, off = foretold(scored, four, known.recipe)
    parts = {
        "What K members reach": [
            f"{(runs['part'] == 'members').sum()} of 80 members trained, "
            f"{len(off['law'])} of 8 cells with eight:",
            "",
            *ladder(scored),
        ],
        "Eight from four": [*lines, "", *foretold_words(off), left_out(four, known.recipe)],
        "Is it 1/K?": exponents(scored),
        "The law": law_words(members),
        "Equal compute": equal_compute(runs, scored, known.model_copy(update={"members": members})),
        "Distillation": distilled(runs, scored)[0],
    }
    return "\n".join(f"### {name}\n\n" + "\n".join(rows) + "\n" for name, rows in parts.items() if rows)


def main() -> None:
    known = Calibration.load(DECAY_LAW)
    text = page(known)
    print(text)
    if "--write" in sys.argv[1:]:
        known.model_copy(update={"members": law(known)}).save(DECAY_LAW)
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
