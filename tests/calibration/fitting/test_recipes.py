"""What a user relies on whose table says with which recipe each run was trained."""

import numpy as np
import pandas as pd
import pytest

from calibration import fit, read_runs, warnings_of
from calibration.fitting.design.proposal import design
from calibration.fitting.design.tuning import Ranges, tune
from calibration.fitting.evaluate.backtest import backtest
from calibration.fitting.runs.recipes import comparable_runs, steps_needed
from planner import plan, predict
from planner.inputs import InvalidInput
from planner.weight_decay_rule import tuned_weight_decay
from tests.calibration.fitting.tables import runs

TABLE = runs()


def test_the_recipe_of_every_run_is_read_under_its_own_or_an_obvious_name():
    written = TABLE.assign(**{"config.lr": ["3e-4"] * 26 + [""], "tokens_per_step": "512K", "dropout": 0.1})
    table = read_runs(written)
    assert list(table["learning_rate"][:26]) == [3e-4] * 26
    assert np.isnan(table["learning_rate"][26])  # nobody has to say it
    assert set(table["batch_tokens"]) == {512e3}
    np.testing.assert_allclose(table["steps"], table["tokens"] / 512e3)
    assert set(table["dropout"]) == {0.1}
    assert [note.text for note in warnings_of(table)] == [
        "read learning_rate from config.lr, batch_tokens from tokens_per_step"
    ]


def test_one_of_batch_and_steps_gives_the_other_though_steps_are_whole():
    tokens = TABLE["unique_tokens"] * TABLE["epochs"]
    table = read_runs(TABLE.assign(steps=(tokens / 65536).astype(int)))
    assert len(set(table["batch_tokens"])) == 1
    assert table["batch_tokens"][0] == pytest.approx(65536, rel=1e-4)
    each = np.where(TABLE["epochs"] > 1, 65536, 32768)
    np.testing.assert_allclose(read_runs(TABLE.assign(steps=tokens / each))["batch_tokens"], each)


@pytest.mark.parametrize("bad", ["cosine", -1, 1e9])
def test_what_cannot_be_a_recipe_is_not_said_and_that_is_told(bad):
    table = read_runs(TABLE.assign(learning_rate=[3e-4] * 26 + [bad]))
    assert table["learning_rate"].isna().sum() == 1
    (note,) = warnings_of(table)
    assert note.warns
    assert "learning_rate of 1 of 27 runs cannot be read" in note.text
    assert "in row 27" in note.text


def test_a_rate_that_was_logged_last_is_not_taken_for_that_of_the_recipe():
    assert "learning_rate" not in read_runs(TABLE.assign(**{"summary.learning_rate": 3e-5}))


def test_runs_without_names_may_differ_in_their_recipe_only():
    two = TABLE.drop(columns="run")
    both = two.assign(learning_rate=3e-4), two.assign(learning_rate=1e-3)
    assert len(read_runs(pd.concat(both))) == 54


@pytest.mark.parametrize(
    ("column", "called", "ends"),
    [
        ("params", "size", "0.0006 at the smallest, 0.0003 at the largest"),
        ("unique_tokens", "unique tokens", "0.0006 at the smallest, 0.0003 at the largest"),
    ],
)
def test_a_rate_that_goes_with_the_size_or_the_data_is_said_by_the_fit_and_its_plans(column, called, ends):
    rates = np.where(TABLE[column] < TABLE[column].max(), 6e-4, 3e-4)
    table = comparable_runs(read_runs(TABLE.assign(learning_rate=rates, batch_tokens=65536)))
    (note,) = warnings_of(table)
    assert note.warns
    assert note.text == (
        f"learning rate differs between runs (0.0003 to 0.0006) and goes with the {called} ({ends}): the law "
        "is of that rule, and cannot tell the two apart"
    )
    known = fit(table, bootstrap=0, laws=["additive_1p"])
    assert f"{note.text}." in plan(ud=4e8, flops=1e18, calibration=known).warnings


def test_a_rate_that_goes_with_nothing_is_said_and_rounding_is_not():
    steps = TABLE["unique_tokens"] * TABLE["epochs"] / 65536
    rates = np.where(np.arange(27) % 2, 6e-4, 3e-4)
    table = comparable_runs(read_runs(TABLE.assign(learning_rate=rates, steps=steps.round())))
    assert [note.text for note in warnings_of(table)] == [
        "learning rate differs between runs (0.0003 to 0.0006); the law knows nothing of it"
    ]


# -- runs starved of steps, and the tuned envelope -----------------------------------------------------------

BATCH = 1_000_000


