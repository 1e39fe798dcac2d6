"""Choices, addresses and calls, without a browser."""

from __future__ import annotations

import gc
import json
import shlex
import tomllib
import weakref
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.few_runs import MICRO
from calibration import fit
from calibration.web import answers, markup, pictures, state
from calibration.web.compute_picture import loss_band
from calibration.web.drawing import Figure
from calibration.web.state import PRESETS
from calibration.web.store import IN_MEMORY, Store
from planner import Calibration, InvalidInput, plan
from planner.cli import planner
from planner.inputs import short
from planner.options import label
from planner.results import Plan
from planner.solve import Point
from tests.planner.test_members import with_members

CHOICES = [
    {},
    {"ud": "1B", "compute": "hours", "hours": "12", "gpu": "A100", "gpus": "4", "mfu": "35%", "price": "2"},
    {
        "ud": "100M",
        "flops": "5 EFLOP",
        "weight_decay": "0.1",
        "law": "additive_2p",
        "max_params": "1B",
        "max_epochs": "40",
    },
    {"ud": "2B", "flops": "1e17", "epochs": "continuous", "calibration": "c4-gpt2"},
    {"ud": "1e12", "flops": "1e20", "min_params": "1M"},
    {"compute": "budget_usd", "budget_usd": "200", "params": "556M"},
    {"ud": "1B", "compute": "target_loss", "target_loss": "3.0"},
    {"compute": "hours", "hours": "30", "tflops": "400", "memory": "48", "price": "1.2"},
    {"compute": "budget_usd", "budget_usd": "300", "params": "300M"},
    {"compute": "target_loss", "target_loss": "3.3", "weight_decay": "0.3"},
    {"compute": "hours", "hours": "10", "tflops": "400", "memory": "64", "price": "2"},
]


def of(**changes: str) -> state.Choices:
    return replace(state.DEFAULTS, **changes)


@given(
    st.fixed_dictionaries(
        {}, optional={name: st.text(max_size=20) for name in ("ud", "flops", "hours", "max_params", "price")}
    )
)
def test_an_address_reproduces_what_was_typed(typed: dict[str, str]) -> None:
    choices = of(**typed)
    restored, problems = state.from_query("?" + choices.query())
    assert restored == choices
    assert problems == []


def test_an_address_holds_only_what_differs_and_nothing_else_is_taken_from_it() -> None:
    assert state.DEFAULTS.query() == ""
    assert of(ud="500M", picture="terms").query() == "ud=500M&picture=terms"
    assert state.from_query("?__theme=dark&utm=1") == (state.DEFAULTS, [])
    earlier = state.from_query("?calibration=dial&law=dial_steep")
    assert earlier == (of(calibration="micro-weight-decay", law="weight_decay_steep"), [])
    assert state.from_query("?ud=1B" + "&utm=1" * 5000) == (of(ud="1B"), [])
    for query in (
        "?compute=magic",
        "?gpu=abacus",
        "?epochs=1",
        "?picture=x",
        "?law=best",
        "?ud=" + "9" * 500,
    ):
        restored, (problem,) = state.from_query(query)
        assert restored == state.DEFAULTS
        assert problem.endswith("the default is shown instead.")


@given(st.text(max_size=200))
def test_any_address_can_be_read(query: str) -> None:
    choices, _ = state.from_query(query)
    assert isinstance(choices, state.Choices)


@pytest.mark.parametrize("changes", CHOICES)
def test_python_and_command_line_give_the_plan_that_the_page_shows(
    changes: dict[str, str], tmp_path: Path
) -> None:
    found = answers.answer(of(**changes), Calibration.load(of(**changes).calibration))
    space: dict[str, Any] = {}
    exec(answers.as_python(found), space)
    assert space["p"] == found.plan
    words = shlex.split(answers.as_command(found))
    printed = CliRunner().invoke(planner, [*words[1:], "--json"]).output
    assert Plan.model_validate_json(printed) == found.plan


