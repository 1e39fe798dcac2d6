"""The advice is computed: each figure is checked against brute force."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import Calibration, InvalidInput, Law, compare, crossover, frontier, plan, predict
from planner.inputs import CONTINUOUS, Limits
from planner.solve import (
    allocate,
    compute_curve,
    crossings,
    exchange_rate,
    flat_epochs,
    loss_minimising,
    most_epochs,
    search_range,
)

KNOWN = Calibration.load()
budgets = st.tuples(
    st.floats(7.5, 10.5).map(lambda x: 10.0**x), st.floats(15, 22).map(lambda x: 10.0**x)
).filter(lambda budget: budget[1] < 6 * budget[0] * 4e11)  # beyond that no size is near what was trained


def test_turning_point_and_loss_minimising_compute_against_a_dense_scan() -> None:
    for decay in (0.1, 1.0):
        law = KNOWN.law(decay)
        curve = compute_curve(law, 250e6, CONTINUOUS)
        flops = np.geomspace(5e17, 5e19, 4000)
        dense = allocate(law, 250e6, flops, CONTINUOUS)
        turn = most_epochs(law, 250e6, curve, CONTINUOUS)
        lowest = loss_minimising(law, 250e6, curve, CONTINUOUS)
        assert turn.flops == pytest.approx(flops[dense.epochs.argmax()], rel=0.01)
        assert turn.epochs == pytest.approx(dense.epochs.max(), rel=1e-4)
        assert lowest.flops == pytest.approx(flops[dense.loss.argmin()], rel=0.01)
        assert lowest.loss == pytest.approx(dense.loss.min(), abs=1e-5)
        p = plan(250e6, 5e18, weight_decay=decay)
        assert p.turning_point is not None
        assert p.loss_minimising_compute is not None
        assert p.turning_point.flops == pytest.approx(float(turn.flops), rel=1e-6)
        assert p.turning_point.epochs == pytest.approx(float(turn.epochs), rel=1e-6)
        assert p.loss_minimising_compute.flops == pytest.approx(float(lowest.flops), rel=1e-6)
        assert p.loss_minimising_compute.loss == pytest.approx(float(lowest.loss), rel=1e-6)


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("decay", [0.1, 1.0])
def test_a_limit_on_epochs_that_binds_is_no_turning_point(most: int, decay: float) -> None:
    free = plan(250e6, 5e18, weight_decay=decay)
    assert free.turning_point is not None
    assert most < free.turning_point.epochs
    assert plan(250e6, 5e18, weight_decay=decay, max_epochs=most).turning_point is None
    wide = plan(250e6, 5e18, weight_decay=decay, max_epochs=2 * free.turning_point.epochs)
    assert wide.turning_point == free.turning_point


@pytest.mark.parametrize(
    ("calibration", "decay", "form", "ud"),
    [
        ("fineweb-llama2", 1.0, "additive_2p", 250e6),
        ("fineweb-llama2", 1.0, "additive_2p", 500e6),
        ("fineweb-llama2", 0.1, "additive_2p", 250e6),
        ("c4-gpt2", 0.1, "additive_1p", 250e6),
    ],
)
def test_a_jump_between_valleys_is_a_turning_point_too(
    calibration: str, decay: float, form: str, ud: float
) -> None:
    """Under the short forms the optimum may jump from many epochs of a small model to few of a large one."""
    law = Calibration.load(calibration).law(decay, form)
    turn = most_epochs(law, ud, compute_curve(law, ud, CONTINUOUS), CONTINUOUS)
    flops = np.geomspace(1e18, 1e22, 8000)
    dense = allocate(law, ud, flops, CONTINUOUS)
    assert turn.epochs == pytest.approx(dense.epochs.max(), rel=0.01)
    assert turn.flops == pytest.approx(flops[dense.epochs.argmax()], rel=0.01)


def test_laws_without_overfitting_have_neither() -> None:
    for form in ("chinchilla", "exponential_decay"):
        p = plan(250e6, 5e18, law=form, weight_decay=0.1)
        assert p.turning_point is None
        assert p.loss_minimising_compute is None
        assert not any("Stop spending" in reason for reason in p.reasons)


def test_beyond_the_loss_minimising_compute_a_plan_that_spends_all_says_what_to_do_instead() -> None:
    p = plan(250e6, 1e19, weight_decay=0.1, spend="all")
    assert p.loss_minimising_compute is not None
    assert p.loss_minimising_compute.flops < p.flops
    assert p.loss_minimising_compute.loss < p.loss
    words = " ".join(p.reasons)
    assert p.overspent
    assert "Stop spending at 3.71e18" in words
    assert "Instead: weight decay 1.0 reaches 3.0352 at 8.58e18 FLOPs" in words
    assert "twice the data would change the loss by -0.3" in words
    inside = " ".join(plan(250e6, 1e18, weight_decay=0.1).reasons)
    assert "Stop spending" not in inside
    assert "More compute helps up to 3.71e18" in inside


def test_that_more_compute_gains_nothing_is_said_of_the_recipe_and_not_of_the_data() -> None:
    for p in (plan("180M", 2.3e20), plan("180M", 2.3e20, serve_tokens="1B")):
        assert "with this recipe the law expects no gain" in p.budget
        assert "would not help" not in p.budget
    (no_gain,) = (reason for reason in plan("180M", 2.3e20).reasons if reason.code == "no_gain")
    assert "with this recipe" in no_gain


@pytest.mark.parametrize(
    ("ud", "flops", "options", "sentence"),
    [
        (100e6, 1.7783e18, {}, "1.53e18 FLOPs would do as well (3.415, within the law's error)"),
        (
            100e6,
            1.7783e18,
            {"spend": "all"},
            "1.53e18 FLOPs would do as well (3.415, within the law's error)",
        ),
        (
            250e6,
            5e18,
            {"weight_decay": 0.1},
            "3.71e18 FLOPs would do as well (3.123, within the law's error)",
        ),
    ],
)
def test_what_is_spent_on_purpose_is_not_said_to_be_wasted(
    ud: float, flops: float, options: dict, sentence: str
) -> None:
    """Within the law's error a plan spends all: less would do as well, and not better."""
    p = plan(ud, flops, **options)
    shown = " ".join(p.why().split())
    assert sentence in shown
    assert "lower loss" not in shown
    assert "Stop spending" not in shown
    assert not {"stop_spending", "instead"} & {reason.code for reason in p.reasons}


