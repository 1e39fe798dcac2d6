"""Documents, one after the other, from local text, JSON lines or Parquet files, or from a Hugging Face
dataset.

A document is a text file (or a part of one, where a separator is given), a line of a JSON-lines file, or a
row of a table. Empty documents are skipped. The fingerprint of local files is their content; that of a
dataset is its name, subset, split and revision.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import json
import os
import sysconfig
import tokenize
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import IO, Any

from planner.inputs import InvalidInput
from trainer.config import STANDARD_LIBRARY, Corpus
from trainer.data.checksums import checksums
from trainer.data.streams import Rows
from trainer.errors import reason

_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_BLOCK = 2**20  # characters of a text file in memory at once, or a document if that is longer
_TEST_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


def check(corpus: Corpus) -> None:
    """Raise where the corpus cannot be there: no such file, nothing matches, a library is missing."""
    tables = not corpus.streamed and any(_format(path, corpus) == "parquet" for path in files(corpus))
    for library, needed in (("datasets", corpus.streamed), ("pyarrow", tables)):
        if needed and find_spec(library) is None:
            needs = f"corpus {corpus.describe()} needs {library}"
            raise InvalidInput(f"{needs}; pip install '.[train]' would do.")


def fingerprint(corpus: Corpus, notes: Path) -> str:
    """A short text that changes when the documents do; checksums are remembered in the folder `notes`."""
    if corpus.streamed:
        source: list[Any] = [corpus.dataset, corpus.subset, corpus.split, corpus.revision]
    else:
        paths = files(corpus)
        try:
            sums = zip(paths, checksums(paths, notes), strict=True)
            source = [[_format(path, corpus), value] for path, value in sums]
        except OSError as error:
            what = error.filename or corpus.describe()
            raise InvalidInput(f"{what} cannot be read: {reason(error)}.") from None
    source += [corpus.text_field, corpus.separator]
    return hashlib.blake2b(json.dumps(source).encode(), digest_size=16).hexdigest()


def documents(corpus: Corpus, position: Any = None) -> Rows | Counted:
    """Every document with some text in it, in the corpus's own order, from a position on."""
    if corpus.streamed:
        place = f"a row of dataset {corpus.dataset}"
        return Rows(corpus, lambda row: _field(row, corpus, place), position)
    return Counted(lambda: _local(corpus), position or 0)


class Counted:
    """What can only be read from its beginning, from a number on; `position` is that of the next one."""

    def __init__(self, begin: Callable[[], Iterable[str]], position: int = 0):
        self.begin, self.position = begin, position

    def __iter__(self) -> Iterator[str]:
        for text in islice(self.begin(), self.position, None):
            self.position += 1
            yield text


def files(corpus: Corpus) -> list[Path]:
    """The local files of a corpus, in a fixed order."""
    found = dict.fromkeys(path for pattern in corpus.paths for path in _matching(pattern))
    kept = [path for path in found if not any(fnmatch(str(path), pattern) for pattern in corpus.exclude)]
    if not kept:
        raise InvalidInput(f"corpus {corpus.describe()} has no files left after exclude.")
    return kept


def _matching(pattern: str) -> list[Path]:
    """The files that a path of a corpus names: itself, those inside, or those that match."""
    if pattern == STANDARD_LIBRARY:
        return _standard_library()
    path = Path(os.path.expanduser(pattern))
    if path.is_file():
        return [path]
    if path.is_dir():
        shown = (p for p in path.rglob("*") if not any(n.startswith(".") for n in p.relative_to(path).parts))
        inside = sorted(p for p in shown if p.is_file())
        if not inside:
            raise InvalidInput(f"corpus folder {pattern} holds no files.")
        return inside
    matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file())
    if not matches:
        raise InvalidInput(
            f"corpus {pattern} is neither a file, nor a folder, nor a pattern that matches a file."
        )
    return matches


def _standard_library() -> list[Path]:
    found = []
    for folder, inside, names in os.walk(sysconfig.get_paths()["stdlib"]):
        inside[:] = [name for name in inside if name not in _TEST_FOLDERS]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(found)


def _local(corpus: Corpus) -> Iterator[str]:
    paths = files(corpus)
    for place, path in enumerate(paths):
        try:
            yield from (text for text in _read(path, corpus) if text and not text.isspace())
        except InvalidInput as error:
            raise _with_the_others(error, paths[place + 1 :], corpus) from None


def _read(path: Path, corpus: Corpus) -> Iterator[str]:
    try:
        read = {"text": _text, "jsonl": _json_lines, "parquet": _parquet}[_format(path, corpus)]
        yield from read(path, corpus)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path} cannot be read: {reason(error)}.") from None
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        raise InvalidInput(f"{path} is not UTF-8 text ({where}); exclude it or convert it.") from None


def _with_the_others(first: InvalidInput, rest: list[Path], corpus: Corpus) -> InvalidInput:
    """A complaint about a file with those about all others, so that they can be mended at once."""
    complaints = [str(first)]
    for path in rest:
        try:
            deque(_read(path, corpus), maxlen=0)
        except InvalidInput as error:
            complaints.append(str(error))
    if len(complaints) == 1:
        return first
    listed = " / ".join(complaint.rstrip(".") for complaint in complaints)
    return InvalidInput(f"{len(complaints)} files of the corpus cannot be used: {listed}.")


def _text(path: Path, corpus: Corpus) -> Iterator[str]:
    with _opened(path) as stream:
        rest = "" if corpus.separator else stream.read()
        while block := stream.read(max(_BLOCK, len(rest))):
            *documents, rest = (rest + block).split(corpus.separator)
            yield from documents
    yield rest


def _json_lines(path: Path, corpus: Corpus) -> Iterator[str]:
    with _opened(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.isspace():
                try:
                    row = json.loads(line)
                except ValueError:
                    other = f"line {number} of {path} is not JSON"
                    raise InvalidInput(f"{other}; every line must be one JSON object.") from None
                yield _field(row, corpus, f"line {number} of {path}")


def _parquet(path: Path, corpus: Corpus) -> Iterator[str]:
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.ParquetFile(path)
        if corpus.text_field not in table.schema_arrow.names:
            names = ", ".join(table.schema_arrow.names)
            raise InvalidInput(
                f"{path} has no column {corpus.text_field!r} (it has {names}); set text_field."
            )
        for batch in table.iter_batches(batch_size=1024, columns=[corpus.text_field]):
            for text in batch.column(0).to_pylist():
                yield _field({corpus.text_field: text or ""}, corpus, str(path))
    except ArrowException as error:
        raise InvalidInput(f"{path} is not a Parquet file: {reason(error)}.") from None


def _field(row: Any, corpus: Corpus, place: str) -> str:
    value = row.get(corpus.text_field) if isinstance(row, dict) else None
    if value is not None and not isinstance(value, str):
        other = f"a value of type {type(value).__name__} in field {corpus.text_field!r}"
        raise InvalidInput(f"{place} has no text but {other}.")
    if value is None:
        names = ", ".join(map(str, row)) if isinstance(row, dict) else type(row).__name__
        raise InvalidInput(
            f"{place} has no text in field {corpus.text_field!r} (it has {names}); set text_field."
        )
    return value


def _format(path: Path, corpus: Corpus) -> str:
    name = path.with_suffix("") if path.suffix == ".gz" else path
    return corpus.format if corpus.format != "auto" else _SUFFIXES.get(name.suffix.lower(), "text")


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".py":
        return tokenize.open(path)  # honours the encoding a source file declares
    return open(os.fspath(path), encoding="utf-8", newline="")
