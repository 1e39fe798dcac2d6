"""Checkpoints that survive a kill at any instant: tensors as safetensors, the rest as JSON, no pickle.

    checkpoints/step-00000400/
        part-00000.safetensors  the rows of weights and moments that the first process holds
        part-00001.safetensors  those of the second, and so on
        state.json              step, identity of the run, fingerprint of the data, all checksums

Every process copies what it holds into memory that is kept for that, and trains on while a thread writes its
part under another name. Once all have told each other that theirs is on disk the folder is renamed; only
then is the third-newest deleted. So there is always one that is complete, and one before it should the newest
turn out to be damaged. One that belongs to another run or other data is refused with the reason. Parts name
their rows, so that a run may continue on any number of processes, each of which reads its own rows only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from planner.inputs import InvalidInput
from trainer.config import RunConfig, differences
from trainer.errors import TrainingStopped, reason
from trainer.files import checksum, read_json, sync, write_json
from trainer.run import distributed, tensors

VERSION = 2
KEPT = 2  # complete checkpoints of an unfinished run
_DRAFT = re.compile(r"\.(step-\d+|final|tokenizer)\.(\d+|draft)")
_UNMEASURED, _SHORTEST, _LONGEST = 30.0, 10.0, 900.0  # seconds between checkpoints
_SHARE = 0.02  # of the time of a run that checkpoints may take
Tensors = dict[str, torch.Tensor]
Held = Mapping[str, tuple[torch.Tensor, int]]  # rows that a process holds, and which row is the first


class Damaged(InvalidInput):
    """A checkpoint whose files are missing, unreadable or changed."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    folder: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["step"])

    @property
    def files(self) -> list[Path]:
        return [self.folder / name for name in self.state["checksums"]]

    def rows(self) -> AbstractContextManager[tensors.Rows]:
        return tensors.opened(self.files)

    def weights(self) -> Tensors:
        """Whole tensors, of a checkpoint in a single part."""
        from safetensors.torch import load_file

        return load_file(self.folder / "model.safetensors")

    def verify(self, rank: int = 0, size: int = 1) -> None:
        """Raise where a file has changed; each of `size` processes reads its share of them."""
        for path in self.files[rank::size]:
            try:
                same = checksum(path) == self.state["checksums"][path.name]
            except OSError as error:
                raise Damaged(f"checkpoint {self.folder} is damaged ({reason(error)})") from None
            if not same:
                other = f"{path.name} does not match its checksum"
                raise Damaged(f"checkpoint {self.folder} is damaged ({other})")


class Pace:
    """When a checkpoint is due: as asked in seconds, or as often as their measured cost allows."""

    def __init__(self, config: RunConfig):
        self.asked, self.written = config.checkpoint_seconds, time.monotonic()
        self.interval = self.asked or _UNMEASURED

    def late(self) -> bool:
        return time.monotonic() - self.written > self.interval

    def wrote(self, cost: float) -> None:
        """A checkpoint has been begun; the last one took `cost` seconds of training and writing."""
        self.written = time.monotonic()
        if not self.asked and cost:
            self.interval = min(max(cost / _SHARE, _SHORTEST), _LONGEST)


class Writer:
    """Writes the checkpoints of a run while it trains on, one at a time."""

    def __init__(self, folder: Path, world: distributed.World = distributed.ALONE):
        self.folder, self.world = folder, world
        self.room: Tensors = {}
        self.thread: threading.Thread | None = None
        self.failed: BaseException | None = None
        # Of a part on disk: the state, its checksum, and where it is kept for good.
        self.written: tuple[dict[str, Any], str, Path | None] | None = None
        self.cost = 0.0  # seconds of the last one: what training waited for, and what the writing took

    def begin(self, state: dict[str, Any], held: Held, kept_in: Path | None = None) -> None:
        """Copy what this process holds, and write it from a thread, once the one before is written."""
        start = time.perf_counter()
        self.wait()
        for name, (rows, _) in held.items():
            if name not in self.room:
                self.room[name] = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=rows.is_cuda)
            self.room[name].copy_(rows)
        firsts = {name: first for name, (_, first) in held.items()}
        waited = time.perf_counter() - start
        self.thread = threading.Thread(target=self._write, args=(state, firsts, waited, kept_in), daemon=True)
        self.thread.start()

    def wait(self) -> None:
        """Wait until nothing is being written, and raise what went wrong with it, on all processes."""
        if self.thread:
            self.thread.join()
            self.thread = None
        failed, self.failed = self.failed, None
        written, self.written = self.written, None

        def told() -> None:
            if failed:
                raise failed

        distributed.all_succeed(self.world, told)
        if self.world.size > 1 and any(distributed.everybodys(self.world, written is not None)):
            assert written is not None
            state, part, kept_in = written
            finish = partial(complete, state=state, sums=distributed.everybodys(self.world, part))
            distributed.decided(
                self.world, lambda: finish(kept_in or self.folder, keep_all=kept_in is not None)
            )

    def pending(self) -> bool:
        """Whether a part is still being written."""
        return self.thread is not None and self.thread.is_alive()

    def leave(self) -> None:
        """Wait, where a run ends for another reason, until the last checkpoint is complete."""
        if self.thread:
            self.thread.join()

    def _write(
        self, state: dict[str, Any], firsts: dict[str, int], waited: float, kept_in: Path | None
    ) -> None:
        start = time.perf_counter()
        try:
            folder = kept_in or self.folder
            part = write_part(folder, state, self.room, firsts, self.world)
            if self.world.size == 1:
                complete(folder, state, [part], keep_all=kept_in is not None)
            else:  # once all have written theirs, which they tell each other between two steps
                self.written = state, part, kept_in
        except BaseException as error:
            self.failed = error
        self.cost = waited + time.perf_counter() - start


