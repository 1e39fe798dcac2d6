"""What compute costs: FLOPs <-> accelerators x hours, money, and whether training fits in memory.

Peak speeds are the vendors' dense bf16 (or fp16) figures. Prices are indicative on-demand prices per hour in
US dollars; they move, so give your own. MFU is the share of the peak that training really reaches: 0.4 is a
fair guess for models of 100M and more, small models reach less.
"""

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from planner.errors import InvalidInput
from planner.records import made
from planner.shapes import Architecture
from planner.units import compute, fraction, number, whole, with_article
from planner.units import hours as duration_in_hours

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


def given(**options: Any) -> dict[str, Any]:
    """Those options that were given."""
    return {name: value for name, value in options.items() if value is not None}


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
    return made(
        Cost,
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
    return made(
        Memory,
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
