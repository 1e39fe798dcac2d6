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
        ({"loss": 3.0}, {"loss": 3.0 * (1 + 2e-6)}, "loss"),
        ({"learning_rate": 3e-4}, {"learning_rate": 3e-4 * (1 + 2e-6)}, "learning_rate"),
        ({"answer": {"params": 5e8}}, {"answer": {"params": 5e8 * 1.002}}, "answer.params"),
        (
            {"answer": {"turning_point": {"flops": 1e18}}},
            {"answer": {"turning_point": None}},
            "answer.turning_point",
        ),
        (
            {"answer": {"reasons": [{"code": "a"}]}},
            {"answer": {"reasons": [{"code": "b"}]}},
            "answer.reasons",
        ),
        ({"answer": {"warnings": []}}, {"answer": {"warnings": [{"code": "a"}]}}, "answer.warnings"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "a.0.b"),
        ({"a": [1]}, {"a": [1, 2]}, "a"),
        ({}, {"new": None}, "new"),
        ({"code": 2, "said": "Error: no"}, {"code": 2, "said": "Error: No"}, "said"),
    ],
)
def test_a_difference_is_found_at_its_place(before: object, after: object, place: str) -> None:
    assert [found[0] for found in same_answers.differences(before, after)] == [place]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"loss": 3.0}, {"loss": np.nextafter(3.0, 4.0)}),
        ({"learning_rate": 3e-4}, {"learning_rate": np.nextafter(3e-4, 1.0)}),
        ({"answer": {"params": 5e8}}, {"answer": {"params": 5e8 * 1.0005}}),  # where the loss is flat
        (
            {"answer": {"reasons": [{"code": "a", "text": "as it was said"}, {"code": "b"}]}},
            {"answer": {"reasons": [{"code": "b"}, {"code": "a", "text": "in the field's words"}]}},
        ),
    ],
)
def test_what_is_the_same_to_a_millionth_or_in_other_words_does_not_differ(
    before: object, after: object
) -> None:
    assert not list(same_answers.differences(before, after))


def test_what_was_renamed_is_compared_under_its_new_name() -> None:
    before = {
        "sureness": {"untried": None},
        "intervals": {"spending_limit_loss": 3.0},
        "all": [{"floor": 2.0}],
    }
    after = {
        "predictive_uncertainty": {"beyond_evidence": None},
        "intervals": {"loss_minimising_loss": 3.0},
        "all": [{"irreducible": 2.0}],
    }
    assert same_answers.renamed(before) == after
    assert same_answers.renamed(after) == after


def test_equal_answers_do_not_differ() -> None:
    answer = {"loss": 3.0, "all": [1, {"x": math.nan}], "none": None}
    assert not list(same_answers.differences(answer, {**answer, "all": [1, {"x": math.nan}]}))


@pytest.mark.parametrize("command", same_answers.DRAWN)
def test_a_seed_draws_the_same_inputs(command: str) -> None:
    drawn = same_answers.questions(command, 20, seed=1)
    assert drawn == same_answers.questions(command, 20, seed=1)
    assert drawn != same_answers.questions(command, 20, seed=2)


@pytest.mark.parametrize(
    ("command", "place", "before", "after", "may"),
    [
        ("laws", "answer.0.title", "x", "y", False),
        ("laws", "answer.0.schema_version", 2, 3, True),
        ("plan", "answer.corpus", "x", "y", False),
        ("plan", "answer.loss", 3.0, 3.1, False),
        ("plan", "answer.reasons", ["a"], ["b"], False),
        ("plan", "said", "Error: max_params must be", "Error: --max-params must be", True),
        ("plan", "said", "", "Error: --ud must be above zero", False),
        ("plan", "code", 0, 2, False),
        ("plan", "answer.verdict", "Train 1B.", "Train 1B in the field's words.", True),
        ("fit", "answer.verdict", "Train 1B.", "Train 1B in the field's words.", False),
        ("plan", "answer.turning_point", {"flops": 1e18}, None, True),
        ("plan", "answer.turning_point", None, {"flops": 1e18}, False),
        ("plan", "answer.turning_point.flops", 1e18, 2e18, False),
        ("plan", "answer.marginal_value.flops_per_token", -1e9, None, True),
        ("plan", "answer.marginal_value.flops_per_token", None, -1e9, False),
        ("compare", "answer.limits.min_epochs", "-", None, True),
        ("compare", "answer.limits.min_epochs", 4.0, None, False),
    ],
)
def test_only_what_is_listed_may_differ(
    command: str, place: str, before: object, after: object, may: bool
) -> None:
    assert same_answers.allowed(command, place, before, after) is may
