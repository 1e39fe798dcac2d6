"""The design: proposals that can be built and paid for, that
make the target more certain, and that learn from runs.
"""

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.commands.design import design as command
from calibration.fitting.bayes.hierarchical import hierarchical_fit
from calibration.fitting.design.proposal import design, prior_near
from calibration.fitting.design.select_runs import Wanted, identifying_runs, select_runs
from calibration.fitting.identify import unidentified
from calibration.fitting.runs.tables import read_runs
from calibration.fitting.solver import Reference, flops_of
from planner.calibration import Calibration
from planner.hardware import shape_for
from planner.inputs import InvalidInput
from planner.laws import FORMS, Law, parameter_names
from planner.plans import plan

PRIOR = Calibration.load("fineweb-llama2").setting(0.1)
# Another corpus: floor, exponents and overfitting differ from the prior by more than published laws differ.
TRUTH = Law(
    "additive_4p",
    {
        "E": 1.5,
        "A": 120.0,
        "alpha": 0.25,
        "B": 2000.0,
        "beta": 0.38,
        "P": 4e-7,
        "delta": 1.3,
        "kappa": 1.2,
        "gamma": 0.6,
    },
)


def trained(proposal: pd.DataFrame, law: Law = TRUTH, noise: float = 0.003, seed: int = 0) -> pd.DataFrame:
    """The proposed runs with the losses that a law gives them."""
    rng = np.random.default_rng(seed)
    exact = law.loss(
        *(proposal[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs"))
    )
    return read_runs(proposal.assign(loss=exact * np.exp(noise * rng.standard_normal(len(proposal)))))


def test_proposals_can_be_built_paid_for_and_fitted():
    plan = design(1e19, "250M", "5e18")
    assert plan.runs
    assert plan.flops <= plan.budget
    assert sum(run.flops for run in plan.runs) == pytest.approx(plan.flops)
    for run in plan.runs:
        assert run.architecture.params == run.params == pytest.approx(shape_for(run.params).params, rel=0.01)
        assert run.unique_tokens <= 250e6 * (1 + 1e-9)  # a corpus has no more than its own tokens
        assert run.flops == pytest.approx(6 * run.params * run.tokens)
        assert run.flops <= 5e18
    assert [run.flops for run in plan.runs] == sorted(run.flops for run in plan.runs)
    assert unidentified(trained(plan.table()), ["additive_4p"]) == []


def test_runs_use_at_least_the_data_that_is_asked_for():
    plan = design(1e18, "250M", "5e18", min_unique="100M", max_runs=6, identify=False)
    assert {run.unique_tokens for run in plan.runs} <= {250e6, 125e6}


def test_each_run_makes_the_target_more_certain():
    plan = design(1e19, "250M", "5e18")
    errors = [plan.loss_error_before, *(run.loss_error for run in plan.runs)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(errors))
    assert plan.loss_error_after == errors[-1] < 0.25 * errors[0]
    assert plan.params_error_after < plan.params_error_before


def test_a_larger_budget_never_leaves_more_doubt():
    after = [design(budget, "250M", "5e18").loss_error_after for budget in (1e17, 1e18, 1e19)]
    assert after == sorted(after, reverse=True)


def test_existing_runs_count_and_are_not_proposed_again():
    first = design(1e18, "250M", "5e18")
    runs = trained(first.table())
    second = design(1e18, "250M", "5e18", runs=runs)
    assert second.existing_runs == len(runs)
    assert second.loss_error_before < 0.5 * first.loss_error_before
    known = {(round(run.params), round(run.unique_tokens), run.epochs) for run in first.runs}
    assert not known & {(round(run.params), round(run.unique_tokens), run.epochs) for run in second.runs}


def test_the_estimate_follows_the_runs_not_the_prior():
    """Twelve designed runs on another corpus bring the predicted loss of the target near the truth."""
    target = (6e8, 250e6, 5.5)
    truth = float(TRUTH.loss(*target))
    wrong = abs(float(PRIOR.law("additive_4p").loss(*target)) - truth)
    runs = trained(design(5e18, "250M", "5e18", max_runs=12).table())
    belief = hierarchical_fit(runs, ("additive_4p",), "fineweb-llama2").posteriors["additive_4p"][1.0]
    assert abs(float(belief.law.loss(*target)) - truth) < 0.15 * wrong


@pytest.mark.parametrize("form", FORMS)
def test_theta_and_law_are_the_same_thing(form):
    ordinary = {"R_D_star": 8.0, "R_N_star": 9.0, "rho": 0.4, "P": 0.01, "delta": 1.3, "kappa": 0.9}
    own = ordinary | {"gamma": 0.8, "c": 2.0} | dict(PRIOR.law("chinchilla").parameters)
    reference, law = Reference.of(PRIOR), Law(form, {name: own[name] for name in parameter_names(form)})
    again = reference.law(form, reference.theta(law))
    for name, value in law.parameters.items():
        assert float(again.parameters[name]) == pytest.approx(float(value), rel=1e-12)


@pytest.mark.parametrize("form", ["chinchilla", "exponential_decay", "additive_1p", "additive_4p"])
def test_every_form_can_be_designed_for(form):
    plan = design(1e18, "250M", "5e18", law=form)
    assert plan.law == form
    assert plan.loss_error_after < plan.loss_error_before


def test_choose_prefers_what_tells_most_about_the_target():
    """Of equally dear runs the one at the target wins over one far from it."""
    belief = prior_near(Calibration.load("fineweb-llama2"), "additive_4p", 0.1)
    candidates = (np.array([3e8, 3e7]), np.array([4e8, 4e9]), np.array([4.0, 4.0]))
    assert len(set(flops_of(candidates))) == 1
    wanted = (np.array([3.2e8]), np.array([4e8]), np.array([4.0]))
    assert select_runs(belief, candidates, Wanted(wanted, np.eye(1)), 1.01 * flops_of(candidates)[0]) == [0]


@settings(max_examples=20, deadline=None)
@given(st.floats(16, 22), st.integers(0, 2**32 - 1))
def test_choices_stay_within_the_budget(ln10_budget, seed):
    rng = np.random.default_rng(seed)
    candidates = (
        10 ** rng.uniform(7, 9, 30),
        10 ** rng.uniform(7, 9, 30),
        rng.integers(1, 17, 30).astype(float),
    )
    wanted = (np.array([1e9, 5e8]), np.array([5e8, 5e8]), np.array([4.0, 8.0]))
    belief, budget = prior_near(Calibration.load("fineweb-llama2"), "additive_4p", 0.1), 10**ln10_budget
    first = identifying_runs("additive_4p", candidates, None, budget)
    chosen = select_runs(belief, candidates, Wanted(wanted, np.eye(2)), budget, first=first)
    assert len(set(chosen)) == len(chosen)
    assert flops_of(candidates)[chosen].sum() <= budget * (1 + 1e-9)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"budget": 0}, "budget must be above zero"),
        ({"target_ud": "many"}, "target_ud must be a number"),
        ({"target_flops": -1}, "target_flops must be above zero"),
        ({"budget": 1e9}, "no run worth training with the 763 steps of 65.5k tokens that it needs fits"),
        ({"batch_tokens": "some"}, "batch_tokens must be a number"),
        ({"law": "magic"}, "law must be one of"),
        ({"calibration": "nowhere.json"}, "nowhere.json"),
        ({"weight_decay": "x"}, "weight_decay must be a number"),
        ({"noise": 0}, "noise must be above zero"),
        ({"model_discrepancy": -1}, "model_discrepancy must not be negative"),
    ],
)
def test_mistakes_are_named(options, reason):
    with pytest.raises(InvalidInput, match=reason):
        design(**{"budget": 1e19, "target_ud": "250M", "target_flops": "5e18", **options})


