"""A law form of one's own: declared once, and known to everything that fits, draws or explains laws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.simulated import grid_table
from calibration import fit
from calibration.fitting.design.proposal import design
from calibration.fitting.evaluate.compare import compare as compare_settings
from calibration.fitting.identify import unidentified
from calibration.reports.report import report
from planner import Calibration, Law, compare, frontier, plan, predict
from planner.laws import (
    FORMS,
    Array,
    At,
    LawForm,
    Parameter,
    Style,
    Terms,
    Values,
    amplitude,
    base_terms,
    exponent,
    register,
    unregister,
)

TRUTH = {"E": 1.9, "A": 420.0, "alpha": 0.34, "B": 3600.0, "beta": 0.37, "P": 0.06, "kappa": 0.8}


def logarithmic(p: Values, at: At) -> Array:
    """Repetition costs with the logarithm of the epochs."""
    return p["P"] * np.log1p(at.repeats) * np.exp(p["kappa"] * (at.ln_params - at.ln_unique))


# What CONTRIBUTING shows: the function above and the call of `register` are all there is to a new law.
@pytest.fixture(scope="module")
def toy() -> Iterator[LawForm]:
    yield register(
        LawForm(
            "toy",
            "toy law",
            Style("#7a4fbf", "#b79df0", "dash"),
            "for tests",
            "+ P ln(1 + R) (N/U)^κ",
            (amplitude(logarithmic, (0.01, 0.1)), exponent("kappa", "κ", (0.3, 0.7, 1.2), 0.3)),
            lambda p, at: base_terms(p, at, overfitting=logarithmic(p, at)),
        )
    )
    unregister("toy")


@pytest.fixture(scope="module")
def calibration(toy: LawForm) -> Calibration:
    rng = np.random.default_rng(5)
    tables = [
        grid_table(Law("toy", TRUTH | {"P": size}), 70, 0.0005, rng, weight_decay=decay)
        for decay, size in ((0.1, 0.06), (1.0, 0.03))
    ]
    both = pd.concat(tables, ignore_index=True).drop(columns="run")
    return fit(both, bootstrap=30, name="toy-corpus", vocab_size=32_100)


def test_a_law_declared_once_is_fitted_and_found(calibration: Calibration) -> None:
    for setting, size in zip(calibration.settings, (0.06, 0.03), strict=True):
        fitted = setting.laws["toy"].parameters
        assert fitted["kappa"] == pytest.approx(0.8, abs=0.05)
        penalty = Law("toy", fitted).terms(3e8, 5e8, 5.0).overfitting
        assert penalty == pytest.approx(
            Law("toy", TRUTH | {"P": size}).terms(3e8, 5e8, 5.0).overfitting, rel=0.1
        )
        members = setting.law_draws("toy")
        assert members is not None
        assert members.has_draws
    assert calibration.default_law == "toy"  # it is the truth, and predicts left-out cells best


def test_it_is_planned_with_and_compared(calibration: Calibration, toy: LawForm) -> None:
    p = plan(ud=250e6, flops=5e18, calibration=calibration, law="toy", extrapolate=True)
    assert p.law == "toy"
    assert p.intervals is not None
    assert p.epochs * p.params * 250e6 * 6 == pytest.approx(5e18)
    exact = predict(
        p.params, 250e6, p.epochs, calibration=calibration, law="toy", weight_decay=p.weight_decay
    )
    assert exact.loss == pytest.approx(p.loss, rel=1e-12)
    law = calibration.law(p.weight_decay, "toy")
    epochs = np.arange(1.0, 200.0)
    assert (
        p.loss <= law.loss(5e18 / (6 * 250e6) / epochs, 250e6, epochs).min() + 1e-9
    )  # no whole number is better
    assert "toy" in {row.law for row in compare(250e6, 5e18, calibration=calibration).rows}
    along = frontier(250e6, np.geomspace(1e17, 1e20, 50), calibration=calibration, law="toy")
    assert np.isfinite(along.loss).all()
    found = compare_settings(*calibration.settings, law="toy")
    assert found[0].ratio == pytest.approx(0.5, rel=0.1)


def test_its_slopes_and_curvature_are_exact(toy: LawForm) -> None:
    law, point = Law("toy", TRUTH), (3e8, 5e8, 6.0)
    for i, slope in enumerate(law.slopes(*point)):
        ahead, behind = (
            law.loss(*(x * np.exp(step * (k == i)) for k, x in enumerate(point))) for step in (1e-5, -1e-5)
        )
        assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)


@pytest.mark.slow
def test_a_table_that_cannot_identify_it_is_named(toy: LawForm) -> None:
    table = grid_table(Law("toy", TRUTH), 60, 0.002, np.random.default_rng(1))
    same = table[(table["epochs"] == 1) | (table["params"] / table["unique_tokens"] == 1)]
    few = table[table["epochs"] == 1]
    one = table[table["epochs"] > 1].head(1).assign(run="again")
    for some in (same, few, pd.concat([few, one])):
        assert "toy" in {found.form for found in unidentified(some)}
    assert "toy" not in {found.form for found in unidentified(table)}


@pytest.mark.slow
def test_it_is_designed_for_drawn_and_reported(calibration: Calibration, tmp_path: Path) -> None:
    proposed = design(1e19, "250M", 5e18, calibration=calibration, law="toy", max_runs=4)
    assert proposed.law == "toy"
    assert proposed.loss_error_after < proposed.loss_error_before
    from planner.show import plots

    plots.allocation_frontier(250e6, calibration=calibration).savefig(tmp_path / "frontier.png")
    plots.isoflop(plan(ud=250e6, flops=5e18, calibration=calibration, law="toy"), calibration).savefig(
        tmp_path / "isoflop.png"
    )
    page = report(calibration)
    assert "toy law" in page


def test_help_and_errors_list_it(toy: LawForm) -> None:
    from planner import InvalidInput

    with pytest.raises(InvalidInput, match="toy"):
        plan(ud=250e6, flops=5e18, law="nonsense")
    with pytest.raises(InvalidInput, match="registered already"):
        register(toy)
    assert "toy" in FORMS


# -- a new kind of term --------------------------------------------------------------------------------------

SHAPED = {"E": 1.9, "A": 420.0, "alpha": 0.34, "B": 3600.0, "beta": 0.37, "S": 0.05, "omega": 0.5, "P": 0.002}


def _strain(p: Values, at: At) -> Array:
    """A cost of models that are deep for few tokens, which no other form has, beyond one epoch only."""
    return p["S"] * at.repeated * np.log1p(np.exp(p["omega"] * (at.ln_params - at.ln_unique)))


def _wear(p: Values, at: At) -> Array:
    return p["P"] * at.repeats**1.5


def _strained(p: Values, at: At) -> Terms:
    """Data is worth ln(1 + e) / ln 2 times its unique tokens, and there are two costs of repetition."""
    worth = at.ln_used + np.log(np.log1p(1 + at.repeats) / np.log(2.0))
    return base_terms(p, at, ln_data=worth, overfitting=_strain(p, at) + _wear(p, at))


@pytest.fixture(scope="module")
def strained() -> Iterator[LawForm]:
    yield register(
        LawForm(
            "strained",
            "strained",
            Style("#1f7a4f", "#9df0b7", "dash"),
            "for tests",
            "D' = U ln(1+e)/ln 2; + S ln(1 + (N/U)^ω) + P R^1.5",
            (
                Parameter(
                    "S",
                    "S",
                    "amplitude",
                    (1e-6, 10.0),
                    (0.01, 0.1),
                    1.0,
                    lambda p, at: 1 / _strain({**p, "S": 1.0}, at),
                ),
                exponent("omega", "ω", (0.3, 0.9), 0.3, acts_on="params / unique_tokens"),
                amplitude(_wear, (0.001, 0.03)),
            ),
            _strained,
            standard=False,
        )
    )
    unregister("strained")


@pytest.mark.parametrize("prior", ["none", "auto"])
def test_a_new_kind_of_term_is_one_declaration(strained: LawForm, prior: str, tmp_path: Path) -> None:
    """Two amplitudes, a logarithm in the data term, no power law of repeats: fitted, planned and drawn."""
    truth = Law("strained", SHAPED)
    table = grid_table(truth, 80, 0.0005, np.random.default_rng(3))
    found = fit(table, laws=["strained", "additive_4p"], bootstrap=20, name="strained", prior=prior)
    point = (3e8, 5e8, 6.0)
    law = found.law(0.1, "strained")
    assert float(law.loss(*point)) == pytest.approx(float(truth.loss(*point)), rel=2e-3)
    assert law.terms(*point).overfitting == pytest.approx(truth.terms(*point).overfitting, rel=0.15)
    p = plan(ud=250e6, flops=5e18, calibration=found, law="strained")
    epochs = np.geomspace(0.2, 100.0, 4000)
    best = law.loss(5e18 / (6 * 250e6) / epochs, 250e6, epochs).min()
    whole = np.arange(1.0, 100.0)
    at_whole = law.loss(5e18 / (6 * 250e6) / whole, 250e6, whole).min()
    assert best - 1e-9 <= p.loss <= at_whole + 1e-9
    assert p.intervals is not None
    from planner.show import plots

    plots.isoflop(p, found).savefig(tmp_path / "isoflop.png")
    assert "strained" in report(found)
