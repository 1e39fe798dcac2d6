"""A plan as what other training programs take: transformers, torchtitan and litgpt.

    export(plan(ud=250e6, flops=5e18), "hf")  ->  {"config.json": ..., "train.py": ..., "README.md": ...}

What is written is the run that `planner train` would be given (`Plan.run_config`): the same shape, batch,
exact steps, schedule, first weights and decayed tensors, as far as each program can have them. What it cannot
have is in the README next to the files.
"""

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from planner.hardware import run_length
from planner.inputs import InvalidInput

if TYPE_CHECKING:
    from planner.results import Plan

# What a run has that says nothing of it: the defaults of `trainer.config`, which is not imported here.
DEFAULTS: dict[str, Any] = {
    "min_lr_ratio": 0.1,
    "warmup_ratio": 0.01,
    "warmup_steps": None,
    "schedule": "cosine",
    "decay_ratio": 0.2,
    "betas": [0.9, 0.95],
    "adam_eps": 1e-8,
    "clip": 1.0,
    "decay": "matrices",
    "init": "normal",
    "norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "order": "shuffle",
    "optimizer": "adamw",
    "dropout": 0.0,
    "ema_decay": None,
    "average_last": None,
    "seed": 0,
}
_NANOCHAT = (
    "cannot be nanochat, whose model is another one (squared ReLU, norms without gains, normalised queries "
    "and keys, sizes from a depth alone) and whose optimiser is Muon: a law of Llama models says nothing of "
    "it; hf, torchtitan or litgpt would do."
)


def export(plan: "Plan", target: str) -> dict[str, str]:
    """The files of a plan for one of `TARGETS`, by name."""
    if target == "nanochat":
        raise InvalidInput(_NANOCHAT, field="export")
    if target not in TARGETS:
        raise InvalidInput(f"must be one of {', '.join(TARGETS)}; got {target!r}.", field="export")
    run = DEFAULTS | tomllib.loads(plan.run_config())
    length = (run[name] for name in ("unique_tokens", "epochs", "sequence_length", "batch_size"))
    run["chunks"], run["rows"], run["steps"] = run_length(*length)
    if run["warmup_steps"] is None:
        run["warmup_steps"] = math.ceil(run["warmup_ratio"] * run["steps"])
    run["decay_steps"] = max(1, round(run["decay_ratio"] * run["steps"]))
    files, differs = TARGETS[target](plan, run)
    return files | {"README.md": _readme(plan, target, run, [*differs, *_left_out(run)])}


