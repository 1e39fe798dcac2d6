"""Beyond the runs: which forms are trusted depends on the way, and a plan says where its law ends."""

from __future__ import annotations

import pytest

from planner import Calibration, Law, plan
from planner.calibration import FittedLaw, FittedRange, Setting
from planner.explain import disagreement_in_words
from planner.plans import disagreement_at
from planner.solve import Point
from planner.uncertainty import (
    directions_beyond,
    extrapolation_weights,
    form_disagreement,
    reweight,
    settling_run,
)

BASE = {"E": 1.9, "A": 420.0, "alpha": 0.34, "B": 3600.0, "beta": 0.37}
POWER = {**BASE, "P": 0.05, "delta": 1.2, "kappa": 1.1, "gamma": 1.0}
HILL = {**BASE, "P": 0.15, "delta": 1.2, "c": 0.6, "gamma": 1.0}
FITTED = FittedRange(
    params=(1e7, 3e8),
    unique_tokens=(5e7, 2e9),
    epochs=(1, 16),
    repeated_params=(1e7, 2e8),
    repeated_unique_tokens=(5e7, 1e9),
    flops=(1e16, 2e18),
)
ERRORS = {"size": {"additive_4p": 1.6, "hill_4p": 1.0}, "epochs": {"additive_4p": 1.0, "hill_4p": 1.3}}


def configuration(params: float, unique_tokens: float, epochs: float) -> Point:
    """Of which the loss is not asked for."""
    return Point(params, unique_tokens, epochs, 6 * params * unique_tokens * epochs, float("nan"))


def calibration(**more: object) -> Calibration:
    setting = Setting(
        weight_decay=0.1,
        fitted_on=FITTED,
        laws={"additive_4p": FittedLaw(parameters=POWER), "hill_4p": FittedLaw(parameters=HILL)},
        law_weights={"additive_4p": 0.5, "hill_4p": 0.5},
        extrapolation_errors=ERRORS,
        **more,  # type: ignore[arg-type]
    )
    return Calibration(name="two", default_law="additive_4p", settings=(setting,), vocab_size=32_100)


def test_directions_are_those_in_which_the_runs_end() -> None:
    assert directions_beyond(FITTED, configuration(1e8, 5e8, 4.0)) == {}
    assert directions_beyond(FITTED, configuration(6e8, 5e8, 4.0)).keys() == {"size", "compute"}
    assert directions_beyond(FITTED, configuration(2.5e8, 1e8, 1.0)) == {}  # a single epoch: all sizes count
    assert directions_beyond(FITTED, configuration(2.5e8, 1e8, 2.0)).keys() == {
        "size"
    }  # repeated models are smaller
    assert directions_beyond(FITTED, configuration(1e8, 4e9, 32.0)).keys() == {"data", "epochs", "compute"}
    assert directions_beyond(FITTED.model_copy(update={"flops": None}), configuration(2e8, 1e9, 16.0)) == {}


def test_weights_follow_the_errors_in_the_direction() -> None:
    equal = {"a": 0.5, "b": 0.5}
    assert extrapolation_weights(equal, [{"a": 1.2, "b": 1.0}])["b"] == pytest.approx(1 / (1 + 1.2**-8))
    both = extrapolation_weights(equal, [{"a": 1.2, "b": 1.0}, {"a": 1.0, "b": 1.2}])
    assert both == pytest.approx(equal)
    assert extrapolation_weights(equal, [{}]) == equal
    assert extrapolation_weights(equal, [{"a": 3.0, "b": 1.0}]) == {"b": 1.0}
    assert extrapolation_weights({"a": 0.5, "unknown": 0.5}, [{"a": 1.5}]) == pytest.approx(
        {"a": 0.5, "unknown": 0.5}
    )


def test_a_plan_beyond_the_runs_trusts_what_held_there() -> None:
    known = calibration()
    inside = plan(ud=2e8, flops=1e17, calibration=known, spend="all")
    beyond = plan(ud=2e8, flops=5e18, calibration=known, spend="all")
    assert inside.law == beyond.law == "average"
    assert inside.law_weights == {"additive_4p": 0.5, "hill_4p": 0.5}
    assert beyond.law_weights is not None
    assert beyond.law_weights["hill_4p"] > 0.9
    assert reweight(known, "average", 2e8, 5e18) is reweight(known, "average", 2e8, 5e18)
    assert reweight(known, "hill_4p", 2e8, 5e18) is known
    one = plan(ud=2e8, flops=5e18, calibration=known, law="hill_4p", spend="all")
    assert one.law_weights is None


def test_it_says_where_the_law_ends_and_what_would_settle_it() -> None:
    setting = calibration().settings[0]
    place = configuration(2e9, 2e8, 4.0)
    found = form_disagreement(setting, place)
    assert found is not None
    remark = disagreement_in_words(found)
    losses = [float(Law(form, fitted.parameters).loss(*place[:3])) for form, fitted in setting.laws.items()]
    assert f"{abs(losses[0] - losses[1]):.3f} nats" in remark
    assert "model size (10x)" in remark
    assert "most of it by model size" in remark
    run = settling_run(setting, place)
    assert run is not None
    assert found.run == pytest.approx(run, nan_ok=True)
    assert run.flops == pytest.approx(6 * run.params * run.unique_tokens * run.epochs)
    assert run.flops < place.flops
    there = [float(Law(form, fitted.parameters).loss(*run[:3])) for form, fitted in setting.laws.items()]
    assert found.run_nats == pytest.approx(abs(there[0] - there[1]))
    assert found.run_nats >= 0.5 * abs(losses[0] - losses[1])
    assert run.unique_tokens >= FITTED.unique_tokens[0]
    far = settling_run(
        setting, configuration(2e11, 2e9, 4.0)
    )  # no more parameters a token than plan or runs have
    assert far is not None
    assert far.params / far.unique_tokens <= 1.01 * 2e11 / 2e9
    assert form_disagreement(setting, configuration(1e8, 2e8, 4.0)) is None


def test_a_plan_says_where_its_law_ends() -> None:
    known = calibration()
    known = known.changed(settings=(known.settings[0].model_copy(update={"extrapolation_errors": {}}),))
    said = [
        one
        for one in plan(ud=2e8, flops=5e18, calibration=known, spend="all").reasons
        if one.code == "law_ends"
    ]
    assert said == [disagreement_at(known, 2e8, 5e18)]
    inside = plan(ud=2e8, flops=1e17, calibration=known, spend="all")
    assert "law_ends" not in {one.code for one in inside.reasons}


def test_a_run_that_settles_it_is_no_smaller_than_the_runs_were() -> None:
    setting, small = calibration().settings[0], 1.5 * FITTED.params[0]
    for passes in (64.0, 1000.0):
        run = settling_run(setting, configuration(small, 2e8, passes))
        assert run is None or run.params >= FITTED.params[0]


def test_forms_that_agree_beyond_the_runs_need_no_word() -> None:
    setting = calibration().settings[0].changed(law_weights={"hill_4p": 1.0})
    assert form_disagreement(setting, configuration(2e9, 2e8, 4.0)) is None
    assert settling_run(setting, configuration(2e9, 2e8, 4.0)) is None


def test_a_budget_beyond_the_runs_is_told_what_would_settle_it() -> None:
    known = calibration()
    assert disagreement_at(known, 2e8, 1e17) == ""
    assert disagreement_at(Calibration.load(), 250e6, 5e19) == ""  # one law, no average
    less_sure = known.changed(settings=(known.settings[0].model_copy(update={"extrapolation_errors": {}}),))
    assert "One run would settle it" in disagreement_at(less_sure, 2e8, 5e18, 0.1)
