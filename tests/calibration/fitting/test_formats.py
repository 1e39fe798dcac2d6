"""What a user with a file relies on: it is read as it is, or refused in one sentence."""

import gzip
import json
import math
import struct
import sys
import types

import numpy as np
import pandas as pd
import pytest

from calibration import read_runs
from calibration.fitting.runs.checks import COLUMNS
from calibration.fitting.runs.tables import warnings_of
from planner.inputs import InvalidInput
from tests.calibration.fitting.tables import runs, same

TABLE = runs()


def grouped(value: float, sign: str) -> str:
    return f"{value:,.0f}".replace(",", sign)


def counts(sign: str) -> pd.DataFrame:
    """The table with its counts written as 20,000,000, with another sign in between."""
    return TABLE.assign(
        **{name: [grouped(v, sign) for v in TABLE[name]] for name in ("params", "unique_tokens")}
    )


UGLY = {
    "bom.csv": TABLE.to_csv(index=False).encode("utf-8-sig"),
    "semicolons.csv": TABLE.to_csv(index=False, sep=";", decimal=",").encode(),
    "german.csv": counts(".").to_csv(index=False, sep=";", decimal=",").encode(),
    "unicode.txt": TABLE.to_csv(index=False, sep="\t").encode("utf-16"),
    "windows.csv": TABLE.assign(größe="groß").to_csv(index=False).encode("cp1252"),
    "thousands.csv": counts(",").to_csv(index=False).encode(),
    "spaces.csv": counts("\u202f").to_csv(index=False).encode(),
    "swiss.csv": counts("'").to_csv(index=False).encode(),
    "crlf.csv": TABLE.to_csv(index=False, lineterminator="\r\n").encode(),
    "packed.csv.gz": gzip.compress(TABLE.to_csv(index=False).encode()),
    "capitals.csv": TABLE.rename(columns=str.upper).to_csv(index=False).encode(),
    "columns.json": TABLE.to_json().encode(),
    "records.json": TABLE.to_json(orient="records").encode(),
    "wrapped.json": json.dumps({"version": 1, "runs": TABLE.to_dict("records")}).encode(),
    "split.json": TABLE.to_json(orient="split").encode(),
    "remarks.csv": b"# exported 2026-01-01\n# by nobody; really\n" + TABLE.to_csv(index=False).encode(),
    "excel-sep.csv": b"sep=;\r\n" + TABLE.to_csv(index=False, sep=";").encode(),
    "index.csv": TABLE.to_csv().encode(),
    "blank-lines.csv": b"\n\n" + TABLE.to_csv(index=False, sep=";").encode(),
    "lists.json": json.dumps(TABLE.to_dict("list")).encode(),
    "lines.jsonl": TABLE.to_json(orient="records", lines=True).encode(),
    "lines.txt": TABLE.to_json(orient="records", lines=True).encode(),
    "packed.jsonl.gz": gzip.compress(TABLE.to_json(orient="records", lines=True).encode()),
    "by-run.json": json.dumps({r.pop("run"): r for r in TABLE.to_dict("records")}).encode(),
}


@pytest.mark.parametrize("name", UGLY)
def test_ugly_files_are_read(name, tmp_path):
    (tmp_path / name).write_bytes(UGLY[name])
    same(read_runs(tmp_path / name), TABLE)


