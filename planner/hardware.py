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
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, computed_field

from planner.inputs import (
    InvalidInput,
    compute,
    count,
    fraction,
    money,
    number,
    scientific,
    short,
    whole,
    with_article,
)
from planner.inputs import hours as in_hours

if TYPE_CHECKING:
    from planner.results import Plan

DEFAULT_VOCAB = 32_100
LARGEST, _SMALLEST = 5e12, 1e4  # parameters of a shape
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

    def describe(self) -> str:
        name = f" (the paper's {self.preset})" if self.preset else ""
        return (
            f"d_model {self.d_model:,}, {self.layers} layers, {self.heads} heads of {self.d_head}, "
            f"d_ff {self.d_ff:,}, vocabulary {self.vocab_size:,}: {short(self.params, 4)} parameters, "
            f"{short(self.non_embedding_params, 4)} without embeddings{name}"
        )


_COLUMNS = ("preset", "d_model", "layers", "heads", "d_head", "d_ff")
_STUDY = (
    ("15M", 192, 6, 3, 64, 768),
    ("25M", 256, 8, 4, 64, 1024),
    ("35M", 320, 9, 5, 64, 1280),
    ("50M", 384, 10, 6, 64, 1536),
    ("125M", 768, 12, 12, 64, 2048),
    ("250M", 1024, 14, 16, 64, 2816),
    ("500M", 1280, 20, 10, 128, 3584),
    ("750M", 1536, 24, 12, 128, 4096),
    ("1B", 1792, 26, 14, 128, 4864),
)
_VALIDATION = (
    ("280M", 1024, 17, 16, 64, 2816),
    ("350M", 1024, 24, 8, 128, 2816),
    ("390M", 1152, 20, 9, 128, 3072),
    ("720M", 1408, 25, 11, 128, 4096),
)
STUDY_SHAPES, VALIDATION_SHAPES = (tuple(row[0] for row in rows) for rows in (_STUDY, _VALIDATION))


@cache
def presets() -> dict[str, Architecture]:
    """The paper's nine study shapes and four validation shapes by name."""
    rows: list[dict[str, Any]] = [dict(zip(_COLUMNS, row, strict=True)) for row in _STUDY + _VALIDATION]
    return {row["preset"]: Architecture.model_construct(**row) for row in rows}


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
        alike = (known.vocab_size, known.tied_embeddings) == (vocab, tied_embeddings)
        if alike and abs(known.params / wanted - 1) <= TOLERANCE:
            return known
    if wanted > LARGEST:
        raise InvalidInput(
            f"must be at most {short(LARGEST)} for a model shape; got {short(wanted)}.", field="params"
        )
    return _search(wanted, vocab, tied_embeddings)


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


