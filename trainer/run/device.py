"""Where and how a run computes: device, precision, attention, compilation, rows per pass; decided before any
data is read.

bf16 is used where the hardware is faster with it: CUDA from Ampere on, and CPUs with AMX tiles. torch.compile
is used on CUDA, and on a CPU when there is a C++ compiler and the run is long enough to earn back the time it
takes.
"""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import time
from dataclasses import dataclass
from functools import lru_cache, partial

import torch

from planner.hardware import ACCELERATORS, Architecture
from planner.inputs import InvalidInput
from trainer.config import RunConfig
from trainer.model import attention, loss, products

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_PROCESS = 230 * 2**20  # Python and torch themselves, in main memory
GPU_SHARE = "DATABOUND_GPU_SHARE"  # the part of its GPU that a process may use, where several share one
COMPILE_PAYS = 1.5e12  # FLOPs of a run from which compiling for a CPU pays: about half a minute of work
_H100_NVL = 835e12  # FLOP/s in bf16 without sparsity: between the PCIe card and the SXM module
_SMALL_PASS = 2e11  # FLOPs of a pass below which launching its kernels takes longer than computing them
_CPU_ACTIVATIONS = 384 * 2**20  # bytes; more does not make a CPU faster


@dataclass(frozen=True)
class Execution:
    """How a run computes. Runs repeat to the bit where all of this is the same."""

    device: str
    dtype: str
    attention: str
    compiled: bool
    micro_batch: int
    world_size: int
    threads: int
    torch: str
    name: str
    recompute: bool = False
    graphs: bool = False  # CUDA graphs: one launch for all kernels of a pass
    products: str = "torch"  # the library that multiplies matrices
    deterministic: bool = True


def resolve_device(wanted: str) -> torch.device:
    """The device of this process; of several on one machine, each has the GPU of its own number."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu(:0)?|cuda(:\d{1,2})?", wanted):
        raise InvalidInput(f"must be auto, cpu, cuda or cuda:N; got {wanted!r}.", field="device")
    device = torch.device(wanted)
    if device.type == "cuda":  # read when CUDA is first used, by an estimate perhaps; determinism needs it
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda" and device.index >= torch.cuda.device_count():
        raise InvalidInput(
            f"{str(device)!r} is not there: this machine has {torch.cuda.device_count()} CUDA devices.",
            field="device",
        )
    return device


def resolve_dtype(wanted: str, device: torch.device) -> torch.dtype:
    if wanted == "fp32":
        return torch.float32
    fast = (
        torch.cuda.get_device_capability(device)[0] >= 8
        if device.type == "cuda"
        else torch.cpu._is_amx_tile_supported()
    )
    return torch.bfloat16 if wanted == "bf16" or fast else torch.float32


def resolve(
    config: RunConfig, architecture: Architecture, steps: int, world_size: int = 1
) -> tuple[Execution, list[str]]:
    """How this run will compute here, and remarks on what was asked for but cannot be had."""
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    remarks: list[str] = []
    length, rows = config.sequence_length, math.ceil(config.batch_size / world_size)
    per_row = length * flops_per_token(architecture, length)
    pays = device.type == "cuda" or steps * config.batch_size * per_row >= COMPILE_PAYS
    compiled = config.compile == "on" or (config.compile == "auto" and pays)
    if compiled and device.type == "cpu" and not has_compiler():
        compiled = False
        remarks.append("torch.compile needs a C++ compiler and none was found; the run is not compiled")
    fitting = partial(_rows_that_fit, architecture, length, device, dtype, world_size)
    recompute = config.recompute == "on" or (config.recompute == "auto" and fitting(False) < 1)
    micro_batch = min(config.micro_batch or max(1, fitting(recompute)), rows)
    graphed = device.type == "cuda" and world_size == 1 and micro_batch * per_row < _SMALL_PASS
    execution = Execution(
        device=str(device),
        dtype=_NAMES[dtype],
        attention=attention.resolve(config.attention, device, dtype, architecture.d_head),
        compiled=compiled,
        micro_batch=micro_batch,
        world_size=world_size,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        name=torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        recompute=recompute,
        deterministic=config.deterministic,
        products=products.resolve(config.products, device, dtype),
        graphs=compiled and graphed and not config.dropout,
    )
    return execution, remarks


def flops_per_token(shape: Architecture, sequence_length: int) -> float:
    """FLOPs to train on one token: 6 per parameter of layers and head, plus the lower triangle of attention.

    Attention multiplies queries with keys and weights with values, 2 * 2 * d per pair of positions forward
    and twice that backward; a position sees T / 2 others on average, which makes 6 * T * d per layer.
    """
    head = shape.vocab_size * shape.d_model
    positions = shape.layers * shape.heads * shape.d_head * sequence_length
    return 6.0 * (shape.non_embedding_params + head) + 6.0 * positions


def activation_bytes(
    shape: Architecture, sequence_length: int, dtype: torch.dtype, recompute: bool = False
) -> float:
    """Of one row until its backward pass: all of every layer, or of one and the others' fp32 inputs."""
    layer = (12 * shape.d_model + 5 * shape.d_ff) * dtype.itemsize
    per_token = layer + 4 * shape.layers * shape.d_model if recompute else layer * shape.layers
    return sequence_length * per_token


