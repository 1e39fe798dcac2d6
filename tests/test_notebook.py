"""The notebook runs, and shows what is stored in it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.places import script


def _text(outputs: list[dict[str, Any]]) -> list[str]:
    """What is text of it; pictures depend on fonts."""
    shown = [output.get("text") or output.get("data", {}).get("text/plain", []) for output in outputs]
    return ["".join(lines) for lines in shown]


@pytest.mark.slow
def test_the_notebook_shows_what_its_cells_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # restored at the end: the notebook has a width of its own
    notebook = script("docs/notebook.py")
    stored = notebook.read()
    fresh = notebook.run(stored)
    cells = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 10
    for cell, outputs in zip(cells, fresh, strict=True):
        assert _text(outputs) == _text(cell["outputs"]), "python docs/notebook.py writes it anew"
    assert sum("image/png" in output.get("data", {}) for outputs in fresh for output in outputs) == 3
