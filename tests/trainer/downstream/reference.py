"""Bits per byte and accuracy the slow way: plain transformers, one
request at a time, no batching, no sharing, no code of ours.
"""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import torch


def load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def rows(path: Path, documents: int) -> dict[int, list[dict[str, Any]]]:
    """The requests of the first documents, by document."""
    found: dict[int, list[dict[str, Any]]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            if row["doc_id"] < 1000000:
                if row["doc_id"] not in found and len(found) == documents:
                    break
                found.setdefault(row["doc_id"], []).append(row)
    return found


def log_probability(model: Any, tokenizer: Any, context: str, continuation: str, length: int) -> float:
    """Of a continuation after a context, of which the model sees the last `length` tokens."""
    whole = tokenizer(context + continuation)["input_ids"]
    answer = len(whole) - len(tokenizer(context)["input_ids"])
    kept = torch.tensor([whole[-(length + 1) :]])
    with torch.no_grad():
        logits = model(kept[:, :-1]).logits[0].double()
    every = logits.log_softmax(-1).gather(1, kept[0, 1:, None])[:, 0]
    return every[-answer:].sum().item()


def bpb(model: Any, tokenizer: Any, row: dict[str, Any], length: int) -> float:
    request = row["request"]
    nats = -log_probability(model, tokenizer, request["context"], request["continuation"], length)
    return nats / len(request["continuation"].encode("utf-8")) / math.log(2)


def gold(found: list[dict[str, Any]], variant: str) -> dict[str, Any]:
    """The right answer: the one that the label names in rc variants, the only one in bpb variants."""
    if variant.startswith("rc"):
        return next(row for row in found if row["idx"] == row["label"])
    assert len(found) == 1
    return found[0]


def task_bpb(
    model: Any, tokenizer: Any, path: Path, variant: str, documents: int, length: int = 512
) -> float:
    values = [bpb(model, tokenizer, gold(found, variant), length) for found in rows(path, documents).values()]
    return sum(values) / len(values)


def task_accuracies(
    model: Any, tokenizer: Any, path: Path, documents: int, length: int = 512
) -> tuple[float, float]:
    """By log-probability per character, and by log-probability."""
    hits = [0, 0]
    found = rows(path, documents)
    for answers in found.values():
        nats = [
            log_probability(model, tokenizer, r["request"]["context"], r["request"]["continuation"], length)
            for r in answers
        ]
        normed = [value / len(r["request"]["continuation"]) for value, r in zip(nats, answers, strict=True)]
        for place, values in enumerate((normed, nats)):
            best = max(range(len(values)), key=lambda i: values[i])
            hits[place] += answers[best]["idx"] == answers[best]["label"]
    return hits[0] / len(found), hits[1] / len(found)
