"""Files that people bring: runs are checked row by row and fitted,
and whatever else a file holds, the server keeps serving.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.service_visitor import ask
from planner import Calibration, plan
from tests.calibration.web.conftest import PHONE, Browser, eventually
from tests.calibration.web.test_attacks import busy, workers
from tests.calibration.web.test_page import expected, shows

pytestmark = pytest.mark.slow


def test_own_runs_from_upload_to_plan(browser: Browser, runs: pd.DataFrame, tmp_path: Path) -> None:
    table = tmp_path / "ours.csv"
    runs.to_csv(table, index=False)
    browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    browser.open()
    browser.tab("runs")
    browser.upload("#upload-runs", table)
    eventually(
        lambda: browser.text("#runs-check"), lambda said: "The table can be read" in said and "90" in said
    )
    browser.type("name", "our corpus <b>1</b>")
    progress = "return document.querySelector('#runs-result progress')?.value"
    browser.pick("refits", "1000")
    browser.press("#fit")
    eventually(lambda: browser.script(progress), lambda share: share is not None)
    eventually(lambda: browser.find("#stop").is_enabled())
    browser.press("#stop")
    eventually(lambda: browser.text("#runs-result"), lambda said: said.strip() == "Stopped.")
    assert not browser.find("#stop").is_enabled()
    browser.pick("refits", "200")
    browser.press("#fit")
    eventually(lambda: browser.script(progress), lambda share: share is not None)
    said = eventually(lambda: browser.text("#runs-result"), lambda text: "is fitted" in text)
    assert "our corpus <b>1</b> is fitted" in said  # as text: nothing of a name is markup
    assert "held-out error" in said
    points = "return document.querySelectorAll('#runs-result figure svg [id^=PathCollection] use').length"
    assert eventually(lambda: browser.script(points)) >= len(runs)  # predicted against observed, of each

    browser.press("#download-calibration")
    browser.press("#download-report")
    (report,) = eventually(lambda: list(tmp_path.glob("*-report.html")))
    assert "Predicted against observed" in report.read_text()
    (file,) = eventually(lambda: list(tmp_path.glob("our*.json")))
    known = Calibration.load(file)

    browser.press("#use")
    shows(browser, expected(calibration=known))
    made = plan("250M", "5e18", calibration=known)
    assert made.intervals is not None
    interval = f"95%: {made.intervals['loss'].low:.3f} to {made.intervals['loss'].high:.3f}"
    eventually(lambda: browser.text("#answer"), lambda text: interval in text)
    # The same server knows it by its link, too.
    link = eventually(
        lambda: browser.script("return location.search"), lambda query: "calibration=own-" in query
    )
    browser.open(link)
    shows(browser, expected(calibration=known))
    # And the downloaded file can be brought back.
    browser.open()
    browser.unfold("laws")
    browser.upload("#upload-calibration", file)
    shows(browser, expected(calibration=known))


def test_a_broken_table_is_explained_row_by_row(browser: Browser, tmp_path: Path) -> None:
    table = tmp_path / "broken.csv"
    table.write_text(
        "run,params,unique_tokens,epochs,weight_decay,loss\n"
        "a,15M,50M,1,0.1,4.2\n"
        "b,=HYPERLINK(evil),50M,1,0.1,4.1\n"
        "c,15M,,1,0.1,-3\n"
        "a,<img src=x onerror=window.hacked=1>,50M,2,0.1,3.9\n"
    )
    browser.narrow()
    browser.open()
    browser.tab("runs")
    browser.upload("#upload-runs", table)
    eventually(lambda: browser.text("#runs-check"), lambda said: "These cells cannot be used" in said)
    assert browser.script("return document.documentElement.scrollWidth") <= PHONE
    assert browser.script(ROWS) == [
        ["parameters", "is not a number", "2: '=HYPERLINK(evil)', 4: '<img src=x onerror=window.hacked=1>'"],
        ["run", "is a duplicate of row 1", "4: 'a'"],
    ]
    assert browser.script("return window.hacked") is None
    browser.press("#fit")  # nothing is said twice
    assert browser.text("#runs-result") == ""


ROWS = """
return [...document.querySelectorAll('#runs-check tbody tr')].map(r => [...r.cells].map(c => c.textContent));
"""
CRASHED = """Name,State,size_m,tokens_seen,config.epochs,config.weight_decay,optim/lr,validation
a,finished,15,50000000,1,0.1,0.001,4.21
b,finished,30,100000000,2,0.1,0.001,3.93
c,finished,60,200000000,4,0.1,0.001,3.81
d,finished,30,100000000,1,0.1,0.001,3.95
e,finished,60,400000000,4,0.1,0.001,3.62
f,crashed,60,400000000,4,0.1,0.001,
"""


def test_a_wandb_export_with_a_crashed_run_can_be_fitted(browser: Browser, tmp_path: Path) -> None:
    """Columns that nobody can guess are asked for at their fields; what crashed is left out, and said."""
    export = tmp_path / "export.csv"
    export.write_text(CRASHED)
    browser.open()
    browser.tab("runs")
    browser.upload("#upload-runs", export)
    said = eventually(lambda: browser.text("#columns-fold [data-field=params] + .problem"))
    assert "write its name here" in said
    assert "‹" not in said + browser.text("#runs-check")
    for ours, theirs in (("params", "size_m*1e6"), ("loss", "validation"), ("learning_rate", "optim/lr")):
        browser.find(f"[name=column-{ours}]").send_keys(theirs)
    checked = eventually(lambda: browser.text("#runs-check"), lambda said: "The table can be read" in said)
    assert "eft out 1 of 6 runs" in checked
    assert browser.script("return document.querySelectorAll('#runs .problem').length") == 0
    browser.pick("refits", "none")
    browser.press("#fit")
    eventually(lambda: browser.text("#runs-result"), lambda said: "is fitted" in said)


STRANGE = "modelsize,corpus,passes,l2,ppl\n15M,50M,1,0.1,67\n30M,50M,2,0.1,51\n60M,50M,4,0.1,45\n"
AT_FIELDS = """
return [...document.querySelectorAll("#runs .problem")].map((one) =>
  [one.previousElementSibling.dataset.field, one.textContent]);
