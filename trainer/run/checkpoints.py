"""Checkpoints that survive a kill at any instant: weights and optimiser state as safetensors, the rest as
JSON, no pickle.

    checkpoints/step-00000400/
        model.safetensors      weights, whole tensors whatever number of devices trained them
        optimizer.safetensors  the two moments of every tensor
        state.json             step, identity of the run, fingerprint of the data, checksums of the two files

A checkpoint is written under another name, synced, and renamed; only then are older ones deleted. So there is
always one that is complete. One that is damaged, or belongs to another run or other data, is refused with the
reason.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from planner.errors import InvalidInput
from trainer.config import differences
from trainer.errors import TrainingStopped
from trainer.files import checksum, read_json, sync_file, sync_folder, write_json

VERSION = 1
_DRAFT = re.compile(r"\.(step-\d+|final)\.\d+")
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    folder: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["step"])

    def weights(self) -> Tensors:
        return load_file(self.folder / "model.safetensors")

    def moments(self) -> Tensors:
        return load_file(self.folder / "optimizer.safetensors")


def write(
    folder: Path, name: str, state: dict[str, Any], weights: Tensors, moments: Tensors | None = None
) -> Path:
    """Write one checkpoint, whole or not at all; a disk that fails stops the run and leaves earlier
    checkpoints as they were.
    """
    draft, final = folder / f".{name}.{os.getpid()}", folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep_drafts(folder)
        draft.mkdir()
        files = {"model.safetensors": weights} | (
            {"optimizer.safetensors": moments} if moments is not None else {}
        )
        for file, tensors in files.items():
            save_file(tensors, draft / file)
            sync_file(draft / file)
        sums = {file: checksum(draft / file) for file in files}
        write_json(draft / "state.json", {"version": VERSION, **state, "checksums": sums})
        if final.exists():
            shutil.rmtree(final)
        os.rename(draft, final)
        sync_folder(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise TrainingStopped(
            f"checkpoint {final} cannot be written ({reason(error)}); earlier checkpoints are intact."
        ) from error
    return final


def write_step(folder: Path, state: dict[str, Any], weights: Tensors, moments: Tensors) -> Path:
    """Write the checkpoint of a step, then delete older ones."""
    final = write(folder, f"step-{state['step']:08d}", state, weights, moments)
    for other in _steps(folder):
        if other != final:
            shutil.rmtree(other, ignore_errors=True)
    return final


def newest(folder: Path, belongs: dict[str, Any]) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is complete, and remarks about those that are not; `belongs` is what its
    state must agree with.

    A checkpoint of another run or other data is refused at once. A damaged one is passed over where an older
    one is intact.
    """
    remarks: list[str] = []
    for candidate in sorted(_steps(folder), reverse=True):
        try:
            return read(candidate, belongs), remarks
        except Damaged as error:
            remarks.append(str(error))
    if remarks:
        raise InvalidInput(
            f"{remarks[0].rstrip('.')}, and there is no other checkpoint; delete {folder} to start again."
        )
    return None, remarks


class Damaged(InvalidInput):
    """A checkpoint whose files are missing, unreadable or changed."""


def read(folder: Path, belongs: dict[str, Any]) -> Checkpoint:
    """One checkpoint, checked."""
    try:
        state = read_json(folder / "state.json")
        if not isinstance(state, dict):
            raise ValueError("state.json is not a table")
        if state["version"] != VERSION:
            raise InvalidInput(
                f"{folder} was written by another version of the trainer ({state['version']}, this is "
                f"{VERSION})."
            )
        changed = [file for file, value in state["checksums"].items() if checksum(folder / file) != value]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise Damaged(f"checkpoint {folder} is damaged ({reason(error)})") from None
    if changed:
        raise Damaged(f"checkpoint {folder} is damaged ({changed[0]} does not match its checksum)")
    for what, value in belongs.items():
        if state.get(what) != value:
            raise InvalidInput(
                f"checkpoint {folder} belongs to {_another(what, state.get(what), value)}; another run "
                f"directory would do."
            )
    return Checkpoint(folder, state)


def _another(what: str, stored: Any, asked: Any) -> str:
    """Says in which field a checkpoint differs."""
    if isinstance(stored, dict) and isinstance(asked, dict):
        return f"a run with another {differences(stored, asked)}"
    return f"a run on other {what} ({stored}, now {asked})"


def reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return (text[:1].lower() + text[1:])[:200].rstrip(".") or type(error).__name__


def _steps(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*") if path.is_dir()]


def _sweep_drafts(folder: Path) -> None:
    """Remove what killed processes left; the lock of the run directory makes sure that nobody is writing."""
    for path in folder.glob(".*"):
        if _DRAFT.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
