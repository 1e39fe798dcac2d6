"""The optimum is global: never worse than an exhaustive grid, for any law, budget and limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from planner import Calibration, Law
from planner.inputs import CONTINUOUS, Limits
from planner.solve import allocate
from tests.planner.strategies import laws, products, unique_tokens

GRID = np.exp(np.linspace(np.log(1e-3), np.log(1e5), 200_000))


@settings(max_examples=150)
@given(laws(), products, unique_tokens)
def test_never_worse_than_a_fine_grid(law: Law, product: float, u: float) -> None:
    best = allocate(law, u, 6 * u * product, CONTINUOUS)
    assert float(best.loss) <= float(np.min(law.loss(product / GRID, u, GRID))) + 1e-9


@settings(max_examples=150)
@given(laws(), products, unique_tokens)
def test_never_worse_than_any_whole_number_of_epochs(law: Law, product: float, u: float) -> None:
    best = allocate(law, u, 6 * u * product)
    every = np.arange(1.0, 20_001.0)
    assert float(best.loss) <= float(np.min(law.loss(product / every, u, every))) + 1e-12
    assert best.epochs < 1 or best.epochs == np.round(best.epochs)


@given(laws(), products, unique_tokens)
def test_the_plan_spends_exactly_the_budget(law: Law, product: float, u: float) -> None:
    for whole in (True, False):
        best = allocate(law, u, 6 * u * product, Limits(whole_epochs=whole))
        assert float(6 * best.params * best.tokens) == pytest.approx(6 * u * product, rel=1e-12)
        assert float(best.tokens) == pytest.approx(float(u * best.epochs), rel=1e-12)
        assert float(best.loss) == pytest.approx(float(law.loss(best.params, u, best.epochs)), rel=1e-12)


@given(laws(), unique_tokens, st.lists(products, min_size=1, max_size=40))
def test_many_budgets_at_once_equal_one_at_a_time(law: Law, u: float, many: list[float]) -> None:
    flops = 6 * u * np.array(many)
    for whole in (True, False):
        together = allocate(law, u, flops, Limits(whole_epochs=whole))
        alone = [float(allocate(law, u, f, Limits(whole_epochs=whole)).loss) for f in flops]
        assert together.loss == pytest.approx(np.array(alone), abs=1e-10)


@given(laws(), products, unique_tokens, st.floats(0.02, 30), st.floats(1.0, 50.0), st.floats(0.5, 20.0))
def test_limits_are_kept_and_the_best_within_them_is_found(
    law: Law, product: float, u: float, largest: float, spread: float, most: float
) -> None:
    limits = {
        "max_params": product / largest * spread,
        "min_params": product / largest / spread,
        "max_epochs": most,
    }
    best = allocate(law, u, 6 * u * product, Limits(whole_epochs=False, **limits))
    low, high = product / limits["max_params"], min(product / limits["min_params"], most)
    if low > high:
        assert np.isnan(best.loss)
        return
    assert low * (1 - 1e-9) <= best.epochs <= high * (1 + 1e-9)
    grid = np.exp(np.linspace(np.log(low), np.log(high), 5000))
    assert float(best.loss) <= float(np.min(law.loss(product / grid, u, grid))) + 1e-9
    whole = allocate(law, u, 6 * u * product, Limits(**limits))
    if np.isfinite(whole.loss):
        assert low * (1 - 1e-9) <= whole.epochs <= high * (1 + 1e-9)
        assert whole.loss >= best.loss - 1e-12


def test_several_local_minima_return_the_global_one() -> None:
    """Two valleys: many epochs of a small model, and one epoch of a large one."""
    law = Calibration.load().law(1.0, "additive_2p")
    product = 1e21 / (6 * 500e6)
    loss = law.loss(product / GRID, 500e6, GRID)
    valleys = np.flatnonzero((loss[1:-1] < loss[:-2]) & (loss[1:-1] <= loss[2:])) + 1
    assert len(valleys) >= 2
    best = allocate(law, 500e6, 1e21, CONTINUOUS)
    assert float(best.loss) <= loss.min() + 1e-9
    descent = minimize_scalar(
        lambda x: float(law.loss(product / np.exp(x), 500e6, np.exp(x))), bracket=(4.0, 5.0)
    )
    assert descent.fun > float(best.loss) + 1e-3  # a local search from the wrong side is fooled


def test_less_than_one_epoch_when_data_is_plentiful() -> None:
    law = Calibration.load().law(0.1)
    for whole in (True, False):
        best = allocate(law, 100e9, 1e18, Limits(whole_epochs=whole))
        assert best.epochs < 1
        fresh = allocate(law.base(), 1e15, 1e18, CONTINUOUS)
        assert float(best.params) == pytest.approx(float(fresh.params), rel=1e-6)


def test_draws_are_allocated_one_by_one() -> None:
    law = Calibration.load().law(0.1)
    scale = np.array([0.8, 1.0, 1.3])
    draws = Law(law.form, {k: v * (scale if k == "P" else np.ones(3)) for k, v in law.parameters.items()})
    best = allocate(draws, 250e6, 5e18, CONTINUOUS)
    for i in range(3):
        alone = allocate(draws.draw(i), 250e6, 5e18, CONTINUOUS)
        assert float(best.epochs[i]) == pytest.approx(float(alone.epochs), rel=1e-7)
    grid = allocate(draws, 250e6, np.array([1e18, 5e18])[:, None])
    assert grid.loss.shape == (2, 3)


def test_known_shape_of_the_frontier() -> None:
    """At 250M tokens and weight decay 0.1: epochs peak near
    6.5, and the optimal loss is lowest near 3.8e18 FLOPs.
    """
    law = Calibration.load().law(0.1)
    flops = np.geomspace(1e18, 1e19, 400)
    best = allocate(law, 250e6, flops, CONTINUOUS)
    assert best.epochs.max() == pytest.approx(6.5, abs=0.1)
    assert flops[best.epochs.argmax()] == pytest.approx(2.4e18, rel=0.1)
    assert flops[best.loss.argmin()] == pytest.approx(3.8e18, rel=0.1)
    assert best.loss.min() == pytest.approx(3.123, abs=1e-3)
    assert float(allocate(law, 250e6, 5e18).loss) == pytest.approx(3.135, abs=1e-3)


def test_wild_laws_have_an_answer() -> None:
    """Draws far off the data can have extreme exponents; they must not bring a plan down."""
    base = {"E": 0.0, "A": 1.5, "alpha": 0.02, "B": 3e5, "beta": 0.9}
    wild = Law("additive_4p", {**base, "P": 1e-3, "delta": 2.5, "kappa": 4.9, "gamma": 0.2})
    for whole in (True, False):
        best = allocate(wild, 250e6, np.geomspace(1e15, 1e24, 50), Limits(whole_epochs=whole))
        assert np.all(np.isfinite(best.loss))
        assert np.all(best.params > 0)
