"""The law against reality: predicted and measured perplexity for every row of the paper's two tables.

python studies/paper/make.py          # prints the two tables of studies/paper/results.md
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from planner import Calibration, plan, predict
from planner.calibration import Trial
from planner.evidence import Evidence, predictive_width
from planner.inputs import scientific, short

# Measured values as printed in the two tables of prescriptions of arXiv:2605.01640, in measured.csv:
# unique tokens, FLOPs, law, weight decay, epochs trained, parameters as named there, perplexity
Row = tuple[float, float, str, float, int, str, float]


def measured(name: str) -> list[Row]:
    """One of the two tables, laws or weight decays."""
    with open(Path(__file__).with_name("measured.csv"), encoding="utf-8", newline="") as file:
        return [
            (float(ud), float(flops), law, float(decay), int(epochs), params, float(perplexity))
            for table, ud, flops, law, decay, epochs, params, perplexity in csv.reader(file)
            if table == name
        ]


MEASURED, MEASURED_DECAY = measured("laws"), measured("weight decays")


def table(rows: list[Row]) -> list[str]:
    """Markdown rows. The prediction is the four-parameter law's, for the configuration that was trained."""
    lines = [
        "| unique tokens | FLOPs | prescribed by | λ | params x epochs | predicted | measured "
        "| error in loss |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for ud, flops, law, decay, epochs, _, measured in rows:
        params = flops / (6 * ud * epochs)  # equal compute, as the paper trained them
        expected = predict(params, ud, epochs, weight_decay=decay)
        away = expected.loss - math.log(measured)
        outside = " †" if expected.warnings else ""
        lines.append(
            f"| {short(ud)} | {scientific(flops)} | {law} | {decay} | {short(params)} x {epochs}{outside} "
            f"| {expected.perplexity:.2f} | {measured:.2f} | {away:+.3f} |"
        )
    return lines


def ranking() -> list[str]:
    """For each budget: does the law order what was trained as reality does?"""
    lines = [
        "| unique tokens | FLOPs | law's order, best first | measured order, best first |",
        "|---|---|---|---|",
    ]
    for rows, key in ((MEASURED, 2), (MEASURED_DECAY, 3)):
        for ud, flops in dict.fromkeys((row[0], row[1]) for row in rows):
            group = [row for row in rows if row[:2] == (ud, flops)]
            expected = sorted(
                group, key=lambda r: predict(r[1] / (6 * r[0] * r[4]), r[0], r[4], weight_decay=r[3]).loss
            )
            reality = sorted(group, key=lambda r: r[6])
            names = [", ".join(str(row[key]) for row in order) for order in (expected, reality)]
            lines.append(f"| {short(ud)} | {scientific(flops)} | {names[0]} | {names[1]} |")
    return lines


class Miss(NamedTuple):
    """One training that tested the law: predicted minus measured loss."""

    budget: tuple[float, float]  # unique tokens, FLOPs
    weight_decay: float
    params: float
    epochs: float
    error: float


def misses() -> list[Miss]:
    """The distinct trainings of both tables; what was trained twice counts once, with its mean."""
    reached: dict[tuple[float, float, float, int], list[float]] = {}
    for ud, flops, _, decay, epochs, _, perplexity in MEASURED + MEASURED_DECAY:
        reached.setdefault((ud, flops, decay, epochs), []).append(math.log(perplexity))
    found = []
    for (ud, flops, decay, epochs), losses in reached.items():
        params = flops / (6 * ud * epochs)
        expected = predict(params, ud, epochs, weight_decay=decay).loss
        found.append(Miss((ud, flops), decay, params, epochs, expected - sum(losses) / len(losses)))
    return found


def root_mean_square(rows: list[Miss]) -> float:
    """`inside` of a PredictiveError: these trainings are part of the evidence."""
    return math.sqrt(sum(row.error**2 for row in rows) / len(rows))


def covered(hidden: Callable[[Miss], bool]) -> tuple[int, int]:
    """How many of the trainings that are hidden lie within the 80% interval that the others imply, their
    error growing beyond them as `planner.evidence` says; and how many there are.
    """
    inside = of = 0
    for decay in (0.1, 1.0):
        rows = [row for row in misses() if row.weight_decay == decay]
        seen, tried = [row for row in rows if not hidden(row)], [row for row in rows if hidden(row)]
        setting = Calibration.load("fineweb-llama2").setting(decay)
        trials = [
            Trial(params=row.params, unique_tokens=row.budget[0], epochs=row.epochs, loss=1.0, law="")
            for row in seen
        ]
        evidence = Evidence.of([setting.changed(trials=tuple(trials))])
        for row in tried:
            grown = root_mean_square(seen) + float(evidence.growth(row.params, row.budget[0], row.epochs))
            inside += abs(row.error) <= predictive_width(len(seen)) * grown
            of += 1
    return inside, of


def errors() -> list[str]:
    """The predictive error of each weight decay, and how well it covers trainings that were hidden."""
    lines = ["| weight decay | trainings | root mean square |", "|---|---|---|"]
    for decay in (0.1, 1.0):
        rows = [row for row in misses() if row.weight_decay == decay]
        lines.append(f"| {decay} | {len(rows)} | {root_mean_square(rows):.4f} |")
    large = covered(lambda row: row.params > 1e9)
    budgets = {row.budget for row in misses()}
    each = [covered(lambda row, budget=budget: row.budget == budget) for budget in budgets]  # type: ignore[misc]
    lines += [
        "",
        f"With those above 1B parameters hidden, 80% intervals hold {large[0]} of {large[1]} of them.",
    ]
    lines += [f"With each budget hidden in turn, {sum(i for i, _ in each)} of {sum(n for _, n in each)}."]
    return lines


def check_prescriptions() -> None:
    """The configurations above are what the shipped laws prescribe (one printed row is a near-tie)."""
    for ud, flops, law, decay, epochs, *_ in MEASURED + MEASURED_DECAY:
        found = plan(ud, flops, law=law, weight_decay=decay, spend="all").epochs
        assert found == epochs or (law, flops, found) == ("chinchilla", 2e19, 11), (
            ud,
            flops,
            law,
            decay,
            epochs,
            found,
        )


if __name__ == "__main__":
    check_prescriptions()
    for part in (table(MEASURED), table(MEASURED_DECAY), ranking(), errors()):
        print("\n".join(part), end="\n\n")
