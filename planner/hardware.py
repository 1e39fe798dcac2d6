"""What a plan means on real machines: a model shape that can be built, what compute costs, what serving and
data add to it, whether training fits into memory, and the files that train it.

Shapes are Llama-2's, for any parameter count, with the paper's 13 as presets. Parameters are counted as in
the paper: input and output embeddings are separate matrices, there are no biases, and the vocabulary has
32,100 rows (with which all 13 printed totals come out):

    total = 2 V d  +  layers (4 d^2 + 3 d d_ff + 2 d)  +  d
            embeddings        attention, SwiGLU, 2 norms   final norm

Peak speeds are the vendors' dense bf16 (or fp16) figures. Prices are indicative on-demand prices per hour in
US dollars; they move, so give your own. MFU is the share of the peak that training really reaches: 0.4 is a
fair guess for models of 100M and more, small models reach less.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, computed_field

from planner.inputs import (
    InvalidInput,
    compute,
    count,
    fraction,
    given,
    number,
    scientific,
    short,
    whole,
    with_article,
)
from planner.inputs import hours as duration_in_hours

if TYPE_CHECKING:
    from planner.calibration import Recipe
    from planner.results import Plan

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
    return Architecture.model_construct(
        d_model=d_model, layers=layers, heads=heads, d_head=d_head, d_ff=d_ff, preset=name
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
    return Architecture.model_construct(
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


# -- what compute costs

_USABLE = 0.92  # of the memory: the rest goes to the runtime and fragmentation
DEFAULT_MFU = 0.4
_TERA, _GIGA = 1e12, 1e9


class Accelerator(NamedTuple):
    name: str
    peak_flops: float  # dense bf16/fp16 FLOP/s
    memory_bytes: float
    price_per_hour: float  # USD, indicative


def _table(*rows: tuple[str, float, float, float]) -> dict[str, Accelerator]:
    return {
        name: Accelerator(name, peak * _TERA, memory * _GIGA, price) for name, peak, memory, price in rows
    }


ACCELERATORS = _table(  # name, TFLOP/s, GB, USD/h
    ("B200", 2250, 180, 6.00),
    ("H200", 989, 141, 4.00),
    ("H100", 989, 80, 3.00),
    ("H100-PCIe", 756, 80, 2.50),
    ("A100", 312, 80, 1.80),
    ("A100-40GB", 312, 40, 1.30),
    ("L40S", 362, 48, 1.00),
    ("L4", 121, 24, 0.70),
    ("A10G", 70, 24, 1.00),
    ("RTX-A6000", 155, 48, 0.80),
    ("RTX-6000-Ada", 364, 48, 1.00),
    ("RTX-5090", 210, 32, 0.60),
    ("RTX-4090", 165, 24, 0.40),
    ("RTX-3090", 71, 24, 0.25),
    ("V100", 125, 32, 0.60),
    ("T4", 65, 16, 0.35),
    ("MI300X", 1307, 192, 3.00),
    ("MI250X", 383, 128, 1.50),
    ("TPU-v4", 275, 32, 3.20),
    ("TPU-v5e", 197, 16, 1.20),
    ("TPU-v5p", 459, 95, 4.20),
)


_ALIASES = {
    "h100sxm": "H100",
    "h10080gb": "H100",
    "a10080gb": "A100",
    "a100sxm": "A100",
    "a6000": "RTX-A6000",
    "mi300": "MI300X",
}


def accelerator(name: str | Accelerator) -> Accelerator:
    """An accelerator by name, in any spelling: "h100", "H100 SXM", "rtx 4090"; one of your own is itself."""
    if isinstance(name, Accelerator):
        return name
    if isinstance(name, str):
        wanted = "".join(letter for letter in name.lower() if letter.isalnum())
        for known in ACCELERATORS.values():
            plain = known.name.lower().replace("-", "")
            if known.name == _ALIASES.get(wanted) or wanted in (plain, plain.removeprefix("rtx")):
                return known
    raise InvalidInput(f"must be one of {', '.join(ACCELERATORS)}; got {name!r}.", field="gpu")


def named_or_own(
    gpu: str | Accelerator | None = None, *, tflops: Any = None, memory: Any = None, price: Any = None
) -> Accelerator | None:
    """The accelerator of this name, or one of your own: peak TFLOP/s, GB and USD per hour. None: neither."""
    if tflops is None:
        if memory is not None:
            raise InvalidInput("needs ‹tflops›: it is that of an accelerator of your own.", field="memory")
        return None if gpu is None else accelerator(gpu)
    if gpu is not None:
        raise InvalidInput("describes an accelerator of your own: leave out ‹gpu›.", field="tflops")
    if memory is None or price is None:
        raise InvalidInput(
            "needs ‹memory› (GB) and ‹price› (USD per hour) as well, such as 48 and 1.2.", field="tflops"
        )
    speed = number(tflops, "tflops", examples="400")
    size = number(memory, "memory", examples="48")
    rate = _price(price)
    return Accelerator(f"{speed:g} TFLOP/s accelerator", speed * _TERA, size * _GIGA, rate)


def _price(price: Any) -> float:
    rate = number(price, "price", positive=False, examples="2.50")
    if rate < 0:
        raise InvalidInput(f"must not be negative; got {rate:g}.", field="price")
    return rate


def flops_from_money(usd: Any, gpu: str | Accelerator, mfu: Any = DEFAULT_MFU, price: Any = None) -> float:
    """The training FLOPs that `usd` dollars buy, at a share `mfu` of the accelerator's peak."""
    card, money = accelerator(gpu), number(usd, "budget_usd", examples="500")
    rate = card.price_per_hour if price is None else _price(price)
    if rate == 0:
        raise InvalidInput("must be above zero for a budget in money; got 0.", field="price")
    return flops_from_gpus(card, hours=money / rate, mfu=mfu)


