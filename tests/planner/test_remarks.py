"""Remarks: text for people, codes for programs, and the measured case that they quote."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from planner import Calibration, crossover, explain, plan
from planner.explain import CODES, Remark
from planner.results import Plan
from tests.places import ROOT, script

KNOWN = Calibration.load()


def test_every_code_is_documented_and_no_other() -> None:
    text = (ROOT / "docs" / "api" / "remarks.md").read_text()
    table = text.split("| code | among | says |\n|---|---|---|\n")[1].split("\n\n")[0]
    assert [row.split("`")[1] for row in table.splitlines()] == list(CODES)


def test_a_remark_is_its_text_with_a_code() -> None:
    p = plan("180M", 2.3e20)
    assert "FLOPs are left" in p.reasons[0]
    assert p.reasons[0].code == "unused_compute"
    assert [remark.code for remark in p.warnings] == ["outside_params", "corpus"]
    remark = Remark("corpus", "said")
    for same in (copy.deepcopy(remark), pickle.loads(pickle.dumps(remark))):
        assert (same, same.code) == ("said", "corpus")
    with pytest.raises(ValueError, match="no such code"):
        Remark("unheard_of", "said")


def test_json_carries_code_and_text_and_can_be_read_back() -> None:
    p = plan("180M", 2.3e20)
    text = p.model_dump_json()
    assert json.loads(text)["warnings"][0] == {"code": "outside_params", "text": str(p.warnings[0])}
    again = Plan.model_validate_json(text)
    assert [(r, r.code) for r in again.reasons] == [(r, r.code) for r in p.reasons]


def test_trials_are_what_the_paper_measured() -> None:
    paper = script("studies/paper/make.py")
    rows = paper.MEASURED + paper.MEASURED_DECAY
    trials = [(s.weight_decay, t) for s in KNOWN.settings for t in s.trials]
    assert len(trials) == len(rows)
    assert len({(decay, t.params, t.unique_tokens, t.epochs) for decay, t in trials}) == 17
    for ud, flops, law, decay, epochs, _, perplexity in rows:
        (found, *_) = [
            t
            for d, t in trials
            if (d, t.law, t.unique_tokens, t.epochs) == (decay, law, ud, epochs)
            and t.flops == flops
            and round(2.718281828459045**t.loss, 2) == perplexity
        ]
        assert found.params == pytest.approx(flops / (6 * ud * epochs), rel=1e-6)


def _measured_case(known: Calibration, decay: float, ud: float, form: str = "additive_4p") -> str:
    """The measured case that a plan for this corpus quotes."""
    asked = plan(250e6, 5e18, law=form, weight_decay=decay)
    return explain._measured_case(asked.model_copy(update={"ud": ud}), known)


def test_the_measured_case_is_said_with_its_predictions() -> None:
    remark = _measured_case(KNOWN, 0.1, 200e6)
    assert "3e18, 5e18 and 1e19 FLOPs" in remark
    assert "perplexity 23.38, 22.91 and 23.13 measured, 22.85, 22.99 and 25.33 predicted" in remark
    for flops, options in ((1e19, {"spend": "all"}), (5e18, {})):
        said = plan("250M", flops, weight_decay=0.1, **options).reasons
        assert remark in said
        codes = [one.code for one in said]
        assert codes == sorted(codes, key=list(CODES).index)
        first = "stop_spending" if options else "less_would_do"
        assert codes.index(first) < codes.index("measured_case")


def test_the_closest_case_is_chosen_by_what_is_asked() -> None:
    for decay, ud, expected in ((0.1, 240e6, "250M"), (1.0, 450e6, "500M"), (1.0, 5e9, "500M")):
        said = _measured_case(KNOWN, decay, ud)
        assert said.startswith(f"Tried with {expected} tokens at weight decay {decay}, with ")
    shuffled = KNOWN.model_dump()
    for setting in shuffled["settings"]:
        for number, trial in enumerate(setting["trials"]):
            trial["loss"] = 1.0 + number % 3
    same = _measured_case(Calibration.model_validate(shuffled), 0.1, 300e6)
    assert same.startswith("Tried with 250M tokens at weight decay 0.1, ")  # outcomes have no say
    assert _measured_case(KNOWN, 0.1, 250e6, "chinchilla") != ""
    assert _measured_case(Calibration.load("micro"), 0.1, 1e5) == ""


def test_the_error_grows_outside_of_what_was_fitted() -> None:
    error = KNOWN.setting(1.0).error("additive_4p")
    inside = error(400e6, 250e6, 6)
    assert inside == pytest.approx(0.0158)
    for outside in ((5e9, 250e6, 6), (5e6, 250e6, 6), (400e6, 9e9, 6), (400e6, 5e6, 6), (400e6, 250e6, 60)):
        assert error(*outside) > 1.2 * inside
    assert error(400e6, 5e9, 1) == pytest.approx(inside)  # fresh data was fitted up to 6B tokens


def test_a_target_within_the_error_is_answered_with_how_likely_it_is() -> None:
    p = plan("180M", target_loss=3.15)
    assert p.reasons[0].code == "target_within_error"
    assert "31%" in p.reasons[0]
    assert plan("180M", target_loss=3.2).reasons[0].code == "least_compute"
    with pytest.raises(ValueError, match="cannot be reached"):
        plan("180M", target_loss=3.0)
    with pytest.raises(ValueError, match="cheap"):
        plan("180M", 5e18, target_loss="cheap")


def test_twice_as_much_is_never_worse_and_regret_never_negative() -> None:
    """Compute is a ceiling: nobody has to use more of it."""
    for ud, flops, decay in (
        ("250M", 5e18, 0.1),
        ("500M", 1e19, 0.1),
        ("2B", 4e20, None),
        ("250M", 4.4e18, 0.1),
    ):
        p = plan(ud, flops, weight_decay=decay)
        assert p.marginal_value.loss_if_twice_the_compute is not None
        assert p.marginal_value.loss_if_twice_the_compute <= 0
        assert all(row.regret >= -1e-9 for row in p.other_laws)


def test_a_crossover_says_where_it_extrapolates_and_for_which_sizes() -> None:
    assert crossover("100M").warnings == []
    assert {remark.code for remark in crossover("2B").warnings} == {"outside_params", "outside_unique_tokens"}
    assert crossover("250M", params="556M").note.endswith("(for models of 556M parameters)")
    assert crossover("250M", max_params="200M").note.endswith("(within your limits)")
    assert crossover("250M", max_params="5B").note == crossover("250M").note
