"""Run tables as people have them, from their content to rows and columns.

    CSV (comma, semicolon or tab; decimal commas), JSON, JSON lines, Parquet
    a project of Weights & Biases, `wandb:entity/project`
    a folder of runs of `planner train`, each with its result.json
    a folder of Hugging Face runs, each with its trainer_state.json
    a folder of TensorBoard event files

A file may be compressed with gzip. What a file is, its first bytes say, whatever its name.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import io
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from calibration.fitting.runs.checks import COLUMNS, Problem, RawTable, TableWarning
from planner.inputs import InvalidInput
from trainer.run.result import FILE, read_result

Table = str | os.PathLike[str] | pd.DataFrame  # a file, a folder, a project, or a table's content
_KINDS = "a CSV, JSON or Parquet file, a folder of runs (TensorBoard, Hugging Face), wandb:entity/project"
_WANDB = "wandb:"
_NOT_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_LARGEST_FILE = 256 * 2**20


def load(source: Table, name: str) -> RawTable:
    """The cells of a source as they are; `name` is what messages call a DataFrame."""
    if isinstance(source, pd.DataFrame):
        return RawTable(name, _with_plain_names(source.copy()))
    if isinstance(source, str) and source.startswith(_WANDB):
        return _of_wandb(source)
    if not isinstance(source, str | os.PathLike):
        raise InvalidInput(f"must be {_KINDS} or a DataFrame; got {type(source).__name__}.", field="runs")
    path = Path(source)
    if not path.is_dir():
        return _of_file(path)
    runs = _trained(path) or _of_huggingface(path) or _of_tensorboard(path)
    if not runs:
        raise InvalidInput(
            f"{str(path)!r} is a directory without runs in it: no study, no result.json, no "
            f"trainer_state.json, no event files of TensorBoard; a CSV, JSON or Parquet file would do.",
            field="runs",
        )
    return _of_rows(path.resolve().name, runs)


def _with_plain_names(frame: pd.DataFrame) -> pd.DataFrame:
    frame.attrs = {}
    frame.columns = pd.Index([str(column).strip() for column in frame.columns], dtype=object)
    return frame


def _of_file(path: Path) -> RawTable:
    name = path.name or str(path)
    too_large = (
        f"{name} is larger than {_LARGEST_FILE >> 20} MB, which no run table is; "
        f"give one row per finished run."
    )
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= _LARGEST_FILE else b""
    except FileNotFoundError:
        raise InvalidInput(f"run table {str(path)!r} does not exist.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"run table {str(path)!r} cannot be read: {reason}.") from None
    if size > _LARGEST_FILE:
        raise InvalidInput(too_large)
    if content.startswith(b"\x1f\x8b"):
        unpack = zlib.decompressobj(wbits=31)
        try:
            content = unpack.decompress(content, _LARGEST_FILE + 1)
        except zlib.error as error:
            raise InvalidInput(f"{name} is a damaged gzip file: {error}.") from None
        if len(content) > _LARGEST_FILE:
            raise InvalidInput(too_large)
        if not unpack.eof:
            raise InvalidInput(f"{name} is a damaged gzip file: its end is missing.")
        name = name.removesuffix(".gz")
    return _of_content(name, content)


def _of_content(name: str, content: bytes) -> RawTable:
    suffix = Path(name).suffix.lower()
    if suffix in (".parquet", ".pq") or content.startswith(b"PAR1"):
        return _of_parquet(name, content)
    if content.startswith(b"PK\x03\x04"):
        raise InvalidInput(f"{name} is an Excel or zip file; save the sheet as CSV and give that.")
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
    if not text.strip():
        raise InvalidInput(f"{name} is empty; it needs the columns {', '.join(COLUMNS)}.")
    if suffix in (".json", ".jsonl", ".ndjson") or text.lstrip()[:1] in ("{", "["):
        return _of_json(name, text)
    return _of_csv(name, text)


# -- CSV as programs and spreadsheets write it

# 3,14 and 1.234,5 have a decimal comma; 1,234 may have one or not; 3.14 and 1,234,567 have none
_CERTAIN = re.compile(r"[+-]?(?:\d+,(?:\d{1,2}|\d{4,})|0,\d+|\d{1,3}(?:\.\d{3})+,\d+)(?:e[+-]?\d+)?", re.I)
_POSSIBLE = re.compile(r"[+-]?\d{1,3},\d{3}(?:e[+-]?\d+)?", re.I)
_POINT = re.compile(
    r"[+-]?(?:\d+\.(?:\d{1,2}|\d{4,})|0\.\d+|\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,})", re.I
)
_NUMBER = re.compile(r"[+-]?[\d.]*,\d+(?:e[+-]?\d+)?|[+-]?\d{1,3}(?:\.\d{3})+", re.I)


def _of_csv(name: str, text: str) -> RawTable:
    said_by_excel = re.match(r'"?sep=([,;\t])"?\s*\n', text)
    text = re.sub(r"\A(?:\s*(?:#|\"?sep=)[^\n]*\n)+", "", text)  # remarks above the header
    first = text.lstrip().split("\n", 1)[0]
    delimiter = said_by_excel[1] if said_by_excel else max(",;\t", key=first.count)
    header, *rows = _lines(name, text, delimiter)
    width = len(header)
    ragged = [
        Problem(row, "-", "", f"has {len(cells)} cells where the header has {width}")
        for row, cells in enumerate(rows, start=1)
        if any(cells[width:])
    ]
    rows = [[*cells[:width], *[""] * (width - len(cells))] for cells in rows]
    said = []
    if _has_decimal_commas([cell for cells in rows for cell in cells], delimiter):
        said.append(TableWarning("decimal_commas", f"{name} has decimal commas; they were read as points"))
        rows = [
            [c.replace(".", "").replace(",", ".") if _NUMBER.fullmatch(c) else c for c in cells]
            for cells in rows
        ]
    frame = pd.DataFrame(rows, columns=range(width), dtype=object)
    frame.columns = pd.Index(header, dtype=object)
    return _with_unfolded_cells(RawTable(name, frame, ragged, said))


def _lines(name: str, text: str, delimiter: str) -> list[list[str]]:
    """The cells of each line that has any, without blanks around them; the first line is the header."""
    try:
        read = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        lines = [[cell.strip() for cell in cells] for cells in read]
    except csv.Error as error:
        raise InvalidInput(f"{name} is not a readable CSV file: {error}.") from None
    filled = [cells for cells in lines if any(cells)]
    if not filled:
        raise InvalidInput(f"{name} is empty; it needs the columns {', '.join(COLUMNS)}.")
    return filled


def _has_decimal_commas(cells: list[str], delimiter: str) -> bool:
    """A cell that can be nothing else decides; a doubtful one (1,234) does where commas part no cells, as in
    the files that spreadsheets write where the comma is the decimal sign.
    """
    if any(_POINT.fullmatch(cell) for cell in cells):
        return False
    certain = any(_CERTAIN.fullmatch(cell) for cell in cells)
    return certain or (delimiter != "," and any(_POSSIBLE.fullmatch(cell) for cell in cells))


# -- rows by name: JSON, JSON lines, and cells that hold a whole object
#
# What is nested gets the names of all its levels, {"config": {"n_params": 1}} is a column config.n_params.
# W&B keeps settings as {"value": ..., "desc": ...}; these are their value.

_DEEPEST, _LONGEST = 8, 200_000
_NOT_LITERAL = re.compile(r"(?<=[:,\[( ])-?(?:nan|inf(?:inity)?)(?=\s*[,}\])])", re.I)


def _of_rows(name: str, rows: Iterable[Mapping[Any, Any]]) -> RawTable:
    """Rows as a table: what is nested by the names of all its levels."""
    flat = [_flattened(row) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    cells = {key: [row.get(key) for row in flat] for key in columns}
    return RawTable(name, pd.DataFrame(cells, dtype=object))


def _flattened(row: Mapping[Any, Any], before: str = "", depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{before}.{str(key).strip()}" if before else str(key).strip()
        if isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "desc"}:
            value = value["value"]
        if isinstance(value, Mapping) and depth < _DEEPEST:
            found |= _flattened(value, name, depth + 1)
        else:
            found[name] = value
    return found


def _with_unfolded_cells(raw: RawTable) -> RawTable:
    """A table whose cells may hold whole objects, each key of which becomes a column.

    That is how a project of W&B is written to CSV by the example in its documentation.
    """
    if raw.cells.columns.has_duplicates:
        return raw
    parts = []
    for column, cells in raw.cells.items():
        read_as = [_object(cell) for cell in cells]
        if any(found is None for found in read_as) or not any(read_as):
            parts.append(cells.to_frame())
        else:
            parts.append(_of_rows(raw.name, [{str(column): found} for found in read_as]).cells)
    return dataclasses.replace(raw, cells=pd.concat(parts, axis=1))


def _object(cell: str) -> dict[str, Any] | None:
    """A cell's object, in JSON or as Python prints it; an empty one for an empty cell, None for others."""
    if cell == "":
        return {}
    if len(cell) > _LONGEST or not (cell[0] == "{" and cell[-1] == "}"):
        return None
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(_NOT_LITERAL.sub("None", cell))  # literals only: nothing is executed
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return None
    return found if isinstance(found, dict) else None


