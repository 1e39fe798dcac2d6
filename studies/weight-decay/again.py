"""The weight-decay study's trainings for the law that ships, as far as they were not trained for the one
before.

    python studies/weight-decay/again.py     # writes again.toml

Why, and what is asked, stands in README.md under "A later law", which is older than these runs; settle.py and
confirm.py print what came out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from confirm import AROUND, BUDGETS, SEEDS, Entry, plans, same_plan, trained
from make import CELL, HERE, grid, recipe
from settle import MORE, law_best


def wanted(known: pd.DataFrame) -> Iterator[tuple[Entry, Sequence[int]]]:
    """Every cell of the grid at the law's own λ*; the plans at the confirming budgets; and a grid of weight
    decays around a plan of which none was trained. With their seeds.
    """
    for size, tokens, epochs in grid().groupby(CELL).size().index.tolist():
        best = law_best(size, tokens, epochs)
        yield Entry("λ*", size, int(tokens), epochs, best), (0, 1, *(MORE if epochs == 1 else ()))
    for ud, flops in BUDGETS:
        choice, *rivals = plans(ud, flops)
        decays = () if same_plan(known, choice).any() else AROUND
        around = [choice._replace(role=f"{x:g} λ*", weight_decay=choice.weight_decay * x) for x in decays]
        for one in (choice, *rivals, *around):
            yield one, range(SEEDS)


def study() -> str:
    """The runs as a study file."""
    known = pd.concat([pd.read_csv(HERE / name) for name in ("settle.csv", "confirm.csv")])
    parts = ["# By again.py: what README.md asks of a later law.", recipe("a later law's runs")]
    for one, seeds in wanted(known):
        if not len(trained(known, one)):
            parts.append(
                f"# {one.role}\n[[grid]]\nparams = [{one.params:.0f}]\nunique_tokens = [{one.ud}]\n"
                f"epochs = [{one.epochs:g}]\nweight_decays = [{one.weight_decay:.6g}]\n"
                f"seeds = {list(seeds)}\n"
            )
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE / "again.toml").write_text(study(), encoding="utf-8")
