"""Which weight decay was best elsewhere, for a model of this size on this much data in this recipe.

    λ* = min(c (N/U)^(3/4) η^(-1/4), k B/(ηU))

The more parameters there are for each unique token, the more decay; up to where AdamW's timescale (Wang &
Aitchison, arXiv 2405.13698), B/(ηλU) epochs, would be shorter than 1/k of one, so that a corpus would be
forgotten before it was read once. c and k were fitted to tuned cells of models of 90 thousand to 3 billion
parameters. With each lab left out in turn, the rule is within a factor of two of what that lab found in 88%
or more of the cells that determine it (studies/weight-decay-rule, where the exponents were chosen too, with
all labs in sight). A lab that had no part in that choice either is further off: a factor of three, which is
what is said, holds nine of ten of its cells. It knows AdamW without dropout, and two epochs or more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

STRENGTH = 0.202  # c
SHORTEST = 2.79  # k: the shortest timescale is 0.36 epochs
OF_RATIO, OF_RATE = 3 / 4, -1 / 4
FACTOR = 3.0  # holds 90% of what labs found that had no part in the choice of the rule either
LABS = 5  # that the rule was fitted to


class Tuned(NamedTuple):
    """A weight decay, and between which others the tuned one is expected."""

    weight_decay: float
    low: float
    high: float


def within_factor(weight_decay: float) -> Tuned:
    """A tuned weight decay as far as it is known; its value to two digits."""
    value = float(f"{weight_decay:.2g}")
    return Tuned(value, value / FACTOR, value * FACTOR)


def tuned_weight_decay(params: Any, unique_tokens: Any, learning_rate: float, batch_tokens: float) -> Any:
    """The rule; `unique_tokens` are those in use, where that is less than an epoch. Arrays broadcast."""
    wanted = STRENGTH * (params / unique_tokens) ** OF_RATIO * learning_rate**OF_RATE
    found = np.minimum(wanted, SHORTEST * batch_tokens / (learning_rate * unique_tokens))
    return found if np.ndim(found) else float(found)
