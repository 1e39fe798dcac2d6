"""From a plan to a run: the files that `planner train` and transformers take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import Calibration, InvalidInput, plan
from planner.cli import planner
from trainer.config import RunConfig

PLAN = ["plan", "--ud", "250M", "--flops", "5e18"]


def test_the_run_of_a_plan_is_one_that_train_takes(tmp_path: Path) -> None:
    target = tmp_path / "run.toml"
    result = CliRunner().invoke(planner, [*PLAN, "--run", str(target)])
    assert result.exit_code == 0, result.output
    assert f"Run written to {target}" in result.output
    made, recipe = plan(250e6, 5e18), Calibration.load().recipe
    run = RunConfig.from_toml(target)
    assert recipe is not None
    assert run.architecture(32_000) == made.architecture
    assert (run.unique_tokens, run.epochs, run.weight_decay) == (250_000_000, 6, 1.0)
    assert (run.learning_rate, run.batch_size) == (recipe.learning_rate, recipe.batch_sequences)
    assert (run.sequence_length, run.min_lr_ratio) == (recipe.sequence_length, recipe.min_lr_ratio)
    assert (run.warmup_ratio, run.betas, run.clip) == (recipe.warmup_ratio, recipe.betas, recipe.clip)
    assert target.read_text() == made.run_config()


def test_a_recipe_of_ones_own_is_what_the_run_has(tmp_path: Path) -> None:
    known = Calibration.load()
    assert known.recipe is not None
    changes = {"learning_rate": 1e-5, "batch_sequences": 12, "clip": None, "warmup_ratio": 0.25}
    own = known.model_copy(update={"recipe": known.recipe.model_copy(update=changes)})
    target = tmp_path / "run.toml"
    target.write_text(plan(1e9, 1e17, calibration=own).run_config("texts/íslenska*.txt", "bytes"))
    run = RunConfig.from_toml(target)
    assert (run.learning_rate, run.batch_size, run.warmup_ratio) == (1e-5, 12, 0.25)
    assert run.corpus.paths == (str(tmp_path / "texts/íslenska*.txt"),)
    assert run.tokenizer == "bytes"


def test_first_weights_optimiser_and_ties_are_those_of_the_calibration(tmp_path: Path) -> None:
    known = Calibration.load("micro-weight-decay")
    assert known.recipe is not None
    changes = {"init": "normal", "adam_eps": 1e-6, "decay": "all", "rope_theta": 5e5}
    recipe = known.recipe.model_copy(update=changes)
    target, own = tmp_path / "run.toml", tmp_path / "own.json"
    known.model_copy(update={"recipe": recipe, "tied_embeddings": True}).save(own)
    made = plan(128e3, 1e12, calibration=own)
    target.write_text(made.run_config())
    run = RunConfig.from_toml(target)
    assert {name: getattr(run, name) for name in changes} == changes
    assert run.tied_embeddings
    assert made.architecture is not None
    assert made.architecture.params == pytest.approx(made.params, rel=0.02)
    assert made.hf_config()["rope_theta"] == 5e5
    assert made.hf_config()["tie_word_embeddings"]


def test_what_a_calibration_does_not_say_is_left_to_the_trainer() -> None:
    assert "init" not in plan(250e6, 5e18).run_config()  # the paper does not
    assert 'init = "scaled"' in plan(128e3, 1e12, calibration="micro-weight-decay").run_config()


DECAY_LAW = [
    "plan",
    "--calibration",
    "micro-weight-decay",
    "--ud",
    "49k",
    "--flops",
    "3e11",
    "--learning-rate",
    "3e-3",
]


def test_a_learning_rate_of_ones_own_is_what_is_shown_and_what_is_run(tmp_path: Path) -> None:
    target = tmp_path / "run.toml"
    result = CliRunner().invoke(
        planner, [*DECAY_LAW, "--batch-tokens", "4096", "--run", str(target), "--why"]
    )
    said = " ".join(result.output.split())
    assert "learning rate 0.003, batches of 4,096 tokens (calibrated: 0.01, 512); AdamW" in said
    run = RunConfig.from_toml(target)
    assert (run.learning_rate, run.batch_size, run.sequence_length) == (0.003, 32, 128)
    assert f"weight decay {run.weight_decay:g} (0.5 to 4.5; 1.1 as calibrated)" in said


def test_a_batch_of_ones_own_is_whole_sequences(tmp_path: Path) -> None:
    target = tmp_path / "r.toml"
    result = CliRunner().invoke(planner, [*DECAY_LAW, "--batch-tokens", "4000", "--run", str(target)])
    assert "4,000 tokens a step are taken as 3,968, whole sequences." in " ".join(result.output.split())
    assert RunConfig.from_toml(target).batch_size == 3968 // 128


def test_a_batch_below_a_sequence_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        planner, [*DECAY_LAW, "--batch-tokens", "100", "--run", str(tmp_path / "r.toml")]
    )
    assert result.exit_code == 2
    words = "--batch-tokens must be whole sequences of 128 tokens for a run; got 100, and 128 would do."
    assert result.output == f"Error: {words}\n"


def test_less_than_an_epoch_is_one_epoch_of_a_part(tmp_path: Path) -> None:
    made = plan(100e9, 5e18)
    assert made.epochs < 1
    target = tmp_path / "run.toml"
    target.write_text(made.run_config())
    run = RunConfig.from_toml(target)
    assert run.epochs == 1
    assert run.unique_tokens == pytest.approx(made.tokens, abs=1)


def test_a_calibration_without_a_recipe_says_so() -> None:
    with pytest.raises(InvalidInput, match=r"^calibration c4-gpt2 has no recipe \(learning rate.*\.$"):
        plan(250e6, 5e18, calibration="c4-gpt2").run_config()


def test_the_plan_names_what_its_weight_decay_goes_with() -> None:
    said = " ".join(CliRunner().invoke(planner, [*PLAN, "--why"]).output.split())
    assert "learning rate 0.0002, batches of 65,536 tokens" in said
    assert "weight decay is multiplied by the learning rate" in said
    assert json.loads(plan(250e6, 5e18).model_dump_json())["recipe"]["learning_rate"] == 2e-4
    without = CliRunner().invoke(planner, [*PLAN, "--calibration", "c4-gpt2"]).output
    assert "learning rate" not in without


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--run", "run.json"), "--run must name a .toml file; got 'run.json'."),
        (("--run", "no/such/run.toml"), "'no/such/run.toml' cannot be written: No such file or directory."),
        (("--export", "hf", "no/such/dir"), "'no/such/dir/config.json' cannot be written: No such file"),
        (("--export", "nanochat", "there"), "--export cannot be nanochat, whose model is another one"),
        (("--export", "keras", "there"), "--export must be one of hf, torchtitan, litgpt; got 'keras'."),
    ],
)
def test_what_cannot_be_written_is_one_sentence(args: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(planner, [*PLAN, *args])
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {words}")
