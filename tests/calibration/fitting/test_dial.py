"""One law for every weight decay: fitted to all at once, judged on those left out."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from calibration.commands.dial import dial
from calibration.fitting.dial import fit_dial, fit_dials, left_out, with_memory
from planner import plan
from planner.calibration_files import Recipe
from planner.errors import InvalidInput
from planner.laws import DIALS, MEMORY, Law
from tests.planner.test_dialling import PARAMETERS

RECIPE = Recipe(learning_rate=0.01, batch_sequences=4, sequence_length=128)
DECAYS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def runs(noise: float = 0.003, decays: tuple[float, ...] = DECAYS) -> pd.DataFrame:
    """A dial study whose law is known."""
    sizes, tokens = (65e3, 110e3, 220e3, 450e3), (32768.0, 65536.0, 131072.0)
    cells = itertools.product(sizes, tokens, (1.0, 4.0, 12.0), decays)
    table = pd.DataFrame(cells, columns=["params", "unique_tokens", "epochs", "weight_decay"])
    table["tokens"] = table["unique_tokens"] * table["epochs"]
    memory = 512 / (0.01 * table["weight_decay"].clip(lower=1e-9).to_numpy())
    law = Law("dial_simple", {**PARAMETERS, MEMORY: memory})
    loss = law.loss(*(table[name].to_numpy() for name in ("params", "unique_tokens", "epochs")))
    table["loss"] = loss * np.exp(np.random.default_rng(0).normal(0, noise, len(table)))
    table["run"] = [f"r{i}" for i in range(len(table))]
    return table


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return with_memory(runs(), RECIPE)


def test_the_law_behind_the_runs_is_found(table: pd.DataFrame) -> None:
    fits = fit_dials(table, ["dial_simple"])
    found = fits.forms["dial_simple"]
    assert found.optimum.share > 0.5
    for name in ("alpha", "beta", "delta", "kappa", "mu", "k"):
        assert found.parameters[name] == pytest.approx(PARAMETERS[name], rel=0.15), name
    for one in left_out(fits, table, "dial_simple"):
        assert one.weight_decay in DECAYS[1:-1]
        assert one.error < 0.006


def test_a_weight_decay_that_was_left_out_says_nothing(table: pd.DataFrame) -> None:
    """Left out means left out: its losses may be anything."""
    spoiled = table.copy()
    spoiled.loc[spoiled["weight_decay"] == 1.0, "loss"] *= 1.5
    fits = fit_dials(spoiled, ["dial_simple"])
    errors = {one.weight_decay: one.error for one in left_out(fits, spoiled, "dial_simple")}
    assert errors[1.0] == pytest.approx(np.log(1.5), abs=0.02)


def test_a_calibration_that_plans_any_weight_decay(table: pd.DataFrame) -> None:
    known = fit_dial(table, RECIPE, forms=["dial_simple", "dial_hinge"], bootstrap=0)
    assert known.default_law in DIALS
    assert known.weight_decays == DECAYS
    found = plan(65536, 3e11, calibration=known)
    truth = Law("dial_simple", {**PARAMETERS, MEMORY: 512 / (0.01 * found.weight_decay)})
    assert found.loss == pytest.approx(float(truth.loss(found.params, 65536, found.epochs)), abs=0.03)
    assert found.sureness is not None


def test_what_is_missing_is_said_in_one_sentence(table: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"needs runs at 3 weight decays or more; these have 0.1, 1"):
        fit_dials(table[table["weight_decay"].isin([0.1, 1.0])])
    with pytest.raises(InvalidInput, match="a dial needs the learning rate of the runs"):
        with_memory(runs(), None)
    with pytest.raises(InvalidInput, match="learning rate of every run, and 1 have none"):
        with_memory(runs().assign(learning_rate=[float("nan")] + [0.01] * 215, batch_tokens=512), None)
    path = tmp_path / "runs.csv"
    runs().to_csv(path, index=False)
    answer = CliRunner().invoke(dial, [str(path), "--learning-rate", "0.01"])
    assert answer.exit_code == 2
    assert "--batch-sequences is missing" in answer.output


def test_runs_without_weight_decay_count_as_never_forgetting() -> None:
    table = runs(decays=(0.0, 0.3, 1.0, 3.0))
    known = fit_dial(table, RECIPE, forms=["dial_simple"], bootstrap=0)
    once = table[(table["weight_decay"] == 0) & (table["epochs"] == 4)].iloc[0]
    found = known.law(0.0).loss(once["params"], once["unique_tokens"], 4.0)
    assert found == pytest.approx(once["loss"], rel=0.02)
    assert plan(65536, 3e11, calibration=known).weight_decay > 0.1
