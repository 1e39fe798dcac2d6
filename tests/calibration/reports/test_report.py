"""The report: one page that needs nothing else, escapes what
it did not write, and works with whatever a calibration has.
"""

import re
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from benchmarks.simulated import grid_table
from calibration import allocation_intervals, fit
from calibration.commands.report import report as command
from calibration.fitting.evaluate.summary import example_question
from calibration.fitting.runs.checks import RunTableError
from calibration.fitting.runs.tables import read_runs
from calibration.reports import evidence_plots, fit_plots
from calibration.reports.document import Section, paragraph, table
from calibration.reports.report import SECTIONS, about, report
from planner import plan
from planner.calibration import Calibration, shipped_names
from planner.inputs import InvalidInput, scientific, short
from planner.laws import FORMS, parameter_names
from planner.show.palette import law_colour, law_label

LAWS = {decay: Calibration.load("fineweb-llama2").law(decay, "additive_4p") for decay in (0.1, 1.0)}


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = [grid_table(law, 60, 0.005, rng, weight_decay=decay) for decay, law in LAWS.items()]
    return read_runs(
        pd.concat([part.assign(run=part["run"] + f"-{k}") for k, part in enumerate(parts)], ignore_index=True)
    )


@pytest.fixture(scope="module")
def calibration(runs: pd.DataFrame) -> Calibration:
    made = fit(
        runs, prior="none", bootstrap=40, name="mine", corpus="<script>alert('corpus')</script> & more"
    )
    method = {"not_identified": {"additive_2p": "runs <too> alike"}}
    first = made.settings[0].model_copy(update={"method": method})
    return made.model_copy(update={"settings": (first, *made.settings[1:])})


@pytest.fixture(scope="module")
def told() -> list[float]:
    """What the page said of its progress while it was made."""
    return []


@pytest.fixture(scope="module")
def html(calibration: Calibration, runs: pd.DataFrame, told: list[float]) -> str:
    return report(calibration, runs, progress=lambda what, share: told.append(share))


