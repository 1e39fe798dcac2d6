"""A finished run as a folder that `transformers` loads: `AutoModelForCausalLM.from_pretrained(folder)`,
tokenizer included.

Only names change: the joined matrices are taken apart into q, k, v and gate, up. transformers itself is not
needed to write the folder.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from planner.hardware import Architecture, llama_config
from planner.inputs import InvalidInput
from trainer.config import RunConfig
from trainer.data import tokenizers
from trainer.errors import reason
from trainer.files import write_json
from trainer.model.llama import Llama
from trainer.run import checkpoints, tensors
from trainer.run.result import RunResult, read_result


def export(run: str | Path, out: str | Path) -> Path:
    """Write a finished run as a Hugging Face folder, whole or not at all."""
    folder, out = Path(run), Path(out)
    result = finished(folder)
    architecture = Architecture(**result.architecture)
    weights = hf_weights(_weights(folder, result), architecture)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"{out} already exists; another folder would do.")
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        draft.mkdir(parents=True)
        tensors.write(draft / "model.safetensors", weights, {"format": "pt"})
        shutil.copytree(folder / "tokenizer", draft, dirs_exist_ok=True)
        end = tokenizers.load(folder / "tokenizer").eos
        config = RunConfig(**result.config)
        write_json(draft / "config.json", hf_config(architecture, config, end))
        write_json(draft / "generation_config.json", {"eos_token_id": end, "do_sample": True})
        os.replace(draft, out)
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"{out} cannot be written: {reason(error)}.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return out


def load_run(run: str | Path) -> tuple[Llama, tokenizers.Tokenizer, RunResult]:
    """Model, tokenizer and result of a finished run."""
    folder = Path(run)
    result = finished(folder)
    config = RunConfig(**result.config)
    shape, length = Architecture(**result.architecture), config.sequence_length
    model = Llama(shape, length, rope_theta=config.rope_theta, norm_eps=config.norm_eps)
    with torch.no_grad():
        for name, weight in _weights(folder, result).items():
            model.get_parameter(name).copy_(weight)
    return model.eval(), tokenizers.load(folder / "tokenizer"), result


def hf_weights(weights: dict[str, torch.Tensor], shape: Architecture) -> dict[str, torch.Tensor]:
    """The same weights under the names of `LlamaForCausalLM`."""
    named = {
        "model.embed_tokens.weight": weights["embed.weight"],
        "model.norm.weight": weights["body.norm.weight"],
    }
    if not shape.tied_embeddings:
        named["lm_head.weight"] = weights["head.weight"]
    for i in range(shape.layers):
        ours, theirs = f"body.layers.{i}", f"model.layers.{i}"
        for part, piece in zip("qkv", weights[f"{ours}.qkv.weight"].chunk(3), strict=True):
            named[f"{theirs}.self_attn.{part}_proj.weight"] = piece
        for part, piece in zip(("gate", "up"), weights[f"{ours}.gate_up.weight"].chunk(2), strict=True):
            named[f"{theirs}.mlp.{part}_proj.weight"] = piece
        named[f"{theirs}.self_attn.o_proj.weight"] = weights[f"{ours}.out.weight"]
        named[f"{theirs}.mlp.down_proj.weight"] = weights[f"{ours}.down.weight"]
        named[f"{theirs}.input_layernorm.weight"] = weights[f"{ours}.attention_norm.weight"]
        named[f"{theirs}.post_attention_layernorm.weight"] = weights[f"{ours}.feed_forward_norm.weight"]
    return {name: tensor.contiguous().clone() for name, tensor in named.items()}


def hf_config(shape: Architecture, config: RunConfig, end: int) -> dict[str, Any]:
    """The config.json of `LlamaForCausalLM`."""
    return llama_config(shape, config.norm_eps) | {
        "max_position_embeddings": config.sequence_length,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "bos_token_id": end,
        "eos_token_id": end,
        "dtype": "float32",
    }


def finished(folder: Path) -> RunResult:
    """The result of a run that is to be used; raises where it has none."""
    if not folder.is_dir():
        raise InvalidInput(f"there is no run directory {folder}.")
    result = read_result(folder)
    if result is None:
        unfinished = f"{folder} is not a finished run (it has no result.json)"
        raise InvalidInput(f"{unfinished}; train it to its end first.")
    return result


def _weights(folder: Path, result: RunResult) -> dict[str, torch.Tensor]:
    stored = checkpoints.read_state(folder / "final", {})
    stored.verify()
    if stored.state["checksums"]["model.safetensors"] != result.weights_checksum:
        others = f"the weights that {folder / 'result.json'} describes"
        raise InvalidInput(f"{folder / 'final'} does not hold {others}.")
    return stored.weights()
