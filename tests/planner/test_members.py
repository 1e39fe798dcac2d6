"""What an ensemble gains: the law of its members, its guards, and the part of a file that has it."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import Calibration, InvalidCalibration, plan, predict
from planner.calibration import Averaging

PART: dict[str, Any] = {
    "reference": {"params": 2e5, "unique_tokens": 65536, "epochs": 8, "timescale_epochs": 2.6},
    "gain": 0.4,
    "exponents": {
        "params": 0.2,
        "unique_tokens": -0.3,
        "epochs": 0.5,
        "timescale_epochs": 0.25,
        "density": 0.1,
    },
    "error": 0.01,
    "most_members": 8,
    "fitted_on": {
        "params": [1e5, 4e5],
        "unique_tokens": [32768, 131072],
        "epochs": [4, 16],
        "timescale_epochs": [0.4, 8],
        "runs": 64,
    },
    "distilled": {"kept": 0.6, "members": 8, "params": 1.8e5},
    "source": "made up for tests",
}


def with_members(**changes: Any) -> Calibration:
    """The shipped weight-decay law with made-up members."""
    known = Calibration.load("micro-weight-decay")
    return known.model_copy(update={"members": Averaging.model_validate({**PART, **changes})})


def test_inside_of_what_was_trained_the_loss_is_the_law_less_its_share_of_the_gain() -> None:
    known = with_members()
    members, recipe = known.members, known.recipe
    assert members is not None
    assert recipe is not None
    law, timescale = known.law(0.3), recipe.timescale_tokens(0.3)
    gain = 0.4 * 1.5**0.2 * (10 / 8) ** 0.5 * (timescale / 65536 / 2.6) ** (0.25 + 0.1 * math.log(1.5))
    at = (3e5, 65536.0, 10.0)
    one = float(law.loss(*at))
    for count in (1, 2, 4, 8, 1000):
        expected = one - gain * (1 - 1 / count)
        found = one - float(known.averaging_gain(law, count, *at, 0.3))
        assert found == pytest.approx(expected, abs=1e-12)
    assert float(members.power(3e5, 65536.0, 10.0, timescale / 65536)) == pytest.approx(gain, rel=1e-12)


def test_beyond_what_was_trained_the_gain_does_not_grow_and_never_leads_below_the_irreducible_loss() -> None:
    known = with_members()
    assert known.members is not None
    law, timescale = known.law(0.3), 65536 * 2.6
    limit = known.members.limit_gain
    for there in (timescale, 65536 * 6.0, 65536 * 0.5):
        most = limit(law, 4e5, 65536.0, 8.0, there)
        assert limit(law, 1e9, 65536.0, 8.0, there) == pytest.approx(most)
    assert limit(law, 1e3, 65536.0, 8.0, timescale) < limit(
        law, 1e5, 65536.0, 8.0, timescale
    )  # less is believed
    huge = with_members(gain=50.0).members
    assert huge is not None
    sizes = np.geomspace(1e4, 1e7, 7)
    lowest = law.loss(sizes, 65536.0, 8.0) - huge.limit_gain(law, sizes, 65536.0, 8.0, timescale)
    assert np.all(lowest >= law.terms(sizes, 65536.0, 8.0).irreducible - 1e-12)


def test_below_one_epoch_the_tokens_in_use_are_the_unique_ones() -> None:
    known = with_members()
    assert known.members is not None
    law, timescale = known.law(0.3), 65536 * 2.6
    part = known.members.limit_gain(law, 2e5, 131072.0, 0.5, timescale)
    assert part == pytest.approx(known.members.limit_gain(law, 2e5, 65536.0, 1.0, timescale))


def test_a_file_keeps_its_members_and_one_without_has_no_such_field(tmp_path: Path) -> None:
    known = with_members()
    known.save(tmp_path / "own.json")
    read = Calibration.load(tmp_path / "own.json")
    assert read.members == known.members
    assert read.members is not None
    assert read.members.distilled is not None
    assert read.members.distilled.kept == 0.6
    plain = known.model_copy(update={"members": None})
    assert "members" not in json.loads(plain.model_dump_json())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gain": -1.0}, "members.gain"),
        ({"most_members": 1}, "members.most_members"),
        ({"error": math.nan}, "members.error"),
        (
            {"fitted_on": {**PART["fitted_on"], "epochs": [8, 4]}},
            "epochs: must be two increasing",
        ),
        ({"exponents": {"params": 1}}, "members.exponents"),
    ],
)
def test_a_file_with_senseless_members_is_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    data = json.loads(Calibration.load("micro-weight-decay").model_dump_json())
    data["members"] = PART | change
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(InvalidCalibration, match=why):
        Calibration.load(tmp_path / "bad.json")


def test_members_need_the_recipe(tmp_path: Path) -> None:
    data = json.loads(Calibration.load("micro").model_dump_json())
    data["members"], data["recipe"] = PART, None
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(InvalidCalibration, match="members need the recipe"):
        Calibration.load(tmp_path / "bad.json")


# -- a law of averaging from elsewhere

WEB = Calibration.load("fineweb-llama2")


def test_a_borrowed_gain_has_an_interval_that_widens_with_the_distance() -> None:
    law, place = WEB.law(1.0), (6e8, 197e6, 8.0)
    widths = []
    for data in (1, 4, 16):
        gain = WEB.averaging_gains(law, 5, place[0], data * place[1], place[2], 1.0)
        assert 0 < gain.low < gain.expected < gain.high
        widths.append(float(WEB.averaging_deviation(place[0], data * place[1], place[2], 1.0)))
    assert widths == sorted(widths)
    assert widths[1] > widths[0] + 0.05
    larger = WEB.averaging_deviation(40 * place[0], *place[1:], 1.0)
    assert larger > widths[0] + 0.05


def test_one_model_has_no_gain_and_no_ensemble_gets_below_the_irreducible_loss() -> None:
    assert WEB.averaging_gains(WEB.law(1.0), 1, 6e8, 1.8e8, 8.0, 1.0) == (0.0, 0.0, 0.0)
    for params, ud, epochs in ((1e8, 5e7, 1.0), (1e9, 5e8, 64.0), (3e9, 1e10, 0.5)):
        law = WEB.law(0.1)
        terms = law.terms(params, ud, epochs)
        gain = WEB.averaging_gains(law, 10_000, params, ud, epochs, 0.1)
        assert terms.loss - gain.high >= terms.irreducible - 1e-9


def test_the_second_line_says_what_the_rest_would_buy_and_how_sure_that_is() -> None:
    p = plan("180M", gpu="H100", gpus=8, hours=20)
    spare = p.spare_ensemble
    assert spare is not None
    assert p.params == pytest.approx(609e6, rel=0.01)  # the plan of one model is what it was
    assert spare.loss_low < spare.loss < spare.loss_high < p.loss
    said = f"{spare.loss:.2f} (80%: {spare.loss_low:.2f} to {spare.loss_high:.2f})"
    assert said in p.budget
    assert spare.total_flops <= p.flops
    assert {"ensemble_instead", "other_uses"} <= {one.code for one in p.reasons}


def test_what_is_too_far_from_the_ladders_stays_a_sentence() -> None:
    p = plan("8B", 3e22)
    assert p.spare_ensemble is None
    assert "--members" not in p.budget
    several = plan("8B", 3e22, members=4)
    assert several.first_guess is not None
    assert "what averaging gains was not measured near here" in several.verdict


def test_a_whole_plan_of_members_for_web_text() -> None:
    p = plan("180M", gpu="H100", gpus=8, hours=20, members="auto")
    found = p.members
    assert found is not None
    assert found.count > 1
    assert found.gain_low is not None
    assert found.gain_high is not None
    assert found.gain_low < found.gain < found.gain_high
    assert p.verdict.startswith(f"Train {found.count} models of ")
    assert "borrowed from DCLM, 196.6M tokens" in p.budget
    assert p.predictive_uncertainty is not None
    assert p.predictive_uncertainty.loss_low < p.loss < p.predictive_uncertainty.loss_high
    assert found.distilled is not None
    assert found.distilled.kept_between is not None
    assert p.cost is not None
    # the search found what is best by the gain that can be counted on
    assert found.single is not None
    assert p.loss < found.single.loss


def test_what_distillation_keeps_is_as_unsure_as_the_gain_and_the_share_together() -> None:
    p = plan("180M", gpu="H100", gpus=8, hours=20, members="auto")
    assert p.members is not None
    assert p.members.single is not None
    assert p.members.gain_low is not None
    assert p.members.gain_high is not None
    kept, gain = p.members.distilled, p.members.gain
    assert kept is not None
    assert kept.kept_between is not None
    alone = kept.loss + kept.kept * (kept.loss - p.loss) / (1 - kept.kept)  # one model of the members' size
    least, most = (alone - p.loss - gain + end for end in (p.members.gain_low, p.members.gain_high))
    assert kept.loss_low == pytest.approx(alone - kept.kept_between[1] * most, abs=1e-9)
    assert kept.loss_high == pytest.approx(alone - kept.kept_between[0] * least, abs=1e-9)
    (said,) = [one for one in p.reasons if one.code == "distilled"]
    assert f"{kept.loss:.2f}, or {kept.loss_low:.2f} to {kept.loss_high:.2f}" in said
    assert "up to 4.3 times the compute" in said  # ten forward passes are a third of ten trainings


def test_an_ensemble_says_why_it_leaves_what_it_leaves() -> None:
    auto = plan("180M", gpu="H100", gpus=8, hours=20, members="auto")
    assert "no more than 10 are planned, as 5 were tried" in auto.budget
    asked = plan("180M", gpu="H100", gpus=8, hours=20, members=10)
    assert "with 10 members the law expects no gain from the rest" in asked.budget
    far = plan("8B", 3e22, members=4)
    assert "what the rest could buy is not known" in far.budget
    for p in (auto, asked, far):
        assert "other_uses" in {one.code for one in p.reasons}
    assert "other_uses" not in {one.code for one in plan("250M", 5e18, members=2).reasons}


def test_a_prediction_says_what_averaging_gains() -> None:
    one = predict(3e8, 1.97e8, 16, members=5)
    assert one.averaging is not None
    assert one.averaging.low is not None
    assert one.averaging.low < one.averaging.gain < one.averaging.limit
    assert one.averaging.source == "borrowed from DCLM, 196.6M tokens"
    assert predict(3e8, 1.97e8, 16).averaging is None
    assert "outside_members" not in {one.code for one in one.warnings}
    far = {one.code: one for one in predict(5e9, 8e9, 3, members=12).warnings}
    assert "unique tokens 8B (trained: 197M)" in far["outside_members"]
    assert "more_members" in far


def test_the_study_of_an_ensemble_has_all_members_and_one_distilled_from_them() -> None:
    study = pytest.importorskip("calibration.studies.study")
    p = plan(65536, 5e12, calibration="micro-weight-decay", members=3)
    made = study.parse(tomllib.loads(p.study_config(tokenizer="bytes")), "members")
    assert sorted(run.config.seed for run in made.runs) == [0, 1, 2]
    assert {run.config.weight_decay for run in made.runs} == {p.weight_decay}
    assert {run.params for run in made.runs} == {p.architecture.params}
    assert made.distill == {"weight": 0.9, "temperature": 1.0}


@pytest.mark.parametrize("covariance", [[[1.0]], [[1.0] * 5] * 4, [[-1.0] * 5] * 5])
def test_a_file_with_a_senseless_covariance_is_refused(tmp_path: Path, covariance: list[Any]) -> None:
    data = json.loads(WEB.model_dump_json(exclude_none=True))
    data["members"]["borrowed"]["covariance"] = covariance
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(InvalidCalibration, match=r"members\.borrowed"):
        Calibration.load(tmp_path / "bad.json")
