"""Text tokenised once into memory-mapped token files that every run on the same corpus shares.

A token set is a folder named by its fingerprint (corpus content, tokenizer, document order, held-out
documents):

    train.bin  validation.bin  development.bin     uint16 or uint32 tokens: EOS document EOS document EOS ...
    tokenizer/                                     loadable by transformers
    tokens.json                                    counts, checksums, and what was dropped and why

Every stream begins with EOS, so that each token of each document is predicted from something. The folder is
written under another name and renamed when complete. Processes that want the same set wait for the one that
makes it; where locks do not reach (some network disks), the first complete folder wins and the others are
thrown away.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import InvalidInput
from trainer.config import Corpus, RunConfig
from trainer.data import corpus as corpora
from trainer.data import tokenizers
from trainer.data.checksums import checksums
from trainer.data.holdout import Candidates, Overlap, content_key
from trainer.data.shuffle import ShuffledDocuments
from trainer.files import checksum, locked, quick_checksum, read_json, sync_file, sync_folder, write_json

VERSION = 1
_TOGETHER = 256  # documents per call of the tokenizer
_BPE_DOCUMENTS = 100_000  # a BPE is trained on at most so many documents


@dataclass(frozen=True)
class TokenSet:
    """Memory-mapped streams and what is known about them."""

    folder: Path
    facts: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        return str(self.facts["fingerprint"])

    @property
    def content(self) -> dict[str, str] | None:
        """Checksums of the streams, which a fingerprint does not know: a dataset may change under its name.
        None in sets made by an earlier version.
        """
        return self.facts.get("blake2b")

    def stream(self, name: str) -> np.ndarray:
        """ "train", "validation" or "development"."""
        return np.memmap(self.folder / f"{name}.bin", dtype=self.facts["dtype"], mode="r")

    def tokenizer(self) -> tokenizers.Tokenizer:
        return tokenizers.load(self.folder / "tokenizer")


def cache_folder(given: str | None) -> Path:
    return Path(os.path.expanduser(given or os.environ.get("DATABOUND_CACHE") or "~/.cache/databound"))


def prepare(config: RunConfig, spec: tokenizers.Spec) -> TokenSet:
    """The token set of a run: made now, or found where another run made it."""
    corpora.check(config.corpus)
    cache = cache_folder(config.cache)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        identity = _identity(config, spec)
        name = _named(identity)
        folder = cache / name
        if not folder.is_dir():
            lock = cache / f"{name}.lock"
            with locked(lock):
                if not folder.is_dir():
                    _make(config, spec, folder, {"fingerprint": name, "identity": identity})
                lock.unlink(missing_ok=True)  # whoever waits for it finds the folder complete
    except OSError as error:
        raise InvalidInput(f"token files cannot be written to {cache}: {error.strerror or error}.") from None
    return open_set(folder)


def fingerprint(config: RunConfig, spec: tokenizers.Spec) -> str:
    """The name of a run's token set, without making it."""
    return _named(_identity(config, spec))


def _named(identity: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=12).hexdigest()


def open_set(folder: Path) -> TokenSet:
    """A token set on disk, checked against its own checksums (once, not at every start: see
    `trainer.checksums`).
    """
    try:
        facts = read_json(folder / "tokens.json")
        if "blake2b" in facts:
            wanted = facts["blake2b"]
            found = dict(
                zip(wanted, checksums([folder / name for name in wanted], folder.parent), strict=True)
            )
        else:  # made by an earlier version
            wanted = facts["checksums"]
            found = {name: quick_checksum(folder / name) for name in wanted}
        broken = [name for name, value in wanted.items() if found[name] != value]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"{folder} is not a complete token set ({type(error).__name__}); delete it and it will be made "
            f"again."
        ) from None
    if broken:
        raise InvalidInput(
            f"{folder / broken[0]} is damaged (its checksum differs); delete {folder} and it will be made "
            f"again."
        )
    return TokenSet(folder, facts)


def _identity(config: RunConfig, spec: tokenizers.Spec) -> dict[str, Any]:
    """Everything that the token files depend on."""
    limit = config.corpus.tokens or (config.unique_tokens if config.corpus.streamed else None)
    return {
        "version": VERSION,
        "corpus": corpora.fingerprint(config.corpus, cache_folder(config.cache)),
        "tokenizer": spec.fingerprint,
        "document_order": "shuffled by content" if config.corpus.shuffled else "as in the corpus",
        "held_out": "lowest content hashes" if not config.corpus.streamed else "first documents",
        "validation_documents": config.validation_documents,
        "development_documents": config.development_documents,
        "training_tokens_limit": limit,
    }