def write_part(
    folder: Path, state: dict[str, Any], held: Tensors, firsts: dict[str, int], world: distributed.World
) -> str:
    """Write the part of one process; its checksum."""
    with _drafted(place(folder, state["step"]), alone=world.size == 1) as draft:
        draft.mkdir(parents=True, exist_ok=True)
        rows = {"rows": json.dumps(firsts)} if world.size > 1 else None
        return tensors.write(draft / _part(world.rank), held, rows)


def complete(folder: Path, state: dict[str, Any], sums: list[str], *, keep_all: bool = False) -> None:
    """Make a checkpoint of parts that are all on disk; of those before, only some are kept."""
    final = place(folder, state["step"])
    with _drafted(final) as draft:
        _complete(draft, final, state, {_part(rank): value for rank, value in enumerate(sums)})
        for older in sorted(_steps(folder))[:-KEPT] if not keep_all else ():
            shutil.rmtree(older, ignore_errors=True)


def place(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / f"step-{step:08d}"


@contextmanager
def _drafted(final: Path, alone: bool = True) -> Iterator[Path]:
    """Where a checkpoint is written first; where that fails nothing of it is left, if nobody else writes."""
    draft = final.with_name(f".{final.name}.draft")
    try:
        yield draft
    except (OSError, SafetensorError) as error:
        if alone:
            shutil.rmtree(draft, ignore_errors=True)
        raise TrainingStopped(
            f"checkpoint {final} cannot be written ({reason(error)}); earlier checkpoints are intact."
        ) from error


def write_final(folder: Path, state: dict[str, Any], weights: Tensors) -> str:
    """Write the weights of a finished run into `final/`, whole or not at all; their checksum."""
    final = folder / "final"
    with _drafted(final) as draft:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        value = tensors.write(draft / "model.safetensors", weights)
        _complete(draft, final, state, {"model.safetensors": value})
    return value


def _complete(draft: Path, final: Path, state: dict[str, Any], sums: dict[str, str]) -> None:
    whole = {"version": VERSION, **state, "checksums": sums}
    write_json(draft / "state.json", whole | {"checksum": _digest(whole)})
    if final.exists():
        shutil.rmtree(final)
    os.rename(draft, final)
    sync(final.parent)


def newest(
    folder: Path, belongs: dict[str, Any], world: distributed.World = distributed.ALONE
) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is complete, and remarks about those that are not, on all processes; one of
    another run or other data is refused, a damaged one passed over where an older one is intact.
    """
    damaged: list[str] = []
    for path in distributed.decided(world, lambda: sorted(_steps(folder), reverse=True)):
        try:
            found = distributed.decided(world, partial(read_state, path, belongs))
            distributed.all_succeed(world, partial(found.verify, world.rank, world.size))
        except Damaged as error:
            damaged.append(str(error))
            continue
        return found, [f"{text}; the run went on from step {found.step}" for text in damaged]
    if damaged:
        raise InvalidInput(f"{damaged[0]}, and there is no other checkpoint; delete {folder} to start again.")
    return None, []


def read_state(folder: Path, belongs: dict[str, Any]) -> Checkpoint:
    """One checkpoint, its tensors not yet checked."""
    try:
        state = read_json(folder / "state.json")
        if not isinstance(state, dict):
            raise ValueError("state.json is not a table")
        if state["version"] not in (1, VERSION):
            other = f"another version of the trainer ({state['version']}, this is {VERSION})"
            raise InvalidInput(f"{folder} was written by {other}.")
        stored = state.pop("checksum", None)
        if state["version"] != 1 and stored != _digest(state):  # the first version had none
            raise ValueError("state.json does not match its checksum")
        for file in state["checksums"]:
            os.stat(folder / file)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise Damaged(f"checkpoint {folder} is damaged ({reason(error)})") from None
    for what, value in belongs.items():
        if (stored := state.get(what)) != value:
            other = f"a run on other {what} ({stored}, now {value})"
            if isinstance(stored, dict) and isinstance(value, dict):
                other = f"a run with another {differences(stored, value)}"
            raise InvalidInput(f"checkpoint {folder} belongs to {other}; another run directory would do.")
    return Checkpoint(folder, state)


def sweep_drafts(folder: Path) -> None:
    """Remove what killed processes left; the lock of the run directory makes sure that nobody is writing."""
    for path in [*folder.glob(".*"), *(folder / "checkpoints").glob(".*"), *(folder / "branches").glob(".*")]:
        if _DRAFT.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _part(rank: int) -> str:
    return f"part-{rank:05d}.safetensors"


def _digest(state: dict[str, Any]) -> str:
    text = json.dumps(state, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _steps(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*") if path.is_dir()]