def _of_json(name: str, text: str) -> RawTable:
    try:
        value = json.loads(text)
    except RecursionError:
        raise InvalidInput(f"{name} is nested too deeply for a table of runs.") from None
    except ValueError as whole:
        value = []
        for i, line in enumerate(text.splitlines(), start=1):
            try:
                value += [json.loads(line)] if line.strip() else []
            except (ValueError, RecursionError) as error:
                wrong = f"line {i}: {error}" if value else str(whole)
                raise InvalidInput(f"{name} is not readable JSON ({wrong}).") from None
    rows = _rows_in(value)
    if rows is None:
        raise InvalidInput(
            f"{name} is JSON but no table; a list of records would do, one per run, or one record per line."
        )
    return _of_rows(name, rows)


def _rows_in(value: Any) -> list[Mapping[str, Any]] | None:
    """The rows in a JSON value: a list of them, columns by name, or either under a single name."""
    if isinstance(value, list):
        return value if all(isinstance(row, Mapping) for row in value) else None
    if not value or not isinstance(value, Mapping):
        return None
    if {"columns", "data"} <= set(value):
        return _of_header(value["columns"], value["data"])
    inside = [rows for part in value.values() if isinstance(part, list) and (rows := _rows_in(part))]
    if len(inside) == 1:
        return inside[0]
    if all(isinstance(column, list) for column in value.values()):
        return _of_lists(value)
    return _of_mappings(value) if all(isinstance(row, Mapping) for row in value.values()) else [value]


