"""Text becomes token files once; they are shared, checked, and made whole or not at all."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InvalidInput
from tests.trainer.conftest import start
from tests.trainer.data.conftest import prepared, split
from trainer.config import Corpus
from trainer.data import tokens
from trainer.data.holdout import Overlap, content_key
from trainer.files import quick_checksum, write_json


def test_token_files_are_those_of_sorting_everything_in_memory(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    generator = random.Random(3)
    texts = [
        " ".join(f"w{generator.randrange(900)}" for _ in range(generator.randrange(1, 90)))
        for _ in range(400)
    ]
    texts += (
        [text.upper() for text in texts[::9]] + texts[:30] + ["half of a pair: \ud800", " "]
    )  # copies; nothing
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:200]))
    with gzip.open(folder / "b.jsonl.gz", "wt") as stream:
        stream.write("".join(json.dumps({"text": text}) + "\n" for text in texts[200:]))
    found = prepared(
        settings, corpus=str(folder), validation_documents=20, development_documents=7, cache=str(tmp_path)
    )

    texts = [text for text in texts if text.strip()]
    first: dict[bytes, str] = {}  # of copies, in the order of the corpus
    for text in texts:
        first.setdefault(content_key(text), text)
    lowest = sorted(first)
    held_out = {"validation": lowest[:20], "development": lowest[20:27]}
    overlap = Overlap()
    for key in lowest[:27]:
        overlap.hold_out(first[key])
    expected = {name: [text for key, text in first.items() if key in keys] for name, keys in held_out.items()}
    ordered = sorted(texts, key=lambda text: content_key(text)[8:])
    expected["train"] = [text for text in ordered if not overlap.repeats(text)]
    for name, documents in expected.items():
        raw = [list(text.encode("utf-8", "surrogatepass")) for text in documents]
        assert found.stream(name).tolist() == [256, *chain(*([*document, 256] for document in raw))]
        assert found.facts["streams"][name]["documents"] == len(documents)
    assert sorted(path.name for path in found.folder.iterdir()) == [
        "development.bin",
        "tokenizer",
        "tokens.json",
        "train.bin",
        "validation.bin",
    ]


@pytest.mark.parametrize("order", ["shuffled", "as-is"])
def test_a_corpus_is_never_whole_in_memory(tmp_path: Path, order: str) -> None:
    with open(tmp_path / "much.jsonl", "w") as stream:
        for number in range(2000):
            stream.write(json.dumps({"text": f"{number} {'x' * 8000}"}) + "\n")
    with open(tmp_path / "much.txt", "w") as stream:
        for number in range(1000):
            stream.write(f"{number} {'y' * 8000}\n\n")
    source = Corpus(paths=str(tmp_path / "much.*"), separator="\n\n", order=order)
    tracemalloc.start()
    try:
        _, training, _ = tokens._divide(source, 10, 5, tmp_path / "room")
        assert sum(1 for _ in training()) == 3000 - 15
        assert tracemalloc.get_traced_memory()[1] < 8e6  # of 24 million bytes
    finally:
        tracemalloc.stop()


def test_token_sets_of_an_earlier_version_are_still_read(settings: dict[str, Any], tmp_path: Path) -> None:
    found = prepared(settings, cache=str(tmp_path))
    facts = {name: value for name, value in found.facts.items() if name != "blake2b"}
    facts["checksums"] = {name: quick_checksum(found.folder / name) for name in found.facts["blake2b"]}
    write_json(found.folder / "tokens.json", facts)
    assert prepared(settings, cache=str(tmp_path)).facts == facts
    (found.folder / "train.bin").write_bytes(b"other")
    with pytest.raises(InvalidInput, match=r"train.bin is damaged"):
        prepared(settings, cache=str(tmp_path))


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:300"])
def test_documents_come_back_and_held_out_ones_are_apart(
    settings: dict[str, Any], corpus: Path, tokenizer: str
) -> None:
    found = prepared(settings, tokenizer=tokenizer, development_documents=3)
    parts = {name: split(found, name) for name in ("train", "validation", "development")}
    assert [len(parts[name]) for name in parts] == [72, 5, 3]
    assert sorted(chain(*parts.values())) == sorted(path.read_text() for path in corpus.iterdir())
    assert found.facts["streams"]["validation"]["bytes"] == sum(
        len(text.encode()) for text in parts["validation"]
    )
    assert found.facts["vocabulary"] == {"bytes": 257, "bpe:300": 300}[tokenizer]


def test_the_same_text_gives_the_same_fingerprint_and_other_text_another(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    first = prepared(settings)
    assert prepared(settings).folder == first.folder
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(9):
            (tmp_path / name / f"{i}.txt").write_text(f"document {i} " * 9)
    one, two = (prepared(settings, corpus=str(tmp_path / name)) for name in ("a", "b"))
    assert one.fingerprint == two.fingerprint
    (tmp_path / "a" / "0.txt").write_text("changed")
    assert prepared(settings, corpus=str(tmp_path / "a")).fingerprint != one.fingerprint
    assert (
        prepared(settings, corpus={"paths": str(tmp_path / "b"), "order": "as-is"}).fingerprint
        != one.fingerprint
    )


def test_two_processes_make_one_token_set(settings: dict[str, Any], tmp_path: Path) -> None:
    code = """
