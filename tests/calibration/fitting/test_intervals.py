"""Intervals: they cover the truth, carry the base law's
uncertainty, are reproducible, and are kept in the calibration.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.simulated import grid_table
from calibration import fit
from calibration.fitting.evaluate.summary import (
    allocation_intervals,
    deviation,
    loss_interval,
    parameter_intervals,
)
from calibration.fitting.huber import (
    Fits,
    bootstrap,
    fit_forms,
    parameters_of,
    refit_record,
    resampled_losses,
    resampled_weights,
)
from calibration.fitting.runs.arrays import Runs
from planner import crossover
from planner.calibration import Calibration
from planner.inputs import CONTINUOUS, InvalidInput
from planner.solve import allocate
from planner.uncertainty import interval

PAPER = Calibration.load("fineweb-llama2")
LAW = PAPER.law(0.1, "additive_4p")


@pytest.fixture(scope="module")
def fits() -> Fits:
    return fit_forms(
        Runs.of(grid_table(LAW, 80, 0.005, np.random.default_rng(0))), ["chinchilla", "additive_4p"]
    )


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    tables = [
        grid_table(PAPER.law(d, "additive_4p"), 120, 0.003, np.random.default_rng(6), weight_decay=d)
        for d in (0.1, 1.0)
    ]
    table = pd.concat(tables).assign(run=lambda frame: [f"r{i}" for i in range(len(frame))])
    return fit(table, laws=["additive_4p"], prior="none", bootstrap=150)


@given(arrays(float, st.integers(2, 60), elements=st.floats(-1e6, 1e6)))
def test_interval_is_ordered_and_inside_the_values(values: np.ndarray) -> None:
    found = interval(values)
    assert found is not None
    assert values.min() <= found.low <= found.median <= found.high <= values.max()
    assert 0 <= deviation(values) <= np.ptp(values)


def test_interval_needs_mostly_finite_values() -> None:
    assert interval([np.nan, np.nan, 1.0]) is None
    assert interval([1.0, 2.0, np.inf]) is not None


def test_the_truth_is_within_the_intervals(calibration: Calibration) -> None:
    """One table of 120 runs per setting; the coverage itself is measured by benchmarks/coverage.py."""
    setting = calibration.setting(0.1)
    best = allocate(LAW, 250e6, 5e18, CONTINUOUS)
    found = allocation_intervals(setting, "additive_4p", 250e6, 5e18)
    assert found["params"].low < float(best.params) < found["params"].high
    assert found["epochs"].low < float(best.epochs) < found["epochs"].high
    loss = loss_interval(setting, "additive_4p", 6e8, 250e6, 5)
    assert loss is not None
    assert loss.low < float(LAW.loss(6e8, 250e6, 5)) < loss.high
    crossing = crossover(250e6, calibration=calibration, epochs="continuous").interval
    assert crossing is not None
    low, high = 1e18, 1e19  # the crossover of the true laws, by bisection
    for _ in range(40):
        middle = (low * high) ** 0.5
        weak, strong = (
            allocate(PAPER.law(d, "additive_4p"), 250e6, middle, CONTINUOUS).loss for d in (0.1, 1.0)
        )
        low, high = (middle, high) if weak < strong else (low, middle)
    assert crossing.low < low < crossing.high


def test_the_file_keeps_the_ensemble_with_seven_digits(calibration: Calibration) -> None:
    setting = calibration.setting(0.1)
    assert setting.draws is not None
    columns = setting.draws.laws["additive_4p"]
    assert {len(values) for values in columns.values()} == {150}
    assert all(float(f"{value:.7g}") == value for value in columns["P"])
    for name, found in parameter_intervals(setting, "additive_4p").items():
        assert setting.laws["additive_4p"].spread[name] == deviation(columns[name])
        assert setting.laws["additive_4p"].intervals[name] == [found.low, found.median, found.high]  # type: ignore[attr-defined]


@pytest.mark.parametrize("scheme", ["residuals", "weights"])
@pytest.mark.parametrize("resample", ["runs", "cells"])
def test_both_phases_are_refitted(fits: Fits, scheme: str, resample: str) -> None:
    refits = bootstrap(fits, 40, resample=resample, scheme=scheme)["additive_4p"]
    assert refits.converged.mean() > 0.9
    assert refits.theta.std(axis=0).min() > 0


def test_refits_are_optima_of_their_resample(fits: Fits) -> None:
    """Starting from the fit at hand finds what a fit from scratch finds."""
    targets = resampled_losses(fits, "additive_4p", 8, "runs", np.random.default_rng(1))
    again = bootstrap(fits, 8, seed=1)["additive_4p"]
    values = parameters_of("additive_4p", again.theta, fits.runs)
    for i in range(8):
        runs = Runs(**{**fits.runs.__dict__, "ln_loss": targets[i]})
        scratch = fit_forms(runs, ["additive_4p"]).forms["additive_4p"].parameters
        assert {name: float(column[i]) for name, column in values.items()} == pytest.approx(scratch, rel=1e-3)


def test_the_same_seed_gives_the_same_refits(fits: Fits) -> None:
    one, two, other = (bootstrap(fits, 10, seed=seed)["additive_4p"].theta for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_weights_count_runs_and_cells(fits: Fits) -> None:
    rng = np.random.default_rng(0)
    weights = resampled_weights(fits, 30, "runs", rng)
    single = fits.runs.single
    assert (weights[:, single].sum(axis=1) == single.sum()).all()
    assert (weights[:, ~single].sum(axis=1) == (~single).sum()).all()
    by_cell = resampled_weights(fits, 30, "cells", rng)
    for cell in np.unique(fits.runs.cells):
        assert (by_cell[:, fits.runs.cells == cell].std(axis=1) == 0).all()


def test_cells_share_what_their_runs_have_in_common() -> None:
    """With noise that a cell's runs share, redrawing cells gives wider intervals than redrawing runs."""
    table = grid_table(LAW, 160, 0.001, np.random.default_rng(3), cell_noise=0.01)
    fitted = fit_forms(Runs.of(table), ["additive_1p"])
    targets = {
        how: resampled_losses(fitted, "additive_1p", 200, how, np.random.default_rng(0))
        for how in ("runs", "cells")
    }
    cell = np.bincount(fitted.runs.cells).argmax()
    rows = fitted.runs.cells == cell
    means = {
        how: (values - values.mean(axis=0))[:, rows].mean(axis=1).std() for how, values in targets.items()
    }
    assert means["cells"] > 1.2 * means["runs"]