def needed_memory(shape: Architecture, sequence_length: int, execution: Execution) -> float:
    """Bytes of each device that a run takes: fp32 weights, gradients and two moments, activations of a pass,
    the head's pieces; on a CPU with the process and the copy that checkpoints are written from.
    """
    dtype, kind = DTYPES[execution.dtype], execution.device.split(":")[0]
    row = activation_bytes(shape, sequence_length, dtype, execution.recompute)
    head = loss.head_bytes(shape.vocab_size, dtype.itemsize, kind, execution.compiled)
    kept = (28.0 if kind == "cpu" else 16.0) * shape.params / execution.world_size
    besides = 8.0 * shape.vocab_size * shape.d_model + (_PROCESS if kind == "cpu" else 0.0)
    return kept + execution.micro_batch * row + head + besides


def defers(shape: Architecture, sequence_length: int, execution: Execution) -> bool:
    """Whether ranks add up gradients once a step: where each has room for whole ones in fp32."""
    there = total_memory(torch.device(execution.device))
    return needed_memory(shape, sequence_length, execution) + 4.0 * shape.params < 0.9 * there


def check_memory(
    shape: Architecture, sequence_length: int, execution: Execution, besides: float = 0.0
) -> None:
    """Raise where a run, and bytes besides, cannot fit into the memory there is, before any is taken."""
    needed = needed_memory(shape, sequence_length, execution) + besides
    there = total_memory(torch.device(execution.device))
    if needed > there:
        raise InvalidInput(
            f"training {shape.params:,} parameters needs about {needed / 2**30:,.1f} GiB on each device and "
            f"{execution.name} has {there / 2**30:,.1f}; a smaller shape, micro_batch or sequence_length, "
            "or more devices, would do."
        )


def total_memory(device: torch.device) -> float:
    """Bytes of a GPU, or of this process's share of one, or of main memory as far as it may be used."""
    if device.type == "cuda":
        share = float(os.environ.get(GPU_SHARE, "1"))
        return torch.cuda.get_device_properties(device).total_memory * share
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="utf-8") as stream:
            return min(installed, float(stream.read()))
    except (OSError, ValueError):  # no limit
        return installed


def _rows_that_fit(
    shape: Architecture,
    sequence_length: int,
    device: torch.device,
    dtype: torch.dtype,
    world_size: int,
    recompute: bool,
) -> int:
    """Rows of a pass; none where not even one fits a GPU."""
    each = activation_bytes(shape, sequence_length, dtype, recompute)
    if device.type != "cuda":
        return max(1, int(_CPU_ACTIVATIONS / each))
    return max(0, int((0.6 * total_memory(device) - 24.0 * shape.params / world_size) / each))


def has_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name)


def peak_flops(device: torch.device) -> float:
    """The device's peak in FLOP/s, from its data sheet for known GPUs, else measured."""
    known = data_sheet_peak(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return known or measured_peak(str(device), torch.get_num_threads())


def data_sheet_peak(name: str) -> float | None:
    """The peak of the accelerator with most words of its name, all of them in the device's name."""
    words = set(re.split(r"[^A-Z0-9]+", name.upper()))
    if words.issuperset({"H100", "NVL"}):
        return _H100_NVL
    known = {a: a.name.upper().split("-") for a in ACCELERATORS.values()} if "LAPTOP" not in words else {}
    matches = [(len(parts), a.peak_flops) for a, parts in known.items() if words.issuperset(parts)]
    return max(matches)[1] if matches else None


@lru_cache(maxsize=8)
def measured_peak(device: str, threads: int) -> float:
    """The best of a few matrix products (fp32 on a CPU, bf16 on CUDA), in FLOP/s."""
    cuda = device.startswith("cuda")
    size, dtype = (8192, torch.bfloat16) if cuda else (1024, torch.float32)
    a = torch.ones(size, size, device=device, dtype=dtype)
    best = math.inf
    for _ in range(10):
        start = time.perf_counter()
        a @ a
        if cuda:
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best


def cpu_name() -> str:
    return products.cpu_fact("model name") or platform.processor() or platform.machine()
