"""Log-probabilities of many requests, with as little arithmetic as possible and no approximation.

The requests of a task form a tree: all documents begin with the same examples, the answers of one document
with the same question.

    examples ── question 1 ─┬─ answer a           each box is computed once, for all that follow it
             │              └─ answer b
             └─ question 2 ─── answer c

- Documents are sorted by length and batched, so that padding is little. What a whole batch has in common is
  computed once for it, what the answers of a document have in common once for the document.
- Equal inputs are computed once: one-token answers such as " Yes" and " No" need a single pass.
- The head, two thirds of the arithmetic of a small model, is applied only to states of scored tokens.

Shared parts end before the first scored position, so everything that is scored lies in the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from trainer.downstream.models import LENGTH, LanguageModel, Past
from trainer.downstream.requests import Request, common_prefix

BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}  # tokens computed together: on a CPU, what stays in its caches
PAST_BYTES = 2**30  # of keys and values held at a time
SHARED_BY_ALL = 16  # a beginning shorter than this is not worth a pass of its own
# rows shorter than this part of the longest make a chunk of their own, unless they are few
FEW_ROWS, RAGGED = 16, 0.6


@dataclass
class _Leaf:
    """One input, and the targets that are wanted of it: (answer, tokens), scored at its last positions."""

    inputs: tuple[int, ...]
    wanted: list[tuple[int, tuple[int, ...]]]

    @property
    def scored(self) -> int:
        return max(len(targets) for _, targets in self.wanted)


@dataclass
class _Tree:
    """A document: its different inputs, and how many tokens they share before anything is scored."""

    number: int
    leaves: list[_Leaf]
    shared: int = 0

    @property
    def length(self) -> int:
        return max(len(leaf.inputs) for leaf in self.leaves)

    @property
    def unscored(self) -> int:
        """Leading tokens of every input after which nothing is scored."""
        return min(len(leaf.inputs) - leaf.scored for leaf in self.leaves)


@dataclass
class _Row:
    """A leaf on its way through the model: what is still to be computed, and after which row of the past."""

    tree: _Tree
    leaf: _Leaf
    rest: tuple[int, ...]
    parent: int


def score(
    model: LanguageModel,
    documents: Sequence[Sequence[Request]],
    done: Callable[[int], None] = lambda count: None,
    batch_tokens: int | None = None,
) -> list[list[float]]:
    """Summed log-probability in nats of every request of every document; `done` hears of each batch."""
    batch_tokens = batch_tokens or BATCH_TOKENS[model.device.type]
    sums = [[0.0] * len(requests) for requests in documents]
    trees = [_tree(number, requests, model.shares) for number, requests in enumerate(documents)]
    trees.sort(key=lambda tree: tree.length, reverse=True)
    for batch in _batches(trees, min(batch_tokens, max(LENGTH, int(PAST_BYTES / model.past_bytes)))):
        past, rows = _shared_parts(model, batch)
        for chunk in _chunks(rows, batch_tokens, model.past_bytes, past):
            _score_leaves(model, chunk, past, sums)
        done(len(batch))
    return sums


def _tree(number: int, requests: Sequence[Request], shares: bool) -> _Tree:
    leaves: dict[tuple[int, ...], _Leaf] = {}
    for answer, request in enumerate(requests):
        for window in request.windows:
            leaves.setdefault(window.inputs, _Leaf(window.inputs, [])).wanted.append((answer, window.targets))
    tree = _Tree(number, list(leaves.values()))
    if shares and len(tree.leaves) > 1:
        tree.shared = min(common_prefix(*(leaf.inputs for leaf in tree.leaves)), tree.unscored)
    return tree


def _batches(trees: Sequence[_Tree], budget: int) -> list[list[_Tree]]:
    """Documents that are computed together: at most `budget` tokens, but at least one document."""
    batches: list[list[_Tree]] = []
    tokens = budget
    for tree in trees:
        cost = tree.shared + sum(len(leaf.inputs) - tree.shared for leaf in tree.leaves)
        if tokens + cost > budget:
            batches.append([])
            tokens = 0
        batches[-1].append(tree)
        tokens += cost
    return batches


def _shared_parts(model: LanguageModel, batch: Sequence[_Tree]) -> tuple[Past | None, list[_Row]]:
    """Compute what the batch and each document share; the past that is left, and rows that continue it."""
    past: Past | None = None
    common = _shared_by_all(batch) if model.shares else 0
    if common:
        _, past = model.extend(*_padded(model, [batch[0].leaves[0].inputs[:common]]), keep=True)
    starts, parents = [common] * len(batch), [0] * len(batch)
    if any(tree.shared > common for tree in batch):
        # a document with a single input takes part too, with all of it that is not scored
        starts = [tree.shared if len(tree.leaves) > 1 else tree.unscored for tree in batch]
        parts = [tree.leaves[0].inputs[common:start] for tree, start in zip(batch, starts, strict=True)]
        above = past.select(torch.tensor(parents, device=model.device)) if past else None
        _, past = model.extend(*_padded(model, parts), above, keep=True)
        parents = list(range(len(batch)))
    rows = [
        _Row(tree, leaf, leaf.inputs[start:], parent)
        for tree, start, parent in zip(batch, starts, parents, strict=True)
        for leaf in tree.leaves
    ]
    return past, rows


def _shared_by_all(batch: Sequence[_Tree]) -> int:
    """Leading tokens that all inputs of a batch share and none scores, where worth a pass of their own."""
    inputs = [leaf.inputs for tree in batch for leaf in tree.leaves]
    if len(inputs) < 2:
        return 0
    common = min(common_prefix(*inputs), min(tree.unscored for tree in batch))
    return common if common >= SHARED_BY_ALL else 0


def _chunks(rows: list[_Row], budget: int, past_bytes: float, past: Past | None) -> Iterator[list[_Row]]:
    """Rows of similar length that go through the model together."""
    rows = sorted(rows, key=lambda row: len(row.rest), reverse=True)
    behind = past.real.shape[1] if past else 0
    chunk: list[_Row] = []
    for row in rows:
        longest = len(chunk[0].rest) if chunk else len(row.rest)
        count = len(chunk) + 1
        full = count * longest > budget or count * (behind + longest) * past_bytes > PAST_BYTES
        ragged = len(chunk) >= FEW_ROWS and len(row.rest) < RAGGED * longest
        if chunk and (full or ragged):
            yield chunk
            chunk = []
        chunk.append(row)
    yield chunk


def _score_leaves(
    model: LanguageModel, rows: Sequence[_Row], past: Past | None, sums: list[list[float]]
) -> None:
    above = past.select(torch.tensor([row.parent for row in rows], device=model.device)) if past else None
    states, _ = model.extend(*_padded(model, [row.rest for row in rows]), above)
    kept = [states[i, len(row.rest) - row.leaf.scored : len(row.rest)] for i, row in enumerate(rows)]
    picks: list[tuple[int, int]] = []  # (state, target)
    owners: list[tuple[int, int]] = []  # (document, answer)
    after = 0
    for row in rows:
        after += row.leaf.scored
        for answer, targets in row.leaf.wanted:
            picks += zip(range(after - len(targets), after), targets, strict=True)
            owners += [(row.tree.number, answer)] * len(targets)
    values = model.log_probabilities(torch.cat(kept), picks)
    for (document, answer), value in zip(owners, values, strict=True):
        sums[document][answer] += value


def _padded(model: LanguageModel, sequences: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences as one tensor, padded on the right, and where it holds tokens."""
    width = max(map(len, sequences))
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    real = torch.zeros(len(sequences), width, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        ids[i, : len(sequence)] = torch.tensor(sequence, dtype=torch.long)
        real[i, : len(sequence)] = True
    return ids.to(model.device), real.to(model.device)
