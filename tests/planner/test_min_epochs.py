"""At least so many epochs: a limit like the others, in every question that has limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import Calibration, InvalidInput, Plan, compare, crossover, frontier, plan, predict
from planner.cli import planner
from tests.planner.test_members import with_members

KNOWN = Calibration.load()
SLACK = 1e-9
CLOSE = 1e-6  # nats
MOST = 1600  # epochs; beyond 100 times those of the runs there is no plan

computes = st.floats(16, 21).map(lambda x: 10.0**x)
corpora = st.floats(7.5, 10).map(lambda x: 10.0**x)
fewest = st.one_of(st.floats(0.05, 40), st.integers(1, 40))


def _allowed(low: float, how: str) -> np.ndarray:
    """Numbers of epochs, at least so many, densely where they need not be whole."""
    whole = np.arange(math.ceil(low * (1 - SLACK)), MOST + 1.0)
    dense = np.geomspace(low, MOST, 40_000)
    return np.concatenate([whole[whole >= 1], dense if how == "continuous" else dense[dense < 1]])


@settings(max_examples=30)
@given(corpora, computes, fewest, st.sampled_from([None, 0.1, 1.0]), st.sampled_from(["whole", "continuous"]))
def test_the_plan_is_the_best_with_at_least_so_many_epochs(
    ud: float, flops: float, low: float, decay: float | None, how: str
) -> None:
    """By brute force over epochs and weight decays, where all of the compute is spent."""
    assume(flops > 1e3 * ud)
    try:
        p = plan(ud, flops, weight_decay=decay, epochs=how, min_epochs=low, spend="all")
    except InvalidInput as error:
        assert "nothing is known" in str(error)
        assume(False)
    assert p.epochs >= low * (1 - SLACK)
    assert how == "continuous" or p.epochs < 1 or p.epochs == round(p.epochs)
    assert p.spent_flops == pytest.approx(flops)
    assert 6 * p.params * p.ud * p.epochs == pytest.approx(flops)
    assert p.loss == pytest.approx(float(KNOWN.law(p.weight_decay).loss(p.params, ud, p.epochs)), abs=1e-12)
    tried = _allowed(low, how)
    for one in (0.1, 1.0) if decay is None else (decay,):
        losses = KNOWN.law(one).loss(flops / (6 * ud) / tried, ud, tried)
        assert p.loss <= np.min(losses) + CLOSE


@settings(max_examples=20)
@given(corpora, computes, st.integers(1, 30), st.floats(1, 3), st.floats(7, 10).map(lambda x: 10.0**x))
def test_it_goes_with_the_other_limits(
    ud: float, flops: float, low: int, more: float, largest: float
) -> None:
    """All limits at once, by brute force; a question without any such plan is one sentence."""
    assume(flops > 1e3 * ud)
    limits = {"min_epochs": low, "max_epochs": low * more, "max_params": largest}
    sizes = flops / (6 * ud) / np.arange(1.0, MOST + 1)
    fits = (np.arange(1, MOST + 1) >= low) & (np.arange(1, MOST + 1) <= low * more) & (sizes <= largest)
    try:
        p = plan(ud, flops, weight_decay=1.0, spend="all", **limits)  # type: ignore[arg-type]
    except InvalidInput as error:
        assert "\n" not in str(error)
        assert "nothing is known" in str(error) or not fits.any()
        return
    assert low * (1 - SLACK) <= p.epochs <= low * more * (1 + SLACK)
    assert p.params <= largest * (1 + SLACK)
    epochs = np.flatnonzero(fits) + 1.0
    assert p.loss <= np.min(KNOWN.law(1.0).loss(flops / (6 * ud) / epochs, ud, epochs)) + CLOSE


@settings(max_examples=25)
@given(
    corpora,
    computes,
    fewest,
    st.sampled_from(["whole", "continuous"]),
    st.sampled_from([None, 2e8, 1e9, 1e10]),
)
def test_within_a_ceiling_nothing_has_fewer_epochs(
    ud: float, flops: float, low: float, how: str, largest: float | None
) -> None:
    """There always is a plan: a smaller model, for so many epochs."""
    assume(flops > 1e3 * ud)
    asked = {"epochs": how, "min_epochs": low, "max_params": largest}
    try:
        p = plan(ud, flops, **asked)  # type: ignore[arg-type]
    except InvalidInput as error:
        assert "nothing is known" in str(error)
        assume(False)
    _at_least(p, low)
    assert p.spent_flops <= flops * (1 + SLACK)
    assert p.params <= (largest or math.inf) * (1 + SLACK)
    try:
        whole = plan(ud, flops, spend="all", weight_decay=p.weight_decay, **asked)  # type: ignore[arg-type]
    except InvalidInput:  # the largest size allowed cannot spend it all
        return
    error = KNOWN.setting(p.weight_decay).error("additive_4p")(whole.params, ud, whole.epochs)
    assert p.loss <= whole.loss + error + CLOSE


def _at_least(p: Plan, low: float) -> None:
    """Every plan that an answer names has at least so many epochs."""
    named = [p.epochs, p.continuous_epochs, p.flat_range.epochs_min]
    named += [row.epochs for row in (*p.other_laws, *p.other_weight_decays)]
    if p.predictive_uncertainty is not None:
        named.append(p.predictive_uncertainty.as_good.epochs_min)
    for other in (p.cheapest_as_good, p.loss_minimising_compute, p.turning_point):
        if other is not None:
            named.append(other.epochs)
    assert min(named) >= low * (1 - SLACK)


def test_a_limit_that_does_not_bind_changes_nothing() -> None:
    free = plan(250e6, 5e18)
    assert free.epochs == 6
    for low in (1e-9, 0.5, 1, 3):
        p = plan(250e6, 5e18, min_epochs=low)
        for figure in ("params", "epochs", "weight_decay", "loss", "verdict", "budget", "turning_point"):
            assert getattr(p, figure) == getattr(free, figure), (low, figure)
        lowest, usual = p.loss_minimising_compute, free.loss_minimising_compute
        assert lowest is not None
        assert usual is not None
        same = {"regained_flops"}  # by larger models with fewer epochs, which the limit may rule out
        assert lowest.model_dump(exclude=same) == pytest.approx(usual.model_dump(exclude=same), rel=1e-9)
    bound = plan(250e6, 5e20, min_epochs=8)
    assert bound.turning_point is None  # a limit on epochs is none
    assert "your limits leave no better use for the rest" in bound.budget


def test_it_goes_with_a_largest_size_that_does_not_bind() -> None:
    """The largest model allowed could not be paid for so many epochs: the best plan is a smaller one."""
    alone = plan(250e6, 5e18, min_epochs=8)
    assert alone.params < 1e9
    both = plan(250e6, 5e18, min_epochs=8, max_params=1e9)
    assert (both.params, both.epochs, both.loss) == (alone.params, alone.epochs, alone.loss)


def test_more_than_the_best_epochs_is_the_fewest_allowed() -> None:
    assert plan(250e6, 5e18, min_epochs=8).epochs == 8
    assert plan(250e6, 5e18, min_epochs=7.5).epochs == 8
    assert plan(250e6, 5e18, min_epochs="8").epochs == 8
    assert plan(250e6, 5e18, min_epochs=7.5, epochs="continuous").epochs == pytest.approx(7.5)
    assert plan(10e9, 5e18, min_epochs=2).epochs == 2  # where a part of the corpus would be enough
    exactly = plan(250e6, 5e18, min_epochs=7, max_epochs=7)
    assert (exactly.epochs, exactly.params) == (7, pytest.approx(5e18 / 6 / 250e6 / 7))


# -- the other questions


def test_frontier_and_compare_keep_to_it() -> None:
    flops = np.geomspace(1e16, 1e22, 13)
    along, free = frontier(250e6, flops, min_epochs=8), frontier(250e6, flops)
    assert (along.epochs >= 8).all()
    assert (free.epochs < 8).all()
    for place in (0, 6, 12):
        one = plan(250e6, flops[place], min_epochs=8)
        assert (along.params[place], along.epochs[place], along.loss[place], along.weight_decay[place]) == (
            one.params,
            one.epochs,
            one.loss,
            one.weight_decay,
        )
    rows = compare(250e6, 5e18, min_epochs=8).rows
    assert len(rows) == len(compare(250e6, 5e18).rows)
    assert all(row.epochs >= 8 for row in rows)


def test_a_crossover_is_that_of_plans_within_it() -> None:
    for low in (8, 12):
        found = crossover(250e6, min_epochs=low, spend="all")
        assert found.crossover_flops is not None
        assert found.note.endswith("(within your limits)")
        below, at, above = (
            [
                plan(250e6, times * found.crossover_flops, min_epochs=low, spend="all", weight_decay=one).loss
                for one in (0.1, 1.0)
            ]
            for times in (0.9, 1.0, 1.1)
        )
        assert below[0] < below[1]
        assert at[0] == pytest.approx(at[1], abs=1e-9)
        assert above[0] > above[1]
    assert crossover(250e6, min_epochs=0.1).crossover_flops == crossover(250e6).crossover_flops


def test_a_prediction_has_its_own_epochs() -> None:
    with pytest.raises(TypeError):
        predict("500M", "250M", 4, min_epochs=8)  # type: ignore[call-overload]
    refused = CliRunner().invoke(
        planner, ["predict", "--params", "500M", "--ud", "250M", "--epochs", "4", "--min-epochs", "8"]
    )
    assert refused.exit_code == 2
    assert "No such option" in refused.output


def test_a_loss_to_be_reached_takes_more_with_it() -> None:
    free, bound = plan(250e6, target_loss=3.1), plan(250e6, target_loss=3.1, min_epochs=8)
    assert free.epochs == 6
    _at_least(bound, 8)
    assert bound.loss == pytest.approx(3.1, abs=1e-6)
    assert bound.flops > free.flops
    assert plan(250e6, bound.flops * 0.99, min_epochs=8, spend="all").loss > 3.1


# -- where more than one training counts


@pytest.mark.parametrize("low", [4, 11, 15.5])
@pytest.mark.parametrize("how", ["whole", "continuous"])
def test_serving_is_planned_with_at_least_so_many_epochs(low: float, how: str) -> None:
    """By brute force over epochs and weight decays: the size is what is left for it."""
    ud, flops, served = 250e6, 5e18, 10e9
    p = plan(ud, flops, serve_tokens=served, min_epochs=low, epochs=how)
    assert p.epochs >= low * (1 - SLACK)
    assert p.flat_range.epochs_min >= low * (1 - SLACK)
    assert 6 * p.params * ud * p.epochs + 2 * p.params * served <= flops * (1 + SLACK)
    tried = _allowed(low, how)
    sizes = flops / (6 * ud * tried + 2 * served)
    best = min(float(np.min(KNOWN.law(decay).loss(sizes, ud, tried))) for decay in (0.1, 1.0))
    assert p.loss == pytest.approx(best, abs=1e-5)
    free = plan(ud, flops, serve_tokens=served, epochs=how)
    assert (p.loss > free.loss) == (free.epochs < low)


@pytest.mark.parametrize("low", [3, 12, 20])
@pytest.mark.parametrize("count", [2, 4])
def test_members_are_planned_with_at_least_so_many_epochs(low: float, count: int) -> None:
    """By brute force over epochs, at one weight decay."""
    known, ud, flops = with_members(), 65536.0, 1e12
    assert known.members is not None
    assert known.recipe is not None
    p = plan(ud, flops, calibration=known, members=count, min_epochs=low, weight_decay=0.3)
    assert p.members is not None
    assert p.members.count == count
    assert p.epochs >= low
    assert p.spent_flops <= flops * (1 + SLACK)
    tried = np.arange(float(low), 200.0)
    sizes = flops / (6 * ud * count * tried)
    law, at = known.law(0.3), (sizes, ud, tried)
    losses = law.loss(*at) - known.averaging_gain(law, count, *at, 0.3)
    assert p.loss <= np.min(losses) + 1e-5
    for figures in (p.members.single, p.members.ensemble, p.members.cheapest_as_good):
        assert figures is None or figures.epochs >= low * (1 - SLACK)


def test_the_best_number_of_members_keeps_to_it() -> None:
    known = with_members()
    for flops in (1e11, 1e12, 1e13):
        p = plan(65536.0, flops, calibration=known, members="auto", min_epochs=20)
        assert p.epochs >= 20
        along = frontier(65536.0, [flops], calibration=known, members="auto", min_epochs=20)
        assert along.members is not None
        assert along.epochs[0] >= 20
        assert along.loss[0] == pytest.approx(p.loss, abs=1e-4)


# -- what is typed, and what is wrong


def test_the_command_line_has_it() -> None:
    asked = ["plan", "--ud", "250M", "--flops", "5e20", "--min-epochs", "8", "--json"]
    answer = CliRunner().invoke(planner, asked)
    assert answer.exit_code == 0, answer.output
    p = Plan.model_validate_json(answer.output)
    assert p == plan("250M", 5e20, min_epochs=8)
    _at_least(p, 8)
    for command in (
        "compare --ud 250M --flops 5e18",
        "frontier --ud 250M --points 3",
        "crossover --ud 250M",
    ):
        answer = CliRunner().invoke(planner, [*command.split(), "--min-epochs", "8"])
        assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("bad", [-1, 0, math.nan, math.inf, -math.inf, "text", "", True, [8], object()])
@pytest.mark.parametrize(
    "ask",
    [
        lambda **limits: plan(250e6, 5e18, **limits),
        lambda **limits: plan(250e6, 5e18, serve_tokens=1e9, **limits),
        lambda **limits: compare(250e6, 5e18, **limits),
        lambda **limits: frontier(250e6, [5e18], **limits),
        lambda **limits: crossover(250e6, **limits),
    ],
    ids=["plan", "serving", "compare", "frontier", "crossover"],
)
def test_a_bad_value_is_one_sentence(ask, bad: object) -> None:
    with pytest.raises(InvalidInput, match=r"^min_epochs must be [^\n]*\.$") as caught:
        ask(min_epochs=bad)
    assert caught.value.field == "min_epochs"


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"min_epochs": 8, "max_epochs": 4}, "min_epochs (8) must not be above max_epochs (4)."),
        ({"min_epochs": 7.2, "max_epochs": 7.8}, "no whole number of epochs lies between 7.2 and 7.8"),
        (
            {"min_epochs": 8, "min_params": 1e9},
            "the limits leave no choice: at most 3.33 epochs can be had for 5e18 FLOPs on 250M tokens, but "
            "at least 8 are asked for; lower min_epochs or min_params, or spend more.",
        ),
        ({"min_epochs": 1e6}, "extrapolate asks the bare law all the same."),
    ],
)
@pytest.mark.parametrize("spend", ["ceiling", "all"])
def test_limits_that_leave_nothing_are_one_sentence(limits: dict, sentence: str, spend: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(250e6, 5e18, spend=spend, **limits)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_typed_wrong_is_called_as_it_was_typed() -> None:
    for typed, sentence in (
        (["--min-epochs", "zero"], "Error: --min-epochs must be a number such as 2; got 'zero'.\n"),
        (["--min-epochs", "0"], "Error: --min-epochs must be above zero, such as 2; got '0'.\n"),
        (
            ["--min-epochs", "8", "--max-epochs", "4"],
            "Error: --min-epochs (8) must not be above --max-epochs (4).\n",
        ),
    ):
        result = CliRunner().invoke(planner, ["plan", "--ud", "250M", "--flops", "5e18", *typed])
        assert result.exit_code == 2
        assert result.output == sentence
