"""What the rest of the tool reads of the tournament: from `leaderboard.csv` of this folder.

    python studies/tournament/make.py          # writes calibration/fitting/skills.json

For every direction and table (the three filters of C4 are one) each form's error over the smallest of its
match, at the cut that counts.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "calibration" / "fitting" / "skills.json"
SHARES = {"size": 0.6, "compute": 0.7, "epochs": 0.7, "data": 0.6}
CHOICE = "tool's choice"


def over_best(board: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """By direction and table, geometric mean over tables that share their runs."""
    counted = board[board["law"] != CHOICE]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for direction, share in SHARES.items():
        matches = counted[(counted["direction"] == direction) & np.isclose(counted["share"], share)].copy()
        matches["family"] = matches["table"].str.split().str[0]
        best = matches.groupby(["table", "weight_decay"])["error"].transform("min")
        matches["behind"] = np.log(matches["error"] / best)
        found[direction] = {}
        for (family, decay), rows in matches.groupby(["family", "weight_decay"]):
            mean = np.exp(rows.groupby("law", sort=False)["behind"].mean())
            name = f"{family}, weight decay {decay:g}"
            found[direction][name] = {str(law): float(f"{value:.4g}") for law, value in mean.items()}
    return found


if __name__ == "__main__":
    facts = {
        "what": "each form's error beyond the runs that it was fitted on, over the smallest of its match",
        "source": "studies/tournament/leaderboard.csv",
        "over_best": over_best(pd.read_csv(HERE / "leaderboard.csv")),
    }
    TARGET.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
