"""How long the page takes to show the result of a change, next to a Gradio page that does nothing but echo.

    python benchmarks/ui_speed.py            # needs chromium and chromium-driver

Both pages are served on this machine and looked at by headless Chromiums, in turns. The clock is the browser's own: from the input event
to the first change of the shown text. For the planner also until the picture has been redrawn.
"""

from __future__ import annotations

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
from calibration.ui.page import theme
with gr.Blocks(analytics_enabled=False) as blocks:
    typed = gr.Textbox(elem_id="in-ud")
    shown = gr.HTML(elem_id="answer")
    typed.input(lambda text: f"<section>{text}</section>", typed, shown, show_progress="hidden", trigger_mode="always_last")
blocks.launch(server_port=int(sys.argv[1]), quiet=True, ssr_mode=False, theme=theme())
"""
# Sets a field as typing does, and waits until what `watch` selects has changed; answers with milliseconds.
CHANGE = """
const [selector, text, watch, done] = arguments;
const field = document.querySelector(selector), shown = () => document.querySelector(watch)?.innerHTML;
const kind = field.tagName === "TEXTAREA" ? HTMLTextAreaElement : HTMLInputElement;
const before = shown(), start = performance.now();
const observer = new MutationObserver(() => {
  if (shown() === before) return;
  observer.disconnect();
  done(performance.now() - start);
});
observer.observe(document.body, {childList: true, subtree: true, characterData: true, attributes: true});
if (text === null) { field.click(); }
else {
  Object.getOwnPropertyDescriptor(kind.prototype, "value").set.call(field, text);
  field.dispatchEvent(new Event("input", {bubbles: true}));
}
"""
ROUNDS = 15


def main() -> None:
    ports = _free_port(), _free_port()
    servers = [
        subprocess.Popen(
            [sys.executable, "-m", "planner", "ui", "--port", str(ports[0]), "--no-browser"], stdout=subprocess.DEVNULL
        ),
        subprocess.Popen([sys.executable, "-c", ECHO, str(ports[1])], stdout=subprocess.DEVNULL),
    ]
    browsers = []
    try:
        for port in ports:
            _wait(port)
        for port in ports:
            browsers.append(_chromium())
            browsers[-1].set_script_timeout(15)
            browsers[-1].get(f"http://127.0.0.1:{port}/")
        driver, echo = browsers
        time.sleep(6)
        field = "#in-ud :is(input, textarea)"
        times: dict[str, list[float]] = {}
        for i in range(ROUNDS + 2):
            _note(times, "echo page", _change(echo, field, f"{100 + i}M", "#answer"), i)
            _note(times, "unique tokens: answer", _change(driver, field, f"{200 + 10 * i}M", "#answer"), i)
            time.sleep(0.5)
            _note(times, "compute: answer", _change(driver, "#in-flops :is(input, textarea)", f"{3 + i}e18", "#answer"), i)
            time.sleep(0.5)
            _note(times, "compute: picture", _change(driver, "#in-flops :is(input, textarea)", f"{3 + i}.5e18", "#plot"), i)
            time.sleep(0.5)
            _note(times, "GPUs: answer", _change(driver, "#in-gpus :is(input, textarea)", f"{2 + i}", "#answer"), i)
            time.sleep(0.5)
            _note(times, "button ×2: answer", _change(driver, "#double-ud", None, "#answer"), i)
            time.sleep(0.5)
        for i in range(5 + 1):
            for key in ("frontier", "crossover", "terms", "whatif", "isoflop"):
                chosen = f"#in-picture input[value={key}]"
                _note(times, f"picture {key}", _change(driver, chosen, None, "#plot"), i + 1)
                time.sleep(0.4)
    finally:
        for browser in browsers:
            browser.quit()
        for server in servers:
            server.terminate()
            server.wait()
    base = statistics.median(times["echo page"])
    print(f"{'':28}{'median':>10}{'worst':>10}{'of echo':>10}")
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:28}{middle:7.0f} ms{max(values):7.0f} ms{middle / base:9.1f}x")


def _change(driver: Any, selector: str, text: str | None, watch: str) -> float:
    return float(driver.execute_async_script(CHANGE, selector, text, watch))


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