@settings(max_examples=25)
@given(budgets, st.sampled_from([None, 0.1, 1.0]), st.sampled_from(["ceiling", "all"]))
def test_nobody_is_told_to_stop_who_is_told_to_spend(
    budget: tuple[float, float], decay: float | None, spend: str
) -> None:
    p = plan(*budget, weight_decay=decay, spend=spend)
    shown, first = (" ".join(text.split()) for text in (p.why(), str(p)))
    stop = [reason for reason in p.reasons if reason.code == "stop_spending"]
    assert ("spend only" in shown) == ("spend only" in first) == bool(stop)
    if not stop:
        assert "Stop spending" not in shown
        return
    assert spend == "all"
    assert p.predictive_uncertainty is not None
    assert p.loss_minimising_compute is not None
    assert p.loss - p.loss_minimising_compute.loss > p.predictive_uncertainty.error


# -- any weight decay may be chosen, unless one was given ----------------------------------------------------


def test_the_loss_minimising_compute_is_that_of_all_weight_decays() -> None:
    """At 1e19 FLOPs weight decay 0.1 is the better one, and has nothing to gain from more; 1.0 has."""
    p = plan(500e6, 1e19)
    assert p.weight_decay == 0.1
    assert p.loss_minimising_compute is not None
    assert p.loss_minimising_compute.weight_decay == 1.0
    assert p.loss_minimising_compute.flops == pytest.approx(3.25e19, rel=0.01)
    assert p.loss_minimising_compute.loss == pytest.approx(2.8169, abs=1e-4)
    words = " ".join(p.reasons)
    assert "More compute helps up to 3.25e19 FLOPs (loss 2.8169 at weight decay 1.0)" in words
    assert "twice the compute would change the loss by -0.061 at weight decay 1.0" in words
    given = plan(500e6, 1e19, weight_decay=0.1)
    assert given.loss_minimising_compute is not None
    assert given.loss_minimising_compute.weight_decay == 0.1
    words = " ".join(given.reasons)
    assert "More compute helps up to 1.16e19 FLOPs" in words
    assert "at weight decay 0.1); beyond that the law expects no gain with this recipe" in words
    assert "twice the compute would change the loss by 0.000 at weight decay 0.1" in words


