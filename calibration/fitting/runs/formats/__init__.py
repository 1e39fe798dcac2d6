"""Run tables as people have them: one file per source, each from its content to rows and columns.

    CSV (comma, semicolon or tab; decimal commas), JSON, JSON lines     delimited.py, records.py
    Parquet                                                             parquet.py
    a project of Weights & Biases, `wandb:entity/project`               wandb.py
    a folder of TensorBoard event files                                 tensorboard.py
    a folder of Hugging Face runs, each with its trainer_state.json     huggingface.py
    a folder of runs of `planner train`, each with its result.json      here

A file may be compressed with gzip. What a file is, its first bytes say, whatever its name.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from pathlib import Path

import pandas as pd

from calibration.fitting.runs.checks import RawTable
from calibration.fitting.runs.formats import (
    delimited,
    huggingface,
    parquet,
    records,
    tensorboard,
    wandb,
)
from planner.inputs import InvalidInput
from trainer.run.result import FILE, read_result

Table = str | os.PathLike[str] | pd.DataFrame  # a file, a folder, a project, or a table's content
KINDS = "a CSV, JSON or Parquet file, a folder of runs (TensorBoard, Hugging Face), wandb:entity/project"
_NOT_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_LARGEST_FILE = 256 * 2**20


def load(source: Table, name: str) -> RawTable:
    """The cells of a source as they are; `name` is what messages call a DataFrame."""
    if isinstance(source, pd.DataFrame):
        frame = source.copy()
        frame.attrs = {}
        frame.columns = pd.Index([str(column).strip() for column in frame.columns], dtype=object)
        return RawTable(name, frame)
    if isinstance(source, str) and source.startswith(wandb.PREFIX):
        return wandb.read(source)
    if not isinstance(source, str | os.PathLike):
        raise InvalidInput(f"must be {KINDS} or a DataFrame; got {type(source).__name__}.", field="runs")
    path = Path(source)
    return _folder(path) if path.is_dir() else _content(path.name or str(path), _bytes(path))


def _folder(path: Path) -> RawTable:
    found = _finished(path) or huggingface.read(path) or tensorboard.read(path)
    if found is not None:
        return found
    raise InvalidInput(
        f"{str(path)!r} is a directory without runs in it: no study, no result.json, no trainer_state.json, "
        f"no event files of TensorBoard; a CSV, JSON or Parquet file would do.",
        field="runs",
    )


def _finished(folder: Path) -> RawTable | None:
    """The finished runs of `planner train` below a folder, a row each; None where there are none."""
    places = [Path(place) for place, _, names in sorted(os.walk(folder)) if FILE in names]
    results = [found for place in places if (found := read_result(place)) is not None]
    return records.table(folder.resolve().name, [one.row() for one in results]) if results else None


def _content(name: str, content: bytes) -> RawTable:
    if content.startswith(b"\x1f\x8b"):
        content, name = _unpacked(content, name), name.removesuffix(".gz")
    suffix = Path(name).suffix.lower()
    if suffix in (".parquet", ".pq") or content.startswith(b"PAR1"):
        return parquet.read(name, content)
    if content.startswith(b"PK\x03\x04"):
        raise InvalidInput(f"{name} is an Excel or zip file; save the sheet as CSV and give that.")
    text = _text(name, content)
    if suffix in (".json", ".jsonl", ".ndjson") or text.lstrip()[:1] in ("{", "["):
        return records.read(name, text)
    return delimited.read(name, text)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise _too_large(path.name)
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"run table {str(path)!r} does not exist.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"run table {str(path)!r} cannot be read: {reason}.") from None


def _unpacked(content: bytes, name: str) -> bytes:
    unpack = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpack.decompress(content, _LARGEST_FILE + 1)
    except zlib.error as error:
        raise InvalidInput(f"{name} is a damaged gzip file: {error}.") from None
    if len(unpacked) > _LARGEST_FILE:
        raise _too_large(name)
    if not unpack.eof:
        raise InvalidInput(f"{name} is a damaged gzip file: its end is missing.")
    return unpacked


def _too_large(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} is larger than {_LARGEST_FILE >> 20} MB, which no run table is; "
        f"give one row per finished run."
    )


def _text(name: str, content: bytes) -> str:
    utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))  # Excel's "Unicode text"
    text = "\0"
    for encoding in ("utf-16",) if utf16 else ("utf-8-sig", "cp1252"):  # the last: Excel's plain CSV
        with contextlib.suppress(UnicodeDecodeError):
            text = content.decode(encoding)
            break
    if _NOT_TEXT.search(text):
        raise InvalidInput(
            f"{name} is not text; a run table is a UTF-8 CSV file, or a Parquet file that ends in .parquet."
        )
    return text