def flops_from_gpus(gpu: str | Accelerator, gpus: Any = 1, hours: Any = 1, mfu: Any = DEFAULT_MFU) -> float:
    """The training FLOPs that `gpus` accelerators deliver in `hours` at a share `mfu` of their peak."""
    return (
        accelerator(gpu).peak_flops
        * fraction(mfu, "mfu")
        * whole(gpus, "gpus")
        * duration_in_hours(hours)
        * 3600
    )


def training_compute(
    flops: Any = None,
    *,
    gpu: str | Accelerator | None = None,
    gpus: Any = None,
    hours: Any = None,
    mfu: Any = None,
    price: Any = None,
    budget_usd: Any = None,
) -> float:
    """FLOPs as given, or from accelerators and hours or money; what would have no effect is refused."""
    if flops is not None and hours is not None:
        raise InvalidInput("give either ‹flops› or ‹gpu› with ‹hours›, not both.")
    if budget_usd is not None and not (flops is None and hours is None):
        raise InvalidInput("stands for ‹flops› or ‹hours›: give one of the three.", field="budget_usd")
    if gpu is None:
        for field, value in (
            ("gpus", gpus),
            ("hours", hours),
            ("budget_usd", budget_usd),
            ("mfu", mfu),
            ("price", price),
        ):
            if value is not None:
                raise InvalidInput("needs ‹gpu›, such as ‹gpu› H100.", field=field)
    if flops is not None:
        return compute(flops)
    if gpu is not None and budget_usd is not None:
        return flops_from_money(budget_usd, gpu, **given(mfu=mfu, price=price))
    if gpu is None or hours is None:
        raise InvalidInput(
            "compute is missing: give ‹flops› (such as 5e18), or ‹gpu› and ‹hours› "
            "(such as ‹gpu› H100 ‹gpus› 8 ‹hours› 3)."
        )
    return flops_from_gpus(gpu, hours=hours, **given(gpus=gpus, mfu=mfu))


class Memory(BaseModel):
    """Bytes needed to train, estimated: fp32 weights, gradients and moments; bf16 activations."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    weights: float
    gradients: float
    optimizer: float
    activations: float
    total: float
    device_memory: float
    fits_one_device: bool
    devices_needed: int  # with weights, gradients and moments sharded evenly; 0: never
    one_sequence: float  # activations of one sequence at a time

    def trainable_on(self, devices: int) -> bool:
        return self.fits_one_device or 0 < self.devices_needed <= devices


class Cost(BaseModel):
    """What a compute budget means on given hardware."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    flops: float
    gpu: str
    gpus: int
    mfu: float
    gpu_hours: float
    hours: float  # wall clock on `gpus` devices
    days: float
    price_per_gpu_hour: float
    usd: float
    memory: Memory | None = None

    def fits(self, card: str) -> str:
        """Whether training fits into memory, in words; `card` is what to call one accelerator."""
        if self.memory is None:
            return "unknown"
        needed = self.memory.devices_needed
        if self.memory.fits_one_device:
            return f"fits on one {card}"
        if needed == 0:
            one = with_article(self.gpu)
            if self.memory.one_sequence >= _USABLE * self.memory.device_memory:
                return f"does not fit on {one}, not even sharded with one sequence at a time"
            return f"does not fit on {one} even when sharded; train fewer sequences at a time"
        enough = "which you have" if needed <= self.gpus else f"more than your {self.gpus}"
        return f"does not fit on one {card}; sharded it needs {needed}, {enough}"


