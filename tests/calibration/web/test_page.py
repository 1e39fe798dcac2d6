"""The page in a real browser says what `plan()` says, whatever is changed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from planner import cost, flops_from_gpus, plan
from planner.cli import planner
from planner.explain import summary
from planner.inputs import short
from tests.calibration.web.conftest import PHONE, TRACES, Browser, eventually
from tests.places import ROOT

pytestmark = pytest.mark.slow


def expected(
    ud: Any = "250M",
    flops: Any = "5e18",
    gpu: str = "H100",
    gpus: int = 8,
    mfu: float = 0.4,
    price: Any = None,
    **how: Any,
):
    """The numbers of the page, from the planner itself."""
    made = plan(ud, flops, **how)
    bill = cost(made.spent_flops, gpu, gpus, mfu, price)
    figures = {
        name: getattr(made, name) for name in ("params", "epochs", "weight_decay", "loss", "crossover_flops")
    }
    figures["flops"] = made.spent_flops
    return {
        k: v for k, v in {**figures, "gpu_hours": bill.gpu_hours, "usd": bill.usd}.items() if v is not None
    }


def shows(browser: Browser, wanted: dict[str, float]) -> None:
    eventually(browser.figures, lambda found: found == wanted)


def test_the_first_page_is_the_default_plan_and_asks_nobody_else_for_anything(browser: Browser) -> None:
    browser.visited()
    browser.open()
    shows(browser, expected())
    made = plan("250M", "5e18")
    assert browser.text("#answer [data-key=params]") == short(made.params)
    assert browser.text("#answer [data-key=loss]") == f"{made.loss:.3f}"
    answer = browser.text("#details")
    for said in (*made.reasons, *made.warnings):
        assert said[:1].upper() + said[1:] in answer
    in_order = [name for name, _ in summary(made) if name != "expected loss"]
    assert (
        browser.script("return [...document.querySelectorAll('.beside dt')].map(e => e.textContent)")
        == in_order
    )
    browser.drawn()
    asked = browser.visited()
    assert asked
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(browser.address).netloc}


def test_changing_any_input_changes_the_answer_to_that_of_plan(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open()
    browser.type("ud", "500M")
    shows(browser, expected("500M"))
    browser.type("flops", "2e19")
    shows(browser, expected("500M", "2e19"))
    browser.type("weight_decay", "0.1")
    shows(browser, expected("500M", "2e19", weight_decay=0.1))
    browser.unfold("cost")
    browser.choose("gpu", "L40S")
    shows(browser, expected("500M", "2e19", weight_decay=0.1, gpu="L40S"))
    browser.type("gpus", "2")
    browser.type("mfu", "0.3")
    hardware: dict[str, Any] = {"gpu": "L40S", "gpus": 2, "mfu": 0.3}
    shows(browser, expected("500M", "2e19", weight_decay=0.1, **hardware))
    browser.pick("compute", "GPU time")
    eventually(lambda: browser.find("#in-hours").is_displayed())
    browser.type("hours", "20")
    flops = flops_from_gpus("L40S", 2, 20, 0.3)
    shows(browser, expected("500M", flops, weight_decay=0.1, **hardware))
    browser.press("[data-step=compute][data-factor='2']")
    shows(browser, expected("500M", 2 * flops, weight_decay=0.1, **hardware))
    browser.press("[data-step=ud][data-factor='0.5']")
    shows(browser, expected("250M", 2 * flops, weight_decay=0.1, **hardware))

    browser.unfold("laws")
    browser.choose("law", "additive 2p")
    shows(browser, expected("250M", 2 * flops, weight_decay=0.1, law="additive_2p", **hardware))
    browser.choose("calibration", "c4-gpt2")
    shows(
        browser,
        expected("250M", 2 * flops, weight_decay=0.1, law="additive_2p", calibration="c4-gpt2", **hardware),
    )
    browser.choose("calibration", "fineweb-llama2")
    shows(browser, expected("250M", 2 * flops, weight_decay=0.1, law="additive_2p", **hardware))
    browser.choose("law", "choose")
    shows(browser, expected("250M", 2 * flops, weight_decay=0.1, **hardware))
    browser.type("weight_decay", "")
    shows(browser, expected("250M", 2 * flops, **hardware))

    browser.unfold("limits")
    browser.type("max_params", "1B")
    shows(browser, expected("250M", 2 * flops, max_params="1B", **hardware))
    browser.type("max_epochs", "30")
    browser.type("min_params", "500M")
    browser.type("price", "1.25")
    limits: dict[str, Any] = {"max_params": "1B", "min_params": "500M", "max_epochs": 30, "price": 1.25}
    shows(browser, expected("250M", 2 * flops, **limits, **hardware))
    browser.pick("epochs", "any fraction")
    shows(browser, expected("250M", 2 * flops, **limits, **hardware, epochs="continuous"))

    # Taking a limit or a digit away counts like typing one.
    browser.type("max_epochs", "")
    del limits["max_epochs"]
    shows(browser, expected("250M", 2 * flops, **limits, **hardware, epochs="continuous"))
    browser.find("#in-hours").send_keys(Keys.BACKSPACE)
    flops = flops_from_gpus("L40S", 2, 4, 0.3)
    shows(browser, expected("250M", flops, **limits, **hardware, epochs="continuous"))

    # The address by now holds all of it: somebody else who follows it sees the same page.
    link = browser.script("return location.search")
    browser.driver.switch_to.new_window("tab")
    try:
        browser.open(link)
        shows(browser, expected("250M", flops, **limits, **hardware, epochs="continuous"))
        limit = "return document.querySelector('#in-max_params')?.value"
        assert eventually(lambda: browser.script(limit)) == "1B"
        eventually(lambda: browser.script("return location.search"), lambda query: query == link)
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(browser.driver.window_handles[0])


def test_bad_input_is_named_at_its_field_and_can_be_corrected(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open("?ud=500M")
    browser.type("ud", "lots")
    at_field = "return document.querySelector('[data-field=ud] + .problem')?.textContent ?? ''"
    eventually(
        lambda: browser.script(at_field), lambda said: "Unique tokens must be a number such as" in said
    )
    assert browser.figures() == expected("500M")  # the last answer stays, but nobody takes it for the new one
    assert float(browser.script("return getComputedStyle(document.querySelector('#answer')).opacity")) < 0.5
    browser.type("ud", "250M")
    shows(browser, expected())
    browser.type("ud", "250M7")
    browser.find("#in-ud").send_keys(Keys.BACKSPACE)
    shows(browser, expected())
    eventually(lambda: browser.script("return !document.querySelector('#plan .problem')"))


def test_a_link_with_mistakes_shows_what_can_be_shown(browser: Browser) -> None:
    browser.open("?ud=lots&max_params=3B")  # the first visit: there is no last answer
    assert browser.text("#plan-problem").startswith("Unique tokens must be")
    shows(browser, expected(max_params="3B"))
    assert browser.script("return document.querySelector('#in-ud').value") == "lots"
    assert browser.script("return document.querySelector('#limits-fold').open")
    browser.open(
        "?ud=300M&gpu=abacus&law=additive_9p&picture=nude&calibration=/etc/passwd&weight_decay=3&__theme=light"
    )
    shows(browser, expected("300M"))
    for said in (
        "gpu 'abacus'",
        "law 'additive_9p'",
        "picture 'nude'",
        "Calibration must be one of",
        "Weight decay must be within",
    ):
        assert said in browser.text("#notes")


def test_links_of_earlier_releases_still_open(browser: Browser) -> None:
    browser.open("?calibration=dial&law=dial_steep&ud=300k&flops=3e13&weight_decay=0.3&picture=terms")
    wanted = expected(
        "300k", "3e13", calibration="micro-weight-decay", law="weight_decay_steep", weight_decay=0.3
    )
    shows(browser, wanted)
    assert "calibration=micro-weight-decay" in browser.script("return location.search")
    browser.open("?compute=hours&hours=20&gpus=4&gpu=A100&mfu=35%25&epochs=continuous&spend=all&__theme=dark")
    flops = flops_from_gpus("A100", 4, 20, 0.35)
    shows(
        browser,
        expected("250M", flops, gpu="A100", gpus=4, mfu=0.35, epochs="continuous", spend="all"),
    )
    assert browser.script("return document.querySelector('#in-spend').checked")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_picture_is_drawn_and_can_be_hovered_in_both_themes(browser: Browser, theme: str) -> None:
    titles: set[str] = set()

    def drawn_anew() -> str:
        title = lambda: browser.text("#plot .annotation-text") + browser.text("#plot .xtitle")  # noqa: E731
        return eventually(title, lambda now: now and now not in titles)

    browser.open(f"?__theme={theme}")
    titles.add(drawn_anew())  # of "Where to stop"
    for label in ("Every law", "Weight decay", "Loss terms", "What if", "At this budget"):
        browser.pick("picture", label)
        titles.add(drawn_anew())
        assert eventually(lambda: browser.script(f"return {TRACES}")) >= 3
        if label == "Loss terms":
            assert "overfitting" in hovered(browser, "the plan: ")
            assert (
                browser.script(_CONTRAST, "#plot .hoverlayer .legendtext", "#plot .hoverlayer .legend .bg")
                >= 4.5
            )
    made = plan("250M", "5e18")
    said = hovered(browser, "the plan: ")  # the curve runs through the plan
    assert said == f"{short(made.params)} parameters × {made.epochs:.3g} epochsloss {made.loss:.3f}"
    ink = (
        ".label",
        ".below",
        "dt",
        ".buttons button",
        ".figure",
        "#plot .xtick text",
        ".legend li",
    )
    for selector in ink:
        assert browser.script(_CONTRAST, selector) >= 4.5, selector


def test_a_picture_can_be_zoomed_with_the_mouse(browser: Browser) -> None:
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    browser.open("?picture=isoflop")
    x, y = eventually(lambda: browser.script(_PLACE, "the plan: "))
    low, high = browser.script(_RANGE)
    drag = ActionBuilder(browser.driver)
    drag.pointer_action.move_to_location(x - 80, y - 60).pointer_down().move_to_location(
        x + 80, y + 40
    ).pointer_up()
    drag.perform()
    nearer = eventually(lambda: browser.script(_RANGE), lambda found: found != [low, high])
    assert low < nearer[0] < nearer[1] < high


def hovered(browser: Browser, name: str) -> str:
    """What appears at the mouse when it rests on a point of the picture."""
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    x, y = eventually(lambda: browser.script(_PLACE, name))
    browser.script("document.querySelector('#plot .hoverlayer').replaceChildren()")
    for left in (300, 0):
        mouse = ActionBuilder(browser.driver)
        mouse.pointer_action.move_to_location(x - left, y)
        mouse.perform()
    return eventually(lambda: browser.text("#plot .hoverlayer"))


_RANGE = "return document.querySelector('#plot')._fullLayout.xaxis.range"
# Where on the screen the first point is of the line or mark whose name starts so.
_PLACE = """
const plot = document.querySelector("#plot");
const trace = plot?.data?.find((one) => one.name?.startsWith(arguments[0]));
if (!trace || !plot._fullLayout?.xaxis?.d2p) return null;
plot.scrollIntoView({block: "center"});
const {left, top} = plot.getBoundingClientRect(), {xaxis, yaxis} = plot._fullLayout;
return [left + xaxis._offset + xaxis.d2p(trace.x[0]), top + yaxis._offset + yaxis.d2p(trace.y[0])]
  .map(Math.round);
