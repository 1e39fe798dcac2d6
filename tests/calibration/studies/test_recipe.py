"""The recipe of a study's runs stays with its law: from the sweep through the calibration into the run that a
plan writes, which is then trained as the runs behind the law were.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from click.testing import CliRunner

from calibration.studies.study import load
from planner.calibration import Calibration
from planner.cli import planner
from tests.calibration.studies.conftest import run
from trainer.config import LATER, RunConfig

OTHERS = """
init = "normal"
adam_eps = 1e-6
decay = "all"
norm_eps = 1e-6
rope_theta = 50000.0
order = "fixed"
min_lr_ratio = 0.2
warmup_ratio = 0.05
betas = [0.8, 0.99]
clip = 0.5
batch_size = 2
tied_embeddings = true
dropout = 0.1
optimizer = "muon"
muon_weight_decay = 0.3
ema_decay = 0.9
"""
CORPUS = {"corpus", "tokenizer", "validation_documents", "development_documents"}  # a plan does not know them


def _planned(law: Path, target: Path) -> RunConfig:
    budget = ["--ud", "4096", "--flops", "6e8", "--params", "20k"]
    done = CliRunner().invoke(
        planner, ["plan", "--calibration", str(law), *budget, "--run", str(target)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return RunConfig.from_toml(target, tokenizer="bytes")


def _same(planned: RunConfig, study: Path) -> None:
    """The run is one of the study's own, of the same model and data."""
    size = planned.architecture(257).params
    cell = {"unique_tokens": planned.unique_tokens, "epochs": planned.epochs}
    own = load(str(study)).run(params=size, weight_decay=planned.weight_decay, seed=0, **cell)
    assert planned.architecture(257) == own.architecture
    unlike = CORPUS | {"shape", "params", "vocab_size"}
    one, other = (
        {name: value for name, value in config.identity().items() if name not in unlike}
        for config in (planned, own.config)
    )
    assert one == other


def test_a_run_of_a_plan_has_the_recipe_of_the_study(study: Path, tmp_path: Path) -> None:
    out, law = tmp_path / "out of mine", tmp_path / "law.json"
    study.write_text(
        study.read_text().replace("compile =", f"{OTHERS}compile =").replace("seeds = [0, 1]", "seeds = [0]")
    )
    swept = run(study, out)
    assert swept.returncode == 0
    said = shlex.split(swept.stdout.partition("Next: planner ")[2])  # as it would be pasted
    assert said == ["calibrate", "fit", str(out), "-o", "law.json"]
    args = [*said[:-1], str(law), "--bootstrap", "0"]
    fitted = CliRunner().invoke(planner, args, catch_exceptions=False)
    assert fitted.exit_code == 0, fitted.output
    kept = json.loads(law.read_text())["recipe"]
    assert (kept["init"], kept["adam_eps"], kept["decay"]) == ("normal", 1e-6, "all")
    assert kept["optimizer"] == "Muon, AdamW"
    assert kept["learning_rate"] == 0.01  # which the preset says, and not the study
    _same(_planned(law, tmp_path / "run.toml"), study)


def test_shipped_calibrations_have_the_recipe_of_their_studies(tmp_path: Path) -> None:
    studies = {"micro": "micro", "micro-weight-decay": "studies/weight-decay/study.toml"}
    for name, file in studies.items():
        recipe, config = Calibration.load(name).recipe, load(file).runs[0].config
        assert recipe is not None
        for each in recipe.as_in_runs:  # what came later is not said where it is as it was
            default = RunConfig.model_fields[each].default if each in LATER else None
            said = getattr(recipe, each)
            assert (default if said is None else said) == getattr(config, each)
        assert (recipe.learning_rate, recipe.batch_sequences) == (config.learning_rate, config.batch_size)
        assert recipe.sequence_length == config.sequence_length
