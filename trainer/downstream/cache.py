"""Finished tasks on disk, one small file each: an evaluation that was interrupted goes on, a repeated one
costs nothing.

    <cache>/downstream/<fingerprint of the model>/<task>-<hash of everything else that matters>.json

A file holds what identifies it next to the scores; one that is damaged or does not match is scored again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planner.inputs import InvalidInput
from trainer.data.tokens import cache_folder
from trainer.downstream.metrics import Scores
from trainer.files import read_json, write_json

VERSION = 2  # of the scoring: raised when the same model would score differently


class Cache:
    """Scores of one model."""

    def __init__(self, folder: str | None, fingerprint: str):
        self.folder: Path = cache_folder(folder) / "downstream" / fingerprint

    def create(self) -> None:
        """Make the folder, so that one that cannot be written to is found before anything is scored."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"{error.strerror}; another folder as ‹cache› would do"
            raise InvalidInput(f"results cannot be kept in {self.folder}: {reason}.") from None

    def read(self, task: str, identity: dict[str, Any]) -> tuple[Scores, dict[str, Any]] | None:
        """Scores and facts of a task, or None where they are not there."""
        try:
            stored = read_json(self._path(task, identity))
            if stored["identity"] != identity:
                return None
            found = Scores(**stored["scores"])
            return (found, stored["facts"]) if len(found.bpb) == len(found.documents) > 0 else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, task: str, identity: dict[str, Any], scores: Scores, facts: dict[str, Any]) -> None:
        path = self._path(task, identity)
        try:
            write_json(path, {"identity": identity, "facts": facts, "scores": asdict(scores)})
        except OSError as error:
            reason = f"{error.strerror}; another folder as ‹cache› would do"
            raise InvalidInput(f"{path} cannot be written: {reason}.") from None

    def _path(self, task: str, identity: dict[str, Any]) -> Path:
        known = json.dumps(identity, sort_keys=True).encode()
        name = hashlib.blake2b(known, digest_size=8).hexdigest()
        return self.folder / f"{task.replace('/', '-')}-{name}.json"
