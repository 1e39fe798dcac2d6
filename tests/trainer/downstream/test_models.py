"""What can be evaluated is loaded, what cannot is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from planner.errors import InvalidInput
from trainer.downstream import models

transformers = pytest.importorskip("transformers", reason="Hugging Face folders need transformers")


def test_a_run_and_its_export(run: Path, exported: Path) -> None:
    first, second = models.load(run), models.load(exported)
    assert (first.kind, second.kind) == ("run", "hf")
    assert first.limit == second.limit == 512
    assert first.vocab_size == second.vocab_size == 600
    assert first.encode(["Über alles ✓"]) == second.encode(["Über alles ✓"])
    assert first.fingerprint == models.load(run).fingerprint != second.fingerprint


def test_other_weights_have_another_fingerprint(exported: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(exported, tmp_path / "other")
    weights = load_file(exported / "model.safetensors")
    weights["model.norm.weight"][0] += 1e-3
    save_file(weights, tmp_path / "other" / "model.safetensors", metadata={"format": "pt"})
    assert models.load(tmp_path / "other").fingerprint != models.load(exported).fingerprint


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no folder"):
        models.load(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match=r"neither a finished run .* nor a Hugging Face folder"):
        models.load(tmp_path)
    (tmp_path / "config.json").write_text('{"preset": "micro"}')
    with pytest.raises(InvalidInput, match="an unfinished run must be trained to its end first"):
        models.load(tmp_path)
    for text in ("not json", "[]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"config\.json cannot be read as JSON"):
            models.load(tmp_path)


@pytest.mark.parametrize(
    ("family", "head", "sizes"),
    [
        ("bert", "AutoModelForMaskedLM", {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}),
        ("t5", "AutoModelForSeq2SeqLM", {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 16, "d_kv": 8}),
        ("llama", "AutoModelForSequenceClassification", {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}),
    ],
)  # fmt: skip
def test_models_that_are_not_causal(family: str, head: str, sizes: dict[str, int], tmp_path: Path) -> None:
    config = transformers.AutoConfig.for_model(family, vocab_size=50, **sizes)
    getattr(transformers, head).from_config(config).save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match="holds no causal language model but"):
        models.load(tmp_path)


def test_damaged_folders(exported: Path, tmp_path: Path) -> None:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(exported, tmp_path / name))

    folder = copy("cut")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(InvalidInput, match=r"the model in .*cut cannot be loaded"):
        models.load(folder)

    folder = copy("layers")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(InvalidInput, match=r"are not those of LlamaForCausalLM: model\.layers\.2\..* is missing"):
        models.load(folder)

    folder = copy("speechless")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(InvalidInput, match="tokenizer"):
        models.load(folder)


def test_bos_must_be_known(run: Path) -> None:
    with pytest.raises(InvalidInput, match="bos must be one of auto, always, never; got 'sometimes'"):
        models.load(run, bos="sometimes")
