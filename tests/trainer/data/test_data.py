"""Text becomes token files once, held-out documents stay out of training, and bad data is named."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InvalidInput
from tests.trainer.conftest import sentence, start
from trainer.config import Corpus, RunConfig
from trainer.data import corpus as corpora
from trainer.data import tokenizers, tokens
from trainer.data.checksums import checksums
from trainer.data.holdout import PASSAGE, Overlap, content_key
from trainer.files import checksum, quick_checksum, read_json, write_json


def prepared(settings: dict[str, Any], **changes: Any) -> tokens.TokenSet:
    config = RunConfig(**settings | changes)
    return tokens.prepare(config, tokenizers.Spec(config.tokenizer, config.eos_token))


def split(found: tokens.TokenSet, name: str) -> list[str]:
    """The documents of a stream, decoded."""
    stream, tokenizer = found.stream(name), found.tokenizer()
    ends = np.flatnonzero(stream == tokenizer.eos)
    assert ends[0] == 0
    return [tokenizer.decode(stream[a + 1 : b]) for a, b in pairwise(ends)]


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


@given(text=st.text("ab\n", max_size=60), separator=st.sampled_from(["a", "aa", "aba", "\n\n"]))
def test_text_read_in_blocks_is_split_as_a_whole(text: str, separator: str) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "_BLOCK", 3)
        path = Path(folder, "text.txt")
        path.write_text(text, newline="")
        source = Corpus(paths=str(path), separator=separator)
        assert list(corpora.documents(source)) == [part for part in text.split(separator) if part.strip()]


def test_checksums_are_remembered_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        "trainer.data.checksums.checksum", lambda path: (read.append(path.name), checksum(path))[1]
    )
    files, notes = [tmp_path / "a", tmp_path / "b"], tmp_path / "notes"
    notes.mkdir()
    for path in files:
        path.write_text(path.name)
    fresh = checksums(files, notes)
    assert checksums(files, notes) == fresh
    assert read == ["a", "b"] * 2  # just written: not to be relied on yet
    monkeypatch.setattr("trainer.data.checksums._SETTLED", -(10**9))
    for _ in range(2):
        assert checksums(files, notes) == fresh == [checksum(path) for path in files]
    assert read == ["a", "b"] * 3
    files[0].write_text("c")
    assert checksums(files, notes) == [checksum(files[0]), fresh[1]] != fresh
    assert read[6:] == ["a"]
    for damage in (b"{", b"[]", b"\xff", b'{"x": 1}', b'{"x": [1, 2, 3, 4]}'):
        (notes / "checksums.json").write_bytes(damage)
        assert checksums(files, notes)[1] == fresh[1]
    files[0].unlink()
    checksums([Path(__file__)], notes)
    assert sorted(read_json(notes / "checksums.json")) == sorted(
        [str(files[1]), __file__]
    )  # without those that are gone
    assert checksums(files[1:], tmp_path / "nowhere") == fresh[1:]
    assert not (tmp_path / "nowhere").exists()


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


def test_processes_remember_checksums_together(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(24)]
    for path in files:
        path.write_text(path.name)
    code = (
        "import sys; from pathlib import Path; import trainer.data.checksums as c; c._SETTLED = -10**9\n"
        "for name in sys.argv[2:]: c.checksums([Path(name)], Path(sys.argv[1]))"
    )
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda part: start(code, str(tmp_path), *map(str, files[part::3])), range(3)):
            assert done.returncode == 0, done.stderr
    assert sorted(read_json(tmp_path / "checksums.json")) == sorted(map(str, files))


def test_half_a_surrogate_pair_can_be_tokenised(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text(
        "".join(json.dumps({"text": f"odd \udc00 {i}"}) + "\n" for i in range(50))
    )
    found = prepared(settings, corpus=str(tmp_path / "odd.jsonl"), tokenizer="bpe:300")
    assert all("odd \ufffd" in text for text in split(found, "train"))


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


def test_training_never_repeats_held_out_text(settings: dict[str, Any], tmp_path: Path) -> None:
    generator = random.Random(5)
    texts = ["".join(sentence(generator) for _ in range(12)) for _ in range(30)]
    copies = [text.upper().replace(" ", "  ") for text in texts]  # the same content, written differently
    inside = [f"An introduction of some length. {text} And an end." for text in texts[:15]]
    (tmp_path / "all.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts + copies + inside)
    )
    found = prepared(settings, corpus=str(tmp_path / "all.jsonl"), validation_documents=8)
    held_out, training = split(found, "validation"), split(found, "train")
    keys = {content_key(text) for text in held_out}
    assert len(held_out) == 8
    assert not any(content_key(text) in keys for text in training)
    for text in held_out:
        words = text.split()
        middle = " ".join(words[: 2 * PASSAGE]).casefold()
        assert not any(middle in " ".join(other.split()).casefold() for other in training)
    dropped = found.facts["dropped_as_repeating_held_out_text"]["documents"]
    assert dropped == 75 - len(held_out) - len(training)
    assert dropped >= 8


def test_any_shared_stretch_of_two_passages_is_found() -> None:
    generator = random.Random(2)
    words = [f"w{generator.randrange(10**6)}" for _ in range(400)]
    overlap = Overlap()
    overlap.hold_out(" ".join(words))
    for offset in range(PASSAGE):
        other = [f"x{i}" for i in range(100 + offset)]
        assert overlap.repeats(" ".join(other + words[130 : 130 + 2 * PASSAGE - 1] + other))
        assert not overlap.repeats(" ".join(other + words[130 : 130 + PASSAGE - 1] + other))


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


@pytest.mark.parametrize("text", ["plain", "tabs\tand\nlines  two", "üñí ✓ 漢字 🙂", "\x00\x01"])
@pytest.mark.parametrize("kind", ["bytes", "bpe", "sentencepiece"])
def test_tokenizers_round_trip_and_load_again(kind: str, text: str, tmp_path: Path, pieces: Path) -> None:
    if kind == "sentencepiece":
        if "\n" in text or "\x00" in text:
            pytest.skip("SentencePiece normalises whitespace and control characters")
        tokenizer = tokenizers.Spec(str(pieces)).tokenizer([])
    else:
        tokenizer = tokenizers.Spec("bytes" if kind == "bytes" else "bpe:300").tokenizer(
            [sentence(random.Random(1))] * 3
        )
    ids = tokenizer.encode([text])[0]
    assert tokenizer.eos not in ids
    assert tokenizer.decode(ids) == text
    assert max(ids) < tokenizer.size
    tokenizer.save(tmp_path)
    again = tokenizers.load(tmp_path)
    assert again.encode([text])[0].tolist() == ids.tolist()
    assert again.eos == tokenizer.eos


def test_bpe_is_trained_the_same_twice() -> None:
    texts = ["".join(sentence(random.Random(seed)) for _ in range(20)) for seed in range(20)]
    one, two = (tokenizers.train_bpe(texts, 320).encode(texts[:3]) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, two, strict=True))


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


@pytest.mark.parametrize(
    ("name", "message"),
    [("tokenizer.json", "is not a tokenizer.json"), ("a.model", "is not a SentencePiece model")],
)
def test_broken_tokenizer_files_are_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(InvalidInput, match=message):
        tokenizers.Spec(str(tmp_path / name))


def test_a_tokenizer_without_an_end_asks_for_one(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    inner = library.Tokenizer(library.models.WordLevel({"a": 0, "b": 1, "stop": 2}, unk_token="a"))
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InvalidInput, match="set eos_token"):
        tokenizers.Spec(str(tmp_path / "tokenizer.json"))
    assert tokenizers.Spec(str(tmp_path / "tokenizer.json"), "stop").ready.eos == 2  # type: ignore[union-attr]
    with pytest.raises(InvalidInput, match="'end' is not a token"):
        tokenizers.Spec(str(tmp_path / "tokenizer.json"), "end")


def test_passages_are_known_by_the_same_hash_in_every_process() -> None:
    text = sentence(random.Random(3)) * 4
    overlap = Overlap()
    overlap.hold_out(text)
    code = (
        "import sys; from trainer.data.holdout import Overlap; "
        "o = Overlap(); o.hold_out(sys.argv[1]); print(sorted(o.passages))"
    )
    assert start(code, text).stdout.strip() == str(sorted(overlap.passages))
