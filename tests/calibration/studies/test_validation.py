"""Prescriptive validation against worlds in which the truth is
known: losses come from a law, so who should win is known too.
"""

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.commands.validate import show
from calibration.studies.judge import judge
from calibration.studies.observed_crossover import sign_changes
from calibration.studies.prescriptions import (
    LARGEST,
    WHOLE_EPOCHS,
    Prescription,
    affordable_seeds,
    crossover_test,
    prescribe,
    prescriptions,
    runs_of,
)
from calibration.studies.study import Study, StudyRun, parse
from calibration.studies.verdict import (
    Configuration,
    beyond_noise_text,
    configurations,
    crossover_sentence,
    pooled_deviation,
)
from planner.calibration import Calibration, FittedLaw, FittedRange, Setting
from planner.hardware import TOLERANCE
from planner.inputs import InvalidInput
from planner.laws import Law
from planner.plans import crossover

BASE = {"E": 1.5, "A": 1.0 * 2e5**0.35, "alpha": 0.35, "B": 1.5 * 2.5e5**0.4, "beta": 0.4}
REPETITION = {
    "chinchilla": {},
    "exponential_decay": {"R_D_star": 6.0},
    "effective_parameters": {"R_D_star": 6.0, "R_N_star": 4.0},
    "additive_1p": {"P": 0.01},
    "additive_2p": {"P": 0.02, "kappa": 0.8},
    "additive_4p": {"P": 0.03, "delta": 1.2, "kappa": 0.7, "gamma": 1.0},
}
LAWS = tuple(REPETITION)
RANGE = FittedRange(params=(3.6e4, 6e5), unique_tokens=(3.2e4, 1e6), epochs=(1, 16))
STRONG = {**BASE, "A": BASE["A"] * 1.1, "P": 0.01, "delta": 1.2, "kappa": 0.7, "gamma": 1.0}
WORLDS = int(os.environ.get("DATABOUND_WORLDS", 100))  # simulated studies
PAIRS = [(64_000, 1e12), (128_000, 2e12), (256_000, 8e12)]


@pytest.fixture(scope="module")
def study() -> Study:
    recipe = {"preset": "micro", "corpus": {"paths": "python-stdlib"}, "vocab_size": 1024}
    grid = {
        "params": ["60k", "200k", "600k"],
        "unique_tokens": ["64k", "128k"],
        "epochs": [1, 4, 16],
        "weight_decays": [0.1, 1.0],
    }
    return parse({"recipe": recipe, "grid": [grid]}, "world")


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    laws = {form: FittedLaw(parameters={**BASE, **own}) for form, own in REPETITION.items()}
    return Calibration(
        name="world",
        settings=(
            Setting(weight_decay=0.1, fitted_on=RANGE, laws=laws),
            Setting(weight_decay=1.0, fitted_on=RANGE, laws={"additive_4p": FittedLaw(parameters=STRONG)}),
        ),
    )


@pytest.fixture(scope="module")
def planned(study: Study, calibration: Calibration) -> list[Prescription]:
    """What every law prescribes at every pair, with three seeds; the first pair comes first."""
    return prescriptions(study, calibration, PAIRS, laws=LAWS, seeds=3)


def at_rates(study: Study, *rates: float) -> Study:
    return replace(study, grids=tuple({**grid, "learning_rates": list(rates)} for grid in study.grids))


def test_prescriptions_are_trained_at_the_learning_rate_of_the_grid(
    study: Study, calibration: Calibration
) -> None:
    swept = at_rates(study, 0.003)
    cell = swept.runs[-1]
    planned = prescribe(swept, calibration.setting(0.1), "chinchilla", 64_000, 2e12, seeds=1)
    assert [run.config.learning_rate for run in planned.runs] == [0.003]
    again = swept.run(
        params=cell.config.params,
        unique_tokens=128_000,
        epochs=16,
        weight_decay=1.0,
        seed=0,
        **swept.shared_learning_rate,
    )
    assert again == cell  # so that what the grid has trained is used again
    assert prescribe(study, calibration.setting(0.1), "chinchilla", 64_000, 2e12).runs[0].name.endswith("-s0")


