"""A finished run becomes a folder that transformers loads with the same logits and the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from planner.inputs import InvalidInput
from trainer import RunConfig, train
from trainer.run.export import export, load_run

TEXT = "alpha beta 17 gamma. Über ✓"


@pytest.mark.parametrize(
    ("tokenizer", "tied"), [("bytes", False), ("bpe:300", True), ("sentencepiece", False)]
)
def test_transformers_loads_it(
    settings: dict[str, Any], tmp_path: Path, tokenizer: str, tied: bool, request: pytest.FixtureRequest
) -> None:
    transformers = pytest.importorskip("transformers")
    if tokenizer == "sentencepiece":
        tokenizer = str(request.getfixturevalue("pieces"))
    train(
        RunConfig(**settings | {"tokenizer": tokenizer, "tied_embeddings": tied, "epochs": 0.5}),
        tmp_path / "run",
    )
    folder = export(tmp_path / "run", tmp_path / "hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ours, our_tokenizer, result = load_run(tmp_path / "run")
    ids = our_tokenizer.encode([TEXT])[0]
    assert their_tokenizer(TEXT)["input_ids"] == ids.tolist()
    assert their_tokenizer.eos_token_id == our_tokenizer.eos == theirs.config.eos_token_id
    assert sum(p.numel() for p in theirs.parameters()) == result.params
    tokens = torch.from_numpy(ids)[None]
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, ours.logits(tokens), atol=1e-5, rtol=1e-5)


def test_the_exported_model_has_the_reported_loss(settings: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    result = train(RunConfig(**settings | {"epochs": 0.5}), tmp_path / "run")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(export(tmp_path / "run", tmp_path / "hf"))
    stream = np.fromfile(
        Path(settings["cache"]) / result.data["fingerprint"] / "validation.bin", dtype=np.uint16
    ).astype(np.int64)
    nats = 0.0
    with torch.no_grad():
        for start in range(0, len(stream) - 1, 32):  # one sequence at a time, as the evaluation packs them
            piece = torch.from_numpy(stream[start : start + 33])
            logits = theirs(piece[None, :-1]).logits[0].double()
            nats -= logits.log_softmax(-1).gather(1, piece[1:, None]).sum().item()
    assert nats / (len(stream) - 1) == pytest.approx(result.loss, abs=1e-5)


def test_what_cannot_be_exported_is_named(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no run directory"):
        export(tmp_path / "nothing", tmp_path / "hf")
    (tmp_path / "unfinished").mkdir()
    with pytest.raises(InvalidInput, match="not a finished run"):
        export(tmp_path / "unfinished", tmp_path / "hf")
    train(RunConfig(**settings | {"epochs": 0.1}), tmp_path / "run")
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "mine").write_text("")
    with pytest.raises(InvalidInput, match="already exists"):
        export(tmp_path / "run", tmp_path / "hf")
    path = tmp_path / "run" / "final" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InvalidInput, match="does not match its checksum"):
        export(tmp_path / "run", tmp_path / "other")
    assert not (tmp_path / "other").exists()
