"""A stranger's Parquet file, of which only what a run table needs is read, and only if it is small.

A file of two kilobytes can hold gigabytes: text that repeats is stored once. So texts are read as references
to what they repeat, and what they would come to is counted before anything is written out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from calibration.fitting.columns import may_be_ours
from planner.errors import InvalidInput

LARGEST = 64 * 2**20  # bytes, written out


def read_small(path: Path) -> pd.DataFrame:
    """The columns of a run table."""
    try:
        plain = pq.ParquetFile(path, memory_map=False)
        chosen = _needed(plain)
        _check_stored(plain, chosen, path.name)
        texts = [name for name in chosen if _is_text(plain.schema_arrow.field(name).type)]
        table = pq.ParquetFile(path, read_dictionary=texts).read(columns=chosen, use_threads=False)
    except (InvalidInput, MemoryError):
        raise
    except Exception:  # a damaged file fails in many ways deep inside the reader; to the visitor they are one
        raise InvalidInput(
            f"{path.name} is not a readable Parquet file; write it again or give a CSV file."
        ) from None
    _check_size(sum(_written_out(column) for column in table.columns), path.name)
    whole = [_whole(column) for column in table.columns]
    frame: pd.DataFrame = pa.table(whole, names=[name.strip() for name in table.column_names]).to_pandas()
    return frame


def _needed(file: pq.ParquetFile) -> list[str]:
    """Columns by the names that a run table gives them, if they hold one value per row."""
    fields = [field for field in file.schema_arrow if may_be_ours(field.name)]
    for field in fields:
        if pa.types.is_nested(field.type):
            raise InvalidInput(
                f"column {field.name!r} holds {field.type}; a run table has one value per cell."
            )
    return [field.name for field in fields]


def _check_stored(file: pq.ParquetFile, chosen: list[str], name: str) -> None:
    about = file.metadata
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    stored = sum(one.total_uncompressed_size for one in columns if one.path_in_schema in chosen)
    _check_size(max(stored, 0), name)


def _check_size(size: int, name: str) -> None:
    if size > LARGEST:
        raise InvalidInput(
            f"{name} comes to {size / 2**20:,.0f} MB when it is read; a table of runs has up to "
            f"{LARGEST >> 20} MB."
        )


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))


def _written_out(column: pa.ChunkedArray) -> int:
    """Bytes of all values, each counted as often as it occurs."""
    size = 0
    for chunk in column.chunks:
        if isinstance(chunk, pa.DictionaryArray):
            lengths = pc.binary_length(chunk.dictionary)
            size += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
        size += chunk.nbytes
    return size


def _whole(column: pa.ChunkedArray) -> Any:
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
