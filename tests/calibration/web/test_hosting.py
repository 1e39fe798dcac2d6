"""The examples of docs/service.md run against a server, and what hosts are given is whole."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import databound
from planner.cli import planner
from planner.results import Plan
from tests.calibration.web.conftest import Address
from tests.places import ROOT

pytest.importorskip("fastapi")
pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
WRITTEN = "http://127.0.0.1:7860"


def test_every_curl_of_the_page_is_answered(server: Address, runs: pd.DataFrame, tmp_path: Path) -> None:
    runs.head(30).to_csv(tmp_path / "runs.csv", index=False)
    lines = re.findall(r"^curl .*", PAGE, re.MULTILINE)
    assert len(lines) >= 4
    answers = []
    for line in lines:
        words = shlex.split(line.replace(WRITTEN, server))
        done = subprocess.run([*words, "--fail", "-s"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stdout)
        answers.append(done.stdout)
    assert Plan.model_validate_json(answers[0]) == databound.plan(ud="250M", flops="5e18")
    assert '"calibration"' in (tmp_path / "fitted.json").read_text()
    taken_out, planned = re.findall(r"^(?:python3 -c|planner plan --calibration) .*", PAGE, re.MULTILINE)
    subprocess.run(shlex.split(taken_out), cwd=tmp_path, check=True)
    own = planned.replace("ours.json", str(tmp_path / "ours.json"))
    done = CliRunner().invoke(planner, shlex.split(own)[1:])
    assert done.exit_code == 0, done.output


def test_the_python_of_the_page_runs(
    server: Address, runs: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.head(30).to_csv(tmp_path / "runs.csv", index=False)
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    names: dict[str, object] = {}
    exec(compile(code.replace(WRITTEN, server), "docs/service.md", "exec"), names)
    assert names["p"] == databound.plan(ud="250M", flops="5e18")


def test_a_space_has_all_that_its_container_is_built_from(tmp_path: Path) -> None:
    command = [sys.executable, "deploy/space/make.py", str(tmp_path / "space")]
    subprocess.run(command, cwd=ROOT, check=True)
    recipe = (tmp_path / "space" / "Dockerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", recipe, re.MULTILINE) for name in line.split()]
    assert {"pyproject.toml", "planner", "calibration"} <= {*copied}
    assert [name for name in copied if not (tmp_path / "space" / name).exists()] == []
    assert "sdk: docker" in (tmp_path / "space" / "README.md").read_text(encoding="utf-8")
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "must not exist yet" in again.stderr
