"""The outcome of a validation as a file of the study's directory, `validation.json`."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import TypeAdapter, ValidationError

from calibration.studies.directory import StudyDirectory
from calibration.studies.outcomes import Verdict
from planner.errors import InvalidInput
from trainer.files import read_json, write_json

FILE = "validation.json"
FORMAT = 1


def save(directory: StudyDirectory, verdict: Verdict, facts: dict[str, Any]) -> dict[str, Any]:
    """Write the file, with what it was made from and by; returns its content."""
    known = directory.facts()
    made_from = {"recipe": _fingerprint(known.get("recipe")), "data": known.get("data")}
    content = {"format": FORMAT, **facts, "made_from": made_from, "versions": _versions(), **asdict(verdict)}
    try:
        write_json(directory.path / FILE, content)
    except OSError as error:
        raise InvalidInput(f"cannot write {directory.path / FILE}: {error.strerror}.") from None
    return content


def read(directory: StudyDirectory) -> tuple[Verdict, dict[str, Any]] | None:
    """The last validation of a study and the facts about it; None where there was none."""
    path = directory.path / FILE
    try:
        content = read_json(path)
        if content["format"] != FORMAT:
            raise InvalidInput(
                f"{path} has format {content['format']!r}, and this version reads {FORMAT}; validate again."
            )
        fields = {name: content.pop(name) for name in ("trials", "standings", "crossovers")}
        return TypeAdapter(Verdict).validate_python(fields), content
    except FileNotFoundError:
        return None
    except (OSError, ValidationError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"{path} is damaged; `planner calibrate validate` writes it again without training anew."
        ) from None


def _fingerprint(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("databound", "torch", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
