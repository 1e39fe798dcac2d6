"""`planner calibrate sweep`: train every run of a study that is not trained yet."""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.shared import print_json
from planner.errors import InvalidInput
from planner.shell import BadInput, Command, json_option
from planner.terminal import print_table
from planner.units import scientific, short

if TYPE_CHECKING:
    from calibration.studies.engine import Engine
    from calibration.studies.expense import Expense
    from calibration.studies.study import Study, StudyRun

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}


def _a_directory(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise BadInput(f"{option.opts[0]} must name a directory; got {value!r}.")
    return value


def _with(function: Any, options: Sequence[Any]) -> Any:
    """A command with options that others have as well, in their order."""
    for option in reversed(options):
        function = option(function)
    return function


def engine_options(function: Any) -> Any:
    """The options that say who trains."""
    options = (
        click.option(
            "-o",
            "--out",
            metavar="DIR",
            callback=_a_directory,
            help="Study directory [default: the study's name, in the current directory].",
        ),
        click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help="Who trains.",
        ),
        click.option(
            "--workers",
            type=int,
            metavar="N",
            help="Runs at the same time [default: one per core or GPU; all that fit with ray].",
        ),
        click.option(
            "--per-gpu", type=int, default=1, show_default=True, metavar="N", help="Runs that share one GPU."
        ),
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="A Ray cluster's address [default: a running one, else this machine].",
        ),
        click.option(
            "--set",
            "changes",
            multiple=True,
            metavar="FIELD=VALUE",
            help="Change a setting of the recipe; may be repeated.",
        ),
        click.option("--quiet", is_flag=True, help="No live table."),
    )
    return _with(function, options)


def dry_run_options(function: Any) -> Any:
    """The options that say what a dry run reckons with."""
    options = (
        click.option("--dry-run", is_flag=True, help="List runs, FLOPs, hours and money, and train nothing."),
        click.option(
            "--gpu",
            "cards",
            multiple=True,
            default=["H100"],
            show_default=True,
            metavar="CARD",
            help="Accelerator of the dry run; may be repeated.",
        ),
        click.option("--gpus", type=int, default=1, show_default=True, metavar="N", help="How many of them."),
        click.option(
            "--mfu",
            type=float,
            default=0.4,
            show_default=True,
            help="Share of the peak that training reaches.",
        ),
        click.option(
            "--price",
            type=float,
            metavar="USD",
            help="Price per accelerator-hour, or per hour of this machine.",
        ),
    )
    return _with(function, options)


@click.command(cls=Command)
@click.argument("study", metavar="STUDY")
@engine_options
@dry_run_options
@json_option
def sweep(
    study: str,
    out: str | None,
    engine: str,
    workers: int | None,
    per_gpu: int,
    address: str | None,
    changes: tuple[str, ...],
    quiet: bool,
    dry_run: bool,
    cards: tuple[str, ...],
    gpus: int,
    mfu: float,
    price: float | None,
    as_json: bool,
) -> None:
    """Train every run of STUDY (a TOML file, or paper, micro or smoke) that is not trained yet.

    Stop it with Ctrl-C and start it again at will: finished runs count once and unfinished ones go on from their checkpoints.

    \b
    Example:
      planner calibrate sweep micro --dry-run
      planner calibrate sweep micro
      planner calibrate fit micro -o law.json
    """
    from calibration.studies import directory as directories
    from calibration.studies.expense import expenses
    from calibration.studies.local import LocalEngine
    from calibration.studies.study import load
    from calibration.studies.sweep import sweep as train_all

    plan = load(study)
    if changes:
        from trainer.cli import assignments

        plan = plan.with_recipe(**assignments(changes))
    target = Path(out or plan.name)
    if dry_run:
        directories.check_recipe(plan, target)
        folder = directories.StudyDirectory(target)
        missing = directories.unfinished(folder, plan.runs)
        takes = expenses(
            missing, LocalEngine(folder.compiled, workers=workers, per_gpu=per_gpu), cards, gpus, mfu, price
        )
        _dry_run(plan, missing, takes, as_json)
        return
    with interruptible():
        trainers = make_engine(engine, directories.StudyDirectory(target).compiled, workers, per_gpu, address)
        folder = directories.begin(plan, target)
        if not quiet:
            click.echo(f"{len(plan.runs)} runs of {plan.name} in {target}: {trainers.describe()}", err=True)
        directories.adopt(plan.runs, folder)
        from calibration.studies.watching import shown

        with shown(folder, quiet=quiet) as watch:
            progress = train_all(plan.runs, folder, trainers, watch=watch)
        directories.write_table(folder, without=progress.failed)
    facts = {
        "study": plan.name,
        "directory": str(target),
        "runs": len(plan.runs),
        "done": len(progress.done),
        "trained": len(progress.trained),
        "failed": progress.failed,
    }
    if as_json:
        print_json(facts)
    else:
        click.echo(
            f"{len(progress.done)} of {len(plan.runs)} runs are done, {len(progress.trained)} of them trained now."
        )
        if not progress.failed:
            click.echo(f"Next: planner calibrate fit {target} -o law.json")
    if progress.failed:
        for name, reason in progress.failed.items():
            click.echo(f"{name} failed: {reason}", err=True)
        raise click.exceptions.Exit(1)


