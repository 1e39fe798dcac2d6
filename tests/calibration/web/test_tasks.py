"""What a first-time visitor comes for, each within five actions: a click, a choice, a drop, a text."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from planner import flops_from_gpus, plan
from tests.calibration.web.conftest import Browser, eventually
from tests.calibration.web.test_page import expected, shows

pytestmark = pytest.mark.slow
MOST = 5


class Visitor:
    """Counts what it does."""

    def __init__(self, browser: Browser) -> None:
        self.browser, self.actions = browser, 0

    def do(self, gesture: str, *how: Any) -> None:
        self.actions += 1
        assert self.actions <= MOST
        getattr(self.browser, gesture)(*how)


@pytest.fixture
def visitor(browser: Browser) -> Visitor:
    browser.open()
    return Visitor(browser)


def test_plan_for_a_corpus_and_some_accelerators_for_a_day(visitor: Visitor) -> None:
    visitor.do("type", "ud", "180M")
    visitor.do("pick", "compute", "GPU time")
    eventually(lambda: visitor.browser.find("#in-hours").is_displayed())
    visitor.do("type", "hours", "24")
    made = plan("180M", gpu="H100", gpus=8, hours=24)
    shows(visitor.browser, expected("180M", flops_from_gpus("H100", 8, 24)))
    # While hours were typed ("2"), the same plan was a larger part of less compute.
    eventually(lambda: visitor.browser.text(".verdict"), lambda said: said.startswith(made.verdict))


def test_find_the_best_weight_decay(visitor: Visitor) -> None:
    """It is there before anything is done; the slider shows what another costs."""
    best = plan("250M", "5e18")
    assert visitor.browser.text("#answer [data-key=weight_decay]") == str(best.weight_decay)
    visitor.do("type", "weight_decay", "0.3")
    shows(visitor.browser, expected(weight_decay=0.3))
    visitor.do("type", "weight_decay", "")
    shows(visitor.browser, expected())


def test_fit_a_wandb_export_and_plan_with_it(visitor: Visitor, tmp_path: Path) -> None:
    export = tmp_path / "wandb-export.csv"
    export.write_text(_EXPORT)
    visitor.do("tab", "runs")
    visitor.do("upload", "#upload-runs", export)
    checked = eventually(
        lambda: visitor.browser.text("#runs-check"), lambda said: "The table can be read" in said
    )
    assert "parameters from config.n_params" in checked
    visitor.do("press", "#fit")
    fitted = eventually(lambda: visitor.browser.text("#runs-result"), lambda said: "is fitted" in said)
    assert "hill" in fitted
    visitor.do("press", "#use")
    eventually(
        lambda: visitor.browser.script("return location.search"), lambda query: "calibration=own-" in query
    )
    eventually(lambda: visitor.browser.text(".verdict"), lambda said: said.startswith("Train"))


_EXPORT = """"Name","config.n_params","config.unique_tokens","config.epochs","config.weight_decay","val/loss"
"a",15000000,50000000,1,0.1,4.21
"b",30000000,50000000,2,0.1,3.93
"c",60000000,50000000,4,0.1,3.81
"d",30000000,100000000,1,0.1,3.95
"e",60000000,100000000,4,0.1,3.62
"""


def test_share_the_result_as_a_card_or_a_link(visitor: Visitor, tmp_path: Path) -> None:
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    visitor.browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    visitor.do("press", ".chip")
    shows(visitor.browser, expected("180M", flops_from_gpus("H100", 8, 24)))
    eventually(lambda: visitor.browser.script("return !!document.querySelector('#plot .trace')"))
    visitor.do("press", "[data-card]")
    card = eventually(lambda: next(tmp_path.glob("*.png"), None))
    head = eventually(lambda: card.read_bytes()[:24], lambda found: len(found) == 24)
    assert struct.unpack(">II", head[16:24]) == (1200, 720)
    eventually(lambda: card.stat().st_size, lambda size: size > 20_000)  # there is a picture on it
    visitor.do("press", "[data-copy=address]")
    assert "ud=180M" in visitor.browser.script("return location.search")


def test_two_plans_stand_side_by_side(visitor: Visitor) -> None:
    visitor.do("press", "[data-pin=this]")
    eventually(lambda: visitor.browser.text("#pins"))
    assert "pin=" in visitor.browser.script("return location.search")
    visitor.do("type", "ud", "500M")
    shows(visitor.browser, expected("500M"))
    losses = eventually(
        lambda: visitor.browser.text("#pins"), lambda said: f"{plan('500M', '5e18').loss:.4f}" in said
    )
    assert f"{plan('250M', '5e18').loss:.4f}" in losses
    visitor.do("press", "#pins [data-pin]")
    eventually(lambda: visitor.browser.script("return !document.querySelector('#pins')"))
