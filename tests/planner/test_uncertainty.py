"""Where a calibration carries draws of its laws, every
figure of a plan has an interval that means something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import Calibration, crossover, plan, predict
from planner.results import Plan
from planner.solve import allocate


def with_draws(size: int = 300, spread: float = 0.02) -> Calibration:
    """The paper's calibration with made-up draws: every parameter scattered by a few percent."""
    noise = np.random.default_rng(1)
    data = Calibration.load().model_dump()
    for setting in data["settings"]:
        setting["draws"] = {
            "method": "scattered for a test",
            "laws": {
                form: {
                    k: (v * np.exp(noise.normal(0, spread if k == "P" else spread / 10, size))).tolist()
                    for k, v in law["parameters"].items()
                }
                for form, law in setting["laws"].items()
            },
        }
    return Calibration.model_validate(data)


KNOWN = with_draws()
SAME_NUMBER = "the draws of additive_4p must be the same number, at least 2, for each parameter"


def test_every_figure_has_an_interval_around_it() -> None:
    p = plan(250e6, 5e18, calibration=KNOWN, epochs="continuous")
    assert p.intervals is not None
    for figure in ("params", "epochs", "tokens", "loss", "perplexity"):
        bounds = p.intervals[figure]
        assert bounds.low < bounds.median < bounds.high
        assert bounds.low <= getattr(p, figure) <= bounds.high
    assert p.crossover_flops is not None
    assert p.intervals["crossover_flops"].low < p.crossover_flops < p.intervals["crossover_flops"].high
    assert p.turning_point is not None
    assert p.loss_minimising_compute is not None
    assert p.intervals["turning_flops"].low < p.turning_point.flops < p.intervals["turning_flops"].high
    assert (
        p.intervals["loss_minimising_flops"].low
        < p.loss_minimising_compute.flops
        < p.intervals["loss_minimising_flops"].high
    )
    assert p.intervals["flat_epochs_min"].low < p.flat_range.epochs_min < p.intervals["flat_epochs_min"].high
    assert (
        p.intervals["regret_chinchilla"].low < p.other_laws[0].regret < p.intervals["regret_chinchilla"].high
    )
    twice = p.marginal_value.loss_if_twice_the_data
    assert twice is not None
    assert p.intervals["loss_if_twice_the_data"].low < twice < p.intervals["loss_if_twice_the_data"].high
    assert {"irreducible", "parameter", "data", "overfitting"} <= set(p.intervals)
    assert str(p.interval_note).endswith(
        "300 draws (scattered for a test); turning point, loss-minimising compute and flat range from the "
        "first 100"
    )


def test_losses_have_draws_of_their_own_where_a_calibration_has_them() -> None:
    """What is best is read off `laws`, what it loses off `loss_draws`."""
    data = KNOWN.model_dump()
    for setting in data["settings"]:
        laws = setting["draws"]["laws"]
        setting["draws"]["loss_draws"] = {
            form: {"E": [setting["laws"][form]["parameters"]["E"] * 1.1] * len(members["E"])}
            for form, members in laws.items()
        }
    other = Calibration.model_validate(data)
    before, after = (plan(250e6, 5e18, weight_decay=0.1, calibration=known) for known in (KNOWN, other))
    assert before.intervals is not None
    assert after.intervals is not None
    assert after.intervals["params"] == before.intervals["params"]
    irreducible = KNOWN.setting(0.1).law("additive_4p").parameters["E"]
    assert after.intervals["loss"].median == pytest.approx(
        before.intervals["loss"].median + 0.1 * irreducible, rel=1e-3
    )
    said = predict(600e6, 250e6, epochs=5, weight_decay=0.1, calibration=other)
    assert said.intervals is not None
    assert said.intervals["irreducible"].low == pytest.approx(1.1 * irreducible)