def swept(noise: float = 0.0) -> pd.DataFrame:
    """A sweep over learning rate and weight decay, whose best is 1e-3 and 0.3 everywhere, with losses of runs
    of fewer than 300 steps that are short of updates: worse the fewer they have.
    """
    table = runs(budgets=(2e7, 1e8, 4e8, 1.6e9), noise=noise)
    parts = []
    for rate, decay in [(1e-4, 0.1), (1e-4, 0.3), (1e-3, 0.1), (1e-3, 0.3)]:
        worse = 0.05 * np.log10(1e-3 / rate) + 0.02 * (decay == 0.1)
        name = table["run"] + f"-lr{rate:g}-wd{decay:g}"
        parts.append(table.assign(run=name, learning_rate=rate, weight_decay=decay, worse=worse))
    both = pd.concat(parts, ignore_index=True)
    steps = both["unique_tokens"] * both["epochs"] / BATCH
    # Concave in ln(steps), as no law of data is, and gone from 300 steps on.
    short = np.maximum(np.log(300 / steps), 0) ** 0.5
    loss = both["loss"] * np.exp(both["worse"] + 0.6 * short * (steps < 300))
    return both.assign(loss=loss, batch_tokens=BATCH).drop(columns="worse")


def test_without_short_runs_no_steps_are_asked_for():
    table = read_runs(TABLE.assign(batch_tokens=BATCH))
    assert steps_needed(table) is None
    assert len(comparable_runs(table)) == len(table)
    assert warnings_of(comparable_runs(table)) == []


def test_runs_that_are_starved_of_steps_are_found_by_their_shape_and_left_out():
    table = read_runs(swept())
    assert steps_needed(table) == 400  # the first number of steps of runs that see their data once, above 300
    chosen = comparable_runs(table)
    assert chosen["steps"].min() >= 400
    (note,) = [note for note in warnings_of(chosen) if note.code == "starved_of_steps"]
    assert f"{int((table['steps'] < 400).sum())} of {len(table)} runs have fewer than 400 steps" in note.text


def test_a_part_of_a_table_is_measured_by_what_the_whole_shows_unless_the_caller_says_steps():
    whole = read_runs(swept(), where="params == 20M")
    assert comparable_runs(whole)["steps"].min() >= 400
    kept = read_runs(swept(), where="params == 20M and steps > 0")
    assert comparable_runs(kept)["steps"].min() == 20


def test_where_recipes_differ_inside_a_weight_decay_the_best_of_each_cell_is_taken():
    chosen = comparable_runs(read_runs(swept()))
    assert not chosen.duplicated(["params", "unique_tokens", "epochs"]).any()
    assert set(chosen["learning_rate"]) == {1e-3}
    assert set(chosen["weight_decay"]) == {0.3}
    assert set(chosen["settings_tried"]) == {4}
    said = {note.code: note.text for note in warnings_of(chosen)}
    assert "learning rate (0.0001 to 0.001) differs inside a weight decay" in said["tuned_envelope"]
    assert "the largest that was tried" in said["edge_of_sweep"]
    assert "not_tuned" not in said
    assert comparable_runs(chosen) is chosen  # chosen once


def test_cells_with_one_setting_are_named_and_seeds_stay_together():
    table = read_runs(swept())
    one = table[
        (table["unique_tokens"] < 1e9) | ((table["learning_rate"] == 1e-3) & (table["weight_decay"] == 0.3))
    ]
    said = {note.code: note.text for note in warnings_of(comparable_runs(one))}
    assert "9 of 21 cells had one setting only" in said["not_tuned"]
    again = table.assign(run=table["run"] + "-s1", loss=table["loss"] * 1.001, seed=1)
    both = comparable_runs(pd.concat([table.assign(seed=0), again], ignore_index=True))
    assert both.groupby(["params", "unique_tokens", "epochs"]).size().eq(2).all()


def test_what_a_caller_selects_is_fitted_as_it_is():
    chosen = comparable_runs(read_runs(swept(), where="learning_rate == 1e-4"))
    assert set(chosen["weight_decay"]) == {0.1, 0.3}
    assert "tuned_envelope" not in {note.code for note in warnings_of(chosen)}
    at = comparable_runs(read_runs(swept()), weight_decay=0.1)
    assert set(at["weight_decay"]) == {0.1}
    assert set(at["learning_rate"]) == {1e-3}


def test_recipes_that_follow_the_size_leave_nothing_to_choose():
    ladder = TABLE.assign(
        learning_rate=1e-3 * (2e7 / TABLE["params"]) ** 0.5, batch_tokens=TABLE["params"] / 100
    )
    assert len(comparable_runs(read_runs(ladder))) == len(TABLE)


def test_figures_that_repeat_or_contradict_others_are_named():
    copied = TABLE.assign(loss=np.where(TABLE.index == 26, TABLE["loss"][20], TABLE["loss"]))
    text = next(note.text for note in warnings_of(read_runs(copied)) if note.code == "same_loss")
    assert f"({TABLE['run'][20]} and {TABLE['run'][26]})" in text
    odd = runs(budgets=(1e8, 2e8, 4e8, 8e8), noise=0)
    once = (odd["params"] == 2e7) & (odd["unique_tokens"] == 8e8) & (odd["epochs"] == 1)
    worse = odd.assign(loss=odd["loss"] * np.where(once, 1.2, 1.0))
    text = next(note.text for note in warnings_of(read_runs(worse)) if note.code == "out_of_order")
    assert "20m_800m_1ep up to" in text
    assert "above runs of as many tokens, fewer of them new" in text


