"""Ensembles of a study: who is a member of which, what K of them reach, and the command for it."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from calibration.commands.sweep import ensemble
from calibration.fitting.members import with_ensemble_law
from calibration.studies.ensembles import SUBSETS, cells, check, reached, subsets
from calibration.studies.study import load
from planner.calibration import QUANTITIES, Calibration, Recipe
from planner.inputs import InvalidInput
from trainer.run.ensembles import score

RECIPE = Recipe(learning_rate=0.01, batch_sequences=4, sequence_length=128)
WHERE = (12_000.0, 4096.0, 2.0, 4096.0)


def test_members_differ_in_their_seed_only(study: Path) -> None:
    found = [[run.name for run in members] for members in cells(load(str(study)).runs).values()]
    assert len(found) == 4
    for members in found:
        assert [name[-3:] for name in members] == ["-s0", "-s1"]
        assert len({name[:-3] for name in members}) == 1


def test_a_study_of_one_seed_has_no_ensembles(study: Path) -> None:
    study.write_text(study.read_text().replace("seeds = [0, 1]", "seeds = [0]"))
    with pytest.raises(InvalidInput, match="differ in their seed only"):
        check(load(str(study)).runs)
    done = CliRunner().invoke(ensemble, [str(study), "--dry-run"])
    assert done.exit_code == 2, done.output


def test_the_loss_of_k_members_is_the_mean_over_all_subsets() -> None:
    nats = np.random.default_rng(0).gamma(2.0, 2.0, (5, 70_000))  # more than one block of tokens
    for found in reached(list(nats)):
        chosen = list(combinations(range(5), found.members))
        losses = [-np.log(np.exp(-nats[list(some)]).mean(0)).mean() for some in chosen]
        assert found.subsets == len(chosen)
        assert found.loss == pytest.approx(np.mean(losses), rel=1e-12)
    first, *_, last_but_one, last = reached(list(nats))
    assert first.error == pytest.approx(nats.mean(1).std(ddof=1) / np.sqrt(5))
    assert last.error == last_but_one.error


def test_what_all_members_find_impossible_is_still_a_number() -> None:
    assert reached([np.full(3, 2000.0), np.full(3, 2001.0)])[1].loss == pytest.approx(
        2000 + np.log(2) - 0.3133, abs=1e-3
    )


def test_many_members_have_a_fixed_sample_of_subsets() -> None:
    assert len(subsets(20, 10)) == SUBSETS
    assert subsets(20, 10) == subsets(20, 10)
    assert len(subsets(8, 4)) == 70


@pytest.mark.slow
def test_the_command_trains_members_and_scores_them_and_goes_on_where_it_stopped(
    study: Path, tmp_path: Path
) -> None:
    text = study.read_text().replace('["12k", "20k"]', '["12k"]').replace("[2, 4]", "[2]")
    study.write_text(f"{text}\n[distill]\n")
    out = tmp_path / "members"
    first = CliRunner().invoke(ensemble, [str(study), "-o", str(out), "--workers", "1", "--json", "--quiet"])
    assert first.exit_code == 0, first.output
    answer = json.loads(first.stdout)
    rows, ((student, taught),) = answer["ensembles"], answer["distilled"].items()
    assert json.loads((Path(student) / "result.json").read_text())["loss"] == taught
    assert [row["members"] for row in rows] == [1, 2]
    runs = sorted((out / "runs").iterdir())
    assert rows[1]["loss"] == pytest.approx(score(runs).loss, abs=1e-9)
    assert rows[1]["bits_per_byte"] == pytest.approx(score(runs).bits_per_byte, rel=1e-6)
    before = (out / "ensembles.csv").read_bytes()
    (out / "ensembles.csv").unlink()
    (out / "scored" / runs[0].name).rename(tmp_path / "lost")
    own = str(tmp_path / "own.json")
    Calibration.load("micro").model_copy(update={"recipe": RECIPE}).save(own)
    again = CliRunner().invoke(ensemble, [str(study), "-o", str(out), "--quiet", "--attach", own])
    assert again.exit_code == 0, again.output
    assert "K = 2" in again.stdout
    assert f"Distilled into {student}: loss {taught:.4f}." in again.stdout
    assert (out / "ensembles.csv").read_bytes() == before
    assert list(pd.read_csv(out / "ensembles.csv")["seeds"]) == ["0 1", "0 1"]
    known = Calibration.load(own).members
    assert known is not None
    assert known.limit_gain(Calibration.load(own).law(0.1), *WHERE) > 0
    assert known.power(*(getattr(known.reference, name) for name in QUANTITIES)) == pytest.approx(
        2 * (rows[0]["loss"] - rows[1]["loss"])
    )


def test_what_cannot_get_members_is_said_before_anything_is_trained(study: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(ensemble, [str(study), "--attach", "micro"])
    assert (done.exit_code, "a calibration file of your own" in done.output) == (2, True)
    bare = Calibration.load("micro").model_copy(update={"recipe": None})
    with pytest.raises(InvalidInput, match="learning rate and batch"):
        with_ensemble_law(bare, pd.DataFrame())
    other = pd.DataFrame({"learning_rate": [0.02]})
    with pytest.raises(InvalidInput, match=r"learning rate 0.01 and not 0.02"):
        with_ensemble_law(bare.model_copy(update={"recipe": RECIPE}), other)


def test_how_one_model_learns_is_checked_before_anything_is_trained(study: Path) -> None:
    text = study.read_text()
    study.write_text(f"{text}\n[distill]\n")
    assert load(str(study)).distill == {"weight": 0.9, "temperature": 1.0}
    asked = CliRunner().invoke(ensemble, [str(study), "--dry-run"])
    assert "Not counted is the model that is distilled" in asked.stdout
    for wrong, why in (
        ("weight = 2", "at most 1"),
        ("temprature = 1", "temprature"),
        ("weight = 0", "weight"),
        ('weight = "much"', "weight"),
    ):
        study.write_text(f"{text}\n[distill]\n{wrong}\n")
        with pytest.raises(InvalidInput, match=why):
            load(str(study))


@pytest.mark.slow
def test_a_study_that_distils_trains_one_model_on_all_members(study: Path, tmp_path: Path) -> None:
    text = study.read_text().replace('["12k", "20k"]', '["12k"]').replace("[2, 4]", "[2]")
    study.write_text(f"{text}\n[distill]\nweight = 0.5\n")
    how = [str(study), "-o", str(tmp_path / "members"), "--workers", "1", "--json", "--quiet"]
    first, again = (CliRunner().invoke(ensemble, how) for _ in range(2))
    assert first.exit_code == 0, first.output
    ((out, loss),) = json.loads(first.stdout)["distilled"].items()
    result = json.loads((Path(out) / "result.json").read_text())
    assert result["loss"] == loss
    assert len(result["config"]["distill"]["members"]) == 2
    assert result["config"]["distill"]["weight"] == 0.5
    assert json.loads(again.stdout)["distilled"] == {out: loss}
