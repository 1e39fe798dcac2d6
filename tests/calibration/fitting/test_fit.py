"""Fits: the public C4 runs to the digits of the reference values,
known laws from generated tables, and refusals that say why.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import huber

from benchmarks.simulated import grid_table
from calibration import fit
from calibration.fitting.evaluate.summary import aicc, r_squared
from calibration.fitting.huber import (
    Fits,
    base_log_prediction,
    base_parameters,
    base_theta,
    fit_forms,
    refit,
)
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.solver import best_of
from calibration.fitting.two_phase import held_out_residuals, metrics
from planner.calibration import Calibration
from planner.inputs import InvalidInput
from planner.laws import FORMS, STANDARD, Law, parameter_names
from studies.reanalysis.make import tied_problem
from tests.places import SHARED

PAPER = Calibration.load("fineweb-llama2")
PUBLISHED = {
    "E": np.exp(0.6254804),
    "A": np.exp(6.255414),
    "alpha": 0.3526596,
    "B": np.exp(7.3049974),
    "beta": 0.3526596,
}


# -- the public C4 runs --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def c4() -> pd.DataFrame:
    path = SHARED / "data" / "datablations_c4_runs.csv"
    if not path.exists():
        pytest.skip("the public C4 run table is not in ../shared/data (set DATABOUND_SHARED to where it is)")
    return pd.read_csv(path).assign(weight_decay=0.1)


@pytest.fixture(scope="module")
def fits182(c4: pd.DataFrame) -> Fits:
    return fit_forms(Runs.of(c4[c4["in_filtered182"] == 1]), ["chinchilla", "effective_parameters"])


@pytest.fixture(scope="module")
def fits158(c4: pd.DataFrame) -> Fits:
    return fit_forms(Runs.of(c4[c4["in_paper158"] == 1]))


def _near(found: dict[str, Any], expected: dict[str, float], rel: float = 1e-3) -> None:
    assert {name: float(found[name]) for name in expected} == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize(
    ("name", "base", "objective"),
    [
        (
            "fits182",
            {"E": 1.8988546, "A": 233.0693, "alpha": 0.2933535, "B": 13114.143, "beta": 0.4377221},
            0.00058454892,
        ),
        (
            "fits158",
            {"E": 1.9029352, "A": 430.9100, "alpha": 0.3359416, "B": 5360.613, "beta": 0.3868226},
            0.00093813640,
        ),
    ],
)
def test_base_law_of_the_c4_runs(
    name: str, base: dict[str, float], objective: float, request: pytest.FixtureRequest
) -> None:
    fitted = request.getfixturevalue(name).forms["chinchilla"]
    _near(fitted.parameters, base)
    assert fitted.optimum.value == pytest.approx(objective, rel=1e-6)
    assert fitted.problem is None
    assert fitted.optimum.share > 0.9


def test_base_law_of_the_c4_runs_with_tied_exponents(c4: pd.DataFrame) -> None:
    runs = Runs.of(c4[c4["in_filtered182"] == 1])
    single = runs.single
    assert single.sum() == 29
    free = tied_problem(runs, single)
    best = best_of(free.problems(runs.ln_loss[single], np.ones(29), 1e-3), free.starts, free.bounds)
    _near(
        base_parameters(best.theta[[0, 1, 2, 3, 2]], runs),
        {"E": 1.932648, "A": 871.218, "B": 3556.535, "alpha": 0.3721174, "beta": 0.3721174},
    )
    assert best.value == pytest.approx(0.00060723148, rel=1e-6)


@pytest.mark.parametrize(
    ("form", "parameters", "r2", "r2_multi", "r2_single", "objective"),
    [
        ("chinchilla", {}, 0.861329, 0.788852, 0.976357, 0.0091324),
        ("exponential_decay", {"R_D_star": 23.8317}, 0.895303, 0.844175, 0.976357, 0.0082377),
        (
            "effective_parameters",
            {"R_D_star": 38.5203, "R_N_star": 290.735},
            0.911938,
            0.867017,
            0.983205,
            0.0079862,
        ),
        ("additive_1p", {"P": 0.0028571}, 0.955721, 0.942559, 0.976357, 0.0059099),
        ("additive_2p", {"P": 0.0066692, "kappa": 0.58250}, 0.963287, 0.954879, 0.976357, 0.0055279),
        (
            "additive_4p",
            {"delta": 1.03957, "kappa": 0.80293, "gamma": 0.52592},
            0.967478,
            0.961704,
            0.976357,
            0.0042568,
        ),
    ],
)
def test_repetition_forms_of_the_158_c4_runs(
    fits158: Fits,
    form: str,
    parameters: dict[str, float],
    r2: float,
    r2_multi: float,
    r2_single: float,
    objective: float,
) -> None:
    assert len(fits158.runs) == 158
    assert fits158.runs.single.sum() == 33
    fitted, found = fits158.forms[form], metrics(fits158, form)
    _near(fitted.parameters, parameters)
    if form == "additive_4p":
        assert fitted.parameters["P"] == pytest.approx(2.4747e-6, rel=5e-3)
    assert (found["r2"], found["r2_multi"], found["r2_single"]) == pytest.approx(
        (r2, r2_multi, r2_single), abs=5e-5
    )
    assert found["huber"] == pytest.approx(objective, abs=5e-8)  # the digits printed
    assert fitted.problem is None


def test_effective_parameters_of_the_182_c4_runs(fits182: Fits) -> None:
    assert len(fits182.runs) == 182
    base, refit = metrics(fits182, "chinchilla"), metrics(fits182, "effective_parameters")
    assert (base["r2"], base["r2_multi"], base["r2_single"]) == pytest.approx(
        (0.861253, 0.794654, 0.988839), abs=5e-5
    )
    assert base["huber"] == pytest.approx(0.0115348, abs=5e-8)
    assert (refit["r2"], refit["r2_multi"], refit["r2_single"]) == pytest.approx(
        (0.931513, 0.901606, 0.988785), abs=5e-5
    )
    assert refit["huber"] == pytest.approx(0.0071992, abs=5e-8)
    fitted = fits182.forms["effective_parameters"]
    assert fitted.parameters["R_D_star"] == pytest.approx(40.3896, rel=1e-3)
    assert 2000 < fitted.parameters["R_N_star"] < 6000
    assert fitted.flat == ("R_N_star",)  # and the fit says that this parameter is hardly determined


def test_published_base_law_on_the_182_c4_runs(c4: pd.DataFrame) -> None:
    runs = Runs.of(c4[c4["in_filtered182"] == 1])
    base = base_theta(PUBLISHED, runs)
    fitted = fit_forms(runs, ["effective_parameters"], base=base)
    chinchilla, best = metrics(fitted, "chinchilla"), metrics(fitted, "effective_parameters")
    assert [chinchilla[name] for name in ("r2", "r2_multi", "r2_single")] == pytest.approx(
        [0.4452, 0.3059, 0.7110], abs=5e-5
    )
    assert chinchilla["huber"] == pytest.approx(0.033104, abs=5e-7)
    _near(fitted.forms["effective_parameters"].parameters, {"R_D_star": 95.365, "R_N_star": 1.7059})
    assert (best["r2"], best["r2_multi"], best["r2_single"]) == pytest.approx(
        (0.7910, 0.7919, 0.7886), abs=5e-5
    )
    assert best["huber"] == pytest.approx(0.015805, abs=5e-7)
    published = Law("effective_parameters", {**PUBLISHED, "R_D_star": 15.387756, "R_N_star": 5.309743})
    predicted = published.loss(np.exp(runs.ln_params), np.exp(runs.ln_unique), 1 + runs.repeats)
    figures = [
        r_squared(runs.loss[rows], predicted[rows]) for rows in (slice(None), ~runs.single, runs.single)
    ]
    assert figures == pytest.approx([0.7722, 0.7765, 0.7631], abs=5e-5)
    assert huber(1e-3, np.log(predicted) - runs.ln_loss).sum() == pytest.approx(0.015826, abs=5e-7)


def test_c4_calibration_recommends_by_held_out_error(c4: pd.DataFrame) -> None:
    calibration = fit(c4[c4["in_paper158"] == 1], prior="none", bootstrap=0)
    assert calibration.default_law == "hill_4p"
    errors = calibration.recommendation["held_out_error"]  # type: ignore[attr-defined]
    assert "held_out_error" in calibration.settings[0].laws["hill_4p"].metrics
    assert min(errors, key=errors.get) == "hill_4p"
    published = {form: error for form, error in errors.items() if form in PAPER.setting(0.1).laws}
    assert min(published, key=lambda form: published[form]) == "additive_4p"
    # Its repeats do not fade among 64 epochs: the forms in which they do end on a bound.
    assert set(errors) == set(STANDARD) - {"decay_4p", "decay_hill_4p"}


def test_micro_pilot_has_two_settings() -> None:
    path = SHARED / "data" / "micro_pilot_runs.csv"
    if not path.exists():
        pytest.skip("the micro pilot table is not in ../shared/data (set DATABOUND_SHARED to where it is)")
    calibration = fit(path, where="held_out == 0", prior="none", bootstrap=0)
    assert calibration.weight_decays == (0.1, 1.0)
    for decay, expected in ((0.1, (0.29, 0.86, 0.92, 0.98)), (1.0, (0.980, 0.974, 0.986, 0.992))):
        laws = calibration.setting(decay).laws
        found = [
            laws[form].metrics["r2_multi"]
            for form in ("exponential_decay", "additive_1p", "additive_2p", "additive_4p")
        ]
        assert found == pytest.approx(expected, abs=0.012)


# -- known laws ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", PAPER.setting(0.1).laws)
@pytest.mark.parametrize("joint", [False, True])
def test_a_law_is_recovered_from_its_own_losses(form: str, joint: bool) -> None:
    law = Law(
        form,
        {**PAPER.law(0.1, form).parameters, **({"R_N_star": 8.0} if form == "effective_parameters" else {})},
    )
    table = grid_table(law, 60, 0.0, np.random.default_rng(0))
    fitted = fit_forms(Runs.of(table), [form], joint=joint).forms[form]
    if form == "effective_parameters" and not joint:
        # Its N' saturates in single-epoch runs too, so a base law fitted to them first cannot be exact.
        assert fitted.optimum.converged
        return
    predicted = Law(form, fitted.parameters).loss(table["params"], table["unique_tokens"], table["epochs"])
    np.testing.assert_allclose(predicted, table["loss"], rtol=1e-5)
    if form != "effective_parameters":
        _near(
            fitted.parameters, {name: float(law.parameters[name]) for name in parameter_names(form)}, rel=0.02
        )


def test_fractional_epochs_below_one_are_single_epoch_runs() -> None:
    law = PAPER.law(0.1, "additive_4p")
    table = grid_table(law, 80, 0.0, np.random.default_rng(1))
    half = table["epochs"] == 1
    table.loc[half, "epochs"] = np.where(np.arange(half.sum()) % 2, 0.5, 1.0)
    table["tokens"] = table["unique_tokens"] * table["epochs"]
    table["loss"] = law.loss(
        table["params"].to_numpy(), table["unique_tokens"].to_numpy(), table["epochs"].to_numpy()
    )
    calibration = fit(table, laws=["additive_4p"], prior="none", bootstrap=0)
    assert calibration.settings[0].fitted_on.single_epoch_runs == half.sum()
    expected = {name: float(law.parameters[name]) for name in ("E", "alpha", "beta", "kappa")}
    _near(calibration.law(0.1, "additive_4p").parameters, expected, rel=0.01)


def test_delta_from_the_noise_follows_the_noise() -> None:
    law = PAPER.law(0.1, "additive_4p")
    tables = [grid_table(law, 120, noise, np.random.default_rng(2)) for noise in (0.002, 0.02)]
    found = [
        fit(table, laws=["additive_1p"], delta="noise", prior="none", bootstrap=0).settings[0].method
        for table in tables
    ]
    assert [method["delta_from"] for method in found] == ["noise", "noise"]
    assert found[0]["delta"] == pytest.approx(1.345 * 0.002, rel=0.5)
    assert found[1]["delta"] == pytest.approx(1.345 * 0.02, rel=0.5)


@pytest.mark.parametrize("form", ["exponential_decay", "additive_4p"])
def test_the_form_that_made_the_runs_is_recommended(form: str) -> None:
    table = grid_table(PAPER.law(0.1, form), 120, 0.002, np.random.default_rng(4))
    calibration = fit(table, prior="none", bootstrap=0)
    assert calibration.default_law == form
    assert calibration.default_law in calibration.recommendation["reason"]  # type: ignore[attr-defined]


def test_a_simpler_form_wins_a_tie_on_unseen_cells() -> None:
    """Runs made by additive_1p: the longer forms contain it, fit
    more closely in sample, and are not recommended for that.
    """
    tables = [
        grid_table(PAPER.law(0.1, "additive_1p"), 120, 0.003, np.random.default_rng(seed))
        for seed in range(3)
    ]
    chosen = [fit(table, prior="none", bootstrap=0) for table in tables]
    assert sum(calibration.default_law == "additive_1p" for calibration in chosen) >= 2
    for calibration in chosen:
        laws = calibration.settings[0].laws
        assert laws["additive_4p"].metrics["huber"] <= laws["additive_1p"].metrics["huber"]  # type: ignore[operator]


def test_held_out_residuals_come_from_fits_without_the_cell() -> None:
    table = grid_table(PAPER.law(0.1, "additive_1p"), 40, 0.01, np.random.default_rng(7))
    runs = Runs.of(table)
    fitted = fit_forms(runs, ["additive_1p"])
    held_out = held_out_residuals(fitted)["additive_1p"]
    cell = runs.cells[30]
    rest = table[runs.cells != cell]
    without = fit_forms(Runs.of(rest), ["additive_1p"]).forms["additive_1p"]
    mine = table[runs.cells == cell]
    predicted = Law("additive_1p", without.parameters).loss(
        mine["params"], mine["unique_tokens"], mine["epochs"]
    )
    np.testing.assert_allclose(held_out[runs.cells == cell], np.log(predicted / mine["loss"]), atol=1e-6)


def test_a_left_out_cell_counts_for_all_forms_or_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refits that do not converge are made again from all
    starts, with the same result; only then is a cell dropped.
    """
    table = grid_table(PAPER.law(0.1, "additive_1p"), 40, 0.01, np.random.default_rng(7))
    fitted = fit_forms(Runs.of(table), ["additive_1p", "additive_2p"])
    expected = held_out_residuals(fitted)

    def impatient(*arguments: Any, **options: Any) -> Any:
        found = refit(*arguments, **options)
        found["additive_2p"].converged[:3] = False
        found["additive_2p"].theta[:, 5:] += 9
        return found

    monkeypatch.setattr("calibration.fitting.huber.refit", impatient)
    again = held_out_residuals(fitted)
    first = fitted.runs.cells < 3
    np.testing.assert_allclose(again["additive_2p"][first], expected["additive_2p"][first], atol=1e-6)
    monkeypatch.setattr("calibration.fitting.huber.is_identified", lambda *_: False)
    dropped = held_out_residuals(fitted)
    for form in fitted.forms:
        assert np.isnan(dropped[form]).tolist() == first.tolist()
    figures = metrics(fitted, "additive_1p", dropped["additive_1p"])
    assert figures["held_out_cells"] == len(np.unique(fitted.runs.cells)) - 3
    assert figures["held_out_error"] == pytest.approx(
        np.abs(expected["additive_1p"][~first]).mean(), abs=1e-6
    )


