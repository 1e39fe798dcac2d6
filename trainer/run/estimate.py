"""What a run would take, without reading data: shape, memory, steps, FLOPs, and time on this machine.

The time is measured, not looked up: one pass of the real shape, uncompiled, where a pass takes less than a
few seconds; for larger models it is FLOPs over the device's peak at `TYPICAL_MFU`.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from typing import Any

import torch

from planner.inputs import InvalidInput
from trainer.config import RunConfig
from trainer.model.llama import Llama
from trainer.run import averaging
from trainer.run.device import DTYPES, check_memory, flops_per_token, needed_memory, peak_flops
from trainer.run.evaluation import autocast
from trainer.run.loop import build, check

TYPICAL_MFU = 0.4
_PROBE_FLOPS = 4e11  # passes below this are timed: a few seconds on a CPU
_TIMED_FLOPS = 5e10  # a CPU is as fast with fewer sequences: so many FLOPs of the pass are timed
_COMPILED_GAIN = 1.1  # what compiling gives over the timed uncompiled pass: 1.03 to 1.14 on AMD, 1.3 on Intel


def estimate(config: RunConfig) -> dict[str, Any]:
    """Shape, memory, steps, FLOPs and expected seconds of a run."""
    _, shape, execution, remarks = check(config)
    fits, averaged = True, averaging.bytes_of(config, shape.params, execution)
    try:
        check_memory(shape, config.sequence_length, execution, averaged)
    except InvalidInput as error:
        fits, remarks = False, [*remarks, str(error).rstrip(".")]
    device, dtype = torch.device(execution.device), DTYPES[execution.dtype]
    length, (chunks, total, steps) = config.sequence_length, config.length()
    counted = flops_per_token(shape, length) * total * length
    per_pass = flops_per_token(shape, length) * execution.micro_batch * length
    if fits and per_pass <= _PROBE_FLOPS:
        share = min(1.0, _TIMED_FLOPS / per_pass) if device.type == "cpu" else 1.0
        rows = max(1, int(execution.micro_batch * share))
        plain = replace(execution, compiled=False, graphs=False)
        seconds = _time_pass(build(config, shape, plain), rows, length, dtype) * total / rows
        seconds /= (_COMPILED_GAIN if execution.compiled else 1.0) * execution.world_size
        basis = "one pass timed here"
    else:
        seconds = counted / (peak_flops(device) * TYPICAL_MFU * execution.world_size)
        basis = f"the device's peak at {TYPICAL_MFU:.0%}"
    a_token = seconds / (total * length)
    return {
        "shape": shape.describe(),
        "params": shape.params,
        "memory_bytes": needed_memory(shape, length, execution) + averaged,
        "unique_tokens": min(chunks, total) * length,
        "tokens": total * length,
        "epochs": max(1.0, total / chunks),
        "steps": steps,
        "flops": 6.0 * shape.params * total * length,
        "counted_flops": counted,
        "seconds": seconds,
        "seconds_from": basis,
        "most_validation_tokens": config.most_validation_tokens,
        "most_validation_seconds": a_token * config.most_validation_tokens / 3,  # no backward
        "execution": asdict(execution),
        "remarks": remarks,
    }


def _time_pass(model: Llama, rows: int, length: int, dtype: torch.dtype) -> float:
    device = model.head.weight.device
    ids = torch.randint(model.shape.vocab_size, (rows, length), device=device)
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        with autocast(device, dtype):
            loss = model(ids, ids)
        loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return best
