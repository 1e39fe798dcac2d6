"""Documents come out of files and datasets as they are, and bad ones are named."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs import InvalidInput
from tests.trainer.conftest import sentence
from tests.trainer.data.conftest import prepared, split
from trainer.config import Corpus
from trainer.data import corpus as corpora


@given(text=st.text("ab\n", max_size=60), separator=st.sampled_from(["a", "aa", "aba", "\n\n"]))
def test_text_read_in_blocks_is_split_as_a_whole(text: str, separator: str) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "_BLOCK", 3)
        path = Path(folder, "text.txt")
        path.write_text(text, newline="")
        source = Corpus(paths=str(path), separator=separator)
        assert list(corpora.documents(source)) == [part for part in text.split(separator) if part.strip()]


@pytest.mark.parametrize(
    ("source", "library"), [({"dataset": "some/name"}, "datasets"), ({"paths": "x.parquet"}, "pyarrow")]
)
def test_a_missing_library_is_named_before_data_is_read(
    source: dict[str, Any], library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.parquet").touch()
    monkeypatch.setattr(corpora, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=f"needs {library}"):
        corpora.check(Corpus(**source))


def test_formats(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts = ["eins", "zwei\nzwei", "drei ✓"]
    rows = "".join(json.dumps({"body": text}) + "\n" for text in texts)
    (tmp_path / "a.jsonl").write_text(rows)
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as stream:
        stream.write(rows)
    parquet.write_table(pyarrow.table({"body": texts}), tmp_path / "c.parquet")
    for name in ("a.jsonl", "b.jsonl.gz", "c.parquet"):
        assert list(corpora.documents(Corpus(paths=str(tmp_path / name), text_field="body"))) == texts
    (tmp_path / "d.txt").write_text("eins\n---\n\n---\nzwei")
    assert list(corpora.documents(Corpus(paths=str(tmp_path / "d.txt"), separator="---\n"))) == [
        "eins\n",
        "zwei",
    ]
    assert len(corpora.files(Corpus(paths=str(tmp_path / "*.jsonl*"), exclude="*.gz"))) == 1


def test_hugging_face_datasets_are_streamed_in_order(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hf"))
    generator = random.Random(9)
    texts = ["".join(sentence(generator) for _ in range(8)) for _ in range(40)]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts)
    )
    found = prepared(
        settings, corpus={"dataset": str(tmp_path / "data")}, validation_documents=4, unique_tokens=3000
    )
    assert split(found, "validation") == texts[:4]
    assert len(found.stream("train")) == 3001  # no more than is needed
    assert split(found, "train")[:3] == texts[4:7]
    with pytest.raises(InvalidInput, match=r"dataset .*no-such.* cannot be read"):
        list(corpora.documents(Corpus(dataset=str(tmp_path / "no-such"))))


def test_the_standard_library_is_a_corpus() -> None:
    files = corpora.files(Corpus(paths="python-stdlib"))
    assert {"argparse.py", "dataclasses.py"} <= {path.name for path in files}
    assert not any("test" in path.parts or "site-packages" in path.parts for path in files)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "is empty: it has no document"),
        ("blank.jsonl", b'{"text": "  "}\n', "is empty: it has no document"),
        ("bad.jsonl", b'{"text": "a"}\nnonsense\n', "line 2 of .*bad.jsonl is not JSON"),
        ("field.jsonl", b'{"body": "a"}\n', "no text in field 'text' .it has body."),
        (
            "number.jsonl",
            b'{"text": 5}\n',
            "line 1 of .*number.jsonl has no text but a value of type int in field 'text'",
        ),
        ("short.txt.gz", gzip.compress(b"a document " * 99, mtime=0)[:-20], "short.txt.gz cannot be read"),
        ("broken.txt.gz", gzip.compress(b"a", mtime=0)[:10] + b"\xff" * 20, "broken.txt.gz cannot be read"),
        ("bytes.txt", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("broken.parquet", b"PAR1nonsense", "is not a Parquet file"),
    ],
)
def test_bad_files_are_named(
    settings: dict[str, Any], tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        prepared(settings, corpus=str(tmp_path / name), cache=str(tmp_path / "cache"))
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]  # nothing half-made is left
