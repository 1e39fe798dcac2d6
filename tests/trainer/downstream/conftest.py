"""A small trained run that sees 512 tokens, its exported
folder, the real task data, and suites made up on the spot.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from planner.inputs import InvalidInput
from tests.places import ROOT
from trainer import RunConfig, train
from trainer.downstream.tasks import INSTALL, load_suite
from trainer.run.export import export

Row = tuple[int, int, Any, str, str]  # doc_id, idx, label, context, continuation


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A model of two layers that has learnt something about
    this project's own text, so that context matters to it.
    """
    folder = tmp_path_factory.mktemp("evaluated")
    config = {
        "shape": {"d_model": 32, "layers": 2, "heads": 4, "d_ff": 64},
        "corpus": [str(ROOT / "planner/*.py"), str(ROOT / "trainer/*/*.py"), str(ROOT / "README.md")],
        "tokenizer": "bpe:600",
        "sequence_length": 512,
        "unique_tokens": 512 * 60,
        "epochs": 2,
        "batch_size": 4,
        "learning_rate": 2e-2,
        "validation_documents": 3,
        "compile": "off",
        "cache": str(cache),
    }
    train(RunConfig(**config), folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def exported(run: Path) -> Path:
    return export(run, run.parent / "hf")


@pytest.fixture(scope="session")
def olmes19() -> list[Any]:
    """The tasks of the suite, where their data is installed."""
    try:
        return load_suite("olmes19")
    except InvalidInput:
        pytest.skip(f"the task data is not installed: {INSTALL}")


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., Path]:
    """Writes a suite folder: suite({"mine/rc_5shot": rows, ...})."""

    def write(tasks: dict[str, Sequence[Row]]) -> Path:
        for name, rows in tasks.items():
            folder = tmp_path / "suite" / name
            folder.mkdir(parents=True, exist_ok=True)
            with gzip.open(folder / "requests.jsonl.gz", "wt", encoding="utf-8") as stream:
                for number, index, label, context, continuation in rows:
                    request = {"context": context, "continuation": continuation}
                    row = {
                        "doc_id": number,
                        "idx": index,
                        "label": label,
                        "request": request,
                        "request_type": "loglikelihood",
                    }
                    stream.write(json.dumps(row) + "\n")
        return tmp_path / "suite"

    return write


EXAMPLES = "Question: What is a plan?\nAnswer: A model size and a number of epochs.\n\n"

QUESTIONS: list[Row] = [
    (0, 0, 1, EXAMPLES + "Question: What does weight decay do?\nAnswer:", " nothing"),
    (0, 1, 1, EXAMPLES + "Question: What does weight decay do?\nAnswer:", " it keeps weights small"),
    (
        0,
        2,
        1,
        EXAMPLES + "Question: What does weight decay do?\nAnswer:",
        " it keeps weights large — naïvely 🙂",
    ),
    (1, 0, 0, EXAMPLES + "Question: Is data the limit?\nAnswer:", " Yes"),
    (1, 1, 0, EXAMPLES + "Question: Is data the limit?\nAnswer:", " No"),
    (2, 0, 1, EXAMPLES + "The law beat the model because the law", " was right."),
    (2, 1, 1, EXAMPLES + "The law beat the model because the model", " was right."),
    (1_000_000, 0, 1, "Answer:", " nothing"),
    (1_000_000, 1, 1, "Answer:", " it keeps weights small"),
]

ANSWERS: list[Row] = [
    (0, 0, ["512"], "Question: How long is a sequence?\nAnswer:", " 512"),
    (1, 0, [["Zürich"]], "Question: Wo?\nAnswer:", " ('Zürich',)"),
    (2, 0, "a long one", "import torch\n" * 400 + "Question: Which library?\nAnswer:", " torch, of course"),
]
