"""A project of Weights & Biases, `wandb:entity/project`, through its own client where that is installed.

Each run is a row: its name, id and state, its settings as config.*, its last figures as summary.*.
"""

from __future__ import annotations

from typing import Any

from calibration.fitting.runs.checks import RawTable
from calibration.fitting.runs.formats.records import table
from planner.inputs import InvalidInput

PREFIX = "wandb:"


def read(source: str) -> RawTable:
    project = source.removeprefix(PREFIX).strip("/ ")
    if project.count("/") != 1 or not all(project.split("/")):
        raise InvalidInput(f"must be wandb:entity/project; got {source!r}.", field="runs")
    try:
        import wandb
    except ImportError:
        raise InvalidInput(
            f"{source} needs the client of Weights & Biases: pip install wandb, "
            f"or export the project's table as CSV and give that."
        ) from None
    try:
        rows = [_row(run) for run in wandb.Api().runs(project)]
    except Exception as error:  # no key, no network, no such project: the client has a kind for each
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise InvalidInput(f"{source} cannot be read: {reason[:300]}.") from None
    return table(source, rows)


def _row(run: Any) -> dict[str, Any]:
    return {
        "name": run.name,
        "id": run.id,
        "state": run.state,
        "config": {key: value for key, value in run.config.items() if not key.startswith("_")},
        "summary": run.summary_metrics,
    }
