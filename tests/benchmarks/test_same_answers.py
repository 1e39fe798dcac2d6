"""The comparison of two installations sees every difference that matters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.places import script

same_answers = script("benchmarks/same_answers.py")


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ({"loss": 3.0}, {"loss": np.nextafter(3.0, 4.0)}, "loss"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "a.0.b"),
        ({"a": [1]}, {"a": [1, 2]}, "a"),
        ({}, {"new": None}, "new"),
        ({"code": 2, "said": "Error: no"}, {"code": 2, "said": "Error: No"}, "said"),
    ],
)
def test_a_difference_is_found_at_its_place(before: object, after: object, place: str) -> None:
    assert [found[0] for found in same_answers.differences(before, after)] == [place]


def test_equal_answers_do_not_differ() -> None:
    answer = {"loss": 3.0, "all": [1, {"x": math.nan}], "none": None}
    assert not list(same_answers.differences(answer, {**answer, "all": [1, {"x": math.nan}]}))


@pytest.mark.parametrize("command", same_answers.DRAWN)
def test_a_seed_draws_the_same_inputs(command: str) -> None:
    drawn = same_answers.questions(command, 20, seed=1)
    assert drawn == same_answers.questions(command, 20, seed=1)
    assert drawn != same_answers.questions(command, 20, seed=2)


NO_GAIN = "with this recipe the law expects no gain from more"


@pytest.mark.parametrize(
    ("command", "place", "before", "after", "may"),
    [
        ("laws", "answer.0.title", "x", "y", False),
        ("plan", "answer.corpus", "x", "y", False),
        ("plan", "said", "Error: max_params must be", "Error: --max-params must be", True),
        ("plan", "said", "Error: max_params must be", "Error: --max-epochs must be", False),
        ("plan", "said", "", "Error: --ud (1k) is ..., and beyond 100 times nothing is known", True),
        ("plan", "said", "", "Error: --ud must be above zero", False),
        ("plan", "answer.verdict", "more of it would not help one model on this data", NO_GAIN, True),
        ("plan", "answer.verdict", "more of it would not help", NO_GAIN, False),
    ],
)
def test_only_what_is_listed_may_differ(command: str, place: str, before: str, after: str, may: bool) -> None:
    assert same_answers.allowed(command, place, before, after) is may
