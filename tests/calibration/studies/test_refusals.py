"""What is wrong with a study, its directory or its corpus is said
in one sentence, before anything is trained, and damages nothing.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click import ClickException
from click.testing import CliRunner, Result

from calibration.commands.sweep import sweep
from calibration.commands.training import interruptible
from calibration.studies import directory
from calibration.studies.directory import begin, is_study
from calibration.studies.study import load
from planner.inputs import InvalidInput
from tests.calibration.studies.conftest import endings, environment, finished, run


def refused(study: Path | str, out: Path, *options: str, code: int = 2) -> str:
    """The one line that is said."""
    done: Result = CliRunner().invoke(sweep, [str(study), "-o", str(out), *options])
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    return lines[0].removeprefix("Error: ")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            ("unique_tokens", "uniqe_tokens"),
            "tiny.toml: uniqe_tokens is not a setting of grid 1; did you mean unique_tokens.",
        ),
        (("batch", "batsh"), "batsh_size"),
        (("[recipe]", "[recipes]"), "tiny.toml: recipes is not a setting of a study; did you mean recipe."),
        (('params = ["12k", "20k"]', 'shapes = ["25N"]'), "25N"),
        (('"12k"', '"twelve"'), "tiny.toml: grid 1: params must be a number"),
        (
            ("seeds = [0, 1]", "seeds = [0.5]"),
            "tiny.toml: grid 1: seeds must be whole numbers from 0 on; got 0.5.",
        ),
        (("epochs = [2, 4]", "epochs = []"), "tiny.toml: grid 1: epochs is empty."),
        (("[[grid]]", "[grid]"), "tiny.toml: grid must be written as [[grid]], one for each block of cells."),
        (("[[grid]]", "[[grid"), "is not TOML"),
        (('"4k"', '"20"'), "tiny.toml: study tiny, grid 1: unique_tokens must fill at least one sequence"),
        (
            ('["4k"]', '["20"]\nmax_flops = 1e9'),
            "tiny.toml: study tiny, grid 1: unique_tokens must fill at least one sequence",
        ),
        (
            ("[[grid]]", "seed = 1\n[[grid]]"),
            "tiny.toml: recipe.seed differs from run to run; it belongs into a [[grid]].",
        ),
    ],
)
def test_a_study_file_with_a_mistake(
    change: tuple[str, str], complaint: str, study: Path, tmp_path: Path
) -> None:
    text = study.read_text().replace("sequence_length", "batch_size = 4\nsequence_length")
    study.write_text(text.replace(*change, 1))
    assert complaint in refused(study, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_such_study(tmp_path: Path) -> None:
    assert refused("smok", tmp_path / "out").startswith(
        "there is no study 'smok'; give a TOML file or one of "
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--workers", "0"), "--workers must be at least 1; got 0."),
        (("--engine", "ray", "--workers", "0"), "--workers must be at least 1; got 0."),
        (("--per-gpu", "0"), "--per-gpu must be at least 1; got 0."),
        (("--address", "there:1"), "--address is that of a Ray cluster; add --engine ray."),
        (("-o", " "), "-o must name a directory; got ' '."),
        (
            ("--set", "weight_decay=3"),
            "recipe.weight_decay differs from run to run; it belongs into a [[grid]].",
        ),
    ],
)
def test_options_that_make_no_sense(
    options: tuple[str, ...], complaint: str, study: Path, tmp_path: Path
) -> None:
    if "ray" in options:
        pytest.importorskip("ray")
    assert refused(study, tmp_path / "out", *options) == complaint
    if "ray" not in options and "--address" not in options:
        assert refused(study, tmp_path / "out", *options, "--dry-run") == complaint
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else(study: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    assert "is not the directory of a study, and not empty" in refused(study, tmp_path / "out")
    assert contents(tmp_path / "out") == {"thesis.txt": b"mine"}


def test_a_directory_whose_making_was_cut_short(study: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".study.json.123").write_text("{")  # what a kill or a full disk leaves
    begin(load(study), tmp_path / "out")
    assert is_study(tmp_path / "out")
    begin(load(study), tmp_path / "out")


def test_two_recipes_that_begin_together(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is first, after this one has found nothing."""
    ours, theirs, out = load(study), load(study).with_recipe(batch_size=8), tmp_path / "out"
    fingerprint = directory._fingerprint

    def slow(plan: Any) -> str:
        monkeypatch.setattr(directory, "_fingerprint", fingerprint)
        begin(theirs, out)
        return fingerprint(plan)

    monkeypatch.setattr(directory, "_fingerprint", slow)
    with pytest.raises(InvalidInput, match="holds a study with another batch_size"):
        begin(ours, out)
    assert directory.open_directory(out).facts()["recipe"]["batch_size"] == 8


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(study: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "cannot be written: Permission denied" in refused(study, tmp_path / "locked" / "out")


def test_a_place_where_no_folder_can_be(study: Path) -> None:
    assert "cannot be written" in refused(study, Path("/proc/study"))


def test_more_tokens_than_the_corpus_has(study: Path, tmp_path: Path) -> None:
    study.write_text(study.read_text().replace('"4k"', '"4M"'))
    assert "asks for 4,000,000 unique tokens and the corpus has" in refused(
        study, tmp_path / "out", "--quiet"
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """A study of two runs with a corpus of its own, trained."""
    from tests.calibration.studies.conftest import STUDY

    folder = tmp_path_factory.mktemp("trained")
    shutil.copytree(corpus, folder / "texts")
    text = STUDY.replace("CORPUS", "texts").replace("epochs = [2, 4]", "epochs = [1]").replace('"12k", ', "")
    (folder / "tiny.toml").write_text(text)
    done = run(folder / "tiny.toml", folder / "out", "--quiet")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(trained, tmp_path / "copy")


@pytest.mark.slow
def test_the_corpus_has_changed(place: Path) -> None:
    before = contents(place / "out")
    with open(next((place / "texts").iterdir()), "a") as stream:
        stream.write("One more sentence.\n")
    assert refused(place / "tiny.toml", place / "out").startswith(
        "the corpus has changed since the study in "
    )
    assert contents(place / "out") == before


@pytest.mark.slow
def test_a_prescribed_run_that_becomes_part_of_the_grid(place: Path) -> None:
    out = place / "out"
    name, other = sorted(endings(out))
    before = finished(out)
    (out / "runs" / name).rename(out / "validation" / name)  # where a validation would have trained it
    done = run(place / "tiny.toml", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trained"] == 0
    assert finished(out) == before
    assert {*pd.read_csv(out / "runs.csv")["run"]} == {name, other}


@pytest.mark.slow
def test_another_recipe(place: Path) -> None:
    before = contents(place / "out")
    for more in ((), ("--dry-run",)):
        said = refused(place / "tiny.toml", place / "out", "--set", "batch_size=8", *more)
        assert "holds a study with another batch_size" in said
    assert contents(place / "out") == before


def _half(path: Path) -> None:
    path.write_text(path.read_text()[: path.stat().st_size // 2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda out, name: _half(out / "study.json"), "study.json is damaged"),
        (
            lambda out, name: (out / "study.json").write_text('{"format": 9}'),
            "has format 9, and this version reads 1",
        ),
        (
            lambda out, name: shutil.rmtree(out / "runs" / name / "final") or _foreign(out, name),
            "is not a run directory, and not empty",
        ),
    ],
)
def test_a_damaged_directory(damage: Callable[[Path, str], Any], complaint: str, place: Path) -> None:
    out = place / "out"
    name = min(endings(out))
    damage(out, name)
    before = contents(out)
    foreign = "run directory" in complaint
    done = run(place / "tiny.toml", out, "--quiet")
    lines = done.stderr.strip().splitlines()
    assert (done.returncode, len(lines)) == (1 if foreign else 2, 1), done.stderr
    assert complaint in lines[0]
    written = (
        {"failures.jsonl", "runs.csv", "tokens/checksums.json", "tokens/checksums.lock"} if foreign else set()
    )
    kept = {path: content for path, content in contents(out).items() if path not in written}
    assert kept == {path: content for path, content in before.items() if path not in written}


def _foreign(out: Path, name: str) -> None:
    """Somebody put a folder of their own where a run was."""
    shutil.rmtree(out / "runs" / name)
    (out / "runs" / name).mkdir()
    (out / "runs" / name / "notes.txt").write_text("mine")


@pytest.mark.slow
def test_a_damaged_configuration_is_one_run_s_trouble(place: Path) -> None:
    out = place / "out"
    name, other = sorted(endings(out))
    before = finished(out)
    _half(out / "runs" / name / "config.json")
    (out / "runs" / name / "result.json").unlink()
    done = run(place / "tiny.toml", out, "--json")
    assert done.returncode == 1
    assert "config.json is not the configuration of a run" in json.loads(done.stdout)["failed"][name]
    assert finished(out) == {other: before[other]}


def _richer(path: Path) -> None:
    """Somebody improves a result."""
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"loss": values["loss"] - 0.1}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_half, "result.json is damaged; delete it"),
        (_richer, "result.json is not as it was written (its checksum differs); delete it"),
    ],
)
def test_a_damaged_result_is_one_run_s_trouble(
    damage: Callable[[Path], None], complaint: str, place: Path
) -> None:
    out = place / "out"
    name, other = sorted(endings(out))
    whole = endings(out)
    damage(out / "runs" / name / "result.json")
    shutil.rmtree(out / "runs" / other)
    done = run(place / "tiny.toml", out, "--json")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["done"], facts["trained"]) == (1, 1, 1)
    assert complaint in facts["failed"][name]
    assert [*pd.read_csv(out / "runs.csv")["run"]] == [other]
    (out / "runs" / name / "result.json").unlink()
    assert run(place / "tiny.toml", out, "--quiet").returncode == 0
    assert endings(out) == whole


