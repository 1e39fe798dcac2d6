"""The figures are those that plain transformers code gives, for every task and for models of many kinds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.downstream import reference
from tests.trainer.downstream.conftest import ANSWERS, QUESTIONS
from trainer import RunConfig, train
from trainer.downstream import evaluate, models
from trainer.run.export import export

transformers = pytest.importorskip("transformers", reason="the reference implementation needs transformers")

DOCUMENTS = 20
SUITE = {"questions/rc_5shot": QUESTIONS, "answers/bpb_0shot": ANSWERS}


def check(found: Any, folder: Path, tasks: Path, length: int, tolerance: float = 1e-4) -> None:
    model, tokenizer = reference.load(folder)
    for task in found.tasks:
        path = tasks / task.task / task.variant / "requests.jsonl.gz"
        assert task.bpb == pytest.approx(
            reference.task_bpb(model, tokenizer, path, task.variant, 10**9, length), abs=tolerance
        ), task.task
        if task.variant.startswith("rc"):
            expected = reference.task_accuracies(model, tokenizer, path, 10**9, length)
            assert (task.accuracy, task.accuracy_raw) == pytest.approx(expected), task.task


@pytest.mark.slow
def test_every_task_agrees_with_plain_transformers(run: Path, exported: Path, olmes19: list[Any]) -> None:
    found = evaluate(run, limit=DOCUMENTS, keep=False)
    model, tokenizer = reference.load(exported)
    assert len(found.tasks) == 19
    expected = {t.label: reference.task_bpb(model, tokenizer, t.path, t.variant, DOCUMENTS) for t in olmes19}
    for task in found.tasks:
        assert task.documents == DOCUMENTS
        assert task.bpb == pytest.approx(expected[f"{task.task}/{task.variant}"], abs=1e-4), task.task
    assert found.bpb == pytest.approx(sum(expected.values()) / 19, abs=1e-4)
    assert sum(task.truncated > 0 for task in found.tasks) >= 7  # so the window matters


@pytest.mark.slow
def test_accuracy_agrees_with_plain_transformers(exported: Path, olmes19: list[Any]) -> None:
    found = evaluate(exported, limit=8, only=[t.name for t in olmes19 if t.multiple_choice], keep=False)
    model, tokenizer = reference.load(exported)
    paths = {task.name: task.path for task in olmes19}
    assert len(found.tasks) == 13
    for task in found.tasks:
        expected = reference.task_accuracies(model, tokenizer, paths[task.task], 8)
        assert (task.accuracy, task.accuracy_raw) == pytest.approx(expected), task.task


def test_one_token_more_or_less_of_context_would_be_noticed(
    exported: Path, suite: Callable[..., Path], tmp_path: Path
) -> None:
    """With large weights and learnt positions everything depends on
    everything: windows of 127 or 129 tokens are far out of tolerance.
    """
    tasks = suite(SUITE)
    folder = wild("gpt2", exported, tmp_path)
    found = evaluate(folder, suite=str(tasks), only=["answers"], keep=False, max_length=128)
    check(found, folder, tasks, 128)
    model, tokenizer = reference.load(folder)
    path = tasks / "answers" / "bpb_0shot" / "requests.jsonl.gz"
    for length in (127, 129):
        assert abs(found.bpb - reference.task_bpb(model, tokenizer, path, "bpb_0shot", 99, length)) > 1e-3


@pytest.mark.parametrize("length", [512, 100, 7])
def test_run_and_exported_folder_agree_at_any_length(
    run: Path, exported: Path, suite: Callable[..., Path], length: int
) -> None:
    """Shorter than some answers too: the reference then sees them
    only in part, so the two are compared with each other.
    """
    tasks = str(suite(SUITE))
    first = evaluate(run, suite=tasks, max_length=length, keep=False)
    second = evaluate(exported, suite=tasks, max_length=length, keep=False)
    for a, b in zip(first.tasks, second.tasks, strict=True):
        assert a.scores.bpb == pytest.approx(b.scores.bpb, abs=1e-5)
        assert (a.accuracy, a.accuracy_raw, a.truncated) == (b.accuracy, b.accuracy_raw, b.truncated)
    if length > 7:
        check(second, exported, Path(tasks), length)
    else:
        assert any(task.in_pieces for task in first.tasks)


FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256},
    "gpt_neox": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 256,
    },
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 2},
    # its logits are squashed after the head, so the head alone would be wrong
    "gemma2": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "intermediate_size": 64,
        "max_position_embeddings": 128,
        "final_logit_softcapping": 0.5,
    },
    # attention reaches 40 tokens back in these two, so padding between shared parts would count
    "mistral": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 64,
        "max_position_embeddings": 128,
        "sliding_window": 40,
    },
    "gpt_neo": {
        "hidden_size": 32,
        "num_layers": 2,
        "attention_types": [[["global", "local"], 1]],
        "num_heads": 2,
        "window_size": 40,
        "max_position_embeddings": 128,
        "bos_token_id": 599,
        "eos_token_id": 599,
    },
    "opt": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "ffn_dim": 64,
        "num_attention_heads": 2,
        "word_embed_proj_dim": 32,
        "max_position_embeddings": 128,
    },
    # keeps a state and no keys and values, so beginnings cannot be shared
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
}


def wild(family: str, exported: Path, folder: Path) -> Path:
    """A model of some family with large random weights, and the tokenizer of the exported run."""
    import torch

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(
        family, vocab_size=600, initializer_range=0.3, **FAMILIES[family]
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder / family)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(exported / name, folder / family / name)
    return folder / family


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_models_of_other_families(
    family: str, exported: Path, suite: Callable[..., Path], tmp_path: Path
) -> None:
    tasks = suite(SUITE)
    folder = wild(family, exported, tmp_path)
    found = evaluate(folder, suite=str(tasks), keep=False, max_length=128)
    check(found, folder, tasks, 128)
    model = models.find(folder).load()
    model.see(128)
    assert model.shares == (family not in ("mamba", "mistral", "gpt_neo"))


def with_bos(exported: Path, folder: Path) -> Path:
    """The same model with a tokenizer that begins every text with a special token."""
    shutil.copytree(exported, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    end = next(token for token in tokenizer["added_tokens"] if token["special"])
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": end["content"], "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            end["content"]: {"id": end["content"], "ids": [end["id"]], "tokens": [end["content"]]}
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": end["content"]}))
    return folder


def test_tokenizers_with_and_without_a_beginning_token(
    exported: Path, run: Path, suite: Callable[..., Path], tmp_path: Path
) -> None:
    tasks = suite(SUITE)
    folder = with_bos(exported, tmp_path / "bos")
    own = evaluate(folder, suite=str(tasks), keep=False)
    assert own.choices["bos"] == [599]
    check(own, folder, tasks, 512)
    never = evaluate(folder, suite=str(tasks), keep=False, bos="never")
    assert never.choices["bos"] == "none"
    check(never, exported, tasks, 512)
    assert evaluate(exported, suite=str(tasks), keep=False).choices["bos"] == "none"
    always = evaluate(run, suite=str(tasks), keep=False, bos="always")
    assert always.bpb == pytest.approx(own.bpb, abs=1e-5)
    # a token at the beginning hardly matters to a model that has learnt next to nothing
    assert abs(always.bpb - own.bpb) < abs(always.bpb - never.bpb) / 2


def test_a_run_with_a_sentencepiece_tokenizer(
    settings: dict[str, Any],
    pieces: Path,
    suite: Callable[..., Path],
    tmp_path: Path,
) -> None:
    tasks = suite(SUITE)
    train(
        RunConfig(
            **settings
            | {"tokenizer": str(pieces), "sequence_length": 128, "epochs": 1, "unique_tokens": 128 * 40}
        ),
        tmp_path / "run",
    )
    folder = export(tmp_path / "run", tmp_path / "hf")
    found = evaluate(tmp_path / "run", suite=str(tasks), keep=False)
    check(found, folder, tasks, 128)
    assert evaluate(folder, suite=str(tasks), keep=False).bpb == pytest.approx(found.bpb, abs=1e-5)
