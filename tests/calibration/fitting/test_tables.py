"""What a user of a run table relies on: everything usable is read,
everything unusable is named at once, nothing else happens.
"""

import contextlib
import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration.fitting.identify import Run, unidentified
from calibration.fitting.runs.checks import COLUMNS, RunTableError
from calibration.fitting.runs.filters import RowFilter
from calibration.fitting.runs.tables import read_runs
from planner.inputs import InvalidInput
from planner.laws import STANDARD
from tests.places import SHARED

needs_shared = pytest.mark.skipif(
    not (SHARED / "data").is_dir(), reason="the public run data (../shared/data) is not here"
)


def frame(**columns) -> pd.DataFrame:
    """Three usable runs, with some columns replaced."""
    usual = {
        "run": ["a", "b", "c"],
        "params": [1e7, 2e7, 4e7],
        "unique_tokens": [1e8, 2e8, 4e8],
        "epochs": [1.0, 2.0, 4.0],
        "weight_decay": [0.1, 0.1, 1.0],
        "loss": [4.0, 3.5, 3.0],
    }
    merged = {**usual, **columns}
    return pd.DataFrame({name: values for name, values in merged.items() if values is not None})


def grid(sizes=(1e7, 4e7, 1.6e8), budgets=(1e8, 4e8, 1.6e9), epochs=(1, 2, 8), decay=0.1) -> pd.DataFrame:
    rows = [(f"{n}-{u}-{e}", n, u, e, decay, 3.0) for n in sizes for u in budgets for e in epochs]
    return read_runs(
        pd.DataFrame(rows, columns=["run", "params", "unique_tokens", "epochs", "weight_decay", "loss"])
    )


# -- reading -------------------------------------------------------------------------------------------------


def test_tokens_follow_from_epochs_and_epochs_from_tokens():
    by_epochs = read_runs(frame())
    by_tokens = read_runs(frame(epochs=None, tokens=[1e8, 4e8, 1.6e9]))
    pd.testing.assert_frame_equal(by_epochs, by_tokens)
    assert list(by_epochs.columns) == list(COLUMNS)


def test_total_tokens_is_read_as_tokens_and_kept():
    table = read_runs(frame(epochs=None, total_tokens=[1e8, 4e8, 1.6e9]))
    assert list(table["tokens"]) == [1e8, 4e8, 1.6e9]
    assert list(table["total_tokens"]) == [1e8, 4e8, 1.6e9]


def test_counts_may_be_written_as_people_say_them():
    table = read_runs(frame(params=["10M", "0.02B", 4e7], unique_tokens=["100M", "200 million", "4e8"]))
    assert list(table["params"]) == [1e7, 2e7, 4e7]
    assert list(table["unique_tokens"]) == [1e8, 2e8, 4e8]


def test_csv_parquet_and_frame_give_the_same_table(tmp_path):
    source = frame(note=["x", "", "z"], seed=[1, 2, 3])
    source.to_csv(tmp_path / "runs.csv", index=False)
    source.to_csv(tmp_path / "runs.tsv", index=False, sep="\t")
    source.to_parquet(tmp_path / "runs.parquet")
    expected = read_runs(source)
    for name in ("runs.csv", "runs.tsv", "runs.parquet"):
        pd.testing.assert_frame_equal(read_runs(tmp_path / name), expected, check_dtype=False)


def test_the_source_is_never_changed(tmp_path):
    source = frame(params=["10M", 2e7, 4e7])
    before = source.copy(deep=True)
    read_runs(source)
    pd.testing.assert_frame_equal(source, before)
    path = tmp_path / "runs.csv"
    source.to_csv(path, index=False)
    content = path.read_bytes()
    path.chmod(0o444)
    read_runs(path)
    assert path.read_bytes() == content


def test_weight_decay_must_come_from_the_table_or_from_the_caller():
    with pytest.raises(InvalidInput, match="no column weight_decay"):
        read_runs(frame(weight_decay=None))
    assert set(read_runs(frame(weight_decay=None), weight_decay=0.1)["weight_decay"]) == {0.1}
    assert list(read_runs(frame(weight_decay=[None, 0.1, 1.0]), weight_decay=0.5)["weight_decay"]) == [
        0.5,
        0.1,
        1.0,
    ]


