"""What a user with other column names relies on: obvious ones are guessed and said, others are named."""

import numpy as np
import pandas as pd
import pytest

from calibration import read_runs
from calibration.fitting.runs.tables import warnings_of, written_number
from planner.inputs import InvalidInput
from tests.calibration.fitting.tables import runs, same

TABLE = runs()
NAMES = {"params": "size", "loss": "summary/score", "epochs": "passes"}
SAID = "params=size, loss=summary.score ,epochs=passes"


@pytest.mark.parametrize("columns", [SAID, {"params": "size", "loss": "summary/score", "epochs": "passes"}])
def test_columns_are_those_that_the_caller_names(columns):
    table = read_runs(TABLE.rename(columns=NAMES), columns=columns)
    same(table, TABLE)
    assert list(table["size"]) == list(table["params"])  # and kept under their own name
    assert warnings_of(table) == []


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("params", "must be pairs such as params=config.n_params"),
        ("", "must be pairs"),
        ("params=", "must be pairs"),
        ("params=size,params=passes", "each once"),
        ("parameters=size", "knows run, params"),
        ("params=sise", "takes params from 'sise'; the run table has run, size"),
        (3, "must be pairs"),
    ],
)
def test_mistakes_in_columns_are_named(columns, reason):
    with pytest.raises(InvalidInput, match=reason):
        read_runs(TABLE.rename(columns=NAMES), columns=columns)


def test_another_unit_is_a_factor_or_a_logarithm():
    other = TABLE.assign(size=TABLE["params"] / 1e6, ppl=2.718281828459045 ** TABLE["loss"])
    table = read_runs(other.drop(columns=["params", "loss"]), columns="params=size*1e6,loss=ln(ppl)")
    same(table, TABLE)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("params", "config.model.n_params"),
        ("params", "numParameters"),
        ("params", "Total Params"),
        ("unique_tokens", "hparams/dataset_tokens"),
        ("epochs", "training_args.num_train_epochs"),
        ("weight_decay", "optimizer.WeightDecay"),
        ("weight_decay", "opt.weight_decay"),
        ("weight_decay", "config.groups.muon.weight_decay"),
        ("loss", "eval/loss"),
        ("loss", "eval/val_loss"),
        ("loss", "eval/c4/val_loss"),
        ("loss", "Final val loss"),
        ("run", "Run Name"),
    ],
)
def test_obvious_names_are_guessed_and_said(ours, theirs):
    table = read_runs(TABLE.rename(columns={ours: theirs}))
    same(table, TABLE)
    assert [note.text for note in warnings_of(table)] == [f"read {ours} from {theirs}"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("loss", "best/val_loss"),
        ("loss", "eval/c4_loss_x"),
        ("params", "draft_model.n_params"),
        ("weight_decay", "group0_wd"),
    ],
)
def test_names_that_are_not_sure_are_said_and_not_taken(ours, theirs):
    table = TABLE.rename(columns={ours: theirs}).assign(**{"train/loss": TABLE["loss"] - 0.1})
    with pytest.raises(InvalidInput, match=f"no column {ours}; .*{theirs}"):
        read_runs(table)
    same(read_runs(table, columns={ours: theirs}), TABLE)


def test_tokens_of_the_validation_set_are_not_those_of_the_training():
    with pytest.raises(InvalidInput, match="no column epochs"):
        read_runs(TABLE.rename(columns={"epochs": "eval/total_tokens"}))


def test_no_weight_decay_is_said_for_runs_that_differ_in_a_column_of_that_name():
    decays = [0.1, 0.5, 0.5] * 9
    for theirs in ("group0_wd", "final weight-decay"):
        table = TABLE.drop(columns="weight_decay").assign(**{theirs: decays})
        with pytest.raises(InvalidInput, match=f"{theirs} of the run table differs between runs"):
            read_runs(table, weight_decay=0.1)
        assert list(read_runs(table, columns={"weight_decay": theirs})["weight_decay"]) == decays
    same(read_runs(table.assign(**{theirs: 0.1}), weight_decay=0.1), TABLE)


def test_a_unit_in_the_name_is_believed():
    table = read_runs(TABLE.assign(params=TABLE["params"] / 1e6).rename(columns={"params": "Params (M)"}))
    assert list(table["params"]) == list(TABLE["params"])
    assert warnings_of(table)[0].text == "read params from Params (M) times 1e6"


@pytest.mark.parametrize(
    ("name", "change"), [("eval/perplexity", 2.718281828459045), ("bits_per_token", None)]
)
def test_a_loss_that_says_its_form_is_changed_into_nats(name, change):
    loss = change ** TABLE["loss"] if change else TABLE["loss"] / 0.6931471805599453
    table = read_runs(TABLE.drop(columns="loss").assign(**{name: loss}))
    pd.testing.assert_series_equal(table["loss"], TABLE["loss"])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"loss": "bpb"}, r"bits per byte \(bpb\).*loss=bpb\*2.9"),
        ({"loss": "train_loss"}, "only train_loss; laws are about the validation loss"),
        ({"params": "non_embedding_params"}, "laws count all parameters, embeddings included"),
        ({"params": "width"}, "no column params; it has run, width"),
        ({"params": "width", "run": "Name"}, "no column params; it has Name, width.* weight_decay, loss;"),
    ],
)
def test_what_must_not_be_guessed_is_refused_with_the_way_to_say_it(columns, reason):
    with pytest.raises(InvalidInput, match=reason):
        read_runs(TABLE.rename(columns=columns))


