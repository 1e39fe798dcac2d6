"""The page for people who listen to it, use the keyboard, enlarge it, or see few colours."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from planner import plan
from tests.calibration.web.conftest import Browser, eventually

pytestmark = pytest.mark.slow
AXE = "axe-core@4.10.3"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def axe(request: pytest.FixtureRequest) -> str:
    """The checker, which is fetched once and kept with the tests' other caches."""
    kept = Path(request.config.cache.mkdir("axe-core"))  # type: ignore[union-attr]
    script = kept / f"{AXE}.js"
    if not script.exists():
        if (npm := shutil.which("npm")) is None:
            pytest.skip("npm is not installed, which fetches axe-core")
        got = subprocess.run([npm, "pack", AXE], cwd=kept, capture_output=True, text=True, timeout=120)
        if got.returncode:
            pytest.skip(f"npm could not fetch {AXE}: {got.stderr.strip()[-200:]}")
        with tarfile.open(kept / got.stdout.split()[-1]) as package:
            content = package.extractfile("package/axe.min.js")
            assert content is not None
            script.write_bytes(content.read())
    return script.read_text(encoding="utf-8")


def violations(browser: Browser, axe: str) -> list[str]:
    browser.driver.set_script_timeout(120)
    browser.script(axe)
    found: dict[str, Any] = browser.driver.execute_async_script(
        "const [levels, done] = arguments; axe.run(document, {runOnly: levels}).then(done)", LEVELS
    )
    assert len(found["passes"]) > 20
    return [f"{one['id']}: {node['html'][:160]}" for one in found["violations"] for node in one["nodes"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_known_barrier(browser: Browser, axe: str, theme: str) -> None:
    browser.open(f"?__theme={theme}&max_epochs=8&law=additive_2p&picture=frontier")
    browser.drawn()
    assert violations(browser, axe) == []
    browser.type("ud", "lots")
    eventually(lambda: browser.text("#plan-problem"))
    assert violations(browser, axe) == []
    browser.tab("runs")
    assert violations(browser, axe) == []
    browser.narrow()
    browser.open(f"?__theme={theme}")
    assert violations(browser, axe) == []


def test_what_is_wrong_is_said_of_its_field(browser: Browser) -> None:
    browser.open("?compute=hours")
    wrong = "return [...document.querySelectorAll('[aria-invalid=true]')].map(e => e.name)"
    assert browser.script(wrong) == []
    browser.type("gpus", "many")
    eventually(lambda: browser.script(wrong), lambda found: found == ["gpus"])
    said = "document.querySelector('[aria-invalid]').getAttribute('aria-describedby')"
    sentence = browser.script(f"return document.getElementById({said}).textContent")
    assert sentence.startswith("GPUs must be")
    browser.type("gpus", "8")
    eventually(lambda: browser.script(wrong), lambda found: found == [])


def test_buttons_and_pictures_have_words(browser: Browser) -> None:
    browser.open("?picture=terms")
    made = plan("250M", "5e18")
    spoken = browser.script("return [...document.querySelectorAll('[data-step]')].map(e => e.ariaLabel)")
    assert len(set(spoken)) == 4
    figure = "return document.getElementById(document.getElementById('plot').getAttribute('aria-labelledby'))"
    words = eventually(lambda: browser.script(f"{figure}?.textContent"))
    assert f"overfitting {made.terms.overfitting:.3f}" in words
    assert browser.text("h1").strip() == "databound"


def test_focus_is_seen_on_radios(browser: Browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.open()
    for _ in range(12):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        if browser.script("return document.activeElement.type === 'radio'"):
            break
    label = "getComputedStyle(document.activeElement.closest('label'))"
    outline = f"const s = {label}; return [s.outlineStyle, s.outlineWidth]"
    assert browser.script(outline) == ["solid", "3px"]


def test_enlarged_to_twice_its_size_nothing_is_cut_off_or_left_empty(browser: Browser) -> None:
    half = {"width": 640, "height": 450, "deviceScaleFactor": 2, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", half)
    browser.open()
    browser.drawn()
    assert browser.script("return document.documentElement.scrollWidth") <= 640
    for part in ("#in-weight_decay", "#answer", "#plot"):
        assert browser.find(part).rect["width"] > 0.85 * 640


@pytest.mark.parametrize("width", [1280, 820, 390])
def test_axis_titles_are_whole_at_every_width(browser: Browser, width: int) -> None:
    browser.window(width, 900)
    inside = """
    const box = document.querySelector("#plot .main-svg").getBoundingClientRect();
    return [".xtitle", ".annotation-text"].map((one) => {
      const own = document.querySelector(`#plot ${one}`).getBoundingClientRect();
      return own.width > 0 && own.left >= box.left - 1 && own.right <= box.right + 1 && own.top >= box.top - 1
        && own.bottom <= box.bottom + 1;
    });
    """
    for picture in ("isoflop", "frontier", "crossover", "terms", "whatif"):
        browser.open(f"?picture={picture}")
        browser.drawn()
        eventually(lambda: browser.script(inside), lambda found: found == [True, True])
        height = "s => document.querySelector(s).getBoundingClientRect().height"
        heights = browser.script(f"return ['.legend', '#plot .nsewdrag'].map({height})")
        assert heights[0] < heights[1]  # the legend leaves room for what it explains


def test_motion_is_left_out_where_it_is_not_wanted(browser: Browser) -> None:
    calm = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", calm)
    browser.open()
    still = "e => getComputedStyle(e).transitionDuration === '0s'"
    moving = f"return [...document.querySelectorAll('*')].filter(e => !({still})(e)).length"
    assert browser.script(moving) == 0
