"""One task on a file from a stranger, in a process of its own: `python -m calibration.web.worker`.

Reads one JSON line from standard input, {"task": ..., "path": ..., ...}, and writes JSON lines to standard
output: any number of {"progress": [what, share]} and then one {"result": ...} or {"detail": sentence,
"field": ..., "problems": [...]}. A file that takes too much memory or time kills this process and nothing
else. Files are parsed as data only: CSV and JSON by the standard library, Parquet by pyarrow, nothing is ever
evaluated.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel

from calibration.fitting.runs.checks import Problem
from calibration.fitting.runs.formats import load
from calibration.fitting.runs.recipes import comparable_runs
from calibration.fitting.runs.tables import Origin, by_weight_decay, may_be_ours, read_runs, warnings_of
from planner.calibration import Calibration
from planner.inputs import InvalidInput, short
from planner.show.palette import law_label

# Bytes that it may come to occupy.
MEMORY = {"check": 600 * 10**6, "calibration": 600 * 10**6, "fit": 1200 * 10**6}
SECONDS = {"check": 30, "calibration": 30, "fit": 1800}  # of processor time
MOST_RUNS, MOST_COLUMNS = 20_000, 500
MOST_REFITS, MOST_SETTINGS = 5000, 24
# Values, counted by what stands between them before anything is parsed: one of two bytes takes a hundred as
# an object. A calibration is kept by the server, a table is not.
MOST_VALUES = {"calibration": 500_000, "table": 3_000_000}
LONGEST_TEXT = 2000  # characters
MOST_OTHERS = 20_000  # values of a calibration beside its refits, some of which become larger objects
_BETWEEN = b",;\t[{"
SMALL = 2**20  # bytes of a table that is read twice, to offer its columns
READING = ("max_epochs", "weight_decay", "columns", "where", "pattern", "drop_missing")
PARQUET = ".parquet"  # as jobs calls what is one, whatever it was called
PREVIEWED = ("run", "params", "unique_tokens", "epochs", "weight_decay", "loss")


def main() -> None:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is not part of the conversation
    line = sys.stdin.readline()
    if not line:
        return  # the server closed before there was anything to do
    request = json.loads(line)

    def send(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    place = Path(request["path"])
    os.chdir(place.parent)  # what is said of the file does not tell where the server keeps it
    request["path"] = place.name
    _limit(request["task"])
    try:
        work = _TASKS[request.pop("task")]
        send({"result": work(request, lambda what, share: send({"progress": [what, share]}))})
    except BaseException as error:  # a library that panics without memory raises none of the usual
        send(_failure(error))
    os._exit(0)  # at once: after a panic the interpreter may wait forever for what will not end


def _limit(task: str) -> None:
    """Bound memory and processor time. Libraries reserve more addresses than they use: these come on top."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has these limits
        import resource

        most = MEMORY[task]
        with contextlib.suppress(OSError, ValueError):
            reserved, used = (int(pages) for pages in Path("/proc/self/statm").read_text().split()[:2])
            most += (reserved - used) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS[task], SECONDS[task] + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if task == "fit":
        with contextlib.suppress(AttributeError, OSError):
            os.nice(10)  # others who only plan should not wait


def _failure(error: BaseException) -> dict[str, Any]:
    """What is wrong, with the options that it mentions left in their marks: whoever shows it names them."""
    if isinstance(error, InvalidInput):
        columns = [Problem(0, one.column, "", one.reason) for one in getattr(error, "of_columns", ())]
        problems = [one._asdict() for one in (*columns, *getattr(error, "problems", ()))]
        return {"detail": str(error.args[0]).split("\n")[0], "field": error.field, "problems": problems}
    if isinstance(error, MemoryError):
        return {"detail": "this file takes more memory than it should.", "problems": []}
    traceback.print_exc()
    return {"detail": f"this file cannot be worked with ({type(error).__name__}).", "problems": []}


# -- the tasks -----------------------------------------------------------------------------------------


def check(request: dict[str, Any], progress: Any) -> dict[str, Any]:
    """What a run table holds, one line per weight decay, and which laws it cannot determine; or what is wrong
    with it, and its columns: the visitor may say which is which.
    """
    columns = _columns(request)
    try:
        every = _runs(request)
    except InvalidInput as error:
        return {"columns": columns, **_failure(error)}
    runs: Any = comparable_runs(every)
    return {
        "columns": columns,
        "runs": len(runs),
        "preview": [[_cell(row[name]) for name in PREVIEWED] for _, row in every.head(5).iterrows()],
        "by_weight_decay": by_weight_decay(runs),
        "not_identified": _unidentified(runs),
        "warnings": [note.text for note in warnings_of(runs, "‹{}›".format)],
    }