def test_a_grid_of_several_learning_rates_has_no_law_to_follow(
    study: Study, calibration: Calibration
) -> None:
    with pytest.raises(
        InvalidInput, match=r"at learning rates 0.003, 0.01, and a law holds for one; .* in the recipe"
    ):
        prescriptions(at_rates(study, 0.01, 0.003), calibration, PAIRS, laws=["chinchilla"])


def outcome(runs: list[StudyRun], truth: dict[float, Law], noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """What these runs would give in a world that follows `truth`."""
    rng = np.random.default_rng(seed)
    rows = []
    for run in runs:
        unique = run.config.unique_tokens // run.config.sequence_length * run.config.sequence_length
        loss = (
            float(truth[run.config.weight_decay].loss(run.params, unique, run.tokens / unique))
            + noise * rng.standard_normal()
        )
        rows.append(
            {
                "run": run.name,
                "params": run.params,
                "unique_tokens": unique,
                "epochs": run.tokens / unique,
                "tokens": run.tokens,
                "weight_decay": run.config.weight_decay,
                "learning_rate": run.config.learning_rate,
                "seed": run.config.seed,
                "flops": run.flops,
                "loss": loss,
            }
        )
    return pd.DataFrame(rows)


def truth_of(calibration: Calibration, form: str = "additive_4p") -> dict[float, Law]:
    return {0.1: calibration.law(0.1, form), 1.0: calibration.law(1.0, "additive_4p")}


# -- what is trained -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(LAWS),
    st.floats(3e4, 1e6).map(round),
    st.floats(math.log(2e10), math.log(2e13)).map(math.exp),
)
def test_every_law_gets_the_same_compute(
    study: Study, calibration: Calibration, law: str, ud: int, flops: float
) -> None:
    found = prescribe(study, calibration.setting(0.1), law, ud, flops, seeds=2)
    if not found.runs:
        assert found.reason
        return
    first, second = found.runs
    assert abs(first.params / found.wanted_params - 1) <= TOLERANCE + 1e-9
    assert first.flops == pytest.approx(
        flops, rel=WHOLE_EPOCHS + 0.5 / (first.tokens / first.config.sequence_length)
    )
    assert first.config.unique_tokens <= ud
    assert (first.config.seed, second.config.seed) == (0, 1)
    if found.wanted_epochs < 0.98:
        assert first.config.epochs == 1
        assert first.config.unique_tokens < ud
    names = [
        run.name
        for run in prescribe(study, calibration.setting(0.1), law, ud, flops * (1 + 1e-9), seeds=2).runs
    ]
    assert names == [run.name for run in found.runs]


def test_whole_epochs_stay_whole_where_they_meet_the_budget(study: Study, calibration: Calibration) -> None:
    setting, budgets = calibration.setting(0.1), np.geomspace(2e11, 8e12, 40)
    planned = [
        p
        for flops in budgets
        if (p := prescribe(study, setting, "additive_4p", 128_000, flops)).wanted_epochs > 1
    ]
    whole = [p for p in planned if p.runs[0].config.epochs == p.wanted_epochs]
    assert 0 < len(whole) < len(planned)
    for p in planned:
        off = abs(
            p.runs[0].params * p.wanted_epochs * 128_000 * 6 / p.flops - 1
        )  # if the epochs were left whole
        assert (p in whole) == (off <= WHOLE_EPOCHS)


def test_a_configuration_of_the_grid_is_used_again(study: Study, calibration: Calibration) -> None:
    setting = calibration.setting(0.1)
    planned = [
        prescribe(study, setting, law, 64_000, flops)
        for law in LAWS
        for flops in np.geomspace(5e10, 2e12, 100)
    ]
    sizes = {run.params for run in study.runs}
    grid = {run.name for run in study.runs}
    near = [
        p for p in planned if p.runs and min(abs(size / p.wanted_params - 1) for size in sizes) <= TOLERANCE
    ]
    assert near
    assert all(p.runs[0].params in sizes for p in near)
    exact = [p for p in near if p.wanted_epochs == p.runs[0].config.epochs and p.wanted_epochs in (1, 4, 16)]
    assert exact
    assert all(p.runs[0].name in grid for p in exact)