@pytest.mark.parametrize(
    ("field", "wrong", "sentence"),
    [
        (
            "loss_draws",
            {"additive_4p": {"E": [2.0] * 299}},
            SAME_NUMBER,
        ),
        (
            "discrepancy",
            {"additive_4p": [0.0] * 299},
            SAME_NUMBER,
        ),
        ("loss_draws", {"additive_9p": {"E": [2.0] * 300}}, "no draws of additive_9p"),
        ("loss_draws", {"additive_4p": {"alfa": [2.0] * 300}}, "no draws of alfa of additive_4p"),
    ],
)
def test_draws_that_do_not_belong_to_the_others_are_refused(field, wrong, sentence) -> None:
    data = KNOWN.model_dump()
    data["settings"][0]["draws"][field] = wrong
    with pytest.raises(ValueError, match=sentence):
        Calibration.model_validate(data)


def test_without_draws_of_their_own_losses_have_those_of_decisions() -> None:
    setting = KNOWN.setting(0.1)
    assert setting.law_draws("additive_4p", of_losses=True) is setting.law_draws("additive_4p")


def test_the_interval_is_the_percentile_of_the_draws() -> None:
    p = plan(250e6, 5e18, weight_decay=0.1, calibration=KNOWN)
    draws = KNOWN.setting(0.1).law_draws("additive_4p")
    assert draws is not None
    each = [float(allocate(draws.draw(i), 250e6, 5e18).params) for i in range(300)]
    assert p.intervals is not None
    assert p.intervals["params"].low == pytest.approx(np.quantile(each, 0.025), rel=1e-9)
    assert p.intervals["params"].high == pytest.approx(np.quantile(each, 0.975), rel=1e-9)


def _as_predicted(p: Plan, calibration: str | Calibration, **how: Any) -> None:
    one = predict(
        p.params, p.ud, p.epochs, weight_decay=p.weight_decay, law=p.law, calibration=calibration, **how
    )
    assert one.loss == pytest.approx(p.loss, rel=1e-12)
    if p.predictive_uncertainty is None:
        assert one.predictive_uncertainty is None
    else:
        assert one.predictive_uncertainty is not None
        own = p.predictive_uncertainty.model_dump(exclude={"as_good", "weight_decay_probability"})
        found = one.predictive_uncertainty.model_dump()
        assert found.pop("beyond_evidence") == own.pop("beyond_evidence")
        assert found == pytest.approx(own, rel=1e-12)
    bounds = [None if said.intervals is None else said.intervals["loss"].model_dump() for said in (one, p)]
    assert bounds[0] == (None if bounds[1] is None else pytest.approx(bounds[1], rel=1e-12))
    assert one.interval_note == p.interval_note
    assert p.interval_note is None or ("no interval" in p.interval_note) == (p.intervals is None)
    assert p.interval_note is None or p.predictive_uncertainty is None or p.intervals is not None


@settings(max_examples=40)
@given(
    st.floats(7.5, 10.5).map(lambda x: 10.0**x),
    st.floats(15, 22).map(lambda x: 10.0**x),
    st.sampled_from([None, 0.1, 1.0]),
    st.sampled_from([None, "chinchilla", "additive_2p"]),
    st.sampled_from(["fineweb-llama2", KNOWN]),
)
def test_predict_gives_the_interval_of_a_plan(
    ud: float, flops: float, decay: float | None, law: str | None, calibration: str | Calibration
) -> None:
    """One configuration has one loss and one interval, whoever is asked."""
    _as_predicted(plan(ud, flops, weight_decay=decay, law=law, calibration=calibration), calibration)


@pytest.mark.parametrize("calibration", ["c4-gpt2", "c4-muennighoff", "micro", "micro-weight-decay"])
def test_predict_gives_the_interval_of_a_plan_by_every_calibration(calibration: str) -> None:
    small = calibration in ("micro", "micro-weight-decay")
    p = plan(2e5 if small else 250e6, 1e13 if small else 5e18, calibration=calibration)
    _as_predicted(p, calibration)
    if Calibration.load(calibration).members is not None:
        several = plan(2e5, 1e13, calibration=calibration, members=3)
        _as_predicted(several, calibration, members=3)


