"""The outcome of a validation as a file of the study's directory, `validation.json`, and in words."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import TypeAdapter, ValidationError

from calibration.studies.directory import StudyDirectory
from calibration.studies.validation import CrossoverFound, Standing, Verdict
from planner.errors import InvalidInput
from planner.units import scientific
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


def sentence(found: CrossoverFound) -> str:
    """Predicted and observed crossover in one line."""
    if found.predicted is None:
        return found.note
    text = f"predicted {scientific(found.predicted)}"
    if found.predicted_interval is not None:
        text += " (95% {} to {})".format(*(scientific(end) for end in found.predicted_interval))
    between = ""
    if found.observed_interval is not None and found.observed_interval != (None, None):
        low, high = found.observed_interval
        ends = (
            "below the range" if low is None else scientific(low),
            "above the range" if high is None else scientific(high),
        )
        between = " (95% {} to {})".format(*ends)
    if found.observed is None:
        return f"{text}; observed: {found.note}{between}"
    text += f", observed {scientific(found.observed)}{between}"
    text += f": {found.ratio:.2f} times the predicted one"
    return f"{text}; {found.note}" if found.note else text


def beyond_noise(value: bool | None, behind: float | None) -> str:
    """Whether a law is behind the best one beyond seed noise, in a word."""
    if behind is None:
        return "not comparable"
    if value is None:
        return "best" if behind == 0 else "unknown"
    return "yes" if value else "no"


def by_regret(standing: Standing) -> tuple[float, int, float]:
    """The order of a table of standings: a mean over fewer budgets is no comparison, so these laws come later."""
    return (
        standing.weight_decay,
        -standing.pairs,
        float("inf") if standing.regret is None else standing.regret,
    )


def figure(value: float | None, style: str = ".4f") -> str:
    """A number of a table, blank where it is not known."""
    return "" if value is None else format(value, style)


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
