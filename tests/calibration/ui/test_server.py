"""The server without a browser: many visitors at once, where it listens, and what it does not offer."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from benchmarks.ui_visitor import ask, config_of
from calibration.commands.ui import ui
from planner import plan
from planner.inputs import short
from tests.calibration.ui.conftest import serving

pytestmark = pytest.mark.slow


def test_twenty_visitors_at_once_each_get_their_own_answer(server: str) -> None:
    config = config_of(server)
    budgets = [f"{100 + 20 * i}M" for i in range(20)]
    with ThreadPoolExecutor(20) as visitors:
        answers = list(visitors.map(lambda ud: ask(server, config, {"ud": ud}), budgets))
    for ud, answer in zip(budgets, answers, strict=True):
        made = plan(ud, "5e18")
        assert f'value="{made.params!r}">{short(made.params)}<' in answer
        assert f'value="{made.loss!r}"' in answer


def test_it_listens_on_this_machine_only_unless_told_otherwise(server: str) -> None:
    port = int(server.rsplit(":", 1)[1])
    assert reached("127.0.0.1", port)
    for other in ELSEWHERE:
        assert not reached(other, port)
    with serving("--host", "0.0.0.0") as told:
        port = int(told.rsplit(":", 1)[1])
        for other in ELSEWHERE:
            assert reached(other, port)


# 127.0.0.2 is an address of every Linux machine that a socket bound to
# 127.0.0.1 does not answer, as it would not that of a network card.
ELSEWHERE = sorted(
    {"127.0.0.2", *(info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET))}
    - {"127.0.0.1"}
)


def reached(host: str | int, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def test_files_of_the_machine_and_programmatic_calls_are_not_on_offer(server: str) -> None:
    for path in (
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=pyproject.toml",
        "/gradio_api/file=../pyproject.toml",
        "/gradio_api/info",
    ):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(server + path, timeout=120)


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(ui, ["--port", str(port), "--no-browser"])
    assert result.exit_code == 2
    assert f"--port {port} cannot be listened on: address already in use" in result.output
    assert CliRunner().invoke(ui, ["--host", "no such host", "--no-browser"]).exit_code == 2
    assert "--share" not in CliRunner().invoke(ui, ["--help"]).output


def test_without_gradio_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['gradio'] = None; from calibration.commands.ui import ui; "
        "ui(['--port', '0', '--no-browser'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert (
        result.stderr.strip()
        == "Error: `planner ui` needs gradio, which is not installed; `pip install '.[ui]'` has it."
    )