import json, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from trainer.data import tokens
from trainer.data import tokenizers
from trainer.config import RunConfig
def work(text):
    config = RunConfig(**json.loads(text))
    return tokens.prepare(config, tokenizers.Spec(config.tokenizer)).fingerprint
if __name__ == "__main__":
    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as pool:
        print(len(set(pool.map(work, [sys.argv[1]] * 4))))
"""
    done = start(code, json.dumps(settings | {"cache": str(tmp_path), "tokenizer": "bpe:400"}))
    assert done.stdout.strip() == "1", done.stderr
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


def test_a_limit_counts_only_what_was_used(settings: dict[str, Any], corpus: Path) -> None:
    found = prepared(settings, corpus={"paths": str(corpus), "tokens": 2000})
    streams = found.facts["streams"]
    texts = split(found, "train")  # whole documents; the last one is cut off
    assert (streams["train"]["tokens"], streams["train"]["documents"]) == (2001, len(texts) + 1)
    assert sum(len(text) for text in texts) < streams["train"]["bytes"] < 3000
    assert found.facts["dropped_as_repeating_held_out_text"] == {"documents": 0, "bytes": 0}


def test_what_a_killed_process_left_is_swept(settings: dict[str, Any], tmp_path: Path) -> None:
    name = prepared(settings).folder.name
    (tmp_path / f".{name}.12345").mkdir()
    (tmp_path / f".{name}.12345" / "train.bin").write_bytes(b"half")
    prepared(settings, cache=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir() if name in path.name] == [name]


def test_a_damaged_token_file_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    found = prepared(settings, cache=str(tmp_path))
    path = found.folder / "train.bin"
    path.write_bytes(path.read_bytes()[:-2] + b"\0\0")
    with pytest.raises(InvalidInput, match=r"train.bin is damaged"):
        prepared(settings, cache=str(tmp_path))
    (found.folder / "tokens.json").write_text("{")
    with pytest.raises(InvalidInput, match="not a complete token set"):
        prepared(settings, cache=str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": "nowhere/*.txt"}, "neither a file, nor a folder, nor a pattern"),
        ({"tokenizer": "gpt-17"}, "there is no file 'gpt-17'"),
        ({"tokenizer": "bpe:100"}, "at least 257"),
        ({"tokenizer": "bpe:99999999999999999999"}, "at most 1,000,000"),
        ({"validation_documents": 80}, "80 different documents, which 80 held-out ones"),
    ],
)
def test_bad_data_is_named(settings: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        prepared(settings, **changes)
