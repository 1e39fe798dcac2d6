"""Kill `planner calibrate run` at random instants, and compare what it decided and trained with a loop that
was left alone.

    python -m benchmarks.loop_kills                 five kills

The instants are spread over the time that the whole loop took: while text is tokenised, runs are chosen or
trained, laws are fitted, or the report is written. All processes of the loop are killed at once, or only its
driver, which its workers must notice. Compared are question, waves, calibration, and of every run the losses
and the checksum of the weights.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.kills import children
from trainer import read_result

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ("tokenizer=bytes", "sequence_length=32", "compile=off", "checkpoint_every=5", "log_every=1")
LEFT_TO_WORKERS = 5.0  # seconds to notice that the driver is gone


def start(text: Path, out: Path) -> subprocess.Popen[bytes]:
    asked = ["--budget", "3e9", "--runs", "5", "--ud", "30k", "--flops", "4e9", "--workers", "1"]
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "planner",
        "calibrate",
        "run",
        str(text),
        "-o",
        str(out),
        *asked,
        *settings,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with open(out.with_suffix(".log"), "ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def finish(text: Path, out: Path) -> float:
    """Let a loop go to its end; the seconds it took."""
    began = time.monotonic()
    if start(text, out).wait(timeout=3600):
        raise SystemExit(f"{out} did not finish:\n{out.with_suffix('.log').read_text()[-3000:]}")
    return time.monotonic() - began


def kill(process: subprocess.Popen[bytes], everybody: bool) -> None:
    for pid in (*(children(process.pid) if everybody else ()), process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=120)
    if not everybody:
        time.sleep(LEFT_TO_WORKERS)


def ended(out: Path) -> dict[str, object]:
    """What a loop decided, and how every run ended."""
    files = [
        "question.json",
        "calibration.json",
        *(f"waves/{path.name}" for path in (out / "waves").iterdir()),
    ]
    found: dict[str, object] = {name: (out / name).read_bytes() for name in files}
    for folder in (out / "runs").iterdir():
        result = read_result(folder)
        found[folder.name] = result and (result.loss, result.train_loss, result.weights_checksum)
    return found


def reached(out: Path) -> str:
    waves = len([*out.glob("waves/*.csv")])
    return f"{waves} waves decided, {len([*out.glob('runs/*/result.json')])} runs done"


def main(kills: int, seed: int) -> None:
    generator, done = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 6))) for _ in range(300)]
        paragraphs = (" ".join(generator.choices(words[: 10 + n], k=60)) for n in range(290))
        (folder / "text.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
        # of one name, which their calibrations have
        whole, out = folder / "whole" / "loop", folder / "killed" / "loop"
        for each in (whole, out):
            each.parent.mkdir()
        seconds = finish(folder / "text.txt", whole)
        while done < kills:
            process = start(folder / "text.txt", out)
            time.sleep(generator.uniform(0, seconds / 2))
            if process.poll() is None:
                everybody = bool(done % 2)
                kill(process, everybody)
                done += 1
                print(f"kill {done} ({'all' if everybody else 'driver'}): {reached(out)}", flush=True)
            elif ended(out) == ended(whole):  # it came to its end: another one begins
                print(f"the same bits after {done} kills", flush=True)
                out = folder / f"killed-{done}" / "loop"
                out.parent.mkdir()
        finish(folder / "text.txt", out)
        if ended(out) != ended(whole):
            raise SystemExit(f"other bits after {done} kills")
    print(f"{done} kills: the same files, the same bits")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.kills, given.seed)
