"""Plans for other programs: what they write is what those load, and one step of it is one of this plan."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from planner import Calibration, Plan, plan
from planner.cli import planner
from planner.export import DEFAULTS
from trainer.config import RunConfig
from trainer.model.optimizer import learning_rate

SMALL = ["plan", "--calibration", "micro-weight-decay", "--ud", "24k", "--flops", "1e11"]


def exported(target: str, folder: Path, **recipe: Any) -> tuple[Plan, RunConfig]:
    """A plan of which every setting is written, and the run that `planner train` would make of it."""
    known = Calibration.load("micro-weight-decay")
    assert known.recipe is not None
    made = plan(24e3, 1e11, calibration=known.changed(recipe=known.recipe.model_copy(update=recipe)))
    folder.mkdir()
    for name, text in made.export(target).items():
        (folder / name).write_text(text)
    (folder / "run.toml").write_text(made.run_config())
    return made, RunConfig.from_toml(folder / "run.toml")


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = found
    spec.loader.exec_module(found)
    return found


def steps_of(run: RunConfig) -> int:
    chunks = run.unique_tokens // run.sequence_length
    return -(-round(run.epochs * chunks) // run.batch_size)


def test_what_a_recipe_does_not_say_is_what_the_trainer_does() -> None:
    run = RunConfig(shape="15M", unique_tokens="1M", tokenizer="bytes").model_dump(mode="json")
    assert {name: run[name] for name in DEFAULTS} == DEFAULTS


def test_a_plan_is_written_with_what_differs(tmp_path: Path) -> None:
    for target in ("hf", "torchtitan", "litgpt"):
        result = CliRunner().invoke(planner, [*SMALL, "--export", target, str(tmp_path / target)])
        assert result.exit_code == 0, result.output
        said = (tmp_path / target / "README.md").read_text()
        made, run = exported(target, tmp_path / f"{target}-again")
        assert f"{steps_of(run):,} steps of {run.batch_size:,} sequences" in said
        assert "init = 'scaled', which is not here" in said or target == "litgpt"
        assert f"expected loss {made.loss:.4f}" in said
    assert "dropout 0.1" not in said
    exported("hf", tmp_path / "rich", dropout=0.1, ema_decay=0.99, optimizer="Muon, AdamW")
    said = (tmp_path / "rich" / "README.md").read_text()
    for left_out in ("dropout 0.1", "an average of weights", "Muon for the matrices"):
        assert left_out in said


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [{}, {"schedule": "WSD", "warmup_steps": 7, "decay_ratio": 0.3}])
def test_transformers_loads_and_steps(tmp_path: Path, recipe: dict[str, Any]) -> None:
    pytest.importorskip("accelerate")
    import numpy as np
    import torch

    made, run = exported("hf", tmp_path / "hf", decay="matrices-without-embeddings", **recipe)
    program = module(tmp_path / "hf" / "train.py")
    steps = steps_of(run)
    assert program.RUN["steps"] == steps
    rates = [program.rate(step) * run.learning_rate for step in range(steps)]
    assert rates == pytest.approx([learning_rate(step, steps, run) for step in range(steps)])
    tokens = np.arange(run.unique_tokens + 1, dtype=np.uint16) % 1000
    trainer = program.trainer(
        tokens, str(tmp_path / "out"), max_steps=1, save_strategy="no", disable_tqdm=True
    )
    assert sum(weights.numel() for weights in trainer.model.parameters()) == made.architecture.params  # type: ignore[union-attr]
    assert len(trainer.train_dataset) == round(run.epochs * (run.unique_tokens // run.sequence_length))
    first = [trainer.train_dataset[place]["input_ids"][0].item() for place in range(program.RUN["chunks"])]
    assert len(set(first)) > 100  # an epoch has each sequence once
    embedding = trainer.model.get_input_embeddings().weight
    assert not any(embedding is each for each in trainer.optimizer.param_groups[0]["params"])
    before = embedding.detach().clone()
    trainer.train()
    logged = trainer.state.log_history[-1]
    assert logged["train_loss"] == pytest.approx(np.log(made.architecture.vocab_size), abs=0.3)  # type: ignore[union-attr]
    assert not torch.equal(before, embedding)


def test_litgpt_loads_and_steps(tmp_path: Path) -> None:
    made, run = exported("litgpt", tmp_path / "litgpt")
    given = json.loads((tmp_path / "litgpt" / "pretrain.yaml").read_text())
    train = given["train"]
    assert train["max_tokens"] == steps_of(run) * run.batch_size * run.sequence_length
    litgpt = pytest.importorskip("litgpt")
    import torch
    from litgpt.args import TrainArgs

    TrainArgs(**train)
    model = litgpt.GPT(litgpt.Config(**given["model_config"]))
    assert sum(weights.numel() for weights in model.parameters()) == made.architecture.params  # type: ignore[union-attr]
    adamw = torch.optim.AdamW(model.parameters(), **given["optimizer"]["init_args"])
    ids = torch.arange(run.sequence_length).unsqueeze(0) % 1000
    loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    adamw.step()


def test_torchtitan_loads(tmp_path: Path) -> None:
    made, run = exported("torchtitan", tmp_path / "titan", schedule="WSD", warmup_steps=7, decay_ratio=0.3)
    compile((tmp_path / "titan" / "databound_plan.py").read_text(), "databound_plan.py", "exec")
    pytest.importorskip("torchtitan")
    for recipe, folder in (
        ({"schedule": "WSD", "warmup_steps": 7, "decay_ratio": 0.3}, "wsd"),
        ({}, "cosine"),
    ):
        made, run = exported("torchtitan", tmp_path / folder, **recipe)
        config = module(tmp_path / folder / "databound_plan.py").plan()
        model = config.model_spec.model.build()
        assert sum(weights.numel() for weights in model.parameters()) == made.architecture.params  # type: ignore[union-attr]
        config.optimizer.implementation = "for-loop"
        optimizers = config.optimizer.build(model_parts=[model])
        decayed = [
            (group["weight_decay"], len(group["params"])) for group in optimizers.optimizers[0].param_groups
        ]
        assert decayed[0][0] == 0.0
        assert decayed[1][0] == run.weight_decay
        steps = steps_of(run)
        schedule = config.lr_scheduler.build(optimizers=optimizers, training_steps=steps)
        rates = []
        for _ in range(steps):
            rates.append(schedule.schedulers[0].get_last_lr()[0])
            schedule.step()
        assert rates == pytest.approx([learning_rate(step, steps, run) for step in range(steps)])
