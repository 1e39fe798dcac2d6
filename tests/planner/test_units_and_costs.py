"""Numbers as people write them, and what compute costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInput, cost, flops_from_gpus, preset
from planner.hardware import ACCELERATORS, accelerator, training_memory
from planner.inputs import (
    compute,
    count,
    dollars,
    duration,
    epochs,
    figure,
    fraction,
    hours,
    number,
    scientific,
    short,
    signed,
    size,
    whole,
    with_article,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("250M", 250e6),
        ("0.25B", 250e6),
        ("250e6", 250e6),
        ("250_000_000", 250e6),
        ("250,000,000", 250e6),
        (" 1.5 b tokens", 1.5e9),
        ("3T", 3e12),
        ("2 million", 2e6),
        ("1e9 tokens", 1e9),
        (".5B", 5e8),
        ("64k", 64e3),
        (7, 7.0),
        (np.float64(2e8), 2e8),
        (np.int64(5), 5.0),
    ],
)
def test_counts(text: object, value: float) -> None:
    assert count(text, "ud") == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e18", 5e18),
        ("5 EFLOP", 5e18),
        ("5EFLOPs", 5e18),
        ("2 ZFLOP", 2e21),
        ("0.1 PFLOP/s-days", 8.64e18),
        ("1 PFLOP-day", 8.64e19),
        ("3 TFLOP/s hours", 3e12 * 3600),
        ("3 PF-days", 3 * 8.64e19),
        ("3 petaflop/s-days", 3 * 8.64e19),
        ("5×10^18", 5e18),
        ("5 * 10**18", 5e18),
        ("1.5·10¹⁸ FLOPs", 1.5e18),
        ("10^18", 1e18),
        (5e18, 5e18),
    ],
)
def test_compute(text: object, value: float) -> None:
    assert compute(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "bad",
    [
        "abc",
        "1.2.3",
        "",
        "5X",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "-5M",
        "0",
        0,
        -1.0,
        math.nan,
        math.inf,
        None,
        True,
        [1.0],
        {},
        10**400,
    ],
)
def test_what_is_not_a_count_is_named(bad: object) -> None:
    for parse in (count, compute):
        with pytest.raises(InvalidInput) as caught:
            parse(bad, "ud")
        message = str(caught.value)
        assert message.startswith("ud must be")
        assert "such as" in message
        assert "got" in message
        assert "\n" not in message


@given(st.text(max_size=20))
def test_any_text_is_a_number_or_an_error(text: str) -> None:
    for parse in (count, compute, hours, number, fraction, whole):
        try:
            assert math.isfinite(parse(text, "field"))
        except InvalidInput as error:
            assert str(error).startswith("field must be")


@given(st.floats(1.0, 9e14))
def test_short_reads_back(value: float) -> None:
    assert count(short(value), "x") == pytest.approx(value, rel=6e-3)
    assert float(scientific(value)) == pytest.approx(value, rel=6e-3)


def test_short_examples() -> None:
    assert [short(v) for v in (556e6, 3.33e9, 999.9e6, 250e3, 12.0)] == ["556M", "3.33B", "1B", "250k", "12"]
    assert scientific(5e18) == "5e18"
    assert short(1e15) == "1e15"
    assert [epochs(v) for v in (1, 6, 2.354, 0.5, 180, 1800.0)] == [
        "1 epoch",
        "6 epochs",
        "2.35 epochs",
        "0.5 epochs",
        "180 epochs",
        "1,800 epochs",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("3h", 3),
        ("1.5 hours", 1.5),
        ("90 min", 1.5),
        ("2 days", 48),
        ("1d", 24),
        ("1 month", 720),
        (0.5, 0.5),
    ],
)
def test_hours(text: object, value: float) -> None:
    assert hours(text) == pytest.approx(value)
    assert flops_from_gpus("H100", hours=text) == pytest.approx(flops_from_gpus("H100", hours=value))


@pytest.mark.parametrize(
    ("parse", "text", "meant"),
    [(compute, "2,5e18", "2.5e18"), (count, "2,5B", "2.5B"), (hours, "1,5 h", "1.5 h")],
)
def test_a_decimal_comma_is_refused_with_what_would_do(parse, text: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=rf"got '{text}'; the decimal sign is a point: {meant}\.$"):
        parse(text, "field")


def test_a_vocabulary_may_be_given_in_thousands() -> None:
    assert whole("128k", "vocab_size") == 128_000
    assert whole("50,257", "vocab_size") == 50_257
    with pytest.raises(InvalidInput, match="must be a whole number"):
        whole("0.5", "vocab_size")


def test_amounts_are_said_without_powers_of_ten() -> None:
    assert [size(b) for b in (4.04e12, 999.9e9, 16.4e9, 5e5)] == ["4.04 TB", "1 TB", "16.4 GB", "500 kB"]
    assert [figure(v) for v in (1.69e-7, 0.25, 161.2, 12345)] == ["less than 0.01", "0.25", "161", "12,345"]
    assert [dollars(v) for v in (0.0, 1e-9, 999.99)] == ["about $0.00", "less than a cent", "about $999.99"]
    assert [dollars(v) for v in (999.996, 1547.09)] == ["about $1,000", "about $1,547"]
    assert [duration(s) for s in (1e-5, 45, 5400)] == ["less than 1 s", "45 s", "1.5 h"]
    assert [signed(v) for v in (-1e-9, 0.25)] == ["0.000", "+0.250"]
    names = [with_article(name) for name in ("H100", "A100", "RTX-4090", "B200", "T4", "TPU-v4")]
    assert names == ["an H100", "an A100", "an RTX-4090", "a B200", "a T4", "a TPU-v4"]


def test_fractions_and_whole_numbers() -> None:
    assert fraction("40%", "mfu") == fraction(0.4, "mfu") == 0.4
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        fraction(1.5, "mfu")
    with pytest.raises(InvalidInput, match="whole number such as 8"):
        whole(2.5, "gpus")


def test_gpu_hours_and_flops_are_inverse() -> None:
    flops = flops_from_gpus("H100", 8, 3, 0.4)
    assert flops == pytest.approx(989e12 * 0.4 * 8 * 3 * 3600)
    bill = cost(flops, "H100", 8, 0.4, price=2.0)
    assert (bill.hours, bill.gpu_hours, bill.days, bill.usd) == pytest.approx((3, 24, 0.125, 48))


def test_accelerators_by_any_spelling() -> None:
    assert accelerator("h100") is accelerator(" H100 ") is ACCELERATORS["H100"]
    assert accelerator("A6000") is ACCELERATORS["RTX-A6000"]
    assert accelerator("A100-80GB") is ACCELERATORS["A100"]
    assert accelerator("H100 SXM") is ACCELERATORS["H100"]
    assert accelerator("rtx 4090") is accelerator("RTX4090")
    with pytest.raises(InvalidInput, match=r"gpu must be one of B200, .*'abacus'"):
        accelerator("abacus")


def test_memory_tells_what_fits() -> None:
    small, large = (training_memory(preset(name), ACCELERATORS["RTX-4090"]) for name in ("125M", "1B"))
    assert small.fits_one_device
    assert small.devices_needed == 1
    assert not large.fits_one_device
    assert large.devices_needed >= 2
    assert large.total == pytest.approx(large.weights + large.gradients + large.optimizer + large.activations)
    assert training_memory(preset("1B"), ACCELERATORS["B200"]).fits_one_device
    hopeless = training_memory(preset("1B"), ACCELERATORS["T4"], sequences=4096)
    assert hopeless.devices_needed == 0
    assert not hopeless.fits_one_device


@pytest.mark.parametrize(
    ("field", "kwargs"),
    [("price", {"price": -1}), ("mfu", {"mfu": 0}), ("gpus", {"gpus": 0}), ("flops", {"flops": "x"})],
)
def test_bad_costs_are_named(field: str, kwargs: dict) -> None:
    with pytest.raises(InvalidInput, match=rf"^{field} must"):
        cost(**{"flops": 1e18, **kwargs})


def test_a_plan_in_python_has_its_cost() -> None:
    from planner import plan

    made = plan("250M", "5e18", gpu="H100", gpus=8, mfu="35%", price=2)
    assert made.cost == cost(5e18, "H100", 8, 0.35, 2, made.architecture)
    free, said = plan("250M", "5e18"), {"budget", "warnings"}  # of hours and money, and of idle GPUs
    assert free.model_dump(exclude=said) == made.model_copy(update={"cost": None}).model_dump(exclude=said)
    assert "all of your" in made.budget
    assert "on 8 x H100" in made.budget
    by_the_hour = plan(ud=250e6, gpu="H100", gpus=8, hours=20, spend="all")
    assert by_the_hour.flops == flops_from_gpus("H100", 8, 20)
    assert by_the_hour.cost is not None
    assert by_the_hour.cost.hours == pytest.approx(20 * by_the_hour.spent_flops / by_the_hour.flops)


def test_help_shows_every_limit() -> None:
    import inspect

    from planner import compare, crossover, frontier, plan

    for call in (plan, compare, frontier, crossover):
        assert {"epochs", "min_params", "max_params", "max_epochs"} <= set(inspect.signature(call).parameters)
