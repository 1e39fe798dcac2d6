"""The micro study judged again: which law would have chosen well at the five old budgets and at new ones.

    python studies/micro/new_budgets.py          # prints the tables of studies/micro/results.md

Every registered form is fitted to the grid (`runs.csv`, weight decay 0.1) as `fit --law all` does it, and the
tool's own choice is the average that `planner calibrate fit` makes of the same runs, with no word from the
micro study itself in its prior or in its skills by direction. At each budget a law chooses, of what was
trained there, the configuration for which it predicts the lowest loss; its regret is the mean loss of that
over the seeds, above the lowest. `new-budgets.md` has the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from calibration import fit
from calibration.fitting.bayes.hierarchical import with_extrapolation_weights
from planner.calibration import Calibration, Setting
from planner.inputs import scientific, short
from planner.laws import AVERAGE, FORMS
from planner.solve import Point
from planner.uncertainty import directions_beyond

HERE = Path(__file__).resolve().parent
DECAY = 0.1
OLD = ((65_536, 1.8e12), (98_304, 1.8e12), (131_072, 2.7e12), (196_608, 1.8e12), (262_144, 1.8e12))
NEW = ((24_576, 2.2e11), (32_768, 3.9e11), (49_152, 2.65e11), (81_920, 3.9e11))
CHOICE = "tool's choice"


@dataclass(frozen=True)
class Menu:
    """What was trained at one budget: a row for each configuration, with the losses of its seeds."""

    ud: int
    flops: float
    rows: pd.DataFrame

    @property
    def places(self) -> np.ndarray:
        return self.rows[["params", "unique_tokens", "epochs"]].to_numpy(dtype=float)

    @property
    def losses(self) -> np.ndarray:
        return self.rows["loss"].to_numpy(dtype=float)


def menus(runs: pd.DataFrame, budgets: tuple[tuple[int, float], ...]) -> list[Menu]:
    """The configurations at each budget, each at the learning rate that the development documents prefer."""
    found = []
    for ud, flops in budgets:
        here = runs[(runs["unique_tokens"] == ud) & (abs(runs["flops"] / flops - 1) < 0.03)]
        keys = ["params", "unique_tokens", "epochs", "learning_rate"]
        means = here.groupby(keys, as_index=False).agg(
            loss=("loss", "mean"),
            deviation=("loss", "std"),
            seeds=("loss", "size"),
            development=("development_loss", "mean"),
        )
        best = means.loc[means.groupby(keys[:3])["development"].idxmin()]
        found.append(Menu(ud, flops, best.sort_values("params", ignore_index=True)))
    return found


def calibrations(grid: pd.DataFrame) -> tuple[Setting, Setting]:
    """Every form as the paper fits it, and the average of the default fit."""
    plain: Calibration = fit(grid, laws=tuple(FORMS), prior="none", bootstrap=0, name="micro-grid")
    average: Calibration = fit(grid, bootstrap=0, name="micro-average")
    return plain.setting(DECAY), average.setting(DECAY)


def choices(menu: Menu, plain: Setting, average: Setting) -> dict[str, np.ndarray]:
    """What each law predicts for every configuration of a menu."""
    predicted = {form: plain.law(form).loss(*menu.places.T) for form in plain.laws}
    return predicted | {CHOICE: answering(average, menu).law(AVERAGE).loss(*menu.places.T)}


def answering(average: Setting, menu: Menu) -> Setting:
    """The average as it answers here: by skill in the directions in which its favourite leaves the runs."""
    losses = average.law(AVERAGE).loss(*menu.places.T)
    best = int(np.argmin(losses))
    favourite = Point(*menu.places[best], flops=menu.flops, loss=losses[best])
    ways = directions_beyond(average.fitted_on, favourite)
    return with_extrapolation_weights(average, ways, without=("micro",))


def judged(found: list[Menu], plain: Setting, average: Setting) -> pd.DataFrame:
    """Regret of every law at every budget, and its error on the whole menu, one row each."""
    rows = []
    for menu in found:
        for law, predicted in choices(menu, plain, average).items():
            pick = int(np.argmin(predicted))
            chosen, best = menu.rows.iloc[pick], int(np.argmin(menu.losses))
            off = np.log(predicted / menu.losses)
            rows.append(
                {
                    "budget": f"{short(menu.ud)}, {scientific(menu.flops)}",
                    "law": law,
                    "params": chosen["params"],
                    "epochs": chosen["epochs"],
                    "loss": chosen["loss"],
                    "regret": chosen["loss"] - menu.losses[best],
                    "error": float(np.sqrt(np.mean(off**2))),
                    "variance": chosen["deviation"] ** 2 / chosen["seeds"],
                }
            )
    return pd.DataFrame(rows)


def standings_of(results: pd.DataFrame) -> list[str]:
    lines = ["| law | mean regret | ± seeds | choices (epochs) | error on the menus |", "|" + " --- |" * 5]
    table = results.groupby("law", sort=False)
    ordered = sorted(table, key=lambda item: (item[1]["regret"].mean(), item[1]["error"].mean()))
    for law, rows in ordered:
        noise = np.sqrt(rows["variance"].sum()) / len(rows)
        picks = ", ".join(f"{epochs:.3g}" for epochs in rows["epochs"])
        error = np.sqrt(np.mean(rows["error"] ** 2))
        lines.append(f"| {law} | {rows['regret'].mean():.3f} | {noise:.3f} | {picks} | {error:.3f} |")
    return lines


def trained(found: list[Menu]) -> list[str]:
    lines = ["| U_D | C | parameters | epochs | learning rate | loss (seeds) |", "|" + " --- |" * 6]
    for menu in found:
        for _, row in menu.rows.iterrows():
            spread = "" if row["seeds"] < 2 else f" ± {row['deviation']:.3f}"
            loss = f"{row['loss']:.3f}{spread} ({row['seeds']:.0f})"
            cells = (short(menu.ud), scientific(menu.flops), short(row["params"]), f"{row['epochs']:.3g}")
            lines.append(f"| {' | '.join(cells)} | {row['learning_rate']:g} | {loss} |")
    return lines


def main() -> None:
    grid = pd.read_csv(HERE / "runs.csv")
    plain, average = calibrations(grid[grid["weight_decay"] == DECAY])
    print("weights of the average:", {form: round(w, 3) for form, w in average.law_weights.items()})
    old = pd.concat([pd.read_csv(HERE / name) for name in ("validation-runs.csv", "large-models.csv")])
    parts = {"The five old budgets": (old[old["weight_decay"] == DECAY], OLD)}
    if (HERE / "new-budgets.csv").exists():
        parts["The four new budgets"] = (pd.read_csv(HERE / "new-budgets.csv"), NEW)
    for title, (runs, budgets) in parts.items():
        found = menus(runs, budgets)
        results = judged(found, plain, average)
        print(f"\n{title}\n", *trained(found), "", *standings_of(results), sep="\n")
        if title.endswith("new budgets"):
            for name, some in (("beyond the grid's sizes", found[:2]), ("within", found[2:])):
                print(f"\n{name}\n", *standings_of(judged(some, plain, average)), sep="\n")


if __name__ == "__main__":
    main()
