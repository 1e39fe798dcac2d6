"""What somebody relies on before training: what a grid will tell, how surely, and what to add."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calibration import design
from calibration.fitting.design.proposal import expected_information, prior_near
from calibration.fitting.solver import points_of
from planner import Calibration
from planner.inputs import InvalidInput
from tests.calibration.fitting.tables import runs


def grid(**what) -> pd.DataFrame:
    return runs(**what).drop(columns="loss")


def test_more_runs_make_a_plan_surer() -> None:
    (few,) = expected_information(grid(epochs=(1, 4)), target_flops=1.2e19)
    (many,) = expected_information(grid(epochs=(1, 2, 4, 8, 16)), target_flops=1.2e19)
    assert many.loss_error < few.loss_error < few.loss_error_before
    assert many.params_error is not None
    assert few.params_error is not None
    assert many.params_error < few.params_error


def test_seeds_help_less_than_other_runs() -> None:
    """Sizes in between tell more of the best size than three times as many seeds; of a loss, more per run."""
    (once,), (thrice,) = expected_information(grid()), expected_information(pd.concat([grid()] * 3))
    (denser,) = expected_information(grid(sizes=(2e7, 4e7, 8e7, 1.6e8, 3.2e8)))
    assert once.params_error is not None
    assert thrice.params_error is not None
    assert denser.params_error is not None
    assert denser.params_error < thrice.params_error <= once.params_error
    by_sizes, by_seeds = (
        (once.loss_error - one.loss_error) / (one.runs - once.runs) for one in (denser, thrice)
    )
    assert by_sizes > by_seeds > 0


def test_what_is_foreseen_is_what_a_design_says_once_the_runs_exist() -> None:
    (seen,) = expected_information(grid(), target_ud=1.6e9, target_flops=1e20)
    table = runs(noise=0)  # losses as the believed law has them, so that the belief stays where it is
    before = prior_near(Calibration.load("fineweb-llama2"), "additive_4p", 0.1)
    levels = {
        "noise": before.levels[0],
        "model_discrepancy": before.levels[1],
    }  # such losses alone would say: none of either
    later = design(1e19, 1.6e9, 1e20, runs=table, calibration="fineweb-llama2", **levels)
    assert seen.loss_error == pytest.approx(later.loss_error_before / later.target_loss, rel=0.05)


def test_a_grid_that_identifies_nothing_is_told_what_to_add() -> None:
    two_sizes = grid(sizes=(2e7, 8e7))
    (seen,) = expected_information(two_sizes)
    assert seen.identified == ()
    assert "only two model sizes" in seen.lacks
    assert "will lean on its prior" in seen.lacks
    added = pd.DataFrame([run._asdict() for run in seen.missing[0].add]).assign(weight_decay=0.1)
    (then,) = expected_information(
        pd.concat([two_sizes, added]), target_flops=seen.target_flops, target_ud=seen.target_ud
    )
    assert "chinchilla" in then.identified


def test_the_run_that_is_named_tells_more_than_others_of_its_price() -> None:
    (seen,) = expected_information(grid())
    assert seen.add is not None
    target = {"target_ud": seen.target_ud, "target_flops": seen.target_flops}

    def error_with(run: tuple[float, float, float]) -> float:
        more = pd.DataFrame([run], columns=["params", "unique_tokens", "epochs"]).assign(weight_decay=0.1)
        (then,) = expected_information(pd.concat([grid(), more]), **target)
        assert then.params_error is not None
        assert seen.params_error is not None
        return (then.loss_error / seen.loss_error) ** 2 + (then.params_error / seen.params_error) ** 2

    price = np.prod(seen.add)
    again = [tuple(point) for point in np.column_stack(points_of(grid())) if np.prod(point) <= price]
    assert error_with(seen.add) < min(error_with(run) for run in again[:: max(1, len(again) // 6)])


def test_every_weight_decay_is_foreseen_by_itself() -> None:
    both = pd.concat([grid(), grid(epochs=(1,)).assign(weight_decay=1.0)])
    first, second = expected_information(both)
    assert (first.weight_decay, second.weight_decay) == (0.1, 1.0)
    assert first.missing == ()
    assert "no run repeats its data" in second.lacks


def test_a_wrong_target_is_named() -> None:
    with pytest.raises(InvalidInput, match="target_ud must be a number"):
        expected_information(grid(), target_ud="many")


# -- laws of another scale -----------------------------------------------------------------------------------


def test_tiny_models_are_believed_to_be_like_other_tiny_models() -> None:
    plan = design(1e14, "500k", 1e13, vocab_size=512)
    assert plan.calibration == "micro"
    assert plan.target_loss < np.log(512)
    assert plan.warnings == ()
    assert design(1e19, "250M", 5e18, max_runs=1).calibration == "fineweb-llama2"


def test_no_design_plans_a_loss_worse_than_uniform() -> None:
    how = {"calibration": "fineweb-llama2", "batch_tokens": 512}
    plan = design(1e14, "500k", 1e13, vocab_size=512, **how)
    assert plan.target_loss == pytest.approx(np.log(512))
    assert plan.loss_error_before < np.log(512)
    assert "worse than uniform over 512 tokens (6.24)" in plan.warnings[0]


def test_a_design_says_what_its_runs_will_not_identify() -> None:
    assert design(1e19, "250M", 5e18).not_identified == ()
    assert "additive_4p" in design(1e16, "250M", 5e18).not_identified
