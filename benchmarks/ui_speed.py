"""How long the page takes to show the result of a change, next to a Gradio page that does nothing but echo.

    python benchmarks/ui_speed.py            # needs chromium and chromium-driver

Both pages are served on this machine and looked at by headless Chromiums, in turns. The clock is the
browser's own: from the input event to the first change of the shown text, or of the picture. Every input of
the page is tried; the last line says whether each changed the picture within half a second.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Any

ECHO = """
import sys
import calibration.ui, gradio as gr
from calibration.ui.server import theme
with gr.Blocks(analytics_enabled=False) as blocks:
    typed = gr.Textbox("250M", elem_id="in-ud")
    shown = gr.HTML(elem_id="answer")
    echo = lambda text: f"<section>{text}</section>"
    typed.change(echo, typed, shown, show_progress="hidden", trigger_mode="always_last")
blocks.launch(server_port=int(sys.argv[1]), quiet=True, ssr_mode=False, theme=theme())
"""
# Starts the clock at the next input or click, and stops it when what `watch` selects has changed.
ARM = """
const [watch, kinds = ["input", "click"]] = arguments, shown = () => document.querySelector(watch)?.innerHTML;
const before = shown();
window.measured = null;
let start = null;
const begin = () => { start ??= performance.now(); };
for (const kind of kinds) document.addEventListener(kind, begin, {capture: true, once: true});
const observer = new MutationObserver(() => {
  if (start === null || shown() === before) return;
  observer.disconnect();
  window.measured = performance.now() - start;
});
observer.observe(document.body, {childList: true, subtree: true, characterData: true, attributes: true});
"""
# What is shown itself: the boxes around it change as soon as a request is sent.
ANSWER, PICTURE = "#answer section", "#plot .js-plotly-plot"
ROUNDS = 12
WITHIN = 500.0  # milliseconds in which an input shall have changed the picture
START = "?ud=120M&flops=4e19&max_epochs=7"  # where every input shows in the picture: less than all is spent
TEXTS = {
    "ud": ("130M", "120M"),
    "flops": ("3e19", "4e19"),
    "gpus": ("4", "8"),
    "mfu": ("30%", "40%"),
    "weight_decay": ("0.3", ""),
    "max_params": ("300M", ""),
    "max_epochs": ("5", "7"),
}
LISTS = {"gpu": ("L40S", "H100"), "law": ("additive 2p", "choose"), "calibration": ("c4-gpt2", "fineweb")}
WRITE = """
const box = document.querySelector(arguments[0]);
Object.getOwnPropertyDescriptor(Object.getPrototypeOf(box), "value").set.call(box, arguments[1]);
box.dispatchEvent(new Event("input", {bubbles: true}));
"""


def main() -> None:
    load = os.getloadavg()[0]
    ports = _free_port(), _free_port()
    servers = [
        subprocess.Popen(
            [sys.executable, "-m", "planner", "ui", "--port", str(ports[0]), "--no-browser"],
            stdout=subprocess.DEVNULL,
        ),
        subprocess.Popen([sys.executable, "-c", ECHO, str(ports[1])], stdout=subprocess.DEVNULL),
    ]
    browsers = []
    try:
        for port in ports:
            _wait(port)
        for port in ports:
            browsers.append(_chromium())
            browsers[-1].get(f"http://127.0.0.1:{port}/")
        driver, echo = browsers
        time.sleep(6)
        times: dict[str, list[float]] = {}
        for i in range(ROUNDS + 2):
            _note(times, "echo page", _type(echo, "ud", ANSWER, i), i)
            for name, field in (("unique tokens", "ud"), ("compute", "flops")):
                _note(times, f"{name}: answer", _type(driver, field, ANSWER, i), i)
        for i in range(ROUNDS + 2):
            ids = "#halve-{}" if i % 2 else "#double-{}"
            _note(times, "button ×2 or ÷2: answer", _press(driver, ids.format("compute"), ANSWER), i)
            _note(times, "button ×2 or ÷2: picture", _press(driver, ids.format("ud"), PICTURE), i)
        for i in range(7):
            for key in ("frontier", "decay", "terms", "whatif", "isoflop", "crossover"):
                _note(times, f"picture {key}", _press(driver, f"#in-picture input[value={key}]", PICTURE), i)
        charts = _inputs(driver, f"http://127.0.0.1:{ports[0]}/{START}")
    finally:
        for browser in browsers:
            browser.quit()
        for server in servers:
            server.terminate()
            server.wait()
    print(
        f"load of this machine, before and after: {load:.1f} and {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} processors"
    )
    base = statistics.median(times["echo page"])
    print(f"{'':28}{'median':>10}{'worst':>10}{'of echo':>10}")
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:28}{middle:7.0f} ms{max(values):7.0f} ms{middle / base:9.1f}x")
    print("from an input to the picture:")
    for name, values in charts.items():
        print(f"{name:28}{statistics.median(values):7.0f} ms{max(values):7.0f} ms")
    late = [name for name, values in charts.items() if max(values) > WITHIN]
    print(
        f"within {WITHIN:.0f} ms, even the slowest: " + ("all" if not late else f"all but {', '.join(late)}")
    )


def _inputs(driver: Any, address: str) -> dict[str, list[float]]:
    """Every input in turn, changed and changed back: until the picture is another."""
    driver.get(address)
    time.sleep(6)
    for fold in driver.find_elements("css selector", "#db-inputs button.label-wrap"):
        if "open" not in (fold.get_attribute("class") or ""):
            fold.click()
    times: dict[str, list[float]] = {}
    for i in range(ROUNDS // 4 + 2):
        for name, texts in TEXTS.items():
            box = f"#in-{name} :is(input, textarea)"
            for text in texts:
                _note(times, name, _fire(driver, WRITE, box, text), i)
        for name, labels in LISTS.items():
            for label in labels:
                _note(times, name, _choose(driver, name, label), i)
        for _ in range(2):
            _note(times, "all compute anyway", _press(driver, "#in-spend input", PICTURE), i)
        for kind in ("hours", "flops"):
            _note(times, "unit of compute", _press(driver, f"#in-compute input[value={kind}]", PICTURE), i)
        # Last, because where they leave off all is spent anyway; the next round begins with what is typed.
        for name in ("ud", "compute"):
            for place in ("400", "420"):
                _note(times, f"slider of {name}", _fire(driver, WRITE, f"[data-for={name}]", place), i)
    return times


def _fire(driver: Any, script: str, *values: str) -> float:
    driver.execute_script(ARM, PICTURE)
    driver.execute_script(script, *values)
    return _measured(driver)


def _choose(driver: Any, name: str, label: str) -> float:
    """From the key that picks an entry of a list."""
    from selenium.webdriver.common.keys import Keys

    field = driver.find_element("css selector", f"#in-{name} input")
    field.click()
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(label)
    time.sleep(0.5)
    driver.execute_script(ARM, PICTURE, ["keydown"])
    field.send_keys(Keys.ENTER)
    return _measured(driver)


def _type(driver: Any, name: str, watch: str, turn: int) -> float:
    """One keystroke: a 1 in front of the number, or away with it again."""
    from selenium.webdriver.common.keys import Keys

    field = driver.find_element("css selector", f"#in-{name} :is(input, textarea)")
    field.send_keys(Keys.HOME)
    driver.execute_script(ARM, watch)
    field.send_keys(Keys.DELETE if turn % 2 else "1")
    return _measured(driver)


def _press(driver: Any, selector: str, watch: str) -> float:
    driver.execute_script(ARM, watch)
    driver.execute_script("document.querySelector(arguments[0]).click()", selector)
    return _measured(driver)


def _measured(driver: Any) -> float:
    for _ in range(300):
        time.sleep(0.05)
        found = driver.execute_script("return window.measured")
        if found is not None:
            time.sleep(0.3)  # whatever else the change set off
            return float(found)
    raise RuntimeError("a change showed nothing")


def _note(times: dict[str, list[float]], name: str, milliseconds: float, turn: int) -> None:
    if turn >= 2:  # the first two warm up
        times.setdefault(name, []).append(milliseconds)


def _chromium() -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or sys.exit("chromium is not installed")
    flags = (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "no-first-run",
        "disable-background-networking",
        "disable-dev-shm-usage",
    )
    for flag in (*flags, "window-size=1280,1400", f"user-data-dir={tempfile.mkdtemp()}"):
        options.add_argument(f"--{flag}")
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("the server did not start")


if __name__ == "__main__":
    main()