@settings(max_examples=20)
@given(budgets, st.sampled_from([None, 0.1]), st.sampled_from(["whole", "continuous"]))
def test_no_plan_between_the_loss_minimising_compute_and_where_it_is_regained_is_better(
    budget: tuple[float, float], decay: float | None, epochs: str
) -> None:
    """By brute force over weight decays and computes, with continuous epochs."""
    p = plan(*budget, weight_decay=decay, epochs=epochs)  # type: ignore[arg-type]
    limit = p.loss_minimising_compute
    if limit is None:
        return
    assert limit.weight_decay in ((0.1, 1.0) if decay is None else (decay,))
    end = (limit.regained_flops or 1e3 * limit.flops) / 1.5  # as closely as that is looked at
    along = np.geomspace(limit.flops, max(end, limit.flops), 40)
    decays = (0.1, 1.0) if decay is None else (decay,)
    losses = [allocate(KNOWN.law(one), p.ud, along, CONTINUOUS).loss for one in decays]
    assert np.min(losses) > limit.loss - 1e-6


@pytest.mark.parametrize("calibration", ["fineweb-llama2", "micro-weight-decay"])
def test_twice_as_much_is_planned_at_the_weight_decay_that_is_best_then(calibration: str) -> None:
    small = calibration == "micro-weight-decay"
    for ud, flops in (
        ((2e5, 5e12), (1e6, 1e14)) if small else ((500e6, 1e19), (100e6, 1.7783e18), (2e9, 4e19))
    ):
        p = plan(ud, flops, calibration=calibration)
        data, compute = (plan(a * ud, b * flops, calibration=calibration) for a, b in ((2, 1), (1, 2)))
        value = p.marginal_value
        assert value.loss_if_twice_the_data == pytest.approx(min(data.loss - p.loss, 0), abs=1e-9)
        gain = min(compute.loss - p.loss, 0) if compute.spent_flops > p.spent_flops else 0.0
        assert value.loss_if_twice_the_compute == pytest.approx(gain, abs=1e-9)
        assert value.weight_decay_if_twice_the_data == data.weight_decay
        assert value.weight_decay_if_twice_the_compute in (compute.weight_decay, p.weight_decay)


def test_a_weight_decay_law_is_lowest_where_any_of_its_weight_decays_is() -> None:
    p = plan(1e6, 1e13, calibration="micro-weight-decay")
    assert p.loss_minimising_compute is not None
    for decay in (0.04, 0.06, 0.083, 0.11, 0.2):
        other = plan(1e6, 1e13, calibration="micro-weight-decay", weight_decay=decay).loss_minimising_compute
        assert other is not None
        assert other.loss >= p.loss_minimising_compute.loss - 1e-6


def test_an_interval_belongs_to_the_weight_decay_of_its_figure() -> None:
    from tests.planner.test_uncertainty import with_draws

    known = with_draws(size=30, spread=1e-6)
    p = plan(500e6, 1e19, calibration=known, epochs="continuous")
    assert p.intervals is not None
    assert p.loss_minimising_compute is not None
    figures = {
        "loss_minimising_flops": p.loss_minimising_compute.flops,
        "loss_minimising_loss": p.loss_minimising_compute.loss,
        "loss_if_twice_the_data": p.marginal_value.loss_if_twice_the_data,
        "loss_if_twice_the_compute": p.marginal_value.loss_if_twice_the_compute,
    }
    for name, value in figures.items():
        assert p.intervals[name].median == pytest.approx(value, rel=2e-3), name


# -- limits that bind, and limits that do not ----------------------------------------------------------------


def test_limits_that_do_not_bind_are_not_blamed() -> None:
    free, wide = plan(130e6, 1e21), plan(130e6, 1e21, max_epochs=10)
    assert (wide.params, wide.epochs) == (free.params, free.epochs)
    assert (wide.verdict, wide.budget) == (free.verdict, free.budget)
    assert wide.crossover_note == free.crossover_note
    # Only the flat range is cut off by the limit.
    assert [reason.code for reason in wide.reasons if "within your limits" in reason] == ["flat_optimum"]
    wider = plan(130e6, 1e21, max_epochs=30)
    assert wider.reasons == free.reasons
    bound = plan(130e6, 1e21, max_epochs=7)
    assert "your limits leave no better use for the rest" in bound.budget


@settings(max_examples=20)
@given(budgets, st.sampled_from([{"max_epochs": 4}, {"max_params": 1e9}, {"min_params": 1e8}]))
def test_limits_are_blamed_only_for_another_plan(budget: tuple[float, float], limits: dict) -> None:
    free, limited = plan(*budget), plan(*budget, **limits)
    same = (limited.params, limited.epochs) == pytest.approx((free.params, free.epochs), rel=1e-6)
    if same:  # but for what another calibration says, which keeps the limits too
        own = [(p.verdict, p.budget.split(", which knows such")[0]) for p in (limited, free)]
        assert own[0] == own[1]
    elif limited.spent_flops < 0.99 * limited.flops:
        assert "your limits" in limited.budget


def test_beyond_the_dip_nothing_is_called_wasted() -> None:
    """Far past the loss-minimising compute the optimal loss is lower again: then there is nothing to stop."""
    for ud, flops in ((1e9, 2e21), (500e6, 1e21), (700e6, 1.5e21)):
        p = plan(ud, flops, spend="all")
        assert p.loss_minimising_compute is not None
        assert p.loss < p.loss_minimising_compute.loss
        assert not p.overspent
        words = " ".join(p.reasons)
        assert "Stop spending" not in words
        assert "this budget is beyond that" in words


def test_saturated_laws_are_not_told_to_stop() -> None:
    """Muennighoff's law flattens out completely; rounding must not look like a rise."""
    for flops in (3e20, 3e21, 3e22):
        p = plan(250e6, flops, calibration="c4-muennighoff")
        assert p.loss_minimising_compute is None
        assert p.turning_point is None


def test_stopping_looks_at_the_other_weight_decay_too() -> None:
    p = plan(50e6, 3e18, spend="all")
    assert p.weight_decay == 0.1
    assert p.overspent
    words = " ".join(p.reasons)
    assert "Stop spending at 4.23e17 FLOPs" in words
    assert "(3.7928 there with 123M x 11.5 epochs at weight decay 1.0" in words


@pytest.mark.parametrize(
    "limits",
    [{"max_epochs": 1}, {"max_params": 50e6}, {"min_params": 2e9}, {"max_epochs": 3, "max_params": 2e9}],
)
def test_advice_stays_within_the_limits(limits: dict) -> None:
    p = plan(250e6, 5e18, **limits)
    slack = 1 + 1e-9
    assert p.flat_range.epochs_max <= limits.get("max_epochs", math.inf) * slack
    assert p.flat_range.params_max <= limits.get("max_params", math.inf) * slack
    assert p.flat_range.params_min >= limits.get("min_params", 0) / slack
    for best in (p.turning_point, p.loss_minimising_compute):
        if best is not None:
            assert best.epochs <= limits.get("max_epochs", math.inf) * slack
            assert (
                limits.get("min_params", 0) / slack
                <= best.params
                <= limits.get("max_params", math.inf) * slack
            )
    assert any("within your limits" in reason for reason in p.reasons)
    inside = np.geomspace(p.flat_range.epochs_min, p.flat_range.epochs_max, 40)
    assert np.all(
        KNOWN.law(p.weight_decay).loss(p.params * p.epochs / inside, 250e6, inside) <= p.loss + 0.01 + 1e-9
    )