def _make(config: RunConfig, spec: tokenizers.Spec, folder: Path, facts: dict[str, Any]) -> None:
    for left in folder.parent.glob(f".{folder.name}.*"):  # by processes that were killed: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    draft.mkdir()
    try:
        held_out, training, overlap = _divide(
            config.corpus, config.validation_documents, config.development_documents, draft / "documents"
        )
        tokenizer = spec.tokenizer(islice(training(), _BPE_DOCUMENTS))
        tokenizer.save(draft / "tokenizer")
        dtype = "uint16" if tokenizer.size <= 2**16 else "uint32"
        counts = {
            name: _write(draft / f"{name}.bin", texts, tokenizer, dtype) for name, texts in held_out.items()
        }
        counts["train"] = _write(
            draft / "train.bin", training(), tokenizer, dtype, facts["identity"]["training_tokens_limit"]
        )
        if not counts["train"]["documents"]:
            raise InvalidInput(
                f"corpus {config.corpus.describe()} has no training documents left that do not repeat "
                f"held-out ones."
            )
        shutil.rmtree(draft / "documents", ignore_errors=True)
        for name in counts:
            sync_file(draft / f"{name}.bin")
        hashes = {f"{name}.bin": checksum(draft / f"{name}.bin") for name in counts}
        dropped = {"documents": overlap.dropped_documents, "bytes": overlap.dropped_bytes}
        facts |= {
            "corpus": config.corpus.describe(),
            "tokenizer": spec.text,
            "vocabulary": tokenizer.size,
            "eos": tokenizer.eos,
        }
        facts |= {
            "dtype": dtype,
            "streams": counts,
            "dropped_as_repeating_held_out_text": dropped,
            "blake2b": hashes,
        }
        write_json(draft / "tokens.json", facts)
        try:
            os.rename(draft, folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was first, with the same content
                raise
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _divide(
    corpus: Corpus, validation: int, development: int, room: Path
) -> tuple[dict[str, list[str]], Any, Overlap]:
    """Held-out documents by name, a function that yields the training documents, and the check that keeps
    them apart.

    The corpus is not held in memory: held-out documents are found in one pass, and documents to be shuffled
    are sorted in `room`.
    """
    candidates = Candidates(validation, development, first=corpus.streamed)

    def offered() -> Iterator[tuple[bytes, str]]:
        for text in corpora.documents(corpus):
            key = content_key(text)
            candidates.offer(key, text)
            yield key, text

    shuffled = ShuffledDocuments(room, offered()) if corpus.shuffled else None
    if shuffled is None:
        for _ in offered():
            if corpus.streamed and candidates.enough:
                break
    if not candidates.met:
        raise InvalidInput(f"corpus {corpus.describe()} is empty: it has no document with any text.")
    if not candidates.enough:
        advice = "fewer held-out documents, or a separator that splits files into documents, would do"
        raise InvalidInput(
            f"corpus {corpus.describe()} has {len(candidates.kept):,} different documents, which "
            f"{validation + development:,} "
            f"held-out ones would use up; {advice}."
        )
    held_out = candidates.chosen()
    overlap = Overlap()
    for text in chain(*held_out.values()):
        overlap.hold_out(text)

    def training() -> Iterator[str]:
        overlap.begin()
        return (text for text in shuffled or corpora.documents(corpus) if not overlap.repeats(text))

    return held_out if development else {"validation": held_out["validation"]}, training, overlap


def _write(
    path: Path, texts: Iterable[str], tokenizer: tokenizers.Tokenizer, dtype: str, limit: int | None = None
) -> dict[str, int]:
    """Write one stream; `limit` stops it after so many tokens and one more, the last one's target."""
    tokens, count, size = 1, 0, 0
    end = np.array([tokenizer.eos], dtype=dtype)
    source = iter(texts)
    with open(path, "wb") as stream:
        stream.write(end.tobytes())
        while batch := list(islice(source, _TOGETHER)):
            for text, ids in zip(batch, tokenizer.encode(batch), strict=True):
                stream.write(ids.astype(dtype).tobytes())
                stream.write(end.tobytes())
                tokens, count, size = tokens + len(ids) + 1, count + 1, size + _bytes(text)
                if limit is not None and tokens > limit:
                    tokens = limit + 1
                    stream.truncate(tokens * end.itemsize)
                    return {"tokens": tokens, "documents": count, "bytes": size}
    return {"tokens": tokens, "documents": count, "bytes": size}


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
