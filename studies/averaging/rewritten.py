"""What a rewritten token is worth, against one that is repeated, as studies/averaging/protocol.md has it.

DATABOUND_SHARED=... python studies/averaging/rewritten.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

SHARED = Path(os.environ.get("DATABOUND_SHARED", Path(__file__).resolve().parents[3] / "shared"))
BATCH, FEWEST_STEPS = 2_097_152, 400
PLACE = ["params_nominal", "unique_tokens"]
ELSEWHERE = {"params": 299649792.0, "unique_tokens": 196608000.0, "K": 1.0, "gap": 3.67209 - 3.76518}  # DCLM
FEATURES = {
    "repeat": [],
    "constant": ["one"],
    "rewrites": ["one", "rewrites"],
    "size, data, rewrites": ["one", "rewrites", "size", "data"],
}


def cells() -> pd.DataFrame:
    """The best of every rewritten cell, next to the tuned repeat of as many tokens where that was trained."""
    data = SHARED / "data"
    rewritten, repeated = (
        pd.read_csv(data / f"qin2026_dolma_{name}.csv") for name in ("rewritten", "repeat")
    )
    rewritten = rewritten[(rewritten["kind"] == "paraphrase") & (rewritten["tokens"] >= FEWEST_STEPS * BATCH)]
    best = rewritten.loc[rewritten.groupby([*PLACE, "K", "tokens"])["loss"].idxmin()].copy()
    repeated = repeated.assign(tokens=repeated["unique_tokens"] * repeated["epochs"])
    repeated = repeated[repeated["tokens"] >= FEWEST_STEPS * BATCH]
    best["reference"] = [_at_equal_tokens(repeated, one) for _, one in best.iterrows()]
    best["gap"] = best["loss"] - best["reference"]
    return with_features(best.dropna(subset=["gap"]))


def _at_equal_tokens(repeated: pd.DataFrame, cell: pd.Series) -> float:
    """The lowest loss of repeats of the same size and unique tokens, between amounts of tokens on a line."""
    same = repeated[(repeated[PLACE] == cell[PLACE].to_numpy(float)).all(axis=1)]
    tuned = same.groupby("tokens")["loss"].min()
    if len(tuned) < 2:
        return np.nan
    ends = {"left": np.nan, "right": np.nan}  # inside of what was repeated only
    return float(np.interp(np.log(cell["tokens"]), np.log(tuned.index), tuned, **ends))


def with_features(table: pd.DataFrame) -> pd.DataFrame:
    logs = {"size": np.log(table["params"] / 1e8), "data": np.log(table["unique_tokens"] / 1e8)}
    return table.assign(one=1.0, rewrites=np.log1p(table["K"]), **logs)


def fitted(table: pd.DataFrame, names: list[str]) -> np.ndarray:
    return np.linalg.lstsq(table[names].to_numpy(float), table["gap"].to_numpy(float), rcond=None)[0]


def left_out(table: pd.DataFrame, names: list[str], by: str) -> pd.Series:
    """The mean absolute error of each group, predicted from the others."""
    errors = {}
    for group, some in table.groupby(by):
        guess = some[names].to_numpy(float) @ fitted(table[table[by] != group], names) if names else 0.0
        errors[group] = float(np.abs(some["gap"] - guess).mean())
    return pd.Series(errors)


def lines() -> Iterator[str]:
    table = cells()
    sizes = ", ".join(f"{size / 1e6:g}M: {len(some)}" for size, some in table.groupby("params_nominal"))
    yield f"{len(table)} cells with a repeat of as many tokens ({sizes})."
    yield ""
    yield "| nominal size | gap: mean | lowest | highest | rewriting better in |"
    yield "| --- | --- | --- | --- | --- |"
    for size, some in table.groupby("params_nominal"):
        gap = some["gap"]
        ends = f"{gap.mean():+.3f} | {gap.min():+.3f} | {gap.max():+.3f}"
        yield f"| {size / 1e6:g}M | {ends} | {(gap < 0).sum()} of {len(gap)} |"
    yield ""
    yield "| candidate | sizes left out | against repeat | data left out | against repeat | DCLM (-0.093) |"
    yield "| --- | --- | --- | --- | --- | --- |"
    there = with_features(pd.DataFrame([ELSEWHERE]))
    for name, features in FEATURES.items():
        row = [name]
        for by in ("params_nominal", "unique_tokens"):
            errors, base = left_out(table, features, by), left_out(table, [], by)
            gain = errors - base
            spread = gain.std(ddof=1) / np.sqrt(len(gain))
            row += [f"{errors.mean():.3f}", f"{gain.mean():+.3f} ± {2 * spread:.3f}"]
        guess = float((there[features].to_numpy(float) @ fitted(table, features))[0]) if features else 0.0
        yield f"| {' | '.join(row)} | {guess:+.3f} |"


if __name__ == "__main__":
    print("\n".join(lines()))