def test_a_parquet_file_needs_no_ending(tmp_path):
    TABLE.to_parquet(tmp_path / "table")
    same(read_runs(tmp_path / "table"), TABLE)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.csv", b"", "is empty"),
        ("empty.json", b" \n", "is empty"),
        ("half.json", b'[{"params": 1', "not readable JSON"),
        ("third.jsonl", b'{"params": 1}\n{"params": 2}\n{"par', "not readable JSON .line 3"),
        ("number.json", b"3", "JSON but no table"),
        ("cut.csv.gz", UGLY["packed.csv.gz"][:200], "damaged gzip file: its end is missing"),
        ("bad.csv.gz", b"\x1f\x8b garbage", "damaged gzip file"),
        ("book.xlsx", b"PK\x03\x04 sheets", "save the sheet as CSV"),
        ("picture.csv", b"\x89PNG\r\n\x1a\n\0\0", "not text"),
        ("twice.csv", b"params,loss,loss\n1,2,3\n", "'loss' more than once"),
        ("deep.json", b"[" * 100_000, "nested too deeply|not readable JSON"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(name, content, reason, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=reason) as error:
        read_runs(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_file_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("calibration.fitting.runs.formats._LARGEST_FILE", 2**16)
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"0" * 2**22))
    with pytest.raises(InvalidInput, match="larger than"):
        read_runs(tmp_path / "bomb.csv.gz")


def test_decimal_commas_are_said_and_points_are_left_alone(tmp_path):
    (tmp_path / "a.csv").write_bytes(UGLY["semicolons.csv"])
    assert [note.code for note in warnings_of(read_runs(tmp_path / "a.csv"))] == ["decimal_commas"]
    (tmp_path / "b.csv").write_text(counts(",").to_csv(index=False, sep=";"))
    table = read_runs(tmp_path / "b.csv")
    same(table, TABLE)
    assert warnings_of(table) == []


def test_losses_with_three_decimals_and_a_comma_are_no_thousands(tmp_path):
    text = TABLE.assign(loss=[f"{loss:.3f}".replace(".", ",") for loss in TABLE["loss"]], weight_decay=1)
    (tmp_path / "a.csv").write_text(text.to_csv(index=False, sep=";").replace(".0;", ";"))
    np.testing.assert_allclose(read_runs(tmp_path / "a.csv")["loss"], TABLE["loss"], atol=6e-4)


# -- Weights & Biases ----------------------------------------------------------------------------------------


def exported() -> pd.DataFrame:
    """The table of a project as its page exports it: four runs that came to no end."""
    table = pd.DataFrame(
        {
            "Name": TABLE["run"],
            "State": "finished",
            "Created": "2026-01-01T00:00:00.000Z",
            "config.n_params": TABLE["params"].astype(int),
            "config.data.unique_tokens": TABLE["unique_tokens"],
            "config.num_train_epochs": TABLE["epochs"],
            "config.optimizer.weight_decay": 0.1,
            "summary.train/loss": TABLE["loss"] * 0.9,
            "summary.val_loss": TABLE["loss"].astype(object),
        }
    )
    table.loc[[3, 4, 9], "summary.val_loss"] = ["NaN", "Infinity", ""]
    table.loc[7, "State"] = "crashed"
    return table


def test_a_wandb_export_is_read_without_editing_it(tmp_path):
    path = tmp_path / "wandb_export.csv"
    exported().to_csv(path, index=False)
    with pytest.raises(InvalidInput) as error:
        read_runs(path)
    assert "row 8 (20m_1600m_2ep), State: 'crashed' is not the end of a run" in str(error.value)
    assert "2 rows, loss: is missing (rows 4, 10)" in str(error.value)
    assert "drop_missing leaves out the 4 rows" in str(error.value)
    table = read_runs(path, drop_missing=True)
    same(table, TABLE.drop([3, 4, 7, 9]))
    guesses, left_out = warnings_of(table)
    assert guesses.text == (
        "read run from Name, params from config.n_params, unique_tokens from config.data.unique_tokens, "
        "epochs from config.num_train_epochs, weight_decay from config.optimizer.weight_decay, "
        "loss from summary.val_loss"
    )
    assert left_out.text.startswith(
        "left out 4 of 27 runs: loss is missing in 2 (20m_400m_1ep, 80m_100m_1ep)"
    )
    assert "State 'crashed' in 1" in left_out.text