def make_engine(kind: str, compiled: Path, workers: int | None, per_gpu: int, address: str | None) -> Engine:
    if find_spec("torch") is None:  # otherwise every worker would find out for itself, run by run
        raise InvalidInput("torch is not installed; pip install 'databound[train]' would do.")
    if kind == "ray":
        from calibration.studies.cluster import RayEngine

        return RayEngine(compiled, workers=workers, per_gpu=per_gpu, address=address)
    if address is not None:
        raise InvalidInput("is that of a Ray cluster; add --engine ray.", field="address")
    from calibration.studies.local import LocalEngine

    return LocalEngine(compiled, workers=workers, per_gpu=per_gpu)


class interruptible:
    """Ctrl-C, a polite kill and a lost terminal end a sweep with one line; runs have left checkpoints by then."""

    def __enter__(self) -> None:
        self.before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        for number, handler in self.before.items():
            if handler is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, _interrupt)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        from trainer.errors import TrainingStopped

        for number, handler in self.before.items():
            signal.signal(number, handler)
        if isinstance(error, KeyboardInterrupt):
            with suppress(OSError):  # the terminal may be gone
                click.echo("stopped; the same command goes on from here.", err=True)
            raise click.exceptions.Exit(128 + signal.SIGINT) from None
        if isinstance(error, TrainingStopped):
            raise click.ClickException(str(error)) from None
        if isinstance(error, OSError):
            raise click.ClickException(_complaint(error)) from None
        if isinstance(error, ModuleNotFoundError) and error.name in (
            "torch",
            "tokenizers",
            "datasets",
            "safetensors",
        ):
            raise InvalidInput(
                f"{error.name} is not installed; pip install 'databound[train]' would do."
            ) from None


def _complaint(error: OSError) -> str:
    reason = " ".join((error.strerror or str(error)).split()).rstrip(".") or type(error).__name__
    if error.errno in _UNWRITABLE:
        return f"{error.filename or 'the study directory'} cannot be written ({reason}); once it can be, the same command goes on."
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{reason}; the same command goes on from here."


def _interrupt(number: int, frame: Any) -> None:
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # once is enough, and checkpoints are being written
    raise KeyboardInterrupt


def _dry_run(plan: Study, missing: Sequence[StudyRun], takes: Sequence[Expense], as_json: bool) -> None:
    from calibration.studies.expense import rows

    listed = rows(plan.runs, {run.name for run in plan.runs} - {run.name for run in missing})
    if as_json:
        facts = {
            "study": plan.name,
            "runs": listed,
            "missing": len(missing),
            "flops": sum(run.flops for run in missing),
        }
        print_json(facts | {"engines": [expense.as_dict() for expense in takes]})
        return
    print_table(
        ("run", "params", "unique", "epochs", "λ", "seed", "steps", "FLOPs", ""),
        [
            (
                row["run"],
                short(row["params"], 3),
                short(row["unique_tokens"]),
                f"{row['epochs']:g}",
                f"{row['weight_decay']:g}",
                str(row["seed"]),
                f"{row['steps']:,}",
                scientific(row["flops"]),
                "done" if row["done"] else "",
            )
            for row in listed
        ],
    )
    print_totals(plan.runs, missing, takes)


def print_totals(runs: Sequence[StudyRun], missing: Sequence[StudyRun], takes: Sequence[Expense]) -> None:
    """The end of a dry run: what there is to train, and what that takes."""
    total = sum(run.flops for run in missing)
    click.echo(f"\n{len(runs)} runs, {len(missing)} of them to train: {scientific(total)} FLOPs (6 N D).")
    for expense in takes:
        click.echo(f"  {expense}")
