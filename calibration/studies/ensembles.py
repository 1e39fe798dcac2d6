"""What ensembles of a study's runs reach: runs that differ in their seed only are members of one cell.

Every member scores each held-out token once, one model in memory at a time, and what it found is kept:

    scored/NAME/validation-CHECKSUM.npy      minus log-probabilities; of other weights, under another name

The loss of K members is the mean over all subsets of K (over `SUBSETS` of them, drawn once and for all, where
there are more). Its standard error is that of the jackknife over members: each is left out in turn. Where all
members make the only subset, that of one member fewer stands in.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.studies.directory import StudyDirectory, write_if_changed
from calibration.studies.study import StudyRun
from planner.inputs import InvalidInput

SUBSETS = 256  # of one size; eight members have at most 70
BLOCK = 2**16  # tokens at a time
SETS = ("validation", "development")
TABLE = "ensembles.csv"
CELL = ["params", "unique_tokens", "epochs", "weight_decay", "learning_rate"]
Tell = Callable[[str, int, int], None]  # which run, tokens done, tokens in all


@dataclass(frozen=True)
class Reached:
    """The loss of K members, averaged over subsets, and how much it depends on which seeds they had."""

    members: int
    subsets: int
    loss: float
    error: float | None


def cells(runs: Sequence[StudyRun]) -> dict[str, list[StudyRun]]:
    """Runs by what they share, which is everything but the seed; in the order of the study."""
    found: dict[str, list[StudyRun]] = {}
    for run in runs:
        identity = {**run.config.identity(), "seed": None}
        found.setdefault(repr(sorted(identity.items())), []).append(run)
    return {members[0].name: members for members in found.values()}


def check(runs: Sequence[StudyRun]) -> None:
    """Raise where no cell has two members."""
    if all(len(members) < 2 for members in cells(runs).values()):
        raise InvalidInput(
            "no two runs of the study differ in their seed only, so there is nothing to average; "
            "seeds = [0, 1, 2, 3] in a [[grid]] would do."
        )


def table(
    directory: StudyDirectory, runs: Sequence[StudyRun], tell: Tell = lambda name, done, of: None
) -> pd.DataFrame:
    """One row for each cell and number of members, of the runs that are finished."""
    rows: list[dict[str, Any]] = []
    for members in cells(runs).values():
        done = [run for run in members if directory.result(run.name) is not None]
        if len(done) > 1:
            rows += _rows(directory, done, tell)
    return pd.DataFrame(rows)


def write_table(directory: StudyDirectory, found: pd.DataFrame) -> Path:
    path = directory.path / TABLE
    write_if_changed(path, found.to_csv(index=False))
    return path


def reached(nats: Sequence[np.ndarray]) -> list[Reached]:
    """The loss of 1, 2, ... of the members whose minus log-probabilities these are, token by token."""
    losses = {size: _subset_losses(nats, size) for size in range(1, len(nats) + 1)}
    errors = {size: _jackknife(found, len(nats)) for size, found in losses.items()}
    errors[len(nats)] = errors.get(len(nats) - 1)
    return [
        Reached(size, len(found), float(np.mean([*found.values()])), errors[size])
        for size, found in losses.items()
    ]


def subsets(members: int, size: int) -> list[tuple[int, ...]]:
    """All subsets of so many members, or `SUBSETS` of them, always the same."""
    if math.comb(members, size) <= SUBSETS:
        return list(combinations(range(members), size))
    draw = np.random.default_rng([members, size])
    found: set[tuple[int, ...]] = set()
    while len(found) < SUBSETS:
        found.add(tuple(sorted(draw.choice(members, size, replace=False).tolist())))
    return sorted(found)


def _subset_losses(nats: Sequence[np.ndarray], size: int) -> dict[tuple[int, ...], float]:
    tokens = len(nats[0])
    sums = dict.fromkeys(subsets(len(nats), size), 0.0)
    for start in range(0, tokens, BLOCK):
        block = np.stack([one[start : start + BLOCK] for one in nats])
        least = block.min(0)
        likely = np.exp(least - block)  # so that a token that all find unlikely does not vanish
        for chosen in sums:
            sums[chosen] += float(np.sum(least - np.log(likely[list(chosen)].mean(0))))
    return {chosen: total / tokens for chosen, total in sums.items()}


def _jackknife(losses: Mapping[tuple[int, ...], float], members: int) -> float | None:
    """The standard error of the mean over subsets, from leaving each member out."""
    without = [[loss for chosen, loss in losses.items() if member not in chosen] for member in range(members)]
    if not all(without) or members < 2:
        return None
    means = np.array([np.mean(some) for some in without])
    return float(np.sqrt((members - 1) / members * np.sum((means - means.mean()) ** 2)))


def _rows(directory: StudyDirectory, runs: Sequence[StudyRun], tell: Tell) -> list[dict[str, Any]]:
    from trainer.run.ensembles import members

    for run in runs:
        directory.fetch_weights(run.name)
    found = members([directory.run_folder(run.name) for run in runs])
    first = found[0].result
    sets = [name for name in SETS if name in found[0].data.facts["streams"]]
    by_set = {name: reached([_nats(directory, one, name, tell) for one in found]) for name in sets}
    rows = []
    for place, validation in enumerate(by_set["validation"]):
        row: dict[str, Any] = {**{name: getattr(first, name) for name in CELL}, **asdict(validation)}
        row["bits_per_byte"] = validation.loss * first.bits_per_byte / first.loss
        if "development" in by_set:
            row["development_loss"] = by_set["development"][place].loss
        row["seeds"] = " ".join(str(one.result.seed) for one in found)
        rows.append(row)
    return rows


def _nats(directory: StudyDirectory, member: Any, name: str, tell: Tell) -> np.ndarray:
    """What a member gave each token of a held-out set, scored now or before."""
    from trainer.run.ensembles import member_nats

    checksum = member.result.weights_checksum[:16]
    path = directory.path / "scored" / member.folder.name / f"{name}-{checksum}.npy"
    if not path.is_file():
        run = member.folder.name
        found = member_nats(
            member, member.held_out(name)[0], tell=lambda done, of: tell(f"{run} {name}", done, of)
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with open(draft, "wb") as stream:
            np.save(stream, found)
        os.replace(draft, path)
    return np.asarray(np.load(path, mmap_mode="r"))
