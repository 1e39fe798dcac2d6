"""A study from nothing to its report on the command line:
nothing is trained twice, and what is wrong is one sentence.
"""

import json
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from calibration import fit, read_runs
from calibration.commands import calibrate
from calibration.commands.training import Training
from calibration.commands.validate import train
from calibration.studies.directory import GRID, VALIDATION, StudyDirectory, begin, prepare
from calibration.studies.local import LocalEngine
from calibration.studies.provenance import provenance_mismatch
from calibration.studies.study import load
from planner.calibration import Calibration, FittedLaw, FittedRange, Setting
from planner.inputs import InvalidInput
from planner.laws import Law
from tests import tiny

BASE = {"E": 1.5, "A": 1.0 * 2e5**0.35, "alpha": 0.35, "B": 1.5 * 2.5e5**0.4, "beta": 0.4}
PENALTY = {"P": 0.03, "delta": 1.2, "kappa": 0.7, "gamma": 1.0}
PRESCRIBED = """
pairs = [{ ud = 1024, flops = 1e9 }]
laws = ["chinchilla", "additive_4p"]
seeds = 2
crossover_uds = [1024]
crossover_factors = [0.5, 2]
"""


def run(*words: object) -> Result:
    return CliRunner().invoke(calibrate, [str(word) for word in words])


