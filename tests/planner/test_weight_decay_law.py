"""A law of every weight decay: which one a plan names, what it gains, and what it is in another recipe."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from planner import Calibration, crossover, frontier, plan, predict
from planner.calibration import FittedLaw, FittedRange, PredictiveError, Recipe, WeightDecayLaw
from planner.cli import planner
from planner.inputs import InvalidInput
from planner.laws import TIMESCALE, Law
from planner.solve import allocate

PARAMETERS = {
    "E": 2.14,
    "A": 1010.0,
    "alpha": 0.676,
    "B": 40.0,
    "beta": 0.246,
    "R_D_star": 1.57,
    "P": 0.0082,
    "delta": 1.67,
    "kappa": 0.855,
    "mu": 3.8,
    "k": 40.0,
}
RECIPE = Recipe(learning_rate=0.01, batch_sequences=4, sequence_length=128)
UD, FLOPS = 32768, 3e11


@pytest.fixture(scope="module")
def every() -> Calibration:
    error = PredictiveError(inside=0.03, params=450e3, runs=72)
    found = WeightDecayLaw(
        weight_decays=(0.03, 10.0),
        timescale_epochs=(0.05, 70.0),
        fitted_on=FittedRange(params=(65e3, 450e3), unique_tokens=(24576, 1048576), epochs=(1, 16)),
        laws={"weight_decay_simple": FittedLaw(parameters=PARAMETERS, predictive_error=error)},
    )
    settings = tuple(found.setting(decay, RECIPE.timescale_tokens(decay)) for decay in (0.03, 0.1, 1.0, 10.0))
    return Calibration(
        name="every",
        default_law="weight_decay_simple",
        vocab_size=1024,
        recipe=RECIPE,
        settings=settings,
        weight_decay_law=found,
    )


def best_by_search(flops: float, ud: float = UD) -> tuple[float, float]:
    decays = np.geomspace(0.03, 10, 3001)
    law = Law("weight_decay_simple", {**PARAMETERS, TIMESCALE: 512 / (0.01 * decays)})
    loss = allocate(law, ud, flops).loss
    return float(decays[np.argmin(loss)]), float(loss.min())


def test_a_plan_names_the_best_weight_decay_of_all(every: Calibration) -> None:
    found = plan(UD, FLOPS, calibration=every)
    decay, loss = best_by_search(FLOPS)
    assert found.weight_decay == pytest.approx(decay, rel=0.1)
    assert found.loss < loss + 1e-4
    assert found.weight_decay_advice is not None
    assert found.weight_decay_advice.best_weight_decay == found.weight_decay
    (gained,) = found.weight_decay_advice.gains
    assert gained.weight_decay == 0.1  # also what the recipe uses where nobody chooses
    committed = plan(UD, FLOPS, calibration=every, weight_decay=0.1)
    assert gained.gain == pytest.approx(committed.loss - found.loss)
    assert gained.gain > 0.01
    assert any(f"{gained.gain:.3f} nats against 0.1" in reason for reason in found.reasons)


def test_any_weight_decay_can_be_asked_for_and_the_best_is_told(every: Calibration) -> None:
    found = plan(UD, FLOPS, calibration=every, weight_decay=0.37)
    assert found.weight_decay == 0.37
    assert found.weight_decay_advice is not None
    best = found.weight_decay_advice.best_weight_decay
    assert found.other_weight_decays[0].weight_decay == best
    assert found.loss > found.other_weight_decays[0].predicted_loss


def test_own_recipe_carries_the_best_weight_decay_by_the_rule(every: Calibration) -> None:
    """Half the learning rate asks for a fourth root of two more, whatever the batch, in the same plan."""
    here = plan(UD, FLOPS, calibration=every)
    there = plan(UD, FLOPS, calibration=every, learning_rate=0.005, batch_tokens=2048)
    assert there.own_recipe is not None
    assert there.loss == here.loss
    assert there.own_recipe.weight_decay == pytest.approx(2**0.25 * here.weight_decay, rel=0.05)
    assert f"{there.own_recipe.weight_decay:g}" in there.verdict
    # what one is committed to is in one's own recipe
    mine = plan(UD, FLOPS, calibration=every, weight_decay=0.8, learning_rate=0.005, batch_tokens=2048)
    assert mine.own_recipe is not None
    assert mine.own_recipe.weight_decay == 0.8
    assert mine.weight_decay == pytest.approx(0.8 / 2**0.25, rel=0.01)
    assert mine.loss == plan(UD, FLOPS, calibration=every, weight_decay=mine.weight_decay).loss


def test_the_recipe_of_the_runs_changes_nothing(every: Calibration) -> None:
    here = plan(UD, FLOPS, calibration=every)
    same = plan(UD, FLOPS, calibration=every, learning_rate=0.01, batch_tokens=512)
    assert same.own_recipe is not None
    assert same.own_recipe.weight_decay == here.weight_decay


def test_a_timescale_outside_of_what_was_calibrated_is_said(every: Calibration) -> None:
    found = plan(2e7, 1e14, calibration=every, weight_decay=1.0)
    assert any("outside of the 0.05 to 70 that were calibrated" in warning for warning in found.warnings)
    weak = plan(5e7, 5e14, calibration=every)
    assert any("weakest of those calibrated" in warning for warning in weak.warnings)


def test_frontier_follows_the_best_weight_decay(every: Calibration) -> None:
    computes = np.geomspace(1e10, 3e12, 6)
    found = frontier(UD, computes, calibration=every)
    assert found.weight_decay[-1] > 3 * found.weight_decay[0]  # more repetition, more decay
    for place, flops in enumerate(computes):
        one = plan(UD, float(flops), calibration=every)
        assert (found.weight_decay[place], found.loss[place]) == (one.weight_decay, one.loss)


@pytest.mark.parametrize(
    ("name", "ud", "most"), [("dolma-olmo3", 60e6, 1e22), ("micro-weight-decay", 65_536, 1e18)]
)
def test_compute_that_cannot_be_used_changes_no_weight_decay(name: str, ud: float, most: float) -> None:
    """Ten thousand times what helps: the loss along ceilings rises by no more than the law's error."""
    known = Calibration.load(name)
    along = frontier(ud, np.geomspace(1e-8 * most, most, 25), calibration=known)
    error = known.settings[0].inside_error(along.law)
    assert (along.loss - np.minimum.accumulate(along.loss) <= error).all()
    assert along.loss[-1] == pytest.approx(along.loss.min(), abs=1e-3)
    p = plan(ud, most, calibration=known)
    assert (p.loss, p.weight_decay) == pytest.approx((along.loss[-1], along.weight_decay[-1]))
    assert all(rival.regret >= -error for rival in p.other_weight_decays)


