"""`planner calibrate run`: from a corpus to a plan in one command, whatever happens on the way."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from calibration.commands.run import run
from calibration.studies.calibration_loop import Asked, learning_rate, stored_question
from calibration.studies.corpus_recipe import recipe_of
from calibration.studies.directory import StudyDirectory
from planner.calibration import Calibration
from planner.inputs import InvalidInput, short
from planner.plans import plan
from tests.calibration.studies.conftest import ended, endings, environment, midway, until

TINY = ("tokenizer=bytes", "sequence_length=32", "compile=off", "checkpoint_every=10", "log_every=1")
SETTINGS = [word for setting in TINY for word in ("--set", setting)]
SMALL = ["--budget", "2e9", "--runs", "4", "--ud", "30k", "--flops", "3e9", "--workers", "1", *SETTINGS]


def text_of(paragraphs: int, seed: int = 1) -> str:
    """Words of a small vocabulary, some of them often."""
    generator = random.Random(seed)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 6))) for _ in range(300)]
    lines = (
        generator.choices(words, [1 / (1 + rank) for rank in range(300)], k=60) for _ in range(paragraphs)
    )
    return "\n\n".join(" ".join(line) for line in lines)


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(text_of(300), encoding="utf-8")
    return path


def begin(text: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "planner",
        "calibrate",
        "run",
        str(text),
        "-o",
        str(out),
        *SMALL,
        *options,
    ]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=out.parent, env=environment(), start_new_session=True, **pipes)


@pytest.fixture(scope="session")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A loop that nothing happened to: its directory, and what it printed."""
    out = tmp_path_factory.mktemp("whole") / "out"
    done = ended(begin(text, out, "--confirm", "1"))
    assert done.returncode == 0, done.stderr
    return out, done.stdout, done.stderr


def decided(out: Path) -> dict[str, bytes]:
    """What a loop decided and found, to the bit."""
    names = [
        "question.json",
        "calibration.json",
        *(f"waves/{path.name}" for path in (out / "waves").iterdir()),
    ]
    return {name: (out / name).read_bytes() for name in names}


@pytest.mark.slow
def test_a_corpus_becomes_a_plan(whole: tuple[Path, str, str]) -> None:
    out, printed, progress = whole
    found = Calibration.load(out / "calibration.json")
    waves = [pd.read_csv(path) for path in sorted((out / "waves").iterdir())]
    assert len(waves) == 2
    assert sum(map(len, waves)) == 4  # every wave was decided after the one before
    assert found.weight_decays == tuple(sorted({*pd.concat(waves)["weight_decay"]}))
    # small parts of a corpus mislead
    assert min(pd.concat(waves)["unique_tokens"]) >= 7_488  # a quarter of 30k, in whole sequences of 32
    assert printed.startswith("Train ")
    assert "expected loss" in printed
    assert "plan so far: " in progress
    assert "expected regret" in progress
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")
    spent = sum(json.loads(path.read_text())["flops"] for path in (out / "runs").glob("*/result.json"))
    assert spent <= 2e9
    confirmed = [path.parent.name for path in (out / "validation").glob("*/result.json")]
    assert len(confirmed) == 3  # the plan and its two nearest rivals
    assert "the plan" in printed


@pytest.mark.parametrize("budget", ["1e13", "1e16"])
def test_runs_are_no_larger_than_a_plan_for_the_corpus(text: Path, tmp_path: Path, budget: str) -> None:
    """Whatever the budget: beyond some compute a law expects no gain from so little text."""
    words = [
        "--budget",
        budget,
        "--ud",
        "22k",
        *SETTINGS,
        "--set",
        "sequence_length=128",
        "--dry-run",
        "--json",
    ]
    done = CliRunner().invoke(run, [str(text), "-o", str(tmp_path / "out"), *words])
    assert done.exit_code == 0, done.output
    runs = json.loads(done.stdout)["runs"]
    assert len(runs) >= 3
    assert max(6 * one["params"] * one["unique_tokens"] * one["epochs"] for one in runs) < 1e12
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_killed_and_started_again_it_decides_the_same_to_the_bit(
    whole: tuple[Path, str, str], text: Path, tmp_path: Path
) -> None:
    """As far as the second wave, which depends on all of the first; `benchmarks/loop_kills.py` goes on."""
    out = tmp_path / "out"
    process = begin(text, out)
    assert until(lambda: midway(out), process)
    process.kill()
    ended(process)
    process = begin(text, out)
    assert until(lambda: (out / "waves" / "2.csv").exists(), process)
    process.terminate()
    assert ended(process).returncode in (0, 143)
    undisturbed, found = endings(whole[0]), {name: one for name, one in endings(out).items() if one}
    assert found == {name: undisturbed[name] for name in found}
    assert len(found) >= 3
    before = decided(whole[0])
    assert all((out / name).read_bytes() == before[name] for name in before if "calibration" not in name)


@pytest.mark.slow
def test_what_has_changed_is_noticed(whole: tuple[Path, str, str], text: Path) -> None:
    before = decided(whole[0])
    assert "another flops (3000000000.0, now 5000000000.0)" in refused(
        text, "-o", str(whole[0]), *SMALL, "--flops", "5e9"
    )
    original = text.read_text()
    text.write_text(original + "\n\nOne more.")
    try:
        said = refused(text, "-o", str(whole[0]), *SMALL)
    finally:
        text.write_text(original)
    assert "the corpus has changed since the study in" in said
    assert decided(whole[0]) == before


