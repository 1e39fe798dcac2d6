"""Peak memory of training the 15M preset at the paper's batch of 128 x 512, gradients accumulated.

    python benchmarks/train_memory.py
    python benchmarks/train_memory.py --compile on --steps 2

Whole steps of the trainer itself (accumulated passes, clipping, fused AdamW) on random tokens, and then a
checkpoint; the figure is the largest resident size that the process ever had, with Python and torch included,
next to the trainer's own estimate. Logits of the whole batch alone would take 8.4 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from trainer.config import RunConfig
from trainer.data.batches import Batches
from trainer.model.optimizer import Optimizer
from trainer.run import checkpoints, distributed
from trainer.run.device import needed_memory, resolve
from trainer.run.loop import build, held
from trainer.run.prefetch import passes


def measure(steps: int, compile: str) -> dict[str, object]:
    config = RunConfig(shape="15M", unique_tokens=128 * 512 * steps, tokenizer="bytes", compile=compile)
    shape = config.architecture(257)
    execution, _ = resolve(config, shape, steps)
    stream = np.random.default_rng(0).integers(0, shape.vocab_size, 128 * 512 * steps + 1).astype(np.uint16)
    batches = Batches(
        stream, unique_tokens=config.unique_tokens, epochs=1, batch_size=128, sequence_length=512, seed=0
    )
    model = build(config, shape, execution)
    optimizer = Optimizer(model, config)
    began = time.perf_counter()
    for step in range(steps):
        model.zero_grad(set_to_none=True)
        for rows in passes(batches.rows(step), distributed.World(), execution.micro_batch):
            inputs, targets = map(torch.from_numpy, batches.arrays(rows))
            (model(inputs, targets) / batches.real_tokens(step)).backward()
        distributed.clip(list(model.parameters()), config.clip)
        optimizer.update(config.learning_rate, torch.tensor(False), ask=True)
    seconds = time.perf_counter() - began
    with TemporaryDirectory() as folder:
        writer = checkpoints.Writer(Path(folder))
        writer.begin({"step": steps}, held(model, optimizer))
        writer.wait()
    measured = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    estimated = needed_memory(shape, 512, execution) / 1e9
    return {
        "peak_resident_gb": measured,
        "estimated_gb": estimated,
        "estimated_over_measured": estimated / measured,
        "rows_per_pass": execution.micro_batch,
        "compiled": execution.compiled,
        "seconds_per_step": seconds / steps,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--compile", choices=["on", "off"], default="off")
    options = parser.parse_args()
    print(json.dumps(measure(options.steps, options.compile), indent=2))