def test_crossover_between_any_two(every: Calibration) -> None:
    found = crossover(UD, weight_decays=(0.05, 0.7), calibration=every)
    assert found.crossover_flops is not None
    above = found.crossover_flops * 1.2
    weak, strong = (plan(UD, above, calibration=every, weight_decay=decay).loss for decay in (0.05, 0.7))
    assert strong < weak


def test_prediction_at_any_weight_decay_and_at_the_best(every: Calibration) -> None:
    best = predict(200e3, UD, 12, calibration=every)
    others = [predict(200e3, UD, 12, calibration=every, weight_decay=d).loss for d in (0.03, 0.5, 9.0)]
    assert best.loss < min(others)
    many = predict([200e3, 100e3], UD, [12, 1], calibration=every)
    assert many.loss[0] == pytest.approx(best.loss, abs=1e-4)
    assert many.weight_decay[1] < best.weight_decay
    assert best.timescale_epochs == pytest.approx(512 / (0.01 * best.weight_decay * UD))


def test_the_file_keeps_the_weight_decay_law(every: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "decay.json"
    every.save(path)
    again = Calibration.load(path)
    assert again == every
    answer = CliRunner().invoke(
        planner,
        [
            "plan",
            "--ud",
            "32768",
            "--flops",
            "3e11",
            "--calibration",
            str(path),
            "--learning-rate",
            "0.005",
            "--json",
        ],
    )
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.output)["weight_decay_advice"]
    carried = said["best_weight_decay"] * 2**0.25
    assert said["own_recipe"]["weight_decay"] == pytest.approx(carried, rel=0.05)
    assert said["own_recipe"]["low"] < said["own_recipe"]["weight_decay"] < said["own_recipe"]["high"]