def test_laws_that_agree_share_their_runs(study: Study, calibration: Calibration) -> None:
    planned = [prescribe(study, calibration.setting(0.1), form, 1_000_000, 1e12) for form in LAWS]
    assert all(p.wanted_epochs < 1 for p in planned)  # plentiful data: all forms are the same law
    assert len(runs_of(planned)) == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"max_params": 1000.0}, "above the limit of 1k"),
        ({"law": "exponential_decay", "missing": True}, "not calibrated at this weight decay: too few runs"),
        ({"flops": 1e7}, "cannot be built"),
        ({"ud": 100, "flops": 1e9, "max_params": 1e9}, "100 unique tokens are less than one sequence of 128"),
    ],
)
def test_what_cannot_be_trained_is_kept_with_the_reason(
    study: Study, calibration: Calibration, change: dict, reason: str
) -> None:
    setting = calibration.setting(0.1)
    if change.pop("missing", False):
        method = {"not_identified": {"exponential_decay": "too few runs"}}
        laws = {form: law for form, law in setting.laws.items() if form != "exponential_decay"}
        setting = setting.model_copy(update={"laws": laws, "method": method})
    asked = {"law": "additive_4p", "ud": 64_000, "flops": 1e12, **change}
    found = prescribe(study, setting, asked.pop("law"), asked.pop("ud"), asked.pop("flops"), **asked)
    assert reason in found.reason
    assert not found.runs
    verdict = judge([found], [], pd.DataFrame())
    assert verdict.trials[0].laws[0].reason == found.reason
    assert verdict.standings[0].pairs == 0


def test_an_absurd_size_is_refused_by_default(study: Study, calibration: Calibration) -> None:
    huge = {
        **BASE,
        "P": 5.0,
        "delta": 3.0,
        "kappa": 0.01,
        "gamma": 0.0,
    }  # repeats cost anything, size nothing
    setting = calibration.setting(0.1).model_copy(
        update={"laws": {"additive_4p": FittedLaw(parameters=huge)}}
    )
    found = prescribe(study, setting, "additive_4p", 32_000, 1e14)
    assert found.wanted_params > LARGEST * RANGE.params[1]
    assert "above the limit of 6M" in found.reason


# -- who won -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["additive_4p", "additive_1p", "effective_parameters", "chinchilla"])
def test_the_true_law_has_no_regret(
    study: Study, calibration: Calibration, planned: list[Prescription], form: str
) -> None:
    truth = truth_of(calibration, form)
    verdict = judge(planned, [], outcome([*study.runs, *runs_of(planned)], truth))
    by_law = {standing.law: standing for standing in verdict.standings}
    assert by_law[form].regret < 0.003  # what rounding to a shape and 2% of slack can cost
    assert by_law[form].regret == min(standing.regret for standing in verdict.standings)
    for trial in verdict.trials:
        for tried in trial.laws:
            assert tried.regret >= 0
            assert tried.perplexity == pytest.approx(math.exp(tried.loss))
            if tried.law == form:
                assert tried.predicted_loss == pytest.approx(tried.loss, abs=1e-9)


@pytest.mark.slow
def test_differences_beyond_noise_are_told_from_those_within(
    calibration: Calibration, planned: list[Prescription]
) -> None:
    runs = runs_of(planned)
    exact = judge(planned, [], outcome(runs, truth_of(calibration)))
    gaps = {(t.ud, tried.law): tried.behind for t in exact.trials for tried in t.laws}
    quiet = judge(planned, [], outcome(runs, truth_of(calibration), noise=1e-5))
    loud = judge(planned, [], outcome(runs, truth_of(calibration), noise=10.0))
    assert max(gaps.values()) > 0.01
    for trial in quiet.trials:
        assert trial.noise == pytest.approx(1e-5, rel=0.8)
        for tried in trial.laws:
            if gaps[trial.ud, tried.law] > 1e-3:
                assert tried.beyond_noise
                assert tried.behind == pytest.approx(gaps[trial.ud, tried.law], abs=1e-4)
    assert sum(bool(tried.beyond_noise) for trial in loud.trials for tried in trial.laws) <= 3
    assert all(
        standing.beyond_noise for standing in quiet.standings if standing.behind and standing.behind > 1e-3
    )


