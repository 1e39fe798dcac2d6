"""What is too far from all evidence is refused in one sentence; what is outside of it says so."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import Calibration, InvalidInput, compare, crossover, frontier, plan, predict
from planner.cli import planner

TRIED = ("1e16", "1e18", "1e19")
REFUSED = [
    ("plan --ud 250M --flops 1e17 --params 500", "--params (500) is 31,740 times below the smallest"),
    ("plan --ud 250M --flops 1e17 --max-params 500", "--max-params (500)"),
    ("plan --ud 250M --flops 1e20 --min-params 10T", "--min-params (10T) is 2,000 times the largest"),
    ("plan --ud 250M --target-loss 20", "--target-loss (20) is above the uniform loss"),
    ("plan --ud 250M --target-loss 20 --serve-tokens 1B", "--target-loss (20) is above the uniform loss"),
    ("plan --ud 250M --flops 1e18 --vocab 1", "--vocab must be at least 2"),
    ("plan --ud 250k --flops 1e14", "--ud (250k) is 200 times below the fewest"),
    ("plan --ud 250k --flops 1e14 --serve-tokens 1M", "--ud (250k) is 200 times below the fewest"),
    ("plan --ud 250M --flops 1e12", "--extrapolate asks the bare law all the same"),
    *(
        (f"plan --calibration micro-weight-decay --ud 250M --flops {flops}", "238 times the most")
        for flops in TRIED
    ),
    ("plan --ud 250M --flops 1e25 --spend all", "--extrapolate asks the bare law all the same"),
    ("plan --ud 250M --flops 5e18 --max-epochs 0.001", "extrapolate asks"),
    ("plan --ud 250M --flops 5e18 --learning-rate 100", "--learning-rate (100) is more than 100 times off"),
    ("predict --params 500M --ud 250M --epochs 0.001", "--epochs (0.001) leaves 250k tokens in use"),
    ("predict --params 500 --ud 250M", "--params (500)"),
    ("predict --params 500M --ud 250M --epochs 40000", "--epochs (40,000) is 2,500 times the most"),
    ("predict --params 500M --ud 1e14", "--ud (100T)"),
    ("compare --ud 250k --flops 1e14", "--ud (250k)"),
    ("crossover --ud 250k", "--ud (250k)"),
    ("frontier --ud 250k", "--ud (250k)"),
]


@pytest.mark.parametrize(("command", "why"), REFUSED)
def test_what_is_too_far_from_all_evidence_is_refused_in_one_sentence(command: str, why: str) -> None:
    result = CliRunner().invoke(planner, command.split())
    assert result.exit_code == 2
    assert why in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert re.search("would do|must be|nothing is known", result.stderr)


@pytest.mark.parametrize(
    "command",
    [
        "plan --ud 250M --flops 1e17 --params 159k",
        "plan --ud 500k --flops 1e14",
        "plan --ud 250M --flops 1e14",
        "plan --ud 250M --flops 1e25",
        "plan --ud 250M --flops 5e18",
        "plan --ud 6B --gpu H100 --gpus 1000 --hours 2000",
        "plan --ud 8B --gpu H100 --gpus 64 --hours 336",
        "plan --ud 250M --flops 1e25 --spend all --extrapolate",
        "plan --ud 250M --flops 1e12 --extrapolate",
        "plan --ud 6B --gpu H100 --gpus 1000 --hours 2000 --calibration c4-gpt2",
        "predict --params 500M --ud 250M --epochs 0.002",
        "plan --calibration fineweb-llama2 --ud 100M --flops 1e19",
        "plan --ud 8B --gpu H100 --gpus 64 --hours 336 --max-params 5B",
        "plan --ud 8B --gpu H100 --gpus 64 --hours 336 --calibration c4-gpt2",
        "plan --calibration micro-weight-decay --ud 250k --flops 1e12",
        "plan --ud 1T --flops 1e20",  # a part of the corpus is enough, which is inside
        "plan --ud 250M --flops 1e18 --vocab 2",
        "predict --params 500M --ud 250M --epochs 1600",
        "compare --ud 8B --flops 3e22",
        "crossover --ud 8B",
    ],
)
def test_what_the_sentences_say_would_do_does(command: str) -> None:
    result = CliRunner().invoke(planner, command.split())
    assert result.exit_code == 0, result.output


def test_the_evidence_of_a_small_calibration_is_its_own_scale() -> None:
    assert plan(65536, 5e11, calibration="micro").params < 1e6
    why = r"238 times the most that calibration micro knows from runs"
    with pytest.raises(InvalidInput, match=why):
        plan("250M", 5e18, calibration="micro")


def test_python_refuses_one_of_many_and_names_the_field() -> None:
    with pytest.raises(InvalidInput) as refused:
        predict([1e8, 500.0], 250e6, 2.0)
    assert refused.value.field == "params"
    with pytest.raises(InvalidInput, match="at least 500k or calibration micro-weight-decay would do"):
        plan("250k", 1e14)


def test_a_frontier_keeps_its_far_ends_and_marks_them() -> None:
    computes = np.geomspace(1e13, 1e25, 13)
    along = frontier("250M", computes, spend="all")
    assert np.isfinite(along.loss).all()
    assert along.refused is not None
    assert along.refused.tolist() == [True, *[False] * 7, *[True] * 5]
    for flops, far in zip(computes, along.refused, strict=True):
        if far:
            with pytest.raises(InvalidInput, match="nothing is known"):
                plan("250M", flops, spend="all")
        else:
            plan("250M", flops, spend="all")
    asked = ["frontier", "--ud", "250M", "--from", "1e13", "--to", "1e25", "--points", "13"]
    text = CliRunner().invoke(planner, [*asked, "--spend", "all"]).output
    assert "1e25*" in text
    assert "1e20 " in text
    assert "more than 100 times outside" in text
    assert "*" not in CliRunner().invoke(planner, ["frontier", "--ud", "250M", "--points", "5"]).output
    fresh = CliRunner().invoke(
        planner, ["frontier", "--ud", "1M", "--single-epoch", "--from", "1e17", "--to", "1e20"]
    )
    assert fresh.exit_code == 0
    assert "*" not in fresh.output  # thousands of times a million fresh tokens repeat nothing


def test_other_laws_may_recommend_what_a_plan_may_not() -> None:
    rows = compare("8B", 3e22).rows
    assert max(row.params for row in rows) > 5e11
    assert crossover("8B").searched[1] > 1e25


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["fineweb-llama2", "c4-gpt2", "micro"]),
    st.floats(4, 12).map(lambda x: 10.0**x),
    st.floats(4, 14).map(lambda x: 10.0**x),
    st.sampled_from([{}, {"spend": "all"}, {"serve_tokens": 1e9}]),
)
def test_every_answer_is_within_a_hundred_times_of_all_evidence(
    calibration: str, ud: float, product: float, how: dict
) -> None:
    try:
        p = plan(ud, 6 * ud * product, calibration=calibration, **how)
    except InvalidInput:
        return
    known = Calibration.load(calibration).settings
    sizes = [*(s.fitted_on.params for s in known), *((t.params,) * 2 for s in known for t in s.trials)]
    corpora = [s.fitted_on.unique_tokens for s in known]
    passes = max(s.fitted_on.epochs[1] for s in known)
    slack = 1.01
    assert min(low for low, _ in sizes) / 100 / slack < p.params < 100 * slack * max(h for _, h in sizes)
    assert min(low for low, _ in corpora) / 100 / slack < p.unique_tokens
    assert p.unique_tokens < 100 * slack * max(high for _, high in corpora)
    assert p.epochs < 100 * slack * passes


# -- outside of all evidence, but nearer


def _how_sure(*asked: str) -> str:
    text = CliRunner().invoke(planner, ["plan", *asked, "--why"], env={"COLUMNS": "110"}).output
    return " ".join(re.split(r"how sure", text)[1].split("\n\n")[0].split())


def test_an_error_beyond_all_trainings_is_said_to_be_extrapolated() -> None:
    large = _how_sure("--ud", "4B", "--flops", "1e22", "--params", "100B")
    assert re.match(r"extrapolated error ±0\.\d+ nats; nothing (repeated )?above [\d.]+B parameters", large)
    assert "off by" not in large
    small = _how_sure("--ud", "250M", "--flops", "1e15")
    assert re.match(r"extrapolated error ±0\.\d+ nats; nothing below 15.9M parameters was tried", small)
    wide = _how_sure("--ud", "20B", "--flops", "1e22", "--params", "1B")
    assert "above 6B unique tokens" in wide or "above 800M unique tokens" in wide
    strong = _how_sure("--ud", "500M", "--flops", "6e19", "--params", "4B", "--weight-decay", "1.0")
    assert "nothing repeated above 2.5B parameters was tried" in strong  # 5B was tried at weight decay 0.1


def test_between_the_trainings_the_law_was_off_by_so_much() -> None:
    for asked in (("250M", "5e18"), ("180M", "2.3e20"), ("500M", "2e19")):
        said = _how_sure("--ud", asked[0], "--flops", asked[1])
        assert re.match(r"the law was off by 0\.0\d\d nats for such models in \d+ trainings", said)
    p = json.loads(CliRunner().invoke(planner, ["plan", "--ud", "250M", "--flops", "5e18", "--json"]).output)
    assert p["predictive_uncertainty"]["beyond_evidence"] is None
    assert math.isfinite(p["predictive_uncertainty"]["error"])


def test_runs_that_are_starved_of_steps_have_no_interval_and_no_plan_without_a_word() -> None:
    """Public runs of such length ended with losses up to twice what a law of data says."""
    short = predict(54.8e6, 60e6, 4, calibration="dolma-olmo3")
    assert (short.intervals, short.predictive_uncertainty) == (None, None)
    (said,) = (one for one in short.warnings if one.code == "starved_of_steps")
    assert "114 steps of 2.1M tokens are fewer than the 400 that runs need" in said
    enough = predict(54.8e6, 60e6, 16, calibration="dolma-olmo3")
    assert enough.intervals is not None
    assert "starved_of_steps" not in {one.code for one in enough.warnings}
    p = plan(60e6, 1e18, calibration="dolma-olmo3", max_epochs=4)
    assert "114 steps of 2.1M tokens are fewer than" in str(p.first_guess)
    assert (p.intervals, p.predictive_uncertainty) == (None, None)


def test_a_loss_worse_than_uniform_has_no_interval() -> None:
    one = predict("490B", "250M", 6)
    assert one.loss > math.log(32_100)
    assert one.predictive_uncertainty is None
    assert "worse_than_uniform" in [warning.code for warning in one.warnings]


@settings(max_examples=25)
@given(st.floats(6, 13), st.floats(15, 25), st.sampled_from([{}, {"spend": "all"}, {"max_epochs": 4}]))
def test_whatever_a_refusal_offers_is_answered(ud: float, flops: float, how: dict[str, object]) -> None:
    command = ["plan", "--ud", f"{10**ud:.3g}", "--flops", f"{10**flops:.3g}"]
    for name, value in how.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    result = CliRunner().invoke(planner, command)
    if result.exit_code == 0:
        return
    _, _, offers = result.stderr.partition("; ")
    for offer in offers.removesuffix(" would do.\n").split(" or ") if offers else ():
        if offer.startswith("--"):
            offer = offer.removesuffix(" asks the bare law all the same.\n")
            again = CliRunner().invoke(planner, [*command, *offer.replace(" with ", " ").split()])
            assert again.exit_code == 0, (command, offer, again.stderr)
