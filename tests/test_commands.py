"""Every command and every example of the documents is run: as it stands or, where it would train for long,
with `--dry-run` or on something small.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest
from click.testing import CliRunner

from planner.calibration import Calibration
from planner.cli import planner
from tests import tiny
from tests.places import ROOT, SHARED
from tests.test_docs import DOCUMENTS

# What is not a command of ours, or is run by something else, and by what.
ELSEWHERE = {
    r"(python3 -m venv|\. \.venv|pip install|pytest|ruff|mkdocs|pre-commit|python -m pytest)": ".ci/run",
    r"planner tokenise": "tests/calibration/studies/test_faults.py",
    r"planner serve": "tests/calibration/web/test_api.py",
    r"python3 -c|planner plan --calibration ours.json": "tests/calibration/web/test_hosting.py",
    r"podman": "container engines are not everywhere; docs/service.md says so",
    r"python deploy/space": "tests/calibration/web/test_hosting.py",
    r"python (-m )?benchmarks": "benchmarks are run by hand, on a quiet machine",
    r"planner calibrate tournament": "tests/studies/test_tournament.py",
    r"planner calibrate (dial|fit .+-decay-law)": "tests/calibration/fitting/test_weight_decay_law.py",
    r"planner calibrate picture": "tests/calibration/commands/test_plots.py",
    r"planner calibrate tune|python studies/weight-decay/replay": "tests/calibration/fitting/test_tuning.py",
    r"planner calibrate sweep .*--store s3://": "tests/calibration/studies/test_sweep.py",
    r"python studies/weight-decay-rule": "tests/studies/test_weight_decay_rule.py",
    r"python studies/weight-decay": "tests/studies/test_weight_decay.py",
    r"python studies/dolma": "tests/studies/test_dolma.py",
    r"python studies/new-corpora": "tests/studies/test_new_corpora.py",
    r"python studies/ensembles": "tests/studies/test_ensembles.py",
    r"python studies/micro": "tests/studies/test_micro.py",
    r"python studies/reanalysis": "tests/studies/test_reanalysis.py",
    r"python studies/tournament": "tests/studies/test_tournament.py",
}
SERVICE = "service.md"  # tests/calibration/web/test_hosting.py runs all of that page
TABLES = "run-tables.md"  # tests/calibration/commands/test_run_tables.py runs all of that page
PROGRAMS = ("planner", "python", "python3", "pip", "pytest", "ruff", "mkdocs", "srun", "torchrun")
RUN = """
shape = { d_model = 32, layers = 1, heads = 2, d_ff = 64 }
corpus = { paths = "text.txt", separator = "\\n\\n" }
tokenizer = "bytes"
sequence_length = 512
unique_tokens = 4096
epochs = 1
batch_size = 2
learning_rate = 1e-2
validation_documents = 2
compile = "off"
"""


def _fenced(text: str) -> Iterator[str]:
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if kind in ("", "sh"):
            for line in block.splitlines():
                command = re.split(r"\s+# ", line.removeprefix("$ "))[0].strip()
                if command.split(" ")[0] in PROGRAMS:
                    yield command


def _inline(text: str) -> Iterator[str]:
    """Commands inside of sentences, unless they speak of something like RUN, or lack what they need."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for command in re.findall(r"`((?:planner|python) [^`\n]*)`", prose):
        if not re.search(r"\b[A-Z]{2,}\b|\.\.\.|\|", command) and _is_complete(command):
            yield command


def _is_complete(command: str) -> bool:
    words = shlex.split(command)[1:]
    if command.startswith("python"):
        return len(words) > 1
    found: click.Command | None = planner
    while isinstance(found, click.Group):
        found = found.get_command(click.Context(found), words.pop(0)) if words else None
    if found is None or not words or "--help" in words:
        return found is not None and bool(words)
    try:
        found.make_context("spoken of", words)
    except (click.ClickException, click.exceptions.Exit):
        return False
    return True


def _commands() -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS if path.name != TABLES]
    return sorted({command for text in texts for command in (*_fenced(text), *_inline(text))})


def _elsewhere(command: str) -> bool:
    return any(re.match(pattern, command) for pattern in ELSEWHERE)


def _quick(command: str) -> bool:
    words = command.split()
    return words[0] == "planner" and words[1] in planner.commands and ".json" not in command


HERE = [command for command in _commands() if not _elsewhere(command)]


def _distinct(commands: list[str]) -> list[str]:
    """One of those that would do the same, as all studies are one here, and results may have any name."""
    found: dict[str, str] = {}
    for command in commands:
        alike = re.sub(r"calibrate (fit|report) (study/?|micro|paper)\b/?", r"calibrate \1 study", command)
        found.setdefault(re.sub(r" -o \S+| --calibration law.json| --gpu \S+", "", alike), command)
    return list(found.values())


def _shorter(command: str) -> list[str]:
    """The words after `planner`, of what stands for a command that takes long."""
    words = shlex.split(command[command.index("planner ") :])[1:]
    trains = words[0] == "calibrate" and words[1] in ("ensemble", "run", "sweep", "validate")
    if trains or words[0] in ("train", "distill"):
        words += [] if "--dry-run" in words else ["--dry-run"]
    if trains:  # some other folder than that of the trained study
        words += ["-o", f"dry-{Path(words[2]).stem}"]
    if words[:2] == ["calibrate", "fit"]:
        words += ["--bootstrap", "0", *([] if "--law" in words else ["--law", "additive_1p"])]
    if words[1:2] in (["report"], ["validate"]) and not {"--runs", "--calibration"} & {*words}:
        words += ["--calibration", "law.json"]
    if words[:2] == ["calibrate", "design"] and "--runs" in words:  # ours have two
        words += ["--weight-decay", "0.1"]
    if words[0] == "plan" and "my.json" in words:  # our own runs are tiny, and a plan stays near them
        words = [{"250M": "131k", "5e18": "8e11"}.get(word, word) for word in words]
    if words[0] == "evaluate" and "--help" not in words:
        words = [word for word in words if word not in ("--suite", "olmes19")] + ["--suite", "mine"]
        words = ["runs/c" if word == "gpt2-folder" else word for word in words]
    return words


def _run(command: str) -> None:
    if command.startswith("python"):
        done = subprocess.run([sys.executable, *shlex.split(command)[1:]], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return
    result = CliRunner().invoke(planner, _shorter(command))
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the documents speak of: what is read is real, what is trained is tiny."""
    folder = tmp_path_factory.mktemp("documents")
    words = ["data", "bound", "law", "token", "epoch", "loss", "model", "size"]
    texts = [" ".join(words[(i * k) % 8] for k in range(1, 200)) for i in range(60)]
    (folder / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    (folder / "texts").mkdir()
    shutil.copy(folder / "text.txt", folder / "texts")
    validation = 'pairs = [{ ud = "64k", flops = 2e12 }]\nseeds = 2\n'
    (folder / "study.toml").write_text(tiny.study("As the documents have it", validation), encoding="utf-8")
    (folder / "run.toml").write_text(RUN, encoding="utf-8")
    shutil.copy(ROOT / "studies" / "micro" / "learning-rate.toml", folder)
    shutil.copy(ROOT / "planner" / "data" / "c4-muennighoff.json", folder / "c4-refit.json")
    shutil.copy(ROOT / "studies" / "micro" / "runs.csv", folder / "runs.csv")
    micro = Calibration.load("micro")
    bare = tuple(setting.model_copy(update={"draws": None}) for setting in micro.settings)
    for name, settings in (("my", bare), ("a", bare[:1]), ("b", bare[1:])):
        micro.model_copy(update={"settings": settings}).save(folder / f"{name}.json")
    shutil.copy(folder / "my.json", folder / "law.json")
    (folder / "studies").symlink_to(ROOT / "studies")
    task = folder / "mine" / "task" / "rc_0shot"
    task.mkdir(parents=True)
    request = {"context": "Question: Is data the limit?\nAnswer:", "continuation": " Yes"}
    rows = [{"doc_id": 0, "idx": i, "label": 1, "request": request} for i in range(2)]
    (task / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def trained(workspace: Path) -> Path:
    """The workspace with trained runs, and a study's directory of results as the micro study had them."""
    from calibration.studies.directory import begin
    from calibration.studies.study import load
    from trainer import RunConfig, train

    config = tomllib.loads(RUN) | {"corpus": {"paths": str(workspace / "text.txt"), "separator": "\n\n"}}
    result = train(RunConfig(**config), workspace / "runs" / "first")
    for name in ("second", "a", "b", "c", "one-epoch", "four-epochs"):
        shutil.copytree(workspace / "runs" / "first", workspace / "runs" / name)
    begin(load(workspace / "study.toml"), workspace / "study")
    for name in ("micro", "paper"):
        (workspace / name).symlink_to("study")
    for row in pd.read_csv(workspace / "runs.csv").to_dict("records"):
        folder = workspace / "study" / "runs" / str(row["run"])
        folder.mkdir(parents=True)
        known = {key: value for key, value in row.items() if key in type(result).model_fields}
        (folder / "result.json").write_text(result.model_copy(update=known).model_dump_json())
    return workspace


@pytest.mark.parametrize("command", [command for command in HERE if _quick(command)])
def test_a_command_of_the_planner_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _run(command)


@pytest.mark.slow
@pytest.mark.parametrize("command", _distinct([command for command in HERE if not _quick(command)]))
def test_any_other_command_runs(command: str, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    if "datablations" in command:
        table = SHARED / "data" / "datablations_c4_runs.csv"
        if not table.exists():
            pytest.skip("the public run table is not here; DATABOUND_SHARED names the folder that has it")
        command = command.replace("datablations_c4_runs.csv", str(table))
    _run(command)


def test_what_is_said_to_run_elsewhere_does() -> None:
    for place in ELSEWHERE.values():
        assert " " in place or (ROOT / place).exists()


# -- examples in Python --------------------------------------------------------------------------------------

EXAMPLES = [
    (path, block)
    for path in DOCUMENTS
    if path.name not in (TABLES, SERVICE)
    for block in [
        "\n".join(re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S))
    ]
    if block and "launch(" not in block and "register(" not in block  # a server; test_new_law.py
]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "block"), EXAMPLES, ids=[path.name for path, _ in EXAMPLES])
def test_examples_in_python_run(
    path: Path, block: str, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    small = {
        'suite="olmes19", limit=500': 'suite="mine", limit=500',
        "limit=500\n)": 'suite="mine", limit=500\n)',
        'prior="none")': 'prior="none", bootstrap=50)',
    }
    for long, short in small.items():
        block = block.replace(long, short)
    block = block.replace('preset="micro", params="100k", unique_tokens="128k", epochs=4', "**tiny")
    names: dict[str, Any] = {"table": pd.read_csv("runs.csv")}
    if "**tiny" in block:
        names["tiny"] = tomllib.loads(RUN)
    exec(compile(block, str(path), "exec"), names)