@settings(max_examples=20)
@given(budgets, st.floats(6.5, 10.5).map(lambda x: 10.0**x))
def test_a_size_limit_makes_epochs_the_margin(budget: tuple[float, float], largest: float) -> None:
    ud, flops = budget
    assume(flops < 6 * ud * largest * 1500)  # beyond that no number of epochs is near what was trained
    how = {"weight_decay": 0.1, "max_params": largest, "epochs": "continuous", "spend": "all"}
    p = plan(ud, flops, **how)
    h = 1e-4
    around = [plan(ud, flops * math.exp(d), **how) for d in (h, -h)]
    if abs(math.log(around[0].epochs / around[1].epochs)) > 0.01:
        return  # a jump
    assert p.marginal_value.loss_per_flop * flops == pytest.approx(
        (around[0].loss - around[1].loss) / (2 * h), rel=2e-2, abs=1e-5
    )


def test_doublings_are_those_of_the_plan_itself() -> None:
    for flops, how in ((3.42e19, "whole"), (3.42e19, "continuous"), (1e18, "whole")):
        p = plan(250e6, flops, weight_decay=1.0, epochs=how)
        more_data, more_compute = (
            plan(500e6, flops, weight_decay=1.0, epochs=how),
            plan(250e6, 2 * flops, weight_decay=1.0, epochs=how),
        )
        assert p.marginal_value.loss_if_twice_the_data == pytest.approx(more_data.loss - p.loss)
        assert p.marginal_value.loss_if_twice_the_compute == pytest.approx(more_compute.loss - p.loss)
    limited = plan(250e6, 5e18, max_params=1e9, max_epochs=4, spend="all")
    assert limited.marginal_value.loss_if_twice_the_compute is None


def test_what_whole_epochs_cost_is_said() -> None:
    p = plan(250e6, 3.42e19, spend="all")
    assert p.epochs == 1
    assert p.continuous_loss < p.loss - 0.01
    assert any(reason.startswith("Whole epochs cost 0.036 nats here: 1.27 epochs") for reason in p.reasons)
    assert any("The optimum is sharp" in reason for reason in p.reasons)
    assert not any("1 epochs" in reason for reason in p.reasons)


def test_limits_that_force_nonsense_are_answered_with_a_warning() -> None:
    for kwargs in ({"max_params": 1e9}, {"max_params": 1e9, "weight_decay": 0.1}):
        p = plan(250e6, 1e21, spend="all", **kwargs)
        assert math.isfinite(p.perplexity)
        assert any("is above the uniform one" in warning for warning in p.warnings)


def test_regained_compute_is_where_the_loss_is_lower_again() -> None:
    p = plan(500e6, 2e19, weight_decay=0.1)
    limit = p.loss_minimising_compute
    assert limit is not None
    assert limit.regained_flops is not None
    law = KNOWN.law(0.1)
    assert float(allocate(law, 500e6, limit.regained_flops * 1.01, CONTINUOUS).loss) < limit.loss
    assert float(allocate(law, 500e6, limit.regained_flops / 1.5, CONTINUOUS).loss) > limit.loss


@settings(max_examples=25)
@given(budgets, st.sampled_from([0.1, 1.0]), st.sampled_from([0.003, 0.01, 0.05]))
def test_flat_range_holds_what_it_says(budget: tuple[float, float], decay: float, tolerance: float) -> None:
    ud, flops = budget
    law = KNOWN.law(decay)
    best = allocate(law, ud, flops, CONTINUOUS)
    fewest, most = (float(end[0]) for end in flat_epochs(law, ud, best, tolerance, CONTINUOUS))
    inside = np.geomspace(fewest, most, 50)
    product = flops / (6 * ud)
    assert np.all(law.loss(product / inside, ud, inside) <= best.loss + tolerance + 1e-9)
    for edge, outward in ((fewest, 0.999), (most, 1.001)):
        assert float(law.loss(product / edge, ud, edge)) == pytest.approx(
            float(best.loss) + tolerance, abs=tolerance * 0.02
        )
        assert float(law.loss(product / (edge * outward), ud, edge * outward)) > best.loss + tolerance * 0.99
    p = plan(ud, flops, weight_decay=decay, epochs="continuous", spend="all", tolerance=tolerance)
    flat = p.flat_range
    assert (flat.epochs_min, flat.epochs_max) == pytest.approx((fewest, most), rel=1e-6)
    assert (flat.params_min, flat.params_max) == pytest.approx((product / most, product / fewest), rel=1e-6)