def test_where_there_is_an_interval_no_note_denies_it(capsys: pytest.CaptureFixture[str]) -> None:
    from planner.show import terminal

    one = predict("329M", "100M", 9, weight_decay=1.0)
    assert one.interval_note is None
    terminal.prediction(one)
    shown = " ".join(capsys.readouterr().out.split())
    assert "(80%: 3.396 to 3.443)" in shown
    assert "how sure the law was off by 0.016 nats for such models in 5 trainings" in shown
    assert "no interval" in (predict("329M", "1B", calibration="c4-muennighoff").interval_note or "")


def test_crossover_and_prediction_have_intervals_too() -> None:
    found = crossover(250e6, calibration=KNOWN)
    assert found.interval is not None
    assert found.crossover_flops is not None
    assert found.interval.low < found.crossover_flops < found.interval.high
    one = predict(500e6, 250e6, 6, calibration=KNOWN)
    assert one.intervals is not None
    assert one.intervals["loss"].low < one.loss < one.intervals["loss"].high
    assert {"perplexity", "overfitting"} <= set(one.intervals)


def test_a_wider_ensemble_gives_wider_intervals() -> None:
    narrow, wide = (
        plan(250e6, 5e18, calibration=with_draws(spread=s), epochs="continuous").intervals
        for s in (0.01, 0.04)
    )
    assert narrow is not None
    assert wide is not None
    for figure in ("params", "epochs", "loss"):
        assert wide[figure].high - wide[figure].low > narrow[figure].high - narrow[figure].low


def test_certain_draws_pin_every_figure() -> None:
    """Draws that all agree give intervals that are the point
    estimate itself, whatever it takes to compute it.
    """
    p = plan(250e6, 5e18, calibration=with_draws(size=20, spread=1e-7), epochs="continuous")
    assert p.intervals is not None
    assert p.turning_point is not None
    assert p.loss_minimising_compute is not None
    figures = {
        "params": p.params,
        "loss": p.loss,
        "turning_flops": p.turning_point.flops,
        "loss_minimising_flops": p.loss_minimising_compute.flops,
        "loss_minimising_loss": p.loss_minimising_compute.loss,
        "flat_params_max": p.flat_range.params_max,
    }
    for name, value in figures.items():
        assert p.intervals[name].low == pytest.approx(value, rel=2e-4), name
        assert p.intervals[name].high == pytest.approx(value, rel=2e-4), name


def test_draws_that_do_not_cross_are_counted() -> None:
    found = crossover(250e6, calibration=with_draws(size=60, spread=1.0))
    assert "of the draws do not cross" in found.note


def test_a_form_without_draws_says_so() -> None:
    data = with_draws(size=20).model_dump()
    del data["settings"][1]["draws"]["laws"]["additive_4p"]
    data["settings"][1]["laws"]["additive_4p"]["predictive_error"] = None
    p = plan(250e6, 5e18, weight_decay=1.0, calibration=Calibration.model_validate(data))
    assert p.intervals is None
    assert (
        p.interval_note
        == "this calibration has no draws of additive_4p at weight decay 1.0, so no interval can be given"
    )


def test_sentences_and_intervals_speak_of_the_same_figure(capsys: pytest.CaptureFixture[str]) -> None:
    from planner.inputs import scientific
    from planner.show import terminal

    p = plan(250e6, 5e18, calibration=with_draws(size=40, spread=0.3))
    terminal.plan(p, why=True)
    shown = capsys.readouterr().out
    assert p.turning_point is not None
    assert f"turning point    {scientific(p.turning_point.flops)} FLOPs   (95%:" in shown
    assert f"stops paying at {scientific(p.turning_point.flops)} FLOPs" in " ".join(shown.split())


def test_equal_calibrations_with_draws_can_be_used_one_after_the_other() -> None:
    one, two = with_draws(size=20), with_draws(size=20)
    assert one == two
    assert plan(250e6, 5e18, calibration=one) == plan(250e6, 5e18, calibration=two)
    assert one == two  # also after both have built their laws
