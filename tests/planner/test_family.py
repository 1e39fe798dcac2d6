"""The family of laws: each contains its simpler neighbours, and none changes what is seen once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import FORMS, InvalidInput, Law
from planner.laws import (
    HILL_KAPPA,
    STANDARD,
    STEP,
    TIMESCALE,
    WEIGHT_DECAY_FORMS,
    At,
    LawForm,
    Style,
    Terms,
    Values,
    base_terms,
    exponent,
    form_named,
    register,
    repetition_parameters,
)
from studies.tournament.forms import DECAY_FORMS_OF_THE_STUDY, FORMS_OF_THE_STUDY, registered
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
DECAY_LAW = {"mu": 3.8, "k": 40.0, "s": 0.6, "q": 0.03, "tau_c": 0.56, TIMESCALE: 3e8}
DECAY_LAW |= {"v": 1.6, "Q": 1e11, "epsilon": 0.8}
FAMILY = ("hill_4p", "decay_4p", "decay_hill_4p", *(form.name for form in FORMS_OF_THE_STUDY))
EVERY = (
    *FORMS,
    *WEIGHT_DECAY_FORMS,
    *(form.name for form in (*FORMS_OF_THE_STUDY, *DECAY_FORMS_OF_THE_STUDY)),
)


@pytest.fixture(scope="module", autouse=True)
def study() -> Iterator[None]:
    """With the forms of the tournament, which are not shipped."""
    with registered():
        yield


def law(form: str, **other: float) -> Law:
    own = {**ORDINARY, **other}
    return Law(form, {**BASE, **{name: own[name] for name in repetition_parameters(form)}})


def test_every_value_of_repeats_meets_every_cost() -> None:
    costs = ("1p", "2p", "4p", "hill_4p", "hill_5p")
    wanted = {f"{value}_{cost}" for value in ("decay", "paced") for cost in costs}
    assert wanted | {"hill_4p", "hill_5p", "paced_decay", "bounded"} == set(FAMILY)


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


@pytest.mark.parametrize("form", EVERY)
def test_derivatives_along_the_imaginary_axis_are_those_of_the_formula(form: str) -> None:
    """Of every term, by every parameter, by size, data and epochs, at one epoch and around it."""
    declared = form_named(form)
    own = {**BASE, **ORDINARY, **DECAY_LAW}
    p = {name: own[name] for name in declared.names}
    point = [
        np.array([1e7, 3e8, 2e10]),
        np.array([4e8, 1e8, 3e9]),
        np.array([0.6, 1.8, 20.0]),
        DECAY_LAW[TIMESCALE],
    ]

    def terms(q: Values, values: list) -> np.ndarray:
        return np.stack([np.broadcast_to(term, 3) for term in declared.terms(q, At(*values))])

    for name, value in p.items():
        exact = np.imag(terms({**p, name: value * (1 + 1j * STEP)}, point)) / STEP
        ahead, behind = (terms({**p, name: value * factor}, point) for factor in (1 + 1e-5, 1 - 1e-5))
        np.testing.assert_allclose(exact, (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-8)
    for axis in range(3):
        moved = [
            terms(p, [v * (factor if i == axis else 1) for i, v in enumerate(point)])
            for factor in (1 + 1j * STEP, 1 + 1e-6, 1 - 1e-6)
        ]
        exact = np.imag(moved[0]) / STEP
        np.testing.assert_allclose(exact, (moved[1] - moved[2]) / 2e-6, rtol=1e-4, atol=1e-7)


def test_a_formula_that_is_none_of_complex_numbers_is_refused() -> None:
    def terms(p: Values, at: At) -> Terms:
        return base_terms(p, at, overfitting=np.abs(p["rho"] - 5.0) * at.repeats)

    rho = exponent("rho", "ρ", (0.3, 0.6), 0.3)
    with pytest.raises(InvalidInput, match="cannot be differentiated by rho along the imaginary axis"):
        register(LawForm("bent", "bent", Style("#000000", "#ffffff"), "-", "", (rho,), terms))
    assert "bent" not in FORMS


def test_forms_of_the_study_are_known_only_for_as_long_as_asked() -> None:
    """Shipped are those that are fitted by default: all of them are."""
    assert set(FORMS) - {form.name for form in FORMS_OF_THE_STUDY} == set(STANDARD)
