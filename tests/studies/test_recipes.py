"""The study of recipes for limited data: its page says what its tables print."""

from __future__ import annotations

from types import ModuleType

import pandas as pd
import pytest

from tests.places import ROOT, script

FOLDER = ROOT / "studies" / "recipes"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    return script("studies/recipes/make.py")


def test_every_arm_has_the_runs_of_the_protocol_and_its_row(make: ModuleType) -> None:
    page = (FOLDER / "results.md").read_text(encoding="utf-8")
    base = make.base()
    small = base[base["unique_tokens"] == 24576]
    for arm in make.ARMS:
        runs = pd.read_csv(FOLDER / f"{arm}.csv")
        assert len(runs) == (48 if arm == "wsd" else 24)
        assert runs["loss"].notna().all()
        nats, counts, *decays = make.worth(runs[runs["unique_tokens"] == 24576], small).split(" | ")
        row = next(line for line in page.splitlines() if line.startswith(f"| {arm} | "))
        assert row.startswith(f"| {arm} | {nats} | {counts}")
        assert row.endswith(f"| {' | '.join(decays)} |")


def test_best_epochs_are_those_of_the_page(make: ModuleType) -> None:
    page = (FOLDER / "results.md").read_text(encoding="utf-8")
    tables = {arm: pd.read_csv(FOLDER / f"{arm}.csv") for arm in make.ARMS}
    found = [make.best_epochs(one[one["unique_tokens"] == 24576]) for one in tables.values()]
    for size, decay in found[0].index:
        cells = " | ".join(f"{one[size, decay]:.1f}" for one in found)
        assert f"| {size:,.0f} | {decay:g} | " in page
        assert f"| {cells} |" in page
