"""How much each form counts: by evidence with few runs, by how little their average misses with many."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from benchmarks.few_runs import MICRO
from calibration import fit
from calibration.fitting.bayes.hierarchical import model_weights, stacking_weights


@dataclass(frozen=True)
class Told:
    """What is asked of the posterior of a form."""

    errors: np.ndarray
    evidence: float = 0.0
    effective_parameters: float = 0.0

    @property
    def seen(self) -> np.ndarray:
        return self.errors

    @property
    def residuals(self) -> np.ndarray:
        return self.errors


def weights_of(errors: dict[str, np.ndarray], evidence: dict[str, float] | None = None) -> dict[str, float]:
    evidence = evidence or {}
    return model_weights({form: {0.1: Told(one, evidence.get(form, 0.0))} for form, one in errors.items()})


def drawn(seed: int, forms: int, runs: int) -> np.ndarray:
    """Errors that are partly shared, some larger than others."""
    rng = np.random.default_rng(seed)
    shared, own = rng.standard_normal((3, runs)), rng.standard_normal((forms, runs))
    return (rng.standard_normal((forms, 3)) @ shared + own) * rng.uniform(0.3, 1.0, (forms, 1)) * 0.02


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_many_runs_are_stacked_as_an_independent_optimiser_does_it(seed, forms):
    errors = drawn(seed, forms, 400)
    least = np.mean(errors**2, axis=1).min()

    def missed(w):
        return np.sum((w @ errors) ** 2) / (2 * least) - np.log(np.maximum(w, 1e-12)).sum() / forms

    other = minimize(
        missed,
        np.full(forms, 1 / forms),
        method="SLSQP",
        bounds=[(1e-9, 1)] * forms,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-12, "maxiter": 500},
    ).x
    assert stacking_weights(errors) == pytest.approx(other, abs=2e-3)


def test_forms_that_miss_in_opposite_directions_both_count():
    wave = 0.02 * np.sin(np.arange(300))
    found = weights_of({"up": wave, "down": -2 * wave, "noisy": np.resize([0.02, -0.02], 300)})
    assert found["up"] == pytest.approx(2 * found["down"], rel=0.05)
    assert "noisy" not in found or found["noisy"] < 0.03


def test_a_form_that_explains_everything_counts_nearly_alone():
    found = weights_of({"right": np.full(200, 1e-4), "wrong": 0.05 * np.cos(np.arange(200))})
    assert found["right"] > 0.97


def test_few_runs_are_weighed_by_their_evidence():
    flat = np.resize([0.01, -0.01], 5)
    found = weights_of({"a": flat, "b": flat}, {"a": 0.0, "b": np.log(3) * 25 / 20})
    assert found["b"] / found["a"] == pytest.approx(3, rel=0.02)


def test_the_base_law_counts_only_where_it_is_alone():
    errors = np.resize([0.01, -0.01], 60)
    assert weights_of({"chinchilla": errors}) == {"chinchilla": 1.0}
    assert weights_of({"chinchilla": errors, "additive_4p": 3 * errors}) == {"additive_4p": 1.0}


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 300))
def test_weights_are_shares_and_none_is_tiny(seed, forms, runs):
    rng = np.random.default_rng(seed)
    asked = {f"form{i}": one for i, one in enumerate(drawn(seed, forms, runs))}
    found = weights_of(asked, {form: 30 * rng.standard_normal() for form in asked})
    assert sum(found.values()) == pytest.approx(1)
    assert min(found.values()) >= 0.02


def test_errors_that_are_none_do_not_divide_by_zero():
    found = weights_of({"a": np.zeros(80), "b": np.zeros(80)})
    assert found == pytest.approx({"a": 0.5, "b": 0.5})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_form_whose_errors_are_no_numbers_does_not_count(bad):
    good, wild = np.resize([0.01, -0.01], 80), np.full(80, bad)
    assert weights_of({"a": good, "b": wild}) == {"a": 1.0}
    assert weights_of({"a": good, "b": good}, {"b": -np.inf}) == {"a": 1.0}


def test_a_few_runs_of_another_weight_decay_hardly_move_the_weights():
    """Some form hits a lone run by luck; that is no reason to believe it."""
    runs = pd.read_csv(MICRO)
    many, others = runs[runs["weight_decay"] == 0.1], runs[runs["weight_decay"] == 1.0]
    for count, seed in ((1, 1), (5, 1)):
        table = pd.concat([many, others.sample(count, random_state=seed)], ignore_index=True)
        weights = fit(table, bootstrap=0, prior="fineweb-llama2").settings[0].law_weights
        assert weights["decay_hill_4p"] > 0.8


def test_every_weight_decay_has_its_say():
    """Each by its own least error, so that a noisy one does not drown the others."""
    good, bad = np.resize([0.001, -0.001], 100), np.resize([0.003, 0.003], 100)
    told = {"a": {0.1: Told(good), 1.0: Told(100 * good)}, "b": {0.1: Told(bad), 1.0: Told(100 * good)}}
    assert model_weights(told)["a"] == pytest.approx(0.9, abs=0.02)
