"""Files that people bring: runs are checked row by row and fitted,
and whatever else a file holds, the server keeps serving.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from planner import Calibration, plan
from tests.calibration.ui.conftest import PHONE, Browser, eventually
from tests.calibration.ui.test_page import expected, shows

pytestmark = pytest.mark.slow


def test_own_runs_from_upload_to_plan(browser: Browser, runs: pd.DataFrame, tmp_path: Path) -> None:
    table = tmp_path / "ours.csv"
    runs.to_csv(table, index=False)
    browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    browser.open()
    browser.tab("Your own runs")
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
    said = eventually(lambda: browser.text("#runs-result"), lambda text: "is fitted" in text, patience=90)
    assert "our corpus <b>1</b> is fitted" in said  # as text: nothing of a name is markup
    assert "held-out error" in said
    assert (
        eventually(lambda: browser.script("return document.querySelectorAll('#runs-plot .trace').length"))
        >= 2
    )

    browser.press("#download-calibration")
    browser.press("#download-report")
    (report,) = eventually(lambda: list(tmp_path.glob("*-report.html")))
    assert "Predicted against observed" in report.read_text()
    (file,) = eventually(lambda: list(tmp_path.glob("our*.json")))
    known = Calibration.load(file)

    browser.press("#use")
    shows(browser, expected(calibration=known))
    edges = (
        "const at = (s) => document.querySelector(s)?.getBoundingClientRect(); "
        "return [at('.db-legend')?.bottom, at('#plot .nsewdrag')?.top]"
    )
    eventually(
        lambda: browser.script(edges), lambda found: None not in found and found[0] <= found[1] + 2
    )  # legend above the curves
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
    browser.unfold("Law and calibration")
    browser.upload("#db-inputs", file)
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
    browser.tab("Your own runs")
    browser.upload("#upload-runs", table)
    eventually(lambda: browser.text("#runs-check"), lambda said: "5 problems in 3 rows" in said)
    assert browser.script("return document.documentElement.scrollWidth") <= PHONE
    rows = browser.script(
        "return [...document.querySelectorAll('#runs-check tbody tr')]"
        ".map(r => [...r.cells].map(c => c.textContent))"
    )
    assert [row[:2] for row in rows] == [
        ["2", "params"],
        ["3", "loss"],
        ["3", "unique_tokens"],
        ["4", "params"],
        ["4", "run"],
    ]
    assert rows[0][2:] == ["'=HYPERLINK(evil)'", "is not a number"]
    assert "duplicate of row 1" in rows[4][3]
    assert browser.script("return window.hacked") is None
    browser.press("#fit")
    eventually(lambda: browser.text("#runs-result"), lambda said: "5 problems in 3 rows" in said)


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


def _another_refusal(before: str) -> Callable[[str], bool]:
    return lambda text: text.startswith("The upload was not used:") and text != before


def test_hostile_files_get_a_message_and_the_server_keeps_serving(browser: Browser, tmp_path: Path) -> None:
    browser.open()
    browser.unfold("Law and calibration")
    note = "return [...document.querySelectorAll('#answer .db-note')].map(e => e.textContent).join()"
    before = ""
    for name, content in HOSTILE_CALIBRATIONS.items():
        (tmp_path / name).write_bytes(content)
        browser.upload("#db-inputs", tmp_path / name)
        before = eventually(lambda: browser.script(note), _another_refusal(before))
        shows(browser, expected())  # the calibration in use stays
    assert browser.script("return window.hacked") is None
    browser.tab("Your own runs")
    gone = "return document.querySelector('#runs-check [role=alert]') === null"
    for name, content in HOSTILE_TABLES.items():
        (tmp_path / name).write_bytes(content)
        browser.upload("#upload-runs", tmp_path / name)
        eventually(lambda: browser.text("#runs-check [role=alert]"), lambda text: bool(text))
        browser.press("#upload-runs [aria-label*=lear], #upload-runs [aria-label*=emove]")
        eventually(lambda: browser.script(gone))
    huge = tmp_path / "huge.csv"
    with huge.open("wb") as file:
        file.truncate(40 * 2**20)
    browser.upload("#upload-runs", huge)
    eventually(
        lambda: browser.text("body"), lambda text: "16" in text and "MB" in text and "exceed" in text.lower()
    )
    browser.open("?ud=300M")
    shows(browser, expected("300M"))
