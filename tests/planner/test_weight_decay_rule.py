"""The weight decay of other recipes: what the rule says, whom it holds for, and what plans make of it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import plan, predict, weight_decay_rule
from planner.weight_decay_rule import FACTOR, tuned_weight_decay

sizes = st.floats(1e4, 1e11)
tokens = st.floats(1e4, 1e12)
rates = st.floats(1e-5, 1e-1)
batches = st.floats(256, 1e8)


@given(sizes, tokens, rates, batches)
def test_the_rule_is_monotone_and_ends_at_the_shortest_timescale(
    params: float, unique_tokens: float, rate: float, batch: float
) -> None:
    found = tuned_weight_decay(params, unique_tokens, rate, batch)
    assert 0 < found < math.inf
    assert tuned_weight_decay(2 * params, unique_tokens, rate, batch) >= found
    assert tuned_weight_decay(params, 2 * unique_tokens, rate, batch) < found
    assert tuned_weight_decay(params, unique_tokens, 2 * rate, batch) < found
    assert tuned_weight_decay(params, unique_tokens, rate, 2 * batch) >= found
    assert batch / (rate * found * unique_tokens) >= 0.99 / weight_decay_rule.SHORTEST


@given(sizes, tokens, rates, batches)
def test_the_rule_as_written_down(params: float, unique_tokens: float, rate: float, batch: float) -> None:
    """In logarithms, as results.md has it."""
    wanted = math.log(0.202) + 0.75 * math.log(params / unique_tokens) - 0.25 * math.log(rate)
    most = math.log(2.79) + math.log(batch) - math.log(rate) - math.log(unique_tokens)
    found = tuned_weight_decay(params, unique_tokens, rate, batch)
    assert math.log(found) == pytest.approx(min(wanted, most), abs=1e-9)


@pytest.mark.parametrize(
    ("params", "rate", "weight_decay"),
    [(154e6, 3e-3, 0.8), (300e6, 3e-3, 1.6), (602e6, 1e-3, 3.2), (1.4e9, 1e-3, 3.2)],
)
def test_a_plan_of_two_weight_decays_finds_what_others_tuned(
    params: float, rate: float, weight_decay: float
) -> None:
    """Kim et al. 2025 (arXiv 2509.14786), 209.7M tokens, by a law that knows 0.1 and 1.0."""
    found = predict(params, 209.7e6, 8, learning_rate=rate, batch_tokens=262_144).own_recipe
    assert found is not None
    assert found.low <= weight_decay <= found.high
    assert found.high / found.weight_decay == pytest.approx(FACTOR)


def test_the_plan_says_what_was_tuned_elsewhere_and_where_its_law_ends() -> None:
    found = plan(250e6, 5e18)
    assert found.tuned_elsewhere is not None
    assert found.tuned_elsewhere.weight_decay == pytest.approx(
        tuned_weight_decay(found.params, 250e6, 2e-4, 65_536), rel=0.05
    )
    (said,) = (one for one in found.reasons if one.code == "tuned_elsewhere")
    assert "1 to 9.3 for 2.2 parameters" in said
    assert said.endswith("1 is the largest that it knows.")
    once = plan(20e9, 5e18)
    assert once.epochs <= 1
    assert once.tuned_elsewhere is None
    assert plan(49e3, 3e11, calibration="micro-weight-decay").tuned_elsewhere is None


def test_a_run_is_written_with_the_weight_decay_of_its_recipe() -> None:
    found = plan(250e6, 5e18, learning_rate=1e-3, batch_tokens=262_144)
    assert found.own_recipe is not None
    assert found.loss == plan(250e6, 5e18).loss
    assert f"weight_decay = {found.own_recipe.weight_decay:g}\n" in found.run_config()
    assert "tuning is expected to find 0.7 to 6.3" in " ".join(found.reasons)
