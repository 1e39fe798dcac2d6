"""Parquet files, where pyarrow is installed."""

from __future__ import annotations

import io

import pandas as pd

from calibration.fitting.runs.checks import RawTable
from calibration.fitting.runs.formats.records import table
from planner.inputs import InvalidInput


def read(name: str, content: bytes) -> RawTable:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput(
            "Parquet files need pyarrow: pip install 'databound[parquet]', or give a CSV file."
        ) from None
    try:
        frame = pyarrow.parquet.read_table(io.BytesIO(content)).to_pandas()
    except Exception:  # a damaged file fails in many ways deep inside the reader; to the user they are one
        raise InvalidInput(
            f"{name} is not a readable Parquet file; write it again or give a CSV file."
        ) from None
    frame.attrs = {}
    frame.columns = pd.Index([str(column).strip() for column in frame.columns], dtype=object)
    nested = [column for column in frame.columns if len(frame) and isinstance(frame[column].iloc[0], dict)]
    return table(name, frame.to_dict("records")) if nested else RawTable(name, frame)
