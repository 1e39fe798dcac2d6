"""A stranger's Parquet file, of which only what a run table needs is read, and only if it is small.

A file of two kilobytes can hold gigabytes: text that repeats is stored once. So texts are read as references
to what they repeat, and what they would come to is counted before anything is written out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from calibration.fitting.runs.tables import may_be_ours
from planner.inputs import InvalidInput

LARGEST = 64 * 2**20  # bytes, written out
_ROWS = 64  # that are decoded at a time


def column_names(path: Path) -> list[str]:
    """All columns that a file names, without reading any; none where it is not a Parquet file."""
    try:
        return list(pq.read_schema(path, memory_map=False).names)
    except Exception:  # what reads it says what is wrong
        return []


def read_small(path: Path, also: Collection[str] = ()) -> pd.DataFrame:
    """The columns of a run table, and those that the visitor named."""
    try:
        plain = pq.ParquetFile(path, memory_map=False)
        chosen = _needed(plain, also)
        parts = [part for part in _stored(plain) if part.path_in_schema in chosen]
        _check_size(sum(max(part.total_uncompressed_size, 0) for part in parts), path.name)
        # Text of which what repeats is stored once is read as references to it.
        once = {part.path_in_schema for part in parts if any("DICTIONARY" in kind for kind in part.encodings)}
        texts = [name for name in chosen if name in once and _is_text(plain.schema_arrow.field(name).type)]
        table = _decoded(pq.ParquetFile(path, read_dictionary=texts), chosen, path.name)
    except (InvalidInput, MemoryError):
        raise
    except Exception:  # a damaged file fails in many ways deep inside the reader; to the visitor they are one
        raise InvalidInput(
            f"{path.name} is not a readable Parquet file; write it again or give a CSV file."
        ) from None
    whole = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns]
    frame: pd.DataFrame = pa.table(whole, names=[name.strip() for name in table.column_names]).to_pandas()
    return frame


def _decoded(file: pq.ParquetFile, chosen: list[str], name: str) -> pa.Table:
    """A few rows at a time, as long as what they come to is small: texts may also be stored as what differs
    from the text before.
    """
    batches, size = [], 0
    for batch in file.iter_batches(_ROWS, columns=chosen, use_threads=False):
        for column in batch.columns:
            size += int(column.nbytes)
            if isinstance(column, pa.DictionaryArray):  # each value, as often as it occurs
                lengths = pc.binary_length(column.dictionary)
                size += pc.sum(pc.take(lengths, column.indices)).as_py() or 0
        _check_size(size, name)
        batches.append(batch)
    schema = batches[0].schema if batches else file.schema_arrow.empty_table().select(chosen).schema
    return pa.Table.from_batches(batches, schema).unify_dictionaries()


def _needed(file: pq.ParquetFile, also: Collection[str]) -> list[str]:
    """Columns by the names that a run table gives them, if they hold one value per row."""
    fields = [field for field in file.schema_arrow if field.name in also or may_be_ours(field.name)]
    for field in fields:
        if pa.types.is_nested(field.type) or pa.types.is_fixed_size_binary(field.type):
            raise InvalidInput(
                f"column {field.name!r} holds {field.type}; a run table has one number or text per cell."
            )
    return [field.name for field in fields]


def _stored(file: pq.ParquetFile) -> Iterator[Any]:
    """The parts of a file, each of which holds some rows of a column."""
    for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
        yield from map(group.column, range(group.num_columns))


def _check_size(size: int, name: str) -> None:
    if size > LARGEST:
        raise InvalidInput(
            f"{name} comes to more than {LARGEST >> 20} MB when it is read; a table of runs is smaller."
        )


def _is_text(kind: pa.DataType) -> bool:
    kinds = pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary
    return any(is_kind(kind) for is_kind in kinds)