def test_one_prediction_that_is_far_off_does_not_decide() -> None:
    table = grid_table(PAPER.law(0.1, "additive_1p"), 40, 0.01, np.random.default_rng(7))
    fitted = fit_forms(Runs.of(table), ["additive_1p"])
    wild = np.zeros(40)
    wild[3] = 1e6
    assert metrics(fitted, "additive_1p", wild)["held_out_error"] == pytest.approx(0.5 / 40)


def test_an_optimum_that_one_start_found_alone_is_not_a_result() -> None:
    fitted = fit_forms(
        Runs.of(grid_table(PAPER.law(0.1, "additive_1p"), 40, 0.01, np.random.default_rng(7))),
        ["additive_1p"],
    )
    form = fitted.forms["additive_1p"]
    alone = replace(form, optimum=replace(form.optimum, share=1 / form.optimum.starts))
    assert form.problem is None
    assert alone.problem == "only one of 7 starts found the best optimum"


def test_the_same_seed_gives_the_same_file() -> None:
    table = grid_table(PAPER.law(0.1, "additive_4p"), 60, 0.005, np.random.default_rng(3))
    texts = [
        fit(table, laws=["additive_4p"], prior="none", bootstrap=20, seed=5).model_dump_json()
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
    assert texts[0] != fit(table, laws=["additive_4p"], prior="none", bootstrap=20, seed=6).model_dump_json()


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    table = pd.concat(
        [
            grid_table(PAPER.law(decay, "additive_4p"), 60, 0.005, rng, weight_decay=decay)
            for decay in (0.1, 1.0)
        ]
    )
    table["run"] = [f"r{i}" for i in range(len(table))]
    calibration = fit(table, prior="none", bootstrap=10, name="mine", corpus="generated")
    calibration.save(tmp_path / "mine.json")
    again = Calibration.load(tmp_path / "mine.json")
    assert again.model_dump() == calibration.model_dump()
    assert again.weight_decays == (0.1, 1.0)
    for setting in again.settings:
        assert setting.draws is not None
        for form, fitted in setting.laws.items():
            assert fitted.convergence["status"] == "converged"  # type: ignore[attr-defined]
            assert set(fitted.spread) == set(parameter_names(form))
            assert {"r2", "r2_multi", "r2_single", "huber", "aicc", "held_out_error"} <= set(fitted.metrics)


def test_aicc_charges_for_parameters_and_rewards_a_better_fit() -> None:
    assert aicc(0.01, 100, 9, 1e-3) > aicc(0.01, 100, 6, 1e-3)  # type: ignore[operator]
    assert aicc(0.02, 100, 6, 1e-3) > aicc(0.01, 100, 6, 1e-3)  # type: ignore[operator]
    assert aicc(0.01, 8, 9, 1e-3) is None
    rng = np.random.default_rng(0)  # with a wide delta it is the ordinary Gaussian criterion
    residual = 0.01 * rng.standard_normal(80)
    gaussian = 80 * (np.log(2 * np.pi * np.mean(residual**2)) + 1) + 2 * 6 + 2 * 6 * 7 / (80 - 7)
    assert aicc(float(huber(10.0, residual).sum()), 80, 5, 10.0) == pytest.approx(gaussian, rel=1e-6)


# -- refusals ------------------------------------------------------------------------------------------------


def test_a_form_that_the_runs_do_not_determine_is_left_out_with_the_reason() -> None:
    """Losses without any effect of repetition: the decay of exponential_decay has no finite rate."""
    table = grid_table(PAPER.law(0.1, "chinchilla"), 100, 0.003, np.random.default_rng(12))
    setting = fit(table, laws=["exponential_decay", "additive_4p"], prior="none", bootstrap=0).settings[0]
    left_out = setting.method["not_identified"]
    assert left_out
    assert all(form not in setting.laws for form in left_out)
    assert all(
        "ran to the end of the range" in reason or "did not converge" in reason
        for reason in left_out.values()
    )


def test_forms_that_the_runs_cannot_identify_are_left_out_and_the_others_fitted() -> None:
    table = grid_table(PAPER.law(0.1, "additive_4p"), 60, 0.003, np.random.default_rng(1))
    table = table[
        (table["epochs"] == 1) | (table["epochs"] == 4)
    ]  # one number of repeats: delta is out of reach
    setting = fit(table, prior="none", bootstrap=0).settings[0]
    assert "additive_4p" not in setting.laws
    assert (
        "repeats is the same in all runs beyond one epoch; add a run of"
        in setting.method["not_identified"]["additive_4p"]
    )
    assert "additive_2p" in setting.laws
    with pytest.raises(InvalidInput, match=r"additive_4p cannot be identified.*or fit other forms with laws"):
        fit(table, laws=["additive_4p"], prior="none", bootstrap=0)
    once = fit(table[table["epochs"] == 1], prior="none", bootstrap=0)
    assert list(once.settings[0].laws) == ["chinchilla"]
    assert once.default_law == "chinchilla"


def test_a_weight_decay_without_a_base_law_is_left_out_if_another_has_one() -> None:
    good = grid_table(PAPER.law(0.1, "additive_1p"), 60, 0.003, np.random.default_rng(1))
    poor = grid_table(PAPER.law(1.0, "additive_1p"), 60, 0.003, np.random.default_rng(2), weight_decay=1.0)
    poor = poor[poor["epochs"] > 1].assign(run=lambda frame: frame["run"] + "-poor")
    calibration = fit(pd.concat([good, poor]), laws=["additive_1p"], prior="none", bootstrap=0)
    assert calibration.weight_decays == (0.1,)
    assert set(calibration.left_out) == {"1"}  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="cannot be identified at weight decay 1"):
        fit(poor, laws=["additive_1p"], prior="none", bootstrap=0)