def test_pictures_of_the_weight_decay_law(tmp_path: Path) -> None:
    target = tmp_path / "decay.png"
    asked = ["plan", "--ud", "49k", "--flops", "3e11", "--plot-weight-decay", str(target)]
    answer = CliRunner().invoke(planner, [*asked, "--calibration", "micro-weight-decay"])
    assert answer.exit_code == 0, answer.output
    assert target.stat().st_size > 10_000
    answer = CliRunner().invoke(planner, ["plan", "--ud", "250M", "--flops", "5e18", *asked[5:]])
    assert answer.exit_code == 2
    assert "has no law for every weight decay" in answer.output


# -- calibrations with two weight decays -----------------------------------------------------------------


def test_two_weight_decays_choose_as_before_and_interpolate_on_request() -> None:
    assert (plan(250e6, 5e18).weight_decay, plan(250e6, 5e18).epochs) == (1.0, 6)
    found = plan(250e6, 5e18, weight_decay=0.3)
    assert any("interpolated between 0.1 and 1" in warning for warning in found.warnings)
    assert found.weight_decay_advice is not None
    assert found.weight_decay_advice.interpolated_from == (0.1, 1.0)


@pytest.mark.parametrize("term", ["irreducible", "parameter", "data", "overfitting"])
def test_each_term_in_between_is_a_straight_line(term: str) -> None:
    """Exactly at the middle of the runs (of the repeated ones, where they repeat most), nearly elsewhere."""
    fitted = Calibration.load().settings[0].fitted_on
    assert fitted.repeated_params is not None
    assert fitted.repeated_unique_tokens is not None
    size, tokens = (
        np.sqrt(low * high) for low, high in (fitted.repeated_params, fitted.repeated_unique_tokens)
    )
    epochs = 1.0 if term == "data" else fitted.epochs[1]
    for place, near in (((size, tokens, epochs), 1e-9), ((1.5 * size, tokens / 2, 4.0), 0.25)):
        weak, middle, strong = (
            getattr(predict(*place, weight_decay=decay).terms, term) for decay in (0.1, 0.1**0.5, 1.0)
        )
        assert middle == pytest.approx((weak + strong) / 2, rel=near)


def test_draws_are_interpolated_too() -> None:
    found = predict(110e3, 65536, 8, weight_decay=0.3, calibration="micro")
    assert found.intervals is not None
    assert found.intervals["loss"].low < found.loss < found.intervals["loss"].high


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"weight_decay": 2.0}, "(0.1 to 1); got 2.0, and above it runs of your own would tell"),
        ({"weight_decay": 0.05}, "(0.1 to 1); got 0.05, and below it runs of your own would tell"),
        ({"weight_decay": -1}, "weight_decay must not be negative"),
        ({"weight_decay": 0.3, "calibration": "c4-gpt2"}, "was fitted at (0.1); got 0.3."),
        ({"learning_rate": 1e-3, "calibration": "c4-gpt2"}, "does not say the learning rate and batch"),
        ({"learning_rate": -1}, "learning_rate must be"),
        ({"batch_tokens": 0}, "batch_tokens must be"),
    ],
)
def test_bad_input_is_one_sentence(asked: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidInput) as error:
        plan(250e6, 5e18, **asked)  # type: ignore[arg-type]
    assert sentence in str(error.value)


def test_a_weight_decay_law_refuses_what_lies_outside_its_range(every: Calibration) -> None:
    with pytest.raises(InvalidInput, match=r"was fitted from \(0.03 to 10\); got 30"):
        plan(UD, FLOPS, calibration=every, weight_decay=30)
