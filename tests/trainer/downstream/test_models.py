"""What can be evaluated is loaded, what cannot is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from planner.inputs import InvalidInput
from trainer.downstream import models

transformers = pytest.importorskip("transformers", reason="Hugging Face folders need transformers")


def test_a_run_and_its_export(run: Path, exported: Path) -> None:
    first, second = models.find(run).load(), models.find(exported).load()
    assert (first.kind, second.kind) == ("run", "hf")
    assert first.limit == second.limit == 512
    assert first.vocab_size == second.vocab_size == 600
    assert first.encode(["Über alles ✓"]) == second.encode(["Über alles ✓"])
    assert first.fingerprint == models.find(run).load().fingerprint != second.fingerprint


def test_other_weights_have_another_fingerprint(exported: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(exported, tmp_path / "other")
    weights = load_file(exported / "model.safetensors")
    weights["model.norm.weight"][0] += 1e-3
    save_file(weights, tmp_path / "other" / "model.safetensors", metadata={"format": "pt"})
    assert models.find(tmp_path / "other").load().fingerprint != models.find(exported).load().fingerprint


def test_one_byte_makes_another_fingerprint_however_large_the_file(exported: Path, tmp_path: Path) -> None:
    """The weights of a merged adapter may differ from the original in a small part of a large file."""
    folder = Path(shutil.copytree(exported, tmp_path / "large"))
    found = []
    for byte in (b"\0", b"\1"):
        with open(folder / "model.safetensors", "wb") as stream:
            stream.truncate(70 * 2**20)
            stream.seek(2**20 + 2**15)
            stream.write(byte)
        found.append(models.find(folder).fingerprint)
    assert found[0] != found[1]


def test_a_model_is_known_without_its_weights(run: Path, exported: Path, tmp_path: Path) -> None:
    for folder, weights in ((run, "final/model.safetensors"), (exported, "model.safetensors")):
        copy = Path(shutil.copytree(folder, tmp_path / folder.name))
        model = models.find(copy)
        assert (model.limit, model.before, model.encode(["a"])) == (
            512,
            (),
            models.find(folder).load().encode(["a"]),
        )
        (copy / weights).unlink()
        with pytest.raises(InvalidInput):
            models.find(copy).load()
    assert models.find(tmp_path / run.name).fingerprint == models.find(run).load().fingerprint


def test_what_else_is_in_a_folder_does_not_matter(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "more"))
    (folder / "README.md").write_text("a model")
    (folder / "logs.json").mkdir()
    assert models.find(folder).load().fingerprint == models.find(exported).load().fingerprint


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no folder"):
        models.find(tmp_path / "nothing").load()
    with pytest.raises(InvalidInput, match=r"neither a finished run .* nor a Hugging Face folder"):
        models.find(tmp_path).load()
    (tmp_path / "config.json").write_text('{"preset": "micro"}')
    with pytest.raises(InvalidInput, match="an unfinished run must be trained to its end first"):
        models.find(tmp_path).load()
    for text in ('{"model_type": ["llama"]}', '{"model_type": "llama", "architectures": "LlamaForCausalLM"}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(
            InvalidInput, match="needs a text as model_type and a list of texts as architectures"
        ):
            models.find(tmp_path).load()
    for text in ("not json", "[]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"config\.json cannot be read as JSON"):
            models.find(tmp_path).load()


@pytest.mark.parametrize(
    ("family", "head", "sizes"),
    [
        (
            "bert",
            "AutoModelForMaskedLM",
            {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
        ),
        (
            "t5",
            "AutoModelForSeq2SeqLM",
            {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 16, "d_kv": 8},
        ),
        (
            "bart",
            "AutoModelForSeq2SeqLM",
            {
                "d_model": 16,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "encoder_attention_heads": 2,
                "decoder_attention_heads": 2,
            },
        ),
        (
            "llama",
            "AutoModelForSequenceClassification",
            {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
        ),
    ],
)
def test_models_that_are_not_causal(family: str, head: str, sizes: dict[str, int], tmp_path: Path) -> None:
    config = transformers.AutoConfig.for_model(family, vocab_size=50, **sizes)
    getattr(transformers, head).from_config(config).save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match="holds no causal language model but"):
        models.find(tmp_path).load()


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_sees_the_answer_is_refused(exported: Path, tmp_path: Path) -> None:
    """BERT with the head of a language model calls itself one, and reads in both directions all the same."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    for is_decoder in (False, True):
        folder = tmp_path / str(is_decoder)
        config = transformers.AutoConfig.for_model("bert", vocab_size=600, is_decoder=is_decoder, **sizes)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(exported / name, folder / name)
    models.find(tmp_path / "True").load()
    with pytest.raises(InvalidInput, match="what BertLMHeadModel predicts depends on later tokens"):
        models.find(tmp_path / "False").load()


def test_code_in_a_folder_is_not_run(exported: Path, tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'sprung')!r}, 'w')"
    folder = Path(shutil.copytree(exported, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    own = {
        "model_type": "own",
        "architectures": ["OwnForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "own.OwnForCausalLM"},
    }
    (folder / "config.json").write_text(json.dumps(config | own))
    (folder / "own.py").write_text(trap)
    with pytest.raises(InvalidInput, match="OwnForCausalLM, which needs program code from its own folder"):
        models.find(folder).load()
    folder = Path(shutil.copytree(exported, tmp_path / "tokenizer"))
    (folder / "tokenizer.json").unlink()
    settings = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "own.py").write_text(trap)
    with pytest.raises(InvalidInput, match=r"the tokenizer in .* cannot be loaded"):
        models.find(folder).load()
    assert not (tmp_path / "sprung").exists()


def test_damaged_folders(exported: Path, tmp_path: Path) -> None:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(exported, tmp_path / name))

    folder = copy("cut")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(InvalidInput, match=r"the model in .*cut cannot be loaded"):
        models.find(folder).load()

    folder = copy("layers")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(
        InvalidInput, match=r"are not those of LlamaForCausalLM: model\.layers\.2\..* is missing"
    ):
        models.find(folder).load()

    folder = copy("speechless")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(InvalidInput, match="tokenizer"):
        models.find(folder).load()


def test_bos_must_be_known(run: Path) -> None:
    with pytest.raises(InvalidInput, match="bos must be one of auto, always, never; got 'sometimes'"):
        models.find(run, bos="sometimes").load()