def records() -> list[dict]:
    return [
        {
            "name": run.run,
            "state": "finished",
            "config": {"n_params": {"value": run.params, "desc": None}, "ud": run.unique_tokens, "wd": 0.1},
            "summary": {"val_loss": run.loss, "epoch": run.epochs, "lr": math.nan, "_wandb": {"runtime": 3}},
        }
        for run in TABLE.itertuples()
    ]


def test_nested_json_and_cells_that_hold_records(tmp_path):
    (tmp_path / "runs.json").write_text(json.dumps(records()))
    same(read_runs(tmp_path / "runs.json"), TABLE)
    # as the example in W&B's documentation writes a project: Python's own text of each dictionary
    columns = {key: [record[key] for record in records()] for key in ("summary", "config", "name")}
    pd.DataFrame(columns).to_csv(tmp_path / "project.csv")
    same(read_runs(tmp_path / "project.csv"), TABLE)


class Client(types.ModuleType):
    """The network part of W&B's client: what `wandb.Api().runs(project)` gives."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.Api = lambda: self

    def runs(self, project: str) -> list[types.SimpleNamespace]:
        if project != "lab/scaling":
            raise ValueError(f"Could not find project {project}")
        return [
            types.SimpleNamespace(
                name="same name",
                id=record["name"],
                state=record["state"],
                config={**record["config"], "_wandb": {}},
                summary_metrics=record["summary"],
            )
            for record in records()
        ]


def test_a_project_of_wandb_is_read_through_its_client(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", Client())
    same(read_runs("wandb:lab/scaling"), TABLE)  # names are not unique, ids are
    with pytest.raises(InvalidInput, match="wandb:lab/other cannot be read: Could not find project"):
        read_runs("wandb:lab/other")
    with pytest.raises(InvalidInput, match="must be wandb:entity/project"):
        read_runs("wandb:scaling")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InvalidInput, match="pip install wandb"):
        read_runs("wandb:lab/scaling")


# -- TensorBoard ---------------------------------------------------------------------------------------------


def field(number: int, value: bytes | int | float) -> bytes:
    """One field of a message in Google's wire format."""
    if isinstance(value, float):
        return bytes([number << 3 | 1]) + struct.pack("<d", value)
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def event(step: int, *values: bytes) -> bytes:
    message = field(1, 1.7e9) + field(2, step) + field(5, b"".join(field(1, value) for value in values))
    return struct.pack("<Q", len(message)) + b"\0" * 4 + message + b"\0" * 4


def scalar(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value)


