"""How long the page takes from an input to the new picture, in a browser.

    python -m benchmarks.page_speed            # needs chromium and chromium-driver

`planner serve` answers on this machine, and a headless Chromium looks at it. The clock is the browser's own:
from the input event to the first change of the drawn picture. Every input is changed and changed back some
times; the last line is the median of all.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from typing import Any

ROUNDS, WARM_UP = 8, 2
START = "?ud=120M&compute=hours&hours=4&max_epochs=7"  # where every input shows in the picture
# Changes an input, or presses it, and calls back with the milliseconds until the picture is another.
CHANGE = """
const [selector, text, done] = arguments, box = document.querySelector(selector);
const html = (part) => document.querySelector(`#plot ${part}`).innerHTML;
const shown = () => html(".cartesianlayer") + html(".infolayer");
const before = shown();
let start = 0;
const observer = new MutationObserver(() => {
  if (shown() === before) return;
  observer.disconnect();
  done(performance.now() - start);
});
observer.observe(document.querySelector("#plot"), {childList: true, subtree: true, attributes: true});
start = performance.now();
if (text === null) box.click();
else {
  box.value = text;
  box.dispatchEvent(new Event(box.matches("select") ? "change" : "input", {bubbles: true}));
}
"""
INPUTS: dict[str, list[tuple[str, str | None]]] = {
    "unique tokens, typed": [("#in-ud", "130M"), ("#in-ud", "120M")],
    "a corpus never asked about": [("#in-ud", "110.{turn}1M"), ("#in-ud", "120M")],
    "unique tokens, by the slider": [("[data-for=ud]", "400"), ("[data-for=ud]", "440")],
    "compute, typed": [("#in-hours", "3"), ("#in-hours", "4")],
    "compute, by the slider": [("[data-for=compute]", "300"), ("[data-for=compute]", "320")],
    "÷2 and ×2": [("[data-step=ud][data-factor='0.5']", None), ("[data-step=ud][data-factor='2']", None)],
    "compute in FLOPs or in GPU time": [(f"#in-compute [value={unit}]", None) for unit in ("flops", "hours")],
    "all compute anyway": [("#in-spend", None)] * 2,
    "GPUs": [("#in-gpus", "4"), ("#in-gpus", "8")],
    "kind of GPU": [("#in-gpu", "L40S"), ("#in-gpu", "H100")],
    "MFU": [("#in-mfu", "30%"), ("#in-mfu", "40%")],
    "weight decay": [("#in-weight_decay", "0.3"), ("#in-weight_decay", "")],
    "largest model": [("#in-max_params", "300M"), ("#in-max_params", "")],
    "most epochs": [("#in-max_epochs", "5"), ("#in-max_epochs", "7")],
    "law": [("#in-law", "additive_2p"), ("#in-law", "")],
    "calibration": [("#in-calibration", "c4-gpt2"), ("#in-calibration", "fineweb-llama2")],
    "another picture": [
        (f"#in-picture [value={one}]", None)
        for one in ("isoflop", "decay", "frontier", "terms", "whatif", "crossover")
    ],
}


def main() -> None:
    load = os.getloadavg()[0]
    command = [sys.executable, "-u", "-m", "planner", "serve", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        times = measure(server.stdout.readline().split()[2])
    finally:
        server.terminate()
        server.wait()
    print(f"load before and after: {load:.1f} and {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name, values in times.items():
        print(f"{name:34}{statistics.median(values):6.0f} ms{max(values):6.0f} ms at worst")
    everything = [one for values in times.values() for one in values]
    print(f"{'all':34}{statistics.median(everything):6.0f} ms{max(everything):6.0f} ms at worst")


def measure(address: str) -> dict[str, list[float]]:
    """Milliseconds by input."""
    driver, times = chromium(), dict[str, list[float]]()
    try:
        time.sleep(5)
        driver.get(f"{address}/{START}")
        time.sleep(5)
        for turn in range(WARM_UP + ROUNDS):
            for name, changes in INPUTS.items():
                for selector, text in changes:
                    fresh = text.replace("{turn}", str(turn)) if text else text
                    took = float(driver.execute_async_script(CHANGE, selector, fresh))
                    if turn >= WARM_UP:
                        times.setdefault(name, []).append(took)
                    time.sleep(0.15)  # whatever else the change set off
    finally:
        driver.quit()
    return times


def chromium() -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or sys.exit("chromium is not installed")
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "window-size=1280,1400"):
        options.add_argument(f"--{flag}")
    found = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    found.set_script_timeout(20)
    return found


if __name__ == "__main__":
    main()
