"""Causal self-attention behind one function: flash-attn 2 where it is installed and the device allows it,
else PyTorch's own.

Both take (batch, sequence, heads, head size) and return the same shape, so the model does not know which one
runs. PyTorch's scaled-dot-product attention has a flash kernel of its own on CUDA and on CPU, so the fallback
is exact and not slow. `resolve` is called before any data is loaded: a backend that cannot work here is an
error at once, never in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

import torch
from torch.nn import functional

from planner.inputs import InvalidInput
from trainer.errors import reason

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

BACKENDS = ("auto", "sdpa", "flash")


def sdpa(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """PyTorch's scaled-dot-product attention, causal."""
    mixed = functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
    )
    return mixed.transpose(1, 2)


def flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, deterministic: bool = True
) -> torch.Tensor:
    """flash-attn 2, causal; its backward is asked to be deterministic where runs must resume to the bit."""
    from flash_attn import flash_attn_func

    mixed: torch.Tensor = flash_attn_func(query, key, value, causal=True, deterministic=deterministic)
    return mixed


def resolve(wanted: str, device: torch.device, dtype: torch.dtype, d_head: int) -> str:
    """The backend that will run, "flash" or "sdpa"; raises where the one asked for cannot work."""
    if wanted not in BACKENDS:
        raise InvalidInput(f"must be one of {', '.join(BACKENDS)}; got {wanted!r}.", field="attention")
    obstacle = _flash_obstacle(device, dtype, d_head)
    if wanted == "flash" and obstacle:
        other = f"= 'flash' cannot work here: {obstacle}; 'sdpa' or 'auto' would do."
        raise InvalidInput(other, field="attention")
    return "sdpa" if wanted == "sdpa" or obstacle else "flash"


def function(backend: str, deterministic: bool = True) -> Attention:
    """The function of a resolved backend."""
    return sdpa if backend == "sdpa" else partial(flash, deterministic=deterministic)


def _not_importable() -> str:
    """Why flash-attn cannot be imported: it may be built for another torch or CUDA."""
    try:
        import_module("flash_attn")
    except ModuleNotFoundError:
        return "flash-attn is not installed (pip install '.[flash]')"
    except Exception as error:
        return f"flash-attn is installed but does not load ({reason(error)})"
    return ""


def _flash_obstacle(device: torch.device, dtype: torch.dtype, d_head: int) -> str:
    """Why flash-attn 2 cannot run, or an empty text."""
    if device.type != "cuda":
        return f"flash-attn needs a CUDA device and this run uses {device.type}"
    if missing := _not_importable():
        return missing
    if torch.cuda.get_device_capability(device)[0] < 8:
        return f"flash-attn 2 needs an Ampere or newer GPU and this is {torch.cuda.get_device_name(device)}"
    if dtype not in (torch.bfloat16, torch.float16):
        return "flash-attn needs bf16 and this run computes in fp32"
    if d_head > 256 or d_head % 8:
        return f"flash-attn needs a head size that is a multiple of 8 up to 256 and this model has {d_head}"
    return ""
