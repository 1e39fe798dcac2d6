"""Evaluation documents that the training text contains are found, wherever they stand in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs import InvalidInput
from trainer import read_result
from trainer.data.tokens import open_set
from trainer.downstream import overlap
from trainer.downstream.overlap import check_overlap, window_hashes
from trainer.downstream.tasks import load_suite

RANDOM = np.random.default_rng(0).integers(0, 2**63, size=4, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


@pytest.fixture(scope="module")
def token_folder(run: Path, cache: Path) -> Path:
    result = read_result(run)
    assert result is not None
    return cache / result.data["fingerprint"]


def leaked(token_folder: Path, start: int, count: int) -> str:
    """Text from the middle of the training stream."""
    tokens = open_set(token_folder)
    return tokens.tokenizer().decode(tokens.stream("train")[start : start + count].tolist())


@pytest.mark.parametrize("where", ["run", "folder", "file"])
def test_a_leaked_document_is_found(
    run: Path, token_folder: Path, suite: Callable[..., Path], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "BLOCK", 1000)  # so that there are many blocks
    examples = "Question: one?\nAnswer: two\n\n"
    unseen = (
        "Nineteen purple walruses juggle quietly beneath an upside-down volcano "
        "while their accountant files invoices in Finnish."
    )
    rows = [
        (0, 0, "x", examples + unseen + " Question:", " why"),
        (1, 0, "x", examples + leaked(token_folder, 5000, 40) + "\nQuestion:", " why"),
        (2, 0, "x", examples + "short:", " a"),
    ]
    tasks = load_suite(str(suite({"mine/bpb_5shot": rows, "clean/bpb_5shot": rows[:1] + rows[2:]})))
    path = {"run": run, "folder": token_folder, "file": token_folder / "train.bin"}[where]
    clean, mine = check_overlap(path, tasks, ngram=20)
    assert (mine.task, mine.documents, mine.overlapping, mine.too_short, mine.examples) == (
        "mine",
        3,
        1,
        1,
        [1],
    )
    assert (clean.overlapping, clean.too_short) == (0, 1)


def test_what_all_documents_share_is_not_an_overlap(token_folder: Path, suite: Callable[..., Path]) -> None:
    """Examples that happen to be in the training text say nothing about the documents."""
    examples = leaked(token_folder, 5000, 60)
    rows = [
        (
            i,
            0,
            "x",
            f"{examples}{word} walruses juggle quietly beneath an upside-down volcano, invoices, Finnish:",
            " a",
        )
        for i, word in enumerate(("9", "7"))
    ]
    assert (
        check_overlap(token_folder, load_suite(str(suite({"mine/bpb_5shot": rows}))), ngram=20)[0].overlapping
        == 0
    )


def test_what_is_no_stream(run: Path, token_folder: Path, suite: Callable[..., Path], tmp_path: Path) -> None:
    tasks = load_suite(str(suite({"mine/bpb_5shot": [(0, 0, "x", "a", " b")]})))
    (tmp_path / "loose.bin").write_bytes(b"1234")
    for path in (tmp_path, tmp_path / "nothing", tmp_path / "loose.bin"):
        with pytest.raises(InvalidInput, match="is no training stream"):
            check_overlap(path, tasks)
    with pytest.raises(InvalidInput, match="fewer than the 99999999 that must match"):
        check_overlap(token_folder, tasks, ngram=99999999)
    with pytest.raises(InvalidInput, match="ngram must be"):
        check_overlap(token_folder, tasks, ngram=0)


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 3), max_size=60), st.integers(1, 6))
def test_hashes_are_equal_where_windows_are(a: list[int], b: list[int], ngram: int) -> None:
    def windows(ids: list[int]) -> list[tuple[int, ...]]:
        return [tuple(ids[i : i + ngram]) for i in range(len(ids) - ngram + 1)]

    hashes = [window_hashes(np.array(ids, dtype=np.int64), RANDOM, ngram).tolist() for ids in (a, b)]
    named = dict(zip(windows(a) + windows(b), hashes[0] + hashes[1], strict=True))
    assert hashes == [[named[w] for w in windows(ids)] for ids in (a, b)]
    assert len(set(named.values())) == len(named)
