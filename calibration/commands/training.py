"""What commands that train share: who trains and where, what that would take, and an end in one line."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from calibration.commands.common import options_as
from calibration.studies import directory as directories
from calibration.studies.directory import StudyDirectory
from calibration.studies.engine import Engine
from calibration.studies.expense import Expense, on_accelerator, on_this_machine, rows
from calibration.studies.local import LocalEngine
from calibration.studies.progress import Progress, live_progress
from calibration.studies.study import Study, StudyRun, load
from calibration.studies.sweep import sweep
from planner.cli import BadInput, option
from planner.hardware import DEFAULT_MFU
from planner.inputs import InvalidInput, scientific
from trainer.errors import Signalled, TrainingStopped, exit_code
from trainer.run.store import Store

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
_NEEDED = ("torch", "tokenizers", "datasets", "safetensors")


def _a_directory(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise BadInput(f"{option.opts[0]} must name a directory; got {value!r}.")
    return value


@dataclass(frozen=True)
class Training:
    """Who trains, and where; or, in a dry run, what that is reckoned to take."""

    out: str | None = None
    store: str | None = None
    engine: str = "local"
    workers: int | None = None
    per_gpu: int = 1
    address: str | None = None
    changes: tuple[str, ...] = ()
    quiet: bool = False
    dry_run: bool = False
    cards: tuple[str, ...] = ()
    gpus: int = 1
    mfu: float = DEFAULT_MFU
    price: float | None = None

    def study(self, source: str) -> Study:
        """The study as it is to be trained."""
        found = load(source)
        if not self.changes:
            return found
        from trainer.cli import assignments

        return found.with_recipe(**assignments(self.changes))

    def folder(self, study: Study) -> StudyDirectory:
        """Where the study is or will be."""
        return StudyDirectory(Path(self.out or study.name), Store(self.store) if self.store else None)

    def trainers(self, study: Study, folder: StudyDirectory) -> Engine:
        if find_spec("torch") is None:  # otherwise every worker would find out for itself, run by run
            raise InvalidInput("torch is not installed; pip install '.[train]' would do.")
        if self.address is not None and self.engine != "ray":
            raise InvalidInput("is that of a Ray cluster; add ‹engine› ray.", field="address")
        room: dict[str, Any] = {"workers": self.workers, "per_gpu": self.per_gpu, "needs": study.needs}
        if self.engine == "local":
            return LocalEngine(folder.compiled, **room)
        from calibration.studies.cluster import RayEngine

        return RayEngine(folder.compiled, **room, address=self.address, store=folder.store)

    def train(
        self,
        study: Study,
        runs: Sequence[StudyRun],
        folder: StudyDirectory,
        trainers: Engine,
        part: Callable[[StudyRun], str],
    ) -> Progress:
        """Train what is missing of these runs, shown to whoever is looking."""
        if not self.quiet:
            click.echo(f"{len(runs)} runs of {study.name} in {folder.path}: {trainers.describe()}", err=True)
        with live_progress(folder, quiet=self.quiet) as watch:
            return sweep(runs, folder, trainers, part=part, watch=watch)

    def grid(self, study: Study, folder: StudyDirectory) -> Progress:
        """Train what is missing of a study's own runs, and write their table."""
        trainers = self.trainers(study, folder)
        directories.begin(study, folder.path)
        directories.adopt(study.runs, folder)
        progress = self.train(study, study.runs, folder, trainers, lambda run: directories.GRID)
        directories.write_table(folder, without=progress.failed)
        return progress

    def reckoned(self, study: Study, runs: Sequence[StudyRun], folder: StudyDirectory) -> DryRun:
        """What these runs take here and on each of the cards."""
        directories.check_recipe(study, folder.path)
        missing = directories.unfinished(folder, runs)
        machine = LocalEngine(folder.compiled, workers=self.workers, per_gpu=self.per_gpu)
        takes: list[Expense] = []
        if missing:  # the cards first: a wrong name ends it here
            how = (self.gpus, self.mfu, self.price)
            takes = [on_accelerator(missing, card, *how) for card in self.cards]
            takes.insert(0, on_this_machine(missing, machine, self.price))
        return DryRun(runs, missing, takes)