@pytest.mark.parametrize("changes", CHOICES)
def test_the_training_config_is_one_that_train_accepts(changes: dict[str, str], tmp_path: Path) -> None:
    found = answers.answer(of(**changes), Calibration.load(of(**changes).calibration))
    text, made = answers.as_training_config(found), found.plan
    values = tomllib.loads(text)
    assert values["unique_tokens"] * values["epochs"] == pytest.approx(made.tokens, rel=1e-6)
    assert values["weight_decay"] == made.weight_decay
    config = pytest.importorskip("trainer.config", reason="the trainer is not installed here")
    (tmp_path / "run.toml").write_text(text)
    run = config.RunConfig.from_toml(tmp_path / "run.toml")
    assert made.architecture is not None
    assert run.architecture(min(32_000, made.architecture.vocab_size)).params == made.architecture.params


def test_the_training_config_has_the_recipe_of_the_runs() -> None:
    found = answers.answer(
        of(calibration="micro-weight-decay", ud="128k", flops="1e12"), Calibration.load("micro-weight-decay")
    )
    values = tomllib.loads(answers.as_training_config(found))
    assert (values["init"], values["decay"], values["adam_eps"]) == ("scaled", "matrices", 1e-8)
    assert (values["learning_rate"], values["batch_size"], values["tokenizer"]) == (0.01, 4, "bpe:1024")


def test_intervals_can_come_later_and_change_nothing_else() -> None:
    known = _with_draws(Calibration.load())
    whole = answers.answer(state.DEFAULTS, known)
    quick = answers.answer(state.DEFAULTS, known, intervals=False)
    assert whole.complete
    assert not quick.complete
    assert quick.plan.intervals is None
    assert whole.plan == plan("250M", "5e18", calibration=known)
    kept = {"intervals", "interval_note"}
    assert quick.plan.model_dump(exclude=kept) == whole.plan.model_dump(exclude=kept)
    assert "95%: …" in markup.answer(quick)


def test_each_field_is_named_as_on_the_page() -> None:
    wrong = {
        "ud": "Unique tokens",
        "flops": "FLOPs",
        "gpus": "GPUs",
        "mfu": "MFU",
        "max_params": "Largest model",
        "min_params": "Smallest model",
        "max_epochs": "Most epochs",
        "price": "$ per GPU-hour",
    }
    for field, name in wrong.items():
        with pytest.raises(InvalidInput) as caught:
            answers.answer(of(**{field: "x"}), Calibration.load())
        assert caught.value.said(label).startswith(f"{name} must be")
    with pytest.raises(InvalidInput) as caught:
        answers.answer(of(compute="hours", hours=""), Calibration.load())
    assert caught.value.said(label).startswith("Hours on these GPUs must be")


def test_names_from_a_file_are_text_wherever_they_are_shown() -> None:
    name = "<script>alert(1)</script>\"'&"
    known = Calibration.load().model_copy(update={"name": name})
    found = answers.answer(of(calibration="own-1"), known)
    shown = (
        markup.answer(found)
        + markup.details(found)
        + markup.calls(found)
        + markup.note(name)
        + markup.cell_problems([(1, name, name, name)])
        + markup.fit_summary(known, [])
    )
    tags: set[str] = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            tags.add(tag)

    Tags().feed(shown)
    assert "script" not in tags
    assert "--calibration script-alert-1---script.json" in answers.as_command(found)


def test_a_calibration_without_the_chosen_law_or_weight_decay_says_so() -> None:
    known = Calibration.load("c4-muennighoff")
    choices, said = state.fitting(of(law="additive_4p", weight_decay="1.0"), known)
    assert (choices.law, choices.weight_decay) == ("", "")
    assert len(said) == 2
    between = of(weight_decay="0.3")  # what was calibrated at 0.1 and 1.0 can be interpolated
    assert state.fitting(between, Calibration.load()) == (between, [])


@pytest.mark.parametrize(
    "changes", [*CHOICES, {"weight_decay": "0.1", "flops": "1e22"}, {"max_params": "100M"}]
)
def test_every_picture_can_be_drawn_and_holds_the_plan(changes: dict[str, str]) -> None:
    known = Calibration.load(of(**changes).calibration)
    found = answers.answer(of(**changes), known)
    for name, draw in pictures.PICTURES.items():
        figure = draw(found)
        valid_plotly(figure)
        lines = [
            (t["line"].get("dash"), t["line"]["width"])
            for t in figure.data
            if t["mode"] == "lines" and "stackgroup" not in t
        ]
        assert len(set(lines)) == len(lines)  # who cannot tell the colours apart can tell the lines
        if name in ("isoflop", "crossover", "whatif", "decay"):
            plans = [t for t in figure.data if t["name"].startswith("the plan")]
            assert [t["y"][0] for t in plans] == [found.plan.loss]
    # The plan lies on the curve it is drawn with.
    curve = next(t for t in pictures.isoflop(found).data if t["mode"] == "lines" and "new" not in t["name"])
    assert np.interp(np.log(found.plan.epochs), np.log(curve["x"]), curve["y"]) == pytest.approx(
        found.plan.loss, abs=0.005
    )


