"""The folder that a run lives in: whose it is, whether it is done, and that only one process trains it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from trainer.config import RunConfig, differences
from trainer.data import tokenizers, tokens
from trainer.files import locked, read_json, write_json
from trainer.run import checkpoints, distributed
from trainer.run.result import FILE, RunResult, read_result


def finished(folder: Path, config: RunConfig, data: tokens.TokenSet | None) -> RunResult | None:
    """The result of a directory that is done; raises where it is that of another run or of other data."""
    result = read_result(folder)
    if result is None:
        return None
    _same(folder, "a finished run", result.config, config)
    try:
        wanted = (
            data.fingerprint
            if data
            else tokens.fingerprint(config, tokenizers.Spec(config.tokenizer, config.eos_token))
        )
    except InvalidInput as error:
        remark = f"whether the data is still the same was not checked: {str(error).rstrip('.')}"
        return result.model_copy(update={"remarks": [*result.remarks, remark]})
    if result.data["fingerprint"] != wanted:
        raise InvalidInput(
            f"{folder} holds a finished run on other data ({result.data['fingerprint']}, now {wanted}); "
            f"another directory would do."
        )
    return result


def refuse_foreign(folder: Path) -> None:
    """Raise where a directory holds anything but a run: nothing of somebody else's is ever overwritten."""
    try:
        names = set(os.listdir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(folder, error) from None
    if "config.json" not in names and any(
        name != ".lock" and not name.startswith(".config.json.") for name in names
    ):
        raise InvalidInput(f"{folder} is not a run directory, and not empty; name a new one.")


@contextmanager
def held(folder: Path, config: RunConfig, world: distributed.World) -> Iterator[None]:
    """The run directory: made, checked, and locked against other processes."""
    with ExitStack() as stack:
        if world.first:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(folder / ".lock", busy=f"{folder} is being trained"))
            except OSError as error:
                raise _unwritable(folder, error) from None
            refuse_foreign(folder)
            stored = _stored(folder / "config.json")
            if stored is not None and _begun(folder):
                _same(folder, "a run", stored, config)
        distributed.agree(world)
        yield


def _stored(path: Path) -> dict[str, Any] | None:
    """The configuration that a directory belongs to."""
    try:
        return RunConfig(**read_json(path)).model_dump(mode="json")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(
            f"{path} is not the configuration of a run ({checkpoints.reason(error)}); another directory "
            f"would do."
        ) from None


def claim(folder: Path, config: RunConfig) -> None:
    """Write the configuration, once everything that could be wrong with it has been checked."""
    try:
        if not _begun(folder):
            write_json(folder / "config.json", config.model_dump(mode="json"))
    except OSError as error:
        raise _unwritable(folder, error) from None


def _begun(folder: Path) -> bool:
    """Whether a run directory holds anything that was trained; until then its configuration may still be
    corrected.
    """
    metrics = folder / "metrics.jsonl"
    kept = (folder / FILE, folder / "final", folder / "checkpoints")
    return any(path.exists() for path in kept) or (metrics.exists() and metrics.stat().st_size > 0)


def _unwritable(folder: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"run directory {folder} cannot be written: {checkpoints.reason(error)}.")


def _same(folder: Path, what: str, stored: dict[str, Any], config: RunConfig) -> None:
    """Raise where a directory holds a run of another configuration."""
    try:
        differs = differences(RunConfig(**stored).identity(), config.identity())
    except InvalidInput as error:
        raise InvalidInput(f"{folder} holds {what} that cannot be read ({str(error).rstrip('.')}).") from None
    if differs:
        raise InvalidInput(f"{folder} holds {what} with another {differs}; another directory would do.")
