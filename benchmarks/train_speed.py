"""Training speed next to transformers' Llama: same shape, batch, optimiser, threads and allocator.

    python benchmarks/train_speed.py                       # the 15M preset and a micro shape
    python benchmarks/train_speed.py --shape micro --threads 1 --seconds 60

Every variant takes one step after the other, in turns, so that whatever else the machine does hits all alike.
A step is forward, backward, gradient clipping and fused AdamW. Reported are medians of wall time and of
processor time (the latter does not count what other processes took; with one thread the two agree on a quiet
machine), the least of both (which say most on a busy machine), and MFU by the medians of processor time
against a product of two squares, by PyTorch and by the faster of its two libraries.

Part of the difference is memory: glibc gives blocks above 32 MB, such as the logits of a whole batch, back to
the system after every step and pays for fresh pages in the next. To take that away from all variants alike,
run it with MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=8589934592 in the environment.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from planner.hardware import Architecture, preset
from trainer.config import RunConfig
from trainer.model import products
from trainer.model.llama import materialise, outline
from trainer.model.optimizer import Optimizer
from trainer.run.device import flops_per_token

MICRO = Architecture(d_model=64, layers=2, heads=4, d_head=16, d_ff=256, vocab_size=2048)
CASES = {"15M": (preset("15M"), 512, 8), "micro": (MICRO, 128, 32)}  # shape, sequence length, rows per step
BEST = "ours compiled"
SQUARE = 2048  # side of the matrices whose product the speed is measured against


def ours(shape: Architecture, length: int, compiled: bool) -> tuple[torch.nn.Module, Any]:
    library = products.resolve("auto", torch.device("cpu"), torch.float32)
    model = materialise(outline(shape, length, multiply=products.function(library)), "cpu", seed=0)
    if compiled:
        model.body.compile(dynamic=False)
    return model, lambda inputs, targets: model(inputs, targets) / targets.numel()


def transformers(shape: Architecture, length: int, compiled: bool) -> tuple[torch.nn.Module, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.d_model,
        intermediate_size=shape.d_ff,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_position_embeddings=length,
        use_cache=False,
    )
    model: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    call = torch.compile(model, dynamic=False) if compiled else model
    return model, lambda inputs, targets: call(input_ids=inputs, labels=targets).loss


def stepper(
    make: Callable[..., tuple[torch.nn.Module, Any]],
    shape: Architecture,
    length: int,
    rows: int,
    compiled: bool,
) -> Callable[[], None]:
    model, loss = make(shape, length, compiled)
    config = RunConfig(preset="micro", params=1e5, unique_tokens=1e5)
    optimizer = Optimizer(model, config)
    tokens = torch.randint(shape.vocab_size, (rows, length + 1), generator=torch.Generator().manual_seed(0))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        loss(inputs, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.update(config.learning_rate, torch.tensor(False), ask=True)

    return step


class Timed(NamedTuple):
    """Seconds of every step, by variant, and processor seconds of matrix products in between, by library."""

    wall: dict[str, list[float]]
    processor: dict[str, list[float]]
    products: dict[str, list[float]]


def timed(steps: dict[str, Callable[[], None]], seconds: float, repeat: int, warm: int) -> Timed:
    """All variants in turn, again and again; `warm` steps before the `repeat` that count."""
    square = torch.ones(SQUARE, SQUARE)
    found = Timed({name: [] for name in steps}, {name: [] for name in steps}, {"torch": [], "onednn": []})
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for variant, step in steps.items():
            for _ in range(warm):
                step()
            for _ in range(repeat):
                began, spent = time.perf_counter(), time.process_time()
                step()
                found.wall[variant].append(time.perf_counter() - began)
                found.processor[variant].append(time.process_time() - spent)
        for library, taken in found.products.items():
            spent = time.process_time()
            products.function(library)(square, square)
            taken.append(time.process_time() - spent)
    return found


def measure(name: str, seconds: float, asked_rows: int | None = None) -> dict[str, Any]:
    shape, length, rows = CASES[name]
    rows = asked_rows or rows
    kinds = {"ours": ours, "transformers": transformers}
    steps = {
        f"{kind} {'compiled' if compiled else 'eager'}": stepper(make, shape, length, rows, compiled)
        for kind, make in kinds.items()
        for compiled in (True, False)
    }
    for step in steps.values():
        for _ in range(3):
            step()
    # A step of the larger shape goes through the cache many times over, so it needs no warming.
    repeat, warm = (1, 0) if length >= 512 else (5, 1)
    taken = timed(steps, seconds, repeat, warm)
    wall, processor = ({v: statistics.median(times) for v, times in clock.items()} for clock in taken[:2])
    least = [{variant: min(times) for variant, times in clock.items()} for clock in taken[:2]]
    tokens, flops = rows * length, flops_per_token(shape, length) * rows * length
    # per second of processor time, all threads together
    peaks = {library: 2 * SQUARE**3 / min(times) for library, times in taken.products.items()}
    return {
        "shape": shape.describe(),
        "sequence_length": length,
        "rows": rows,
        "threads": torch.get_num_threads(),
        "rounds": len(taken.products["torch"]),
        "gemm_gflops_per_processor_second": {library: peak / 1e9 for library, peak in peaks.items()},
        "tokens_per_second": {variant: tokens / time for variant, time in wall.items()},
        "tokens_per_processor_second": {variant: tokens / time for variant, time in processor.items()},
        "mfu": {variant: flops / time / peaks["torch"] for variant, time in processor.items()},
        "mfu_of_the_faster_product": {v: flops / time / max(peaks.values()) for v, time in processor.items()},
        "speedup_wall": against_ours(wall),
        "speedup_fastest_wall": against_ours(least[0]),
        "speedup_processor": against_ours(processor),
        "speedup_least_processor": against_ours(least[1]),
    }


def against_ours(seconds: dict[str, float]) -> dict[str, float]:
    return {variant: taken / seconds[BEST] for variant, taken in seconds.items() if variant != BEST}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=CASES)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--rows", type=int, help="sequences per step; default: 8 at 15M and 32 at the micro shape"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.shape:
        print(
            json.dumps({options.shape: measure(options.shape, options.seconds, options.rows)}, indent=2),
            flush=True,
        )
    else:
        for case in CASES:  # in a process of its own: what one leaves in the allocator would change the other
            subprocess.run([sys.executable, *sys.argv, "--shape", case], check=True)
