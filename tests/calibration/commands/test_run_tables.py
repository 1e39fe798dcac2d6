"""Every recipe of the page on run tables, as it stands there, on files as people have them."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from planner.calibration import Calibration
from planner.cli import planner
from tests.calibration.fitting import test_formats as formats
from tests.calibration.fitting.tables import runs
from tests.places import ROOT
from trainer.run.result import RunResult, write_result

PAGE = (ROOT / "docs" / "run-tables.md").read_text(encoding="utf-8")
RECIPES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]


def result(run: Any) -> RunResult:
    """What `planner train` leaves of a run."""
    kinds = {"int": 1, "float": 1.0, "str": "", "dict[str, Any]": {}, "list[str]": []}
    kinds |= {"float | None": None, "str | None": None, "list[dict[str, float]]": []}
    blank = {name: kinds[str(kind)] for name, kind in RunResult.__annotations__.items()}
    counts = {name: int(getattr(run, name)) for name in ("params", "unique_tokens")}
    whole = {"tokens": int(run.unique_tokens * run.epochs), "epochs": run.epochs, "loss": run.loss}
    return RunResult(**{**blank, **counts, **whole, "run": run.run, "weight_decay": 0.1})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page names."""
    folder, table = tmp_path_factory.mktemp("recipes"), runs()
    names = {"params": "size", "loss": "score"}
    table.rename(columns=names).to_csv(folder / "theirs.csv", index=False)
    units = table.assign(size_m=table["params"] / 1e6, ppl=np.exp(table["loss"])).drop(columns=[*names])
    units.to_csv(folder / "units.csv", index=False)
    formats.exported().to_csv(folder / "wandb_export.csv", index=False)
    formats.event_files(folder / "logs")
    for run in table.itertuples():
        (folder / "named-logs" / run.run).mkdir(parents=True)
        log = folder / "named-logs" / run.run / "events.out.tfevents.1"
        log.write_bytes(formats.event(9, formats.scalar("val_loss", run.loss)))
        formats.trainer_state(folder / "outputs" / run.run, run)
    (folder / "runs.jsonl").write_text("\n".join(json.dumps(record) for record in formats.records()))
    for run in table.itertuples():
        (folder / "trained" / run.run).mkdir(parents=True)
        write_result(folder / "trained" / run.run, result(run))
    named = [
        f"a-{r.params / 1e6:g}m_{r.unique_tokens * r.epochs / 1e9:g}b_{r.epochs:g}ep-s1"
        for r in table.itertuples()
    ]
    table.assign(run=named)[["run", "loss"]].to_csv(folder / "names.csv", index=False)
    table.assign(kind="base", seed=0).to_csv(folder / "runs.csv", index=False)
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(planner, ["calibrate", *words])


@pytest.mark.parametrize("line", RECIPES)
def test_every_recipe_works(line: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setitem(sys.modules, "wandb", formats.Client())
    words = shlex.split(line)
    assert words[:3] == ["planner", "calibrate", "fit"]
    words[words.index("my.json")] = str(tmp_path / "my.json")
    result = run(*words[2:], "--bootstrap", "0", "--law", "chinchilla")
    assert result.exit_code == 0, result.output
    fitted = Calibration.load(tmp_path / "my.json").settings[0].fitted_on
    assert fitted.params == pytest.approx((2e7, 3.2e8))
    assert fitted.unique_tokens == pytest.approx((1e8, 1.6e9))
    assert fitted.runs == (23 if "export" in line else 27)


def test_the_python_of_the_page_works(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        found: dict[str, object] = {}
        exec(block, found)
        assert len(found["runs"]) == 23  # type: ignore[arg-type]


def test_what_was_guessed_left_out_and_doubted_is_said(files: Path, tmp_path: Path) -> None:
    bits = runs().assign(loss=runs()["loss"] / np.log(2))
    bits.to_csv(tmp_path / "bits.csv", index=False)
    result = run(
        "fit",
        str(tmp_path / "bits.csv"),
        "--bootstrap",
        "0",
        "--law",
        "chinchilla",
        "-o",
        str(tmp_path / "a.json"),
    )
    assert "Warning: Losses of" in result.stderr
    assert "--columns 'loss=loss*0.6931'" in result.stderr
    (note,) = Calibration.load(tmp_path / "a.json").table_notes  # type: ignore[attr-defined]
    assert (note["code"], note["warns"]) == ("unit_of_loss", True)
    asked = ["plan", "--calibration", str(tmp_path / "a.json"), "--ud", "400M", "--flops", "1e18", "--json"]
    warnings = json.loads(CliRunner().invoke(planner, asked).stdout)["warnings"]
    assert {"code": "fit", "text": f"{note['text']}."} in warnings
    result = run("backtest", str(files / "wandb_export.csv"), "--drop-missing", "--law", "chinchilla")
    assert "Left out 4 of 27 runs: loss is missing in 2" in result.stderr
    assert "Read run from Name, params from config.n_params" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("fit",),
        ("backtest",),
        ("design", "--budget", "1e17", "--target-ud", "1e8", "--target-flops", "1e17", "--runs"),
        ("report", "fineweb-llama2", "--runs"),
    ],
)
def test_every_command_that_reads_runs_takes_the_same_options(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "runs.csv").write_text("name,size\na,1\n")
    options = ("--columns", "params=sise", "--pattern", "{epochs}", "--drop-missing")
    result = run(*command, str(tmp_path / "runs.csv"), *options)
    assert result.exit_code == 2
    assert result.stderr == "Error: --columns takes params from 'sise'; runs.csv has name, size.\n"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"params": 1e-6},
            "params look like millions (80 parameters on 800M tokens); laws need plain counts: "
            "--columns 'params=params*1e6'.",
        ),
        ({"loss": None}, "--columns 'loss=ln(loss)'."),
    ],
)
def test_slips_of_units_are_refused_in_one_sentence(change: dict, sentence: str, tmp_path: Path) -> None:
    table = runs()
    for column, factor in change.items():
        table[column] = np.exp(table[column]) if factor is None else table[column] * factor
    table.to_csv(tmp_path / "slip.csv", index=False)
    result = run("fit", str(tmp_path / "slip.csv"))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr
