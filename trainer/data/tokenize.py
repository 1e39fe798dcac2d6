"""Where a corpus is tokenised, shard by shard: a kill or a broken connection costs one shard, and more tokens
of the same corpus are made from where the last ones ended.

    held-out.json               documents that are held out
    documents/                  those of local files, sorted by content
    tokenizer/                  trained, where it had to be
    train-00000.bin             tokens, EOS after every document, and before the first one
    train-00000.json            written last: counts, checksum, what was dropped, where the next shard begins
    train-00000.sizes           bytes of text and tokens of each document

Reading and checking a batch of documents, tokenising the one before it on all cores, and writing the one
before that go on at the same time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from planner.inputs import InvalidInput, short
from trainer.config import Corpus
from trainer.data import corpus as corpora
from trainer.data import tokenizers
from trainer.data.holdout import Candidates, Overlap, content_key
from trainer.data.shuffle import ShuffledDocuments
from trainer.files import checksum, read_json, sync, write_json

SHARD = 2**24  # tokens from which a shard is closed
_BATCH = 2**21  # characters of text that are tokenised together
_BPE_DOCUMENTS = 100_000  # a BPE is trained on at most so many documents
_SAID = 5.0  # seconds between two lines about progress
Say = Callable[[str], None]


@dataclass(frozen=True)
class Shard:
    """A shard that is complete."""

    tokens: int
    documents: int
    bytes: int
    dropped_documents: int
    dropped_bytes: int
    met: list[str]  # held-out documents that came by
    position: Any  # of the document after it
    ended: bool  # the corpus has no more
    blake2b: str


@dataclass
class _Batch:
    """Documents on their way through the tokenizer, and where the corpus is after them."""

    texts: list[str] = field(default_factory=list)
    position: Any = None
    dropped: tuple[int, int] = (0, 0)
    met: frozenset[bytes] = frozenset()


class ShardWriter:
    """Tokenises one corpus with one tokenizer; everything that is complete is found again."""

    def __init__(
        self,
        folder: Path,
        corpus: Corpus,
        spec: tokenizers.Spec,
        held_out: tuple[int, int],
        say: Say | None = None,
    ):
        self.folder, self.corpus, self.spec = folder, corpus, spec
        self.say = say or (lambda line: None)
        folder.mkdir(exist_ok=True)
        self.overlap = Overlap()
        self.held_out = self._divided(*held_out)
        for text in chain(*self.held_out.values()):
            self.overlap.hold_out(text)
        self.tokenizer = self._tokenizer()
        self.dtype = "uint16" if self.tokenizer.size <= 2**16 else "uint32"

    def path(self, number: int, ending: str = "bin") -> Path:
        return self.folder / f"train-{number:05d}.{ending}"

    def stream(self, name: str, folder: Path) -> dict[str, int]:
        """Write the tokens of a held-out set into a folder; its counts."""
        path, texts = folder / f"{name}.bin", self.held_out[name]
        end = np.array([self.tokenizer.eos], dtype=self.dtype)
        pieces = chain.from_iterable((ids.astype(self.dtype), end) for ids in self.tokenizer.encode(texts))
        tokens = np.concatenate([end, *pieces])
        tokens.tofile(path)
        sync(path)
        return {"tokens": len(tokens), "documents": len(texts), "bytes": sum(map(bytes_of, texts))}

    def shards(self, limit: int | None) -> list[Shard]:
        """Shards of the training documents, as many as `limit` tokens and the target of the last need."""
        found = list(self._known())
        enough = limit is not None and sum(shard.tokens for shard in found) > limit
        if not enough and not (found and found[-1].ended):
            self._extend(found, limit)
        if not sum(shard.documents for shard in found):
            raise InvalidInput(
                f"corpus {self.corpus.describe()} has no training documents left that do not repeat held-out "
                f"ones."
            )
        return found

    def first(self, number: int, shard: Shard, tokens: int) -> tuple[int, int]:
        """Documents that begin within the first tokens of a shard, and the bytes of their text."""
        if tokens >= shard.tokens:
            return shard.documents, shard.bytes
        sizes = np.fromfile(self.path(number, "sizes"), dtype=np.uint32).reshape(-1, 2).astype(np.int64)
        ends = np.cumsum(sizes[:, 1]) + (number == 0)
        count = int(np.searchsorted(ends, tokens)) + 1
        return count, int(sizes[:count, 0].sum())

    def _known(self) -> Iterator[Shard]:
        """Shards of earlier attempts, up to the first that is not complete."""
        number = 0
        while self.path(number, "json").exists():
            shard = Shard(**read_json(self.path(number, "json")))
            if self.path(number).stat().st_size != shard.tokens * np.dtype(self.dtype).itemsize:
                return
            yield shard
            number += 1

    def _divided(self, validation: int, development: int) -> dict[str, list[str]]:
        """Texts of the held-out sets, found in one pass that also sorts the documents to be shuffled."""
        note, room = self.folder / "held-out.json", self.folder / "documents"
        if not note.exists() or (self.corpus.shuffled and not room.is_dir()):
            shutil.rmtree(room, ignore_errors=True)
            write_json(note, chosen(self.corpus, validation, development, room))
        texts: dict[str, list[str]] = read_json(note)
        return texts

    def tidy(self) -> None:
        """Remove the sorted documents; first the note that says that they are complete."""
        if self.corpus.shuffled:
            (self.folder / "held-out.json").unlink(missing_ok=True)
            shutil.rmtree(self.folder / "documents", ignore_errors=True)

    def _training(self, position: Any = None) -> Any:
        """Training documents from a position on; those that repeat held-out text are still among them."""
        if not self.corpus.shuffled:
            return corpora.documents(self.corpus, position)
        return corpora.Counted(lambda: ShuffledDocuments(self.folder / "documents"), position or 0)

    def _tokenizer(self) -> tokenizers.Tokenizer:
        kept = self.folder / "tokenizer"
        if self.spec.ready or not (self.folder / "tokenizer.json").exists():
            fresh = (text for text in self._training() if not self.overlap.repeats(text))
            made = self.spec.tokenizer(islice(fresh, _BPE_DOCUMENTS))
            made.save(kept)
            write_json(self.folder / "tokenizer.json", made.size)
            self.overlap.begin()
            if self.spec.ready:
                return made
        loaded = tokenizers.load(kept)
        loaded.size = int(read_json(self.folder / "tokenizer.json"))
        return loaded

    def _extend(self, found: list[Shard], limit: int | None) -> None:
        """Make shards from where the last one ended, until there is enough or nothing left."""
        self.overlap.begin()
        self.overlap.met = {bytes.fromhex(key) for shard in found for key in shard.met}
        source = self._training(found[-1].position if found else None)
        made, told = sum(shard.tokens for shard in found), _Batch(met=frozenset(self.overlap.met))
        writing = _Writing(self, len(found))
        try:
            for batch, ids in self._encoded(source):
                writing.add(batch.texts, ids)
                enough = limit is not None and made + writing.tokens > limit
                self._tell(made + writing.tokens, limit, writing)
                if enough or writing.tokens >= SHARD:
                    found.append(writing.close(batch, told, ended=False))
                    if enough:
                        return
                    made, told, writing = made + writing.tokens, batch, _Writing(self, len(found))
            found.append(writing.close(self._batch([], source), told, ended=True))
        finally:
            writing.file.close()

    def _encoded(self, source: Any) -> Iterator[tuple[_Batch, list[np.ndarray]]]:
        """Batches with their tokens, one read ahead while the one before is tokenised."""
        with ThreadPoolExecutor(1) as encoder:
            before: tuple[_Batch, Future[list[np.ndarray]]] | None = None
            for batch in self._batches(source):
                now = batch, encoder.submit(self.tokenizer.encode, batch.texts)
                if before:
                    yield before[0], before[1].result()
                before = now
            if before:
                yield before[0], before[1].result()

    def _batches(self, source: Any) -> Iterator[_Batch]:
        """Training documents that repeat nothing held out, some at a time."""
        texts: list[str] = []
        size = 0
        for text in source:
            if self.overlap.repeats(text):
                continue
            texts.append(text)
            size += len(text)
            if size >= _BATCH:
                yield self._batch(texts, source)
                texts, size = [], 0
        if texts:
            yield self._batch(texts, source)

    def _batch(self, texts: list[str], source: Any) -> _Batch:
        dropped = self.overlap.dropped_documents, self.overlap.dropped_bytes
        return _Batch(texts, source.position, dropped, frozenset(self.overlap.met))

    def _tell(self, tokens: int, limit: int | None, writing: _Writing) -> None:
        """A line now and then, also where nobody looks at a terminal."""
        now = time.monotonic()
        if now - getattr(self, "told", 0.0) < _SAID:
            return
        self.told = now
        speed = writing.bytes / max(now - writing.began, 1e-9) / 1e6
        of = f" of {short(limit)}" if limit else ""
        self.say(f"tokenising {self.corpus.describe()}: {short(tokens)}{of} tokens, {speed:.1f} MB/s")


class _Writing:
    """A shard that is being written, and hashed on the way."""

    def __init__(self, writer: ShardWriter, number: int):
        self.writer, self.number, self.began = writer, number, time.monotonic()
        self.end = np.array([writer.tokenizer.eos], dtype=writer.dtype)
        self.file = open(writer.path(number), "wb")  # noqa: SIM115
        self.digest = hashlib.blake2b(digest_size=16)
        self.tokens = self.documents = self.bytes = 0
        self.sizes: list[tuple[int, int]] = []  # bytes and tokens of each document
        if number == 0:
            self._write([self.end])

    def add(self, texts: list[str], ids: list[np.ndarray]) -> None:
        self._write(chain.from_iterable((tokens, self.end) for tokens in ids))
        sizes = [bytes_of(text) for text in texts]
        self.sizes += [(size, len(tokens) + 1) for size, tokens in zip(sizes, ids, strict=True)]
        self.documents, self.bytes = self.documents + len(sizes), self.bytes + sum(sizes)

    def close(self, now: _Batch, before: _Batch, ended: bool) -> Shard:
        """Make the shard durable; `before` is where the corpus was when it was begun."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        sizes = self.writer.path(self.number, "sizes")
        np.array(self.sizes, dtype=np.uint32).tofile(sizes)
        sync(sizes)
        shard = Shard(
            tokens=self.tokens,
            documents=self.documents,
            bytes=self.bytes,
            dropped_documents=now.dropped[0] - before.dropped[0],
            dropped_bytes=now.dropped[1] - before.dropped[1],
            met=sorted(key.hex() for key in now.met - before.met),
            position=now.position,
            ended=ended,
            blake2b=self.digest.hexdigest(),
        )
        write_json(self.writer.path(self.number, "json"), asdict(shard))
        return shard

    def _write(self, pieces: Iterable[np.ndarray]) -> None:
        raw = np.concatenate([piece.astype(self.end.dtype) for piece in pieces])
        self.file.write(raw.data)
        self.digest.update(raw.data)
        self.tokens += len(raw)