def read_calibration(request: dict[str, Any], progress: Any) -> dict[str, Any]:
    """A calibration file, checked, as JSON text of what this release knows."""
    given = Path(request["path"])
    _check_values(given, "calibration")
    known = Calibration.load(given)
    draws = [len(values) for values in _draws(known)]
    refits, decays = max(draws, default=0), len(known.settings)
    for what, held, most in (("refits", refits, MOST_REFITS), ("weight decays", decays, MOST_SETTINGS)):
        if held > most:
            raise InvalidInput(
                f"calibration {given.name!r} holds {held:,} {what}; the service works with up to {most:,}."
            )
    text = without_extras(known).model_dump_json(exclude_none=True)
    if text.count(",") - sum(draws) > MOST_OTHERS:
        raise InvalidInput(
            f"calibration {given.name!r} holds more than {MOST_OTHERS:,} values beside its draws; "
            "no calibration needs so many."
        )
    return {"calibration": text}


def _draws(known: Any) -> Iterator[list[float]]:
    """Every list of draws that a calibration holds."""
    holders = [*known.settings, *filter(None, [known.weight_decay_law])]
    for draws in (holder.draws for holder in holders if holder.draws):
        yield from draws.discrepancy.values()
        for laws in (draws.laws, draws.loss_draws):
            for parameters in laws.values():
                yield from parameters.values()


def without_extras(record: Any) -> Any:
    """A calibration, or part of one, without fields that this release does not know, nor those of `method`
    but what plans read: the server keeps it, and a stranger may have put anything there.
    """
    if isinstance(record, str) and len(record) > LONGEST_TEXT:
        raise InvalidInput(f"a text of the calibration has more than {LONGEST_TEXT:,} characters.")
    if isinstance(record, tuple | list):
        return type(record)(map(without_extras, record))
    if isinstance(record, dict):
        return {without_extras(key): without_extras(value) for key, value in record.items()}
    if not isinstance(record, BaseModel):
        return record
    kept = {name: without_extras(value) for name, value in record if name in type(record).model_fields}
    if isinstance(kept.get("method"), dict):
        learnt = kept["method"].get("learnt_from_runs", {})
        kept["method"] = {"learnt_from_runs": {str(k): float(v) for k, v in learnt.items()}} if learnt else {}
    return type(record).model_construct(**kept)


def fit(request: dict[str, Any], progress: Any) -> dict[str, Any]:
    """Fit the laws, with what the shipped calibrations make believe before the runs: the calibration, its
    report and the sections of it that a page shows at once, and what was noticed when the runs were read.
    """
    from calibration.reports.report import Subject, fit_quality, predictions, report
    from calibration.studies.fit import Source
    from calibration.studies.fit import fit as fit_runs

    every = _runs(request)
    runs = comparable_runs(every)
    found = fit_runs(
        Source(runs, Origin(), every),
        bootstrap=request["refits"],
        name=request["name"],
        title=request["name"],
        progress=lambda what, share: progress(what, 0.95 * share),
    )
    progress("writing the report", 0.96)
    # Those that doubt the runs are warnings of the calibration.
    left_out = [f"{note.text}." for note in warnings_of(runs) if not note.warns and note.code not in _READ]
    subject = Subject(found, runs)
    sections = [section for section in (fit_quality(subject), predictions(subject)) if section]
    return {
        "calibration": found.model_dump_json(exclude_none=True),
        "report": report(found, runs, warnings=[*left_out, *not_determined(_unidentified(runs))]),
        "sections": [[section.title, section.body] for section in sections],
        "runs": len(runs),
        "warnings": [note.text for note in warnings_of(runs, "‹{}›".format)],
    }


_READ = ("columns_guessed", "settings_from_names")  # which is nothing to be careful about


def _unidentified(runs: Any) -> list[dict[str, Any]]:
    """Each law that the runs do not determine, and why."""
    from calibration.fitting.identify import unidentified
    from planner.laws import STANDARD

    found = unidentified(runs, STANDARD)
    return [{"weight_decay": one.weight_decay, "law": one.form, "reason": one.reason} for one in found]


