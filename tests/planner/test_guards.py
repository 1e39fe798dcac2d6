"""What a plan warns of: another vocabulary or corpus, losses that mean nothing, shapes that nobody trains."""

from __future__ import annotations

import math

from click.testing import CliRunner

from planner import Calibration, compare, plan
from planner.cli import planner


def said(*args: str) -> str:
    return " ".join(CliRunner().invoke(planner, list(args)).output.split())


def test_another_vocabulary_is_warned_of() -> None:
    warning, _ = plan(250e6, 1e18, vocab_size=50_257).warnings
    assert "fitted with a vocabulary of 32,100 and not 50,257" in warning
    assert [one.code for one in plan(250e6, 1e18, vocab_size=32_100).warnings] == ["corpus"]


def test_the_corpus_is_said_once() -> None:
    for calibration, corpus in (("fineweb-llama2", "FineWeb sample-10BT"), ("c4-gpt2", "C4")):
        made = plan(250e6, 1e18, calibration=calibration)
        assert sum(f"Fitted on {corpus}," in warning for warning in made.warnings) == 1
    nameless = Calibration.load().model_copy(update={"corpus": ""})
    assert "the runs of fineweb-llama2" in plan(250e6, 1e18, calibration=nameless).warnings[-1]


def test_losses_worse_than_uniform_are_numbers_in_json_and_words_in_tables() -> None:
    made = plan(180e6, 2.3e20)
    assert made.uniform_loss == math.log(32_100)
    worst = max(row.expected_loss for row in made.other_laws)
    assert worst > 40
    words = said("plan", "--ud", "180M", "--flops", "2.3e20", "--why")
    assert "worse than uniform" in words
    assert f"{worst:.4f}" not in words
    assert max(row.expected_loss for row in compare(180e6, 2.3e20).rows) > 40
    assert "worse than uniform" in said("compare", "--ud", "180M", "--flops", "2.3e20")
    asked = ("--ud", "1M", "--from", "1e9", "--to", "1e13", "--points", "3", "--spend", "all")
    assert "worse than uniform" in said("frontier", *asked)


def test_what_runs_reached_is_not_worse_than_uniform() -> None:
    """Small models that repeat a lot did reach losses above the uniform one."""
    micro = Calibration.load("micro")
    assert micro.uniform_loss > 8.5 > math.log(1024)
    assert compare("65k", "1e12", calibration=micro).uniform_loss == micro.uniform_loss


def test_shapes_that_nobody_trains_are_warned_of() -> None:
    made = plan(10e6, 1e16, vocab_size=250_000, extrapolate=True)
    (warning,) = [one for one in made.warnings if "nobody trains such a shape" in one]
    assert "d_model 14, 139 layers" in warning
    assert "a smaller vocabulary would do" in warning
    assert not any("nobody trains" in one for one in plan(10e6, 1e16).warnings)
