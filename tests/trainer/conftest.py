"""A small corpus with real structure, a SentencePiece model,
a tiny run, and a way to start it in a process of its own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import TINY
from tests.places import ROOT

pytest.importorskip("torch", reason="the trainer needs torch")


def sentence(generator: random.Random) -> str:
    words = [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "omikron",
        "pi",
        "rho",
        "sigma",
        "tau",
        "ypsilon",
    ]
    start = generator.randrange(len(words))
    return (
        " ".join(words[(start + i * i) % len(words)] for i in range(8)) + f" {generator.randrange(1000)}.\n"
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty text files of about 700 bytes each."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(1)
    for number in range(80):
        (folder / f"{number:03d}.txt").write_text(
            "".join(sentence(generator) for _ in range(14)), encoding="utf-8"
        )
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model like that of Llama-2: BPE with byte fallback."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("pieces")
    generator = random.Random(4)
    (folder / "text").write_text("".join(sentence(generator) for _ in range(500)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return folder / "tokenizer.model"


@pytest.fixture
def settings(corpus: Path, cache: Path) -> dict[str, Any]:
    """Keywords of a run that takes a second: three epochs of 20 steps."""
    return TINY | {
        "corpus": str(corpus),
        "tokenizer": "bytes",
        "unique_tokens": 32 * 80,
        "epochs": 3,
        "learning_rate": 1e-2,
        "compile": "off",
        "cache": str(cache),
    }


def start(
    code: str, *arguments: str, launcher: tuple[str, ...] = (sys.executable,)
) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python in its own process, single-threaded."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = (
        [*launcher, "-c", code, *arguments]
        if launcher == (sys.executable,)
        else [*launcher, code, *arguments]
    )
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def losses(folder: Path) -> list[tuple[int, float]]:
    """(step, loss) of every line of metrics."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]
