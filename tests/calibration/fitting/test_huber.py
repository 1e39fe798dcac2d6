"""The objective's value, gradient and Hessian agree with each
other, with the law formulas, and with Huber's definition.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import huber

from calibration.fitting.huber import (
    HuberProblems,
    base_log_prediction,
    base_parameters,
    base_problem,
    base_theta,
    joint_problem,
    repetition_problem,
)
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.solver import Coordinates
from planner.laws import FORMS, Law
from studies.reanalysis.make import tied_problem

BASE = {"E": 1.84, "A": 217.0, "alpha": 0.30, "B": 4964.0, "beta": 0.43}
REPETITION = tuple(form for form in FORMS if form != "chinchilla")


def _runs(seed: int = 0, rows: int = 40) -> Runs:
    rng = np.random.default_rng(seed)
    params, unique = (
        np.exp(rng.uniform(np.log(1e7), np.log(2e9), rows)),
        np.exp(rng.uniform(np.log(5e7), np.log(5e9), rows)),
    )
    epochs = rng.choice([0.5, 1.0, 1.0, 2.0, 4.5, 16.0], rows)
    loss = Law("chinchilla", BASE).loss(params, unique, epochs) * np.exp(0.01 * rng.standard_normal(rows))
    return Runs.of(pd.DataFrame({"params": params, "unique_tokens": unique, "epochs": epochs, "loss": loss}))


def _problems(
    form: str, joint: bool, delta: float, count: int = 3, seed: int = 1
) -> tuple[HuberProblems, np.ndarray]:
    runs = _runs()
    rng = np.random.default_rng(seed)
    base = base_theta(BASE, runs)
    if form == "chinchilla":
        free = base_problem(runs)
        theta = base + 0.05 * rng.standard_normal((count, 5))
    elif joint:
        start = repetition_problem(form, runs, base).starts.mean(axis=0)
        free = joint_problem(form, runs, base, start)
        theta = np.concatenate([base, start]) + 0.05 * rng.standard_normal((count, free.model.size))
    else:
        free = repetition_problem(form, runs, base + 0.02 * rng.standard_normal((count, 5)))
        theta = free.starts.mean(axis=0) + 0.05 * rng.standard_normal((count, free.model.size))
    return free.problems(runs.ln_loss, rng.uniform(0.2, 2.0, (count, len(runs))), delta), theta


CASES = [("chinchilla", False), *((form, joint) for form in REPETITION for joint in (False, True))]


@pytest.mark.parametrize(("form", "joint"), CASES)
@pytest.mark.parametrize("delta", [1e-3, 0.05, 10.0])
def test_gradient_is_the_slope_of_the_objective(form: str, joint: bool, delta: float) -> None:
    problems, theta = _problems(form, joint, delta)
    gradient = problems.curvature(theta).gradient
    for k in range(theta.shape[1]):
        step = np.zeros(theta.shape[1])
        step[k] = 1e-6
        slope = (problems.curvature(theta + step).value - problems.curvature(theta - step).value) / 2e-6
        np.testing.assert_allclose(gradient[k], slope, rtol=2e-5, atol=1e-7 * np.abs(gradient).max())


@pytest.mark.parametrize(("form", "joint"), CASES)
@pytest.mark.parametrize(
    "delta", [1e-9, 10.0]
)  # all runs in the linear tails, all in the quadratic core: no kink in between
def test_hessian_is_the_slope_of_the_gradient(form: str, joint: bool, delta: float) -> None:
    problems, theta = _problems(form, joint, delta)
    hessian = problems.curvature(theta).hessian + problems.second_order(theta)
    np.testing.assert_allclose(hessian, hessian.transpose(1, 0, 2))
    for k in range(theta.shape[1]):
        step = np.zeros(theta.shape[1])
        step[k] = 1e-5
        slope = (problems.curvature(theta + step).gradient - problems.curvature(theta - step).gradient) / 2e-5
        np.testing.assert_allclose(hessian[k], slope, rtol=1e-4, atol=1e-6 * np.abs(hessian).max())


@pytest.mark.parametrize(("form", "joint"), CASES)
def test_majorant_is_an_upper_bound_of_the_huber_curvature(form: str, joint: bool) -> None:
    """For the linearised prediction: core curvature <= majorant, which is positive semidefinite."""
    for delta in (1e-3, 0.05):
        problems, theta = _problems(form, joint, delta)
        majorant = problems.curvature(theta).majorant.transpose(2, 0, 1)
        assert np.linalg.eigvalsh(majorant).min() > -1e-9 * np.abs(majorant).max()


@pytest.mark.parametrize("form", FORMS)
def test_predictions_are_those_of_the_law(form: str) -> None:
    runs = _runs()
    base = base_theta(BASE, runs)
    assert {name: float(value) for name, value in base_parameters(base, runs).items()} == pytest.approx(
        BASE, rel=1e-12
    )
    if form == "chinchilla":
        law, predicted = Law(form, BASE), base_log_prediction(base, runs)
    else:
        free = repetition_problem(form, runs, base)
        theta = free.starts[len(free.starts) // 2]
        coordinates = Coordinates(FORMS[form].repetition, *runs.middle, runs.scale)
        law = Law(form, {k: float(v) for k, v in coordinates.natural(list(theta), BASE).items()})
        predicted = free.model.log_prediction(theta[None])[0]
        joint = joint_problem(form, runs, base, theta)
        np.testing.assert_allclose(
            joint.model.log_prediction(np.concatenate([base, theta])[None])[0], predicted, rtol=1e-12
        )
    params, unique = np.exp(runs.ln_params), np.exp(runs.ln_unique)
    np.testing.assert_allclose(np.exp(predicted), law.loss(params, unique, 1 + runs.repeats), rtol=1e-10)


def test_tied_exponents_have_a_consistent_hessian() -> None:
    runs = _runs()
    free = tied_problem(runs)
    problems = free.problems(runs.ln_loss, np.ones(len(runs)), 10.0)
    theta = free.starts[40:42]
    hessian = problems.curvature(theta).hessian + problems.second_order(theta)
    for k in range(4):
        step = np.zeros(4)
        step[k] = 1e-5
        slope = (problems.curvature(theta + step).gradient - problems.curvature(theta - step).gradient) / 2e-5
        np.testing.assert_allclose(hessian[k], slope, rtol=1e-4, atol=1e-6 * np.abs(hessian).max())


def test_blocks_do_not_change_the_answer() -> None:
    problems, theta = _problems("additive_4p", False, 1e-3, count=7)
    blocks = [slice(at, at + 2) for at in range(0, 7, 2)]  # two problems at a time
    parts = [problems.pick(block).curvature(theta[block]) for block in blocks]
    for one, *others in zip(problems.curvature(theta), *parts, strict=True):
        np.testing.assert_allclose(one, np.concatenate(others, axis=-1), rtol=1e-12, atol=1e-18)


@given(st.floats(-1, 1), st.floats(1e-4, 0.5))
def test_huber_is_quadratic_inside_and_linear_outside(residual: float, delta: float) -> None:
    expected = residual**2 / 2 if abs(residual) <= delta else delta * abs(residual) - delta**2 / 2
    assert huber(delta, np.array(residual)) == pytest.approx(expected, rel=1e-9, abs=1e-300)
