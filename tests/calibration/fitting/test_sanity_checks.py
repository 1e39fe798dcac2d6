"""What a user relies on who mixed up a unit or a column: the slip is named, with what to type instead."""

import math

import numpy as np
import pandas as pd
import pytest

from calibration import read_runs
from calibration.fitting.runs.tables import warnings_of
from planner.calibration import Calibration
from planner.inputs import InvalidInput
from tests.calibration.fitting.tables import runs, same

TABLE = runs()


def warned(table: pd.DataFrame, **how) -> dict[str, str]:
    return {note.code: note.text for note in warnings_of(read_runs(table, **how)) if note.warns}


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ({"params": 1e6}, "params look like millions (80 parameters on 800M tokens)"),
        ({"params": 1e9}, "params look like billions (0.08 parameters on 800M tokens)"),
        ({"unique_tokens": 1e6}, "tokens look like millions (80M parameters on 800 tokens)"),
        ({"params": 1e6, "unique_tokens": 1e6}, "params and tokens look like millions"),
        ({"params": 1e6, "unique_tokens": 1e9}, "params and tokens look like millions and billions"),
    ],
)
def test_counts_in_millions_are_refused_and_the_cure_works(factors, words):
    slip = TABLE.assign(**{name: TABLE[name] / factor for name, factor in factors.items()})
    with pytest.raises(InvalidInput) as error:
        read_runs(slip)
    assert words in str(error.value)
    cure = str(error.value).split("'")[1]
    assert cure == ",".join(f"{name}={name}*1e{math.log10(factor):.0f}" for name, factor in factors.items())
    same(read_runs(slip, columns=cure), TABLE)


def test_perplexities_are_refused_and_the_cure_works():
    slip = TABLE.assign(loss=np.exp(TABLE["loss"]))
    with pytest.raises(InvalidInput, match="looks like a perplexity") as error:
        read_runs(slip.rename(columns={"loss": "val_loss"}))
    cure = str(error.value).split("'")[1]
    assert cure == "loss=ln(val_loss)"
    same(read_runs(slip.rename(columns={"loss": "val_loss"}), columns=cure), TABLE)


def test_low_perplexities_are_doubted():
    strong = runs(sizes=(3e9, 1e10, 3e10), budgets=(1e11, 4e11, 1.6e12), epochs=(1, 2, 4))
    assert np.median(np.exp(strong["loss"])) < 12
    assert "perplexities" in warned(strong.assign(loss=np.exp(strong["loss"])))["unit_of_loss"]


@pytest.mark.parametrize(
    ("factor", "words", "cure"),
    [
        (math.log(2), "if they are bits,", "loss=loss*0.6931"),
        (math.log(2) * 4.2, "bits per byte", "loss=loss*2.9"),
    ],
)
def test_bits_are_doubted(factor, words, cure):
    slip = TABLE.assign(loss=TABLE["loss"] / factor)
    text = warned(slip)["unit_of_loss"]
    assert words in text
    assert f"'{cure}'" in text
    assert warned(slip, columns=cure) == {}


def test_checkpoints_are_no_runs():
    rows = runs(epochs=range(1, 9))
    text = warned(rows)["checkpoints"]
    assert "20m_100m_1ep to 20m_100m_8ep look like checkpoints of one run" in text
    assert "epochs == 8" in text
    called = runs(epochs=(1, 2, 4))
    assert warned(called) == {}
    steps = called.assign(run=[f"r{i // 3}/step_{100 * (i % 3)}" for i in range(27)])
    assert "checkpoints" in warned(steps)


def test_losses_of_the_best_checkpoint_are_noticed():
    law = Calibration.load(None).settings[0].law("additive_4p")
    grid = {"sizes": (4e7, 1.6e8, 6.4e8), "budgets": (1e8, 2.5e8, 6.25e8), "epochs": (1, 2, 4, 8, 16)}
    final, noise = runs(**grid), np.exp(0.003 * np.random.default_rng(1).normal(size=45))
    assert warned(final) == {}
    best = [
        law.loss(r.params, r.unique_tokens, np.linspace(0.1, r.epochs, 100)).min() for r in final.itertuples()
    ]
    text = warned(final.assign(loss=np.array(best) * noise))["best_checkpoint"]
    assert "losses of the best checkpoint, which hide overfitting" in text


def test_a_mixture_of_tokenizers_is_named():
    mixed = TABLE.assign(**{"config.tokenizer": ["gpt2"] * 13 + ["llama"] * 14})
    text = warned(mixed)["tokenizers"]
    assert "config.tokenizer (llama in 14, gpt2 in 13)" in text
    where = text.split("'")[1]
    assert len(read_runs(mixed, where=where)) == 14
    assert warned(mixed, where=where) == {}


def test_embeddings_that_were_left_out_are_named():
    more = warned(TABLE.assign(total_params=TABLE["params"] * 1.4))["not_all_parameters"]
    assert "total_params is up to 40% larger" in more
    assert (
        "embeddings were left out"
        in warned(TABLE.assign(non_embedding_params=TABLE["params"]))["not_all_parameters"]
    )
    assert warned(TABLE.assign(non_embedding_params=TABLE["params"] * 0.7)) == {}


def test_copies_of_runs_are_no_replicates():
    copies = pd.concat([TABLE, TABLE.head(2).assign(run=["again", "and again"])])
    assert "4 runs have the settings and the loss of another" in warned(copies)["copies"]
    seeds = TABLE.head(2).assign(run=["again", "and again"], loss=TABLE["loss"].head(2) + 0.01)
    assert warned(pd.concat([TABLE, seeds])) == {}


def test_pure_noise_is_named():
    rng = np.random.default_rng(3)
    found = [warned(TABLE.assign(loss=3 + 0.1 * rng.normal(size=27))) for _ in range(10)]
    assert sum("unrelated" in notes for notes in found) >= 8
    assert "all 27 losses are equal" in warned(TABLE.assign(loss=3.0))["unrelated"]


@pytest.mark.parametrize("fewer", range(5))
def test_few_honest_runs_raise_no_doubt(fewer):
    assert warned(TABLE.sample(12, random_state=fewer)) == {}


@pytest.mark.parametrize("where", ["in_paper158 == 1", "in_filtered182 == 1", "kind == base", "epochs > 0"])
def test_of_the_public_runs_no_others_are_doubted_than_those_that_contradict_others(shared_data, where):
    found = warned(shared_data / "datablations_c4_runs.csv", weight_decay=0.1, where=where)
    assert "83m1b51b5 up to 4% above runs of as many tokens, fewer of them new" in found.pop("out_of_order")
    if where != "in_paper158 == 1":  # which has no run of more than 64 epochs
        assert "(83m32b100m and 83m60b100m)" in found.pop("same_loss")
    assert found == {}


def test_the_pilot_of_tiny_models_raises_no_doubt(shared_data):
    assert warned(shared_data / "micro_pilot_runs.csv") == {}