"""


def test_each_missing_column_is_asked_for_at_its_field_and_forgotten_with_its_file(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "strange.csv").write_text(STRANGE)
    (tmp_path / "other.csv").write_text(STRANGE.replace("modelsize", "size"))
    browser.open()
    browser.tab("runs")
    browser.upload("#upload-runs", tmp_path / "strange.csv")
    said = dict(eventually(lambda: browser.script(AT_FIELDS)))
    assert list(said) == ["weight_decay", "params", "unique_tokens", "epochs"]
    assert not any(raw in " ".join(said.values()) for raw in ("unique_tokens", "weight_decay", "‹", "NAME"))
    assert browser.find("#example").is_displayed()  # until a table can be read
    mapped = {"params": "modelsize", "unique_tokens": "corpus", "epochs": "pass", "weight_decay": "l2"}
    for ours, theirs in mapped.items():
        browser.find(f"[name=column-{ours}]").send_keys(theirs)
    said = eventually(lambda: browser.script(AT_FIELDS), lambda found: [at for at, _ in found] == ["epochs"])
    assert said[0][1].startswith("Epochs cannot be taken from 'pass'")
    browser.find("[name=column-epochs]").send_keys("es")
    read = eventually(lambda: browser.text("#runs-check"), lambda said: "The table can be read" in said)
    assert "Read loss from ppl as its logarithm" in read
    assert not browser.find("#example").is_displayed()
    browser.upload("#upload-runs", tmp_path / "other.csv")
    eventually(lambda: browser.script(AT_FIELDS), lambda found: len(found) == 4)
    values = "return [...document.querySelectorAll('#mapping input')].map((field) => field.value).join('')"
    assert browser.script(values) == ""


def test_a_fit_that_is_stopped_or_left_ends_and_its_place_is_free(
    browser: Browser, runs: pd.DataFrame, tmp_path: Path
) -> None:
    table = tmp_path / "ours.csv"
    runs.to_csv(table, index=False)
    at_work = lambda: [pid for pid in workers(browser.address) if busy(pid)]  # noqa: E731
    for leave in (lambda: browser.press("#stop"), browser.open):
        browser.open()
        browser.tab("runs")
        browser.upload("#upload-runs", table)
        eventually(lambda: browser.text("#runs-check"), lambda said: "The table can be read" in said)
        eventually(at_work, lambda found: not found)  # what checked it
        browser.pick("refits", "1000")
        browser.press("#fit")
        eventually(at_work)
        leave()
        eventually(at_work, lambda found: not found, patience=30)
        again = ask(browser.address, "/v1/fit?refits=0", table.read_bytes())
        assert again.status == 200, again.body


HOSTILE_CALIBRATIONS = {
    "nested.json": b"[" * 300_000,
    "digits.json": b'{"name": ' + b"9" * 20_000 + b"}",
    "binary.json": struct.pack("<1000d", *range(1000)),
    "empty.json": b"",
    "wrong.json": b'{"name": "<script>window.hacked=1</script>", "settings": []}',
    "million.json": json.dumps(
        {
            "name": "heavy",
            "settings": [
                {
                    "weight_decay": 0.1,
                    "fitted_on": {"params": [1e6, 1e9], "unique_tokens": [1e6, 1e9], "epochs": [1, 4]},
                    "laws": {
                        "chinchilla": {"parameters": {"E": 1, "A": 1, "alpha": 0.3, "B": 1, "beta": 0.3}}
                    },
                    "ensemble": {
                        "method": "m",
                        "laws": {
                            "chinchilla": {k: [1.0] * 200_000 for k in ("E", "A", "alpha", "B", "beta")}
                        },
                    },
                }
            ],
            "default_law": "chinchilla",
        }
    ).encode(),
}
HOSTILE_TABLES = {
    "binary.csv": bytes(range(256)) * 400,
    "wide.csv": b"a," * 400_000 + b"\n" + b"1," * 400_000,
    "not.parquet": b"PAR1" + b"\xff" * 5000 + b"PAR1",
    "long.csv": b"run,params,unique_tokens,epochs,weight_decay,loss\n" + b"=1+1,x,50M,1,0.1,4\n" * 200_000,
    "quotes.csv": b'run,params\n"' + b"x" * 3_000_000,
}


def test_hostile_files_get_a_message_and_the_server_keeps_serving(browser: Browser, tmp_path: Path) -> None:
    browser.open()
    browser.unfold("laws")
    said = "return document.querySelector('[data-field=upload] + .problem')?.textContent ?? ''"
    for name, content in HOSTILE_CALIBRATIONS.items():
        (tmp_path / name).write_bytes(content)
        browser.script("document.querySelector('#plan .problem')?.remove()")
        browser.upload("#upload-calibration", tmp_path / name)
        eventually(lambda: browser.script(said))
        shows(browser, expected())  # the calibration in use stays
    assert browser.script("return window.hacked") is None
    browser.tab("runs")
    for name, content in HOSTILE_TABLES.items():
        (tmp_path / name).write_bytes(content)
        browser.script(
            "document.querySelectorAll('#runs [role=alert], #runs .problem').forEach(e => e.remove())"
        )
        browser.upload("#upload-runs", tmp_path / name)
        eventually(lambda: browser.text("#runs :is([role=alert], .problem)"))
    huge = tmp_path / "huge.csv"
    with huge.open("wb") as file:
        file.truncate(40 * 2**20)
    browser.upload("#upload-runs", huge)
    eventually(lambda: browser.text("#runs .problem"), lambda text: "16" in text and "MB" in text)
    browser.open("?ud=300M")
    shows(browser, expected("300M"))


def test_names_from_a_file_are_text_on_the_page(browser: Browser, tmp_path: Path) -> None:
    """Of a calibration, of runs and of columns."""
    evil = "<img src=x onerror=window.hacked=1>"
    Calibration.load().model_copy(update={"name": evil, "title": evil}).save(tmp_path / "evil.json")
    browser.open()
    browser.unfold("laws")
    browser.upload("#upload-calibration", tmp_path / "evil.json")
    eventually(lambda: browser.text("#facts"), lambda said: evil in said)
    table = tmp_path / f"{evil.replace('/', '')}.csv"
    table.write_text(f"run,{evil},unique_tokens,epochs,weight_decay,loss\n{evil},15M,50M,1,0.1,4.2\n")
    browser.tab("runs")
    browser.upload("#upload-runs", table)
    eventually(lambda: browser.text("#runs .problem"), lambda said: evil in said)
    assert browser.script("return window.hacked") is None
    assert browser.script("return document.querySelectorAll('img').length") == 0
