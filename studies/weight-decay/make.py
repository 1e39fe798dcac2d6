"""What the weight-decay study's runs say, as results.md has it; with --write also the calibration that ships.

    python studies/weight-decay/make.py [--write]

The plans at the confirming budgets, and who won there, are in confirm.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from calibration.fitting.huber import Fits
from calibration.fitting.runs.tables import Origin, read_runs
from calibration.fitting.weight_decay_law import (
    fit_over_weight_decays,
    left_out_errors,
    weight_decay_calibration,
    with_timescale,
)
from planner.calibration import Calibration, Recipe
from planner.laws import BASE_FORM, TIMESCALE, Law

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MICRO = HERE.parent / "micro" / "runs.csv"
RECIPE = Recipe(
    learning_rate=0.01,
    batch_sequences=4,
    sequence_length=128,
    schedule="cosine to 10% of the peak, linear warm-up over 1% of steps",
    optimizer="AdamW",
    min_lr_ratio=0.1,
    warmup_ratio=0.01,
    betas=(0.9, 0.95),
    clip=1.0,
    adam_eps=1e-8,
    decay="matrices",
    init="scaled",
    norm_eps=1e-5,
    rope_theta=10_000.0,
    order="shuffle",
)
DECAYS = np.geomspace(0.01, 30, 801)
CELL = ["params", "unique_tokens", "epochs"]


def grid() -> pd.DataFrame:
    return read_runs(HERE / "runs.csv")


def recipe(called: str) -> str:
    """Title and recipe of the grid, for a study file of other runs."""
    text = (HERE / "study.toml").read_text(encoding="utf-8").split("[[grid]]")[0]
    return "title =" + text.split("title =")[1].replace("six weight decays", called)


def together() -> tuple[pd.DataFrame, np.ndarray]:
    """The grid's runs and the micro study's, and which are the grid's."""
    own = grid()
    table = pd.concat([own, read_runs(MICRO)], ignore_index=True)
    return with_timescale(table, RECIPE), np.arange(len(table)) < len(own)


def calibration() -> Calibration:
    table, own = together()
    micro = Calibration.load("micro")
    origin = Origin(
        title=f"Weight-decay study: {int(own.sum())} of its 216 runs at six weight decays, and "
        "the micro study's 244",
        corpus=micro.corpus,
        model_family=micro.model_family,
        vocab_size=micro.vocab_size,
        data_fingerprint=micro.data_fingerprint,
    )
    return weight_decay_calibration(
        table,
        RECIPE,
        bootstrap=0,
        judged=own,
        origin=origin,
        source="python studies/weight-decay/make.py --write",
    )


def law_at(fits: Fits, form: str, timescale: np.ndarray) -> Law:
    """A fitted form at the timescale that it is asked about."""
    return Law(form, {**fits.forms[form].parameters, TIMESCALE: timescale})


def left_out_table(fits: Fits, table: pd.DataFrame, own: np.ndarray) -> list[str]:
    lines: list[str] = []
    for form in fits.forms:
        if form == BASE_FORM:
            continue
        found = left_out_errors(fits, table, form, own, ends=True)
        if not lines:
            head = " | ".join(f"λ = {one.weight_decay:g}" for one in found)
            lines = [f"| form | parameters | {head} | inside |", "| --- " * (len(found) + 3) + "|"]
        inside = np.mean([one.error for one in found[1:-1]])
        errors = " | ".join(f"{one.error:.4f}" for one in found)
        lines.append(f"| `{form}` | {len(fits.forms[form].parameters)} | {errors} | {inside:.4f} |")
    return lines


def trained_best(cell: pd.Series) -> tuple[float, bool]:
    """The vertex of the parabola in ln λ through the best and its neighbours; whether it is inside."""
    x, y = np.log(cell.index.to_numpy(dtype=float)), cell.to_numpy()
    i = int(np.argmin(y))
    if i in (0, len(y) - 1):
        return float(np.exp(x[i])), False
    a, b, _ = np.polyfit(x[i - 1 : i + 2], y[i - 1 : i + 2], 2)
    return float(np.exp(-b / (2 * a))), True


def best_table(fits: Fits, form: str, own: pd.DataFrame) -> list[str]:
    """λ* of the law against the trained optimum, cell by cell."""
    lines = [
        "| parameters | unique tokens | epochs | trained λ* | law's λ* | trained loss there | best trained |",
        "| --- " * 7 + "|",
    ]
    near, cells = 0, own.pivot_table(index=CELL, columns="weight_decay", values="loss")
    for place, cell in zip(cells.index.tolist(), (row for _, row in cells.iterrows()), strict=True):
        size, tokens, epochs = (float(value) for value in place)
        law = law_at(fits, form, RECIPE.batch_tokens / (RECIPE.learning_rate * DECAYS))
        found = float(DECAYS[np.argmin(law.loss(size, tokens, epochs))])
        trained, inside = trained_best(cell)
        at_six = law_at(fits, form, RECIPE.batch_tokens / (RECIPE.learning_rate * cell.index.to_numpy()))
        first = cell.iloc[int(np.argmin(at_six.loss(size, tokens, epochs)))]
        is_near = 0.5 <= found / trained <= 2.0
        near += is_near
        told = f"{trained:.2g}" if inside else f"{trained:g} (end)"
        said = f"{found:.2g}{'' if is_near else ' (far)'}"
        lines.append(
            f"| {size:,.0f} | {tokens:,.0f} | {epochs:g} | {told} | {said} | {first:.3f} | {cell.min():.3f} |"
        )
    return [*lines, f"within a factor of 2: {near} of {len(cells)} cells"]