def test_noise_intervals_cover_the_truth(study: Study, calibration: Calibration) -> None:
    planned = prescriptions(study, calibration, PAIRS, laws=("chinchilla", "additive_4p"), seeds=3)
    runs = runs_of(planned)
    truth = judge(planned, [], outcome(runs, truth_of(calibration)))
    expected = next(s.behind for s in truth.standings if s.law == "chinchilla")
    hits = 0
    for seed in range(WORLDS):
        found = judge(planned, [], outcome(runs, truth_of(calibration), noise=0.02, seed=seed))
        behind = {s.law: s for s in found.standings}["chinchilla"]
        hits += (
            behind.behind_interval is not None
            and behind.behind_interval[0] <= expected <= behind.behind_interval[1]
        )
    print(f"the difference of two laws: {hits} of {WORLDS}")
    assert hits >= 0.88 * WORLDS  # 95%, less what chance allows


def equally_good(runs: list[StudyRun], spread: float, seed: int) -> pd.DataFrame:
    """A world in which every configuration is as good as any other,
    and their seeds scatter differently, up to `spread`-fold.
    """
    table = outcome(runs, dict.fromkeys((0.1, 1.0), Law("chinchilla", BASE)))
    sizes = sorted({run.params for run in runs})
    scatter = dict(zip(sizes, np.geomspace(0.01, 0.01 * spread, len(sizes)), strict=True))
    noise = np.random.default_rng(seed).standard_normal(len(table)) * table["params"].map(scatter)
    return table.assign(loss=3 + noise)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1, 30])
def test_laws_that_are_equally_good_are_rarely_told_apart(planned: list[Prescription], spread: float) -> None:
    planned = planned[: len(LAWS)]
    runs = runs_of(planned)
    assert len({run.params for run in runs}) >= 5
    wrong = 0
    for seed in range(WORLDS):
        trial = judge(planned, [], equally_good(runs, spread, seed)).trials[0]
        wrong += any(tried.beyond_noise for tried in trial.laws)
    print(
        f"some law called worse than the best though none was, "
        f"scatter differing {spread}-fold: {wrong} of {WORLDS}"
    )
    assert wrong <= 0.12 * WORLDS  # about 5%, and what chance adds


def test_one_law_that_scatters_does_not_hide_that_others_differ(planned: list[Prescription]) -> None:
    planned = planned[: len(LAWS)]
    runs = runs_of(planned)
    best, other, loud, *rest = sorted({run.params for run in runs})
    means = {best: 3.0, other: 3.1, loud: 3.2, **dict.fromkeys(rest, 3.1)}
    seeds = np.array([-1.0, 0.0, 1.0])
    table = outcome(runs, dict.fromkeys((0.1, 1.0), Law("chinchilla", BASE)))
    table["loss"] = table["params"].map(means) + seeds[table["seed"]] * np.where(
        table["params"] == loud, 0.4, 0.01
    )
    found = {t.configuration.params: t.beyond_noise for t in judge(planned, [], table).trials[0].laws}
    assert (found[best], found[other], found[loud]) == (None, True, False)


