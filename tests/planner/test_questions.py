"""Other ways to ask: for the model one has, with money, on hardware of one's own, or for a loss to reach."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from planner import InvalidInput, cost, plan, predict
from planner.calibration import Calibration
from planner.cli import planner
from planner.hardware import ACCELERATORS, Accelerator
from planner.solve import allocate

OWN = {"tflops": 400, "memory": 48, "price": 1.2}


def run_json(*args: str) -> dict:
    return json.loads(CliRunner().invoke(planner, [*args, "--json"]).output)


# -- a size that is settled


def test_a_settled_size_gets_the_epochs_and_the_weight_decay_that_are_best_for_it() -> None:
    made = plan(250e6, 5e18, params="556M")
    assert made.params == pytest.approx(556e6, rel=1e-3)  # what the plan for 5e18 FLOPs calls 556M
    tried = {
        (epochs, decay): predict("556M", 250e6, epochs, weight_decay=decay).loss
        for epochs in range(1, 7)  # six take 5e18 FLOPs to three digits, with 555.6M parameters
        for decay in (0.1, 1.0)
    }
    assert (made.epochs, made.weight_decay) == min(tried, key=tried.__getitem__)
    assert made.spent_flops <= 5e18
    exactly = plan(250e6, 5e18, min_params=556e6, max_params=556e6)
    assert (exactly.params, exactly.epochs) == (pytest.approx(556e6, rel=1e-12), 5)
    assert run_json("plan", "--ud", "250M", "--flops", "5e18", "--params", "556M")["epochs"] == made.epochs


def test_a_settled_size_is_not_trained_beyond_what_helps() -> None:
    made = plan(180e6, 1e22, params=300e6, weight_decay=0.1)
    losses = [predict(300e6, 180e6, epochs, weight_decay=0.1).loss for epochs in range(1, 101)]
    assert made.epochs == 1 + int(np.argmin(losses))


# -- money, and accelerators that are not in the table


def test_money_buys_compute() -> None:
    made = plan(250e6, budget_usd=500, gpu="H100", spend="all")
    assert made.flops == pytest.approx(500 / 3.00 * 3600 * 0.4 * 989e12)
    assert made.cost is not None
    assert made.cost.usd == pytest.approx(500)
    dear = plan(250e6, budget_usd="500", gpu="H100", gpus=8, price=6, mfu=0.2, spend="all")
    assert dear.flops == pytest.approx(made.flops / 4)
    assert dear.cost is not None
    assert (dear.cost.usd, dear.cost.hours) == pytest.approx((500, 500 / 6 / 8))


def test_a_budget_is_a_ceiling_in_money_too() -> None:
    answer = run_json("plan", "--ud", "250M", "--budget-usd", "500", "--gpu", "H100")
    assert answer["cost"]["usd"] == pytest.approx(500 * answer["spent_flops"] / answer["flops"])
    assert answer["cost"]["usd"] < 100


def test_an_accelerator_of_ones_own() -> None:
    own = Accelerator("400 TFLOP/s accelerator", 400e12, 48e9, 1.2)
    made = plan(250e6, hours=30, gpus=2, **OWN)
    assert made.flops == pytest.approx(400e12 * 0.4 * 2 * 30 * 3600)
    assert made.cost == cost(made.spent_flops, own, 2, architecture=made.architecture)
    assert made.cost == plan(250e6, hours=30, gpus=2, gpu=own).cost
    typed = ["--tflops", "400", "--memory", "48", "--price", "1.2"]
    assert run_json("plan", "--ud", "250M", "--hours", "30", "--gpus", "2", *typed)["flops"] == made.flops
    bill = run_json("cost", "--budget-usd", "120", "--params", "556M", *typed)
    assert (bill["gpu_hours"], bill["memory"]["device_memory"]) == pytest.approx((100, 48e9))


def test_an_accelerator_of_the_table_can_be_described_instead() -> None:
    card = ACCELERATORS["L4"]
    same = {"tflops": card.peak_flops / 1e12, "memory": card.memory_bytes / 1e9, "price": card.price_per_hour}
    named, described = plan(1e9, gpu="L4", hours=100).cost, plan(1e9, hours=100, **same).cost
    assert named is not None
    assert described is not None
    assert described.model_copy(update={"gpu": "L4"}) == named


# -- a loss to reach


@pytest.mark.parametrize(
    "options", [{}, {"weight_decay": 1.0}, {"law": "chinchilla"}, {"epochs": "continuous"}]
)
@pytest.mark.parametrize("target", [3.0, 3.4])
def test_the_least_compute_that_reaches_a_loss(target: float, options: dict) -> None:
    made = plan(1e9, target_loss=target, **options)
    assert made.loss == pytest.approx(target, abs=1e-6)
    assert made.spent_flops == made.flops
    known, form = Calibration.load(), options.get("law", "additive_4p")
    for setting in known.candidates(form, options.get("weight_decay")):
        less = np.geomspace(made.flops * 1e-6, made.flops * 0.999, 2000)
        assert np.nanmin(allocate(setting.law(form), 1e9, less).loss) > target
    assert "No less than" in made.reasons[0]


def test_the_least_compute_within_limits() -> None:
    made = plan(250e6, target_loss="3.2", params=300e6)
    reached = [
        (epochs, decay)
        for epochs in range(1, 20)
        for decay in (0.1, 1.0)
        if predict(300e6, 250e6, epochs, weight_decay=decay).loss <= 3.2
    ]
    assert (made.epochs, made.weight_decay) == min(reached)
    assert made.loss <= 3.2


def test_a_loss_that_this_data_cannot_reach_says_what_would() -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(180e6, target_loss=3.0)
    text = str(caught.value)
    lowest = plan(180e6, 1e22)
    assert text.startswith("target_loss (3) cannot be reached with 180M unique tokens: the lowest loss is")
    assert f"{lowest.loss:.4f}" in text
    needed = float(text.split("about ")[1].split("M would do.")[0]) * 1e6
    assert plan(needed * 1.01, target_loss=3.0).loss <= 3.0
    near = plan(needed * 0.98, target_loss=3.0)
    assert near.loss > 3.0
    assert near.reasons[0].code == "target_within_error"
    with pytest.raises(InvalidInput, match="cannot be reached"):
        plan(needed * 0.9, target_loss=3.0)


def test_a_loss_below_the_irreducible_one_is_out_of_reach_for_all_data() -> None:
    with pytest.raises(
        InvalidInput, match=r"no amount of data would do: the law's irreducible loss is 1\.8383\.$"
    ):
        plan(180e6, target_loss=1.5)
    with pytest.raises(InvalidInput, match=r"no amount of data would do within your limits\.$"):
        plan(180e6, target_loss=2.2, max_params=10e6)


# -- what does not go together


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("--flops 1e18 --params 1B --max-params 2B", "--params goes without --min-params and --max-params."),
        ("--flops 1e18 --params big", "--params must be a number"),
        ("--budget-usd 500", "--budget-usd needs --gpu, such as --gpu H100."),
        ("--budget-usd 500 --gpu H100 --hours 3", "--budget-usd stands for --flops or --hours: give one"),
        ("--budget-usd 500 --flops 1e18", "--budget-usd stands for --flops or --hours: give one"),
        ("--budget-usd 500 --gpu H100 --price 0", "--price must be above zero for a budget in money; got 0."),
        ("--budget-usd much --gpu H100", "--budget-usd must be a number"),
        ("--tflops 400 --hours 3", "--tflops needs --memory (GB) and --price (USD per hour) as well"),
        (
            "--tflops 400 --gpu H100 --hours 3",
            "--tflops describes an accelerator of your own: leave out --gpu.",
        ),
        ("--memory 48 --gpu H100 --hours 3", "--memory needs --tflops"),
        ("--tflops 0 --memory 48 --price 1 --hours 3", "--tflops must be above zero"),
        ("--target-loss 3 --flops 1e18", "--target-loss asks for the least compute: leave out --flops"),
        ("--target-loss 3 --budget-usd 5 --gpu H100", "--target-loss asks for the least compute: leave out"),
        ("--target-loss 3 --spend all", "--target-loss asks for the least compute: leave out --spend."),
        ("--target-loss 3 --gpus 8", "--gpus needs --gpu"),
        ("--target-loss low", "--target-loss must be a number"),
        ("--target-loss 0", "--target-loss must be above zero"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(args: str, words: str) -> None:
    result = CliRunner().invoke(planner, ["plan", "--ud", "1B", *args.split()])
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {words}")
    assert result.output.count("\n") == 1
