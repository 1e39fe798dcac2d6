"""Text becomes token files once; they are shared, checked, and made whole or not at all."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.inputs import InvalidInput
from tests.trainer.conftest import sentence, start
from tests.trainer.data.conftest import prepared, split
from trainer.config import Corpus, RunConfig
from trainer.data import streams, tokenize, tokenizers, tokens
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
def test_a_corpus_is_never_whole_in_memory(
    tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenize, "_BATCH", 2**17)
    with open(tmp_path / "much.jsonl", "w") as stream:
        for number in range(2000):
            stream.write(json.dumps({"text": f"{number} {'x' * 8000}"}) + "\n")
    with open(tmp_path / "much.txt", "w") as stream:
        for number in range(1000):
            stream.write(f"{number} {'y' * 8000}\n\n")
    source = Corpus(paths=str(tmp_path / "much.*"), separator="\n\n", order=order)
    tracemalloc.start()
    try:
        writer = tokenize.ShardWriter(tmp_path / "work", source, tokenizers.Spec("bytes"), (10, 5))
        assert sum(shard.documents for shard in writer.shards(None)) == 3000 - 15
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
    left = [path.name for path in tmp_path.iterdir() if name in path.name and path.suffix != ".lock"]
    assert left == [name]


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


def stories(folder: Path, count: int, files: int = 1, seed: int = 9) -> list[list[str]]:
    """A dataset of some files, each with documents of its own."""
    generator = random.Random(seed)
    folder.mkdir()
    found = []
    for number in range(files):
        texts = ["".join(sentence(generator) for _ in range(8)) for _ in range(count)]
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"train-{number:05d}-of-{files:05d}.jsonl").write_text(rows)
        found.append(texts)
    return found


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(tokenize, "SHARD", 4000)
    monkeypatch.setattr(tokenize, "_BATCH", 2000)


def test_many_files_are_one_stream(settings: dict[str, Any], tmp_path: Path, offline: None) -> None:
    stories(tmp_path / "data", 80)
    how = {"corpus": {"dataset": str(tmp_path / "data")}, "validation_documents": 4, "unique_tokens": 20000}
    parts = prepared(settings, **how, cache=str(tmp_path / "parts"))
    stream = parts.stream("train")
    assert len(parts.facts["train_files"]) > 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenize, "SHARD", 10**9)
        whole = prepared(settings, **how, cache=str(tmp_path / "whole")).stream("train")
    assert len(stream) == len(whole) == 20001
    assert np.asarray(stream).tolist() == np.asarray(whole).tolist()
    generator = random.Random(1)
    for _ in range(200):
        start = generator.randrange(20001)
        stop = generator.randrange(start, 20002)
        assert stream[start:stop].tolist() == whole[start:stop].tolist()


def test_more_tokens_go_on_where_the_last_ones_ended(
    settings: dict[str, Any], tmp_path: Path, offline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories(tmp_path / "data", 120)
    how = {"corpus": {"dataset": str(tmp_path / "data")}, "validation_documents": 4, "cache": str(tmp_path)}
    few = prepared(settings, **how, unique_tokens=9000)
    seen: list[str] = []
    plain = tokenizers.Bytes.encode
    monkeypatch.setattr(
        tokenizers.Bytes, "encode", lambda self, texts: (seen.extend(texts), plain(self, texts))[1]
    )
    many = prepared(settings, **how, unique_tokens=25000)
    assert many.stream("train")[:9001].tolist() == few.stream("train")[:9001].tolist()
    assert sum(map(len, seen)) < 24000  # not the first nine thousand again, but held-out ones and some ahead
    with monkeypatch.context() as patch:
        patch.setattr(tokenize, "SHARD", 10**9)
        anew = prepared(settings, **how | {"cache": str(tmp_path / "anew")}, unique_tokens=25000)
    assert np.asarray(anew.stream("train")).tolist() == np.asarray(many.stream("train")).tolist()
    assert anew.facts["streams"] == many.facts["streams"]
    assert (many.folder / "train.bin").samefile(few.folder / "train.bin")  # no copy


def test_a_connection_that_breaks_costs_nothing(
    settings: dict[str, Any],
    tmp_path: Path,
    offline: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stories(tmp_path / "data", 60, files=3)
    how = {"corpus": {"dataset": str(tmp_path / "data")}, "validation_documents": 4, "unique_tokens": 20000}
    smooth = prepared(settings, **how, cache=str(tmp_path / "smooth"))
    plain, calls = streams.Rows._take, iter(range(1, 10**6))

    def rough(self: Any) -> Any:
        if next(calls) % 7 == 0:
            self.rows = None
            raise ConnectionError("reset by peer")
        return plain(self)

    monkeypatch.setattr(streams.Rows, "_take", rough)
    monkeypatch.setattr(streams, "WAITS", (0.0, 0.0))
    found = prepared(settings, **how, cache=str(tmp_path / "rough"))
    assert np.asarray(found.stream("train")).tolist() == np.asarray(smooth.stream("train")).tolist()
    assert found.content == smooth.content
    assert "reset by peer; trying again" in caplog.text


def test_a_stream_that_stays_broken_keeps_its_shards(
    settings: dict[str, Any], tmp_path: Path, offline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories(tmp_path / "data", 120)
    how = {"corpus": {"dataset": str(tmp_path / "data")}, "validation_documents": 4, "unique_tokens": 30000}
    smooth = prepared(settings, **how, cache=str(tmp_path / "smooth"))
    plain, calls = streams.Rows._take, iter(range(1, 10**6))

    def broken(self: Any) -> Any:
        if next(calls) > 70:
            raise TimeoutError("no answer")
        return plain(self)

    with monkeypatch.context() as patch:
        patch.setattr(streams.Rows, "_take", broken)
        patch.setattr(streams, "WAITS", (0.0,))
        with pytest.raises(InvalidInput, match="cannot be read: TimeoutError: no answer"):
            prepared(settings, **how, cache=str(tmp_path / "rough"))
    kept = list((tmp_path / "rough").glob(".work-*/train-*.json"))
    assert len(kept) >= 2
    before = {path: path.stat().st_mtime_ns for path in kept}
    found = prepared(settings, **how, cache=str(tmp_path / "rough"))
    assert found.content == smooth.content
    assert {path: path.stat().st_mtime_ns for path in kept} == before  # not made again


def test_datasets_are_read_from_all_their_files_at_once(
    settings: dict[str, Any], tmp_path: Path, offline: None
) -> None:
    texts = stories(tmp_path / "data", 12, files=3)
    corpus = {"dataset": str(tmp_path / "data")}
    found = prepared(settings, corpus=corpus, validation_documents=3, unique_tokens=6000)
    assert split(found, "validation") == [some[0] for some in texts]
    assert split(found, "train")[:6] == [some[row] for row in (1, 2) for some in texts]
    plain = prepared(settings, corpus=corpus | {"order": "as-is"}, validation_documents=3, unique_tokens=3000)
    assert split(plain, "validation") == texts[0][:3]
    assert plain.fingerprint != found.fingerprint


def test_progress_is_told_also_where_nobody_looks(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenize, "_SAID", 0.0)
    monkeypatch.setattr(tokenize, "_BATCH", 5000)
    generator = random.Random(5)
    texts = ["".join(sentence(generator) for _ in range(12)) for _ in range(60)]
    rows = [*texts, *(text.upper() for text in texts)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    config = RunConfig(**settings | {"corpus": str(tmp_path / "all.jsonl"), "cache": str(tmp_path)})
    said: list[str] = []
    tokens.prepare(config, tokenizers.Spec("bytes"), said.append)
    assert sum(line.startswith("tokenising") and line.endswith("MB/s") for line in said) >= 4
    assert said[-1].startswith("left out 5 documents (0.0 MB) that repeat held-out text")


KILLED = """
import json, os, signal, sys
from trainer.config import RunConfig
from trainer.data import streams, tokenize, tokenizers, tokens
tokenize.SHARD, tokenize._BATCH = 4000, 1000
settings, victim = json.loads(sys.argv[1]), int(sys.argv[2])
plain, calls = tokenizers.Bytes.encode, iter(range(1, 10**6))
def encode(self, texts):
    if next(calls) == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(self, texts)
tokenizers.Bytes.encode = encode
tokens.prepare(RunConfig(**settings), tokenizers.Spec("bytes"))
"""


@pytest.mark.slow
def test_killed_while_tokenising_and_still_the_same_tokens(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenize, "SHARD", 4000)
    monkeypatch.setattr(tokenize, "_BATCH", 1000)
    smooth = prepared(settings, cache=str(tmp_path / "smooth"))
    killed = settings | {"cache": str(tmp_path / "killed")}
    for victim in (3, 20, 2):
        done = start(KILLED, json.dumps(killed), str(victim))
        assert done.returncode == -9, done.stderr
    assert any((tmp_path / "killed").glob(".work-*/train-00001.json"))
    found = prepared(killed)
    assert found.content == smooth.content
    assert not any((tmp_path / "killed").glob(".work-*/"))  # all of it is in the set