@settings(max_examples=25)
@given(budgets, st.sampled_from([0.1, 1.0]))
def test_exchange_rate_is_the_slope_of_the_optimal_loss(budget: tuple[float, float], decay: float) -> None:
    ud, flops = budget
    law = KNOWN.law(decay)
    h = 1e-4
    best = allocate(law, ud, flops, CONTINUOUS)
    around = allocate(law, ud * np.exp([h, -h, 0, 0]), flops * np.exp([0, 0, h, -h]), CONTINUOUS)
    if np.ptp(np.log(around.epochs)) > 0.01:
        return  # the optimum jumps between valleys here: it has no slope
    rate = exchange_rate(law, ud, best.single(), CONTINUOUS)
    assert rate.loss_per_token * ud == pytest.approx(
        (around.loss[0] - around.loss[1]) / (2 * h), rel=1e-2, abs=1e-6
    )
    assert rate.loss_per_flop * flops == pytest.approx(
        (around.loss[2] - around.loss[3]) / (2 * h), rel=1e-2, abs=1e-6
    )
    if rate.flops_per_token is not None:
        assert rate.flops_per_token == pytest.approx(rate.loss_per_token / rate.loss_per_flop)


def test_more_data_is_worthless_only_where_it_is_plentiful() -> None:
    assert plan(100e9, 1e18).marginal_value.loss_per_token == 0
    assert plan(100e6, 1e19).marginal_value.loss_per_token < 0
    assert (
        plan(250e6, 5e18, weight_decay=0.1).marginal_value.flops_per_token is None
    )  # beyond the loss-minimising compute


def test_other_laws_are_judged_by_the_law_at_hand() -> None:
    p = plan(500e6, 2e19, weight_decay=0.1, spend="all")
    assert {row.law for row in p.other_laws} == set(KNOWN.settings[0].laws) - {"additive_4p"}
    for row in p.other_laws:
        assert row.expected_loss == pytest.approx(
            predict(row.params, 500e6, row.epochs, weight_decay=0.1).loss
        )
        assert row.regret == pytest.approx(row.expected_loss - p.loss)
        assert row.regret >= 0
    assert max(p.other_laws, key=lambda row: row.regret).law == "chinchilla"


def test_compare_covers_all_laws_and_weight_decays() -> None:
    rows = compare("500M", "1e19").rows
    assert len(rows) == 12
    assert {row.weight_decay for row in rows} == {0.1, 1.0}
    assert min(row.regret for row in rows) == 0


# -- crossover -----------------------------------------------------------------------------------------------


def test_at_a_crossover_both_settings_are_equally_good() -> None:
    for whole in (True, False):
        found = crossover(300e6, epochs="whole" if whole else "continuous")
        (flops,) = found.crossings
        losses = [
            float(allocate(KNOWN.law(decay), 300e6, flops, Limits(whole_epochs=whole)).loss)
            for decay in (0.1, 1.0)
        ]
        assert losses[0] == pytest.approx(losses[1], abs=1e-9)
        assert found.better_below == 0.1


def test_no_crossover_is_said_in_words() -> None:
    found = crossover(250e6, law="chinchilla")  # if repeats were as good as new, strong decay would never pay
    assert found.crossover_flops is None
    assert found.crossings == []
    assert "no crossover between" in found.note
    assert "weight decay 0.1 is better than 1.0 throughout" in found.note