def test_products_larger_than_an_integer_do_not_wrap_around():
    table = read_runs(frame(params=[8670000000] * 3, unique_tokens=[178000000000] * 3))
    assert (table["params"] * table["tokens"]).min() > 1e21


# -- bad rows ------------------------------------------------------------------------------------------------


def test_all_bad_cells_are_reported_at_once_by_row_and_column():
    bad = frame(
        run=["a", "a", None],
        params=["x", -1, 4e7],
        unique_tokens=[1e8, math.inf, 4e8],
        tokens=[1e8, 4e8, 9e9],
        weight_decay=[0.1, -0.1, 1.0],
        loss=[None, 0.0, True],
    )
    with pytest.raises(RunTableError) as error:
        read_runs(bad)
    found = {(p.row, p.column) for p in error.value.problems}
    assert found == {
        (1, "params"),
        (1, "loss"),
        (2, "run"),
        (2, "params"),
        (2, "unique_tokens"),
        (2, "weight_decay"),
        (2, "loss"),
        (3, "run"),
        (3, "tokens"),
        (3, "loss"),
    }
    assert "row 1 (a), params: 'x' is not a number" in str(error.value)
    assert "row 3, tokens: 9e+09 is 22.5 epochs of the unique tokens, but epochs says 4" in str(error.value)


def test_each_problem_is_named_once_with_the_rows_that_have_it():
    with pytest.raises(RunTableError) as error:
        read_runs(pd.concat([frame(loss=["x", "y", 3.0])] * 2, ignore_index=True).assign(run=[*"abcdef"]))
    assert "\n  4 rows, loss: is not a number (rows 1: 'x', 2: 'y', 4: 'x', 5: 'y')" in str(error.value)
    table = pd.concat([frame()] * 20)
    with pytest.raises(RunTableError) as error:
        read_runs(table)
    assert "has 57 problems in 57 rows" in str(error.value)
    assert "19 rows, run: 'a' is a duplicate of row 1 (rows 4, 7, 10, 13, 16, 19 and 13 more)" in str(
        error.value
    )
    assert len(str(error.value).splitlines()) == 4
    assert len(error.value.problems) == 57
    with pytest.raises(RunTableError, match="and 7 more"):  # kinds of problems
        read_runs(
            pd.concat([frame()] * 9, ignore_index=True)
            .assign(run=lambda all: [*all.index])
            .assign(epochs=lambda all: all.index + 2, tokens=1e8)
        )


def test_problems_of_columns_of_units_and_of_cells_are_named_together():
    wrong = frame(
        params=[20, 40, "x"], weight_decay=None, loss=[40.0, 30.0, 20.0], epochs=None, unique_tokens=None
    ).assign(**{"config.epochs": [1, 1, 1], "summary.epochs": [2, 2, 2], "unique_tokens": [1e8, 2e8, 4e8]})
    with pytest.raises(RunTableError) as error:
        read_runs(wrong.assign(tokens=[1e8, 2e8, 4e8]))
    heading, *lines = str(error.value).splitlines()
    assert heading == "the run table has 5 problems (row 1 is the first run):"
    assert [line.strip().split(" ")[:2] for line in lines] == [
        ["epochs", "in"],
        ["a", "loss"],
        ["params", "look"],
        ["no", "column"],
        ["row", "3"],
    ]
    assert "weight_decay 0.1" in lines[3]
    with pytest.raises(InvalidInput) as alone:
        read_runs(frame(weight_decay=None))
    said = "add it, or say which one all runs used: weight_decay 0.1."
    assert str(alone.value) == f"the run table has no column weight_decay; {said}"


def test_all_columns_that_a_mapping_names_in_vain_are_said():
    with pytest.raises(InvalidInput, match="takes params from 'sise' and loss from 'los'; the run table has"):
        read_runs(frame(), columns="params=sise,loss=los,epochs=epochs")


def test_what_a_crashed_run_lacks_is_one_problem():
    crashed = frame(loss=[4.0, None, 3.5], epochs=[1, None, 4], tokens=None).assign(
        State=["finished", "crashed", ""]
    )
    with pytest.raises(RunTableError) as error:
        read_runs(crashed)
    assert str(error.value).splitlines() == [
        "the run table has 1 problem (row 1 is the first run):",
        "  row 2 (b), State: 'crashed' is not the end of a run",
        "  drop_missing leaves out the one row without a final loss or a setting",
    ]
    assert list(read_runs(crashed, drop_missing=True)["run"]) == ["a", "c"]


