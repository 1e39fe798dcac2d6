"""Examples to begin with, each a link of the page: what people have, in words they would use."""

from __future__ import annotations

from dataclasses import replace

from calibration.ui.state import DEFAULTS, IN_HOURS, Choices

_DAY, _WEEK = {"compute": IN_HOURS, "hours": "24"}, {"compute": IN_HOURS, "hours": "168"}
PRESETS: dict[str, Choices] = {
    "Law texts, 8 × H100 for a day": replace(DEFAULTS, ud="180M", **_DAY),
    "A national language, 8 × H100 for a day": replace(DEFAULTS, ud="2B", **_DAY),
    "A code base, one A100 for a week": replace(DEFAULTS, ud="40M", gpu="A100", gpus="1", **_WEEK),
    "The paper: 500M, 3e19 FLOPs": replace(DEFAULTS, ud="500M", flops="3e19"),
}