def cost(
    flops: Any,
    gpu: str | Accelerator = "H100",
    gpus: Any = 1,
    mfu: Any = DEFAULT_MFU,
    price: Any = None,
    architecture: Architecture | None = None,
    sequences: Any = 8,
    sequence_length: Any = 512,
) -> Cost:
    """GPU-hours, days and money for `flops`; with an architecture also the memory that training it needs."""
    total, card = compute(flops), accelerator(gpu)
    how_many, share = whole(gpus, "gpus"), fraction(mfu, "mfu")
    rate = card.price_per_hour if price is None else _price(price)
    gpu_hours = total / (card.peak_flops * share) / 3600
    hours = gpu_hours / how_many
    memory = None
    if architecture is not None:
        if not isinstance(architecture, Architecture):
            raise InvalidInput(
                f"must come from shape_for() or preset(); got {architecture!r}.", field="architecture"
            )
        memory = training_memory(
            architecture, card, whole(sequences, "sequences"), whole(sequence_length, "sequence_length")
        )
    return Cost.model_construct(
        flops=total,
        gpu=card.name,
        gpus=how_many,
        mfu=share,
        gpu_hours=gpu_hours,
        hours=hours,
        days=hours / 24,
        price_per_gpu_hour=rate,
        usd=gpu_hours * rate,
        memory=memory,
    )


