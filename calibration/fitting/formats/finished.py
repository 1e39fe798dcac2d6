"""A folder of runs of `planner train`: each finished one has a result.json, which is a row."""

from __future__ import annotations

import os
from pathlib import Path

from calibration.fitting.checks import RawTable
from calibration.fitting.formats.records import table
from trainer.run.result import FILE, read_result


def read(folder: Path) -> RawTable | None:
    """The finished runs below a folder; None where there are none."""
    places = [Path(place) for place, _, names in sorted(os.walk(folder)) if FILE in names]
    results = [found for place in places if (found := read_result(place)) is not None]
    return table(folder.resolve().name, [result.row() for result in results]) if results else None
