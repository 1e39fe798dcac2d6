"""Several devices: FSDP2 (`fully_shard`) under torchrun. One process is simply a world of one.

Each rank takes its share of the rows of every batch. Parameters, gradients and moments live in shards, the
rows of which are known, so a run may continue on another number of devices. FSDP averages gradients over
ranks, so losses are scaled by the number of ranks.

What could differ between ranks is decided by the first one (`decided`), and what may fail on one of them
fails on all (`all_succeed`): nobody is left waiting for somebody who has given up. Both go over a group of
their own, which is patient enough for a corpus to be tokenised; a step that takes longer than `PATIENCE` is a
peer that hangs.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import nn

from planner.inputs import InvalidInput
from trainer.errors import Interrupted, TrainingStopped
from trainer.run.launcher import end_with_launcher, hurried

_LOG = logging.getLogger("trainer")
T = TypeVar("T")
PATIENCE = timedelta(minutes=15)
_LONG = timedelta(days=2)
_FAILED = "databound/failed"  # what the first rank that failed says, in the launcher's store
_LOOK = 2.0  # seconds between two looks for it
_WORD = 10.0  # seconds that whoever lost a connection waits for it
_LEAVE = 20.0  # seconds that a rank has to fail by itself once another has
_END = 30  # seconds for a process to end once it has failed


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    mesh: Any = None
    control: Any = None  # the group over which decisions go

    @property
    def first(self) -> bool:
        return self.rank == 0


ALONE = World()


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
        yield ALONE
        return
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    if first() and (remark := hurried(torch.__version__)):
        _LOG.warning(remark)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    ours = not distributed.is_initialized()
    if ours:
        end_with_launcher()
        cuda = device.type == "cuda"
        distributed.init_process_group(
            "nccl" if cuda else "gloo", timeout=PATIENCE, device_id=device if cuda else None
        )
    control = distributed.new_group(backend="gloo", timeout=_LONG)
    mesh = init_device_mesh(device.type, (size,))
    with _failing_together() if ours else nullcontext():
        yield World(distributed.get_rank(), distributed.get_world_size(), mesh, control)
    if ours:  # where one has failed it would wait for the others, who wait for it in a collective
        distributed.destroy_process_group()


@contextmanager
def _failing_together() -> Iterator[None]:
    """Where one rank fails, all leave soon, with what it said over the store of the launcher."""
    from torch import distributed

    store = distributed.distributed_c10d._get_default_store()
    left = threading.Event()

    def watch() -> None:
        while not left.wait(_LOOK):
            with suppress(RuntimeError):  # the launcher is gone, which `launcher` sees to
                if store.check([_FAILED]):
                    if not left.wait(_LEAVE):
                        print(f"Error: {store.get(_FAILED).decode()}", file=sys.stderr, flush=True)
                        os._exit(1)
                    return

    threading.Thread(target=watch, name="failing together", daemon=True).start()
    try:
        yield
    except Interrupted:  # all of them, after the same step
        left.set()
        distributed.destroy_process_group()
        raise
    except BaseException as error:
        left.set()
        signal.alarm(_END)  # the interpreter, too, may wait for others on its way out
        raise _told(store, error) from error
    left.set()


def _told(store: Any, error: BaseException) -> BaseException:
    """The error of the rank that failed first: who loses a connection to it waits for a word of it."""
    ours = isinstance(error, InvalidInput | TrainingStopped | KeyboardInterrupt)
    with suppress(RuntimeError):
        if not ours and isinstance(error, RuntimeError):
            deadline = time.monotonic() + _WORD
            while not store.check([_FAILED]) and time.monotonic() < deadline:
                time.sleep(0.2)
            if store.check([_FAILED]):
                return TrainingStopped(store.get(_FAILED).decode())
        if not store.check([_FAILED]):
            store.set(_FAILED, str(error) or type(error).__name__)
    return error


def shard(model: Any, world: World, dtype: str = "fp32") -> None:
    """Shard every layer, and then the rest, over the world. With bf16 the layers travel in it, and their
    gradients are added up in fp32; embedding, head and the last norm stay in fp32 throughout.
    """
    if world.size == 1:
        return
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    half = torch.bfloat16 if dtype == "bf16" else None
    if half:  # states stay in fp32, and the gains of norms travel in bf16: as is meant
        warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")
    policy = MixedPrecisionPolicy(half, torch.float32 if half else None, cast_forward_inputs=False)
    for layer in model.body.layers:
        fully_shard(layer, mesh=world.mesh, mp_policy=policy)
    fully_shard(model, mesh=world.mesh)


def synchronise(model: Any, world: World, now: bool) -> None:
    """Whether the next backward pass adds gradients up over the ranks; until then each keeps its own."""
    if world.size > 1:
        model.set_requires_gradient_sync(now)


def reshard(model: Any, world: World) -> None:
    """Have each rank hold its rows alone again: a forward pass leaves whole what is not in a layer."""
    for module in model.modules() if world.size > 1 else ():
        if hasattr(module, "reshard"):
            module.reshard()


def gathered(named: Iterable[tuple[str, torch.Tensor]], world: World) -> dict[str, torch.Tensor]:
    """Whole tensors on the CPU of the first rank, one after the other; every rank must ask."""
    found = {}
    for name, tensor in named:
        full = tensor.detach()
        if hasattr(full, "full_tensor"):
            full = full.full_tensor()
        if world.first:
            found[name] = full.cpu().contiguous()
    return found


def decided(world: World, act: Callable[[], T]) -> T:
    """What `act` gives on the first rank, on all of them; where it fails, it fails on all."""
    if world.size == 1:
        return act()
    from torch import distributed

    said: list[Any] = [_outcome(act) if world.first else None]
    distributed.broadcast_object_list(said, src=0, group=world.control)
    value, error = said[0]
    if error is not None:
        raise error
    return cast(T, value)


def all_succeed(world: World, act: Callable[[], T]) -> T:
    """What `act` gives on this rank; where it fails on any, the error of the first of those on all."""
    if world.size == 1:
        return act()
    value, mine = _outcome(act)
    for error in everybodys(world, mine):
        if error is not None:
            raise error
    return cast(T, value)


def everybodys(world: World, value: T) -> list[T]:
    """What each rank says, in their order."""
    if world.size == 1:
        return [value]
    from torch import distributed

    said: list[Any] = [None] * world.size
    distributed.all_gather_object(said, value, group=world.control)
    return said


def _outcome(act: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return act(), None
    except Exception as error:
        return None, error


def held(tensor: torch.Tensor, world: World) -> tuple[torch.Tensor, int]:
    """The rows of a tensor that this rank holds, and which row of the whole is the first of them."""
    whole: Any = tensor.detach()
    if not hasattr(whole, "device_mesh"):
        return whole, 0
    share = math.ceil(whole.shape[0] / world.size)  # as FSDP2 cuts
    return whole.to_local(), min(world.rank * share, whole.shape[0])


def place(target: Any, full: torch.Tensor) -> None:
    """Copy a whole tensor into one that may be sharded."""
    with torch.no_grad():
        if hasattr(target, "device_mesh"):
            from torch.distributed.tensor import distribute_tensor

            full = distribute_tensor(full.to(target.device), target.device_mesh, target.placements)
        target.copy_(full)


def total(value: torch.Tensor, world: World) -> torch.Tensor:
    """A sum over all ranks."""
    if world.size > 1:
        from torch import distributed

        value = value.clone()
        distributed.all_reduce(value)
    return value


def anywhere(flags: Sequence[bool], world: World) -> list[bool]:
    """Which flags any rank raises, so that all stop at the same step; devices compute meanwhile."""
    if world.size == 1:
        return list(flags)
    from torch import distributed

    raised = torch.tensor(flags, dtype=torch.float32)
    distributed.all_reduce(raised, group=world.control, async_op=True).wait(PATIENCE)
    return [flag > 0 for flag in raised.tolist()]


def finite(tensors: Iterable[torch.Tensor], world: World) -> bool:
    """Whether all values of all tensors are numbers, on every rank."""
    shards = (getattr(tensor, "_local_tensor", tensor).detach() for tensor in tensors)
    return not anywhere([not all(torch.isfinite(shard).all().item() for shard in shards)], world)[0]


def clip(parameters: list[nn.Parameter], most: float) -> torch.Tensor:
    """Scale gradients down to a norm of at most `most`; returns the norm they had."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, most)
    full = getattr(norm, "full_tensor", None)
    return full() if full else norm


def check(batch_size: int) -> None:
    if world_size() > batch_size:
        few = f"{batch_size} is smaller than the {world_size()} processes; fewer processes would do."
        raise InvalidInput(few, field="batch_size")