def _of_header(names: Any, rows: Any) -> list[Mapping[str, Any]] | None:
    """{"columns": [...], "data": [[...], ...]}, as pandas and W&B's tables have it."""
    if not all(isinstance(row, list) for row in (names, rows, *(rows if isinstance(rows, list) else ()))):
        return None
    return [dict(zip(map(str, names), row, strict=False)) for row in rows]


def _of_lists(value: Mapping[str, list[Any]]) -> list[Mapping[str, Any]] | None:
    """{column: [cell, ...]}, all of the same length."""
    if len({len(column) for column in value.values()}) != 1:
        return None
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


def _of_mappings(value: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """{column: {row: cell}} as pandas writes it, or {run: its columns}."""
    if any(str(key).strip() in COLUMNS for key in value):
        rows = list(dict.fromkeys(row for column in value.values() for row in column))
        return [{name: column.get(row) for name, column in value.items()} for row in rows]
    if {"config", "summary"} & set(value):
        return [value]  # one run
    return [{"run": name, **columns} for name, columns in value.items()]


# -- Parquet and Weights & Biases, where their packages are installed


def _of_parquet(name: str, content: bytes) -> RawTable:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput(
            "Parquet files need pyarrow: pip install '.[parquet]', or give a CSV file."
        ) from None
    try:
        frame = pyarrow.parquet.read_table(io.BytesIO(content)).to_pandas()
    except Exception:  # a damaged file fails in many ways deep inside the reader; to the user they are one
        raise InvalidInput(
            f"{name} is not a readable Parquet file; write it again or give a CSV file."
        ) from None
    frame = _with_plain_names(frame)
    nested = any(len(frame) and isinstance(frame[column].iloc[0], dict) for column in frame.columns)
    return _of_rows(name, frame.to_dict("records")) if nested else RawTable(name, frame)


def _of_wandb(source: str) -> RawTable:
    """Each run is a row: its name, id and state, its settings as config.*, its last figures as summary.*."""
    project = source.removeprefix(_WANDB).strip("/ ")
    if project.count("/") != 1 or not all(project.split("/")):
        raise InvalidInput(f"must be wandb:entity/project; got {source!r}.", field="runs")
    try:
        import wandb
    except ImportError:
        raise InvalidInput(
            f"{source} needs the client of Weights & Biases: pip install wandb, "
            f"or export the project's table as CSV and give that."
        ) from None
    try:
        rows = [
            {
                "name": run.name,
                "id": run.id,
                "state": run.state,
                "config": {key: value for key, value in run.config.items() if not key.startswith("_")},
                "summary": run.summary_metrics,
            }
            for run in wandb.Api().runs(project)
        ]
    except Exception as error:  # no key, no network, no such project: the client has a kind for each
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise InvalidInput(f"{source} cannot be read: {reason[:300]}.") from None
    return _of_rows(source, rows)


# -- folders of runs: a row each, none where there are no such runs


def _trained(folder: Path) -> list[dict[str, Any]]:
    """The finished runs of `planner train`."""
    places = [Path(place) for place, _, names in sorted(os.walk(folder)) if FILE in names]
    return [found.row() for place in places if (found := read_result(place)) is not None]


_STATE = "trainer_state.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_LARGEST_HEADER = 2**26


def _of_huggingface(folder: Path) -> list[dict[str, Any]]:
    """Runs of Hugging Face: each has a trainer_state.json, in itself or in its newest checkpoint.

    Its columns are the last value of each figure in the log, the tokens that were seen, and the parameters
    that its weights hold, where there are weights next to it. A run that ended before its last step is
    unfinished.
    """
    newest: dict[Path, tuple[float, Path]] = {}
    for place, _, names in os.walk(folder):
        if _STATE in names:
            path = Path(place)
            checkpoint = _CHECKPOINT.fullmatch(path.name)
            run, step = (path.parent, float(checkpoint[1])) if checkpoint else (path, math.inf)
            newest[run] = max(newest.get(run, (-1.0, path)), (step, path))
    rows = []
    for run, (_, path) in sorted(newest.items()):
        row = {"run": _name_of(run, folder), **_figures(path / _STATE)}
        steps, last = row.get("global_step"), row.get("max_steps")
        row["state"] = "unfinished" if steps and last and steps < last else "finished"
        if params := _params(path) or _params(run):
            row["params"] = params
        rows.append(row)
    return rows


def _name_of(run: Path, folder: Path) -> str:
    here = folder.resolve()
    return here.name if run == folder else Path(os.path.relpath(run.resolve(), here)).as_posix()


def _figures(path: Path) -> dict[str, Any]:
    """What a trainer_state.json says of the end of its run."""
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{path} cannot be read: {reason}.") from None
    if not isinstance(state, dict):
        raise InvalidInput(f"{path} holds no record of a run.")
    found: dict[str, Any] = {}
    peak = 0.0
    for entry in state.get("log_history") or ():
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if isinstance(value, int | float):  # the loss is that of the last steps; validation is eval_loss
                found["training_loss" if key == "loss" else str(key)] = value
                if key == "learning_rate":  # the peak of the schedule, which a recipe names
                    peak = found[key] = max(peak, value)
    for key in ("epoch", "global_step", "max_steps", "num_input_tokens_seen", "best_metric"):
        value = state.get(key)
        if isinstance(value, int | float) and (value or key != "num_input_tokens_seen"):
            found[key] = value
    return found


def _params(folder: Path) -> int:
    """Parameters in the weights of a folder, by the headers of its files; 0 where there are none."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with open(path, "rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(length)) if length <= _LARGEST_HEADER else {}
            shapes = [part["shape"] for name, part in header.items() if name != "__metadata__"]
        except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError):
            raise InvalidInput(f"{path} is not a readable file of weights.") from None
        total += sum(math.prod(shape) for shape in shapes)
    return total


# -- TensorBoard, without its own package

_MARK = "tfevents"
_LARGEST_RECORD = 2**26
_PEAK = re.compile(r"(?:^|[/._ ])(?:learning_rate|lr)$", re.I)  # whose recipe is the peak of its schedule
_FLOAT, _DOUBLE = 1, 2  # of tensors
_Message = dict[int, list[Any]]


class _Events(NamedTuple):
    """What the event files of one folder say."""

    last: dict[str, tuple[int, float]]  # step and value by tag
    settings: dict[str, Any]


def _of_tensorboard(folder: Path) -> list[dict[str, Any]]:
    """Each folder that has event files is a run: the last value of each scalar, and its settings as
    hparams.* where it has any.

    `SummaryWriter.add_hparams` writes into a folder of its own below the run's: a folder below another run's,
    with settings, is part of that run.
    """
    runs: dict[Path, _Events] = {}
    for place, _, names in sorted(os.walk(folder)):
        paths = [Path(place, name) for name in sorted(names) if _MARK in name]
        if not paths:
            continue
        events = _Events({}, {})
        for path in paths:
            _read_events(path, events)
        above = next((runs[parent] for parent in Path(place).parents if parent in runs), None)
        if above is not None and events.settings:
            above.settings.update(events.settings)
            for tag, last in events.last.items():
                above.last.setdefault(tag, last)
        else:
            runs[Path(place)] = events
    return [
        {
            "run": _name_of(place, folder),
            **{tag: value for tag, (_, value) in events.last.items()},
            **{f"hparams.{key}": value for key, value in events.settings.items()},
        }
        for place, events in runs.items()
    ]


def _read_events(path: Path, events: _Events) -> None:
    """A file is a list of events: length, checksum, bytes, checksum. What is cut off at the end is not there
    yet: a crashed run leaves such a file.
    """
    try:
        with open(path, "rb") as stream:
            while len(head := stream.read(12)) == 12:
                (length,) = struct.unpack("<Q", head[:8])
                if length > _LARGEST_RECORD:
                    raise ValueError("a record is too long")
                content = stream.read(length)
                if len(content) < length or len(stream.read(4)) < 4:
                    return
                event = _message(content)
                step = event.get(2, [0])[-1]
                for value in (value for summary in _inner(event, 5) for value in _inner(summary, 1)):
                    _read_value(value, step, events)
    except (ValueError, TypeError, AttributeError) as error:  # the last two: a field of another kind
        raise InvalidInput(f"{path} is not a readable event file of TensorBoard: {error}.") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


def _read_value(value: _Message, step: int, events: _Events) -> None:
    """A value has a tag (1) and a number (2) or a tensor of one (8), or settings in its metadata (9)."""
    tag = value[1][-1].decode() if 1 in value else ""
    figures = [*value.get(2, ()), *(n for tensor in _inner(value, 8) for n in _scalar(tensor))]
    if tag and figures and step >= events.last.get(tag, (step, 0.0))[0]:
        before = events.last.get(tag, (step, figures[-1]))[1]
        peak = max(before, figures[-1]) if _PEAK.search(tag) else figures[-1]
        events.last[tag] = (step, peak)
    for metadata in _inner(value, 9):
        events.settings.update(_settings(metadata))


def _settings(metadata: _Message) -> dict[str, Any]:
    """Metadata has plugin_data (1) of "hparams" (1), whose content (2) holds the start of a session (3) with
    a map of settings (1): name (1) and value (2).
    """
    return {
        entry[1][0].decode(): _setting(_inner(entry, 2)[0])
        for plugin in _inner(metadata, 1)
        if b"hparams" in plugin.get(1, ())
        for content in _inner(plugin, 2)
        for session in _inner(content, 3)
        for entry in _inner(session, 1)
        if 1 in entry and 2 in entry
    }


def _scalar(tensor: _Message) -> Iterator[float]:
    """The number in a tensor of one; nothing for others."""
    style = {_FLOAT: "<f", _DOUBLE: "<d"}.get(tensor.get(1, [0])[-1])
    numbers = [number for at in (4, 5, 6) for number in tensor.get(at, ())]  # its content, or a list of one
    if style is not None and len(numbers) == 1:
        if isinstance(numbers[0], float):
            yield numbers[0]
        elif len(numbers[0]) == struct.calcsize(style):
            yield struct.unpack(style, numbers[0])[0]


def _setting(value: _Message) -> Any:
    if 3 in value:
        return value[3][0].decode()
    return bool(value[4][0]) if 4 in value else value.get(2, [None])[0]


def _inner(message: _Message, number: int) -> list[_Message]:
    return [_message(content) for content in message.get(number, ())]


def _message(content: bytes) -> _Message:
    """A message in Google's wire format, by the numbers of its fields.

    It is a list of (key, value), where key = number * 8 + kind: a varint (0), a double in eight bytes (1),
    bytes with their length in front (2), a float in four bytes (5).
    """
    found: _Message = {}
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        kind = key & 7
        value: Any
        if kind == 0:
            value, at = _varint(content, at)
        elif kind in (1, 2, 5):
            length, at = _varint(content, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            if at + length > len(content):
                raise ValueError("a field is cut off")
            value = content[at : at + length]
            value = value if kind == 2 else struct.unpack("<d" if kind == 1 else "<f", value)[0]
            at += length
        else:
            raise ValueError(f"unknown kind of field {kind}")
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 70:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number is cut off")