@dataclass(frozen=True)
class DryRun:
    """What there is to train of some runs, and what that takes."""

    runs: Sequence[StudyRun]
    missing: Sequence[StudyRun]
    takes: Sequence[Expense]

    def facts(self) -> dict[str, Any]:
        done = {run.name for run in self.runs} - {run.name for run in self.missing}
        return {
            "runs": rows(self.runs, done),
            "missing": len(self.missing),
            "flops": sum(run.flops for run in self.missing),
            "engines": [asdict(expense) for expense in self.takes],
        }

    def print_totals(self) -> None:
        total = scientific(sum(run.flops for run in self.missing))
        click.echo(f"\n{len(self.runs)} runs, {len(self.missing)} of them to train: {total} FLOPs (6 N D).")
        for expense in self.takes:
            click.echo(f"  {expense}")


training_options = options_as(
    Training,
    "training",
    option(
        "-o --out",
        "Study directory [default: the study's name, in the current directory].",
        "DIR",
        callback=_a_directory,
    ),
    option("--store", "Where runs are kept while machines share no disk, such as s3://bucket/study.", "URL"),
    option("--engine", "Who trains.", type=click.Choice(["local", "ray"]), default="local"),
    option(
        "--workers",
        "Runs at the same time [default: one per core or GPU; all that fit with ray].",
        "N",
        type=int,
    ),
    option("--per-gpu", "Runs that share one GPU.", "N", type=int, default=1),
    option("--address", "A Ray cluster's address [default: a running one, else this machine].", "HOST:PORT"),
    option("--set changes", "Change a setting of the recipe; may be repeated.", "FIELD=VALUE", multiple=True),
    option("--quiet", "No live table.", is_flag=True),
    option("--dry-run", "List runs, FLOPs, hours and money, and train nothing.", is_flag=True),
    option(
        "--gpu cards", "Accelerator of the dry run; may be repeated.", "CARD", multiple=True, default=["H100"]
    ),
    option("--gpus", "How many of them.", "N", type=int, default=1),
    option("--mfu", "Share of the peak that training reaches.", type=float, default=DEFAULT_MFU),
    option("--price", "Price per accelerator-hour, or per hour of this machine.", "USD", type=float),
)


def fail_with(failed: Mapping[str, str]) -> None:
    """Say which runs failed, and end with exit code 1 if any did."""
    for name, reason in failed.items():
        click.echo(f"{name} failed: {reason}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


class interruptible:
    """Ctrl-C, a polite kill and a lost terminal end a sweep with one line; runs have left checkpoints."""

    def __enter__(self) -> None:
        self.before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        for number, handler in self.before.items():
            if handler is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, _interrupt)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        if isinstance(error, KeyboardInterrupt):
            with suppress(OSError):  # the terminal may be gone
                click.echo("stopped; the same command goes on from here.", err=True)
            raise click.exceptions.Exit(exit_code(error)) from None
        if isinstance(error, TrainingStopped):
            raise click.ClickException(str(error)) from None
        if isinstance(error, OSError):
            raise click.ClickException(_complaint(error)) from None
        if isinstance(error, ModuleNotFoundError) and error.name in _NEEDED:
            raise InvalidInput(f"{error.name} is not installed; pip install '.[train]' would do.") from None


def _complaint(error: OSError) -> str:
    reason = " ".join((error.strerror or str(error)).split()).rstrip(".") or type(error).__name__
    if error.errno in _UNWRITABLE:
        what = error.filename or "the study directory"
        return f"{what} cannot be written ({reason}); once it can be, the same command goes on."
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{reason}; the same command goes on from here."


def _interrupt(number: int, frame: Any) -> None:
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # once is enough, and checkpoints are being written
    raise Signalled(number)
