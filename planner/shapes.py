"""Model shapes that can be built: Llama-2 for any parameter count, and the paper's 13 as presets.

Parameters are counted as in the paper: input and output embeddings are separate matrices, there are no
biases, and the vocabulary has 32,100 rows (with which all 13 printed totals come out):

    total = 2 V d  +  layers (4 d^2 + 3 d d_ff + 2 d)  +  d
            embeddings        attention, SwiGLU, 2 norms   final norm
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, computed_field

from planner.errors import InvalidInput
from planner.records import made
from planner.units import count, short, whole

DEFAULT_VOCAB = 32_100
LARGEST = 5e12
LARGEST_VOCAB = 10**9  # rows: a thousand times the largest in use
TOLERANCE = 0.02  # how far the built size may be from the one asked for


class Architecture(BaseModel):
    """A Llama-2 shape: everything needed to build the model, and its parameter counts."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    d_model: int
    layers: int
    heads: int
    d_head: int
    d_ff: int
    vocab_size: int = DEFAULT_VOCAB
    tied_embeddings: bool = False
    preset: str | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def params(self) -> int:
        """All parameters, embeddings included: the N of every law here."""
        return self.non_embedding_params + (1 if self.tied_embeddings else 2) * self.vocab_size * self.d_model

    @computed_field  # type: ignore[prop-decorator]
    @property
    def non_embedding_params(self) -> int:
        return (
            self.layers * (4 * self.d_model**2 + 3 * self.d_model * self.d_ff + 2 * self.d_model)
            + self.d_model
        )

    @property
    def absurd(self) -> bool:
        """Whether nobody would train it: deeper than wide, or with heads of a few dimensions."""
        return self.layers > self.d_model or self.d_head < 8

    def describe(self) -> str:
        name = f" (the paper's {self.preset})" if self.preset else ""
        return (
            f"d_model {self.d_model:,}, {self.layers} layers, {self.heads} heads of {self.d_head}, "
            f"d_ff {self.d_ff:,}, vocabulary {self.vocab_size:,}: {short(self.params, 4)} parameters, "
            f"{short(self.non_embedding_params, 4)} without embeddings{name}"
        )


def _preset(name: str, d_model: int, layers: int, heads: int, d_head: int, d_ff: int) -> Architecture:
    return made(
        Architecture, d_model=d_model, layers=layers, heads=heads, d_head=d_head, d_ff=d_ff, preset=name
    )


# name, d_model, layers, heads, d_head, d_ff
_TABLE = (
    ("15M", 192, 6, 3, 64, 768),
    ("25M", 256, 8, 4, 64, 1024),
    ("35M", 320, 9, 5, 64, 1280),
    ("50M", 384, 10, 6, 64, 1536),
    ("125M", 768, 12, 12, 64, 2048),
    ("250M", 1024, 14, 16, 64, 2816),
    ("500M", 1280, 20, 10, 128, 3584),
    ("750M", 1536, 24, 12, 128, 4096),
    ("1B", 1792, 26, 14, 128, 4864),
    ("280M", 1024, 17, 16, 64, 2816),
    ("350M", 1024, 24, 8, 128, 2816),
    ("390M", 1152, 20, 9, 128, 3072),
    ("720M", 1408, 25, 11, 128, 4096),
)

STUDY_SHAPES = ("15M", "25M", "35M", "50M", "125M", "250M", "500M", "750M", "1B")
VALIDATION_SHAPES = ("280M", "350M", "390M", "720M")


@lru_cache(maxsize=1)
def presets() -> dict[str, Architecture]:
    """The paper's nine study shapes and four validation shapes by name."""
    return {row[0]: _preset(*row) for row in _TABLE}


def preset(name: str) -> Architecture:
    """One of the paper's shapes, such as "125M"."""
    known = presets()
    if not isinstance(name, str) or name not in known:
        raise InvalidInput(f"must be one of {', '.join(known)}; got {name!r}.", field="shape")
    return known[name]


def shape_for(params: Any, vocab_size: Any = DEFAULT_VOCAB, *, tied_embeddings: bool = False) -> Architecture:
    """The most ordinary Llama-2 shape within 2% of `params`: one of the paper's, else the best proportioned.

    The proportions follow what is trained in practice: width over depth rises from 32 at 15M to 64 at 125M-1B
    (the paper) and 128 from 7B (Llama-2); d_ff is 8/3 to 4 times the width; heads have 64 or 128 dimensions;
    widths and d_ff are multiples of 64 where the size allows. Tiny models, whose embeddings alone nearly fill
    the budget, may have to leave those proportions to meet the count.
    """
    wanted = count(params, "params")
    vocab = vocabulary(vocab_size)
    for known in presets().values():
        if (known.vocab_size, known.tied_embeddings) == (vocab, tied_embeddings) and abs(
            known.params / wanted - 1
        ) <= TOLERANCE:
            return known
    if wanted > LARGEST:
        raise InvalidInput(
            f"must be at most {short(LARGEST)} for a model shape; got {short(wanted)}.", field="params"
        )
    found = _search(wanted, vocab, tied_embeddings)
    if found is None:
        raise InvalidInput(
            f"no Llama-2 shape within {TOLERANCE:.0%} of {short(wanted)} parameters exists "
            f"with a vocabulary of {vocab:,}; a smaller vocabulary would do."
        )
    return found


