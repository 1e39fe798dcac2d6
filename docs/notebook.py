"""Runs the notebook of this folder and writes what its cells show into it: `python docs/notebook.py`.

Text is compared by the tests, which run it too; pictures are only drawn.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("tour.ipynb")


def read() -> dict[str, Any]:
    """The notebook as it is stored."""
    notebook: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return notebook


def run(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What each code cell shows, one after the other in one place."""
    names: dict[str, Any] = {"__name__": "__main__"}
    os.environ["COLUMNS"] = "100"  # how wide answers are printed
    return [_shown("".join(cell["source"]), names) for cell in _code(notebook)]


def _code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _shown(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last expression."""
    tree, value = ast.parse(source), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    shown: list[dict[str, Any]] = []
    if printed.getvalue():
        shown.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        shown.append({"output_type": "display_data", "metadata": {}, "data": _data(value)})
    return shown


def _data(value: Any) -> dict[str, Any]:
    """A value as notebooks show it: a picture, or its text and HTML."""
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=72)
        return {"image/png": base64.b64encode(picture.getvalue()).decode()}
    text = {"text/plain": _lines(value.to_string() if hasattr(value, "to_string") else str(value))}
    return text | ({"text/html": _lines(value._repr_html_())} if hasattr(value, "_repr_html_") else {})


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write() -> None:
    """Put what the cells show into the file."""
    notebook = read()
    for number, (cell, shown) in enumerate(zip(_code(notebook), run(notebook), strict=True), start=1):
        cell["outputs"], cell["execution_count"] = shown, number
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