class Checker(HTMLParser):
    """Collects tags, and complains about anything that would need the network."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        assert tag not in ("script", "link", "iframe", "object")
        for name, value in attrs:
            if name in ("src", "href", "xlink:href"):
                assert value.startswith(("#", "data:")), value
        if tag not in ("meta", "br", "path", "use", "rect", "image", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()


def check_page(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    assert html.startswith("<!doctype html>")
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert checker.open == []
    return checker


@pytest.mark.slow
def test_the_page_is_whole_and_self_contained(html):
    checker = check_page(html)
    # allocation; predictions, residuals and clouds per weight decay
    assert checker.tags.count("svg") == 1 + 3 * 2
    for title in (
        "Allocation",
        "How well the laws fit",
        "Predicted against observed",
        "What repetition costs",
        "Parameters",
        "Runs",
    ):
        assert f"<h2>{title}</h2>" in html
    assert "prefers-color-scheme:dark" in html
    assert 'name="viewport"' in html


@pytest.mark.slow
def test_the_page_opens_with_its_verdict_and_a_table_of_contents(html, calibration):
    top = html.partition('<nav aria-label="Contents">')[0]
    opening = unescape(re.search(r'</h1><p class="verdict">(.*?)</p>', top)[1])
    assert f"plan with {law_label(calibration.default_law)}." in opening
    worst = max(s.laws[calibration.default_law].metrics["held_out_error"] for s in calibration.settings)
    assert f"off by {worst:.1%} of the loss" in opening
    titles, linked = re.findall(r'<section id="(s\d+)"><h2>', html), re.findall(r'<a href="#(s\d+)">', html)
    assert titles == linked
    ud, flops = example_question(calibration)
    found = plan(ud, flops, calibration=calibration)
    assert f"{short(ud)} unique tokens and {scientific(flops)} FLOPs: t{found.verdict[1:]}" in opening
    assert f"loss of {found.loss:.3f}" in opening
    for warning in (warning for warning in found.warnings if "shape" not in warning):
        assert escape(warning[1:]) in top
    other = report(calibration, law="additive_2p", sections=[])
    assert "This report is about additive 2p; " in other


@pytest.mark.slow
def test_every_colour_has_one_for_dark_paper(html):
    dark = re.search(r"@media \(prefers-color-scheme:dark\)\{(svg .*?)</style>", html)[1]
    drawn = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", re.sub(r"<style>.*?</style>", "", html)))
    assert law_colour("additive_4p") in drawn
    for colour in drawn - {"#000000", "#ffffff"}:  # what matplotlib itself writes of areas that are not shown
        assert f": {colour}" in dark, colour


@pytest.mark.slow
def test_the_page_says_why_and_how_well(calibration, html, told):
    assert escape(calibration.recommendation["reason"]) in html
    assert "<h2>How the fits converged</h2>" in html
    for text in (
        "starts at the optimum",
        "gradient norm",
        "nearly flat along",
        "40 of 40",
        "runs &lt;too&gt; alike",
    ):
        assert text in html
    assert told == sorted(told)
    assert len(told) == len(SECTIONS)


@pytest.mark.slow
def test_text_from_files_is_escaped(html):
    assert "<script" not in html
    assert "&lt;script&gt;alert(&#x27;corpus&#x27;)&lt;/script&gt; &amp; more" in html
    assert "<b>" not in table(("<b>",), [("<b>", "<b>")]) + paragraph("<b>")


@pytest.mark.slow
def test_the_ink_follows_the_theme(html):
    assert fit_plots.INK not in html
    assert "currentColor" in html


@pytest.mark.slow
def test_the_same_input_gives_the_same_page(calibration, runs, html):
    assert report(calibration, runs) == html


@pytest.mark.slow
def test_without_runs_and_without_an_ensemble(calibration):
    html = report(calibration)
    assert "Predicted against observed" not in html
    check_page(html)
    for name in shipped_names():
        check_page(report(Calibration.load(name)))


def test_the_question_is_the_largest_budget_of_the_runs_unless_another_is_asked(calibration, runs):
    largest = (6 * runs["params"] * runs["unique_tokens"] * runs["epochs"]).max()
    ud, flops = example_question(calibration)
    assert flops == pytest.approx(largest, rel=0.05)
    assert ud == pytest.approx(runs["unique_tokens"][runs["epochs"] > 1].max(), rel=0.005)
    html = report(calibration, ud="250M", flops="5e18", sections=[])
    assert escape(f"FLOPs: t{plan(250e6, 5e18, calibration=calibration).verdict[1:]}") in html
    with pytest.raises(InvalidInput, match="flops must be"):
        report(calibration, flops="many")


def test_one_recommendation_and_every_warning_on_top(runs):
    """Where forms are averaged that is what is recommended, and nothing else."""
    weights = {"additive_4p": 0.7, "additive_2p": 0.3}
    known = Calibration.load("fineweb-llama2")
    first, second = known.settings
    first = first.changed(law_weights=weights, warnings=["<of> both.", "Of one."])
    second = second.changed(law_weights=weights, warnings=["<of> both."])
    averaged = known.changed(settings=(first, second), left_out={"0.3": "too few runs"})
    html = report(averaged, sections=[about])
    top, rest = html.split("<nav ")
    said = "the average of 2 forms (additive 4p 70%, additive 2p 30%)"
    assert f"plan with {said}." in top
    assert f'<th scope="row">recommended</th><td>{said}</td>' in rest
    assert "<of>" not in top
    assert top.count("<li>&lt;of&gt; both.</li>") == 1
    assert "<li>At weight decay 0.1: Of one.</li>" in top or "<li>Of one.</li>" in top
    assert "<li>Weight decay 0.3 is left out" in top
    fewer = first.changed(fitted_on=first.fitted_on.changed(runs=7))
    few = report(averaged.changed(settings=(fewer,)), runs, sections=[])
    assert "60 runs are given at weight decay 0.1, the law was fitted to 7" in few.split("<nav ")[0]


def test_intervals_of_an_allocation_have_the_discrepancy(calibration):
    setting = calibration.settings[0]
    off = setting.draws.changed(discrepancy={"additive_4p": [0.1, -0.1] * 20})
    wider = setting.changed(draws=off)
    plain, wide = (
        fit_plots.allocation_band(one, "additive_4p", 250e6, np.array([5e18])) for one in (setting, wider)
    )
    found = allocation_intervals(wider, "additive_4p", 250e6, 5e18)
    assert wide["loss"][:, 0] == pytest.approx([found["loss"].low, found["loss"].high])
    assert np.ptp(wide["loss"]) > np.ptp(plain["loss"])
    np.testing.assert_array_equal(wide["params"], plain["params"])


def test_sections_can_be_added(calibration):
    def mine(subject):
        return Section("A study of <mine>", paragraph(f"on {subject.calibration.name}"))

    html = report(calibration, sections=[*SECTIONS[:1], mine, lambda subject: None])
    assert "<h2>A study of &lt;mine&gt;</h2><p>on mine</p>" in html


def test_mistakes_are_named(calibration, runs):
    with pytest.raises(InvalidInput, match="none of the runs has a weight decay"):
        report(calibration, runs.assign(weight_decay=0.7))
    with pytest.raises(InvalidInput, match="law must be one of"):
        report(calibration, law="magic")
    with pytest.raises(InvalidInput, match="ud must be a number"):
        report(calibration, ud="many")


def test_the_shared_exponent_is_recovered():
    """Residuals that are exactly P R^1.6 per cell give 1.6."""
    law = LAWS[0.1]
    rng = np.random.default_rng(1)
    table_ = grid_table(law, 80, 0.0, rng)
    repeats = np.maximum(table_["epochs"] - 1, 0)
    base = law.base().loss(table_["params"], table_["unique_tokens"], table_["epochs"])
    found = evidence_plots.shared_exponent(law, table_.assign(loss=base + 1e-3 * repeats**1.6))
    assert found is not None
    assert found.delta == pytest.approx(1.6, abs=1e-3)
    assert evidence_plots.shared_exponent(law, table_[table_["epochs"] == 1]) is None


def test_one_run_that_did_worse_shows_no_slope():
    """Of each cell only its longest run is above the base law."""
    law = LAWS[0.1]
    at = {"params": 1e8, "unique_tokens": 1e8, "weight_decay": 0.1}
    table_ = pd.DataFrame([{**at, "epochs": epochs, "tokens": 1e8 * epochs} for epochs in (2.0, 8.0)])
    base = law.base().loss(table_["params"], table_["unique_tokens"], table_["epochs"])
    setting = Calibration.load().setting(0.1)
    assert isinstance(evidence_plots.residuals(setting, table_.assign(loss=base + 0.1)), Figure)
    with pytest.raises(InvalidInput, match="did worse than the base law"):
        evidence_plots.residuals(setting, table_.assign(loss=base + np.array([-0.1, 0.1])))


@pytest.mark.parametrize(
    "draw", [fit_plots.predicted_observed, evidence_plots.residuals, fit_plots.fit_quality]
)
def test_pictures_do_not_touch_global_state(calibration, runs, draw):
    import matplotlib

    before = dict(matplotlib.rcParams)
    setting = calibration.settings[0]
    arguments = (setting, runs[runs["weight_decay"] == setting.weight_decay])
    if draw is fit_plots.fit_quality:
        arguments = ([("mine", setting)], ["huber"])
    assert isinstance(draw(*arguments), Figure)
    assert dict(matplotlib.rcParams) == before


def wild_calibration(rng: np.random.Generator) -> Calibration:
    """A valid calibration whose numbers make no sense at all."""

    def parameters(form: str, shape: tuple[int, ...] = ()) -> dict:
        decades = {
            "E": (-3, 2),
            "A": (-6, 8),
            "B": (-6, 8),
            "P": (-20, 5),
            "R_D_star": (-2, 8),
            "R_N_star": (-2, 8),
        }
        values = {
            name: 10 ** rng.uniform(*decades.get(name, (-2, 0.8)), shape) for name in parameter_names(form)
        }
        return {name: value.tolist() if shape else float(value) for name, value in values.items()}

    forms = [form for form in FORMS if rng.random() < 0.6] or ["chinchilla"]
    setting = {
        "weight_decay": 0.1,
        "fitted_on": {
            name: sorted((10 ** rng.uniform(3, 12, 2)).tolist())
            for name in ("params", "unique_tokens", "epochs")
        },
        "laws": {
            form: {"parameters": parameters(form), "metrics": {"huber": float(rng.normal())}}
            for form in forms
        },
    }
    if rng.random() < 0.6:
        setting["ensemble"] = {"method": "", "laws": {form: parameters(form, (5,)) for form in forms}}
    return Calibration.model_validate({"name": "wild", "default_law": forms[0], "settings": [setting]})


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_calibration_and_any_runs_give_a_page(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 9))
    wild = pd.DataFrame(
        {
            "run": [str(i) for i in range(size)],
            "params": 10 ** rng.uniform(3, 11, size),
            "unique_tokens": 10 ** rng.uniform(3, 11, size) if rng.random() < 0.7 else 1e7,
            "epochs": rng.choice([0.3, 1.0, 2.0, 4.0, 100.0], size),
            "weight_decay": 0.1,
            "loss": 10 ** rng.uniform(-1, 1, size),
        }
    )
    try:
        table = read_runs(wild)
    except RunTableError:  # where sizes and tokens cannot be in one unit
        reject()
    check_page(report(wild_calibration(rng), table))


@pytest.mark.slow
def test_the_command(calibration, runs, tmp_path):
    calibration.save(tmp_path / "my.json")
    runs.to_csv(tmp_path / "runs.csv", index=False)
    out = tmp_path / "report.html"
    options = [
        str(tmp_path / "my.json"),
        "--runs",
        str(tmp_path / "runs.csv"),
        "--ud",
        "250M",
        "-o",
        str(out),
    ]
    done = CliRunner().invoke(command, options)
    assert done.exit_code == 0, done.output
    check_page(out.read_text(encoding="utf-8"))
    assert "Warning" not in done.stderr
    fewer = CliRunner().invoke(command, [*options, "--max-epochs", "4"])
    assert fewer.exit_code == 0
    assert "the law was fitted to 60; the same --max-epochs and --where" in fewer.stderr
    named = runs.rename(columns={"params": "size", "loss": "score"}).assign(state="finished")
    named.loc[len(named)] = {"run": "lost", "state": "crashed", "weight_decay": 0.1}
    named.to_csv(tmp_path / "named.csv", index=False)
    how = {"columns": "params=size,loss=score", "where": "weight_decay < 2", "drop_missing": True}
    known = fit(tmp_path / "named.csv", prior="none", laws="chinchilla", bootstrap=0, name="n", **how)
    known.save(tmp_path / "named.json")
    again = [str(tmp_path / name) for name in ("named.json", "named.csv", "named.html")]
    same = CliRunner().invoke(command, [again[0], "--runs", again[1], "-o", again[2]])
    assert same.exit_code == 0, same.output
    said = "Read as for the fit: --columns params=size,loss=score --where 'weight_decay < 2' --drop-missing\n"
    assert said in same.stderr
    assert "Left out 1 of" in same.stderr
    assert "Warning" not in same.stderr
    before = (tmp_path / "my.json").read_bytes()
    for taken in ("my.json", "runs.csv"):
        refused = CliRunner().invoke(command, [*options[:-1], str(tmp_path / taken)])
        assert refused.exit_code == 2
        assert "it is the input" in refused.stderr
    assert (tmp_path / "my.json").read_bytes() == before
    for bad in (
        ["none.json"],
        [*options[:1], "--runs", "none.csv"],
        [*options[:1], "-o", str(tmp_path / "no" / "x.html")],
    ):
        refused = CliRunner().invoke(command, bad)
        assert refused.exit_code == 2
        assert refused.stderr.startswith("Error: ")
        assert "Traceback" not in refused.output


def test_parameters_of_every_form_are_drawn(runs: pd.DataFrame) -> None:
    (setting,) = fit(runs[runs["weight_decay"] == 0.1], weight_decay_law="none").settings
    assert {*FORMS} == {*setting.laws}
    for form in FORMS:
        assert len(fit_plots.parameter_clouds(setting, form).axes) >= 2
