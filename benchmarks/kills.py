"""Kill a run at random instants, again and again, and compare its bits with those of a run that was left
alone.

    python benchmarks/kills.py                      20 kills, one process
    python benchmarks/kills.py --processes 2        under torchrun
    python benchmarks/kills.py --compile on
    python benchmarks/kills.py --kind muon          or validation, dropout, ema, mean, branches, or all

The instants fall anywhere. Every other one is at a random time since the start: while text is tokenised or
a model is compiled. The others are a moment after a random number of further steps, because a start may
take longer than all steps: while they are trained or a checkpoint is written. Under torchrun either
torchrun is killed, which its processes must notice, or one of the processes, which torchrun must notice, or
all of them. A run that comes to its end is compared, and the next one begins; one that hangs, or that
leaves a process behind, is an error.
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
from collections import Counter
from contextlib import suppress
from pathlib import Path

# What the runs of this script and of the trainer's tests have in common
TINY: dict[str, object] = {
    "shape": {"d_model": 16, "layers": 2, "heads": 2, "d_ff": 32},
    "sequence_length": 32,
    "batch_size": 4,
    "validation_documents": 5,
    "log_every": 1,
}
# What is trained besides, see docs/limited-data.md
WSD = {"schedule": "wsd", "warmup_steps": 5}
KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "validation": {"validate_every": 7},
    "dropout": {"dropout": 0.1},
    "ema": {"ema_decay": 0.9},
    "mean": {"average_last": 4, "average_every": 5},
    "muon": {"optimizer": "muon"},
    "branches": WSD | {"branches": [0.25, 0.5]},  # and each of them is trained from its checkpoint, too
}
TRAIN = """
import json, sys
from trainer import RunConfig, train
train(RunConfig(**json.loads(sys.argv[1])), sys.argv[2])
"""


def settings(folder: Path, name: str, compiled: str, kind: str = "plain") -> dict[str, object]:
    """A run of a few seconds that checkpoints all the time, on a corpus that takes a moment to tokenise."""
    corpus = folder / "corpus"
    if not corpus.exists():
        corpus.mkdir()
        generator = random.Random(1)
        for number in range(400):
            words = (f"w{generator.randrange(3000)}" for _ in range(300))
            (corpus / f"{number}.txt").write_text(" ".join(words))
    return TINY | {
        "corpus": str(corpus),
        "tokenizer": "bpe:300",
        "unique_tokens": 32 * 400,
        "epochs": 1,
        "checkpoint_every": 5,
        "compile": compiled,
        "cache": str(folder / f"cache-{name}"),
        **KINDS[kind],
    }


def start(run: dict[str, object], out: Path, processes: int) -> subprocess.Popen[bytes]:
    program = out.parent / "run.py"
    program.write_text(TRAIN)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(torchrun if processes > 1 else []), str(program), json.dumps(run), str(out)]
    root = str(Path(__file__).resolve().parents[1])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    with open(out.parent / "log", "ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def finish(run: dict[str, object], out: Path, processes: int) -> float:
    """Let a run go to its end; the seconds it took."""
    began = time.monotonic()
    if start(run, out, processes).wait(timeout=900):
        raise SystemExit(f"{out} did not finish:\n{(out.parent / 'log').read_text()[-3000:]}")
    return time.monotonic() - began


def wait_for_steps(process: subprocess.Popen[bytes], out: Path, more: int) -> None:
    """Wait until a run has trained so many steps since now, or has ended."""
    goal = steps(out) + more
    while process.poll() is None and steps(out) < goal:
        time.sleep(0.01)


def kill(process: subprocess.Popen[bytes], whom: str) -> None:
    """Kill the launcher, one of its processes (where it has any yet) or all, and see that nobody is left."""
    workers = children(process.pid)
    one = workers[-1:] or [process.pid]
    for pid in {"launcher": [process.pid], "one": one, "all": [process.pid, *workers]}[whom]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=120)
    deadline = time.monotonic() + 60
    while left := [pid for pid in workers if alive(pid)]:
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(left)} processes are left a minute after a kill of {whom}")
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main(kills: int, processes: int, compiled: str, seed: int, kind: str) -> None:
    generator, runs = random.Random(seed), 0
    whom = ["launcher", "one", "all"] if processes > 1 else ["launcher"]
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        seconds = finish(settings(folder, "whole", compiled, kind), folder / "whole", processes)
        while done.total() < kills:
            runs += 1
            name = f"killed-{runs}"
            run = settings(folder, name, compiled, kind)
            while done.total() < kills:
                process = start(run, folder / name, processes)
                if done.total() % 2:
                    wait_for_steps(process, folder / name, generator.randrange(1, 20))
                    time.sleep(generator.uniform(0, 0.1))
                else:
                    time.sleep(generator.uniform(0, seconds))
                if process.poll() is not None:  # it came to its end
                    break
                victim = generator.choice(whom)
                kill(process, victim)
                done[victim] += 1
                print(f"{victim} killed, at {reached(folder / name)}", flush=True)
            finish(run, folder / name, processes)
            compare(folder / "whole", folder / name, f"{name} has other bits after {done.total()} kills")
            if kind == "branches":
                branches(folder, name, processes, compiled)
    print(f"{kind}: {done.total()} kills of {runs} runs ({dict(done)}): the same bits", flush=True)


def compare(one: Path, other: Path, otherwise: str) -> None:
    results = [json.loads((each / "result.json").read_text()) for each in (one, other)]
    same = ("loss", "train_loss", "weights_checksum", "unaveraged_loss", "validations")
    if any(results[0][key] != results[1][key] for key in same):
        raise SystemExit(otherwise)


def branches(folder: Path, trunk: str, processes: int, compiled: str) -> None:
    """Train the branches of a trunk that was killed, and the same runs alone."""
    for epochs in (0.25, 0.5):
        alone, branch = folder / f"alone-{epochs}", folder / f"{trunk}-{epochs}"
        run = settings(folder, "whole", compiled) | WSD | {"epochs": epochs}
        if not alone.exists():
            finish(run, alone, processes)
        finish(run | {"trunk": str(folder / trunk)}, branch, processes)
        compare(alone, branch, f"the branch of {epochs:g} epochs of {trunk} has other bits")


def reached(out: Path) -> str:
    """How far a run had come."""
    if not (out / "config.json").exists():
        return "its tokens, or before"
    drafts = " writing a checkpoint" if [*out.glob("checkpoints/.*.draft")] else ""
    return f"step {steps(out)}{drafts}"


def steps(out: Path) -> int:
    written = out / "metrics.jsonl"
    return len(written.read_text().splitlines()) if written.exists() else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--compile", choices=("on", "off"), default="off")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="plain")
    given = parser.parse_args()
    for kind in KINDS if given.kind == "all" else [given.kind]:
        main(given.kills, given.processes, given.compile, given.seed, kind)
