"""How many evaluation documents share long stretches of tokens with the text that a model was trained on.

A document is what remains of its prompt without the beginning that all documents of the task share (examples,
instructions), followed by the right answer. It overlaps where `ngram` tokens in a row also occur in a row in
the training stream. Documents with fewer tokens cannot be checked this way and are counted apart.

Every window of n tokens t is known by a 64-bit hash, computed for all windows at once from running sums. With
r(t) a random odd number per token and B odd, all modulo 2^64,

    S(i) = sum over j < i of r(t_j) B^j,        hash of the window at i = (S(i + n) - S(i)) B^-i,

which depends on the tokens and not on where they stand. The stream is read in blocks, so it may be larger
than memory. A chance collision makes a false alarm with a probability of about (windows of the stream) *
(windows of the suite) / 2^64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.inputs import InvalidInput, whole
from trainer.data import tokens as token_files
from trainer.data.joined import Tokens
from trainer.downstream.requests import TOGETHER, common_prefix
from trainer.downstream.tasks import Document, Task
from trainer.run.result import read_result

NGRAM = 20
BLOCK = 2**22  # windows per block of the stream
_BASE = np.uint64(0x9E3779B97F4A7C15)
_FILTER_BITS = 26


@dataclass(frozen=True)
class TaskOverlap:
    task: str
    documents: int
    overlapping: int
    too_short: int
    examples: list[int]  # numbers of the first overlapping documents


def check_overlap(
    stream: str | Path,
    tasks: Sequence[Task],
    ngram: int | str = NGRAM,
    limit: int | str | None = None,
    done: Callable[[int, int], None] = lambda at, of: None,
) -> list[TaskOverlap]:
    """Overlap of every task with a training stream: a token set, one of its files, or a run trained on it."""
    ngram = whole(ngram, "ngram")
    first = whole(limit, "limit") if limit is not None else None
    trained, encode, vocabulary = _stream(Path(stream))
    if len(trained) < ngram:
        raise InvalidInput(f"{stream} has {len(trained)} tokens, fewer than the {ngram} that must match.")
    halves = np.random.default_rng(0).integers(0, 2**63, size=vocabulary, dtype=np.uint64)
    random = halves * np.uint64(2) + np.uint64(1)
    found: list[tuple[Task, list[Document], list[np.ndarray]]] = []
    for task in tasks:
        documents = task.documents(first)
        texts = _own_texts(documents)
        blocks = (encode(texts[start : start + TOGETHER]) for start in range(0, len(texts), TOGETHER))
        windows = [window_hashes(ids.astype(np.int64), random, ngram) for block in blocks for ids in block]
        found.append((task, documents, windows))
    every = [np.empty(0, dtype=np.uint64), *(hashes for _, _, windows in found for hashes in windows)]
    shared = _in_stream(np.unique(np.concatenate(every)), trained, random, ngram, done)
    return [_count(task, documents, windows, shared) for task, documents, windows in found]


def window_hashes(ids: np.ndarray, random: np.ndarray, ngram: int) -> np.ndarray:
    """The hash of every window of `ngram` tokens."""
    if len(ids) < ngram:
        return np.empty(0, dtype=np.uint64)
    powers = _powers(_BASE, len(ids))
    sums = np.zeros(len(ids) + 1, dtype=np.uint64)
    np.cumsum(random[ids] * powers, out=sums[1:])
    inverse = np.uint64(pow(int(_BASE), -1, 2**64))
    windows: np.ndarray = (sums[ngram:] - sums[:-ngram]) * _powers(inverse, len(ids) - ngram + 1)
    return windows


def _powers(base: np.uint64, count: int) -> np.ndarray:
    """1, base, base^2, ... modulo 2^64."""
    factors = np.full(count, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


def _in_stream(
    wanted: np.ndarray, ids: Tokens, random: np.ndarray, ngram: int, done: Callable[[int, int], None]
) -> np.ndarray:
    """Those of the wanted hashes that occur in a stream, almost all of which a bit table passes over."""
    shift = np.uint64(64 - _FILTER_BITS)
    table = np.zeros(2**_FILTER_BITS, dtype=np.bool_)
    table[wanted >> shift] = True
    seen: list[np.ndarray] = []
    windows = len(ids) - ngram + 1
    for start in range(0, windows, BLOCK):
        piece = np.asarray(ids[start : start + BLOCK + ngram - 1], dtype=np.int64)
        hashes = window_hashes(piece, random, ngram)
        hashes = hashes[table[hashes >> shift]]
        seen.append(np.intersect1d(hashes, wanted))
        done(min(start + BLOCK, windows), windows)
    return np.unique(np.concatenate(seen))


def _count(
    task: Task, documents: Sequence[Document], windows: Sequence[np.ndarray], shared: np.ndarray
) -> TaskOverlap:
    hits = [d.number for d, hashes in zip(documents, windows, strict=True) if np.isin(hashes, shared).any()]
    short = sum(not len(hashes) for hashes in windows)
    return TaskOverlap(task.name, len(documents), len(hits), short, hits[:10])


def _own_texts(documents: Sequence[Document]) -> list[str]:
    """What each document does not share with all others, and its right answer."""
    golds = [document.answers[document.gold] for document in documents]
    contexts = [gold.context for gold in golds]
    shared = common_prefix(*contexts) if len(golds) > 1 else 0
    return [gold.context[shared:] + gold.continuation for gold in golds]


def _stream(path: Path) -> tuple[Tokens, Callable[[list[str]], list[np.ndarray]], int]:
    """Tokens, the tokenizer that made them, and how many different ones there can be."""
    name = "train"
    folder = path
    if path.is_file() and path.suffix == ".bin":
        name, folder = path.stem, path.parent
    elif (path / "result.json").is_file():
        result = read_result(path)
        assert result is not None
        folder = token_files.cache_folder(result.config.get("cache")) / result.data["fingerprint"]
        if not folder.is_dir():
            raise InvalidInput(f"the token files that {path} was trained on are no longer in {folder}.")
    if not (folder / "tokens.json").is_file():
        kinds = "a folder with tokens.json, a .bin file in one, or a finished run"
        raise InvalidInput(f"{path} is no training stream: {kinds} would do.")
    tokens = token_files.open_set(folder)
    if name not in tokens.facts["streams"]:
        names = ", ".join(f"{stream}.bin" for stream in tokens.facts["streams"])
        raise InvalidInput(f"{path} is not one of the streams of {folder}: {names}.")
    return tokens.stream(name), lambda texts: tokens.tokenizer().encode(texts), tokens.facts["vocabulary"]
