"""What a visitor sees and can take hold of without scrolling, reading or waiting."""

from __future__ import annotations

import pytest

from planner import plan
from tests.calibration.web.conftest import Browser, eventually
from tests.calibration.web.test_page import expected, shows

pytestmark = pytest.mark.slow
# What the picture shows: every line and mark, the words in it, and its axes.
CHART = """
const plot = document.querySelector("#plot");
if (!plot?._fullLayout?.xaxis) return null;
const words = (plot.layout.annotations ?? []).map((one) => one.text);
const all = JSON.stringify([plot.data.map((one) => [one.x, one.y]), words, plot.layout.xaxis.range]);
return String([...all].reduce((hash, letter) => (hash * 31 + letter.charCodeAt(0)) % 2147483647, 7));
"""
# The lowest pixel of each part, where all of it is inside of the window.
INSIDE = """
return arguments[0].map((part) => {
  const box = document.querySelector(part).getBoundingClientRect();
  const across = box.left >= 0 && box.right <= innerWidth;
  return across && box.height > 0 && box.top >= 0 && box.bottom <= innerHeight;
});
"""


@pytest.mark.parametrize("size", [(1440, 900), (1280, 720)])
@pytest.mark.parametrize("query", ["", "?ud=180M&compute=hours&hours=24"])
def test_verdict_tiles_and_picture_are_there_without_scrolling(
    browser: Browser, size: tuple[int, int], query: str
) -> None:
    browser.window(*size)
    browser.open(query)
    browser.drawn()
    parts = [".verdict", *(f".tile:nth-child({i})" for i in range(1, 6)), "#plot"]
    assert browser.script(INSIDE, [*parts, "#plot .xtitle", "#in-ud", "#in-weight_decay"]) == [True] * 10
    assert browser.find("#plot .nsewdrag").rect["height"] > 200


def test_on_a_phone_what_one_has_comes_first_and_the_picture_is_whole(browser: Browser) -> None:
    browser.window(390, 844)
    browser.open("?ud=180M&compute=hours&hours=24")
    browser.drawn()
    parts = ["#in-ud", "#in-hours", "#in-gpu", "#in-weight_decay", ".verdict"]
    eventually(lambda: browser.script(INSIDE, parts), lambda found: found == [True] * len(parts))
    browser.script("document.querySelector('#plot').scrollIntoView({block: 'center'})")
    assert browser.script(INSIDE, ["#plot", "#plot .xtitle"]) == [True, True]
    assert browser.script("return document.documentElement.scrollWidth") <= 390


def test_the_picture_opens_on_where_you_are_and_where_to_stop(browser: Browser) -> None:
    browser.open("?ud=180M&compute=hours&hours=24")
    made = plan("180M", gpu="H100", gpus=8, hours=24)
    assert made.crossover_flops is not None
    words = "return document.querySelector('#plot')?.layout?.annotations?.map(a => a.text)"
    said = eventually(lambda: browser.script(words))
    assert any(one.startswith("C× 1.79e18") for one in said)
    assert any(one.startswith("you are here: 2.73e20") for one in said)
    assert any(one.startswith("stop here:<br>24 min") for one in said)
    assert browser.script("return document.querySelector('#facts').open") is False
    browser.press("#in-spend")
    everything = plan("180M", gpu="H100", gpus=8, hours=24, spend="all")
    eventually(browser.figures, lambda found: found["params"] == everything.params)
    eventually(lambda: browser.script("return location.search"), lambda query: "spend=all" in query)


def test_every_input_moves_the_picture(browser: Browser) -> None:
    browser.open()
    before = eventually(lambda: browser.script(CHART))

    def moved() -> None:
        nonlocal before
        before = eventually(lambda: browser.script(CHART), lambda now: now not in (None, before))

    for name, text in (("ud", "120M"), ("flops", "4e19")):
        browser.type(name, text)
        moved()
    assert not browser.find("#in-gpus").is_displayed()  # nobody asked about GPUs
    browser.type("weight_decay", "0.1")
    moved()
    for _ in range(2):
        browser.press("#in-spend")
        moved()
    browser.pick("compute", "GPU time")
    moved()
    for name, text in (("hours", "40"), ("gpus", "4"), ("mfu", "30%")):
        browser.type(name, text)
        moved()
    browser.choose("gpu", "L40S")
    moved()
    browser.unfold("limits")
    for name, text in (("max_params", "900M"), ("max_epochs", "5")):
        browser.type(name, text)
        moved()
    browser.unfold("laws")
    browser.choose("law", "additive 2p")
    moved()
    browser.choose("calibration", "c4-gpt2")
    moved()


