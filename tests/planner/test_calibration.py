"""Calibration files: what ships, what survives a round trip, and what is refused in one sentence."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import Calibration, InvalidCalibration, InvalidInput, calibration, plan
from planner.calibration import shipped_names

PUBLISHED = {
    "chinchilla",
    "exponential_decay",
    "effective_parameters",
    "additive_1p",
    "additive_2p",
    "additive_4p",
}


def test_what_ships() -> None:
    assert {"fineweb-llama2", "c4-gpt2", "c4-muennighoff", "micro"} <= set(shipped_names())
    fineweb = Calibration.load("fineweb-llama2")
    assert fineweb.weight_decays == (0.1, 1.0)
    for setting in fineweb.settings:
        assert set(setting.laws) == PUBLISHED
        assert setting.fitted_on.epochs == (1, 16)
        assert setting.fitted_on.unique_tokens == (50e6, 6e9)
        assert setting.fitted_on.params[1] == pytest.approx(1.13e9, rel=1e-2)
    assert fineweb.setting(0.1).fitted_on.params[0] == pytest.approx(15.87e6)
    assert set(Calibration.load("c4-gpt2").settings[0].laws) == PUBLISHED
    assert Calibration.load("c4-gpt2").settings[0].fitted_on.runs == 158


@pytest.mark.parametrize("name", shipped_names())
def test_what_ships_is_valid(name: str) -> None:
    text = (Path(calibration.__file__).parent / "data" / f"{name}.json").read_text()
    checked, read = Calibration.model_validate_json(text), Calibration.load(name)
    assert read == checked
    assert read.model_dump_json() == checked.model_dump_json()
    assert read.__pydantic_extra__ == checked.__pydantic_extra__


def test_published_coefficients_are_the_printed_ones() -> None:
    strong = Calibration.load().setting(1.0)
    assert strong.laws["additive_4p"].parameters == {
        "E": 2.0422,
        "A": 214.64,
        "alpha": 0.2922,
        "B": 29370.43,
        "beta": 0.5333,
        "P": 0.00257,
        "delta": 1.563,
        "kappa": 1.391,
        "gamma": 1.024,
    }
    assert strong.laws["exponential_decay"].metrics == {"r2": 0.9741, "r2_multi": 0.9476, "huber": 0.001463}


def test_muennighoff_as_published() -> None:
    import math

    p = Calibration.load("c4-muennighoff").settings[0].laws["effective_parameters"].parameters
    assert (math.log(p["A"]), math.log(p["B"]), math.log(p["E"])) == pytest.approx(
        (6.255414, 7.3049974, 0.6254804)
    )
    assert (p["alpha"], p["beta"], p["R_D_star"], p["R_N_star"]) == (
        0.3526596,
        0.3526596,
        15.387756,
        5.309743,
    )


def test_published_laws_reproduce_published_metrics(shared_data: Path) -> None:
    """Huber sum and R² of the shipped C4 coefficients on the public runs, as printed in the paper."""
    import numpy as np
    import pandas as pd

    runs = pd.read_csv(shared_data / "datablations_c4_runs.csv")
    for name, rows in (
        ("c4-gpt2", runs[runs.in_paper158 == 1]),
        ("c4-muennighoff", runs[runs.in_filtered182 == 1]),
    ):
        for form, law in Calibration.load(name).settings[0].laws.items():
            predicted = (
                Calibration.load(name).law(0.1, form).loss(rows.params, rows.unique_tokens, rows.epochs)
            )
            r2 = 1 - np.sum((rows.loss - predicted) ** 2) / np.sum((rows.loss - rows.loss.mean()) ** 2)
            if "r2" in law.metrics:
                assert r2 == pytest.approx(law.metrics["r2"], abs=2e-3), (name, form)


def test_round_trip(tmp_path: Path) -> None:
    known = Calibration.load()
    known.save(tmp_path / "mine.json")
    again = Calibration.load(tmp_path / "mine.json")
    assert again == known
    assert plan(250e6, 5e18, calibration=str(tmp_path / "mine.json")).params == plan(250e6, 5e18).params
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]  # nothing left behind
    assert (
        '"params": [ 15870000.0, 1128980000.0 ]' in (tmp_path / "mine.json").read_text()
    )  # a list of numbers is one line


BEFORE = {new: old for old, new in calibration.RENAMED.items()}


def _as_before(value: Any) -> Any:
    """What earlier versions of the schema called otherwise, wherever it stands."""
    if isinstance(value, dict):
        return {BEFORE.get(name, name): _as_before(part) for name, part in value.items()}
    return [_as_before(part) for part in value] if isinstance(value, list) else value


def _with_everything(name: str) -> Calibration:
    """A shipped calibration with draws of losses, discrepancies and extrapolation errors."""
    data = Calibration.load(name).model_dump()
    for setting in data["settings"]:
        form, fitted = next(iter(setting["laws"].items()))
        scattered = {key: [value, value * 1.001] for key, value in fitted["parameters"].items()}
        setting["draws"] = {
            "method": "scattered for a test",
            "laws": {form: scattered},
            "discrepancy": {form: [0.0, 0.01]},
            "loss_draws": {form: {"E": [1.9, 2.0]}},
        }
        setting["extrapolation_errors"] = {"size": {form: 1.5}}
    return Calibration.model_validate(data)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["fineweb-llama2", "micro-weight-decay", "micro"])
def test_files_of_earlier_versions_are_read_with_their_names(name: str, version: int, tmp_path: Path) -> None:
    known = _with_everything(name)
    data = _as_before(json.loads(known.model_dump_json(exclude_none=True))) | {"schema_version": version}
    assert {"ensemble", "law_skill"} <= data["settings"][0].keys()
    assert {"misfit", "over_all"} <= data["settings"][0]["ensemble"].keys()
    assert ("dial" in data) == (name == "micro-weight-decay")
    (tmp_path / "old.json").write_text(json.dumps(data))
    read = Calibration.load(tmp_path / "old.json")
    assert read.model_copy(update={"schema_version": 3}) == known
    read.save(tmp_path / "new.json")
    again = Calibration.load(tmp_path / "new.json")
    assert again.model_copy(update={"schema_version": 3}) == known
    text = (tmp_path / "new.json").read_text()
    assert not any(f'"{old}":' in text for old in calibration.RENAMED)


def test_the_weight_decay_laws_are_found_under_their_earlier_names(tmp_path: Path) -> None:
    known = Calibration.load("micro-weight-decay")
    assert Calibration.load("dial") is known
    text = known.model_dump_json().replace('"weight_decay_simple"', '"dial_simple"')
    text = text.replace('"weight_decay_steep"', '"dial_steep"').replace('"micro-weight-decay"', '"dial"')
    (tmp_path / "dial.json").write_text(text)
    read = Calibration.load(tmp_path / "dial.json")
    assert read.default_law == "weight_decay_steep"
    assert read.model_copy(update={"name": known.name}) == known
    for form in ("simple", "steep"):
        before = plan(65536, 3e11, calibration="dial", law=f"dial_{form}")
        now = plan(65536, 3e11, calibration="micro-weight-decay", law=f"weight_decay_{form}")
        assert before == now
        assert (before.calibration, before.law) == ("micro-weight-decay", f"weight_decay_{form}")


def test_what_is_saved_has_the_version_of_its_names(tmp_path: Path) -> None:
    """An earlier release refuses it then, rather than taking draws for a field that it does not know."""
    data = _as_before(json.loads(Calibration.load("micro").model_dump_json())) | {"schema_version": 2}
    (tmp_path / "old.json").write_text(json.dumps(data))
    Calibration.load(tmp_path / "old.json").save(tmp_path / "new.json")
    saved = json.loads((tmp_path / "new.json").read_text())
    assert "draws" in saved["settings"][0]
    assert saved["schema_version"] == 3


def test_unknown_fields_are_kept(tmp_path: Path) -> None:
    data = json.loads(Calibration.load().model_dump_json())
    data["lab_notebook"] = {"page": 12}
    data["settings"][0]["remark"] = "three seeds"
    (tmp_path / "a.json").write_text(json.dumps(data))
    Calibration.load(tmp_path / "a.json").save(tmp_path / "b.json")
    kept = json.loads((tmp_path / "b.json").read_text())
    assert kept["lab_notebook"] == {"page": 12}
    assert kept["settings"][0]["remark"] == "three seeds"


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    target = tmp_path / "mine.json"
    target.write_text("precious")

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(InvalidInput, match="No space left on device"):
        Calibration.load().save(target)
    assert target.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]
    with pytest.raises(InvalidInput, match="cannot write calibration"):
        Calibration.load().save(tmp_path / "missing" / "mine.json")


def broken(**changes: object) -> str:
    data = json.loads(Calibration.load().model_dump_json())
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = data
        for part in parents:
            place = place[int(part) if part.isdigit() else part]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{not json", "not valid JSON at line 1"),
        ("", "not valid JSON at line 1"),
        ("[1, 2]", "is not usable"),
        (broken(schema_version=4), "schema version 4, this release reads up to 3: upgrade"),
        (broken(schema_version="x"), "schema_version"),
        (broken(schema_version="2"), "whole number from 1 to 3"),
        (broken(schema_version=2.0), "whole number from 1 to 3"),
        (broken(schema_version=0), "whole number from 1 to 3"),
        (broken(schema_version=None), "schema_version is missing"),
        (broken(settings=[]), "settings"),
        (
            broken(settings__0__laws__additive_4p__parameters__P=-1.0),
            "parameter P of law additive_4p must be finite",
        ),
        (broken(settings__0__laws__additive_4p__parameters__P=None), "needs the parameters"),
        (
            broken(settings__0__laws__additive_4p=None),
            "default_law additive_4p is missing at weight decay 0.1",
        ),
        (broken(settings__0__laws={"kaplan": {"parameters": {}}}), "law must be one of"),
        (broken(settings__0__weight_decay=1.0), "each weight decay may appear only once"),
        (broken(settings__0__fitted_on__params=[5, 1]), "two increasing numbers"),
        (
            broken(settings__0__draws={"method": "m", "laws": {"chinchilla": {"E": [1.0]}}}),
            "needs the parameters",
        ),
        (
            broken(
                settings__0__draws={
                    "method": "m",
                    "laws": {"chinchilla": {k: [1.0] for k in ("E", "A", "alpha", "B", "beta")}},
                }
            ),
            "at least 2",
        ),
        (broken(settings__0__laws__chinchilla__parameters__E="abc"), "number"),
        ("[" * 100_000, "is not"),
        ("9" * 5000, "is not"),
    ],
)
def test_unusable_files_are_named_in_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InvalidCalibration) as caught:
        plan(250e6, 5e18, calibration=path)
    message = str(caught.value)
    assert reason in message
    assert "bad.json" in message
    assert "\n" not in message
    assert path.read_text() == text


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidCalibration, match=r"neither a file nor a shipped name \(fineweb-llama2"):
        Calibration.load("nowhere.json")
    with pytest.raises(InvalidCalibration, match="is a directory"):
        Calibration.load(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InvalidCalibration, match="UTF-8"):
        Calibration.load(tmp_path / "binary.json")
    with pytest.raises(InvalidCalibration):
        Calibration.load("nul\0byte.json")
    with pytest.raises(InvalidInput, match="calibration must be a name or a path"):
        Calibration.load(3)  # type: ignore[arg-type]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8),
        lambda c: (
            st.lists(c, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "schema_version",
                        "name",
                        "settings",
                        "laws",
                        "weight_decay",
                        "fitted_on",
                        "parameters",
                        "draws",
                        "ensemble",
                        "weight_decay_law",
                        "dial",
                        "params",
                    ]
                ),
                c,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_a_calibration_or_an_error(tmp_path: Path, value: object) -> None:
    path = tmp_path / "fuzz.json"
    path.write_text(json.dumps(value))
    with pytest.raises(InvalidCalibration):
        Calibration.load(path)


def test_files_that_are_no_calibration_are_called_what_they_are(tmp_path: Path) -> None:
    table, prose, odd = tmp_path / "five.csv", tmp_path / "README.md", tmp_path / "five.txt"
    table.write_text("run,params,unique_tokens,epochs,weight_decay,loss\n")
    odd.write_text(table.read_text())
    prose.write_text("# five\n")
    for path in (table, odd):
        with pytest.raises(
            InvalidCalibration, match=r"is a run table; `planner calibrate fit .* -o five.json`"
        ):
            Calibration.load(path)
    with pytest.raises(InvalidCalibration, match="is no calibration, which is a JSON file"):
        Calibration.load(prose)
    with pytest.raises(InvalidCalibration, match="is a directory"):
        Calibration.load(tmp_path)


@pytest.mark.parametrize("name", ["our runs.csv", "it's a study"])
def test_the_command_that_would_make_a_calibration_can_be_pasted(name: str, tmp_path: Path) -> None:
    source = tmp_path / name
    if source.suffix:
        source.write_text("run,params,unique_tokens,epochs,weight_decay,loss\n")
    else:
        source.mkdir()
    with pytest.raises(InvalidCalibration) as refused:
        Calibration.load(source)
    words = shlex.split(str(refused.value).split("`")[1])
    made = source.with_suffix(".json").name
    assert words == ["planner", "calibrate", "fit", str(source), "-o", made]
