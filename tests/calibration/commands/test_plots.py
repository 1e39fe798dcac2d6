"""`--plot` of `planner calibrate fit` and `report` draws the evidence for a law from any table of runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from calibration.reports import evidence_plots
from planner.calibration import Calibration
from planner.cli import planner
from planner.inputs import InvalidInput
from tests.places import ROOT

RUNS = str(ROOT / "studies" / "micro" / "runs.csv")


def _run(*args: str) -> str:
    result = CliRunner().invoke(planner, ["calibrate", *args])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("kind", ["grid", "residuals", "fit"])
def test_pictures_of_runs(kind: str, tmp_path: Path) -> None:
    target = tmp_path / f"{kind}.svg"
    said = _run("report", "micro", "--runs", RUNS, "--weight-decay", "0.1", "--plot", f"{kind}={target}")
    assert f"Picture written to {target}." in said
    assert target.read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_quality_has_every_form_of_both_studies(tmp_path: Path) -> None:
    target = tmp_path / "quality.svg"
    _run("report", "fineweb-llama2", "c4-gpt2", "--plot", f"quality={target}")
    text = target.read_text(encoding="utf-8")
    for said in ("fineweb-llama2, λ = 0.1", "c4-gpt2, λ = 0.1", "0.000992", "0.9675", "additive 4p"):
        assert said in text


def test_the_grid_shows_the_runs_of_one_corpus_and_the_lowest_among_them() -> None:
    runs = pd.read_csv(RUNS)
    runs = runs[runs["weight_decay"] == 0.1]
    figure = evidence_plots.grid(Calibration.load("micro").setting(0.1), runs, 65536)
    left, right = figure.axes[:2]
    here = runs[runs["unique_tokens"] == 65536].groupby(["params", "epochs"])["loss"].mean()
    (star,) = [line for line in left.lines if line.get_marker() == "*"]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == here.idxmin()
    assert len(left.collections[-1].get_offsets()) == len(here)
    assert len(right.get_legend().get_texts()) == 6


def test_residuals_are_of_three_amounts_and_at_most_three_sizes() -> None:
    runs = pd.read_csv(RUNS)
    figure = evidence_plots.residuals(
        Calibration.load("micro").setting(0.1), runs[runs["weight_decay"] == 0.1]
    )
    assert len(figure.axes) == 3
    assert all(1 <= len(axis.get_legend().get_texts()) <= 3 for axis in figure.axes)
    assert all(axis.get_xscale() == axis.get_yscale() == "log" for axis in figure.axes)


def test_what_cannot_be_drawn_is_said_in_a_sentence(tmp_path: Path) -> None:
    runs, micro = pd.read_csv(RUNS), Calibration.load("micro").setting(0.1)
    with pytest.raises(InvalidInput, match="must be an amount that runs have"):
        evidence_plots.grid(micro, runs, 1e9)
    with pytest.raises(InvalidInput, match="contour lines take 6"):
        evidence_plots.grid(micro, runs, 1048576)
    with pytest.raises(InvalidInput, match="different numbers of epochs"):
        evidence_plots.residuals(micro, runs[runs["epochs"] == 1])
    for command, said in (
        (["fit", RUNS, "--plot", str(tmp_path / "grid.txt")], "--plot must name a .png, .svg or .pdf file"),
        (["report", "micro", "--plot", "grid=grid.png"], "--plot grid is of one calibration and its --runs"),
        (["report", "micro", "c4-gpt2"], "a report is about one calibration; got 2"),
        (["picture", "grid", RUNS, "-o", "grid.png"], "planner calibrate report CALIBRATION --runs RUNS"),
    ):
        refused = CliRunner().invoke(planner, ["calibrate", *command])
        assert refused.exit_code == 2
        assert said in refused.output


def test_a_fit_draws_what_it_has_fitted(tmp_path: Path) -> None:
    target = tmp_path / "fit.png"
    _run("fit", RUNS, "--bootstrap", "0", "--law", "additive_1p", "--plot", str(target))
    assert target.stat().st_size > 10_000