def valid_plotly(figure: Figure) -> None:
    """That plotly knows every property, and that JSON is what browsers take for it."""
    graph_objects = pytest.importorskip("plotly.graph_objects", reason="plotly is not installed")
    graph_objects.Figure(json.loads(json.dumps(figure.plain(), allow_nan=False)))


def band_at_plan(p: Plan, known: Calibration, uniform_loss: float | None = None) -> tuple[float, float]:
    at = Point(*(np.array([value]) for value in (p.params, p.ud, p.epochs, p.spent_flops, p.loss)))
    band = loss_band(known.setting(p.weight_decay), p.law, at, uniform_loss or p.uniform_loss)
    assert band is not None
    _, low, high = band[:, 0]
    return low, high


def test_the_band_of_draws_is_the_interval_that_the_plan_gives_and_ends_at_the_uniform_loss() -> None:
    """Losses have draws of their own there."""
    runs = pd.read_csv(MICRO).query("weight_decay == 0.1 and epochs <= 4").sample(8, random_state=0)
    known = fit(runs, bootstrap=100, vocab_size=512)
    p = plan(24_576, 3e12, calibration=known, law="additive_4p", spend="all")
    interval = (p.intervals or {})["loss"]
    assert band_at_plan(p, known) == pytest.approx((interval.low, interval.high))
    between = 0.5 * (p.loss + interval.high)
    assert band_at_plan(p, known, uniform_loss=between) == pytest.approx((interval.low, between))


def test_the_band_of_the_refits_is_the_interval_that_the_plan_gives() -> None:
    known = Calibration.load("micro")
    found = answers.answer(of(ud="2M", flops="1e14", calibration="micro"), known)
    p, interval = found.plan, (found.plan.intervals or {})["loss"]
    assert band_at_plan(p, known) == pytest.approx((interval.low, interval.high))
    drawn = next(t for t in pictures.PICTURES["crossover"](found).data if t["name"] == "95% interval")
    half = len(drawn["x"]) // 2  # along the lower edge, and back along the upper one
    for side, end in ((slice(half), interval.low), (slice(None, half - 1, -1), interval.high)):
        at_plan = np.interp(np.log(p.spent_flops), np.log(drawn["x"][side]), drawn["y"][side])
        assert at_plan == pytest.approx(end, abs=0.005)


@pytest.mark.parametrize(
    "changes", [{"ud": "300k", "flops": "3e13", "calibration": "micro-weight-decay"}, {"ud": "100M"}]
)
def test_the_best_weight_decay_is_lowest_in_its_picture(changes: dict[str, str]) -> None:
    found = answers.answer(of(**changes), Calibration.load(of(**changes).calibration))
    figure = pictures.PICTURES["decay"](found)
    curve = next(t for t in figure.data if t["name"].startswith("the best plan"))
    assert min(curve["y"]) == pytest.approx(found.plan.loss, abs=1e-3)
    assert curve["x"][int(np.argmin(curve["y"]))] == pytest.approx(found.plan.weight_decay, rel=0.1)
    assert figure.layout["meta"] == {"field": "weight_decay", "at": found.plan.weight_decay}


