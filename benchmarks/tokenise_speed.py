"""MB/s of tokenising a corpus into token files, next to the `tokenizers` library alone on the same text, all
cores.

    python benchmarks/tokenise_speed.py --megabytes 40

The library only encodes batches in memory. Ours also reads the files, chooses and checks held-out documents,
sorts by content, hashes and writes. They take turns, and the ratio of the best of each is printed; above 1,
ours is faster. So is that of processor time, which says on a busy machine what the clock does not.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from trainer.config import RunConfig
from trainer.data import corpus as corpora
from trainer.data import tokenizers, tokens


def texts(megabytes: float) -> list[str]:
    """Documents of about 4 kB from the standard library of this Python, in a random order, each of them
    different.
    """
    whole = list(corpora.documents(RunConfig(preset="micro", params="100k", unique_tokens="128k").corpus))
    generator, found, size = random.Random(0), [], 0
    while size < megabytes * 1e6:
        text = generator.choice(whole)
        start = generator.randrange(max(1, len(text) - 4000))
        found.append(f"{len(found)} {text[start : start + 4000]}")
        size += len(found[-1])
    return found


def main(megabytes: float, rounds: int) -> None:
    documents = texts(megabytes)
    size = sum(len(text.encode()) for text in documents) / 1e6
    library = tokenizers.train_bpe(documents[:2000], 4096)
    ours, theirs = [], []
    spent: dict[str, list[float]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        library.save(folder / "tokenizer")
        rows = (json.dumps({"text": text}) + "\n" for text in documents)
        (folder / "all.jsonl").write_text("".join(rows), encoding="utf-8")
        for number in range(rounds):
            began, cpu = time.perf_counter(), time.process_time()
            library.inner.encode_batch_fast(documents, add_special_tokens=False)
            theirs.append(size / (time.perf_counter() - began))
            spent["theirs"].append(time.process_time() - cpu)
            config = RunConfig(
                params="100k",
                corpus={"paths": str(folder / "all.jsonl"), "order": "as-is"},
                tokenizer=str(folder / "tokenizer" / "tokenizer.json"),
                unique_tokens="128k",
                validation_documents=20,
                cache=str(folder / f"cache-{number}"),
            )
            spec = tokenizers.Spec(config.tokenizer)
            began, cpu = time.perf_counter(), time.process_time()
            tokens.prepare(config, spec)
            ours.append(size / (time.perf_counter() - began))
            spent["ours"].append(time.process_time() - cpu)
            print(f"round {number + 1}: ours {ours[-1]:.2f} MB/s, tokenizers alone {theirs[-1]:.2f} MB/s")
    print(f"best of each: {max(ours):.2f} and {max(theirs):.2f} MB/s, ratio {max(ours) / max(theirs):.2f}")
    print(f"processor time, ratio {min(spent['theirs']) / min(spent['ours']):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    main(given.megabytes, given.rounds)
