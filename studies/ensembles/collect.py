"""Copy what the study's directories say into the tables that are kept here.

    python studies/ensembles/collect.py FOLDER        FOLDER holds members/, singles/ and distilled/

    runs.csv          every run: members, single models, distilled ones
    ensembles.csv     as `planner calibrate ensemble` writes it: K members, over all subsets of a cell's seeds
    first-four.csv    the same of seeds 0 to 3 only
    chosen.csv        the single models that the development documents choose, with seeds 1 and 2

Parts that are not there yet are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from make import BUDGETS, best_single

from calibration.fitting.members import CELL
from calibration.studies import ensembles
from calibration.studies.directory import is_study, open_directory, table
from calibration.studies.study import load
from trainer.run.result import read_result

HERE = Path(__file__).parent


def chosen(runs: pd.DataFrame) -> pd.DataFrame:
    """The best single models with two more seeds, where they are not members, which have eight."""
    rows = []
    for unique, times in BUDGETS:
        best = best_single(runs, unique, times)
        if best["part"] == "singles":
            rows += [{name: best[name] for name in CELL} | {"seed": seed} for seed in (1, 2)]
    return pd.DataFrame(rows).drop_duplicates()


def distilled(folder: Path) -> pd.DataFrame:
    rows = []
    for path in sorted(folder.glob("*/result.json")):
        result = read_result(path.parent)
        assert result is not None
        row = result.row() | {"weight": result.config["distill"]["weight"]}
        rows.append(row | {"teachers": len(result.config["distill"]["members"])})
    return pd.DataFrame(rows)


def main(source: Path) -> None:
    parts = {}
    for name in ("members", "singles"):
        if is_study(source / name):
            parts[name] = table(open_directory(source / name)).assign(part=name)
    if (found := distilled(source / "distilled")).size:
        parts["distilled"] = found.assign(part="distilled")
    runs = pd.concat(parts.values(), ignore_index=True)
    runs.to_csv(HERE / "runs.csv", index=False)
    if "singles" in parts:
        chosen(runs).to_csv(HERE / "chosen.csv", index=False)
    members, study = open_directory(source / "members"), load(str(HERE / "members.toml"))
    four = [run for run in study.runs if run.config.seed < 4]
    ensembles.table(members, study.runs).to_csv(HERE / ensembles.TABLE, index=False)
    ensembles.table(members, four).to_csv(HERE / "first-four.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
