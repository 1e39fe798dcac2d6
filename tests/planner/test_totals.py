"""Plans where more than one training counts: ensembles, tokens to be served, data that can be bought."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from planner import Calibration, InvalidInput, frontier, inputs, plan, predict
from planner.cli import planner
from planner.hardware import Machines, TotalCost, total_cost
from planner.results import Plan
from tests.places import script
from tests.planner.test_members import with_members
from trainer.config import RunConfig

brute_force = script("benchmarks/brute_force_total.py")

KNOWN = with_members()
CORPUS = 65536.0


@pytest.mark.parametrize("seed", [0, 175])  # a ceiling, and a loss to be reached with limits
def test_serving_is_planned_as_a_plain_search_of_100_000_configurations_does(seed: int) -> None:
    outcome = brute_force.run("serving", seed)
    assert outcome.tried > 100_000
    assert abs(outcome.worse) < brute_force.CLOSE
    assert (outcome.above, outcome.broken, outcome.none) == (False, False, False)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("members", 0), ("members", 1), ("data", 0), ("data", 25)])
def test_members_and_data_are_planned_as_a_plain_search_does(kind: str, seed: int) -> None:
    outcome = brute_force.run(kind, seed)
    assert outcome.worse < brute_force.CLOSE
    assert (outcome.above, outcome.broken) == (False, False)


def test_a_total_cost_has_training_serving_and_data() -> None:
    paid = TotalCost(owned=1e6, serve_tokens=1e9, serve_rate=3.0, token_flops=1e7)
    training, serving, data = 6 * 2 * 1e5 * 3e6 * 4, 3 * 2 * 2 * 1e5 * 1e9, 2e6 * 1e7
    assert paid.total(2, 1e5, 3e6, 4) == pytest.approx(training + serving + data)
    assert paid.largest(training + serving + data, 2, 3e6, 4) == pytest.approx(1e5)
    assert paid.largest(data / 2, 2, 3e6, 4) == 0
    priced = total_cost(
        1e6, Machines.of("H100"), serve_tokens=1e9, serve_price=1.5, serve_mfu=0.1, data_price=2e-6
    )
    hour = 3600 * 989e12  # FLOPs at the peak, for 3 USD
    assert priced.serve_rate == pytest.approx((1.5 / 0.1) / (3.0 / 0.4))
    assert priced.token_flops == pytest.approx(2e-6 / 3.0 * hour * 0.4)


# -- ensembles


def test_members_at_a_committed_weight_decay_are_told_of_a_better_one() -> None:
    made = plan(CORPUS, 5e12, calibration="micro-weight-decay", members=8, weight_decay=0.3)
    free = plan(CORPUS, 5e12, calibration="micro-weight-decay", members=8)
    said = [one for one in made.reasons if one.code == "weight_decay_better"]  # type: ignore[attr-defined]
    assert f"Weight decay {free.weight_decay} would do better: loss {free.loss:.4f}" in said[0]
    committed = plan(
        CORPUS, 5e12, calibration="micro-weight-decay", members=8, weight_decay=free.weight_decay
    )
    assert not any("would do better" in one for one in committed.reasons)


@pytest.fixture(scope="module")
def several() -> Plan:
    return plan(CORPUS, 5e12, calibration=KNOWN, members="auto", gpu="T4")


@pytest.mark.slow
def test_beyond_what_one_model_can_use_an_ensemble_is_planned(several: Plan) -> None:
    found = several.members
    assert found is not None
    assert found.single is not None
    assert found.count >= 2
    assert several.loss < found.single.loss
    assert found.count * 6 * several.params * several.tokens <= 5e12 * (1 + 1e-9)
    assert several.spent_flops == pytest.approx(found.count * 6 * several.params * several.tokens)
    assert found.member_loss - found.gain == pytest.approx(several.loss)
    assert found.limit_loss < several.loss < found.member_loss
    assert found.weights_bytes == pytest.approx(2 * found.count * several.params)
    assert found.start_flops is not None
    assert found.distilled is not None
    assert several.loss < found.distilled.loss < found.member_loss
    for flops, more in ((1.3 * found.start_flops, True), (found.start_flops / 1.3, False)):
        other = plan(CORPUS, flops, calibration=KNOWN, members="auto")
        assert other.members is not None
        assert (other.members.count > 1) == more
    assert several.verdict.startswith(f"Train {found.count} models of ")
    codes = [remark.code for remark in several.reasons]
    assert codes[:4] == ["ensemble_compared", "ensemble_starts", "ensemble_limit", "ensemble_cost"]
    assert "distilled" in codes
    assert Plan.model_validate_json(several.model_dump_json()).members == found


def test_one_member_is_the_usual_plan() -> None:
    usual, asked = plan(250e6, 5e18), plan(250e6, 5e18, members=1)
    assert asked.crossover_flops == usual.crossover_flops
    assert [one.code for one in asked.reasons] == [one.code for one in usual.reasons]
    assert asked.other_weight_decays == usual.other_weight_decays


@pytest.mark.slow
def test_where_one_model_is_better_the_plan_is_the_usual_one_and_says_so() -> None:
    usual = plan(CORPUS, 1e11, calibration=KNOWN)
    asked = plan(CORPUS, 1e11, calibration=KNOWN, members="auto")
    assert asked.members is not None
    assert (asked.members.count, asked.params, asked.loss) == (1, usual.params, usual.loss)
    assert asked.reasons[0].code == "ensemble_compared"
    assert "worse by" in asked.reasons[0]


def test_along_compute_members_become_more() -> None:
    found = frontier(CORPUS, [1e11, 1e14], calibration=KNOWN, members="auto", weight_decay=0.3)
    assert found.members is not None
    assert found.members[0] == 1
    assert found.members[1] > 1
    assert np.all(found.spent_flops <= np.array([1e11, 1e14]) * (1 + 1e-9))
    assert "members" in str(found)
    assert frontier(CORPUS, 1e11, calibration=KNOWN).members is None


@pytest.mark.slow
def test_limits_hold_for_each_member_and_all_of_the_compute_can_be_spent() -> None:
    small = plan(CORPUS, 5e12, calibration=KNOWN, members="auto", max_params="100k", max_epochs=6)
    assert small.params <= 100e3 * (1 + 1e-9)
    assert small.epochs <= 6
    everything = plan(CORPUS, 5e12, calibration=KNOWN, members=3, spend="all")
    assert everything.members is not None
    assert everything.members.count == 3
    assert 18 * everything.params * everything.tokens == pytest.approx(5e12)


def test_a_prediction_for_members_has_their_gain() -> None:
    for count in (2, 8):
        together = predict(2e5, CORPUS, 8, calibration=KNOWN, members=count, weight_decay=0.3)
        alone = predict(2e5, CORPUS, 8, calibration=KNOWN, weight_decay=0.3)
        gain = 0.4 * (512 / (0.01 * 0.3) / CORPUS / 2.6) ** 0.25
        assert alone.loss - together.loss == pytest.approx(gain * (1 - 1 / count))
    losses = predict(np.array([1e5, 2e5]), CORPUS, 8, calibration=KNOWN, members=8).loss
    assert np.all(losses < predict(np.array([1e5, 2e5]), CORPUS, 8, calibration=KNOWN).loss)


def test_a_number_of_members_is_kept_to_and_what_leaves_those_trained_is_said() -> None:
    p = plan(CORPUS, 5e13, calibration=KNOWN, members=12, params="2M", weight_decay=0.3)
    assert p.members is not None
    assert p.members.count == 12
    assert p.verdict.startswith("Train 12 models of 2M parameters for ")
    assert {"outside_members", "more_members"} <= {remark.code for remark in p.warnings}


@pytest.mark.slow
def test_the_run_of_an_ensemble_is_that_of_a_member_with_its_seed(several: Plan, tmp_path: Path) -> None:
    target = tmp_path / "run.toml"
    target.write_text(several.run_config())
    assert several.members is not None
    assert f"0 to {several.members.count - 1}" in target.read_text()
    run_file = RunConfig.from_toml(target)
    assert (run_file.seed, run_file.epochs, run_file.weight_decay) == (
        0,
        several.epochs,
        several.weight_decay,
    )


def test_a_plan_says_what_an_ensemble_would_buy_or_what_is_known_from_elsewhere() -> None:
    said = {remark.code: remark for remark in plan(CORPUS, 5e12, calibration=KNOWN).reasons}
    assert "made up for tests" in said["ensemble_instead"]
    usual = plan("180M", 2.3e20, calibration="c4-gpt2").reasons
    assert [remark.code for remark in usual[:3]] == ["unused_compute", "ensemble_elsewhere", "other_uses"]
    assert "2509.14786" in usual[1]
    assert "not measured for this calibration" in usual[1]
    alone, averaged = (
        [float(figure) for figure in re.findall(r"\b3\.\d+", part)]
        for part in usual[1].split("reached")[1].split("ensembles of them")
    )
    assert alone == [3.750, 3.587, 3.510, 3.462]  # as published
    assert averaged[:4] == [3.50, 3.27, 3.21, 3.17]
    assert sum("2509.14786" in remark for remark in usual) == 1
    assert "ensemble_elsewhere" not in {remark.code for remark in plan("250M", 5e18).reasons}


# -- serving and data


def test_who_serves_much_wants_a_smaller_model_and_more_epochs() -> None:
    alone, served = plan("180M", 2.3e20), plan("180M", 2.3e20, serve_tokens="1T")
    assert served.serving is not None
    assert served.params < alone.params
    assert served.epochs > alone.epochs
    assert served.serving.flops == pytest.approx(2 * served.params * 1e12)
    assert served.serving.total_flops == pytest.approx(served.spent_flops + served.serving.flops)
    assert served.serving.training_only is not None
    assert served.serving.training_only.params == pytest.approx(alone.params, rel=1e-3)
    nothing = plan("250M", 5e18, serve_tokens=0)
    assert (nothing.params, nothing.epochs) == (pytest.approx(plan("250M", 5e18).params), 6)


def test_a_loss_is_reached_at_the_least_total() -> None:
    p = plan("180M", target_loss=3.2, serve_tokens="1T")
    assert p.serving is not None
    assert p.loss == pytest.approx(3.2, abs=1e-6)
    assert p.reasons[0].code == "least_compute"
    cheaper = plan("180M", 0.999 * p.serving.total_flops, serve_tokens="1T")
    assert cheaper.loss > 3.2
    few = plan(CORPUS, target_loss=4.15, calibration=KNOWN, members="auto")
    assert few.members is not None
    assert few.members.count > 1
    assert few.members.single is None or few.members.single.total_flops > few.spent_flops


def test_serving_costs_what_its_hours_cost() -> None:
    asked: dict[str, Any] = {"gpu": "H100", "budget_usd": 500, "serve_tokens": "100B"}
    same, slow = plan("180M", **asked), plan("180M", **asked, serve_mfu=0.1, serve_price=1.5)
    assert same.serving is not None
    assert slow.serving is not None
    assert (same.serving.rate, slow.serving.rate) == (1.0, pytest.approx(2.0))
    assert slow.params < same.params
    assert slow.serving.total_usd == pytest.approx(500)


def test_data_is_bought_as_long_as_it_beats_compute() -> None:
    cheap, dear = (plan("180M", budget_usd=500, gpu="H100", data_price=price) for price in (2e-6, 1e-2))
    assert cheap.purchase is not None
    assert dear.purchase is not None
    assert cheap.purchase.nothing_bought is not None
    assert cheap.purchase.bought > 50e6
    assert cheap.ud == pytest.approx(180e6 + cheap.purchase.bought)
    assert cheap.purchase.usd == pytest.approx(2e-6 * cheap.purchase.bought)
    assert cheap.purchase.usd + cheap.purchase.compute_usd == pytest.approx(500)
    assert cheap.loss < cheap.purchase.nothing_bought.loss - 0.1
    assert dear.purchase.bought < 1e5  # what compute cannot use may go there, for what little it buys
    assert dear.verdict.startswith("Buy no data.")


# -- the shell, and what is refused


@pytest.mark.slow
def test_the_shell_asks_the_same(tmp_path: Path) -> None:
    KNOWN.save(tmp_path / "my.json")
    base = ["plan", "--ud", "65536", "--flops", "5e12", "--calibration", str(tmp_path / "my.json")]
    picture = tmp_path / "curve.svg"
    result = CliRunner().invoke(planner, [*base, "--members", "4", "--json", "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["members"]["count"] == 4
    assert found["serving"] is None
    assert picture.exists()
    words = CliRunner().invoke(
        planner, ["plan", "--ud", "180M", "--flops", "2e20", "--serve-tokens", "1T", "--why"]
    )
    assert "Serving takes" in " ".join(words.output.split())
    assert "training 1" in words.output


@pytest.mark.parametrize(
    ("asked", "field", "why"),
    [
        ({"members": "many"}, "members", "'auto' or a whole number"),
        ({"members": 0}, "members", "'auto' or a whole number"),
        ({"members": 2.5}, "members", "'auto' or a whole number"),
        ({"members": True}, "members", "'auto' or a whole number"),
        ({"members": 10**6}, "members", "at most 10,000"),
        ({"members": "auto", "calibration": "c4-gpt2", "ud": "250M"}, "members", "arXiv 2509.14786"),
        ({"serve_tokens": -1}, "serve_tokens", "not be negative"),
        ({"serve_tokens": "some"}, "serve_tokens", "must be a number"),
        ({"serve_tokens": 1e30}, "serve_tokens", "at most"),
        ({"data_price": 2e-6}, "data_price", "name ‹gpu›"),
        ({"data_price": 0, "gpu": "H100"}, "data_price", "above zero"),
        ({"data_price": 1e-6, "gpu": "H100", "price": 0}, "price", "above zero"),
        ({"serve_price": 1.0, "gpu": "H100"}, "serve_price", "needs ‹serve_tokens›"),
        ({"serve_mfu": 0.1, "serve_tokens": 1e9}, "serve_mfu", "name ‹gpu›"),
        ({"serve_tokens": 1e22}, "flops", "pays for no plan"),
        ({"members": 4, "min_params": "40M", "flops": 1e6}, "flops", "pays for no plan"),
        ({"members": "auto", "target_loss": 1.0, "flops": None}, "target_loss", "the lowest loss is"),
        ({"members": "auto", "target_loss": 4.2}, "target_loss", "leave out ‹flops›"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_sentence(
    asked: dict[str, Any], field: str, why: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        plan(**{"ud": CORPUS, "flops": 1e12, "calibration": KNOWN, **asked})
    assert refused.value.field == field
    assert why in str(refused.value.args[0])
    assert str(refused.value).count("\n") == 0


def test_a_prediction_has_no_auto() -> None:
    with pytest.raises(InvalidInput, match="whole number"):
        predict(2e5, CORPUS, 8, calibration=KNOWN, members="auto")
    with pytest.raises(InvalidInput, match="no ensembles were trained"):
        predict(2e8, 250e6, 8, members=2, calibration="c4-gpt2")
    assert predict(2e8, 250e6, 8, members=1).loss == predict(2e8, 250e6, 8).loss
    assert Calibration.load("c4-gpt2").members is None


# -- what does not fit


def test_what_does_not_fit_into_memory_is_careful_about_that() -> None:
    made = plan(250e6, 5e20, gpu="H100", data_price=1e-7, min_params="5B")
    (warning,) = [one for one in made.warnings if one.code == "memory"]  # type: ignore[attr-defined]
    assert "does not fit on one H100; sharded it needs 2, more than your 1" in warning
    assert "or more accelerators would do" in warning
    assert not any(
        "accelerators" in one
        for one in plan(250e6, 5e20, gpu="H100", gpus=2, data_price=1e-7, min_params="5B").warnings
    )
    tight = plan(250e6, 5e18, params="500M", tflops=100, memory=0.3, price=1)  # an accelerator of one's own
    (warning,) = [one for one in tight.warnings if one.code == "memory"]  # type: ignore[attr-defined]
    assert "not even sharded with one sequence at a time: a smaller model (max_params) would do" in warning


def test_a_cheaper_plan_says_what_it_buys_and_what_is_owned_is_not_what_is_bought() -> None:
    made = plan(250e6, 5e20, gpu="H100", data_price=1e-7)
    cheap, bought = made.cheapest_as_good, made.purchase
    assert cheap is not None
    assert cheap.unique_tokens is not None
    assert bought is not None
    assert bought.owned < cheap.unique_tokens < made.ud
    text = " ".join(made.reasons)
    assert f"with {inputs.short(cheap.unique_tokens - bought.owned)} tokens bought (about $" in text
    assert "owning twice the tokens that you do would change the loss" in text


def test_serving_that_leaves_no_room_for_a_model_is_refused_in_one_sentence() -> None:
    with pytest.raises(
        InvalidInput, match="leaves no room for a model: the smallest that was fitted"
    ) as caught:
        plan(250e6, 5e20, serve_tokens=1e18)
    assert caught.value.field == "serve_tokens"
    little = plan(250e6, 5e20, serve_tokens=1e14)  # of which the law still speaks
    (warning,) = [one for one in little.warnings if one.code == "serving_leaves_little"]  # type: ignore[attr-defined]
    assert "would take 3.17e21 FLOPs to serve, 6.35 times all that there is" in warning
    enough = plan(250e6, 5e20, serve_tokens=1e12)
    assert not any("leaves no room" in one for one in enough.warnings)
