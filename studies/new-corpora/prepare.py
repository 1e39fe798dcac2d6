"""Download the four corpora of protocol.md and write their text, one JSON line for each document.

    python studies/new-corpora/prepare.py FOLDER               # all four: FOLDER/NAME.jsonl
    python studies/new-corpora/prepare.py FOLDER german c      # some

Needs a Debian 12 with `apt-get` and `dpkg-deb`. Packages are of fixed versions; where the archive has moved
on to another one, `--any-version` takes it, and the text is another one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

LONGEST = 4000  # characters of a document: longer ones are parted between paragraphs
SHORTEST = 40


def german(root: Path) -> Iterator[str]:
    """Manual pages without their markup (comments, requests, font changes) and without their last section,
    which is the same on all: who translated it.
    """
    for path in sorted(root.glob("usr/share/man/de/**/*.gz")):
        if not path.is_file():
            continue
        lines = []
        with gzip.open(path, "rt", encoding="utf-8") as file:
            page = file.read()
        for line in page.splitlines():
            if line.startswith(('.\\"', "'\\\"")) or re.match(r"[lcrn \t|.]+$|T[{}][:T{}]*$", line):
                continue  # a comment, or the layout of a table
            request, _, rest = line.partition(" ")
            if request.startswith((".", "'")):
                line = f"\n{rest}" if request in (".SH", ".SS") else rest if len(request) == 2 or rest else ""
            text = re.sub(r"\\f(\[\w*\]|\(\w\w|\w)|\\[&,/|^:c]|\\s[-+]?\d", "", line)
            lines.append(re.sub(r"\\\((\w\w)", "", text).replace("\\-", "-").replace("\\e", "\\"))
        yield re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).partition("\nÜBERSETZUNG")[0]


def c(root: Path) -> Iterator[str]:
    """Header files of Linux without the comment that each begins with, which is its licence."""
    for path in sorted(root.glob("usr/include/**/*.h")):
        text = path.read_text(encoding="utf-8", errors="replace")
        yield re.sub(r"\A(\s*/\*.*?\*/|\s*//[^\n]*)+", "", text, flags=re.DOTALL)


def english(root: Path) -> Iterator[str]:
    """Articles of the Free On-line Dictionary of Computing: each begins at the margin."""
    with gzip.open(root / "usr/share/dictd/foldoc.dict.dz", "rt", encoding="utf-8", errors="replace") as file:
        text = file.read()
    for article in re.split(r"\n(?=\S)", text):
        yield re.sub(r"[{}]", "", re.sub(r"\n {3}", "\n", article))


def russian(root: Path) -> Iterator[str]:
    """Jokes, quotations and short dialogues, which a line with a percent sign parts."""
    for path in sorted(root.glob("usr/share/games/fortunes/ru/*")):
        if path.is_file() and path.suffix != ".dat":
            yield from re.split(r"^%\s*$", path.read_text(encoding="utf-8", errors="replace"), flags=re.M)


class Source(NamedTuple):
    package: str
    version: str
    read: Callable[[Path], Iterator[str]]


SOURCES = {
    "german": Source("manpages-de", "4.18.1-1", german),
    "c": Source("linux-libc-dev", "6.1.192-2", c),
    "english": Source("dict-foldoc", "20230119-1", english),
    "russian": Source("fortunes-ru", "1.52-3.1", russian),
}


def parted(text: str) -> Iterator[str]:
    """A document, or its parts: whole paragraphs, as many as fit."""
    part = ""
    for paragraph in text.split("\n\n"):
        if part and len(part) + len(paragraph) > LONGEST:
            yield part
            part = ""
        part = f"{part}\n\n{paragraph}" if part else paragraph
    yield part


def prepare(name: str, folder: Path, any_version: bool = False) -> Path:
    """The text of a corpus; found where it was made before."""
    target, source = folder / f"{name}.jsonl", SOURCES[name]
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        wanted = source.package if any_version else f"{source.package}={source.version}"
        done = subprocess.run(["apt-get", "download", wanted], cwd=place, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{wanted} cannot be downloaded: {done.stderr.strip().splitlines()[-1]}")
        (package,) = Path(place).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(package), f"{place}/content"], check=True)
        texts = (part.strip() for text in source.read(Path(place, "content")) for part in parted(text))
        distinct = dict.fromkeys(text for text in texts if len(text) >= SHORTEST)
    draft = target.with_suffix(".draft")
    draft.write_text(
        "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in distinct), encoding="utf-8"
    )
    draft.rename(target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *SOURCES], default=[])
    parser.add_argument("--any-version", action="store_true")
    given = parser.parse_args()
    for name in given.names or SOURCES:
        texts = [json.loads(line)["text"] for line in prepare(name, given.folder, given.any_version).open()]
        size = sum(len(text.encode()) for text in texts)
        print(f"{name}: {len(texts):,} documents, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
