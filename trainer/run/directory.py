"""The folder that a run lives in: whose it is, whether it is done, and that only one process trains it."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from planner.inputs import InvalidInput
from trainer.config import RunConfig, differences
from trainer.data import tokens
from trainer.errors import reason
from trainer.files import locked, read_json, write_json
from trainer.run import checkpoints, distributed
from trainer.run.result import FILE, RunResult, read_result

_MARK = ".shared-"  # what the first process leaves for the others to find begins with it
STARTS = "starts.json"  # how often an unfinished run has been started
_PATIENCE = 5.0  # seconds for it to travel to another machine


def finished(folder: Path, config: RunConfig, data: tokens.TokenSet | None) -> RunResult | None:
    """The result of a directory that is done; raises where it is not one of this run, or of other data."""
    refuse_foreign(folder)
    result = read_result(folder)
    if result is None:
        return None
    _same(folder, "a finished run", result.config, config)
    try:
        wanted = data.fingerprint if data else tokens.fingerprint(config)
    except InvalidInput as error:
        remark = f"whether the data is still the same was not checked: {str(error).rstrip('.')}"
        return result.model_copy(update={"remarks": [*result.remarks, remark]})
    if result.data["fingerprint"] != wanted:
        other = f"other data ({result.data['fingerprint']}, now {wanted})"
        raise InvalidInput(f"{folder} holds a finished run on {other}; another directory would do.")
    return result


def refuse_foreign(folder: Path) -> None:
    """Raise where a directory holds anything but a run: nothing of somebody else's is ever overwritten."""
    try:
        names = set(os.listdir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(folder, error) from None
    ours = (".lock", ".shared", ".config.json.")
    if "config.json" not in names and not all(name.startswith(ours) for name in names):
        raise InvalidInput(f"{folder} is not a run directory, and not empty; name a new one.")


@contextmanager
def held(folder: Path, config: RunConfig, world: distributed.World) -> Iterator[None]:
    """The run directory: made, checked and locked by the first process, and seen by all."""
    with ExitStack() as stack:
        distributed.decided(world, partial(_taken, folder, config, stack))
        _seen_by_all(folder, world)
        yield


def _taken(folder: Path, config: RunConfig, stack: ExitStack) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(locked(folder / ".lock", busy=f"{folder} is being trained"))
    except OSError as error:
        raise _unwritable(folder, error) from None
    refuse_foreign(folder)
    stored = _stored(folder / "config.json")
    if stored is not None and _begun(folder):
        _same(folder, "a run", stored, config)
    checkpoints.sweep_drafts(folder)


def _seen_by_all(folder: Path, world: distributed.World) -> None:
    """Raise where a process does not see what the first one writes: its checkpoints would be lost."""
    if world.size == 1:
        return
    here = socket.gethostname()

    def leave() -> tuple[str, str]:
        mark = f"{_MARK}{secrets.token_hex(8)}"
        (folder / mark).touch()
        return mark, here

    def wait() -> None:
        deadline = time.monotonic() + _PATIENCE
        while not (folder / mark).exists():
            if time.monotonic() > deadline:
                raise InvalidInput(
                    f"process {world.rank} on {here} does not see run directory {folder} of process 0 on "
                    f"{there}; a directory that all of them share would do."
                )
            time.sleep(0.1)

    mark, there = distributed.decided(world, leave)
    distributed.all_succeed(world, wait)
    if world.first:
        (folder / mark).unlink(missing_ok=True)


def _stored(path: Path) -> dict[str, Any] | None:
    """The configuration that a directory belongs to."""
    try:
        return RunConfig(**read_json(path)).model_dump(mode="json")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        what = f"{path} is not the configuration of a run ({reason(error)})"
        raise InvalidInput(f"{what}; another directory would do.") from None


def claim(folder: Path, config: RunConfig) -> int:
    """Write the configuration, now that it is checked; how often the run was started, with this time."""
    try:
        if not _begun(folder):
            write_json(folder / "config.json", config.model_dump(mode="json"))
        starts = 1
        with suppress(OSError, ValueError, TypeError):
            starts += int(read_json(folder / STARTS))
        write_json(folder / STARTS, starts)
        return starts
    except OSError as error:
        raise _unwritable(folder, error) from None


def _begun(folder: Path) -> bool:
    """Whether anything was trained there; until then its configuration may be corrected."""
    metrics = folder / "metrics.jsonl"
    kept = (folder / FILE, folder / "final", folder / "checkpoints")
    return any(path.exists() for path in kept) or (metrics.exists() and metrics.stat().st_size > 0)


def _unwritable(folder: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"run directory {folder} cannot be written: {reason(error)}.")


def _same(folder: Path, what: str, stored: dict[str, Any], config: RunConfig) -> None:
    """Raise where a directory holds a run of another configuration."""
    try:
        differs = differences(RunConfig(**stored).identity(), config.identity())
    except InvalidInput as error:
        raise InvalidInput(f"{folder} holds {what} that cannot be read ({str(error).rstrip('.')}).") from None
    if differs:
        raise InvalidInput(f"{folder} holds {what} with another {differs}; another directory would do.")
