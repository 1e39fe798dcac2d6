"""A folder of Hugging Face runs: each has a trainer_state.json, in itself or in its newest checkpoint.

Its columns are the last value of each figure in the log, the tokens that were seen, and the parameters that
its weights hold, where there are weights next to it. A run that ended before its last step is unfinished.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from pathlib import Path
from typing import Any

from calibration.fitting.runs.checks import RawTable
from calibration.fitting.runs.formats.records import table
from planner.inputs import InvalidInput

_FILE = "trainer_state.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_LARGEST_HEADER = 2**26
_CALLED: dict[Any, str] = {"loss": "training_loss"}  # of the last steps; validation is eval_loss


def read(folder: Path) -> RawTable | None:
    """The runs below a folder; None where there are none."""
    newest: dict[Path, tuple[float, Path]] = {}
    for place, _, names in os.walk(folder):
        if _FILE not in names:
            continue
        path = Path(place)
        checkpoint = _CHECKPOINT.fullmatch(path.name)
        run, step = (path.parent, float(checkpoint[1])) if checkpoint else (path, math.inf)
        newest[run] = max(newest.get(run, (-1.0, path)), (step, path))
    if not newest:
        return None
    here = folder.resolve()
    rows = []
    for run, (_, path) in sorted(newest.items()):
        name = here.name if run == folder else Path(os.path.relpath(run.resolve(), here)).as_posix()
        rows.append({"run": name, **_row(path, run)})
    return table(here.name, rows)


def _row(place: Path, run: Path) -> dict[str, Any]:
    state = _json(place / _FILE)
    row: dict[str, Any] = {}
    for entry in state.get("log_history") or ():
        if isinstance(entry, dict):
            row |= {_CALLED.get(key, str(key)): v for key, v in entry.items() if isinstance(v, int | float)}
    for key in ("epoch", "global_step", "max_steps", "num_input_tokens_seen", "best_metric"):
        if isinstance(state.get(key), int | float) and not (
            key == "num_input_tokens_seen" and not state[key]
        ):
            row[key] = state[key]
    steps, last = row.get("global_step"), row.get("max_steps")
    row["state"] = "unfinished" if steps and last and steps < last else "finished"
    params = _params(place) or _params(run)
    return row | ({"params": params} if params else {})


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{path} cannot be read: {reason}.") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} holds no record of a run.")
    return found


def _params(folder: Path) -> int:
    """Parameters in the weights of a folder, by the headers of its files; 0 where there are none."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with open(path, "rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(length)) if length <= _LARGEST_HEADER else {}
            shapes = [part["shape"] for name, part in header.items() if name != "__metadata__"]
        except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError):
            raise InvalidInput(f"{path} is not a readable file of weights.") from None
        total += sum(math.prod(shape) for shape in shapes)
    return total