def test_a_law_with_no_budget_in_common_with_the_best_is_not_compared(
    study: Study, calibration: Calibration, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = prescriptions(study, calibration, PAIRS, laws=("chinchilla", "additive_4p"), seeds=2)
    trained = [p for p in planned if (p.law == "chinchilla") == ((p.ud, p.flops) == PAIRS[0])]
    show(judge(planned, [], outcome(runs_of(trained), truth_of(calibration), noise=1e-4)))
    standings = capsys.readouterr().out.split("Mean regret")[1].splitlines()[2:]
    words = {line.split()[0]: line for line in standings if line.strip()}
    assert [*words][:2] == ["additive_4p", "chinchilla"]  # at two budgets, at one
    assert "best" in words["additive_4p"]
    assert "not comparable" in words["chinchilla"]


def test_seeds_that_are_missing_are_named(study: Study, calibration: Calibration) -> None:
    planned = prescriptions(study, calibration, PAIRS[:1], laws=("additive_4p",), seeds=3)
    gone = planned[0].runs[1].name
    table = outcome([run for run in planned[0].runs if run.name != gone], truth_of(calibration), noise=0.01)
    tried = judge(planned, [], table, {gone: "loss is not finite"}).trials[0].laws[0]
    assert tried.reason == "1 of 3 seeds are missing: training failed: loss is not finite"
    assert len(tried.configuration.losses) == 2


def test_regret_is_against_what_was_allowed(study: Study, calibration: Calibration) -> None:
    planned = prescriptions(study, calibration, PAIRS[:1], laws=("additive_4p",), seeds=2)
    table = outcome(runs_of(planned), truth_of(calibration))
    reached = table["loss"].mean()

    def regret(**change: float) -> float:
        rival = {**table.iloc[0].to_dict(), "run": "rival", "params": 70_001, "loss": reached - 0.5, **change}
        tried = (
            judge(planned, [], pd.concat([table, pd.DataFrame([rival])], ignore_index=True)).trials[0].laws[0]
        )
        return tried.regret

    assert regret() == pytest.approx(0.5)
    assert regret(flops=1.019e12) == pytest.approx(0.5)
    assert regret(unique_tokens=10_000) == pytest.approx(0.5)
    assert regret(flops=1.03e12) == 0
    assert regret(unique_tokens=128_000) == 0
    assert regret(weight_decay=1.0) == 0
    assert regret(learning_rate=3e-3) == 0


def test_one_seed_claims_nothing_about_noise(study: Study, calibration: Calibration) -> None:
    planned = prescriptions(study, calibration, PAIRS[:2], laws=LAWS, seeds=1)
    verdict = judge(planned, [], outcome(runs_of(planned), truth_of(calibration)))
    assert all(trial.noise is None for trial in verdict.trials)
    assert all(tried.beyond_noise is None for trial in verdict.trials for tried in trial.laws)
    assert all(
        standing.seed_error is None and standing.beyond_noise is None for standing in verdict.standings
    )
    regrets = {
        standing.law: standing.regret for standing in verdict.standings if standing.pairs == len(PAIRS[:2])
    }
    for standing in verdict.standings:
        if standing.law in regrets and standing.behind is not None:
            assert standing.behind == pytest.approx(regrets[standing.law] - min(regrets.values()), abs=1e-12)


def test_failed_and_missing_runs_are_named(study: Study, calibration: Calibration) -> None:
    planned = prescriptions(study, calibration, PAIRS[:1], laws=("chinchilla", "additive_4p"), seeds=2)
    table = outcome(list(planned[1].runs), truth_of(calibration))
    failed = {run.name: "loss is not finite" for run in planned[0].runs}
    first, second = judge(planned, [], table, failed).trials[0].laws
    assert first.reason == "training failed: loss is not finite"
    assert second.regret == 0
    assert judge(planned, [], table).trials[0].laws[0].reason == "not trained yet"


def test_pooled_noise_is_the_textbook_one() -> None:
    def made(*losses: float) -> Configuration:
        return Configuration((str(losses),), 1, 1, 1.0, 1, 6.0, 0.1, 0.01, losses)

    noise, freedom = pooled_deviation([made(1.0, 2.0, 3.0), made(5.0, 7.0), made(9.0)])
    assert freedom == 3
    assert noise == pytest.approx(math.sqrt((2.0 + 2.0) / 3))


def test_seeds_of_one_configuration_stand_together(study: Study, calibration: Calibration) -> None:
    planned = prescriptions(study, calibration, PAIRS[:1], laws=("additive_4p",), seeds=4)
    found = configurations(outcome(runs_of(planned), truth_of(calibration), noise=0.1))
    assert [len(c.losses) for c in found] == [4]


def test_what_is_named_twice_counts_once(study: Study, calibration: Calibration) -> None:
    once = prescriptions(
        study, calibration, PAIRS[:2], laws=("additive_4p", "chinchilla"), weight_decays=[0.1], seeds=2
    )
    pairs, laws = [*PAIRS[:2], PAIRS[0]], ("additive_4p", "chinchilla", "additive_4p")
    assert prescriptions(study, calibration, pairs, laws=laws, weight_decays=[0.1, 0.1], seeds=2) == once
    table = outcome(runs_of(once), truth_of(calibration), noise=0.1)
    assert configurations(pd.concat([table, table])) == configurations(table)


def test_a_law_that_trained_nothing_is_not_called_best(
    study: Study, calibration: Calibration, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = prescriptions(study, calibration, PAIRS[:1], laws=("chinchilla", "additive_4p"), seeds=2)
    show(judge(planned, [], outcome(list(planned[1].runs), truth_of(calibration), noise=0.1)))
    standings = capsys.readouterr().out.split("Mean regret")[1].splitlines()
    assert [line.split()[0] for line in standings if "best" in line] == ["additive_4p"]


# -- crossover -----------------------------------------------------------------------------------------------


def test_the_crossover_of_a_known_world_is_found(study: Study, calibration: Calibration) -> None:
    test = crossover_test(study, calibration, 128_000, seeds=3)
    assert test.predicted == crossover(128_000, calibration=calibration).crossover_flops
    runs = runs_of(test.prescriptions)
    exact = judge([], [test], outcome(runs, truth_of(calibration))).crossovers[0]
    assert exact.ratio == pytest.approx(1, abs=0.15)  # straight lines between budgets a factor of 2 apart
    assert exact.observed_interval == pytest.approx((exact.observed, exact.observed))
    noisy = judge([], [test], outcome(runs, truth_of(calibration), noise=0.005)).crossovers[0]
    low, high = noisy.observed_interval
    assert (low or 0) < noisy.observed < (high or math.inf)
    assert [b.flops for b in noisy.budgets] == sorted(b.flops for b in noisy.budgets)


@pytest.mark.slow
def test_crossover_intervals_cover_the_truth(study: Study, calibration: Calibration) -> None:
    test = crossover_test(study, calibration, 128_000, seeds=3)
    runs = runs_of(test.prescriptions)
    truth = judge([], [test], outcome(runs, truth_of(calibration))).crossovers[0].observed
    hits = 0
    for seed in range(WORLDS):
        found = judge([], [test], outcome(runs, truth_of(calibration), noise=0.03, seed=seed)).crossovers[0]
        low, high = found.observed_interval or (math.inf, 0.0)
        hits += (low or 0.0) <= truth <= (high or math.inf)
    print(f"the crossover: {hits} of {WORLDS}")
    assert hits >= 0.82 * WORLDS


@pytest.mark.parametrize(
    ("shift", "says"), [(0.5, "λ = 0.1 is better at all of it"), (-0.5, "λ = 1 is better at all of it")]
)
def test_no_crossover_inside_is_said(study: Study, calibration: Calibration, shift: float, says: str) -> None:
    test = crossover_test(study, calibration, 128_000, seeds=2)
    table = outcome(runs_of(test.prescriptions), truth_of(calibration))
    table.loc[table["weight_decay"] == 1.0, "loss"] += shift
    found = judge([], [test], table).crossovers[0]
    assert found.observed is None
    assert found.ratio is None
    assert found.note == f"none inside the range tried: {says}"


def test_a_difference_within_noise_is_not_called_better_at_all_of_it(
    study: Study, calibration: Calibration
) -> None:
    test = crossover_test(study, calibration, 128_000, seeds=3)
    table = outcome(runs_of(test.prescriptions), dict.fromkeys((0.1, 1.0), Law("chinchilla", BASE)))
    table["loss"] = (
        3 + 0.05 * np.array([-1.0, 0.0, 1.0])[table["seed"]] - 0.01 * (table["weight_decay"] == 1.0)
    )
    found = judge([], [test], table).crossovers[0]
    assert found.note.startswith(
        "none inside the range tried: λ = 1 is better at all of it by its mean loss, and in "
    )
    assert found.note.endswith("% of draws of the seeds")


def test_a_law_without_a_crossover_trains_nothing(study: Study, calibration: Calibration) -> None:
    same = calibration.setting(0.1).model_copy(update={"weight_decay": 1.0})
    flat = calibration.model_copy(update={"settings": (calibration.settings[0], same)})
    test = crossover_test(study, flat, 128_000)
    assert test.predicted is None
    assert not test.prescriptions
    assert judge([], [test], pd.DataFrame()).crossovers[0].note.startswith("no crossover is predicted")
    alone = calibration.model_copy(update={"settings": calibration.settings[:1]})
    with pytest.raises(InvalidInput, match="a crossover needs two"):
        crossover_test(study, alone, 128_000)


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.005])
@pytest.mark.parametrize("noise", [0.005, 0.01])
def test_a_crossover_is_rarely_shown_where_there_is_none(
    study: Study, calibration: Calibration, noise: float, gap: float
) -> None:
    """The stronger weight decay is worse by the same everywhere, or by nothing: means cross all the same."""
    test = crossover_test(study, calibration, 128_000, seeds=3)
    flat = outcome(runs_of(test.prescriptions), truth_of(calibration))
    seen = claimed = 0
    for seed in range(WORLDS):
        scatter = noise * np.random.default_rng(seed).standard_normal(len(flat))
        table = flat.assign(loss=3 + gap * (flat["weight_decay"] == 1.0) + scatter)
        found = judge([], [test], table).crossovers[0]
        seen += found.observed is not None
        claimed += found.observed is not None and bool(found.shown)
        if found.observed is not None and not found.shown:
            assert f"not shown: {found.crossing_share:.0%} of draws of the seeds cross" in crossover_sentence(
                found
            )
    print(f"crossovers where there is none: {seen} seen, {claimed} called shown, of {WORLDS}")
    assert seen >= 0.1 * WORLDS  # so there is something to doubt
    assert claimed <= 0.08 * WORLDS