def test_several_weight_decays_need_a_choice():
    runs = trained(design(1e18, "250M", "5e18").table())
    both = pd.concat([runs, runs.assign(weight_decay=0.1, run=runs["run"] + "-b")], ignore_index=True)
    with pytest.raises(InvalidInput, match="several weight decays"):
        design(1e18, "250M", "5e18", runs=both)
    assert design(1e18, "250M", "5e18", runs=both, weight_decay=1.0).existing_runs == len(runs)


@pytest.mark.parametrize(("flops", "decay"), [("5e18", 1.0), ("5e17", 0.1)])
def test_runs_are_for_the_weight_decay_of_the_plan(flops, decay):
    found = design(1e18, "250M", flops, max_runs=3)
    assert found.weight_decay == decay == plan(ud="250M", flops=flops).weight_decay
    assert set(found.table()["weight_decay"]) == {decay}
    assert design(1e18, "250M", flops, max_runs=3, weight_decay=0.3).weight_decay == 0.3


def test_no_run_is_shorter_than_all_that_were_trained():
    """What fewer steps tell is not known, where no run shows how many are needed."""
    first = design(1e18, "250M", "5e18", max_runs=5)
    assert first.steps_needed == pytest.approx(5e7 / 65536)  # of the published grid
    assert not first.steps_shown
    assert min(run.steps for run in first.runs) >= first.steps_needed
    own = design(1e18, "250M", "5e18", max_runs=5, batch_tokens="1M")
    assert min(run.tokens for run in own.runs) >= 1e6 * own.steps_needed
    runs = trained(first.table())
    again = design(1e18, "250M", "5e18", max_runs=5, runs=runs)
    assert again.steps_needed == runs["steps"].min() <= min(run.steps for run in again.runs)
    said = design(1e18, "250M", "5e18", max_runs=5, min_tokens="1M")  # by a caller who knows
    assert said.steps_needed is None