@pytest.mark.parametrize(
    "name", ["train/tokens_seen", "throughput/total_tokens", "train/num_input_tokens_seen"]
)
def test_tokens_that_loggers_count_are_guessed(name):
    tokens = TABLE["unique_tokens"] * TABLE["epochs"]
    table = read_runs(TABLE.drop(columns="epochs").assign(**{name: tokens}))
    np.testing.assert_allclose(table["epochs"], TABLE["epochs"])
    assert warnings_of(table)[0].text == f"read tokens from {name}"
    epochs = read_runs(TABLE.rename(columns={"epochs": "train/epoch"}))
    np.testing.assert_allclose(epochs["epochs"], TABLE["epochs"])


def test_two_columns_that_differ_are_not_chosen_between():
    with pytest.raises(InvalidInput, match="both loss and val_loss, and they differ"):
        read_runs(TABLE.assign(val_loss=TABLE["loss"] + 0.1))
    assert len(read_runs(TABLE.assign(val_loss=TABLE["loss"] + 0.1), columns="loss=val_loss")) == 27
    two = TABLE.rename(columns={"epochs": "config.epochs"}).assign(**{"summary.epochs": TABLE["epochs"] + 1})
    with pytest.raises(InvalidInput, match=r"'config.epochs' and in 'summary.epochs', and they differ"):
        read_runs(two)


def test_two_of_unique_tokens_tokens_and_epochs_are_enough():
    tokens = TABLE["unique_tokens"] * TABLE["epochs"]
    table = read_runs(TABLE.drop(columns="unique_tokens").assign(tokens=tokens))
    pd.testing.assert_series_equal(table["unique_tokens"], TABLE["unique_tokens"])


# -- settings inside names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1b5", 1.5e9),
        ("100m", 1e8),
        ("2p8b", 2.8e9),
        ("1.5B", 1.5e9),
        ("0p1", 0.1),
        ("3", 3),
        ("1e-1", 0.1),
        ("7t", 7e12),
    ],
)
def test_numbers_as_names_have_them(text, value):
    assert written_number(text) == pytest.approx(value)


def test_settings_are_read_from_run_names():
    named = pd.DataFrame(
        {"run": ["gpt-1b5_30b_4ep-wd0.1-s1", "gpt-100m_2B_0p5ep-wd0.1-s2"], "loss": [2.9, 3.6]}
    )
    table = read_runs(named, pattern="*-{params}_{tokens}_{epochs}ep-wd{weight_decay}-s{seed}")
    assert list(table["params"]) == [1.5e9, 1e8]
    assert list(table["unique_tokens"]) == [7.5e9, 4e9]
    assert list(table["weight_decay"]) == [0.1, 0.1]
    assert list(table["seed"]) == [1, 2]
    assert (
        warnings_of(table)[0].text
        == "read params, tokens, epochs, weight_decay, seed from the names of the runs"
    )


def test_names_that_do_not_fit_are_rows_with_a_problem():
    odd = TABLE[["run", "loss"]].copy()
    odd.loc[2, "run"] = "test run, please ignore"
    how = {"pattern": "{params}_{unique_tokens}_{epochs}ep", "weight_decay": 0.1}
    with pytest.raises(InvalidInput, match="row 3, run: 'test run, please ignore' does not fit"):
        read_runs(odd, **how)
    assert len(read_runs(odd, **how, drop_missing=True)) == 26


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("{params}{tokens}", "cannot tell where {tokens} begins"),
        ("{params}_{params}", "{params} has it twice"),
        ("{loss}_{params}", "{loss} cannot be part of a name"),
        ("params", "must be a pattern such as"),
        ("*", "names no field"),
        ("{1x}-{params}", "must be a pattern such as"),
        ("{params}-x-{epochs}", "fits no run of the run table, such as '20m_100m_1ep'"),
    ],
)
def test_mistakes_in_patterns_are_named(pattern, reason):
    with pytest.raises(InvalidInput, match=reason):
        read_runs(TABLE, pattern=pattern)


# -- runs that came to no end --------------------------------------------------------------------------------


def test_missing_runs_are_refused_and_dropped_only_when_asked():
    lost = TABLE.assign(loss=TABLE["loss"].where(TABLE.index > 1), status="finished")
    lost.loc[5, "status"] = "FAILED"
    lost["loss"] = lost["loss"].astype(object)
    lost.loc[9, "loss"] = "-inf"
    with pytest.raises(InvalidInput, match="drop_missing leaves out the 4 rows"):
        read_runs(lost)
    table = read_runs(lost, drop_missing=True)
    assert len(table) == 23
    (note,) = warnings_of(table)
    assert note.text == (
        "left out 4 of 27 runs: loss is missing in 2 (20m_100m_1ep, 20m_100m_2ep), status 'FAILED' in 1 "
        "(20m_400m_8ep), loss is not finite in 1 (80m_100m_1ep)"
    )


def test_what_is_wrong_is_never_dropped():
    with pytest.raises(InvalidInput, match="'many' is not a number"):
        read_runs(TABLE.assign(params=["many", *TABLE["params"][1:]]), drop_missing=True)


def test_nothing_left_is_said():
    with pytest.raises(InvalidInput, match="no run of the run table is left after drop_missing"):
        read_runs(TABLE.assign(state="crashed"), drop_missing=True)