"""
_CONTRAST = """
const parts = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const element = document.querySelector(arguments[0]), style = getComputedStyle(element);
const ink = parts(element instanceof SVGElement ? style.fill : style.color);
let behind = element;
const under = document.querySelector(arguments[1]);
let paper = under ? parts(getComputedStyle(under).fill) : [255, 255, 255];
for (; behind && !arguments[1]; behind = behind.parentElement) {
  const found = parts(getComputedStyle(behind).backgroundColor);
  if (found.length === 3 || found[3] > 0.99) { paper = found; break; }
}
const [high, low] = [light(ink), light(paper)].sort((a, b) => b - a);
return (high + 0.05) / (low + 0.05);
"""


def test_the_copied_calls_reproduce_the_page(browser: Browser, tmp_path: Path) -> None:
    browser.driver.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"origin": browser.address, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
    )
    browser.open("?ud=500M&compute=hours&hours=5&max_epochs=4")
    wanted = expected("500M", flops_from_gpus("H100", 8, 5), max_epochs=4)
    shows(browser, wanted)
    read = "return navigator.clipboard.readText()"
    browser.press("[data-copy=copy-python]")
    space: dict[str, Any] = {}
    exec(eventually(lambda: browser.script(read), lambda text: "plan(" in text), space)
    assert space["p"].loss == wanted["loss"]
    browser.press("[data-copy=copy-config]")
    text = eventually(lambda: browser.script(read), lambda text: "unique_tokens" in text)
    config = tomllib.loads(text)
    assert (config["unique_tokens"], config["epochs"], config["weight_decay"]) == (
        500_000_000,
        wanted["epochs"],
        wanted["weight_decay"],
    )
    (tmp_path / "run.toml").write_text(text)
    tried = subprocess.run(
        [sys.executable, "-m", "planner", "train", str(tmp_path / "run.toml"), "--dry-run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert tried.returncode == 0 or ".[train]" in tried.stderr, tried.stderr
    browser.press("[data-copy=copy-command]")
    words = shlex.split(
        eventually(lambda: browser.script(read), lambda text: text.startswith("planner plan"))
    )
    printed = CliRunner().invoke(planner, [*words[1:], "--json"]).output
    assert json.loads(printed)["loss"] == wanted["loss"]
    browser.press("[data-copy=address]")
    assert (
        eventually(lambda: browser.script(read), lambda text: text.startswith("http"))
        == browser.driver.current_url
    )


def test_it_works_at_phone_width(browser: Browser) -> None:
    browser.narrow()
    browser.open()
    shows(browser, expected())
    browser.drawn()
    assert browser.script("return document.documentElement.scrollWidth") <= PHONE
    assert not browser.find("#headline").is_displayed()
    browser.script("document.querySelector('#plot').scrollIntoView()")
    eventually(lambda: browser.find("#headline").is_displayed())
    for name in ("ud", "flops", "weight_decay"):
        box = browser.find(f"#in-{name}").rect
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE
    browser.type("ud", "100M")
    shows(browser, expected("100M"))
    assert short(expected("100M")["params"]) in browser.text("#headline")


def test_it_works_with_the_keyboard_alone(browser: Browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.open()
    shows(browser, expected())

    def tab_to(test: str) -> None:
        for _ in range(80):
            ActionChains(browser.driver).send_keys(Keys.TAB).perform()
            if browser.script(f"const e = document.activeElement; return {test}"):
                return
        raise AssertionError(f"the keyboard does not reach {test}")

    tab_to("e.id === 'in-ud'")
    ActionChains(browser.driver).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).send_keys(
        "400M"
    ).perform()
    shows(browser, expected("400M"))
    tab_to("e.dataset.step === 'ud' && e.dataset.factor === '2'")
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    shows(browser, expected("800M"))
    tab_to("e.id === 'in-weight_decay'")
    ActionChains(browser.driver).send_keys("0.1").perform()
    shows(browser, expected("800M", weight_decay=0.1))
    tab_to("!!e.closest('#in-picture')")
    ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
    eventually(lambda: browser.script("return location.search"), lambda query: "picture=isoflop" in query)
    tab_to("e.dataset.copy === 'copy-command'")
    assert browser.script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize(
    ("name", "width", "height", "theme"),
    [
        ("ui", 1280, 720, "light"),
        ("ui-dark", 1280, 720, "dark"),
        ("ui-phone", 390, 844, "light"),
        ("ui-phone-dark", 390, 844, "dark"),
    ],
)
def test_the_pictures_of_the_page_in_the_documents(
    browser: Browser, tmp_path: Path, name: str, width: int, height: int, theme: str
) -> None:
    """Written into the documents when DATABOUND_UPDATE_PICTURES=1."""
    browser.window(width, height)
    browser.open(f"?ud=180M&compute=hours&hours=24&__theme={theme}")
    browser.drawn()
    eventually(lambda: browser.script("return document.fonts.status"), lambda status: status == "loaded")
    browser.script("document.activeElement.blur()")
    update = os.environ.get("DATABOUND_UPDATE_PICTURES") == "1"
    target = ROOT / "docs" / "pictures" / f"{name}.png" if update else tmp_path / f"{name}.png"
    assert browser.driver.save_screenshot(str(target))
    assert target.stat().st_size > 20_000