def test_the_command(tmp_path):
    options = ["--budget", "1e19", "--target-ud", "250M", "--target-flops", "5e18"]
    text = CliRunner().invoke(command, [*options, "-o", str(tmp_path / "next.csv")])
    assert text.exit_code == 0, text.output
    assert "15 runs" in text.output or "runs," in text.output
    proposal = pd.read_csv(tmp_path / "next.csv")
    assert {"run", "params", "unique_tokens", "epochs", "tokens", "weight_decay", "d_model"} <= set(
        proposal.columns
    )
    trained(proposal).to_csv(tmp_path / "runs.csv", index=False)
    again = CliRunner().invoke(command, [*options, "--runs", str(tmp_path / "runs.csv"), "--json"])
    result = json.loads(again.output)
    assert result["existing_runs"] == len(proposal)
    assert result["runs"][0]["architecture"]["params"] == result["runs"][0]["params"]
    table = (tmp_path / "runs.csv").read_bytes()
    refused = CliRunner().invoke(
        command, [*options, "--runs", str(tmp_path / "runs.csv"), "-o", str(tmp_path / "runs.csv")]
    )
    assert refused.exit_code == 2
    assert "it is the input" in refused.stderr
    assert (tmp_path / "runs.csv").read_bytes() == table
    chosen = CliRunner().invoke(
        command, [*options, "--runs", str(tmp_path / "runs.csv"), "--weight-decay", "0.1", "--json"]
    )
    assert chosen.exit_code == 0, chosen.output  # here the weight decay chooses among runs that say theirs
    assert "Vocabulary" not in text.stderr
    unknown = Calibration.load("fineweb-llama2").model_copy(update={"vocab_size": None})
    unknown.save(tmp_path / "unknown.json")
    told = CliRunner().invoke(command, [*options, "--calibration", str(tmp_path / "unknown.json")])
    assert "Vocabulary not known, 32,100 assumed for the shapes: --vocab." in told.stderr
    bad = CliRunner().invoke(command, ["--budget", "lots", "--target-ud", "250M", "--target-flops", "5e18"])
    assert bad.exit_code == 2
    assert bad.stderr.startswith("Error: --budget must be a number")
