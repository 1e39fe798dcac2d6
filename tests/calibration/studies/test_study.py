"""Study files: what a grid means, tables of cells, and what a dry run says."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.commands import calibrate
from calibration.studies.directory import begin
from calibration.studies.engine import Needs
from calibration.studies.study import load, parse
from planner.inputs import InvalidInput

RECIPE = {"preset": "micro", "tokenizer": "bytes", "sequence_length": 32}
AXES = {
    "params": st.sampled_from([12_000, 20_000, 60_000]),
    "unique_tokens": st.sampled_from([4_000, 8_000, 64_000]),
    "epochs": st.sampled_from([0.5, 1, 2, 16]),
    "weight_decays": st.sampled_from([0.0, 0.1, 1.0]),
    "seeds": st.integers(0, 5),
}
GRIDS = st.fixed_dictionaries(
    {name: st.lists(values, min_size=1, max_size=3) for name, values in AXES.items()}
)


def cells(*grids: dict[str, Any]) -> set[tuple[Any, ...]]:
    return {cell for grid in grids for cell in product(*(grid[name] for name in AXES))}


@settings(max_examples=25)
@given(first=GRIDS, second=GRIDS)
def test_a_study_is_the_union_of_its_grids(first: dict[str, Any], second: dict[str, Any]) -> None:
    study = parse({"recipe": RECIPE, "grid": [first, second]}, "s")
    found = [run.config for run in study.runs]
    asked = [(c.params, c.unique_tokens, c.epochs, c.weight_decay, c.seed) for c in found]
    assert len({run.name for run in study.runs}) == len(asked) == len(set(asked))
    assert set(asked) == cells(first, second)


@settings(max_examples=25)
@given(grid=GRIDS, limit=st.floats(1e8, 1e12))
def test_cells_above_the_limit_are_left_out(grid: dict[str, Any], limit: float) -> None:
    everything = parse({"recipe": RECIPE, "grid": [grid]}, "s").runs
    kept = [run.name for run in everything if run.flops <= limit * 1.005]
    if kept:
        assert [
            run.name for run in parse({"recipe": RECIPE, "grid": [{**grid, "max_flops": limit}]}, "s").runs
        ] == kept
    else:
        with pytest.raises(InvalidInput, match="has no runs"):
            parse({"recipe": RECIPE, "grid": [{**grid, "max_flops": limit}]}, "s")


@given(
    values=st.dictionaries(
        st.text(max_size=8), st.none() | st.integers() | st.text() | st.lists(st.integers())
    )
)
def test_nonsense_is_refused_and_never_crashes(values: dict[str, Any]) -> None:
    for nonsense in (values, {"grid": [values]}, {"recipe": values}, {"validation": values}):
        with pytest.raises(InvalidInput):
            parse(nonsense, "s")


def test_one_value_alone_is_a_list_of_one() -> None:
    alone = {"params": "12k", "unique_tokens": "4k", "epochs": 1, "weight_decays": 0.1}
    listed = {name: [value] for name, value in alone.items()}
    assert (
        parse({"recipe": RECIPE, "grid": [alone]}, "s").runs
        == parse({"recipe": RECIPE, "grid": [listed]}, "s").runs
    )


def test_cells_that_a_design_has_chosen(tmp_path: Path) -> None:
    wanted = ("--budget", "1e19", "--target-ud", "250M", "--target-flops", "5e18", "--max-runs", "4")
    done = CliRunner().invoke(calibrate, ["design", *wanted, "-o", str(tmp_path / "next.csv")])
    assert done.exit_code == 0, done.output
    (tmp_path / "chosen.toml").write_text(
        'cells = "next.csv"\n[recipe]\npreset = "micro"\ntokenizer = "bytes"\n'
    )
    table = (tmp_path / "next.csv").read_text().splitlines()
    runs = load(tmp_path / "chosen.toml").runs
    assert len(runs) == len(table) - 1 > 0
    column = table[0].split(",").index("unique_tokens")
    assert [run.config.unique_tokens for run in runs] == [
        round(float(line.split(",")[column])) for line in table[1:]
    ]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (None, "there is no file"),
        ("params,epochs\n1,2\n", "has no column unique_tokens"),
        ("params,unique_tokens,epochs,weight_decay\n12k,4k,1,0.1\n12k,-4,1,0.1\n", "row 2 of"),
        ("params,unique_tokens,epochs,weight_decay,seed\n12k,4k,1,0.1,0\n12k,4k,1,0.1,\n", "row 2 of"),
        ("", "cannot be read"),
    ],
)
def test_a_table_of_cells_with_a_mistake(table: str | None, complaint: str, tmp_path: Path) -> None:
    if table is not None:
        (tmp_path / "next.csv").write_text(table)
    with pytest.raises(InvalidInput, match=complaint):
        parse({"recipe": RECIPE, "cells": "next.csv"}, "s", tmp_path)


def test_a_dry_run_says_what_it_would_take_and_writes_nothing(study: Path, tmp_path: Path) -> None:
    asked = ["sweep", str(study), "-o", str(tmp_path / "out"), "--dry-run", "--gpu", "H100", "--price", "2"]
    text = CliRunner().invoke(calibrate, asked)
    assert text.exit_code == 0, text.output
    plan = load(study)
    assert all(run.name in text.stdout for run in plan.runs)
    assert "8 runs, 8 of them to train" in text.stdout
    assert all(f"\n  {engine} " in text.stdout for engine in ("local", "ray"))
    assert "will be known (standard errors, with micro as the prior)" in text.stdout
    assert "At weight decay 0.1: no law is identified (only 0 different single-epoch runs" in text.stdout
    facts = json.loads(CliRunner().invoke(calibrate, [*asked, "--json"]).stdout)
    assert (facts["missing"], facts["flops"]) == (8, sum(run.flops for run in plan.runs))
    assert [row["run"] for row in facts["runs"]] == [
        run.name for run in sorted(plan.runs, key=lambda run: -run.flops)
    ]
    assert [engine["engine"] for engine in facts["engines"]] == ["local", "ray"]
    assert all(engine["hours"] > 0 and engine["usd"] >= 0 for engine in facts["engines"])
    (foreseen,) = facts["expected_information"]
    assert foreseen["loss_error"] < foreseen["loss_error_before"]
    assert foreseen["missing"][0]["advice"].startswith("add 5 runs")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_a_finished_study_takes_nothing(study: Path, tmp_path: Path) -> None:
    folder = begin(load(study), tmp_path / "out")
    for run in load(study).runs:
        (folder.run_folder(run.name) / "result.json").parent.mkdir()
        (folder.run_folder(run.name) / "result.json").touch()
    done = CliRunner().invoke(calibrate, ["sweep", str(study), "-o", str(tmp_path / "out"), "--dry-run"])
    assert "8 runs, 0 of them to train: 0 FLOPs (6 N D)." in done.stdout.splitlines()


def test_a_study_says_what_a_run_needs(study: Path) -> None:
    text = study.read_text()
    assert not load(study).needs
    study.write_text(f'{text}[needs]\ngpus = 0.5\nmemory = "16GiB"\nthreads = 2\naccelerator = "H100"\n')
    needs = load(study).needs
    assert needs == Needs(gpus=0.5, memory=2**34, threads=2, accelerator="H100")
    assert str(needs) == "0.5 GPU, 16 GiB of memory, 2 threads, H100"
    for wrong, complaint in (
        ("gpus = 2.5", "needs.gpus must be a part of one or a whole number; got 2.5"),
        ('memory = "much"', "needs.memory is written as '16GiB'"),
        ("gpu = 1", "gpu is not a setting of needs; did you mean gpus"),
    ):
        study.write_text(f"{text}[needs]\n{wrong}\n")
        with pytest.raises(InvalidInput, match=complaint):
            load(study)
