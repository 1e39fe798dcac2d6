"""The study of four new corpora: its figures are those of the protocol, its tables say what they should."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from tests.places import ROOT, script

pytest.importorskip("torch", reason="the study trains")
FOLDER = ROOT / "studies" / "new-corpora"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    return script("studies/new-corpora/make.py")


def test_all_have_the_same_compute(make: ModuleType) -> None:
    protocol = make.Protocol()
    grid = sum(6 * size * unique * passes for size, unique, passes in protocol.grid)
    assert grid == pytest.approx(protocol.calibration, rel=0.01)
    for budget in protocol.budgets:
        draws = make.drawn(budget, protocol, "german")
        assert sum(draw.flops for draw in draws) <= budget + protocol.calibration
        assert all(draw.params * draw.epochs == pytest.approx(budget / 6 / protocol.ud) for draw in draws)
        assert draws == make.drawn(budget, protocol, "german")
        assert draws != make.drawn(budget, protocol, "c")


def test_the_protocol_says_what_is_run(make: ModuleType) -> None:
    text, protocol = (FOLDER / "protocol.md").read_text(encoding="utf-8"), make.Protocol()
    assert "K = 8.5e11 FLOPs" in text
    assert protocol.calibration == 8.5e11
    assert f"{protocol.ud:,} unique tokens" in text
    assert [f"{budget:.2g}".replace("+", "") for budget in protocol.budgets] == ["5e10", "2.5e11", "8.5e11"]
    for source in make.SOURCES.values():
        assert re.search(rf"`{source.package}` {re.escape(source.version)} ", text), source


def test_regret_is_above_the_best_of_a_budget_and_intervals_hold_means(make: ModuleType) -> None:
    columns = ["corpus", "budget", "rule", "seed", "loss", "low", "high"]
    rows = [
        ("c", 1.0, "one", 0, 3.0, 2.9, 3.2),
        ("c", 1.0, "one", 1, 3.2, 2.9, 3.2),
        ("c", 1.0, "other", 0, 3.3, None, None),
        ("c", 2.0, "one", 0, 2.9, 2.0, 2.5),
        ("c", 2.0, "other", 0, 2.8, None, None),
    ]
    table = pd.DataFrame(rows, columns=columns)
    settings = ("params", "epochs", "weight_decay", "flops", "expected")
    found = make.judged(table.assign(**dict.fromkeys(settings, 1.0))).set_index(["budget", "rule"])
    assert found["regret"].round(9).to_dict() == {
        (1.0, "one"): 0.0,
        (1.0, "other"): 0.2,
        (2.0, "one"): 0.1,
        (2.0, "other"): 0.0,
    }
    assert found["held"].dropna().to_dict() == {(1.0, "one"): 1.0, (2.0, "one"): 0.0}


def test_text_is_parted_between_paragraphs(make: ModuleType) -> None:
    prepare = sys.modules["prepare"]
    parts = list(prepare.parted("\n\n".join(["x" * 1500] * 5)))
    assert [len(part) for part in parts] == [3002, 3002, 1500]


def test_the_page_has_the_tables_of_the_results(
    make: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = (FOLDER / "results.md").read_text(encoding="utf-8")
    make.tables(FOLDER)
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(printed) > 100  # four corpora, three budgets, eight rules
    assert [line for line in printed if line not in page] == []
    make.picture(make.results_of(FOLDER)).savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_manual_says_what_came_out(make: ModuleType) -> None:
    page = (ROOT / "docs" / "new-corpora.md").read_text(encoding="utf-8")
    found = make.results_of(FOLDER)
    for rule, here in found.groupby("rule"):
        regret = here["regret"]
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {rule} |")]
        assert row.startswith(
            f"| {rule} | {regret.median():.3f} | {regret.mean():.3f} | {(regret == 0).sum()} "
        )
