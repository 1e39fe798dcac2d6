"""The law of what members gain is found again from ensembles that obey it, and nothing is made of less."""

from __future__ import annotations

import itertools
import math

import pandas as pd
import pytest

from calibration.fitting.members import fit_members, observed_gains, predicted_gain
from planner.calibration import QUANTITIES, Recipe
from planner.inputs import InvalidInput

RECIPE = Recipe(learning_rate=0.01, batch_sequences=4, sequence_length=128)


def table(upto: int = 8, density: float = 0.2) -> pd.DataFrame:
    rows = []
    for params, unique, epochs, decay in itertools.product(
        (9e4, 2.2e5), (32768, 65536), (8, 16), (0.75, 1.5)
    ):
        memory = RECIPE.timescale_tokens(decay) / unique
        gain = 0.2 * (params / 1e5) ** 0.3 * (unique / 5e4) ** -0.4 * (epochs / 10) ** 0.5
        gain *= memory ** (0.6 + density * math.log(params / unique))
        rows += [
            {
                "params": params,
                "unique_tokens": unique,
                "epochs": epochs,
                "weight_decay": decay,
                "members": members,
                "loss": 4.5 - gain * (1 - 1 / members),
            }
            for members in range(1, upto + 1)
        ]
    return pd.DataFrame(rows)


def test_the_law_is_found_again_and_foretells_more_members() -> None:
    known = fit_members(table(), RECIPE, upto=4)
    assert known.exponents.epochs == pytest.approx(0.5)
    assert known.exponents.density == pytest.approx(0.2)
    assert (known.most_members, known.fitted_on.runs) == (8, 128)
    assert known.error == pytest.approx(0, abs=1e-12)
    gains = observed_gains(table(), RECIPE)
    assert predicted_gain(known, gains) == pytest.approx(gains["gain"].to_numpy())


def test_a_plain_law_is_a_product_of_powers() -> None:
    known = fit_members(table(density=0.0), RECIPE, upto=4, plain=True)
    found = [getattr(known.exponents, name) for name in QUANTITIES]
    assert found == pytest.approx([0.3, -0.4, 0.5, 0.6])
    assert known.exponents.density == 0
    assert fit_members(table(), RECIPE, plain=True).error > 0.01


def test_few_cells_have_no_product() -> None:
    few = table().query("epochs == 8 and (params == 9e4 or weight_decay == 0.75)")
    assert fit_members(few, RECIPE).exponents.density == 0


def test_a_quantity_that_did_not_vary_has_no_exponent() -> None:
    one_size = table(4, density=0.0).query("params == 9e4")
    known = fit_members(one_size, RECIPE)
    assert known.exponents.params == pytest.approx(0, abs=1e-9)
    assert known.exponents.epochs == pytest.approx(0.5)


def test_what_cannot_be_fitted_is_said() -> None:
    with pytest.raises(InvalidInput, match="more seeds"):
        fit_members(table(1), RECIPE)
    worse = table(2)
    worse.loc[1, "loss"] = 5.0
    with pytest.raises(InvalidInput, match="no better than one"):
        fit_members(worse, RECIPE)
    with pytest.raises(InvalidInput, match="column loss"):
        fit_members(table().drop(columns="loss"), RECIPE)
    with pytest.raises(InvalidInput, match="one member"):
        fit_members(table().query("members > 1"), RECIPE)
