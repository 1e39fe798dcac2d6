"""The solver reaches the optimum from every sensible start, respects bounds, and says so when it did not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from benchmarks.simulated import grid_table, random_base_table
from calibration.fitting.huber import Free, HuberProblems, base_problem, fit_forms, repetition_problem
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.solver import Bounds, Coordinates, Model, _solve, best_of, minimise
from planner.calibration import Calibration
from planner.laws import BASE, At, base_terms

LAW = Calibration.load("fineweb-llama2").law(0.1, "additive_4p")


def _base(seed: int) -> tuple[HuberProblems, Free, Runs]:
    runs = Runs.of(random_base_table(np.random.default_rng(seed)))
    free = base_problem(runs)
    return free.problems(runs.ln_loss, np.ones(len(runs)), 1e-3), free, runs


@pytest.mark.parametrize("seed", range(6))
def test_every_start_ends_at_the_optimum_that_scipy_finds(seed: int) -> None:
    problems, free, _ = _base(seed)
    solution = minimise(problems, free.starts, free.bounds)
    best = solution.value.min()
    assert (solution.value <= best * (1 + 1e-9)).mean() > 0.9
    assert solution.converged[solution.value <= best * (1 + 1e-9)].any()

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        state = problems.curvature(theta[None])
        return 1e3 * float(state.value[0]), 1e3 * state.gradient[:, 0]

    start = solution.theta[solution.value.argmin()] + 0.01
    for _ in range(4):
        found = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-12, "maxiter": 3000})
        start = found.x
    assert best <= found.fun / 1e3 * (1 + 1e-9)


@pytest.mark.slow
def test_optimality_on_random_tables() -> None:
    """Never worse than a second grid of starts far from the first, on 40 tables of 12 to 200 runs."""
    for seed in range(100, 120):
        problems, free, runs = _base(seed)
        fit = fit_forms(runs, ["chinchilla"]).forms["chinchilla"]
        rng = np.random.default_rng(seed)
        low, high = np.array([0.05, -4.0, 0.05, -4.0, 0.05]), np.array([0.99, 1.5, 1.5, 1.5, 1.5])
        other = minimise(problems, rng.uniform(low, high, (324, 5)), free.bounds, max_iterations=500)
        at_optimum = fit.optimum.value <= other.value.min() * (1 + 1e-9)
        assert at_optimum or fit.problem is not None


def test_four_parameter_form_converges_from_all_160_starts() -> None:
    runs = Runs.of(grid_table(LAW, 161, 0.005, np.random.default_rng(0)))
    fit = fit_forms(runs, ["additive_4p"]).forms["additive_4p"]
    assert fit.optimum.starts == 160
    assert fit.optimum.share > 0.95
    assert fit.optimum.converged
    assert fit.optimum.gradient_norm < 1e-8


def test_an_optimum_beyond_a_bound_is_found_on_the_bound() -> None:
    """Without a floor in the data, E is exactly zero and the rest of the fit is the constrained optimum."""
    rng = np.random.default_rng(3)
    n, d = rng.uniform(-2, 2, (2, 60))
    ln_loss = np.log(np.exp(0.3 - 0.2 * n) + np.exp(0.1 - 0.3 * d) - 0.15) + 0.002 * rng.standard_normal(60)
    one = np.ones(60)
    middle, at = At(1.0, 1.0, 1.0), At(np.exp(n), np.exp(d), 1.0)
    bounds = Bounds(np.array([0.0, -9, 0.01, -9, 0.01]), np.array([9.0, 9, 5, 9, 5]))
    starts = np.array([[0.5, 0.0, 0.4, 0.0, 0.4], [0.1, 0.3, 0.2, 0.3, 0.2]])
    free = Model(base_terms, Coordinates(BASE, middle, middle), at, {})
    whole = minimise(HuberProblems(free, ln_loss, one, 1e-2), starts, bounds)
    assert whole.theta[0, 0] == 0.0
    assert whole.side[0, 0]
    assert whole.converged.all()
    without = Model(base_terms, Coordinates(BASE[1:], middle, middle), at, {"E": 0.0})
    held = minimise(
        HuberProblems(without, ln_loss, one, 1e-2),
        starts[:, 1:],
        Bounds(bounds.lower[1:], bounds.upper[1:]),
    )
    assert whole.value.min() == pytest.approx(held.value.min(), rel=1e-10)


def test_weights_are_repetitions() -> None:
    """A run with weight two counts exactly like the run listed twice."""
    _, free, runs = _base(1)
    rng = np.random.default_rng(0)
    counts = rng.multinomial(len(runs), np.full(len(runs), 1 / len(runs)))
    weighted = best_of(free.problems(runs.ln_loss, counts.astype(float), 1e-3), free.starts, free.bounds)
    rows = np.repeat(np.arange(len(runs)), counts)
    listed = base_problem(runs, rows)
    listed_best = best_of(
        listed.problems(runs.ln_loss[rows], np.ones(len(rows)), 1e-3), listed.starts, listed.bounds
    )
    assert weighted.value == pytest.approx(listed_best.value, rel=1e-9)


def test_batches_solve_each_problem_as_alone() -> None:
    runs = Runs.of(grid_table(LAW, 60, 0.01, np.random.default_rng(5)))
    rng = np.random.default_rng(1)
    base = fit_forms(runs, ["chinchilla"]).forms["chinchilla"].theta
    bases = base + 0.01 * rng.standard_normal((6, 5))
    free = repetition_problem("additive_4p", runs, bases)
    weights = rng.dirichlet(np.ones(len(runs)), size=6) * len(runs)
    starts = np.tile(free.starts[77], (6, 1))
    together = minimise(free.problems(runs.ln_loss, weights, 1e-3), starts, free.bounds)
    for i in range(6):
        alone = repetition_problem("additive_4p", runs, bases[i])
        one = minimise(alone.problems(runs.ln_loss, weights[i], 1e-3), starts[:1], alone.bounds)
        assert together.value[i] == pytest.approx(one.value[0], rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_started_at_the_optimum_it_says_so(seed: int) -> None:
    problems, free, _ = _base(seed)
    best = best_of(problems, free.starts, free.bounds)
    again = minimise(problems, best.theta[None], free.bounds)
    assert again.converged.all()
    assert again.value[0] <= best.value * (1 + 1e-12)


def test_running_out_of_iterations_is_not_convergence() -> None:
    problems, free, _ = _base(2)
    solution = minimise(problems, free.starts[:8], free.bounds, max_iterations=3)
    assert not solution.converged.any()


@given(st.integers(1, 7), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_small_systems_are_solved_like_lapack_does(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((5, size, size))
    matrices = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(size)
    matrices[0] -= 2 * np.linalg.eigvalsh(matrices[0])[-1] * np.eye(size)  # negative definite
    right = rng.standard_normal((5, size))
    x, definite = _solve(np.moveaxis(matrices, 0, -1).copy(), right.T.copy(), np.zeros((size, 5), dtype=bool))
    assert list(definite) == [False, True, True, True, True]
    np.testing.assert_allclose(
        x.T[1:], np.linalg.solve(matrices[1:], right[1:, :, None])[..., 0], rtol=1e-6, atol=1e-8
    )