def chosen(corpus: Corpus, validation: int, development: int, room: Path) -> dict[str, list[str]]:
    """Texts of the held-out documents by set, in one pass over the corpus (of a dataset, over its beginning),
    on which documents to be shuffled are sorted in `room`.
    """
    candidates = Candidates(validation, development, first=corpus.streamed)

    def offered() -> Iterator[tuple[bytes, str]]:
        for text in corpora.documents(corpus):
            key = content_key(text)
            candidates.offer(key, text)
            yield key, text

    if corpus.shuffled:
        ShuffledDocuments(room, offered())
    else:
        for _ in offered():
            if corpus.streamed and candidates.enough:
                break
    if not candidates.met:
        raise InvalidInput(f"corpus {corpus.describe()} is empty: it has no document with any text.")
    if not candidates.enough:
        advice = "fewer held-out documents, or a separator that splits files into documents, would do"
        raise InvalidInput(
            f"corpus {corpus.describe()} has {len(candidates.kept):,} different documents, which "
            f"{validation + development:,} held-out ones would use up; {advice}."
        )
    found = candidates.chosen()
    return found if development else {"validation": found["validation"]}


def bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def linked(source: Path, target: Path, tokens: int, whole: Shard, dtype: str) -> str:
    """A shard, or its first tokens, as a file of a token set, linked where that can be; its checksum."""
    if tokens < whole.tokens:
        np.fromfile(source, dtype=dtype, count=tokens).tofile(target)
        sync(target)
        return checksum(target)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        sync(target)
    return whole.blake2b
