"""`planner calibrate fit` and `compare`: files in, files and
sentences out, exit code 2 with one sentence on bad input.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.simulated import grid_table
from calibration.commands import calibrate
from calibration.commands.fit import _between
from calibration.fitting.evaluate.summary import example_question
from planner.calibration import Calibration, FittedLaw
from planner.inputs import count
from planner.plans import plan

PAPER = Calibration.load("fineweb-llama2")


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(calibrate, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = [
        grid_table(PAPER.law(d, "additive_4p"), 60, 0.004, np.random.default_rng(2), weight_decay=d)
        for d in (0.1, 1.0)
    ]
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    pd.concat(tables).assign(run=lambda frame: [f"r{i}" for i in range(len(frame))]).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def calibration(table: Path) -> Path:
    out = table.parent / "mine.json"
    result = run("fit", table, "--bootstrap", 20, "-o", out)
    assert result.exit_code == 0, result.output
    return out


def test_fit_writes_a_calibration_that_can_be_planned_with(calibration: Path) -> None:
    found = Calibration.load(calibration)
    assert found.name == "runs"
    assert found.weight_decays == (0.1, 1.0)
    assert found.settings[0].draws is not None
    from planner.solve import allocate

    best = allocate(found.law(0.1), 250e6, 5e18)
    assert best.params == pytest.approx(667e6, rel=0.3)


def test_fit_shows_why_a_law_is_recommended(table: Path) -> None:
    result = run("fit", table, "--law", "additive_1p", "--law", "additive_4p", "--bootstrap", 0)
    assert result.exit_code == 0, result.output
    for text in (
        "weight decay 0.1",
        "weight decay 1",
        "held out",
        "additive_4p",
        "AICc",
        "Recommended: additive_4p",
    ):
        assert text in result.output


@pytest.mark.parametrize("columns", ["79", "100", None])
def test_a_fit_begins_with_what_it_comes_to_within_the_terminals_width(
    table: Path, tmp_path: Path, columns: str | None
) -> None:
    arguments = ["fit", table, "--law", "additive_1p", "--law", "additive_4p", "--bootstrap", 20]
    command = [str(word) for word in [*arguments, "-o", tmp_path / "my.json"]]
    result = CliRunner(env={"COLUMNS": columns}).invoke(calibrate, command)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Recommended: ")  # nothing here to be careful about
    conclusion, _, details = result.stdout.partition("\n\n")
    said = " ".join(conclusion.split())
    first = plan(
        *example_question(found := Calibration.load(tmp_path / "my.json")), calibration=found
    ).verdict
    assert f"FLOPs: t{first[1:]}" in said
    assert "On runs left out of the fit it is off by " in said
    assert "planner plan --calibration" in said
    assert details.startswith("weight decay 0.1: ")
    long = [line for line in result.output.splitlines() if len(line) > int(columns or 100)]
    assert [line for line in long if "my.json" not in line] == []  # a path stays whole, to be pasted


def test_a_fit_says_first_what_to_be_careful_about(table: Path, tmp_path: Path) -> None:
    few = pd.read_csv(table)[lambda runs: runs["epochs"] <= 1].groupby("weight_decay").head(3)
    few.to_csv(tmp_path / "few.csv", index=False)
    result = run("fit", tmp_path / "few.csv", "--bootstrap", 20)
    assert result.stdout.startswith("Careful: ")
    assert result.stdout.index("Careful: ") < result.stdout.index("Recommended: ")


def test_fit_prints_intervals_and_marks_open_ends(table: Path) -> None:
    result = run("fit", table, "--law", "additive_1p", "--bootstrap", 30)
    assert re.search(r"P 0\.\d+ \(0\.\d+ to 0\.\d+\)", result.output), result.output
    assert "±" not in result.output
    law = FittedLaw(
        parameters={"R_N_star": 9.0},
        intervals={"R_N_star": [2.0, 9.0, 1e4]},
        convergence={"refits": {"open": {"R_N_star": ["above"]}}},
    )  # type: ignore[call-arg]
    assert _between(law, "R_N_star") == " (2 to ≥ 1e+04)"


def test_fit_json_is_the_calibration(table: Path) -> None:
    result = run(
        "fit",
        table,
        "--law",
        "additive_1p",
        "--bootstrap",
        5,
        "--json",
        "--name",
        "j",
        "--corpus",
        "generated",
    )
    found = Calibration.model_validate(json.loads(result.output))
    assert (found.name, found.corpus) == ("j", "generated")


def test_the_input_is_never_changed(table: Path) -> None:
    before = table.read_bytes()
    run("fit", table, "--law", "additive_1p", "--bootstrap", 0, "--max-epochs", 8, "--where", "params > 2e7")
    assert table.read_bytes() == before


def test_the_input_is_never_written_to(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t.csv"
    copy.write_bytes(table.read_bytes())
    (tmp_path / "link.csv").symlink_to(copy)
    for out in (copy, tmp_path / "link.csv", tmp_path / "." / "t.csv"):
        refused = run("fit", copy, "--law", "additive_1p", "--bootstrap", 0, "-o", out)
        assert refused.exit_code == 2
        assert "it is the input" in refused.stderr
    assert copy.read_bytes() == table.read_bytes()


def test_a_file_that_cannot_be_written_loses_no_result(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = run("fit", table, "--law", "additive_1p", "--bootstrap", 0, "-o", tmp_path / "x.json")
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert "Recommended: " in result.stdout


def test_the_closing_hint_is_a_plan_inside_the_fitted_range(calibration: Path, table: Path) -> None:
    result = run(
        "fit", table, "--law", "additive_1p", "--bootstrap", 0, "-o", calibration.with_name("hint.json")
    )
    ud, flops = re.search(r"--ud (\S+) --flops (\S+)", result.output).groups()  # type: ignore[union-attr]
    assert "--vocab 32100" in result.output
    low, high = Calibration.load(calibration).settings[0].fitted_on.unique_tokens
    assert low <= count(ud, "ud") <= high
    assert float(flops) > 0


def test_the_closing_hint_can_be_pasted_whatever_the_path(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "our law's.json"
    result = run("fit", table, "--law", "additive_1p", "--bootstrap", 0, "-o", target)
    hint = next(line for line in result.output.splitlines() if "planner plan" in line)
    words = shlex.split(hint[hint.index("planner plan") :])
    assert words[:4] == ["planner", "plan", "--calibration", str(target)]
    assert words[4::2] == ["--ud", "--flops"]


def test_filters_choose_rows(table: Path) -> None:
    result = run("fit", table, "--law", "additive_1p", "--bootstrap", 0, "--max-epochs", 8, "--json")
    assert Calibration.model_validate(json.loads(result.output)).settings[0].fitted_on.epochs[1] == 8


def test_compare_two_weight_decays_of_one_file() -> None:
    result = run("compare", "fineweb-llama2")
    assert result.exit_code == 0
    assert "70% less" in result.output
    everything = result.output
    assert "additive_4p, at" in everything.splitlines()[0]  # the recommended form leads
    assert "additive_4p (recommended)" in everything
    assert "published median absolute deviations" in everything
    assert "no draws in at least one of the two" in everything


def test_compare_two_files_as_json(calibration: Path) -> None:
    result = run(
        "compare", calibration, "fineweb-llama2", "--weight-decay", "0.1", "--law", "additive_4p", "--json"
    )
    (found,) = json.loads(result.output)
    assert found["ratio"] == pytest.approx(1.0, abs=0.3)  # the same law, fitted and published


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "missing.csv"], "missing.csv"),
        (["compare", "missing.json"], "neither a file nor a shipped name"),
        (["compare", "fineweb-llama2", "--weight-decay", "0.1"], "name two of them"),
        (["compare", "fineweb-llama2", "fineweb-llama2"], "choose with --weight-decay"),
        (
            ["compare", "fineweb-llama2", "--weight-decay", "0.1", "--weight-decay", "2"],
            "--weight-decay must be within",
        ),
        (["compare", "a", "b", "c"], "neither a file"),
        (["compare", "fineweb-llama2", "--law", "chinchilla"], "no overfitting penalty"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output + result.stderr


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--law", "kaplan", "--law must be one of"),
        ("--delta", "loud", "--delta must be a number"),
        ("--bootstrap", "1", "--bootstrap must be 0"),
        ("--resample", "rows", "'rows' is not one of"),
        ("--scheme", "wild", "'wild' is not one of"),
        ("--seed", "-1", "--seed must be"),
        ("--max-epochs", "few", "--max-epochs must be"),
        ("--where", "params >", "--where cannot be read"),
        ("--out", "/no/such/folder/x.json", "cannot write"),
        ("--output", "/", "it is a folder"),
        ("--weight-decay", "0.1", "--weight-decay 0.1 was given for runs that do not say theirs"),
        ("--where", "params > 1e15", "after --where 'params > 1e15'"),
        ("--vocab-size", "-5", "--vocab-size must be"),
        ("--name", " ", "--name must be"),
    ],
)
def test_bad_options_of_fit_are_named(table: Path, option: str, value: str, message: str) -> None:
    result = run("fit", table, "--law", "additive_1p", "--bootstrap", "0", option, value)
    assert result.exit_code == 2
    assert message in result.stderr


def test_help_has_an_example() -> None:
    assert "planner calibrate fit runs.csv" in run("--help").output
    for command in ("fit", "compare"):
        assert "Example:" in run(command, "--help").output


def test_help_says_what_the_default_fit_and_the_one_without_a_prior_are() -> None:
    told = " ".join(run("fit", "--help").output.split())
    default, _, paper = told.partition("--prior none is the paper's own fit")
    assert "average of the forms" in default
    assert "draws of the posterior" in default
    assert "the best one becomes the default" not in told
    assert "bootstrap refits" in paper


@given(
    content=st.one_of(
        st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_arbitrary_files_never_give_a_traceback(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "runs.csv"
    path.write_bytes(content)
    assert run("fit", path, "--bootstrap", 0).exit_code == 2
    calibration = path.with_suffix(".json")
    calibration.write_bytes(content)
    assert run("compare", calibration).exit_code == 2


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=4,
)


@given(data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_damaged_calibration_is_compared_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One value anywhere in a good file replaced by another: an answer or one sentence, never a traceback."""
    content = json.loads(PAPER.model_dump_json())
    node = content
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else list(range(len(node)))))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.integers(0, 4)) == 0:
            node[key] = data.draw(_JSON)
            break
        node = node[key]
    path = tmp_path_factory.mktemp("damaged") / "damaged.json"
    path.write_text(json.dumps(content))
    result = run("compare", path)
    assert result.exit_code in (0, 2)
    if result.exit_code == 2:
        assert result.stderr.startswith("Error: ") or "Usage" in result.stderr