@pytest.mark.parametrize(
    "changes",
    [
        {"weight_decay": "0.1"},
        {"weight_decay": "0.3", "flops": "1e20"},
        {"weight_decay": "1.0", "ud": "300k", "flops": "3e13", "calibration": "micro-weight-decay"},
        {"weight_decay": "0.1", "spend": "all", "flops": "1e19"},
    ],
)
def test_a_weight_decay_that_was_chosen_is_a_line_to_drag_through_the_plan(changes: dict[str, str]) -> None:
    """The curve spends by the rule of the plan, which may be more than the compute with the lowest loss."""
    found = answers.answer(of(**changes), Calibration.load(of(**changes).calibration))
    p, figure = found.plan, pictures.PICTURES["decay"](found)
    curve = next(t for t in figure.data if t["name"].startswith("the best plan"))
    assert curve["y"][curve["x"].index(p.weight_decay)] == pytest.approx(p.loss, abs=1e-6)
    solid = [one["x0"] for one in figure.layout["shapes"] if one["line"].get("dash") == "solid"]
    assert solid == [p.weight_decay] == [figure.layout["meta"]["at"]]
    best = answers.answer(of(**{**changes, "weight_decay": ""}), found.calibration).plan
    words = [note["text"] for note in figure.layout["annotations"]]
    assert f"best: {best.weight_decay:.2g}" in words


def test_a_caption_explains_what_was_drawn_and_nothing_else() -> None:
    asked = of(calibration="c4-muennighoff")
    bare = answers.answer(asked, Calibration.load("c4-muennighoff"))
    drawn = pictures.PICTURES["crossover"](bare)
    assert not any(str(trace["name"]).endswith("interval") for trace in drawn.data)
    assert "band" not in markup.caption(bare, drawn.drew)
    for changes in ({}, {"ud": "500M", "flops": "1e20"}, {"serve_tokens": "1B"}, {"epochs": "continuous"}):
        found = answers.answer(of(**changes), Calibration.load())
        drawn = pictures.PICTURES["crossover"](found)
        said = markup.caption(found, drawn.drew)
        shaded = any(shape["type"] == "rect" for shape in drawn.layout["shapes"])
        assert ("grey shade" in said) == shaded
        assert ("The band" in said) == any(str(t["name"]).endswith("interval") for t in drawn.data)
        assert ("kinks" in said) == (not changes.get("epochs"))


def test_hardware_that_nobody_named_is_only_an_example_of_the_cost() -> None:
    """Compute in FLOPs is not a time on accelerators."""
    for changes in ({}, {"compute": "target_loss"}):
        found = answers.answer(of(**changes), Calibration.load())
        assert "H100" not in found.plan.budget + answers.as_command(found) + answers.question(found)
        assert "Cost, for example" in markup.answer(found)
        assert "on 8 × H100" in markup.answer(found)
    for changes in ({"gpus": "4"}, {"mfu": "0.3"}, {"compute": "hours"}, {"price": "2"}):
        found = answers.answer(of(**changes), Calibration.load())
        assert "H100" in found.plan.budget
        assert "--gpu H100" in answers.as_command(found)
        assert "Cost, about" in markup.answer(found)


def test_options_of_a_shell_are_fields_of_the_page() -> None:
    said = markup.in_fields("The rest, as 8 models, may reach 2.9 in 3 days (--members auto).")
    assert said == "The rest, as 8 models, may reach 2.9 in 3 days (Members: auto)."
    assert markup.in_fields("--serve-tokens 1T") == "Tokens to serve: 1T"


def test_columns_that_are_missing_are_asked_for_one_by_one_in_the_words_of_the_page() -> None:
    told = (
        "t.csv has no column params and no column unique_tokens and no column epochs (or tokens); it has "
        "modelsize, corpus, passes, wd, ppl; ‹columns› params=NAME says which it is"
    )
    decay = "t.csv has no column weight_decay; add it, or say which one all runs used: ‹weight_decay› 0.1"
    said = markup.column_problems([("params", told), ("weight_decay", decay)])
    assert list(said) == ["params", "unique_tokens", "epochs", "weight_decay"]
    assert said["params"].startswith("parameters cannot be found among the columns (modelsize, corpus, ")
    assert said["epochs"].startswith("epochs or training tokens cannot be found either")
    assert not any(
        raw in " ".join(said.values()) for raw in ("‹", "NAME", "params", "unique_tokens", "weight_decay")
    )
    near = "t.csv has no column weight_decay; group0_wd may be it; say so: ‹columns› weight_decay=group0_wd"
    (asked,) = markup.column_problems([("weight_decay", near)]).values()
    assert asked.endswith("group0_wd may be it; say so: write 'group0_wd' for weight decay")
    for sentence, wanted in {
        "read params from config.n_params, loss from val/loss": "read parameters from config.n_params, loss",
        "params look like millions: ‹columns› 'params=size_m*1e6'": "parameters look like millions: write "
        "'size_m*1e6' for parameters",
        "left out (‹where› 'steps > 0' keeps them)": "left out (Only runs where 'steps > 0' keeps them)",
    }.items():
        assert markup.as_page_words(sentence).startswith(wanted)
    assert markup.not_taken(
        "takes unique_tokens from 'corpsu' and loss from 'a and b'; t.csv has corpus."
    ) == {
        "unique_tokens": "unique tokens cannot be taken from 'corpsu'; t.csv has corpus.",
        "loss": "validation loss cannot be taken from 'a and b'; t.csv has corpus.",
    }
    assert markup.not_taken("the table has 3 runs; the page works with more.") == {}


