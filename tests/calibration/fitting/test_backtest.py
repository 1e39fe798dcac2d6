"""The backtest: finds the choices in a table, never judges a
law on runs it was fitted on, and counts regret in nats.
"""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from calibration.commands.backtest import backtest as command
from calibration.fitting.evaluate.backtest import COIN, backtest
from calibration.fitting.huber import FormFit
from calibration.fitting.runs.arrays import find_groups
from calibration.fitting.runs.tables import read_runs
from planner.calibration import Calibration
from planner.inputs import InvalidInput
from tests.places import SHARED

LAW = Calibration.load("fineweb-llama2").law(0.1, "additive_4p")


def isoflop_table(noise: float = 0.002, seed: int = 0) -> pd.DataFrame:
    """Sizes that double while epochs halve: every (budget,
    compute) has several choices; and a single-epoch grid.
    """
    rows = [
        (n, u, e) for u in (1e8, 2e8, 4e8, 8e8) for n in (5e7, 1e8, 2e8, 4e8, 8e8) for e in (1, 2, 4, 8, 16)
    ]
    table = pd.DataFrame(rows, columns=["params", "unique_tokens", "epochs"], dtype=float)
    rng = np.random.default_rng(seed)
    exact = LAW.loss(*(table[name].to_numpy() for name in table))
    loss = exact * np.exp(noise * rng.standard_normal(len(table)))
    return read_runs(table.assign(run=[f"r{i}" for i in range(len(table))], weight_decay=0.1, loss=loss))


def test_groups_are_equal_choices():
    groups = find_groups(isoflop_table(), 0.1)
    assert groups
    for group in groups:
        flops = 6 * np.array(group.params) * np.array(group.epochs) * group.unique_tokens
        assert flops.max() / flops.min() <= 1.1
        assert len(set(group.params)) == len(group.params) >= 2
    # sizes x epochs along each diagonal of the grid, at four budgets; the two ends of each hold a single run
    assert len(groups) == 4 * 7
    assert sum(len(group.params) for group in groups) == 4 * 23


def test_seeds_of_one_configuration_count_once():
    table = isoflop_table()
    twice = pd.concat(
        [table, table.assign(run=table["run"] + "-again", loss=table["loss"] + 0.02)], ignore_index=True
    )
    for once, both in zip(find_groups(table, 0.1), find_groups(twice, 0.1), strict=True):
        assert both.params == once.params
        np.testing.assert_allclose(both.loss, np.array(once.loss) + 0.01)


def test_a_weight_decay_that_identifies_no_law_is_left_out_and_said(tmp_path):
    table, laws = isoflop_table(), ["chinchilla", "additive_1p"]
    few = table[(table["unique_tokens"] == 1e8) & (table["epochs"] > 1)]
    both = pd.concat([table, few.assign(weight_decay=1.0, run=few["run"] + "-b")], ignore_index=True)
    found, alone = backtest(both, laws=laws), backtest(table, laws=laws)
    assert (found.scores, found.runs) == (alone.scores, alone.runs)
    assert list(found.left_out) == ["1"]
    assert alone.left_out == {}
    with pytest.raises(InvalidInput, match=r"cannot be identified at weight decay 1: .*; add \d runs"):
        backtest(both[both["weight_decay"] == 1.0], laws=laws)
    both.to_csv(tmp_path / "runs.csv", index=False)
    said = CliRunner().invoke(command, [str(tmp_path / "runs.csv"), "--law", "additive_1p"])
    assert said.exit_code == 0, said.output
    assert "Left out: weight decay 1, where additive_1p cannot be identified: only 0 different" in said.output


def test_forms_that_a_fit_would_leave_out_are_marked(monkeypatch):
    assert backtest(isoflop_table(), laws=["additive_1p"]).not_identified == {}
    monkeypatch.setattr(
        FormFit, "problem", property(lambda fit: "it ran away" if fit.form == "additive_1p" else None)
    )
    found = backtest(isoflop_table(), laws=["chinchilla", "additive_1p"]).not_identified
    assert set(found) == {"additive_1p"}
    assert found["additive_1p"].endswith("it ran away")


