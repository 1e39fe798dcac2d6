"""What a sweep itself costs for every run: the real driver with an engine of 64 slots that trains nothing,
and a dry run of thousands of cells.

The engine writes a result where a run would have and says that the run is done, so what is left is the
driver's own work: choosing, starting, looking for the result, counting, and telling. The medians are of
whole sweeps, each in a new directory.

    python benchmarks/driver_speed.py [--runs 2000] [--cells 5000] [--rounds 3] [--processor]

With --processor it is processor time that counts, and the least instead of the median: for a busy machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path

from click.testing import CliRunner

from calibration.commands.sweep import sweep as command
from calibration.studies.directory import begin, prepare
from calibration.studies.engine import Outcome, Task
from calibration.studies.study import load
from calibration.studies.sweep import sweep

STUDY = """
[recipe]
preset = "micro"
corpus = "text.jsonl"
tokenizer = "bytes"
sequence_length = 32
validation_documents = 2
development_documents = 0
[[grid]]
params = ["12k", "16k", "20k", "24k"]
unique_tokens = ["2k"]
epochs = [1, 2, 4, 8, 16]
weight_decays = [0.1]
seeds = [SEEDS]
"""

Clock = Callable[[], float]


class Idle:
    """Slots in which every run is done at once."""

    def __init__(self, clock: Clock, slots: int = 64):
        self.slots, self.ended, self.seconds, self.clock = slots, list[Outcome](), 0.0, clock

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *error: object) -> None: ...

    def room(self) -> int:
        return self.slots - len(self.ended)

    def start(self, task: Task, avoided_nodes: Collection[str] = ()) -> None:
        began = self.clock()
        folder = Path(task.folder)
        folder.mkdir()
        (folder / "result.json").touch()
        self.ended.append(Outcome(task.name, "done"))
        self.seconds += self.clock() - began

    def wait(self, seconds: float) -> Collection[Outcome]:
        ended, self.ended = self.ended, []
        return ended

    def abandon(self, name: str) -> None: ...

    def avoid(self, node: str) -> bool:
        return False

    def describe(self) -> str:
        return f"{self.slots} slots that train nothing"


def write(folder: Path, cells: int) -> Path:
    """The file of a study with so many runs, and its corpus."""
    texts = (f"document {number} of a corpus of nothing much" for number in range(400))
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "many.toml").write_text(STUDY.replace("SEEDS", ", ".join(map(str, range(cells // 20)))))
    return folder / "many.toml"


def one_sweep(runs: int, clock: Clock) -> float:
    """Milliseconds that the driver takes for each of so many runs."""
    with tempfile.TemporaryDirectory() as place:
        study = load(write(Path(place), runs))
        folder = begin(study, Path(place) / "out")
        prepare(study.runs, folder)  # the tokens, which are not the driver's work
        began = clock()
        idle = Idle(clock)
        progress = sweep(study.runs, folder, idle)
        took = clock() - began - idle.seconds  # what the disk takes to make folders is not its work
        assert len(progress.done) == len(study.runs) == runs, progress.failed
    return 1e3 * took / runs


def one_dry_run(cells: int, clock: Clock) -> float:
    """Seconds that `planner calibrate sweep --dry-run` takes for so many cells, within the process."""
    with tempfile.TemporaryDirectory() as place:
        path = write(Path(place), cells)
        began = clock()
        done = CliRunner().invoke(command, [str(path), "-o", f"{place}/out", "--dry-run"])
        took = clock() - began
        assert done.exit_code == 0, done.output
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--cells", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor", action="store_true")
    asked = parser.parse_args()
    clock = time.process_time if asked.processor else time.perf_counter
    typical: Callable[[list[float]], float] = min if asked.processor else statistics.median
    each = [one_sweep(asked.runs, clock) for _ in range(asked.rounds)]
    dry = [one_dry_run(asked.cells, clock) for _ in range(asked.rounds)]
    print(f"{asked.runs} runs in 64 slots: {typical(each):.2f} ms of the driver's time each")
    print(f"dry run of {asked.cells} cells: {typical(dry):.2f} s")


if __name__ == "__main__":
    main()
