"""A run on a busy machine loses its share of it and not everything: its threads sleep while they wait."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from trainer import waiting
from trainer.cli import train


def test_a_run_is_started_so_that_threads_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in waiting.ENVIRONMENT:
        monkeypatch.setenv(name, "")  # so that what follows is undone
        monkeypatch.delenv(name)
    CliRunner().invoke(train, ["no-such-file.toml"])
    assert {name: os.environ.get(name) for name in waiting.ENVIRONMENT} == waiting.ENVIRONMENT


def test_who_chose_another_way_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in waiting.ENVIRONMENT:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    waiting.sleep_while_waiting()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "GOMP_SPINCOUNT" not in os.environ
