"""What a finished run leaves behind: `result.json`, one row of a run table and everything needed to know how
it came about.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from planner.inputs import InvalidInput
from trainer.files import read_json, write_json

FILE = "result.json"


class RunResult(BaseModel):
    """A finished run. The first fields are the columns of a run table."""

    model_config = ConfigDict(frozen=True)

    run: str
    params: int
    unique_tokens: int  # true: different tokens trained on
    epochs: float
    tokens: int  # true: tokens trained on, repetitions included
    weight_decay: float
    loss: float  # validation, nats per token
    perplexity: float
    bits_per_byte: float
    train_loss: float  # mean of the last 50 steps
    development_loss: float | None = None
    unaveraged_loss: float | None = None  # of the last weights, where `loss` is of an average
    trunk: str | None = None  # the run whose checkpoint it began from, where it has one
    skipped_steps: int = 0  # whose loss or gradient was no number, and which changed nothing
    # the lowest validation loss that was measured, at the end or on the way, and after how many epochs;
    # chosen on the set it is measured on, so a little too good
    best_loss: float | None = None
    best_epochs: float | None = None
    validations: list[dict[str, float]] = []  # step, epoch, tokens, loss, where some were made on the way
    seed: int
    learning_rate: float
    flops: float  # 6 * params * tokens
    counted_flops: float  # 6 * (layers + head) + attention, per token
    steps: int
    seconds: float  # training only, over all starts
    tokens_per_second: float  # since the last start, without its first step, which compiles
    mfu: float | None = None  # model FLOPs utilisation: counted FLOPs per second over the devices' peak
    starts: int  # 1 for a run that was never interrupted
    non_embedding_params: int
    architecture: dict[str, Any]
    execution: dict[str, Any]
    data: dict[str, Any]
    recipe: dict[str, Any]
    config: dict[str, Any]
    config_fingerprint: str
    weights_checksum: str
    remarks: list[str]

    def row(self) -> dict[str, Any]:
        """The columns of a run table."""
        columns = "run params unique_tokens epochs tokens weight_decay loss seed learning_rate train_loss"
        columns += " best_loss best_epochs development_loss bits_per_byte flops steps seconds"
        columns += " non_embedding_params unaveraged_loss trunk"
        names = ("optimizer", "muon_weight_decay", "dropout", "schedule", "ema_decay", "average_last")
        recipe = {name: self.config.get(name) for name in names}
        further = ["warmup_steps", "decay_ratio"] if recipe["schedule"] == "wsd" else []
        further += ["average_every"] if recipe["average_last"] else []
        recipe |= {name: self.config[name] for name in further if self.config.get(name) is not None}
        dtype = {"dtype": self.execution["dtype"]} if "dtype" in self.execution else {}
        return {name: getattr(self, name) for name in columns.split()} | recipe | dtype


def write_result(folder: Path, result: RunResult) -> None:
    """Write the result of a run, at once, with a checksum: a figure that is edited later is noticed."""
    values = result.model_dump(mode="json")
    write_json(folder / FILE, values | {"checksum": _checksum(values)})


def _checksum(values: dict[str, Any]) -> str:
    kept = {name: value for name, value in values.items() if name != "checksum"}
    return hashlib.blake2b(json.dumps(kept, sort_keys=True).encode(), digest_size=16).hexdigest()


def read_result(folder: str | Path) -> RunResult | None:
    """The result of a run directory, or None while it is unfinished."""
    path = Path(folder) / FILE
    try:
        values = read_json(path)
        result = RunResult.model_validate(values)
        if values.get("checksum") in (None, _checksum(values)):  # earlier versions wrote none
            return result
        what = "not as it was written (its checksum differs)"
    except FileNotFoundError:
        return None
    except (OSError, ValidationError, ValueError) as error:
        what = "damaged" if not isinstance(error, OSError) else f"unreadable ({error.strerror})"
    again = "delete it and the run will be finished again from its checkpoint or from the start."
    raise InvalidInput(f"{path} is {what}; {again}")
