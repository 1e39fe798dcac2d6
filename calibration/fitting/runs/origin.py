"""Where the runs of a table come from: what a calibration says about itself besides its laws."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Origin:
    """What is known about the runs of a table; nothing of it is needed for a fit."""

    title: str = ""
    corpus: str = ""
    model_family: str = ""
    vocab_size: int | None = None
    tied_embeddings: bool | None = None
    data_fingerprint: str | None = None  # of the tokens that were trained on
    recipe: dict[str, Any] | None = None  # learning rate, batch and schedule, as `planner` keeps them

    def facts(self) -> dict[str, Any]:
        """What is known, as fields of a calibration."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}
