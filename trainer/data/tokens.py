"""Text tokenised once into memory-mapped token files that every run on the same corpus shares.

A token set is a folder named by its fingerprint (corpus content, tokenizer, document order, held-out
documents):

    train.bin  validation.bin  development.bin     uint16 or uint32 tokens: EOS document EOS document EOS ...
    train-00001.bin ...                            where there are more than fit one file
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
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.inputs import InvalidInput
from trainer.config import RunConfig
from trainer.data import corpus as corpora
from trainer.data import tokenizers
from trainer.data.checksums import checksums
from trainer.data.joined import Joined, Tokens
from trainer.data.streams import POSITIONS, TOGETHER
from trainer.data.tokenize import Say, ShardWriter, linked
from trainer.errors import reason
from trainer.files import checksum, locked, quick_checksum, read_json, sync, write_json

VERSION = 1


@dataclass(frozen=True)
class TokenSet:
    """Memory-mapped streams and what is known about them."""

    folder: Path
    facts: dict[str, Any]

    @property
    def content(self) -> dict[str, str] | None:
        """Checksums of streams: a dataset may change under its name. None in sets of an earlier version."""
        return self.facts.get("blake2b")

    @property
    def fingerprint(self) -> str:
        return str(self.facts["fingerprint"])

    def stream(self, name: str) -> Tokens:
        """ "train", "validation" or "development"."""
        names = self.facts.get("train_files", ["train.bin"]) if name == "train" else [f"{name}.bin"]
        parts = [np.memmap(self.folder / file, dtype=self.facts["dtype"], mode="r") for file in names]
        return parts[0] if len(parts) == 1 else Joined(parts)

    def tokenizer(self) -> tokenizers.Tokenizer:
        return tokenizers.load(self.folder / "tokenizer")


def cache_folder(given: str | None) -> Path:
    return Path(os.path.expanduser(given or os.environ.get("DATABOUND_CACHE") or "~/.cache/databound"))


def prepare(config: RunConfig, spec: tokenizers.Spec, say: Say | None = None) -> TokenSet:
    """The token set of a run: made now, or found where another run made it; `say` hears how far it is."""
    corpora.check(config.corpus)
    cache = cache_folder(config.cache)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        identity = _identity(config, spec)
        name = _named(identity)
        folder = cache / name
        if not folder.is_dir():
            place = identity | {"training_tokens_limit": None, "positions": POSITIONS}
            work = cache / f".work-{_named(place)}"
            with locked(cache / f"{work.name}.lock"):
                if not folder.is_dir():
                    _make(config, spec, folder, work, {"fingerprint": name, "identity": identity}, say)
    except OSError as error:
        raise InvalidInput(f"token files cannot be written to {cache}: {reason(error)}.") from None
    return open_set(folder)


def fingerprint(config: RunConfig) -> str:
    """The name of a run's token set, without making it."""
    return _named(_identity(config, tokenizers.Spec(config.tokenizer, config.eos_token)))


def _named(identity: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=12).hexdigest()


def open_set(folder: Path) -> TokenSet:
    """A token set on disk, checked against its own checksums (see `trainer.data.checksums`)."""
    try:
        facts = read_json(folder / "tokens.json")
        if "blake2b" in facts:
            wanted = facts["blake2b"]
            sums = checksums([folder / name for name in wanted], folder.parent)
            found = dict(zip(wanted, sums, strict=True))
        else:  # made by an earlier version
            wanted = facts["checksums"]
            found = {name: quick_checksum(folder / name) for name in wanted}
        broken = [name for name, value in wanted.items() if found[name] != value]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"{folder} is not a complete token set ({type(error).__name__})"
        raise InvalidInput(f"{what}; delete it and it will be made again.") from None
    if broken:
        what = f"{folder / broken[0]} is damaged (its checksum differs)"
        raise InvalidInput(f"{what}; delete {folder} and it will be made again.")
    return TokenSet(folder, facts)


def _identity(config: RunConfig, spec: tokenizers.Spec) -> dict[str, Any]:
    """Everything that the token files depend on."""
    limit = config.corpus.tokens or (config.unique_tokens if config.corpus.streamed else None)
    order = f"interleaved, {TOGETHER} at a time" if config.corpus.interleaved else "as in the corpus"
    order = "shuffled by content" if config.corpus.shuffled else order
    return {
        "version": VERSION,
        "corpus": corpora.fingerprint(config.corpus, cache_folder(config.cache)),
        "tokenizer": spec.fingerprint,
        "document_order": order,
        "held_out": "lowest content hashes" if not config.corpus.streamed else "first documents",
        "validation_documents": config.validation_documents,
        "development_documents": config.development_documents,
        "training_tokens_limit": limit,
    }


def _make(
    config: RunConfig, spec: tokenizers.Spec, folder: Path, work: Path, facts: dict[str, Any], say: Say | None
) -> None:
    """Make a token set of shards; those that are complete are kept for the next time."""
    for left in folder.parent.glob(f".{folder.name}.*"):  # by processes that were killed: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    limit = facts["identity"]["training_tokens_limit"]
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        held_out = config.validation_documents, config.development_documents
        writer = ShardWriter(work, config.corpus, spec, held_out, say)
        draft.mkdir()
        facts |= {"corpus": config.corpus.describe(), "tokenizer": spec.text}
        facts |= {"vocabulary": writer.tokenizer.size, "eos": writer.tokenizer.eos}
        facts |= {"dtype": writer.dtype} | _assembled(writer, draft, limit)
        write_json(draft / "tokens.json", facts)
        try:
            os.rename(draft, folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was first, with the same content
                raise
        sync(folder.parent)
        writer.tidy()
        if limit is None:  # there is no more of it
            shutil.rmtree(work, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if not (work / "train-00000.json").exists():
            shutil.rmtree(work, ignore_errors=True)


def _assembled(writer: ShardWriter, draft: Path, limit: int | None) -> dict[str, Any]:
    """Put the streams of a set together, and say what is in them."""
    shutil.copytree(writer.folder / "tokenizer", draft / "tokenizer")
    counts = {name: writer.stream(name, draft) for name in writer.held_out}
    sums = {f"{name}.bin": checksum(draft / f"{name}.bin") for name in counts}
    left = math.inf if limit is None else limit + 1
    train, names = {"tokens": 0, "documents": 0, "bytes": 0}, []
    dropped = {"documents": 0, "bytes": 0}
    for number, shard in enumerate(writer.shards(limit)):
        take = int(min(left, shard.tokens))
        if take:
            names.append(f"train-{number:05d}.bin" if number else "train.bin")
            target = draft / names[-1]
            sums[target.name] = linked(writer.path(number), target, take, shard, writer.dtype)
            documents, size = writer.first(number, shard, take)
            for name, value in (("tokens", take), ("documents", documents), ("bytes", size)):
                train[name] += value
            dropped["documents"] += shard.dropped_documents
            dropped["bytes"] += shard.dropped_bytes
            left -= take
    counts["train"] = train
    if dropped["documents"]:
        told = f"{dropped['documents']:,} documents ({dropped['bytes'] / 1e6:,.1f} MB)"
        writer.say(f"left out {told} that repeat held-out text")
    return {
        "streams": counts,
        "train_files": names,
        "dropped_as_repeating_held_out_text": dropped,
        "blake2b": sums,
    }