def test_several_crossings_are_all_found() -> None:
    base = {"E": 1.8, "A": 200.0, "alpha": 0.3, "B": 5000.0, "beta": 0.42}
    first = Law("chinchilla", base)
    # Flatter in size, steeper in data, a lower irreducible loss: better, worse and better again with compute.
    second = Law("chinchilla", {"E": 1.73, "A": 60.0, "alpha": 0.23, "B": 12_000.0, "beta": 0.46})
    flops = np.geomspace(1e14, 1e26, 97)
    gap = allocate(first, 1e9, flops, CONTINUOUS).loss - allocate(second, 1e9, flops, CONTINUOUS).loss
    changes = int(np.sum(np.diff(np.sign(gap)) != 0))
    found = crossings(first, second, 1e9, flops, CONTINUOUS)
    assert len(found.flops) == changes >= 2
    for place in found.flops:
        losses = [float(allocate(law, 1e9, place, CONTINUOUS).loss) for law in (first, second)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-9)


def test_equal_laws_never_cross() -> None:
    law = KNOWN.law(0.1)
    assert crossings(law, law, 250e6, search_range(law, 250e6)).flops == []
    data = KNOWN.model_dump()
    data["settings"][1]["laws"] = data["settings"][0]["laws"]
    found = crossover(250e6, calibration=Calibration.model_validate(data))
    assert found.better_below is None
    assert "equally good" in found.note


def test_a_crossover_is_only_claimed_where_there_are_plans() -> None:
    found = crossover(250e6, max_params=10e6, max_epochs=1, spend="all")
    assert found.searched[1] < 2e16
    assert plan(1e15, 1e16).crossover_note.startswith("no crossover between 1e15 and")


def test_a_law_fitted_at_one_weight_decay_only() -> None:
    data = KNOWN.model_dump()
    del data["settings"][1]["laws"]["additive_1p"]
    partial = Calibration.model_validate(data)
    assert plan(250e6, 5e18, law="additive_1p", calibration=partial).weight_decay == 0.1
    with pytest.raises(InvalidInput, match="at one weight decay only"):
        crossover(250e6, law="additive_1p", calibration=partial)


def test_a_crossover_may_lie_between_computes_at_which_there_are_plans() -> None:
    """A size that is given and whole epochs leave no plan at most computes."""
    p = plan(75954702.5862, 1.412482e20, law="additive_1p", params=206641412.453, spend="all")
    assert p.crossover_flops == pytest.approx(9.6e16, rel=0.1)


def test_a_crossover_needs_two_settings() -> None:
    with pytest.raises(InvalidInput, match="at one weight decay only"):
        crossover(250e6, calibration="c4-gpt2")
    with pytest.raises(InvalidInput, match="two different ones"):
        crossover(250e6, weight_decays=[0.1, 0.1])
    p = plan(1e9, 1e20, calibration="c4-gpt2")
    assert p.crossover_flops is None
    assert "one weight decay only" in p.crossover_note


# -- honesty, and the shape of the answer --------------------------------------------------------------------


def test_extrapolation_is_said_for_each_quantity_and_by_how_much() -> None:
    words = plan(250e6, 1e19, weight_decay=0.1, spend="all").warnings
    assert words[:-1] == [
        "model size 3.33B is 6.82 times the largest that the cost of repetition was fitted on (489M): "
        "tested by trainings up to 5B."
    ]
    words = plan(10e6, 1e17, law="chinchilla", weight_decay=0.1, extrapolate=True).warnings
    assert any("unique tokens 10M is 5 times below the smallest" in w for w in words)
    assert any(w.startswith("number of epochs ") and "the largest" in w and "(16)" in w for w in words)
    repeated = plan(250e6, 5e18).warnings
    assert repeated[:-1] == [
        "model size 556M is 14% above the largest that the cost of repetition was fitted on (489M): "
        "tested by trainings up to 2.5B."
    ]
    beyond = plan(1e9, 1e22).warnings
    assert "(489M): this is an extrapolation." in beyond[0]
    assert "(800M): this is an extrapolation." in beyond[1]
    assert [one.code for one in plan(250e6, 1e18).warnings] == ["corpus"]
    assert (
        plan(1e9, 1e20, calibration="c4-muennighoff").interval_note
        == "no uncertainty was published with this calibration, so no interval can be given"
    )


