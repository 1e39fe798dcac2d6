"""The tournament's page: what it says of the prototype's cut, and of the default fit beyond its runs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from calibration.fitting.beyond import seen
from tests.places import ROOT, script


@pytest.fixture(scope="module")
def ways() -> ModuleType:
    return script("studies/tournament/other_ways.py")


def test_the_prototypes_cut_is_none_by_compute(ways: ModuleType, shared_data: Path) -> None:
    table = ways.tables(shared_data)["C4 158"]
    wrapped = ways.wrapped(table)
    below = wrapped <= np.quantile(wrapped, 0.7)
    assert below.sum() == 114
    assert (below & ~seen(table, "compute", 0.7)).sum() > 10  # runs beyond the real cut that it lets be seen


@pytest.mark.slow
def test_the_page_says_what_the_script_prints(ways: ModuleType, shared_data: Path) -> None:
    page = (ROOT / "docs" / "tournament.md").read_text(encoding="utf-8")
    found = ways.by_wrapped_compute("C4 158", ways.tables(shared_data)["C4 158"])
    here = [cell.strip().removeprefix("0") for cell in found.split("|")[3:7]]
    (line,) = [row for row in page.splitlines() if row.startswith("| C4 158: here / prototype")]
    assert [cell.split("/")[0].strip() for cell in line.split("|")[3:7]] == here