def interpolated(own: pd.DataFrame) -> str:
    """The micro study's laws at 0.1 and 1.0, interpolated, on the grid's runs at 0.3."""
    rows = own[own["weight_decay"] == 0.3]
    law = Calibration.load("micro").law(0.3)
    return (
        f"0.3 from 0.1 and 1.0 ({law.form} of the micro study): {_error(law, rows):.4f} over {len(rows)} runs"
    )


ARMS = {"half-rate": (0.005, 512), "double-batch": (0.01, 1024)}  # learning rate, batch tokens


def arms(fits: Fits, form: str, own: pd.DataFrame) -> list[str]:
    """τ or λ: what is left of the difference to the grid at equal memory and at equal weight decay; how well
    the law predicts the arms with either; and how far the best weight decay moves (τ: 2, λ: 1).
    """
    lines = []
    means = own.groupby([*CELL, "weight_decay"])["loss"].mean()
    for name, (rate, batch) in ARMS.items():
        runs = read_runs(HERE / f"{name}.csv")
        arm = runs.groupby([*CELL, "weight_decay"])["loss"].mean()
        for how, factor in (("τ", 0.5), ("λ", 1.0)):
            gaps = [
                loss - means[(*place[:3], round(place[3] * factor, 6))]
                for place, loss in zip(arm.index.tolist(), arm, strict=True)
                if (*place[:3], round(place[3] * factor, 6)) in means.index
            ]
            seen = (rate, batch) if how == "τ" else (RECIPE.learning_rate, RECIPE.batch_tokens)
            law = law_at(fits, form, seen[1] / (seen[0] * runs["weight_decay"].to_numpy()))
            lines.append(
                f"{name}, equal {how}: {np.std(gaps):.3f} nats left over {len(gaps)} cells (mean "
                f"{np.mean(gaps):+.3f}); the law with {how} is off by {_error(law, runs):.3f} over "
                f"{len(runs)} runs"
            )
        moved = [
            trained_best(cell.droplevel(CELL))[0] / trained_best(means.loc[place])[0]
            for place, cell in arm.groupby(CELL)
        ]
        lines.append(
            f"{name}: the best λ moves by {np.exp(np.mean(np.log(moved))):.2f} in the mean over "
            f"{len(moved)} cells ({', '.join(f'{one:.2f}' for one in moved)})"
        )
    return lines


def noise(own: pd.DataFrame) -> float:
    """Twice the standard error of the difference of two means over two seeds, pooled over all cells."""
    deviation = own.groupby([*CELL, "weight_decay"])["loss"].std()
    return float(2 * np.sqrt((deviation**2).mean()))


def at_law(fits: Fits, form: str, own: pd.DataFrame) -> list[str]:
    """Trained loss of the weight decay that the law ranks first, and of its λ* on the parabola through the
    best and its neighbours, above the best trained.
    """
    first, between = [], []
    for place, cell in own.pivot_table(index=CELL, columns="weight_decay", values="loss").iterrows():
        size, tokens, epochs = (float(value) for value in place)  # type: ignore[union-attr]
        at_six = law_at(fits, form, RECIPE.timescale_tokens(1.0) / cell.index.to_numpy())
        first.append(cell.iloc[int(np.argmin(at_six.loss(size, tokens, epochs)))] - cell.min())
        law = law_at(fits, form, RECIPE.timescale_tokens(1.0) / DECAYS)
        x, y = np.log(cell.index.to_numpy(dtype=float)), cell.to_numpy()
        middle = int(np.clip(np.argmin(y), 1, len(y) - 2))
        curve = np.polyfit(x[middle - 1 : middle + 2], y[middle - 1 : middle + 2], 2)
        found = float(np.log(DECAYS[np.argmin(law.loss(size, tokens, epochs))]))
        between.append(np.polyval(curve, found) - cell.min())
    limit = noise(own)
    return [
        f"of the six that the law ranks first: {np.mean(first):.3f} nats above the best of the six on "
        f"average, {np.max(first):.3f} at most; within seed noise ({limit:.3f}) in "
        f"{np.sum(np.array(first) <= limit)} of {len(first)} cells",
        f"the law's λ* on the parabola: {np.mean(between):+.3f} on average, {np.max(between):+.3f} at most; "
        f"within seed noise in {np.sum(np.array(between) <= limit)} of {len(between)} cells",
    ]


def _error(law: Law, rows: pd.DataFrame) -> float:
    predicted = law.loss(*(rows[name].to_numpy() for name in CELL))
    return float(np.sqrt(np.mean(np.log(predicted / rows["loss"].to_numpy()) ** 2)))


def main() -> None:
    table, own = together()
    fits = fit_over_weight_decays(table)
    known = calibration()
    print(f"{int(own.sum())} of 216 runs of the grid, {int((~own).sum())} of the micro study\n")
    print("\n".join(left_out_table(fits, table, own)), "\n")
    print(f"ships: {known.default_law}\n")
    print("\n".join(best_table(fits, known.default_law, table[own])), "\n")
    print("\n".join(at_law(fits, known.default_law, table[own])))
    print(interpolated(table[own]))
    print("\n".join(arms(fits, known.default_law, table[own])))
    if "--write" in sys.argv[1:]:
        members = Calibration.load("micro-weight-decay").members  # attached by studies/ensembles/make.py
        known.model_copy(update={"members": members}).save(
            ROOT / "planner" / "data" / "micro-weight-decay.json"
        )


if __name__ == "__main__":
    main()