def training_memory(
    shape: Architecture, card: Accelerator, sequences: int = 8, sequence_length: int = 512
) -> Memory:
    """Memory to train `shape` with `sequences` sequences at a time on each device."""
    weights, gradients, moments = (
        bytes_each * shape.params for bytes_each in (4 + 2, 4, 8)
    )  # fp32 + bf16 copy; fp32; 2 x fp32
    # Kept per token and layer for the backward pass: two norm inputs in fp32 and, in bf16, two norm outputs,
    # q, k, v, attention and output projections (8 d_model), gate, up and their product (3 d_ff).
    per_token_layer = 2 * 4 * shape.d_model + 2 * (8 * shape.d_model + 3 * shape.d_ff)

    def kept(tokens: int) -> float:
        logits = 2 * 4 * min(tokens, 2048) * shape.vocab_size  # a chunk of rows, with its gradient
        return tokens * shape.layers * per_token_layer + logits

    activations = kept(sequences * sequence_length)
    state, usable = weights + gradients + moments, _USABLE * card.memory_bytes
    room = usable - activations
    needed = max(1, -(-int(state) // max(int(room), 1))) if room > 0 else 0
    return Memory.model_construct(
        weights=weights,
        gradients=gradients,
        optimizer=moments,
        activations=activations,
        total=state + activations,
        device_memory=card.memory_bytes,
        fits_one_device=state + activations <= usable,
        devices_needed=needed,
        one_sequence=kept(sequence_length),
    )


# -- training, serving and data in one total
#
# With K members of N parameters, U unique tokens of which `owned` are there already, e epochs and T tokens to
# serve,
#
#     total = 6 K N U e  +  2 K N T (cost of a FLOP of serving / of training)  +  (U - owned) (a token's cost)
#
# Everything is counted in FLOPs of training. Without prices a FLOP of serving is worth as much as one of
# training; with them it costs what its GPU-hours cost, at the share of the peak speed that serving reaches.

_TRAINING_FLOPS, SERVING_FLOPS = 6.0, 2.0  # per parameter and token
_MOST_TOKENS = 1e24


@dataclass(frozen=True)
class TotalCost:
    """What counts next to the training, in FLOPs of training."""

    owned: float  # unique tokens that cost nothing
    serve_tokens: float = 0.0
    serve_rate: float = 1.0  # FLOPs of training that a FLOP of serving costs
    token_flops: float = 0.0  # FLOPs of training that a bought token costs
    usd_per_flop: float | None = None  # of training, where an accelerator is named

    @property
    def buys(self) -> bool:
        """Whether data can be bought."""
        return self.token_flops > 0

    def training(self, count: Any, params: Any, tokens: Any, epochs: Any) -> Any:
        return _TRAINING_FLOPS * count * params * tokens * epochs

    def serving(self, count: Any, params: Any) -> Any:
        """FLOPs of serving, as they are, whatever they cost."""
        return SERVING_FLOPS * count * params * self.serve_tokens

    def data(self, tokens: Any) -> Any:
        return self.token_flops * np.maximum(np.subtract(tokens, self.owned), 0.0)

    def total(self, count: Any, params: Any, tokens: Any, epochs: Any) -> Any:
        return self.use(count, params, tokens, epochs) + self.data(tokens)

    def use(self, count: Any, params: Any, tokens: Any, epochs: Any) -> Any:
        """Training and serving together, the data aside."""
        run = self.training(count, params, tokens, epochs)
        return run + self.serve_rate * self.serving(count, params)

    def largest(self, ceiling: Any, count: Any, tokens: Any, epochs: Any) -> Any:
        """The largest members that a total pays for; nothing where the data alone costs more."""
        rest = np.maximum(ceiling - self.data(tokens), 0.0)
        return rest / self.use(count, 1.0, tokens, epochs)

    def most_tokens(self, ceiling: float) -> float:
        """All tokens that a total could buy, those owned included."""
        return self.owned + (ceiling / self.token_flops if self.buys else 0.0)

    def usd(self, flops: float) -> float | None:
        return None if self.usd_per_flop is None else flops * self.usd_per_flop


def total_cost(
    owned: float,
    *,
    serve_tokens: Any = None,
    serve_price: Any = None,
    serve_mfu: Any = None,
    data_price: Any = None,
    card: Accelerator | None = None,
    mfu: Any = None,
    price: Any = None,
) -> TotalCost:
    """What was given, checked: prices need an accelerator, without which there is no money to count in."""
    rates = {"serve_price": serve_price, "serve_mfu": serve_mfu}
    _need(rates, serve_tokens is not None, "needs ‹serve_tokens›, such as 1e12.")
    money = "needs money to be counted in: name ‹gpu›, such as ‹gpu› H100, perhaps with ‹budget_usd›."
    _need({**rates, "data_price": data_price}, card is not None, money)
    served = 0.0 if serve_tokens is None else _amount(serve_tokens, "serve_tokens", "1e12")
    if served > _MOST_TOKENS:
        raise InvalidInput(
            f"must be at most {_MOST_TOKENS:.0e}; got {scientific(served)}.", field="serve_tokens"
        )
    if card is None:
        return TotalCost(owned, served)
    share = fraction(mfu or DEFAULT_MFU, "mfu")
    own = card.price_per_hour if price is None else _amount(price, "price", "2.50")
    usd = own / (3600 * card.peak_flops * share)
    if not own:
        _need(
            {"price": serve_price or data_price},
            False,
            "must be above zero for prices to be compared; got 0.",
        )
    rate = 1.0 if serve_mfu is None else share / fraction(serve_mfu, "serve_mfu")
    if serve_price is not None:
        rate *= _amount(serve_price, "serve_price", "1.20") / own
    token = 0.0 if data_price is None else number(data_price, "data_price", examples="2e-6") / usd
    return TotalCost(owned, served, rate, token, usd)


def _need(given: Mapping[str, Any], there: bool, sentence: str) -> None:
    """Refuse what was given and needs something that is not there."""
    for field, value in given.items():
        if value is not None and not there:
            raise InvalidInput(sentence, field=field)


def _amount(value: Any, field: str, example: str) -> float:
    """A number that may be zero."""
    found = (
        count(value, field, positive=False)
        if field == "serve_tokens"
        else number(value, field, positive=False, examples=example)
    )
    if found < 0:
        raise InvalidInput(f"must not be negative, such as {example}; got {found:g}.", field=field)
    return found


# -- from a plan to a run
#
# Learning rate, batch, schedule, optimiser and first weights are those of the runs behind the calibration: a
# weight decay means little without them. A learning rate or batch of one's own takes their place. What a plan
# cannot know, the corpus and the tokenizer, is left to be filled in, and what the calibration does not say to
# the trainer's defaults.


def run_config(plan: "Plan", corpus: str | None = "corpus", tokenizer: str = "tokenizer.json") -> str:
    """The run of a plan as the text of a TOML file for `planner train`; without a corpus, the trainer's."""
    shape, recipe = _shape(plan), plan.recipe
    if recipe is None:
        raise InvalidInput(
            f"calibration {plan.calibration} has no recipe (learning rate, batch, schedule), "
            f"so no run can be written; add one to the file or write the run yourself."
        )
    repeated = max(plan.epochs, 1.0)  # below one epoch a part of the corpus is used once
    rate, sequences, decay = recipe.learning_rate, recipe.batch_sequences, plan.weight_decay
    if plan.own_recipe is not None:
        own = plan.own_recipe
        rate, sequences, decay = own.learning_rate, _sequences(own.batch_tokens, recipe), own.weight_decay
    known = {name: getattr(recipe, name) for name in recipe.as_in_runs}
    values: dict[str, Any] = {
        "shape": {name: getattr(shape, name) for name in ("d_model", "layers", "heads", "d_ff")},
        "vocab_size": shape.vocab_size,
        "tied_embeddings": shape.tied_embeddings,
        **({} if corpus is None else {"corpus": corpus}),
        "tokenizer": tokenizer,
        "sequence_length": recipe.sequence_length,
        "unique_tokens": round(plan.unique_tokens),
        "epochs": repeated,
        "batch_size": sequences,
        "learning_rate": rate,
        "weight_decay": decay,
    }
    count = 1 if plan.members is None else plan.members.count
    if count > 1:
        values["seed"] = 0
    values |= {name: value for name, value in known.items() if value is not None}
    notes = {
        "shape": f"{short(shape.params, 4)} parameters",
        "corpus": "yours: a file, a folder or a pattern",
        "tokenizer": f"yours, of at most {shape.vocab_size:,} tokens",
        "batch_size": f"sequences, {sequences * recipe.sequence_length:,} tokens",
        "seed": f"0 to {count - 1}: one for each of the {count} members",
    }
    head = (
        f"# {short(plan.ud)} unique tokens, {scientific(plan.spent_flops)} FLOPs: "
        f"expected loss {plan.loss:.4f} ({plan.law} of {plan.calibration}).\n"
    )
    if count > 1:
        head += f"# One of {count} members: train it with {count} seeds and average their probabilities.\n"
    lines = [f"{name} = {_toml(value)}" for name, value in values.items()]
    said = [
        f"{line}  # {notes[name]}" if name in notes else line
        for name, line in zip(values, lines, strict=True)
    ]
    return head + "\n".join(said) + "\n"


def hf_config(plan: "Plan") -> dict[str, Any]:
    """The model of a plan as transformers' LlamaConfig has it."""
    recipe, config = plan.recipe, llama_config(_shape(plan))
    if recipe is not None:
        config["max_position_embeddings"] = recipe.sequence_length
        said = {"rms_norm_eps": recipe.norm_eps, "rope_theta": recipe.rope_theta}
        config |= {name: value for name, value in said.items() if value is not None}
    return config


def llama_config(shape: Architecture, norm_eps: float = 1e-5) -> dict[str, Any]:
    """A shape as transformers' LlamaConfig has it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.d_head,
        "tie_word_embeddings": shape.tied_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "rms_norm_eps": norm_eps,
    }


def save_run(plan: "Plan", path: str | os.PathLike[str]) -> None:
    """Write the run of a plan."""
    _write(Path(path), run_config(plan))


def save_hf_config(plan: "Plan", folder: str | os.PathLike[str]) -> None:
    """Write `config.json` into a folder, which is made if it is not there."""
    _write(Path(folder) / "config.json", json.dumps(hf_config(plan), indent=2) + "\n", make_folder=True)


def _shape(plan: "Plan") -> Architecture:
    if plan.architecture is None:
        raise InvalidInput(
            f"no model of {short(plan.params)} parameters can be built, so none can be written."
        )
    return plan.architecture


def _sequences(batch_tokens: float, recipe: "Recipe") -> int:
    """A batch of one's own in whole sequences."""
    length = recipe.sequence_length
    if batch_tokens % length:
        near = max(round(batch_tokens / length), 1) * length
        raise InvalidInput(
            f"must be whole sequences of {length:,} tokens for a run; got {batch_tokens:g}, and "
            f"{near:,} would do.",
            field="batch_tokens",
        )
    return round(batch_tokens / length)


def _write(path: Path, text: str, *, make_folder: bool = False) -> None:
    try:
        if make_folder:
            path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be written: {error.strerror or error}.") from None


def _toml(value: Any) -> str:
    """A value as TOML writes it: as JSON does, but for tables in a line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