def tensor(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + field(8, field(1, 1) + field(5, struct.pack("<f", value)))


def hparams(**settings: float) -> bytes:
    entries = [field(1, field(1, k.encode()) + field(2, field(2, v))) for k, v in settings.items()]
    content = field(2, field(3, b"".join(entries)))
    return field(1, b"_hparams_/session_start_info") + field(9, field(1, field(1, b"hparams") + content))


def event_files(folder, write=scalar) -> None:
    for run in TABLE.itertuples():
        place = folder / run.run
        place.mkdir(parents=True)
        steps = [
            event(s, scalar("train/loss", 9.0 - s), write("val/loss", run.loss + 2 - s)) for s in range(3)
        ]
        (place / "events.out.tfevents.1").write_bytes(b"".join(steps) + event(3)[:9])  # killed while it wrote
        settings = hparams(n_params=run.params, unique_tokens=run.unique_tokens, epochs=run.epochs, wd=0.1)
        (place / "1700000000.1").mkdir()
        (place / "1700000000.1" / "events.out.tfevents.2").write_bytes(event(0, settings))


@pytest.mark.parametrize("write", [scalar, tensor])
def test_a_folder_of_event_files_is_a_table_of_last_values(tmp_path, write):
    event_files(tmp_path / "logs", write)
    found = read_runs(tmp_path / "logs").sort_values("run").reset_index(drop=True)
    same(found, TABLE.sort_values("run").reset_index(drop=True))
    assert set(found["train/loss"]) == {7.0}


def test_settings_may_be_in_the_names_of_folders(tmp_path):
    for run in TABLE.itertuples():
        (tmp_path / run.run).mkdir()
        (tmp_path / run.run / "events.out.tfevents.1").write_bytes(event(9, scalar("eval/loss", run.loss)))
    found = read_runs(tmp_path, pattern="{params}_{unique_tokens}_{epochs}ep", weight_decay=0.1)
    same(found.sort_values("run"), TABLE.sort_values("run"))


def test_damaged_event_files_are_named(tmp_path):
    (tmp_path / "events.out.tfevents.1").write_bytes(struct.pack("<Q", 2**40) + b"\0" * 8)
    with pytest.raises(InvalidInput, match=r"events.out.tfevents.1 is not a readable event file"):
        read_runs(tmp_path)


@pytest.mark.slow
def test_event_files_of_tensorboard_itself(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed")
    for run in TABLE.head(9).itertuples():
        writer = tensorboard.SummaryWriter(str(tmp_path / run.run))
        for step in range(300):
            writer.add_scalar("val_loss", run.loss + 1 - step / 299, step)
        writer.add_hparams(
            {
                "n_params": run.params,
                "unique_tokens": run.unique_tokens,
                "epochs": run.epochs,
                "wd": 0.1,
                "a": "b",
            },
            {"hparam/other": 1.0},
        )
        writer.close()
    same(read_runs(tmp_path).sort_values("run"), TABLE.head(9).sort_values("run"))


# -- Hugging Face --------------------------------------------------------------------------------------------


def trainer_state(folder, run, last: int = 100) -> None:
    folder.mkdir(parents=True)
    history = [
        {"loss": 9.0, "epoch": run.epochs / 2, "step": 50},
        {"eval_loss": run.loss + 1, "epoch": run.epochs / 2, "step": 50},
        {"eval_loss": run.loss, "epoch": run.epochs, "step": last},
        {"train_loss": 8.0, "epoch": run.epochs, "step": last},
    ]
    state = {
        "log_history": history,
        "epoch": run.epochs,
        "global_step": last,
        "max_steps": 100,
        "num_input_tokens_seen": run.unique_tokens * run.epochs,
    }
    (folder / "trainer_state.json").write_text(json.dumps(state))
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "F32", "shape": [int(run.params) // 1000, 1000]}})
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode())


def test_a_folder_of_hugging_face_runs(tmp_path):
    for i, run in enumerate(TABLE.itertuples()):
        place = tmp_path / run.run
        trainer_state(place / "checkpoint-100" if i % 2 else place, run)
        if i % 2:
            trainer_state(place / "checkpoint-50", run, last=50)
    found = read_runs(tmp_path, weight_decay=0.1)
    same(found.sort_values("run"), TABLE.sort_values("run"))


def test_a_hugging_face_run_that_stopped_early_is_unfinished(tmp_path):
    for run in TABLE.head(3).itertuples():
        trainer_state(tmp_path / run.run, run, last=60 if run.Index else 100)
    with pytest.raises(InvalidInput, match="state: 'unfinished' is not the end of a run"):
        read_runs(tmp_path, weight_decay=0.1)
    assert len(read_runs(tmp_path, weight_decay=0.1, drop_missing=True)) == 1
    (tmp_path / TABLE["run"][0] / "trainer_state.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"trainer_state.json cannot be read"):
        read_runs(tmp_path, weight_decay=0.1)


def test_a_folder_without_runs_is_refused_with_what_would_do(tmp_path):
    with pytest.raises(InvalidInput, match=r"is a directory without runs in it.*CSV, JSON or Parquet"):
        read_runs(tmp_path)


def test_other_columns_of_all_sources_are_kept(tmp_path):
    event_files(tmp_path)
    assert {*COLUMNS, "train/loss", "hparams.n_params"} <= set(read_runs(tmp_path).columns)
