"""The family of laws: each contains its simpler neighbours, and none changes what is seen once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import FORMS, Law
from planner.laws import STANDARD
from planner.laws.forms import At, jet
from planner.laws.pieces import HILL_KAPPA
from tests.planner.strategies import repeating, sizes, unique_tokens

BASE = {"E": 1.9, "A": 420.0, "alpha": 0.34, "B": 3600.0, "beta": 0.37}
ORDINARY = {
    "R_D_star": 8.0,
    "R_N_star": 5.0,
    "rho": 0.4,
    "P": 0.01,
    "delta": 1.3,
    "kappa": 0.9,
    "gamma": 0.8,
    "c": 2.0,
}
FAMILY = tuple(FORMS)[6:]


def law(form: str, **other: float) -> Law:
    own = {**ORDINARY, **other}
    return Law(form, {**BASE, **{name: own[name] for name in FORMS[form].repetition_names}})


def test_every_value_of_repeats_meets_every_cost() -> None:
    costs = ("1p", "2p", "4p", "hill_4p", "hill_5p")
    wanted = {f"{value}_{cost}" for value in ("decay", "paced") for cost in costs}
    assert wanted | {"hill_4p", "hill_5p", "paced_decay", "bounded"} == set(FAMILY)
    assert {"chinchilla", "additive_4p"} <= set(STANDARD) < set(FORMS)


@pytest.mark.parametrize("form", FAMILY)
@given(n=sizes, u=unique_tokens, e=st.floats(0.05, 1.0))
def test_up_to_one_epoch_all_are_the_base_law(form: str, n: float, u: float, e: float) -> None:
    assert float(law(form).loss(n, u, e)) == pytest.approx(
        float(Law("chinchilla", BASE).loss(n, u, e)), rel=1e-14
    )


@given(sizes, unique_tokens, repeating)
def test_a_level_out_of_reach_is_the_additive_law(n: float, u: float, e: float) -> None:
    """P grows with c^kappa so that P / c^kappa, the additive law's coefficient, stays."""
    level = 1e30
    hill = law("hill_5p", c=level, P=ORDINARY["P"] * level ** ORDINARY["kappa"])
    assert float(hill.loss(n, u, e)) == pytest.approx(float(law("additive_4p").loss(n, u, e)), rel=1e-9)


@given(sizes, unique_tokens, repeating)
def test_hill_4p_is_hill_5p_with_its_power_held(n: float, u: float, e: float) -> None:
    assert float(law("hill_4p").loss(n, u, e)) == float(law("hill_5p", kappa=HILL_KAPPA).loss(n, u, e))


@given(sizes, unique_tokens, repeating)
def test_repeats_that_never_fade_are_new_tokens(n: float, u: float, e: float) -> None:
    pairs = [("decay_hill_4p", "hill_4p"), ("decay_4p", "additive_4p"), ("paced_hill_5p", "hill_5p")]
    for fading, plain in pairs:
        slow = law(fading, R_D_star=1e25)
        assert float(slow.loss(n, u, e)) == pytest.approx(float(law(plain).loss(n, u, e)), rel=1e-9)


@given(sizes, unique_tokens, repeating)
def test_a_pace_that_ignores_size_is_plain_decay(n: float, u: float, e: float) -> None:
    paced, plain = law("paced_decay", rho=1e-12), law("exponential_decay")
    assert float(paced.loss(n, u, e)) == pytest.approx(float(plain.loss(n, u, e)), rel=1e-9)


@pytest.mark.parametrize("form", ["hill_4p", "hill_5p", "bounded"])
def test_the_penalty_levels_off_in_size_and_the_bounded_one_in_repeats(form: str) -> None:
    penalty = law(form).terms(np.array([1e9, 1e14, 1e15]), 1e8, 5.0).overfitting
    assert penalty[0] < penalty[1]
    assert penalty[2] == pytest.approx(penalty[1], rel=1e-3)
    more = law(form).terms(1e15, 1e8, np.array([5.0, 5e4])).overfitting
    assert (more[1] / more[0] < 1.001) == (form == "bounded")


@pytest.mark.parametrize("form", FAMILY)
def test_written_derivatives_are_those_of_the_formula(form: str) -> None:
    """Against the complex step, which needs the formula only."""
    declared = FORMS[form]
    at = At(np.array([-2.0, 0.3, 3.0]), np.array([1.0, -1.5, 0.2]), np.array([-1.0, 0.7, 3.0]))
    p = {**ORDINARY, **declared.fixed}
    piece = declared.repeats
    jets = []
    if piece.parameters:
        ratio, epochs = at.ln_params - at.ln_unique, 1 + np.exp(at.ln_repeats)

        def seen(q: dict) -> np.ndarray:
            star = np.exp(np.log(q["R_D_star"]) - q.get("rho", 0.0) * ratio * piece.by_size)
            return np.log(1 + star * (1 - np.exp(-(epochs - 1) / star)))

        jets.append((piece.seen_jet(p, epochs, ratio), jet(seen, p, piece.names)))
    if declared.penalty is not None and declared.penalty.centred:
        inside = declared.penalty.repeats_too  # type: ignore[attr-defined]

        def shape(q: dict) -> np.ndarray:
            z = q["kappa"] * (at.ln_params - q["gamma"] * at.ln_unique - np.log(q["c"]))
            power = q["delta"] * at.ln_repeats
            return -np.log(1 + np.exp(-z - power)) if inside else power - np.log(1 + np.exp(-z))

        names = declared.penalty.names[1:]
        jets.append((declared.penalty.shape_jet(p, at), jet(shape, p, names)))
    for written, stepped in jets:
        np.testing.assert_allclose(written.value, stepped.value, rtol=1e-12)
        for i, one in enumerate(written.first):
            np.testing.assert_allclose(np.broadcast_to(one, 3), stepped.first[i], rtol=1e-11, atol=1e-13)
            for j, bend in enumerate(written.second[i]):
                np.testing.assert_allclose(
                    np.broadcast_to(bend, 3), stepped.second[i][j], rtol=1e-6, atol=1e-8
                )
