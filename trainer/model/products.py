"""Matrix products of fp32 on a CPU, by whichever library is faster there: PyTorch's own, or oneDNN.

PyTorch multiplies fp32 matrices with MKL, which on AMD processors stays behind oneDNN, the other library that
is part of it. A layer needs three products:

    y = x W^T          forward,                      oneDNN
    dx = dy W          backward, to the inputs       oneDNN
    dW = dy^T x        backward, to the weights      MKL: oneDNN would copy both sides first

oneDNN's is an operator of its own, so that a compiler takes it as it is and gives it the transposed view of a
matrix instead of a copy. Both libraries give the same bits each time, but not the same as each other: which
one a run uses is one of its facts, and `resolve` decides it before any data is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional

from planner.inputs import InvalidInput

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

BACKENDS = ("auto", "torch", "onednn")

_OPERATORS: Any = torch.library.Library("databound", "DEF")  # type: ignore[no-untyped-call]
_OPERATORS.define("product(Tensor rows, Tensor matrix) -> Tensor", tags=(torch.Tag.needs_fixed_stride_order,))


def onednn(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """rows @ matrix.T, with gradients; rows are (..., inputs), the matrix (outputs, inputs)."""
    made: torch.Tensor = torch.ops.databound.product(rows, matrix)
    return made


def _multiplied(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")
    return made


def _outline(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return rows.new_empty(*rows.shape[:-1], matrix.shape[0])


def _keep(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, d_made: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    rows, matrix = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    d_rows = onednn(d_made, matrix.T) if wanted[0] else None
    d_matrix = d_made.flatten(0, -2).T @ rows.flatten(0, -2) if wanted[1] else None
    return d_rows, d_matrix


_OPERATORS.impl("product", _multiplied, "CPU")
torch.library.register_fake("databound::product", _outline, lib=_OPERATORS)
torch.library.register_autograd("databound::product", _gradients, setup_context=_keep, lib=_OPERATORS)


def resolve(wanted: str, device: torch.device, dtype: torch.dtype) -> str:
    """The library that will multiply, "torch" or "onednn"; raises where the one asked for cannot work."""
    if wanted not in BACKENDS:
        raise InvalidInput(f"must be one of {', '.join(BACKENDS)}; got {wanted!r}.", field="products")
    obstacle = _obstacle(device, dtype)
    if wanted == "onednn" and obstacle:
        other = f"= 'onednn' cannot work here: {obstacle}; 'torch' or 'auto' would do."
        raise InvalidInput(other, field="products")
    faster = wanted == "onednn" or (
        wanted == "auto" and not obstacle and cpu_fact("vendor_id") == "AuthenticAMD"
    )
    return "onednn" if faster else "torch"


def function(backend: str) -> Product:
    """The function of a resolved backend."""
    multiply: Product = onednn if backend == "onednn" else functional.linear
    return multiply


def _obstacle(device: torch.device, dtype: torch.dtype) -> str:
    """Why oneDNN cannot multiply, or an empty text."""
    if device.type != "cpu":
        return f"oneDNN computes on a CPU and this run uses {device.type}"
    if dtype != torch.float32:
        return "only products in fp32 are given to it, and this run computes in bf16"
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not there or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "this PyTorch was built without it"
    return ""


@lru_cache(maxsize=2)
def cpu_fact(name: str) -> str:
    """What the processor says of itself under this name; empty where the system does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            named = (line for line in stream if line.startswith(name))
            return next(named, ":").split(":", 1)[1].strip()
    except OSError:
        return ""
