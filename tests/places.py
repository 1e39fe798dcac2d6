"""Where tests find the project's own files and scripts, and the public run tables that are not part of it."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("DATABOUND_SHARED", ROOT.parent / "shared"))

# A line break inside of a paragraph or of an item of a list.
WRAPPED = re.compile(r"(?<=[^\s|])\n *(?! *(?:[-*+] |\d+\. |[|#\n]|```|<!--)|$)")


def page(path: str) -> str:
    """The text of a page, every paragraph and every item of a list on one line, however it is wrapped."""
    return WRAPPED.sub(" ", (ROOT / path).read_text(encoding="utf-8"))


def script(path: str) -> ModuleType:
    """A script of the project that is in no package, such as `studies/micro/make.py`, as a module."""
    name = path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module
