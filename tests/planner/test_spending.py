"""Compute is a ceiling: the rule of what is spent, against a plain search, and within every limit."""

from __future__ import annotations

import numpy as np
import pytest

from planner import Calibration, compare, crossover, frontier, plan
from planner.laws import Law

KNOWN = Calibration.load()
MOST_EPOCHS = 400


def _along(law: Law, ud: float, computes: np.ndarray, limits: dict[str, float]) -> np.ndarray:
    """The lowest loss at exactly each compute, by trying all whole epochs and fractions below one."""
    product = computes / (6 * ud)
    few, many = product / limits.get("max_params", np.inf), limits.get("max_epochs", np.inf)
    most = np.minimum(many, product / limits.get("min_params", 1.0))
    best = np.full(len(computes), np.inf)
    fractions = np.geomspace(1e-4, 1.0, 200)
    for epochs in [*fractions, *np.arange(2.0, MOST_EPOCHS)]:
        allowed = (epochs >= few * (1 - 1e-12)) & (epochs <= most * (1 + 1e-12))
        loss = law.loss(product / epochs, ud, epochs)
        best = np.where(allowed & (loss < best), loss, best)
    return best


def _cases(count: int) -> list[tuple[float, float, float, dict[str, float]]]:
    rng = np.random.default_rng(4)
    found = []
    for _ in range(count):
        ud = 10 ** rng.uniform(7.5, 9.3)
        flops = ud * 10 ** rng.uniform(8.5, 12.0)
        limits = {}
        if rng.random() < 0.4:
            limits["max_params"] = 10 ** rng.uniform(7.5, 10.5)
        if rng.random() < 0.4:
            limits["max_epochs"] = float(rng.integers(1, 20))
        if rng.random() < 0.2:
            limits["min_params"] = 10 ** rng.uniform(6.5, 7.5)
        found.append((ud, flops, float(rng.choice([0.1, 1.0])), limits))
    return found


@pytest.mark.slow
def test_the_rule_holds_against_a_plain_search() -> None:
    """All is spent unless the first minimum is better beyond the error, or as good at less than half."""
    for ud, flops, decay, limits in _cases(150):
        p = plan(ud, flops, weight_decay=decay, **limits)
        law, slack = KNOWN.law(decay), 1 + 1e-9
        assert p.spent_flops <= flops * slack
        assert limits.get("min_params", 0) <= p.params * slack
        assert p.params <= limits.get("max_params", np.inf) * slack
        assert p.epochs <= limits.get("max_epochs", np.inf) * slack
        assert p.unused_flops == pytest.approx(flops - p.spent_flops, abs=1e-6 * flops)
        assert p.loss == pytest.approx(float(law.loss(p.params, ud, p.epochs)), rel=1e-12)
        computes = np.geomspace(flops / 1e5, flops, 2000)
        losses = _along(law, ud, computes, limits)
        possible = np.flatnonzero(np.isfinite(losses))
        most, everything, lowest = computes[possible[-1]], losses[possible[-1]], losses[possible].min()
        error = float(
            KNOWN.setting(decay).error("additive_4p")(p.params if p.spent_flops >= most / 1.01 else 0)
        )
        if p.spent_flops >= most / 1.01:
            assert p.loss <= everything + 2e-5  # the grid may miss the corner of two limits
            assert lowest >= p.loss - error - 1e-6
            continue
        assert p.loss <= everything - error + 1e-6 or most > 2 * p.spent_flops / 1.01
        near = _along(law, ud, p.spent_flops * np.array([0.985, 0.99, 1.0, 1.01, 1.015]), limits)
        assert p.loss <= near.min() + 1e-6  # nothing next to it is better


def test_what_people_ask() -> None:
    p = plan(ud="180M", gpu="H100", gpus=8, hours=20)
    assert 0.5e9 < p.params < 1.5e9
    assert 4 <= p.epochs <= 9
    assert p.verdict.startswith("Train 609M for 7 epochs at weight decay 1.0. That takes 2% of your compute")
    assert p.cost is not None
    assert p.cost.hours < 1  # the bill is that of what is trained
    assert plan("1B", 1e21).params < 20e9
    big = plan("500M", 8e20)
    assert (round(big.params / 1e7), big.epochs) == (
        275,
        4,
    )  # 267B x 1 gains 0.0025 nats for 25 times the compute
    kept = plan("250M", 5e18, weight_decay=0.1)
    assert (round(kept.params / 1e6), kept.epochs, kept.unused_flops) == (667, 5, 0)
    both = plan("250M", 5e18)
    assert (round(both.params / 1e6), both.epochs, both.weight_decay) == (556, 6, 1.0)


def test_limits_make_it_spend_less_and_never_fail() -> None:
    held = plan("180M", 2.3e20, max_params="1B", max_epochs=2)
    assert (held.params, held.epochs) == (pytest.approx(1e9), 2)
    assert "your limits" in held.verdict
    assert plan("180M", 2.3e20, max_params="1B").loss < 3.2
    fixed = plan("180M", 2.3e18, min_params="556M", max_params="556M")
    assert fixed.params == pytest.approx(556e6)
    assert fixed.epochs == 3


def test_the_crossover_is_that_of_its_own_mode() -> None:
    ceiling, everything = (crossover("2B", spend=spend).crossover_flops for spend in ("ceiling", "all"))
    assert ceiling == pytest.approx(2.23e20, rel=0.005)
    assert everything == pytest.approx(2.02e20, rel=0.005)


def test_loss_along_ceilings_rises_by_no_more_than_the_error() -> None:
    for decay in (0.1, 1.0):
        along = frontier("250M", np.geomspace(1e17, 1e22, 300), weight_decay=decay)
        assert (along.spent_flops <= along.flops * (1 + 1e-9)).all()
        error = KNOWN.setting(decay).error("additive_4p")(along.params)
        assert (along.loss - np.minimum.accumulate(along.loss) <= error + 1e-9).all()
    rows = compare("250M", 3.4e19).rows
    assert all(row.spent_flops <= 3.4e19 * (1 + 1e-9) for row in rows)
    assert all(row.regret >= -1e-9 for row in rows)
