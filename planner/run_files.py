"""From a plan to a run: what `planner train` takes, as TOML, and what transformers' Llama takes, as JSON.

Learning rate, batch, schedule, optimiser and first weights are those of the runs behind the calibration: a
weight decay means little without them. A learning rate or batch of one's own takes their place, with the
weight decay of equal memory. What a plan cannot know, the corpus and the tokenizer, is left to be filled in,
and what the calibration does not say to the trainer's defaults.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InvalidInput
from planner.units import scientific, short

if TYPE_CHECKING:
    from planner.calibration_files import Recipe
    from planner.results import Plan
    from planner.shapes import Architecture


def run_config(plan: Plan, corpus: str | None = "corpus", tokenizer: str = "tokenizer.json") -> str:
    """The run of a plan as the text of a TOML file for `planner train`; without a corpus, the trainer's."""
    shape, recipe = _shape(plan), plan.recipe
    if recipe is None:
        raise InvalidInput(
            f"calibration {plan.calibration} has no recipe (learning rate, batch, schedule), "
            f"so no run can be written; add one to the file or write the run yourself."
        )
    repeated = max(plan.epochs, 1.0)  # below one epoch a part of the corpus is used once
    rate, sequences, decay = recipe.learning_rate, recipe.batch_sequences, plan.weight_decay
    if plan.own_recipe is not None:
        own = plan.own_recipe
        rate, sequences, decay = own.learning_rate, _sequences(own.batch_tokens, recipe), own.weight_decay
    known = {name: getattr(recipe, name) for name in recipe.as_in_runs}
    values: dict[str, Any] = {
        "shape": {name: getattr(shape, name) for name in ("d_model", "layers", "heads", "d_ff")},
        "vocab_size": shape.vocab_size,
        "tied_embeddings": shape.tied_embeddings,
        **({} if corpus is None else {"corpus": corpus}),
        "tokenizer": tokenizer,
        "sequence_length": recipe.sequence_length,
        "unique_tokens": round(plan.unique_tokens),
        "epochs": repeated,
        "batch_size": sequences,
        "learning_rate": rate,
        "weight_decay": decay,
    }
    count = 1 if plan.members is None else plan.members.count
    if count > 1:
        values["seed"] = 0
    values |= {name: value for name, value in known.items() if value is not None}
    notes = {
        "shape": f"{short(shape.params, 4)} parameters",
        "corpus": "yours: a file, a folder or a pattern",
        "tokenizer": f"yours, of at most {shape.vocab_size:,} tokens",
        "batch_size": f"sequences, {sequences * recipe.sequence_length:,} tokens",
        "seed": f"0 to {count - 1}: one for each of the {count} members",
    }
    head = (
        f"# {short(plan.ud)} unique tokens, {scientific(plan.spent_flops)} FLOPs: "
        f"expected loss {plan.loss:.4f} ({plan.law} of {plan.calibration}).\n"
    )
    if count > 1:
        head += f"# One of {count} members: train it with {count} seeds and average their probabilities.\n"
    lines = [f"{name} = {_toml(value)}" for name, value in values.items()]
    said = [
        f"{line}  # {notes[name]}" if name in notes else line
        for name, line in zip(values, lines, strict=True)
    ]
    return head + "\n".join(said) + "\n"


def hf_config(plan: Plan) -> dict[str, Any]:
    """The model of a plan as transformers' LlamaConfig has it."""
    recipe, config = plan.recipe, llama_config(_shape(plan))
    if recipe is not None:
        config["max_position_embeddings"] = recipe.sequence_length
        said = {"rms_norm_eps": recipe.norm_eps, "rope_theta": recipe.rope_theta}
        config |= {name: value for name, value in said.items() if value is not None}
    return config


def llama_config(shape: Architecture, norm_eps: float = 1e-5) -> dict[str, Any]:
    """A shape as transformers' LlamaConfig has it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.d_head,
        "tie_word_embeddings": shape.tied_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "rms_norm_eps": norm_eps,
    }


def save_run(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the run of a plan."""
    _write(Path(path), run_config(plan))


def save_hf_config(plan: Plan, folder: str | os.PathLike[str]) -> None:
    """Write `config.json` into a folder, which is made if it is not there."""
    _write(Path(folder) / "config.json", json.dumps(hf_config(plan), indent=2) + "\n", make_folder=True)


def _shape(plan: Plan) -> Architecture:
    if plan.architecture is None:
        raise InvalidInput(
            f"no model of {short(plan.params)} parameters can be built, so none can be written."
        )
    return plan.architecture


def _sequences(batch_tokens: float, recipe: Recipe) -> int:
    """A batch of one's own in whole sequences."""
    length = recipe.sequence_length
    if batch_tokens % length:
        near = max(round(batch_tokens / length), 1) * length
        raise InvalidInput(
            f"must be whole sequences of {length:,} tokens for a run; got {batch_tokens:g}, and "
            f"{near:,} would do.",
            field="batch_tokens",
        )
    return round(batch_tokens / length)


def _write(path: Path, text: str, *, make_folder: bool = False) -> None:
    try:
        if make_folder:
            path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be written: {error.strerror or error}.") from None


def _toml(value: Any) -> str:
    """A value as TOML writes it: as JSON does, but for tables in a line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
