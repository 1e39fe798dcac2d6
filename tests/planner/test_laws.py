"""All forms: values against an independent reimplementation,
exact slopes, and the properties they promise.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import FORMS, Calibration, InvalidInput, Law
from planner.laws import BASE_PARAMETERS, Averaged, Mixture, form_named, repetition_parameters
from planner.uncertainty import paired_draws
from studies.tournament.forms import FORMS_OF_THE_STUDY, registered
from tests.planner.strategies import laws, products, repeating, sizes, unique_tokens

ADDITIVE = ("additive_1p", "additive_2p", "additive_4p")
EVERY = (*FORMS, *(form.name for form in FORMS_OF_THE_STUDY))


@pytest.fixture(scope="module", autouse=True)
def study() -> Iterator[None]:
    """With the forms of the tournament, which are not shipped."""
    with registered():
        yield


def textbook_loss(law: Law, n: float, u: float, e: float) -> float:
    """The equations of the papers and of the family, written out one by one with the math module."""
    p = {k: float(v) for k, v in law.parameters.items()}
    unique, repeats = min(u, u * e), max(e - 1, 0)
    tokens = unique * (1 + repeats)
    if "R_D_star" in p:
        star = p["R_D_star"] * (u / n) ** p.get("rho", 0.0)
        tokens = unique * (1 + star * (1 - math.exp(-repeats / star)))
    size = n
    if law.form == "effective_parameters":
        g = (p["alpha"] * p["A"] / (p["beta"] * p["B"])) ** (1 / (p["alpha"] + p["beta"]))
        # N_opt for U tokens: D_opt(C) = (C/6)^(alpha/(alpha+beta))
        # / G inverted, then N = G (C/6)^(beta/(alpha+beta))
        c6 = (unique * g) ** ((p["alpha"] + p["beta"]) / p["alpha"])
        n_opt = g * c6 ** (p["beta"] / (p["alpha"] + p["beta"]))
        base = min(n_opt, n)
        size = base * (1 + p["R_N_star"] * (1 - math.exp(-(n / base - 1) / p["R_N_star"])))
    loss = p["E"] + p["A"] / size ** p["alpha"] + p["B"] / tokens ** p["beta"]
    if law.form.endswith("_1p"):
        loss += p["P"] * repeats * (n / u)
    if law.form.endswith("_2p"):
        loss += p["P"] * repeats * (n / u) ** p["kappa"]
    if law.form in ("additive_4p", "decay_4p", "paced_4p"):
        loss += p["P"] * repeats ** p["delta"] * (n / u ** p["gamma"]) ** p["kappa"]
    if "c" in p:
        z = (n / (p["c"] * u ** p["gamma"])) ** p.get("kappa", 2.0)
        if law.form == "bounded":
            loss += p["P"] / (1 + 1 / (z * repeats ** p["delta"])) if repeats else 0.0
        else:
            loss += p["P"] * repeats ** p["delta"] * z / (1 + z)
    return loss


@given(laws(forms=EVERY), sizes, unique_tokens, st.floats(0.05, 64.0))
def test_every_form_is_its_equation(law: Law, n: float, u: float, e: float) -> None:
    assert float(law.loss(n, u, e)) == pytest.approx(textbook_loss(law, n, u, e), rel=1e-9)


@given(laws(forms=EVERY), sizes, unique_tokens, st.floats(0.05, 64.0))
def test_terms_add_up_and_none_is_negative(law: Law, n: float, u: float, e: float) -> None:
    terms = law.terms(n, u, e)
    assert float(sum(terms)) == pytest.approx(float(law.loss(n, u, e)), rel=1e-12)
    assert min(float(term) for term in terms) >= 0


@given(laws(forms=ADDITIVE), sizes, unique_tokens, st.floats(0.01, 1.0))
def test_additive_forms_are_chinchilla_up_to_one_epoch(law: Law, n: float, u: float, e: float) -> None:
    assert float(law.loss(n, u, e)) == float(law.base().loss(n, u, e))
    assert float(law.terms(n, u, e).overfitting) == 0


@given(laws(forms=ADDITIVE), sizes, unique_tokens, repeating, st.floats(1.01, 4.0))
def test_terms_are_monotone(law: Law, n: float, u: float, e: float, factor: float) -> None:
    here = law.terms(n, u, e)
    assert law.terms(n * factor, u, e).parameter < here.parameter
    assert law.terms(n, u * factor, e).data < here.data
    assert law.terms(n, u, e * factor).data < here.data
    assert law.terms(n, u, e * factor).overfitting > here.overfitting
    assert law.terms(n * factor, u, e).overfitting >= here.overfitting
    assert law.terms(n, u * factor, e).overfitting <= here.overfitting


@given(laws(forms=("additive_1p", "additive_2p")), sizes, unique_tokens, repeating, st.floats(0.1, 10.0))
def test_short_penalties_depend_only_on_the_ratio_of_size_to_data(
    law: Law, n: float, u: float, e: float, scale: float
) -> None:
    assert float(law.terms(n * scale, u * scale, e).overfitting) == pytest.approx(
        float(law.terms(n, u, e).overfitting), rel=1e-9
    )


@given(laws(forms=("chinchilla",)), sizes, unique_tokens, repeating)
def test_chinchilla_only_sees_total_tokens(law: Law, n: float, u: float, e: float) -> None:
    assert float(law.loss(n, u, e)) == pytest.approx(float(law.loss(n, u * e, 1.0)), rel=1e-12)


@given(laws(forms=("exponential_decay", "effective_parameters")), sizes, unique_tokens, repeating)
def test_effective_forms_never_beat_fresh_data(law: Law, n: float, u: float, e: float) -> None:
    assert float(law.loss(n, u, e)) >= float(law.base().loss(n, u, e)) * (1 - 1e-12)


def test_the_additive_ladder_is_one_formula() -> None:
    base = {"E": 1.8, "A": 200.0, "alpha": 0.3, "B": 5000.0, "beta": 0.4}
    one, two = Law("additive_1p", {**base, "P": 0.02}), Law("additive_2p", {**base, "P": 0.02, "kappa": 1.0})
    four = Law("additive_4p", {**base, "P": 0.02, "delta": 1.0, "kappa": 1.0, "gamma": 1.0})
    losses = [float(law.loss(3e8, 2e8, 7.0)) for law in (one, two, four)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-14)
    assert losses[0] == pytest.approx(losses[2], rel=1e-14)


@given(laws(forms=EVERY), sizes, unique_tokens, st.one_of(st.floats(0.1, 0.9), st.floats(1.2, 50.0)))
def test_slopes_match_finite_differences(law: Law, n: float, u: float, e: float) -> None:
    h = 1e-5
    by = law.slopes(n, u, e)
    for exact, plus, minus in (
        (by.params, (n * math.exp(h), u, e), (n * math.exp(-h), u, e)),
        (by.unique_tokens, (n, u * math.exp(h), e), (n, u * math.exp(-h), e)),
        (by.epochs, (n, u, e * math.exp(h)), (n, u, e * math.exp(-h))),
    ):
        difference = float(law.loss(*plus) - law.loss(*minus)) / (2 * h)
        scale = float(law.loss(n, u, e))
        assert float(exact) == pytest.approx(difference, rel=2e-4, abs=1e-6 * scale)


@given(laws(forms=EVERY), products, unique_tokens)
def test_a_table_along_isoflops_is_the_loss_of_each_place(law: Law, product: float, u: float) -> None:
    """As the search for the best epochs has it: budgets by epochs."""
    epochs = np.geomspace(0.1, 50, 23)
    budgets, tokens = np.array([product, 2 * product]), np.array([u, 3 * u])
    table = law.loss(budgets[:, None] / epochs, tokens[:, None], epochs)
    assert table[0] == pytest.approx([float(law.loss(product / e, u, e)) for e in epochs], rel=1e-10)
    assert table[1] == pytest.approx([float(law.loss(2 * product / e, 3 * u, e)) for e in epochs], rel=1e-10)


@given(laws(forms=EVERY), sizes, unique_tokens, repeating)
def test_an_ensemble_is_a_law_with_arrays(law: Law, n: float, u: float, e: float) -> None:
    members = Law(law.form, {k: np.array([v, 1.1 * v, 0.9 * v]) for k, v in law.parameters.items()})
    values = np.asarray(members.loss(n, u, e))
    assert values.shape == (3,)
    assert values[0] == pytest.approx(float(law.loss(n, u, e)), rel=1e-12)
    assert float(members.draw(1).loss(n, u, e)) == pytest.approx(values[1], rel=1e-12)


def together(each: list[Law]) -> list[Law]:
    """Laws as draws, one law of arrays for each form."""
    by_form: dict[str, list[Law]] = {}
    for law in each:
        by_form.setdefault(law.form, []).append(law)
    return [
        Law(form, {name: np.array([law.parameters[name] for law in some]) for name in some[0].parameters})
        for form, some in by_form.items()
    ]


@given(
    st.lists(laws(forms=EVERY), min_size=2, max_size=6),
    sizes,
    unique_tokens,
    st.one_of(st.floats(0.3, 0.999), st.floats(1.001, 60.0)),
)
def test_laws_of_many_forms_are_one_law(each: list[Law], n: float, u: float, e: float) -> None:
    parts = together(each)
    mixture, in_parts = Mixture(parts), [law for form in parts for law in each if law.form == form.form]
    assert mixture.draws == len(each)
    assert sorted(mixture.order) == list(range(len(each)))
    losses = mixture.loss(n, u, e)
    own = [np.full(len(each), value) for value in (n, u, e)]
    assert mixture.loss(*own) == pytest.approx(losses, rel=1e-12)
    for i, place in enumerate(mixture.order):
        law = in_parts[place]
        assert mixture.draw(i).form == law.form
        assert losses[i] == pytest.approx(float(law.loss(n, u, e)), rel=1e-10)
        assert float(mixture.draw(i).loss(n, u, e)) == pytest.approx(losses[i], rel=1e-12)
    start = 0
    for part in parts:
        slopes = [np.broadcast_to(by, part.draws) for by in part.slopes(n, u, e)]
        table = np.atleast_2d(part.draw((slice(None), None)).loss(n, u, np.array([e, 2 * e])))
        for k, law in enumerate(in_parts[start : start + part.draws]):
            assert [by[k] for by in slopes] == pytest.approx(list(law.slopes(n, u, e)), rel=1e-7, abs=1e-12)
            assert table[k] == pytest.approx(np.asarray(law.loss(n, u, np.array([e, 2 * e]))), rel=1e-10)
        start += part.draws


@pytest.mark.parametrize("budgets", [1, 2, 3, 5])
def test_an_average_is_one_of_its_parts_tables_whatever_the_number_of_budgets(budgets: int) -> None:
    """Also where a part stands alone, and there are as many budgets as laws."""
    shares = (0.5, 0.3, 0.2)
    parts = [
        Calibration.load().law(1.0, form) for form in ("additive_4p", "effective_parameters", "additive_2p")
    ]
    average, epochs = Averaged(parts, shares), np.array([1.0, 2.0, 7.0])
    product, ud = np.full((budgets, 1), 1e10), np.full((budgets, 1), 2.5e8)
    at = product / epochs, ud, epochs
    wanted = sum(share * part.loss(*at) for share, part in zip(shares, parts, strict=True))
    assert np.shape(average.loss(*at)) == (budgets, 3)
    assert average.loss(*at) == pytest.approx(wanted, rel=1e-12)
    for found, *own in zip(average.slopes(*at), *(part.slopes(*at) for part in parts), strict=True):
        wanted = sum(share * by for share, by in zip(shares, own, strict=True))
        assert found == pytest.approx(wanted, rel=1e-12)


def test_draws_of_two_settings_are_paired_form_by_form() -> None:
    """What both have, as many as both have, each in its order, however the forms alternate in a mixture."""
    known = Calibration.load("micro")
    weak, strong = (
        [one.law_draws(form) for form in ("additive_4p", "effective_parameters", "additive_2p")]
        for one in (known.setting(0.1), known.setting(1.0))
    )
    first = Mixture([weak[0].draw(slice(9)), weak[1], weak[2].draw(slice(5))])
    second = Mixture([strong[2].draw(slice(7)), strong[0].draw(slice(4))])
    pairs = paired_draws([first, second])
    assert [tuple((one.form, one.draws) for one in pair) for pair in pairs] == [
        (("additive_4p", 4), ("additive_4p", 4)),
        (("additive_2p", 5), ("additive_2p", 5)),
    ]
    for pair, place in zip(pairs, (0, 2), strict=True):
        for one, draws in zip(pair, (weak, strong), strict=True):
            for name, values in one.parameters.items():
                assert list(values) == list(draws[place].parameters[name][: one.draws])
    alone = paired_draws([weak[0], strong[0]])
    assert [(one.form, one.draws) for one in alone[0]] == [("additive_4p", weak[0].draws)] * 2
    assert paired_draws([weak[0], strong[2]]) == []


def test_optimal_params_is_where_the_chinchilla_frontier_uses_that_many_tokens() -> None:
    law = Calibration.load().law(0.1, "chinchilla")
    n = float(law.optimal_params(1e9))
    along = np.exp(np.linspace(-1, 1, 20001))
    assert along[np.argmin(law.loss(n * along, 1e9 / along, 1.0))] == pytest.approx(1.0, abs=2e-4)


@pytest.mark.parametrize("form", Calibration.load().setting(1.0).laws)
def test_broadcasting(form: str) -> None:
    law = Calibration.load().law(1.0, form)
    loss = law.loss(np.array([1e8, 1e9])[:, None], 1e8, np.array([0.5, 1.0, 4.0]))
    assert np.shape(loss) == (2, 3)
    assert all(
        np.shape(term) == (2, 3)
        for term in law.terms(np.array([1e8, 1e9])[:, None], 1e8, np.array([0.5, 1.0, 4.0]))
    )


def test_laws_travel_between_processes() -> None:
    law = Calibration.load().law(1.0, "additive_4p")
    again = pickle.loads(pickle.dumps(law))
    assert again.declared is law.declared
    assert again.loss(1e8, 1e8, 4.0) == law.loss(1e8, 1e8, 4.0)


def test_bad_laws_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"law must be one of chinchilla.*'kaplan'"):
        Law("kaplan", {})
    base = dict.fromkeys(BASE_PARAMETERS, 1.0)
    with pytest.raises(InvalidInput, match="needs the parameters E, A, alpha, B, beta, P"):
        Law("additive_1p", base)
    for name, value in (("A", -1.0), ("alpha", 0.0), ("beta", math.nan), ("B", math.inf), ("E", -0.1)):
        with pytest.raises(InvalidInput, match=f"parameter {name} of law chinchilla"):
            Law("chinchilla", {**base, name: value})
    assert repetition_parameters("additive_4p") == ("P", "delta", "kappa", "gamma")


def test_a_form_is_found_under_its_earlier_name() -> None:
    assert form_named("dial_steep") is form_named("weight_decay_steep")
