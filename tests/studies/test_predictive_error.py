"""The error that is stated beyond the evidence holds trainings that were hidden from it."""

from __future__ import annotations

import pytest

from tests.places import SHARED, page, script

LEVEL = 0.8  # of the intervals


def test_it_holds_trainings_above_a_billion_and_budgets_that_were_hidden() -> None:
    paper, said = script("studies/paper/make.py"), page("studies/predictive-error/results.md")
    inside, of = paper.covered(lambda row: row.params > 1e9)
    assert of == sum(row.params > 1e9 for row in paper.misses()) >= 5
    assert inside >= LEVEL * of
    assert f"above 1B parameters hidden: **{inside} of {of}**" in said
    budgets = {row.budget for row in paper.misses()}
    each = [paper.covered(lambda row, budget=budget: row.budget == budget) for budget in budgets]
    inside, of = (sum(column) for column in zip(*each, strict=True))
    assert of == len(paper.misses())
    assert inside >= LEVEL * of
    assert f"each budget hidden in turn: {inside} of {of}" in said


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the public run tables are not here")
def test_it_holds_the_largest_third_of_the_c4_runs() -> None:
    study, said = script("studies/predictive-error/make.py"), page("studies/predictive-error/results.md")
    share, number, at = study.largest_third_hidden(study.tables(SHARED / "data")["C4"])
    assert number >= 50
    assert share >= LEVEL
    assert f"the {number} runs above {at / 1e9:.3g}B parameters hidden: **{share:.0%}**" in said