def test_a_fit_says_what_it_took_and_keeps_the_steps_that_are_needed():
    found = fit(swept(noise=0.003), bootstrap=0, weight_decay_law="none", laws=["additive_1p"])
    (setting,) = found.settings
    assert setting.fitted_on.runs == 21  # 3 sizes x (8 epochs of 100M; 1, 2 and 8 of 400M and 1.6B)
    assert found.steps_needed == 400
    assert {"starved_of_steps", "tuned_envelope"} <= {note["code"] for note in found.table_notes}


def tuned_apart() -> pd.DataFrame:
    """The sweep with its smallest models best at 0.1."""
    table = swept(noise=0.003)
    small = (table["params"] == table["params"].min()) & (table["weight_decay"] == 0.1)
    return table.assign(loss=table["loss"] * np.where(small, 0.97, 1.0))


def test_runs_that_were_tuned_one_by_one_have_no_weight_decay_of_their_own_to_plan_with():
    """The weight decay in the middle of an envelope is a name, and nobody should train with it."""
    found = fit(tuned_apart(), bootstrap=0, weight_decay_law="none", laws=["additive_1p"])
    assert found.settings[0].tuned_weight_decays == (0.1, 0.3)
    assert (found.recipe.learning_rate, found.recipe.batch_tokens) == (1e-3, 1_000_000)
    for p in (plan(4e8, 1e19, calibration=found), predict(5e7, 4e8, 8, calibration=found)):
        rule = tuned_weight_decay(p.params, 4e8, 1e-3, 1e6)
        assert p.own_recipe.weight_decay == pytest.approx(rule, rel=0.05)
        assert p.own_recipe.low < rule < p.own_recipe.high
    p = plan(4e8, 1e19, calibration=found)
    assert f"at weight decay {p.own_recipe.weight_decay:g} (" in p.verdict
    assert "tuned in every run)" in p.verdict
    assert f"weight_decay = {p.own_recipe.weight_decay}\n" in p.run_config()
    assert p.tuned_elsewhere is None
    assert any("tuned, to weight decays of 0.1 to 0.3; for this plan a rule" in one for one in p.warnings)
    unsaid = found.model_copy(update={"recipe": None})
    assert "at weight decay 0.1 to 0.3 (tuned in every run)" in plan(4e8, 1e19, calibration=unsaid).verdict


def test_runs_proposed_next_to_tuned_ones_start_from_the_rule():
    table = read_runs(tuned_apart())
    found = design(3e19, 4e8, 1e19, runs=table, law="additive_1p")
    assert found.tuned
    for run, decay in zip(found.runs, found.table()["weight_decay"], strict=True):
        assert decay == pytest.approx(tuned_weight_decay(run.params, run.unique_tokens, 1e-3, 1e6), rel=0.05)
    at_one = design(3e19, 4e8, 1e19, runs=read_runs(swept(), where="weight_decay == 0.3"), law="additive_1p")
    assert not at_one.tuned
    assert set(at_one.table()["weight_decay"]) == {0.3}


def test_no_proposal_has_fewer_steps_than_are_needed():
    table = read_runs(swept(noise=0.003))
    plan = design(3e19, 4e8, 1e19, runs=table, law="additive_1p")
    assert plan.runs
    assert min(run.steps for run in plan.runs) >= plan.steps_needed == 400
    assert {"batch_tokens", "steps"} <= set(plan.table())
    how = {"weight_decays": (0.1, 1), "learning_rates": (1e-4, 1e-2)}
    one = read_runs(swept(), where="params == 20M and unique_tokens == 100M")
    wave = tune(Ranges.of(**how, epochs=(1, 2, 8), runs=one), one).wave
    assert {row["epochs"] for row in wave} == {8}
    with pytest.raises(
        InvalidInput, match="2 are 200 steps of 1M tokens, and the runs show that 400 are needed; 4"
    ):
        tune(Ranges.of(**how, epochs=(1, 2), runs=one), one)
    with pytest.raises(
        InvalidInput, match="choose with where 'params == 20000000 and unique_tokens == 20000000'"
    ):
        Ranges.of(**how, epochs=(8,), runs=table)


@pytest.mark.slow
def test_the_runs_of_dolma_are_understood(shared_data):
    table = read_runs(shared_data / "qin2026_dolma_repeat.csv")
    said = {note.code: note.text for note in warnings_of(table)}
    assert set(said) == {"out_of_order"}  # no suspicion of bits
    assert "30M-c4-e4-lr0.0003-wd0.1" in said["out_of_order"]
    assert "370M-c0.1-e64-lr0.003-wd0.4" in said["out_of_order"]
    assert steps_needed(table) == 953
    chosen = comparable_runs(table)
    assert len(chosen) == 133
    found = fit(table, bootstrap=0, weight_decay_law="none")
    errors = [
        law.metrics["held_out_error"] for name, law in found.settings[0].laws.items() if "additive" in name
    ]
    assert max(errors) < 0.01
    plan = design(1e20, 740e6, 3e19, runs=table)
    assert min(run.steps for run in plan.runs) >= 953
    assert backtest(table, laws=["additive_2p"]).groups == 16