def refused(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def write_study(folder: Path) -> None:
    """A study file, its corpus, and a calibration."""
    rng = np.random.default_rng(0)
    words = ["data", "bound", "law", "token", "epoch", "loss", "model", "size"]
    (folder / "text.txt").write_text("\n\n".join(" ".join(rng.choice(words, 60)) for _ in range(30)))
    (folder / "tiny.toml").write_text(tiny.study("Tiny", PRESCRIBED))
    fitted_on = FittedRange(params=(1e4, 2e4), unique_tokens=(1e3, 2e3), epochs=(1, 4))
    weak = {
        "chinchilla": FittedLaw(parameters=BASE),
        "additive_4p": FittedLaw(parameters={**BASE, **PENALTY}),
    }
    strong = {"additive_4p": FittedLaw(parameters={**BASE, **PENALTY, "A": BASE["A"] * 1.5, "P": 0.01})}
    settings = (
        Setting(weight_decay=0.1, fitted_on=fitted_on, laws=weak),
        Setting(weight_decay=1.0, fitted_on=fitted_on, laws=strong),
    )
    Calibration(name="hand-made", settings=settings).save(folder / "law.json")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study file, its corpus, a calibration, and the swept grid of four tiny runs."""
    folder = tmp_path_factory.mktemp("tiny")
    write_study(folder)
    result = run("sweep", folder / "tiny.toml", "-o", folder / "tiny", "--quiet")
    assert result.exit_code == 0, result.output
    return folder


def validate(home: Path, *more: object) -> Result:
    return run(
        "validate",
        home / "tiny.toml",
        "-o",
        home / "tiny",
        "--calibration",
        home / "law.json",
        "--quiet",
        *more,
    )


@pytest.mark.slow
def test_a_study_is_validated_once_and_reported(home: Path) -> None:
    listed = validate(home, "--dry-run", "--json")
    plan = json.loads(listed.output)
    assert plan["missing"] == len(plan["runs"]) > 0
    assert not list((home / "tiny" / VALIDATION).iterdir())

    first = validate(home, "--json")
    assert first.exit_code == 0, first.output
    found = json.loads(first.output)
    assert found == json.loads((home / "tiny" / "validation.json").read_text())
    assert found["calibration"] == "hand-made"
    trial = found["trials"][0]
    for law in trial["laws"]:
        trained = law["configuration"]
        assert len(trained["losses"]) == 2
        assert trained["flops"] == pytest.approx(1e9, rel=0.02)
        assert law["regret"] >= 0
    assert trial["noise"] > 0
    assert found["crossovers"][0]["budgets"][0]["weaker"]["losses"]

    results = {path: path.stat().st_mtime_ns for path in (home / "tiny" / VALIDATION).glob("*/result.json")}
    assert len(results) == plan["missing"]
    again = validate(home)
    assert again.exit_code == 0, again.output
    assert "beyond noise" in again.output
    assert "Crossover from λ = 0.1 to 1" in again.output
    assert results == {
        path: path.stat().st_mtime_ns for path in (home / "tiny" / VALIDATION).glob("*/result.json")
    }
    assert json.loads((home / "tiny" / "validation.json").read_text()) == found

    page = home / "report.html"
    made = run("report", home / "tiny", "--calibration", home / "law.json", "-o", page)
    assert made.exit_code == 0, made.output
    text = page.read_text()
    for title in (
        "What was trained",
        "Which law prescribes best",
        "The weight-decay crossover",
        "Mean regret of what each law",
    ):
        assert title in text

    assert "not of this study" not in text

    facts = {"name": "theirs", "title": "Their laws", "vocab_size": 999}
    Calibration.load(home / "law.json").model_copy(update=facts).save(home / "theirs.json")
    made = run("report", home / "tiny", "--calibration", home / "theirs.json", "-o", page)
    assert made.exit_code == 0, made.output
    top = unescape(page.read_text().partition("<nav")[0])
    assert "<h1>Tiny</h1>" in top
    assert "The laws below are not of this study, whose corpus is" in top
    assert "text.txt; tokenizer bytes: calibration theirs was fitted to another vocabulary (999" in top

    assert len(read_runs(home / "tiny")) == 4  # prescribed runs are never fitted to

    (home / "tiny" / "validation.json").write_text("{")
    assert "validation.json is damaged" in refused(
        "report", home / "tiny", "--calibration", home / "law.json", "-o", page
    )
    assert validate(home).exit_code == 0
    assert json.loads((home / "tiny" / "validation.json").read_text()) == found


@pytest.mark.slow
def test_a_cell_of_the_grid_is_trained_into_the_grid(home: Path, tmp_path: Path) -> None:
    out = shutil.copytree(home / "tiny", tmp_path / "tiny")
    study = load(home / "tiny.toml")
    shutil.rmtree(out / GRID / study.runs[0].name)
    folder = begin(study, out)
    quietly = Training(out=str(out), workers=1, quiet=True)
    assert not train(study, [study.runs[0]], folder, quietly, LocalEngine(folder.compiled, workers=1))
    assert len(read_runs(out)) == 4
    assert not (out / VALIDATION / study.runs[0].name).exists()


@pytest.mark.slow
@pytest.mark.parametrize("part", [GRID, VALIDATION])
def test_a_damaged_result_is_named_left_out_and_the_others_are_judged(
    part: str, home: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(home / "tiny", tmp_path / "tiny")
    (out / part / "somebody").mkdir()
    (out / part / "somebody" / "result.json").write_text("{")
    (out / "validation.json").unlink(missing_ok=True)
    done = run("validate", home / "tiny.toml", "-o", out, "--calibration", home / "law.json", "--quiet")
    assert done.exit_code == 1, done.output
    complaint = f"{part}/somebody/result.json is damaged"
    assert [complaint in line for line in done.stderr.splitlines()] == [True, True]  # at once, and at the end
    assert "Mean regret" in done.stdout
    assert json.loads((out / "validation.json").read_text())["standings"]


@pytest.mark.slow
def test_mistakes_are_one_sentence_and_train_nothing(home: Path) -> None:
    tiny, law = home / "tiny.toml", home / "law.json"
    before = sorted((home / "tiny").rglob("*"))
    common = ("validate", tiny, "-o", home / "tiny", "--calibration", law)
    assert "come in pairs; got 2 and 1" in refused(*common, "--ud", "1k", "--ud", "2k", "--flops", "1e8")
    assert "--law must be one of" in refused(*common, "--law", "hoffmann")
    assert "--crossover-law must be one of" in refused(
        *common, "--crossover", "1k", "--crossover-law", "hoffmann"
    )
    assert "--crossover must be between" in refused(*common, "--crossover", "10")
    assert "-o must name a directory" in refused("validate", tiny, "-o", "", "--calibration", law)
    assert "--weight-decay must be within what calibration hand-made" in refused(
        *common, "--weight-decay", "3"
    )
    assert "--seeds must be above zero" in refused(*common, "--seeds", "0")
    assert "the corpus has" in refused(*common, "--ud", "900k", "--flops", "9e10", "--max-params", "1M")
    assert "another sequence_length" in refused(*common, "--set", "sequence_length=64")
    assert "is not the directory of a study" in refused("validate", tiny, "-o", home / "elsewhere")
    assert "neither a file nor a shipped name" in refused("validate", tiny, "--calibration", home / "no.json")
    assert "runs are those of the study" in refused("report", home / "tiny", "--runs", "runs.csv")
    assert "is not the directory of a study" in refused("report", home)
    assert "there is neither a calibration nor a study's directory" in refused("report", home / "elsewhere")
    assert sorted((home / "tiny").rglob("*")) == before
    assert "--workers must be at least 1" in refused(
        "validate", tiny, "-o", home / "elsewhere", "--calibration", law, "--workers", "0"
    )
    assert not (home / "elsewhere").exists()


def test_a_dry_run_says_what_it_would_take_here_and_on_accelerators(tmp_path: Path) -> None:
    write_study(tmp_path)
    asked = ("--dry-run", "--gpu", "A100", "--gpu", "T4", "--gpus", 2, "--mfu", 0.2, "--price", 3)
    done = validate(tmp_path, *asked)
    assert done.exit_code == 0, done.output
    assert [line.split(":")[0].split() for line in done.stdout.splitlines()[-3:]] == [
        ["local", "this", "machine"],
        ["ray", "2", "x", "A100"],
        ["ray", "2", "x", "T4"],
    ]
    facts = json.loads(validate(tmp_path, *asked, "--json").stdout)
    a100 = facts["engines"][1]
    assert a100["hours"] == pytest.approx(facts["flops"] / (0.2 * 312e12) / 3600)
    assert a100["usd"] == pytest.approx(3 * a100["hours"])
    assert not (tmp_path / "tiny").exists()


def test_a_calibration_of_something_else_is_used_with_a_warning(tmp_path: Path) -> None:
    write_study(tmp_path)
    study = load(tmp_path / "tiny.toml")
    folder = begin(study, tmp_path / "tiny")
    prepare(study.runs, folder)
    law, data = Calibration.load("fineweb-llama2"), folder.facts()["data"]

    def strange(**facts: object) -> str:
        changed = law.model_copy(update={"vocab_size": None, "corpus": "", **facts})
        return provenance_mismatch(changed, study.runs[0].architecture.vocab_size, folder)

    assert strange() == strange(vocab_size=257) == strange(data_fingerprint=data) == ""
    assert strange(corpus="FineWeb sample-10BT") == ""  # which says nothing that could be compared
    assert strange(data_fingerprint="0123") == f"another corpus (0123, here {data})"
    # Files of earlier releases have the fingerprint at the end of their corpus.
    assert strange(corpus=f"text.txt; tokenizer bytes; data {data}") == ""
    assert strange(corpus="text.txt; tokenizer bytes; data 0123") == f"another corpus (0123, here {data})"
    asked = (
        "validate",
        tmp_path / "tiny.toml",
        "-o",
        tmp_path / "tiny",
        "--calibration",
        "fineweb-llama2",
        "--dry-run",
    )
    assert run(*asked, "--json").stderr.splitlines() == [
        "Warning: calibration fineweb-llama2 was fitted to another vocabulary (32,100, here 257), "
        "so its laws may not hold here."
    ]


def test_the_published_laws_are_no_strangers_to_the_paper_s_study(tmp_path: Path) -> None:
    vocab = load("paper").runs[0].architecture.vocab_size
    assert not provenance_mismatch(Calibration.load("fineweb-llama2"), vocab, StudyDirectory(tmp_path))


@pytest.mark.slow
def test_a_law_is_fitted_to_a_study(home: Path, tmp_path: Path) -> None:
    """The grid of a larger study as it would be if its losses followed
    a law: the fit finds the law and says where it is from.
    """
    truth = Law("additive_4p", {**BASE, **PENALTY})
    grid = tmp_path / "my.study"
    (grid / "runs").mkdir(parents=True)
    shutil.copy(home / "tiny" / "study.json", grid)
    assert "has no finished runs yet" in refused("fit", grid)
    template = json.loads(next((home / "tiny" / "runs").glob("*/result.json")).read_text())
    for params in (3e4, 6e4, 1.2e5, 2.4e5, 5e5):
        for unique in (3e4, 6e4, 1.2e5, 2.4e5, 5e5):
            for epochs in (1, 4, 16):
                name = f"n{params:g}-u{unique:g}-e{epochs}"
                loss = float(truth.loss(params, unique, epochs))
                tokens = int(unique * epochs)
                row = {
                    "run": name,
                    "params": int(params),
                    "unique_tokens": int(unique),
                    "epochs": epochs,
                    "tokens": tokens,
                }
                (grid / "runs" / name).mkdir()
                content = {**template, **row, "loss": loss, "weight_decay": 0.1, "checksum": None}
                (grid / "runs" / name / "result.json").write_text(json.dumps(content))
    result = run(
        "fit",
        grid,
        "-o",
        tmp_path / "law.json",
        "--bootstrap",
        0,
        "--law",
        "additive_4p",
        "--law",
        "chinchilla",
    )
    assert result.exit_code == 0, result.output
    found = Calibration.load(tmp_path / "law.json")
    assert found.name == "my.study"
    assert found.title == "Tiny"
    assert found.corpus.endswith("text.txt; tokenizer bytes")
    assert found.data_fingerprint == json.loads((grid / "study.json").read_text())["data"]
    assert found.vocab_size == template["architecture"]["vocab_size"]
    assert found.model_family == "Llama-2, untied embeddings, sequences of 32"
    assert found.law(0.1, "additive_4p").loss(2e5, 1e5, 8) == pytest.approx(truth.loss(2e5, 1e5, 8), rel=1e-3)
    assert fit(grid, bootstrap=0, laws=["chinchilla"], corpus="mine").corpus == "mine"
    (grid / "runs" / name / "result.json").write_text("{")
    assert f"{name}/result.json is damaged" in refused("fit", grid)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="is a directory without runs"):
        read_runs(tmp_path / "empty")


@pytest.mark.slow
def test_a_study_that_ships_is_found_next_to_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begin(load("smoke"), tmp_path / "smoke")
    assert load("smoke").runs


@pytest.mark.slow
def test_bits_per_byte_stand_next_to_perplexity(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downstream = pytest.importorskip("trainer.downstream")
    monkeypatch.setenv("DATABOUND_CACHE", str(tmp_path / "cache"))
    questions = tmp_path / "suite" / "next_word" / "rc_0shot"
    questions.mkdir(parents=True)
    lines = [
        {
            "doc_id": doc,
            "idx": k,
            "label": doc % 2,
            "request": {"context": "data bound", "continuation": answer},
        }
        for doc in range(4)
        for k, answer in enumerate((" law", " zebra"))
    ]
    (questions / "requests.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    assert validate(home).exit_code == 0
    made = (
        "report",
        home / "tiny",
        "--calibration",
        home / "law.json",
        "--suite",
        tmp_path / "suite",
        "-o",
        tmp_path / "page.html",
    )
    assert run(*made).exit_code == 0
    assert "next_word" not in (tmp_path / "page.html").read_text()  # nothing was evaluated yet

    trial = json.loads((home / "tiny" / "validation.json").read_text())["trials"][0]
    names = sorted({law["configuration"]["runs"][0] for law in trial["laws"]})
    found = downstream.evaluate_all(
        [home / "tiny" / VALIDATION / name for name in names], suite=str(tmp_path / "suite")
    )
    result = run(*made)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "page.html").read_text()
    assert "next_word (0-shot)" in text
    assert all(f"{one.bpb:.4f}" in text for one in found)
    assert "no-such-suite" in refused(*made[:4], "--suite", "no-such-suite", "-o", tmp_path / "page.html")
