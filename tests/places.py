"""Where tests find the project's own files, and the public run tables that are not part of it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("DATABOUND_SHARED", ROOT.parent / "shared"))
