"""Inputs as people have them: text in bytes and words, accelerators and money as they are said, hints."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import Calibration, InvalidInput, Plan, compare, cost, crossover, frontier, plan, predict
from planner.cli import planner
from planner.hardware import ACCELERATORS, Machines
from planner.inputs import BYTES_PER_WORD, Limits, bits_per_byte, compute, in_tokens, money

STUDY = Path(__file__).parents[2] / "studies" / "micro" / "runs.csv"


def asked(*args: str) -> str:
    """What is printed for bad input: one sentence."""
    result = CliRunner().invoke(planner, args)
    assert result.exit_code == 2, result.output
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    return result.output[len("Error: ") : -1]


def answered(*args: str) -> Plan:
    result = CliRunner().invoke(planner, [*args, "--json"])
    assert result.exit_code == 0, result.output
    return Plan.model_validate(json.loads(result.output))


# -- bytes, words, bits per byte


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("433MB", 433e6 / 4),
        ("433 mb", 433e6 / 4),
        ("1.5 GB", 1.5e9 / 4),
        ("1 GiB", 2**30 / 4),
        ("2 TB", 2e12 / 4),
        ("400000000 bytes", 1e8),
        ("400 million bytes", 1e8),
        ("10M words", 1e7 * BYTES_PER_WORD / 4),
        ("1,000,000 words", 1e6 * BYTES_PER_WORD / 4),
        ("1B words", 1e9 * BYTES_PER_WORD / 4),
    ],
)
def test_the_length_of_a_text_becomes_tokens(text: str, tokens: float) -> None:
    assert in_tokens(text, 4.0) == pytest.approx(tokens)
    assert in_tokens([text, 7], 4.0) == [pytest.approx(tokens), 7]
    with pytest.raises(InvalidInput, match=r"bytes_per_token, such as 4\.0, says how many tokens"):
        in_tokens(text, None)


@given(st.floats(1.0, 1e6), st.sampled_from(["kB", "MB", "GB", " bytes", " words"]), st.floats(0.5, 20))
def test_tokens_are_proportional_to_the_text(size: float, unit: str, per_token: float) -> None:
    one, twice = in_tokens(f"{size!r}{unit}", per_token), in_tokens(f"{2 * size!r}{unit}", per_token)
    assert twice == pytest.approx(2 * one)
    assert in_tokens(f"{size!r}{unit}", 2 * per_token) == pytest.approx(one / 2)


@given(
    st.text(max_size=16) | st.from_regex(r"[0-9.]{0,4} ?[kMGTB]?i?(b|B|bytes|words|tokens)", fullmatch=True)
)
def test_any_text_is_left_alone_read_or_refused(text: str) -> None:
    try:
        found = in_tokens(text, 4.0)
    except InvalidInput as error:
        assert str(error).startswith("ud must ")
    else:
        assert found == text or math.isfinite(found)


def test_bits_per_byte_are_those_of_real_trainings() -> None:
    """The trainer divides the nats of a text by its bytes, without any figure of bytes per token."""
    known = Calibration.load("micro")
    with STUDY.open() as file:
        runs = list(csv.DictReader(file))
    assert len(runs) > 200
    for run in runs:
        converted = bits_per_byte(float(run["loss"]), known.bytes_per_token)
        assert converted == pytest.approx(float(run["bits_per_byte"]), rel=1e-5)


@given(st.floats(0.1, 12.0), st.integers(1, 10**7), st.floats(0.5, 20.0))
def test_nats_and_bits_per_byte_are_one_amount_of_information(
    loss: float, tokens: int, per_token: float
) -> None:
    """Independently: a text of so many tokens and bytes takes as many bits to code by either figure."""
    by_tokens = math.log2(math.exp(loss)) * tokens
    found = bits_per_byte(loss, per_token)
    assert found is not None
    assert found * (tokens * per_token) == pytest.approx(by_tokens, rel=1e-9)
    assert bits_per_byte(loss, None) is None


def test_plans_and_predictions_say_bits_per_byte() -> None:
    assumed, given_too = plan("433MB", 1e18), plan("433MB", 1e18, bytes_per_token="4.5")
    assert assumed.bytes_per_token == 4.03
    assert assumed.ud == pytest.approx(433e6 / 4.03)
    assert given_too.ud == pytest.approx(433e6 / 4.5)
    expected = predict(assumed.params, "433MB", assumed.epochs, weight_decay=assumed.weight_decay)
    for found in (assumed, given_too, expected):
        assert found.bytes_per_token is not None
        assert found.bits_per_byte == pytest.approx(math.log2(math.e) * found.loss / found.bytes_per_token)
    assert expected.bits_per_byte == pytest.approx(assumed.bits_per_byte)


def test_every_call_takes_a_text_by_its_length() -> None:
    tokens = 433e6 / 4
    assert compare("433MB", 1e18, bytes_per_token=4).ud == pytest.approx(tokens)
    assert crossover("433MB", bytes_per_token=4).ud == pytest.approx(tokens)
    assert frontier("433MB", [1e18], bytes_per_token=4).ud[0] == pytest.approx(tokens)
    assert predict("100M", ["433MB", "433MB"], bytes_per_token=4).ud[1] == pytest.approx(tokens)
    with pytest.raises(InvalidInput, match=r"^bytes_per_token must be above zero"):
        plan("433MB", 1e18, bytes_per_token=0)
    with pytest.raises(InvalidInput, match=r"^bytes_per_token must be between"):
        plan("433MB", 1e18, bytes_per_token=1e9)


def test_every_shipped_calibration_says_its_bytes_per_token() -> None:
    from planner.calibration import shipped_names

    for name in shipped_names():
        known = Calibration.load(name)
        if known.bytes_per_token is None:
            assert name == "dolma-olmo3"  # nobody has counted those of its tokenizer
            continue
        assert 2 < known.bytes_per_token < 6
        assert "bytes_per_token" not in known.model_copy(update={"bytes_per_token": None}).model_dump()


# -- spellings


def test_unique_tokens_by_other_names() -> None:
    made = answered("plan", "--ud", "250M", "--flops", "5e18")
    for flag in ("--tokens", "--unique-tokens"):
        assert answered("plan", flag, "250M", "--flops", "5e18") == made
    assert asked("plan", "--tokens", "many", "--flops", "5e18").startswith("--tokens must be a number")
    for call in (plan, compare, crossover, frontier):
        with pytest.raises(TypeError, match=rf"{call.__name__}\(\) has no 'tokens'; did you mean 'ud'\?"):
            call(tokens=250e6)
    with pytest.raises(TypeError, match="did you mean 'flops'"):
        plan(250e6, flosp=5e18)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'vocab_size'"):
        plan(250e6, 5e18, vocab=50257)  # type: ignore[call-arg]


def test_mistyped_commands_and_options_get_a_hint() -> None:
    assert asked("paln") == "No such command 'paln'; did you mean plan?"
    assert asked("calibrate", "swep") == "No such command 'swep'; did you mean sweep?"
    assert "commands are compare, cost" in asked("xyzzy")
    flosp = asked("plan", "--ud", "250M", "--flosp", "5e18")
    assert flosp == "No such option --flosp; did you mean --flops?"
    assert asked("plan", "--flops", "5e18").startswith("Missing option '--ud'")


def test_the_vocabulary_has_one_spelling_and_the_old_one() -> None:
    for flag in ("--vocab", "--vocab-size"):
        result = CliRunner().invoke(planner, ["shape", "556M", flag, "50257", "--json"])
        assert json.loads(result.output)["vocab_size"] == 50257
        assert asked("shape", "556M", flag, "1").startswith(f"{flag} must be at least 2")
        for command in (["plan"], ["cost"], ["calibrate", "fit"], ["calibrate", "design"]):
            assert flag in CliRunner().invoke(planner, [*command, "--help"]).output


# -- compute


@pytest.mark.parametrize(
    "text", ["8xH100", "8 x h100", "8×H100", "8*H100", "8 H100", "H100x8", "H100 SXM x 8"]
)
def test_several_accelerators_in_one_word(text: str) -> None:
    assert Machines.of(text) == Machines.of("H100", 8)
    assert cost(1e18, text).hours == cost(1e18, "H100", 8).hours


@given(st.sampled_from(sorted(ACCELERATORS)), st.integers(1, 10_000), st.sampled_from(["x", " x ", "×", "*"]))
def test_any_accelerator_any_number(name: str, several: int, times: str) -> None:
    for text in (f"{several}{times}{name}", f"{name.lower()}{times}{several}"):
        assert Machines.of(text) == Machines.of(name, several)


def test_accelerators_that_are_none() -> None:
    for text in ("8xabacus", "RTX-9999", "x8", "8x", "H100x0.5"):
        with pytest.raises(InvalidInput, match=r"^gpu must be one of"):
            Machines.of(text)
    with pytest.raises(InvalidInput, match=r"^gpus must be above zero"):
        Machines.of("0xH100")
    with pytest.raises(InvalidInput, match=r"^gpus is said by gpu '8xH100' already"):
        plan(250e6, gpu="8xH100", gpus=8, hours=1)


@pytest.mark.parametrize(
    ("text", "usd"),
    [
        ("$500", 500),
        ("US$ 500", 500),
        ("5k", 5000),
        ("$5k", 5000),
        ("$1.5M", 1.5e6),
        ("500 USD", 500),
        ("1,000 dollars", 1000),
        (500, 500),
    ],
)
def test_money(text: object, usd: float) -> None:
    assert money(text, "budget_usd") == usd


@given(st.text(max_size=12))
def test_any_text_is_money_or_an_error(text: str) -> None:
    try:
        assert money(text, "budget_usd") > 0
    except InvalidInput as error:
        assert str(error).startswith("budget_usd must ")


def test_budgets_in_money() -> None:
    made = answered("plan", "--ud", "250M", "--gpu", "8xH100", "--budget", "$500")
    assert made.flops == pytest.approx(ACCELERATORS["H100"].peak_flops * 0.4 * 3600 * 500 / 3)
    assert made.cost is not None
    assert made.cost.gpus == 8
    refused = asked("plan", "--ud", "250M", "--gpu", "H100", "--budget", "500 EUR")
    assert refused.endswith("got '500 EUR'; it is in US dollars.")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("$500", "money belongs into budget_usd, with gpu"),
        ("500 USD", "money belongs into budget_usd, with gpu"),
        ("8xH100", "accelerators belong into gpu, with hours"),
        ("3h", "a time belongs into hours, with gpu"),
        ("2 days", "a time belongs into hours, with gpu"),
        ("5k", "a count of tokens belongs into ud"),
        ("inf", "without a ceiling it is flops unlimited"),
        ("unlimited", "only a plan can be without a ceiling"),
    ],
)
def test_what_is_no_compute_is_sent_where_it_belongs(text: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=hint):
        compute(text)


def test_unlimited_compute_is_that_of_the_lowest_loss() -> None:
    free = answered("plan", "--ud", "250M", "--flops", "unlimited", "--weight-decay", "0.1")
    for times in (0.5, 0.8, 1.25, 2.0):  # no other budget that is spent whole does better
        spent = plan(250e6, times * free.flops, weight_decay=0.1, spend="all")
        assert spent.loss >= free.loss - 1e-9
    assert free.spent_flops == pytest.approx(free.flops)
    for more in (["--hours", "3", "--gpu", "H100"], ["--serve-tokens", "1T"]):
        refused = asked("plan", "--ud", "250M", "--flops", "unlimited", *more)
        assert refused == f"--flops without a ceiling asks for the lowest loss: leave out {more[0]}."
    assert "cannot be spent whole" in asked("plan", "--ud", "250M", "--flops", "unlimited", "--spend", "all")


# -- sizes and epochs as they were typed


@pytest.mark.parametrize("epochs", [10, "10", 2.5, 0.5, 1])
def test_epochs_can_be_settled(epochs: float | str) -> None:
    made = plan(250e6, 5e18, epochs=epochs)
    assert made.epochs == pytest.approx(float(epochs))
    whole = float(epochs) == 2.5
    assert Limits.of(epochs=epochs) == Limits.of(
        min_epochs=epochs, max_epochs=epochs, epochs="continuous" if whole else "whole"
    )


def test_settled_epochs_on_the_command_line() -> None:
    assert answered("plan", "--ud", "250M", "--flops", "5e18", "--epochs", "10").epochs == 10
    both = asked("plan", "--ud", "250M", "--flops", "5e18", "--epochs", "10", "--min-epochs", "2")
    assert both == "--epochs goes without --min-epochs and --max-epochs."
    some = asked("plan", "--ud", "250M", "--flops", "5e18", "--epochs", "some")
    assert some == "--epochs must be 'whole', 'continuous' or a number such as 10; got 'some'."


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.integers(100, 999), st.sampled_from([1e5, 1e6, 1e7]), st.sampled_from([1e17, 3e18, 1e20, 1e21]))
def test_a_size_stays_the_number_typed(digits: int, unit: float, flops: float) -> None:
    made = plan(250e6, flops, params=digits * unit)
    assert made.params == digits * unit
    assert made.spent_flops <= flops * (1 + 1e-9)
    assert made.spent_flops == pytest.approx(6 * made.params * made.tokens, rel=6e-3)


def test_a_size_as_a_plan_says_it() -> None:
    best, said = plan(250e6, 5e18), plan(250e6, 5e18, params="556M")
    assert (said.params, said.epochs) == (556e6, best.epochs)
    assert said.loss == pytest.approx(best.loss, abs=1e-4)
    shown = CliRunner().invoke(planner, ["plan", "--ud", "50M", "--params", "8B", "--flops", "1e21"]).output
    assert "8B" in shown
    assert "8.01B" not in shown


# -- for those who train and serve it


def test_memory_says_its_micro_batch() -> None:
    bare, billed = plan(250e6, 5e18), plan(250e6, 5e18, gpu="H100")
    assert bare.memory is not None
    assert billed.cost is not None
    assert billed.cost.memory is not None
    assert (bare.memory.sequences, bare.memory.sequence_length) == (8, 512)
    assert billed.cost.memory.total == bare.memory.total
    assert bare.architecture is not None
    state = 18 * bare.architecture.params  # fp32 weights, a bf16 copy, gradients and two moments
    assert bare.memory.total == pytest.approx(state + bare.memory.activations)
    small = plan("131k", 8e11, calibration="micro").memory
    assert small is not None
    assert small.sequence_length == 128


@pytest.mark.parametrize("epochs", ["whole", "continuous"])
def test_smaller_models_take_more_epochs_for_the_same_loss(epochs: str) -> None:
    made = plan(250e6, 1e18, weight_decay=0.1, epochs=epochs)
    assert [one.smaller_by for one in made.smaller_models] == [0.1, 0.3, 0.5]
    law = Calibration.load(None).setting(0.1).law("additive_4p")
    for one in made.smaller_models:
        assert one.params == pytest.approx((1 - one.smaller_by) * made.params)
        assert one.flops == pytest.approx(6 * one.params * made.ud * one.epochs)
        assert one.compute_ratio == pytest.approx(one.flops / made.spent_flops)
        assert one.loss == pytest.approx(float(law.loss(one.params, made.ud, one.epochs)))
        longer = [float(law.loss(one.params, made.ud, passes)) for passes in range(1, 200)]
        step = 1.0 if epochs == "whole" else 0.01 * one.epochs
        if one.same_loss:
            assert one.loss <= made.loss + 1e-9
            assert float(law.loss(one.params, made.ud, one.epochs - step)) > made.loss  # no fewer would do
        else:
            assert min(longer) > made.loss
            assert one.loss <= min(longer) + 1e-9
    assert plan(250e6, 5e20, serve_tokens=1e10).smaller_models == []