def test_rounded_tokens_and_epochs_do_not_contradict():
    table = read_runs(
        frame(unique_tokens=[3e8] * 3, epochs=[0.33, 3.83, 60.667], tokens=[1e8, 1.15e9, 1.82e10])
    )
    assert list(table["epochs"]) == [0.33, 3.83, 60.667]


def test_rows_need_tokens_or_epochs():
    with pytest.raises(RunTableError, match=r"row 2 \(b\), tokens: is missing, and so is epochs"):
        read_runs(frame(epochs=[1, None, 4], tokens=[None, None, 1.6e9]))


def test_repeated_rows_without_names_are_duplicates():
    with pytest.raises(RunTableError, match="duplicate of row 1"):
        read_runs(pd.concat([frame(run=None)] * 2))


def test_values_in_the_wrong_unit_are_named():
    with pytest.raises(
        RunTableError, match=r"row 1 \(a\), params: 0.01 is outside of 1 to 1e\+18: check its unit"
    ):
        read_runs(frame(params=[0.01, 2e7, 4e7]))


@pytest.mark.parametrize("column", ["params", "unique_tokens", "loss", "epochs"])
def test_a_missing_column_is_named(column):
    with pytest.raises(InvalidInput, match=f"no column {column}"):
        read_runs(frame(**{column: None}))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"params,loss\n", "has no runs"),
        (b"\x00\x01\x02PAR1", "not text"),
        (b"\xff\xfe\x00", "not text"),
        (b"a,b\n1,2\n", "no column params"),
        (b"params,params\n1,2\n", "more than once"),
        (
            b"run,params,unique_tokens,epochs,weight_decay,loss\na,1e7,1e8,1,0.1,3,9,9\n",
            "8 cells where the header has 6",
        ),
    ],
)
def test_odd_files_get_one_clear_message(tmp_path, content, reason):
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=reason):
        read_runs(path)


def test_unreadable_sources_are_named(tmp_path):
    with pytest.raises(InvalidInput, match="does not exist"):
        read_runs(tmp_path / "none.csv")
    with pytest.raises(InvalidInput, match="is a directory"):
        read_runs(tmp_path)
    with pytest.raises(InvalidInput, match="got list"):
        read_runs([1, 2])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(InvalidInput, match="not a readable Parquet"):
        read_runs(tmp_path / "bad.parquet")


# -- filters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("epochs <= 2", "ab"),
        ("epochs < 2 or loss = 3.0", "ac"),
        ("weight_decay == 0.1 and not params > 10M", "a"),
        ("kind == base", "a"),
        ("kind != 'base'", "bc"),
        ('kind in (base, "other one") and (epochs == 1 or epochs == 2)', "ab"),
        ("run not in (a, b)", "c"),
        ("`odd name` >= 2", "bc"),
        ("seed != 1", "bc"),
        ("flag == true", "ac"),
    ],
)
def test_where_selects_rows(where, kept):
    source = frame(kind=["base", "other one", ""], seed=[1, 2, None], flag=[True, False, True])
    source["odd name"] = [1, 2, 3]
    assert "".join(read_runs(source, where=where)["run"]) == kept


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("", "condition such as"),
        ("epochs", "comparison sign"),
        ("epochs <=", "a value is missing at the end"),
        ("(epochs < 3", "not closed"),
        ("epochs < 3 epochs", "unexpected"),
        ("nothing == 3", "refers to column 'nothing'"),
        ("epochs < many", "numeric column 'epochs' with 'many'"),
        ("run < b", "text can only be compared"),
        ("__import__('os').system('true') == 1", "cannot be read"),
        ("epochs @ 3", "cannot be read|comparison sign"),
        ("not " * 200 + "epochs < 3", "nested too deeply"),
        ("(" * 500 + "epochs", "nested too deeply"),
        ("x" * 5000, "at most 2000"),
        ("epochs > 99", "no run of the run table is left"),
    ],
)
def test_where_mistakes_are_named(where, reason):
    with pytest.raises(InvalidInput, match=reason):
        read_runs(frame(), where=where)