@pytest.mark.parametrize(("kind", "what"), [("constant", "model size or tokens"), ("growing", "model size")])
def test_losses_that_do_not_fall_are_named_as_the_reason(kind: str, what: str) -> None:
    table = grid_table(PAPER.law(0.1, "additive_1p"), 60, 0.001, np.random.default_rng(0))
    table["loss"] = (
        3.0 if kind == "constant" else 3.0 * (table["params"] / 1e8) ** 0.1 * (table["tokens"] / 1e9) ** -0.1
    )
    with pytest.raises(InvalidInput, match=f"do not fall with {what}\\)"):
        fit(table, laws=["additive_1p"], prior="none", bootstrap=0)


def test_a_base_law_on_a_bound_is_refused() -> None:
    rng = np.random.default_rng(0)
    table = grid_table(PAPER.law(0.1, "additive_1p"), 60, 0.001, rng)
    table["loss"] = 5 * (table["params"] / 1e8) ** -0.03 + rng.uniform(
        0, 1e-4, len(table)
    )  # no data term at all
    with pytest.raises(
        InvalidInput, match=r"base law is not identified at weight decay 0.1: .*(ran to the end|flat along B)"
    ):
        fit(table, prior="none", bootstrap=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"laws": ["kaplan"]}, "law must be one of"),
        ({"laws": []}, "at least one of"),
        ({"delta": "loud"}, "delta must be a number such as 0.001, or 'noise'"),
        ({"delta": -1}, "delta must be above zero"),
        ({"bootstrap": 1}, "bootstrap must be 0"),
        ({"bootstrap": 2.5}, "bootstrap must be 0"),
        ({"resample": "rows"}, "resample must be one of runs, cells"),
        ({"scheme": "wild"}, "scheme must be one of residuals, weights"),
        ({"seed": -3}, "seed must be"),
    ],
)
def test_bad_arguments_are_named_before_any_work(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fit("no-such-file.csv", **arguments)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_arbitrary_tables_are_fitted_or_refused(data: st.DataObject) -> None:
    """Whatever the losses, a fit is either refused in words
    or a calibration whose laws say what they predict.
    """
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    table = grid_table(PAPER.law(0.1, "additive_4p"), data.draw(st.integers(6, 40)), 0.005, rng)
    kind = data.draw(
        st.sampled_from(["noise", "random", "constant", "outliers", "scaled", "tiny", "duplicated"])
    )
    if kind == "noise":
        table["loss"] *= np.exp(0.3 * rng.standard_normal(len(table)))
    elif kind == "random":
        table["loss"] = rng.uniform(0.01, 100, len(table))
    elif kind == "constant":
        table["loss"] = 3.0
    elif kind == "outliers":
        table.loc[:2, "loss"] *= 50
    elif kind == "scaled":
        table["params"] *= 10.0 ** rng.integers(-5, 6)
    elif kind == "tiny":
        table["loss"] *= 1e-6
    else:
        table = pd.concat([table, table.assign(run=[f"again-{i}" for i in range(len(table))])])
    prior = data.draw(st.sampled_from(["none", "auto"]))
    try:
        calibration = fit(
            table,
            laws=[data.draw(st.sampled_from(tuple(FORMS))), "additive_4p"],
            prior=prior,
            bootstrap=data.draw(st.sampled_from([0, 3])),
            joint=data.draw(st.booleans()),
            delta=data.draw(st.sampled_from([1e-3, 0.1, "noise"])),
            scheme=data.draw(st.sampled_from(["residuals", "weights"])),
        )
    except InvalidInput:
        return
    for setting in calibration.settings:
        runs = Runs.of(table)
        for form, fitted in setting.laws.items():
            predicted = setting.law(form).loss(
                np.exp(runs.ln_params), np.exp(runs.ln_unique), 1 + runs.repeats
            )
            if prior != "none":
                assert np.isfinite(predicted).all()
                continue
            objective = huber(setting.method["delta"], np.log(predicted) - runs.ln_loss).sum()
            assert fitted.metrics["huber"] == pytest.approx(objective, rel=1e-3, abs=1e-9)
        if prior != "none":
            continue
        base = setting.law("chinchilla").parameters
        theta = base_theta({name: float(value) for name, value in base.items()}, runs)
        best_constant = huber(
            setting.method["delta"], np.median(runs.ln_loss[runs.single]) - runs.ln_loss[runs.single]
        ).sum()
        mine = huber(setting.method["delta"], base_log_prediction(theta, runs) - runs.ln_loss)[
            runs.single
        ].sum()
        assert mine <= best_constant * 1.001 + 1e-9  # a constant is a special case of every law