def test_forms_that_disagree_are_in_the_picture_and_next_to_the_size() -> None:
    found = answers.answer(of(ud="180M", flops="2.3e20"), Calibration.load())
    rings = next(t for t in pictures.PICTURES["crossover"](found).data if t["name"] == "plans of other laws")
    assert set(rings["y"]) <= {other.expected_loss for other in found.plan.other_laws}
    sizes = sorted(other.params for other in found.plan.other_laws)
    assert f"other laws: {short(sizes[0])} to {short(sizes[-1])}" in markup.answer(found)


def test_what_an_ensemble_would_buy_is_said_where_a_calibration_knows() -> None:
    asked = {"ud": "65536", "flops": "3e12", "calibration": "own-1"}
    known = with_members()
    one = answers.answer(of(**asked), known)
    several = answers.answer(of(**asked, members="auto"), known)
    best = several.plan.members
    assert best is not None
    assert best.count > 1
    assert f"would reach {several.plan.loss:.3f}" in markup.details(one)
    assert f"{best.count} whose probabilities are averaged" in markup.details(several)
    assert f"One of {best.count} members" in answers.as_training_config(several)
    assert "--members auto" in answers.as_command(several)
    for draw in pictures.PICTURES.values():
        valid_plotly(draw(several))
    curve = next(t for t in pictures.isoflop(several).data if t["mode"] == "lines" and "new" not in t["name"])
    assert curve["y"][curve["x"].index(several.plan.epochs)] == pytest.approx(several.plan.loss, abs=1e-6)
    assert "nsemble" not in markup.details(answers.answer(state.DEFAULTS, Calibration.load()))


def test_what_is_going_to_be_served_counts() -> None:
    found = answers.answer(of(serve_tokens="1B"), Calibration.load())
    assert found.plan == plan("250M", "5e18", serve_tokens="1B")
    assert found.plan.serving is not None
    assert f"{found.plan.serving.share:.0%} of" in markup.details(found)
    for draw in pictures.PICTURES.values():
        valid_plotly(draw(found))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ud": "180M", "flops": "2.3e20"},
        {"flops": "1e20", "spend": "all"},
        {"ud": "500M", "flops": "1e19"},
    ],
)
def test_text_and_picture_agree_on_what_twice_as_much_buys(changes: dict[str, str]) -> None:
    found = answers.answer(of(**changes), Calibration.load())
    value = found.plan.marginal_value
    diamonds = [t for t in pictures.whatif(found).data if t.get("marker", {}).get("symbol") == "diamond"]
    data, compute = (t["y"][0] - found.plan.loss for t in diamonds[:2])
    assert (data, compute) == pytest.approx((value.loss_if_twice_the_data, value.loss_if_twice_the_compute))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"ud": "500M", "flops": "1e19"},
            "stop by 3.25e19 at weight decay 1.0:<br>no gain expected from more",
        ),
        (
            {"ud": "500M", "flops": "1e19", "weight_decay": "0.1"},
            "stop by 1.16e19 at weight decay 0.1:<br>no gain expected from more",
        ),
        (
            {"ud": "250M", "flops": "5e18", "weight_decay": "0.1"},
            "3.71e18 would do as well<br>at weight decay 0.1",
        ),
        ({"ud": "100M", "flops": "1.7783e18"}, "1.53e18 would do as well<br>at weight decay 1.0"),
        (
            {"ud": "250M", "flops": "1e19", "weight_decay": "0.1", "spend": "all"},
            "3.71e18 would be better<br>at weight decay 0.1",
        ),
        (
            {"ud": "500M", "flops": "1e21", "spend": "all"},
            "from 3.25e19 at weight decay 1.0<br>no gain until",
        ),
        ({"ud": "500M", "flops": "1e20"}, "stop here"),
    ],
)
def test_the_picture_says_where_to_stop_as_the_text_does(changes: dict[str, str], said: str) -> None:
    found = answers.answer(of(**changes), Calibration.load())
    drawn = pictures.PICTURES["crossover"](found).plain()
    words = [note["text"] for note in drawn["layout"]["annotations"]]
    assert any(text.startswith(said) for text in words), words
    if not said.startswith("stop"):
        assert not any("stop" in text for text in words)


