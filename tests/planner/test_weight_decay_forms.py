"""Weight-decay laws: laws for every weight decay at once, and how plans with them are found."""

from collections.abc import Iterator

import numpy as np
import pytest

from planner.inputs import CONTINUOUS, InvalidInput
from planner.laws import FORMS, TIMESCALE, WEIGHT_DECAY_FORMS, Law
from planner.solve import allocate
from studies.tournament.forms import registered

# close to what the micro study and its pilot say
BASE = {"E": 2.14, "A": 933.0, "alpha": 0.668, "B": 40.2, "beta": 0.247, "R_D_star": 1.58}
OWN = {
    "P": 0.0039,
    "delta": 1.67,
    "kappa": 0.884,
    "gamma": 0.924,
    "mu": 3.8,
    "q": 0.03,
    "tau_c": 0.56,
    "k": 40.0,
}
STEEP = {"P": 0.04, "delta": 1.96, "c": 16.7, "gamma": 0.76, "mu": 3.0, "s": 0.6, "k": 6.5}
PREMIUM = {"P": 0.02, "gamma": 0.9, "v": 1.6, "Q": 6e4, "epsilon": 0.8}
BATCH_TOKENS, LEARNING_RATE = 512, 0.01


def weight_decay_law(form: str, weight_decay: float | np.ndarray) -> Law:
    memory = BATCH_TOKENS / (LEARNING_RATE * weight_decay)
    own = {"weight_decay_steep": STEEP, "weight_decay_premium": PREMIUM}.get(form, {})
    values = {**BASE, **OWN, **own, TIMESCALE: memory}
    return Law(form, {name: values[name] for name in (*WEIGHT_DECAY_FORMS[form].names, TIMESCALE)})


def counts_passes(form: str) -> bool:
    """Whether one pass over the data costs something already."""
    return form == "weight_decay_steep"


@pytest.fixture(scope="module", autouse=True)
def study() -> Iterator[None]:
    """With the form of the tournament that is not shipped."""
    with registered():
        yield


@pytest.fixture(
    params=["weight_decay_simple", "weight_decay_steep", "weight_decay_premium", "weight_decay_hinge"]
)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_there_are_at_least_two_and_none_among_the_laws_of_one_weight_decay() -> None:
    assert len(WEIGHT_DECAY_FORMS) >= 2
    assert not set(WEIGHT_DECAY_FORMS) & set(FORMS)


@pytest.mark.parametrize("epochs", [0.3, 1.5, 6.0])
def test_slopes_are_exact(form: str, epochs: float) -> None:
    law, point, step = weight_decay_law(form, 0.7), np.array([2e5, 5e4, epochs]), 1e-6
    by = law.slopes(*point)
    for place, slope in enumerate(by):
        up, down = (law.loss(*(point * np.exp(sign * step * np.eye(3)[place]))) for sign in (1, -1))
        assert slope == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-9)


def test_one_pass_costs_all_models_the_same_and_more_passes_the_larger_ones_more() -> None:
    sizes = np.array([1e3, 1e5, 1e12])
    once, often = (
        weight_decay_law("weight_decay_steep", 0.1).terms(sizes, 5e4, epochs).overfitting
        for epochs in (1.0, 8.0)
    )
    assert once == pytest.approx(once[0])
    assert often[0] < often[1] < often[2]
    assert often[2] / once[2] == pytest.approx(8 ** STEEP["delta"], rel=1e-3)


def test_weak_decay_overfits_and_strong_decay_forgets(form: str) -> None:
    losses = [float(weight_decay_law(form, decay).loss(2e5, 32768.0, 12.0)) for decay in (0.03, 2.0, 30.0)]
    assert losses[1] < losses[0]
    assert losses[1] < losses[2]
    once = [float(weight_decay_law(form, decay).loss(2e5, 32768.0, 1.0)) for decay in (0.03, 2.0, 30.0)]
    if counts_passes(form):  # what was seen once is remembered too, a little
        assert once[0] - once[1] < 0.05
        assert once[1] < once[2]
    else:
        assert once == sorted(once)  # no token is seen twice: memory can only help


def test_half_the_data_wants_about_twice_the_weight_decay(form: str) -> None:
    """At equal memory in epochs the same share is remembered, so λ* goes about with 1/U."""
    decays = np.geomspace(0.01, 100, 2001)
    best = [decays[np.argmin(weight_decay_law(form, decays).loss(2e5, ud, 8.0))] for ud in (65536.0, 32768.0)]
    assert 1.5 < best[1] / best[0] < 2.5


def test_the_search_finds_the_minimum_below_and_above_one_epoch(form: str) -> None:
    epochs = np.exp(np.linspace(-8, 6, 20001))
    whole = np.arange(1.0, 400.0)
    rng = np.random.default_rng(0)
    shares = []
    for decay, ud, per_token in zip(
        *10 ** rng.uniform((-2, 4.5, 3.5), (1, 6.5, 7.5), (12, 3)).T, strict=True
    ):
        law, product = weight_decay_law(form, decay), per_token
        flops = 6 * ud * product
        curve = law.loss(product / epochs, ud, epochs)
        best = allocate(law, ud, flops, CONTINUOUS)
        assert best.loss <= curve.min() + 1e-12
        at_whole = law.loss(product / whole, ud, whole).min()
        assert allocate(law, ud, flops).loss <= min(at_whole, curve[epochs <= 1].min()) + 1e-12
        shares.append(float(best.epochs))
    assert min(shares) < 1 < max(shares)


def test_many_weight_decays_are_one_law_of_arrays(form: str) -> None:
    decays = np.array([0.1, 1.0, 5.0])
    together = allocate(weight_decay_law(form, decays), 65536.0, 3e11)
    for place, decay in enumerate(decays):
        alone = allocate(weight_decay_law(form, float(decay)), 65536.0, 3e11)
        assert together.loss[place] == pytest.approx(float(alone.loss), rel=1e-12)


def test_a_weight_decay_law_without_its_timescale_is_refused(form: str) -> None:
    values = {**BASE, **OWN, **STEEP, **PREMIUM}
    given = {name: values[name] for name in WEIGHT_DECAY_FORMS[form].names}
    with pytest.raises(InvalidInput, match="timescale_tokens"):
        Law(form, given)