def _hf(plan: "Plan", run: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    config = plan.hf_config() | {"initializer_range": 0.02}
    arguments = {
        "max_steps": run["steps"],
        "learning_rate": run["learning_rate"],
        "weight_decay": run["weight_decay"],
        "adam_beta1": run["betas"][0],
        "adam_beta2": run["betas"][1],
        "adam_epsilon": run["adam_eps"],
        "max_grad_norm": run["clip"],
        "seed": run["seed"],
        "train_sampling_strategy": "sequential",  # the rows of train.py have their order
        "remove_unused_columns": False,
        "logging_steps": 10,
        "save_steps": max(1, run["steps"] // 20),
    }
    differs = [
        "Numbers are drawn in another order (data and first weights), so that bits differ.",
        "A last batch that is not full has fewer rows, as here, but no padding.",
        "First weights are N(0, 0.02²) for all matrices.",
    ]
    names: tuple[str, ...] = (
        "learning_rate",
        "min_lr_ratio",
        "weight_decay",
        "decay",
        "betas",
        "adam_eps",
        "schedule",
    )
    names += ("steps", "warmup_steps", "decay_steps", "rows", "chunks", "sequence_length", "batch_size")
    program = _HF.replace("RUN = {}", f"RUN = {json.dumps({name: run[name] for name in names}, indent=4)}")
    return {
        "config.json": json.dumps(config, indent=2) + "\n",
        "training_arguments.json": json.dumps(arguments, indent=2) + "\n",
        "train.py": program,
    }, differs + _scaled(run)


def _torchtitan(plan: "Plan", run: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    shape = plan.architecture
    assert shape is not None
    if shape.d_head * shape.heads != shape.d_model or shape.d_head % 2:
        raise InvalidInput("torchtitan needs heads whose even sizes add up to d_model.", field="export")
    undecayed = {
        "matrices": "norm",
        "matrices-without-embeddings": "norm|tok_embeddings|lm_head",
        "all": "",
    }[run["decay"]]
    values = {name: getattr(shape, name) for name in ("d_model", "layers", "heads", "d_ff", "vocab_size")}
    values |= {"tied": shape.tied_embeddings, "undecayed": undecayed}
    names: tuple[str, ...] = (
        "norm_eps",
        "rope_theta",
        "learning_rate",
        "weight_decay",
        "betas",
        "adam_eps",
        "clip",
        "steps",
    )
    names += ("warmup_steps", "decay_steps", "min_lr_ratio", "schedule", "sequence_length", "batch_size")
    values |= {name: run[name] for name in (*names, "seed")}
    lines = ",\n".join(f"    {name}={value!r}" for name, value in values.items())
    differs = [
        "Its loader packs documents and keeps attention inside each of them; here they see each other.",
        "Its loader has epochs of documents: how many steps make one depends on its packing, and the steps "
        "below are what counts.",
        "First weights are N(0, 0.02²) for all matrices, drawn in another order.",
        "Rotary positions turn neighbouring coordinates instead of halves: the same model, other weights.",
        "It computes in bf16 where a GPU can.",
    ]
    return {"databound_plan.py": _TORCHTITAN.replace("RUN = {}", f"RUN = dict(\n{lines},\n)")}, (
        differs + _scaled(run)
    )


def _litgpt(plan: "Plan", run: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    shape = plan.architecture
    assert shape is not None
    model = {
        "name": "databound-plan",
        "block_size": run["sequence_length"],
        "n_layer": shape.layers,
        "n_embd": shape.d_model,
        "n_head": shape.heads,
        "head_size": shape.d_head,
        "n_query_groups": shape.heads,
        "vocab_size": shape.vocab_size,
        "padded_vocab_size": shape.vocab_size,
        "intermediate_size": shape.d_ff,
        "norm_class_name": "RMSNorm",
        "norm_eps": run["norm_eps"],
        "mlp_class_name": "LLaMAMLP",
        "rotary_percentage": 1.0,
        "rope_base": round(run["rope_theta"]),
        "parallel_residual": False,
        "bias": False,
        "lm_head_bias": False,
    }
    arguments = {
        "global_batch_size": run["batch_size"],
        "micro_batch_size": 1,
        "max_tokens": run["steps"] * run["batch_size"] * run["sequence_length"],
        "max_seq_length": run["sequence_length"],
        "lr_warmup_steps": run["warmup_steps"],
        "max_norm": run["clip"],
        "min_lr": run["learning_rate"] * run["min_lr_ratio"],
        "tie_embeddings": shape.tied_embeddings,
        "save_interval": max(1, run["steps"] // 20),
    }
    adamw = {name: run[name] for name in ("weight_decay", "betas")}
    adamw |= {"lr": run["learning_rate"], "eps": run["adam_eps"]}
    config = {
        "model_name": "databound-plan",
        "model_config": model,
        "train": arguments,
        "optimizer": {"class_path": "torch.optim.AdamW", "init_args": adamw},
        "seed": run["seed"],
    }
    differs = [
        "Weight decay is on all tensors, gains of norms too.",
        f"The learning rate is a cosine, counted in passes; it begins with 0 and ends one pass before "
        f"{run['min_lr_ratio']:.0%} of the peak.",
        "First weights are its own: sqrt(2 / (5 d_model)), and less for what writes to the residual stream.",
        f"The last batch is full: {run['steps'] * run['batch_size']:,} sequences instead of "
        f"{run['rows']:,}. Name data whose epoch has {run['chunks']:,} sequences.",
        "micro_batch_size = 1 fits any card; more is faster.",
    ]
    if run["schedule"] != "cosine":
        differs.append("The plan's schedule is WSD, which it does not have.")
    return {"pretrain.yaml": json.dumps(config, indent=2) + "\n"}, differs


TARGETS: dict[str, Callable[["Plan", Mapping[str, Any]], tuple[dict[str, str], list[str]]]] = {
    "hf": _hf,
    "torchtitan": _torchtitan,
    "litgpt": _litgpt,
}
_STARTS = {
    "hf": "python train.py tokens.npy out    # one row of token ids; needs transformers, accelerate",
    "torchtitan": "PYTHONPATH=. torchrun --nproc_per_node 8 -m torchtitan.train --module databound_plan "
    "--config plan --hf_assets_path TOKENIZER --dataloader.dataset NAME    # torchtitan 0.3",
    "litgpt": "litgpt pretrain --config pretrain.yaml --data TextFiles --data.train_data_path TEXTS "
    "--tokenizer_dir TOKENIZER    # litgpt 0.5",
}


def _scaled(run: Mapping[str, Any]) -> list[str]:
    return (
        ["The plan's runs began with init = 'scaled', which is not here."] if run["init"] == "scaled" else []
    )


def _left_out(run: Mapping[str, Any]) -> Iterator[str]:
    """What the runs behind the law had, and none of these programs is told."""
    named = {"ema_decay": "an average of weights", "average_last": "the mean of the last weights"}
    named |= {"dropout": f"dropout {run['dropout']:g}"}
    for name, what in named.items():
        if run[name]:
            yield f"The plan's runs had {what}, which is left out: its losses will not be reached."
    if run["optimizer"] == "muon":
        yield "The plan's runs had Muon for the matrices of the body; here AdamW has them."


def _readme(plan: "Plan", target: str, run: Mapping[str, Any], differs: list[str]) -> str:
    shape = plan.architecture
    assert shape is not None
    said = "\n".join(f"- {line}" for line in differs)
    return f"""# A plan for {target}

{shape.params:,} parameters, {run["unique_tokens"]:,} unique tokens, {run["epochs"]:g} epochs, weight decay
{run["weight_decay"]:g}: expected loss {plan.loss:.4f} ({plan.law} of {plan.calibration}).

    {_STARTS[target]}

{run["steps"]:,} steps of {run["batch_size"]:,} sequences of {run["sequence_length"]:,} tokens, of which
{run["warmup_steps"]:,} rise to the peak {run["learning_rate"]:g}. The corpus has to have at least
{run["chunks"] * run["sequence_length"] + 1:,} tokens, and a tokenizer of at most {shape.vocab_size:,}.

What differs from `planner train`, for which the law speaks:

{said}
"""


_HF = '''"""Train the plan with transformers: python train.py tokens.npy out"""

import json
import math
import os
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

HERE = Path(__file__).parent
RUN = {}


class Rows(torch.utils.data.Dataset):
    """One long row of sequences, epoch after epoch, each epoch in an order of its own."""

    def __init__(self, tokens):
        self.tokens = tokens

    def __len__(self):
        return RUN["rows"]

    def __getitem__(self, place):
        epoch, place = divmod(place, RUN["chunks"])
        start = order(epoch)[place] * RUN["sequence_length"]
        piece = torch.from_numpy(self.tokens[start : start + RUN["sequence_length"] + 1].astype(np.int64))
        return {"input_ids": piece[:-1], "labels": piece[:-1], "shift_labels": piece[1:]}


@lru_cache(maxsize=2)
def order(epoch):
    return np.random.default_rng((0, epoch)).permutation(RUN["chunks"])


def rate(step):
    """As a share of the peak."""
    low, warmup, last = RUN["min_lr_ratio"], RUN["warmup_steps"], RUN["steps"] - 1
    if step < warmup:
        return (step + 1) / warmup
    if RUN["schedule"] == "wsd":
        along = max(0, step - last + RUN["decay_steps"]) / RUN["decay_steps"]
        return low + (1 - low) * (1 - math.sqrt(min(1.0, along)))
    along = min(1.0, (step - warmup) / (last - warmup)) if last > warmup else 1.0
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * along))


def groups(model):
    def decayed(name, tensor):
        embedding = "embed_tokens" in name or "lm_head" in name
        wanted = RUN["decay"] == "all" or tensor.ndim > 1
        return wanted and not (embedding and RUN["decay"] == "matrices-without-embeddings")

    named = list(model.named_parameters())
    for wanted, decay in ((True, RUN["weight_decay"]), (False, 0.0)):
        found = [tensor for name, tensor in named if decayed(name, tensor) == wanted]
        if found:
            yield {"params": found, "weight_decay": decay}


def trainer(tokens, out, **changes):
    arguments = json.loads((HERE / "training_arguments.json").read_text())
    share = RUN["batch_size"] // int(os.environ.get("WORLD_SIZE", "1"))
    each = max(size for size in (1, 2, 4, 8, 16, 32) if share % size == 0)
    arguments |= {"per_device_train_batch_size": each, "gradient_accumulation_steps": share // each}
    gpu = torch.cuda.is_available()
    arguments |= {"bf16": gpu, "dataloader_pin_memory": gpu, "output_dir": out, "report_to": "none"} | changes
    model = LlamaForCausalLM(LlamaConfig.from_json_file(HERE / "config.json"))
    settings = {"lr": RUN["learning_rate"], "betas": tuple(RUN["betas"]), "eps": RUN["adam_eps"]}
    adamw = torch.optim.AdamW(groups(model), **settings)
    schedule = torch.optim.lr_scheduler.LambdaLR(adamw, rate)
    given = TrainingArguments(**arguments)
    return Trainer(model, given, train_dataset=Rows(tokens), optimizers=(adamw, schedule))


if __name__ == "__main__":
    made = trainer(np.load(sys.argv[1], mmap_mode="r"), sys.argv[2])
    made.train()
    made.save_model()
'''

_TORCHTITAN = '''"""The plan as a configuration of torchtitan: --module databound_plan --config plan"""

from functools import partial

from torch import nn
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, ParamGroupConfig
from torchtitan.config import DebugConfig, TrainingConfig
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.config_utils import get_attention_config, make_ffn_config, make_gqa_config
from torchtitan.models.llama3 import Llama3Model, parallelize_llama
from torchtitan.models.llama3.model import Llama3TransformerBlock
from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer

RUN = {}
NORMAL = {"weight": partial(nn.init.normal_, std=0.02)}


def norm():
    gains = {"weight": nn.init.ones_}
    return RMSNorm.Config(normalized_shape=RUN["d_model"], eps=RUN["norm_eps"], param_init=gains)


def layer(rope):
    attention = make_gqa_config(
        dim=RUN["d_model"],
        n_heads=RUN["heads"],
        wqkv_param_init=NORMAL,
        wo_param_init=NORMAL,
        inner_attention=get_attention_config("flex"),
        rope=rope,
    )
    feed_forward = make_ffn_config(
        dim=RUN["d_model"], hidden_dim=RUN["d_ff"], w1_param_init=NORMAL, w2w3_param_init=NORMAL
    )
    return Llama3TransformerBlock.Config(
        attention_norm=norm(), ffn_norm=norm(), attention=attention, feed_forward=feed_forward
    )


def model():
    size, rows = RUN["d_model"], RUN["vocab_size"]
    rope = ComplexRoPE.Config(
        dim=size // RUN["heads"], max_seq_len=RUN["sequence_length"], theta=RUN["rope_theta"]
    )
    return Llama3Model.Config(
        dim=size,
        vocab_size=rows,
        enable_weight_tying=RUN["tied"],
        tok_embeddings=Embedding.Config(num_embeddings=rows, embedding_dim=size, param_init=NORMAL),
        norm=norm(),
        lm_head=Linear.Config(in_features=size, out_features=rows, param_init=NORMAL),
        layers=[layer(rope) for _ in range(RUN["layers"])],
    )


def optimizer():
    adamw = {"lr": RUN["learning_rate"], "betas": tuple(RUN["betas"]), "eps": RUN["adam_eps"]}
    decays = [(RUN["undecayed"], 0.0)] if RUN["undecayed"] else []
    return OptimizersContainer.Config(
        param_groups=[
            ParamGroupConfig(
                pattern=pattern, optimizer_name="AdamW", optimizer_kwargs=adamw | {"weight_decay": decay}
            )
            for pattern, decay in [*decays, (".*", RUN["weight_decay"])]
        ]
    )


def schedule():
    last = max(1, RUN["steps"] - 1)  # at which its schedule ends: the last step, counted from zero
    wsd = RUN["schedule"] == "wsd"
    return LRSchedulersContainer.Config(
        warmup_steps=RUN["warmup_steps"],
        total_steps=last,
        decay_ratio=RUN["decay_steps"] / last if wsd else None,
        decay_type="sqrt" if wsd else "cosine",
        min_lr_factor=RUN["min_lr_ratio"],
    )


def plan():
    spec = ModelSpec(
        name="llama3",
        flavor="databound",
        model=model(),
        parallelize_fn=parallelize_llama,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=None,
        state_dict_adapter=Llama3StateDictAdapter,
    )
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=RUN["vocab_size"])),
        model_spec=spec,
        optimizer=optimizer(),
        lr_scheduler=schedule(),
        training=TrainingConfig(
            local_batch_size=1,
            global_batch_size=RUN["batch_size"],
            seq_len=RUN["sequence_length"],
            max_norm=RUN["clip"],
            steps=RUN["steps"],
        ),
        dataloader=HuggingFaceTextDataLoader.Config(),
        debug=DebugConfig(seed=RUN["seed"]),
    )
'''