@pytest.mark.slow
def test_a_damaged_checkpoint_is_one_run_s_trouble(place: Path) -> None:
    out = place / "out"
    name, other = sorted(endings(out))
    for folder in (out / "runs" / name, out / "runs" / other):
        (folder / "result.json").unlink()
        shutil.rmtree(folder / "final")
    for state in (out / "runs" / name).glob("checkpoints/*/state.json"):
        _half(state)
    done = run(place / "tiny.toml", out, "--json")
    facts = json.loads(done.stdout)
    assert other not in facts["failed"]
    assert facts["done"] + len(facts["failed"]) == 2
    assert (out / "runs" / other / "result.json").exists()


@pytest.mark.slow
def test_a_prescribed_run_that_ends_as_part_of_the_grid_is_in_the_table_at_once(place: Path) -> None:
    out = place / "out"
    name, other = sorted(endings(out))
    (out / "runs" / name / "result.json").unlink()  # a validation began it, and was stopped
    (out / "runs" / name).rename(out / "validation" / name)
    assert run(place / "tiny.toml", out, "--quiet").returncode == 0
    assert {*pd.read_csv(out / "runs.csv")["run"]} == {name, other}
    assert (out / "runs" / name / "result.json").exists()


@pytest.mark.slow
def test_a_finished_study_can_be_read_where_nothing_can_be_written(place: Path) -> None:
    """In a name space of its own, in which the directory is mounted for reading only."""
    out = place / "out"
    mounted = f"mount --bind {out} {out} && mount -o remount,bind,ro {out}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mounted], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount anything")
    planner = f"{sys.executable} -m planner calibrate"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mounted} && {planner} sweep {place}/tiny.toml -o {out} --json"],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == 2