def not_determined(missing: Iterable[dict[str, Any]]) -> list[str]:
    """A sentence for each reason why the runs do not determine laws, with the laws."""
    lacking: dict[str, list[str]] = {}
    for one in missing:
        why = f"At weight decay {one['weight_decay']:g} {one['reason']}"
        lacking.setdefault(why, []).append(law_label(one["law"]))
    return [f"{reason} ({', '.join(forms)})." for reason, forms in lacking.items()]


def _runs(request: dict[str, Any]) -> Any:
    path = Path(request["path"])
    _check_extent(path)
    how = {name: request[name] for name in READING}
    table = _needed_columns(path, how["columns"] or "") if path.suffix == PARQUET else path
    runs = read_runs(table, name=path.name, **how)
    if len(runs) > MOST_RUNS or runs["weight_decay"].nunique() > MOST_SETTINGS:
        raise InvalidInput(
            f"the table has {len(runs):,} runs of {runs['weight_decay'].nunique():,} weight decays; the page "
            f"works with up to {MOST_RUNS:,} and {MOST_SETTINGS}, the command line with more."
        )
    return runs


def _needed_columns(path: Path, mapped: str) -> pd.DataFrame:
    """The columns of a Parquet file that a run table has, and those that the visitor named: what nobody needs
    may be large, and a file of two kilobytes can hold gigabytes, which the limit on memory ends.
    """
    import pyarrow.parquet as parquet
    from pyarrow.types import is_nested

    also = [part.partition("=")[2] for part in mapped.split(",")]
    try:
        chosen = [one for one in parquet.read_schema(path) if one.name in also or may_be_ours(one.name)]
        if nested := [field for field in chosen if is_nested(field.type)]:
            said = f"column {nested[0].name!r} holds {str(nested[0].type)[:60]}"
            raise InvalidInput(f"{said}; a run table has one number or text per cell.")
        names = [field.name for field in chosen]
        table = parquet.read_table(path, columns=names, use_threads=False, memory_map=False)
        found: pd.DataFrame = table.to_pandas(use_threads=False)
    except (InvalidInput, MemoryError):
        raise
    except Exception:  # a damaged file fails in many ways deep inside the reader; to the visitor they are one
        raise InvalidInput(
            f"{path.name} is not a readable Parquet file; write it again or give a CSV file."
        ) from None
    return found


def _check_values(path: Path, kind: str) -> None:
    content, most = path.read_bytes(), MOST_VALUES[kind]
    if content.startswith(b"\x1f\x8b"):
        raise InvalidInput(f"{path.name!r} is compressed; it is read as it is.")
    if sum(content.count(bytes([mark])) for mark in _BETWEEN) > most:
        raise InvalidInput(
            f"{path.name!r} holds more than {most:,} values, more than the service works with; "
            "the command line works with more."
        )


def _check_extent(path: Path) -> None:
    """Refuse a table that is too large before all of it is taken apart."""
    rows = columns = 0
    if path.suffix == PARQUET:
        with contextlib.suppress(Exception):  # what reads it says what is wrong
            import pyarrow.parquet

            about = pyarrow.parquet.read_metadata(path)
            rows, columns = about.num_rows, about.num_columns
    else:
        _check_values(path, "table")
        if path.suffix == ".csv":  # the runs of others are counted when they are read
            content = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            header = content.partition(b"\n")[0]
            rows = content.count(b"\n")
            columns = 1 + max(header.count(delimiter) for delimiter in (b",", b";", b"\t"))
    if rows > MOST_RUNS or columns > MOST_COLUMNS:
        size = f"{rows:,} rows" if rows > MOST_RUNS else f"{columns:,} columns"
        raise InvalidInput(
            f"the table has {size}; the service works with up to {MOST_RUNS:,} runs and {MOST_COLUMNS} "
            "columns, the command line with more."
        )


def _columns(request: dict[str, Any]) -> list[str]:
    """The columns that a table has, by its own names; none where it cannot be read at all."""
    path = Path(request["path"])
    with contextlib.suppress(InvalidInput, OSError, ValueError):
        _check_extent(path)
        if path.suffix == PARQUET:
            import pyarrow.parquet

            return [name[:80] for name in pyarrow.parquet.read_schema(path).names]
        if path.stat().st_size <= SMALL:  # large tables are read only once
            return [str(name)[:80] for name in load(path, path.name).cells.columns]
    return []


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value[:60]
    return short(float(value), 4) if abs(float(value)) >= 1e3 else f"{float(value):.4g}"


_TASKS = {"check": check, "calibration": read_calibration, "fit": fit}


if __name__ == "__main__":
    main()
