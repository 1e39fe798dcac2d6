"""`planner calibrate report`: one self-contained HTML page about a calibration, or about a whole study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibration.commands.shared import check_output, load_runs, progress_bar, write_text
from planner.errors import InvalidInput
from planner.shell import Command

if TYPE_CHECKING:
    import pandas as pd

    from planner.calibration_files import Calibration


@click.command(cls=Command)
@click.argument("subject", metavar="CALIBRATION|STUDY/")
@click.option(
    "--calibration", metavar="LAW.json", help="The laws of a study's directory [default: fitted to it]."
)
@click.option(
    "--runs", metavar="RUNS.csv", help="The runs it was fitted on: adds the pictures that show them."
)
@click.option("--max-epochs", metavar="N", help="Leave out runs beyond so many epochs.")
@click.option("--where", metavar="CONDITION", help="Use the runs for which this holds.")
@click.option("--weight-decay", metavar="λ", help="Weight decay of runs whose table does not say it.")
@click.option(
    "--ud",
    metavar="TOKENS",
    help="Unique tokens of the allocation [default: the middle of what was fitted on].",
)
@click.option(
    "--law",
    metavar="FORM",
    help="Law of the allocation and the parameter clouds [default: the recommended one].",
)
@click.option(
    "--suite", metavar="SUITE", help="Downstream results of a study that were evaluated with this --suite."
)
@click.option(
    "--limit",
    type=int,
    metavar="N",
    help="Downstream results of a study that were evaluated with this --limit.",
)
@click.option(
    "-o",
    "--output",
    "--out",
    metavar="FILE.html",
    help="Where to write [default: the calibration's name, in the current directory].",
)
def report(
    subject: str,
    calibration: str | None,
    runs: str | None,
    max_epochs: str | None,
    where: str | None,
    weight_decay: str | None,
    ud: str | None,
    law: str | None,
    suite: str | None,
    limit: int | None,
    output: str | None,
) -> None:
    """Write one HTML page about a calibration (a file, or a shipped name): allocation, fit quality, parameters, pictures.

    The directory of a study adds what was trained, which law's prescriptions won, the weight-decay crossover, and downstream
    results where `planner evaluate` has some.

    \b
    Example:
      planner calibrate report my.json --runs runs.csv -o report.html
      planner calibrate report study/ --calibration law.json -o report.html
    """
    from calibration.reports.report import report as build
    from calibration.studies.directory import is_study
    from planner.calibration_files import Calibration, shipped_names

    if is_study(subject) or (Path(subject).is_dir() and subject not in shipped_names()):
        _of_study(subject, calibration, runs, max_epochs, where, weight_decay, ud, law, suite, limit, output)
        return
    if not Path(subject).exists() and subject not in shipped_names():
        raise InvalidInput(
            f"there is neither a calibration nor a study's directory {subject!r}; shipped calibrations are {', '.join(shipped_names())}."
        )
    for option, value in (("calibration", calibration), ("suite", suite), ("limit", limit)):
        if value is not None:
            raise InvalidInput(f"{option} goes with the directory of a study, and {subject} is none.")
    target = output if output is not None else f"{Path(subject).stem or 'report'}.html"
    check_output(target, subject, runs)
    known = Calibration.load(subject)
    table = None if runs is None else load_runs(runs, max_epochs, where, weight_decay)
    if table is not None:
        _warn_of_other_runs(known, table)
    with progress_bar("report") as progress:
        text = build(known, table, ud=ud, law=law, progress=progress)
    _write(target, text)


def _of_study(
    folder: str,
    calibration: str | None,
    runs: str | None,
    max_epochs: str | None,
    where: str | None,
    weight_decay: str | None,
    ud: str | None,
    law: str | None,
    suite: str | None,
    limit: int | None,
    output: str | None,
) -> None:
    from calibration.reports.report import report as build
    from calibration.reports.study_report import opening, sections
    from calibration.studies.directory import open_directory
    from calibration.studies.sources import fit
    from planner.calibration_files import Calibration

    if runs is not None:
        raise InvalidInput(
            "are those of the study when its directory is given; leave the option out.", field="runs"
        )
    directory, name = open_directory(folder), Path(folder).resolve().name
    target = output if output is not None else f"{name}.html"
    check_output(target, calibration)
    table = load_runs(folder, max_epochs, where, weight_decay, choice=True)
    evaluated = {name: value for name, value in (("suite", suite), ("limit", limit)) if value is not None}
    makers = sections(directory, **evaluated)
    with progress_bar("report") as progress:
        if calibration is not None:
            known = Calibration.load(calibration)
        else:
            source = f"fitted to {name}"
            known = fit(
                folder, name=name, source=source, max_epochs=max_epochs, where=where, progress=progress
            )
        begin = opening(directory)
        text = build(known, table, ud=ud, law=law, sections=makers, opening=begin, progress=progress)
    _warn_of_other_runs(known, table)
    _write(target, text)


def _write(target: str, text: str) -> None:
    write_text(target, text)
    click.echo(f"Written to {target} ({len(text.encode()) / 1e6:.1f} MB).")


def _warn_of_other_runs(known: Calibration, table: pd.DataFrame) -> None:
    """One line on stderr for each weight decay at which these are not as many runs as the law was fitted to."""
    import numpy as np

    for setting in known.settings:
        given = int(np.isclose(table["weight_decay"], setting.weight_decay, rtol=1e-9, atol=1e-12).sum())
        fitted = setting.fitted_on.runs
        if fitted is not None and given not in (0, fitted):
            click.echo(
                f"Warning: {given} runs are given at weight decay {setting.weight_decay:g}, the law was fitted to {fitted}; "
                f"the same --max-epochs and --where as for the fit would do.",
                err=True,
            )
