"""Several devices: FSDP2 (`fully_shard`) under torchrun. One process is simply a world of one.

Each rank takes its share of the rows of every batch. Parameters, gradients and moments live in shards;
checkpoints hold whole tensors, so a run may continue on another number of devices. FSDP averages gradients
over ranks, so losses are scaled by the number of ranks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from planner.errors import InvalidInput


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    mesh: Any = None

    @property
    def first(self) -> bool:
        return self.rank == 0


def world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def first() -> bool:
    """Whether this is the process that speaks for all."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """The processes of this run; the process group is left as it was found."""
    size = world_size()
    if size == 1:
        yield World()
        return
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    if device.type == "cuda":
        torch.cuda.set_device(device)
    ours = not distributed.is_initialized()
    if ours:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(
            distributed.get_rank(), distributed.get_world_size(), init_device_mesh(device.type, (size,))
        )
    finally:
        if ours:
            distributed.destroy_process_group()


def shard(model: Any, world: World) -> None:
    """Shard every layer, and then the rest, over the world."""
    if world.size == 1:
        return
    from torch.distributed.fsdp import fully_shard

    for layer in model.body.layers:
        fully_shard(layer, mesh=world.mesh)
    fully_shard(model, mesh=world.mesh)


def gathered(named: Iterable[tuple[str, torch.Tensor]], world: World) -> dict[str, torch.Tensor]:
    """Tensors in one piece on the CPU of the first rank, one after the other; every rank must ask, and others
    get nothing.
    """
    found = {}
    for name, tensor in named:
        full = tensor.detach()
        if hasattr(full, "full_tensor"):
            full = full.full_tensor()
        if world.first:
            found[name] = full.cpu().contiguous()
    return found


def place(target: Any, full: torch.Tensor) -> None:
    """Copy a whole tensor into one that may be sharded."""
    with torch.no_grad():
        if hasattr(target, "device_mesh"):
            from torch.distributed.tensor import distribute_tensor

            full = distribute_tensor(full.to(target.device), target.device_mesh, target.placements)
        target.copy_(full)


def total(value: torch.Tensor, world: World) -> float:
    """A sum over all ranks."""
    if world.size > 1:
        from torch import distributed

        value = value.clone()
        distributed.all_reduce(value)
    return value.item()


def agree(world: World) -> None:
    """Wait for every rank."""
    if world.size > 1:
        from torch import distributed

        distributed.barrier()


def anywhere(flag: bool, world: World) -> bool:
    """Whether any rank says yes: all ranks must stop at the same step."""
    return (
        flag
        if world.size == 1
        else total(torch.tensor(float(flag), device=world.mesh.device_type), world) > 0
    )


def finite(tensors: Iterable[torch.Tensor], world: World) -> bool:
    """Whether all values of all tensors are numbers, on every rank."""
    shards = (getattr(tensor, "_local_tensor", tensor).detach() for tensor in tensors)
    return not anywhere(not all(torch.isfinite(shard).all().item() for shard in shards), world)


def clip(parameters: list[nn.Parameter], most: float) -> float:
    """Scale gradients down to a norm of at most `most`; returns the norm they had."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, most)
    full = getattr(norm, "full_tensor", None)
    return (full() if full else norm).item()


def check(batch_size: int) -> None:
    if world_size() > batch_size:
        raise InvalidInput(
            f"{batch_size} is smaller than the {world_size()} processes; fewer processes would do.",
            field="batch_size",
        )
