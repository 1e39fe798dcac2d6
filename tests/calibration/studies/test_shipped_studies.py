"""The studies that ship with the package are what they say they are."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from calibration.studies.study import load
from planner.hardware import VALIDATION_SHAPES, shape_for
from planner.inputs import count
from tests.places import SHARED

Cell = tuple[str, int, float, float]


def cells_of(name: str) -> set[Cell]:
    return {
        (run.config.shape, run.config.unique_tokens, run.config.epochs, run.config.weight_decay)
        for run in load(name).runs
    }  # type: ignore[misc]


def ticked(text: str, label: str, decay: float) -> set[Cell]:
    """The cells with a tick in a table of the paper: columns are budgets, or a budget and then epochs."""
    table = text[text.index(rf"\label{{{label}}}") :]
    table = table[: table.index(r"\end{tabular}")]
    header, *lines = [line.strip().rstrip("\\").strip() for line in table.splitlines() if "&" in line]
    columns = [cell.strip() for cell in header.split("&")]
    found = set()
    for line in lines:
        size, *cells = [cell.strip() for cell in line.split("&")]
        for column, cell in zip(columns[1:], cells, strict=True):
            if r"\checkmark" in cell:
                unique, epochs = (column, 1.0) if "U_D" not in columns[1] else (cells[0], float(column))
                found.add((size, round(count(unique, "unique")), epochs, decay))
    return found


def test_the_paper_study_is_its_grid_cell_by_cell():
    papers = sorted((SHARED / "paper").glob("*.txt")) if (SHARED / "paper").is_dir() else []
    if not papers:
        pytest.skip("the paper's source is not here")
    text = papers[0].read_text(encoding="utf-8")
    tables = {
        (kind, decay): ticked(text, f"tab:grid_{name}_{kind}", decay)
        for name, decay in (("std", 0.1), ("wd", 1.0))
        for kind in ("single", "multi")
    }
    single = {decay: tables["single", decay] for decay in (0.1, 1.0)}
    multi = {decay: {cell for cell in tables["multi", decay] if cell[2] > 1} for decay in (0.1, 1.0)}
    assert [len(single[0.1]), len(multi[0.1]), len(single[1.0]), len(multi[1.0])] == [56, 81, 45, 81]
    assert cells_of("paper") == set().union(*tables.values())
    assert len(load("paper").runs) == 263


def test_the_paper_study_without_the_paper():
    """The same counts, for those who do not have its source."""
    runs = load("paper").runs
    assert Counter((run.config.weight_decay, run.config.epochs > 1) for run in runs) == {
        (0.1, False): 56,
        (0.1, True): 81,
        (1.0, False): 45,
        (1.0, True): 81,
    }
    assert len({run.name for run in runs}) == 263
    assert {run.config.seed for run in runs} == {0}
    assert all(run.architecture.preset == run.config.shape for run in runs)
    recipe = runs[0].config
    assert (recipe.learning_rate, recipe.batch_size, recipe.sequence_length, recipe.validation_documents) == (
        2e-4,
        128,
        512,
        6400,
    )


def test_prescriptions_of_the_paper_take_its_validation_shapes():
    assert [shape_for(size).preset for size in ("284M", "374M", "392M", "721M")] == list(VALIDATION_SHAPES)


def test_the_micro_study_can_identify_its_laws():
    study = load("micro")
    by_decay = {
        decay: {
            (r.params, r.config.unique_tokens, r.config.epochs, r.config.seed)
            for r in study.runs
            if r.config.weight_decay == decay
        }
        for decay in (0.1, 1.0)
    }
    assert by_decay[0.1] == by_decay[1.0], "both weight decays have the same cells"
    assert len({cell[1] for cell in by_decay[0.1] if cell[2] > 1}) >= 3, "repetition is seen at three budgets"
    largest = max(run.flops for run in study.runs)
    assert all(2 * largest <= flops * 1.03 and flops <= 4 * largest for _, flops in study.validation.pairs)
    assert study.validation.seeds >= 3


@pytest.mark.parametrize("name", ["paper", "micro"])
def test_a_crossover_is_looked_for_on_both_sides_of_the_predicted_one(name: str):
    factors = load(name).validation.crossover_factors
    assert min(factors) < 1 < max(factors)


@pytest.mark.parametrize("name", ["paper", "micro", "smoke"])
def test_names_are_good_directories(name: str):
    for run in load(name).runs:
        assert re.fullmatch(r"[A-Za-z0-9.\-]+", run.name)