def test_a_slider_moves_its_field_and_follows_it(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open()
    place = "return Number(document.querySelector('[data-for=ud]').value)"
    at = browser.script(place)
    browser.type("ud", "25M")
    eventually(lambda: browser.script(place), lambda now: now == pytest.approx(at - 1000 / 7, abs=1))
    slider = browser.find("[data-for=ud]")
    slider.send_keys(*[Keys.ARROW_RIGHT] * 43)  # 0.3 of seven decades: twice as much
    eventually(lambda: browser.script(VALUE, "ud"), lambda text: text == "50M")
    shows(browser, expected("50M"))
    assert slider.get_attribute("aria-valuetext") == "50M"


def test_the_budget_can_be_dragged_along_the_curve(browser: Browser) -> None:
    browser.window(1280, 720)
    browser.open()
    x, y = place_of(browser, 5e18)
    further, _ = place_of(browser, 2e18)
    drag(browser, x, y, further)
    about = pytest.approx(2e18, rel=0.03)
    text = eventually(lambda: browser.script(VALUE, "flops"), lambda text: float(text) == about)
    shows(browser, expected(flops=text))

    browser.open("?compute=hours&hours=24")  # in hours the budget stays in hours
    budget = plan("250M", gpu="H100", gpus=8, hours=24).flops
    x, y = place_of(browser, budget)
    further, _ = place_of(browser, budget / 2)
    drag(browser, x, y, further)
    about = pytest.approx(12, rel=0.03)
    eventually(lambda: browser.script(VALUE, "hours"), lambda text: float(text) == about)


def test_the_weight_decay_can_be_dragged_and_a_dial_shows_its_best(browser: Browser) -> None:
    browser.window(1280, 720)
    browser.open("?calibration=micro-weight-decay&ud=300k&flops=3e13&picture=decay")
    best = plan("300k", "3e13", calibration="micro-weight-decay").weight_decay
    words = "return document.querySelector('#plot')?.layout?.annotations?.map(a => a.text)"
    said = eventually(lambda: browser.script(words))
    best_shown = next(one for one in said if one.startswith("best: "))
    assert float(best_shown.removeprefix("best: ")) == pytest.approx(best, rel=0.1)
    x, y = place_of(browser, best)
    further, _ = place_of(browser, 2.0)
    drag(browser, x, y, further)
    text = eventually(lambda: browser.script(VALUE, "weight_decay"), bool)
    assert float(text) == pytest.approx(2.0, rel=0.05)
    shows(browser, expected("300k", "3e13", calibration="micro-weight-decay", weight_decay=text))


def test_the_back_button_goes_back_and_examples_are_links(browser: Browser) -> None:
    browser.open()
    shows(browser, expected())
    browser.press(".chip:nth-child(4)")
    shows(browser, expected("500M", "3e19"))
    assert browser.script("return location.search") == "?ud=500M&flops=3e19"
    browser.script("window.stayed = true")
    browser.type("ud", "300M")
    shows(browser, expected("300M", "3e19"))
    browser.driver.back()
    shows(browser, expected("500M", "3e19"))
    assert browser.script(VALUE, "ud") == "500M"
    # An answer that comes too late does not take the place of what was gone back to.
    late = "field.value = '700M'; field.dispatchEvent(new Event('input', {bubbles: true})); history.back()"
    browser.script(f"const field = document.querySelector('#in-ud'); {late}")
    shows(browser, expected())
    browser.driver.forward()
    shows(browser, expected("500M", "3e19"))
    assert browser.script("return window.stayed")  # without loading the page again
    browser.driver.refresh()
    shows(browser, expected("500M", "3e19"))


VALUE = "return document.querySelector(`#in-${arguments[0]}`)?.value"
_PLACE = """
const plot = document.querySelector("#plot"), axis = plot?._fullLayout?.xaxis;
if (!axis?.d2p || !plot.layout.meta) return null;
const box = plot.getBoundingClientRect();
return [box.left + axis._offset + axis.d2p(arguments[0]), box.top + box.height / 2].map(Math.round);
"""


def place_of(browser: Browser, flops: float) -> tuple[int, int]:
    found: list[int] = eventually(lambda: browser.script(_PLACE, flops))
    return found[0], found[1]


def drag(browser: Browser, x: int, y: int, to: int) -> None:
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    mouse = ActionBuilder(browser.driver)
    mouse.pointer_action.move_to_location(x, y).pointer_down()
    for step in (0.5, 1.0):
        mouse.pointer_action.move_to_location(round(x + step * (to - x)), y)
    mouse.pointer_action.pointer_up()
    mouse.perform()