def test_the_law_that_made_the_table_ranks_it_best():
    result = backtest(isoflop_table(), laws=["chinchilla", "additive_1p", "additive_4p"])
    scores = {score.law: score for score in result.scores}
    assert scores["additive_4p"].accuracy > 0.9
    assert scores["additive_4p"].accuracy > scores["chinchilla"].accuracy
    assert scores["additive_4p"].regret < 0.01 < scores["chinchilla"].regret
    assert scores[COIN].accuracy == 0.5
    assert scores[COIN].regret > scores["chinchilla"].regret
    assert (
        scores[COIN].accuracy_interval is scores[COIN].regret_interval is None
    )  # chance is known, not estimated
    for score in result.scores[:-1]:
        assert score.accuracy_interval[0] <= score.accuracy <= score.accuracy_interval[1]
        assert score.regret_interval[0] <= score.regret <= score.regret_interval[1]
        assert score.kendall == pytest.approx(2 * score.accuracy - 1)


@pytest.mark.parametrize("leave", ["group", "cells"])
def test_a_group_has_no_influence_on_how_it_is_judged(leave):
    """Spoil the losses of one group: what each law picks there must not change, because it never saw them."""
    table = isoflop_table()
    honest = backtest(table, laws=["chinchilla", "additive_2p"], leave=leave)
    target = find_groups(table, 0.1)[3]
    rows = [row for rows in target.rows for row in rows]
    spoiled = table.copy()
    spoiled.loc[rows, "loss"] = spoiled.loc[rows, "loss"].to_numpy()[::-1] * 1.3
    other = backtest(spoiled, laws=["chinchilla", "additive_2p"], leave=leave)
    before = next(d for d in honest.details if d["params"] == target.params and d["flops"] == target.flops)
    after = next(d for d in other.details if d["params"] == target.params and d["flops"] == target.flops)
    assert before["picks"] == after["picks"]
    assert before["loss"] != after["loss"]


def test_it_is_reproducible_and_leaves_the_table_alone():
    table = isoflop_table()
    before = table.copy(deep=True)
    first, second = (backtest(table, laws=["chinchilla", "additive_1p"], seed=3).as_dict() for _ in range(2))
    assert first == second
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tolerance": 0}, "tolerance must be above zero"),
        ({"tolerance": "wide"}, "tolerance must be a number"),
        ({"leave": "none"}, "leave must be one of group, cells"),
        ({"laws": ["magic"]}, "law must be one of"),
        ({"laws": []}, "at least one"),
    ],
)
def test_mistakes_are_named(options, reason):
    with pytest.raises(InvalidInput, match=reason):
        backtest(isoflop_table(), **options)


def test_a_table_without_choices_says_so():
    table = isoflop_table()
    with pytest.raises(InvalidInput, match="no two runs have the same unique tokens"):
        backtest(table[table["params"] == 1e8].drop_duplicates("unique_tokens"))


def test_the_command(tmp_path):
    isoflop_table().to_csv(tmp_path / "runs.csv", index=False)
    options = [str(tmp_path / "runs.csv"), "--law", "chinchilla", "--law", "additive_4p"]
    text = CliRunner().invoke(command, options)
    assert text.exit_code == 0, text.output
    assert "additive_4p" in text.output
    assert "regret" in text.output
    result = json.loads(CliRunner().invoke(command, [*options, "--json"]).output)
    assert [score["law"] for score in result["scores"]] == ["chinchilla", "additive_4p", COIN]
    bad = CliRunner().invoke(command, [str(tmp_path / "none.csv")])
    assert bad.exit_code == 2
    assert bad.stderr.startswith("Error: run table")
    assert "Traceback" not in bad.output


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the public run data (../shared/data) is not here")
def test_on_the_public_runs_every_law_beats_chance():
    table = read_runs(
        SHARED / "data" / "datablations_c4_runs.csv", where="in_paper158 == 1", weight_decay=0.1
    )
    result = backtest(table)
    chance = next(score for score in result.scores if score.law == COIN)
    assert result.skipped_groups == 0
    for score in result.scores:
        if score.law != COIN:
            assert score.accuracy > 0.65
            assert score.regret < 0.25 * chance.regret
