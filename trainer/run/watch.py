"""Watching a run: metrics as JSON lines always, a progress bar, TensorBoard and Weights & Biases when asked
for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.inputs import InvalidInput
from trainer.config import RunConfig

if TYPE_CHECKING:
    from rich.progress import TaskID

LINES = 30.0  # seconds between two lines of progress in a log


class Watcher:
    """Hears of steps and of tokens of held-out sets; what it does not care for it lets pass."""

    def record(self, values: dict[str, Any]) -> None: ...

    def validating(self, what: str, done: int, of: int) -> None: ...

    def close(self) -> None: ...


def check(config: RunConfig) -> None:
    """Raise where a watcher that was asked for is not installed."""
    if config.tensorboard and find_spec("tensorboard") is None:
        raise InvalidInput("tensorboard = true needs TensorBoard; pip install tensorboard would do.")
    if config.wandb and find_spec("wandb") is None:
        raise InvalidInput("wandb needs Weights & Biases; pip install wandb would do.")


def watchers(config: RunConfig, folder: Path, *, start: int, steps: int, progress: bool) -> list[Watcher]:
    """The watchers of a run that continues after `start` steps."""
    found: list[Watcher] = [JsonLines(folder / "metrics.jsonl", start)]
    if progress:
        terminal = sys.stderr.isatty()
        found.append(Progress(folder.name, start, steps) if terminal else Lines(folder.name, steps))
    if config.tensorboard:
        found.append(TensorBoard(folder / "tensorboard", start))
    if config.wandb:
        found.append(WeightsAndBiases(config, folder))
    return found


class JsonLines(Watcher):
    """One JSON object per line; those after the checkpoint that a run continues from come again."""

    def __init__(self, path: Path, start: int):
        if path.exists():
            kept = [line for line in path.read_bytes().splitlines(keepends=True) if _step(line) <= start]
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            draft.write_bytes(b"".join(kept))
            os.replace(draft, path)
        self.stream = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def record(self, values: dict[str, Any]) -> None:
        self.stream.write(json.dumps(values, allow_nan=False) + "\n")
        self.stream.flush()

    def close(self) -> None:
        with suppress(OSError):  # a full disk has been reported by `record`
            self.stream.close()


def say(line: str) -> None:
    """A line for whoever watches, on a terminal or in a log."""
    print(line, file=sys.stderr, flush=True)


def _facts(values: dict[str, Any]) -> str:
    mfu = f"  MFU {values['mfu']:.0%}" if "mfu" in values else ""
    return f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} tokens/s{mfu}"


class Lines(Watcher):
    """The same for a log: a line now and then."""

    def __init__(self, name: str, steps: int):
        self.name, self.steps, self.said = name, steps, time.monotonic()

    def record(self, values: dict[str, Any]) -> None:
        if "tokens_per_second" in values and time.monotonic() - self.said >= LINES:
            self.said = time.monotonic()
            say(f"{self.name}: step {values['step']:,} of {self.steps:,}  {_facts(values)}")

    def validating(self, what: str, done: int, of: int) -> None:
        if time.monotonic() - self.said >= LINES:
            self.said = time.monotonic()
            say(f"{self.name}: {what}, {done:,} of {of:,} tokens")


class Progress(Watcher):
    """A bar with loss, tokens per second, model FLOPs utilisation and time left."""

    def __init__(self, name: str, start: int, steps: int):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        name_of, facts = TextColumn("{task.description}"), TextColumn("{task.fields[facts]}")
        columns = (name_of, BarColumn(), MofNCompleteColumn(), facts, TimeRemainingColumn())
        self.bar = Bar(*columns, console=Console(stderr=True))
        self.sets: dict[str, TaskID] = {}
        self.task = self.bar.add_task(name, total=steps, completed=start, facts="")
        self.bar.start()

    def record(self, values: dict[str, Any]) -> None:
        if "tokens_per_second" in values:
            self.bar.update(self.task, completed=values["step"], facts=_facts(values))

    def validating(self, what: str, done: int, of: int) -> None:
        if what not in self.sets:
            self.sets[what] = self.bar.add_task(what, total=of, facts="tokens")
        self.bar.update(self.sets[what], completed=done)

    def close(self) -> None:
        self.bar.stop()


class TensorBoard(Watcher):
    def __init__(self, folder: Path, start: int):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder), purge_step=start + 1)

    def record(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if name != "step" and isinstance(value, int | float):
                self.writer.add_scalar(name, value, values["step"])

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases(Watcher):
    def __init__(self, config: RunConfig, folder: Path):
        import wandb

        names = {"project": config.wandb, "name": folder.name, "dir": str(folder)}
        identity = f"{folder.name}-{config.fingerprint()}"
        self.run = wandb.init(**names, id=identity, resume="allow", config=config.identity())

    def record(self, values: dict[str, Any]) -> None:
        self.run.log({name: value for name, value in values.items() if name != "step"}, step=values["step"])

    def close(self) -> None:
        self.run.finish()


def _step(line: bytes) -> float:
    """The step of a line of metrics; a line that a kill cut short belongs to no step."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