def test_redrawn_residuals_have_the_spread_of_the_noise() -> None:
    table = grid_table(LAW, 200, 0.01, np.random.default_rng(5))
    fitted = fit_forms(Runs.of(table), ["additive_4p"])
    for how in ("runs", "cells"):
        targets = resampled_losses(fitted, "additive_4p", 400, how, np.random.default_rng(0))
        assert targets.std(axis=0).mean() == pytest.approx(0.01, rel=0.15)


@pytest.mark.parametrize("resample", ["runs", "cells"])
def test_a_poor_repetition_form_does_not_blur_the_base_law(resample: str) -> None:
    """The base law is read off the single-epoch runs, so that its
    refits are the same whatever the repetition form misses.
    """
    table = grid_table(PAPER.law(1.0, "additive_4p"), 80, 0.003, np.random.default_rng(8))
    refits = bootstrap(fit_forms(Runs.of(table)), 30, resample=resample)
    for form in refits:
        np.testing.assert_array_equal(refits[form].theta[:, :5], refits["chinchilla"].theta)


def test_refits_on_a_bound_are_counted_and_open_the_interval(fits: Fits) -> None:
    refits = bootstrap(fits, 100)["additive_4p"]
    record = refit_record("additive_4p", refits)
    assert record["made"] == 100
    assert record["kept"] == refits.converged.sum()
    assert record["open"] == {}
    side = np.zeros_like(refits.side)
    side[:10, 6] = 1  # delta
    side[0, 0] = -1
    found = refit_record("additive_4p", refits._replace(side=side, converged=np.ones(100, dtype=bool)))
    assert found["at_bound"] == {"E": 1, "delta": 10}
    assert found["open"] == {"delta": ["above"]}


@pytest.mark.parametrize(("joint", "phases"), [(False, "both phases"), (True, "all parameters together")])
def test_the_ensemble_says_how_it_was_made(joint: bool, phases: str) -> None:
    table = grid_table(PAPER.law(0.1, "additive_1p"), 40, 0.005, np.random.default_rng(1))
    setting = fit(table, laws=["additive_1p"], prior="none", bootstrap=5, joint=joint, seed=3).settings[0]
    assert setting.draws is not None
    assert setting.draws.method == f"bootstrap of {phases}, residuals over runs, seed 3"
    kept = setting.laws["additive_1p"].convergence["refits"]["kept"]  # type: ignore[attr-defined]
    assert kept == len(setting.draws.laws["additive_1p"]["P"])


def test_intervals_without_refits_say_how_to_get_them() -> None:
    with pytest.raises(InvalidInput, match="a fit with bootstrap 1000"):
        loss_interval(PAPER.setting(0.1), "additive_4p", 1e8, 1e8, 4)
