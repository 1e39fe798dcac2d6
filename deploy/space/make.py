"""Put together what a Hugging Face Space with the Docker SDK needs: python deploy/space/make.py FOLDER

The folder gets this folder's README.md (with the settings of the Space), the container file as Dockerfile,
and the packages that it installs. Push it to the Space, which tells the server its own name.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("pyproject.toml", "LICENSE", "MANIFEST.in", "constraints.txt")
SITE = "https://huggingface.co"  # which shows a Space in a frame
PACKAGES = ("databound", "planner", "trainer", "calibration")


def main() -> None:
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("usage: python deploy/space/make.py FOLDER, which must not exist yet")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    for name in PARTS:
        shutil.copy(ROOT / name, folder)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "deploy" / "space" / "README.md", folder)
    recipe = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
    recipe = recipe.replace("ENV FRAME_ANCESTORS=\n", f"ENV FRAME_ANCESTORS={SITE}\n")
    (folder / "Dockerfile").write_text(recipe, encoding="utf-8")


if __name__ == "__main__":
    main()