def test_max_epochs():
    assert list(read_runs(frame(), max_epochs=2)["run"]) == ["a", "b"]
    with pytest.raises(InvalidInput, match="max_epochs must be above zero"):
        read_runs(frame(), max_epochs=0)


def test_rows_that_a_filter_leaves_out_need_not_be_usable():
    source = frame(kind=["base", "base", "failed"], loss=[4.0, 3.5, None])
    assert len(read_runs(source, where="kind == base")) == 2
    with pytest.raises(RunTableError):
        read_runs(source)


def test_a_filter_never_hides_a_row_that_it_cannot_judge():
    with pytest.raises(RunTableError, match=r"row 3 \(c\), epochs: 'many' is not a number"):
        read_runs(frame(epochs=[1, 2, "many"]), max_epochs=2)
    with pytest.raises(RunTableError, match=r"row 3 \(c\), epochs"):
        read_runs(frame(epochs=[1, 2, "many"]), where="epochs < 2")


# -- identifiability -----------------------------------------------------------------------------------------


def test_an_ordinary_grid_identifies_all_forms():
    assert unidentified(grid()) == []


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (grid(epochs=(2, 8)), "only 0 different single-epoch runs"),
        (grid(sizes=(1e7,), budgets=(1e8, 2e8, 4e8, 8e8, 1.6e9)), "only one model size"),
        (grid(sizes=(1e7, 2e7)), "only two model sizes"),
        (grid(budgets=(1e8,), sizes=(1e7, 2e7, 4e7, 8e7, 1.6e8)), "only one unique-token budget"),
        (grid(epochs=(1,)), "no run repeats its data"),
        (
            grid()[lambda t: (t["epochs"] == 1) | (t["params"] == 1e7)],
            "params is the same in all runs beyond one epoch",
        ),
        (grid()[lambda t: (t["epochs"] == 1) | (t["params"] * 10 == t["unique_tokens"])], "same|collinear"),
    ],
)
def test_tables_that_cannot_identify_a_law_are_named_with_the_run_to_add(table, reason):
    first, *_ = unidentified(table)
    assert re.search(reason, str(first))
    assert "parameters on" in str(first)


def test_sizes_that_follow_the_budgets_identify_nothing():
    table = pd.concat([grid(sizes=(n,), budgets=(20 * n,)) for n in (1e7, 2e7, 4e7, 8e7, 1.6e8, 3.2e8)])
    assert "params and unique_tokens are collinear" in str(unidentified(table)[0])


@pytest.mark.parametrize(
    "missing", [{"epochs": (1,)}, {"sizes": (1e7, 2e7)}, {"budgets": (1e8,)}, {"epochs": (4,)}]
)
def test_adding_the_proposed_runs_makes_the_table_identifiable(missing):
    table = grid(**missing)
    for _ in range(8):
        found = unidentified(table)
        if not found:
            break
        add = pd.DataFrame([run._asdict() for run in found[0].add]).assign(weight_decay=0.1, loss=3.0)
        assert len(add)
        table = pd.concat(
            [table, add.assign(run=[f"new{len(table) + i}" for i in range(len(add))])], ignore_index=True
        )
    assert unidentified(table) == []


def test_every_weight_decay_is_judged_by_itself():
    table = pd.concat([grid(), grid(sizes=(1e7,), decay=1.0)])
    assert {u.weight_decay for u in unidentified(table)} == {1.0}
    assert {u.form for u in unidentified(table)} == set(STANDARD)


def test_forms_that_are_not_asked_for_do_not_matter():
    assert unidentified(grid(epochs=(1,)), ["chinchilla"]) == []


def test_a_run_reads_as_a_sentence():
    assert str(Run(1e7, 1e8, 1.0)) == "10M parameters on 100M unique tokens for 1 epoch"


# -- fuzz: nothing but a valid table or InvalidInput ---------------------------------------------------------


def check_valid(table: pd.DataFrame) -> None:
    numbers = table[list(COLUMNS[1:])].to_numpy()
    assert numbers.dtype == float
    assert len(table)
    assert np.isfinite(numbers).all()
    assert (numbers[:, :4] > 0).all()
    assert (table["weight_decay"] >= 0).all()
    assert (table["loss"] > 0).all()
    assert not table["run"].duplicated().any()
    np.testing.assert_allclose(
        table["tokens"], table["unique_tokens"] * table["epochs"], rtol=0.02 + 0.01 / table["epochs"].min()
    )


