"""Fits of the family: a law is found again from its own losses, and one that the runs do not need says so."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.simulated import grid_table, random_table
from calibration.fitting.huber import fit_forms
from calibration.fitting.runs.arrays import Runs
from planner.laws import Law, repetition_parameters
from studies.tournament.forms import registered

BASE = {"E": 1.9, "A": 420.0, "alpha": 0.34, "B": 3600.0, "beta": 0.37}
OWN = {"R_D_star": 6.0, "rho": 0.4, "P": 0.03, "delta": 1.2, "kappa": 1.1, "gamma": 1.0, "c": 0.3}


SLOW = [pytest.param(form, marks=pytest.mark.slow) for form in ("decay_4p", "bounded", "paced_hill_5p")]


@pytest.fixture(scope="module", autouse=True)
def study() -> Iterator[None]:
    """With the forms of the tournament, which are not shipped."""
    with registered():
        yield


@pytest.mark.parametrize("form", ["hill_4p", "decay_hill_4p", *SLOW])
@pytest.mark.parametrize("joint", [False, True])
def test_a_law_is_found_again_from_its_own_losses(form: str, joint: bool) -> None:
    law = Law(form, {**BASE, **{name: OWN[name] for name in repetition_parameters(form)}})
    table = grid_table(law, 70, 0.0, np.random.default_rng(0))
    fitted = fit_forms(Runs.of(table), [form], joint=joint, most_starts=60).forms[form]
    predicted = Law(form, fitted.parameters).loss(table["params"], table["unique_tokens"], table["epochs"])
    np.testing.assert_allclose(predicted, table["loss"], rtol=2e-4)


def test_repeats_that_do_not_fade_are_not_called_fading() -> None:
    plain = Law("hill_4p", {**BASE, **{name: OWN[name] for name in repetition_parameters("hill_4p")}})
    runs = Runs.of(grid_table(plain, 90, 0.002, np.random.default_rng(1)))
    found = fit_forms(runs, ["hill_4p", "decay_hill_4p"]).forms
    assert found["hill_4p"].problem is None
    faded = found["decay_hill_4p"]
    assert faded.parameters["R_D_star"] > 50 or "R_D_star" in (faded.problem or "")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["hill_4p", "decay_hill_4p"])
def test_few_starts_of_a_random_table_agree_with_all(form: str) -> None:
    runs = Runs.of(random_table(form, np.random.default_rng(7)))
    all_starts, few = (fit_forms(runs, [form], most_starts=most).forms[form].optimum for most in (None, 24))
    assert few.value == pytest.approx(all_starts.value, rel=1e-9)
    assert few.starts < all_starts.starts or all_starts.starts <= 24