def _search(wanted: float, vocab: int, tied: bool) -> Architecture:
    embeddings = (1 if tied else 2) * vocab
    # Widths: fine steps for small models, steps of 64 and then 128 for large ones, as hardware likes them.
    steps = ((6, 64, 2), (64, 2048, 32), (2048, 8192, 128), (8192, 32769, 512))
    widths = np.concatenate([np.arange(*step) for step in steps])
    d = widths[:, None, None].astype(float)
    body = wanted - embeddings * d - d  # what layers and feed-forward have to fill
    ratios = np.array([8 / 3, 10 / 3, 4.0, 2.0, 6.0, 10.0])[:, None]
    # For each width and each d_ff / d ratio the depth that fills the body, rounded both ways; then d_ff
    # adjusted to hit N.
    depth = np.maximum(np.floor(body / (4 * d**2 + 3 * ratios * d**2 + 2 * d)) + np.array([0.0, 1.0]), 1)
    ideal_ff = (body / depth - 4 * d**2 - 2 * d) / (3 * d)
    step = np.where(d >= 1024, 128.0, np.where(d >= 256, 64.0, np.where(d >= 64, 16.0, 4.0)))
    d_ff = np.maximum(np.round(ideal_ff / step) * step, step)
    total = embeddings * d + depth * (4 * d**2 + 3 * d * d_ff + 2 * d) + d
    error = np.abs(total / wanted - 1)
    # Width over depth that models of this size usually have.
    sizes, aspects = np.log([1e6, 15e6, 125e6, 1e9, 7e9, 70e9]), [16.0, 32.0, 64.0, 68.0, 128.0, 104.0]
    aspect = np.interp(np.log(wanted), sizes, aspects)
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
        raise InvalidInput(
            f"no Llama-2 shape within {TOLERANCE:.0%} of {short(wanted)} parameters exists "
            f"with a vocabulary of {vocab:,}; a smaller vocabulary would do."
        )
    width = int(widths[best[0]])
    # Heads of 128 for wide models and 64 for the rest, as in the paper; less where the width asks for it or
    # would leave fewer than three heads.
    usual = [128, 64, 32, 16, 8] if width >= 1280 else [64, 32, 16, 8]
    d_head = next(size for size in [*usual, *range(64, 0, -2)] if width % size == 0 and width // size >= 3)
    return Architecture.model_construct(
        d_model=width,
        layers=int(depth[best]),
        heads=width // d_head,
        d_head=d_head,
        d_ff=int(d_ff[best]),
        vocab_size=vocab,
        tied_embeddings=tied,
    )


# -- what compute costs

DEFAULT_SEQUENCES, DEFAULT_LENGTH = 8, 512  # of a micro-batch
_USABLE = 0.92  # of the memory: the rest goes to the runtime and fragmentation
DEFAULT_MFU = 0.4


class Accelerator(NamedTuple):
    name: str
    peak_flops: float  # dense bf16/fp16 FLOP/s
    memory_bytes: float
    price_per_hour: float  # USD, indicative


_TABLE = (  # name, TFLOP/s, GB, USD/h
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
ACCELERATORS = {
    name: Accelerator(name, tflops * 1e12, memory * 1e9, price) for name, tflops, memory, price in _TABLE
}
_ALIASES = {
    "h100sxm": "H100",
    "h10080gb": "H100",
    "a10080gb": "A100",
    "a100sxm": "A100",
    "mi300": "MI300X",
}


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


_KNOWN = {_plain(name): name for name in ACCELERATORS}
_KNOWN |= {plain.removeprefix("rtx"): name for plain, name in _KNOWN.items()} | _ALIASES


def accelerator(name: str | Accelerator) -> Accelerator:
    """An accelerator by name, in any spelling: "h100", "H100 SXM", "rtx 4090"; one of your own is itself."""
    if isinstance(name, Accelerator):
        return name
    if isinstance(name, str) and _plain(name) in _KNOWN:
        return ACCELERATORS[_KNOWN[_plain(name)]]
    raise InvalidInput(f"must be one of {', '.join(ACCELERATORS)}; got {name!r}.", field="gpu")


# 8xH100, 8 x H100, 8 H100; H100x8, H100 x 8
_SEVERAL = (  # and which group is the name, which the number
    (re.compile(r"(\d+)(?:\s*[x×*]\s*|\s+)(.+)", re.I), 2, 1),
    (re.compile(r"(.+?)\s*[x×*]\s*(\d+)", re.I), 1, 2),
)


def _several(gpu: str | Accelerator) -> tuple[Accelerator, str | None]:
    """An accelerator by name and, where the name says it, how many."""
    try:
        return accelerator(gpu), None
    except InvalidInput:
        text = gpu.strip() if isinstance(gpu, str) else ""
        for form, name, several in _SEVERAL:
            if (found := form.fullmatch(text)) and _plain(found[name]) in _KNOWN:
                return accelerator(found[name]), found[several]
        raise


class Machines(NamedTuple):
    """Accelerators of one kind, as they are used."""

    card: Accelerator
    gpus: int
    mfu: float
    price: float  # USD per GPU-hour

    @classmethod
    def of(cls, gpu: str | Accelerator, gpus: Any = None, mfu: Any = None, price: Any = None) -> "Machines":
        """What was given, checked; "8xH100" says how many, too."""
        card, several = _several(gpu)
        if several is not None and gpus is not None:
            raise InvalidInput(f"is said by ‹gpu› {gpu!r} already: leave it out.", field="gpus")
        return cls(
            card,
            whole(several or 1 if gpus is None else gpus, "gpus"),
            DEFAULT_MFU if mfu is None else fraction(mfu, "mfu"),
            card.price_per_hour if price is None else _price(price),
        )

    @property
    def flops_per_hour(self) -> float:
        """Of one of them."""
        return self.card.peak_flops * self.mfu * 3600


def machines(
    gpu: str | Accelerator | None = None,
    gpus: Any = None,
    mfu: Any = None,
    price: Any = None,
    tflops: Any = None,
    memory: Any = None,
) -> Machines | None:
    """What was given, checked: an accelerator by name, or one of your own (peak TFLOP/s, GB, USD per hour).
    None: neither.
    """
    if tflops is None and memory is not None:
        raise InvalidInput("needs ‹tflops›: it is that of an accelerator of your own.", field="memory")
    if tflops is not None:
        if gpu is not None:
            raise InvalidInput("describes an accelerator of your own: leave out ‹gpu›.", field="tflops")
        if memory is None or price is None:
            raise InvalidInput(
                "needs ‹memory› (GB) and ‹price› (USD per hour) as well, such as 48 and 1.2.", field="tflops"
            )
        speed = number(tflops, "tflops", examples="400")
        size = number(memory, "memory", examples="48")
        gpu = Accelerator(f"{speed:g} TFLOP/s accelerator", speed * 1e12, size * 1e9, _price(price))
    if gpu is None:
        _refuse({"gpus": gpus, "mfu": mfu, "price": price}, "needs ‹gpu›, such as ‹gpu› H100.")
        return None
    return Machines.of(gpu, gpus, mfu, price)


def training_compute(
    flops: Any = None, hours: Any = None, budget_usd: Any = None, used: Machines | None = None
) -> float:
    """FLOPs as given, or from hours or money and the machines that are used."""
    if flops is not None and hours is not None:
        raise InvalidInput("give either ‹flops› or ‹gpu› with ‹hours›, not both.")
    if budget_usd is not None and not (flops is None and hours is None):
        raise InvalidInput("stands for ‹flops› or ‹hours›: give one of the three.", field="budget_usd")
    if flops is not None:
        return compute(flops)
    if used is None:
        _refuse({"hours": hours, "budget_usd": budget_usd}, "needs ‹gpu›, such as ‹gpu› H100.")
    elif hours is not None:
        return used.flops_per_hour * used.gpus * in_hours(hours)
    elif budget_usd is not None:
        usd = money(budget_usd, "budget_usd", examples="500, '$500' or 5k")
        if not used.price:
            raise InvalidInput("must be above zero for a budget in money; got 0.", field="price")
        return used.flops_per_hour * usd / used.price
    raise InvalidInput(
        "compute is missing: give ‹flops› (such as 5e18), or ‹gpu› and ‹hours› "
        "(such as ‹gpu› H100 ‹gpus› 8 ‹hours› 3)."
    )


def flops_from_gpus(
    gpu: str | Accelerator, gpus: Any = None, hours: Any = 1, mfu: Any = DEFAULT_MFU
) -> float:
    """The training FLOPs that `gpus` accelerators deliver in `hours` at a share `mfu` of their peak."""
    return training_compute(hours=hours, used=Machines.of(gpu, gpus, mfu))


def _price(value: Any, field: str = "price", examples: str = "2.50") -> float:
    return money(value, field, positive=False, examples=examples)


def _refuse(given: Mapping[str, Any], sentence: str) -> None:
    """Refuse what was given although it cannot have an effect."""
    for field, value in given.items():
        if value is not None:
            raise InvalidInput(sentence, field=field)


class TrainingMemory(BaseModel):
    """Bytes needed to train, estimated: Adam in fp32 (weights with a bf16 copy, gradients, moments) and bf16
    activations of the micro-batch, the sequences that one device trains at a time.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    weights: float
    gradients: float
    optimizer: float
    activations: float
    total: float
    one_sequence: float  # activations of one sequence at a time
    sequences: int = DEFAULT_SEQUENCES  # of the micro-batch, and their length
    sequence_length: int = DEFAULT_LENGTH


class Memory(TrainingMemory):
    """The same on devices of which it is known how much they hold."""

    device_memory: float
    fits_one_device: bool
    devices_needed: int  # with weights, gradients and moments sharded evenly; 0: never

    def trainable_on(self, devices: int) -> bool:
        """Sharded over so many, with fewer sequences at a time where it must be."""
        return self.fits_one_device or self.sequences_on(devices) >= 1

    def sequences_on(self, devices: int) -> int:
        """How many sequences at a time there is room for, sharded over so many."""
        sharded = (self.weights + self.gradients + self.optimizer) / devices
        return int(max(_USABLE * self.device_memory - sharded, 0.0) // self.one_sequence)


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
        assert self.memory is not None
        needed, one = self.memory.devices_needed, with_article(self.gpu)
        if self.memory.fits_one_device:
            return f"fits on one {card}"
        if (few := self.memory.sequences_on(self.gpus)) and not 0 < needed <= self.gpus:
            where = f"one {card}" if self.gpus == 1 else f"your {self.gpus} when sharded,"
            return f"fits on {where} with {few} sequence{'s' if few > 1 else ''} at a time"
        if self.memory.one_sequence >= _USABLE * self.memory.device_memory:
            return f"does not fit on {one}, not even sharded with one sequence at a time"
        if not needed:
            return f"does not fit on {one} even when sharded; train fewer sequences at a time"
        enough = "which you have" if needed <= self.gpus else f"more than your {self.gpus}"
        return f"does not fit on one {card}; sharded it needs {needed}, {enough}"


def cost(
    flops: Any,
    gpu: str | Accelerator = "H100",
    gpus: Any = None,
    mfu: Any = DEFAULT_MFU,
    price: Any = None,
    architecture: Architecture | None = None,
    sequences: Any = DEFAULT_SEQUENCES,
    sequence_length: Any = DEFAULT_LENGTH,
) -> Cost:
    """GPU-hours, days and money for `flops`; with an architecture also the memory that training it needs."""
    total, used = compute(flops), Machines.of(gpu, gpus, mfu, price)
    memory = None
    if architecture is not None:
        if not isinstance(architecture, Architecture):
            raise InvalidInput(
                f"must come from shape_for() or preset(); got {architecture!r}.", field="architecture"
            )
        memory = training_memory(
            architecture, used.card, whole(sequences, "sequences"), whole(sequence_length, "sequence_length")
        )
    gpu_hours = total / used.flops_per_hour
    hours = gpu_hours / used.gpus
    return Cost.model_construct(
        flops=total,
        gpu=used.card.name,
        gpus=used.gpus,
        mfu=used.mfu,
        gpu_hours=gpu_hours,
        hours=hours,
        days=hours / 24,
        price_per_gpu_hour=used.price,
        usd=gpu_hours * used.price,
        memory=memory,
    )


def largest_trainable(
    used: Machines, most: float, vocab: int, *, tied_embeddings: bool = False
) -> float | None:
    """The largest model up to `most` parameters that can be trained on these accelerators, sharded over all
    of them: by bisection. None where not even a small one can.
    """
    low, high = math.log(_SMALLEST), math.log(most)
    for _ in range(24):
        middle = 0.5 * (low + high)
        try:
            shape = shape_for(math.exp(middle), vocab, tied_embeddings=tied_embeddings)
            fits = training_memory(shape, used.card).trainable_on(used.gpus)
        except InvalidInput:  # too small for its vocabulary
            fits = True
        low, high = (middle, high) if fits else (low, middle)
    return None if low == math.log(_SMALLEST) else math.exp(low)


def memory_of(
    shape: Architecture, sequences: int = DEFAULT_SEQUENCES, sequence_length: int = DEFAULT_LENGTH
) -> TrainingMemory:
    """Memory to train `shape` with `sequences` sequences at a time."""
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
    return TrainingMemory.model_construct(
        weights=weights,
        gradients=gradients,
        optimizer=moments,
        activations=activations,
        total=weights + gradients + moments + activations,
        one_sequence=kept(sequence_length),
        sequences=sequences,
        sequence_length=sequence_length,
    )


def training_memory(
    shape: Architecture,
    card: Accelerator,
    sequences: int = DEFAULT_SEQUENCES,
    sequence_length: int = DEFAULT_LENGTH,
) -> Memory:
    """The same on each device of this kind, and whether it fits."""
    memory, usable = memory_of(shape, sequences, sequence_length), _USABLE * card.memory_bytes
    state, room = memory.total - memory.activations, usable - memory.activations
    return Memory.model_construct(
        **vars(memory),
        device_memory=card.memory_bytes,
        fits_one_device=memory.total <= usable,
        devices_needed=max(1, -(-int(state) // max(int(room), 1))) if room > 0 else 0,
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

    def serving(self, count: Any, params: Any) -> Any:
        """FLOPs of serving, as they are, whatever they cost."""
        return SERVING_FLOPS * count * params * self.serve_tokens

    def data(self, tokens: Any) -> Any:
        return self.token_flops * np.maximum(np.subtract(tokens, self.owned), 0.0)

    def total(self, count: Any, params: Any, tokens: Any, epochs: Any) -> Any:
        return self.use(count, params, tokens, epochs) + self.data(tokens)

    def use(self, count: Any, params: Any, tokens: Any, epochs: Any) -> Any:
        """Training and serving together, the data aside."""
        training = _TRAINING_FLOPS * count * params * tokens * epochs
        return training + self.serve_rate * self.serving(count, params)

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
    used: Machines | None = None,
    *,
    serve_tokens: Any = None,
    serve_price: Any = None,
    serve_mfu: Any = None,
    data_price: Any = None,
) -> TotalCost:
    """What was given, checked: prices need an accelerator, without which there is no money to count in."""
    rates = {"serve_price": serve_price, "serve_mfu": serve_mfu}
    if serve_tokens is None:
        _refuse(rates, "needs ‹serve_tokens›, such as 1e12.")
    if used is None:
        needed = "needs money to be counted in: name ‹gpu›, such as ‹gpu› H100, perhaps with ‹budget_usd›."
        _refuse({**rates, "data_price": data_price}, needed)
    served = 0.0 if serve_tokens is None else count(serve_tokens, "serve_tokens", positive=False)
    if served > _MOST_TOKENS:
        raise InvalidInput(
            f"must be at most {_MOST_TOKENS:.0e}; got {scientific(served)}.", field="serve_tokens"
        )
    if used is None:
        return TotalCost(owned, served)
    if not used.price and not (serve_price is None and data_price is None):
        raise InvalidInput("must be above zero for prices to be compared; got 0.", field="price")
    rate = 1.0 if serve_mfu is None else used.mfu / fraction(serve_mfu, "serve_mfu")
    if serve_price is not None:
        rate *= _price(serve_price, "serve_price", "1.20") / used.price
    usd = used.price / used.flops_per_hour
    token = 0.0 if data_price is None else money(data_price, "data_price", examples="2e-6") / usd
    return TotalCost(owned, served, rate, token, usd)


# -- from a plan to a run
#
# Learning rate, batch, schedule, optimiser and first weights are those of the runs behind the calibration: a
# weight decay means little without them. A learning rate or batch of one's own takes their place. What a plan
# cannot know, the corpus and the tokenizer, is left to be filled in, and what the calibration does not say to
# the trainer's defaults.


def run_length(
    unique_tokens: int, epochs: float, sequence_length: int, batch_size: int
) -> tuple[int, int, int]:
    """Sequences of an epoch, of the whole run, and its steps: a last batch that is not full is one, too."""
    chunks = unique_tokens // sequence_length
    rows = max(1, round(epochs * chunks))
    return chunks, rows, math.ceil(rows / batch_size)


def run_config(
    plan: "Plan",
    corpus: str | None = "corpus",
    tokenizer: str = "tokenizer.json",
    *,
    needs_recipe: bool = True,
) -> str:
    """The run of a plan as the text of a TOML file for `planner train`; without a corpus, the trainer's, and
    without a recipe, where none is needed, that, too.
    """
    shape = _shape(plan)
    shared, cell = _settings(plan, shape, corpus, tokenizer, needs_recipe)
    members = 1 if plan.members is None else plan.members.count
    sizes = ", ".join(f"{name} = {getattr(shape, name)}" for name in ("d_model", "layers", "heads", "d_ff"))
    lines = [
        _expected(plan),
        f"# One of {members} members: train it with {members} seeds and average their probabilities.",
        f"shape = {{ {sizes} }}  # {short(shape.params, 4)} parameters",
    ]
    if members == 1:
        del lines[1]
    else:
        cell = [*cell, ("seed", 0, f"0 to {members - 1}: one for each of the {members} members")]
    return "\n".join([*lines, *_toml([*shared[:4], *cell, *shared[4:]])]) + "\n"


def study_config(plan: "Plan", corpus: str | None = "corpus", tokenizer: str = "tokenizer.json") -> str:
    """All members of a plan, and one model distilled from them, as the text of a study for `planner calibrate
    ensemble`.
    """
    shape = _shape(plan)
    shared, cell = _settings(plan, shape, corpus, tokenizer)
    members = 1 if plan.members is None else plan.members.count
    axes = [("weight_decays" if name == "weight_decay" else name, *rest) for name, *rest in cell]
    size = ("params", round(shape.params), f"d_model {shape.d_model}, {shape.layers} layers")
    seeds = ("seeds", list(range(members)), "members differ in nothing else")
    lines = [
        _expected(plan),
        "# Trains all members, scores them together, and distils them: planner calibrate ensemble FILE",
        f'title = "{members} members of {short(shape.params)} parameters"',
        *("", "[recipe]", *_toml(shared)),
        *("", "[[grid]]", *_toml([size, *axes, seeds])),
        *("", "[distill]  # one model of the members' size that learns from their mean", "weight = 0.9"),
    ]
    return "\n".join(lines) + "\n"


_Row = tuple[str, Any, str]  # name, value (None: left to the trainer), and a note


def _expected(plan: "Plan") -> str:
    return (
        f"# {short(plan.ud)} unique tokens, {scientific(plan.spent_flops)} FLOPs: "
        f"expected loss {plan.loss:.4f} ({plan.law} of {plan.calibration})."
    )


def _settings(
    plan: "Plan", shape: Architecture, corpus: str | None, tokenizer: str, needs_recipe: bool = True
) -> tuple[list[_Row], list[_Row]]:
    """What the runs of a plan share, text first, and what is the plan's own but its size."""
    recipe, own = plan.recipe, plan.own_recipe
    text: list[_Row] = [
        ("vocab_size", shape.vocab_size, ""),
        ("tied_embeddings", shape.tied_embeddings, ""),
        ("corpus", corpus, "yours: a file, a folder or a pattern"),
        ("tokenizer", tokenizer, f"yours, of at most {shape.vocab_size:,} tokens"),
    ]
    cell: list[_Row] = [
        ("unique_tokens", round(plan.unique_tokens), ""),
        ("epochs", max(plan.epochs, 1.0), ""),  # below one epoch a part of the corpus is used once
        ("weight_decay", plan.weight_decay if own is None else own.weight_decay, ""),
    ]
    if recipe is None:
        if not needs_recipe:
            return text, cell
        raise InvalidInput(
            f"calibration {plan.calibration} has no recipe (learning rate, batch, schedule), "
            f"so no run can be written; add one to the file or write the run yourself."
        )
    rate, batch = recipe.learning_rate, float(recipe.batch_tokens)
    if own is not None:
        rate, batch = own.learning_rate, own.batch_tokens
    length = recipe.sequence_length
    if batch % length:
        near = max(round(batch / length), 1) * length
        raise InvalidInput(
            f"must be whole sequences of {length:,} tokens for a run; got {batch:g}, and {near:,} would do.",
            field="batch_tokens",
        )
    shared: list[_Row] = [
        *text,
        ("sequence_length", length, ""),
        ("batch_size", round(batch / length), f"sequences, {round(batch):,} tokens"),
        ("learning_rate", rate, ""),
        ("optimizer", "muon" if recipe.optimizer.startswith("Muon") else None, ""),
        ("schedule", "wsd" if recipe.schedule.startswith("WSD") else None, ""),
        *((name, getattr(recipe, name), "") for name in recipe.as_in_runs),
    ]
    return shared, cell


def _toml(rows: Sequence[_Row]) -> list[str]:
    """A line for each that is set; TOML writes these as JSON does."""
    lines = []
    for name, value, note in rows:
        if value is not None:
            line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
            lines.append(f"{line}  # {note}" if note else line)
    return lines


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


def _shape(plan: "Plan") -> Architecture:
    if plan.architecture is None:
        raise InvalidInput(
            f"no model of {short(plan.params)} parameters can be built, so none can be written."
        )
    return plan.architecture