def test_a_clear_crossover_is_shown(study: Study, calibration: Calibration) -> None:
    test = crossover_test(study, calibration, 128_000, seeds=3)
    found = judge([], [test], outcome(runs_of(test.prescriptions), truth_of(calibration), noise=0.001))
    assert found.crossovers[0].shown
    assert "not shown" not in crossover_sentence(found.crossovers[0])


def test_what_the_law_itself_is_unsure_of_is_part_of_the_verdict(
    study: Study, calibration: Calibration
) -> None:
    test = crossover_test(study, calibration, 128_000, seeds=3)
    table = outcome(runs_of(test.prescriptions), truth_of(calibration))
    for factors, foreseen, says in (
        ((0.5, 2.0), True, "as far as both are certain"),
        ((3.0, 9.0), False, "further off than both are uncertain"),
    ):
        unsure = replace(test, predicted_interval=tuple(factor * test.predicted for factor in factors))
        found = judge([], [unsure], table).crossovers[0]
        assert found.foreseen is foreseen
        assert says in crossover_sentence(found)
    assert judge([], [test], table).crossovers[0].foreseen is None  # this calibration has no ensemble


def test_a_difference_that_the_seeds_could_not_show_is_not_called_none() -> None:
    assert beyond_noise_text(False, 0.875, (-0.3, 2.05)) == "not shown (below 1.2)"
    assert beyond_noise_text(True, 0.875, (0.3, 1.45)) == "yes"
    assert beyond_noise_text(None, 0.0) == "best"