@pytest.mark.slow
def test_a_folder_of_tokens_takes_the_place_of_text(
    whole: tuple[Path, str, str], text: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(str(whole[0] / "tokens"), {})
    assert recipe["tokenizer"].endswith("tokenizer.json")
    asked = ["--budget", "2e9", "--runs", "4", "--dry-run", "--json"]
    tokens = CliRunner().invoke(
        run, [str(whole[0] / "tokens"), "-o", str(tmp_path / "out"), *asked, *SETTINGS[2:]]
    )
    assert tokens.exit_code == 0, tokens.output
    (facts,) = (json.loads(path.read_text()) for path in (whole[0] / "tokens").glob("*/tokens.json"))
    assert json.loads(tokens.stdout)["ud"] == (facts["streams"]["train"]["tokens"] - 1) // 32 * 32


def refused(corpus: Path | str, *options: str) -> str:
    """The one line that is said."""
    given = options or ("--budget", "1e9", "-o", "unused")
    done = CliRunner().invoke(run, [str(corpus), *given])
    assert done.exit_code == 2, done.output
    lines = [line for line in done.stderr.strip().splitlines() if line.startswith("Error")]
    assert len(lines) == 1
    return lines[0].removeprefix("Error: ")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no text"),
        (b"  \n\n \n", "holds no text"),
        (b"\x7fELF\xff\xfe\x00\x01" * 5000, "is not UTF-8 text"),
        (b"words\x00and more\n\n" * 5000, "is binary"),
        (b"one line without an end " * 5000, "is one document of 120,000 bytes"),
        (b"a line\n\n" * 100, "too small to learn from"),
    ],
)
def test_a_corpus_that_nothing_can_be_learnt_from(
    content: bytes, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_bytes(content)
    assert complaint in refused("text.txt")
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--budget", "soon"], "--budget must be a time such as '2 h' or FLOPs such as 1e15; got 'soon'."),
        (["--budget", "-3"], "--budget must"),
        (["--budget", "2 h", "--engine", "ray"], "--budget is that of this machine"),
        (["--budget", "1e9", "--ud", "none"], "--ud must be a number"),
        (["--budget", "1e9", "--runs", "2"], "--runs must be at least 3, one for each weight decay."),
        (["--budget", "1e9", "--confirm", "some"], "--confirm must be a number"),
        (["--budget", "1e9", "--set", "batsh_size=3"], "batsh_size is not a setting of a run"),
        (["--budget", "1e9", "--ud", "1G", "--dry-run"], "--ud (1B) is more than the"),
        (["--budget", "1e7", "--dry-run"], "--budget (1e7 FLOPs) is too little for any run"),
    ],
)
def test_a_question_with_a_mistake(
    options: list[str], complaint: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complaint in refused(text, *options)
    assert not [*tmp_path.iterdir()]


def test_hours_without_torch_name_what_to_install(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install '.[train]'" in refused(text, "--budget", "2 h", "--dry-run", *SETTINGS)


@pytest.mark.parametrize("corpus", ["nowhere.txt", "nowhere/*.txt", "nowhere/", "./nowhere"])
def test_a_corpus_that_is_not_there(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "neither a file, nor a folder, nor a pattern" in refused(corpus)


def test_a_dry_run_says_what_all_of_it_takes_and_writes_nothing(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(run, [str(text), *SMALL, "--confirm", "2", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "3 runs, 3 of them to train" in done.stdout
    assert "All waves: at most 4 runs, 2e9 FLOPs" in done.stdout
    assert "To confirm: 6 runs" in done.stdout
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("options", "law"),
    [
        (["--ud", "25600"], "micro-weight-decay"),
        (["--set", "learning_rate=3e-3"], None),  # another recipe than that of any law
        (["--set", "dropout=0.1"], None),
        (["--set", "optimizer=muon"], None),
        (["--set", "tokenizer=bytes"], None),
        (["--ud", "21k"], None),  # fewer tokens than any were fitted on
    ],
)
def test_a_shipped_law_that_answers_the_question_is_named_before_anything_is_trained(
    options: list[str], law: str | None, text: Path, tmp_path: Path
) -> None:
    words = [str(text), "-o", str(tmp_path / "out"), "--budget", "1e12", "--flops", "1e12", "--dry-run"]
    done = CliRunner().invoke(run, [*words, *options])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert ("which ships, has this recipe" in said) == (law is not None)
    if law is not None:
        found = re.search(
            r"About (\S+) unique tokens.* it plans (\S+) x (\d+) at \S+, .*without any run", said
        )
        assert found is not None
        shipped = plan(found[1], 1e12, calibration=law)
        assert (found[2], float(found[3])) == (short(shipped.params), shipped.epochs)
        assert "own runs did not pay" in said


def test_few_paragraphs_are_documents_and_many_files_are_not_parted(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(text_of(100))
    assert recipe_of(str(tmp_path / "one.txt"), {})["corpus"]["separator"] == "\n\n"
    for number in range(250):
        (tmp_path / f"{number}.txt").write_text(text_of(2, seed=number))
    many = recipe_of(str(tmp_path), {})
    assert "separator" not in many["corpus"]
    assert many["validation_documents"] > 5


def test_the_learning_rate_falls_with_the_root_of_the_size_above_what_was_tried() -> None:
    micro = {"preset": "micro", "corpus": {"paths": ["text.txt"]}}
    assert learning_rate(micro, 444_096) == {}
    assert learning_rate(micro, 4 * 444_096) == {"learning_rate": 0.005}


def test_a_question_that_is_damaged_is_named(text: Path, tmp_path: Path) -> None:
    (tmp_path / "question.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"question\.json is damaged"):
        stored_question(Asked(str(text), budget=1e9), StudyDirectory(tmp_path))
