"""What people read first and act on, for questions inside and outside of what was trained."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import Calibration, InvalidInput, plan
from planner.cli import planner
from planner.evidence import Evidence
from tests.places import script

first_lines = script("benchmarks/first_lines.py")
KNOWN = Calibration.load()


def printed(*arguments: str) -> list[str]:
    done = CliRunner().invoke(planner, ["plan", *arguments], env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_a_slowrun_contestant() -> None:
    short, longer = (
        printed("--ud", "100M", "--gpu", "8xH100", "--hours", hours)[:3] for hours in ("15min", "1")
    )
    assert short[0] == "Train 284M parameters for 9 epochs at weight decay 1.0, from scratch."
    assert "8 min of your 15 min" in short[1]
    assert longer[0] == short[0]
    assert "with this recipe the law expects no gain from the rest" in " ".join(longer)
    assert any(
        "trained near here" in line for line in printed("--ud", "100M", "--gpu", "8xH100", "--hours", "1")
    )


def test_a_babylm_participant() -> None:
    lines = printed("--ud", "10M words", "--gpu", "RTX-4090", "--hours", "12")
    assert "a first guess, because nothing" in " ".join(lines[:2])
    assert "below 50M unique tokens was tried" in " ".join(lines[:2])


def test_a_national_language_lab() -> None:
    lines = printed("--ud", "8B", "--gpu", "64xH100", "--hours", "2 weeks")
    assert lines[0].startswith(
        "Train 5.1B parameters for 3 epochs at weight decay 0.1, from scratch: a first guess"
    )
    assert "c4-gpt2, which knows such questions better, says 4.2B x 12" in " ".join(lines[:4])
    bare = printed("--ud", "8B", "--flops", "3.06e22", "--extrapolate")
    assert "638B parameters for 1 epoch" in bare[0]
    assert "first guess" in bare[0]
    auto = printed("--ud", "8B", "--gpu", "64xH100", "--hours", "2 weeks", "--calibration", "auto")
    assert auto[0] == "Train 4.2B parameters for 12 epochs at weight decay 0.1, from scratch."


def test_who_continues_the_pretraining_of_a_model() -> None:
    lines = printed("--ud", "50M", "--params", "8B", "--flops", "1e20")
    assert lines[0].startswith("Train 8B parameters for 1 epoch")
    assert "from scratch: a first guess" in lines[0]
    assert "(of a model that is trained already no law here says anything)." in " ".join(lines[:3])
    assert any("not for fine-tuning or continued pretraining" in line for line in lines)
    refused = CliRunner().invoke(planner, ["plan", "--ud", "50M", "--flops", "1e20", "--finetune"])
    assert refused.exit_code == 2
    assert "cannot be planned: the laws were fitted to models trained from scratch" in refused.stderr


def test_whoever_asks_inside_of_what_was_trained() -> None:
    lines = printed("--ud", "180M", "--gpu", "8xH100", "--hours", "20")
    assert lines[0] == "Train 609M parameters for 7 epochs at weight decay 1.0, from scratch."
    assert lines[1].startswith("24 min of your 20 h on 8 x H100, about $9.70; with this recipe")
    assert "first guess" not in " ".join(lines)


@pytest.mark.slow
def test_no_first_line_of_a_grid_of_questions_is_nonsense() -> None:
    """One in fourteen of those that `python -m benchmarks.first_lines` asks."""
    assert len(first_lines.questions()) >= 400
    asked = first_lines.questions()[::14]
    found = [first_lines.faults(question) for question in asked]
    refused = [faults == ["(refused)"] for faults in found]
    assert not [one for one in zip(asked, found, refused, strict=True) if one[1] and not one[2]]
    assert sum(refused) < 0.3 * len(asked)  # of calibrations of tiny models


@pytest.mark.parametrize("ud", ["3B", "6B", "8B", "10B"])
def test_more_compute_leads_no_further_from_the_evidence(ud: str) -> None:
    """Where the budget reaches a little beyond what was trained, no plan pays more for a worse bound."""
    bounds = []
    for flops in np.geomspace(3e20, 3e21, 9):
        p = plan(ud, flops, weight_decay=0.1)
        bound = KNOWN.setting(0.1).upper_bound("additive_4p")
        bounds.append(float(bound.loss(p.params, p.ud, p.epochs)))
    error = KNOWN.setting(0.1).inside_error("additive_4p")
    assert max(np.array(bounds) - np.minimum.accumulate(bounds)) <= error


@pytest.mark.slow
def test_the_upper_bound_never_rises_by_more_than_the_error() -> None:
    assert [seed for seed in range(5) if first_lines.rising_pairs(seed)] == []


@settings(max_examples=15, deadline=None)
@given(ud=st.floats(7.75, 8.85), flops=st.floats(9.3, 10.6), decay=st.sampled_from([0.1, 1.0]))
def test_inside_of_the_evidence_nothing_changes(ud: float, flops: float, decay: float) -> None:
    """The plan is that of the bare law."""
    asked = 10**ud, 10 ** (ud + flops)
    cautious, bare = (plan(*asked, weight_decay=decay, extrapolate=far) for far in (False, True))
    evidence = Evidence.of([KNOWN.setting(decay)])
    at = bare.params, bare.ud, bare.epochs
    if evidence.growth(*at) == 0:
        assert (cautious.params, cautious.epochs) == pytest.approx((bare.params, bare.epochs), rel=1e-6)
    assert cautious.loss + evidence.growth(cautious.params, cautious.ud, cautious.epochs) >= bare.loss - 0.05


@given(
    params=st.floats(5, 13), ud=st.floats(5, 12), epochs=st.floats(0, 3), decay=st.sampled_from([0.1, 1.0])
)
def test_the_error_grows_with_the_distance_from_all_evidence(
    params: float, ud: float, epochs: float, decay: float
) -> None:
    error = KNOWN.setting(decay).error("additive_4p")
    at = np.array([10**params, 10**ud, 10**epochs])
    here, inside = float(error(*at)), float(error(3e8, 2.5e8, 6.0))
    assert here >= inside
    further = at * np.where(at > [3e8, 2.5e8, 6.0], 1.5, 1.0)
    assert float(error(*further)) >= here - 1e-12


def test_the_calibration_that_knows_a_question_best_is_found_and_said() -> None:
    p = plan("8B", 3e22, calibration="auto")
    assert p.calibration == "c4-gpt2"
    (why,) = [one for one in p.reasons if one.code == "calibration_chosen"]
    assert why.startswith("c4-gpt2 was chosen: its law is expected to be off by 0.1")
    assert "that of fineweb-llama2 by" in why
    assert plan("250M", 5e18, calibration="auto").calibration == "fineweb-llama2"
    assert plan("50k", 3e11, calibration="auto").calibration.startswith("micro")


@pytest.mark.filterwarnings("error")
def test_the_calibration_that_knows_best_is_found_without_a_ceiling_too() -> None:
    assert plan("8B", "unlimited", calibration="auto").calibration == "c4-gpt2"
    inside = plan("250M", target_loss=3.1, calibration="auto")
    assert inside.calibration == "fineweb-llama2"
    assert inside.loss == pytest.approx(3.1, abs=1e-6)
    (why,) = [one for one in inside.reasons if one.code == "calibration_chosen"]
    assert "is expected to be off by 0.0" in why


def test_others_are_said_with_their_source() -> None:
    p = json.loads(plan("180M", 2.3e20).model_dump_json())
    assert {one["who"] for one in p["published_trainings"]} == {"Kim et al. 2025", "NanoGPT Slowrun"}
    assert p["published_trainings"][0]["source"] == "arXiv 2509.14786"
    assert plan("100B", 1e20).published_trainings == []
    assert plan("8B", 3e22).second_opinions[0].calibration == "c4-gpt2"
    assert plan("250M", 5e18).second_opinions == []


def test_calibrations_of_other_amounts_of_data_are_no_others() -> None:
    """Under a law whose error was never measured every shipped one knows better, but not of a thousand times
    the data that it ever saw.
    """
    known = json.loads(KNOWN.model_dump_json(exclude_none=True)) | {"name": "own"}
    for setting in known["settings"]:
        setting["fitted_on"] |= {"params": [2e7, 4e7], "repeated_params": [2e7, 4e7]}
        setting["trials"] = []
        for law in setting["laws"].values():
            law.pop("predictive_error", None)
    p = plan("100M", 1e18, calibration=Calibration.model_validate(known))
    names = [one.calibration for one in p.second_opinions]
    assert "fineweb-llama2" in names
    assert not any(name.startswith("micro") for name in names)


def test_two_kinds_of_data_are_planned_at_both_ends() -> None:
    p = plan("3B", 1e21, also="20B")
    assert p.mixture is not None
    alone, together = plan("3B", 1e21), plan("23B", 1e21)
    assert (p.params, p.epochs) == (alone.params, alone.epochs)
    assert (p.mixture.together.params, p.mixture.together.epochs) == (together.params, together.epochs)
    (said,) = [one for one in p.reasons if one.code == "data_mixture"]
    assert "What the other 20B tokens are worth is not known" in said
    assert 2 <= len(p.mixture.runs) <= 3
    with pytest.raises(InvalidInput, match="also"):
        plan("3B", 1e21, also="many")


def test_a_plan_fits_on_the_gpus_that_it_is_for() -> None:
    p = plan("1B", gpu="RTX-4090", gpus=1, hours=2000)
    assert p.cost is not None
    assert p.cost.memory is not None
    assert p.cost.memory.trainable_on(1)
    assert "no larger model fits on your GPUs" in p.budget
    for gpus in (1, 4):
        held = plan("4B", gpu="RTX-4090", gpus=gpus, hours="1 month")
        assert "no larger model fits on your GPUs" in held.budget
        assert held.cost is not None
        assert held.cost.fits("RTX-4090").startswith(f"fits on {'one' if gpus == 1 else 'your 4'}")
        assert not re.search("does not fit|more than your", f"{held} {held.why()}")
    many = plan("1B", gpu="H100", gpus=64, hours=2)
    assert any(one.code == "small_batch_per_gpu" for one in many.warnings)