def test_five_seeds_where_they_take_no_more_than_the_grid(study: Study, calibration: Calibration) -> None:
    def prescribed(flops: float) -> Callable[[int], list[Prescription]]:
        how = {"laws": ["additive_4p"]}
        pairs = [(128_000, flops), (100_000, flops)]
        return lambda seeds: prescriptions(study, calibration, pairs, seeds=seeds, **how)

    grid = sum(run.flops for run in study.runs)
    assert affordable_seeds(study, prescribed(grid / 20)) == 5
    assert affordable_seeds(study, prescribed(grid / 9)) == 3


def test_sign_changes_are_interpolated() -> None:
    x = np.array([0.0, 1.0, 2.0])
    assert sign_changes(x, np.array([1.0, -1.0, -2.0])) == pytest.approx([0.5])
    assert sign_changes(x, np.array([1.0, -3.0, 1.0])) == pytest.approx([0.25, 1.75])
    assert sign_changes(x, np.array([1.0, 2.0, 3.0])) == []


def test_a_verdict_is_plain_values(
    study: Study, calibration: Calibration, planned: list[Prescription]
) -> None:
    test = crossover_test(study, calibration, 128_000, seeds=2)
    runs = runs_of([*planned, *test.prescriptions])
    verdict = judge(planned, [test], outcome(runs, truth_of(calibration), noise=0.01))
    json.dumps(asdict(verdict), allow_nan=False)
    assert replace(verdict) == verdict
