"""Fits with a prior: any table from three runs upwards leads to a plan that does not bluff."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from benchmarks.bayesian_coverage import asked, table_of, truths
from benchmarks.few_runs import MICRO, extrapolated, tables
from benchmarks.held_out_coverage import cut, within
from benchmarks.simulated import grid_table, with_losses
from calibration import fit
from calibration.fitting.bayes.hierarchical import candidates, fingerprints, hierarchical_fit
from calibration.fitting.evaluate.summary import loss_interval
from calibration.fitting.huber import fit_forms, resampled_losses
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.solver import PenalisedLeastSquares, Reference
from planner import Calibration, InvalidInput, crossover, plan, predict
from planner.inputs import CONTINUOUS
from planner.laws import AVERAGE, DEFAULT_FORM, FORMS, Law, parameter_names
from planner.solve import allocate

TRUTH = Calibration.load("c4-gpt2").law(0.1, "additive_4p")
UD, FLOPS = 250e6, 5e18


def _table(runs: int, seed: int = 0, noise: float = 0.005, law: Law = TRUTH) -> pd.DataFrame:
    return grid_table(law, runs, noise, np.random.default_rng(seed))


def _joined(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """One table, whose runs have names of their own."""
    return pd.concat(tables, ignore_index=True).assign(run=lambda table: [f"run-{i}" for i in table.index])


@pytest.fixture(scope="module")
def forty() -> Calibration:
    return fit(_table(40), bootstrap=300, vocab_size=32_100)


def test_derivatives_in_the_coordinates_of_beliefs_are_exact() -> None:
    prior = candidates("auto")[0][0]
    rng = np.random.default_rng(0)
    low, high = np.array([16.0, 18.0, -0.3]), np.array([21.0, 23.0, 3.0])
    params, unique, epochs = np.exp(rng.uniform(low, high, (20, 3))).T
    points = params, unique, epochs
    for form in FORMS:
        theta = prior.of(form)[0].mean + 0.1 * rng.standard_normal((2, len(parameter_names(form))))
        model = prior.reference.model(form, points)
        value, slopes = model.jacobian(theta)
        law = prior.reference.law(form, theta[0])
        assert value[0] == pytest.approx(np.log(law.loss(*points)), abs=1e-12)
        step = 1e-5 * np.eye(theta.shape[1])
        ahead, _ = model.jacobian(theta[0] + step)
        behind, _ = model.jacobian(theta[0] - step)
        assert pytest.approx((ahead - behind) / 2e-5, abs=1e-7) == slopes[:, 0]


def test_coordinates_lead_back_to_the_law() -> None:
    reference = Reference(2e8, 1e9)
    assert dict(reference.law(TRUTH.form, reference.theta(TRUTH)).parameters) == pytest.approx(
        dict(TRUTH.parameters)
    )


@pytest.mark.parametrize("form", ["additive_4p", "decay_hill_4p", "effective_parameters"])
def test_the_most_probable_law_is_what_scipy_finds_too(form: str) -> None:
    found = hierarchical_fit(_table(40), [form]).posteriors[form][0.1]
    model = found.reference.model(form, found.seen.points)
    level = found.likeliest
    means, targets = found.prior.mean[None], found.seen.ln_loss[None]
    scales = found.seen.scales[level][None]
    one = PenalisedLeastSquares(model, found.seen.white, scales, found.prior.precision, means, targets)

    def density(theta: np.ndarray) -> tuple[float, np.ndarray]:
        state = one.curvature(theta[None])
        return float(state.value[0]), state.gradient[:, 0]

    other = minimize(density, found.theta[level] + 0.01, jac=True, method="BFGS", options={"gtol": 1e-7})
    assert found.objective[level] <= other.fun + 1e-6


def test_five_single_epoch_runs_do_not_claim_to_know(tmp_path: Path) -> None:
    """Five runs leave the base law no residuals: its refits were all alike, and the loss off by 0.4."""
    table = _table(60).query("epochs == 1").head(5)
    calibration = fit(table, bootstrap=300)
    found = plan(UD, FLOPS, calibration=calibration)
    assert found.intervals is not None
    size, loss = found.intervals["params"], found.intervals["loss"]
    assert size.high > 2 * size.low
    assert loss.low < float(TRUTH.loss(found.params, UD, found.epochs)) < loss.high
    assert any("no run repeats its data" in warning for warning in found.warnings)
    calibration.save(tmp_path / "five.json")
    assert plan(UD, FLOPS, calibration=tmp_path / "five.json") == found


def test_five_runs_are_fitted_without_a_warning_from_arithmetic() -> None:
    few = fit(pd.read_csv(MICRO).head(5), bootstrap=1000)  # warnings are errors in tests
    assert plan(few.settings[0].fitted_on.unique_tokens[1], 1e13, calibration=few).epochs >= 1


def test_no_interval_of_a_loss_reaches_above_guessing() -> None:
    calibration = fit(_table(40).head(3), bootstrap=300)
    found = plan(UD, 1e15, calibration=calibration)
    assert found.intervals is not None
    assert found.loss < found.intervals["loss"].high <= calibration.uniform_loss


def test_draws_that_run_off_keep_within_what_the_registry_allows() -> None:
    belief = hierarchical_fit(_table(40), ["additive_4p"]).posteriors["additive_4p"][0.1]
    near, far = belief.mean, belief.mean + 9.0
    found = belief.bounded(np.array([near, far]))
    assert (found[0] == near).all()
    for value, parameter in zip(np.exp(found[1]), FORMS["additive_4p"].parameters, strict=True):
        assert value == pytest.approx(5.0) if parameter.kind == "exponent" else value > 5.0


def _spoiled(table: pd.DataFrame, factor: float) -> tuple[str, pd.DataFrame]:
    """A run, and the table with its loss times this factor."""
    row = table.index[table["epochs"] > 1][3]
    spoiled = table.copy()
    spoiled.loc[row, "loss"] *= factor
    return str(table.loc[row, "run"]), spoiled


def test_a_run_that_is_far_off_is_named_and_hardly_counts() -> None:
    table = _table(40)
    run, spoiled = _spoiled(table, 1.5)
    calibration = fit(spoiled, bootstrap=300)
    (outlier,) = calibration.settings[0].method["outliers"]
    assert outlier["run"] == run
    assert outlier["counts"] < 0.01
    clean, found = (plan(UD, FLOPS, calibration=one) for one in (fit(table, bootstrap=0), calibration))
    (told,) = (warning for warning in found.warnings if run in warning)
    assert f"the loss of run {run} is " in told
    assert " above what the other runs say" in told
    assert "it hardly counts." in told
    assert found.intervals is not None
    true = float(allocate(TRUTH, UD, FLOPS, CONTINUOUS).params)
    assert found.intervals["params"].low <= min(found.params, true)
    assert max(found.params, true) <= found.intervals["params"].high
    assert 0.7 < found.params / clean.params < 1.4


def test_the_further_off_a_run_is_the_less_it_counts() -> None:
    counts = []
    for factor in (1.06, 1.15, 1.5):
        (outlier,) = fit(_spoiled(_table(40), factor)[1], bootstrap=0).settings[0].method["outliers"]
        counts.append(outlier["counts"])
    assert 1.0 > counts[0] > counts[1] > counts[2] > 0.0


def test_without_a_prior_an_interval_holds_its_own_estimate_with_a_run_far_off() -> None:
    calibration = fit(_spoiled(_table(40), 1.5)[1], prior="none", laws=["additive_2p"], bootstrap=200)
    found = plan(UD, FLOPS, law="additive_2p", calibration=calibration)
    assert found.intervals is not None
    assert found.intervals["params"].low <= found.params <= found.intervals["params"].high


def test_repeated_runs_may_be_noisier_than_single_epoch_ones() -> None:
    """Three times the noise where data repeat is seen; equal noise is not taken for two levels."""
    exact = _table(60, noise=0.0)
    scatter = np.random.default_rng(3).standard_normal(len(exact))
    for ratio, seen in ((1.0, 1.0), (5.0, 3.0)):
        noise = 0.004 * np.where(exact["epochs"] > 1, ratio, 1.0)
        setting = fit(exact.assign(loss=exact["loss"] * np.exp(noise * scatter)), bootstrap=0).settings[0]
        assert setting.method["noise_repeated"] / setting.method["noise"] == pytest.approx(seen, rel=0.01)


def test_poor_rows_at_another_weight_decay_do_not_drag_a_good_one_down(forty: Calibration) -> None:
    good = _table(40)
    poor = _table(12, seed=5).assign(weight_decay=1.0)
    both = fit(_joined([good, poor]), bootstrap=100, vocab_size=32_100)
    alone = plan(UD, FLOPS, calibration=forty, weight_decay=0.1)
    found = plan(UD, FLOPS, calibration=both, weight_decay=0.1)
    assert 0.75 < found.params / alone.params < 1.33
    assert found.loss == pytest.approx(alone.loss, rel=0.01)


def test_twelve_rows_do_not_fall_back_to_free_repetition() -> None:
    table = _table(12, seed=3)
    found = plan(UD, FLOPS, calibration=fit(table, bootstrap=300))
    true = float(TRUTH.loss(found.params, UD, found.epochs))
    assert found.intervals is not None
    assert found.intervals["loss"].low < true < found.intervals["loss"].high
    assert "chinchilla" not in (found.law_weights or {})


def test_identical_weight_decays_have_no_winner_and_no_crossover() -> None:
    rng = np.random.default_rng(0)
    tables = [grid_table(TRUTH, 10, 0.01, rng, weight_decay=decay) for decay in np.geomspace(0.01, 10, 12)]
    calibration = fit(_joined(tables), laws=["additive_2p", "additive_4p"], bootstrap=100)
    found = plan(UD, FLOPS, calibration=calibration)
    assert found.weight_decay_probabilities is not None
    assert max(found.weight_decay_probabilities.values()) < 0.8
    assert "weight_decay_open" in [warning.code for warning in found.warnings]
    assert crossover(UD, calibration=calibration).crossover_flops is None


def test_the_average_minimises_the_averaged_loss(forty: Calibration) -> None:
    found = plan(UD, FLOPS, calibration=forty, epochs="continuous", spend="all")
    assert found.law == AVERAGE
    assert found.law_weights is not None
    assert sum(found.law_weights.values()) == pytest.approx(1, abs=1e-3)
    law = forty.settings[0].changed(law_weights=found.law_weights).law(AVERAGE)
    epochs = found.epochs * np.exp(np.linspace(-1, 1, 401))
    along = law.loss(found.params * found.epochs / epochs, UD, epochs)
    assert found.loss <= along.min() + 1e-9
    parts = [w * forty.settings[0].law(f).loss(1e8, UD, 4.0) for f, w in found.law_weights.items()]
    assert float(law.loss(1e8, UD, 4.0)) == pytest.approx(sum(parts) / sum(found.law_weights.values()))
    assert found.loss == pytest.approx(sum(found.terms.model_dump().values()))


def test_a_named_law_switches_the_average_off(forty: Calibration) -> None:
    found = plan(UD, FLOPS, calibration=forty, law="additive_4p")
    assert (found.law, found.law_weights) == ("additive_4p", None)
    assert predict("100M", UD, 4, calibration=forty).law == AVERAGE


def test_published_calibrations_use_their_own_law() -> None:
    assert plan(UD, FLOPS).law == "additive_4p"
    with pytest.raises(InvalidInput, match="must be one of"):
        plan(UD, FLOPS, law=AVERAGE)


def test_no_calibration_of_the_same_runs_is_a_prior(shared_data: Path) -> None:
    c4 = pd.read_csv(shared_data / "datablations_c4_runs.csv").assign(weight_decay=0.1)
    some = c4.sample(8, random_state=1)
    calibration = fit(some, bootstrap=0)
    assert calibration.prior["left_out"] == ["c4-gpt2", "c4-muennighoff"]  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="fitted on some of these runs"):
        fit(some, prior="c4-gpt2", bootstrap=0)
    again = fit(some, prior="fineweb-llama2", bootstrap=0)
    assert again.prior["name"].startswith("fineweb-llama2")  # type: ignore[attr-defined]
    assert set(again.run_fingerprints) == set(fingerprints(some))


def test_bad_priors_are_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidInput, match="neither a file nor a shipped name"):
        fit(_table(10), prior="nowhere", bootstrap=0)
    with pytest.raises(InvalidInput, match="belong to 'none'"):
        fit(_table(10), prior="auto", joint=True, bootstrap=0)
    with pytest.raises(InvalidInput, match="3 would do"):
        fit(_table(10).head(2), bootstrap=0)


def test_crossovers_are_found_by_the_average() -> None:
    """Two weight decays that do cross: C× is named, with an interval that holds the truth."""
    known = Calibration.load("fineweb-llama2")
    rng = np.random.default_rng(1)
    tables = [
        grid_table(known.law(decay, "additive_4p"), 60, 0.003, rng, weight_decay=decay)
        for decay in known.weight_decays
    ]
    calibration = fit(_joined(tables), bootstrap=200)
    true = crossover(UD, law="additive_4p", calibration=known).crossover_flops
    found = crossover(UD, calibration=calibration)
    assert found.law == AVERAGE
    assert found.interval is not None
    assert true is not None
    assert found.interval.low < true < found.interval.high


def test_losses_of_the_same_runs_stay_what_they_are(forty: Calibration) -> None:
    """A law that was generated is found again, to within the noise, inside of what was run."""
    table = with_losses(
        TRUTH, _table(40)[["params", "unique_tokens", "epochs"]], 0.0, np.random.default_rng(0)
    )
    found = predict(table, calibration=forty)
    assert np.abs(np.log(found.loss / table["loss"].to_numpy())).mean() < 0.01


def test_what_single_epochs_do_not_show_is_taken_from_the_nearest_weight_decay() -> None:
    """Runs without repetition fit both settings of a calibration as well; only one has their weight decay."""
    for decay in (0.1, 1.0):
        found, _ = candidates("fineweb-llama2", weight_decays=(decay,))
        assert [one.setting.weight_decay for one in found] == [decay]
    between, _ = candidates("fineweb-llama2", weight_decays=(0.1, 1.0))
    assert [one.setting.weight_decay for one in between] == [0.1, 1.0]
    none, _ = candidates("fineweb-llama2", weight_decays=(0.0,))
    assert [one.setting.weight_decay for one in none] == [0.1]


def test_the_first_line_says_when_repetition_is_a_guess() -> None:
    rows = [(5e7, 2e8, 4.05), (1e8, 2e8, 3.95), (2e8, 4e8, 3.62), (1e8, 8e8, 3.58), (4e8, 8e8, 3.31)]
    table = pd.DataFrame(rows, columns=["params", "unique_tokens", "loss"]).assign(epochs=1, weight_decay=0.1)
    known = fit(table, bootstrap=20)
    assert "first guess" in plan(ud="180M", flops=1e19, calibration=known).verdict
    once = plan(ud="180M", flops=1e16, calibration=known)  # nothing repeats
    assert "what repetition costs" not in once.verdict
    assert "first guess" not in plan(ud="180M", flops=1e19).verdict


@pytest.mark.parametrize(
    ("column", "elsewhere"), [("params", "what model size does"), ("unique_tokens", "what data is worth")]
)
def test_the_first_line_says_when_all_runs_are_in_one_place(column: str, elsewhere: str) -> None:
    places = {"params": [5e7, 1e8, 2e8, 4e8], "unique_tokens": [1e8, 2e8, 4e8, 8e8]}
    places[column] = [1.5e8]
    cells = [(n, u, e) for n in places["params"] for u in places["unique_tokens"] for e in (1, 4)]
    table = pd.DataFrame(cells, columns=["params", "unique_tokens", "epochs"])
    law = Calibration.load("fineweb-llama2").law(0.1, "additive_4p")
    known = fit(with_losses(law, table, 0.0, np.random.default_rng(0)), bootstrap=20)
    bare = {"ud": "500M", "flops": 1e20, "calibration": known, "extrapolate": True}
    assert elsewhere in plan(**bare).verdict
    assert elsewhere in plan(serve_tokens="1B", **bare).verdict
    near = plan(ud="500M", flops=1e20, calibration=known)  # stays where something is known
    assert "first guess" in near.verdict or elsewhere in near.verdict
    same = plan(ud="150M", params="150M", flops=6 * 1.5e8 * 6e8, calibration=known)
    assert elsewhere not in same.verdict


def test_an_epoch_that_was_rounded_is_no_repetition() -> None:
    """Slopes by repeats are doubted in the middle of the runs that repeat, and 1.0003 epochs do not."""
    widths = []
    for once in (1.0, 1.0003, 1.02):
        cells = [(n, u, e) for n in (5e7, 2e8, 8e8) for u in (1e8, 4e8, 1.6e9) for e in (once, 4.0, 8.0)]
        table = pd.DataFrame(cells, columns=["params", "unique_tokens", "epochs"])
        law = Calibration.load("fineweb-llama2").law(0.1, "additive_4p")
        known = fit(with_losses(law, table, 0.0, np.random.default_rng(0)), bootstrap=100)
        found = plan(UD, FLOPS, calibration=known).intervals
        assert found is not None
        widths.append(found["loss"].high - found["loss"].low)
    assert max(widths) < 1.5 * min(widths)


def test_joint_fits_refit_chinchilla_too() -> None:
    """AICc compares like with like only if all forms were fitted to all runs."""
    apart, joint = (
        fit(_table(40), prior="none", joint=joint, laws=["additive_1p"], bootstrap=0)
        .settings[0]
        .laws["chinchilla"]
        for joint in (False, True)
    )
    assert joint.metrics["huber"] < apart.metrics["huber"]  # type: ignore[operator]


def test_refits_of_a_fit_that_spends_its_residuals_differ() -> None:
    """Five single-epoch runs and five parameters: the errors that are redrawn are those of ordinary noise."""
    table = grid_table(TRUTH, 12, 0.005, np.random.default_rng(4))
    fits = fit_forms(Runs.of(table[table["epochs"] == 1].head(5)), ["chinchilla"])
    drawn = resampled_losses(fits, "chinchilla", 200, "runs", np.random.default_rng(0))
    assert 0.005 < drawn.std(axis=0).min() < drawn.std(axis=0).max() < 0.01


def test_a_study_of_tiny_models_leads_to_a_plan() -> None:
    """82 runs of 20k to 160k parameters, whose floor no fit without a prior finds."""
    law = Calibration.load("micro").law(0.1, "additive_4p")
    sizes, budgets = np.geomspace(20e3, 160e3, 5), np.geomspace(32e3, 524e3, 5)
    rows = [(n, u, e) for n in sizes for u in budgets for e in (1.0, 2.0, 4.0, 8.0)][:82]
    table = pd.DataFrame(rows, columns=["params", "unique_tokens", "epochs"])
    table = with_losses(law, table, 0.01, np.random.default_rng(0))
    found = plan(400e3, 5e11, calibration=fit(table, bootstrap=100, vocab_size=1024))
    assert found.intervals is not None
    true = float(law.loss(found.params, 400e3, found.epochs))
    assert found.intervals["loss"].low < true < found.intervals["loss"].high
    assert found.loss < np.log(1024)


def test_refits_on_bounds_are_repeated_by_plans() -> None:
    """Runs without any saturation in size: the refits of R*_N sit on the bound of their search."""
    law = Law("exponential_decay", {**Calibration.load("c4-gpt2").law(0.1, "exponential_decay").parameters})
    table = _table(60, law=law)
    calibration = fit(table, prior="none", laws=["exponential_decay", "effective_parameters"], bootstrap=60)
    stuck = [w for w in calibration.settings[0].warnings if "sit on the bound" in w]
    assert "R_N_star" in stuck[0]
    assert set(stuck) <= set(map(str, plan(UD, FLOPS, calibration=calibration).warnings))


@pytest.mark.slow
def test_intervals_of_the_default_flow_keep_their_promise() -> None:
    """A part of benchmarks/bayesian_coverage.py: truths drawn from a spread, the form left to the tool."""
    covered: dict[str, list[bool]] = {name: [] for name in ("N*", "epochs*", "loss", "C×")}
    for seed in range(6):
        rng = np.random.default_rng([seed, 40])
        truth = truths("additive_4p", rng)
        table = table_of(truth, 40, rng)
        for name, (span, true) in asked(truth, table, 100).items():
            if span is not None:
                covered[name].append(span.low <= true <= span.high)
    assert all(np.mean(covered[name]) >= 0.6 for name in ("N*", "epochs*", "loss"))


@pytest.mark.slow
def test_intervals_of_the_default_flow_cover_real_runs_beyond_those_fitted() -> None:
    """A part of benchmarks/held_out_coverage.py: micro runs, cut along size, compute and epochs."""
    micro = dict(tuple(pd.read_csv(MICRO).groupby("weight_decay")))
    found = [
        cut(f"micro {decay:g}", runs.reset_index(drop=True), direction, 40, 1)
        for decay, runs in micro.items()
        for direction in ("size", "compute", "epochs")
    ]
    assert np.mean([one[0] for one in found if one is not None]) >= 0.9


@pytest.mark.slow
def test_intervals_of_the_default_flow_cover_real_runs_among_those_fitted() -> None:
    micro = dict(tuple(pd.read_csv(MICRO).groupby("weight_decay")))
    found = [within(f"micro {decay:g}", runs.reset_index(drop=True), 40, 1) for decay, runs in micro.items()]
    assert np.mean([share for share, _ in found]) >= 0.9
    assert max(width for _, width in found) < 0.12  # as it was when all slopes were doubted alike


def test_losses_are_surer_than_what_is_best_and_survive_the_file(tmp_path: Path) -> None:
    """Over all runs a law is surer of its slopes by size and data than at one place; by repeats it is not."""
    calibration = fit(_table(40), bootstrap=200)
    calibration.save(tmp_path / "own.json")
    for known in (calibration, Calibration.load(tmp_path / "own.json")):
        setting = known.settings[0]
        here, over_all = (setting.law_draws("additive_4p", of_losses=losses) for losses in (False, True))
        assert here is not None
        assert over_all is not None
        for name in ("alpha", "beta"):
            spreads = [np.std(np.log(law.parameters[name])) for law in (here, over_all)]
            assert 0.3 < spreads[1] / spreads[0] < 0.95
        for name in ("E", "P", "delta", "kappa", "gamma"):
            assert np.array_equal(here.parameters[name], over_all.parameters[name])
        assert setting.draws is not None
        assert set(setting.draws.loss_draws["additive_4p"]) == {"A", "alpha", "B", "beta"}


def test_draws_of_losses_reach_every_place_that_shows_one() -> None:
    """Plan, prediction and what `calibration` offers: all the same interval. (Of one form: weights of
    an average depend on where a plan leads.)
    """
    form = DEFAULT_FORM
    known = fit(_joined([_table(30), _table(30, seed=1).assign(weight_decay=1.0)]), bootstrap=100)
    best = plan(UD, FLOPS, calibration=known, weight_decay=0.1, spend="all", law=form)
    said = predict(best.params, UD, epochs=best.epochs, weight_decay=0.1, calibration=known, law=form)
    assert best.intervals is not None
    assert said.intervals is not None
    setting = known.setting(0.1)
    own = loss_interval(setting, form, best.params, UD, best.epochs)
    assert own is not None
    for found in (said.intervals["loss"], own):
        assert (found.low, found.high) == pytest.approx(
            (best.intervals["loss"].low, best.intervals["loss"].high)
        )
    lost = setting.law_draws(form, of_losses=True)
    assert lost is not None
    decided = setting.law_draws(form)
    assert decided is not None
    widths = [
        np.ptp(np.quantile(law.loss(best.params, UD, best.epochs), (0.025, 0.975))) for law in (lost, decided)
    ]
    assert widths[0] < widths[1]
    averaged = setting.law_draws(AVERAGE, of_losses=True)
    assert setting.changed(law_weights={form: 1.0}).law_draws(AVERAGE, of_losses=True) is not averaged


def test_between_two_weight_decays_draws_are_kept_whole() -> None:
    known = fit(_joined([_table(30), _table(30, seed=1).assign(weight_decay=1.0)]), bootstrap=100)
    at, near = (
        predict(200e6, UD, epochs=4, weight_decay=decay, calibration=known) for decay in (0.1, 0.1001)
    )
    assert at.intervals is not None
    assert near.intervals is not None
    for end in ("low", "high"):
        there, here = (getattr(one.intervals["loss"], end) for one in (at, near))
        assert here == pytest.approx(there, abs=0.02)


@pytest.mark.slow
def test_the_average_extrapolates_better_than_any_one_form_that_is_chosen(shared_data: Path) -> None:
    known = tables(shared_data)
    names = ("C4 158", "C4 182", "micro 0.1", "micro 1")
    errors = [
        extrapolated(name, known[name], by, share)
        for name in names
        for by, share in (("compute", 0.3), ("size", 0.4))
    ]
    there, average, recommended, always = np.mean(errors, axis=0)
    assert there < average < recommended
    assert there < always


def test_a_loss_can_be_asked_for_beyond_the_runs(forty: Calibration) -> None:
    """Forms are weighed anew where a plan leaves the runs: the least compute is that of the new weights."""
    found = plan(UD, calibration=forty, target_loss=3.5, extrapolate=True)
    assert found.loss <= 3.5 + 1e-6
    assert found.reasons[0].code == "least_compute"