def _stated(code: str, params: float, ud: float, epochs: float, calibration: str) -> float:
    """By what factor a prediction says that a quantity is above what was fitted; one: it does not."""
    said = [w for w in predict(params, ud, epochs, calibration=calibration).warnings if w.code == code]
    if not said or "the largest" not in said[0]:
        return 1.0
    times = re.search(r" is ([\d.e+]+) times the largest", said[0])
    more = re.search(r" is (\d+)% above the largest", said[0])
    return float(times[1]) if times else 1 + int(more[1]) / 100  # type: ignore[index]


@settings(max_examples=25)
@given(
    st.sampled_from([("fineweb-llama2", 250e6, 1.5e9), ("micro", 131072.0, 444096.0)]),
    st.lists(st.floats(-0.9, 1.5).map(lambda x: 10.0**x), min_size=6, max_size=6).map(sorted),
    st.sampled_from([1.0, 2.0, 6.0, 16.0, 40.0]),
    st.sampled_from(["params", "unique_tokens", "epochs"]),
)
def test_a_caution_never_shrinks_as_a_plan_goes_further_out(
    around: tuple[str, float, float], factors: list[float], epochs: float, grows: str
) -> None:
    calibration, ud, params = around
    for code in ("outside_params", "outside_unique_tokens", "outside_epochs"):
        stated = [
            _stated(
                code,
                params * (factor if grows == "params" else 1),
                ud * (factor if grows == "unique_tokens" else 1),
                max(epochs * (factor if grows == "epochs" else 1), 1.0),
                calibration,
            )
            for factor in factors
        ]
        assert stated == sorted(stated)


def test_a_caution_gives_the_worse_of_two_ratios() -> None:
    for params, said in (("1.1B", "2.25 times the largest"), ("1.2B", "2.46 times the largest")):
        (caution,) = predict(params, "250M", 6).warnings
        assert f"{said} that the cost of repetition was fitted on (489M)" in caution


@settings(max_examples=20)
@given(budgets)
def test_any_budget_gets_a_whole_answer(budget: tuple[float, float]) -> None:
    ud, flops = budget
    p = plan(ud, flops, spend="all")
    assert (
        p.loss
        <= min(
            [row.predicted_loss for row in p.other_weight_decays]
            + [row.expected_loss for row in p.other_laws]
        )
        + 1e-12
    )
    assert p.perplexity == pytest.approx(math.exp(p.loss))
    assert p.terms.irreducible + p.terms.parameter + p.terms.data + p.terms.overfitting == pytest.approx(
        p.loss
    )
    assert p.unique_tokens == pytest.approx(min(p.tokens, ud))
    assert p.repeats == max(p.epochs - 1, 0)
    assert p.reasons
    read = type(p).model_validate_json(p.model_dump_json())
    assert p == read
    assert p.model_dump_json() == read.model_dump_json()  # whole numbers are not in the place of others


def test_frontier_is_plan_for_many() -> None:
    flops = np.geomspace(1e17, 1e20, 30)
    along = frontier("250M", flops)
    for i in (0, 13, 29):
        p = plan(250e6, flops[i])
        assert (along.params[i], along.epochs[i], along.loss[i], along.weight_decay[i]) == (
            p.params,
            p.epochs,
            p.loss,
            p.weight_decay,
        )
    pairs = frontier([100e6, "0.2B"], ["1e18", 2e18], weight_decay=1.0)
    assert pairs.ud.tolist() == [100e6, 200e6]
    assert set(pairs.to_dict()) >= {"flops", "params", "epochs", "loss"}
    assert np.isnan(frontier(250e6, [1e20], max_params=1e6, max_epochs=2, spend="all").loss).all()


def test_predict_takes_the_best_weight_decay_unless_told() -> None:
    assert predict("500M", "250M", 12).weight_decay == 1.0
    assert predict("500M", "6B", 1).weight_decay == 0.1
    fixed = predict("500M", "250M", 12, weight_decay=0.1)
    assert fixed.weight_decay == 0.1
    assert fixed.flops == pytest.approx(6 * 500e6 * 250e6 * 12)
