"""Comparing settings: the paper's 70% at a common point, intervals from refits, and refusals in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.simulated import grid_table
from calibration import fit
from calibration.fitting.evaluate.compare import compare
from calibration.fitting.evaluate.summary import middle_of, repetition_cost
from planner.calibration import Calibration, Setting
from planner.inputs import InvalidInput

PAPER = Calibration.load("fineweb-llama2")
WEAK, STRONG = PAPER.setting(0.1), PAPER.setting(1.0)


def test_strong_weight_decay_overfits_about_70_percent_less_in_the_paper() -> None:
    one = compare(WEAK, STRONG)[0]
    assert one.law == "additive_1p"
    assert 1 - one.ratio == pytest.approx(0.70, abs=0.01)
    assert one.coefficients_comparable
    assert one.ratio == pytest.approx(one.coefficient_ratio)
    assert one.ratio_low < one.ratio < one.ratio_high  # type: ignore[operator]
    assert one.ratio_high < 1  # type: ignore[operator]
    assert "70% less" in one.sentence


def test_what_repetition_costs_is_named_for_every_form_at_one_point() -> None:
    at = middle_of(WEAK)
    where = (at.params, at.unique_tokens, at.epochs)
    cost, span = repetition_cost(WEAK, "additive_4p", at)
    assert cost == pytest.approx(float(WEAK.law("additive_4p").terms(*where).overfitting))
    assert span is None  # the published law has no refits
    fading, _ = repetition_cost(WEAK, "exponential_decay", at)
    assert 0 < fading < 1  # no penalty, but repeats are worth less


def test_the_penalty_is_compared_where_the_coefficient_alone_misleads() -> None:
    four = compare(WEAK, STRONG, law="additive_4p", params="300M", ud="500M", epochs=8)[0]
    assert four.coefficient_ratio > 1000  # P grows by orders of magnitude
    assert four.ratio < 1  # while the overfitting falls
    assert not four.coefficients_comparable
    where = (300e6, 500e6, 8)
    expected = (
        STRONG.law("additive_4p").terms(*where).overfitting
        / WEAK.law("additive_4p").terms(*where).overfitting
    )
    assert four.ratio == pytest.approx(float(expected))
    assert four.ratio_low is None


def test_the_order_of_the_settings_inverts_the_ratio() -> None:
    for there, back in zip(compare(WEAK, STRONG), compare(STRONG, WEAK), strict=True):
        assert there.ratio * back.ratio == pytest.approx(1)
    assert "more" in compare(STRONG, WEAK)[0].sentence


def test_intervals_come_from_the_refits_of_both() -> None:
    tables = [
        grid_table(PAPER.law(d, "additive_1p"), 80, 0.003, np.random.default_rng(1), weight_decay=d)
        for d in (0.1, 1.0)
    ]
    table = pd.concat(tables).assign(run=lambda frame: [f"r{i}" for i in range(len(frame))])
    calibration = fit(table, laws=["additive_1p"], prior="none", bootstrap=100)
    found = compare(*calibration.settings)[0]
    assert found.interval_from == "100 draws of each setting"
    assert found.ratio_low < 0.00681 / 0.02305 < found.ratio_high  # type: ignore[operator]
    assert found.ratio_high / found.ratio_low < 1.6  # type: ignore[operator]


def test_all_additive_forms_are_compared_at_one_point() -> None:
    found = compare(WEAK, STRONG)
    assert [item.law for item in found] == ["additive_1p", "additive_2p", "additive_4p"]
    assert len({item.reference for item in found}) == 1
    low, high = WEAK.fitted_on.params
    assert low < found[0].reference.params < high


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"law": "chinchilla"}, "no overfitting penalty"),
        ({"law": "kaplan"}, "law must be one of"),
        ({"epochs": 1}, "nothing overfits before data repeats"),
        ({"params": "many"}, "params must be a number"),
    ],
)
def test_bad_requests_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        compare(WEAK, STRONG, **arguments)  # type: ignore[arg-type]


def _on(setting: Setting, **ranges: object) -> Setting:
    return setting.model_copy(update={"fitted_on": setting.fitted_on.model_copy(update=ranges)})


def test_the_common_point_lies_in_the_repeated_runs_of_both() -> None:
    weak = _on(WEAK, repeated_params=(1e7, 4e7), repeated_unique_tokens=(2e7, 8e7))
    strong = _on(STRONG, repeated_params=(1e7, 9e7), repeated_unique_tokens=(2e7, 8e7))
    found = compare(weak, strong)[0]
    assert found.reference.params == pytest.approx(2e7)
    assert found.reference.unique_tokens == pytest.approx(4e7)
    assert not [text for text in found.warnings if "cost of repetition" in text]


def test_ranges_that_do_not_meet_are_refused_until_a_point_is_named() -> None:
    weak, strong = _on(WEAK, repeated_params=(1e7, 4e7)), _on(STRONG, repeated_params=(1e8, 9e8))
    with pytest.raises(
        InvalidInput, match=r"no model sizes of repeated runs in common \(10M to 40M and 100M to 900M\)"
    ):
        compare(weak, strong)
    warned = compare(weak, strong, params=2e8)[0].warnings
    assert any(text.startswith("At weight decay 0.1: model size 200M") for text in warned)


def test_the_recommended_form_leads() -> None:
    assert [item.law for item in compare(WEAK, STRONG, recommended="additive_4p")] == [
        "additive_4p",
        "additive_1p",
        "additive_2p",
    ]


def test_an_interval_around_one_says_that_there_may_be_no_difference() -> None:
    one = compare(WEAK, STRONG)[0]
    assert one.excludes_no_difference
    unsure = one.model_copy(update={"ratio_low": 0.2, "ratio_high": 1.4})
    assert not unsure.excludes_no_difference
    assert "does not exclude that there is no difference" in unsure.sentence


def test_a_setting_is_not_compared_with_itself() -> None:
    with pytest.raises(InvalidInput, match="cannot be compared with itself"):
        compare(WEAK, WEAK)


def test_settings_without_a_common_form_are_refused() -> None:
    bare = WEAK.model_copy(update={"laws": {"chinchilla": WEAK.laws["chinchilla"]}})
    with pytest.raises(InvalidInput, match="in common"):
        compare(bare, STRONG)
