"""What the short answer says and leaves out: cautions, weight decays, budgets, units, other tokens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner import InvalidInput, Plan, compare, plan
from planner.cli import planner
from planner.explain import cautions, nats_per_token, summary
from planner.inputs import scientific


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(planner, [*arguments], env={"COLUMNS": "100"})


def printed(*arguments: str) -> str:
    """One plan in a terminal of 100 columns, as one line."""
    done = asked("plan", *arguments)
    assert done.exit_code == 0, done.output
    assert "--why" in arguments or len(done.output.splitlines()) <= 20
    return " ".join(done.output.split())


def row(p: Plan, name: str, brief: bool = False) -> str:
    return dict(summary(p, brief)).get(name, "")


def test_the_cautions_that_weigh_most_are_never_left_out() -> None:
    clean = printed("--ud", "3B", "--also", "20B", "--gpu", "8xH100", "--hours", "48")
    assert "not for fine-tuning or continued pretraining" in clean
    many = printed("--ud", "8B", "--gpu", "H100", "--gpus", "64", "--hours", "2 weeks")
    assert "1,024 a step for each of 64 H100s, which will mostly wait" in many
    assert "not for fine-tuning or continued pretraining" in many


def test_two_extrapolations_are_one_caution() -> None:
    p = plan("3B", gpu="8xH100", hours=48)
    said = cautions(p)
    assert len([one for one in p.warnings if "is an extrapolation" in one]) == 2
    (one,) = [each for each in said if "an extrapolation" in each]
    assert one.startswith(
        "model size 5.16B is 10.6 times the largest (489M) and unique tokens 3B is 3.75 times"
    )
    assert one.endswith("(800M) that the cost of repetition was fitted on: an extrapolation.")
    assert cautions(plan("250M", 5e18))[0].startswith("Fitted on FineWeb")


@pytest.mark.parametrize(
    ("given", "clear"),
    [
        ({"ud": "250M", "flops": 5e18}, True),
        ({"ud": "250M", "flops": 2.5e18, "params": "556M"}, False),  # the plan is above it, at 0.1
        ({"ud": "740M", "flops": 3e19, "calibration": "dolma-olmo3"}, False),  # any weight decay is had
    ],
)
def test_where_weight_decays_swap_is_said_where_that_is_clear(given: dict[str, object], clear: bool) -> None:
    p = plan(**given)  # type: ignore[arg-type]
    assert p.crossover_flops is not None
    assert p.crossover_is_clear == clear
    assert ("(C×)" in row(p, "weight decay")) == clear


def test_a_first_guess_is_for_the_same_reason_whatever_the_budget() -> None:
    plans = [
        plan("3B", gpu=gpu, hours=hours)
        for gpu, hours in (("64xH100", 24), ("64xH100", "2 weeks"), ("8xH100", 48))
    ]
    assert len({(p.params, p.epochs, p.first_guess) for p in plans}) == 1
    found = plans[0].predictive_uncertainty
    assert found is not None
    assert found.beyond_evidence == "nothing repeated above 5B parameters was tried"
    assert str(plans[0].first_guess).endswith(found.beyond_evidence)


def test_without_a_ceiling_nobody_has_a_budget() -> None:
    said = plan("250M", "unlimited").budget
    assert said.startswith("It takes ")
    assert said.endswith(" FLOPs; with this recipe the law expects no gain from more.")
    assert "your" not in said
    for field in ("--hours", "--budget"):
        refused = asked("plan", "--ud", "250M", "--gpu", "H100", field, "unlimited").output
        assert refused.endswith("got 'unlimited'; without a ceiling it is --flops unlimited.\n")


def test_without_a_ceiling_a_plan_says_what_it_takes_and_not_what_the_bare_law_would() -> None:
    p = plan("9.39B", "unlimited")
    assert p.flops == p.spent_flops == pytest.approx(6 * p.params * p.tokens)
    assert p.unused_flops == 0
    assert p.budget.startswith(f"It takes {scientific(p.flops)} FLOPs; what more could buy is not known")
    assert not {"unused_compute", "other_uses"} & {one.code for one in p.reasons}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": 0.5}, "0.1 is surer; 1.0 better with probability"),
        ({"weight_decay": 0.1}, "0.1 given; 1.0 better with probability"),
        ({}, "1.0 better with probability"),
    ],
)
def test_a_weight_decay_is_not_called_better_that_is_likely_worse(given: dict[str, Any], said: str) -> None:
    p = plan("250M", 5e18, **given)
    text = row(p, "weight decay")
    assert text.startswith(said)
    assert int(re.findall(r"better with probability (\d+)%", text)[0]) >= 50


@pytest.mark.parametrize("more", [{}, {"serve_tokens": "200M"}])
def test_serving_a_few_tokens_makes_no_first_guess_certain(more: dict[str, Any]) -> None:
    p = plan("2.52B", 2.37e21, **more)
    assert "first guess" in p.verdict
    assert "what the rest could buy is not known; c4-gpt2" in p.budget


def test_how_many_tokens_a_text_was_taken_to_have() -> None:
    assert "your text 433MB taken as 107M tokens (4.03 bytes each)" in printed(
        "--ud", "433MB", "--flops", "5e18"
    )
    assert row(plan("10M  words", 1e18), "your text") == "10M words taken as 14.7M tokens (4.03 bytes each)"
    assert row(plan("107M", 5e18), "your text") == ""


def test_which_calibration_was_chosen_and_why() -> None:
    said = row(plan("8B", 3e22, calibration="auto"), "calibration")
    assert said.startswith("c4-gpt2 was chosen: expected to be off by 0.1")
    assert " nats, fineweb-llama2 by " in said
    assert row(plan("8B", 3e22), "calibration") == ""


def test_memory_says_the_micro_batch_and_why_the_tokens_of_each_gpu() -> None:
    why = printed("--ud", "250M", "--gpu", "8xH100", "--hours", "3", "--why")
    assert "batches of 65,536 tokens, 8,192 a step for each of 8 GPUs" in why
    assert "to train with 8 x 512 tokens at a time, fp32 Adam (activations" in why
    bill = asked("cost", "--flops", "5e18", "--gpu", "H100", "--params", "556M", "--sequences", "4").output
    assert "to train with 4 x 512 tokens at a time, fp32 Adam" in " ".join(bill.split())


def test_other_tokens_are_planned_between_two_ends() -> None:
    p = plan("3B", gpu="8xH100", hours=48, also="20B")
    assert p.mixture is not None
    end = p.mixture.together
    assert end.epochs < 1
    assert row(p, "other tokens") == (
        f"between 5.16B x 2 on your 3B (loss 2.46) and 4.44B x 1 on 20.5B of all 23B ({end.loss:.2f}); "
        "which, three small runs decide (--why)"
    )
    assert min(one.epochs for one in p.mixture.runs) >= 1
    assert "0.892" not in " ".join(p.reasons)


def test_a_handful_of_other_tokens_changes_no_plan() -> None:
    p = plan("250M", 5e18, also=3)
    assert p.mixture is not None
    assert p.mixture.runs == []
    few = "other 3 tokens are too few next to your 250M to change the plan"
    assert row(p, "other tokens") == f"the {few}"
    assert f"The {few}." in p.reasons


def test_a_comparison_says_where_nothing_such_was_tried() -> None:
    far = compare("8B", 3e22)
    assert far.warnings == [
        "Models above 5B parameters: nothing such was tried; `planner plan` stays near what was."
    ]
    assert far.warnings[0] in " ".join(str(far).split())
    assert far.model_dump(mode="json")["warnings"][0]["code"] == "outside_params"
    assert compare("250M", 1e18).warnings == []


def test_where_there_is_no_range_the_row_says_so() -> None:
    said = row(plan("250M", 5e18, epochs=10), "as good")
    assert said.startswith("hardly another size for this compute; cheapest ")


def test_recipe_and_loss_name_dropout_and_tokenizer_where_they_are_known() -> None:
    p = plan("250M", 5e18)
    assert row(p, "recipe").endswith(", 128 x 512 tokens a batch, warm-up 1%, cosine to 10%, no dropout")
    assert " nats per Llama-2 token (" in row(p, "expected loss")
    assert nats_per_token(plan("250M", 5e18, calibration="c4-gpt2")) == "nats per GPT-2 token"
    own = plan("131k", 8e11, calibration="micro")  # whose tokenizer has no name
    assert nats_per_token(own) == "nats per token"


def test_who_continues_a_training_is_told_where_to_look() -> None:
    hint = "(continuing the training of a model? that is --finetune)"
    refused = asked("plan", "--ud", "50M", "--params", "8B").output
    assert refused.startswith("Error: compute is missing: give --flops")
    assert refused.endswith(f" {hint}.\n")
    assert hint not in asked("plan", "--ud", "50M", "--params", "400M").output
    hint = "(of a model that is trained already no law here says anything)"
    assert hint in printed("--ud", "50M", "--params", "8B", "--flops", "1e20")
    assert hint not in printed("--ud", "250M", "--params", "556M", "--flops", "5e18")


def test_members_stand_next_to_one_model() -> None:
    p = plan("740M", 3e19, calibration="dolma-olmo3", members=4)
    assert p.members is not None
    assert p.members.single is not None
    one = p.members.single
    assert one.loss < p.loss
    assert f"One model reaches {one.loss:.2f} for the same compute, which is better." in p.budget
    assert row(p, "members").startswith(f"one model (483M x 14) {one.loss:.2f}; distilled into one ")
    assert row(p, "members").endswith("keeping 47% to 83% of the gain; serving takes 4 times that of one")
    better = plan("180M", gpu="8xH100", hours=20, members="auto")
    assert "One model reaches 3.16 for the same compute. Averaging" in better.budget
    (compared,) = [one for one in better.reasons if one.code == "ensemble_compared"]
    assert "5 members were foretold from fewer to 0.021 nats (root mean square; borrowed" in compared
    assert row(plan("250M", 5e18), "members") == ""


def test_what_was_tuned_elsewhere_is_in_the_row() -> None:
    p = plan("250M", 5e18)
    assert row(p, "weight decay").endswith("; tuned elsewhere 1 to 9.3")
    assert "elsewhere" not in row(p, "weight decay", brief=True)
    left = printed("--ud", "180M", "--gpu", "8xH100", "--hours", "20")
    assert left.endswith("your own runs: planner calibrate fit")
    assert any(one.code == "other_uses" for one in plan("180M", gpu="8xH100", hours=20).reasons)


def test_no_turning_point_where_nothing_is_known() -> None:
    p = plan("740M", 3e19, calibration="dolma-olmo3")
    assert p.turning_point is not None
    assert p.loss_minimising_compute is not None
    assert p.turning_point.flops > p.loss_minimising_compute.flops
    assert "repetition_turns" not in {one.code for one in p.reasons}
    assert "turning point" not in p.why()
    assert "repetition_turns" in {one.code for one in plan("250M", 5e18, weight_decay=0.1).reasons}


def test_a_figure_is_not_shown_next_to_an_interval_that_misses_it() -> None:
    p = plan("740M", 3e19, calibration="dolma-olmo3")
    assert p.intervals is not None
    assert p.flat_range.epochs_min > p.intervals["flat_epochs_min"].high
    assert "flat from" not in p.why()
    assert "flat to" not in p.why()


def test_a_weight_decay_of_ones_own_is_refused_in_ones_own_figures() -> None:
    recipe = {"learning_rate": 3e-3, "batch_tokens": 262144}
    says = "weight_decay 1.6 in your recipe stands for 3.15 as calibrated; 0.051 to 0.51 can be asked here"
    with pytest.raises(InvalidInput, match=says):
        plan("180M", 5e18, weight_decay=1.6, **recipe)
    for end in (0.051, 0.51):
        assert plan("180M", 5e18, weight_decay=end, **recipe).weight_decay in (0.1, 1.0)


def test_no_figure_knows_a_recipe_of_ones_own() -> None:
    for recipe in ({"batch_tokens": "500k"}, {"batch_tokens": "524288", "learning_rate": 1e-3}):
        p = plan("740M", 3e19, calibration="dolma-olmo3", **recipe)  # type: ignore[arg-type]
        (said,) = [one for one in p.warnings if one.code == "translated"]
        assert "Loss, interval and epochs are the law's, which does not know your recipe." in said
        assert ("500,000 tokens a step are taken as 499,712" in said) == (recipe["batch_tokens"] == "500k")


def test_below_eighty_per_cent_it_is_open_which_weight_decay_is_better() -> None:
    sure, unsure = plan("250M", 5e18), plan("10M words", gpu="4090", hours=24)
    assert row(sure, "weight decay").startswith("1.0 better with probability 92%")
    assert row(unsure, "weight decay").startswith("open: 0.1 better with probability 62%")
    own = plan("250M", 5e18, learning_rate=1e-3)
    assert row(own, "weight decay").startswith("as calibrated, 1.0 better")
    assert "tuned elsewhere" not in row(own, "weight decay")


def test_what_more_would_do_is_not_called_nothing_where_it_is_not_known() -> None:
    far = plan("8B", gpu="64xH100", hours="2 weeks")
    assert "twice the tokens -0.07 (twice the compute: not known)" in row(far, "limited by")
    assert "what twice the compute would do is not known" in " ".join(far.why().split())
    many = plan("3B", gpu="64xH100", hours="2 weeks", members="auto")
    assert row(many, "limited by").startswith("not known so far from what was trained")
    assert "twice the compute 0.00" in row(plan("180M", gpu="8xH100", hours=20), "limited by")


def test_more_data_helps_where_compute_has_no_ceiling() -> None:
    free, bound = plan("107.4M", "unlimited"), plan("107.4M", 1e21)
    assert free.marginal_value.loss_if_twice_the_data == pytest.approx(
        bound.marginal_value.loss_if_twice_the_data, abs=1e-3
    )
    assert free.marginal_value.loss_if_twice_the_data < -0.2
    assert free.marginal_value.loss_if_twice_the_compute == 0


def test_no_interval_goes_below_what_nobody_can_reach() -> None:
    p = plan("250M", 5e18, epochs=1000)
    assert p.predictive_uncertainty is not None
    assert p.predictive_uncertainty.loss_low == pytest.approx(p.terms.irreducible)
    assert p.predictive_uncertainty.loss_high > p.loss


def test_one_model_is_named_where_several_can_be_counted_on_less() -> None:
    p = plan("250M", 5e18, members="auto")
    assert p.members is not None
    assert p.members.count == 1
    assert "averaged, are expected to reach 2.99, which can be counted on less" in p.budget
    assert "At the lower end of what averaging may gain, one model is better." in " ".join(p.why().split())


def test_a_budget_in_dollars_is_answered_in_dollars() -> None:
    p = plan("250M", gpu="H100", budget_usd=2000, serve_tokens="100B", serve_mfu=0.1)
    assert " of your $2,000 (" in p.budget
    assert "FLOPs" not in p.budget


def test_some_warning_stands_below_every_plan() -> None:
    lines = printed("--ud", "3B", "--gpu", "64xH100", "--hours", "2 weeks", "--members", "auto")
    assert "A batch of 65,536 tokens is 1,024 a step for each of 64 H100s" in lines
    assert "4 more with --why" in lines


def test_trainings_of_others_are_near_in_size_too() -> None:
    assert plan("10M words", gpu="4090", hours=24).published_trainings == []
    assert plan("250M", 5e18).published_trainings
