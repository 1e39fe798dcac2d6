"""A run is described once, checked whole, and its mistakes are named."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import trainer
from planner.hardware import ACCELERATORS, presets
from planner.inputs import InvalidInput
from tests.places import ROOT
from trainer.config import PRESETS, RunConfig
from trainer.model.optimizer import learning_rate
from trainer.run.device import data_sheet_peak, flops_per_token

GOOD: dict[str, Any] = {"preset": "micro", "params": "100k", "unique_tokens": "128k"}


def test_the_paper_is_the_default() -> None:
    config = RunConfig(shape="125M", unique_tokens="250M", tokenizer="bytes")
    assert (config.learning_rate, config.betas, config.batch_size, config.sequence_length) == (
        2e-4,
        (0.9, 0.95),
        128,
        512,
    )
    assert (config.clip, config.min_lr_ratio, config.warmup_ratio, config.weight_decay) == (
        1.0,
        0.1,
        0.01,
        0.1,
    )
    assert (config.corpus.dataset, config.corpus.subset, config.validation_documents) == (
        "HuggingFaceFW/fineweb",
        "sample-10BT",
        6400,
    )
    assert config.architecture(32_000) == presets()["125M"]


def test_presets_and_changes() -> None:
    config = RunConfig(**GOOD)
    assert config.learning_rate == PRESETS["micro"]["learning_rate"]
    assert config.architecture(1024).params == pytest.approx(100_000, rel=0.02)
    assert config.having(weight_decay=1).fingerprint() != config.fingerprint()
    assert (
        config.having(micro_batch=1, cache="elsewhere", compile=False).fingerprint() == config.fingerprint()
    )
    assert RunConfig(**config.model_dump(mode="json")) == config  # a stored configuration comes back
    assert RunConfig(**GOOD | {"compile": True}).compile == "on"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "mini"}, "preset must be one of paper, micro; got 'mini'"),
        ({"lerning_rate": 1}, "lerning_rate is not a setting of a run; did you mean learning_rate"),
        ({"corpus": {"paths": "x", "dataset": "y"}}, "either paths"),
        ({"unique_tokens": "many"}, "unique_tokens must be a number such as 250e6"),
        ({"unique_tokens": 5}, "at least one sequence of 128 tokens; got 5"),
        ({"epochs": 0}, "epochs: input should be greater than 0; got 0"),
        ({"epochs": float("nan")}, "epochs: input should be"),
        ({"weight_decay": -1}, "weight_decay: input should be greater"),
        ({"betas": (0.9, 1.0)}, "betas must be at least 0 and below 1"),
        ({"shape": "15M"}, "give either shape"),
        ({"params": None, "shape": "16M"}, "shape must be one of 15M"),
        (
            {"params": None, "shape": {"d_model": 64, "layers": 2, "heads": 3, "d_ff": 8}},
            "heads must divide d_model; got 3 heads",
        ),
        (
            {"params": None, "shape": {"d_model": 6, "layers": 2, "heads": 2, "d_ff": 8}},
            "must be even for rotary positions",
        ),
        ({"params": None, "shape": {"d_model": 6, "layers": 2, "heads": 2}}, "d_ff is missing"),
        (
            {"params": None, "shape": {"d_model": 8, "layer": 2}},
            "shape.layer is not a setting of a run; did you mean shape.layers",
        ),
        (
            {"params": None, "shape": {"d_model": 8, "layers": 0, "heads": 1, "d_ff": 8}},
            "shape.layers: input should be greater",
        ),
        ({"params": None, "shape": 5}, "shape must be a name such as '15M' or a table"),
        ({"corpus": 5}, "corpus must be a path, a list of paths, or a table"),
        ({"corpus": {"path": "x"}}, "corpus.path is not a setting of a run; did you mean corpus.paths"),
        ({"corpus": {"paths": "x", "tokens": "many"}}, "corpus.tokens must be"),
        ({"preset": [1]}, "preset must be one of paper, micro; got [1]"),
        ({"betas": [0.9]}, "betas must be two numbers, such as [0.9, 0.95]; got [0.9]"),
        ({"epochs": 1e300}, "epochs: input should be less than or equal to 1000000"),
        ({"batch_size": 10**11}, "batch_size: input should be less than or equal to 1048576"),
        ({"dtype": "fp8"}, "dtype: input should be 'auto', 'fp32' or 'bf16'; got 'fp8'"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RunConfig(**GOOD | changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_toml_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'preset = "micro"\nparams = "100k"\nunique_tokens = "1M"\ncorpus = "texts"\ncache = "cache"\n'
    )
    config = RunConfig.from_toml(tmp_path / "run.toml", seed=3)
    assert config.corpus.paths == (str(tmp_path / "texts"),)
    assert (config.cache, config.seed) == (str(tmp_path / "cache"), 3)
    for content, message in (
        ("preset = ", "is not TOML"),
        ("wd = 1", "wd is not a setting"),
        ("", "is missing"),
    ):
        (tmp_path / "bad.toml").write_text(content)
        with pytest.raises(InvalidInput, match=message):
            RunConfig.from_toml(tmp_path / "bad.toml")
    with pytest.raises(InvalidInput, match="there is no file"):
        RunConfig.from_toml(tmp_path / "none.toml")


def test_a_change_may_be_of_a_field_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('params = "100k"\nunique_tokens = "1M"\ntokenizer = "bytes"\n')
    plain = RunConfig.from_toml(tmp_path / "run.toml", **{"corpus.split": "test"})
    assert (plain.corpus.dataset, plain.corpus.split) == ("HuggingFaceFW/fineweb", "test")
    micro = RunConfig.from_toml(tmp_path / "run.toml", **{"corpus.tokens": "2M", "preset": "micro"})
    assert (micro.corpus.paths, micro.corpus.tokens) == (("python-stdlib",), 2_000_000)


def test_the_learning_rate_rises_and_falls() -> None:
    config = RunConfig(**GOOD | {"learning_rate": 1.0})
    rates = [learning_rate(step, 1000, config) for step in range(1000)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[10] == rates[9] == 1.0
    assert rates[-1] == pytest.approx(0.1)
    assert all(a >= b for a, b in pairwise(rates[9:]))
    assert rates[504] == pytest.approx(0.55, abs=0.01)
    assert learning_rate(0, 1, config) == 1.0
    for steps in (2, 3, 4):
        assert learning_rate(0, steps, config) == 1.0
        assert learning_rate(steps - 1, steps, config) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("Tesla V100-SXM2-16GB", "V100"),
    ],
)
def test_peaks_are_those_of_the_planner(name: str, known: str) -> None:
    assert data_sheet_peak(name) == ACCELERATORS[known].peak_flops


@pytest.mark.parametrize(
    "name", ["NVIDIA L40", "NVIDIA A10", "NVIDIA GeForce RTX 4090 Laptop GPU", "Some GPU"]
)
def test_a_device_that_is_not_known_is_not_taken_for_another(name: str) -> None:
    assert data_sheet_peak(name) is None


def test_flops_are_six_per_parameter_plus_attention() -> None:
    shape = presets()["15M"]
    expected = 6 * (shape.non_embedding_params + 32_100 * 192) + 6 * 6 * 192 * 512
    assert flops_per_token(shape, 512) == expected


def test_importing_is_light() -> None:
    code = (
        "import sys, planner, trainer.cli, trainer.config; "
        "print({'torch', 'datasets', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_pieces_are_importable_from_the_package() -> None:
    assert {"RunConfig", "train", "load_run", "Llama", "Batches", "prepare", "evaluate"} <= set(dir(trainer))
    for name in trainer.__all__:
        assert callable(getattr(trainer, name))
        assert find_spec(f"trainer.{name}") is None  # importing a module of that name would take its place
