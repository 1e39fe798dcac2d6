"""One law for every weight decay: fitted to all at once, judged on those left out."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from calibration import fit
from calibration.fitting.weight_decay_law import (
    fit_over_weight_decays,
    fit_weight_decay_law,
    largest_size_error,
    left_out_errors,
    weight_decay_calibration,
    with_timescale,
)
from planner import plan
from planner.calibration import Calibration, Recipe
from planner.cli import planner as main
from planner.inputs import InvalidInput
from planner.laws import TIMESCALE, WEIGHT_DECAY_FORMS, Law
from studies.tournament.forms import registered
from tests.planner.test_weight_decay_law import PARAMETERS

RECIPE = Recipe(learning_rate=0.01, batch_sequences=4, sequence_length=128)
DECAYS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def runs(noise: float = 0.003, decays: tuple[float, ...] = DECAYS) -> pd.DataFrame:
    """A study of weight decays whose law is known."""
    sizes, tokens = (65e3, 110e3, 220e3, 450e3), (32768.0, 65536.0, 131072.0)
    cells = itertools.product(sizes, tokens, (1.0, 4.0, 12.0), decays)
    table = pd.DataFrame(cells, columns=["params", "unique_tokens", "epochs", "weight_decay"])
    table["tokens"] = table["unique_tokens"] * table["epochs"]
    memory = 512 / (0.01 * table["weight_decay"].clip(lower=1e-9).to_numpy())
    law = Law("weight_decay_simple", {**PARAMETERS, TIMESCALE: memory})
    loss = law.loss(*(table[name].to_numpy() for name in ("params", "unique_tokens", "epochs")))
    table["loss"] = loss * np.exp(np.random.default_rng(0).normal(0, noise, len(table)))
    table["run"] = [f"r{i}" for i in range(len(table))]
    return table


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return with_timescale(runs(), RECIPE)


def test_the_law_behind_the_runs_is_found(table: pd.DataFrame) -> None:
    fits = fit_over_weight_decays(table, ["weight_decay_simple"])
    found = fits.forms["weight_decay_simple"]
    assert found.optimum.share > 0.5
    for name in ("alpha", "beta", "delta", "kappa", "mu", "k"):
        assert found.parameters[name] == pytest.approx(PARAMETERS[name], rel=0.15), name
    for one in left_out_errors(fits, table, "weight_decay_simple"):
        assert one.weight_decay in DECAYS[1:-1]
        assert one.error < 0.006


def test_the_largest_models_left_out_say_nothing(table: pd.DataFrame) -> None:
    fits = fit_over_weight_decays(table, ["weight_decay_simple"])
    assert (largest_size_error(fits, table, "weight_decay_simple") or 1.0) < 0.01
    spoiled = table.assign(loss=table["loss"] * np.where(table["params"] == 450e3, 1.5, 1.0))
    fits = fit_over_weight_decays(spoiled, ["weight_decay_simple"])
    off = largest_size_error(fits, spoiled, "weight_decay_simple")
    assert off == pytest.approx(np.log(1.5), abs=0.05)


def test_draws_take_the_form_to_be_off_by_what_it_left(table: pd.DataFrame) -> None:
    """And the fit knows what was trained together, from where on its error grows."""
    _, law = fit_weight_decay_law(table, RECIPE, forms=["weight_decay_simple"], bootstrap=20)
    assert law.draws is not None
    off = law.draws.discrepancy["weight_decay_simple"]
    assert len(off) == len(law.draws.laws["weight_decay_simple"]["E"])
    assert 0.001 < np.std(off) < 0.02
    seen = law.setting(0.3, RECIPE.timescale_tokens(0.3)).evidence
    assert (65e3, 32768.0, 12.0) in seen.cells
    assert seen.growth(100e3, 50e3, 6.0) == 0


def test_a_weight_decay_that_was_left_out_says_nothing(table: pd.DataFrame) -> None:
    """Left out means left out: its losses may be anything."""
    spoiled = table.copy()
    spoiled.loc[spoiled["weight_decay"] == 1.0, "loss"] *= 1.5
    fits = fit_over_weight_decays(spoiled, ["weight_decay_simple"])
    errors = {one.weight_decay: one.error for one in left_out_errors(fits, spoiled, "weight_decay_simple")}
    assert errors[1.0] == pytest.approx(np.log(1.5), abs=0.02)


def test_a_calibration_that_plans_any_weight_decay(table: pd.DataFrame) -> None:
    with registered():  # the form of the tournament, which is not shipped
        known = weight_decay_calibration(
            table, RECIPE, forms=["weight_decay_simple", "weight_decay_hinge"], bootstrap=0
        )
        assert known.default_law in WEIGHT_DECAY_FORMS
        assert known.weight_decays == DECAYS
        found = plan(65536, 3e11, calibration=known)
    truth = Law("weight_decay_simple", {**PARAMETERS, TIMESCALE: 512 / (0.01 * found.weight_decay)})
    assert found.loss == pytest.approx(float(truth.loss(found.params, 65536, found.epochs)), abs=0.03)
    assert found.predictive_uncertainty is not None


def test_what_is_missing_is_said_in_one_sentence(table: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"needs runs at 3 weight decays or more; these have 0.1, 1"):
        fit_over_weight_decays(table[table["weight_decay"].isin([0.1, 1.0])])
    with pytest.raises(InvalidInput, match="a weight-decay law needs the learning rate of the runs"):
        with_timescale(runs(), None)
    with pytest.raises(InvalidInput, match="learning rate of every run, and 1 have none"):
        with_timescale(runs().assign(learning_rate=[float("nan")] + [0.01] * 215, batch_tokens=512), None)
    path = tmp_path / "runs.csv"
    runs().to_csv(path, index=False)
    command = ["calibrate", "fit", str(path), "--bootstrap", "0", "--law", "additive_1p"]
    answer = CliRunner().invoke(
        main, [*command, "--weight-decay-law", "weight_decay_simple", "--learning-rate", "0.01"]
    )
    assert answer.exit_code == 2
    assert "needs the batch tokens of the runs: a column batch_tokens of the table, or --batch-tokens" in (
        answer.output
    )
    auto = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "my.json")])
    assert auto.exit_code == 0, auto.output
    said = " ".join(auto.output.split())
    assert "Warning: no weight-decay law was fitted: a weight-decay law needs the learning rate" in said
    assert Calibration.load(tmp_path / "my.json").weight_decay_law is None
    former = CliRunner().invoke(main, ["calibrate", "dial", "study/", "-o", "x.json"])
    assert former.exit_code == 2
    assert "planner calibrate fit TABLE --weight-decay-law auto" in former.output


HOW = {"laws": ["additive_1p", "additive_4p"], "bootstrap": 20, "learning_rate": 0.01, "batch_tokens": 512}


def test_auto_keeps_the_law_next_to_the_settings_and_plans_as_before() -> None:
    some = runs(decays=(0.1, 0.3, 1.0, 3.0))
    without, auto = (fit(some, weight_decay_law=how, **HOW) for how in ("none", "auto"))
    assert auto.fitted_weight_decay_law["law"] in WEIGHT_DECAY_FORMS  # type: ignore[attr-defined]
    assert auto.weight_decay_law is None
    assert auto.settings == without.settings
    for decay in (None, 0.2):
        assert plan(65536, 3e11, calibration=auto, weight_decay=decay) == plan(
            65536, 3e11, calibration=without, weight_decay=decay
        )
    two = fit(runs(decays=(0.1, 1.0)), **HOW)
    assert two == fit(runs(decays=(0.1, 1.0)), weight_decay_law="none", **HOW)


def test_a_law_that_is_named_is_what_plans_use_and_the_settings_stay(tmp_path: Path) -> None:
    known = fit(runs(), weight_decay_law="weight_decay_simple", **HOW)
    assert fit(runs(), weight_decay_law="dial_simple", **HOW) == known  # as earlier versions called it
    known.save(tmp_path / "both.json")
    known = Calibration.load(tmp_path / "both.json")
    alone = weight_decay_calibration(runs(), RECIPE, forms=["weight_decay_simple"], bootstrap=20)
    found, expected = (plan(65536, 3e11, calibration=one) for one in (known, alone))
    assert (found.weight_decay, found.params) == (expected.weight_decay, expected.params)
    assert plan(65536, 3e11, calibration=known, law="additive_4p", weight_decay=0.1).weight_decay == 0.1
    with pytest.raises(InvalidInput, match="weight_decay_law must be auto, none or one of weight_decay_"):
        fit(runs(), weight_decay_law="dial")


def test_runs_without_weight_decay_count_as_never_forgetting() -> None:
    table = runs(decays=(0.0, 0.3, 1.0, 3.0))
    known = weight_decay_calibration(table, RECIPE, forms=["weight_decay_simple"], bootstrap=0)
    once = table[(table["weight_decay"] == 0) & (table["epochs"] == 4)].iloc[0]
    found = known.law(0.0).loss(once["params"], once["unique_tokens"], 4.0)
    assert found == pytest.approx(once["loss"], rel=0.02)
    assert plan(65536, 3e11, calibration=known).weight_decay > 0.1


@pytest.mark.slow
def test_runs_at_other_learning_rates_do_not_distort_it():
    """Rates are known by the timescale alone, which does not describe what a rate itself does."""
    usual = runs().assign(learning_rate=0.01, batch_tokens=512.0)
    slower = usual[::3].assign(learning_rate=0.001, run=usual["run"][::3] + "-slow", loss=usual["loss"] * 1.2)
    both = pd.concat([usual, slower], ignore_index=True)
    alone, mixed = (
        fit(table, laws=["additive_4p"], bootstrap=0).fitted_weight_decay_law for table in (usual, both)
    )
    assert mixed["recipe"]["learning_rate"] == 0.01
    assert mixed["laws"] == alone["laws"]
