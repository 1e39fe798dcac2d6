"""Compute is a ceiling: the rule of what is spent, against a plain search, and within every limit."""

from __future__ import annotations

import numpy as np
import pytest

from planner import Calibration, compare, crossover, frontier, plan
from tests.places import script

brute_force = script("benchmarks/brute_force.py")
KNOWN = Calibration.load()


@pytest.mark.slow
def test_every_plan_is_the_one_that_a_plain_search_chooses() -> None:
    """Forty random questions; `python -m benchmarks.brute_force` asks ten thousand."""
    outcomes = [brute_force.run(seed) for seed in range(40)]
    assert [o.seed for o in outcomes if o.difference > brute_force.CLOSE] == []
    assert [o.seed for o in outcomes if o.above_ceiling or o.broken] == []


def test_the_search_and_the_plan_know_what_less_than_all_is() -> None:
    """Cases on both sides of the rule, so that the two could not agree by always spending all."""
    seen = set()
    for seed in range(20):
        case = brute_force.random_case(seed)
        seen.add(brute_force.searched(case).flops < 0.99 * case.flops)
    assert seen == {True, False}


def test_what_people_ask() -> None:
    p = plan(ud="180M", gpu="H100", gpus=8, hours=20)
    assert 0.5e9 < p.params < 1.5e9
    assert 4 <= p.epochs <= 9
    assert p.verdict == "Train 609M parameters for 7 epochs at weight decay 1.0, from scratch."
    assert p.budget.startswith("24 min of your 20 h on 8 x H100, about $9.70; with this recipe")
    assert p.cost is not None
    assert p.cost.hours < 1  # the cost is that of what is trained
    assert plan("1B", 1e21).params < 20e9
    big = plan("500M", 8e20)
    assert (round(big.params / 1e7), big.epochs) == (211, 5)  # nothing above 2.5B was trained at 1.0
    kept = plan("250M", 5e18, weight_decay=0.1)
    assert (round(kept.params / 1e6), kept.epochs, kept.unused_flops) == (667, 5, 0)
    both = plan("250M", 5e18)
    assert (round(both.params / 1e6), both.epochs, both.weight_decay) == (556, 6, 1.0)


def test_limits_make_it_spend_less_and_never_fail() -> None:
    held = plan("180M", 2.3e20, max_params="1B", max_epochs=2)
    assert (held.params, held.epochs) == (pytest.approx(1e9), 2)
    assert "your limits" in held.budget
    assert plan("180M", 2.3e20, max_params="1B").loss < 3.2
    fixed = plan("180M", 2.3e18, min_params="556M", max_params="556M")
    assert fixed.params == pytest.approx(556e6)
    assert fixed.epochs == 3


def test_the_crossover_is_that_of_its_own_mode() -> None:
    ceiling, everything = (crossover("2B", spend=spend).crossover_flops for spend in ("ceiling", "all"))
    assert ceiling == pytest.approx(2.23e20, rel=0.005)
    assert everything == pytest.approx(2.02e20, rel=0.005)


def test_loss_along_ceilings_rises_by_no_more_than_the_error() -> None:
    for decay in (0.1, 1.0):
        along = frontier("250M", np.geomspace(1e17, 1e22, 300), weight_decay=decay)
        assert (along.spent_flops <= along.flops * (1 + 1e-9)).all()
        error = KNOWN.setting(decay).error("additive_4p")(along.params, along.ud, along.epochs)
        assert (along.loss - np.minimum.accumulate(along.loss) <= error + 1e-9).all()
    rows = compare("250M", 3.4e19).rows
    assert all(row.spent_flops <= 3.4e19 * (1 + 1e-9) for row in rows)
    assert all(row.regret >= -1e-9 for row in rows)


def test_a_loss_that_hardly_rises_before_it_falls_again_has_a_minimum() -> None:
    """By two ten-thousandths of a nat over a quarter more compute, between two points of the usual search."""
    p = plan(1296758019.5, 2.41e21, weight_decay=0.1, epochs="continuous")
    assert p.spent_flops == pytest.approx(7.2e19, rel=0.01)


def test_a_rise_over_half_a_percent_of_compute_is_none() -> None:
    """Between the best of two epochs and where one epoch of a larger model is better."""
    p = plan(5378753319.92, 4.486e21, weight_decay=0.1, max_params=62.63e9, extrapolate=True)
    assert (p.params, p.epochs) == (pytest.approx(62.63e9), 1)


def test_a_minimum_just_before_the_most_that_limits_let_be_spent() -> None:
    """Nobody tried more than 16 epochs, and the limits end at 17."""
    limits = {"max_params": 531051658.9, "max_epochs": 17}
    p = plan(170575419.6, 1.738e20, law="exponential_decay", weight_decay=0.1, **limits)
    assert p.epochs == 16
    assert brute_force.run(239).difference < brute_force.CLOSE