def vocabulary(value: Any) -> int:
    """The rows of an embedding, checked."""
    rows = whole(value, "vocab_size", example="32100")
    if rows < 2:
        raise InvalidInput(
            f"must be at least 2: with one token there is nothing to predict; got {rows}.", field="vocab_size"
        )
    if rows > LARGEST_VOCAB:
        raise InvalidInput(f"must be at most {short(LARGEST_VOCAB)}; got {short(rows)}.", field="vocab_size")
    return rows


def _search(wanted: float, vocab: int, tied: bool) -> Architecture | None:
    embeddings = (1 if tied else 2) * vocab
    # Widths: fine steps for small models, steps of 64 and then 128 for large ones, as hardware likes them.
    steps = ((6, 64, 2), (64, 2048, 32), (2048, 8192, 128), (8192, 32769, 512))
    widths = np.concatenate([np.arange(*step) for step in steps])
    widths = widths[embeddings * widths < wanted]
    if not len(widths):
        return None
    body = wanted - embeddings * widths - widths  # what layers and feed-forward have to fill
    ratios = np.array([8 / 3, 10 / 3, 4.0, 2.0, 6.0, 10.0])
    d = widths[:, None, None].astype(float)
    # For each width and each d_ff / d ratio the depth that fills the body, rounded both ways; then d_ff
    # adjusted to hit N.
    per_layer = 4 * d**2 + 3 * ratios[None, :, None] * d**2 + 2 * d
    depth = np.maximum(np.floor(body[:, None, None] / per_layer) + np.array([0.0, 1.0]), 1)
    ideal_ff = (body[:, None, None] / depth - 4 * d**2 - 2 * d) / (3 * d)
    step = np.where(d >= 1024, 128.0, np.where(d >= 256, 64.0, np.where(d >= 64, 16.0, 4.0)))
    d_ff = np.maximum(np.round(ideal_ff / step) * step, step)
    total = embeddings * d + depth * (4 * d**2 + 3 * d * d_ff + 2 * d) + d
    error = np.abs(total / wanted - 1)
    aspect = _usual_aspect(wanted)
    head = np.where(d >= 1280, 128, np.where(d % 64 == 0, 64, np.where(d >= 64, 32, 16)))
    awkward = np.where(d % head == 0, 0.0, 0.3) + np.where((d >= 64) & (d % 64 != 0), 0.1, 0.0)
    awkward += np.where(d % 8 == 0, 0.0, 2.0)  # heads of fewer than eight dimensions
    score = (
        np.log(d / (depth * aspect)) ** 2  # usual width over depth
        + 4 * np.maximum(np.abs(np.log(d_ff / d / 3.27)) - 0.21, 0) ** 2  # d_ff within 8/3 to 4 widths
        + (error / TOLERANCE) ** 2 * 0.05
        + awkward
    )
    score = np.where((error <= TOLERANCE) & (ideal_ff > 0), score, np.inf)
    best = np.unravel_index(np.argmin(score), score.shape)
    if not np.isfinite(score[best]):
        return None
    width = int(widths[best[0]])
    d_head = _head_size(width)
    return made(
        Architecture,
        d_model=width,
        layers=int(depth[best]),
        heads=width // d_head,
        d_head=d_head,
        d_ff=int(d_ff[best]),
        vocab_size=vocab,
        tied_embeddings=tied,
    )


def _usual_aspect(params: float) -> float:
    """Width over depth that models of this size usually have."""
    sizes, aspects = np.log([1e6, 15e6, 125e6, 1e9, 7e9, 70e9]), [16.0, 32.0, 64.0, 68.0, 128.0, 104.0]
    return float(np.interp(math.log(params), sizes, aspects))


def _head_size(width: int) -> int:
    """128 for wide models and 64 for the rest, as in the paper; less where the width asks for it or would
    leave fewer than three heads.
    """
    usual = [128, 64, 32, 16, 8] if width >= 1280 else [64, 32, 16, 8]
    for size in usual + list(range(64, 0, -2)):
        if width % size == 0 and width // size >= 3:
            return size
    raise InvalidInput(f"must be even and at least 6; got {width}.", field="d_model")
