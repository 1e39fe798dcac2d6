r"""What a model costs in all: its training, the tokens that it is going to serve, and the data bought for it.

With K members of N parameters, U unique tokens of which `owned` are there already, e epochs and T tokens to
serve,

    total = 6 K N U e  +  2 K N T (cost of a FLOP of serving / of training)  +  (U - owned) (cost of a token)

Everything is counted in FLOPs of training. Without prices a FLOP of serving is worth as much as one of
training; with them it costs what its GPU-hours cost, at the share of the peak speed that serving reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner import units
from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.costs import DEFAULT_MFU, Accelerator
from planner.errors import InvalidInput

SERVING_FLOPS = 2.0  # per parameter and token generated or read
_MOST_TOKENS = 1e24


@dataclass(frozen=True)
class Bill:
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
        return FLOPS_PER_PARAM_TOKEN * count * params * tokens * epochs

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


def bill(
    owned: float,
    *,
    serve_tokens: Any = None,
    serve_price: Any = None,
    serve_mfu: Any = None,
    data_price: Any = None,
    card: Accelerator | None = None,
    mfu: Any = None,
    price: Any = None,
) -> Bill:
    """What was given, checked: prices need an accelerator, without which there is no money to count in."""
    rates = {"serve_price": serve_price, "serve_mfu": serve_mfu}
    _need(rates, serve_tokens is not None, "needs ‹serve_tokens›, such as 1e12.")
    money = "needs money to be counted in: name ‹gpu›, such as ‹gpu› H100, perhaps with ‹budget_usd›."
    _need({**rates, "data_price": data_price}, card is not None, money)
    served = 0.0 if serve_tokens is None else _amount(serve_tokens, "serve_tokens", "1e12")
    if served > _MOST_TOKENS:
        raise InvalidInput(
            f"must be at most {_MOST_TOKENS:.0e}; got {units.scientific(served)}.", field="serve_tokens"
        )
    if card is None:
        return Bill(owned, served)
    share = units.fraction(mfu or DEFAULT_MFU, "mfu")
    own = card.price_per_hour if price is None else _amount(price, "price", "2.50")
    usd = own / (3600 * card.peak_flops * share)
    if not own:
        _need(
            {"price": serve_price or data_price},
            False,
            "must be above zero for prices to be compared; got 0.",
        )
    rate = 1.0 if serve_mfu is None else share / units.fraction(serve_mfu, "serve_mfu")
    if serve_price is not None:
        rate *= _amount(serve_price, "serve_price", "1.20") / own
    token = 0.0 if data_price is None else units.number(data_price, "data_price", examples="2e-6") / usd
    return Bill(owned, served, rate, token, usd)


def _need(given: Mapping[str, Any], there: bool, sentence: str) -> None:
    """Refuse what was given and needs something that is not there."""
    for field, value in given.items():
        if value is not None and not there:
            raise InvalidInput(sentence, field=field)


def _amount(value: Any, field: str, example: str) -> float:
    """A number that may be zero."""
    found = (
        units.count(value, field, positive=False)
        if field == "serve_tokens"
        else units.number(value, field, positive=False, examples=example)
    )
    if found < 0:
        raise InvalidInput(f"must not be negative, such as {example}; got {found:g}.", field=field)
    return found
