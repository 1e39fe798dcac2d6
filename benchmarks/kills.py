"""Kill a run at random instants, again and again, and compare its bits with those of a run that was left
alone.

    python benchmarks/kills.py                      20 kills, one process
    python benchmarks/kills.py --processes 2        under torchrun
    python benchmarks/kills.py --compile on

The instants fall anywhere: while text is tokenised, a model is compiled, steps are trained, a checkpoint is
written. A run that comes to its end is compared, and the next one begins; one that hangs is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = """
import json, sys
from trainer import RunConfig, train
train(RunConfig(**json.loads(sys.argv[1])), sys.argv[2])
"""


def settings(folder: Path, name: str, compiled: str) -> dict[str, object]:
    """A run of a few seconds that checkpoints all the time, on a corpus that takes a moment to tokenise."""
    corpus = folder / "corpus"
    if not corpus.exists():
        corpus.mkdir()
        generator = random.Random(1)
        for number in range(400):
            words = (f"w{generator.randrange(3000)}" for _ in range(300))
            (corpus / f"{number}.txt").write_text(" ".join(words))
    return {
        "shape": {"d_model": 16, "layers": 2, "heads": 2, "d_ff": 32},
        "corpus": str(corpus),
        "tokenizer": "bpe:300",
        "sequence_length": 32,
        "unique_tokens": 32 * 400,
        "epochs": 3,
        "batch_size": 4,
        "validation_documents": 5,
        "checkpoint_every": 5,
        "log_every": 1,
        "compile": compiled,
        "cache": str(folder / f"cache-{name}"),
    }


def start(run: dict[str, object], out: Path, processes: int) -> subprocess.Popen[bytes]:
    program = out.parent / "run.py"
    program.write_text(TRAIN)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(torchrun if processes > 1 else []), str(program), json.dumps(run), str(out)]
    root = str(Path(__file__).resolve().parents[1])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def finish(run: dict[str, object], out: Path, processes: int) -> float:
    """Let a run go to its end; the seconds it took."""
    began = time.monotonic()
    if start(run, out, processes).wait(timeout=500):
        raise SystemExit(f"{out} did not finish")
    return time.monotonic() - began


def main(kills: int, processes: int, compiled: str, seed: int) -> None:
    generator, done, runs = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        seconds = finish(settings(folder, "whole", compiled), folder / "whole", processes)
        while done < kills:
            runs += 1
            name = f"killed-{runs}"
            run = settings(folder, name, compiled)
            while done < kills:
                process = start(run, folder / name, processes)
                time.sleep(generator.uniform(0, seconds))
                if process.poll() is not None:  # it came to its end
                    break
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(timeout=60)
                done += 1
            finish(run, folder / name, processes)
            results = [json.loads((folder / each / "result.json").read_text()) for each in ("whole", name)]
            if any(results[0][key] != results[1][key] for key in ("loss", "train_loss", "weights_checksum")):
                raise SystemExit(f"{name} has other bits after {done} kills")
    print(f"{done} kills of {runs} runs: the same bits")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--compile", choices=("on", "off"), default="off")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.kills, given.processes, given.compile, given.seed)
