"""Bad input in Python: a ValueError whose one sentence names the field, what was given and what would do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner import InvalidInput, compare, crossover, frontier, plan, predict

BAD_NUMBERS = [-1, 0, math.nan, math.inf, -math.inf, "text", "", None, True, [250e6], object()]


@pytest.mark.parametrize("bad", BAD_NUMBERS)
@pytest.mark.parametrize("call", [plan, compare])
def test_budgets(call, bad: object) -> None:
    with pytest.raises(ValueError, match=r"^ud must be"):
        call(ud=bad, flops=5e18)
    missing = call is plan and bad is None  # which may have GPUs and hours instead
    with pytest.raises(ValueError, match="^compute is missing" if missing else "^flops must be"):
        call(ud=250e6, flops=bad)


@pytest.mark.parametrize("bad", BAD_NUMBERS)
def test_other_calls(bad: object) -> None:
    with pytest.raises(ValueError, match=r"^ud must be"):
        crossover(bad)
    if not isinstance(bad, list):  # of which these calls take one
        with pytest.raises(ValueError, match=r"^params must be"):
            predict(bad, 250e6, 4)
        with pytest.raises(ValueError, match=r"^epochs must be"):
            predict(1e9, 250e6, bad)
        with pytest.raises(ValueError, match=r"^flops must be"):
            frontier(250e6, [1e18, bad])


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        (
            {"weight_decay": 3},
            "weight_decay must be within what calibration fineweb-llama2 can be interpolated from (0.1 to 1)",
        ),
        ({"law": "kaplan"}, "law must be one of chinchilla"),
        ({"law": 3}, "law must be one of chinchilla"),
        ({"epochs": "some"}, "epochs must be 'whole', 'continuous' or a number such as 10; got 'some'."),
        ({"epochs": np.array([1, 2])}, "epochs must be 'whole', 'continuous' or a number"),
        ({"calibration": ""}, "calibration must be a name or a path"),
        ({"calibration": "x" * 5000}, "cannot be read"),
        ({"epochs": -4}, "epochs must be 'whole', 'continuous' or a number such as 10; got -4."),
        ({"max_params": "huge"}, "max_params must be a number"),
        ({"min_params": -1}, "min_params must be above zero"),
        ({"max_epochs": math.nan}, "max_epochs must be a finite number"),
        ({"tolerance": 0}, "tolerance must be above zero"),
        ({"min_params": 2e9, "max_params": 1e9}, "min_params (2B) must not be above max_params (1B)."),
        ({"max_params": 1e6, "max_epochs": 4, "spend": "all"}, "the limits leave no choice"),
        (
            {"min_params": 1.2e9, "max_params": 1.3e9, "spend": "all"},
            "no whole number of epochs lies between 2.56 and 2.78",
        ),
        ({"spend": "some"}, "spend must be 'ceiling' or 'all'; got 'some'."),
        ({"calibration": 7}, "calibration must be a name or a path"),
        (
            {"calibration": "c4-muennighoff", "law": "additive_4p"},
            "law additive_4p is not calibrated at weight decay 0.1",
        ),
    ],
)
def test_options(kwargs: dict, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(250e6, 5e18, **kwargs)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_swapped_arguments_are_noticed() -> None:
    with pytest.raises(ValueError, match="were ud and flops swapped"):
        plan(ud=5e18, flops=250e6)
    for tokens in (5e15, 5e18):
        with pytest.raises(ValueError, match="were ud and flops swapped"):
            frontier(tokens, np.array([250e6]))


def test_things_of_the_wrong_kind() -> None:
    from planner import Law, cost, preset

    for bad in (0.1, "0.1", [0.1], [0.1, 1.0, 0.1]):
        with pytest.raises(InvalidInput, match="weight_decays must be"):
            crossover(250e6, weight_decays=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="shape must be one of"):
        preset([])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="architecture must come from"):
        cost(1e18, architecture="556M")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must be numbers"):
        Law("chinchilla", {"E": 1.0, "A": 1.0, "alpha": 1.0, "B": 1.0, "beta": "x"})


def test_out_of_this_world() -> None:
    with pytest.raises(ValueError, match="flops must be between 1e\\+06 and 1e\\+32 FLOPs; got 1e40"):
        plan(250e6, 1e40)
    with pytest.raises(ValueError, match="ud must be between"):
        plan(10, 1e18)
    with pytest.raises(ValueError, match="at least one number"):
        frontier(250e6, [])
    with pytest.raises(ValueError, match="broadcast"):
        frontier([1e8, 2e8, 3e8], [1e18, 2e18])


@given(st.floats(1e3, 1e16), st.floats(1e6, 1e32))
@example(497513.0, 2.5353012004564594e30)  # of which the plan spends less than a rounding error
def test_any_plausible_budget_has_an_answer_or_a_sentence(ud: float, flops: float) -> None:
    try:
        p = plan(ud, flops)
    except InvalidInput as error:
        assert "swapped" in str(error) or "beyond 100 times nothing is known" in str(error)
    else:
        assert math.isfinite(p.loss)
        assert p.params > 0
        assert p.epochs > 0