@pytest.mark.parametrize("ud", ["50M", "250M", "500M", "1B", "1.5B"])
@pytest.mark.parametrize("flops", ["1e17", "5e18", "1e19", "4.2e19", "1e21"])
def test_no_curve_falls_in_the_shade(ud: str, flops: str) -> None:
    """Where more compute is said not to help, none of the weight decays that may be chosen goes lower; where
    the plan stops, none by more than the law's error.
    """
    found = answers.answer(of(ud=ud, flops=flops), Calibration.load())
    drawn = pictures.PICTURES["crossover"](found).plain()
    shades = [one for one in drawn["layout"]["shapes"] if one["type"] == "rect"]
    curves = [one for one in drawn["data"] if str(one.get("name")).startswith("weight decay")]
    assert curves
    for shade in shades:
        x, y = (np.array([one[axis] for one in curves], dtype=float) for axis in "xy")
        start, inside = x[0] <= shade["x0"] * 1.001, (x[0] > shade["x0"]) & (x[0] < shade["x1"] / 1.3)
        before, after = y[:, start].min(), y[:, inside]
        p = found.plan
        assert p.predictive_uncertainty is not None
        gain = p.predictive_uncertainty.error if p.unused_flops else 0.003  # of a whole number of epochs
        assert not after.size or after.min() > before - gain


def test_a_pinned_plan_stands_next_to_the_new_one_in_words_and_picture() -> None:
    known = Calibration.load()
    other = answers.answer(of(ud="500M"), known)
    found = replace(answers.answer(of(ud="180M"), known), pinned=other)
    shown = markup.details(found)
    assert f"{other.plan.loss:.4f}" in shown
    assert f"{found.plan.loss:.4f}" in shown
    ghost = next(t for t in pictures.PICTURES["crossover"](found).data if t["name"] == "pinned plan")
    assert (ghost["x"][0], ghost["y"][0]) == (other.plan.spent_flops, other.plan.loss)
    assert "pinned" not in markup.details(answers.answer(of(ud="180M"), known))


def test_every_example_is_a_plan() -> None:
    for title, chosen in PRESETS.items():
        restored, problems = state.from_query(chosen.query())
        assert (restored, problems) == (chosen, []), title
        assert answers.answer(chosen, Calibration.load()).plan.verdict.startswith("Train")


def _with_draws(known: Calibration) -> Calibration:
    rng = np.random.default_rng(0)
    raw = known.model_dump()
    for setting in raw["settings"]:
        laws = {
            form: {
                k: (v * np.exp(0.001 * rng.standard_normal(20))).tolist()
                for k, v in law["parameters"].items()
            }
            for form, law in setting["laws"].items()
        }
        setting["ensemble"] = {"method": "made up for a test", "laws": laws}
    return Calibration.model_validate(raw)


def test_every_choice_has_a_name_in_the_address() -> None:
    assert tuple(field.name for field in fields(state.Choices)) == state.NAMES


@pytest.mark.parametrize(
    ("name", "ud", "flops"), [("micro-weight-decay", 1e5, 1e12), ("micro", 1e5, 1e12), (None, 2e8, 1e19)]
)
def test_a_calibration_that_had_to_go_is_remembered_nowhere(
    name: str | None, ud: float, flops: float, tmp_path: Path
) -> None:
    kept = Store(tmp_path)
    known = Calibration.load(name).model_copy(update={"name": "a stranger's"}, deep=True)
    plan(ud, flops, calibration=known)
    seen = weakref.ref(known)
    kept.add(known)
    del known
    gc.collect()
    assert seen() is not None
    for number in range(IN_MEMORY):
        kept.add(Calibration.load().model_copy(update={"name": f"another {number}"}))
    gc.collect()
    assert seen() is None
