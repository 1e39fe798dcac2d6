"""A real server in a process of its own, and a real Chromium that looks at it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.simulated import grid_table
from planner.calibration import Calibration
from tests.places import ROOT

PHONE = 375  # pixels wide
# How many lines and marks the picture has.
TRACES = "document.querySelectorAll('#plot .scatterlayer .trace').length"
PATIENCE = 600.0  # seconds; only a failure waits that long, however busy the machine


def eventually(
    what: Callable[[], Any], wanted: Callable[[Any], bool] = bool, patience: float = PATIENCE
) -> Any:
    """What `what()` returns once it is as wanted."""
    deadline = time.monotonic() + patience
    while True:
        found = what()
        if wanted(found) or time.monotonic() > deadline:
            assert wanted(found), f"still {found!r} after {patience:g} s"
            return found
        time.sleep(0.05)


@pytest.fixture(scope="session")
def server() -> Iterator[Address]:
    """The address of `planner serve`, as a user starts it."""
    with serving() as address:
        assert address.startswith("http://127.0.0.1:")
        yield address


class Address(str):
    """Where a server answers, its process, and where it keeps files."""

    pid: int
    folder: Path


@contextlib.contextmanager
def serving(*options: str, **environment: str) -> Iterator[Address]:
    """`planner serve` with these options, until it is no longer needed; its address."""
    if importlib.util.find_spec("fastapi") is None:
        pytest.skip("fastapi is not installed: pip install '.[web]'")
    command = [sys.executable, "-u", "-m", "planner", "serve", "--port", "0", *options]
    files = tempfile.TemporaryDirectory()
    inherited = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": files.name, **environment}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=inherited)
    assert process.stdout is not None
    try:
        address = Address(process.stdout.readline().split()[2])
        address.pid, address.folder = process.pid, Path(files.name)
        eventually(lambda: _answers(address), patience=PATIENCE)
        yield address
        assert process.poll() is None, "the server died while it was tested"
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()
        left = sorted(path.name for path in Path(files.name).glob("databound-*"))
        files.cleanup()
    assert left == [], "what visitors uploaded outlived the server"


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=60) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


class Browser:
    """Chromium on the page, with the few gestures that people make there."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, query: str = "") -> None:
        """A page of our own, until its answer is there."""
        self.driver.get(f"{self.address}/{query}")
        eventually(lambda: self.script("return !!document.body?.dataset.asked"))

    def window(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def drawn(self) -> None:
        eventually(lambda: self.script(f"return {TRACES}"))

    def narrow(self) -> None:
        """As on a phone."""
        phone = {"width": PHONE, "height": 720, "deviceScaleFactor": 2, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)

    def script(self, code: str, *values: Any) -> Any:
        return self.driver.execute_script(code, *values)

    def find(self, selector: str) -> Any:
        return eventually(lambda: self.driver.find_elements("css selector", selector))[0]

    def text(self, selector: str) -> str:
        return self.script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def figures(self) -> dict[str, float]:
        """Every number of the answer with all its digits."""
        found = self.script(
            "return [...document.querySelectorAll('data[data-key]')].map(e => [e.dataset.key, e.value])"
        )
        return {key: float(value) for key, value in found}

    def type(self, name: str, text: str) -> None:
        from selenium.webdriver.common.keys import Keys

        field = self.find(f"#in-{name}")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text or Keys.DELETE)

    def choose(self, name: str, label: str) -> None:
        """Pick from a drop-down list."""
        from selenium.webdriver.support.ui import Select

        found = Select(self.find(f"#in-{name}"))
        found.select_by_visible_text(next(one.text for one in found.options if label in one.text))

    def pick(self, name: str, label: str) -> None:
        """Pick one of a row of buttons."""
        labels = self.driver.find_elements("css selector", f"#in-{name} label")
        next(one for one in labels if one.text.strip() == label).click()

    def press(self, selector: str) -> None:
        self.script("arguments[0].scrollIntoView({block: 'center'})", self.find(selector))
        self.find(selector).click()

    def tab(self, name: str) -> None:
        self.press(f"#tab-{name}")

    def unfold(self, name: str) -> None:
        self.press(f"#{name}-fold > summary")

    def upload(self, selector: str, path: Path) -> None:
        self.find(selector).send_keys(str(path))

    def visited(self) -> list[str]:
        """Every address that was asked for since the last look."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if url.startswith(("http", "ws", "ftp"))]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed: apt-get install chromium chromium-driver")
    if importlib.util.find_spec("selenium") is None:
        pytest.skip("selenium is not installed: pip install '.[dev]'")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-quic",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "disable-dev-shm-usage",
        "hide-scrollbars",
        "window-size=1280,1487",
        f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(f"--{flag}")
    options.add_experimental_option(
        "prefs", {"download.default_directory": str(tmp_path_factory.mktemp("downloads"))}
    )
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    found.set_script_timeout(PATIENCE)  # on a busy machine a page waits for its turn
    yield found
    found.quit()


@pytest.fixture
def browser(chromium: Any, server: str) -> Iterator[Browser]:
    """A fresh page."""
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    )
    yield Browser(chromium, server)
    chromium.get("about:blank")


@pytest.fixture(scope="session")
def runs() -> pd.DataFrame:
    """Runs that obey a known law, with a little noise."""
    law = Calibration.load().law(0.1)
    table = grid_table(law, 90, 0.002, np.random.default_rng(7), weight_decay=0.1)
    return table.round({"params": 0, "unique_tokens": 0, "tokens": 0})