def try_everything(source) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with contextlib.suppress(InvalidInput):
            table = read_runs(source, weight_decay=0.1)
            check_valid(table)
            unidentified(table)


CELLS = st.one_of(
    st.none(),
    st.text(max_size=8),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.complex_numbers(),
    st.binary(max_size=4),
    st.sampled_from(
        ["250M", "1e8", "-", "nan", "inf", "1,000", "0x10", "１２", 1e300, 5e-324, 10**400, pd.NA, pd.NaT]
    ),
    st.sampled_from([1e7, 3e7, 1e8, 1.0, 2.0, 4.0, 0.1, 3.0]),
    st.datetimes(),
    st.lists(st.integers(), max_size=2),
)
HEADERS = st.sampled_from([*COLUMNS, "total_tokens", "note", "", "1"])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(HEADERS, max_size=9), st.data())
def test_any_frame_gives_a_valid_table_or_a_reason(headers, data):
    rows = data.draw(st.integers(0, 4))
    columns = [data.draw(st.lists(CELLS, min_size=rows, max_size=rows)) for _ in headers]
    source = pd.DataFrame({i: pd.Series(cells, dtype=object) for i, cells in enumerate(columns)})
    source.columns = pd.Index(headers, dtype=object)
    try_everything(source)


NUMBERS = st.one_of(st.sampled_from([1.0, 1e7, 1e8, 2.0]), st.floats(1e-6, 1e13), st.floats())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=12))
def test_any_numbers_give_a_valid_table_or_a_reason(rows):
    try_everything(pd.DataFrame(rows, columns=["params", "unique_tokens", "epochs", "loss"]))


@settings(
    max_examples=75,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    content=st.one_of(
        st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))
    )
)
def test_any_bytes_give_a_valid_table_or_a_reason(tmp_path, content):
    header = b"run,params,unique_tokens,epochs,loss\n"
    for name, data in (("a.csv", content), ("b.csv", header + content), ("c.parquet", content)):
        path = tmp_path / name
        path.write_bytes(data)
        try_everything(path)


WORDS = ["epochs", "run", "<=", "==", "in", "not", "and", "or", "(", ")", ",", "3", "250M", "'a'", "`", "$"]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)))
def test_any_filter_selects_rows_or_gives_a_reason(text):
    with contextlib.suppress(InvalidInput):
        kept = RowFilter(text)(read_runs(frame()))
        assert kept.dtype == bool
        assert len(kept) == 3


# -- real tables ---------------------------------------------------------------------------------------------


@needs_shared
def test_the_public_runs():
    path = SHARED / "data" / "datablations_c4_runs.csv"
    assert len(read_runs(path, weight_decay=0.1)) == 296
    paper = read_runs(path, weight_decay=0.1, where="in_paper158 == 1")
    assert (len(paper), int((paper["epochs"] <= 1).sum())) == (158, 33)
    pd.testing.assert_frame_equal(
        paper, read_runs(path, weight_decay=0.1, where="kind == base", max_epochs=64)
    )
    assert unidentified(paper) == []


@needs_shared
def test_the_micro_pilot():
    table = read_runs(SHARED / "data" / "micro_pilot_runs.csv", where="held_out == 0")
    assert len(table) == 116
    assert sorted(set(table["weight_decay"])) == [0.1, 1.0]
    assert unidentified(table) == []


def test_a_column_in_capitals_is_read() -> None:
    table = pd.DataFrame(
        {"Params": [1e8], "unique_tokens": [1e9], "epochs": [1.0], "weight_decay": [0.1], "loss": [3.0]}
    )
    assert list(read_runs(table)["params"]) == [1e8]


# -- what is kept of the reading -----------------------------------------------------------------------------


def test_what_was_said_of_the_reading_is_kept_a_weight_decay_of_zero_too():
    named = frame(params=None, weight_decay=None).assign(size=[1e7, 2e7, 4e7])
    table = read_runs(named, columns={"params": "size"}, weight_decay=0, max_epochs="64", drop_missing=False)
    assert table.attrs["reading"] == {"max_epochs": 64.0, "weight_decay": 0.0, "columns": {"params": "size"}}
    assert read_runs(frame()).attrs["reading"] == {}