def test_a_corpus_that_no_tokens_could_be_made_of_may_be_mended(
    study: Path, corpus: Path, tmp_path: Path
) -> None:
    """Nothing is held against a study whose first start failed; and all files that are bad are named."""
    texts, out = shutil.copytree(corpus, tmp_path / "texts"), tmp_path / "out"
    study.write_text(study.read_text().replace(str(corpus), str(texts)))
    for number in range(17):
        (texts / f"bad-{number}.txt").write_bytes(b"\xff\xfe")
    said = refused(study, out, "--quiet")
    assert said.startswith("17 files of the corpus cannot be used: ")
    assert all(f"bad-{number}.txt is not UTF-8 text" in said for number in range(17))
    for path in texts.glob("bad-*"):
        path.unlink()
    plan = load(study)
    folder = begin(plan, out)
    directory.prepare(plan.runs, folder)
    assert folder.facts()["data"]
    (texts / "000.txt").write_text("Something else altogether.")
    with pytest.raises(InvalidInput, match="the corpus has changed since the study in "):
        begin(plan, out)


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        (
            OSError(errno.ENOSPC, "No space left", "runs.csv"),
            "runs.csv cannot be written (No space left); once it can be, ",
        ),
        (
            OSError(errno.EROFS, "Read-only file system"),
            "the study directory cannot be written (Read-only file system); once ",
        ),
        (OSError(errno.EIO, "Input/output error", "runs.csv"), "runs.csv: Input/output error; "),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "Connection reset by peer; "),
        (TimeoutError(), "TimeoutError; "),
        (ConnectionError("Max retries exceeded\nwith url: /api."), "Max retries exceeded with url: /api; "),
    ],
)
def test_trouble_outside_is_called_what_it_is(error: OSError, complaint: str) -> None:
    with pytest.raises(ClickException) as said, interruptible():
        raise error
    assert said.value.message.startswith(complaint)
    assert "the same command goes on" in said.value.message


def test_torch_is_missing(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.commands.training.find_spec", lambda name: None)
    out = tmp_path / "out"
    done = CliRunner().invoke(sweep, [str(study), "-o", str(out)])
    assert done.exit_code == 2
    assert done.stderr == "Error: torch is not installed; pip install '.[train]' would do.\n"
    assert not out.exists()
